"""Step-by-step simulation of a serving scheduler."""
# mypy: disable-error-code="no-any-return"

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from advisor.engine.scheduler.sampling import (
    Drawing,
    Drawn,
    drawing,
    drawn,
    requests_of,
    times_between,
    with_prefixes,
)
from advisor.engine.scheduler.state import (
    BUSY_S,
    CLOCK_S,
    FINISHED,
    FREE_MIN,
    IN_TOKENS,
    OUT_TOKENS,
    PREEMPTIONS,
    PROMPT_S,
    PROMPT_STEPS,
    RUNNING_S,
    STEPS,
    VISITED,
    Costs,
    Requests,
    Rules,
)
from advisor.engine.step import (
    BURST,
    MIXED,
    POISSON,
    POLICIES,
    STATIC,
    STEADY,
    TRACE,
    USERS,
    Client,
    Scheduler,
    StepTimes,
)
from advisor.engine.terms import Lengths

VISIT_STEPS = 5.0  # time to visit one request in a step, over that of a step in which all requests advance together
BATCHES = 5
CONFIDENCE_ERRORS = 3.746947  # standard errors: 99th percentile of Student's t with BATCHES - 1 degrees of freedom
LEAST_RATE_PER_S = 1e-9  # the compiled loop takes finite times only, of which its clock can tell steps apart
MOST_AFTER = 10_000  # requests sent while the measured ones finish


@dataclass(frozen=True, kw_only=True, slots=True)
class Simulation:
    """Latencies of the measured requests, in order of sending, and server statistics.

    The latencies of a request that the server cannot hold are infinite: it counts in every percentile. Means and rates
    are those of the requests that were served.
    """

    ttft_s: np.ndarray
    tpot_s: np.ndarray  # (e2e - TTFT) / (output - 1), of requests with more than one output token
    e2e_s: np.ndarray
    queue_s: np.ndarray  # until the first step that computes the request
    input_tokens: np.ndarray
    output_tokens: np.ndarray
    output_tokens_per_s: float
    total_tokens_per_s: float
    requests_per_s: float
    steps: int
    preemptions: int
    rejected_requests: int  # larger than the whole KV cache, or longer than the model's context
    running_requests_mean: float
    kv_used_max_tokens: int
    busy_fraction: float
    duration_s: float
    seed: int
    work: float = 0.0  # steps, and requests visited in them: the time that it took to simulate is in proportion
    _sorted: dict[str, np.ndarray] = field(init=False, default_factory=dict, repr=False, compare=False)

    def mean(self, metric: str) -> float:
        """Mean of ttft_s, tpot_s or e2e_s of the requests that were served; infinite if none was."""
        return float(_finite(self._values(metric)).mean())

    def percentile(self, metric: str, percent: float) -> float:
        """Percentile of ttft_s, tpot_s or e2e_s over the measured requests."""
        return self.percentiles(metric, percent)[0]

    def percentiles(self, metric: str, *percents: float) -> list[float]:
        """Several percentiles of one metric; linear interpolation as in numpy's `percentile`.

        Infinite if and only if a larger share of the requests than the rest was not served.
        """
        ordered = self._ordered(metric)
        return [_quantile(ordered, percent / 100) for percent in percents]

    @property
    def longest_tokens(self) -> int:
        """Prompt plus answer of the longest request that was served."""
        served = np.isfinite(self.e2e_s)
        return int((self.input_tokens + self.output_tokens)[served].max(initial=0))

    def standard_error(self, metric: str) -> float:
        """Standard error of the mean by batch means, which allows for correlated requests."""
        return batch_error(_finite(self._values(metric)))

    def bounds(self, metric: str, percent: float) -> tuple[float, float]:
        """Confidence bounds (low, high) of a percentile over all requests; infinite if the sample is too small.

        From the standard error of the fraction of requests above the percentile, by batch means because slow requests
        come in bursts, and at least that of independent requests. Each bound is wrong in 1 % of cases; in 5 % if bursts
        last longer than a batch (tests/engine/scheduler/test_pilot.py).
        """
        values, ordered, share = self._values(metric), self._ordered(metric), percent / 100
        count = len(values)
        late = values > ordered[math.ceil(share * count) - 1]
        error = CONFIDENCE_ERRORS * max(batch_error(late, BATCHES), math.sqrt(share * (1 - share) / count))
        low, high = (share - error) * count, (share + error) * count
        return (
            float(ordered[math.floor(low) - 1]) if low >= 1 else 0.0,
            float(ordered[math.ceil(high) - 1]) if high <= count else math.inf,
        )

    def _ordered(self, metric: str) -> np.ndarray:
        """The latencies in ascending order, sorted once."""
        if metric not in self._sorted:
            self._sorted[metric] = np.sort(self._values(metric))
        return self._sorted[metric]

    def _values(self, metric: str) -> np.ndarray:
        values = getattr(self, metric)
        if len(values):
            return values
        return np.array([0.0 if len(self.ttft_s) else math.inf])  # one-token outputs have no TPOT


