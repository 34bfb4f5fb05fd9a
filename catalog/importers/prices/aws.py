"""Imports prices of EC2: the AWS Price List file of one region, and the output of DescribeSpotPriceHistory.

Traps: one instance type has many products, by operating system, tenancy, installed software and use of a capacity
reservation; capacity blocks have products with a price of zero.
"""

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
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
from catalog.loading.fixtures import FixtureError

PRICE_LIST = "AWS Price List, AmazonEC2"
SPOT = "EC2 DescribeSpotPriceHistory"
INSTANCES = {
    f"{family}.{size}": (slug, count)
    for family, (slug, sizes) in names.LISTED["aws"]["sizes"].items()
    for size, count in sizes.items()
}
NEW_FAMILIES = {  # families of chips that the catalog has, without their sizes
    "p6e-gb300": "gb300",
    "trn3": "trainium3",
    "trn3u": "trainium3",
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


def read(text: str, catalog: names.Catalog, as_of: str, account: Account) -> Iterator[Offer]:
    """The offers of an AmazonEC2 price list file (index.json). Dated by its publication.

    An instance that the catalog lacks is offered for confirmation if its family is known.
    """
    document = parsed(text, PRICE_LIST)
    products, terms = document.get("products"), document.get("terms")
    if not isinstance(products, dict) or not isinstance(terms, dict):
        raise FixtureError(f"{PRICE_LIST}: expected the objects 'products' and 'terms'")
    as_of = day_of(document.get("publicationDate")) or as_of
    sizes = {**INSTANCES, **catalog.instances}
    seen: set[tuple[str, ...]] = set()
    for sku, product in products.items():
        number = account.row()
        try:
            reason, chips, hold = machine(product["attributes"], sizes)
            if chips is None:
                account.skip(reason)
                if reason in LACKING:
                    account.lacking(product["attributes"]["instanceType"], reason)
                continue
            if hold:
                account.lacking(product["attributes"]["instanceType"], hold)
            reason, found = rows(product["attributes"], chips, hold, offers(sku, terms), as_of, seen, number)
        except UNREADABLE:
            reason, found = "unreadable product", []
        if not found:
            account.skip(reason)
        yield from found


UNKNOWN_COUNT = "new instance with accelerators, number not stated"
UNKNOWN_FAMILY = "new family of instances with accelerators"
LACKING = (UNKNOWN_COUNT, UNKNOWN_FAMILY)
ACCELERATED = re.compile(r"(?:u-)?(?:p\d|g\d|inf\d|trn\d|dl\d|f\d|vt\d)\w*(?:-\w+)?(?:\.|x\d)")
ULTRA_SERVER = re.compile(r"u-(?P<family>.+?)x(?P<count>\d+)")  # u-p6e-gb200x72: instances joined by NVLink, one unit
FAMILIES = ("GPU instance", "Machine Learning ASIC Instances", "FPGA Instances")  # as the list calls them


def machine(attributes: Mapping[str, str], sizes: Mapping[str, Chips]) -> tuple[str, Chips | None, str]:
    """Why a product is no machine with accelerators, or what it has, and why a person must confirm that."""
    instance = attributes.get("instanceType") or ""
    if instance not in sizes and not is_accelerated(instance, attributes):
        return "not a machine with an accelerator", None, ""
    if is_government(attributes.get("regionCode")):
        return FOR_GOVERNMENTS, None, ""
    if any(attributes.get(key) != value for key, value in WANTED.items()) or any(
        attributes.get(key, value) != value for key, value in USUAL.items()
    ):
        return "another system, tenancy, software or use of capacity", None, ""
    if instance in sizes:
        return "", sizes[instance], ""
    return proposal(instance, attributes.get("gpu", ""), sizes)


def is_accelerated(instance: str, attributes: Mapping[str, str]) -> bool:
    """Whether an instance that the catalog lacks has accelerators, by its name or by what the list says of it."""
    stated = attributes.get("gpu", "").isdigit() or attributes.get("instanceFamily") in FAMILIES
    return bool("." in instance and stated or ACCELERATED.match(instance))


def proposal(instance: str, count: str, sizes: Mapping[str, Chips]) -> tuple[str, Chips | None, str]:
    """The same for an instance that the catalog lacks, by its family; `count` as the list states it."""
    if ultra := ULTRA_SERVER.fullmatch(instance):
        family, count = ultra["family"], ultra["count"]
    else:
        family = instance.partition(".")[0]
    slugs = {chips[0] for name, chips in sizes.items() if name.partition(".")[0] == family}
    slug = slugs.pop() if len(slugs) == 1 else NEW_FAMILIES.get(family)
    if slug is None:
        return UNKNOWN_FAMILY, None, ""
    if not count.isdigit() or not int(count):
        return UNKNOWN_COUNT, None, ""
    return "", (slug, int(count)), f"is a new instance; {count} x {slug} by its family and the price list"


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
    chips: Chips,
    hold: str,
    found: list[tuple[str, Any]],
    as_of: str,
    seen: set[tuple[str, ...]],
    number: int,
) -> tuple[str, list[Offer]]:
    """Why there is no row, and the rows of one product, one per term."""
    instance, region = attributes["instanceType"], attributes.get("regionCode", "")
    reason, made = "no offer" if region else "no regionCode", []
    for term, dimensions in found if region else ():
        price = hourly(dimensions)
        if not term or price is None:
            reason = "no price in USD per hour, or unknown term"
        elif (instance, region, term) in seen:
            reason = "duplicate instance, region and term"
        else:
            seen.add((instance, region, term))
            made.append(
                row(
                    provider="aws",
                    instance=instance,
                    chips=chips,
                    region=region,
                    term=term,
                    usd_per_hour=price,
                    as_of=as_of,
                    source=PRICE_LIST,
                    rows=(number,),
                    hold=hold,
                    kind="bare_metal" if instance.endswith(".metal") else "vm",
                    vcpus=attributes.get("vcpu", ""),
                    host_memory_gib=attributes.get("memory", "").removesuffix(" GiB").replace(",", ""),
                )
            )
    return reason, made


