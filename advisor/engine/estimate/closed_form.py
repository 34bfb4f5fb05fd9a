"""Closed-form estimates of many cases at once, for fits, where simulating each case would take too long."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.engine.estimate.simulated import Resources, kernel_flops_per_s, of_decoder, prepare, queued_requests
from advisor.engine.scheduler import ClosedLoop, burst, closed_loop, log_normal_cv2, scheduler_of
from advisor.engine.step import (
    STEADY,
    Demand,
    Lane,
    Lanes,
    Scheduler,
    idle_s,
    lanes,
    prefill_s,
    speculative_times,
    step_s,
    take,
)
from advisor.engine.terms import Case, Efficiency, Overhead, Scopes, efficiency, overhead

NAN = math.nan
Calibrations = dict[tuple[str, ...], tuple[Efficiency, Overhead]]  # by chip, framework and version


@dataclass(frozen=True, kw_only=True, slots=True)
class Means:
    """Mean figures of the whole deployment; NaN: not defined for this case."""

    ttft_mean_s: float = NAN
    tpot_mean_s: float = NAN
    output_tokens_per_s: float = NAN
    prefill_tokens_per_s: float = NAN
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
    a, f = lane.choice.accelerator, lane.framework
    key = (a.slug, f.slug, f.version)
    if key not in cache:
        cache[key] = (
            efficiency(scopes, a.slug, a.family, a.kind),
            overhead(scopes, f.slug, f.version, a.family, a.kind, a.slug),
        )
    chip, framework = cache[key]
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
        for row, i in enumerate(members):
            if batch.cases[i].phase in ("prefill", "decode") and built.memory.fits[row]:
                estimates[i] = _single_request(batch.cases[i], built, row)
        for key, rows in _groups(batch, members, model_lanes).items():
            _loops(batch, members, model_lanes, built, key, rows, estimates)
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


def _groups(
    batch: Prepared, members: Sequence[int], model_lanes: Sequence[Lane]
) -> Mapping[tuple[object, ...], list[int]]:
    """Rows with the same scheduler and client, which one call of a closed form computes."""
    groups: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for row, i in enumerate(members):
        case = batch.cases[i]
        if case.phase in ("prefill", "decode"):
            continue
        p = case.client
        cap = case.max_batch or model_lanes[row].framework.max_running_requests
        scheduler = replace(scheduler_of(model_lanes[row], case.phase == "static"), max_running_requests=cap)
        cv2 = (log_normal_cv2(case.inputs), log_normal_cv2(case.outputs))
        spread = (p.length_low_fraction, p.length_high_fraction, *cv2)
        draft = case.speculative_tokens or 1 if case.speculative and not model_lanes[row].draft else 0
        groups[(scheduler, p.kind, p.requests_per_user, spread, case.phase, draft)].append(row)
    return groups


def _loops(
    batch: Prepared,
    members: Sequence[int],
    model_lanes: Sequence[Lane],
    built: Lanes,
    key: tuple[object, ...],
    rows: Sequence[int],
    estimates: list[Means],
) -> None:
    """Computes the rows of one group and writes the means of those that fit into `estimates`."""
    scheduler, kind, requests_per_user, _, phase, draft = key
    assert isinstance(scheduler, Scheduler)
    group = [batch.cases[members[r]] for r in rows]
    times = take(built.times, np.array(rows))
    if draft:
        times = speculative_times(times, int(str(draft)), model_lanes[rows[0]].choice.overhead.acceptance_fraction)
    parallel = np.array([max(c.chips // model_lanes[r].choice.tp, 1) for c, r in zip(group, rows, strict=True)])
    users = np.array(
        [
            c.concurrency / n if c.concurrency else queued_requests(c, model_lanes[r], built, r)
            for c, r, n in zip(group, rows, parallel, strict=True)
        ]
    )
    users = np.maximum(np.ceil(users - 1e-9), 1.0)
    demand = demand_of(group)
    if kind == STEADY:
        loop = closed_loop(times, users, demand, scheduler)
    else:
        once = kind in ("static", "offline", "single") or phase == "static"
        rounds = 1 if once else max(int(float(str(requests_per_user))), 1)
        loop = burst(times, users, demand, scheduler, rounds)
    for k, (case, r) in enumerate(zip(group, rows, strict=True)):
        if built.memory.fits[r]:
            estimates[members[r]] = _means(case, loop, k, users[k], parallel[k])


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


def _means(case: Case, loop: ClosedLoop, k: int, users: float, parallel: float) -> Means:
    """Figures of the deployment from row k of a closed loop with `users` on each of `parallel` lanes."""
    chunk_steps, tpot_s = case.client.first_chunk_steps, float(loop.tpot_mean_s[k])
    busy_lanes = min((case.concurrency or users * parallel) / users, parallel)
    return Means(
        ttft_mean_s=float(loop.ttft_mean_s[k]) + chunk_steps * tpot_s,
        tpot_mean_s=tpot_s * max(1.0 - chunk_steps / max(case.osl - 1, 1.0), 0.1),
        output_tokens_per_s=float(loop.output_tokens_per_s[k]) * busy_lanes / case.beams,
    )
