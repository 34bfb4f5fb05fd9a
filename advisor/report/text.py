"""An answer as text: a table for a terminal, Markdown for a file, canonical JSON for a comparison."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from advisor.engine.terms import amount_digits, cents_digits, kind_named
from advisor.report import markdown_escapes as md
from advisor.report import training_answer
from advisor.report.asked import allows_apis, has_changing_traffic
from advisor.report.screen import markdown_table, screen_markdown, screen_of
from advisor.result import (
    HOSTED,
    Answer,
    ApiOption,
    BreakEven,
    Figure,
    HostedOffer,
    LeftOut,
    Money,
    Option,
    Packed,
    Percentiles,
    Rejection,
    Source,
    TrainingOption,
    Variant,
    purchase_in,
    shown_in,
)
from advisor.result import Launch as LaunchFiles
from advisor.templatetags.units import dollars, large

CLOCK_VALUES = frozenset({"elapsed_s"})
SIGNIFICANT_DIGITS = 6
MOST_ODDS, MOST_NEAR_MISSES, MOST_CHANGES, MOST_REJECTED, MOST_HOSTED = 3, 3, 3, 8, 5


# --- figures ----------------------------------------------------------------------------------------------------


def figure(value: float | None, digits: int = 3) -> str:
    """A number for people: this many significant digits, thousands separated, whole numbers never cut."""
    if value is None:
        return "-"
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    return f"{value:.{digits}g}" if value else "0"


def usd_figure(usd: float | None) -> str:
    """An amount without its sign."""
    return "-" if usd is None else amount_digits(usd)


def ratio(value: float | None) -> str:
    return "-" if value is None else f"x{value:.2f}"


def percentiles(latency_ms: Percentiles) -> str:
    return " / ".join(map(figure, (latency_ms.p50, latency_ms.p95, latency_ms.p99)))


def shortened(text: str, most: int = 80) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def name_of(answer: Answer) -> str:
    """Name of the workload; in answers that hold no workload file, what they hold instead."""
    workload = answer.workload
    return str(workload["name"] if isinstance(workload, dict) else workload)


def replicas_text(count: float | None) -> str:
    """1 replica, 12 replicas; a mean with one decimal, and said to be one."""
    if count is None or float(count).is_integer():
        return f"{figure(count)} replica{'' if count == 1 else 's'}"
    mean = f"{count:,.1f}".removesuffix(".0")
    return f"{mean} replica{'' if mean == '1' else 's'} on average"


def largest_payment(m: Money) -> tuple[int, float]:
    """(month, USD) of the largest payment in cash; what falls due after the horizon is not one of its last month."""
    last, later = m.cash_flow[-1].month, max(m.plan.liability_usd, 0.0) if m.plan else 0.0
    paid = [(f.month, f.capital_usd + f.running_usd - (later if f.month == last else 0.0)) for f in m.cash_flow]
    return max(paid, key=lambda each: each[1])


def payment_month_text(month: int) -> str:
    return f"month {month}" if month else "today"


EQUALS = "options within 1% of each other count as equal and share the win"


def least_text(apis: bool) -> str:
    """What an option that costs least is compared with."""
    return f"among the ranked options{', hosted APIs included,' if apis else ''}"


WAYS = {"own": "buying", "keep": "keeping your machines", "rent on_demand": "on-demand rental", "rent": "renting"}


def meetings(m: Money) -> list[str]:
    """Every break-even of an option; that of buying and renting with the month in which it pays back in cash."""
    plan = m.plan
    compared = plan is not None and plan.capex_usd > 0 and plan.rent_usd_per_month is not None
    said = []
    for b in m.break_even:
        rented = b.between[0] == "own" and b.between[1].startswith("rent")
        after = ""
        if plan is not None and compared and rented and b.month:
            month = plan.payback_month
            after = f"pays back in month {month}" if month else "does not pay back within the horizon"
        one = meeting(b, keeps=keeps_only(m))
        said.append(f"{one}; in cash, it {after}" if after else one)
    return said


def keeps_only(m: Money) -> bool:
    """Whether the plan buys nothing: all its machines are already owned, or it rents beside them."""
    actions = {step.action for step in m.plan.steps} if m.plan else set[str]()
    return "keep" in actions and "buy" not in actions


def meeting(b: BreakEven, keeps: bool = False) -> str:
    """The break-even of two ways to pay in one sentence; the month counts resale and discounting.

    keeps: what is owned need not be bought.
    """
    if keeps and b.between[0] == "own":
        return meeting(b.changed(between=["keep", b.between[1]]))
    one, other = (WAYS.get(name, name.replace("_", " ").replace("API of", "the API of")) for name in b.between)
    points = [f"costs less than {other} from month {b.month} on, resale counted"] if b.month else []
    if (share := b.share_of_hours) is not None:
        points.append(
            f"is cheaper if the machines are used more than {share:.0%} of the hours"
            if share < 1
            else f"is never cheaper than {other}"
        )
    if b.tokens_per_month:
        beyond = ", which is more than the machines can serve" if b.within_capacity is False else ""
        points.append(f"is cheaper from {large(b.tokens_per_month)} tokens a month{beyond}")
    start = one[0].upper() + one[1:]
    if not points:
        return f"{start} is not cheaper than {other} within the life of the hardware"
    compared = "" if other in points[0] else f" than {other}"
    points[0] = points[0].replace("is cheaper", f"is cheaper{compared}", 1)
    return f"{start} {', and '.join(points)}"


# --- table for a terminal ---------------------------------------------------------------------------------------

WITHOUT_UNIT: dict[str, Callable[[Any], str]] = {  # in a column whose heading has the unit
    "": str,
    "basis": str,
    "USD": usd_figure,
    "USD per million tokens": usd_figure,
    "fraction": lambda value: f"{value:.0%}",
    "share": lambda value: f"{value:.1%}",
    "text": str,
    "M tokens": lambda value: figure(value / 1e6),
}
TEXT_COLUMNS = 3  # this many leading columns are text; the others are numbers and align right
HOSTED_NOTE = "Prices and speeds as published, not estimated; p95 latencies are not published."
MEAN_MONTH = "USD/month of a hosted API is the bill of a mean month of the forecast."


def cells(answer: Answer, options: Sequence[Option | ApiOption] | Sequence[TrainingOption]) -> list[list[str]]:
    """Header and one row per option."""
    found = shown_in("heading", makes_of(answer))
    return [[each.heading for each in found]] + [[cell(option, each) for each in found] for option in options]


def makes_of(answer: Answer) -> str:
    """What the work of the question makes."""
    workload = answer.workload
    return kind_named(workload.get("kind") if isinstance(workload, dict) else None).makes


def cell(option: Option | HostedOffer | TrainingOption, column: Figure) -> str:
    """A figure without its unit; of a latency that is published as a median alone, the median."""
    value, median = option.figure(column.path), None
    if value is None and column.path.endswith(".p95"):
        median = option.figure(column.path.replace(".p95", ".p50"))
    if value is None:
        return f"median {figure(median)}" if median is not None else "" if column.unit == "text" else "-"
    return WITHOUT_UNIT.get(column.unit, figure)(value)


def hosted_cells(offers: Sequence[HostedOffer]) -> list[list[str]]:
    """Header and one row per hosted API."""
    return [[each.heading for each in HOSTED]] + [[cell(offer, each) for each in HOSTED] for offer in offers]


def aligned(rows: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    last = len(widths) - 1
    return [
        "  ".join(
            cell.ljust(width) if i < TEXT_COLUMNS or i == last else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def head(answer: Answer) -> str:
    """How much was evaluated, and with which catalog, prices and engine."""
    counts, catalog, workload = answer.candidates, answer.catalog, answer.workload
    known = workload.get("prices_as_of") if isinstance(workload, dict) else None
    days = price_days(answer)
    return (
        f"{counts.evaluated:,} plans evaluated, {counts.feasible:,} feasible; "
        f"catalog {catalog.version[:12]}, {f'prices used from {days}' if days else 'no prices used'}"
        f"{f' as known on {known}' if known else ''}, engine {answer.engine_version}"
    )


def price_days(answer: Answer) -> str:
    """The dates of the prices behind the options, or behind the machines of a portfolio; empty without prices."""
    money = answer.portfolio.money if answer.portfolio else None
    if money is None:
        return answer.prices_used
    days = sorted({item.price_as_of for item in money.items if item.price_as_of})
    return " to ".join(dict.fromkeys((days[0], days[-1]))) if days else money.prices_as_of


def training_table(answer: Answer, top: int | None) -> str:
    """The same of a training question."""
    lines = [answer.verdict, ""]
    if runs := answer.training_runs[:top]:
        first = runs[0]
        lines += [*aligned([[shortened(cell) for cell in row] for row in cells(answer, runs)]), ""]
        lines += [*training_answer.detail_lines(first), "", *aligned(training_answer.scaling_cells(first)), ""]
        lines += [*training_answer.evidence_lines(first), ""] if first.evidence else []
        lines += [*training_answer.optimization_lines(first), ""]
        lines += [*training_answer.plan_lines(first), *training_answer.change_lines(answer)]
        launch = first.launch.command.splitlines()
        lines += [f"start with ({first.framework}):", *(f"  {line}" for line in launch)] if launch else []
        lines += [*(f"  note: {note}" for note in first.launch_notes), ""]
        lines += [*(f"because: {reason}" for reason in first.reasons), *(f"warning: {w}" for w in first.warnings), ""]
    return "\n".join([*lines, *training_answer.rejected_lines(answer), *not_used_lines(answer), head(answer)])


def trains(answer: Answer) -> bool:
    """Whether it answers a training question."""
    workload = answer.workload
    return isinstance(workload, dict) and kind_named(workload.get("kind")).trains


def table(answer: Answer, top: int | None = None) -> str:
    """For a terminal: the verdict, the ranked plans, and why not the others."""
    if trains(answer):
        return training_table(answer, top)
    lines = [answer.verdict, ""]
    if shown := answer.serving_options[:top]:
        first = shown[0]
        lines += [
            *aligned([[shortened(cell) for cell in row] for row in cells(answer, shown)]),
            "",
            *view_lines(answer),
            *confidence_lines(answer),
            *near_miss_lines(answer),
            "",
            *start_lines(first),
            "",
            *plan_lines(answer),
            *(f"demand: {sentence}" for sentence in (first.demand if isinstance(first, Option) else ())),
            *(f"warning: {warning}" for warning in first.warnings),
        ]
    else:
        lines += nearest_miss_lines(answer)
    return "\n".join(
        [
            *lines,
            *owned_lines(answer),
            *on_demand_lines(answer),
            *sharing_lines(answer),
            *(mix_lines(answer) or portfolio_lines(answer)),
            *hosted_lines(answer),
            *unranked_lines(answer),
            *rejection_lines(answer),
            *not_used_lines(answer),
            head(answer),
        ]
    )


def plan_lines(answer: Answer) -> list[str]:
    """What to sign for the first deployment, what it costs in other ways, and how sure that is.

    Where a hosted API ranks before it, every line names the option that it is about.
    """
    money = answer.deployments[0].money if answer.deployments else None
    if money is None or money.plan is None:
        return []
    first, plan, said = answer.deployments[0], money.plan, list[str]()
    of = "" if answer.recommendations[0] is first else f" of #{first.rank}"
    others = [f"{s.said} {dollars(s.usd_per_month)}" for s in plan.strategies if not s.chosen]
    said += [f"plan{of}: {step.said}" for step in plan.steps]
    said += [f"order{of}: {bought.said}"] if (bought := purchase_in(first)) else []
    said += [f"other ways to pay for the machines{of}, a month: {'; '.join(others)}"] if others else []
    if plan.capex_usd or plan.liability_usd:
        months = f"{plan.exit_month} month{'' if plan.exit_month == 1 else 's'}"
        said.append(
            f"purchases{of} {dollars(plan.capex_usd)}, resale {dollars(plan.resale_usd)}, due after the horizon "
            f"{dollars(plan.liability_usd)}; leaving after {months} costs {dollars(plan.exit_usd)}"
        )
    said += [f"break-even{of}: {met}" for met in meetings(money)]
    if money.ranges:
        low, middle, high = map(dollars, money.ranges.usd_per_month)
        said.append(f"range{of}: {low} to {high} a month in 90% of the draws, median {middle}")
        share = f"{money.ranges.wins_probability:.0%}"
        said.append(f"chance{of}: costs least {least_text(allows_apis(answer))} in {share} of the draws; {EQUALS}")
    if answer.uncertainty:
        said += [f"chance: {chance.said}: {chance.probability:.0%}" for chance in answer.uncertainty.chances]
    said += [f"margin: {step.said}" for step in answer.decision.ladder] if answer.decision else []
    if answer.switch and answer.switch.saving_usd > 0:
        said.append(f"switch: {answer.switch.said}")
    return said


def start_lines(first: Option | ApiOption) -> list[str]:
    """How to start the first option, or how to call it."""
    if isinstance(first, ApiOption):
        return ["call #1 with:", f"  {first.how_to_call}"]
    return [f"start #{first.rank} with:", *(f"  {line}" for line in first.launch.command.splitlines())]


def view_lines(answer: Answer) -> list[str]:
    """The best option by view, and the price beyond which nothing is ranked."""
    ranks, bound = answer.views.ranks(), answer.price_bound
    lines = ["best by view: " + ", ".join(f"{name} #{rank}" for name, rank in ranks.items())] if ranks else []
    return lines + ([bound.said] if bound else [])


def confidence_lines(answer: Answer) -> list[str]:
    """How likely the first option is the best, and what would make another win."""
    first = answer.deployments[0] if answer.deployments else None
    rivals, ties = ((first.beats or [])[:MOST_ODDS], first.tied_with or []) if first else ([], [])
    odds = [
        f"#{first.rank} beats #{r.rank} with probability {r.probability:.0%}{' (a tie)' if r.rank in ties else ''}"
        for r in rivals
        if first
    ]
    breaks = [f"sensitivity: {bar.assumption}: {bar.detail}" for bar in answer.sensitivity]
    return [*([", ".join(odds)] if odds else []), *breaks]


def near_miss_lines(answer: Answer, title: str = "near miss") -> list[str]:
    """What missed a limit by little, by how much, and what would let it pass."""
    return [f"{title}: {miss.label}: {'; '.join(miss.reasons)}" for miss in answer.near_misses[:MOST_NEAR_MISSES]]


def nearest_miss_lines(answer: Answer) -> list[str]:
    """What almost passed, when nothing did."""
    changes = [
        f"{item.accelerator} {item.smallest_change}"
        for item in rejected_and_excluded(answer)[0]
        if item.smallest_change
    ]
    return near_miss_lines(answer, "nearest miss") + changes[:MOST_CHANGES]


def rejected_and_excluded(answer: Answer) -> tuple[list[Rejection], int]:
    """The rejections worth a line each, and how many the workload's own constraints excluded."""
    rejected = [item for item in answer.rejected if item.reason != "excluded"]
    return rejected, len(answer.rejected) - len(rejected)


