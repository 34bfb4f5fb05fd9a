"""The verdict of an answer in words and figures, for the top of its pages."""

from typing import Any

from django.utils.text import capfirst

from advisor.result import Answer, Decision, Portfolio, Settle
from advisor.templatetags.units import percent_text, plain

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
    """What the verdict block shows; None where nothing is feasible."""
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
        "weakness": decision.price_weakness,
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

NOTHING_SETTLES = "No single price or measurement within its plausible range is likely to change the first choice."


def settled(s: Settle) -> str:
    """What to get, and when it changes the first choice."""
    return NOTHING_SETTLES if s.kind == "none" else s.said
