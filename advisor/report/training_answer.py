"""An answer to a training question as text: a table for a terminal, Markdown for a file."""

from collections.abc import Callable

from advisor.engine.terms import amount_digits
from advisor.report import markdown_escapes as md
from advisor.report.estimate_text import shown
from advisor.report.training_text import percent
from advisor.result import Answer, MeasuredRun, TrainingOption
from advisor.templatetags.training import measured_name
from advisor.templatetags.units import dollars

MOST_REJECTED, MOST_LAYOUTS = 8, 12


def detail_lines(r: TrainingOption) -> list[str]:
    """One run in full: step, time, memory, scaling, plan."""
    g = r.goodput
    ends = r.interval.days
    spread = f" (90% range {shown(ends[0])} to {shown(ends[1])})" if ends else ""
    lines = [
        f"#{r.rank} {r.label}, {r.framework or 'no launch file'}",
        f"{'iteration' if r.objective == 'grpo' else 'step'} {shown(r.step_s)} s: "
        f"{shown(r.tokens_per_s)} tokens/s, MFU {percent(r.mfu)}, HFU {percent(r.hfu)}; "
        f"exposed communication {percent(r.exposed_communication_fraction)}, bubble {percent(r.bubble_fraction)}; "
        f"{r.bound}-bound",
        *phase_lines(r),
        f"run: {r.steps:,} {repeated(r)} of {r.global_batch_tokens:,} tokens, {shown(r.days)} days{spread}, "
        f"{shown(r.accelerator_hours)} accelerator-hours",
        f"goodput {percent(g.fraction)} ({percent(g.low_fraction)} to {percent(g.high_fraction)}): about "
        f"{shown(g.interruptions)} interruptions ({shown(g.interruptions_low)} to {shown(g.interruptions_high)}), a "
        f"checkpoint of {shown(g.checkpoint_gib)} GiB every {minutes(r.checkpoint_interval_s)}",
        f"memory: {shown(r.peak_allocated_gib)} of {shown(r.usable_gib)} GiB allocated at the peak "
        f"({shown(r.peak_reserved_gib)} reserved by PyTorch)"
        + (f", beside {shown(r.reference_gib)} GiB of the reference or reward model" if r.reference_gib else ""),
        f"layout: dp {r.dp}, tp {r.tp}, pp {r.pp}, cp {r.cp}, ep {r.ep}, ZeRO {r.zero}, micro-batch {r.micro_batch} x "
        f"{r.micro_batches}, recompute {r.recompute}",
        f"scaling: {r.scaling_said}",
        r.storage.said,
    ]
    if r.kwh:
        carbon = f", {shown(r.kgco2e)} kg CO2e" if r.kgco2e else ""
        lines.append(f"energy: {shown(r.kwh)} kWh{carbon}")
    return [*lines, *(each.said for each in r.serve_elsewhere)]


def repeated(r: TrainingOption) -> str:
    return "iterations" if r.objective == "grpo" else "steps"


def phase_lines(r: TrainingOption) -> list[str]:
    """The iteration of DPO or GRPO by phase."""
    return [f"  {p.name}: {shown(p.time_s)} s, {percent(p.fraction)}: {p.said}" for p in r.phases]


def minutes(seconds: float | None) -> str:
    return "run" if seconds is None else f"{shown(seconds / 60)} minutes"


def plan_lines(r: TrainingOption) -> list[str]:
    """What to sign, other ways to pay, and when owning pays."""
    money = r.money
    if money is None or money.plan is None:
        return []
    others = [f"{s.said} {dollars(s.npv_usd)}" for s in money.plan.strategies if not s.chosen]
    said = [f"plan: {step.said}" for step in money.plan.steps]
    said += [f"other ways to pay for the run: {'; '.join(others)}"] if others else []
    elsewhere = [f"{w.provider} {dollars(w.npv_usd)}" for w in money.ways_to_pay[1:4]]
    said += [f"the same run elsewhere: {'; '.join(elsewhere)}"] if elsewhere else []
    if money.ranges:
        low, middle, high = map(dollars, money.ranges.total_usd)
        said.append(f"range: {low} to {high} in 90% of the draws, median {middle}")
        said.append(f"chance: costs least of the runs shown in {money.ranges.wins_probability:.0%} of the draws")
    if r.deadline_probability is not None:
        said.append(f"chance: ends within {r.deadline_days:g} days: {r.deadline_probability:.0%}")
    return said + [f"break-even: {b.said}" for b in money.break_even]


