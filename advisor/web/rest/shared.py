"""A shared answer over REST, for anyone who has the link."""

from typing import Any

from django.http import HttpResponse
from django.utils.decorators import method_decorator
from drf_spectacular.utils import extend_schema
from rest_framework import permissions, serializers, views
from rest_framework.request import Request
from rest_framework.response import Response

from advisor.api import INCLUDE, AnswerField
from advisor.web import document_views
from advisor.web import views as pages
from advisor.web.rest.again import CONTROLS, WhatIfSerializer, estimated
from catalog.pricing import reader
from catalog.rest import problems

NOT_SHOWN = {"calibrations"}  # rows of the organization that shares it


class SharedSerializer(serializers.Serializer[Any]):
    name = serializers.CharField(source="workload.name")
    created_at = serializers.DateTimeField()
    result = AnswerField(source="answer", help_text="As GET /api/v1/advice/{id}/result, without own calibrations")

    def to_representation(self, instance: Any) -> Any:
        found = super().to_representation(instance)
        found["result"] = {name: part for name, part in found["result"].items() if name not in NOT_SHOWN}
        return found


class Public(views.APIView):
    """For anyone; kept out of search engines."""

    authentication_classes = ()
    permission_classes = (permissions.AllowAny,)

    def finalize_response(self, *args: Any, **kwargs: Any) -> Any:
        return pages.unlisted(super().finalize_response(*args, **kwargs))


class SharedAnswer(Public):
    @extend_schema(
        operation_id="getSharedAnswer",
        summary="Get the answer behind a link",
        parameters=[INCLUDE],
        auth=[],
        responses={200: SharedSerializer, **problems(400, 404, 406)},
    )
    def get(self, request: Request, token: str) -> Response:
        return Response(SharedSerializer(pages.shared_advice(token), context={"request": request}).data)


class SharedWhatIf(Public):
    @extend_schema(
        operation_id="estimateSharedWhatIf",
        summary="Rank the catalog by closed formulas for a shared question with changed values",
        parameters=CONTROLS,
        auth=[],
        responses={200: WhatIfSerializer, **problems(400, 404, 406, 409, 422, 503)},
    )
    @method_decorator(reader.in_english)
    def get(self, request: Request, token: str) -> Response:
        return estimated(request, pages.shared_advice(token), shared=True)


class SharedDocument(Public, document_views.Document):
    @document_views.described("getSharedDocument", auth=[])
    def get(self, request: Request, token: str, name: str) -> HttpResponse:
        return self.made(pages.shared_advice(token), name)
