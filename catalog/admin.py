"""Django admin of the catalog: editable rows keep their history, append-only rows cannot be edited."""

# mypy: allow-subclassing-any, allow-any-generics

from typing import Any

from django.contrib import admin
from django.db.models import Model
from django.http import HttpRequest
from simple_history.admin import SimpleHistoryAdmin

from catalog.loading.moves import moving
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


class ReadOnly(AppendOnly):
    """Rows that only the program adds."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False


class OfEveryone:
    """Shows the rows of all organizations, too; without an organization, all see a row."""

    def get_queryset(self, request: HttpRequest) -> Any:
        return self.model._default_manager.of_everyone()  # type: ignore[attr-defined]


class Priced:
    """Rows whose changes move prices."""

    def changeform_view(self, *args: Any, **kwargs: Any) -> Any:
        with moving():
            return super().changeform_view(*args, **kwargs)  # type: ignore[misc]


JOINED = ("accelerator", "model", "organisation", "undoes", "user")  # columns that are rows of another table


def register(model: Any, *bases: Any, shown: str, filters: str = "", search: str = "", **options: str) -> None:
    """Registers a model with the columns of its list; of each option, the names separated by spaces."""
    named = {"list_display": shown, "list_filter": filters, "search_fields": search, **options}
    columns = {name: tuple(names.split()) for name, names in named.items()}
    joined = tuple(name for name in columns["list_display"] if name in JOINED)
    made = type(f"{model.__name__}Admin", bases or (admin.ModelAdmin,), columns | {"list_select_related": joined})
    admin.site.register(model, made)


register(Quota, shown="organisation max_waiting_answers max_answers_per_day max_machines")
register(Identity, shown="user issuer subject made_at")
register(
    Accelerator,
    SimpleHistoryAdmin,
    shown="name vendor kind memory_gib memory_gb_per_s tdp_watts served as_of",
    filters="vendor kind served",
    search="name slug",
)
register(
    ServedModel,
    OfEveryone,
    SimpleHistoryAdmin,
    shown="hf_id organisation family native_dtype published_parameters as_of",
    filters="family",
    search="hf_id slug",
)
register(Framework, SimpleHistoryAdmin, shown="name version as_of")
register(QuantizationMethod, SimpleHistoryAdmin, shown="name slug as_of")
register(
    Region,
    SimpleHistoryAdmin,
    shown="name country electricity_usd_per_kwh grid_kgco2e_per_kwh as_of",
    search="name slug",
)
register(Assumption, SimpleHistoryAdmin, shown="key value unit low high as_of")
register(
    Price,
    Priced,
    AppendOnly,
    shown="provider instance accelerator region term usd_per_hour purchase_usd as_of",
    filters="term provider",
    search="instance accelerator__slug",
)
register(
    InstanceType,
    shown="provider instance vcpus host_memory_gib local_disk_gb network_gbit_per_s as_of",
    filters="provider",
    search="instance",
)
register(
    ApiPrice,
    Priced,
    AppendOnly,
    shown="model provider name usd_per_mtok_input usd_per_mtok_output as_of",
    filters="provider",
)
register(ApiProvider, SimpleHistoryAdmin, shown="name slug base_url locations as_of")
register(
    Calibration,
    OfEveryone,
    AppendOnly,
    shown="name organisation basis engine_version as_of created_at undoes made_by",
    readonly_fields="changes results undoes made_by",  # written only by worker results and by undoing
)
register(CatalogLoad, ReadOnly, shown="loaded_at version")
register(
    Unit,
    Priced,
    SimpleHistoryAdmin,
    shown="name kind accelerator accelerators watts cooling price_usd as_of",
    filters="kind",
    search="name slug",
)
register(Benchmark, AppendOnly, shown="accelerator what value unit as_of")
register(
    Discount,
    Priced,
    AppendOnly,
    shown="organisation provider accelerator term discount_fraction as_of",
    filters="organisation provider",
)
register(
    SupportLicence,
    AppendOnly,
    shown="organisation name vendor usd_per_accelerator_per_year as_of",
    filters="organisation",
)
register(Membership, shown="user organisation role made_at", filters="organisation role")
register(AuditEvent, ReadOnly, shown="at organisation who action what detail", filters="organisation action")
register(Organisation, shown="name slug")
