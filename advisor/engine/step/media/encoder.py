"""Encoder-decoders (T5, Whisper) and embedding models: what differs from serving a decoder.

Encoder-decoders: the encoder processes the source once with bidirectional attention, and its output is projected once
to the keys and values of every cross-attention layer. These stay until the request ends, never grow, and are read by
every decode step. So the scheduler sees a request of only the decoder's start tokens; the source adds a fixed time to
its prefill (`source_s`), a fixed read to every step, and fixed bytes of cache. Each source is timed alone: a batch of
short sources, which share the read of the encoder's weights, is faster. The two convolutions before Whisper's encoder
(under 1 % of its FLOPs) are ignored. All requests that start in one step run their sources in it; servers that limit
the encoder's tokens per step spread them, which shortens the mean wait of an initial burst.

An audio source is one window: Whisper pads each 30 s window to 1,500 positions, 50 per second. Input tokens of such a
workload are positions, at most one window per request; longer audio is several requests.

Rerankers: a request is a query with many documents, each pair a sequence of its own. All pairs are computed as one
prompt whose attention stays within pairs.

Embedding models: a request is its prompt. It is computed in one step because attention is bidirectional, keeps no
cache, and returns a vector. A decoder that makes embeddings (e5-mistral) is the same without its output head.
"""

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from advisor.engine.kernels import Array
from advisor.engine.network import Attention, Model, decoder_blocks, mixer_matrices, pictures_of
from advisor.engine.step.media.generation import drawing_operators, drawn
from advisor.engine.step.media.images import bidirectional_scores, image_operators
from advisor.engine.step.operators import (
    Layouts,
    Operator,
    block_operators,
    context_token,
    elementwise,
    matrix_gemm,
)
from advisor.engine.step.step_time import NEARLY_ALL, Demand, Load, Scheduler, StepTimes, load_of
from advisor.engine.terms import Z95, Case, Lengths, Workload, log_normal_sigma, over_turns

NO_CACHE_TOKENS = 1e12  # capacity of a server whose requests have no cache: practically unlimited


def has_decoder_beside(model: Model) -> bool:
    """Whether the model is an encoder-decoder."""
    return model.source_tokens > 0


def has_encoder(model: Model) -> bool:
    """Whether the model is an encoder-decoder or an encoder."""
    return has_decoder_beside(model) or whole_prompts(model)


def whole_prompts(model: Model) -> bool:
    """Whether prompts cannot be chunked, because attention is bidirectional."""
    return any(isinstance(b.mixer, Attention) and not (b.mixer.causal or b.mixer.cross) for b in decoder_blocks(model))


def computed_source_tokens(model: Model, source_tokens: float) -> float:
    """Tokens that the encoder computes for a source of this length: audio is padded to its window."""
    if not has_decoder_beside(model):
        return 0.0
    return float(model.source_tokens) if model.source_s else max(source_tokens, 1.0)


# --- workloads and cases ----------------------------------------------------------------------------------------


def as_scheduled(case: Case, model: Model) -> Case:
    """The case as the scheduler sees it: start tokens as input of an encoder-decoder, one output of an encoder."""
    if model.encoder_only:
        return replace(case, osl=1.0)
    if case.source_tokens or not has_decoder_beside(model):
        return case
    return replace(case, source_tokens=case.isl, isl=float(model.start_tokens))


def mean_source_tokens(case: Case, model: Model) -> float:
    """Mean encoder tokens per request of this case."""
    client = case.client
    return computed_source_tokens(
        model, case.source_tokens * (client.length_low_fraction + client.length_high_fraction) / 2
    )


def normalize(workload: Workload, model: Model) -> tuple[Workload, Model]:
    """Workload and model in the form that the engine computes with; idempotent.

    For an encoder-decoder, the input moves to `source_tokens`. For embeddings, the model loses its output head and
    every request has one output token. Lengths are limited by the model's context.
    """
    workload, model = _normalized(workload, model)
    if workload.kind.makes in ("images", "scores"):  # their input is no text of one sequence
        return workload, model
    one_vector = 0 if workload.kind.generates_tokens else 1
    return replace(workload, context_tokens=float(model.longest_context_tokens + one_vector)), model


def _normalized(workload: Workload, model: Model) -> tuple[Workload, Model]:
    if workload.images is not None:
        workload, model = _with_pictures(workload, model)
    if workload.drawing is not None and model.diffusion is not None and model.drawing is None:
        wanted = workload.drawing
        model = drawn(model, wanted.width_px, wanted.height_px, wanted.steps, wanted.per_request)
        assert model.drawing is not None
        tokens = model.drawing.tokens * wanted.per_request
        workload = replace(workload, input_tokens=Lengths(mean_tokens=tokens, p95_tokens=tokens))
    if not workload.kind.generates_tokens:
        if workload.pair_tokens is None and workload.documents > 1:
            workload, model = _with_pairs(workload, model)
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
    asked = replace(
        workload,
        input_tokens=start,
        source_tokens=given,
        prefix_cache_hit_fraction=0.0,
        prefix_classes=(),
        trace=trace,
    )
    return asked, model


