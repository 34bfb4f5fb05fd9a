"""Encoders against arithmetic done by hand: FLOPs, bytes and caches of T5-XXL, Whisper and BERT; nothing undefined."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.engine.network.hf_config import from_hf_config
from advisor.engine.network.model import parameters
from advisor.engine.scheduler.closed_form import closed_loop
from advisor.engine.scheduler.percentiles import scheduler_of
from advisor.engine.scheduler.simulation import simulate
from advisor.engine.search import Question
from advisor.engine.search.run import search
from advisor.engine.step.compatibility.support import mixers_of, supports_model
from advisor.engine.step.lane import lanes
from advisor.engine.step.lane_times import prefill_s, step_s
from advisor.engine.step.layout import layouts
from advisor.engine.step.ledger import decode_ledger, prefill_ledger
from advisor.engine.step.media.encoder import (
    batch_capacity_requests_per_s,
    batch_latency_p95_s,
    computed_source_tokens,
    model_mismatch,
    normalize,
    source_operators,
    source_s,
    whole_prompts,
)
from advisor.engine.step.memory import kv_bytes_per_sequence, source_bytes_per_sequence, weights_bytes
from advisor.engine.step.step_time import POISSON, STATIC, Client, Demand
from advisor.engine.terms.workloads.kinds import EMBEDDING, SERVING
from advisor.engine.terms.workloads.workload import Constraints, Lengths, Slo
from tests.engine.catalog_sample import BF16, LLAMA_8B, SGLANG, VLLM, catalog, chip, lane, question, software
from tests.engine.hf_configs import CONFIGS
from tests.engine.network.test_model_seq2seq import BART, FLAN_XXL, WHISPER
from tests.engine.search.test_properties import EXTRA, REACHED

T5 = from_hf_config(FLAN_XXL, "t5-xxl")  # 24 + 24 layers of 4096, 64 heads of 64, gated feed-forward of 10240
SPEECH = from_hf_config(WHISPER, "whisper")  # 32 + 32 layers of 1280, 20 heads of 64, feed-forward of 5120
BERT = from_hf_config(CONFIGS["google-bert/bert-large-uncased"], "bert")  # 24 layers of 1024, 16 heads of 64, 4096
COMMON = settings(max_examples=25, deadline=None, derandomize=True)


def beside(model, tokens, **sizes):
    """A lane with ideal kernels whose encoder reads this source."""
    source = computed_source_tokens(model, tokens)
    return replace(lane(chip("any"), context=101.0, **sizes), source_tokens=source, whole_prompts=whole_prompts(model))


def flops_of(lines, *names):
    return sum(line.flops for line in lines if line.operator in names)


def encoder_flops(lines):
    return sum(line.flops for line in lines if line.operator.startswith("encoder/"))


def test_the_encoder_of_t5_xxl_multiplies_what_its_shape_says():
    s, h, inner, layers = 512, 4096, 10240, 24
    lines = prefill_ledger(T5, lanes(T5, [beside(T5, s)]), 0, T5.start_tokens)
    projections = layers * 2 * s * 4 * h * h
    feed_forward = layers * 2 * s * 3 * h * inner
    scores = layers * 2 * 2 * s * s * h  # both ways: no causal half
    assert encoder_flops(lines) == pytest.approx(projections + feed_forward + scores)
    assert flops_of(lines, "cross_attention/source_kv") == layers * 2 * s * 2 * h * h


def test_the_encoder_of_whisper_multiplies_what_its_shape_says_whatever_the_length():
    s, h, inner, layers = 1500, 1280, 5120, 32
    expected = layers * (2 * s * (4 * h * h + 2 * h * inner) + 4 * s * s * h)
    for asked in (1, 400, 1500):
        lines = prefill_ledger(SPEECH, lanes(SPEECH, [beside(SPEECH, asked)]), 0, SPEECH.start_tokens)
        assert encoder_flops(lines) == pytest.approx(expected)


def test_a_decode_step_reads_both_caches_and_projects_no_source():
    """T5-XXL: 24 layers x keys and values x 4096 x 2 bytes, of 512 source tokens and of the context."""
    built = lanes(T5, [beside(T5, 512)])
    lines = {line.operator: line for line in decode_ledger(T5, built, 0, 8, 100)}
    assert lines["cross_attention/kv_read"].bytes == 8 * 512 * 24 * 2 * 4096 * 2
    assert lines["attention/kv_read"].bytes == 8 * 100 * 24 * 2 * 4096 * 2
    assert lines["cross_attention/qkv"].flops == 24 * 2 * 8 * 4096 * 4096  # the query alone
    assert not any("source" in name or name.startswith("encoder") for name in lines)


@pytest.mark.parametrize(
    ("model", "tokens", "expected"),
    [
        (T5, 512, 512 * 24 * 2 * 4096 * 2),
        (SPEECH, 1500, 1500 * 32 * 2 * 1280 * 2),
        (SPEECH, 10, 1500 * 32 * 2 * 1280 * 2),
    ],
)
def test_the_cache_of_a_source_is_held_beside_that_of_the_answer(model, tokens, expected):
    w = beside(model, tokens)
    room = lanes(model, [w]).memory
    x = layouts(model, [w.choice])
    assert room.source_bytes_per_sequence[0] == expected
    assert room.kv_bytes_per_sequence[0] == pytest.approx(expected + kv_bytes_per_sequence(model, x, 101.0)[0])


def test_tensor_parallelism_splits_the_cache_of_a_source():
    one, four = (layouts(T5, [beside(T5, 512, tp=tp).choice]) for tp in (1, 4))
    assert source_bytes_per_sequence(T5, four, 512.0)[0] * 4 == source_bytes_per_sequence(T5, one, 512.0)[0]


@pytest.mark.parametrize("model", [T5, SPEECH, BERT], ids=lambda m: m.slug)
def test_the_weights_of_a_16_bit_checkpoint_are_two_bytes_each(model):
    x = layouts(model, [lane(chip("any")).choice])
    assert weights_bytes(model, x)[0] == pytest.approx(2 * parameters(model), rel=0.005)


@COMMON
@given(st.sampled_from([T5, SPEECH, BERT]), st.sampled_from([1, 2, 4]), st.integers(1, 1500), st.integers(1, 256))
def test_the_ledgers_of_every_kind_add_up_and_nothing_is_undefined(model, tp, tokens, sequences):
    w = beside(model, tokens, tp=tp)
    built = lanes(model, [w])
    prompt = 3.0 * sequences if model is BERT else float(model.start_tokens)
    lines = prefill_ledger(model, built, 0, prompt)
    assert np.isclose(sum(line.time_s for line in lines), prefill_s(built, 0, prompt), rtol=1e-9)
    if model is not BERT:
        decode = decode_ledger(model, built, 0, sequences, 50)
        assert np.isclose(sum(line.time_s for line in decode), step_s(built, 0, sequences, 50), rtol=1e-9)
        lines += decode
    assert all(np.isfinite([line.time_s, line.flops, line.bytes]).all() for line in lines)
    room = built.memory
    parts = room.weights_bytes + room.activations_bytes + room.overhead_bytes + room.kv_bytes
    assert np.isclose(parts[0], room.usable_bytes[0])


@COMMON
@given(st.sampled_from([T5, SPEECH]), st.integers(1, 1400), st.floats(1.0, 4.0))
def test_twice_the_source_never_costs_less_and_a_faster_chip_never_takes_longer(model, tokens, factor):
    x = layouts(model, [beside(model, 1).choice])
    now, longer = (source_s(model, x, np.array([float(n)]))[0] for n in (tokens, 2 * tokens))
    assert 0 < now <= longer
    fast = replace(beside(model, 1).choice, accelerator=chip("any", memory_bytes_per_s=3.35e12 * factor))
    assert source_s(model, layouts(model, [fast]), np.array([float(tokens)]))[0] <= now


def test_a_decoder_has_no_source():
    w = lane(chip("any"))
    x = layouts(LLAMA_8B, [w.choice])
    assert source_s(LLAMA_8B, x, np.array([512.0]))[0] == 0
    assert lanes(LLAMA_8B, [w]).memory.source_bytes_per_sequence[0] == 0
    assert list(source_operators(LLAMA_8B, x, np.array([512.0]))) == []


# --- an encoder alone -------------------------------------------------------------------------------------------


def test_bert_multiplies_what_its_shape_says_and_keeps_no_cache():
    s, h, inner, layers = 512, 1024, 4096, 24
    built = lanes(BERT, [beside(BERT, 0)])
    lines = prefill_ledger(BERT, built, 0, s)
    expected = layers * (2 * s * (4 * h * h + 2 * h * inner) + 4 * s * s * h)
    assert sum(line.flops for line in lines) == pytest.approx(expected)
    assert built.memory.kv_bytes_per_sequence[0] == 0
    assert not any(line.operator == "lm_head" for line in lines)
    scores = next(line for line in lines if line.operator == "attention/scores")
    assert scores.bytes == layers * 2 * s * 2 * h  # keys and values, 16 bits


def test_a_prompt_that_looks_both_ways_is_never_cut():
    assert not scheduler_of(beside(BERT, 0)).chunked_prefill
    assert scheduler_of(lane(chip("any"))).chunked_prefill


def test_a_decoder_asked_for_vectors_loses_its_head_and_keeps_its_cache():
    asked, model = normalize(replace(question(), kind=EMBEDDING), LLAMA_8B)
    assert asked.output_tokens.mean_tokens == 1 and not whole_prompts(model)
    x = layouts(LLAMA_8B, [lane(chip("any")).choice])
    assert weights_bytes(LLAMA_8B, x)[0] - weights_bytes(model, x)[0] == 128256 * 4096 * 2
    assert kv_bytes_per_sequence(model, x, 10.0)[0] == kv_bytes_per_sequence(LLAMA_8B, x, 10.0)[0] > 0


# --- who can serve it -------------------------------------------------------------------------------------------


def test_what_a_framework_must_know():
    assert mixers_of(T5) == {"attention", "cross-attention"}
    assert mixers_of(SPEECH) == {"attention", "speech"}
    assert mixers_of(BERT) == {"attention", "encoder"}
    knowing = replace(VLLM, mixers=("attention", "encoder"))
    assert not supports_model(knowing, BERT)  # it knows the layers, but not how to give vectors
    assert supports_model(replace(knowing, features=("embedding",)), BERT)


@pytest.mark.parametrize(
    ("kind", "model", "tokens", "says"),
    [
        (SERVING, BERT, 100, "kind: embedding"),
        (EMBEDDING, T5, 100, "kind: serving"),
        (SERVING, SPEECH, 3000, "one window of 30 s, at most 1,500"),
        (EMBEDDING, BERT, 4000, "at most 512 tokens"),
        (SERVING, LLAMA_8B, 140_000, "context ends at 131,072"),
        (SERVING, LLAMA_8B, 130_000, ""),
        (SERVING, SPEECH, 1500, ""),
        (SERVING, T5, 3000, ""),
    ],
)
def test_a_question_that_does_not_suit_the_model_says_what_to_ask(kind, model, tokens, says):
    lengths = Lengths(mean_tokens=tokens, p95_tokens=tokens)
    asked = replace(question(output_tokens=Lengths(mean_tokens=200, p95_tokens=400)), kind=kind, input_tokens=lengths)
    why = model_mismatch(asked, model)
    assert says in why and bool(why) == bool(says)
    if says:
        answer = search(Question(asked, catalog(model=model)))
        told = {r.accelerator: r.detail for r in answer.rejections}
        assert not answer.ranked and all(says in told[slug] for slug in ("big", "small", "tiny"))


def fitting(model):
    frameworks = [
        replace(f, features=("embedding",), mixers=("attention", "encoder", "speech")) for f in (VLLM, SGLANG)
    ]
    tgi = replace(VLLM, slug="tgi", name="TGI", **software("tgi"), mixers=("attention", "cross-attention"))
    return catalog(model=model, frameworks=(*frameworks, tgi))


@pytest.mark.parametrize("objective", ["cost", "latency", "throughput", "energy", "balanced"])
@pytest.mark.parametrize("model", [T5, SPEECH, from_hf_config(BART, "bart")], ids=lambda m: m.slug)
def test_an_encoder_decoder_is_advised(model, objective):
    asked = replace(
        question(objective=objective, slo=Slo(e2e_p95_s=30.0)),
        input_tokens=Lengths(mean_tokens=400, p95_tokens=900),
        output_tokens=Lengths(mean_tokens=80, p95_tokens=160),
    )
    answer = search(Question(asked, fitting(model)))
    assert answer.ranked
    for s in answer.ranked:
        assert s.lane.framework.slug == ("tgi" if model is not SPEECH else s.lane.framework.slug)
        assert 0 < s.memory.source_kv_bytes < s.memory.kv_bytes
        assert np.isfinite([s.usd_per_hour, s.verified.ttft_p95_s, s.verified.tpot_p95_s]).all()
        assert s.verified.e2e_p95_s <= 30


@pytest.mark.parametrize("objective", ["cost", "latency", "throughput", "energy", "balanced"])
def test_embeddings_are_advised_by_one_latency(objective):
    asked = replace(
        question(objective=objective, slo=Slo(e2e_p95_s=0.5)),
        kind=EMBEDDING,
        input_tokens=Lengths(mean_tokens=256, p95_tokens=500),
        requests_per_s_mean=50.0,
        requests_per_s_peak=100.0,
    )
    answer = search(Question(asked, fitting(BERT)))
    assert answer.ranked
    for s in answer.ranked:
        assert s.verified.tpot_p95_s == 0 and 0 < s.verified.ttft_p95_s <= 0.5
        assert s.memory.kv_bytes == 0 and s.capacity_requests_per_s >= 100
    again = search(Question(replace(asked, slo=Slo(e2e_p95_s=1e-4)), fitting(BERT)))
    assert not again.ranked and any(r.reason == "misses_slo" for r in again.rejections)


def test_the_sum_of_embeddings_served_follows_the_arithmetic():
    """No chip serves more sequences than its dense rate allows: 2 x 302 M weights x 256 tokens and the scores."""
    asked = replace(
        question(slo=Slo(), constraints=Constraints(accelerators_allow=("big",), quality="lossless")),
        kind=EMBEDDING,
        input_tokens=Lengths(mean_tokens=256, p95_tokens=256),
    )
    (best,) = search(Question(asked, fitting(BERT))).ranked
    flops = 24 * (2 * 256 * 12 * 1024 * 1024 + 4 * 256 * 256 * 1024)
    assert best.lane.choice.quantization == BF16
    assert best.capacity_requests_per_s / best.replicas < 9.89e14 / flops


# --- closed forms against the scheduler -------------------------------------------------------------------------


def of_tokens(tokens):
    return Lengths(mean_tokens=float(tokens), p95_tokens=float(tokens))


@pytest.mark.parametrize("slots", [4, 64])
@pytest.mark.parametrize("tokens", [64, 256, 512])
def test_the_capacity_for_vectors_is_that_of_the_simulation_and_its_p95_is_near(tokens, slots):
    w = replace(beside(BERT, 0), context_tokens=tokens + 1.0, max_running_requests=slots)
    w = replace(w, choice=replace(w.choice, efficiency=REACHED, overhead=EXTRA))
    times, scheduler = lanes(BERT, [w]).times, scheduler_of(w)
    demand, room = Demand(input_tokens=float(tokens), output_tokens=1.0), np.array([float(slots)])
    capacity = batch_capacity_requests_per_s(times, room, demand, scheduler)
    full = simulate(times, 0, scheduler, Client(), of_tokens(tokens), of_tokens(1), concurrency=256, requests=4000)
    assert full.requests_per_s == pytest.approx(capacity[0], rel=0.02)
    for used in (0.1, 0.3, 0.6, 0.8):
        client = Client(kind=POISSON, rate_per_s=float(capacity[0]) * used)
        seen = simulate(times, 0, scheduler, client, of_tokens(tokens), of_tokens(1), requests=2000)
        p95_s = batch_latency_p95_s(times, capacity * used, room, demand, scheduler)[0]
        assert 0.45 < p95_s / seen.percentile("ttft_s", 95) < 1.6
    assert batch_latency_p95_s(times, capacity * 1.01, room, demand, scheduler)[0] == np.inf


@pytest.mark.parametrize(("model", "source", "output"), [(SPEECH, 1500, 90), (T5, 400, 80)])
def test_the_closed_forms_of_encoder_decoders_agree_with_the_simulation(model, source, output):
    start = float(model.start_tokens)
    w = replace(beside(model, source), context_tokens=start + output, max_running_requests=64)
    w = replace(w, choice=replace(w.choice, efficiency=REACHED, overhead=EXTRA))
    times, scheduler = lanes(model, [w]).times, scheduler_of(w)
    demand = Demand(input_tokens=start, output_tokens=float(output))
    for users in (1, 8, 64):
        form = closed_loop(times, np.array([float(users)]), demand, scheduler)
        seen = simulate(
            times, 0, scheduler, Client(), of_tokens(start), of_tokens(output), concurrency=users, requests=600
        )
        assert form.requests_per_s[0] == pytest.approx(seen.requests_per_s, rel=0.06)
        assert form.tpot_mean_s[0] == pytest.approx(seen.mean("tpot_s"), rel=0.05)
        assert form.ttft_mean_s[0] == pytest.approx(seen.mean("ttft_s"), rel=0.2)


def test_an_encoder_runs_once_for_a_request_whatever_its_answer():
    """Two requests alone: the longer answer adds decode steps and no second encoder."""
    w = replace(beside(SPEECH, 1500), context_tokens=104.0)
    built = lanes(SPEECH, [w])
    times = replace(built.times, source_s_per_sequence=np.array([5.0]))
    client = Client(kind=STATIC)
    short, long = (simulate(times, 0, scheduler_of(w), client, of_tokens(4), of_tokens(n)) for n in (10, 100))
    assert short.e2e_s[0] == pytest.approx(5, abs=0.1) and long.e2e_s[0] == pytest.approx(5, abs=0.5)


def test_a_server_that_prepares_speech_on_its_host_is_no_faster_than_that():
    """The slower of host and encoder sets the pace of the sources; text and servers without HTTP have no such work."""
    wanted = beside(SPEECH, 1500.0)
    slow = replace(wanted, framework=replace(wanted.framework, audio_window_s=0.5))
    fast = replace(wanted, framework=replace(wanted.framework, audio_window_s=1e-6))
    own, held, free = (float(lanes(SPEECH, [each]).times.source_s_per_sequence[0]) for each in (wanted, slow, fast))
    assert held == 0.5 > own == free > 0
    inside = lanes(SPEECH, [replace(slow, http=False)])
    assert float(inside.times.source_s_per_sequence[0]) == own
    text = beside(T5, 512.0)
    with_host = replace(text, framework=replace(text.framework, audio_window_s=0.5))
    assert lanes(T5, [with_host]).times.source_s_per_sequence == lanes(T5, [text]).times.source_s_per_sequence
