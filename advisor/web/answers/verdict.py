"""The verdict of an answer in words and figures, for the top of its pages."""

from typing import Any

from django.utils.text import capfirst

from advisor.result import Answer, Decision, Portfolio, Settle
from advisor.templatetags.units import language, percent_text, plain, sig

WAYS = {
    "rent": "rent",
    "reserve": "reserve",
    "buy": "buy",
    "keep": "keep",
    "api": "use a hosted API",
}
ORIGINS = {
    "official_list": "the seller's price list",
    "provider_api": "the provider's price API",
    "own": "your own price",
    "reseller": "a reseller",
    "quote": "a quote",
    "marketplace": "a marketplace",
    "second_hand": "a second-hand price",
    "estimate": "an estimate",
    "api": "the provider's published price",
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
        "origin": "already owned"
        if decision.provider == "owned"
        else ORIGINS.get(decision.price_origin, "origin not recorded"),
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
        return "Run the workloads separately"
    said = "Share one fleet: %(saved)s less than running the workloads separately"
    return said % {"saved": percent_text(f"{(p.saving_fraction or 0.0) * 100:.0f}")}


def headline(d: Decision) -> str:
    """What to do in one line, with what is rented until bought servers arrive."""
    if d.bridge is None:
        return lasting(d)
    values = {"what": lasting(d), "count": plain(d.bridge.accelerators)}
    values["chip"] = d.bridge.accelerator_name or d.bridge.accelerator
    return "{what}, and rent {count} × {chip} until they arrive".format(**values)


def lasting(d: Decision) -> str:
    """What to sign for the horizon, in whole machines: Buy 16 × H100 (12 in use), up to 24 later."""
    most, used = d.machine_accelerators, d.accelerator_count
    if most is None or used is None:
        return counted(d)
    now = d.first_machine_accelerators if d.grows else most
    now = max(now or used, used)
    said = counted(d.changed(accelerator_count=now))
    if now > used:
        said = f"{said} ({plain(used)} in use)"
    if d.grows and most > now:
        said = f"{said}, up to {plain(most)} later"
    return said


def counted(d: Decision) -> str:
    """Rent 3 × Instinct MI350X at digitalocean."""
    what = ways_text(d.ways)
    if d.ways == ["api"]:
        return f"Use a hosted API: {d.label}"
    if d.accelerator_count is None:
        return capfirst(f"{what}: {d.label}")
    values = {"what": what, "count": plain(d.accelerator_count), "chip": d.accelerator_name, "seller": d.provider}
    if d.provider in NOT_SELLERS:
        return capfirst("{what} {count} × {chip}".format(**values))
    return capfirst("{what} {count} × {chip} at {seller}".format(**values))


def ways_text(ways: list[str]) -> str:
    """buy and rent"""
    names = (WAYS[way] if way in WAYS else way for way in ways)
    return " and ".join(dict.fromkeys(names))


# --- what would settle it, and why a price is weak --------------------------------------------------------------

SETTLING = {  # by uncertain input, as in answer/money/settling.py
    "price": "Get a written quote for %(option)s.",
    "rent": "Ask for rent that is fixed for the whole term.",
    "hardware": "Get a written quote with prices for later purchases.",
    "resale": "Get a buy-back offer for the hardware.",
    "electricity": "Get the electricity price of your contract.",
    "staff": "Find out what staff costs you.",
    "api": "Get the API price in writing.",
    "performance": "Load-test %(option)s.",
    "speed": "Time some training steps on %(option)s.",
    "host": "Measure the host of %(option)s with a launch probe.",
    "host time": "Load-test %(option)s.",
    "acceptance": "Measure on your own requests how many drafted tokens %(option)s accepts.",
    "load": "Measure your traffic.",
    "goodput": "Ask for the failure rate of %(option)s.",
}
EXPECTED = {
    "price": "today's price",
    "api": "today's price",
    "performance": "the estimated speed",
    "speed": "the estimated speed",
    "load": "the expected load",
    "host": "the assumed host time",
    "host time": "the assumed host time",
    "acceptance": "the expected tokens per step",
    "goodput": "the expected share of time that trains",
    "staff": "the expected cost",
}
NOTHING_SETTLES = "No single price or measurement within its plausible range is likely to change the first choice."
WEAK = (
    *("the provider's price list", "the provider's price API", "a reseller's price"),
    *("a quote", "a marketplace price", "a second-hand price", "an estimate"),
    *("an average of several sellers", "of low confidence"),
)


def settled(s: Settle) -> str:
    """What to get, and when it changes the first choice; in English as stored."""
    name, _, about = s.input.partition(" of ")
    if s.kind == "none":
        return NOTHING_SETTLES
    if language() == "en" or name not in SETTLING:
        return s.said
    values = {"option": s.winner_after, "share": percent_text(f"{s.flips_fraction * 100:.0f}")}
    if s.at_ratio is None or name not in EXPECTED:
        then = "%(option)s is then the better choice; the probability of that is %(share)s."
    elif s.at_ratio < 1:
        then = "Below %(ratio)s times %(what)s, %(option)s is the better choice; the probability of that is %(share)s."
    else:
        then = "Above %(ratio)s times %(what)s, %(option)s is the better choice; the probability of that is %(share)s."
    if s.at_ratio is not None and name in EXPECTED:
        values |= {"ratio": sig(s.at_ratio), "what": EXPECTED[name]}
    return f"{SETTLING[name] % {'option': about}} {then % values}"


def weakness(text: str) -> str:
    """Why a price is weak, part by part: an estimate, 208 days old."""
    return ", ".join(map(weak_part, text.split(", "))) if text else ""


def weak_part(text: str) -> str:
    days = text.removesuffix(" days old")
    return f"{days} days old" if days.isdigit() else text
