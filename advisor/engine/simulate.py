"""Discrete-event simulation of a serving scheduler: one loop over steps; percentiles come only from here."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit

from .plan import Lengths
from .steptime import BURST, MIXED, POISSON, POLICIES, STATIC, STEADY, TRACE, Client, Scheduler, StepTimes

CHUNKED_CODE, PREFILL_FIRST_CODE, MIXED_CODE, STATIC_CODE = range(len(POLICIES))
Z95 = 1.6448536269514722  # 95th percentile of the standard normal
FREE, RUNNING, NEXT, PREEMPTED, SUBMITTED, PREEMPTIONS, FREE_MIN = range(7)  # places in `state`
CLOCK_S, BUSY_S, RUNNING_S, STEPS, OUT_TOKENS, IN_TOKENS, FINISHED = range(7)  # places in `totals`


class Costs(NamedTuple):
    """StepTimes of one candidate as scalars."""

    grid_tokens: np.ndarray
    linear_s: np.ndarray
    sample_s_per_sequence: float
    decode_s_per_context_token: float
    window_s_per_context_token: float
    window_tokens: int
    decode_s_per_sequence: float
    prefill_s_per_pair: float
    window_prefill_s_per_pair: float
    host_s: float
    host_s_per_sequence: float
    serial_s: float
    serial_s_per_sequence: float
    graph_max_tokens: int
    eager_floor_s: float
    block_tokens: int
    total_blocks: int
    request_s: float


class Rules(NamedTuple):
    """Scheduler and client as scalars."""

    policy: int
    max_batched_tokens: int
    max_running_requests: int
    reserve_full: bool
    whole_prompts: bool
    asynchronous: bool
    closed: bool
    first: int  # the measured requests are [first, last)
    last: int


class Requests(NamedTuple):
    """One array per fact; `computed` counts tokens whose KV exists, a token comes out when it reaches the target."""

    arrival_s: np.ndarray
    prompt: np.ndarray
    output: np.ndarray
    cached: np.ndarray
    computed: np.ndarray
    generated: np.ndarray
    blocks: np.ndarray
    first_token_s: np.ndarray
    finish_s: np.ndarray


@dataclass(frozen=True, kw_only=True, slots=True)
class Simulation:
    """What the measured requests saw, in order of arrival, and what the server did meanwhile."""

    ttft_s: np.ndarray
    tpot_s: np.ndarray  # (e2e - TTFT) / (output - 1), of requests with more than one output token
    e2e_s: np.ndarray
    input_tokens: np.ndarray
    output_tokens: np.ndarray
    output_tokens_per_s: float
    total_tokens_per_s: float
    requests_per_s: float
    steps: int
    preemptions: int
    rejected_requests: int  # larger than the whole KV cache
    running_requests_mean: float
    kv_used_max_tokens: int
    busy_fraction: float
    duration_s: float
    seed: int

    def mean(self, metric: str) -> float:
        """Mean of ttft_s, tpot_s or e2e_s; infinite when nothing was served."""
        return float(self._values(metric).mean())

    def percentile(self, metric: str, percent: float) -> float:
        """Percentile of ttft_s, tpot_s or e2e_s over the measured requests."""
        return float(np.percentile(self._values(metric), percent))

    def standard_error(self, metric: str, batches: int = 20) -> float:
        """Standard error of the mean by batch means, which allow for requests being correlated."""
        values = self._values(metric)
        size = len(values) // batches
        if size < 2:
            return math.inf
        means = values[: size * batches].reshape(batches, size).mean(axis=1)
        return float(means.std(ddof=1) / math.sqrt(batches))

    def _values(self, metric: str) -> np.ndarray:
        values = getattr(self, metric)
        if len(values):
            return values
        return np.array([0.0 if len(self.ttft_s) else math.inf])  # one-token outputs have no TPOT


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
    requests: int = 2000,
    seed: int = 0,
) -> Simulation:
    """How does one lane serve this client? `requests` are measured (burst, static and trace set their own number).

    The cached share of each prompt is not computed but attended to, and it occupies KV (prefixes are not shared).
    """
    rng = np.random.default_rng(seed)
    costs = _costs(times, index)
    first, last, total = _population(client, concurrency, requests)
    prompt, output = _lengths(client, input_tokens, output_tokens, total, rng)
    if client.kind == STEADY and scheduler.policy != STATIC:
        _stagger(prompt, output, concurrency, rng)
    fits = prompt + output <= costs.total_blocks * costs.block_tokens
    arrival_s = _arrivals(client, concurrency, fits, rng)
    prompt, output = prompt[fits], output[fits]
    cached = np.minimum((prompt * cached_fraction).astype(np.int64), prompt - 1)
    facts = np.zeros((3, len(prompt)), np.int64), np.full((2, len(prompt)), np.inf)
    table = Requests(arrival_s, prompt, output, cached, *facts[0], *facts[1])
    rules = Rules(
        policy=POLICIES.index(scheduler.policy),
        max_batched_tokens=scheduler.max_batched_tokens,
        max_running_requests=scheduler.max_running_requests,
        reserve_full=scheduler.reserve_full,
        whole_prompts=scheduler.policy == MIXED and not scheduler.chunked_prefill,
        asynchronous=scheduler.asynchronous and scheduler.policy != STATIC,
        closed=client.kind in (STEADY, BURST),
        first=int(fits[:first].sum()),
        last=int(fits[:last].sum()),
    )
    totals, marks, state = _run(costs, rules, table, concurrency)
    rejected = int(np.count_nonzero(~fits[first:last]))
    return _summary(table, rules, costs, totals, marks, state, rejected, seed)


def token_lengths(lengths: Lengths, low_fraction: float, high_fraction: float, count: int, rng) -> np.ndarray:
    """Integer lengths >= 1: constant, uniform between two shares of the nominal, or log-normal by mean and p95."""
    if lengths.p95_tokens > lengths.mean_tokens:
        sigma = log_normal_sigma(lengths)
        drawn = rng.lognormal(math.log(lengths.mean_tokens) - sigma**2 / 2, sigma, count)
    elif low_fraction < high_fraction:
        drawn = rng.uniform(low_fraction * lengths.mean_tokens, high_fraction * lengths.mean_tokens, count)
    else:
        drawn = np.full(count, lengths.mean_tokens * high_fraction)
    return np.maximum(np.rint(drawn), 1).astype(np.int64)


def log_normal_sigma(lengths: Lengths) -> float:
    """Sigma of the log-normal with this mean and p95; a p95 above 3.87 means exists for none and gives the widest."""
    ratio = max(lengths.p95_tokens / lengths.mean_tokens, 1.0)
    return Z95 - math.sqrt(max(Z95**2 - 2 * math.log(ratio), 0.0))


def _population(client: Client, concurrency: int, requests: int) -> tuple[int, int, int]:
    """First and last measured request and the number sent: a warm-up before, a tail that keeps the load up after."""
    if client.kind == STEADY:
        return 2 * concurrency, 2 * concurrency + requests, 3 * concurrency + requests
    if client.kind == POISSON:
        return requests // 5, requests // 5 + requests, 2 * requests
    count = {BURST: client.requests_per_user * concurrency, STATIC: concurrency, TRACE: len(client.arrival_s)}
    return 0, count[client.kind], count[client.kind]


def _lengths(
    client: Client, input_tokens: Lengths, output_tokens: Lengths, count: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    if client.kind == TRACE:
        return np.array(client.input_tokens, np.int64), np.array(client.output_tokens, np.int64)
    spread = client.length_low_fraction, client.length_high_fraction, count, rng
    return token_lengths(input_tokens, *spread), token_lengths(output_tokens, *spread)


def _arrivals(client: Client, concurrency: int, fits: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Arrival times of the requests that fit; infinite until a closed loop submits them."""
    if client.kind == TRACE:
        return np.array(client.arrival_s, float)[fits]
    if client.kind == POISSON:
        return np.cumsum(rng.exponential(1 / client.rate_per_s, len(fits)))[fits]
    return np.where(np.arange(fits.sum()) < concurrency, 0.0, np.inf)


