"""From the time of one scheduler step to TTFT, TPOT and throughput: the values, and the closed form over arrays."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

CHUNKED, PREFILL_FIRST, MIXED, STATIC = "chunked", "prefill_first", "mixed", "static"
POLICIES = (CHUNKED, PREFILL_FIRST, MIXED, STATIC)
STEADY, BURST, POISSON, TRACE = "steady", "burst", "poisson", "trace"
CLIENTS = (STEADY, BURST, POISSON, STATIC, TRACE)


@dataclass(frozen=True, kw_only=True, slots=True)
class StepTimes:
    """What one scheduler step costs on each of N lanes (a TP group); seconds, the first axis is the candidate.

    step = max(device, host) + serial; device = linear(tokens) + attention + sampling, with a floor above the graphs.
    """

    grid_tokens: np.ndarray  # (G,) ascending from 1, shared
    linear_s: np.ndarray  # (N, G) all that depends on the tokens of the step: GEMM, MoE, norms, collectives
    sample_s_per_sequence: np.ndarray  # (N,) lm_head and sampling, per sequence that gets a token
    decode_s_per_context_token: np.ndarray  # (N,) KV read of full layers, per context token of a decoding sequence
    window_s_per_context_token: np.ndarray  # (N,) the same of windowed layers, context capped at window_tokens
    window_tokens: np.ndarray  # (N,)
    decode_s_per_sequence: np.ndarray  # (N,)
    prefill_s_per_pair: np.ndarray  # (N,) full layers, per (query, key) pair: q*p + q*(q+1)/2 for q tokens after p
    window_prefill_s_per_pair: np.ndarray  # (N,) the same of windowed layers, keys capped at window_tokens
    host_s: np.ndarray  # (N,) host time per step that overlaps the device
    host_s_per_sequence: np.ndarray  # (N,) added to host_s per sequence of the step
    serial_s: np.ndarray  # (N,) host time per step that overlaps nothing
    serial_s_per_sequence: np.ndarray  # (N,)
    graph_max_tokens: np.ndarray  # (N,) a step of more tokens lasts at least eager_floor_s
    eager_floor_s: np.ndarray  # (N,)
    kv_capacity_tokens: np.ndarray  # (N,)
    block_tokens: np.ndarray  # (N,)
    request_s: np.ndarray  # (N,) front-end time before a request reaches the scheduler, part of TTFT


@dataclass(frozen=True, kw_only=True, slots=True)
class Scheduler:
    """How a framework fills a step.

    chunked: running requests first, then prompt chunks in order of arrival within the budget (vLLM V1).
    prefill_first: a step of prompts only while any can be prefilled, else a step of decodes (SGLang's default).
    mixed: prompts, then decodes in one step; whole prompts unless chunked_prefill (TensorRT-LLM in-flight batching).
    static: a batch is admitted to an empty server, prefilled, and decoded to its end.
    """

    policy: str = CHUNKED
    max_batched_tokens: int = 8192
    max_running_requests: int = 1024
    reserve_full: bool = False  # admit only what fits with its whole output; else preempt the newest when KV runs out
    chunked_prefill: bool = True  # mixed only: False keeps prompts whole
    asynchronous: bool = True  # step n+1 is chosen while step n runs: what arrives during n is seen in n+2

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise ValueError(f"policy {self.policy!r} is none of {POLICIES}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Client:
    """What sends the requests.

    steady: `concurrency` always in flight, a stationary mix from the start (staggered remaining outputs).
    burst: requests_per_user x concurrency requests through a semaphore of `concurrency`, all offered at once.
    poisson: rate_per_s, for ever; static: one batch of `concurrency` at once; trace: the arrays.
    A warm-up that ends before a burst begins leaves an empty server and needs no simulation.
    """

    kind: str = STEADY
    requests_per_user: int = 10
    rate_per_s: float = 0.0
    length_low_fraction: float = 1.0  # constant lengths are drawn uniformly between these shares of the nominal
    length_high_fraction: float = 1.0
    arrival_s: Sequence[float] | np.ndarray = ()
    input_tokens: Sequence[int] | np.ndarray = ()
    output_tokens: Sequence[int] | np.ndarray = ()

    def __post_init__(self) -> None:
        if self.kind not in CLIENTS:
            raise ValueError(f"client {self.kind!r} is none of {CLIENTS}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Demand:
    """Token lengths of the requests as moments; numbers, or arrays that broadcast with the candidates."""

    input_tokens: np.ndarray | float
    output_tokens: np.ndarray | float
    input_cv2: float = 0.0  # squared coefficient of variation
    output_cv2: float = 0.0
    cached_fraction: np.ndarray | float = 0.0  # share of the prompt found in the prefix cache


@dataclass(frozen=True, kw_only=True, slots=True)
class ClosedLoop:
    """Means of a closed loop; shape: candidates broadcast with concurrency."""

    output_tokens_per_s: np.ndarray
    requests_per_s: np.ndarray
    ttft_mean_s: np.ndarray
    tpot_mean_s: np.ndarray
    running_requests: np.ndarray
    kv_limited: np.ndarray  # KV capacity, not the clients, bounds the running requests
    saturating: np.ndarray  # more requests than the server runs at once, or a full prompt budget: TTFT is queueing


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenLoop:
    """Means of an open loop and planning estimates of p95, for ranking only: percentiles come from simulation."""

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


@dataclass(frozen=True, kw_only=True, slots=True)
class _Load:
    """Coefficients of the step time for one demand: decode(n) = linear(n) + n * decode_s, a prompt adds prompt_s."""

    grid_tokens: np.ndarray
    flat_s: np.ndarray
    row: np.ndarray
    prompt_tokens: np.ndarray | float
    decode_s: np.ndarray
    prompt_s: np.ndarray
    host_s: np.ndarray
    host_s_per_sequence: np.ndarray
    serial_s: np.ndarray
    serial_s_per_sequence: np.ndarray
    graph_max_tokens: np.ndarray
    eager_floor_s: np.ndarray

    def linear_s(self, tokens: np.ndarray) -> np.ndarray:
        """Linear interpolation on the shared grid: by exponent on powers of two, else by search."""
        tokens, last = np.maximum(tokens, 1.0), len(self.grid_tokens) - 2
        if np.array_equal(self.grid_tokens, 2.0 ** np.arange(last + 2)):
            i = np.minimum(np.frexp(tokens)[1] - 1, last)
        else:
            i = np.clip(np.searchsorted(self.grid_tokens, tokens, side="right") - 1, 0, last)
        low = self.flat_s[self.row + i]
        share = (tokens - self.grid_tokens[i]) / np.diff(self.grid_tokens)[i]
        return low + share * (self.flat_s[self.row + i + 1] - low)

    def step_s(self, decodes: np.ndarray, prompts: np.ndarray | float, sequences: np.ndarray) -> np.ndarray:
        """Seconds of a step of so many decodes and (parts of) prompts."""
        tokens = decodes + prompts * self.prompt_tokens
        device = self.linear_s(tokens) + decodes * self.decode_s + prompts * self.prompt_s
        device = np.where(tokens > self.graph_max_tokens, np.maximum(device, self.eager_floor_s), device)
        host = self.host_s + sequences * self.host_s_per_sequence
        return np.maximum(device, host) + self.serial_s + sequences * self.serial_s_per_sequence


def _capped_sum(start: np.ndarray, end: np.ndarray, cap: np.ndarray) -> np.ndarray:
    """Sum of min(j, cap) for j from start + 1 to end."""
    low, high = np.minimum(start, cap), np.minimum(end, cap)
    return (high * (high + 1) - low * (low + 1)) / 2 + cap * ((end - start) - (high - low))


def _load(times: StepTimes, demand: Demand, extra_axes: int) -> _Load:
    shape = (-1,) + (1,) * extra_axes
    t = {name: getattr(times, name).reshape(shape) for name in StepTimes.__slots__ if name not in _SHARED}
    i, o, hit = demand.input_tokens, demand.output_tokens, demand.cached_fraction
    o_biased = o * (1 + demand.output_cv2)  # long outputs are met more often
    context = i + o_biased / 2
    windowed = _capped_sum(i, i + o_biased, t["window_tokens"]) / o_biased
    pairs = (i * i * (1 + demand.input_cv2) * (1 - hit**2) + (1 - hit) * i) / 2
    window_pairs = _capped_sum(hit * i, i, t["window_tokens"])
    decode_s = (
        t["sample_s_per_sequence"]
        + t["decode_s_per_sequence"]
        + context * t["decode_s_per_context_token"]
        + windowed * t["window_s_per_context_token"]
    )
    prompt_s = (
        t["sample_s_per_sequence"]
        + pairs * t["prefill_s_per_pair"]
        + window_pairs * t["window_prefill_s_per_pair"]
    )
    names = ("host_s", "host_s_per_sequence", "serial_s", "serial_s_per_sequence", "graph_max_tokens", "eager_floor_s")
    return _Load(
        grid_tokens=times.grid_tokens,
        flat_s=times.linear_s.ravel(),
        row=np.arange(len(times.linear_s)).reshape(shape) * len(times.grid_tokens),
        prompt_tokens=np.maximum(i * (1 - hit), 1.0),
        decode_s=decode_s,
        prompt_s=prompt_s,
        **{name: t[name] for name in names},
    )


_SHARED = ("grid_tokens", "linear_s")


def _running_limit(times: StepTimes, demand: Demand, scheduler: Scheduler, extra_axes: int) -> tuple[np.ndarray, ...]:
    """How many requests run at once at most, and how many KV alone would allow."""
    shape = (-1,) + (1,) * extra_axes
    block, capacity = times.block_tokens.reshape(shape), times.kv_capacity_tokens.reshape(shape)
    whole = np.ceil((demand.input_tokens + demand.output_tokens) / block) * block
    held = demand.input_tokens + demand.output_tokens * (1 + demand.output_cv2) / 2 + block / 2
    if scheduler.reserve_full or scheduler.policy == STATIC:
        held = whole
    by_kv = np.where(whole > np.floor(capacity / block) * block, 0.0, capacity / held)
    return np.minimum(by_kv, scheduler.max_running_requests), by_kv


def closed_loop(
    times: StepTimes, concurrency: np.ndarray | float, demand: Demand, scheduler: Scheduler
) -> ClosedLoop:
    """Throughput, TTFT and TPOT with `concurrency` requests always in flight.

    Counted in steps: a request spends `lag` steps unseen, its prompt's steps, and output-1 decode steps, so
    arrivals per step follow without knowing how long a step is; then two kinds of step are timed, with and
    without prompts. concurrency broadcasts with the candidates: (N,), or (N, C) / (1, C) for several each.
    """
    concurrency = np.asarray(concurrency, float)
    axes = max(concurrency.ndim - 1, 0)
    load = _load(times, demand, axes)
    limit, by_kv = _running_limit(times, demand, scheduler, axes)
    running = np.minimum(concurrency, limit)
    request_s = times.request_s.reshape((-1,) + (1,) * axes)
    solve = _static if scheduler.policy == STATIC else _continuous
    rate, first_s, tpot_s, full = solve(load, running, demand, scheduler, request_s)
    served = limit >= 1
    rate = np.where(served, rate, 0.0)
    wait_s = np.divide(np.maximum(concurrency - running, 0.0), rate, out=np.full_like(rate, np.inf), where=rate > 0)
    return ClosedLoop(
        output_tokens_per_s=rate * demand.output_tokens,
        requests_per_s=rate,
        ttft_mean_s=np.where(served, first_s + wait_s, np.inf),
        tpot_mean_s=np.where(served, tpot_s, np.inf),
        running_requests=running,
        kv_limited=(by_kv < concurrency) & (by_kv <= scheduler.max_running_requests),
        saturating=(limit < concurrency) | full,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Prompts:
    """How prompts fall into steps, given `arrivals` per (decode) step and `room` prompts per step."""

    per_step: np.ndarray  # prompts in a step that has any
    whole_steps: np.ndarray  # steps of a prompt before its last one, each filled by it
    last: np.ndarray  # share of the prompt in its last step
    share: np.ndarray  # steps with prompts, per step


def _prompts(arrivals: np.ndarray, room: np.ndarray, random: bool) -> _Prompts:
    met = 1 - np.exp(-arrivals) if random else np.minimum(arrivals, 1.0)
    whole = np.maximum(np.ceil(1 / room - 1e-9) - 1, 0.0)
    share = np.maximum(np.where(whole > 0, arrivals * (whole + 1), met), arrivals / room)
    per_step = np.where(whole > 0, room, arrivals / np.maximum(share, 1e-30))
    return _Prompts(per_step=per_step, whole_steps=whole, last=1 - whole * room, share=share)


def _own_prompt_s(load: _Load, decodes: np.ndarray, prompts: _Prompts, sequences: np.ndarray) -> np.ndarray:
    """Time of the steps that hold a request's prompt."""
    filled_s = load.step_s(decodes, prompts.per_step, sequences)
    last_s = load.step_s(decodes, prompts.last, sequences)
    return np.where(prompts.whole_steps > 0, prompts.whole_steps * filled_s + last_s, filled_s)


def _room(load: _Load, scheduler: Scheduler, decodes: np.ndarray | float) -> np.ndarray:
    """How many prompts (or what part of one) a step takes."""
    budget = scheduler.max_batched_tokens
    if scheduler.policy == MIXED and not scheduler.chunked_prefill:
        return np.maximum(np.floor(budget / load.prompt_tokens), 1.0)
    return np.maximum(budget - (decodes if scheduler.policy == CHUNKED else 0.0), 1.0) / load.prompt_tokens


def _added_s(load: _Load, decodes: np.ndarray, step_s: np.ndarray, p: _Prompts, room, arrivals, sequences):
    """Mean time that prompts add to a step of decodes, and the time of a request's own prompt."""
    own_s = _own_prompt_s(load, decodes, p, sequences)
    spread_s = arrivals * (own_s - (p.whole_steps + 1) * step_s)
    packed_s = arrivals / room * (load.step_s(decodes, np.maximum(p.per_step, np.minimum(room, 1.0)), sequences) - step_s)
    several_s = p.share * (own_s - step_s)
    return np.where(p.whole_steps > 0, np.where(p.share > 1, packed_s, spread_s), several_s), own_s


def _continuous(load, running, demand, scheduler, request_s):
    """Requests/s, TTFT and TPOT of continuous batching; `full`: the prompt budget is the limit."""
    after_first = np.maximum(demand.output_tokens - 1, 0.0)  # decode steps of a request
    separate, random = scheduler.policy == PREFILL_FIRST, demand.output_cv2 > 0
    others, busy = np.maximum(running - 1, 0.0) / np.maximum(running, 1e-9), np.clip(running - 1, 0.0, 1.0)
    step_s = load.step_s(running, 0.0, running)
    most = np.inf if separate else scheduler.max_batched_tokens / (load.prompt_tokens + after_first)
    chunks = 0.0 if separate else np.ceil(1 / _room(load, scheduler, np.minimum(running, most * after_first)))
    for _ in range(2):
        lag = busy * (scheduler.asynchronous + np.ceil(request_s / step_s))
        unbounded = running / np.maximum(after_first + lag + chunks, 1.0)
        arrivals = np.minimum(unbounded, most)
        room = _room(load, scheduler, arrivals * after_first)
        p = _prompts(arrivals, room, random)
        alone_n = arrivals * (after_first + chunks)
        decode_s = np.where(after_first > 0, load.step_s(alone_n, 0.0, alone_n), 0.0)
        if separate:
            own_s = _own_prompt_s(load, 0.0, p, p.per_step)
            added_s = p.share * np.where(p.whole_steps > 0, own_s / (p.whole_steps + 1), own_s)
        else:
            with_n = np.maximum(alone_n - arrivals * chunks / np.maximum(p.share, 1e-30), 0.0)
            added_s, own_s = _added_s(load, with_n, decode_s, p, room, arrivals, alone_n)
        step_s = decode_s + added_s
    tpot_s = decode_s + others * added_s
    rate = arrivals / step_s
    first_s = own_s * (1 + np.maximum(p.share - 1, 0.0) / 2 if separate else 1.0)
    first_s = first_s + np.where(busy > 0, lag * tpot_s + (1 - busy) * request_s, request_s)
    full = unbounded > most
    queued_s = running / rate - after_first * tpot_s
    return rate, np.where(full, np.maximum(first_s, queued_s), first_s), tpot_s, full


def _static(load, running, demand, scheduler, request_s):
    """Requests/s, TTFT and TPOT of batches that start and end together."""
    after_first = np.maximum(demand.output_tokens - 1, 0.0)
    longest = after_first * (1 + np.sqrt(3 * demand.output_cv2) * (running - 1) / (running + 1))
    steps = np.ceil(running * load.prompt_tokens / scheduler.max_batched_tokens - 1e-9)
    steps = np.maximum(steps, 1.0)
    prompt_s = load.step_s(0.0, running / steps, running / steps)
    decode_s = load.step_s(running, 0.0, running)
    tpot_s = decode_s + (steps - 1) / 2 * prompt_s / np.maximum(after_first, 1.0)
    rate = running / (steps * prompt_s + longest * decode_s + request_s)
    idle_s = (longest - after_first) * decode_s
    return rate, request_s + idle_s + (steps + 1) / 2 * prompt_s, tpot_s, np.zeros(rate.shape, bool)
