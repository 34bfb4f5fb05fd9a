"""Fits the corrections of answers: how large each level's effect is, and how well rows correct rows of other units."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from advisor.engine.calibration.conditioning import LEVELS, Array, Observed, Pooling, covariance_of, numbers_of
from advisor.engine.terms import MODEL

# Prior of each log variance: a typical effect of 8 %, within a factor of 3.5 of that at one standard deviation. It
# decides only where rows say little.
PRIOR_MEAN, PRIOR_SD = math.log(0.08**2), 2.5
LOG_VARIANCE_RANGE = (math.log(1e-3**2), 1.0)


def blocks_of(observed: Sequence[Observed]) -> list[list[int]]:
    """Indices of the rows of each framework and model: rows of different ones share no effect."""
    found: defaultdict[object, list[int]] = defaultdict(list)
    for i, o in enumerate(observed):
        found[o.place.key(MODEL)].append(i)
    return list(found.values())


def fit(observed: Sequence[Observed], levels: Sequence[str] = LEVELS) -> Pooling:
    """The variances that make the log errors of these rows most likely."""
    blocks = [[observed[i] for i in block] for block in blocks_of(observed)]
    keys = [[numbers_of([o.place.key(level) for o in block]) for level in levels] for block in blocks]
    alike = [[(k[:, None] == k[None, :]).astype(float) for k in own] for own in keys]
    errors = [np.array([o.log_error for o in block]) for block in blocks]

    def cost(logs: Array) -> tuple[float, Array]:
        """Negative log posterior of the log variances, and its gradient."""
        sizes = np.exp(logs)
        total = 0.5 * float((((logs - PRIOR_MEAN) / PRIOR_SD) ** 2).sum())
        slope = (logs - PRIOR_MEAN) / PRIOR_SD**2
        for own, y in zip(alike, errors, strict=True):
            parts = [*own, np.eye(len(y))]
            covariance = sum(size * part for size, part in zip(sizes, parts, strict=True))
            lower = np.linalg.cholesky(covariance)
            inverse = np.linalg.inv(covariance)
            weighted = inverse @ y
            total += 0.5 * float(y @ weighted) + float(np.log(np.diag(lower)).sum())
            for k, part in enumerate(parts):
                gradient = 0.5 * (float((inverse * part).sum()) - float(weighted @ part @ weighted))
                slope[k] += gradient * sizes[k]
        return total, slope

    from scipy.optimize import minimize  # here, because it is slow to import and only the scorecard fits

    start = np.full(len(levels) + 1, PRIOR_MEAN)
    limits = [LOG_VARIANCE_RANGE] * len(start)
    found = minimize(cost, start, jac=True, method="L-BFGS-B", bounds=limits, options={"maxiter": 60})
    *variances, noise = np.exp(found.x)
    return Pooling(
        variances={level: float(v) for level, v in zip(levels, variances, strict=True)},
        noise=float(noise),
        levels=tuple(levels),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class HeldOut:
    """Corrections of rows by the other rows."""

    log_mean: Array  # (rows,)
    log_sd: Array  # (rows,) of the measurement around the corrected prediction
    informed: NDArray[np.bool_]  # (rows,) whether a row that was not held out shares a used level


def held_out(observed: Sequence[Observed], pooling: Pooling, units: Sequence[object]) -> HeldOut:
    """The correction of each row from all rows of other units: exact, from the inverse covariance of each block.

    The rows i of a unit, given all others: mean y_i - (K^-1_ii)^-1 (K^-1 y)_i and covariance (K^-1_ii)^-1 (Rasmussen
    and Williams, Gaussian Processes for Machine Learning, 2006, section 5.4.2, for one row).
    """
    count, effects = len(observed), pooling.effects()
    mean, sd, informed = np.zeros(count), np.zeros(count), np.zeros(count, bool)
    for block in blocks_of(observed):
        own = [observed[i] for i in block]
        errors = np.array([o.log_error for o in own])
        inverse = np.linalg.inv(covariance_of(own, effects, pooling.noise))
        weighted = inverse @ errors
        numbers = numbers_of([units[i] for i in block])
        for unit in np.unique(numbers):
            rows = np.flatnonzero(numbers == unit)
            covariance = np.linalg.inv(inverse[np.ix_(rows, rows)])
            place = np.array(block)[rows]
            mean[place] = errors[rows] - covariance @ weighted[rows]
            sd[place] = np.sqrt(np.diag(covariance))
            others = [own[k] for k in np.flatnonzero(numbers != unit)]
            for level, _ in effects:
                known = {o.place.key(level) for o in others}
                informed[place] |= np.array([own[k].place.key(level) in known for k in rows], bool)
    return HeldOut(log_mean=mean, log_sd=sd, informed=informed)
