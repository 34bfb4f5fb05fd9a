"""REST views for studies."""

from typing import Any, ClassVar

import django_filters
from django.db.models import QuerySet
from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from django.utils.text import slugify
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import (
    OpenApiParameter,
    OpenApiResponse,
    extend_schema,
    extend_schema_field,
    extend_schema_view,
)
from rest_framework import generics, renderers, serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse

from advisor import deletion, workload
from advisor.api import limits
from advisor.api.openapi import KEY_PARAMETER, LOCATION, REPLAYED_HEADER, STUDY_EXAMPLE, AnyOf
from advisor.api.parsers import PARSERS, idempotency_key, key_owner, replayed
from advisor.api.views import DELETED, Pages, is_schema
from advisor.models import Study
from advisor.studies import EstimatesStudy, GridStudy, PricesStudy, WorkloadsStudy, pieces, tables
from catalog.accounts import Right, caller_of, organisation_of
from catalog.lists import filters
from catalog.rest import Conflict, Filters, KnownParameters, Ordering, problems

ASKED = AnyOf(name="StudyRequest", models=(WorkloadsStudy, GridStudy, PricesStudy, EstimatesStudy), required=("kind",))
PARQUET = "application/vnd.apache.parquet"


class ProgressSerializer(serializers.Serializer[Any]):
    pieces = serializers.IntegerField(help_text="Pieces of a few seconds that answer; workers share them")
    waiting = serializers.IntegerField()
    running = serializers.IntegerField()
    done = serializers.IntegerField()
    failed = serializers.IntegerField()
    cancelled = serializers.IntegerField()
    fraction = serializers.FloatField(help_text="Share of the pieces that are done or failed")
    cpu_s = serializers.FloatField(help_text="CPU time of the answers so far")
    overhead_cpu_s = serializers.FloatField(help_text="CPU time to claim pieces, read their rows and store results")


class StudyLinksSerializer(serializers.Serializer[Any]):
    self = serializers.URLField()
    html = serializers.URLField()
    results = serializers.URLField()
    csv = serializers.URLField()
    parquet = serializers.URLField()


class StudySerializer(serializers.ModelSerializer[Study]):
    progress = serializers.SerializerMethodField()
    links = serializers.SerializerMethodField()

    class Meta:
        model = Study
        fields = [
            "id", "name", "kind", "axes", "points", "state", "created_at", "made_by", "finished_at", "error",
            "engine_version", "catalog_version", "prices_as_of", "progress", "links",
        ]  # fmt: skip

    @extend_schema_field(ProgressSerializer)
    def get_progress(self, study: Study) -> dict[str, Any]:
        return dict(ProgressSerializer(pieces.progress(study)).data)

    @extend_schema_field(StudyLinksSerializer)
    def get_links(self, study: Study) -> dict[str, str]:
        names = {"self": "api-study", "html": "study", "results": "api-study-results"}
        names |= {"csv": "api-study-csv", "parquet": "api-study-parquet"}
        return {key: reverse(name, args=[study.pk], request=self.context["request"]) for key, name in names.items()}


class StudyFilters(django_filters.FilterSet):
    """State, kind, a part of the name, author and days of the request."""

    name = django_filters.CharFilter(lookup_expr="icontains", label="Part of the name")
    author = django_filters.CharFilter(field_name="made_by", label="User name, or `token NAME`; exact")
    since = filters.Day(field_name="created_at", lookup_expr="date__gte", label="Requested from")
    until = filters.Day(field_name="created_at", lookup_expr="date__lte", label="Requested until")

    class Meta:
        model = Study
        fields: ClassVar = ["state", "kind"]


@extend_schema_view(
    get=extend_schema(
        operation_id="listStudies",
        summary="List studies, newest first",
        responses={200: StudySerializer, **problems(400, 406)},
    )
)
class StudyList(generics.ListAPIView[Study]):
    serializer_class = StudySerializer
    pagination_class = Pages
    parser_classes = PARSERS
    filter_backends = (KnownParameters, Filters, Ordering)
    filterset_class = StudyFilters
    ordering_fields: ClassVar = ["created_at", "finished_at", "kind", "made_by", "name", "state"]
    ordering: ClassVar = ["-created_at"]
    queryset = Study.objects.none()

    def get_queryset(self) -> QuerySet[Study]:
        return StudyList.queryset if is_schema(self) else pieces.visible(organisation_of(self.request))

    @extend_schema(
        operation_id="createStudy",
        summary="Create a study",
        description="Checks everything and queues the pieces, or stores nothing. Poll the URL in Location; results are "
        "available while it runs. 422 names the workload by its index. 429: too many open studies.",
        request={kind: ASKED for kind in ("application/json", "application/yaml")},
        parameters=[KEY_PARAMETER, REPLAYED_HEADER, LOCATION],
        responses={202: StudySerializer, **problems(400, 406, 409, 413, 415, 422, 429)},
        examples=[STUDY_EXAMPLE],
    )
    def post(self, request: Request) -> Response:
        if not isinstance(request.data, dict):
            raise workload.WorkloadError([workload.error("", "must be an object of keys", "a study")])
        caller, key = caller_of(request), idempotency_key(request)
        owner = key_owner(request)
        limits.of_work(request, limits.STUDY)
        study = pieces.request(request.data, organisation_of(request), caller.name, key, key_owner=owner)
        url = reverse("api-study", args=[study.pk], request=request)
        return Response(
            self.get_serializer(study).data, status=202, headers={"Location": url, "Retry-After": "5"} | replayed(study)
        )


