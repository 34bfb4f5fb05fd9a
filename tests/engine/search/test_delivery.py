"""Bought servers wait for their delivery: something else is rented until then, or they are not bought."""

from dataclasses import replace

import numpy as np
import pytest

from advisor.engine.plans.ways import HOURLY, PURCHASE, TERM
from advisor.engine.search.candidates import Question
from advisor.engine.search.certainty.joint import delivery_times
from advisor.engine.search.estimated import estimated_ranking
from advisor.engine.search.planned import LEAST_HELD_MONTHS
from advisor.engine.search.run import SearchResult, prepare_question, search
from advisor.engine.search.simulated import Scored
from advisor.engine.terms.machines.offer import Offer
from advisor.engine.terms.workloads.workload import Constraints
from tests.engine.catalog_sample import ASSUMED, catalog, offer, question
from tests.engine.plans.test_planned import bought

A = replace(ASSUMED, months=36)
OWN, BOTH = ("own",), ("rent", "own")


def server(usd: float = 20_000.0, months: float = 10.0, **changes: object) -> Offer:
    return replace(bought(usd, A, **changes), order_months=months, order_low_months=1.0, order_high_months=19.0)


def posed(*offers: Offer, acquisition: tuple[str, ...] = BOTH, horizon: int = 36) -> Question:
    a = replace(A, months=horizon)
    asked = question(horizon_months=horizon, constraints=Constraints(acquisition=acquisition))
    return Question(asked, catalog(offers=offers, assumptions=a))


def found(*offers: Offer, acquisition: tuple[str, ...] = BOTH, horizon: int = 36) -> SearchResult:
    return search(posed(*offers, acquisition=acquisition, horizon=horizon))


def buyers(result: SearchResult) -> list[Scored]:
    return [s for s in result.shown if s.planned and s.planned.plan.capex_usd]


def bought_months(s: Scored) -> np.ndarray:
    assert s.planned is not None
    return np.flatnonzero(s.planned.plan.in_service((PURCHASE,)) > 0)


@pytest.mark.parametrize("months", [1.0, 4.0, 10.0])
def test_nothing_bought_serves_before_it_arrives_and_every_month_is_served(months: float) -> None:
    rents = offer("big", 40.0, 8), offer("tiny", 3.0, 1)
    every = buyers(found(server(months=months), *rents))
    assert every
    for s in every:
        assert s.planned is not None
        plan = s.planned.plan
        assert bought_months(s).min() >= months
        assert (plan.in_service((PURCHASE, HOURLY, TERM)) > 0).all()
        assert plan.usd_per_month == pytest.approx(s.usd_per_hour * 730)


def test_another_size_or_chip_bridges_the_delivery_where_it_costs_less() -> None:
    """The rent of the size that is bought is much dearer than small instances, so these serve until month 10."""
    dear, cheap = offer("big", 400.0, 8), offer("big", 2.0, 1, instance="single")
    (s, *_) = buyers(found(server(), dear, cheap))
    assert s.planned is not None and s.planned.bridge is not None
    assert {o.instance for o in s.planned.bridge.offers} == {"single"} and s.offer.acquisition == "own"
    (forced, *_) = found(server(), dear).shown
    assert forced.usd_per_hour > s.usd_per_hour


def test_what_cannot_arrive_and_be_held_for_a_year_is_never_bought() -> None:
    rent = offer("big", 40.0, 8)
    for horizon, months in ((12, 1.0), (20, 10.0), (36, 25.0), (36, 40.0)):
        assert not buyers(found(server(months=months), rent, horizon=horizon))
    every = buyers(found(server(months=10.0), rent, horizon=22))
    assert every and all(len(bought_months(s)) >= LEAST_HELD_MONTHS for s in every)


@pytest.mark.parametrize("months", [0.25, 1.0, 4.0, 10.0, 19.0])
@pytest.mark.parametrize("acquisition", [BOTH, OWN])
def test_an_estimate_costs_what_the_plan_costs_until_the_delivery_and_after_it(
    months: float, acquisition: tuple[str, ...]
) -> None:
    """With the same machines: eight chips serve by estimate and in simulation, rented or bought."""
    offers = server(2_000_000.0, months), offer("big", 160.0, 8)  # the power drawn hardly counts
    (planned, *_) = found(*offers, acquisition=acquisition).ranked
    (estimated, *_) = estimated_ranking(prepare_question(posed(*offers, acquisition=acquisition))).ranked
    assert planned.planned is not None and planned.planned.plan.capex_usd and estimated.offer.acquisition == "own"
    assert planned.instances == estimated.instances == 1
    assert estimated.usd_per_hour == pytest.approx(planned.usd_per_hour, rel=0.01)


def test_where_nothing_may_be_rented_month_one_is_the_delivery() -> None:
    (s, *_) = buyers(found(server(), acquisition=OWN))
    assert bought_months(s).tolist() == list(range(36))
    (rejection,) = [r for r in found(server(), acquisition=OWN, horizon=11).rejections if r.accelerator == "big"]
    assert "at least 12 months" in rejection.detail


def test_the_delivery_time_is_drawn_from_its_range() -> None:
    bounds, ratios = delivery_times([server()])
    assert len(bounds) == 2 and ratios[0] < ratios[1] == 1.0 < ratios[2]
    assert 1.0 < ratios[0] * 10 < 10 < ratios[2] * 10 < 19.0
    certain = replace(server(), order_low_months=10.0, order_high_months=10.0)
    assert delivery_times([certain]) == delivery_times([]) == delivery_times([server(months=0.25)]) == ((), (1.0,))
