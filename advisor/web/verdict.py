"""The verdict of an answer in words and figures, for the top of its pages."""

from typing import Any

from django.utils.translation import gettext, pgettext
from django.utils.translation import gettext_noop as known

from advisor.result import Answer, Decision, Portfolio
from advisor.templatetags.units import percent_text, plain

WAYS = {
    "rent": known("Rent"),
    "reserve": known("Reserve"),
    "buy": known("Buy"),
    "keep": known("Keep"),
    "api": known("Use a hosted API"),
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
        "origin": gettext(ORIGINS.get(decision.price_origin, known("origin not recorded"))),
        "settle": decision.settle,
    }


def fleet(p: Portfolio) -> str:
    """A portfolio in one line: shared or separate, and what that saves."""
    if p.shared is None or (p.saving_fraction or 0.0) <= 0:
        return gettext("Run the workloads separately")
    said = gettext("Share one fleet: %(saved)s less than running the workloads separately")
    return said % {"saved": percent_text(f"{(p.saving_fraction or 0.0) * 100:.0f}")}


def headline(d: Decision) -> str:
    """What to do in one line: Rent 3 × Instinct MI350X at digitalocean."""
    what = ways_text(d.ways)
    if d.ways == ["api"]:
        return gettext("Use a hosted API: %(label)s") % {"label": d.label}
    if d.accelerator_count is None:
        return gettext("%(what)s: %(label)s") % {"what": what, "label": d.label}
    values = {"what": what, "count": plain(d.accelerator_count), "chip": d.accelerator_name, "seller": d.provider}
    if d.provider in NOT_SELLERS:
        return pgettext("Rent 8 × H100", "%(what)s %(count)s × %(chip)s") % values
    return pgettext("Rent 8 × H100 at aws", "%(what)s %(count)s × %(chip)s at %(seller)s") % values


def ways_text(ways: list[str]) -> str:
    """Buy and rent."""
    names = [gettext(WAYS[way]) if way in WAYS else way for way in dict.fromkeys(ways)]
    joined = gettext(" and ").join([names[0], *(name[:1].lower() + name[1:] for name in names[1:])])
    return joined[:1].upper() + joined[1:]
