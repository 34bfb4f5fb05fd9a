"""A list as a file: the columns that are shown, of every row that the address leaves."""

import csv
import io
import re
from typing import Any

from django.http import HttpResponse, JsonResponse
from django_tables2 import Table

FORMATS = ("csv", "json")
FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")  # a text that begins like this would run in a spreadsheet
BREAKS = ("\t", "\r", "\n")  # some spreadsheets begin a new cell here
NUMBER = re.compile(r"[+-]?\d+(\.\d+)?(e[+-]?\d+)?")


def response(table: Table, name: str, form: str) -> HttpResponse:
    """The list as CSV or JSON, to be saved."""
    columns = [column for column in table.columns if not column.column.exclude_from_export]
    names = [column.name for column in columns]
    rows = [[value(row, name) for name in names] for row in table.rows]
    if form == "json":
        found = [dict(zip(names, row, strict=True)) for row in rows]
        answer: HttpResponse = JsonResponse({"count": len(found), "results": found})
    else:
        answer = HttpResponse(text(names, rows), content_type="text/csv; charset=utf-8")
    answer["Content-Disposition"] = f'attachment; filename="{name}.{form}"'
    return answer


def value(row: Any, name: str) -> Any:
    """A cell as it is stored, not as it is shown."""
    found = row.get_cell_value(name)
    return found if found is None or isinstance(found, str | int | float | bool | list | dict) else plain(found)


def plain(found: Any) -> Any:
    """Dates and exact numbers as they are; a row of another table by its own name."""
    if hasattr(found, "quantize"):
        return float(found)
    return found.isoformat() if hasattr(found, "isoformat") else getattr(found, "slug", str(found))


def text(names: list[str], rows: list[list[Any]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([[cell(each) for each in row] for row in rows])
    return out.getvalue()


def cell(found: Any) -> Any:
    """A value for a CSV file; text that a spreadsheet would run as a formula gets a quote before it."""
    shown = "; ".join(map(str, found)) if isinstance(found, list) else found
    if not isinstance(shown, str) or NUMBER.fullmatch(shown):
        return shown
    return f"'{shown}" if shown.startswith(BREAKS) or shown.lstrip().startswith(FORMULA) else shown