def software_left_out(answer: Answer) -> list[tuple[str, LeftOut]]:
    """("framework" or "format", what was left out)."""
    if answer.left_out is None:
        return []
    named = (("framework", answer.left_out.frameworks), ("format", answer.left_out.formats))
    return [(kind, item) for kind, items in named for item in items]


def unranked_lines(answer: Answer) -> list[str]:
    """Sellers of an unknown region, bookings that cost less, and accelerators without a usable price."""
    lines = [
        f"not ranked, {place.availability}: {place.label} at {place.provider}: {dollars(place.usd_per_month)} a month"
        for place in answer.unknown_places[:MOST_CHANGES]
    ]
    lines += [f"cheaper if booked: {item.said}" for item in answer.bookable]
    priced = [item for item in answer.unranked if item.usd_per_accelerator_hour_to_win is not None]
    priced.sort(key=lambda item: -(item.usd_per_accelerator_hour_to_win or 0.0))
    return lines + [
        f"without a usable price: {item.label}: first of the machines at up to "
        f"{dollars(item.usd_per_accelerator_hour_to_win)} per accelerator-hour "
        f"({dollars(item.usd_per_month_to_win)} a month)"
        for item in priced[:MOST_CHANGES]
    ]


def rejection_lines(answer: Answer) -> list[str]:
    """Why not the other accelerators, frameworks and formats."""
    rejected, excluded = rejected_and_excluded(answer)
    lines = [f"not {item.accelerator}: {item.detail}" for item in rejected[:MOST_REJECTED]]
    if len(rejected) > MOST_REJECTED:
        lines.append(f"... and {len(rejected) - MOST_REJECTED} more (--format json lists all)")
    software = [
        f"not {kind} {item.name}: {item.smallest_change}"
        for kind, item in software_left_out(answer)
        if item.smallest_change
    ]
    return lines + ([f"{excluded} excluded by your constraints"] if excluded else []) + software[:MOST_REJECTED]


