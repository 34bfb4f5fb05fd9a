"""Operators of one scheduler step: FLOPs, bytes, seconds and bound of each.

All functions broadcast over layouts (first axis) and token counts (second), so the same code computes one plan or a
hundred thousand. Times are rooflines per operator, then summed: one roofline over the whole step is optimistic (by
12 % on the scaling-book serving example).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from advisor.engine.kernels import (
    Array,
    Rates,
    aligned_fractions,
    collective_s,
    gemm_times,
    mean_waves,
    padded_rows,
    roof,
)
from advisor.engine.network import (
    Attention,
    Block,
    CompressedAttention,
    Ffn,
    LatentAttention,
    Matrix,
    Model,
    Recurrent,
    SoftmaxAttention,
    convolution_elements,
    decoder_blocks,
    ffn_matrices,
    index_every,
    mixer_matrices,
    reads,
    stream_matrices,
)

DIRECT_BYTES_MAX = 8.0 * 2**20  # vLLM 0.24.0 on Hopper: largest message of its own all-reduce
DIRECT_TOKENS_MAX = 256.0  # per rank: the most that low-latency all-to-all kernels take (DeepEP, docs/legacy.md)
# Rate of reads from the last-level cache of a GPU over that of reads from its memory. Assumed, not measured: the
# supplied open loops with shared prefixes suggest 1.4 to 2.2, too noisily to fit it.
CACHE_READS = 2.0
# Of that cache, for data that all cores read: each half keeps its own copy for its cores (NVIDIA A100 Tensor Core GPU
# Architecture, "L2 cache"; not stated for other vendors). vLLM reads shared blocks once per request: cascade attention
# is off by default (vllm/config/model.py, disable_cascade_attn).
SHARED_CACHE_FRACTION = 0.5
STATE_BYTES = 4.0  # all frameworks we checked keep recurrent states in fp32


@dataclass(frozen=True, kw_only=True, slots=True)
class Layouts(Rates):
    """N layouts of one model, as arrays of shape (N,); rates are achieved rates."""

    tp: Array
    pp: Array
    ep: Array
    dp: Array  # attention data parallelism
    moe_tp: Array
    expert_flops_per_s: Array
    attention_flops_per_s: Array
    weight_bytes: Array  # per weight of attention and dense matrices, scales included
    expert_weight_bytes: Array
    weight_read_bytes: Array  # effective bytes per weight read by a GEMM: dequantization slows the read
    expert_read_bytes: Array
    activation_bytes: Array  # per activation entering a quantized matrix
    kv_bytes: Array
    kv_read_bytes: Array  # effective bytes per cache element at the full memory rate: more if kernels read it slower
    latent_read_bytes: Array  # the same of caches that all heads share
    indexer_factor: Array
    cache_bytes: Array  # last-level cache of the chip, for what a step reads again; 0: it has none that fills by itself
    quantize_kernels: Array  # extra kernels per matrix that quantize its input
    quantize_bytes: Array  # extra bytes per activation
    routing_evenness: Array
    sequence_head_bytes: Array  # decode attention's fixed cost per sequence and head, as bytes read
    sample_bytes_per_logit: Array
    exchange_bytes_per_s: Array  # `near_bytes_per_s` of an all-to-all, which a torus carries slower than a ring
    far_reduce_s: Array
    one_shot_s: Array  # launch of the framework's own all-reduce, in which chips read each other's data
    exchange_s: Array  # fixed cost of an all-to-all of tokens to their experts
    direct_hop_s: Array  # per doubling of the chips in the framework's own all-reduce, without its collective_factor
    tile_wave_fraction: Array  # of quantized matrices in whole tiles: cost of their last wave
    vector_rows: Array  # rows of a matrix up to which matrix-vector kernels, without tiles, multiply it
    adapter_kernel_s: Array  # fixed cost of a kernel of a LoRA adapter
    further_adapter_s: Array

    def __len__(self) -> int:
        return len(self.tp)

    def one(self, index: int) -> "Layouts":
        """The layout at this index, as arrays of shape (1,)."""
        return Layouts(**{f.name: getattr(self, f.name)[index : index + 1] for f in fields(self)})

    def column(self) -> "Layouts":
        """The layouts with a trailing axis, shape (N, 1), to broadcast against token counts."""
        return Layouts(**{f.name: getattr(self, f.name)[:, None] for f in fields(self)})


@dataclass(frozen=True, kw_only=True, slots=True)
class Operator:
    """One operator of one block (one layer times its count), on one chip."""

    name: str
    flops: Array
    bytes: Array
    time_s: Array
    bound: str


def gemm(
    x: Layouts,
    name: str,
    count: float,
    rows: Array,
    columns: Array,
    inner: Array | float,
    kind: str,
    *,
    padded: bool = False,
) -> Operator:
    """`count` GEMMs (rows, inner) x (inner, columns) that each read their weights once; kind: quantized | half.

    padded: frameworks pad the sizes to round ones.
    """
    quantized = kind == "quantized"
    rate = x.matmul_flops_per_s if quantized else x.half_flops_per_s
    weight = x.weight_read_bytes if quantized else 2.0
    activation = x.activation_bytes if quantized else 2.0
    flops = 2.0 * rows * columns * inner
    moved = columns * inner * weight + rows * inner * activation + rows * columns * 2.0
    fractions = aligned_fractions(x, columns, inner) if not padded else (1.0, 1.0)
    flops_s, bytes_s = gemm_times(x, rate, rows, columns, inner, moved, fractions)
    if quantized and np.any(x.tile_wave_fraction):
        flops_s = flops_s * (1.0 + x.tile_wave_fraction * (mean_waves(rows, columns, x.cores) - 1.0))
    extra_s = x.quantize_kernels * x.kernel_s + rows * inner * x.quantize_bytes / x.memory_bytes_per_s
    time_s = count * (roof(flops_s, bytes_s, x.roof_exponent) + x.kernel_s + (extra_s if quantized else 0.0))
    return Operator(
        name=name, flops=count * flops, bytes=count * moved, time_s=time_s, bound=bound_of(flops_s, bytes_s, x.kernel_s)
    )


def elementwise(x: Layouts, name: str, count: float, moved: Array, kernels: Array | float) -> Operator:
    """Norms, rotary, activations, residuals: bytes only; `kernels`: launches that remain after kernel fusion."""
    bytes_s = moved / x.memory_bytes_per_s
    zero = np.zeros_like(moved)
    return Operator(
        name=name,
        flops=zero,
        bytes=count * moved,
        time_s=count * (bytes_s + kernels * x.kernel_s),
        bound=bound_of(zero, bytes_s, x.kernel_s),
    )


def bound_of(flops_s: Array, bytes_s: Array, kernel_s: Array) -> str:
    """Largest part of the time of the first layout: compute | memory | launch. For display; sums use the times."""
    parts = {"compute": flops_s, "memory": bytes_s, "launch": np.asarray(kernel_s)}
    return max(parts, key=lambda k: float(np.ravel(parts[k])[0]))


def distinct_experts(experts: float, top_k: float, tokens: Array, evenness: Array | float = np.inf) -> Array:
    """Expected number of distinct experts that `tokens` tokens are routed to.

    Uniform routing uses E (1 - (1 - k/E)^T). Trained routers favor some experts: with expert loads from a gamma
    distribution of shape `evenness`, the unused fraction is (1 + g T)^-evenness, with g such that one token uses
    exactly k; for large evenness this is the uniform case.
    """
    unused = np.log1p(-min(top_k / experts, 1 - 1e-12))  # log of the fraction that one token does not use
    shape = np.minimum(np.asarray(evenness, float), 1e6)
    return np.asarray(-experts * np.expm1(-shape * np.log1p(np.expm1(-unused / shape) * tokens)))


def largest_of(ranks: Array) -> Array:
    """Expected maximum of this many standard normal loads (order statistics, interpolated in log2)."""
    expected = (0.0, 0.564, 1.029, 1.424, 1.766, 2.070, 2.344, 2.594)
    return np.asarray(np.interp(np.log2(np.maximum(ranks, 1.0)), np.arange(len(expected)), expected))


def all_reduce(x: Layouts, name: str, count: float, size_bytes: Array, chips: Array) -> Operator:
    """The fastest of a ring (fixed cost, hops, 2 (n-1)/n of the data over the link) and the direct ways of frameworks.

    One-shot: every chip reads all others' data. Two-stage: every chip sums one part, then all read the sums; it waits
    for the others twice. With the one-shot launch of vLLM's kernel, both are within 9 % of that kernel on four H200s,
    4 KiB to 6 MiB in a CUDA graph (docs/explanation/accuracy.md). Larger messages use the ring.
    """
    ring = _collective(
        x, name, count, 2.0 * size_bytes, chips, x.collective_s + x.far_reduce_s * (chips > x.near_chips)
    )
    hops_s = x.direct_hop_s * np.log2(np.maximum(chips, 1.0))
    once_s = hops_s + size_bytes * (chips - 1.0) / x.near_bytes_per_s
    twice_s = 2.0 * hops_s + 2.0 * size_bytes * (chips - 1.0) / np.maximum(chips, 1.0) / x.near_bytes_per_s
    direct_s = x.one_shot_s + np.where(size_bytes <= DIRECT_BYTES_MAX, np.minimum(once_s, twice_s), once_s)
    usable = (chips > 1.0) & (chips <= x.near_chips)
    return replace(ring, time_s=np.where(usable, np.minimum(ring.time_s, count * direct_s), ring.time_s))


def _collective(x: Layouts, name: str, count: float, size_bytes: Array, chips: Array, start_s: Array) -> Operator:
    """A ring; across scale-up domains, chips reduce inside first, then every chip sends its share.

    Both tiers carry (n - 1) / n of the data here and less in training (`ring_s`): no measured row of serving crosses a
    domain.
    """
    inside, used = chips <= x.near_chips, chips > 1.0
    volume = size_bytes * (chips - 1.0) / np.maximum(chips, 1.0)
    share = np.where(inside, 1.0, 1.0 / np.maximum(x.near_chips, 1.0))
    each_s = collective_s(x, volume, volume * share, chips, ~inside, start_s)
    time_s = np.where(used, count * each_s, 0.0)
    moved = np.where(used, count * volume, 0.0)
    return Operator(name=name, flops=np.zeros_like(time_s), bytes=moved, time_s=time_s, bound="communication")


def linear_operators(model: Model, layouts: Layouts, tokens: Array) -> Iterator[Operator]:
    """Operators whose cost depends only on the tokens of the step, for one pipeline pass.

    tokens: shape (G,), per attention-DP rank; yields operators of shape (N, G). A step of a pipeline is the sum over
    its stages (a micro-batch passes them all), so pp adds transfers and divides nothing here. The encoder of an
    encoder-decoder is not included: see media/encoder.py.
    """
    x, m = layouts.column(), np.asarray(tokens, dtype=float)[None, :]
    for block in decoder_blocks(model):
        yield from block_operators(model, block, x, m)
        yield from _modulation(model, block, x, m)
    vocab = np.ceil(model.vocab / x.tp)
    yield elementwise(x, "embedding", 1, m * model.hidden * 4.0 + 0 * x.tp, 2)
    if not model.encoder_only:
        yield gemm(x, "lm_head", 1, np.minimum(m, 1.0) + 0 * x.tp, vocab, float(model.hidden), "half", padded=True)
    yield all_reduce(x, "pipeline/transfer", 1, np.where(x.pp > 1, (x.pp - 1) * m * model.hidden, 0.0), x.pp)
    stage = np.where(x.pp > 1, x.pp - 1, 0.0) * x.kernel_s * 4 + 0 * m
    yield Operator(name="pipeline/launch", flops=0 * stage, bytes=0 * stage, time_s=stage, bound="launch")


def rank_columns(matrix: Matrix, tp: Array) -> Array:
    """Columns of a matrix on one of `tp` ranks; ranks share heads of keys and values if there are fewer."""
    if matrix.split != "columns":
        return matrix.columns + 0.0 * tp
    return np.maximum(matrix.columns / tp, float(matrix.least))


def rank_inner(matrix: Matrix, tp: Array) -> Array:
    """Inputs of a matrix on one of `tp` ranks."""
    return matrix.inner / tp if matrix.split == "rows" else matrix.inner + 0.0 * tp


def matrix_gemm(x: Layouts, name: str, count: float, m: Array, *matrices: Matrix, kind: str = "quantized") -> Operator:
    """The product of `m` tokens with matrices that read the same input, as one GEMM of one rank."""
    columns = sum((rank_columns(each, x.tp) for each in matrices), 0.0 * x.tp)
    return gemm(x, name, count, m, columns, rank_inner(matrices[0], x.tp), kind)


def block_operators(model: Model, block: Block, x: Layouts, m: Array) -> Iterator[Operator]:
    """Operators of one block whose cost depends only on the tokens `m`; x and m broadcast."""
    if isinstance(block.mixer, Attention):
        yield from _attention(model, block.mixer, block.count, x, m)
    elif isinstance(block.mixer, LatentAttention):
        yield from _latent(model, block.mixer, block.count, x, m)
    elif isinstance(block.mixer, CompressedAttention):
        yield from _compressed(model, block.mixer, block.count, x, m)
    elif isinstance(block.mixer, Recurrent):
        yield from _recurrent(model, block.mixer, block.count, x, m)
    yield from _streams(model, block, x, m)
    if block.ffn is not None:
        yield from _ffn(model, block.ffn, block.count, x, m)


def _modulation(model: Model, block: Block, x: Layouts, m: Array) -> Iterator[Operator]:
    """Scale and shift of a DiT block (adaLN): matrices over the time step, read once per pass whatever the tokens."""
    if block.modulation:
        elements = block.modulation * float(model.hidden) ** 2
        time_s = 2.0 * elements / x.memory_bytes_per_s + 2 * x.kernel_s + 0 * m
        yield Operator(
            name="modulation",
            flops=block.count * 2.0 * elements + 0 * time_s,
            bytes=block.count * 2.0 * elements + 0 * time_s,
            time_s=block.count * time_s,
            bound="memory",
        )


def _streams(model: Model, block: Block, x: Layouts, m: Array) -> Iterator[Operator]:
    """What mixes residual streams around mixer and feed-forward, and what adds a layer's own input."""
    for matrix in stream_matrices(block, model.hidden):
        yield matrix_gemm(x, f"residual/{matrix.name}", block.count, m, matrix, kind="half")
    if block.residual_streams > 1:  # the streams are read to be mixed and read and written to be updated, twice a layer
        moved = 12.0 * m * block.residual_streams * model.hidden + 0 * x.tp
        yield elementwise(x, "residual/streams", block.count, moved, 4)


