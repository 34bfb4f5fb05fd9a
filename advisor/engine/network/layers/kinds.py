"""Which kind each layer has, by any of the keys in use."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from advisor.engine.network.config_keys import first, need
from advisor.engine.network.layers.families import Traits

Config = Mapping[str, Any]
MAX_LAYERS = 10_000

FULL, LINEAR, MAMBA, COMPRESSED = "full", "linear", "mamba", "compressed"
NAMES = {  # entries of layer_types
    **dict.fromkeys(("full_attention", "attention", "global_attention", "indexed_attention", "hybrid",
                     "deepseek_sparse_attention", "minimax_m3_sparse"), FULL),
    **dict.fromkeys(("sliding_attention", "chunked_attention", "hybrid_sliding", "local_attention"), "window"),
    **dict.fromkeys(("linear_attention", "conv"), LINEAR),
    **dict.fromkeys(("mamba", "mamba2"), MAMBA),
    **dict.fromkeys(("compressed_sparse_attention", "heavily_compressed_attention"), COMPRESSED),
}  # fmt: skip
HEAVILY = "heavily_compressed_attention"
COMPRESSION = {"compressed_sparse_attention": 4, HEAVILY: 128}  # tokens of an entry, by default
EACH_LAYER = (
    "layer_types", "mlp_layer_types", "hybrid_layer_pattern", "moe_layer_freq", "attn_type_list", "indexer_types",
    "num_attention_heads_per_layer", "compress_ratios", "layers_block_type",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Kind:
    """What one layer's mixer is: full | linear | mamba | compressed; with a window; of entries of `ratio` tokens."""

    mixer: str
    window: int | None = None
    ratio: int = 0


def layer_count(config: Config) -> int:
    """Layers of the network; ValueError if the number is implausible."""
    count = need(config, "num_hidden_layers", "n_layer", "n_layers", "num_layers")
    if not 0 < count <= MAX_LAYERS:
        raise ValueError(f"the number of layers must be between 1 and {MAX_LAYERS}, not {count}")
    return count


def each_layer(config: Config, name: str, count: int) -> list[Any] | None:
    """A list with an entry per layer, without those of layers that draft tokens; None if it is absent.

    ValueError: it has another length.
    """
    listed = first(config, name)
    if not isinstance(listed, Sequence) or isinstance(listed, str) or not listed:
        return None
    drafting = int(first(config, "num_nextn_predict_layers") or 0)
    if len(listed) not in (count, count + drafting):
        raise ValueError(f"{name} has {len(listed)} entries for {count} layers: correct the one that is wrong")
    return list(listed)[:count]


def layer_kinds(config: Config, traits: Traits, count: int) -> list[Kind]:
    """The kind of each layer. ValueError if a list of layers is wrong, or two keys state different layers."""
    for name in EACH_LAYER:
        each_layer(config, name, count)
    named = layer_names(config, traits, count)
    if ratios := compression(config, traits, named, count):
        window = need(config, "sliding_window")
        return [Kind(COMPRESSED, window, ratio) for ratio in ratios]
    linear = linear_layers(config, traits, named, count)
    windows = window_sizes(config, traits, named, count)
    mamba = {layer for layer, name in enumerate(named or ()) if NAMES[name] == MAMBA}
    return [
        Kind(MAMBA) if layer in mamba else Kind(LINEAR) if layer in linear else Kind(FULL, windows[layer])
        for layer in range(count)
    ]


def layer_names(config: Config, traits: Traits, count: int) -> list[str] | None:
    """layer_types; None without it. ValueError names kinds that are not known."""
    named = each_layer(config, "layer_types", count) or each_layer(config, "layers_block_type", count)
    keys = ("linear_num_value_heads", "linear_num_heads", "linear_attn_config", "mamba_n_heads")
    can_be_linear = traits.linear or any(name in config for name in keys)
    known = {name for name, kind in NAMES.items() if kind != LINEAR or can_be_linear}
    if unknown := set(named or ()) - known:
        raise ValueError(f"layer_types has unknown kinds of layers: {', '.join(sorted(map(str, unknown)))}")
    return named


