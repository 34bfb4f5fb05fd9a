"""Dollars, watts and carbon of an hour: rent, or own over its life, in named parts that add up. tco.py adds time."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.engine.spec import Part

Array = NDArray[np.float64]
Amount = Any  # a number or an array that broadcasts with the candidates
HOURS_PER_MONTH = 730.0
HOURS_PER_YEAR = 8760.0
JOULES_PER_KWH = 3.6e6
METERED = ("electricity", "cooling")  # parts that follow the load


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
    host_watts_per_accelerator: float  # of a module in a large server
    small_host_watts: float  # of a computer for up to four cards, without them
    small_host_usd: float
    card_host_watts: float  # share of the host of one card on PCI Express, where no unit says
    socket_host_watts: float  # what stands around one processor that serves by itself
    months: float  # horizon
    storage_fraction: float = 0.0  # added to the purchase
    spare_fraction: float = 0.0  # added to the purchase: what stands by for what breaks
    accelerator_fraction: float = 0.65  # of the price of a server: its accelerators
    prefill_power_fraction: float = 1.0  # of the power limit, drawn while prompts are read
    decode_power_fraction: float = 1.0  # of the power limit, drawn while answers are written
    power_cap_fraction: float = 1.0  # of TDP: the limit that the chips are set to
    power_given: bool = False  # those two are the planner's own, instead of what the step ledger says
    waiting_power_fraction: float = 0.0  # these four: shares of (limit - idle), see Draw
    kernel_power_fraction: float = 1.0
    memory_power_fraction: float = 0.0
    compute_power_fraction: float = 0.0
    spot_lost_fraction: float = 0.0  # of paid spot hours, lost to interruptions and to starting again
    cloud_addon_fraction: float = 0.0  # of the instances' rent, for what comes beside them
    egress_usd_per_byte: float = 0.0
    egress_bytes_per_output_token: float = 0.0
    storage_usd_per_byte_month: float = 0.0
    services_everywhere: bool = False  # those two are the planner's own: charged by every provider
    provider_egress_usd_per_byte: Mapping[str, float] = field(default_factory=dict)  # by provider
    provider_storage_usd_per_byte_month: Mapping[str, float] = field(default_factory=dict)

    @staticmethod
    def of(values: Mapping[str, float]) -> "Assumptions":
        """From a mapping with exactly these keys; a missing or unknown one is an error."""
        return Assumptions(**values)  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True, slots=True)
class Licence:
    """Software or support that is paid for each chip in an instance, by the year."""

    name: str
    usd_per_accelerator_year: float
    source: str
    vendor: str = ""  # whose chips it is for; empty: everyone's
    framework: str = ""  # what it is for; empty: whatever runs

    def covers(self, vendor: str, framework: str) -> bool:
        """Whether it is paid for a chip of this vendor under this framework."""
        return self.vendor in ("", vendor) and self.framework in ("", framework)


def licence_usd_per_hour(licences: Sequence[Licence], vendor: str, framework: str) -> float:
    """All licences of one chip of this vendor under this framework, USD an hour."""
    return sum(li.usd_per_accelerator_year for li in licences if li.covers(vendor, framework)) / HOURS_PER_YEAR


def monthly_rate(discount_fraction: float) -> float:
    """The rate that compounds over twelve months to this one a year."""
    return math.expm1(math.log1p(discount_fraction) / 12.0)  # exact where the discount is almost nothing


def present_value(usd_per_month: float, months: float, discount_fraction: float) -> float:
    """Value today of equal payments at the end of each month."""
    rate = monthly_rate(discount_fraction)
    return usd_per_month * (months if rate == 0 else -math.expm1(-months * math.log1p(rate)) / rate)


def total_usd_per_hour(parts: Sequence[Part]) -> float:
    """All parts of an hour together, without a loss by rounding."""
    return math.fsum(part.usd_per_hour for part in parts)


def capital_usd(purchase_usd: float, a: Assumptions) -> float:
    """The purchase with its share of network, storage and spares."""
    return purchase_usd * (1.0 + a.network_fraction + a.storage_fraction + a.spare_fraction)


def life_months(a: Assumptions) -> int:
    """Whole months over which a purchase is written off, at least one."""
    return max(round(a.life_years * 12.0), 1)


def annuity_usd_per_month(capital: float, months: int, residual_fraction: float, discount_fraction: float) -> float:
    """Equal payments over the life that recover the capital less its discounted residual, at the cost of capital."""
    residual = capital * residual_fraction * (1.0 + monthly_rate(discount_fraction)) ** -months
    return (capital - residual) / present_value(1.0, months, discount_fraction)


def own_parts(
    purchase_usd: float, accelerators: int, watts: float, a: Assumptions, accelerators_usd: float | None = None
) -> tuple[Part, ...]:
    """All-in hourly cost of a bought host running around the clock, by what it pays for.

    Depreciation is straight to the residual over life_years; the cost of capital is what the annuity asks beyond it.
    Wholesale colocation is quoted per kW-month of contracted IT load without metered power (CBRE North America Data
    Center Trends, average asking rates), so electricity is added: `watts` of the host at full load, and what cooling
    takes beside it (PUE), at the price of a kWh. `accelerators_usd` within the purchase; None: the usual share.
    """
    capital = capital_usd(purchase_usd, a)
    months, depreciated = life_months(a), (1.0 - a.residual_fraction) / life_months(a)
    annuity = annuity_usd_per_month(capital, months, a.residual_fraction, a.discount_fraction)
    chips = purchase_usd * a.accelerator_fraction if accelerators_usd is None else accelerators_usd
    kw, kwh_usd = watts / 1000.0, a.usd_per_kwh * HOURS_PER_MONTH
    monthly = (
        ("accelerators", chips * depreciated, "capital"),
        ("host", (purchase_usd - chips) * depreciated, "capital"),
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
    """An hour of a rented instance: its rate, what spot loses to interruptions, what is bought beside it.

    Of spot hours the lost share is paid and serves nothing, so an hour that serves costs rate / (1 - lost).
    """
    lost = usd_per_hour * (1.0 / (1.0 - a.spot_lost_fraction) - 1.0) if term == "spot" else 0.0
    found = (
        ("instances", usd_per_hour, "rent"),
        ("interruptions", lost, "rent"),
        ("cloud services", usd_per_hour * a.cloud_addon_fraction, "services"),
    )
    return tuple(
        Part(name=name, usd_per_hour=usd, group=group) for name, usd, group in found if usd or name == "instances"
    )


def hour_usd(each_usd: Amount, instances: Amount, paid_fraction: Amount = 1.0, run_fraction: Amount = 1.0) -> Amount:
    """Mean cost of an hour: `each_usd` for each instance.

    paid_fraction: of the hours of a week that the instances for the peak are paid, where quiet hours give some back.
    run_fraction: of all hours that a batch takes, where its instances are given back after each run.
    """
    return each_usd * instances * paid_fraction * run_fraction


def at_load(
    parts: Sequence[Part],
    instances: float,
    power_fraction: float,
    paid_fraction: float = 1.0,
    run_fraction: float = 1.0,
) -> tuple[Part, ...]:
    """Parts of one instance as those of several, their metered power at this share of the full draw."""
    each_usd = (p.usd_per_hour * (power_fraction if p.name in METERED else 1.0) for p in parts)
    return tuple(
        replace(p, usd_per_hour=float(hour_usd(usd, instances, paid_fraction, run_fraction)))
        for p, usd in zip(parts, each_usd, strict=True)
    )


def services(output_tokens_per_s: float, stored_bytes: float, provider: str, a: Assumptions) -> tuple[Part, ...]:
    """Egress of the answers and storage of the weights, beside rented instances of providers whose prices are known."""
    egress, storage = service_usd(provider, a)
    sent = output_tokens_per_s * 3600.0 * a.egress_bytes_per_output_token * (egress or 0.0)
    kept = stored_bytes * (storage or 0.0) / HOURS_PER_MONTH
    found = (("egress", sent), ("storage of weights", kept))
    return tuple(Part(name=name, usd_per_hour=usd, group="services") for name, usd in found if usd)


def service_usd(provider: str, a: Assumptions) -> tuple[float | None, float | None]:
    """(egress, USD per byte; storage, USD per byte and month) of a provider; None: its price is not known."""
    if a.services_everywhere:
        return a.egress_usd_per_byte, a.storage_usd_per_byte_month
    return a.provider_egress_usd_per_byte.get(provider), a.provider_storage_usd_per_byte_month.get(provider)


@dataclass(frozen=True, kw_only=True, slots=True)
class Draw:
    """Power above idle as shares of (limit - idle): of a chip that waits, of any kernel, and of what it uses."""

    waiting_fraction: float  # clocks up, nothing running
    kernel_fraction: float  # any kernel
    memory_fraction: float  # added by memory at the rate it reaches
    compute_fraction: float  # added by arithmetic at the rate it sustains

    @staticmethod
    def of(a: Assumptions, limit_watts: float, idle_watts: float) -> "Draw":
        """Of a chip at this limit: a cap takes nothing from what draws less, so shares of what it leaves are larger."""
        idle = idle_watts if math.isfinite(idle_watts) else limit_watts * a.idle_fraction
        capped = a.power_cap_fraction < 1.0 and limit_watts > idle
        wider = (limit_watts / a.power_cap_fraction - idle) / (limit_watts - idle) if capped else 1.0
        return Draw(
            waiting_fraction=min(a.waiting_power_fraction * wider, 1.0),
            kernel_fraction=a.kernel_power_fraction * wider,
            memory_fraction=a.memory_power_fraction * wider,
            compute_fraction=a.compute_power_fraction * wider,
        )


def kernel_fraction(draw: Draw, memory: Array | float, compute: Array | float) -> Array:
    """Share of (limit - idle) of a kernel at these shares of its roofs; never over the limit."""
    drawn = draw.kernel_fraction + draw.memory_fraction * np.asarray(memory) + draw.compute_fraction * compute
    return np.asarray(np.minimum(drawn, 1.0))


def capped_speed_fraction(cap_fraction: float, idle_fraction: float) -> float:
    """Arithmetic rate left under a power cap: dynamic power goes with clock x voltage^2, and voltage with the clock,
    so the clock goes with its cube root. Memory keeps its rate. A rule of physics, not a measurement of this chip."""
    dynamic = max((cap_fraction - idle_fraction) / (1.0 - idle_fraction), 0.0)
    return float(dynamic ** (1.0 / 3.0))


def watts_per_chip(
    tdp: Array, idle: Array, busy_fraction: Array, a: Assumptions, host: Array | None = None, full: float = 1.0
) -> Array:
    """Mean draw of one chip with its share of the `host`, before PUE; NaN where no TDP is published.

    `full`: the share of TDP that a busy chip draws.
    """
    floor = np.where(np.isfinite(idle), idle, tdp * a.idle_fraction)
    share = a.host_watts_per_accelerator if host is None else host
    return np.asarray(floor + (np.maximum(tdp * full, floor) - floor) * np.clip(busy_fraction, 0.0, 1.0) + share)


def usd_per_mtok(usd_per_hour: Array, tokens_per_s: Array | float) -> Array:
    """Dollars per million tokens at this rate; infinite when nothing is served."""
    rate = np.asarray(tokens_per_s, dtype=float)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(rate > 0, usd_per_hour / (rate * 3600.0) * 1e6, np.inf)
