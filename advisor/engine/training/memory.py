"""Memory of one training step on the rank that needs most: what it stores, keeps for the backward pass and copies.

The peak is the largest of a few moments of the step: the loss, the first and the last layer of the backward pass, its
end with all gradients and the last reduction, and the optimizer's update. What a layer keeps follows from which inputs
the gradients of its operators need, tensor by tensor (Korthikanti et al. 2022, arXiv 2205.05198, for Megatron's layer);
sharded states follow ZeRO (arXiv 1910.02054) and PyTorch's FSDP2. Bytes per token that are called measured were read
from PyTorch 2.11's allocator on an H100, 2026-11-25; they agree to the byte.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil
from typing import Literal

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
    embedding_parameters,
    matrices,
    mixer_matrices,
    mixer_vectors,
    parameters,
)
from advisor.engine.network import block_parameters as layer_parameters
from advisor.engine.training.run import Parallel, Recipe, Run

Phase = Literal["loss", "backward", "optimizer"]
Split = Literal["heads", "norm", "input", "routed"]

# cuBLAS and cuBLASLt take 32 MiB each on Hopper (PyTorch: aten/src/ATen/cuda/CublasHandlePool.cpp); measured 67 MB
WORKSPACE_BYTES = 2 * 32 * 2.0**20
# Outside PyTorch's allocator, measured on two H100s with NCCL 2.28: 1.70e9 bytes, of which a CUDA context with the
# kernels of PyTorch has about 0.6e9; the rest is NCCL's channels and their buffers.
CONTEXT_BYTES, NCCL_BYTES = 0.6e9, 1.1e9
BACK = ("o", "out", "down", "shared_down")  # products whose result is added to the residual stream
DDP_BUCKETS = 2.0  # DDP rebuilds its buckets in the second step and holds the first set until the third: measured
NARROW_BYTES = {"fp8": 1.0, "mxfp8": 1.0, "nvfp4": 0.5625}  # of an element with its scales
MASK_BYTES = 1.0  # of dropout, per element
DEEPSPEED_BUCKET = 5e8  # elements of ZeRO-2's reduction bucket (DeepSpeed, reduce_bucket_size)
CHUNK_TOKENS = 128  # of each sequence in one chunk of a chunked loss (LitGPT, chunked_cross_entropy)
# Share of the loss's tensors that stays cached as holes: one of its three, the freed FP32 copy of the logits, is cut up
# by smaller tensors. Measured 0.1 to 0.3 in runs of one stream; a run that would have kept 0.26 ran out of memory.
HOLES = 1.0 / 3.0
# Benchmarks with sequences of one length run up to the limit (fixtures/fidelity/llm_foundry.csv). Data of all lengths
# leave cached blocks of other sizes, the more the larger the activations: GMLake found 15 % on average and up to 33 %
# in fine-tuning on A100s (arXiv 2401.08156). The upper end, for a run that dies after hours is worse than a margin.
VARIED_HOLES = 1.0 / 3.0


@dataclass(frozen=True, kw_only=True, slots=True)
class PeakMemory:
    """Bytes on the rank that needs most, at the moment when it needs most."""

    parameters_bytes: float  # stored weights, with the frozen base of LoRA
    gradients_bytes: float
    states_bytes: float  # of the optimizer
    master_bytes: float
    gathered_bytes: float  # whole weights of FSDP units; 16-bit copies of autocast
    activations_bytes: float  # kept for the backward pass, and the layer at work
    logits_bytes: float
    buffers_bytes: float  # of reductions and gradients at work, and workspaces of libraries
    phase: Phase
    stage: int  # rank of the pipeline
    holes_bytes: float = 0.0  # cached by the allocator in pieces that nothing fits into
    pools_bytes: float = 0.0  # cached for FSDP's own streams, which other streams cannot use

    @property
    def allocated_bytes(self) -> float:
        """Peak of torch.cuda.max_memory_allocated."""
        return (
            self.parameters_bytes + self.gradients_bytes + self.states_bytes + self.master_bytes + self.gathered_bytes
            + self.activations_bytes + self.logits_bytes + self.buffers_bytes
        )  # fmt: skip

    @property
    def reserved_bytes(self) -> float:
        """Peak of torch.cuda.max_memory_reserved: the sum of each stream's own peak, and holes.

        Cached blocks go back to the driver before an allocation fails, so a run can fit that would reserve more.
        """
        return self.allocated_bytes + self.holes_bytes + self.pools_bytes


def outside_bytes(run: Run) -> float:
    """Bytes that a process takes outside the framework's allocator: the context, and NCCL's buffers."""
    return CONTEXT_BYTES + (NCCL_BYTES if run.parallel.chips > 1 else 0.0)


def fits(peak: PeakMemory, accelerator_memory_bytes: float, other_bytes: float = CONTEXT_BYTES + NCCL_BYTES) -> bool:
    """Whether the peak, the holes that the allocator cannot give back and what is outside it fit (outside_bytes)."""
    return peak.allocated_bytes + peak.holes_bytes + other_bytes <= accelerator_memory_bytes


def peak_memory(model: Model, run: Run, layers: "tuple[LayerBytes, ...] | None" = None) -> PeakMemory:
    """The largest moment of one step over all ranks of the pipeline, with the longest sequences.

    `layers`: of this model and run, if known.
    """
    run = replace(run, sequence_tokens=run.longest_tokens or run.sequence_tokens)
    each = layers or layer_bytes(model, run)
    moments = (moment for stage in _stages(model, run, each) for moment in _moments(model, run, stage))
    peak = max(moments, key=lambda m: m.allocated_bytes)
    if not run.varied_lengths:
        return peak
    return replace(peak, holes_bytes=peak.holes_bytes + VARIED_HOLES * (peak.activations_bytes + peak.logits_bytes))


# --- what a layer keeps for the backward pass -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Kept:
    """Bytes per token of a tensor that the backward pass needs, and what splits it over the tp ranks.

    heads: always; norm: with sequence parallelism; input: of a column-parallel product, gathered, and kept whole by
    DTensor but split by Megatron-Core, which gathers it again; routed: tokens at their experts.
    """

    bytes: float
    split: Split


def products(model: Model, block: Block) -> list[Matrix]:
    """The matrices that a layer multiplies by, in order; routers left out."""
    return [m for m in matrices(block, model.hidden) if m.name != "router"]


def _inward(model: Model, block: Block, a: Recurrent) -> float:
    """Columns of a recurrent layer's weights but the last matrix, which has `inner` rows, as if all read the input."""
    weights = sum(m.elements for m in mixer_matrices(a, model.hidden)) + mixer_vectors(a, model.hidden)
    return weights / model.hidden - a.inner


