"""State of one simulated server, for the compiled loop in loop.py."""

from typing import Any, NamedTuple

import numpy as np

# Indices of `totals`, then of `state`.
CLOCK_S, BUSY_S, RUNNING_S, STEPS, OUT_TOKENS, IN_TOKENS, FINISHED, PROMPT_STEPS, PROMPT_S, VISITED = range(10)
LAUNCH_S = 10  # of the step that was launched last
FREE, RUNNING, NEXT, PREEMPTED, SUBMITTED, PREEMPTIONS, FREE_MIN = range(7)
BY_TURN, TURN, TAKEN, DECODES, CONTEXT, WINDOWED, GROWING, REPEATED, DISTINCT, HELD = range(7, 17)
Totals = tuple[np.ndarray, np.ndarray, np.ndarray]  # (final totals, totals at the ends of the window, state)


class Costs(NamedTuple):
    """StepTimes of one candidate, as scalars."""

    grid_tokens: np.ndarray
    linear_s: np.ndarray
    sample_s_per_sequence: float
    decode_s_per_context_token: float
    repeat_s_per_context_token: float
    cache_tokens: float
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
    prompt_floor_s: float
    tile_tokens: int
    prepare_s: float
    block_tokens: int
    total_blocks: int
    request_s: float
    stream_s_per_sequence: float
    slow_share: float
    slow_ratio: float


class Rules(NamedTuple):
    """Scheduler and client settings, as scalars."""

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
    """One array per field. `computed`: tokens with KV; a token is generated when it reaches prompt + generated."""

    arrival_s: np.ndarray
    prompt: np.ndarray
    output: np.ndarray
    cached: np.ndarray  # prompt tokens that are not computed; whole blocks where there is a prefix
    prefix: np.ndarray  # shared prefix that the prompt begins with; -1: none
    computed: np.ndarray
    generated: np.ndarray
    blocks: np.ndarray
    start_s: np.ndarray  # of the first step that computes it
    first_token_s: np.ndarray
    finish_s: np.ndarray
    think_s: np.ndarray  # closed loops: from the k-th finished request until its user sends the next


class Turns(NamedTuple):
    """Events by turn. In a turn every decoding request gets one token, and only requests with an event are visited.

    Indices are the turn modulo the length, which exceeds any output; for `taking`, modulo the tokens of a block.
    """

    ending: np.ndarray  # first request whose last token is in this turn; -1: none
    also_ending: np.ndarray  # by request: the next one of the same turn
    filling: np.ndarray  # number of requests whose attention window becomes full
    taking: np.ndarray  # number of requests that allocate a block
    joined: np.ndarray  # by request: turn of the last update of `computed` and `generated`; -1: they are current


class Prefixes(NamedTuple):
    """By shared prefix: its tokens in whole blocks, and who uses it. Its blocks are allocated once for all requests."""

    tokens: np.ndarray
    holders: np.ndarray  # running requests
    reads: np.ndarray  # tokens of it that all requests that decode by turns read in a step
    others: np.ndarray  # the same of further requests of the step; 0 between steps


class Server(NamedTuple):
    """Everything that one simulation uses. `running` and `scheduled` are by slot, in order of admission.

    held: requests whose first token the device has computed and the host not yet read.
    """

    costs: Costs
    rules: Rules
    table: Requests
    turns: Turns
    prefixes: Prefixes
    running: np.ndarray
    scheduled: np.ndarray  # tokens of this step
    held: np.ndarray
    state: np.ndarray
    totals: np.ndarray
    marks: np.ndarray


TIMES = tuple(k for k, name in enumerate(Costs._fields) if "_s_per_" in name or name.endswith("_s"))


def checked(costs: Costs) -> Costs:
    """The costs. ValueError if a time is negative or not finite: a compiled loop would write outside its arrays."""
    for k in TIMES:
        value: Any = costs[k]
        low, high = (value.min(), value.max()) if isinstance(value, np.ndarray) else (value, value)
        if not 0 <= low <= high < np.inf:
            raise ValueError("cannot simulate: a step time is negative or not finite; check the model and chip sizes")
    return costs


def server_of(costs: Costs, rules: Rules, table: Requests, totals: int, state: int) -> Server:
    """An empty server; `totals` and `state`: lengths of these arrays."""
    count, places = len(table.arrival_s), int(table.output.max(initial=0)) + 1
    slots, by_request = np.zeros((3, count + 1), np.int64), np.full((2, count), -1)
    turns = Turns(
        ending=np.full(places, -1),
        also_ending=by_request[0],
        filling=np.zeros(places, np.int64),
        taking=np.zeros(costs.block_tokens, np.int64),
        joined=by_request[1],
    )
    prefixes = np.zeros((4, int(table.prefix.max(initial=-1)) + 1), np.int64)
    if prefixes.size:
        some = table.prefix >= 0
        np.maximum.at(prefixes[0], table.prefix[some], table.cached[some])
    marks = np.zeros((2, totals))
    return Server(
        checked(costs),
        rules,
        table,
        turns,
        Prefixes(*prefixes),
        slots[0],
        slots[1],
        slots[2],
        np.zeros(state, np.int64),
        np.zeros(totals),
        marks,
    )
