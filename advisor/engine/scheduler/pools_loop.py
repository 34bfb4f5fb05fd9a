"""The compiled simulation of a prefill pool that feeds a decode pool, step by step."""
# mypy: disable-error-code="no-any-return, no-untyped-call"

from typing import NamedTuple

import numpy as np

from advisor.engine.scheduler.loop import (
    _context_s,
    _lasting_s,
    _launch_s,
    _linear_s,
    _pairs_s,
    _sequences_s,
    _window_pairs,
    compiled,
)
from advisor.engine.scheduler.state import Costs


class Pool(NamedTuple):
    """One pool: `workers` that step on their own, each of `ranks` attention-DP ranks that step together."""

    costs: Costs
    workers: int
    ranks: int
    step_tokens: int  # prompt tokens of a rank in one step
    seats: int  # of a rank: running requests, or prompts of one step
    whole_prompts: bool
    kv_tokens: int  # of a rank


class Flow(NamedTuple):
    """Requests through both pools, one array per field; times in seconds."""

    arrival_s: np.ndarray  # infinite until a closed loop sends it
    prompt: np.ndarray
    cached: np.ndarray
    output: np.ndarray
    place: np.ndarray  # the worker of a pool is the remainder by its number of workers
    computed: np.ndarray
    rank: np.ndarray
    after: np.ndarray  # the next request of the same queue or the same end
    ready_s: np.ndarray  # cache has arrived in the decode pool
    first_token_s: np.ndarray
    finish_s: np.ndarray


class Prefill(NamedTuple):
    """State of the prefill pool, by worker or by (worker, rank)."""

    until_s: np.ndarray
    head: np.ndarray
    tail: np.ndarray
    chunked: np.ndarray  # (worker, rank) request whose prompt goes on in the next step; -1: none
    done: np.ndarray  # first request whose prompt ends with this step
    left: np.ndarray  # (rank) token budget of the step being filled
    taken: np.ndarray  # (rank) prompts of the step being filled
    pairs: np.ndarray  # (rank)
    windowed: np.ndarray


class Decode(NamedTuple):
    """State of the decode pool, by worker or by (worker, rank)."""

    until_s: np.ndarray
    head: np.ndarray
    tail: np.ndarray
    running: np.ndarray  # (worker, rank)
    context: np.ndarray
    held: np.ndarray  # KV tokens, whole outputs included
    turn: np.ndarray
    ending: np.ndarray  # (worker, turn modulo places) first request that ends


@compiled
def _queue(head: np.ndarray, tail: np.ndarray, after: np.ndarray, worker: int, r: int) -> None:
    after[r] = -1
    if head[worker] < 0:
        head[worker] = r
    else:
        after[tail[worker]] = r
    tail[worker] = r


@compiled
def _chunk(pool: Pool, flow: Flow, s: Prefill, w: int, k: int, r: int) -> None:
    """Compute as much of a prompt as the budget of its rank allows."""
    costs, start = pool.costs, flow.computed[r]
    q = flow.prompt[r] - start
    if not (pool.whole_prompts and s.taken[k] == 0):
        q = min(q, s.left[k])
    s.left[k] -= q
    s.taken[k] += 1
    s.pairs[k] += q * start + q * (q + 1) / 2
    s.windowed[k] += _window_pairs(start, q, costs.window_tokens)
    flow.computed[r] += q
    flow.rank[r] = k
    if flow.computed[r] < flow.prompt[r]:
        s.chunked[w, k] = r
    else:
        s.chunked[w, k] = -1
        flow.after[r] = s.done[w]
        s.done[w] = r


@compiled
def _emptiest(left: np.ndarray, taken: np.ndarray, seats: int) -> int:
    """The rank with the most budget left and a seat; -1: none."""
    best = -1
    for k in range(len(left)):
        if taken[k] < seats and left[k] > 0 and (best < 0 or left[k] > left[best]):
            best = k
    return best


