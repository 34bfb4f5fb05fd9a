"""The operator ledger of one step: time, FLOPs, bytes and the bound of each operator."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from advisor.engine.kernels import Array
from advisor.engine.network import (
    Attention,
    LatentAttention,
    Model,
    Recurrent,
    SoftmaxAttention,
    decoder_blocks,
    passes_of,
    reads,
)
from advisor.engine.step import duration
from advisor.engine.step.adapters import adapter_operators
from advisor.engine.step.lane import Lanes
from advisor.engine.step.lane_times import lane_step_s, prefill_s, step_s
from advisor.engine.step.media.encoder import cross_read, source_operators
from advisor.engine.step.memory import kv_bytes_per_sequence
from advisor.engine.step.operators import (
    AttentionCost,
    Layouts,
    Operator,
    attention_cost,
    linear_operators,
)
from advisor.engine.step.step_time import causal_pairs
from advisor.engine.terms import Workload

ROUNDING_S = 1e-12  # rounding error of sums of seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One operator, summed over all layers, on one chip and for one pipeline pass."""

    phase: str  # prefill | decode
    operator: str
    time_s: float
    flops: float
    bytes: float
    bound: str  # compute | memory | communication | launch | host


def prefill_ledger(model: Model, built: Lanes, index: int, prompt_tokens: float) -> list[Line]:
    """Operators of a step that prefills one whole prompt, slowest first; they add up to its time."""
    return _ledger(model, built, index, "prefill", prompt_tokens, 1.0, prompt_tokens)


def decode_ledger(model: Model, built: Lanes, index: int, sequences: float, context_tokens: float) -> list[Line]:
    """Operators of a step that decodes one token for `sequences` requests with this context, slowest first."""
    return _ledger(model, built, index, "decode", sequences, sequences, context_tokens)


def prompt_tokens(workload: Workload) -> float:
    """Mean prompt tokens that are not in the prefix cache."""
    return max(workload.input_tokens.mean_tokens * (1 - workload.prefix_cache_hit_fraction), 1.0)


def context_tokens(workload: Workload) -> float:
    """Context of a mean request halfway through its output, tokens."""
    return workload.input_tokens.mean_tokens + workload.output_tokens.mean_tokens / 2


def prefill_fraction(workload: Workload, built: Lanes | None, index: int, running: float) -> float:
    """Prefill as a fraction of a request's device time, with `running` requests in each decode step."""
    assert built is not None
    if not workload.kind.generates_tokens:
        return 1.0
    sequences = max(running, 1.0)
    first_s = prefill_s(built, index, prompt_tokens(workload))
    each_s = step_s(built, index, sequences, context_tokens(workload)) / sequences
    return first_s / (first_s + each_s * workload.output_tokens.mean_tokens)


def _ledger(
    model: Model, built: Lanes, index: int, phase: str, tokens: float, sequences: float, context: float
) -> list[Line]:
    x = built.layouts.one(index)
    lines = list(_linear(model, built, index, phase, tokens))
    lines.append(attention_line(model, x, attention_cost(model, x), phase, sequences, context))
    sources = list(source_lines(model, x, phase, sequences, built.source_tokens[index : index + 1]))
    lines += [*sources, adapter_line(built, index, phase, sources)]
    sampled_s = sequences * float(built.times.sample_s_per_sequence[index])
    moved = sampled_s * float(x.memory_bytes_per_s[0])
    lines.append(Line(phase=phase, operator="sampling", time_s=sampled_s, flops=0.0, bytes=moved, bound="memory"))
    device_s = sum(line.time_s for line in lines)
    waited_s = lane_step_s(built, index, np.array([device_s]), tokens, sequences, phase == "prefill") - device_s
    lines.append(Line(phase=phase, operator="host", time_s=waited_s, flops=0.0, bytes=0.0, bound="host"))
    return sorted((line for line in lines if line.time_s > 0), key=lambda line: -line.time_s)


def adapter_line(built: Lanes, index: int, phase: str, sources: Iterable[Line]) -> Line:
    """Mean time to copy a request's adapter from host memory, once per prompt."""
    fetched_s = float(built.times.source_s_per_sequence[index]) - sum(line.time_s for line in sources)
    fetched_s = fetched_s if phase == "prefill" and fetched_s > ROUNDING_S else 0.0
    return Line(phase=phase, operator="adapters/fetch", time_s=fetched_s, flops=0.0, bytes=0.0, bound="communication")


def source_lines(model: Model, x: Layouts, phase: str, sequences: float, source_tokens: Array) -> Iterator[Line]:
    """Lines of images and of an encoder-decoder: the encoder in a prefill step, cross-attention in a decode step."""
    once = model.pictures is not None or model.drawing is not None
    if not source_tokens[0] and (not once or phase == "decode"):
        return
    if phase == "prefill":
        yield from _summed(phase, source_operators(model, x, source_tokens))
        return
    time_s, flops, moved = (sequences * float(value[0]) for value in cross_read(model, x, source_tokens))
    compute_bound = flops / float(x.attention_flops_per_s[0]) > moved / float(x.memory_bytes_per_s[0])
    bound = "compute" if compute_bound else "memory"
    yield Line(phase=phase, operator="cross_attention/kv_read", time_s=time_s, flops=flops, bytes=moved, bound=bound)


