"""Documents for finance: decision memo, bill of materials, assumptions, cash flow."""

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from django.http import Http404
from django.template.loader import render_to_string

from advisor.answer import CURRENCY, likely
from advisor.report import markdown_escapes as md
from advisor.report.text import figure, markdown_table, meeting, name_of
from advisor.result import Answer, ApiOption, Money, Option, Portfolio, PortfolioMoney, WayToPay
from catalog.export import cell

Interval = Sequence[float | None] | None
MOST_OTHERS, MOST_REJECTED, MOST_RISKS, MOST_BREAK_POINTS = 3, 2, 6, 3
LIMITS = {
    "ttft_ms_p95": "first token within {:g} ms",
    "tpot_ms_p95": "each further token within {:g} ms",
    "e2e_ms_p95": "whole answers within {:g} ms",
    "tokens_per_s_per_user": "{:g} tokens/s for each user",
    "confidence": "{:.0%} probability of meeting them",
}
TOTALS_ONLY = (
    "An earlier version of Assay computed this answer and kept only its totals. Run the workload again to get the "
    "bill by part, other payment options and the cash flow by month."
)
NO_ANSWER = "Nothing was recommended, so there are no documents. The answer says why each accelerator was rejected."
NO_SHARED_ANSWER = (
    "One workload of this portfolio has no feasible option, so there are no documents. Relax its limits, or ask for "
    "each workload by itself."
)
NOT_COUNTED = (
    "the time to load another model when an accelerator switches workloads is not counted",
    "the shared fleet is priced at full power: idle hours of bought machines cost a little less",
)


# --- the memo ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Memo:
    """One page: what to buy, instead of what, at which risk, and what to test before signing."""

    title: str
    verdict: str
    dated: str
    money: list[tuple[str, str]]
    ways: list[str]
    others: list[str]
    risks: list[str]
    tests: list[str]
    ways_title: str = "Payment options and break-even"


def memo(answer: Answer, rank: int = 1) -> Memo:
    """The memo of one option, or of a portfolio. Http404: there is no option of that rank."""
    if answer.portfolio is not None and answer.portfolio.has_no_costs_stored:
        return early_portfolio_memo(answer, answer.portfolio)
    if answer.portfolio is not None and answer.portfolio.money is not None:
        return portfolio_memo(answer, answer.portfolio, answer.portfolio.money)
    r = chosen(answer, rank)
    break_evens = [meeting(b) for b in r.money.break_even] if r.money else []
    return Memo(
        title=f"{name_of(answer)}: {purchase_text(r)}",
        verdict=verdict_text(answer, r, rank),
        dated=dated(answer, r.money),
        money=cost_rows(r),
        ways=[*(way_text(way, r.batch is not None) for way in r.money.ways_to_pay), *break_evens]
        if r.money
        else [TOTALS_ONLY],
        others=alternatives(answer, rank),
        risks=risks(answer, r),
        tests=tests(answer, r),
    )


def early_portfolio_memo(answer: Answer, portfolio: Portfolio) -> Memo:
    """What is known of a portfolio of an earlier version: its verdict and that of each workload."""
    return Memo(
        title=name_of(answer),
        verdict=answer.verdict,
        dated=dated(answer, None),
        money=[],
        ways=[TOTALS_ONLY],
        others=[f"{a.name} alone: {a.verdict}" for a in portfolio.alone],
        risks=[],
        tests=[],
    )


def portfolio_memo(answer: Answer, portfolio: Portfolio, m: PortfolioMoney) -> Memo:
    """Of the shared fleet; where there is none, of each workload alone."""
    shared = portfolio.shared
    alone = [f"{a.name} alone: {a.verdict}" for a in portfolio.alone]
    money = [
        ("per month", dollars(m.usd_per_month)),
        ("upfront purchase", dollars(m.capital_usd) if m.capital_usd else "none (rented)"),
        (f"present value of costs over {m.horizon_months} months", dollars(m.npv_usd)),
    ]
    if shared and portfolio.alone_usd_per_month is not None:
        money.append(("each workload alone, per month", dollars(portfolio.alone_usd_per_month)))
    schedule = [
        f"{r.workload} on {r.machine}: {h.when}, {replicas_text(h.replicas)}"
        for r in (shared.runs if shared else [])
        for h in r.hours
    ]
    load_test = (
        "load test one machine with the workloads that share it, at their peaks"
        if shared
        else "load test one replica of each workload at its share of the peak"
    )
    return Memo(
        title=f"{name_of(answer)}: {m.of}",
        verdict=answer.verdict,
        dated=dated(answer, m),
        money=money,
        ways=schedule or alone,
        ways_title="Schedule" if schedule else "Each workload alone",
        others=alone if shared else [f"one shared fleet: {portfolio.reason}"],
        risks=list(NOT_COUNTED) if shared else ["each workload has its own risks: see its own answer"],
        tests=[load_test, *(quote_text(i.item, i.provider, i.price_as_of) for i in m.items)],
    )


