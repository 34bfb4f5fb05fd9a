"""Timed kernels, and figures with intervals computed from several of them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
LOW, HIGH = 0.05, 0.95  # quantiles of an interval
STEADY_FRACTION = 0.15  # maximum (p90 - p10) / median of a usable measurement
ROUNDS = 200  # bootstrap resamples


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """One timed kernel; flops and bytes: minimum that it has to compute and move."""

    kind: str
    key: Mapping[str, Any]
    time_s: float
    flops: float
    bytes: float
    low_s: float
    high_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """One field of Efficiency with its 90 % interval over single kernels or bootstrap refits."""

    name: str
    value: float
    low: float
    high: float
    count: int  # of the kernels used
    source: str


def samples(results: Iterable[Mapping[str, Any]], spread_fraction: float = STEADY_FRACTION) -> list[Sample]:
    """The usable entries of result documents: native, checked, steady, not throttled.

    Several runs of the same kernel count once, by their geometric mean; the best would favor kernels with many runs.
    """
    runs: dict[tuple[Any, ...], list[Sample]] = {}
    for s in _usable(results, spread_fraction):
        runs.setdefault((s.kind, *sorted(s.key.items())), []).append(s)
    return [_averaged(same_kernel) for same_kernel in runs.values()]


def _averaged(runs: Sequence[Sample]) -> Sample:
    time_s, low_s, high_s = np.exp(np.mean([np.log([s.time_s, s.low_s, s.high_s]) for s in runs], axis=0)).tolist()
    return replace(runs[0], time_s=time_s, low_s=low_s, high_s=high_s)


def _usable(results: Iterable[Mapping[str, Any]], spread_fraction: float) -> list[Sample]:
    return [
        Sample(
            kind=r["kind"],
            key=r["key"],
            time_s=r["time_s"]["median"],
            low_s=r["time_s"]["p10"],
            high_s=r["time_s"]["p90"],
            flops=float(r["flops"] or 0),
            bytes=float(r["bytes"] or 0),
        )
        for r in results
        if is_usable(r, spread_fraction)
    ]


def is_usable(r: Mapping[str, Any], spread_fraction: float = STEADY_FRACTION) -> bool:
    """Whether a row of a result is native, correct, steady and not throttled."""
    sound = r["path"] == "native" and r["check"] and r["check"]["ok"] and not r.get("throttled")
    return bool(sound and _steady(r, spread_fraction))


def _steady(r: Mapping[str, Any], spread_fraction: float) -> bool:
    """Whether the times are steady. Launches and collectives wait for hosts and each other, so any tail is allowed."""
    t = r["time_s"]
    return bool(r["kind"] in ("launch", "all_reduce") or t["p90"] - t["p10"] <= spread_fraction * t["median"])


def median_of(name: str, estimates: Sequence[float] | Array, source: str) -> Figure | None:
    """The median over single kernels, with their spread; None without a positive estimate."""
    values = np.asarray([e for e in estimates if np.isfinite(e) and e > 0])
    if not len(values):
        return None
    low, middle, high = np.quantile(values, [LOW, 0.5, HIGH])
    return Figure(name=name, value=float(middle), low=float(low), high=float(high), count=len(values), source=source)


def spread_of(name: str, value: float, draws: Array, count: int, source: str) -> Figure:
    """A value with the interval of its bootstrap draws, widened to contain it."""
    low, high = np.quantile(draws, [LOW, HIGH])
    return Figure(
        name=name,
        value=float(value),
        low=min(float(low), float(value)),
        high=max(float(high), float(value)),
        count=count,
        source=source,
    )


def combined(one: Figure | None, other: Figure | None) -> Figure | None:
    """The geometric mean of two measurements of one figure, with an interval that contains both."""
    if one is None or other is None:
        return one or other
    return Figure(
        name=one.name,
        value=float(np.sqrt(one.value * other.value)),
        low=min(one.low, other.low),
        high=max(one.high, other.high),
        count=one.count + other.count,
        source=f"{one.source}; {other.source}",
    )


def fit_line(columns: Array, time_s: Array) -> tuple[Array, Array]:
    """(coefficients, coefficients of bootstrap fits) of time = columns @ coefficients, by relative least squares.

    Coefficients are costs, so they are not negative.
    """
    rng = np.random.default_rng(1)
    draws = rng.integers(0, len(time_s), (ROUNDS, len(time_s)))
    scaled, one = columns / time_s[:, None], np.ones(len(time_s))
    return _positive(scaled, one), np.array([_positive(scaled[d], one[d]) for d in draws])


def _positive(columns: Array, target: Array) -> Array:
    """Least squares with coefficients >= 0: negative ones are set to zero one by one."""
    kept = list(range(columns.shape[1]))
    while kept:
        solved, *_ = np.linalg.lstsq(columns[:, kept], target, rcond=None)
        if (solved >= 0).all():
            coefficients = np.zeros(columns.shape[1])
            coefficients[kept] = solved
            return coefficients
        del kept[int(np.argmin(solved))]
    return np.zeros(columns.shape[1])


def from_fit(name: str, value: float, resampled: Array, count: int, source: str) -> Figure | None:
    """A coefficient with the interval of its bootstrap fits; None if it is not clearly positive."""
    usable = resampled[np.isfinite(resampled)]
    if not np.isfinite(value) or value <= 0 or not len(usable):
        return None
    low, high = np.quantile(usable, [LOW, HIGH])
    if low <= 0:
        return None
    return Figure(name=name, value=float(value), low=float(low), high=float(high), count=count, source=source)
