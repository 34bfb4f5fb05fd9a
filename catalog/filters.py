"""What the catalog's lists can be narrowed by, in pages and REST alike."""

# mypy: allow-subclassing-any

import django_filters
from django import forms
from django.db.models import QuerySet

from catalog.fixtures import DTYPES, KINDS, TERMS
from catalog.models import Accelerator, ApiPrice, Framework, Price, QuantizationMethod, Region, ServedModel

YES_NO = forms.Select(choices=[("", "Any"), ("true", "Yes"), ("false", "No")])


class AcceleratorFilter(django_filters.FilterSet):
    search = django_filters.CharFilter(field_name="name", lookup_expr="icontains", label="Name contains")
    vendor = django_filters.CharFilter(lookup_expr="iexact")
    kind = django_filters.ChoiceFilter(choices=[(kind, kind) for kind in KINDS], empty_label="Any")
    memory_gib_min = django_filters.NumberFilter(
        field_name="memory_gib", lookup_expr="gte", label="Memory, GiB, at least"
    )
    dtype = django_filters.ChoiceFilter(
        choices=[(dtype, dtype) for dtype in DTYPES], method="with_dtype", label="Multiplies in", empty_label="Any"
    )
    served = django_filters.BooleanFilter(label="Runs an open framework", widget=YES_NO)

    class Meta:
        model = Accelerator
        fields = ("search", "vendor", "kind", "memory_gib_min", "dtype", "served")

    def with_dtype(self, queryset: QuerySet[Accelerator], name: str, value: str) -> QuerySet[Accelerator]:
        return queryset.filter(dense_tflops__has_key=value)


class PriceFilter(django_filters.FilterSet):
    accelerator = django_filters.CharFilter(field_name="accelerator__slug", label="Accelerator")
    provider = django_filters.CharFilter()
    region = django_filters.CharFilter()
    term = django_filters.ChoiceFilter(choices=[(term, term) for term in TERMS], empty_label="Any")
    since = django_filters.DateFilter(field_name="as_of", lookup_expr="gte", label="Not older than")

    class Meta:
        model = Price
        fields = ("accelerator", "provider", "region", "term", "since")


class ApiPriceFilter(django_filters.FilterSet):
    model = django_filters.CharFilter(field_name="model__slug", label="Model")
    provider = django_filters.CharFilter()
    since = django_filters.DateFilter(field_name="as_of", lookup_expr="gte", label="Not older than")

    class Meta:
        model = ApiPrice
        fields = ("model", "provider", "since")


class ModelFilter(django_filters.FilterSet):
    search = django_filters.CharFilter(field_name="hf_id", lookup_expr="icontains", label="Name contains")
    family = django_filters.CharFilter()
    native_dtype = django_filters.CharFilter(label="Published in")

    class Meta:
        model = ServedModel
        fields = ("search", "family", "native_dtype")


class FrameworkFilter(django_filters.FilterSet):
    search = django_filters.CharFilter(field_name="name", lookup_expr="icontains", label="Name contains")

    class Meta:
        model = Framework
        fields = ("search",)


class QuantizationFilter(django_filters.FilterSet):
    search = django_filters.CharFilter(field_name="name", lookup_expr="icontains", label="Name contains")
    quality = django_filters.ChoiceFilter(
        field_name="settings__quality",
        choices=[(value, value) for value in ("lossless", "near_lossless", "lossy")],
        empty_label="Any",
    )

    class Meta:
        model = QuantizationMethod
        fields = ("search", "quality")


class RegionFilter(django_filters.FilterSet):
    search = django_filters.CharFilter(field_name="name", lookup_expr="icontains", label="Name contains")
    country = django_filters.CharFilter()

    class Meta:
        model = Region
        fields = ("search", "country")
