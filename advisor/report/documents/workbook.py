"""The costs as a spreadsheet with live formulas: prices, hours and rates are cells, sums are computed from them."""

import datetime
import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from xlsxwriter import Workbook
from xlsxwriter.utility import xl_col_to_name

from advisor.report.documents.bill import COLUMNS, SHARE, running_parts, tax_lines
from advisor.report.documents.ledger import Array, Ledger, ledger
from advisor.report.documents.memos.memo import memo
from advisor.report.documents.order import HEAD as ORDER_HEAD
from advisor.report.documents.order import OrderLine, orders
from advisor.report.documents.sheet import HOURS, RATE, RATIO, UNIT_USD, USD, WHOLE, Formula, Sheet, sheets_of
from advisor.report.documents.subject import TOTALS_ONLY, api_of, chosen, money_of
from advisor.report.documents.tables import ASSUMPTIONS_HEAD, COUNTS, assumption_row
from advisor.report.text import name_of
from advisor.result import Answer, Currency, Money, Option, Plan, PlanStep, PortfolioMoney, TrainingOption, machine_of

NAMES = ("Summary", "Plan", "Cash flow", "Bill", "Assumptions", "Scenarios", "Ranges", "Bill of materials")
PLAN_HEAD = (
    "action", "quantity", "item", "provider", "region", "term", "from month", "until month", "paid until month",
    "order months before", "list price of one, USD once", "network, storage, spares: fraction of the price",
    "purchase, USD", "list price of one, USD per hour", "paid hours", "rent at list prices, USD", "price as of",
    "source",
)  # fmt: skip
QUANTITY, FROM, ONCE, ADDED, PURCHASE, HOURLY, PAID, PLAN_RENT = 1, 6, 10, 11, 12, 13, 14, 15
CASH_HEAD = (
    "month", "purchases, USD", "rent, USD", "energy, USD", "staff, USD", "other running, USD", "resale, USD",
    "rounding, USD", "total, USD", "present value, USD", "book value, USD", *(n.replace("_", " ") for n in COUNTS),
    "expected energy, USD", "expected staff, USD", "expected other running, USD", "expected resale, USD",
    "other purchases, USD", "rent beyond list prices, USD",
)  # fmt: skip
CAPITAL, RENT, ENERGY, STAFF, OTHER, RESALE, LOST, TOTAL, PRESENT, BOOK, FIRST_COUNT = range(1, 12)
EXPECTED, MORE_CAPITAL, MORE_RENT, FIRST_HOURS = 15, 19, 20, 21
BILL_HEAD = (
    "line", "quantity", "list price of one, USD once", "list price of one, USD per hour", "paid hours",
    "share of its cash column", "over the plan, USD", "provider", "price as of", "source",
)  # fmt: skip
BILL_CURRENCY = len(BILL_HEAD)
INPUTS = (
    ("discount rate", "per year"),
    ("energy cost over expected", "ratio"),
    ("staff cost over expected", "ratio"),
    ("other running cost over expected", "ratio"),
    ("resale value over expected", "ratio"),
)
INPUT_HEAD, RESULT_HEAD = 4, 12


def workbook(answer: Answer, rank: int) -> bytes:
    """The XLSX file of one option, or of a portfolio."""
    m = money_of(answer, rank)
    option = None if answer.portfolio or api_of(answer, rank) else chosen(answer, rank)
    out = io.BytesIO()
    book = Workbook(out, {"in_memory": True, "strings_to_formulas": False, "strings_to_urls": False})
    book.set_properties({"title": name_of(answer), "created": datetime.datetime(2026, 1, 1)})
    sheets = sheets_of(book, NAMES)
    found = memo(answer, rank)
    for row, text in enumerate((found.title, found.verdict, found.dated)):
        sheets["Summary"].put(row, 0, text)
    if m is None:
        sheets["Summary"].rows(totals(option), ("", USD), first=INPUT_HEAD)
    else:
        fill(sheets, answer, m, option)
    sheets["Assumptions"].head(ASSUMPTIONS_HEAD)
    sheets["Assumptions"].rows(map(assumption_row, answer.assumptions))
    scenarios_sheet(sheets["Scenarios"], answer)
    ranges_sheet(sheets["Ranges"], answer, m)
    order_sheet(sheets["Bill of materials"], [line for _, line in orders(answer, rank)])
    book.close()
    return out.getvalue()


