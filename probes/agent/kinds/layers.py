"""The operators between matrix products: norm, rotary embedding, gated activation, softmax; and a whole MLP.

`fused` means compiled by torch.compile; otherwise the operators run one by one. Bytes are the minimum, each input
read once and each output written once, so unfused code has a lower rate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ..measure import Case, Check, Device, Skip, Work, exact, finite, relative_error

LIMIT = 1e-2
FP8_LIMIT = 6e-2  # e4m3 has three mantissa bits, and ties may round either way
FP8_MAX = 448.0  # largest e4m3 value
SOFTMAX_ROWS = 4096  # samplers have one row per sequence
# hidden, heads, kv_heads, head_dim, inner, vocab: of Llama 3.1 8B.
WIDE = (4096, 32, 8, 128, 14336, 128256)
SMALL = (512, 8, 2, 64, 1024, 8192)


@dataclass(frozen=True)
class Part:
    """An operator: a function of tensors, their shapes, and its cost per call."""

    function: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    flops: int
    bytes: int
    key: dict[str, Any]


def cases(kind: str, suite: str, device: Device) -> Iterator[Case]:
    widths = WIDE if device.gpu else SMALL
    counts: tuple[int, ...] = (1, 64, 512, 4096, 16384) if suite == "full" else (64, 4096)
    if not device.gpu:
        counts = counts[: 2 if suite == "quick" else 4]
    for fused in (False, True) if suite == "full" and device.streams else (False,):
        rows = [tokens for tokens in (counts[1:4] if fused else counts) if kind != "softmax" or tokens <= SOFTMAX_ROWS]
        for tokens, make in ((tokens, make) for make in PARTS[kind] for tokens in rows):
            part = make(device.torch, tokens, *widths)
            key = {"dtype": "bf16", "tokens": tokens, **part.key, "fused": fused}
            build = _builder(part, fused)
            setup_s = 3.0 if fused else 0.1
            yield Case(kind, key, build, part.flops, part.bytes, 8 * part.bytes, setup_s=setup_s)


def _builder(part: Part, fused: bool) -> Callable[[Device], Work]:
    def build(device: Device) -> Work:
        torch = device.torch
        sets = [_tensors(device, part) for _ in range(device.sets(part.bytes, at_most=64))]
        function = compiled(device, part.function) if fused else part.function
        calls = [lambda given=given: function(*given) for given in sets]
        return Work(calls, part.flops, part.bytes, lambda: verify(torch, part, calls[0](), sets[0]))

    return build


def _tensors(device: Device, part: Part) -> list[Any]:
    """Random tensors. All but the first are weights, scaled to keep outputs near 1."""
    scales = [1.0 if at == 0 else 1 / math.sqrt(shape[-1]) for at, shape in enumerate(part.shapes)]
    return [
        device.random(*shape, dtype=device.torch.bfloat16, scale=scale)
        for shape, scale in zip(part.shapes, scales, strict=True)
    ]


def compiled(device: Device, function: Callable[..., Any]) -> Any:
    if not device.streams:
        raise Skip("torch.compile is measured on a GPU only")
    device.torch._dynamo.reset()
    return device.torch.compile(function, dynamic=False)


def verify(torch: Any, part: Part, out: Any, given: list[Any]) -> Check:
    """A check of the first rows against the same function in float64."""
    rows = min(len(given[0]), 32)
    wide = [exact(side) for side in given]
    if len(wide) == 1 or part.key.get("rowwise", True):
        wide[0] = wide[0][:rows]
    reference = part.function(*wide)
    if isinstance(out, tuple):
        out, reference = (side[0].double() * side[1].double() for side in (out, reference))
        limit = FP8_LIMIT
    else:
        limit = LIMIT
    error = relative_error(torch, out[:rows], reference[:rows]) if finite(torch, out) else math.inf
    return Check(error, limit)


def norm(torch: Any, tokens: int, hidden: int, *_: int) -> Part:
    """Residual addition and RMS norm."""

    def add_norm(x: Any, residual: Any) -> Any:
        return torch.nn.functional.rms_norm(x + residual[: len(x)], (hidden,), eps=1e-6)

    return Part(add_norm, ((tokens, hidden),) * 2, 0, 3 * 2 * tokens * hidden, {"hidden": hidden})


def rotary(torch: Any, tokens: int, hidden: int, heads: int, kv_heads: int, dim: int, *_: int) -> Part:
    """Rotary embedding of queries and keys."""
    turned = heads + kv_heads

    def turn(x: Any, angles: Any) -> Any:
        angles = angles[: len(x), None]
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        first, second = x.chunk(2, dim=-1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)

    size = 2 * (2 * tokens * turned * dim + tokens * dim // 2)
    return Part(turn, ((tokens, turned, dim), (tokens, dim // 2)), 0, size, {"heads": turned, "head_dim": dim})


def activation(torch: Any, tokens: int, hidden: int, heads: int, kv_heads: int, dim: int, inner: int, _: int) -> Part:
    def gated(x: Any) -> Any:
        gate, up = x.chunk(2, dim=-1)
        return torch.nn.functional.silu(gate) * up

    return Part(gated, ((tokens, 2 * inner),), 0, 3 * 2 * tokens * inner, {"inner": inner})


def softmax(torch: Any, tokens: int, *widths: int) -> Part:
    """Softmax over the vocabulary, as in a sampler."""
    vocab = widths[-1]
    return Part(lambda x: torch.softmax(x, dim=-1), ((tokens, vocab),), 0, 2 * 2 * tokens * vocab, {"vocab": vocab})


def mlp(torch: Any, tokens: int, hidden: int, heads: int, kv_heads: int, dim: int, inner: int, _: int) -> Part:
    def feed(x: Any, gate_up: Any, down: Any) -> Any:
        gate, up = (x @ gate_up.t()).chunk(2, dim=-1)
        return (torch.nn.functional.silu(gate) * up) @ down.t()

    shapes = ((tokens, hidden), (2 * inner, hidden), (hidden, inner))
    size = 2 * (2 * tokens * hidden + 3 * hidden * inner)
    return Part(feed, shapes, 6 * tokens * hidden * inner, size, {"hidden": hidden, "inner": inner})


def into_fp8(torch: Any, x: Any) -> Any:
    """e4m3 values and one scale per token, as in dynamic quantization."""
    wide = x.float() if x.dtype != torch.float64 else x
    scale = wide.abs().amax(dim=-1, keepdim=True).clamp(min=1e-9) / FP8_MAX
    return (wide / scale).clamp(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn), scale


def quantized(of: Callable[..., Part]) -> Callable[..., Part]:
    """The same operator with fp8 output: one byte per value instead of two."""

    def make(torch: Any, tokens: int, *widths: int) -> Part:
        plain = of(torch, tokens, *widths)
        values = tokens * plain.key.get("inner", plain.key.get("hidden", 1))

        def function(*given: Any) -> Any:
            return into_fp8(torch, plain.function(*given))

        return Part(function, plain.shapes, 0, plain.bytes - values, {**plain.key, "into": "fp8"})

    return make


def alone(torch: Any, tokens: int, hidden: int, *_: int) -> Part:
    """Quantization alone, of a 16-bit tensor, as before an output projection."""
    key = {"hidden": hidden, "into": "fp8", "after": "nothing"}
    return Part(lambda x: into_fp8(torch, x), ((tokens, hidden),), 0, 3 * tokens * hidden, key)


PARTS: dict[str, tuple[Callable[..., Part], ...]] = {
    "norm": (norm, quantized(norm), alone),
    "rotary": (rotary,),
    "activation": (activation, quantized(activation)),
    "softmax": (softmax,),
    "mlp": (mlp,),
}
