"""Cold-start time of an instance with compiled programs and weights already prepared."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class ColdStart:
    """Seconds from requesting an instance until it serves, with compiled programs and weights cached nearby."""

    cold_start_s: float
    source: str


def cold_start_of(rows: Mapping[str, Mapping[str, Any]]) -> ColdStart | None:
    """The low end of the catalog's cold-start assumption; None without its range."""
    row = rows["cold-start-s"]
    return ColdStart(cold_start_s=row["low"], source=row["source"]) if row.get("low") else None
