"""Prompt length classes, so that different machines can serve different lengths."""

import math
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist

from advisor.engine.spec import Lengths, log_normal_sigma

QUANTILES = (0.0, 0.5, 0.9, 1.0)  # planning assumption: boundaries of the classes, as quantiles of prompt length


@dataclass(frozen=True, kw_only=True, slots=True)
class LengthClass:
    """Requests with prompts between two lengths."""

    low_tokens: float
    high_tokens: float  # infinite: no upper bound
    share_fraction: float  # of all requests
    input_tokens: Lengths


def length_classes(lengths: Lengths) -> list[LengthClass]:
    """Log-normal lengths split at QUANTILES; each class is a log-normal with its own mean and p95."""
    sigma = log_normal_sigma(lengths)
    mu = math.log(lengths.mean_tokens) - sigma**2 / 2
    classes = []
    for low, high in pairwise(QUANTILES):
        # partial expectation of a log-normal: the normal CDF shifted by one sigma
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
    """Standard normal quantile function; infinite at 0 and 1."""
    return NormalDist().inv_cdf(quantile) if 0 < quantile < 1 else math.copysign(math.inf, quantile - 0.5)


def _below(value: float) -> float:
    """Standard normal CDF, including infinite values."""
    return NormalDist().cdf(value) if math.isfinite(value) else float(value > 0)
