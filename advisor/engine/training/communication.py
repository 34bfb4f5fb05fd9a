"""Collectives of a training step: what each of them sends, and what nothing can hide."""

from dataclasses import dataclass

import numpy as np

from advisor.engine.network import Model, decoder_blocks, embedding_parameters
from advisor.engine.training.operators import Amount, Array, Rates, Shape, expert_ranks, rank_parameters, rank_trained
from advisor.engine.training.run import Run


def ring_s(r: Rates, chips: Amount, sent_bytes: Amount, calls: Amount = 1.0) -> Amount:
    """Seconds of `calls` ring collectives in which each chip sends (n - 1) / n x `sent_bytes` in all.

    An all-gather or reduce-scatter sends the whole buffer so, an all-reduce twice. Across scale-up domains the data
    moves inside each domain first, and every chip sends its share over the network.
    """
    n = np.asarray(chips, float)
    inside = np.minimum(n, r.near_chips)
    near_s = sent_bytes * (inside - 1.0) / np.maximum(inside, 1.0) / r.near_bytes_per_s
    outside = n / np.maximum(inside, 1.0)
    far_s = sent_bytes * (outside - 1.0) / np.maximum(outside, 1.0) / np.maximum(inside, 1.0) / r.far_bytes_per_s
    fixed = calls * (r.collective_s + r.hop_s * np.log2(np.maximum(n, 1.0)) + (outside > 1) * r.far_collective_s)
    return np.where(n > 1, near_s + far_s + fixed, 0.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Communication:
    """Seconds of communication of one step on one rank."""

    tensor_s: Array  # tensor parallel, in the middle of each layer: nothing hides it
    expert_s: Array  # all-to-all of tokens to their experts
    gather_s: Array  # sharded weights, before they are needed
    reduce_s: Array  # gradients
    first_s: Array  # the gathers that nothing can hide: the first layer and the embedding
    last_s: Array  # the reduction after the last gradient
    pipeline_s: Array  # between stages


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
    exchanged = 2.0 * experts * passes
    expert = ring_s(r, x.ep, exchanged * x.tokens / x.tp * top_k * h * 2.0, exchanged)
    gathers = np.where(x.zero >= 3, 2.0, np.where(x.zero >= 2, 1.0, 0.0)) * x.micro_batches
    gathers = np.where(x.zero == 1, 1.0, gathers)
    own = np.maximum(x.shards * x.tp / expert_ranks(x), 1.0)  # ranks that hold the same experts
    replicas, alike = x.dp * x.cp, np.maximum(x.dp * x.cp * x.tp / expert_ranks(x), 1.0)
    gather = ring_s(r, x.shards, gathers * dense * recipe.compute_bytes, gathers * here)
    gather = gather + ring_s(r, own, gathers * routed * recipe.compute_bytes, gathers * experts)
    reductions = np.where(x.zero >= 2, x.micro_batches, 1.0)
    whole = np.where(x.zero >= 1, 1.0, 2.0)  # a reduce-scatter, or an all-reduce
    reduce = ring_s(r, replicas, reductions * whole * dense_trained * recipe.reduce_bytes, reductions * here)
    reduce = reduce + ring_s(r, alike, reductions * whole * routed_trained * recipe.reduce_bytes, reductions * experts)
    root = float(embedding_parameters(model)) / x.tp
    layer = np.maximum(dense - root / x.pp, 0.0) / np.maximum(here, 1.0)
    first = np.where(x.zero >= 2, ring_s(r, x.shards, (root + layer) * recipe.compute_bytes, 2.0), 0.0)
    last = ring_s(r, replicas, whole * root * recipe.reduce_bytes) if recipe.method == "full" else 0.0 * first
    between = np.where(
        x.pp > 1, x.virtual_stages * x.tokens * h * 2.0 / x.tp / r.near_bytes_per_s + r.collective_s, 0.0
    )
    zero = 0.0 * (x.tokens + x.tp + x.dp)
    return Communication(
        tensor_s=x.micro_batches * tensor + zero,
        expert_s=x.micro_batches * expert + zero,
        gather_s=gather + zero,
        reduce_s=reduce + zero,
        first_s=first + zero,
        last_s=last + zero,
        pipeline_s=2.0 * x.micro_batches * between + zero,
    )
