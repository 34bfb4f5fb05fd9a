"""Demand over time: a week's hours, users who think, a recorded trace, as many replicas again; worked by hand."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from advisor.engine.search import Question
from advisor.engine.search.candidates import enumerate_lanes
from advisor.engine.search.run import search
from advisor.engine.search.simulated import Design, Simulations
from advisor.engine.search.table import evaluate, week_share
from advisor.engine.terms.machines.redundancy import Packing
from advisor.engine.terms.workloads.demand import Trace, Users, mean_fraction, needed_by_hour, office_hours, week_of
from advisor.engine.terms.workloads.kinds import BATCH
from advisor.engine.terms.workloads.workload import Constraints, Slo
from tests.engine.catalog_sample import catalog, offer, question

HALF_DAYS = tuple([1.0] * 12 + [0.5] * 12) * 7
LIMITS = Slo(ttft_p95_s=1.0, tpot_p95_s=0.04)


def test_office_hours_are_a_working_week() -> None:
    week = office_hours()
    assert len(week) == 168 and max(week) == 1.0
    assert week[9] == week[4 * 24 + 16] == 1.0 and week[8] == week[17] == 0.5 and week[5 * 24 + 12] == 0.1
    assert mean_fraction(week) == pytest.approx((40 + 10 * 0.5 + 118 * 0.1) / 168)


def test_a_curve_is_a_share_of_its_busiest_hour() -> None:
    assert week_of([2.0] * 167 + [4.0])[0] == 0.5
    assert week_of("flat") == week_of([3.0] * 168) == ()


def test_an_hour_holds_what_its_load_needs() -> None:
    assert needed_by_hour((1.0, 0.5, 0.34, 0.01, 0.0), 3) == [3, 2, 2, 1, 0]


def test_paid_hours_by_hand_with_cold_starts() -> None:
    """Twelve hours of 4 and twelve of 2 each day: 3 of 4, and two starts of half an hour a day."""
    asked = question(week=HALF_DAYS, cold_start_s=1800.0)
    share = week_share(asked, np.array([[4.0, 1.0]]), lambda n: n)
    assert share[0, 0] == pytest.approx((12 * 4 + 12 * 2 + 2 * 0.5) / (24 * 4))
    assert share[0, 1] == 1.0


def test_a_spare_stays_in_quiet_hours_and_2n_halves_with_them() -> None:
    spare = question(week=HALF_DAYS, slo=Slo(spare_hosts=1))
    twice = question(week=HALF_DAYS, slo=Slo(doubled=True))
    one_each = Packing(1, 1)
    for asked, share in ((spare, (12 * 5 + 12 * 3) / (24 * 5)), (twice, 0.75)):
        held = partial(asked.slo.redundancy.instances, p=one_each)
        assert week_share(asked, np.array([4.0]), held)[0] == pytest.approx(share)


def test_rent_by_the_hour_is_given_back_and_a_term_is_not() -> None:
    big = question(requests_per_s_mean=30.0, requests_per_s_peak=60.0)
    for term, paid in (("on_demand", True), ("reserved_1y", False)):
        sold = catalog(offers=(offer("big", 4.0, term=term),))
        flat, week = (
            search(Question(big, sold)).ranked[0],
            search(Question(replace(big, week=HALF_DAYS), sold)).ranked[0],
        )
        assert (week.paid_fraction < 1) is paid and week.replicas == flat.replicas
        assert week.usd_per_hour == pytest.approx(flat.usd_per_hour * week.paid_fraction)
        assert week.utilisation_fraction * week.paid_fraction == pytest.approx(flat.utilisation_fraction)
        assert week.around_the_clock_usd_per_hour == pytest.approx(flat.usd_per_hour)


def test_2n_is_as_many_again() -> None:
    load = question(requests_per_s_mean=30.0, requests_per_s_peak=60.0, slo=LIMITS)
    plain = search(Question(load, catalog())).ranked[0]
    twice = search(Question(replace(load, slo=replace(LIMITS, doubled=True)), catalog())).ranked[0]
    assert twice.replicas == 2 * twice.spare_replicas and twice.spare_replicas >= 1
    assert twice.usd_per_hour > 1.5 * plain.usd_per_hour


def test_users_ask_as_often_as_they_think_and_wait() -> None:
    users = Users(active_requests=300.0, think_s=10.0)
    found = search(Question(question(users=users, requests_per_s_mean=30.0, requests_per_s_peak=30.0), catalog()))
    for s in found.ranked:
        assert s.requests_per_s_peak == pytest.approx(users.requests_per_s(s.verified.e2e_mean_s), rel=0.035)
        assert s.requests_per_s_peak < 30.0
    slow, fast = (max(found.ranked, key=lambda s, k=k: k * s.verified.e2e_mean_s) for k in (1, -1))
    assert slow is fast or slow.requests_per_s_peak < fast.requests_per_s_peak


def test_a_trace_is_simulated_at_its_own_times() -> None:
    """Twenty requests at once every minute are a mild mean rate; the trace shows what the burst does to TTFT."""
    arrivals = tuple(60.0 * k + 0.001 * n for k in range(30) for n in range(20))
    trace = Trace(arrival_s=arrivals, input_tokens=(1000,) * 600, output_tokens=(100,) * 600)
    asked = question(requests_per_s_mean=0.34, requests_per_s_peak=0.34, slo=Slo(ttft_p95_s=0.5))
    poisson, burst = (
        search(Question(asked, catalog())).ranked[0],
        search(Question(replace(asked, trace=trace), catalog())).ranked[0],
    )
    assert poisson.verified.of_trace is None and burst.verified.of_trace is not None
    assert burst.verified.of_trace.ttft_p95_s <= 0.5
    assert (burst.chips, burst.lane) != (poisson.chips, poisson.lane) or (
        burst.verified.of_trace.ttft_p95_s > poisson.verified.ttft_p95_s
    )


def test_what_misses_under_the_trace_alone_is_told() -> None:
    arrivals = tuple(60.0 * k + 0.001 * n for k in range(30) for n in range(40))
    trace = Trace(arrival_s=arrivals, input_tokens=(1000,) * 1200, output_tokens=(100,) * 1200)
    asked = question(
        requests_per_s_mean=0.7, requests_per_s_peak=0.7, trace=trace, slo=Slo(ttft_p95_s=0.25),
        constraints=Constraints(accelerators_allow=("small",), max_accelerators=2),
    )  # fmt: skip
    found = search(Question(asked, catalog()))
    (why,) = [r for r in found.rejections if r.accelerator == "small"]
    assert not found.ranked and why.reason == "misses_slo" and why.reached > why.limit


def test_the_start_and_the_last_answers_of_a_batch_count() -> None:
    """The same lane with the same seats taken: what is added to the share of the deadline is known."""
    warm = question(kind=BATCH, slo=Slo(), requests_per_s_mean=1.0, requests_per_s_peak=2.0, deadline_s=7200.0)
    cold = replace(warm, cold_start_s=720.0)
    lanes, _ = enumerate_lanes(Question(warm, catalog()), catalog().accelerators[:1])
    design = Design(row=0, column=5, replicas=1)
    first, second = (
        Simulations(Question(w, catalog()), evaluate(Question(w, catalog()), lanes[:1])).run(design, 500)
        for w in (warm, cold)
    )
    assert first.late_fraction == pytest.approx(2.0 / first.requests_per_s + first.e2e_p95_s / 7200.0)
    assert second.late_fraction - first.late_fraction == pytest.approx(0.1)


def test_a_start_is_paid_once_a_run() -> None:
    """Every four hours a run; its start of 720 s is a twentieth of them."""
    warm = question(kind=BATCH, slo=Slo(), requests_per_s_mean=1.0, requests_per_s_peak=2.0, deadline_s=7200.0)
    found = search(Question(replace(warm, cold_start_s=720.0), catalog())).ranked[0]
    hourly = found.offer.usd_per_hour * found.instances
    assert found.usd_per_hour == pytest.approx(hourly * (found.utilisation_fraction + 0.05))


@pytest.mark.parametrize(
    ("slo", "figure"),
    [
        (Slo(e2e_p95_s=6.0), lambda v: v.e2e_p95_s / 6.0),
        (Slo(tokens_per_s_per_user=50.0), lambda v: v.tpot_p95_s * 50.0),
    ],
)
def test_whole_answers_and_user_speed_are_held_at_the_95th_percentile(slo: Slo, figure: Any) -> None:
    found = search(Question(question(slo=slo), catalog()))
    assert found.ranked
    for s in found.ranked:
        assert figure(s.verified) <= 1
        assert s.verified.requests >= 500 and s.verified.e2e_mean_s < s.verified.e2e_p95_s
    for s in found.near_misses:
        assert figure(s.verified) > 1


def test_dealing_gives_each_lane_its_turn() -> None:
    trace = Trace(arrival_s=(0.0, 1.0, 2.0, 3.0, 4.0), input_tokens=(1, 2, 3, 4, 5), output_tokens=(1,) * 5)
    assert trace.for_replica(2).input_tokens == (1, 3, 5)
