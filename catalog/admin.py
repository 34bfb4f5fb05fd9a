"""Django admin of the catalog: editable rows keep their history, append-only rows cannot be edited."""

# mypy: allow-subclassing-any, allow-any-generics

from typing import Any

from django.contrib import admin
from django.db.models import Model
from django.http import HttpRequest
from simple_history.admin import SimpleHistoryAdmin

from catalog.models import (
    Accelerator,
    ApiPrice,
    ApiProvider,
    Assumption,
    AuditEvent,
    Benchmark,
    Calibration,
    CatalogLoad,
    Discount,
    Framework,
    Identity,
    InstanceType,
    Membership,
    Organisation,
    Price,
    QuantizationMethod,
    Quota,
    Region,
    ServedModel,
    SupportLicence,
    Unit,
)


class AppendOnly(admin.ModelAdmin):
    """Rows that can be added, but not changed or deleted."""

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


class OfEveryone:
    """Shows the rows of all organizations, too; without an organization, all see a row."""

    def get_queryset(self, request: HttpRequest) -> Any:
        return self.model._default_manager.of_everyone()  # type: ignore[attr-defined]


@admin.register(Quota)
class QuotaAdmin(admin.ModelAdmin):
    list_display = ("organisation", "max_waiting_answers", "max_answers_per_day", "max_machines")


@admin.register(Identity)
class IdentityAdmin(admin.ModelAdmin):
    list_display = ("user", "issuer", "subject", "made_at")


@admin.register(Accelerator)
class AcceleratorAdmin(SimpleHistoryAdmin):
    list_display = ("name", "vendor", "kind", "memory_gib", "memory_gb_per_s", "tdp_watts", "served", "as_of")
    list_filter = ("vendor", "kind", "served")
    search_fields = ("name", "slug")


@admin.register(ServedModel)
class ServedModelAdmin(OfEveryone, SimpleHistoryAdmin):
    list_display = ("hf_id", "organisation", "family", "native_dtype", "published_parameters", "as_of")
    list_filter = ("family",)
    search_fields = ("hf_id", "slug")


@admin.register(Framework)
class FrameworkAdmin(SimpleHistoryAdmin):
    list_display = ("name", "version", "as_of")


@admin.register(QuantizationMethod)
class QuantizationMethodAdmin(SimpleHistoryAdmin):
    list_display = ("name", "slug", "as_of")


@admin.register(Region)
class RegionAdmin(SimpleHistoryAdmin):
    list_display = ("name", "country", "electricity_usd_per_kwh", "grid_kgco2e_per_kwh", "as_of")
    search_fields = ("name", "slug")


@admin.register(Assumption)
class AssumptionAdmin(SimpleHistoryAdmin):
    list_display = ("key", "value", "unit", "low", "high", "as_of")


@admin.register(Price)
class PriceAdmin(AppendOnly):
    list_display = ("provider", "instance", "accelerator", "region", "term", "usd_per_hour", "purchase_usd", "as_of")
    list_filter = ("term", "provider")
    search_fields = ("instance", "accelerator__slug")
    list_select_related = ("accelerator",)


@admin.register(InstanceType)
class InstanceTypeAdmin(admin.ModelAdmin):
    list_display = ("provider", "instance", "vcpus", "host_memory_gib", "local_disk_gb", "network_gbit_per_s", "as_of")
    list_filter = ("provider",)
    search_fields = ("instance",)


@admin.register(ApiPrice)
class ApiPriceAdmin(AppendOnly):
    list_display = ("model", "provider", "name", "usd_per_mtok_input", "usd_per_mtok_output", "as_of")
    list_filter = ("provider",)
    list_select_related = ("model",)


@admin.register(ApiProvider)
class ApiProviderAdmin(SimpleHistoryAdmin):
    list_display = ("name", "slug", "base_url", "locations", "as_of")


@admin.register(Calibration)
class CalibrationAdmin(OfEveryone, AppendOnly):
    list_display = ("name", "organisation", "basis", "engine_version", "as_of", "created_at", "undoes", "made_by")
    readonly_fields = ("changes", "results", "undoes", "made_by")  # written only by worker results and by undoing


@admin.register(CatalogLoad)
class CatalogLoadAdmin(AppendOnly):
    list_display = ("loaded_at", "version")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False


@admin.register(Unit)
class UnitAdmin(SimpleHistoryAdmin):
    list_display = ("name", "kind", "accelerator", "accelerators", "watts", "cooling", "price_usd", "as_of")
    list_filter = ("kind",)
    search_fields = ("name", "slug")
    list_select_related = ("accelerator",)


@admin.register(Benchmark)
class BenchmarkAdmin(AppendOnly):
    list_display = ("accelerator", "what", "value", "unit", "as_of")
    list_select_related = ("accelerator",)


@admin.register(Discount)
class DiscountAdmin(AppendOnly):
    list_display = ("organisation", "provider", "accelerator", "term", "discount_fraction", "as_of")
    list_filter = ("organisation", "provider")
    list_select_related = ("organisation", "accelerator")


@admin.register(SupportLicence)
class SupportLicenceAdmin(AppendOnly):
    list_display = ("organisation", "name", "vendor", "usd_per_accelerator_per_year", "as_of")
    list_filter = ("organisation",)
    list_select_related = ("organisation",)


@admin.register(Membership)
class MembershipAdmin(admin.ModelAdmin):
    list_display = ("user", "organisation", "role", "made_at")
    list_filter = ("organisation", "role")
    list_select_related = ("user", "organisation")


@admin.register(AuditEvent)
class AuditEventAdmin(AppendOnly):
    list_display = ("at", "organisation", "who", "action", "what", "detail")
    list_filter = ("organisation", "action")
    list_select_related = ("organisation",)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False


@admin.register(Organisation)
class OrganisationAdmin(admin.ModelAdmin):
    list_display = ("name", "slug")
