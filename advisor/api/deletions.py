"""Deleting over REST, and the lists of what staff may delete."""

from typing import Any

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_view
from rest_framework import generics, views
from rest_framework.request import Request
from rest_framework.response import Response

from advisor import advise, deletion
from advisor.api.openapi import problems
from advisor.api.serializers import ShareSerializer, TokenSerializer
from advisor.api.views import DELETED, Pages
from advisor.models import ApiToken, LoadTest, Share
from catalog.deleting import StaffOnly, who

# --- deleting ---------------------------------------------------------------------------------------------------


class ForStaff(views.APIView):
    """Staff, `admin` tokens, and visitors where the installation has no user."""

    def get_permissions(self) -> list[Any]:
        return [*super().get_permissions(), StaffOnly()]


RANK = OpenApiParameter("rank", int, OpenApiParameter.PATH)


class OneLoadTest(ForStaff):
    @extend_schema(
        operation_id="deleteLoadTest",
        summary="Delete a load test",
        parameters=[RANK, OpenApiParameter("test", int, OpenApiParameter.PATH)],
        responses=DELETED,
    )
    def delete(self, request: Request, pk: Any, rank: int, test: int) -> Response:
        rows = LoadTest.objects.filter(option__advice__in=advise.visible(), option__advice=pk, option__rank=rank)
        deletion.delete_load_test(get_object_or_404(rows, pk=test), who(request.user))
        return Response(status=204)


@extend_schema_view(
    get=extend_schema(
        operation_id="listShares",
        summary="The links to an advice, ended ones too",
        responses={200: ShareSerializer, **problems(401, 403, 404, 406)},
    )
)
class Shares(ForStaff, generics.ListAPIView[Share]):
    serializer_class = ShareSerializer
    pagination_class = Pages
    queryset = Share.objects.none()

    def get_queryset(self) -> QuerySet[Share]:
        return get_object_or_404(advise.visible().defer("result"), pk=self.kwargs["pk"]).shares.order_by("-pk")


class OneShare(ForStaff):
    @extend_schema(
        operation_id="deleteShare",
        summary="Delete a link to an advice",
        parameters=[OpenApiParameter("share", int, OpenApiParameter.PATH)],
        responses=DELETED,
    )
    def delete(self, request: Request, pk: Any, share: int) -> Response:
        rows = Share.objects.filter(advice__in=advise.visible(), advice=pk)
        deletion.delete_share(get_object_or_404(rows, pk=share), who(request.user))
        return Response(status=204)


@extend_schema_view(
    get=extend_schema(
        operation_id="listTokens",
        summary="API tokens with their scope, state and last use; never the token itself",
        responses={200: TokenSerializer, **problems(400, 401, 403, 406)},
    )
)
class Tokens(ForStaff, generics.ListAPIView[ApiToken]):
    serializer_class = TokenSerializer
    pagination_class = Pages
    queryset = ApiToken.objects.none()

    def get_queryset(self) -> QuerySet[ApiToken]:
        return ApiToken.objects.filter(organisation=advise.default_organisation())


class OneToken(ForStaff):
    @extend_schema(
        operation_id="deleteToken",
        summary="Delete an API token; its next call is refused",
        parameters=[OpenApiParameter("id", int, OpenApiParameter.PATH)],
        responses=DELETED,
    )
    def delete(self, request: Request, pk: int) -> Response:
        rows = ApiToken.objects.filter(organisation=advise.default_organisation())
        deletion.delete_token(get_object_or_404(rows, pk=pk), who(request.user))
        return Response(status=204)
