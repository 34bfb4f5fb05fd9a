"""The decision memo for finance: what to sign, what it can cost, what else was considered, at which risk."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from advisor.answer import CURRENCY, likely
from advisor.report import markdown_escapes as md
from advisor.report.asked import allows_apis, api_seller, has_changing_traffic, horizon_months
from advisor.report.documents.bill import income_tax_saved_usd, portfolio_bill
from advisor.report.documents.subject import (
    TOTALS_ONLY,
    better_api,
    cheapest_api,
    chosen,
    prices_used,
)
from advisor.report.documents.wording import (
    capital,
    converted,
    counted,
    dollars,
    is_late,
    largest_payment,
    months_text,
    order_text,
    payment_month_text,
    plan_text,
    price,
    purchase_text,
    range_text,
    rate_text,
    unit_price,
)
from advisor.report.text import EQUALS, figure, least_text, markdown_table, meetings, name_of, replicas_text, usd_small
from advisor.result import (
    Answer,
    ApiOption,
    CostRanges,
    Currency,
    FleetItem,
    HostedOffer,
    Money,
    Option,
    Plan,
    PlanStep,
    Portfolio,
    PortfolioMoney,
    Scenario,
    Taxes,
    WayToPay,
)
from advisor.templatetags import finance
from advisor.templatetags.finance import rate as percent

MOST_OTHERS, MOST_REJECTED, MOST_RISKS, MOST_BREAK_POINTS, MOST_STEPS, MOST_RUNS, MOST_LINES = 4, 2, 7, 3, 8, 12, 14
LIMITS = {
    "ttft_ms_p95": "first token within {:,.10g} ms",
    "tpot_ms_p95": "each further token within {:,.10g} ms",
    "e2e_ms_p95": "whole answers within {:,.10g} ms",
    "tokens_per_s_per_user": "{:,.10g} tokens/s for each user",
    "confidence": "{:.0%} probability of meeting them",
}
NOT_COUNTED = (
    "the time to load another model when an accelerator switches workloads is not counted",
    "the shared fleet is priced at full power: idle hours of bought machines cost a little less",
)
FIGURES = ("figure", "value")
Row = Sequence[str]
API_RISKS = (
    "no term fixes the price or keeps the model available: the provider can change both at any time",
    "capacity, rate limits and availability are the provider's: agree on them in writing",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """One section: a table whose first row is the head, then a list."""

    title: str
    rows: Sequence[Row] = ()
    items: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Memo:
    """Two printed pages."""

    title: str
    verdict: str
    parts: list[Part]
    dated: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """A row of a table, with the amounts that its last columns repeat in the planner's currency."""

    cells: Row
    usd: Sequence[float | None] = ()


def table(head: Row, lines: Iterable[Line], currency: Currency | None, columns: Sequence[str] = ("",)) -> list[Row]:
    """The rows under their head; with a currency, each of `columns` again in it, the first with its dated rate."""
    lines = list(lines)
    if currency is None or not any(usd is not None for line in lines for usd in line.usd):
        return [head, *(line.cells for line in lines)]
    code = currency.code
    more = [f"{name}, {code}" if name else f"in {code}" for name in columns]
    more[0] += f" ({rate_text(currency)})"
    return [
        (*head, *more),
        *(
            (*line.cells, *("" if usd is None else converted(usd, currency) for usd in padded(line.usd, len(columns))))
            for line in lines
        ),
    ]


def padded(usd: Sequence[float | None], count: int) -> list[float | None]:
    return [*usd, *([None] * count)][:count]


def fact(name: str, usd: float, text: str | None = None) -> Line:
    """A row with one amount; text: the amount in words."""
    return Line(cells=(name, dollars(usd) if text is None else text), usd=(usd,))


def note(name: str, text: str) -> Line:
    return Line(cells=(name, text))


