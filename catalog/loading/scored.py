"""The scorecard files: scored rows by source, the engine and calibration they were scored with, and the sources."""

import csv
import hashlib
import math
import re
from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any

from catalog.loading.fixtures import FixtureError, Row, check_keys, read_yaml, refuse_duplicates, table
from catalog.models import Accelerator, Scorecard, ScoredRow

HEAD = "scorecard.yaml"
SOURCES = "sources.csv"
HEAD_KEYS = ("engine_version", "calibration", "as_of", "rows", "skipped", "left_out", "intervals")
SOURCE_COLUMNS = ("source_key", "name", "address", "licence", "figures", "as_of", "meaning")
NUMBERS = ("measured", "predicted", "low", "high", "bias_fraction", "isl", "osl", "concurrency")
COUNTS = ("chips", "pair_index")
FLAGS = ("inside", "client_known")
FIGURES = (
    *("key", "metric", "measured", "predicted", "low", "high", "bias_fraction", "inside", "pair_index", "circumstance"),
    "note",
)
RUN = (  # written once per run: a row with a blank accelerator belongs to the run above it
    *("accelerator", "chips", "model", "framework", "framework_version", "weights_dtype", "mode", "layout"),
    *("isl", "osl", "concurrency", "client", "client_known", "phase", "basis", "measured_on"),
)
COLUMNS = (*FIGURES, *RUN)
DIGITS = 4  # significant digits of a written figure


def load(directory: Path) -> tuple[int, int]:
    """Replaces the scorecard if the files changed. Returns the numbers of rows written and unchanged."""
    if not (directory / HEAD).exists():
        return 0, 0
    digest = digest_of(directory)
    if Scorecard.objects.filter(digest=digest).exists():
        return 0, ScoredRow.objects.count()
    head = read_head(directory / HEAD)
    known = {row["source_key"]: row for row in sources(directory / SOURCES)}
    paths = [path for path in sorted(directory.glob("*.csv")) if path.name != SOURCES]
    if unknown := [path.name for path in paths if path.stem not in known]:
        raise FixtureError(f"{directory.name}: {', '.join(unknown)}: the source is not in {SOURCES}")
    families = {slug: family.replace(" ", "-") for slug, family in Accelerator.objects.values_list("slug", "family")}
    rows = [row | {"family": families.get(row["accelerator"], "")} for path in paths for row in scored_rows(path)]
    refuse_duplicates("scored rows", rows, ("key",))
    if len(rows) != head["rows"]:
        raise FixtureError(
            f"{HEAD} states {head['rows']} rows, but the files have {len(rows)}; run fidelity --write-docs again"
        )
    Scorecard.objects.all().delete()
    ScoredRow.objects.all().delete()
    ScoredRow.objects.bulk_create((ScoredRow(**row) for row in rows), batch_size=1000)
    used = {path.stem: known[path.stem] for path in paths}
    figures = {key: value for key, value in head.items() if key != "rows"}
    Scorecard.objects.create(digest=digest, sources=used, **figures)
    return len(rows), 0


def read_head(path: Path) -> Row:
    """The head of the scorecard: engine version, calibration, date and counts."""
    given = read_yaml(path)
    check_keys(path.name, given, ("engine_version", "calibration", "as_of", "rows"), HEAD_KEYS)
    if not isinstance(given["as_of"], date):
        raise FixtureError(f"{path.name}: as_of must be a date (YYYY-MM-DD)")
    return dict(given)


def sources(path: Path) -> Iterator[Row]:
    """The sources of measured rows. `figures`: whether their license allows the measured figures to be shown."""
    return table(path, SOURCE_COLUMNS, source)


def source(where: str, given: Mapping[str, Any]) -> Row:
    check_keys(where, given, SOURCE_COLUMNS)
    if given["figures"] not in ("shown", "kept out"):
        raise FixtureError(f"{where}: figures must be 'shown' or 'kept out'")
    return dict(given)


def scored_rows(path: Path) -> Iterator[Row]:
    """The rows of one source, which is the name of the file."""
    run: Row = {}
    for given in table(path, COLUMNS, unchecked):
        if given["accelerator"]:
            run = {name: given[name] for name in RUN}
        where = f"{path.name}: {given['key']}"
        yield scored_row(where, given | run) | {"source_key": path.stem}


def unchecked(where: str, given: Mapping[str, Any]) -> Row:
    return dict(given)


def scored_row(where: str, given: Mapping[str, Any]) -> Row:
    """A measured figure with its prediction."""
    required = ("key", "metric", "accelerator", "chips", "framework", "mode", "isl", "osl", "client", "client_known")
    check_keys(where, given, required, COLUMNS)
    row: Row = dict(given)
    try:
        row |= {name: float(given[name]) if given[name] else None for name in NUMBERS}
        row |= {name: int(given[name]) if given[name] else None for name in COUNTS}
        row |= {name: {"": None, "0": False, "1": True}[given[name]] for name in FLAGS}
    except (ValueError, KeyError) as error:
        raise FixtureError(f"{where}: {error}") from error
    row["replica_chips"] = replica_chips(row["layout"])
    if row["measured"] and row["predicted"] is not None:
        row["bias_fraction"] = row["predicted"] / row["measured"] - 1.0
    if row["measured"] is not None and row["low"] is not None:
        row["inside"] = row["low"] <= row["measured"] <= row["high"]
    return row


def replica_chips(layout: str) -> int | None:
    """Chips per replica, from a layout such as tp8 (disaggregated: of the decode pool); None if not stated."""
    sizes = [int(number) for number in re.findall(r"(?:tp|pp|dp)(\d+)", layout.rpartition("|")[2])]
    return math.prod(sizes) if sizes else None


def write(path: Path, rows: list[Mapping[str, Any]]) -> None:
    """Writes the file of one source. Columns of a run are written on its first row only."""
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(COLUMNS)
        last: list[str] = []
        for row in rows:
            run = [cell(row[name]) for name in RUN]
            writer.writerow([*figures(row), *([""] * len(RUN) if run == last else run)])
            last = run


def figures(row: Mapping[str, Any]) -> list[str]:
    """The figure columns of a row; blank where they can be computed from the others."""
    computed = ("bias_fraction", "inside") if row["measured"] and row["predicted"] is not None else ()
    return [cell("" if name in computed else row[name]) for name in FIGURES]


def cell(value: Any) -> str:
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float):
        rounded = float(f"{value:.{DIGITS}g}")
        return f"{rounded:.0f}" if abs(rounded) >= 10**DIGITS else f"{rounded:.{DIGITS}g}"
    return "" if value is None else str(value)


def digest_of(directory: Path) -> str:
    """A SHA-256 digest of the scorecard files."""
    total = hashlib.sha256()
    for path in [directory / HEAD, *sorted(directory.glob("*.csv"))]:
        total.update(path.name.encode() + path.read_bytes())
    return total.hexdigest()
