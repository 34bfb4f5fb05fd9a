"""Pictures of how to run an option, drawn on the server: the optimisation plan and the roofline lesson."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from advisor.templatetags.units import number
from advisor.web.charts import label, log_scale, sig_short, svg, wrapped
from catalog.charts import Log

Json = Mapping[str, Any]
WIDTH, ROW, TOP, BOTTOM = 720, 34, 10, 44
NAMES, RIGHT = 300, 70  # pixels left and right of the bars
ROOF_WIDTH, ROOF_HEIGHT, ROOF_LEFT, ROOF_RIGHT, ROOF_BOTTOM = 720, 360, 74, 24, 56
NAME_LETTERS = 42


def rate_of(step: Json) -> float | None:
    return number(step.get("output_tokens_per_s_per_accelerator"))


def waterfall(plan: Json | None) -> str:
    """Each used technique as a bar from the rate before it to the rate after it; what is possible in outline."""
    drawn = ("base", "used", "possible")
    steps = [step for step in (plan or {}).get("steps", []) if step["state"] in drawn and rate_of(step)]
    used = [step for step in steps if step["state"] != "possible"]
    if len(used) < 2:
        return ""
    x = log_scale([rate_of(step) or 1.0 for step in steps], NAMES, WIDTH - RIGHT)
    height, reached = TOP + ROW * len(steps) + BOTTOM, rate_of(used[-1]) or 1.0
    parts, before = [ticks(x, height)], x.low
    for row, step in enumerate(steps):
        start = before if step["state"] != "possible" else reached
        parts.append(bar(step, x, start, TOP + ROW * row))
        before = rate_of(step) or before if step["state"] != "possible" else before
    first, last = sig_short(rate_of(used[0]) or 0), sig_short(reached)
    words = f"From {first} to {last} output tokens/s per chip; outlined: further possibilities."
    return svg("waterfall", WIDTH, height, "Optimization plan", words, "".join(parts))


def ticks(x: Log, height: float) -> str:
    floor, found = height - BOTTOM, []
    for value in x.ticks():
        found.append(f'<path class="grid" d="M{x(value)} {TOP}V{floor}"/>')
        found.append(label(x(value), floor + 17, sig_short(value)))
    found.append(label((NAMES + WIDTH - RIGHT) / 2, height - 6, "output tokens/s per chip (log)", "name"))
    return "".join(found)


def bar(step: Json, x: Log, start: float, y: float) -> str:
    """One row: name, bar, factor."""
    end, gain = rate_of(step) or start, number(step.get("gain_ratio"))
    left, right = sorted((x(start), x(end)))
    kind = "possible" if step["state"] == "possible" else "base" if gain is None else "gain" if gain >= 1 else "loss"
    text = f"×{gain:.2f}" if gain is not None else sig_short(end)
    name = (
        step["name"]
        if step["state"] != "possible" or not step["because"].startswith("outside")
        else (f"{step['name']}: {step['change']}")
    )
    tip = escape(f"{step['name']}: {step['change']}, {sig_short(end)} tokens/s per chip")
    return (
        f"<g><title>{tip}</title>{wrapped(NAMES - 8, y + ROW / 2, name, NAME_LETTERS)}"
        f'<rect class="step {kind}" x="{left}" y="{y + 6}" width="{max(right - left, 2):.1f}" height="{ROW - 12}"/>'
        f"{label(right + 6, y + ROW / 2 + 4, text, 'tick', 'start')}</g>"
    )


# --- the roofline lesson ----------------------------------------------------------------------------------------


def lesson(found: Json | None) -> str:
    """FLOP/s over FLOP a byte: the data sheet's roof, the one that kernels reach, and both phases under them."""
    if not found or not found["phases"] or not number(found["reached_flops_per_s"]):
        return ""
    roofs = [("datasheet", "sheet", *pair(found, "datasheet")), (found["basis"], "reached", *pair(found, "reached"))]
    ridges = [flops / rate for _, _, flops, rate in roofs]
    intensities = [p["flops_per_byte"] for p in found["phases"] if p["flops_per_byte"]]
    x = log_scale([*intensities, min(ridges) / 8, max(ridges) * 4], ROOF_LEFT, ROOF_WIDTH - ROOF_RIGHT)
    top = max(flops for _, _, flops, _ in roofs) / 1e12
    speeds = [p["flops_per_s"] / 1e12 for p in found["phases"] if p["flops_per_s"]]
    lowest = min([*speeds, *(rate * x.low / 1e12 for *_, rate in roofs)])
    y = log_scale([lowest, top], ROOF_HEIGHT - ROOF_BOTTOM, 24)
    body = roof_axes(x, y) + "".join(roof(name, css, flops, rate, x, y) for name, css, flops, rate in roofs)
    body += "".join(phase_mark(p, x, y) for p in found["phases"] if p["flops_per_byte"] and p["flops_per_s"])
    return svg("lesson", ROOF_WIDTH, ROOF_HEIGHT, "Roofline of this plan", " ".join(found["sentences"]), body)


def pair(found: Json, which: str) -> tuple[float, float]:
    return float(found[f"{which}_flops_per_s"] or found["reached_flops_per_s"]), float(found[f"{which}_bytes_per_s"])


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


def phase_mark(p: Json, x: Log, y: Log) -> str:
    px, py = x(p["flops_per_byte"]), y(p["flops_per_s"] / 1e12)
    tip = f"{p['phase']}: {p['flops_per_byte']:,.0f} FLOP/byte, {p['flops_per_s'] / 1e12:,.0f} TFLOP/s per chip"
    return (
        f'<g><title>{escape(tip)}</title><circle class="phase {escape(p["phase"])}" cx="{px}" cy="{py}" r="7"/>'
        f"{label(px + 11, py + (16 if py < ROOF_HEIGHT - ROOF_BOTTOM - 22 else -6), p['phase'], 'name', 'start')}</g>"
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


def page(option: Json) -> dict[str, Any]:
    """What the option page shows of `tuning`; answers of earlier versions have none."""
    found = option.get("tuning") or {}
    plan, formats = found.get("plan") or {}, found.get("formats") or []
    return {
        "tuning": found,
        "plan_svg": waterfall(plan),
        "lesson_svg": lesson(found.get("roofline")),
        "tuning_steps": [{**step, "word": STATES[step["state"]]} for step in plan.get("steps", [])],
        "formats": rows(formats),
        "formats_first": rows(formats)[:8],
        "cache_formats": rows(found.get("cache_formats") or []),
    }


def rows(found: Sequence[Json]) -> list[dict[str, Any]]:
    return [{**row, "word": FORMAT_STATES[row["state"]]} for row in found]