class OneStudy(generics.GenericAPIView[Study]):
    queryset = Study.objects.none()
    serializer_class = StudySerializer
    rights: ClassVar = {"DELETE": Right.ADMINISTER}

    def study(self, pk: Any) -> Study:
        return get_object_or_404(pieces.visible(organisation_of(self.request)), pk=pk)

    def shown(self, study: Study) -> Response:
        return Response(self.get_serializer(study).data)


class StudyDetail(OneStudy):
    @extend_schema(
        operation_id="getStudy",
        summary="Get the state and the progress",
        responses={200: StudySerializer, **problems(404, 406)},
    )
    def get(self, request: Request, pk: Any) -> Response:
        return self.shown(self.study(pk))

    @extend_schema(
        operation_id="deleteStudy",
        summary="Delete a study with its results",
        description="A running study is stopped.",
        responses=DELETED,
    )
    def delete(self, request: Request, pk: Any) -> Response:
        deletion.delete_study(self.study(pk), caller_of(request).name)
        return Response(status=204)


class CancelStudy(OneStudy):
    @extend_schema(
        operation_id="cancelStudy",
        summary="Cancel a study; finished pieces keep their results",
        request=None,
        responses={200: StudySerializer, **problems(404, 406, 409)},
    )
    def post(self, request: Request, pk: Any) -> Response:
        study = self.study(pk)
        if not pieces.cancel(study) and study.state != Study.State.CANCELLED:
            raise Conflict(f"This study is {study.state}; only a queued or running one can be canceled.")
        return self.shown(study)


class ResumeStudy(OneStudy):
    @extend_schema(
        operation_id="resumeStudy",
        summary="Queue the canceled and failed pieces of a study again",
        request=None,
        responses={200: StudySerializer, **problems(404, 406, 409, 429)},
    )
    def post(self, request: Request, pk: Any) -> Response:
        study = self.study(pk)
        if not pieces.resume(study):
            raise Conflict(f"This study is {study.state}, and no piece of it failed or was canceled.")
        return self.shown(study)


class RowsSerializer(serializers.Serializer[Any]):
    count = serializers.IntegerField(help_text="Rows of the pieces that are done or failed")
    next = serializers.URLField(allow_null=True)
    previous = serializers.URLField(allow_null=True)
    next_cursor = serializers.CharField(allow_null=True)
    results = serializers.ListField(child=serializers.DictField(), help_text="One object for each row, as in the CSV")


class StudyResults(OneStudy):
    pagination_class = Pages

    @extend_schema(
        operation_id="listStudyResults",
        summary="List the results so far",
        parameters=[
            OpenApiParameter("limit", {"type": "integer", "minimum": 1}, description="Rows; 200 at most"),
            OpenApiParameter("offset", {"type": "integer", "minimum": 0}, description="Rows to skip"),
            OpenApiParameter("cursor", str, description="`next_cursor` of a page"),
        ],
        responses={200: RowsSerializer, **problems(400, 404, 406)},
    )
    def get(self, request: Request, pk: Any) -> Response:
        study = self.study(pk)
        found = pieces.Rows(study)
        page = self.paginate_queryset(found)  # a sequence, of which one slice is read
        return self.get_paginated_response(tables.objects(pieces.table_of(study), page or []))


class File(renderers.BaseRenderer):
    """Takes part in content negotiation only: the file is made already."""

    def render(self, data: Any, accepted_media_type: str | None = None, renderer_context: Any = None) -> Any:
        return data


class CsvFile(File):
    media_type, format = "text/csv", "csv"


class ParquetFile(File):
    media_type, format = PARQUET, "parquet"


def file_of(study: Study, ending: str) -> HttpResponse:
    """The results so far as a file."""
    table, rows = pieces.table_of(study), pieces.Rows(study)[:]
    content = tables.parquet(table, rows) if ending == "parquet" else tables.csv_text(table, rows)
    name = f"{slugify(study.name)[:80] or 'study'}.{ending}"
    kind = PARQUET if ending == "parquet" else "text/csv; charset=utf-8"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return HttpResponse(content, content_type=kind, headers=headers)


class StudyCsv(OneStudy):
    renderer_classes = (CsvFile,)

    @extend_schema(
        operation_id="getStudyCsv",
        summary="The results so far as CSV",
        responses={(200, "text/csv"): OpenApiResponse(OpenApiTypes.STR), **problems(404, 406)},
    )
    def get(self, request: Request, pk: Any) -> HttpResponse:
        return file_of(self.study(pk), "csv")


class StudyParquet(OneStudy):
    renderer_classes = (ParquetFile,)

    @extend_schema(
        operation_id="getStudyParquet",
        summary="The results so far as Parquet, with the same columns and types as the CSV",
        responses={(200, PARQUET): OpenApiResponse(OpenApiTypes.BINARY), **problems(404, 406)},
    )
    def get(self, request: Request, pk: Any) -> HttpResponse:
        return file_of(self.study(pk), "parquet")
