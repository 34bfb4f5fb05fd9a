"""Dollars, watts and carbon of a deployment: rent by the hour, or own over its life."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
HOURS_PER_MONTH = 730.0
HOURS_PER_YEAR = 8760.0
JOULES_PER_KWH = 3.6e6


@dataclass(frozen=True, kw_only=True, slots=True)
class Assumptions:
    """The visible defaults that turn a purchase into dollars an hour; each has a catalog row with its source."""

    life_years: float
    residual_fraction: float
    discount_fraction: float  # a year
    pue: float
    usd_per_kwh: float
    kgco2e_per_kwh: float
    maintenance_fraction: float  # of the purchase, a year
    network_fraction: float  # added to the purchase
    colocation_usd_per_kw_month: float
    staff_usd_per_accelerator_year: float
    idle_fraction: float  # idle power as a share of TDP where the chip's own is unknown
    host_watts_per_accelerator: float
    small_host_watts: float  # of a computer for up to four cards, without them
    small_host_usd: float
    months: float  # horizon

    @staticmethod
    def of(values: Mapping[str, float]) -> "Assumptions":
        """From a mapping with exactly these keys; a missing or unknown one is an error."""
        return Assumptions(**values)


@dataclass(frozen=True, kw_only=True, slots=True)
class Licence:
    """Software or support that is paid for each chip in an instance, by the year."""

    name: str
    usd_per_accelerator_year: float
    source: str
    vendor: str = ""  # whose chips it is for; empty: everyone's
    framework: str = ""  # what it is for; empty: whatever runs

    def covers(self, vendor: str, framework: str) -> bool:
        return self.vendor in ("", vendor) and self.framework in ("", framework)


def licence_usd_per_hour(licences: Sequence[Licence], vendor: str, framework: str) -> float:
    """All licences of one chip of this vendor under this framework, USD an hour."""
    return sum(li.usd_per_accelerator_year for li in licences if li.covers(vendor, framework)) / HOURS_PER_YEAR


def monthly_rate(discount_fraction: float) -> float:
    return float((1.0 + discount_fraction) ** (1.0 / 12.0)) - 1.0


def present_value(usd_per_month: float, months: float, discount_fraction: float) -> float:
    """Value today of equal payments at the end of each month."""
    rate = monthly_rate(discount_fraction)
    return usd_per_month * (months if rate == 0 else float(1.0 - (1.0 + rate) ** -months) / rate)


def own_usd_per_hour(purchase_usd: float, accelerators: int, watts: float, a: Assumptions) -> float:
    """All-in hourly cost of a bought host running around the clock: capital, space, electricity, upkeep, people.

    The annuity recovers the purchase less the discounted residual over life_years. Wholesale colocation is quoted per
    kW-month of contracted IT load without metered power (CBRE North America Data Center Trends, average asking rates),
    so electricity is added: `watts` of the host at full load, with cooling (PUE), at the price of a kWh.
    """
    capital = purchase_usd * (1.0 + a.network_fraction)
    rate, months = monthly_rate(a.discount_fraction), a.life_years * 12.0
    recovered = capital - capital * a.residual_fraction * (1.0 + rate) ** -months
    annuity = recovered / months if rate == 0 else recovered * rate / (1.0 - (1.0 + rate) ** -months)
    colocation = a.colocation_usd_per_kw_month * watts / 1000.0
    electricity = watts / 1000.0 * a.pue * a.usd_per_kwh * HOURS_PER_MONTH
    upkeep = purchase_usd * a.maintenance_fraction / 12.0 + a.staff_usd_per_accelerator_year * accelerators / 12.0
    return float(annuity + colocation + electricity + upkeep) / HOURS_PER_MONTH


def watts_per_chip(tdp: Array, idle: Array, busy_fraction: Array, a: Assumptions, host: Array | None = None) -> Array:
    """Mean draw of one chip with its share of the `host`, before PUE; NaN where no TDP is published."""
    floor = np.where(np.isfinite(idle), idle, tdp * a.idle_fraction)
    share = a.host_watts_per_accelerator if host is None else host
    return floor + (tdp - floor) * np.clip(busy_fraction, 0.0, 1.0) + share


def usd_per_mtok(usd_per_hour: Array, tokens_per_s: Array | float) -> Array:
    """Dollars per million tokens at this rate; infinite when nothing is served."""
    rate = np.asarray(tokens_per_s, dtype=float)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(rate > 0, usd_per_hour / (rate * 3600.0) * 1e6, np.inf)
