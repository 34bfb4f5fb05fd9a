"""Hourly costs of renting or owning, as named parts that add up, and power draw. tco.py covers costs over time."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.engine.spec import HOURS_PER_MONTH, Part

Array = NDArray[np.float64]
Amount = Any  # a number or an array that broadcasts with the candidates
HOURS_PER_YEAR = 8760.0
JOULES_PER_KWH = 3.6e6
METERED = ("electricity", "cooling")  # parts proportional to the power drawn


@dataclass(frozen=True, kw_only=True, slots=True)
class Assumptions:
    """Cost, power and reliability defaults; each has a catalog row with its source and is shown in the answer."""

    life_years: float
    residual_fraction: float
    discount_fraction: float  # per year
    pue: float
    usd_per_kwh: float
    kgco2e_per_kwh: float
    maintenance_fraction: float  # of the purchase, per year
    network_fraction: float  # added to the purchase
    colocation_usd_per_kw_month: float
    staff_usd_per_accelerator_year: float
    idle_fraction: float  # idle power as a fraction of TDP, if the chip's idle power is unknown
    host_watts_per_accelerator: float  # per module in a large server
    small_host_watts: float  # of a workstation for up to four cards, without the cards
    small_host_usd: float
    card_host_watts: float  # host power per PCIe card, if the catalog has no figure for its server
    socket_host_watts: float  # host power per CPU that serves without accelerators
    months: float  # horizon
    card_server_usd: float = (
        0.0  # a rack server for passively cooled cards, without them; these three: 0 in old snapshots
    )
    card_server_usd_per_card: float = 0.0
    card_server_watts_per_card: float = 0.0  # added to small_host_watts
    storage_fraction: float = 0.0  # added to the purchase
    spare_fraction: float = 0.0  # added to the purchase: spare parts
    accelerator_fraction: float = 0.65  # of the price of a server: its accelerators
    prefill_power_fraction: float = 1.0  # of the power limit, during prefill
    decode_power_fraction: float = 1.0  # of the power limit, during decode
    power_cap_fraction: float = 1.0  # power limit of the chips as a fraction of TDP
    power_given: bool = False  # the planner set the prefill and decode fractions; else they follow from the step ledger
    waiting_power_fraction: float = 0.0  # these four: fractions of (limit - idle), see Draw
    kernel_power_fraction: float = 1.0
    memory_power_fraction: float = 0.0
    compute_power_fraction: float = 0.0
    spot_lost_fraction: float = 0.0  # of paid spot hours, lost to interruptions and restarts
    cloud_addon_fraction: float = 0.0  # of the instances' rent, for other cloud services
    egress_usd_per_byte: float = 0.0
    egress_bytes_per_output_token: float = 0.0
    storage_usd_per_byte_month: float = 0.0
    services_everywhere: bool = False  # the planner set the two prices: they apply to every provider
    provider_egress_usd_per_byte: Mapping[str, float] = field(default_factory=dict)  # by provider
    provider_storage_usd_per_byte_month: Mapping[str, float] = field(default_factory=dict)

    @staticmethod
    def of(values: Mapping[str, float]) -> "Assumptions":
        """From a mapping with exactly these keys; a missing or unknown one is an error."""
        return Assumptions(**values)  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True, slots=True)
class Licence:
    """A software license or support contract, priced per accelerator and year."""

    name: str
    usd_per_accelerator_year: float
    source: str
    vendor: str = ""  # accelerator vendor; empty: any
    framework: str = ""  # empty: any

    def covers(self, vendor: str, framework: str) -> bool:
        """Whether it applies to this vendor's chips under this framework."""
        return self.vendor in ("", vendor) and self.framework in ("", framework)


def licence_usd_per_hour(licences: Sequence[Licence], vendor: str, framework: str) -> float:
    """USD per hour and chip for all licenses that apply to this vendor and framework."""
    return sum(li.usd_per_accelerator_year for li in licences if li.covers(vendor, framework)) / HOURS_PER_YEAR


def monthly_rate(discount_fraction: float) -> float:
    """Monthly rate that compounds to this annual rate."""
    return math.expm1(math.log1p(discount_fraction) / 12.0)  # accurate for rates near zero


def present_value(usd_per_month: float, months: float, discount_fraction: float) -> float:
    """Present value, USD, of equal payments at the end of each month."""
    rate = monthly_rate(discount_fraction)
    return usd_per_month * (months if rate == 0 else -math.expm1(-months * math.log1p(rate)) / rate)


