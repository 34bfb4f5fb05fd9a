"""How often latency limits hold that are predicted to hold with a probability, on groups that nothing was fitted to.

The limits are fixed multiples of the prediction. Each unit (a chip; for measured chips a model) gets its probabilities
from the errors of the other units, and these errors are those of fits that did not see the unit's rows. All groups
(chip, model, source) have equal weight.
"""

from collections.abc import Callable, Mapping, Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from advisor.engine.search import standard_normal
from advisor.engine.search.limits import correlated_normal
from advisor.engine.terms import SHARES, RatioDistribution, weighted_quantile
from tests.laboratory import least_squares
from tests.laboratory.least_squares import Array

MULTIPLES = (0.6, 0.8, 1.0, 1.25, 1.6, 2.0)  # of the prediction
BOTH = "ttft and tpot"
LEAST_PAIRS = 10  # for a correlation


class HeldOut(NamedTuple):
    """One measured figure: its run, and log(measured / predicted) by a fit without its unit."""

    run: Any  # figures of one run share it
    group: str
    unit: str
    log_ratio: float


class Pairs(NamedTuple):
    """TTFT and TPOT of the same runs."""

    groups: Sequence[str]
    units: Sequence[str]
    log_ratios: Array  # (runs, 2): TTFT, TPOT


class Line(NamedTuple):
    """Limits at one multiple of the prediction."""

    multiple: float
    predicted: float  # probability
    observed: float  # share of groups' rows within the limit


def pairs(ttft: Sequence[HeldOut], tpot: Sequence[HeldOut]) -> Pairs:
    """The runs with both figures; of several figures of a run, the median."""

    def by_run(rows: Sequence[HeldOut]) -> dict[Any, list[HeldOut]]:
        found: dict[Any, list[HeldOut]] = {}
        for row in rows:
            found.setdefault((row.group, row.run), []).append(row)
        return found

    first, each = by_run(ttft), by_run(tpot)
    runs = [run for run in first if run in each]
    middle = [[float(np.median([row.log_ratio for row in side[run]])) for side in (first, each)] for run in runs]
    return Pairs(
        groups=[first[run][0].group for run in runs],
        units=[first[run][0].unit for run in runs],
        log_ratios=np.array(middle).reshape(-1, 2),
    )


def normal_scores(values: Array, weights: Array) -> Array:
    """Standard normal values with the weighted ranks of these values."""
    order = np.argsort(values, kind="stable")
    middle = np.empty(len(values))
    middle[order] = (np.cumsum(weights[order]) - weights[order] / 2) / weights.sum()
    return np.array([NormalDist().inv_cdf(float(share)) for share in middle])


def correlation(p: Pairs) -> float | None:
    """Correlation of the normal scores of both errors, groups with equal weight; None with too few runs."""
    if len(p.groups) < LEAST_PAIRS:
        return None
    weights = least_squares.group_weights(p.groups)
    x, y = (normal_scores(p.log_ratios[:, k], weights) for k in (0, 1))
    x, y = (each - np.average(each, weights=weights) for each in (x, y))
    return float((weights * x * y).sum() / np.sqrt((weights * x * x).sum() * (weights * y * y).sum()))


def joint_share(ttft: RatioDistribution, tpot: RatioDistribution, correlation: float, multiple: float) -> float:
    """Probability that both figures are at most this many times their estimates, drawn as answers draw them."""
    slow = standard_normal("performance")
    first = correlated_normal(slow, standard_normal("first tokens"), correlation)
    return float(((tpot.at(slow) <= multiple) & (ttft.at(first) <= multiple)).mean())


def distribution(log_ratios: Array, groups: Sequence[str]) -> RatioDistribution:
    weights = least_squares.group_weights(groups)
    return RatioDistribution.of(
        {share: float(np.exp(weighted_quantile(log_ratios, weights, share))) for share in SHARES}
    )


def of_figure(rows: Sequence[HeldOut]) -> list[Line]:
    """The table of one figure."""
    ratios, groups = np.array([row.log_ratio for row in rows]), [row.group for row in rows]

    def chances(others: np.ndarray) -> list[float]:
        known = distribution(ratios[others], [g for g, kept in zip(groups, others, strict=True) if kept])
        return [known.share_within(multiple) for multiple in MULTIPLES]

    return _lines(ratios, groups, [row.unit for row in rows], chances)


def of_both(p: Pairs) -> list[Line]:
    """The table of runs whose TTFT and TPOT both have limits, at the same multiple of their predictions."""

    def chances(others: np.ndarray) -> list[float]:
        kept = np.flatnonzero(others).tolist()
        own = Pairs([p.groups[k] for k in kept], [p.units[k] for k in kept], p.log_ratios[kept])
        ttft, tpot = (distribution(own.log_ratios[:, k], own.groups) for k in (0, 1))
        together = correlation(own)
        return [joint_share(ttft, tpot, 1.0 if together is None else together, multiple) for multiple in MULTIPLES]

    return _lines(p.log_ratios.max(axis=1), p.groups, p.units, chances)


def _lines(
    log_ratios: Array, groups: Sequence[str], units: Sequence[str], chances: Callable[[np.ndarray], list[float]]
) -> list[Line]:
    weights, names = least_squares.group_weights(groups), np.array(units)
    predicted = np.zeros((len(names), len(MULTIPLES)))
    for unit in np.unique(names):
        own = names == unit
        if own.all():
            return []
        predicted[own] = chances(~own)
    within = np.exp(log_ratios)[:, None] <= np.array(MULTIPLES)
    said, seen = (np.average(each, axis=0, weights=weights).tolist() for each in (predicted, within))
    return [Line(*line) for line in zip(MULTIPLES, said, seen, strict=True)]


def calibration_error(lines: Sequence[Line]) -> float:
    """Expected calibration error: the mean difference of predicted and observed over the multiples."""
    return float(np.mean([abs(line.predicted - line.observed) for line in lines]))


def tables(rows: Mapping[str, Mapping[str, Sequence[HeldOut]]]) -> dict[str, dict[str, Any]]:
    """basis -> figure -> its table, from basis -> figure -> held-out rows."""
    made: dict[str, dict[str, Any]] = {}
    for basis, figures in rows.items():
        own: dict[str, tuple[Sequence[str], list[Line]]] = {
            name: ([row.group for row in figures[name]], of_figure(figures[name]))
            for name in ("ttft", "tpot")
            if figures.get(name)
        }
        if len(own) == 2:
            p = pairs(figures["ttft"], figures["tpot"])
            own[BOTH] = p.groups, of_both(p) if len(p.groups) >= LEAST_PAIRS else []
        made[basis] = {
            name: {
                "rows": len(groups),
                "groups": len(set(groups)),
                "calibration_error": round(calibration_error(lines), 4),
                "limits": [{key: round(value, 4) for key, value in line._asdict().items()} for line in lines],
            }
            for name, (groups, lines) in own.items()
            if lines
        }
    return made
