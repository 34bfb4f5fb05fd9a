"""Variants of a simulated deployment: disaggregated prefill and decode, or speculative decoding beside it.

Separate pools are tried on the finalists and on the nearest misses. Under `variants: show`, drafts are tried on the
finalists too; under `adopt` they are candidates like all others (drafted.py). A variant is sized, priced and simulated
like any deployment before it is shown.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np

from advisor.engine.scheduler import REQUESTS, Bounds, Verified, closed_loop, response_of, scheduler_of, verify
from advisor.engine.search.candidates import CONCURRENCY, Question, holds_replica
from advisor.engine.search.limits import Factors, slo_probability, tpot_limit_s, with_confidence
from advisor.engine.search.objective import Scale, final_score, table_scores
from advisor.engine.search.rejected.why_not import NearMiss
from advisor.engine.search.simulated import (
    PILOT_REQUESTS,
    Pools,
    PoolsTried,
    Scored,
    Simulations,
    excess,
    excess_bounds,
    is_sure,
    over_budget,
    repriced,
)
from advisor.engine.search.table import demand_of, evaluate, meets, packing_of, usable_fraction
from advisor.engine.search.variants.drafted import drafts_known, first_of_each, tries_drafts
from advisor.engine.step import (
    Array,
    Lane,
    Lanes,
    has_encoder,
    supports_drafts,
    take,
)
from advisor.engine.terms import Lengths, Workload

FINALISTS = 3  # top deployments that get variants
DESIGNS = 2  # speculative designs to simulate per finalist
POOL_DESIGNS = 3  # layouts of separate pools to simulate per finalist
DRAFTED_LAYOUTS = 2  # of them with drafts
DRAFTS_APART, STAGES_APART = "pooled_drafts", "pooled_stages"  # features: in separate pools, too
# Median errors of the rows of separate pools that were kept back (2026-11); normal draws are within NORMAL_MEDIAN of
# their standard deviation in half of the cases
TTFT_ERROR, TPOT_ERROR, NORMAL_MEDIAN = 0.62, 0.21, 0.6745


RESCUES, RESCUE_EXCESS = 3, 1.5  # near misses that are tried with separate pools, and how far they may be over a limit
RESCUE_REPLICAS = 2  # times the chips of a near miss that its pools may have


def variants(workload: Workload, simulations: Simulations, s: Scored, scale: Scale) -> list[Scored]:
    """Variants that meet every limit and beat the finalist under the objective, best first."""
    if workload.variants == "no" or not supports_drafts(s.lane.choice):
        return []
    beside = workload.variants == "show" and tries_drafts(Question(workload, simulations.catalog))
    attempts = [
        with_drafts(Question(workload, simulations.catalog), s, scale) if beside else None,
        in_pools(workload, simulations, s, s.chips - 1)
        if can_disaggregate(Question(workload, simulations.catalog))
        else None,
    ]
    now = final_score(workload, s, scale)
    better = [v for v in attempts if v is not None and v.meets_slo and final_score(workload, v, scale) < now]
    return sorted(better, key=lambda v: final_score(workload, v, scale))


def can_disaggregate(question: Question) -> bool:
    """Whether separate pools apply: they are sized and simulated only at a fixed arrival rate."""
    workload = question.workload
    applies = workload.apart and workload.variants != "no" and not has_encoder(question.catalog.model)
    applies &= question.catalog.model.adapters is None
    return applies and workload.kind.tries_disaggregation and workload.users is None and workload.trace is None


def rescues(workload: Workload, simulations: Simulations) -> bool:
    """Whether separate pools may replace a design that misses a limit."""
    return workload.variants == "adopt" and can_disaggregate(Question(workload, simulations.catalog))


def rescued(workload: Workload, simulations: Simulations, near: Sequence[NearMiss]) -> list[Scored]:
    """Deployments with separate pools that meet every limit, on chips whose other designs miss one by little."""
    tried = [n.scored for n in near if n.excess_fraction <= RESCUE_EXCESS][:RESCUES]
    found = [in_pools(workload, simulations, s, RESCUE_REPLICAS * max(s.chips, 2)) for s in tried]
    return [v for v in found if v is not None and v.meets_slo]


# --- speculative decoding ---------------------------------------------------------------------------------------


def with_drafts(question: Question, s: Scored, scale: Scale) -> Scored | None:
    """The finalist with the best draft and batch size, simulated; None if no estimate beats it."""
    workload = question.workload
    drafts = drafts_known(question, s.lane.framework, s.lane.choice.dp == 1)
    lanes = [replace(s.lane, draft=d, max_running_requests=cap) for d in drafts for cap in _caps(s)]
    if not lanes:
        return None
    table = evaluate(replace(question, catalog=replace(question.catalog, offers=(s.offer,))), lanes)
    if not table.lanes:
        return None
    score = table_scores(workload, table, scale)
    promising = np.where(meets(workload, table), score, np.inf)
    simulations, best = (
        Simulations(replace(question, catalog=replace(question.catalog, offers=(s.offer,))), table),
        None,
    )
    for place in np.argsort(promising, axis=None, kind="stable")[:DESIGNS]:
        row, column = (int(v) for v in np.unravel_index(place, promising.shape))
        if not promising[row, column] < final_score(workload, best or s, scale):
            break
        trial = simulations.fewest_replicas(workload, row, column)
        if trial.excess_fraction <= 1:
            scored = simulations.scored(workload, trial)
            if scored.meets_slo and final_score(workload, scored, scale) < final_score(workload, best or s, scale):
                best = scored
    return replace(best, row_index=s.row_index) if best else None


def _caps(s: Scored) -> Sequence[int]:
    """Caps on running requests to try: the finalist's and twice that, since faster steps allow larger batches."""
    return sorted({min(s.lane.max_running_requests * n, s.lane.framework.max_running_requests) for n in (1, 2)})


