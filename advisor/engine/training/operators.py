"""Operators of the forward and backward pass of one micro-batch on one rank: seconds, FLOPs and bytes of each.

Every function broadcasts over layouts: a `Shape` holds arrays of one value per layout, so the same code times one run
or a hundred thousand. Matrix multiplies are timed as in serving (kernels). The backward pass has two products for each
of the forward pass, and attention 2.5 times the operations.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from advisor.engine.kernels import Amount, Array, aligned_fractions, gemm_times, padded_rows, roof
from advisor.engine.network import (
    Attention,
    Block,
    CompressedAttention,
    LatentAttention,
    Matrix,
    Model,
    SoftmaxAttention,
    decoder_blocks,
    matrices,
    parameters,
    reads,
)
from advisor.engine.step import (
    rank_columns,
    rank_inner,
)
from advisor.engine.training.memory import NARROW_BYTES, is_adapted
from advisor.engine.training.memory import products as kept_in_order
from advisor.engine.training.rates import Rates
from advisor.engine.training.run import Code, Recipe, Run

# Kernels of PyTorch 2.11 on one H200 (tests/measuring; fixtures/measurements/h200-training-kernels.csv):
SMALL_HEAD_FACTOR = 0.86  # of that rate with heads of 64
# bytes per element at the chip's achieved read rate, (forward, backward): the time that kernels take, as bytes
EAGER_NORM, EAGER_NORM_FP32, RMS_NORM, RMS_NORM_FP32 = (55.0, 120.0), (38.0, 111.0), (5.6, 15.0), (11.0, 28.0)
EAGER_ROTARY, EAGER_ROTARY_FP32, EAGER_GATE = (49.0, 55.0), (73.0, 71.0), (10.0, 17.5)
EAGER_LOSS = (28.0, 26.0)  # per token and vocabulary entry
# of a rank-16 adapter beside a frozen linear layer, by bytes of its parameters: (input, output) forward and backward
ADAPTER_BYTES = {4.0: ((19.0, 30.0), (27.0, 39.0)), 2.0: ((3.2, 9.1), (10.2, 9.5))}
# products that hold a matrix which LoRA adapts where it adapts only some, and the name of that matrix
ADAPTED = {
    "attention/qkv": "q", "attention/query_up": "q", "attention/kv_up": "kv_up", "attention/query_down": "q_down",
    "attention/kv_down": "kv_down", "attention/output": "o",
}  # fmt: skip
DEQUANTIZE_KERNELS = 2.0  # of the scales, which are quantized themselves, and of the weights
BACKWARD_ATTENTION = 2.5  # five products where the forward pass has two


SIZES = ("dp", "tp", "pp", "cp", "ep", "zero", "shards", "virtual_stages")  # of a Parallel


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """Layouts as arrays of shape (N,), or numbers."""

    tokens: Amount  # of one micro-batch on one rank: micro_batch x sequence / cp
    sequence_tokens: Amount
    micro_batches: Amount
    dp: Amount
    tp: Amount
    pp: Amount
    cp: Amount
    ep: Amount
    zero: Amount
    shards: Amount
    split_norms: Amount  # tp with sequence parallelism, else 1
    virtual_stages: Amount
    recompute: Amount  # 0 none, 1 selective, 2 full

    @staticmethod
    def of(run: Run) -> "Shape":
        p = run.parallel
        return Shape(
            tokens=run.tokens / p.cp,
            sequence_tokens=float(run.sequence_tokens),
            micro_batches=float(run.micro_batches),
            **{name: float(getattr(p, name)) for name in SIZES},
            split_norms=float(p.tp if p.sequence_parallel else 1),
            recompute=float(("none", "selective", "full").index(run.recompute)),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One operator of one micro-batch on one rank (all its layers), or of the whole step."""

    name: str
    phase: str  # forward | backward | recompute | optimizer | communication
    seconds: Array
    flops: Array
    bytes: Array
    per_step: bool = False  # once a step instead of once a micro-batch


