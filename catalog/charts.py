"""Server-drawn SVG charts of the catalog: rooflines of a chip and its prices over time."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from html import escape
from typing import Any

from advisor.engine.terms import tick_text, usd_text

WIDTH, HEIGHT = 640, 400
LEFT, RIGHT, TOP, BOTTOM = 96, 150, 26, 56
MAX_LABEL_CHARS = 18  # of a label at the right edge
LABEL_SPACING = 21  # pixels between the labels at the right edge
HUES = 6  # colors in the stylesheet: hue-0 ...


@dataclass(frozen=True, slots=True)
class Log:
    """A logarithmic axis: maps positive values to pixels."""

    low: float
    high: float
    start: float
    end: float
    steps: tuple[tuple[float, ...], ...] = ((1, 2, 5), (1, 3), (1,))  # per decade, finest first

    def __call__(self, value: float) -> float:
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return round(self.start + share * (self.end - self.start), 1)

    def ticks(self, limit: int = 6) -> list[float]:
        """At most `limit` round values within the axis."""
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        values: list[float] = []
        for steps in self.steps:
            values = [step * 10.0**decade for decade in decades for step in steps]
            values = [value for value in values if self.low <= value <= self.high]
            if len(values) <= limit:
                return values
        return values[:: math.ceil(len(values) / limit)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Roofline:
    """A chip's attainable rate in one dtype: memory-bound below the ridge point, compute-bound above it."""

    name: str
    tflops: float
    gb_per_s: float

    @property
    def ridge_flops_per_byte(self) -> float:
        return self.tflops * 1000 / self.gb_per_s


def rooflines(dense_tflops: dict[str, float], gb_per_s: float) -> list[Roofline]:
    """The rooflines of a chip, highest first. Dtypes with the same rate share one."""
    names: dict[float, list[str]] = {}
    for dtype, rate in dense_tflops.items():
        names.setdefault(rate, []).append(dtype.upper())
    return [
        Roofline(name=", ".join(dtypes), tflops=rate, gb_per_s=gb_per_s)
        for rate, dtypes in sorted(names.items(), reverse=True)
        if rate > 0 and gb_per_s > 0
    ]


def roofline(lines: Sequence[Roofline], title: str = "Roofline") -> str:
    """An SVG of attainable TFLOP/s over FLOP per byte of memory read, both logarithmic. Empty without lines."""
    if not lines:
        return ""
    ridges = [roof.ridge_flops_per_byte for roof in lines]
    x = Log(min(ridges) / 20, max(ridges) * 8, LEFT, WIDTH - RIGHT)
    y = Log(
        min(roof.gb_per_s * x.low / 1000 for roof in lines) * 0.9,
        max(roof.tflops for roof in lines) * 1.6,
        HEIGHT - BOTTOM,
        TOP,
    )
    ends = spread_labels([y(roof.tflops) for roof in lines])
    body = axes(x, y, "FLOP per byte of memory read (log)", "TFLOP/s, dense (log)", short, short)
    for hue, (roof, end) in enumerate(zip(lines, ends, strict=True)):
        body += draw_roofline(roof, x, y, end, hue % HUES)
    description = "; ".join(
        f"{roof.name}: {short(roof.tflops)} TFLOP/s from {short(roof.ridge_flops_per_byte)} FLOP/byte" for roof in lines
    )
    return svg("roofline", title, description, body)


def draw_roofline(roof: Roofline, x: Log, y: Log, end: float, hue: int) -> str:
    ridge = roof.ridge_flops_per_byte
    px, py, right = x(ridge), y(roof.tflops), x(x.high)
    tip = f"{roof.name}: {short(roof.tflops)} TFLOP/s, ridge at {short(ridge)} FLOP/byte"
    return (
        f'<g class="roof hue-{hue}"><title>{escape(tip)}</title>'
        f'<path class="roof-line" d="M{x(x.low)} {y(roof.gb_per_s * x.low / 1000)}L{px} {py}H{right}"/>'
        f'<circle class="roof-ridge" cx="{px}" cy="{py}" r="4"/>'
        f"{label(px + 7, py + 15, short(ridge), 'tick', 'start')}"
        f'<path class="roof-lead" d="M{right} {py}L{right + 8} {end}"/>'
        f"{label(right + 11, end + 4, shortened(roof.name), 'name end', 'start')}</g>"
    )


