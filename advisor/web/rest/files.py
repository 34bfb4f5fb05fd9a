"""Files of an advice over REST, as its page downloads them."""

from collections.abc import Callable
from typing import Any

from django.http import HttpResponse
from django.utils.decorators import method_decorator
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import views as rest_views
from rest_framework.request import Request

from advisor.api import OneAdvice
from advisor.models import Advice
from advisor.web import views
from advisor.web.answers import compare_page
from advisor.web.document_views import renderer_of
from advisor.web.rest.again import ITEM, UNREADABLE, compared
from catalog.pricing import reader
from catalog.rest import Conflict, problems


class File(OneAdvice):
    make: Callable[[Advice], HttpResponse]
    needs_answer = True

    def get(self, request: Request, pk: Any) -> HttpResponse:
        advice = self.advice(pk)
        if self.needs_answer and not advice.is_done:
            raise Conflict(f"This recommendation is {advice.state}. It has no result.")
        try:
            return type(self).make(advice)
        except views.UnreadableAnswer:
            raise Conflict(UNREADABLE) from None


def described(operation_id: str, summary: str, kind: str, *statuses: int) -> Any:
    shape = OpenApiTypes.ANY if kind == "application/yaml" else OpenApiTypes.STR  # YAML is read as what it holds
    responses = {(200, kind): OpenApiResponse(shape), **problems(404, 406, *statuses)}
    return extend_schema(operation_id=operation_id, summary=summary, responses=responses)


class WorkloadFile(File):
    renderer_classes = (renderer_of("application/yaml"),)
    make = staticmethod(views.workload_file)
    needs_answer = False

    @described("getWorkloadFile", "The workload file, which can be sent again", "application/yaml")
    def get(self, request: Request, pk: Any) -> HttpResponse:
        return super().get(request, pk)


class OptionsCsv(File):
    renderer_classes = (renderer_of("text/csv"),)
    make = staticmethod(views.csv_file)

    @described("getOptionsCsv", "The options as CSV, one a line", "text/csv", 202, 409)
    def get(self, request: Request, pk: Any) -> HttpResponse:
        return super().get(request, pk)


class Markdown(File):
    renderer_classes = (renderer_of("text/markdown"),)
    make = staticmethod(views.markdown_file)

    @described("getAdviceMarkdown", "The answer as Markdown", "text/markdown", 202, 409)
    def get(self, request: Request, pk: Any) -> HttpResponse:
        return super().get(request, pk)


class CompareCsv(rest_views.APIView):
    renderer_classes = (renderer_of("text/csv"),)

    @extend_schema(
        operation_id="compareAnswersCsv",
        summary="The comparison as CSV",
        parameters=[ITEM],
        responses={(200, "text/csv"): OpenApiResponse(OpenApiTypes.STR), **problems(400, 404, 406, 409, 422)},
    )
    @method_decorator(reader.in_english)
    def get(self, request: Request) -> HttpResponse:
        return compare_page.csv_file(compared(request))
