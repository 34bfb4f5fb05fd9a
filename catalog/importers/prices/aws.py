"""Imports prices of EC2: the AWS Price List file of one region, and the output of DescribeSpotPriceHistory.

Traps: one instance type has many products, by operating system, tenancy, installed software and use of a capacity
reservation; capacity blocks have products with a price of zero.
"""

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from catalog.importers.prices.offers import UNREADABLE, listed_in, parsed, row, usd
from catalog.importers.prices.skypilot import skip
from catalog.loading.fixtures import FixtureError, Row

PRICE_LIST = "AWS Price List, AmazonEC2"
SPOT = "EC2 DescribeSpotPriceHistory"
SIZES = {  # family: slug, and accelerators by size
    "p3": ("v100-16gb-sxm", {"2xlarge": 1, "8xlarge": 4, "16xlarge": 8}),
    "p3dn": ("v100-32gb-sxm", {"24xlarge": 8}),
    "p4d": ("a100-40gb-sxm", {"24xlarge": 8}),
    "p4de": ("a100-80gb-sxm", {"24xlarge": 8}),
    "p5": ("h100-sxm", {"4xlarge": 1, "48xlarge": 8}),
    "p5e": ("h200-sxm", {"48xlarge": 8}),
    "p5en": ("h200-sxm", {"48xlarge": 8}),
    "p6-b200": ("b200", {"48xlarge": 8}),
    "p6-b300": ("b300", {"48xlarge": 8}),
    "g4dn": (
        "t4",
        {"xlarge": 1, "2xlarge": 1, "4xlarge": 1, "8xlarge": 1, "16xlarge": 1, "12xlarge": 4, "metal": 8},
    ),
    **{
        family: (
            slug,
            {
                **dict.fromkeys(("xlarge", "2xlarge", "4xlarge", "8xlarge", "16xlarge"), 1),
                **{"12xlarge": 4, "24xlarge": 4, "48xlarge": 8},
            },
        )
        for family, slug in (("g5", "a10g"), ("g6", "l4"), ("g6e", "l40s"))
    },
    "g7e": (
        "rtx-pro-6000-blackwell-server",
        {"2xlarge": 1, "4xlarge": 1, "8xlarge": 1, "12xlarge": 2, "24xlarge": 4, "48xlarge": 8},
    ),
    "inf1": ("inferentia1", {"xlarge": 1, "6xlarge": 4, "24xlarge": 16}),
    "inf2": ("inferentia2", {"xlarge": 1, "8xlarge": 1, "24xlarge": 6, "48xlarge": 12}),
    "trn1": ("trainium1", {"2xlarge": 1, "32xlarge": 16}),
    "trn1n": ("trainium1", {"32xlarge": 16}),
    "trn2": ("trainium2", {"3xlarge": 1, "48xlarge": 16}),
    "dl1": ("gaudi1", {"24xlarge": 8}),
    "dl2q": ("qualcomm-ai100-std", {"24xlarge": 8}),
    "f2": ("aws-f2-vu47p", {"6xlarge": 1, "12xlarge": 2, "48xlarge": 8}),
}
INSTANCES = {
    f"{family}.{size}": (slug, count) for family, (slug, sizes) in SIZES.items() for size, count in sizes.items()
}
WANTED = {  # the machines that everybody can rent, with Linux and nothing else
    "operatingSystem": "Linux",
    "tenancy": "Shared",
    "capacitystatus": "Used",
    "preInstalledSw": "NA",
}
USUAL = {"marketoption": "OnDemand", "operation": "RunInstances"}  # absent in older files
RESERVED = {"1yr": "reserved_1y", "3yr": "reserved_3y"}
NO_UPFRONT = {"OfferingClass": "standard", "PurchaseOption": "No Upfront"}
LINUX = ("Linux/UNIX", "Linux/UNIX (Amazon VPC)")
ZONE = re.compile(r"([a-z]{2}(?:-[a-z]+)+-\d+)[a-z]")


