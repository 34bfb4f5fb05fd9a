"""Slower steps and more load are one curve: intervals widen with the load, and agree with probabilities."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.engine.scheduler.response import FIGURES, LOADS, Response, response_of
from advisor.engine.scheduler.simulation import Simulation, simulate
from advisor.engine.search.limits import Factors, latency_ranges, standard_normal
from advisor.engine.step.step_time import POISSON, Client, Scheduler, StepTimes
from advisor.engine.terms import Lengths, around_estimate
from tests.engine.serving_cases import lane

SECONDS = [name for name in StepTimes.__slots__ if name.endswith("_s") or "_s_per_" in name]
TIMES = lane(
    decode_s_per_context_token=3e-8, prefill_s_per_pair=1e-9, request_s=0.002, host_s=2e-3, serial_s=1e-3,
    prompt_floor_s=4e-3, prepare_s=2e-3, kv_capacity_tokens=2e5,
)  # fmt: skip
PROMPT, OUTPUT = Lengths(mean_tokens=800, p95_tokens=2400), Lengths(mean_tokens=60, p95_tokens=150)
CAPACITY_PER_S = 75.0  # about
ENDS = (1 / 1.2, 1.2)
STEPS = np.asarray(around_estimate(ENDS).at(standard_normal("steps of a test")))


def at_rate(times: StepTimes, rate_per_s: float, cv: float = 1.0, requests: int = 800) -> Simulation:
    client = Client(kind=POISSON, rate_per_s=rate_per_s, arrival_cv=cv)
    return simulate(times, 0, Scheduler(), client, PROMPT, OUTPUT, requests=requests)


def response(load: float, cv: float = 1.0) -> Response:
    def at(times: float) -> SimpleNamespace:
        seen = at_rate(TIMES, CAPACITY_PER_S * load * times, cv)
        return SimpleNamespace(
            ttft_mean_s=seen.mean("ttft_s"), ttft_p95_s=seen.percentile("ttft_s", 95), tpot_mean_s=seen.mean("tpot_s"),
            tpot_p95_s=seen.percentile("tpot_s", 95), e2e_p95_s=seen.percentile("e2e_s", 95),
        )  # fmt: skip

    return response_of(at)


@settings(max_examples=12, deadline=None)
@given(st.floats(0.5, 2.0), st.sampled_from([0.3, 0.7, 0.95]), st.sampled_from([1.0, 3.0]))
def test_slower_steps_are_the_same_queue_on_a_slower_clock(slower: float, load: float, cv: float) -> None:
    slow = replace(TIMES, **{name: getattr(TIMES, name) * slower for name in SECONDS})
    there, here = at_rate(slow, CAPACITY_PER_S * load, cv), at_rate(TIMES, CAPACITY_PER_S * load * slower, cv)
    for figure in ("ttft_s", "tpot_s", "e2e_s"):
        assert there.percentile(figure, 95) == pytest.approx(slower * here.percentile(figure, 95), rel=2e-3)


def test_a_response_is_one_at_the_planned_load_and_never_falls() -> None:
    r = response(0.8)
    assert set(r.ratios) == set(FIGURES)
    for figure in FIGURES:
        assert float(r.at(figure, 1.0)) == pytest.approx(1.0)
        assert (np.diff(r.at(figure, np.linspace(0.3, 3.0, 60))) >= -1e-12).all()
        assert float(r.at(figure, 9.0)) == pytest.approx(r.ratios[figure][-1])


@pytest.mark.parametrize("cv", [1.0, 3.0])
def test_between_the_simulated_loads_the_response_is_close(cv: float) -> None:
    r = response(0.6, cv)
    for load in (0.82, 1.05, 1.17, 1.4):
        direct = [at_rate(TIMES, CAPACITY_PER_S * 0.6 * each, cv).percentile("tpot_s", 95) for each in (load, 1.0)]
        assert float(r.at("tpot_p95_s", load)) == pytest.approx(direct[0] / direct[1], rel=0.1)


def width(figure: str, r: Response | None, factors: Factors) -> float:
    low, high = latency_ranges(factors, r)[figure]
    return float(np.log(high / low))


def test_the_same_error_of_the_steps_makes_wider_intervals_at_a_higher_load() -> None:
    factors = Factors(ttft=STEPS, tpot=STEPS, duration=STEPS)
    alone = 2 * np.log(ENDS[1])
    for figure in ("ttft", "ttft_p95", "tpot", "tpot_p95"):
        assert width(figure, None, factors) == pytest.approx(alone, rel=0.01)
        idle, low, high = (width(figure, response(load), factors) for load in (1e-4, 0.3, 0.9))
        assert alone * 0.99 <= idle < 1.1 * alone, figure
        assert idle <= low < 2.0 * alone and high > 1.1 * low, figure


def test_a_limit_at_the_end_of_an_interval_holds_with_its_probability() -> None:
    r, factors = response(0.85), Factors(ttft=STEPS, tpot=STEPS, duration=STEPS)
    low, high = latency_ranges(factors, r)["tpot_p95"]
    drawn = STEPS * r.at("tpot_p95_s", STEPS)
    assert float((drawn <= high).mean()) == pytest.approx(0.95, abs=0.005)
    assert float((drawn <= low).mean()) == pytest.approx(0.05, abs=0.005)


def test_requests_that_are_not_served_at_any_load_do_not_count_as_queueing() -> None:
    r = response_of(lambda load: SimpleNamespace(**dict.fromkeys(FIGURES, np.inf)))
    assert all(ratios == (1.0,) * len(LOADS) for ratios in r.ratios.values())


def test_an_assumed_burstiness_widens_intervals_to_its_own_end() -> None:
    known = SimpleNamespace(**dict.fromkeys(FIGURES, 1.0))
    bursty = SimpleNamespace(**dict.fromkeys(FIGURES, 1.5))
    z, exact = standard_normal("bursts of a test"), np.ones(4096)
    factors = Factors(ttft=exact, tpot=exact, duration=exact, bursts=z)
    assert width("ttft_p95", response_of(lambda load: known), factors) == 0.0
    low, high = latency_ranges(factors, response_of(lambda load: known, burstier=bursty))["ttft_p95"]
    assert high == pytest.approx(1.5, rel=0.01) and low == pytest.approx(1 / 1.5, rel=0.01)
