"""Amounts, ranges and plans in words, the same in every document."""

from collections.abc import Sequence

from advisor.engine.spec import HOURS_PER_MONTH
from advisor.report.text import figure
from advisor.result import Currency, Option, Plan, PlanStep

Interval = Sequence[float | None] | None
MOST_NAMED = 3  # parts of a plan that its short form names
ALWAYS = 0.999  # share of the hours from which an instance counts as rented around the clock


def price(usd: float | None, interval: Interval = None) -> str:
    spread = " ({} to {})".format(*map(figure, interval)) if interval else ""
    return f"${figure(usd)}{spread}"


def dollars(usd: float, interval: Interval = None) -> str:
    """Whole dollars, with the interval in parentheses."""
    sign = "-" if round(usd) < 0 else ""
    return f"{sign}${abs(usd):,.0f}{f' ({range_text(interval)})' if interval else ''}"


def unit_price(step: PlanStep) -> str:
    """List price of one instance or server."""
    if step.unit_usd_once is not None:
        return f"${step.unit_usd_once:,.0f} each"
    return f"${step.unit_usd_per_hour:,.4g} per hour" if step.unit_usd_per_hour is not None else "already paid"


def range_text(interval: Sequence[float | None], currency: str = "") -> str:
    return " to ".join("-" if usd is None else f"{currency}{usd:,.0f}" for usd in interval)


def converted(usd: float, currency: Currency) -> str:
    return f"{currency.code} {usd * currency.per_usd:,.0f}"


def capital(text: str) -> str:
    """The text with a capital first letter."""
    return text[:1].upper() + text[1:]


def months_text(first: int, last: int) -> str:
    return f"month {first}" if first == last else f"months {first} to {last}"


def order_text(step: PlanStep) -> str:
    """When a purchase has to be ordered; empty where nothing is ordered."""
    if not step.order_months_before:
        return ""
    month = step.from_month - 1 - step.order_months_before
    return f"order in month {month + 1:.0f}" if month > 0 else "order today"


def is_late(step: PlanStep) -> bool:
    """Whether the delivery takes longer than the plan leaves time for."""
    return step.order_months_before > step.from_month - 1


def plan_text(plan: Plan) -> str:
    """The plan in one phrase: buy 2 x a server, rent up to 4 x an instance at a provider."""
    counts: dict[tuple[str, str, str], int] = {}
    partly = set()
    for step in plan.steps:
        key = step.action, step.instance, step.provider
        before, rents = counts.get(key, 0), step.action == "rent"
        counts[key] = max(before, step.instances) if rents else before + step.instances
        served = step.instances * HOURS_PER_MONTH * (step.until_month - step.from_month + 1)
        if rents and (key[1:] in partly or before or step.paid_hours < ALWAYS * served):
            partly.add(key[1:])
    named = [
        f"{action} {'up to ' if action == 'rent' and (item, seller) in partly else ''}{count:,} x {item}"
        f"{f' at {seller}' if action in ('rent', 'reserve') else ''}"
        for (action, item, seller), count in counts.items()
    ]
    more = [f"{len(named) - MOST_NAMED} more"] if len(named) > MOST_NAMED else []
    return ", ".join(named[:MOST_NAMED] + more) or "sign nothing"


def purchase_text(r: Option) -> str:
    """What is signed: the plan, or in answers of earlier versions the instances."""
    if r.money and r.money.plan:
        return plan_text(r.money.plan)
    what = f"{r.instances} x {r.instance or r.accelerator_name}"
    if r.accelerator_count != r.instances:
        what += f" ({r.accelerator_count} x {r.accelerator_name} in use)"
    return f"buy {what}" if r.acquisition == "own" else f"rent {what} at {r.provider}"