def owned_lines(answer: Answer) -> list[str]:
    """What to do with accelerators that are owned."""
    return [f"owned {o.count:,} x {o.accelerator}: {o.said}" for o in answer.owned]


def not_used_lines(answer: Answer) -> list[str]:
    """Inputs that did not change the answer."""
    return [f"not used: {item.field}: {item.instead}" for item in answer.not_used]


def on_demand_lines(answer: Answer) -> list[str]:
    """Why no deployment that scales to zero is ranked."""
    why = answer.scale_to_zero
    return [f"scale to zero: {why.detail}; passes with {why.smallest_change}"] if why else []


def sharing_lines(answer: Answer) -> list[str]:
    """Shared cards against whole cards, and adapters against merged copies, where the workload asks."""
    return [line for part in (answer.sharing, answer.adapters) if part is not None for line in (part.said, "")]


def mix_lines(answer: Answer) -> list[str]:
    """Whether several kinds of machines together are cheaper."""
    return [answer.mix.said, ""] if answer.mix and answer.mix.said else []


def portfolio_lines(answer: Answer) -> list[str]:
    """Each workload alone, who runs where and when on the shared fleet, and models packed on shared cards."""
    p = answer.portfolio
    if p is None:
        return []
    lines = [f"- alone {a.name}: {a.option.label if a.option else a.verdict}" for a in p.alone]
    lines += [
        f"- {r.workload} on {r.machine} ({r.setup}): {h.when}, {replicas_text(h.replicas)}, "
        f"{figure(h.requests_per_s)} requests/s"
        for r in (p.shared.runs if p.shared else [])
        for h in r.hours
    ]
    return [*lines, *(packing_lines(p.packed) if p.packed else []), ""]


