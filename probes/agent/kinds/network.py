"""End-to-end measurements: one decoder block, and the decode step of a small model in one graph.

Weights are random, scaled to keep activations near 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ..axes import Experts, Heads
from ..decoders import NETS, SMALL_MODEL, TINY, TINY_MODEL, Net, cost, weight_bytes
from ..measure import Case, Check, Device, Scalar, Skip, Work, finite, relative_error
from . import decode
from .layers import compiled
from .triton_kernels import kernels

LIMIT = 3e-2  # a block rounds to bf16 about ten times
CHECKED_TOKENS, CHECKED_SEQUENCES = 1024, 16


def cases(kind: str, suite: str, device: Device) -> Iterator[Case]:
    """Eager cases, then compiled ones. The quick suite compiles nothing."""
    compiles = suite == "full" and device.streams
    yield from (_case(kind, *given, "eager") for given in _wanted(kind, suite, device))
    if compiles:
        # Only the points of the quick suite, since each compilation takes seconds.
        yield from (_case(kind, *given, "compiled") for given in _wanted(kind, "quick", device))
    if kind == "compile_gain" and not compiles:
        yield _refused(kind, "compiled on a GPU, in the full suite only")


def _wanted(kind: str, suite: str, device: Device) -> Iterator[tuple[Net, str, int, int]]:
    """(net, phase, batch, context) of each case."""
    quick = suite == "quick"
    nets = NETS if device.gpu else (TINY,)
    if kind == "decode_step":
        net = SMALL_MODEL if device.gpu else TINY_MODEL
        steps = ((1, 1024), (64, 1024)) if quick else ((1, 1024), (8, 1024), (64, 1024), (256, 1024), (16, 8192))
        yield from ((net, "decode", *step) for step in steps)
    elif kind == "compile_gain":
        yield from ((nets[0], "prefill", 1, tokens) for tokens in ((64,) if quick else (64, 4096)))
    else:
        for net in nets:
            yield from ((net, "decode", batch, 2048) for batch in ((1, 64) if quick else (1, 8, 64, 256)))
            yield from ((net, "prefill", 1, tokens) for tokens in ((2048,) if quick else (512, 2048, 8192)))


def _refused(kind: str, reason: str) -> Case:
    def build(device: Device) -> Work:
        raise Skip(reason)

    return Case(kind, {"mode": "compiled"}, build, setup_s=0.0)


def _case(kind: str, net: Net, phase: str, batch: int, context: int, mode: str) -> Case:
    tokens = batch if phase == "decode" else context
    flops, size = cost(net, phase, batch, context)
    key: dict[str, Scalar] = {"dtype": "bf16", "model": net.name, "phase": phase, "mode": mode}
    key |= {"batch": batch, "context_tokens": context}
    needs = 4 * (weight_bytes(net) + size) + 40 * tokens * max(net.hidden, net.inner)
    build = _builder(net, phase, batch, context, mode)
    return Case(kind, key, build, flops, size, needs, setup_s=6.0 if mode == "compiled" else 0.5)


@dataclass(frozen=True)
class Layer:
    """The weights and KV cache of one block."""

    qkv: Any
    out: Any
    gate_up: Any
    down: Any
    router: Any
    routing: Any
    norms: Any
    turns: Any
    cache: decode.Paged | None


def _layer(device: Device, net: Net, tokens: int, shape: decode.Shape | None) -> Layer:
    torch, heads = device.torch, net.heads

    def weight(*size: int) -> Any:
        return device.random(*size, dtype=torch.bfloat16, scale=1 / math.sqrt(size[-1]))

    count = (net.experts.count,) if net.experts else ()
    return Layer(
        qkv=weight((heads.query + 2 * heads.kv) * heads.dim, net.hidden),
        out=weight(net.hidden, heads.query * heads.dim),
        gate_up=weight(*count, 2 * net.inner, net.hidden),
        down=weight(*count, net.hidden, net.inner),
        router=weight(net.experts.count, net.hidden) if net.experts else None,
        routing=_routing(device, net.experts, tokens) if net.experts else None,
        norms=device.random(2, net.hidden, dtype=torch.bfloat16, scale=0.1) + 1,
        turns=_turns(device, heads, tokens),
        cache=decode.Paged.random(device, shape, torch.bfloat16) if shape else None,
    )


def _turns(device: Device, heads: Heads, tokens: int) -> Any:
    """Precomputed cosines and sines of the rotary angles."""
    angles = device.random(2, tokens, 1, heads.dim // 2)
    return device.torch.stack([angles[0].cos(), angles[0].sin()]).to(device.torch.bfloat16)


def _routing(device: Device, experts: Experts, tokens: int) -> Any:
    """A bias on the router logits that selects random experts per token, independent of rounding."""
    chosen = device.random(tokens, experts.count).topk(experts.top_k).indices
    flat = device.torch.full((tokens, experts.count), -30.0, device=device.device, dtype=device.torch.bfloat16)
    return flat.scatter_(1, chosen, 0.0)


def _builder(net: Net, phase: str, batch: int, context: int, mode: str) -> Callable[[Device], Work]:
    flops, size = cost(net, phase, batch, context)

    def build(device: Device) -> Work:
        parts = halves(device, net)
        if mode == "compiled":
            parts = tuple(compiled(device, part) for part in parts)
        passes = [Pass.random(device, net, phase, batch, context) for _ in range(device.sets(size, at_most=4))]
        calls = [partial(forward, net, one, parts) for one in passes]
        path = "native" if not net.experts or hasattr(device.torch, "_grouped_mm") else "reference"
        exact = device.backend != "mps"  # Metal has no float64
        check = (lambda: verify(device, net, passes[0], calls[0]())) if exact else None
        return Work(calls, flops, size, check, path)

    return build


@dataclass(frozen=True)
class Pass:
    """The inputs of one pass. `attends` has the attention function of each layer."""

    layers: list[Layer]
    attends: list[Callable[[Any], Any]]
    head: Any
    x: Any

    @classmethod
    def random(cls, device: Device, net: Net, phase: str, batch: int, context: int) -> Pass:
        dtype, scale = device.torch.bfloat16, 1 / math.sqrt(net.hidden)
        shape = decode.Shape(batch, context, net.heads) if phase == "decode" else None
        tokens = batch if phase == "decode" else context
        layers = [_layer(device, net, tokens, shape) for _ in range(net.layers)]
        head = device.random(net.vocab, net.hidden, dtype=dtype, scale=scale) if net.vocab else None
        attends = [attention(device, net.heads, layer.cache) for layer in layers]
        return cls(layers, attends, head, device.random(tokens, net.hidden, dtype=dtype))


def forward(net: Net, given: Pass, parts: tuple[Any, ...]) -> Any:
    """Runs every block, then computes the logits if there is a vocabulary."""
    x, (before, after) = given.x, parts
    for layer, attend in zip(given.layers, given.attends, strict=True):
        turned = before(x, layer.norms[0], layer.qkv, layer.turns[0], layer.turns[1])
        weights = (layer.out, layer.norms[1], layer.gate_up, layer.down, layer.router, layer.routing)
        x = after(x, attend(turned), *weights)
    return x if given.head is None else x @ given.head.t()


def halves(device: Device, net: Net) -> tuple[Any, ...]:
    """The parts of a block before and after attention, as pure tensor functions that torch.compile accepts."""
    torch, heads, top = device.torch, net.heads, net.experts.top_k if net.experts else 0
    rms_norm, silu = torch.nn.functional.rms_norm, torch.nn.functional.silu
    multiply = product(device)

    def before(x: Any, norm: Any, qkv: Any, cos: Any, sin: Any) -> Any:
        values = (rms_norm(x, (net.hidden,), norm, 1e-6) @ qkv.t()).reshape(len(x), -1, heads.dim)
        first, second = values[:, : heads.query + heads.kv].chunk(2, dim=-1)
        mixed = torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
        return torch.cat([mixed, values[:, heads.query + heads.kv :]], dim=1)

    def dense(x: Any, gate_up: Any, down: Any, router: Any, routing: Any) -> Any:
        gate, up = (x @ gate_up.t()).chunk(2, dim=-1)
        return (silu(gate) * up) @ down.t()

    def experts(x: Any, gate_up: Any, down: Any, router: Any, routing: Any) -> Any:
        """MoE: tokens sorted by expert, two grouped products, and a weighted sum."""
        weights, chosen = torch.topk(torch.softmax(x @ router.t() + routing, dim=-1), top)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        order = chosen.flatten().argsort()
        one_hot = chosen.flatten()[:, None] == torch.arange(len(router), device=x.device)
        ends = one_hot.sum(0).cumsum(0).to(torch.int32)
        gate, up = multiply(x[order // top], gate_up, ends).chunk(2, dim=-1)
        weighted = multiply(silu(gate) * up, down, ends) * weights.flatten()[order][:, None]
        return torch.zeros_like(x).index_add_(0, order // top, weighted)

    def after(x: Any, attended: Any, out: Any, norm: Any, *weights: Any) -> Any:
        x = x + attended @ out.t()
        return x + (experts if top else dense)(rms_norm(x, (net.hidden,), norm, 1e-6), *weights)

    return before, after


def product(device: Device) -> Callable[[Any, Any, Any], Any]:
    """A grouped product over experts whose tokens end at `ends`: torch's kernel if available, else a loop."""
    torch = device.torch

    def native(x: Any, w: Any, ends: Any) -> Any:
        return torch._grouped_mm(x, w.transpose(1, 2), offs=ends)

    def looped(x: Any, w: Any, ends: Any) -> Any:
        parts = x.split(ends.diff(prepend=ends.new_zeros(1)).tolist())
        return torch.cat([part @ w[at].t() for at, part in enumerate(parts)])

    if not (hasattr(torch, "_grouped_mm") and device.gpu):
        return looped
    return lambda x, w, ends: native(x, w, ends) if x.dtype == torch.bfloat16 else looped(x, w, ends)


