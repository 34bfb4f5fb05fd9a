"""One page for each thing of the catalog, and chips beside each other."""

from typing import Any
from urllib.parse import urlencode

from django.db.models import Model
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse

from catalog import charts, details, evidence, tables
from catalog.deleting import may_delete
from catalog.derived import NO_CURRENT_PRICE, Spread, current_offers, has_expired, spreads, with_derived
from catalog.models import Accelerator, Framework, QuantizationMethod, Region, ServedModel, Unit
from catalog.views import LISTS, page, public_prices

MOST_COMPARED = 4
OFFERS_SHOWN = 20


def accelerator(request: HttpRequest, slug: str) -> HttpResponse:
    chip: Any = get_object_or_404(with_derived(Accelerator.objects.all()), slug=slug)
    offers = public_prices().filter(accelerator=chip).order_by("-as_of", "provider")[:OFFERS_SHOWN]
    table = tables.PriceTable(
        offers,
        exclude=("accelerator", "vcpus", "host_memory_gib", "notes", "purchase_usd_min", "purchase_usd_max"),
        orderable=False,
        default="–",
    )
    more = {
        "offers": table if offers else None,
        "no_current_price": NO_CURRENT_PRICE if has_expired(chip.newest_offer) else "",
        "spreads": spreads(current_offers().filter(accelerator=chip)),
        "history_picture": charts.price_history(paid(chip)),
        "roofline": charts.roofline(charts.roofs(chip.dense_tflops, chip.memory_gb_per_s), f"Roofline of {chip}"),
        "formats": evidence.formats(chip),
        "frameworks": evidence.frameworks(chip),
        "delivered": evidence.delivered(chip),
        "units": chip.units.all(),
        "changes": evidence.changes(chip),
    }
    return detail(request, "accelerators", chip, details.accelerator(chip), more)


def paid(chip: Accelerator) -> list[charts.Paid]:
    """Every public price of an hour of this chip, superseded ones too."""
    rows: Any = public_prices().filter(accelerator=chip, usd_per_hour__gt=0).order_by("as_of")
    return [
        charts.Paid(
            as_of=row.as_of,
            usd=row.usd_per_chip_hour,
            term=row.term,
            words=f"{row.as_of} {row.provider} {row.instance} {row.region} {row.term}: ${row.usd_per_chip_hour:.2f}",
        )
        for row in rows
    ]


def model(request: HttpRequest, slug: str) -> HttpResponse:
    row = get_object_or_404(ServedModel, slug=slug)
    offers = row.api_prices.order_by("usd_per_mtok_output", "provider")[:OFFERS_SHOWN]
    table = tables.ApiPriceTable(offers, exclude=("model", "max_input_tokens"), orderable=False, default="–")
    more = {
        "offers": table if offers else None,
        "shape_costs": details.shape_costs(row),
        "changes": evidence.changes(row),
        "may_delete": may_delete(request.user),
    }
    return detail(request, "models", row, details.served_model(row), more)


def framework(request: HttpRequest, slug: str, version: str) -> HttpResponse:
    row = get_object_or_404(Framework, slug=slug, version=version)
    return detail(request, "frameworks", row, details.framework(row), {"changes": evidence.changes(row)})


def framework_versions(request: HttpRequest, slug: str) -> HttpResponse:
    """The one version of a framework, or the list of them."""
    versions = list(Framework.objects.filter(slug=slug).values_list("version", flat=True))
    if not versions:
        raise Http404(f"Framework {slug} is not in the catalog.")
    if len(versions) == 1:
        return redirect("catalog:framework", slug, versions[0])
    return redirect(f"{reverse('catalog:list', args=['frameworks'])}?{urlencode({'slug': slug})}")


def quantization(request: HttpRequest, slug: str) -> HttpResponse:
    row = get_object_or_404(QuantizationMethod, slug=slug)
    return detail(request, "quantizations", row, details.quantization(row), {"changes": evidence.changes(row)})


def unit(request: HttpRequest, slug: str) -> HttpResponse:
    row = get_object_or_404(Unit.objects.select_related("accelerator"), slug=slug)
    return detail(request, "units", row, details.unit(row), {"changes": evidence.changes(row)})


def region(request: HttpRequest, slug: str) -> HttpResponse:
    row = get_object_or_404(Region, slug=slug)
    return detail(request, "regions", row, details.region(row), {"changes": evidence.changes(row)})


def detail(
    request: HttpRequest, name: str, row: Model, sections: list[details.Section], more: dict[str, Any]
) -> HttpResponse:
    shown = [section for section in sections if section.facts]
    offered = {"accelerators": "prices?accelerator=", "models": "api-prices?model="}.get(name)
    context = {"name": name, "listing": LISTS[name], "row": row, "sections": shown, "offered": offered, **more}
    return page(request, "detail", context)


def compare(request: HttpRequest) -> HttpResponse:
    """Up to four chips beside each other: `?a=h100-sxm&a=mi300x`."""
    asked = list(dict.fromkeys(slug for slug in request.GET.getlist("a") if slug))
    found = {chip.slug: chip for chip in with_derived(Accelerator.objects.filter(slug__in=asked))}
    chips = [found[slug] for slug in asked if slug in found][:MOST_COMPARED]
    context = {
        "name": "accelerators",
        "chips": chips,
        "rows": details.comparison(chips, {chip.pk: price_words(chip) for chip in chips}),
        "roofline": charts.roofline([roof for chip in chips if (roof := common_roof(chip))], "16-bit rooflines"),
        "unknown": [slug for slug in asked if slug not in found],
        "left_out": len([slug for slug in asked if slug in found]) - len(chips),
        "most": MOST_COMPARED,
        "every": Accelerator.objects.order_by("name").values_list("slug", "name"),
        "slots": ([chip.slug for chip in chips] + [""] * MOST_COMPARED)[:MOST_COMPARED],
    }
    return page(request, "compare", context)


def common_roof(chip: Any) -> charts.Roof | None:
    """The roof of a chip in BF16 or FP16."""
    if not chip.bf16_tflops:
        return None
    return charts.Roof(name=chip.name, tflops=chip.bf16_tflops, gb_per_s=chip.memory_gb_per_s)


def price_words(chip: Any) -> str:
    """What one hour of a chip costs by term, or that nobody says."""
    if has_expired(chip.newest_offer):
        return NO_CURRENT_PRICE
    rows = spreads(current_offers().filter(accelerator=chip).exclude(term="purchase"))
    return "; ".join(f"{each.way} {span(each)} ({each.offers})" for each in rows) or "–"


def span(each: Spread) -> str:
    """From the lowest to the highest, or the one price there is."""
    low, high = f"{each.low_usd:.2f}", f"{each.high_usd:.2f}"
    return low if low == high else f"{low}–{high}"
