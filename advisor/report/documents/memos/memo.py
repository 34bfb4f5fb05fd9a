"""The decision memo for finance: what to sign, what it can cost, what else was considered, at which risk."""

from collections.abc import Iterator
from dataclasses import replace

from django.utils.text import capfirst

from advisor.answer import likely
from advisor.report import markdown_escapes as md
from advisor.report.asked import allows_apis
from advisor.report.documents.memos.api import api_memo
from advisor.report.documents.memos.money import money_rows, quotes, signed_rows
from advisor.report.documents.memos.parts import (
    FIGURES,
    Line,
    Memo,
    Part,
    acquisition_text,
    api_cost,
    chances,
    dated,
    fact,
    memo_of,
    range_rows,
    rejections,
    table,
)
from advisor.report.documents.memos.portfolio import early_portfolio_memo, portfolio_memo
from advisor.report.documents.memos.signing import (
    alternative_rows,
    approval_part,
    budget_rows,
    gate_items,
    miss_part,
)
from advisor.report.documents.memos.training import training_memo
from advisor.report.documents.subject import (
    TOTALS_ONLY,
    better_api,
    cheapest_api,
    chosen,
    oldest_price,
)
from advisor.report.documents.wording import (
    counted,
    dollars,
    is_late,
    purchase_text,
    range_text,
)
from advisor.report.screen import screen_of
from advisor.report.text import (
    EQUALS,
    figure,
    least_text,
    markdown_table,
    name_of,
)
from advisor.result import (
    Answer,
    ApiOption,
    Option,
    TrainingOption,
    WayToPay,
    machine_of,
    purchase_in,
    use_text,
)

MOST_RISKS, MOST_BREAK_POINTS, MOST_ELSEWHERE = 7, 3, 2
LIMITS = {
    "ttft_ms_p95": "first token within {:,.10g} ms",
    "tpot_ms_p95": "each further token within {:,.10g} ms",
    "e2e_ms_p95": "whole answers within {:,.10g} ms",
    "tokens_per_s_per_user": "{:,.10g} tokens/s for each user",
    "confidence": "{:.0%} probability of meeting them",
}


def memo(answer: Answer, rank: int = 1) -> Memo:
    """The memo of one option, or of a portfolio; that of the first choice begins with what the first screen says to do.

    Http404: there is no option of that rank.
    """
    found, first = memo_about(answer, rank), next(iter(answer.recommendations), None)
    is_first = answer.portfolio is not None or (first is not None and first.rank == rank)
    if not is_first or isinstance(first, ApiOption):  # the memo of an API says it itself
        return found
    screen = screen_of(answer)
    return replace(found, verdict=f"{screen.todo} {found.verdict}") if screen.feasible else found


def memo_about(answer: Answer, rank: int) -> Memo:
    """The memo without that sentence."""
    if answer.portfolio is not None and answer.portfolio.has_no_costs_stored:
        return early_portfolio_memo(answer, answer.portfolio)
    if answer.portfolio is not None and answer.portfolio.money is not None:
        return portfolio_memo(answer, answer.portfolio, answer.portfolio.money)
    option = answer.option(rank)
    if isinstance(option, ApiOption):
        return api_memo(answer, option)
    if isinstance(option, TrainingOption):
        return training_memo(answer, option)
    r, currency = deployment(answer, rank), answer.currency
    plan = r.money.plan if r.money else None
    return memo_of(
        title=f"{name_of(answer)}: {purchase_text(r)}",
        verdict=verdict_text(answer, r),
        parts=[
            Part(title="Decision", rows=table(FIGURES, decision_rows(answer, r), currency)),
            Part(title="What to sign", rows=signed_rows(plan, currency) if plan else [], items=order_items(r)),
            range_part(answer, r),
            miss_part(answer, r),
            Part(
                title="Money",
                rows=table(FIGURES, money_rows(answer, r), currency),
                items=[] if r.money else [TOTALS_ONLY],
            ),
            Part(
                title="Alternatives considered",
                rows=alternative_rows(answer, r, currency),
                items=alternatives(answer, r),
            ),
            Part(title="Risks", items=risks(answer, r)),
            Part(title="Before signing", items=[*gate_items(answer, r), *tests(answer, r)]),
            approval_part(answer, r, oldest_price(r)),
        ],
        dated=dated(answer, r.money),
    )


