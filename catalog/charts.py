"""Charts over two axes: their data for the script advisor/static/advisor/charts.js, and from it the SVG of the server.

The data are {kind: xy, x, y, series, limits}. An axis has name, unit and log; a series has type (line, points or band),
name, color (a property of the stylesheet) and points: [x, y, text, address] or, of a band, [x, low, high].
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from html import escape
from typing import Any

from advisor.engine.terms import tick_text, usd_text
from catalog.texts import localized

Json = dict[str, Any]
WIDTH, HEIGHT = 640, 400
LEFT, RIGHT, TOP, BOTTOM = 74, 18, 26, 56
NAME_ROW = 18  # pixels of one line of the legend
LABEL_WIDTH, LABEL_HEIGHT = 36, 22  # pixels that the label of a point takes
DAY_WIDTH = 150  # pixels from the label of a day to the next
FINE_STEPS = ((1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1,))  # of a decade: costs and times often lie within one
LATE = "path://M0 1.5L1.5 0L5 3.5L8.5 0L10 1.5L6.5 5L10 8.5L8.5 10L5 6.5L1.5 10L0 8.5L3.5 5Z"  # a cross
HUE_COLORS = ("--accent", "--compute", "--communication", "--activations", "--good", "--host")  # hue-0 to hue-5
HUES = len(HUE_COLORS)


# --- axes -------------------------------------------------------------------------------------------------------


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


@dataclass(frozen=True, slots=True)
class Days:
    """An axis of days, as fractions of a day since 1970, with a margin at both ends."""

    first: float
    last: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        share = (value - self.first) / max(self.last - self.first, 1.0)
        return round(self.start + (self.end - self.start) * (share * 0.9 + 0.05), 1)

    def ticks(self) -> list[float]:
        """The first, the middle and the last day, as far as their labels do not overlap."""
        kept: list[float] = []
        for day in (self.first, (self.first + self.last) / 2, self.last):
            if not kept or self(day) - self(kept[-1]) > DAY_WIDTH:
                kept.append(day)
        return kept


Scale = Log | Linear | Days


def log_scale(values: Sequence[float], start: float, end: float) -> Log:
    """A log axis with margins around the values, at least a factor of 3 long."""
    low, high = min(values) / 1.25, max(values) * 1.25
    if high / low < 3:
        middle = math.sqrt(low * high)
        low, high = middle / math.sqrt(3), middle * math.sqrt(3)
    return Log(low, high, start, end, FINE_STEPS)


def scale_of(axis: Mapping[str, Any], values: Sequence[float], start: float, end: float) -> Scale:
    if axis["unit"] == "date":
        return Days(min(values), max(values), start, end)
    if axis.get("min"):
        return Log(axis["min"], axis["max"], start, end, FINE_STEPS)
    return log_scale(values, start, end) if axis["log"] else Linear((max(values) or 1.0) * 1.03, start, end)


def number_of(value: Any) -> float:
    """A value of the x axis; a day or time in ISO format as days since 1970."""
    if not isinstance(value, str):
        return float(value)
    at = datetime.fromisoformat(value)
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() / 86_400


def tick(axis: Mapping[str, Any], value: float) -> str:
    if axis["unit"] == "date":
        return f"{datetime.fromtimestamp(value * 86_400, UTC):%Y-%m-%d}"
    if axis["unit"] == "share":
        return f"{value:.0%}"
    return localized(tick_text(value)) if axis["unit"] == "usd" else sig_short(value)


def sig_short(value: float) -> str:
    """A tick label without trailing zeros."""
    text = f"{float(f'{value:.3g}'):,.9f}"
    return localized(text.rstrip("0").rstrip("."))


# --- the picture ------------------------------------------------------------------------------------------------


def drawn(
    data: Mapping[str, Any],
    title: str,
    description: str = "",
    kind: str = "lines",
    x_text: Callable[[float], str] | None = None,
) -> str:
    """The SVG of a chart's data, for pages without scripts. Empty without points."""
    points = [(each, point) for each in data["series"] for point in each["points"]]
    if not points:
        return ""
    limits = data.get("limits", ())
    across = [number_of(point[0]) for _, point in points] + [limit["value"] for limit in limits]
    tall = [value for each, point in points for value in point[1 : 3 if each["type"] == "band" else 2]]
    x = scale_of(data["x"], across, LEFT, WIDTH - RIGHT)
    y = scale_of(data["y"], tall, HEIGHT - BOTTOM, TOP)
    parts = [axes(data, x, y, x_text), *(limit_line(x, each["value"], each["name"]) for each in limits)]
    parts += [drawn_series(each, x, y) for each in data["series"]]
    named = [each for each in data["series"] if each["type"] != "band"] if data.get("legend", True) else []
    for row, each in enumerate(named):
        at, color = HEIGHT + NAME_ROW * row, each["color"]
        dot = f'<circle cx="{LEFT + 12}" cy="{at}" r="4" fill="var({color})"/>'
        parts.append(dot if each["type"] == "points" else f'<path d="M{LEFT} {at}h24" {stroke(each)}/>')
        parts.append(label(LEFT + 32, at + 4, each["name"], "name", "start"))
    text = description or "; ".join(each["name"] for each in named)
    return svg(kind, WIDTH, HEIGHT + NAME_ROW * len(named), title, text, "".join(parts))