def _quantile(ordered: np.ndarray, share: float) -> float:
    place = share * (len(ordered) - 1)
    low = int(place)
    below, above, part = float(ordered[low]), float(ordered[min(low + 1, len(ordered) - 1)]), place - low
    if math.isinf(above):  # not interpolated: the smallest value that at least this share of the requests has
        return float(ordered[max(math.ceil(share * len(ordered) - 1e-9) - 1, 0)])
    if below == above:
        return below
    return below + (above - below) * part if part < 0.5 else above - (above - below) * (1 - part)


def _finite(values: np.ndarray) -> np.ndarray:
    """The latencies of the requests that were served; all of them if none was."""
    served = values[np.isfinite(values)]
    return served if len(served) else values


def batch_error(values: np.ndarray, batches: int = 20) -> float:
    """Standard error of the mean of correlated values, from batch means; infinite for too few values."""
    size = len(values) // batches
    if size < 2:
        return math.inf
    sums = np.add.reduce(values[: size * batches].reshape(batches, size), axis=1, dtype=float).tolist()
    middle = sum(sums) / batches
    return math.sqrt(sum((each - middle) * (each - middle) for each in sums) / (batches - 1) / batches) / size


def simulate(
    times: StepTimes,
    index: int,
    scheduler: Scheduler,
    client: Client,
    input_tokens: Lengths,
    output_tokens: Lengths,
    *,
    concurrency: int = 1,
    cached_fraction: float = 0.0,
    context_tokens: float = math.inf,
    requests: int = 2000,
    seed: int = 0,
) -> Simulation:
    """Simulate one lane with this client; `requests` are measured (burst, static and trace have their own number).

    The shared prefix of a request is in the cache from the start: it is not computed, takes KV once while any running
    request uses it, and a decode step reads it from memory once. Without classes, the cached fraction of each prompt is
    not computed either, but is taken for its own history, which no other request shares.
    Lengths drawn from a distribution end at `context_tokens`, the model's context, because clients cut longer prompts;
    recorded requests that are longer cannot be served.
    In closed loops, a user's next request does not wait for the delay of the stream (stream_s_per_sequence).
    A lane of attention-DP ranks that step together is simulated alone first, then with the mean wait for the others.
    """
    costs = costs_of(times, index)
    first, last, total = _population(client, concurrency, requests)
    sampled = drawing(client, input_tokens, output_tokens, context_tokens)
    cached_fraction = 0.0 if client.prefix_classes else cached_fraction
    if client.kind in (POISSON, USERS):
        parts = (first, last - first, total - last)
        between = times_between(sampled.arrival_cv, parts, seed)
        sent, held = _sent(sampled._replace(arrival_cv=None), parts, seed, costs.block_tokens, cached_fraction)
    else:
        sent, between = _lengths(scheduler, client, sampled, concurrency, total, seed), np.zeros(total)
        held = held_by(sent, costs.block_tokens, cached_fraction)
    fits = _fitting(held, costs, context_tokens)
    arrival_s, think_s, at_once = _arrivals(client, concurrency, between, fits)
    rules = _rules(scheduler, client, int(fits[:first].sum()), int(fits[:last].sum()))
    from advisor.engine.scheduler.loop import run_steps  # imported here because the web tier must not load numba

    columns = (*(_only(column, fits) for column in (sent.prompt, sent.output, held.cached, held.prefix)), think_s)
    table = _table(arrival_s.copy(), *columns)
    totals, marks, state = run_steps(costs, rules, table, at_once)
    waited_s = _waited_s(totals, float(times.ranks[index])) if client.kind != STATIC else 0.0
    if waited_s > 0:
        costs = costs._replace(serial_s=costs.serial_s + waited_s)
        table = _table(arrival_s, *columns)
        totals, marks, state = run_steps(costs, rules, table, at_once)
    measured = _Sent(prompt=sent.prompt[first:last], output=sent.output[first:last], fits=fits[first:last])
    return _summary(table, rules, costs, totals, marks, state, measured, seed)