def _stagger(prompt: np.ndarray, output: np.ndarray, concurrency: int, rng) -> None:
    """Put the first requests somewhere inside their output, so that a steady load is stationary from the start."""
    done = (rng.permutation(concurrency) / concurrency * output[:concurrency]).astype(np.int64)
    prompt[:concurrency] += done
    output[:concurrency] -= done


def _costs(times: StepTimes, index: int) -> Costs:
    block = int(times.block_tokens[index])
    whole = {"window_tokens", "graph_max_tokens", "block_tokens"}
    special = {
        "grid_tokens": np.ascontiguousarray(times.grid_tokens, float),
        "linear_s": np.ascontiguousarray(times.linear_s[index], float),
        "total_blocks": int(times.kv_capacity_tokens[index]) // block,
    }
    scalars = {
        name: int(min(getattr(times, name)[index], 2**60)) if name in whole else float(getattr(times, name)[index])
        for name in Costs._fields
        if name not in special
    }
    return Costs(**special, **scalars)


def _summary(
    table: Requests,
    rules: Rules,
    costs: Costs,
    totals: np.ndarray,
    marks: np.ndarray,
    state: np.ndarray,
    rejected: int,
    seed: int,
) -> Simulation:
    arrival_s, prompt, output, first_token_s, finish_s = (
        getattr(table, name)[rules.first : rules.last]
        for name in ("arrival_s", "prompt", "output", "first_token_s", "finish_s")
    )
    ttft_s, e2e_s, several = first_token_s - arrival_s, finish_s - arrival_s, output > 1
    window = marks[1] - marks[0]
    rate = window / window[CLOCK_S] if window[CLOCK_S] > 0 else np.zeros(len(totals))
    mean = totals / totals[CLOCK_S] if totals[CLOCK_S] > 0 else np.zeros(len(totals))
    return Simulation(
        ttft_s=ttft_s,
        tpot_s=(e2e_s - ttft_s)[several] / (output[several] - 1),
        e2e_s=e2e_s,
        input_tokens=prompt,
        output_tokens=output,
        output_tokens_per_s=float(rate[OUT_TOKENS]),
        total_tokens_per_s=float(rate[OUT_TOKENS] + rate[IN_TOKENS]),
        requests_per_s=float(rate[FINISHED]),
        steps=int(totals[STEPS]),
        preemptions=int(state[PREEMPTIONS]),
        rejected_requests=rejected,
        running_requests_mean=float(mean[RUNNING_S]),
        kv_used_max_tokens=int(costs.total_blocks - state[FREE_MIN]) * costs.block_tokens,
        busy_fraction=float(mean[BUSY_S]),
        duration_s=float(totals[CLOCK_S]),
        seed=seed,
    )


