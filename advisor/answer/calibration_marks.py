"""Which calibrations an answer used, and which of them were undone since: a finished answer itself is never edited."""

from collections.abc import Iterable, Mapping
from typing import Any

from advisor.engine.search import Scored
from advisor.inputs import CHIP_SCOPE
from advisor.result import UsedCalibration
from catalog.models import Calibration

Json = dict[str, Any]


def calibrations_used(snapshot: Json, ranked: Iterable[Scored]) -> list[UsedCalibration]:
    """Calibrations of chips that the answer rests on: of those ranked, and of any that machines here measured, since
    a wrong one may also keep its chip out of the ranking."""
    slugs = {s.lane.choice.accelerator.slug for s in ranked}
    return [
        UsedCalibration(id=row["id"], name=name, measured_on=row["measured_on"])
        for name, row in snapshot.get("calibration_rows", {}).items()
        if row["by_machines"] or name.removeprefix(CHIP_SCOPE) in slugs
    ]


def used(result: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """[{id, name, measured_on, undone_on, undone_by}]; nothing for answers that do not name them."""
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


def words(calibration: Mapping[str, Any]) -> str:
    """Of one that was undone."""
    return (
        f"This answer used calibration {calibration['id']} of {calibration['name']} (measured on "
        f"{calibration['measured_on']}, undone on {calibration['undone_on']} by {calibration['undone_by']}): ask again."
    )


def undone(result: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    return [calibration for calibration in used(result) if calibration["undone_on"]]