@dataclass(frozen=True, slots=True)
class Widths:
    """Bytes of one element, by what the run computes in."""

    half: float  # of what matrix multiplies give and attention reads
    stream: float  # of the residual stream
    quantized: float  # of an input that a fused library keeps for the gradient of the weight
    adapter: float  # of an input of LoRA's matrices

    @staticmethod
    def of(run: Run) -> "Widths":
        recipe = run.recipe
        half = 4.0 if recipe.matmul_dtype == "fp32" else 2.0
        narrow = NARROW_BYTES.get(recipe.matmul_dtype, half)
        fused = run.code.gate == "fused"  # Transformer Engine keeps the 8-bit input; torchao casts it again
        adapter = recipe.compute_bytes if _fsdp(run) else recipe.adapter_bytes
        return Widths(half, 4.0 if recipe.wide else half, narrow if fused else half, adapter)


ADAPTED = {"query_value": ("q", "v", "kv_up"), "attention": ("q", "k", "v", "kv_up", "q_down", "kv_down", "o")}


def is_adapted(recipe: Recipe, name: str) -> bool:
    """Whether LoRA trains an adapter beside the matrix of this name."""
    return recipe.method != "full" and (recipe.adapter_matrices == "all" or name in ADAPTED[recipe.adapter_matrices])


def _norm_bytes(run: Run, w: Widths, width: float, of_stream: bool = True) -> float:
    """Bytes per token that a norm keeps: its input; eager in FP32: an FP32 input and, for its weight, the result."""
    stream = w.stream if of_stream else w.half
    if run.code.compiled or run.code.norm == "fused":
        return stream * width
    return (4.0 + (stream if run.recipe.method == "full" else 0.0)) * width


def _input_bytes(run: Run, w: Widths, width: float, names: tuple[str, ...]) -> float:
    """Bytes per token of one tensor that the products `names` share as their input.

    Autocast casts it once for each of them; LoRA keeps only what its own matrices read: the tensor itself, or a copy of
    each matrix's own where that is wider or has its own dropout.
    """
    if run.recipe.method == "full":
        eager = run.recipe.wide and not run.code.compiled
        return width * (w.half * len(names) if eager else w.quantized)
    count = sum(is_adapted(run.recipe, name) for name in names)
    if run.recipe.adapter_dropout:
        return width * count * (w.adapter + MASK_BYTES)
    return width * (min(count, 1) * w.half if w.adapter == w.half else count * w.adapter)


