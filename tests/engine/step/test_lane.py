"""Room for the cache under each framework's way to share memory, and the host's time of a lane, by hand."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from advisor.engine.network.blocks import Block, Ffn, Recurrent
from advisor.engine.step.drafts.speculative import Draft
from advisor.engine.step.lane import Lane, concatenate, fitting, lanes, memory, take
from advisor.engine.step.lane_times import idle_s, lane_step_s, prefill_s, step_s
from advisor.engine.step.layout import layouts
from advisor.engine.step.memory import Memory, activations_bytes, kv_bytes_per_sequence, weights_bytes
from advisor.engine.terms import Correction
from advisor.engine.terms.software import Quantization
from tests.engine.catalog_sample import BF16, FP8, INT4, LLAMA_8B, VLLM, chip, format_of
from tests.engine.catalog_sample import lane as sample
from tests.engine.step.test_operators import ATTENTION, model

CHIP = chip("one", memory_bytes=40e9)
DENSE = model(ATTENTION, Ffn(inner=10))


def wanted(form: Quantization = BF16, framework: dict[str, Any] | None = None, **overhead: float) -> Lane:
    found = sample(CHIP, form, routing_evenness=10.0)
    choice = replace(found.choice, overhead=replace(found.choice.overhead, **overhead))
    software = replace(VLLM, **({"memory_fraction": 0.8, "runtime_bytes": 3e9} | (framework or {})))
    return replace(found, choice=choice, framework=software)


def room(one: Lane) -> Memory:
    return memory(LLAMA_8B, layouts(LLAMA_8B, [one.choice]), [one])


# --- memory -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("policy", "left"), [
    ("total", lambda w, work: 32e9 - w - work - 3e9),
    ("static", lambda w, work: 32e9 - w),
    ("free", lambda w, work: (40e9 - w - work - 3e9) * 0.8),
])  # fmt: skip
def test_each_framework_leaves_the_cache_its_own_share(policy, left):
    """vLLM fills 80 % with everything, SGLang with weights and cache, TensorRT-LLM gives the cache 80 % of the rest."""
    one = wanted(framework={"memory_policy": policy})
    x = layouts(LLAMA_8B, [one.choice])
    weights = weights_bytes(LLAMA_8B, x)[0]
    work = activations_bytes(LLAMA_8B, x, np.array([8192.0]), np.array([512.0]))[0]
    found = room(one)
    assert found.kv_bytes[0] == pytest.approx(left(weights, work))
    assert (found.weights_bytes[0], found.activations_bytes[0], found.overhead_bytes[0]) == (weights, work, 3e9)
    assert found.usable_bytes[0] == pytest.approx(found.kv_bytes[0] + weights + work + 3e9)


def test_a_workspace_beside_the_share_never_takes_more_than_the_chip_has():
    found = room(wanted(framework={"memory_policy": "static", "runtime_bytes": 20e9}))
    assert found.kv_bytes[0] == pytest.approx(40e9 - found.weights_bytes[0] - found.activations_bytes[0] - 20e9)


def test_capacity_is_what_is_left_by_the_bytes_of_a_token():
    found = room(wanted())
    each = 32 * 8 * 256 * 2.0  # layers, KV heads, keys and values, 16 bits
    assert found.kv_capacity_tokens[0] == np.floor(found.kv_bytes[0] / each)
    assert found.kv_bytes_per_sequence[0] == each * 8192


def test_micro_batches_of_a_pipeline_share_the_cache_of_its_stages():
    """A stage keeps half the layers of each token and serves two micro-batches: as many tokens as its bytes say."""
    one = wanted()
    two = replace(one, choice=replace(one.choice, pp=2))
    found = room(two)
    each = 16 * 8 * 256 * 2.0
    assert found.kv_capacity_tokens[0] == pytest.approx(np.floor(found.kv_bytes[0] / each / 2), abs=1)


def test_nothing_is_left_where_the_weights_do_not_fit():
    small = wanted()
    small = replace(small, choice=replace(small.choice, accelerator=chip("small", memory_bytes=10e9)))
    found = room(small)
    assert found.kv_bytes[0] < 0 and found.kv_capacity_tokens[0] == 0 and not found.fits[0]


def test_what_keeps_no_cache_has_room_for_any_number_of_tokens():
    keeps_nothing = replace(LLAMA_8B, blocks=(Block(count=32, mixer=replace(ATTENTION, causal=False), ffn=None),))
    one = wanted()
    found = memory(keeps_nothing, layouts(keeps_nothing, [one.choice]), [one])
    assert (found.kv_capacity_tokens[0], found.kv_bytes_per_sequence[0]) == (1e12, 0)


def test_a_long_source_needs_workspace_for_all_its_tokens():
    one = wanted()
    longer = replace(one, source_tokens=16_384.0)
    x = layouts(LLAMA_8B, [one.choice])
    expected = activations_bytes(LLAMA_8B, x, np.array([16_384.0]), np.array([512.0]))[0]
    assert room(longer).activations_bytes[0] == pytest.approx(expected)


def test_the_lanes_that_fit_are_built_in_their_order():
    large = wanted()
    small = replace(large, choice=replace(large.choice, accelerator=chip("small", memory_bytes=10e9)))
    quantized = wanted(INT4)
    everything, kept, built = fitting(LLAMA_8B, [large, small, quantized])
    assert everything.fits.tolist() == [True, False, True]
    assert kept == [large, quantized]
    assert built and built.times.linear_s == pytest.approx(lanes(LLAMA_8B, [large, quantized]).times.linear_s)
    assert built.memory.kv_bytes.tolist() == everything.kv_bytes[[0, 2]].tolist()
    assert fitting(LLAMA_8B, [small])[1:] == ([], None)


# --- times ------------------------------------------------------------------------------------------------------


def times(one: Lane, network: Any = DENSE) -> dict[str, float]:
    built = lanes(network, [one]).times
    return {name: float(np.ravel(getattr(built, name))[0]) for name in built.__slots__}


def test_launching_costs_the_host_each_layer_and_layers_of_experts_their_own():
    experts = Block(count=2, mixer=ATTENTION, ffn=Ffn(inner=10, experts=8, top_k=2))
    mixed = replace(DENSE, blocks=(*DENSE.blocks, experts, Block(count=4, mixer=ATTENTION, ffn=None)))
    found = times(wanted(eager_s_per_layer=1e-3, eager_s_per_expert_layer=1e-2, pieces_s_per_layer=1e-4), mixed)
    assert found["eager_floor_s"] == pytest.approx(7e-3 + 2e-2)
    assert found["prompt_floor_s"] == pytest.approx(9e-4)


@pytest.mark.parametrize(("form", "tile"), [
    (BF16, 0), (FP8, 64), (INT4, 0), (replace(FP8, slug="fp8-block"), 0), (format_of("fp16", 16, "fp16"), 0),
])  # fmt: skip
def test_only_narrow_inputs_with_a_scale_for_each_row_work_in_whole_tiles(form, tile):
    assert times(wanted(form, tile_tokens=64.0))["tile_tokens"] == tile


def test_a_server_in_front_adds_its_time_to_a_request():
    one = wanted(request_s=0.25, http_s=0.5)
    assert times(one)["request_s"] == 0.75
    assert times(replace(one, http=False))["request_s"] == 0.25
    assert idle_s(lanes(DENSE, [one]), 0) == 0.75


def test_the_frameworks_times_and_sizes_are_those_of_the_lane():
    named = {"host_s": 1.0, "host_s_per_sequence": 2.0, "serial_s": 3.0, "serial_s_per_sequence": 4.0, "prepare_s": 5.0}
    found = times(wanted(framework={"block_tokens": 32, "graph_max_tokens": 256}, **named))
    assert {name: found[name] for name in named} == named
    assert (found["block_tokens"], found["graph_max_tokens"]) == (32, 256)


def test_steps_are_computed_from_1_to_32768_tokens():
    assert lanes(DENSE, [wanted()]).times.grid_tokens.tolist() == [2.0**n for n in range(16)]


def test_steps_last_their_serial_time_longer():
    """On ideal hardware the host's serial time is all that differs: 3 s, and 4 s for each sequence."""
    plain, slow = lanes(DENSE, [wanted()]), lanes(DENSE, [wanted(serial_s=3.0, serial_s_per_sequence=4.0)])
    assert step_s(slow, 0, 2, 100) - step_s(plain, 0, 2, 100) == pytest.approx(11)
    assert prefill_s(slow, 0, 100) - prefill_s(plain, 0, 100) == pytest.approx(7)


