"""The only parser of a Hugging Face config.json.

config.json omits what the code of its architecture fixes (whether queries have a bias, which layers use a sliding
window); `TRAITS` has that per `model_type`. A `model_type` that is not in it is refused, never guessed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from advisor.engine.network import hf_seq2seq
from advisor.engine.network.blocks import Attention, Block, Ffn, LatentAttention, Mixer, Recurrent
from advisor.engine.network.checkpoint import checkpoint, format_name
from advisor.engine.network.config_keys import Keys, expect, first, refuse_unread, towers
from advisor.engine.network.model import Model, parameters
from advisor.engine.network.release import Release
from advisor.engine.network.validate import check_plausible

Config = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Traits:
    """What the code of an architecture fixes and config.json does not state."""

    builder: str = "decoder"  # decoder | nemotron_h | jamba | mamba | encoder
    qkv_bias: bool = False  # if attention_bias is absent
    output_bias: bool = False  # the output projection has a bias whenever query, key and value have one
    qk_norm: bool = False
    output_gate: bool = False
    window: str = "none"  # none | all | opt_in | pattern | chunked
    window_pattern: int = 0  # every n-th layer has full attention, if sliding_window_pattern is absent
    matrices: int = 3
    mlp_bias: bool = False
    shared_gate: bool = False
    norms: int = 2
    norm_bias: bool = False
    tied: bool = False
    head_dim: int = 0  # if head_dim is absent; 0: hidden size / heads


LLAMA = Traits(output_bias=True)
QWEN_NEXT = Traits(qk_norm=True, output_gate=True, shared_gate=True, head_dim=256)
ENCODER = Traits(
    builder="encoder", qkv_bias=True, output_bias=True, mlp_bias=True, matrices=2, norm_bias=True, tied=True
)
MAMBA = Traits(builder="mamba", norms=1, tied=True)

TRAITS: dict[str, Traits] = {
    **dict.fromkeys(("llama", "phi3", "granite"), LLAMA),
    **dict.fromkeys(("mistral", "mixtral", "ministral"), Traits(window="all")),
    **dict.fromkeys(("qwen2", "qwen2_vl"), Traits(qkv_bias=True, window="opt_in")),
    "qwen2_moe": Traits(qkv_bias=True, window="opt_in", shared_gate=True),
    **dict.fromkeys(("qwen3", "qwen3_vl"), Traits(qk_norm=True, window="opt_in", head_dim=128)),
    **dict.fromkeys(("qwen3_moe", "qwen3_vl_moe"), Traits(qk_norm=True, window="opt_in")),
    **dict.fromkeys(
        ("qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text"),
        QWEN_NEXT,
    ),
    "gemma": Traits(tied=True, head_dim=256),
    "gemma2": Traits(window="pattern", window_pattern=2, norms=4, tied=True, head_dim=256),
    **dict.fromkeys(
        ("gemma3", "gemma3_text"),
        Traits(window="pattern", window_pattern=6, norms=4, qk_norm=True, tied=True, head_dim=256),
    ),
    **dict.fromkeys(
        ("deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "kimi_k25", "glm_moe_dsa"),
        Traits(),
    ),
    **dict.fromkeys(("glm4_moe", "minimax_m2", "mimo_v2_flash", "mimo_v2"), Traits(window="pattern")),
    "gpt_oss": Traits(qkv_bias=True, output_bias=True, mlp_bias=True, window="pattern", window_pattern=2, head_dim=64),
    **dict.fromkeys(("llama4", "llama4_text"), Traits(window="chunked", head_dim=128)),
    "cohere": Traits(norms=1, tied=True),
    "falcon": Traits(matrices=2, norm_bias=True, tied=True),
    "mpt": Traits(matrices=2, tied=True),
    "gptj": Traits(matrices=2, mlp_bias=True, norms=1, norm_bias=True),
    "nemotron": Traits(matrices=2, norm_bias=True),
    "nemotron_h": Traits(builder="nemotron_h", matrices=2, norms=1, head_dim=128),
    "jamba": Traits(builder="jamba"),
    **dict.fromkeys(("mamba", "falcon_mamba"), MAMBA),
    "mamba2": Traits(builder="mamba", norms=1),
    **dict.fromkeys(("bert", "roberta", "xlm-roberta", "camembert"), ENCODER),
}


def from_hf_config(config: Config, slug: str) -> Model:
    """The model that a config.json describes. ValueError names what is missing, unknown, unread or implausible."""
    return checked(config, slug, strict=True)


def from_stored_config(config: Config, slug: str) -> Model:
    """The model of an answer that earlier versions stored: they accepted sizes that are refused today."""
    return checked(config, slug, strict=False)


def checked(config: Config, slug: str, *, strict: bool) -> Model:
    """The model of a config.json, plausible, and if `strict` without sizes that were not read."""
    try:
        text = Keys({**config, **next((config[key] for key in ("text_config", "llm_config") if key in config), {})})
        model = parse(config, text, slug)
        if strict:
            refuse_unread(text)
            refuse_towers(text, model)
    except (KeyError, TypeError, ArithmeticError, AttributeError, IndexError) as error:
        raise ValueError(f"config.json has a value of the wrong type: {error}") from error
    check_plausible(model)
    return model


MAX_TOWER_FRACTION = 0.03  # of the text model: as much as a size may be wrong


def uncounted(config: Config) -> dict[str, int]:
    """About how many parameters of towers of images or sound the model of a config.json leaves out, per section."""
    return {name: count or 0 for name, count in towers(Keys(config)).items()}


def refuse_towers(config: Keys, model: Model) -> None:
    """ValueError if a tower of images or sound, which is not read, is more than 3 % of the text model."""
    for name, count in towers(config).items():
        if count is None:
            raise ValueError(f"{name} has no hidden size or no number of layers, so the size of this tower is unknown")
        if count > MAX_TOWER_FRACTION * parameters(model):
            share = count / parameters(model)
            raise ValueError(
                f"{name} describes about {count / 1e9:.2f} B parameters, {share:.0%} of the text model, and only the "
                "text model is read. Describe the whole model by its shape instead (see fixtures/README.md)"
            )


def parse(config: Config, text: Keys, slug: str) -> Model:
    """The model as described; its sizes are not checked. `text`: all keys that describe the text model."""
    kind = str(text.get("model_type", ""))
    if kind in hf_seq2seq.READERS:
        return hf_seq2seq.from_config(text, slug, native_dtype(config, text))
    traits = TRAITS.get(kind)
    if traits is None:
        known = ", ".join(sorted({*TRAITS, *hf_seq2seq.READERS}))
        raise ValueError(f"unknown model_type {kind!r}; known types: {known}")
    mixers, ffns = LAYERS[traits.builder](text, traits)
    encoder = traits.builder == "encoder"
    hidden = need(text, "hidden_size", "n_embd", "d_model")
    return Model(
        slug=slug,
        hidden=hidden,
        vocab=need(text, "vocab_size"),
        blocks=blocks(mixers, ffns, norms_of(text, traits)),
        tied_embeddings=bool(text.get("tie_word_embeddings", traits.tied)) or encoder,
        position_embeddings=need(text, "max_position_embeddings") + text.get("type_vocab_size", 0) if encoder else 0,
        norm_bias=traits.norm_bias,
        native_dtype=native_dtype(config, text),
        published=published(config, text),
        mtp_layers=int(first(text, "num_nextn_predict_layers", "mtp_num_hidden_layers") or 0),
        max_context_tokens=context_tokens(text),
        encoder_only=encoder,
    )


def context_tokens(config: Config) -> int:
    """Maximum sequence length. RoBERTa reserves two positions for padding."""
    positions = int(first(config, "max_position_embeddings", "n_positions", "max_seq_len") or 2048)
    return positions - 2 if config.get("model_type") in ("roberta", "xlm-roberta", "camembert") else positions


def need(config: Config, *names: str) -> int:
    """Value of the first of these keys that is set; ValueError if none is."""
    value = first(config, *names)
    if value is None:
        raise ValueError(f"config.json of a {config.get('model_type')} lacks {' or '.join(names)}")
    return int(value)


def blocks(mixers: Sequence[Mixer | None], ffns: Sequence[Ffn | None], norms: int) -> tuple[Block, ...]:
    """Blocks of identical layers, in order of first appearance."""
    counts: dict[tuple[Mixer | None, Ffn | None], int] = {}
    for pair in zip(mixers, ffns, strict=True):
        counts[pair] = counts.get(pair, 0) + 1
    return tuple(Block(count=count, mixer=mixer, ffn=ffn, norms=norms) for (mixer, ffn), count in counts.items())


def norms_of(config: Config, traits: Traits) -> int:
    """Norms in a layer. Falcon's number depends on its generation."""
    if config.get("model_type") == "falcon":
        new = bool(config.get("new_decoder_architecture"))
        stated = first(config, "num_ln_in_parallel_attn") if new else None
        return int(stated or (2 if new or not config.get("parallel_attn", True) else 1))
    return traits.norms


