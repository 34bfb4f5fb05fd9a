"""The verdict of an answer in words and figures, for the top of its pages."""

from typing import Any

from django.utils.text import capfirst
from django.utils.translation import gettext, pgettext
from django.utils.translation import gettext_noop as known

from advisor.result import Answer, Decision, Portfolio, ServerOrder, ServerPurchase, Settle
from advisor.templatetags.units import language, percent_text, plain, sig

WAYS = {
    "rent": known("rent"),
    "reserve": known("reserve"),
    "buy": known("buy"),
    "keep": known("keep"),
    "api": known("use a hosted API"),
}
ORIGINS = {
    "official_list": known("the seller's price list"),
    "provider_api": known("the provider's price API"),
    "own": known("your own price"),
    "reseller": known("a reseller"),
    "quote": known("a quote"),
    "marketplace": known("a marketplace"),
    "second_hand": known("a second-hand price"),
    "estimate": known("an estimate"),
    "api": known("the provider's published price"),
}
NOT_SELLERS = ("own", "owned", "")


def shown(answer: Answer) -> dict[str, Any] | None:
    """What the verdict block shows, in the language of the page; None where nothing is feasible."""
    decision = answer.decision or answer.decide()
    if decision is None:
        return None
    return {
        "decision": decision,
        "headline": fleet(answer.portfolio) if answer.portfolio else headline(decision),
        "origin": gettext("already owned")
        if decision.provider == "owned"
        else gettext(ORIGINS.get(decision.price_origin, known("origin not recorded"))),
        "settle": decision.settle,
        "settling": settled(decision.settle) if decision.settle else "",
        "weakness": weakness(decision.price_weakness),
        "one_host_lost": one_host_lost(answer),
        "purchases_usd": purchases_usd(answer),
    }


def purchases_usd(answer: Answer) -> float:
    """What the first choice buys over the horizon, USD; 0: nothing, or the answer does not say."""
    first = next(iter(answer.recommendations), None)
    money = answer.portfolio.money if answer.portfolio else getattr(first, "money", None)
    return float(getattr(money, "capital_usd", None) or 0.0)


def one_host_lost(answer: Answer) -> str:
    """What the loss of a host does to the first choice, in English as stored; empty where the answer does not say."""
    first = next(iter(answer.recommendations), None)
    lost = None if first is None else getattr(first, "one_host_lost", None)
    return lost.said if lost is not None else ""


def fleet(p: Portfolio) -> str:
    """A portfolio in one line: shared or separate, and what that saves."""
    if p.shared is None or (p.saving_fraction or 0.0) <= 0:
        return gettext("Run the workloads separately")
    said = gettext("Share one fleet: %(saved)s less than running the workloads separately")
    return said % {"saved": percent_text(f"{(p.saving_fraction or 0.0) * 100:.0f}")}


def headline(d: Decision) -> str:
    """What to do in one line, with what is rented until bought servers arrive."""
    if d.bridge is None:
        return lasting(d)
    values = {"what": lasting(d), "count": plain(d.bridge.accelerators)}
    values["chip"] = d.bridge.accelerator_name or d.bridge.accelerator
    return gettext("%(what)s, and rent %(count)s × %(chip)s until they arrive") % values


def lasting(d: Decision) -> str:
    """What to sign for the horizon, in whole machines: Buy 16 × H100 (12 in use), up to 24 later."""
    if d.purchase is not None and d.ways[0] == "buy" and all(order.accelerator_name for order in d.purchase.orders):
        return purchased(d.purchase)
    most, used = d.machine_accelerators, d.accelerator_count
    if most is None or used is None:
        return counted(d)
    now = d.first_machine_accelerators if d.grows else most
    now = max(now or used, used)
    said = counted(d.changed(accelerator_count=now))
    if now > used:
        said = gettext("%(what)s (%(used)s in use)") % {"what": said, "used": plain(used)}
    if d.grows and most > now:
        said = gettext("%(what)s, up to %(most)s later") % {"what": said, "most": plain(most)}
    return said


FORMS = {  # of one machine, and of several
    "server": (known("%(count)s server with %(each)s × %(chip)s"), known("%(count)s servers with %(each)s × %(chip)s")),
    "rack": (known("%(count)s rack with %(each)s × %(chip)s"), known("%(count)s racks with %(each)s × %(chip)s")),
    "workstation": (
        known("%(count)s workstation with %(each)s × %(chip)s"),
        known("%(count)s workstations with %(each)s × %(chip)s"),
    ),
}


def purchased(p: ServerPurchase) -> str:
    """A purchase in the servers that are ordered: Buy 2 servers with 8 × B200 (14 of 16 accelerators in use)."""
    first = [order for order in p.orders if order.service_month == p.orders[0].service_month]
    said = gettext("Buy %(what)s") % {"what": gettext(" and ").join(map(machines, first))}
    if p.accelerators > 1:
        values = {"what": said, "used": plain(p.first_accelerators_needed), "all": plain(p.first_accelerators)}
        said = gettext("%(what)s (%(used)s of %(all)s accelerators in use)") % values
    later = p.servers - sum(order.servers for order in first)
    return gettext("%(what)s, %(count)s more later") % {"what": said, "count": plain(later)} if later else said


