"""Fits a chip's power model (draw by memory and compute utilization) to the kernels of a probe."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from advisor.engine.cost import Draw, kernel_fraction

Array = np.ndarray
FITTED = ("gemm", "grouped_gemm", "attention_prefill", "attention_decode", "memory_read", "memory_copy", "memory_write")
CHECKED = ("mlp", "block", "decode_step", "compile_gain")  # sequences of kernels: used to validate, not to fit
UNSERVED = ("math", "efficient", "flex", "triton")
SOFT_WATTS = 40.0  # larger errors count linearly: single sensor readings can be off by hundreds of watts
START = (0.2, 0.5, 0.9, 0.002)  # kernel, memory, compute, seconds of lag
BOUNDS = ((0.01, 0.0, 0.0, 1e-5), (0.7, 3.0, 5.0, 0.05))


@dataclass(frozen=True, kw_only=True, slots=True)
class PowerSample:
    """One kernel: achieved fractions of its rooflines, duration of the measurement, power reading."""

    kind: str
    memory_fraction: float
    compute_fraction: float
    window_s: float
    watts: float


def power_samples(results: Sequence[Mapping[str, Any]], kinds: Sequence[str]) -> list[PowerSample]:
    """Native 16-bit, FP8 and copy kernels with a power reading; rooflines are the rates that the same probe sustained.

    Back ends that no serving framework uses (torch's math, efficient, flex; triton) are excluded: they keep a chip busy
    with little memory traffic and arithmetic.
    """
    roof, bytes_per_s = _roofs(results)
    samples = []
    for r in results:
        time_s, dtype = r["time_s"]["median"], r["key"].get("dtype")
        if r["kind"] in kinds and r["power_w"] and r["path"] == "native" and dtype in (*roof, None) and _served(r):
            flops_per_s = roof.get(dtype, roof["bf16"])
            sample = PowerSample(
                kind=r["kind"],
                memory_fraction=min((r["bytes"] or 0) / time_s / bytes_per_s, 1.0),
                compute_fraction=min((r["flops"] or 0) / time_s / flops_per_s, 1.0),
                window_s=time_s * r["time_s"]["n"],
                watts=r["power_w"],
            )
            samples.append(sample)
    return samples


def _served(r: Mapping[str, Any]) -> bool:
    return r["key"].get("backend") not in UNSERVED


def _roofs(results: Sequence[Mapping[str, Any]]) -> tuple[dict[str, float], float]:
    """(FLOP/s by dtype of GEMMs that ran for about a second, bytes/s of the fastest read)."""
    rates = {r["key"]["dtype"]: r["flops"] / r["time_s"]["median"] for r in results if "sustained_s" in r["key"]}
    reads = [r["bytes"] / r["time_s"]["median"] for r in results if r["kind"] == "memory_read"]
    return {**rates, "fp16": rates["bf16"]}, max(reads)


def watts_of(draw: Draw, samples: Sequence[PowerSample], limit_watts: float, idle_watts: float) -> Array:
    """Modeled steady power of each kernel, W, shape (N,)."""
    memory, compute = (np.array([getattr(s, f"{name}_fraction") for s in samples]) for name in ("memory", "compute"))
    return np.asarray(idle_watts + kernel_fraction(draw, memory, compute) * (limit_watts - idle_watts))


def fit_draw(samples: Sequence[PowerSample], limit_watts: float, idle_watts: float, waiting_watts: float) -> Draw:
    """The draw with the smallest soft-L1 error in watts over the kernels.

    The sensor lags: after w seconds it shows 1 - exp(-w / lag) of the step from waiting to steady power. Readings above
    the limit, from before the chip lowered its clocks, count as the limit.
    """
    measured = np.minimum([s.watts for s in samples], limit_watts)
    window_s = np.array([s.window_s for s in samples])
    waiting = (waiting_watts - idle_watts) / (limit_watts - idle_watts)

    def draw_of(x: Array) -> Draw:
        return Draw(waiting_fraction=waiting, kernel_fraction=x[0], memory_fraction=x[1], compute_fraction=x[2])

    def errors(x: Array) -> Array:
        steady = watts_of(draw_of(x), samples, limit_watts, idle_watts)
        return np.asarray(waiting_watts + (steady - waiting_watts) * -np.expm1(-window_s / x[3]) - measured)

    solution = least_squares(errors, START, loss="soft_l1", f_scale=SOFT_WATTS, bounds=BOUNDS)
    return draw_of(solution.x)