@njit(cache=True, inline="always")
def _blocks(tokens, block_tokens):
    return (tokens + block_tokens - 1) // block_tokens


@njit(cache=True)
def _linear(costs, tokens):
    """Linear interpolation; above the grid the last slope goes on."""
    grid, values = costs.grid_tokens, costs.linear_s
    if len(grid) == 1:
        return values[0]
    i = min(max(np.searchsorted(grid, tokens, side="right") - 1, 0), len(grid) - 2)
    return values[i] + (tokens - grid[i]) * (values[i + 1] - values[i]) / (grid[i + 1] - grid[i])


@njit(cache=True)
def _window_pairs(start, count, window):
    """Pairs of `count` queries after `start` keys when each sees at most `window` keys, itself included."""
    growing = min(max(window - start, 0), count)
    return growing * start + growing * (growing + 1) // 2 + (count - growing) * window


@njit(cache=True)
def _preempt(table, running, scheduled, state):
    """Throw the newest running request back to the head of the queue; returns the step tokens it had."""
    state[RUNNING] -= 1
    slot = state[RUNNING]
    r = running[slot]
    state[FREE] += table.blocks[r]
    table.blocks[r] = 0
    table.computed[r] = 0
    state[PREEMPTED] += 1
    state[PREEMPTIONS] += 1
    running[len(running) - state[PREEMPTED]] = r  # the preempted grow down from the far end
    return scheduled[slot]


