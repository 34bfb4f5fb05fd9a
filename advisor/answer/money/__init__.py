"""The money of an answer: bills, dated plans, break-even, taxes, uncertainty."""

from advisor.answer.money.bill import (
    CURRENCY,
    assumptions,
    availability_text,
    cached_share,
    cash_flow,
    cost_parts,
    figures_of,
    money,
    price_and_load_ranges,
    price_ranges,
    traffic_ratio,
)
from advisor.answer.money.break_even import with_break_even, within_capacity
from advisor.answer.money.places import unknown_places
from advisor.answer.money.plan import best_switch_of, cents, liability_warnings, money_sentences
from advisor.answer.money.settling import NORMAL, VALUES, Input, Moved, settle, settle_serving
from advisor.answer.money.uncertainty import (
    QUARTILE,
    CostModel,
    driver,
    portfolio_ranges,
    price_ends,
    quantiles,
    scenarios,
    uncertain_of,
    uncertainty,
    with_ranges,
)

__all__ = [
    "NORMAL",
    "QUARTILE",
    "driver",
    "quantiles",
    "VALUES",
    "Input",
    "Moved",
    "settle",
    "settle_serving",
    "price_ranges",
    "uncertain_of",
    "portfolio_ranges",
    "liability_warnings",
    "money_sentences",
    "CostModel",
    "scenarios",
    "uncertainty",
    "with_ranges",
    "CURRENCY",
    "assumptions",
    "availability_text",
    "best_switch_of",
    "cached_share",
    "cash_flow",
    "figures_of",
    "cents",
    "cost_parts",
    "money",
    "price_ends",
    "price_and_load_ranges",
    "traffic_ratio",
    "unknown_places",
    "with_break_even",
    "within_capacity",
]
