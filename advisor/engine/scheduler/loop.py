"""The compiled simulation loop: which requests run in each step, with how many tokens, and how long it takes."""
# mypy: disable-error-code="no-any-return, no-untyped-call"

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit
from numba.core.caching import CompileResultCacheImpl, FunctionCache

from advisor.engine.scheduler import state
from advisor.engine.scheduler.state import (
    BUSY_S,
    BY_TURN,
    CLOCK_S,
    CONTEXT,
    DECODES,
    DISTINCT,
    FINISHED,
    FREE,
    FREE_MIN,
    GROWING,
    HELD,
    IN_TOKENS,
    LAUNCH_S,
    NEXT,
    OUT_TOKENS,
    PREEMPTED,
    PREEMPTIONS,
    PROMPT_S,
    PROMPT_STEPS,
    REPEATED,
    RUNNING,
    RUNNING_S,
    STEPS,
    SUBMITTED,
    TAKEN,
    TURN,
    VISITED,
    WINDOWED,
    Costs,
    Requests,
    Rules,
    Server,
    Totals,
    server_of,
)
from advisor.engine.step import POLICIES, duration

# Formulas and constants of these files are compiled into the functions below, and those of this one into pools_loop.py.
SOURCES = b"".join(Path(str(path)).read_bytes() for path in (duration.__file__, state.__file__, __file__))


class _Files(CompileResultCacheImpl):
    """Numba's files on disk, one set for each state of SOURCES: numba notices only changes of a function's own file."""

    def get_filename_base(self, fullname: str, abiflags: str) -> str:
        return f"{super().get_filename_base(fullname, abiflags)}-{zlib.crc32(SOURCES):08x}"


class _Cache(FunctionCache):
    _impl_class = _Files


def compiled(function: Callable[..., Any]) -> Any:
    """Allocates nothing (_nrt=False): reference counting of arrays would take two thirds of the time.

    Inlined (forceinline), because a call copies the whole server, some 230 words: five sixths of the time that is left.
    """
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": False, "forceinline": True}
    dispatcher: Any = njit(**options)(function)
    dispatcher._cache = _Cache(function)  # like cache=True, in the files above
    return dispatcher


_whole_tiles, _grid_index, _on_line = (
    compiled(f) for f in (duration.whole_tiles, duration.grid_index, duration.on_line)
)
_sequences_s, _context_s, _pairs_s = (compiled(f) for f in (duration.sequences_s, duration.context_s, duration.pairs_s))
_launch_s, _lasting_s, _repeats_s = (compiled(f) for f in (duration.launch_s, duration.step_s, duration.repeats_s))

GOLDEN = (5**0.5 - 1) / 2  # multiples of it fill [0, 1) evenly, in an order without short periods
CLOCK_ERROR = 1e-14  # of the difference of two times, as a fraction of them
CHUNKED_CODE, PREFILL_FIRST_CODE, MIXED_CODE, STATIC_CODE = range(len(POLICIES))


@compiled
def _blocks(tokens: int, block_tokens: int) -> int:
    return (tokens + block_tokens - 1) // block_tokens


@compiled
def _linear_s(costs: Costs, tokens: int) -> float:
    grid, values = costs.grid_tokens, costs.linear_s
    felt = _whole_tiles(tokens, costs.tile_tokens)
    i = _grid_index(felt, grid)
    return _on_line(felt, grid[i], grid[i + 1] - grid[i], values[i], values[i + 1])


@compiled
def _window_pairs(start: int, count: int, window: int) -> int:
    """(query, key) pairs of `count` queries after `start` keys, with at most `window` keys each, itself included."""
    growing = min(max(window - start, 0), count)
    return growing * start + growing * (growing + 1) // 2 + (count - growing) * window


@compiled
def _shared_blocks(s: Server, r: int) -> int:
    """Blocks of the request that are those of its shared prefix."""
    return s.table.cached[r] // s.costs.block_tokens if s.table.prefix[r] >= 0 else 0


@compiled
def _prefix_blocks(s: Server, r: int) -> int:
    """Blocks of the request's shared prefix that are allocated or freed with it: no running request holds them."""
    prefix = s.table.prefix[r]
    if prefix < 0 or s.prefixes.holders[prefix] > 0:
        return 0
    return s.prefixes.tokens[prefix] // s.costs.block_tokens


