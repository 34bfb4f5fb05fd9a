"""Disaggregated serving: a prefill pool that feeds a decode pool, under a closed loop of users."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.engine.scheduler.closed_form import closed_loop
from advisor.engine.step import Array, Demand, Scheduler, StepTimes

GRID_SEQUENCES = tuple(float(2**k) for k in range(13))  # running requests per decode lane, grid of step times


@dataclass(frozen=True, kw_only=True, slots=True)
class Served:
    """Means of one run."""

    ttft_mean_s: float
    tpot_mean_s: float
    output_tokens_per_s: float
    requests_per_s: float


def serve(
    *,
    prompt_s: float,
    prefill_lanes: int,
    decode_step_s: Sequence[float],
    decode_lanes: int,
    decode_running_max: int,
    transfer_s: float,
    concurrency: int,
    requests_per_user: int,
    output_tokens: float,
    request_s: float,
) -> Served:
    """Simulate `concurrency` users who send requests_per_user prompts each and all start at once.

    Prefill lanes take one prompt at a time; a decode takes output_tokens - 1 steps at the step time of the load at its
    start. prompt_s, transfer_s, request_s: seconds; decode_step_s: seconds at GRID_SEQUENCES.
    """
    total, free = concurrency * requests_per_user, [0.0] * prefill_lanes  # when each prefill lane becomes free
    heapq.heapify(free)
    ready = [0.0] * concurrency  # when each user sends its next request
    heapq.heapify(ready)
    finishes: list[float] = []  # of running decodes
    ttft, tpot, last = np.zeros(total), np.zeros(total), 0.0
    room = decode_running_max * decode_lanes
    for k in range(total):
        sent = heapq.heappop(ready)
        begin = max(sent + request_s, heapq.heappop(free))
        heapq.heappush(free, begin + prompt_s)
        start = begin + prompt_s + transfer_s
        while finishes and (finishes[0] <= start or len(finishes) >= room):
            start = max(start, heapq.heappop(finishes))
        pace_s = float(np.interp((len(finishes) + 1) / decode_lanes, GRID_SEQUENCES, decode_step_s))
        finish = start + pace_s * max(output_tokens - 1, 0)
        ttft[k], tpot[k] = start - sent, pace_s
        heapq.heappush(finishes, finish)
        heapq.heappush(ready, finish)
        last = max(last, finish)
    return Served(
        ttft_mean_s=float(ttft.mean()),
        tpot_mean_s=float(tpot.mean()),
        output_tokens_per_s=total * output_tokens / last,
        requests_per_s=total / last,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Matched:
    """Prefill and decode pools of identical lanes with equal rates, by running requests per decode lane; (N, C)."""

    requests_per_s: Array  # per lane of both pools
    tpot_mean_s: Array
    ttft_mean_s: Array
    prefill_fraction: Array  # of the lanes


def matched(times: StepTimes, slots: Array, demand: Demand, scheduler: Scheduler, transfer_s: Array) -> Matched:
    """Pools with as many prefill lanes as the decode lanes need, in closed form; lane counts are not rounded.

    slots: running requests per decode lane, shape (C,); transfer_s: seconds to move the cache of a prompt, (N, 1).
    """
    running = np.broadcast_to(slots, (len(times.request_s), len(slots)))
    prefill = closed_loop(times, running, replace(demand, output_tokens=1.0, output_cv2=0.0), scheduler)
    decode = closed_loop(times, running, replace(demand, cached_fraction=1.0), scheduler)
    prompts = np.max(prefill.requests_per_s, axis=1, keepdims=True)
    fraction = np.divide(
        decode.requests_per_s, prompts + decode.requests_per_s, out=np.zeros(running.shape), where=prompts > 0
    )
    return Matched(
        requests_per_s=fraction * prompts,
        tpot_mean_s=decode.tpot_mean_s,
        ttft_mean_s=prefill.ttft_mean_s[:, :1] + transfer_s + 0.0 * fraction,
        prefill_fraction=fraction,
    )
