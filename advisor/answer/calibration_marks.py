"""Calibrations that an answer used, and those undone since. A finished answer itself is never edited."""

from collections.abc import Iterable, Mapping
from typing import Any

from advisor.inputs import CHIP_SCOPE
from advisor.result import UsedCalibration
from catalog.models import Calibration

Json = dict[str, Any]


def calibrations_used(snapshot: Json, ranked: Iterable[str]) -> list[UsedCalibration]:
    """Calibrations of the ranked chips (slugs), and all that machines here measured: a wrong one can also keep its
    chip out of the ranking."""
    slugs = set(ranked)
    return [
        UsedCalibration(id=row["id"], name=name, measured_on=row["measured_on"])
        for name, row in snapshot.get("calibration_rows", {}).items()
        if row["by_machines"] or name.removeprefix(CHIP_SCOPE) in slugs
    ]


def used(result: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """The calibrations that a stored answer used: [{id, name, measured_on, undone_on, undone_by}]."""
    named = (result or {}).get("calibrations", [])
    if not named:
        return []
    undos = {row.undoes_id: row for row in Calibration.objects.filter(undoes__in=[c["id"] for c in named])}
    return [
        {
            **calibration,
            "undone_on": undos[calibration["id"]].created_at.date().isoformat() if calibration["id"] in undos else None,
            "undone_by": undos[calibration["id"]].made_by if calibration["id"] in undos else "",
        }
        for calibration in named
    ]


def undone_notice(calibration: Mapping[str, Any]) -> str:
    """What a reader of the answer must know about a calibration that was undone."""
    return (
        f"This answer used calibration {calibration['id']} of {calibration['name']} (measured on "
        f"{calibration['measured_on']}, undone on {calibration['undone_on']} by {calibration['undone_by']}). "
        "Re-run the request."
    )


def undone(result: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Those of them that were undone since."""
    return [calibration for calibration in used(result) if calibration["undone_on"]]