def replicas_text(count: float | None) -> str:
    return "1 replica" if count == 1 else f"{figure(count)} replicas"


def quote_text(item: str, provider: str, price_as_of: str) -> str:
    """Ask the seller for the price; what is bought is sold by suppliers whom the catalog does not name."""
    quote = "a supplier's written quote" if provider == "own" else f"a written quote from {provider}"
    return f"get {quote} for {item}: the price used here is from {price_as_of}"


def purchase_text(r: Option) -> str:
    """buy 1 x a server, or rent 8 x an instance: what is signed."""
    what = f"{r.instances} x {r.instance or r.accelerator_name}"
    if r.accelerator_count != r.instances:
        what += f" ({r.accelerator_count} x {r.accelerator_name} in use)"
    return f"buy {what}" if r.acquisition == "own" else f"rent {what} at {r.provider}"


def verdict_text(answer: Answer, r: Option, rank: int) -> str:
    """The choice and its cost for people who do not run it, then its configuration."""
    m, interval = r.money, r.interval.usd_per_month
    term = "" if r.acquisition == "own" else f", {r.term.replace('_', ' ')}"
    spread = f" (90% interval {range_text(interval, '$')})" if interval else ""
    cost = f"{dollars(r.usd_per_month)} per month in total{spread}"
    upfront = f"; {dollars(m.capital_usd)} is paid today" if m and m.capital_usd else ""
    what = purchase_text(r)
    place = "" if rank == 1 else f" This is option {rank} of the ranking."
    chance = f" It meets the limits with {likely(r.slo_probability)} probability." if r.slo_probability else ""
    return (
        f"{what[0].upper()}{what[1:]}{term}: {cost}{upfront}.{place}{chance} Configuration: "
        f"{r.label}.{hosted_text(answer, r)}"
    )


def hosted_text(answer: Answer, r: Option) -> str:
    """What the cheapest hosted API costs for the same traffic."""
    priced = [h for h in answer.hosted if h.usd_per_month]
    if not priced:
        return ""
    least = min(priced, key=lambda h: h.usd_per_month)
    than = "is cheaper" if least.usd_per_month < r.usd_per_month else "costs more"
    return (
        f" A hosted API (pay per token) {than} for this traffic: {dollars(least.usd_per_month)} per month at "
        f"{least.provider}."
    )


def dated(answer: Answer, m: Money | PortfolioMoney | None) -> str:
    as_of, currency = (m.prices_as_of, m.currency) if m else (answer.catalog.prices_as_of, CURRENCY)
    return f"Prices as of {as_of}, {currency}; engine {answer.engine_version}, catalog {answer.catalog.version[:12]}"


def shared_money(answer: Answer) -> PortfolioMoney | None:
    """Costs of a portfolio; none of a single workload."""
    return answer.portfolio.money if answer.portfolio else None


def is_early_portfolio(answer: Answer) -> bool:
    """Whether a version computed it that kept no costs of portfolios; where a workload has no answer, they are None."""
    return answer.portfolio is not None and answer.portfolio.has_no_costs_stored


def has_papers(answer: Answer) -> bool:
    """Whether something was recommended that a document can be about."""
    return bool(answer.deployments or shared_money(answer) or is_early_portfolio(answer))


def first_rank(answer: Answer) -> int:
    """The rank of the first deployment, which documents are about unless another is named."""
    return next((r.rank for r in answer.deployments if r.rank), 1)


def chosen(answer: Answer, rank: int) -> Option:
    """The deployment of this rank; its `money` is None in answers of early versions."""
    option = answer.option(rank)
    if option is None:
        raise Http404("This answer has no option of that rank.")
    if isinstance(option, ApiOption):
        raise Http404("That option is a hosted API: nothing is bought or installed. Its page has the bill.")
    return option


def cost_rows(r: Option) -> list[tuple[str, str]]:
    m, interval = r.money, r.interval
    token, usd = ("input", r.usd_per_mtok_input) if r.is_embedding else ("output", r.usd_per_mtok_output)
    month = ("per month", dollars(r.usd_per_month, interval.usd_per_month))
    each = [
        (f"per million {token} tokens", price(usd, interval.of(f"usd_per_mtok_{token}"))),
        ("per million tokens, blended", price(r.usd_per_mtok_blended, interval.usd_per_mtok_blended)),
        ("blended cost at full capacity", price(r.usd_per_mtok_blended_at_capacity)),
    ]
    if m is None:
        total = ("present value of costs", dollars(r.tco_usd, interval.tco_usd))
        return [month, total, *each, ("average power", f"{figure(r.watts)} W")]
    return [
        month,
        ("upfront purchase", dollars(m.capital_usd) if m.capital_usd else "none (rented)"),
        (f"present value of costs over {m.horizon_months} months", dollars(m.npv_usd, interval.tco_usd)),
        *each,
        ("average power", f"{figure(r.watts)} W, {figure(m.energy.kwh_per_month)} kWh a month"),
    ]


