"""Fits calibration parameters to measurements: robust least squares, refits with held-out rows, intervals.

Everything is in logarithms: parameters are positive, and an error is log(predicted / measured).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.engine.terms import SHARES, weighted_quantile

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Places = NDArray[np.intp]
GROUPS_PER_PARAMETER = 20  # independent (chip, model, source) groups needed per free parameter
ROBUST = 0.1  # log errors beyond this count linearly, not squared
STEP = 5e-3  # of a log parameter, for the numerical Jacobian
PRIOR = 0.02  # residual per e-fold from the starting value: affects only parameters that no row determines


class BudgetError(ValueError):
    """More free parameters than the measurements support."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Parameter:
    """One free parameter: its scope, starting value and bounds, and why it is free."""

    scope: str
    name: str
    value: float  # before the fit
    low: float
    high: float
    reason: str = ""

    def __post_init__(self) -> None:
        if not 0 < self.low < self.value < self.high:
            raise ValueError(f"{self.scope} {self.name}: 0 < low < value < high must hold")


class Solution(NamedTuple):
    """The optimum in log parameters, with its errors (rows,) and their derivatives (rows, parameters)."""

    x: Array
    errors: Array
    jacobian: Array


def check_budget(parameters: int, groups: int) -> None:
    """BudgetError if there is more than one free parameter per GROUPS_PER_PARAMETER independent groups."""
    if parameters > groups // GROUPS_PER_PARAMETER:
        raise BudgetError(
            f"{parameters} free parameters, but {groups} independent (chip, model, source) groups "
            f"support {groups // GROUPS_PER_PARAMETER}"
        )


def soften(errors: Array) -> Array:
    """Residuals whose squares are twice the soft-L1 loss, which limits the influence of outliers."""
    scaled = errors / ROBUST
    # 2 (sqrt(1 + s^2) - 1) cancels for small s
    loss = 2 * scaled**2 / (np.sqrt(1 + scaled**2) + 1)
    softened: Array = np.sign(errors) * ROBUST * np.sqrt(loss)
    return softened


def group_weights(groups: Sequence[str]) -> Array:
    """Weights 1/n for the rows of a group of n, so that all groups have equal weight."""
    _, inverse, counts = np.unique(np.asarray(groups), return_inverse=True, return_counts=True)
    weights: Array = 1.0 / counts[inverse]
    return weights


def bounds_of(parameters: Sequence[Parameter]) -> tuple[Array, Array, Array]:
    """(start, low, high) of the parameters, in logarithms."""
    return tuple(np.log([getattr(p, name) for p in parameters]) for name in ("value", "low", "high"))  # type: ignore[return-value]


def solve(
    errors: Callable[[Array], Array], parameters: Sequence[Parameter], weights: Array, evaluations: int = 30
) -> Solution:
    """Minimizes the weighted robust error; rows without a prediction are NaN in `errors`."""
    from scipy.optimize import least_squares  # imported here because estimates need no fit

    start, low, high = bounds_of(parameters)
    root = np.sqrt(weights)

    def residuals(x: Array) -> Array:
        residual = soften(np.nan_to_num(errors(x), nan=0.0)) * root
        return np.concatenate([residual, PRIOR * (x - start)])

    def slopes(x: Array) -> Array:
        here = residuals(x)
        # scipy's steps are relative to x, far too large for the logarithm of a microsecond
        return np.column_stack([(residuals(x + step) - here) / STEP for step in STEP * np.eye(len(x))])

    solution = least_squares(residuals, start, slopes, bounds=(low, high), x_scale=0.3, max_nfev=evaluations, xtol=1e-4)
    x = np.asarray(solution.x, dtype=float)
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
    """The optimum over the kept rows only, with errors linearized around `at`; pinned parameters keep their start."""
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
        residual = soften(offset + slope @ (x - base[free])) * root
        return np.concatenate([residual, PRIOR * (x - start[free])])

    inside = np.clip(base[free], low[free] + 1e-9, high[free] - 1e-9)
    base[free] = least_squares(residuals, inside, bounds=(low[free], high[free]), x_scale=0.3).x
    return base


class Interval(NamedTuple):
    """90 % interval of measurements as factors on the prediction, and its coverage on held-out groups."""

    low: float
    high: float
    rows: int
    groups: int
    coverage: float  # on groups that were not used for the quantiles
    quantiles: tuple[float, ...] = ()  # factors at SHARES; those at both ends are low and high

    @property
    def half_width(self) -> float:
        """Half the distance between the factors: 0.2 is about +-20 %."""
        return (self.high - self.low) / 2


def interval(errors: Array, groups: Sequence[str], units: Sequence[str]) -> Interval:
    """Interval from held-out errors log(predicted / measured), shape (rows,).

    Coverage of each unit (a chip, a family) is tested against the quantiles of the other units.
    """
    names, unit_of_row = np.asarray(groups), np.asarray(units)
    ratios, weights = -errors, group_weights(groups)
    inside = np.zeros(len(ratios))
    for unit in np.unique(unit_of_row):
        own, others = unit_of_row == unit, unit_of_row != unit
        if not others.any():
            others = own
        low, high = _central_90(ratios[others], weights[others])
        inside[own] = (ratios[own] >= low) & (ratios[own] <= high)
    every = tuple(float(np.exp(weighted_quantile(ratios, weights, share))) for share in SHARES)
    return Interval(
        low=every[0],
        high=every[-1],
        quantiles=every,
        rows=len(ratios),
        groups=len(np.unique(names)),
        coverage=float((inside * weights).sum() / weights.sum()),
    )


def _central_90(ratios: Array, weights: Array) -> tuple[float, float]:
    return weighted_quantile(ratios, weights, 0.05), weighted_quantile(ratios, weights, 0.95)