@compiled
def _release(s: Server, r: int) -> None:
    """Free the blocks of a request that is no longer running."""
    s.state[FREE] += s.table.blocks[r] - _shared_blocks(s, r)
    if s.table.prefix[r] >= 0:
        s.prefixes.holders[s.table.prefix[r]] -= 1
        s.state[FREE] += _prefix_blocks(s, r)


@compiled
def _preempt(s: Server) -> int:
    """Preempt the newest running request to the head of the queue; returns its tokens in this step."""
    table, state = s.table, s.state
    state[RUNNING] -= 1
    slot = state[RUNNING]
    r = s.running[slot]
    _release(s, r)
    table.blocks[r] = table.computed[r] = 0
    state[PREEMPTED] += 1
    state[PREEMPTIONS] += 1
    s.running[len(s.running) - state[PREEMPTED]] = r  # preempted requests are stacked down from the end
    return s.scheduled[slot]


@compiled
def _schedule_running(s: Server, budget: int, decodes: bool, prefills: bool) -> int:
    """Schedule tokens of running requests in order of admission; preempt the newest if KV runs out. Returns the budget
    left."""
    table, state, block_tokens = s.table, s.state, s.costs.block_tokens
    slot = 0
    while slot < state[RUNNING]:
        r = s.running[slot]
        need = table.prompt[r] + table.generated[r] - table.computed[r]
        decoding = need == 1 and table.generated[r] > 0
        if (decodes if decoding else prefills) and budget > 0:
            tokens = min(need, budget)
            beyond = table.computed[r] + tokens - table.blocks[r] * block_tokens
            extra = _blocks(beyond, block_tokens) if beyond > 0 else 0  # a division every time halves the speed
            while extra > state[FREE] and state[RUNNING] > slot:
                budget += _preempt(s)
            if state[RUNNING] <= slot:
                break
            if extra > 0:
                state[FREE] -= extra
                table.blocks[r] += extra
            s.scheduled[slot] = tokens
            budget -= tokens
        slot += 1
    return budget


@compiled
def _awaited_blocks(s: Server, r: int) -> int:
    held = s.table.prompt[r] + (s.table.output[r] if s.rules.reserve_full else s.table.generated[r])
    return _blocks(held, s.costs.block_tokens)


@compiled
def _taken_blocks(s: Server, r: int) -> int:
    """Free blocks that the request takes when it is admitted."""
    return _awaited_blocks(s, r) - _shared_blocks(s, r) + _prefix_blocks(s, r)


@compiled
def _admit(s: Server, budget: int, seen_s: float, batch: bool) -> int:
    """Admit waiting requests, preempted ones first, while tokens, slots and KV last. Returns the budget left."""
    rules, table, state = s.rules, s.table, s.state
    started = False
    while state[RUNNING] < rules.max_running_requests and (budget > 0 or batch):
        again = state[PREEMPTED] > 0
        if not again and state[NEXT] >= state[SUBMITTED]:
            break
        r = s.running[len(s.running) - state[PREEMPTED]] if again else state[NEXT]
        if not again and table.arrival_s[r] + s.costs.request_s > seen_s:
            break
        blocks = _taken_blocks(s, r)
        need = table.prompt[r] + table.generated[r] - table.cached[r]
        if blocks > state[FREE] or (rules.whole_prompts and started and need > budget):
            break
        state[PREEMPTED] -= again
        state[NEXT] += not again
        if not again:
            table.start_s[r] = s.totals[CLOCK_S]
        state[FREE] -= blocks
        table.blocks[r] = _awaited_blocks(s, r)
        if table.prefix[r] >= 0:
            s.prefixes.holders[table.prefix[r]] += 1
        table.computed[r] = table.cached[r]
        tokens = need if rules.whole_prompts else max(min(need, budget), 0)
        s.running[state[RUNNING]] = r
        s.scheduled[state[RUNNING]] = tokens
        state[RUNNING] += 1
        budget -= tokens
        started = True
    return budget


@compiled
def _fill(s: Server, seen_s: float) -> int:
    """Schedule one step by the policy; returns its tokens."""
    policy, state = s.rules.policy, s.state
    s.scheduled[: state[RUNNING]] = 0
    budget, preemptions = s.rules.max_batched_tokens, state[PREEMPTIONS]
    if policy == CHUNKED_CODE:
        budget = _schedule_running(s, budget, True, True)
        if state[PREEMPTIONS] == preemptions:
            budget = _admit(s, budget, seen_s, False)
        return s.rules.max_batched_tokens - budget
    if policy != STATIC_CODE or state[RUNNING] > 0:
        budget = _schedule_running(s, budget, False, True)
    if policy != STATIC_CODE or state[RUNNING] == 0:
        budget = _admit(s, budget, seen_s, policy == STATIC_CODE)
    if policy == MIXED_CODE or budget == s.rules.max_batched_tokens:
        budget = _schedule_running(s, budget, True, False)
    return s.rules.max_batched_tokens - budget


