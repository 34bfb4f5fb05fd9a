"""The data of interactive charts: one Chart for each figure, with its SVG, what the script draws, and a table.

The script advisor/static/advisor/charts.js draws four kinds: `xy` (lines, points, bands and columns over two axes),
`bars` (horizontal bars from one value to another), `stack` (one bar of parts) and `frontier` (frontier_chart.py).
Colors are names of the stylesheet's properties, so that dark mode and print need no other data.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from advisor.result import (
    Driver,
    Operator,
    PlanMonth,
    Roofline,
    RooflinePhase,
    SensitivityBar,
    TuningPlan,
    WaterfallStep,
)
from advisor.templatetags.units import dollars, duration, gib, percent, sig
from advisor.web.charts import plots as charts
from catalog.charts import drawn
from catalog.pricing import reader

Json = dict[str, Any]
COLORS = {
    "fall-part": "--weights",
    "fall-unused": "--overhead",
    "fall-total": "--ink",
    "part-weights": "--weights",
    "part-adapters": "--c5",
    "part-kv": "--kv",
    "part-source_kv": "--c4",
    "part-activations": "--activations",
    "part-overhead": "--overhead",
    "part-free": "--free",
    "part-gradients": "--kv",
    "part-optimizer": "--communication",
    "part-master": "--c6",
    "part-gathered": "--c5",
    "part-logits": "--c7",
    "part-buffers": "--compute",
    "bound-compute": "--compute",
    "bound-memory": "--memory",
    "bound-communication": "--communication",
    "bound-other": "--host",
    "goodput-training": "--weights",
    "goodput-checkpoint": "--activations",
    "goodput-rework": "--compute",
    "goodput-restart": "--communication",
    "goodput-waiting": "--overhead",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Chart:
    """One figure. Without scripts the page shows `svg`; the script replaces it with what `data` says."""

    id: str  # of the element: chart-{id}
    title: str
    svg: str
    data: Json
    columns: tuple[str, ...] = ()  # of the table below the figure; empty: the page has a table beside it
    rows: tuple[tuple[str, ...], ...] = ()
    scrolls: bool = False  # its SVG is wider than a phone

    def __bool__(self) -> bool:
        return bool(self.svg)

    @property
    def short(self) -> Json:
        """The data with floats in six significant digits, for the page."""
        rounded: Json = shortened(self.data)
        return rounded


def shortened(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: shortened(each) for key, each in value.items()}
    return [shortened(each) for each in value] if isinstance(value, list | tuple) else value


def axis(name: str, unit: str = "", log: bool = False, **more: Any) -> Json:
    return {"name": name, "unit": unit, "log": log, **more}


def bars(name: str, unit: str, rows: Sequence[Json], log: bool = False) -> Json:
    """Horizontal bars; each row has name, from, to, label, color and text."""
    return {"kind": "bars", "value": axis(name, unit, log), "rows": list(rows)}


# --- costs ------------------------------------------------------------------------------------------------------


@reader.in_usd
def cost_waterfall(steps: Sequence[WaterfallStep]) -> Chart:
    """From the price of full capacity to the cost of a million tokens."""
    total, at, rows = sum(step.usd_per_mtok for step in steps), 0.0, []
    for step in steps:
        color = COLORS["fall-unused" if step.name in charts.UNUSED else "fall-part"]
        rows.append(bar_row(step.name, at, at + step.usd_per_mtok, dollars(step.usd_per_mtok), color))
        at += step.usd_per_mtok
    rows.append(bar_row("a million tokens", 0.0, total, dollars(total), COLORS["fall-total"]))
    title, data = "Cost per million tokens, step by step", bars("USD per M tokens", "usd", rows) if total > 0 else {}
    return Chart(
        id="waterfall",
        title=title,
        svg=charts.bars(data, title, "waterfall"),
        data=data,
        columns=("Part", "USD per M tokens"),
        rows=tuple((row["name"], row["label"]) for row in rows),
        scrolls=True,
    )


def bar_row(name: str, low: float, high: float, label: str, color: str, text: str = "") -> Json:
    return {"name": name, "from": low, "to": high, "label": label, "color": color, "text": text or f"{name}: {label}"}


def ends_rows(rows: Iterable[tuple[str, float, float, bool]]) -> list[Json]:
    """Rows of a tornado: name, both ends, and whether another option wins within them."""
    drawn = []
    for name, one, other, turns in rows:
        low, high = min(one, other), max(one, other)
        label = f"{dollars(low)} to {dollars(high)}" if dollars(low) != dollars(high) else f"stays {dollars(low)}"
        text = f"{name}: {label}" + ("; another option wins within the range" if turns else "")
        drawn.append(bar_row(name, low, high, label, COLORS["fall-total" if turns else "fall-part"], text))
    return drawn


@reader.in_usd
def sensitivity(found: Sequence[SensitivityBar], what: str = "Monthly cost") -> Chart:
    """The first choice's cost at both ends of each assumption."""
    rows = ends_rows(
        (bar.assumption, bar.usd_per_month_low, bar.usd_per_month_high, bool(bar.within_range))
        for bar in found
        if bar.usd_per_month_low is not None and bar.usd_per_month_high is not None
    )
    return tornado("sensitivity", f"{what} over the range of each assumption", rows)