def _linear(model: Model, built: Lanes, index: int, phase: str, tokens: float) -> Iterator[Line]:
    return _summed(phase, linear_operators_at(model, built, index, np.array([tokens])))


def linear_operators_at(model: Model, built: Lanes, index: int, tokens: Array) -> Iterator[Operator]:
    """Operators whose cost depends on the tokens of a step; tokens: shape (K,), yields operators of shape (K,).

    Times are interpolated on the grid like those of whole steps, so that they add up; FLOPs and bytes are exact.
    """
    x, grid, passes = built.layouts.one(index), built.times.grid_tokens, passes_of(model)
    padded = np.maximum(duration.whole_tiles(tokens, built.times.tile_tokens[index]), grid[0])
    i = duration.grid_index(padded, grid)
    low, high, count = grid[i], grid[i + 1], len(tokens)
    points = np.concatenate([padded, low, high])
    for op in chain(linear_operators(model, x, points), adapter_operators(model, x, points)):
        time_s, flops, moved = (np.broadcast_to(v, (1, len(points)))[0] for v in (op.time_s, op.flops, op.bytes))
        line_s = duration.on_line(padded, low, high - low, time_s[count : 2 * count], time_s[2 * count :])
        yield replace(op, time_s=passes * line_s, flops=passes * flops[:count], bytes=passes * moved[:count])


def _summed(phase: str, operators: Iterable[Operator]) -> Iterator[Line]:
    """One line per operator name, summed over all blocks, with the bound of the slowest."""
    by_name: dict[str, list[tuple[float, float, float, str]]] = {}
    for op in operators:
        time_s, flops, moved = (float(np.ravel(v)[0]) for v in (op.time_s, op.flops, op.bytes))
        by_name.setdefault(op.name, []).append((time_s, flops, moved, op.bound))
    for name, parts in by_name.items():
        time_s, flops, moved = (sum(float(part[k]) for part in parts) for k in range(3))
        yield Line(
            phase=phase,
            operator=name,
            time_s=time_s,
            flops=flops,
            bytes=moved,
            bound=max(parts, key=lambda part: part[0])[3],
        )


def attention_line(model: Model, x: Layouts, cost: AttentionCost, phase: str, sequences: float, context: float) -> Line:
    """Attention scores and values: decode queries over their context, or prompt queries over the prompt."""
    window = float(cost.window_tokens[0])
    if phase == "decode":
        seconds = context * cost.decode_s_per_context_token + min(context, window) * cost.window_s_per_context_token
        time_s, name = sequences * float((seconds + cost.decode_s_per_sequence)[0]), "attention/kv_read"
    else:
        seconds = causal_pairs(context, None) * cost.prefill_s_per_pair
        time_s = float((seconds + causal_pairs(context, window) * cost.window_prefill_s_per_pair)[0])
        name = "attention/scores"
    time_s = passes_of(model) * time_s
    flops = passes_of(model) * sequences * _attention_flops(model, float(x.tp[0]), phase, context)
    moved = sequences * float((kv_bytes_per_sequence(model, x, context) * x.pp)[0])
    if phase == "prefill":
        moved += passes_of(model) * _uncached_bytes(model, float(x.tp[0]), context)
    compute_bound = flops / float(x.attention_flops_per_s[0]) > moved / float(x.memory_bytes_per_s[0])
    bound = "compute" if compute_bound else "memory"
    return Line(phase=phase, operator=name, time_s=time_s, flops=flops, bytes=moved, bound=bound)


def _uncached_bytes(model: Model, tp: float, tokens: float) -> float:
    """Bytes of keys and values (16 bits) of bidirectional attention, read once and not cached, on one chip."""
    return sum(
        block.count * 2.0 * tokens * mixer.kv_heads / tp * mixer.key_value_dim
        for block in decoder_blocks(model)
        if isinstance(mixer := block.mixer, Attention) and not mixer.causal and not mixer.cross
    )


def _attention_flops(model: Model, tp: float, phase: str, context: float) -> float:
    """FLOPs of scores and values of one sequence on one chip; latent attention decodes in its absorbed form."""
    total = 0.0
    for block in decoder_blocks(model):
        mixer = block.mixer
        if mixer is None or isinstance(mixer, Recurrent) or isinstance(mixer, Attention) and mixer.cross:
            continue
        for read in reads(mixer):
            limit = read.limit or context
            pairs = causal_pairs(context, read.limit) if phase == "prefill" else min(context, limit)
            if phase == "prefill" and isinstance(mixer, Attention) and not mixer.causal:
                pairs = context**2
            width = _width(mixer, phase) / read.every
            total += block.count * 2.0 * mixer.heads / tp * width * pairs / model.sequences
    return total


def _width(mixer: SoftmaxAttention, phase: str) -> int:
    """Elements multiplied for one query head and one key: scores and values."""
    match mixer:
        case Attention():
            return mixer.key_value_dim
        case LatentAttention():
            return _latent_width(mixer, phase)
        case _:
            return 2 * mixer.head_dim


def _latent_width(mixer: LatentAttention, phase: str) -> int:
    expanded = mixer.nope_dim + mixer.rope_dim + mixer.v_dim
    return expanded if phase == "prefill" else 2 * mixer.kv_rank + mixer.rope_dim
