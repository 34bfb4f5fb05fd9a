"""gpuhunt: a CSV a provider (the file's name), one row per instance, location and spot."""

import csv
from collections.abc import Iterator
from pathlib import Path

from catalog.fixtures import Row
from catalog.importers import names
from catalog.importers.skypilot import skip


def read(path: Path, provider: str, as_of: str, skipped: dict[str, int]) -> Iterator[Row]:
    """The offers of one provider as rows for fixtures.price; what is not taken is counted by reason."""
    with path.open(newline="", encoding="utf-8") as stream:
        seen = set()
        for line in csv.DictReader(stream):
            if not line["gpu_name"] or not float(line["gpu_count"] or 0):
                continue
            slug, note = names.accelerator(line["gpu_name"], float(line["gpu_memory"] or 0) or None)
            term = "spot" if line["spot"] == "True" else "on_demand"
            key = (line["instance_name"], line["location"], term)
            if slug is None:
                skip(skipped, f"no accelerator {line['gpu_name']!r} in the catalog")
            elif key in seen:
                skip(skipped, "the same instance, location and term again")
            elif float(line["price"] or 0) <= 0:
                skip(skipped, "no price")
            else:
                seen.add(key)
                yield {
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
                    "source": f"gpuhunt {path.name}",
                    "notes": note,
                }