def _attention(model: Model, a: Attention, count: int, x: Layouts, m: Array) -> Iterator[Operator]:
    h = float(model.hidden)
    *each, o = mixer_matrices(a, model.hidden)
    own = [matrix for matrix in each if not matrix.name.startswith("index_")]
    into = own[:1] if a.cross else own  # cross-attention projects the source once: media/encoder.py
    width = sum((rank_columns(each, x.tp) for each in into), 0.0 * x.tp)
    heads, name = a.heads / x.tp, "cross_attention" if a.cross else "attention"
    yield elementwise(x, f"{name}/norm", count, 6.0 * m * h + 0 * x.tp, 1)
    yield matrix_gemm(x, f"{name}/qkv", count, m, *into)
    yield elementwise(x, f"{name}/rotary_and_cache", count, 4.0 * m * width, 2 + a.qk_norm)
    yield matrix_gemm(x, f"{name}/output", count, m, o)
    yield elementwise(x, f"{name}/kernel", count, 2.0 * m * heads * a.key_value_dim, 2.5)
    yield from _indexer(a, [matrix for matrix in each if matrix.name.startswith("index_")], count, x, m)
    yield all_reduce(x, f"{name}/all_reduce", count, 2.0 * m * h, x.tp)


def _latent(model: Model, a: LatentAttention, count: int, x: Layouts, m: Array) -> Iterator[Operator]:
    """MLA with absorbed up-projections: the latent is shared by all heads and replicated on every TP rank."""
    h, heads = float(model.hidden), a.heads / x.tp
    each = {matrix.name: matrix for matrix in mixer_matrices(a, model.hidden)}
    q_dim, down = rank_columns(each["q"], x.tp), float(a.q_rank + a.kv_rank + a.rope_dim)
    yield elementwise(x, "attention/norm", count, 6.0 * m * h + 0 * x.tp, 1)
    from_hidden = [each[name] for name in ("kv_down", "gate_heads") if name in each]
    if a.q_rank:
        yield matrix_gemm(x, "attention/down", count, m, each["q_down"], *from_hidden)
        yield matrix_gemm(x, "attention/q_up", count, m, each["q"])
    else:
        yield matrix_gemm(x, "attention/q_and_down", count, m, each["q"], *from_hidden)
    yield elementwise(x, "attention/rotary_and_cache", count, 4.0 * m * (down + q_dim), 3)
    # W_uk is absorbed into the query and W_uv into the output: batched over heads, 16-bit
    up, of_key = each["kv_up"], a.nope_dim / (a.nope_dim + a.v_dim)
    yield gemm(x, "attention/absorb_k", count, m, heads * up.inner, up.columns / a.heads * of_key, "half")
    yield gemm(x, "attention/absorb_v", count, m, up.columns / x.tp * (1.0 - of_key), float(up.inner), "half")
    yield matrix_gemm(x, "attention/output", count, m, each["o"])
    yield elementwise(x, "attention/kernel", count, 2.0 * m * heads * (a.kv_rank * 2 + a.rope_dim), 2.5)
    yield from _indexer(a, [matrix for name, matrix in each.items() if name.startswith("index_")], count, x, m)
    yield all_reduce(x, "attention/all_reduce", count, 2.0 * m * h, x.tp)


