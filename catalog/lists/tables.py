"""The columns of the catalog's lists. `shown` has the default columns; the URL may select others."""

# mypy: allow-subclassing-any

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from functools import lru_cache
from typing import Any
from urllib.parse import urlencode

import django_tables2 as tables
from django.db.models import F, QuerySet
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import mark_safe
from django_tables2.data import TableQuerysetData

from advisor.engine.network import from_shape, parameters
from advisor.engine.terms import ANYWHERE, amount_digits, exact_digits
from catalog import charts, clock
from catalog.details import maturity
from catalog.loading.places import place_text
from catalog.models import (
    Accelerator,
    ApiPrice,
    EvidenceRow,
    Framework,
    Price,
    QuantizationMethod,
    Region,
    ServedModel,
    Unit,
)
from catalog.pricing.derived import NO_CURRENT_PRICE, OFFER, age
from catalog.pricing.finding import origin_words
from catalog.texts import day, localized, number, shortened

NUMBER = {"th": {"class": "num", "scope": "col"}, "td": {"class": "num"}}

CONVERTED = ("converted_per_chip_hour", "converted_per_chip_month", "converted_per_chip")


class Led(TableQuerysetData):
    """Rows in the order of the page, after `lead`: keys that keep groups of rows together."""

    def __init__(self, rows: QuerySet[Any], lead: Sequence[str]) -> None:
        super().__init__(rows)
        self.lead = lead
        self.data: QuerySet[Any] = rows

    def order_by(self, aliases: Sequence[str]) -> None:
        super().order_by(aliases)
        by_date = {alias.lstrip("-") for alias in aliases} & DATES
        lead = [key for key in self.lead if not by_date or key not in OLDER]
        self.data = self.data.order_by(*lead, *self.data.query.order_by)


DATES, OLDER = {"age_days", "as_of"}, {"-is_first"}  # a page sorted by date shows older prices in that order


class Stored(tables.Column):
    """A column whose files have the value itself, however a page draws it."""

    def value(self, value: Any) -> Any:
        return value


class Number(Stored):
    """A right-aligned number with thousands separators. Rows without a value sort last."""

    def __init__(self, accessor: str, title: str, places: int = 0, **rest: Any) -> None:
        super().__init__(accessor=accessor, verbose_name=title, attrs=NUMBER, default="–", **rest)
        self.key, self.places = accessor, places

    def render(self, value: float) -> str:
        return number(value, self.places)

    def order(self, queryset: QuerySet[Any], is_descending: bool) -> tuple[QuerySet[Any], bool]:
        key = F(self.key)
        return queryset.order_by(key.desc(nulls_last=True) if is_descending else key.asc(nulls_last=True), "pk"), True


class Usd(Number):
    """List prices."""

    def render(self, value: float) -> str:
        return localized(exact_digits(value))


class Drawn(Stored):
    """A column that a function of the value and the row draws."""

    def __init__(self, draw: Callable[[Any, Any], str], title: str | None = None, **rest: Any) -> None:
        super().__init__(verbose_name=title, **rest)
        self.draw = draw

    def render(self, value: Any, record: Any) -> str:
        return self.draw(value, record)


def aged(value: date, word: str) -> str:
    """A date with a CSS class for its age."""
    return format_html('<span class="age-{}">{}</span>', word, day(value))


def dated(title: str = "As of") -> Drawn:
    return Drawn(lambda value, row: aged(value, age(value)), title)


def text(title: str | None = None, **rest: Any) -> Drawn:
    """A text that may be long."""
    return Drawn(lambda value, row: shortened(value), title, **rest)


def listed(title: str | None = None, **rest: Any) -> Drawn:
    """A list as comma-separated text."""
    return Drawn(lambda value, row: ", ".join(map(str, value)), title, orderable=False, **rest)


class Link(Stored):
    """A text that leads to a page of the catalog, which takes these attributes of the row."""

    def __init__(self, page: str, *names: str, **rest: Any) -> None:
        super().__init__(**rest)
        self.page, self.names = f"catalog:{page}", names

    def render(self, value: Any, record: Any) -> str:
        return format_html('<a href="{}">{}</a>', path(self.page, *[of(record, name) for name in self.names]), value)


