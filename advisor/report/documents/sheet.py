"""Cells of a workbook: values, inputs that a reader may change, and formulas with their values."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from xlsxwriter import Workbook
from xlsxwriter.utility import xl_col_to_name, xl_rowcol_to_cell
from xlsxwriter.worksheet import Worksheet

USD, UNIT_USD, RATE, RATIO = "#,##0.00;[Red]-#,##0.00", "#,##0.0000", "0.0000%", "0.0000"
WHOLE, HOURS, PLAIN = "#,##0", "#,##0.00", "General"
FIRST_WIDTH, WIDTH, MOST_COLUMNS = 44, 17, 60
INPUT = {"bg_color": "#FFF7D6", "font_color": "#1F3FBF"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Formula:
    """A formula and its value, which viewers that do not calculate show."""

    text: str
    value: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Sheet:
    """A worksheet; rows and columns count from 0."""

    book: Workbook
    page: Worksheet
    formats: dict[tuple[str, bool, bool], Any] = field(default_factory=dict)

    def put(self, row: int, column: int, value: Any, number: str = PLAIN, given: bool = False) -> str:
        """Writes a value, shown as `number`, and returns its address; `given`: a reader may change it."""
        style = self.style(number, given)
        if isinstance(value, Formula):
            self.page.write_formula(row, column, value.text, style, value.value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            self.page.write_number(row, column, value, style)
        elif value is not None:
            shown = "; ".join(map(str, value)) if isinstance(value, list) else str(value)
            self.page.write_string(row, column, shown, style)
        return self.at(row, column)

    def style(self, number: str = PLAIN, given: bool = False, bold: bool = False) -> Any:
        key = number, given, bold
        if key not in self.formats:
            look = {"num_format": number, "bold": bold, "text_wrap": bold, "valign": "top"}
            self.formats[key] = self.book.add_format({**look, **(INPUT if given else {})})
        return self.formats[key]

    def at(self, row: int, column: int) -> str:
        """The address of a cell, with the name of the sheet."""
        return f"'{self.page.name}'!{xl_rowcol_to_cell(row, column, row_abs=True, col_abs=True)}"

    def range(self, column: int, first: int, last: int) -> str:
        """The address of rows first .. last of a column."""
        name = xl_col_to_name(column)
        return f"'{self.page.name}'!${name}${first + 1}:${name}${last + 1}"

    def head(self, names: Sequence[str], row: int = 0) -> None:
        """Column titles; those in the first row stay in view."""
        for column, name in enumerate(names):
            self.page.write_string(row, column, name, self.style(bold=True))
        if row == 0:
            self.page.freeze_panes(1, 1)

    def rows(self, values: Iterable[Sequence[Any]], numbers: Sequence[str] = (), first: int = 1) -> int:
        """Rows of plain values; returns the row after the last."""
        row = first
        for row, line in enumerate(values, start=first + 1):
            for column, value in enumerate(line):
                self.put(row - 1, column, value, numbers[column] if column < len(numbers) else PLAIN)
        return row


def sheets_of(book: Workbook, names: Sequence[str]) -> dict[str, Sheet]:
    """Empty sheets with common formats and widths."""
    formats: dict[tuple[str, bool, bool], Any] = {}
    found = {name: Sheet(book=book, page=book.add_worksheet(name), formats=formats) for name in names}
    for sheet in found.values():
        sheet.page.set_column(0, 0, FIRST_WIDTH)
        sheet.page.set_column(1, MOST_COLUMNS, WIDTH)
    return found
