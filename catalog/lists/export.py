"""Exports a list as CSV or JSON: the visible columns of every row that matches the filters."""

import csv
import io
import re
from typing import Any

from django.http import HttpResponse, JsonResponse
from django_tables2 import Table

FORMATS = ("csv", "json")
FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")  # a spreadsheet would run text that starts with one of these
BREAKS = ("\t", "\r", "\n")  # some spreadsheets start a new cell here
NUMBER = re.compile(r"[+-]?\d+(\.\d+)?(e[+-]?\d+)?")


def response(table: Table, name: str, form: str) -> HttpResponse:
    """The list as a download in CSV or JSON."""
    columns = [column for column in table.columns if not column.column.exclude_from_export]
    names = [column.name for column in columns]
    rows = [[value(row, name) for name in names] for row in table.rows]
    if form == "json":
        results = [dict(zip(names, row, strict=True)) for row in rows]
        answer = JsonResponse({"count": len(results), "results": results})
        answer["Content-Disposition"] = f'attachment; filename="{name}.json"'
        return answer
    return csv_file(name, names, rows)


def csv_file(name: str, columns: list[str], rows: list[list[Any]]) -> HttpResponse:
    """A download in CSV."""
    answer = HttpResponse(text(columns, rows), content_type="text/csv; charset=utf-8")
    answer["Content-Disposition"] = f'attachment; filename="{name}.csv"'
    return answer


def value(row: Any, name: str) -> Any:
    """The stored value of a cell, JSON-serializable."""
    stored = row.get_cell_value(name)
    return stored if stored is None or isinstance(stored, str | int | float | bool | list | dict) else plain(stored)


def plain(stored: Any) -> Any:
    """Decimals as floats, dates as ISO text, related rows as their slug."""
    if hasattr(stored, "quantize"):
        return float(stored)
    return stored.isoformat() if hasattr(stored, "isoformat") else getattr(stored, "slug", str(stored))


def text(names: list[str], rows: list[list[Any]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([[cell(each) for each in row] for row in rows])
    return out.getvalue()


def cell(value: Any) -> Any:
    """A value for a CSV file. Text that a spreadsheet would run as a formula is prefixed with a quote."""
    shown = "; ".join(map(str, value)) if isinstance(value, list) else value
    if not isinstance(shown, str) or NUMBER.fullmatch(shown):
        return shown
    return f"'{shown}" if shown.startswith(BREAKS) or shown.lstrip().startswith(FORMULA) else shown
