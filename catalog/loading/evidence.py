"""The files of imported measured figures: `sources.csv`, one file a source, and `held.csv` for those that wait.

`evidence export` writes them, so that an installation can pass on what it imported: to the fixtures, or in a bundle.
"""

import csv
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from catalog.loading.fixtures import FixtureError, Row, check_keys, refuse_duplicates, table
from catalog.loading.scored import RUN, cell, scored_row, unchecked
from catalog.models import Accelerator, EvidenceImport, EvidenceRow, HeldEvidence

FOLDER, SOURCES, HELD = "evidence", "sources.csv", "held.csv"
FORMAT = "catalog"  # `file_format` of these files
SOURCE_COLUMNS = ("source_key", "name", "place", "client", "licence", "as_of", "caveats")
FIGURES = ("key", "metric", "measured", "predicted", "low", "high", "note", "task")
EXACT = ("isl", "osl", "concurrency")  # written with all digits
# Columns of measured rows that a row keeps as its source states them. The others follow from its own columns.
GIVEN = (
    *("task", "model", "accelerator", "n_accelerators", "tp", "pp", "ep", "attention_dp", "moe_tp", "prefill_pool"),
    *("decode_pool", "weights_dtype", "kv_dtype", "framework", "isl", "osl", "concurrency_or_batch", "params_note"),
    *("date", "confidence", "notes"),
)
SAID = tuple(f"given_{name}" for name in GIVEN if name != "task")
COLUMNS = (*FIGURES, *RUN, *SAID)  # those of RUN and SAID are written once per run, as in the scorecard's files
MEASURED = (  # the columns of measured rows
    *(
        "id",
        "task",
        "metric",
        "value",
        "model",
        "model_id",
        "accelerator",
        "accelerator_slug",
        "n_accelerators",
        "mode",
    ),
    *("tp", "pp", "ep", "attention_dp", "moe_tp", "prefill_pool", "decode_pool", "weights_dtype", "kv_dtype"),
    *("framework", "isl", "osl", "concurrency_or_batch", "params_note", "date", "source_key", "confidence", "notes"),
)
HELD_COLUMNS = ("reason", *MEASURED)


def load(directory: Path) -> tuple[int, int, int]:
    """Adds the figures of a folder. Returns the numbers of rows created, changed and unchanged; held ones count too."""
    if not (directory / SOURCES).exists():
        return 0, 0, 0
    known = {row["source_key"]: row for row in table(directory / SOURCES, SOURCE_COLUMNS, source)}
    paths = [path for path in sorted(directory.glob("*.csv")) if path.name not in (SOURCES, HELD)]
    held = list(table(directory / HELD, HELD_COLUMNS, held_row)) if (directory / HELD).exists() else []
    wanted = {path.stem for path in paths} | {row["source_key"] for row in held}
    if unknown := sorted(wanted - set(known)):
        raise FixtureError(f"{directory.name}: {', '.join(unknown)}: the source is not in {SOURCES}")
    totals = [0, 0, 0]
    for key in sorted(wanted):
        path = directory / f"{key}.csv"
        own = [row for row in held if row["source_key"] == key]
        counts = _load_source(known[key], path if path.exists() else None, own)
        totals = [total + count for total, count in zip(totals, counts, strict=True)]
    return totals[0], totals[1], totals[2]


def _load_source(about: Row, path: Path | None, held: Sequence[Row]) -> tuple[int, int, int]:
    content = (path.read_bytes() if path else b"") + json.dumps([about, held], default=str).encode()
    digest = hashlib.sha256(content).hexdigest()
    if EvidenceImport.objects.filter(source_key=about["source_key"], digest=digest).exists():
        return 0, 0, EvidenceRow.objects.filter(source_key=about["source_key"]).count() + len(held)
    rows = list(rows_of(path)) if path else []
    done = EvidenceImport.objects.create(
        **about, file_format=FORMAT, file_name=f"{about['source_key']}.csv", digest=digest, made_by="load_catalog"
    )
    created, changed, unchanged = put(rows, done)
    waiting = keep_held(held, done)
    done.counts = {
        "read": len(rows) + len(held), "new": created, "changed": changed, "confirmed": unchanged,
        "held": waiting, "skipped": {"decided by a person before": len(held) - waiting} if waiting < len(held) else {},
    }  # fmt: skip
    done.save(update_fields=["counts"])
    return created + waiting, changed, unchanged + len(held) - waiting


def put(rows: Sequence[Row], done: EvidenceImport) -> tuple[int, int, int]:
    """Stores rows with the columns of an EvidenceRow. Returns the numbers of new, changed and unchanged ones."""
    refuse_duplicates("evidence", list(rows), ("key",))
    families = {slug: family.replace(" ", "-") for slug, family in Accelerator.objects.values_list("slug", "family")}
    stored = EvidenceRow.objects.filter(key__in={row["key"] for row in rows}) if len(rows) < 500 else (
        EvidenceRow.objects.filter(source_key__in={row["source_key"] for row in rows})
    )  # fmt: skip
    known = {row.key: row for row in stored}
    create, change = [], []
    for row in rows:
        values = row | {"family": families.get(row["accelerator"], ""), "evidence_import": done}
        old = known.get(row["key"])
        if old is None:
            create.append(EvidenceRow(**values))
        elif any(getattr(old, name) != value for name, value in values.items() if name != "evidence_import"):
            for name, value in values.items():
                setattr(old, name, value)
            change.append(old)
    EvidenceRow.objects.bulk_create(create, batch_size=500)
    if change:
        names = [field.name for field in EvidenceRow._meta.concrete_fields if field.name not in ("id", "key")]
        EvidenceRow.objects.bulk_update(change, names, batch_size=100)
    return len(create), len(change), len(rows) - len(create) - len(change)


