"""The scheduler's loop over steps, compiled: who runs, with how many tokens, for how long."""
# mypy: disable-error-code="no-any-return"

from typing import NamedTuple

import numpy as np
from numba import njit

from .steptime import POLICIES

CHUNKED_CODE, PREFILL_FIRST_CODE, MIXED_CODE, STATIC_CODE = range(len(POLICIES))
FREE, RUNNING, NEXT, PREEMPTED, SUBMITTED, PREEMPTIONS, FREE_MIN = range(7)  # places in `state`
Totals = tuple[np.ndarray, np.ndarray, np.ndarray]  # at the end, at the ends of the window, and the state
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
    source_s_per_sequence: float
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


@njit(cache=True, inline="always")
def _blocks(tokens: int, block_tokens: int) -> int:
    return (tokens + block_tokens - 1) // block_tokens


@njit(cache=True, inline="always")
def _linear(costs: Costs, tokens: int) -> float:
    """Linear interpolation; above the grid the last slope goes on."""
    grid, values = costs.grid_tokens, costs.linear_s
    if len(grid) == 1:
        return values[0]
    i: int = min(max(np.searchsorted(grid, tokens, side="right") - 1, 0), len(grid) - 2)  # type: ignore[assignment]
    return values[i] + (tokens - grid[i]) * (values[i + 1] - values[i]) / (grid[i + 1] - grid[i])


@njit(cache=True)
def _window_pairs(start: int, count: int, window: int) -> int:
    """Pairs of `count` queries after `start` keys when each sees at most `window` keys, itself included."""
    growing = min(max(window - start, 0), count)
    return growing * start + growing * (growing + 1) // 2 + (count - growing) * window


@njit(cache=True)
def _preempt(table: Requests, running: np.ndarray, scheduled: np.ndarray, state: np.ndarray) -> int:
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
def _schedule_running(
    costs: Costs,
    rules: Rules,
    table: Requests,
    running: np.ndarray,
    scheduled: np.ndarray,
    state: np.ndarray,
    budget: int,
    decodes: bool,
    prefills: bool,
) -> int:
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
def _admit(
    costs: Costs,
    rules: Rules,
    table: Requests,
    running: np.ndarray,
    scheduled: np.ndarray,
    state: np.ndarray,
    budget: int,
    seen_s: float,
    batch: bool,
) -> int:
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
def _fill(
    costs: Costs,
    rules: Rules,
    table: Requests,
    running: np.ndarray,
    scheduled: np.ndarray,
    state: np.ndarray,
    seen_s: float,
) -> int:
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


@njit(cache=True, inline="always")
def _step_s(costs: Costs, table: Requests, running: np.ndarray, scheduled: np.ndarray, state: np.ndarray) -> float:
    """How long the chosen step lasts."""
    tokens = sequences = decodes = sampled = sources = context = windowed = 0
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
            sources += start <= table.cached[r]
            pairs += q * start + q * (q + 1) / 2
            window_pairs += _window_pairs(start, q, costs.window_tokens)
    device_s = (
        _linear(costs, tokens)
        + sampled * costs.sample_s_per_sequence
        + decodes * costs.decode_s_per_sequence
        + sources * costs.source_s_per_sequence
        + context * costs.decode_s_per_context_token
        + windowed * costs.window_s_per_context_token
        + pairs * costs.prefill_s_per_pair
        + window_pairs * costs.window_prefill_s_per_pair
    )
    if tokens > costs.graph_max_tokens:
        device_s = max(device_s, costs.eager_floor_s)
    host_s = costs.host_s + sequences * costs.host_s_per_sequence
    return max(device_s, host_s) + costs.serial_s + sequences * costs.serial_s_per_sequence


@njit(cache=True, inline="always")
def _advance(
    rules: Rules, table: Requests, running: np.ndarray, scheduled: np.ndarray, state: np.ndarray, totals: np.ndarray
) -> tuple[int, int]:
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
def _submit(table: Requests, state: np.ndarray, count: int, clock_s: float) -> None:
    """Users whose request ended send their next one."""
    end = min(state[SUBMITTED] + count, len(table.arrival_s))
    table.arrival_s[state[SUBMITTED] : end] = clock_s
    state[SUBMITTED] = end


@njit(cache=True, inline="always")
def _mark(rules: Rules, table: Requests, totals: np.ndarray, marks: np.ndarray, opened: int) -> int:
    """Note the totals when the first measured request arrives and when the first after the measured ones does."""
    bound = rules.first if opened == 0 else rules.last
    if opened < 2 and bound < len(table.arrival_s) and totals[CLOCK_S] >= table.arrival_s[bound]:
        marks[opened] = totals
        return opened + 1
    return opened


@njit(cache=True, inline="always")
def _awaited_s(costs: Costs, rules: Rules, table: Requests, running: np.ndarray, state: np.ndarray) -> float:
    """When a waiting request may next be admitted while all that run decode; infinite: not before one of them ends.

    Decoding only takes blocks: a request that they are too few for stays out, and so do those behind it.
    """
    again = state[PREEMPTED] > 0
    none = not again and state[NEXT] >= state[SUBMITTED]
    if none or rules.policy == STATIC_CODE or state[RUNNING] >= rules.max_running_requests:
        return np.inf
    r = running[len(running) - state[PREEMPTED]] if again else state[NEXT]
    held = table.prompt[r] + (table.output[r] if rules.reserve_full else table.generated[r])
    if _blocks(held, costs.block_tokens) > state[FREE]:
        return np.inf
    return -np.inf if again else table.arrival_s[r] + costs.request_s


