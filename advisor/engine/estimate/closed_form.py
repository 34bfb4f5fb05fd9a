"""Closed-form estimates of many cases at once, for fits and bulk estimates: simulating each would take too long."""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.engine.estimate.simulated import (
    Calibrations,
    Resources,
    calibration,
    kernel_flops_per_s,
    of_decoder,
    prepare,
    queued_requests,
)
from advisor.engine.scheduler import ClosedLoop, burst, closed_loop, log_normal_cv2, open_loop, scheduler_of
from advisor.engine.step import (
    POISSON,
    STEADY,
    Demand,
    Lane,
    Lanes,
    Scheduler,
    batch_capacity_requests_per_s,
    idle_s,
    lanes,
    prefill_s,
    speculative_times,
    step_s,
    take,
)
from advisor.engine.terms import Case, Scopes

NAN = math.nan


@dataclass(frozen=True, kw_only=True, slots=True)
class Means:
    """Mean figures of the whole deployment; NaN: not defined for this case."""

    ttft_mean_s: float = NAN
    tpot_mean_s: float = NAN
    ttft_p95_s: float = NAN  # at an arrival rate only, as are TPOT p95 and running_requests
    tpot_p95_s: float = NAN
    output_tokens_per_s: float = NAN
    prefill_tokens_per_s: float = NAN
    requests_per_s: float = NAN
    capacity_requests_per_s: float = NAN  # at an arrival rate, and of vectors
    running_requests: float = NAN  # of one lane
    flops_per_s: float = NAN


@dataclass(frozen=True, kw_only=True, slots=True)
class Prepared:
    """Cases with their lanes; only the calibration of the lanes changes between predictions."""

    cases: tuple[Case, ...]
    lanes: tuple[Lane, ...]


def prepared(cases: Sequence[Case], resources: Resources) -> Prepared:
    """The cases that have a closed form (aggregated; closed loops and batches), with unstated layouts chosen."""
    kept: list[tuple[Case, Lane]] = []
    for stated in cases:
        case = of_decoder(stated, resources)
        if case.mode == "disagg" or case.phase == "fit" or case.has_arrivals:
            continue
        case_lanes = prepare(case, resources)
        if not isinstance(case_lanes, str):
            kept.append((case, case_lanes[0]))
    return Prepared(cases=tuple(c for c, _ in kept), lanes=tuple(lane for _, lane in kept))


def recalibrated(lane: Lane, scopes: Scopes, cache: Calibrations) -> Lane:
    """The lane with the calibration of these scopes."""
    chip, framework = calibration(lane.choice.accelerator, lane.framework, scopes, cache)
    return replace(lane, choice=replace(lane.choice, efficiency=chip, overhead=framework))


def means(batch: Prepared, resources: Resources, scopes: Scopes) -> list[Means]:
    """Means of each case, in order, with the calibration of these scopes."""
    estimates: list[Means] = [Means()] * len(batch.cases)
    by_model: dict[str, list[int]] = defaultdict(list)
    for i, case in enumerate(batch.cases):
        by_model[case.model_id].append(i)
    cache: Calibrations = {}
    for model_id, members in by_model.items():
        model_lanes = [recalibrated(batch.lanes[i], scopes, cache) for i in members]
        if not model_id:
            for i, lane in zip(members, model_lanes, strict=True):
                estimates[i] = _kernel(batch.cases[i], lane)
            continue
        built = lanes(resources.models[model_id], model_lanes)
        for i, found in zip(members, means_on([batch.cases[i] for i in members], model_lanes, built), strict=True):
            estimates[i] = found
    return estimates


