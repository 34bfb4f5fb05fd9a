"""Lanes: a lane is the group of chips behind one scheduler, with its step times and memory.

A pipeline of p stages counts as p lanes (in steady state it runs p micro-batches, each of which takes a full pass), and
so does each attention-DP rank, which schedules its own requests.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from advisor.engine.network import Model, decoder_blocks, passes_of
from advisor.engine.step.adapters import adapters_s, launched_kernels, resident_bytes, swap_s
from advisor.engine.step.drafts.heads import draft_bytes, drafting_choice
from advisor.engine.step.drafts.speculative import Draft, with_draft
from advisor.engine.step.layout import (
    Choice,
    in_tiles,
    layouts,
)
from advisor.engine.step.media.encoder import NO_CACHE_TOKENS, source_s
from advisor.engine.step.media.generation import diffusion_bytes, drawing_workspace_bytes
from advisor.engine.step.media.images import images_workspace_bytes, vision_bytes
from advisor.engine.step.memory import (
    Array,
    Memory,
    activations_bytes,
    kv_bytes_per_sequence,
    source_bytes_per_sequence,
    weights_bytes,
)
from advisor.engine.step.operators import Layouts, attention_cost, linear_s
from advisor.engine.step.step_time import StepTimes
from advisor.engine.terms import Framework

ALL_REDUCES_PER_BLOCK = 2  # after attention and after the feed-forward part
# Buffers of NCCL and of the engine's own all-reduce, per chip of a group. vLLM 0.24.0 on H200s: Llama-3.1-8B took 2 GiB
# beside weights and cache on each of two and four chips, with less workspace than on one, where it took 1.9 GiB.
GROUP_BYTES = 0.45 * 2.0**30
RANKS_MEASURED = 2.0  # the wait for other ranks was measured with two; larger groups get it as a lower bound
GRID_TOKENS: Array = np.power(2.0, np.arange(16))  # 1 .. 32,768 tokens in a step


@dataclass(frozen=True, kw_only=True, slots=True)
class Lane:
    """One layout under one framework, with its scheduler limits."""

    choice: Choice
    framework: Framework
    context_tokens: float  # of a mean request at its end, for the cache size per token
    max_batched_tokens: int
    max_running_requests: int  # per lane
    source_tokens: float = 0.0  # encoder tokens of a mean request (encoder-decoders)
    whole_prompts: bool = False  # bidirectional attention: a prompt is computed in one step
    http: bool = True  # requests go through an HTTP server and a tokenizer
    draft: Draft | None = None  # speculative decoding; step times are then per generated token
    drafted_requests: float = 0.0  # with a draft: those that decode together; 0: max_running_requests
    eager: bool = False  # without CUDA graphs, and not compiled
    held_tokens: float = 0.0  # the cache of one scheduler must hold a request of this length


@dataclass(frozen=True, kw_only=True, slots=True)
class Lanes:
    """N lanes as arrays."""

    layouts: Layouts
    times: StepTimes
    memory: Memory
    source_tokens: Array


def lanes(model: Model, wanted: Sequence[Lane]) -> Lanes:
    """Step times and memory of N lanes of one model; arrays of shape (N,) or (N, tokens)."""
    x = layouts(model, [w.choice for w in wanted])
    return _built(model, x, wanted, memory(model, x, wanted))


def fitting(model: Model, wanted: Sequence[Lane]) -> tuple[Memory, list[Lane], Lanes | None]:
    """(memory of all lanes, the lanes that fit, their arrays or None if none fits)."""
    x = layouts(model, [w.choice for w in wanted])
    room = memory(model, x, wanted)
    rows = np.flatnonzero(room.fits)
    kept = [wanted[i] for i in rows.tolist()]
    return room, kept, _built(model, _rows(x, rows), kept, _rows(room, rows)) if kept else None


Arrays = TypeVar("Arrays", Layouts, Memory)


def _rows(arrays: Arrays, rows: NDArray[np.intp] | slice) -> Arrays:
    return type(arrays)(**{f.name: getattr(arrays, f.name)[rows] for f in fields(arrays)})


def _built(model: Model, x: Layouts, wanted: Sequence[Lane], room: Memory) -> Lanes:
    times = step_times(model, x, wanted, room)
    if any(w.draft for w in wanted):
        times = _with_drafts(times, wanted)
    return Lanes(layouts=x, times=times, memory=room, source_tokens=_sources(wanted))


def _with_drafts(times: StepTimes, wanted: Sequence[Lane]) -> StepTimes:
    """The step times with those of lanes with drafts per generated token, computed for all lanes of a draft at once."""
    groups: dict[tuple[int, float], list[int]] = {}
    for i, w in enumerate(wanted):
        groups.setdefault((id(w.draft), _decoding(w) if w.draft else 0.0), []).append(i)
    parts, order = [], list[int]()
    small, row_of = _draft_model_times(wanted)
    for members in groups.values():
        w, rows = wanted[members[0]], np.array(members)
        part = take(times, rows)
        if w.draft is not None:
            choices = [wanted[i].choice for i in members]
            own = take(small, np.array([row_of[id(c)] for c in choices])) if small and w.draft.model else None
            part = with_draft(part, w.draft, choices, _decoding(w), own)
        parts.append(part)
        order += members
    return take(concatenate(parts), np.argsort(order))


def _decoding(w: Lane) -> float:
    """Sequences that decode together in a lane with a draft; further tokens of a step are prompt tokens."""
    return w.drafted_requests or float(w.max_running_requests)


def _draft_model_times(wanted: Sequence[Lane]) -> tuple[StepTimes | None, dict[int, int]]:
    """(step times of the separate draft model on each distinct choice that runs one, row by id of the choice)."""
    distinct = list({id(w.choice): w for w in wanted if w.draft is not None and w.draft.model is not None}.values())
    model = next((w.draft.model for w in distinct if w.draft), None)
    if model is None:
        return None, {}
    assert all(w.draft and w.draft.model is model for w in distinct)
    plain = [replace(w, draft=None, choice=drafting_choice(w.choice)) for w in distinct]
    return lanes(model, plain).times, {id(w.choice): i for i, w in enumerate(distinct)}


def join_lanes(parts: Sequence[Lanes]) -> Lanes:
    """The lanes of all parts, in this order."""

    def all_of(sections: Sequence[Arrays]) -> Arrays:
        names = [f.name for f in fields(sections[0])]
        arrays = {name: np.concatenate([getattr(section, name) for section in sections]) for name in names}
        return type(sections[0])(**arrays)

    return Lanes(
        layouts=all_of([part.layouts for part in parts]),
        times=concatenate([part.times for part in parts]),
        memory=all_of([part.memory for part in parts]),
        source_tokens=np.concatenate([part.source_tokens for part in parts]),
    )


def some_lanes(built: Lanes, rows: slice) -> Lanes:
    """Some of the lanes, in their order."""
    return Lanes(
        layouts=_rows(built.layouts, rows),
        times=take(built.times, rows),
        memory=_rows(built.memory, rows),
        source_tokens=built.source_tokens[rows],
    )


def _draft_bytes(model: Model, wanted: Sequence[Lane], context: Array) -> tuple[Array, Array]:
    """(weights, cache of one sequence) of the draft models on a chip, bytes, shapes (N,); 0 without one."""
    known: dict[tuple[str, int, float], tuple[float, float]] = {}  # drafts of any length share their head

    def of(w: Lane, tokens: float) -> tuple[float, float]:
        if w.draft is None:
            return 0.0, 0.0
        key = w.draft.method, id(w.choice), tokens
        if key not in known:
            known[key] = draft_bytes(model, w.draft, w.choice, tokens)
        return known[key]

    weights, cache = np.array([of(w, c) for w, c in zip(wanted, context.tolist(), strict=True)]).T
    return weights, cache


def _sources(wanted: Sequence[Lane]) -> Array:
    return np.array([w.source_tokens for w in wanted])


def memory(model: Model, x: Layouts, wanted: Sequence[Lane]) -> Memory:
    """Memory of one chip of each lane; the framework may use its memory fraction of what the driver reports."""
    total = np.array([w.choice.accelerator.memory_bytes for w in wanted])
    fraction = np.array([w.framework.memory_fraction for w in wanted])
    context = np.array([w.context_tokens for w in wanted])
    draft_weights, draft_cache = _draft_bytes(model, wanted, context)
    weights = weights_bytes(model, x) + resident_bytes(model, x) + vision_bytes(model, x) + diffusion_bytes(model, x)
    weights = weights + draft_weights
    workspace = activations_bytes(
        model,
        x,
        np.maximum([float(w.max_batched_tokens) for w in wanted], _sources(wanted)),
        np.array([float(w.max_running_requests) for w in wanted]),
    )
    workspace = workspace + images_workspace_bytes(model, x) + drawing_workspace_bytes(model, x)
    overhead = np.array([w.framework.runtime_bytes for w in wanted])
    overhead = overhead + np.where(x.tp * x.dp * x.pp > 1, GROUP_BYTES, 0.0)
    policy = np.array([w.framework.memory_policy for w in wanted])
    free = total - weights - workspace - overhead
    kv_total = total * fraction - weights - workspace - overhead
    kv_static = np.minimum(total * fraction - weights, free)
    kv_free = np.where(free > 0, free * fraction, free)  # a fraction of missing memory would count as usable
    kv_bytes = np.where(policy == "static", kv_static, np.where(policy == "free", kv_free, kv_total))
    sequence = kv_bytes_per_sequence(model, x, context, _sources(wanted)) + draft_cache
    per_token = np.where(sequence > 0, sequence / context, 1.0)
    capacity = np.where(sequence > 0, np.floor(np.maximum(kv_bytes, 0.0) / per_token / x.pp), NO_CACHE_TOKENS)
    blocks = np.ceil([w.held_tokens / w.framework.block_tokens for w in wanted])
    held = blocks * [w.framework.block_tokens for w in wanted] * per_token * x.pp
    return Memory(
        weights_bytes=weights,
        activations_bytes=workspace,
        overhead_bytes=overhead,
        kv_bytes=kv_bytes,
        kv_capacity_tokens=capacity,
        kv_bytes_per_sequence=sequence,
        least_kv_bytes=np.maximum(sequence, np.where(sequence > 0, held, 0.0)),
        source_bytes_per_sequence=source_bytes_per_sequence(model, x, _sources(wanted)),
        usable_bytes=kv_bytes + weights + workspace + overhead,
    )


def _eager_s(model: Model, w: Lane) -> float:
    """Host seconds to launch every layer without CUDA graphs, and its all-reduces if several chips share it.

    On the host of the measured overheads, like those of _pieces_s.
    """
    o = w.choice.overhead
    experts = sum(b.count for b in model.blocks if b.ffn is not None and b.ffn.experts > 1)
    blocks = sum(b.count for b in decoder_blocks(model))
    alone_s = (blocks - experts) * o.eager_s_per_layer + experts * o.eager_s_per_expert_layer
    alone_s += launched_kernels(model) * o.adapter_launch_s
    launched_s = alone_s + (blocks * ALL_REDUCES_PER_BLOCK * o.collective_host_s if w.choice.tp > 1 else 0.0)
    # a model that is not compiled has more kernels per layer
    return max(launched_s, blocks * o.uncompiled_s_per_layer) if w.eager else launched_s


def _audio_s(model: Model, wanted: Sequence[Lane]) -> Array:
    """Host seconds in which the server process decodes a window of speech and computes its spectrogram, shape (N,).

    One after another, while the encoder runs others: the slower of the two sets the pace.
    """
    return np.array([w.framework.audio_window_s if model.source_s and w.http else 0.0 for w in wanted])


def _pieces_s(model: Model, w: Lane) -> float:
    """Host seconds to launch every layer with piecewise CUDA graphs (all but attention)."""
    return sum(b.count for b in decoder_blocks(model)) * w.choice.overhead.pieces_s_per_layer


def step_times(model: Model, x: Layouts, wanted: Sequence[Lane], room: Memory) -> StepTimes:
    """Step times: device times from the operators, host times from the framework's overhead."""
    cost = attention_cost(model, x, _sources(wanted))
    passes = passes_of(model)
    pcie = np.array([w.choice.accelerator.pcie_bytes_per_s for w in wanted])

    # host times against those of the measured overheads
    slower = np.array([w.choice.correction.time_factor * w.choice.efficiency.host_factor for w in wanted])

    def host(name: str) -> Array:
        each: Array = slower * np.array([getattr(w.choice.overhead, name) for w in wanted])
        return each

    return StepTimes(
        grid_tokens=GRID_TOKENS,
        linear_s=passes * linear_s(model, x, GRID_TOKENS) + adapters_s(model, x, GRID_TOKENS),
        sample_s_per_sequence=cost.sample_s_per_sequence,
        decode_s_per_context_token=cost.decode_s_per_context_token,
        repeat_s_per_context_token=cost.repeat_s_per_context_token,
        cache_tokens=cost.cache_tokens,
        window_s_per_context_token=cost.window_s_per_context_token,
        window_tokens=cost.window_tokens,
        decode_s_per_sequence=cost.decode_s_per_sequence,
        source_s_per_sequence=np.maximum(source_s(model, x, _sources(wanted)), _audio_s(model, wanted))
        + swap_s(model, x, pcie),
        prefill_s_per_pair=passes * cost.prefill_s_per_pair,
        window_prefill_s_per_pair=cost.window_prefill_s_per_pair,
        host_s=passes * host("host_s"),
        host_s_per_sequence=host("host_s_per_sequence"),
        serial_s=passes * host("serial_s"),
        serial_s_per_sequence=host("serial_s_per_sequence"),
        graph_max_tokens=np.array([float(w.framework.graph_max_tokens) * (not w.eager) for w in wanted]),
        eager_floor_s=slower * passes * np.array([_eager_s(model, w) for w in wanted]),
        prompt_floor_s=slower * passes * np.array([_pieces_s(model, w) for w in wanted]),
        tile_tokens=np.array([w.choice.overhead.tile_tokens * in_tiles(w.choice.quantization) for w in wanted]),
        prepare_s=host("prepare_s") + host("parallel_prepare_s") * (x.tp > 1),
        kv_capacity_tokens=room.kv_capacity_tokens,
        block_tokens=np.array([float(w.framework.block_tokens) for w in wanted]),
        request_s=np.array([w.choice.overhead.request_s + w.http * w.choice.overhead.http_s for w in wanted]),
        # the host times of several ranks were fitted to whole runs, slow steps included
        slow_share=np.array([w.choice.overhead.slow_share * (w.choice.tp == 1) for w in wanted]),
        slow_ratio=np.array([w.choice.overhead.slow_ratio for w in wanted]),
        stream_s_per_sequence=np.array([w.http * w.choice.overhead.http_s_per_sequence for w in wanted]),
        ranks=np.where([w.framework.ranks_wait for w in wanted], np.minimum(x.dp, RANKS_MEASURED), 1.0),
    )


# the fields that step_times multiplies by the host factor
HOST_TIMES = (
    "host_s",
    "host_s_per_sequence",
    "serial_s",
    "serial_s_per_sequence",
    "eager_floor_s",
    "prompt_floor_s",
    "prepare_s",
)


def with_host_times(times: StepTimes, ratio: Array | float) -> StepTimes:
    """The step times on a host whose work takes `ratio` times as long; a number, or one for each row."""
    return replace(times, **{name: getattr(times, name) * ratio for name in HOST_TIMES})


def take(times: StepTimes, rows: NDArray[np.intp] | slice) -> StepTimes:
    """The step times of these rows."""
    names = (f.name for f in fields(StepTimes) if f.name != "grid_tokens")
    return StepTimes(grid_tokens=times.grid_tokens, **{name: getattr(times, name)[rows] for name in names})


def concatenate(parts: Sequence[StepTimes]) -> StepTimes:
    """The step times of several groups of lanes, concatenated."""
    names = [f.name for f in fields(StepTimes) if f.name != "grid_tokens"]
    arrays = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    return StepTimes(grid_tokens=parts[0].grid_tokens, **arrays)
