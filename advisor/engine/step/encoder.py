"""Encoders: beside a decoder (T5, Whisper) and alone (embedding models); what differs from serving a decoder.

Beside a decoder the source runs once through the encoder, whose attention looks both ways, and is projected once to
the keys and values of every cross-attention layer. These are kept until the request ends, never grow, and are read by
every decode step. So a request of a scheduler is the decoder's few start tokens; the source is a fixed time when they
are computed (`source_s`), a fixed read in every step, and fixed bytes of cache. Each source is timed alone: a batch of
short ones that share the read of the encoder's weights is faster than this. The two convolutions before Whisper's
encoder (under 1 % of its FLOPs) are left out. Where several requests begin in one step all their sources run in it;
servers that bound the encoder's tokens per step spread them, which shortens the mean wait of an opening burst.

A source of audio is one window: Whisper pads every window of 30 s to 1,500 positions, 50 a second. Input tokens of
such a workload are positions, at most one window a request; longer audio is several requests.

Alone, a request is its prompt: it is computed whole, since every token looks at all, keeps no cache after its step,
and ends with a vector. A decoder asked for vectors (e5-mistral) is the same without its output head.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from advisor.engine.network import Attention, Block, Model, decoder_blocks
from advisor.engine.spec import Case, Lengths, Workload
from advisor.engine.step.operators import (
    Array,
    Layouts,
    Operator,
    block_operators,
    bound_of,
    context_token,
    elementwise,
    gemm,
)
from advisor.engine.step.step_time import NEARLY_ALL, Demand, Load, Scheduler, StepTimes, load_of

NO_CACHE_TOKENS = 1e12  # room of a server whose requests keep nothing: more than ever run at once


def has_decoder_beside(model: Model) -> bool:
    """An encoder-decoder: sources are encoded, tokens are generated."""
    return model.source_tokens > 0


def has_encoder(model: Model) -> bool:
    """Beside a decoder or alone."""
    return has_decoder_beside(model) or whole_prompts(model)


def whole_prompts(model: Model) -> bool:
    """Whether a prompt cannot be cut into chunks: some token looks at those behind it."""
    return any(isinstance(b.mixer, Attention) and not (b.mixer.causal or b.mixer.cross) for b in decoder_blocks(model))


def computed_source_tokens(model: Model, asked_tokens: float) -> float:
    """Tokens that the encoder runs over for a source of this length: audio is padded to its window."""
    if not has_decoder_beside(model):
        return 0.0
    return float(model.source_tokens) if model.source_s else max(asked_tokens, 1.0)


# --- questions --------------------------------------------------------------------------------------------------


def decoding(case: Case, model: Model) -> Case:
    """The case as a scheduler sees it: start tokens for a decoder beside an encoder, one result of an encoder alone."""
    if model.encoder_only:
        return replace(case, osl=1.0)
    if case.source_tokens or not has_decoder_beside(model):
        return case
    return replace(case, source_tokens=case.isl, isl=float(model.start_tokens))


def mean_source_tokens(case: Case, model: Model) -> float:
    """Tokens that the encoder computes for a mean request of this case."""
    client = case.client
    return computed_source_tokens(
        model, case.source_tokens * (client.length_low_fraction + client.length_high_fraction) / 2
    )


def posed(workload: Workload, model: Model) -> tuple[Workload, Model]:
    """Workload and model as the engine computes them; doing it twice changes nothing.

    A source moves from the input to `source_tokens`; a model asked for vectors loses its output head, and its one
    result per request stands as one output token.
    """
    if not workload.kind.generates_tokens:
        one = Lengths(mean_tokens=1.0, p95_tokens=1.0)
        cached = 0.0 if whole_prompts(model) else workload.prefix_cache_hit_fraction
        trace = workload.trace and replace(workload.trace, output_tokens=(1,) * len(workload.trace.arrival_s))
        asked = replace(workload, output_tokens=one, prefix_cache_hit_fraction=cached, trace=trace)
        return asked, replace(model, encoder_only=True)
    if workload.source_tokens is not None or not has_decoder_beside(model):
        return workload, model
    start = Lengths(mean_tokens=float(model.start_tokens), p95_tokens=float(model.start_tokens))
    given = workload.input_tokens
    trace = workload.trace and replace(
        workload.trace, input_tokens=(int(model.start_tokens),) * len(workload.trace.arrival_s)
    )  # the source itself is computed at its mean length
    asked = replace(workload, input_tokens=start, source_tokens=given, prefix_cache_hit_fraction=0.0, trace=trace)
    return asked, model


def unsuited(workload: Workload, model: Model) -> str:
    """Why this kind of question cannot be asked of this kind of model; empty: it can."""
    if model.encoder_only and workload.kind.generates_tokens:
        return "the model makes embeddings and generates no tokens: ask with kind: embedding"
    if has_decoder_beside(model) and not workload.kind.generates_tokens:
        return "an encoder-decoder generates tokens: ask with kind: serving"
    given = workload.source_tokens or workload.input_tokens
    if model.source_s and given.mean_tokens > model.source_tokens:
        return (
            f"a request is one window of {model.source_s:g} s, at most {model.source_tokens:,} input tokens: "
            "count longer audio as several requests"
        )
    if model.encoder_only and given.mean_tokens > model.max_context_tokens:
        return f"the model reads at most {model.max_context_tokens:,} tokens: cut longer texts into several requests"
    prompt = 0.0 if has_decoder_beside(model) else workload.input_tokens.mean_tokens
    asked = prompt + workload.output_tokens.mean_tokens
    if workload.kind.generates_tokens and asked > model.max_context_tokens:
        return (
            f"prompt and answer together are {asked:,.0f} tokens on average, the model's context ends at "
            f"{model.max_context_tokens:,}: ask for shorter ones, or for a model with a longer context"
        )
    return ""


# --- costs ------------------------------------------------------------------------------------------------------


def source_operators(model: Model, x: Layouts, source_tokens: Array) -> Iterator[Operator]:
    """What runs once over a source on one chip: encoder layers, their attention, keys and values of the decoder.

    source_tokens: shape (N,); yields operators of shape (N, 1).
    """
    column, m = x.column(), np.asarray(source_tokens, dtype=float)[:, None]
    if any(block.stage == "encoder" for block in model.blocks):
        yield _named(elementwise(column, "embedding", 1, m * model.hidden * 4.0, 2))
    for block in model.blocks:
        if block.stage == "encoder":
            yield from (_named(op) for op in block_operators(model, block, column, m))
            yield _scores(block, column, m)
        elif isinstance(block.mixer, Attention) and block.mixer.cross:
            yield _keys_and_values(model, block.mixer, block.count, column, m)


def _named(op: Operator) -> Operator:
    return replace(op, name=f"encoder/{op.name.replace('/', '_')}")


def _scores(block: Block, x: Layouts, m: Array) -> Operator:
    """Every token of the source meets every other."""
    assert isinstance(block.mixer, Attention)
    _, pair_s, heads = context_token(block.mixer, x)
    width = block.mixer.key_value_dim
    flops, moved = block.count * 2.0 * heads * width * m * m, block.count * 2.0 * 2.0 * heads * width * m
    time_s = np.maximum(block.count * pair_s * m * m, moved / x.memory_bytes_per_s)
    bound = bound_of(block.count * pair_s * m * m, moved / x.memory_bytes_per_s, 0 * m)
    return Operator(name="encoder/attention_scores", flops=flops, bytes=moved, time_s=time_s, bound=bound)


def _keys_and_values(model: Model, a: Attention, count: int, x: Layouts, m: Array) -> Operator:
    width = np.maximum(a.kv_heads / x.tp, 1.0) * a.key_value_dim
    return gemm(x, "cross_attention/source_kv", count, m, width, float(model.hidden), "quantized")


def source_s(model: Model, x: Layouts, source_tokens: Array) -> Array:
    """Seconds of one source, shape (N,); zero where there is no encoder beside the decoder."""
    total = np.zeros((len(x), 1))
    if has_decoder_beside(model):
        for operator in source_operators(model, x, source_tokens):
            total = total + operator.time_s
    return np.asarray(total[:, 0])


def cross_read(model: Model, x: Layouts, source_tokens: Array) -> tuple[Array, Array, Array]:
    """(seconds, FLOPs, bytes) of one decode step's cross-attention over one source, on one chip; shape (N,)."""
    time_s, flops, moved = (np.zeros(len(x)) for _ in range(3))
    for block in model.blocks:
        if isinstance(block.mixer, Attention) and block.mixer.cross:
            read_s, _, heads = context_token(block.mixer, x)
            width = block.mixer.key_value_dim
            kv_heads = np.maximum(block.mixer.kv_heads / x.tp, 1.0)
            time_s = time_s + block.count * read_s * source_tokens
            flops = flops + block.count * 2.0 * heads * width * source_tokens
            moved = moved + block.count * kv_heads * width * x.kv_bytes * source_tokens
    return time_s, flops, moved