# --- disaggregated serving --------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class SizedPools:
    """Both pools of one lane of the table for the peak, in closed form."""

    row: int
    prefill: int  # replicas
    decode: int
    seats: int  # running requests of a decode lane
    chips_each: int

    @property
    def chips(self) -> int:
        return (self.prefill + self.decode) * self.chips_each


def in_pools(workload: Workload, simulations: Simulations, s: Scored, most_chips: int) -> Scored | None:
    """Separate prefill and decode replicas on the chip and offer of a deployment, the fewest that meet the limits.

    The layouts, formats and frameworks that closed forms find smallest are simulated. None if all need more than
    `most_chips`, or none is supported.
    """
    plain = [(simulations, sized) for sized in sized_pools(workload, simulations, s)]
    every = sorted([*plain, *drafted_pools(workload, simulations, s, plain)], key=lambda each: each[1].chips)
    found, tried = [], []
    for where, sized in every[:POOL_DESIGNS]:
        most = most_chips // sized.chips_each
        if sized.prefill + sized.decode <= most and simulations.catalog.effort.allows("more layouts of separate pools"):
            scored, estimated = grown(workload, where, s, sized, most)
            found.append(scored)
            tried += [estimated] if estimated else []
    if every:
        fewest = min(tried, key=lambda each: each.chips, default=PoolsTried(together_chips=s.chips))
        simulations.pools_tried[s.lane.choice.accelerator.slug] = replace(fewest, together_chips=s.chips)
    return min((v for v in found if v is not None), key=lambda v: v.usd_per_hour, default=None)


def drafted_pools(
    workload: Workload, simulations: Simulations, s: Scored, plain: Sequence[tuple[Simulations, SizedPools]]
) -> list[tuple[Simulations, SizedPools]]:
    """Pools with drafts, of the smallest layouts without that have frameworks which run both."""
    question = Question(workload, replace(simulations.catalog, offers=(s.offer,)))
    if not tries_drafts(question):
        return []
    able = [sized for _, sized in plain if simulations.table.lanes[sized.row].framework.slug in DRAFTS_APART]
    lanes = [
        replace(lane, draft=d, max_running_requests=cap)
        for sized in able[:DRAFTED_LAYOUTS]
        if supports_drafts((lane := simulations.table.lanes[sized.row]).choice)
        for d in first_of_each(drafts_known(question, lane.framework, lane.choice.dp == 1))
        for cap in (sized.seats, 2 * sized.seats)
    ]
    table = evaluate(question, lanes) if lanes else None
    if table is None or table.built is None:
        return []
    where = Simulations(question, table)
    return [(where, sized) for sized in sized_pools(workload, where, s)]


def separates(lane: Lane, s: Scored) -> bool:
    """Whether the lane can run in separate pools on the offer of a deployment."""
    f, c, a = lane.framework, lane.choice, s.lane.choice.accelerator
    started = f.launch is not None and f.launch.template.separates_pools
    apart = started and {"disaggregation", "prefix_caching"} <= set(f.features) and bool(a.links)
    apart &= lane.draft is None or DRAFTS_APART in f.features
    apart &= c.pp == 1 or STAGES_APART in f.features
    return apart and c.accelerator is a and holds_replica(a, s.offer, c.tp * c.dp, c.pp)


def sized_pools(workload: Workload, simulations: Simulations, s: Scored) -> list[SizedPools]:
    """The pools of every lane of the deployment's chip that can separate them, the fewest chips first."""
    table = simulations.table
    assert table.built is not None
    found = []
    for row, lane in enumerate(table.lanes):
        if separates(lane, s):
            most = lane.max_running_requests if lane.draft else lane.framework.max_running_requests
            lane = replace(lane, max_running_requests=most)
            margin = float(np.max(table.tpot_margin[row]))
            if (sizes := pool_sizes(workload, table.built, row, lane, margin)) is not None:
                each = lane.choice.tp * lane.choice.pp * lane.choice.dp
                prefill, decode, seats = sizes
                found.append(SizedPools(row=row, prefill=prefill, decode=decode, seats=seats, chips_each=each))
    return sorted(found, key=lambda sized: (sized.chips, sized.row))