def memo(answer: Answer, rank: int = 1) -> Memo:
    """The memo of one option, or of a portfolio. Http404: there is no option of that rank."""
    if answer.portfolio is not None and answer.portfolio.has_no_costs_stored:
        return early_portfolio_memo(answer, answer.portfolio)
    if answer.portfolio is not None and answer.portfolio.money is not None:
        return portfolio_memo(answer, answer.portfolio, answer.portfolio.money)
    option = answer.option(rank)
    if isinstance(option, ApiOption):
        return api_memo(answer, option)
    r, currency = chosen(answer, rank), answer.currency
    plan = r.money.plan if r.money else None
    return memo_of(
        title=f"{name_of(answer)}: {purchase_text(r)}",
        verdict=verdict_text(answer, r),
        parts=[
            Part(title="Decision", rows=table(FIGURES, decision_rows(r), currency)),
            range_part(answer, r),
            Part(title="What to sign", rows=signed_rows(plan, currency) if plan else []),
            Part(title="Money", rows=table(FIGURES, money_rows(r), currency), items=[] if r.money else [TOTALS_ONLY]),
            Part(title="Alternatives considered", items=alternatives(answer, r)),
            Part(title="Risks", items=risks(answer, r)),
            Part(title="Before signing", items=tests(answer, r)),
        ],
        dated=dated(answer, r.money),
    )


def memo_of(title: str, verdict: str, parts: list[Part], dated: str) -> Memo:
    """The memo without its empty sections."""
    kept = [part for part in parts if len(part.rows) > 1 or part.items]
    return Memo(title=title, verdict=verdict, parts=kept, dated=dated)


def api_memo(answer: Answer, api: ApiOption) -> Memo:
    """A hosted API: no machines, no plan, a bill by token; the best deployment is an alternative."""
    currency, weights = answer.currency, "compare its quality"
    if api.quantization:
        weights = f"compare the quality of its {api.quantization} weights"
    return memo_of(
        title=f"{name_of(answer)}: use the API of {api_seller(api)}",
        verdict=api_verdict(answer, api),
        parts=[
            Part(title="Decision", rows=table(FIGURES, api_decision(answer, api), currency)),
            api_range(answer, api),
            Part(
                title="What to sign",
                rows=[
                    ("action", "seller", "list price", "when"),
                    (
                        f"use {api.name}, pay per token",
                        api_seller(api),
                        api_prices(api),
                        "from month 1 on, without a term",
                    ),
                ],
            ),
            Part(title="Money", rows=api_bill(answer, api)),
            Part(title="Alternatives considered", items=api_alternatives(answer, api)),
            Part(title="Risks", items=[*api.warnings[: MOST_RISKS - len(API_RISKS)], *API_RISKS]),
            Part(
                title="Before signing",
                items=[
                    "measure the latency with your own prompts at your peak",
                    quote_text(f"the price per token of {api.name}", api_seller(api), api.price_as_of),
                    f"{weights} with the published model on your own evaluation",
                ],
            ),
        ],
        dated=f"Prices as of {api.price_as_of}, {CURRENCY}; {engine_text(answer)}",
    )


def month_name(answer: Answer) -> str:
    """The monthly bill of an API where the traffic changes: that of a mean month."""
    return "mean month of the forecast" if has_changing_traffic(answer) else "per month"


def api_decision(answer: Answer, api: ApiOption) -> Iterator[Line]:
    yield fact(month_name(answer), api.usd_per_month)
    months = horizon_months(answer)
    yield fact(f"present value of costs{f' over {months} months' if months else ''}", api.tco_usd)
    yield note("upfront purchase", "none")
    yield note("commitment", "none: every token is paid when it is used")


def api_prices(api: ApiOption) -> str:
    cached = api.usd_per_mtok_cached_input
    prices = [f"{usd_small(api.usd_per_mtok_input)} input"]
    prices += [f"{usd_small(cached)} cached input"] if cached is not None else []
    output = f"{usd_small(api.usd_per_mtok_output)} output per million tokens"
    return f"{', '.join(prices)} and {output}, as of {api.price_as_of}"


def api_bill(answer: Answer, api: ApiOption) -> list[Row]:
    """The month by kind of token, and its total."""
    name = "cost of a mean month of the forecast" if has_changing_traffic(answer) else "cost per month"
    lines = [
        Line(
            cells=(
                f"{line.name} tokens",
                f"{figure(line.tokens_per_month)}",
                usd_small(line.usd_per_mtok),
                dollars(line.usd_per_month),
            ),
            usd=(line.usd_per_month,),
        )
        for line in api.bill
    ]
    lines += [Line(cells=("total", "", "", dollars(api.usd_per_month)), usd=(api.usd_per_month,))] if lines else []
    return table(("tokens", "per month", "per million", name), lines, answer.currency)


