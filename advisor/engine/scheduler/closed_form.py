"""TTFT, TPOT and throughput under load, in closed form for many candidates at once.

These estimates only rank candidates. `simulate` runs the same scheduler step by step and gives the percentiles.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from advisor.engine.scheduler.batching import (
    Prompts,
    continuous,
    crowded_of,
    opening_of,
    own_prompt_s,
    prompts_of,
    rank_wait_factor,
    room_of,
    static_of,
)
from advisor.engine.step import (
    CHUNKED,
    NEARLY_ALL,
    PREFILL_FIRST,
    STATIC,
    Array,
    Demand,
    Load,
    Scheduler,
    StepTimes,
    load_of,
)
from advisor.engine.terms import Z95

LEAST_RATE_PER_S = 1e-9  # without arrivals, the prompts of a step with prompts would have no mean
BUSY_LIMIT_FRACTION = 0.85  # of capacity: above it, queues build up over too long a time to plan with means
STATIC_TAIL = 1.2  # our assumption: TPOT p95 over its mean in large static batches, for ranking only


@dataclass(frozen=True, kw_only=True, slots=True)
class ClosedLoop:
    """Means of a closed loop; shapes: candidates broadcast with concurrency."""

    output_tokens_per_s: np.ndarray
    requests_per_s: np.ndarray
    ttft_mean_s: np.ndarray
    tpot_mean_s: np.ndarray
    running_requests: np.ndarray
    kv_limited: np.ndarray  # KV capacity, not concurrency, limits the running requests
    saturating: np.ndarray  # more requests than run at once, or prompts use up the token budget: TTFT is queueing


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenLoop:
    """Means and p95 estimates of an open loop, for ranking only: reported percentiles come from the simulation."""

    output_tokens_per_s: np.ndarray
    requests_per_s: np.ndarray
    ttft_mean_s: np.ndarray
    tpot_mean_s: np.ndarray
    ttft_p95_estimate_s: np.ndarray
    tpot_p95_estimate_s: np.ndarray
    running_requests: np.ndarray
    utilisation_fraction: np.ndarray  # of capacity_requests_per_s
    capacity_requests_per_s: np.ndarray
    saturating: np.ndarray  # above 85 % of capacity


def _running_limit(times: StepTimes, demand: Demand, scheduler: Scheduler, extra_axes: int) -> tuple[Array, ...]:
    """(maximum running requests, maximum by KV capacity only)."""
    shape = (-1,) + (1,) * extra_axes
    block, capacity = times.block_tokens.reshape(shape), times.kv_capacity_tokens.reshape(shape)
    whole = np.ceil((demand.input_tokens + demand.output_tokens) / block) * block
    mean = demand.input_tokens + demand.output_tokens * (1 + demand.output_cv2) / 2 + block / 2
    if scheduler.reserve_full or scheduler.policy == STATIC:
        mean = whole
    by_kv = np.where(whole > np.floor(capacity / block) * block, 0.0, capacity / mean)
    return np.minimum(by_kv, scheduler.max_running_requests), by_kv


def _overlaps(scheduler: Scheduler) -> bool:
    """Whether the host launches a step while the device computes the one before."""
    return scheduler.asynchronous and scheduler.policy != STATIC


def closed_loop(times: StepTimes, concurrency: Array, demand: Demand, scheduler: Scheduler) -> ClosedLoop:
    """Throughput, TTFT and TPOT with `concurrency` requests always in flight.

    A request takes `lag` steps until it is scheduled, its prompt's steps, and output-1 decode steps. So arrivals per
    step do not depend on the duration of a step; then steps with and without prompts are timed. concurrency broadcasts
    with the candidates: (N,), or (N, C) / (1, C) for several each.
    """
    concurrency = np.asarray(concurrency, float)
    axes = max(concurrency.ndim - 1, 0)
    load = load_of(times, demand, axes, _overlaps(scheduler))
    limit, by_kv = _running_limit(times, demand, scheduler, axes)
    running = np.maximum(np.minimum(concurrency, limit), 1.0)  # lanes that cannot serve are marked below
    request_s = times.request_s.reshape((-1,) + (1,) * axes)
    solve = static_of if scheduler.policy == STATIC else continuous
    rate, first_s, tpot_s, full, _ = solve(load, running, demand, scheduler, request_s)
    served = limit >= 1
    rate = np.where(served, rate, 0.0)
    wait_s = np.divide(np.maximum(concurrency - running, 0.0), rate, out=np.full_like(rate, np.inf), where=rate > 0)
    return ClosedLoop(
        output_tokens_per_s=rate * demand.output_tokens,
        requests_per_s=rate,
        ttft_mean_s=np.where(served, first_s + wait_s, np.inf),
        tpot_mean_s=np.where(served, tpot_s, np.inf),
        running_requests=np.where(served, running, 0.0),
        kv_limited=(by_kv < concurrency) & (by_kv <= scheduler.max_running_requests),
        saturating=(limit < concurrency) | full,
    )


def burst(
    times: StepTimes, concurrency: Array, demand: Demand, scheduler: Scheduler, requests_per_user: int = 10
) -> ClosedLoop:
    """Means of a benchmark run of requests_per_user x concurrency requests, the first `concurrency` at once.

    The initial prompts are computed back to back and stay clumped in later rounds to the extent that lengths are equal.
    """
    steady = closed_loop(times, concurrency, demand, scheduler)
    concurrency = np.asarray(concurrency, float)
    axes = max(concurrency.ndim - 1, 0)
    load, served = load_of(times, demand, axes, _overlaps(scheduler)), np.isfinite(steady.tpot_mean_s)
    running = np.maximum(steady.running_requests, 1.0)
    rounds = requests_per_user * np.maximum(concurrency / running, 1.0)
    request_s = times.request_s.reshape((-1,) + (1,) * axes)
    rate, first_s, tpot_s = _rounds(load, running, demand, scheduler, request_s, rounds)
    if demand.output_cv2 == 0 or scheduler.policy == STATIC:
        in_step = _in_step(load, running, demand, scheduler)
        equal = static_of(load, running, demand, scheduler, request_s)[:3]
        rate, first_s, tpot_s = (np.where(in_step, e, r) for e, r in zip(equal, (rate, first_s, tpot_s), strict=True))
    rate = np.where(served, rate, 0.0)
    queued_s = np.divide(concurrency - running, rate, out=np.full_like(rate, np.inf), where=rate > 0)
    queued_s = np.maximum(queued_s, 0.0) * (1 - 0.5 / requests_per_user)
    return ClosedLoop(
        output_tokens_per_s=rate * demand.output_tokens,
        requests_per_s=rate,
        ttft_mean_s=np.where(served, first_s + queued_s, np.inf),
        tpot_mean_s=np.where(served, tpot_s, np.inf),
        running_requests=steady.running_requests,
        kv_limited=steady.kv_limited,
        saturating=steady.saturating,
    )


def _in_step(load: Load, running: Array, demand: Demand, scheduler: Scheduler) -> Array:
    """Whether equal requests that start together stay together, so that every round starts like the first."""
    if scheduler.policy in (PREFILL_FIRST, STATIC):
        return np.ones(running.shape, bool)
    in_one = running <= room_of(load, scheduler, 0.0)
    return in_one if scheduler.policy == CHUNKED else in_one | crowded_of(load, running, demand, scheduler)


def _rounds(
    load: Load, running: Array, demand: Demand, scheduler: Scheduler, request_s: Array, rounds: Array
) -> tuple[Array, Array, Array]:
    """(requests/s, TTFT, TPOT) over `rounds` rounds of `running` requests; the first round starts all at once."""
    after_first = np.maximum(demand.output_tokens - 1, 0.0)
    steps, first = opening_of(load, running, scheduler)
    scatter = np.sqrt(6 * demand.output_cv2 * rounds) * after_first  # width of a clump in steps, halfway through
    dense = running / np.minimum(steps + scatter, np.maximum(after_first, 1.0))
    clump = np.where(scatter > 0, dense / -np.expm1(-dense), running / steps)
    rate, first_s, tpot_s, full, decode_s = continuous(
        load, running, demand, scheduler, request_s, np.clip(clump, 1.0, running)
    )
    overlap = 0.0 if scheduler.policy == PREFILL_FIRST else 1.0
    filled_s = load.step_s(overlap * np.minimum(running, after_first) / 2, running / steps, running, 1 / steps)
    lag = np.clip(running - 1, 0.0, 1.0) * (scheduler.asynchronous + np.ceil(request_s / np.maximum(decode_s, 1e-9)))
    clumped_s = (tpot_s - decode_s) * np.maximum(dense * after_first / running - 1, 0.0) * (1 - 1 / steps)
    later_s = first_s + np.where(full, 0.0, lag * clumped_s)
    idle_s = decode_s * (overlap * steps + np.sqrt(3 * demand.output_cv2) * after_first)
    round_s = running / rate
    alone_s = load.step_s(running, 0.0, running)
    seen = np.minimum(steps - first, after_first) / np.maximum(after_first, 1.0)
    one_s = alone_s + seen * (filled_s - overlap * alone_s)
    tpot_s = np.where(rounds < 1.5, one_s, decode_s + (tpot_s - decode_s) * (1 - 0.5 / rounds))
    alone_round_s = steps * filled_s + after_first * alone_s
    total_s = np.where(rounds < 1.5, alone_round_s, rounds * round_s + idle_s)
    ttft_s = (request_s + first * filled_s + (rounds - 1) * later_s) / rounds
    return rounds * running / total_s, ttft_s, tpot_s


def capacity_requests_per_s(times: StepTimes, demand: Demand, scheduler: Scheduler) -> Array:
    """Maximum requests/s of each lane, shape (N,)."""
    limit, _ = _running_limit(times, demand, scheduler, 0)
    return closed_loop(times, np.maximum(limit, 1.0), demand, scheduler).requests_per_s


@dataclass(frozen=True, kw_only=True, slots=True)
class _OpenLoad:
    """Inputs of an open loop; arrays of shape (N,)."""

    load: Load
    demand: Demand
    scheduler: Scheduler
    request_s: Array
    rate: Array  # requests/s to each lane
    capacity: Array  # requests/s
    limit: Array  # maximum running requests

    @property
    def after_first(self) -> Array:
        """Decode steps of a request."""
        return np.maximum(self.demand.output_tokens - 1, 0.0)

    @property
    def separate(self) -> bool:
        """Whether prompts have their own steps."""
        return self.scheduler.policy == PREFILL_FIRST


def open_loop(
    times: StepTimes, rate_per_s: Array, demand: Demand, scheduler: Scheduler, rounds: int = 3, crowds: bool = False
) -> OpenLoop:
    """Means and p95 estimates at rate_per_s to each lane (N,), arriving as `demand` says; infinite above capacity.

    TPOT solves a fixed point: it sets the number of decoding requests by Little's law, which sets the step time.
    `crowds`: the p95 estimates count that a crowd of requests slows itself down, which makes it larger and longer.
    """
    offered = _OpenLoad(
        load=load_of(times, demand, 0, _overlaps(scheduler)),
        demand=demand,
        scheduler=scheduler,
        request_s=times.request_s,
        rate=np.broadcast_to(np.maximum(np.asarray(rate_per_s, float), LEAST_RATE_PER_S), times.request_s.shape),
        capacity=capacity_requests_per_s(times, demand, scheduler),
        limit=_running_limit(times, demand, scheduler, 0)[0],
    )
    if scheduler.policy == STATIC:
        return _open_static(offered, rounds)

    def implied_s(supposed_s: Array) -> Array:
        return _gap_of(offered, supposed_s).tpot_s

    low_s = offered.load.step_s(np.ones(offered.rate.shape), 0.0, 1.0)
    high_s = np.maximum(offered.limit / np.maximum(offered.rate * offered.after_first, 1e-9), low_s)
    gap = _gap_of(offered, _fixed_point(implied_s, low_s, high_s, rounds))
    found = _open_answer(offered, gap)
    return _with_crowds(offered, gap, found) if crowds else found


def _fixed_point(function: Callable[[Array], Array], low: Array, high: Array, rounds: int) -> Array:
    """Fixed point of an increasing function in [low, high], by Aitken's delta-squared method within a bracket."""
    x = low
    for _ in range(rounds):
        y = np.clip(function(x), low, high)
        low, high = np.where(y > x, x, low), np.where(y > x, high, x)
        z = np.clip(function(y), low, high)
        low, high = np.where(z > y, np.maximum(y, low), low), np.where(z > y, high, np.minimum(y, high))
        bend = z - 2 * y + x
        jump = x - np.divide((y - x) ** 2, bend, out=np.full_like(x, -np.inf), where=bend < 0)
        moved = np.where(jump <= low, low, np.where(jump < high, jump, np.sqrt(low * high)))
        x = np.where(np.abs(z - y) <= 1e-12 * np.abs(y), y, moved)  # settled: rounding would make the jump random
    return x