@compiled
def _reads_more(s: Server, prefix: int, before: int, tokens: int) -> tuple[int, int]:
    """(tokens of a prefix read again, tokens read for the first time) if sequences of a step that read `before` tokens
    of it are joined by one that reads `tokens`."""
    once = max(min(s.prefixes.tokens[prefix] - before, tokens), 0)
    return tokens - once, once


@compiled
def _slower(costs: Costs, tokens: int, prompt_steps: float) -> float:
    """Launch time of a step with a prompt over the usual one: slow steps are spread evenly over those with prompts."""
    slow = tokens > costs.graph_max_tokens and (prompt_steps * GOLDEN) % 1.0 < costs.slow_share
    return costs.slow_ratio if slow else 1.0


@compiled
def _step_s(s: Server, seen_s: float) -> float:
    """Seconds of the scheduled step, noted if it has a prompt; the host has been at it since `seen_s`."""
    costs, table, state = s.costs, s.table, s.state
    tokens = sources = context = windowed = repeated = distinct = 0
    pairs = window_pairs = 0.0
    if state[TAKEN]:
        tokens, context, windowed = state[DECODES], state[CONTEXT], state[WINDOWED]
        repeated, distinct = state[REPEATED], state[DISTINCT]
    sequences = decodes = sampled = tokens
    for slot in range(state[DECODES], state[RUNNING]):
        q = s.scheduled[slot]
        if q == 0:
            continue
        r = s.running[slot]
        start, target = table.computed[r], table.prompt[r] + table.generated[r]
        tokens += q
        sequences += 1
        if start + q == target:
            sampled += 1
        if q == 1 and table.generated[r] > 0:
            decodes += 1
            context += target
            windowed += min(target, costs.window_tokens)
            prefix = table.prefix[r]
            if prefix >= 0:
                before = s.prefixes.reads[prefix] * state[TAKEN] + s.prefixes.others[prefix]
                again, once = _reads_more(s, prefix, before, table.cached[r])
                s.prefixes.others[prefix] += table.cached[r]
                repeated += again
                distinct += once
        else:
            sources += start <= table.cached[r]
            pairs += q * start + q * (q + 1) / 2
            window_pairs += _window_pairs(start, q, costs.window_tokens)
    if distinct > 0:
        _forget_others(s)
    device_s = _sequences_s(costs, _linear_s(costs, tokens), sampled, decodes, sources)
    device_s = _context_s(costs, device_s, context, windowed) - _repeats_s(costs, repeated, distinct)
    device_s = _pairs_s(costs, device_s, pairs, window_pairs)
    s.totals[LAUNCH_S] = _launch_s(costs, tokens, sequences, pairs > 0)
    if pairs > 0:
        s.totals[LAUNCH_S] *= _slower(costs, tokens, s.totals[PROMPT_STEPS])
    step_s = _lasting_s(costs, device_s, s.totals[LAUNCH_S] - (s.totals[CLOCK_S] - seen_s), sequences)
    if pairs > 0:
        s.totals[PROMPT_STEPS] += 1
        s.totals[PROMPT_S] += step_s
    return step_s


@compiled
def _stream_s(s: Server) -> float:
    """Seconds from the end of a step until the client has its tokens: the front end sends those of all requests."""
    return s.costs.stream_s_per_sequence * s.state[RUNNING]


@compiled
def _deliver(s: Server, clock_s: float, launched_s: float) -> None:
    """Hand over the tokens of the step that ended at `clock_s`, when the host has launched the next at `launched_s`.

    An asynchronous host reads them after that launch, which may take longer than the device needed for them. In closed
    loops, whoever has the last token sends the next request then.
    """
    table, state = s.table, s.state
    for k in range(state[HELD]):
        r = s.held[k]
        table.first_token_s[r] = max(table.first_token_s[r], launched_s + _stream_s(s))
    state[HELD] = 0
    if s.rules.closed and launched_s > clock_s:
        for r in range(state[NEXT], state[SUBMITTED]):
            if table.arrival_s[r] == clock_s:
                table.arrival_s[r] = launched_s


