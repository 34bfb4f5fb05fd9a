"""The simulated scheduler does what each framework's rules say, counted by hand."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from advisor.engine.scheduler.loop import _window_pairs
from advisor.engine.scheduler.sampling import token_lengths
from advisor.engine.scheduler.simulation import simulate
from advisor.engine.step.duration import whole_tiles
from advisor.engine.step.step_time import POLICIES, Client, Scheduler, StepTimes
from advisor.engine.terms.workloads.workload import Lengths
from tests.engine.serving_cases import fixed, lane

STEP_S, TOKEN_S = 0.01, 1e-5


def trace(times: StepTimes, scheduler: Scheduler, *requests: tuple[float, int, int], **options: float):
    arrival_s, inputs, outputs = zip(*requests, strict=True)
    client = Client(kind="trace", arrival_s=arrival_s, input_tokens=inputs, output_tokens=outputs)
    return simulate(times, 0, scheduler, client, fixed(1), fixed(1), **options)


def test_a_request_alone_takes_its_prompt_step_and_its_decode_steps() -> None:
    run = trace(lane(request_s=0.5), Scheduler(), (0.0, 100, 3))
    assert run.ttft_s == pytest.approx([0.5 + STEP_S + 100 * TOKEN_S])
    assert run.tpot_s == pytest.approx([STEP_S + TOKEN_S])
    assert run.steps == 3
    assert run.busy_fraction == pytest.approx(1 - 0.5 / run.duration_s)


BURST_POLICIES = [policy for policy in POLICIES if policy != "static"]


@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize("policy", BURST_POLICIES)
def test_the_more_requests_of_a_burst_the_longer_the_first_token_takes(policy: str, rounds: int) -> None:
    """A lone prompt waits for nobody, so that no burst has a shorter mean TTFT; each request more adds to it."""
    scheduler = Scheduler(policy=policy, max_batched_tokens=2048)
    client = Client(kind="burst", requests_per_user=rounds)

    def ttft_s(users: int) -> float:
        return simulate(lane(), 0, scheduler, client, fixed(700), fixed(40), concurrency=users).mean("ttft_s")

    seen = [ttft_s(users) for users in (1, 2, 3, 4, 8, 16, 32, 64)]
    assert seen[0] == pytest.approx(STEP_S + 700 * TOKEN_S)
    assert all(more >= fewer * (1 - 1e-9) for fewer, more in zip(seen, seen[1:], strict=False)), seen


@pytest.mark.parametrize("users", [1, 2, 5, 9])
@pytest.mark.parametrize("policy", BURST_POLICIES)
def test_a_burst_whose_prompts_fill_one_step_has_the_time_of_that_step(policy: str, users: int) -> None:
    scheduler, client = Scheduler(policy=policy, max_batched_tokens=10_000), Client(kind="burst", requests_per_user=1)
    run = simulate(lane(), 0, scheduler, client, fixed(1000), fixed(20), concurrency=users)
    assert run.ttft_s == pytest.approx([STEP_S + users * 1000 * TOKEN_S] * users)


@pytest.mark.parametrize("users", [2, 5, 9])
def test_a_burst_whose_prompts_fill_a_step_each_waits_for_half_of_them(users: int) -> None:
    scheduler, client = Scheduler(policy="chunked", max_batched_tokens=1000), Client(kind="burst", requests_per_user=1)
    run = simulate(lane(), 0, scheduler, client, fixed(1000), fixed(1), concurrency=users)
    assert run.mean("ttft_s") == pytest.approx((users + 1) / 2 * (STEP_S + 1000 * TOKEN_S))


def test_context_pairs_and_sampling_are_charged_exactly() -> None:
    times = lane(decode_s_per_context_token=1e-6, prefill_s_per_pair=1e-7, sample_s_per_sequence=1e-3)
    run = trace(times, Scheduler(), (0.0, 100, 2))
    assert run.ttft_s[0] == pytest.approx(STEP_S + 100 * TOKEN_S + 5050 * 1e-7 + 1e-3)
    assert run.tpot_s[0] == pytest.approx(STEP_S + TOKEN_S + 101 * 1e-6 + 1e-3)


@pytest.mark.parametrize("policy", ["chunked", "prefill_first", "static"])
def test_a_prompt_above_the_budget_is_chunked_and_attends_to_its_own_past(policy: str) -> None:
    times = lane(prefill_s_per_pair=1e-7)
    run = trace(times, Scheduler(policy=policy, max_batched_tokens=64), (0.0, 200, 1))
    assert run.steps == 4
    assert run.ttft_s[0] == pytest.approx(4 * STEP_S + 200 * TOKEN_S + 200 * 201 / 2 * 1e-7)


@pytest.mark.parametrize(("start", "count", "window"), [(0, 10, 4), (0, 3, 8), (6, 5, 8), (20, 7, 8), (0, 8, 8)])
def test_window_pairs_are_those_of_each_query_counted(start: int, count: int, window: int) -> None:
    assert _window_pairs(start, count, window) == sum(min(start + i, window) for i in range(1, count + 1))


def test_the_launch_floor_holds_above_the_captured_graphs_only() -> None:
    times = lane(graph_max_tokens=512, eager_floor_s=1.0)
    assert trace(times, Scheduler(), (0.0, 512, 1)).ttft_s[0] < 0.1
    assert trace(times, Scheduler(), (0.0, 513, 1)).ttft_s[0] == pytest.approx(1.0)


def test_a_prompt_within_the_graphs_waits_for_their_pieces_and_a_decode_does_not() -> None:
    times = lane(graph_max_tokens=512, prompt_floor_s=0.5)
    run = trace(times, Scheduler(), (0.0, 100, 3))
    assert run.ttft_s[0] == pytest.approx(0.5)
    assert run.tpot_s[0] == pytest.approx(STEP_S + TOKEN_S)


@pytest.mark.parametrize(("prompt", "felt"), [(64, 64), (65, 128), (128, 128), (129, 256), (1032, 1152)])
def test_products_in_whole_tiles_feel_a_part_of_one_as_a_full_one(prompt: int, felt: int) -> None:
    assert float(whole_tiles(prompt, np.array(128.0))) == felt
    run = trace(lane(tile_tokens=128, graph_max_tokens=4096), Scheduler(), (0.0, prompt, 1))
    assert run.ttft_s[0] == pytest.approx(STEP_S + felt * TOKEN_S)


def test_the_host_launches_a_step_while_the_device_computes_the_one_before() -> None:
    launch_s, decode_s = 0.5 + 0.009, STEP_S + TOKEN_S
    times = lane(graph_max_tokens=512, prompt_floor_s=0.5, prepare_s=0.009)
    run = trace(times, Scheduler(), (0.0, 100, 40), (0.6, 100, 1), (5.0, 100, 1))
    assert run.ttft_s[[0, 2]] == pytest.approx(launch_s)
    beside_s = run.e2e_s[0] - run.ttft_s[0] - 38 * decode_s
    assert beside_s == pytest.approx(launch_s - decode_s, abs=2 * TOKEN_S)
    waiting = trace(times, Scheduler(asynchronous=False), (0.0, 100, 40), (0.6, 100, 1))
    assert waiting.e2e_s[0] - waiting.ttft_s[0] - 38 * decode_s == pytest.approx(launch_s, abs=2 * TOKEN_S)


def test_a_token_is_read_after_the_launch_of_the_next_step() -> None:
    times = lane(graph_max_tokens=512, prompt_floor_s=0.5)
    run = trace(times, Scheduler(), (0.0, 100, 40), (0.1, 100, 40))
    assert run.ttft_s[0] == pytest.approx(1.0)  # its own launch, then that of the prompt that arrived meanwhile
    assert trace(times, Scheduler(asynchronous=False), (0.0, 100, 40), (0.1, 100, 40)).ttft_s[0] == pytest.approx(0.5)


def test_a_share_of_the_eager_steps_with_prompts_is_launched_slowly() -> None:
    times = lane(graph_max_tokens=512, eager_floor_s=1.0, slow_share=0.3, slow_ratio=2.0)
    eager = trace(times, Scheduler(), *((10.0 * k, 600, 1) for k in range(100)))
    assert set(np.round(eager.ttft_s, 6)) == {1.0, 2.0}
    assert np.mean(eager.ttft_s > 1.5) == pytest.approx(0.3, abs=0.02)
    assert trace(times, Scheduler(), *((10.0 * k, 400, 1) for k in range(100))).ttft_s.max() < 0.1
    chunked = trace(times, Scheduler(max_batched_tokens=600), (0.0, 600 * 50, 1))
    assert chunked.ttft_s[0] == pytest.approx(65.0, abs=1.1)


def test_tokens_reach_the_client_later_by_a_share_for_each_running_request() -> None:
    alone = trace(lane(stream_s_per_sequence=0.25), Scheduler(), (0.0, 100, 3))
    assert alone.ttft_s == pytest.approx([STEP_S + 100 * TOKEN_S + 0.25])
    assert alone.tpot_s == pytest.approx([STEP_S + TOKEN_S])  # the last token is as late as the first
    both = trace(lane(stream_s_per_sequence=0.25), Scheduler(), (0.0, 100, 3), (0.0, 100, 3))
    assert both.ttft_s == pytest.approx([STEP_S + 200 * TOKEN_S + 2 * 0.25] * 2)


def test_a_whole_run_includes_its_drain_and_nothing_before_it() -> None:
    client = Client(kind="poisson", rate_per_s=2.0, whole_run=True)
    run = simulate(lane(), 0, Scheduler(), client, fixed(100), fixed(500), requests=50)
    steady = simulate(lane(), 0, Scheduler(), replace(client, whole_run=False), fixed(100), fixed(500), requests=50)
    assert len(run.ttft_s) == len(steady.ttft_s) == 50
    assert 50 * 500 / run.duration_s <= run.output_tokens_per_s < 50 * 500 / (run.duration_s - 3 / 2.0)
    assert run.output_tokens_per_s < 0.92 * steady.output_tokens_per_s


def test_without_graphs_every_decode_step_waits_for_its_launches() -> None:
    run = trace(lane(graph_max_tokens=0, eager_floor_s=0.3), Scheduler(), (0.0, 100, 301))
    assert run.tpot_s[0] == pytest.approx(0.3, rel=0.01)


def test_host_time_hides_behind_the_device_and_serial_time_does_not() -> None:
    assert trace(lane(host_s=0.001), Scheduler(), (0.0, 1, 2)).tpot_s[0] == pytest.approx(STEP_S + TOKEN_S)
    assert trace(lane(host_s=0.5), Scheduler(), (0.0, 1, 301)).tpot_s[0] == pytest.approx(0.5, rel=0.01)
    assert trace(lane(serial_s=0.5), Scheduler(), (0.0, 1, 2)).tpot_s[0] == pytest.approx(STEP_S + TOKEN_S + 0.5)


def second_prompt(policy: str) -> tuple[float, float]:
    """Two requests, the second arriving during the first step: the first's total time, the second's TTFT."""
    scheduler = Scheduler(policy=policy, asynchronous=False)
    run = trace(lane(), scheduler, (0.0, 100, 4), (0.0105, 1000, 2))
    return run.e2e_s[0], run.ttft_s[1]


def test_chunked_puts_a_new_prompt_beside_the_decodes() -> None:
    first_s, second_ttft_s = second_prompt("chunked")
    assert first_s == pytest.approx(4 * STEP_S + 1104 * TOKEN_S)
    assert second_ttft_s == pytest.approx(2 * STEP_S + 1101 * TOKEN_S - 0.0105)


def test_prefill_first_makes_the_decodes_wait_for_a_new_prompt() -> None:
    first_s, _ = second_prompt("prefill_first")
    assert first_s == pytest.approx(5 * STEP_S + 100 * TOKEN_S + 1000 * TOKEN_S + 4 * TOKEN_S)


def test_static_admits_nobody_before_its_batch_ends() -> None:
    first_s, second_ttft_s = second_prompt("static")
    assert first_s == pytest.approx(4 * STEP_S + 103 * TOKEN_S)
    assert second_ttft_s == pytest.approx(first_s - 0.0105 + STEP_S + 1000 * TOKEN_S)


def test_mixed_keeps_prompts_whole_unless_told_to_chunk() -> None:
    requests = ((0.0, 60, 2), (0.0, 60, 2))
    whole = Scheduler(policy="mixed", max_batched_tokens=100, chunked_prefill=False)
    assert trace(lane(), whole, *requests).ttft_s[1] == pytest.approx(2 * STEP_S + 121 * TOKEN_S)
    chunked = trace(lane(), replace(whole, chunked_prefill=True), *requests)
    assert chunked.ttft_s[1] == pytest.approx(2 * STEP_S + 121 * TOKEN_S)
    assert chunked.ttft_s[0] == pytest.approx(STEP_S + 100 * TOKEN_S)


def test_an_asynchronous_scheduler_sees_an_arrival_one_step_later() -> None:
    late = trace(lane(), Scheduler(), (0.0, 100, 9), (0.0105, 100, 2)).ttft_s[1]
    soon = trace(lane(), Scheduler(asynchronous=False), (0.0, 100, 9), (0.0105, 100, 2)).ttft_s[1]
    assert late - soon == pytest.approx(STEP_S + TOKEN_S)


def test_the_newest_request_is_recomputed_when_the_cache_runs_out() -> None:
    times = lane(kv_capacity_tokens=256)
    requests = ((0.0, 100, 60), (0.0, 100, 60))
    short = trace(times, Scheduler(), *requests)
    assert short.preemptions >= 1
    assert short.e2e_s[0] < short.e2e_s[1]
    assert short.kv_used_max_tokens <= 256
    reserved = trace(times, Scheduler(reserve_full=True), *requests)
    assert reserved.preemptions == 0
    assert reserved.ttft_s[1] > reserved.e2e_s[0]


def test_a_request_larger_than_the_cache_is_rejected_and_counted() -> None:
    run = trace(lane(kv_capacity_tokens=256), Scheduler(), (0.0, 300, 5), (0.0, 100, 5))
    assert run.rejected_requests == 1 and np.isinf(run.ttft_s).tolist() == [True, False]
    none = trace(lane(kv_capacity_tokens=256), Scheduler(), (0.0, 300, 5))
    assert none.mean("ttft_s") == np.inf
    assert none.output_tokens_per_s == 0


def test_cached_prompt_tokens_are_not_computed_but_attended_to() -> None:
    run = trace(lane(prefill_s_per_pair=1e-7), Scheduler(), (0.0, 200, 1), cached_fraction=0.5)
    assert run.ttft_s[0] == pytest.approx(STEP_S + 100 * TOKEN_S + (100 * 100 + 5050) * 1e-7)


def test_outputs_of_one_token_have_no_tpot() -> None:
    run = trace(lane(), Scheduler(), (0.0, 10, 1))
    assert (len(run.tpot_s), run.mean("tpot_s")) == (0, 0.0)


@pytest.mark.parametrize("kind", ["steady", "burst"])
@pytest.mark.parametrize("policy", ["chunked", "prefill_first", "mixed"])
def test_requests_in_flight_are_rate_times_residence(policy: str, kind: str) -> None:
    run = simulate(lane(), 0, Scheduler(policy=policy), Client(kind=kind), fixed(500), fixed(100), concurrency=32)
    residence_s = run.mean("ttft_s") + 99 * run.mean("tpot_s")
    assert run.requests_per_s * residence_s == pytest.approx(32, rel=0.06 if kind == "steady" else 0.15)


@pytest.mark.parametrize("policy", POLICIES)
def test_poisson_requests_are_served_at_their_rate(policy: str) -> None:
    client = Client(kind="poisson", rate_per_s=2.0)
    lengths = Lengths(mean_tokens=300, p95_tokens=900), Lengths(mean_tokens=50, p95_tokens=150)
    run = simulate(lane(), 0, Scheduler(policy=policy), client, *lengths, requests=4000, seed=3)
    assert len(run.ttft_s) == 4000
    assert run.requests_per_s == pytest.approx(2.0, rel=0.06)
    assert run.percentile("ttft_s", 95) > run.mean("ttft_s") > 0
    assert run.standard_error("tpot_s") < 0.1 * run.mean("tpot_s")


def test_drawn_lengths_have_the_mean_and_p95_asked_for() -> None:
    rng = np.random.default_rng(0)
    drawn = token_lengths(Lengths(mean_tokens=2000, p95_tokens=6000), 1.0, 1.0, rng.random(200_000))
    assert drawn.mean() == pytest.approx(2000, rel=0.02)
    assert np.percentile(drawn, 95) == pytest.approx(6000, rel=0.02)
    spread = token_lengths(fixed(1000), 0.8, 1.0, rng.random(10_000))
    assert (spread.min(), spread.max()) == (800, 1000)


@pytest.mark.parametrize("policy", POLICIES)
def test_more_cache_never_lowers_throughput_and_slower_steps_never_raise_it(policy: str) -> None:
    def tokens_per_s(times: StepTimes) -> float:
        client = Client(length_low_fraction=0.8)
        run = simulate(times, 0, Scheduler(policy=policy), client, fixed(800), fixed(200), concurrency=64, requests=800)
        return run.output_tokens_per_s

    rates = [tokens_per_s(lane(kv_capacity_tokens=capacity)) for capacity in (4e3, 1e4, 3e4, 1e5)]
    assert all(after >= before * 0.98 for before, after in zip(rates, rates[1:], strict=False))
    assert tokens_per_s(lane(kv_capacity_tokens=1e5, serial_s=0.002)) < rates[-1]


def test_the_same_seed_gives_the_same_result_in_another_process() -> None:
    code = (
        "from tests.engine.serving_cases import *\n"
        "run = simulate(lane(), 0, Scheduler(), Client(kind='poisson', rate_per_s=3.0), "
        "Lengths(mean_tokens=300, p95_tokens=900), Lengths(mean_tokens=50, p95_tokens=150), requests=300, seed=7)\n"
        "print(float(run.ttft_s.sum()).hex(), float(run.e2e_s.sum()).hex(), run.steps)"
    )
    results = {subprocess.check_output([sys.executable, "-c", code], text=True) for _ in range(2)}
    assert len(results) == 1
