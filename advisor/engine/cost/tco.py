"""Total cost of ownership: cash flow by month, present value of costs, break-even points, growth, cost per token.

Running costs are paid at the end of a month, purchases at its beginning. At the end of the horizon, hardware has the
carrying value that its annuity has not yet recovered. So buying has the same present value as paying the annuity, and
hourly costs and cash flows agree.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import ROUND_FLOOR, ROUND_HALF_EVEN, Decimal

from advisor.engine.cost.hourly import (
    annuity_usd_per_month,
    monthly_rate,
    present_value,
    total_usd_per_hour,
)
from advisor.engine.spec import HOURS_PER_MONTH, Part

CENT = Decimal("0.01")


def cents(usd: float) -> Decimal:
    """Rounded to cents, half to even."""
    return Decimal(repr(float(usd))).quantize(CENT, rounding=ROUND_HALF_EVEN)


def in_cents(amounts: Sequence[float]) -> list[Decimal]:
    """Amounts in cents that add up to their rounded sum: missing cents go to the largest remainders."""
    exact = [Decimal(repr(float(usd))) for usd in amounts]
    rounded = [usd.quantize(CENT, rounding=ROUND_FLOOR) for usd in exact]
    missing_cents = int((cents(math.fsum(amounts)) - sum(rounded, Decimal(0))) / CENT)
    order = sorted(range(len(exact)), key=lambda i: (rounded[i] - exact[i], i))
    for i in order[: max(missing_cents, 0)]:
        rounded[i] += CENT
    return rounded


@dataclass(frozen=True, kw_only=True, slots=True)
class Bill:
    """Costs of one deployment at today's size."""

    parts: tuple[Part, ...]
    months: int  # horizon
    discount_fraction: float  # per year
    capital_usd: float = 0.0  # purchased today, with its share of network, storage and spares; 0: rented
    life_months: int = 1
    residual_fraction: float = 0.0

    @property
    def usd_per_month(self) -> float:
        """Cost of an average month, with purchases as an annuity over their life."""
        return total_usd_per_hour(self.parts) * HOURS_PER_MONTH

    @property
    def running_usd_per_month(self) -> float:
        """Cost of an average month without capital costs."""
        return total_usd_per_hour([p for p in self.parts if p.group != "capital"]) * HOURS_PER_MONTH


@dataclass(frozen=True, kw_only=True, slots=True)
class Flow:
    """Cash flow of one month; month 0 is today."""

    month: int
    capital_usd: float
    running_usd: float
    value_left_usd: float  # credit in the last month: carrying value of the hardware at the horizon
    present_usd: float  # present value of the three

    @property
    def total_usd(self) -> float:
        """Cash paid in this month, less the carrying value."""
        return self.capital_usd + self.running_usd - self.value_left_usd


def flows(bill: Bill, sizes: Sequence[float] | None = None) -> list[Flow]:
    """Cash flow by month, from today (month 0) to the horizon.

    `sizes`: size of the deployment in each month, relative to today's. Hardware is replaced at the end of its life and
    never sold early.
    """
    sizes = [1.0] * bill.months if sizes is None else sizes
    last, rate = len(sizes), monthly_rate(bill.discount_fraction)
    paid = [0.0] * (last + 1)
    carrying_usd = 0.0
    for month, usd in _purchases(bill, sizes):
        paid[month] += usd
        for replaced in range(month + bill.life_months, last, bill.life_months):
            paid[replaced] += usd * (1.0 - bill.residual_fraction)
        carrying_usd += usd * _carrying_value(bill, last - month)
    cash_flows = []
    for month in range(last + 1):
        running = bill.running_usd_per_month * sizes[month - 1] if month else 0.0
        value = carrying_usd if month == last else 0.0
        today = (paid[month] + running - value) * (1.0 + rate) ** -month
        flow = Flow(month=month, capital_usd=paid[month], running_usd=running, value_left_usd=value, present_usd=today)
        cash_flows.append(flow)
    return cash_flows


def _purchases(bill: Bill, sizes: Sequence[float]) -> Iterator[tuple[int, float]]:
    """(month at whose end, USD) of the initial purchase and each expansion."""
    largest = 0.0
    for month, size in enumerate(sizes):
        if size > largest and bill.capital_usd:
            yield month, bill.capital_usd * (size - largest)
        largest = max(largest, size)


