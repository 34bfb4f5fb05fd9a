"""The decision memo of a training run: what to sign, how long it takes, what it can cost, at which risk."""

from collections.abc import Iterator

from advisor.answer import likely
from advisor.report.documents.memo_money import plan_rows, quotes, signed_rows, tax_rows
from advisor.report.documents.memo_parts import (
    FIGURES,
    Line,
    Memo,
    Part,
    dated,
    fact,
    memo_of,
    note,
    other,
    range_rows,
    table,
)
from advisor.report.documents.wording import capital, counted, dollars, is_late, purchase_text
from advisor.report.text import figure, name_of
from advisor.result import Answer, TrainingOption
from advisor.templatetags.units import large

MOST_OTHERS, MOST_RISKS, MOST_REJECTED = 4, 8, 2


def training_memo(answer: Answer, r: TrainingOption) -> Memo:
    """The memo of one run."""
    m, currency = r.money, answer.currency
    plan = m.plan if m else None
    return memo_of(
        title=f"{name_of(answer)}: {purchase_text(r)}",
        verdict=f"{answer.verdict}{'' if r.rank == 1 else f' This memo is about option {r.rank} of the ranking.'} "
        f"Configuration: {r.label}.",
        parts=[
            Part(title="Decision", rows=table(FIGURES, decision_rows(r), currency)),
            Part(
                title="Range",
                rows=range_rows(m.ranges if m else None, answer.scenarios, r.rank, currency),
                items=chances(answer),
            ),
            Part(title="What to sign", rows=signed_rows(plan, currency) if plan else []),
            Part(title="The run", rows=table(FIGURES, run_rows(r), currency)),
            Part(title="Money", rows=table(FIGURES, money_rows(r), currency)),
            Part(title="Alternatives considered", items=alternatives(answer, r)),
            Part(title="Risks", items=risks(answer, r)),
            Part(title="Before signing", items=tests(r)),
        ],
        dated=dated(answer, m),
    )


def range_part(answer: Answer, r: TrainingOption) -> Part:
    ranges = r.money.ranges if r.money else None
    return Part(
        title="Range", rows=range_rows(ranges, answer.scenarios, r.rank, answer.currency), items=chances(answer)
    )


def decision_rows(r: TrainingOption) -> Iterator[Line]:
    if r.money and r.money.plan:
        yield note("plan", r.money.plan.said)
    yield fact("per run, without discounting", r.usd_per_run)
    yield fact("present value of costs", r.usd_total, dollars(r.usd_total, r.interval.usd_total))
    yield Line(cells=("per million trained tokens", f"${r.usd_per_mtok:,.3g}"), usd=(r.usd_per_mtok,))
    yield note("days of the run", span(r.days, r.interval.days))
    if r.deadline_days is not None:
        chance = f", met with {likely(r.deadline_probability)} probability" if r.deadline_probability else ""
        yield note("deadline", f"{r.deadline_days:g} days{chance}")


def span(value: float, ends: list[float | None] | None) -> str:
    return figure(value) if not ends else f"{figure(value)} ({figure(ends[0])} to {figure(ends[1])})"


def run_rows(r: TrainingOption) -> Iterator[Line]:
    g = r.goodput
    yield note(
        "accelerators", f"{r.accelerator_count:,} x {r.accelerator_name}, {counted(r.spare_hosts, 'spare host')}"
    )
    yield note("tokens", f"{large(r.tokens)} ({figure(r.tokens_per_parameter)} per parameter), {r.steps:,} steps")
    yield note("speed", f"{figure(r.tokens_per_s)} tokens/s, MFU {r.mfu:.1%}")
    yield note("goodput", f"{g.fraction:.1%} ({g.low_fraction:.1%} to {g.high_fraction:.1%})")
    yield note(
        "interruptions expected",
        f"{figure(g.interruptions)} ({figure(g.interruptions_low)} to {figure(g.interruptions_high)})",
    )
    if r.kwh:
        carbon = f", {figure(r.kgco2e)} kg CO2e" if r.kgco2e else ""
        yield note("energy of a run", f"{figure(r.kwh)} kWh{carbon}")


def money_rows(r: TrainingOption) -> Iterator[Line]:
    m = r.money
    if m is None:
        return
    yield fact("upfront purchase", m.capital_usd) if m.capital_usd else note("upfront purchase", "none today")
    if m.plan is not None:
        yield from plan_rows(m, m.plan)
    if m.taxes is not None:
        yield from tax_rows(m, m.taxes)
    for b in m.break_even:
        yield note("break-even", b.said)


def chances(answer: Answer) -> list[str]:
    found = answer.uncertainty
    return [f"{capital(c.said)}: {likely(c.probability)} probability" for c in found.chances] if found else []


def alternatives(answer: Answer, r: TrainingOption) -> list[str]:
    """Other ways to pay, other sellers, other runs, rejected accelerators."""
    m = r.money
    ways = [f"same machines, {s.said}: {dollars(s.npv_usd)}" for s in m.plan.strategies if not s.chosen] if (
        m and m.plan
    ) else []  # fmt: skip
    sellers = [f"the same run at {w.provider}: {dollars(w.npv_usd)}" for w in (m.ways_to_pay[1:3] if m else [])]
    runs = [
        f"{other(o)}, {figure(o.days)} days: {dollars(o.usd_total)}" for o in answer.training_runs if o.rank != r.rank
    ]
    return [*ways, *sellers, *runs[:MOST_OTHERS], r.scaling_said, *rejected(answer)]


def rejected(answer: Answer) -> list[str]:
    """The first accelerators that could train, with the reason why they are not ranked."""
    told = [e for e in answer.rejected if e.reason in ("misses_deadline", "too_expensive", "outranked")]
    return [f"{e.accelerator}: {e.detail}" for e in told[:MOST_REJECTED]]


def risks(answer: Answer, r: TrainingOption) -> list[str]:
    m, items = r.money, list[str]()
    plan = m.plan if m else None
    if plan is not None:
        if plan.liability_usd > 0:
            items.append(f"a term outlasts the run: {dollars(plan.liability_usd)} is due after it")
        items += [
            f"delivery of {step.instance} takes about {counted(step.order_months_before, 'month')}, so the run starts "
            "then, or you rent until it arrives"
            for step in plan.steps
            if is_late(step)
        ][:1]
        if plan.resale_usd:
            items.append(f"the costs assume that the hardware brings {dollars(plan.resale_usd)} after the run")
    items += r.warnings
    return items[:MOST_RISKS] + [
        f"sensitivity: {b.detail} ({b.assumption})" for b in answer.sensitivity if b.winner_after
    ]


def tests(r: TrainingOption) -> list[str]:
    items = [
        f"train {figure(100)} steps on one host with this layout and compare the step time: {figure(r.step_s)} s is "
        "predicted for the whole cluster",
        "run an all-reduce test over all hosts, and restore a checkpoint once, before the long run",
        *quotes(r),
    ]
    if r.basis != "measured":
        origin = "extrapolated from a related accelerator" if r.basis == "relative" else "taken from datasheets"
        items.append(f"run the training probe on this accelerator: its efficiency is {origin}")
    return items