def packing_lines(packed: Packed) -> list[str]:
    """Small models on shared cards: which are on which, as processes and in hardware instances."""
    return [
        f"- {way}, card {k}: "
        + ", ".join(f"{t.workload} {t.partition or ''}".strip() + f" {figure(t.memory_gib)} GiB" for t in card.tenants)
        for way, packing in (("processes", packed.processes), ("instances", packed.instances))
        for k, card in enumerate(packing.cards, 1)
    ]


def hosted_lines(answer: Answer) -> list[str]:
    """Hosted APIs of the model, cheapest first: published prices, no estimate."""
    offers = answer.hosted
    if not offers:
        return []
    rows = aligned([[shortened(cell, 50) for cell in row] for row in hosted_cells(offers[:MOST_HOSTED])])
    more = len(offers) - MOST_HOSTED
    listed = [f"... and {more} more (--format json lists all)"] if more > 0 else []
    return [*rows, *listed, hosted_note(answer), ""]


def hosted_note(answer: Answer) -> str:
    """What the figures of hosted APIs are."""
    return f"{HOSTED_NOTE} {MEAN_MONTH}" if has_changing_traffic(answer) else HOSTED_NOTE


# --- Markdown ---------------------------------------------------------------------------------------------------


def markdown(answer: Answer, top: int | None = None) -> str:
    """A page to paste: the first screen, then verdict, table, the first plan in full, rejections, sources."""
    shown = answer.serving_options[:top]
    lines = [*screen_markdown(screen_of(answer)), md.heading(2, "In full"), "", md.paragraph(answer.verdict), ""]
    if trains(answer):
        runs = answer.training_runs[:top]
        lines += [*markdown_table(cells(answer, runs)), ""] if runs else []
        lines += training_answer.markdown_sections(answer)
        return "\n".join([*lines, *source_section(answer), md.paragraph(head(answer))])
    if shown:
        lines += [*markdown_table(cells(answer, shown)), ""]
        lines += api_section(shown[0]) if isinstance(shown[0], ApiOption) else option_section(shown[0])
        facts = (*view_lines(answer), *confidence_lines(answer), *near_miss_lines(answer), *unranked_lines(answer))
        lines += [*map(md.item, facts), ""]
        if planned := plan_lines(answer):
            lines += ["## Plan, range and chances", "", *map(md.item, planned), ""]
    else:
        lines += [*map(md.item, nearest_miss_lines(answer)), ""]
    notes = [md.item(text) for text in not_used_lines(answer)]
    more = (*on_demand_lines(answer), *sharing_lines(answer), *(mix_lines(answer) or portfolio_lines(answer)))
    lines += [*map(markdown_line, more), *hosted_section(answer)]
    ending = [*rejection_section(answer), *([*notes, ""] if notes else []), *source_section(answer)]
    return "\n".join([*lines, *ending, md.paragraph(head(answer))])