def read(text: str, as_of: str, skipped: dict[str, int]) -> Iterator[Row]:
    """The offers of an AmazonEC2 price list file (index.json). Dated by its publication."""
    document = parsed(text, PRICE_LIST)
    products, terms = document.get("products"), document.get("terms")
    if not isinstance(products, dict) or not isinstance(terms, dict):
        raise FixtureError(f"{PRICE_LIST}: expected the objects 'products' and 'terms'")
    as_of = str(document.get("publicationDate") or as_of)[:10]
    seen: set[tuple[str, ...]] = set()
    for sku, product in products.items():
        try:
            if wanted(product["attributes"]):
                yield from rows(product["attributes"], offers(sku, terms), as_of, seen, skipped)
        except UNREADABLE:
            skip(skipped, "unreadable product")


def wanted(attributes: Mapping[str, str]) -> bool:
    return (
        attributes.get("instanceType") in INSTANCES
        and all(attributes.get(key) == value for key, value in WANTED.items())
        and all(attributes.get(key, value) == value for key, value in USUAL.items())
    )


def offers(sku: str, terms: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Term and price dimensions of a product on demand and of its reservations without payment in advance."""
    found = [("on_demand", offer["priceDimensions"]) for offer in terms.get("OnDemand", {}).get(sku, {}).values()]
    for offer in terms.get("Reserved", {}).get(sku, {}).values():
        given = offer["termAttributes"]
        if all(given.get(key) == value for key, value in NO_UPFRONT.items()):
            found.append((RESERVED.get(given.get("LeaseContractLength"), ""), offer["priceDimensions"]))
    return found


def rows(
    attributes: Mapping[str, str],
    found: list[tuple[str, Any]],
    as_of: str,
    seen: set[tuple[str, ...]],
    skipped: dict[str, int],
) -> Iterator[Row]:
    """The rows of one product, one per term."""
    instance, region = attributes["instanceType"], attributes.get("regionCode", "")
    if not region or not found:
        return skip(skipped, "no offer" if region else "no regionCode")
    for term, dimensions in found:
        price = hourly(dimensions)
        if not term or price is None:
            skip(skipped, "no price in USD per hour, or unknown term")
        elif (instance, region, term) in seen:
            skip(skipped, "duplicate instance, region and term")
        else:
            seen.add((instance, region, term))
            yield row(
                provider="aws",
                instance=instance,
                chips=INSTANCES[instance],
                region=region,
                term=term,
                usd_per_hour=price,
                as_of=as_of,
                source=PRICE_LIST,
                kind="bare_metal" if instance.endswith(".metal") else "vm",
                vcpus=attributes.get("vcpu", ""),
                host_memory_gib=attributes.get("memory", "").removesuffix(" GiB").replace(",", ""),
            )


def hourly(dimensions: Mapping[str, Any]) -> Decimal | None:
    """The price per hour in USD; None if there is none."""
    prices = [usd(each["pricePerUnit"].get("USD")) for each in dimensions.values() if each["unit"] == "Hrs"]
    return prices[0] if prices else None


def read_spot(text: str, as_of: str, skipped: dict[str, int]) -> Iterator[Row]:
    """The newest spot price of the cheapest zone of each region, dated by its last change."""
    newest: dict[tuple[str, str], tuple[str, Decimal]] = {}
    for given in listed_in(text, "SpotPriceHistory", SPOT):
        instance, zone, changed = (str(given.get(key, "")) for key in ("InstanceType", "AvailabilityZone", "Timestamp"))
        price = usd(given.get("SpotPrice"))
        if instance not in INSTANCES:
            continue
        if given.get("ProductDescription") not in LINUX:
            skip(skipped, "not Linux")
        elif not ZONE.fullmatch(zone) or price is None:
            skip(skipped, "no price, or not a zone of a region")
        elif (instance, zone) not in newest or changed > newest[instance, zone][0]:
            newest[instance, zone] = (changed, price)
    cheapest: dict[tuple[str, str], tuple[Decimal, str, str]] = {}
    for (instance, zone), (changed, price) in newest.items():
        offer = (price, zone, changed)
        key = (instance, zone[:-1])
        cheapest[key] = min(offer, cheapest.get(key, offer))
    for (instance, region), (price, zone, changed) in cheapest.items():
        yield row(
            provider="aws",
            instance=instance,
            chips=INSTANCES[instance],
            region=region,
            term="spot",
            usd_per_hour=price,
            as_of=changed[:10] or as_of,
            source=SPOT,
            kind="bare_metal" if instance.endswith(".metal") else "vm",
            notes=f"cheapest zone {zone}",
        )
