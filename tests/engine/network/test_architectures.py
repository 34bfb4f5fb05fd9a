"""Sizes of every kind of layer, computed here by hand from the sizes that are published.

class_defaults.json has the defaults of configuration classes of transformers 5.24.0 with the number of parameters of
the model that it builds from them, without towers of images and sound. `within`: the fraction that small matrices
which the reader leaves out amount to.
"""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from advisor.engine.network import (
    Ffn,
    Model,
    active_parameters,
    decoder_blocks,
    from_hf_config,
    from_shape,
    gguf_format,
    kv_elements_per_token,
    matrices,
    parameters,
    state_elements,
    to_shape,
    vision_parameters,
)
from advisor.engine.network.model import kv_elements
from advisor.engine.step.memory import kv_bytes_per_sequence, weights_bytes
from advisor.engine.step.operators import attention_cost, context_token, linear_operators, linear_s
from advisor.engine.training import operators as training_operators
from catalog.loading import fixtures
from tests.engine.network.test_config_keys import PUBLISHED, changed, outcome, sizes
from tests.engine.step.test_memory import chips

DEFAULTS = json.loads((Path(__file__).parent / "class_defaults.json").read_text())
LLAMA = {
    "model_type": "llama", "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8, "vocab_size": 1000,
    "num_key_value_heads": 2, "intermediate_size": 1024, "max_position_embeddings": 4096,
}  # fmt: skip


def published(name: str) -> Model:
    return from_hf_config(PUBLISHED[name]["config"], "x")


def layer(model: Model, index: int) -> dict[str, int]:
    """Elements of each matrix of a layer of this block, of one copy."""
    return {m.name: m.elements for m in matrices(model.blocks[index], model.hidden)}


@pytest.mark.parametrize("name", sorted(DEFAULTS))
def test_the_size_is_that_of_the_model_that_the_published_code_builds(name: str) -> None:
    model = from_hf_config(DEFAULTS[name]["config"], "x")
    assert parameters(model) - model.tower_parameters == pytest.approx(
        DEFAULTS[name]["parameters"], rel=DEFAULTS[name].get("within", 2e-4)
    )
    assert from_shape("x", to_shape(model)) == from_shape("x", to_shape(from_shape("x", to_shape(model))))


@pytest.mark.parametrize("name", sorted(DEFAULTS))
def test_memory_counts_the_cache_and_the_state_of_the_shape(name: str) -> None:
    model, x = from_hf_config(DEFAULTS[name]["config"], "x"), chips(kv_bytes=1.0)
    more = kv_bytes_per_sequence(model, x, 65_536.0) - kv_bytes_per_sequence(model, x, 32_768.0)
    assert more[0] == kv_elements(model, 65_536) - kv_elements(model, 32_768)
    assert (kv_bytes_per_sequence(model, x, 0.0)[0] > 0) == (state_elements(model) > 0)


