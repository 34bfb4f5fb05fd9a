"""Stratified requests are those of the process: each as likely as without, more evenly spread in one sample."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.engine.scheduler import percentiles
from advisor.engine.scheduler.closed_form import capacity_requests_per_s
from advisor.engine.scheduler.percentiles import REQUESTS, Verified, verify
from advisor.engine.scheduler.sampling import SEGMENTS, arriving, drawing, stratified
from advisor.engine.scheduler.simulation import simulate
from advisor.engine.step.step_time import POISSON, TRACE, USERS, Client, Demand, Scheduler
from advisor.engine.terms import Lengths, log_normal_sigma
from tests.engine.catalog_sample import chip, question
from tests.engine.catalog_sample import lane as lane_of
from tests.engine.serving_cases import GRID_TOKENS, lane

IN, OUT = Lengths(mean_tokens=1000, p95_tokens=3000), Lengths(mean_tokens=250, p95_tokens=700)
# of the size of an 8B model on one large GPU
TIMES = lane(
    linear_s=np.maximum(4.4e-3, 2.3e-5 * GRID_TOKENS), decode_s_per_context_token=3.2e-8, prefill_s_per_pair=4e-10,
    serial_s=3e-4, kv_capacity_tokens=9e5,
)  # fmt: skip
CAPACITY = float(
    capacity_requests_per_s(TIMES, Demand(input_tokens=1000.0, output_tokens=250.0, output_cv2=1.2), Scheduler())[0]
)
SEEDS = 400


def gaps(cv: float, count: int, seed: int) -> np.ndarray:
    sampled = drawing(Client(kind=POISSON, arrival_cv=cv), IN, OUT, math.inf)
    return arriving(sampled, (count,), seed)[1]


@pytest.mark.parametrize("cv", [0.5, 1.0, 3.0])
def test_gaps_and_the_durations_of_segments_have_the_law_of_the_process(cv: float) -> None:
    drawn = np.array([gaps(cv, 500, seed) for seed in range(SEEDS)])
    assert drawn.mean() == pytest.approx(1.0, rel=0.02)
    assert drawn.std() == pytest.approx(cv, rel=0.05)
    lasting = drawn.reshape(SEEDS, SEGMENTS, -1).sum(axis=2)
    for k in range(SEGMENTS):  # each alone as long as without the others
        assert lasting[:, k].mean() == pytest.approx(50, rel=0.15 * cv + 0.02)
        assert lasting[:, k].std() == pytest.approx(cv * math.sqrt(50), rel=0.2)
    assert drawn.sum(axis=1).std() < 0.4 * cv * math.sqrt(500)


def test_steady_arrivals_are_even() -> None:
    assert set(gaps(0.0, 30, 1)) == {1.0}


@settings(max_examples=30, deadline=None)
@given(count=st.integers(0, 500), seed=st.integers(0, 99))
def test_one_draw_is_in_each_part(count: int, seed: int) -> None:
    drawn = stratified(count, np.random.default_rng(seed))
    assert sorted((drawn * count).astype(int)) == list(range(count))


def test_the_lengths_of_every_sample_have_the_percentiles_asked_for() -> None:
    sampled = drawing(Client(kind=POISSON), IN, OUT, math.inf)
    for seed in range(5):
        requests, _ = arriving(sampled, (100, 2000, 300), seed)
        prompt, output = requests.prompt[100:2100], requests.output[100:2100]
        assert np.percentile(prompt, 95) == pytest.approx(3000, rel=0.01)
        assert prompt.mean() == pytest.approx(1000, rel=0.01)
        assert output.mean() == pytest.approx(250, rel=0.01)
        assert abs(np.corrcoef(prompt, output)[0, 1]) < 0.1


def test_recorded_requests_are_drawn_in_pairs_and_about_equally_often() -> None:
    recorded = Client(kind=POISSON, input_tokens=tuple(range(1, 101)), output_tokens=tuple(range(201, 301)))
    requests, _ = arriving(drawing(recorded, IN, OUT, math.inf), (1000,), 4)
    assert np.all(requests.output == requests.prompt + 200)
    assert np.all(np.bincount(requests.prompt, minlength=101)[1:] == 10)


def test_bursts_make_no_sense_for_users_who_think() -> None:
    def seen(cv: float) -> np.ndarray:
        client = Client(kind=USERS, users=20, think_s=2.0, arrival_cv=cv)
        return simulate(TIMES, 0, Scheduler(), client, IN, OUT, requests=300).e2e_s

    assert np.array_equal(seen(1.0), seen(3.0))


def at(load: float, cv: float, requests: int | None = None) -> Verified:
    asked = question(input_tokens=IN, output_tokens=OUT, arrival_cv=cv)
    server = replace(lane_of(chip("any")), max_running_requests=1024)
    return verify(asked, TIMES, 0, server, load * CAPACITY, requests)


def test_a_reported_percentile_comes_from_as_many_requests_as_it_needs() -> None:
    calm, busy = at(0.3, 1.0), at(0.6, 3.0)
    assert calm.is_precise and REQUESTS < calm.requests <= busy.requests
    assert not at(0.6, 3.0, REQUESTS).is_precise
    low_s, high_s = calm.ttft_p99_bounds_s
    assert low_s < calm.ttft_p99_s < high_s < math.inf


def without_strata(load: float, cv: float, seed: int, count: int = 100_000, warm_up: int = 5_000) -> list[float]:
    """(p95 of TTFT and TPOT, p99 of both) of requests that are all drawn independently."""
    rng, total = np.random.default_rng(seed), count + warm_up + 2_000
    arrival_s = np.cumsum(rng.gamma(cv**-2, cv**2, total)) / (load * CAPACITY)
    prompt, output = (
        np.maximum(np.rint(rng.lognormal(math.log(x.mean_tokens) - sigma**2 / 2, sigma, total)), 1).astype(int)
        for x, sigma in ((IN, log_normal_sigma(IN)), (OUT, log_normal_sigma(OUT)))
    )
    client = Client(kind=TRACE, arrival_s=arrival_s, input_tokens=prompt, output_tokens=output)
    run = simulate(TIMES, 0, Scheduler(), client, IN, OUT)
    measured = slice(warm_up, warm_up + count)
    tpot_s = ((run.e2e_s - run.ttft_s) / np.maximum(output - 1, 1))[measured][output[measured] > 1]
    return [float(np.percentile(x, q)) for q in (95, 99) for x in (run.ttft_s[measured], tpot_s)]


@pytest.mark.soak
@pytest.mark.parametrize("cv", [1.0, 3.0])
@pytest.mark.parametrize("load", [0.3, 0.6, 0.9])
def test_reported_percentiles_are_those_of_long_runs_without_strata(
    load: float, cv: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """p95 and p99 within 3 % of 20 runs of 100,000 requests; ten other seeds move p95 by less than 5 %.

    Not at 90 % of capacity and CV 3, where a queue forgets slowly: other seeds move p95 of this lane by up to 21 %, and
    a million requests would take three seconds.
    """
    runs = np.array([without_strata(load, cv, seed) for seed in range(20)])
    long, error = runs.mean(axis=0), runs.std(axis=0, ddof=1) / math.sqrt(20) / runs.mean(axis=0)

    def figures(seed: int) -> np.ndarray:
        monkeypatch.setattr(percentiles, "SEED", seed)
        v = at(load, cv)
        return np.array([v.ttft_p95_s, v.tpot_p95_s, v.ttft_p99_s, v.tpot_p99_s, v.requests])

    found = figures(percentiles.SEED)
    others = np.array([figures(seed) for seed in range(10)])
    print(load, cv, found[4], found[:4] / long - 1, error, np.abs(others[:, :4] / found[:4] - 1).max(axis=0))
    hardest = load == 0.9 and cv == 3.0
    allowed = np.where([hardest] * 4, 0.10, 0.03) + 2 * error
    assert np.all(np.abs(found[:4] / long - 1) < allowed)
    assert hardest or np.all(np.abs(others[:, :2] / found[:2] - 1) < 0.05 + 2 * error[:2])


@pytest.mark.parametrize("rate_per_s", [0.0, 5e-324, 1e-300, 1e9])
def test_times_are_finite_at_any_rate(rate_per_s: float) -> None:
    """The compiled loop would read beyond its arrays for a request that never arrives."""
    client = Client(kind=POISSON, rate_per_s=rate_per_s, arrival_cv=20.0)
    seen = simulate(TIMES, 0, Scheduler(), client, IN, OUT, requests=200)
    assert np.isfinite(seen.e2e_s).all() and seen.requests_per_s > 0