def price(usd: float | None, interval: Interval = None) -> str:
    spread = " ({} to {})".format(*map(figure, interval)) if interval else ""
    return f"${figure(usd)}{spread}"


def dollars(usd: float, interval: Interval = None) -> str:
    """Whole dollars, with the interval in parentheses."""
    return f"${usd:,.0f}{f' ({range_text(interval)})' if interval else ''}"


def range_text(interval: Sequence[float | None], currency: str = "") -> str:
    return " to ".join("-" if usd is None else f"{currency}{usd:,.0f}" for usd in interval)


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
    return f"{r.accelerator_count} x {r.accelerator_name}, {acquisition_text(r)}"


def alternatives(answer: Answer, rank: int) -> list[str]:
    """The other options, then rejected accelerators that have a price, with their reasons."""
    ranked = [f"{other(r)}: {dollars(r.usd_per_month)} per month" for r in answer.recommendations if r.rank != rank]
    rejected = [r for r in answer.rejected if r.reason not in ("excluded", "outranked")]
    return ranked[:MOST_OTHERS] + [f"{r.accelerator}: {r.detail.split(' (')[0]}" for r in rejected[:MOST_REJECTED]]


def risks(answer: Answer, r: Option) -> list[str]:
    items: list[str] = []
    if r.money is not None:
        if r.acquisition == "own":
            left = r.money.cash_flow[-1].value_left_usd
            items.append(
                f"the costs assume the hardware can be resold for {dollars(left)} after "
                f"{r.money.horizon_months} months; the actual resale value is not known"
            )
        if any(part.name == "interruptions" for part in r.money.parts):
            items.append("spot instances can be interrupted at any time: the cost allowance for it is an assumption")
        if r.money.services and r.money.services.said:
            items.append(r.money.services.said)
    items += r.warnings
    breaks = [f"sensitivity: {bar.detail} ({bar.assumption})" for bar in answer.sensitivity if bar.winner_after]
    return items[:MOST_RISKS] + breaks[:MOST_BREAK_POINTS]


def tests(answer: Answer, r: Option) -> list[str]:
    """What to check on the real machines before signing."""
    spec = answer.workload if isinstance(answer.workload, dict) else {}
    peak = ((spec.get("traffic") or {}).get("requests_per_s") or {}).get("peak")
    slo = spec.get("slo") or {}
    limits = ", ".join(text.format(slo[key]) for key, text in LIMITS.items() if slo.get(key))
    seller = "own" if r.acquisition == "own" else r.provider
    items = [
        f"load test one replica at its share of the peak{f' of {figure(peak)} requests/s' if peak else ''} with your "
        f"own prompts{f'; at p95: {limits}' if limits else ''}",
        quote_text(r.instance or r.accelerator, seller, r.money.prices_as_of if r.money else r.price_as_of),
    ]
    loaded = r.launch.checkpoint
    if loaded.quality != "lossless" if loaded else r.weights_dtype not in ("bf16", "fp16"):
        items.append(f"compare the quality of {r.quantization} weights with the published model on your own evaluation")
    if r.basis != "measured":
        origin = "extrapolated from a related accelerator" if r.basis == "relative" else "taken from datasheets"
        items.append(f"run the probe on this accelerator: its efficiency is {origin}, so the intervals are wide")
    return items


def memo_markdown(found: Memo) -> str:
    def listed(title: str, items: Sequence[str]) -> list[str]:
        return [md.heading(2, title), "", *map(md.item, items), ""] if items else []

    costs = ["## Costs", "", *markdown_table([("figure", "value (90% interval)"), *found.money]), ""]
    return "\n".join(
        [
            md.heading(1, f"Decision memo: {found.title}"), "", md.paragraph(found.verdict), "",
            *(costs if found.money else []),
            *listed(found.ways_title, found.ways),
            *listed("Alternatives considered", found.others),
            *listed("Risks", found.risks),
            *listed("Before signing", found.tests),
            md.paragraph(found.dated), "",
        ]
    )  # fmt: skip


# --- tables -----------------------------------------------------------------------------------------------------


