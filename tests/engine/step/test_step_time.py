"""The cost of a mean step, of prompts and of context, from its parts and by hand."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.engine.step import duration
from advisor.engine.step.step_time import Client, Demand, Scheduler, StepTimes, load_of
from tests.engine.serving_cases import lane

COMMON = settings(max_examples=60, deadline=None, derandomize=True)
FREE = lane(linear_s=np.zeros(16))  # of which each test gives one thing a cost


def priced(**costs: float) -> StepTimes:
    return replace(FREE, **{name: np.array([value]) for name, value in costs.items()})


def first(value: object) -> float:
    return float(np.ravel(value)[0])  # type: ignore[arg-type]


# --- a step -----------------------------------------------------------------------------------------------------


def test_products_of_more_tokens_than_a_tile_work_in_whole_tiles():
    felt = [duration.whole_tiles(np.array(n), np.array(128.0)) for n in (1.0, 128.0, 129.0, 256.0, 257.0)]
    assert felt == [1, 128, 256, 256, 384]
    assert duration.whole_tiles(np.array(129.0), np.array(0.0)) == 129


def test_between_grid_points_time_is_on_the_line_and_beyond_them_it_continues():
    grid, values = np.array([1.0, 2.0, 4.0]), np.array([10.0, 12.0, 20.0])
    found = [float(duration.linear_s(np.array(n), grid, values)) for n in (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 8.0)]
    assert found == [10, 10, 11, 12, 16, 20, 36]


def test_each_sequence_pays_for_sampling_decoding_and_its_source():
    costs = priced(sample_s_per_sequence=2.0, decode_s_per_sequence=3.0, source_s_per_sequence=5.0)
    assert first(duration.sequences_s(costs, 7.0, 11, 13, 17)) == 7 + 22 + 39 + 85


def test_context_and_pairs_are_paid_by_kind_of_layer():
    costs = priced(
        decode_s_per_context_token=2.0, window_s_per_context_token=3.0, prefill_s_per_pair=5.0,
        window_prefill_s_per_pair=7.0,
    )  # fmt: skip
    assert first(duration.context_s(costs, 1.0, 10, 100)) == 1 + 20 + 300
    assert first(duration.pairs_s(costs, 1.0, 10, 100)) == 1 + 50 + 700


def launch(tokens: float, sequences: float = 1, prompt: bool = False, **costs: float) -> float:
    return first(duration.launch_s(priced(**costs), tokens, sequences, prompt))


def test_a_step_of_more_tokens_than_graphs_hold_is_launched_layer_by_layer():
    assert launch(64, graph_max_tokens=64.0, eager_floor_s=2.0) == 0
    assert launch(65, graph_max_tokens=64.0, eager_floor_s=2.0) == 2
    assert launch(1, graph_max_tokens=0.0, eager_floor_s=2.0) == 2


def test_a_prompt_within_the_graphs_launches_its_attention():
    assert launch(8, prompt=True, prompt_floor_s=3.0) == 3
    assert launch(8, prompt_floor_s=3.0) == 0
    assert launch(600, prompt=True, eager_floor_s=4.0, prompt_floor_s=3.0) == 4
    assert launch(600, prompt=True, eager_floor_s=2.0, prompt_floor_s=3.0) == 3


def test_only_a_prompt_is_prepared():
    assert [launch(8, prompt=p, prepare_s=4.0, prompt_floor_s=1.0) for p in (True, False)] == [5, 0]


def test_the_host_takes_as_long_as_its_own_work_or_its_launches():
    assert launch(8, sequences=10, host_s=1.0, host_s_per_sequence=0.5) == 6
    assert launch(600, sequences=10, host_s=1.0, host_s_per_sequence=0.5, eager_floor_s=9.0) == 9


def test_a_step_lasts_as_its_longer_side_and_then_what_overlaps_nothing():
    costs = priced(serial_s=1.0, serial_s_per_sequence=0.5)
    assert first(duration.step_s(costs, 7.0, 3.0, 4)) == 7 + 1 + 2
    assert first(duration.step_s(costs, 3.0, 7.0, 4)) == 7 + 1 + 2


# --- a mean load ------------------------------------------------------------------------------------------------


def test_a_mean_decode_reads_the_prompt_and_half_the_answer():
    """Long answers are met more often: a spread of 0.5 makes 100 tokens 150 where one looks in."""
    found = load_of(priced(decode_s_per_context_token=1.0), Demand(input_tokens=1000.0, output_tokens=100.0), 0)
    assert first(found.decode_s) == 1050
    spread = Demand(input_tokens=1000.0, output_tokens=100.0, output_cv2=0.5)
    assert first(load_of(priced(decode_s_per_context_token=1.0), spread, 0).decode_s) == 1075


@COMMON
@given(st.integers(1, 300), st.integers(1, 300), st.integers(1, 400))
def test_a_windowed_decode_reads_at_most_its_window(prompt, answer, window):
    """The mean over every token of the answer of min(context, window), counted one by one."""
    times = priced(window_s_per_context_token=1.0, window_tokens=float(window))
    found = load_of(times, Demand(input_tokens=float(prompt), output_tokens=float(answer)), 0)
    counted = [min(context, window) for context in range(prompt + 1, prompt + answer + 1)]
    assert first(found.decode_s) == pytest.approx(sum(counted) / answer)


@COMMON
@given(st.integers(1, 300), st.integers(1, 400))
def test_a_prompt_meets_itself_pair_by_pair(prompt, window):
    demand = Demand(input_tokens=float(prompt), output_tokens=1.0)
    pairs = range(1, prompt + 1)
    assert first(load_of(priced(prefill_s_per_pair=1.0), demand, 0).prompt_s) == pytest.approx(sum(pairs))
    windowed = priced(window_prefill_s_per_pair=1.0, window_tokens=float(window))
    assert first(load_of(windowed, demand, 0).prompt_s) == pytest.approx(sum(min(q, window) for q in pairs))


@COMMON
@given(st.integers(1, 50), st.integers(1, 250))
def test_what_the_prefix_cache_holds_is_met_and_not_computed(cached, new):
    demand = Demand(input_tokens=float(cached + new), output_tokens=1.0, cached_fraction=cached / (cached + new))
    pairs = range(cached + 1, cached + new + 1)
    load = load_of(priced(prefill_s_per_pair=1.0), demand, 0)
    assert first(load.prompt_s) == pytest.approx(sum(pairs))
    assert first(load.prompt_tokens) == pytest.approx(new)
    windowed = load_of(priced(window_prefill_s_per_pair=1.0, window_tokens=40.0), demand, 0)
    assert first(windowed.prompt_s) == pytest.approx(sum(min(q, 40) for q in pairs))


def test_spread_prompts_cost_more_pairs_and_a_cached_one_still_one_token():
    """The square of a length that varies is larger than that of its mean by the variance."""
    demand = Demand(input_tokens=100.0, output_tokens=1.0, input_cv2=0.5)
    assert first(load_of(priced(prefill_s_per_pair=1.0), demand, 0).prompt_s) == pytest.approx((10_000 * 1.5 + 100) / 2)
    whole = Demand(input_tokens=100.0, output_tokens=1.0, cached_fraction=1.0)
    assert load_of(FREE, whole, 0).prompt_tokens == 1


def test_a_prompt_and_a_decode_both_sample_and_only_a_prompt_runs_its_source():
    times = priced(sample_s_per_sequence=2.0, decode_s_per_sequence=3.0, source_s_per_sequence=5.0)
    load = load_of(times, Demand(input_tokens=10.0, output_tokens=10.0), 0)
    assert (first(load.decode_s), first(load.prompt_s)) == (5, 7)


def test_a_step_adds_its_decodes_and_prompts_to_the_work_of_its_tokens():
    """4 decodes and 2 prompts of 10 tokens: 24 tokens of linear work, and the fixed costs of each."""
    times = replace(priced(sample_s_per_sequence=2.0), linear_s=FREE.grid_tokens[None] * 0.5)
    load = load_of(times, Demand(input_tokens=10.0, output_tokens=10.0), 0)
    assert first(load.step_s(4.0, 2.0, 6.0)) == pytest.approx(24 * 0.5 + 6 * 2)
    hosted = load_of(
        priced(host_s_per_sequence=3.0, prompt_floor_s=40.0), Demand(input_tokens=10.0, output_tokens=1.0), 0
    )
    assert first(hosted.step_s(4.0, 0.0, 6.0)) == 18
    assert first(hosted.step_s(4.0, 0.5, 6.0, 1.0)) == 40
    assert first(hosted.step_s(4.0, 0.5, 6.0)) == 40 - 4 * 3  # the host began while the decodes before were computed


@COMMON
@given(st.floats(0.5, 100_000))
def test_a_grid_of_powers_of_two_and_any_other_are_read_alike(tokens):
    """The fast way is taken only where the grid is one."""
    rising = np.cumsum(np.arange(1.0, 17.0))[None]
    powers = load_of(replace(FREE, linear_s=rising), Demand(input_tokens=1.0, output_tokens=1.0), 0)
    other = replace(FREE, grid_tokens=np.append(FREE.grid_tokens[:-1], 40_000.0), linear_s=rising)
    plain = load_of(other, Demand(input_tokens=1.0, output_tokens=1.0), 0)
    assert powers.powers_of_two and not plain.powers_of_two
    for load, grid in ((powers, FREE.grid_tokens), (plain, other.grid_tokens)):
        expected = duration.linear_s(np.array(tokens), grid, rising[0])
        assert first(load.linear_s(np.array([tokens]))) == pytest.approx(float(expected))


def test_candidates_and_loads_broadcast():
    """Two candidates of different prices at three loads: shape (2, 3), each candidate's own grid."""
    both = {name: np.concatenate([getattr(FREE, name)] * 2) for name in FREE.__slots__ if name != "grid_tokens"}
    times = replace(FREE, **(both | {"linear_s": np.stack([FREE.grid_tokens, 3 * FREE.grid_tokens])}))
    load = load_of(times, Demand(input_tokens=1.0, output_tokens=1.0), 1)
    assert load.linear_s(np.array([[1.0, 2.0, 6.0]])).tolist() == [[1, 2, 6], [3, 6, 18]]


