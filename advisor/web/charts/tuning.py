"""Pictures of how to run an option, drawn on the server: the optimization plan and the roofline."""

from collections.abc import Sequence
from html import escape
from typing import Any

from advisor.result import CacheFormatChoice, FormatChoice, Option, TuningPlan, TuningStep
from advisor.web.charts.plots import label, log_scale, sig_short, svg, wrapped
from catalog.charts import Log

WIDTH, ROW, TOP, BOTTOM = 720, 34, 10, 44
NAMES, RIGHT = 300, 70  # pixels left and right of the bars
NAME_LETTERS = 42
FORMATS_SHOWN = 3  # in view; the others are closed
LOSS = 0.995  # a smaller gain is a loss


def waterfall(plan: TuningPlan | None) -> str:
    """Each used technique as a bar from the rate before it to the rate after it; possible ones in outline."""
    drawn = ("base", "used", "possible")
    rated = [(step, step.output_tokens_per_s_per_accelerator) for step in plan.steps] if plan else []
    steps = [(step, rate) for step, rate in rated if step.state in drawn and rate]
    used = [rate for step, rate in steps if step.state != "possible"]
    if len(used) < 2:
        return ""
    x = log_scale([rate for _, rate in steps], NAMES, WIDTH - RIGHT)
    height, reached = TOP + ROW * len(steps) + BOTTOM, used[-1]
    parts, before = [ticks(x, height)], x.low
    for row, (step, rate) in enumerate(steps):
        possible = step.state == "possible"
        parts.append(bar(step, rate, x, reached if possible else before, TOP + ROW * row))
        before = before if possible else rate
    text = (
        f"From {sig_short(used[0])} to {sig_short(reached)} output tokens/s per chip; outlined: further possibilities."
    )
    return svg("waterfall", WIDTH, height, "Optimization plan", text, "".join(parts))


def ticks(x: Log, height: float) -> str:
    floor, parts = height - BOTTOM, []
    for value in x.ticks():
        parts.append(f'<path class="grid" d="M{x(value)} {TOP}V{floor}"/>')
        parts.append(label(x(value), floor + 17, sig_short(value)))
    parts.append(label((NAMES + WIDTH - RIGHT) / 2, height - 6, "output tokens/s per chip (log)", "name"))
    return "".join(parts)


def bar(step: TuningStep, rate: float, x: Log, start: float, y: float) -> str:
    """One row: name, bar, factor."""
    possible, gain = step.state == "possible", step.gain_ratio
    left, right = sorted((x(start), x(rate)))
    kind = "possible" if possible else "base" if gain is None else "gain" if gain >= 1 else "loss"
    text = f"×{gain:.2f}" if gain is not None else sig_short(rate)
    name = f"{step.name}: {step.change}" if possible and step.because.startswith("outside") else step.name
    tip = escape(f"{step.name}: {step.change}, {sig_short(rate)} tokens/s per chip")
    return (
        f"<g><title>{tip}</title>{wrapped(NAMES - 8, y + ROW / 2, name, NAME_LETTERS)}"
        f'<rect class="step {kind}" x="{left}" y="{y + 6}" width="{max(right - left, 2):.1f}" height="{ROW - 12}"/>'
        f"{label(right + 6, y + ROW / 2 + 4, text, 'tick', 'start')}</g>"
    )


# --- rows for the tables ----------------------------------------------------------------------------------------

STATES = {
    "base": "start",
    "used": "in the plan",
    "possible": "possible",
    "hours": "fewer paid hours",
    "cited": "cited only",
    "not_here": "not applicable",
}
FORMAT_STATES = {
    "advised": "advised",
    "plan": "in the plan",
    "possible": "possible",
    "outside": "below your quality limit",
    "retrained": "needs training",
    "cannot": "does not run here",
}


def page(option: Option) -> dict[str, Any]:
    """What the option page shows of `tuning`; answers of earlier versions have none."""
    tuning = option.tuning
    plan = tuning.plan if tuning else None
    formats = with_state(tuning.formats) if tuning else []
    return {
        "tuning": tuning,
        "plan_losses": [s for s in plan.steps if s.state == "used" and (s.gain_ratio or 1) < LOSS and s.because]
        if plan
        else [],
        "tuning_steps": [(step, STATES[step.state]) for step in plan.steps] if plan else [],
        "formats": formats,
        "formats_first": formats[:FORMATS_SHOWN],
        "formats_rest": formats[FORMATS_SHOWN:],
        "cache_formats": with_state(tuning.cache_formats) if tuning else [],
    }


def with_state(choices: Sequence[FormatChoice | CacheFormatChoice]) -> list[tuple[Any, str]]:
    """Each choice with its state in words."""
    return [(choice, FORMAT_STATES[choice.state]) for choice in choices]
