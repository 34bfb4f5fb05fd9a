"""Our Triton kernels: split-KV decode attention over a paged cache, and matrix products with few rows.

Serving frameworks use such kernels where torch has none. The module can be imported without Triton.
"""

# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...measure import Device, Skip

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = tl = None


def ready(device: Device) -> None:
    """Skip: the kernels cannot run here."""
    if triton is None:
        raise Skip("Triton is not installed")
    if not device.streams or (device.nvidia and device.capability < (8, 0)):
        raise Skip("Triton kernels need a GPU of compute capability 8.0 or newer")


def kernel(*changing: str) -> Callable[[Any], Any]:
    """Compiles a kernel on first use. Changes of the named arguments do not recompile it."""
    return lambda function: triton.jit(do_not_specialize=list(changing))(function) if triton else function


@kernel("context", "pages", "splits")
def attend_split(
    q, k, v, table, part, stats, scale, context, pages, splits,
    KV_HEADS: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr, DIM: tl.constexpr,
    PAGE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One sequence, one KV head, one split of the context: softmax(q k) v without the denominator.

    q [batch, kv_heads * GROUP, DIM]; k, v [pages, PAGE, KV_HEADS, DIM]; table [batch, pages];
    scale includes log2(e) / sqrt(DIM) and the scale of k.
    """
    pair = tl.program_id(0)
    split = tl.program_id(1)
    sequence = pair // KV_HEADS
    head = pair % KV_HEADS
    each = tl.cdiv(tl.cdiv(context, BLOCK), splits) * BLOCK
    start = split * each
    stop = tl.minimum(start + each, context)
    rows = tl.arange(0, ROWS)
    dims = tl.arange(0, DIM)
    query = tl.load(q + (pair * GROUP + rows)[:, None] * DIM + dims[None, :], mask=rows[:, None] < GROUP, other=0.0)
    best = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    sums = tl.zeros([ROWS, DIM], tl.float32)
    for at in range(start, stop, BLOCK):
        tokens = at + tl.arange(0, BLOCK)
        live = tokens < stop
        page = tl.load(table + sequence * pages + tokens // PAGE, mask=live, other=0)
        place = ((page.to(tl.int64) * PAGE + tokens % PAGE) * KV_HEADS + head) * DIM
        keys = tl.load(k + place[None, :] + dims[:, None], mask=live[None, :], other=0.0).to(query.dtype)
        values = tl.load(v + place[:, None] + dims[None, :], mask=live[:, None], other=0.0).to(query.dtype)
        scores = tl.where(live[None, :], tl.dot(query, keys) * scale, float("-inf"))
        top = tl.maximum(best, tl.max(scores, 1))
        weights = tl.exp2(scores - top[:, None])
        shrink = tl.exp2(best - top)
        total = total * shrink + tl.sum(weights, 1)
        sums = sums * shrink[:, None] + tl.dot(weights.to(query.dtype), values)
        best = top
    place = (pair * GROUP + rows) * splits + split
    tl.store(part + place[:, None] * DIM + dims[None, :], sums, mask=rows[:, None] < GROUP)
    tl.store(stats + place * 2, best, mask=rows < GROUP)
    tl.store(stats + place * 2 + 1, total, mask=rows < GROUP)


@kernel("splits")
def attend_merge(part, stats, out, scale, splits, DIM: tl.constexpr, SPLITS: tl.constexpr):
    """Merges the splits of one query head. `scale` is that of v."""
    row = tl.program_id(0)
    at = tl.arange(0, SPLITS)
    dims = tl.arange(0, DIM)
    live = at < splits
    best = tl.load(stats + (row * splits + at) * 2, mask=live, other=float("-inf"))
    total = tl.load(stats + (row * splits + at) * 2 + 1, mask=live, other=0.0)
    weight = tl.exp2(best - tl.max(best, 0))
    sums = tl.load(part + (row * splits + at)[:, None] * DIM + dims[None, :], mask=live[:, None], other=0.0)
    mixed = tl.sum(sums * weight[:, None], 0) / tl.sum(total * weight, 0) * scale
    tl.store(out + row * DIM + dims, mixed.to(out.dtype.element_ty))


@kernel("m")
def thin_mm(
    x, w, out, m, n, k,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLIT_K: tl.constexpr,
):  # fmt: skip
    """BLOCK_N columns of x w^T over one of SPLIT_K parts of k. x has at most BLOCK_M rows; k % BLOCK_K == 0."""
    columns = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    part = tl.program_id(1)
    rows = tl.arange(0, BLOCK_M)
    inner = tl.arange(0, BLOCK_K)
    sums = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for at in range(part * BLOCK_K, k, BLOCK_K * SPLIT_K):
        left = tl.load(x + rows[:, None] * k + at + inner[None, :], mask=rows[:, None] < m, other=0.0)
        place = columns.to(tl.int64)[None, :] * k + at + inner[:, None]
        right = tl.load(w + place, mask=columns[None, :] < n, other=0.0)
        sums = tl.dot(left, right, sums)
    place = (part * m + rows)[:, None] * n + columns[None, :]
    tl.store(out + place, sums.to(out.dtype.element_ty), mask=(rows[:, None] < m) & (columns[None, :] < n))


@kernel("count")
def add_parts(parts, out, count, SPLIT_K: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = at < count
    sums = tl.zeros([BLOCK], tl.float32)
    for part in tl.static_range(SPLIT_K):
        sums += tl.load(parts + part * count + at, mask=live, other=0.0)
    tl.store(out + at, sums.to(out.dtype.element_ty), mask=live)