@dataclass(frozen=True, kw_only=True, slots=True)
class _Gap:
    """The gap between two tokens of a request, and its steps; arrays of shape (N,)."""

    tpot_s: Array
    decodes: Array  # per step
    decode_s: Array  # of a step without prompts
    filled_s: Array  # of a step with prompts
    prompts: Prompts


def _gap_of(offered: _OpenLoad, tpot_s: Array) -> _Gap:
    """The gap that an assumed TPOT leads to."""
    load, rate = offered.load, offered.rate
    decodes = 1 + rate * offered.after_first * tpot_s
    decode_s = load.step_s(decodes, 0.0, decodes)
    p = prompts_of(rate * tpot_s, room_of(load, offered.scheduler, decodes), 1.0)
    beside = 0.0 if offered.separate else decodes
    filled_s = load.step_s(beside, p.requests_per_step, beside + p.requests_per_step)
    added_s = rate * tpot_s / p.requests_per_step * (filled_s - (0.0 if offered.separate else decode_s))
    added_s = added_s * rank_wait_factor(load, p)
    return _Gap(tpot_s=decode_s + added_s, decodes=decodes, decode_s=decode_s, filled_s=filled_s, prompts=p)


def _prompt_queue(offered: _OpenLoad, beside: Array, room: Array) -> tuple[Array, Array]:
    """(mean wait of a prompt for earlier prompts, fraction of time that prompts take) (Sakasegawa 1977; Allen 1990)."""
    at_once = np.maximum(room, 1.0)
    full_s = offered.load.step_s(beside, np.minimum(room, at_once), beside + at_once) / np.minimum(room, 1.0)
    share = np.minimum(offered.rate * full_s / at_once, NEARLY_ALL)
    power = np.sqrt(2 * (at_once + 1)) - 1
    varied = (offered.demand.arrival_cv2 + offered.demand.input_cv2) / 2
    return full_s / at_once * share**power / (1 - share) * varied, share