def _indexer(a: SoftmaxAttention, each: Sequence[Matrix], count: int, x: Layouts, m: Array) -> Iterator[Operator]:
    """The indexer of sparse attention: its query, its keys and weights, the choice of the best."""
    if not each:
        return
    query, *keys = each
    yield matrix_gemm(x, "indexer/query", count, m, query, kind="half")
    yield matrix_gemm(x, "indexer/key", count, m, *keys, kind="half")
    yield elementwise(x, "indexer/top_k", count, 4.0 * m * a.index_heads * a.index_dim + 0 * x.tp, 4 * x.indexer_factor)


def _compressed(model: Model, a: CompressedAttention, count: int, x: Layouts, m: Array) -> Iterator[Operator]:
    """Attention over compressed entries: one key-value vector for all heads, replicated on every TP rank."""
    h, heads = float(model.hidden), a.heads / x.tp
    each = {matrix.name: matrix for matrix in mixer_matrices(a, model.hidden)}
    yield elementwise(x, "attention/norm", count, 6.0 * m * h + 0 * x.tp, 1)
    down = [each[name] for name in ("q_down", "kv_down", "compress") if name in each]
    yield matrix_gemm(x, "attention/down", count, m, *down)
    yield matrix_gemm(x, "attention/q_up", count, m, each["q"])
    width = sum(float(matrix.columns) for matrix in down) + a.head_dim * heads
    yield elementwise(x, "attention/rotary_and_cache", count, 4.0 * m * width, 3 + 2 * bool(a.ratio))
    yield elementwise(x, "attention/kernel", count, 4.0 * m * heads * a.head_dim, 2.5)
    yield from _indexer(a, [matrix for name, matrix in each.items() if name.startswith("index_")], count, x, m)
    yield matrix_gemm(x, "attention/output_groups", count, m, each["o_groups"])
    yield matrix_gemm(x, "attention/output", count, m, each["o"])
    yield all_reduce(x, "attention/all_reduce", count, 2.0 * m * h, x.tp)


