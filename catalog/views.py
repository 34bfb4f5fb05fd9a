"""The catalog's pages: lists that are narrowed and sorted in the URL, and one page for each thing."""

from dataclasses import dataclass
from typing import Any

from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django_filters import FilterSet
from django_tables2 import RequestConfig, Table

from catalog import details, filters, tables
from catalog.models import Accelerator, ApiPrice, CatalogLoad, Framework, Price, QuantizationMethod, Region, ServedModel

PAGE = 50


@dataclass(frozen=True, kw_only=True, slots=True)
class Listing:
    """One list of the catalog."""

    title: str
    queryset: QuerySet[Any]
    filterset: type[FilterSet]
    table: type[Table]


LISTS = {
    "accelerators": Listing(
        title="Accelerators",
        queryset=Accelerator.objects.all(),
        filterset=filters.AcceleratorFilter,
        table=tables.AcceleratorTable,
    ),
    "prices": Listing(
        title="Prices",
        queryset=Price.objects.filter(organisation=None).select_related("accelerator"),
        filterset=filters.PriceFilter,
        table=tables.PriceTable,
    ),
    "api-prices": Listing(
        title="Hosted prices",
        queryset=ApiPrice.objects.select_related("model"),
        filterset=filters.ApiPriceFilter,
        table=tables.ApiPriceTable,
    ),
    "models": Listing(
        title="Models",
        queryset=ServedModel.objects.all(),
        filterset=filters.ModelFilter,
        table=tables.ModelTable,
    ),
    "frameworks": Listing(
        title="Frameworks",
        queryset=Framework.objects.all(),
        filterset=filters.FrameworkFilter,
        table=tables.FrameworkTable,
    ),
    "quantizations": Listing(
        title="Quantization",
        queryset=QuantizationMethod.objects.all(),
        filterset=filters.QuantizationFilter,
        table=tables.QuantizationTable,
    ),
    "regions": Listing(
        title="Regions",
        queryset=Region.objects.all(),
        filterset=filters.RegionFilter,
        table=tables.RegionTable,
    ),
}


def home(request: HttpRequest) -> HttpResponse:
    return redirect("catalog:list", "accelerators")


def listing(request: HttpRequest, name: str) -> HttpResponse:
    """One list; a filter that makes no sense narrows nothing and says so beside its field."""
    chosen = LISTS[name]
    narrowed = chosen.filterset(request.GET, queryset=chosen.queryset.all())
    table = chosen.table(narrowed.qs)
    RequestConfig(request, paginate={"per_page": PAGE, "silent": True}).configure(table)
    context = {"name": name, "listing": chosen, "form": narrowed.form, "table": table, "count": narrowed.qs.count()}
    return page(request, "list", context)


def accelerator(request: HttpRequest, slug: str) -> HttpResponse:
    chip = get_object_or_404(Accelerator, slug=slug)
    offers = chip.prices.filter(organisation=None).order_by("-as_of", "provider")[:20]
    table = tables.PriceTable(offers, exclude=("accelerator",), orderable=False)
    return detail(request, "accelerators", chip, details.accelerator(chip), {"offers": table if offers else None})


def model(request: HttpRequest, slug: str) -> HttpResponse:
    row = get_object_or_404(ServedModel, slug=slug)
    offers = row.api_prices.order_by("usd_per_mtok_output", "provider")[:20]
    table = tables.ApiPriceTable(offers, exclude=("model",), orderable=False)
    return detail(request, "models", row, details.served_model(row), {"offers": table if offers else None})


def framework(request: HttpRequest, slug: str, version: str) -> HttpResponse:
    row = get_object_or_404(Framework, slug=slug, version=version)
    return detail(request, "frameworks", row, details.framework(row))


def quantization(request: HttpRequest, slug: str) -> HttpResponse:
    row = get_object_or_404(QuantizationMethod, slug=slug)
    return detail(request, "quantizations", row, details.quantization(row))


def detail(
    request: HttpRequest,
    name: str,
    row: Model,
    sections: list[details.Section],
    more: dict[str, Any] | None = None,
) -> HttpResponse:
    shown = [section for section in sections if section.facts]
    offered = {"accelerators": "prices?accelerator=", "models": "api-prices?model="}.get(name)
    context = {"name": name, "listing": LISTS[name], "row": row, "sections": shown, "offered": offered, **(more or {})}
    return page(request, "detail", context)


def page(request: HttpRequest, template: str, context: dict[str, Any]) -> HttpResponse:
    loaded = CatalogLoad.objects.order_by("-loaded_at").first()
    return render(request, f"catalog/{template}.html", {**context, "lists": LISTS, "loaded": loaded})
