"""The read-only REST API of the catalog; only imported models can be deleted."""

from http import HTTPStatus
from typing import Any

from django.db.models import F, QuerySet
from django.http import Http404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse, extend_schema, extend_schema_view
from rest_framework import decorators, mixins, serializers, viewsets
from rest_framework.exceptions import APIException, PermissionDenied
from rest_framework.request import Request
from rest_framework.response import Response

from catalog import clock, owned_models
from catalog.accounts import Right, caller_of, why_not
from catalog.deletion import NotDeletable, delete_model, may_delete
from catalog.details import maturity
from catalog.lists import filters
from catalog.models import (
    Accelerator,
    ApiPrice,
    Assumption,
    EvidenceRow,
    Framework,
    Price,
    QuantizationMethod,
    Region,
    ServedModel,
    Unit,
)
from catalog.pricing.derived import DERIVED, NO_CURRENT_PRICE, accelerators, public_prices
from catalog.pricing.finding import in_currency
from catalog.rest import Filters, KnownParameters, Ordering, Pages, columns, selected
from catalog.revision import kept_list

PROBLEM = "application/problem+json"


class Refused(APIException):
    status_code = HTTPStatus.CONFLICT


class Listed(viewsets.ReadOnlyModelViewSet[Any]):
    """A list with the same filters and sorting as its page."""

    filter_backends = (KnownParameters, Filters, Ordering)
    pagination_class = Pages

    @kept_list
    def list(self, request: Request, *args: Any, **kwargs: Any) -> Any:
        return super().list(request, *args, **kwargs)

    @kept_list
    def retrieve(self, request: Request, *args: Any, **kwargs: Any) -> Any:
        return Response(selected(request, self, super().retrieve(request, *args, **kwargs).data))


class AcceleratorSerializer(serializers.ModelSerializer[Accelerator]):
    bf16_tflops = serializers.FloatField(
        read_only=True, allow_null=True, help_text="Dense rate; FP16 where there is no BF16."
    )
    fp8_tflops = serializers.FloatField(read_only=True, allow_null=True)
    tflops_per_watt = serializers.FloatField(
        read_only=True, allow_null=True, help_text="BF16 or FP16 rate per watt of TDP."
    )
    flops_per_byte = serializers.FloatField(
        read_only=True, allow_null=True, help_text="BF16 or FP16 rate over memory bandwidth."
    )
    usd_per_hour_min = serializers.FloatField(
        read_only=True,
        allow_null=True,
        help_text="Lowest current on-demand price per chip: official, or of another origin where there is none.",
    )
    gb_per_s_per_usd_hour = serializers.FloatField(read_only=True, allow_null=True)
    usd_per_gib = serializers.FloatField(
        read_only=True, allow_null=True, help_text="Lowest current purchase price of the chip, per GiB of its memory."
    )
    newest_offer = serializers.DateField(read_only=True, allow_null=True)
    price_note = serializers.SerializerMethodField(
        help_text="`no current price` without an official offer or one of the last year."
    )

    class Meta:
        model = Accelerator
        exclude = ("id",)

    def get_price_note(self, chip: Any) -> str:
        return "" if chip.is_offered else NO_CURRENT_PRICE


class PriceSerializer(serializers.ModelSerializer[Price]):
    accelerator: serializers.SlugRelatedField[Accelerator] = serializers.SlugRelatedField(
        slug_field="slug", read_only=True
    )
    usd_per_chip_hour = serializers.FloatField(read_only=True, allow_null=True)
    usd_per_chip_month = serializers.FloatField(read_only=True, allow_null=True, help_text="Rent of 730 hours.")
    usd_per_chip = serializers.FloatField(read_only=True, allow_null=True, help_text="Purchase price of one chip.")
    age_days = serializers.SerializerMethodField(help_text="Days since as_of.")
    availability = serializers.CharField(
        read_only=True, allow_null=True, help_text="available or sold_out; null: no source states it."
    )
    availability_as_of = serializers.DateField(read_only=True, allow_null=True)
    converted_to = serializers.CharField(
        read_only=True, required=False, help_text="Currency of the converted prices: the parameter currency, or USD."
    )
    converted_per_chip_hour = serializers.FloatField(read_only=True, required=False, allow_null=True)
    converted_per_chip_month = serializers.FloatField(read_only=True, required=False, allow_null=True)
    converted_per_chip = serializers.FloatField(read_only=True, required=False, allow_null=True)

    class Meta:
        model = Price
        exclude = ("organisation", "made_by")

    def get_age_days(self, price: Price) -> int:
        return (clock.today() - price.as_of).days


