"""Importing measured figures: what looks like a mistake is held until a person releases or discards it.

Each figure of a file has one outcome: read = new + changed + confirmed + held + skipped. Imported figures are shown
beside answers and correct those of exactly their deployment where nothing better was measured (inputs/measured.py);
published errors are made of the scorecard's rows alone.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import structlog
from django.db import transaction
from django.utils import timezone

from advisor.engine.estimate import Resources
from advisor.evidence import estimated, formats
from advisor.evidence.checks import Checked, Group, suspicions
from advisor.evidence.formats import EvidenceError
from advisor.evidence.rows import Given, Source, catalog_names, given_rows
from advisor.fidelity import COLUMNS, Row
from advisor.inputs import catalog_resources
from catalog import clock
from catalog.accounts import audit
from catalog.loading import evidence as files
from catalog.models import CatalogLoad, EvidenceImport, EvidenceRow, HeldEvidence, ScoredRow, default_organisation

log = structlog.get_logger("assay.evidence")
State = HeldEvidence.State
SAME_FRACTION = 0.001  # values that differ by less are one value, rounded differently
PREDICTED = ("predicted", "low", "high", "bias_fraction", "inside", "basis", "note")
MAX_LINES = 50  # of held figures in a report
DECIDED = "was discarded by a person earlier"
SCORED = "is already a row of the scorecard"
TAKEN = "has the ID of a row of another source"
MAX_ID_CHARS = 160
TOO_LONG = f"has an ID of more than {MAX_ID_CHARS} characters"


class NotHeld(ValueError):
    """No held figure has this ID, or somebody has already decided about it."""


@dataclass(kw_only=True, slots=True)
class Imported:
    """What importing one file did, in figures. read = new + changed + confirmed + held + the sum of `skipped`."""

    file: str
    file_format: str
    sources: list[str] = field(default_factory=list)
    read: int = 0
    new: int = 0
    changed: int = 0
    confirmed: int = 0
    held: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    quarantined: list[str] = field(default_factory=list)  # held figures in words, at most MAX_LINES

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def add(
    path: Path, file_format: str, sources: Mapping[str, Source], only: str, options: Mapping[str, str], by: str
) -> Imported:
    """Imports one file, all or nothing. EvidenceError: it cannot be; OSError: it cannot be read.

    sources: by key. only: the key of the file's only source; empty: each row names its own.
    """
    chosen, readings = formats.read(path, file_format)
    if not only and chosen != formats.ROWS:
        raise EvidenceError("does not name its source; give --source KEY, with --place and --client")
    if not CatalogLoad.objects.exists():
        raise EvidenceError("cannot be checked without a catalog; run manage.py load_catalog first")
    resources, names = catalog_resources(), catalog_names()
    given = given_rows(readings, options, sources.get(only), names, clock.today())
    described = _described(given, sources)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    done = Imported(file=path.name, file_format=chosen, read=given.read, sources=sorted(described))
    skipped: Counter[str] = Counter(given.skipped)
    with transaction.atomic():
        for key, source in sorted(described.items()):
            rows = [row for row in given.rows if row.source_key == key]
            doubts = {row.id: given.doubts[row.id] for row in rows if row.id in given.doubts}
            record = _record(source, rows, chosen, path.name, digest, by)
            counts, reasons, lines = _keep(rows, doubts, record, resources)
            record.counts = {"read": len(rows), **counts, "skipped": dict(reasons)}
            record.save(update_fields=["counts"])
            skipped += reasons
            done.quarantined += lines
            for name, count in counts.items():
                setattr(done, name, getattr(done, name) + count)
    done.skipped = dict(skipped.most_common())
    del done.quarantined[MAX_LINES:]
    log.info("evidence imported", file=path.name, by=by, new=done.new, held=done.held)
    return done


def _described(given: Given, sources: Mapping[str, Source]) -> dict[str, Source]:
    """The sources of the rows. EvidenceError: one is described neither here nor by an earlier import."""
    found = {}
    for key in {row.source_key for row in given.rows}:
        if key in sources:
            found[key] = sources[key]
        elif (known := EvidenceImport.objects.filter(source_key=key).first()) is not None:
            found[key] = Source(
                key=key, name=known.name, place=known.place, client=known.client, licence=known.licence,
                caveats=known.caveats,
            )  # fmt: skip
        else:
            raise EvidenceError(
                f"has rows of the source {key}, which nothing describes; give --sources FILE with its place, client "
                "and license, or --source KEY with --place and --client for the whole file"
            )
    return found


def _record(
    source: Source, rows: Sequence[Row], file_format: str, file_name: str, digest: str, by: str
) -> EvidenceImport:
    return EvidenceImport.objects.create(
        source_key=source.key,
        name=source.name[:200],
        place=source.place,
        client=source.client,
        licence=source.licence[:200],
        caveats=source.caveats,
        as_of=newest(rows) or clock.today(),
        file_format=file_format,
        file_name=file_name[:200],
        digest=digest,
        made_by=by[:150],
    )


def newest(rows: Sequence[Row]) -> date | None:
    """The newest day of the rows that is not in the future; a year or a month counts from its first day."""
    days = []
    for row in rows:
        try:
            days.append(date.fromisoformat((row.date + "-01-01")[:10]))
        except ValueError:
            continue
    return max((day for day in days if day <= clock.today()), default=None)


def _keep(
    rows: Sequence[Row], doubts: Mapping[str, str], record: EvidenceImport, resources: Resources
) -> tuple[dict[str, int], Counter[str], list[str]]:
    """Stores the rows of one source. Returns counts by outcome, reasons of skipped rows, and held ones in words."""
    skipped: Counter[str] = Counter()
    known = dict(EvidenceRow.objects.filter(source_key=record.source_key).values_list("key", "measured"))
    taken = dict.fromkeys(
        EvidenceRow.objects.exclude(source_key=record.source_key).values_list("key", flat=True), TAKEN
    )
    taken |= dict.fromkeys(ScoredRow.objects.values_list("key", flat=True), SCORED)
    taken |= {row.id: TOO_LONG for row in rows if len(row.id) > MAX_ID_CHARS}
    confirmed = {row.id for row in rows if row.id in known and _same(row.value, known[row.id])}
    fresh = [row for row in rows if row.id not in confirmed and row.id not in taken]
    skipped.update(taken[row.id] for row in rows if row.id in taken)
    families = {slug: chip.family for slug, chip in resources.accelerators.items()}
    each, unusable = estimated.scored(fresh, resources, families)
    skipped.update(unusable.values())
    checked = [pair[1] for pair in each]
    found = suspicions(checked, resources, _alike([s for s, _ in each]), _ratios(checked), clock.today())
    reasons = {**found, **doubts}
    decided = {files.mark(held.row): held.state for held in HeldEvidence.objects.exclude(state=State.RELEASED)}
    clean, held = [], []
    for s, _ in each:
        row = as_text(s.row)
        state = decided.get(files.mark(row))
        if state == State.DISCARDED:
            skipped[DECIDED] += 1
        elif state == State.HELD or s.row.id in reasons:
            held.append(row | {"reason": reasons.get(s.row.id, "waits already")})
        else:
            clean.append(estimated.columns_of(s) | {"given": given_of(s.row)})
    created, changed, _ = files.put(clean, record)
    files.keep_held(held, record)
    counts = {"new": created, "changed": changed, "confirmed": len(confirmed), "held": len(held)}
    return counts, +skipped, [f"{row['id']}: {row['value']} {row['reason']}" for row in held]


def _same(one: float, other: float | None) -> bool:
    return other is not None and abs(one - other) <= SAME_FRACTION * max(abs(one), abs(other))


def _alike(each: Sequence[Any]) -> dict[str, str]:
    """Row ID -> key of a row of another run with the same figure of the same deployment and load."""
    names = ("metric", "model", "accelerator", "chips", "framework", "framework_version", "weights_dtype", "layout")
    wanted: dict[tuple[Any, ...], str] = {}
    for table in (ScoredRow, EvidenceRow):
        columns = ("key", "measured", "isl", "osl", "concurrency", *names)
        for key, measured, isl, osl, users, *rest in table._default_manager.exclude(measured=None).values_list(
            *columns
        ):
            wanted.setdefault((*rest, isl, osl, users, f"{measured:.4g}"), key)
    found = {}
    for s in each:
        row = estimated.columns_of(s)
        mark = (*(row[name] for name in names), row["isl"], row["osl"], row["concurrency"], f"{s.row.value:.4g}")
        if (other := wanted.get(mark)) is not None and other != s.row.id:
            found[s.row.id] = other
        wanted.setdefault(mark, s.row.id)
    return found


def _ratios(each: Sequence[Checked]) -> dict[Group, list[float]]:
    """log(measured / predicted) of the catalog's other rows of the same chips and models, by group."""
    own = {checked.row.id for checked in each}
    of_these = {
        "accelerator__in": {checked.case.accelerator_slug for checked in each},
        "model__in": {checked.case.model_id for checked in each},
    }
    columns = ("key", "bias_fraction", "accelerator", "model", "framework", "weights_dtype", "mode", "metric")
    found: dict[Group, list[float]] = {}
    for table in (ScoredRow, EvidenceRow):
        rows = table._default_manager.filter(**of_these, bias_fraction__gt=-1).exclude(circumstance="disputed")
        for key, bias, *group in rows.values_list(*columns):
            if key not in own:
                found.setdefault(tuple(group), []).append(-math.log1p(bias))
    return found


