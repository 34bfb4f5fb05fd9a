"""Charts as SVG text; colors come from the stylesheet."""

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

from advisor.result import Driver, Memory, Operator, ParetoPoint, PlanMonth, TrainingMemory
from advisor.templatetags.units import dollars, gib, given, large, ms
from catalog.charts import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Log,
    axes,
    axis,
    drawn,
    label,
    limit_line,
    log_scale,
    sig_short,
    svg,
)
from catalog.pricing import reader

MAX_POINTS = 400
RANK_SPACING = 13  # pixels between the centers of two written ranks
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
        axes({"x": axis(f"{below}, ms"), "y": axis(beside, "usd")}, x, y),
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


BARS_WIDTH, BARS_LEFT, BAR_HEIGHT = 720, 300, 26
NEGLIGIBLE = 0.001  # share of the variance
LABEL_RIGHT, NAME_LETTERS, LINE = 140, 42, 15  # room for both ends of a bill; letters and pixels of a line
UNUSED = ("chips left over in whole instances", "spare replicas", "spare hosts", "idle hours and headroom")


def moves(driver: Driver) -> bool:
    """Whether an uncertain input changes the cost."""
    return driver.usd_per_month_low != driver.usd_per_month_high or driver.variance_fraction >= NEGLIGIBLE


def bars(data: Mapping[str, Any], title: str, kind: str, description: str = "") -> str:
    """The SVG of an interactive chart's horizontal bars: names, bars from one value to another, and their labels."""
    rows, is_log = data.get("rows", ()), bool(data) and data["value"]["log"]
    if not rows:
        return ""
    ends, edge = [value for row in rows for value in (row["from"], row["to"])], BARS_WIDTH - LABEL_RIGHT
    least, room = min(ends), (edge - BARS_LEFT) / ((max(ends) - min(ends)) or 1.0)
    scale = log_scale(ends, BARS_LEFT, edge) if is_log else lambda value: BARS_LEFT + (value - least) * room
    height = BAR_HEIGHT + LINE * any(len(row["name"]) > NAME_LETTERS for row in rows)
    floor, parts = height * len(rows), []
    for value in scale.ticks() if isinstance(scale, Log) else ():
        parts.append(f'<path class="grid" d="M{scale(value)} 0V{floor}"/>')
        parts.append(label(scale(value), floor + 17, sig_short(value)))
    if is_log:
        parts.append(label((BARS_LEFT + edge) / 2, floor + 38, f"{data['value']['name']} (log)", "name"))
    for n, row in enumerate(rows):
        x, end, y = scale(min(row["from"], row["to"])), scale(max(row["from"], row["to"])), n * height
        width, color = max(end - x, 1.0), f"var({row['color']})"
        look = f'fill="none" stroke="{color}" stroke-dasharray="4 3"' if row.get("outline") else f'fill="{color}"'
        bar = f'<rect {look} x="{x:.1f}" y="{y + 4}" width="{width:.1f}" height="{height - 8}"/>'
        parts.append(wrapped(BARS_LEFT - 8, y + height / 2, row["name"], NAME_LETTERS))
        parts.append(f"<g><title>{escape(row['text'])}</title>{bar}</g>")
        parts.append(label(x + width + 6, y + height / 2 + 4, row["label"], anchor="start"))
    text = description or ", ".join(f"{row['name']} {row['label']}" for row in rows)
    return svg(kind, BARS_WIDTH, floor + 44 * is_log, title, text, "".join(parts))


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


# --- lines over two axes ----------------------------------------------------------------------------------------


def lines(data: Mapping[str, Any], title: str) -> str:
    """The SVG of an interactive chart's data."""
    return drawn(data, title, x_text=large)