class _Sent(NamedTuple):
    """The measured requests as they were sent, with those that the server cannot hold."""

    prompt: np.ndarray
    output: np.ndarray
    fits: np.ndarray

    def all_s(self, served_s: np.ndarray) -> np.ndarray:
        """The latencies of all requests, from those of the served ones; infinite for the others."""
        if len(served_s) == len(self.fits):
            return served_s
        latency_s = np.full(len(self.fits), np.inf)
        latency_s[self.fits] = served_s
        return latency_s


def _waited_s(totals: np.ndarray, ranks: float) -> float:
    """Mean seconds per step that a rank waits for a prompt of another rank while it has none itself.

    The ranks exchange tokens in every layer, so that all take as long as the slowest. Mean field: each of the others
    has a prompt in the same share of its steps, independently, and the step then lasts as long as one with a prompt.
    Measured with two ranks: docs/explanation/accuracy.md.
    """
    steps, with_prompt = totals[STEPS], totals[PROMPT_STEPS]
    if ranks <= 1 or not 0 < with_prompt < steps:
        return 0.0
    share = with_prompt / steps
    excess_s = totals[PROMPT_S] / with_prompt - (totals[BUSY_S] - totals[PROMPT_S]) / (steps - with_prompt)
    return float((1 - share) * (1 - (1 - share) ** (ranks - 1)) * max(excess_s, 0.0))


def cached_tokens(sent: Drawn, block_tokens: int, cached_fraction: float) -> tuple[np.ndarray, np.ndarray]:
    """(cached tokens, shared prefix or -1) of each request; at least one token of each prompt is not cached.

    Frameworks share whole blocks.
    """
    if not (sent.prefix >= 0).any():
        return np.minimum((sent.prompt * cached_fraction).astype(np.int64), sent.prompt - 1), sent.prefix
    cached = np.minimum(sent.shared_tokens, sent.prompt - 1).astype(np.int64) // block_tokens * block_tokens
    return cached, np.where(cached > 0, sent.prefix, -1)


class Held(NamedTuple):
    """What requests take of the cache."""

    cached: np.ndarray
    prefix: np.ndarray
    tokens: np.ndarray  # with the whole prefix of which they may use a part
    total: np.ndarray  # of prompt and answer
    most: tuple[int, int]  # of both


def held_by(sent: Drawn, block_tokens: int, cached_fraction: float) -> Held:
    cached, prefix = cached_tokens(sent, block_tokens, cached_fraction)
    shared, total = prefix >= 0, sent.prompt + sent.output
    longest = np.zeros(int(prefix.max(initial=-1)) + 1, np.int64)
    np.maximum.at(longest, prefix[shared], cached[shared])
    tokens = total.copy()
    tokens[shared] += longest[prefix[shared]] - cached[shared]
    return Held(cached, prefix, tokens, total, (int(tokens.max(initial=0)), int(total.max(initial=0))))


@lru_cache(maxsize=8)
def _sent(
    d: Drawing, parts: tuple[int, ...], seed: int, block_tokens: int, cached_fraction: float
) -> tuple[Drawn, Held]:
    """Requests that all designs share."""
    sent = requests_of(d, parts, seed)
    return sent, held_by(sent, block_tokens, cached_fraction)