def totals(option: Option | TrainingOption | None) -> Iterator[tuple[str, float | None]]:
    """All that an answer of an early version has."""
    yield TOTALS_ONLY, None
    if option is not None:
        yield "cost per month, USD", option.usd_per_month
        yield "present value of costs, USD", option.tco_usd


def fill(
    sheets: dict[str, Sheet], answer: Answer, m: Money | PortfolioMoney, option: Option | TrainingOption | None
) -> None:
    """The sheets that compute."""
    sheet = Filled(
        m=m, plan=m.plan if isinstance(m, Money) else None, book=ledger(m), summary=sheets["Summary"],
        steps=sheets["Plan"], cash=sheets["Cash flow"], bill=sheets["Bill"], currency=answer.currency,
    )  # fmt: skip
    sheet.write_plan()
    sheet.write_cash()
    sheet.write_summary(answer, *sheet.write_bill(option))


@dataclass(frozen=True, kw_only=True, slots=True)
class Filled:
    """The sheets of one deployment or portfolio, which refer to each other's cells."""

    m: Money | PortfolioMoney
    plan: Plan | None
    book: Ledger
    summary: Sheet
    steps: Sheet
    cash: Sheet
    bill: Sheet
    currency: Currency | None

    def rate(self) -> str:
        """The cell with the rate of the planner's currency."""
        return self.input(len(INPUTS))

    def converted(self, sheet: Sheet, row: int, column: int, cell: str, usd: float) -> None:
        """Writes an amount again in the planner's currency; nothing without one."""
        if self.currency is not None:
            value = usd * self.currency.per_usd
            sheet.put(row, column, Formula(text=f"={cell}*{self.rate()}", value=value), USD)

    def in_currency(self, *names: str) -> list[str]:
        """Titles of amounts in the planner's currency, with the date of its rate; empty without one."""
        c = self.currency
        return [f"{name}, {c.code} (rate of {c.as_of})" for name in names] if c else []

    def column(self, column: int, first: int = 1) -> str:
        """A column of the cash flow over all months."""
        return self.cash.range(column, first, len(self.book.flows))

    def input(self, k: int) -> str:
        """The cell of an input."""
        return self.summary.at(INPUT_HEAD + 1 + k, 1)

    def hours_column(self, step: int) -> int:
        return FIRST_HOURS + list(self.book.hours).index(step)

    # --- plan ---------------------------------------------------------------------------------------------------

    def write_plan(self) -> None:
        """The steps; quantities and list prices are inputs."""
        self.steps.head(PLAN_HEAD)
        if not self.book.steps:
            self.steps.put(1, 0, "This answer has no dated plan.")
        for k, step in enumerate(self.book.steps):
            row, put, line = k + 1, self.steps.put, k + 2
            for column, value in enumerate(
                (step.action, step.instances, machine_of(step), step.provider, step.region, step.term, step.from_month,
                 step.until_month, step.paid_until_month, step.order_months_before)
            ):  # fmt: skip
                put(row, column, value, given=column == QUANTITY and step.unit_usd_once is not None)
            if step.unit_usd_once is not None:
                added = self.book.added_fraction.get(k, 0.0)
                put(row, ONCE, step.unit_usd_once, USD, given=True)
                put(row, ADDED, added, RATIO, given=True)
                usd = step.instances * step.unit_usd_once * (1.0 + added)
                put(row, PURCHASE, Formula(text=f"=B{line}*K{line}*(1+L{line})", value=usd), USD)
            if step.unit_usd_per_hour is not None:
                hours = math.fsum(self.book.hours[k])
                put(row, HOURLY, step.unit_usd_per_hour, UNIT_USD, given=True)
                put(row, PAID, Formula(text=f"=SUM({self.column(self.hours_column(k))})", value=hours), HOURS)
                usd = hours * step.unit_usd_per_hour
                put(row, PLAN_RENT, Formula(text=f"=N{line}*O{line}", value=usd), USD)
            put(row, PLAN_RENT + 1, step.price_as_of)
            put(row, PLAN_RENT + 2, step.price_source)

    # --- cash flow ----------------------------------------------------------------------------------------------

    def write_cash(self) -> None:
        """Payments by month: formulas first, what they are computed from behind them."""
        steps = [self.book.steps[k] for k in self.book.hours]
        hours = [f"paid hours of {s.instance} at {s.provider} ({s.term})" for s in steps]
        last = FIRST_HOURS + len(hours)
        self.cash.head((*CASH_HEAD, *hours, *self.in_currency("total", "present value")))
        months = {month.month: month for month in (self.plan.months if self.plan else [])}
        for k, flow in enumerate(self.book.flows):
            row, b = k + 1, self.book
            self.cash.put(row, 0, flow.month, WHOLE)
            self.write_payments(row, k)
            self.cash.put(row, BOOK, flow.book_value_usd, USD)
            if month := months.get(flow.month):
                for column, name in enumerate(COUNTS, start=FIRST_COUNT):
                    self.cash.put(row, column, getattr(month, name), WHOLE)
            given = (b.energy, b.staff, b.other, b.resale, b.more_capital, b.more_rent)
            for column, usd in enumerate(given, start=EXPECTED):
                self.cash.put(row, column, float(usd[k]), USD, given=True)
            for column, step_hours in enumerate(b.hours.values(), start=FIRST_HOURS):
                self.cash.put(row, column, float(step_hours[k]), HOURS, given=True)
            paid_usd = float(b.total[k])
            self.converted(self.cash, row, last, self.cash.at(row, TOTAL), paid_usd)
            self.converted(self.cash, row, last + 1, self.cash.at(row, PRESENT), paid_usd * float(b.discount[k]))

    def write_payments(self, row: int, k: int) -> None:
        """The formulas of one month."""
        b, line = self.book, row + 1
        written: list[tuple[int, str, Array]] = [
            (CAPITAL, f"={self.bought(line)}T{line}", b.capital),
            (RENT, f"={self.rented(line)}U{line}", b.rent),
            (TOTAL, f"=SUM(B{line}:F{line})-G{line}+H{line}", b.total),
            (PRESENT, f"=I{line}*(1+{self.input(0)})^(-A{line}/12)", b.total * b.discount),
        ]
        scaled = ((ENERGY, b.energy), (STAFF, b.staff), (OTHER, b.other), (RESALE, b.resale))
        for k_input, (column, usd) in enumerate(scaled, start=1):
            source = xl_col_to_name(EXPECTED + k_input - 1)
            written.append((column, f"={source}{line}*{self.input(k_input)}", usd))
        for column, text, usd in written:
            self.cash.put(row, column, Formula(text=text, value=float(usd[k])), USD)
        self.cash.put(row, LOST, float(b.lost[k]), RATIO)

    def bought(self, line: int) -> str:
        """Purchases of a month, from the plan."""
        if not self.book.added_fraction:
            return ""
        first, usd = (self.steps.range(column, 1, len(self.book.steps)) for column in (FROM, PURCHASE))
        return f"SUMPRODUCT(({first}=A{line}+1)*{usd})+"

    def rented(self, line: int) -> str:
        """Rent of a month: paid hours times list prices."""
        return "".join(
            f"{xl_col_to_name(self.hours_column(k))}{line}*{self.steps.at(k + 1, HOURLY)}+" for k in self.book.hours
        )

    # --- bill ---------------------------------------------------------------------------------------------------

    def write_bill(self, option: Option | TrainingOption | None) -> tuple[Formula, Formula | None]:
        """Every line, and their sum, which is what the cash flow pays. Returns the sum, and the sum after taxes."""
        self.bill.head((*BILL_HEAD, *self.in_currency("over the plan")))
        usd = [self.write_step(k, step) for k, step in enumerate(self.book.steps)]
        once = math.fsum(s.instances * (s.unit_usd_once or 0.0) for s in self.book.steps)
        rest = [*self.rest_lines(once, math.fsum(usd) - once, len(usd) + 1), *self.running_lines()]
        if option is not None:
            rest.append((f"{option.framework} {option.framework_version}", None, "=0", 0.0, "open source"))
        first = row = len(usd) + 1
        for row, line in enumerate(rest, start=first):
            usd.append(self.write_line(row, line))
        total = Formula(text=f"=SUM(G2:G{row + 1})", value=math.fsum(usd))
        cell = self.write_total(row + 1, "total", total)
        return Formula(text=f"={cell}", value=total.value), self.write_taxes(row + 2, total.value)

    def write_line(self, row: int, line: "Line") -> float:
        name, fraction, text, paid, source = line
        self.bill.put(row, 0, name)
        self.bill.put(row, 5, fraction, RATIO, given=True)
        cell = self.bill.put(row, 6, Formula(text=text.format(line=row + 1), value=paid), USD)
        self.converted(self.bill, row, BILL_CURRENCY, cell, paid)
        self.bill.put(row, 9, source)
        return paid

    def write_total(self, row: int, name: str, total: Formula) -> str:
        self.bill.put(row, 0, name)
        cell = self.bill.put(row, 6, total, USD)
        self.converted(self.bill, row, BILL_CURRENCY, cell, total.value)
        return cell

    def write_taxes(self, row: int, total_usd: float) -> Formula | None:
        """VAT and the income tax saved, below the total, and the total after them; None without taxes."""
        taxes = self.m.taxes if isinstance(self.m, Money) else None
        lines = list(tax_lines(self.m)) if isinstance(self.m, Money) else []
        if taxes is None or not lines:
            return None
        usd = total_usd
        for k, line in enumerate(lines):
            value, paid = line.usd or 0.0, Formula(text="", value=0.0)
            self.bill.put(row + k, 0, line.item)
            if value < 0:
                self.bill.put(row + k, 5, taxes.income_tax_fraction, RATIO, given=True)
                paid = Formula(text=f"=-F{row + k + 1}*SUM(G{row}:G{row + k})", value=-taxes.income_tax_fraction * usd)
                value = paid.value
            cell = self.bill.put(row + k, 6, paid if paid.text else value, USD, given=not paid.text)
            self.converted(self.bill, row + k, BILL_CURRENCY, cell, value)
            usd += value
        cell = self.write_total(
            row + len(lines), "total after taxes", Formula(text=f"=SUM(G{row}:G{row + len(lines)})", value=usd)
        )
        return Formula(text=f"={cell}", value=usd)

    def write_step(self, k: int, step: PlanStep) -> float:
        """The line of one step of the plan; returns its USD at list prices."""
        row, put, line = k + 1, self.bill.put, k + 2
        put(row, 0, f"{step.action} {machine_of(step)}, months {step.from_month} to {step.until_month}")
        put(row, 1, Formula(text=f"={self.steps.at(row, QUANTITY)}", value=step.instances), WHOLE)
        usd = 0.0
        if step.unit_usd_once is not None:
            usd = step.instances * step.unit_usd_once
            put(row, 2, Formula(text=f"={self.steps.at(row, ONCE)}", value=step.unit_usd_once), USD)
        if step.unit_usd_per_hour is not None:
            hours = math.fsum(self.book.hours[k])
            usd = hours * step.unit_usd_per_hour
            put(row, 3, Formula(text=f"={self.steps.at(row, HOURLY)}", value=step.unit_usd_per_hour), UNIT_USD)
            put(row, 4, Formula(text=f"={self.steps.at(row, PAID)}", value=hours), HOURS)
        cell = put(row, 6, Formula(text=f"=B{line}*C{line}+D{line}*E{line}", value=usd), USD)
        self.converted(self.bill, row, BILL_CURRENCY, cell, usd)
        for column, text in enumerate((step.provider, step.price_as_of, step.price_source), start=7):
            put(row, column, text)
        return usd

    def rest_lines(self, once_usd: float, rent_usd: float, last: int) -> Iterator["Line"]:
        """Purchases and rent beyond list prices, resale, lost cents; `last`: the last line of a step."""
        b, steps = self.book, bool(self.book.steps)
        listed = f"-SUMPRODUCT(B2:B{last},C2:C{last})", f"-SUMPRODUCT(D2:D{last},E2:E{last})"
        minus_once, minus_rent = listed if steps else ("", "")
        name = "network, storage and spares" if steps else "purchases with network, storage and spares"
        yield name, None, f"=SUM({self.column(CAPITAL)}){minus_once}", float(b.capital.sum()) - once_usd, SHARE
        name = "rent beyond list prices: price changes, interruptions, early exit" if steps else "rent"
        yield name, None, f"=SUM({self.column(RENT)}){minus_rent}", float(b.rent.sum()) - rent_usd, ASSUMED
        yield "resale of the hardware", None, f"=-SUM({self.column(RESALE)})", -float(b.resale.sum()), ASSUMED
        yield "rounding of months to cents", None, f"=SUM({self.column(LOST)})", float(b.lost.sum()), ""

    def running_lines(self) -> Iterator["Line"]:
        """Running parts, each a share of the cash column that pays for it."""
        paid = {
            "energy": (ENERGY, self.book.energy),
            "staff": (STAFF, self.book.staff),
            "other": (OTHER, self.book.other),
        }
        known = self.plan is not None or all(part.total_usd is not None for part in self.m.parts)
        shares = [(s.name, s.column, s.fraction) for s in running_parts(self.m)] if known else []
        named = {column for _, column, _ in shares}
        shares += [(f"{column} running cost", column, 1.0) for column in COLUMNS if column not in named]
        for name, column, fraction in shares:
            where, usd = paid[column]
            yield name, fraction, f"=F{{line}}*SUM({self.column(where)})", fraction * float(usd.sum()), ASSUMED

    # --- summary ------------------------------------------------------------------------------------------------

    def write_summary(self, answer: Answer, bill_usd: Formula, taxed_usd: Formula | None) -> None:
        """Inputs, then the results: computed, as the answer has them, and the difference."""
        put, c = self.summary.put, answer.currency
        self.summary.head(("inputs: the yellow cells of all sheets may be changed", "value", "unit"), INPUT_HEAD)
        for k, (name, unit) in enumerate(INPUTS):
            self.summary.rows([(name, None, unit)], first=INPUT_HEAD + 1 + k)
            value = self.m.discount_fraction_per_year if k == 0 else 1.0
            put(INPUT_HEAD + 1 + k, 1, value, RATE if k == 0 else RATIO, given=True)
        if c is not None:
            row = INPUT_HEAD + 1 + len(INPUTS)
            put(row, 0, f"{c.code} for one USD, {c.as_of} ({c.source})")
            put(row, 1, c.per_usd, RATIO, given=True)
            put(row, 2, f"{c.code} per USD")
        head = ("results", "computed here", "unit", "in the answer", "difference")
        self.summary.head((*head, f"computed, {c.code}") if c else head, RESULT_HEAD)
        results = self.results(bill_usd, taxed_usd)
        for row, (name, formula, unit, answered, number) in enumerate(results, start=RESULT_HEAD + 1):
            put(row, 0, name)
            cell, usd = put(row, 1, formula, number), formula.value if formula is not None else 0.0
            put(row, 2, unit)
            if answered is not None:
                stated = put(row, 3, answered, number)
                if formula is not None:
                    put(row, 4, Formula(text=f"={cell}-{stated}", value=formula.value - answered), number)
                cell, usd = (cell, formula.value) if formula is not None else (stated, answered)
            if c is not None and unit.startswith("USD"):
                self.converted(self.summary, row, 5, cell, usd)

    def results(
        self, bill_usd: Formula, taxed_usd: Formula | None
    ) -> Iterator[tuple[str, Formula | None, str, float | None, str]]:
        """(name, formula, unit, the answer's figure, number format)."""
        m, b, row = self.m, self.book, RESULT_HEAD + 2
        months = len(b.flows) - 1
        rate = (1.0 + m.discount_fraction_per_year) ** (1.0 / 12.0) - 1.0
        npv = float(b.total @ b.discount)
        annuity = float(np.sum(b.discount[1:]))
        paid = m.usd_over_horizon if isinstance(m, Money) else None
        yield "horizon", Formula(text=f"=MAX({self.column(0)})", value=months), "months", m.horizon_months, WHOLE
        yield "discount rate per month", Formula(text=f"=(1+{self.input(0)})^(1/12)-1", value=rate), "", None, RATE
        flows = Formula(text=f"=SUM({self.column(TOTAL)})", value=float(b.total.sum()))
        yield "all payments, less resale", flows, "USD", paid, USD
        worth = f"={self.cash.at(1, TOTAL)}+NPV(B{row + 1},{self.column(TOTAL, first=2)})"
        yield "present value of all payments", Formula(text=worth, value=npv), "USD", m.npv_usd, USD
        by_month = Formula(text=f"=SUM({self.column(PRESENT)})", value=npv)
        yield "the same, added up by month", by_month, "USD", m.npv_usd, USD
        equal = Formula(text=f"=-PMT(B{row + 1},B{row},B{row + 3})", value=npv / annuity)
        yield "equal monthly payment with this present value", equal, "USD per month", m.usd_per_month, USD
        yield "sum of the bill", bill_usd, "USD", paid, USD
        plan = self.plan
        bought = Formula(text=f"=SUM({self.column(CAPITAL)})", value=float(b.capital.sum()))
        yield "all purchases", bought, "USD", plan.capex_usd if plan else None, USD
        resold = Formula(text=f"=SUM({self.column(RESALE)})", value=float(b.resale.sum()))
        yield "resale", resold, "USD", plan.resale_usd if plan else None, USD
        highest = Formula(text=f"=MAX({self.column(TOTAL)})", value=float(b.total.max()))
        yield "highest payments of a month, what is due after the horizon included", highest, "USD", None, USD
        taxes = m.taxes if isinstance(m, Money) else None
        if taxes is not None:
            yield "all payments after taxes", taxed_usd or flows, "USD", None, USD
            yield "present value after taxes", None, "USD", taxes.npv_after_tax_usd, USD


