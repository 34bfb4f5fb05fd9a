"""Two pools simulated together: each request passes a prefill queue, a transfer and a decode seat, counted by hand."""

import numpy as np
import pytest

from advisor.engine.scheduler import PoolLanes, Simulation, simulate_pools
from advisor.engine.step.step_time import Client, StepTimes
from tests.engine.serving_cases import fixed, lane

STEP_S, TOKEN_S = 0.01, 1e-5
PROMPT, OUTPUT = 100, 11


def served(
    times: StepTimes | None = None,
    *,
    users: int = 1,
    rounds: int = 1,
    first: PoolLanes | None = None,
    later: PoolLanes | None = None,
    transfer_s_per_token: float = 0.0,
    client: Client | None = None,
    requests: int = 200,
) -> Simulation:
    return simulate_pools(
        times if times is not None else lane(),
        first or PoolLanes(index=0, workers=1),
        later or PoolLanes(index=0, workers=1),
        client or Client(kind="burst", requests_per_user=rounds),
        fixed(PROMPT),
        fixed(OUTPUT),
        transfer_s_per_token=transfer_s_per_token,
        concurrency=users,
        requests=requests,
    )


def test_a_request_alone_takes_its_prompt_step_its_transfer_and_its_decode_steps() -> None:
    run = served(lane(request_s=0.5), transfer_s_per_token=1e-3)
    assert run.ttft_s == pytest.approx([0.5 + STEP_S + PROMPT * TOKEN_S + PROMPT * 1e-3])
    assert run.tpot_s == pytest.approx([STEP_S + TOKEN_S])
    assert run.e2e_s == pytest.approx(run.ttft_s + (OUTPUT - 1) * run.tpot_s)


def test_prompts_that_wait_together_share_a_step_up_to_its_budget() -> None:
    """The first prompt starts alone; the other three wait for it and then share one step, or have one each."""
    alone_s, three_s = STEP_S + PROMPT * TOKEN_S, STEP_S + 3 * PROMPT * TOKEN_S
    together = served(users=4, first=PoolLanes(index=0, workers=1, step_tokens=3 * PROMPT))
    assert together.ttft_s.max() == pytest.approx(alone_s + three_s, abs=STEP_S + 4 * TOKEN_S)
    apart = served(users=4, first=PoolLanes(index=0, workers=1, step_tokens=PROMPT))
    assert apart.ttft_s.max() == pytest.approx(4 * alone_s, abs=STEP_S + 4 * TOKEN_S)


def test_a_prompt_above_the_budget_is_chunked_unless_prompts_are_whole() -> None:
    chunked = served(first=PoolLanes(index=0, workers=1, step_tokens=40))
    whole = served(first=PoolLanes(index=0, workers=1, step_tokens=40, whole_prompts=True))
    assert chunked.ttft_s == pytest.approx([3 * STEP_S + PROMPT * TOKEN_S])
    assert whole.ttft_s == pytest.approx([STEP_S + PROMPT * TOKEN_S])


@pytest.mark.parametrize(("users", "seats"), [(2, 1), (6, 2), (12, 8)])
def test_users_without_a_seat_wait_for_one(users: int, seats: int) -> None:
    """In turn, so that the mean wait is that of the users above the seats, in seats, times the time of an answer."""
    run = served(users=users, rounds=40, later=PoolLanes(index=0, workers=1, seats=seats))
    answer_s = (OUTPUT - 1) * run.mean("tpot_s")
    assert run.mean("ttft_s") == pytest.approx((users - seats) / seats * answer_s, rel=0.25)


def test_more_seats_workers_or_ranks_never_lengthen_the_wait_for_one() -> None:
    waits = [
        served(users=16, rounds=5, later=PoolLanes(index=0, **size)).mean("ttft_s")
        for size in ({"workers": 1, "seats": 2}, {"workers": 1, "seats": 4}, {"workers": 2, "seats": 4},
                     {"workers": 2, "ranks": 2, "seats": 4})
    ]  # fmt: skip
    assert waits == sorted(waits, reverse=True)


def test_ranks_share_a_worker_and_step_with_the_fullest() -> None:
    split = served(users=8, rounds=20, later=PoolLanes(index=0, workers=1, ranks=8))
    assert split.percentile("tpot_s", 50) == pytest.approx(STEP_S + TOKEN_S)
    one = served(users=8, rounds=20, later=PoolLanes(index=0, workers=1))
    assert one.percentile("tpot_s", 95) == pytest.approx(STEP_S + 8 * TOKEN_S, rel=1e-3)


@pytest.mark.parametrize("users", [1, 5, 40])
@pytest.mark.parametrize("workers", [(1, 1), (1, 3), (2, 1)])
def test_requests_in_flight_are_their_rate_times_their_time(users: int, workers: tuple[int, int]) -> None:
    first, later = (PoolLanes(index=0, workers=n, seats=8) for n in workers)
    run = served(users=users, first=first, later=later, client=Client(kind="steady"), requests=2000)
    assert run.requests_per_s * run.mean("e2e_s") == pytest.approx(users, rel=0.1)


def test_a_slow_prefill_pool_bounds_the_rate_and_bursts_of_arrivals_lengthen_its_tail() -> None:
    prompts_per_s = 1 / (STEP_S + PROMPT * TOKEN_S)
    first = PoolLanes(index=0, workers=1, step_tokens=PROMPT)
    busy = served(users=50, first=first, client=Client(kind="steady"), requests=2000)
    assert busy.requests_per_s == pytest.approx(prompts_per_s, rel=0.02)
    even, bursty = (
        served(first=first, client=Client(kind="poisson", rate_per_s=prompts_per_s / 2, arrival_cv=cv), requests=5000)
        for cv in (1.0, 3.0)
    )
    assert even.requests_per_s == pytest.approx(prompts_per_s / 2, rel=0.1)
    assert bursty.percentile("ttft_s", 95) > 1.5 * even.percentile("ttft_s", 95)


def test_requests_that_the_decode_pool_cannot_hold_count_as_not_served() -> None:
    run = served(lane(kv_capacity_tokens=float(PROMPT)), users=3)
    assert run.rejected_requests == 3 and np.isinf(run.ttft_s).all() and np.isinf(run.tpot_s).all()


def test_times_that_are_not_finite_are_refused() -> None:
    with pytest.raises(ValueError, match="negative or not finite"):
        served(lane(host_s=float("nan")))
