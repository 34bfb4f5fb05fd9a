"""REST lists: paged within bounds, sorted and narrowed in the URL; what a list does not know is refused."""

import re
from collections.abc import Collection
from typing import Any

from django.db.models import F, QuerySet
from django_filters.rest_framework import CharFilter, DjangoFilterBackend
from rest_framework import pagination
from rest_framework.exceptions import ValidationError
from rest_framework.filters import BaseFilterBackend, OrderingFilter
from rest_framework.request import Request

FARTHEST = 10_000_000
SORTS = ("ordering", "sort")


class Pages(pagination.LimitOffsetPagination):
    """limit and offset, both bounded: a database knows no larger number than 64 bits hold."""

    default_limit = 50
    max_limit = 1000

    def get_limit(self, request: Request) -> int | None:
        refuse_no_number(request, "limit", 1)
        return super().get_limit(request)

    def get_offset(self, request: Request) -> int:
        refuse_no_number(request, "offset", 0)
        return min(super().get_offset(request), FARTHEST)

    def get_schema_operation_parameters(self, view: Any) -> list[dict[str, Any]]:
        return [
            page_parameter("limit", 1, f"Rows of a page: {self.default_limit} without it, {self.max_limit} at most."),
            page_parameter("offset", 0, "Rows to skip."),
        ]


def page_parameter(name: str, least: int, description: str) -> dict[str, Any]:
    schema = {"type": "integer", "minimum": least}
    return {"name": name, "in": "query", "required": False, "description": description, "schema": schema}


def refuse_no_number(request: Request, name: str, least: int) -> None:
    """A page that was asked for in words would quietly be the first one."""
    asked = request.query_params.get(name)
    if asked is not None and not (re.fullmatch("[0-9]{1,4000}", asked) and (least == 0 or asked.strip("0"))):
        raise ValidationError({name: [f"Enter a whole number, {least} or more, or leave {name} out."]})


class Ordering(OrderingFilter):
    """`ordering`, or `sort` as in the pages; rows without the figure come last."""

    def get_ordering(self, request: Request, queryset: QuerySet[Any], view: Any) -> Any:
        asked = {key: request.query_params[key].split(",") for key in SORTS if request.query_params.get(key)}
        terms = {key: [term.strip() for term in given] for key, given in asked.items()}
        known = [field for field, _ in self.get_valid_fields(queryset, view, {"request": request})]
        for key, given in terms.items():
            if unknown := [term for term in given if term.removeprefix("-") not in known]:
                raise ValidationError(
                    {key: [f"{', '.join(unknown)}: nothing to sort by; there are {', '.join(known)}"]}
                )
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
        said = ("Columns to sort by, '-' for descending.", "The same as ordering, which wins when both are given.")
        return [
            {
                "name": name, "in": "query", "required": False, "description": description, "style": "form",
                "explode": False, "schema": {"type": "array", "items": terms, "minItems": 1},
            }
            for name, description in zip(SORTS, said, strict=True)
        ]  # fmt: skip


class KnownParameters(BaseFilterBackend):
    """A filter that does not exist would answer with every row: it is refused, and those that exist are named.

    An empty value is only a text to look for; a form of a page sends its empty fields, a program has no reason to.
    """

    def filter_queryset(self, request: Request, queryset: QuerySet[Any], view: Any) -> QuerySet[Any]:
        narrowing = DjangoFilterBackend().get_filterset_class(view, queryset)
        filters = narrowing.base_filters if narrowing else {}
        sorting = SORTS if Ordering in view.filter_backends else ()
        refuse_unknown(request, {"limit", "offset", "format", *sorting, *filters})
        texts = {name for name, each in filters.items() if isinstance(each, CharFilter)}
        refuse_empty(request, {*sorting, *filters} - texts)
        return queryset


def refuse_unknown(request: Request, known: set[str], repeatable: Collection[str] = ()) -> None:
    """ValidationError names each parameter of the URL that is not among these, or is given more than once."""
    asked = request.query_params
    said = f"there is no such parameter; there are {', '.join(sorted(known - {'format'}))}"
    found = {name: [said] for name in sorted(set(asked) - known)}
    found |= {name: ["Give it once."] for name in asked if len(asked.getlist(name)) > 1 and name not in repeatable}
    if found:
        raise ValidationError(found)


def refuse_empty(request: Request, names: Collection[str]) -> None:
    asked = request.query_params
    if empty := sorted(name for name in names if name in asked and not asked[name].strip()):
        raise ValidationError({name: [f"Give {name} a value, or leave it out."] for name in empty})


def columns(model: type[Any]) -> tuple[str, ...]:
    """The columns that a list can be sorted by: all but documents."""
    kept = [each for each in model._meta.concrete_fields if each.get_internal_type() != "JSONField"]
    return tuple(each.name for each in kept if each.name not in ("id", "organisation"))
