"""Filters of the list of advice, which the page and REST share, and those that REST alone has."""

# mypy: allow-subclassing-any

from typing import Any

import django_filters
from django import forms

from advisor.engine.terms import KINDS
from advisor.models import Advice
from advisor.templatetags.units import STATES
from advisor.workload import PORTFOLIO
from catalog.lists import filters

KINDS_ASKED = {**{kind.name: kind.title for kind in KINDS.values()}, PORTFOLIO: "several workloads on one fleet"}


class AdviceFilters(django_filters.FilterSet):
    """Kind, state and days of the request."""

    kind = django_filters.ChoiceFilter(
        field_name="workload__spec__kind", label="Kind", choices=list(KINDS_ASKED.items()), empty_label="Any"
    )
    state = django_filters.ChoiceFilter(
        label="State",
        choices=[(name, STATES.get(name, name)) for name in Advice.State.values],
        empty_label="Any",
    )
    since = filters.Day(field_name="created_at", lookup_expr="date__gte", label="Requested from")
    until = filters.Day(field_name="created_at", lookup_expr="date__lte", label="Requested until")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in ("since", "until"):
            self.filters[name].extra["widget"] = forms.DateInput(attrs={"type": "date"})


class RestAdviceFilters(AdviceFilters):
    """The same, and a part of the name, the model and the author."""

    name = django_filters.CharFilter(field_name="workload__name", lookup_expr="icontains", label="Part of the name")
    model = django_filters.CharFilter(
        field_name="workload__spec__model", lookup_expr="icontains", label="Part of the model's name"
    )
    author = django_filters.CharFilter(field_name="made_by", label="User name, or `token NAME`; exact")

    class Meta:
        model = Advice
        fields = ["name", "model", "kind", "state", "author", "since", "until"]
