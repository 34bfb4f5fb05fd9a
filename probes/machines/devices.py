"""Matches the device that an agent reports to an accelerator of the catalog, by name and memory size."""

import difflib
import math
import re
from collections.abc import Mapping
from typing import Any

from catalog.models import Accelerator

MEMORY_TOLERANCE = 0.03
GIB = 2.0**30
# Words of product names that do not distinguish devices.
COMMON_WORDS = set(
    "nvidia amd intel apple google aws tesla geforce instinct radeon graphics gpu tpu cpu processor "
    "xeon epyc core generation with the and r tm".split()
)
HOST = re.compile(r"processor|xeon|epyc|\bcpu\b")
SIZE = re.compile(r"\d+(gb|gib|mb)$")


def words(name: str) -> set[str]:
    """The distinctive words of a device name: `NVIDIA H200 NVL` gives {h200, nvl}."""
    every = re.findall(r"[a-z0-9+.]+", name.lower().replace("-", " "))
    return {word for word in every if word not in COMMON_WORDS and not SIZE.match(word)}


def fits_memory(device: Mapping[str, Any], chip: Accelerator) -> bool:
    """Whether the reported memory is within 3 % of the chip's."""
    reported = device.get("memory_bytes")
    if not isinstance(reported, int | float) or not chip.memory_gib:
        return False
    return abs(reported / (chip.memory_gib * GIB) - 1) <= MEMORY_TOLERANCE


def fits_name(device: Mapping[str, Any], chip: Accelerator) -> bool:
    """Whether the distinctive words of both names match, except for the form factor and memory type."""
    reported, known = words(str(device.get("name") or "")), words(f"{chip.name} {chip.slug}")
    essential = words(chip.name) - {"sxm", "sxm2", "sxm4", "sxm5", "pcie", "oam", "nvl", "hbm2e", "hbm3"}
    return bool(essential) and essential <= reported and reported <= known | {"sxm", "pcie", "hbm3", "hbm3e", "hbm2e"}


def candidates(device: Mapping[str, Any]) -> list[Accelerator]:
    """The accelerators that match this name and memory size."""
    chips = [c for c in Accelerator.objects.all() if fits_name(device, c) and fits_memory(device, c)]
    if len(chips) > 1:  # SXM modules do not report a form factor; PCIe cards do
        by_form_factor = [c for c in chips if words(c.name) & {"nvl", "pcie"} & words(str(device.get("name") or ""))]
        by_power = [c for c in chips if fits_power_limit(device, c)]
        chips = by_form_factor or [c for c in by_power if not words(c.name) & {"nvl", "pcie"}] or by_power or chips
    return chips


def fits_power_limit(device: Mapping[str, Any], chip: Accelerator) -> bool:
    """Whether the reported power limit is within 20 % of the chip's TDP; True if either is unknown."""
    limit = device.get("power_limit_w")
    return not isinstance(limit, int | float) or not chip.tdp_watts or abs(limit / chip.tdp_watts - 1) < 0.2


def chip_of(device: Mapping[str, Any], named: str | None = None) -> Accelerator | None:
    """The accelerator that matches the device; None if none or several do. `named`: the slug from the enrollment."""
    if named:
        chip = Accelerator.objects.filter(slug=named).first()
        return chip if chip and (could_be(device, chip) or chip in candidates(device)) else None
    matches = candidates(device)
    return matches[0] if len(matches) == 1 else None


def could_be(device: Mapping[str, Any], chip: Accelerator) -> bool:
    """Whether the slug from the enrollment is accepted: virtual CPUs hide their model, and jax shortens TPU names.

    A CPU host may have less memory than the catalog's maximum. A TPU's memory must match.
    """
    name, reported = str(device.get("name") or "").lower(), device.get("memory_bytes")
    if chip.kind == "cpu" and isinstance(reported, int | float) and chip.memory_gib:
        max_bytes = (1 + MEMORY_TOLERANCE) * chip.memory_gib * GIB
        return chip.vendor.lower() in name and bool(HOST.search(name)) and reported <= max_bytes
    return chip.kind == "tpu" and "tpu" in name and fits_memory(device, chip)


def slug_of(device: Mapping[str, Any], named: str | None = None) -> str | None:
    """The slug of chip_of; None without a match or a device name."""
    chip = chip_of(device, named) if isinstance(device, Mapping) and device.get("name") else None
    return chip.slug if chip else None


def nearest(device: Mapping[str, Any], backend: str, most: int = 3) -> list[str]:
    """The slugs of the accelerators that are most like this device: by name, then by memory size."""
    name = str(device.get("name") or "").lower()
    chips = [c for c in Accelerator.objects.all() if (c.kind == "cpu") == (backend == "cpu")]

    def unlike(chip: Accelerator) -> tuple[float, ...]:
        shared = len(words(name) & words(f"{chip.name} {chip.slug}"))
        reported = device.get("memory_bytes")
        apart = abs(math.log(reported / (chip.memory_gib * GIB))) if reported and chip.memory_gib else math.inf
        return -shared, chip.vendor.lower() not in name, apart

    return [chip.slug for chip in sorted(chips, key=unlike)[:most]]


def device_text(device: Mapping[str, Any]) -> str:
    """The name and memory size of a device, as an agent reports them."""
    memory = device.get("memory_bytes")
    size = f" with {memory / GIB:.4g} GiB" if isinstance(memory, int | float) else ""
    return f"{device.get('name') or 'a device without a name'}{size}"


def unmatched_text(document: Mapping[str, Any]) -> str:
    """Why a result has no accelerator, and what to do."""
    device = document.get("device") or {}
    several = [c.slug for c in candidates(device)]
    problem = f"{device_text(device)} matches {' and '.join(several) or 'no accelerator of the catalog'}"
    advice = " or ".join(several or nearest(device, document.get("backend") or ""))
    return f"{problem}: import the result again with --accelerator SLUG, for example {advice}"


def named(slug: str, document: Mapping[str, Any]) -> Accelerator:
    """The accelerator that a person names for a result. ValueError with suggestions: unknown, or cannot be this one."""
    device, backend = document["device"], document["backend"]
    chip = Accelerator.objects.filter(slug=slug).first()
    if chip is None:
        slugs = list(Accelerator.objects.values_list("slug", flat=True))
        close = difflib.get_close_matches(slug, slugs, 3, 0.4) or nearest(device, backend)
        raise ValueError(f"no accelerator {slug} in the catalog; did you mean {', '.join(close)}?")
    if (chip.kind == "cpu") != (backend == "cpu"):
        what = "a processor" if backend == "cpu" else f"an accelerator (backend {backend})"
        like = ", ".join(nearest(device, backend))
        text = f"the result is of {what}, {device_text(device)}, and {slug} is a {chip.kind}; nearest: {like}"
        raise ValueError(text)
    name, makers = str(device.get("name") or "").lower(), set(Accelerator.objects.values_list("vendor", flat=True))
    others = [maker for maker in makers if maker.lower() in name.split() or f"{maker.lower()}(r)" in name.split()]
    if others and chip.vendor not in others:
        like = ", ".join(nearest(device, backend))
        raise ValueError(f"{device_text(device)} is not made by {chip.vendor}, and {slug} is; nearest: {like}")
    return chip