def as_text(row: Row) -> dict[str, str]:
    """A row as it would stand in a CSV file of measured rows."""
    return {name: f"{row.value:.7g}" if name == "value" else getattr(row, name) for name in COLUMNS}


def given_of(row: Row) -> dict[str, str]:
    return {name: text for name in files.GIVEN if (text := getattr(row, name))}


def predict() -> int:
    """Predicts all imported figures again, as after a change of the engine. Returns how many predictions changed."""
    resources = catalog_resources()
    families = {slug: chip.family for slug, chip in resources.accelerators.items()}
    stored = list(EvidenceRow.objects.select_related("evidence_import").order_by("pk"))
    cells = [files.measured_row(row) for row in stored]
    rows = [Row(value=float(each.pop("value")), **each) for each in cells]
    each, _ = estimated.scored(rows, resources, families)
    found = {s.row.id: estimated.columns_of(s) for s, _ in each}
    changed = []
    for row in stored:
        if row.key in found and any(_differs(getattr(row, name), found[row.key][name]) for name in PREDICTED):
            for name in PREDICTED:
                setattr(row, name, found[row.key][name])
            changed.append(row)
    EvidenceRow.objects.bulk_update(changed, PREDICTED, batch_size=100)
    return len(changed)


def _differs(old: Any, new: Any) -> bool:
    """Whether two values differ by more than rounding."""
    if isinstance(old, float) and isinstance(new, float):
        return not _same(old, new) and abs(old - new) > SAME_FRACTION
    return bool(old != new)


