"""Simulates finalists at their peak rate. All reported percentiles come from here."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from advisor.engine.scheduler.response import Response
from advisor.engine.scheduler.sampling import token_lengths, within_context
from advisor.engine.scheduler.simulation import simulate
from advisor.engine.step import MIXED, POISSON, STATIC, STEADY, TRACE, USERS, Client, Lane, Scheduler, StepTimes
from advisor.engine.terms import Framework, Lengths, Trace, Workload, log_normal_sigma

REQUESTS = 2000  # to compare designs
# To report one: until the bounds of p95 and p99 are within these fractions of them, or with the most.
LONG_RUNS = (5_000, 20_000, 80_000, 320_000)
MOST_WORK = 2e7  # of one of them: 0.3 s
TOO_WIDE = 1.25  # bounds expected to be wider than this many times what is needed: the run is skipped for a longer one
P95_BOUND_FRACTION, P99_BOUND_FRACTION = 0.08, 0.18
# A server is started for all but one request in a thousand (launch/command.py); a batch that lacks more is incomplete.
MOST_UNSERVED_FRACTION = 0.001
P95_UNSERVED_FRACTION = 0.05  # above it, the 95th percentile of every latency is infinite
LATE_FACTOR = 1.5  # the rate of a batch's pilot run may be off by this factor
Bounds = tuple[float, float]
SEED = 20261121


@dataclass(frozen=True, kw_only=True, slots=True)
class Verified:
    """Simulated latencies of one lane at the peak, with standard errors and bounds.

    Arrivals are as bursty as the workload says, or those of users who think after each answer. A request that is not
    served has infinite latencies in the percentiles; means are those of the others.
    """

    ttft_mean_s: float
    ttft_p50_s: float
    ttft_p95_s: float
    ttft_p99_s: float
    tpot_mean_s: float
    tpot_p50_s: float
    tpot_p95_s: float
    tpot_p99_s: float
    e2e_p95_s: float
    running_requests_mean: float
    busy_fraction: float
    requests: int
    rejected_requests: int  # longer than the whole KV cache or the model's context
    seed: int
    ttft_standard_error_s: float
    tpot_standard_error_s: float
    requests_per_s: float  # finished
    e2e_mean_s: float = 0.0
    offered_requests_per_s: float = 0.0  # to the lane
    of_trace: "Verified | None" = None  # the same lane with its share of the recorded requests
    response: Response | None = None  # to slower steps and more load; None: latencies are in proportion to the steps
    late_fraction: float = 0.0  # batch: duration as a fraction of the deadline, startup and drain included; > 1: late
    ttft_p95_bounds_s: Bounds = (0.0, math.inf)  # confidence bounds of the percentile over all requests
    tpot_p95_bounds_s: Bounds = (0.0, math.inf)
    e2e_p95_bounds_s: Bounds = (0.0, math.inf)
    ttft_p99_bounds_s: Bounds = (0.0, math.inf)
    tpot_p99_bounds_s: Bounds = (0.0, math.inf)
    late_bounds_fraction: Bounds = (0.0, math.inf)
    work: float = 0.0  # of the simulation: steps, and requests visited in them
    longest_tokens: int = 0  # prompt plus answer of the longest request that was served

    @property
    def unserved_fraction(self) -> float:
        """Share of the simulated requests that the server cannot hold."""
        return self.rejected_requests / max(self.requests, 1)

    @property
    def is_precise(self) -> bool:
        """Whether p95 and p99 of TTFT and TPOT are known well enough to be reported; infinite ones are not better known
        with more requests."""
        return all(width <= 1 for width in self._widths())

    def width_with(self, requests: int) -> float:
        """The widest finite bounds, over those that are needed, that are expected of so many requests."""
        widest = max(filter(math.isfinite, self._widths()), default=0.0)
        return widest * math.sqrt(self.requests / requests)

    def _widths(self) -> Iterator[float]:
        """How wide the bounds of p95 and p99 of TTFT and TPOT are, over what is needed to report them."""
        for at_s, (low_s, high_s), fraction in (
            (self.ttft_p95_s, self.ttft_p95_bounds_s, P95_BOUND_FRACTION),
            (self.tpot_p95_s, self.tpot_p95_bounds_s, P95_BOUND_FRACTION),
            (self.ttft_p99_s, self.ttft_p99_bounds_s, P99_BOUND_FRACTION),
            (self.tpot_p99_s, self.tpot_p99_bounds_s, P99_BOUND_FRACTION),
        ):
            known = math.isinf(at_s) or high_s <= low_s
            yield 0.0 if known else (high_s - low_s) / (2 * fraction * at_s) if at_s else math.inf


def scheduler_of(lane: Lane, static: bool = False) -> Scheduler:
    """Scheduler settings of a lane. TensorRT-LLM's in-flight batching reserves KV for the whole output on admission."""
    policy = lane.framework.scheduler
    if lane.whole_prompts and not static:
        return Scheduler(
            policy=MIXED,
            max_batched_tokens=lane.max_batched_tokens,
            max_running_requests=lane.max_running_requests,
            chunked_prefill=False,
        )
    return Scheduler(
        policy=STATIC if static else policy,
        max_batched_tokens=lane.max_batched_tokens,
        max_running_requests=lane.max_running_requests,
        reserve_full=policy == MIXED or lane.source_tokens > 0,  # cross-attention cache is allocated in full at start
    )


