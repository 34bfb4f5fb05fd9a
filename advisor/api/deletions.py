"""Deletion over REST, and the lists of links and tokens that admins may delete."""

from typing import Any, ClassVar

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_view
from rest_framework import generics, views
from rest_framework.request import Request
from rest_framework.response import Response

from advisor import advise, deletion
from advisor.api.serializers import ShareSerializer, TokenSerializer
from advisor.api.views import DELETED, Pages, is_schema
from advisor.models import ApiToken, LoadTest, Share
from catalog.accounts import Right, caller_of, organisation_of
from catalog.rest import problems


class ForAdmins(views.APIView):
    """For admins and `admin` tokens, and for anyone while the installation has no user."""

    rights: ClassVar = dict.fromkeys(("GET", "DELETE"), Right.ADMINISTER)


class DeletableRow(ForAdmins):
    """Deletes one row. For admins and `admin` tokens, and for anyone while the installation has no user."""

    key: str  # the path parameter with the row's primary key

    def rows(self) -> QuerySet[Any]:
        """The visible rows that match the path."""
        raise NotImplementedError

    def remove(self, row: Any, by: str) -> None:
        """Deletes the row. `by`: who deletes it, for the log."""
        raise NotImplementedError

    def delete(self, request: Request, **path: Any) -> Response:
        self.remove(get_object_or_404(self.rows(), pk=path[self.key]), caller_of(request).name)
        return Response(status=204)


def deletes(operation_id: str, summary: str, *parameters: str) -> Any:
    """The OpenAPI description of a deletion; `parameters` are the integers in its path."""
    described = [OpenApiParameter(name, int, OpenApiParameter.PATH) for name in parameters]
    return extend_schema_view(
        delete=extend_schema(operation_id=operation_id, summary=summary, parameters=described, responses=DELETED)
    )


@deletes("deleteLoadTest", "Delete a load test", "rank", "test")
class OneLoadTest(DeletableRow):
    key = "test"

    def rows(self) -> QuerySet[LoadTest]:
        visible = LoadTest.objects.filter(option__advice__in=advise.visible(organisation_of(self.request)))
        return visible.filter(option__advice=self.kwargs["pk"], option__rank=self.kwargs["rank"])

    def remove(self, row: LoadTest, by: str) -> None:
        deletion.delete_load_test(row, by)


@deletes("deleteShare", "Delete a link to a recommendation", "share")
class OneShare(DeletableRow):
    key = "share"

    def rows(self) -> QuerySet[Share]:
        return Share.objects.filter(advice__in=advise.visible(organisation_of(self.request)), advice=self.kwargs["pk"])

    def remove(self, row: Share, by: str) -> None:
        deletion.delete_share(row, by)


@deletes("deleteToken", "Delete an API token; its next call is refused", "id")
class OneToken(DeletableRow):
    key = "pk"

    def rows(self) -> QuerySet[ApiToken]:
        return ApiToken.objects.filter(organisation=organisation_of(self.request))

    def remove(self, row: ApiToken, by: str) -> None:
        deletion.delete_token(row, by)


@extend_schema_view(
    get=extend_schema(
        operation_id="listShares",
        summary="List the links to a recommendation, including expired ones",
        responses={200: ShareSerializer, **problems(401, 403, 404, 406)},
    )
)
class Shares(ForAdmins, generics.ListAPIView[Share]):
    serializer_class = ShareSerializer
    pagination_class = Pages
    queryset = Share.objects.none()

    def get_queryset(self) -> QuerySet[Share]:
        if is_schema(self):
            return self.queryset
        return get_object_or_404(
            advise.visible(organisation_of(self.request)).defer("result"), pk=self.kwargs["pk"]
        ).shares.order_by("-pk")


@extend_schema_view(
    get=extend_schema(
        operation_id="listTokens",
        summary="List API tokens with scope, state and last use, without the tokens themselves",
        responses={200: TokenSerializer, **problems(400, 401, 403, 406)},
    )
)
class Tokens(ForAdmins, generics.ListAPIView[ApiToken]):
    serializer_class = TokenSerializer
    pagination_class = Pages
    queryset = ApiToken.objects.none()

    def get_queryset(self) -> QuerySet[ApiToken]:
        if is_schema(self):
            return self.queryset
        return ApiToken.objects.filter(organisation=organisation_of(self.request))
