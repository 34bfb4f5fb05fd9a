"""Device memory: read, write, copy, strided and gathered access by size, and reads from the last-level cache."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..axes import CPU_SIZES, GPU_SIZES, MIB
from ..measure import Case, Check, Device, Skip, Work

QUICK = (16 * MIB, 256 * MIB, 2048 * MIB)
ROW_BYTES = {
    "page": 16 * 8 * 128 * 2,
    "token": 8 * 128 * 2,
    "head": 128 * 2,
}  # of a paged bf16 KV cache with 8 heads of 128


def cases(kind: str, suite: str, device: Device) -> Iterator[Case]:
    sizes = GPU_SIZES if device.gpu else CPU_SIZES
    if suite == "quick":
        sizes = QUICK if device.gpu else CPU_SIZES[1:4:2]
    if kind == "l2_read":
        yield from _l2_cases(kind, device)
    elif kind == "memory_gather":
        yield from _gather_cases(kind, suite, sizes, device)
    elif kind == "memory_strided":
        yield from _strided_cases(kind, suite, sizes)
    else:
        build = {"memory_read": read, "memory_write": write, "memory_copy": copy}[kind]
        for size in sorted(sizes, reverse=True):
            traffic = 2 * size if kind == "memory_copy" else size
            yield Case(kind, {"bytes": size}, _sized(build, size), bytes=traffic, needs_bytes=2 * traffic)


LARGE_COPY_BYTES = 1 << 28


def _sized(build: Any, size: int, **more: Any) -> Any:
    return lambda device: build(device, size, **more)


def _values(device: Device, size: int) -> Any:
    """A random bf16 buffer of `size` bytes."""
    return device.random(size // 2 // 1024, 1024, dtype=device.torch.bfloat16)


def read(device: Device, size: int) -> Work:
    """The maximum of each row: reads every byte once and writes almost nothing.

    Values are compared as 32-bit integers, because bf16 comparisons would be slower than the memory.
    """
    torch = device.torch
    sets = [_words(device, size) for _ in range(device.sets(size))]
    calls = [lambda x=x: torch.amax(x, dim=1) for x in sets]
    return Work(calls, bytes=size, check=lambda: _exact(device, calls[0](), _largest(sets[0])))


def _words(device: Device, size: int) -> Any:
    return _values(device, size).view(device.torch.int32).reshape(-1, 4096)


def _largest(words: Any) -> Any:
    return words[:256].cpu().amax(dim=1)


def _exact(device: Device, out: Any, reference: Any) -> Check:
    """The share of elements that differ; copies must be exact."""
    wrong = int((out[: len(reference)].to(reference.device) != reference).sum())
    return Check(wrong / reference.numel(), 0.0)


def write(device: Device, size: int) -> Work:
    torch = device.torch
    sets = [device.poisoned(size // 4, dtype=torch.float32) for _ in range(device.sets(size))]
    calls = [lambda x=x: x.fill_(1.6180339) for x in sets]
    expected = torch.full((1,), 1.6180339, dtype=torch.float32)

    def check() -> Check:
        wrong = int((calls[0]() != expected.to(device.device)).sum())
        return Check(wrong / sets[0].numel(), 0.0)

    return Work(calls, bytes=size, check=check)


def copy(device: Device, size: int) -> Work:
    """A copy; counts bytes read plus bytes written."""
    torch = device.torch
    pairs = [
        (_values(device, size), device.poisoned(size // 2 // 1024, 1024, dtype=torch.bfloat16))
        for _ in range(_half(device, size))
    ]
    calls = [lambda a=a, b=b: b.copy_(a) for a, b in pairs]

    def check() -> Check:
        source, target = pairs[0]
        calls[0]()
        return Check(float((target != source).sum()) / source.numel(), 0.0)

    # In a graph, the driver copies large buffers more slowly (2.8 instead of 4.2 TB/s on an H200).
    return Work(calls, bytes=2 * size, check=check, capture=size < LARGE_COPY_BYTES)


def _half(device: Device, size: int) -> int:
    return max(1, device.sets(2 * size))


def _strided_cases(kind: str, suite: str, sizes: Any) -> Iterator[Case]:
    size = max(size for size in sizes if size <= 1 << 30)
    runs = ((32, 64), (64, 256), (128, 512), (512, 2048)) if suite == "full" else ((32, 64), (128, 512))
    for run_bytes, stride_bytes in runs:
        key = {"bytes": size, "run_bytes": run_bytes, "stride_bytes": stride_bytes}
        build = _sized(strided, size, run_bytes=run_bytes, stride_bytes=stride_bytes)
        yield Case(kind, key, build, bytes=size, needs_bytes=3 * size)


def strided(device: Device, size: int, run_bytes: int, stride_bytes: int) -> Work:
    """Copies the first `run_bytes` of every `stride_bytes` to a dense buffer. Counts useful bytes only."""
    torch = device.torch
    sets = [_values(device, size).reshape(-1, stride_bytes // 2) for _ in range(device.sets(size))]
    views = [x[:, : run_bytes // 2] for x in sets]
    outs = [device.poisoned(*view.shape, dtype=torch.bfloat16) for view in views]
    calls = [lambda a=a, b=b: b.copy_(a) for a, b in zip(views, outs, strict=True)]
    useful = views[0].numel() * 2
    return Work(calls, bytes=2 * useful, check=lambda: _exact(device, calls[0]().flatten(), views[0].flatten()))


def _gather_cases(kind: str, suite: str, sizes: Any, device: Device) -> Iterator[Case]:
    size = max(size for size in sizes if size <= 1 << 30)
    for name, row_bytes in ROW_BYTES.items():
        for share in (1, 4) if suite == "full" else (4,):
            key = {"bytes": size, "row_bytes": row_bytes, "rows": name, "share_of_buffer": 1 / share}
            build = _sized(gather, size, row_bytes=row_bytes, share=share)
            yield Case(kind, key, build, bytes=2 * size // share, needs_bytes=3 * size)


def gather(device: Device, size: int, row_bytes: int, share: int) -> Work:
    """Copies random distinct rows of a buffer to a dense one. Counts bytes read plus bytes written."""
    torch = device.torch
    source = _values(device, size).reshape(-1, row_bytes // 2)
    rows = len(source) // share
    if not rows:
        raise Skip("the buffer is smaller than one row")
    orders = [torch.randperm(len(source), device=device.device)[:rows] for _ in range(4)]
    out = device.poisoned(rows, row_bytes // 2, dtype=torch.bfloat16)
    calls = [lambda at=at: torch.index_select(source, 0, at, out=out) for at in orders]
    first = orders[0]
    return Work(
        calls, bytes=2 * rows * row_bytes, check=lambda: _exact(device, calls[0]().flatten(), source[first].flatten())
    )


def _l2_cases(kind: str, device: Device) -> Iterator[Case]:
    for part in (2, 4, 8):
        size = max(MIB, device.l2_bytes // part // MIB * MIB)
        yield Case(kind, {"bytes": size, "share_of_l2": 1 / part}, _sized(cached, size), bytes=size, needs_bytes=size)


def cached(device: Device, size: int) -> Work:
    """Reads the same buffer repeatedly."""
    x = _words(device, size)

    def call() -> Any:
        return device.torch.amax(x, dim=1)

    return Work([call] * 8, bytes=size, check=lambda: _exact(device, call(), _largest(x)))