@njit(cache=True)
def _schedule_running(costs, rules, table, running, scheduled, state, budget, decodes, prefills):
    """Give tokens to running requests in order of admission, preempting the newest when KV runs out."""
    slot = 0
    while slot < state[RUNNING]:
        r = running[slot]
        need = table.prompt[r] + table.generated[r] - table.computed[r]
        decoding = need == 1 and table.generated[r] > 0
        if (decodes if decoding else prefills) and budget > 0:
            tokens = min(need, budget)
            beyond = table.computed[r] + tokens - table.blocks[r] * costs.block_tokens
            extra = _blocks(beyond, costs.block_tokens) if beyond > 0 else 0  # dividing every time halves the speed
            while extra > state[FREE] and state[RUNNING] > slot:
                budget += _preempt(table, running, scheduled, state)
            if state[RUNNING] <= slot:
                break
            if extra > 0:
                state[FREE] -= extra
                table.blocks[r] += extra
            scheduled[slot] = tokens
            budget -= tokens
        slot += 1
    return budget


@njit(cache=True)
def _admit(costs, rules, table, running, scheduled, state, budget, seen_s, batch):
    """Move waiting requests to running while tokens, seats and KV last; the preempted come first."""
    started = False
    while state[RUNNING] < rules.max_running_requests and (budget > 0 or batch):
        again = state[PREEMPTED] > 0
        if not again and state[NEXT] >= state[SUBMITTED]:
            break
        r = running[len(running) - state[PREEMPTED]] if again else state[NEXT]
        if not again and table.arrival_s[r] + costs.request_s > seen_s:
            break
        held = table.prompt[r] + (table.output[r] if rules.reserve_full else table.generated[r])
        blocks = _blocks(held, costs.block_tokens)
        need = table.prompt[r] + table.generated[r] - table.cached[r]
        if blocks > state[FREE] or (rules.whole_prompts and started and need > budget):
            break
        if again:
            state[PREEMPTED] -= 1
        else:
            state[NEXT] += 1
        state[FREE] -= blocks
        table.blocks[r] = blocks
        table.computed[r] = table.cached[r]
        tokens = need if rules.whole_prompts else max(min(need, budget), 0)
        running[state[RUNNING]] = r
        scheduled[state[RUNNING]] = tokens
        state[RUNNING] += 1
        budget -= tokens
        started = True
    return budget


@njit(cache=True)
def _fill(costs, rules, table, running, scheduled, state, seen_s):
    """Choose the tokens of one step by the policy; returns how many."""
    scheduled[: state[RUNNING]] = 0
    budget, preemptions = rules.max_batched_tokens, state[PREEMPTIONS]
    args = (costs, rules, table, running, scheduled, state)
    if rules.policy == CHUNKED_CODE:
        budget = _schedule_running(*args, budget, True, True)
        if state[PREEMPTIONS] == preemptions:
            budget = _admit(*args, budget, seen_s, False)
        return rules.max_batched_tokens - budget
    batch = rules.policy == STATIC_CODE
    if not batch or state[RUNNING] == 0:
        if not batch:
            budget = _schedule_running(*args, budget, False, True)
        budget = _admit(*args, budget, seen_s, batch)
    else:
        budget = _schedule_running(*args, budget, False, True)
    if rules.policy == MIXED_CODE or budget == rules.max_batched_tokens:
        budget = _schedule_running(*args, budget, True, False)
    return rules.max_batched_tokens - budget


@njit(cache=True)
def _step_s(costs, table, running, scheduled, state):
    """How long the chosen step lasts."""
    tokens = sequences = decodes = sampled = context = windowed = 0
    pairs = window_pairs = 0.0
    for slot in range(state[RUNNING]):
        q = scheduled[slot]
        if q == 0:
            continue
        r = running[slot]
        start, target = table.computed[r], table.prompt[r] + table.generated[r]
        tokens += q
        sequences += 1
        if start + q == target:
            sampled += 1
        if q == 1 and table.generated[r] > 0:
            decodes += 1
            context += target
            windowed += min(target, costs.window_tokens)
        else:
            pairs += q * start + q * (q + 1) / 2
            window_pairs += _window_pairs(start, q, costs.window_tokens)
    device_s = (
        _linear(costs, tokens)
        + sampled * costs.sample_s_per_sequence
        + decodes * costs.decode_s_per_sequence
        + context * costs.decode_s_per_context_token
        + windowed * costs.window_s_per_context_token
        + pairs * costs.prefill_s_per_pair
        + window_pairs * costs.window_prefill_s_per_pair
    )
    if tokens > costs.graph_max_tokens:
        device_s = max(device_s, costs.eager_floor_s)
    host_s = costs.host_s + sequences * costs.host_s_per_sequence
    return max(device_s, host_s) + costs.serial_s + sequences * costs.serial_s_per_sequence