@dataclass(frozen=True, kw_only=True, slots=True)
class _Prompt:
    """What a prompt waits for and what it costs those that decode; arrays of shape (N,)."""

    own_s: Array  # steps of its own prompt
    wait_s: Array  # mean, for the step that runs
    queue_s: Array  # mean, for earlier prompts
    share: Array  # of the time, that prompts take
    stalled_s: Array  # of each token, by prompts
    per_gap: Array  # steps with prompts between two tokens
    arrival_cv2: Array  # of the gaps between prompts
    long_s: Array  # p95 of its own steps over their mean
    late_s: Array  # p95 of the wait for the step that runs

    def jitter_s(self, gap: _Gap, after_first: Array, separate: bool) -> Array:
        """P95 over the mean of what prompts add to a token."""
        each_s = gap.filled_s - gap.decode_s * (not separate)
        return np.asarray(Z95 * np.sqrt(self.per_gap * self.arrival_cv2 / np.maximum(after_first, 1.0)) * each_s)


def _prompt_of(offered: _OpenLoad, gap: _Gap) -> _Prompt:
    load, rate, after_first, separate = offered.load, offered.rate, offered.after_first, offered.separate
    tpot_s, decode_s, filled_s, asynchronous = gap.tpot_s, gap.decode_s, gap.filled_s, offered.scheduler.asynchronous
    beside = np.zeros(rate.shape) if separate else gap.decodes - 1
    idle = np.exp(-rate * (after_first * tpot_s + filled_s))
    own_s = own_prompt_s(load, beside, gap.prompts, beside + 1, idle)
    prompts = rate * tpot_s / gap.prompts.requests_per_step
    prompts = np.minimum(prompts / (1 + prompts) if separate else prompts, 1.0)
    step_s = (1 - prompts) * decode_s + prompts * filled_s
    residual_s = ((1 - prompts) * decode_s**2 + prompts * filled_s**2) / (2 * step_s)
    busy = -np.expm1(-rate * (after_first * tpot_s + own_s))
    queue_s, share = _prompt_queue(offered, beside, room_of(load, offered.scheduler, gap.decodes))
    stall_s = share * (queue_s + own_s) / (1 - share)  # prompts that queued behind a request's own, and later ones
    slow = 1.0 if separate else np.maximum(1 - tpot_s / filled_s, 0.0)
    sigma = np.sqrt(np.log1p(offered.demand.input_cv2))
    return _Prompt(
        own_s=own_s,
        wait_s=busy * (residual_s + asynchronous * step_s),
        queue_s=queue_s,
        share=share,
        stalled_s=stall_s * slow / np.maximum(after_first, 1.0),
        per_gap=prompts,
        arrival_cv2=np.asarray(offered.demand.arrival_cv2),
        long_s=own_s * (np.exp(Z95 * sigma - sigma**2 / 2) - 1),
        late_s=np.where(prompts > 0.05, filled_s, decode_s) * (1 + asynchronous) * (busy > 0.05),
    )


