"""Dated plans: what a schedule pays in each month, its monthly equivalent by part, and the usual strategies.

Today is month 0. Service in month m runs from m - 1 to m. Purchases are paid when service starts, everything else at
the end of its month, and what is sold brings its market value when it leaves service. A commitment that outlasts the
horizon is settled at the horizon: its remaining payments, less what an exit recovers, count as a cost of the plan.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
import scipy
from numpy.typing import NDArray

from advisor.engine.cost import AFTER, FINANCING, TEAM, Prices
from advisor.engine.plans.solve import (
    Schedule,
    cheapest,
    column_usd_by_month,
    least_from,
    purchase_payments,
    term_payments,
)
from advisor.engine.plans.ways import (
    CAPITAL,
    COMMITMENT,
    DRIVERS,
    ENERGY,
    HOURLY,
    OTHER,
    OWNED,
    PURCHASE,
    RENT,
    RENTED,
    RESALE,
    SERVICES,
    STAFF,
    TERM,
    Array,
    Demand,
    Limits,
    Way,
    driver_of,
)
from advisor.engine.terms import HOURS_PER_MONTH, Part

CENT = 0.01
SOLVED = 1024  # plans that are kept; an answer asks for about as many different ones, and for most of them twice
NAMES = ("rent", "reserve", "buy_now", "extend_later", "rent_then_buy", "mixed")


@dataclass(frozen=True, kw_only=True, slots=True)
class Overheads:
    """What a plan costs beside its instances."""

    own_team_usd_per_month: float = 0.0  # least staff cost while hardware of one's own is in service
    rented_team_usd_per_month: float = 0.0  # least staff cost otherwise
    services: tuple[Part, ...] = ()  # of rented instances at today's traffic
    traffic: tuple[float, ...] = ()  # of each month over today's; empty: constant


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """A schedule with its payments, USD."""

    ways: tuple[Way, ...]
    demand: Demand
    prices: Prices
    schedule: Schedule
    payments: Mapping[str, Array]  # by driver and month 0 .. horizon; resale is negative
    part_payments: Mapping[tuple[str, str], Array]  # the same without capital and resale, by (part, group)
    liability_usd: float  # payments due after the horizon, less what an exit recovers; part of the last month's
    liability_months: int  # how far the longest commitment outlasts the horizon
    budget_usd: Array = field(default_factory=lambda: np.zeros(0))  # counted against max_usd_per_month, by month

    @property
    def total_by_month(self) -> Array:
        """Payments of month 0 .. horizon, shape (months + 1,)."""
        return np.asarray(sum(self.payments.values(), np.zeros(self.prices.months + 1)))

    @property
    def present_usd(self) -> float:
        """Present value of all payments."""
        return float(self.total_by_month @ self.prices.present(np.arange(self.prices.months + 1)))

    @property
    def usd_per_month(self) -> float:
        """The equal monthly payment with the same present value."""
        return self.present_usd / self.prices.annuity

    @property
    def capex_usd(self) -> float:
        """All purchases over the horizon."""
        return float(self.payments[CAPITAL].sum())

    @property
    def resale_usd(self) -> float:
        """All sales over the horizon."""
        return -float(self.payments[RESALE].sum())

    @property
    def sales_usd(self) -> tuple[float, float]:
        """(today, at the end of the horizon): what the owned machines that it keeps in service would sell for."""
        kept = [(way, self._most_in_service(i)) for i, way in enumerate(self.ways) if way.kind == OWNED]
        return math.fsum(n * w.sale_usd for w, n in kept), math.fsum(n * w.later_sale_usd for w, n in kept)

    @property
    def forgone_usd(self) -> float:
        """Present value that is forgone by selling the kept machines at the end of the horizon instead of today."""
        today, later = self.sales_usd
        return today - later * float(self.prices.present(self.prices.months))

    @property
    def economic_usd(self) -> float:
        """Present value of all payments and of the forgone sale, by which plans are compared."""
        return self.present_usd + self.forgone_usd

    def _most_in_service(self, way: int) -> int:
        count = np.zeros(self.prices.months, dtype=int)
        for c in self.schedule.commitments:
            if c.way == way:
                count[c.start_month : c.until_month] += c.instances
        for h in self.schedule.hourly:
            if h.way == way:
                count += h.instances
        return int(count.max(initial=0))

    @property
    def most_usd_per_month(self) -> float:
        """The dearest month as the budget counts it."""
        return float(self.budget_usd.max(initial=0.0))

    def in_service(self, kinds: Sequence[str]) -> NDArray[np.int_]:
        """Instances in service in each month, had in one of these ways."""
        count = np.zeros(self.prices.months, dtype=int)
        for c in self.schedule.commitments:
            if self.ways[c.way].kind in kinds:
                count[c.start_month : c.until_month] += c.instances
        for h in self.schedule.hourly:
            if self.ways[h.way].kind in kinds:
                count += h.instances
        return count

    def parts(self) -> tuple[Part, ...]:
        """The monthly equivalent by part, USD per hour; capital as loss of value by component and cost of capital."""
        present, annuity = self.prices.present(np.arange(self.prices.months + 1)), self.prices.annuity
        found = [*self._capital_parts()]
        found += [
            Part(name=name, group=group, usd_per_hour=float(usd @ present) / annuity / HOURS_PER_MONTH)
            for (name, group), usd in self.part_payments.items()
        ]
        return tuple(part for part in found if part.usd_per_hour)

    def part_totals(self) -> dict[tuple[str, str], float]:
        """Undiscounted USD over the horizon by (part, group); capital less resale, and no cost of capital."""
        months = self.prices.months * HOURS_PER_MONTH
        lost = {(p.name, p.group): p.usd_per_hour * months for p in self._capital_parts() if p.name != FINANCING}
        return lost | {key: float(usd.sum()) for key, usd in self.part_payments.items()}

    def _capital_parts(self) -> Iterator[Part]:
        capital, resale = self.payments[CAPITAL], self.payments[RESALE]
        if not capital.any():
            return
        present, months = self.prices.present(np.arange(self.prices.months + 1)), self.prices.months
        lost: dict[str, float] = {}
        for c in self.schedule.commitments:
            way = self.ways[c.way]
            if way.kind == PURCHASE:
                paid, back = purchase_payments(way, self.prices, c.start_month, c.until_month)
                for name, share in way.capital_shares or (("accelerators", 1.0),):
                    lost[name] = lost.get(name, 0.0) + share * c.instances * (paid - back)
        for name, usd in lost.items():
            yield Part(name=name, group="capital", usd_per_hour=usd / months / HOURS_PER_MONTH)
        monthly = float((capital + resale) @ present) / self.prices.annuity
        usd = monthly - math.fsum(lost.values()) / months
        yield Part(name=FINANCING, group="capital", usd_per_hour=usd / HOURS_PER_MONTH)


def plan_of(demand: Demand, ways: Sequence[Way], prices: Prices, schedule: Schedule, overheads: Overheads) -> Plan:
    """The payments of a schedule."""
    months = prices.months
    parts: dict[tuple[str, str], Array] = {}
    drivers = {name: np.zeros(months + 1) for name in DRIVERS}
    liability, beyond = 0.0, 0

    def pay(part: Part, usd: Array, driver: str | None = None) -> None:
        if not usd.any():
            return
        key = part.name, part.group
        parts[key] = parts.get(key, np.zeros(months + 1)) + usd
        drivers[driver or driver_of(part)] += usd

    for c in schedule.commitments:
        way = ways[c.way]
        serving = np.zeros(months)
        serving[c.start_month : c.until_month] = c.instances
        _pay_parts(way, prices, serving, serving, pay, skip_rent=way.kind == TERM)
        if way.kind == PURCHASE:
            paid, back = purchase_payments(way, prices, c.start_month, c.until_month)
            drivers[CAPITAL][c.start_month] += paid * c.instances
            drivers[RESALE][c.until_month] -= back * c.instances
        if way.kind == TERM:
            usd, due = term_payments(way, prices, c.start_month)
            usd = usd * c.instances
            inside = np.zeros(months + 1)
            np.add.at(inside, due[due <= months], usd[due <= months])
            rest = np.zeros(months + 1)
            rest[months] = float(usd[due > months].sum())
            liability += float(rest[months])
            beyond = max(beyond, int(due[-1]) - months)
            rented = [p for p in way.parts if p.name in RENTED and p.usd_per_hour]
            each = math.fsum(p.usd_per_hour for p in rented)
            for part in rented:
                pay(part, inside * (part.usd_per_hour / each), COMMITMENT)
            pay(Part(name=AFTER, usd_per_hour=0.0, group="rent"), rest, COMMITMENT)
    for h in schedule.hourly:
        _pay_parts(ways[h.way], prices, h.paid, h.instances.astype(float), pay)
    plan = Plan(
        ways=tuple(ways), demand=demand, prices=prices, schedule=schedule, payments=drivers, part_payments=parts,
        liability_usd=liability, liability_months=max(beyond, 0),
    )  # fmt: skip
    return _with_overheads(plan, overheads, drivers, parts)


def _pay_parts(way: Way, prices: Prices, paid: Array, kept: Array, pay: object, skip_rent: bool = False) -> None:
    assert callable(pay)
    for part, amount in [*((p, paid) for p in way.parts), *((p, kept) for p in way.kept_parts)]:
        if skip_rent and part.name in RENTED:
            continue
        driver = driver_of(part)
        path = prices.path("energy") if driver == "energy" else prices.path("rent") if driver == RENT else 1.0
        pay(part, np.concatenate([[0.0], part.usd_per_hour * HOURS_PER_MONTH * amount * path]))


def _with_overheads(
    plan: Plan, overheads: Overheads, drivers: dict[str, Array], parts: dict[tuple[str, str], Array]
) -> Plan:
    """The plan with the least team and the provider's services."""
    own, rented = plan.in_service((PURCHASE, OWNED)), plan.in_service((HOURLY, TERM))
    least = np.where(
        own > 0, overheads.own_team_usd_per_month, np.where(rented > 0, overheads.rented_team_usd_per_month, 0.0)
    )
    more = np.maximum(np.concatenate([[0.0], least]) - drivers[STAFF], 0.0)
    if more.any():
        parts[TEAM, "running"] = more
        drivers[STAFF] = drivers[STAFF] + more
    months = plan.prices.months
    traffic = np.asarray(overheads.traffic[:months], float) if len(overheads.traffic) else np.ones(months)
    total = np.maximum(own + rented, 1)
    for part in overheads.services:
        used = traffic * rented / total if part.name == "egress" else rented > 0  # one copy of the weights is stored
        usd = np.concatenate([[0.0], part.usd_per_hour * HOURS_PER_MONTH * used])
        if usd.any():
            parts[part.name, part.group] = parts.get((part.name, part.group), np.zeros(len(usd))) + usd
            drivers[SERVICES] = drivers[SERVICES] + usd
    return replace(plan, payments=drivers, part_payments=parts, budget_usd=_budget(plan, drivers))


