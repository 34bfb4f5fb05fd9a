"""Charts as SVG text; colors come from the stylesheet."""

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from advisor.engine.terms import tick_text
from advisor.result import (
    Driver,
    Memory,
    Operator,
    ParetoPoint,
    PlanMonth,
    SensitivityBar,
    TrainingMemory,
    WaterfallStep,
)
from advisor.templatetags.units import dollars, gib, given, large, localized, ms
from catalog.charts import Log
from catalog.pricing import reader

WIDTH, HEIGHT = 640, 400
LEFT, RIGHT, TOP, BOTTOM = 74, 18, 26, 56
MAX_POINTS = 400
RANK_SPACING = 13  # pixels between the centers of two written ranks
FINE_STEPS = ((1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1,))  # of a decade: costs and times often lie within one
MAX_TIMES_CHEAPEST, MAX_TIMES_SLO = 50, 3
MEMORY_PARTS = (
    ("weights_gib", "weights"),
    ("adapters_gib", "adapters"),
    ("kv_gib", "KV cache"),
    ("source_kv_gib", "cross-attention cache"),
    ("activations_gib", "activations"),
    ("overhead_gib", "overhead"),
    ("free_gib", "free"),
)
FEW_HAVE = ("source_kv_gib", "adapters_gib")


def log_scale(values: Sequence[float], start: float, end: float) -> Log:
    """A log axis with margins around the values, at least a factor of 3 long."""
    low, high = min(values) / 1.25, max(values) * 1.25
    if high / low < 3:
        middle = math.sqrt(low * high)
        low, high = middle / math.sqrt(3), middle * math.sqrt(3)
    return Log(low, high, start, end, FINE_STEPS)


def drawable(points: Sequence[ParetoPoint]) -> list[ParetoPoint]:
    """The points that a log chart can show: both values known and positive."""
    return [point for point in points if (point.response_ms or 0) > 0 and (point.usd_per_mtok or 0) > 0]


def xy(point: ParetoPoint) -> tuple[float, float]:
    """(ms, USD per million tokens) of a drawable point."""
    return point.response_ms or 0.0, point.usd_per_mtok or 0.0


def in_view(points: Sequence[ParetoPoint], slo_ms: float | None) -> tuple[list[ParetoPoint], dict[str, int]]:
    """The points to show, and the numbers of those left out: undrawable, or far slower or more expensive."""
    shown = drawable(points)
    dearest = MAX_TIMES_CHEAPEST * min((xy(point)[1] for point in shown), default=0.0)
    slowest = MAX_TIMES_SLO * slo_ms if slo_ms else math.inf
    near = [point for point in shown if point.rank or (xy(point)[0] <= slowest and xy(point)[1] <= dearest)]
    return near, {"undrawable": len(points) - len(shown), "far": len(shown) - len(near)}


TOKEN_AXES = ("time per output token", "USD per M output tokens")
VECTOR_AXES = ("latency", "USD per M tokens")  # of embeddings


@reader.in_usd
def pareto(
    points: Sequence[ParetoPoint],
    slo_ms: float | None = None,
    base: str = "",
    names: tuple[str, str] = TOKEN_AXES,
) -> str:
    """Price per million output tokens against time per output token; ranked points link to `base` + rank."""
    shown, left_out = in_view(points, slo_ms)
    if not shown:
        return ""
    x = log_scale([xy(point)[0] for point in shown] + ([slo_ms] if slo_ms else []), LEFT, WIDTH - RIGHT)
    y = log_scale([xy(point)[1] for point in shown], HEIGHT - BOTTOM, TOP)
    marks = "".join(mark(point, x, y, base, named) for point, named in spaced(layered(shown), x, y))
    frontier = sum(point.frontier for point in shown)
    below, beside = names[0], names[1]
    summary = "{n} deployments, {frontier} on the frontier; {without} cannot be shown.".format(
        n=len(shown),
        frontier=frontier,
        without=left_out["undrawable"],
    )
    parts = [
        axes(x, y, f"{below}, ms (log)", f"{beside} (log)"),
        limit_line(x, slo_ms, f"SLO {given(slo_ms)} ms") if slo_ms else "",
        frontier_line(shown, x, y),
        marks,
    ]
    title = f"Price vs. speed: {beside} over {below}"
    return svg("pareto", WIDTH, HEIGHT, title, f"{summary} Lower left is better.", "".join(parts))