def shares_prefixes(framework: Framework) -> bool:
    """Whether the framework has prefix caching; only then does the workload's hit rate count."""
    return "prefix_caching" in framework.features


def log_normal_cv2(lengths: Lengths) -> float:
    """Squared coefficient of variation of log-normal lengths; 0 for constant ones."""
    if lengths.p95_tokens <= lengths.mean_tokens:
        return 0.0
    return math.expm1(log_normal_sigma(lengths) ** 2)


def verify(
    workload: Workload, times: StepTimes, index: int, lane: Lane, rate_per_s: float, requests: int | None = None
) -> Verified:
    """Simulate one lane of a finalist at `rate_per_s` requests/s; without arrivals, with all batch slots full.

    Its share of the peak says how bursty its arrivals are. Of users, it is the rate that they would send if answers
    took no time. The lane has its share of them, rounded up: the fullest lane if they are spread evenly. Lengths are
    drawn in pairs from a trace, if the workload has one.
    `requests` None: as many as percentiles need that are reported. How near they come to those of long runs without
    stratified requests, at which cost: docs/explanation/search-time.md.
    """
    if requests is not None or not workload.kind.has_arrivals:
        return _at_peak(workload, times, index, lane, rate_per_s, requests or REQUESTS)
    seen = _at_peak(workload, times, index, lane, rate_per_s, LONG_RUNS[0])
    while (count := next_run(seen)) is not None:
        seen = _at_peak(workload, times, index, lane, rate_per_s, count)
    return seen


def next_run(seen: Verified) -> int | None:
    """The requests of the next longer run; None: this one is precise enough, or a longer one takes too much work.

    A run that would hardly be precise enough is skipped if there is time for a longer one.
    """
    if seen.is_precise and seen.requests > LONG_RUNS[0]:  # the first only shows what a request costs
        return None
    able = [n for n in LONG_RUNS if n > seen.requests and seen.work * n <= MOST_WORK * seen.requests]
    return next((n for n in able if seen.width_with(n) <= TOO_WIDE), able[-1] if able else None)


def _at_peak(
    workload: Workload, times: StepTimes, index: int, lane: Lane, rate_per_s: float, requests: int
) -> Verified:
    trace, users = workload.trace, workload.users
    pairs = Client(prefix_classes=workload.prefix_classes)
    if trace is not None:
        pairs = replace(pairs, input_tokens=trace.input_tokens, output_tokens=trace.output_tokens)
    if not workload.kind.has_arrivals:
        return _verified(workload, times, index, lane, replace(pairs, kind=STEADY), rate_per_s, requests)
    if users is None:
        cv = math.sqrt(workload.arrival_cv2(min(rate_per_s / workload.requests_per_s_peak, 1.0)))
        client = replace(pairs, kind=POISSON, rate_per_s=rate_per_s, arrival_cv=cv)
        return _verified(workload, times, index, lane, client, rate_per_s, requests)
    share = rate_per_s * users.think_s
    client = replace(pairs, kind=USERS, users=whole_users(share), think_s=users.think_s)
    seen = _verified(workload, times, index, lane, client, rate_per_s, requests)
    return replace(seen, offered_requests_per_s=share / (users.think_s + seen.e2e_mean_s))


def whole_users(share: float) -> int:
    """The users of the fullest lane if each has this many on average."""
    return max(math.ceil(share * (1 - 1e-9)), 1)