def native_dtype(config: Config, text: Config) -> str:
    """dtype of the published weights."""
    if quantized := checkpoint(config) or checkpoint(text):
        return quantized.weights_dtype
    if experts_dtype := first(text, "expert_dtype"):
        raise ValueError(
            f"expert_dtype {experts_dtype!r}: experts in a different format from the other weights are not supported"
        )
    names = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
    return names.get(str(first(text, "dtype", "torch_dtype")), "bf16")


def published(config: Config, text: Config) -> Release | None:
    """The format of a quantized checkpoint; None if it is not quantized or the format has no name in the catalog."""
    stored = checkpoint(config) or checkpoint(text)
    name = format_name(stored) if stored else ""
    if stored is None or not name:
        return None
    attention_kept = any("attn" in layer or "attention" in layer for layer in stored.unquantized_layers)
    return Release(hf_id="", format=name, experts_only=True if attention_kept else None)


MAX_LAYERS = 10_000


def layer_count(config: Config) -> int:
    """Layers of the network; ValueError if the number is implausible."""
    count = need(config, "num_hidden_layers", "n_layer", "n_layers", "num_layers")
    if not 0 < count <= MAX_LAYERS:
        raise ValueError(f"the number of layers must be between 1 and {MAX_LAYERS}, not {count}")
    return count


