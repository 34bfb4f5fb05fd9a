"""Vision towers: the encoder that turns an image into tokens of the language model, and how many it makes."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from advisor.engine.network.blocks import Block, block_of, block_shape, sparse
from advisor.engine.network.matrices import layer_weights

RULES = ("rounded", "padded", "fixed", "tiles")


@dataclass(frozen=True, kw_only=True, slots=True)
class Vision:
    """A vision transformer with its projector, in 16 bits.

    `rule` says how an image becomes patches. rounded: its own resolution, each side rounded to whole tokens, within
    min_pixels and max_pixels (Qwen2-VL, smart_resize). padded: its own resolution, never enlarged, padded to whole
    tokens, at most max_patches (Kimi-K2.5, navit_resize). fixed: always image_px x image_px (Gemma 3). tiles: up to
    max_tiles squares of image_px, and one more of the whole image if there are several (Llama 4).
    """

    hidden: int
    blocks: tuple[Block, ...]
    patch_px: int
    merge: int  # patches per side of one token
    rule: str
    projector: tuple[tuple[int, int], ...]  # matrices (inputs, outputs) that every token passes
    patch_inputs: int = 588  # values of one patch: 3 colors x 14 x 14, times the frames that are taken together
    position_embeddings: int = 0
    norm_bias: bool = False
    min_pixels: int = 0
    max_pixels: int = 0
    max_patches: int = 0
    image_px: int = 0
    max_tiles: int = 0
    marker_tokens: int = 2  # text tokens around an image

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise ValueError(f"vision rule {self.rule!r}: allowed are {', '.join(RULES)}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Pictures:
    """The images of a mean request: `passes` runs of the tower over `patches` patches each."""

    passes: float
    patches: float
    tokens: float  # of the language model, markers included


def pictures_of(vision: Vision, per_request: float, width_px: float, height_px: float) -> Pictures:
    """The images of a request, of this resolution, by the model's own rule."""
    if vision.rule == "fixed":
        passes, patches = 1, (vision.image_px // vision.patch_px) ** 2
        markers = vision.marker_tokens
    elif vision.rule == "tiles":
        rows, columns = tiles_of(vision, width_px, height_px)
        several = rows * columns > 1
        passes, patches = rows * columns + several, (vision.image_px // vision.patch_px) ** 2
        markers = vision.marker_tokens + (rows * columns if several else 0)  # a separator behind every tile
    else:
        width, height = resized(vision, width_px, height_px)
        passes, patches = 1, round(width / vision.patch_px * height / vision.patch_px)
        markers = vision.marker_tokens
    tokens = passes * patches // vision.merge**2 + markers
    return Pictures(passes=per_request * passes, patches=float(patches), tokens=per_request * tokens)


def resized(vision: Vision, width_px: float, height_px: float) -> tuple[float, float]:
    """Pixels that the tower sees, for the rules `rounded` and `padded`."""
    factor = vision.patch_px * vision.merge
    if vision.rule == "padded":
        patches = max(width_px // vision.patch_px, 1.0) * max(height_px // vision.patch_px, 1.0)
        scale = min(1.0, math.sqrt(vision.max_patches / patches))
        width, height = (math.ceil(int(side * scale) / factor) * factor for side in (width_px, height_px))
        return float(width), float(height)
    width, height = (round(side / factor) * factor for side in (width_px, height_px))
    if width * height > vision.max_pixels:
        beta = math.sqrt(width_px * height_px / vision.max_pixels)
        width, height = (max(factor, math.floor(s / beta / factor) * factor) for s in (width_px, height_px))
    elif width * height < vision.min_pixels:
        beta = math.sqrt(vision.min_pixels / (width_px * height_px))
        width, height = (math.ceil(s * beta / factor) * factor for s in (width_px, height_px))
    return float(width), float(height)


def tiles_of(vision: Vision, width_px: float, height_px: float) -> tuple[int, int]:
    """(rows, columns) of the canvas with the smallest enlargement of the image, else with the least shrinking."""
    shapes = [
        (rows, count // rows) for count in range(1, vision.max_tiles + 1) for rows in range(1, count + 1)
        if count % rows == 0
    ]  # fmt: skip
    scale = {s: min(s[1] * vision.image_px / width_px, s[0] * vision.image_px / height_px) for s in shapes}
    larger = [value for value in scale.values() if value >= 1]
    best = min(larger) if larger else max(scale.values())
    return min((s for s in shapes if scale[s] == best), key=lambda s: s[0] * s[1])


def vision_parameters(vision: Vision) -> int:
    """Weights of the tower with its patch embedding and projector."""
    blocks = sum(b.count * layer_weights(b, vision.hidden, norm_bias=vision.norm_bias) for b in vision.blocks)
    projector = sum(inputs * outputs for inputs, outputs in vision.projector)
    return blocks + projector + (vision.patch_inputs + vision.position_embeddings) * vision.hidden


def vision_of(stored: Mapping[str, Any] | None) -> Vision | None:
    """The tower of a stored shape; None without one. ValueError names unknown keys."""
    if not stored:
        return None
    allowed = {field.name for field in fields(Vision)}
    if unknown := sorted(set(stored) - allowed):
        raise ValueError(f"vision: unknown {', '.join(unknown)}; allowed are {', '.join(sorted(allowed))}")
    rest = {key: value for key, value in stored.items() if key not in ("blocks", "projector")}
    blocks = tuple(block_of(block) for block in stored["blocks"])
    return Vision(blocks=blocks, projector=tuple((a, b) for a, b in stored["projector"]), **rest)


def vision_shape(vision: Vision) -> dict[str, Any]:
    """The stored shape of a tower; the inverse of vision_of."""
    shape = sparse(vision, skip=("blocks", "projector"))
    return shape | {
        "projector": [list(matrix) for matrix in vision.projector],
        "blocks": [block_shape(block) for block in vision.blocks],
    }
