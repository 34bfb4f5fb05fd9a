"""Closed-form predictions of many cases at once: for fitting, where a simulation of each would take too long."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.engine.estimate.simulated import Resources, kernel_flops_per_s, of_decoder, offered, prepare
from advisor.engine.scheduler import ClosedLoop, burst, closed_loop, scheduler_of
from advisor.engine.spec import Case, Efficiency, Overhead, Scopes, efficiency, overhead
from advisor.engine.step import STEADY, Demand, Lane, Lanes, Scheduler, drafted, idle_s, lanes, prefill_s, step_s, take

NAN = math.nan
Seen = dict[tuple[str, ...], tuple[Efficiency, Overhead]]  # by chip, framework and version


@dataclass(frozen=True, kw_only=True, slots=True)
class Means:
    """Mean figures of the whole deployment; NaN: none for this case."""

    ttft_mean_s: float = NAN
    tpot_mean_s: float = NAN
    output_tokens_per_s: float = NAN
    prefill_tokens_per_s: float = NAN
    flops_per_s: float = NAN


@dataclass(frozen=True, kw_only=True, slots=True)
class Prepared:
    """Cases with their lanes; only the calibration of a lane changes between predictions."""

    cases: tuple[Case, ...]
    lanes: tuple[Lane, ...]


def prepared(cases: Sequence[Case], resources: Resources) -> Prepared:
    """The cases that have closed forms: aggregated, closed loops and batches; layouts left free are chosen now."""
    kept: list[tuple[Case, Lane]] = []
    for asked in cases:
        case = of_decoder(asked, resources)
        if case.mode == "disagg" or case.phase == "fit" or case.client.kind == "poisson":
            continue
        own = prepare(case, resources)
        if not isinstance(own, str):
            kept.append((case, own[0]))
    return Prepared(cases=tuple(c for c, _ in kept), lanes=tuple(lane for _, lane in kept))


def recalibrated(lane: Lane, scopes: Scopes, seen: Seen) -> Lane:
    """The lane under other parameters."""
    a, f = lane.choice.accelerator, lane.framework
    key = (a.slug, f.slug, f.version)
    if key not in seen:
        seen[key] = (efficiency(scopes, a.slug, a.family, a.kind), overhead(scopes, f.slug, f.version, a.family))
    reached, extra = seen[key]
    return replace(lane, choice=replace(lane.choice, efficiency=reached, overhead=extra))


def means(these: Prepared, resources: Resources, scopes: Scopes) -> list[Means]:
    """One Means a case, in order."""
    found: list[Means] = [Means()] * len(these.cases)
    by_model: dict[str, list[int]] = defaultdict(list)
    for i, case in enumerate(these.cases):
        by_model[case.model_id].append(i)
    seen: Seen = {}
    for model_id, members in by_model.items():
        own = [recalibrated(these.lanes[i], scopes, seen) for i in members]
        if not model_id:
            for i, lane in zip(members, own, strict=True):
                found[i] = _kernel(these.cases[i], lane)
            continue
        built = lanes(resources.models[model_id], own)
        for row, i in enumerate(members):
            if these.cases[i].phase in ("prefill", "decode") and built.memory.fits[row]:
                found[i] = _alone(these.cases[i], built, row)
        for key, rows in _alike(these, members, own).items():
            _loops(these, members, own, built, key, rows, found)
    return found


def _kernel(case: Case, lane: Lane) -> Means:
    return Means(flops_per_s=kernel_flops_per_s(case, lane))


def _alone(case: Case, built: Lanes, row: int) -> Means:
    if case.phase == "prefill":
        seconds = prefill_s(built, row, case.isl)
        return Means(
            ttft_mean_s=seconds + idle_s(built, row), prefill_tokens_per_s=(case.source_tokens or case.isl) / seconds
        )
    seconds = step_s(built, row, 1, case.isl + case.osl / 2)
    return Means(tpot_mean_s=seconds, output_tokens_per_s=1 / seconds)


def _alike(these: Prepared, members: Sequence[int], own: Sequence[Lane]) -> Mapping[tuple[object, ...], list[int]]:
    """Rows that one call of a closed form can take: same scheduler and client."""
    groups: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for row, i in enumerate(members):
        case = these.cases[i]
        if case.phase in ("prefill", "decode"):
            continue
        p = case.client
        cap = case.max_batch or own[row].framework.max_running_requests
        scheduler = replace(scheduler_of(own[row], case.phase == "static"), max_running_requests=cap)
        spread = (p.length_low_fraction, p.length_high_fraction)
        draft = case.speculative_tokens or 1 if case.speculative else 0
        groups[(scheduler, p.kind, p.requests_per_user, spread, case.phase, draft)].append(row)
    return groups


def _loops(
    these: Prepared,
    members: Sequence[int],
    own: Sequence[Lane],
    built: Lanes,
    key: tuple[object, ...],
    rows: Sequence[int],
    found: list[Means],
) -> None:
    """One closed form for the rows of a group; writes the means of those that fit into `found`."""
    scheduler, kind, requests_per_user, spread, phase, draft = key
    assert isinstance(scheduler, Scheduler) and isinstance(spread, tuple)
    cases = [these.cases[members[r]] for r in rows]
    times = take(built.times, np.array(rows))
    if draft:
        times = drafted(times, int(str(draft)), own[rows[0]].choice.overhead.acceptance_fraction)
    parallel = np.array([max(c.chips // own[r].choice.tp, 1) for c, r in zip(cases, rows, strict=True)])
    users = np.array(
        [
            c.concurrency / n if c.concurrency else offered(c, own[r], built, r)
            for c, r, n in zip(cases, rows, parallel, strict=True)
        ]
    )
    users = np.maximum(np.ceil(users - 1e-9), 1.0)
    demand = _demand(cases, *spread)
    if kind == STEADY:
        served = closed_loop(times, users, demand, scheduler)
    else:
        once = kind in ("static", "offline", "single") or phase == "static"
        rounds = 1 if once else max(int(float(str(requests_per_user))), 1)
        served = burst(times, users, demand, scheduler, rounds)
    for k, (case, r) in enumerate(zip(cases, rows, strict=True)):
        if built.memory.fits[r]:
            found[members[r]] = _means(case, served, k, users[k], parallel[k])


def _demand(cases: Sequence[Case], low_fraction: float, high_fraction: float) -> Demand:
    """Lengths drawn evenly between these shares of the nominal, as moments."""
    mean = (low_fraction + high_fraction) / 2
    cv2 = (high_fraction - low_fraction) ** 2 / 12 / mean**2
    return Demand(
        input_tokens=np.array([c.isl * mean for c in cases]),
        output_tokens=np.array([c.osl * c.beams * mean for c in cases]),
        input_cv2=cv2,
        output_cv2=cv2,
    )


def _means(case: Case, served: ClosedLoop, k: int, users: float, parallel: float) -> Means:
    """Row k of a closed loop with so many users on each of so many lanes, as figures of the deployment."""
    late, tpot_s = case.client.first_chunk_steps, float(served.tpot_mean_s[k])
    busy = min((case.concurrency or users * parallel) / users, parallel)
    return Means(
        ttft_mean_s=float(served.ttft_mean_s[k]) + late * tpot_s,
        tpot_mean_s=tpot_s * max(1.0 - late / max(case.osl - 1, 1.0), 0.1),
        output_tokens_per_s=float(served.output_tokens_per_s[k]) * busy / case.beams,
    )