def layered(points: Sequence[ParetoPoint]) -> list[ParetoPoint]:
    """The points in drawing order, ranked ones on top; at most MAX_POINTS of those without rank or frontier."""
    first = [point for point in points if not point.frontier and not point.rank]
    rest = [point for point in points if point.frontier or point.rank]
    rest.sort(key=lambda point: -(point.rank or 1e9))
    return first[:: max(1, math.ceil(len(first) / MAX_POINTS))] + rest


def spaced(points: Sequence[ParetoPoint], x: Log, y: Log) -> list[tuple[ParetoPoint, bool]]:
    """Each point with whether its rank is written: not where a better rank's disc would cover it."""
    written: list[tuple[float, float]] = []
    named = set()
    for point in sorted((point for point in points if point.rank), key=lambda point: point.rank or 0):
        px, py = (scale(value) for scale, value in zip((x, y), xy(point), strict=True))
        if all(math.hypot(px - ox, py - oy) > RANK_SPACING for ox, oy in written):
            written.append((px, py))
            named.add(point.rank)
    return [(point, point.rank in named) for point in points]


def mark(point: ParetoPoint, x: Log, y: Log, base: str, named: bool = True) -> str:
    """One deployment: a disc on the frontier, a ring if dominated, a cross if it misses the SLO."""
    time_ms, price = xy(point)
    px, py, rank = x(time_ms), y(price), point.rank
    kind = "missed" if not point.meets_slo else "frontier" if point.frontier else "dominated"
    values = {"name": point.label, "cost": dollars(price), "time": ms(time_ms)}
    text = "{name}: {cost} per M tokens, {time}".format(**values)
    tip = escape((f"{rank}. " if rank else "") + text + ("" if point.meets_slo else " (misses the SLO)"))
    radius = (9 if named else 6) if rank else 5 if kind == "frontier" else 3.5
    if kind == "missed":
        shape = f'<path class="mark missed" d="M{px - 4} {py - 4}l8 8m0 -8l-8 8"/>'
        shape += f'<circle class="hit" cx="{px}" cy="{py}" r="6"/>'
    else:
        shape = f'<circle class="mark {kind}{" ranked" * bool(rank)}" cx="{px}" cy="{py}" r="{radius}"/>'
    body = f"<title>{tip}</title>{shape}" + (label(px, py + 4, rank, "rank") if rank and named else "")
    return f'<a href="{escape(f"{base}{rank}")}" aria-label="{tip}">{body}</a>' if rank and base else f"<g>{body}</g>"


def frontier_line(points: Sequence[ParetoPoint], x: Log, y: Log) -> str:
    """The step line through the Pareto frontier."""
    on_it = [xy(point) for point in points if point.frontier and point.meets_slo]
    corners = sorted((x(time_ms), y(price)) for time_ms, price in on_it)
    if len(corners) < 2:
        return ""
    path = f"M{corners[0][0]} {corners[0][1]}" + "".join(f"H{px}V{py}" for px, py in corners[1:])
    return f'<path class="frontier-line" d="{path}"/>'


def limit_line(x: Log, limit: float, name: str) -> str:
    """A vertical line at a limit that options must keep."""
    at = x(limit)
    anchor = "end" if at > WIDTH / 2 else "start"
    text = label(at + (-6 if anchor == "end" else 6), TOP - 10, name, "slo", anchor)
    return f'<path class="slo-line" d="M{at} {TOP - 6}V{HEIGHT - BOTTOM}"/>{text}'