def csv_of(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(head)
    writer.writerows([cell(value) for value in row] for row in rows)
    return out.getvalue()


BILL_HEAD = (
    "quantity", "item", "provider", "region", "unit_usd_once", "unit_usd_per_hour", "currency", "price_as_of", "source",
)  # fmt: skip
SHARE = "fractions of the purchase: assumptions.csv"


def bill_of_materials(answer: Answer, rank: int) -> str:
    """What is bought or rented, one line each, with the seller and the price."""
    if is_early_portfolio(answer):
        return csv_of(BILL_HEAD, [("", TOTALS_ONLY)])
    if together := shared_money(answer):
        items = [item.to_json() for item in together.items]
        return csv_of((*items[0], "currency"), ([*item.values(), together.currency] for item in items))
    r = chosen(answer, rank)
    m = r.money
    if m is None:
        return csv_of(BILL_HEAD, early_items(r))
    once = m.purchase_usd / r.instances if m.purchase_usd else None
    hourly = None if once else rent_of_one(r)
    paid = (m.currency, m.prices_as_of)
    first = (
        r.instances, r.instance or r.accelerator_name, r.provider, r.region, once, hourly, *paid, r.price_source,
    )  # fmt: skip
    more: list[Sequence[Any]] = []
    if once:
        extra = m.capital_usd - m.purchase_usd
        more.append((1, "share of network, storage and spares", "own", r.region, extra, None, *paid, SHARE))
    more += [
        (1, part.name, r.provider, r.region, None, part.usd_per_hour, *paid, "assumptions.csv")
        for part in m.parts
        if part.group in ("running", "services") and part.usd_per_hour
    ]
    software = (r.replicas, f"{r.framework} {r.framework_version}", "", "", 0, 0, *paid, "open source")
    return csv_of(BILL_HEAD, [first, *more, software])


def early_items(r: Option) -> list[Sequence[Any]]:
    """The lines of an answer that holds only totals: what is bought or rented, without a price of its own."""
    where, paid = (r.provider, r.region), (CURRENCY, r.price_as_of, r.price_source)
    return [
        (r.instances, r.instance or r.accelerator_name, *where, None, None, *paid),
        (r.replicas, f"{r.framework} {r.framework_version}", "", "", 0, 0, *paid[:2], "open source"),
        (1, "total", *where, None, r.usd_per_hour, *paid),
        ("", TOTALS_ONLY),
    ]


def rent_of_one(r: Option) -> float:
    """USD per hour of one rented instance; a quotient of floats, so without its last digits."""
    together = next(p.usd_per_hour for p in r.money.parts if p.name == "instances") if r.money else 0.0
    return round(together / r.instances, 6)


def assumptions_csv(answer: Answer, rank: int) -> str:
    """Every default that the answer rests on, its value and source."""
    head = ("name", "value", "unit", "default", "low", "high", "as_of", "source")
    return csv_of(head, ([getattr(item, name) for name in head] for item in answer.assumptions))


def cash_flow_csv(answer: Answer, rank: int) -> str:
    """Cash of each month to the cent; the carrying value at the horizon is a credit."""
    names = ("month", "capital_usd", "running_usd", "value_left_usd", "total_usd", "present_usd")
    if is_early_portfolio(answer):
        return csv_of((*names, "currency", "prices_as_of"), [(TOTALS_ONLY,)])
    m = shared_money(answer) or chosen(answer, rank).money
    if m is None:
        return csv_of((*names, "currency", "prices_as_of"), early_cash(chosen(answer, rank)))
    # Numbers, not text: `cell` would put a quote before a text that begins with a minus.
    rows = ([flow.month, *(Decimal(f"{getattr(flow, name):.2f}") for name in names[1:])] for flow in m.cash_flow)
    return csv_of((*names, "currency", "prices_as_of"), ([*row, m.currency, m.prices_as_of] for row in rows))


def early_cash(r: Option) -> list[Sequence[Any]]:
    """The two figures that an answer of totals has: the cost of a month, and the present value of all months."""
    paid = (CURRENCY, r.price_as_of)
    return [
        ("each", None, None, None, f"{r.usd_per_month:.2f}", None, *paid),
        ("all", None, None, None, None, f"{r.tco_usd:.2f}", *paid),
        (TOTALS_ONLY,),
    ]


def memo_text(answer: Answer, rank: int) -> str:
    return memo_markdown(memo(answer, rank))


def memo_html(answer: Answer, rank: int) -> str:
    return render_to_string("advisor/memo.html", {"memo": memo(answer, rank)})


DOCUMENTS: dict[str, tuple[str, Callable[[Answer, int], str]]] = {
    "memo.html": ("text/html", memo_html),
    "memo.md": ("text/markdown", memo_text),
    "bill-of-materials.csv": ("text/csv", bill_of_materials),
    "assumptions.csv": ("text/csv", assumptions_csv),
    "cash-flow.csv": ("text/csv", cash_flow_csv),
}
