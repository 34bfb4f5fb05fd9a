"""Imports prices from the Azure Retail Prices API: pages of JSON with one item per size, region and way to pay.

Traps: Windows, Low Priority and Cloud Services have items of their own under the same size. A reservation's price is
for the whole term. A spot price equal to the on-demand price is not an offer.
"""

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

from catalog.importers.prices import names
from catalog.importers.prices.offers import (
    FOR_GOVERNMENTS,
    UNREADABLE,
    Account,
    Chips,
    Offer,
    day_of,
    is_government,
    listed_in,
    parsed,
    row,
    usd,
)

API = "Azure Retail Prices API"
Item = dict[str, Any]
KNOWN: Mapping[str, Chips] = {  # sizes that the catalog may hold no price of
    "Standard_ND96asr_v4": ("a100-40gb-sxm", 8),
    "Standard_ND96is_H100_v5": ("h100-sxm", 8),
    "Standard_NP20s": ("alveo-u250", 2),
    "Standard_NP40s": ("alveo-u250", 4),
}
SIZE = re.compile(
    r"Standard_(?P<series>N[A-Z]|DG|PB)(?P<vcpus>\d+)(?P<options>[a-z]*)(?:_(?!v\d)(?P<names>\w+?))?(?:_(?P<version>v\d+))?"
)  # names: NDR_GB200, xl_RTXPRO6000BSE, A100
ACCELERATED = "Standard_N"  # starts the name of every size with accelerators
RESERVED = {"1 Year": ("reserved_1y", 8760), "3 Years": ("reserved_3y", 26280)}


def read(text: str, catalog: names.Catalog, as_of: str, account: Account) -> Iterator[Offer]:
    """The offers of one page, or of several joined to one, as rows for fixtures.price.

    A size that the catalog lacks is offered for confirmation if its name says what it has.
    """
    sizes = {**KNOWN, **catalog.instances}
    prices: dict[tuple[str, str, str], tuple[Decimal, int]] = {}
    new: dict[str, tuple[Chips | None, str]] = {}
    for item in listed_in(text, "Items", API):
        number = account.row()
        try:
            size = str(item.get("armSkuName") or "")
            if size not in sizes and size not in new:
                new[size] = proposal(size, sizes, catalog.gib)
            reason = "" if size in sizes else new[size][1]
            if reason and new[size][0] is None:
                account.skip(reason)
                if reason != OTHER_SIZE:
                    account.lacking(size, reason)
                continue
            reason, key, price = priced(item)
        except UNREADABLE:
            reason = "unreadable item"
        if reason:
            account.skip(reason)
        else:
            account.skip("duplicate instance, region and term", int(key in prices))
            prices[key] = min((price, number), prices.get(key, (price, number)))
    for (size, region, term), (price, number) in prices.items():
        if term == "spot" and price >= prices.get((size, region, "on_demand"), (Decimal("inf"), 0))[0]:
            account.skip("spot price that is no discount")
            continue
        chips, hold = (sizes[size], "") if size in sizes else new[size]
        assert chips is not None
        if hold:
            account.lacking(size, hold)
        yield row(
            provider="azure",
            instance=size,
            chips=chips,
            region=region,
            term=term,
            usd_per_hour=price,
            as_of=as_of,
            source=API,
            rows=(number,),
            hold=hold,
        )


OTHER_SIZE = "not a size with an accelerator"
UNKNOWN_SIZE = "new size, and its name states no accelerator of the catalog"


def proposal(size: str, sizes: Mapping[str, Chips], gib: Mapping[str, float]) -> tuple[Chips | None, str]:
    """What a size that the catalog lacks has, by its name and its sisters, and why a person must confirm it."""
    match = SIZE.fullmatch(size)
    if match is None:
        return None, UNKNOWN_SIZE if size.startswith(ACCELERATED) else OTHER_SIZE
    sisters = [(other, chips) for name, chips in sizes.items() if (other := SIZE.fullmatch(name))]
    own = [name for part in (match["names"] or "").split("_") if (name := names.plain_name(part))]
    same = [(o, c) for o, c in sisters if _model(o) == _model(match) and o["series"] == match["series"]]
    alike = [c for o, c in same if o["vcpus"] == match["vcpus"]]
    if alike:
        return alike[-1], f"is a new instance; {alike[-1][1]} x {alike[-1][0]} by the size with as many vCPUs"
    slug = next((slug for name in own if (slug := names.accelerator(name, gib)[0])), None) or (
        same[0][1][0] if same else None
    )
    if slug is None:
        return None, UNKNOWN_SIZE
    shares = {Fraction(c[1], int(o["vcpus"])) for o, c in sisters if c[0] == slug and o["series"] == match["series"]}
    counts = {share * int(match["vcpus"]) for share in shares}
    if len(counts) == 1 and (count := next(iter(counts))).denominator == 1:
        return (slug, int(count)), f"is a new instance; {count} x {slug} by the vCPUs of the other sizes"
    peers = {c[1] for o, c in sisters if (o["series"], o["vcpus"]) == (match["series"], match["vcpus"])}
    if not shares and len(peers) == 1:
        alike_count = peers.pop()
        return (
            slug,
            alike_count,
        ), f"is a new instance; {alike_count} x {slug} by sizes of the series with as many vCPUs"
    return None, f"new size with {slug}, number unknown"


def _model(match: re.Match[str]) -> str:
    """What the name of a size says of its accelerators: A100_v4, RTXPRO6000BSE_v6."""
    return f"{(match['names'] or '').split('_')[-1]}_{match['version']}"


def newest(text: str) -> str:
    """The newest day on which a price of the list began, so that the list is not older; empty: not stated."""
    try:
        return max((day_of(item.get("effectiveStartDate")) for item in listed_in(text, "Items", API)), default="")
    except UNREADABLE:
        return ""


def next_page(text: str) -> str | None:
    """The URL of the next page; None after the last."""
    return parsed(text, API).get("NextPageLink") or None


def priced(item: Item) -> tuple[str, tuple[str, str, str], Decimal]:
    """Why an item cannot be used, or an empty text, its size, region and term, and its price per hour."""
    term, hours = term_of(item)
    price, region = usd(item.get("retailPrice")), str(item.get("armRegionName") or "")
    reason = refusal(item)
    if not reason and (not term or not region or price is None):
        reason = "no price, region or known term"
    return reason, (item["armSkuName"], region, term), (price or Decimal()) / hours


def refusal(item: Item) -> str:
    """Why an item is not an offer of a Linux machine in USD by the hour; empty if it is one."""
    product, meter = str(item.get("productName", "")), names_of(item)
    if "Windows" in product:
        return "Windows"
    if "Low Priority" in meter:
        return "Low Priority"
    if "CloudServices" in product.replace(" ", ""):
        return "Cloud Services"
    if is_government(item.get("armRegionName")):
        return FOR_GOVERNMENTS
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
