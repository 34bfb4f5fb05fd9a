"""The calibration charts: predicted against measured figures; on the diagonal they are equal."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from html import escape
from statistics import median
from typing import Any

from advisor.fidelity import Line, kind_of
from advisor.templatetags.units import percent
from advisor.web.charts.plots import FINE_STEPS, label, sig_short
from advisor.web.interactive.chart_data import Chart, Json, axis
from catalog.charts import Log

SIZE = 420
LEFT, RIGHT, TOP, BOTTOM = 66, 14, 14, 50
MAX_MARKS = 300
HUES = 5  # chips with their own color; all others share a sixth
BANDS = (0.25, 0.10)
COLORS = ("--accent", "--compute", "--communication", "--activations", "--good", "--host")  # of the classes hue-0 to 5
KINDS: Mapping[str, str] = {  # metric kind -> axis label
    "tpot": "time per output token, ms",
    "ttft": "time to first token, ms",
    "throughput": "tokens/s",
    "prefill": "prompt tokens/s",
    "latency": "whole batch, s",
    "kernel": "TFLOP/s",
}


def hues(lines: Sequence[Line]) -> dict[str, int]:
    """The color index of each chip, by number of rows; HUES for those beyond the first HUES."""
    counts = Counter(line.row.accelerator for line in lines)
    chips = sorted(counts, key=lambda chip: (-counts[chip], chip))
    return {chip: min(i, HUES) for i, chip in enumerate(chips)}


def pictures(lines: Sequence[Line]) -> list[Chart]:
    """One chart for each metric kind among the drawable rows."""
    hue_of = hues(lines)
    charts = []
    for kind, axis_label in KINDS.items():
        drawn = [line for line in lines if kind_of(line.row) == kind and drawable(line)]
        if drawn:
            charts.append(chart(kind, drawn, axis_label, hue_of))
    return charts


def chart(kind: str, lines: Sequence[Line], axis_label: str, hue_of: Mapping[str, int]) -> Chart:
    """The rows of one metric kind, a series for each color, and their errors by chip as a table."""
    low, high = ends(lines)
    x, y = scales(low, high)
    by_name: dict[str, Json] = {}
    for line in thinned(lines, x, y):
        hue = hue_of[line.row.accelerator]
        name = line.row.accelerator if hue < HUES else "others"
        series = by_name.setdefault(
            name, {"type": "points", "name": name, "color": COLORS[hue], "size": 7, "points": []}
        )
        series["points"].append([line.row.measured, line.row.predicted, tip(line)])
    bands = [
        {"type": "band", "name": f"within {width:.0%}", "color": "--accent", "points": strip(low, high, width)}
        for width in BANDS
    ]
    equal = {"type": "line", "name": "predicted = measured", "color": "--ink", "dashed": True, "silent": True,
             "points": [[low, low, ""], [high, high, ""]]}  # fmt: skip
    frame: dict[str, Any] = {"log": True, "min": low, "max": high}
    return Chart(
        id=f"accuracy-{kind}",
        title=f"Predicted vs. measured: {axis_label}",
        svg=picture(lines, axis_label, hue_of),
        data={
            "kind": "xy",
            "x": axis(f"measured, {axis_label}", **frame),
            "y": axis(f"predicted, {axis_label}", **frame),
            "series": [*bands, equal, *by_name.values()],
            "height": 400,
        },
        columns=("Chip", "Figures", "Median error", "Within 10%", "Within 25%"),
        rows=tuple(errors_of(chip, lines) for chip in hue_of if any(line.row.accelerator == chip for line in lines)),
    )


def errors_of(chip: str, lines: Sequence[Line]) -> tuple[str, ...]:
    errors = [abs(line.row.bias_fraction or 0.0) for line in lines if line.row.accelerator == chip]
    near = (sum(error <= width for error in errors) / len(errors) for width in reversed(BANDS))
    return chip, f"{len(errors):,}", percent(median(errors)), *map(percent, near)


def strip(low: float, high: float, width: float) -> list[list[float]]:
    """The predictions at most this far off, along the diagonal: measured, lowest, highest."""
    measured = (low, low / (1 - width), high / (1 + width), high)  # its edges meet the frame at the middle two
    return [[value, max(low, value * (1 - width)), min(high, value * (1 + width))] for value in measured]


def drawable(line: Line) -> bool:
    return bool(line.row.measured and line.row.predicted and line.row.measured > 0 and line.row.predicted > 0)


def picture(lines: Sequence[Line], axis_label: str, hue_of: Mapping[str, int]) -> str:
    x, y = scales(*ends(lines))
    marks = "".join(mark(line, x, y, hue_of) for line in thinned(lines, x, y))
    near = sum(abs(line.row.bias_fraction or 0.0) <= BANDS[1] for line in lines) / len(lines)
    close = sum(abs(line.row.bias_fraction or 0.0) <= BANDS[0] for line in lines) / len(lines)
    description = f"{len(lines)} figures: {near:.0%} within 10% of the measurement, {close:.0%} within 25%."
    title = f"Predicted vs. measured: {axis_label}"
    return (
        f'<svg class="chart scatter" viewBox="0 0 {SIZE} {SIZE}" role="img" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title><desc>{escape(description)}</desc>{ground(x, y, axis_label)}{marks}</svg>"
    )


def ends(lines: Sequence[Line]) -> tuple[float, float]:
    """The lowest and the highest value of both axes."""
    values = [value for line in lines for value in (line.row.measured, line.row.predicted) if value]
    return min(values) / 1.3, max(values) * 1.3


def scales(low: float, high: float) -> tuple[Log, Log]:
    return Log(low, high, LEFT, SIZE - RIGHT, FINE_STEPS), Log(low, high, SIZE - BOTTOM, TOP, FINE_STEPS)


def ground(x: Log, y: Log, axis_label: str) -> str:
    """The bands, the diagonal, the grid and the axis labels."""
    floor, right = SIZE - BOTTOM, SIZE - RIGHT
    parts = [f'<path class="band band-{round(width * 100)}" d="{band(x, y, width)}"/>' for width in BANDS]
    for value in x.ticks(5):
        parts += [f'<path class="grid" d="M{x(value)} {TOP}V{floor}"/>', label(x(value), floor + 17, sig_short(value))]
        parts += [f'<path class="grid" d="M{LEFT} {y(value)}H{right}"/>']
        parts.append(label(LEFT - 6, y(value) + 4, sig_short(value), anchor="end"))
    parts.append(f'<path class="diagonal" d="M{LEFT} {floor}L{right} {TOP}"/>')
    parts.append(f'<path class="axis" d="M{LEFT} {TOP}V{floor}H{right}"/>')
    parts.append(label((LEFT + right) / 2, SIZE - 10, f"measured, {axis_label} (log)", "name"))
    turned = f'transform="translate(14 {(TOP + floor) / 2:g}) rotate(-90)"'
    parts.append(f'<text class="name" text-anchor="middle" {turned}>predicted (log)</text>')
    return "".join(parts)


def band(x: Log, y: Log, width: float) -> str:
    """The strip of predictions at most this far off, cut at the frame."""

    def edge(factor: float) -> list[tuple[float, float]]:
        first, last = max(x.low, x.low / factor), min(x.high, x.high / factor)
        return [(x(first), y(first * factor)), (x(last), y(last * factor))]

    upper, lower = edge(1 + width), edge(1 - width)
    corners = [*upper, (x(x.high), y(y.high)), *reversed(lower), (x(x.low), y(y.low))]
    return "M" + "L".join(f"{px:g} {py:g}" for px, py in corners) + "Z"


def thinned(lines: Sequence[Line], x: Log, y: Log) -> Sequence[Line]:
    """At most MAX_MARKS of the lines: one for each chip and 2-pixel square, then every n-th."""
    by_square: dict[tuple[str, int, int], Line] = {}
    cell: Callable[[float], int] = lambda pixel: round(pixel / 2)  # noqa: E731
    for line in lines:
        square = (line.row.accelerator, cell(x(line.row.measured or 1.0)), cell(y(line.row.predicted or 1.0)))
        by_square.setdefault(square, line)
    distinct = list(by_square.values())
    return distinct[:: math.ceil(len(distinct) / MAX_MARKS)]


def mark(line: Line, x: Log, y: Log, hue_of: Mapping[str, int]) -> str:
    row = line.row
    px, py = x(row.measured or 1.0), y(row.predicted or 1.0)
    circle = f'<circle class="dot hue-{hue_of[row.accelerator]}" cx="{px:g}" cy="{py:g}" r="3">'
    return f"{circle}<title>{escape(tip(line))}</title></circle>"


def tip(line: Line) -> str:
    row = line.row
    said = f"{row.accelerator}, {row.model}, {row.framework}: {sig_short(row.measured or 0)} measured, "
    return said + f"{sig_short(row.predicted or 0)} predicted"
