"""The sizes of published models, from their shapes."""

import pytest

from advisor.engine.network.blocks import Attention, Block, Ffn, LatentAttention, Recurrent
from advisor.engine.network.model import (
    Model,
    active_parameters,
    block_parameters,
    embedding_parameters,
    from_shape,
    kv_elements,
    kv_elements_per_token,
    parameters,
    state_elements,
    to_shape,
)


def decoder(mixer, ffn, layers, hidden, vocab, **rest):
    block = Block(count=layers, mixer=mixer, ffn=ffn, norms=rest.pop("norms", 2))
    return Model(slug="m", hidden=hidden, vocab=vocab, blocks=(block,), **rest)


LLAMA_8B = decoder(Attention(heads=32, kv_heads=8, head_dim=128), Ffn(inner=14336), 32, 4096, 128256)
MIXTRAL = decoder(Attention(heads=32, kv_heads=8, head_dim=128), Ffn(inner=14336, experts=8, top_k=2), 32, 4096, 32000)
LATENT = LatentAttention(heads=128, q_rank=1536, kv_rank=512, nope_dim=128, rope_dim=64, v_dim=128)
DEEPSEEK_V3 = Model(
    slug="deepseek-v3",
    hidden=7168,
    vocab=129280,
    blocks=(
        Block(count=3, mixer=LATENT, ffn=Ffn(inner=18432)),
        Block(count=58, mixer=LATENT, ffn=Ffn(inner=2048, experts=256, top_k=8, shared_inner=2048)),
    ),
)
MAMBA = decoder(
    Recurrent(kind="mamba1", inner=5120, state=16, heads=5120, head_dim=1, dt_rank=160),
    None,
    64,
    2560,
    50280,
    tied_embeddings=True,
    norms=1,
)


def test_llama_3_1_8b_has_its_published_size():
    assert parameters(LLAMA_8B) == 8_030_261_248


def test_a_cache_token_of_llama_3_1_8b_takes_131072_bytes_in_bf16():
    assert kv_elements_per_token(LLAMA_8B) * 2 == 131_072


def test_mixtral_activates_two_of_eight_experts():
    assert parameters(MIXTRAL) == 46_702_792_704
    assert active_parameters(MIXTRAL) == pytest.approx(12.9e9, rel=0.01)


def test_deepseek_v3_has_671_billion_weights_and_activates_37():
    assert parameters(DEEPSEEK_V3) == pytest.approx(671_026_419_200, rel=1e-6)
    assert active_parameters(DEEPSEEK_V3) == pytest.approx(37e9, rel=0.03)


def test_latent_attention_caches_576_elements_a_layer():
    assert kv_elements_per_token(DEEPSEEK_V3) == 61 * (512 + 64)


def test_an_indexer_adds_its_keys_to_the_cache():
    sparse = LatentAttention(
        heads=64, q_rank=2048, kv_rank=512, nope_dim=192, rope_dim=64, v_dim=256, index_heads=32, index_dim=128
    )
    assert kv_elements_per_token(decoder(sparse, None, 1, 6144, 100)) == 512 + 64 + 128


def test_a_state_space_model_has_no_cache_but_a_state():
    assert parameters(MAMBA) == 2_768_345_600
    assert kv_elements(MAMBA, 100_000) == 0
    assert state_elements(MAMBA) == 64 * (5120 * 16 + 5120 * 3)


def test_a_window_bounds_the_cache_of_its_layers():
    full, window = (
        Attention(heads=8, kv_heads=4, head_dim=256),
        Attention(heads=8, kv_heads=4, head_dim=256, window_tokens=4096),
    )
    model = Model(
        slug="m",
        hidden=2304,
        vocab=256000,
        blocks=(Block(count=13, mixer=window, ffn=None), Block(count=13, mixer=full, ffn=None)),
    )
    assert kv_elements(model, 1000) == 26 * 2048 * 1000
    assert kv_elements(model, 10_000) == 13 * 2048 * (4096 + 10_000)


def test_blocks_and_embeddings_make_up_the_whole():
    (block,) = LLAMA_8B.blocks
    assert embedding_parameters(LLAMA_8B) + block.count * block_parameters(LLAMA_8B, block) == parameters(LLAMA_8B)


def test_tied_embeddings_count_once():
    tied = from_shape("t", {**to_shape(LLAMA_8B), "tied_embeddings": True})
    assert parameters(LLAMA_8B) - parameters(tied) == 128256 * 4096


@pytest.mark.parametrize("model", [LLAMA_8B, MIXTRAL, DEEPSEEK_V3, MAMBA], ids=lambda model: f"{parameters(model):.0e}")
def test_a_stored_shape_comes_back_as_the_same_model(model):
    assert from_shape(model.slug, to_shape(model)) == model


@pytest.mark.parametrize(
    ("shape", "word"),
    [
        ({"hidden": 1, "vocab": 1, "blocks": [], "width": 2}, "width"),
        ({"hidden": 1, "vocab": 1, "blocks": [{"count": 1, "mixer": {"type": "rwkv"}}]}, "rwkv"),
        ({"hidden": 1, "vocab": 1, "blocks": [{"count": 1, "mixer": {"type": "attention", "heds": 1}}]}, "heds"),
        ({"hidden": 1, "vocab": 1, "blocks": [{"count": 1, "ffn": {"inner": 1, "expert": 1}}]}, "expert"),
    ],
)
def test_a_shape_with_an_unknown_word_is_refused(shape, word):
    with pytest.raises(ValueError, match=word):
        from_shape("x", shape)


def test_an_unknown_recurrence_is_refused():
    odd = decoder(Recurrent(kind="rwkv", inner=1, state=1, heads=1, head_dim=1), None, 1, 1, 1)
    with pytest.raises(ValueError, match="rwkv"):
        parameters(odd)