def _budget(plan: Plan, drivers: Mapping[str, Array]) -> Array:
    """Payments by month, with each purchase as the equal payments over its service instead of once."""
    once = drivers[CAPITAL] + drivers[RESALE]
    months = np.asarray(sum(drivers.values(), np.zeros(plan.prices.months + 1)) - once)[1:]
    months[-1:] -= plan.liability_usd
    for c in plan.schedule.commitments:
        way = plan.ways[c.way]
        if way.kind == PURCHASE:
            bare = replace(way, parts=(), kept_parts=())
            months = months + c.instances * column_usd_by_month(bare, plan.prices, c.start_month, c.until_month)
    return months


# --- cash flow and break-even -----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Flow:
    """Cash of one month, USD; month 0 is today."""

    month: int
    capital_usd: float
    rent_usd: float  # by the hour and of commitments, what is due after the horizon included
    energy_usd: float
    staff_usd: float
    other_usd: float
    resale_usd: float  # received
    book_value_usd: float  # of the hardware in service at the end of the month
    present_usd: float  # present value of the total

    @property
    def running_usd(self) -> float:
        return self.rent_usd + self.energy_usd + self.staff_usd + self.other_usd

    @property
    def total_usd(self) -> float:
        """Paid in this month, less what is received."""
        return self.capital_usd + self.running_usd - self.resale_usd


