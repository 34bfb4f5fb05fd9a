"""Exercises with published answers: jax-ml/scaling-book, chapters inference and applied-inference (CC BY 4.0).

Hardware is ideal (every share 1, every fixed cost 0, links without end), as in the book. The int4 row of its table of
Llama 3-70B is left out: it says 45 GB for 70e9 x 0.5 = 35 GB.
"""

from dataclasses import replace

import numpy as np
import pytest

from advisor.engine.network.model import kv_elements_per_token, parameters
from advisor.engine.step.lane import lanes
from advisor.engine.step.lane_times import step_s
from advisor.engine.step.layout import layouts
from advisor.engine.step.memory import kv_bytes_per_sequence, weights_bytes
from advisor.engine.step.operators import attention_cost, gemm, linear_operators
from tests.engine.catalog_sample import BF16, INT8_WEIGHTS, LLAMA_70B, TPU_V5E, chip, dense, lane

# "30B parameters, int8, 100 kB of cache per token" of the pop quiz; 16 KV heads, so that 16 chips share the cache
QUIZ = dense(50, 6144, 96, 16, 64, 27776, 128)


def multiplied_s(model, wanted, tokens, context=0):
    """Seconds of the matrix multiplies and of reading the cache: what the book counts of a step."""
    x = layouts(model, [wanted.choice])
    products = sum(op.time_s.item() for op in linear_operators(model, x, np.array([float(tokens)])) if op.flops.any())
    return products + tokens * context * attention_cost(model, x).decode_s_per_context_token[0]


def test_a_square_matrix_multiply_of_4096_does_1365_operations_a_byte():
    x = layouts(LLAMA_70B, [lane(chip("any")).choice]).column()
    n = np.array([[4096.0]])
    found = gemm(x, "square", 1, n, n, 4096.0, "half")
    assert (found.flops / found.bytes).item() == pytest.approx(4096 / 3)


def test_a_cache_token_of_llama_3_70b_takes_160_kib_in_int8():
    assert kv_elements_per_token(LLAMA_70B) * 1 == 163_840
    x = layouts(LLAMA_70B, [lane(TPU_V5E, INT8_WEIGHTS, kv_dtype="int8", tp=8).choice])
    assert kv_bytes_per_sequence(LLAMA_70B, x, 1.0)[0] * 8 == 163_840


def test_32_sequences_of_8192_tokens_take_43_gb_in_int8():
    assert 32 * 8192 * kv_elements_per_token(LLAMA_70B) == pytest.approx(43e9, rel=0.01)


@pytest.mark.parametrize(("form", "chips", "gb"), [(BF16, 16, 140), (INT8_WEIGHTS, 8, 70)])
def test_llama_3_70b_takes_140_gb_in_bf16_and_70_in_int8(form, chips, gb):
    x = layouts(LLAMA_70B, [lane(TPU_V5E, form, tp=chips).choice])
    assert weights_bytes(LLAMA_70B, x)[0] * chips == pytest.approx(gb * 1e9, rel=0.04)


@pytest.mark.parametrize(("form", "kv", "chips"), [(BF16, "bf16", 16), (INT8_WEIGHTS, "int8", 8)])
def test_a_decode_step_that_reads_a_full_v5e_takes_19_ms(form, kv, chips):
    batch = 43
    wanted = lane(TPU_V5E, form, kv_dtype=kv, tp=8)
    scale = 8 / chips  # eight KV heads: the engine shares the cache over eight chips at most, the book over all
    assert multiplied_s(LLAMA_70B, wanted, batch, 8192) * scale == pytest.approx(16e9 / 8.2e11, rel=0.05)
    assert step_s(lanes(LLAMA_70B, [wanted]), 0, batch, 8192) * scale == pytest.approx(16e9 / 8.2e11, rel=0.1)


def test_an_int8_decode_step_of_one_sequence_takes_about_10_ms_on_eight_v5e():
    built = lanes(LLAMA_70B, [lane(TPU_V5E, INT8_WEIGHTS, kv_dtype="int8", tp=8)])
    assert step_s(built, 0, 1, 1) == pytest.approx(70e9 / 8 / 8.2e11, rel=0.03)


def test_a_prefill_of_8192_tokens_takes_0_91_s_at_40_percent_on_16_v5e():
    wanted = lane(replace(TPU_V5E, memory_bytes_per_s=1e18), BF16, tp=16)  # bound by arithmetic alone, as in the book
    reached = replace(wanted.choice.efficiency, matmul_16_fraction=0.4)
    wanted = replace(wanted, choice=replace(wanted.choice, efficiency=reached))
    assert multiplied_s(LLAMA_70B, wanted, 8192) == pytest.approx(0.91, rel=0.04)


@pytest.mark.parametrize(("batch", "ms"), [(4, 2.5), (256, 21.0)])
def test_the_pop_quiz_of_30b_parameters_on_16_v5e(batch, ms):
    """The activations that the book leaves out add up to 8 % to the engine's own step."""
    assert parameters(QUIZ) == pytest.approx(30e9, rel=0.01)
    wanted = lane(TPU_V5E, INT8_WEIGHTS, kv_dtype="int8", tp=16)
    assert multiplied_s(QUIZ, wanted, batch, 8192) * 1e3 == pytest.approx(ms, rel=0.04)
    assert step_s(lanes(QUIZ, [wanted]), 0, batch, 8192) * 1e3 == pytest.approx(ms, rel=0.1)
