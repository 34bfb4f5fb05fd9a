"""Draws a table of django-tables2. Its own template asks for the signature of a function and the CSS classes in every
cell, which took three quarters of a list page's time; here both are asked for once a column."""

import inspect
from collections.abc import Callable
from html import escape
from typing import Any

from django.http import QueryDict
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from django_tables2 import Table

Cell = Callable[[Any], str]
GIVEN = ("value", "record", "column", "bound_column", "table")  # what a render function may ask for


def html(table: Table, query: QueryDict) -> SafeString:
    """The table with its head; links in the head sort it and keep the rest of the address."""
    columns = list(table.columns)
    heads = [head(table, column, query) for column in columns]
    cells = [(open_tag(column), cell_of(table, column)) for column in columns]
    rows = ["".join([tag + cell(row.record) + "</td>" for tag, cell in cells]) for row in table.paginated_rows]
    body = "".join([f"<tr>{row}</tr>\n" for row in rows])
    # each cell is escaped by `cell_of`
    return mark_safe(  # noqa: S308
        f'<table class="table">\n<thead><tr>{"".join(heads)}</tr></thead>\n<tbody>\n{body}</tbody>\n</table>'
    )


def changed(query: QueryDict, **changes: object) -> str:
    """The query string with other values; None removes one."""
    copy = query.copy()
    for name, value in changes.items():
        copy.pop(name, None)
        if value is not None:
            copy[name] = str(value)
    return "?" + copy.urlencode()


def head(table: Table, bound: Any, query: QueryDict) -> str:
    """A heading; if the column can be sorted, a link that sorts by it, or turns the order round."""
    given = bound.column.attrs.get("th", {})
    sorted_by = bound.order_by_alias
    order = ""
    if bound.is_ordered:
        order = "ascending" if sorted_by.is_ascending else "descending"
    attributes = {"class": given.get("class", ""), "aria-sort": order}
    flat = format_html_join("", ' {}="{}"', ((name, value) for name, value in attributes.items() if value))
    if spoken := getattr(bound.column, "spoken", ""):
        return format_html('<th scope="col"><span class="unseen">{}</span></th>', spoken)
    if not bound.orderable:
        return format_html('<th scope="col"{}>{}</th>', flat, bound.header)
    link = changed(query, **{table.prefixed_order_by_field: sorted_by.next, table.prefixed_page_field: None})
    return format_html('<th scope="col"{}><a href="{}">{}</a></th>', flat, link, bound.header)


def open_tag(bound: Any) -> str:
    css = bound.column.attrs.get("td", {}).get("class", "")
    return format_html('<td class="{}">', css) if css else "<td>"


def escaped(value: Any) -> str:
    """As Django's conditional_escape, without its support of lazy texts, which costs more than the rest of a cell."""
    return str(value) if isinstance(value, SafeString) else escape(str(value))


def cell_of(table: Table, bound: Any) -> Cell:
    """What turns a row into the escaped text of one column."""
    column = bound.column
    render = getattr(table, f"render_{bound.name}", None) or column.render
    wanted = [name for name in GIVEN if name in inspect.signature(render).parameters]
    fixed = {"column": column, "bound_column": bound, "table": table}
    passed = {name: fixed[name] for name in wanted if name in fixed}
    with_value, with_record = "value" in wanted, "record" in wanted
    empty, absent = column.empty_values, escaped(bound.default)
    parts = bound.accessor.bits

    def cell(record: Any) -> str:
        value = record
        for part in parts:
            value = value.get(part) if isinstance(value, dict) else getattr(value, part, None)
            if value is None:
                break
        if value in empty:
            return absent
        if with_value:
            passed["value"] = value
        if with_record:
            passed["record"] = record
        return escaped(render(**passed))

    return cell