# --- operators of one layer -------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Product:
    """One matrix multiply of the forward pass: (rows, inner) x (inner, columns)."""

    name: str
    rows: Amount
    columns: Amount
    inner: Amount
    count: float = 1.0  # layers
    half: bool = False  # in 16 bits whatever the recipe
    experts: Amount = None  # of this rank, in a grouped product; None: a dense one
    padded: bool = False  # to round sizes
    weights: Amount = None  # elements read of the weights; None: columns x inner


# the matrices that each product of the forward pass multiplies by; those that read one input are one product
INDEXER_PRODUCTS = {"indexer/query": ("index_q",), "indexer/key": ("index_k", "index_weights", "index_pool")}
ATTENTION_PRODUCTS = {
    "attention/qkv": ("q", "k", "v", "gate_heads"), **INDEXER_PRODUCTS, "attention/output": ("o",),
}  # fmt: skip
LATENT_PRODUCTS = {
    "attention/query_down": ("q_down",), "attention/query_up": ("q",), "attention/kv_down": ("kv_down",),
    "attention/gate": ("gate_heads",), "attention/kv_up": ("kv_up",), **INDEXER_PRODUCTS, "attention/output": ("o",),
}  # fmt: skip
COMPRESSED_PRODUCTS = {
    "attention/down": ("q_down", "kv_down", "compress"), "attention/query_up": ("q",), **INDEXER_PRODUCTS,
    "attention/output_groups": ("o_groups",), "attention/output": ("o",),
}  # fmt: skip
RECURRENT_PRODUCTS = {
    "mixer/in": ("in",), "mixer/select": ("select",), "mixer/dt": ("dt",), "mixer/decay_down": ("decay_down",),
    "mixer/decay_up": ("decay_up",), "mixer/gate_down": ("gate_down",), "mixer/gate_up": ("gate_up",),
    "mixer/out": ("out",),
}  # fmt: skip
STREAM_PRODUCTS = {
    "residual/mixer": ("mix_mixer",), "residual/ffn": ("mix_ffn",), "residual/project": ("layer_project",),
    "residual/gate": ("layer_gate",), "residual/out": ("layer_out",),
}  # fmt: skip
DENSE_PRODUCTS = {"mlp/up": ("gate", "up"), "mlp/down": ("down",)}
EXPERT_PRODUCTS = {
    "moe/router": ("router",), "moe/up": ("gate", "up"), "moe/down": ("down",),
    "moe/shared_up": ("shared_gate", "shared_up"), "moe/shared_down": ("shared_down",),
    "moe/latent_in": ("latent_in",), "moe/latent_out": ("latent_out",),
}  # fmt: skip


def members(block: Block) -> dict[str, tuple[str, ...]]:
    """The products of one layer, with the names of their matrices."""
    of_mixer = (
        {} if block.mixer is None
        else LATENT_PRODUCTS if isinstance(block.mixer, LatentAttention)
        else ATTENTION_PRODUCTS if isinstance(block.mixer, Attention)
        else COMPRESSED_PRODUCTS if isinstance(block.mixer, CompressedAttention)
        else RECURRENT_PRODUCTS
    )  # fmt: skip
    of_ffn = {} if block.ffn is None else EXPERT_PRODUCTS if block.ffn.experts > 1 else DENSE_PRODUCTS
    return of_mixer | of_ffn | STREAM_PRODUCTS


def products(model: Model, block: Block, x: Shape) -> Iterator[Product]:
    """The matrix multiplies of one layer on one rank, without attention itself."""
    each = {matrix.name: matrix for matrix in matrices(block, model.hidden)}
    for name, names in members(block).items():
        if found := [each[n] for n in names if n in each]:
            yield _expert_product(name, found, block, x) if found[0].routed else _product(name, found, block, x)


