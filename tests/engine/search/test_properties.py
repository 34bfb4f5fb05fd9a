"""What must hold of any chip: more of anything never hurts, parts add up, nothing is undefined."""

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.engine.search import Question
from advisor.engine.search.run import search
from advisor.engine.step.lane import Lane, lanes, memory
from advisor.engine.step.lane_times import prefill_s, step_s
from advisor.engine.step.layout import Choice, layouts
from advisor.engine.step.ledger import decode_ledger, prefill_ledger
from advisor.engine.step.operators import linear_operators, linear_s
from advisor.engine.terms.machines.hardware import Efficiency, Overhead, efficiency, overhead
from tests.engine.catalog_sample import BF16, FP8, INT4, LLAMA_8B, VLLM, catalog, chip, question, scopes

COMMON = settings(max_examples=40, deadline=None, derandomize=True)
REACHED: Efficiency = efficiency(scopes(), "sample", "sample", "gpu")
EXTRA: Overhead = overhead(scopes(), "vllm", "0.24.0")
forms = st.sampled_from([BF16, FP8, INT4])
sizes = st.sampled_from([1, 2, 4, 8])
factors = st.floats(1.0, 4.0)
tokens = st.integers(1, 20_000)


def lane_of(form, tp: int, **changes) -> Lane:
    choice = Choice(
        accelerator=chip("any", **changes),
        efficiency=REACHED,
        overhead=EXTRA,
        quantization=form,
        kv_dtype="bf16",
        tp=tp,
    )
    return Lane(choice=choice, framework=VLLM, context_tokens=2000, max_batched_tokens=8192, max_running_requests=256)


def seconds(lane: Lane, sequences: int, context: int) -> tuple[float, float]:
    built = lanes(LLAMA_8B, [lane])
    return step_s(built, 0, sequences, context), prefill_s(built, 0, context)


@COMMON
@given(forms, sizes, factors, st.integers(1, 512), tokens)
def test_more_bandwidth_is_never_slower(form, tp, factor, sequences, context):
    slow, fast = (lane_of(form, tp, memory_bytes_per_s=3e12 * f) for f in (1, factor))
    for before, after in zip(seconds(slow, sequences, context), seconds(fast, sequences, context), strict=True):
        assert after <= before * (1 + 1e-9)


@COMMON
@given(forms, sizes, factors, st.integers(1, 512), tokens)
def test_more_arithmetic_is_never_slower(form, tp, factor, sequences, context):
    rates = {"bf16": 9e14, "fp8": 1.8e15, "fp32": 6e13}
    slow, fast = (lane_of(form, tp, flops_per_s={k: v * f for k, v in rates.items()}) for f in (1, factor))
    for before, after in zip(seconds(slow, sequences, context), seconds(fast, sequences, context), strict=True):
        assert after <= before * (1 + 1e-9)


@COMMON
@given(forms, sizes, factors)
def test_more_memory_never_holds_fewer_tokens(form, tp, factor):
    both = [lane_of(form, tp, memory_bytes=4e10 * f) for f in (1, factor)]
    room = memory(LLAMA_8B, layouts(LLAMA_8B, [w.choice for w in both]), both)
    assert room.kv_capacity_tokens[1] >= room.kv_capacity_tokens[0]


@COMMON
@given(forms, sizes, st.integers(1, 512), tokens)
def test_a_longer_context_or_a_larger_batch_never_takes_less_time(form, tp, sequences, context):
    lane = lane_of(form, tp)
    now = seconds(lane, sequences, context)
    assert seconds(lane, sequences + 1, context)[0] >= now[0]
    assert seconds(lane, sequences, context + 1)[1] >= now[1]


@COMMON
@given(forms, sizes, st.integers(1, 8192))
def test_the_operators_add_up_to_the_linear_time(form, tp, count):
    x = layouts(LLAMA_8B, [lane_of(form, tp).choice])
    at = np.array([float(count)])
    total = sum(float(np.ravel(op.time_s)[0]) for op in linear_operators(LLAMA_8B, x, at))
    assert np.isclose(total, linear_s(LLAMA_8B, x, at).item())


@COMMON
@given(forms, sizes, st.integers(1, 600), st.integers(16, 60_000))
def test_the_ledgers_lines_add_up_to_the_step(form, tp, sequences, context):
    built = lanes(LLAMA_8B, [lane_of(form, tp)])
    decode = sum(line.time_s for line in decode_ledger(LLAMA_8B, built, 0, sequences, context))
    assert np.isclose(decode, step_s(built, 0, sequences, context), rtol=1e-9)
    prefill = sum(line.time_s for line in prefill_ledger(LLAMA_8B, built, 0, context))
    assert np.isclose(prefill, prefill_s(built, 0, context), rtol=1e-9)


@COMMON
@given(forms, sizes, st.floats(1e9, 3e11))
def test_memory_parts_add_up_and_stay_within_the_chip(form, tp, bytes_there):
    lane = lane_of(form, tp, memory_bytes=bytes_there)
    room = memory(LLAMA_8B, layouts(LLAMA_8B, [lane.choice]), [lane])
    parts = room.weights_bytes + room.activations_bytes + room.overhead_bytes + room.kv_bytes
    assert np.isclose(parts[0], room.usable_bytes[0]) and room.usable_bytes[0] <= bytes_there
    assert room.fits[0] == (room.kv_bytes[0] >= room.kv_bytes_per_sequence[0])


@COMMON
@given(forms, sizes, st.integers(1, 512), tokens)
def test_no_step_time_is_undefined(form, tp, sequences, context):
    assert all(np.isfinite(s) and s > 0 for s in seconds(lane_of(form, tp), sequences, context))


def test_an_unknown_power_draw_leaves_the_answer_whole():
    known = catalog()
    chips = tuple(replace(a, watts=float("nan"), idle_watts=float("nan")) for a in known.accelerators)
    for objective in ("cost", "energy", "carbon", "balanced", "latency", "throughput"):
        answer = search(Question(replace(question(), objective=objective), replace(known, accelerators=chips)))
        assert answer.ranked and all(np.isfinite(s.usd_per_hour) for s in answer.ranked)
