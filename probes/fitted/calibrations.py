"""Calibrations from measurements: their effects, and undoing them.

Rows are append-only. An undo adds a row with the values that would be in force without the undone row. The results
that came in with the undone row no longer count.
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
from catalog import clock
from catalog.accounts import Right, audit
from catalog.loading.load import PROBED, REST_FROM_FILE
from catalog.models import Accelerator, Calibration, Organisation, default_organisation
from probes.fitted import fitting
from probes.models import Result

MAX_ANSWERS = 500  # recent answers searched for a calibration
SCOPE = "accelerator:"
Json = dict[str, Any]


class CannotUndo(ValueError):
    """The calibration cannot be undone; the message gives the reason."""


def visible(organisation: Organisation | None = None) -> QuerySet[Calibration]:
    """Shared calibrations from measurements, those of an organization, and their undos, newest first."""
    return from_probes(Calibration.objects.seen_by(organisation))


def of_everyone() -> QuerySet[Calibration]:
    """The same of all organizations, for commands."""
    return from_probes(Calibration.objects.of_everyone().select_related("organisation"))


def from_probes(rows: QuerySet[Calibration]) -> QuerySet[Calibration]:
    rows = rows.filter(fitted_on__startswith=PROBED).exclude(fitted_on__contains=REST_FROM_FILE)
    return rows.select_related("undoes", "undone_by").order_by("-created_at", "-pk")


def same_scope(row: Calibration) -> QuerySet[Calibration]:
    """The rows of the same name and organization."""
    return Calibration.objects.of_everyone().filter(name=row.name, organisation=row.organisation_id)


def right_to_change(row: Calibration) -> Right:
    return Right.MAINTAIN if row.organisation_id is None else Right.OPERATE


def undone_by(row: Calibration) -> Calibration | None:
    """The calibration that undid this one; None if it is in force."""
    return getattr(row, "undone_by", None)


# --- affected answers -------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Affected:
    """Recent answers affected by a calibration."""

    used: list[Advice]  # computed with it
    recomputed: list[Advice]  # older ones that rank its chip and were recomputed since


def affected(row: Calibration, organisation: Organisation) -> Affected:
    """At most 50 answers of each group of an organization, newest first."""
    slug, since = row.name.removeprefix(SCOPE), row.created_at - timedelta(days=fitting.RECOMPUTE_DAYS)
    ranked = Option.objects.filter(accelerator_slug=slug).values("advice_id")
    old = advise.visible(organisation).filter(pk__in=ranked, created_at__lt=row.created_at, created_at__gt=since)
    old = old.filter(successors__created_at__gte=row.created_at).distinct().defer("result", "snapshot")
    used = advise.visible(organisation).filter(pk__in=answers_with(row)).defer("result", "snapshot")
    return Affected(used=list(used.order_by("-created_at")[:50]), recomputed=list(old.order_by("-created_at")[:50]))


def answers_with(row: Calibration) -> list[UUID]:
    """The IDs of recent answers that used this calibration."""
    rows = Advice.objects.filter(state=Advice.State.DONE, created_at__gt=row.created_at - timedelta(days=1))
    newest = rows.order_by("-created_at").values_list("pk", "calibration_ids")
    return [pk for pk, used in newest[:MAX_ANSWERS] if row.pk in used]


# --- undo -------------------------------------------------------------------------------------------------------


def undo(row: Calibration, by: str = "") -> Calibration:
    """Adds a calibration that restores the earlier values, excludes the results of `row`, and recomputes answers.

    Raises CannotUndo if `row` comes from a file, is itself an undo, or was already undone.
    """
    by = by[:150] or "somebody"
    with transaction.atomic():
        if not is_from_probes(row):
            raise CannotUndo(
                "This calibration comes from a catalog file. Change the file and run manage.py load_catalog."
            )
        chip = Accelerator.objects.select_for_update().get(slug=row.name.removeprefix(SCOPE))
        if row.undoes_id:
            raise CannotUndo(
                f"This is the undo of calibration {row.undoes_id}. To use its results again, release them."
            )
        if earlier := same_scope(row).filter(undoes=row).first():
            raise CannotUndo(f"Already undone on {earlier.created_at:%Y-%m-%d} by {earlier.made_by}.")
        excluded = exclude_results(row, by)
        restored = _restore(row, chip, excluded, by)
        owner = row.organisation or default_organisation()
        audit.record(owner, by, audit.Action.CALIBRATION, f"calibration {row.pk} of {chip.slug}")
        fitting.recompute_advice(chip.slug, answers_with(row), row.organisation)
    return restored


@transaction.atomic
def share(row: Calibration, by: str) -> Calibration:
    """Adds the measured values of an organization's calibration to those that all organizations share.

    Raises CannotUndo if it is shared already, was undone, or is an undo.
    """
    if row.organisation is None or row.undoes_id or undone_by(row):
        raise CannotUndo("Only a calibration of one organization that is in force can be shared.")
    newest = Calibration.objects.filter(name=row.name).order_by("-created_at", "-pk").first()
    before = newest.values if newest else {}
    shared = Calibration.objects.create(
        name=row.name,
        values=before | row.values,
        basis=fitting.basis_of(row.measured, newest.basis if newest else row.basis),
        fitted_on=row.fitted_on,
        engine_version=row.engine_version,
        as_of=row.as_of,
        measured=sorted({*row.measured, *(newest.measured if newest else ())}),
        changes=[{"figure": k, "before": before.get(k), "after": v} for k, v in sorted(row.values.items())],
        results=row.results,
    )
    audit.record(row.organisation, by, audit.Action.CALIBRATION, f"calibration {row.pk}", "shared")
    fitting.recompute_advice(row.name.removeprefix(SCOPE))
    return shared


def is_from_probes(row: Calibration) -> bool:
    """Whether the row comes from probe results alone, not from a file."""
    return row.name.startswith(SCOPE) and row.fitted_on.startswith(PROBED) and REST_FROM_FILE not in row.fitted_on


def exclude_results(row: Calibration, by: str) -> list[int]:
    """Excludes the results that came in with this row: no earlier row in force uses them. Returns their IDs."""
    earlier = same_scope(row).filter(undoes=None, undone_by=None)
    earlier = earlier.filter(Q(created_at__lt=row.created_at) | Q(created_at=row.created_at, pk__lt=row.pk))
    used_before = {pk for results in earlier.values_list("results", flat=True) for pk in results}
    excluded = set(row.results) - used_before or set(
        Result.objects.filter(calibration=row).values_list("pk", flat=True)
    )
    Result.objects.filter(pk__in=excluded).update(excluded_at=timezone.now(), excluded_by=by)
    return sorted(excluded)


def _restore(row: Calibration, chip: Accelerator, excluded: list[int], by: str) -> Calibration:
    newest = same_scope(row).order_by("-created_at", "-pk")[0]
    rows = list(same_scope(row).order_by("created_at", "pk"))
    undone = {r.undoes_id for r in rows if r.undoes_id} | {row.pk}
    in_force = [r for r in rows if r.pk not in undone and not r.undoes_id]
    values, measured = replayed(in_force)
    newer = [r for r in in_force if (r.created_at, r.pk) > (row.created_at, row.pk)]
    result_ids: set[int] = set()
    owner = row.organisation or default_organisation()  # whose measurements calibrate
    changed_since = {c["figure"] for r in newer for c in r.changes}
    for method in {r.method for r in Result.objects.filter(pk__in=excluded)}:
        machines = fitting.pool(chip, method, owner)
        agreement = fitting.agreement_of(machines)
        fitting.mark_waiting(machines, agreement)
        later = [f for f in agreement.figures if f.name in changed_since & {c["figure"] for c in row.changes}]
        values |= {f.name: fitting.rounded(f.value) for f in later}  # later medians included the excluded results
        result_ids |= set(agreement.results) if later else set()
    last = in_force[-1] if in_force else None
    changed = sorted(k for k in {*newest.values, *values} if newest.values.get(k) != values.get(k))
    names = ", ".join(map(str, excluded)) or "none"
    rest = f"in force: {last.fitted_on.replace(REST_FROM_FILE, '; and ')}" if last else "no other measurements"
    return Calibration.objects.create(
        organisation=row.organisation,
        name=row.name,
        values=values,
        basis=fitting.basis_of(measured, last.basis if last else "datasheet"),
        fitted_on=f"{PROBED} {names} no longer used: calibration {row.pk} was undone by {by}; {rest}",
        engine_version=ENGINE_VERSION,
        as_of=last.as_of if last else clock.today(),
        measured=sorted(measured),
        changes=[{"figure": k, "before": newest.values.get(k), "after": values.get(k)} for k in changed],
        results=sorted(result_ids or set(last.results if last else ())),
        undoes=row,
        made_by=by,
    )


def replayed(rows: Iterable[Calibration]) -> tuple[Json, set[str]]:
    """The values in force after these rows, and the names of those that machines measured. Files change only others."""
    values: Json = {}
    measured: set[str] = set()
    for row in rows:
        if REST_FROM_FILE in row.fitted_on:
            continue  # it only merges a file with earlier measurements
        if not row.fitted_on.startswith(PROBED):
            values = row.values | {name: values[name] for name in measured}
        elif row.changes:
            values |= {c["figure"]: c["after"] for c in row.changes}
            measured |= {c["figure"] for c in row.changes}
        else:  # written by version 0.1.0
            values, measured = dict(row.values), set(row.measured)
    return values, measured