class ApiPriceSerializer(serializers.ModelSerializer[ApiPrice]):
    model: serializers.SlugRelatedField[ServedModel] = serializers.SlugRelatedField(slug_field="slug", read_only=True)

    class Meta:
        model = ApiPrice
        fields = "__all__"


class ModelSerializer(serializers.ModelSerializer[ServedModel]):
    is_own = serializers.SerializerMethodField(help_text="Whether only the caller's organization sees it")

    class Meta:
        model = ServedModel
        exclude = ("id", "organisation")

    def get_is_own(self, row: ServedModel) -> bool:
        return row.organisation_id is not None


class FrameworkSerializer(serializers.ModelSerializer[Framework]):
    slug = serializers.CharField(read_only=True, help_text="Such as llama.cpp")
    maturity = serializers.SerializerMethodField(help_text="established, maturing, young or unknown.")

    class Meta:
        model = Framework
        fields = "__all__"

    def get_maturity(self, row: Framework) -> str:
        return maturity(row).level


class QuantizationSerializer(serializers.ModelSerializer[QuantizationMethod]):
    class Meta:
        model = QuantizationMethod
        exclude = ("id",)


class RegionSerializer(serializers.ModelSerializer[Region]):
    class Meta:
        model = Region
        exclude = ("id",)


class UnitSerializer(serializers.ModelSerializer[Unit]):
    accelerator: serializers.SlugRelatedField[Accelerator] = serializers.SlugRelatedField(
        slug_field="slug", read_only=True
    )

    class Meta:
        model = Unit
        exclude = ("id",)


class AssumptionSerializer(serializers.ModelSerializer[Assumption]):
    class Meta:
        model = Assumption
        exclude = ("id",)


class EvidenceSerializer(serializers.ModelSerializer[EvidenceRow]):
    source_name = serializers.CharField(source="evidence_import.name", help_text="What people call the source.")
    place = serializers.CharField(source="evidence_import.place")
    load_generator = serializers.CharField(source="evidence_import.client")
    licence = serializers.CharField(source="evidence_import.licence", help_text="Empty: not known.")

    class Meta:
        model = EvidenceRow
        exclude = ("id", "evidence_import", "given", "pair_index", "circumstance")


class Accelerators(Listed):
    """Accelerators: rates, memory, links and power. Each group of figures has its source."""

    queryset = Accelerator.objects.all()
    ordering_fields = (*columns(Accelerator), *DERIVED)
    serializer_class = AcceleratorSerializer
    filterset_class = filters.AcceleratorFilter
    lookup_field = "slug"

    def get_queryset(self) -> QuerySet[Accelerator]:
        """A new query: which offers are current depends on the day."""
        return accelerators()