Line = tuple[str, float | None, str, float, str]  # name, share of its column, formula, USD, source
ASSUMED = "sheet Assumptions"


def order_sheet(sheet: Sheet, lines: Sequence[OrderLine]) -> None:
    """What to order; a seller fills in the unit prices."""
    sheet.head(ORDER_HEAD)
    for row, line in enumerate(lines, start=1):
        sheet.rows([(line.line, line.quantity, line.item, line.specification, line.when)], ("", WHOLE), first=row)
        sheet.put(row, 6, Formula(text=f"=B{row + 1}*F{row + 1}", value=0.0), USD)


# --- scenarios and ranges ---------------------------------------------------------------------------------------


def scenarios_sheet(sheet: Sheet, answer: Answer) -> None:
    """What every option costs in every scenario, and how far that is from the base."""
    if not answer.scenarios:
        sheet.put(0, 0, "This answer has no scenarios.")
        return
    base = next((s for s in answer.scenarios if s.name == "base"), answer.scenarios[0])
    expected = {cost.rank: cost.usd_per_month for cost in base.costs}
    start: dict[int, str] = {}
    sheet.head(
        ("option", "scenario", "per month, USD", "all payments, USD", "against base, USD per month", "costs least")
    )
    options = {r.rank: r.label for r in answer.recommendations}
    lines = [(s, cost) for s in [base, *(s for s in answer.scenarios if s is not base)] for cost in s.costs]
    row = 0
    for row, (scenario, cost) in enumerate(lines, start=1):
        first = "yes" if scenario.first_rank == cost.rank else ""
        sheet.rows([(options.get(cost.rank, f"option {cost.rank}"), scenario.name)], first=row)
        cell = sheet.put(row, 2, cost.usd_per_month, USD, given=True)
        sheet.put(row, 3, cost.total_usd, USD)
        of_base = start.setdefault(cost.rank, cell)
        against = cost.usd_per_month - expected.get(cost.rank, cost.usd_per_month)
        sheet.put(row, 4, Formula(text=f"={cell}-{of_base}", value=against), USD)
        sheet.put(row, 5, first)
    sheet.head(("input", *(s.name for s in answer.scenarios)), row + 2)
    drivers = dict.fromkeys(name for s in answer.scenarios for name in s.ratios)
    sheet.rows(
        ([name, *(s.ratios.get(name, 1.0) for s in answer.scenarios)] for name in drivers),
        ("", *([RATIO] * len(answer.scenarios))),
        first=row + 3,
    )