def decoder_layers(config: Config, traits: Traits) -> tuple[list[Mixer | None], list[Ffn | None]]:
    """Layers of a decoder with attention, latent attention, or a mix of softmax and linear attention."""
    count = layer_count(config)
    check_layer_lists(config, count)
    windows, linear = window_sizes(config, traits, count), linear_layers(config, count)
    mixers: list[Mixer | None] = []
    for layer in range(count):
        if first(config, "kv_lora_rank"):
            mixers.append(latent(config))
        elif layer in linear:
            mixers.append(gated_delta(config))
        else:
            mixers.append(attention(config, traits, windows[layer]))
    routed = routed_layers(config, count)
    return mixers, [experts(config, traits) if layer in routed else dense(config, traits) for layer in range(count)]


KINDS = ("full_attention", "sliding_attention", "chunked_attention", "linear_attention", "deepseek_sparse_attention")
EACH_LAYER = ("layer_types", "mlp_layer_types", "hybrid_layer_pattern", "moe_layer_freq", "attn_type_list")


def check_layer_lists(config: Config, count: int) -> None:
    """ValueError if a list with one entry per layer has another length, or a kind of layer that is not known."""
    for name in EACH_LAYER:
        listed = first(config, name)
        if isinstance(listed, Sequence) and not isinstance(listed, str) and len(listed) != count:
            raise ValueError(f"{name} has {len(listed)} entries for {count} layers: correct the one that is wrong")
    kinds = set(first(config, "layer_types") or ())
    known = {kind for kind in KINDS if kind != "linear_attention" or "linear_num_value_heads" in config}
    if unknown := kinds - known:
        raise ValueError(f"layer_types has unknown kinds of layers: {', '.join(sorted(map(str, unknown)))}")
    if set(first(config, "attn_type_list") or ()) - {1}:
        raise ValueError("attn_type_list: MiniMax's linear attention (0) is not supported, only softmax attention (1)")


def attention(config: Config, traits: Traits, window: int | None) -> Attention:
    """Softmax attention of one layer."""
    prefix = "swa_" if window and "swa_num_key_value_heads" in config else ""
    heads = need(config, f"{prefix}num_attention_heads", "num_attention_heads", "n_head", "n_heads")
    hidden = need(config, "hidden_size", "n_embd", "d_model")
    stated = first(config, f"{prefix}head_dim", "head_dim", "attention_head_dim")
    head_dim = stated or traits.head_dim or hidden // heads
    v_dim = first(config, f"{prefix}v_head_dim", "v_head_dim")
    bias = bool(config.get("attention_bias", traits.qkv_bias))
    return Attention(
        heads=heads,
        kv_heads=kv_heads(config, prefix, heads),
        head_dim=head_dim,
        v_head_dim=None if v_dim in (None, head_dim) else v_dim,
        window_tokens=window,
        qkv_bias=bias,
        output_bias=bias and traits.output_bias,
        qk_norm=bool(config.get("use_qk_norm", traits.qk_norm)),
        output_gate=bool(config.get("attn_output_gate", traits.output_gate)),
        causal=traits.builder != "encoder",
    )


