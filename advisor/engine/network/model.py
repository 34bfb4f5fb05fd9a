"""A model as a tuple of blocks, each a mixer (attention or recurrence) with a feed-forward part."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from advisor.engine.network.blocks import (
    Attention,
    Block,
    attention_kv_elements,
    block_of,
    block_shape,
    cached,
    mixer_kv_elements,
    recurrent_state,
    refuse_unknown,
    sparse,
)
from advisor.engine.network.diffusion import Diffusion, diffusion_of, diffusion_parameters, diffusion_shape
from advisor.engine.network.matrices import layer_weights
from advisor.engine.network.release import DraftRelease, Release
from advisor.engine.network.vision import Pictures, Vision, vision_of, vision_parameters, vision_shape


@dataclass(frozen=True, kw_only=True, slots=True)
class Adapters:
    """LoRA adapters (arXiv 2106.09685) served with one base model, not merged into it."""

    count: int  # adapters that requests may name
    rank: int
    active: int  # distinct adapters in use at once: slots on the accelerator
    attention_only: bool = False  # else every matrix of the dense layers


@dataclass(frozen=True, kw_only=True, slots=True)
class Drawing:
    """The images that a mean request generates."""

    images: float
    width_px: float
    height_px: float
    passes: int  # of the transformer
    tokens: float  # of one image, with the text that attends to it


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    slug: str
    hidden: int
    vocab: int
    blocks: tuple[Block, ...]
    tied_embeddings: bool = False
    position_embeddings: int = 0  # rows of width `hidden`: learned positions, token types, input convolutions
    layer_embeddings: int = 0  # elements of the table of embeddings that layers add (Gemma 3n); read by row
    tower_parameters: int = 0  # encoders of images or sound of which only the size is known; 16 bits
    norm_bias: bool = False  # LayerNorm with bias instead of RMSNorm
    native_dtype: str = "bf16"  # of the published weights
    published: Release | None = None  # None: not stated; any method that stores native_dtype
    conversions: tuple[Release, ...] = ()  # published by others in other formats
    draft_releases: tuple[DraftRelease, ...] = ()
    engines: tuple[tuple[str, str], ...] = ()  # (framework, its oldest version that loads the model), where known
    mtp_layers: int = 0  # multi-token prediction layers in the published checkpoint
    max_context_tokens: int = 131072
    extended_context_tokens: int = 0  # with the RoPE scaling (YaRN) that its card documents; 0: none documented
    encoder_only: bool = False
    scores_pairs: bool = False  # a cross-encoder: one score for a query and a document together
    source_tokens: int = 0  # longest source of an encoder-decoder; 0: not an encoder-decoder
    source_s: float = 0.0  # seconds of audio in one source, padded to source_tokens; 0: the source is text
    start_tokens: int = 1  # tokens that the decoder of an encoder-decoder starts with
    adapters: Adapters | None = None
    vision: Vision | None = None
    pictures: Pictures | None = None  # images of a mean request; None: requests have none
    diffusion: Diffusion | None = None
    drawing: Drawing | None = None  # images that a mean request generates
    sequences: float = 1.0  # sequences of a request that do not attend to each other (pairs of a reranker)

    @property
    def makes(self) -> str:
        """What a request returns: tokens, vectors, scores or images."""
        if self.diffusion is not None:
            return "images"
        return "scores" if self.scores_pairs else "vectors" if self.encoder_only else "tokens"

    @property
    def longest_context_tokens(self) -> int:
        """The longest context that the model card documents, with RoPE scaling where it needs that."""
        return max(self.max_context_tokens, self.extended_context_tokens)


NOT_IN_SHAPE = ("published", "conversions", "draft_releases", "mtp_layers", "engines")  # facts of the checkpoint


def passes_of(model: Model) -> int:
    """Passes of the blocks for one request: of an image generator its steps, twice with guidance; else one."""
    return model.drawing.passes if model.drawing else 1


def block_parameters(model: Model, block: Block, *, active: bool = False) -> int:
    """Weights of ONE layer of this block; `active`: only those used for one token."""
    return layer_weights(block, model.hidden, active=active, norm_bias=model.norm_bias)


def embedding_parameters(model: Model) -> int:
    """Weights outside the blocks: embeddings, output head, final norm, an encoder's pooler."""
    matrices = 1 if model.tied_embeddings else 2
    pooler = model.hidden * (model.hidden + 1) if model.encoder_only else 0
    norm = model.hidden * (2 if model.norm_bias else 1)
    return (matrices * model.vocab + model.position_embeddings) * model.hidden + norm + pooler


def parameters(model: Model) -> int:
    """Weights of the whole model."""
    blocks = sum(block.count * block_parameters(model, block) for block in model.blocks)
    if model.diffusion:
        return blocks + diffusion_parameters(model.diffusion)
    towers = model.tower_parameters + (vision_parameters(model.vision) if model.vision else 0)
    return embedding_parameters(model) + model.layer_embeddings + blocks + towers


def active_parameters(model: Model) -> int:
    """Weights used for one token, including both embeddings and the routers, which model cards often omit."""
    blocks = sum(block.count * block_parameters(model, block, active=True) for block in model.blocks)
    return embedding_parameters(model) + blocks


def kv_elements(model: Model, context_tokens: int) -> int:
    """KV cache elements of one sequence of this length; windowed layers keep at most their window."""
    return sum(
        block.count * int(cache.elements * int(cache.tokens(context_tokens)))
        for block in decoder_blocks(model)
        for cache in cached(block.mixer)
    )


def decoder_blocks(model: Model) -> tuple[Block, ...]:
    """The blocks that run for every generated token and have a KV cache."""
    return tuple(block for block in model.blocks if block.stage == "decoder")


def cross_kv_elements(model: Model, source_tokens: int) -> int:
    """Cross-attention key and value elements of one source: written once, read by every decode step."""
    per_token = (
        block.count * attention_kv_elements(block.mixer)
        for block in model.blocks
        if isinstance(block.mixer, Attention) and block.mixer.cross
    )
    return source_tokens * sum(per_token)


def kv_elements_per_token(model: Model) -> float:
    """KV cache elements that one token adds on average while the context is shorter than every window."""
    return sum(block.count * mixer_kv_elements(block.mixer) for block in decoder_blocks(model))


def state_elements(model: Model) -> int:
    """Elements of the fixed state of one sequence: recurrent state and convolution window."""
    return sum(block.count * recurrent_state(block.mixer) for block in model.blocks)


def from_shape(slug: str, shape: Mapping[str, Any]) -> Model:
    """The model of a stored shape. ValueError names unknown keys."""
    outer = {key: value for key, value in shape.items() if key not in ("blocks", "vision", "diffusion")}
    refuse_unknown("model", outer, Model, NOT_IN_SHAPE)
    blocks = tuple(block_of(block) for block in shape["blocks"])
    towers: Any = {"vision": vision_of(shape.get("vision")), "diffusion": diffusion_of(shape.get("diffusion"))}
    return Model(slug=slug, blocks=blocks, **towers, **outer)


def to_shape(model: Model) -> dict[str, Any]:
    """The stored shape of a model, without fields that have their default; the inverse of from_shape."""
    shape = sparse(model, skip=("slug", "blocks", "vision", "diffusion", *NOT_IN_SHAPE))
    shape["blocks"] = [block_shape(block) for block in model.blocks]
    if model.diffusion:
        shape["diffusion"] = diffusion_shape(model.diffusion)
    if model.vision:
        shape["vision"] = vision_shape(model.vision)
    return shape
