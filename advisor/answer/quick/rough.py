"""A rough size and cost while a question is being written: few formats and frameworks, no drafts, no simulation."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from advisor.answer.options.option import GIB
from advisor.answer.quick.kept import Kept, Prepared, key_of, one_at_a_time, prepared, revision_for
from advisor.answer.quick.ranking import check_kind
from advisor.engine.cost import HOURS_PER_MONTH
from advisor.engine.search import Catalog, Estimated, EstimatedRanking, describe, estimated_ranking
from advisor.engine.step import runs_on, supports_model
from advisor.engine.terms import kind_named
from advisor.inputs import asked_on, rounded
from advisor.result import ESTIMATED, QuickChip, QuickEstimate
from catalog.models import Organisation

CHIPS_SHOWN = 3
ESTIMATES = Kept(64)
Json = dict[str, Any]


def missing_from(raw: Mapping[str, Any]) -> list[str]:
    """What a raw question lacks for an estimate: the model, the lengths and the traffic."""
    traffic, kind = raw.get("traffic") or {}, kind_named(raw.get("kind"))
    lengths = [("input_tokens", "mean input tokens"), ("output_tokens", "mean output tokens")]
    found = [] if raw.get("model") else ["model"]
    found += [
        said
        for key, said in lengths[: 2 if kind.generates_tokens else 1]
        if not traffic.get(key) and not traffic.get("trace")
    ]
    if kind.has_deadline:
        return found + ([] if raw.get("batch") else ["requests and deadline of the batch"])
    rated = any(traffic.get(key) for key in ("requests_per_s", "users", "trace", "turns", "audio"))
    return found + ([] if rated else ["requests per second or users"])


def quick_estimate(spec: Json, organisation: Organisation | None = None) -> QuickEstimate:
    """The three cheapest accelerators for a validated workload, roughly."""
    check_kind(spec)
    revision = revision_for(organisation)
    key = (revision, organisation.pk if organisation else None, key_of([spec, asked_on(spec)]))
    with one_at_a_time():
        return ESTIMATES.get(key, lambda: _estimate(spec, organisation, revision))


def _estimate(spec: Json, organisation: Organisation | None, revision: str) -> QuickEstimate:
    p = thinned(prepared({**spec, "variants": "no", "objective": "cost"}, organisation, revision))
    found = estimated_ranking(p)
    first = found.ranked[:CHIPS_SHOWN]
    return QuickEstimate(
        missing=[], mark=ESTIMATED, chips=[_chip(e) for e in first], note="" if first else none_within(found)
    )


def none_within(found: EstimatedRanking) -> str:
    if not found.missed:
        return "No accelerator is within these limits by this estimate."
    over = found.missed[0].excess_fraction - 1
    return f"No accelerator is within the latency limits by this estimate; the nearest is {over:.0%} over."


def thinned(p: Prepared) -> Prepared:
    """The question with one framework for each chip; every weight format stays."""
    kept = _frameworks(p.catalog)
    limits = replace(p.workload.constraints, frameworks_allow=p.workload.constraints.frameworks_allow or kept)
    return replace(p, workload=replace(p.workload, constraints=limits))


def _frameworks(catalog: Catalog) -> tuple[str, ...]:
    """The fewest frameworks that run the model on every chip with an offer, the most widely usable first."""
    sold = {o.accelerator for o in catalog.offers}
    left = {a.slug: a for a in catalog.accelerators if a.served and a.slug in sold}
    able = [f for f in catalog.frameworks if f.startable and supports_model(f, catalog.model)]
    chosen: list[str] = []
    while left:
        reach = [(sum(runs_on(f, a) for a in left.values()), f) for f in able]
        most, best = max(reach, key=lambda pair: pair[0], default=(0, None))
        if best is None or not most:
            break
        chosen.append(best.slug)
        left = {slug: a for slug, a in left.items() if not runs_on(best, a)}
    return tuple(chosen)


def _chip(e: Estimated) -> QuickChip:
    a, m = e.lane.choice.accelerator, e.memory
    used = m.weights_bytes + m.kv_bytes + m.activations_bytes + m.overhead_bytes
    lanes = (e.replicas - e.spare_replicas) * e.lane.choice.lanes
    each = int(m.kv_capacity_tokens // e.lane.context_tokens) if e.lane.context_tokens else 0
    return QuickChip(
        accelerator=a.slug,
        accelerator_name=a.name,
        accelerator_count=e.chips,
        memory_gib=rounded(used / GIB),
        memory_limit_gib=rounded(a.memory_bytes / GIB),
        users_that_fit=each * lanes,
        context_tokens=rounded(e.lane.context_tokens),
        usd_per_month=rounded(e.usd_per_hour * HOURS_PER_MONTH),
        layout=describe(e.lane),
    )
