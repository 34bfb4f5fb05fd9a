"""A request that the server cannot hold is infinitely late in every percentile."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.engine.scheduler.percentiles import verify
from advisor.engine.scheduler.sampling import within_context
from advisor.engine.scheduler.simulation import Simulation, simulate
from advisor.engine.search.rejected.why_not import misses
from advisor.engine.search.simulated import excess
from advisor.engine.step.step_time import POISSON, POLICIES, TRACE, Client, Scheduler
from advisor.engine.terms.workloads.demand import Trace
from advisor.engine.terms.workloads.kinds import BATCH
from advisor.engine.terms.workloads.workload import Lengths, Slo
from tests.engine.catalog_sample import lane as lane_of
from tests.engine.catalog_sample import question
from tests.engine.serving_cases import lane

METRICS, QUANTILES = ("ttft_s", "tpot_s", "e2e_s"), (50.0, 90.0, 95.0, 99.0)


def lengths(mean: float, spread: float) -> Lengths:
    return Lengths(mean_tokens=mean, p95_tokens=mean * spread)


def seen(capacity: float, inputs: Lengths, outputs: Lengths, seed: int, policy: str = "chunked") -> Simulation:
    client = Client(kind=POISSON, rate_per_s=0.2)
    times = lane(kv_capacity_tokens=capacity)
    return simulate(times, 0, Scheduler(policy=policy), client, inputs, outputs, requests=150, seed=seed)


@settings(max_examples=60, deadline=None)
@given(
    capacity=st.floats(200, 20_000), mean=st.floats(100, 5000), spread=st.floats(1.0, 3.5), answer=st.floats(2, 300),
    seed=st.integers(0, 5), policy=st.sampled_from(POLICIES),
)  # fmt: skip
def test_a_percentile_is_infinite_exactly_if_more_than_the_rest_is_not_served(
    capacity: float, mean: float, spread: float, answer: float, seed: int, policy: str
) -> None:
    run = seen(capacity, lengths(mean, spread), lengths(answer, spread), seed, policy)
    total, held = run.input_tokens + run.output_tokens, math.floor(capacity) // 16 * 16
    assert run.rejected_requests == np.count_nonzero(total > held) and len(total) == 150
    several = run.output_tokens > 1
    for metric in METRICS:
        counted = total[several] if metric == "tpot_s" else total
        share = np.count_nonzero(counted > held) / max(len(counted), 1)
        for q in QUANTILES if len(counted) else ():
            assert math.isinf(run.percentile(metric, q)) == (share > 1 - q / 100 + 1e-12), (metric, q, share)
        if np.any(counted <= held):
            assert math.isfinite(run.mean(metric))


@settings(max_examples=20, deadline=None)
@given(mean=st.floats(200, 3000), spread=st.floats(1.2, 3.5), seed=st.integers(0, 5))
def test_a_larger_cache_serves_no_fewer_requests(mean: float, spread: float, seed: int) -> None:
    runs = [seen(c, lengths(mean, spread), lengths(50, 2.0), seed) for c in (500, 1000, 2000, 4000, 8000, 1e6)]
    for less, more in zip(runs, runs[1:], strict=False):
        assert more.rejected_requests <= less.rejected_requests
        for metric in METRICS:
            for q in QUANTILES:
                assert math.isinf(less.percentile(metric, q)) or math.isfinite(more.percentile(metric, q))
    assert runs[-1].rejected_requests == 0


@pytest.mark.parametrize(("count", "long", "infinite"), [
    (20, 0, ()), (20, 1, (99.0,)), (20, 2, (95.0, 99.0)), (100, 1, ()), (100, 2, (99.0,)), (100, 5, (99.0,)),
    (100, 6, (95.0, 99.0)), (30, 2, (95.0, 99.0)), (4, 4, QUANTILES),
])  # fmt: skip
def test_the_share_that_may_be_left_out(count: int, long: int, infinite: tuple[float, ...]) -> None:
    prompts = [5000] * long + [100] * (count - long)
    client = Client(kind=TRACE, arrival_s=range(count), input_tokens=prompts, output_tokens=[5] * count)
    run = simulate(lane(kv_capacity_tokens=1024), 0, Scheduler(), client, lengths(1, 1), lengths(1, 1))
    for metric in METRICS:
        assert tuple(q for q in QUANTILES if math.isinf(run.percentile(metric, q))) == infinite


def test_drawn_lengths_end_at_the_context_and_recorded_ones_do_not() -> None:
    prompt, output = within_context(np.array([10, 500, 500, 50]), np.array([10, 50, 5000, 51]), 100)
    assert (prompt.tolist(), output.tolist()) == ([10, 50, 1, 49], [10, 50, 99, 51])
    client = Client(kind=POISSON, rate_per_s=0.1)
    inputs, outputs = lengths(1000, 3.0), lengths(100, 3.0)
    run = simulate(lane(), 0, Scheduler(), client, inputs, outputs, context_tokens=2000, requests=500)
    assert run.rejected_requests == 0 and (run.input_tokens + run.output_tokens).max() == 2000
    recorded = Client(kind=TRACE, arrival_s=(0.0, 1.0), input_tokens=(1990, 1990), output_tokens=(10, 11))
    run = simulate(lane(), 0, Scheduler(), recorded, inputs, outputs, context_tokens=2000)
    assert np.isfinite(run.e2e_s).tolist() == [True, False]


def test_requests_of_a_trace_are_drawn_in_pairs() -> None:
    recorded = Trace(arrival_s=(0.0, 1.0, 2.0), input_tokens=(10, 20, 4000), output_tokens=(400, 30, 2))
    asked = question(input_tokens=lengths(1343, 2.97), output_tokens=lengths(144, 2.8), trace=recorded)
    client = Client(kind=POISSON, rate_per_s=0.1, input_tokens=(10, 20, 4000), output_tokens=(400, 30, 2))
    run = simulate(lane(), 0, Scheduler(), client, asked.input_tokens, asked.output_tokens, requests=300)
    assert set(zip(run.input_tokens.tolist(), run.output_tokens.tolist(), strict=True)) == {
        (10, 400),
        (20, 30),
        (4000, 2),
    }
    found = verify(asked, lane(kv_capacity_tokens=1024), 0, lane_of_any(), 0.1, 500)
    assert found.unserved_fraction == pytest.approx(1 / 3, abs=0.1) and math.isinf(found.ttft_p95_s)
    assert asked.p95_request_tokens == 4002 and asked.trace and asked.trace.total_tokens(0.6) == 410


def lane_of_any():
    from tests.engine.catalog_sample import chip

    return lane_of(chip("any"))


@pytest.mark.parametrize(("held", "complete"), [(1e6, True), (1200, False)])
def test_a_batch_without_some_of_its_requests_is_never_complete(held: float, complete: bool) -> None:
    asked = question(kind=BATCH, deadline_s=1e6, input_tokens=lengths(500, 3.0), output_tokens=lengths(50, 1.0))
    found = verify(asked, lane(kv_capacity_tokens=held), 0, replace(lane_of_any(), max_running_requests=8), 0.01, 500)
    assert math.isfinite(found.late_fraction) == complete == (found.unserved_fraction <= 0.001)


def test_too_many_unserved_requests_rule_a_design_out_without_any_limit_and_are_the_reason_given() -> None:
    asked = question(slo=Slo(), input_tokens=lengths(500, 3.0), output_tokens=lengths(50, 1.0))
    for held, ruled_out in ((1e6, False), (1000, True)):
        found = verify(asked, lane(kv_capacity_tokens=held), 0, lane_of_any(), 0.01, 500)
        assert math.isinf(excess(asked, found)) == math.isinf(found.e2e_p95_s) == ruled_out
        assert [m.said for m in misses(asked, found)] == ruled_out * [
            f"{found.rejected_requests} of 500 simulated requests exceed a replica's KV cache"
        ]
