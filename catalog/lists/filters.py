"""Filters of the catalog's lists, shared by pages and REST. Those that are facets take several values."""

# mypy: allow-subclassing-any

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cached_property, reduce
from operator import or_
from typing import Any

import django_filters
from django import forms
from django.db.models import BooleanField, ExpressionWrapper, F, Q, QuerySet
from django.db.models.base import Model
from drf_spectacular.utils import extend_schema_field

from catalog import clock
from catalog.form_fields import MAX_NUMBER, DayField, NumberField, WholeField
from catalog.lists import facets
from catalog.loading.fixtures import CONFIDENCES, DTYPES, KINDS, ORIGINS, TERMS, UNIT_KINDS, USD
from catalog.loading.places import place_text
from catalog.models import (
    Accelerator,
    ExchangeRate,
    Price,
)
from catalog.pricing import finding, reader
from catalog.pricing.current import OFFICIAL
from catalog.pricing.derived import among, current, first_ids, newest_ids
from catalog.revision import revision

MAX_FACET_CHARS = 120
MAX_LISTED = 200
EMPTY: tuple[Any, ...] = (None, "", [])
BOUNDS = {"minimum": -MAX_NUMBER, "maximum": MAX_NUMBER}


class Search(django_filters.CharFilter):
    """Text search: each word must occur in one of the columns."""

    def __init__(self, *columns: str) -> None:
        super().__init__(label="Search", widget=forms.TextInput(attrs={"type": "search"}))
        self.columns = columns

    def filter(self, queryset: QuerySet[Model], value: str) -> QuerySet[Model]:
        for word in (value or "").split():
            queryset = queryset.filter(reduce(or_, (Q(**{f"{name}__icontains": word}) for name in self.columns)))
        return queryset


@extend_schema_field({"type": "number", **BOUNDS})
class Number(django_filters.NumberFilter):
    field_class = NumberField


@extend_schema_field({"type": "integer", **BOUNDS})
class Whole(django_filters.NumberFilter):
    field_class = WholeField


@extend_schema_field({"type": "string", "format": "date"})
class Day(django_filters.DateFilter):
    field_class = DayField


@extend_schema_field({"type": "boolean"})
class YesNo(django_filters.TypedChoiceFilter):
    def __init__(self, **kwargs: Any) -> None:
        choices = [("", "Any"), ("true", "Yes"), ("false", "No")]
        super().__init__(choices=choices, coerce=lambda value: value == "true", **kwargs)


def choice(values: tuple[str, ...], **rest: object) -> django_filters.ChoiceFilter:
    return django_filters.ChoiceFilter(choices=[(value, value) for value in values], empty_label="Any", **rest)


class ManyField(forms.MultipleChoiceField):
    """Values given one by one or separated by commas."""

    def to_python(self, value: Any) -> list[str]:
        parts = [part.strip() for text in value or () for part in str(text).split(",")]
        return list(dict.fromkeys(part for part in parts if part))


class ManyTextField(ManyField):
    def valid_value(self, value: Any) -> bool:
        return len(str(value)) <= MAX_FACET_CHARS


class AnyOf(django_filters.MultipleChoiceFilter):
    """A facet: rows with any of these values. `Faceted` narrows by all facets together."""

    field_class = ManyField
    HELP = "Repeat it, or separate values with commas, to include several."

    def __init__(self, values: Mapping[str, str], label: str) -> None:
        super().__init__(choices=list(values.items()), label=f"{label}. {self.HELP}")
        self.title, self.words = label, dict(values)

    def filter(self, queryset: QuerySet[Any], value: list[str]) -> QuerySet[Any]:
        return queryset


@extend_schema_field({"type": "string", "description": AnyOf.HELP})
class AnyText(AnyOf):
    """The same with the values that the catalog has; case does not matter."""

    field_class = ManyTextField

    def __init__(self, label: str) -> None:
        super().__init__({}, label)


