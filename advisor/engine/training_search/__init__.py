"""Training: the best layout of every chip and size, the time and goodput of its run, and the plan that pays for it."""

from advisor.engine.training_search.layouts import offloads_alike, reach, servers_of, serves
from advisor.engine.training_search.outcome import (
    Candidate,
    Reliability,
    break_even_interruptions,
    candidate,
    cluster_of,
    delivery_days,
    prices_of_run,
    strategies_of,
    ways_of_run,
)
from advisor.engine.training_search.phases import Phase, Servers, Trainer, beside_bytes, iteration
from advisor.engine.training_search.search import Found, by_seller, search
from advisor.engine.training_search.uncertainty import (
    UNCERTAIN,
    CostDraws,
    Uncertainties,
    at_quantile,
    cost_draws,
    speed_distribution,
    uncertainties,
    with_ratios,
)
from advisor.engine.training_search.why_not import budget_named, deadline_days, duration, smaller_tasks
