"""Maps names in price lists to the catalog: accelerators to slugs, sellers to providers.

Most lists do not distinguish SXM from PCIe. A bare name maps to the variant that clouds rent most, and the note of
the imported price says so.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache

from catalog.importers.prices.offers import Chips

PROVIDERS = {  # names in SkyPilot and gpuhunt that differ from the catalog's
    "cudocompute": "cudo",
    "datacrunch": "verda",
    "hotaisle": "hot-aisle",
    "jarvislabs": "jarvis-labs",
    "lambdalabs": "lambda",
    "massedcompute": "massed-compute",
    "oracle": "oci",
    "vast": "vast-ai",
    "vastai": "vast-ai",
}
MARKETPLACES = ("vast-ai", "tensordock", "salad", "akash", "spheron")  # anybody's hosts, gone within hours
VENDORS = re.compile(
    r"^(?:nvidia|amd|intel|google|aws|amazon|habana|qualcomm|xilinx|tenstorrent|huawei|apple|geforce|instinct|tesla"
    r"|quadro|cloud|radeon)(?=[a-z0-9])"
)
# Names that are no slug of the catalog, without spaces and signs. Several slugs: the first that fits the memory.
ALIASES: Mapping[str, tuple[str, ...]] = {
    "a100": ("a100-40gb-sxm", "a100-80gb-sxm"),
    "a100pcie": ("a100-40gb-pcie", "a100-80gb-pcie"),
    "a100sxm": ("a100-40gb-sxm", "a100-80gb-sxm"),
    "a100sxm4": ("a100-40gb-sxm", "a100-80gb-sxm"),
    "a100x": ("a100-80gb-pcie",),
    "a5000": ("rtx-a5000",),
    "a6000": ("rtx-a6000",),
    "b60": ("arc-pro-b60",),
    "gaudi": ("gaudi1",),
    "gaudihl205": ("gaudi1",),
    "gb10": ("gb10-dgx-spark",),
    "dgxspark": ("gb10-dgx-spark",),
    "gh200": ("gh200-96gb", "gh200-144gb"),
    "h100": ("h100-sxm",),
    "h100mega": ("h100-sxm",),
    "h100plus": ("h100-sxm",),
    "h200": ("h200-sxm",),
    "hl205": ("gaudi1",),
    "hl225": ("gaudi2",),
    "hl325": ("gaudi3",),
    "inferentia": ("inferentia1",),
    "n150": ("tenstorrent-n150d",),
    "n300": ("tenstorrent-n300d",),
    "p100a": ("tenstorrent-p100a",),
    "p150": ("tenstorrent-p150a",),
    "r9700": ("radeon-ai-pro-r9700",),
    "rtx3060": ("rtx-3060-12gb",),
    "rtx3080": ("rtx-3080-10gb",),
    "rtx4060ti": ("rtx-4060ti-16gb",),
    "rtx5060ti": ("rtx-5060ti-16gb",),
    "rtx6000adageneration": ("rtx-6000-ada",),
    "rtxpro4000": ("rtx-pro-4000-blackwell",),
    "rtxpro4500": ("rtx-pro-4500-blackwell",),
    "rtxpro5000": ("rtx-pro-5000-blackwell-72gb",),
    "rtxpro6000": ("rtx-pro-6000-blackwell-server",),
    "rtxpro6000bse": ("rtx-pro-6000-blackwell-server",),  # Blackwell server edition
    "rtxpro6000s": ("rtx-pro-6000-blackwell-server",),
    "rtxpro6000server": ("rtx-pro-6000-blackwell-server",),
    "rtxpro6000blackwellworkstation": ("rtx-pro-6000-blackwell",),
    "rtxpro6000we": ("rtx-pro-6000-blackwell",),
    "rtxpro6000ws": ("rtx-pro-6000-blackwell",),
    "rtxpro6000workstation": ("rtx-pro-6000-blackwell",),
    "trainium": ("trainium1",),
    "tpu7x": ("tpu-v7",),
    "tpuv5lite": ("tpu-v5e",),
    "tpuv5litepod": ("tpu-v5e",),
    "tpuv6": ("tpu-v6e",),
    "tpuv7x": ("tpu-v7",),
    "v100": ("v100-16gb-sxm", "v100-32gb-sxm"),
    "vr200": ("rubin-vr200",),
    "w7900": ("radeon-pro-w7900",),
}
UNSTATED_FORM = re.compile(r"(a100|h100|v100)(\d+gb)?")
SIZE = re.compile(r"(?<![a-z0-9])(\d{2,3}) ?gi?b?\b", re.IGNORECASE)  # 80GB, 141 GB
ASSUMED_NOTE = "SXM/PCIe not stated by the source"
TPU = re.compile(r"(?:tpu-?)?(v\d(?:litepod|lite|[epx])?|7x)-(\d+)")  # with its size, in chips or cores
SIZED_IN_CHIPS = ("v5litepod", "v5lite", "v5e", "v6e")  # the others count TensorCores, two per chip
MEMORY_SHARE = (0.9, 1.08)  # lists print decimal GB, nominal GB, or what drivers leave: 24 for 22.5, 288 for 268.6


@dataclass(frozen=True, kw_only=True, slots=True)
class Catalog:
    """What the readers know of the catalog."""

    gib: Mapping[str, float]  # memory of the chips, by slug
    instances: Mapping[str, Chips] = field(default_factory=dict)  # of the provider whose prices are read


def slice_chips(name: str) -> int:
    """Chips in a slice such as `tpu-v5p-8`; 1 for everything else."""
    match = TPU.fullmatch(name.strip().lower())
    if match is None:
        return 1
    size = int(match[2])
    return size if match[1] in SIZED_IN_CHIPS else max(1, size // 2)


def plain_name(name: str) -> str:
    """A chip's name in lower case, without vendor, spaces and signs; of a TPU slice its generation."""
    text = name.strip().lower()
    if match := TPU.fullmatch(text):
        text = f"tpu{match[1]}"
    text = re.sub(r"[^a-z0-9]+", "", text).removesuffix("edition")
    while (shorter := VENDORS.sub("", text)) != text:
        text = shorter
    return f"tpu{text}" if re.fullmatch(r"v\d(?:litepod|lite|[epx])?", text) else text