def state_bytes(r: Recurrent) -> float:
    """State bytes of one sequence in one layer (recurrence in fp32, convolution in 16 bits)."""
    return r.inner * r.state * STATE_BYTES + convolution_elements(r) * 2.0


def _recurrent(model: Model, r: Recurrent, count: int, x: Layouts, m: Array) -> Iterator[Operator]:
    h, inner = float(model.hidden), r.inner / x.tp
    into, *select, out = mixer_matrices(r, model.hidden)
    yield elementwise(x, "recurrent/norm", count, 6.0 * m * h + 0 * x.tp, 1)
    yield matrix_gemm(x, "recurrent/input", count, m, into)
    for matrix in select:
        yield matrix_gemm(x, f"recurrent/{matrix.name}", count, m, matrix)
    scan_s = 6.0 * m * inner * r.state / x.attention_flops_per_s  # chunked scan: update, decay, read-out
    moved = 6.0 * m * rank_columns(into, x.tp)
    yield Operator(
        name="recurrent/scan",
        flops=count * 6.0 * m * inner * r.state,
        bytes=count * moved,
        time_s=count * (roof(scan_s, moved / x.memory_bytes_per_s, x.roof_exponent) + 6 * x.kernel_s),
        bound=bound_of(scan_s, moved / x.memory_bytes_per_s, x.kernel_s),
    )
    yield matrix_gemm(x, "recurrent/output", count, m, out)
    yield all_reduce(x, "recurrent/all_reduce", count, 2.0 * m * h, x.tp)