class AgeInDays(tables.Column):
    """The days since a price was read."""

    def render(self, value: date, record: Any) -> str:
        word = age(value, origin=record.origin)
        return format_html('<span class="age-{}" title="{}">{}</span>', word, day(value), self.value(value))

    def value(self, value: date) -> int:
        return (clock.today() - value).days


class Place(Stored):
    """A region. A price of any region says nothing about the place that was asked for."""

    def render(self, value: str, record: Price, table: Any) -> str:
        if not table.place or value not in ANYWHERE or record.country:
            return value
        return f"{value} ({place_text(table.place)} availability unknown)"


@lru_cache(maxsize=8192)
def path(page: str, *args: str) -> str:
    """The address of a page, kept: finding it takes longer than drawing its cell."""
    return reverse(page, args=args)


def of(record: Any, path: str) -> Any:
    for name in path.split("__"):
        record = getattr(record, name)
    return record


class Tool(tables.Column):
    """Controls of a row. It is always shown, never exported, and only screen readers hear its heading."""

    def __init__(self, spoken: str, draw: Callable[[Any, bool], str]) -> None:
        attrs = {"td": {"class": "tools"}}
        super().__init__(verbose_name="", orderable=False, exclude_from_export=True, empty_values=(), attrs=attrs)
        self.spoken, self.draw = spoken, draw

    def render(self, record: Any, table: Any) -> str:
        return self.draw(record, getattr(table, "may_price", True))


def compare_box(chip: Any, may_price: bool) -> str:
    return format_html(
        '<input type="checkbox" name="a" form="compare" value="{}" aria-label="Compare {}">', chip.slug, chip.name
    )


def price_links(chip: Any, given: dict[str, Any], may_price: bool) -> str:
    """Links to the price history of a chip, and to the form for an own price, filled in."""
    history = format_html(
        '<a href="{}">History<span class="unseen"> of prices of {}</span></a>',
        path("catalog:price-index-one", chip.slug),
        chip.name,
    )
    if not may_price:
        return history
    query = urlencode({key: value for key, value in {"accelerator": chip.slug, **given}.items() if value})
    offer = [given[key] for key in ("provider", "instance", "region", "term") if given.get(key)]
    return history + format_html(
        ' <a href="{}?{}">Add your price<span class="unseen"> for {}</span></a>',
        path("catalog:own-price"),
        query,
        " ".join([chip.name, *offer]),
    )


def chip_tools(chip: Any, may_price: bool) -> str:
    return price_links(chip, {}, may_price)


def price_tools(price: Any, may_price: bool) -> str:
    names = ("provider", "instance", "accelerators", "region", "country", "term")
    return price_links(price.accelerator, {name: getattr(price, name) for name in names}, may_price)


def newest_offer(value: date, chip: Any) -> str:
    """Official prices never expire."""
    return aged(value, "stale" if chip.is_offered and age(value) == "expired" else age(value))


CHIP_COLUMNS = {  # by the title of their group
    "Accelerator": ("name", "slug", "vendor", "family", "architecture", "kind", "form_factor", "release_year"),
    "Memory": ("memory_gib", "memory_type", "memory_gb_per_s"),
    "Compute and power": ("bf16_tflops", "fp8_tflops", "tdp_watts", "tflops_per_watt", "flops_per_byte"),
    "Price": ("usd_per_hour_min", "gb_per_s_per_usd_hour", "usd_per_gib", "newest_offer"),
    "Use": ("chips_per_host", "stacks", "bought_as", "served", "as_of"),
}