def _own_bytes(run: Run, w: Widths, width: float, name: str, kept: bool) -> float:
    """Bytes per token of the input of `name`; `kept`: the operator before keeps it in 16 bits anyway."""
    if run.recipe.method == "full":
        return width * (w.quantized if not kept or w.quantized != w.half else 0.0)
    if not is_adapted(run.recipe, name):
        return 0.0
    if run.recipe.adapter_dropout:
        return width * (w.adapter + MASK_BYTES)
    return width * (w.adapter if not kept or w.adapter != w.half else 0.0)


def _kept(model: Model, block: Block, run: Run, w: Widths) -> list[Kept]:
    """All that one layer keeps without recomputation."""
    h, a, f = float(model.hidden), block.mixer, block.ffn
    first, later = _norm_bytes(run, w, h), _norm_bytes(run, w, h)
    if run.code.compiled == "block":
        later = w.half * h  # keeps the branch's 16-bit result and adds the residual again
    kept = [Kept(first + later * (block.norms - 1), "norm")]
    if isinstance(a, Attention):
        kept += _attention(a, h, run, w)
    elif isinstance(a, LatentAttention):
        kept += _latent_attention(a, h, run, w)
    elif isinstance(a, CompressedAttention):
        kept += _compressed_attention(a, h, run, w)
    elif isinstance(a, Recurrent):
        kept += [Kept(_input_bytes(run, w, h, ("in",)), "input")]
        kept += [Kept(w.half * (2.0 * _inward(model, block, a) + 3.0 * a.inner), "heads")]
    if f is not None:
        alone = block.norms > 1 or a is None or run.recipe.wide  # one norm: attention reads the same input
        kept += _ffn(f, h, run, w, alone)
    return kept


def _core(run: Run, w: Widths, heads: float, elements: float, out: float) -> list[Kept]:
    """Queries, keys and values, the output and a row's log-sum; with stored scores, their softmax as well."""
    kept = [Kept(w.half * elements, "heads")]
    if run.code.attention != "math":
        return [*kept, Kept(w.half * out + 4.0 * heads, "heads")]
    softmax = w.half if run.code.gate == "fused" else 4.0 + w.half  # eager: in FP32, then cast
    scores = 0.0 if run.recompute == "selective" else softmax * heads * run.sequence_tokens
    return [*kept, Kept(w.half * out + scores, "heads")]


def _attention(a: Attention, h: float, run: Run, w: Widths) -> list[Kept]:
    query, key, value, out = (float(n) for n in (a.heads * a.head_dim, a.kv_heads * a.head_dim, a.kv_heads * a.v_dim,
                                                 a.heads * a.v_dim))  # fmt: skip
    whole = max(1.0, run.parallel.tp / a.kv_heads)  # heads of keys and values that tp ranks share are copied
    keys = (key + value) * whole
    kept = [Kept(_input_bytes(run, w, h, ("q", "k", "v")), "input")]
    kept += _core(run, w, a.heads, query + keys, out)
    kept += [Kept(_own_bytes(run, w, out, "o", kept=True), "heads")]
    if a.qk_norm:
        kept += [Kept(_norm_bytes(run, w, query + key * whole, of_stream=False), "heads")]
    if a.output_gate:
        kept += [Kept(2.0 * w.half * query, "heads")]
    if run.code.compiled == "full":
        kept += [Kept(w.half * (query + keys), "heads")]  # before the rotary embedding: measured
    return kept


def _latent_attention(a: LatentAttention, h: float, run: Run, w: Widths) -> list[Kept]:
    query, ranks = float(a.heads * (a.nope_dim + a.rope_dim)), float(a.q_rank + a.kv_rank)
    value, up = float(a.heads * a.v_dim), float(a.heads * (a.nope_dim + a.v_dim))
    eager = run.code.gate == "eager" and not run.code.compiled  # values are a part of a kept product; output copied
    kept = [Kept(_input_bytes(run, w, h, ("q_down" if a.q_rank else "q", "kv_down")), "input")]
    kept += [Kept(_norm_bytes(run, w, ranks, of_stream=False), "norm")]
    kept += [Kept(_input_bytes(run, w, ranks, ("kv_up",)), "norm")]
    kept += _core(run, w, a.heads, 2 * query + (up if eager else value), value * (2.0 if eager else 1.0))
    return [*kept, Kept(_own_bytes(run, w, value, "o", kept=True), "heads")]


def _compressed_attention(a: CompressedAttention, h: float, run: Run, w: Widths) -> list[Kept]:
    query, ranks = float(a.heads * a.head_dim), float(a.q_rank + a.head_dim * (1 + 2 * a.parts))
    grouped = float(a.output_groups * a.output_rank)
    kept = [Kept(_input_bytes(run, w, h, ("q_down", "kv_down")), "input")]
    kept += [Kept(_norm_bytes(run, w, ranks, of_stream=False), "norm")]
    kept += _core(run, w, a.heads, 2 * query, query)
    return [*kept, Kept(w.half * grouped + _own_bytes(run, w, grouped, "o", kept=True), "heads")]


