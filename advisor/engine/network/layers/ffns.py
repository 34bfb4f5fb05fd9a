"""The feed-forward parts of layers, from the keys of a config.json, and which layers have experts."""

from collections.abc import Mapping, Sequence
from typing import Any

from advisor.engine.network.blocks import Ffn
from advisor.engine.network.config_keys import first, need, sized
from advisor.engine.network.layers.families import Traits, kind_of
from advisor.engine.network.layers.kinds import each_layer

Config = Mapping[str, Any]
ROUTED = {"sparse", "moe", "hash_moe"}  # entries of mlp_layer_types


WIDTHS = (
    "dense_intermediate_size", "prefix_dense_intermediate_size", "intermediate_size_mlp", "intermediate_size",
    "ffn_dim", "n_inner", "ffn_hidden_size", "block_ff_dim",
)  # fmt: skip


SHARED_ONLY = "shared_intermediate_size"  # without experts, these models still have the part that all tokens use
DENSE_IS_SHARED = ("granitemoehybrid",)


def dense(config: Config, traits: Traits, *, double: bool = False) -> Ffn:
    """Dense feed-forward part of a layer."""
    names = (SHARED_ONLY, *WIDTHS) if kind_of(config) in DENSE_IS_SHARED else WIDTHS
    inner = sized(config, *names) or first(config, *WIDTHS[3:])
    if inner is None:
        inner = need(config, "hidden_size", "n_embd", "d_model") * (config.get("expansion_ratio") or 4)
    bias = bool(config.get("mlp_bias", traits.mlp_bias))
    return Ffn(inner=rounded(config, int(inner)) * (2 if double else 1), matrices=traits.matrices, bias=bias)


def rounded(config: Config, inner: int) -> int:
    """LFM2 stores a width that its code reduces to two thirds and rounds up."""
    if not config.get("block_auto_adjust_ff_dim"):
        return inner
    step = first(config, "block_multiple_of") or 1
    inner = int(float(first(config, "block_ffn_dim_multiplier") or 1) * int(2 * inner / 3))
    return -(-inner // step) * step


def expert_count(config: Config) -> Any:
    """Routed experts of a layer; 0 for a dense model."""
    count = sized(config, "n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts")
    return max(count) if isinstance(count, list | tuple) else count


def experts(config: Config, traits: Traits) -> Ffn:
    """Mixture-of-experts part of a layer."""
    inner = need(config, "moe_intermediate_size", "expert_ffn_hidden_size", "intermediate_size")
    shared = shared_inner(config, traits, inner)
    count, none = expert_count(config), sized(config, "zero_expert_num")
    chosen = need(config, "num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_top_k", "moe_topk",
                  "top_k_experts", "moe_k")  # fmt: skip
    return Ffn(
        inner=inner,
        matrices=traits.matrices,
        experts=count,
        top_k=max(round(chosen * count / (count + none)), 1),
        shared_inner=shared,
        shared_gate=traits.shared_gate and bool(shared),
        bias=traits.mlp_bias,
        latent=sized(config, "moe_latent_size", "routed_expert_hidden_size", "moe_hidden_size"),
        zero_experts=none,
    )


def shared_inner(config: Config, traits: Traits, inner: int) -> Any:
    """Width of all experts that every token uses. Gemma 4 has a dense feed-forward beside its experts."""
    if config.get("enable_moe_block"):
        return need(config, "intermediate_size")
    names = (
        "moe_shared_expert_intermediate_size",
        "shared_expert_intermediate_size",
        "shared_experts_intermediate_size",
        "shared_intermediate_size",
    )
    stated = sized(config, *names, "share_expert_dim")
    if not stated and (traits.shared_gate or traits.builder == "nemotron_h"):
        need(config, *names)
    if stated:
        return stated
    if traits.window == "chunked":
        return inner  # Llama 4: one shared expert as wide as a routed one
    counts = ("n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts")
    stated = first(config, *counts)
    return inner * (traits.shared_experts if stated is None else sized(config, *counts))


# Types whose code has another default than 0 dense layers.
DENSE_FIRST = ("deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "kimi_k25", "glm_moe_dsa", "glm4_moe")


def routed_layers(config: Config, traits: Traits, count: int) -> set[int]:
    """Indices of the layers with routed experts. ValueError if two keys state different layers."""
    if expert_count(config) < 2 or config.get("enable_moe_block") is False:
        return set()
    kinds = each_layer(config, "mlp_layer_types", count)
    if unknown := set(kinds or ()) - {"dense", *ROUTED}:
        raise ValueError(
            f"mlp_layer_types has unknown kinds: {', '.join(sorted(map(str, unknown)))}; use dense and sparse"
        )
    listed = {layer for layer, kind in enumerate(kinds or ()) if kind in ROUTED} or enumerated(config)
    rules = ("first_k_dense_replace", "moe_layer_freq", "decoder_sparse_step", "interleave_moe_layer_step")
    ruled = routed_by_rule(config, traits, count) if not listed or first(config, *rules) is not None else listed
    if listed and listed != ruled:
        raise ValueError(
            "the list of layers with experts and the rule for them state different layers: remove the wrong one"
        )
    return listed or ruled


def enumerated(config: Config) -> set[int]:
    """Layers with experts in a list of numbers, or in a text of them (Step 3.5)."""
    listed = first(config, "moe_layers", "moe_layers_enum") or ()
    return {int(each) for each in (listed.split(",") if isinstance(listed, str) else listed)}


def routed_by_rule(config: Config, traits: Traits, count: int) -> set[int]:
    """Indices of the layers with routed experts, by the keys that state a rule instead of a list of layers."""
    frequency = first(config, "moe_layer_freq")
    dense_first = first(config, "first_k_dense_replace", "num_dense_layers", "moe_layer_start_index")
    if isinstance(frequency, Sequence):
        listed = {layer for layer, flag in enumerate(each_layer(config, "moe_layer_freq", count) or ()) if flag}
        if dense_first is not None and listed != set(range(dense_first, count)):
            raise ValueError("moe_layer_freq and first_k_dense_replace state different layers: remove the wrong one")
        return listed
    if kind_of(config) in DENSE_FIRST and "first_k_dense_replace" not in config:
        need(config, "first_k_dense_replace")
    start = int(dense_first if dense_first is not None else max(traits.first_dense, 0))
    step = first(config, "decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_interval") or frequency or 1
    last = first(config, "moe_layer_end_index")
    skipped = set(first(config, "mlp_only_layers") or ())
    offset = 0 if frequency else 1  # DeepSeek counts layers from 0, Qwen and Llama 4 from 1
    end = count if last in (None, -1) else min(int(last) + 1, count)
    return {n for n in range(start, end) if (n + offset) % step == 0 and n not in skipped}
