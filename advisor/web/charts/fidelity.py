"""The calibration charts: predicted against measured figures; on the diagonal they are equal."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

from advisor.fidelity import Line, kind_of
from advisor.templatetags.units import percent
from advisor.web.interactive.chart_data import Chart, Json, axis
from catalog.charts import (
    BOTTOM,
    FINE_STEPS,
    HEIGHT,
    HUE_COLORS,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Log,
    drawn,
    sig_short,
)

MAX_MARKS = 300
HUES = 5  # chips with their own color; all others share a sixth
BANDS = (0.25, 0.10)
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
            name, {"type": "points", "name": name, "color": HUE_COLORS[hue], "size": 7, "points": []}
        )
        series["points"].append([line.row.measured, line.row.predicted, tip(line)])
    bands = [
        {"type": "band", "name": f"within {width:.0%}", "color": "--accent", "points": strip(low, high, width)}
        for width in BANDS
    ]
    equal = {"type": "line", "name": "predicted = measured", "color": "--ink", "dashed": True, "silent": True,
             "points": [[low, low, ""], [high, high, ""]]}  # fmt: skip
    frame: dict[str, Any] = {"log": True, "min": low, "max": high}
    title = f"Predicted vs. measured: {axis_label}"
    data = {
        "kind": "xy",
        "x": axis(f"measured, {axis_label}", **frame),
        "y": axis(f"predicted, {axis_label}", **frame),
        "series": [*bands, equal, *by_name.values()],
        "height": 400,
        "legend": False,  # the page has one
    }
    close, near = (sum(abs(each.row.bias_fraction or 0.0) <= width for each in lines) / len(lines) for width in BANDS)
    description = f"{len(lines)} figures: {near:.0%} within 10% of the measurement, {close:.0%} within 25%."
    return Chart(
        id=f"accuracy-{kind}",
        title=title,
        svg=drawn(data, title, description, "scatter"),
        data=data,
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


def ends(lines: Sequence[Line]) -> tuple[float, float]:
    """The lowest and the highest value of both axes."""
    values = [value for line in lines for value in (line.row.measured, line.row.predicted) if value]
    return min(values) / 1.3, max(values) * 1.3


def scales(low: float, high: float) -> tuple[Log, Log]:
    return Log(low, high, LEFT, WIDTH - RIGHT, FINE_STEPS), Log(low, high, HEIGHT - BOTTOM, TOP, FINE_STEPS)


def thinned(lines: Sequence[Line], x: Log, y: Log) -> Sequence[Line]:
    """At most MAX_MARKS of the lines: one for each chip and 2-pixel square, then every n-th."""
    by_square: dict[tuple[str, int, int], Line] = {}
    cell: Callable[[float], int] = lambda pixel: round(pixel / 2)  # noqa: E731
    for line in lines:
        square = (line.row.accelerator, cell(x(line.row.measured or 1.0)), cell(y(line.row.predicted or 1.0)))
        by_square.setdefault(square, line)
    distinct = list(by_square.values())
    return distinct[:: math.ceil(len(distinct) / MAX_MARKS)]


def tip(line: Line) -> str:
    row = line.row
    said = f"{row.accelerator}, {row.model}, {row.framework}: {sig_short(row.measured or 0)} measured, "
    return said + f"{sig_short(row.predicted or 0)} predicted"
