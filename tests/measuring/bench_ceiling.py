"""Compares the suite's matrix products with the best alternatives on this GPU: cuBLAS, torch.compile and Triton.

    python -m tests.measuring.bench_ceiling [--shapes 8192x8192x8192,64x28672x4096] [--dtypes bf16,fp8] [--format json]

The suite measures each shape as usual. Each alternative then multiplies equal operands over the same rotation of cold
buffers, alternating with the others, so that clock changes affect all. The ratio is the best alternative's time over
the suite's; from 1.0 the suite is as fast. triton.testing.do_bench also times cuBLAS, as an independent loop.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from statistics import median
from typing import Any

from probes.agent import facts
from probes.agent.kinds import gemm
from probes.agent.measure import Device, Skip, Work, measure, time_work
from probes.agent.suite import refusal

SHAPES = "8192x8192x8192,4096x4096x4096,4096x28672x4096,512x6144x4096,64x28672x4096,16x6144x4096,1x28672x4096"
DTYPES = "bf16,fp16,fp8"
TARGET = 0.97
WINDOW_S, WARM_S, TURNS = 0.05, 0.05, 3
Rivals = dict[str, Callable[[Any, Any], Any]]


@dataclass(frozen=True)
class Outcome:
    """The times of one product, in seconds. `refused` has the reasons of those that failed."""

    dtype: str
    m: int
    n: int
    k: int
    suite: str
    suite_s: float
    rivals_s: dict[str, float]
    refused: dict[str, str]
    ratio: float


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.measuring.bench_ceiling", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--shapes", default=SHAPES, help="MxNxK, comma-separated")
    parser.add_argument("--dtypes", default=DTYPES)
    parser.add_argument("--format", choices=("table", "json"), default="table")
    given = parser.parse_args(arguments)
    if reason := missing():
        print(f"probes: not measured: {reason}")
        return 0
    device = facts.detect()
    shapes = [gemm.Shape(*map(int, text.split("x"))) for text in given.shapes.split(",")]
    outcomes, unmeasured = compared(device, given.dtypes.split(","), shapes)
    print(json.dumps([asdict(one) for one in outcomes]) if given.format == "json" else "\n".join(lines(outcomes)))
    print("".join(f"not measured: {text}\n" for text in unmeasured), end="", file=sys.stderr)
    return int(any(one.ratio < TARGET for one in outcomes))


def compared(device: Device, dtypes: Sequence[str], shapes: Sequence[gemm.Shape]) -> tuple[list[Outcome], list[str]]:
    """The outcome of each dtype and shape, and the reasons for those that could not be measured."""
    outcomes, unmeasured = [], []
    for dtype in dtypes:
        for shape in shapes:
            try:
                outcomes.append(compare(device, dtype, shape))
            except Skip as reason:
                unmeasured.append(f"{dtype} {shape.m}x{shape.n}x{shape.k}: {reason}")
    return outcomes, unmeasured


def missing() -> str | None:
    """Why nothing can be measured on this machine; None if it can."""
    try:
        import torch
    except ImportError:
        return "torch is not installed"
    return None if torch.cuda.is_available() else "torch finds no GPU; run it on a machine with one"


def lines(outcomes: Sequence[Outcome]) -> Iterator[str]:
    yield f"{'dtype':6} {'m x n x k':20} {'suite':>8} {'TFLOP/s':>9} {'ratio':>7}  rivals, TFLOP/s"
    for one in outcomes:
        flops = gemm.Shape(one.m, one.n, one.k).flops / 1e12
        rivals = ", ".join(f"{name} {flops / time_s:.1f}" for name, time_s in one.rivals_s.items())
        refused = "".join(f"; {name}: {reason}" for name, reason in one.refused.items())
        shape = f"{one.m}x{one.n}x{one.k}"
        yield f"{one.dtype:6} {shape:20} {one.suite:>8} {flops / one.suite_s:9.1f} {one.ratio:7.3f}  {rivals}{refused}"
    short = sum(one.ratio < TARGET for one in outcomes)
    if not outcomes:
        return
    worst = min(outcomes, key=lambda one: one.ratio)
    yield f"worst ratio {worst.ratio:.3f}; {short} of {len(outcomes)} under the target of {TARGET:.2f}"


def compare(device: Device, dtype: str, shape: gemm.Shape) -> Outcome:
    """Compares one shape. The suite's time is the best of torch's kernel and, where it applies, our Triton kernel."""
    torch = device.torch
    refused: dict[str, str] = {}
    suite: dict[str, float] = {}
    for name, axes in suite_rows(dtype):
        seconds = attempt(refused, f"suite {name}", partial(by_suite, device, dtype, shape, axes))
        suite |= {name: seconds} if seconds else {}
    with torch.no_grad(), device.stream():
        rivals = timed_rivals(device, dtype, shape, refused)
    device.release()
    if not suite or not rivals:
        raise Skip("; ".join(f"{name}: {reason}" for name, reason in refused.items()))
    best = min(suite, key=lambda name: suite[name])
    ratio = min(rivals.values()) / suite[best]
    return Outcome(dtype, shape.m, shape.n, shape.k, best, suite[best], rivals, refused, ratio)


def suite_rows(dtype: str) -> list[tuple[str, dict[str, Any]]]:
    return [("torch", {}), *([("thin", {"backend": "triton"})] if dtype == "bf16" else [])]


def by_suite(device: Device, dtype: str, shape: gemm.Shape, axes: dict[str, Any]) -> float:
    case = gemm.case(dtype, shape, **axes)
    return median(measure(device, case, WINDOW_S, WARM_S, time.monotonic() + 60)[1].median_s for _ in range(TURNS))


def attempt(refused: dict[str, str], name: str, question: Callable[[], float]) -> float | None:
    try:
        return question()
    except Exception as error:  # compilers raise their own exception types; printed with the row
        refused[name] = refusal(error)
        return None


def operands(device: Device, dtype: str, shape: gemm.Shape) -> list[tuple[Any, Any]]:
    """As many sets of operands as the suite uses."""
    torch = device.torch
    count = device.sets(gemm.traffic_bytes(dtype, shape), at_most=64)
    element = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(dtype)

    def side(rows: int) -> Any:
        return device.random(rows, shape.k, dtype=element) if element else gemm.fp8_values(device, rows, shape.k)

    return [(side(shape.m), side(shape.n)) for _ in range(count)]


def timed_rivals(device: Device, dtype: str, shape: gemm.Shape, refused: dict[str, str]) -> dict[str, float]:
    pairs = operands(device, dtype, shape)
    found: dict[str, list[float]] = {}
    rivals = rivals_of(device, dtype, shape)
    for _ in range(TURNS):
        for name, rival in rivals.items():
            if name not in refused:
                seconds = attempt(refused, name, partial(by_events, device, rival, pairs))
                found.setdefault(name, []).extend([seconds] if seconds else [])
    if seconds := attempt(refused, "do_bench", partial(by_do_bench, rivals["cublas"], pairs[0])):
        found["do_bench"] = [seconds]
    return {name: median(times) for name, times in found.items() if times}


def by_events(device: Device, rival: Callable[[Any, Any], Any], pairs: list[tuple[Any, Any]]) -> float:
    calls = [lambda pair=pair: rival(*pair) for pair in pairs]
    return time_work(device, Work(calls), WINDOW_S, WARM_S).median_s


def by_do_bench(rival: Callable[[Any, Any], Any], pair: tuple[Any, Any]) -> float:
    """Triton's own loop, which clears the cache and includes launch time: comparable only for long products."""
    from importlib import import_module

    testing = import_module("triton.testing")
    return float(testing.do_bench(lambda: rival(*pair), warmup=50, rep=100, return_mode="median")) / 1e3


def rivals_of(device: Device, dtype: str, shape: gemm.Shape) -> Rivals:
    torch = device.torch
    if dtype == "fp8":
        one = torch.tensor(1.0, device=device.device)

        def product(x: Any, w: Any) -> Any:
            return torch._scaled_mm(x, w.t(), one, one, out_dtype=torch.bfloat16, use_fast_accum=True)

    else:

        def product(x: Any, w: Any) -> Any:
            return torch.mm(x, w.t())

    torch._dynamo.reset()
    tuned = torch.compile(product, mode="max-autotune-no-cudagraphs", dynamic=False)
    found: Rivals = {"cublas": product, "compile": tuned}
    if dtype != "fp8":
        found["triton"] = tiled(device, shape)
    return found


def tiled(device: Device, shape: gemm.Shape) -> Callable[[Any, Any], Any]:
    """A plain tiled Triton product, autotuned."""
    from tests.measuring import tiles

    return tiles.product(device, shape.m, shape.n, shape.k)


if __name__ == "__main__":
    sys.exit(main())