# --- encoders alone, under load ---------------------------------------------------------------------------------


def full_batch(load: Load, scheduler: Scheduler, seats: Array) -> Array:
    """Requests of a full step: as many whole prompts as its tokens and seats hold, at least one."""
    return np.maximum(np.minimum(np.floor(scheduler.max_batched_tokens / load.prompt_tokens), seats), 1.0)


def batch_capacity_requests_per_s(times: StepTimes, seats: Array, demand: Demand, scheduler: Scheduler) -> Array:
    """Requests/s of lanes whose every step is full; seats: (N, C) or (N,)."""
    seats = np.asarray(seats, float)
    load = load_of(times, demand, max(seats.ndim - 1, 0))
    batch = full_batch(load, scheduler, seats)
    return np.asarray(batch / load.step_s(0.0, batch, batch))


def batch_latency_p95_s(
    times: StepTimes, rate_per_s: Array, seats: Array, demand: Demand, scheduler: Scheduler
) -> Array:
    """A planning estimate of requests that come at this rate to each lane (N,) and leave with their step.

    A step takes what came during the one before it, so a request waits for the rest of that step and then for its
    own; near a full batch it waits for others too. Infinite above capacity; percentiles come from the simulation.
    """
    load, rate = load_of(times, demand, 0), np.asarray(rate_per_s, float)
    most = full_batch(load, scheduler, seats)
    batch = np.ones(rate.shape)
    for _ in range(8):  # prompts of a step are those that come during one
        batch = np.clip(rate * load.step_s(0.0, batch, batch), 1.0, most)
    busy = np.minimum(rate * load.step_s(0.0, 1.0, 1.0), 1.0)
    step_s, full_s = load.step_s(0.0, batch, batch, 1 - busy), load.step_s(0.0, most, most)
    used = rate * full_s / most
    near = np.minimum(used, NEARLY_ALL)
    queued_s = full_s * near**4 / (2 * (1 - near))
    latency_s = times.request_s + step_s * (1 + 0.95 * busy) + queued_s
    return np.where(used < 1, latency_s, np.inf)
