"""Reads measured rows and refuses cells that no row can have, before anything is predicted."""

import re
from collections.abc import Container
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from advisor.fidelity.rows import COLUMNS, MeasurementsError, Row, case_of
from advisor.fidelity.rows import read as read_rows
from advisor.fidelity.training.rows import training_case

SHOWN_CHARACTERS = 80
HOW_READ = ("task", "metric", "source_key")  # decide how the other columns are read
IN_DOUBT = (*(name for name in COLUMNS if name not in ("value", *HOW_READ)), *HOW_READ)


class Everything:
    """Has every name."""

    def __contains__(self, name: object) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class AnyCatalog:
    """A catalog with every model and accelerator: whether a row can be read must not depend on the catalog."""

    models: Container[str] = Everything()
    accelerators: Container[str] = Everything()


def read(path: str | Path) -> list[Row]:
    """The rows of a measurements file. MeasurementsError names the file, the row and the column of a bad cell."""
    rows = read_rows(path)
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


def fault(row: Row) -> str:
    """Why nothing can be derived from a row; empty if something can."""
    try:
        if row.task == "training":
            training_case(row)
        else:
            case_of(row, AnyCatalog())
    except (ValueError, ArithmeticError, LookupError, TypeError) as error:
        return str(error)
    return ""