@reader.in_usd
def drivers(found: Sequence[Driver], what: str = "Monthly cost") -> Chart:
    """The first option's cost at both ends of each uncertain input."""
    rows = ends_rows(
        (each.name, each.usd_per_month_low, each.usd_per_month_high, False) for each in found if charts.moves(each)
    )
    return tornado("drivers", f"{what} over the range of each uncertain input", rows)


def tornado(id: str, title: str, rows: Sequence[Json]) -> Chart:
    data = bars("USD", "usd", rows) if rows else {}
    return Chart(
        id=id, title=title, svg=charts.bars(data, title, "tornado"), data=data, columns=("Input", "Range"),
        rows=tuple((row["name"], row["label"]) for row in rows), scrolls=True,
    )  # fmt: skip


# --- how it runs ------------------------------------------------------------------------------------------------


def parts(id: str, title: str, svg: str, name: str, unit: str, found: Sequence[tuple[str, float, str, str]]) -> Chart:
    """One whole and its parts, one below the other: name, value, text and CSS class of the SVG."""
    at, rows = 0.0, []
    for part, value, text, css in found:
        if value:
            rows.append(bar_row(part, at, at + value, text, COLORS[css]))
        at += value
    return Chart(id=id, title=title, svg=svg, data=bars(name, unit, rows) | {"kind": "stack"} if svg else {})


def memory(svg: str, rows: Sequence[Mapping[str, Any]], title: str = "Memory per chip") -> Chart:
    """What one chip's memory holds; `rows` are those of the table beside it."""
    found = [
        (row["name"], row["value_gib"], f"{gib(row['value_gib'])} ({percent(row['share'])})", row["css"])
        for row in rows
    ]
    return parts("memory", title, svg, "GiB", "gib", found)


def step_time(svg: str, operators: Sequence[Operator], phase: str) -> Chart:
    """The operators of one step, one after the other."""
    found = [
        (
            each.operator.replace("_", " "),
            (each.time_s or 0.0) * 1e3,
            duration(each.time_s),
            charts.bound_css(each.bound),
        )
        for each in operators
    ]
    return parts(f"step-{phase}", f"One {phase} step by operator", svg, "ms", "ms", found)


def goodput(svg: str, rows: Sequence[Mapping[str, Any]]) -> Chart:
    """Where the time of a training run goes."""
    found = [(row["name"], row["share"] * 100, percent(row["share"]), row["css"]) for row in rows]
    return parts("goodput", "Where the time goes", svg, "% of the time", "percent", found)


def techniques(plan: TuningPlan | None) -> Chart:
    """The rate before and after each technique; possible ones in outline."""
    title, rows, before = "Optimization plan", [], None
    rated = [(step, step.output_tokens_per_s_per_accelerator) for step in plan.steps] if plan else []
    drawn = [(step, rate) for step, rate in rated if step.state in ("base", "used", "possible") and rate]
    reached = [rate for step, rate in drawn if step.state != "possible"]
    if len(reached) < 2:
        return Chart(id="techniques", title=title, svg="", data={})
    for step, rate in drawn:
        possible = step.state == "possible"
        start = reached[-1] if possible else before or min(each for _, each in drawn) / 1.25
        gain = f"×{step.gain_ratio:.2f}" if step.gain_ratio is not None else charts.sig_short(rate)
        text = f"{step.name}: {step.change}, {charts.sig_short(rate)} tokens/s per chip ({step.state})"
        color = "--host" if step.gain_ratio is None else "--compute" if step.gain_ratio >= 1 else "--bad"
        name = f"{step.name}: {step.change}" if possible and step.because.startswith("outside") else step.name
        rows.append(bar_row(name, start, rate, gain, color, text) | {"outline": possible})
        before = before if possible else rate
    data = bars("output tokens/s per chip", "number", rows, log=True)
    ends = f"From {charts.sig_short(reached[0])} to {charts.sig_short(reached[-1])} output tokens/s per chip"
    picture = charts.bars(data, title, "waterfall", f"{ends}; outlined: further possibilities.")
    return Chart(id="techniques", title=title, svg=picture, data=data, scrolls=True)


