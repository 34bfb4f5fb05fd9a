"""The bill of materials: every line of a plan with its list price, its hours and what it costs over the plan, USD."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from advisor.result import CashFlow, CostPart, Money, Option, Plan, PlanStep

CENT = 0.01
SHARE = "fractions of the purchase: assumptions.csv"
PAID_HOURLY = ("rent", "reserve")
PAYS = {
    "rent": ("instances", "interruptions", "cloud services"),
    "energy": ("electricity", "cooling"),
    "staff": ("staff", "minimum team"),
}  # cash column: parts that it pays for; it pays all others as other running cost


@dataclass(frozen=True, kw_only=True, slots=True)
class BillLine:
    """One line; `usd` is what it costs over the plan. The fields are the columns of the file."""

    action: str
    quantity: float
    item: str
    provider: str = ""
    region: str = ""
    from_month: int | None = None
    until_month: int | None = None
    paid_until_month: int | None = None
    unit_usd_once: float | None = None  # list price of one
    unit_usd_per_hour: float | None = None  # list price of one for an hour
    paid_hours: float | None = None  # of all of them together
    usd: float | None = None
    currency: str = "USD"
    price_as_of: str = ""
    source: str = "assumptions.csv"


@dataclass(frozen=True, kw_only=True, slots=True)
class RunningShare:
    """A running part and its share of the cash column that pays for it."""

    name: str
    column: str  # energy, staff or other
    fraction: float


COLUMNS: dict[str, Callable[[CashFlow], float]] = {
    "energy": lambda flow: flow.energy_usd,
    "staff": lambda flow: flow.staff_usd,
    "other": lambda flow: flow.running_usd - flow.rent_usd - flow.energy_usd - flow.staff_usd,
}


def total(flows: list[CashFlow], column: str) -> float:
    """Sum of a cash column over the horizon, USD."""
    return math.fsum(map(COLUMNS[column], flows))


def bill_lines(r: Option, m: Money, plan: Plan) -> list[BillLine]:
    """What is signed, its share of network and spares, running parts, software, resale; sums to usd_over_horizon."""
    lines = [*map(step_line, plan.steps), *shared_lines(m, plan), *running_lines(m), software_line(r)]
    if plan.resale_usd:
        lines.append(BillLine(action="sell", quantity=1, item="resale of the hardware", usd=-plan.resale_usd))
    left = m.usd_over_horizon - math.fsum(line.usd or 0.0 for line in lines)
    if round(left, 2):
        lines.append(BillLine(action="pay", quantity=1, item="rounding of months to cents", usd=left, source=""))
    return lines


def step_usd(step: PlanStep) -> float:
    """List price of a step over the plan, USD: the price of the servers, or of the paid hours."""
    return step.instances * (step.unit_usd_once or 0.0) + step.paid_hours * (step.unit_usd_per_hour or 0.0)


def step_line(step: PlanStep) -> BillLine:
    return BillLine(
        action=step.action,
        quantity=step.instances,
        item=step.instance,
        provider=step.provider,
        region=step.region,
        from_month=step.from_month,
        until_month=step.until_month,
        paid_until_month=step.paid_until_month,
        unit_usd_once=step.unit_usd_once,
        unit_usd_per_hour=step.unit_usd_per_hour,
        paid_hours=step.paid_hours if step.action in PAID_HOURLY else None,
        usd=step_usd(step),
        price_as_of=step.price_as_of,
        source=step.price_source,
    )


def shared_lines(m: Money, plan: Plan) -> Iterator[BillLine]:
    """What purchases and rents cost beyond their list prices."""
    share = plan.capex_usd - math.fsum(step_usd(step) for step in plan.steps if step.unit_usd_once is not None)
    if abs(share) >= CENT:
        item = "share of network, storage and spares"
        yield BillLine(action="buy", quantity=1, item=item, unit_usd_once=share, usd=share, source=SHARE)
    listed = math.fsum(step_usd(step) for step in plan.steps if step.action in PAID_HOURLY)
    beyond = math.fsum(flow.rent_usd for flow in m.cash_flow) - listed
    if abs(beyond) >= CENT * len(m.cash_flow):
        item = "rent beyond the list prices: price changes, interruptions, early exit"
        yield BillLine(action="pay", quantity=1, item=item, usd=beyond)


def running_lines(m: Money) -> Iterator[BillLine]:
    for share in running_shares(m.parts):
        usd = share.fraction * total(m.cash_flow, share.column)
        if usd:
            yield BillLine(action="pay", quantity=1, item=share.name, usd=usd)


def running_shares(parts: list[CostPart]) -> list[RunningShare]:
    """Running parts and services with their shares of the cash column that pays for them."""
    running = [part for part in parts if part.group in ("running", "services") and part.usd_per_month]
    columns = [column_of(part) for part in running]
    sums = {
        name: sum(p.usd_per_month for p, column in zip(running, columns, strict=True) if column == name)
        for name in COLUMNS
    }
    return [
        RunningShare(name=p.name, column=column, fraction=p.usd_per_month / sums[column])
        for p, column in zip(running, columns, strict=True)
        if column in COLUMNS
    ]


def column_of(part: CostPart) -> str:
    """The cash column that pays for a part: rent, energy, staff or other."""
    return next((column for column, names in PAYS.items() if part.name in names), "other")


def software_line(r: Option) -> BillLine:
    name = f"{r.framework} {r.framework_version}"
    return BillLine(action="install", quantity=r.replicas, item=name, unit_usd_once=0, usd=0, source="open source")