def grown(
    workload: Workload, simulations: Simulations, s: Scored, sized: SizedPools, most_replicas: int
) -> tuple[Scored | None, PoolsTried | None]:
    """(the fewest replicas of both pools that surely meet the limits, the fewest that do as estimated).

    None: more than `most_replicas`.

    TTFT is that of a prefill replica plus the KV transfer and the mean wait for a decode slot. TPOT is that of a
    decode replica, where every prompt is already computed. End-to-end p95 is the sum of both, which overstates it.
    """
    table, index = simulations.table, sized.row
    assert table.built is not None
    lane = replace(table.lanes[index], max_running_requests=sized.seats)
    per_token = float(table.built.memory.kv_bytes_per_sequence[index]) / lane.context_tokens
    transfer_s = per_token * workload.input_tokens.mean_tokens / lane.choice.accelerator.links[-1].bytes_per_s
    prefill, decode, drawn = sized.prefill, sized.decode, of_pools(simulations.factors(index))
    tried: PoolsTried | None = None
    while prefill + decode <= most_replicas and simulations.catalog.effort.allows("larger separate pools"):
        seen = simulated(workload, simulations, index, lane, (prefill, decode), transfer_s)
        sure = surely(workload, drawn, seen)
        if tried is None and excess(workload, seen) <= 1:
            tried = PoolsTried(
                chips=(prefill + decode) * sized.chips_each, probability=slo_probability(workload, drawn, seen)
            )
        if excess(workload, sure) <= 1:
            scored = _scored(
                workload, simulations, s, lane=lane, seen=seen, sizes=(prefill, decode), transfer_s=transfer_s,
                row=index,
            )  # fmt: skip
            return scored, tried
        late = workload.slo.ttft_p95_s is not None and sure.ttft_p95_s > workload.slo.ttft_p95_s
        prefill, decode = (grow_pool(prefill), decode) if late else (prefill, grow_pool(decode))
    return None, tried


def of_pools(drawn: Factors | None) -> Factors | None:
    """The draws of latencies, at least as far apart as the errors of separate pools are; medians stay."""
    if drawn is None:
        return None

    def wide(draws: Array | float, error: float) -> Array:
        logs = np.log(np.asarray(draws))
        spread = math.log1p(error) / NORMAL_MEDIAN
        middle = np.median(logs)
        return np.asarray(np.exp(middle + (logs - middle) * max(spread / max(float(np.std(logs)), 1e-9), 1.0)))

    return replace(drawn, ttft=wide(drawn.ttft, TTFT_ERROR), tpot=wide(drawn.tpot, TPOT_ERROR))


def surely(workload: Workload, drawn: Factors | None, seen: Verified) -> Verified:
    """The latencies that are not exceeded with the confidence asked for; as simulated if none is asked for."""
    confidence = workload.slo.confidence
    return with_confidence(workload, seen, drawn, confidence) if drawn and confidence else seen


