"""Intervals of training figures: quantiles of the errors on measured runs, tested on groups that they did not see."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from advisor.engine.terms import SHARES, weighted_quantile
from advisor.engine.training.intervals import interval_kind
from advisor.fidelity.scores.scoring import Scored
from advisor.fidelity.training.rows import MEMORY
from tests.laboratory import least_squares
from tests.laboratory.least_squares import Array, Interval
from tests.laboratory.summaries import point_of

MIN_GROUPS = 3
TAILS = (0.05, 0.04, 0.03, 0.02, 0.01, 0.0)  # cut off at each end
LEAST_COVERAGE = 0.88  # of groups that the interval did not see
Spans = Mapping[str, Mapping[str, Interval]]  # basis -> figure -> interval

# (basis, the column whose values are held out one at a time): the classes of serving's intervals
CLASSES = (("measured", "model_id"), ("relative", "accelerator_slug"), ("datasheet", "family"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Used:
    """One prediction of a measured run."""

    log_error: float  # log of predicted / measured; of time or memory, never of a rate
    figure: str
    basis: str
    group: str
    units: Mapping[str, str]


def used(scored: Scored) -> Used | None:
    """A scored row as evidence; None if it has no figure to compare."""
    if scored.prediction is None or scored.ratio is None:
        return None
    memory = scored.row.metric in MEMORY
    rate = not memory and scored.row.metric != "step_time_s"
    labels = scored.labels
    kind = interval_kind(labels["experts"] == "true", labels["layout"] == "found")
    return Used(
        log_error=float(np.log(scored.ratio)) * (-1.0 if rate else 1.0),
        figure="memory" if memory else f"{kind}_step",
        basis=labels["basis"],
        group="/".join(point_of(scored).group),
        units={
            "model_id": scored.row.model_id, "accelerator_slug": scored.row.accelerator_slug,
            "family": labels["family"],
        },
    )  # fmt: skip


def intervals(scored: Sequence[Scored]) -> Spans:
    """The interval of each basis and figure with enough groups. `datasheet` uses all rows, `memory` is there only."""
    rows = [u for s in scored if (u := used(s)) is not None]
    result: dict[str, dict[str, Interval]] = {}
    for basis, unit in CLASSES:
        of_basis = [u for u in rows if basis == "datasheet" or (u.basis == basis and u.figure != "memory")]
        figures = sorted({u.figure for u in of_basis})
        spans = {name: _interval(of_basis, name, unit) for name in figures}
        result[basis] = {name: span for name, span in spans.items() if span is not None}
    return result


def _interval(rows: Sequence[Used], figure: str, unit: str) -> Interval | None:
    """The interval of one figure, its coverage with each unit held out; None with fewer than MIN_GROUPS groups.

    Quantiles of few units are too narrow for the next one. The tails are cut less until the interval holds units that
    it did not see.
    """
    own = [u for u in rows if u.figure == figure]
    if len({u.group for u in own}) < MIN_GROUPS:
        return None
    errors, groups = np.array([u.log_error for u in own]), [u.group for u in own]
    units = np.array(groups if figure == "memory" else [u.units[unit] for u in own])
    weights = least_squares.group_weights(groups)
    for tail in TAILS:
        held_out = coverage(-errors, weights, units, tail)
        if held_out >= LEAST_COVERAGE:
            break
    low, high = ends(-errors, weights, tail)
    inner = [weighted_quantile(-errors, weights, share) for share in SHARES[1:-1]]
    every = tuple(float(np.exp(each)) for each in (low, *inner, high))
    return Interval(
        low=every[0],
        high=every[-1],
        rows=len(own),
        groups=len(set(groups)),
        coverage=held_out,
        quantiles=every,
    )


def ends(ratios: Array, weights: Array, tail: float) -> tuple[float, float]:
    return weighted_quantile(ratios, weights, tail), weighted_quantile(ratios, weights, 1.0 - tail)


def coverage(ratios: Array, weights: Array, units: NDArray[np.str_], tail: float) -> float:
    """The share of each unit inside the ends of the others, with equal weight for each group."""
    inside = np.zeros(len(ratios))
    for unit in np.unique(units):
        own = units == unit
        others = ~own if (~own).any() else own
        low, high = ends(ratios[others], weights[others], tail)
        inside[own] = (ratios[own] >= low) & (ratios[own] <= high)
    return float((inside * weights).sum() / weights.sum())
