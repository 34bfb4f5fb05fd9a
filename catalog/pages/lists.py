"""The catalog's lists as pages or files. Filters, sorting and columns are in the URL."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django_filters import FilterSet
from django_tables2 import RequestConfig, Table

from catalog.accounts import caller_of
from catalog.lists import address, drawn, export, filters, saved, table_html, tables
from catalog.models import (
    ApiPrice,
    CatalogLoad,
    EvidenceRow,
    Framework,
    QuantizationMethod,
    Region,
    ServedModel,
    Unit,
)
from catalog.pricing import reader
from catalog.pricing.derived import accelerators, public_prices
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
    intro: str = ""


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
    "evidence": Listing(
        title="Imported measurements",
        queryset=lambda: EvidenceRow.objects.select_related("evidence_import").defer("given"),
        filterset=filters.EvidenceFilter,
        table=tables.EvidenceTable,
        intro="Figures that others published, each beside what Assay predicts for the same run. They are shown for "
        "comparison, and correct answers for exactly their accelerator, model, framework and format if there is no "
        "better measurement.",
    ),
}


def home(request: HttpRequest) -> HttpResponse:
    return redirect("catalog:list", "accelerators")


@kept
def listing(request: HttpRequest, name: str) -> HttpResponse:
    """One list as a page or a file. An invalid filter is ignored and shows its error at the field."""
    chosen = LISTS[name]
    queryset = ServedModel.objects.seen_by(caller_of(request).own) if name == "models" else chosen.queryset()
    narrowed = chosen.filterset(request.GET, queryset=queryset)
    rows = narrowed.qs
    lead = getattr(narrowed, "lead", ())
    data = tables.Led(rows, lead) if lead else rows
    table = chosen.table(data, default="–", order_by=getattr(narrowed, "usual_sort", None))
    table.may_price = may_add_prices(request)
    if isinstance(narrowed, filters.PriceFilter):
        table.place = narrowed.form.cleaned_data.get("place") or ""
    if rate := getattr(narrowed, "rate", None):
        table.show_currency(rate.currency)
    if "apply" in request.GET:  # the form sends empty fields and every column: redirect to the short address
        return redirect(f"{request.path}{address.short(request.GET, table.shown)}")
    form = request.GET.get("format", "")
    usual = getattr(table, "in_files", table.shown) if form in export.FORMATS else table.shown
    columns = choose_columns(table, request.GET.getlist("columns"), usual)
    if form in export.FORMATS:
        RequestConfig(request, paginate=False).configure(table)
        return reader.in_english(export.response)(table, name, form)
    count = table.data._length = rows.count()  # or the table would read every row to count them
    RequestConfig(request, paginate={"per_page": rows_per_page(request), "silent": True}).configure(table)
    if isinstance(table, tables.PriceTable):
        table.show_history()
    context = {
        "name": name,
        "listing": chosen,
        "form": narrowed.form,
        "quick": next(iter(narrowed.form), None),
        "fields": [
            field for field in list(narrowed.form)[1:] if not isinstance(narrowed.filters[field.name], filters.AnyOf)
        ],
        "facets": drawn.facets(narrowed) if isinstance(narrowed, filters.Faceted) else (),
        "chips": drawn.chips(narrowed, request.GET),
        "table": table,
        "table_html": table_html.html(table, request.GET) if count else "",
        "count": count,
        "notes": getattr(narrowed, "notes", ()),
        "columns": columns,
        "views": saved.of_list(request, name),
        "query": address.short(request.GET, table.shown),
        "csv_query": table_html.changed(request.GET, format="csv", page=None),
        "json_query": table_html.changed(request.GET, format="json", page=None),
        **neighbors(table, request),
    }
    return page(request, "list", context)


def may_add_prices(request: HttpRequest) -> bool:
    """Whether a page links to the form for own prices; visitors are asked to sign in there."""
    return caller_of(request).may_price or not request.user.is_authenticated


def neighbors(table: Table, request: HttpRequest) -> dict[str, str]:
    """The addresses of the pages before and after this one."""
    here, found = table.page, {}
    if here.has_previous():
        found["previous_query"] = table_html.changed(request.GET, page=here.previous_page_number())
    if here.has_next():
        found["next_query"] = table_html.changed(request.GET, page=here.next_page_number())
    return found


def rows_per_page(request: HttpRequest) -> int:
    """The requested number of rows, bounded."""
    asked = request.GET.get("rows", "")
    return min(max(int(asked), 1), MAX_ROWS_PER_PAGE) if asked.isdecimal() and len(asked) < 6 else ROWS_PER_PAGE


Choice = tuple[str, str, bool]  # a column's name and title, and whether it is visible


def choose_columns(table: Table, asked: list[str], usual: Iterable[str]) -> list[tuple[str, list[Choice]]]:
    """Hides the columns that were not requested, except the first. Returns the columns in named groups."""
    wanted = {name for part in asked for name in part.split(",")}
    names = [name for name in table.columns.names() if table.columns[name].column.verbose_name != ""]
    shown = wanted.intersection(names) or set(usual)
    shown.add(names[0])
    for name in names:
        (table.columns.show if name in shown else table.columns.hide)(name)
    groups: dict[str, list[Choice]] = {}
    for name in names:
        title = next((title for title, members in getattr(table, "groups", {}).items() if name in members), "More")
        groups.setdefault(title, []).append((name, str(table.columns[name].header), name in shown))
    return list(groups.items())


def page(request: HttpRequest, template: str, context: dict[str, Any], status: int = 200) -> HttpResponse:
    loaded = CatalogLoad.objects.order_by("-loaded_at").first()
    whole = {**context, "lists": LISTS, "loaded": loaded}
    return render(request, f"catalog/{template}.html", whole, status=status)