def axes(x: Log, y: Log, below: str, beside: str) -> str:
    """The grid, ticks and the names of the axes; y is in dollars."""
    floor, parts = HEIGHT - BOTTOM, []
    for value in x.ticks():
        parts += [f'<path class="grid" d="M{x(value)} {TOP}V{floor}"/>', label(x(value), floor + 18, sig_short(value))]
    for value in y.ticks():
        parts.append(f'<path class="grid" d="M{LEFT} {y(value)}H{WIDTH - RIGHT}"/>')
        parts.append(label(LEFT - 8, y(value) + 4, localized(tick_text(value)), anchor="end"))
    parts.append(f'<path class="axis" d="M{LEFT} {TOP}V{floor}H{WIDTH - RIGHT}"/>')
    parts.append(label((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, below, "name"))
    middle = (TOP + floor) / 2
    parts.append(
        f'<text class="name" text-anchor="middle" transform="translate(16 {middle}) rotate(-90)">{beside}</text>'
    )
    return "".join(parts)


def sig_short(value: float) -> str:
    """A tick label without trailing zeros."""
    text = f"{float(f'{value:.3g}'):,.9f}"
    return localized(text.rstrip("0").rstrip("."))


def label(x: float, y: float, text: object, kind: str = "tick", anchor: str = "middle") -> str:
    return f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(str(text))}</text>'


def memory_bar(memory: Memory) -> str:
    """A bar with the parts of one chip's memory; no free part if it is over capacity."""
    return parts_bar(memory_parts(memory), "Memory per chip")


def parts_bar(parts: Sequence[dict[str, Any]], title: str) -> str:
    if sum(part["value_gib"] for part in parts) <= 0:
        return ""
    text = ", ".join(f"{part['name']} {gib(part['value_gib'])}" for part in parts)
    return stacked([(part["css"], part["value_gib"]) for part in parts], title, text)


def memory_parts(
    memory: Memory | TrainingMemory,
    names: Sequence[tuple[str, str]] = MEMORY_PARTS,
    shown: Callable[[str, float], bool] = lambda key, gib: bool(gib) or key not in FEW_HAVE,
) -> list[dict[str, Any]]:
    """The rows of the table beside the memory bar; negative and unknown parts count as 0."""
    values = [(key, name, max(0.0, float(memory.figure(key)))) for key, name in names]
    total = sum(value for _, _, value in values) or 1.0
    return [
        {"name": name, "value_gib": value, "share": value / total, "css": f"part-{key.removesuffix('_gib')}"}
        for key, name, value in values
        if shown(key, value)
    ]


def step_bar(operators: Sequence[Operator], phase: str) -> str:
    """A bar with the time of each operator of a step, colored by its bound."""
    times = [(bound_css(item.bound), item.time_s or 0.0) for item in operators]
    if sum(value for _, value in times) <= 0:
        return ""
    text = ", ".join(f"{item.operator} ({item.bound})" for item in operators)
    return stacked(times, f"One {phase} step by operator", text)


def share_bar(share: float, css: str) -> str:
    """A small bar in a table cell, beside the cell with the number."""
    width = max(0.0, min(1.0, share)) * 100
    return (
        '<svg class="cell-bar" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true" focusable="false">'
        f'<rect class="{escape(css)}" width="{width:.2f}" height="8"/></svg>'
    )


def bound_css(bound: str) -> str:
    """The CSS class of a bound; launches and the host share one."""
    return f"bound-{bound}" if bound in ("compute", "memory", "communication") else "bound-other"


def stacked(parts: Sequence[tuple[str, float]], title: str, description: str) -> str:
    """A stacked bar without labels, which the table beside it has."""
    total, at, rects = sum(value for _, value in parts), 0.0, []
    for css, value in parts:
        width = value / total * 1000
        rects.append(f'<rect class="{escape(css)}" x="{at:.2f}" width="{max(0.0, width - 2):.2f}" height="40"/>')
        at += width
    return svg("stacked", 1000, 40, title, description, "".join(rects), ' preserveAspectRatio="none"')


STEP_HEIGHT, STEP_LEFT, STEP_RIGHT = 26, 250, 70
NEGLIGIBLE = 0.001  # share of the variance
RANGE_RIGHT, RANGE_LETTERS, LINE = 140, 34, 15  # room for both ends of a bill; letters and pixels of a line
UNUSED = ("chips left over in whole instances", "spare replicas", "spare hosts", "idle hours and headroom")


