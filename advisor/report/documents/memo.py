"""The decision memo for finance: what to sign, what it can cost, what else was considered, at which risk."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from advisor.answer import CURRENCY, likely
from advisor.report import markdown_escapes as md
from advisor.report.documents.subject import (
    TOTALS_ONLY,
    better_api,
    cheapest_api,
    chosen,
    first_rank,
    prices_used,
)
from advisor.report.documents.wording import (
    capital,
    converted,
    dollars,
    is_late,
    months_text,
    order_text,
    plan_text,
    price,
    purchase_text,
    range_text,
    unit_price,
)
from advisor.report.text import figure, markdown_table, meeting, name_of
from advisor.result import (
    Answer,
    ApiOption,
    CostRanges,
    HostedOffer,
    Money,
    Option,
    Plan,
    PlanStep,
    Portfolio,
    PortfolioMoney,
    Scenario,
    WayToPay,
)

MOST_OTHERS, MOST_REJECTED, MOST_RISKS, MOST_BREAK_POINTS, MOST_STEPS, MOST_RUNS = 4, 2, 6, 3, 8, 12
LIMITS = {
    "ttft_ms_p95": "first token within {:g} ms",
    "tpot_ms_p95": "each further token within {:g} ms",
    "e2e_ms_p95": "whole answers within {:g} ms",
    "tokens_per_s_per_user": "{:g} tokens/s for each user",
    "confidence": "{:.0%} probability of meeting them",
}
NOT_COUNTED = (
    "the time to load another model when an accelerator switches workloads is not counted",
    "the shared fleet is priced at full power: idle hours of bought machines cost a little less",
)
FIGURES = ("figure", "value")
Row = Sequence[str]


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


def memo(answer: Answer, rank: int = 1) -> Memo:
    """The memo of one option, or of a portfolio. Http404: there is no option of that rank."""
    if answer.portfolio is not None and answer.portfolio.has_no_costs_stored:
        return early_portfolio_memo(answer, answer.portfolio)
    if answer.portfolio is not None and answer.portfolio.money is not None:
        return portfolio_memo(answer, answer.portfolio, answer.portfolio.money)
    option = answer.option(rank)
    if isinstance(option, ApiOption) and not answer.deployments:
        return api_memo(answer, option)
    r = chosen(answer, rank)
    return memo_of(
        title=f"{name_of(answer)}: {decision_text(answer, r, rank)}",
        verdict=verdict_text(answer, r, rank),
        parts=[
            Part(title="Decision", rows=[FIGURES, *decision_rows(answer, r)]),
            range_part(answer, r),
            Part(title="What to sign", rows=signed_rows(r.money.plan) if r.money and r.money.plan else []),
            Part(title="Money", rows=[FIGURES, *money_rows(r)], items=[] if r.money else [TOTALS_ONLY]),
            Part(title="Alternatives considered", items=alternatives(answer, r, rank)),
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
    """Where hosted APIs are all there is: no machines, no plan."""
    bill = [
        (
            f"{line.name} tokens",
            f"{figure(line.tokens_per_month)}",
            f"${line.usd_per_mtok:g}",
            dollars(line.usd_per_month),
        )
        for line in api.bill
    ]
    others = [f"{other(o)}: {dollars(o.usd_per_month)} per month" for o in answer.recommendations if o is not api]
    weights = f"compare the quality of its {api.quantization} weights" if api.quantization else "compare its quality"
    return memo_of(
        title=f"{name_of(answer)}: use the API of {api.provider}",
        verdict=api_verdict(api),
        parts=[
            Part(
                title="Decision",
                rows=[
                    FIGURES,
                    ("per month", dollars(api.usd_per_month)),
                    ("present value of costs", dollars(api.tco_usd)),
                    ("commitment", "none: every token is paid when it is used"),
                ],
            ),
            Part(title="Money", rows=[("tokens", "per month", "per million", "cost per month"), *bill]),
            Part(title="Alternatives considered", items=[*others[:MOST_OTHERS], *rejections(answer)]),
            Part(title="Risks", items=api.warnings[:MOST_RISKS]),
            Part(
                title="Before signing",
                items=[
                    "measure the latency with your own prompts at your peak",
                    quote_text(f"the price per token of {api.name}", api.provider, api.price_as_of),
                    f"{weights} with the published model on your own evaluation",
                ],
            ),
        ],
        dated=f"Prices as of {api.price_as_of}, {CURRENCY}; {engine_text(answer)}",
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
    shared, alone = portfolio.shared, alone_texts(portfolio)
    money: list[Row] = [
        FIGURES,
        ("per month", dollars(m.usd_per_month)),
        ("upfront purchase", dollars(m.capital_usd) if m.capital_usd else "none (rented)"),
        (f"all payments over {m.horizon_months} months", dollars(sum(flow.total_usd for flow in m.cash_flow))),
        (f"present value of costs over {m.horizon_months} months", dollars(m.npv_usd)),
    ]
    if shared and portfolio.alone_usd_per_month is not None:
        money.append(("each workload alone, per month", dollars(portfolio.alone_usd_per_month)))
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
    quotes = [quote_text(i.item, i.provider, i.price_as_of) for i in m.items]
    return memo_of(
        title=f"{name_of(answer)}: {m.of}",
        verdict=answer.verdict,
        parts=[
            Part(title="Decision", rows=money),
            Part(title="Range", rows=range_rows(m.ranges, [], None)),
            Part(
                title="What to sign",
                rows=[
                    ("for", "quantity and item", "seller", "list price"),
                    *(
                        (
                            i.for_workload,
                            f"{figure(i.quantity)} x {i.item}",
                            "a supplier" if i.provider == "own" else i.provider,
                            f"{dollars(i.unit_usd_once)} each"
                            if i.unit_usd_once
                            else f"{dollars(i.unit_usd_per_month or 0.0)} per month",
                        )
                        for i in m.items
                    ),
                ],
            ),
            Part(title="Schedule", items=schedule) if schedule else Part(title="Each workload alone", items=alone),
            Part(
                title="Alternatives considered",
                items=alone if shared else [f"one shared fleet: {portfolio.reason}"],
            ),
            Part(
                title="Risks",
                items=list(NOT_COUNTED) if shared else ["each workload has its own risks: see its own answer"],
            ),
            Part(title="Before signing", items=[load_test, *quotes]),
        ],
        dated=dated(answer, m),
    )


def alone_texts(portfolio: Portfolio) -> list[str]:
    return [f"{a.name} alone: {a.verdict}" for a in portfolio.alone]


def replicas_text(count: float | None) -> str:
    return "1 replica" if count == 1 else f"{figure(count)} replicas"


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


def decision_text(answer: Answer, r: Option, rank: int) -> str:
    """The decision in the title: the API where one is better, else the plan."""
    api = better_api(answer)
    if api is None:
        return purchase_text(r)
    if isinstance(api, ApiOption) and rank == first_rank(answer):
        return f"use the API of {api.provider}"
    return f"the API of {api.provider} costs less than every deployment"


def verdict_text(answer: Answer, r: Option, rank: int) -> str:
    """The choice and its cost for people who do not run it, then its configuration."""
    api, m = better_api(answer), r.money
    what, ranges, interval = purchase_text(r), m.ranges if m else None, r.interval.usd_per_month
    spread = f" (90% interval {range_text(interval, '$')})" if interval and not ranges else ""
    if ranges:
        spread = f" (90% interval {range_text(ranges.usd_per_month[::2], '$')})"
    said, hosted = [], hosted_text(answer, r)
    if isinstance(api, ApiOption):
        said, hosted = [api_verdict(api)], ""
    elif api is not None:
        said, hosted = [hosted], ""
    if api is not None and rank == first_rank(answer):
        what = f"the best deployment is option {rank}: {what}"
    upfront = f"; {dollars(m.capital_usd)} is paid today" if m and m.capital_usd else ""
    said.append(f"{capital(what)}: {dollars(r.usd_per_month)} per month in total{spread}{upfront}.")
    if m and m.plan and m.plan.liability_usd > 0:
        said.append(f"{dollars(m.plan.liability_usd)} of it is due for months after the horizon.")
    if rank != first_rank(answer) or (rank != 1 and api is None):
        said.append(f"This is option {rank} of the ranking.")
    if r.slo_probability:
        said.append(f"It meets the limits with {likely(r.slo_probability)} probability.")
    said += [f"Configuration: {r.label}.", hosted]
    return " ".join(filter(None, said))


def hosted_text(answer: Answer, r: Option) -> str:
    """What the cheapest hosted API costs for the same traffic; empty: none is priced."""
    least = cheapest_api(answer)
    if least is None:
        return ""
    than = "is cheaper" if least.usd_per_month < r.usd_per_month else "costs more"
    return (
        f"A hosted API (pay per token) {than} for this traffic: {dollars(least.usd_per_month)} per month at "
        f"{least.provider}{api_state(least)}."
    )


def api_verdict(api: ApiOption) -> str:
    bill = f"{dollars(api.usd_per_month)} per month, paid per token"
    return f"Use the API of {api.provider}: {bill}{api_state(api)}."


def api_state(api: HostedOffer) -> str:
    """Why an API is not simply the better choice."""
    if api.rejection is not None or api.slo_state == "missed":
        return ", but it does not meet the requirements"
    return ", but nobody publishes p95 latencies, so your limits are not verified" if api.slo_state in DOUBTFUL else ""


DOUBTFUL = ("not verified", "disputed")


def decision_rows(answer: Answer, r: Option) -> Iterator[Row]:
    m, interval = r.money, r.interval
    month = ("per month", dollars(r.usd_per_month, None if m and m.ranges else interval.usd_per_month))
    if m is None:
        yield from (month, ("present value of costs", dollars(r.tco_usd, interval.tco_usd)))
        return
    plan, api = m.plan, better_api(answer)
    if api is not None:
        yield f"API of {api.provider}, per month", dollars(api.usd_per_month)
    if plan is not None:
        yield "plan of the best deployment" if api else "plan", plan.said
    yield month
    yield f"all payments over {m.horizon_months} months, less resale", dollars(m.usd_over_horizon)
    yield (
        f"present value of costs over {m.horizon_months} months",
        dollars(m.npv_usd, None if m.ranges else interval.tco_usd),
    )
    if plan and plan.liability_usd > 0:
        yield (
            "commitment after the horizon",
            f"{dollars(plan.liability_usd)}, {figure(plan.liability_months)} months (part of the cost)",
        )
    if answer.currency:
        c = answer.currency
        yield (
            f"in {c.code} (1 USD = {c.per_usd:g}, {c.as_of})",
            f"{converted(r.usd_per_month, c)} per month, present value {converted(m.npv_usd, c)}",
        )


# --- the range --------------------------------------------------------------------------------------------------


def range_part(answer: Answer, r: Option) -> Part:
    """Percentiles, chances and scenarios; empty in answers without them."""
    ranges = r.money.ranges if r.money else None
    rows = range_rows(ranges, answer.scenarios, r.rank) if ranges or answer.scenarios else []
    chances = answer.uncertainty.chances if answer.uncertainty else []
    items = [f"{capital(c.said)}: {likely(c.probability)} probability" for c in chances]
    if ranges:
        items.append(f"This option costs least in {ranges.wins_probability:.0%} of the draws")
        if ranges.over_budget_probability is not None:
            items.append(f"A month exceeds the budget in {ranges.over_budget_probability:.0%} of the draws")
    return Part(title="Range", rows=rows, items=items)


def range_rows(ranges: CostRanges | None, scenarios: list[Scenario], rank: int | None) -> list[Row]:
    rows: list[Row] = [("case", "per month", "all payments", "costs least")]
    if ranges:
        names = ("5% of the draws are lower", "median", "95% of the draws are lower")
        rows += [
            (name, dollars(month), dollars(total), "")
            for name, month, total in zip(names, ranges.usd_per_month, ranges.total_usd, strict=True)
        ]
    for scenario in scenarios:
        cost = next((c for c in scenario.costs if c.rank == rank), None)
        if cost is not None:
            first = "this option" if scenario.first_rank == rank else f"option {scenario.first_rank}"
            rows.append((f"scenario {scenario.name}", dollars(cost.usd_per_month), dollars(cost.total_usd), first))
    return rows


# --- what to sign, and the money --------------------------------------------------------------------------------


def signed_rows(plan: Plan) -> list[Row]:
    rows: list[Row] = [("action", "seller", "list price", "when")]
    rows += [
        (
            f"{step.action} {step.instances:,} x {step.instance} ({step.term.replace('_', ' ')})",
            seller(step),
            f"{unit_price(step)}{hours_text(step)}, as of {step.price_as_of}",
            ", ".join(filter(None, (when(step), order_text(step)))),
        )
        for step in plan.steps[:MOST_STEPS]
    ]
    more = len(plan.steps) - MOST_STEPS
    return rows + ([(f"{more} more steps: see the bill of materials", "", "", "")] if more > 0 else [])


def seller(step: PlanStep) -> str:
    place = f" ({step.region})" if step.region else ""
    return "a supplier" if step.action == "buy" else f"{step.provider}{place}"


def hours_text(step: PlanStep) -> str:
    return f" x {step.paid_hours:,.0f} h" if step.unit_usd_per_hour is not None else ""


def when(step: PlanStep) -> str:
    paid = f", paid until month {step.paid_until_month}" if step.paid_until_month > step.until_month else ""
    return f"{months_text(step.from_month, step.until_month)}{paid}"


def money_rows(r: Option) -> Iterator[Row]:
    m, interval = r.money, r.interval
    if m is not None:
        yield "upfront purchase", dollars(m.capital_usd) if m.capital_usd else "none (rented)"
        if m.plan is not None:
            yield from plan_rows(m.plan)
        if m.taxes is not None:
            yield "present value after taxes", f"{dollars(m.taxes.npv_after_tax_usd)} ({m.taxes.said})"
        for met in m.break_even:
            yield "break-even", meeting(met)
    token, usd = ("input", r.usd_per_mtok_input) if r.is_embedding else ("output", r.usd_per_mtok_output)
    yield f"per million {token} tokens", price(usd, interval.of(f"usd_per_mtok_{token}"))
    yield "per million tokens, blended", price(r.usd_per_mtok_blended, interval.usd_per_mtok_blended)
    kwh = f", {figure(m.energy.kwh_per_month)} kWh a month" if m else ""
    yield "average power", f"{figure(r.watts)} W{kwh}"


def plan_rows(plan: Plan) -> Iterator[Row]:
    if plan.capex_usd:
        yield "all purchases", dollars(plan.capex_usd)
        yield "resale", dollars(plan.resale_usd)
    if plan.liability_usd > 0:
        yield "due after the horizon", dollars(plan.liability_usd)
    yield "most expensive month", dollars(plan.most_usd_per_month)
    yield f"cost of leaving after month {plan.exit_month}", dollars(plan.exit_usd)
    if not plan.capex_usd:
        return
    if plan.rent_usd_per_month is not None:
        yield "rented by the hour instead, per month", dollars(plan.rent_usd_per_month)
        paid = f"month {plan.payback_month}" if plan.payback_month else "not within the horizon"
        yield "payback against renting", paid
    if plan.irr_fraction_per_year is not None:
        yield "internal rate of return against renting", f"{plan.irr_fraction_per_year:.0%} per year"


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
    return f"{r.accelerator_count} x {r.accelerator_name}, {paid}"


def alternatives(answer: Answer, r: Option, rank: int) -> list[str]:
    """Other ways to pay, other options, a switch, then rejected accelerators that have a price."""
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
    ranked = [f"{other(o)}: {dollars(o.usd_per_month)} per month" for o in answer.recommendations if o.rank != rank]
    switch = [answer.switch.said] if answer.switch else []
    return [*ways, *ranked[:MOST_OTHERS], *switch, *rejections(answer)]


def rejections(answer: Answer) -> list[str]:
    """The first rejected accelerators, with their reasons."""
    rejected = [e for e in answer.rejected if e.reason not in ("excluded", "outranked")]
    return [f"{e.accelerator}: {e.detail.split(' (')[0]}" for e in rejected[:MOST_REJECTED]]


def risks(answer: Answer, r: Option) -> list[str]:
    m, items = r.money, list[str]()
    plan = m.plan if m else None
    if plan is not None:
        if plan.liability_usd > 0:
            items.append(
                f"terms outlast the horizon by up to {figure(plan.liability_months)} months: "
                f"{dollars(plan.liability_usd)} is due whatever the traffic is then"
            )
        items += [
            f"delivery of {step.instance} takes about {figure(step.order_months_before)} months, and the plan needs it "
            f"in month {step.from_month}: the service starts later, or you rent until it arrives"
            for step in plan.steps
            if is_late(step)
        ][:1]
    if m is not None:
        resale = plan.resale_usd if plan else m.cash_flow[-1].value_left_usd if r.acquisition == "own" else 0.0
        if resale:
            items.append(
                f"the costs assume the hardware can be resold for {dollars(resale)} within {m.horizon_months} months; "
                "the actual resale value is not known"
            )
        if any(part.name == "interruptions" for part in m.parts):
            items.append("spot instances can be interrupted at any time: the cost allowance for it is an assumption")
        if m.services and m.services.said:
            items.append(m.services.said)
    items += r.warnings
    breaks = [f"sensitivity: {bar.detail} ({bar.assumption})" for bar in answer.sensitivity if bar.winner_after]
    return items[:MOST_RISKS] + breaks[:MOST_BREAK_POINTS]


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