def hourly(dimensions: Mapping[str, Any]) -> Decimal | None:
    """The price per hour in USD; None if there is none."""
    prices = [usd(each["pricePerUnit"].get("USD")) for each in dimensions.values() if each["unit"] == "Hrs"]
    return prices[0] if prices else None


def read_spot(text: str, catalog: names.Catalog, as_of: str, account: Account) -> Iterator[Offer]:
    """The newest spot price of the cheapest zone of each region, dated by its last change."""
    sizes = {**INSTANCES, **catalog.instances}
    newest: dict[tuple[str, str], tuple[str, Decimal, int]] = {}
    for given in listed_in(text, "SpotPriceHistory", SPOT):
        number = account.row()
        instance, zone, changed = (str(given.get(key, "")) for key in ("InstanceType", "AvailabilityZone", "Timestamp"))
        price = usd(given.get("SpotPrice"))
        if is_government(zone):
            account.skip(FOR_GOVERNMENTS)
        elif instance not in sizes:
            new = bool(ACCELERATED.match(instance))
            account.skip(UNKNOWN_COUNT if new else "not a machine with an accelerator")
            if new:
                account.lacking(instance, UNKNOWN_COUNT)
        elif given.get("ProductDescription") not in LINUX:
            account.skip("not Linux")
        elif not ZONE.fullmatch(zone) or price is None:
            account.skip("no price, or not a zone of a region")
        else:
            account.skip("older price, or another zone is as cheap", int((instance, zone) in newest))
            one = (changed, price, number)
            newest[instance, zone] = max(one, newest.get((instance, zone), one))
    cheapest: dict[tuple[str, str], tuple[Decimal, str, str, int]] = {}
    for (instance, zone), (changed, price, number) in newest.items():
        key = (instance, zone[:-1])
        account.skip("older price, or another zone is as cheap", int(key in cheapest))
        one_zone = (price, zone, changed, number)
        cheapest[key] = min(one_zone, cheapest.get(key, one_zone))
    for (instance, region), (price, zone, changed, number) in cheapest.items():
        yield row(
            provider="aws",
            instance=instance,
            chips=sizes[instance],
            region=region,
            term="spot",
            usd_per_hour=price,
            as_of=day_of(changed) or as_of,
            source=SPOT,
            rows=(number,),
            kind="bare_metal" if instance.endswith(".metal") else "vm",
            notes=f"cheapest zone {zone}",
        )