def markdown_line(line: str) -> str:
    """A line of the terminal's text; those that begin with a dash become a list."""
    return md.item(line[2:]) if line.startswith("- ") else md.paragraph(line)


def section(title: str, columns: list[str], rows: list[list[str]]) -> list[str]:
    """A third-level heading with a table; nothing without rows."""
    return [f"### {title}", "", *markdown_table([columns, *rows]), ""] if rows else []


def hosted_section(answer: Answer) -> list[str]:
    if not answer.hosted:
        return []
    return [
        "## Hosted API (pay per token)",
        "",
        hosted_note(answer),
        "",
        *markdown_table(hosted_cells(answer.hosted)),
        "",
    ]


def rejection_section(answer: Answer) -> list[str]:
    rejected, excluded = rejected_and_excluded(answer)
    rows = [[r.accelerator, r.reason, r.detail, r.smallest_change or dead_end(r)] for r in rejected]
    rows += [[f"{excluded} others", "excluded", "excluded by your constraints", ""]] if excluded else []
    rows += [
        [f"{kind} {item.name}", item.reason, item.detail, item.smallest_change or dead_end(item)]
        for kind, item in software_left_out(answer)
    ]
    if not rows:
        return []
    return ["## Not chosen", "", *markdown_table([["what", "reason", "why", "what would change it"], *rows]), ""]


