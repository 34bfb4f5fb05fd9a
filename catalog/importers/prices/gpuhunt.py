"""Imports prices from gpuhunt: one CSV per provider with a row per instance, location and spot, or its live catalog.

Trap: on a marketplace each row is somebody's host, gone within hours. Its prices become one median per chip and day.
"""

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from statistics import median

from catalog.importers.prices import names
from catalog.importers.prices.offers import (
    FOR_GOVERNMENTS,
    UNREADABLE,
    Account,
    Offer,
    finite,
    is_government,
    lines_of,
    offer,
    row,
    usd,
)
from catalog.loading.fixtures import PER_CHIP, FixtureError

Line = Mapping[str, str]
FIELDS = ("instance_name", "location", "price", "cpu", "memory", "gpu_count", "gpu_name", "gpu_memory", "spot")
MIN_OFFERS = 10  # medians of fewer differ by a factor of two within days
ASKED_FOR_FREE = ("vast-ai",)  # of which gpuhunt lists only hosts that can be rented now
MEDIAN = f"median offer {PER_CHIP}"  # the instance, as in gpu_price_index


def read(path: Path, provider: str, catalog: names.Catalog, as_of: str, account: Account) -> Iterator[Offer]:
    """The offers of one provider as rows for fixtures.price. FixtureError: the file has other columns."""
    with path.open(newline="", encoding="utf-8") as stream:
        table = lines_of(stream, FIELDS, path.name, "gpuhunt")
        yield from rows(table, provider, catalog, as_of, f"gpuhunt {path.name}", account)


def live(provider: str, catalog: names.Catalog, as_of: str, account: Account) -> Iterator[Offer]:
    """The same from the live catalog of the gpuhunt package. FixtureError: it is not installed."""
    try:
        gpuhunt = import_module("gpuhunt")
    except ImportError as error:
        raise FixtureError("gpuhunt is not installed; install it, or give a CSV file of its catalog") from error
    items = gpuhunt.query(provider=provider)
    lines = ({field: str(getattr(item, field, "") or "") for field in FIELDS} for item in items)
    return rows(lines, provider, catalog, as_of, "gpuhunt, live catalog", account)


def rows(
    lines: Iterable[Line], provider: str, catalog: names.Catalog, as_of: str, source: str, account: Account
) -> Iterator[Offer]:
    """The offers of these lines; of a marketplace one median per chip and term."""
    found: dict[tuple[str, ...], Offer] = {}
    for place, line in enumerate(lines, start=2):
        number = account.row()
        try:
            reason, made = single(line, provider, as_of, source, catalog.gib)
        except UNREADABLE as error:
            account.skip(f"line {place}: {error}")
            continue
        if reason:
            if reason.startswith("no accelerator "):
                account.lacking(line["gpu_name"], "an accelerator that the catalog does not have")
            account.skip(reason)
            continue
        key = (made["instance"], made["region"], made["term"])
        account.skip("duplicate instance, location and term", int(key in found))
        if key not in found or Decimal(made["usd_per_hour"]) < Decimal(found[key]["usd_per_hour"]):
            found[key] = offer(made, (number,))
    kept = discounted(found, account)
    yield from medians(kept, account) if provider in names.MARKETPLACES else kept


def discounted(found: Mapping[tuple[str, ...], Offer], account: Account) -> list[Offer]:
    """The offers without spot prices that are no discount."""
    kept = []
    for (instance, region, term), each in found.items():
        other = found.get((instance, region, "on_demand"))
        if term == "spot" and other and Decimal(each["usd_per_hour"]) >= Decimal(other["usd_per_hour"]):
            account.skip("spot price that is no discount")
        else:
            kept.append(each)
    return kept


def single(line: Line, provider: str, as_of: str, source: str, gib: Mapping[str, float]) -> tuple[str, Offer]:
    """Why a line is no offer, or an empty text and its row."""
    count, memory, price = finite(line["gpu_count"] or "0"), finite(line["gpu_memory"] or "0"), usd(line["price"])
    if not line["gpu_name"] or not count:
        return "no accelerator", Offer()
    tpu = names.TPU.fullmatch(line["gpu_name"].lower())
    slug, note = names.accelerator(line["gpu_name"], gib, None if tpu else memory or None)
    if slug is None:
        size = f" of {memory:g} GB" if memory and names.accelerator(line["gpu_name"], gib)[0] else ""
        return f"no accelerator {line['gpu_name']!r}{size} in the catalog", Offer()
    if is_government(line["location"]):
        return FOR_GOVERNMENTS, Offer()
    if count < 1 or count != int(count):
        return "fraction of an accelerator", Offer()
    if price is None:
        float(line["price"] or 0)
        return "no price", Offer()
    return "", row(
        provider=provider,
        instance=line["instance_name"],
        chips=(slug, int(count)),
        region=line["location"],
        vcpus=line["cpu"],
        host_memory_gib=line["memory"],
        term="spot" if line["spot"].lower() == "true" else "on_demand",
        usd_per_hour=price,
        as_of=as_of,
        source=source,
        rows=(),
        notes=note,
        confidence="medium",
    )


def medians(hosts: Iterable[Offer], account: Account) -> Iterator[Offer]:
    """The median price per chip over the hosts of a marketplace, for each chip and term with MIN_OFFERS of them."""
    groups: dict[tuple[str, str], list[Offer]] = {}
    for host in hosts:
        groups.setdefault((host["accelerator"], host["term"]), []).append(host)
    for (slug, term), group in groups.items():
        if len(group) < MIN_OFFERS:
            account.skip(f"median of fewer than {MIN_OFFERS} offers", len(group))
            continue
        first = group[0]
        made = row(
            provider=first["provider"],
            instance=MEDIAN,
            chips=(slug, 1),
            region="any",
            term=term,
            usd_per_hour=median(Decimal(host["usd_per_hour"]) / int(host["accelerators"]) for host in group),
            as_of=first["as_of"],
            source=first["source"],
            rows=tuple(number for host in group for number in host.rows),
            origin="marketplace",
            confidence="medium",
            kind="marketplace",
            notes="; ".join(filter(None, (f"median of {len(group)} offers at one moment", first["notes"]))),
        )
        if first["provider"] in ASKED_FOR_FREE:
            made["availability"] = "available"
        made["smallest_unit_accelerators"] = str(min(int(host["accelerators"]) for host in group))
        made["smallest_unit_source"] = f"fewest accelerators of an offer in {first['source']}, {first['as_of']}"
        yield made