@reader.in_usd
def waterfall(steps: Sequence[WaterfallStep]) -> str:
    """A waterfall chart of the cost per million tokens; the last bar is the total."""
    values = [(step.name, step.usd_per_mtok) for step in steps]
    total = sum(value for _, value in values)
    if total <= 0:
        return ""
    scale, at, parts = (WIDTH - STEP_LEFT - STEP_RIGHT) / total, 0.0, []
    for row, (name, value) in enumerate([*values, ("a million tokens", total)]):
        start = 0.0 if row == len(values) else at
        css = "fall-total" if row == len(values) else "fall-unused" if name in UNUSED else "fall-part"
        x, y, width = STEP_LEFT + start * scale, row * STEP_HEIGHT, max(value * scale, 1.0)
        parts.append(label(STEP_LEFT - 8, y + 17, name, "name", "end"))
        parts.append(f'<rect class="{css}" x="{x:.1f}" y="{y + 4}" width="{width:.1f}" height="{STEP_HEIGHT - 8}"/>')
        parts.append(label(x + width + 6, y + 17, dollars(value), anchor="start"))
        at += value
    text = ", ".join(f"{name} {dollars(value)}" for name, value in values)
    height = (len(values) + 1) * STEP_HEIGHT
    title = "Cost per million tokens, step by step"
    return svg("waterfall", WIDTH, height, title, text, "".join(parts))


@reader.in_usd
def tornado(bars: Sequence[SensitivityBar], what: str = "Monthly cost") -> str:
    """A tornado chart: the first choice's cost at both ends of each assumption; dark if the ranking changes."""
    ends = [(bar.assumption, bar.usd_per_month_low, bar.usd_per_month_high, bar.within_range) for bar in bars]
    known = [(name, low, high, bool(dark)) for name, low, high, dark in ends if low is not None and high is not None]
    return from_low_to_high(known, f"{what} of the first choice over the range of each assumption")


@reader.in_usd
def drivers(found: Sequence[Driver], what: str = "Monthly cost") -> str:
    """A tornado chart: the first option's cost at both ends of each uncertain input that moves it."""
    ends = [(each.name, each.usd_per_month_low, each.usd_per_month_high, False) for each in found if moves(each)]
    return from_low_to_high(ends, f"{what} of the first option over the 90% range of each uncertain input")


def moves(driver: Driver) -> bool:
    """Whether an uncertain input changes the cost."""
    return driver.usd_per_month_low != driver.usd_per_month_high or driver.variance_fraction >= NEGLIGIBLE


def from_low_to_high(rows: Sequence[tuple[str, float, float, bool]], title: str) -> str:
    """Horizontal bars from low to high: name, both ends, and whether the bar is dark."""
    if not rows:
        return ""
    least, most = min(min(low, high) for _, low, high, _ in rows), max(max(low, high) for _, low, high, _ in rows)
    height = STEP_HEIGHT + LINE * any(len(name) > RANGE_LETTERS for name, *_ in rows)
    room = (WIDTH - STEP_LEFT - RANGE_RIGHT) / ((most - least) or 1.0)
    parts = []
    for row, (name, low, high, dark) in enumerate(rows):
        x, width, y = STEP_LEFT + (min(low, high) - least) * room, max(abs(high - low) * room, 1.0), row * height
        css = "fall-total" if dark else "fall-part"
        parts.append(wrapped(STEP_LEFT - 8, y + height / 2, name, RANGE_LETTERS))
        parts.append(f'<rect class="{css}" x="{x:.1f}" y="{y + 4}" width="{width:.1f}" height="{height - 8}"/>')
        bill = (
            f"{dollars(min(low, high))} to {dollars(max(low, high))}"
            if dollars(low) != dollars(high)
            else f"stays {dollars(low)}"
        )
        parts.append(label(x + width + 6, y + height / 2 + 4, bill, anchor="start"))
    text = ", ".join(f"{name} {dollars(low)} to {dollars(high)}" for name, low, high, _ in rows)
    return svg("tornado", WIDTH, len(rows) * height, title, text, "".join(parts))


PLAN_HEIGHT, PLAN_TOP, PLAN_BOTTOM, PLAN_LEFT = 220, 14, 44, 56
IN_SERVICE = (
    ("own_instances", "own", "bought or owned"),
    ("committed_instances", "committed", "reserved"),
    ("hourly_instances", "hourly", "by the hour"),
)  # from the bottom of the chart