def _open_answer(offered: _OpenLoad, gap: _Gap) -> OpenLoop:
    """Means with prompt queueing and stalls of decodes added to the gap, and p95 estimates."""
    load, rate, after_first = offered.load, offered.rate, offered.after_first
    p = _prompt_of(offered, gap)
    mean_tpot_s = gap.tpot_s + p.stalled_s
    most = gap.decodes + Z95 * np.sqrt((gap.decodes - 1) * offered.demand.crowding)
    crowd_s = load.step_s(most, 0.0, gap.decodes) - gap.decode_s
    jitter_s = p.jitter_s(gap, after_first, offered.separate)
    return _open_result(
        offered,
        ttft_s=offered.request_s + p.own_s + p.wait_s + p.queue_s,
        tpot_s=mean_tpot_s,
        ttft_p95_s=offered.request_s + p.own_s + np.hypot(p.long_s, p.late_s + 3 * p.queue_s),
        tpot_p95_s=mean_tpot_s + np.hypot(np.hypot(crowd_s * gap.tpot_s / gap.decode_s, jitter_s), 2 * p.stalled_s),
        running=rate * (after_first * mean_tpot_s + p.own_s),
    )


CROWD_STEP = 0.02  # of TPOT, for the slope of the step time over the requests
MOST_FEEDBACK = 0.95


