"""Amounts, ranges and plans in words, the same in every document."""

from collections.abc import Sequence

from advisor.engine.terms import HOURS_PER_MONTH, usd_text
from advisor.report.text import figure
from advisor.result import Currency, Option, Plan, PlanStep, TrainingOption, order_month, servers_text
from advisor.templatetags import finance, units

Interval = Sequence[float | None] | None
MOST_NAMED = 3  # parts of a plan that its short form names
ALWAYS = 0.999  # share of the hours from which an instance counts as rented around the clock


def dollars(usd: float | None, interval: Interval = None) -> str:
    """An amount, with its interval in parentheses."""
    return f"{units.dollars(usd)}{f' ({range_text(interval)})' if interval else ''}"


def unit_price(step: PlanStep) -> str:
    """List price of one instance or server."""
    if step.unit_usd_once is not None:
        return f"{finance.unit_price(step.unit_usd_once)} each"
    if step.unit_usd_per_hour is not None:
        return f"{finance.unit_price(step.unit_usd_per_hour)} per hour"
    return "already paid"


def range_text(interval: Sequence[float | None]) -> str:
    return " to ".join("-" if usd is None else units.dollars(usd) for usd in interval)


def converted(usd: float, currency: Currency) -> str:
    """The amount in the planner's currency, rounded as dollars are."""
    return f"{currency.code} {usd_text(usd * currency.per_usd).replace('$', '')}"


def rate_text(currency: Currency) -> str:
    """The dated rate: 1 USD = 0.9 EUR, 2026-11-20."""
    return f"1 USD = {currency.per_usd:g} {currency.code}, {currency.as_of}"


def counted(number: float, what: str) -> str:
    """1 month, 1,200 hours."""
    return f"{figure(number)} {what}{'' if number == 1 else 's'}"


def months_text(first: int, last: int) -> str:
    return f"month {first}" if first == last else f"months {first} to {last}"


def order_text(step: PlanStep) -> str:
    """When a purchase has to be ordered; empty where nothing is ordered."""
    if not step.order_months_before:
        return ""
    month = order_month(step)
    return f"order in month {month}" if month else "order today"


def is_late(step: PlanStep) -> bool:
    """Whether the delivery takes longer than the plan leaves time for."""
    return step.order_months_before > step.from_month - 1


def plan_text(plan: Plan) -> str:
    """The plan in one phrase: buy 2 x a server, rent up to 4 x an instance at a provider."""
    counts: dict[tuple[str, str, str], int] = {}
    partly, steps = set(), dict[tuple[str, str, str], PlanStep]()
    for step in plan.steps:
        key = step.action, step.instance, step.provider
        steps[key] = step
        before, rents = counts.get(key, 0), step.action == "rent"
        counts[key] = max(before, step.instances) if rents else before + step.instances
        served = step.instances * HOURS_PER_MONTH * (step.until_month - step.from_month + 1)
        if rents and (key[1:] in partly or before or step.paid_hours < ALWAYS * served):
            partly.add(key[1:])
    named = []
    for (action, item, seller), count in counts.items():
        part = action == "rent" and (item, seller) in partly
        up_to, at_times = "up to " if part and count > 1 else "", " at times" if part and count == 1 else ""
        where = f" at {seller}" if action in ("rent", "reserve") else ""
        named.append(f"{action} {up_to}{servers_text(count, steps[action, item, seller])}{where}{at_times}")
    return shortlist(named, MOST_NAMED) or "sign nothing"


def shortlist(names: Sequence[str], most: int) -> str:
    """A, B and C; of more than `most` names A, B, C and 2 more."""
    shown = [*names[:most], *([f"{len(names) - most} more"] if len(names) > most else [])]
    return " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1]))) if shown else ""


def purchase_text(r: Option | TrainingOption) -> str:
    """What is signed: the plan, or in answers of earlier versions the instances."""
    if r.money and r.money.plan:
        return plan_text(r.money.plan)
    what = f"{r.instances:,} x {r.instance or r.accelerator_name}"
    if r.accelerator_count != r.instances:
        what += f" ({r.accelerator_count:,} x {r.accelerator_name} in use)"
    return f"buy {what}" if r.acquisition == "own" else f"rent {what} at {r.provider}"
