"""Fitting calibration parameters to measured figures: robust least squares, refits without some rows, intervals.

Everything is in logarithms: parameters are positive, and an error is log(predicted / measured).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Places = NDArray[np.intp]
GROUPS_PER_PARAMETER = 20  # a free parameter needs at least so many independent (chip, model, source) groups
ROBUST = 0.1  # errors (in log) beyond this count by their size, not by its square
STEP = 5e-3  # of a log parameter, for the numerical Jacobian
PRIOR = 0.02  # residual per e-fold away from the starting value: decides only what no row decides


class BudgetError(ValueError):
    """More free parameters than the measurements support."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Parameter:
    """One free parameter: where it lives, its starting value, the range it may take and why it is free."""

    scope: str
    name: str
    value: float  # before the fit
    low: float
    high: float
    reason: str = ""

    def __post_init__(self) -> None:
        if not 0 < self.low < self.value < self.high:
            raise ValueError(f"{self.scope} {self.name}: needs 0 < low < value < high")


class Solution(NamedTuple):
    """The optimum in log parameters, with the errors there and their derivatives (rows, parameters)."""

    x: Array
    errors: Array
    jacobian: Array


def check_budget(parameters: int, groups: int) -> None:
    """Refuses more than one free parameter per twenty independent groups."""
    if parameters > groups // GROUPS_PER_PARAMETER:
        raise BudgetError(
            f"{parameters} free parameters, but {groups} independent (chip, model, source) groups "
            f"support {groups // GROUPS_PER_PARAMETER}"
        )


def soften(errors: Array) -> Array:
    """Residuals whose squares are twice the soft-L1 loss: an outlier pulls no harder than its size."""
    scaled = errors / ROBUST
    # 2 (sqrt(1 + s^2) - 1) loses all digits for small s
    loss = 2 * scaled**2 / (np.sqrt(1 + scaled**2) + 1)
    softened: Array = np.sign(errors) * ROBUST * np.sqrt(loss)
    return softened


def group_weights(groups: Sequence[str]) -> Array:
    """One row of a group of n counts 1/n: every group weighs the same."""
    _, inverse, counts = np.unique(np.asarray(groups), return_inverse=True, return_counts=True)
    weights: Array = 1.0 / counts[inverse]
    return weights


def bounds_of(parameters: Sequence[Parameter]) -> tuple[Array, Array, Array]:
    """(start, low, high) of the parameters, in log."""
    return tuple(np.log([getattr(p, name) for p in parameters]) for name in ("value", "low", "high"))  # type: ignore[return-value]


def solve(
    errors: Callable[[Array], Array], parameters: Sequence[Parameter], weights: Array, evaluations: int = 30
) -> Solution:
    """The parameters that make the weighted robust error smallest; rows without a prediction stay NaN in `errors`."""
    from scipy.optimize import least_squares  # here: what only asks for an estimate fits nothing

    start, low, high = bounds_of(parameters)
    root = np.sqrt(weights)

    def residuals(x: Array) -> Array:
        found = soften(np.nan_to_num(errors(x), nan=0.0)) * root
        return np.concatenate([found, PRIOR * (x - start)])

    def slopes(x: Array) -> Array:
        here = residuals(x)
        # scipy's own steps are relative to x, far too wide for the logarithm of a microsecond
        return np.column_stack([(residuals(x + step) - here) / STEP for step in STEP * np.eye(len(x))])

    found = least_squares(residuals, start, slopes, bounds=(low, high), x_scale=0.3, max_nfev=evaluations, xtol=1e-4)
    x = np.asarray(found.x, dtype=float)
    return Solution(x=x, errors=errors(x), jacobian=jacobian(errors, x))


def jacobian(errors: Callable[[Array], Array], x: Array) -> Array:
    """Central differences of the errors by log parameter, shape (rows, parameters)."""
    columns = []
    for i in range(len(x)):
        step = np.zeros_like(x)
        step[i] = STEP
        columns.append((errors(x + step) - errors(x - step)) / (2 * STEP))
    return np.column_stack(columns) if columns else np.zeros((len(errors(x)), 0))


def refit(
    at: Solution, parameters: Sequence[Parameter], weights: Array, kept: Mask, pinned: Sequence[int] = ()
) -> Array:
    """The optimum over the kept rows alone, the errors taken as linear around `at`; pinned ones stay at their start."""
    from scipy.optimize import least_squares

    start, low, high = bounds_of(parameters)
    free = np.array([i for i in range(len(parameters)) if i not in pinned], dtype=int)
    base = at.x.copy()
    base[list(pinned)] = start[list(pinned)]
    if not len(free):
        return base
    used = kept & np.isfinite(at.errors) & np.isfinite(at.jacobian).all(axis=1)
    slope, root = at.jacobian[used][:, free], np.sqrt(weights[used])
    offset = at.errors[used] + at.jacobian[used] @ (base - at.x)

    def residuals(x: Array) -> Array:
        found = soften(offset + slope @ (x - base[free])) * root
        return np.concatenate([found, PRIOR * (x - start[free])])

    inside = np.clip(base[free], low[free] + 1e-9, high[free] - 1e-9)
    base[free] = least_squares(residuals, inside, bounds=(low[free], high[free]), x_scale=0.3).x
    return base


def weighted_quantile(values: Array, weights: Array, share: float) -> float:
    """The value below which this share of the weight lies, linear between the middles of neighbours."""
    order = np.argsort(values)
    ordered, mass = values[order], weights[order]
    middle = (np.cumsum(mass) - mass / 2) / mass.sum()
    return float(np.interp(share, middle, ordered))


class Interval(NamedTuple):
    """Factors on a prediction between which 90 % of the measured figures lie, and how that held on left-out groups."""

    low: float
    high: float
    rows: int
    groups: int
    coverage: float  # of groups that had no part in the quantiles

    @property
    def half_width(self) -> float:
        """Half the distance between the factors: 0.2 is about 20 % to either side."""
        return (self.high - self.low) / 2


def interval(errors: Array, groups: Sequence[str], units: Sequence[str]) -> Interval:
    """From left-out errors log(predicted / measured); a unit (a chip, a family) is judged by the others' quantiles."""
    names, left = np.asarray(groups), np.asarray(units)
    ratios, weights = -errors, group_weights(groups)
    inside = np.zeros(len(ratios))
    for unit in np.unique(left):
        own, others = left == unit, left != unit
        if not others.any():
            others = own
        low, high = _span(ratios[others], weights[others])
        inside[own] = (ratios[own] >= low) & (ratios[own] <= high)
    low, high = _span(ratios, weights)
    return Interval(
        low=float(np.exp(low)),
        high=float(np.exp(high)),
        rows=len(ratios),
        groups=len(np.unique(names)),
        coverage=float((inside * weights).sum() / weights.sum()),
    )


def _span(ratios: Array, weights: Array) -> tuple[float, float]:
    return weighted_quantile(ratios, weights, 0.05), weighted_quantile(ratios, weights, 0.95)