def shortened(name: str) -> str:
    """A name cut to the width of the margin. The SVG title has the full name."""
    return name if len(name) <= MAX_LABEL_CHARS else name[: MAX_LABEL_CHARS - 1].rstrip(" ,(") + "…"


def spread_labels(heights: Sequence[float]) -> list[float]:
    """Label heights in pixels, moved so that no two labels overlap; in the order given."""
    order = sorted(range(len(heights)), key=lambda n: heights[n])
    moved, lowest = list(heights), -math.inf
    for n in order:
        moved[n] = lowest = max(heights[n], lowest + LABEL_SPACING)
    over = max(0.0, lowest - (HEIGHT - BOTTOM))
    return [value - over for value in moved]


@dataclass(frozen=True, kw_only=True, slots=True)
class DatedPrice:
    """The hourly price of one chip on one day, in USD."""

    as_of: date
    usd: float
    term: str
    label: str


TERM_HUES = {"on_demand": 0, "spot": 1, "reserved_1y": 2, "reserved_3y": 3, "capacity_block": 4}


def price_history(prices: Sequence[DatedPrice]) -> str:
    """An SVG of USD per chip-hour over time, one dot per price. Empty without prices."""
    if not prices:
        return ""
    low, high = min(each.usd for each in prices), max(each.usd for each in prices)
    first, last = min(each.as_of for each in prices), max(each.as_of for each in prices)
    days = max((last - first).days, 30)
    y = Log(low / 1.4, high * 1.4, HEIGHT - BOTTOM, TOP)

    def x(day: date) -> float:
        return round(LEFT + (WIDTH - 40 - LEFT) * ((day - first).days / days * 0.94 + 0.03), 1)

    marks = "".join(
        f'<g><title>{escape(each.label)}</title><circle class="offer hue-{TERM_HUES.get(each.term, 5)}" '
        f'cx="{x(each.as_of)}" cy="{y(each.usd)}" r="3.5"/></g>'
        for each in prices
    )
    days_shown = sorted({first, first + (last - first) / 2, last})
    description = f"{len(prices)} offers from {first} to {last}, {short(low)} to {short(high)} USD per chip-hour"
    return svg("prices", "Price per chip over time", description, date_axes(x, y, days_shown) + marks)