def _with_pairs(workload: Workload, model: Model) -> tuple[Workload, Model]:
    """A reranking request as one prompt with the tokens of all its pairs, which do not attend to each other."""
    pair, count = workload.input_tokens, workload.documents
    cv2 = math.expm1(log_normal_sigma(pair) ** 2)
    total, sigma = pair.mean_tokens * count, math.sqrt(math.log1p(cv2 / count))
    lengths = Lengths(mean_tokens=total, p95_tokens=total * math.exp(Z95 * sigma - sigma**2 / 2))
    # attention grows with the square of each pair's length: of `sequences` equal parts, made as unequal as pairs are
    return replace(workload, input_tokens=lengths, pair_tokens=pair), replace(
        model, sequences=count * (1 + cv2 / count) / (1 + cv2)
    )


def _with_pictures(workload: Workload, model: Model) -> tuple[Workload, Model]:
    """The images as tokens of the prompt (in a conversation, of every turn) and as work of the vision tower."""
    images = workload.images
    if images is None or model.vision is None or model.pictures is not None:
        return workload, model
    pictures = pictures_of(model.vision, images.per_request, images.width_px, images.height_px)
    if workload.turns is None:
        text = workload.input_tokens
        share = text.mean_tokens / (text.mean_tokens + pictures.tokens)  # hits are stated for the text
        workload = replace(
            workload,
            input_tokens=text.longer(pictures.tokens),
            prefix_cache_hit_fraction=workload.prefix_cache_hit_fraction * share,
        )
    else:
        prompts, hits, turns = over_turns(workload.turns.with_images(pictures.tokens))
        workload = replace(workload, input_tokens=prompts, prefix_cache_hit_fraction=hits, turns=turns)
    return workload, replace(model, pictures=pictures)


def model_mismatch(workload: Workload, model: Model) -> str:
    """Why this kind of workload does not suit this kind of model; empty: it does."""
    if workload.kind.trains:
        decodes = not (model.diffusion or model.encoder_only or model.source_tokens or model.scores_pairs)
        return "" if decodes else "training is estimated for decoder-only language models: ask for one"
    if model.diffusion and workload.kind.makes != "images":
        return "the model generates images: ask with kind: image_generation"
    if workload.kind.makes == "images":
        return "" if model.diffusion else "the model generates no images: ask for one that does, such as FLUX.1-dev"
    if model.scores_pairs and workload.kind.makes != model.makes:
        return "the model scores pairs of a query and a document: ask with kind: rerank"
    if workload.kind.makes == "scores" and not model.scores_pairs:
        return "the model is no reranker: ask for one, such as BAAI/bge-reranker-v2-m3"
    if model.encoder_only and workload.kind.generates_tokens:
        return "the model makes embeddings and generates no tokens: ask with kind: embedding"
    if has_decoder_beside(model) and not workload.kind.generates_tokens:
        return "an encoder-decoder generates tokens: ask with kind: serving"
    if workload.images is not None and model.vision is None:
        return (
            "the catalog has no vision tower of this model, so image input cannot be estimated: remove traffic.images"
        )
    if workload.images is not None:
        workload, model = _with_pictures(workload, model)
    if workload.audio and not model.source_s:
        return "the model does not transcribe speech: ask for one that does, such as openai/whisper-large-v3"
    return _beyond_context(workload, model)


def _beyond_context(workload: Workload, model: Model) -> str:
    """Why the stated lengths exceed what the model reads and writes; empty: they do not.

    Averages first, then the 95th percentiles: a server that does not hold those serves too few requests.
    """
    given = workload.source_tokens or workload.pair_tokens or workload.input_tokens
    if model.source_s and given.p95_tokens > model.source_tokens:
        return (
            f"a request is one window of {model.source_s:g} s, at most {model.source_tokens:,} input tokens: "
            "count longer audio as several requests"
        )
    if not workload.kind.generates_tokens:
        most = model.max_context_tokens if model.encoder_only else model.longest_context_tokens
        if given.p95_tokens <= most:
            return ""
        where = "" if given.mean_tokens > most else f", and the texts are {given.p95_tokens:,.0f} tokens at p95"
        return f"the model reads at most {most:,} tokens{where}: cut longer texts into several requests"
    what, asked, where = _longest_stated(workload, model)
    if asked <= model.longest_context_tokens:
        return ""
    return (
        f"{what} {asked:,.0f} tokens {where}, but the model's context ends at {model.longest_context_tokens:,}: ask "
        "for shorter ones, or for a model with a longer context"
    )


