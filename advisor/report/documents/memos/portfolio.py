"""The memo of a portfolio: of its shared fleet, or of each workload alone."""

import math
from collections.abc import Sequence

from advisor.report.documents.bill import portfolio_bill
from advisor.report.documents.memos.parts import (
    FIGURES,
    Line,
    Memo,
    Part,
    Row,
    dated,
    fact,
    memo_of,
    note,
    quote_text,
    range_rows,
    table,
)
from advisor.report.documents.memos.signing import portfolio_approval
from advisor.report.documents.subject import (
    TOTALS_ONLY,
)
from advisor.report.documents.wording import (
    dollars,
    months_text,
)
from advisor.report.text import name_of, replicas_text
from advisor.result import (
    Answer,
    Currency,
    FleetItem,
    Portfolio,
    PortfolioMoney,
    machines_text,
)
from advisor.templatetags import finance

MOST_RUNS = 12
MOST_LINES = 14
NOT_COUNTED = (
    "the time to load another model when an accelerator switches workloads is not counted",
    "the shared fleet is priced at full power: idle hours of bought machines cost a little less",
)


def early_portfolio_memo(answer: Answer, portfolio: Portfolio) -> Memo:
    """What is known of a portfolio of an earlier version: its verdict and that of each workload."""
    return memo_of(
        title=name_of(answer),
        verdict=answer.verdict,
        parts=[
            Part(title="Money", items=[TOTALS_ONLY]),
            Part(title="Alternatives considered", items=alone_texts(portfolio)),
        ],
        dated=dated(answer, None),
    )


def portfolio_memo(answer: Answer, portfolio: Portfolio, m: PortfolioMoney) -> Memo:
    """Of the shared fleet; where there is none, of each workload alone."""
    shared, alone, currency = portfolio.shared, alone_texts(portfolio), answer.currency
    money = [
        fact("per month", m.usd_per_month),
        fact("upfront purchase", m.capital_usd) if m.capital_usd else note("upfront purchase", "none (rented)"),
        fact(f"all payments over {m.horizon_months} months", sum(flow.total_usd for flow in m.cash_flow)),
        fact(f"present value of costs over {m.horizon_months} months", m.npv_usd),
    ]
    if shared and portfolio.alone_usd_per_month is not None:
        money.append(fact("each workload alone, per month", portfolio.alone_usd_per_month))
    schedule = [
        f"{r.workload} on {r.machine}: {h.when}, {replicas_text(h.replicas)}"
        for r in (shared.runs if shared else [])
        for h in r.hours
    ][:MOST_RUNS]
    load_test = (
        "load test one machine with the workloads that share it, at their peaks"
        if shared
        else "load test one replica of each workload at its share of the peak"
    )
    quotes = [quote_text(i.item, i.provider, i.price_as_of) for i in m.items if i.is_paid]
    return memo_of(
        title=f"{name_of(answer)}: {m.of}",
        verdict=answer.verdict,
        parts=[
            Part(title="Decision", rows=table(FIGURES, money, currency)),
            Part(title="Range", rows=range_rows(m.ranges, [], None, currency)),
            Part(title="What to sign", rows=item_rows(m.items, currency)),
            Part(title=f"Bill over {m.horizon_months} months", rows=portfolio_bill_rows(m, currency)),
            Part(title="Schedule", items=schedule) if schedule else Part(title="Each workload alone", items=alone),
            Part(
                title="Alternatives considered",
                items=alone if shared else [f"one shared fleet: {portfolio.reason}"],
            ),
            Part(
                title="Risks",
                items=list(NOT_COUNTED) if shared else ["each workload has its own risks: see its own answer"],
            ),
            Part(title="Before signing", items=[load_test, *dict.fromkeys(quotes)]),
            portfolio_approval(m),
        ],
        dated=dated(answer, m),
    )


def item_rows(items: Sequence[FleetItem], currency: Currency | None) -> list[Row]:
    """The machines of a portfolio at their list prices."""
    lines = [
        Line(
            cells=(
                i.for_workload,
                f"{i.action} {machines_text(i.quantity or 0, i.machine or i.item)}".strip(),
                "a supplier" if i.provider == "own" else i.provider,
                item_price(i),
                months_text(i.from_month, i.until_month) if i.from_month and i.until_month else "",
            ),
            usd=(i.list_usd_once if i.list_usd_once is not None else i.list_usd_per_hour,),
        )
        for i in items
    ]
    return table(("for", "quantity and item", "seller", "list price", "when"), lines, currency, ("list price",))


def item_price(i: FleetItem) -> str:
    """List price; answers of earlier versions have the cost of one with everything that it needs."""
    if i.list_usd_once is not None:
        return f"{finance.unit_price(i.list_usd_once)} each, as of {i.price_as_of}"
    if i.list_usd_per_hour is not None:
        return (
            f"{finance.unit_price(i.list_usd_per_hour)} per hour x {i.paid_hours or 0.0:,.0f} h, as of {i.price_as_of}"
        )
    if not i.is_paid:
        return "already paid"
    if i.unit_usd_once:
        return f"no list price; {dollars(i.unit_usd_once)} each with network, storage and spares"
    return f"no list price; {dollars(i.unit_usd_per_month or 0.0)} per month each, all costs included"


def portfolio_bill_rows(m: PortfolioMoney, currency: Currency | None) -> list[Row]:
    """What every line costs over the horizon, lines of the same item together; empty in answers without list prices."""
    sums: dict[str, float] = {}
    for _, line in portfolio_bill(m):
        name = f"{line.action} {line.item}" if line.action in ("rent", "reserve", "buy", "keep") else line.item
        sums[name] = sums.get(name, 0.0) + (line.usd or 0.0)
    lines = [fact(name, usd) for name, usd in sums.items() if round(usd, 2)]
    if not lines:
        return []
    if len(lines) > MOST_LINES:
        rest = math.fsum(usd for line in lines[MOST_LINES:] for usd in line.usd if usd)
        lines = [*lines[:MOST_LINES], fact("other lines: see the list of costs", rest)]
    return table(("line", "cost"), [*lines, fact("total", math.fsum(sums.values()))], currency)


def alone_texts(portfolio: Portfolio) -> list[str]:
    return [f"{a.name} alone: {a.verdict}" for a in portfolio.alone]
