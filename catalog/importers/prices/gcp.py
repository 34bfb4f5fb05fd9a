"""Imports prices from the Cloud Billing Catalog API, Compute Engine: SKUs whose prices add up to a machine.

Traps: a machine's cores, memory and accelerators are three SKUs, but A4 is sold in slices with everything in them.
The spot slices of A4 are filed under OnDemand. Shares of accelerators and flex-start machines have similar names.
"""

import json
import re
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any

from catalog.importers.prices.offers import UNREADABLE, listed_in, objects, parsed, row, usd
from catalog.importers.prices.skypilot import skip
from catalog.loading.fixtures import Row

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


def read(text: str, as_of: str, skipped: dict[str, int]) -> Iterator[Row]:
    """The offers of all pages, joined by `merged`, as rows for fixtures.price. Dated by the oldest of their SKUs."""
    prices: dict[tuple[Part, str, str], tuple[Decimal, str]] = {}
    for sku in listed_in(text, "skus", API):
        try:
            add(sku, prices, skipped)
        except UNREADABLE:
            skip(skipped, "unreadable SKU")
    places = sorted({(region, term) for _, region, term in prices})
    for machine, (chip, count, vcpus, gib) in MACHINES.items():
        family = chip[1]
        quantities: dict[Part, int] = {chip: count}
        if family not in SLICED:
            quantities |= {("core", family): vcpus, ("ram", family): gib}
        for region, term in places:
            found = {part: prices[part, region, term] for part in quantities if (part, region, term) in prices}
            if 0 < len(found) < len(quantities):
                skip(skipped, "SKU of accelerator, cores or memory missing in a region")
            if len(found) < len(quantities):
                continue
            ssd = machine.startswith(LOCAL_SSD)
            yield row(
                provider="gcp",
                instance=machine,
                chips=(chip[0], count),
                region=region,
                term=term,
                usd_per_hour=sum((quantities[part] * price for part, (price, _) in found.items()), Decimal()),
                as_of=min(date for _, date in found.values())[:10] or as_of,
                source=API,
                confidence="medium" if ssd else "high",
                vcpus=str(vcpus),
                host_memory_gib=str(gib),
                notes=(SSD_NOTE if ssd else "") + SHAPE_NOTES.get(machine, ""),
            )


def next_page(text: str) -> str | None:
    """The token of the next page; None after the last."""
    return parsed(text, API).get("nextPageToken") or None


def merged(pages: Iterable[str]) -> str:
    """All pages as one document: the SKUs of a machine may be on different pages."""
    return json.dumps({"skus": [sku for page in pages for sku in listed_in(page, "skus", API)]})


def add(sku: dict[str, Any], prices: dict[tuple[Part, str, str], tuple[Decimal, str]], skipped: dict[str, int]) -> None:
    """Adds the price of one SKU in each of its regions, if it is a part of a machine."""
    match = DESCRIPTION.fullmatch(sku["description"])
    part = part_of(match["part"]) if match else None
    if match is None or part is None:
        return
    spot = match["spot"] or match["attached"]
    term = "spot" if spot else TERMS.get(sku["category"]["usageType"])
    info = objects(sku, "pricingInfo", API)[-1]
    expression = info["pricingExpression"]
    price = per_unit(expression, part)
    if term is None or price is None:
        return skip(skipped, "no price in USD per hour, or unknown usageType")
    for region in sku["serviceRegions"]:
        if (part, region, term) in prices:
            skip(skipped, "duplicate SKU of a region")
        else:
            prices[part, region, term] = (price, str(info.get("effectiveTime") or ""))


def part_of(name: str) -> Part | None:
    """Which part of which machine family this is; None for everything else."""
    if host := HOST.fullmatch(name):
        family = host["family"].replace(" ", "")
        return ("core" if host["core"] else "ram"), family
    return next((part for part, pattern in ACCELERATORS.items() if re.fullmatch(pattern, name, re.IGNORECASE)), None)


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