def _product(name: str, found: Sequence[Matrix], block: Block, x: Shape) -> Product:
    columns = sum((rank_columns(m, np.asarray(x.tp)) for m in found), 0.0 * np.asarray(x.tp))
    router = found[0].name == "router"  # each tp rank routes its own tokens
    return Product(
        name=name,
        rows=x.tokens / x.tp if router else x.tokens,
        columns=columns,
        inner=rank_inner(found[0], np.asarray(x.tp)),
        count=float(block.count),
        half=found[0].half,
    )


def _expert_product(name: str, found: Sequence[Matrix], block: Block, x: Shape) -> Product:
    """A grouped product; experts whole on the ep ranks, else every expert split over the tp ranks."""
    spread, first = np.asarray(x.ep) > 1, found[0]
    here, split = first.copies / x.ep, np.where(spread, 1.0, x.tp)
    rows = x.tokens * first.used / np.where(spread, x.tp, 1.0)  # as many arrive as a rank sends
    rows_split = first.split == "rows"
    columns = sum(m.columns for m in found) / (1.0 if rows_split else split)
    inner = first.inner / (split if rows_split else 1.0)
    return Product(
        name=name,
        rows=rows,
        columns=columns,
        inner=inner,
        count=float(block.count),
        experts=here,
        weights=here * columns * inner,
    )


def products_s(r: Rates, p: Product, width: float) -> tuple[Array, Array, Array, Array]:
    """(forward, gradient of the input, gradient of the weights) seconds, and the FLOPs of each, which are the same.

    `width`: bytes per element of the weights and activations.
    """
    into, out, matrix = p.rows * p.inner, p.rows * p.columns, p.columns * p.inner
    flops = 2.0 * into * p.columns
    rate = r.half_flops_per_s if p.half else r.matmul_flops_per_s
    fractions = aligned_fractions(r, p.columns, p.inner) if not p.padded else (1.0, 1.0)

    def seconds(rows: Amount, columns: Amount, inner: Amount, read: Amount, written: Amount) -> Array:
        moved = width * read + 2.0 * written
        if p.experts is None:
            compute_s, memory_s = gemm_times(r, rate, rows, columns, inner, moved, fractions)
        else:
            padded = padded_rows(r, p.rows, p.experts) / p.rows
            compute_s, memory_s = flops * padded / (rate * r.expert_fraction), moved / r.memory_bytes_per_s
        return np.asarray(roof(compute_s, memory_s, r.roof_exponent) + r.kernel_s)

    weights = matrix if p.weights is None else p.weights
    forward = seconds(p.rows, p.columns, p.inner, weights + into, out)
    data = seconds(p.rows, p.inner, p.columns, weights + out, into)
    weight = seconds(p.columns, p.inner, p.rows, (into if p.weights is None else weights) + out, matrix)
    return forward, data, weight, flops + 0.0 * forward


def attention_flops(model: Model, block: Block, x: Shape) -> Amount:
    """FLOPs of the scores and the weighted sum of one layer's forward pass on one rank, causal pairs counted once."""
    a = block.mixer
    if not isinstance(a, SoftmaxAttention):
        return 0.0
    keys: Amount = 0.0
    for read in reads(a):
        all_keys = x.sequence_tokens if isinstance(a, Attention) and not a.causal else x.sequence_tokens / 2.0
        limited = isinstance(a, Attention) and a.window_tokens or isinstance(a, CompressedAttention)
        keys = keys + (np.minimum(all_keys, read.limit) if limited and read.limit else all_keys) / read.every
    return 2.0 * a.heads / x.tp * score_width(a) * x.tokens * keys


def score_width(a: SoftmaxAttention) -> int:
    """Elements multiplied for one query head and one key: scores and values."""
    match a:
        case Attention():
            return a.key_value_dim
        case LatentAttention():
            return a.nope_dim + a.rope_dim + a.v_dim
        case _:
            return 2 * a.head_dim


