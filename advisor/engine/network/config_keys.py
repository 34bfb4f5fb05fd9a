"""Which keys of a config.json were read, and a refusal of those that could carry a size and were not.

A key that the reader does not know may change the size of the model (`moe_latent_size` made Nemotron 3 Super 3.8 times
too large), so a size that nobody read is an error. `IRRELEVANT` lists the exceptions, each with the reason.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

Config = Mapping[str, Any]

# Names of sizes and counts in config.json. A number or a list under such a name can change the size of the model.
WORDS = "size|sizes|dim|dims|rank|ranks|heads|layers|experts|channels|width|depth|blocks|kernel|hidden|inner|latent"
SIZE = re.compile(rf"(?:^|_)(?:{WORDS})(?:$|_)|^(?:num|n|d|moe|expert|experts)_|^expand$|_(?:expand|pattern)$")
MULTIPLE = re.compile(r"_(?:ratio|ratios|mult|multiple)$")
TEXT_SIZE = re.compile(r"_pattern$")
DENSE_ONLY = "the width of a dense feed-forward layer; every layer of this model has experts, whose width is stated"
GENERATION = "a default of text generation, not of the network"
HEADS = "a default of transformers' base class for classification or training"
PARALLEL = "how training was parallelized"
ROUTING = "which experts a token may choose, not how many there are"
MTP = "layers that only draft tokens; they are not part of the model's size"
WINDOW_OFF = "only used with a sliding window, which is off"
ENCODERS = "bert roberta xlm-roberta camembert"
SHARED_STATED = "the width of all shared experts is stated"
QWEN = (
    "qwen2 qwen2_moe qwen2_vl qwen2_5_vl qwen2_5_omni qwen3 qwen3_moe qwen3_vl qwen3_vl_moe qwen3_next qwen3_5 "
    "qwen3_5_moe qwen3_omni_moe qwen3_omni mimo"
)

# (model types, empty: all; keys; why an unread value cannot change the size). Read keys never come here.
IRRELEVANT: tuple[tuple[str, str, str], ...] = (
    (
        "",
        "num_beams num_beam_groups num_return_sequences no_repeat_ngram_size encoder_no_repeat_ngram_size "
        "num_logits_to_keep num_assistant_tokens",
        GENERATION,
    ),
    ("", "num_labels chunk_size_feed_forward", HEADS),
    ("gptj", "n_ctx", "a copy of n_positions that no code reads"),
    ("", "ep_size tp_size", PARALLEL),
    ("", "n_group num_expert_group num_expert_groups", ROUTING),
    (
        "",
        "num_mtp_modules mtp_transformer_layers mtp_hybrid_override_pattern mtp_layers_block_type",
        MTP,
    ),
    ("", "num_hash_layers", "these layers choose experts by a table of token numbers; their matrices are the same"),
    (
        "",
        "attn_res_block_size n_layers_per_attn_res_block",
        "how often layers read earlier ones, with a vector each",
    ),
    (
        "",
        "moe_router_scaling_factor moe_routed_scaling_factor moe_router_logit_softcapping",
        "a factor of the output, not a size",
    ),
    ("", "d_rel rel_extent", "positions relative to a token, less than a thousandth of the weights"),
    ("", "vocab_size_per_layer_input", "no layer adds an embedding of its own (hidden_size_per_layer_input is 0)"),
    ("afmoe", "global_attn_every_n_layers", "layer_types states the windows"),
    ("embedding_gemma2", "embedding_dim", "one projection of the result, less than a hundredth of the weights"),
    ("laguna", "num_attention_heads", "num_attention_heads_per_layer states it for each layer"),
    ("step3p7 step3p5", "num_sliding_attention_heads", "no layer has a sliding window"),
    (
        "minimax_m3_vl minimax_m3",
        "dense_intermediate_size index_n_heads index_head_dim index_block_size index_topk_blocks",
        "no layer is dense, or none has an indexer, as the lists of layers say",
    ),
    (
        "",
        "projector_hidden_size out_hidden_size merged_hidden_size spatial_merge_size vision_hidden_size projection_dim "
        "projection_hidden_size alignment_intermediate_size",
        "the projector between a tower and the text model, less than a hundredth of the weights",
    ),
    (
        "",
        "image_size patch_size merge_kernel_size downsample_ratio video_temporal_patch_size num_image_tokens "
        "image_seq_length vision_feature_layer",
        "how many tokens an image becomes; the tower states its own sizes",
    ),
    ("", "logits_mup_width_multiplier scale_depth dim_model_base", "a factor of activations, not a size"),
    (
        "gemma3n",
        "laurel_rank altup_num_inputs activation_sparsity_pattern",
        "small matrices around a layer, half a percent of the weights together, and how many of its outputs are zero",
    ),
    (
        "granitemoehybrid bamba",
        "mamba_n_heads mamba_d_state mamba_d_conv mamba_n_groups mamba_d_head",
        "no layer is a recurrence, as the list of layers says",
    ),
    ("granitemoehybrid bamba", "num_attention_heads num_key_value_heads", "no layer attends, as the list says"),
    ("", "prefix_dense_sliding_window_pattern", "layer_types states the windows"),
    ("", "sconv_kernel_size", "short convolutions, less than a thousandth of the weights"),
    ("", "kv_source_layers", "each layer reads its own keys and values"),
    ("", "unpadded_vocab_size", "vocab_size is what is stored"),
    (
        "minimax_m3 minimax_m3_vl",
        "sparse_init_block sparse_local_block index_local_blocks",
        "blocks that are always among those chosen",
    ),
    ("minimax_m3 minimax_m3_vl", "sparse_disable_index_value", "whether the indexer has values; they are not cached"),
    ("", "conv_kernel_size", "short convolutions of keys and values, less than a thousandth of the weights"),
    ("", "layer_rope_theta", "the rotation of positions, without weights"),
    ("", "swiglu_limits swiglu_limits_shared", "limits of an activation"),
    ("minimax", "block_size", "the block size of linear attention, which changes its speed only"),
    ("", "n_shared_experts num_shared_experts", SHARED_STATED),
    ("nemotron-nas decilm", "num_key_value_heads intermediate_size", "block_configs states it for each layer"),
    ("", "rotary_dim", "the part of a head that is rotated; rotation has no weights"),
    ("", "num_key_value_heads", "latent attention caches one latent vector, whatever the number of heads"),
    ("", "head_dim", "latent attention uses qk_nope_head_dim, qk_rope_head_dim and v_head_dim"),
    (
        "",
        "intermediate_size",
        DENSE_ONLY,
    ),
    ("llama4", "intermediate_size_mlp", DENSE_ONLY),
    (QWEN, "max_window_layers", WINDOW_OFF),
    ("nemotron_h", "expand", "the inner width of Mamba is mamba_num_heads x mamba_head_dim"),
    ("nemotron_h mamba2", "time_step_rank", "a matrix of Mamba-1; Mamba-2 layers have none"),
    ("", "mamba_chunk_size", "the block size of the scan, which changes its speed only"),
    ("", "mamba_expand", "the inner width of Mamba is its heads x their size"),
    ("nemotron_h mamba2", "chunk_size", "the block size of the scan, which changes its speed only"),
    (
        "nemotron_h",
        "conv_kernel ssm_state_size n_groups mamba_num_heads mamba_head_dim num_attention_heads num_key_value_heads "
        "head_dim attention_head_dim n_routed_experts moe_intermediate_size moe_shared_expert_intermediate_size "
        "num_experts_per_tok",
        "describes a kind of layer that hybrid_override_pattern does not list",
    ),
    ("mamba falcon_mamba", "pad_vocab_size_multiple", "vocab_size is already padded"),
    ("mimo_v2_flash mimo_v2", "attention_chunk_size", "windows follow sliding_window and hybrid_layer_pattern"),
    ("", "sliding_window_pattern _sliding_window_pattern", "layer_types states the windows"),
    ("", "no_rope_layers no_rope_layer_interval", "positions; layer_types states the windows"),
    ("gemma", "vocab_size hidden_size", "of the wrapper: the section of the text model states its own (PaliGemma)"),
    (
        f"{ENCODERS}",
        "pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head",
        "written by the original TensorFlow code; no code of transformers reads it",
    ),
    ("whisper", "classifier_proj_size", "a classification head that the speech model does not have"),
    ("whisper bart", "num_hidden_layers", "a copy of encoder_layers that no code reads"),
    ("whisper", "median_filter_width", "used to align timestamps, without weights"),
    ("falcon", "n_head_kv num_kv_heads", "only used with new_decoder_architecture, which is off"),
)

# Sections of config.json that describe no weights of the text model.
SECTIONS = {
    "rope_scaling": "positions",
    "rope_parameters": "positions",
    "quantization_config": "the format of the weights, read by checkpoint.py",
    "compression_config": "the format of the weights, read by checkpoint.py",
    "img_token_compression_config": "how many tokens an image becomes",
    "auto_map": "names of Python classes",
    "id2label": "names of labels",
    "label2id": "names of labels",
    "task_specific_params": "defaults of text generation",
    "generation_config": "defaults of text generation",
    "talker_config": "a second network that speaks, served apart from the text model",
    "code2wav_config": "a second network that speaks, served apart from the text model",
    "token2wav_config": "a second network that speaks, served apart from the text model",
    "text_config": "merged with the outer section before it is read",
    "llm_config": "merged with the outer section before it is read",
}
TOWER = re.compile(r"^(?:vision|visual|vit|image|audio|speech|video|sound)\w*_(?:config|cfg)$")


class Keys(Mapping[str, Any]):
    """A config.json that remembers which keys were read; sections are Keys themselves."""

    def __init__(self, config: Config) -> None:
        self.values_by_name = {
            name: Keys(value) if isinstance(value, Mapping) else value for name, value in config.items()
        }
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        value = self.values_by_name[name]
        self.read.add(name)
        return value

    def __contains__(self, name: object) -> bool:
        return name in self.values_by_name

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_by_name)

    def __len__(self) -> int:
        return len(self.values_by_name)

    def with_own(self, values: Config) -> "Keys":
        """The same keys with other values for some, as for a single layer; reads count for both."""
        own = Keys({})
        own.values_by_name, own.read = {**self.values_by_name, **values}, self.read
        self.read.update(values)
        return own

    def is_set(self, name: str) -> bool:
        """Whether the key has a value, without counting it as read."""
        return self.values_by_name.get(name) is not None

    def same(self, name: str, value: Any) -> bool:
        """Whether the key has this value, without counting it as read."""
        return bool(self.values_by_name.get(name) == value)


def first(config: Config, *names: str) -> Any:
    """Value of the first of these keys that is set; None if none is. Later ones with the same value count as read."""
    value = next((config[name] for name in names if config.get(name) is not None), None)
    if isinstance(config, Keys):
        config.read.update(name for name in names if value is not None and config.same(name, value))
    return value


def need(config: Config, *names: str) -> int:
    """Value of the first of these keys that is set; ValueError if none is."""
    value = first(config, *names)
    if value is None:
        raise ValueError(f"config.json of a {config.get('model_type')} lacks {' or '.join(names)}")
    return int(value)


def sized(config: Config, *names: str) -> Any:
    """Value of the first of these keys that is neither absent nor zero, nor an empty list; 0 if all are."""
    return first(config, *(name for name in names if stated(config, name))) or 0


def stated(config: Config, name: str) -> bool:
    """Whether the key has a value other than null, zero, false or nothing, without counting it as read."""
    return bool((config.values_by_name if isinstance(config, Keys) else config).get(name))


def expect(config: Config, name: str, value: Any, meaning: str) -> None:
    """ValueError if the key is set to anything but the value that follows from the other keys."""
    stated = config.get(name)
    if stated is not None and stated != value:
        raise ValueError(f"{name} is {stated!r}, but {meaning} {value!r}: correct the one that is wrong")


TIED = "tie_word_embeddings"
TEXT = ("thinker_config", "text_config", "llm_config", "language_config")  # sections with the keys of the text model


def nested_text(config: Config) -> dict[str, Any]:
    """All keys that describe the text model: those of its section over the outer ones, however deep."""
    inner = next((config[key] for key in TEXT if isinstance(config.get(key), Mapping)), None)
    outer = {key: value for key, value in config.items() if key not in TEXT}
    if inner is None:
        return outer
    # The class around the text model owns the output head, so what it states about it holds.
    head = {TIED: outer[TIED]} if TIED in outer and not any(key in inner for key in TEXT) else {}
    return {**outer, **nested_text(inner), **head}


def refuse_unread(config: Keys, kind: str) -> None:
    """ValueError names the keys that could carry a size and that nobody read."""
    if unknown := list(unread(config, kind)):
        keys = "unknown keys" if len(unknown) > 1 else "an unknown key"
        raise ValueError(
            f"config.json has {keys} that may change the size of a {kind} model: {', '.join(unknown)}. The model was "
            "not read, because its size could be wrong. Describe it by its shape instead (see fixtures/README.md). "
            "Remove a key only if the model's code ignores it."
        )


def unread(config: Keys, kind: str, path: str = "") -> Iterator[str]:
    """`key (value)` of each key that could carry a size, was not read, and is not listed as irrelevant."""
    for name, value in config.values_by_name.items():
        if isinstance(value, Keys):
            if name not in SECTIONS and not TOWER.match(name):
                yield from unread(value, kind, f"{path}{name}.")
        elif name not in config.read and carries_size(name, value) and not irrelevant(kind, name, inside=bool(path)):
            yield f"{path}{name} ({str(value)[:40]})"


def irrelevant(kind: str, name: str, *, inside: bool = False) -> str:
    """Why this key cannot change the size of this type of model; empty if that is not known.

    inside: in a section, where only what is known of this type holds.
    """
    return next(
        (
            reason
            for kinds, names, reason in IRRELEVANT
            if name in names.split() and (kind in kinds.split() if kinds or inside else True)
        ),
        "",
    )


def carries_size(name: str, value: Any) -> bool:
    """Whether a value under this name could change the size of a model."""
    if isinstance(value, bool) or value is None:
        return False
    if isinstance(value, str):
        return bool(value) and TEXT_SIZE.search(name) is not None
    if isinstance(value, list | tuple):
        return SIZE.search(name) is not None and any(each not in (0, False, None, "") for each in value)
    if isinstance(value, float):
        return value != 0 and (MULTIPLE.search(name) is not None or (value >= 1 and SIZE.search(name) is not None))
    return value != 0 and (SIZE.search(name) is not None or MULTIPLE.search(name) is not None)


# --- towers -----------------------------------------------------------------------------------------------------


def towers(config: Keys) -> dict[str, int | None]:
    """Parameters of each encoder of images or sound beside the text model, about; None if its section has no sizes."""
    sections = {name: value for name, value in config.values_by_name.items() if isinstance(value, Keys)}
    return {name: tower_parameters(value) for name, value in sections.items() if TOWER.match(name) and len(value)}


TOWER_LAYERS = (
    "depth", "vt_num_hidden_layers", "num_hidden_layers", "layers", "encoder_layers", "n_layers", "num_blocks",
)  # fmt: skip
NAMED_TOWER = re.compile(r"^mobilenetv5_(\d+)m")  # a tower that is described by its name only (Gemma 3n)


def tower_parameters(section: Config) -> int | None:
    """Weights of a tower: four attention matrices and a feed-forward a layer, patches, positions, and its mergers."""
    if widths := first(section, "hidden_sizes"):  # stages of convolutions, each with a feed-forward of four widths
        depths = first(section, "depths")
        return sum(int(depth) * 8 * int(width) ** 2 for depth, width in zip(depths, widths, strict=True))
    if rows := first(section, "mel_vocab_size"):  # sound in bins, each with an embedding (Inkling)
        return int(rows) * int(first(section, "n_mel_bins") or 1) * int(first(section, "text_hidden_size") or 0)
    if named := NAMED_TOWER.search(str(first(section, "architecture"))):
        return int(named[1]) * 10**6
    hidden = first(section, "embed_dim", "vt_hidden_size", "hidden_size", "width", "d_model")
    if conformers := first(section, "conf_num_hidden_layers"):  # two feed-forwards, attention, a gated convolution
        return int(conformers) * 24 * int(hidden or 0) ** 2
    layers = first(section, *TOWER_LAYERS)
    ratio = first(section, "mlp_ratio") or 4
    inner = first(section, "vt_intermediate_size", "intermediate_size", "encoder_ffn_dim")
    if hidden is None or layers is None:
        return None
    heads, dim = (
        first(section, "vt_num_attention_heads", "num_attention_heads", "num_heads"),
        first(section, "head_dim"),
    )
    attention = int(first(section, "qkv_hidden_size") or (int(heads) * int(dim) if heads and dim else hidden))
    matrices = 3 if first(section, "hidden_act") in ("silu", "swiglu") else 2
    of_layer = int(hidden) * (4 * attention + matrices * int(inner or ratio * hidden))
    return int(layers) * of_layer + embedding_of_tower(section, int(hidden)) + mergers(section, int(hidden))


def embedding_of_tower(section: Config, hidden: int) -> int:
    """Weights that turn a patch into a vector, and learned positions."""
    patch, frames = first(section, "patch_size") or 0, first(section, "temporal_patch_size") or 1
    colors = first(section, "in_channels", "num_channels", "in_chans") or 3
    pixels = int(patch) ** 2 * int(colors) * int(frames) if isinstance(patch, int) else 0
    return (pixels + int(first(section, "num_position_embeddings") or 0)) * hidden


def mergers(section: Config, hidden: int) -> int:
    """Weights of what merges patches to tokens of the text model: once, and for each layer of DeepStack."""
    merge = first(section, "spatial_merge_size", "merge_kernel_size")
    out = first(section, "out_hidden_size", "text_hidden_size")
    if not merge or not out:
        return 0
    inner = hidden * (merge[0] * merge[1] if isinstance(merge, list | tuple) else int(merge) ** 2)
    return (1 + len(first(section, "deepstack_visual_indexes") or ())) * inner * (inner + int(out))
