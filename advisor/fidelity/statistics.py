"""Figures over many scored rows: errors, bias, coverage, and whether chips are ordered right."""

import math
import statistics
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

PAIR_DIFFERENCE_FRACTION = 0.10  # pairs of chips closer than this are a tie in the measurement


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """One prediction beside its measured figure, as far as statistics need it."""

    ape: float | None  # |predicted - measured| / measured; None: not scored
    ratio: float | None  # predicted / measured; None where a ratio says nothing
    inside: bool | None  # the stated interval holds the measured figure; None: no interval
    group: tuple[str, ...]  # rows of one group are correlated: they count once
    chip: str
    pair: Hashable | None  # what two chips must share to be compared; None: it compares with nothing
    measured: float
    predicted: float | None  # None: predicted not to fit


def quantile(values: Iterable[float], share: float) -> float | None:
    """The value below which this share of the values lies (linear between neighbours); None of nothing."""
    ordered = sorted(values)
    if not ordered:
        return None
    at = share * (len(ordered) - 1)
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def summary(points: Sequence[Point]) -> dict[str, Any]:
    """n, median and p90 error, bias, coverage of the stated intervals, share of chip pairs ordered right."""
    apes = [p.ape for p in points if p.ape is not None]
    covered = [p.inside for p in points if p.inside is not None]
    right, pairs = ordered_pairs(points)
    bias = quantile((p.ratio for p in points if p.ratio is not None), 0.5)
    return {
        "n": len(apes),
        "median_ape": quantile(apes, 0.5),
        "p90_ape": quantile(apes, 0.9),
        "bias": None if bias is None else bias - 1.0,
        "coverage_90": sum(covered) / len(covered) if covered else None,
        "pairs_ordered": right / pairs if pairs else None,
        "pairs": pairs,
        "group_median_ape": group_median(points),
    }


def group_median(points: Iterable[Point]) -> float | None:
    """Median over groups of each group's median error: correlated rows count once."""
    groups: defaultdict[tuple[str, ...], list[float]] = defaultdict(list)
    for p in points:
        if p.ape is not None:
            groups[p.group].append(p.ape)
    return quantile((statistics.median(group) for group in groups.values()), 0.5)


def ordered_pairs(points: Iterable[Point]) -> tuple[int, int]:
    """(pairs ordered right, pairs) of chips measured on the same case that differ by more than 10 %."""
    cases: defaultdict[Hashable, defaultdict[str, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    for p in points:
        if p.pair is not None:
            cases[p.pair][p.chip].append((p.measured, math.nan if p.predicted is None else p.predicted))
    right = pairs = 0
    for chips in cases.values():
        medians = [tuple(map(statistics.median, zip(*values, strict=True))) for values in chips.values()]
        for (measured, predicted), (other, other_predicted) in combinations(medians, 2):
            if abs(measured - other) > PAIR_DIFFERENCE_FRACTION * min(measured, other):
                pairs += 1
                right += (predicted - other_predicted) * (measured - other) > 0
    return right, pairs
