"""Duration of one scheduler step. This is the only implementation: search, simulation, estimates, ledgers, power, fits
and the scorecard all call it.

The functions are arithmetic without branches, so that numpy evaluates them for arrays of candidates and numba compiles
the same source for scalars (scheduler/loop.py). `costs` is anything with the named fields: StepTimes, Load, Costs.
"""

from typing import Any

import numpy as np

Value = Any  # a number or an array that broadcasts with the candidates
Costs = Any


def whole_tiles(tokens: Value, tile_tokens: Value) -> Value:
    """Tokens rounded up to whole tiles, if they fill more than half of one; unchanged if tile_tokens is 0.

    Fewer tokens have kernels with smaller tiles.
    """
    tile = np.maximum(tile_tokens, 1e-9)
    whole = np.ceil(tokens / tile - 1e-6) * tile
    return np.maximum(tokens, (tile_tokens > 0) * (2 * tokens > tile_tokens) * whole)


def grid_index(tokens: Value, grid_tokens: np.ndarray) -> Value:
    """Index of the grid interval that contains `tokens`; the last interval beyond the grid."""
    after = np.searchsorted(grid_tokens, tokens, side="right")
    return np.minimum(np.maximum(after - 1, 0), len(grid_tokens) - 2)


def on_line(tokens: Value, low_tokens: Value, width_tokens: Value, low_s: Value, high_s: Value) -> Value:
    """Seconds, linearly interpolated in a grid interval.

    Beyond the grid, the last interval is extrapolated: time per token is constant and the fixed part counts once.
    """
    return low_s + (tokens - low_tokens) / width_tokens * (high_s - low_s)


def linear_s(tokens: Value, grid_tokens: np.ndarray, values_s: np.ndarray) -> Value:
    """Seconds of the work that depends only on the tokens of a step, interpolated from its values on the grid."""
    i, felt = grid_index(tokens, grid_tokens), np.maximum(tokens, grid_tokens[0])
    return on_line(felt, grid_tokens[i], grid_tokens[i + 1] - grid_tokens[i], values_s[i], values_s[i + 1])


def sequences_s(costs: Costs, other_s: Value, sampled: Value, decodes: Value, sources: Value) -> Value:
    """`other_s` plus sampling, the fixed part of decode attention, and the encoder of an encoder-decoder."""
    return (
        other_s
        + sampled * costs.sample_s_per_sequence
        + decodes * costs.decode_s_per_sequence
        + sources * costs.source_s_per_sequence
    )


def context_s(costs: Costs, other_s: Value, context: Value, windowed: Value) -> Value:
    """`other_s` plus decode attention over `context` tokens (full layers) and `windowed` tokens (windowed layers)."""
    return other_s + context * costs.decode_s_per_context_token + windowed * costs.window_s_per_context_token


def repeats_s(costs: Costs, repeated: Value, distinct: Value) -> Value:
    """Seconds less than `context_s`: `repeated` tokens of full layers are read by several sequences of the step.

    These have `distinct` tokens in common, which come from memory once. A chip's cache holds them, or a part of them.
    """
    held = np.minimum(costs.cache_tokens / np.maximum(distinct, 1.0), 1.0)
    return repeated * held * (costs.decode_s_per_context_token - costs.repeat_s_per_context_token)


def pairs_s(costs: Costs, other_s: Value, pairs: Value, window_pairs: Value) -> Value:
    """`other_s` plus prefill attention over (query, key) pairs of full and of windowed layers."""
    return other_s + pairs * costs.prefill_s_per_pair + window_pairs * costs.window_prefill_s_per_pair


def launch_s(costs: Costs, tokens: Value, sequences: Value, has_prompt: Value) -> Value:
    """Host seconds to prepare and launch a step of `tokens` tokens in `sequences` requests.

    The host launches everything that is not in a CUDA graph. A step with more tokens than graphs are captured for is
    launched layer by layer, with or without a prompt. So a framework without graphs (graph_max_tokens 0) pays this in
    every decode step too: the device cannot finish a layer before it is launched. A step within the graphs that has a
    prompt launches attention between the pieces of piecewise graphs.
    """
    eager_s = (tokens > costs.graph_max_tokens) * costs.eager_floor_s
    pieces_s = np.maximum(eager_s, has_prompt * costs.prompt_floor_s) + has_prompt * costs.prepare_s
    return np.maximum(pieces_s, costs.host_s + sequences * costs.host_s_per_sequence)


def step_s(costs: Costs, device_s: Value, least_s: Value, sequences: Value) -> Value:
    """Seconds of a step with this device time, of which the host launches the last kernel after `least_s`.

    An asynchronous scheduler launches a step while the device is busy with the one before. `least_s` is then `launch_s`
    less the seconds by which the host began before the device was free.
    """
    return np.maximum(device_s, least_s) + costs.serial_s + sequences * costs.serial_s_per_sequence
