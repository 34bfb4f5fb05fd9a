"""REST lists: paged within bounds, sorted and narrowed in the URL; what a list does not know is refused."""

from typing import Any

from django.db.models import F, QuerySet
from django_filters.rest_framework import DjangoFilterBackend
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


def refuse_no_number(request: Request, name: str, least: int) -> None:
    """A page that was asked for in words would quietly be the first one."""
    asked = request.query_params.get(name, "")
    if asked and not (asked.isdecimal() and (least == 0 or asked.strip("0"))):
        raise ValidationError({name: [f"a whole number from {least} on was expected"]})


class Ordering(OrderingFilter):
    """`ordering`, or `sort` as in the pages; rows without the figure come last."""

    def get_ordering(self, request: Request, queryset: QuerySet[Any], view: Any) -> Any:
        name = next((key for key in SORTS if request.query_params.get(key)), "")
        terms = [term.strip() for term in request.query_params[name].split(",")] if name else []
        kept = self.remove_invalid_fields(queryset, terms, view, request)
        if unknown := [term for term in terms if term not in kept]:
            known = ", ".join(sorted(field for field, _ in self.get_valid_fields(queryset, view, {"request": request})))
            raise ValidationError({name: [f"{', '.join(unknown)}: nothing to sort by; there are {known}"]})
        return kept or self.get_default_ordering(view)

    def filter_queryset(self, request: Request, queryset: QuerySet[Any], view: Any) -> QuerySet[Any]:
        terms = self.get_ordering(request, queryset, view) or ()
        keys = [F(term.lstrip("-")) for term in terms]
        ordered = [
            key.desc(nulls_last=True) if term.startswith("-") else key.asc(nulls_last=True)
            for term, key in zip(terms, keys, strict=True)
        ]
        return queryset.order_by(*ordered, "pk") if ordered else queryset


class KnownParameters(BaseFilterBackend):
    """A filter that does not exist would answer with every row: it is refused, and those that exist are named."""

    def filter_queryset(self, request: Request, queryset: QuerySet[Any], view: Any) -> QuerySet[Any]:
        narrowing = DjangoFilterBackend().get_filterset_class(view, queryset)
        sorting = SORTS if Ordering in view.filter_backends else ()
        known = {"limit", "offset", "format", *sorting, *(narrowing.base_filters if narrowing else ())}
        refuse_unknown(request, known)
        return queryset


def refuse_unknown(request: Request, known: set[str]) -> None:
    """ValidationError names each parameter of the URL that is not among these."""
    said = f"there is no such parameter; there are {', '.join(sorted(known - {'format'}))}"
    if unknown := sorted(set(request.query_params) - known):
        raise ValidationError({name: [said] for name in unknown})


def columns(model: type[Any]) -> tuple[str, ...]:
    """The columns that a list can be sorted by: all but documents."""
    kept = [each for each in model._meta.concrete_fields if each.get_internal_type() != "JSONField"]
    return tuple(each.name for each in kept if each.name not in ("id", "organisation"))
