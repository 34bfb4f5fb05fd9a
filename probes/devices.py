"""Which accelerator of the catalog is the device that an agent reports? By name and memory, never by its claim."""

import re
from collections.abc import Mapping
from typing import Any

from catalog.models import Accelerator

MEMORY_TOLERANCE = 0.03
GIB = 2.0**30
# Words of a product name that tell nothing apart, in what drivers report and in the catalog.
COMMON = set(
    "nvidia amd intel apple google aws tesla geforce instinct radeon graphics gpu tpu cpu processor "
    "xeon epyc core generation with the and r tm".split()
)
HOST = re.compile(r"processor|xeon|epyc|\bcpu\b")
SIZE = re.compile(r"\d+(gb|gib|mb)$")


def words(name: str) -> set[str]:
    """The words of a device name that matter: `NVIDIA H200 NVL` is {h200, nvl}."""
    found = re.findall(r"[a-z0-9+.]+", name.lower().replace("-", " "))
    return {word for word in found if word not in COMMON and not SIZE.match(word)}


def fits_memory(device: Mapping[str, Any], chip: Accelerator) -> bool:
    reported = device.get("memory_bytes")
    if not isinstance(reported, int | float) or not chip.memory_gib:
        return False
    return abs(reported / (chip.memory_gib * GIB) - 1) <= MEMORY_TOLERANCE


def fits_name(device: Mapping[str, Any], chip: Accelerator) -> bool:
    """Every word that tells the device is one of the catalog's, and the other way round but for the form factor."""
    said, known = words(str(device.get("name") or "")), words(f"{chip.name} {chip.slug}")
    essential = words(chip.name) - {"sxm", "sxm2", "sxm4", "sxm5", "pcie", "oam", "nvl", "hbm2e", "hbm3"}
    return bool(essential) and essential <= said and said <= known | {"sxm", "pcie", "hbm3", "hbm3e", "hbm2e"}


def candidates(device: Mapping[str, Any]) -> list[Accelerator]:
    """The catalog's chips with this name and this memory."""
    chips = [c for c in Accelerator.objects.all() if fits_name(device, c) and fits_memory(device, c)]
    if len(chips) > 1:  # an SXM part reports no form factor, a card does
        told = [c for c in chips if words(c.name) & {"nvl", "pcie"} & words(str(device.get("name") or ""))]
        limited = [c for c in chips if near_limit(device, c)]
        chips = told or [c for c in limited if not words(c.name) & {"nvl", "pcie"}] or limited or chips
    return chips


def near_limit(device: Mapping[str, Any], chip: Accelerator) -> bool:
    limit = device.get("power_limit_w")
    return not isinstance(limit, int | float) or not chip.tdp_watts or abs(limit / chip.tdp_watts - 1) < 0.2


def chip_of(device: Mapping[str, Any], named: str | None = None) -> Accelerator | None:
    """The one chip that this device can be; `named` (from the enrolment) decides between several, or for a CPU."""
    if named:
        chip = Accelerator.objects.filter(slug=named).first()
        return chip if chip and (could_be(device, chip) or chip in candidates(device)) else None
    found = candidates(device)
    return found[0] if len(found) == 1 else None


def could_be(device: Mapping[str, Any], chip: Accelerator) -> bool:
    """Whether a person's word is taken for it: a virtual CPU hides its model, jax shortens a TPU's name.

    A host has as much memory as was put into it, the catalog names the most; a TPU's is on its package.
    """
    name, reported = str(device.get("name") or "").lower(), device.get("memory_bytes")
    if chip.kind == "cpu" and isinstance(reported, int | float) and chip.memory_gib:
        most = (1 + MEMORY_TOLERANCE) * chip.memory_gib * GIB
        return chip.vendor.lower() in name and bool(HOST.search(name)) and reported <= most
    return chip.kind == "tpu" and "tpu" in name and fits_memory(device, chip)


def slug_of(device: Mapping[str, Any], named: str | None = None) -> str | None:
    chip = chip_of(device, named) if isinstance(device, Mapping) and device.get("name") else None
    return chip.slug if chip else None
