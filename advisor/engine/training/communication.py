"""Collectives of a training step: what each of them sends, and what nothing can hide."""

from dataclasses import dataclass

import numpy as np

from advisor.engine.kernels import Amount, Array, collective_s
from advisor.engine.network import (
    Attention,
    CompressedAttention,
    LatentAttention,
    Model,
    decoder_blocks,
    embedding_parameters,
)
from advisor.engine.training.operators import Shape, expert_ranks, rank_parameters, rank_trained
from advisor.engine.training.rates import Rates
from advisor.engine.training.run import Code, Run

# Of the network's rate that dispatch and combine with one copy per host reach: 43 GB/s of 50 on 16 H800s, 45.8 on 32
# H100s, 3/4 of the 61 GB/s that count local traffic too (github.com/deepseek-ai/DeepEP, README.md and docs/legacy.md)
ONE_COPY_FAR_FRACTION = 0.88


def ring_s(r: Rates, chips: Amount, sent_bytes: Amount, calls: Amount = 1.0, stride: Amount = 1.0) -> Amount:
    """Seconds of `calls` ring collectives in which each chip sends (n - 1) / n x `sent_bytes` in all.

    An all-gather or reduce-scatter sends the whole buffer so, an all-reduce twice. Across scale-up domains the data
    moves inside each domain first, and every chip sends its share over the network. `stride`: the group has every
    stride-th chip, so that so many times fewer of them are in one domain. On a torus, all links of a chip count: with
    the share that serving takes, steps on 28 rows of TPU v6e are predicted 13 % off in the median instead of 7 %.
    """
    n = np.asarray(chips, float)
    inside = np.minimum(n, np.maximum(np.floor(r.near_chips / np.asarray(stride, float)), 1.0))
    outside = n / inside
    each = sent_bytes / np.maximum(calls, 1e-9)
    near, far = each * (inside - 1.0) / inside, each * (outside - 1.0) / outside / inside
    return np.where(n > 1, calls * collective_s(r, near, far, n, outside > 1, r.collective_s), 0.0)


