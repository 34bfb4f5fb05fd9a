"""Grouped matrix products of MoE experts: tokens sorted by expert, x[tokens, k] times w[n, k] of each expert.

FLOPs count each token once per expert it uses; bytes are x, the weights of all experts and y, each counted once.
torch's grouped kernel is the native path; a loop over experts is marked as reference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from ..axes import EXPERTS, TOKENS_PER_EXPERT, Experts
from ..measure import Case, Check, Device, Scalar, Skip, Work, exact, finite, relative_error

LIMIT = 1e-2
CHECKED = 3  # experts that are checked against float64
SMALL = Experts("small", 8, 2, 256, 512)


def cases(kind: str, suite: str, device: Device) -> Iterator[Case]:
    for experts, side, tokens, dtype in _wanted(suite, device):
        n, k = (2 * experts.inner, experts.hidden) if side == "gate_up" else (experts.hidden, experts.inner)
        total = tokens * experts.count
        flops = 2 * total * n * k
        width = 1 if dtype == "fp8" else 2
        size = width * (experts.count * n * k + total * k) + 2 * total * n
        key: dict[str, Scalar] = {
            "dtype": dtype,
            "layer": f"{experts.name}.{side}",
            "experts": experts.count,
            "n": n,
            "k": k,
        }
        key |= {"tokens_per_expert": tokens}
        build = _builder(experts.count, tokens, n, k, dtype, flops, size)
        yield Case(kind, key, build, flops, size, size + 8 * experts.count * n * k)


def _wanted(suite: str, device: Device) -> Iterator[tuple[Experts, str, int, str]]:
    if not device.gpu:
        yield from ((SMALL, "gate_up", tokens, "bf16") for tokens in (1, 16))
        return
    if suite == "quick":
        yield from ((EXPERTS[0], "gate_up", tokens, "bf16") for tokens in (1, 16, 128))
        yield EXPERTS[0], "gate_up", 128, "fp8"
        return
    for dtype in ("bf16", "fp8"):
        for experts in EXPERTS:
            yield from ((experts, side, tokens, dtype) for side in ("gate_up", "down") for tokens in TOKENS_PER_EXPERT)


def _builder(count: int, tokens: int, n: int, k: int, dtype: str, flops: int, size: int) -> Callable[[Device], Work]:
    def build(device: Device) -> Work:
        make = fp8_set if dtype == "fp8" else bf16_set
        sets = [make(device, sizes(device, count, tokens), n, k) for _ in range(device.sets(size, at_most=8))]
        call, check = sets[0][0], sets[0][1]
        native = hasattr(device.torch, "_grouped_mm") and device.gpu
        calls = [one[0] for one in sets]
        return Work(calls, flops, size, lambda: check(call()), "native" if native else "reference", capture=native)

    return build


def sizes(device: Device, count: int, tokens: int) -> list[int]:
    """Tokens per expert: uneven, as from a router, with an exact total."""
    torch = device.torch
    chosen = torch.randint(0, count, (count * tokens,))
    return [int(load) for load in torch.bincount(chosen, minlength=count)]


def bf16_set(device: Device, parts: list[int], n: int, k: int) -> Any:
    torch = device.torch
    x = device.random(sum(parts), k, dtype=torch.bfloat16)
    w = device.random(len(parts), n, k, dtype=torch.bfloat16)
    ends = torch.tensor(parts).cumsum(0).to(device.device, torch.int32)
    return grouped(device, x, w, ends, parts), lambda out: verify(device, out, x, w, parts, None)


def grouped(device: Device, x: Any, w: Any, ends: Any, parts: list[int]) -> Callable[[], Any]:
    torch = device.torch
    if hasattr(torch, "_grouped_mm") and device.gpu:
        return lambda: torch._grouped_mm(x, w.transpose(1, 2), offs=ends)
    return lambda: torch.cat([part @ w[at].t() for at, part in enumerate(x.split(parts))])


def fp8_set(device: Device, parts: list[int], n: int, k: int) -> Any:
    """Operands with a scale per token and per output channel of each expert."""
    torch = device.torch
    if not hasattr(torch, "_scaled_grouped_mm") or device.capability < (9, 0):
        raise Skip("grouped fp8 products need torch 2.8 or newer and compute capability 9.0")
    x = device.random(sum(parts), k, dtype=torch.bfloat16, scale=32.0).to(torch.float8_e4m3fn)
    w = device.random(len(parts), n, k, dtype=torch.bfloat16, scale=32.0).to(torch.float8_e4m3fn)
    ends = torch.tensor(parts).cumsum(0).to(device.device, torch.int32)
    a = torch.rand(sum(parts), device=device.device) * 0.02 + 0.01
    b = torch.rand(len(parts), n, device=device.device) * 0.02 + 0.01

    def call() -> Any:
        right = w.transpose(1, 2)
        return torch._scaled_grouped_mm(x, right, a, b, offs=ends, out_dtype=torch.bfloat16, use_fast_accum=True)

    return call, lambda out: verify(device, out, x, w, parts, (a, b))


def verify(device: Device, out: Any, x: Any, w: Any, parts: list[int], scales: Any) -> Check:
    torch = device.torch
    if not finite(torch, out):
        return Check(math.inf, LIMIT)
    starts = [sum(parts[:at]) for at in range(len(parts))]
    busy = [at for at, count in enumerate(parts) if count]
    errors = []
    for at in {busy[0], busy[len(busy) // 2], busy[-1]}:
        rows = slice(starts[at], starts[at] + min(parts[at], 32))
        left, right = x[rows].float(), w[at].float()
        if scales:
            left, right = left * scales[0][rows, None], right * scales[1][at][:, None]
        errors.append(relative_error(torch, out[rows], exact(left) @ exact(right).T))
    return Check(max(errors), LIMIT)
