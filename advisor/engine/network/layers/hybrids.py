"""Layers of architectures with keys of their own: Nemotron-H, Jamba, Mamba, networks found by search, LongCat."""

from collections.abc import Mapping
from typing import Any

from advisor.engine.network.blocks import Ffn, Mixer, Recurrent
from advisor.engine.network.config_keys import Keys, expect, first, need
from advisor.engine.network.layers.families import Traits
from advisor.engine.network.layers.ffns import dense, expert_count, experts
from advisor.engine.network.layers.kinds import MAX_LAYERS, layer_count
from advisor.engine.network.layers.mixers import attention, latent, mamba1, mamba2

Config = Mapping[str, Any]
LETTERS = {"mamba": "M", "attention": "*", "linear_attention": "M", "full_attention": "*", "mlp": "-", "moe": "E"}


def nemotron_h_layers(config: Config, traits: Traits) -> tuple[list[Mixer | None], list[Ffn | None]]:
    """Layers given as letters (M Mamba-2, * attention, - feed-forward, E experts) or as names."""
    names = first(config, "layers_block_type", "layer_types") or ()
    listed, pattern = "".join(LETTERS.get(name, "?") for name in names), first(config, "hybrid_override_pattern")
    if listed and pattern and listed != pattern:
        raise ValueError("layers_block_type and hybrid_override_pattern state different layers: remove the wrong one")
    pattern = pattern or listed
    if not pattern or set(pattern) - set("M*-E"):
        raise ValueError(f"config.json of a nemotron_h lacks hybrid_override_pattern of M, *, - and E: {pattern!r}")
    if len(pattern) > MAX_LAYERS:
        raise ValueError(f"the number of layers must be between 1 and {MAX_LAYERS}, not {len(pattern)}")
    expect(config, "num_hidden_layers", len(pattern), "the layers listed are")
    mixers: dict[str, Mixer] = {"M": mamba2(config)} if "M" in pattern else {}
    mixers |= {"*": attention(config, traits, None)} if "*" in pattern else {}
    ffns = {"-": dense(config, traits)} if "-" in pattern else {}
    ffns |= {"E": experts(config, traits)} if "E" in pattern else {}
    return [mixers.get(letter) for letter in pattern], [ffns.get(letter) for letter in pattern]


def jamba_layers(config: Config, traits: Traits) -> tuple[list[Mixer | None], list[Ffn | None]]:
    """Jamba: attention every n-th layer, Mamba otherwise; experts every m-th layer."""
    hidden, count = need(config, "hidden_size"), layer_count(config)
    period, offset = need(config, "attn_layer_period"), need(config, "attn_layer_offset")
    every, start = need(config, "expert_layer_period"), need(config, "expert_layer_offset")
    routed = {layer for layer in range(count) if layer % every == start and expert_count(config) > 1}

    def recurrent() -> Recurrent:
        expand, rank = need(config, "mamba_expand"), config.get("mamba_dt_rank")
        return mamba1(hidden, expand, need(config, "mamba_d_state"), need(config, "mamba_d_conv"), rank)

    mixers: list[Mixer | None] = [
        attention(config, traits, None) if layer % period == offset else recurrent() for layer in range(count)
    ]
    return mixers, [experts(config, traits) if layer in routed else dense(config, traits) for layer in range(count)]


def parallel_layers(config: Config, traits: Traits) -> tuple[list[Mixer | None], list[Ffn | None]]:
    """Falcon-H1: each layer adds attention and Mamba-2 over the same input, then a feed-forward."""
    count = layer_count(config)
    mixers: list[Mixer | None] = [mamba2(config), attention(config, traits, None)] * count
    return mixers, [None, dense(config, traits)] * count


