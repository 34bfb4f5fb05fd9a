"""The CSV files: bill of materials, costs, assumptions, cash flow by month."""

import csv
import datetime
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from decimal import Decimal
from typing import Any

from advisor.answer import CURRENCY
from advisor.report.documents.bill import BillLine, api_bill, bill_of, portfolio_bill
from advisor.report.documents.order import OrderLine, orders
from advisor.report.documents.subject import TOTALS_ONLY, api_of, chosen, is_early_portfolio, money_of, shared_money
from advisor.result import Answer, Assumption, CashFlow, Currency, Money, Option, PlanMonth, TrainingOption
from catalog import clock
from catalog.lists import export

BILL_HEAD = tuple(field.name for field in fields(BillLine))
ORDER_HEAD = tuple(field.name for field in fields(OrderLine))
ASSUMPTIONS_HEAD = ("name", "value", "unit", "default", "low", "high", "as_of", "age_days", "source")
TOTALS = ("capital_usd", "running_usd", "value_left_usd", "total_usd", "present_usd")
PARTS = ("rent_usd", "energy_usd", "staff_usd", "other_usd", "book_value_usd")
COUNTS = ("replicas", "hourly_instances", "committed_instances", "own_instances")
CASH_HEAD = ("month", *TOTALS, "currency", "prices_as_of", *PARTS, *COUNTS)


def csv_of(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(head)
    writer.writerows([export.cell(value) for value in row] for row in rows)
    return out.getvalue()


def in_cents(usd: float) -> Decimal:
    """A number, not text: `export.cell` would put a quote before a text that begins with a minus."""
    return Decimal(f"{usd:.2f}") + 0  # no -0.00


# --- bill of materials and costs --------------------------------------------------------------------------------


def bill_of_materials(answer: Answer, rank: int) -> str:
    """What to order, one line each, with its specification and the list price that is known."""
    lines = orders(answer, rank)
    if not lines:
        return costs_csv(answer, rank)  # an answer of an earlier version, or only owned machines
    head, more = bill_currency(answer.currency)
    named, first = bool(lines[0][0]), ["for"] if lines[0][0] else []
    rows = ([*([name] if named else []), *order_row(line), *more(line)] for name, line in lines)
    return csv_of((*first, *ORDER_HEAD, *head), rows)


def costs_csv(answer: Answer, rank: int) -> str:
    """Everything that is paid, one line each, with seller, list price, hours and the sum over the plan."""
    if is_early_portfolio(answer):
        return csv_of(BILL_HEAD, [("", "", TOTALS_ONLY)])
    head, more = bill_currency(answer.currency)
    if together := shared_money(answer):
        if lines := portfolio_bill(together):
            return csv_of(("for", *BILL_HEAD, *head), ([name, *bill_row(line), *more(line)] for name, line in lines))
        items = [item.to_json() for item in together.items]
        return csv_of((*items[0], "currency"), ([*item.values(), together.currency] for item in items))
    api = api_of(answer, rank)
    lines_of_one = api_bill(api) if api else bill_of(chosen(answer, rank))
    return csv_of((*BILL_HEAD, *head), ([*bill_row(line), *more(line)] for line in lines_of_one))


def bill_currency(c: Currency | None) -> tuple[list[str], Callable[[BillLine], list[Any]]]:
    """(columns, their values) of a line in the planner's currency, with the rate and its date; empty without one."""
    if c is None:
        return [], lambda line: []
    code = c.code.lower()

    def values(line: BillLine) -> list[Any]:
        hourly = line.unit_usd_per_hour
        each = None if hourly is None else round(hourly * c.per_usd, 6)
        return [converted_cents(line.unit_usd_once, c), each, converted_cents(line.usd, c), c.per_usd, c.as_of]

    return [f"unit_{code}_once", f"unit_{code}_per_hour", code, *rate_columns(code)], values


def rate_columns(code: str) -> list[str]:
    return [f"{code}_per_usd", "rate_as_of"]


def converted_cents(usd: float | None, c: Currency) -> Decimal | None:
    return None if usd is None else in_cents(usd * c.per_usd)


def bill_row(line: BillLine) -> list[Any]:
    values = {name: getattr(line, name) for name in BILL_HEAD}
    cents = ("unit_usd_once", "usd")
    return [in_cents(v) if name in cents and v is not None else v for name, v in values.items()]


def order_row(line: OrderLine) -> list[Any]:
    return [*bill_row(line), *(getattr(line, name) for name in ORDER_HEAD[len(BILL_HEAD) :])]


# --- assumptions ------------------------------------------------------------------------------------------------


def assumptions_csv(answer: Answer, rank: int) -> str:
    """Every default that the answer rests on, its value, source and age."""
    return csv_of(ASSUMPTIONS_HEAD, map(assumption_row, answer.assumptions))


def assumption_row(item: Assumption) -> list[Any]:
    return [age_days(item.as_of) if name == "age_days" else getattr(item, name) for name in ASSUMPTIONS_HEAD]


def age_days(as_of: str | None) -> int | None:
    """Days from the date of a source to today; None: it has no full date."""
    try:
        return (clock.today() - datetime.date.fromisoformat(as_of or "")).days
    except ValueError:
        return None


# --- cash flow --------------------------------------------------------------------------------------------------


def cash_flow_csv(answer: Answer, rank: int) -> str:
    """Cash of each month to the cent; the carrying value at the horizon is a credit."""
    if is_early_portfolio(answer):
        return csv_of(CASH_HEAD, [(TOTALS_ONLY,)])
    m = money_of(answer, rank)
    if m is None:
        return csv_of(CASH_HEAD, early_cash(chosen(answer, rank)))
    plan, c = m.plan if isinstance(m, Money) else None, answer.currency
    served = {month.month: month for month in plan.months} if plan else {}
    rows = (
        [
            *totals_of(flow),
            m.currency,
            m.prices_as_of,
            *parts_of(flow),
            *counts_of(served.get(flow.month)),
            *([*(converted_cents(getattr(flow, name), c) for name in TOTALS), c.per_usd, c.as_of] if c else []),
        ]
        for flow in m.cash_flow
    )
    return csv_of((*CASH_HEAD, *cash_currency(c)), rows)


def cash_currency(c: Currency | None) -> list[str]:
    """The columns of the totals in the planner's currency, with the rate and its date; empty without one."""
    code = c.code.lower() if c else ""
    return [*(name.replace("usd", code) for name in TOTALS), *rate_columns(code)] if c else []


def totals_of(flow: CashFlow) -> list[Any]:
    return [flow.month, *(in_cents(getattr(flow, name)) for name in TOTALS)]


def parts_of(flow: CashFlow) -> list[Decimal | None]:
    """Parts of the running cost; empty in answers that kept only their sum."""
    if "rent_usd" not in flow.model_fields_set:
        return [None] * len(PARTS)
    other_usd = flow.running_usd - flow.rent_usd - flow.energy_usd - flow.staff_usd
    return [in_cents(usd) for usd in (flow.rent_usd, flow.energy_usd, flow.staff_usd, other_usd, flow.book_value_usd)]


def counts_of(month: PlanMonth | None) -> list[int | None]:
    return [getattr(month, name) if month else None for name in COUNTS]


def early_cash(r: Option | TrainingOption) -> list[Sequence[Any]]:
    """The two figures that an answer of totals has: the cost of a month, and the present value of all months."""
    paid = (CURRENCY, r.price_as_of)
    return [
        ("each", None, None, None, f"{r.usd_per_month:.2f}", None, *paid),
        ("all", None, None, None, None, f"{r.tco_usd:.2f}", *paid),
        (TOTALS_ONLY,),
    ]
