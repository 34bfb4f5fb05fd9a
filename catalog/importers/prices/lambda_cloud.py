"""Imports prices from the API of Lambda Cloud: one JSON object with each instance type and the regions that have some.

A type costs the same everywhere. One without a region is sold out.
Source: GET /api/v1/instance-types, https://docs.lambda.ai/api/cloud
"""

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from catalog.importers.prices import names
from catalog.importers.prices.offers import UNREADABLE, Account, Offer, parsed, row
from catalog.loading.fixtures import FixtureError

API = "Lambda Cloud API"


def read(text: str, catalog: names.Catalog, as_of: str, account: Account) -> Iterator[Offer]:
    """The instance types as rows for fixtures.price. FixtureError: it is no answer of this API."""
    types = parsed(text, API).get("data")
    if not isinstance(types, dict):
        raise FixtureError(f"{API}: expected an object under 'data'")
    for each in types.values():
        number = account.row()
        try:
            reason, made = offered(each, catalog, as_of, number, account)
        except (*UNREADABLE, ArithmeticError):
            reason, made = "unreadable instance type", None
        if made is None:
            account.skip(reason)
        else:
            yield made


def offered(
    each: Mapping[str, Any], catalog: names.Catalog, as_of: str, number: int, account: Account
) -> tuple[str, Offer | None]:
    """Why an instance type is no offer, or its row."""
    kind = each["instance_type"]
    name, specs = str(kind["name"]), kind["specs"]
    count, usd = int(specs["gpus"]), Decimal(str(kind["price_cents_per_hour"])) / 100
    if not count:
        return "no accelerator", None
    if name in catalog.instances:
        slug, count = catalog.instances[name]
    else:
        account.lacking(name, f"{count} x {kind.get('gpu_description') or kind.get('description') or 'unknown'}")
        return "instance type not in the catalog", None
    if not usd.is_finite() or usd <= 0:
        return "no price", None
    return "", row(
        provider="lambda",
        instance=name,
        chips=(slug, count),
        region="any",
        term="on_demand",
        usd_per_hour=usd,
        as_of=as_of,
        source=f"{API}, instance type {name}",
        rows=(number,),
        vcpus=str(specs.get("vcpus") or ""),
        host_memory_gib=str(specs.get("memory_gib") or ""),
        availability="available" if each["regions_with_capacity_available"] else "sold_out",
    )
