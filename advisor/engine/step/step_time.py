"""Step times, scheduler policies, clients and demand, as values of many candidates."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from advisor.engine.step import duration
from advisor.engine.terms import PrefixClass

Array = Any  # a number or an array that broadcasts with the candidates; numpy has no type for it
CHUNKED, PREFILL_FIRST, MIXED, STATIC = "chunked", "prefill_first", "mixed", "static"
POLICIES = (CHUNKED, PREFILL_FIRST, MIXED, STATIC)
STEADY, BURST, POISSON, TRACE, USERS = "steady", "burst", "poisson", "trace", "users"
NEARLY_ALL = 0.97  # of capacity, our limit: queueing estimates diverge at 1, so higher utilization is capped here
CLIENTS = (STEADY, BURST, POISSON, STATIC, TRACE, USERS)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class StepTimes:
    """Costs of one scheduler step on each of N lanes (TP groups), seconds; the first axis is the candidate.

    duration.py computes the duration of a step from them.
    """

    grid_tokens: np.ndarray  # (G,) ascending from 1, shared
    linear_s: np.ndarray  # (N, G) work that depends only on the tokens of the step: GEMM, MoE, norms, collectives
    sample_s_per_sequence: np.ndarray  # (N,) lm_head and sampling, per sequence that gets a token
    decode_s_per_context_token: np.ndarray  # (N,) KV read of full layers, per context token of a decoding sequence
    repeat_s_per_context_token: np.ndarray  # (N,) the same for a token that another sequence of the step reads too
    cache_tokens: np.ndarray  # (N,) of one full layer that the chip's cache holds, for such repeated reads
    window_s_per_context_token: np.ndarray  # (N,) the same for windowed layers, context capped at window_tokens
    window_tokens: np.ndarray  # (N,)
    decode_s_per_sequence: np.ndarray  # (N,) fixed part of decode attention
    source_s_per_sequence: np.ndarray  # (N,) encoder and adapter copy, once, with the first chunk of a prompt
    prefill_s_per_pair: np.ndarray  # (N,) full layers, per (query, key) pair: q*p + q*(q+1)/2 for q tokens after p
    window_prefill_s_per_pair: np.ndarray  # (N,) the same for windowed layers, keys capped at window_tokens
    host_s: np.ndarray  # (N,) host time per step that overlaps the device
    host_s_per_sequence: np.ndarray  # (N,) added to host_s per sequence of the step
    serial_s: np.ndarray  # (N,) host time per step that overlaps nothing
    serial_s_per_sequence: np.ndarray  # (N,)
    graph_max_tokens: np.ndarray  # (N,) a step with more tokens takes the host eager_floor_s to launch
    eager_floor_s: np.ndarray  # (N,)
    prompt_floor_s: np.ndarray  # (N,) the same within graph_max_tokens if it has a prompt (piecewise graphs)
    tile_tokens: np.ndarray  # (N,) GEMMs with more tokens than this cost whole tiles of this size; 0: no tiles
    prepare_s: np.ndarray  # (N,) host time before the launches of a prefill step
    kv_capacity_tokens: np.ndarray  # (N,)
    block_tokens: np.ndarray  # (N,)
    request_s: np.ndarray  # (N,) front-end time until a request reaches the scheduler, part of TTFT
    slow_share: np.ndarray  # (N,) of the steps with a prompt above graph_max_tokens, launched slow_ratio as slowly
    slow_ratio: np.ndarray  # (N,)
    stream_s_per_sequence: np.ndarray  # (N,) from a step's end until its tokens reach the client, per running request
    ranks: np.ndarray  # (N,) attention-DP ranks that step together, this lane included; 1: it waits for no other


@dataclass(frozen=True, kw_only=True, slots=True)
class Scheduler:
    """Batching policy of a framework.

    chunked: running requests first, then prompt chunks in order of arrival within the token budget (vLLM V1).
    prefill_first: a step of prompts only while any can be prefilled, else a step of decodes (SGLang's default).
    mixed: prompts, then decodes in one step; whole prompts unless chunked_prefill (TensorRT-LLM in-flight batching).
    static: a batch is admitted to an empty server, prefilled, and decoded to completion.
    """

    policy: str = CHUNKED
    max_batched_tokens: int = 8192
    max_running_requests: int = 1024
    reserve_full: bool = False  # admit a request only if its whole output fits; else preempt the newest if KV runs out
    chunked_prefill: bool = True  # mixed only; False: no chunking
    asynchronous: bool = True  # step n+1 is scheduled while step n runs: arrivals during n run in n+2

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise ValueError(f"policy {self.policy!r} is not one of {', '.join(POLICIES)}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Client:
    """How requests are sent.

    steady: `concurrency` always in flight, stationary from the start (staggered remaining outputs).
    burst: requests_per_user x concurrency requests, all submitted at once through a semaphore of `concurrency`.
    poisson: open loop at rate_per_s with gamma gaps whose coefficient of variation is arrival_cv (1: exponential);
    static: one batch of `concurrency` at once; trace: the arrays.
    users: `users` of them, each with at most one request in flight, who think for an exponential time of mean think_s
    after each answer.
    Except with trace, input_tokens and output_tokens are recorded requests from which lengths are drawn in pairs.
    A warm-up that ends before a burst begins leaves an empty server, so it is not simulated.
    """

    kind: str = STEADY
    requests_per_user: int = 10
    rate_per_s: float = 0.0
    length_low_fraction: float = 1.0  # constant lengths are drawn uniformly between these fractions of the nominal
    length_high_fraction: float = 1.0
    arrival_s: Sequence[float] | np.ndarray = ()
    input_tokens: Sequence[int] | np.ndarray = ()
    output_tokens: Sequence[int] | np.ndarray = ()
    users: int = 1
    think_s: float = 0.0
    arrival_cv: float = 1.0
    whole_run: bool = False  # poisson: no load before and after the measured requests
    prefix_classes: tuple[PrefixClass, ...] = ()  # replace the cached fraction

    def __post_init__(self) -> None:
        if self.kind not in CLIENTS:
            raise ValueError(f"client {self.kind!r} is not one of {', '.join(CLIENTS)}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Demand:
    """Moments of the requests' lengths and gaps; numbers, or arrays that broadcast with the candidates."""

    input_tokens: np.ndarray | float
    output_tokens: np.ndarray | float
    input_cv2: float = 0.0  # squared coefficient of variation
    output_cv2: float = 0.0
    cached_fraction: np.ndarray | float = 0.0  # of the prompt, found in the prefix cache
    arrival_cv2: np.ndarray | float = 1.0  # of the gaps between arrivals at a lane; 1: Poisson

    @property
    def crowding(self) -> np.ndarray:
        """Variance over mean of the requests in service at once if nothing slows them down; 1: Poisson.

        Peakedness at infinitely many servers (Whitt 1984): 1 + (cv^2 - 1) E[min(S, S')] / E[S], where a service S lasts
        as long as the answer. Of a log-normal, that ratio is 1 - erf(sigma / 2), here with erf as a tanh.
        """
        sigma = np.sqrt(np.log1p(self.output_cv2))
        return np.asarray(1.0 + (self.arrival_cv2 - 1.0) * (1.0 - np.tanh(sigma / math.sqrt(math.pi))))


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """Coefficients of the step time for one demand: n decodes take linear(n) + n * decode_s, a prompt adds prompt_s."""

    grid_tokens: np.ndarray
    width_tokens: np.ndarray  # (G - 1,) width of each grid interval
    powers_of_two: bool
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
    prompt_floor_s: np.ndarray
    tile_tokens: np.ndarray
    prepare_s: np.ndarray
    ranks: np.ndarray
    asynchronous: bool

    def linear_s(self, tokens: Array) -> Array:
        """`duration.linear_s` of all candidates; on powers of two, the exponent gives the interval faster."""
        tokens = np.maximum(tokens, 1.0)
        if self.powers_of_two:
            i = np.minimum(np.frexp(tokens)[1] - 1, len(self.grid_tokens) - 2)
        else:
            i = duration.grid_index(tokens, self.grid_tokens)
        place = self.row + i
        ends = self.flat_s.take(place), self.flat_s.take(place + 1)
        return duration.on_line(tokens, self.grid_tokens.take(i), self.width_tokens.take(i), *ends)

    def step_s(self, decodes: Array, prompts: Array, sequences: Array, idle: Array = 0.0) -> Array:
        """Seconds of a step of these decodes and (fractional) prompts; idle: probability that no step ran before it.

        The host begins with a step that has prompts while the device computes the decodes before it; among steps of
        prompts alone, it prepares them meanwhile.
        """
        tokens = decodes + prompts * self.prompt_tokens
        device_s = self._device_s(tokens, decodes, prompts)
        least_s = duration.launch_s(self, tokens, sequences, prompts > 0)
        if self.asynchronous and np.any(least_s > device_s):
            host_s = duration.launch_s(self, decodes, decodes, False)
            decode_s = np.maximum(self._device_s(decodes, decodes, 0.0), host_s)
            ahead_s = np.where(decodes > 0, decode_s, self.prepare_s)
            least_s = least_s - (1.0 - idle) * (prompts > 0) * ahead_s
        return duration.step_s(self, device_s, least_s, sequences)

    def _device_s(self, tokens: Array, decodes: Array, prompts: Array) -> Array:
        linear_s = self.linear_s(duration.whole_tiles(tokens, self.tile_tokens))
        return linear_s + decodes * self.decode_s + prompts * self.prompt_s


def causal_pairs(tokens: float, window: float | None = None) -> float:
    """(query, key) pairs of causal attention over a prompt; each query has at most `window` keys, itself included."""
    if window is None or tokens <= window:
        return tokens * (tokens + 1) / 2
    return window * (window + 1) / 2 + (tokens - window) * window


SHARED = ("grid_tokens", "linear_s")  # not one value per candidate


def _capped_sum(start: Array, end: Array, cap: Array) -> Array:
    """Sum of min(j, cap) for j from start + 1 to end."""
    low, high = np.minimum(start, cap), np.minimum(end, cap)
    return (high * (high + 1) - low * (low + 1)) / 2 + cap * ((end - start) - (high - low))


def load_of(times: StepTimes, demand: Demand, extra_axes: int, asynchronous: bool = True) -> Load:
    """Step-time coefficients for this demand: shape (N,) plus `extra_axes` axes, to broadcast against loads."""
    shape = (-1,) + (1,) * extra_axes
    t = {name: getattr(times, name).reshape(shape) for name in StepTimes.__slots__ if name not in SHARED}
    i, o, hit = demand.input_tokens, demand.output_tokens, demand.cached_fraction
    o_biased = o * (1 + demand.output_cv2)  # long outputs are in more steps (length-biased mean)
    context = i + o_biased / 2
    windowed = _capped_sum(i, i + o_biased, t["window_tokens"]) / o_biased
    pairs = (i * i * (1 + demand.input_cv2) * (1 - hit**2) + (1 - hit) * i) / 2
    window_pairs = _capped_sum(hit * i, i, t["window_tokens"])
    costs = SimpleNamespace(**t)
    decode_s = duration.context_s(costs, duration.sequences_s(costs, 0.0, 1, 1, 0), context, windowed)
    prompt_s = duration.pairs_s(costs, duration.sequences_s(costs, 0.0, 1, 0, 1), pairs, window_pairs)
    hosts = ("host_s", "host_s_per_sequence", "serial_s", "serial_s_per_sequence")
    names = (*hosts, "graph_max_tokens", "eager_floor_s", "prompt_floor_s", "tile_tokens", "prepare_s", "ranks")
    return Load(
        grid_tokens=times.grid_tokens,
        width_tokens=np.diff(times.grid_tokens),
        powers_of_two=np.array_equal(times.grid_tokens, 2.0 ** np.arange(len(times.grid_tokens))),
        flat_s=times.linear_s.ravel(),
        row=np.arange(len(times.linear_s)).reshape(shape) * len(times.grid_tokens),
        prompt_tokens=np.maximum(i * (1 - hit), 1.0),
        decode_s=decode_s,
        prompt_s=prompt_s,
        asynchronous=asynchronous,
        **{name: t[name] for name in names},
    )
