"""A prefill pool feeding a decode pool: two queues in a row under a closed loop of users."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

GRID_SEQUENCES = tuple(float(2**k) for k in range(13))  # running requests per decode lane at which a step is timed


@dataclass(frozen=True, kw_only=True, slots=True)
class Served:
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
    """`concurrency` users send requests_per_user prompts each, all at once at the start.

    Prefill lanes take one prompt at a time; a decode takes output_tokens steps at the pace of the load it starts
    under. prompt_s, transfer_s, request_s: seconds; decode_step_s: seconds at GRID_SEQUENCES.
    """
    total, free = concurrency * requests_per_user, [0.0] * prefill_lanes
    heapq.heapify(free)
    ready = [0.0] * concurrency  # when each user sends its next request
    heapq.heapify(ready)
    finishes: list[float] = []  # of decodes under way
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
