"""Which deployments answer the question: enumerate, prune, price, rank, verify, and say why not the others."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from advisor.engine.search.candidates import (
    CONCURRENCY,
    Catalog,
    admissible,
    enumerate_lanes,
    mixers_of,
    offers_for,
    runs_on,
)
from advisor.engine.search.declared_scores import declared
from advisor.engine.search.objective import (
    SHOWN,
    SLACK,
    Progress,
    Scale,
    best_of_chip,
    describe,
    designs,
    final_score,
    promise,
    rows_by_chip,
    scale_of,
    table_scores,
)
from advisor.engine.search.simulated import Scored, Trials
from advisor.engine.search.table import HEADROOM_FRACTION, UNSERVED, Table, demand_of, evaluate, instances_needed, meets
from advisor.engine.search.variants import TRIED, variants
from advisor.engine.search.views import bettered, bounded, winners, with_winners
from advisor.engine.search.why_not import Near, does_not_fit, explain, outranked
from advisor.engine.search.why_not_software import formats, frameworks, narrowed
from advisor.engine.spec import Rejection, Workload
from advisor.engine.step import EMBEDDING, Lanes, normalize, prefill_fraction

__all__ = [
    "CONCURRENCY",
    "HEADROOM_FRACTION",
    "Answer",
    "Catalog",
    "Point",
    "Scored",
    "demand_of",
    "describe",
    "enumerate_lanes",
    "evaluate",
    "final_score",
    "frontier",
    "instances_needed",
    "mixers_of",
    "offers_for",
    "runs_on",
    "posed_in",
    "search",
]
NEAR = 1.2  # a design this far beyond a limit is a near miss


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """One dot of the picture: an estimate, or a ranked deployment as it was simulated."""

    label: str
    accelerator: str
    chips: int
    usd_per_hour: float
    requests_per_s: float  # at the mean load
    tpot_s: float  # p95; of an embedding: its latency
    meets_slo: bool
    prefill_fraction: float  # of a request's time: how the bill is split between input and output
    rank: int | None = None  # from 1; None: an estimate


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """Every accelerator of the catalog is either ranked or rejected; a near miss is rejected too."""

    ranked: tuple[Scored, ...]  # the best design of each chip
    near_misses: tuple[Scored, ...]
    rejections: tuple[Rejection, ...]
    points: tuple[Point, ...]
    evaluated: int
    pruned: int
    feasible: int
    built: Lanes | None
    scale: Scale
    table: Table | None = None  # every candidate that fits, for what is asked beyond a single choice
    shown: tuple[Scored, ...] = ()  # the ranked, and what wins a view without being ranked, best first
    variants: Mapping[int, tuple[Scored, ...]] = field(default_factory=dict)  # by place in `shown`, from 0
    views: Mapping[str, int] = field(default_factory=dict)  # place in `shown` of the best from each point of view
    frameworks_left: tuple[Rejection, ...] = ()  # a framework's or format's slug in the place of the accelerator's
    formats_left: tuple[Rejection, ...] = ()
    bound_usd_per_month: float | None = None  # beyond it nothing is ranked, though the planner named no budget


REASONS = (
    "misses_slo",
    "too_expensive",
    "too_many",
    "too_much_power",
    "cooling",
    "outranked",
    "does_not_fit",
    "unpriced",
    "unsupported",
    "excluded",
)  # what a planner could change first comes first


def nearness(r: Rejection) -> tuple[int, float, str]:
    """Order of the why-not list: by kind of reason, then by how far off."""
    far = r.reached / r.limit if r.limit and r.reached is not None else math.inf
    return REASONS.index(r.reason), far, r.accelerator


def search(
    workload: Workload, catalog: Catalog, progress: Progress | None = None, choice_alone: bool = False
) -> Answer:
    """The ranked answer to one serving workload; an infeasible question is an Answer with no ranked entry.

    `choice_alone`: the same choice, without other ways to run it and without why not what never came into question.
    """
    tell = progress or (lambda stage, fraction: None)
    workload, catalog = posed_in(workload, catalog)
    rejections, chips = admissible(workload, catalog)
    wanted, refused = enumerate_lanes(workload, catalog, chips)
    if not wanted:
        return unanswered(rejections + refused)
    tell("estimating step times", 0.1)
    table = evaluate(workload, catalog, wanted)
    scale = scale_of(workload, table, declared(workload, catalog))
    trials = Trials(workload, catalog, table)
    workload, trials = bounded(workload, trials, scale)
    table = trials.table
    if not choice_alone:
        rejections += refused + narrowed(workload, catalog, scale, does_not_fit(workload, catalog, table))
    ranked, near, left = _decide(workload, trials, scale, tell)
    found = winners(workload, trials, scale) if ranked else {}
    ranked = bettered(workload, ranked, found, scale)
    tried = ranked[: 0 if choice_alone and workload.variants != "adopt" else TRIED]
    others = {k: _other_ways(workload, catalog, table, s, scale, tell) for k, s in enumerate(tried)}
    if workload.variants == "adopt":
        ranked = [others[k][0] if others.get(k) else s for k, s in enumerate(ranked)]
        ranked.sort(key=lambda s: (final_score(workload, s, scale), s.usd_per_hour, s.row_index))
        others = {}
    shown, views = with_winners(workload, ranked, found, scale)
    place = {id(s): k for k, s in enumerate(shown)}
    ranked_slugs = {s.lane.choice.accelerator.slug for s in shown}
    left = [r for r in left if r.accelerator not in ranked_slugs]
    tell("saying why not the others", 0.95)
    return Answer(
        ranked=tuple(ranked),
        shown=tuple(shown),
        near_misses=tuple(near),
        rejections=tuple(sorted(rejections + left, key=nearness)),
        points=tuple(_points(workload, table, shown, left)),
        evaluated=table.evaluated,
        pruned=table.pruned,
        feasible=int(np.count_nonzero(meets(workload, table))),
        built=table.built,
        scale=scale,
        table=table,
        variants={place[id(ranked[k])]: v for k, v in others.items() if v},
        views=views,
        frameworks_left=() if choice_alone else tuple(frameworks(workload, trials, scale, chips, shown)),
        formats_left=() if choice_alone else tuple(formats(workload, trials, scale, chips, shown)),
        bound_usd_per_month=workload.constraints.max_usd_per_month if workload.constraints.bound_factor else None,
    )


def _other_ways(
    workload: Workload, catalog: Catalog, table: Table, s: Scored, scale: Scale, tell: Progress
) -> tuple[Scored, ...]:
    """The finalist with drafts or in two pools, where that is better."""
    assert table.built is not None
    tell(f"other ways to run {s.lane.choice.accelerator.slug}", 0.95)
    return tuple(variants(workload, catalog, table.built, s, scale))


def posed_in(workload: Workload, catalog: Catalog) -> tuple[Workload, Catalog]:
    """The question as the engine computes it: see encoder.py."""
    workload, model = normalize(workload, catalog.model)
    return workload, replace(catalog, model=model)


def unanswered(rejections: Sequence[Rejection]) -> Answer:
    """No chip is left to compute anything of."""
    return Answer(
        ranked=(),
        near_misses=(),
        rejections=tuple(sorted(rejections, key=nearness)),
        points=(),
        evaluated=0,
        pruned=0,
        feasible=0,
        built=None,
        scale=Scale(),
    )


def _decide(
    workload: Workload, trials: Trials, scale: Scale, tell: Progress
) -> tuple[list[Scored], list[Scored], list[Rejection]]:
    """Chips in the order of what their estimates promise, simulated while one may still be among those shown."""
    table, rows = trials.table, rows_by_chip(trials.table)
    score, maybe = table_scores(workload, table, scale), meets(workload, table, SLACK)
    promised = {slug: promise(score, maybe, own) for slug, own in rows.items()}
    ranked: list[Scored] = []
    near: list[Near] = []
    rejections: list[Rejection] = []
    for done, slug in enumerate(sorted(promised, key=lambda s: (promised[s], s))):
        own, last = rows[slug], ranked[SHOWN - 1] if len(ranked) >= SHOWN else None
        if last is not None and final_score(workload, last, scale) <= promised[slug] < math.inf:
            usd = promise(table.usd_per_hour, maybe, own)
            rejections.append(outranked(workload, slug, usd, simulated=False))
            continue
        tell(f"simulating {slug}", 0.3 + 0.7 * done / len(promised))
        best = best_of_chip(workload, trials, own, score, scale).best
        if best is not None:
            ranked.append(best)
            ranked.sort(key=lambda s: (final_score(workload, s, scale), s.usd_per_hour, s.row_index))
            continue
        ask = partial(best_of_chip, trials=trials, own=own, score=score, scale=scale)
        candidates = partial(designs, table=table, own=own, score=score)
        rejection, miss = explain(workload, trials, slug, ask, candidates)
        rejections.append(rejection)
        if miss is not None:
            near.append(miss)
    rejections += [
        outranked(workload, s.lane.choice.accelerator.slug, s.usd_per_hour, simulated=True) for s in ranked[SHOWN:]
    ]
    near.sort(key=lambda n: (n.excess_fraction, n.scored.usd_per_hour, n.scored.row_index))
    kept = [n.scored for n in near if n.excess_fraction <= NEAR] or [n.scored for n in near[: 0 if ranked else 1]]
    return ranked[:SHOWN], kept, rejections


# --- the picture ------------------------------------------------------------------------------------------------


def _points(workload: Workload, table: Table, ranked: Sequence[Scored], left: Sequence[Rejection]) -> Iterator[Point]:
    """The ranked as simulated, and per accelerator and concurrency the cheapest estimate.

    Where the simulation has overruled an estimate it is not drawn as meeting the limits: not for a chip without a
    design that holds, nor for less money than the chip's best one.
    """
    held = {r.accelerator: 0.0 for r in left if r.reason == "outranked"}
    for rank, s in enumerate(ranked, 1):
        a = s.lane.choice.accelerator
        held[a.slug] = min(held.get(a.slug, math.inf), s.usd_per_hour)
        yield Point(
            label=f"{s.chips} x {a.name}, {describe(s.lane)}",
            accelerator=a.slug,
            chips=s.chips,
            usd_per_hour=s.usd_per_hour,
            requests_per_s=s.requests_per_s_mean,
            tpot_s=s.verified.ttft_p95_s if workload.kind == EMBEDDING else s.verified.tpot_p95_s,
            meets_slo=True,
            prefill_fraction=prefill_fraction(workload, table.built, s.row_index, s.verified.running_requests_mean),
            rank=rank,
        )
    good = meets(workload, table)
    serves = np.isfinite(table.usd_per_hour) & np.isfinite(table.tpot_p95_s) & (table.replicas < UNSERVED)
    for slug, own in rows_by_chip(table).items():
        usd = np.where(serves[own], table.usd_per_hour[own], np.inf)
        for j, k in enumerate(np.argmin(usd, axis=0)):
            if not math.isfinite(usd[k, j]):
                continue
            i = int(own[k])
            chips = int(table.chips[i, 0] * (table.replicas[i, j] + workload.slo.spares(table.replicas[i, j])))
            yield Point(
                label=f"{chips} x {table.wanted[i].choice.accelerator.name}, {describe(table.wanted[i])}, estimated",
                accelerator=slug,
                chips=chips,
                usd_per_hour=float(usd[k, j]),
                requests_per_s=float(table.peak_requests_per_s[i, j])
                * (workload.requests_per_s_mean / workload.requests_per_s_peak),
                tpot_s=float((table.ttft_p95_s if workload.kind == EMBEDDING else table.tpot_p95_s)[i, j]),
                meets_slo=bool(good[i, j]) and float(usd[k, j]) >= held.get(slug, math.inf),
                prefill_fraction=prefill_fraction(workload, table.built, i, _planned_running(workload, table, i, j)),
            )


def _planned_running(workload: Workload, table: Table, i: int, j: int) -> float:
    """Requests that one lane of a candidate runs at the peak, by Little's law."""
    c = table.wanted[i].choice
    rate = table.peak_requests_per_s[i, j] / (table.replicas[i, j] * c.lanes)
    return float(rate * (table.ttft_p95_s[i, j] + workload.output_tokens.mean_tokens * table.tpot_p95_s[i, j]))


def output_bill_usd_per_hour(point: Point) -> float:
    """The output tokens' part of the bill; an embedding has none and pays for its input."""
    return point.usd_per_hour * (1 - point.prefill_fraction) or point.usd_per_hour


def frontier(points: Sequence[Point]) -> set[int]:
    """Indices of the ranked points that no other beats in both the output's cost and TPOT.

    Estimates take no part: they have not waited in a simulated queue, and would lie before those that have. Only when
    nothing is ranked, the points within the limits are compared, or all when none is.
    """
    pool = [k for k, p in enumerate(points) if p.rank is not None]
    pool = pool or [k for k, p in enumerate(points) if p.meets_slo] or list(range(len(points)))
    kept, least_s = set(), math.inf
    for k in sorted(pool, key=lambda k: (output_bill_usd_per_hour(points[k]), points[k].tpot_s)):
        if points[k].tpot_s < least_s:
            kept.add(k)
            least_s = points[k].tpot_s
    return kept
