"""Reads files of measured rows for `fidelity` and `calibrate`; a cell that no row can have is refused by name."""

import csv
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from advisor.fidelity.checked_rows import fault
from advisor.fidelity.rows import COLUMNS, Row, number

MAX_BYTES = 64 * 2**20
SHOWN_CHARACTERS = 80
HOW_READ = ("task", "metric", "source_key")  # decide how the other columns are read
IN_DOUBT = (*(name for name in COLUMNS if name not in ("value", *HOW_READ)), *HOW_READ)


class MeasurementsError(ValueError):
    """The file is not a valid table of measured rows."""


def read(path: str | Path) -> list[Row]:
    """The rows of a measurements file. MeasurementsError names the file, the row and the column of a bad cell."""
    rows = unchecked(path)
    for row in rows:
        check(row, str(path))
    return rows


def check(row: Row, where: str) -> None:
    """MeasurementsError: a cell has a value from which no deployment, run or client follows."""
    if reason := fault(row):
        column = column_of(row, reason)
        cell = f", column {column}: {getattr(row, column)[:SHOWN_CHARACTERS]!r}" if column else ""
        raise MeasurementsError(
            f"{where}: row {row.id}{cell} cannot be read ({reason}); correct the cell or remove the row"
        )


def column_of(row: Row, reason: str) -> str:
    """The column at fault: the reason shows a part of its text, and without the text the row can be read.

    A row of a disaggregated deployment cannot be read without its pools either, so the second alone does not decide.
    """
    cured = [name for name in IN_DOUBT if not fault(with_blank(row, name))]
    shown = [name for name in IN_DOUBT if any(part in reason for part in parts_of(getattr(row, name)))]
    return next(iter([*(name for name in cured if name in shown), *shown, *cured]), "")


def parts_of(text: str) -> list[str]:
    return [part for part in re.split(r"[;, ]", text) if part]


def with_blank(row: Row, name: str) -> Row:
    changes: dict[str, Any] = {name: ""}
    return replace(row, **changes)


def unchecked(path: str | Path) -> list[Row]:
    """The rows of a measurements file; extra columns are ignored. Raises MeasurementsError."""
    path = Path(path)
    if not path.is_file():
        raise MeasurementsError(f"{path}: no such file; expected a CSV file with the columns of measured rows")
    if path.stat().st_size > MAX_BYTES:
        raise MeasurementsError(f"{path}: is larger than {MAX_BYTES // 2**20} MiB")
    try:
        with path.open(newline="", encoding="utf-8-sig") as lines:
            return _rows(csv.DictReader(lines), path)
    except UnicodeDecodeError as error:
        raise MeasurementsError(f"{path}: is not UTF-8 text ({error.reason} at byte {error.start})") from error
    except OSError as error:
        raise MeasurementsError(f"{path} cannot be read: {error.strerror}; check its permissions") from error


def _rows(reader: "csv.DictReader[str]", path: Path) -> list[Row]:
    if missing := [name for name in COLUMNS if name not in (reader.fieldnames or ())]:
        raise MeasurementsError(f"{path}: missing columns {', '.join(missing)}")
    rows = []
    for record in reader:
        if any(record[name] is None for name in COLUMNS):
            raise MeasurementsError(f"{path}, line {reader.line_num}: fewer cells than columns")
        text = {name: record[name].strip() for name in COLUMNS if name != "value"}
        rows.append(Row(value=number(record["value"], math.nan), **text))
    if len({row.id for row in rows}) != len(rows):
        raise MeasurementsError(f"{path}: two rows have the same ID")
    return rows
