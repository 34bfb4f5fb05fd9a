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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from advisor.engine.terms import LAYOUT, LENGTHS, MODEL, SITE, STACK, Place, Posterior

Array = NDArray[np.float64]
LEVELS = (MODEL, STACK, LAYOUT, SITE, LENGTHS)  # from the widest to the narrowest
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
    weights = np.linalg.solve(covariance_of(near, effects, pooling.noise), shared)
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


def covariance_of(observed: Sequence[Observed], effects: Iterable[tuple[str, float]], noise: float) -> Array:
    total = np.diag([noise if o.noise is None else o.noise for o in observed])
    for level, variance in effects:
        keys = numbers_of([o.place.key(level) for o in observed])
        total = total + variance * (keys[:, None] == keys[None, :])
    return total


def numbers_of(keys: Sequence[object]) -> NDArray[np.intp]:
    known: dict[object, int] = {}
    return np.array([known.setdefault(key, len(known)) for key in keys])


def limited(log_error: float, most: float = FAR) -> float:
    return min(max(log_error, -most), most)