def total_usd_per_hour(parts: Sequence[Part]) -> float:
    """Sum of all parts, USD per hour, without rounding error."""
    return math.fsum(part.usd_per_hour for part in parts)


def capital_usd(purchase_usd: float, a: Assumptions) -> float:
    """Purchase price plus its share of network, storage and spares, USD."""
    return purchase_usd * (1.0 + a.network_fraction + a.storage_fraction + a.spare_fraction)


def life_months(a: Assumptions) -> int:
    """Depreciation period of a purchase in whole months, at least one."""
    return max(round(a.life_years * 12.0), 1)


def annuity_usd_per_month(capital: float, months: int, residual_fraction: float, discount_fraction: float) -> float:
    """Equal monthly payments, USD, that recover the capital less its discounted residual at the cost of capital."""
    residual = capital * residual_fraction * (1.0 + monthly_rate(discount_fraction)) ** -months
    return (capital - residual) / present_value(1.0, months, discount_fraction)


def own_parts(
    purchase_usd: float, accelerators: int, watts: float, a: Assumptions, accelerators_usd: float | None = None
) -> tuple[Part, ...]:
    """All-in hourly cost of a purchased server that runs around the clock, by cost item.

    Depreciation is straight-line to the residual over life_years; the cost of capital is the annuity less depreciation.
    Wholesale colocation is quoted per kW-month of contracted IT load without metered power (CBRE North America Data
    Center Trends, average asking rates), so electricity is added: `watts` of the server at full load, and cooling
    (PUE). `accelerators_usd`: price of the accelerators in the server; None: accelerator_fraction of the purchase.
    """
    capital = capital_usd(purchase_usd, a)
    months, depreciated = life_months(a), (1.0 - a.residual_fraction) / life_months(a)
    annuity = annuity_usd_per_month(capital, months, a.residual_fraction, a.discount_fraction)
    chips_usd = purchase_usd * a.accelerator_fraction if accelerators_usd is None else accelerators_usd
    kw, kwh_usd = watts / 1000.0, a.usd_per_kwh * HOURS_PER_MONTH
    monthly = (
        ("accelerators", chips_usd * depreciated, "capital"),
        ("host", (purchase_usd - chips_usd) * depreciated, "capital"),
        ("network", purchase_usd * a.network_fraction * depreciated, "capital"),
        ("storage", purchase_usd * a.storage_fraction * depreciated, "capital"),
        ("spares", purchase_usd * a.spare_fraction * depreciated, "capital"),
        ("cost of capital", annuity - capital * depreciated, "capital"),
        ("colocation", a.colocation_usd_per_kw_month * kw, "running"),
        ("electricity", kw * kwh_usd, "running"),
        ("cooling", kw * (a.pue - 1.0) * kwh_usd, "running"),
        ("maintenance and support", purchase_usd * a.maintenance_fraction / 12.0, "running"),
        ("staff", a.staff_usd_per_accelerator_year * accelerators / 12.0, "running"),
    )
    return tuple(Part(name=name, usd_per_hour=usd / HOURS_PER_MONTH, group=group) for name, usd, group in monthly)


def rent_parts(usd_per_hour: float, term: str, a: Assumptions) -> tuple[Part, ...]:
    """Hourly cost of a rented instance: its rate, spot interruptions, further cloud services.

    The lost fraction of spot hours is paid but serves nothing, so a productive hour costs rate / (1 - lost).
    """
    lost_usd = usd_per_hour * (1.0 / (1.0 - a.spot_lost_fraction) - 1.0) if term == "spot" else 0.0
    costs = (
        ("instances", usd_per_hour, "rent"),
        ("interruptions", lost_usd, "rent"),
        ("cloud services", usd_per_hour * a.cloud_addon_fraction, "services"),
    )
    return tuple(
        Part(name=name, usd_per_hour=usd, group=group) for name, usd, group in costs if usd or name == "instances"
    )


def hour_usd(each_usd: Amount, instances: Amount, paid_fraction: Amount = 1.0, run_fraction: Amount = 1.0) -> Amount:
    """Mean USD per hour of `instances` that cost `each_usd` per hour.

    paid_fraction: of the peak instance-hours of a week that are paid when instances are released in quiet hours.
    run_fraction: of all hours that a batch runs, if its instances are released after each run.
    """
    return each_usd * instances * paid_fraction * run_fraction