def ranges_sheet(sheet: Sheet, answer: Answer, m: Money | PortfolioMoney | None) -> None:
    """Percentiles of the option's cost, what moves it, and what a buyer wants to know."""
    ranges, drawn = m.ranges if m else None, answer.uncertainty
    if ranges is None and drawn is None:
        sheet.put(0, 0, "This answer has no ranges.")
        return
    sheet.head(("cost of the option", "5% are lower", "median", "95% are lower", "spread"))
    row = 1
    for name, values in (
        ("equal monthly payment, USD", ranges.usd_per_month if ranges else []),
        ("all payments, USD", ranges.total_usd if ranges else []),
    ):
        sheet.rows([(name, *values)], ("", USD, USD, USD), first=row)
        if values:
            spread = Formula(text=f"=D{row + 1}-B{row + 1}", value=values[-1] - values[0])
            sheet.put(row, 4, spread, USD)
        row += 1
    if ranges:
        least = "share of the draws in which it costs least"
        row = sheet.rows([(least, ranges.wins_probability)], ("", RATE), first=row)
    if drawn is None:
        return
    row = sheet.rows([(c.said, c.probability) for c in drawn.chances], ("", RATE), first=row)
    sheet.rows([(f"{drawn.draws:,} draws with seed {drawn.seed}: {drawn.said}",)], first=row)
    head = ("uncertain input", "ratio, 5%", "ratio, 95%", "USD per month at 5%", "USD per month at 95%",
            "share of the variance", "source")  # fmt: skip
    sheet.head(head, row + 2)
    drivers = [
        (d.name, d.low, d.high, d.usd_per_month_low, d.usd_per_month_high, d.variance_fraction, d.source)
        for d in drawn.drivers
    ]
    sheet.rows(drivers, ("", RATIO, RATIO, USD, USD, RATE), first=row + 3)