def test_a_prompt_on_an_idle_server_waits_for_its_preparation_and_a_decode_does_not():
    built = lanes(DENSE, [wanted(), wanted(prepare_s=5.0)])
    assert prefill_s(built, 1, 100) == pytest.approx(5, abs=0.01)
    assert step_s(built, 1, 2, 100) == step_s(built, 0, 2, 100)
    assert lane_step_s(built, 1, np.array([7.0]), 100, 1, True) == 7


def test_lanes_that_draft_stand_beside_those_that_do_not():
    """Each as it would be alone; two lanes of one choice share what is known of their drafting model."""
    small = replace(LLAMA_8B, slug="small", blocks=(replace(LLAMA_8B.blocks[0], count=2),))
    draft = Draft(
        method="draft", name="x", tokens=3, accepted_fraction=0.5, shown_tokens=1.875, pass_fraction=0.0,
        head_bytes=0.0, task="chat", source="", model=small,
    )  # fmt: skip
    plain = wanted()
    drafts = replace(plain, draft=draft)
    several = [plain, drafts, replace(drafts, max_running_requests=4)]
    together = lanes(LLAMA_8B, several).times
    for i, one in enumerate(several):
        alone = lanes(LLAMA_8B, [one]).times
        assert together.linear_s[i] == pytest.approx(alone.linear_s[0])
        assert together.prefill_s_per_pair[i] == pytest.approx(alone.prefill_s_per_pair[0])
    assert together.prefill_s_per_pair[1] > together.prefill_s_per_pair[0]