@njit(cache=True)
def _advance(rules, table, running, scheduled, state, totals):
    """Book the step's tokens at its end; returns how many requests finished, and how many of the measured ones."""
    out_tokens = finished = measured = keep = 0
    clock_s = totals[CLOCK_S]
    for slot in range(state[RUNNING]):
        r = running[slot]
        running[keep] = r
        keep += 1
        if scheduled[slot] == 0:
            continue
        table.computed[r] += scheduled[slot]
        if table.computed[r] < table.prompt[r] + table.generated[r]:
            continue
        table.generated[r] += 1
        out_tokens += 1
        if table.generated[r] == 1:
            table.first_token_s[r] = clock_s
            totals[IN_TOKENS] += table.prompt[r]
        if table.generated[r] == table.output[r]:
            table.finish_s[r] = clock_s
            state[FREE] += table.blocks[r]
            keep -= 1
            finished += 1
            measured += rules.first <= r < rules.last
    state[RUNNING] = keep
    totals[OUT_TOKENS] += out_tokens
    totals[FINISHED] += finished
    return finished, measured


@njit(cache=True)
def _submit(table, state, count, clock_s):
    """Users whose request ended send their next one."""
    end = min(state[SUBMITTED] + count, len(table.arrival_s))
    table.arrival_s[state[SUBMITTED] : end] = clock_s
    state[SUBMITTED] = end


@njit(cache=True)
def _mark(rules, table, totals, marks, opened):
    """Note the totals when the first measured request arrives and when the first after the measured ones does."""
    bound = rules.first if opened == 0 else rules.last
    if opened < 2 and bound < len(table.arrival_s) and totals[CLOCK_S] >= table.arrival_s[bound]:
        marks[opened] = totals
        return opened + 1
    return opened


@njit(cache=True, nogil=True)
def _run(costs, rules, table, concurrency):
    """Step until the measured requests are done; returns the final totals, those of the window's ends and the state."""
    count = len(table.arrival_s)
    running, scheduled = np.zeros(count + 1, np.int64), np.zeros(count + 1, np.int64)
    totals, marks, state = np.zeros(7), np.zeros((2, 7)), np.zeros(7, np.int64)
    state[FREE] = state[FREE_MIN] = costs.total_blocks
    state[SUBMITTED] = min(concurrency, count) if rules.closed else count
    seen_s, opened, left = 0.0, 0, rules.last - rules.first
    while left > 0:
        opened = _mark(rules, table, totals, marks, opened)
        tokens = _fill(costs, rules, table, running, scheduled, state, seen_s)
        if tokens == 0:
            totals[CLOCK_S] = max(totals[CLOCK_S], table.arrival_s[state[NEXT]] + costs.request_s)
            seen_s = totals[CLOCK_S]
            continue
        step_s = _step_s(costs, table, running, scheduled, state)
        seen_s = totals[CLOCK_S] if rules.asynchronous else totals[CLOCK_S] + step_s
        totals[CLOCK_S] += step_s
        totals[BUSY_S] += step_s
        totals[RUNNING_S] += step_s * state[RUNNING]
        totals[STEPS] += 1
        state[FREE_MIN] = min(state[FREE_MIN], state[FREE])
        finished, measured = _advance(rules, table, running, scheduled, state, totals)
        left -= measured
        if rules.closed and finished:
            _submit(table, state, finished, totals[CLOCK_S])
    if opened < 2:
        marks[1] = totals
    return totals, marks, state
