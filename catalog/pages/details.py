"""Detail pages of the catalog, and the comparison of accelerators."""

from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.db.models import Model, Q
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.views.decorators.http import require_POST

from advisor.engine.terms import usd_text
from catalog import charts, deletion, owned_models
from catalog.accounts import Right, caller_of, needs
from catalog.details import evidence, facts
from catalog.lists import export, table_html, tables
from catalog.models import Accelerator, EvidenceRow, Framework, QuantizationMethod, Region, ServedModel, Unit
from catalog.pages.lists import LISTS, may_add_prices, page
from catalog.pricing.derived import (
    NO_CURRENT_PRICE,
    Spread,
    accelerators,
    current_first,
    current_offers,
    public_prices,
    spreads,
)
from catalog.revision import kept

MAX_COMPARED = 4
OFFERS_SHOWN = 20


@kept
def accelerator(request: HttpRequest, slug: str) -> HttpResponse:
    chip: Any = get_object_or_404(accelerators(), slug=slug)
    offers = current_first(public_prices().filter(accelerator=chip), "-as_of", "provider")[:OFFERS_SHOWN]
    table = tables.PriceTable(
        offers,
        exclude=("accelerator", "notes", *(set(tables.PriceTable.Meta.fields) - set(tables.PriceTable.shown))),
        orderable=False,
        default="–",
    )
    table.may_price = may_add_prices(request)
    more = {
        "offers": table_html.html(table, request.GET) if offers else "",
        "no_current_price": "" if chip.is_offered else NO_CURRENT_PRICE,
        "spreads": spreads(current_offers().filter(accelerator=chip)),
        "history_picture": charts.price_history_figure(dated_prices(chip)),
        "roofline": charts.roofline_figure(
            charts.rooflines(chip.dense_tflops, chip.memory_gb_per_s), f"Roofline of {chip}"
        ),
        "formats": evidence.formats(chip),
        "frameworks": evidence.frameworks(chip),
        "achieved": evidence.achieved(chip),
        "imported": EvidenceRow.objects.filter(accelerator=slug).count(),
        "units": chip.units.all(),
        "changes": evidence.changes(chip),
    }
    return detail(request, "accelerators", chip, facts.accelerator(chip), more)


def dated_prices(chip: Accelerator) -> list[charts.DatedPrice]:
    """Every public hourly price of this chip, oldest first, superseded ones too."""
    rows: Any = public_prices().filter(accelerator=chip, usd_per_hour__gt=0).order_by("as_of")
    return [
        charts.DatedPrice(
            as_of=row.as_of,
            usd=row.usd_per_chip_hour,
            term=row.term,
            label=f"{row.as_of} {row.provider} {row.instance} {row.region} {row.term}: "
            + usd_text(row.usd_per_chip_hour),
        )
        for row in rows
    ]


def model_or_404(request: HttpRequest, slug: str) -> ServedModel:
    """The model that the caller's organization means by this slug."""
    row: ServedModel | None = ServedModel.objects.first_named(caller_of(request).own, Q(slug=slug))
    if row is None:
        raise Http404(f"Model {slug} is not in the catalog.")
    return row


@require_POST
@needs(Right.MAINTAIN, "catalog:home")
def model_share(request: HttpRequest, slug: str) -> HttpResponse:
    """Lets all organizations see a model of the caller's organization."""
    row = model_or_404(request, slug)
    try:
        owned_models.share(row, caller_of(request).name)
        messages.success(request, f"All organizations now see {row.hf_id}.")
    except owned_models.Taken as error:
        messages.error(request, str(error))
    return redirect("catalog:model", row.slug)


@kept
def model(request: HttpRequest, slug: str) -> HttpResponse:
    row, caller = model_or_404(request, slug), caller_of(request)
    offers = row.api_prices.order_by("usd_per_mtok_output", "provider")[:OFFERS_SHOWN]
    table = tables.ApiPriceTable(offers, exclude=("model", "max_input_tokens"), orderable=False, default="–")
    more = {
        "offers": table_html.html(table, request.GET) if offers else "",
        "shape_costs": facts.shape_costs(row),
        "changes": evidence.changes(row),
        "may_delete": deletion.may_delete(row, caller),
        "is_own": row.organisation_id is not None,
        "may_share": row.organisation_id is not None and caller.may_maintain,
    }
    return detail(request, "models", row, facts.served_model(row), more)


