"""What the code of each architecture fixes and config.json does not state, and how unknown architectures are read."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from advisor.engine.network.config_keys import first

Config = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Traits:
    """What the code of an architecture fixes and config.json does not state."""

    builder: str = "decoder"  # decoder | nemotron_h | jamba | mamba | encoder | nas | longcat | parallel
    qkv_bias: bool = False  # if attention_bias is absent
    output_bias: bool = False  # the output projection has a bias whenever query, key and value have one
    qk_norm: bool = False
    output_gate: bool = False
    head_gate: bool = False
    latent_gate: str = ""  # on the output of latent attention: one value a head, or as wide as the output (full)
    window: str = "none"  # none | all | opt_in | pattern | chunked | stated: only as layer_types says
    window_pattern: int = 0  # every n-th layer has full attention, if sliding_window_pattern is absent
    linear: str = ""  # kind of the layers called linear_attention; empty: as the keys say
    full_rank: bool = False  # decay and gate of linear attention are full matrices
    matrices: int = 3
    mlp_bias: bool = False
    shared_gate: bool = False
    shared_experts: int = 0  # if their number is absent
    norms: int = 2
    norm_bias: bool = False
    tied: bool = False
    head_dim: int = 0  # if head_dim is absent; 0: hidden size / heads
    first_dense: int = -1  # dense layers before those with experts, if absent; -1: config.json must say so
    compressed: bool = False  # attention over compressed entries, alternating 4 and 128 tokens if nothing is stated
    vectors: bool = False  # attends in both directions and returns a vector
    stream_mixes: int = 0  # numbers per residual stream of each mixing; 0: 2 + the number of streams
    grouped: bool = False  # num_key_value_heads must be stated: its default is not the number of query heads


LLAMA = Traits(output_bias=True)
GROUPED = Traits(grouped=True)
QWEN3 = Traits(qk_norm=True, window="opt_in", grouped=True)
QWEN_NEXT = Traits(qk_norm=True, output_gate=True, shared_gate=True, head_dim=256, grouped=True)
LATENT = Traits(first_dense=-1, window="stated")
ENCODER = Traits(
    builder="encoder", qkv_bias=True, output_bias=True, mlp_bias=True, matrices=2, norm_bias=True, tied=True
)
MAMBA = Traits(builder="mamba", norms=1, tied=True)
GEMMA = Traits(window="pattern", window_pattern=6, norms=4, qk_norm=True, tied=True, head_dim=256, grouped=True)
STATED = Traits(window="stated", first_dense=0)
MUSE = Traits(window="stated", output_gate=True, norms=4, first_dense=0)

TRAITS: dict[str, Traits] = {
    **dict.fromkeys(("llama", "phi3", "granite"), LLAMA),
    **dict.fromkeys(("mistral", "mixtral", "ministral"), replace(GROUPED, window="all")),
    "ministral3": replace(GROUPED, window="all"),
    **dict.fromkeys(
        ("qwen2", "qwen2_vl", "qwen2_5_vl", "qwen2_5_omni"), replace(GROUPED, qkv_bias=True, window="opt_in")
    ),
    "mimo": Traits(qkv_bias=True, window="opt_in", grouped=True),
    "qwen2_moe": replace(GROUPED, qkv_bias=True, window="opt_in", shared_gate=True),
    **dict.fromkeys(("qwen3", "qwen3_vl", "qwen3_omni"), replace(QWEN3, head_dim=128)),
    **dict.fromkeys(("qwen3_moe", "qwen3_vl_moe", "qwen3_omni_moe"), QWEN3),
    **dict.fromkeys(("qwen3_next", "qwen3_5", "qwen3_5_moe"), QWEN_NEXT),
    "gemma": Traits(tied=True, head_dim=256, grouped=True),
    "gemma2": replace(GEMMA, window_pattern=2, qk_norm=False),
    "vaultgemma": replace(GEMMA, window_pattern=2, qk_norm=False, norms=2),
    **dict.fromkeys(("gemma3", "gemma4"), GEMMA),
    "embedding_gemma2": replace(GEMMA, vectors=True),
    "voxtral_realtime": replace(GROUPED, window="all"),
    **dict.fromkeys(("deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "kimi_k25", "glm_moe_dsa"), LATENT),
    **dict.fromkeys(("mistral4", "mistral_large4"), replace(LATENT, first_dense=0)),
    "deepseek_v4": Traits(window="stated", first_dense=0, compressed=True),
    "kimi_linear": Traits(linear="channel_delta", first_dense=0),
    "bailing_hybrid": Traits(linear="channel_delta", full_rank=True, latent_gate="heads", first_dense=0),
    "glm5_next": Traits(linear="channel_delta", first_dense=3),
    "glm4_moe_lite": Traits(first_dense=1),
    "hy_v4": Traits(latent_gate="full", stream_mixes=2, first_dense=1),
    "longcat_flash": Traits(builder="longcat"),
    "glm4_moe": replace(GROUPED, window="pattern"),
    **dict.fromkeys(("minimax_m2", "mimo_v2_flash", "mimo_v2"), replace(GROUPED, window="pattern", first_dense=0)),
    **dict.fromkeys(("minimax_m3", "minimax_m3_vl"), replace(GROUPED, qk_norm=True, first_dense=0)),
    **dict.fromkeys(("step3p5", "step3p7"), replace(STATED, qk_norm=True, head_gate=True, first_dense=3, grouped=True)),
    "hy_v3": replace(STATED, qk_norm=True, first_dense=1, grouped=True),
    "laguna": replace(STATED, qk_norm=True, head_gate=True, first_dense=1, grouped=True),
    "afmoe": replace(STATED, qk_norm=True, output_gate=True, norms=4, grouped=True),
    "muse_spark": MUSE,
    "muse_glimmer": MUSE,
    "ernie4_5_moe": Traits(tied=True, first_dense=0, grouped=True),
    "inkling2": replace(STATED, output_gate=True),
    "gpt_oss": Traits(
        qkv_bias=True, output_bias=True, mlp_bias=True, window="pattern", window_pattern=2, head_dim=64, grouped=True
    ),
    "llama4": Traits(window="chunked", head_dim=128, grouped=True),
    "cohere": Traits(norms=1, tied=True),
    "cohere2": Traits(norms=1, tied=True, window="pattern", window_pattern=4, grouped=True),
    "falcon": Traits(matrices=2, norm_bias=True, tied=True),
    "apertus": Traits(matrices=2, qk_norm=True),
    "arcee": Traits(matrices=2),
    "starcoder2": Traits(
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
        matrices=2,
        norm_bias=True,
        tied=True,
        grouped=True,
        window="all",
    ),
    "mpt": Traits(matrices=2, tied=True),
    "gptj": Traits(matrices=2, mlp_bias=True, norms=1, norm_bias=True),
    "nemotron": Traits(matrices=2, norm_bias=True),
    **dict.fromkeys(("nemotron-nas", "decilm"), replace(LLAMA, builder="nas")),
    "nemotron_h": Traits(builder="nemotron_h", matrices=2, norms=1, head_dim=128, grouped=True),
    "minimax": Traits(linear="lightning", grouped=True),
    "granitemoehybrid": Traits(tied=True),
    "bamba": Traits(grouped=True),
    "falcon_h1": Traits(builder="parallel", norms=1, grouped=True),
    "hunyuan_v1_dense": Traits(qk_norm=True, grouped=True),
    "hunyuan_v1_moe": Traits(qk_norm=True, first_dense=0, grouped=True, shared_experts=1),
    "inkling": replace(STATED, qk_norm=True, grouped=True),
    "lfm3": replace(STATED, linear="short_conv", qk_norm=True, head_gate=True, norms=4, tied=True, grouped=True),
    "gemma3n": replace(GEMMA, window_pattern=5),
    "minicpm3": Traits(),
    "jamba": Traits(builder="jamba", grouped=True),
    **dict.fromkeys(("lfm2", "lfm2_moe"), Traits(linear="short_conv", tied=True, first_dense=0, grouped=True)),
    **dict.fromkeys(("mamba", "falcon_mamba"), MAMBA),
    "mamba2": Traits(builder="mamba", norms=1),
    **dict.fromkeys(("bert", "roberta", "xlm-roberta", "camembert"), ENCODER),
}
# Architectures whose own code has another model_type; the name of the class says which architecture it is.
CLASSES = {
    "DeepseekV4": "deepseek_v4", "DeepseekV32": "deepseek_v32", "DeepseekV3": "deepseek_v3",
    "KimiLinear": "kimi_linear", "KimiK3": "kimi_linear", "KimiK25": "kimi_k25", "GlmMoeDsa": "glm_moe_dsa",
    "MiniMaxM3": "minimax_m3", "MiniMaxM2": "minimax_m2", "MiMoV2": "mimo_v2", "Glm4Moe": "glm4_moe", "HYV3": "hy_v3",
    "Qwen3VLMoe": "qwen3_vl_moe", "Qwen3VL": "qwen3_vl", "Qwen3_5Moe": "qwen3_5_moe", "Qwen3_5": "qwen3_5",
    "Step3p": "step3p7", "NemotronH": "nemotron_h", "DeciLM": "nemotron-nas", "LongcatFlash": "longcat_flash",
    "Gemma4": "gemma4",
}  # fmt: skip
GATED = {"silu", "swiglu", "swigluoai", "situ", "geglu"}  # activations of a gate of its own
SUFFIXES = ("_text", "_unified", "_vl")  # of the text model of an architecture


def kind_of(config: Config) -> str:
    """The architecture: model_type without the suffix of a text model, or what the name of the class says."""
    stated = str(config.get("model_type", ""))
    name = stated
    for suffix in ("", *SUFFIXES):
        name = name.removesuffix(suffix)
        if name in TRAITS:
            return name
    named = str((config.get("architectures") or [""])[0])
    return next((kind for start, kind in CLASSES.items() if named.startswith(start)), stated)


def traits_of(config: Config) -> Traits:
    """The traits of an architecture. ValueError: it is unknown, and config.json does not say enough to read it.

    Of an unknown architecture every size must be stated, and every key that may carry one is read or refused; what
    remains open (biases, norms) is less than a thousandth of the size.
    """
    kind = kind_of(config)
    if kind in TRAITS:
        return TRAITS[kind]
    if kind in UNREADABLE:
        raise ValueError(f"a {kind} model cannot be described: {UNREADABLE[kind]}")
    activation = first(config, "hidden_act", "hidden_activation")
    stated = all(config.get(name) for name in ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"))
    if activation not in GATED or not stated or first(config, "sliding_window") and not says_windows(config):
        raise ValueError(
            f"unknown model_type {kind!r}, and config.json does not state hidden_size, num_hidden_layers, "
            "num_attention_heads, vocab_size, a gated hidden_act, and the layers with a window (layer_types)"
        )
    return replace(STATED, grouped=not config.get("kv_lora_rank"))


UNREADABLE = {  # architectures that no composition of the known parts describes
    "zamba": "its attention layers share one set of weights",
    "zamba2": "its attention layers share a few sets of weights",
    "mllama_text_model": "its cross-attention layers read keys of the image, which the text model does not cache",
    "ernie4_5_vl_moe_text": "text and images have experts of different sizes",
    "recurrent_gemma": "its recurrence (RG-LRU) is not known",
    "rwkv": "its recurrence is not known",
}
WINDOWS = ("layer_types", "use_sliding_window", "compress_ratios", "hybrid_layer_pattern", "sliding_window_pattern")


def says_windows(config: Config) -> bool:
    """Whether config.json says which layers have a sliding window."""
    return any(name in config for name in WINDOWS)
