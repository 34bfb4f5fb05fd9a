"""The list of advice: what was asked, what came first, who asked, with filters and search in the address."""

# mypy: allow-subclassing-any

from collections.abc import Mapping
from typing import Any

import django_filters
from django.core.paginator import Paginator
from django.db.models import Count, F, IntegerField, OuterRef, Prefetch, QuerySet, Subquery, Value
from django.db.models.functions import Coalesce
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from advisor import advise
from advisor.api import AdviceFilters
from advisor.inputs import what_if
from advisor.models import Advice, Comment, Option
from advisor.templatetags.units import dollars, given, percent_text
from advisor.web.answers.figure_rows import headers
from catalog.accounts import organisation_of
from catalog.lists import filters

PAGE_SIZE = 50
SORTS = {  # in the address: title, column
    "name": ("Workload", "workload__name"),
    "cost": ("Cost, USD", "first_usd_per_month"),
    "state": ("State", "state"),
    "asked": ("Requested", "created_at"),
}
NEWEST = "-asked"
SHOWN_CHANGES = 3
WAYS = {"rent": "rent", "own": "buy", "api": "hosted API"}
ALL_WAYS = set(WAYS)
LISTS = (  # of the constraints, with what is said of names that are allowed or denied
    ("accelerators", "only %s", "not %s"),
    ("vendors", "only %s", "not %s"),
    ("providers", "only from %s", "not from %s"),
    ("regions", "only in %s", "not in %s"),
    ("frameworks", "only with %s", "not with %s"),
    ("formats", "only weights in %s", "not weights in %s"),
)


class Filters(AdviceFilters):
    q = filters.Search("workload__name", "workload__spec__model", "made_by")
    author = django_filters.ChoiceFilter(field_name="made_by", label="Author", empty_label="Anyone")

    def __init__(self, *args: Any, authors: list[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.filters["author"].extra["choices"] = [(name, name) for name in authors]


@require_safe
def page(request: HttpRequest) -> HttpResponse:
    visible = advise.visible(organisation_of(request))
    authors = visible.exclude(made_by="").order_by("made_by").values_list("made_by", flat=True).distinct()
    filters = Filters(request.GET, queryset=visible, authors=list(authors))
    sort = request.GET.get("sort", NEWEST)
    sort = sort if sort.removeprefix("-") in SORTS else NEWEST
    shown = Paginator(sorted_rows(filters.qs, sort), PAGE_SIZE).get_page(request.GET.get("page"))
    context = {
        "page": shown,
        "rows": [(advice, about(advice)) for advice in shown],
        "form": filters.form,
        "narrowed": any(request.GET.get(name) for name in filters.filters),
        "more_open": any(request.GET.get(name) for name in filters.filters if name != "q") or bool(filters.form.errors),
        "headers": headers(sort, {name: title for name, (title, _) in SORTS.items()}),
        "sort": request.GET.get("sort", ""),
    }
    return render(request, "advisor/advice_list.html", context)


def sorted_rows(rows: QuerySet[Advice], sort: str) -> QuerySet[Advice]:
    """With what the list shows of each row, and without the documents that it does not show."""
    first = Option.objects.filter(advice=OuterRef("pk"), rank=1).values("usd_per_month")
    comments = Comment.objects.filter(advice=OuterRef("pk")).order_by()
    counted = comments.values("advice").annotate(n=Count("pk")).values("n")
    first_note = comments.order_by("made_at", "pk").values("text")[:1]
    column = F(SORTS[sort.removeprefix("-")][1])
    order = column.desc(nulls_last=True) if sort.startswith("-") else column.asc(nulls_last=True)
    newest = [] if sort.removeprefix("-") == "asked" else ["-created_at"]
    if sort.removeprefix("-") == "cost":
        rows = rows.annotate(first_usd_per_month=Subquery(first))
    return (
        rows.annotate(
            comment_count=Coalesce(Subquery(counted, output_field=IntegerField()), Value(0)),
            first_note=Subquery(first_note),
        )
        .select_related("workload", "supersedes__workload")
        .defer("result", "snapshot", "supersedes__result", "supersedes__snapshot")
        .prefetch_related(Prefetch("options", Option.objects.filter(rank=1), to_attr="first_choice"))
        .order_by(order, *newest)
    )


def about(advice: Advice) -> dict[str, Any]:
    """What a row says beside the stored columns."""
    spec, earlier = advice.workload.spec, advice.supersedes
    changes = what_if.differences(earlier.workload.spec, spec) if earlier else []
    return {
        "constraints": constraints(spec),
        "changes": changes[:SHOWN_CHANGES],
        "more_changes": max(0, len(changes) - SHOWN_CHANGES),
    }


def constraints(spec: Mapping[str, Any]) -> str:
    """The constraints and the growth of traffic that a planner set, in words; empty: none."""
    c = spec.get("constraints") or {}
    said = []
    if c.get("max_usd_per_month") is not None:
        said.append("at most {} a month".format(dollars(c["max_usd_per_month"])))
    if c.get("max_capex_usd") is not None:
        said.append("at most {} of purchases".format(dollars(c["max_capex_usd"])))
    if c.get("max_accelerators") is not None:
        said.append("at most {} accelerators".format(given(c["max_accelerators"])))
    for key, only, without in LISTS:
        names = c.get(key) or {}
        if names.get("allow"):
            said.append(only % few(names["allow"]))
        if names.get("deny"):
            said.append(without % few(names["deny"]))
    if c.get("acquisition") and set(c["acquisition"]) != ALL_WAYS:
        ways = " or ".join(WAYS.get(way, way) for way in c["acquisition"])
        said.append(f"{ways} only")
    terms = [term for term in c.get("terms") or [] if term != "on_demand"]
    if terms:
        said.append(f"also {few([what_if.TERM_NAMES.get(term, term) for term in terms])}")
    if (c.get("site") or {}).get("max_kw") is not None:
        said.append("at most {} kW".format(given(c["site"]["max_kw"])))
    if spec.get("owned"):
        said.append("owned: {}".format(few([f"{count} × {name}" for name, count in spec["owned"].items()])))
    if growth := (spec.get("traffic") or {}).get("growth_fraction_per_year"):
        said.append("traffic grows by {} a year".format(percent_text(f"{growth * 100:.3g}")))
    return ", ".join(said)


def few(names: list[str], most: int = 3) -> str:
    shown, more = ", ".join(names[:most]), len(names) - most
    said = "%(names)s and %(n)s more"
    return said % {"names": shown, "n": more} if more > 0 else shown