def grow_pool(replicas: int) -> int:
    """One more replica, or 5 % more in a large pool."""
    return replicas + max(1, replicas // 20)


def pool_sizes(
    workload: Workload, built: Lanes, index: int, lane: Lane, tpot_margin: float = 1.0
) -> tuple[int, int, int] | None:
    """(prefill replicas, decode replicas, decode batch size) for the peak, in closed form."""
    times, demand = take(built.times, np.array([index])), demand_of(workload)
    scheduler = scheduler_of(lane)
    wide = np.minimum(CONCURRENCY, lane.max_running_requests)[None, :]
    first = closed_loop(times, wide, replace(demand, output_tokens=1.0, output_cv2=0.0), scheduler)
    later = closed_loop(times, wide, replace(demand, cached_fraction=1.0), scheduler)
    rates = np.where(
        later.tpot_mean_s[0] * tpot_margin <= (tpot_limit_s(workload) or math.inf), later.requests_per_s[0], 0.0
    )
    best, prompts = int(np.argmax(rates)), float(np.max(first.requests_per_s))
    if not rates[best] > 0 or not prompts > 0:
        return None
    peak = workload.requests_per_s_peak / usable_fraction(workload) / lane.choice.lanes
    return math.ceil(peak / prompts), math.ceil(peak / float(rates[best])), int(wide[0][best])


def simulated(
    workload: Workload, simulations: Simulations, index: int, lane: Lane, sizes: tuple[int, int], transfer_s: float
) -> Verified:
    """Both pools simulated at their shares of the peak; the full run is skipped if the pilot already fails."""
    built = simulations.table.built
    assert built is not None

    @cache
    def run(requests: int, load: float = 1.0, arrival_cv: float = workload.arrival_cv) -> Verified:
        peak = workload.requests_per_s_peak * load
        asked = replace(workload, requests_per_s_peak=peak, arrival_cv=arrival_cv)
        seen = simulated_pools(asked, built, index, lane, sizes, transfer_s, requests)
        simulations.catalog.effort.add(seen.work, 2 * requests)
        return seen

    pilot = run(PILOT_REQUESTS)
    sure = surely(workload, of_pools(simulations.factors(index)), pilot)
    if excess_bounds(workload, sure)[0] > 1:
        return pilot
    see = partial(run, PILOT_REQUESTS)
    assumed = workload.arrival_cv_range
    burstier = see(arrival_cv=assumed[1]) if assumed else None
    return replace(run(REQUESTS), response=response_of(see, burstier=burstier))


def simulated_pools(
    workload: Workload, built: Lanes, index: int, lane: Lane, sizes: tuple[int, int], transfer_s: float, requests: int
) -> Verified:
    """Both pools, each at its share of the peak, with this many requests."""
    prefill_only = replace(workload, output_tokens=Lengths(mean_tokens=1.0, p95_tokens=1.0))
    cached = replace(workload, prefix_cache_hit_fraction=1.0, prefix_classes=())
    first, later = (
        verify(asked, built.times, index, lane, workload.requests_per_s_peak / (n * lane.choice.lanes), requests)
        for asked, n in zip((prefill_only, cached), sizes, strict=True)
    )
    return joined_pools(first, later, transfer_s)


def joined_pools(first: Verified, later: Verified, transfer_s: float) -> Verified:
    """Combined result: TTFT from the prefill pool plus transfer and wait, the rest from the decode pool.

    A request that the decode pool cannot hold is not served, so its percentiles are infinite where those are.
    """
    wait_s = transfer_s + later.ttft_mean_s
    return replace(
        later,
        ttft_mean_s=first.ttft_mean_s + wait_s,
        ttft_p50_s=first.ttft_p50_s + wait_s if math.isfinite(later.ttft_p50_s) else math.inf,
        ttft_p95_s=first.ttft_p95_s + wait_s if math.isfinite(later.ttft_p95_s) else math.inf,
        ttft_p99_s=first.ttft_p99_s + wait_s if math.isfinite(later.ttft_p99_s) else math.inf,
        ttft_standard_error_s=first.ttft_standard_error_s,
        e2e_p95_s=first.ttft_p95_s + transfer_s + later.e2e_p95_s,
        e2e_mean_s=first.ttft_mean_s + transfer_s + later.e2e_mean_s,
        work=first.work + later.work,
        ttft_p95_bounds_s=added_bounds(first.ttft_p95_bounds_s, (wait_s, wait_s)),
        e2e_p95_bounds_s=added_bounds(first.ttft_p95_bounds_s, later.e2e_p95_bounds_s, (transfer_s, transfer_s)),
    )


def added_bounds(*bounds: Bounds) -> Bounds:
    """(sum of lower bounds, sum of upper bounds)."""
    return sum(low for low, _ in bounds), sum(high for _, high in bounds)


def _scored(
    workload: Workload,
    simulations: Simulations,
    s: Scored,
    *,
    lane: Lane,
    seen: Verified,
    sizes: tuple[int, int],
    transfer_s: float,
    row: int,
) -> Scored:
    """The finalist with both pools: replicas, capacity, cost and power."""
    p = packing_of(lane.choice, s.offer)
    counts = [int(workload.slo.redundancy.replicas(n, p)) for n in sizes]
    replicas = sum(counts)
    capacity = workload.requests_per_s_peak / usable_fraction(workload)
    deployment = replace(
        s,
        lane=lane,
        row_index=s.row_index if lane.draft else row,
        replicas=replicas,
        spare_replicas=replicas - sum(sizes),
        concurrency=lane.max_running_requests * lane.choice.pp,
        verified=seen,
        capacity_requests_per_s=capacity,
        utilisation_fraction=s.requests_per_s_mean / capacity,
        paid_fraction=1.0,
        pools=Pools(
            prefill_replicas=counts[0],
            decode_replicas=counts[1],
            transfer_s=transfer_s,
            prefill_fraction=sizes[0] / sum(sizes),
        ),
        meets_slo=True,
        slo_probability=slo_probability(workload, of_pools(simulations.factors(row)), seen),
    )
    deployment = repriced(Question(workload, simulations.catalog), deployment, s.offer)
    return replace(deployment, meets_slo=is_sure(workload, deployment) and not over_budget(workload, deployment))
