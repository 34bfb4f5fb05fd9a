"""Price updates over REST: the last report, and the prices that wait for a decision."""

from typing import Any, ClassVar

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import exceptions, generics, serializers, views
from rest_framework.request import Request
from rest_framework.response import Response

from advisor.api import Pages
from advisor.web import price_pages
from catalog.accounts import Right, caller_of, organisation_of, why_not
from catalog.loading.fixtures import FixtureError
from catalog.models import HeldPrice
from catalog.pricing import imports
from catalog.rest import Conflict, problems


class PriceUpdates(views.APIView):
    @extend_schema(
        operation_id="getPriceUpdates",
        summary="Get the report of the last price refresh, with the answers of the organization that changed",
        responses={200: OpenApiResponse(OpenApiTypes.OBJECT), **problems(401, 403, 406)},
    )
    def get(self, request: Request) -> Response:
        return Response(price_pages.newest_report(organisation_of(request)))


class HeldPriceSerializer(serializers.ModelSerializer[HeldPrice]):
    file_name = serializers.CharField(source="price_import.file_name")
    is_public = serializers.SerializerMethodField(help_text="Of all organizations, which maintainers decide about")

    class Meta:
        model = HeldPrice
        fields = ["id", "row", "reason", "state", "file_name", "is_public", "decided_by", "decided_at"]
        read_only_fields = fields

    def get_is_public(self, row: HeldPrice) -> bool:
        return row.price_import.organisation_id is None


class HeldPrices(generics.ListAPIView[HeldPrice]):
    serializer_class = HeldPriceSerializer
    pagination_class = Pages
    queryset = HeldPrice.objects.none()

    def get_queryset(self) -> QuerySet[HeldPrice]:
        if getattr(self, "swagger_fake_view", False):
            return super().get_queryset()
        return price_pages.waiting(caller_of(self.request))

    @extend_schema(operation_id="listHeldPrices", summary="List the prices that look like a mistake and wait")
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return super().get(request, *args, **kwargs)


class Decides(generics.GenericAPIView[HeldPrice]):
    rights: ClassVar = {"POST": Right.READ}  # and the one that the price needs
    serializer_class = HeldPriceSerializer
    queryset = HeldPrice.objects.none()

    def decided(self, pk: int, decide: Any) -> Response:
        caller = caller_of(self.request)
        row = get_object_or_404(price_pages.held_prices(caller), pk=pk)
        right = price_pages.right_to_decide(row)
        if not caller.may(right):
            raise exceptions.PermissionDenied(why_not(caller, right))
        try:
            decide(pk, caller.name)
        except (imports.NotHeld, FixtureError) as error:
            raise Conflict(str(error)) from None
        row.refresh_from_db()
        return Response(self.get_serializer(row).data)


def described(operation_id: str, summary: str) -> Any:
    return extend_schema(
        operation_id=operation_id,
        summary=summary,
        parameters=[OpenApiParameter("id", int, OpenApiParameter.PATH)],
        request=None,
        responses={200: HeldPriceSerializer, **problems(401, 403, 404, 406, 409)},
    )


class Release(Decides):
    @described("releaseHeldPrice", "Add a price that waits")
    def post(self, request: Request, pk: int) -> Response:
        return self.decided(pk, imports.release)


class Discard(Decides):
    @described("discardHeldPrice", "Discard a price that waits")
    def post(self, request: Request, pk: int) -> Response:
        return self.decided(pk, imports.discard)