def flows(plan: Plan) -> list[Flow]:
    """Cash by month, from today (month 0) to the horizon."""
    p, total, book = plan.payments, plan.total_by_month, book_values(plan)
    present = plan.prices.present(np.arange(plan.prices.months + 1))
    return [
        Flow(
            month=month,
            capital_usd=float(p[CAPITAL][month]),
            rent_usd=float(p[RENT][month] + p[COMMITMENT][month]),
            energy_usd=float(p[ENERGY][month]),
            staff_usd=float(p[STAFF][month]),
            other_usd=float(p[OTHER][month] + p[SERVICES][month]),
            resale_usd=0.0 - float(p[RESALE][month]),
            book_value_usd=float(book[month]),
            present_usd=float(total[month] * present[month]),
        )
        for month in range(plan.prices.months + 1)
    ]


def book_values(plan: Plan) -> Array:
    """Book value of the hardware in service at the end of months 0 .. horizon: straight line to 0 over its life."""
    book = np.zeros(plan.prices.months + 1)
    for c in plan.schedule.commitments:
        way = plan.ways[c.way]
        if way.kind == PURCHASE:
            paid, _ = purchase_payments(way, plan.prices, c.start_month, c.until_month)
            age = np.arange(c.until_month - c.start_month + 1)
            left = c.instances * paid * np.maximum(1.0 - age / (way.book_months or way.life_months), 0.0)
            book[c.start_month : c.until_month + 1] += left
            if c.until_month < plan.prices.months:
                book[c.until_month] -= left[-1]  # sold
    return book


