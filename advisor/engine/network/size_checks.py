"""Compares the size of a model that was read with what its name, the catalog and its checkpoint state."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from advisor.engine.network.checkpoint import checkpoint
from advisor.engine.network.model import Model, active_parameters, block_parameters, parameters

PUBLISHED_FRACTION = 0.03  # a published count or a checkpoint may differ by this much
NAME_WARNING_FRACTION, NAME_QUESTION_FACTOR = 0.15, 1.5  # names are rounded, and some count other parts
UNITS = {"M": 1e6, "B": 1e9, "T": 1e12}
# 70B, 1.7B, 8x7B, 0.6b, 135M; not E4B (Gemma's effective size), A3B (active), 4bit, or 1M (a context)
TOTAL = re.compile(r"(?<![A-Za-z0-9.])(?:(\d{1,3})x)?(\d{1,4}(?:\.\d{1,3})?)([BMT])(?![A-Za-z0-9])", re.IGNORECASE)
ACTIVE = re.compile(r"(?<![A-Za-z0-9])A(\d{1,4}(?:\.\d{1,3})?)([BMT])(?![A-Za-z0-9])", re.IGNORECASE)
LEAST_NAMED = 10e6
FORMATS = re.compile(
    r"(?<![A-Za-z0-9])(NVFP4|MXFP4|FP8|FP4|INT8|INT4|AWQ|GPTQ|W\dA\d{1,2}|[48]bit)(?![A-Za-z0-9])", re.I
)
BITS = {"fp8": 8, "int8": 8, "bf16": 16, "fp16": 16, "fp32": 32}  # of a weight; other formats: about 4
STATED_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}


@dataclass(frozen=True, kw_only=True, slots=True)
class Doubt:
    """Why the size may be wrong. `asks`: it needs confirmation; else it is a warning."""

    text: str
    asks: bool


def size_doubts(
    model: Model,
    config: Mapping[str, Any],
    names: Sequence[str] = (),
    published: int | None = None,
    index: Mapping[str, Any] | None = None,
) -> list[Doubt]:
    """The doubts about a model's size.

    config: its config.json. names: what it is called, the best first. published: parameters on its model card.
    index: the `metadata` of its model.safetensors.index.json.
    """
    doubts = [*of_published(model, published), *of_index(model, config, index or {}), *of_name(model, names)]
    return [*doubts, *of_format(model, config, names)]


def of_published(model: Model, published: int | None) -> Iterator[Doubt]:
    """A count of parameters that was published, with or without the towers of images and sound."""
    total = parameters(model)
    if published and not within(published, total - model.tower_parameters, total):
        yield Doubt(
            text=f"{total / 1e9:.2f} B parameters were read, but {published / 1e9:.2f} B are published", asks=True
        )


def of_index(model: Model, config: Mapping[str, Any], index: Mapping[str, Any]) -> Iterator[Doubt]:
    """The total of the checkpoint's index. It may have layers that draft tokens, which are not part of the size."""
    least, most = parameters(model) - model.tower_parameters, parameters(model) + drafting_parameters(model)
    stated, size = count_in(index, "total_parameters"), count_in(index, "total_size")
    if stated and not checkpoint_of(config):
        if not within(stated, least, most):
            yield Doubt(
                text=f"{least / 1e9:.2f} B parameters were read, but the checkpoint has {stated / 1e9:.2f} B", asks=True
            )
    elif size:
        narrow, wide = weight_bytes(model, config)
        if not within(size, least * narrow, most * wide):
            read = f"{least * narrow / 1e9:.1f}" + (f" to {most * wide / 1e9:.1f}" if wide > narrow else "")
            yield Doubt(text=f"{read} GB of weights were read, but the checkpoint has {size / 1e9:.1f} GB", asks=True)


def of_name(model: Model, names: Sequence[str]) -> Iterator[Doubt]:
    """The sizes in the first name that has one. Without an active size, the total in it may be the active one."""
    name = next((name for name in names if totals_in(name)), "")
    total, active = parameters(model), active_parameters(model)
    stated_active = [float(number) * UNITS[unit.upper()] for number, unit in ACTIVE.findall(name)]
    if totals := totals_in(name):
        read = [total] if stated_active else [total, active]
        factor = min(max(count / stated, stated / count) for stated in totals for count in read)
        if factor >= 1 + NAME_WARNING_FRACTION:
            text = f"{total / 1e9:.2f} B parameters were read, but the name {name!r} says {totals[0] / 1e9:g} B"
            yield Doubt(text=text, asks=factor >= NAME_QUESTION_FACTOR)
    for stated in stated_active:
        if max(active / stated, stated / active) >= NAME_QUESTION_FACTOR:
            text = f"{active / 1e9:.2f} B active parameters were read, but the name {name!r} says {stated / 1e9:g} B"
            yield Doubt(text=text, asks=True)


def totals_in(name: str) -> list[float]:
    """The numbers of parameters in a name: 120e9 of X-120B-A12B, 56e9 of X-8x7B."""
    found = [int(times or 1) * float(number) * UNITS[unit.upper()] for times, number, unit in TOTAL.findall(name)]
    return [count for count in found if count >= LEAST_NAMED]


def of_format(model: Model, config: Mapping[str, Any], names: Sequence[str]) -> Iterator[Doubt]:
    """A name that states a format of quantized weights, when no file does."""
    name = next((name for name in names if FORMATS.search(name)), "")
    if name and not checkpoint_of(config) and model.published is None:
        yield Doubt(
            text=f"the name {name!r} says {FORMATS.search(name)[0]}, but config.json states no quantization, so the "  # type: ignore[index]
            f"weights are read as {model.native_dtype.upper()}. Put hf_quant_config.json beside config.json if the "
            "checkpoint has one",
            asks=False,
        )


def checkpoint_of(config: Mapping[str, Any]) -> bool:
    """Whether the weights are quantized."""
    inner: Mapping[str, Any] = next((config[key] for key in ("text_config", "llm_config") if key in config), {})
    return (checkpoint(config) or checkpoint(inner)) is not None


def drafting_parameters(model: Model) -> int:
    """Weights of the layers that draft tokens, about: a layer each, a projection, and their own embeddings."""
    layer = max((block_parameters(model, block) for block in model.blocks), default=0)
    return model.mtp_layers * (layer + 2 * model.hidden**2 + 2 * model.vocab * model.hidden)


def weight_bytes(model: Model, config: Mapping[str, Any]) -> tuple[float, float]:
    """The fewest and the most bytes of a stored weight. Quantized checkpoints keep some layers in 16 bits."""
    if checkpoint_of(config):
        return BITS.get(model.native_dtype, 4) / 8, 2.0
    inner: Mapping[str, Any] = next((config[key] for key in ("text_config", "llm_config") if key in config), {})
    stated = next((each[key] for each in (inner, config) for key in ("dtype", "torch_dtype") if each.get(key)), None)
    size = STATED_BYTES.get(str(stated))
    return (size, size) if size else (2, 4)  # not stated: 16 or 32 bits


def within(stated: float, least: float, most: float) -> bool:
    return least * (1 - PUBLISHED_FRACTION) <= stated <= most * (1 + PUBLISHED_FRACTION)


def count_in(index: Mapping[str, Any], name: str) -> float:
    """A count of the index; 0 if it is not stated."""
    value = index.get(name)
    return value if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else 0
