"""A published config.json gives the shape that the catalog holds."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from advisor.engine.network.blocks import Attention
from advisor.engine.network.hf_config import from_hf_config
from advisor.engine.network.model import from_shape, parameters
from tests.engine.hf_configs import CONFIGS

MODELS = Path(__file__).parents[3] / "fixtures" / "models"
STORED = {stored["hf_id"]: stored for stored in map(yaml.safe_load, (p.read_bytes() for p in MODELS.glob("*.yaml")))}


def in_catalog(hf_id):
    shape = {key: value for key, value in STORED[hf_id]["shape"].items() if key not in ("source", "as_of", "basis")}
    return from_shape("x", shape)


@pytest.mark.parametrize("hf_id", sorted(CONFIGS))
def test_a_config_gives_the_blocks_of_the_catalog(hf_id):
    parsed, stored = from_hf_config(CONFIGS[hf_id], "x"), in_catalog(hf_id)
    assert set(parsed.blocks) == set(stored.blocks)
    assert parameters(parsed) == parameters(replace(stored, vision=None))  # the parser reads the text tower
    assert parsed.max_context_tokens == STORED[hf_id]["max_context_tokens"]


@pytest.mark.parametrize(
    ("hf_id", "dtype"),
    [
        ("deepseek-ai/DeepSeek-V3", "fp8"),
        ("openai/gpt-oss-20b", "mxfp4"),
        ("moonshotai/Kimi-K2.5", "int4"),
        ("state-spaces/mamba-2.8b-hf", "fp32"),
        ("meta-llama/Llama-3.1-8B", "bf16"),
    ],
)
def test_the_published_dtype_is_read(hf_id, dtype):
    assert from_hf_config(CONFIGS[hf_id], "x").native_dtype == dtype


def test_an_encoder_attends_both_ways():
    model = from_hf_config(CONFIGS["google-bert/bert-large-uncased"], "x")
    assert model.encoder_only
    assert all(isinstance(block.mixer, Attention) and not block.mixer.causal for block in model.blocks)


def test_qwen2_uses_its_window_when_told_to():
    config = CONFIGS["Qwen/Qwen2.5-7B"] | {"use_sliding_window": True, "max_window_layers": 20, "sliding_window": 4096}
    windows = {block.mixer.window_tokens: block.count for block in from_hf_config(config, "x").blocks}
    assert windows == {None: 20, 4096: 8}


def test_an_unknown_architecture_is_refused_by_name():
    with pytest.raises(ValueError, match="unknown model_type 'rwkv7'.*does not state"):
        from_hf_config({"model_type": "rwkv7"}, "x")


@pytest.mark.parametrize("key", ["hidden_size", "num_hidden_layers", "vocab_size", "num_attention_heads"])
def test_a_missing_key_is_named(key):
    config = {name: value for name, value in CONFIGS["meta-llama/Llama-3.1-8B"].items() if name != key}
    with pytest.raises(ValueError, match=key):
        from_hf_config(config, "x")


def test_a_pattern_with_an_unknown_letter_is_refused():
    config = CONFIGS["nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"] | {"hybrid_override_pattern": "MX"}
    with pytest.raises(ValueError, match="hybrid_override_pattern"):
        from_hf_config(config, "x")


def test_layers_may_be_named_instead_of_lettered():
    config = CONFIGS["nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"]
    names = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
    named = {key: value for key, value in config.items() if key != "hybrid_override_pattern"} | {
        "layers_block_type": [names[letter] for letter in config["hybrid_override_pattern"]]
    }
    assert from_hf_config(named, "x") == from_hf_config(config, "x")