def head_factor(block: Block) -> float:
    """Rate of attention with this block's heads over that with heads of 128."""
    return SMALL_HEAD_FACTOR if isinstance(block.mixer, Attention) and block.mixer.head_dim <= 64 else 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Traffic:
    """Bytes of the element-wise kernels of one layer, per token, and how many kernels there are."""

    forward: Amount
    backward: Amount
    forward_kernels: float
    backward_kernels: float


def element_traffic(model: Model, block: Block, x: Shape, recipe: Recipe, code: Code) -> Traffic:
    """Norms, rotary embedding, gate, residuals, casts: what eager kernels read and write, or one fused kernel each.

    Eager kernels are counted one by one as autograd runs them: an RMSNorm in FP32 casts, squares, takes the mean,
    multiplies by the root and by the weight (36 bytes an element, 72 in its backward pass).
    """
    h, eager = float(model.hidden), not code.compiled
    stream = 4.0 if recipe.wide else 2.0
    fused_norm, eager_norm = (RMS_NORM_FP32, EAGER_NORM_FP32) if recipe.wide else (RMS_NORM, EAGER_NORM)
    norm, kernels = (eager_norm, (6, 14)) if code.norm == "eager_fp32" and eager else (fused_norm, (1, 2))
    split = h / x.split_norms
    forward, backward = block.norms * split * norm[0], block.norms * split * norm[1]
    forward, backward = forward + 2 * split * 3 * stream, backward + 2 * split * 3 * stream  # residuals
    forward_kernels, backward_kernels = 2.0 * kernels[0] + 2, 2.0 * kernels[1] + 2
    if code.gate == "eager" and eager:
        backward = backward + 3 * h * 3 * stream  # gradients of q, k, v and of gate, up added
        backward_kernels += 3
    if recipe.wide:  # each matrix casts its own input, and its gradient back
        forward, backward = forward + 5 * h * 6.0, backward + 5 * h * 6.0
        forward_kernels, backward_kernels = forward_kernels + 5, backward_kernels + 5
    a = block.mixer
    if isinstance(a, Attention):
        turned = (a.heads * a.head_dim + a.kv_heads * a.head_dim) / x.tp
        rotary = (
            (EAGER_ROTARY_FP32 if recipe.wide else EAGER_ROTARY) if code.rotary == "eager" and eager else (4.0, 4.0)
        )
        forward, backward = forward + turned * rotary[0], backward + turned * rotary[1]
        forward_kernels, backward_kernels = forward_kernels + 10, backward_kernels + 12
    f = block.ffn
    if f is not None:
        inner = f.inner * (f.top_k if f.experts > 1 else 1) + f.shared_inner
        gate = EAGER_GATE if code.gate == "eager" and eager else (6.0, 10.0)
        forward, backward = forward + inner / x.tp * gate[0], backward + inner / x.tp * gate[1]
        if f.experts > 1:  # permute to the experts and back, weighted sum
            forward, backward = forward + f.top_k * h * 10.0 / x.tp, backward + f.top_k * h * 10.0 / x.tp
    return Traffic(
        forward=forward, backward=backward, forward_kernels=forward_kernels + 2, backward_kernels=backward_kernels + 4
    )


def loss_bytes(code: Code) -> tuple[float, float]:
    """(forward, backward) bytes per token and vocabulary entry of the loss.

    upcast: FP32 copy, log-softmax, its gradient, cast back. Fused losses read and write 16-bit logits once.
    """
    if code.loss == "upcast":
        return (12.0, 14.0) if code.compiled else EAGER_LOSS
    return 6.0, 6.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Repeats:
    """Shares of the forward pass that the backward pass computes again."""

    products: Amount  # of products that are kept nowhere
    scores: Amount
    elements: Amount


def repeats(x: Shape, code: Code) -> Repeats:
    """What recomputation repeats: all of a layer, or with `selective` what the code chooses."""
    full, selective = np.asarray(x.recompute) == 2, np.asarray(x.recompute) == 1
    if code.selective == "operators":
        return Repeats(
            products=np.where(full | selective, 1.0, 0.0),
            scores=np.where(full, 1.0, 0.0),
            elements=np.where(full | selective, 1.0, 0.0),
        )
    return Repeats(
        products=np.where(full, 1.0, 0.0),
        scores=np.where(full | selective, 1.0, 0.0),
        elements=np.where(full, 1.0, 0.0),
    )