def machines(order: ServerOrder) -> str:
    """2 servers with 8 × B200."""
    values = {"count": plain(order.servers), "each": plain(order.accelerators), "chip": order.accelerator_name}
    if order.form not in FORMS or not order.accelerator_name:
        return f"{plain(order.servers)} × {order.product}"
    return gettext(FORMS[order.form][order.servers != 1]) % values


def counted(d: Decision) -> str:
    """Rent 3 × Instinct MI350X at digitalocean."""
    what = ways_text(d.ways)
    if d.ways == ["api"]:
        return gettext("Use a hosted API: %(label)s") % {"label": d.label}
    if d.accelerator_count is None:
        return capfirst(gettext("%(what)s: %(label)s") % {"what": what, "label": d.label})
    values = {"what": what, "count": plain(d.accelerator_count), "chip": d.accelerator_name, "seller": d.provider}
    if d.provider in NOT_SELLERS:
        return capfirst(pgettext("Rent 8 × H100", "%(what)s %(count)s × %(chip)s") % values)
    return capfirst(pgettext("Rent 8 × H100 at aws", "%(what)s %(count)s × %(chip)s at %(seller)s") % values)


def ways_text(ways: list[str]) -> str:
    """buy and rent"""
    names = (gettext(WAYS[way]) if way in WAYS else way for way in ways)
    return gettext(" and ").join(dict.fromkeys(names))


# --- what would settle it, and why a price is weak --------------------------------------------------------------

SETTLING = {  # by uncertain input, as in answer/money/settling.py
    "price": known("Get a written quote for %(option)s."),
    "rent": known("Ask for rent that is fixed for the whole term."),
    "hardware": known("Get a written quote with prices for later purchases."),
    "resale": known("Get a buy-back offer for the hardware."),
    "electricity": known("Get the electricity price of your contract."),
    "staff": known("Find out what staff costs you."),
    "api": known("Get the API price in writing."),
    "performance": known("Load-test %(option)s."),
    "speed": known("Time some training steps on %(option)s."),
    "host": known("Measure the host of %(option)s with a launch probe."),
    "host time": known("Load-test %(option)s."),
    "acceptance": known("Measure on your own requests how many drafted tokens %(option)s accepts."),
    "load": known("Measure your traffic."),
    "goodput": known("Ask for the failure rate of %(option)s."),
}
EXPECTED = {
    "price": known("today's price"),
    "api": known("today's price"),
    "performance": known("the estimated speed"),
    "speed": known("the estimated speed"),
    "load": known("the expected load"),
    "host": known("the assumed host time"),
    "host time": known("the assumed host time"),
    "acceptance": known("the expected tokens per step"),
    "goodput": known("the expected share of time that trains"),
    "staff": known("the expected cost"),
}
NOTHING_SETTLES = known(
    "No single price or measurement within its plausible range is likely to change the first choice."
)
WEAK = (
    *(known("the provider's price list"), known("the provider's price API"), known("a reseller's price")),
    *(known("a quote"), known("a marketplace price"), known("a second-hand price"), known("an estimate")),
    *(known("an average of several sellers"), known("of low confidence")),
)


def settled(s: Settle) -> str:
    """What to get, and when it changes the first choice; in English as stored."""
    name, _, about = s.input.partition(" of ")
    if s.kind == "none":
        return gettext(NOTHING_SETTLES)
    if language() == "en" or name not in SETTLING:
        return s.said
    values = {"option": s.winner_after, "share": percent_text(f"{s.flips_fraction * 100:.0f}")}
    if s.at_ratio is None or name not in EXPECTED:
        then = gettext("%(option)s is then the better choice; the probability of that is %(share)s.")
    elif s.at_ratio < 1:
        then = gettext(
            "Below %(ratio)s times %(what)s, %(option)s is the better choice; the probability of that is %(share)s."
        )
    else:
        then = gettext(
            "Above %(ratio)s times %(what)s, %(option)s is the better choice; the probability of that is %(share)s."
        )
    if s.at_ratio is not None and name in EXPECTED:
        values |= {"ratio": sig(s.at_ratio), "what": gettext(EXPECTED[name])}
    return f"{gettext(SETTLING[name]) % {'option': about}} {then % values}"


def weakness(text: str) -> str:
    """Why a price is weak, part by part: an estimate, 208 days old."""
    return gettext(", ").join(map(weak_part, text.split(", "))) if text else ""


def weak_part(text: str) -> str:
    days = text.removesuffix(" days old")
    return gettext("%(n)s days old") % {"n": days} if days.isdigit() else gettext(text)