def _ffn(model: Model, f: Ffn, count: int, x: Layouts, m: Array) -> Iterator[Operator]:
    h = float(model.hidden)
    each = [*ffn_matrices(f, model.hidden)]
    yield elementwise(x, "ffn/norm", count, 6.0 * m * h + 0 * x.tp, 1)
    if f.experts <= 1:
        yield from _dense_ffn(x, "ffn", count, m, each)
        yield all_reduce(x, "ffn/all_reduce", count, 2.0 * m * h, x.tp)
        return
    yield matrix_gemm(x, "moe/router", count, m, each[0], kind="half")
    # each rank gathers, quantizes and sums the rows of its experts; with TP these are all rows
    yield elementwise(x, "moe/permute", count, 8.0 * m * x.dp * h * f.top_k / x.ep, 4)
    if f.shared_inner:
        yield from _dense_ffn(x, "moe/shared", count, m, [e for e in each if e.name.startswith("shared_")])
    for matrix in (e for e in each if e.name.startswith("latent_")):
        yield matrix_gemm(x, f"moe/{matrix.name}", count, m, matrix)
    yield _experts(x, f, count, m, float(f.latent or h), float(sum(e.elements for e in each if e.routed)))
    yield from _expert_exchange(x, f, count, m, h)


def _dense_ffn(x: Layouts, name: str, count: float, m: Array, each: Sequence[Matrix]) -> Iterator[Operator]:
    *into, down = each
    inner = rank_inner(down, x.tp)
    yield matrix_gemm(x, f"{name}/up", count, m, *into)
    yield elementwise(x, f"{name}/activation", count, 2.0 * m * inner * len(each), 1)
    yield matrix_gemm(x, f"{name}/down", count, m, down)


