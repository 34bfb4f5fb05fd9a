"""Imports the daily readings of ewyluda/gpu-price-index: one CSV with prices of many clouds.

Traps: Oracle's nodes are listed at the price of one GPU. RunPod prints 0.50 where nothing is on offer, which counts as
sold out, and lists slices of a GPU. Medians of a few marketplace offers differ by a factor of two within days.
Vast.ai's are of hosts that can be rented now.
"""

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from io import StringIO

from catalog.importers.prices import names
from catalog.importers.prices.gpuhunt import MIN_OFFERS
from catalog.importers.prices.offers import (
    FOR_GOVERNMENTS,
    UNREADABLE,
    Account,
    Offer,
    day_of,
    is_government,
    offer,
    row,
    usd,
)
from catalog.loading.fixtures import PER_CHIP, FixtureError

REPOSITORY = "ewyluda/gpu-price-index"
COLUMNS = (
    *("date", "source", "segment", "pricing", "gpu_model", "sku", "region", "gpu_count", "usd_per_hour"),
    *("usd_per_gpu_hour", "sample_size"),
)
CHIPS: dict[str, str] = names.LISTED["gpu_price_index"]["chips"]  # the source states which variant each is
FORM_NOTE = "SXM or PCIe not stated by the source"
PLACEHOLDER = Decimal("0.5")
TERMS = ("on_demand", "spot")


@dataclass(frozen=True, kw_only=True, slots=True)
class Seller:
    """How one source of the file sells."""

    provider: str
    origin: str
    kind: str = "vm"
    per_chip: bool = False
    region: str = "any"  # instead of `global`
    spot_region: str = "any"
    instances: Mapping[str, str] = field(default_factory=dict)  # the catalog's names


SELLERS = {name: Seller(**given) for name, given in names.LISTED["gpu_price_index"]["sellers"].items()}


def read(text: str, catalog: names.Catalog, as_of: str, account: Account) -> Iterator[Offer]:
    """The readings of one day as rows for fixtures.price, dated by the file."""
    lines = csv.DictReader(StringIO(text))
    if missing := [column for column in COLUMNS if column not in (lines.fieldnames or ())]:
        raise FixtureError(f"{REPOSITORY}: expected a CSV with the columns {', '.join(missing)}")
    seen: set[tuple[str, ...]] = set()
    for line in lines:
        number = account.row()
        try:
            reason, made = reading(line, as_of, catalog.gib)
        except (*UNREADABLE, ArithmeticError):
            reason, made = "unreadable line", Offer()
        key = tuple(made.get(name, "") for name in ("provider", "instance", "accelerator", "region", "term"))
        if not reason and key in seen:
            reason = "duplicate instance, region and term"
        if reason == NOTHING_ON_OFFER:
            account.sold_out(made)
        if reason:
            account.skip(reason)
            if reason == NO_CHIP:
                account.lacking(line["gpu_model"], "an accelerator that the catalog does not have")
            elif reason == NO_SELLER:
                account.lacking(line["source"], "a seller that the reader does not know")
            continue
        seen.add(key)
        yield offer(made, (number,))


NOTHING_ON_OFFER = "placeholder price of RunPod"
NO_CHIP = "no accelerator of this name in the catalog"
NO_SELLER = "no source of this name in the catalog"


def reading(line: Mapping[str, str], as_of: str, gib: Mapping[str, float]) -> tuple[str, Offer]:
    """Why a line cannot be used, or an empty text and its row."""
    seller, sku = SELLERS.get(line["source"]), line["sku"].strip()
    price, per_chip, count = usd(line["usd_per_hour"]), usd(line["usd_per_gpu_hour"]), int(line["gpu_count"])
    slug, note = chip_of(line["gpu_model"], sku, gib)
    if seller is None or slug is None:
        return NO_SELLER if seller is None else NO_CHIP, Offer()
    if is_government(line["region"]):
        return FOR_GOVERNMENTS, Offer()
    if price is None or per_chip is None or line["pricing"] not in TERMS:
        return "no price, or unknown term", Offer()
    reason = trap(line, sku, price, per_chip, count)
    if reason and reason != NOTHING_ON_OFFER:
        return reason, Offer()
    if line["source"] == "oracle":
        node = int(sku.rpartition(".")[2])
        note = f"printed per GPU, sold as nodes of {node}" if count != node else note
        price, count = (per_chip * node, node) if count != node else (price, count)
    if line["source"] == "vast":
        note = "; ".join(filter(None, (f"median of {line['sample_size']} offers at one moment", note)))
    return reason, row(
        provider=seller.provider,
        instance=instance_of(line, seller, sku),
        chips=(slug, count),
        region=region_of(line, seller),
        term=line["pricing"],
        usd_per_hour=price,
        as_of=day_of(line["date"]) or as_of,
        source=f"{REPOSITORY}, daily reading of {line['source']}",
        notes=note,
        rows=(),
        availability="available" if line["source"] == "vast" else "",
        **trust(line, seller),
    )


def chip_of(model: str, sku: str, gib: Mapping[str, float]) -> tuple[str | None, str]:
    """The slug of the chip (None: unknown) and a note. The 40 GB A100 has one name here for two forms."""
    if model != "A100-40GB":
        return (CHIPS[model], "") if model in CHIPS else names.accelerator(model, gib)
    if "pcie" in sku.lower():
        return "a100-40gb-pcie", ""
    stated = "sxm" in sku.lower() or sku.startswith(("p4d.", "Standard_ND96", "a2-"))
    return CHIPS[model], "" if stated else FORM_NOTE


def trap(line: Mapping[str, str], sku: str, price: Decimal, per_chip: Decimal, count: int) -> str:
    """Why the price is not one of an offer; empty if it may be."""
    if " MIG " in sku:
        return "slice of an accelerator"
    if line["source"] == "runpod" and price == PLACEHOLDER:
        return NOTHING_ON_OFFER
    if line["source"] == "vast" and int(line["sample_size"]) < MIN_OFFERS:
        return f"median of fewer than {MIN_OFFERS} offers"
    if line["source"] == "oracle" and not re.fullmatch(r"BM\.GPU.*\.\d+", sku):
        return "unknown node of Oracle"
    return "" if abs(per_chip * count - price) <= price / 100 else "price per GPU and per instance disagree"


def instance_of(line: Mapping[str, str], seller: Seller, sku: str) -> str:
    """The catalog's name of the instance; unknown ones keep theirs."""
    name = seller.instances.get(sku, sku)
    if line["source"] == "runpod":
        name += " community" if line["segment"] == "marketplace" else " secure"
    return f"{name} {PER_CHIP}" if seller.per_chip else name


def region_of(line: Mapping[str, str], seller: Seller) -> str:
    if line["region"] != "global":
        return line["region"]
    return seller.spot_region if line["pricing"] == "spot" else seller.region


def trust(line: Mapping[str, str], seller: Seller) -> dict[str, str]:
    """Kind, origin and confidence. RunPod's community hosts are a marketplace inside a provider."""
    if line["segment"] != "marketplace":
        return {"kind": seller.kind, "origin": seller.origin, "confidence": "high"}
    confidence = "medium" if seller.kind == "marketplace" else "low"
    return {"kind": "marketplace", "origin": "marketplace", "confidence": confidence}
