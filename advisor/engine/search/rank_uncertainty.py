"""Monte Carlo confidence in the ranking, drawn from the intervals of performance and price.

Options on the same chip share one performance draw, and options that buy or rent the same chip share one price draw.
The correlation between different chips is unknown, so they are drawn independently, which moves probabilities toward
one half.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from advisor.engine.scheduler import SEED
from advisor.engine.search.objective import Figures, Scale, declared_scores_of, objective
from advisor.engine.search.simulated import Scored, excess, resized_usd_per_hour
from advisor.engine.spec import Workload
from advisor.engine.step import Z95

Array = np.ndarray
DRAWS = 4096
Ratios = tuple[float, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Spread:
    """90 % intervals of one option's figures, as (low, high) factors."""

    throughput_fraction: Ratios
    latency_fraction: Ratios
    price_fraction: Ratios


def log_normal(ratios: Ratios, z: Array) -> Array:
    """Log-normal factors at standard normal `z`, with these 5 % and 95 % quantiles."""
    low, high = (math.log(max(r, 1e-9)) for r in ratios)
    return np.exp((low + high) / 2 + (high - low) / (2 * Z95) * z)


def scores(workload: Workload, scale: Scale, options: Sequence[Scored], spreads: Sequence[Spread]) -> Array:
    """The objective of each option in each draw, shape (options, draws); lower is better."""
    normal = _normals(options)
    rows = []
    for s, spread in zip(options, spreads, strict=True):
        chip = s.lane.choice.accelerator.slug
        z = normal[f"performance of {chip}"]
        speed = log_normal(spread.throughput_fraction, z)
        price = log_normal(spread.price_fraction, normal[f"price of {chip} {s.offer.acquisition}"])
        rows.append(objective(workload, scale, figures_at(workload, scale, s, speed, price, spread, z)))
    return np.array(rows)


def _normals(options: Sequence[Scored]) -> Mapping[str, Array]:
    """Standard normal draws of each shared cause; depends only on the sorted names, so results are repeatable."""
    chips = sorted({s.lane.choice.accelerator.slug for s in options})
    names = [f"performance of {c}" for c in chips] + [f"price of {c} {way}" for c in chips for way in ("own", "rent")]
    draws = np.random.default_rng(SEED).standard_normal((len(names), DRAWS))
    return dict(zip(names, draws, strict=True))


def figures_at(
    workload: Workload, scale: Scale, s: Scored, speed: Array, price: Array, spread: Spread, z: Array
) -> Figures:
    """An option's figures if its chips run at `speed` times the estimate, resized to keep the service level."""
    share = 1 / speed if workload.kind.released_after_run else resized(workload, s, speed)
    known = declared_scores_of(workload, scale)
    return Figures(
        usd_per_hour=resized_usd_per_hour(workload, s, share * s.replicas, share) * price,
        tpot_p95_s=workload.kind.tail_latency_s(s.verified) * log_normal(spread.latency_fraction, -z),
        watts=s.watts * share,
        kgco2e_per_kwh=np.array(s.offer.kgco2e_per_kwh or math.nan),
        capacity_requests_per_s=s.capacity_requests_per_s * speed * share,
        chips=s.chips * share,
        lacking=known.lacking(s.lane, s.offer) if known else 0.0,
    )


def growth(workload: Workload, s: Scored, speed: Array) -> Array:
    """Serving replicas needed over those planned (fractional), if each runs at `speed` times the estimate.

    Slower replicas still suffice while latency (taken as 1 / speed) and capacity have headroom.
    """
    carrying = (s.replicas - s.spare_replicas) / s.replicas
    full = workload.requests_per_s_peak / (s.capacity_requests_per_s * carrying)
    used = min(max(excess(workload, s.verified), full), 1.0)
    return np.where(speed > 1, 1 / speed, np.maximum(used / speed, 1.0))


def resized(workload: Workload, s: Scored, speed: Array) -> Array:
    """Whole replicas with spares needed for the same service, over those planned."""
    carrying = s.replicas - s.spare_replicas
    return (np.ceil(carrying * growth(workload, s, speed) - 1e-9) + s.spare_replicas) / s.replicas


def pairwise_win_probability(scores: Array) -> Array:
    """Shape (options, options): probability that option i beats option j; a tie counts half."""
    better = scores[:, None, :] < scores[None, :, :]
    equal = scores[:, None, :] == scores[None, :, :]
    return np.asarray(better.mean(axis=2) + equal.mean(axis=2) / 2)


def win_probability(scores: Array) -> Array:
    """Shape (options,): probability that each option is the best."""
    is_best = scores == scores.min(axis=0)
    return np.asarray((is_best / is_best.sum(axis=0)).mean(axis=1))