def api_range(answer: Answer, api: ApiOption) -> Part:
    """Percentiles from the ranges of traffic and API prices, scenarios, and the chances against the cheapest API."""
    spread = math.hypot(*(math.log(swing(answer, name)) for name in API_SWINGS))
    months = horizon_months(answer)
    ranges = None
    if spread and months:
        monthly = [api.usd_per_month * math.exp(spread * end) for end in (-1.0, 0.0, 1.0)]
        ranges = CostRanges(
            usd_per_month=monthly,
            total_usd=[usd * months for usd in monthly],
            wins_probability=0.0,
            over_budget_probability=None,
        )
    rows = range_rows(ranges, answer.scenarios, api.rank, answer.currency) if ranges or answer.scenarios else []
    chances = answer.uncertainty.chances if answer.uncertainty else []
    items = [f"{capital(c.said)}: {likely(c.probability)} probability" for c in chances if "API" in c.said]
    drawn = (
        ["The traffic and the price of the API are drawn; every draw is constant over the horizon"] if ranges else []
    )
    return Part(title="Range", rows=rows, items=[*drawn, *items])


API_SWINGS = ("load-swing-ratio", "rent-price-swing-ratio")  # of the traffic, and of API prices as of rents


def swing(answer: Answer, name: str) -> float:
    """The 90% range of an uncertain input is from 1 / this to this; 1: not known."""
    value = next((a.value for a in answer.assumptions if a.name == name), 1.0)
    return max(float(value), 1.0) if isinstance(value, int | float) else 1.0


def api_alternatives(answer: Answer, api: ApiOption) -> list[str]:
    """The best deployment first, then the other options, then rejected accelerators."""
    best = answer.deployments[:1]
    items = [
        f"option {r.rank}, the best deployment: {purchase_text(r)}: {dollars(r.usd_per_month)} per month" for r in best
    ]
    others = [o for o in answer.recommendations if o is not api and o not in best]
    return [
        *items,
        *(f"{other(o)}: {dollars(o.usd_per_month)} per month" for o in others[:MOST_OTHERS]),
        *rejections(answer),
    ]


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
        ],
        dated=dated(answer, m),
    )