def _fitting(held: Held, costs: Costs, context_tokens: float) -> np.ndarray:
    """Which requests the server can hold alone."""
    room = costs.total_blocks * costs.block_tokens
    if held.most[0] <= room and held.most[1] <= context_tokens:
        return np.ones(len(held.total), bool)
    return (held.tokens <= room) & (held.total <= context_tokens)


def _only(column: np.ndarray, fits: np.ndarray) -> np.ndarray:
    """These requests of a column, which no simulation changes."""
    return column if fits.all() else column[fits]


def _table(
    arrival_s: np.ndarray,
    prompt: np.ndarray,
    output: np.ndarray,
    cached: np.ndarray,
    prefix: np.ndarray,
    think_s: np.ndarray,
) -> Requests:
    """The requests before the simulation."""
    counted, timed = np.zeros((3, len(prompt)), np.int64), np.full((3, len(prompt)), np.inf)
    return Requests(
        arrival_s=arrival_s,
        prompt=prompt,
        output=output,
        cached=cached,
        prefix=prefix,
        computed=counted[0],
        generated=counted[1],
        blocks=counted[2],
        start_s=timed[0],
        first_token_s=timed[1],
        finish_s=timed[2],
        think_s=think_s,
    )


def _rules(scheduler: Scheduler, client: Client, first: int, last: int) -> Rules:
    """Scheduler and client settings as scalars; the measured requests are [first, last)."""
    return Rules(
        policy=POLICIES.index(scheduler.policy),
        max_batched_tokens=scheduler.max_batched_tokens,
        max_running_requests=scheduler.max_running_requests,
        reserve_full=scheduler.reserve_full,
        whole_prompts=scheduler.policy == MIXED and not scheduler.chunked_prefill,
        asynchronous=scheduler.asynchronous and scheduler.policy != STATIC,
        closed=client.kind in (STEADY, BURST, USERS),
        first=first,
        last=last,
    )


def _population(client: Client, concurrency: int, requests: int) -> tuple[int, int, int]:
    """(first measured request, end of the measured ones, number sent): warm-up requests before, further load after."""
    if client.kind == STEADY:
        return 2 * concurrency, 2 * concurrency + requests, 3 * concurrency + requests
    if client.whole_run:
        return 0, requests, requests
    if client.kind in (POISSON, USERS):
        warm_up = requests // 5
        return warm_up, warm_up + requests, warm_up + requests + min(requests - warm_up, MOST_AFTER)
    count = {BURST: client.requests_per_user * concurrency, STATIC: concurrency, TRACE: len(client.arrival_s)}
    return 0, count[client.kind], count[client.kind]


