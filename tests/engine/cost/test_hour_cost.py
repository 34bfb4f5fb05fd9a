"""One formula for the cost of an hour and one for the latency over its limit: every caller agrees on random cases."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.answer.estimates.single_estimate import usd_per_hour
from advisor.engine.cost.hourly import Licence, hour_usd
from advisor.engine.fleet import colocation, mix
from advisor.engine.fleet.mix import PART_REQUESTS
from advisor.engine.optimisation.precompiled import paid_fraction
from advisor.engine.search import Question
from advisor.engine.search.candidates import Catalog
from advisor.engine.search.certainty.rank_uncertainty import Spread, figures_at
from advisor.engine.search.certainty.sensitivity import standing_at
from advisor.engine.search.limits import latency_excess
from advisor.engine.search.objective import Scale
from advisor.engine.search.run import search
from advisor.engine.search.simulated import Scored, excess, repriced, resized_usd_per_hour
from advisor.engine.search.table import best_offers, offer_usd_per_hour
from advisor.engine.terms.machines.offer import OWNED, Offer, Part
from advisor.engine.terms.ratio_distribution import CERTAIN
from advisor.engine.terms.workloads.case import Pool
from advisor.engine.terms.workloads.demand import office_hours
from advisor.engine.terms.workloads.kinds import BATCH
from advisor.engine.terms.workloads.workload import Slo, Workload
from tests.engine.catalog_sample import catalog, offer, question

SETTINGS = settings(max_examples=8, deadline=None, derandomize=True)
prices = st.floats(0.1, 90.0)
terms = st.sampled_from(["on_demand", "spot", "reserved_1y"])
licences = st.sampled_from([0.0, 4380.0])
workloads = st.sampled_from(
    [
        question(requests_per_s_mean=30.0, requests_per_s_peak=60.0),
        question(requests_per_s_mean=30.0, requests_per_s_peak=60.0, week=office_hours(), cold_start_s=900.0),
        question(
            kind=BATCH, requests_per_s_mean=3.0, requests_per_s_peak=6.0, deadline_s=4e4, cold_start_s=600.0, slo=Slo()
        ),
    ]
)


def sold(price: float, term: str, accelerators: int, licence_usd: float) -> Catalog:
    licence = Licence(name="support", usd_per_accelerator_year=licence_usd, source="sample")
    return catalog(offers=(offer("big", price, accelerators, term=term),), licences=(licence,) if licence_usd else ())


@SETTINGS
@given(workloads, prices, terms, st.sampled_from([1, 2, 8]), licences)
def test_the_search_and_its_finalists_charge_the_same_hour(
    workload: Workload, price: float, term: str, accelerators: int, licence_usd: float
) -> None:
    known = sold(price, term, accelerators, licence_usd)
    s = search(Question(workload, known)).ranked[0]
    carrying = np.array([[float(s.replicas - s.spare_replicas)]])
    load = np.array([[s.utilisation_fraction * s.paid_fraction]])
    searched, *_ = best_offers(Question(workload, known), [s.lane], carrying, load)
    assert s.usd_per_hour == pytest.approx(float(searched[0, 0]), rel=1e-9)
    assert s.licence_usd_per_hour == pytest.approx(sum(p.usd_per_hour for p in s.parts if p.name == "licences"))
    assert float(resized_usd_per_hour(workload, s, s.replicas, 1.0)) == pytest.approx(s.usd_per_hour)
    assert s.usd_per_hour_paid(s.paid_fraction) == pytest.approx(s.usd_per_hour)
    if workload.week and term != "reserved_1y":
        assert paid_fraction(workload, s, workload.cold_start_s) == s.paid_fraction
    again = repriced(Question(workload, known), s, s.offer)
    assert again.usd_per_hour == pytest.approx(s.usd_per_hour)


@SETTINGS
@given(prices, st.sampled_from([1, 2, 8]), licences, st.integers(1, 40))
def test_mixes_estimates_and_parts_charge_the_same_instances(
    price: float, accelerators: int, licence_usd: float, instances: int
) -> None:
    known = sold(price, "on_demand", accelerators, licence_usd)
    o, licence = known.offers[0], licence_usd / 8760
    s = search(Question(question(), known)).ranked[0]
    expected = instances * (price + accelerators * licence)
    assert float(offer_usd_per_hour(o, float(instances), licence)) == pytest.approx(expected)
    for option in mix._machines(known, 0, s.lane, (0,), [o]):
        assert option.usd_per_hour == pytest.approx(float(offer_usd_per_hour(o, option.instances, licence)))
    pool = Pool(replicas=instances * accelerators)
    assert usd_per_hour((pool,), o) == pytest.approx(float(offer_usd_per_hour(o, instances)))
    assert float(hour_usd(price, instances, 0.5, 0.25)) == pytest.approx(price * instances / 8)


@SETTINGS
@given(prices, st.integers(1, 30))
def test_what_if_and_rank_uncertainty_pay_for_the_same_whole_instances(price: float, more: int) -> None:
    asked = question(requests_per_s_mean=60.0, requests_per_s_peak=120.0)
    s = search(Question(asked, sold(price, "on_demand", 8, 0.0))).ranked[0]
    s = replace(s, replicas=more, spare_replicas=0)
    grown = np.array([1.5])
    one = np.ones(1)
    what_if = standing_at(asked, Scale(), [s], grown, one, one).usd_per_hour[0]
    replicas = math.ceil(more * 1.5 - 1e-9)
    assert what_if == pytest.approx(float(resized_usd_per_hour(asked, s, replicas, 1.5)))
    busy = replace(s, capacity_requests_per_s=asked.requests_per_s_peak)  # no room: a slower chip needs more replicas
    spread = Spread(throughput_fraction=CERTAIN, latency_fraction=CERTAIN, price_fraction=(1.0, 1.0))
    slower = figures_at(asked, Scale(), busy, 1 / grown, one, spread, np.zeros(1))
    assert float(slower.usd_per_hour[0]) == pytest.approx(what_if)


def held_offer(**changes: object) -> Offer:
    running = (Part(name="electricity", usd_per_hour=0.5, group="running"),)
    return offer("big", 3.0, 8, acquisition="own", term="purchase", held_instances=2, held_parts=running, **changes)


def test_instances_that_are_there_already_pay_their_running_cost_only() -> None:
    o = held_offer()
    assert [float(offer_usd_per_hour(o, float(n))) for n in (1, 2, 5)] == [0.5, 1.0, 2 * 0.5 + 3 * 3.0]


def test_where_none_can_be_bought_more_than_are_there_are_infinitely_dear() -> None:
    o = replace(held_offer(), term=OWNED, usd_per_hour=0.5, held_parts=())
    assert [float(offer_usd_per_hour(o, np.array(float(n)))) for n in (2, 3)] == [1.0, math.inf]


# --- latency over its limit -------------------------------------------------------------------------------------


class Seen:
    """One simulated machine with equal latencies."""

    rejected_requests = 0

    def __init__(self, s: Scored, ttft_s: float, tpot_s: float, e2e_s: float) -> None:
        self.ttft_s, self.tpot_s, self.e2e_s = (np.full(4, v) for v in (ttft_s, tpot_s, e2e_s))


limits = st.none() | st.floats(1e-3, 10.0)
latencies = st.floats(1e-4, 30.0)
FOUND = search(Question(question(slo=Slo(ttft_p95_s=5.0)), catalog())).ranked[0]


@SETTINGS
@given(limits, limits, limits, latencies, latencies, latencies)
def test_estimates_simulations_and_mixes_are_as_far_over_their_limits(
    ttft_limit: float | None, tpot_limit: float | None, e2e_limit: float | None, ttft: float, tpot: float, e2e: float
) -> None:
    asked = question(slo=Slo(ttft_p95_s=ttft_limit, tpot_p95_s=tpot_limit, e2e_p95_s=e2e_limit))
    ratios = [
        value / limit
        for value, limit in ((ttft, ttft_limit), (tpot, tpot_limit), (e2e, e2e_limit))
        if limit is not None
    ]
    expected = max(ratios, default=0.0)
    assert float(latency_excess(asked, ttft, tpot, e2e)) == pytest.approx(expected)
    assert latency_excess(asked, np.full(3, ttft), np.full(3, tpot), np.full(3, e2e)) == pytest.approx([expected] * 3)
    seen = replace(FOUND.verified, ttft_p95_s=ttft, tpot_p95_s=tpot, e2e_p95_s=e2e, late_fraction=0.0, of_trace=None)
    assert excess(asked, seen) == pytest.approx(expected)
    assert mix._excess(asked, [Seen(FOUND, ttft, tpot, e2e)], [1.0]) == pytest.approx(expected)


def test_without_a_simulated_end_to_end_time_a_long_answer_at_a_slow_pace_counts() -> None:
    asked = question(slo=Slo(e2e_p95_s=10.0))
    assert float(latency_excess(asked, 1.0, 0.02)) == pytest.approx((1.0 + 499 * 0.02) / 10.0)
    assert float(latency_excess(asked, 1.0, math.inf)) == math.inf
    assert PART_REQUESTS > 0 and colocation.latency_excess is latency_excess