@compiled
def _forget_others(s: Server) -> None:
    for slot in range(s.state[DECODES], s.state[RUNNING]):
        prefix = s.table.prefix[s.running[slot]]
        if prefix >= 0:
            s.prefixes.others[prefix] = 0


@compiled
def _finish(s: Server, r: int) -> int:
    """Finish a request after its last token; returns 1 for a measured request."""
    s.table.finish_s[r] = s.totals[CLOCK_S] + _stream_s(s)
    _release(s, r)
    s.totals[FINISHED] += 1
    return s.rules.first <= r < s.rules.last


@compiled
def _advance(s: Server) -> int:
    """Account for the step's tokens at its end; returns the number of measured requests that finished."""
    table, state, totals = s.table, s.state, s.totals
    first, measured = state[DECODES], 0
    if state[TAKEN]:
        totals[OUT_TOKENS] += first
        measured = _take_turn(s)
    keep = state[DECODES]
    for slot in range(first, state[RUNNING]):
        r = s.running[slot]
        s.running[keep] = r
        keep += 1
        if s.scheduled[slot] == 0:
            continue
        table.computed[r] += s.scheduled[slot]
        if table.computed[r] < table.prompt[r] + table.generated[r]:
            continue
        table.generated[r] += 1
        totals[OUT_TOKENS] += 1
        if table.generated[r] == 1:
            table.first_token_s[r] = totals[CLOCK_S] + _stream_s(s)
            if table.output[r] > 1:
                s.held[state[HELD]] = r
                state[HELD] += 1
            totals[IN_TOKENS] += table.prompt[r]
        if table.generated[r] == table.output[r]:
            keep -= 1
            measured += _finish(s, r)
        elif state[BY_TURN]:
            _join(s, r)
    state[RUNNING] = keep
    return measured


@compiled
def _submit(s: Server, count: int) -> None:
    """Enter the next requests of `count` users whose requests finished, in order of arrival.

    Arrivals beyond the last simulated request are dropped.
    """
    arrival_s, state = s.table.arrival_s, s.state
    for k in range(int(s.totals[FINISHED]) - count, int(s.totals[FINISHED])):
        at_s = s.totals[CLOCK_S] + s.table.think_s[k]
        place = state[SUBMITTED]
        if place < len(arrival_s):
            state[SUBMITTED] += 1
        elif at_s >= arrival_s[place - 1]:
            continue
        else:
            place -= 1
        while place > state[NEXT] and arrival_s[place - 1] > at_s:
            arrival_s[place] = arrival_s[place - 1]
            place -= 1
        arrival_s[place] = at_s


@compiled
def _mark(s: Server, opened: int) -> int:
    """Save the totals when the first measured request arrives, and when the first one after them does."""
    if s.totals[CLOCK_S] < _mark_s(s, opened):
        return opened
    for k in range(len(s.totals)):
        s.marks[opened, k] = s.totals[k]
    return opened + 1


@compiled
def _mark_s(s: Server, opened: int) -> float:
    bound = s.rules.first if opened == 0 else s.rules.last
    return s.table.arrival_s[bound] if opened < 2 and bound < len(s.table.arrival_s) else np.inf


@compiled
def _awaited_s(s: Server) -> float:
    """Earliest time at which a request can be admitted while all running ones decode; infinite: none until one ends.

    Decoding only allocates blocks, so a request for which too few are free keeps waiting, and so do those behind it.
    """
    state = s.state
    again = state[PREEMPTED] > 0
    none = not again and state[NEXT] >= state[SUBMITTED]
    if none or s.rules.policy == STATIC_CODE or state[RUNNING] >= s.rules.max_running_requests:
        return np.inf
    r = s.running[len(s.running) - state[PREEMPTED]] if again else state[NEXT]
    if _taken_blocks(s, r) > state[FREE]:
        return np.inf
    return -np.inf if again else s.table.arrival_s[r] + s.costs.request_s


# --- turns: decoding requests advance together, without visiting each in every step --------------------------------


