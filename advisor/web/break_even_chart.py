"""What buying, renting and a hosted API have cost by each month, as a chart and a table."""

from typing import Any

from advisor.report import meetings
from advisor.result import CostPath, Money
from advisor.templatetags.finance import dollars
from advisor.templatetags.units import si
from advisor.web.charts import label, svg

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 320, 76, 150, 16, 48
NAMES = {"own": "Buy", "rent on_demand": "Rent by the hour", "rent spot": "Rent spot instances"}
TICKS = 4
EVERY_MONTHS = 12


def name_of(path: CostPath) -> str:
    """Buy, Rent by the hour, API of a provider."""
    return NAMES.get(path.name, path.name.replace("_", " ").replace("rent ", "Rent, "))


def page(money: Money | None) -> dict[str, Any]:
    """What the section shows: the chart, the same as a table, and where the ways meet in words."""
    paths = money.paths if money else []
    months = min((len(path.cumulative_usd) for path in paths), default=0)
    return {
        "break_even": meetings(money) if money else [],
        "break_even_svg": chart(paths, months),
        "break_even_names": [name_of(path) for path in paths],
        "break_even_rows": [(month, [path.cumulative_usd[month] for path in paths]) for month in range(months)],
    }


def chart(paths: list[CostPath], months: int) -> str:
    """One line for each way; empty where there is nothing to compare."""
    if len(paths) < 2 or months < 2:
        return ""
    every = [usd for path in paths for usd in path.cumulative_usd[:months]]
    most, least = max(every), min(0.0, *every)
    floor, last = HEIGHT - BOTTOM, months - 1

    def x(month: float) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * month / last, 1)

    def y(usd: float) -> float:
        return round(floor - (floor - TOP) * (usd - least) / ((most - least) or 1.0), 1)

    parts = []
    for k in range(TICKS + 1):
        usd = least + (most - least) * k / TICKS
        parts.append(f'<path class="grid" d="M{LEFT} {y(usd)}H{WIDTH - RIGHT}"/>')
        parts.append(label(LEFT - 8, y(usd) + 4, f"${si(usd)}" if usd else "$0", anchor="end"))
    for month in range(0, months, EVERY_MONTHS):
        parts.append(label(x(month), floor + 18, month))
    parts.append(label((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, "months from today", "name"))
    named = sorted((y(path.cumulative_usd[last]), k) for k, path in enumerate(paths))
    places: dict[int, float] = {}
    for at, k in named:  # names that would overlap move down
        places[k] = max(at, *(place + 16 for place in places.values()), TOP)
    for k, path in enumerate(paths):
        steps = "L".join(f"{x(month)} {y(usd)}" for month, usd in enumerate(path.cumulative_usd[:months]))
        parts.append(f'<g class="hue-{k}"><path class="path-line" d="M{steps}"/></g>')
        parts.append(label(x(last) + 8, places[k] + 4, name_of(path), "name", "start"))
    ends = ", ".join(f"{name_of(path)} {dollars(path.cumulative_usd[last])}" for path in paths)
    text = f"Paid by the end of month {last}: {ends}. Purchases are sold in the last month."
    return svg("break-even", WIDTH, HEIGHT, "Cost of buying, renting and a hosted API over time", text, "".join(parts))
