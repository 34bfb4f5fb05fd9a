"""How soon an instance serves after it was asked for, where what can be prepared was."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """How soon an instance serves with compiled programs and weights kept near."""

    cold_start_s: float
    source: str


def start_of(rows: Mapping[str, Mapping[str, Any]]) -> Start | None:
    """The low end of the assumption on cold starts; None in snapshots that have no such end."""
    row = rows.get("cold-start-s")
    return Start(cold_start_s=row["low"], source=row["source"]) if row and row.get("low") else None
