"""Two charts of an option's cost: payments to date of every way to pay, and cost per token against the load."""

from typing import Any

from django.utils.text import capfirst

from advisor.report import meetings
from advisor.result import Answer, CostPath, HostedOffer, Option
from advisor.templatetags.units import dollars, large, percent
from advisor.web.charts import glance
from advisor.web.charts import plots as charts
from advisor.web.interactive.chart_data import Chart, axis
from catalog.pricing import reader

Json = dict[str, Any]
NAMES = {
    "own": "buy",
    "rent on_demand": "rent by the hour",
    "rent spot": "rent spot instances",
    "rent reserved_1y": "one-year term",
    "rent reserved_3y": "three-year term",
}
LINE_COLORS = ("--c0", "--c1", "--c5", "--c3", "--c2")
LEAST_LOAD = 0.02  # of the capacity, at the left end of the chart
LOADS = 25


def cheapest_api(answer: Answer | None) -> HostedOffer | None:
    """The cheapest hosted API of the model."""
    return min(answer.hosted, key=lambda offer: offer.usd_per_month) if answer and answer.hosted else None


def driver_range(answer: Answer | None, name: str) -> tuple[float, float] | None:
    """5th and 95th percentile of one uncertain input, as ratios; None where it is not drawn."""
    found = answer.uncertainty.drivers if answer and answer.uncertainty else []
    return next(((each.low, each.high) for each in found if each.name == name), None)


# --- months -----------------------------------------------------------------------------------------------------


@reader.in_usd
def break_even(option: Option, answer: Answer | None) -> Chart | None:
    """What buying, renting and a hosted API have cost by each month; None where there is nothing to compare."""
    paths = option.money.paths if option.money else []
    months = min((len(path.cumulative_usd) for path in paths), default=0)
    if len(paths) < 2 or months < 2:
        return None
    series: list[Json] = []
    for path, color in zip(paths, LINE_COLORS, strict=False):
        name, paid = name_of(path), path.cumulative_usd[:months]
        if ratios := ratios_of(path, option, answer):
            band = [[month, total * ratios[0], total * ratios[1]] for month, total in enumerate(paid)]
            series.append(
                {
                    "type": "band",
                    "name": f"{name}, 90% range",
                    "color": color,
                    "points": band,
                }
            )
        points = [[month, total, paid_text(name, month, total)] for month, total in enumerate(paid)]
        series.append({"type": "line", "name": name, "color": color, "points": points})
    step = next((n for n in (1, 3, 6, 12, 24) if months / n <= 13), 60)
    shown = sorted({*range(0, months, step), months - 1})
    x, y = axis("months from today", "count"), axis("USD paid to date", "usd", zero=True)
    data = {"kind": "xy", "x": x, "y": y, "series": series}
    title = "Cost of buying, renting and a hosted API over time"
    return Chart(
        id="break-even",
        title=title,
        svg=charts.lines(data, title),
        data=data,
        columns=("Month", *(capfirst(name_of(path)) for path in paths)),
        rows=tuple((str(month), *(dollars(path.cumulative_usd[month]) for path in paths)) for month in shown),
        scrolls=True,
    )


def at_a_glance(option: Option) -> str:
    """The same lines without ranges and grid, as SVG; empty where there is nothing to compare."""
    paths = option.money.paths if option.money else []
    ways = [
        (brief_name(path, option), color, path.cumulative_usd) for path, color in zip(paths, LINE_COLORS, strict=False)
    ]
    return glance.ways_over_time(ways)


def brief_name(path: CostPath, option: Option) -> str:
    """Says of owned machines that they are kept, and of a rental that it is one of the same chips."""
    if path.name == "own" and option.provider == "owned":
        return "Keep"
    return "Rent the same" if path.name == "rent on_demand" else capfirst(name_of(path))


def name_of(path: CostPath) -> str:
    """buy, rent by the hour, API of a provider."""
    if path.name in NAMES:
        return NAMES[path.name]
    return path.name.replace("_", " ").replace("rent ", "rent, ")


def paid_text(name: str, month: int, usd_paid: float) -> str:
    values = {"name": name, "month": month, "cost": dollars(usd_paid)}
    return "{name}, month {month}: {cost} paid".format(**values)


def ratios_of(path: CostPath, option: Option, answer: Answer | None) -> tuple[float, float] | None:
    """5th and 95th percentile of a path over its expected total; None where no range is known."""
    money, way = option.money, path.name.split()[0]
    if money and money.ranges and way == option.acquisition and money.usd_over_horizon > 0:
        return money.ranges.total_usd[0] / money.usd_over_horizon, money.ranges.total_usd[2] / money.usd_over_horizon
    return driver_range(answer, {"rent": "rent", "API": "API price"}.get(way, ""))


# --- load -------------------------------------------------------------------------------------------------------


@reader.in_usd
def cost_of_load(option: Option, answer: Answer | None) -> Chart | None:
    """USD per million tokens over the load, with the machines and their bill as they are; None if it is not known."""
    each, full, month = option.usd_per_mtok_blended, option.usd_per_mtok_blended_at_capacity, option.usd_per_month
    if not each or not full or not month or full > each:
        return None
    tokens = month / each * 1e6
    capacity = tokens * each / full
    loads = [capacity * LEAST_LOAD ** (1 - n / (LOADS - 1)) for n in range(LOADS)]
    ranges = option.money.ranges.usd_per_month if option.money and option.money.ranges else None
    series: list[Json] = []
    if ranges:
        band = [[load, ranges[0] / load * 1e6, ranges[2] / load * 1e6] for load in loads]
        name = "this option, 90% range of its bill"
        series.append({"type": "band", "name": name, "color": "--c0", "points": band})
    points = [[load, month / load * 1e6, load_text(load, load / capacity, month)] for load in loads]
    series.append({"type": "line", "name": "this option", "color": "--c0", "points": points})
    api = cheapest_api(answer)
    if api is not None and api.usd_per_mtok_blended:
        price, name = api.usd_per_mtok_blended, "API of %s" % (api.provider_name or api.provider)
        text = f"{name}: {dollars(price)} per M tokens at any load"
        ends = [[loads[0], price, text], [loads[-1], price, text]]
        series.append({"type": "line", "name": name, "color": "--c5", "dashed": True, "points": ends})
    here = f"your load: {dollars(each)} per M tokens, {percent(tokens / capacity)} of capacity"
    series.append({"type": "points", "name": "your load", "color": "--bad", "points": [[tokens, each, here]]})
    data = {
        "kind": "xy",
        "x": axis("tokens per month, input and output", "number", log=True),
        "y": axis("USD per M tokens", "usd", log=True),
        "series": series,
    }
    title = "Cost per million tokens over the load"
    rows = [(large(load), percent(load / capacity), dollars(month / load * 1e6)) for load in loads[::4]]
    return Chart(
        id="cost-of-load", title=title, svg=charts.lines(data, title), data=data,
        columns=("Tokens per month", "Of capacity", "USD per M tokens"), rows=tuple(rows), scrolls=True,
    )  # fmt: skip


def load_text(tokens: float, share: float, month_usd: float) -> str:
    price = dollars(month_usd / tokens * 1e6)
    return f"{large(tokens)} tokens a month ({percent(share)} of capacity): {price} per M tokens"


def page(option: Option, answer: Answer | None) -> Json:
    """Both charts, and where the ways to pay meet in words."""
    return {
        "break_even": reader.in_english(meetings)(option.money) if option.money else [],
        "break_even_chart": break_even(option, answer),
        "load_chart": cost_of_load(option, answer),
    }
