"""Maps names in price lists to the catalog: accelerators to slugs, sellers to providers.

Most lists do not distinguish SXM from PCIe. A bare name maps to the variant that clouds rent most, and the note of
the imported price says so.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache

import yaml

from catalog.importers.prices.offers import Chips
from catalog.shipped import FIXTURES

LISTED = yaml.safe_load((FIXTURES / "price_names.yaml").read_text(encoding="utf-8"))
PROVIDERS: dict[str, str] = LISTED["providers"]  # names in SkyPilot and gpuhunt that differ from the catalog's
MARKETPLACES = ("vast-ai", "tensordock", "salad", "akash", "spheron")  # anybody's hosts, gone within hours
VENDORS = re.compile(
    r"^(?:nvidia|amd|intel|google|aws|amazon|habana|qualcomm|xilinx|tenstorrent|huawei|apple|geforce|instinct|tesla"
    r"|quadro|cloud|radeon)(?=[a-z0-9])"
)
# Names that are no slug of the catalog, without spaces and signs. Several slugs: the first that fits the memory.
ALIASES: Mapping[str, tuple[str, ...]] = {name: tuple(slugs) for name, slugs in LISTED["accelerators"].items()}
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