@compiled
def _join(s: Server, r: int) -> None:
    """Start decoding the request in the next slot by turns: note the turns in which it ends or allocates a block."""
    table, turns, state, window = s.table, s.turns, s.state, s.costs.window_tokens
    turn, left, target = state[TURN], table.output[r] - table.generated[r], table.prompt[r] + table.generated[r]
    end = (turn + left) % len(turns.ending)
    turns.joined[r] = turn
    turns.also_ending[r] = turns.ending[end]
    turns.ending[end] = r
    state[DECODES] += 1
    state[CONTEXT] += target
    state[WINDOWED] += min(target, window)
    if table.prefix[r] >= 0:
        _read_by_turns(s, r, 1)
    if target < window:
        state[GROWING] += 1
        if window < target + left:
            turns.filling[(turn + window - target) % len(turns.filling)] += 1
    if not s.rules.reserve_full:
        turns.taking[(turn - table.computed[r]) % s.costs.block_tokens] += 1


@compiled
def _read_by_turns(s: Server, r: int, sign: int) -> None:
    """Note that a request with a shared prefix joins (1) or leaves (-1) those that decode by turns."""
    prefix, tokens = s.table.prefix[r], s.table.cached[r]
    before = s.prefixes.reads[prefix] - (tokens if sign < 0 else 0)
    again, once = _reads_more(s, prefix, before, tokens)
    s.state[REPEATED] += sign * again
    s.state[DISTINCT] += sign * once
    s.prefixes.reads[prefix] += sign * tokens


@compiled
def _take_turn(s: Server) -> int:
    """Generate one token for every request that decodes by turns; returns the number of measured ones that finished."""
    table, turns, state, window = s.table, s.turns, s.state, s.costs.window_tokens
    state[TURN] += 1
    place = state[TURN] % len(turns.ending)
    state[CONTEXT] += state[DECODES]
    state[WINDOWED] += state[GROWING]
    state[GROWING] -= turns.filling[place]
    turns.filling[place] = 0
    r, measured = turns.ending[place], 0
    if r < 0:
        return 0
    turns.ending[place] = -1
    while r >= 0:
        target = table.prompt[r] + table.output[r]
        turns.joined[r] = -1
        state[CONTEXT] -= target
        state[WINDOWED] -= min(target, window)
        state[GROWING] -= target <= window
        if table.prefix[r] >= 0:
            _read_by_turns(s, r, -1)
        if not s.rules.reserve_full:
            table.blocks[r] = _blocks(target - 1, s.costs.block_tokens)
            turns.taking[(state[TURN] - target + 1) % s.costs.block_tokens] -= 1
        measured += _finish(s, r)
        r = turns.also_ending[r]
    keep = 0
    for slot in range(state[DECODES]):
        s.running[keep] = s.running[slot]
        keep += turns.joined[s.running[slot]] >= 0
    state[DECODES] = keep
    return measured


@compiled
def _begin_turns(s: Server) -> None:
    """Switch to turns, unless a prefilling request is before a decoding one or a request has a block in reserve."""
    table, state = s.table, s.state
    for slot in range(state[RUNNING]):
        r = s.running[slot]
        if table.generated[r] > 0 and table.prompt[r] + table.generated[r] - table.computed[r] == 1:
            if not s.rules.reserve_full and table.blocks[r] != _blocks(table.computed[r], s.costs.block_tokens):
                return
        elif table.generated[r] > 0 or slot < state[RUNNING] - 1:
            return
    state[BY_TURN] = 1
    for slot in range(state[RUNNING]):
        if table.generated[s.running[slot]] > 0:
            _join(s, s.running[slot])


@compiled
def _end_turns(s: Server) -> None:
    """Leave turns: update the tokens and blocks of each request."""
    table, turns, state = s.table, s.turns, s.state
    for slot in range(state[DECODES]):
        r = s.running[slot]
        gone = state[TURN] - turns.joined[r]
        turns.ending[(turns.joined[r] + table.output[r] - table.generated[r]) % len(turns.ending)] = -1
        turns.joined[r] = -1
        table.generated[r] += gone
        table.computed[r] += gone
        if not s.rules.reserve_full:
            table.blocks[r] = _blocks(table.computed[r], s.costs.block_tokens)
    turns.filling[:] = 0
    turns.taking[:] = 0
    s.prefixes.reads[:] = 0
    state[BY_TURN:HELD] = 0


