"""REST lists: pagination, sorting and filters in the URL. Unknown parameters are refused."""

import re
from collections.abc import Collection
from typing import Any, cast

from django.db.models import F, QuerySet
from django_filters.rest_framework import CharFilter, DjangoFilterBackend, MultipleChoiceFilter
from rest_framework import pagination
from rest_framework.exceptions import ValidationError
from rest_framework.filters import BaseFilterBackend, OrderingFilter
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.urls import replace_query_param

from catalog.rest import cursors
from catalog.rest.selection import APPLIED, NAME, selected

MAX_OFFSET = 10_000_000
SORTS = ("ordering", "sort")
PAGE = ("limit", "offset", "cursor")
MOST_NAMED = 30  # choices that an error names


class Pages(pagination.LimitOffsetPagination):
    """limit and offset, both bounded: databases fail on numbers over 64 bits; or limit and cursor."""

    default_limit = 50
    max_limit = 1000

    def get_limit(self, request: Request) -> int | None:
        refuse_non_number(request, "limit", 1)
        return super().get_limit(request)

    def get_offset(self, request: Request) -> int:
        refuse_non_number(request, "offset", 0)
        return min(super().get_offset(request), MAX_OFFSET)

    def paginate_queryset(self, queryset: Any, request: Request, view: Any = None) -> list[Any]:
        self.asked, self.view = request, view
        self.request = request  # of the framework's links
        self.limit, self.offset = self.get_limit(request) or self.default_limit, self.get_offset(request)
        self.count = self.get_count(queryset)
        place, rows = cursors.read(request), cursors.Rows(queryset)
        self.by_cursor = place is not None
        if place is not None:
            found, self.after, self.before = rows.page(place, self.limit)
            return found
        found = list(rows.found[self.offset : self.offset + self.limit])
        end, self.before = self.offset + len(found), None
        more = bool(found) and end < self.count
        self.after = (rows.place_of(found[-1]) if rows.orders else rows.place_at(end)) if more else None
        return found

    def get_paginated_response(self, data: Any) -> Response:
        data = selected(self.asked, self.view, data)
        setattr(self.asked._request, APPLIED, True)
        places = (self.after, self.before)
        after, before = (cursors.written(self.asked, place) if place is not None else None for place in places)
        following, preceding = self.get_next_link(), self.get_previous_link()
        if self.by_cursor:
            following, preceding = (self.link(text) if text else None for text in (after, before))
        pages = {"next": following, "previous": preceding, "next_cursor": after}
        return Response({"count": self.count, **pages, "results": data})

    def link(self, cursor: str) -> str:
        return replace_query_param(self.asked.build_absolute_uri(), "cursor", cursor)

    def get_schema_operation_parameters(self, view: Any) -> list[dict[str, Any]]:
        cursor = "`next_cursor` of a page, or empty for the first; other rows that come or go meanwhile move none."
        return [
            page_parameter("limit", 1, f"Rows per page: {self.default_limit} by default, {self.max_limit} at most."),
            page_parameter("offset", 0, "Rows to skip."),
            {"name": "cursor", "in": "query", "required": False, "description": cursor, "schema": {"type": "string"}},
        ]

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        """A page in OpenAPI 3.1, which has null as a type; the framework's own has 3.0's `nullable`."""
        link = {"type": ["string", "null"], "format": "uri"}
        properties = {
            "count": {"type": "integer", "description": "Rows on all pages."},
            "next": {**link, "description": "The next page; null on the last one."},
            "previous": {**link, "description": "The page before; null on the first one."},
            "next_cursor": {
                "type": ["string", "null"],
                "description": "`cursor` of the next page; null on the last.",
            },
            "results": schema,
        }
        return {"type": "object", "properties": properties, "required": list(properties)}


def page_parameter(name: str, minimum: int, description: str) -> dict[str, Any]:
    schema = {"type": "integer", "minimum": minimum}
    return {"name": name, "in": "query", "required": False, "description": description, "schema": schema}


def refuse_non_number(request: Request, name: str, minimum: int) -> None:
    """ValidationError unless the parameter is absent or a whole number: DRF would return the first page."""
    asked = request.query_params.get(name)
    if asked is not None and not (re.fullmatch("[0-9]{1,4000}", asked) and (minimum == 0 or asked.strip("0"))):
        raise ValidationError({name: [f"Enter a whole number, {minimum} or more, or leave {name} out."]})


