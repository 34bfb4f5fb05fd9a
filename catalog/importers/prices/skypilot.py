"""Imports prices from skypilot-catalog: one `vms.csv` per cloud, with a row per zone and a varying column order.

Traps: GpuInfo is a Python literal. On GCP, accelerators and hosts are separate rows whose prices add up. An empty
Price means capacity blocks only. A spot price equal to the on-demand price is not an offer. 700 USD for a TPU means
that its price was not found (skypilot-org/skypilot@21fd5541 sky/catalog/data_fetchers/fetch_gcp.py). No file is dated.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

from catalog.importers.prices import names
from catalog.importers.prices.offers import FOR_GOVERNMENTS, Account, Offer, finite, is_government, lines_of, row

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
NO_HOST = "no matching GCP host"
ON_ANY_HOST = ("K80", "P4", "P100", "T4", "V100")  # attached to a machine of the N1 series that the buyer chooses
TERMS = {"on_demand": "Price", "spot": "SpotPrice"}
COLUMNS = ("InstanceType", "AcceleratorName", "AcceleratorCount", "Region", "Price", "SpotPrice", "vCPUs", "MemoryGiB")
UNKNOWN_TPU_USD = 700.0
Line = Mapping[str, str]


@dataclass(kw_only=True, slots=True)
class Zones:
    """The lines of one instance in a region, one per zone, and the lowest price of each term with its line."""

    given: Line
    lines: list[int] = field(default_factory=list)
    lowest: dict[str, tuple[float, int]] = field(default_factory=dict)

    def add(self, number: int, given: Line) -> None:
        """ValueError: a price is no number."""
        prices = {term: finite(text) for term, column in TERMS.items() if (text := given.get(column))}
        self.lines.append(number)
        for term, price in prices.items():
            self.lowest[term] = min((price, number), self.lowest.get(term, (price, number)))


def read(path: Path, cloud: str, catalog: names.Catalog, as_of: str, account: Account) -> Iterator[Offer]:
    """The offers of one cloud as rows for fixtures.price. FixtureError: the file has other columns."""
    offers: dict[tuple[str, ...], Zones] = {}
    hosts: dict[tuple[str, str], Zones] = {}
    with path.open(newline="", encoding="utf-8") as stream:
        for place, line in enumerate(lines_of(stream, COLUMNS, path.name, "SkyPilot"), start=2):
            number = account.row()
            try:
                if line["AcceleratorName"]:
                    finite(line["AcceleratorCount"])
                    key = (line["InstanceType"], line["AcceleratorName"], line["AcceleratorCount"], line["Region"])
                    offers.setdefault(key, Zones(given=line)).add(number, line)
                else:
                    hosts.setdefault((line["InstanceType"], line["Region"]), Zones(given=line)).add(number, line)
            except (TypeError, ValueError) as error:
                account.skip(f"line {place}: {error}")
    used: set[int] = set()
    for zones in offers.values():
        reason, found = rows(zones, cloud, as_of, path, hosts if cloud == "gcp" else {}, catalog.gib)
        name, count = zones.given["AcceleratorName"], zones.given["AcceleratorCount"]
        if reason.startswith("no accelerator"):
            account.lacking(name, "an accelerator that the catalog does not have")
        elif reason == NO_HOST and name not in ON_ANY_HOST and name not in {known for known, _ in GCP_HOSTS}:
            account.lacking(f"{count} x {name}", "an accelerator whose machine at GCP is not known")
        own = {number for each in found for number in each.rows}
        used |= own
        account.skip(reason or "another zone of the region is as cheap", len(set(zones.lines) - own))
        yield from found
    account.skip("no accelerator", len({number for host in hosts.values() for number in host.lines} - used))


def rows(
    zones: Zones,
    cloud: str,
    as_of: str,
    path: Path,
    hosts: Mapping[tuple[str, str], Zones],
    gib: Mapping[str, float],
) -> tuple[str, list[Offer]]:
    """Why there is no offer, or an empty text and the offers, one per term."""
    given = zones.given
    name, count = given["AcceleratorName"], float(given["AcceleratorCount"])
    slug, note = names.accelerator(name, gib)
    if slug is None:
        return f"no accelerator {name!r} in the catalog", []
    if is_government(given["Region"]):
        return FOR_GOVERNMENTS, []
    if count < 1 or count != int(count):
        return "fraction of an accelerator", []
    host = None
    instance = given["InstanceType"]
    if cloud == "gcp" and not instance and not name.startswith("tpu-"):
        instance = GCP_HOSTS.get((name, int(count)), "")
        host = hosts.get((instance, given["Region"]))
        if host is None:
            return NO_HOST, []
    reason, found = "no price", []
    for term, (price, number) in zones.lowest.items():
        at_host = host.lowest.get(term) if host else (0.0, number)
        if price <= 0 or (name.startswith("tpu-") and price == UNKNOWN_TPU_USD):
            reason = "placeholder price" if price > 0 else reason
        elif term == "spot" and price >= zones.lowest.get("on_demand", (float("inf"), 0))[0]:
            reason = "spot price that is no discount"
        elif at_host is None:
            reason = "no price of the GCP host"
        else:
            found.append(
                row(
                    provider=cloud,
                    instance=instance or name.removeprefix("tpu-"),
                    chips=(slug, int(count) * names.slice_chips(name)),
                    region=given["Region"],
                    vcpus=(host.given if host else given).get("vCPUs", ""),
                    host_memory_gib=(host.given if host else given).get("MemoryGiB", ""),
                    term=term,
                    usd_per_hour=Decimal(str(round(price + at_host[0], 6))),
                    as_of=as_of,
                    source=f"skypilot-catalog {path.parent.name}/{path.name}",
                    rows=tuple({number, at_host[1]}),
                    notes=note,
                    confidence="medium",
                )
            )
    return ("" if found else reason), found