def flat_demand(instances: int, months: int) -> Demand:
    """The same instances around the clock in every month."""
    return Demand(counts=np.array([instances]), fractions=np.ones((1, months)))


def break_even_month(own: Plan, other: Plan) -> int | None:
    """First month from whose end on owning has cost less, discounted, the hardware counted at market value."""
    present = own.prices.present(np.arange(own.prices.months + 1))
    value = np.array([market_value(own, month) for month in range(own.prices.months)] + [0.0])
    return _ahead_from(own, np.cumsum((own.total_by_month - other.total_by_month) * present) - value * present)


def payback_month(own: Plan, other: Plan) -> int | None:
    """First month from whose end on less cash has been paid for owning, without discounting; resale once received."""
    return _ahead_from(own, np.cumsum(own.total_by_month - other.total_by_month))


def _ahead_from(own: Plan, behind: Array) -> int | None:
    """First month from whose end on owning is not `behind` (USD by month 0 .. horizon) any more; None: none.

    Hardware is worth its price on the first day and may lose more later, and a later purchase can undo an earlier
    payback, so every month until the horizon must hold. Months before anything is owned do not count: until the
    delivery both plans may rent the same machines.
    """
    above = np.flatnonzero(behind > CENT / 2)
    starts = [c.start_month for c in own.schedule.commitments if own.ways[c.way].kind in (PURCHASE, OWNED)]
    month = max(int(above[-1]) + 1 if len(above) else 1, min(starts, default=0) + 1)
    return month if month <= own.prices.months else None


def market_value(plan: Plan, month: int) -> float:
    """What the hardware in service at the end of a month would bring, USD."""
    usd = 0.0
    for c in plan.schedule.commitments:
        way = plan.ways[c.way]
        if way.kind == PURCHASE and c.start_month <= month < c.until_month:
            usd += c.instances * purchase_payments(way, plan.prices, c.start_month, month)[1]
    return usd