def _experts(x: Layouts, f: Ffn, count: int, m: Array, h: float, elements: float) -> Operator:
    """Grouped GEMM of the routed experts on the busiest rank: used experts are read, tokens padded to tiles.

    `elements`: weights of one expert.
    """
    total = m * x.dp  # experts process the tokens of all attention-DP ranks
    used = distinct_experts(float(f.experts), float(f.top_k), total, x.routing_evenness) / x.ep
    pairs = total * f.top_k / x.ep
    # the busiest of ep ranks has more than the mean: random variation of few tokens, and uneven routing
    variance = 1.0 / np.maximum(pairs, 1.0) + x.ep / (float(f.experts) * x.routing_evenness)
    pairs = pairs * (1.0 + np.minimum(largest_of(x.ep) * np.sqrt(variance), 1.0))
    # and reads more experts than the mean, until all ranks use all of theirs
    local = float(f.experts) / x.ep
    spread = np.sqrt(np.maximum(used * (1.0 - used / local) * (1.0 - 1.0 / x.ep), 0.0))
    used = np.minimum(used + largest_of(x.ep) * spread, local)
    inner = f.inner / x.moe_tp
    rows = np.where(pairs <= used * x.vector_rows, pairs, padded_rows(x, pairs, used))
    flops = 2.0 * rows * elements / x.moe_tp
    moved = used * elements / x.moe_tp * x.expert_read_bytes + pairs * (2 * h + 3 * inner) * 2.0
    flops_s, bytes_s = flops / x.expert_flops_per_s, moved / x.memory_bytes_per_s
    # under EP, kernels map experts to ranks and mask the tokens of other ranks: measured 7 us a layer
    kernels = 3.0 + 2.0 * x.quantize_kernels + np.where(x.ep > 1, 2.0, 0.0)
    time_s = count * (roof(flops_s, bytes_s, x.roof_exponent) + kernels * x.kernel_s)
    return Operator(
        name="moe/experts",
        flops=count * flops,
        bytes=count * moved,
        time_s=time_s,
        bound=bound_of(flops_s, bytes_s, x.kernel_s),
    )


