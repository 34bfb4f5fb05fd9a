"""Reads the figures of instances: what they have besides their accelerators."""

from collections.abc import Iterable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

from catalog.loading.fixtures import BASES, Row, check_choice, check_count, check_keys, check_number, table

COUNTS = ("cores", "sockets", "socket_cores", "numa_nodes")
SIZES = ("vcpus", "host_memory_gib", "local_disk_gb", "network_gbit_per_s")
COLUMNS = (
    *("provider", "instance", "vcpus", "cores", "sockets", "socket_cores", "numa_nodes", "host_memory_gib"),
    *("local_disk_gb", "network_gbit_per_s", "source", "as_of", "basis"),
)


def instance_type(where: str, given: Mapping[str, Any]) -> Row:
    """The row of one instance type; an empty cell is an unknown figure."""
    check_keys(where, given, ("provider", "instance", "source", "as_of", "basis"), COLUMNS)
    row: Row = {**given, "as_of": date.fromisoformat(given["as_of"])}
    check_choice(f"{where}: basis", given["basis"], BASES)
    for key in COUNTS:
        row[key] = int(given[key]) if given[key] else None
        check_count(f"{where}: {key}", row[key] or 1)
    for key in SIZES:
        row[key] = float(given[key]) if given[key] else None
        check_number(f"{where}: {key}", row[key] or 0.0, zero=True)
    return row


def instance_types(path: Path) -> Iterable[Row]:
    """The rows of the file of instance types; none if it does not exist."""
    return table(path, COLUMNS, instance_type) if path.exists() else ()