def scaling_cells(r: TrainingOption) -> list[list[str]]:
    """The run on other numbers of the same accelerators."""
    head = ["accelerators", "days", "USD per run", "tok/s/chip", "goodput", "gain", "from", "layout"]
    return [
        head,
        *(
            [
                f"{p.accelerator_count:,}", shown(p.days),
                "-" if p.usd_per_run is None else amount_digits(p.usd_per_run),
                shown(p.tokens_per_s_per_accelerator), percent(p.goodput_fraction),
                percent(p.gain_fraction), p.provider, p.layout,
            ]
            for p in r.scaling[:MOST_LAYOUTS]
        ),
    ]  # fmt: skip


def optimization_lines(r: TrainingOption) -> list[str]:
    """What each technique gains, in the order in which it is applied."""
    return [
        f"technique: {step.name}{f' x{step.gain_ratio:.2f}' if step.gain_ratio else ''}: "
        f"{shown(step.tokens_per_s) + ' tokens/s' if step.tokens_per_s else 'does not fit yet'}, peak "
        f"{shown(step.peak_gib)} GiB"
        for step in r.optimization
    ]


def evidence_lines(r: TrainingOption) -> list[str]:
    """The most similar measured runs with their prediction; says so when none is near."""
    if not r.evidence:
        return []
    near = any(row.near for row in r.evidence)
    return [
        "most similar measured runs (distance 0: the same run):"
        if near
        else "no measured run is similar to this one; the nearest (distance above 3: not similar):",
        *(evidence_line(row) for row in r.evidence),
    ]


def evidence_line(row: MeasuredRun) -> str:
    figures = (
        f"measured {shown(row.measured)}, predicted {shown(row.predicted)}, "
        if row.measured is not None
        else "the source does not allow its figures to be repeated, "
    )
    error = "predicted not to fit" if row.error_fraction is None else f"{row.error_fraction:.1%} off"
    method = "" if row.method == "full" else f", {row.method.upper()}"
    return (
        f"distance {row.distance:.2f}: {row.accelerator_count:,} x {row.accelerator}, {row.model}{method}, "
        f"{row.precision}, {row.layout or 'layout not stated'}, sequences of {row.sequence_length:,}: "
        f"{measured_name(row.metric)}: {figures}{error} ({row.source})"
    )


def change_lines(answer: Answer) -> list[str]:
    """What would change the choice, and who wins each view."""
    ranks = answer.views.ranks()
    views = ["best by view: " + ", ".join(f"{name} #{rank}" for name, rank in ranks.items())] if ranks else []
    return views + [f"sensitivity: {bar.assumption}: {bar.detail}" for bar in answer.sensitivity]


def rejected_lines(answer: Answer) -> list[str]:
    """Why the nearest other accelerators are not ranked."""
    told = [r for r in answer.rejected if r.reason in ("misses_deadline", "too_expensive", "does_not_fit", "outranked")]
    lines = [f"{r.accelerator}: {r.detail}" for r in told[:MOST_REJECTED]]
    more = len(answer.rejected) - len(lines)
    return lines + ([f"... and {more} more (--format json lists all)"] if more > 0 else [])


def training_sections(answer: Answer, heading: Callable[[int, str], str]) -> list[tuple[str, list[str]]]:
    """(heading, lines) of an answer, for Markdown."""
    if not answer.training_runs:
        return [("Why not", rejected_lines(answer))]
    first = answer.training_runs[0]
    warnings = [*(f"warning: {w}" for w in first.warnings)]
    return [
        ("First choice", [*detail_lines(first), *first.reasons, *warnings]),
        ("Nearest measurements", evidence_lines(first)),
        ("Optimization plan", [*optimization_lines(first), *first.optimization_notes]),
        ("Plan, range and chances", [*plan_lines(first), *change_lines(answer)]),
        ("Why not", rejected_lines(answer)),
    ]


def markdown_sections(answer: Answer) -> list[str]:
    lines: list[str] = []
    for title, items in training_sections(answer, md.heading):
        if not items:
            continue
        lines += [md.heading(2, title), "", *map(md.item, items), ""]
    return lines
