"""Sellers that do not say where their machines are, for questions that require a region: shown apart, never ranked."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from advisor.answer.money.bill import availability_text, cheapest
from advisor.answer.money.plan import cents
from advisor.answer.question import Question
from advisor.engine.search import Scored, allowed, describe, repriced
from advisor.engine.terms import Offer
from advisor.result import UnknownPlace

MOST = 8


def unknown_places(question: Question, shown: Sequence[Scored]) -> list[UnknownPlace]:
    """The ranked machines at sellers of region `any`, cheapest first; empty where no region is required."""
    if not question.workload.constraints.regions_allow:
        return []
    ranks: dict[str, tuple[int, Scored]] = {}
    for rank, s in enumerate(shown, start=1):
        ranks.setdefault(s.lane.choice.accelerator.slug, (rank, s))
    found = [place for rank, s in ranks.values() for place in places_of(question, s, rank)]
    return sorted(found, key=lambda place: place.usd_per_month)[:MOST]


def places_of(question: Question, s: Scored, rank: int) -> Iterator[UnknownPlace]:
    """One deployment at the cheapest offer of each such seller."""
    c = question.workload.constraints
    anywhere = replace(c, regions_allow=())
    sellers: dict[str, list[Offer]] = {}
    for o in question.catalog.offers:
        if o.sells(s.lane.choice.accelerator) and o.may_be_elsewhere(c.regions_allow) and allowed(o, anywhere):
            sellers.setdefault(o.provider, []).append(o)
    for group in sellers.values():
        best = cheapest(question, s, group)
        other = repriced(question, s, best) if best is not None else s
        if other.planned is None or other.planned is s.planned or not math.isfinite(other.planned.plan.usd_per_month):
            continue
        yield UnknownPlace(
            rank=rank,
            label=f"{other.chips:,} x {other.lane.choice.accelerator.name}, {describe(other.lane)}",
            provider=other.offer.provider,
            instance=other.offer.instance,
            region=other.offer.region,
            usd_per_month=cents(other.planned.plan.usd_per_month),
            price_as_of=other.offer.as_of,
            price_source=other.offer.source,
            availability=availability_text(other.offer, c.regions_allow),
        )