def mamba_layers(config: Config, traits: Traits) -> tuple[list[Mixer | None], list[Ffn | None]]:
    """Mamba and Mamba-2: state-space layers only."""
    hidden, count = need(config, "hidden_size"), layer_count(config)
    expand, state, conv = config.get("expand", 2), need(config, "state_size"), need(config, "conv_kernel")
    for name in ("intermediate_size", "d_inner"):
        expect(config, name, expand * hidden, "expand x hidden_size is")
    if config["model_type"] == "mamba2":
        heads, head_dim = need(config, "num_heads"), need(config, "head_dim")
        if heads * head_dim != expand * hidden:
            raise ValueError(f"num_heads x head_dim is {heads * head_dim}, but expand x hidden_size {expand * hidden}")
        groups = need(config, "n_groups")
        mixer = Recurrent(
            kind="mamba2",
            inner=expand * hidden,
            state=state,
            heads=heads,
            head_dim=head_dim,
            groups=groups,
            conv=conv,
        )
    else:
        mixer = mamba1(hidden, expand, state, conv, config.get("time_step_rank"))
    return [mixer] * count, [None] * count


def searched_layers(config: Keys, traits: Traits) -> tuple[list[Mixer | None], list[Ffn | None]]:
    """Networks found by search (Nemotron-NAS, DeciLM): block_configs states the parts of each layer."""
    configs, count = first(config, "block_configs"), layer_count(config)
    if not configs or len(configs) != count:
        raise ValueError(f"block_configs must have an entry for each of the {count} layers")
    mixers: list[Mixer | None] = []
    ffns: list[Ffn | None] = []
    for each in configs:
        mixer, projected = searched_attention(config, traits, each.get("attention") or {})
        ffn = searched_ffn(config, each.get("ffn") or {})
        if projected:  # a layer of its own; it adds to the same residual stream
            mixers.append(None)
            ffns.append(projected)
        mixers.append(mixer)
        ffns.append(ffn)
    return mixers, ffns


def replaced(hidden: int) -> Ffn:
    """One matrix (hidden, hidden) instead of a part of a layer: as many weights as two of half the width."""
    return Ffn(inner=hidden // 2, matrices=2)


def searched_attention(config: Keys, traits: Traits, stated: Mapping[str, Any]) -> tuple[Mixer | None, Ffn | None]:
    """(attention, the matrix instead of it) of one searched layer."""
    if stated.get("no_op"):
        return None, None
    if stated.get("replace_with_linear"):
        return None, replaced(need(config, "hidden_size"))
    heads = need(config, "num_attention_heads")
    own = stated.get("num_key_value_heads") or heads // int(stated.get("n_heads_in_group") or 1)
    window = stated.get("window_length") or (stated.get("sparsify") or {}).get("window_length")
    return attention(config.with_own({"num_key_value_heads": own}), traits, window), None


def searched_ffn(config: Config, stated: Mapping[str, Any]) -> Ffn | None:
    """The feed-forward of one searched layer: a multiple of the hidden size, or a width."""
    hidden = need(config, "hidden_size")
    if stated.get("no_op"):
        return None
    if stated.get("replace_with_linear"):
        return replaced(hidden)
    inner = stated.get("intermediate_size")
    if inner is None:
        if stated.get("ffn_mult") is None:
            raise ValueError("block_configs: an ffn states neither ffn_mult nor intermediate_size")
        inner = -(-int(2 * float(stated["ffn_mult"]) * hidden / 3) // NAS_STEP) * NAS_STEP
    return Ffn(inner=int(inner))


NAS_STEP = 256  # DeciLM's code rounds widths up to a multiple of it


def longcat_layers(config: Config, traits: Traits) -> tuple[list[Mixer | None], list[Ffn | None]]:
    """LongCat-Flash: each layer has two pairs of attention and dense feed-forward, and experts beside the second."""
    count = layer_count(config)
    pair = latent(config, traits, 0, 1)
    mixers: list[Mixer | None] = [pair, None, pair] * count
    return mixers, [dense(config, traits), experts(config, traits), dense(config, traits)] * count
