"""Finalists run another way: with drafts that are verified, or with prefill and decode on pools of their own.

Tried on the first finalists only, where the closed forms promise something better, and simulated before they are
shown. A variant is a deployment like any other: sized to the peak, priced, its latencies from the simulation. Only
drafts that nobody has to train are proposed: a published head, the model's own layer, the prompt itself.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from advisor.engine.scheduler import REQUESTS, Bounds, Verified, closed_loop, scheduler_of, verify
from advisor.engine.search.candidates import CONCURRENCY, Catalog
from advisor.engine.search.objective import Scale, final_score, table_scores
from advisor.engine.search.simulated import (
    PILOT_REQUESTS,
    Pools,
    Scored,
    Trials,
    excess,
    excess_bounds,
    over_budget,
    repriced,
)
from advisor.engine.search.table import HEADROOM_FRACTION, demand_of, evaluate, meets, tpot_limit_s
from advisor.engine.spec import BATCH, Lengths, Workload
from advisor.engine.step import (
    EMBEDDING,
    Draft,
    Lane,
    Lanes,
    drafts_of,
    has_encoder,
    methods_of,
    published_draft,
    supports_drafts,
    take,
)

TRIED = 3  # finalists
DESIGNS = 2  # of each that are simulated


def variants(workload: Workload, catalog: Catalog, built: Lanes, s: Scored, scale: Scale) -> list[Scored]:
    """What holds every limit and is better under the objective than the finalist, the best first."""
    if workload.variants == "no" or workload.kind == EMBEDDING:
        return []
    if has_encoder(catalog.model) or catalog.model.adapters or not supports_drafts(s.lane.choice):
        return []
    found = [
        with_drafts(workload, catalog, s, scale) if workload.drafts else None,
        in_pools(workload, catalog, built, s) if workload.apart and not rated_otherwise(workload) else None,
    ]
    now = final_score(workload, s, scale)
    better = [v for v in found if v is not None and v.meets_slo and final_score(workload, v, scale) < now]
    return sorted(better, key=lambda v: final_score(workload, v, scale))


def rated_otherwise(workload: Workload) -> bool:
    """Whether arrivals are not a rate: pools are sized and simulated at one, each at its share of the peak."""
    return workload.kind == BATCH or workload.users is not None or workload.trace is not None


# --- drafts -----------------------------------------------------------------------------------------------------


def with_drafts(workload: Workload, catalog: Catalog, s: Scored, scale: Scale) -> Scored | None:
    """The finalist with the draft and the seats that its estimates favour, simulated; None: nothing promises more."""
    drafts = _drafts(workload, catalog, s)
    lanes = [replace(s.lane, draft=d, max_running_requests=cap) for d in drafts for cap in _caps(s)]
    if not lanes:
        return None
    table = evaluate(workload, replace(catalog, offers=(s.offer,)), lanes)
    if not table.wanted:
        return None
    score = table_scores(workload, table, scale)
    promising = np.where(meets(workload, table), score, np.inf)
    trials, best = Trials(workload, replace(catalog, offers=(s.offer,)), table), None
    for place in np.argsort(promising, axis=None, kind="stable")[:DESIGNS]:
        row, column = (int(v) for v in np.unravel_index(place, promising.shape))
        if not promising[row, column] < final_score(workload, best or s, scale):
            break
        trial = trials.fewest(workload, row, column)
        if trial.excess_fraction <= 1:
            scored = trials.scored(workload, trial)
            if scored.meets_slo and final_score(workload, scored, scale) < final_score(workload, best or s, scale):
                best = scored
    return replace(best, row_index=s.row_index) if best else None


def _drafts(workload: Workload, catalog: Catalog, s: Scored) -> list[Draft]:
    """Those that can be had for this model; one with a model of its own where that has the same vocabulary."""
    model, small = catalog.model, catalog.draft_model
    rows = methods_of(s.lane.framework, model, catalog.acceptances, workload.task)
    fits = small is not None and small.vocab == model.vocab and s.lane.choice.dp == 1
    started = s.lane.framework.launch
    methods = started.template.draft_methods if started else frozenset()
    rows = [row for row in rows if row.method in methods]
    usable = [row for row in rows if published_draft(model, row.method) and (fits or row.method != "draft")]
    return [d for row in usable for d in drafts_of(model, row, small)]


def _caps(s: Scored) -> Sequence[int]:
    """The finalist's seats, and twice as many: what is faster may run more at once within the same limit."""
    return sorted({min(s.lane.max_running_requests * n, s.lane.framework.max_running_requests) for n in (1, 2)})


# --- pools ------------------------------------------------------------------------------------------------------


