"""The distribution of a true figure over its estimate, from stored quantiles of held-out errors."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Ratios = tuple[float, float]  # (5 %, 95 %) quantiles of the true figure over the estimate
SHARES = (0.05, 0.10, 0.25, 0.50, 0.75, 0.80, 0.90, 0.95)  # the quantiles that a calibration stores
LEAST = 1e-9  # of a ratio: its logarithm must exist
NORMAL = NormalDist()


@dataclass(frozen=True, kw_only=True, slots=True)
class RatioDistribution:
    """A true figure over its estimate.

    Between two quantiles, the logarithm of the ratio is linear in the standard normal score. Beyond the outermost ones
    it goes on with the mean slope between the median and that quantile, because the slope of the last two depends on
    few groups. So two quantiles make a log-normal distribution.
    """

    normal_scores: tuple[float, ...] = (-1.0, 1.0)  # ascending, on both sides of 0
    log_ratios: tuple[float, ...] = (0.0, 0.0)  # ascending

    @staticmethod
    def of(quantiles: Mapping[float, float]) -> "RatioDistribution":
        """From the ratio at each share. Quantiles that were rounded or widened apart are kept ascending."""
        shares = sorted(quantiles)
        logs = np.maximum.accumulate([math.log(max(quantiles[share], LEAST)) for share in shares])
        return RatioDistribution(
            normal_scores=tuple(NORMAL.inv_cdf(share) for share in shares), log_ratios=tuple(logs.tolist())
        )

    def at(self, z: Array | Sequence[float] | float) -> Array:
        """The ratios at standard normal values `z`."""
        scores, logs = np.array(self.normal_scores), np.array(self.log_ratios)
        z = np.asarray(z, float)
        inside: Array = np.interp(z, scores, logs)
        middle = float(np.interp(0.0, scores, logs))
        below, above = ((logs[end] - middle) / scores[end] for end in (0, -1))
        outside = below * np.minimum(z - scores[0], 0.0) + above * np.maximum(z - scores[-1], 0.0)
        return np.asarray(np.exp(inside + outside))

    def quantile(self, share: float) -> float:
        return float(self.at(NORMAL.inv_cdf(share)))

    def share_within(self, ratio: float) -> float:
        """Probability that the true figure is at most this many times its estimate."""
        z = np.linspace(-6.0, 6.0, 4801)
        place = int(np.searchsorted(self.at(z), ratio, side="right"))
        return NORMAL.cdf(float(z[min(place, len(z) - 1)]))

    @property
    def ends(self) -> Ratios:
        """The 90 % interval."""
        return self.quantile(0.05), self.quantile(0.95)

    def inverse(self) -> "RatioDistribution":
        """That of a time, from that of its rate, and the other way round."""
        return RatioDistribution(
            normal_scores=tuple(-z for z in reversed(self.normal_scores)),
            log_ratios=tuple(-each for each in reversed(self.log_ratios)),
        )

    def widened(self, ratio: float) -> "RatioDistribution":
        """The same median with a 90 % interval that ends this much lower and higher."""
        if ratio <= 1.0:
            return self
        z95 = NORMAL.inv_cdf(SHARES[-1])
        moved = (each + z / z95 * math.log(ratio) for z, each in zip(self.normal_scores, self.log_ratios, strict=True))
        return replace(self, log_ratios=tuple(moved))

    def spread(self, log_sd: float) -> "RatioDistribution":
        """The same median with a further, independent log-normal error: distances from it add in squares."""
        if log_sd <= 0.0:
            return self
        middle = math.log(self.quantile(0.5))
        moved = (
            middle + math.copysign(math.hypot(each - middle, z * log_sd), z)
            for z, each in zip(self.normal_scores, self.log_ratios, strict=True)
        )
        return replace(self, log_ratios=tuple(moved))

    def as_wide_as(self, ends: Ratios) -> "RatioDistribution":
        """The same shape with errors in proportion, so that the 90 % interval is as wide as this one."""
        low, high = self.ends
        if high <= low:
            return self
        kept = math.log(ends[1] / ends[0]) / math.log(high / low)
        return replace(self, log_ratios=tuple(kept * each for each in self.log_ratios))

    def narrowed(self, ends: Ratios) -> "RatioDistribution":
        """As wide as this interval, if that is narrower."""
        low, high = self.ends
        return self.as_wide_as(ends) if ends[1] / ends[0] < high / low else self


CERTAIN = RatioDistribution()  # the estimate is the true figure


def around_estimate(ends: Ratios) -> RatioDistribution:
    """The distribution with median 1 and these 5 % and 95 % quantiles: an expected value with a range."""
    return RatioDistribution.of({SHARES[0]: min(ends[0], 1.0), 0.5: 1.0, SHARES[-1]: max(ends[1], 1.0)})


def quantile_key(name: str, share: float) -> str:
    """The key of a stored quantile, such as tpot_p25_ratio; at both ends tpot_low_ratio and tpot_high_ratio."""
    at = {SHARES[0]: "low", SHARES[-1]: "high"}.get(share, f"p{share * 100:.0f}")
    return f"{name}_{at}_ratio"


def stored_distribution(row: Mapping[str, Any], name: str) -> RatioDistribution | None:
    """The distribution of a figure from a calibration scope; None: not stored.

    Calibrations of earlier versions store only the 5 % and 95 % quantiles.
    """
    found = {share: float(row[key]) for share in SHARES if (key := quantile_key(name, share)) in row}
    return RatioDistribution.of(found) if SHARES[0] in found and SHARES[-1] in found else None


def weighted_quantile(values: Array, weights: Array, share: float) -> float:
    """Weighted quantile, linearly interpolated between the midpoints of the weights; share: 0 to 1."""
    order = np.argsort(values)
    ordered, mass = values[order], weights[order]
    middle = (np.cumsum(mass) - mass / 2) / mass.sum()
    return float(np.interp(share, middle, ordered))