def repeated_part(model: Model, block: Block, name: str, x: Shape, code: Code) -> Amount:
    """Part of a product that recomputation repeats, of a layer whose products are not all kept."""
    early = 0.0 if code.stops_early and name == "mlp/down" else 1.0
    if code.selective != "operators":
        return early
    each = kept_in_order(model, block)
    sizes = {m.name: m.elements for m in each if m.name in members(block)[name]}
    again = {m.name for m in each[1::2]}  # every second result is kept, from the first on (memory)
    part = sum(n for each_name, n in sizes.items() if each_name in again) / sum(sizes.values()) if sizes else 0.0
    return np.where(np.asarray(x.recompute) == 1, part, early)


def ledger(model: Model, x: Shape, r: Rates, run: Run) -> list[Line]:
    """All operators of a rank that has layers / pp of the layers, and the output head's share of a mean stage."""
    lines: list[Line] = []
    recipe, code = run.recipe, run.code
    trains_base = recipe.method == "full"
    share, again = 1.0 / x.pp, repeats(x, code)

    zero = np.zeros(np.broadcast_shapes(np.shape(x.tokens), np.shape(x.tp), np.shape(x.pp), np.shape(x.recompute)))

    def add(name: str, phase: str, seconds: Any, flops: Any = 0.0, moved: Any = 0.0) -> None:
        lines.append(Line(name=name, phase=phase, seconds=seconds + zero, flops=flops + zero, bytes=moved + zero))

    width = NARROW_BYTES.get(recipe.matmul_dtype, 2.0)
    for block in decoder_blocks(model):
        n = block.count * share
        for p in products(model, block, x):
            once, data, weight, flops = products_s(r, p, 2.0 if p.half else width)
            quantize = r.quantize_bytes * p.rows * p.inner / r.memory_bytes_per_s if not p.half else 0.0
            grads = r.quantize_bytes * p.rows * p.columns / r.memory_bytes_per_s if not p.half else 0.0
            add(p.name, "forward", n * (once + quantize), n * flops)
            add(p.name, "backward", n * (data + grads + (weight if trains_base else 0.0)),
                n * flops * (2.0 if trains_base else 1.0))  # fmt: skip
            repeated = again.products * repeated_part(model, block, p.name, x, code) * n
            add(p.name, "recompute", repeated * (once + quantize), repeated * flops)
            if recipe.method == "qlora" and not p.half:
                held = p.columns * p.inner if p.weights is None else p.weights
                moved = held * (recipe.frozen_bytes + 2.0)  # bitsandbytes writes the 16-bit matrix before each product
                seconds = n * (moved / r.memory_bytes_per_s + DEQUANTIZE_KERNELS * r.kernel_s)
                for phase, times in (("forward", 1.0), ("backward", 1.0), ("recompute", np.sign(repeated))):
                    add("dequantization", phase, times * seconds, 0.0, times * n * moved)
            if recipe.adapter_rank and is_adapted(recipe, ADAPTED.get(p.name, "")):
                _adapters(add, p, r, recipe, n)
        scores, rate = n * attention_flops(model, block, x), head_factor(block)
        forward_s = scores / rate / r.attention_forward_flops_per_s
        backward_s = BACKWARD_ATTENTION * scores / rate / r.attention_backward_flops_per_s
        add("attention/scores", "forward", forward_s, scores)
        add("attention/scores", "backward", backward_s, BACKWARD_ATTENTION * scores)
        add("attention/scores", "recompute", again.scores * forward_s, again.scores * scores)
        t = element_traffic(model, block, x, recipe, code)
        for phase, each, kernels in (
            ("forward", t.forward, t.forward_kernels),
            ("backward", t.backward, t.backward_kernels),
        ):
            seconds = n * (x.tokens * each / r.memory_bytes_per_s + kernels * r.kernel_s)
            add("element-wise", phase, seconds, 0.0, n * x.tokens * each)
            if phase == "forward":
                add("element-wise", "recompute", again.elements * seconds)
    _head(add, model, x, r, run)
    return lines