def internal_rate(own: Plan, other: Plan) -> float | None:
    """Annual internal rate of return of the plan that pays more at first over the other; None: its savings have none.

    The rate at which both have the same present value, found between -99% and 10,000% a year.
    """
    saved = other.total_by_month - own.total_by_month
    unequal = saved[np.abs(saved) > CENT]
    if not len(unequal) or unequal[0] > 0 or not (unequal > 0).any():
        return None

    def worth(rate: float) -> float:
        return float(saved @ (1.0 + rate) ** -(np.arange(len(saved)) / 12.0))

    low, high = -0.99, 100.0
    if worth(low) * worth(high) > 0:
        return None
    return float(scipy.optimize.brentq(worth, low, high, xtol=1e-10))


# --- choosing ---------------------------------------------------------------------------------------------------


def best_plan(
    demand: Demand, ways: Sequence[Way], prices: Prices, overheads: Overheads, limits: Limits | None = None
) -> Plan | None:
    """The cheapest plan within the limits; None: there is none.

    The least team is a fixed cost that the schedule does not see, so plans without purchases, and with nothing but
    hardware of one's own, are compared with the schedule of all ways.
    """
    return _best_plan(demand, tuple(ways), prices, overheads, limits)


@lru_cache(maxsize=SOLVED)
def _best_plan(
    demand: Demand, ways: tuple[Way, ...], prices: Prices, overheads: Overheads, limits: Limits | None
) -> Plan | None:
    every = range(len(ways))
    sets = [list(every)]
    rented = [i for i in every if ways[i].kind in (HOURLY, TERM)]
    if 0 < len(rented) < len(ways):
        sets += [rented, [i for i in every if i not in rented]]
    found = [plan for some in sets if (plan := _planned(demand, ways, some, prices, overheads, limits)) is not None]
    return min(found, key=lambda plan: plan.present_usd, default=None)


def _planned(
    demand: Demand,
    ways: Sequence[Way],
    some: Sequence[int],
    prices: Prices,
    overheads: Overheads,
    limits: Limits | None,
) -> Plan | None:
    """The plan with some of the ways alone, by their indexes; a budget leaves room for the least team."""
    team = overheads.own_team_usd_per_month if any(ways[i].kind in (PURCHASE, OWNED) for i in some) else 0.0
    team = max(team, overheads.rented_team_usd_per_month)
    monthly = limits.max_usd_per_month if limits else None
    rooms = [limits] if limits is None or monthly is None or not team else [
        limits, replace(limits, max_usd_per_month=max(monthly - team, 0.0))
    ]  # fmt: skip
    for room in rooms:
        schedule = cheapest(demand, [ways[i] for i in some], prices, room)
        if schedule is None:
            return None
        schedule = Schedule(
            commitments=tuple(replace(c, way=some[c.way]) for c in schedule.commitments),
            hourly=tuple(replace(h, way=some[h.way]) for h in schedule.hourly),
        )
        plan = plan_of(demand, ways, prices, schedule, overheads)
        if within(plan, limits):
            return plan
    return None


def within(plan: Plan, limits: Limits | None) -> bool:
    """Whether the plan keeps the limits, the least team included."""
    if limits is None:
        return True
    capex, monthly = limits.max_capex_usd, limits.max_usd_per_month
    return (capex is None or plan.capex_usd <= capex * (1 + 1e-9)) and (
        monthly is None or plan.most_usd_per_month <= monthly * (1 + 1e-9)
    )


def named_plans(demand: Demand, ways: Sequence[Way], prices: Prices, overheads: Overheads) -> dict[str, Plan]:
    """The usual strategies that these ways allow, without limits: NAMES to plans."""
    by_kind = {kind: [w for w in ways if w.kind == kind] for kind in (HOURLY, TERM, PURCHASE, OWNED)}
    hourly, terms, bought = by_kind[HOURLY], by_kind[TERM], by_kind[PURCHASE] + by_kind[OWNED]
    chosen: dict[str, tuple[Demand, list[Way]]] = {"mixed": (demand, list(ways))}
    if hourly:
        chosen["rent"] = demand, hourly
    if terms:
        chosen["reserve"] = demand, [*terms, *hourly]
    if by_kind[PURCHASE]:
        waits = any(w.lead_months for w in bought) and bool(hourly)  # rented until the first servers are delivered
        now = [*bought, *hourly] if waits else [replace(w, lead_months=0) for w in bought]
        if not waits:
            chosen["buy_now"] = at_most_need(demand), now
        if waits or demand.needed.max() > demand.needed[0]:
            chosen["extend_later"] = demand, now
    plans = {name: best_plan(asked, some, prices, overheads) for name, (asked, some) in chosen.items()}
    if by_kind[PURCHASE] and hourly and not by_kind[OWNED]:
        plans["rent_then_buy"] = rent_then_buy(demand, hourly, bought, prices, overheads)
    return {name: plan for name in NAMES if (plan := plans.get(name)) is not None}


