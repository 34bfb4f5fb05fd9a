"""Hourly costs of renting or owning, as named parts that add up, and power draw. tco.py covers costs over time."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.engine.cost.prices import Prices, resale_at_constant_rate, resale_by_month
from advisor.engine.terms import HOURS_PER_MONTH, Part

Array = NDArray[np.float64]
Amount = Any  # a number or an array that broadcasts with the candidates
HOURS_PER_YEAR = 8760.0
JOULES_PER_KWH = 3.6e6
METERED = ("electricity", "cooling")  # parts proportional to the power drawn
AFTER, FINANCING = "commitment after the horizon", "cost of capital"  # names of parts; so are these two
STAFF_PART, TEAM = "staff", "minimum team"
# parts that do not follow the price of the machines
NOT_PRICED = (STAFF_PART, TEAM, *METERED, "colocation", "licences", "egress", "storage of weights")
TERM_MONTHS = {"reserved_1y": 12, "reserved_3y": 36}


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
    card_server_usd: float = 0.0  # a rack server for passively cooled cards, without them
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
    spot_wait_s: float = 0.0  # for capacity, before a run on spot instances starts
    cloud_addon_fraction: float = 0.0  # of the instances' rent, for other cloud services
    egress_usd_per_byte: float = 0.0
    egress_bytes_per_output_token: float = 0.0
    storage_usd_per_byte_month: float = 0.0
    services_everywhere: bool = False  # the planner set the two prices: they apply to every provider
    provider_egress_usd_per_byte: Mapping[str, float] = field(default_factory=dict)  # by provider
    provider_storage_usd_per_byte_month: Mapping[str, float] = field(default_factory=dict)
    resale_by_year: tuple[float, ...] = ()  # market value after 1, 2, ... years; empty: falls to residual_fraction
    superseded_ratio: float = 1.0  # of that value, for a chip that a newer generation has replaced
    resale_cost_fraction: float = 0.0  # of the resale value, for removing, shipping and selling
    insurance_fraction: float = 0.0  # of the purchase, per year
    vat_fraction: float = 0.0  # VAT that cannot be recovered, on every price but staff; resale brings none of it back
    rented_staff_ratio: float = 0.0  # staff per rented accelerator over that of an owned one
    own_team_usd_per_month: float = 0.0  # least staff cost with hardware of one's own
    rented_team_usd_per_month: float = 0.0  # least staff cost with rented instances only
    exit_fraction: float = 0.0  # of a commitment's payments after the horizon that can be recovered
    delivery: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)  # class -> months, low, high
    overlap_months: int = 0  # of old and new hardware when a plan switches
    rent_path: tuple[float, ...] = ()  # price of each month over today's; empty: constant; these four
    energy_path: tuple[float, ...] = ()
    hardware_path: tuple[float, ...] = ()
    resale_path: tuple[float, ...] = ()  # at the end of each month 0 .. months

    @property
    def prices(self) -> Prices:
        """Discounting and price paths over the horizon."""
        return Prices(
            months=max(round(self.months), 1),
            discount_fraction=self.discount_fraction,
            rent=self.rent_path,
            energy=self.energy_path,
            hardware=self.hardware_path,
            resale=self.resale_path,
            exit_fraction=self.exit_fraction,
        )

    def resale(self, superseded: bool = False) -> tuple[float, ...]:
        """Market value by months in service as a fraction of the capital, up to the end of its service."""
        months, lost = service_months(self), 1.0 - (1.0 - self.resale_cost_fraction) / (1.0 + self.vat_fraction)
        if not self.resale_by_year:
            return resale_at_constant_rate(self.residual_fraction, life_months(self), months, lost)
        return resale_by_month(self.resale_by_year, months, self.superseded_ratio if superseded else 1.0, lost)

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


def priced_usd_per_hour(parts: Sequence[Part]) -> float:
    """Sum of the parts that follow the price of the machines, USD per hour."""
    return total_usd_per_hour([p for p in parts if p.name not in NOT_PRICED])


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
    """Purchase price plus its share of network, storage and spares, USD with VAT."""
    return purchase_usd * (1.0 + a.network_fraction + a.storage_fraction + a.spare_fraction) * (1.0 + a.vat_fraction)


def life_months(a: Assumptions) -> int:
    """Depreciation period of a purchase in whole months, at least one."""
    return max(round(a.life_years * 12.0), 1)


STUB_MONTHS = 12  # a replacement for less than this long is not bought: the old hardware serves on


def service_months(a: Assumptions) -> int:
    """Months that bought hardware may serve: its depreciation period, or the horizon if that is hardly longer."""
    life, months = life_months(a), max(round(a.months), 1)
    return months if life < months <= life + STUB_MONTHS else life


def capital_shares(
    purchase_usd: float, a: Assumptions, accelerators_usd: float | None = None
) -> tuple[tuple[str, float], ...]:
    """(component, fraction of the capital) of a purchase. `accelerators_usd`: None is accelerator_fraction of it."""
    chips_usd = purchase_usd * a.accelerator_fraction if accelerators_usd is None else accelerators_usd
    capital = capital_usd(purchase_usd, a)
    usd = (
        ("accelerators", chips_usd),
        ("host", purchase_usd - chips_usd),
        ("network", purchase_usd * a.network_fraction),
        ("storage", purchase_usd * a.storage_fraction),
        ("spares", purchase_usd * a.spare_fraction),
    )
    return tuple((name, each * (1.0 + a.vat_fraction) / capital) for name, each in usd if each) if capital else ()


def own_parts(
    purchase_usd: float,
    accelerators: int,
    watts: float,
    a: Assumptions,
    accelerators_usd: float | None = None,
    superseded: bool = False,
) -> tuple[Part, ...]:
    """All-in hourly cost over the horizon of a purchased server that runs around the clock, by cost item.

    Each component loses its price less its market value when it leaves service, in equal shares of the months; the
    cost of capital is the equal monthly payment for purchases and resale less that loss. Hardware is replaced at the
    end of its life. Wholesale colocation is quoted per kW-month of contracted IT load without metered power (CBRE North
    America Data Center Trends, average asking rates), so electricity is added: `watts` of the server at full load, and
    cooling (PUE). `accelerators_usd`: of the accelerators in the server; None: accelerator_fraction of the purchase.
    """
    prices, capital, resale = a.prices, capital_usd(purchase_usd, a), a.resale(superseded)
    paid, back, present = 0.0, 0.0, 0.0
    for start in range(0, prices.months, service_months(a)):
        until = min(start + service_months(a), prices.months)
        price = capital * float(prices.path("hardware")[start])
        value = price * resale[until - start] * float(prices.path("resale", prices.months + 1)[until])
        paid, back = paid + price, back + value
        present += price * float(prices.present(start)) - value * float(prices.present(until))
    lost = (paid - back) / prices.months
    energy = float(prices.present(np.arange(1, prices.months + 1)) @ prices.path("energy")) / prices.annuity
    kw, kwh_usd = watts / 1000.0, a.usd_per_kwh * HOURS_PER_MONTH * energy
    monthly = (
        *((name, lost * share, "capital") for name, share in capital_shares(purchase_usd, a, accelerators_usd)),
        (FINANCING, present / prices.annuity - lost, "capital"),
        ("colocation", a.colocation_usd_per_kw_month * kw, "running"),
        ("electricity", kw * kwh_usd, "running"),
        ("cooling", kw * (a.pue - 1.0) * kwh_usd, "running"),
        ("maintenance and support", purchase_usd * a.maintenance_fraction / 12.0, "running"),
        ("insurance", purchase_usd * a.insurance_fraction / 12.0, "running"),
        (STAFF_PART, a.staff_usd_per_accelerator_year * accelerators / 12.0, "running"),
    )
    return tuple(
        Part(name=name, usd_per_hour=with_vat(name, group, usd, a) / HOURS_PER_MONTH, group=group)
        for name, usd, group in monthly
        if usd or name != "insurance"
    )


def with_vat(name: str, group: str, usd: float, a: Assumptions) -> float:
    """The USD of one part of the bill with VAT: staff has none, and the capital that is passed here has it already."""
    return usd if name == STAFF_PART or group == "capital" else usd * (1.0 + a.vat_fraction)


def term_months(term: str) -> int:
    """Months that a rental term commits to; 0: none. A booked block is paid month by month."""
    return TERM_MONTHS.get(term, 0)


def rent_parts(usd_per_hour: float, term: str, a: Assumptions, accelerators: int = 0) -> tuple[Part, ...]:
    """Hourly cost over the horizon of a rented instance: rate, interruptions, services, commitment, staff.

    The lost fraction of spot hours is paid but serves nothing, so a productive hour costs rate / (1 - lost). What a
    term commits to beyond the horizon is a cost of its own, less what an exit recovers.
    """
    return _rent_parts(usd_per_hour, term, a, a.prices, accelerators)


def list_rent_parts(usd_per_hour: float, term: str, a: Assumptions, accelerators: int = 0) -> tuple[Part, ...]:
    """The same at today's price, without what a commitment binds beyond the horizon."""
    today = replace(a.prices, rent=(), months=TERM_MONTHS["reserved_3y"])
    return _rent_parts(usd_per_hour, term, a, today, accelerators)