def means_on(cases: Sequence[Case], own: Sequence[Lane], built: Lanes) -> list[Means]:
    """Means of cases that have a closed form, each on its lane, all at once; NaN where it does not fit."""
    estimates: list[Means] = [Means()] * len(cases)
    fits = built.memory.fits.tolist()
    for row, case in enumerate(cases):
        if case.phase in ("prefill", "decode") and fits[row]:
            estimates[row] = _single_request(case, built, row)
    for key, rows in _groups(cases, own).items():
        compute = _open if key.kind == POISSON else _loops
        found = compute([cases[r] for r in rows], [own[r] for r in rows], built, key, rows)
        for row, each in zip(rows, found, strict=True):
            estimates[row] = each if fits[row] else Means()
    return estimates


def vectors_on(cases: Sequence[Case], own: Sequence[Lane], built: Lanes) -> list[Means]:
    """The most requests/s that whole deployments of encoders embed: every step is full."""
    estimates: list[Means] = [Means()] * len(cases)
    groups: dict[Scheduler, list[int]] = defaultdict(list)
    for row, lane in enumerate(own):
        groups[scheduler_of(lane)].append(row)
    for scheduler, rows in groups.items():
        demand = Demand(input_tokens=np.array([cases[r].isl for r in rows]), output_tokens=1.0)
        seats = np.array([float(own[r].max_running_requests) for r in rows])
        each = batch_capacity_requests_per_s(take(built.times, np.array(rows)), seats, demand, scheduler)
        for row, rate in zip(rows, each.tolist(), strict=True):
            estimates[row] = Means(capacity_requests_per_s=rate * (cases[row].chips // own[row].choice.tp))
    return estimates


def _kernel(case: Case, lane: Lane) -> Means:
    return Means(flops_per_s=kernel_flops_per_s(case, lane))


def _single_request(case: Case, built: Lanes, row: int) -> Means:
    if case.phase == "prefill":
        seconds = prefill_s(built, row, case.isl)
        return Means(
            ttft_mean_s=seconds + idle_s(built, row), prefill_tokens_per_s=(case.source_tokens or case.isl) / seconds
        )
    seconds = step_s(built, row, 1, case.isl + case.osl / 2)
    return Means(tpot_mean_s=seconds, output_tokens_per_s=1 / seconds)


@dataclass(frozen=True, slots=True)
class _Group:
    """What the cases that one call of a closed form computes have in common."""

    scheduler: Scheduler
    kind: str
    requests_per_user: float
    spread: tuple[float, ...]
    phase: str
    drafted_tokens: int
    acceptance_fraction: float


def _groups(cases: Sequence[Case], own: Sequence[Lane]) -> Mapping[_Group, list[int]]:
    groups: dict[_Group, list[int]] = defaultdict(list)
    for row, (case, lane) in enumerate(zip(cases, own, strict=True)):
        if case.phase in ("prefill", "decode"):
            continue
        p = case.client
        scheduler = scheduler_of(lane, case.phase == "static")
        if p.kind != POISSON:
            cap = case.max_batch or lane.framework.max_running_requests
            scheduler = replace(scheduler, max_running_requests=cap)
        cv2 = (log_normal_cv2(case.inputs), log_normal_cv2(case.outputs))
        spread = (p.length_low_fraction, p.length_high_fraction, *cv2)
        drafted = case.speculative_tokens or 1 if case.speculative and not lane.draft else 0
        accepted = lane.choice.overhead.acceptance_fraction if drafted else 0.0
        groups[_Group(scheduler, p.kind, p.requests_per_user, spread, case.phase, drafted, accepted)].append(row)
    return groups


def _loops(
    cases: Sequence[Case], own: Sequence[Lane], built: Lanes, key: _Group, rows: Sequence[int]
) -> Iterator[Means]:
    """The closed loops and batches of one group, whose lanes are these rows of `built`."""
    times = take(built.times, np.array(rows))
    if key.drafted_tokens:
        times = speculative_times(times, key.drafted_tokens, key.acceptance_fraction)
    parallel = [max(c.chips // w.choice.tp, 1) for c, w in zip(cases, own, strict=True)]
    users = np.array(
        [
            c.concurrency / n if c.concurrency else queued_requests(c, w, built, r)
            for c, w, n, r in zip(cases, own, parallel, rows, strict=True)
        ]
    )
    users = np.maximum(np.ceil(users - 1e-9), 1.0)
    demand = demand_of(cases)
    if key.kind == STEADY:
        loop = closed_loop(times, users, demand, key.scheduler)
    else:
        once = key.kind in ("static", "offline", "single") or key.phase == "static"
        loop = burst(times, users, demand, key.scheduler, 1 if once else max(int(key.requests_per_user), 1))
    return map(_means, cases, _columns(loop), users.tolist(), parallel)


def _columns(loop: ClosedLoop) -> Iterator[tuple[float, ...]]:
    """(TTFT, TPOT, output tokens/s, requests/s) of each row."""
    each = (loop.ttft_mean_s, loop.tpot_mean_s, loop.output_tokens_per_s, loop.requests_per_s)
    return zip(*(column.tolist() for column in each), strict=True)


def _open(
    cases: Sequence[Case], own: Sequence[Lane], built: Lanes, key: _Group, rows: Sequence[int]
) -> Iterator[Means]:
    """The cases of one group at their arrival rates, which all lanes share."""
    ways = [c.chips // w.choice.tp for c, w in zip(cases, own, strict=True)]
    rates = np.array([(c.client.rate_per_s or 0.0) / n for c, n in zip(cases, ways, strict=True)])
    seen = open_loop(take(built.times, np.array(rows)), rates, demand_of(cases), key.scheduler, crowds=True)
    for k, (case, n) in enumerate(zip(cases, ways, strict=True)):
        poisson = case.client.arrival_cv == 1.0
        yield Means(
            ttft_mean_s=float(seen.ttft_mean_s[k]),
            tpot_mean_s=float(seen.tpot_mean_s[k]),
            ttft_p95_s=float(seen.ttft_p95_estimate_s[k]) if poisson else NAN,
            tpot_p95_s=float(seen.tpot_p95_estimate_s[k]) if poisson else NAN,
            output_tokens_per_s=float(seen.output_tokens_per_s[k]) * n,
            requests_per_s=float(seen.requests_per_s[k]) * n,
            capacity_requests_per_s=float(seen.capacity_requests_per_s[k]) * n,
            running_requests=float(seen.running_requests[k]),
        )


def demand_of(cases: Sequence[Case]) -> Demand:
    """Moments of the lengths of cases with the same spread, and their prefix cache hits."""
    client = cases[0].client
    low, high = client.length_low_fraction, client.length_high_fraction
    mean = (low + high) / 2
    uniform_cv2 = (high - low) ** 2 / 12 / mean**2
    return Demand(
        input_tokens=np.array([c.isl * mean for c in cases]),
        output_tokens=np.array([c.osl * c.beams * mean for c in cases]),
        input_cv2=log_normal_cv2(cases[0].inputs) or uniform_cv2,
        output_cv2=log_normal_cv2(cases[0].outputs) or uniform_cv2,
        cached_fraction=np.array([c.hit_fraction for c in cases]),
    )


def _means(case: Case, row: tuple[float, ...], users: float, parallel: int) -> Means:
    """Figures of the deployment from a row of a closed loop with `users` on each of `parallel` lanes."""
    ttft_s, tpot_s, tokens_per_s, requests_per_s = row
    chunk_steps = case.client.first_chunk_steps
    busy_lanes = min((case.concurrency or users * parallel) / users, parallel)
    return Means(
        ttft_mean_s=ttft_s + chunk_steps * tpot_s,
        tpot_mean_s=tpot_s * max(1.0 - chunk_steps / max(case.osl - 1, 1.0), 0.1),
        output_tokens_per_s=tokens_per_s * busy_lanes / case.beams,
        requests_per_s=requests_per_s * busy_lanes,
    )