def api_section(r: ApiOption) -> list[str]:
    """A hosted API in full: its bill, what is known about it and what is not, and how to call it."""
    rows = [("tokens", "tokens a month", "USD per million", "USD a month")]
    rows += [
        (c.name, f"{c.tokens_per_month:,.0f}", usd_figure(c.usd_per_mtok), cents_digits(c.usd_per_month))
        for c in r.bill
    ]
    notes = [md.item(text) for text in (*r.reasons, *(f"Warning: {warning}" for warning in r.warnings))]
    return [md.heading(2, r.label), "", *markdown_table(rows), "", *notes, "", *md.fenced(r.how_to_call, "sh"), ""]


def dead_end(item: Rejection | LeftOut) -> str:
    """What a table says where no change helps; empty in answers from before November 2026."""
    return "no change helps" if item.dead_end else ""


def option_section(r: Option) -> list[str]:
    """One option in full: figures, reasons and warnings, bill, launch, tuning."""
    token, usd = ("input", r.usd_per_mtok_input) if r.is_embedding else ("output", r.usd_per_mtok_output)
    interval = r.interval.of(f"usd_per_mtok_{token}")
    cost = usd_figure(usd) + (" ({}..{})".format(*map(usd_figure, interval)) if interval else "")
    latencies = [("latency", r.ttft_ms)] if r.is_embedding else [("TTFT", r.ttft_ms), ("TPOT", r.tpot_ms)]
    memory = ", ".join(f"{name.removesuffix('_gib')} {figure(gib)}" for name, gib in r.memory.parts().items())
    each = (f"USD per million {token} tokens", cost)
    if r.is_embedding and r.unit_cost:
        each = (f"USD per {r.unit_cost.count:,} {r.unit_cost.unit}s", usd_figure(r.unit_cost.usd))
    rows = [
        ("figure", "value (90% interval)"),
        each,
        *((f"{name} p50 / p95 / p99 (ms)", percentiles(latency_ms)) for name, latency_ms in latencies),
        ("memory per accelerator (GiB)", memory),
        *host_rows(r),
        ("power (W)", figure(r.watts)),
        ("bound by", r.bound),
    ]
    notes = [md.item(text) for text in (*r.reasons, *(f"Warning: {warning}" for warning in r.warnings))]
    launch = [*md.fenced(r.launch.command, "sh"), *launch_notes(r.launch)]
    return [
        md.heading(2, r.label), "", *markdown_table(rows), "", *notes, *bill_lines(r), "",
        *launch, "", *tuning_sections(r),
    ]  # fmt: skip


