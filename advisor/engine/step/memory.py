"""Memory of one replica per chip: weights, activations and KV cache, and the cache capacity in tokens."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from advisor.engine.network import (
    Attention,
    Block,
    Ffn,
    LatentAttention,
    Model,
    Recurrent,
    attention_kv_elements,
    decoder_blocks,
)
from advisor.engine.step.operators import Layouts, recurrent_width, state_bytes

Array = NDArray[np.float64]
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


def mixer_elements(model: Model, block: Block) -> tuple[float, float]:
    """(weights sharded by TP, weights replicated on every rank) of one layer's mixer."""
    h, mixer = float(model.hidden), block.mixer
    if isinstance(mixer, Attention):
        gate = mixer.heads * mixer.head_dim if mixer.output_gate else 0
        kv = attention_kv_elements(mixer)
        return h * (mixer.heads * mixer.key_value_dim + gate + kv), 0.0
    if isinstance(mixer, LatentAttention):
        q_in = float(mixer.q_rank) or h
        split = mixer.heads * (
            q_in * (mixer.nope_dim + mixer.rope_dim) + mixer.kv_rank * (mixer.nope_dim + mixer.v_dim) + mixer.v_dim * h
        )
        whole = h * (mixer.q_rank + mixer.kv_rank + mixer.rope_dim)
        whole += mixer.index_heads * mixer.index_dim * mixer.q_rank + h * (mixer.index_dim + mixer.index_heads)
        return split, whole
    if isinstance(mixer, Recurrent):
        return h * (recurrent_width(mixer) + mixer.inner), 0.0
    return 0.0, 0.0


def weights_bytes(model: Model, x: Layouts) -> Array:
    """Weight bytes per chip, shape (N,): quantized matrices with scales; embeddings, head, router, norms in 16 bits."""
    total = np.zeros(len(x))
    for block in model.blocks:
        split, whole = mixer_elements(model, block)
        layers = block.count * block.streams
        total += layers * (split / x.tp + whole) * x.weight_bytes
        total += layers * 2.0 * block.norms * model.hidden + block.count * 2.0 * block.modulation * model.hidden**2
        if block.ffn is not None:
            total += layers * _ffn_bytes(model, block.ffn, x)
    tables = 1 if model.tied_embeddings or model.encoder_only else 2  # encoders have no output head
    per_stage = np.where(x.pp > 1, 1, tables)  # the first stage has the embeddings, the last the output head
    return total / x.pp + (model.vocab * per_stage / x.tp + model.position_embeddings) * model.hidden * 2.0


def _ffn_bytes(model: Model, f: Ffn, x: Layouts) -> Array:
    h = float(model.hidden)
    if f.experts <= 1:
        return f.matrices * h * f.inner * x.weight_bytes / x.tp
    experts = f.experts / x.ep * f.matrices * h * f.inner / x.moe_tp * x.expert_weight_bytes
    return experts + f.matrices * h * f.shared_inner * x.weight_bytes / x.tp + h * f.experts * 2.0


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
        if mixer is None or isinstance(mixer, Attention) and not mixer.causal:
            continue
        if isinstance(mixer, Attention):
            per_token = _token_bytes(mixer, x)
            window = mixer.window_tokens
        else:
            per_token = (mixer.kv_rank + mixer.rope_dim) * x.kv_bytes + mixer.index_dim + 0 * x.tp
            window = None
        cached_tokens = np.minimum(context_tokens, window) if window else context_tokens
        total = total + block.count * per_token * cached_tokens
    return total / x.pp


def activations_bytes(model: Model, x: Layouts, max_batched_tokens: Array, max_running_requests: Array) -> Array:
    """Peak workspace of a step in bytes, shape (N,): the largest live activations of a layer, and fp32 logits."""
    h = float(model.hidden)
    widest = np.zeros(len(x))
    for block in model.blocks:
        split, _ = mixer_elements(model, block)
        width = split / h / x.tp
        if block.ffn is not None:
            f = block.ffn
            pairs = f.top_k if f.experts > 1 else 1
            width = np.maximum(width, pairs * (f.inner / x.moe_tp * f.matrices + h))
        widest = np.maximum(widest, width)
    rows = np.minimum(max_running_requests, max_batched_tokens)
    return max_batched_tokens * (2.0 * widest + 6.0 * h) + rows * np.ceil(model.vocab / x.tp) * LOGIT_BYTES