def test_compressed_attention_of_deepseek_v4() -> None:
    model = published("deepseek-ai/DeepSeek-V4-Flash")
    assert [(block.count, block.mixer.ratio) for block in model.blocks] == [(2, 0), (21, 4), (20, 128)]  # type: ignore[union-attr]
    found = layer(model, 1)
    assert found["q_down"] + found["q"] == 4096 * 1024 + 1024 * 64 * 512
    assert (
        found["kv_down"] + found["compress"] == 4096 * 512 + 4096 * 2 * 2 * 512
    )  # entries overlap: two parts, two gates
    assert found["index_q"] + found["index_k"] + found["index_weights"] == 1024 * 64 * 128 + 4096 * 4 * 128 + 4096 * 64
    assert found["o_groups"] + found["o"] == 64 * 512 * 1024 + 8 * 1024 * 4096
    assert found["mix_mixer"] == found["mix_ffn"] == 4 * 4096 * (4 * 4 + 2 * 4)
    assert layer(model, 2)["compress"] == 4096 * 2 * 512
    context = 2**20
    entries = 21 * (context // 4) * (512 + 128) + 20 * (context // 128) * 512
    assert kv_elements(model, context) == 43 * 128 * 512 + entries
    # waiting for their entry: keys and gates of 128 tokens, or of 4 tokens with two parts and one part of 4 before them
    assert state_elements(model) == 20 * 2 * 128 * 512 + 21 * 2 * 4 * 3 * (512 + 128)


def test_experts_that_work_in_a_latent_space() -> None:
    model = published("nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-FP8")
    experts = next(block for block in model.blocks if block.ffn)
    found = {m.name: m for m in matrices(experts, model.hidden)}
    assert found["up"].elements == found["down"].elements == 1024 * 2688
    assert (found["up"].copies, found["up"].used) == (512, 22)
    assert found["latent_in"].elements == found["latent_out"].elements == 4096 * 1024
    assert found["shared_up"].elements == 4096 * 5376
    assert kv_elements_per_token(model) == 8 * 2 * 2 * 128
    assert state_elements(model) == 40 * (128 * 64 * 128 + 3 * (128 * 64 + 2 * 8 * 128))
    assert active_parameters(model) == pytest.approx(12e9, rel=0.07)


def test_channel_delta_attention_beside_latent_attention() -> None:
    model = published("moonshotai/Kimi-K3")
    assert [block.count for block in model.blocks] == [1, 68, 24]  # the dense layer, the other linear ones, latent ones
    assert kv_elements_per_token(model) == 24 * (512 + 64)
    assert state_elements(model) == 69 * (96 * 128 * 128 + 3 * 3 * 96 * 128)
    linear, latent = layer(model, 1), layer(model, 2)
    assert linear["in"] == 7168 * (3 * 12288 + 96 + 12288)  # queries, keys, values, beta, a full output gate
    assert linear["decay_down"] + linear["decay_up"] == 7168 * 128 + 128 * 12288
    assert latent["gate_heads"] == 7168 * 96 * 128
    assert latent["up"] == 3584 * 3072


def test_layers_with_other_heads_and_keys_that_are_values() -> None:
    model = published("google/gemma-4-26B-A4B")
    window, full = layer(model, 0), layer(model, 1)
    assert (window["k"], window["v"]) == (2816 * 8 * 256, 2816 * 8 * 256)
    assert full["k"] == 2816 * 2 * 512
    assert "v" not in full
    assert full["shared_up"] == 2816 * 2112  # the dense feed-forward beside the experts
    assert kv_elements(model, 100_000) == 25 * 1024 * 8 * 2 * 256 + 5 * 100_000 * 2 * 2 * 512


def test_layers_that_share_keys_and_values_have_neither_matrices_nor_a_cache() -> None:
    stored = DEFAULTS["gemma4_text with shared keys and values"]["config"]
    model = from_hf_config(stored, "x")
    assert stored["num_hidden_layers"] - stored["num_kv_shared_layers"] == 15  # 13 with a window, 2 without
    assert kv_elements(model, 1) == 13 * 2 * 256 + 2 * 2 * 512
    shared = [index for index, block in enumerate(model.blocks) if getattr(block.mixer, "shared_kv", False)]
    assert sum(model.blocks[index].count for index in shared) == 20
    assert all({"k", "v"}.isdisjoint(layer(model, index)) for index in shared)
    assert {layer(model, index)["up"] for index in shared} == {1536 * 2 * 6144}  # twice as wide
    assert model.layer_embeddings == 262144 * 35 * 256


def test_an_indexer_of_blocks_and_an_indexer_that_layers_share() -> None:
    blocks = published("MiniMaxAI/MiniMax-M3")
    assert kv_elements(blocks, 1) == 60 * 4 * 2 * 128 + 57 * 128
    assert layer(blocks, 1)["index_q"] + layer(blocks, 1)["index_k"] == 6144 * (4 * 128 + 128)
    assert blocks.blocks[1].mixer.index_top_k == 16 * 128  # type: ignore[union-attr]
    shared = published("nvidia/GLM-5.2-NVFP4")
    assert kv_elements(shared, 1) == 78 * (512 + 64) + 21 * 128


def test_experts_that_compute_nothing_are_no_weights() -> None:
    config = {
        "model_type": "longcat_flash", "vocab_size": 131072, "hidden_size": 6144, "num_layers": 28,
        "num_attention_heads": 64, "ffn_hidden_size": 12288, "q_lora_rank": 1536, "kv_lora_rank": 512,
        "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "moe_topk": 12, "n_routed_experts": 512,
        "zero_expert_num": 256, "expert_ffn_hidden_size": 2048,
    }  # fmt: skip
    model = from_hf_config(config, "x")
    assert parameters(model) == pytest.approx(560e9, rel=0.005)  # "560B" (meituan-longcat/LongCat-Flash-Chat)
    assert active_parameters(model) == pytest.approx(27e9, rel=0.05)  # "about 27B on average"
    assert kv_elements(model, 1) == 2 * 28 * (512 + 64)


def test_a_network_found_by_search() -> None:
    each = [
        {"attention": {"n_heads_in_group": 4}, "ffn": {"ffn_mult": 2.0}},
        {"attention": {"no_op": True}, "ffn": {"ffn_mult": 0.5}},
        {"attention": {"replace_with_linear": True}, "ffn": {"intermediate_size": 768}},
        {"attention": {"n_heads_in_group": 2}, "ffn": {"no_op": True}},
    ]
    config = {**LLAMA, "model_type": "nemotron-nas", "num_key_value_heads": None, "intermediate_size": None}
    model = from_hf_config({**config, "block_configs": each}, "x")
    assert kv_elements(model, 1) == (2 + 4) * 2 * 64
    widths = (768, 256, 768)  # two thirds of the multiple of 512, rounded up to 256
    weights = sum(3 * 512 * width for width in widths) + 512 * 512 + 2 * (2 * 512 * 512) + 2 * 512 * (2 + 4) * 64
    norms = 5 * 2 * 512 + 512
    assert parameters(model) == weights + norms + 2 * 1000 * 512


# --- names and formats that vary -----------------------------------------------------------------------------------


def test_a_new_name_for_known_parts_is_read_by_its_keys() -> None:
    for name in ("hy_v3", "solar_open", "laguna", "glm4_moe_lite", "ministral3"):
        config = {"hidden_act": "silu", **DEFAULTS[name]["config"], "model_type": "brand_new"}
        if "mlp_layer_types" not in config and "n_routed_experts" in config:
            config["first_k_dense_replace"] = 0
        found = parameters(from_hf_config(config, "x"))
        assert found == pytest.approx(DEFAULTS[name]["parameters"], rel=1e-3)


def test_heads_and_orders_of_layers_that_are_stated_in_other_ways() -> None:
    step = PUBLISHED["stepfun-ai/Step-3.7-Flash"]["config"]
    other = {"num_attention_heads": 96, "num_attention_groups": 8, "head_dim": 128}
    changed_heads = from_hf_config({**step, "attention_other_setting": other}, "x")
    assert {block.mixer.heads for block in changed_heads.blocks if block.mixer.window_tokens} == {96}  # type: ignore[union-attr]
    assert {block.mixer.heads for block in changed_heads.blocks if not block.mixer.window_tokens} == {64}  # type: ignore[union-attr]
    stored = DEFAULTS["deepseek_v4"]["config"]
    config = {key: value for key, value in stored.items() if key not in ("layer_types", "compress_rates")}
    assert from_hf_config(config, "x") == from_hf_config(stored, "x")


@pytest.mark.parametrize("section", ["text_config", "llm_config", "thinker_config"])
def test_a_text_model_is_found_in_any_section(section: str) -> None:
    assert from_hf_config({"model_type": "wrapper", section: LLAMA}, "x") == from_hf_config(LLAMA, "x")
    nested = {"model_type": "omni", "thinker_config": {"model_type": "thinker", "text_config": LLAMA}}
    assert from_hf_config(nested, "x") == from_hf_config(LLAMA, "x")


@pytest.mark.parametrize("key", ["n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts"])
def test_experts_have_many_names(key: str) -> None:
    config = {**LLAMA, key: 8, "num_experts_per_tok": 2, "moe_intermediate_size": 256}
    assert from_hf_config(config, "x").blocks[0].ffn.experts == 8  # type: ignore[union-attr]


@pytest.mark.parametrize("name", sorted(DEFAULTS))
def test_ten_percent_more_of_a_size_moves_the_shape_or_is_refused_or_has_a_reason(name: str) -> None:
    from advisor.engine.network.config_keys import irrelevant
    from advisor.engine.network.layers.families import kind_of

    config = DEFAULTS[name]["config"]
    before = from_hf_config(config, "x")
    kind = kind_of(config.get("text_config") or config)
    for path in sizes(config):
        value: Any = config
        for part in path:
            value = value[part]
        if outcome(changed(config, path, -(-11 * value // 10)), before) == "unmoved":
            assert irrelevant(kind, path[-1]), f"{'.'.join(path)} of {name} was changed, and nothing happened"


# --- formats of checkpoints -----------------------------------------------------------------------------------------


def released(settings: dict[str, Any], config: dict[str, Any] = LLAMA) -> Any:
    return from_hf_config({**config, "quantization_config": settings}, "x").published


def test_experts_in_four_bits_beside_layers_in_eight() -> None:
    own = published("deepseek-ai/DeepSeek-V4-Flash").published
    assert own is not None
    assert (own.format, own.experts_only, own.others) == ("mxfp4", True, (("fp8", 1.0),))
    other = published("nvidia/DeepSeek-V4-Flash-NVFP4").published
    assert other is not None
    assert (other.format, other.others) == ("nvfp4", (("fp8", 1.0),))


def test_layers_that_stay_in_16_bits_are_weighed() -> None:
    attention, dense = 2 * 512 * 512 + 2 * 512 * 128, 3 * 512 * 1024
    kept = [f"model.layers.{n}.self_attn.{p}_proj" for n in range(4) for p in "qkvo"]
    found = released({"quant_method": "fbgemm_fp8", "modules_to_not_convert": [*kept, "lm_head"]})
    assert (found.format, found.experts_only) == ("fp8", None)
    assert found.others == (("bf16", pytest.approx(attention / (attention + dense), abs=1e-4)),)
    first = [f"model.layers.0.mlp.{p}_proj" for p in ("gate", "up", "down")]
    found = released({"quant_method": "fp8", "modules_to_not_convert": first})
    assert found.others == (("bf16", pytest.approx(dense / 4 / (attention + dense), abs=1e-4)),)
    for nothing in (["lm_head"], ["model.layers.1.input_layernorm", "model.layers.1.self_attn.q_a_layernorm"]):
        assert released({"quant_method": "fp8", "modules_to_not_convert": nothing}).others == ()


@pytest.mark.parametrize("wildcard", ["re:.*self_attn.*", "*self_attn*", "model.layers.*.self_attn"])
def test_layers_that_stay_in_16_bits_may_be_a_pattern(wildcard: str) -> None:
    attention, dense = 2 * 512 * 512 + 2 * 512 * 128, 3 * 512 * 1024
    found = released({"quant_method": "modelopt", "quant_algo": "FP8", "exclude_modules": [wildcard]})
    assert found.others == (("bf16", pytest.approx(attention / (attention + dense), abs=1e-4)),)


def test_mixed_precision_of_modelopt() -> None:
    layers = {
        f"model.layers.{n}.{part}": {"quant_algo": algorithm}
        for n in range(4)
        for part, algorithm in (
            *((f"mlp.{p}_proj", "W4A16_NVFP4") for p in ("gate", "up", "down")),
            *((f"self_attn.{p}_proj", "FP8") for p in "qkvo"),
        )
    }
    found = released({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers})
    attention, dense = 2 * 512 * 512 + 2 * 512 * 128, 3 * 512 * 1024
    assert (found.format, found.experts_only) == ("nvfp4", None)
    assert found.others == (("fp8", pytest.approx(attention / (attention + dense), abs=1e-4)),)


def test_groups_of_compressed_tensors_may_name_modules_or_all_the_others() -> None:
    groups = {
        "attention": {"targets": ["re:.*self_attn.*"], "weights": {"num_bits": 8, "type": "float"}},
        "rest": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "float", "group_size": 32}},
    }
    found = released({"quant_method": "compressed-tensors", "config_groups": groups, "ignore": ["lm_head"]})
    attention, dense = 2 * 512 * 512 + 2 * 512 * 128, 3 * 512 * 1024
    assert found.format == "mxfp4"
    assert found.others == (("fp8", pytest.approx(attention / (attention + dense), abs=1e-4)),)


def test_mixed_precision_with_experts_is_named_after_their_format() -> None:
    config = {**LLAMA, "num_local_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 256}
    layers = {f"model.layers.{n}.mlp.experts.{e}.up_proj": {"quant_algo": "NVFP4"} for n in range(4) for e in range(8)}
    layers |= {f"model.layers.{n}.self_attn.{p}_proj": {"quant_algo": "FP8"} for n in range(4) for p in "qkvo"}
    settings = {"quantization": {"quant_algo": "MIXED_PRECISION", "quantized_layers": layers}}  # hf_quant_config.json
    found = released({"quant_method": "modelopt", **settings}, config)
    assert (found.format, found.experts_only, found.others) == ("nvfp4", True, (("fp8", 1.0),))


# --- what follows from the matrices -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(DEFAULTS))
def test_a_prompt_takes_two_operations_for_each_weight_that_it_uses(name: str) -> None:
    model, tokens = from_hf_config(DEFAULTS[name]["config"], "x"), 65_536
    used = sum(b.count * m.elements * m.used for b in decoder_blocks(model) for m in matrices(b, model.hidden))
    steps = [*linear_operators(model, chips(), np.array([float(tokens)]))]
    done = sum(float(each.flops[0, 0]) for each in steps if each.name not in ("lm_head", "recurrent/scan"))
    assert done == pytest.approx(2 * tokens * used, rel=0.01)
    assert all(np.isfinite(each.time_s).all() for each in steps)


@pytest.mark.parametrize("name", sorted(DEFAULTS))
def test_a_training_step_multiplies_by_the_same_matrices(name: str) -> None:
    model = from_hf_config(DEFAULTS[name]["config"], "x")
    for block in model.blocks:
        listed = {each for names in training_operators.members(block).values() for each in names}
        assert {matrix.name for matrix in matrices(block, model.hidden)} <= listed


def test_a_chosen_context_costs_no_more_when_it_grows_but_for_its_indexer() -> None:
    model = published("deepseek-ai/DeepSeek-V4-Flash")
    cost = attention_cost(model, chips())
    rate = chips().memory_bytes_per_s[0]
    keys_s = 21 * 128 / 4 / rate  # of the indexer, a byte each, one for 4 tokens
    entries_s = 20 / 128 * context_token(model.blocks[2].mixer, chips())[0][0]  # type: ignore[arg-type]
    assert cost.decode_s_per_context_token[0] == pytest.approx(keys_s + entries_s)
    assert cost.window_tokens[0] == 512 * 4  # the longest: 512 entries of 4 tokens


CATALOG = sorted((Path(__file__).parents[3] / "fixtures" / "models").glob("*.yaml"))


@pytest.mark.parametrize("path", CATALOG, ids=lambda path: path.stem)
def test_every_model_of_the_catalog_has_a_size_a_step_time_and_a_place_on_two_chips(path: Path) -> None:
    row = fixtures.served_model(path)
    model = from_shape(row["slug"], row["shape"])
    if model.diffusion is not None:
        return
    times = []
    for rate in (3.35e12, 8e12):  # bytes per second of an H100 and of an MI355X
        x = chips(memory_bytes_per_s=rate, weight_bytes=2.0, expert_weight_bytes=2.0)
        towers = 2.0 * (vision_parameters(model.vision) if model.vision else 0)  # counted where images are
        assert weights_bytes(model, x)[0] + towers == pytest.approx(2.0 * parameters(model), rel=0.03)
        times.append(linear_s(model, x, np.array([1.0, 4096.0]))[0])
        cost = attention_cost(model, x, 100.0)
        assert all(np.isfinite(getattr(cost, field.name)).all() for field in fields(cost))
    assert (times[0] >= times[1]).all()
    assert (times[1] > 0).all()


# --- other files than config.json -------------------------------------------------------------------------------------


def test_params_json_of_mistral_is_the_same_model_as_config_json() -> None:
    params = {
        "dim": 512, "n_layers": 4, "n_heads": 8, "n_kv_heads": 2, "head_dim": 64, "hidden_dim": 1024,
        "vocab_size": 1000, "norm_eps": 1e-5, "max_position_embeddings": 4096, "tied_embeddings": False,
    }  # fmt: skip
    config = {**LLAMA, "model_type": "mistral", "head_dim": 64}
    assert from_hf_config(params, "x") == from_hf_config(config, "x")
    windows = from_hf_config({**params, "sliding_window": [None, 512, 512, 512]}, "x")
    assert [(block.count, block.mixer.window_tokens) for block in windows.blocks] == [(1, None), (3, 512)]  # type: ignore[union-attr]
    stored = from_hf_config({**params, "quantization": {"qformat_weight": "fp8_e4m3", "qscheme_act": "TENSOR"}}, "x")
    assert stored.published is not None
    assert stored.published.format == "fp8"
    with pytest.raises(ValueError, match="unknown quantization"):
        from_hf_config({**params, "quantization": {"qformat_weight": "new"}}, "x")
    with pytest.raises(ValueError, match=r"memory_dim \(64\)"):
        from_hf_config({**params, "memory_dim": 64}, "x")


def test_params_json_with_latent_attention_and_experts() -> None:
    params = {
        "dim": 512, "n_layers": 4, "n_heads": 8, "n_kv_heads": 8, "hidden_dim": 1024, "vocab_size": 1000,
        "q_lora_rank": 128, "kv_lora_rank": 64, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32,
        "moe": {"expert_parallel": 1, "expert_model_parallel": 1, "route_every_n": 1, "first_k_dense_replace": 1,
                "num_experts": 16, "num_experts_per_tok": 4, "num_expert_groups": 1, "num_expert_groups_per_tok": 1,
                "routed_scale": 1.0, "expert_hidden_dim": 128, "num_shared_experts": 1},
    }  # fmt: skip
    dense, routed = from_hf_config(params, "x").blocks
    assert (dense.count, dense.ffn.inner) == (1, 1024)  # type: ignore[union-attr]
    assert routed.ffn == Ffn(inner=128, experts=16, top_k=4, shared_inner=128)
    assert kv_elements(from_hf_config(params, "x"), 1) == 4 * (64 + 16)


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("bartowski/X-8B-GGUF/X-8B-Q4_K_M.gguf", "gguf-q4-k-m"), ("X-Q8_0.gguf", "gguf-q8-0"),
        ("unsloth/X-UD-Q5_K_XL", ""), ("X-q6_k", "gguf-q6-k"), ("Qwen/Qwen3-8B", ""), ("X-Q4_0", "gguf-q4-0"),
    ],
)  # fmt: skip
def test_the_name_of_a_gguf_file_says_its_format(name: str, slug: str) -> None:
    assert gguf_format(name) == slug
