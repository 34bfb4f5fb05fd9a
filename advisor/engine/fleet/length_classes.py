"""Prompt length classes, so that different machines can serve different lengths."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist

import numpy as np

from advisor.engine.terms import Lengths, log_normal_sigma

QUANTILES = (0.0, 0.5, 0.9, 1.0)  # planning assumption: boundaries of the classes, as quantiles of prompt length


@dataclass(frozen=True, kw_only=True, slots=True)
class LengthClass:
    """Requests with prompts between two lengths."""

    low_tokens: float
    high_tokens: float  # infinite: no upper bound
    share_fraction: float  # of all requests
    input_tokens: Lengths


def length_classes(lengths: Lengths, recorded: Sequence[int] = ()) -> list[LengthClass]:
    """Log-normal lengths split at QUANTILES; each class is a log-normal with its own mean and p95.

    recorded: prompts of a trace, which are split instead.
    """
    if recorded:
        return _recorded_classes(np.sort(recorded))
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


def _recorded_classes(ordered: np.ndarray) -> list[LengthClass]:
    """Classes of recorded prompts, shortest first; equal prompts are in one class."""
    bounds = [0.0, *(float(np.quantile(ordered, q, method="lower")) for q in QUANTILES[1:-1]), math.inf]
    classes = []
    for low, high in pairwise(sorted(set(bounds))):
        own = ordered[(ordered >= low) & (ordered < high)]
        if len(own):
            mean, p95 = float(own.mean()), float(np.quantile(own, 0.95, method="inverted_cdf"))
            classes.append(
                LengthClass(
                    low_tokens=low,
                    high_tokens=high,
                    share_fraction=len(own) / len(ordered),
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
