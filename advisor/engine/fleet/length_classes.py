"""Prompts divided by their length: classes that different machines may serve."""

import math
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist

from advisor.engine.scheduler import log_normal_sigma
from advisor.engine.spec import Lengths

QUANTILES = (0.0, 0.5, 0.9, 1.0)  # ours: of the prompt's length, between which requests are alike


@dataclass(frozen=True, kw_only=True, slots=True)
class LengthClass:
    """Prompts between two lengths."""

    low_tokens: float
    high_tokens: float  # infinite: no bound
    share_fraction: float  # of all requests
    input_tokens: Lengths


def length_classes(lengths: Lengths) -> list[LengthClass]:
    """Log-normal lengths cut at the quantiles; each part as a log-normal of its own mean and 95th percentile."""
    sigma = log_normal_sigma(lengths)
    mu = math.log(lengths.mean_tokens) - sigma**2 / 2
    classes = []
    for low, high in pairwise(QUANTILES):
        # tokens of the lengths up to a quantile, as a share of all tokens: the normal curve moved by one sigma
        mean = lengths.mean_tokens * (_below(_normal(high) - sigma) - _below(_normal(low) - sigma)) / (high - low)
        p95 = math.exp(mu + sigma * _normal(low + 0.95 * (high - low)))
        classes.append(
            LengthClass(
                low_tokens=math.exp(mu + sigma * _normal(low)),
                high_tokens=math.exp(mu + sigma * _normal(high)),
                share_fraction=high - low,
                input_tokens=Lengths(mean_tokens=mean, p95_tokens=max(p95, mean)),
            )
        )
    return classes


def _normal(quantile: float) -> float:
    """The standard normal's value at a quantile, the ends included."""
    return NormalDist().inv_cdf(quantile) if 0 < quantile < 1 else math.copysign(math.inf, quantile - 0.5)


def _below(value: float) -> float:
    """The quantile of a standard normal's value, infinite ones included."""
    return NormalDist().cdf(value) if math.isfinite(value) else float(value > 0)