def attention(device: Device, heads: Heads, cache: decode.Paged | None) -> Callable[[Any], Any]:
    """An attention function of q, k and v after rotary embedding: causal, or over the cache if there is one."""
    if cache is None:
        return lambda qkv: causal(device, heads, qkv)
    try:
        kernels.ready(device)
    except Skip:
        return lambda qkv: over_cache(device, heads, cache, qkv)
    run = decode.decoder(device, cache, decode.split_count(device, cache.shape))

    def attend(qkv: Any) -> Any:
        """Writes the new key and value to the last position of the context, as in serving."""
        write(cache, heads, qkv)
        cache.q.copy_(qkv[:, : heads.query])
        return run().reshape(len(qkv), -1)

    return attend


def write(cache: decode.Paged, heads: Heads, qkv: Any) -> None:
    last = cache.shape.context - 1
    page = cache.table[:, last // decode.PAGE].long()
    cache.k[page, last % decode.PAGE] = qkv[:, heads.query : heads.query + heads.kv]
    cache.v[page, last % decode.PAGE] = qkv[:, heads.query + heads.kv :]


def causal(device: Device, heads: Heads, qkv: Any) -> Any:
    torch = device.torch
    q, k, v = (side.transpose(0, 1)[None] for side in qkv.split([heads.query, heads.kv, heads.kv], dim=1))
    if device.version < (2, 5):
        k, v = (side.repeat_interleave(heads.query // heads.kv, dim=1) for side in (k, v))
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    else:
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    return out[0].transpose(0, 1).reshape(len(qkv), -1)


def over_cache(device: Device, heads: Heads, cache: decode.Paged, qkv: Any) -> Any:
    """Cached attention without Triton: gathers the pages, then calls torch with grouped queries as rows."""
    torch, shape = device.torch, cache.shape
    q, k, v = qkv.split([heads.query, heads.kv, heads.kv], dim=1)
    sides = []
    for side, newest in ((cache.k, k), (cache.v, v)):
        pages = side[cache.table.long()].to(qkv.dtype).flatten(1, 2)[:, : shape.context]
        sides.append(torch.cat([pages[:, :-1], newest[:, None]], dim=1).transpose(1, 2))
    grouped = q.reshape(shape.batch, heads.kv, heads.query // heads.kv, heads.dim)
    return torch.nn.functional.scaled_dot_product_attention(grouped, *sides).reshape(len(qkv), -1)


def verify(device: Device, net: Net, given: Pass, out: Any) -> Check:
    """A check of some rows against the same pass in float64, one layer's weights at a time.

    The rows are the first sequences of a batch, or the first tokens of a prompt (later tokens do not affect them).
    """
    rows = min(len(given.x), CHECKED_TOKENS if given.layers[0].cache is None else CHECKED_SEQUENCES)
    parts, exact = halves(device, net), given.x[:rows].double()
    for layer in given.layers:
        attend = _exact_attention(device, net.heads, layer.cache, rows)
        exact = forward(net, Pass([_doubled(layer, rows)], [attend], None, exact), parts)
    if given.head is not None:
        exact = exact @ given.head.double().t()
    error = relative_error(device.torch, out[:rows], exact) if finite(device.torch, out) else math.inf
    return Check(error, LIMIT)


def _exact_attention(device: Device, heads: Heads, cache: decode.Paged | None, rows: int) -> Callable[[Any], Any]:
    if cache is None:
        return lambda qkv: causal(device, heads, qkv)
    some = replace(cache, table=cache.table[:rows], shape=replace(cache.shape, batch=rows))
    return lambda qkv: over_cache(device, heads, some, qkv)


def _doubled(layer: Layer, rows: int) -> Layer:
    wide = {name: getattr(layer, name) for name in ("qkv", "out", "gate_up", "down", "router", "norms")}
    wide |= {"turns": layer.turns[:, :rows], "routing": None if layer.routing is None else layer.routing[:rows]}
    return replace(layer, **{name: None if weight is None else weight.double() for name, weight in wide.items()})