def deployment(answer: Answer, rank: int) -> Option:
    r = chosen(answer, rank)
    assert isinstance(r, Option)
    return r


# --- the decision -----------------------------------------------------------------------------------------------


def verdict_text(answer: Answer, r: Option) -> str:
    """The choice and its cost for people who do not run it, then its configuration."""
    m = r.money
    ranges, interval = m.ranges if m else None, r.interval.usd_per_month
    ends = ranges.usd_per_month[::2] if ranges else interval
    spread = f" (90% interval {range_text(ends)})" if ends else ""
    upfront = f"; {dollars(m.capital_usd)} is paid today" if m and m.capital_usd else ""
    said = [f"{capfirst(purchase_text(r))}: {dollars(r.usd_per_month)} per month in total{spread}{upfront}."]
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


def order_items(r: Option) -> list[str]:
    """How many accelerators of a purchase are in use and idle, and that some have no machine."""
    bought = purchase_in(r)
    if bought is None:
        return []
    return [use_text(bought), *([] if bought.orderable else ["no server is known for these accelerators"])]


def decision_rows(answer: Answer, r: Option) -> Iterator[Line]:
    m, interval = r.money, r.interval
    monthly = dollars(r.usd_per_month, None if m and m.ranges else interval.usd_per_month)
    level = ", as level payments with the same present value" if m and m.plan and m.plan.capex_usd else ""
    month = fact(f"per month{level}", r.usd_per_month, monthly)
    if m is None:
        yield month
        yield fact("present value of costs", r.tco_usd, dollars(r.tco_usd, interval.tco_usd))
        return
    plan = m.plan
    yield month
    yield from budget_rows(answer, r)
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
    items = chances(answer)
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


def alternatives(answer: Answer, r: Option) -> list[str]:
    """Other ways to pay, a switch, rejected accelerators with a price, an API that is not allowed."""
    m = r.money
    ways: list[str] = []
    if m and m.plan:
        ways = [
            f"same machines, {s.said}: {dollars(s.usd_per_month)} per month, present value {dollars(s.npv_usd)}, "
            f"purchases {dollars(s.capex_usd)}"
            for s in m.plan.strategies
            if not s.chosen
        ]
    elif m:
        ways = [way_text(way, r.batch is not None) for way in m.ways_to_pay[1:]]
    switch = [answer.switch.said] if answer.switch else []
    return [*ways, *switch, *elsewhere(answer), *rejections(answer), *excluded_api(answer)]


def elsewhere(answer: Answer) -> list[str]:
    """The cheapest sellers that do not say whether they are in a required region."""
    return [
        f"not ranked, {place.availability}: {place.label} at {place.provider}: {dollars(place.usd_per_month)} per month"
        for place in answer.unknown_places[:MOST_ELSEWHERE]
    ]


def excluded_api(answer: Answer) -> list[str]:
    """The cheapest hosted API where the constraints allow none."""
    least = cheapest_api(answer)
    if least is None or allows_apis(answer):
        return []
    return [f"hosted APIs, which constraints.acquisition excludes: the cheapest costs {api_cost(answer, least)}"]


def risks(answer: Answer, r: Option) -> list[str]:
    m, items = r.money, list[str]()
    plan = m.plan if m else None
    if r.one_host_lost is not None and not r.one_host_lost.limits_hold:
        items.append(r.one_host_lost.said.rstrip("."))
    elif r.one_host_lost is None and shares_one_server(r):
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
            f"delivery of a {machine_of(step)} takes about {counted(step.order_months_before, 'month')}, and the plan "
            f"needs it in month {step.from_month}: the service starts later, or you rent until it arrives"
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
    """Whether, in an answer of an earlier version, there are spare replicas and all are on one server in some month."""
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


def memo_markdown(found: Memo) -> str:
    lines = [md.heading(1, f"{found.kind}: {found.title}"), "", md.paragraph(found.verdict), ""]
    for part in found.parts:
        lines += [md.heading(2, part.title), ""]
        if part.rows:
            lines += [*markdown_table(part.rows), ""]
        if part.items:
            lines += [*map(md.item, part.items), ""]
    return "\n".join([*lines, md.paragraph(found.dated), ""])
