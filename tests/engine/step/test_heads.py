"""What drafts stands in memory too: sizes against those that publishers state, and against shapes added up by hand."""

from dataclasses import replace

import pytest

from advisor.engine.network.blocks import Attention, Block, Ffn, LatentAttention
from advisor.engine.network.model import Model, decoder_blocks
from advisor.engine.step.drafts.heads import draft_bytes, layer_bytes, one_layer
from advisor.engine.step.drafts.speculative import Acceptance, drafts_of
from advisor.engine.step.lane import lanes
from tests.engine.catalog_sample import LLAMA_8B, chip, dense, lane

BIG = lane(chip("h100", memory_bytes=400e9), context=1000)
LLAMA_2 = {7: dense(32, 4096, 32, 32, 128, 11008, 32000), 13: dense(40, 5120, 40, 40, 128, 13824, 32000),
           70: dense(80, 8192, 64, 8, 128, 28672, 32000)}  # fmt: skip
DEEPSEEK_V3 = Model(
    slug="deepseek-ai-deepseek-v3", hidden=7168, vocab=129280,
    blocks=(Block(
        count=61, mixer=LatentAttention(heads=128, q_rank=1536, kv_rank=512, nope_dim=128, rope_dim=64, v_dim=128),
        ffn=Ffn(inner=2048, experts=256, top_k=8, shared_inner=2048),
    ),),
)  # fmt: skip


def draft(model, method):
    return next(drafts_of(model, Acceptance(method=method, task="any", accepted_fraction=0.7)))


@pytest.mark.parametrize(("size", "billions"), [(7, 0.24), (13, 0.37), (70, 0.99)])
def test_a_layer_and_the_projection_of_two_states_is_what_eagle_publishes(size, billions):
    """SafeAILab/EAGLE README, column of parameters of the heads for LLaMA2-Chat."""
    model = LLAMA_2[size]
    weights, _ = layer_bytes(one_layer(model, decoder_blocks(model)[-1]), BIG.choice, 1.0)
    assert weights / 2 + 2 * model.hidden**2 == pytest.approx(billions * 1e9, rel=0.02)


def test_the_prediction_layer_of_deepseek_has_its_published_size():
    """deepseek-ai/DeepSeek-V3 README_WEIGHTS.md: 11.5B parameters of its own."""
    weights, cache = draft_bytes(DEEPSEEK_V3, draft(DEEPSEEK_V3, "mtp"), BIG.choice, 1000.0)
    assert weights / 2 == pytest.approx(11.5e9, rel=0.02)
    assert cache == pytest.approx((512 + 64) * 2 * 1000.0)


def test_an_eagle_3_head_adds_up_by_hand_and_is_split_but_for_its_projection():
    h, kv, inner = 4096, 8 * 128, 14336
    split = 2 * h * (h + 2 * kv) + h * h + 3 * h * inner + 32000 * h
    norms = 2 * h
    one, two = (draft_bytes(LLAMA_8B, draft(LLAMA_8B, "eagle"), replace(BIG.choice, tp=n), 1000.0) for n in (1, 2))
    assert one[0] == pytest.approx(2 * (split + norms + 3 * h * h), rel=1e-6)
    assert two[0] == pytest.approx(2 * (split / 2 + norms + 3 * h * h), rel=1e-6)
    assert (one[1], two[1]) == pytest.approx((2 * kv * 2 * 1000.0, kv * 2 * 1000.0))


def test_medusa_heads_are_a_square_and_a_vocabulary_each_without_a_cache():
    h, vocab = 4096, 128256
    assert draft_bytes(LLAMA_8B, draft(LLAMA_8B, "medusa"), BIG.choice, 1000.0) == (4 * 2 * h * (h + vocab), 0.0)


def test_n_grams_hold_nothing():
    assert draft_bytes(LLAMA_8B, draft(LLAMA_8B, "ngram"), BIG.choice, 1000.0) == (0.0, 0.0)


def test_an_eagle_layer_of_a_latent_or_mixed_model_is_dense_softmax_attention():
    h, heads = 7168, 56
    split = 2 * h * (heads + 2 * 8) * 128 + heads * 128 * h + 3 * h * 6 * h + 32000 * h
    weights, cache = draft_bytes(DEEPSEEK_V3, draft(DEEPSEEK_V3, "eagle"), BIG.choice, 1.0)
    assert weights == pytest.approx(2 * (split + 2 * h + 3 * h * h), rel=1e-6) and cache == 2 * 8 * 128 * 2


def test_a_lane_that_drafts_has_less_room():
    alone, beside = (lanes(LLAMA_8B, [w]).memory for w in (BIG, replace(BIG, draft=draft(LLAMA_8B, "eagle"))))
    weights, cache = draft_bytes(LLAMA_8B, draft(LLAMA_8B, "eagle"), BIG.choice, 1000.0)
    assert beside.weights_bytes[0] - alone.weights_bytes[0] == pytest.approx(weights)
    assert beside.kv_bytes_per_sequence[0] - alone.kv_bytes_per_sequence[0] == pytest.approx(cache)
    assert beside.kv_capacity_tokens[0] < alone.kv_capacity_tokens[0]
    assert isinstance(decoder_blocks(LLAMA_8B)[-1].mixer, Attention)