def _carrying_value(bill: Bill, held_months: int) -> float:
    """Carrying value per dollar purchased `held_months` ago and replaced at the end of each life.

    It is what the annuity has not yet recovered.
    """
    age = (held_months - 1) % bill.life_months + 1
    remaining = bill.life_months - age
    annuity = annuity_usd_per_month(1.0, bill.life_months, bill.residual_fraction, bill.discount_fraction)
    residual = bill.residual_fraction * (1.0 + monthly_rate(bill.discount_fraction)) ** -remaining
    return present_value(annuity, remaining, bill.discount_fraction) + residual


def net_present_usd(cash_flows: Sequence[Flow]) -> float:
    """Present value of costs, USD."""
    return math.fsum(flow.present_usd for flow in cash_flows)


# --- break-even points ------------------------------------------------------------------------------------------


def break_even_month(purchase: Bill, other_usd_per_month: float) -> int | None:
    """First month in which buying breaks even, discounted; None: not within the hardware's life."""
    rate, own_usd, other_usd = monthly_rate(purchase.discount_fraction), purchase.capital_usd, 0.0
    if purchase.running_usd_per_month >= other_usd_per_month:
        return None
    for month in range(1, purchase.life_months + 1):
        own_usd += purchase.running_usd_per_month * (1.0 + rate) ** -month
        other_usd += other_usd_per_month * (1.0 + rate) ** -month
        if own_usd <= other_usd:
            return month
    return None


def break_even_share(own_usd_per_month: float, rent_usd_per_month: float) -> float:
    """Fraction of the hours of a month above which owning costs less than renting for those hours; above 1: never."""
    return own_usd_per_month / rent_usd_per_month if rent_usd_per_month > 0 else math.inf


def break_even_tokens(usd_per_month: float, usd_per_mtok: float) -> float:
    """Tokens per month at which a fixed cost equals a price per million tokens; infinite if that price is 0."""
    return usd_per_month / usd_per_mtok * 1e6 if usd_per_mtok > 0 else math.inf


# --- growth -----------------------------------------------------------------------------------------------------


def sizes_under_growth(carrying: int, spares: int, growth_fraction_per_year: float, months: int) -> list[float]:
    """Replicas of each month, spares included, relative to today's; replicas for the peak grow in whole steps."""
    today = carrying + spares
    grown = (carrying * (1.0 + growth_fraction_per_year) ** (month / 12.0) for month in range(months))
    return [(max(math.ceil(n - 1e-9), 1) + spares) / today for n in grown]


@dataclass(frozen=True, kw_only=True, slots=True)
class Growth:
    """Present value of costs if all hardware is bought today, and if it is bought as traffic grows."""

    now_usd: float
    later_usd: float


def growth(bill: Bill, sizes: Sequence[float]) -> Growth:
    """Costs of both ways to buy, at today's hardware prices."""
    largest = [max(sizes, default=1.0)] * len(sizes)
    now, later = (net_present_usd(flows(bill, each)) for each in (largest, sizes))
    return Growth(now_usd=now, later_usd=later)


# --- cost per token ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Use:
    """Utilization in three stages; each fraction is of the one before."""

    instances_fraction: float  # of the paid accelerators: in replicas
    carrying_fraction: float  # of the replicas: not spares
    busy_fraction: float  # of the replicas that are not spares: mean load


def waterfall(parts: Sequence[Part], use: Use, mtok_per_hour: float) -> list[tuple[str, float]]:
    """(name, USD per million tokens): each part at full utilization, then the costs of what is paid but idle.

    The steps add up to the cost at the mean load. Empty if nothing is served.
    """
    if mtok_per_hour <= 0:
        return []
    total, (chips, carrying, busy) = total_usd_per_hour(parts), (
        use.instances_fraction, use.carrying_fraction, use.busy_fraction,
    )  # fmt: skip
    serving = chips * carrying * busy
    steps = [(part.name, part.usd_per_hour * serving) for part in parts if part.usd_per_hour]
    steps += [
        ("chips left over in whole instances", total * (1.0 - chips)),
        ("spare replicas", total * chips * (1.0 - carrying)),
        ("idle hours and headroom", total * chips * carrying * (1.0 - busy)),
    ]
    return [(name, usd / mtok_per_hour) for name, usd in steps if usd]


def combined_ratio(ratios: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """90 % interval (low, high), as factors, of the product of independent factors: log widths add in quadrature."""
    low, high = (math.sqrt(math.fsum(math.log(max(r[side], 1e-9)) ** 2 for r in ratios)) for side in (0, 1))
    return math.exp(-low), math.exp(high)