def kv_heads(config: Config, prefix: str, heads: int) -> int:
    """Number of key-value heads. Falcon has its own keys for it."""
    if config.get("model_type") == "falcon" and not config.get("new_decoder_architecture"):
        return 1 if config.get("multi_query", True) else heads
    grouped = first(config, f"{prefix}num_key_value_heads", "num_key_value_heads", "num_kv_heads", "n_head_kv")
    nested = first(config.get("attn_config") or {}, "kv_n_heads")
    if grouped is None and config.get("model_type") in GROUPED and "num_key_value_heads" not in config:
        need(config, "num_key_value_heads")
    return int(grouped or nested or heads)


def latent(config: Config) -> LatentAttention:
    """Latent attention of one layer, with its sparse indexer if it has one."""
    nope, rope = need(config, "qk_nope_head_dim"), need(config, "qk_rope_head_dim")
    expect(config, "qk_head_dim", nope + rope, "qk_nope_head_dim + qk_rope_head_dim are")
    return LatentAttention(
        heads=need(config, "num_attention_heads"),
        q_rank=first(config, "q_lora_rank") or 0,
        kv_rank=need(config, "kv_lora_rank"),
        nope_dim=nope,
        rope_dim=rope,
        v_dim=need(config, "v_head_dim"),
        index_heads=first(config, "index_n_heads") or 0,
        index_dim=first(config, "index_head_dim") or 0,
        index_top_k=first(config, "index_topk") or 0,
    )


def gated_delta(config: Config) -> Recurrent:
    """Linear attention of one layer (Qwen3-Next)."""
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


def linear_layers(config: Config, count: int) -> set[int]:
    """Indices of the layers with linear attention."""
    if "linear_num_value_heads" not in config:
        return set()
    stated = first(config, "full_attention_interval")
    ruled = {layer for layer in range(count) if (layer + 1) % (stated or 4)}
    if kinds := first(config, "layer_types"):
        listed = {layer for layer, kind in enumerate(kinds) if kind == "linear_attention"}
        if stated is not None and listed != ruled:
            raise ValueError("layer_types and full_attention_interval state different layers: remove the wrong one")
        return listed
    return ruled


def window_sizes(config: Config, traits: Traits, count: int) -> list[int | None]:
    """Attention window of each layer, tokens; None: the whole context."""
    chunk = first(config, "attention_chunk_size") if traits.window == "chunked" else None
    size = chunk or first(config, "sliding_window", "sliding_window_size")
    if not size or traits.window == "none":
        return [None] * count
    return [size if layer in windowed_layers(config, traits, count) else None for layer in range(count)]


def windowed_layers(config: Config, traits: Traits, count: int) -> set[int]:
    """Indices of the layers with sliding-window or chunked attention."""
    if traits.window == "opt_in":
        start = first(config, "max_window_layers") or 0
        return set(range(start, count)) if config.get("use_sliding_window") else set()
    if kinds := first(config, "layer_types"):
        return {layer for layer, kind in enumerate(kinds) if kind in ("sliding_attention", "chunked_attention")}
    if pattern := first(config, "hybrid_layer_pattern", "no_rope_layers"):
        return {layer for layer, flag in enumerate(pattern) if flag}
    if traits.window == "all":
        return set(range(count))
    every = first(config, "sliding_window_pattern") or traits.window_pattern or 4
    return {layer for layer in range(count) if (layer + 1) % every}


def dense(config: Config, traits: Traits) -> Ffn:
    """Dense feed-forward part of a layer."""
    inner = first(config, "intermediate_size_mlp", "intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size")
    if inner is None:
        inner = need(config, "hidden_size", "n_embd", "d_model") * (config.get("expansion_ratio") or 4)
    bias = bool(config.get("mlp_bias", traits.mlp_bias))
    return Ffn(inner=int(inner), matrices=traits.matrices, bias=bias)


def expert_count(config: Config) -> int:
    """Routed experts of a layer; 0 for a dense model."""
    return int(first(config, "n_routed_experts", "num_local_experts", "num_experts") or 0)


def experts(config: Config, traits: Traits) -> Ffn:
    """Mixture-of-experts part of a layer."""
    inner = need(config, "moe_intermediate_size", "intermediate_size")
    shared = first(config, "moe_shared_expert_intermediate_size", "shared_expert_intermediate_size")
    if shared is None and (traits.shared_gate or traits.builder == "nemotron_h"):
        need(config, "moe_shared_expert_intermediate_size", "shared_expert_intermediate_size")
    if shared is None:
        chunked = traits.window == "chunked"  # Llama 4: one shared expert as wide as a routed one
        shared = inner * (1 if chunked else first(config, "n_shared_experts") or 0)
    return Ffn(
        inner=inner,
        matrices=traits.matrices,
        experts=expert_count(config),
        top_k=need(config, "num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_top_k"),
        shared_inner=shared,
        shared_gate=traits.shared_gate and bool(shared),
        bias=traits.mlp_bias,
    )


