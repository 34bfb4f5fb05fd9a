"""What one simulated server works on, for the compiled loop in loop.py."""

import zlib
from typing import NamedTuple

import numpy as np

# Places in `totals`, and then in `state`.
CLOCK_S, BUSY_S, RUNNING_S, STEPS, OUT_TOKENS, IN_TOKENS, FINISHED = range(7)
FREE, RUNNING, NEXT, PREEMPTED, SUBMITTED, PREEMPTIONS, FREE_MIN = range(7)
BY_TURN, TURN, TAKEN, DECODES, CONTEXT, WINDOWED, GROWING = range(7, 14)
Totals = tuple[np.ndarray, np.ndarray, np.ndarray]  # at the end, at the ends of the window, and the state


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
    prompt_floor_s: float
    tile_tokens: int
    prepare_s: float
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


class Turns(NamedTuple):
    """What happens in which turn: in a turn every decoding request gets one token, and only these are looked at.

    Places are of the turn modulo the length, which is longer than any output; of `taking` modulo a block's tokens.
    """

    ending: np.ndarray  # the first of the requests whose last token it is; -1: none
    also_ending: np.ndarray  # by request: the next of them
    filling: np.ndarray  # how many fill their attention window
    taking: np.ndarray  # how many take a block
    joined: np.ndarray  # by request: the turn at which `computed` and `generated` were noted; -1: they are as noted


class Server(NamedTuple):
    """All that one simulation works on. `running` and `scheduled` are by slot, in order of admission."""

    costs: Costs
    rules: Rules
    table: Requests
    turns: Turns
    running: np.ndarray
    scheduled: np.ndarray  # tokens of this step
    state: np.ndarray
    totals: np.ndarray
    marks: np.ndarray


def timed(costs: Costs) -> list[np.ndarray | float]:
    """Every figure of the costs that is a time."""
    return [value for name, value in costs._asdict().items() if "_s_per_" in name or name.endswith("_s")]


KINDS = (Costs, Rules, Requests, Turns, Server)
NAMES = [f"{kind.__name__}.{name}: {t.__name__}" for kind in KINDS for name, t in kind.__annotations__.items()]
FIELDS = zlib.crc32(" ".join(NAMES).encode())


def server_of(costs: Costs, rules: Rules, table: Requests, totals: int, state: int) -> Server:
    """An empty server; `totals` and `state` say how many places there are of each.

    ValueError where a step's time is no number or below zero: the compiled loop would write beside its arrays.
    """
    if not all(np.all(np.isfinite(value) & (np.asarray(value) >= 0)) for value in timed(costs)):
        raise ValueError("a step of the simulated server has no time: a size of the model or the chip is impossible")
    count, places = len(table.arrival_s), int(table.output.max(initial=0)) + 1
    slots, by_request = np.zeros((2, count + 1), np.int64), np.full((2, count), -1)
    turns = Turns(
        ending=np.full(places, -1),
        also_ending=by_request[0],
        filling=np.zeros(places, np.int64),
        taking=np.zeros(costs.block_tokens, np.int64),
        joined=by_request[1],
    )
    marks = np.zeros((2, totals))
    return Server(costs, rules, table, turns, slots[0], slots[1], np.zeros(state, np.int64), np.zeros(totals), marks)
