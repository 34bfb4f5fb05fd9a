"""Properties of the closed forms that hold on every lane."""

from dataclasses import replace

import numpy as np
import pytest

from advisor.engine.scheduler.closed_form import _fixed_point, burst, capacity_requests_per_s, closed_loop, open_loop
from advisor.engine.step.step_time import POLICIES, Demand, Scheduler, StepTimes
from tests.engine.serving_cases import case, lane

DEMAND = Demand(input_tokens=1000.0, output_tokens=300.0)
USERS = np.array([[1.0, 4.0, 16.0, 64.0, 256.0, 1024.0]])


def lanes(count: int = 40) -> StepTimes:
    """Random lanes without a launch floor: crossing it makes a bigger batch slower, which is true and not monotone."""
    each = [replace(case("chunked", seed).times, eager_floor_s=np.zeros(1)) for seed in range(count)]
    names = [name for name in StepTimes.__slots__ if name != "grid_tokens"]
    columns = {name: np.concatenate([getattr(one, name) for one in each]) for name in names}
    return StepTimes(grid_tokens=each[0].grid_tokens, **columns)


@pytest.mark.parametrize("policy", POLICIES)
def test_more_kv_capacity_never_lowers_throughput(policy: str) -> None:
    times, scheduler = lanes(), Scheduler(policy=policy)
    before = closed_loop(times, USERS, DEMAND, scheduler).output_tokens_per_s
    more = replace(times, kv_capacity_tokens=times.kv_capacity_tokens * 2)
    after = closed_loop(more, USERS, DEMAND, scheduler).output_tokens_per_s
    assert np.all(after >= before * 0.999)


@pytest.mark.parametrize("name", ["linear_s", "decode_s_per_context_token", "prefill_s_per_pair", "serial_s", "host_s"])
@pytest.mark.parametrize("policy", POLICIES)
def test_slower_steps_never_raise_throughput(policy: str, name: str) -> None:
    times, scheduler = replace(lanes(), request_s=np.zeros(40)), Scheduler(policy=policy)
    slower = replace(times, **{name: getattr(times, name) * 1.5})
    before = closed_loop(times, USERS, DEMAND, scheduler).output_tokens_per_s
    assert np.all(closed_loop(slower, USERS, DEMAND, scheduler).output_tokens_per_s <= before * 1.001)


@pytest.mark.parametrize("policy", ["chunked", "prefill_first", "mixed"])
def test_requests_in_flight_are_rate_times_residence(policy: str) -> None:
    answer = closed_loop(lanes(), USERS, DEMAND, Scheduler(policy=policy))
    flying = answer.requests_per_s * (answer.ttft_mean_s + (DEMAND.output_tokens - 1) * answer.tpot_mean_s)
    assert np.abs(flying / USERS - 1).max() < 0.06


@pytest.mark.parametrize("policy", POLICIES)
def test_every_answer_is_a_number(policy: str) -> None:
    scheduler, times = Scheduler(policy=policy), lanes()
    for demand in (
        DEMAND,
        Demand(input_tokens=1.0, output_tokens=1.0),
        Demand(input_tokens=30000.0, output_tokens=2.0, input_cv2=1.0, output_cv2=1.0, cached_fraction=0.9),
        Demand(input_tokens=1e7, output_tokens=10.0),
    ):
        answers = [closed_loop(times, USERS, demand, scheduler), burst(times, USERS, demand, scheduler)]
        answers += [open_loop(times, rate, demand, scheduler) for rate in (1e-6, 1.0, 1e4)]
        for answer in answers:
            for name in type(answer).__slots__:
                assert not np.isnan(getattr(answer, name)).any(), (name, demand)


def test_a_request_that_fits_in_no_cache_is_never_served() -> None:
    demand = Demand(input_tokens=2000.0, output_tokens=100.0)
    answer = closed_loop(lane(kv_capacity_tokens=1600), np.array([4.0]), demand, Scheduler())
    assert answer.output_tokens_per_s[0] == 0
    assert np.isinf(answer.ttft_mean_s[0])