@kept
def framework(request: HttpRequest, slug: str, version: str) -> HttpResponse:
    row = get_object_or_404(Framework, slug=slug, version=version)
    return detail(request, "frameworks", row, facts.framework(row), {"changes": evidence.changes(row)})


def framework_versions(request: HttpRequest, slug: str) -> HttpResponse:
    """Redirects to the only version of a framework, or to the list of its versions."""
    versions = list(Framework.objects.filter(slug=slug).values_list("version", flat=True))
    if not versions:
        raise Http404(f"Framework {slug} is not in the catalog.")
    if len(versions) == 1:
        return redirect("catalog:framework", slug, versions[0])
    return redirect(f"{reverse('catalog:list', args=['frameworks'])}?{urlencode({'slug': slug})}")


@kept
def quantization(request: HttpRequest, slug: str) -> HttpResponse:
    row = get_object_or_404(QuantizationMethod, slug=slug)
    return detail(request, "quantizations", row, facts.quantization(row), {"changes": evidence.changes(row)})


@kept
def unit(request: HttpRequest, slug: str) -> HttpResponse:
    row = get_object_or_404(Unit.objects.select_related("accelerator"), slug=slug)
    return detail(request, "units", row, facts.unit(row), {"changes": evidence.changes(row)})


@kept
def region(request: HttpRequest, slug: str) -> HttpResponse:
    row = get_object_or_404(Region, slug=slug)
    return detail(request, "regions", row, facts.region(row), {"changes": evidence.changes(row)})


def detail(
    request: HttpRequest, name: str, row: Model, sections: list[facts.Section], more: dict[str, Any]
) -> HttpResponse:
    shown = [section for section in sections if section.facts]
    offered = {"accelerators": "prices?accelerator=", "models": "api-prices?model="}.get(name)
    context = {"name": name, "listing": LISTS[name], "row": row, "sections": shown, "offered": offered, **more}
    return page(request, "detail", context)


@kept
def compare(request: HttpRequest) -> HttpResponse:
    """Compares up to four accelerators: `?a=h100-sxm&a=mi300x`. `only=differences` leaves out equal rows."""
    asked = list(dict.fromkeys(slug for slug in request.GET.getlist("a") if slug))
    by_slug = {chip.slug: chip for chip in accelerators().filter(slug__in=asked)}
    chips = [by_slug[slug] for slug in asked if slug in by_slug][:MAX_COMPARED]
    rows = facts.comparison(chips, prices_by_term(chips))
    only_differences = request.GET.get("only") == "differences" and len(chips) > 1
    shown = [row for row in rows if row.differs or not only_differences]
    if request.GET.get("format") == "csv":
        cells = [[row.title, *(text for text, _ in row.cells)] for row in shown]
        return export.csv_file("comparison", ["figure", *(chip.slug for chip in chips)], cells)
    context = {
        "name": "accelerators",
        "chips": chips,
        "rows": shown,
        "only_differences": only_differences,
        "equal_rows": sum(not row.differs for row in rows),
        "turned_query": table_html.changed(request.GET, only=None if only_differences else "differences"),
        "csv_query": table_html.changed(request.GET, format="csv"),
        "roofline": charts.roofline_figure(
            [each for chip in chips if (each := bf16_roofline(chip))], "16-bit rooflines"
        ),
        "unknown": [slug for slug in asked if slug not in by_slug],
        "left_out": len([slug for slug in asked if slug in by_slug]) - len(chips),
        "most": MAX_COMPARED,
        "every": Accelerator.objects.order_by("name").values_list("slug", "name"),
        "slots": ([chip.slug for chip in chips] + [""] * MAX_COMPARED)[:MAX_COMPARED],
    }
    return page(request, "compare", context)


def prices_by_term(chips: list[Any]) -> dict[Any, dict[str, Spread]]:
    """The current offers of each chip, by term."""
    offers: dict[Any, list[Any]] = {chip.pk: [] for chip in chips}
    for offer in current_offers().filter(accelerator__in=list(offers)):
        offers[offer.accelerator_id].append(offer)
    return {pk: {each.term: each for each in spreads(of_chip)} for pk, of_chip in offers.items()}


def bf16_roofline(chip: Any) -> charts.Roofline | None:
    """The roofline of a chip in BF16 or FP16."""
    if not chip.bf16_tflops:
        return None
    return charts.Roofline(name=chip.name, tflops=chip.bf16_tflops, gb_per_s=chip.memory_gb_per_s)
