"""Disaggregated serving: a prefill pool that feeds a decode pool."""

import math
from dataclasses import dataclass, replace

import numpy as np

from advisor.engine.scheduler.closed_form import closed_loop
from advisor.engine.scheduler.sampling import arriving, drawing
from advisor.engine.scheduler.simulation import Simulation, cached_tokens, costs_of
from advisor.engine.scheduler.state import checked
from advisor.engine.step import BURST, POISSON, STEADY, Array, Client, Demand, Scheduler, StepTimes
from advisor.engine.terms import Lengths


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolLanes:
    """One pool: `workers` servers that step on their own, each of `ranks` attention-DP ranks that step together."""

    index: int  # of the lane in StepTimes
    workers: int
    ranks: int = 1
    seats: int = 1024  # of a rank: running requests of a decode pool, prompts of one step of a prefill pool
    step_tokens: int = 8192  # of a rank and step
    whole_prompts: bool = False  # a step starts no part of a prompt, so a longer prompt has a step of its own


def simulate_pools(
    times: StepTimes,
    first: PoolLanes,
    later: PoolLanes,
    client: Client,
    input_tokens: Lengths,
    output_tokens: Lengths,
    *,
    transfer_s_per_token: float = 0.0,
    concurrency: int = 1,
    cached_fraction: float = 0.0,
    context_tokens: float = math.inf,
    requests: int = 2000,
    seed: int = 0,
) -> Simulation:
    """Simulate prefill, cache transfer and decode together, so that departures of one pool are arrivals of the other.

    The decode pool streams the first token, so TTFT holds the wait for a seat there. A router deals requests to the
    workers of a pool in turn; inside a worker, a request goes to the rank with the fewest.
    `transfer_s_per_token` is the time to move the cache of a prompt to its decode rank. Errors:
    docs/explanation/accuracy.md.
    """
    from advisor.engine.scheduler.pools_loop import Pool, flow_of, run_pools  # the web tier must not load numba

    begin, end, total = _counts(client, concurrency, requests)
    sent, between = arriving(
        drawing(client, input_tokens, output_tokens, context_tokens), (begin, end - begin, total - end), seed
    )
    prefill, decode = (
        Pool(
            costs=checked(costs_of(times, lanes.index)),
            workers=lanes.workers,
            ranks=lanes.ranks,
            step_tokens=lanes.step_tokens,
            seats=max(lanes.seats, 1),
            whole_prompts=lanes.whole_prompts,
            kv_tokens=int(min(times.kv_capacity_tokens[lanes.index], 2**60)),
        )
        for lanes in (first, later)
    )
    cached, _ = cached_tokens(sent, prefill.costs.block_tokens, 0.0 if client.prefix_classes else cached_fraction)
    fits = sent.prompt + sent.output <= min(decode.kv_tokens, context_tokens)
    arrival_s, known = _arrivals(client, concurrency, between[fits])
    flow = flow_of(arrival_s, sent.prompt[fits], sent.output[fits], cached[fits])
    steps = run_pools(prefill, decode, flow, known, client.kind != POISSON, transfer_s_per_token)
    moments = np.full((3, total), np.inf)
    moments[:, fits] = flow.arrival_s, flow.first_token_s, flow.finish_s
    moments[0, ~fits] = 0.0
    return _summary(moments, sent.prompt, sent.output, slice(begin, end), steps, seed)


def _counts(client: Client, concurrency: int, requests: int) -> tuple[int, int, int]:
    """(first measured request, end of the measured ones, all that are sent)."""
    if client.kind == BURST:
        return 0, client.requests_per_user * concurrency, client.requests_per_user * concurrency
    around = 2 * concurrency if client.kind == STEADY else requests // 5
    return around, around + requests, 2 * around + requests


def _arrivals(client: Client, concurrency: int, between: np.ndarray) -> tuple[np.ndarray, int]:
    """(arrival times, how many of them are known); those of a closed loop are infinite until a user sends them."""
    if client.kind == POISSON:
        return np.cumsum(between) / client.rate_per_s, len(between)
    return np.where(np.arange(len(between)) < concurrency, 0.0, np.inf), min(concurrency, len(between))


def _summary(
    moments: np.ndarray, prompt: np.ndarray, output: np.ndarray, measured: slice, steps: float, seed: int
) -> Simulation:
    """The measured requests; rates are those of all requests that end from their first arrival to the next one."""
    finishes = moments[2]
    until_s = (
        moments[0, measured.stop] if measured.stop < len(prompt) else finishes[np.isfinite(finishes)].max(initial=0)
    )
    span_s = float(until_s - moments[0, measured.start])
    ended = (finishes > moments[0, measured.start]) & (finishes <= until_s)
    arrival_s, first_s, finish_s = moments[:, measured]
    several, served = output[measured] > 1, np.isfinite(finish_s)
    streamed_s = np.full(len(finish_s), np.inf)
    streamed_s[served] = finish_s[served] - first_s[served]

    def per_s(counted: np.ndarray) -> float:
        return float(counted[ended].sum() / span_s) if span_s > 0 else 0.0

    return Simulation(
        ttft_s=first_s - arrival_s,
        tpot_s=streamed_s[several] / (output[measured][several] - 1),
        e2e_s=finish_s - arrival_s,
        queue_s=np.zeros(len(arrival_s)),  # not told apart from the prompt's own time
        input_tokens=prompt[measured],
        output_tokens=output[measured],
        output_tokens_per_s=per_s(output),
        total_tokens_per_s=per_s(prompt + output),
        requests_per_s=per_s(np.ones(len(prompt))),
        steps=int(steps),
        preemptions=0,
        rejected_requests=int(np.count_nonzero(~served)),
        running_requests_mean=math.nan,
        kv_used_max_tokens=0,
        busy_fraction=math.nan,
        duration_s=span_s,
        seed=seed,
        work=steps,
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