class AcceleratorTable(tables.Table):
    compare = Tool("Compare", compare_box)
    name = Link("accelerator", "slug")
    memory_gib = Number("memory_gib", "Memory, GiB", 2)
    memory_gb_per_s = Number("memory_gb_per_s", "Bandwidth, GB/s")
    bf16_tflops = Number("bf16_tflops", "BF16 or FP16, TFLOP/s", 1)
    fp8_tflops = Number("fp8_tflops", "FP8, TFLOP/s", 1)
    tdp_watts = Number("tdp_watts", "TDP, W")
    tflops_per_watt = Number("tflops_per_watt", "TFLOPS/W", 2)
    flops_per_byte = Number("flops_per_byte", "FLOP:byte", 1)
    usd_per_hour_min = Number("usd_per_hour_min", "Lowest USD/h", 3, empty_values=())
    gb_per_s_per_usd_hour = Number("gb_per_s_per_usd_hour", "GB/s per USD/h")
    usd_per_gib = Number("usd_per_gib", "USD per GiB, purchased", 1)
    chips_per_host = Number("chips_per_host", "Chips per host")
    release_year = tables.Column(verbose_name="Year")
    stacks = listed()
    bought_as = listed("Available as")
    newest_offer = Drawn(newest_offer, "Newest offer")
    as_of = dated()
    served = tables.BooleanColumn(yesno="yes,no", verbose_name="Served")
    tools = Tool("Prices", chip_tools)

    class Meta:
        model = Accelerator
        fields = ("compare", *(name for names in CHIP_COLUMNS.values() for name in names), "tools")

    groups = CHIP_COLUMNS
    shown = (
        *("compare", "name", "vendor", "memory_gib", "memory_gb_per_s", "bf16_tflops", "tdp_watts"),
        *("tflops_per_watt", "flops_per_byte", "usd_per_hour_min", "gb_per_s_per_usd_hour", "tools"),
    )

    def render_usd_per_hour_min(self, record: Any) -> str:
        if record.usd_per_hour_min is not None:
            return localized(amount_digits(record.usd_per_hour_min))
        return "–" if record.is_offered else NO_CURRENT_PRICE

    def value_usd_per_hour_min(self, record: Any) -> Any:
        return record.usd_per_hour_min

    def render_served(self, value: bool) -> str:
        return "yes" if value else "no"


def offer_of(price: Price) -> tuple[Any, ...]:
    return tuple(getattr(price, "accelerator_id" if name == "accelerator" else name) for name in OFFER)


def history_of(prices: Iterable[Price]) -> dict[tuple[Any, ...], list[tuple[date, float]]]:
    """Every public price of these offers per chip, oldest first, one a day: hourly, or of a purchase."""
    wanted = {offer_of(price) for price in prices}
    rows = Price.objects.filter(
        organisation=None,
        as_of__lte=clock.today(),
        accelerator__in={key[3] for key in wanted},
        provider__in={key[0] for key in wanted},
    )
    found: dict[tuple[Any, ...], dict[date, float]] = {key: {} for key in wanted}
    for row in rows.order_by("as_of", "pk"):
        usd = row.usd_per_hour if row.usd_per_hour is not None else row.purchase_usd
        if usd is not None and offer_of(row) in found:
            found[offer_of(row)][row.as_of] = float(usd) / row.accelerators
    return {key: list(by_day.items()) for key, by_day in found.items()}


