"""The plan of an option, its range of costs and how certain the ranking is, made ready to read."""

from collections.abc import Sequence
from typing import Any

from advisor.report import months, plan_payments, plan_totals
from advisor.result import Answer, ApiOption, Option, PlanStep, Scenario, TrainingOption, machine_of, purchase_in
from advisor.templatetags.units import sig, words
from advisor.web.interactive import chart_data

Ranked = Option | ApiOption | TrainingOption
ACTIONS = {"rent": "Rent by the hour", "reserve": "Reserve", "buy": "Buy", "keep": "Keep"}
TERMS = {"spot": "spot", "reserved_1y": "1 year", "reserved_3y": "3 years"}
STRATEGIES = {
    "rent": "Rent",
    "reserve": "Reserve",
    "buy_now": "Buy now",
    "extend_later": "Extend later",
    "rent_then_buy": "Rent, then buy",
    "mixed": "Mix",
    "ranked": "Ranked plan",
}
OWN = ("own", "owned", "own-site", "any", "")  # not the name of a seller or region
SCENARIOS = {"low": "Low", "base": "Expected", "high": "High"}


# --- the plan of one option -------------------------------------------------------------------------------------


def of_option(option: Ranked) -> dict[str, Any] | None:
    """What the option page shows of the plan; None in answers of earlier versions."""
    money = option.money
    if money is None or money.plan is None:
        return None
    plan = money.plan
    beside = money.usd_over_horizon - sum(step.usd for step in plan.steps)  # teams, services: of the plan as a whole
    return {
        "said": plan.said,
        "purchase": None if isinstance(option, ApiOption) else purchase_in(option),
        "steps": [step_row(step, money.horizon_months) for step in plan.steps],
        "beside_usd": beside if abs(beside) >= 1 else 0.0,
        "total_usd": money.usd_over_horizon,
        "figures": [*plan_totals(money), *plan_payments(money, plan)],
        "strategies": [(STRATEGIES.get(s.name, words(s.name).capitalize()), s) for s in plan.strategies],
        "months": plan.months,
        "months_chart": chart_data.plan_months(plan.months),
        "taxes": money.taxes,
        "ranges": money.ranges,
        "horizon": money.horizon_months,
    }


def step_row(step: PlanStep, horizon: int, end: str = "the horizon") -> dict[str, Any]:
    """One line of what to sign; `end`: what the last month of the plan is the end of."""
    action = ACTIONS.get(step.action, words(step.action).capitalize())
    term = TERMS.get(step.term, "") if step.action in ("rent", "reserve") else ""
    place = [name for name in (step.provider, step.region) if name not in OWN]
    over = step.paid_until_month - horizon
    return {
        "step": step,
        "item": machine_of(step),
        "action": f"{action}, {term}" if term else action,
        "order": f"order {months(step.order_months_before)} ahead" if step.order_months_before else "",
        "seller": place[0] if place else "own site",
        "region": place[1] if len(place) > 1 else "",
        "months": span(step.from_month, step.until_month),
        "over": f"{months(over)} after {end}" if over > 0 else "",
        "unit": step.unit_usd_per_hour if step.unit_usd_once is None else step.unit_usd_once,
        "per": "per hour" if step.unit_usd_once is None else "once",
    }


def span(first: int, last: int) -> str:
    return f"{first}" if first == last else f"{first} to {last}"


# --- all options of an answer -----------------------------------------------------------------------------------


def certainty(answer: Answer) -> dict[str, Any] | None:
    """What the advice page shows of uncertainty; None in answers of earlier versions."""
    options: Sequence[Ranked] = answer.training_runs or answer.serving_options
    ranged = [option for option in options if option.money and option.money.ranges]
    found, table = answer.uncertainty, scenario_table(options, answer.scenarios)
    if not (ranged or found or table):
        return None
    return {
        "said": found.said if found else "",
        "draws": found.draws if found else None,
        "seed": found.seed if found else None,
        "drivers": found.drivers if found else [],
        "drivers_chart": chart_data.drivers(found.drivers) if found else None,
        "chances": found.chances if found else [],
        "ranged": ranged,
        "has_budget": any(
            option.money.ranges.over_budget_probability is not None
            for option in ranged
            if option.money and option.money.ranges
        ),
        "scenarios": table,
    }


def scenario_table(options: Sequence[Ranked], scenarios: Sequence[Scenario]) -> dict[str, Any] | None:
    """Rows of options, columns of scenarios; None without scenarios."""
    by_rank = [{cost.rank: cost for cost in scenario.costs} for scenario in scenarios]
    rows = [
        (
            option,
            [
                (costs.get(option.rank or 0), scenario.first_rank == option.rank)
                for costs, scenario in zip(by_rank, scenarios, strict=True)
            ],
        )
        for option in options
        if any((option.rank or 0) in costs for costs in by_rank)
    ]
    if not rows:
        return None
    names = [SCENARIOS.get(scenario.name, scenario.name) for scenario in scenarios]
    assumed = [
        (name, ", ".join(f"{words(key)} × {sig(ratio)}" for key, ratio in scenario.ratios.items()))
        for name, scenario in zip(names, scenarios, strict=True)
    ]
    return {"names": names, "rows": rows, "assumed": [(name, said) for name, said in assumed if said]}


# --- dates of prices --------------------------------------------------------------------------------------------


def prices_of(option: Ranked) -> set[tuple[str, str, str]]:
    """Each price that the option rests on: provider, date and source."""
    steps = option.money.plan.steps if option.money and option.money.plan else []
    return {
        (each.provider, each.price_as_of, each.price_source)
        for each in (*steps, *([] if steps else [option]))
        if each.price_as_of
    }


def price_days(options: Sequence[Ranked]) -> tuple[str, str] | None:
    """The oldest and the newest day of the prices that options rest on; None without prices."""
    return ends([day for option in options for _, day, _ in prices_of(option)])


def price_days_of(answer: Answer) -> tuple[str, str] | None:
    """The same of all options of an answer; of a portfolio, of its machines."""
    money = answer.portfolio.money if answer.portfolio else None
    return ends([item.price_as_of for item in money.items]) if money else price_days(answer.recommendations)


def ends(days: Sequence[str]) -> tuple[str, str] | None:
    return (min(days), max(days)) if days else None