class Prices(Listed):
    """Public offers, each with its date: instances to rent and hardware to buy. Only the newest row of each offer.

    With an accelerator, the cheapest come first, those of the place before those of any region, and current ones before
    older ones of the same product. `history=yes` returns older rows too.
    """

    queryset = in_currency(public_prices(), None)
    ordering_fields = (*columns(Price), "usd_per_chip_hour", "usd_per_chip")
    serializer_class = PriceSerializer
    filterset_class = filters.PriceFilter

    def filter_queryset(self, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """A single price is found even if a newer one replaced it."""
        if self.action == "retrieve":
            return KnownParameters().filter_queryset(self.request, queryset, self)
        return super().filter_queryset(queryset)


class ApiPrices(Listed):
    """Prices of hosted models in USD per million tokens, each with its date."""

    queryset = ApiPrice.objects.select_related("model")
    ordering_fields = columns(ApiPrice)
    serializer_class = ApiPriceSerializer
    filterset_class = filters.ApiPriceFilter


@extend_schema_view(
    destroy=extend_schema(
        operation_id="deleteModel",
        summary="Delete an imported model",
        description="Answers that used it stay readable. A model that ships with Assay cannot be deleted (409).",
        responses={204: OpenApiResponse(description="Deleted."), (409, PROBLEM): OpenApiTypes.OBJECT},
    )
)
class Models(mixins.DestroyModelMixin, Listed):
    """Models: shape and published size."""

    queryset = ServedModel.objects.all()
    ordering_fields = columns(ServedModel)
    serializer_class = ModelSerializer
    filterset_class = filters.ModelFilter
    lookup_field = "slug"

    rights = {"DELETE": Right.ADMINISTER, "POST": Right.MAINTAIN}

    @extend_schema(
        operation_id="shareModel",
        summary="Let all organizations see a model of the caller's organization",
        description="For operators and admins of the default organization. 409: there is a shared one of this name.",
        request=None,
        responses={200: ModelSerializer, (409, PROBLEM): OpenApiTypes.OBJECT},
    )
    @decorators.action(detail=True, methods=["post"])
    def share(self, request: Request, slug: str = "") -> Response:
        row = self.get_object()
        try:
            owned_models.share(row, caller_of(request).name)
        except owned_models.Taken as error:
            raise Refused(str(error)) from None
        return Response(self.get_serializer(row).data)

    def get_queryset(self) -> QuerySet[ServedModel]:
        is_schema = getattr(self, "swagger_fake_view", False)
        return ServedModel.objects.seen_by(None if is_schema else caller_of(self.request).own)

    def get_object(self) -> ServedModel:
        own_first = (
            self.get_queryset().filter(slug=self.kwargs["slug"]).order_by(F("organisation").asc(nulls_last=True))
        )
        if (row := own_first.first()) is None:
            raise Http404
        return row

    def perform_destroy(self, instance: ServedModel) -> None:
        caller = caller_of(self.request)
        if not may_delete(instance, caller):
            raise PermissionDenied(why_not(caller, Right.MAINTAIN))
        try:
            delete_model(instance, caller.name)
        except NotDeletable as error:
            raise Refused(str(error)) from None


class Frameworks(Listed):
    """Serving frameworks, one row per version."""

    queryset = Framework.objects.all()
    ordering_fields = columns(Framework)
    serializer_class = FrameworkSerializer
    filterset_class = filters.FrameworkFilter
    lookup_field = "slug"
    lookup_value_regex = "[^/]+"

    def get_object(self) -> Framework:
        """The newest version of a framework."""
        newest = self.get_queryset().filter(slug=self.kwargs["slug"]).order_by("-as_of", "-pk").first()
        if newest is None:
            raise Http404
        return newest


class Quantizations(Listed):
    """Formats of weights and KV cache, with their effect on quality."""

    queryset = QuantizationMethod.objects.all()
    ordering_fields = columns(QuantizationMethod)
    serializer_class = QuantizationSerializer
    filterset_class = filters.QuantizationFilter
    lookup_field = "slug"


class Regions(Listed):
    """Regions: electricity price, grid carbon intensity, PUE and colocation price."""

    queryset = Region.objects.all()
    ordering_fields = columns(Region)
    serializer_class = RegionSerializer
    filterset_class = filters.RegionFilter
    lookup_field = "slug"


class Units(Listed):
    """Units that are sold or rented whole (boards, hosts, racks, slices), with power, cooling and price."""

    queryset = Unit.objects.select_related("accelerator")
    ordering_fields = columns(Unit)
    serializer_class = UnitSerializer
    filterset_class = filters.UnitFilter
    lookup_field = "slug"


class Assumptions(Listed):
    """The default assumptions on cost, power and reliability."""

    queryset = Assumption.objects.all()
    ordering_fields = columns(Assumption)
    serializer_class = AssumptionSerializer
    lookup_field = "key"


class Evidence(mixins.ListModelMixin, viewsets.GenericViewSet[Any]):
    """Measured figures of other benchmarks that were imported, with their source, license and prediction."""

    filter_backends = (KnownParameters, Filters, Ordering)
    pagination_class = Pages
    queryset = EvidenceRow.objects.select_related("evidence_import").defer("given")
    ordering_fields = tuple(name for name in columns(EvidenceRow) if name != "evidence_import")
    serializer_class = EvidenceSerializer
    filterset_class = filters.EvidenceFilter

    @kept_list
    def list(self, request: Request, *args: Any, **kwargs: Any) -> Any:
        return super().list(request, *args, **kwargs)