def _ffn(f: Ffn, h: float, run: Run, w: Widths, alone: bool) -> list[Kept]:
    inward = ("gate", "up") if f.matrices == 3 else ("up",)
    kept = [Kept(_input_bytes(run, w, h, inward), "input")] if alone else []
    if f.experts == 1:
        return [*kept, Kept(_gate(f.inner, f.matrices, run, w, ""), "heads")]
    k, spread = float(f.top_k), run.parallel.ep > 1
    kept += [Kept(k * _input_bytes(run, w, h, ("up",)), "routed"), Kept(4.0 * f.experts + 24.0 * k, "norm")]
    kept += [Kept(k * _gate(f.inner, f.matrices, run, w, ""), "routed" if spread else "heads")]
    kept += [Kept(k * h * (w.half if run.code.gate == "eager" else 0.0), "routed")]  # times the router's weight
    if f.shared_inner:
        kept += [Kept(_gate(f.shared_inner, f.matrices, run, w, "shared_"), "heads")]
    return kept


def _gate(inner: float, matrices: int, run: Run, w: Widths, prefix: str) -> float:
    """Bytes per token of the gate, its activation, the other branch and their product, the input of the last matrix."""
    fused = run.code.gate == "fused" or bool(run.code.compiled)
    tensors = 1 if matrices < 3 else 2 if fused else 3
    return w.half * inner * tensors + _own_bytes(run, w, inner, f"{prefix}down", kept=False)


def _fractions(p: Parallel, run: Run) -> dict[Split, float]:
    """The part of a rank of each kind of tensor."""
    norm = 1.0 / p.tp if p.sequence_parallel else 1.0
    whole = 1.0 if run.code.dtensor else norm
    return {"heads": 1.0 / p.tp, "norm": norm, "input": whole, "routed": norm if p.ep > 1 else whole}


def _sum(kept: list[Kept], run: Run) -> float:
    fractions = _fractions(run.parallel, run)
    return sum(k.bytes * fractions[k.split] for k in kept)


def kept_bytes_per_token(model: Model, block: Block, run: Run) -> float:
    """Bytes per token that one layer keeps from its forward to its backward pass on one tp rank."""
    w, h = Widths.of(run), float(model.hidden)
    entry = Kept(w.stream * h * block.residual_streams, "norm")
    if run.recompute == "full":
        return _sum([entry], run)
    if run.recompute == "selective" and run.code.selective == "operators":
        return _sum([entry, *_every_second_product(model, block, run, w)], run)
    return _sum(_kept(model, block, run, w), run)


def _every_second_product(model: Model, block: Block, run: Run, w: Widths) -> Iterator[Kept]:
    """Results of every second product and of attention (torchtitan, selective_ac_option "op"): measured.

    A compiled layer does not keep a result that is only added to the residual stream.
    """
    for product in products(model, block)[::2]:
        back = product.name in BACK
        if not (back and run.code.compiled):
            yield Kept(w.half * product.used * product.columns, "norm" if back else "heads")
    a = block.mixer
    if isinstance(a, SoftmaxAttention):
        width = a.head_dim if isinstance(a, CompressedAttention) else a.v_dim
        yield Kept(w.half * a.heads * width + 4.0 * a.heads, "heads")


def _at_work(model: Model, block: Block, run: Run) -> float:
    """Bytes per token of gradients at work in one layer's backward pass: measured three widths of the gate."""
    half, h, f = Widths.of(run).half, float(model.hidden), block.ffn
    core = sum(p.columns for p in products(model, block) if p.name in ("q", "k", "v", "kv_up", "in"))
    mixer = [Kept(2.0 * half * core, "heads")]
    if f is None:
        return _sum(mixer, run)
    rows = f.top_k if f.experts > 1 else 1
    inner = [Kept(half * f.matrices * f.inner * rows, "routed" if f.experts > 1 and run.parallel.ep > 1 else "heads")]
    if f.experts > 1:
        inner += [Kept(2.0 * half * rows * h, "routed")]
    return max(_sum(inner, run), _sum(mixer, run))


@dataclass(frozen=True, slots=True)
class LayerBytes:
    """One layer on one tp rank, whatever the pipeline and the batch: bytes per token, and its weights."""

    block: Block
    kept: float  # from the forward to the backward pass
    work: float  # kept without recomputation, and the gradients at work
    weights: "Weights"
    adapters: "Weights"
    gathered: float  # bytes of its whole weights, as FSDP gathers them