@cache
def _slugs(known: frozenset[str]) -> dict[str, tuple[str, ...]]:
    """The slugs that each plain name may mean, of those that the catalog has."""
    own: dict[str, tuple[str, ...]] = {}
    for slug in known:
        own[plain_name(slug)] = (slug,)
    found = {name: tuple(slug for slug in slugs if slug in known) for name, slugs in ALIASES.items()}
    return own | {name: slugs for name, slugs in found.items() if slugs}


def accelerator(name: str, gib: Mapping[str, float], memory_gib: float | None = None) -> tuple[str | None, str]:
    """The slug of a name among those of `gib` (None: unknown), and a note on assumptions.

    `memory_gib`, as the list prints it, tells sizes with one name apart; a chip of another memory is another product.
    """
    slugs = _slugs(frozenset(gib))
    plain = plain_name(name)
    found = slugs.get(plain, ())
    if not found and (sized := SIZE.search(name)):
        memory_gib = memory_gib or float(sized[1])
        found = slugs.get(plain_name(SIZE.sub("", name)), ())
    found = tuple(slug for slug in found if memory_gib is None or _is_near(memory_gib, gib[slug]))
    return (found[0] if found else None), ASSUMED_NOTE if UNSTATED_FORM.fullmatch(plain) else ""


def _is_near(printed_gib: float, gib: float) -> bool:
    low, high = MEMORY_SHARE
    return low <= printed_gib / gib <= high


def provider(name: str, known: Iterable[str]) -> str | None:
    """The catalog's provider that a list calls `name`; None: there is none."""
    plain = re.sub(r"[^a-z0-9]+", "", name.lower())
    by_plain = {re.sub(r"[^a-z0-9]+", "", each): each for each in known}
    return PROVIDERS.get(plain) or by_plain.get(plain)
