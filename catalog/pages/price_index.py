"""The pages and files of the price index."""

from django.http import Http404, HttpRequest, HttpResponse

from catalog import charts
from catalog.lists import export
from catalog.models import Accelerator
from catalog.pages.lists import page
from catalog.pricing.history import KNOWN_DAYS, Index, Series, indexes
from catalog.revision import kept

HUES = {
    "on_demand": 0, "spot": 1, "marketplace": 2, "published_on_demand": 3, "published_spot": 4, "published_reserved": 5
}  # fmt: skip
OVERVIEW = (
    *("slug", "name", "kind", "series", "month", "as_of", "usd_per_chip_hour", "providers"),
    *("change_3_months_percent", "change_12_months_percent"),
)
LEVELS = ("slug", "series", "month", "as_of", "usd_per_chip_hour", "providers", "source")


@kept
def overview(request: HttpRequest) -> HttpResponse:
    """The newest level of each chip and family."""
    found = indexes()
    if request.GET.get("format") == "csv":
        return export.csv_file(
            "price-index", list(OVERVIEW), [newest(each, series) for each in found for series in each.series]
        )
    kinds = (("Chips", "chip"), ("Families", "family"))
    parts = [(title, [each for each in found if each.kind == kind]) for title, kind in kinds]
    context = {"name": "prices", "parts": [part for part in parts if part[1]], "known_days": KNOWN_DAYS}
    return page(request, "price_index", context)


def newest(index: Index, series: Series) -> list[object]:
    point = series.newest
    return [
        *(index.slug, index.name, index.kind, series.name, point.month_text, point.as_of.isoformat()),
        *(round(point.usd_per_chip_hour, 6), point.providers),
        *(percent(series.change_3_months_percent), percent(series.change_12_months_percent)),
    ]


def percent(change: float | None) -> float | None:
    return None if change is None else round(change, 2)


@kept
def one(request: HttpRequest, slug: str) -> HttpResponse:
    """The levels of one chip, or of a family as family-hopper."""
    index = next(iter(indexes(slugs=[slug])), None)
    chip = Accelerator.objects.filter(slug=slug).first()
    if index is None and chip is None:
        raise Http404(f"No chip or family with prices is called {slug}.")
    series = index.series if index else ()
    rows = sorted(((each, point) for each in series for point in each.points), key=lambda row: row[1].month)
    if request.GET.get("format") == "csv":
        cells = [
            [
                *(slug, each.name, point.month_text, point.as_of.isoformat(), round(point.usd_per_chip_hour, 6)),
                *(point.providers, point.source),
            ]
            for each, point in rows
        ]
        return export.csv_file(f"price-index-{slug}", list(LEVELS), cells)
    context = {
        "name": "prices",
        "index": index,
        "chip": chip,
        "title": chip.name if chip else f"{index.name} family" if index else slug,
        "rows": rows[::-1],
        "series": [(each, HUES[each.name]) for each in series],
        "picture": charts.price_index_figure([line(each) for each in series], "Price per chip-hour by month"),
        "members": Accelerator.objects.filter(slug__in=index.members) if index and not chip else (),
        "known_days": KNOWN_DAYS,
    }
    return page(request, "price_index_chip", context)


def line(series: Series) -> charts.IndexLine:
    return charts.IndexLine(
        name=series.title,
        hue=HUES[series.name],
        points=tuple((point.as_of, point.month, point.usd_per_chip_hour) for point in series.points),
    )
