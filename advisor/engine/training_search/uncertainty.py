"""The cost and time of a run with everything uncertain drawn together, or with given ratios."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

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
from advisor.engine.search import distributions, joint, standard_normal
from advisor.engine.terms import CERTAIN, SHARES, RatioDistribution, Ratios, around_estimate
from advisor.engine.training import step_distribution
from advisor.engine.training_search.outcome import Candidate

Array = NDArray[np.float64]
LEAST_LOSS = 0.05  # of the expected loss, at the good end of the range
TIMED = (RENT, ENERGY, STAFF, SERVICES, OTHER)  # payments that last as long as the run
UNCERTAIN = ("performance", "goodput", "rent", "hardware", "resale", "staff")


@dataclass(frozen=True, kw_only=True, slots=True)
class CostDraws:
    """Draws of one run, shape (draws,)."""

    days: Array
    usd_total: Array  # present value
    paid_usd: Array  # without discounting


@dataclass(frozen=True, kw_only=True, slots=True)
class Uncertainties:
    """The inputs of one run, as ratios to their expected values: 90% ranges, of the performance a distribution."""

    performance: RatioDistribution = CERTAIN  # true over estimated speed
    goodput: Ratios = (1.0, 1.0)
    rent: Ratios = (1.0, 1.0)  # of today's prices
    hardware: Ratios = (1.0, 1.0)
    resale: Ratios = (1.0, 1.0)
    staff: Ratios = (1.0, 1.0)

    def distribution(self, name: str) -> RatioDistribution:
        known: RatioDistribution | Ratios = getattr(self, name)
        return known if isinstance(known, RatioDistribution) else around_estimate(known)

    def of(self, name: str) -> Ratios:
        """The 90% range of one input."""
        known: RatioDistribution | Ratios = getattr(self, name)
        return known.ends if isinstance(known, RatioDistribution) else known

    def alone(self, name: str) -> "Uncertainties":
        """The ranges with everything but one input as expected."""
        return replace(Uncertainties(), **{name: getattr(self, name)})


def speed_distribution(
    scopes: Mapping[str, Any], basis: str, experts: bool, serving_fraction: float = 0.0
) -> RatioDistribution:
    """The true speed of a run over the estimate.

    An iteration of DPO or GRPO has the errors of training in the phases that train and those of serving in those that
    serve, by their time. Both are taken at the same quantile: how their errors go together is unknown.
    """
    known, served = step_distribution(scopes, basis, experts=experts), distributions(scopes, basis).get("throughput")
    trained = known.inverse() if known is not None else served or CERTAIN
    if not serving_fraction:
        return trained
    slow = served or CERTAIN

    def both(share: float) -> float:
        return 1.0 / (serving_fraction / slow.quantile(share) + (1.0 - serving_fraction) / trained.quantile(share))

    return RatioDistribution.of({share: both(share) for share in SHARES})


def uncertainties(
    c: Candidate, throughput: RatioDistribution, price: Mapping[str, Ratios], u: joint.Uncertain
) -> Uncertainties:
    """What is uncertain about a run. throughput: of the speed; price: of today's rents (rent) and purchases (own)."""
    return Uncertainties(
        performance=throughput,
        goodput=goodput_ends(c),
        rent=price.get("rent", (1.0, 1.0)),
        hardware=price.get("own", (1.0, 1.0)),
        resale=resale_ends(c, u),
        staff=u.staff,
    )


def cost_draws(c: Candidate, ranges: Uncertainties) -> CostDraws:
    """Days and cost of a run in each draw. Runs on one chip share its draws; all share those of staff and resale."""
    slug = c.trained.accelerator.slug
    causes = {
        "performance": f"performance of {slug}", "goodput": f"failures of {slug}", "rent": f"rent of {slug}",
        "hardware": f"purchase of {slug}", "resale": "joint resale", "staff": "joint staff",
    }  # fmt: skip
    return with_ratios(
        c, {name: ranges.distribution(name).at(standard_normal(cause)) for name, cause in causes.items()}
    )


def at_quantile(ranges: Uncertainties, c: Candidate, z: Mapping[str, float]) -> CostDraws:
    """Days and cost with these inputs at a standard normal value, such as -Z95 for its low end, others as expected."""
    return with_ratios(c, {name: ranges.distribution(name).at([value]) for name, value in z.items()})


def with_ratios(c: Candidate, ratios: Mapping[str, Array | float]) -> CostDraws:
    """Days and cost with inputs at these ratios to their expected values; `load` is the number of tokens.

    What is paid by time follows the days; a commitment is paid in full.
    """
    r = {name: np.asarray(value, float) for name, value in ratios.items()}
    one = np.ones(1)
    longer = r.get("load", one) / (r.get("performance", one) * r.get("goodput", one))
    factors = {
        RENT: r.get("rent", one), COMMITMENT: r.get("rent", one), CAPITAL: r.get("hardware", one),
        RESALE: r.get("hardware", one) * r.get("resale", one), STAFF: r.get("staff", one),
        ENERGY: r.get("electricity", one),
    }  # fmt: skip
    plan = c.planned.plan
    present = plan.prices.present(np.arange(plan.prices.months + 1))
    shape = np.broadcast(longer, *factors.values())
    worth, paid = np.zeros(shape.shape), np.zeros(shape.shape)
    for name, payments in plan.payments.items():
        factor = factors.get(name, one) * (longer if name in TIMED else 1.0)
        worth = worth + float(payments @ present) * factor
        paid = paid + float(payments.sum()) * factor
    return CostDraws(days=c.days * longer, usd_total=worth, paid_usd=paid)


def goodput_ends(c: Candidate) -> Ratios:
    """90% range of the goodput over the expected one; the logarithm of what is lost moves between its ends."""
    r, middle = c.goodput_range, -math.log(max(c.goodput.fraction, 1e-9))
    if middle <= 0.0:
        return (1.0, 1.0)
    low, high = (-math.log(max(g, 1e-9)) for g in (r.high, r.low))
    return math.exp(middle - max(high, middle)), math.exp(middle - max(low, LEAST_LOSS * middle))


def resale_ends(c: Candidate, u: joint.Uncertain) -> Ratios:
    """90% range of the market value when the hardware leaves service, over the expected one."""
    if not u.resale_low:
        return (1.0, 1.0)
    month = min(c.months, len(u.resale_low) - 1)
    return u.resale_low[month], u.resale_high[month]