def test_lanes_can_be_taken_apart_and_joined():
    built = lanes(DENSE, [wanted(), wanted(host_s=1.0), wanted(host_s=2.0)]).times
    last, first = take(built, np.array([2])), take(built, np.array([0, 1]))
    again = concatenate([last, first])
    assert again.host_s.tolist() == [2, 0, 1]
    assert again.linear_s.shape == (3, 16) and again.grid_tokens is built.grid_tokens


def test_a_recurrent_layer_has_no_cache_that_grows():
    """Its state is bytes of a sequence: capacity in tokens follows the context that is asked for."""
    mixer = Recurrent(kind="mamba1", inner=12, state=5, heads=3, head_dim=4)
    network = model(mixer)
    x = layouts(network, [wanted().choice])
    found = memory(network, x, [wanted()])
    state = kv_bytes_per_sequence(network, x, 8192)[0]
    assert state == 3 * (240 + 72)
    assert found.kv_capacity_tokens[0] == np.floor(found.kv_bytes[0] / (state / 8192))


# --- corrections by measured rows ---------------------------------------------------------------------------------


def test_a_correction_makes_every_step_take_that_much_longer():
    """Prefill and decode, device and host, with and without graphs; the way of a request to the scheduler stays."""
    plain = wanted(eager_s_per_layer=1e-3, host_s=2e-3, serial_s=1e-4)
    slow = replace(plain, choice=replace(plain.choice, correction=Correction(time_factor=1.25, rows=3)))
    built = lanes(LLAMA_8B, [plain, slow])
    for decode in ((1.0, 100.0), (64.0, 4000.0)):
        assert step_s(built, 1, *decode) == pytest.approx(1.25 * step_s(built, 0, *decode))
    for tokens in (100.0, 4000.0):
        assert prefill_s(built, 1, tokens) == pytest.approx(1.25 * prefill_s(built, 0, tokens))
    assert idle_s(built, 1) == idle_s(built, 0)
    assert built.memory.kv_capacity_tokens[1] == built.memory.kv_capacity_tokens[0]


def test_more_bandwidth_is_never_slower_with_the_same_correction():
    correction = Correction(time_factor=0.8, rows=3)
    one = wanted()
    fast = replace(one.choice.accelerator, memory_bytes_per_s=2 * one.choice.accelerator.memory_bytes_per_s)
    both = [replace(one, choice=replace(one.choice, accelerator=a, correction=correction)) for a in (CHIP, fast)]
    built = lanes(LLAMA_8B, both)
    assert step_s(built, 1, 8.0, 1000.0) < step_s(built, 0, 8.0, 1000.0)


def test_all_reduces_outside_graphs_cost_the_host_two_a_layer_and_only_with_several_chips():
    both = [wanted(eager_s_per_layer=1e-3, collective_host_s=1e-4, parallel_prepare_s=5e-3) for _ in range(2)]
    both[1] = replace(both[1], choice=replace(both[1].choice, tp=2))
    built = lanes(DENSE, both).times
    layers = sum(block.count for block in DENSE.blocks)
    assert built.eager_floor_s[1] - built.eager_floor_s[0] == pytest.approx(layers * 2 * 1e-4)
    assert built.prepare_s[1] - built.prepare_s[0] == pytest.approx(5e-3)