def axes(data: Mapping[str, Any], x: Scale, y: Scale, x_text: Callable[[float], str] | None = None) -> str:
    """Grid lines, ticks and the names of both axes."""
    floor, right, parts = HEIGHT - BOTTOM, WIDTH - RIGHT, []
    for value in x.ticks():
        parts.append(f'<path class="grid" d="M{x(value)} {TOP}V{floor}"/>')
        parts.append(label(x(value), floor + 18, x_text(value) if x_text else tick(data["x"], value)))
    for value in y.ticks():
        parts.append(f'<path class="grid" d="M{LEFT} {y(value)}H{right}"/>')
        parts.append(label(LEFT - 8, y(value) + 4, tick(data["y"], value), anchor="end"))
    parts.append(f'<path class="axis" d="M{LEFT} {TOP}V{floor}H{right}"/>')
    below, beside = (f"{axis['name']}{' (log)' * bool(axis['log'])}" for axis in (data["x"], data["y"]))
    parts.append(label((LEFT + right) / 2, HEIGHT - 18, below, "name"))
    turned = f'transform="translate(16 {(TOP + floor) / 2}) rotate(-90)"'
    parts.append(f'<text class="name" text-anchor="middle" {turned}>{escape(beside)}</text>')
    return "".join(parts)


def limit_line(x: Scale, limit: float, name: str) -> str:
    """A vertical line at a limit that options must keep."""
    at = x(limit)
    anchor = "end" if at > WIDTH / 2 else "start"
    text = label(at + (-6 if anchor == "end" else 6), TOP - 10, name, "slo", anchor)
    return f'<path class="slo-line" d="M{at} {TOP - 6}V{HEIGHT - BOTTOM}"/>{text}'


def drawn_series(series: Mapping[str, Any], x: Scale, y: Scale) -> str:
    if series["type"] == "band":
        ends = [(x(number_of(at)), y(low), y(high)) for at, low, high in series["points"]]
        corners = [(px, low) for px, low, _ in ends] + [(px, high) for px, _, high in reversed(ends)]
        shape = " ".join(f"{px},{py}" for px, py in corners)
        return f'<polygon points="{shape}" fill="var({series["color"]})" opacity=".15"/>'
    places = [(x(number_of(point[0])), y(point[1])) for point in series["points"]]
    marks = "".join(marked(series, places)) if series["type"] == "points" or series.get("dots") else ""
    if series["type"] == "points":
        return marks
    text = next((point[2] for point in series["points"] if len(point) > 2 and point[2]), "")
    line = f'<path class="series" d="M{"L".join(f"{px} {py}" for px, py in places)}" {stroke(series)}/>'
    return (f"<g><title>{escape(text)}</title>{line}</g>" if text else line) + marks


def marked(series: Mapping[str, Any], places: Sequence[tuple[float, float]]) -> Iterator[str]:
    """Each point with its text, its label where there is room, and a link."""
    radius, labels = series.get("size", 11 if series["type"] == "points" else 7) / 2, series.get("labels", ())
    inside, free = series.get("place") == "inside", apart(places)
    for n, (point, (px, py)) in enumerate(zip(series["points"], places, strict=True)):
        shape = f'<circle class="dot" cx="{px:g}" cy="{py:g}" r="{radius:g}" fill="var({series["color"]})"/>'
        if series.get("symbol") == LATE:
            shape = f'<path class="mark missed" d="M{px - 4} {py - 4}l8 8m0 -8l-8 8"/>'
        if labels and inside:
            shape += label(px, py + 4, labels[n], "rank")
        elif labels and (px, py) in free:
            beside = series.get("place") == "right"
            shape += label(px + 11, py + 4, labels[n], "name", "start") if beside else label(px, py + 18, labels[n])
        tip = escape(point[2])
        body = f"<title>{tip}</title>{shape}"
        address = point[3] if len(point) > 3 else None
        yield f'<a href="{escape(address)}" aria-label="{tip}">{body}</a>' if address else f"<g>{body}</g>"


def apart(places: Sequence[tuple[float, float]]) -> set[tuple[float, float]]:
    """The places that are far enough from those before them for a label."""
    kept: list[tuple[float, float]] = []
    for x, y in places:
        if all(abs(x - px) > LABEL_WIDTH or abs(y - py) > LABEL_HEIGHT for px, py in kept):
            kept.append((x, y))
    return set(kept)


def stroke(series: Mapping[str, Any]) -> str:
    dashes = ' stroke-dasharray="6 4"' if series.get("dashed") else ""
    return f'fill="none" stroke="var({series["color"]})" stroke-width="2"{dashes}'


def label(x: float, y: float, text: object, kind: str = "tick", anchor: str = "middle") -> str:
    return f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(str(text))}</text>'


