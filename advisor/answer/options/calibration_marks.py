"""Calibrations and measured rows that an answer used, and those undone since. A finished answer is never edited."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from advisor.engine.step import Choice
from advisor.engine.terms import LAYOUT, LENGTHS, MODEL, SITE, STACK, Correction
from advisor.inputs import CHIP_SCOPE, Snapshot, number
from advisor.result import Answer, MeasuredCorrection, UsedCalibration
from catalog.models import Calibration

Json = dict[str, Any]
OWN = "load test "  # keys of an organization's own rows
SHARED = {
    MODEL: "for this model and framework on other chips",
    STACK: "for this chip, framework version, model and format in other parallel layouts",
    LAYOUT: "for this layout at other token lengths",
    SITE: "of your own for this layout at other token lengths",
    LENGTHS: "for this layout at about these token lengths",
}


def calibrations_used(snapshot: Snapshot, ranked: Iterable[str]) -> list[UsedCalibration]:
    """Calibrations of the ranked chips (slugs), and all that machines here measured: a wrong one can also keep its
    chip out of the ranking."""
    slugs = set(ranked)
    return [
        UsedCalibration(id=row["id"], name=name, measured_on=row["measured_on"])
        for name, row in snapshot.calibration_rows.items()
        if row["by_machines"] or name.removeprefix(CHIP_SCOPE) in slugs
    ]


def used(result: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """The calibrations that a stored answer used: [{id, name, measured_on, undone_on, undone_by}]."""
    return marked((result or {}).get("calibrations") or [])


def marked(named: Sequence[Json]) -> list[dict[str, Any]]:
    """These calibrations, with when and by whom each was undone."""
    if not named:
        return []
    undos = {
        row.undoes_id: row for row in Calibration.objects.of_everyone().filter(undoes__in=[c["id"] for c in named])
    }
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


def undone(answer: Answer) -> list[dict[str, Any]]:
    """The calibrations of an answer that were undone since."""
    named = [calibration.to_json() for calibration in answer.calibrations or ()]
    return [calibration for calibration in marked(named) if calibration["undone_on"]]


def measured_correction(choice: Choice, tpot: tuple[float, float] | None) -> MeasuredCorrection | None:
    """The correction of an option, with the 90 % interval of its TPOT as factors; None without rows near enough."""
    c = choice.correction
    if not c.rows:
        return None
    low, high = tpot if c.ratios and tpot else (None, None)
    return MeasuredCorrection(
        time_factor=c.time_factor,
        low_ratio=None if low is None else number(low),
        high_ratio=None if high is None else number(high),
        rows=c.rows,
        level=c.level,
        row_keys=list(c.keys),
        said=said(c),
        imported=c.imported,
    )


def said(c: Correction) -> str:
    """For example: Predicted step times are multiplied by 1.12, based on 14 benchmark results for this layout ..."""
    plural = "s" if c.rows != 1 else ""
    if c.imported:
        where = {STACK: " in other parallel layouts", LAYOUT: " in this layout", LENGTHS: " at about these lengths"}
        return (
            f"Predicted step times are multiplied by {c.time_factor:.2f}, based on {c.rows} imported "
            f"measurement{plural} of this chip, model, framework and format{where.get(c.level, '')}."
        )
    rows = f"{c.rows} benchmark result{plural}"
    own = sum(key.startswith(OWN) for key in c.keys)
    yours = f", {own} of them from your own load tests" if own else ""
    return f"Predicted step times are multiplied by {c.time_factor:.2f}, based on {rows} {SHARED[c.level]}{yours}."
