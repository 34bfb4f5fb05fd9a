"""The columns of the catalog's lists."""

# mypy: allow-subclassing-any

import django_tables2 as tables
from django.db.models import F, QuerySet
from django_tables2.utils import A

from advisor.engine.model import from_shape, parameters
from catalog.details import figure
from catalog.models import Accelerator, ApiPrice, Framework, Price, QuantizationMethod, Region, ServedModel

NUMBER = {"th": {"class": "num", "scope": "col"}, "td": {"class": "num"}}


def number(places: int = 0, **rest: object) -> tables.TemplateColumn:
    """A right-aligned number with its thousands apart; nothing where there is none."""
    template = "{% load humanize %}{{ value|floatformat:'-" + str(places) + "'|intcomma|default:'–' }}"
    return tables.TemplateColumn(template, attrs=NUMBER, **rest)


class AcceleratorTable(tables.Table):
    name = tables.LinkColumn("catalog:accelerator", args=[A("slug")])
    memory_gib = number(2, verbose_name="Memory, GiB")
    memory_gb_per_s = number(verbose_name="Bandwidth, GB/s")
    bf16 = tables.Column(empty_values=(), orderable=False, verbose_name="BF16 or FP16, TFLOP/s", attrs=NUMBER)
    fp8 = tables.Column(
        accessor="dense_tflops__fp8", orderable=False, verbose_name="FP8, TFLOP/s", default="–", attrs=NUMBER
    )
    tdp_watts = number(verbose_name="TDP, W")
    served = tables.BooleanColumn(yesno="yes,no", verbose_name="Served")

    class Meta:
        model = Accelerator
        fields = ("name", "vendor", "kind", "memory_gib", "memory_gb_per_s", "bf16", "fp8", "tdp_watts", "served")

    def render_bf16(self, record: Accelerator) -> str:
        rate = record.dense_tflops.get("bf16") or record.dense_tflops.get("fp16")
        return figure(rate) if rate else "–"

    def render_fp8(self, value: float) -> str:
        return figure(value)

    def render_served(self, value: bool) -> str:
        return "yes" if value else "no"


class PriceTable(tables.Table):
    provider = tables.Column()
    accelerator = tables.LinkColumn("catalog:accelerator", args=[A("accelerator__slug")])
    accelerators = number(verbose_name="Chips")
    usd_per_hour = number(4, verbose_name="USD/h, whole instance")
    per_chip = tables.Column(empty_values=(), verbose_name="USD/h per chip", attrs=NUMBER)
    purchase_usd = number(verbose_name="Purchase, USD")
    as_of = tables.DateColumn(format="Y-m-d", verbose_name="As of")

    class Meta:
        model = Price
        fields = (
            *("provider", "instance", "accelerator", "accelerators", "region", "term", "usd_per_hour", "per_chip"),
            *("purchase_usd", "kind", "as_of", "source"),
        )
        order_by = "-as_of"

    def render_per_chip(self, record: Price) -> str:
        return f"{record.usd_per_hour / record.accelerators:,.4f}" if record.usd_per_hour else "–"

    def order_per_chip(self, queryset: QuerySet[Price], is_descending: bool) -> tuple[QuerySet[Price], bool]:
        ratio = F("usd_per_hour") / F("accelerators")
        return queryset.order_by(ratio.desc(nulls_last=True) if is_descending else ratio.asc(nulls_last=True)), True


class ApiPriceTable(tables.Table):
    model = tables.LinkColumn("catalog:model", args=[A("model__slug")])
    usd_per_mtok_input = number(4, verbose_name="Input, USD/Mtok")
    usd_per_mtok_cached_input = number(4, verbose_name="Cached input, USD/Mtok")
    usd_per_mtok_output = number(4, verbose_name="Output, USD/Mtok")
    as_of = tables.DateColumn(format="Y-m-d", verbose_name="As of")

    class Meta:
        model = ApiPrice
        fields = (
            *("model", "provider", "name", "usd_per_mtok_input", "usd_per_mtok_cached_input", "usd_per_mtok_output"),
            *("as_of", "source"),
        )


class ModelTable(tables.Table):
    hf_id = tables.LinkColumn("catalog:model", args=[A("slug")], verbose_name="Model")
    size = tables.Column(empty_values=(), orderable=False, verbose_name="Parameters", attrs=NUMBER)
    max_context_tokens = number(verbose_name="Context, tokens")

    class Meta:
        model = ServedModel
        fields = ("hf_id", "family", "size", "native_dtype", "max_context_tokens", "licence")

    def render_size(self, record: ServedModel) -> str:
        return f"{parameters(from_shape(record.slug, record.shape)) / 1e9:,.2f} B"


class FrameworkTable(tables.Table):
    name = tables.LinkColumn("catalog:framework", args=[A("slug"), A("version")])
    vendors = tables.Column(empty_values=(), orderable=False)
    scheduler = tables.Column(accessor="settings__scheduler", orderable=False)

    class Meta:
        model = Framework
        fields = ("name", "version", "vendors", "scheduler", "as_of")

    def render_vendors(self, record: Framework) -> str:
        return ", ".join(record.settings["vendors"])


class QuantizationTable(tables.Table):
    name = tables.LinkColumn("catalog:quantization", args=[A("slug")])
    applies_to = tables.Column(accessor="settings__applies_to", orderable=False)
    bits = tables.Column(
        accessor="settings__bits_per_weight", orderable=False, verbose_name="Bits per weight", attrs=NUMBER
    )
    activations = tables.Column(accessor="settings__activations_dtype", orderable=False, verbose_name="Multiplied in")
    quality = tables.Column(accessor="settings__quality", orderable=False)

    class Meta:
        model = QuantizationMethod
        fields = ("name", "applies_to", "bits", "activations", "quality")


class RegionTable(tables.Table):
    electricity_usd_per_kwh = number(4, verbose_name="Electricity, USD/kWh")
    grid_kgco2e_per_kwh = number(4, verbose_name="Grid, kgCO2e/kWh")

    class Meta:
        model = Region
        fields = ("name", "country", "slug", "electricity_usd_per_kwh", "grid_kgco2e_per_kwh", "as_of")
