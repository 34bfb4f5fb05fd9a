"""Prices over time: the horizon, discounting, price paths, and what hardware is worth when it leaves service."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
FIRST_YEAR_MONTHS = 12  # hardware sold earlier brings what it brings after a year


@dataclass(frozen=True, kw_only=True, slots=True)
class Prices:
    """Discounting, and prices by month over today's."""

    months: int  # of the horizon
    discount_fraction: float  # per year
    rent: tuple[float, ...] = ()  # ratio of each month; empty: constant
    energy: tuple[float, ...] = ()
    hardware: tuple[float, ...] = ()
    resale: tuple[float, ...] = ()  # ratio to the resale curve of a sale at the end of each month 0 .. months
    exit_fraction: float = 0.0  # of a commitment's payments after the horizon that can be recovered

    @property
    def monthly_rate(self) -> float:
        """Monthly discount rate that compounds to the annual rate."""
        return math.expm1(math.log1p(self.discount_fraction) / 12.0)

    def present(self, months: NDArray[np.int_] | Sequence[int] | int) -> Array:
        """Present value of 1 USD paid at the end of each of these months; 0 is today."""
        return np.asarray((1.0 + self.monthly_rate) ** -np.asarray(months, dtype=float))

    @property
    def annuity(self) -> float:
        """Present value of 1 USD at the end of each month of the horizon."""
        return float(self.present(np.arange(1, self.months + 1)).sum())

    def path(self, name: str, length: int | None = None) -> Array:
        """Ratios of one price by month."""
        values = getattr(self, name)
        count = self.months if length is None else length
        return np.asarray(values, dtype=float) if len(values) else np.ones(count)


@lru_cache(maxsize=1024)
def resale_by_month(
    by_year: tuple[float, ...], months: int, superseded_ratio: float = 1.0, cost_fraction: float = 0.0
) -> tuple[float, ...]:
    """Market value after 0 .. months in service as a fraction of the purchase price, less the cost of selling.

    by_year: fractions after 1, 2, ... years; between them the value falls at a constant rate, and after the last at the
    rate of the last year. Within the first year it is that after one year: used hardware sells below the new price from
    its first day on, and nobody publishes how far. superseded_ratio: of a chip that a newer generation has replaced.
    """
    known = [1.0, *by_year]
    values = []
    for month in range(months + 1):
        age = max(month, FIRST_YEAR_MONTHS)
        year, part = divmod(age / 12.0, 1.0)
        low = min(int(year), len(known) - 2)
        first, second = known[low], known[low + 1]
        rate = second / first if first > 0 else 0.0
        value = first * rate ** (year - low + part) if rate > 0 else (first if age == 12 * low else 0.0)
        values.append(value * superseded_ratio * (1.0 - cost_fraction))
    return tuple(values)


def resale_at_constant_rate(
    fraction: float, life_months: int, months: int, cost_fraction: float = 0.0
) -> tuple[float, ...]:
    """The same for a value that falls at a constant rate to `fraction` at the end of the depreciation period."""
    return tuple(
        fraction ** (max(month, min(FIRST_YEAR_MONTHS, life_months)) / life_months) * (1.0 - cost_fraction)
        for month in range(months + 1)
    )