def compression(config: Config, traits: Traits, named: Sequence[str] | None, count: int) -> list[int]:
    """Tokens of a compressed entry in each layer, 0: none; empty for models without compression."""
    listed = each_layer(config, "compress_ratios", count)
    if not listed and named is None and traits.compressed:
        named = ["compressed_sparse_attention" if layer > 2 and layer % 2 else HEAVILY for layer in range(count)]
    rates = dict(first(config, "compress_rates") or {})
    ruled = [rates.get(name, COMPRESSION.get(name, 0)) for name in named or ()]
    if listed and any(ruled) and listed != ruled:
        raise ValueError("layer_types and compress_ratios state different layers: remove the wrong one")
    return [int(ratio) for ratio in listed or ruled] if listed or any(ruled) else []


def linear_layers(config: Config, traits: Traits, named: Sequence[str] | None, count: int) -> set[int]:
    """Indices of the layers with linear attention, or with a convolution instead of attention."""
    if section := first(config, "linear_attn_config"):
        return numbered(section, count)
    if (flags := each_layer(config, "attn_type_list", count)) is not None:
        return {layer for layer, flag in enumerate(flags) if not flag}
    if named is None and first(config, "mamba_n_heads") is not None:
        return set(range(count)) - set(first(config, "attn_layer_indices") or ())
    stated = first(config, "full_attention_interval", "layer_group_size")
    rule = stated or (4 if traits.linear or "linear_num_value_heads" in config else 0)
    ruled = {layer for layer in range(count) if (layer + 1) % rule} if rule else set()
    if named is not None:
        listed = {layer for layer, name in enumerate(named) if NAMES[name] == LINEAR}
        if stated is not None and listed != ruled:
            raise ValueError(
                "layer_types and the interval of full attention state different layers: remove the wrong one"
            )
        return listed
    if (full := first(config, "full_attn_idxs")) is not None:
        return set(range(count)) - set(full)
    return ruled


def numbered(section: Config, count: int) -> set[int]:
    """Kimi Linear's lists, which count layers from 1. ValueError if they do not name every layer once."""
    full, linear = set(first(section, "full_attn_layers") or ()), set(first(section, "kda_layers") or ())
    if full & linear or full | linear != set(range(1, count + 1)):
        raise ValueError(f"full_attn_layers and kda_layers do not name each of the {count} layers once")
    return {layer - 1 for layer in linear}


def window_sizes(config: Config, traits: Traits, named: Sequence[str] | None, count: int) -> list[int | None]:
    """Attention window of each layer, tokens; None: the whole context."""
    chunk = first(config, "attention_chunk_size") if traits.window == "chunked" else None
    size = chunk or first(config, "sliding_window", "sliding_window_size")
    if not size or traits.window == "none":
        return [None] * count
    layers = windowed_layers(config, traits, named, count)
    return [size if layer in layers else None for layer in range(count)]


def windowed_layers(config: Config, traits: Traits, named: Iterable[str] | None, count: int) -> set[int]:
    """Indices of the layers with sliding-window or chunked attention."""
    if traits.window == "opt_in":
        start = first(config, "max_window_layers") or 0
        return set(range(start, count)) if config.get("use_sliding_window") else set()
    if named:
        return {layer for layer, name in enumerate(named) if NAMES[name] == "window"}
    if pattern := first(config, "hybrid_layer_pattern", "no_rope_layers"):
        return {layer for layer, flag in enumerate(pattern) if flag}
    if traits.window == "all" or traits.window == "stated" and config.get("use_sliding_window"):
        return set(range(count))
    names = ("sliding_window_pattern", "global_attn_every_n_layers", "no_rope_layer_interval")
    every = first(config, *(names if traits.window == "chunked" else names[:2])) or traits.window_pattern
    if not every and traits.window == "stated":
        return set()
    return {layer for layer in range(count) if (layer + 1) % (every or 4)}
