"""An objective that does not look at the price is sought among what costs at most five times the cheapest."""

import math
from dataclasses import replace

import pytest

from advisor.engine.cost.hourly import HOURS_PER_MONTH
from advisor.engine.search import Question
from advisor.engine.search.run import search
from advisor.engine.search.views import PRICE_BOUND_FACTOR
from advisor.engine.terms.workloads.workload import Constraints, Slo
from tests.engine.catalog_sample import GIB, VLLM, catalog, chip, offer, question

QUICK = chip("quick", memory_bytes=141 * GIB, memory_bytes_per_s=2e13)
KNOWN = catalog(
    accelerators=(*catalog().accelerators, QUICK),
    offers=(*catalog().offers, offer("quick", 400.0)),  # a hundred times the price of `big`, four times as fast
    frameworks=(VLLM,),
)


def first(**changes):
    return search(Question(question(variants="no", **changes), KNOWN))


def test_the_fastest_at_any_price_is_not_the_answer_to_latency():
    cheapest, answer = first(), first(objective="latency")
    bound = PRICE_BOUND_FACTOR * cheapest.ranked[0].usd_per_hour * HOURS_PER_MONTH
    assert answer.bound_usd_per_month == pytest.approx(bound)
    assert all(s.usd_per_hour * HOURS_PER_MONTH <= bound for s in answer.shown)
    (why,) = [r for r in answer.rejections if r.accelerator == "quick"]
    assert why.reason == "too_expensive" and "5 times the cheapest option" in why.detail
    assert answer.views["fastest"] == 0


def test_the_planner_sets_another_bound():
    answer = first(objective="latency", constraints=Constraints(max_usd_per_month=1e7))
    assert answer.ranked[0].lane.choice.accelerator.slug == "quick" and answer.bound_usd_per_month is None


@pytest.mark.parametrize("objective", ["throughput", "energy", "carbon"])
def test_the_other_objectives_have_the_same_bound(objective):
    answer = first(objective=objective)
    assert answer.bound_usd_per_month == pytest.approx(first(objective="latency").bound_usd_per_month)


@pytest.mark.parametrize("objective", ["cost", "balanced"])
def test_an_objective_that_weighs_the_price_has_none(objective):
    assert first(objective=objective).bound_usd_per_month is None


def test_where_nothing_holds_there_is_no_bound():
    answer = first(objective="latency", slo=Slo(ttft_p95_s=1e-6))
    assert answer.ranked == () and answer.bound_usd_per_month is None


def test_the_greenest_offer_is_one_that_can_be_paid():
    green = offer("big", 400.0, region="hydro", kgco2e_per_kwh=0.01)
    answer = search(Question(question(variants="no", objective="carbon"), catalog(offers=(*catalog().offers, green))))
    assert answer.ranked[0].offer.region == "north" and answer.views["greenest"] == 0
    near = offer("big", 6.0, region="hydro", kgco2e_per_kwh=0.01)
    answer = search(Question(question(variants="no", objective="carbon"), catalog(offers=(*catalog().offers, near))))
    assert answer.ranked[0].offer.region == "hydro"


def test_where_no_power_is_known_the_cheapest_leads_and_nothing_is_called_greenest():
    dark = catalog(accelerators=tuple(replace(a, watts=math.nan) for a in catalog().accelerators))
    by_carbon, by_cost = (search(Question(question(variants="no", objective=o), dark)) for o in ("carbon", "cost"))
    assert by_carbon.ranked[0].usd_per_hour == by_cost.ranked[0].usd_per_hour
    assert "greenest" not in by_carbon.views and "greenest" not in by_cost.views