def keep_held(rows: Iterable[Row], done: EvidenceImport) -> int:
    """Holds rows with their `reason`, except those that wait already or that a person has decided about."""
    known = {mark(held.row) for held in HeldEvidence.objects.only("row")}
    new = [row for row in rows if mark(row) not in known]
    held = [
        HeldEvidence(
            evidence_import=done,
            reason=row["reason"],
            row={name: value for name, value in row.items() if name != "reason"},
        )
        for row in new
    ]
    HeldEvidence.objects.bulk_create(held, batch_size=500)
    return len(new)


def mark(row: Mapping[str, Any]) -> tuple[str, str]:
    """What two held rows have in common if they are the same figure: its ID and its value."""
    try:
        return str(row["id"]), f"{float(row['value']):.6g}"
    except ValueError:
        return str(row["id"]), str(row["value"])


def source(where: str, given: Mapping[str, Any]) -> Row:
    """A source of measured figures. `licence` is blank if it is not known."""
    check_keys(where, given, ("source_key", "as_of"), SOURCE_COLUMNS)
    try:
        return dict(given) | {"as_of": date.fromisoformat(given["as_of"])}
    except ValueError as error:
        raise FixtureError(f"{where}: as_of must be a date (YYYY-MM-DD)") from error


def held_row(where: str, given: Mapping[str, Any]) -> Row:
    check_keys(where, given, ("reason", "id", "source_key"), HELD_COLUMNS)
    return dict(given)


def rows_of(path: Path) -> Iterable[Row]:
    """The rows of one source, which is the name of the file, with the columns of an EvidenceRow."""
    run: Row = {}
    for given in table(path, COLUMNS, unchecked):
        if given["accelerator"]:
            run = {name: given[name] for name in (*RUN, *SAID)}
        if not run:
            raise FixtureError(f"{path.name}: {given['key']}: its run has no accelerator")
        figures = {name: given[name] for name in FIGURES if name != "task"}
        row = scored_row(f"{path.name}: {given['key']}", EMPTY | figures | {name: run[name] for name in RUN})
        said = {name: run.get(f"given_{name}", "") for name in GIVEN} | {"task": given["task"]}
        row["given"] = {name: value for name, value in said.items() if value}
        yield row | {"source_key": path.stem}


EMPTY = {"bias_fraction": "", "inside": "", "pair_index": "", "circumstance": ""}


def write(directory: Path, sources: Iterable[EvidenceImport]) -> int:
    """Writes the newest description of each source with its rows and held rows. Returns the number of figures."""
    directory.mkdir(parents=True, exist_ok=True)
    about = sorted(sources, key=lambda each: each.source_key)
    with (directory / SOURCES).open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(SOURCE_COLUMNS)
        writer.writerows([getattr(each, name) for name in SOURCE_COLUMNS] for each in about)
    count = 0
    for each in about:
        rows = list(EvidenceRow.objects.filter(source_key=each.source_key).order_by("pk"))
        if rows:
            _write_rows(directory / f"{each.source_key}.csv", rows)
        count += len(rows)
    held = HeldEvidence.objects.filter(
        state=HeldEvidence.State.HELD, evidence_import__source_key__in=[each.source_key for each in about]
    )
    with (directory / HELD).open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(HELD_COLUMNS)
        for each_held in held:
            writer.writerow([each_held.reason, *(each_held.row.get(name, "") for name in MEASURED)])
            count += 1
    return count


def _write_rows(path: Path, rows: Iterable[EvidenceRow]) -> None:
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(COLUMNS)
        last: list[str] = []
        for row in rows:
            run = [_cell(name, getattr(row, name)) for name in RUN]
            run += [row.given.get(name, "") for name in GIVEN if name != "task"]
            shown = [""] * len(run) if run == last else run
            figures = [cell(getattr(row, name)) for name in FIGURES if name != "task"]
            writer.writerow([*figures, row.given.get("task", ""), *shown])
            last = run


def _cell(name: str, value: Any) -> str:
    return f"{value:.9g}" if name in EXACT and value is not None else cell(value)


def measured_row(row: EvidenceRow) -> dict[str, str]:
    """The figure as `fidelity` and `calibrate` read it."""
    own = {
        "id": row.key, "metric": row.metric, "value": f"{row.measured:.7g}", "model_id": row.model,
        "accelerator_slug": row.accelerator, "mode": row.mode, "source_key": row.source_key,
    }  # fmt: skip
    return dict.fromkeys(MEASURED, "") | row.given | own
