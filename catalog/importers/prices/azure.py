"""Imports prices from the Azure Retail Prices API: pages of JSON with one item per size, region and way to pay.

Traps: Windows, Low Priority and Cloud Services have items of their own under the same size. A reservation's price is
for the whole term. A spot price equal to the on-demand price is not an offer.
"""

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from catalog.importers.prices.offers import UNREADABLE, listed_in, parsed, row, usd
from catalog.importers.prices.skypilot import skip
from catalog.loading.fixtures import Row

API = "Azure Retail Prices API"
Item = dict[str, Any]
INSTANCES = {
    "Standard_NC6s_v3": ("v100-16gb-pcie", 1),
    "Standard_NC12s_v3": ("v100-16gb-pcie", 2),
    "Standard_NC24s_v3": ("v100-16gb-pcie", 4),
    "Standard_ND40rs_v2": ("v100-32gb-sxm", 8),
    "Standard_NC4as_T4_v3": ("t4", 1),
    "Standard_NC8as_T4_v3": ("t4", 1),
    "Standard_NC16as_T4_v3": ("t4", 1),
    "Standard_NC64as_T4_v3": ("t4", 4),
    "Standard_NV36ads_A10_v5": ("a10", 1),
    "Standard_NV72ads_A10_v5": ("a10", 2),
    "Standard_NC24ads_A100_v4": ("a100-80gb-pcie", 1),
    "Standard_NC48ads_A100_v4": ("a100-80gb-pcie", 2),
    "Standard_NC96ads_A100_v4": ("a100-80gb-pcie", 4),
    "Standard_ND96asr_v4": ("a100-40gb-sxm", 8),
    "Standard_ND96amsr_A100_v4": ("a100-80gb-sxm", 8),
    "Standard_NC40ads_H100_v5": ("h100-nvl", 1),
    "Standard_NC80adis_H100_v5": ("h100-nvl", 2),
    "Standard_ND96is_H100_v5": ("h100-sxm", 8),
    "Standard_ND96isr_H100_v5": ("h100-sxm", 8),
    "Standard_ND96isr_H200_v5": ("h200-sxm", 8),
    "Standard_ND96isr_MI300X_v5": ("mi300x", 8),
    "Standard_ND128isr_NDR_GB200_v6": ("gb200", 4),
    "Standard_NC128ds_xl_RTXPRO6000BSE_v6": ("rtx-pro-6000-blackwell-server", 1),
    "Standard_NC256ds_xl_RTXPRO6000BSE_v6": ("rtx-pro-6000-blackwell-server", 2),
    "Standard_NP10s": ("alveo-u250", 1),
    "Standard_NP20s": ("alveo-u250", 2),
    "Standard_NP40s": ("alveo-u250", 4),
}
INFERRED_NOTE = "number of accelerators inferred from the name of the size"
INFERRED = ("Standard_NC128ds_xl_RTXPRO6000BSE_v6", "Standard_NC256ds_xl_RTXPRO6000BSE_v6")
RESERVED = {"1 Year": ("reserved_1y", 8760), "3 Years": ("reserved_3y", 26280)}


def read(text: str, as_of: str, skipped: dict[str, int]) -> Iterator[Row]:
    """The offers of one page, or of several joined to one, as rows for fixtures.price."""
    items = [item for item in listed_in(text, "Items", API) if item.get("armSkuName") in INSTANCES]
    prices: dict[tuple[str, str, str], Decimal] = {}
    for item in items:
        try:
            if (offer := priced(item, skipped)) is None:
                continue
        except UNREADABLE:
            skip(skipped, "unreadable item")
            continue
        key, price = offer
        if key in prices:
            skip(skipped, "duplicate instance, region and term")
        else:
            prices[key] = price
    for (instance, region, term), price in prices.items():
        if term == "spot" and price >= prices.get((instance, region, "on_demand"), Decimal("inf")):
            skip(skipped, "spot price that is no discount")
            continue
        yield row(
            provider="azure",
            instance=instance,
            chips=INSTANCES[instance],
            region=region,
            term=term,
            usd_per_hour=price,
            as_of=as_of,
            source=API,
            notes=INFERRED_NOTE if instance in INFERRED else "",
        )


def next_page(text: str) -> str | None:
    """The URL of the next page; None after the last."""
    return parsed(text, API).get("NextPageLink") or None


def priced(item: Item, skipped: dict[str, int]) -> tuple[tuple[str, str, str], Decimal] | None:
    """Instance, region and term of an item, and its price per hour; None, and counted, if it cannot be used."""
    term, hours = term_of(item)
    price, region = usd(item.get("retailPrice")), item.get("armRegionName")
    reason = refusal(item)
    if reason or not term or not region or price is None:
        skip(skipped, reason or "no price, region or known term")
        return None
    return (item["armSkuName"], region, term), price / hours


def refusal(item: Item) -> str:
    """Why an item is not an offer of a Linux machine in USD by the hour; empty if it is one."""
    product, meter = str(item.get("productName", "")), names_of(item)
    if "Windows" in product:
        return "Windows"
    if "Low Priority" in meter:
        return "Low Priority"
    if "CloudServices" in product.replace(" ", ""):
        return "Cloud Services"
    if item.get("isPrimaryMeterRegion") is False:
        return "not the primary meter"
    if item.get("currencyCode", "USD") != "USD":
        return "not in USD"
    return "" if item.get("unitOfMeasure", "1 Hour") == "1 Hour" else "not by the hour"


def names_of(item: Item) -> str:
    return f"{item.get('skuName', '')} {item.get('meterName', '')}"


def term_of(item: Item) -> tuple[str, int]:
    """The term, and the hours that its price is for. The term is empty if it is neither hourly nor a known one."""
    if item.get("type") == "Consumption":
        return ("spot" if "Spot" in names_of(item) else "on_demand"), 1
    if item.get("type") == "Reservation":
        return RESERVED.get(item.get("reservationTerm", ""), ("", 1))
    return "", 1
