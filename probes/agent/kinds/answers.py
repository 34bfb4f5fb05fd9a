"""A matrix product with a known exact result: proves that the device computes correctly."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..measure import Case, Check, Device, Work

SIDE = 512
PRIME = 2147483629
# The sum over i and j, from 1, of i * j * (a b)[i, j] modulo PRIME, computed with Python integers.
ANSWER = 936679804


def cases(kind: str, suite: str, device: Device) -> Iterator[Case]:
    yield Case(kind, {"side": SIDE, "dtype": "fp32"}, build, flops=2 * SIDE**3, needs_bytes=16 * SIDE**2)


def build(device: Device) -> Work:
    a, b = (matrix(device, step) for step in (7, 11))
    out = device.poisoned(SIDE, SIDE, dtype=device.torch.float32)

    def call() -> Any:
        return device.torch.mm(a, b, out=out)

    return Work([call], flops=2 * SIDE**3, bytes=3 * 4 * SIDE**2, check=lambda: check(device, call()))


def matrix(device: Device, step: int) -> Any:
    """Integers from -8 to 8, whose products and sums are exact in float32 and in tf32."""
    at = device.torch.arange(SIDE * SIDE, device=device.device).reshape(SIDE, SIDE)
    return ((at * step + at // SIDE * 5) % 17 - 8).to(device.torch.float32)


def check(device: Device, out: Any) -> Check:
    return Check(abs(digest(device, out) - ANSWER) / ANSWER, 0.0, against="exact")


def digest(device: Device, out: Any) -> int:
    whole = out.cpu().double().to(device.torch.int64)
    index = device.torch.arange(1, SIDE + 1)
    return int((whole * index[:, None] * index[None, :]).sum()) % PRIME