def host_rows(r: Option) -> list[tuple[str, str]]:
    """The host of an instance and where the weights are kept; nothing for answers without it."""
    h = r.host
    if h is None:
        return []
    disk = f"{figure(h.local_disk_gb)} GB of local disk" if h.local_disk_gb else "no local disk"
    parts = [f"{figure(h.memory_gib)} GiB", f"{h.cores} cores in {h.sockets} sockets", disk]
    parts += [f"{figure(h.network_gbit_per_s)} Gbit/s"] + ([f"assumed: {', '.join(h.assumed)}"] if h.assumed else [])
    rows = [("host of an instance", ", ".join(parts))]
    if h.download_s is not None:
        on = f"{figure(h.checkpoint_gb)} GB on a {h.weights_on}, download {figure(h.download_s)} s"
        usd = f", {usd_figure(h.volume_usd_per_month)} USD a month (not included)" if h.volume_usd_per_month else ""
        rows.append(("weights", on + usd))
    return rows


def tuning_sections(r: Option) -> list[str]:
    """Variants, optimization plan, formats, frameworks, roofline and pitfalls; nothing for answers without them."""
    if r.tuning is None:
        return []
    plan = [
        [s.name, s.state.replace("_", " "), ratio(s.gain_ratio), "; ".join(filter(None, (s.change, s.because)))]
        for s in (r.tuning.plan.steps if r.tuning.plan else [])
    ]
    formats = [
        [f.name, f.state, ratio(f.gain_ratio), f.framework or "-", f.why, f.warning]
        for f in r.tuning.formats
        if f.state in ("advised", "plan", "possible", "outside")
    ]
    frameworks = [
        [
            f"{f.name} {f.version}",
            *map(figure, (f.output_tokens_per_s_per_accelerator, f.ttft_ms, f.tpot_ms)),
            f.effort,
            f.maturity,
        ]
        for f in r.tuning.frameworks
        if f.output_tokens_per_s_per_accelerator
    ]
    return [
        *section(
            "Variants, simulated",
            ["deployment", "USD/month", "TTFT p95 ms", "TPOT p95 ms"],
            [variant_cells(v) for v in r.variants or []],
        ),
        *section("Optimization plan", ["technique", "state", "gain", "what"], plan),
        *section("Weight formats", ["format", "state", "gain", "framework", "why", "warning"], formats),
        *section(
            "Frameworks",
            ["framework", "tokens/s per accelerator", "TTFT ms", "TPOT ms", "effort", "maturity"],
            frameworks,
        ),
        *["### Roofline", "", *map(md.item, r.tuning.roofline.sentences), ""],
        *["### Pitfalls", "", *(md.item(f"{p.what}: {p.remedy}") for p in r.tuning.pitfalls), ""],
    ]


