"""The memo of a hosted API: no machines and no plan, a bill by kind of token; deployments are alternatives."""

import math
from collections.abc import Iterator

from advisor.answer import CURRENCY
from advisor.report.asked import api_seller, has_changing_traffic, horizon_months
from advisor.report.documents.memos.parts import (
    FIGURES,
    Line,
    Memo,
    Part,
    Row,
    api_state,
    chances,
    engine_text,
    fact,
    memo_of,
    note,
    quote_text,
    range_rows,
    rejections,
    table,
)
from advisor.report.documents.memos.signing import alternative_rows, approval_part, budget_rows, gate_items
from advisor.report.documents.wording import (
    dollars,
    purchase_text,
)
from advisor.report.text import figure, name_of
from advisor.result import (
    Answer,
    ApiOption,
    CostRanges,
)

MOST_RISKS = 7
API_RISKS = (
    "no term fixes the price or keeps the model available: the provider can change both at any time",
    "capacity, rate limits and availability are the provider's: agree on them in writing",
)
API_SWINGS = ("load-swing-ratio", "rent-price-swing-ratio")  # of the traffic, and of API prices as of rents


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
            Part(
                title="Alternatives considered",
                rows=alternative_rows(answer, api, currency),
                items=rejections(answer),
            ),
            Part(title="Risks", items=[*api.warnings[: MOST_RISKS - len(API_RISKS)], *API_RISKS]),
            Part(
                title="Before signing",
                items=[
                    "measure the latency with your own prompts at your peak",
                    quote_text(f"the price per token of {api.name}", api_seller(api), api.price_as_of),
                    *gate_items(answer, api),
                    f"{weights} with the published model on your own evaluation",
                ],
            ),
            approval_part(answer, api, api.price_as_of),
        ],
        dated=f"Prices as of {api.price_as_of}, {CURRENCY}; {engine_text(answer)}",
    )


def month_name(answer: Answer) -> str:
    """The monthly bill of an API where the traffic changes: that of a mean month."""
    return "mean month of the forecast" if has_changing_traffic(answer) else "per month"


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


def api_decision(answer: Answer, api: ApiOption) -> Iterator[Line]:
    yield fact(month_name(answer), api.usd_per_month)
    yield from budget_rows(answer, api)
    months = horizon_months(answer)
    if months:
        yield fact(f"all payments over {months} months", api_total_usd(api, months))
    yield fact(f"present value of costs{f' over {months} months' if months else ''}", api.tco_usd)
    yield note("upfront purchase", "none")
    yield note("commitment", "none: every token is paid when it is used")


def api_total_usd(api: ApiOption, months: int) -> float:
    """The sum of all months; answers of earlier versions have the monthly bill alone."""
    return math.fsum(flow.total_usd for flow in api.payments.cash_flow) if api.payments else api.usd_per_month * months


def api_prices(api: ApiOption) -> str:
    cached = api.usd_per_mtok_cached_input
    prices = [f"{dollars(api.usd_per_mtok_input)} input"]
    prices += [f"{dollars(cached)} cached input"] if cached is not None else []
    output = f"{dollars(api.usd_per_mtok_output)} output per million tokens"
    return f"{', '.join(prices)} and {output}, as of {api.price_as_of}"


def api_bill(answer: Answer, api: ApiOption) -> list[Row]:
    """The month by kind of token, and its total."""
    name = "cost of a mean month of the forecast" if has_changing_traffic(answer) else "cost per month"
    lines = [
        Line(
            cells=(
                f"{line.name} tokens",
                f"{figure(line.tokens_per_month)}",
                dollars(line.usd_per_mtok),
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
            total_usd=[usd * api_total_usd(api, months) / (api.usd_per_month or 1.0) for usd in monthly],
            wins_probability=0.0,
            over_budget_probability=None,
        )
    rows = range_rows(ranges, answer.scenarios, api.rank, answer.currency) if ranges or answer.scenarios else []
    items = [said for said in chances(answer) if "API" in said]
    drawn = (
        ["The traffic and the price of the API are drawn; every draw is constant over the horizon"] if ranges else []
    )
    return Part(title="Range", rows=rows, items=[*drawn, *items])


def swing(answer: Answer, name: str) -> float:
    """The 90% range of an uncertain input is from 1 / this to this; 1: not known."""
    value = next((a.value for a in answer.assumptions if a.name == name), 1.0)
    return max(float(value), 1.0) if isinstance(value, int | float) else 1.0
