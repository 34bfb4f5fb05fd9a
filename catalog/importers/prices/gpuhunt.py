"""Imports prices from gpuhunt: one CSV per provider with a row per instance, location and spot, or its live catalog."""

import csv
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path

from catalog.importers.prices import names
from catalog.importers.prices.skypilot import skip
from catalog.loading.fixtures import FixtureError, Row

Line = Mapping[str, str]
FIELDS = ("instance_name", "location", "price", "cpu", "memory", "gpu_count", "gpu_name", "gpu_memory", "spot")


def read(path: Path, provider: str, as_of: str, skipped: dict[str, int]) -> Iterator[Row]:
    """The offers of one provider as rows for fixtures.price. `skipped` counts the other lines by reason."""
    with path.open(newline="", encoding="utf-8") as stream:
        yield from rows(csv.DictReader(stream), provider, as_of, f"gpuhunt {path.name}", skipped)


def live(provider: str, as_of: str, skipped: dict[str, int]) -> Iterator[Row]:
    """The same from the live catalog of the gpuhunt package. FixtureError: it is not installed."""
    try:
        gpuhunt = import_module("gpuhunt")
    except ImportError as error:
        raise FixtureError("gpuhunt is not installed; install it, or give a CSV file of its catalog") from error
    items = gpuhunt.query(provider=provider)
    lines = ({field: str(getattr(item, field, "") or "") for field in FIELDS} for item in items)
    return rows(lines, provider, as_of, "gpuhunt, live catalog", skipped)


def rows(lines: Iterable[Line], provider: str, as_of: str, source: str, skipped: dict[str, int]) -> Iterator[Row]:
    seen: set[tuple[str, ...]] = set()
    for number, line in enumerate(lines, start=2):
        try:
            if not line["gpu_name"] or not float(line["gpu_count"] or 0):
                continue
            if row := offer(line, provider, as_of, source, seen, skipped):
                yield row
        except ValueError as error:
            skip(skipped, f"line {number}: {error}")


def offer(
    line: Line, provider: str, as_of: str, source: str, seen: set[tuple[str, ...]], skipped: dict[str, int]
) -> Row | None:
    """The row of one line; None, and counted in `skipped`, if it cannot be imported."""
    slug, note = names.accelerator(line["gpu_name"], float(line["gpu_memory"] or 0) or None)
    term = "spot" if line["spot"] == "True" else "on_demand"
    key = (line["instance_name"], line["location"], term)
    if slug is None:
        skip(skipped, f"no accelerator {line['gpu_name']!r} in the catalog")
    elif key in seen:
        skip(skipped, "duplicate instance, location and term")
    elif float(line["price"] or 0) <= 0:
        skip(skipped, "no price")
    if slug is None or key in seen or float(line["price"] or 0) <= 0:
        return None
    seen.add(key)
    return {
        "provider": provider,
        "instance": line["instance_name"],
        "accelerator": slug,
        "accelerators": str(int(float(line["gpu_count"]))),
        "region": line["location"],
        "vcpus": line["cpu"],
        "host_memory_gib": line["memory"],
        "term": term,
        "usd_per_hour": line["price"],
        "purchase_usd": "",
        "kind": "vm",
        "as_of": as_of,
        "source": source,
        "notes": note,
    }