def _adapters(add: Any, p: Product, r: Rates, recipe: Recipe, n: Amount) -> None:
    """LoRA on one matrix: its input cast to the adapter's type, two thin products, the sum; and their gradients."""
    (into, out), (into_back, out_back) = ADAPTER_BYTES[4.0 if recipe.adapter_bytes == 4.0 else 2.0]
    flops = n * 2.0 * p.rows * recipe.adapter_rank * (p.inner + p.columns)
    forward, backward = (n * p.rows * (p.inner * a + p.columns * b) for a, b in ((into, out), (into_back, out_back)))
    add("adapters", "forward", forward / r.memory_bytes_per_s + n * 5 * r.kernel_s, flops, forward)
    add("adapters", "backward", backward / r.memory_bytes_per_s + n * 8 * r.kernel_s, 2 * flops, backward)


def _head(add: Any, model: Model, x: Shape, r: Rates, run: Run) -> None:
    """Embedding, output head and loss: on the first and last stage, counted on the last, which has both in turn."""
    m, h, vocab = x.tokens, float(model.hidden), model.vocab / x.tp
    head = Product(
        name="lm_head", rows=m, columns=vocab, inner=h, half=True, padded=run.code.loss == "vocabulary_parallel"
    )
    once, data, weight, flops = products_s(r, head, 2.0)
    trains_base = run.recipe.method == "full"
    add("lm_head", "forward", once, flops)
    add("lm_head", "backward", data + (weight if trains_base else 0.0), flops * (2.0 if trains_base else 1.0))
    for phase, each in zip(("forward", "backward"), loss_bytes(run.code), strict=True):
        add("loss", phase, m * vocab * each / r.memory_bytes_per_s, 0.0, m * vocab * each)
    gradient = model.vocab / x.tp * h * run.recipe.compute_bytes if trains_base else 0.0
    add("embedding", "forward", m * h * 4.0 / r.memory_bytes_per_s)
    add("embedding", "backward", (gradient + m * h * 6.0) / r.memory_bytes_per_s)


# --- parameters of a rank ---------------------------------------------------------------------------------------


def trained_parameters(model: Model, recipe: Recipe) -> float:
    """Parameters that the optimizer updates: all, or rank x (inner + columns) of each adapted matrix."""
    if recipe.method == "full":
        return float(parameters(model))
    return sum(
        block.count * recipe.adapter_rank * p.copies * (p.columns + p.inner)
        for block in decoder_blocks(model)
        for p in kept_in_order(model, block)
        if is_adapted(recipe, p.name)
    )


def expert_ranks(x: Shape) -> Amount:
    """Ranks that one set of the experts is spread over."""
    return np.where(np.asarray(x.ep) > 1, x.ep, x.tp)


def rank_parameters(model: Model, x: Shape) -> tuple[Amount, Amount]:
    """(dense, routed experts) parameters of one rank before sharding over data-parallel ranks, on a mean stage.

    Experts are spread over the ep ranks; without expert parallelism they are split over the tp ranks.
    """
    routed = 0.0
    for block in decoder_blocks(model):
        routed += block.count * float(sum(m.elements * m.copies for m in matrices(block, model.hidden) if m.routed))
    return (float(parameters(model)) - routed) / x.tp / x.pp, routed / expert_ranks(x) / x.pp


def rank_trained(model: Model, x: Shape, recipe: Recipe) -> tuple[Amount, Amount]:
    """(dense, routed experts) parameters of one rank that the optimizer updates."""
    if recipe.method == "full":
        return rank_parameters(model, x)
    return trained_parameters(model, recipe) / x.tp / x.pp, 0.0
