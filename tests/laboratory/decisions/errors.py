"""Joint errors of the predictions of one question: which deployments are wrong together, and what one test says.

A measured latency is the prediction times a ratio, whose distribution is that of answers (held-out errors of the
calibration, narrowed by a correction). Its normal score is the sum of effects that deployments share: framework and
model (on all chips), then stack, layout, lengths, and noise, in the proportions that measured rows show.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.engine.calibration import Observed, Pooling
from advisor.engine.terms import Z95, Place, RatioDistribution
from tests.laboratory.least_squares import Array

SCORES = np.linspace(-6.0, 6.0, 2401)
JITTER = 1e-9


def shared_variance(pooling: Pooling, a: Sequence[Place], b: Sequence[Place]) -> Array:
    """(a, b) covariance of the errors of deployments, without noise."""
    total = np.zeros((len(a), len(b)))
    for level, variance in pooling.effects():
        numbers: dict[object, int] = {}
        x, y = (np.array([numbers.setdefault(p.key(level), len(numbers)) for p in each]) for each in (a, b))
        total += variance * (x[:, None] == y[None, :])
    return total


@dataclass(frozen=True, kw_only=True, slots=True)
class Errors:
    """Joint distribution of log(measured / predicted) of TPOT and TTFT of n settings, by normal scores."""

    tpot: tuple[RatioDistribution, ...]  # of a score of unit variance
    ttft: tuple[RatioDistribution, ...]
    factor: Array  # (n,) correction of the predictions
    mean: Array  # (2n,) of the scores: TPOT, then TTFT
    covariance: Array  # (2n, 2n)

    def draws(self, count: int, seed: int = 0) -> tuple[Array, Array]:
        """(TPOT, TTFT) over the prediction in joint draws, each (n, count)."""
        n = len(self.factor)
        values, vectors = np.linalg.eigh(self.covariance)
        root = vectors * np.sqrt(np.clip(values, 0.0, None))
        scores = self.mean[:, None] + root @ antithetic(2 * n, count, seed)
        tpot = np.array([d.at(z) for d, z in zip(self.tpot, scores[:n], strict=True)])
        ttft = np.array([d.at(z) for d, z in zip(self.ttft, scores[n:], strict=True)])
        return tpot * self.factor[:, None], ttft * self.factor[:, None]

    def given(self, tested: int, tpot: float, ttft: float | None) -> "Errors":
        """After a load test of one setting that measured these ratios to the prediction."""
        n = len(self.factor)
        seen = {tested: score(self.tpot[tested], tpot / self.factor[tested])}
        if ttft is not None:
            seen[n + tested] = score(self.ttft[tested], ttft / self.factor[tested])
        return self.observed(seen)

    def only(self, settings: Sequence[int]) -> "Errors":
        """Of these settings."""
        n = len(self.factor)
        both = [*settings, *(n + s for s in settings)]
        return Errors(
            tpot=tuple(self.tpot[s] for s in settings),
            ttft=tuple(self.ttft[s] for s in settings),
            factor=self.factor[list(settings)],
            mean=self.mean[both],
            covariance=self.covariance[np.ix_(both, both)],
        )

    def observed(self, seen: Mapping[int, float]) -> "Errors":
        """With these normal scores known."""
        at = list(seen)
        known = self.covariance[np.ix_(at, at)] + JITTER * np.eye(len(at))
        gain = np.linalg.solve(known, self.covariance[at]).T
        return replace(
            self,
            mean=self.mean + gain @ (np.array(list(seen.values())) - self.mean[at]),
            covariance=self.covariance - gain @ self.covariance[at],
        )


def antithetic(rows: int, count: int, seed: int) -> Array:
    """Standard normal draws in pairs of opposite sign, so that means are exact."""
    half = np.random.default_rng(seed).standard_normal((rows, count // 2))
    return np.concatenate([half, -half], axis=1)


def score(known: RatioDistribution, ratio: float) -> float:
    """The normal score of a ratio."""
    return float(np.interp(ratio, known.at(SCORES), SCORES))


def expected(
    places: Sequence[Place],
    tpot: Sequence[RatioDistribution],
    ttft: Sequence[RatioDistribution],
    correlation: Sequence[float],
    poolings: tuple[Pooling, Pooling],
    known: Sequence[Observed] = (),
) -> Errors:
    """The errors of settings at these places.

    known: errors of measured rows of the same model. They correct all predictions by one factor for each setting, and
    narrow the distribution of TPOT, as in answers. correlation: of TTFT with TPOT, by setting.
    """
    pooling, first = poolings
    own = shared_variance(pooling, places, places) + pooling.noise * np.eye(len(places))
    factor = np.ones(len(places))
    if known:
        rows = [o.place for o in known]
        between = shared_variance(pooling, places, rows)
        among = shared_variance(pooling, rows, rows) + pooling.noise * np.eye(len(rows))
        weights = np.linalg.solve(among, between.T)
        informed = [bool(row.any()) for row in between]
        factor = np.exp(weights.T @ np.array([o.log_error for o in known]))
        own = own - between @ weights
        sd = np.sqrt(np.diag(own))
        tpot = [
            d.narrowed((float(np.exp(-Z95 * s)), float(np.exp(Z95 * s)))) if near else d
            for d, s, near in zip(tpot, sd, informed, strict=True)
        ]
    alike = unit(own)
    also = unit(shared_variance(first, places, places) + first.noise * np.eye(len(places)))
    r = np.array(correlation)
    cross = alike * r[None, :]
    left = np.sqrt(1.0 - r**2)
    both = np.outer(r, r) * alike + np.outer(left, left) * also
    return Errors(
        tpot=tuple(tpot),
        ttft=tuple(ttft),
        factor=factor,
        mean=np.zeros(2 * len(places)),
        covariance=np.block([[alike, cross], [cross.T, both]]),
    )


def unit(covariance: Array) -> Array:
    sd = np.sqrt(np.diag(covariance))
    return np.asarray(covariance / np.outer(sd, sd))