def test_one_user_alone_waits_for_nobody() -> None:
    times = lane(request_s=0.002)
    answer = closed_loop(times, np.array([1.0]), Demand(input_tokens=1000.0, output_tokens=11.0), Scheduler())
    assert answer.ttft_mean_s[0] == pytest.approx(0.002 + 0.01 + 1000 * 1e-5)
    assert answer.tpot_mean_s[0] == pytest.approx(0.01 + 1e-5)


def test_users_beyond_what_runs_at_once_queue_for_their_first_token() -> None:
    scheduler = Scheduler(max_running_requests=8)
    few, many = closed_loop(lane(), np.array([[8.0, 80.0]]), DEMAND, scheduler).ttft_mean_s[0]
    assert many > 5 * few
    assert closed_loop(lane(), np.array([80.0]), DEMAND, scheduler).saturating[0]


def test_kv_capacity_is_named_as_the_limit() -> None:
    small = lane(kv_capacity_tokens=1e4)
    assert closed_loop(small, np.array([64.0]), DEMAND, Scheduler()).kv_limited[0]
    assert not closed_loop(lane(), np.array([64.0]), DEMAND, Scheduler()).kv_limited[0]


def test_cached_prompts_are_cheaper_but_still_attended_to() -> None:
    times = lane(prefill_s_per_pair=1e-7)
    half = replace(DEMAND, cached_fraction=0.5)
    whole, cached = (closed_loop(times, np.array([1.0]), d, Scheduler()).ttft_mean_s[0] for d in (DEMAND, half))
    pairs = 500 * 500 + 500 * 501 / 2
    assert cached == pytest.approx(0.01 + 500 * 1e-5 + pairs * 1e-7)
    assert cached < whole


def test_an_open_loop_near_capacity_says_so() -> None:
    times, scheduler = lane(), Scheduler()
    capacity = capacity_requests_per_s(times, DEMAND, scheduler)
    low, high, over = (open_loop(times, capacity * share, DEMAND, scheduler) for share in (0.5, 0.9, 1.1))
    assert (low.saturating[0], high.saturating[0], over.saturating[0]) == (False, True, True)
    assert low.tpot_mean_s[0] < high.tpot_mean_s[0] < over.tpot_mean_s[0] == np.inf
    assert over.requests_per_s[0] == pytest.approx(capacity[0])


def test_estimates_of_p95_are_above_the_mean() -> None:
    times, scheduler = lanes(), Scheduler()
    answer = open_loop(times, 0.6 * capacity_requests_per_s(times, DEMAND, scheduler), DEMAND, scheduler)
    assert np.all(answer.tpot_p95_estimate_s >= answer.tpot_mean_s)
    assert np.all(answer.ttft_p95_estimate_s >= answer.ttft_mean_s * 0.95)


def test_any_ascending_grid_gives_the_same_answer_as_powers_of_two() -> None:
    times = lanes(5)
    finer = np.unique(np.concatenate([times.grid_tokens, [3.0, 100.0, 3000.0]]))
    linear_s = np.array([np.interp(finer, times.grid_tokens, row) for row in times.linear_s])
    same = replace(times, grid_tokens=finer, linear_s=linear_s)
    one, two = (closed_loop(t, USERS, DEMAND, Scheduler()).ttft_mean_s for t in (times, same))
    np.testing.assert_allclose(one, two, rtol=1e-9)


@pytest.mark.parametrize("rounds", range(1, 8))
def test_a_fixed_point_that_is_reached_stays(rounds: int) -> None:
    """From 0, a constant function is there after one round; more rounds must not leave it for an end of the bracket."""
    zero, ten = np.zeros(1), np.full(1, 10.0)
    assert _fixed_point(lambda x: np.full_like(x, 2.0), zero, ten, rounds) == pytest.approx(2.0)
