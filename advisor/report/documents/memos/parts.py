"""What all memos are built from: parts, tables with the planner's currency, notes on prices and hosted APIs."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from django.utils.text import capfirst

from advisor.answer import CURRENCY, likely
from advisor.report.asked import api_seller, has_changing_traffic
from advisor.report.documents.subject import (
    prices_used,
)
from advisor.report.documents.wording import (
    converted,
    dollars,
    plan_text,
    rate_text,
)
from advisor.report.text import figure, makes_of
from advisor.result import (
    Answer,
    ApiOption,
    CostRanges,
    Currency,
    Figure,
    HostedOffer,
    Money,
    Option,
    PortfolioMoney,
    Scenario,
    TrainingOption,
    WayToPay,
    interval,
    shown_in,
)

MOST_REJECTED = 2
SHARES = ("fraction", "share", "probability")
FIGURES = ("figure", "value")
Row = Sequence[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """One section: a table whose first row is the head, then a list."""

    title: str
    rows: Sequence[Row] = ()
    items: Sequence[str] = ()
    is_form: bool = False  # its empty cells are filled in by hand


@dataclass(frozen=True, kw_only=True, slots=True)
class Memo:
    """Two printed pages."""

    title: str
    verdict: str
    parts: list[Part]
    dated: str
    kind: str = "Decision memo"


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


def row_name(label: str) -> str:
    """The label of a figure in a memo: per million output tokens."""
    name = label.replace(" M ", " million ")
    return name if name[:2].isupper() else f"{name[:1].lower()}{name[1:]}"


def chances(answer: Answer) -> list[str]:
    found = answer.uncertainty
    return [f"{capfirst(c.said)}: {likely(c.probability)} probability" for c in found.chances] if found else []


def figure_rows(r: Option | TrainingOption, answer: Answer, part: str) -> Iterator[Line]:
    """The figures of this part of the memo that the option has, each with its 90% interval."""
    for each in shown_in("memo", makes_of(answer)):
        value = r.figure(each.path) if each.memo == part else None
        if value is None:
            continue
        name = row_name(each.label)
        ends = interval(r, each)
        if each.unit.startswith("USD"):
            yield fact(name, value, dollars(value, None if None in ends else ends))
        else:
            yield note(name, with_unit(each, value))


def with_unit(each: Figure, value: float) -> str:
    """A number and its unit; shares and probabilities in percent."""
    return f"{value:.0%}" if each.unit in SHARES else f"{figure(value)} {each.unit}".strip()


def memo_of(title: str, verdict: str, parts: list[Part], dated: str) -> Memo:
    """The memo without its empty sections."""
    kept = [part for part in parts if len(part.rows) > 1 or part.items]
    return Memo(title=title, verdict=verdict, parts=kept, dated=dated)


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
    for scenario in (s for s in scenarios if s.name != "base"):  # that one is the plan itself
        cost = next((c for c in scenario.costs if c.rank == rank), None)
        if cost is not None:
            first = "this option" if scenario.first_rank == rank else f"option {scenario.first_rank}"
            cells = f"scenario {scenario.name}", dollars(cost.usd_per_month), dollars(cost.total_usd), first
            lines.append(Line(cells=cells, usd=(cost.usd_per_month, cost.total_usd)))
    head = ("case", "per month", "all payments", "costs least")
    return table(head, lines, currency, ("per month", "all payments"))


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


def api_cost(answer: Answer, api: HostedOffer) -> str:
    when = "in a mean month of the forecast" if has_changing_traffic(answer) else "per month"
    return f"{dollars(api.usd_per_month)} {when} at {api_seller(api)}{api_state(api)}"


DOUBTFUL = ("not verified", "disputed")


def api_state(api: HostedOffer) -> str:
    """Why an API is not simply the better choice."""
    if api.rejection is not None:
        return f", but it does not meet the requirements: {api.rejection.detail}"
    if api.slo_state == "missed":
        return ", but it does not meet the requirements"
    return ", but nobody publishes p95 latencies, so your limits are not verified" if api.slo_state in DOUBTFUL else ""


def acquisition_text(r: Option | TrainingOption | WayToPay) -> str:
    return "bought" if r.acquisition == "own" else f"rented at {r.provider}"


def other(r: Option | ApiOption | TrainingOption) -> str:
    if isinstance(r, ApiOption):
        return f"{r.label}, pay per token, latency not verified"
    paid = plan_text(r.money.plan) if r.money and r.money.plan else acquisition_text(r)
    return f"{r.accelerator_count:,} x {r.accelerator_name}, {paid}"


def rejections(answer: Answer) -> list[str]:
    """The first rejected accelerators, with their reasons."""
    rejected = [e for e in answer.rejected if e.reason not in ("excluded", "outranked")]
    return [f"{e.accelerator}: {e.detail.split(' (')[0]}" for e in rejected[:MOST_REJECTED]]
