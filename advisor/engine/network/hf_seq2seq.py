"""Encoder-decoders from their config.json: an encoder's blocks, then a decoder's, each layer of it in two halves.

A decoder layer is self-attention (one block, no feed-forward) and cross-attention with the feed-forward (a second one).
Figures without a field of their own are counted as rows of the width in `position_embeddings`: the encoder's final
norm, relative position tables (T5), the two convolutions before Whisper's encoder.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from advisor.engine.network.model import Attention, Block, Ffn, Model

Config = Mapping[str, Any]
POSITION_S = 0.02  # of audio, Whisper


@dataclass(frozen=True, kw_only=True, slots=True)
class Stack:
    """One side of the network."""

    layers: int
    heads: int
    head_dim: int
    ffn: Ffn
    bias: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """What a reader finds in a config.json."""

    hidden: int
    encoder: Stack
    decoder: Stack
    norm_bias: bool
    rows: int  # of width hidden, outside of the layers
    source_tokens: int
    target_tokens: int
    tied: bool
    source_s: float = 0.0
    start_tokens: int = 1


def need(config: Config, name: str) -> int:
    """A key that must be there; a ValueError names it."""
    if config.get(name) is None:
        raise ValueError(f"config.json of a {config.get('model_type')} lacks {name}")
    return int(config[name])


def from_config(config: Config, slug: str, native_dtype: str) -> Model:
    """Which encoder-decoder does this config.json describe?"""
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
    """As many key heads as query heads: none of these shares them."""
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
    """All layers of the encoder, which look both ways."""
    return Block(count=stack.layers, mixer=attention(stack, causal=False), ffn=stack.ffn, norms=2, stage="encoder")


def decoder(stack: Stack) -> tuple[Block, Block]:
    """The two halves of every decoder layer."""
    return (
        Block(count=stack.layers, mixer=attention(stack, causal=True), ffn=None, norms=1),
        Block(count=stack.layers, mixer=attention(stack, causal=False, cross=True), ffn=stack.ffn, norms=2),
    )


def t5(config: Config) -> Shape:
    """T5 and mT5 (arXiv 1910.10683, 2010.11934): RMSNorm, no biases, one relative position table a side."""
    hidden, heads = need(config, "d_model"), need(config, "num_heads")
    gated = str(config.get("feed_forward_proj", "relu")).startswith("gated")
    ffn = Ffn(inner=need(config, "d_ff"), matrices=3 if gated else 2)
    layers = need(config, "num_layers")
    head_dim = need(config, "d_kv")
    front = Stack(layers=layers, heads=heads, head_dim=head_dim, ffn=ffn, bias=False)
    back = replace(front, layers=int(config.get("num_decoder_layers") or layers))
    tables = 2 * int(config.get("relative_attention_num_buckets") or 32) * heads
    tokens = int(config.get("n_positions") or 512)
    return Shape(
        hidden=hidden,
        encoder=front,
        decoder=back,
        norm_bias=False,
        rows=1 + round(tables / hidden),
        source_tokens=tokens,
        target_tokens=tokens,
        tied=bool(config.get("tie_word_embeddings", True)),
    )


def side_of(config: Config, hidden: int, side: str) -> Stack:
    """Encoder or decoder as BART and Whisper name them."""
    heads = need(config, f"{side}_attention_heads")
    return Stack(
        layers=need(config, f"{side}_layers"),
        heads=heads,
        head_dim=hidden // heads,
        ffn=Ffn(inner=need(config, f"{side}_ffn_dim"), matrices=2, bias=True),
        bias=True,
    )


def whisper(config: Config) -> Shape:
    """Whisper (arXiv 2212.04356): two convolutions over mel bins, learned positions on both sides.

    A spectrum comes every 10 ms and the second convolution takes every other one: a position is 20 ms. The decoder
    is started with four tokens: start, language, task, no timestamps.
    """
    hidden = need(config, "d_model")
    source, target = need(config, "max_source_positions"), need(config, "max_target_positions")
    convolutions = 3 * need(config, "num_mel_bins") + 1 + 3 * hidden + 1
    return Shape(
        hidden=hidden,
        encoder=side_of(config, hidden, "encoder"),
        decoder=side_of(config, hidden, "decoder"),
        norm_bias=True,
        rows=source + target + convolutions + 2,
        source_tokens=source,
        target_tokens=target,
        tied=True,
        source_s=source * POSITION_S,
        start_tokens=4,
    )


def bart(config: Config) -> Shape:
    """BART (arXiv 1910.13461): learned positions with two spare rows, a norm on each embedding, no final norm."""
    hidden, tokens = need(config, "d_model"), need(config, "max_position_embeddings")
    embedding_norms, final_norm = 4, 2
    return Shape(
        hidden=hidden,
        encoder=side_of(config, hidden, "encoder"),
        decoder=side_of(config, hidden, "decoder"),
        norm_bias=True,
        rows=2 * (tokens + 2) + embedding_norms - final_norm,
        source_tokens=tokens,
        target_tokens=tokens,
        tied=True,
    )


READERS: dict[str, Callable[[Config], Shape]] = {"t5": t5, "mt5": t5, "whisper": whisper, "bart": bart}
