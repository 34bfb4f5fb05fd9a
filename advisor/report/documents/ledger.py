"""The amounts behind the workbook's cells: payments by month and column, paid hours of every step, lost cents."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from advisor.engine.terms import HOURS_PER_MONTH
from advisor.report.documents.bill import COLUMNS
from advisor.result import CashFlow, Money, Plan, PlanStep, PortfolioMoney

CENTS_LOST = 0.05  # USD; more than this in a month is not rounding
Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Ledger:
    """Arrays over months 0 .. horizon; USD unless the name says otherwise."""

    flows: list[CashFlow]
    steps: list[PlanStep]  # of the plan; empty in answers without one
    hours: dict[int, Array]  # paid instance-hours of each step that is paid by the hour
    added_fraction: dict[int, float]  # what each purchase costs beyond its list price
    more_capital: Array  # purchases that no step explains
    more_rent: Array  # rent that list prices do not explain
    capital: Array
    rent: Array
    energy: Array
    staff: Array
    other: Array
    resale: Array
    lost: Array  # cents that rounding every month lost
    total: Array  # lost cents included
    discount: Array  # present value of 1 USD


def ledger(m: Money | PortfolioMoney) -> Ledger:
    """The payments of a plan, or of a portfolio or an earlier answer without one."""
    flows, plan = m.cash_flow, m.plan if isinstance(m, Money) else None
    steps = plan.steps if plan else []
    energy, staff, other = (np.array([round(of(flow), 2) for flow in flows]) for of in COLUMNS.values())
    capital, paid_rent, resale = (
        np.array([getattr(flow, name) for flow in flows]) for name in ("capital_usd", "rent_usd", "value_left_usd")
    )
    hours, listed_rent = paid_hours(plan, paid_rent)
    more_rent = np.round(paid_rent - listed_rent, 2)
    more_rent[np.abs(more_rent) < CENTS_LOST] = 0.0
    listed = np.zeros(len(flows))
    for step in steps:
        listed[step.from_month - 1] += step.instances * (step.unit_usd_once or 0.0)
    rent = listed_rent + more_rent
    discount = (1.0 + m.discount_fraction_per_year) ** (-np.array([flow.month for flow in flows]) / 12.0)
    total = capital + rent + energy + staff + other - resale
    lost = lost_cents(total, discount, m.npv_usd, m.usd_over_horizon if isinstance(m, Money) else None)
    return Ledger(
        flows=flows,
        steps=steps,
        hours=hours,
        added_fraction={
            k: float(capital[s.from_month - 1] / listed[s.from_month - 1]) - 1.0
            for k, s in enumerate(steps)
            if s.unit_usd_once
        },
        more_capital=np.where(listed > 0, 0.0, capital),
        more_rent=more_rent,
        capital=capital,
        rent=rent,
        energy=energy,
        staff=staff,
        other=other,
        resale=resale,
        lost=lost,
        total=total + lost,
        discount=discount,
    )


def paid_hours(plan: Plan | None, rent: Array) -> tuple[dict[int, Array], Array]:
    """(Paid hours by month of each step, their list price by month): terms first, rents share what is left."""
    steps = {k: s for k, s in enumerate(plan.steps if plan else []) if s.unit_usd_per_hour is not None}
    terms = {k: term_hours(s, len(rent)) for k, s in steps.items() if s.action == "reserve"}
    left = rent - priced(terms, steps, len(rent))
    hours = {k: terms[k] if k in terms else hourly_hours(s, left) for k, s in steps.items()}
    return hours, priced(hours, steps, len(rent))


def priced(hours: dict[int, Array], steps: dict[int, PlanStep], months: int) -> Array:
    """List price of these hours by month."""
    return sum((h * float(steps[k].unit_usd_per_hour or 0.0) for k, h in hours.items()), np.zeros(months))


def term_hours(step: PlanStep, months: int) -> Array:
    """The same hours every month; those after the horizon are paid in its last month."""
    hours = np.zeros(months)
    hours[step.from_month : step.paid_until_month + 1] = step.instances * HOURS_PER_MONTH
    hours[-1] += max(step.paid_hours - float(hours.sum()), 0.0)
    return hours


def hourly_hours(step: PlanStep, left: Array) -> Array:
    """The hours of a rent, spread over its months as what is left of the rents."""
    served = np.zeros(len(left))
    served[step.from_month : step.until_month + 1] = 1.0
    weights = served * np.maximum(left, 0.0)
    weights = weights if weights.any() else served
    hours: Array = step.paid_hours * weights / weights.sum()
    return hours


def lost_cents(total: Array, discount: Array, npv_usd: float, horizon_usd: float | None) -> Array:
    """The smallest amounts by month with which the sum and the present value are those of the answer."""
    rows: Sequence[Array] = [discount]
    missing = [npv_usd - float(total @ discount)]
    if horizon_usd is not None:
        rows, missing = [discount, np.ones(len(discount))], [*missing, horizon_usd - float(total.sum())]
    lost: Array = np.linalg.lstsq(np.array(rows), np.array(missing), rcond=None)[0]
    return lost if np.abs(lost).max() <= CENTS_LOST else np.zeros(len(discount))
