"""The decision memo of a training run: what to sign, how long it takes, what it can cost, at which risk."""

from collections.abc import Iterator

from advisor.answer import likely
from advisor.engine.training_search import duration
from advisor.report.documents.memos.money import money_rows, quotes, signed_rows
from advisor.report.documents.memos.parts import (
    FIGURES,
    Line,
    Memo,
    Part,
    Row,
    chances,
    dated,
    fact,
    figure_rows,
    memo_of,
    note,
    table,
)
from advisor.report.documents.memos.signing import alternative_rows, approval_part, gate_items
from advisor.report.documents.subject import oldest_price
from advisor.report.documents.wording import counted, dollars, is_late, purchase_text
from advisor.report.text import figure, name_of
from advisor.result import Answer, Currency, Scenario, TrainingOption, machine_of, servers_text
from advisor.templatetags.units import large

MOST_RISKS, MOST_REJECTED = 8, 2
HARDLY_ANY = 0.01  # interruptions of a run
TRIAL_STEPS, TRIAL_FRACTION = 100, 0.1  # of a trial before the run: steps, and at most so much of the run


def training_memo(answer: Answer, r: TrainingOption) -> Memo:
    """The memo of one run."""
    m, currency = r.money, answer.currency
    plan = m.plan if m else None
    return memo_of(
        title=f"{name_of(answer)}: {signed_text(r)}",
        verdict=f"{answer.verdict}{'' if r.rank == 1 else f' This memo is about option {r.rank} of the ranking.'} "
        f"Configuration: {r.label}.",
        parts=[
            Part(title="Decision", rows=table(FIGURES, decision_rows(answer, r), currency)),
            Part(
                title="Range",
                rows=run_range_rows(r, answer.scenarios, currency),
                items=chances(answer),
            ),
            Part(title="What to sign", rows=signed_rows(plan, currency) if plan else []),
            Part(title="The run", rows=table(FIGURES, run_rows(answer, r), currency)),
            Part(title="Money", rows=table(FIGURES, money_rows(answer, r), currency)),
            Part(
                title="Alternatives considered",
                rows=alternative_rows(answer, r, currency),
                items=alternatives(answer, r),
            ),
            Part(title="Risks", items=risks(answer, r)),
            Part(title="Before signing", items=[*gate_items(answer, r), *tests(r)]),
            approval_part(answer, r, oldest_price(r)),
        ],
        dated=dated(answer, m),
    )


def signed_text(r: TrainingOption) -> str:
    """What is signed and for how long, in a phrase: rent 2 x HGX B200 at coreweave for 10 days."""
    plan = r.money.plan if r.money else None
    if plan is None or len(plan.steps) != 1:
        return f"{purchase_text(r)} for {times(r)}"
    step = plan.steps[0]
    at = f" at {step.provider}" if step.action in ("rent", "reserve") else ""
    return f"{step.action} {servers_text(step.instances, step)}{at} for {times(r)}"


def times(r: TrainingOption) -> str:
    return f"{duration(r.days)}, every {r.every_days:g} days" if r.every_days else duration(r.days)


def run_range_rows(r: TrainingOption, scenarios: list[Scenario], currency: Currency | None) -> list[Row]:
    """The cost of the run over the draws and scenarios; of repeated runs one run beside all."""
    m = r.money
    each = r.usd_per_run / m.usd_over_horizon if m and m.usd_over_horizon else 1.0
    found: list[tuple[str, float, str]] = []
    if m and m.ranges:
        names = ("5% of the draws are lower", "median", "95% of the draws are lower")
        found += [(name, usd, "") for name, usd in zip(names, m.ranges.total_usd, strict=True)]
    for scenario in scenarios:
        if cost := next((c for c in scenario.costs if c.rank == r.rank), None):
            first = "this option" if scenario.first_rank == r.rank else f"option {scenario.first_rank}"
            found.append((f"scenario {scenario.name}", cost.total_usd, first))
    if not r.every_days:
        lines = [Line(cells=(name, dollars(usd), first), usd=(usd,)) for name, usd, first in found]
        return table(("case", "cost of the run", "costs least"), lines, currency, ("cost of the run",))
    lines = [
        Line(cells=(name, dollars(usd * each), dollars(usd), first), usd=(usd * each, usd))
        for name, usd, first in found
    ]
    return table(("case", "one run", "all runs", "costs least"), lines, currency, ("one run", "all runs"))


