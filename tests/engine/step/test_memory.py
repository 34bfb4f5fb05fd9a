"""Bytes on a chip, part by part, worked out by hand for small networks."""

from dataclasses import replace

import numpy as np
import pytest

from advisor.engine.network.blocks import (
    Attention,
    Block,
    Ffn,
    LatentAttention,
    Recurrent,
)
from advisor.engine.network.matrices import layer_weights, mixer_vectors
from advisor.engine.step.memory import (
    EXPERT_CHUNK_TOKENS,
    Memory,
    activations_bytes,
    kv_bytes_per_sequence,
    mixer_elements,
    source_bytes_per_sequence,
    weights_bytes,
)
from tests.engine.step.test_operators import ATTENTION, INDEXED, LATENT, chips, model

RECURRENT = Recurrent(kind="mamba1", inner=12, state=5, heads=3, head_dim=4)
FFN = Ffn(inner=10)
EXPERTS = Ffn(inner=10, experts=8, top_k=2, shared_inner=6)
NORMS = 2 * 2 * 8  # two vectors of width 8 in 16 bits
TABLE = 20 * 8 * 2  # of the vocabulary, in 16 bits


def one(values: np.ndarray) -> float:
    assert values.shape == (1,)
    return float(values[0])


def mixer_weights(mixer):
    """The weights of a mixer without its vectors: from the parameter count."""
    block = Block(count=1, mixer=mixer, ffn=None, norms=0)
    return layer_weights(block, 8) - mixer_vectors(mixer, 8)


# --- weights ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mixer", [ATTENTION, replace(ATTENTION, output_gate=True), replace(ATTENTION, v_head_dim=5)])
def test_all_matrices_of_softmax_attention_are_split(mixer):
    assert mixer_elements(model(mixer), model(mixer).blocks[0]) == (mixer_weights(mixer), 0)


@pytest.mark.parametrize("mixer", [LATENT, INDEXED, replace(LATENT, q_rank=0)])
def test_latents_and_indexers_are_whole_on_every_chip_and_heads_are_split(mixer):
    """Together they are the layer's weights; its norms (vectors) are counted elsewhere."""
    split, whole = mixer_elements(model(mixer), model(mixer).blocks[0])
    assert split + whole == mixer_weights(mixer)
    queries = 0 if not mixer.q_rank else 8 * 6
    indexer = 2 * 7 * 6 + 8 * 7 + 8 * 2 if mixer.index_heads else 0
    assert whole == queries + 8 * (5 + 2) + indexer


def test_all_matrices_of_a_recurrent_layer_are_split():
    assert mixer_elements(model(RECURRENT), model(RECURRENT).blocks[0]) == (mixer_weights(RECURRENT), 0)
    assert mixer_elements(model(None), model(None).blocks[0]) == (0, 0)


def test_weights_of_a_dense_model_add_up_by_hand():
    """8 x 36 of attention and 3 x 8 x 10 of the layer, 1 byte each; norms and both tables in 16 bits."""
    m = model(ATTENTION, FFN)
    assert one(weights_bytes(m, chips())) == 3 * (288 + NORMS + 240) + 2 * TABLE
    assert one(weights_bytes(m, chips(tp=2.0))) == 3 * (144 + NORMS + 120) + 2 * TABLE / 2
    assert one(weights_bytes(m, chips(weight_bytes=0.5))) == 3 * (144 + NORMS + 120) + 2 * TABLE
    assert one(weights_bytes(m, chips(pp=2.0))) == 3 * (288 + NORMS + 240) / 2 + TABLE


def test_tied_tables_and_models_that_choose_no_token_have_one_table():
    both = one(weights_bytes(model(ATTENTION), chips()))
    assert one(weights_bytes(model(ATTENTION, tied_embeddings=True), chips())) == both - TABLE
    assert one(weights_bytes(model(ATTENTION, encoder_only=True), chips())) == both - TABLE


def test_learned_positions_are_kept_whole_in_16_bits():
    m = model(ATTENTION)
    added = one(weights_bytes(replace(m, position_embeddings=30), chips(tp=2.0))) - one(weights_bytes(m, chips(tp=2.0)))
    assert added == 30 * 8 * 2


