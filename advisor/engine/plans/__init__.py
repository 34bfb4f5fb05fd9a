"""Dated plans: what is rented, reserved, bought and released in which month, and what that costs."""

from advisor.engine.plans.highs import milp
from advisor.engine.plans.plan import (
    NAMES,
    Flow,
    Overheads,
    Plan,
    best_plan,
    best_switch,
    book_values,
    break_even_month,
    flat_demand,
    flows,
    internal_rate,
    named_plans,
    payback_month,
    plan_of,
    prices_until,
)
from advisor.engine.plans.solve import (
    Commitment,
    Hourly,
    Schedule,
    least_from,
    purchase_payments,
    term_payments,
)
from advisor.engine.plans.ways import (
    CAPITAL,
    COMMITMENT,
    ENERGY,
    HOURLY,
    OTHER,
    OWNED,
    PURCHASE,
    RENT,
    RESALE,
    SERVICES,
    STAFF,
    TERM,
    Demand,
    Limits,
    Way,
    demand_by_month,
)