def layer_bytes(model: Model, run: Run) -> tuple[LayerBytes, ...]:
    """The layer of each block. It follows from recipe, code, recomputation, sequence, tp, ep and zero alone."""
    whole = replace(run, recompute="none")
    found = []
    for block in model.blocks:
        kept = kept_bytes_per_token(model, block, run)
        work = (kept if run.recompute == "none" else kept_bytes_per_token(model, block, whole)) + _at_work(
            model, block, run
        )
        weights, adapters = _layer_weights(model, block, run.parallel), _layer_adapters(model, block, run)
        gathered = _weight_bytes(run, weights, adapters)
        found.append(LayerBytes(block, kept, work, weights, adapters, gathered))
    return tuple(found)


# --- parameters and states --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Weights:
    """Numbers of weights on one rank before data-parallel sharding: split like the batch, and of routed experts."""

    dense: float = 0.0
    routed: float = 0.0

    def __add__(self, other: "Weights") -> "Weights":
        return Weights(self.dense + other.dense, self.routed + other.routed)

    def times(self, factor: float) -> "Weights":
        return Weights(self.dense * factor, self.routed * factor)

    @property
    def whole(self) -> float:
        return self.dense + self.routed

    def shard(self, p: Parallel, sharded: bool = True) -> float:
        """Weights of one rank when the data-parallel ranks share them."""
        if not sharded:
            return self.whole
        expert_ranks = max(p.shards * p.tp / p.ep, 1.0) if p.ep > 1 else float(p.shards)
        return self.dense / p.shards + self.routed / expert_ranks


def _layer_weights(model: Model, block: Block, p: Parallel) -> Weights:
    """Weights of one layer on one tp rank; experts over ep ranks instead of tp ranks where ep > 1."""
    each = matrices(block, model.hidden)
    routed = block.streams * float(sum(m.elements * m.copies for m in each if m.routed))
    whole = float(model.hidden * block.norms + sum(m.elements for m in each if m.split == "whole"))
    copied = sum(m.inner * max(m.least - m.columns / p.tp, 0.0) for m in each if m.least > 1)
    split = layer_parameters(model, block) - routed - whole
    return Weights(split / p.tp + whole + copied, routed / (p.ep if p.ep > 1 else p.tp))


def _layer_adapters(model: Model, block: Block, run: Run) -> Weights:
    """Weights of LoRA: rank x (rows + columns) of each adapted matrix."""
    p, found = run.parallel, Weights()
    if run.recipe.method == "full":
        return found
    for product in products(model, block):
        if is_adapted(run.recipe, product.name):
            count = run.recipe.adapter_rank * (product.inner + product.columns) * product.copies
            found += Weights(0.0, count / (p.ep if p.ep > 1 else p.tp)) if product.copies > 1 else Weights(count / p.tp)
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class Stage:
    """A rank of the pipeline: its layers, whether it has the embeddings and the head, and what it stores."""

    index: int
    layers: tuple[tuple[LayerBytes, int], ...]
    in_flight: float  # micro-batches whose activations it keeps at once
    tables: Weights  # embeddings, output head, final norm and encoders of images
    head: Weights  # the output head alone; none on other stages than the last
    embedding: Weights
    trained: Weights
    frozen: Weights


def _stages(model: Model, run: Run, each: tuple[LayerBytes, ...]) -> list[Stage]:
    """The ranks of the pipeline; of ranks with the same layers only the first, which keeps most in flight."""
    p = run.parallel
    found: dict[object, tuple[int, tuple[tuple[int, int], ...]]] = {}
    for index in range(p.pp):
        counts = _stage_layers(model, p, index)
        found.setdefault((counts, index == 0, index == p.pp - 1), (index, counts))
    return [
        _stage(model, run, index, tuple((each[i], count) for i, count in counts)) for index, counts in found.values()
    ]


def _stage(model: Model, run: Run, index: int, layers: tuple[tuple[LayerBytes, int], ...]) -> Stage:
    p = run.parallel
    table = Weights(model.vocab * model.hidden / p.tp)
    first, last = index == 0, index == p.pp - 1
    outside = embedding_parameters(model) - (1 if model.tied_embeddings else 2) * model.vocab * model.hidden
    extras = parameters(model) - embedding_parameters(model) - _block_total(model) if first else 0
    tables = Weights((outside if last else 0.0) + extras)
    head = last and not model.encoder_only
    one = first and head and model.tied_embeddings
    tables += table.times(first + head - one)
    base, adapters = tables, Weights()
    for layer, count in layers:
        base += layer.weights.times(count)
        adapters += layer.adapters.times(count)
    full = run.recipe.method == "full"
    return Stage(
        index=index, layers=layers, in_flight=_in_flight(run, index), tables=tables, head=table.times(head),
        embedding=table.times(first and not one), trained=base if full else adapters,
        frozen=Weights() if full else base,
    )  # fmt: skip


