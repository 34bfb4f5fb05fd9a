"""Encoder-decoders are a composition like the others: their size is the published one, their cache has two parts."""

import pytest

from advisor.engine.network.hf_config import from_hf_config
from advisor.engine.network.model import cross_kv_elements, from_shape, kv_elements, parameters, to_shape

T5 = {"model_type": "t5", "d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 6, "num_heads": 8}
T5 |= {"vocab_size": 32128}
FLAN_XXL = T5 | {"d_model": 4096, "d_ff": 10240, "num_layers": 24, "num_heads": 64, "tie_word_embeddings": False}
FLAN_XXL |= {"feed_forward_proj": "gated-gelu"}
WHISPER = {"model_type": "whisper", "d_model": 1280, "vocab_size": 51866, "num_mel_bins": 128}
WHISPER |= {"max_source_positions": 1500, "max_target_positions": 448}
BART = {"model_type": "bart", "d_model": 1024, "vocab_size": 50265, "max_position_embeddings": 1024}
for side in ("encoder", "decoder"):
    WHISPER |= {f"{side}_layers": 32, f"{side}_attention_heads": 20, f"{side}_ffn_dim": 5120}
    BART |= {f"{side}_layers": 12, f"{side}_attention_heads": 16, f"{side}_ffn_dim": 4096}


@pytest.mark.parametrize(
    ("config", "published"),
    [(T5, 60_506_624), (FLAN_XXL, 11_135_332_352), (WHISPER, 1_543_490_560), (BART, 406_291_456)],
    ids=["T5 small", "Flan-T5 XXL", "Whisper large v3", "BART large"],
)
def test_the_size_is_the_published_one(config, published):
    assert parameters(from_hf_config(config, "m")) == pytest.approx(published, rel=1e-4)


def test_only_the_decoder_keeps_a_cache_that_grows():
    model = from_hf_config(WHISPER, "m")
    assert kv_elements(model, 10) == 10 * 32 * 2 * 1280


def test_the_cross_attention_cache_follows_the_source():
    model = from_hf_config(WHISPER, "m")
    assert cross_kv_elements(model, model.source_tokens) == 1500 * 32 * 2 * 1280
    assert cross_kv_elements(from_hf_config(T5, "m"), 0) == 0


def test_a_decoder_alone_has_no_cross_attention_cache():
    llama = {"model_type": "llama", "hidden_size": 64, "vocab_size": 100, "num_hidden_layers": 2}
    llama |= {"num_attention_heads": 4, "intermediate_size": 128}
    assert cross_kv_elements(from_hf_config(llama, "m"), 1000) == 0


@pytest.mark.parametrize("config", [T5, WHISPER, BART])
def test_it_is_stored_and_read_back(config):
    model = from_hf_config(config, "m")
    assert from_shape("m", to_shape(model)) == model


def test_what_is_missing_is_named():
    config = {key: value for key, value in WHISPER.items() if key != "num_mel_bins"}
    with pytest.raises(ValueError, match="whisper lacks num_mel_bins"):
        from_hf_config(config, "m")
