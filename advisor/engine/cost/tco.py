"""Money over time: a bill in parts, its cash by month, what it is worth today, and where two bills meet.

Payments fall at the end of a month, purchases at its beginning. At the horizon's end bought hardware is carried at what
its annuity has not yet recovered, so the net present value of buying equals that of paying the annuity: a deployment
looks the same whether it is judged by the hour or by its cash.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import ROUND_FLOOR, ROUND_HALF_EVEN, Decimal

from advisor.engine.cost.hourly import (
    HOURS_PER_MONTH,
    annuity_usd_per_month,
    monthly_rate,
    present_value,
    total_usd_per_hour,
)
from advisor.engine.spec import Part

CENT = Decimal("0.01")


@dataclass(frozen=True, slots=True)
class Money:
    """An amount at the edge: decimal, in one currency, with the day of its oldest price."""

    amount: Decimal
    currency: str
    as_of: str  # ISO day; empty: no price in it

    def __add__(self, other: "Money") -> "Money":
        if self.currency != other.currency:
            raise ValueError(f"{self.currency} and {other.currency} do not add: convert one of them first")
        days = [day for day in (self.as_of, other.as_of) if day]
        return Money(self.amount + other.amount, self.currency, min(days, default=""))

    def __str__(self) -> str:
        dated = f" ({self.as_of})" if self.as_of else ""
        return f"{self.amount:,} {self.currency}{dated}"


def cents(usd: float) -> Decimal:
    """To the cent, halves to the even one."""
    return Decimal(repr(float(usd))).quantize(CENT, rounding=ROUND_HALF_EVEN)


def in_cents(amounts: Sequence[float]) -> list[Decimal]:
    """Amounts in whole cents that add up to the cents of their sum: the largest remainders take what rounding left."""
    exact = [Decimal(repr(float(usd))) for usd in amounts]
    floors = [usd.quantize(CENT, rounding=ROUND_FLOOR) for usd in exact]
    left = int((cents(math.fsum(amounts)) - sum(floors, Decimal(0))) / CENT)
    order = sorted(range(len(exact)), key=lambda i: (floors[i] - exact[i], i))
    for i in order[: max(left, 0)]:
        floors[i] += CENT
    return floors


@dataclass(frozen=True, kw_only=True, slots=True)
class Bill:
    """What one deployment costs at today's size."""

    parts: tuple[Part, ...]
    months: int  # horizon
    discount_fraction: float  # a year
    capital_usd: float = 0.0  # bought today, with its share of network, storage and spares; 0: rented
    life_months: int = 1
    residual_fraction: float = 0.0

    @property
    def usd_per_month(self) -> float:
        """An average month, what is bought spread over its life."""
        return total_usd_per_hour(self.parts) * HOURS_PER_MONTH

    @property
    def running_usd_per_month(self) -> float:
        """Without what a purchase is charged for."""
        return total_usd_per_hour([p for p in self.parts if p.group != "capital"]) * HOURS_PER_MONTH


@dataclass(frozen=True, kw_only=True, slots=True)
class Flow:
    """Cash of one month; month 0 is today."""

    month: int
    capital_usd: float
    running_usd: float
    value_left_usd: float  # a credit, in the last month alone: what the hardware is then carried at
    present_usd: float  # of the three together, today

    @property
    def total_usd(self) -> float:
        """What leaves in this month, less what the hardware is then worth."""
        return self.capital_usd + self.running_usd - self.value_left_usd


def flows(bill: Bill, sizes: Sequence[float] | None = None) -> list[Flow]:
    """Cash by month; `sizes`: how many times today's deployment runs in each month; hardware is never sold early."""
    sizes = [1.0] * bill.months if sizes is None else sizes
    last, rate = len(sizes), monthly_rate(bill.discount_fraction)
    paid = [0.0] * (last + 1)
    left = 0.0
    for month, usd in _bought(bill, sizes):
        paid[month] += usd
        for renewed in range(month + bill.life_months, last, bill.life_months):
            paid[renewed] += usd * (1.0 - bill.residual_fraction)
        left += usd * _value_left(bill, last - month)
    found = []
    for month in range(last + 1):
        running = bill.running_usd_per_month * sizes[month - 1] if month else 0.0
        value = left if month == last else 0.0
        today = (paid[month] + running - value) * (1.0 + rate) ** -month
        flow = Flow(month=month, capital_usd=paid[month], running_usd=running, value_left_usd=value, present_usd=today)
        found.append(flow)
    return found


