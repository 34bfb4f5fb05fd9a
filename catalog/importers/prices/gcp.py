"""Imports prices from the Cloud Billing Catalog API, Compute Engine: SKUs whose prices add up to a machine.

Traps: a machine's cores, memory and accelerators are three SKUs, but A4 is sold in slices with everything in them.
The spot slices of A4 are filed under OnDemand. Shares of accelerators and flex-start machines have similar names.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from catalog.importers.prices import names
from catalog.importers.prices.offers import UNREADABLE, Account, Offer, day_of, listed_in, objects, parsed, row, usd
from catalog.loading.fixtures import PER_CHIP

API = "Cloud Billing Catalog API, Compute Engine SKUs"
TERMS = {
    "OnDemand": "on_demand",
    "Preemptible": "spot",
    "Commit1Yr": "reserved_1y",
    "Commit3Yr": "reserved_3y",
}
ACCELERATORS = {  # slug and family: name in descriptions
    ("a100-40gb-sxm", "A2"): r"Nvidia Tesla A100 GPU",
    ("a100-80gb-sxm", "A2"): r"Nvidia Tesla A100 80GB GPU",
    ("h100-sxm", "A3"): r"Nvidia H100 80GB GPU",
    ("h100-sxm", "A3Plus"): r"Nvidia H100 80GB (?:Plus|Mega) GPU",
    ("h200-sxm", "A3Ultra"): r"(?:Nvidia )?H200 141GB GPU",
    ("b200", "A4"): r"A4 Nvidia B200 \(1 gpu slice\)",
    ("l4", "G2"): r"Nvidia L4 GPU",
    ("rtx-pro-6000-blackwell-server", "G4"): r"(?:Nvidia )?RTX 6000 96GB",
}
DESCRIPTION = re.compile(
    r"(?P<spot>(?:Spot )?Preemptible )?(?:Commitment v\d: )?(?P<part>.+?)"
    r"(?P<attached> attached to Spot Preemptible VMs)?(?: running)? in .+",
    re.IGNORECASE,
)
# TpuV5e, TPU7x: priced by the chip and hour (skypilot-org/skypilot@21fd5541 sky/catalog/data_fetchers/fetch_gcp.py)
TPU = re.compile(r"(?:cloud )?(?P<chip>tpu ?v?\d[a-z]?)(?: chip)?(?: hours?)?", re.IGNORECASE)
# Tpu-v4 Pod Accelerator USA: of the service Cloud TPU, priced by four chips (the same source)
OLD_TPU = re.compile(r"(?:Commitment[^:]*: ?)?(?P<chip>TPU-v\d)(?P<rest>.*?) Accelerator\b.*", re.IGNORECASE)
OLD_TPU_CHIPS = 4
ONLY_PODS = ("tpu-v4",)  # what else is sold as a pod has another price on its own
OTHER_WAYS = re.compile(
    r"\b(?:reserved|calendar mode|dws|defined duration|flex|subscription|fixed price|capacity optimized)\b",
    re.IGNORECASE,
)  # to reserve capacity, or to wait for it
TPU_UNITS = {  # chips of the smallest machine: ct5lp-hightpu-1t, ct6e-standard-1t, ct5p-hightpu-4t, tpu7x-standard-4t
    "tpu-v5e": 1,
    "tpu-v5p": 4,
    "tpu-v6e": 1,
    "tpu-v7": 4,
}
TPU_UNIT_SOURCE = "Compute Engine, machine types of the TPU generation"
SLICE = re.compile(r".*?\b(?:nvidia )?(?P<chip>[a-z]{1,2}\d{2,3}[a-z]?) \(1 gpu slice\)", re.IGNORECASE)
UNKNOWN_CHIP = "accelerator that the reader does not know"
TPU_PART, OLD_TPU_PART, NEW_PART = "TPU", "TPU by four chips", "new machine"
HOST = re.compile(
    r"(?P<family>A2|A3|A3Plus|A3 ?Ultra|G2|G4) (?:(?P<core>Instance Core|Cpu)|Instance Ram|Ram)", re.IGNORECASE
)
SLICED = ("A4",)  # the price of an accelerator includes cores, memory and local drives
LOCAL_SSD = ("a2-ultragpu", "a3-")
SSD_NOTE = "without the local SSD of the machine, which is billed apart (about 1% more)"
SHAPE_NOTES = {"a3-ultragpu-8g": "; vCPUs and memory of the machine from memory"}
Part = tuple[str, str]  # slug and family of an accelerator; "core" or "ram" and family

MACHINES = {  # slug and family, accelerators, vCPUs, GiB
    **{f"a2-highgpu-{n}g": (("a100-40gb-sxm", "A2"), n, 12 * n, 85 * n) for n in (1, 2, 4, 8)},
    "a2-megagpu-16g": (("a100-40gb-sxm", "A2"), 16, 96, 1360),
    **{f"a2-ultragpu-{n}g": (("a100-80gb-sxm", "A2"), n, 12 * n, 170 * n) for n in (1, 2, 4, 8)},
    **{f"a3-highgpu-{n}g": (("h100-sxm", "A3"), n, 26 * n, 234 * n) for n in (1, 2, 4, 8)},
    "a3-megagpu-8g": (("h100-sxm", "A3Plus"), 8, 208, 1872),
    "a3-ultragpu-8g": (("h200-sxm", "A3Ultra"), 8, 224, 2952),
    "a4-highgpu-8g": (("b200", "A4"), 8, 224, 3968),
    **{
        f"g2-standard-{cores}": (("l4", "G2"), n, cores, 4 * cores)
        for cores, n in ((4, 1), (8, 1), (12, 1), (16, 1), (24, 2), (32, 1), (48, 4), (96, 8))
    },
    **{f"g4-standard-{48 * n}": (("rtx-pro-6000-blackwell-server", "G4"), n, 48 * n, 180 * n) for n in (1, 2, 4, 8)},
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Sku:
    """The price of one part in a region under one term."""

    usd_per_hour: Decimal
    day: str
    row: int


Skus = dict[tuple[Part, str, str], Sku]  # by part, region and term


def read(text: str, catalog: names.Catalog, as_of: str, account: Account) -> Iterator[Offer]:
    """The offers of all pages, joined by `merged`, as rows for fixtures.price. Dated by the oldest of their SKUs."""
    prices: Skus = {}
    reasons: dict[int, str] = {}
    for sku in listed_in(text, "skus", API):
        number = account.row()
        try:
            reasons[number] = add(sku, number, prices, catalog.gib, account)
        except UNREADABLE:
            reasons[number] = "unreadable SKU"
    for made in (*machines(prices, as_of), *single_chips(prices, as_of)):
        for number in made.rows:
            reasons.pop(number, None)
        yield made
    for reason in reasons.values():
        account.skip(reason or "SKU of accelerator, cores or memory missing in a region")


def machines(prices: Skus, as_of: str) -> Iterator[Offer]:
    """The machines whose parts all have a price, in each region and term."""
    places = sorted({(region, term) for _, region, term in prices})
    for machine, (chip, count, vcpus, gib) in MACHINES.items():
        family = chip[1]
        quantities: dict[Part, int] = {chip: count}
        if family not in SLICED:
            quantities |= {("core", family): vcpus, ("ram", family): gib}
        for region, term in places:
            found = {part: prices[part, region, term] for part in quantities if (part, region, term) in prices}
            if len(found) < len(quantities):
                continue
            ssd = machine.startswith(LOCAL_SSD)
            yield row(
                provider="gcp",
                instance=machine,
                chips=(chip[0], count),
                region=region,
                term=term,
                usd_per_hour=sum((quantities[part] * sku.usd_per_hour for part, sku in found.items()), Decimal()),
                as_of=min(sku.day for sku in found.values()) or as_of,
                source=API,
                rows=tuple(sku.row for sku in found.values()),
                confidence="medium" if ssd else "high",
                vcpus=str(vcpus),
                host_memory_gib=str(gib),
                notes=(SSD_NOTE if ssd else "") + SHAPE_NOTES.get(machine, ""),
            )


def single_chips(prices: Skus, as_of: str) -> Iterator[Offer]:
    """The chips that are sold with all that belongs to them: TPUs, and slices of machines that the catalog lacks."""
    for (part, region, term), sku in prices.items():
        slug, kind = part
        if kind not in (TPU_PART, OLD_TPU_PART, NEW_PART):
            continue
        chips = OLD_TPU_CHIPS if kind == OLD_TPU_PART else 1
        made = row(
            provider="gcp",
            instance=f"{slug} {PER_CHIP}" if chips == 1 else f"{slug.removeprefix('tpu-')}-{2 * chips}",
            chips=(slug, chips),
            region=region,
            term=term,
            usd_per_hour=sku.usd_per_hour,
            as_of=sku.day or as_of,
            source=API,
            rows=(sku.row,),
            hold="is a machine that the catalog does not have" if kind == NEW_PART else "",
        )
        if chips == 1:
            unit = TPU_UNITS.get(slug, "unknown")
            made["smallest_unit_accelerators"] = str(unit)
            made["smallest_unit_source"] = TPU_UNIT_SOURCE if slug in TPU_UNITS else f"not stated by the {API}"
        yield made


def next_page(text: str) -> str | None:
    """The token of the next page; None after the last."""
    return parsed(text, API).get("nextPageToken") or None


def merged(pages: Iterable[str]) -> str:
    """All pages as one document: the SKUs of a machine may be on different pages."""
    return json.dumps({"skus": [sku for page in pages for sku in listed_in(page, "skus", API)]})


def add(sku: dict[str, Any], number: int, prices: Skus, gib: Mapping[str, float], account: Account) -> str:
    """Adds the price of one SKU in each of its regions, if it is a part of a machine. Returns why not, if not."""
    if OTHER_WAYS.search(sku["description"]):
        return "another way to reserve capacity"
    match = DESCRIPTION.fullmatch(sku["description"])
    part = part_of(match["part"], gib) if match else old_tpu(sku["description"], gib)
    if part is None:
        if sku.get("category", {}).get("resourceGroup") not in ("GPU", "TPU"):
            return "not a part of a machine with accelerators"
        account.lacking(
            str(match["part"] if match else sku["description"]), "an accelerator that the reader does not know"
        )
        return "accelerator that the reader does not know"
    spot = match["spot"] or match["attached"] if match else "preemptible" in sku["description"].lower()
    term = "spot" if spot else TERMS.get(sku["category"]["usageType"])
    info = objects(sku, "pricingInfo", API)[-1]
    price = per_unit(info["pricingExpression"], part)
    if term is None or price is None:
        return "no price in USD per hour, or unknown usageType"
    new = [region for region in sku["serviceRegions"] if (part, region, term) not in prices]
    for region in new:
        prices[part, region, term] = Sku(usd_per_hour=price, day=day_of(info.get("effectiveTime")), row=number)
    return "" if new else "duplicate SKU of a region"


def part_of(name: str, gib: Mapping[str, float]) -> Part | None:
    """Which part of which machine family this is; None for everything else."""
    if host := HOST.fullmatch(name):
        family = host["family"].replace(" ", "")
        return ("core" if host["core"] else "ram"), family
    for part, pattern in ACCELERATORS.items():
        if re.fullmatch(pattern, name, re.IGNORECASE):
            return part
    for form, kind in ((TPU, TPU_PART), (SLICE, NEW_PART)):
        if match := form.fullmatch(name):
            slug, _ = names.accelerator(match["chip"], gib)
            return (slug, kind) if slug else None
    return None


def old_tpu(description: str, gib: Mapping[str, float]) -> Part | None:
    """The same for a SKU of the service Cloud TPU, which are of four chips."""
    match = OLD_TPU.fullmatch(description)
    slug = names.accelerator(match["chip"], gib)[0] if match else None
    if match is None or slug is None or ("pod" in match["rest"].lower()) != (slug in ONLY_PODS):
        return None
    return slug, OLD_TPU_PART


def per_unit(expression: dict[str, Any], part: Part) -> Decimal | None:
    """The price per hour of one core, GiB or accelerator in USD; None if it is for something else."""
    given = expression["tieredRates"][-1]["unitPrice"]
    price = usd(Decimal(given.get("units") or 0) + Decimal(given.get("nanos") or 0) / 10**9)
    unit = expression.get("usageUnit")
    if price is None or given.get("currencyCode") != "USD" or unit not in (
        ("GiBy.h", "GBy.h") if part[0] == "ram" else ("h",)
    ):  # fmt: skip
        return None
    return price * 2**30 / 10**9 if unit == "GBy.h" else price
