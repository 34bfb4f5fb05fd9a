"""The verdict of an answer in words and figures, for the top of its pages."""

from typing import Any

from advisor.result import Answer, Decision, Portfolio

WAYS = {"rent": "rent", "reserve": "reserve", "buy": "buy", "keep": "keep", "api": "use a hosted API"}
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
        "origin": ORIGINS.get(decision.price_origin, "origin not recorded"),
        "settle": decision.settle,
    }


def fleet(p: Portfolio) -> str:
    """A portfolio in one line: shared or separate, and what that saves."""
    if p.shared is None or (p.saving_fraction or 0.0) <= 0:
        return "Run the workloads separately"
    return f"Share one fleet: {p.saving_fraction or 0.0:.0%} less than running the workloads separately"


def headline(d: Decision) -> str:
    """What to do in one line: Rent 3 × Instinct MI350X at digitalocean."""
    ways = [WAYS.get(way, way) for way in d.ways]
    what = " and ".join(dict.fromkeys(ways))
    seller = "" if d.provider in NOT_SELLERS else f" at {d.provider}"
    if d.ways == ["api"]:
        return f"Use a hosted API: {d.label}"
    if d.accelerator_count is None:
        return f"{what.capitalize()}: {d.label}"
    return f"{what.capitalize()} {d.accelerator_count:,} × {d.accelerator_name}{seller}"
