"""Users who think after each answer: one request of each in flight, and Poisson arrivals if there are many."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.engine.scheduler.closed_form import open_loop
from advisor.engine.scheduler.percentiles import verify, whole_users
from advisor.engine.scheduler.simulation import Simulation, simulate
from advisor.engine.search.table import others_fraction
from advisor.engine.step.step_time import POISSON, POLICIES, STATIC, USERS, Client, Demand, Scheduler
from advisor.engine.terms.workloads.demand import Users
from advisor.engine.terms.workloads.workload import Lengths
from tests.engine.catalog_sample import chip, question
from tests.engine.catalog_sample import lane as lane_of
from tests.engine.serving_cases import fixed, lane

TIMES = lane(decode_s_per_context_token=3e-8, prefill_s_per_pair=1e-9, request_s=0.002)


def of_users(users: int, think_s: float, requests: int = 1000, **scheduler: object) -> Simulation:
    client = Client(kind=USERS, users=users, think_s=think_s)
    lengths = Lengths(mean_tokens=600, p95_tokens=1500), Lengths(mean_tokens=80, p95_tokens=200)
    return simulate(TIMES, 0, Scheduler(**scheduler), client, *lengths, requests=requests)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("think_s", [0.001, 1.0, 60.0])
def test_one_user_never_waits_for_an_earlier_request(policy: str, think_s: float) -> None:
    alone = simulate(TIMES, 0, Scheduler(policy=policy), Client(kind=STATIC), fixed(700), fixed(50))
    client = Client(kind=USERS, users=1, think_s=think_s)
    run = simulate(TIMES, 0, Scheduler(policy=policy), client, fixed(700), fixed(50), requests=200)
    assert run.ttft_s == pytest.approx(np.full(200, alone.ttft_s[0]), rel=1e-6)
    assert run.e2e_s == pytest.approx(np.full(200, alone.e2e_s[0]), rel=1e-6)
    assert run.percentile("ttft_s", 95) == pytest.approx(alone.ttft_s[0], rel=1e-6)


@settings(max_examples=25, deadline=None)
@given(users=st.integers(1, 40), think_s=st.floats(0.01, 20.0), policy=st.sampled_from(POLICIES))
def test_no_more_requests_are_in_flight_than_users(users: int, think_s: float, policy: str) -> None:
    client = Client(kind=USERS, users=users, think_s=think_s)
    run = simulate(TIMES, 0, Scheduler(policy=policy), client, fixed(100), fixed(20), requests=300)
    assert run.kv_used_max_tokens <= users * math.ceil(120 / 16) * 16
    assert run.running_requests_mean <= users


@pytest.mark.parametrize(("users", "think_s"), [(1, 2.0), (5, 5.0), (40, 1.0), (400, 20.0)])
def test_users_send_what_their_number_and_the_latency_allow(users: int, think_s: float) -> None:
    """The interactive response-time law: N / (Z + R)."""
    run = of_users(users, think_s, 3000)
    assert run.requests_per_s == pytest.approx(users / (think_s + run.mean("e2e_s")), rel=0.06)


@pytest.mark.parametrize("utilization", [0.3, 0.7])
def test_many_users_are_like_poisson_arrivals(utilization: float) -> None:
    demand = Demand(input_tokens=600.0, output_tokens=80.0)
    rate = utilization * float(open_loop(TIMES, np.array([1e-9]), demand, Scheduler()).capacity_requests_per_s[0])
    lengths = Lengths(mean_tokens=600, p95_tokens=1500), Lengths(mean_tokens=80, p95_tokens=200)
    poisson = simulate(TIMES, 0, Scheduler(), Client(kind=POISSON, rate_per_s=rate), *lengths, requests=4000)
    think_s = 100_000 / rate - poisson.mean("e2e_s")
    client = Client(kind=USERS, users=100_000, think_s=think_s)
    crowd = simulate(TIMES, 0, Scheduler(), client, *lengths, requests=4000)
    for metric in ("ttft_s", "tpot_s", "e2e_s"):
        for q in (50, 95):
            assert crowd.percentile(metric, q) == pytest.approx(poisson.percentile(metric, q), rel=0.1), (metric, q)


def test_fewer_users_at_the_same_rate_wait_less() -> None:
    """The p95 rises towards that of Poisson arrivals."""
    lengths = fixed(2000), fixed(20)
    tails = []
    for users in (1, 2, 4, 16, 1000):
        think_s = users / 6.0 - 0.3
        client = Client(kind=USERS, users=users, think_s=max(think_s, 0.01))
        tails.append(simulate(TIMES, 0, Scheduler(), client, *lengths, requests=3000).percentile("ttft_s", 95))
    assert tails == sorted(tails) and tails[-1] > 1.2 * tails[0]


def test_the_closed_form_of_one_user_is_a_prompt_alone_and_of_many_the_open_loop() -> None:
    """Each user finds the requests of the others."""
    assert others_fraction(None, np.array([3.0])) == 1.0
    shares = others_fraction(Users(active_requests=1.0, think_s=1.0), np.array([1.0, 2.0]))
    assert shares.tolist() == [0.0, 0.0]
    many = [float(others_fraction(Users(active_requests=n, think_s=1.0), np.array([2.0]))[0]) for n in (3, 8, 1e6)]
    assert many == [0.5, 0.75, pytest.approx(1.0, abs=1e-5)]
    demand = Demand(input_tokens=700.0, output_tokens=50.0)
    for policy in POLICIES[:3]:
        alone = simulate(TIMES, 0, Scheduler(policy=policy), Client(kind=STATIC), fixed(700), fixed(50))
        found = open_loop(TIMES, np.array([0.0]), demand, Scheduler(policy=policy))
        assert found.ttft_p95_estimate_s[0] == pytest.approx(alone.ttft_s[0], rel=0.05)
        assert found.tpot_p95_estimate_s[0] == pytest.approx(alone.tpot_s[0], rel=0.05)


def test_a_lane_has_its_share_of_the_users_rounded_up() -> None:
    assert [whole_users(x) for x in (0.2, 1.0, 1.0 + 1e-12, 1.1, 7.0)] == [1, 1, 1, 2, 7]
    asked = question(users=Users(active_requests=3.0, think_s=30.0), requests_per_s_peak=0.1)
    found = verify(asked, TIMES, 0, lane_of(chip("any")), 0.1 / 2, 500)
    assert found.offered_requests_per_s == pytest.approx(1.5 / (30.0 + found.e2e_mean_s))
