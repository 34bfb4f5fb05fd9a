"""What machines changed in the catalog's calibrations: shown with before and after, and taken back.

Rows are append-only. An undo appends one that says what the others would say without the undone ones; the results
that the undone row had brought in no longer count.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from advisor import advise
from advisor.engine import ENGINE_VERSION
from advisor.models import Advice, Option
from catalog.loading.load import PROBED, REST_FROM_FILE
from catalog.models import Accelerator, Calibration
from probes import calibrate
from probes.models import Result

MOST_ANSWERS = 500  # that are looked through for the calibrations they used
SCOPE = "accelerator:"
Json = dict[str, Any]


class CannotUndo(ValueError):
    """This row cannot be taken back; the text says why."""


def visible() -> QuerySet[Calibration]:
    """What machines made, and what took it back, newest first."""
    rows = Calibration.objects.filter(fitted_on__startswith=PROBED).exclude(fitted_on__contains=REST_FROM_FILE)
    return rows.select_related("undoes", "undone_by").order_by("-created_at", "-pk")


def undone_by(row: Calibration) -> Calibration | None:
    """The row that took this one back."""
    return getattr(row, "undone_by", None)


# --- what it changed --------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Affected:
    """Recent answers that this calibration has to do with."""

    used: list[Advice]  # made with it
    asked_again: list[Advice]  # older ones that rank its chip, and were asked again since


def affected(row: Calibration) -> Affected:
    slug, since = row.name.removeprefix(SCOPE), row.created_at - timedelta(days=calibrate.RESCORE_DAYS)
    ranked = Option.objects.filter(accelerator_slug=slug).values("advice_id")
    old = advise.visible().filter(pk__in=ranked, created_at__lt=row.created_at, created_at__gt=since)
    old = old.filter(successors__created_at__gte=row.created_at).distinct().defer("result", "snapshot")
    used = advise.visible().filter(pk__in=answers_with(row)).defer("result", "snapshot")
    return Affected(used=list(used.order_by("-created_at")[:50]), asked_again=list(old.order_by("-created_at")[:50]))


def answers_with(row: Calibration) -> list[UUID]:
    """The newest answers that say they used it."""
    rows = Advice.objects.filter(state=Advice.State.DONE, created_at__gt=row.created_at - timedelta(days=1))
    newest = rows.order_by("-created_at").values_list("pk", "calibration_ids")
    return [pk for pk, used in newest[:MOST_ANSWERS] if row.pk in used]


# --- taking back ------------------------------------------------------------------------------------------------


def undo(row: Calibration, by: str = "") -> Calibration:
    """Restore what was in force before it, without the results that it brought in; the answers are asked again."""
    by = by[:150] or "somebody"
    with transaction.atomic():
        chip = Accelerator.objects.select_for_update().get(slug=row.name.removeprefix(SCOPE)) if is_ours(row) else None
        if chip is None:
            raise CannotUndo(
                "It comes from a file of the catalog: change the file and load it (manage.py load_catalog)."
            )
        if row.undoes_id:
            raise CannotUndo(
                f"It is itself the undo of calibration {row.undoes_id}: release the results to use them again."
            )
        if earlier := Calibration.objects.filter(undoes=row).first():
            raise CannotUndo(f"It was undone already, on {earlier.created_at:%Y-%m-%d} by {earlier.made_by}.")
        brought = exclude_results(row, by)
        made = _restored(row, chip, brought, by)
        calibrate.ask_again(chip.slug, answers_with(row))
    return made


def is_ours(row: Calibration) -> bool:
    return row.name.startswith(SCOPE) and row.fitted_on.startswith(PROBED) and REST_FROM_FILE not in row.fitted_on


def exclude_results(row: Calibration, by: str) -> list[int]:
    """The results that came in with this row: those that no earlier row in force rests on."""
    earlier = Calibration.objects.filter(name=row.name, undoes=None, undone_by=None)
    earlier = earlier.filter(Q(created_at__lt=row.created_at) | Q(created_at=row.created_at, pk__lt=row.pk))
    before = {pk for results in earlier.values_list("results", flat=True) for pk in results}
    brought = set(row.results) - before or set(Result.objects.filter(calibration=row).values_list("pk", flat=True))
    Result.objects.filter(pk__in=brought).update(excluded_at=timezone.now(), excluded_by=by)
    return sorted(brought)


def _restored(row: Calibration, chip: Accelerator, brought: list[int], by: str) -> Calibration:
    newest = Calibration.objects.filter(name=row.name).order_by("-created_at", "-pk")[0]
    rows = list(Calibration.objects.filter(name=row.name).order_by("created_at", "pk"))
    gone = {r.undoes_id for r in rows if r.undoes_id} | {row.pk}
    in_force = [r for r in rows if r.pk not in gone and not r.undoes_id]
    values, measured = replayed(in_force)
    newer = [r for r in in_force if (r.created_at, r.pk) > (row.created_at, row.pk)]
    rests_on: set[int] = set()
    changed_since = {c["figure"] for r in newer for c in r.changes}
    for method in {r.method for r in Result.objects.filter(pk__in=brought)}:
        machines = calibrate.pool(chip, method)
        agreement = calibrate.agreed(machines)
        calibrate.mark_waiting(machines, agreement)
        later = [f for f in agreement.figures if f.name in changed_since & {c["figure"] for c in row.changes}]
        values |= {f.name: calibrate.rounded(f.value) for f in later}  # a later middle had these results in it
        rests_on |= set(agreement.results) if later else set()
    last = in_force[-1] if in_force else None
    moved = sorted(k for k in {*newest.values, *values} if newest.values.get(k) != values.get(k))
    named = ", ".join(map(str, brought)) or "none"
    rest = f"in force: {last.fitted_on.replace(REST_FROM_FILE, '; and ')}" if last else "nothing else was measured here"
    return Calibration.objects.create(
        name=row.name,
        values=values,
        basis="measured" if measured else last.basis if last else "datasheet",
        fitted_on=f"{PROBED} {named} no longer used: calibration {row.pk} was undone by {by}; {rest}",
        engine_version=ENGINE_VERSION,
        as_of=last.as_of if last else timezone.localdate(),
        measured=sorted(measured),
        changes=[{"figure": k, "before": newest.values.get(k), "after": values.get(k)} for k in moved],
        results=sorted(rests_on or set(last.results if last else ())),
        undoes=row,
        made_by=by,
    )


def replayed(rows: Iterable[Calibration]) -> tuple[Json, set[str]]:
    """(values, names of those that machines measured) after these rows: a file changes what no machine measured."""
    values: Json = {}
    measured: set[str] = set()
    for row in rows:
        if REST_FROM_FILE in row.fitted_on:
            continue  # it only repeats what the file and the machines before it say
        if not row.fitted_on.startswith(PROBED):
            values = row.values | {name: values[name] for name in measured}
        elif row.changes:
            values |= {c["figure"]: c["after"] for c in row.changes}
            measured |= {c["figure"] for c in row.changes}
        else:  # written by version 0.1.0
            values, measured = dict(row.values), set(row.measured)
    return values, measured
