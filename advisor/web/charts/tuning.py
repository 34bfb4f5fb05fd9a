"""Pictures of how to run an option, drawn on the server: the optimization plan and the roofline."""

from collections.abc import Sequence
from html import escape
from typing import Any

from advisor.result import CacheFormatChoice, FormatChoice, Option, Roofline, RooflinePhase, TuningPlan, TuningStep
from advisor.web.charts.plots import label, log_scale, sig_short, svg, wrapped
from catalog.charts import Log

WIDTH, ROW, TOP, BOTTOM = 720, 34, 10, 44
NAMES, RIGHT = 300, 70  # pixels left and right of the bars
ROOF_WIDTH, ROOF_HEIGHT, ROOF_LEFT, ROOF_RIGHT, ROOF_BOTTOM = 720, 360, 74, 24, 56
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


# --- roofline ---------------------------------------------------------------------------------------------------


def roofline_svg(roofline: Roofline | None) -> str:
    """FLOP/s over FLOP per byte: datasheet roofline, achieved roofline, and both phases."""
    if roofline is None or not roofline.phases or not roofline.reached_flops_per_s:
        return ""
    flops, rate = roofline.reached_flops_per_s, roofline.reached_bytes_per_s or 0.0
    sheet = (roofline.datasheet_flops_per_s or flops, roofline.datasheet_bytes_per_s or 0.0)
    roofs = [("datasheet", "sheet", *sheet), (roofline.basis, "reached", flops, rate)]
    ridges = [flops / rate for _, _, flops, rate in roofs]
    intensities = [p.flops_per_byte for p in roofline.phases if p.flops_per_byte]
    x = log_scale([*intensities, min(ridges) / 8, max(ridges) * 4], ROOF_LEFT, ROOF_WIDTH - ROOF_RIGHT)
    top = max(flops for _, _, flops, _ in roofs) / 1e12
    speeds = [p.flops_per_s / 1e12 for p in roofline.phases if p.flops_per_s]
    lowest = min([*speeds, *(rate * x.low / 1e12 for *_, rate in roofs)])
    y = log_scale([lowest, top], ROOF_HEIGHT - ROOF_BOTTOM, 24)
    body = roof_axes(x, y) + "".join(roof(name, css, flops, rate, x, y) for name, css, flops, rate in roofs)
    body += "".join(phase_mark(p, x, y) for p in roofline.phases)
    return svg("lesson", ROOF_WIDTH, ROOF_HEIGHT, "Roofline of this plan", " ".join(roofline.sentences), body)


def roof_axes(x: Log, y: Log) -> str:
    floor, parts = ROOF_HEIGHT - ROOF_BOTTOM, []
    for value in x.ticks():
        parts += [f'<path class="grid" d="M{x(value)} 24V{floor}"/>', label(x(value), floor + 18, sig_short(value))]
    for value in y.ticks():
        parts.append(f'<path class="grid" d="M{ROOF_LEFT} {y(value)}H{ROOF_WIDTH - ROOF_RIGHT}"/>')
        parts.append(label(ROOF_LEFT - 8, y(value) + 4, sig_short(value), anchor="end"))
    parts.append(label((ROOF_LEFT + ROOF_WIDTH) / 2, ROOF_HEIGHT - 12, "FLOP per byte of memory read (log)", "name"))
    turned = f'transform="translate(16 {(24 + floor) / 2}) rotate(-90)"'
    return "".join(parts) + f'<text class="name" text-anchor="middle" {turned}>TFLOP/s per chip (log)</text>'


def roof(name: str, css: str, flops_per_s: float, bytes_per_s: float, x: Log, y: Log) -> str:
    ridge, high = flops_per_s / bytes_per_s, flops_per_s / 1e12
    tip = f"{name}: {high:,.0f} TFLOP/s, {bytes_per_s / 1e12:.2f} TB/s, ridge at {ridge:,.0f} FLOP/byte"
    rise = f"M{x(x.low)} {y(bytes_per_s * x.low / 1e12)}L{x(ridge)} {y(high)}H{x(x.high)}"
    below = 15 if css == "reached" else -7
    return (
        f'<g><title>{escape(tip)}</title><path class="roof-line {css}" d="{rise}"/>'
        f"{label(x(x.high) - 4, y(high) + below, f'{name}: {high:,.0f}', 'tick', 'end')}</g>"
    )


def phase_mark(p: RooflinePhase, x: Log, y: Log) -> str:
    """The point of one phase; nothing where a figure is unknown."""
    if not p.flops_per_byte or not p.flops_per_s:
        return ""
    px, py = x(p.flops_per_byte), y(p.flops_per_s / 1e12)
    tip = f"{p.phase}: {p.flops_per_byte:,.0f} FLOP/byte, {p.flops_per_s / 1e12:,.0f} TFLOP/s per chip"
    return (
        f'<g><title>{escape(tip)}</title><circle class="phase {escape(p.phase)}" cx="{px}" cy="{py}" r="7"/>'
        f"{label(px + 11, py + (16 if py < ROOF_HEIGHT - ROOF_BOTTOM - 22 else -6), p.phase, 'name', 'start')}</g>"
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
