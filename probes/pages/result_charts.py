"""Charts of probe results: rooflines with measured points, rates by size, and rates over time."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from catalog.charts import HUE_COLORS, Roofline, axis, drawn, line, roof_lines, short

Point = tuple[float, float, str]  # x, y, label
Series = Mapping[str, Sequence[Point]]
OTHER_HUE = 5  # of points without a roofline of their dtype


def positive(points: Sequence[Point]) -> list[Point]:
    return sorted(point for point in points if point[0] > 0 and point[1] > 0)


def roofline(lines: Sequence[Roofline], points: Mapping[int | None, Sequence[Point]]) -> str:
    """An SVG of TFLOP/s over FLOP per byte: datasheet rooflines and measured points. Empty without either.

    `points` are keyed by the index of their dtype's line, or None.
    """
    shown = {index: found for index, group in points.items() if (found := positive(group))}
    if not lines or not shown:
        return ""
    every = [point for group in shown.values() for point in group]
    ridges = [roof.ridge_flops_per_byte for roof in lines]
    series = roof_lines(lines, min([*ridges, *(point[0] for point in every)]), max(ridges) * 4)
    for index, group in shown.items():
        name = "others" if index is None else lines[index].name
        color = HUE_COLORS[(OTHER_HUE if index is None else index) % len(HUE_COLORS)]
        series.append({"type": "points", "size": 4, "name": f"{name}, measured", "color": color, "points": group})
    best = max(every, key=lambda point: point[1])
    description = f"{len(every)} measurements; the highest is {short(best[1])} TFLOP/s, {best[2]}"
    data = {"x": axis("FLOP per byte of memory moved"), "y": axis("TFLOP/s"), "series": series}
    return drawn(data, "Measurements and datasheet rooflines", description, "roofline")


def curves(series: Series, title: str, x_name: str, y_name: str) -> str:
    """An SVG with one labeled line per series, both axes logarithmic. Empty without positive points."""
    shown = {name: found for name, points in series.items() if (found := positive(points))}
    description = "; ".join(f"{name}: up to {short(max(p[1] for p in points))}" for name, points in shown.items())
    return drawn({"x": axis(x_name), "y": axis(y_name), "series": dotted(shown)}, title, description, "roofline")


def drift(series: Mapping[str, Sequence[tuple[datetime, float]]]) -> str:
    """An SVG of headline rates over time, as fractions of the datasheet peak. Empty with a single date."""
    if len({when for points in series.values() for when, _ in points}) < 2:
        return ""
    shown = {
        name: [(when.isoformat(), share, f"{name}, {when:%Y-%m-%d}: {share:.1%}") for when, share in points]
        for name, points in series.items()
    }
    description = "; ".join(f"{name}: {points[0][1]:.1%}, last {points[-1][1]:.1%}" for name, points in series.items())
    x, y = axis("day", "date", log=False), axis("share of datasheet", "share", log=False)
    return drawn({"x": x, "y": y, "series": dotted(shown)}, "Headline rates over time", description, "roofline")


def dotted(series: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    return [line(name, hue, list(points), dots=True) for hue, (name, points) in enumerate(series.items())]
