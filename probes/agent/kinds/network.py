"""End-to-end checks: one decoder block, and the decode step of a whole small model in one graph.

Weights are random at the scale that keeps activations near one; shapes are those of published models. FLOPs count
every product and the attention; bytes count every weight read once (of experts: those that were chosen) and the
cached keys and values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from ..axes import EXPERTS, Experts, Heads
from ..measure import Case, Check, Device, Skip, Work, finite, relative_error
from . import decode, kernels
from .layers import compiled

LIMIT = 3e-2  # A block rounds to bf16 about ten times in a row.


@dataclass(frozen=True)
class Net:
    """A decoder: `inner` is that of its MLP, or its experts take the MLP's place."""

    name: str
    hidden: int
    heads: Heads
    inner: int
    layers: int = 1
    vocab: int = 0
    experts: Experts | None = None

    @property
    def attention_values(self) -> int:
        return self.hidden * self.heads.dim * (2 * self.heads.query + 2 * self.heads.kv)


NETS = (
    Net("llama-3.1-8b", 4096, Heads(32, 8, 128), 14336),
    Net("qwen3-30b-a3b", 2048, Heads(32, 4, 128), 768, experts=EXPERTS[0]),
)
SMALL_MODEL = Net("llama-3.2-1b", 2048, Heads(32, 8, 64), 8192, layers=16, vocab=128256)
TINY = Net("tiny", 256, Heads(8, 2, 32), 512)


def cases(kind: str, suite: str, device: Device) -> Iterator[Case]:
    if kind == "decode_step":
        net = SMALL_MODEL if device.gpu else replace(TINY, layers=2, vocab=4096)
        for batch, context in (
            ((1, 1024), (64, 1024)) if suite == "quick" else ((1, 1024), (8, 1024), (64, 1024), (256, 1024), (16, 8192))
        ):
            yield _case(kind, net, "decode", batch, context, {})
        return
    nets = NETS if device.gpu else (TINY,)
    if kind == "compile_gain":
        for mode in ("eager", "compiled"):
            for tokens in (64, 4096) if suite == "full" else (64,):
                yield _case(kind, nets[0], "prefill", 1, tokens, {"mode": mode})
        return
    for net in nets:
        for batch in (1, 64) if suite == "quick" else (1, 8, 32, 64, 128, 256):
            yield _case(kind, net, "decode", batch, 2048, {})
        for tokens in (2048,) if suite == "quick" else (512, 2048, 8192):
            yield _case(kind, net, "prefill", 1, tokens, {})


def _case(kind: str, net: Net, phase: str, batch: int, context: int, more: dict[str, Any]) -> Case:
    tokens = batch if phase == "decode" else context
    flops, size = cost(net, phase, batch, context)
    key = {"dtype": "bf16", "model": net.name, "phase": phase, "batch": batch, "context_tokens": context, **more}
    needs = 2 * weight_bytes(net) + 4 * size + 40 * tokens * max(net.hidden, net.inner)
    setup_s = 10.0 if more.get("mode") == "compiled" else 0.5
    build = _builder(net, phase, batch, context, str(more.get("mode", "eager")), flops, size)
    return Case(kind, key, build, flops, size, needs, setup_s=setup_s)


def weight_bytes(net: Net) -> int:
    feed = 3 * net.hidden * net.inner * (net.experts.count if net.experts else 1)
    return 2 * (net.layers * (net.attention_values + feed) + net.vocab * net.hidden)


def cost(net: Net, phase: str, batch: int, context: int) -> tuple[int, int]:
    """FLOPs and bytes of one pass."""
    tokens = batch if phase == "decode" else batch * context
    chosen = net.experts.top_k if net.experts else 1
    values = net.attention_values + 3 * net.hidden * net.inner * chosen
    pairs = batch * context if phase == "decode" else batch * context * (context + 1) // 2
    attention = 4 * pairs * net.heads.query * net.heads.dim
    rows = tokens if phase == "decode" else batch
    flops = net.layers * (2 * tokens * values + attention) + 2 * rows * net.vocab * net.hidden
    read = 1.0 if not net.experts else 1 - (1 - chosen / net.experts.count) ** tokens
    feed = 3 * net.hidden * net.inner * (net.experts.count * read if net.experts else 1)
    cache = 2 * batch * context * net.heads.kv * net.heads.dim
    size = 2 * (net.layers * (net.attention_values + feed + cache) + net.vocab * net.hidden)
    return flops, int(size)