def sparkline(prices: Sequence[tuple[date, float]], unit: str) -> str:
    """An SVG as high as a line of text: the prices of one offer, oldest first. Empty for fewer than two."""
    if len(prices) < 2:
        return ""
    (first, start), (last, end) = prices[0], prices[-1]
    low, high = min(usd for _, usd in prices), max(usd for _, usd in prices)
    days = max((last - first).days, 1)
    places = [
        (
            round(3 + 58 * (day - first).days / days, 1),
            round(9 if low == high else 15 - 12 * (usd - low) / (high - low), 1),
        )
        for day, usd in prices
    ]
    path = f"M{places[0][0]} {places[0][1]}" + "".join(
        f"H{x}V{y}" for x, y in places[1:]
    )  # a price holds until the next
    said = escape(f"{len(prices)} prices, {first} to {last}: {start:,.2f} to {end:,.2f} {unit}")
    return (
        f'<svg class="spark" viewBox="0 0 64 18" role="img" aria-label="{said}"><title>{said}</title>'
        f'<path class="spark-line" d="{path}"/>'
        f'<circle class="spark-end" cx="{places[-1][0]}" cy="{places[-1][1]}" r="2.5"/></svg>'
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexLine:
    """Levels of one series, oldest first: the day, the first day of its month, and USD per chip-hour."""

    name: str
    hue: int
    points: tuple[tuple[date, date, float], ...]


def price_index(lines: Sequence[IndexLine], title: str) -> str:
    """An SVG of USD per chip-hour by month. Only levels of neighboring months are joined. Empty without levels."""
    points = [point for line in lines for point in line.points]
    if not points:
        return ""
    low, high = min(usd for *_, usd in points), max(usd for *_, usd in points)
    first, last = min(day for day, *_ in points), max(day for day, *_ in points)
    days = max((last - first).days, 30)
    y = Log(low / 1.2, high * 1.2, HEIGHT - BOTTOM, TOP)

    def x(day: date) -> float:
        return round(LEFT + (WIDTH - 40 - LEFT) * ((day - first).days / days * 0.94 + 0.03), 1)

    body = date_axes(x, y, sorted({first, first + (last - first) / 2, last}))
    for line in lines:
        body += f'<g class="hue-{line.hue % HUES}"><path class="roof-line" d="{joined(line, x, y)}"/>'
        body += "".join(
            f"<g><title>{escape(f'{line.name}, {month:%Y-%m}: {usd_text(usd)}')}</title>"
            f'<circle class="offer hue-{line.hue % HUES}" cx="{x(day)}" cy="{y(usd)}" r="3.5"/></g>'
            for day, month, usd in line.points
        )
        body += "</g>"
    names = ", ".join(line.name for line in lines)
    description = f"{names}; {first} to {last}, {short(low)} to {short(high)} USD per chip-hour"
    return svg("prices", title, description, body)


def joined(line: IndexLine, x: Callable[[date], float], y: Log) -> str:
    """The path through the levels of a series, interrupted where a month is missing."""
    parts, before = [], None
    for day, month, usd in line.points:
        number = month.year * 12 + month.month
        parts.append(f"{'L' if before == number - 1 else 'M'}{x(day)} {y(usd)}")
        before = number
    return "".join(parts)


def date_axes(x: Callable[[date], float], y: Log, days: Sequence[date]) -> str:
    floor, right = HEIGHT - BOTTOM, WIDTH - 40
    parts = [label(x(day), floor + 18, day.isoformat()) for day in spaced(days, x)]
    parts += [horizontal(y(value), tick_text(value), right) for value in y.ticks()]
    parts.append(f'<path class="axis" d="M{LEFT} {TOP}V{floor}H{right}"/>')
    parts.append(side_name("USD per chip-hour (log)"))
    return "".join(parts)


def spaced(days: Sequence[date], x: Callable[[date], float]) -> list[date]:
    """The days whose labels do not overlap on the axis."""
    kept: list[date] = []
    for day in days:
        if not kept or x(day) - x(kept[-1]) > 150:
            kept.append(day)
    return kept


def axes(
    x: Log, y: Log, x_name: str, y_name: str, x_text: Callable[[float], str], y_text: Callable[[float], str]
) -> str:
    """Grid, ticks and axis names."""
    floor, right, parts = HEIGHT - BOTTOM, WIDTH - RIGHT, []
    for value in x.ticks():
        parts.append(f'<path class="grid" d="M{x(value)} {TOP}V{floor}"/>')
        parts.append(label(x(value), floor + 18, x_text(value)))
    parts += [horizontal(y(value), y_text(value), right) for value in y.ticks()]
    parts.append(f'<path class="axis" d="M{LEFT} {TOP}V{floor}H{right}"/>')
    parts.append(label((LEFT + right) / 2, HEIGHT - 12, x_name, "name"))
    return "".join(parts) + side_name(y_name)


def horizontal(height: float, text: str, right: float) -> str:
    return f'<path class="grid" d="M{LEFT} {height}H{right}"/>' + label(LEFT - 8, height + 4, text, anchor="end")


def side_name(text: str) -> str:
    middle = (TOP + HEIGHT - BOTTOM) / 2
    turned = f'transform="translate(16 {middle}) rotate(-90)"'
    return f'<text class="name" text-anchor="middle" {turned}>{escape(text)}</text>'


def short(value: float) -> str:
    """A number with three significant digits: 0.35, 4.8, 295, 1,980."""
    if value >= 1000:
        return f"{round(value, -1 if value < 10_000 else -2):,.0f}"
    return f"{value:.3g}"


def label(x: float, y: float, text: object, kind: str = "tick", anchor: str = "middle") -> str:
    return f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(str(text))}</text>'


