"""Monte Carlo confidence in the ranking, drawn from the intervals of performance and price.

Options on the same chip share one performance draw, options with the same kind of draft one draw of its acceptance, and
options that buy or rent the same chip one price draw. Different chips share the errors of the model and the framework.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.engine.search.limits import accepted_share, performance_draw, standard_normal
from advisor.engine.search.objective import Figures, Scale, declared_scores_of, objective
from advisor.engine.search.simulated import Scored, excess, resized_usd_per_hour
from advisor.engine.terms import RatioDistribution, Ratios, Workload, around_estimate

Array = np.ndarray
TOLD_APART = 0.9  # as the 90 % intervals that the draws come from


@dataclass(frozen=True, kw_only=True, slots=True)
class Spread:
    """How far one option's true figures may be from those shown: as distributions, of the price as a 90 % range."""

    throughput_fraction: RatioDistribution
    latency_fraction: RatioDistribution
    price_fraction: Ratios


def scores(
    workload: Workload,
    scale: Scale,
    options: Sequence[Scored],
    spreads: Sequence[Spread],
    usd_per_hour: Sequence[Array | None] = (),
) -> Array:
    """The objective of each option in each draw, shape (options, draws); lower is better.

    usd_per_hour: cost of each option's plan in each draw; None: that of the option, resized and at the drawn price.
    """
    rows = []
    drawn = usd_per_hour or [None] * len(options)
    for s, spread, usd in zip(options, spreads, drawn, strict=True):
        chip, z = s.lane.choice.accelerator.slug, performance_draw(s.lane)
        speed = spread.throughput_fraction.at(z) * accepted_share(s.lane.draft)
        price = around_estimate(spread.price_fraction).at(standard_normal(f"price of {chip} {s.offer.acquisition}"))
        figures = figures_at(workload, scale, s, speed, price, spread, z)
        rows.append(objective(workload, scale, figures if usd is None else replace(figures, usd_per_hour=usd)))
    return np.array(rows)


def figures_at(
    workload: Workload, scale: Scale, s: Scored, speed: Array, price: Array, spread: Spread, z: Array
) -> Figures:
    """An option's figures if its chips run at `speed` times the estimate, resized to keep the service level."""
    slower = spread.latency_fraction.at(-z) / accepted_share(s.lane.draft)
    share = 1 / speed if workload.kind.released_after_run else resized(workload, s, speed)
    known = declared_scores_of(workload, scale)
    return Figures(
        usd_per_hour=resized_usd_per_hour(workload, s, share * s.replicas, share, price),
        tpot_p95_s=workload.kind.tail_latency_s(s.verified) * slower,
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


def pairwise_win_probability(scores: Array, equal_fraction: float = 0.0) -> Array:
    """Shape (options, options): probability that option i beats option j; a draw with equal scores counts half.

    equal_fraction: scores that differ by no more than this are equal.
    """
    worst = scores + equal_fraction * np.abs(scores)
    wins = (worst[:, None, :] < scores[None, :, :]).mean(axis=2)
    return np.asarray((1.0 + wins - wins.T) / 2)


def is_tie(win_probability: float) -> bool:
    """Whether neither of two options is better in TOLD_APART of the draws."""
    return 1 - TOLD_APART < win_probability < TOLD_APART


def win_probability(scores: Array, equal_fraction: float = 0.0) -> Array:
    """Shape (options,): probability that each option is the best; equal ones share a draw, infinite ones win none."""
    least = scores.min(axis=0)
    is_best = (scores <= least + equal_fraction * np.abs(least)) & np.isfinite(scores)
    return np.asarray((is_best / np.maximum(is_best.sum(axis=0), 1)).mean(axis=1))
