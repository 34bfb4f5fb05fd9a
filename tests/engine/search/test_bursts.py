"""Bursty arrivals: what each lane gets of them, what the closed forms know of them, and seats that hold for them."""

import math
from dataclasses import replace

import numpy as np
import pytest

from advisor.engine.scheduler import verify
from advisor.engine.scheduler.closed_form import capacity_requests_per_s, open_loop
from advisor.engine.scheduler.simulation import gaps
from advisor.engine.search import Question
from advisor.engine.search.run import SearchResult, search
from advisor.engine.search.table import demand_of, evaluate
from advisor.engine.step.step_time import Demand, Scheduler
from advisor.engine.terms import Slo, Users
from tests.engine.catalog_sample import catalog, question
from tests.engine.scheduler.test_serving import lanes

CVS = (1.0, 2.0, 3.0)


def asked(cv: float, **changes: object) -> SearchResult:
    return search(Question(question(arrival_cv=cv, **changes), catalog()))


@pytest.fixture(scope="module")
def answers() -> dict[float, SearchResult]:
    return {cv: asked(cv, requests_per_s_peak=12.0) for cv in CVS}


@pytest.mark.parametrize("cv", [0.0, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("ways", [1, 4])
def test_a_lane_gets_gaps_as_variable_as_the_engine_says(cv: float, ways: int):
    """Each request goes to one of the lanes at random."""
    rng = np.random.default_rng(3)
    at = np.cumsum(gaps(cv, 400_000, rng))
    mine = np.diff(at[rng.integers(0, ways, len(at)) == 0])
    found = mine.var() / mine.mean() ** 2
    assert found == pytest.approx(question(arrival_cv=cv).arrival_cv2(1 / ways), rel=0.05, abs=0.01)


def test_users_who_wait_are_never_bursty():
    users = Users(active_requests=50, think_s=5)
    assert question(arrival_cv=3.0, users=users).arrival_cv2() == 1.0


@pytest.mark.parametrize("crowds", [False, True])
@pytest.mark.parametrize("policy", ["chunked", "prefill_first", "mixed"])
def test_burstier_arrivals_never_look_faster(policy: str, crowds: bool):
    times, scheduler = lanes(), Scheduler(policy=policy)
    demand = Demand(input_tokens=1000.0, output_tokens=300.0, input_cv2=1.0, output_cv2=1.0)
    for load in (0.3, 0.6, 0.9):
        rate = load * capacity_requests_per_s(times, demand, scheduler)
        seen = [
            open_loop(times, rate, replace(demand, arrival_cv2=cv2), scheduler, crowds=crowds) for cv2 in (0.0, 1.0, 9.0)
        ]
        for calm, bursty in zip(seen, seen[1:], strict=False):
            assert np.all(bursty.ttft_p95_estimate_s >= calm.ttft_p95_estimate_s * (1 - 1e-9))
            assert np.all(bursty.tpot_p95_estimate_s >= calm.tpot_p95_estimate_s * (1 - 1e-9))


@pytest.mark.parametrize("cv", CVS)
def test_the_recommended_seats_hold_what_the_answer_promises(answers: dict[float, SearchResult], cv: float):
    """The very deployment, with as many batch slots as its start command says, under the stated arrivals."""
    answer = answers[cv]
    workload = question(arrival_cv=cv, requests_per_s_peak=12.0)
    assert answer.ranked and answer.built is not None
    for s in answer.ranked:
        seats = replace(s.lane, max_running_requests=s.concurrency // s.lane.choice.lanes)
        rate = workload.requests_per_s_peak / s.carrying_lanes
        seen = verify(workload, answer.built.times, s.row_index, seats, rate, 20_000)
        assert seen.ttft_p95_s <= 1.1 * (workload.slo.ttft_p95_s or math.inf)
        assert seen.tpot_p95_s <= 1.1 * (workload.slo.tpot_p95_s or math.inf)


def test_the_seats_grow_with_the_bursts(answers: dict[float, SearchResult]):
    """A crowd queues for a seat although the accelerator has room: with seats for Poisson, bursts are much worse."""
    workload = question(arrival_cv=3.0, requests_per_s_peak=12.0)
    s = answers[3.0].ranked[0]
    calm = min(answers[1.0].ranked, key=lambda each: each.concurrency)
    assert s.concurrency / s.replicas >= calm.concurrency / calm.replicas
    assert answers[3.0].built is not None
    few = replace(s.lane, max_running_requests=max(int(s.verified.running_requests_mean), 1))
    rate = workload.requests_per_s_peak / s.carrying_lanes
    queued = verify(workload, answers[3.0].built.times, s.row_index, few, rate, 20_000)
    assert queued.ttft_p95_s > 2 * s.verified.ttft_p95_s


def test_bursts_never_need_fewer_machines(answers: dict[float, SearchResult]):
    usd = [min(s.usd_per_hour for s in answers[cv].ranked) for cv in CVS]
    assert usd == sorted(usd)


def test_the_peak_may_use_all_but_the_stated_headroom():
    """Without a stated headroom only the simulation says how full a replica may be."""
    rows = [
        evaluate(Question(question(requests_per_s_peak=200.0, slo=slo), catalog()), answer_lanes())
        for slo in (Slo(), Slo(headroom_fraction=0.4))
    ]
    full, free = (200.0 / (t.replicas * t.capacity_requests_per_s) for t in rows)
    assert full.max() > 0.9
    assert free.max() <= 0.6 + 1e-9


def answer_lanes():
    from advisor.engine.search.candidates import admissible, enumerate_lanes

    asked = Question(question(requests_per_s_peak=200.0, slo=Slo()), catalog())
    return enumerate_lanes(asked, admissible(asked)[1])[0]


def test_requests_at_once_vary_as_the_theory_of_infinite_servers_says():
    """Constant service and long bursts: the variance over the mean is the squared cv; exponential: half way to it."""
    demand = demand_of(question(arrival_cv=3.0))
    constant = replace(demand, output_cv2=0.0)
    assert constant.crowding == pytest.approx(9.0)
    assert replace(constant, arrival_cv2=1.0).crowding == 1.0
    rng = np.random.default_rng(4)
    mean, sigma = 40.0, 0.8
    at = np.cumsum(gaps(3.0, 300_000, rng))
    ends = at + rng.lognormal(math.log(mean) - sigma**2 / 2, sigma, len(at))
    moments = np.arange(1000.0, at[-1] - 1000.0, 7.0)
    busy = np.searchsorted(at, moments) - np.searchsorted(np.sort(ends), moments)
    told = replace(demand, output_cv2=math.expm1(sigma**2)).crowding
    assert busy.var() / busy.mean() == pytest.approx(float(told), rel=0.2)
