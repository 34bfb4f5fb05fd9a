"""Imports prices from skypilot-catalog: one `vms.csv` per cloud, with a row per zone and a varying column order.

Traps: GpuInfo is a Python literal. On GCP, accelerators and hosts are separate rows whose prices add up. An empty
Price means capacity blocks only. A spot price equal to the on-demand price is not an offer.
"""

import csv
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from catalog.importers.prices import names
from catalog.loading.fixtures import Row

# The hosts that GCP sells with these accelerators, by name and count.
GCP_HOSTS = {
    **{("A100", count): f"a2-highgpu-{count}g" for count in (1, 2, 4, 8)},
    ("A100", 16): "a2-megagpu-16g",
    **{("A100-80GB", count): f"a2-ultragpu-{count}g" for count in (1, 2, 4, 8)},
    **{("L4", count): f"g2-standard-{cores}" for count, cores in ((1, 4), (2, 24), (4, 48), (8, 96))},
    ("H100", 8): "a3-highgpu-8g",
    ("H100-MEGA", 8): "a3-megagpu-8g",
    ("H200", 8): "a3-ultragpu-8g",
    ("B200", 8): "a4-highgpu-8g",
}


@dataclass(kw_only=True, slots=True)
class Cheapest:
    """The lowest prices of one instance in a region, over its zones."""

    given: Mapping[str, str]
    prices: dict[str, float] = field(default_factory=dict)

    def add_zone(self, given: Mapping[str, str]) -> None:
        for term, column in (("on_demand", "Price"), ("spot", "SpotPrice")):
            if text := given.get(column):
                self.prices[term] = min(float(text), self.prices.get(term, float("inf")))


def read(path: Path, cloud: str, as_of: str, skipped: dict[str, int]) -> Iterator[Row]:
    """The offers of one cloud as rows for fixtures.price. `skipped` counts the other lines by reason."""
    with path.open(newline="", encoding="utf-8") as stream:
        lines = list(csv.DictReader(stream))
    hosts = gcp_hosts(lines) if cloud == "gcp" else {}
    offers: dict[tuple[str, ...], Cheapest] = {}
    for number, line in enumerate(lines, start=2):
        if not line["AcceleratorName"]:
            continue
        key = (line["InstanceType"], line["AcceleratorName"], line["AcceleratorCount"], line["Region"])
        try:
            float(line["AcceleratorCount"])
            offers.setdefault(key, Cheapest(given=line)).add_zone(line)
        except ValueError as error:
            skip(skipped, f"line {number}: {error}")
    for offer in (each for each in offers.values() if each.prices):
        yield from rows(offer, cloud, as_of, path, hosts, skipped)


def gcp_hosts(lines: list[dict[str, str]]) -> dict[tuple[str, str], Cheapest]:
    """The lowest prices of each host by name and region."""
    hosts: dict[tuple[str, str], Cheapest] = {}
    for line in lines:
        if line["InstanceType"] and not line["AcceleratorName"]:
            with suppress(ValueError):  # a host with an unreadable price; its accelerators are counted as skipped
                hosts.setdefault((line["InstanceType"], line["Region"]), Cheapest(given=line)).add_zone(line)
    return hosts


def rows(
    offer: Cheapest,
    cloud: str,
    as_of: str,
    path: Path,
    hosts: Mapping[tuple[str, str], Cheapest],
    skipped: dict[str, int],
) -> Iterator[Row]:
    """The rows of one offer, one per term."""
    given = offer.given
    name, count = given["AcceleratorName"], float(given["AcceleratorCount"])
    slug, note = names.accelerator(name)
    instance, host = given["InstanceType"], None
    if slug is None or count < 1 or count != int(count):
        return skip(
            skipped, f"no accelerator {name!r} in the catalog" if slug is None else "fraction of an accelerator"
        )
    if cloud == "gcp" and not instance and not name.startswith("tpu-"):
        instance = GCP_HOSTS.get((name, int(count)), "")
        host = hosts.get((instance, given["Region"]))
        if host is None:
            return skip(skipped, "no matching GCP host")
    size = host.given if host else given
    for term, price in offer.prices.items():
        host_price = host.prices.get(term) if host else 0.0
        if host_price is None or (term == "spot" and price >= offer.prices.get("on_demand", float("inf"))):
            continue
        yield {
            "provider": cloud,
            "instance": instance or name,
            "accelerator": slug,
            "accelerators": str(int(count) * names.slice_chips(name)),
            "region": given["Region"],
            "vcpus": size.get("vCPUs", ""),
            "host_memory_gib": size.get("MemoryGiB", ""),
            "term": term,
            "usd_per_hour": str(round(price + host_price, 6)),
            "purchase_usd": "",
            "kind": "vm",
            "as_of": as_of,
            "source": f"skypilot-catalog {path.parent.name}/{path.name}",
            "notes": note,
        }


def skip(skipped: dict[str, int], reason: str) -> None:
    skipped[reason] = skipped.get(reason, 0) + 1