class PriceTable(tables.Table):
    provider = tables.Column()
    accelerator = Link("accelerator", "accelerator__slug")
    accelerators = Number("accelerators", "Chips")
    usd_per_hour = Usd("usd_per_hour", "USD/h, whole instance")
    per_chip = Usd("usd_per_chip_hour", "USD/h per chip")
    usd_per_chip_month = Usd("usd_per_chip_month", "USD/month per chip")
    purchase_per_chip = Usd("usd_per_chip", "Purchase, USD per chip")
    converted_per_chip_hour = Number("converted_per_chip_hour", "Per chip-hour, other currency", 4)
    converted_per_chip_month = Number("converted_per_chip_month", "Per chip-month, other currency", 2)
    converted_per_chip = Number("converted_per_chip", "Purchase per chip, other currency", 2)
    purchase_usd = Usd("purchase_usd", "Purchase, USD")
    purchase_usd_min = Usd("purchase_usd_min", "Purchase, low")
    purchase_usd_max = Usd("purchase_usd_max", "Purchase, high")
    age_days = AgeInDays(accessor="as_of", verbose_name="Age, days", attrs=NUMBER, order_by="-as_of")
    unit = tables.Column(verbose_name="Sold as")
    smallest_unit = Number("smallest_unit_accelerators", "Smallest unit, chips")
    smallest_unit_source = text("Source of the smallest unit")
    currency = tables.Column(verbose_name="Listed in")
    listed_price = Number("listed_price", "Listed price", 4)
    region = Place()
    term = Drawn(lambda value, row: value.replace("_", " "))
    origin = Drawn(lambda value, row: origin_words(value))
    source = text()
    notes = text("Note")
    as_of = Drawn(lambda value, row: aged(value, age(value, origin=row.origin)), "As of")
    availability = tables.Column(orderable=False)
    tools = Tool("History and your price", price_tools)

    class Meta:
        model = Price
        fields = (
            *("provider", "instance", "accelerator", "accelerators", "region", "country", "term", "per_chip"),
            *(
                "usd_per_chip_month",
                "purchase_per_chip",
                *CONVERTED,
                "tools",
                "origin",
                "confidence",
                "age_days",
                "availability",
                "source",
            ),
            *("notes", "usd_per_hour", "purchase_usd", "kind", "as_of", "unit", "currency", "listed_price", "vcpus"),
            *("host_memory_gib", "purchase_usd_min", "purchase_usd_max", "smallest_unit", "smallest_unit_source"),
        )
        sequence = fields
        order_by = "-as_of"

    shown: tuple[str, ...] = (
        *("provider", "instance", "accelerator", "accelerators", "smallest_unit", "region", "country", "term"),
        *(
            "per_chip",
            "usd_per_chip_month",
            "purchase_per_chip",
            "tools",
            "origin",
            "confidence",
            "age_days",
            "availability",
            "source",
            "notes",
        ),
    )
    groups = {
        "Offer": (
            *("provider", "instance", "accelerator", "accelerators", "region", "country", "term", "kind", "unit"),
            *("smallest_unit", "smallest_unit_source", "availability"),
        ),
        "Price": (
            *("per_chip", "usd_per_chip_month", "purchase_per_chip", *CONVERTED, "usd_per_hour", "purchase_usd"),
            *("purchase_usd_min", "purchase_usd_max", "currency", "listed_price"),
        ),
        "Evidence": ("origin", "confidence", "age_days", "as_of", "source", "notes"),
        "Host": ("vcpus", "host_memory_gib"),
    }
    in_files = tuple(name for name in Meta.fields if name not in CONVERTED)

    history: Mapping[tuple[Any, ...], list[tuple[date, float]]] = {}  # of the offers on the page

    def show_history(self) -> None:
        self.history = history_of(row.record for row in self.page.object_list)

    place = ""  # that was asked for

    def render_availability(self, value: str, record: Any) -> str:
        """The last statement of a source, with its date."""
        return f"{value.replace('_', ' ')} on {day(record.availability_as_of)}"

    def render_tools(self, record: Price) -> str:
        unit = "USD per chip-hour" if record.usd_per_hour is not None else "USD per chip"
        drawn = charts.sparkline(self.history.get(offer_of(record), ()), unit)
        return format_html("{}{}", mark_safe(drawn), price_tools(record, getattr(self, "may_price", True)))  # noqa: S308

    def show_currency(self, code: str) -> None:
        """Shows the prices in another currency beside those in USD."""
        for name, title in zip(CONVERTED, ("{}/h per chip", "{}/month per chip", "Purchase, {} per chip"), strict=True):
            self.columns[name].column.verbose_name = title.format(code)
        place = self.shown.index("tools")
        self.shown = (*self.shown[:place], *CONVERTED, *self.shown[place:])
        self.in_files = self.Meta.fields


