"""The cost and time of a run with everything uncertain drawn together."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from advisor.engine.plans import (
    CAPITAL,
    COMMITMENT,
    ENERGY,
    OTHER,
    RENT,
    RESALE,
    SERVICES,
    STAFF,
)
from advisor.engine.search import joint, standard_normal
from advisor.engine.training_search.outcome import Candidate

Array = NDArray[np.float64]
Ratios = tuple[float, float]
LEAST_LOSS = 0.05  # of the expected loss, at the good end of the range
TIMED = (RENT, ENERGY, STAFF, SERVICES, OTHER)  # payments that last as long as the run


@dataclass(frozen=True, kw_only=True, slots=True)
class CostDraws:
    """Draws of one run, shape (draws,)."""

    days: Array
    usd_total: Array
    goodput_fraction: Array


def cost_draws(c: Candidate, throughput: Ratios, price: dict[str, Ratios], u: joint.Uncertain) -> CostDraws:
    """Days and present cost of a run in each draw.

    throughput: 90% range of true over estimated speed; price: of today's rents (rent) and purchases (own). Failures and
    repairs move the goodput within its range. What is paid by time follows the days; a commitment is paid in full.
    """
    slug = c.trained.accelerator.slug
    speed = joint.centered(throughput, standard_normal(f"performance of {slug}"))
    kept = goodput_draw(c)
    longer = c.goodput.fraction / (speed * kept)
    factors = {
        RENT: drawn(price.get("rent", (1.0, 1.0)), f"rent of {slug}"),
        COMMITMENT: drawn(price.get("rent", (1.0, 1.0)), f"rent of {slug}"),
        CAPITAL: drawn(price.get("own", (1.0, 1.0)), f"purchase of {slug}"),
        STAFF: drawn(u.staff, "joint staff"),
    }
    present = c.planned.plan.prices.present(np.arange(c.planned.plan.prices.months + 1))
    total = np.zeros_like(longer)
    for name, payments in c.planned.plan.payments.items():
        usd = float(payments @ present)
        if name == RESALE:
            total = total + usd * factors[CAPITAL] * drawn(resale_ends(c, u), "joint resale")
        elif usd:
            total = total + usd * factors.get(name, 1.0) * (longer if name in TIMED else 1.0)
    return CostDraws(days=c.days * longer, usd_total=total, goodput_fraction=kept)


def drawn(ratios: Ratios, cause: str) -> Array:
    return np.asarray(joint.centered(ratios, standard_normal(cause)))


def goodput_draw(c: Candidate) -> Array:
    """The goodput: the logarithm of what is lost moves between the ends of its range."""
    low, middle, high = (
        -math.log(max(g, 1e-9)) for g in (c.goodput_range.high, c.goodput.fraction, c.goodput_range.low)
    )
    if middle <= 0.0:
        return np.ones(len(standard_normal("failures")))
    ends = (max(low / middle, LEAST_LOSS), max(high / middle, 1.0))
    return np.asarray(np.exp(-middle * drawn(ends, f"failures of {c.trained.accelerator.slug}")))


def resale_ends(c: Candidate, u: joint.Uncertain) -> Ratios:
    """90% range of the market value when the hardware leaves service, over the expected one."""
    if not u.resale_low:
        return (1.0, 1.0)
    month = min(c.months, len(u.resale_low) - 1)
    return u.resale_low[month], u.resale_high[month]
