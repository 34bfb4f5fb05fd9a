"""The catalog's pictures, drawn on the server: roofs of a chip, and what it cost over time."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from html import escape

WIDTH, HEIGHT = 640, 400
LEFT, RIGHT, TOP, BOTTOM = 96, 150, 26, 56
LETTERS = 18  # of a label at the right edge
APART = 21  # pixels between the labels at the right edge
HUES = 6  # colours of the stylesheet: hue-0 ...


@dataclass(frozen=True, slots=True)
class Log:
    """Positive values on a logarithmic axis, as pixels."""

    low: float
    high: float
    start: float
    end: float
    steps: tuple[tuple[float, ...], ...] = ((1, 2, 5), (1, 3), (1,))  # of each decade, the finest that fit

    def __call__(self, value: float) -> float:
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return round(self.start + share * (self.end - self.start), 1)

    def ticks(self, most: int = 6) -> list[float]:
        """Round values within the axis, at most `most` of them."""
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        found: list[float] = []
        for steps in self.steps:
            found = [step * 10.0**decade for decade in decades for step in steps]
            found = [value for value in found if self.low <= value <= self.high]
            if len(found) <= most:
                return found
        return found[:: math.ceil(len(found) / most)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Roof:
    """What a chip can reach in one dtype: bound by its memory left of the ridge, by its rate right of it."""

    name: str
    tflops: float
    gb_per_s: float

    @property
    def ridge_flops_per_byte(self) -> float:
        return self.tflops * 1000 / self.gb_per_s


def roofs(dense_tflops: dict[str, float], gb_per_s: float) -> list[Roof]:
    """The roofs of a chip, highest first; dtypes of one rate share a roof."""
    names: dict[float, list[str]] = {}
    for dtype, rate in dense_tflops.items():
        names.setdefault(rate, []).append(dtype.upper())
    return [
        Roof(name=", ".join(dtypes), tflops=rate, gb_per_s=gb_per_s)
        for rate, dtypes in sorted(names.items(), reverse=True)
        if rate > 0 and gb_per_s > 0
    ]


def roofline(given: Sequence[Roof], title: str = "Roofline") -> str:
    """Attainable TFLOP/s over FLOP for each byte of memory read, both logarithmic, ridge points labelled."""
    if not given:
        return ""
    ridges = [roof.ridge_flops_per_byte for roof in given]
    x = Log(min(*ridges, max(ridges)) / 20, max(ridges) * 8, LEFT, WIDTH - RIGHT)
    y = Log(
        min(roof.gb_per_s * x.low / 1000 for roof in given) * 0.9,
        max(roof.tflops for roof in given) * 1.6,
        HEIGHT - BOTTOM,
        TOP,
    )
    ends = apart([y(roof.tflops) for roof in given])
    body = axes(x, y, "FLOP per byte of memory read (log)", "TFLOP/s, dense (log)", short, short)
    for hue, (roof, end) in enumerate(zip(given, ends, strict=True)):
        body += one_roof(roof, x, y, end, hue % HUES)
    words = "; ".join(
        f"{roof.name}: {short(roof.tflops)} TFLOP/s from {short(roof.ridge_flops_per_byte)} FLOP/byte" for roof in given
    )
    return svg("roofline", title, words, body)


def one_roof(roof: Roof, x: Log, y: Log, end: float, hue: int) -> str:
    ridge = roof.ridge_flops_per_byte
    px, py, right = x(ridge), y(roof.tflops), x(x.high)
    tip = f"{roof.name}: {short(roof.tflops)} TFLOP/s, ridge at {short(ridge)} FLOP/byte"
    return (
        f'<g class="roof hue-{hue}"><title>{escape(tip)}</title>'
        f'<path class="roof-line" d="M{x(x.low)} {y(roof.gb_per_s * x.low / 1000)}L{px} {py}H{right}"/>'
        f'<circle class="roof-ridge" cx="{px}" cy="{py}" r="4"/>'
        f"{label(px + 7, py + 15, short(ridge), 'tick', 'start')}"
        f'<path class="roof-lead" d="M{right} {py}L{right + 8} {end}"/>'
        f"{label(right + 11, end + 4, cut(roof.name), 'name end', 'start')}</g>"
    )


def cut(name: str) -> str:
    """As much of a name as the margin holds; the title of the shape has all of it."""
    return name if len(name) <= LETTERS else name[: LETTERS - 1].rstrip(" ,(") + "…"


def apart(at: Sequence[float]) -> list[float]:
    """Heights of labels moved so that none lies on another, in the order given."""
    order = sorted(range(len(at)), key=lambda n: at[n])
    moved, lowest = list(at), -math.inf
    for n in order:
        moved[n] = lowest = max(at[n], lowest + APART)
    over = max(0.0, lowest - (HEIGHT - BOTTOM))
    return [value - over for value in moved]


@dataclass(frozen=True, kw_only=True, slots=True)
class Paid:
    """One dated price of one chip."""

    as_of: date
    usd: float
    term: str
    words: str


TERM_HUES = {"on_demand": 0, "spot": 1, "reserved_1y": 2, "reserved_3y": 3, "capacity_block": 4}


def price_history(paid: Sequence[Paid]) -> str:
    """USD per chip-hour over time: each offer on the day it was seen."""
    if not paid:
        return ""
    low, high = min(each.usd for each in paid), max(each.usd for each in paid)
    first, last = min(each.as_of for each in paid), max(each.as_of for each in paid)
    days = max((last - first).days, 30)
    y = Log(low / 1.4, high * 1.4, HEIGHT - BOTTOM, TOP)

    def x(day: date) -> float:
        return round(LEFT + (WIDTH - 40 - LEFT) * ((day - first).days / days * 0.94 + 0.03), 1)

    marks = "".join(
        f'<g><title>{escape(each.words)}</title><circle class="offer hue-{TERM_HUES.get(each.term, 5)}" '
        f'cx="{x(each.as_of)}" cy="{y(each.usd)}" r="3.5"/></g>'
        for each in paid
    )
    days_shown = sorted({first, first + (last - first) / 2, last})
    words = f"{len(paid)} offers from {first} to {last}, {short(low)} to {short(high)} USD per chip-hour"
    return svg("prices", "Price per chip over time", words, date_axes(x, y, days_shown) + marks)


def date_axes(x: Callable[[date], float], y: Log, days: Sequence[date]) -> str:
    floor, right = HEIGHT - BOTTOM, WIDTH - 40
    parts = [label(x(day), floor + 18, day.isoformat()) for day in spaced(days, x)]
    parts += [horizontal(y(value), f"${short(value)}", right) for value in y.ticks()]
    parts.append(f'<path class="axis" d="M{LEFT} {TOP}V{floor}H{right}"/>')
    parts.append(side_name("USD per chip-hour (log)"))
    return "".join(parts)


def spaced(days: Sequence[date], x: Callable[[date], float]) -> list[date]:
    """The days whose labels have room beside each other."""
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


def horizontal(at: float, text: str, right: float) -> str:
    return f'<path class="grid" d="M{LEFT} {at}H{right}"/>' + label(LEFT - 8, at + 4, text, anchor="end")


def side_name(text: str) -> str:
    middle = (TOP + HEIGHT - BOTTOM) / 2
    turned = f'transform="translate(16 {middle}) rotate(-90)"'
    return f'<text class="name" text-anchor="middle" {turned}>{escape(text)}</text>'


def short(value: float) -> str:
    """Three digits, thousands apart: 0.35, 4.8, 295, 1,980."""
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