# --- decisions ----------------------------------------------------------------------------------------------------


def waiting() -> list[HeldEvidence]:
    """The held figures that nobody has decided about, oldest first."""
    return list(HeldEvidence.objects.filter(state=State.HELD).select_related("evidence_import"))


def release(ids: Sequence[int], by: str) -> None:
    """Adds held figures to the catalog, all or none. NotHeld; EvidenceError: one cannot be added any more."""
    with transaction.atomic():
        released = [_decided(pk, State.RELEASED, by) for pk in ids]
        resources = catalog_resources()
        families = {slug: chip.family for slug, chip in resources.accelerators.items()}
        for held in released:
            cells = {name: held.row.get(name, "") for name in COLUMNS}
            row = Row(value=float(cells.pop("value")), **cells)
            each, unusable = estimated.scored([row], resources, families)
            if unusable:
                raise EvidenceError(f"held figure {held.pk}: {unusable[row.id]}")
            files.put([estimated.columns_of(each[0][0]) | {"given": given_of(row)}], held.evidence_import)
    log.info("evidence released", held=list(ids), by=by)


def discard(ids: Sequence[int], by: str) -> None:
    """Drops held figures, all or none. NotHeld: there is none with one of these IDs."""
    with transaction.atomic():
        for pk in ids:
            _decided(pk, State.DISCARDED, by)
    log.info("evidence discarded", held=list(ids), by=by)


def _decided(pk: int, state: str, by: str) -> HeldEvidence:
    held = (
        HeldEvidence.objects.select_for_update()
        .select_related("evidence_import")
        .filter(pk=pk, state=State.HELD)
        .first()
    )
    if held is None:
        raise NotHeld(f"no held figure {pk}; `manage.py evidence held` lists them")
    held.state, held.decided_by, held.decided_at = state, by[:150], timezone.now()
    held.save(update_fields=["state", "decided_by", "decided_at"])
    audit.record(default_organisation(), by, audit.Action.EVIDENCE_DECISION, held.row["id"], state)
    return held
