"""Decode attention: one query per sequence of a batch, over its whole KV cache.

Bytes are keys, values, queries and outputs, each counted once. The axis `backend` has each backend of torch, also
with the queries of one KV head as rows of one matrix (`_grouped`), and `split_kv`: our own kernel over a cache in
pages of 16 tokens, as in serving frameworks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ..axes import DECODE_BATCH, DECODE_TOKENS, GQA, KV_LIMIT_TOKENS, Heads
from ..measure import Case, Check, Device, Scalar, Skip, Work, exact, finite, indexed, relative_error, time_work
from .attention import sdpa
from .triton_kernels.kernels import attend_merge, attend_split, ready

PAGE = 16
BLOCK = 64
MAX_SPLITS = 128  # limited by the registers of the merge kernel
LIMIT = 1e-2
BACKENDS = ("flash", "flash_grouped", "cudnn", "efficient", "math")
LOG2_E = 1.4426950408889634
K_SCALE, V_SCALE = 0.043, 0.031  # of an fp8 cache; any values other than 1


@dataclass(frozen=True)
class Shape:
    batch: int
    context: int
    heads: Heads

    @property
    def flops(self) -> int:
        return 4 * self.batch * self.heads.query * self.heads.dim * self.context

    def traffic_bytes(self, width_bytes: int) -> int:
        cache = 2 * self.batch * self.context * self.heads.kv * self.heads.dim * width_bytes
        return cache + 2 * 2 * self.batch * self.heads.query * self.heads.dim


def cases(kind: str, suite: str, device: Device) -> Iterator[Case]:
    for dtype, backend, shape in _wanted(suite, device):
        width = 1 if dtype == "fp8" else 2
        size = shape.traffic_bytes(width)
        key: dict[str, Scalar] = {
            "dtype": dtype,
            "backend": backend,
            "batch": shape.batch,
            "context_tokens": shape.context,
        }
        key |= {"heads": shape.heads.query, "kv_heads": shape.heads.kv, "head_dim": shape.heads.dim}
        build = _builder(dtype, backend, shape)
        yield Case(kind, key, build, shape.flops, size, _needs(backend, shape, size))


def _needs(backend: str, shape: Shape, size: int) -> int:
    """Memory for one case. Backends without GQA repeat keys and values per query head; math also uses float32."""
    repeats = shape.heads.query // shape.heads.kv
    return size * {"math": 4 * repeats, "efficient": 1 + repeats}.get(backend, 2)


def _wanted(suite: str, device: Device) -> Iterator[tuple[str, str, Shape]]:
    if not device.gpu:
        points = [(1, 512), (4, 1024)] if suite == "quick" else [(1, 512), (4, 1024), (8, 4096)]
        yield from (("bf16", back, Shape(*at, Heads(8, 2, 64))) for at in points for back in ("flash", "math"))
        return
    if suite == "quick":
        for batch, context in ((64, 2048), (8, 8192), (1, 4096), (256, 1024)):
            yield from ((dtype, "split_kv", Shape(batch, context, GQA[0])) for dtype in ("bf16", "fp8"))
        yield from (("bf16", back, Shape(64, 2048, GQA[0])) for back in BACKENDS)
        return
    grid = [
        (batch, context) for batch in DECODE_BATCH for context in DECODE_TOKENS if batch * context <= KV_LIMIT_TOKENS
    ]
    for heads in GQA:
        for dtype in ("bf16", "fp8"):
            yield from ((dtype, "split_kv", Shape(*at, heads)) for at in grid)
    some = [(1, 4096), (1, 32768), (8, 8192), (32, 1024), (64, 2048), (64, 8192), (256, 1024)]
    yield from (("bf16", back, Shape(*at, GQA[0])) for at in some for back in BACKENDS)
    yield from (("fp8", "flash", Shape(64, 2048, GQA[0])),)


def _builder(dtype: str, backend: str, shape: Shape) -> Callable[[Device], Work]:
    if backend == "split_kv":
        return lambda device: split_kv(device, shape, dtype)
    return lambda device: through_torch(device, shape, dtype, backend)


def through_torch(device: Device, shape: Shape, dtype: str, backend: str) -> Work:
    if dtype == "fp8":
        raise Skip("torch's attention does not support an fp8 cache")
    torch, heads = device.torch, shape.heads
    size = shape.traffic_bytes(2)

    def one() -> tuple[Any, Any, Any]:
        query = device.random(shape.batch, heads.query, 1, heads.dim, dtype=torch.bfloat16)
        k, v = (device.random(shape.batch, heads.kv, shape.context, heads.dim, dtype=torch.bfloat16) for _ in "kv")
        return query, k, v

    sets = [one() for _ in range(device.sets(size, at_most=32))]
    calls = [_call(device, shape, backend, *tensors) for tensors in sets]
    return Work(calls, shape.flops, size, lambda: verify(device, calls[0](), sets[0], heads))


def _call(device: Device, shape: Shape, backend: str, q: Any, k: Any, v: Any) -> Callable[[], Any]:
    heads = shape.heads
    if backend.endswith("_grouped"):
        # The queries of one KV head become rows of one matrix, so that keys and values are read once.
        q = q.reshape(shape.batch, heads.kv, heads.query // heads.kv, heads.dim)
    return sdpa(device, backend.removesuffix("_grouped"), q, k, v, causal=False)


def verify(device: Device, out: Any, qkv: tuple[Any, Any, Any], heads: Heads) -> Check:
    """A check of the first and last sequence, all heads, against float64."""
    torch, (q, k, v) = device.torch, qkv
    out = out.reshape(len(q), heads.query, heads.dim)
    if not finite(torch, out):
        return Check(math.inf, LIMIT)
    errors = []
    for at in (0, -1):
        query = exact(q[at].reshape(heads.kv, -1, heads.dim))
        keys, values = (exact(side[at]) for side in (k, v))
        weights = torch.softmax(query @ keys.transpose(1, 2) / math.sqrt(heads.dim), dim=-1)
        errors.append(relative_error(torch, out[at], (weights @ values).reshape(heads.query, heads.dim)))
    return Check(max(errors), LIMIT)


def split_kv(device: Device, shape: Shape, dtype: str) -> Work:
    ready(device)
    torch, heads = device.torch, shape.heads
    element = torch.float8_e4m3fn if dtype == "fp8" else torch.bfloat16
    if dtype == "fp8" and device.nvidia and device.capability < (8, 9):
        raise Skip("no fp8 on this device")
    size = shape.traffic_bytes(element.itemsize)
    caches = [Paged.random(device, shape, element) for _ in range(device.sets(size, at_most=32))]
    splits, block = settings(device, caches[0])
    calls = [decoder(device, cache, splits, block) for cache in caches]

    def check() -> Check:
        return verify(device, calls[0](), (caches[0].q, *caches[0].dense()), heads)

    return Work(calls, shape.flops, size, check, note=f"{splits} splits of the context, {block} tokens at a time")


def settings(device: Device, cache: Paged) -> tuple[int, int]:
    """The fastest number of splits and block size for this shape, by autotuning."""
    key = ("split_kv", cache.shape, str(cache.k.dtype))
    if key not in device.kept:
        fewest = split_count(device, cache.shape)
        most = min(math.ceil(cache.shape.context / BLOCK), MAX_SPLITS)
        tried = {(min(most, fewest * times), block) for times in (1, 2) for block in (BLOCK, 2 * BLOCK)}
        works = {one: Work([decoder(device, cache, *one)]) for one in tried}
        times_s = {one: time_work(device, work, 3e-3, 2e-3).median_s for one, work in works.items()}
        device.kept[key] = min(sorted(times_s), key=lambda one: times_s[one])
    fastest: tuple[int, int] = device.kept[key]
    return fastest


def split_count(device: Device, shape: Shape) -> int:
    """The number of splits that gives four programs per multiprocessor, with at least two blocks of tokens each."""
    pairs = shape.batch * shape.heads.kv
    wanted = math.ceil(4 * device.multiprocessors / pairs)
    return max(1, min(wanted, math.ceil(shape.context / (2 * BLOCK)), MAX_SPLITS))


@dataclass(frozen=True)
class Paged:
    """Queries, and a KV cache whose pages are in random order."""

    q: Any
    k: Any
    v: Any
    table: Any
    shape: Shape
    torch: Any

    @classmethod
    def random(cls, device: Device, shape: Shape, element: Any) -> Paged:
        torch, heads = device.torch, shape.heads
        pages = math.ceil(shape.context / PAGE)
        fp8 = element != torch.bfloat16
        size = (shape.batch * pages, PAGE, heads.kv, heads.dim)
        scales = (1 / K_SCALE, 1 / V_SCALE) if fp8 else (1.0, 1.0)
        sides = [device.random(*size, dtype=torch.bfloat16, scale=scale).to(element) for scale in scales]
        order = torch.randperm(shape.batch * pages, device=device.device).to(torch.int32).reshape(shape.batch, pages)
        q = device.random(shape.batch, heads.query, heads.dim, dtype=torch.bfloat16)
        return cls(q, sides[0], sides[1], order, shape, torch)

    @property
    def scales(self) -> tuple[float, float]:
        return (K_SCALE, V_SCALE) if self.k.dtype.itemsize == 1 else (1.0, 1.0)

    def dense(self) -> tuple[Any, Any]:
        """Keys and values of the first and last sequence, as [heads, tokens, dim]."""
        at = self.table[[0, -1]].long()

        def one(side: Any, scale: float) -> Any:
            pages = indexed(self.torch, side, at.flatten()).reshape(2, -1, self.shape.heads.kv, self.shape.heads.dim)
            return pages[:, : self.shape.context].transpose(1, 2) * scale

        return one(self.k, self.scales[0]), one(self.v, self.scales[1])


def decoder(device: Device, cache: Paged, splits: int, block: int = BLOCK) -> Callable[[], Any]:
    """A call of one decode attention step over a paged cache. It returns [batch, heads, dim]."""
    torch, shape, heads = device.torch, cache.shape, cache.shape.heads
    rows = shape.batch * heads.query
    part = torch.empty(rows, splits, heads.dim, device=device.device, dtype=torch.float32)
    stats = torch.empty(rows, splits, 2, device=device.device, dtype=torch.float32)
    out = device.poisoned(shape.batch, heads.query, heads.dim, dtype=torch.bfloat16)
    group = heads.query // heads.kv
    sizes = {"KV_HEADS": heads.kv, "GROUP": group, "ROWS": max(16, group), "DIM": heads.dim, "PAGE": PAGE}
    k_scale, v_scale = cache.scales
    scale = LOG2_E / math.sqrt(heads.dim) * k_scale
    pages = cache.table.shape[1]

    def call() -> Any:
        attend_split[(shape.batch * heads.kv, splits)](
            cache.q, cache.k, cache.v, cache.table, part, stats, scale, shape.context, pages, splits,
            **sizes, BLOCK=block, num_warps=4, num_stages=3 if block == BLOCK else 2,
        )  # fmt: skip
        wide = 1 << (splits - 1).bit_length()
        attend_merge[(rows,)](part, stats, out, v_scale, splits, DIM=heads.dim, SPLITS=wide, num_warps=4)
        return out

    return call
