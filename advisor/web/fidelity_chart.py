"""The calibration picture: predicted over measured, drawn on the server; on the diagonal a prediction is right."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from html import escape

from advisor.fidelity import Line, kind_of
from advisor.web.charts import FINE_STEPS, label, sig_short
from catalog.charts import Log

SIZE = 420
LEFT, RIGHT, TOP, BOTTOM = 66, 14, 14, 50
MOST_MARKS = 300
HUES = 5  # chips with a colour of their own; the rest share the sixth
BANDS = (0.25, 0.10)
KINDS: Mapping[str, str] = {  # kind of figure -> what the axes say
    "tpot": "time per output token, ms",
    "ttft": "time to first token, ms",
    "throughput": "tokens/s",
    "prefill": "prompt tokens/s",
    "latency": "whole batch, s",
    "kernel": "TFLOP/s",
}


def hues(lines: Sequence[Line]) -> dict[str, int]:
    """Colours of the chips with the most rows; the others get the last one."""
    counted = Counter(line.row.accelerator for line in lines)
    ordered = sorted(counted, key=lambda chip: (-counted[chip], chip))
    return {chip: min(number, HUES) for number, chip in enumerate(ordered)}


def pictures(lines: Sequence[Line]) -> list[dict[str, str]]:
    """One picture for each kind of figure among the rows that can be drawn."""
    colour = hues(lines)
    found = []
    for kind, words in KINDS.items():
        own = [line for line in lines if kind_of(line.row) == kind and drawable(line)]
        if own:
            found.append({"kind": kind, "title": words, "svg": picture(own, words, colour)})
    return found


def drawable(line: Line) -> bool:
    return bool(line.row.measured and line.row.predicted and line.row.measured > 0 and line.row.predicted > 0)


def picture(lines: Sequence[Line], words: str, colour: Mapping[str, int]) -> str:
    values = [value for line in lines for value in (line.row.measured, line.row.predicted) if value]
    low, high = min(values) / 1.3, max(values) * 1.3
    x, y = Log(low, high, LEFT, SIZE - RIGHT, FINE_STEPS), Log(low, high, SIZE - BOTTOM, TOP, FINE_STEPS)
    marks = "".join(mark(line, x, y, colour) for line in thinned(lines, x, y))
    near = sum(abs(line.row.bias_fraction or 0.0) <= BANDS[1] for line in lines) / len(lines)
    close = sum(abs(line.row.bias_fraction or 0.0) <= BANDS[0] for line in lines) / len(lines)
    told = f"{len(lines)} figures: {near:.0%} within 10 % of the measured one, {close:.0%} within 25 %."
    title = f"Predicted over measured: {words}"
    return (
        f'<svg class="chart scatter" viewBox="0 0 {SIZE} {SIZE}" role="img" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title><desc>{escape(told)}</desc>{ground(x, y, words)}{marks}</svg>"
    )


def ground(x: Log, y: Log, words: str) -> str:
    """Bands, diagonal, grid and the names of the axes."""
    floor, right = SIZE - BOTTOM, SIZE - RIGHT
    parts = [f'<path class="band band-{round(width * 100)}" d="{band(x, y, width)}"/>' for width in BANDS]
    for value in x.ticks(5):
        parts += [f'<path class="grid" d="M{x(value)} {TOP}V{floor}"/>', label(x(value), floor + 17, sig_short(value))]
        parts += [f'<path class="grid" d="M{LEFT} {y(value)}H{right}"/>']
        parts.append(label(LEFT - 6, y(value) + 4, sig_short(value), anchor="end"))
    parts.append(f'<path class="diagonal" d="M{LEFT} {floor}L{right} {TOP}"/>')
    parts.append(f'<path class="axis" d="M{LEFT} {TOP}V{floor}H{right}"/>')
    parts.append(label((LEFT + right) / 2, SIZE - 10, f"measured, {words} (log)", "name"))
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
    """One row for each spot of two pixels and chip, then every n-th, so that the picture stays small."""
    seen: dict[tuple[str, int, int], Line] = {}
    at: Callable[[float], int] = lambda pixel: round(pixel / 2)  # noqa: E731
    for line in lines:
        spot = (line.row.accelerator, at(x(line.row.measured or 1.0)), at(y(line.row.predicted or 1.0)))
        seen.setdefault(spot, line)
    kept = list(seen.values())
    return kept[:: math.ceil(len(kept) / MOST_MARKS)]


def mark(line: Line, x: Log, y: Log, colour: Mapping[str, int]) -> str:
    row = line.row
    tip = f"{row.accelerator}, {row.model}, {row.framework}: {sig_short(row.measured or 0)} measured, "
    tip += f"{sig_short(row.predicted or 0)} predicted"
    px, py = x(row.measured or 1.0), y(row.predicted or 1.0)
    circle = f'<circle class="dot hue-{colour[row.accelerator]}" cx="{px:g}" cy="{py:g}" r="3">'
    return f"{circle}<title>{escape(tip)}</title></circle>"