def _with_crowds(offered: _OpenLoad, gap: _Gap, found: OpenLoop) -> OpenLoop:
    """The result with the p95 of a queue whose service slows down as it fills.

    The requests in flight vary more than their arrivals alone would make them: linearized around the mean, by 1 over
    1 - f'(TPOT), where f is the TPOT that an assumed TPOT leads to. A request at their p95 sees the steps of it.
    Prompts wait for those before them as in a GI/G/1 queue with an exponential tail.
    """
    after_first, rate, demand = offered.after_first, offered.rate, offered.demand
    slope = (_gap_of(offered, gap.tpot_s * (1 + CROWD_STEP)).tpot_s / gap.tpot_s - 1) / CROWD_STEP
    mean = np.maximum(rate * after_first * gap.tpot_s, LEAST_RATE_PER_S)
    most = mean + Z95 * np.sqrt(mean * demand.crowding / (1 - np.clip(slope, 0.0, MOST_FEEDBACK)))
    most = most + demand.crowding - 1  # more requests arrive in crowds than outside them
    crowd = _gap_of(offered, gap.tpot_s * np.minimum(most, np.maximum(offered.limit - 1, mean)) / mean)
    calm, full = _prompt_of(offered, gap), _prompt_of(offered, crowd)
    varied = (demand.arrival_cv2 + demand.input_cv2) / 2
    each_s = full.own_s / (1 - full.share) * varied  # mean wait of those that wait
    ttft_s = offered.request_s + full.own_s + np.hypot(calm.long_s, calm.late_s)
    ttft_s = ttft_s + each_s * np.log(np.maximum(full.share / 0.05, 1.0))
    jitter_s = calm.jitter_s(gap, after_first, offered.separate)
    tpot_s = crowd.tpot_s + full.stalled_s + np.hypot(jitter_s, 2 * full.stalled_s)
    served = np.isfinite(found.tpot_p95_estimate_s)
    return replace(
        found,
        ttft_p95_estimate_s=np.where(served, np.maximum(ttft_s, found.ttft_p95_estimate_s), np.inf),
        tpot_p95_estimate_s=np.where(served, np.maximum(tpot_s, found.tpot_p95_estimate_s), np.inf),
    )