def exchange_s(r: Rates, x: Shape, tokens: Amount, top_k: Amount, token_bytes: float, code: Code) -> Amount:
    """Seconds in which the ranks exchange `tokens` each with the ranks of their top_k experts, one way.

    NCCL's all-to-all sends a copy to each expert. DeepEP and HybridEP send one copy to each host that has any of a
    token's experts, and there one to each chip.
    """
    n = np.asarray(x.ep, float)
    inside = np.minimum(n, r.near_chips)
    hosts = n / inside
    if code.dispatch == "alltoall":
        near, far, rate = top_k * (inside - 1.0) / n, top_k * (hosts - 1.0) / hosts, r.far_bytes_per_s
    else:
        near = n * (1.0 - (1.0 - 1.0 / n) ** top_k) * (inside - 1.0) / inside  # also what arrived from other hosts
        far, rate = (hosts - 1.0) * (1.0 - (1.0 - 1.0 / hosts) ** top_k), r.far_link_bytes_per_s * ONE_COPY_FAR_FRACTION
    sent = tokens * token_bytes
    seconds = np.maximum(sent * near / r.near_bytes_per_s, sent * far / rate)
    return np.where(n > 1, seconds + r.collective_s + (hosts > 1) * r.far_collective_s, 0.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Communication:
    """Seconds of communication of one step on one rank."""

    tensor_s: Array  # tensor parallel, in the middle of each layer
    expert_s: Array  # exchange of tokens between the ranks of their experts
    context_s: Array  # exchange of keys and values
    gather_s: Array  # sharded weights, before they are needed
    reduce_s: Array  # gradients
    first_s: Array  # the gathers that nothing can hide: the first layer and the embedding
    last_s: Array  # the reduction after the last gradient
    pipeline_s: Array  # between stages


def context_s(model: Model, x: Shape, r: Rates, passes: Amount) -> Amount:
    """Seconds in which the ranks of a sequence pass on their keys and values in one micro-batch.

    Each rank sends its own to the cp - 1 others in the forward pass, and again in the backward pass with their
    gradients (Transformer Engine, cp_comm_type p2p): `passes` times in all.
    """
    width = 0.0
    for block in decoder_blocks(model):
        a = block.mixer
        if isinstance(a, Attention):
            width += block.count * float(a.kv_heads * a.key_value_dim)
        elif isinstance(a, LatentAttention):
            width += block.count * float(a.heads * (a.nope_dim + a.rope_dim + a.v_dim))
        elif isinstance(a, CompressedAttention):
            width += block.count * float(a.head_dim)
    layers = sum(b.count for b in decoder_blocks(model)) / x.pp
    sent = passes * x.cp * x.tokens * width / x.pp / x.tp * 2.0
    return ring_s(r, x.cp, sent, passes * layers * (x.cp - 1.0), x.tp)


def communication(model: Model, x: Shape, r: Rates, run: Run) -> Communication:
    """The collectives of one step, from what each of them sends."""
    recipe, h = run.recipe, float(model.hidden)
    layers = sum(b.count for b in decoder_blocks(model))
    here = layers / x.pp
    (dense, routed), (dense_trained, routed_trained) = rank_parameters(model, x), rank_trained(model, x, recipe)
    passes = 2.0 + np.where(x.recompute == 2, 1.0, 0.0)  # forward, backward, and forward again
    calls = 2.0 * here * passes
    # an all-reduce, or with sequence parallelism an all-gather and a reduce-scatter, which send as much
    tensor = ring_s(r, x.tp, calls * 2.0 * x.tokens * h * 2.0, calls)
    experts = sum(b.count for b in decoder_blocks(model) if b.ffn is not None and b.ffn.experts > 1) / x.pp
    top_k = max((b.ffn.top_k for b in decoder_blocks(model) if b.ffn is not None and b.ffn.experts > 1), default=0)
    expert = 2.0 * experts * passes * exchange_s(r, x, x.tokens / x.tp, float(top_k), 2.0 * h, run.code)
    context = context_s(model, x, r, passes + 1.0)
    gathers = np.where(x.zero >= 3, 2.0, np.where(x.zero >= 2, 1.0, 0.0)) * x.micro_batches
    gathers = np.where(x.zero == 1, 1.0, gathers)
    own = np.maximum(x.shards * x.tp / expert_ranks(x), 1.0)  # ranks that hold the same experts
    replicas, alike = x.dp * x.cp, np.maximum(x.dp * x.cp * x.tp / expert_ranks(x), 1.0)
    apart = expert_ranks(x)  # chips between two that hold the same experts
    gather = ring_s(r, x.shards, gathers * dense * recipe.compute_bytes, gathers * here, x.tp)
    gather = gather + ring_s(r, own, gathers * routed * recipe.compute_bytes, gathers * experts, apart)
    reductions = np.where(x.zero >= 2, x.micro_batches, 1.0)
    whole = np.where(x.zero >= 1, 1.0, 2.0)  # a reduce-scatter, or an all-reduce
    reduce = ring_s(r, replicas, reductions * whole * dense_trained * recipe.reduce_bytes, reductions * here, x.tp)
    sent = reductions * whole * routed_trained * recipe.reduce_bytes
    reduce = reduce + ring_s(r, alike, sent, reductions * experts, apart)
    root = float(embedding_parameters(model)) / x.tp
    layer = np.maximum(dense - root / x.pp, 0.0) / np.maximum(here, 1.0)
    first = np.where(x.zero >= 2, ring_s(r, x.shards, (root + layer) * recipe.compute_bytes, 2.0, x.tp), 0.0)
    last = (
        ring_s(r, replicas, whole * root * recipe.reduce_bytes, 1.0, x.tp) if recipe.method == "full" else 0.0 * first
    )
    link = np.where(x.dp * x.tp * x.cp < r.near_chips, r.near_bytes_per_s, r.far_bytes_per_s)  # stages are outermost
    between = np.where(x.pp > 1, x.virtual_stages * x.tokens * h * 2.0 / x.tp / link + r.collective_s, 0.0)
    zero = 0.0 * (x.tokens + x.tp + x.dp)
    return Communication(
        tensor_s=x.micro_batches * tensor + zero,
        expert_s=x.micro_batches * expert + zero,
        context_s=x.micro_batches * context + zero,
        gather_s=gather + zero,
        reduce_s=reduce + zero,
        first_s=first + zero,
        last_s=last + zero,
        pipeline_s=2.0 * x.micro_batches * between + zero,
    )
