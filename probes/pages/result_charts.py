"""Charts of probe results: rooflines with measured points, rates by size, and rates over time."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from html import escape

from catalog.charts import (
    BOTTOM,
    HEIGHT,
    HUES,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Log,
    Roofline,
    axes,
    draw_roofline,
    horizontal,
    label,
    short,
    shortened,
    side_name,
    spread_labels,
    svg,
)

Point = tuple[float, float, str]  # x, y, label
Series = Mapping[str, Sequence[Point]]
EDGE = WIDTH - RIGHT
OTHER_HUE = 5  # of points without a roofline of their dtype


def span(values: Sequence[float], start: float, end: float) -> Log:
    """An axis with a margin around the values."""
    low, high = min(values) / 1.3, max(values) * 1.3
    return Log(low, max(high, low * 4), start, end)


def roofline(lines: Sequence[Roofline], points: Mapping[int | None, Sequence[Point]]) -> str:
    """An SVG of TFLOP/s over FLOP per byte: datasheet rooflines and measured points. Empty without either.

    `points` are keyed by the index of their dtype's line, or None.
    """
    shown = [p for group in points.values() for p in group if p[0] > 0 and p[1] > 0]
    if not lines or not shown:
        return ""
    ridges = [roof.ridge_flops_per_byte for roof in lines]
    x = span([*(p[0] for p in shown), *ridges, max(ridges) * 4], LEFT, EDGE)
    y = span([*(p[1] for p in shown), *(roof.tflops for roof in lines)], HEIGHT - BOTTOM, TOP)
    body = axes(x, y, "FLOP per byte of memory moved (log)", "TFLOP/s (log)", short, short)
    inside = [r for r in lines if y.low < r.gb_per_s * x.low / 1000]  # others start below the chart
    ends = spread_labels([y(roof.tflops) for roof in lines])
    for index, group in points.items():
        hue = OTHER_HUE if index is None else index % HUES
        body += "".join(dot(x(px), y(py), text, hue, 2) for px, py, text in group if px > 0 and py > 0)
    for hue, (roof, end) in enumerate(zip(lines, ends, strict=True)):
        from_x = (
            x if roof in inside else Log(y.low * 1000 / roof.gb_per_s, x.high, x(y.low * 1000 / roof.gb_per_s), EDGE)
        )
        body += draw_roofline(roof, from_x, y, end, hue % HUES)
    best = max(shown, key=lambda p: p[1])
    description = f"{len(shown)} measurements; the highest is {short(best[1])} TFLOP/s, {best[2]}"
    return svg("roofline", "Measurements and datasheet rooflines", description, body)


def dot(px: float, py: float, text: str, hue: int, radius: float) -> str:
    tip = f"<title>{escape(text)}</title>"
    return f'<g class="hue-{hue}">{tip}<circle class="dot" cx="{px}" cy="{py}" r="{radius}"/></g>'


def curves(series: Series, title: str, x_name: str, y_name: str) -> str:
    """An SVG with one labeled line per series, both axes logarithmic. Empty without positive points."""
    shown = {name: sorted(p for p in points if p[0] > 0 and p[1] > 0) for name, points in series.items()}
    shown = {name: points for name, points in shown.items() if points}
    if not shown:
        return ""
    every = [p for points in shown.values() for p in points]
    x, y = span([p[0] for p in every], LEFT, EDGE), span([p[1] for p in every], HEIGHT - BOTTOM, TOP)
    ends = spread_labels([y(points[-1][1]) for points in shown.values()])
    body = axes(x, y, x_name, y_name, short, short)
    for hue, ((name, points), end) in enumerate(zip(shown.items(), ends, strict=True)):
        places = [(x(px), y(py), text) for px, py, text in points]
        body += line(name, places, end, hue % HUES)
    description = "; ".join(f"{name}: up to {short(max(p[1] for p in points))}" for name, points in shown.items())
    return svg("roofline", title, description, body)


def line(name: str, places: Sequence[tuple[float, float, str]], end: float, hue: int) -> str:
    path = "M" + "L".join(f"{px} {py}" for px, py, _ in places)
    marks = "".join(dot(px, py, text, hue, 3.5) for px, py, text in places)
    last_x, last_y, _ = places[-1]
    return (
        f'<g class="roof hue-{hue}"><path class="roof-line" d="{path}"/>{marks}'
        f'<path class="roof-lead" d="M{last_x} {last_y}L{EDGE + 8} {end}"/>'
        f"{label(EDGE + 11, end + 4, shortened(name), 'name end', 'start')}</g>"
    )


def drift(series: Mapping[str, Sequence[tuple[datetime, float]]]) -> str:
    """An SVG of headline rates over time, as fractions of the datasheet peak. Empty with a single date."""
    days = sorted({when for points in series.values() for when, _ in points})
    if len(days) < 2:
        return ""
    first, span_s = days[0], (days[-1] - days[0]).total_seconds()
    top = max(1.0, *(share for points in series.values() for _, share in points))

    def x(when: datetime) -> float:
        return round(LEFT + (EDGE - LEFT) * (0.03 + 0.94 * (when - first).total_seconds() / span_s), 1)

    def y(share: float) -> float:
        return round(HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * share / top, 1)

    body = "".join(horizontal(y(n / 5), f"{n * 20}%", EDGE) for n in range(6))
    body += label(x(first), HEIGHT - BOTTOM + 18, f"{first:%Y-%m-%d}", anchor="start")
    body += label(x(days[-1]), HEIGHT - BOTTOM + 18, f"{days[-1]:%Y-%m-%d}", anchor="end")
    body += side_name("share of datasheet")
    ends = spread_labels([y(points[-1][1]) for points in series.values()])
    for hue, ((name, points), end) in enumerate(zip(series.items(), ends, strict=True)):
        places = [(x(when), y(share), f"{name}, {when:%Y-%m-%d}: {share:.1%}") for when, share in points]
        body += line(name, places, end, hue % HUES)
    description = "; ".join(f"{name}: {points[0][1]:.1%}, last {points[-1][1]:.1%}" for name, points in series.items())
    return svg("roofline", "Headline rates over time", description, body)
