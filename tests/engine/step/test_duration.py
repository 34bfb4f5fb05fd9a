"""One formula for the time of a step: search, simulation, estimates and ledgers agree on every case."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.engine.scheduler.closed_form import closed_loop
from advisor.engine.scheduler.simulation import Simulation, simulate
from advisor.engine.step import duration
from advisor.engine.step.lane import Lane, Lanes, lanes
from advisor.engine.step.lane_times import prefill_s, step_s
from advisor.engine.step.ledger import decode_ledger, prefill_ledger
from advisor.engine.step.step_time import Client, Demand, Scheduler, StepTimes, load_of
from advisor.engine.terms.software import Framework
from tests.engine.catalog_sample import FP8, LLAMA_8B, VLLM, chip
from tests.engine.catalog_sample import lane as sample_lane
from tests.engine.serving_cases import fixed
from tests.engine.serving_cases import lane as invented

SETTINGS = settings(max_examples=60, deadline=None, derandomize=True)
seconds = st.sampled_from([0.0, 1e-5, 1e-4, 1e-3]) | st.floats(1e-6, 5e-2)
costs = st.builds(
    lambda slope_s, first_s, **fields: invented(linear_s=first_s + slope_s * 2.0 ** np.arange(16), **fields),
    slope_s=st.floats(1e-8, 1e-4),
    first_s=st.floats(1e-4, 2e-2),
    sample_s_per_sequence=seconds,
    decode_s_per_sequence=st.floats(0, 1e-4),
    decode_s_per_context_token=st.floats(0, 1e-6),
    window_s_per_context_token=st.floats(0, 1e-6),
    window_tokens=st.sampled_from([64.0, 1024.0]),
    prefill_s_per_pair=st.floats(0, 1e-8),
    window_prefill_s_per_pair=st.floats(0, 1e-8),
    source_s_per_sequence=seconds,
    host_s=seconds,
    host_s_per_sequence=st.floats(0, 1e-4),
    serial_s=seconds,
    serial_s_per_sequence=st.floats(0, 1e-4),
    graph_max_tokens=st.sampled_from([0.0, 64.0, 512.0]),
    eager_floor_s=seconds,
    prompt_floor_s=seconds,
    prepare_s=seconds,
    tile_tokens=st.sampled_from([0.0, 128.0]),
)


def built_of(times: StepTimes) -> Lanes:
    return replace(lanes(LLAMA_8B, [sample_lane(chip("any"))]), times=times)


def first_steps_s(times: StepTimes, prompt: int, output: int) -> tuple[float, float]:
    """(the step of the prompt, the mean decode step) of a request to an idle server, simulated."""
    run = together(times, prompt, output, 1)
    return float(run.ttft_s[0]), float(run.mean("tpot_s"))


def busy_s(times: StepTimes, prompt: int, output: int, sequences: int) -> float:
    """Seconds of all steps for so many equal requests that arrive together, simulated.

    The scheduler is not asynchronous: it would work ahead during the step of the prompts, and launches of the first
    decode steps would not show.
    """
    run = together(times, prompt, output, sequences, asynchronous=False)
    return run.busy_fraction * run.duration_s


def together(times: StepTimes, prompt: int, output: int, sequences: int, asynchronous: bool = True) -> Simulation:
    client = Client(
        kind="trace",
        arrival_s=[0.0] * sequences,
        input_tokens=[prompt] * sequences,
        output_tokens=[output] * sequences,
    )
    budget = Scheduler(max_batched_tokens=10**6, asynchronous=asynchronous)
    return simulate(times, 0, budget, client, fixed(prompt), fixed(output))


@SETTINGS
@given(costs, st.integers(1, 90_000))
def test_search_simulation_and_estimate_agree_on_a_prompt_to_an_idle_server(times: StepTimes, prompt: int) -> None:
    simulated_s, _ = first_steps_s(times, prompt, 1)
    assert prefill_s(built_of(times), 0, prompt) == pytest.approx(simulated_s, rel=1e-9)
    load = load_of(times, Demand(input_tokens=float(prompt), output_tokens=1.0), 0)
    assert load.step_s(0.0, 1.0, 1.0, 1.0)[0] == pytest.approx(simulated_s, rel=1e-9)


@SETTINGS
@given(costs, st.integers(1, 300), st.integers(1, 3000))
def test_search_simulation_and_estimate_agree_on_a_decode_step(times: StepTimes, sequences: int, prompt: int) -> None:
    simulated_s = busy_s(times, prompt, 3, sequences) - busy_s(times, prompt, 2, sequences)  # the second decode step
    assert step_s(built_of(times), 0, sequences, prompt + 2) == pytest.approx(simulated_s, rel=1e-9)
    flat = replace(times, window_s_per_context_token=np.zeros(1))  # whose mean over contexts is that of the mean
    load, together = load_of(flat, Demand(input_tokens=float(prompt), output_tokens=2.0), 0), np.array([sequences])
    expected_s = step_s(built_of(flat), 0, sequences, prompt + 1)
    assert load.step_s(together, 0.0, together)[0] == pytest.approx(expected_s, rel=1e-9)


def without_graphs(lane: Lane) -> Lane:
    framework: Framework = replace(VLLM, graph_max_tokens=0)
    return replace(
        lane,
        framework=framework,
        choice=replace(lane.choice, overhead=replace(lane.choice.overhead, eager_s_per_layer=1e-3)),
    )


def test_a_framework_without_graphs_launches_every_layer_of_every_step() -> None:
    built = lanes(LLAMA_8B, [without_graphs(sample_lane(chip("any")))])
    floor_s = 32 * 1e-3
    assert step_s(built, 0, 1, 100) == pytest.approx(floor_s)
    assert first_steps_s(built.times, 100, 400)[1] == pytest.approx(floor_s, rel=0.01)
    assert sum(line.time_s for line in decode_ledger(LLAMA_8B, built, 0, 1, 100)) == pytest.approx(floor_s)
    loop = closed_loop(built.times, np.array([1.0]), Demand(input_tokens=100, output_tokens=100), Scheduler())
    assert loop.tpot_mean_s[0] == pytest.approx(floor_s, rel=0.02)


def test_within_the_graphs_a_decode_step_has_no_launch_floor() -> None:
    wanted = without_graphs(sample_lane(chip("any")))
    built = lanes(LLAMA_8B, [replace(wanted, framework=VLLM)])
    assert step_s(built, 0, 1, 100) < 0.5 * 32 * 1e-3


@pytest.mark.parametrize("tokens", [40_000, 131_072])
def test_beyond_the_grid_a_prompt_continues_at_the_last_rate_and_pays_the_fixed_part_once(tokens: int) -> None:
    times = invented(linear_s=0.5 + 1e-5 * 2.0 ** np.arange(16))
    assert prefill_s(built_of(times), 0, tokens) == pytest.approx(0.5 + 1e-5 * tokens)
    assert duration.linear_s(tokens, times.grid_tokens, times.linear_s[0]) == pytest.approx(0.5 + 1e-5 * tokens)


def test_the_fixed_host_time_of_a_sequence_is_part_of_a_prompt_step_too() -> None:
    times = invented(serial_s_per_sequence=0.25)
    assert prefill_s(built_of(times), 0, 100) == pytest.approx(0.01 + 100e-5 + 0.25)


@pytest.mark.parametrize(("users", "floor_s", "prepare_s", "added_s"), [(1, 0.2, 0.1, 0.1), (8, 0.005, 0.004, 0.0)])
def test_a_closed_loop_of_one_pays_for_preparing_each_prompt_and_one_of_many_decodes_meanwhile(
    users: int, floor_s: float, prepare_s: float, added_s: float
) -> None:
    demand, plain = Demand(input_tokens=100, output_tokens=50), invented(graph_max_tokens=512, prompt_floor_s=floor_s)
    prepared = replace(plain, prepare_s=np.array([prepare_s]))
    before, after = (
        closed_loop(t, np.array([float(users)]), demand, Scheduler()).ttft_mean_s[0] for t in (plain, prepared)
    )
    assert after - before == pytest.approx(added_s)


@SETTINGS
@given(st.sampled_from([0.0, 128.0]), st.integers(1, 600), st.integers(1, 60_000))
def test_a_ledger_adds_up_to_its_step_between_and_beyond_grid_points(tile: float, sequences: int, tokens: int) -> None:
    wanted = sample_lane(chip("any"), FP8)
    overhead = replace(wanted.choice.overhead, tile_tokens=tile, serial_s_per_sequence=1e-5, prepare_s=1e-3)
    built = lanes(LLAMA_8B, [replace(wanted, choice=replace(wanted.choice, overhead=overhead))])
    prefill = sum(line.time_s for line in prefill_ledger(LLAMA_8B, built, 0, tokens))
    assert prefill == pytest.approx(prefill_s(built, 0, tokens), rel=1e-9)
    decode = sum(line.time_s for line in decode_ledger(LLAMA_8B, built, 0, sequences, tokens))
    assert decode == pytest.approx(step_s(built, 0, sequences, tokens), rel=1e-9)