def variant_cells(v: Variant) -> list[str]:
    return [v.label, usd_figure(v.usd_per_month), *map(figure, (v.ttft_ms.p95, v.tpot_ms.p95))]


def launch_notes(launch: LaunchFiles) -> list[str]:
    """The check of the command's options, and the load test at the predicted load."""
    lines, flags, test = [], launch.flags, launch.load_test
    if flags:
        unknown = f"not found: {', '.join(flags.unknown)}; " if flags.unknown else ""
        state = "Options checked against" if flags.checked else "Options not checked:"
        lines += ["", md.paragraph(f"{state} {unknown}{flags.source}.")]
    if test:
        lines += ["", "Load test at the predicted load (run load_trace.py first):", ""]
        lines += md.fenced(test.commands["vllm"], "sh")
    return lines


def bill_lines(r: Option) -> list[str]:
    """The month's bill by part, and other ways to pay for the same machines."""
    m = r.money
    if m is None:
        return []
    parts = [(part.name, cents_digits(part.usd_per_month)) for part in m.parts if part.usd_per_month]
    ways = [
        (f"{w.acquisition}, {w.term}", w.provider, usd_figure(w.usd_per_month), usd_figure(w.npv_usd), w.basis)
        for w in m.ways_to_pay
    ]
    header = (
        "payment option", "provider", "USD per month", f"present value of costs, {m.horizon_months} months", "basis",
    )  # fmt: skip
    bill = markdown_table([("cost", "USD per month"), *parts, ("total", cents_digits(m.usd_per_month))])
    return ["", *bill, "", *markdown_table([header, *ways])]


def source_section(answer: Answer) -> list[str]:
    lines = [md.item(source_text(source)) for source in answer.sources]
    return ["## Sources", "", *lines, ""] if lines else []


def source_text(source: Source) -> str:
    return f"{source.what}: {source.source}{f' ({source.as_of})' if source.as_of else ''}"


# --- canonical JSON ---------------------------------------------------------------------------------------------


def canonical(answer: Answer) -> str:
    """The same text for the same answer: sorted keys, six significant digits, no clock values."""
    return json.dumps(rounded(answer.to_json()), sort_keys=True, indent=2, ensure_ascii=False)


def rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items() if key not in CLOCK_VALUES}
    if isinstance(value, list | tuple):
        return [rounded(item) for item in value]
    return float(f"{value:.{SIGNIFICANT_DIGITS}g}") if isinstance(value, float) else value