def _longest_stated(workload: Workload, model: Model) -> tuple[str, float, str]:
    """(what is too long or nearest to it, tokens, at which statistic) of a workload that generates tokens."""
    context, prompts, answers = model.longest_context_tokens, workload.input_tokens, workload.output_tokens
    both, beside = "prompt and answer together are", has_decoder_beside(model)
    if workload.trace is not None and not beside:
        return "recorded prompt and answer together are", workload.trace.total_tokens(0.95), "at p95"
    mean = 0.0 if beside else prompts.mean_tokens
    if workload.turns:
        last = workload.turns.last_prompt_tokens + answers.mean_tokens
        if last > context:
            return both, last, f"in turn {workload.turns.count}"
        mean, prompts = workload.turns.first.mean_tokens, workload.turns.first
    if mean + answers.mean_tokens > context:
        return both, mean + answers.mean_tokens, "on average"
    if answers.p95_tokens > context:
        return "answers are", answers.p95_tokens, "at p95"
    longest = 0.0 if beside else prompts.p95_tokens
    if longest > context:
        return "prompts are", longest, "at p95"
    return both, longest + answers.p95_tokens, "at p95"


def yarn_warning(model: Model) -> str:
    """What contexts beyond the native one need."""
    return (
        f"contexts beyond {model.max_context_tokens:,} tokens need RoPE scaling (YaRN), which changes the answers to "
        "short prompts too: compare quality on your own documents"
    )


# --- costs ------------------------------------------------------------------------------------------------------


def source_operators(model: Model, x: Layouts, source_tokens: Array) -> Iterator[Operator]:
    """Operators that run once per request on one chip: the vision tower over its images, the encoder's layers and
    attention, keys and values of cross-attention.

    source_tokens: shape (N,); yields operators of shape (N, 1).
    """
    yield from image_operators(model, x)
    yield from drawing_operators(model, x)
    if not has_decoder_beside(model):
        return
    column, m = x.column(), np.asarray(source_tokens, dtype=float)[:, None]
    if any(block.stage == "encoder" for block in model.blocks):
        yield _named(elementwise(column, "embedding", 1, m * model.hidden * 4.0, 2))
    for block in model.blocks:
        if block.stage == "encoder":
            yield from (_named(op) for op in block_operators(model, block, column, m))
            yield bidirectional_scores(block, column, m, m, "encoder")
        elif isinstance(block.mixer, Attention) and block.mixer.cross:
            yield _keys_and_values(model, block.mixer, block.count, column, m)


def _named(op: Operator) -> Operator:
    return replace(op, name=f"encoder/{op.name.replace('/', '_')}")


def _keys_and_values(model: Model, a: Attention, count: int, x: Layouts, m: Array) -> Operator:
    _, key, value, _ = mixer_matrices(a, model.hidden)
    return matrix_gemm(x, "cross_attention/source_kv", count, m, key, value)


def source_s(model: Model, x: Layouts, source_tokens: Array) -> Array:
    """Seconds to encode the source or the images of one request, shape (N,); zero without an encoder."""
    total = np.zeros((len(x), 1))
    for operator in source_operators(model, x, source_tokens):
        total = total + operator.time_s
    return np.asarray(total[:, 0])


def cross_read(model: Model, x: Layouts, source_tokens: Array) -> tuple[Array, Array, Array]:
    """(seconds, FLOPs, bytes) of cross-attention over one source in one decode step, on one chip; shapes (N,)."""
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


# --- embedding servers under load -------------------------------------------------------------------------------


def full_batch(load: Load, scheduler: Scheduler, slots: Array) -> Array:
    """Requests of a full step: as many whole prompts as its token budget and batch slots allow, at least one."""
    return np.maximum(np.minimum(np.floor(scheduler.max_batched_tokens / load.prompt_tokens), slots), 1.0)


def batch_capacity_requests_per_s(times: StepTimes, slots: Array, demand: Demand, scheduler: Scheduler) -> Array:
    """Requests/s of lanes whose steps are all full; batch slots: (N, C) or (N,)."""
    slots = np.asarray(slots, float)
    load = load_of(times, demand, max(slots.ndim - 1, 0))
    batch = full_batch(load, scheduler, slots)
    return np.asarray(batch / load.step_s(0.0, batch, batch))


def batch_latency_p95_s(
    times: StepTimes, rate_per_s: Array, slots: Array, demand: Demand, scheduler: Scheduler
) -> Array:
    """Planning estimate of p95 latency, seconds, at this request rate per lane, shape (N,); infinite above capacity.

    A step takes the requests that arrived during the step before it, so a request waits for the rest of that step and
    then for its own; near a full batch it also queues. Reported percentiles come from the simulation.
    """
    load, rate = load_of(times, demand, 0), np.asarray(rate_per_s, float)
    full = full_batch(load, scheduler, slots)
    batch = np.ones(rate.shape)
    for _ in range(8):  # fixed point: the batch of a step is what arrives during one
        batch = np.clip(rate * load.step_s(0.0, batch, batch), 1.0, full)
    busy = np.minimum(rate * load.step_s(0.0, 1.0, 1.0), 1.0)
    step_s, full_s = load.step_s(0.0, batch, batch, 1 - busy), load.step_s(0.0, full, full)
    utilization = rate * full_s / full
    capped = np.minimum(utilization, NEARLY_ALL)
    queued_s = full_s * capped**4 * demand.arrival_cv2 / (2 * (1 - capped))
    latency_s = times.request_s + step_s * (1 + 0.95 * busy) + queued_s
    return np.where(utilization < 1, latency_s, np.inf)
