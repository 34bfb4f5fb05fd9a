"""The costs: every line of a plan with its list price, its hours and what it costs over the plan, USD."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from advisor.engine.terms import HOURS_PER_MONTH
from advisor.report.documents.subject import TOTALS_ONLY
from advisor.result import (
    ApiOption,
    CashFlow,
    CostPart,
    FleetItem,
    Money,
    Option,
    Plan,
    PlanStep,
    PortfolioMoney,
    TrainingOption,
    machine_of,
)
from advisor.templatetags.finance import rate as percent

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
class RunningPart:
    """A running part and its share of the cash column that pays for it."""

    name: str
    column: str  # energy, staff or other
    usd: float  # over the horizon, without discounting
    fraction: float  # of its column


COLUMNS: dict[str, Callable[[CashFlow], float]] = {
    "energy": lambda flow: flow.energy_usd,
    "staff": lambda flow: flow.staff_usd,
    "other": lambda flow: flow.running_usd - flow.rent_usd - flow.energy_usd - flow.staff_usd,
}


def total(flows: list[CashFlow], column: str) -> float:
    """Sum of a cash column over the horizon, USD."""
    return math.fsum(map(COLUMNS[column], flows))


def bill_lines(r: Option | TrainingOption, m: Money, plan: Plan) -> list[BillLine]:
    """What is signed, its share of network and spares, running parts, software, resale: usd_over_horizon; then taxes.

    All lines together are what is paid: the lines of taxes come on top of usd_over_horizon.
    """
    listed_once = math.fsum(step_usd(step) for step in plan.steps if step.unit_usd_once is not None)
    listed_rent = math.fsum(step_usd(step) for step in plan.steps if step.action in PAID_HOURLY)
    lines = [
        *map(step_line, plan.steps),
        *beyond_list_lines(m.cash_flow, plan.capex_usd - listed_once, listed_rent, vat_fraction_in(m)),
        *running_lines(m),
        software_line(r),
    ]
    if plan.resale_usd:
        lines.append(BillLine(action="sell", quantity=1, item="resale of the hardware", usd=-plan.resale_usd))
    return [*lines, *rounding_line(lines, m.usd_over_horizon), *tax_lines(m)]


def portfolio_bill(m: PortfolioMoney) -> list[tuple[str, BillLine]]:
    """(workload, line) of a portfolio, with the sum of its cash flow; "all" stands for the shared fleet.

    Empty in answers of earlier versions, which have no list prices.
    """
    if any(item.list_usd_once is None and item.list_usd_per_hour is None for item in m.items if item.is_paid):
        return []
    whose = m.items[0].for_workload if len({item.for_workload for item in m.items}) == 1 else "all"
    listed_once = math.fsum((item.quantity or 0.0) * (item.list_usd_once or 0.0) for item in m.items)
    listed_rent = math.fsum((item.paid_hours or 0.0) * (item.list_usd_per_hour or 0.0) for item in m.items)
    capital = math.fsum(flow.capital_usd for flow in m.cash_flow)
    lines = [(item.for_workload, item_line(item)) for item in m.items]
    lines += [(whose, line) for line in beyond_list_lines(m.cash_flow, capital - listed_once, listed_rent)]
    for line in running_lines(m):
        workload, _, name = line.item.rpartition(": ")
        lines.append((workload or whose, replace(line, item=name)))
    if resale := math.fsum(flow.value_left_usd for flow in m.cash_flow):
        lines.append((whose, BillLine(action="sell", quantity=1, item="resale of the hardware", usd=-resale)))
    paid = math.fsum(flow.total_usd for flow in m.cash_flow)
    return [*lines, *((whose, line) for line in rounding_line([line for _, line in lines], paid))]


def rounding_line(lines: Sequence[BillLine], total_usd: float) -> Iterator[BillLine]:
    """What the lines miss of the total."""
    left = total_usd - math.fsum(line.usd or 0.0 for line in lines)
    if round(left, 2):
        yield BillLine(action="pay", quantity=1, item="rounding of months to cents", usd=left, source="")


# --- taxes ------------------------------------------------------------------------------------------------------


def income_tax_saved_usd(m: Money) -> float:
    """Income tax that all payments save over the horizon, USD, without discounting.

    Over the whole horizon everything that is paid, less resale, becomes an expense: depreciation and the book value of
    what is sold add up to the purchases.
    """
    return m.taxes.income_tax_fraction * (m.usd_over_horizon + vat_beside_usd(m)) if m.taxes else 0.0


def vat_beside_usd(m: Money) -> float:
    """VAT over the horizon that the option's figures leave out, USD: that of earlier versions."""
    return m.taxes.vat_usd if m.taxes and not m.taxes.vat_included else 0.0