def svg(kind: str, width: int, height: int, title: str, description: str, body: str, extra: str = "") -> str:
    return (
        f'<svg class="chart {kind}" viewBox="0 0 {width} {height}" role="{"group" if "<a " in body else "img"}"'
        f' aria-label="{escape(title)}"{extra}>'
        f"<title>{escape(title)}</title><desc>{escape(description)}</desc>{body}</svg>"
    )


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


# --- charts of the catalog --------------------------------------------------------------------------------------


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


@dataclass(frozen=True, kw_only=True, slots=True)
class DatedPrice:
    """The hourly price of one chip on one day, in USD."""

    as_of: date
    usd: float
    term: str
    label: str


TERM_HUES = {"on_demand": 0, "spot": 1, "reserved_1y": 2, "reserved_3y": 3, "capacity_block": 4}


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexLine:
    """Levels of one series, oldest first: the day, the first day of its month, and USD per chip-hour."""

    name: str
    hue: int
    points: tuple[tuple[date, date, float], ...]


TERMS = {  # name and hue
    "on_demand": ("on demand", 0),
    "spot": ("spot", 1),
    "reserved_1y": ("reserved for 1 year", 2),
    "reserved_3y": ("reserved for 3 years", 3),
    "capacity_block": ("capacity block", 4),
}


def figure(id: str, title: str, description: str, x: Json, y: Json, series: list[Json], legend: bool = True) -> Json:
    """What the template of a chart shows; empty without points. `legend`: whether the page has none of its own."""
    data = {"kind": "xy", "x": x, "y": y, "series": series, "legend": legend}
    picture = drawn(data, title, description, id)
    return {"id": id, "title": title, "svg": picture, "short": data} if picture else {}


def axis(name: str, unit: str = "number", log: bool = True) -> Json:
    return {"name": name, "unit": unit, "log": log}


def line(name: str, hue: int, points: list[Any], **more: Any) -> Json:
    return {"type": "line", "name": name, "color": HUE_COLORS[hue % HUES], "points": points, **more}


def roof_lines(lines: Sequence[Roofline], low: float, high: float) -> list[Json]:
    """The rooflines between two values of FLOP per byte."""
    found = []
    for hue, each in enumerate(lines):
        ridge = each.ridge_flops_per_byte
        text = f"{each.name}: {short(each.tflops)} TFLOP/s, ridge at {short(ridge)} FLOP/byte"
        points = [[x, min(each.tflops, each.gb_per_s * x / 1000), text] for x in (low, ridge, high)]
        found.append(line(each.name, hue, points))
    return found


def roofline_figure(lines: Sequence[Roofline], title: str = "Roofline") -> Json:
    """Attainable TFLOP/s over FLOP per byte of each dtype or chip."""
    ridges = {each: each.ridge_flops_per_byte for each in lines}
    said = (f"{each.name}: {short(each.tflops)} TFLOP/s from {short(at)} FLOP/byte" for each, at in ridges.items())
    series = roof_lines(lines, min(ridges.values()) / 20, max(ridges.values()) * 8) if lines else []
    x, y = axis("FLOP per byte of memory read"), axis("TFLOP/s, dense")
    return figure("roofline", title, "; ".join(said), x, y, series)


def price_history_figure(prices: Sequence[DatedPrice]) -> Json:
    """USD per chip-hour over time, a point for each offer."""
    series = []
    for term in dict.fromkeys(each.term for each in prices):
        points = [[each.as_of.isoformat(), each.usd, each.label] for each in prices if each.term == term]
        name, hue = TERMS.get(term, (term, 5))
        series.append({"type": "points", "size": 8, "name": name, "color": HUE_COLORS[hue], "points": points})
    description = f"{len(prices)} offers{extent([(each.as_of, each.usd) for each in prices])}"
    x, y = axis("day", "date", log=False), axis("USD per chip-hour", "usd")
    return figure("price-history", "Price per chip over time", description, x, y, series, legend=False)


def price_index_figure(lines: Sequence[IndexLine], title: str) -> Json:
    """USD per chip-hour by month; only levels of neighboring months are joined."""
    series = []
    for each in lines:
        for run in neighbors(each):
            points = [[day.isoformat(), usd, f"{each.name}, {month:%Y-%m}: {usd_text(usd)}"] for day, month, usd in run]
            series.append(line(each.name, each.hue, points, dots=True))
    names = ", ".join(each.name for each in lines)
    description = f"{names};{extent([(day, usd) for each in lines for day, _, usd in each.points])}"
    x, y = axis("day", "date", log=False), axis("USD per chip-hour", "usd")
    return figure("price-index", title, description, x, y, series, legend=False)


def extent(prices: Sequence[tuple[date, float]]) -> str:
    """From when to when prices are, and how low and high."""
    days, usd = [day for day, _ in prices], [usd for _, usd in prices]
    return f" from {min(days)} to {max(days)}, {short(min(usd))} to {short(max(usd))} USD per chip-hour" if days else ""


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


def short(value: float) -> str:
    """A number with three significant digits: 0.35, 4.8, 295, 1,980."""
    if value >= 1000:
        return f"{round(value, -1 if value < 10_000 else -2):,.0f}"
    return f"{value:.3g}"
