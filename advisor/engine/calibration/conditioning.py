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
    """Mean and spread of the log error of a new measurement at this place, given these rows."""
    return Evidence(observed, pooling).posterior(place)


class Evidence:
    """Measured rows to condition on. What many places share of the computation is done once."""

    def __init__(self, observed: Sequence[Observed], pooling: Pooling) -> None:
        self.observed, self.effects, self.noise = observed, pooling.effects(), pooling.noise
        self.errors = np.array([o.log_error for o in observed])
        self.numbers: dict[str, tuple[dict[object, int], NDArray[np.intp]]] = {}
        self.inverses: dict[bytes, Array] = {}

    def at(self, place: Place, level: str) -> NDArray[np.bool_]:
        """Which rows share this level with the place."""
        if level not in self.numbers:
            known: dict[object, int] = {}
            each = [known.setdefault(o.place.key(level), len(known)) for o in self.observed]
            self.numbers[level] = known, np.array(each, dtype=np.intp)
        known, rows = self.numbers[level]
        return np.asarray(rows == known.get(place.key(level), -1))

    def posterior(self, place: Place) -> Posterior:
        """Without a row that shares a used level, the mean is 0: the prediction stays as the physics gives it."""
        alike = {level: self.at(place, level) for level, _ in self.effects}
        near = np.flatnonzero(np.logical_or.reduce(list(alike.values()))) if alike else np.array([], dtype=np.intp)
        prior = sum(variance for _, variance in self.effects) + self.noise
        if not len(near):
            return Posterior(log_mean=0.0, log_sd=math.sqrt(prior), rows=0, level="", keys=())
        shared = sum(variance * alike[level][near] for level, variance in self.effects)
        weights = self.inverse(near) @ shared
        left = max(prior - float(shared @ weights), 1e-12)
        order = np.argsort(-np.abs(weights).round(12), kind="stable")
        nearest = next(level for level, _ in reversed(self.effects) if alike[level].any())
        return Posterior(
            log_mean=float(weights @ self.errors[near]),
            log_sd=math.sqrt(left),
            rows=int(alike[nearest].sum()),
            level=nearest,
            keys=tuple(self.observed[near[i]].key for i in order[:5]),
        )

    def inverse(self, near: NDArray[np.intp]) -> Array:
        """Of the covariance of these rows."""
        key = near.tobytes()
        if key not in self.inverses:
            rows = [self.observed[i] for i in near]
            self.inverses[key] = np.asarray(
                np.linalg.inv(covariance_of(rows, self.effects, self.noise)), dtype=np.float64
            )
        return self.inverses[key]


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