def in_pools(workload: Workload, catalog: Catalog, built: Lanes, s: Scored) -> Scored | None:
    """Prefill and decode replicas of the finalist's lane, whole ones of each for the peak, on fewer chips than it has.

    TTFT: that of a prefill replica, the transfer, and the mean wait for a seat in decode. TPOT: that of a decode
    replica, which meets every prompt already computed. End to end at p95 is the sum of both, which overstates it.
    """
    links, c = s.lane.choice.accelerator.links, s.lane.choice
    started = s.lane.framework.launch
    able = started is not None and started.template.separates_pools
    able &= {"disaggregation", "prefix_caching"} <= set(s.lane.framework.features)
    if not able or not links or c.dp > 1 or s.replicas - s.spare_replicas < 3:
        return None
    index, lane = s.row_index, replace(s.lane, max_running_requests=s.lane.framework.max_running_requests)
    sizes = pool_sizes(workload, built, index, lane)
    if sizes is None:
        return None
    room = built.memory
    moved = float(room.kv_bytes_per_sequence[index]) / lane.context_tokens * workload.input_tokens.mean_tokens
    transfer_s = moved / links[-1].bytes_per_s
    prefill, decode, seats = sizes
    lane = replace(lane, max_running_requests=seats)
    while prefill + decode < s.replicas - s.spare_replicas:
        seen = simulated(workload, built, index, lane, (prefill, decode), transfer_s)
        if excess(workload, seen) <= 1:
            return _scored(workload, catalog, s, lane=lane, seen=seen, sizes=(prefill, decode), transfer_s=transfer_s)
        late = workload.slo.ttft_p95_s is not None and seen.ttft_p95_s > workload.slo.ttft_p95_s
        prefill, decode = (grown(prefill), decode) if late else (prefill, grown(decode))
    return None


def grown(replicas: int) -> int:
    """One replica more, or a twentieth where there are many: a pool of thousands is not grown one by one."""
    return replicas + max(1, replicas // 20)


def pool_sizes(workload: Workload, built: Lanes, index: int, lane: Lane) -> tuple[int, int, int] | None:
    """(prefill replicas, decode replicas, seats of a decode replica) for the peak with headroom, in closed form."""
    times, demand = take(built.times, np.array([index])), demand_of(workload)
    scheduler = scheduler_of(lane)
    wide = np.minimum(CONCURRENCY, lane.max_running_requests)[None, :]
    first = closed_loop(times, wide, replace(demand, output_tokens=1.0, output_cv2=0.0), scheduler)
    later = closed_loop(times, wide, replace(demand, cached_fraction=1.0), scheduler)
    rates = np.where(later.tpot_mean_s[0] <= (tpot_limit_s(workload) or math.inf), later.requests_per_s[0], 0.0)
    best, prompts = int(np.argmax(rates)), float(np.max(first.requests_per_s))
    if not rates[best] > 0 or not prompts > 0:
        return None
    peak = workload.requests_per_s_peak / HEADROOM_FRACTION
    return math.ceil(peak / prompts), math.ceil(peak / float(rates[best])), int(wide[0][best])


def simulated(
    workload: Workload, built: Lanes, index: int, lane: Lane, sizes: tuple[int, int], transfer_s: float
) -> Verified:
    """Both pools at their shares of the peak; in full only where the pilot may hold."""
    one = replace(workload, output_tokens=Lengths(mean_tokens=1.0, p95_tokens=1.0))
    kept = replace(workload, prefix_cache_hit_fraction=1.0)

    def run(requests: int) -> Verified:
        first, later = (
            verify(asked, built.times, index, lane, workload.requests_per_s_peak / n, requests)
            for asked, n in zip((one, kept), sizes, strict=True)
        )
        return joined_pools(first, later, transfer_s)

    pilot = run(PILOT_REQUESTS)
    return pilot if excess_bounds(workload, pilot)[0] > 1 else run(REQUESTS)


def joined_pools(first: Verified, later: Verified, transfer_s: float) -> Verified:
    """TTFT from the prefill pool, the rest from the decode pool."""
    wait_s = transfer_s + later.ttft_mean_s
    return replace(
        later,
        ttft_mean_s=first.ttft_mean_s + wait_s,
        ttft_p50_s=first.ttft_p50_s + wait_s,
        ttft_p95_s=first.ttft_p95_s + wait_s,
        ttft_p99_s=first.ttft_p99_s + wait_s,
        ttft_standard_error_s=first.ttft_standard_error_s,
        e2e_p95_s=first.ttft_p95_s + transfer_s + later.e2e_p95_s,
        e2e_mean_s=first.ttft_mean_s + transfer_s + later.e2e_mean_s,
        ttft_p95_bounds_s=added(first.ttft_p95_bounds_s, (wait_s, wait_s)),
        e2e_p95_bounds_s=added(first.ttft_p95_bounds_s, later.e2e_p95_bounds_s, (transfer_s, transfer_s)),
    )


def added(*bounds: Bounds) -> Bounds:
    return sum(low for low, _ in bounds), sum(high for _, high in bounds)


def _scored(
    workload: Workload,
    catalog: Catalog,
    s: Scored,
    *,
    lane: Lane,
    seen: Verified,
    sizes: tuple[int, int],
    transfer_s: float,
) -> Scored:
    """The finalist's figures for both pools: replicas, capacity, price and power."""
    spares = [workload.slo.spares(n) for n in sizes]
    replicas = sum(sizes) + int(sum(spares))
    capacity = workload.requests_per_s_peak / HEADROOM_FRACTION
    found = replace(
        s,
        lane=lane,
        replicas=replicas,
        spare_replicas=int(sum(spares)),
        concurrency=lane.max_running_requests * lane.choice.pp,
        verified=seen,
        capacity_requests_per_s=capacity,
        utilisation_fraction=s.requests_per_s_mean / capacity,
        paid_fraction=1.0,
        pools=Pools(
            prefill_replicas=sizes[0] + int(spares[0]),
            decode_replicas=sizes[1] + int(spares[1]),
            transfer_s=transfer_s,
        ),
        meets_slo=True,
    )
    found = repriced(workload, catalog, found, s.offer)
    return replace(found, meets_slo=not over_budget(workload, found))