@dataclass(frozen=True)
class Layer:
    """The weights of one block and its part of the cache."""

    qkv: Any
    out: Any
    gate_up: Any
    down: Any
    router: Any
    routing: Any
    norms: Any
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
        cache=decode.Paged.random(device, shape, torch.bfloat16) if shape else None,
    )


def _routing(device: Device, experts: Experts, tokens: int) -> Any:
    """Added to the router's logits, so that each token's experts are drawn evenly and rounding cannot change them."""
    chosen = device.random(tokens, experts.count).topk(experts.top_k).indices
    flat = device.torch.full((tokens, experts.count), -30.0, device=device.device, dtype=device.torch.bfloat16)
    return flat.scatter_(1, chosen, 0.0)


def _builder(
    net: Net, phase: str, batch: int, context: int, mode: str, flops: int, size: int
) -> Callable[[Device], Work]:
    def build(device: Device) -> Work:
        torch = device.torch
        shape = decode.Shape(batch, context, net.heads) if phase == "decode" else None
        tokens = batch if phase == "decode" else context
        layers = [_layer(device, net, tokens, shape) for _ in range(net.layers)]
        head = (
            device.random(net.vocab, net.hidden, dtype=torch.bfloat16, scale=1 / math.sqrt(net.hidden))
            if net.vocab
            else None
        )
        x = device.random(tokens, net.hidden, dtype=torch.bfloat16)
        attends = [attention(device, net, layer, phase) for layer in layers]
        step = compiled(device, forward) if mode == "compiled" else forward

        def call() -> Any:
            return step(device, net, layers, attends, head, x)

        path = "native" if not net.experts or hasattr(torch, "_grouped_mm") else "reference"
        return Work([call], flops, size, lambda: verify(device, net, layers, head, x, phase, call()), path)

    return build


def forward(device: Device, net: Net, layers: list[Layer], attends: list[Any], head: Any, x: Any) -> Any:
    """One pass: every block, then the logits where the net has a vocabulary."""
    torch = device.torch
    for layer, attend in zip(layers, attends, strict=True):
        hidden = torch.nn.functional.rms_norm(x, (net.hidden,), layer.norms[0], 1e-6)
        x = x + attend(turn(torch, net, hidden @ layer.qkv.t())) @ layer.out.t()
        hidden = torch.nn.functional.rms_norm(x, (net.hidden,), layer.norms[1], 1e-6)
        x = x + (experts(device, net, layer, hidden) if net.experts else feed(torch, layer, hidden))
    return x if head is None else x @ head.t()