@compiled
def _fill_by_turns(s: Server, seen_s: float) -> int:
    """`_fill` by turns; leaves turns if tokens or blocks do not suffice for all decoding requests."""
    policy, state, most, decodes = s.rules.policy, s.state, s.rules.max_batched_tokens, s.state[DECODES]
    taking, budget = s.turns.taking[state[TURN] % s.costs.block_tokens], most
    lacking = policy == CHUNKED_CODE and (decodes > budget or taking > state[FREE])
    if lacking or (policy == STATIC_CODE and state[RUNNING] == 0):  # a static batch is admitted as a whole
        _end_turns(s)
        return _fill(s, seen_s)
    if policy == CHUNKED_CODE:
        state[TAKEN] = 1
        state[FREE] -= taking
        budget -= decodes
    if state[RUNNING] > decodes:  # the prompt of the last one
        r = s.running[decodes]
        s.scheduled[decodes] = min(s.table.prompt[r] + s.table.generated[r] - s.table.computed[r], budget)
        budget -= s.scheduled[decodes]
    if policy != STATIC_CODE:
        budget = _admit(s, budget, seen_s, False)
    if policy == MIXED_CODE or (policy != CHUNKED_CODE and budget == most):
        if decodes > budget or taking > state[FREE]:
            _end_turns(s)
            s.scheduled[:decodes] = 0
            return most - _schedule_running(s, budget, True, False)
        state[TAKEN] = 1
        state[FREE] -= taking
        budget -= decodes
    return most - budget


@compiled
def _go_on(s: Server, seen_s: float, mark_s: float) -> float:
    """Run all steps until the next event, which differ only in their context; returns the new `seen_s`.

    Each step is a turn, with a full chunk of the last request's prompt if it is being prefilled. Times are added one by
    one in the order of `_step_s`, so that the clock is identical to the last bit. Contexts only grow: once the device
    takes longer than the host, it does so until the next event, and nothing waits for the host.
    """
    costs, state, turns, totals, decodes = s.costs, s.state, s.turns, s.totals, s.state[DECODES]
    r, q, start, most, sequences = 0, 0, 0, 1 << 60, state[RUNNING]
    if sequences == 0 or sequences > s.rules.max_batched_tokens:
        return seen_s
    if s.rules.closed and state[SUBMITTED] > state[NEXT]:
        if s.table.arrival_s[state[SUBMITTED] - 1] == totals[CLOCK_S]:  # `_deliver` may still move it
            return seen_s
    if sequences > decodes:
        r, q, awaited_s = s.running[decodes], s.rules.max_batched_tokens - decodes, np.inf
        start = s.table.computed[r]
        most = (s.table.prompt[r] - start - 1) // q
        if start <= s.table.cached[r] or (decodes > 0 and s.rules.policy != CHUNKED_CODE):
            return seen_s
    else:
        awaited_s = _awaited_s(s)
    fixed_s = _sequences_s(costs, _linear_s(costs, decodes + q), decodes, decodes, 0)
    usual_s = launch_s = _launch_s(costs, decodes + q, sequences, q > 0)
    context, windowed, growing, free = state[CONTEXT], state[WINDOWED], state[GROWING], state[FREE]
    prompt_s, saved_s = 0.0, _repeats_s(costs, state[REPEATED], state[DISTINCT])
    clock_s, busy_s, running_s, steps, places = totals[CLOCK_S], totals[BUSY_S], totals[RUNNING_S], 0, len(turns.ending)
    after, block = state[TURN] % places, state[TURN] % costs.block_tokens
    while awaited_s > seen_s and clock_s < mark_s and steps < most:
        after = after + 1 if after + 1 < places else 0
        if turns.ending[after] >= 0 or turns.taking[block] > free:
            break
        device_s = _context_s(costs, fixed_s, context, windowed) - saved_s
        if q > 0:
            pairs = q * start + q * (q + 1) / 2
            device_s = _pairs_s(costs, device_s, pairs, _window_pairs(start, q, costs.window_tokens))
            start += q
            launch_s = usual_s * _slower(costs, decodes + q, totals[PROMPT_STEPS] + steps)
        step_s = _lasting_s(costs, device_s, launch_s - (clock_s - seen_s), sequences)
        if s.rules.asynchronous:
            seen_s = max(clock_s, seen_s + launch_s)
            if steps == 0:
                _deliver(s, clock_s, seen_s)
        else:
            seen_s = clock_s + step_s
        clock_s += step_s
        busy_s += step_s
        prompt_s += step_s
        running_s += step_s * sequences
        free -= turns.taking[block]
        block = block + 1 if block + 1 < costs.block_tokens else 0
        context += decodes
        windowed += growing
        growing -= turns.filling[after]
        turns.filling[after] = 0
        steps += 1
        free_s = _lasting_s(costs, device_s, 0.0, sequences) if s.rules.asynchronous else device_s  # for the host
        if q > 0 or free_s <= launch_s + CLOCK_ERROR * (clock_s + 1.0):
            continue
        if s.rules.asynchronous and seen_s + launch_s > clock_s:
            continue
        while awaited_s > seen_s and clock_s < mark_s:  # the same for steps that the host launches in time
            following = after + 1 if after + 1 < places else 0
            if turns.ending[following] >= 0 or turns.taking[block] > free:
                break
            after = following
            step_s = _lasting_s(costs, _context_s(costs, fixed_s, context, windowed) - saved_s, 0.0, sequences)
            seen_s = clock_s if s.rules.asynchronous else clock_s + step_s
            clock_s += step_s
            busy_s += step_s
            running_s += step_s * sequences
            free -= turns.taking[block]
            block = block + 1 if block + 1 < costs.block_tokens else 0
            context += decodes
            windowed += growing
            growing -= turns.filling[after]
            turns.filling[after] = 0
            steps += 1
    totals[CLOCK_S], totals[BUSY_S], totals[RUNNING_S] = clock_s, busy_s, running_s
    totals[STEPS] += steps
    totals[OUT_TOKENS] += steps * decodes
    state[TURN] += steps
    state[CONTEXT], state[WINDOWED], state[GROWING], state[FREE] = context, windowed, growing, free
    state[FREE_MIN] = min(state[FREE_MIN], free)
    if q > 0:
        s.table.computed[r] = start
        totals[PROMPT_STEPS] += steps
        totals[PROMPT_S] += prompt_s
    return seen_s


