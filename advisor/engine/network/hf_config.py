"""The only parser of a Hugging Face config.json.

config.json omits what the code of its architecture fixes (whether queries have a bias, which layers use a sliding
window); layers/families.py has that per `model_type`. Each layer is composed of a mixer and a feed-forward part by the
keys that describe them, so another `model_type` is read too if its config.json states all sizes. A key that may carry a
size and that nobody reads is refused, never guessed.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from advisor.engine.network import hf_seq2seq
from advisor.engine.network.blocks import Block, Ffn, Mixer
from advisor.engine.network.checkpoint import Checkpoint, checkpoint
from advisor.engine.network.config_keys import Keys, first, need, nested_text, refuse_unread, sized, towers
from advisor.engine.network.layers.families import Traits, kind_of, traits_of
from advisor.engine.network.layers.ffns import dense, experts, routed_layers
from advisor.engine.network.layers.hybrids import (
    jamba_layers,
    longcat_layers,
    mamba_layers,
    nemotron_h_layers,
    parallel_layers,
    searched_layers,
)
from advisor.engine.network.layers.kinds import each_layer, layer_count, layer_kinds
from advisor.engine.network.layers.mixers import mixer_of
from advisor.engine.network.layers.params_json import as_config, is_params_json
from advisor.engine.network.layers.stored import release_of
from advisor.engine.network.model import Model
from advisor.engine.network.release import Release
from advisor.engine.network.validate import check_plausible

Config = Mapping[str, Any]


def from_hf_config(config: Config, slug: str) -> Model:
    """The model that a config.json describes. ValueError names what is missing, unknown, unread or implausible."""
    return checked(config, slug, strict=True)


def from_stored_config(config: Config, slug: str) -> Model:
    """The model of an answer that earlier versions stored: they accepted sizes that are refused today."""
    return checked(config, slug, strict=False)


def checked(config: Config, slug: str, *, strict: bool) -> Model:
    """The model of a config.json, plausible, and if `strict` without sizes that were not read."""
    try:
        config = as_config(config) if is_params_json(config) else config
        text = Keys(nested_text(config))
        model = parse(config, text, slug)
        if strict:
            refuse_unread(text, kind_of(text))
    except (KeyError, TypeError, ArithmeticError, AttributeError, IndexError) as error:
        raise ValueError(f"config.json has a value of the wrong type: {error}") from error
    check_plausible(model)
    return model


def tower_parameters(config: Config) -> int:
    """About how many weights the towers of images or sound have. ValueError: a section does not state its size."""
    counts = towers(Keys(config))
    if unsized := [name for name, count in counts.items() if count is None]:
        raise ValueError(f"{unsized[0]} has no hidden size or number of layers, so the size of this tower is unknown")
    return sum(count or 0 for count in counts.values())


def parse(config: Config, text: Keys, slug: str) -> Model:
    """The model as described; its sizes are not checked. `text`: all keys that describe the text model."""
    kind = str(text.get("model_type", ""))
    if kind in hf_seq2seq.READERS:
        return hf_seq2seq.from_config(text, slug, native_dtype(config, text))
    traits = traits_of(text)
    mixers, ffns = LAYERS[traits.builder](text, traits)
    encoder = traits.builder == "encoder"
    hidden = need(text, "hidden_size", "n_embd", "d_model")
    own_input = sized(text, "hidden_size_per_layer_input")
    more = streams_of(sized(text, "hc_mult") or 1, traits) | {"layer_input": own_input}
    layers = blocks(mixers, ffns, norms_of(text, traits), more)
    return Model(
        slug=slug,
        hidden=hidden,
        vocab=need(text, "vocab_size"),
        blocks=layers,
        tied_embeddings=bool(first(text, "tie_word_embeddings", "tie_embedding", "tied_embeddings")
                             if first(text, "tie_word_embeddings", "tie_embedding", "tied_embeddings") is not None
                             else traits.tied) or encoder,
        position_embeddings=need(text, "max_position_embeddings") + text.get("type_vocab_size", 0) if encoder else 0,
        layer_embeddings=layer_embeddings(text, own_input, len(mixers)),
        tower_parameters=tower_parameters(config),
        norm_bias=traits.norm_bias,
        native_dtype=native_dtype(config, text),
        published=published(config, text, layers, hidden),
        mtp_layers=int(first(text, "num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules") or 0),
        max_context_tokens=context_tokens(text),
        encoder_only=encoder or traits.vectors,
    )  # fmt: skip


def streams_of(streams: int, traits: Traits) -> dict[str, Any]:
    """The residual streams of each layer and what mixes them (manifold-constrained hyper-connections, DeepSeek V4)."""
    mixes = streams * (traits.stream_mixes or streams + 2) if streams > 1 else 0
    return {"residual_streams": streams, "residual_mixes": mixes}


def layer_embeddings(config: Config, width: int, layers: int) -> int:
    """Elements of the embeddings that layers add (Gemma 3n). EmbeddingGemma 2 computes them without a table."""
    if not width or first(config, "vocab_size_per_layer_input") is None:
        return 0
    rows = need(config, "vocab_size_per_layer_input")
    if rows > need(config, "vocab_size"):
        raise ValueError("vocab_size_per_layer_input is more than vocab_size: correct the one that is wrong")
    return width * layers * rows


def context_tokens(config: Config) -> int:
    """Maximum sequence length. RoBERTa reserves two positions for padding."""
    positions = int(first(config, "max_position_embeddings", "n_positions", "max_seq_len", "model_max_length") or 2048)
    return positions - 2 if config.get("model_type") in ("roberta", "xlm-roberta", "camembert") else positions


def blocks(
    mixers: Sequence[Mixer | None], ffns: Sequence[Ffn | None], norms: int, more: Mapping[str, Any]
) -> tuple[Block, ...]:
    """Blocks of identical layers, in order of first appearance. `more`: further fields of all of them."""
    counts: dict[tuple[Mixer | None, Ffn | None], int] = {}
    for pair in zip(mixers, ffns, strict=True):
        counts[pair] = counts.get(pair, 0) + 1
    return tuple(
        Block(count=count, mixer=mixer, ffn=ffn, norms=norms, **more) for (mixer, ffn), count in counts.items()
    )


def norms_of(config: Config, traits: Traits) -> int:
    """Norms in a layer. Falcon's number depends on its generation."""
    if config.get("model_type") == "falcon":
        new = bool(config.get("new_decoder_architecture"))
        stated = first(config, "num_ln_in_parallel_attn") if new else None
        return int(stated or (2 if new or not config.get("parallel_attn", True) else 1))
    return traits.norms


