"""Cents that add up, break-even points, cost per token, and combined intervals. The plans room has costs over time."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_FLOOR, ROUND_HALF_EVEN, Decimal

from advisor.engine.cost.hourly import total_usd_per_hour
from advisor.engine.terms import Part

CENT = Decimal("0.01")


def cents(usd: float) -> Decimal:
    """Rounded to cents, half to even."""
    return Decimal(repr(float(usd))).quantize(CENT, rounding=ROUND_HALF_EVEN)


def in_cents(amounts: Sequence[float], total_usd: float | None = None) -> list[Decimal]:
    """Amounts in cents that add up to their rounded sum: missing cents go to the largest remainders.

    total_usd: the same sum, computed another way and shown beside them: half a cent may be rounded differently there.
    """
    exact = [Decimal(repr(float(usd))) for usd in amounts]
    rounded = [usd.quantize(CENT, rounding=ROUND_FLOOR) for usd in exact]
    missing_cents = int(
        (cents(math.fsum(amounts) if total_usd is None else total_usd) - sum(rounded, Decimal(0))) / CENT
    )
    order = sorted(range(len(exact)), key=lambda i: (rounded[i] - exact[i], i))
    for i in order[: max(missing_cents, 0)]:
        rounded[i] += CENT
    return rounded


# --- break-even points ------------------------------------------------------------------------------------------


def break_even_share(own_usd_per_month: float, rent_usd_per_month: float) -> float:
    """Fraction of the hours of a month above which owning costs less than renting for those hours; above 1: never."""
    return own_usd_per_month / rent_usd_per_month if rent_usd_per_month > 0 else math.inf


def break_even_tokens(usd_per_month: float, usd_per_mtok: float) -> float:
    """Tokens per month at which a fixed cost equals a price per million tokens; infinite if that price is 0."""
    return usd_per_month / usd_per_mtok * 1e6 if usd_per_mtok > 0 else math.inf


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
