"""Conditions predictions on measurements of similar deployments, by partial pooling.

The error of a prediction, log(measured time / predicted time), is the sum of independent normal effects, one for each
level that deployments share, and of noise. The levels are framework and model; then also chip, version and format (the
stack); then parallelism (the layout); then who measured (the site), or token lengths. So a measured row says most
about its own layout and lengths, less about other layouts of its stack, and nothing about other models. The sizes of
the effects are variances, fitted by marginal likelihood. This is a Gaussian process whose kernel is a sum of
indicators; see Gelman and Hill, Data Analysis Using Regression and Multilevel/Hierarchical Models (2007), chapter 12.

The correction of a deployment multiplies all its step times by one factor. The factor depends on what the deployment
is, not on the predicted figures. So a faster memory or link is never slower, and throughput, TPOT, TTFT and users keep
their relations, because the scheduler runs on the corrected steps.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from advisor.engine.terms import LAYOUT, LENGTHS, MODEL, SITE, STACK, Place, Posterior

Array = NDArray[np.float64]
LEVELS = (MODEL, STACK, LAYOUT, SITE, LENGTHS)  # from the widest to the narrowest
# Prior of each log variance: a typical effect of 8 %, within a factor of 3.5 of that at one standard deviation. It
# decides only where rows say little.
PRIOR_MEAN, PRIOR_SD = math.log(0.08**2), 2.5
LOG_VARIANCE_RANGE = (math.log(1e-3**2), 1.0)
FAR = 0.7  # natural log; a row further off than this (a factor of 2) has that error: it was a different situation


@dataclass(frozen=True, kw_only=True, slots=True)
class Observed:
    """One measured row."""

    key: str  # of the row, to link to it
    place: Place
    log_error: float  # log(measured time / predicted time)
    group: str  # rows that are held out together
    noise: float | None = None  # variance of this row's own error; None: that of the pooling


@dataclass(frozen=True, kw_only=True, slots=True)
class Pooling:
    """Variances of the effects, of log errors, and the levels that corrections use."""

    variances: Mapping[str, float]  # by level
    noise: float
    levels: tuple[str, ...] = LEVELS  # a level that did not help held-out rows is left out

    def effects(self) -> list[tuple[str, float]]:
        return [(level, self.variances[level]) for level in self.levels]


def posterior(observed: Sequence[Observed], place: Place, pooling: Pooling) -> Posterior:
    """Mean and spread of the log error of a new measurement at this place, given these rows.

    Without a row that shares a used level, the mean is 0: the prediction stays as the physics gives it.
    """
    effects = pooling.effects()
    near = [o for o in observed if any(o.place.key(level) == place.key(level) for level, _ in effects)]
    prior = sum(variance for _, variance in effects) + pooling.noise
    if not near:
        return Posterior(log_mean=0.0, log_sd=math.sqrt(prior), rows=0, level="", keys=())
    shared = sum(
        variance * np.array([o.place.key(level) == place.key(level) for o in near], float)
        for level, variance in effects
    )
    weights = np.linalg.solve(_covariance(near, effects, pooling.noise), shared)
    errors = np.array([o.log_error for o in near])
    left = max(prior - float(shared @ weights), 1e-12)
    order = np.argsort(-np.abs(weights), kind="stable")
    nearest = next(level for level, _ in reversed(effects) if any(o.place.key(level) == place.key(level) for o in near))
    count = sum(o.place.key(nearest) == place.key(nearest) for o in near)
    return Posterior(
        log_mean=float(weights @ errors),
        log_sd=math.sqrt(left),
        rows=count,
        level=nearest,
        keys=tuple(near[i].key for i in order[:5]),
    )


def _covariance(observed: Sequence[Observed], effects: Iterable[tuple[str, float]], noise: float) -> Array:
    total = np.diag([noise if o.noise is None else o.noise for o in observed])
    for level, variance in effects:
        keys = _numbers([o.place.key(level) for o in observed])
        total = total + variance * (keys[:, None] == keys[None, :])
    return total


def _numbers(keys: Sequence[object]) -> NDArray[np.intp]:
    known: dict[object, int] = {}
    return np.array([known.setdefault(key, len(known)) for key in keys])


def _blocks(observed: Sequence[Observed]) -> list[list[int]]:
    """Indices of the rows of each framework and model: rows of different ones share no effect."""
    found: defaultdict[object, list[int]] = defaultdict(list)
    for i, o in enumerate(observed):
        found[o.place.key(MODEL)].append(i)
    return list(found.values())


def fit(observed: Sequence[Observed], levels: Sequence[str] = LEVELS) -> Pooling:
    """The variances that make the log errors of these rows most likely."""
    blocks = [[observed[i] for i in block] for block in _blocks(observed)]
    keys = [[_numbers([o.place.key(level) for o in block]) for level in levels] for block in blocks]
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
    for block in _blocks(observed):
        own = [observed[i] for i in block]
        errors = np.array([o.log_error for o in own])
        inverse = np.linalg.inv(_covariance(own, effects, pooling.noise))
        weighted = inverse @ errors
        numbers = _numbers([units[i] for i in block])
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


def limited(log_error: float, most: float = FAR) -> float:
    return min(max(log_error, -most), most)