def native_dtype(config: Config, text: Config) -> str:
    """dtype of the published weights."""
    if quantized := stored_format(config, text):
        return quantized.weights_dtype
    if experts_dtype := first(text, "expert_dtype"):
        raise ValueError(f"expert_dtype {experts_dtype!r}, but no quantization_config states how weights are stored")
    names = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
    return names.get(str(first(text, "dtype", "torch_dtype")), "bf16")


def published(config: Config, text: Config, layers: Sequence[Block], hidden: int) -> Release | None:
    """The format of a quantized checkpoint; None if it is not quantized or the format has no name in the catalog."""
    stored = stored_format(config, text)
    return release_of(stored, layers, hidden) if stored else None


def stored_format(config: Config, text: Config) -> Checkpoint | None:
    """How the weights are stored; None if they are not quantized. Experts may have a format of their own."""
    experts = str(first(text, "expert_dtype") or "")
    return checkpoint(config, experts) or checkpoint(text, experts)


def decoder_layers(config: Keys, traits: Traits) -> tuple[list[Mixer | None], list[Ffn | None]]:
    """Layers that each have a mixer and a feed-forward part: any mix of attention, recurrences, experts."""
    count = layer_count(config)
    kinds, routed = layer_kinds(config, traits, count), routed_layers(config, traits, count)
    own = own_keys(config, count)
    mixers: list[Mixer | None] = []
    ffns: list[Ffn | None] = []
    for layer, kind in enumerate(kinds):
        here = config.with_own(own[layer]) if layer in own else config
        mixers.append(mixer_of(here, traits, kind, layer, count))
        wide = bool(config.get("use_double_wide_mlp")) and getattr(mixers[-1], "shared_kv", False)
        ffns.append(experts(here, traits) if layer in routed else dense(here, traits, double=wide))
    return mixers, ffns


LISTED = (
    "intermediate_size",
    "moe_intermediate_size",
    "num_experts",
    "moe_topk",
    "num_shared_expert",
)  # sizes that some config.json files state as a list with an entry per layer (Hunyuan, Gemma 3n)


def own_keys(config: Keys, count: int) -> dict[int, dict[str, Any]]:
    """What config.json states for single layers: in lists, or per_layer_config of transformers 5."""
    own = {int(layer): dict(values) for layer, values in (first(config, "per_layer_config") or {}).items()}
    for name in (name for name in LISTED if isinstance(config.values_by_name.get(name), list)):
        for layer, value in enumerate(each_layer(config, name, count) or ()):
            own.setdefault(layer, {}).setdefault(name, value)
    return own


LAYERS = {
    "decoder": decoder_layers,
    "encoder": decoder_layers,
    "nemotron_h": nemotron_h_layers,
    "jamba": jamba_layers,
    "mamba": mamba_layers,
    "parallel": parallel_layers,
    "nas": searched_layers,
    "longcat": longcat_layers,
}
