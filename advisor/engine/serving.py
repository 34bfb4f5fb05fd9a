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
