"""Every size in a config.json is read, declared irrelevant with a reason, or refused.

published_configs.json has the sizes that published config.json files state, with the size on the model card
(`published`), the size and the shape (a digest) that are right.
"""

import copy
import json
import math
import re
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from advisor.engine.network import from_hf_config, from_stored_config, parameters, to_shape
from advisor.engine.network.config_keys import IRRELEVANT, SECTIONS, TOWER, irrelevant
from advisor.engine.network.hf_config import tower_parameters
from advisor.engine.network.layers.families import TRAITS
from tests.engine.hf_configs import CONFIGS
from tests.engine.network.test_model_seq2seq import BART, FLAN_XXL, T5, WHISPER

PUBLISHED = json.loads((Path(__file__).parents[1] / "published_configs.json").read_text())
READABLE = {
    **CONFIGS,
    **{name: stored["config"] for name, stored in PUBLISHED.items()},
    **{"t5": T5, "flan": FLAN_XXL, "whisper": WHISPER, "bart": BART},
}
# Written here again, not taken from the code: what a reader of config.json files would call a size.
SIZE_NAME = re.compile(
    r"_size$|_dim$|_rank$|^num_|^n_|_heads$|_layers$|_experts$|^d_|^depth$|_dense_replace$|_interval$"
)
SUPER = {  # nvidia/NVIDIA-Nemotron-3-Super-120B-A12B: experts that work in 1,024 of 4,096 dimensions
    "model_type": "nemotron_h", "hidden_size": 4096, "vocab_size": 131072, "moe_latent_size": 1024,
    "hybrid_override_pattern": "MEMEMEM*E", "num_hidden_layers": 9, "mamba_num_heads": 128, "mamba_head_dim": 64,
    "ssm_state_size": 128, "n_groups": 8, "conv_kernel": 4, "num_attention_heads": 32, "num_key_value_heads": 2,
    "n_routed_experts": 512, "num_experts_per_tok": 22, "moe_intermediate_size": 2688, "n_shared_experts": 1,
    "moe_shared_expert_intermediate_size": 5376, "max_position_embeddings": 262144,
}  # fmt: skip
LLAMA = CONFIGS["meta-llama/Llama-3.1-8B"]


def digest(shape: dict[str, Any]) -> str:
    return sha256(json.dumps(shape, sort_keys=True).encode()).hexdigest()[:16]


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_a_published_config_keeps_its_shape_and_its_published_size(name: str) -> None:
    stored = PUBLISHED[name]
    model = from_hf_config(stored["config"], "x")
    assert parameters(model) == stored["parameters"] == pytest.approx(stored["published"], rel=0.03)
    assert digest(to_shape(model)) == stored["shape"]
    assert model.native_dtype == stored["native_dtype"]


