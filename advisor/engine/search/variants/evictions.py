"""Conversations that wait for their next turn, and the share of their KV cache that stays on the chip."""

from dataclasses import replace

import numpy as np

from advisor.engine.scheduler import closed_loop, shares_prefixes
from advisor.engine.step import Demand, Lane, Scheduler, StepTimes
from advisor.engine.terms import Workload

Array = np.ndarray
ROUNDS = 3  # the hit rate settles to 1 % in two


def running_tokens(workload: Workload, running: Array | float) -> Array | float:
    """KV cache of this many running requests, halfway through their answers, tokens."""
    return running * (workload.input_tokens.mean_tokens + workload.output_tokens.mean_tokens / 2)


def hit_fraction(workload: Workload, kept_fraction: Array | float) -> Array | float:
    """Prefix cache hits as a fraction of the prompts, if this share of the waiting conversations is still cached."""
    assert workload.turns is not None
    lost = workload.turns.repeated_hit_fraction * (1.0 - kept_fraction)
    return np.maximum(workload.prefix_cache_hit_fraction - lost, 0.0)


def with_evictions(
    workload: Workload, demand: Demand, times: StepTimes, seats: Array, scheduler: Scheduler, peak_per_lane: Array
) -> Demand:
    """The demand with the hit rate that each candidate reaches, shape (N, C); unchanged without turns.

    Running requests evict the cache of waiting conversations, and fewer hits lower the rate and so the number that
    wait: a fixed point. peak_per_lane: requests/s if one lane served the whole peak, an upper bound.
    """
    if workload.turns is None or not workload.turns.repeated_hit_fraction:
        return demand
    capacity = times.kv_capacity_tokens[:, None]
    held = running_tokens(workload, np.minimum(seats, capacity / max(float(running_tokens(workload, 1.0)), 1.0)))
    reached = demand
    for _ in range(ROUNDS):
        rate = np.minimum(closed_loop(times, seats, reached, scheduler).requests_per_s, peak_per_lane)
        kept = workload.turns.kept_fraction(capacity, held, rate)
        reached = replace(demand, cached_fraction=np.broadcast_to(hit_fraction(workload, kept), seats.shape))
    return reached


def kept_of(workload: Workload, lane: Lane, capacity_tokens: float, running: float, requests_per_s: float) -> float:
    """Share of the waiting conversations that a lane keeps in its KV cache at this rate; 1 without turns."""
    if workload.turns is None or not shares_prefixes(lane.framework):
        return 1.0
    return float(workload.turns.kept_fraction(capacity_tokens, running_tokens(workload, running), requests_per_s))


def as_cached(workload: Workload, kept_fraction: float) -> Workload:
    """The workload with the hit rate that is left when only this share of the waiting conversations is kept."""
    if workload.turns is None or kept_fraction >= 1.0:
        return workload
    return replace(workload, prefix_cache_hit_fraction=float(hit_fraction(workload, kept_fraction)))
