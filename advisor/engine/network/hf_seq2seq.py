"""Encoder-decoder models from their config.json: the encoder's blocks, then the decoder's.

Each decoder layer becomes two blocks: self-attention without a feed-forward, and cross-attention with the feed-forward.
Weights without a field of their own are counted as rows of width `hidden` in `position_embeddings`: the encoder's final
norm, T5's relative position tables, the two convolutions before Whisper's encoder.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from advisor.engine.network.blocks import Attention, Block, Ffn
from advisor.engine.network.model import Model

Config = Mapping[str, Any]
POSITION_S = 0.02  # seconds of audio per encoder position of Whisper


@dataclass(frozen=True, kw_only=True, slots=True)
class Stack:
    """The encoder or the decoder."""

    layers: int
    heads: int
    head_dim: int
    ffn: Ffn
    bias: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """Sizes read from a config.json."""

    hidden: int
    encoder: Stack
    decoder: Stack
    norm_bias: bool
    rows: int  # of width `hidden`, outside the layers
    source_tokens: int
    target_tokens: int
    tied: bool
    source_s: float = 0.0
    start_tokens: int = 1


def need(config: Config, name: str) -> int:
    """The value of a required key; ValueError names a missing one."""
    if config.get(name) is None:
        raise ValueError(f"config.json of a {config.get('model_type')} lacks {name}")
    return int(config[name])


def from_config(config: Config, slug: str, native_dtype: str) -> Model:
    """The encoder-decoder that a config.json describes."""
    shape = READERS[str(config["model_type"])](config)
    return Model(
        slug=slug,
        hidden=shape.hidden,
        vocab=need(config, "vocab_size"),
        blocks=(encoder(shape.encoder), *decoder(shape.decoder)),
        tied_embeddings=shape.tied,
        position_embeddings=shape.rows,
        norm_bias=shape.norm_bias,
        native_dtype=native_dtype,
        max_context_tokens=shape.target_tokens,
        source_tokens=shape.source_tokens,
        source_s=shape.source_s,
        start_tokens=shape.start_tokens,
    )


def attention(stack: Stack, *, causal: bool, cross: bool = False) -> Attention:
    """Multi-head attention: none of these models shares key-value heads."""
    return Attention(
        heads=stack.heads,
        kv_heads=stack.heads,
        head_dim=stack.head_dim,
        qkv_bias=stack.bias,
        output_bias=stack.bias,
        causal=causal,
        cross=cross,
    )


def encoder(stack: Stack) -> Block:
    """All layers of the encoder (bidirectional attention)."""
    return Block(count=stack.layers, mixer=attention(stack, causal=False), ffn=stack.ffn, norms=2, stage="encoder")


def decoder(stack: Stack) -> tuple[Block, Block]:
    """Two blocks for the decoder layers: self-attention, then cross-attention with the feed-forward."""
    return (
        Block(count=stack.layers, mixer=attention(stack, causal=True), ffn=None, norms=1),
        Block(count=stack.layers, mixer=attention(stack, causal=False, cross=True), ffn=stack.ffn, norms=2),
    )


def t5(config: Config) -> Shape:
    """T5 and mT5 (arXiv 1910.10683, 2010.11934): RMSNorm, no biases, one relative position table per stack."""
    hidden, heads = need(config, "d_model"), need(config, "num_heads")
    gated = str(config.get("feed_forward_proj", "relu")).startswith("gated")
    ffn = Ffn(inner=need(config, "d_ff"), matrices=3 if gated else 2)
    layers = need(config, "num_layers")
    head_dim = need(config, "d_kv")
    encoder_stack = Stack(layers=layers, heads=heads, head_dim=head_dim, ffn=ffn, bias=False)
    decoder_stack = replace(encoder_stack, layers=int(config.get("num_decoder_layers") or layers))
    tables = 2 * int(config.get("relative_attention_num_buckets") or 32) * heads
    tokens = int(config.get("n_positions") or 512)
    return Shape(
        hidden=hidden,
        encoder=encoder_stack,
        decoder=decoder_stack,
        norm_bias=False,
        rows=1 + round(tables / hidden),
        source_tokens=tokens,
        target_tokens=tokens,
        tied=bool(config.get("tie_word_embeddings", True)),
    )


def stack_of(config: Config, hidden: int, side: str) -> Stack:
    """The encoder or decoder under the key names of BART and Whisper."""
    heads = need(config, f"{side}_attention_heads")
    return Stack(
        layers=need(config, f"{side}_layers"),
        heads=heads,
        head_dim=hidden // heads,
        ffn=Ffn(inner=need(config, f"{side}_ffn_dim"), matrices=2, bias=True),
        bias=True,
    )


def whisper(config: Config) -> Shape:
    """Whisper (arXiv 2212.04356): two convolutions over mel bins, learned positions in encoder and decoder.

    One spectrum per 10 ms and a second convolution with stride 2 make 20 ms per position. The decoder starts with four
    tokens: start, language, task, no timestamps.
    """
    hidden = need(config, "d_model")
    source, target = need(config, "max_source_positions"), need(config, "max_target_positions")
    convolutions = 3 * need(config, "num_mel_bins") + 1 + 3 * hidden + 1
    return Shape(
        hidden=hidden,
        encoder=stack_of(config, hidden, "encoder"),
        decoder=stack_of(config, hidden, "decoder"),
        norm_bias=True,
        rows=source + target + convolutions + 2,
        source_tokens=source,
        target_tokens=target,
        tied=True,
        source_s=source * POSITION_S,
        start_tokens=4,
    )


def bart(config: Config) -> Shape:
    """BART (arXiv 1910.13461): learned positions with two extra rows, a norm on each embedding, no final norm."""
    hidden, tokens = need(config, "d_model"), need(config, "max_position_embeddings")
    embedding_norms, final_norm = 4, 2
    return Shape(
        hidden=hidden,
        encoder=stack_of(config, hidden, "encoder"),
        decoder=stack_of(config, hidden, "decoder"),
        norm_bias=True,
        rows=2 * (tokens + 2) + embedding_norms - final_norm,
        source_tokens=tokens,
        target_tokens=tokens,
        tied=True,
    )


READERS: dict[str, Callable[[Config], Shape]] = {"t5": t5, "mt5": t5, "whisper": whisper, "bart": bart}