class ApiPriceTable(tables.Table):
    model = Link("model", "model__slug")
    usd_per_mtok_input = Usd("usd_per_mtok_input", "Input, USD/Mtok")
    usd_per_mtok_cached_input = Usd("usd_per_mtok_cached_input", "Cached input, USD/Mtok")
    usd_per_mtok_output = Usd("usd_per_mtok_output", "Output, USD/Mtok")
    output_tokens_per_s = Number("output_tokens_per_s", "Published speed, tokens/s", 1)
    as_of = dated()
    source = text()
    speed_source = text("Source of the speed")
    quantization = text("Weight format")
    hardware = text("Runs on")

    class Meta:
        model = ApiPrice
        fields = (
            *("model", "provider", "name", "usd_per_mtok_input", "usd_per_mtok_cached_input", "usd_per_mtok_output"),
            *("output_tokens_per_s", "as_of", "source", "speed_source", "max_input_tokens", "quantization", "hardware"),
        )

    shown = Meta.fields[:-4]


class ModelTable(tables.Table):
    hf_id = Link("model", "slug", verbose_name="Model")
    size = tables.Column(empty_values=(), orderable=False, verbose_name="Parameters", attrs=NUMBER)
    published_parameters = Number("published_parameters", "Published parameters")
    published_active_parameters = Number("published_active_parameters", "Published active parameters")
    max_context_tokens = Number("max_context_tokens", "Context, tokens")
    as_of = dated()

    class Meta:
        model = ServedModel
        fields = (
            *("hf_id", "slug", "family", "size", "published_parameters", "published_active_parameters"),
            *("native_dtype", "max_context_tokens", "licence", "as_of"),
        )

    shown = ("hf_id", "family", "size", "published_parameters", "native_dtype", "max_context_tokens", "licence")

    def render_size(self, record: ServedModel) -> str:
        return localized(f"{self.value_size(record) / 1e9:,.2f} B")

    def value_size(self, record: ServedModel) -> int:
        return parameters(from_shape(record.slug, record.shape))


class FrameworkTable(tables.Table):
    name = Link("framework", "slug", "version")
    vendors = listed("Vendors", accessor="settings__vendors")
    kinds = listed("Chip types", accessor="settings__kinds")
    stacks = listed("Stacks", accessor="settings__stacks")
    features = listed("Features", accessor="settings__features")
    scheduler = tables.Column(accessor="settings__scheduler", orderable=False, verbose_name="Scheduler")
    role = tables.Column(accessor="settings__role", orderable=False, default="serving", verbose_name="Role")
    licence = tables.Column(accessor="settings__licence", orderable=False, verbose_name="License")
    maturity = tables.Column(empty_values=(), orderable=False)
    as_of = dated()

    class Meta:
        model = Framework
        fields = (
            *("name", "version", "role", "vendors", "kinds", "stacks", "features", "scheduler", "licence", "maturity"),
            "as_of",
        )

    shown = ("name", "version", "role", "vendors", "features", "licence", "maturity", "as_of")

    def render_maturity(self, record: Framework) -> str:
        return maturity(record).level


class QuantizationTable(tables.Table):
    name = Link("quantization", "slug")
    applies_to = tables.Column(accessor="settings__applies_to", orderable=False, verbose_name="Applies to")
    weights_dtype = tables.Column(accessor="settings__weights_dtype", orderable=False, verbose_name="Stored in")
    bits = tables.Column(
        accessor="settings__bits_per_weight", orderable=False, verbose_name="Bits per weight, with scales", attrs=NUMBER
    )
    activations = tables.Column(accessor="settings__activations_dtype", orderable=False, verbose_name="Compute dtype")
    quality = tables.Column(accessor="settings__quality", orderable=False, verbose_name="Quality")
    effort = tables.Column(accessor="settings__effort", orderable=False, verbose_name="How to create")
    as_of = dated()

    class Meta:
        model = QuantizationMethod
        fields = (
            *("name", "slug", "applies_to", "weights_dtype", "bits", "activations", "quality", "effort", "as_of"),
        )

    shown = ("name", "applies_to", "bits", "activations", "quality", "effort")


class RegionTable(tables.Table):
    name = Link("region", "slug")
    electricity_usd_per_kwh = Usd("electricity_usd_per_kwh", "Electricity, USD/kWh")
    grid_kgco2e_per_kwh = Number("grid_kgco2e_per_kwh", "Grid, kgCO2e/kWh", 4)
    pue = Number("pue", "PUE", 2)
    colocation_usd_per_kw_month = Usd("colocation_usd_per_kw_month", "Colocation, USD/kW per month")
    as_of = dated()

    class Meta:
        model = Region
        fields = (
            *("name", "country", "slug", "electricity_usd_per_kwh", "grid_kgco2e_per_kwh", "pue"),
            *("colocation_usd_per_kw_month", "as_of", "notes"),
        )

    shown = Meta.fields[:-1]


