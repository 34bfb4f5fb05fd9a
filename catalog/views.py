"""The catalog's lists as pages or files. Filters, sorting and columns are in the URL."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django_filters import FilterSet
from django_tables2 import RequestConfig, Table

from catalog import export, filters, tables
from catalog.derived import with_derived, with_price_per_chip
from catalog.models import (
    Accelerator,
    ApiPrice,
    CatalogLoad,
    Framework,
    Price,
    QuantizationMethod,
    Region,
    ServedModel,
    Unit,
)
from catalog.revision import kept

ROWS_PER_PAGE = 50
MAX_ROWS_PER_PAGE = 500


@dataclass(frozen=True, kw_only=True, slots=True)
class Listing:
    """One list of the catalog."""

    title: str
    queryset: Callable[[], QuerySet[Any]]  # a function: which offers are current depends on the day
    filterset: type[FilterSet]
    table: type[Table]


def accelerators() -> QuerySet[Accelerator]:
    """Accelerators with their derived figures."""
    return with_derived(Accelerator.objects.all())


def public_prices() -> QuerySet[Price]:
    """Public offers with their price per chip."""
    return with_price_per_chip(Price.objects.filter(organisation=None).prefetch_related("accelerator"))


LISTS = {
    "accelerators": Listing(
        title="Accelerators",
        queryset=accelerators,
        filterset=filters.AcceleratorFilter,
        table=tables.AcceleratorTable,
    ),
    "prices": Listing(
        title="Prices",
        queryset=public_prices,
        filterset=filters.PriceFilter,
        table=tables.PriceTable,
    ),
    "api-prices": Listing(
        title="Hosted API prices",
        queryset=lambda: ApiPrice.objects.select_related("model"),
        filterset=filters.ApiPriceFilter,
        table=tables.ApiPriceTable,
    ),
    "models": Listing(
        title="Models",
        queryset=ServedModel.objects.all,
        filterset=filters.ModelFilter,
        table=tables.ModelTable,
    ),
    "frameworks": Listing(
        title="Frameworks",
        queryset=Framework.objects.all,
        filterset=filters.FrameworkFilter,
        table=tables.FrameworkTable,
    ),
    "quantizations": Listing(
        title="Quantization",
        queryset=QuantizationMethod.objects.all,
        filterset=filters.QuantizationFilter,
        table=tables.QuantizationTable,
    ),
    "units": Listing(
        title="Units",
        queryset=lambda: Unit.objects.select_related("accelerator"),
        filterset=filters.UnitFilter,
        table=tables.UnitTable,
    ),
    "regions": Listing(
        title="Regions",
        queryset=Region.objects.all,
        filterset=filters.RegionFilter,
        table=tables.RegionTable,
    ),
}


def home(request: HttpRequest) -> HttpResponse:
    return redirect("catalog:list", "accelerators")


@kept
def listing(request: HttpRequest, name: str) -> HttpResponse:
    """One list as a page or a file. An invalid filter is ignored and shows its error at the field."""
    chosen = LISTS[name]
    narrowed = chosen.filterset(request.GET, queryset=chosen.queryset())
    rows = narrowed.qs
    table = chosen.table(rows, default="–", order_by=getattr(narrowed, "usual_sort", None))
    if rate := getattr(narrowed, "rate", None):
        table.show_currency(rate.currency)
    form = request.GET.get("format", "")
    usual = getattr(table, "in_files", table.shown) if form in export.FORMATS else table.shown
    columns = choose_columns(table, request.GET.getlist("columns"), usual)
    RequestConfig(request, paginate={"per_page": rows_per_page(request), "silent": True}).configure(table)
    if form in export.FORMATS:
        return export.response(table, name, form)
    context = {
        "name": name,
        "listing": chosen,
        "form": narrowed.form,
        "quick": next(iter(narrowed.form), None),
        "narrowed": any(value for key, value in request.GET.items() if key in narrowed.filters and key != "search"),
        "table": table,
        "count": rows.count(),
        "notes": getattr(narrowed, "notes", ()),
        "columns": columns,
    }
    return page(request, "list", context)


def rows_per_page(request: HttpRequest) -> int:
    """The requested number of rows, bounded."""
    asked = request.GET.get("rows", "")
    return min(max(int(asked), 1), MAX_ROWS_PER_PAGE) if asked.isdecimal() and len(asked) < 6 else ROWS_PER_PAGE


def choose_columns(table: Table, asked: list[str], usual: Iterable[str]) -> list[tuple[str, str, bool]]:
    """Hides the columns that were not requested, except the first. Returns (name, title, visible) of each column."""
    wanted = {name for part in asked for name in part.split(",")}
    names = [name for name in table.columns.names() if table.columns[name].column.verbose_name != ""]
    shown = wanted.intersection(names) or set(usual)
    shown.add(names[0])
    for name in names:
        (table.columns.show if name in shown else table.columns.hide)(name)
    return [(name, str(table.columns[name].header), name in shown) for name in names]


def page(request: HttpRequest, template: str, context: dict[str, Any], status: int = 200) -> HttpResponse:
    loaded = CatalogLoad.objects.order_by("-loaded_at").first()
    whole = {**context, "lists": LISTS, "loaded": loaded}
    return render(request, f"catalog/{template}.html", whole, status=status)