def decision_rows(answer: Answer, r: TrainingOption) -> Iterator[Line]:
    if r.money and r.money.plan:
        yield note("plan", r.money.plan.said)
    yield fact("cost of one run" if r.every_days else "cost of the run", r.usd_per_run)
    over = f" of all runs in {counted(r.money.horizon_months, 'month')}" if r.every_days and r.money else ""
    yield fact(f"present value{over}", r.usd_total, dollars(r.usd_total, r.interval.usd_total))
    yield from figure_rows(r, answer, "Decision")
    yield note("time of the run", span(r.days, r.interval.days))
    if r.deadline_days is not None:
        chance = f", met with {likely(r.deadline_probability)} probability" if r.deadline_probability else ""
        yield note("deadline", f"{r.deadline_days:g} days{chance}")


def span(days: float, ends: list[float | None] | None) -> str:
    return duration(days) if not ends else f"{duration(days)} ({' to '.join(duration(end or 0.0) for end in ends)})"


def run_rows(answer: Answer, r: TrainingOption) -> Iterator[Line]:
    g = r.goodput
    yield note(
        "accelerators", f"{r.accelerator_count:,} x {r.accelerator_name}, {counted(r.spare_hosts, 'spare host')}"
    )
    yield note("tokens", f"{large(r.tokens)} ({figure(r.tokens_per_parameter)} per parameter), {r.steps:,} steps")
    if r.phases:
        parts = ", ".join(f"{p.name} {p.fraction or 0.0:.0%}" for p in r.phases)
        yield note("iteration" if r.objective == "grpo" else "step", f"{figure(r.step_s)} s: {parts}")
    yield note("speed", f"{figure(r.tokens_per_s)} tokens/s, MFU {r.mfu:.1%}")
    yield note("goodput", f"{g.fraction:.1%} ({g.low_fraction:.1%} to {g.high_fraction:.1%})")
    if g.interruptions < HARDLY_ANY:
        yield note("interruptions expected", "hardly any")
    else:
        yield note(
            "interruptions expected",
            f"{figure(g.interruptions)} ({figure(g.interruptions_low)} to {figure(g.interruptions_high)})",
        )
    if r.kwh:
        carbon = f", {figure(r.kgco2e)} kg CO2e" if r.kgco2e else ""
        yield note("energy of a run", f"{figure(r.kwh)} kWh{carbon}")
    yield note("shared storage", r.storage.said)
    yield from figure_rows(r, answer, "The run")


def alternatives(answer: Answer, r: TrainingOption) -> list[str]:
    """Other ways to pay, other sellers, other runs, near misses; all as present values, as the plans are compared."""
    m = r.money
    over = f" over {counted(m.horizon_months, 'month')}" if m and r.every_days else ""
    ways = [f"same machines, {s.said}: {dollars(s.npv_usd)}" for s in m.plan.strategies if not s.chosen] if (
        m and m.plan
    ) else []  # fmt: skip
    sellers = [f"the same run at {w.provider}: {dollars(w.npv_usd)}" for w in (m.ways_to_pay[1:3] if m else [])]
    own = f"this option costs {dollars(r.usd_total)}{over} in present value, like the costs below"
    return [own, *ways, *sellers, r.scaling_said, *rejected(answer)]


def rejected(answer: Answer) -> list[str]:
    """The accelerators that miss a limit by the least, with the smallest change that would let them pass."""
    told = [e for e in answer.rejected if e.reason in ("misses_deadline", "too_expensive", "does_not_fit")]
    near = sorted((e for e in told if e.limit and e.reached), key=lambda e: (e.reached or 0.0) / (e.limit or 1.0))
    changed = [f"; smallest change: {e.smallest_change}" if e.smallest_change else "" for e in near]
    return [f"{e.accelerator}: {e.detail}{change}" for e, change in zip(near, changed, strict=True)][:MOST_REJECTED]


def risks(answer: Answer, r: TrainingOption) -> list[str]:
    m, items = r.money, list[str]()
    plan = m.plan if m else None
    if plan is not None:
        if plan.liability_usd > 0:
            items.append(f"a term outlasts the run: {dollars(plan.liability_usd)} is due after it")
        items += [
            f"delivery of a {machine_of(step)} takes about {counted(step.order_months_before, 'month')}, so the run "
            "starts then, or you rent until it arrives"
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
    steps = max(min(TRIAL_STEPS, round(r.steps * TRIAL_FRACTION)), 1)
    days = steps * r.step_s / 86_400.0
    items = [
        f"train {counted(steps, 'step')} with this layout first ({duration(days)}, about "
        f"{dollars(r.usd_per_run * days / r.days)}) and compare the time of a step: {figure(r.step_s)} s is predicted",
        *(["run an all-reduce test over all accelerators before the run"] if r.accelerator_count > 1 else []),
        "write a checkpoint and restore it once before the run",
        *quotes(r),
    ]
    if r.basis != "measured":
        origin = "extrapolated from a related accelerator" if r.basis == "relative" else "taken from datasheets"
        items.append(f"run the training probe on this accelerator: its efficiency is {origin}")
    return items