def _bought(bill: Bill, sizes: Sequence[float]) -> Iterator[tuple[int, float]]:
    """(month at whose end, USD) of today's deployment and of each extension."""
    held = 0.0
    for month, size in enumerate(sizes):
        if size > held and bill.capital_usd:
            yield month, bill.capital_usd * (size - held)
        held = max(held, size)


def _value_left(bill: Bill, held_months: int) -> float:
    """Of one dollar bought so long ago and renewed at each end of its life: what its annuity still has to recover."""
    age = (held_months - 1) % bill.life_months + 1
    remaining = bill.life_months - age
    annuity = annuity_usd_per_month(1.0, bill.life_months, bill.residual_fraction, bill.discount_fraction)
    residual = bill.residual_fraction * (1.0 + monthly_rate(bill.discount_fraction)) ** -remaining
    return present_value(annuity, remaining, bill.discount_fraction) + residual


def net_present_usd(found: Sequence[Flow]) -> float:
    """What all the cash is worth today."""
    return math.fsum(flow.present_usd for flow in found)


# --- where two ways meet ----------------------------------------------------------------------------------------


def break_even_month(bought: Bill, other_usd_per_month: float) -> int | None:
    """The first month after which buying has cost less, discounted; None: not within the hardware's life."""
    rate, spent, other = monthly_rate(bought.discount_fraction), bought.capital_usd, 0.0
    if bought.running_usd_per_month >= other_usd_per_month:
        return None
    for month in range(1, bought.life_months + 1):
        spent += bought.running_usd_per_month * (1.0 + rate) ** -month
        other += other_usd_per_month * (1.0 + rate) ** -month
        if spent <= other:
            return month
    return None


def break_even_share(own_usd_per_month: float, rent_usd_per_month: float) -> float:
    """Share of the hours of a month from which owning costs less than renting only those hours; over 1: never."""
    return own_usd_per_month / rent_usd_per_month if rent_usd_per_month > 0 else math.inf


def break_even_tokens(usd_per_month: float, usd_per_mtok: float) -> float:
    """Tokens a month at which a fixed bill equals a price per million tokens; infinite: a free one is never beaten."""
    return usd_per_month / usd_per_mtok * 1e6 if usd_per_mtok > 0 else math.inf


# --- growth -----------------------------------------------------------------------------------------------------


def sizes_under_growth(carrying: int, spares: int, growth_fraction_per_year: float, months: int) -> list[float]:
    """Replicas of each month against today's: what the peak then takes, whole replicas, spares beside them."""
    today = carrying + spares
    grown = (carrying * (1.0 + growth_fraction_per_year) ** (month / 12.0) for month in range(months))
    return [(max(math.ceil(n - 1e-9), 1) + spares) / today for n in grown]


@dataclass(frozen=True, kw_only=True, slots=True)
class Growth:
    """All of the hardware today, or more of it when the traffic comes; both worth today."""

    now_usd: float
    later_usd: float


def growth(bill: Bill, sizes: Sequence[float]) -> Growth:
    """The price of hardware is taken as it is today in both."""
    most = [max(sizes, default=1.0)] * len(sizes)
    now, later = (net_present_usd(flows(bill, each)) for each in (most, sizes))
    return Growth(now_usd=now, later_usd=later)


# --- from the chip to the token ---------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Use:
    """How much of what is paid serves: shares of the paid, each of the one before."""

    instances_fraction: float  # of the paid accelerators: in replicas
    carrying_fraction: float  # of the replicas: not spare
    busy_fraction: float  # of what carries: the mean load


def waterfall(parts: Sequence[Part], use: Use, mtok_per_hour: float) -> list[tuple[str, float]]:
    """(name, USD per million tokens): each part at full use, then what is paid and does not serve; sums to the load's.

    Nothing served: no steps, for a token then has no price.
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


def together(ratios: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """90 % factors (low, high) of independent causes on one figure: their logarithms add in squares."""
    low, high = (math.sqrt(math.fsum(math.log(max(r[side], 1e-9)) ** 2 for r in ratios)) for side in (0, 1))
    return math.exp(-low), math.exp(high)
