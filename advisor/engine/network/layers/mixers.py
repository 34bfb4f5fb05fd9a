"""The mixers of layers, from the keys of a config.json."""

from collections.abc import Mapping
from math import ceil
from typing import Any

from advisor.engine.network.blocks import Attention, CompressedAttention, LatentAttention, Mixer, Recurrent
from advisor.engine.network.config_keys import Keys, expect, first, need, sized, stated
from advisor.engine.network.layers.families import Traits
from advisor.engine.network.layers.kinds import COMPRESSED, LINEAR, MAMBA, Kind, each_layer

Config = Mapping[str, Any]


def mixer_of(config: Config, traits: Traits, kind: Kind, layer: int, count: int) -> Mixer:
    """The mixer of one layer. `config`: with what it states for this layer only."""
    shared = layer >= count - sized(config, "num_kv_shared_layers")
    if config.get("use_cla"):  # neighboring layers share keys and values (Hunyuan)
        shared = layer % need(config, "cla_share_factor") != 0
    if kind.mixer == COMPRESSED:
        return compressed(config, kind)
    if kind.mixer == LINEAR:
        return linear(config, traits)
    if kind.mixer == MAMBA:
        return mamba2(config)
    if first(config, "kv_lora_rank"):
        return latent(config, traits, layer, count)
    return attention(config, traits, kind.window, layer, count, shared=shared)


def attention(
    config: Config, traits: Traits, window: int | None, layer: int = 0, count: int = 1, *, shared: bool = False
) -> Attention:
    """Softmax attention of one layer. Layers with a window, or without one, may have heads of their own."""
    config = with_other_heads(config) if window else config
    prefixes = heads_prefixes(config, window)
    heads = heads_of(config, window, layer, count)
    hidden = need(config, "hidden_size", "n_embd", "d_model")
    own_dim = sized(config, *(f"{p}head_dim" for p in prefixes), "attention_head_dim")
    head_dim = own_dim or traits.head_dim or hidden // heads
    v_dim = sized(config, *(f"{p}v_head_dim" for p in prefixes))
    bias = bool(first(config, "attention_bias", "qkv_bias", "use_qkv_bias", "use_bias") or traits.qkv_bias)
    bias = bias and config.get("attention_bias") is not False
    index_heads, index_dim, index_top_k = block_indexer(config, layer, count)
    gates = each_layer(config, "gating_types", count)
    wide_gate = str(gates[layer] if gates else first(config, "gating")).replace("-", "_") == "per_element"  # Laguna M
    return Attention(
        heads=heads,
        kv_heads=kv_heads(config, traits, prefixes, heads),
        head_dim=head_dim,
        v_head_dim=None if v_dim in (0, head_dim) else v_dim,
        window_tokens=window,
        qkv_bias=bias,
        output_bias=bias and traits.output_bias,
        qk_norm=bool(config.get("use_qk_norm", traits.qk_norm)),
        output_gate=wide_gate or bool(first(config, "attn_output_gate", "attention_output_gate")
                                      or traits.output_gate and config.get("attn_output_gate") is not False),
        head_gate=not wide_gate and bool(first(config, "use_head_wise_attn_gate", "gating") or traits.head_gate),
        causal=traits.builder != "encoder" and not traits.vectors,
        keys_are_values=bool(config.get("attention_k_eq_v")) and window is None,
        shared_kv=shared,
        index_heads=index_heads,
        index_dim=index_dim,
        index_top_k=index_top_k,
    )  # fmt: skip


OTHER_HEADS = {"num_attention_heads": "num_attention_heads", "num_attention_groups": "num_key_value_heads",
               "head_dim": "head_dim"}  # fmt: skip


def with_other_heads(config: Config) -> Config:
    """With the heads that Step 3.5 states apart for layers with a window."""
    stated_apart = first(config, "attention_other_setting") or {}
    values = {name: first(stated_apart, other) for other, name in OTHER_HEADS.items() if stated(stated_apart, other)}
    return config.with_own(values) if values and isinstance(config, Keys) else config


def heads_prefixes(config: Config, window: int | None) -> tuple[str, ...]:
    """Prefixes of the keys for heads of this layer, the most special first."""
    special = "swa_" if window else "global_"
    names = ("num_attention_heads", "num_key_value_heads", "head_dim", "v_head_dim")
    return (special, "") if any(stated(config, f"{special}{name}") for name in names) else ("",)