def _expert_exchange(x: Layouts, f: Ffn, count: int, m: Array, h: float) -> Iterator[Operator]:
    """TP and EP sum the outputs with one all-reduce; attention-DP sends each token to its experts' ranks and back."""
    yield all_reduce(x, "moe/all_reduce", count, np.where(x.dp > 1, 0.0, 2.0 * m * h), np.where(x.dp > 1, 1.0, x.tp))
    h = float(f.latent or h)
    ranks = np.where(x.dp > 1, x.ep * x.moe_tp, 1.0)
    copies = np.minimum(float(f.top_k), np.maximum(x.ep, 1.0)) * np.maximum(x.moe_tp, 1.0)
    copies = np.minimum(copies, ranks)
    each = np.where(x.dp > 1, m * h * (1.0 + 2.0) / 2.0, 0.0)  # bytes of one copy: one byte a value out, two back
    inside = np.minimum(ranks, x.near_chips)
    crossing = replace(x, near_bytes_per_s=x.exchange_bytes_per_s)
    near = _collective(crossing, "moe/all_to_all", 2 * count, each * copies, inside, x.exchange_s)
    far_s = np.where(ranks > inside, each * _far_copies(m, copies, ranks / inside) / x.far_bytes_per_s, 0.0)
    far_s = far_s + np.where(ranks > inside, x.far_collective_s, 0.0)
    yield replace(near, time_s=near.time_s + 2 * count * far_s)


def _far_copies(m: Array, copies: Array, domains: Array) -> Array:
    """Copies of a token that leave its scale-up domain, if its experts are spread over this many domains.

    Few tokens go to each expert's rank directly, as in kernels made for CUDA graphs; many are sent once to each domain
    and forwarded inside. Both agree with the bandwidths that DeepEP publishes for 16 to 64 ranks over 400 Gb/s
    (README.md and docs/legacy.md, tests/engine/step/test_expert_exchange.py).
    """
    direct = copies * (1.0 - 1.0 / domains)
    once = (domains - 1.0) * (1.0 - (1.0 - 1.0 / domains) ** copies)
    return np.asarray(np.where(m <= DIRECT_TOKENS_MAX, direct, np.minimum(direct, once)))


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionCost:
    """Attention and sampling costs in seconds, per pipeline pass; shapes (N,)."""

    decode_s_per_context_token: Array
    repeat_s_per_context_token: Array  # of a token that another sequence of the step has read
    cache_tokens: Array  # of one full layer that fit the cache
    window_s_per_context_token: Array
    window_tokens: Array
    decode_s_per_sequence: Array
    prefill_s_per_pair: Array
    window_prefill_s_per_pair: Array
    sample_s_per_sequence: Array