def turn(torch: Any, net: Net, qkv: Any) -> Any:
    """Queries and keys turned as by their positions; angles of a ramp, since only the work matters here."""
    heads = net.heads
    values = qkv.reshape(len(qkv), -1, heads.dim)
    turned = values[:, : heads.query + heads.kv]
    angles = torch.arange(heads.dim // 2, device=qkv.device, dtype=torch.float32) / heads.dim
    cos, sin = angles.cos().to(qkv.dtype), angles.sin().to(qkv.dtype)
    first, second = turned.chunk(2, dim=-1)
    mixed = torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
    return torch.cat([mixed, values[:, heads.query + heads.kv :]], dim=1)


def feed(torch: Any, layer: Layer, x: Any) -> Any:
    gate, up = (x @ layer.gate_up.t()).chunk(2, dim=-1)
    return (torch.nn.functional.silu(gate) * up) @ layer.down.t()


def experts(device: Device, net: Net, layer: Layer, x: Any) -> Any:
    """Each token by its top experts: sorted by expert, one grouped product up and one down, summed by weight."""
    torch, top = device.torch, net.experts.top_k if net.experts else 1
    weights, chosen = torch.topk(torch.softmax(x @ layer.router.t() + layer.routing, dim=-1), top)
    weights = weights / weights.sum(dim=-1, keepdim=True)
    order = chosen.flatten().argsort()
    count = len(layer.router)
    one_hot = chosen.flatten()[:, None] == torch.arange(count, device=x.device)
    ends = one_hot.sum(0).cumsum(0).to(torch.int32)
    gate, up = product(device, x[order // top], layer.gate_up, ends).chunk(2, dim=-1)
    found = product(device, torch.nn.functional.silu(gate) * up, layer.down, ends)
    found = found * weights.flatten()[order][:, None]
    return torch.zeros_like(x).index_add_(0, order // top, found)


def product(device: Device, x: Any, w: Any, ends: Any) -> Any:
    torch = device.torch
    if hasattr(torch, "_grouped_mm") and x.dtype == torch.bfloat16 and device.gpu:
        return torch._grouped_mm(x, w.transpose(1, 2), offs=ends)
    parts = x.split(ends.diff(prepend=ends.new_zeros(1)).tolist())
    return torch.cat([part @ w[at].t() for at, part in enumerate(parts)])


def attention(device: Device, net: Net, layer: Layer, phase: str) -> Callable[[Any], Any]:
    """From turned q, k, v of the tokens to the heads' output: causal among them, or over the cache."""
    heads = net.heads
    if phase == "prefill" or layer.cache is None:
        return lambda qkv: causal(device, heads, qkv)
    cache = layer.cache
    try:
        kernels.ready(device)
    except Skip:
        return lambda qkv: over_cache(device, heads, cache, qkv)
    run = decode.decoder(device, cache, decode.split_count(device, cache.shape))

    def attend(qkv: Any) -> Any:
        """The newest key and value go to the last place of the context, as a step of serving puts them there."""
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
    if torch.__version__ < "2.5":
        k, v = (side.repeat_interleave(heads.query // heads.kv, dim=1) for side in (k, v))
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    else:
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    return out[0].transpose(0, 1).reshape(len(qkv), -1)


def over_cache(device: Device, heads: Heads, cache: decode.Paged, qkv: Any) -> Any:
    """Without Triton: pages gathered, then torch's attention with grouped queries as rows."""
    torch, shape = device.torch, cache.shape
    q, k, v = qkv.split([heads.query, heads.kv, heads.kv], dim=1)
    sides = []
    for side, newest in ((cache.k, k), (cache.v, v)):
        pages = side[cache.table.long()].to(qkv.dtype).flatten(1, 2)[:, : shape.context]
        sides.append(torch.cat([pages[:, :-1], newest[:, None]], dim=1).transpose(1, 2))
    grouped = q.reshape(shape.batch, heads.kv, heads.query // heads.kv, heads.dim)
    return torch.nn.functional.scaled_dot_product_attention(grouped, *sides).reshape(len(qkv), -1)


def verify(device: Device, net: Net, layers: list[Layer], head: Any, x: Any, phase: str, out: Any) -> Check:
    """The same pass in float64 on the device, a layer's weights at a time."""
    torch = device.torch
    if not finite(torch, out):
        return Check(math.inf, LIMIT)
    if device.backend == "mps":
        raise Skip("Metal has no float64")
    exact = x.double()
    for layer in layers:
        doubled = replace(
            layer,
            **{name: _double(getattr(layer, name)) for name in ("qkv", "out", "gate_up", "down", "router", "norms")},
        )
        exact = forward(device, net, [doubled], [_exact_attention(device, net.heads, layer.cache)], None, exact)
    if head is not None:
        exact = exact @ head.double().t()
    return Check(relative_error(torch, out, exact), LIMIT)


def _exact_attention(device: Device, heads: Heads, cache: decode.Paged | None) -> Callable[[Any], Any]:
    if cache is None:
        return lambda qkv: causal(device, heads, qkv)
    return lambda qkv: over_cache(device, heads, cache, qkv)


def _double(weight: Any) -> Any:
    return None if weight is None else weight.double()