def _rent_parts(usd_per_hour: float, term: str, a: Assumptions, prices: Prices, accelerators: int) -> tuple[Part, ...]:
    committed = term_months(term)
    signed = _signed_rent(prices, committed)
    rate = usd_per_hour * signed.paid_ratio / signed.annuity
    lost_usd = rate * (1.0 / (1.0 - a.spot_lost_fraction) - 1.0) if term == "spot" else 0.0
    addon, after = rate * a.cloud_addon_fraction, 0.0
    if committed and prices.months % committed:
        beyond = committed - prices.months % committed
        each = usd_per_hour * signed.last_ratio * (1.0 + a.cloud_addon_fraction) * (1.0 - a.exit_fraction)
        after = each * beyond * signed.last_present / signed.annuity
    staff = a.staff_usd_per_accelerator_year * a.rented_staff_ratio * accelerators / 12.0 / HOURS_PER_MONTH
    costs = (
        ("instances", rate, "rent"),
        ("interruptions", lost_usd, "rent"),
        ("cloud services", addon, "services"),
        (AFTER, after, "rent"),
        (STAFF_PART, staff, "running"),
    )
    return tuple(
        Part(name=name, usd_per_hour=with_vat(name, group, usd, a), group=group)
        for name, usd, group in costs
        if usd or name == "instances"
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _SignedRent:
    """What every rent of one term has in common: its price by month over today's, as it was signed."""

    paid_ratio: float  # sum over the horizon, present value
    last_ratio: float
    last_present: float  # present value of 1 USD in the last month
    annuity: float


@lru_cache(maxsize=256)
def _signed_rent(prices: Prices, committed_months: int) -> _SignedRent:
    path = prices.path("rent")
    every = np.arange(prices.months)
    signed = path[every // committed_months * committed_months] if committed_months else path
    return _SignedRent(
        paid_ratio=float(prices.present(every + 1) @ signed),
        last_ratio=float(signed[-1]),
        last_present=float(prices.present(prices.months)),
        annuity=prices.annuity,
    )


def hour_usd(each_usd: Amount, instances: Amount, paid_fraction: Amount = 1.0, run_fraction: Amount = 1.0) -> Amount:
    """Mean USD per hour of `instances` that cost `each_usd` per hour.

    paid_fraction: of the peak instance-hours of a week that are paid when instances are released in quiet hours.
    run_fraction: of all hours that a batch runs, if its instances are released after each run.
    """
    return each_usd * instances * paid_fraction * run_fraction


def services(output_tokens_per_s: float, stored_bytes: float, provider: str, a: Assumptions) -> tuple[Part, ...]:
    """Egress of the outputs and storage of the weights for rented instances, if the provider's prices are known."""
    egress, storage = service_usd(provider, a)
    egress_usd = output_tokens_per_s * 3600.0 * a.egress_bytes_per_output_token * (egress or 0.0)
    storage_usd = stored_bytes * (storage or 0.0) / HOURS_PER_MONTH
    costs = (("egress", egress_usd), ("storage of weights", storage_usd))
    return tuple(
        Part(name=name, usd_per_hour=with_vat(name, "services", usd, a), group="services") for name, usd in costs if usd
    )


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