def test_latents_are_copied_to_every_chip():
    split, whole = mixer_elements(model(LATENT), model(LATENT).blocks[0])
    assert (
        one(weights_bytes(model(LATENT), chips(tp=4.0)))
        == 3 * (split / 4 + whole + NORMS + 2 * (6 + 5)) + 2 * TABLE / 4
    )


def test_experts_are_spread_by_rank_and_the_router_stays_in_16_bits():
    """8 experts of 240 weights over 2 ranks and 2 splits, half a byte each; shared ones over 4 chips; router 8 x 8."""
    spread = chips(tp=4.0, ep=2.0, moe_tp=2.0, expert_weight_bytes=0.5)
    found = one(weights_bytes(model(None, EXPERTS), spread))
    assert found == 3 * (NORMS + 8 / 2 * 240 / 2 * 0.5 + 3 * 8 * 6 / 4 + 8 * 8 * 2) + 2 * TABLE / 4


def test_two_experts_are_a_mixture_with_a_router():
    found = one(weights_bytes(model(None, Ffn(inner=10, experts=2)), chips(expert_weight_bytes=0.5)))
    assert found == 3 * (NORMS + 2 * 240 * 0.5 + 8 * 2 * 2) + 2 * TABLE


# --- cache ------------------------------------------------------------------------------------------------------


def test_a_cache_holds_keys_and_values_of_every_token_and_layer():
    """2 KV heads x 6 numbers x 3 layers; two chips hold half, four hold one head each, a stage its layers."""
    assert one(kv_bytes_per_sequence(model(ATTENTION), chips(kv_bytes=2.0), 100)) == 3 * 12 * 2 * 100
    assert one(kv_bytes_per_sequence(model(ATTENTION), chips(tp=2.0), 100)) == 3 * 6 * 100
    assert one(kv_bytes_per_sequence(model(ATTENTION), chips(tp=4.0), 100)) == 3 * 6 * 100
    assert one(kv_bytes_per_sequence(model(ATTENTION), chips(pp=3.0), 100)) == 12 * 100


def test_a_window_bounds_the_cache_of_its_layers():
    m = model(replace(ATTENTION, window_tokens=64))
    assert one(kv_bytes_per_sequence(m, chips(), 100)) == 3 * 12 * 64
    assert one(kv_bytes_per_sequence(m, chips(), 50)) == 3 * 12 * 50


def test_a_latent_cache_is_whole_on_every_chip_and_index_keys_take_a_byte():
    assert one(kv_bytes_per_sequence(model(LATENT), chips(tp=4.0, kv_bytes=2.0), 100)) == 3 * (5 + 2) * 2 * 100
    assert one(kv_bytes_per_sequence(model(INDEXED), chips(tp=4.0, kv_bytes=2.0), 100)) == 3 * (7 * 2 + 7) * 100


def test_a_state_does_not_grow_with_the_context():
    """12 x 5 numbers in fp32 and 24 columns x 4 of convolution in 16 bits, halved on two chips."""
    for context in (1, 1000):
        assert one(kv_bytes_per_sequence(model(RECURRENT), chips(tp=2.0), context)) == 3 * (240 + 72) / 2


def test_what_looks_both_ways_and_what_mixes_nothing_keeps_no_cache():
    assert one(kv_bytes_per_sequence(model(replace(ATTENTION, causal=False)), chips(), 100)) == 0
    assert one(kv_bytes_per_sequence(model(None, FFN), chips(), 100)) == 0


def test_layers_of_several_kinds_add_up():
    kinds = (ATTENTION, RECURRENT, None, replace(ATTENTION, causal=False), LATENT)
    m = replace(model(None), blocks=tuple(Block(count=1, mixer=mixer, ffn=None) for mixer in kinds))
    assert one(kv_bytes_per_sequence(m, chips(), 100)) == 12 * 100 + 312 + 7 * 100


def test_a_source_is_kept_beside_the_answer():
    m = replace(
        model(None),
        blocks=tuple(
            Block(count=2, mixer=mixer, ffn=None) for mixer in (ATTENTION, replace(ATTENTION, cross=True, causal=False))
        ),
    )
    assert one(source_bytes_per_sequence(m, chips(tp=2.0, pp=2.0), 50)) == 2 * 6 * 50 / 2
    assert one(kv_bytes_per_sequence(m, chips(), 100, 50)) == 2 * 12 * 100 + 2 * 12 * 50
    assert one(source_bytes_per_sequence(model(ATTENTION), chips(), 50)) == 0


