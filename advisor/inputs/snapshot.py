"""The catalog rows that one answer reads, as they are stored with it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from advisor.stored import SNAPSHOT_VERSION, upgraded_snapshot

TEXTS = ("source", "notes")  # keys of texts that many rows share; stored once
Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """Everything the engine reads for one workload, so that a re-run gives the same answer.

    The snapshot of a portfolio has no rows of its own, but one snapshot for each workload (`parts`).
    """

    engine_version: str = ""
    catalog_version: str = ""
    asked_on: str = ""  # the day whose prices apply
    prices_as_of: str = ""
    parts: tuple["Snapshot", ...] = ()
    complete: bool = True  # False: it lacks what a deployment is computed from
    # of the model
    model: Json = field(default_factory=dict)
    draft_model: Json | None = None
    reward_model: Json | None = None
    hosted: list[Json] = field(default_factory=list)
    conditioned: Json = field(default_factory=dict)
    # of the market
    accelerators: list[Json] = field(default_factory=list)
    prices: list[Json] = field(default_factory=list)
    other_terms: list[Json] = field(default_factory=list)
    serverless: list[Json] = field(default_factory=list)
    marketplace: Json = field(default_factory=dict)
    stale: Json = field(default_factory=dict)
    licences: list[Json] = field(default_factory=list)
    instances: Json = field(default_factory=dict)
    units: list[Json] = field(default_factory=list)
    fabrics: list[Json] = field(default_factory=list)
    slices: list[Json] = field(default_factory=list)
    frameworks: list[Json] = field(default_factory=list)
    quantizations: list[Json] = field(default_factory=list)
    regions: Json = field(default_factory=dict)
    site: str = ""
    assumptions: Json = field(default_factory=dict)
    calibrations: Json = field(default_factory=dict)
    currency: Json | None = None
    calibration_rows: Json = field(default_factory=dict)

    @staticmethod
    def read(stored: Mapping[str, Any]) -> "Snapshot":
        """The snapshot from the JSON of any version."""
        return _of(upgraded_snapshot(_unpacked(stored)))

    @staticmethod
    def of_parts(parts: Sequence["Snapshot"]) -> "Snapshot":
        """Of a portfolio, with the versions and dates that the answer records."""
        return replace(
            Snapshot(parts=tuple(parts)),
            engine_version=parts[0].engine_version,
            catalog_version=parts[0].catalog_version,
            asked_on=parts[0].asked_on,
            prices_as_of=max((p.prices_as_of for p in parts if p.prices_as_of), default=""),
        )

    def stored(self) -> Json:
        """As JSON of the current version, in which each long text is kept once."""
        if self.parts:
            names = ("engine_version", "catalog_version", "asked_on", "prices_as_of")
            return {name: getattr(self, name) for name in names} | {"parts": [part.stored() for part in self.parts]}
        rows = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "parts"}
        return _packed(rows | {"version": SNAPSHOT_VERSION})


def _of(rows: Json) -> Snapshot:
    parts = tuple(_of(part) for part in rows.get("parts", ()))
    known = {f.name: rows[f.name] for f in fields(Snapshot) if f.name in rows}
    return Snapshot(**known | {"parts": parts, "complete": rows.get("complete", all(p.complete for p in parts))})


def _packed(rows: Json) -> Json:
    """The rows with `source` and `notes` as indexes into `texts`."""
    indexes: dict[str, int] = {}

    def pack(value: Any) -> Any:
        if isinstance(value, dict):
            return {
                key: indexes.setdefault(item, len(indexes)) if key in TEXTS and isinstance(item, str) else pack(item)
                for key, item in value.items()
            }
        return [pack(item) for item in value] if isinstance(value, list | tuple) else value

    return {**pack(rows), "texts": list(indexes)}


def _unpacked(stored: Mapping[str, Any]) -> Json:
    """The inverse; what is not packed stays as it is."""
    if "parts" in stored:
        return {**stored, "parts": [_unpacked(part) for part in stored["parts"]]}
    texts = stored.get("texts", ())

    def unpack(value: Any) -> Any:
        if isinstance(value, dict):
            return {
                key: texts[item] if key in TEXTS and isinstance(item, int) else unpack(item)
                for key, item in value.items()
            }
        return [unpack(item) for item in value] if isinstance(value, list) else value

    return {key: unpack(value) for key, value in stored.items() if key != "texts"}