def svg(kind: str, title: str, description: str, body: str) -> str:
    return (
        f'<svg class="chart {kind}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title><desc>{escape(description)}</desc>{body}</svg>"
    )


# --- the same for the script advisor/static/advisor/charts.js ---------------------------------------------------------

Json = dict[str, Any]
HUE_COLORS = ("--accent", "--compute", "--communication", "--activations", "--good", "--host")  # hue-0 to hue-5
TERMS = {
    "on_demand": "on demand",
    "spot": "spot",
    "reserved_1y": "reserved for 1 year",
    "reserved_3y": "reserved for 3 years",
    "capacity_block": "capacity block",
}


def figure(id: str, title: str, svg: str, x: Json, y: Json, series: Sequence[Json], legend: bool = True) -> Json | None:
    """What the template of a chart shows; None without a picture. `legend`: whether the page has none of its own."""
    data = {"kind": "xy", "x": x, "y": y, "series": [*series], "legend": legend}
    return {"id": id, "title": title, "svg": svg, "short": data} if svg else None


def figure_axis(name: str, unit: str, log: bool = True) -> Json:
    return {"name": name, "unit": unit, "log": log}


def roofline_figure(lines: Sequence[Roofline], title: str = "Roofline") -> Json | None:
    """Attainable TFLOP/s over FLOP per byte of each dtype or chip."""
    series = []
    ridges = [each.ridge_flops_per_byte for each in lines]
    for hue, each in enumerate(lines):
        ridge = each.ridge_flops_per_byte
        text = f"{each.name}: {short(each.tflops)} TFLOP/s, ridge at {short(ridge)} FLOP/byte"
        ends = (min(ridges) / 20, ridge, max(ridges) * 8)
        points = [[x, min(each.tflops, each.gb_per_s * x / 1000), text] for x in ends]
        color = HUE_COLORS[hue % HUES]
        series.append({"type": "line", "name": each.name, "color": color, "points": points})
    x, y = figure_axis("FLOP per byte of memory read", "number"), figure_axis("TFLOP/s, dense", "number")
    return figure("roofline", title, roofline(lines, title), x, y, series)


def price_history_figure(prices: Sequence[DatedPrice]) -> Json | None:
    """USD per chip-hour over time, a point for each offer."""
    series = []
    for term in dict.fromkeys(each.term for each in prices):
        points = [[each.as_of.isoformat(), each.usd, each.label] for each in prices if each.term == term]
        color = HUE_COLORS[TERM_HUES.get(term, 5)]
        series.append({"type": "points", "size": 8, "name": TERMS.get(term, term), "color": color, "points": points})
    x, y = figure_axis("day", "date", log=False), figure_axis("USD per chip-hour", "usd")
    title = "Price per chip over time"
    return figure("price-history", title, price_history(prices), x, y, series, legend=False)


def price_index_figure(lines: Sequence[IndexLine], title: str) -> Json | None:
    """USD per chip-hour by month; only levels of neighboring months are joined."""
    series = []
    for each in lines:
        color = HUE_COLORS[each.hue % HUES]
        for run in neighbors(each):
            points = [[day.isoformat(), usd, f"{each.name}, {month:%Y-%m}: {usd_text(usd)}"] for day, month, usd in run]
            series.append({"type": "line", "dots": True, "name": each.name, "color": color, "points": points})
    x, y = figure_axis("day", "date", log=False), figure_axis("USD per chip-hour", "usd")
    return figure("price-index", title, price_index(lines, title), x, y, series, legend=False)


def neighbors(line: IndexLine) -> list[list[Any]]:
    """The levels of a series in runs without a missing month."""
    runs: list[list[Any]] = []
    before = None
    for point in line.points:
        number = point[1].year * 12 + point[1].month
        if before != number - 1:
            runs.append([])
        runs[-1].append(point)
        before = number
    return runs
