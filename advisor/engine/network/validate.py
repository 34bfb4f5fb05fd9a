"""Validates untrusted model shapes before anything is computed from them."""

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from advisor.engine.network.blocks import Attention, Block
from advisor.engine.network.model import Model, parameters

# Our own bounds, far beyond any published model: a larger value is a mistake, and loops over it would not end.
MAX_SIZE = 10**9
MAX_PARAMETERS = 10**15
COUNTS = ("layer_embeddings", "tower_parameters")  # of weights, not the size of one edge
MAY_BE_ZERO = {
    "extended_context_tokens", "position_embeddings", "source_tokens", "start_tokens", "norms", "q_rank", "nope_dim",
    "rope_dim", "index_heads", "index_dim", "index_top_k", "dt_rank", "shared_inner", "groups", "max_patches",
    "max_pixels", "modulation", "max_tiles", "min_pixels", "image_px", "marker_tokens", "mtp_layers",
    "layer_embeddings", "tower_parameters", "gate", "ratio", "state", "decay_rank", "gate_rank", "latent",
    "zero_experts", "residual_mixes", "layer_input",
}  # fmt: skip


def check_plausible(model: Model) -> None:
    """ValueError names the first implausible size: not an integer, below its minimum, or beyond our bounds."""
    for name, value in sizes(model):
        minimum = 0 if name in MAY_BE_ZERO else 1
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"{name} must be a whole number, not {value!r}")
        maximum = MAX_PARAMETERS if name in COUNTS else MAX_SIZE
        if not minimum <= value <= maximum:
            raise ValueError(f"{name} {value:,} cannot be right: it must be between {minimum:,} and {maximum:,}")
    for block in (*model.blocks, *(model.vision.blocks if model.vision else ())):
        check_consistent(block)
    if (count := parameters(model)) > MAX_PARAMETERS:
        raise ValueError(f"{count:,} parameters cannot be right: the maximum is {MAX_PARAMETERS:,}")


def check_consistent(block: Block) -> None:
    """ValueError if top_k exceeds the number of experts, or kv_heads the number of heads."""
    if block.ffn and block.ffn.top_k > block.ffn.experts:
        raise ValueError(f"each token is routed to {block.ffn.top_k} experts, but there are only {block.ffn.experts}")
    if isinstance(block.mixer, Attention) and block.mixer.kv_heads > block.mixer.heads:
        raise ValueError(f"{block.mixer.kv_heads} key-value heads are more than the {block.mixer.heads} query heads")


def sizes(model: Model) -> Iterator[tuple[str, Any]]:
    """(name, value) of every integer field of the model, its blocks, mixers and feed-forward parts, unless None."""
    if not model.blocks:
        raise ValueError("the model has no layers")
    yield from integer_fields(model)
    if model.vision:
        yield from integer_fields(model.vision)
    for block in (*model.blocks, *(model.vision.blocks if model.vision else ())):
        yield from integer_fields(block)
        for part in (block.mixer, block.ffn):
            if part is not None:
                yield from integer_fields(part)


def integer_fields(part: Any) -> Iterator[tuple[str, Any]]:
    """(name, value) of the integer fields of one dataclass, unless None."""
    for field in fields(part):
        value = getattr(part, field.name)
        if field.type in (int, int | None, "int", "int | None") and value is not None:
            yield field.name, value