@compiled
def _run(s: Server, one_by_one: bool) -> int:
    """Run until the measured requests are done; returns how many ends of the measured window were reached."""
    rules, state, totals = s.rules, s.state, s.totals
    seen_s, opened, left = 0.0, 0, rules.last - rules.first
    while left > 0:
        opened = _mark(s, opened)
        if not one_by_one and not state[BY_TURN]:
            _begin_turns(s)
        if state[BY_TURN]:
            seen_s = _go_on(s, seen_s, _mark_s(s, opened))
            opened = _mark(s, opened)
            state[TAKEN] = 0
            tokens = _fill_by_turns(s, seen_s)
        else:
            tokens = _fill(s, seen_s)
        if tokens == 0:
            seen_s = totals[CLOCK_S] = max(totals[CLOCK_S], s.table.arrival_s[state[NEXT]] + s.costs.request_s)
            state[HELD] = 0
            continue
        step_s = _step_s(s, seen_s)
        if rules.asynchronous:
            seen_s = max(totals[CLOCK_S], seen_s + totals[LAUNCH_S])
            _deliver(s, totals[CLOCK_S], seen_s)
        else:
            seen_s = totals[CLOCK_S] + step_s
        state[HELD] = 0
        totals[CLOCK_S] += step_s
        totals[BUSY_S] += step_s
        totals[RUNNING_S] += step_s * state[RUNNING]
        totals[STEPS] += 1
        totals[VISITED] += state[RUNNING] - state[DECODES]
        state[FREE_MIN] = min(state[FREE_MIN], state[FREE])
        finished = totals[FINISHED]
        left -= _advance(s)
        if rules.closed:
            _submit(s, int(totals[FINISHED] - finished))
        if state[BY_TURN] and state[RUNNING] > state[DECODES] and s.table.generated[s.running[state[DECODES]]] > 0:
            _end_turns(s)  # it was preempted earlier: its generated tokens were recomputed as part of its prompt
    return opened


def run_steps(costs: Costs, rules: Rules, table: Requests, concurrency: int, one_by_one: bool = False) -> Totals:
    """Simulate until the measured requests are done; returns (final totals, totals at the window's ends, state).

    `one_by_one` visits every request in every step: slower, with identical results to the last bit.
    """
    s = server_of(costs, rules, table, totals=11, state=17)
    s.state[FREE] = s.state[FREE_MIN] = costs.total_blocks
    s.state[SUBMITTED] = min(concurrency, len(table.arrival_s)) if rules.closed else len(table.arrival_s)
    if _run(s, one_by_one) < 2:
        s.marks[1] = s.totals
    return s.totals, s.marks, s.state