def roofline(found: Roofline | None) -> Chart:
    """Attainable and reached TFLOP/s over FLOP per byte."""
    title, columns = "Roofline of this plan", ("Roofline or phase", "FLOP per byte", "TFLOP/s per chip")
    if found is None or not found.phases or not found.reached_flops_per_s:
        return Chart(id="roofline", title=title, svg="", data={})
    flops, rate = found.reached_flops_per_s or 0.0, found.reached_bytes_per_s or 0.0
    sheet = (found.datasheet_flops_per_s or flops, found.datasheet_bytes_per_s or 0.0)
    roofs = [("datasheet", "--muted", True, *sheet), (found.basis, "--ink", False, flops, rate)]
    phases = [p for p in found.phases if p.flops_per_byte and p.flops_per_s]
    ridges = [high / bytes_per_s for *_, high, bytes_per_s in roofs]
    least = min([p.flops_per_byte or 1.0 for p in phases] + [min(ridges) / 8]) / 1.25
    most = max([p.flops_per_byte or 1.0 for p in phases] + [max(ridges) * 4]) * 1.25
    series: list[Json] = [
        {
            "type": "line",
            "name": name,
            "color": color,
            "dashed": dashed,
            "points": [
                [x, min(high, bytes_per_s * x) / 1e12, roof_text(name, high, bytes_per_s)]
                for x in (least, high / bytes_per_s, most)
            ],
        }
        for name, color, dashed, high, bytes_per_s in roofs
    ]
    series += [
        {
            "type": "points",
            "name": p.phase,
            "color": "--compute" if p.phase == "prefill" else "--memory",
            "labels": [p.phase],
            "place": "right",
            "points": [[p.flops_per_byte, (p.flops_per_s or 0.0) / 1e12, phase_text(p)]],
        }
        for p in phases
    ]  # fmt: skip
    data = {
        "kind": "xy",
        "x": axis("FLOP per byte of memory read", "number", log=True),
        "y": axis("TFLOP/s per chip", "number", log=True),
        "series": series,
    }
    rows = [(f"{name}, ridge", sig(high / rate), sig(high / 1e12)) for name, _, _, high, rate in roofs]
    rows += [(p.phase, sig(p.flops_per_byte), sig((p.flops_per_s or 0.0) / 1e12)) for p in phases]
    picture = drawn(data, title, " ".join(found.sentences), "lesson")
    return Chart(id="roofline", title=title, svg=picture, data=data, columns=columns, rows=tuple(rows))


def roof_text(name: str, flops_per_s: float, bytes_per_s: float) -> str:
    ridge = flops_per_s / bytes_per_s
    return f"{name}: {sig(flops_per_s / 1e12)} TFLOP/s, {sig(bytes_per_s / 1e12)} TB/s, ridge at {sig(ridge)} FLOP/byte"


def phase_text(p: RooflinePhase) -> str:
    return f"{p.phase}: {sig(p.flops_per_byte)} FLOP/byte, {sig((p.flops_per_s or 0.0) / 1e12)} TFLOP/s per chip"


# --- the plan by month ------------------------------------------------------------------------------------------

IN_SERVICE_COLORS = {"own": "--weights", "committed": "--kv", "hourly": "--activations"}


def plan_months(months: Sequence[PlanMonth], has_traffic: bool = True) -> Chart:
    """Instances in service by month, stacked, with the traffic scaled to its highest month."""
    svg = charts.plan_months(months, has_traffic)
    if not svg:
        return Chart(id="plan-months", title="Instances in service by month", svg="", data={})
    series: list[Json] = []
    below = [0] * len(months)
    for field, css, name in charts.IN_SERVICE:
        counts = [month.figure(field) for month in months]
        above = [low + count for low, count in zip(below, counts, strict=True)]
        points = [
            [month.month - 1, month.month, low, high, f"Month {month.month}: {high - low} {name}"]
            for month, low, high in zip(months, below, above, strict=True)
            if high > low
        ]
        if points:
            series.append({"type": "columns", "name": name, "color": IN_SERVICE_COLORS[css], "points": points})
        below = above
    highest = max(month.traffic_ratio for month in months)
    if highest > 0 and has_traffic:
        most = max(below)
        line: list[list[Any]] = [
            [m.month - 1, m.traffic_ratio / highest * most, f"Month {m.month}: traffic ×{sig(m.traffic_ratio)} today's"]
            for m in months
        ]
        line.append([months[-1].month, line[-1][1], line[-1][2]])
        name = "traffic, scaled to its highest month"
        series.append({"type": "line", "step": "end", "name": name, "color": "--ink", "dashed": True, "points": line})
    data = {"kind": "xy", "x": axis("month", "count"), "y": axis("instances", "count", zero=True), "series": series}
    return Chart(id="plan-months", title="Instances in service by month", svg=svg, data=data, scrolls=True)
