"""The chart beside the verdict: what each way to pay has cost over time, with as few figures as it can have."""

from collections.abc import Sequence

from advisor.engine.terms import tick_text
from advisor.report import count_word
from advisor.templatetags.units import localized
from catalog.charts import Linear, label, svg
from catalog.pricing import reader

WIDTH, HEIGHT = 344, 232
LEFT, RIGHT, TOP, BOTTOM = 4, 128, 12, 24
LINE_HEIGHT = 32  # pixels of a label at the end of a line: name and amount
MOST_CHARACTERS = 20  # of a name

Way = tuple[str, str, Sequence[float]]  # name, CSS color, USD paid by the end of each month


@reader.in_usd
def ways_over_time(ways: Sequence[Way]) -> str:
    """A line for each way to pay, with its name and total at its end; empty with fewer than two ways or months."""
    months = min((len(paid) for _, _, paid in ways), default=0)
    if len(ways) < 2 or months < 2:
        return ""
    floor, end = HEIGHT - BOTTOM, WIDTH - RIGHT
    x = Linear(months - 1, LEFT, end)
    y = Linear(max(max(paid[:months]) for _, _, paid in ways) or 1.0, floor, TOP)
    parts = [f'<path class="axis" d="M{LEFT} {floor}H{end}"/>']
    parts += [label(LEFT, HEIGHT - 6, "today", anchor="start"), label(end, HEIGHT - 6, after(months - 1))]
    places = spread([y(paid[months - 1]) for _, _, paid in ways], TOP + 4, floor - LINE_HEIGHT / 2)
    for (name, color, paid), at in zip(ways, places, strict=True):
        line = "L".join(f"{x(month)} {y(max(usd, 0.0))}" for month, usd in enumerate(paid[:months]))
        parts.append(f'<path d="M{line}" fill="none" stroke="var({color})" stroke-width="2.5"/>')
        parts.append(f'<path d="M{end + 6} {at}h10" stroke="var({color})" stroke-width="3"/>')
        parts.append(label(end + 22, at + 1, shortened(name), "name", "start"))
        parts.append(label(end + 22, at + 16, localized(tick_text(max(paid[months - 1], 0.0))), "tick", "start"))
    return svg("ways", WIDTH, HEIGHT, "Paid to date, buying, renting and a hosted API", described(ways), "".join(parts))


def after(months: int) -> str:
    """three years; month 30"""
    years = months / 12
    if years == int(years) and years < 10:
        return f"{count_word(int(years))} year{'s' * (years > 1)}"
    return f"month {months}"


def shortened(name: str) -> str:
    return name if len(name) <= MOST_CHARACTERS else f"{name[: MOST_CHARACTERS - 1]}…"


def described(ways: Sequence[Way]) -> str:
    return "; ".join(f"{name}: {tick_text(max(paid[-1], 0.0))} in {len(paid) - 1} months" for name, _, paid in ways)


def spread(wanted: Sequence[float], top: float, bottom: float) -> list[float]:
    """Places near those wanted, in pixels, a label's height apart and within the picture; in the order given."""
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    places: dict[int, float] = {}
    least = top
    for i in order:
        places[i] = least = max(wanted[i], least)
        least += LINE_HEIGHT
    most = bottom
    for i in reversed(order):
        places[i] = most = min(places[i], most)
        most -= LINE_HEIGHT
    return [round(places[i], 1) for i in range(len(wanted))]