def _block_total(model: Model) -> int:
    return sum(block.count * layer_parameters(model, block) for block in model.blocks)


def _stage_layers(model: Model, p: Parallel, index: int) -> tuple[tuple[int, int], ...]:
    """(place of a block, layers) of one rank: equal parts in order, or every pp-th part of an interleaved schedule."""
    total = sum(block.count for block in model.blocks)
    parts = p.pp * p.virtual_stages
    spans = [(total * i // parts, total * (i + 1) // parts) for i in range(index, parts, p.pp)]
    found, start = [], 0
    for i, block in enumerate(model.blocks):
        end = start + block.count
        if count := sum(max(0, min(end, to) - max(start, at)) for at, to in spans):
            found.append((i, count))
        start = end
    return tuple(found)


def _in_flight(run: Run, index: int) -> float:
    """Micro-batches in flight at once, in units of this rank's layers.

    1F1B: pp - index. Interleaved: 2 (pp - index - 1) + (v - 1) pp parts of 1 / v warm up and one is at work, on the
    first rank pp (1 + (pp - 1) / (pp v)) (Narayanan et al. 2021, arXiv 2104.04473; Korthikanti et al. 2022).
    """
    p, v = run.parallel, run.parallel.virtual_stages
    deep = p.pp - index if v == 1 else (2 * (p.pp - index - 1) + (v - 1) * p.pp + 1) / v
    return float(min(deep, run.micro_batches)) if p.pp > 1 else 1.0


def _fsdp(run: Run) -> bool:
    """Whether layers are gathered before use: stage 3, or stage 2 of FSDP, which has no copy beside its shards."""
    zero = run.parallel.zero
    return zero >= 3 or (zero == 2 and run.recipe.master_bytes == 0) or run.offload == "all"


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelStates:
    """Bytes that one rank stores from the end of the backward pass to the optimizer's step."""

    parameters_bytes: float
    gradients_bytes: float
    states_bytes: float
    master_bytes: float

    @property
    def total_bytes(self) -> float:
        return self.parameters_bytes + self.gradients_bytes + self.states_bytes + self.master_bytes


def _stored(run: Run, stage: Stage) -> ModelStates:
    p, recipe, here = run.parallel, run.recipe, run.offload != "all"
    # DeepSpeed moves gradients to the host in buckets as they come (stage_1_and_2.py)
    summed_here = run.offload == "none" or (here and (p.zero < 2 or run.code.gradient_buffer))
    sharded = p.zero >= 3 or _fsdp(run)
    states = stage.trained.shard(p, p.zero >= 1) * (run.offload == "none")
    weights = recipe.parameter_bytes * stage.trained.shard(p, sharded)
    base = Weights(stage.frozen.dense - stage.tables.dense, stage.frozen.routed)
    if recipe.method != "full":  # tables stay in 16 bits where the layers are quantized
        weights += recipe.frozen_bytes * base.shard(p, sharded)
        weights += max(recipe.frozen_bytes, 2.0) * stage.tables.shard(p, sharded)
    return ModelStates(
        parameters_bytes=weights * here,
        gradients_bytes=recipe.gradient_bytes * stage.trained.shard(p, p.zero >= 2) * summed_here,
        states_bytes=recipe.state_bytes * states,
        master_bytes=recipe.master_bytes * states,
    )


# --- the step's moments -----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Sizes:
    """Bytes on one rank that the moments are made of."""

    kept: float  # by all layers, of one micro-batch
    first_layer: float  # kept by the first layer without recomputation, and the gradients at work in it
    last_layer: float
    last_kept: float  # part of `kept` of the last layer
    head: float  # kept by the final norm and the output head
    logits: float  # tensors of the loss
    cut: float  # part of those whose cached blocks are cut up
    unit: float  # whole weights of the largest layer, as gathered
    layers: float  # whole weights of all layers, as gathered
    first_weights: float  # number of trained weights of the first layer
    cast: float  # 16-bit copies of weights at the end of the forward pass
    cast_back: float  # the same at the end of the loss
    always: float  # buckets of gradients, workspaces
    dequantized: float  # a quantized matrix in 16 bits, while a product reads it


def _weight_bytes(run: Run, base: Weights, adapters: Weights) -> float:
    """Bytes of weights as gathered: in the compute format, quantized base weights as they are."""
    recipe = run.recipe
    if recipe.method == "full":
        return recipe.compute_bytes * base.whole
    frozen = recipe.frozen_bytes if recipe.method == "qlora" else recipe.compute_bytes
    return frozen * base.whole + recipe.compute_bytes * adapters.whole


def _loss(model: Model, run: Run, stage: Stage) -> tuple[float, float, float]:
    """Bytes (kept by the final norm and head, of the loss's tensors, of those as large as the vocabulary)."""
    if not stage.head.dense:
        return 0.0, 0.0, 0.0
    w, h, tokens, code = Widths.of(run), float(model.hidden), run.tokens / run.parallel.cp, run.code
    compiled_layers = code.compiled == "block"  # outside of them nothing is compiled
    norm = _norm_bytes(replace(run, code=replace(code, compiled="")) if compiled_layers else run, w, h)
    head = w.half * h if run.recipe.method == "full" else 0.0
    kept = tokens * _sum([Kept(norm, "norm"), Kept(head, "input")], run)
    if code.loss == "fused_linear":  # chunks of tokens; gradients of hidden states and head at once (Liger Kernel)
        chunk = 4.0 * tokens * model.vocab / max(1, ceil(model.vocab / h))
        gradient = run.recipe.compute_bytes * stage.head.whole if run.recipe.method == "full" else 0.0
        return kept, chunk + tokens * w.half * h + gradient, chunk
    if code.loss == "chunked":
        chunk = 8.0 * model.vocab * min(tokens, CHUNK_TOKENS * run.micro_batch)
        return kept, 2 * w.half * tokens * model.vocab + chunk, chunk
    split = run.parallel.tp if code.loss == "vocabulary_parallel" else 1
    tensors = _loss_bytes(run) * tokens * model.vocab / split
    return kept, tensors, tensors


def _loss_bytes(run: Run) -> float:
    """Bytes per token and entry of the vocabulary at the peak of the loss.

    12: log-softmax, the gradient of the loss and that of the logits, in FP32. 6 where one kernel makes the gradient
    from 16-bit logits. 16: DTensor's vocabulary-parallel loss, which adds the exponentials.
    """
    code = run.code
    if code.compiled == "full" or (code.loss == "vocabulary_parallel" and code.gate == "fused"):
        return 6.0
    return 16.0 if code.loss == "vocabulary_parallel" and run.parallel.tp > 1 else 12.0


def _sizes(model: Model, run: Run, stage: Stage) -> Sizes:
    tokens, each = run.tokens / run.parallel.cp, stage.layers
    work = [tokens * each[i][0].work for i in (0, -1)] if each else [0.0, 0.0]
    head, logits, cut = _loss(model, run, stage)
    number = sum((layer.weights.times(n) for layer, n in each), Weights())
    cast, cast_back = _casts(run, number, stage)
    first = Weights()
    if each:
        first = each[0][0].weights if run.recipe.method == "full" else each[0][0].adapters
    return Sizes(
        kept=tokens * _stays(run, stage) * sum(n * layer.kept for layer, n in each),
        first_layer=work[0], last_layer=work[1],
        last_kept=tokens * each[-1][0].kept if each else 0.0, head=head, logits=logits, cut=cut,
        unit=max((layer.gathered for layer, _ in each), default=0.0),
        layers=sum(n * layer.gathered for layer, n in each),
        first_weights=first.whole, cast=cast, cast_back=cast_back,
        always=_buckets(run, stage) + WORKSPACE_BYTES, dequantized=_dequantized(model, run, stage),
    )  # fmt: skip


def _stays(run: Run, stage: Stage) -> float:
    """Share of the kept activations that stays on the chip."""
    here = sum(n for _, n in stage.layers)
    return 1.0 - min(run.offloaded_layers, here) / here if here else 1.0


def _casts(run: Run, layers: Weights, stage: Stage) -> tuple[float, float]:
    """16-bit copies of FP32 weights at the end of the forward pass, and at the end of the loss.

    Autograd keeps autocast's copies; with full recomputation only the head's, and the rest goes with the forward pass.
    Eight-bit weights and their transposes take the place of 16-bit ones (Megatron-Core, fp8_param_gather): no copies.
    """
    recipe = run.recipe
    wider = recipe.parameter_bytes > recipe.compute_bytes and not recipe.master_bytes and recipe.method == "full"
    if _fsdp(run) or not (recipe.wide or wider):
        return 0.0, 0.0
    every, head = recipe.compute_bytes * (layers + stage.head).whole, recipe.compute_bytes * stage.head.whole
    return every, head if run.recompute == "full" else every


def _buckets(run: Run, stage: Stage) -> float:
    """Copies of the gradients that data parallelism reduces."""
    p, recipe = run.parallel, run.recipe
    if p.dp * p.cp == 1 or run.code.gradient_buffer or _fsdp(run):
        return 0.0
    if p.zero >= 2:
        return recipe.reduce_bytes * min(DEEPSPEED_BUCKET, stage.trained.whole)
    return DDP_BUCKETS * recipe.gradient_bytes * stage.trained.whole


def _dequantized(model: Model, run: Run, stage: Stage) -> float:
    """The largest 16-bit matrix that QLoRA's products make from its quantized weight."""
    if run.recipe.method != "qlora":
        return 0.0
    sizes = (p.inner * p.columns for layer, _ in stage.layers for p in products(model, layer.block))
    return 2.0 * max(sizes, default=0.0) / run.parallel.tp


def _accumulates(run: Run, stage: Stage) -> bool:
    """Whether gradients of earlier micro-batches are there when the activations are at their peak."""
    return run.code.gradient_buffer or run.micro_batches > stage.in_flight


def _moments(model: Model, run: Run, stage: Stage) -> Iterator[PeakMemory]:
    """The moments of a step at which a rank can need most."""
    z, s = _sizes(model, run, stage), _stored(run, stage)
    earlier = s.gradients_bytes if _accumulates(run, stage) else 0.0
    fsdp, root = _fsdp(run), run.recipe.compute_bytes * stage.tables.whole
    open_units = (root + (z.layers if run.parallel.zero == 2 else z.unit)) if fsdp else 0.0
    recast = z.dequantized + (z.unit if z.cast > z.cast_back else 0.0)  # by the layer at work

    def at(phase: Phase, gradients: float, gathered: float = 0.0, activations: float = 0.0, logits: float = 0.0,
           buffers: float = 0.0) -> PeakMemory:  # fmt: skip
        return PeakMemory(
            parameters_bytes=s.parameters_bytes, gradients_bytes=gradients, states_bytes=s.states_bytes,
            master_bytes=s.master_bytes, gathered_bytes=gathered, activations_bytes=activations, logits_bytes=logits,
            buffers_bytes=buffers + z.always, phase=phase, stage=stage.index, holes_bytes=HOLES * z.cut,
            pools_bytes=max(s.gradients_bytes - gradients, 0.0) + root + z.unit if fsdp else 0.0,
        )  # fmt: skip

    held = stage.in_flight * z.kept
    others = held - z.kept
    if stage.head.dense:
        if z.cast > z.cast_back:  # end of the forward pass: the gradient of the loss is not there yet
            yield at("loss", earlier, open_units + z.cast, held + z.head, z.logits * 10.0 / 12.0)
        yield at("loss", earlier, open_units + z.cast_back, held + z.head, z.logits)
    head, layer, tables = _unreduced(run, stage, z)
    last = held - z.last_kept + z.last_layer
    ahead = z.unit if fsdp and run.parallel.zero != 2 else 0.0  # gathered for the layer before
    yield at("backward", earlier, open_units + ahead + z.cast_back + recast, last, buffers=head)
    ready = earlier or max(s.gradients_bytes - _late_gradients(run, stage, z.first_weights), 0.0)
    two = root + 2 * z.unit if fsdp else 0.0
    yield at("backward", ready, two + z.cast_back + recast, others + z.first_layer, buffers=(head + layer) * fsdp)
    ready = earlier or max(s.gradients_bytes - _late_gradients(run, stage, 0.0) * fsdp, 0.0)
    yield at("backward", ready, 0.0, others, buffers=tables)
    update = (
        (run.offload == "none") * run.recipe.update_bytes * stage.trained.shard(run.parallel, run.parallel.zero >= 1)
    )
    yield at("optimizer", max(s.gradients_bytes, update))


def _unreduced(run: Run, stage: Stage, z: Sizes) -> tuple[float, float, float]:
    """Gradients beside the stored ones at the first, the last layer and the end of the backward pass.

    FSDP keeps those of a unit whole until it has copied them into the input of the reduction; its last unit has the
    tables. Without it, a gradient is there twice while it is added to that of earlier micro-batches.
    """
    recipe, p = run.recipe, run.parallel
    if recipe.method != "full":
        return 0.0, 0.0, 0.0
    if not _fsdp(run):
        twice = _accumulates(run, stage)
        head = recipe.gradient_bytes * stage.head.whole * (not twice)
        return head, 0.0, recipe.compute_bytes * stage.embedding.whole * twice
    reduced = recipe.compute_bytes + (recipe.reduce_bytes if p.shards > 1 else 0.0)
    return recipe.compute_bytes * stage.head.whole, reduced * z.first_weights, reduced * stage.tables.whole


def _late_gradients(run: Run, stage: Stage, first_weights: float) -> float:
    """Stored bytes of gradients that come last: of the first layer and of the embeddings (FSDP: of all tables)."""
    recipe, p = run.recipe, run.parallel
    tables = stage.tables if _fsdp(run) else stage.embedding
    late = first_weights + (tables.whole if recipe.method == "full" else 0.0)
    return recipe.gradient_bytes * late / (p.shards if p.zero >= 2 else 1)