def sizes(section: dict[str, Any], path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The paths of all sizes in a config.json, except in sections without weights of the text model."""
    found: list[tuple[str, ...]] = []
    for name, value in section.items():
        if isinstance(value, dict):
            if name in ("text_config", "llm_config") or not (name in SECTIONS or TOWER.match(name)):
                found += sizes(value, (*path, name))
        elif isinstance(value, int) and not isinstance(value, bool) and value > 0 and SIZE_NAME.search(name):
            found.append((*path, name))
    return found


def changed(config: dict[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    config = copy.deepcopy(config)
    section = config
    for name in path[:-1]:
        section = section[name]
    section[path[-1]] = value
    return config


def outcome(config: dict[str, Any], before: Any) -> str:
    try:
        model = from_hf_config(config, "x")
    except ValueError:
        return "refused"
    return "moved" if model != before else "unmoved"


@pytest.mark.parametrize("name", sorted(READABLE))
def test_ten_percent_more_moves_the_shape_or_is_refused_or_irrelevant_with_a_reason(name: str) -> None:
    config = READABLE[name]
    before, kind = from_hf_config(config, "x"), (config.get("text_config") or config)["model_type"]
    paths = sizes(config)
    assert len(paths) >= 4
    for path in paths:
        value = config
        for part in path:
            value = value[part]
        more = math.ceil(1.1 * value)  # type: ignore[operator]
        if outcome(changed(config, path, more), before) == "unmoved":
            assert irrelevant(kind, path[-1]), f"{'.'.join(path)} of {name} was changed, and nothing happened"


UNKNOWN = [
    "moe_latent_size", "routed_expert_hidden_size", "moe_hidden_size", "share_expert_dim", "num_memory_tokens",
    "n_extra_layers", "adapter_rank", "dense_intermediate_size", "global_head_dim", "hidden_size_per_layer_input",
    "num_global_key_value_heads", "o_lora_rank", "memory_size", "embedding_channels", "extra_experts",
]  # fmt: skip


@pytest.mark.parametrize("name", sorted(READABLE))
def test_an_unknown_size_is_an_error_that_names_it(name: str) -> None:
    config, section = READABLE[name], ("text_config",) if "text_config" in READABLE[name] else ()
    for key in (key for key in UNKNOWN if key not in (config[section[0]] if section else config)):
        if outcome(changed(config, (*section, key), 96), from_hf_config(config, "x")) != "moved":
            with pytest.raises(
                ValueError,
                match=rf"unknown key.*({key} \(96\)|n_shared_experts|expansion_ratio|routed_expert_hidden_size).*shape",
            ):
                from_hf_config(changed(config, (*section, key), 96), "x")
        for nothing in (None, 0, False, []):
            assert from_hf_config(changed(config, (*section, key), nothing), "x") == from_hf_config(config, "x")


@pytest.mark.parametrize("section", ["recurrent_config", "memory", "ffn_config"])
def test_an_unknown_size_in_a_section_is_named_with_its_section(section: str) -> None:
    with pytest.raises(ValueError, match=rf"{section}\.head_dim \(96\)"):
        from_hf_config(LLAMA | {section: {"head_dim": 96}}, "x")


def test_a_stored_answer_with_a_size_that_is_refused_today_still_opens() -> None:
    with pytest.raises(ValueError, match=r"moe_memory_size \(1024\)"):
        from_hf_config(SUPER | {"moe_memory_size": 1024}, "x")
    assert parameters(from_stored_config(SUPER | {"moe_memory_size": 1024}, "x")) > 0


def test_every_irrelevant_key_has_a_reason_and_names_types_that_exist() -> None:
    for kinds, names, reason in IRRELEVANT:
        assert names
        assert len(reason) > 20
        assert set(kinds.split()) <= {*TRAITS, "t5", "mt5", "whisper", "bart"}


# --- lists of layers --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "path", "key"),
    [
        ("openai/gpt-oss-20b", (), "layer_types"),
        ("Qwen/Qwen3.5-27B", ("text_config",), "layer_types"),
        ("XiaomiMiMo/MiMo-V2-Flash", (), "hybrid_layer_pattern"),
        ("XiaomiMiMo/MiMo-V2-Flash", (), "moe_layer_freq"),
    ],
)
@pytest.mark.parametrize("off", [1, -1])
def test_a_list_of_another_length_than_the_layers_is_refused(name: str, path: tuple[str, ...], key: str, off: int):
    config = CONFIGS[name]
    listed = (config[path[0]] if path else config)[key]
    other = [*listed, listed[-1]] if off > 0 else listed[:-1]
    with pytest.raises(ValueError, match=f"{key} has {len(other)} entries for {len(listed)} layers"):
        from_hf_config(changed(config, (*path, key), other), "x")


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        ("meta-llama/Llama-3.1-8B", {"layer_types": ["conv"] * 32}, "unknown kinds of layers: conv"),
        (
            "meta-llama/Llama-3.1-8B",
            {"layer_types": ["linear_attention"] * 32},
            "kinds of layers: linear_attention",
        ),
        ("zai-org/GLM-5", {"mlp_layer_types": ["dense"] * 9 + ["sparse"] * 69}, "state different layers"),
        ("zai-org/GLM-5", {"mlp_layer_types": ["dense"] * 3 + ["wide"] * 75}, "unknown kinds: wide"),
        ("zai-org/GLM-5", {"qk_head_dim": 192}, "qk_head_dim is 192"),
        ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", {"num_hidden_layers": 53}, "the layers listed are 52"),
        ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", {"layers_block_type": ["moe"] * 52}, "different layers"),
        ("state-spaces/mamba-2.8b-hf", {"intermediate_size": 5000}, "expand x hidden_size is 5120"),
        ("deepseek-ai/DeepSeek-V3", {"expert_dtype": "fp4", "quantization_config": None}, "expert_dtype 'fp4'"),
    ],
)
def test_keys_that_contradict_each_other_are_refused(name: str, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        from_hf_config(CONFIGS[name] | changes, "x")


@pytest.mark.parametrize(
    ("name", "head_dim"), [("Qwen/Qwen3-8B", 128), ("google/gemma-2-9b", 256), ("openai/gpt-oss-20b", 64)]
)
def test_a_head_size_that_is_not_stated_is_the_default_of_the_code(name: str, head_dim: int) -> None:
    config = {key: value for key, value in CONFIGS[name].items() if key != "head_dim"}
    assert {block.mixer.head_dim for block in from_hf_config(config, "x").blocks} == {head_dim}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("deepseek-ai/DeepSeek-V3", "first_k_dense_replace"), ("zai-org/GLM-4.5-Air", "first_k_dense_replace"),
        ("mistralai/Mistral-7B-v0.3", "num_key_value_heads"), ("Qwen/Qwen3-8B", "num_key_value_heads"),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", "shared_expert_intermediate_size"),
        ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "moe_shared_expert_intermediate_size"),
    ],
)  # fmt: skip
def test_a_key_whose_default_depends_on_the_type_is_required(name: str, key: str) -> None:
    config = {other: value for other, value in CONFIGS[name].items() if other != key}
    with pytest.raises(ValueError, match=f"lacks .*{key}"):
        from_hf_config(config, "x")


# --- towers -----------------------------------------------------------------------------------------------------
QWEN_TOWER = {"depth": 27, "hidden_size": 1152, "intermediate_size": 4304, "num_heads": 16, "out_hidden_size": 5120}


def test_a_tower_is_a_part_of_the_size() -> None:
    plain = CONFIGS["Qwen/Qwen3.5-27B"]
    config = plain | {"vision_config": QWEN_TOWER}
    added = parameters(from_hf_config(config, "x")) - parameters(from_hf_config(plain, "x"))
    assert added == tower_parameters(config) == 27 * 1152 * (4 * 1152 + 2 * 4304)


def test_a_tower_of_unknown_size_is_refused() -> None:
    with pytest.raises(ValueError, match="no hidden size"):
        from_hf_config(CONFIGS["Qwen/Qwen3-8B"] | {"vision_config": {"model_type": "s"}}, "x")