def heads_of(config: Config, window: int | None, layer: int, count: int) -> Any:
    """Query heads of one layer."""
    if (listed := each_layer(config, "num_attention_heads_per_layer", count)) is not None:
        return int(listed[layer])
    special = sized(config, "swa_num_attention_heads", "num_sliding_attention_heads") if window else 0
    return special or need(config, "num_attention_heads", "n_head", "n_heads")


def kv_heads(config: Config, traits: Traits, prefixes: tuple[str, ...], heads: int) -> int:
    """Number of key-value heads. Falcon has its own keys for it."""
    if config.get("model_type") == "falcon" and not config.get("new_decoder_architecture"):
        return 1 if config.get("multi_query", True) else heads
    special = ("num_global_key_value_heads",) if "global_" in prefixes else ()
    names = (
        *special,
        *(f"{p}num_key_value_heads" for p in prefixes),
        "num_kv_heads",
        "n_head_kv",
        "num_attention_groups",
    )
    grouped = first(config, *names)
    nested = first(config.get("attn_config") or {}, "kv_n_heads")
    if grouped is None and traits.grouped and "num_key_value_heads" not in config:
        need(config, "num_key_value_heads")
    return int(grouped or nested or heads)


def block_indexer(config: Config, layer: int, count: int) -> tuple[int, int, int]:
    """(heads, key width, tokens chosen) of an indexer that chooses blocks of the context; zeros without one."""
    section = first(config, "sparse_attention_config") or {}
    if not section and not first(config, "index_topk_blocks"):
        return 0, 0, 0
    flags = each_layer(section, "sparse_attention_freq", count) if section else None
    named = each_layer(config, "layer_types", count)
    if flags and not flags[layer] or named and named[layer] == "full_attention":
        return 0, 0, 0
    source = section or config
    blocks = need(source, "sparse_topk_blocks", "index_topk_blocks")
    size = need(source, "sparse_block_size", "index_block_size")
    heads = need(source, "sparse_num_index_heads", "index_n_heads")
    return heads, need(source, "sparse_index_dim", "index_head_dim"), blocks * size


def latent(config: Config, traits: Traits, layer: int, count: int) -> LatentAttention:
    """Latent attention of one layer, with its sparse indexer if it has one."""
    nope, rope = need(config, "qk_nope_head_dim"), need(config, "qk_rope_head_dim")
    expect(config, "qk_head_dim", nope + rope, "qk_nope_head_dim + qk_rope_head_dim are")
    heads, v_dim = need(config, "num_attention_heads"), need(config, "v_head_dim")
    own = has_own_indexer(config, layer, count)
    index_heads, index_dim = first(config, "index_n_heads") or 0, first(config, "index_head_dim") or 0
    pool = first(config, "index_kpool") or 1
    wide = traits.latent_gate == "full" or config.get("mla_use_output_gate")
    rotated = not (each_layer(config, "no_rope_layers", count) or [1] * count)[layer]
    return LatentAttention(
        heads=heads,
        q_rank=first(config, "q_lora_rank") or 0,
        kv_rank=need(config, "kv_lora_rank"),
        nope_dim=nope + rope if rotated else nope,
        rope_dim=0 if rotated else rope,
        v_dim=v_dim,
        index_heads=index_heads if own else 0,
        index_dim=index_dim if own else 0,
        index_top_k=first(config, "index_topk") or 0,
        index_pool=pool if own else 1,
        gate=heads * v_dim if wide else heads if traits.latent_gate == "heads" else 0,
    )


def has_own_indexer(config: Config, layer: int, count: int) -> bool:
    """Whether a layer chooses keys itself, by a list or by a rule; the others use the choice of the layer before."""
    kinds = each_layer(config, "indexer_types", count)
    every, start = sized(config, "index_topk_freq") or 1, sized(config, "index_skip_topk_offset")
    ruled = max(layer - start + 1, 0) % every == 0  # as transformers 5.24.0 (models/glm5_next) derives indexer_types
    return bool(ruled if kinds is None else kinds[layer] != "shared")


def compressed(config: Config, kind: Kind) -> CompressedAttention:
    """Attention over a window and compressed entries. Entries of few tokens are chosen by an indexer (DeepSeek V4)."""
    indexed = 0 < kind.ratio < min(MAX_INDEXED_RATIO, need(config, "sliding_window"))
    index = (need(config, "index_n_heads"), need(config, "index_head_dim"), need(config, "index_topk"))
    expect(config, "num_key_value_heads", 1, "all heads share one key, so it must be")
    return CompressedAttention(
        heads=need(config, "num_attention_heads"),
        head_dim=need(config, "head_dim"),
        q_rank=need(config, "q_lora_rank"),
        rope_dim=need(config, "qk_rope_head_dim"),
        window_tokens=int(kind.window or 0),
        output_groups=need(config, "o_groups"),
        output_rank=need(config, "o_lora_rank"),
        ratio=kind.ratio,
        index_heads=index[0] if indexed else 0,
        index_dim=index[1] if indexed else 0,
        index_top_k=index[2] if indexed else 0,
    )


