"""Addresses of lists: filters, sorting and columns in a short query string."""

from collections.abc import Sequence

from django.http import QueryDict

NOT_KEPT = ("apply", "page", "format")
TOOLS = ("compare", "tools")  # columns without a heading, which cannot be hidden


def short(query: QueryDict, usual_columns: Sequence[str]) -> str:
    """The query string without empty values, and with the columns in one value, or none if they are the usual ones."""
    copy = QueryDict(mutable=True)
    for name, values in query.lists():
        given = [value.strip() for value in values if value.strip()]
        if name in NOT_KEPT or not given:
            continue
        if name == "columns":
            given = short_columns(given, usual_columns)
        if given:
            copy.setlist(name, given)
    return f"?{copy.urlencode(safe=',')}" if copy else ""


def short_columns(given: Sequence[str], usual: Sequence[str]) -> list[str]:
    """The chosen columns in one value; none if they are the usual ones. The first column is always shown."""
    columns = list(dict.fromkeys(part for value in given for part in value.split(",")))
    always = {*TOOLS, next(name for name in usual if name not in TOOLS)}
    return [] if set(columns) | always == set(usual) | always else [",".join(columns)]


def without(query: QueryDict, name: str, value: str | None = None) -> str:
    """The query string without a parameter, or without one of its values; on the first page."""
    copy = query.copy()
    left = [] if value is None else [each for text in copy.getlist(name) for each in text.split(",") if each != value]
    for key in NOT_KEPT if left else (name, *NOT_KEPT):
        copy.pop(key, None)
    if left:
        copy.setlist(name, left)
    return f"?{copy.urlencode()}" if copy else "?"
