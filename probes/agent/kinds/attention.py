"""Prefill attention: causal, with grouped queries, by length and backend.

FLOPs count the token pairs that the causal mask keeps: 4 x pairs x heads x head dimension. Bytes are q, k, v and the
output, each counted once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from ..axes import GQA, PREFILL_TOKENS, Heads
from ..measure import Case, Check, Device, Scalar, Skip, Work, exact, finite, relative_error

LIMIT = 1e-2
BACKENDS = {"flash": "FLASH_ATTENTION", "cudnn": "CUDNN_ATTENTION", "efficient": "EFFICIENT_ATTENTION", "math": "MATH"}
SAMPLED = 64
MATH_TOKENS = 4096  # beyond this, the score matrix alone takes gigabytes


def cases(kind: str, suite: str, device: Device) -> Iterator[Case]:
    for backend, heads, tokens in _wanted(suite, device):
        pairs = tokens * (tokens + 1) // 2
        flops = 4 * pairs * heads.query * heads.dim
        size = 2 * tokens * heads.dim * 2 * (heads.query + heads.kv)
        scores = 8 * heads.query * tokens**2 if backend == "math" else 0
        key: dict[str, Scalar] = {"dtype": "bf16", "backend": backend, "tokens": tokens, "batch": 1}
        key |= {"heads": heads.query, "kv_heads": heads.kv, "head_dim": heads.dim}
        build = _builder(backend, heads, tokens, flops, size)
        setup_s = 8.0 if backend == "flex" else 0.1
        yield Case(kind, key, build, flops, size, 4 * size + 2 * scores, setup_s=setup_s)


def _wanted(suite: str, device: Device) -> Iterator[tuple[str, Heads, int]]:
    if not device.gpu:
        lengths = (128, 512) if suite == "quick" else (128, 512, 2048)
        yield from ((back, Heads(8, 2, 64), tokens) for tokens in lengths for back in ("flash", "math"))
        return
    if suite == "quick":
        yield from ((back, GQA[0], tokens) for tokens in (2048, 8192) for back in ("flash", "cudnn"))
        yield from ((back, GQA[0], 2048) for back in ("efficient", "math"))
        return
    for heads in GQA:
        yield from ((back, heads, tokens) for tokens in PREFILL_TOKENS for back in BACKENDS if _sane(back, tokens))
    yield from (("flex", heads, tokens) for heads in GQA for tokens in (4096, 16384))


def _sane(backend: str, tokens: int) -> bool:
    return backend != "math" or tokens <= MATH_TOKENS


def _builder(backend: str, heads: Heads, tokens: int, flops: int, size: int) -> Callable[[Device], Work]:
    def build(device: Device) -> Work:
        sets = [_qkv(device, heads, tokens) for _ in range(device.sets(size, at_most=32))]
        make = flex if backend == "flex" else sdpa
        calls = [make(device, backend, q, k, v, True) for q, k, v in sets]
        return Work(calls, flops, size, lambda: verify(device, calls[0](), sets[0]))

    return build


def _qkv(device: Device, heads: Heads, tokens: int) -> tuple[Any, Any, Any]:
    def one(count: int) -> Any:
        return device.random(1, count, tokens, heads.dim, dtype=device.torch.bfloat16)

    return one(heads.query), one(heads.kv), one(heads.kv)


def sdpa(device: Device, backend: str, q: Any, k: Any, v: Any, causal: bool) -> Callable[[], Any]:
    """A call of scaled_dot_product_attention restricted to one backend, which fails on unsupported inputs."""
    torch, name = device.torch, BACKENDS[backend]
    attention = torch.nn.attention
    if not hasattr(attention.SDPBackend, name):
        raise Skip(f"this version of torch has no backend {name}")
    only = getattr(attention.SDPBackend, name)
    more = {"enable_gqa": True} if q.shape[1] != k.shape[1] else {}
    if more and (backend == "efficient" or device.version < (2, 5)):
        # No grouped queries: keys and values are repeated before timing.
        k, v = (side.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for side in (k, v))
        more = {}

    def call() -> Any:
        with attention.sdpa_kernel(only):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, **more)

    return call


def flex(device: Device, backend: str, q: Any, k: Any, v: Any, causal: bool) -> Callable[[], Any]:
    """A call of FlexAttention, compiled for a causal mask."""
    if not device.streams:
        raise Skip("FlexAttention is measured on a GPU only")
    torch = device.torch
    from importlib import import_module

    flexible = import_module("torch.nn.attention.flex_attention")
    tokens = q.shape[2]
    mask = flexible.create_block_mask(lambda b, h, i, j: i >= j, None, None, tokens, tokens, device=device.device)
    if "flex" not in device.kept:
        device.kept["flex"] = torch.compile(flexible.flex_attention, dynamic=False)
    compiled = device.kept["flex"]
    return lambda: compiled(q, k, v, block_mask=mask, enable_gqa=True)


def verify(device: Device, out: Any, qkv: tuple[Any, Any, Any]) -> Check:
    """A check of sampled queries of the first and last head against float64."""
    torch, (q, k, v) = device.torch, qkv
    if not finite(torch, out):
        return Check(math.inf, LIMIT)
    tokens, group = q.shape[2], q.shape[1] // k.shape[1]
    rows = torch.randperm(tokens, device=device.device)[:SAMPLED].sort().values
    hidden = torch.arange(tokens, device=device.device)[None, :] > rows[:, None]
    errors = []
    for head in (0, q.shape[1] - 1):
        query = exact(q[0, head, rows])
        keys, values = (exact(side[0, head // group]) for side in (k, v))
        scores = (query @ keys.T / math.sqrt(q.shape[3])).masked_fill(hidden.to(query.device), -math.inf)
        errors.append(relative_error(torch, out[0, head, rows], torch.softmax(scores, dim=-1) @ values))
    return Check(max(errors), LIMIT)