def request_lengths(workload: Workload, count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """(prompt, answer) tokens of `count` requests: pairs of the trace if there is one, else from the distributions."""
    trace = workload.trace
    if trace is not None:
        rows = rng.integers(0, len(trace.arrival_s), count)
        return np.array(trace.input_tokens)[rows], np.array(trace.output_tokens)[rows]
    prompt = token_lengths(workload.input_tokens, 1.0, 1.0, rng.random(count))
    output = token_lengths(workload.output_tokens, 1.0, 1.0, rng.random(count))
    return within_context(prompt, output, workload.context_tokens)


def at_rate(workload: Workload, seen: Verified, rate_per_s: float) -> Verified:
    """The lane with another share of a batch: all slots are full at any rate, so that only its duration changes."""
    late = _late_fraction(workload, rate_per_s, seen)
    return replace(
        seen,
        offered_requests_per_s=rate_per_s,
        late_fraction=late,
        late_bounds_fraction=(late / LATE_FACTOR, late * LATE_FACTOR),
    )


def _late_fraction(workload: Workload, rate_per_s: float, seen: Verified) -> float:
    """Duration of the lane's share of a batch as a fraction of the deadline, with cold start and drain.

    The drain, in which the longest requests finish, is the 95th percentile of the end-to-end time. Infinite if requests
    are left out.
    """
    if seen.rejected_requests > MOST_UNSERVED_FRACTION * seen.requests:
        return math.inf
    steady = rate_per_s / max(seen.requests_per_s, 1e-12)
    if workload.deadline_s is None:
        return steady
    return steady + (workload.cold_start_s + seen.e2e_p95_s) / workload.deadline_s


def verify_trace(workload: Workload, times: StepTimes, index: int, lane: Lane, trace: Trace) -> Verified:
    """Simulate one lane of a finalist with recorded arrivals and lengths."""
    client = Client(
        kind=TRACE,
        arrival_s=trace.arrival_s,
        input_tokens=trace.input_tokens,
        output_tokens=trace.output_tokens,
        prefix_classes=workload.prefix_classes,
    )
    count = len(trace.arrival_s)
    span_s = trace.arrival_s[-1] - trace.arrival_s[0]
    return _verified(workload, times, index, lane, client, count / max(span_s, 1e-9), count)


def _verified(
    workload: Workload, times: StepTimes, index: int, lane: Lane, client: Client, rate_per_s: float, requests: int
) -> Verified:
    shares = shares_prefixes(lane.framework)
    result = simulate(
        times,
        index,
        scheduler_of(lane),
        client if shares else replace(client, prefix_classes=()),
        workload.input_tokens,
        workload.output_tokens,
        concurrency=lane.max_running_requests,
        cached_fraction=workload.prefix_cache_hit_fraction if shares else 0.0,
        context_tokens=workload.context_tokens,
        requests=requests,
        seed=SEED,
    )
    ttft_p50_s, ttft_p95_s, ttft_p99_s = result.percentiles("ttft_s", 50, 95, 99)
    tpot_p50_s, tpot_p95_s, tpot_p99_s = result.percentiles("tpot_s", 50, 95, 99)
    seen = Verified(
        ttft_mean_s=result.mean("ttft_s"),
        ttft_p50_s=ttft_p50_s,
        ttft_p95_s=ttft_p95_s,
        ttft_p99_s=ttft_p99_s,
        tpot_mean_s=result.mean("tpot_s"),
        tpot_p50_s=tpot_p50_s,
        tpot_p95_s=tpot_p95_s,
        tpot_p99_s=tpot_p99_s,
        e2e_p95_s=result.percentile("e2e_s", 95),
        running_requests_mean=result.running_requests_mean,
        busy_fraction=result.busy_fraction,
        requests=requests,
        rejected_requests=result.rejected_requests,
        seed=SEED,
        ttft_standard_error_s=result.standard_error("ttft_s"),
        tpot_standard_error_s=result.standard_error("tpot_s"),
        requests_per_s=result.requests_per_s,
        e2e_mean_s=result.mean("e2e_s"),
        offered_requests_per_s=rate_per_s,
        ttft_p95_bounds_s=result.bounds("ttft_s", 95),
        tpot_p95_bounds_s=result.bounds("tpot_s", 95),
        e2e_p95_bounds_s=result.bounds("e2e_s", 95),
        ttft_p99_bounds_s=result.bounds("ttft_s", 99),
        tpot_p99_bounds_s=result.bounds("tpot_s", 99),
        late_bounds_fraction=(0.0, 0.0),
        longest_tokens=result.longest_tokens,
        work=result.work,
    )
    return at_rate(workload, seen, rate_per_s) if client.kind == STEADY else seen