class Ordering(OrderingFilter):
    """Sorts by `ordering`, or by `sort` as in the pages. Rows without a value come last."""

    def get_ordering(self, request: Request, queryset: QuerySet[Any], view: Any) -> Any:
        asked = {key: request.query_params[key].split(",") for key in SORTS if request.query_params.get(key)}
        terms = {key: [term.strip() for term in given] for key, given in asked.items()}
        known = [field for field, _ in self.get_valid_fields(queryset, view, {"request": request})]
        for key, given in terms.items():
            if unknown := [term for term in given if term.removeprefix("-") not in known]:
                raise ValidationError({key: [f"cannot sort by {', '.join(unknown)}; use one of {', '.join(known)}"]})
        return next(iter(terms.values()), None) or self.get_default_ordering(view)

    def filter_queryset(self, request: Request, queryset: QuerySet[Any], view: Any) -> QuerySet[Any]:
        terms = self.get_ordering(request, queryset, view) or ()
        keys = [F(term.lstrip("-")) for term in terms]
        ordered = [
            key.desc(nulls_last=True) if term.startswith("-") else key.asc(nulls_last=True)
            for term, key in zip(terms, keys, strict=True)
        ]
        return queryset.order_by(*ordered, "pk") if ordered else queryset

    def get_schema_operation_parameters(self, view: Any) -> list[dict[str, Any]]:
        names = sorted(view.ordering_fields)
        terms = {"type": "string", "enum": [*names, *(f"-{name}" for name in names)]}
        texts = (
            "Columns to sort by; '-' sorts in descending order.",
            "Same as ordering, which wins if both are given.",
        )
        return [
            {
                "name": name, "in": "query", "required": False, "description": description, "style": "form",
                "explode": False, "schema": {"type": "array", "items": terms, "minItems": 1},
            }
            for name, description in zip(SORTS, texts, strict=True)
        ]  # fmt: skip


class Filters(DjangoFilterBackend):
    """Filters by the URL's parameters. A value that is refused is refused with those that are allowed."""

    def filter_queryset(self, request: Request, queryset: QuerySet[Any], view: Any) -> QuerySet[Any]:
        try:
            return super().filter_queryset(request, queryset, view)
        except ValidationError as error:
            filterset = self.get_filterset(request, queryset, view)
            fields = filterset.form.fields if filterset else {}
            refused = cast(dict[str, Any], error.detail)
            said = {
                name: [f"{text}{choices_of(fields.get(name))}" for text in texts] for name, texts in refused.items()
            }
            raise ValidationError(said) from None


def choices_of(field: Any) -> str:
    """The values that a field of a form takes, as the end of a message; empty: any, or too many."""
    values = [str(value) for value, _ in getattr(field, "choices", ()) if value not in ("", None)]
    return f" Allowed are {', '.join(values)}." if 0 < len(values) <= MOST_NAMED else ""


class KnownParameters(BaseFilterBackend):
    """Refuses unknown parameters: a misspelled filter would return every row. The error lists the known ones.

    Empty values are accepted for text filters only; programs have no reason to send others empty, as page forms do.
    """

    def filter_queryset(self, request: Request, queryset: QuerySet[Any], view: Any) -> QuerySet[Any]:
        filterset = DjangoFilterBackend().get_filterset_class(view, queryset)
        filters = filterset.base_filters if filterset else {}
        sorting = SORTS if Ordering in view.filter_backends else ()
        several = {name for name, each in filters.items() if isinstance(each, MultipleChoiceFilter)}
        refuse_unknown(request, {*PAGE, *sorting, *filters}, several)
        texts = {name for name, each in filters.items() if isinstance(each, (CharFilter, MultipleChoiceFilter))}
        refuse_empty(request, {*sorting, *filters} - texts)
        return queryset


def refuse_unknown(request: Request, known: set[str], repeatable: Collection[str] = ()) -> None:
    """Raises ValidationError for URL parameters that are unknown or given more than once."""
    asked, known = request.query_params, known | {NAME, "format"}
    message = f"unknown parameter; allowed are {', '.join(sorted(known - {'format'}))}"
    errors = {name: [message] for name in sorted(set(asked) - known)}
    errors |= {
        name: ["Give it only once."] for name in asked if len(asked.getlist(name)) > 1 and name not in repeatable
    }
    if errors:
        raise ValidationError(errors)


def refuse_empty(request: Request, names: Collection[str]) -> None:
    asked = request.query_params
    if empty := sorted(name for name in names if name in asked and not asked[name].strip()):
        raise ValidationError({name: [f"Give {name} a value, or leave it out."] for name in empty})


def columns(model: type[Any]) -> tuple[str, ...]:
    """The columns that a list can be sorted by: all but JSON."""
    fields = [each for each in model._meta.concrete_fields if each.get_internal_type() != "JSONField"]
    return tuple(each.name for each in fields if each.name not in ("id", "organisation", "made_by"))