def _first_arrivals(client: Client, between: np.ndarray, fits: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """(first arrivals, time to think after each request in s, arrivals known) of users who all think at the start.

    Thinking times are exponential. Of `users` such times, the k-th smallest exceeds the one before it by an exponential
    with mean think_s / (users - k + 1); arrivals beyond the simulated requests are not kept.
    """
    known = min(client.users, int(fits.sum()))
    arrival_s = np.full(int(fits.sum()), np.inf)
    arrival_s[:known] = np.cumsum(between[:known] * client.think_s / (client.users - np.arange(known)))
    return arrival_s, between[::-1] * client.think_s, known


def _lengths(scheduler: Scheduler, client: Client, sampled: Drawing, concurrency: int, count: int, seed: int) -> Drawn:
    """The requests of a client whose arrivals are known or follow answers."""
    rng = np.random.default_rng(seed)
    if client.kind == TRACE:
        recorded = np.array(client.input_tokens, np.int64), np.array(client.output_tokens, np.int64)
        return with_prefixes(client.prefix_classes, *recorded, rng)
    sent = drawn(sampled, count, rng)
    if client.kind == STEADY and scheduler.policy != STATIC:
        _stagger(sent.prompt, sent.output, concurrency, rng)
    return sent


def _arrivals(
    client: Client, concurrency: int, between: np.ndarray, fits: np.ndarray
) -> tuple[np.ndarray, np.ndarray, int]:
    """(arrivals, times to think after each request, arrivals known) of the requests that fit, in s.

    Arrivals are infinite until a closed loop submits them.
    """
    never = np.zeros(int(fits.sum()))
    if client.kind == USERS:
        arrival_s, think_s, known = _first_arrivals(client, between, fits)
        return arrival_s, think_s[fits], known
    if client.kind == POISSON:
        return np.cumsum(between * (1 / max(client.rate_per_s, LEAST_RATE_PER_S)))[fits], never, concurrency
    if client.kind == TRACE:
        return np.array(client.arrival_s, float)[fits], never, concurrency
    return np.where(np.arange(len(never)) < concurrency, 0.0, np.inf), never, concurrency


def _stagger(prompt: np.ndarray, output: np.ndarray, concurrency: int, rng: np.random.Generator) -> None:
    """Start the first requests at random points of their output, so that a steady load is stationary from the start."""
    done = (rng.permutation(concurrency) / concurrency * output[:concurrency]).astype(np.int64)
    prompt[:concurrency] += done
    output[:concurrency] -= done


@lru_cache(maxsize=64)  # designs are simulated several times, one after the other
def costs_of(times: StepTimes, index: int) -> Costs:
    """The step costs of one lane, in s and tokens, as the compiled loops take them."""
    whole = {"window_tokens", "graph_max_tokens", "tile_tokens", "block_tokens"}

    def value(name: str) -> Any:
        if name == "total_blocks":
            return int(times.kv_capacity_tokens[index]) // int(times.block_tokens[index])
        if name == "grid_tokens":
            return np.ascontiguousarray(times.grid_tokens, float)
        row = getattr(times, name)[index]
        if name == "linear_s":
            return np.ascontiguousarray(row, float)
        return int(min(row, 2**60)) if name in whole else float(row)

    return Costs(*(value(name) for name in Costs._fields))


def _summary(
    table: Requests,
    rules: Rules,
    costs: Costs,
    totals: np.ndarray,
    marks: np.ndarray,
    state: np.ndarray,
    sent: _Sent,
    seed: int,
) -> Simulation:
    arrival_s, start_s, first_token_s, finish_s = (
        getattr(table, name)[rules.first : rules.last] for name in ("arrival_s", "start_s", "first_token_s", "finish_s")
    )
    ttft_s, e2e_s, several = first_token_s - arrival_s, finish_s - arrival_s, sent.output > 1
    window = marks[1] - marks[0]
    rate = window / window[CLOCK_S] if window[CLOCK_S] > 0 else np.zeros(len(totals))
    mean = totals / totals[CLOCK_S] if totals[CLOCK_S] > 0 else np.zeros(len(totals))
    if window[FINISHED] == 0:  # all arrive before the first is finished: the rate is that at which the queue is served
        rate = mean
    return Simulation(
        ttft_s=sent.all_s(ttft_s),
        tpot_s=sent.all_s(e2e_s - ttft_s)[several] / (sent.output[several] - 1),
        e2e_s=sent.all_s(e2e_s),
        queue_s=sent.all_s(start_s - arrival_s),
        input_tokens=sent.prompt,
        output_tokens=sent.output,
        output_tokens_per_s=float(rate[OUT_TOKENS]),
        total_tokens_per_s=float(rate[OUT_TOKENS] + rate[IN_TOKENS]),
        requests_per_s=float(rate[FINISHED]),
        steps=int(totals[STEPS]),
        preemptions=int(state[PREEMPTIONS]),
        rejected_requests=int(np.count_nonzero(~sent.fits)),
        running_requests_mean=float(mean[RUNNING_S]),
        kv_used_max_tokens=int(costs.total_blocks - state[FREE_MIN]) * costs.block_tokens,
        busy_fraction=float(mean[BUSY_S]),
        duration_s=float(totals[CLOCK_S]),
        seed=seed,
        work=float(totals[STEPS] + VISIT_STEPS * totals[VISITED]),
    )