def plan_months(months: Sequence[PlanMonth], has_traffic: bool = True) -> str:
    """Instances in service by month as stacked steps, with the traffic as a line scaled to its highest month."""
    counts = [[month.figure(name) for name, _, _ in IN_SERVICE] for month in months]
    most = max((sum(row) for row in counts), default=0)
    if not most:
        return ""
    floor, room = PLAN_HEIGHT - PLAN_BOTTOM, PLAN_HEIGHT - PLAN_BOTTOM - PLAN_TOP
    width = (WIDTH - RIGHT - PLAN_LEFT) / len(months)
    parts, below = [plan_axes(months, most, width)], [0] * len(months)
    for kind, (_, css, _) in enumerate(IN_SERVICE):
        above = [low + row[kind] for low, row in zip(below, counts, strict=True)]
        if above != below:
            edges = stairs([floor - n / most * room for n in above], width)
            back = stairs([floor - n / most * room for n in below], width)[::-1]
            points = " ".join(f"{x:.1f},{y:.1f}" for x, y in (*edges, *back))
            parts.append(f'<polygon class="plan-{css}" points="{points}"/>')
        below = above
    highest = max(month.traffic_ratio for month in months)
    if highest > 0 and has_traffic:
        line = stairs([floor - month.traffic_ratio / highest * room for month in months], width)
        parts.append(f'<polyline class="plan-traffic" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in line)}"/>')
    first, last = months[0], months[-1]
    text = f"{sum(counts[0])} instances in month {first.month}, at most {most}, {sum(counts[-1])} in month {last.month}"
    text += f"; traffic up to {sig_short(highest)} times today's." if has_traffic else "."
    return svg("plan-months", WIDTH, PLAN_HEIGHT, "Instances in service by month", text, "".join(parts))


def stairs(heights: Sequence[float], width: float) -> list[tuple[float, float]]:
    """The corners of a step line: each height holds for one month."""
    return [(PLAN_LEFT + (i + side) * width, y) for i, y in enumerate(heights) for side in (0, 1)]