class UnitTable(tables.Table):
    name = Link("unit", "slug")
    accelerator = Link("accelerator", "accelerator__slug")
    accelerators = Number("accelerators", "Chips")
    instances = Number("instances", "Hosts")
    watts = Number("watts", "Power, W")
    price_usd = Usd("price_usd", "Price, USD")
    price_usd_min = Usd("price_usd_min", "Lowest price, USD")
    price_usd_max = Usd("price_usd_max", "Highest price, USD")
    network_gb_per_s = Number("network_gb_per_s", "Network, GB/s per chip", 1)
    as_of = dated()

    class Meta:
        model = Unit
        fields = (
            *("name", "kind", "accelerator", "accelerators", "instances", "shape", "watts", "cooling"),
            *("network_gb_per_s", "price_usd", "price_usd_min", "price_usd_max", "lead_time", "as_of"),
        )

    shown = (
        *("name", "kind", "accelerator", "accelerators", "shape", "watts", "cooling", "network_gb_per_s"),
        *("price_usd", "lead_time", "as_of"),
    )


ENDS = ("_tokens_per_s", "_ms_mean", "_ms_p50", "_ms_p99", "_ms")


def figure_words(value: str, row: Any) -> str:
    """The name of a measured figure: "TTFT p99, ms"."""
    end = next((end for end in ENDS if value.endswith(end)), "")
    what, unit = value.removesuffix(end), end.strip("_").split("_")
    if end == "_tokens_per_s":
        return f"{what.capitalize()} tokens/s"
    return f"{what.upper()} {' '.join(unit[1:])}".strip() + ", ms" if end else value


class EvidenceTable(tables.Table):
    model = tables.Column(verbose_name="Model")
    accelerator = Link("accelerator", "accelerator", verbose_name="Accelerator")
    chips = Number("chips", "Chips")
    engine = tables.Column(accessor="framework", verbose_name="Engine")
    weights_dtype = tables.Column(verbose_name="Weights")
    isl = Number("isl", "Input tokens")
    osl = Number("osl", "Output tokens")
    concurrency = Number("concurrency", "Users")
    measured = Number("measured", "Measured", 3)
    predicted = Number("predicted", "Predicted", 3)
    error = Drawn(
        lambda value, row: f"{value * 100:+.0f}%", "Error of the prediction", accessor="bias_fraction", attrs=NUMBER
    )
    source = tables.Column(accessor="source_key", verbose_name="Source")
    metric = Drawn(figure_words, "Figure")
    licence = tables.Column(accessor="evidence_import__licence", verbose_name="License", default="not known")
    client = text("Load generator", accessor="evidence_import__client")
    place = text("Place", accessor="evidence_import__place")
    caveats = text("Caveats", accessor="evidence_import__caveats")
    note = text("Note")
    key = tables.Column(verbose_name="ID")

    class Meta:
        model = EvidenceRow
        fields = (
            *("model", "accelerator", "chips", "engine", "framework_version", "weights_dtype", "layout", "isl", "osl"),
            *("concurrency", "metric", "measured", "predicted", "error", "measured_on", "source", "licence", "client"),
            *("place", "caveats", "mode", "basis", "note", "key"),
        )

    shown = (
        *("model", "accelerator", "chips", "engine", "weights_dtype", "concurrency"),
        *("metric", "measured", "predicted", "error", "measured_on", "source", "licence"),
    )
    groups = {
        "Run": (
            *("model", "accelerator", "chips", "engine", "framework_version", "weights_dtype", "layout", "mode"),
            *("isl", "osl", "concurrency"),
        ),
        "Figure": ("metric", "measured", "predicted", "error", "basis", "note"),
        "Source": ("measured_on", "source", "licence", "client", "place", "caveats", "key"),
    }
