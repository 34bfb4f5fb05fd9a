"""Kernels as they were timed, and how one figure with its interval is made of several of them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
LOW, HIGH = 0.05, 0.95  # quantiles of an interval
STEADY_FRACTION = 0.15  # (p90 - p10) / median of a run that may count
ROUNDS = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """One kernel as it was timed; flops and bytes are what it must compute and move at least."""

    kind: str
    key: Mapping[str, Any]
    time_s: float
    flops: float
    bytes: float
    low_s: float
    high_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """One field of Efficiency; `low` and `high` hold nine tenths of what single kernels (or refits) say."""

    name: str
    value: float
    low: float
    high: float
    count: int  # of the kernels that it rests on
    source: str


def samples(results: Iterable[Mapping[str, Any]]) -> list[Sample]:
    """The entries of result documents that may count: native, checked, steady, not throttled.

    What was measured in several runs counts once, by the geometric mean: the best of them would favour what ran often.
    """
    runs: dict[tuple[Any, ...], list[Sample]] = {}
    for s in _each(results):
        runs.setdefault((s.kind, *sorted(s.key.items())), []).append(s)
    return [_averaged(same) for same in runs.values()]


def _averaged(same: Sequence[Sample]) -> Sample:
    time_s, low_s, high_s = np.exp(np.mean([np.log([s.time_s, s.low_s, s.high_s]) for s in same], axis=0)).tolist()
    return replace(same[0], time_s=time_s, low_s=low_s, high_s=high_s)


def _each(results: Iterable[Mapping[str, Any]]) -> list[Sample]:
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
        if r["path"] == "native" and r["check"] and r["check"]["ok"] and not r.get("throttled") and _steady(r)
    ]


def _steady(r: Mapping[str, Any]) -> bool:
    """Launches and collectives wait for hosts and for each other: a long tail is theirs, their median still counts."""
    t = r["time_s"]
    return bool(r["kind"] in ("launch", "all_reduce") or t["p90"] - t["p10"] <= STEADY_FRACTION * t["median"])


def median_of(name: str, estimates: Sequence[float] | Array, source: str) -> Figure | None:
    """The median of what single kernels say, with their spread."""
    values = np.asarray([e for e in estimates if np.isfinite(e) and e > 0])
    if not len(values):
        return None
    low, middle, high = np.quantile(values, [LOW, 0.5, HIGH])
    return Figure(name=name, value=float(middle), low=float(low), high=float(high), count=len(values), source=source)


def spread_of(name: str, value: float, draws: Array, count: int, source: str) -> Figure:
    """A value with the interval of its resampled draws, which holds it."""
    low, high = np.quantile(draws, [LOW, HIGH])
    return Figure(
        name=name,
        value=float(value),
        low=min(float(low), float(value)),
        high=max(float(high), float(value)),
        count=count,
        source=source,
    )


def together(one: Figure | None, other: Figure | None) -> Figure | None:
    """The geometric mean of two ways to measure the same, whose interval holds both."""
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


def lines(columns: Array, time_s: Array) -> tuple[Array, Array]:
    """(coefficients, those of resampled fits) of time = columns @ coefficients, errors counted as shares of the time.

    Coefficients are costs, so none is below zero.
    """
    chance = np.random.default_rng(1)
    draws = chance.integers(0, len(time_s), (ROUNDS, len(time_s)))
    scaled, one = columns / time_s[:, None], np.ones(len(time_s))
    return _positive(scaled, one), np.array([_positive(scaled[d], one[d]) for d in draws])


def _positive(columns: Array, target: Array) -> Array:
    """Least squares without negative coefficients: those are left out one by one."""
    kept = list(range(columns.shape[1]))
    while kept:
        solved, *_ = np.linalg.lstsq(columns[:, kept], target, rcond=None)
        if (solved >= 0).all():
            whole = np.zeros(columns.shape[1])
            whole[kept] = solved
            return whole
        del kept[int(np.argmin(solved))]
    return np.zeros(columns.shape[1])


def from_line(name: str, value: float, resampled: Array, count: int, source: str) -> Figure | None:
    """A coefficient that the resampled fits agree on; None when they do not even agree that there is one."""
    usable = resampled[np.isfinite(resampled)]
    if not np.isfinite(value) or value <= 0 or not len(usable):
        return None
    low, high = np.quantile(usable, [LOW, HIGH])
    if low <= 0:
        return None
    return Figure(name=name, value=float(value), low=float(low), high=float(high), count=count, source=source)
