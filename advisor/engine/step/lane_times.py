"""Seconds of one decode step and of one prefill on a candidate, from its step times."""

import numpy as np

from advisor.engine.step import duration
from advisor.engine.step.lane import Lanes, take
from advisor.engine.step.step_time import Array, causal_pairs


def step_s(built: Lanes, i: int, sequences: float, context_tokens: float) -> float:
    """Seconds of a step that decodes `sequences` requests with this context and has no prompt."""
    t = take(built.times, np.array([i]))
    linear_s = duration.linear_s(duration.whole_tiles(sequences, t.tile_tokens), t.grid_tokens, t.linear_s[0])
    read_tokens = sequences * context_tokens, sequences * np.minimum(context_tokens, t.window_tokens)
    device_s = duration.context_s(t, duration.sequences_s(t, linear_s, sequences, sequences, 0), *read_tokens)
    return lane_step_s(built, i, device_s, sequences, sequences, False)


def prefill_s(built: Lanes, i: int, tokens: float) -> float:
    """Seconds of one step that prefills a whole prompt on an idle server."""
    t = take(built.times, np.array([i]))
    linear_s = duration.linear_s(duration.whole_tiles(tokens, t.tile_tokens), t.grid_tokens, t.linear_s[0])
    pairs = causal_pairs(tokens), causal_pairs(tokens, float(t.window_tokens[0]))
    device_s = duration.pairs_s(t, duration.sequences_s(t, linear_s, 1, 0, 1), *pairs)
    return lane_step_s(built, i, device_s, tokens, 1, True)


def lane_step_s(built: Lanes, i: int, device_s: Array, tokens: float, sequences: float, prompt: bool) -> float:
    """`duration.step_s` of one lane: a decode step on a busy server or, with `prompt`, a prefill on an idle one."""
    times = take(built.times, np.array([i]))
    least_s = duration.launch_s(times, tokens, sequences, prompt)
    return float(duration.step_s(times, device_s, least_s, sequences)[0])


def idle_s(built: Lanes, i: int) -> float:
    """Seconds that a request to an idle server waits in addition to its step."""
    return float(built.times.request_s[i])