def test_unknown_policies_and_clients_are_refused_by_name():
    with pytest.raises(ValueError, match="policy 'random' is not one of"):
        Scheduler(policy="random")
    with pytest.raises(ValueError, match="client 'bot' is not one of"):
        Client(kind="bot")


def test_what_is_not_stated_is_vllms_scheduler_and_a_steady_client_of_constant_lengths():
    s, c, d = Scheduler(), Client(), Demand(input_tokens=1.0, output_tokens=1.0)
    assert (s.policy, s.max_batched_tokens, s.max_running_requests) == ("chunked", 8192, 1024)
    assert (s.reserve_full, s.chunked_prefill, s.asynchronous) == (False, True, True)
    assert (c.kind, c.requests_per_user, c.rate_per_s) == ("steady", 10, 0)
    assert (c.length_low_fraction, c.length_high_fraction) == (1, 1)
    assert (d.input_cv2, d.output_cv2, d.cached_fraction) == (0, 0, 0)


def test_a_step_among_others_does_not_wait_for_the_preparation_of_its_prompts():
    load = load_of(priced(prepare_s=4.0), Demand(input_tokens=10.0, output_tokens=1.0), 0)
    assert (first(load.step_s(0.0, 1.0, 1.0)), first(load.step_s(0.0, 1.0, 1.0, 1.0))) == (0, 4)