# --- workspace --------------------------------------------------------------------------------------------------


def work(mixer: object, ffn: Ffn | None, tokens: float = 100, requests: float = 10, **changes: float) -> float:
    sizes = np.array([tokens]), np.array([requests])
    return one(activations_bytes(model(mixer, ffn), chips(**changes), *sizes))  # type: ignore[arg-type]


LOGITS = 20 * 4  # of one row, in fp32


def test_the_widest_layer_and_the_logits_are_live_in_a_step():
    """Attention: 36 columns in and out; the layer: 3 x 10 + 8; 6 bytes of each hidden number besides."""
    assert work(ATTENTION, None) == 100 * (2 * 36 + 48) + 10 * LOGITS
    assert work(ATTENTION, FFN) == 100 * (2 * 38 + 48) + 10 * LOGITS
    assert work(ATTENTION, replace(FFN, inner=4)) == 100 * (2 * 36 + 48) + 10 * LOGITS
    assert work(ATTENTION, FFN, tp=2.0, moe_tp=2.0) == 100 * (2 * 23 + 48) + 10 * LOGITS  # of the whole vocabulary


def test_a_token_is_live_in_each_of_its_experts():
    """Of its two experts: 3 x 10 columns in 16 bits, and 20 bytes of each of the 8 hidden numbers, on every rank."""
    assert work(None, EXPERTS) == 100 * (2 * (2 * 30 + 20 * 8) + 48) + 10 * LOGITS
    assert work(None, EXPERTS, moe_tp=2.0) == 100 * (2 * (2 * 15 + 20 * 8) + 48) + 10 * LOGITS
    most = 2 * (2 * 30 + 20 * 8) * EXPERT_CHUNK_TOKENS  # a longer step goes to the experts in parts
    assert work(None, EXPERTS, tokens=3 * EXPERT_CHUNK_TOKENS) == most + 3 * EXPERT_CHUNK_TOKENS * 48 + 10 * LOGITS
    assert work(None, replace(EXPERTS, experts=1)) == 100 * (2 * 38 + 48) + 10 * LOGITS


def test_no_more_rows_of_logits_than_tokens():
    assert work(None, None, tokens=4, requests=10) == 4 * (48 + LOGITS)
    assert work(None, None, tokens=1, requests=1, tp=3.0) == 48 + LOGITS  # gathered from three chips


def test_the_widest_of_several_layers_counts_wherever_it_stands():
    wide, narrow = Block(count=1, mixer=ATTENTION, ffn=None), Block(count=1, mixer=None, ffn=Ffn(inner=1))
    for blocks in ((wide, narrow), (narrow, wide)):
        m = replace(model(None), blocks=blocks)
        assert one(activations_bytes(m, chips(), np.array([100.0]), np.array([10.0]))) == 100 * 120 + 10 * LOGITS


def test_a_model_fits_from_room_for_one_sequence_on():
    def fits(left: float) -> bool:
        parts = dict.fromkeys(Memory.__slots__, np.array([0.0]))
        return bool(Memory(**{**parts, "kv_bytes": np.array([left]), "least_kv_bytes": np.array([5.0])}).fits)

    assert [fits(left) for left in (4.9, 5.0, 5.1)] == [False, True, True]


def test_heads_of_different_widths_for_keys_and_values():
    """4 query heads of 3, 2 keys of 3, 2 values of 5, 4 outputs of 5."""
    mixer = Attention(heads=4, kv_heads=2, head_dim=3, v_head_dim=5)
    split, _ = mixer_elements(model(mixer), model(mixer).blocks[0])
    assert split == 8 * (4 * 3 + 2 * 3 + 2 * 5 + 4 * 5)
    assert one(kv_bytes_per_sequence(model(mixer), chips(), 1)) == 3 * 2 * 8


def test_latent_attention_with_an_index_needs_the_rank_of_its_queries():
    wider = replace(INDEXED, q_rank=7)
    split, whole = mixer_elements(model(wider), model(wider).blocks[0])
    before = mixer_elements(model(INDEXED), model(INDEXED).blocks[0])
    assert (split - before[0], whole - before[1]) == (4 * 5, 8 + 2 * 7)
    assert isinstance(wider, LatentAttention)