def at_load(
    parts: Sequence[Part],
    instances: float,
    power_fraction: float,
    paid_fraction: float = 1.0,
    run_fraction: float = 1.0,
) -> tuple[Part, ...]:
    """Parts of one instance scaled to several, with metered power at this fraction of the full draw."""
    each_usd = (p.usd_per_hour * (power_fraction if p.name in METERED else 1.0) for p in parts)
    return tuple(
        replace(p, usd_per_hour=float(hour_usd(usd, instances, paid_fraction, run_fraction)))
        for p, usd in zip(parts, each_usd, strict=True)
    )


def services(output_tokens_per_s: float, stored_bytes: float, provider: str, a: Assumptions) -> tuple[Part, ...]:
    """Egress of the outputs and storage of the weights for rented instances, if the provider's prices are known."""
    egress, storage = service_usd(provider, a)
    egress_usd = output_tokens_per_s * 3600.0 * a.egress_bytes_per_output_token * (egress or 0.0)
    storage_usd = stored_bytes * (storage or 0.0) / HOURS_PER_MONTH
    costs = (("egress", egress_usd), ("storage of weights", storage_usd))
    return tuple(Part(name=name, usd_per_hour=usd, group="services") for name, usd in costs if usd)


def service_usd(provider: str, a: Assumptions) -> tuple[float | None, float | None]:
    """(egress, USD per byte; storage, USD per byte and month) of a provider; None: unknown price."""
    if a.services_everywhere:
        return a.egress_usd_per_byte, a.storage_usd_per_byte_month
    return a.provider_egress_usd_per_byte.get(provider), a.provider_storage_usd_per_byte_month.get(provider)


@dataclass(frozen=True, kw_only=True, slots=True)
class Draw:
    """Power above idle as fractions of (limit - idle)."""

    waiting_fraction: float  # clocks up, no kernel running
    kernel_fraction: float  # any kernel
    memory_fraction: float  # added by memory traffic at its achieved rate
    compute_fraction: float  # added by arithmetic at its sustained rate

    @staticmethod
    def of(a: Assumptions, limit_watts: float, idle_watts: float) -> "Draw":
        """Draw of a chip at this power limit.

        A power cap does not reduce a draw below the limit, so the fractions of the smaller (limit - idle) are larger.
        """
        idle = idle_watts if math.isfinite(idle_watts) else limit_watts * a.idle_fraction
        capped = a.power_cap_fraction < 1.0 and limit_watts > idle
        ratio = (limit_watts / a.power_cap_fraction - idle) / (limit_watts - idle) if capped else 1.0
        return Draw(
            waiting_fraction=min(a.waiting_power_fraction * ratio, 1.0),
            kernel_fraction=a.kernel_power_fraction * ratio,
            memory_fraction=a.memory_power_fraction * ratio,
            compute_fraction=a.compute_power_fraction * ratio,
        )


def kernel_fraction(draw: Draw, memory: Array | float, compute: Array | float) -> Array:
    """Power of a kernel as a fraction of (limit - idle), at most 1.

    `memory`, `compute`: its achieved fractions of the memory and compute rooflines.
    """
    drawn = draw.kernel_fraction + draw.memory_fraction * np.asarray(memory) + draw.compute_fraction * compute
    return np.asarray(np.minimum(drawn, 1.0))


def capped_speed_fraction(cap_fraction: float, idle_fraction: float) -> float:
    """Fraction of the compute rate left under a power cap.

    Dynamic power scales with clock x voltage^2 and voltage with the clock, so the clock scales with the cube root of
    power. Memory bandwidth is unaffected. A rule of physics, not a measurement of this chip.
    """
    dynamic = max((cap_fraction - idle_fraction) / (1.0 - idle_fraction), 0.0)
    return float(dynamic ** (1.0 / 3.0))


def watts_per_chip(
    tdp: Array, idle: Array, busy_fraction: Array, a: Assumptions, host: Array | None = None, full: float = 1.0
) -> Array:
    """Mean watts of one chip with its share of the `host`, before PUE; NaN if its TDP is not published.

    `full`: fraction of TDP that a busy chip draws.
    """
    floor = np.where(np.isfinite(idle), idle, tdp * a.idle_fraction)
    share = a.host_watts_per_accelerator if host is None else host
    return np.asarray(floor + (np.maximum(tdp * full, floor) - floor) * np.clip(busy_fraction, 0.0, 1.0) + share)


def usd_per_mtok(usd_per_hour: Array, tokens_per_s: Array | float) -> Array:
    """USD per million tokens at this rate; infinite if nothing is served."""
    rate = np.asarray(tokens_per_s, dtype=float)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(rate > 0, usd_per_hour / (rate * 3600.0) * 1e6, np.inf)
