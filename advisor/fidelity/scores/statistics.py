"""Statistics of scored rows: errors, bias, coverage, and whether chips are ranked correctly."""

import math
import statistics
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

PAIR_DIFFERENCE_FRACTION = 0.10  # closer pairs of chips count as a tie


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """One prediction and its measured figure."""

    ape: float | None  # |predicted - measured| / measured; None: not scored
    ratio: float | None  # predicted / measured; None where a ratio has no meaning
    inside: bool | None  # the measured figure is inside the interval; None: no interval
    group: tuple[str, ...]  # rows of one group are correlated, so the group counts once
    chip: str
    pair: Hashable | None  # key that two chips must share to be compared; None: not comparable
    measured: float
    predicted: float | None  # None: predicted not to fit


def quantile(values: Iterable[float], share: float) -> float | None:
    """The quantile of the values with linear interpolation; None without values."""
    ordered = sorted(values)
    if not ordered:
        return None
    position = share * (len(ordered) - 1)
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def summary(points: Sequence[Point]) -> dict[str, Any]:
    """n, median and p90 error, bias, coverage of the stated intervals, share of chip pairs ranked correctly."""
    apes = [p.ape for p in points if p.ape is not None]
    covered = [p.inside for p in points if p.inside is not None]
    correct, pairs = ordered_pairs(points)
    bias = quantile((p.ratio for p in points if p.ratio is not None), 0.5)
    return {
        "n": len(apes),
        "median_ape": quantile(apes, 0.5),
        "p90_ape": quantile(apes, 0.9),
        "bias": None if bias is None else bias - 1.0,
        "coverage_90": sum(covered) / len(covered) if covered else None,
        "pairs_ordered": correct / pairs if pairs else None,
        "pairs": pairs,
        "group_median_ape": group_median(points),
    }


def group_median(points: Iterable[Point]) -> float | None:
    """The median over groups of each group's median error."""
    groups: defaultdict[tuple[str, ...], list[float]] = defaultdict(list)
    for p in points:
        if p.ape is not None:
            groups[p.group].append(p.ape)
    return quantile((statistics.median(group) for group in groups.values()), 0.5)


def ordered_pairs(points: Iterable[Point]) -> tuple[int, int]:
    """(pairs ranked correctly, pairs) of chips measured on the same case that differ by more than 10 %."""
    cases: defaultdict[Hashable, defaultdict[str, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    for p in points:
        if p.pair is not None:
            cases[p.pair][p.chip].append((p.measured, math.nan if p.predicted is None else p.predicted))
    correct = pairs = 0
    for chips in cases.values():
        medians = [tuple(map(statistics.median, zip(*values, strict=True))) for values in chips.values()]
        for (measured, predicted), (other, other_predicted) in combinations(medians, 2):
            if abs(measured - other) > PAIR_DIFFERENCE_FRACTION * min(measured, other):
                pairs += 1
                correct += (predicted - other_predicted) * (measured - other) > 0
    return correct, pairs
