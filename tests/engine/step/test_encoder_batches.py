"""Encoders alone under load, and the questions that suit each kind of model, by hand."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from advisor.engine.network.blocks import Attention, Block, Ffn
from advisor.engine.network.model import Model
from advisor.engine.step.media.encoder import (
    as_scheduled,
    batch_capacity_requests_per_s,
    batch_latency_p95_s,
    computed_source_tokens,
    cross_read,
    full_batch,
    has_decoder_beside,
    has_encoder,
    mean_source_tokens,
    model_mismatch,
    normalize,
    source_operators,
    source_s,
    whole_prompts,
)
from advisor.engine.step.step_time import Demand, Scheduler, StepTimes, load_of
from advisor.engine.terms.workloads.case import Case, Protocol
from advisor.engine.terms.workloads.kinds import EMBEDDING
from advisor.engine.terms.workloads.workload import Lengths, Trace, Workload
from tests.engine.catalog_sample import LLAMA_8B, question
from tests.engine.serving_cases import lane
from tests.engine.step.test_operators import ATTENTION, chips, model, product, times, totals

BOTH_WAYS = replace(ATTENTION, causal=False)
ENCODER = Block(count=2, mixer=BOTH_WAYS, ffn=Ffn(inner=10), stage="encoder")
CROSS = Block(count=3, mixer=replace(BOTH_WAYS, cross=True), ffn=None)
TEXT = replace(model(None), blocks=(ENCODER, CROSS), source_tokens=512, max_context_tokens=200, start_tokens=2)
SPEECH = replace(TEXT, slug="speech", source_tokens=1500, source_s=30.0)
BERT = replace(model(BOTH_WAYS, Ffn(inner=10)), encoder_only=True, max_context_tokens=512)
VECTORS = replace(LLAMA_8B, encoder_only=True)  # a decoder asked for vectors


def of(tokens: float) -> Lengths:
    return Lengths(mean_tokens=tokens, p95_tokens=tokens)


# --- which kind it is -------------------------------------------------------------------------------------------


def test_kinds_of_encoders():
    kinds = (LLAMA_8B, TEXT, BERT, VECTORS)
    assert [has_decoder_beside(m) for m in kinds] == [False, True, False, False]
    assert [whole_prompts(m) for m in kinds] == [False, False, True, False]
    assert [has_encoder(m) for m in kinds] == [False, True, True, False]


def test_audio_is_padded_to_its_window_and_text_has_at_least_a_token():
    assert [computed_source_tokens(m, 100) for m in (LLAMA_8B, TEXT, SPEECH)] == [0, 100, 1500]
    assert computed_source_tokens(TEXT, 0.2) == 1


# --- questions --------------------------------------------------------------------------------------------------


def case(**changes: Any) -> Case:
    values = {"model_id": "m", "accelerator_slug": "a", "chips": 1, "weights_dtype": "bf16", "isl": 100.0, "osl": 50.0,
              "framework": "f", "framework_version": "1", "phase": "serving", "client": Protocol(kind="steady"),
              "mode": "agg"}  # fmt: skip
    return Case(**values | changes)


def test_a_source_moves_out_of_the_prompt_once():
    found = as_scheduled(case(), TEXT)
    assert (found.source_tokens, found.isl, found.osl) == (100, 2, 50)
    assert as_scheduled(found, TEXT) == found
    assert as_scheduled(case(), LLAMA_8B) == case()
    assert as_scheduled(case(), BERT).osl == 1


def test_sources_are_as_long_as_the_lengths_that_are_drawn():
    drawn = case(source_tokens=100.0, client=Protocol(kind="steady", length_low_fraction=0.5, length_high_fraction=0.8))
    assert mean_source_tokens(drawn, TEXT) == pytest.approx(65)
    assert mean_source_tokens(drawn, SPEECH) == 1500


TRACE = Trace(arrival_s=(0.0, 1.0), input_tokens=(10, 20), output_tokens=(5, 6))


def test_an_embedding_makes_one_vector_and_keeps_a_prefix_only_where_tokens_look_back():
    asked = question(kind=EMBEDDING, prefix_cache_hit_fraction=0.5, trace=TRACE)
    both_ways, m = normalize(asked, BERT)
    assert both_ways.output_tokens == of(1) and both_ways.prefix_cache_hit_fraction == 0 and m.encoder_only
    assert both_ways.trace and both_ways.trace.output_tokens == (1, 1) and both_ways.trace.input_tokens == (10, 20)
    backwards, m = normalize(asked, LLAMA_8B)
    assert backwards.prefix_cache_hit_fraction == 0.5 and m.encoder_only
    assert normalize(*normalize(asked, BERT)) == normalize(asked, BERT)


def test_the_input_of_an_encoder_decoder_is_its_source():
    asked = question(prefix_cache_hit_fraction=0.5, trace=TRACE)
    found, m = normalize(asked, TEXT)
    assert (found.source_tokens, found.input_tokens, m) == (asked.input_tokens, of(2), TEXT)
    assert found.prefix_cache_hit_fraction == 0 and found.output_tokens == asked.output_tokens
    assert found.trace and (found.trace.input_tokens, found.trace.output_tokens) == ((2, 2), (5, 6))
    assert normalize(found, TEXT) == (found, TEXT)
    assert normalize(asked, LLAMA_8B) == (replace(asked, context_tokens=131_072), LLAMA_8B)


def asks(tokens: float, output: float = 10, **changes: Any) -> Workload:
    return question(input_tokens=of(tokens), output_tokens=of(output), **changes)


@pytest.mark.parametrize(("workload", "m", "says"), [
    (asks(10), BERT, "ask with kind: embedding"), (asks(10, kind=EMBEDDING), TEXT, "ask with kind: serving"),
    (asks(1501), SPEECH, "one window of 30 s, at most 1,500 input tokens"),
    (asks(513, kind=EMBEDDING), BERT, "reads at most 512 tokens"),
    (asks(10, 191), TEXT, ""), (asks(400, 201), TEXT, "201 tokens on average, but the model's context ends at 200"),
    (asks(131_000, 73), LLAMA_8B, "131,073 tokens on average"),
])  # fmt: skip
def test_a_question_that_the_model_cannot_answer_says_what_to_ask(workload, m, says):
    found = model_mismatch(workload, m)
    assert says in found if says else not found


def of_both(inputs: Lengths, outputs: Lengths, **changes: Any) -> Workload:
    return question(input_tokens=inputs, output_tokens=outputs, **changes)


@pytest.mark.parametrize(("workload", "m", "says"), [
    (of_both(Lengths(mean_tokens=40_000, p95_tokens=140_000), of(100)), LLAMA_8B, "prompts are 140,000 tokens at p95"),
    (of_both(of(100), Lengths(mean_tokens=50_000, p95_tokens=150_000)), LLAMA_8B, "answers are 150,000 tokens at p95"),
    (of_both(Lengths(mean_tokens=40_000, p95_tokens=100_000), Lengths(mean_tokens=20_000, p95_tokens=40_000)), LLAMA_8B,
     "prompt and answer together are 140,000 tokens at p95"),
    (of_both(Lengths(mean_tokens=200, p95_tokens=600), of(10), kind=EMBEDDING), BERT, "600 tokens at p95"),
    (asks(10, trace=Trace(arrival_s=(0.0, 1.0), input_tokens=(10, 140_000), output_tokens=(5, 6))), LLAMA_8B,
     "recorded prompt and answer together are 140,006 tokens at p95"),
    (of_both(Lengths(mean_tokens=40_000, p95_tokens=100_000), Lengths(mean_tokens=20_000, p95_tokens=31_072)), LLAMA_8B,
     ""),
])  # fmt: skip
def test_a_p95_beyond_the_context_is_refused_like_a_mean(workload, m, says):
    found = model_mismatch(workload, m)
    assert says in found if says else not found


def test_the_largest_questions_that_suit():
    assert model_mismatch(asks(1500), SPEECH) == model_mismatch(asks(512, kind=EMBEDDING), BERT) == ""
    assert model_mismatch(asks(400, 200), TEXT) == model_mismatch(asks(131_000, 72), LLAMA_8B) == ""
    assert model_mismatch(normalize(asks(1500), SPEECH)[0], SPEECH) == ""
    assert "1,500" in model_mismatch(normalize(asks(1501), SPEECH)[0], SPEECH)


# --- a source ---------------------------------------------------------------------------------------------------


def source(m: Model, tokens: float, **changes: float) -> dict[str, tuple[float, float, float]]:
    return totals(source_operators(m, chips(**changes), np.array([tokens])))


def test_a_source_runs_through_the_encoder_and_is_projected_for_the_decoder():
    """2 layers; scores of 50 x 50 pairs of 4 heads x 6 numbers; 2 KV heads x 6 columns for each of 3 cross layers."""
    found = source(TEXT, 50)
    assert found["encoder/embedding"] == pytest.approx((0, 50 * 8 * 4, 50 * 8 * 4 / 10 + 1))
    assert found["encoder/attention_qkv"] == times(2, product(50, 24, 8))
    flops, moved = 2 * 4 * 6 * 50 * 50, 2 * 2 * 4 * 6 * 50
    assert found["encoder/attention_scores"] == times(2, (flops, moved, max(flops / 25, moved / 10)))
    assert found["cross_attention/source_kv"] == times(3, product(50, 12, 8))
    few = source(TEXT, 1)["encoder/attention_scores"]
    assert few[2] == pytest.approx(2 * max(48 / 25, 96 / 10))  # read and written, not multiplied


@pytest.mark.parametrize(("tokens", "bound"), [(1, "memory"), (50, "compute")])
def test_a_long_source_is_bound_by_its_scores_and_a_short_one_by_memory(tokens, bound):
    found = {op.name: op for op in source_operators(TEXT, chips(), np.array([float(tokens)]))}
    assert found["encoder/attention_scores"].bound == bound


def test_many_chips_share_the_projection_down_to_one_head():
    assert source(TEXT, 50, tp=2.0)["cross_attention/source_kv"] == times(3, product(50, 6, 8))
    assert source(TEXT, 50, tp=4.0)["cross_attention/source_kv"] == times(3, product(50, 6, 8))


def test_seconds_of_a_source_are_those_of_its_operators_and_none_without_an_encoder():
    assert source_s(TEXT, chips(), np.array([50.0])) == pytest.approx(
        sum(line[2] for line in source(TEXT, 50).values())
    )
    assert source_s(LLAMA_8B, chips(), np.array([50.0])).tolist() == [0]
    assert not source(model(ATTENTION), 50)


def test_a_step_reads_the_source_in_every_cross_layer():
    """3 layers x 50 tokens; 12 numbers of a byte, 48 FLOPs a token and layer; halved on two chips."""
    found = [float(value[0]) for value in cross_read(TEXT, chips(), np.array([50.0]))]
    assert found == pytest.approx([150 * (48 / 25 + 1.2), 150 * 48, 150 * 12])
    halved = [float(value[0]) for value in cross_read(TEXT, chips(tp=2.0), np.array([50.0]))]
    assert halved == pytest.approx([value / 2 for value in found])
    assert float(cross_read(TEXT, chips(tp=4.0), np.array([50.0]))[2][0]) == 150 * 6


# --- vectors under load -----------------------------------------------------------------------------------------

# 1 s a step and 0.01 s a token; prompts of 100 tokens: a step of n of them takes 1 + n seconds
STEPS = lane(linear_s=1 + 0.01 * 2.0 ** np.arange(16), request_s=0.5)
VECTOR = Demand(input_tokens=100.0, output_tokens=1.0)


def scheduler(tokens: int) -> Scheduler:
    return Scheduler(max_batched_tokens=tokens)


@pytest.mark.parametrize(
    ("tokens", "seats", "most"), [(450, 64, 4), (400, 64, 4), (450, 3, 3), (50, 64, 1), (450, 0, 1)]
)
def test_a_full_step_holds_whole_prompts_in_its_tokens_and_seats(tokens, seats, most):
    load = load_of(STEPS, VECTOR, 0)
    assert full_batch(load, scheduler(tokens), np.array([float(seats)])) == [most]


def test_capacity_is_that_of_full_steps():
    """4 prompts every 5 s; with one seat, one every 2 s."""
    found = batch_capacity_requests_per_s(STEPS, np.array([64.0]), VECTOR, scheduler(400))
    assert found == pytest.approx([4 / 5])
    both = batch_capacity_requests_per_s(STEPS, np.array([[64.0, 1.0]]), VECTOR, scheduler(400))
    assert both == pytest.approx(np.array([[4 / 5, 1 / 2]]))


def p95_s(rate: float, times_: StepTimes = STEPS) -> float:
    return float(batch_latency_p95_s(times_, np.array([rate]), np.array([64.0]), VECTOR, scheduler(400))[0])


def test_a_lone_request_waits_for_its_own_step():
    assert p95_s(1e-9) == pytest.approx(0.5 + 2)


def test_a_busy_server_is_waited_for_up_to_the_rest_of_its_step():
    """0.2 requests/s: a step of one lasts 2 s, so it is busy 40 % of the time; a quarter of capacity adds little."""
    queue_s = 5 * 0.25**4 / (2 * 0.75)
    assert p95_s(0.2) == pytest.approx(0.5 + 2 * (1 + 0.95 * 0.4) + queue_s)


def by_hand(rate: float) -> float:
    """Always busy: a step holds those that came during the one before; queues of at most 97 % of capacity."""
    batch = 1.0
    for _ in range(8):
        batch = min(max(rate * (1 + batch), 1), 4)
    used = min(rate * 5 / 4, 0.97)
    return 0.5 + (1 + batch) * 1.95 + 5 * used**4 / (2 * (1 - used))


@pytest.mark.parametrize("rate", [0.5, 0.75, 0.79, 0.799])
def test_steps_hold_those_that_came_during_the_one_before_and_a_queue_forms_near_capacity(rate):
    assert p95_s(rate) == pytest.approx(by_hand(rate))


def test_nothing_is_waited_for_that_never_comes():
    assert p95_s(0.8) == p95_s(0.9) == np.inf
    assert np.isfinite(p95_s(0.799))


def test_only_a_request_to_an_idle_server_waits_for_its_preparation():
    prepared = replace(STEPS, prepare_s=np.array([10.0]), prompt_floor_s=np.array([0.0]))
    assert p95_s(1e-9, prepared) == pytest.approx(0.5 + 10)
    assert p95_s(0.75, prepared) == pytest.approx(p95_s(0.75))


def test_attention_of_an_encoder_alone_looks_both_ways():
    assert isinstance(BERT.blocks[0].mixer, Attention) and not BERT.blocks[0].mixer.causal