def _open_static(offered: _OpenLoad, rounds: int) -> OpenLoop:
    """Open loop with static batching: a batch has the requests that arrived during the batch before it."""

    def batches(size: Array) -> tuple[Array, ...]:
        return static_of(offered.load, size, offered.demand, offered.scheduler, offered.request_s)[:3]

    def implied(size: Array) -> Array:
        return offered.rate * size / batches(size)[0]

    size = _fixed_point(implied, np.ones(offered.rate.shape), np.maximum(offered.limit, 1.0), rounds)
    batches_per_s, first_s, tpot_s = batches(size)
    batch_s = size / batches_per_s
    busy = np.minimum(offered.rate * batch_s, 1.0)
    return _open_result(
        offered,
        ttft_s=first_s + busy * batch_s / 2,
        tpot_s=tpot_s,
        ttft_p95_s=first_s + 0.95 * busy * batch_s,
        tpot_p95_s=(1 + (STATIC_TAIL - 1) * (1 - 1 / np.maximum(size, 1.0))) * tpot_s,
        running=offered.rate * batch_s,
    )


def _open_result(
    offered: _OpenLoad, *, ttft_s: Array, tpot_s: Array, ttft_p95_s: Array, tpot_p95_s: Array, running: Array
) -> OpenLoop:
    """The result; above capacity, latencies are infinite and all batch slots are in use."""
    rate, capacity = offered.rate, offered.capacity
    used = np.divide(rate, capacity, out=np.full_like(rate, np.inf), where=capacity > 0)
    ok = used < 1
    served: Array = np.where(ok, rate, capacity)
    busy: Array = np.where(ok, running, offered.limit)
    return OpenLoop(
        output_tokens_per_s=served * offered.demand.output_tokens,
        requests_per_s=served,
        ttft_mean_s=np.where(ok, ttft_s, np.inf),
        tpot_mean_s=np.where(ok, tpot_s, np.inf),
        ttft_p95_estimate_s=np.where(ok, ttft_p95_s, np.inf),
        tpot_p95_estimate_s=np.where(ok, tpot_p95_s, np.inf),
        running_requests=busy,
        utilisation_fraction=used,
        capacity_requests_per_s=capacity,
        saturating=used > BUSY_LIMIT_FRACTION,
    )