def tax_lines(m: Money) -> Iterator[BillLine]:
    """VAT that cannot be recovered, and the income tax that the expenses save."""
    if m.taxes is None:
        return
    if vat := vat_beside_usd(m):
        item = f"VAT that cannot be recovered ({percent(m.taxes.vat_fraction)})"
        yield BillLine(action="tax", quantity=1, item=item, usd=vat)
    if saved := income_tax_saved_usd(m):
        item = f"income tax saved on all expenses ({percent(m.taxes.income_tax_fraction)})"
        yield BillLine(action="tax", quantity=1, item=item, usd=-saved)


# --- lines ------------------------------------------------------------------------------------------------------


def step_usd(step: PlanStep) -> float:
    """List price of a step over the plan, USD: the price of the servers, or of the paid hours."""
    return step.instances * (step.unit_usd_once or 0.0) + step.paid_hours * (step.unit_usd_per_hour or 0.0)


def step_line(step: PlanStep) -> BillLine:
    return BillLine(
        action=step.action,
        quantity=step.instances,
        item=machine_of(step),
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


def item_line(item: FleetItem) -> BillLine:
    """One line of a portfolio's machines at its list price."""
    hours = item.paid_hours if item.list_usd_per_hour is not None else None
    once = (item.quantity or 0.0) * (item.list_usd_once or 0.0)
    return BillLine(
        action=item.action,
        quantity=item.quantity or 0.0,
        item=item.item,
        provider=item.provider,
        region=item.region,
        from_month=item.from_month,
        until_month=item.until_month,
        paid_until_month=item.paid_until_month,
        unit_usd_once=item.list_usd_once,
        unit_usd_per_hour=item.list_usd_per_hour,
        paid_hours=hours,
        usd=once + (hours or 0.0) * (item.list_usd_per_hour or 0.0),
        price_as_of=item.price_as_of,
        source=item.source,
    )


def api_bill(api: ApiOption) -> list[BillLine]:
    """What a hosted API is paid for over the horizon, by kind of token; their sum is that of the months."""
    assert api.payments is not None
    prices = {f"{charge.name} tokens": charge for charge in api.bill}
    lines = []
    for part in api.payments.parts:
        charge, usd = prices[part.name], part.total_usd or 0.0
        millions = charge.tokens_per_month / 1e6 * usd / charge.usd_per_month if charge.usd_per_month else 0.0
        lines.append(
            BillLine(
                action="pay", quantity=round(millions, 3), item=f"million {part.name} of {api.name}",
                provider=api.provider, region=api.region, from_month=1, until_month=api.payments.horizon_months,
                unit_usd_once=charge.usd_per_mtok, usd=usd, price_as_of=api.price_as_of, source=api.price_source,
            )
        )  # fmt: skip
    paid = math.fsum(flow.total_usd for flow in api.payments.cash_flow)
    return [*lines, *rounding_line(lines, paid)]


def vat_fraction_in(m: Money) -> float:
    """VAT that the figures include beyond the list prices."""
    return m.taxes.vat_fraction if m.taxes and m.taxes.vat_included else 0.0


def beyond_list_lines(
    flows: Sequence[CashFlow], capital_usd: float, listed_rent_usd: float, vat_fraction: float = 0.0
) -> Iterator[BillLine]:
    """What purchases and rents cost beyond their list prices; capital_usd: of the purchases."""
    taxed = f", VAT of {percent(vat_fraction)}" if vat_fraction else ""
    if abs(capital_usd) >= CENT:
        item = f"share of network, storage and spares{taxed}"
        yield BillLine(action="buy", quantity=1, item=item, unit_usd_once=capital_usd, usd=capital_usd, source=SHARE)
    beyond = math.fsum(flow.rent_usd for flow in flows) - listed_rent_usd
    if abs(beyond) >= CENT * len(flows):
        item = f"rent beyond the list prices: price changes, interruptions, early exit{taxed}"
        yield BillLine(action="pay", quantity=1, item=item, usd=beyond)


def running_lines(m: Money | PortfolioMoney) -> Iterator[BillLine]:
    for part in running_parts(m):
        if part.usd:
            yield BillLine(action="pay", quantity=1, item=part.name, usd=part.usd)


def running_parts(m: Money | PortfolioMoney) -> list[RunningPart]:
    """Running parts and services with their USD over the horizon, and their shares of the cash columns.

    Answers of earlier versions have no totals by part: there a cash column is split as the month's cost is, which is
    discounted and so is not exact.
    """
    running = [(p, column_of(p)) for p in m.parts if p.group in ("running", "services")]
    running = [(p, column) for p, column in running if column in COLUMNS and (p.total_usd or p.usd_per_month)]
    known = all(p.total_usd is not None for p, _ in running)
    weights = [float(p.total_usd or 0.0) if known else p.usd_per_month for p, _ in running]
    sums = {
        name: math.fsum(w for w, (_, column) in zip(weights, running, strict=True) if column == name)
        for name in COLUMNS
    }
    return [
        RunningPart(
            name=p.name,
            column=column,
            usd=weight if known else weight / sums[column] * total(m.cash_flow, column),
            fraction=weight / sums[column] if sums[column] else 0.0,
        )
        for weight, (p, column) in zip(weights, running, strict=True)
    ]


def column_of(part: CostPart) -> str:
    """The cash column that pays for a part: rent, energy, staff or other; a portfolio names the workload before it."""
    name = part.name.rpartition(": ")[2]
    return next((column for column, names in PAYS.items() if name in names), "other")


def software_line(r: Option | TrainingOption) -> BillLine:
    name = f"{r.framework} {r.framework_version}".strip()
    count = r.replicas if isinstance(r, Option) else 1
    return BillLine(action="install", quantity=count, item=name, unit_usd_once=0, usd=0, source="open source")


# --- answers of earlier versions ---------------------------------------------------------------------------------


def bill_of(r: Option | TrainingOption) -> list[BillLine]:
    if r.money is None:
        return totals_only_bill(r)
    return bill_lines(r, r.money, r.money.plan) if r.money.plan else bill_without_plan(r, r.money)


def bill_without_plan(r: Option | TrainingOption, m: Money) -> list[BillLine]:
    """The lines of an answer without a plan: one purchase or one rent around the clock."""
    once = m.purchase_usd / r.instances if m.purchase_usd else None
    hours = m.horizon_months * HOURS_PER_MONTH
    hourly = None if once else rent_of_one(r)
    lines = [
        BillLine(
            action="buy" if once else "rent",
            quantity=r.instances,
            item=r.instance or r.accelerator_name,
            provider=r.provider,
            region=r.region,
            unit_usd_once=once,
            unit_usd_per_hour=hourly,
            paid_hours=None if once else hours * r.instances,
            usd=m.purchase_usd if once else (hourly or 0.0) * hours * r.instances,
            price_as_of=m.prices_as_of,
            source=r.price_source,
        )
    ]
    if once:
        extra = m.capital_usd - m.purchase_usd
        item = "share of network, storage and spares"
        lines.append(BillLine(action="buy", quantity=1, item=item, unit_usd_once=extra, usd=extra, source=SHARE))
    lines += [
        BillLine(action="pay", quantity=1, item=part.name, usd=part.usd_per_month * m.horizon_months)
        for part in m.parts
        if part.group in ("running", "services") and part.usd_per_hour
    ]
    return [*lines, software_line(r)]


def totals_only_bill(r: Option | TrainingOption) -> list[BillLine]:
    """The lines of an answer that holds only totals: what is bought or rented, without a price of its own."""
    bought = BillLine(
        action="buy" if r.acquisition == "own" else "rent",
        quantity=r.instances,
        item=r.instance or r.accelerator_name,
        provider=r.provider,
        region=r.region,
        price_as_of=r.price_as_of,
        source=r.price_source,
    )
    total = replace(bought, action="pay", quantity=1, item="total", unit_usd_per_hour=r.usd_per_hour)
    return [bought, software_line(r), total, BillLine(action="", quantity=0, item=TOTALS_ONLY, source="")]


def rent_of_one(r: Option | TrainingOption) -> float:
    """USD per hour of one rented instance; a quotient of floats, so without its last digits."""
    together = next((p.usd_per_hour for p in r.money.parts if p.name == "instances"), 0.0) if r.money else 0.0
    return round(together / r.instances, 6)