@compiled
def _start_prefill(pool: Pool, flow: Flow, s: Prefill, w: int, now_s: float, idle: bool) -> None:
    """Start a step of waiting prompts, spread over the ranks; the worker is idle if there are none."""
    costs = pool.costs
    s.done[w] = -1
    s.until_s[w] = np.inf
    for k in range(pool.ranks):
        s.left[k], s.taken[k], s.pairs[k], s.windowed[k] = pool.step_tokens, 0, 0.0, 0.0
        if s.chunked[w, k] >= 0:
            _chunk(pool, flow, s, w, k, s.chunked[w, k])
    while s.head[w] >= 0:
        r = s.head[w]
        k = _emptiest(s.left, s.taken, pool.seats)
        need = flow.prompt[r] - flow.computed[r]
        if k < 0 or (pool.whole_prompts and s.taken[k] > 0 and need > s.left[k]):
            break
        s.head[w] = flow.after[r]
        _chunk(pool, flow, s, w, k, r)
    total, most, prompts, attention_s = 0, 0, 0, 0.0
    for k in range(pool.ranks):
        total += pool.step_tokens - s.left[k]
        most = max(most, pool.step_tokens - s.left[k])
        prompts = max(prompts, s.taken[k])
        attention_s = max(attention_s, _pairs_s(costs, 0.0, s.pairs[k], s.windowed[k]))
    if prompts == 0:
        return
    # The experts compute the tokens of all ranks, the rest of a layer those of its rank: about half of the work each.
    tokens = (most + (total + pool.ranks - 1) // pool.ranks) // 2
    device_s = _sequences_s(costs, _linear_s(costs, tokens), prompts, 0, prompts) + attention_s
    ahead_s = 0.0 if idle else costs.prepare_s  # prompts are prepared while the step before runs
    launch_s = _launch_s(costs, most, prompts, True) - ahead_s
    least_s = max(launch_s, costs.eager_floor_s)  # prefill servers capture no graphs
    s.until_s[w] = now_s + _lasting_s(costs, device_s, least_s, prompts)


@compiled
def _start_decode(pool: Pool, flow: Flow, s: Decode, w: int, now_s: float) -> None:
    """Admit requests whose cache has arrived, each to the rank that runs the fewest, and start a step."""
    costs, places = pool.costs, s.ending.shape[1]
    while s.head[w] >= 0 and flow.ready_s[s.head[w]] <= now_s:
        r, k = s.head[w], 0
        for other in range(1, pool.ranks):
            if s.running[w, other] < s.running[w, k]:
                k = other
        need = flow.prompt[r] + flow.output[r]
        if s.running[w, k] >= pool.seats or s.held[w, k] + need > pool.kv_tokens:
            break
        s.head[w] = flow.after[r]
        flow.first_token_s[r] = now_s
        flow.rank[r] = k
        s.running[w, k] += 1
        s.context[w, k] += flow.prompt[r] + 1
        s.held[w, k] += need
        end = (s.turn[w] + max(flow.output[r] - 1, 1)) % places
        flow.after[r] = s.ending[w, end]
        s.ending[w, end] = r
    slowest_s, most = 0.0, 0
    for k in range(pool.ranks):
        n = s.running[w, k]
        if n == 0:
            continue
        most = max(most, n)
        windowed = min(s.context[w, k], n * costs.window_tokens)
        device_s = _context_s(costs, _sequences_s(costs, _linear_s(costs, n), n, n, 0), s.context[w, k], windowed)
        slowest_s = max(slowest_s, _lasting_s(costs, device_s, _launch_s(costs, n, n, False), n))
    if most > 0:
        s.until_s[w] = now_s + slowest_s
    else:
        s.until_s[w] = max(flow.ready_s[s.head[w]], now_s) if s.head[w] >= 0 else np.inf


@compiled
def _end_decode(pool: Pool, flow: Flow, s: Decode, w: int, now_s: float) -> int:
    """Give every running request of the worker its token; returns how many requests ended."""
    running = 0
    for k in range(pool.ranks):
        running += s.running[w, k]
        s.context[w, k] += s.running[w, k]
    if running == 0:
        return 0
    s.turn[w] += 1
    place, ended = s.turn[w] % s.ending.shape[1], 0
    r = s.ending[w, place]
    s.ending[w, place] = -1
    while r >= 0:
        k = flow.rank[r]
        flow.finish_s[r] = now_s
        s.running[w, k] -= 1
        s.context[w, k] -= flow.prompt[r] + flow.output[r]
        s.held[w, k] -= flow.prompt[r] + flow.output[r]
        ended += 1
        r = flow.after[r]
    return ended


@compiled
def _run(
    first: Pool,
    later: Pool,
    flow: Flow,
    p: Prefill,
    d: Decode,
    submitted: int,
    closed: bool,
    transfer_s_per_token: float,
) -> float:
    """Simulate all requests, of which `submitted` have arrival times; returns the steps of both pools."""
    total, arrived, ended, steps = len(flow.arrival_s), 0, 0, 0.0
    while ended < total:
        now_s = flow.arrival_s[arrived] + first.costs.request_s if arrived < submitted else np.inf
        kind, w = 0, -1
        for each in range(first.workers):
            if p.until_s[each] < now_s:
                kind, w, now_s = 1, each, p.until_s[each]
        for each in range(later.workers):
            if d.until_s[each] < now_s:
                kind, w, now_s = 2, each, d.until_s[each]
        if now_s == np.inf:
            break  # no cache is large enough for the next request
        steps += 1
        if kind == 0:
            w = flow.place[arrived] % first.workers
            flow.computed[arrived] = flow.cached[arrived]
            _queue(p.head, p.tail, flow.after, w, arrived)
            arrived += 1
            if p.until_s[w] == np.inf:
                _start_prefill(first, flow, p, w, now_s, True)
        elif kind == 1:
            r = p.done[w]
            while r >= 0:
                after = flow.after[r]
                flow.ready_s[r] = now_s + transfer_s_per_token * flow.prompt[r]
                to = flow.place[r] % later.workers
                _queue(d.head, d.tail, flow.after, to, r)
                if d.until_s[to] == np.inf:
                    d.until_s[to] = flow.ready_s[r]
                r = after
            _start_prefill(first, flow, p, w, now_s, False)
        else:
            count = _end_decode(later, flow, d, w, now_s)
            ended += count
            if closed:
                for _ in range(min(count, total - submitted)):
                    flow.arrival_s[submitted] = now_s
                    submitted += 1
            _start_decode(later, flow, d, w, now_s)
    return steps


def flow_of(arrival_s: np.ndarray, prompt: np.ndarray, output: np.ndarray, cached: np.ndarray) -> Flow:
    """Requests before the simulation; at least one token of each prompt is not cached."""
    counted, timed = np.zeros((3, len(prompt)), np.int64), np.full((3, len(prompt)), np.inf)
    return Flow(
        arrival_s=arrival_s,
        prompt=prompt,
        cached=np.minimum(cached.astype(np.int64), prompt - 1),
        output=output,
        place=np.arange(len(prompt)),
        computed=counted[0],
        rank=counted[1],
        after=counted[2],
        ready_s=timed[0],
        first_token_s=timed[1],
        finish_s=timed[2],
    )


def run_pools(first: Pool, later: Pool, flow: Flow, sent: int, closed: bool, transfer_s_per_token: float) -> float:
    """Simulate all requests, the first `sent` of which have arrival times; returns the steps of both pools."""
    queues, tokens = np.full((5, max(first.workers, later.workers)), -1), np.zeros((2, first.ranks), np.int64)
    pairs, counted = np.zeros((2, first.ranks)), np.zeros((3, later.workers, later.ranks), np.int64)
    prefill = Prefill(
        until_s=np.full(first.workers, np.inf),
        head=queues[0],
        tail=queues[1],
        chunked=np.full((first.workers, first.ranks), -1),
        done=queues[2],
        left=tokens[0],
        taken=tokens[1],
        pairs=pairs[0],
        windowed=pairs[1],
    )
    decode = Decode(
        until_s=np.full(later.workers, np.inf),
        head=queues[3],
        tail=queues[4],
        running=counted[0],
        context=counted[1],
        held=counted[2],
        turn=np.zeros(later.workers, np.int64),
        ending=np.full((later.workers, int(flow.output.max(initial=1)) + 1), -1),
    )
    return _run(first, later, flow, prefill, decode, sent, closed, transfer_s_per_token)
