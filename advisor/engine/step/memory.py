"""Memory of one replica per chip: weights, activations and KV cache, and the cache capacity in tokens."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from advisor.engine.network import (
    Attention,
    Block,
    CompressedAttention,
    Matrix,
    Model,
    Recurrent,
    cached,
    decoder_blocks,
    matrices,
    mixer_matrices,
    recurrent_state,
    vectors,
)
from advisor.engine.step.operators import STATE_BYTES, Layouts, rank_columns, rank_inner, state_bytes

Array = NDArray[np.float64]
HALF_BYTES = 2.0
# Workspace of routed experts per token, expert and hidden number: permuted inputs, partial sums and outputs, on every
# rank. vLLM 0.24.0 on H200s with Qwen3-30B-A3B (fixtures/fidelity/h200_vllm_memory.csv): 20 to 21 bytes with one chip,
# TP2 and EP2. Models that were not fitted: 20 for Qwen3-Coder-480B (vllm-project/recipes#12), 28 for Qwen3-235B-A22B
# (vllm-project/vllm#21348, with another cache connector).
EXPERT_WORKSPACE_BYTES = 20.0
# Engines send more tokens than this to their experts in parts: VLLM_FUSED_MOE_CHUNK_SIZE, vllm/envs.py of 0.11.0.
EXPERT_CHUNK_TOKENS = 16384.0
LOGIT_BYTES = 4.0  # samplers use fp32 logits (vLLM, Sampler: logits.to(torch.float32))


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """Bytes on the chip with the most; shapes (N,)."""

    weights_bytes: Array  # resident adapters included
    activations_bytes: Array
    overhead_bytes: Array
    kv_bytes: Array  # left for the KV cache
    kv_capacity_tokens: Array  # per lane (one TP group), at the requested context length
    kv_bytes_per_sequence: Array
    source_bytes_per_sequence: Array  # part of kv_bytes_per_sequence: cross-attention keys and values
    usable_bytes: Array
    least_kv_bytes: Array  # of one sequence, or of the longest request that must fit

    @property
    def fits(self) -> NDArray[np.bool_]:
        """Whether weights, workspace and the cache of at least one sequence of any length that must fit do."""
        return self.kv_bytes >= self.least_kv_bytes


def rank_elements(matrix: Matrix, tp: Array) -> Array:
    """Weights of one copy of a matrix on one of `tp` ranks."""
    return rank_columns(matrix, tp) * rank_inner(matrix, tp)


def mixer_elements(model: Model, block: Block) -> tuple[float, float]:
    """(weights sharded by TP, weights replicated on every rank) in the matrices of one layer's mixer."""
    found = [*mixer_matrices(block.mixer, model.hidden)]
    whole = sum(float(m.elements) for m in found if m.split == "whole")
    return sum(float(m.elements) for m in found) - whole, whole


def weights_bytes(model: Model, x: Layouts) -> Array:
    """Weight bytes per chip, shape (N,): quantized matrices with scales; embeddings, head, router, norms in 16 bits."""
    total = np.zeros(len(x))
    for block in model.blocks:
        layers = block.count * block.streams
        for matrix in matrices(block, model.hidden):
            total += layers * matrix_bytes(matrix, x)
        total += layers * HALF_BYTES * vectors(block, model.hidden, norm_bias=model.norm_bias)
        total += block.count * HALF_BYTES * block.modulation * model.hidden**2
    tables = 1 if model.tied_embeddings or model.encoder_only else 2  # encoders have no output head
    per_stage = np.where(x.pp > 1, 1, tables)  # the first stage has the embeddings, the last the output head
    outside = (model.vocab * per_stage / x.tp + model.position_embeddings) * model.hidden
    return total / x.pp + (outside + model.layer_embeddings / x.tp + model.tower_parameters) * HALF_BYTES


def matrix_bytes(matrix: Matrix, x: Layouts) -> Array:
    """Bytes of all copies of a matrix on one chip, shape (N,)."""
    if matrix.routed:
        return matrix.copies / x.ep * matrix.elements / x.moe_tp * x.expert_weight_bytes
    return rank_elements(matrix, x.tp) * (HALF_BYTES if matrix.half else x.weight_bytes)


def kv_bytes_per_sequence(
    model: Model, x: Layouts, context_tokens: Array | float, source_tokens: Array | float = 0.0
) -> Array:
    """Cache and state bytes of one sequence with this context and source on one chip, shape (N,)."""
    return _sequence_bytes(model, x, context_tokens) + source_bytes_per_sequence(model, x, source_tokens)


def source_bytes_per_sequence(model: Model, x: Layouts, source_tokens: Array | float) -> Array:
    """Bytes of the keys and values of one source in all cross-attention layers, on one chip, shape (N,)."""
    total = np.zeros(len(x))
    for block in model.blocks:
        if isinstance(block.mixer, Attention) and block.mixer.cross:
            total = total + block.count * _token_bytes(block.mixer, x) * source_tokens
    return total / x.pp


def _token_bytes(mixer: Attention, x: Layouts) -> Array:
    """Bytes of the keys and values of one token in one layer."""
    return np.maximum(mixer.kv_heads / x.tp, 1.0) * mixer.key_value_dim * x.kv_bytes


def _sequence_bytes(model: Model, x: Layouts, context_tokens: Array | float) -> Array:
    total = np.zeros(len(x))
    for block in decoder_blocks(model):
        mixer = block.mixer
        if isinstance(mixer, Recurrent):
            total = total + block.count * state_bytes(mixer) / x.tp
            continue
        if isinstance(mixer, CompressedAttention):
            total = total + block.count * recurrent_state(mixer) * STATE_BYTES
        for cache in cached(mixer):
            if cache.split and isinstance(mixer, Attention):
                each = _token_bytes(mixer, x)
            else:
                each = cache.elements * (1.0 if cache.indexer else x.kv_bytes) + 0 * x.tp
            total = total + block.count * each * cache.tokens(context_tokens)
    return total / x.pp


def activations_bytes(model: Model, x: Layouts, max_batched_tokens: Array, max_running_requests: Array) -> Array:
    """Peak workspace of a step in bytes, shape (N,): the largest live activations of a layer, and fp32 logits."""
    h = float(model.hidden)
    widest = np.zeros(len(x))  # bytes
    for block in model.blocks:
        split, _ = mixer_elements(model, block)
        tokens, width = max_batched_tokens, split / h / x.tp
        if block.ffn is not None:
            f = block.ffn
            inner = f.inner / x.moe_tp * f.matrices
            width = np.maximum(width, inner + (f.latent or h)) if f.experts <= 1 else width
            routed = f.top_k * (HALF_BYTES * inner + EXPERT_WORKSPACE_BYTES * (f.latent or h)) if f.experts > 1 else 0.0
            widest = np.maximum(widest, np.minimum(tokens, EXPERT_CHUNK_TOKENS) * routed)
        widest = np.maximum(widest, HALF_BYTES * tokens * (width + (block.residual_streams - 1) * h))
    rows = np.minimum(max_running_requests, max_batched_tokens)
    # one rank gathers the logits of all
    return widest + max_batched_tokens * 6.0 * h + rows * model.vocab * LOGIT_BYTES
