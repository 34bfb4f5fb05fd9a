"""A pilot rejects or believes a design only where its few requests can tell."""

import math
from dataclasses import replace

import numpy as np

from advisor.engine.scheduler.percentiles import REQUESTS
from advisor.engine.scheduler.simulation import Simulation, simulate
from advisor.engine.search import Question
from advisor.engine.search.candidates import admissible, enumerate_lanes
from advisor.engine.search.simulated import PILOT_REQUESTS, Design, Simulations, excess, excess_bounds
from advisor.engine.search.table import evaluate
from advisor.engine.step.step_time import POISSON, Client, Scheduler
from advisor.engine.terms.workloads.workload import Lengths
from tests.engine.catalog_sample import catalog, question
from tests.engine.serving_cases import lane

ONE = Lengths(mean_tokens=1, p95_tokens=1)


def seen(ttft_s: np.ndarray) -> Simulation:
    blank = simulate(lane(), 0, Scheduler(), Client(), Lengths(mean_tokens=9, p95_tokens=9), ONE, requests=1)
    return replace(blank, ttft_s=ttft_s)


def waits_s(rng: np.random.Generator, load: float, count: int) -> np.ndarray:
    """Times in an M/M/1 queue with services of one second, from its stationary state on (Lindley)."""
    between, service = rng.exponential(1 / load, count), rng.exponential(1.0, count)
    found = np.empty(count)
    wait = rng.exponential(1 / (1 - load)) if rng.random() < load else 0.0
    for k in range(count):
        found[k] = wait + service[k]
        wait = max(found[k] - between[k], 0.0)
    return found


def share_beyond(load: float, runs: int = 300) -> tuple[float, float]:
    """How often the whole interval is above, or below, the known percentile: exponential with rate 1 - load."""
    known = math.log(20) / (1 - load)
    rng = np.random.default_rng(1)
    found = [seen(waits_s(rng, load, PILOT_REQUESTS)).bounds("ttft_s", 95) for _ in range(runs)]
    return float(np.mean([low > known for low, _ in found])), float(np.mean([high < known for _, high in found]))


def test_a_sure_pilot_is_seldom_wrong() -> None:
    for load, most in ((0.05, 0.03), (0.5, 0.03), (0.8, 0.08)):
        above, below = share_beyond(load)
        assert above <= most, load
        assert below <= most, load


def test_the_point_alone_would_be_wrong_more_often() -> None:
    rng, known = np.random.default_rng(1), math.log(20) / (1 - 0.8)
    points = np.array([np.percentile(waits_s(rng, 0.8, PILOT_REQUESTS), 95) for _ in range(300)])
    assert np.mean(points > 1.5 * known) > share_beyond(0.8)[0]


def test_no_verdict_is_given_where_the_sample_does_not_reach() -> None:
    low, high = seen(np.arange(1.0, 41.0)).bounds("ttft_s", 95)
    assert low < 38 and high == math.inf


def test_sure_pilots_and_the_full_simulation_agree_under_heavy_tails() -> None:
    prompt, sure = Lengths(mean_tokens=2000, p95_tokens=7000), 0
    times = lane(prefill_s_per_pair=2e-8, kv_capacity_tokens=10**6)
    for rate in np.geomspace(0.2, 6.0, 12):
        client = Client(kind=POISSON, rate_per_s=float(rate))
        pilot, full = (
            simulate(times, 0, Scheduler(), client, prompt, ONE, requests=n, seed=5) for n in (PILOT_REQUESTS, REQUESTS)
        )
        low, high = pilot.bounds("ttft_s", 95)
        for limit_s in np.geomspace(0.1, 20.0, 12):
            holds = full.percentile("ttft_s", 95) <= limit_s
            assert not (low > limit_s and holds), (rate, limit_s)
            assert not (high <= limit_s and not holds), (rate, limit_s)
            sure += low > limit_s or high <= limit_s
    assert sure >= 12


def test_bounds_are_on_either_side_of_the_excess() -> None:
    workload, world = question(), catalog()
    chips = admissible(Question(workload, world))[1]
    simulations = Simulations(
        Question(workload, world),
        evaluate(Question(workload, world), enumerate_lanes(Question(workload, world), chips)[0]),
    )
    for row in range(0, len(simulations.table.lanes), 5):
        seen_there = simulations.run(Design(row=row, column=2, replicas=2), PILOT_REQUESTS)
        low, high = excess_bounds(workload, seen_there)
        assert low <= excess(workload, seen_there) <= high