def plan_axes(months: Sequence[PlanMonth], most: int, width: float) -> str:
    """Horizontal grid lines at whole instances, and every sixth or twelfth month."""
    floor, room = PLAN_HEIGHT - PLAN_BOTTOM, PLAN_HEIGHT - PLAN_BOTTOM - PLAN_TOP
    every, parts = max(1, math.ceil(most / 4)), []
    for count in range(0, most + 1, every):
        y = floor - count / most * room
        parts.append(f'<path class="grid" d="M{PLAN_LEFT} {y:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(label(PLAN_LEFT - 8, round(y + 4, 1), f"{count:,}", anchor="end"))
    step = next((n for n in (1, 3, 6, 12, 24) if len(months) / n <= 12), 60)
    for i, month in enumerate(months):
        if month.month == 1 or month.month % step == 0:
            parts.append(label(round(PLAN_LEFT + (i + 0.5) * width, 1), floor + 18, month.month))
    parts.append(label((PLAN_LEFT + WIDTH - RIGHT) / 2, PLAN_HEIGHT - 6, "month", "name"))
    return "".join(parts)


def wrapped(x: float, middle: float, text: str, letters: int) -> str:
    """A right-aligned label at x, on up to two lines around `middle` of at most `letters` each."""
    lines = textwrap.wrap(text, letters, max_lines=2, placeholder="…")
    start = middle + 4 - LINE / 2 * (len(lines) - 1)
    return "".join(label(x, start + LINE * i, line, "name", "end") for i, line in enumerate(lines))


def svg(kind: str, width: int, height: int, title: str, description: str, body: str, extra: str = "") -> str:
    return (
        f'<svg class="chart {kind}" viewBox="0 0 {width} {height}" role="{"group" if "<a " in body else "img"}"'
        f' aria-label="{escape(title)}"{extra}>'
        f"<title>{escape(title)}</title><desc>{escape(description)}</desc>{body}</svg>"
    )


# --- lines over two axes ----------------------------------------------------------------------------------------

NAME_ROW = 18  # pixels of one line of the legend


@dataclass(frozen=True, slots=True)
class Linear:
    """A linear axis from zero: maps values to pixels."""

    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return round(self.start + value / self.high * (self.end - self.start), 1)

    def ticks(self, limit: int = 6) -> list[float]:
        """At most `limit` round values from 0 on."""
        step = next(
            step * 10.0**decade
            for decade in range(math.floor(math.log10(self.high)) - 1, 20)
            for step in (1, 2, 5)
            if self.high / (step * 10.0**decade) < limit
        )
        return [step * n for n in range(int(self.high / step) + 1)]


def lines(data: Mapping[str, Any], title: str) -> str:
    """Lines, bands and single points of an interactive chart's data, for pages without scripts."""
    points = [point for each in data["series"] for point in each["points"]]
    if not points:
        return ""
    floor = HEIGHT - BOTTOM
    x = scale_of(data["x"], [point[0] for point in points], LEFT, WIDTH - RIGHT)
    tall = [value for point in points for value in point[1:3] if isinstance(value, float | int)]
    y = scale_of(data["y"], tall, floor, TOP)
    body = "".join(drawn_series(each, x, y) for each in data["series"])
    named = [each for each in data["series"] if each["type"] != "band"]
    in_dollars = data["y"]["unit"] == "usd"
    parts = [grid(x, y, data["x"]["name"], data["y"]["name"], in_dollars), body]
    for row, each in enumerate(named):
        at = HEIGHT + NAME_ROW * row
        parts.append(
            f'<path d="M{LEFT} {at}h24" {stroke(each)}/>{label(LEFT + 32, at + 4, each["name"], "name", "start")}'
        )
    description = "; ".join(each["name"] for each in named)
    return svg("lines", WIDTH, HEIGHT + NAME_ROW * len(named), title, description, "".join(parts))


def scale_of(axis: Mapping[str, Any], values: Sequence[float], start: float, end: float) -> Log | Linear:
    return log_scale(values, start, end) if axis["log"] else Linear((max(values) or 1.0) * 1.03, start, end)


def stroke(series: Mapping[str, Any]) -> str:
    dashes = ' stroke-dasharray="6 4"' if series.get("dashed") else ""
    return f'fill="none" stroke="var({series["color"]})" stroke-width="2"{dashes}'


def drawn_series(series: Mapping[str, Any], x: Log | Linear, y: Log | Linear) -> str:
    if series["type"] == "band":
        ends = [(x(at), y(low), y(high)) for at, low, high in series["points"]]
        corners = [(px, low) for px, low, _ in ends] + [(px, high) for px, _, high in reversed(ends)]
        shape = " ".join(f"{px},{py}" for px, py in corners)
        return f'<polygon points="{shape}" fill="var({series["color"]})" opacity=".15"/>'
    places = [(x(point[0]), y(point[1])) for point in series["points"]]
    if series["type"] == "points":
        return "".join(
            f'<g><title>{escape(point[2])}</title><circle cx="{px}" cy="{py}" r="5" fill="var({series["color"]})"/></g>'
            for point, (px, py) in zip(series["points"], places, strict=True)
        )
    return f'<path d="M{"L".join(f"{px} {py}" for px, py in places)}" {stroke(series)}/>'


def grid(x: Log | Linear, y: Log | Linear, below: str, beside: str, dollars: bool) -> str:
    """Grid lines, ticks and the names of both axes."""
    floor, parts = HEIGHT - BOTTOM, []
    for value in x.ticks():
        parts.append(f'<path class="grid" d="M{x(value)} {TOP}V{floor}"/>')
        parts.append(label(x(value), floor + 18, large(value)))
    for value in y.ticks():
        parts.append(f'<path class="grid" d="M{LEFT} {y(value)}H{WIDTH - RIGHT}"/>')
        text = localized(tick_text(value)) if dollars else sig_short(value)
        parts.append(label(LEFT - 8, y(value) + 4, text, anchor="end"))
    parts.append(f'<path class="axis" d="M{LEFT} {TOP}V{floor}H{WIDTH - RIGHT}"/>')
    parts.append(label((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 18, below, "name"))
    turned = f'transform="translate(16 {(TOP + floor) / 2}) rotate(-90)"'
    parts.append(f'<text class="name" text-anchor="middle" {turned}>{escape(beside)}</text>')
    return "".join(parts)