def attention_cost(model: Model, x: Layouts, source_tokens: Array | float = 0.0) -> AttentionCost:
    """Costs of attention: decode reads the cache of every running sequence, prefill computes (query, key) pairs.

    Bidirectional attention has twice the pairs. Cross-attention reads the same source for every token, so this is part
    of the fixed cost per sequence.
    """
    zero = np.zeros(len(x))
    full, windowed, sequence, pair, window_pair = zero, zero, zero, zero, zero
    again = replace(x, memory_bytes_per_s=CACHE_READS * x.memory_bytes_per_s)
    repeated, widest = zero, zero
    window = longest_window(model)
    for block in decoder_blocks(model):
        mixer = block.mixer
        if isinstance(mixer, Recurrent):
            sequence = sequence + block.count * 2.0 * state_bytes(mixer) / x.tp / x.memory_bytes_per_s
            continue
        if mixer is None:
            continue
        read_s, pair_s, heads = context_token(mixer, x)
        pair_s = pair_s / model.sequences
        sequence = sequence + block.count * heads * x.sequence_head_bytes / x.memory_bytes_per_s
        if isinstance(mixer, Attention) and not mixer.causal:
            if mixer.cross:
                sequence = sequence + block.count * read_s * source_tokens
                continue
            pair_s = 2.0 * pair_s
        for read in reads(mixer):
            share = block.count / read.every
            if read.limit:  # all windows as parts of the longest: what a long context costs is exact
                share *= read.limit / window
                windowed, window_pair = windowed + share * read_s, window_pair + share * pair_s
            else:
                full, pair = full + share * read_s, pair + share * pair_s
                repeated = repeated + share * context_token(mixer, again)[0]
                widest = np.maximum(widest, token_elements(mixer, x) * x.kv_bytes)
        if mixer.index_heads:
            indexed = block.count / index_every(mixer) * x.indexer_factor
            full = full + indexed * mixer.index_dim / x.memory_bytes_per_s
            repeated = repeated + indexed * mixer.index_dim / again.memory_bytes_per_s
            pair = pair + indexed * 2.0 * mixer.index_heads * mixer.index_dim / x.matmul_flops_per_s
    return AttentionCost(
        decode_s_per_context_token=full,
        repeat_s_per_context_token=repeated,
        cache_tokens=np.where(widest > 0, SHARED_CACHE_FRACTION * x.cache_bytes / np.maximum(widest, 1e-9), 0.0),
        window_s_per_context_token=windowed,
        window_tokens=zero + window,
        decode_s_per_sequence=sequence,
        prefill_s_per_pair=pair,
        window_prefill_s_per_pair=window_pair,
        sample_s_per_sequence=_sample_s(model, x),
    )


def longest_window(model: Model) -> float:
    """The most tokens that a layer with a limit reads; 0: no layer has one."""
    mixers = [b.mixer for b in decoder_blocks(model) if isinstance(b.mixer, SoftmaxAttention)]
    return max((float(read.limit or 0) for mixer in mixers for read in reads(mixer)), default=0.0)


def _sample_s(model: Model, x: Layouts) -> Array:
    """Seconds of the output head and sampling for one sequence, shape (N,)."""
    if model.encoder_only:
        return np.zeros(len(x))  # encoders pool a vector and sample no token
    each_s = model.vocab / x.tp * (2.0 * model.hidden / x.half_flops_per_s)
    return np.asarray(each_s + model.vocab / x.tp * x.sample_bytes_per_logit / x.memory_bytes_per_s)


def token_elements(mixer: SoftmaxAttention, x: Layouts) -> Array:
    """Elements that one layer keeps of a token on one chip."""
    if isinstance(mixer, Attention):
        return np.maximum(mixer.kv_heads / x.tp, 1.0) * mixer.key_value_dim
    stored = mixer.head_dim if isinstance(mixer, CompressedAttention) else mixer.kv_rank + mixer.rope_dim
    return stored + 0.0 * x.tp


def context_token(mixer: SoftmaxAttention, x: Layouts) -> tuple[Array, Array, Array]:
    """(decode seconds per cached token, prefill seconds per pair, heads per chip) of one layer; shapes (N,)."""
    heads, moved = mixer.heads / x.tp, token_elements(mixer, x) * x.latent_read_bytes
    if isinstance(mixer, Attention):
        moved = token_elements(mixer, x) * x.kv_read_bytes
        decode_flops = prefill_flops = 2.0 * heads * mixer.key_value_dim
    elif isinstance(mixer, CompressedAttention):
        decode_flops = prefill_flops = 4.0 * heads * mixer.head_dim
    else:
        decode_flops = 2.0 * heads * (2 * mixer.kv_rank + mixer.rope_dim)  # absorbed form
        prefill_flops = 2.0 * heads * (mixer.nope_dim + mixer.rope_dim + mixer.v_dim)  # expanded form
    decode_s = roof(decode_flops / x.attention_flops_per_s, moved / x.memory_bytes_per_s, x.roof_exponent)
    return decode_s, prefill_flops / x.attention_flops_per_s, heads


def linear_s(model: Model, layouts: Layouts, tokens: Array) -> Array:
    """Seconds of all linear operators, shape (N, G)."""
    total = np.zeros((len(layouts), len(tokens)))
    for operator in linear_operators(model, layouts, tokens):
        total += operator.time_s
    return total