# Types whose code has another default than 0 dense layers, or than a key-value head for each query head.
DENSE_FIRST = ("deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "kimi_k25", "glm_moe_dsa", "glm4_moe")
GROUPED = (
    "mistral", "mixtral", "ministral", "qwen2", "qwen2_moe", "qwen2_vl", "qwen3", "qwen3_moe", "qwen3_vl",
    "qwen3_vl_moe", "qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text", "gemma",
    "gemma2", "gemma3", "gemma3_text", "glm4_moe", "minimax_m2", "mimo_v2_flash", "mimo_v2", "gpt_oss",
    "llama4", "llama4_text", "nemotron_h", "jamba",
)  # fmt: skip


def routed_layers(config: Config, count: int) -> set[int]:
    """Indices of the layers with routed experts. ValueError if two keys state different layers."""
    if expert_count(config) < 2:
        return set()
    kinds = first(config, "mlp_layer_types")
    if unknown := set(kinds or ()) - {"dense", "sparse"}:
        raise ValueError(
            f"mlp_layer_types has unknown kinds: {', '.join(sorted(map(str, unknown)))}; use dense and sparse"
        )
    listed = {layer for layer, kind in enumerate(kinds or ()) if kind == "sparse"} or set(
        first(config, "moe_layers") or ()
    )
    rules = ("first_k_dense_replace", "moe_layer_freq", "decoder_sparse_step", "interleave_moe_layer_step")
    ruled = routed_by_rule(config, count) if not listed or first(config, *rules) is not None else listed
    if listed and listed != ruled:
        raise ValueError(
            "the list of layers with experts and the rule for them state different layers: remove the wrong one"
        )
    return listed or ruled


def routed_by_rule(config: Config, count: int) -> set[int]:
    """Indices of the layers with routed experts, by the keys that state a rule instead of a list of layers."""
    frequency = first(config, "moe_layer_freq")
    if isinstance(frequency, Sequence):
        return {layer for layer, flag in enumerate(frequency) if flag}
    if config.get("model_type") in DENSE_FIRST and "first_k_dense_replace" not in config:
        need(config, "first_k_dense_replace")
    dense_first = first(config, "first_k_dense_replace") or 0
    step = first(config, "decoder_sparse_step", "interleave_moe_layer_step") or frequency or 1
    skipped = set(first(config, "mlp_only_layers") or ())
    offset = 0 if frequency else 1  # DeepSeek counts layers from 0, Qwen and Llama 4 from 1
    return {n for n in range(dense_first, count) if (n + offset) % step == 0 and n not in skipped}


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
    mixers: dict[str, Mixer] = {"M": nemotron_mamba(config)} if "M" in pattern else {}
    mixers |= {"*": attention(config, traits, None)} if "*" in pattern else {}
    ffns = {"-": dense(config, traits)} if "-" in pattern else {}
    ffns |= {"E": experts(config, traits)} if "E" in pattern else {}
    return [mixers.get(letter) for letter in pattern], [ffns.get(letter) for letter in pattern]


def nemotron_mamba(config: Config) -> Recurrent:
    """The Mamba-2 layer of a nemotron_h."""
    heads, head_dim = need(config, "mamba_num_heads"), need(config, "mamba_head_dim")
    return Recurrent(
        kind="mamba2",
        inner=heads * head_dim,
        state=need(config, "ssm_state_size"),
        heads=heads,
        head_dim=head_dim,
        groups=need(config, "n_groups"),
        conv=need(config, "conv_kernel"),
    )


def mamba1(hidden: int, expand: int, state: int, conv: int, rank: Any) -> Recurrent:
    """A Mamba-1 layer; dt_rank defaults to hidden / 16."""
    inner = expand * hidden
    dt_rank = rank if isinstance(rank, int) else ceil(hidden / 16)
    return Recurrent(kind="mamba1", inner=inner, state=state, heads=inner, head_dim=1, conv=conv, dt_rank=dt_rank)


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


LAYERS = {
    "decoder": decoder_layers,
    "encoder": decoder_layers,
    "nemotron_h": nemotron_h_layers,
    "jamba": jamba_layers,
    "mamba": mamba_layers,
}
