"""A training step of a few decoder layers: forward, backward and a fused AdamW update in BF16.

With `recompute: full`, each layer's activations are computed again in its backward pass. FLOPs are those of the
products and of causal attention: three forward passes, four with recomputation. `peak_bytes` is the allocator's peak.
The check is the gradient of the first layer's output projection against the same in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from ...decoders import NETS, TINY, Net, cost
from ...measure import Case, Check, Device, Scalar, Work, relative_error

LIMIT = 5e-2  # a gradient through two layers rounds to bf16 at every operator
CHECKED_TOKENS = 256
LAYERS = 2
BYTES_PER_PARAMETER = 8  # bf16 weight, gradient and two states
KEPT = 40  # bf16 values of a token and layer that the backward pass needs, in hidden sizes, and then some


def cases(kind: str, suite: str, device: Device) -> Iterator[Case]:
    net = NETS[0] if device.gpu else TINY
    lengths = (256,) if not device.gpu else (4096,) if suite == "quick" else (2048, 4096, 8192)
    depths = (LAYERS,) if suite == "quick" else (LAYERS, 2 * LAYERS)
    for tokens in lengths:
        for layers in depths:
            for recompute in ("none", "full"):
                yield _case(kind, net, layers, tokens, recompute)


def _case(kind: str, net: Net, layers: int, tokens: int, recompute: str) -> Case:
    key: dict[str, Scalar] = {"dtype": "bf16", "model": net.name, "layers": layers, "tokens": tokens}
    key |= {"recompute": recompute, "optimizer": "adamw"}
    forward, _ = cost(net, "prefill", 1, tokens)
    flops = (4 if recompute == "full" else 3) * layers * forward
    needs = layers * (BYTES_PER_PARAMETER * parameters(net) + 2 * KEPT * tokens * net.hidden)
    build = partial(_build, net, layers, tokens, recompute, flops)
    return Case(kind, key, build, flops, 0, needs, window_s=0.5, warm_s=0.2, setup_s=2.0)


def parameters(net: Net) -> int:
    return net.attention_values + 3 * net.hidden * net.inner


def _build(net: Net, layers: int, tokens: int, recompute: str, flops: int, device: Device) -> Work:
    torch = device.torch
    with torch.enable_grad():
        stack = [weights(device, net, torch.bfloat16) for _ in range(layers)]
        every = [w for layer in stack for w in layer.values()]
        optimizer = torch.optim.AdamW(every, lr=1e-6, fused=device.streams)
        x = device.random(tokens, net.hidden, dtype=torch.bfloat16)
        call = partial(_step, device, net, stack, x, recompute, optimizer)
        call()  # the states of the optimizer exist from here on
        if device.streams:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        call()
        peak_bytes = None
        if device.streams:
            torch.cuda.synchronize()
            peak_bytes = int(torch.cuda.max_memory_allocated())
    return Work([call], flops, None, partial(_verify, device, net), peak_bytes=peak_bytes, capture=False)


def weights(device: Device, net: Net, dtype: Any) -> dict[str, Any]:
    """The parameters of one layer."""
    heads, h = net.heads, net.hidden
    sizes = {
        "qkv": ((heads.query + 2 * heads.kv) * heads.dim, h), "out": (h, heads.query * heads.dim),
        "gate_up": (2 * net.inner, h), "down": (h, net.inner),
    }  # fmt: skip
    made = {
        name: device.random(*size, dtype=dtype, scale=1 / math.sqrt(size[-1])).requires_grad_()
        for name, size in sizes.items()
    }
    ones = {name: device.torch.ones(h, dtype=dtype, device=made["qkv"].device) for name in ("norm_1", "norm_2")}
    return made | {name: one.requires_grad_() for name, one in ones.items()}


def _step(device: Device, net: Net, stack: list[dict[str, Any]], x: Any, recompute: str, optimizer: Any) -> None:
    torch = device.torch
    with torch.enable_grad():
        out = forward(device, net, stack, x, recompute)
        out.float().pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def forward(device: Device, net: Net, stack: list[dict[str, Any]], x: Any, recompute: str) -> Any:
    layer: Callable[[Any, dict[str, Any]], Any] = partial(forward_layer, device, net)
    if recompute == "full":
        from torch.utils.checkpoint import checkpoint

        layer = partial(checkpoint, layer, use_reentrant=False)
    for one in stack:
        x = layer(x, one)
    return x


def forward_layer(device: Device, net: Net, x: Any, w: dict[str, Any]) -> Any:
    """A decoder layer without rotary embedding, whose time is measured by another kind."""
    torch, heads = device.torch, net.heads
    functional = torch.nn.functional
    values = functional.rms_norm(x, (net.hidden,), w["norm_1"], 1e-6) @ w["qkv"].t()
    q, k, v = (
        part.reshape(len(x), -1, heads.dim).transpose(0, 1)[None]
        for part in values.split([heads.query * heads.dim, heads.kv * heads.dim, heads.kv * heads.dim], dim=-1)
    )
    shared = {"enable_gqa": True} if device.version >= (2, 5) else {}
    seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True, **shared)
    x = x + seen[0].transpose(0, 1).reshape(len(x), -1) @ w["out"].t()
    gate, up = (functional.rms_norm(x, (net.hidden,), w["norm_2"], 1e-6) @ w["gate_up"].t()).chunk(2, dim=-1)
    return x + (functional.silu(gate) * up) @ w["down"].t()


def _verify(device: Device, net: Net) -> Check:
    """The gradient of the first output projection through two layers, in bf16 against float32."""
    torch = device.torch
    with torch.enable_grad():
        stack = [weights(device, net, torch.bfloat16) for _ in range(LAYERS)]
        exact = [{name: w.detach().float().requires_grad_() for name, w in layer.items()} for layer in stack]
        x = device.random(CHECKED_TOKENS, net.hidden, dtype=torch.bfloat16)
        for given, start in ((stack, x), (exact, x.float())):
            forward(device, net, given, start, "none").float().pow(2).mean().backward()
    error = relative_error(torch, stack[0]["out"].grad, exact[0]["out"].grad)
    return Check(error, LIMIT, "float32")