MAX_INDEXED_RATIO = 64  # V4's layers compress 4 tokens, with an indexer, or 128, without; models/deepseek_v4


def linear(config: Config, traits: Traits) -> Recurrent:
    """Linear attention of one layer, by the keys in use: Qwen3-Next, Kimi Linear, Lightning; or a short convolution."""
    if traits.linear == "short_conv":
        return short_convolution(config)
    if first(config, "linear_num_value_heads") is not None:
        return gated_delta(config)
    if first(config, "mamba_n_heads", "mamba_num_heads") is not None:
        return mamba2(config)
    if traits.linear == "channel_delta" or first(config, "linear_attn_config", "linear_num_heads") is not None:
        return channel_delta(config, traits)
    heads = need(config, "num_attention_heads")
    dim = int(first(config, "head_dim") or need(config, "hidden_size") // heads)
    return Recurrent(kind="lightning", inner=heads * dim, state=dim, heads=heads, head_dim=dim, groups=heads, conv=1)


def gated_delta(config: Config) -> Recurrent:
    """Gated delta attention (Qwen3-Next)."""
    heads, head_dim = need(config, "linear_num_value_heads"), need(config, "linear_value_head_dim")
    return Recurrent(
        kind="gated_delta",
        inner=heads * head_dim,
        state=need(config, "linear_key_head_dim"),
        heads=heads,
        head_dim=head_dim,
        groups=need(config, "linear_num_key_heads"),
        conv=need(config, "linear_conv_kernel_dim"),
    )


def channel_delta(config: Config, traits: Traits) -> Recurrent:
    """Kimi Delta Attention, in the keys of Kimi's code (linear_attn_config) or of transformers."""
    section = first(config, "linear_attn_config") or config
    plain = section is config
    heads = need(section, "linear_num_heads" if plain else "num_heads", *(("num_attention_heads",) if plain else ()))
    dim = need(section, "linear_head_dim" if plain else "head_dim")
    conv = need(section, *(("linear_conv_kernel_dim",) if plain else ()), "short_conv_kernel_size")
    wide_gate = traits.full_rank or bool(section.get("use_full_rank_gate"))
    return Recurrent(
        kind="channel_delta",
        inner=heads * dim,
        state=dim,
        heads=heads,
        head_dim=dim,
        groups=heads,
        conv=conv,
        decay_rank=0 if traits.full_rank else dim,
        gate_rank=0 if wide_gate else dim,
    )


def short_convolution(config: Config) -> Recurrent:
    """A gated convolution over the last tokens (LFM2): its state is its input."""
    hidden = need(config, "hidden_size")
    conv = need(config, "conv_L_cache")
    return Recurrent(kind="short_conv", inner=hidden, state=0, heads=hidden, head_dim=1, conv=conv)


def mamba2(config: Config) -> Recurrent:
    """A Mamba-2 layer, in the keys of Nemotron-H or of Granite and Bamba."""
    heads = need(config, "mamba_num_heads", "mamba_n_heads")
    dim = first(config, "mamba_head_dim", "mamba_d_head")
    inner = first(config, "mamba_d_ssm")  # Falcon-H1
    if inner is not None and isinstance(dim, int):
        expect(config, "mamba_d_ssm", heads * dim, "mamba_n_heads x mamba_d_head is")
    if not isinstance(dim, int):
        dim = (inner or need(config, "mamba_expand") * need(config, "hidden_size")) // heads
    return Recurrent(
        kind="mamba2",
        inner=heads * dim,
        state=need(config, "ssm_state_size", "mamba_d_state"),
        heads=heads,
        head_dim=dim,
        groups=need(config, "n_groups", "mamba_n_groups"),
        conv=need(config, "conv_kernel", "mamba_d_conv"),
    )


def mamba1(hidden: int, expand: int, state: int, conv: int, rank: Any) -> Recurrent:
    """A Mamba-1 layer; dt_rank defaults to hidden / 16."""
    inner = expand * hidden
    dt_rank = rank if isinstance(rank, int) else ceil(hidden / 16)
    return Recurrent(kind="mamba1", inner=inner, state=state, heads=inner, head_dim=1, conv=conv, dt_rank=dt_rank)
