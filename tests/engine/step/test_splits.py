"""What parallelism divides, it divides exactly: parts on all chips make up the whole, and more of them hold no less."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.engine.network.blocks import Attention, Block, Ffn, LatentAttention
from advisor.engine.network.model import Model
from advisor.engine.scheduler.closed_form import closed_loop
from advisor.engine.search import Question
from advisor.engine.search.run import search
from advisor.engine.step.layout import layouts
from advisor.engine.step.memory import kv_bytes_per_sequence, weights_bytes
from advisor.engine.step.operators import Layouts, linear_operators
from advisor.engine.step.step_time import PREFILL_FIRST, Demand, Scheduler, causal_pairs
from advisor.engine.terms.software import Quantization
from tests.engine.catalog_sample import BF16, FP8, INT4, LLAMA_8B, catalog, chip, lane, question
from tests.engine.serving_cases import lane as step_times

COMMON = settings(max_examples=25, deadline=None, derandomize=True)
forms = st.sampled_from([BF16, FP8, INT4])
MIXED_EXPERTS = Model(
    slug="experts", hidden=2048, vocab=65536,
    blocks=(Block(count=24, mixer=Attention(heads=32, kv_heads=8, head_dim=64),
                  ffn=Ffn(inner=1024, experts=64, top_k=4, shared_inner=2048)),),
)  # fmt: skip
LATENT = replace(
    MIXED_EXPERTS, slug="latent",
    blocks=(Block(count=24, mixer=LatentAttention(heads=32, q_rank=768, kv_rank=512, nope_dim=128, rope_dim=64,
                                                  v_dim=128), ffn=Ffn(inner=8192)),),
)  # fmt: skip
models = st.sampled_from([LLAMA_8B, MIXED_EXPERTS, LATENT])


def spread(model: Model, form: Quantization, **sizes: Any) -> Layouts:
    return layouts(model, [lane(chip("any"), form, routing_evenness=10.0, **sizes).choice])


@COMMON
@given(models, forms)
def test_tensor_parallelism_halves_the_same_weights_each_time_and_copies_the_rest(model, form):
    """w(n) = split / n + whole, so that w(n) - w(2n) halves with n; nothing that is copied is negative."""
    held = [weights_bytes(model, spread(model, form, tp=n))[0] for n in (1, 2, 4, 8)]
    steps = -np.diff(held)
    assert steps[0] > 0 and steps[:-1] / 2 == pytest.approx(steps[1:])
    assert held[0] - 2 * steps[0] >= 0


@COMMON
@given(models, forms, st.sampled_from([2, 4, 8]), st.integers(1, 8192))
def test_the_chips_of_a_group_do_the_arithmetic_of_one(model, form, tp, tokens):
    """What every chip computes whole is left out: latents that have no heads to split, routers, padded experts."""
    once, each = (_flops(model, form, n, tokens) for n in (1, tp))
    whole = {"moe/router", "moe/experts", "attention/down"}
    assert once.keys() == each.keys()
    for name in once.keys() - whole:
        assert each[name] * tp == pytest.approx(once[name]), name


def _flops(model: Model, form, tp: int, tokens: int) -> dict[str, float]:
    operators = linear_operators(model, spread(model, form, tp=tp), np.array([float(tokens)]))
    return {op.name: op.flops.item() for op in operators if op.flops.any()}


@COMMON
@given(models, forms, st.sampled_from([1, 2, 4]), st.integers(1, 100_000), st.sampled_from(["bf16", "fp8"]))
def test_a_cache_spread_wider_or_kept_narrower_never_takes_more_of_a_chip(model, form, tp, context, kv):
    one, wider = (
        kv_bytes_per_sequence(model, spread(model, form, tp=n, kv_dtype=kv), context)[0] for n in (tp, 2 * tp)
    )
    assert 0 < wider <= one
    deeper = kv_bytes_per_sequence(model, spread(model, form, tp=tp, pp=2, kv_dtype=kv), context)[0]
    assert deeper * 2 == pytest.approx(one)
    narrow = kv_bytes_per_sequence(model, spread(model, form, tp=tp, kv_dtype="fp8"), context)[0]
    assert narrow <= one


def test_the_first_stage_of_a_pipeline_holds_all_learned_positions():
    """Half the layers, one of two tables of the vocabulary and every position: none of the layers' share of it."""
    learned = replace(LLAMA_8B, position_embeddings=2050)  # OPT: 2,048 and two spare rows
    added = [
        weights_bytes(learned, spread(learned, BF16, pp=stages))[0]
        - weights_bytes(LLAMA_8B, spread(LLAMA_8B, BF16, pp=stages))[0]
        for stages in (1, 2)
    ]
    assert added == pytest.approx([2050 * 4096 * 2] * 2)


def test_an_encoder_in_stages_holds_its_only_table_whole():
    alone = replace(LLAMA_8B, encoder_only=True, blocks=())
    assert weights_bytes(alone, spread(alone, BF16, pp=2))[0] == pytest.approx(128256 * 4096 * 2)


@COMMON
@given(st.sampled_from(["chunked", PREFILL_FIRST]), st.integers(1, 400), st.integers(1, 100))
def test_more_users_never_wait_less_for_a_token(policy, users, more):
    demand = Demand(input_tokens=500.0, output_tokens=200.0, output_cv2=0.3)
    both = np.array([[float(users), float(users + more)]])
    found = closed_loop(step_times(), both, demand, Scheduler(policy=policy))
    before, after = found.tpot_mean_s[0]
    assert after >= before * (1 - 1e-9)


@COMMON
@given(st.integers(1, 5000), st.integers(1, 5000))
def test_the_pairs_of_a_prompt_are_counted_query_by_query(tokens, window):
    assert causal_pairs(tokens, window) == sum(min(query, window) for query in range(1, tokens + 1))
    assert causal_pairs(tokens) == tokens * (tokens + 1) / 2


@pytest.mark.parametrize("factor", [1.3, 4.0])
def test_a_dearer_offer_never_makes_the_cheapest_answer_cheaper(factor):
    known = catalog()
    dearer = tuple(
        replace(o, usd_per_hour=o.usd_per_hour * f) for o, f in zip(known.offers, _one(known, factor), strict=True)
    )
    before, after = (search(Question(question(), replace(known, offers=o))).ranked[0] for o in (known.offers, dearer))
    assert before.usd_per_hour <= after.usd_per_hour <= before.usd_per_hour * factor * (1 + 1e-9)


def _one(known, factor: float) -> list[float]:
    """The factor on every offer of the chip that is answered first, 1 on the others."""
    first = search(Question(question(), known)).ranked[0].offer.accelerator
    return [factor if o.accelerator == first else 1.0 for o in known.offers]