def at_most_need(demand: Demand) -> Demand:
    """The demand with everything that is ever needed there from the first month."""
    most = demand.fractions.max(axis=1, keepdims=True)
    return Demand(counts=demand.counts, fractions=np.repeat(most, demand.fractions.shape[1], axis=1))


def rent_then_buy(
    demand: Demand, hourly: Sequence[Way], bought: Sequence[Way], prices: Prices, overheads: Overheads
) -> Plan | None:
    """Rent by the hour, buy everything in the month that costs least, at least one month from now."""
    if prices.months < 2:
        return None
    lead = max((w.lead_months for w in bought), default=0)
    later = [replace(w, lead_months=0) for w in bought]
    rented = np.concatenate([[0.0], np.cumsum(-np.diff(least_from(demand, hourly, prices)))])
    owned = least_from(demand, later, prices)
    usd = (rented + owned)[: prices.months]
    usd[: max(lead, 1)] = np.inf
    month = int(np.argmin(usd))
    if not np.isfinite(usd[month]):
        return None
    before = np.arange(prices.months) < month
    first = Demand(counts=demand.counts, fractions=np.where(before, demand.fractions, 0.0))
    then = Demand(counts=demand.counts, fractions=np.where(before, 0.0, demand.fractions))
    by_hour, own = (
        cheapest(first, hourly, prices),
        cheapest(then, [replace(w, lead_months=month) for w in bought], prices),
    )
    if by_hour is None or own is None:
        return None
    moved = tuple(replace(c, way=c.way + len(hourly)) for c in own.commitments)
    schedule = Schedule(commitments=moved, hourly=by_hour.hourly)
    return plan_of(demand, (*hourly, *bought), prices, schedule, overheads)


@dataclass(frozen=True, kw_only=True, slots=True)
class Switch:
    """One deployment until the end of a month, then another, with both paid while the traffic moves."""

    month: int  # of the horizon, after which the first one has left
    overlap_months: int
    present_usd: float
    usd_per_month: float


def best_switch(
    first: tuple[Demand, Sequence[Way], Overheads],
    second: tuple[Demand, Sequence[Way], Overheads],
    prices: Prices,
    months: Sequence[int],
    overlap_months: int,
) -> Switch | None:
    """The cheapest switch from one deployment to another at the end of one of these months."""
    found = []
    for month in months:
        start = month - overlap_months
        if not 0 < month < prices.months or start < 0:
            continue
        before = _shortened(first[0], month), prices_until(prices, month)
        plan = best_plan(before[0], first[1], before[1], first[2])
        fractions = np.where(np.arange(prices.months) >= start, second[0].fractions, 0.0)
        after = best_plan(Demand(counts=second[0].counts, fractions=fractions), second[1], prices, second[2])
        if plan is not None and after is not None:
            usd = plan.present_usd + after.present_usd
            found.append(
                Switch(month=month, overlap_months=overlap_months, present_usd=usd, usd_per_month=usd / prices.annuity)
            )
    return min(found, key=lambda s: s.present_usd, default=None)


def _shortened(demand: Demand, months: int) -> Demand:
    return Demand(counts=demand.counts, fractions=demand.fractions[:, :months])


def prices_until(prices: Prices, months: int) -> Prices:
    """The prices of a shorter horizon."""
    return replace(
        prices, months=months, rent=prices.rent[:months], energy=prices.energy[:months],
        hardware=prices.hardware[:months], resale=prices.resale[: months + 1],
    )  # fmt: skip