class Faceted(django_filters.FilterSet):
    """A list with facets: its filters of the kind AnyOf are named like the columns of `rows_of`."""

    rows_of: Callable[[], facets.Rows]
    stands_for: Mapping[str, tuple[str, ...]] = {}  # a value that means several

    def filter_queryset(self, queryset: QuerySet[Any]) -> QuerySet[Any]:
        found = super().filter_queryset(self.before_facets(queryset))
        if chosen := self.chosen():
            found = found.filter(among((0, *type(self).rows_of().matching(chosen))))
        return found

    def before_facets(self, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset

    @property
    def facet_filters(self) -> dict[str, AnyOf]:
        return {name: each for name, each in self.filters.items() if isinstance(each, AnyOf)}

    def chosen(self) -> dict[str, set[str]]:
        """The chosen values of each facet, as the catalog writes them."""
        found: dict[str, set[str]] = {}
        for name in self.facet_filters:
            for asked in self.form.cleaned_data.get(name) or ():
                values = self.stands_for.get(asked) or (type(self).rows_of().spelled(name, asked),)
                found.setdefault(name, set()).update(values)
        return found

    def counts(self) -> dict[str, dict[str, int]]:
        """How many rows each value of each facet would leave."""
        return type(self).rows_of().counts(self.chosen(), self.keys_before_facets())

    def keys_before_facets(self) -> Collection[int] | None:
        """The rows that the other filters leave; None: all."""
        given = self.form.cleaned_data
        others = [name for name, value in given.items() if name not in self.facet_filters and value not in EMPTY]
        if not others:
            return self.usual_keys()
        found = super().filter_queryset(self.before_facets(self.queryset))
        return list(found.order_by().values_list("pk", flat=True))

    def usual_keys(self) -> Collection[int] | None:
        """The rows of the list without any filter; None: all."""
        return None


def at_least(name: str, label: str, kind: type[django_filters.NumberFilter] = Number) -> django_filters.NumberFilter:
    return kind(field_name=name, lookup_expr="gte", label=f"{label}, at least")


def at_most(name: str, label: str) -> django_filters.NumberFilter:
    return Number(field_name=name, lookup_expr="lte", label=f"{label}, at most")


def words(values: Iterable[str]) -> dict[str, str]:
    return {each: each.replace("_", " ") for each in values}


class AcceleratorFilter(Faceted):
    """Facets about offers (region group, term, origin, age) hold for one current offer together."""

    rows_of = staticmethod(facets.of_accelerators)
    search = Search("name", "slug", "vendor", "family", "architecture", "kind")
    vendor = AnyText("Vendor")
    kind = AnyOf(words(KINDS), "Class")
    region_group = AnyOf(facets.REGION_GROUPS, "Offered in")
    term = AnyOf(words(TERMS), "Offered for")
    origin = AnyOf({each: finding.origin_words(each) for each in ORIGINS}, "Price origin")
    age = AnyOf(facets.AGES, "Age of the price")
    memory_gib_min = at_least("memory_gib", "Memory, GiB")
    dtype = choice(DTYPES, method="with_dtype", label="Supported dtype")
    served = YesNo(label="Runs an open framework")
    memory_gb_per_s_min = at_least("memory_gb_per_s", "Bandwidth, GB/s")
    bf16_tflops_min = at_least("bf16_tflops", "BF16 or FP16, TFLOP/s")
    tflops_per_watt_min = at_least("tflops_per_watt", "TFLOPS/W")
    tdp_watts_max = at_most("tdp_watts", "TDP, W")
    usd_per_hour_max = at_most("usd_per_hour_min", "Lowest USD/h")
    year_min = at_least("release_year", "Year", Whole)
    priced = YesNo(field_name="usd_per_hour_min", lookup_expr="isnull", exclude=True, label="Available to rent")

    def with_dtype(self, queryset: QuerySet[Accelerator], name: str, value: str) -> QuerySet[Accelerator]:
        return queryset.filter(dense_tflops__has_key=value)


class CurrencyField(forms.CharField):
    """The code of a currency with an exchange rate."""

    def clean(self, value: Any) -> str:
        code = str(super().clean(value)).strip().upper()
        known = sorted({USD, *finding.newest_rates()})
        if code and code not in known:
            message = "No exchange rate for %(code)s. Use one of %(known)s."  # a rate name may hold a percent sign
            raise forms.ValidationError(message, params={"code": code[:12], "known": ", ".join(known)})
        return code


@extend_schema_field({"type": "string", "enum": finding.shipped_currencies()})
class Currency(django_filters.Filter):
    field_class = CurrencyField


YES_NO = (("yes", "Yes"), ("no", "No"))
RENT, PURCHASE, ANY_OFFICIAL = "rent", "purchase", "official"


class PriceFilter(Faceted):
    """Only the newest row of each offer, unless `history` is yes."""

    rows_of = staticmethod(facets.of_prices)
    stands_for = {RENT: tuple(term for term in TERMS if term != PURCHASE), ANY_OFFICIAL: OFFICIAL}
    search = Search("provider", "instance", "accelerator__name", "accelerator__slug", "region")
    accelerator = django_filters.CharFilter(method="of_chips", label="Accelerator, such as H100")
    place = django_filters.CharFilter(method="at_place", label="Place: eu, us, apac, a country or a region")
    vendor = AnyText("Vendor")
    accelerator_kind = AnyOf(words(KINDS), "Class")
    region_group = AnyOf(facets.REGION_GROUPS, "Region")
    term = AnyOf({**words(TERMS), RENT: "rent: all but purchase"}, "Term")
    origin = AnyOf(
        {
            ANY_OFFICIAL: "official: provider's price list or API",
            **{each: finding.origin_words(each) for each in ORIGINS},
        },
        "Price origin",
    )
    age = AnyOf(facets.AGES, "Age")
    anywhere = django_filters.ChoiceFilter(
        choices=YES_NO, method="unchanged", label="Include prices for any region", empty_label="Yes (default)"
    )
    confidence = choice(CONFIDENCES)
    provider = django_filters.CharFilter(lookup_expr="iexact")
    region = django_filters.CharFilter()
    usd_per_chip_hour_max = at_most("usd_per_chip_hour", "USD/h per chip")
    currency = Currency(method="unchanged", label="Currency, such as EUR")
    current = django_filters.ChoiceFilter(
        choices=YES_NO, method="unchanged", label="Leave out expired and replaced prices", empty_label="No (default)"
    )
    history = django_filters.ChoiceFilter(
        choices=YES_NO, method="unchanged", label="Include older prices of an offer", empty_label="No (default)"
    )
    since = Day(field_name="as_of", lookup_expr="gte", label="Not older than")
    until = Day(field_name="as_of", lookup_expr="lte", label="Not newer than")

    def before_facets(self, queryset: QuerySet[Price]) -> QuerySet[Price]:
        given = self.form.cleaned_data
        day = min(given.get("until") or clock.today(), clock.today())
        if given.get("history") != "yes":
            queryset = queryset.filter(among(newest_ids(revision(), day)))
        return current(queryset, day) if given.get("current") == "yes" else queryset

    def usual_keys(self) -> Collection[int]:
        return newest_ids(revision(), clock.today())

    def filter_queryset(self, queryset: QuerySet[Price]) -> QuerySet[Price]:
        found = finding.in_currency(super().filter_queryset(queryset), self.rate)
        found = found.alias(
            is_anywhere=ExpressionWrapper(finding.anywhere(), output_field=BooleanField()),
            is_first=among(first_ids(revision(), clock.today())),
        )
        if not self.form.cleaned_data.get("accelerator"):
            return found
        keys = [F(name).asc(nulls_last=True) for name in ("usd_per_chip_hour", "usd_per_chip")]
        return found.order_by(*self.lead, *keys, "pk")

    @property
    def lead(self) -> list[str]:
        """What comes before the order of a page: prices known to hold in the place, then the current ones."""
        return [*(["is_anywhere"] if self.form.cleaned_data.get("place") else []), "-is_first"]

    @cached_property
    def rate(self) -> ExchangeRate | None:
        """The exchange rate to show prices with: of the filter, else of the reader's currency; None: in USD."""
        chosen = USD if "format" in self.data else reader.code()  # files have no other columns for another reader
        return finding.newest_rates().get(self.form.cleaned_data.get("currency") or chosen)

    @property
    def usual_sort(self) -> str | None:
        """The column by which a page is sorted if the address names none."""
        given = self.form.cleaned_data
        cheapest = "purchase_per_chip" if given.get("term") == [PURCHASE] else "per_chip"
        return cheapest if given.get("accelerator") else None

    @property
    def notes(self) -> list[str]:
        """What a page says about the filters: what a name stands for, and the exchange rate."""
        given, said = self.form.cleaned_data, []
        if asked := given.get("accelerator"):
            slugs = finding.chips_named(asked)
            names = Accelerator.objects.filter(slug__in=slugs).order_by("name").values_list("name", flat=True)
            if len(slugs) != 1:
                said.append(f"{asked} stands for {', '.join(names)}." if names else f"No accelerator is named {asked}.")
        if (place := given.get("place")) and not finding.is_place(place):
            said.append(f"{place} is not a known place. Enter eu, us, apac, a country, or a provider's region.")
        elif place and given.get("anywhere") != "no":
            said.append(f"Prices for any region come last: {place_text(place)} availability unknown. Ask the seller.")
        if rate := self.rate:
            said.append(f"1 USD = {rate.per_usd.normalize():f} {rate.currency} on {rate.as_of}. Source: {rate.source}")
        return said

    def of_chips(self, queryset: QuerySet[Price], name: str, value: str) -> QuerySet[Price]:
        return queryset.filter(accelerator__slug__in=finding.chips_named(value))

    def at_place(self, queryset: QuerySet[Price], name: str, value: str) -> QuerySet[Price]:
        return finding.in_place(queryset, value, self.form.cleaned_data.get("anywhere") != "no")

    def unchanged(self, queryset: QuerySet[Price], name: str, value: str) -> QuerySet[Price]:
        return queryset


class ApiPriceFilter(Faceted):
    rows_of = staticmethod(facets.of_api_prices)
    search = Search("provider", "name", "model__hf_id")
    model = django_filters.CharFilter(field_name="model__slug", label="Model")
    provider = AnyText("Provider")
    family = AnyText("Model family")
    quantization = AnyText("Weight format")
    hardware = AnyText("Runs on")
    age = AnyOf(facets.AGES, "Age")
    since = Day(field_name="as_of", lookup_expr="gte", label="Not older than")


class ModelFilter(django_filters.FilterSet):
    search = Search("hf_id", "slug", "family", "licence")
    family = django_filters.CharFilter()
    native_dtype = django_filters.CharFilter(label="Native dtype")
    context_min = at_least("max_context_tokens", "Context, tokens", Whole)


class FrameworkFilter(django_filters.FilterSet):
    search = Search("name", "slug", "version", "settings")
    slug = django_filters.CharFilter(field_name="slug", lookup_expr="exact", label="Slug")
    vendor = django_filters.CharFilter(field_name="settings__vendors", lookup_expr="icontains", label="Vendor")
    feature = django_filters.CharFilter(field_name="settings__features", lookup_expr="icontains", label="Feature")
    quantization = django_filters.CharFilter(
        field_name="settings__quantizations", lookup_expr="icontains", label="Supported format"
    )


class QuantizationFilter(django_filters.FilterSet):
    search = Search("name", "slug")
    quality = choice(("lossless", "near_lossless", "lossy"), field_name="settings__quality")
    applies_to = choice(("weights", "kv"), field_name="settings__applies_to", label="Applies to")


class RegionFilter(django_filters.FilterSet):
    search = Search("name", "slug", "country")
    country = django_filters.CharFilter()
    usd_per_kwh_max = at_most("electricity_usd_per_kwh", "Electricity, USD/kWh")
    kgco2e_per_kwh_max = at_most("grid_kgco2e_per_kwh", "Grid, kgCO2e/kWh")


class UnitFilter(django_filters.FilterSet):
    search = Search("name", "slug", "accelerator__name", "accelerator__slug")
    accelerator = django_filters.CharFilter(field_name="accelerator__slug", label="Accelerator")
    kind = choice(UNIT_KINDS)
    cooling = django_filters.CharFilter(lookup_expr="icontains")
    watts_max = at_most("watts", "Power, W")


class Listed(django_filters.CharFilter):
    """Rows with any of these values, separated by commas."""

    def filter(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        wanted = [part.strip() for part in (value or "").split(",") if part.strip()][:MAX_LISTED]
        return queryset.filter(**{f"{self.field_name}__in": wanted}) if wanted else queryset


class EvidenceFilter(django_filters.FilterSet):
    search = Search("key", "model", "accelerator", "framework", "framework_version", "evidence_import__name")
    accelerator = django_filters.CharFilter(label="Accelerator")
    model = django_filters.CharFilter(lookup_expr="icontains", label="Model")
    framework = django_filters.CharFilter(label="Framework")
    metric = django_filters.CharFilter(label="Metric")
    source = django_filters.CharFilter(field_name="source_key", label="Source")
    key = Listed(label="Row IDs, separated by commas")