def item_rows(items: Sequence[FleetItem], currency: Currency | None) -> list[Row]:
    """The machines of a portfolio at their list prices."""
    lines = [
        Line(
            cells=(
                i.for_workload,
                f"{i.action} {figure(i.quantity)} x {i.item}".strip(),
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
        name = f"{line.action} {line.item}"
        sums[name] = sums.get(name, 0.0) + (line.usd or 0.0)
    lines = [fact(name, usd) for name, usd in sums.items() if round(usd, 2)]
    if not lines:
        return []
    if len(lines) > MOST_LINES:
        rest = math.fsum(usd for line in lines[MOST_LINES:] for usd in line.usd if usd)
        lines = [*lines[:MOST_LINES], fact("other lines: see the bill of materials", rest)]
    return table(("line", "cost"), [*lines, fact("total", math.fsum(sums.values()))], currency)


def alone_texts(portfolio: Portfolio) -> list[str]:
    return [f"{a.name} alone: {a.verdict}" for a in portfolio.alone]


def quote_text(item: str, provider: str, price_as_of: str) -> str:
    """Ask the seller for the price; what is bought is sold by suppliers whom the catalog does not name."""
    quote = "a supplier's written quote" if provider == "own" else f"a written quote from {provider}"
    return f"get {quote} for {item}: the price used here is from {price_as_of}"


def dated(answer: Answer, m: Money | PortfolioMoney | None) -> str:
    """The dates of the prices used, and what computed the answer."""
    as_of, currency = (prices_used(m), m.currency) if m else (answer.prices_used or "an unknown day", CURRENCY)
    return f"Prices as of {as_of}, {currency}; {engine_text(answer)}"


def engine_text(answer: Answer) -> str:
    return f"engine {answer.engine_version}, catalog {answer.catalog.version[:12]}"


# --- the decision -----------------------------------------------------------------------------------------------


def verdict_text(answer: Answer, r: Option) -> str:
    """The choice and its cost for people who do not run it, then its configuration."""
    m = r.money
    ranges, interval = m.ranges if m else None, r.interval.usd_per_month
    ends = ranges.usd_per_month[::2] if ranges else interval
    spread = f" (90% interval {range_text(ends)})" if ends else ""
    upfront = f"; {dollars(m.capital_usd)} is paid today" if m and m.capital_usd else ""
    said = [f"{capital(purchase_text(r))}: {dollars(r.usd_per_month)} per month in total{spread}{upfront}."]
    if m and m.plan and m.plan.liability_usd > 0:
        said.append(f"{dollars(m.plan.liability_usd)} of it is due for months after the horizon.")
    if r.rank != 1:
        said.append(f"This is option {r.rank} of the ranking.")
    if r.slo_probability:
        said.append(f"It meets the limits with {likely(r.slo_probability)} probability.")
    said += [f"Configuration: {r.label}.", hosted_text(answer, r)]
    return " ".join(filter(None, said))


def hosted_text(answer: Answer, r: Option) -> str:
    """What a hosted API that the constraints allow costs for the same traffic; empty: none is allowed or priced."""
    if not allows_apis(answer):
        return ""
    if (better := better_api(answer, r)) is not None:
        return f"A hosted API (pay per token) that your constraints allow costs less: {api_cost(answer, better)}."
    least = cheapest_api(answer)
    if least is None:
        return ""
    than = "would be cheaper" if least.usd_per_month < r.usd_per_month else "costs more"
    return f"A hosted API (pay per token) {than} for this traffic: {api_cost(answer, least)}."


def api_cost(answer: Answer, api: HostedOffer) -> str:
    when = "in a mean month of the forecast" if has_changing_traffic(answer) else "per month"
    return f"{dollars(api.usd_per_month)} {when} at {api_seller(api)}{api_state(api)}"


def api_verdict(answer: Answer, api: ApiOption) -> str:
    """The API and its bill, its place, and the best deployment beside it."""
    when = "in a mean month of the forecast" if has_changing_traffic(answer) else "per month"
    bill = f"{dollars(api.usd_per_month)} {when}, paid per token"
    said = [f"Use the API of {api_seller(api)}: {bill}{api_state(api)}."]
    if api.rank != 1:
        said.append(f"This is option {api.rank} of the ranking.")
    said += [
        f"The best deployment is option {r.rank}: {purchase_text(r)} for {dollars(r.usd_per_month)} per month."
        for r in answer.deployments[:1]
    ]
    return " ".join(said)


def api_state(api: HostedOffer) -> str:
    """Why an API is not simply the better choice."""
    if api.rejection is not None or api.slo_state == "missed":
        return ", but it does not meet the requirements"
    return ", but nobody publishes p95 latencies, so your limits are not verified" if api.slo_state in DOUBTFUL else ""


DOUBTFUL = ("not verified", "disputed")


def decision_rows(r: Option) -> Iterator[Line]:
    m, interval = r.money, r.interval
    month = fact(
        "per month", r.usd_per_month, dollars(r.usd_per_month, None if m and m.ranges else interval.usd_per_month)
    )
    if m is None:
        yield month
        yield fact("present value of costs", r.tco_usd, dollars(r.tco_usd, interval.tco_usd))
        return
    plan = m.plan
    if plan is not None:
        yield note("plan", plan.said)
    yield month
    yield fact(f"all payments over {m.horizon_months} months, less resale", m.usd_over_horizon)
    worth = dollars(m.npv_usd, None if m.ranges else interval.tco_usd)
    yield fact(f"present value of costs over {m.horizon_months} months", m.npv_usd, worth)
    if plan and plan.liability_usd > 0:
        late = f"{dollars(plan.liability_usd)}, {counted(plan.liability_months, 'month')} (part of the cost)"
        yield fact("commitment after the horizon", plan.liability_usd, late)


# --- the range --------------------------------------------------------------------------------------------------


def range_part(answer: Answer, r: Option) -> Part:
    """Percentiles, chances and scenarios; empty in answers without them."""
    ranges = r.money.ranges if r.money else None
    rows = range_rows(ranges, answer.scenarios, r.rank, answer.currency) if ranges or answer.scenarios else []
    chances = answer.uncertainty.chances if answer.uncertainty else []
    items = [f"{capital(c.said)}: {likely(c.probability)} probability" for c in chances]
    if ranges:
        items.append(
            f"This option costs least {least_text(allows_apis(answer))} in "
            f"{ranges.wins_probability:.0%} of the draws; {EQUALS}"
        )
        if ranges.over_budget_probability is not None:
            items.append(
                "A month, with purchases spread over their service, exceeds the budget in "
                f"{ranges.over_budget_probability:.0%} of the draws"
            )
    return Part(title="Range", rows=rows, items=items)


def range_rows(
    ranges: CostRanges | None, scenarios: list[Scenario], rank: int | None, currency: Currency | None
) -> list[Row]:
    lines = []
    if ranges:
        names = ("5% of the draws are lower", "median", "95% of the draws are lower")
        lines += [
            Line(cells=(name, dollars(month), dollars(total), ""), usd=(month, total))
            for name, month, total in zip(names, ranges.usd_per_month, ranges.total_usd, strict=True)
        ]
    for scenario in scenarios:
        cost = next((c for c in scenario.costs if c.rank == rank), None)
        if cost is not None:
            first = "this option" if scenario.first_rank == rank else f"option {scenario.first_rank}"
            cells = f"scenario {scenario.name}", dollars(cost.usd_per_month), dollars(cost.total_usd), first
            lines.append(Line(cells=cells, usd=(cost.usd_per_month, cost.total_usd)))
    head = ("case", "per month", "all payments", "costs least")
    return table(head, lines, currency, ("per month", "all payments"))


# --- what to sign, and the money --------------------------------------------------------------------------------


def signed_rows(plan: Plan, currency: Currency | None) -> list[Row]:
    lines = [
        Line(
            cells=(
                f"{step.action} {step.instances:,} x {step.instance} ({step.term.replace('_', ' ')})",
                seller(step),
                f"{unit_price(step)}{hours_text(step)}, as of {step.price_as_of}",
                ", ".join(filter(None, (when(step), order_text(step)))),
            ),
            usd=(step.unit_usd_once if step.unit_usd_once is not None else step.unit_usd_per_hour,),
        )
        for step in plan.steps[:MOST_STEPS]
    ]
    more = len(plan.steps) - MOST_STEPS
    lines += [Line(cells=(f"{more} more steps: see the bill of materials", "", "", ""))] if more > 0 else []
    return table(("action", "seller", "list price", "when"), lines, currency, ("list price",))


def seller(step: PlanStep) -> str:
    place = f" ({step.region})" if step.region else ""
    return "a supplier" if step.action == "buy" else f"{step.provider}{place}"


def hours_text(step: PlanStep) -> str:
    return f" x {step.paid_hours:,.0f} h" if step.unit_usd_per_hour is not None else ""


def when(step: PlanStep) -> str:
    paid = f", paid until month {step.paid_until_month}" if step.paid_until_month > step.until_month else ""
    return f"{months_text(step.from_month, step.until_month)}{paid}"


def money_rows(r: Option) -> Iterator[Line]:
    m, interval = r.money, r.interval
    if m is not None:
        none = "none today" if m.plan and m.plan.capex_usd else "none (rented)"
        yield fact("upfront purchase", m.capital_usd) if m.capital_usd else note("upfront purchase", none)
        if m.plan is not None:
            yield from plan_rows(m, m.plan)
        if m.taxes is not None:
            yield from tax_rows(m, m.taxes)
        for met in meetings(m):
            yield note("break-even", met)
    token, usd = ("input", r.usd_per_mtok_input) if r.is_embedding else ("output", r.usd_per_mtok_output)
    yield Line(cells=(f"per million {token} tokens", price(usd, interval.of(f"usd_per_mtok_{token}"))), usd=(usd,))
    blended = price(r.usd_per_mtok_blended, interval.usd_per_mtok_blended)
    yield Line(cells=("per million tokens, blended", blended), usd=(r.usd_per_mtok_blended,))
    kwh = f", {figure(m.energy.kwh_per_month)} kWh a month" if m else ""
    yield note("average power", f"{figure(r.watts)} W{kwh}")


def plan_rows(m: Money, plan: Plan) -> Iterator[Line]:
    if plan.capex_usd:
        yield fact("all purchases", plan.capex_usd)
        yield fact("resale", plan.resale_usd)
    if plan.liability_usd > 0:
        yield fact("due after the horizon", plan.liability_usd)
    yield fact("most expensive month, purchases spread over their service", plan.most_usd_per_month)
    month, usd = largest_payment(m)
    yield fact("largest cash payment of a month", usd, f"{dollars(usd)} ({payment_month_text(month)})")
    yield fact(f"cost of leaving after month {plan.exit_month}", plan.exit_usd)
    if not plan.capex_usd:
        return
    if plan.rent_usd_per_month is not None:
        yield fact("rented by the hour instead, per month", plan.rent_usd_per_month)
        paid = f"month {plan.payback_month}" if plan.payback_month else "not within the horizon"
        yield note("payback against renting, resale not counted", paid)
    if plan.irr_fraction_per_year is not None:
        yield note("internal rate of return against renting", f"{plan.irr_fraction_per_year:.0%} per year")


def tax_rows(m: Money, taxes: Taxes) -> Iterator[Line]:
    """VAT and income tax over the horizon, and what is paid after both."""
    if taxes.vat_fraction:
        yield fact(f"VAT that cannot be recovered ({percent(taxes.vat_fraction)})", taxes.vat_usd)
    saved = income_tax_saved_usd(m)
    if taxes.income_tax_fraction:
        yield fact(f"income tax saved on all expenses ({percent(taxes.income_tax_fraction)})", -saved)
    yield fact("all payments after taxes", m.usd_over_horizon + taxes.vat_usd - saved)
    worth = f"{dollars(taxes.npv_after_tax_usd)} ({taxes.said})"
    yield fact("present value after taxes", taxes.npv_after_tax_usd, worth)


# --- alternatives, risks, tests ---------------------------------------------------------------------------------


def way_text(way: WayToPay, is_batch: bool = False) -> str:
    upfront = f", {dollars(way.capital_usd)} of it today" if way.capital_usd else ""
    note = " (assumed discount, no price in the catalog)" if way.basis == "assumed" else ""
    term = "" if way.capital_usd else f", {way.term.replace('_', ' ')}"
    if is_batch and way.term.startswith("reserved"):
        term += " (billed 24 h a day)"
    return (
        f"{acquisition_text(way)}{term}: {dollars(way.usd_per_month)} per month, "
        f"present value of costs {dollars(way.npv_usd)}{upfront}{note}"
    )


def acquisition_text(r: Option | WayToPay) -> str:
    return "bought" if r.acquisition == "own" else f"rented at {r.provider}"


def other(r: Option | ApiOption) -> str:
    if isinstance(r, ApiOption):
        return f"{r.label}, pay per token, latency not verified"
    paid = plan_text(r.money.plan) if r.money and r.money.plan else acquisition_text(r)
    return f"{r.accelerator_count:,} x {r.accelerator_name}, {paid}"


def alternatives(answer: Answer, r: Option) -> list[str]:
    """Other ways to pay, other options, a switch, rejected accelerators with a price, an API that is not allowed."""
    m = r.money
    ways: list[str] = []
    if m and m.plan:
        ways = [
            f"same machines, {s.said}: {dollars(s.usd_per_month)} per month, purchases {dollars(s.capex_usd)}"
            for s in m.plan.strategies
            if not s.chosen
        ]
    elif m:
        ways = [way_text(way, r.batch is not None) for way in m.ways_to_pay[1:]]
    ranked = [f"{other(o)}: {dollars(o.usd_per_month)} per month" for o in answer.recommendations if o.rank != r.rank]
    switch = [answer.switch.said] if answer.switch else []
    return [*ways, *ranked[:MOST_OTHERS], *switch, *rejections(answer), *excluded_api(answer)]


def excluded_api(answer: Answer) -> list[str]:
    """The cheapest hosted API where the constraints allow none."""
    least = cheapest_api(answer)
    if least is None or allows_apis(answer):
        return []
    return [f"hosted APIs, which constraints.acquisition excludes: the cheapest costs {api_cost(answer, least)}"]


def rejections(answer: Answer) -> list[str]:
    """The first rejected accelerators, with their reasons."""
    rejected = [e for e in answer.rejected if e.reason not in ("excluded", "outranked")]
    return [f"{e.accelerator}: {e.detail.split(' (')[0]}" for e in rejected[:MOST_REJECTED]]


def risks(answer: Answer, r: Option) -> list[str]:
    m, items = r.money, list[str]()
    plan = m.plan if m else None
    if shares_one_server(r):
        items.append(
            "all replicas, the spare ones too, share one server: a failure of the server still stops the service"
        )
    if plan is not None:
        if plan.liability_usd > 0:
            items.append(
                f"terms outlast the horizon by up to {counted(plan.liability_months, 'month')}: "
                f"{dollars(plan.liability_usd)} is due whatever the traffic is then"
            )
        items += [
            f"delivery of {step.instance} takes about {counted(step.order_months_before, 'month')}, and the plan needs "
            f"it in month {step.from_month}: the service starts later, or you rent until it arrives"
            for step in plan.steps
            if is_late(step)
        ][:1]
    if m is not None:
        resale = plan.resale_usd if plan else m.cash_flow[-1].value_left_usd if r.acquisition == "own" else 0.0
        if resale:
            items.append(
                f"the costs assume the hardware can be resold for {dollars(resale)} within "
                f"{counted(m.horizon_months, 'month')}; the actual resale value is not known"
            )
        if any(part.name == "interruptions" for part in m.parts):
            items.append("spot instances can be interrupted at any time: the cost allowance for it is an assumption")
        if m.services and m.services.said:
            items.append(m.services.said)
    items += r.warnings
    breaks = [f"sensitivity: {bar.detail} ({bar.assumption})" for bar in answer.sensitivity if bar.winner_after]
    return items[:MOST_RISKS] + breaks[:MOST_BREAK_POINTS]


def shares_one_server(r: Option) -> bool:
    """Whether there are spare replicas and, in some month at least, all replicas are on a single server."""
    if not r.spare_replicas or r.acquisition == "api":
        return False
    months = r.money.plan.months if r.money and r.money.plan else []
    in_service = [m.hourly_instances + m.committed_instances + m.own_instances for m in months if m.replicas > 1]
    return min(in_service, default=r.instances) == 1


def tests(answer: Answer, r: Option) -> list[str]:
    """What to check on the real machines before signing."""
    spec = answer.workload if isinstance(answer.workload, dict) else {}
    peak = ((spec.get("traffic") or {}).get("requests_per_s") or {}).get("peak")
    slo = spec.get("slo") or {}
    limits = ", ".join(text.format(slo[key]) for key, text in LIMITS.items() if slo.get(key))
    items = [
        f"load test one replica at its share of the peak{f' of {figure(peak)} requests/s' if peak else ''} with your "
        f"own prompts{f'; at p95: {limits}' if limits else ''}",
        *quotes(r),
    ]
    loaded = r.launch.checkpoint
    if loaded.quality != "lossless" if loaded else r.weights_dtype not in ("bf16", "fp16"):
        items.append(f"compare the quality of {r.quantization} weights with the published model on your own evaluation")
    if r.basis != "measured":
        origin = "extrapolated from a related accelerator" if r.basis == "relative" else "taken from datasheets"
        items.append(f"run the probe on this accelerator: its efficiency is {origin}, so the intervals are wide")
    return items


def quotes(r: Option) -> list[str]:
    """One quote to get for each item of each seller."""
    steps = r.money.plan.steps if r.money and r.money.plan else None
    if steps is None:
        seller = "own" if r.acquisition == "own" else r.provider
        return [quote_text(r.instance or r.accelerator, seller, r.money.prices_as_of if r.money else r.price_as_of)]
    asked = [
        (s.instance, "own" if s.action == "buy" else s.provider, s.price_as_of) for s in steps if s.term != "owned"
    ]
    return [quote_text(*each) for each in dict.fromkeys(asked)]


def memo_markdown(found: Memo) -> str:
    lines = [md.heading(1, f"Decision memo: {found.title}"), "", md.paragraph(found.verdict), ""]
    for part in found.parts:
        lines += [md.heading(2, part.title), ""]
        if part.rows:
            lines += [*markdown_table(part.rows), ""]
        if part.items:
            lines += [*map(md.item, part.items), ""]
    return "\n".join([*lines, md.paragraph(found.dated), ""])