@njit(cache=True, inline="always")
def _equal_steps(costs: Costs, rules: Rules, table: Requests, running: np.ndarray, state: np.ndarray) -> int:
    """Steps in which every running request decodes, none ends, none reaches a window and none lacks a block."""
    steps = 1 << 60
    for slot in range(state[RUNNING]):
        r = running[slot]
        target = table.prompt[r] + table.generated[r]
        if target - table.computed[r] != 1 or table.generated[r] == 0:
            return 0
        steps = min(steps, table.output[r] - table.generated[r] - 1)
        if target < costs.window_tokens:
            steps = min(steps, costs.window_tokens - target)
    while steps > 0:
        extra = 0
        for slot in range(state[RUNNING]):
            r = running[slot]
            beyond = table.computed[r] + steps - table.blocks[r] * costs.block_tokens
            extra += _blocks(beyond, costs.block_tokens) if beyond > 0 else 0
        if extra <= state[FREE]:
            break
        steps //= 2
    return steps


@njit(cache=True, inline="always")
def _book_equal(costs: Costs, table: Requests, running: np.ndarray, state: np.ndarray, steps: int) -> None:
    """So many tokens for every running request."""
    for slot in range(state[RUNNING]):
        r = running[slot]
        table.computed[r] += steps
        table.generated[r] += steps
        beyond = table.computed[r] - table.blocks[r] * costs.block_tokens
        extra = _blocks(beyond, costs.block_tokens) if beyond > 0 else 0
        table.blocks[r] += extra
        state[FREE] -= extra
    state[FREE_MIN] = min(state[FREE_MIN], state[FREE])


@njit(cache=True, inline="always")
def _decode_on(
    costs: Costs,
    rules: Rules,
    table: Requests,
    running: np.ndarray,
    state: np.ndarray,
    totals: np.ndarray,
    seen_s: float,
    mark_s: float,
) -> float:
    """Take the steps that differ only in their context at once, up to the next event; returns what is seen then.

    Their times are added one by one in the order of `_step_s`, so that the clock is the same to the last bit.
    """
    sequences = state[RUNNING]
    awaited_s = _awaited_s(costs, rules, table, running, state)
    if sequences == 0 or sequences > rules.max_batched_tokens or awaited_s <= seen_s:
        return seen_s
    most = _equal_steps(costs, rules, table, running, state)
    if most <= 0:
        return seen_s
    context = windowed = growing = 0
    for slot in range(sequences):
        r = running[slot]
        target = table.prompt[r] + table.generated[r]
        context += target
        windowed += min(target, costs.window_tokens)
        growing += target < costs.window_tokens
    fixed_s = (
        _linear(costs, sequences) + sequences * costs.sample_s_per_sequence + sequences * costs.decode_s_per_sequence
    )
    least_s = costs.host_s + sequences * costs.host_s_per_sequence
    if sequences > costs.graph_max_tokens:
        least_s = max(least_s, costs.eager_floor_s)
    serial_per_sequence_s = sequences * costs.serial_s_per_sequence
    clock_s, busy_s, running_s, steps = totals[CLOCK_S], totals[BUSY_S], totals[RUNNING_S], 0
    while steps < most and awaited_s > seen_s and clock_s < mark_s:
        device_s = fixed_s + context * costs.decode_s_per_context_token + windowed * costs.window_s_per_context_token
        step_s = max(device_s, least_s) + costs.serial_s + serial_per_sequence_s
        seen_s = clock_s if rules.asynchronous else clock_s + step_s
        clock_s += step_s
        busy_s += step_s
        running_s += step_s * sequences
        context += sequences
        windowed += growing
        steps += 1
    totals[CLOCK_S], totals[BUSY_S], totals[RUNNING_S] = clock_s, busy_s, running_s
    totals[STEPS] += steps
    totals[OUT_TOKENS] += steps * sequences
    _book_equal(costs, table, running, state, steps)
    return seen_s


@njit(cache=True, nogil=True)
def run_steps(
    costs: Costs, rules: Rules, table: Requests, concurrency: int, one_by_one: bool = False
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Step until the measured requests are done; returns the final totals, those of the window's ends and the state.

    `one_by_one` skips nothing: slower, the same to the last bit.
    """
    count = len(table.arrival_s)
    running, scheduled = np.zeros(count + 1, np.int64), np.zeros(count + 1, np.int64)
    totals, marks, state = np.zeros(7), np.zeros((2, 7)), np.zeros(7, np.int64)
    state[FREE] = state[FREE_MIN] = costs.total_blocks
    state[SUBMITTED] = min(concurrency, count) if rules.closed else count
    seen_s, opened, left = 0.0, 0, rules.last - rules.first
    while left > 0:
        opened = _mark(rules, table, totals, marks, opened)
        if not one_by_one:
            bound = rules.first if opened == 0 else rules.last
            mark_s = table.arrival_s[bound] if opened < 2 and bound < count else np.inf
            seen_s = _decode_on(costs, rules, table, running, state, totals, seen_s, mark_s)
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
