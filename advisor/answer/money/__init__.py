"""The money of an answer: bills, dated plans, break-even, taxes, uncertainty."""

from advisor.answer.money.bill import (
    CURRENCY,
    assumptions,
    availability_text,
    cached_share,
    cash_flow,
    cheapest,
    cost_parts,
    figures_of,
    money,
    paid_way,
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
    case_of,
    cost_ranges,
    driver,
    portfolio_ranges,
    price_ends,
    scenarios,
    uncertain_of,
    uncertainty,
    with_ranges,
)
