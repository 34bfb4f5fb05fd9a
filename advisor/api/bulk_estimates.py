"""REST views of many estimates in one call, which reads the catalog once, and of the closed-form ranking."""

import time
from collections.abc import Iterable, Iterator
from typing import Any

from django.conf import settings
from django.http import StreamingHttpResponse
from drf_spectacular.utils import OpenApiExample, extend_schema, extend_schema_field
from rest_framework import exceptions, serializers, views
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from advisor import inputs, workload
from advisor.api import limits
from advisor.api.openapi import ESTIMATE_EXAMPLE, EXAMPLE
from advisor.api.parsers import PARSERS, workload_in
from advisor.api.problems import workload_problem
from advisor.api.views import estimate_of
from advisor.result import QuickRanking
from catalog.accounts import organisation_of, quotas
from catalog.loading.bounded import Bounds
from catalog.models import Organisation
from catalog.rest import (
    Body,
    ProblemSerializer,
    StrictJSONParser,
    Unprocessable,
    problem_document,
    problems,
    refuse_unknown,
)

MAX_ESTIMATES = 1000
PER_COUNT = quotas.PER_COUNT
MOST_S = 120.0  # of computing; what is left then is refused, so that one call cannot occupy a web thread for long
LATE = "Not computed: this call reached its limit of {:.0f} seconds. Send the rest again, in smaller calls."
Json = dict[str, Any]


class EstimatesParser(StrictJSONParser):
    bounds = Bounds(max_bytes=1_000_000, max_values=100 * MAX_ESTIMATES)
    finite = True


class NdjsonRenderer(JSONRenderer):
    """One JSON object per line, each sent as soon as it is computed."""

    media_type = "application/x-ndjson"
    format = "ndjson"


class AnyFormat(DefaultContentNegotiation):
    """An unknown `format` in the URL is refused by the view, as any parameter, and not answered with 404."""

    def filter_renderers(self, renderers: Any, format: str) -> Any:
        return [each for each in renderers if each.format == format] or renderers


class EstimatesBody(Body):
    base = serializers.DictField(required=False, help_text="Keys that all estimates share.")
    estimates = serializers.ListField(
        child=serializers.DictField(),
        min_length=1,
        max_length=MAX_ESTIMATES,
        help_text="Each with the keys of POST /api/v1/estimate, which replace those of `base`.",
    )


@extend_schema_field({"$ref": "#/components/schemas/EstimateResponse"})  # the field adds null
class EstimateField(serializers.DictField):
    """What POST /api/v1/estimate returns."""


class EstimateResult(serializers.Serializer[Any]):
    index = serializers.IntegerField(help_text="Zero-based index in `estimates`.")
    estimate = EstimateField(allow_null=True, help_text="Null: there is a problem.")
    problem = ProblemSerializer(allow_null=True, help_text="Why this entry has no estimate.")


class EstimateResults(serializers.Serializer[Any]):
    count = serializers.IntegerField(help_text="Results.")
    error_count = serializers.IntegerField(help_text="Results with a problem.")
    results = EstimateResult(many=True)


def result_of(index: int, asked: Json, organisation: Organisation, kept: Json, ends_at: float) -> Json:
    """The estimate of one entry, or the problem that a single call would be refused with."""
    found: Json = {"index": index, "estimate": None, "problem": None}
    if time.monotonic() > ends_at:
        return {**found, "problem": problem_document(503, detail=LATE.format(MOST_S))}
    try:
        workload.check_size(asked)
        with inputs.read_once(kept):
            return {**found, "estimate": estimate_of(asked, organisation)}
    except workload.WorkloadError as error:
        return {**found, "problem": workload_problem(error)}


def results(asked: Iterable[Json], organisation: Organisation) -> Iterator[Json]:
    """In the order of the entries."""
    kept: Json = {}
    ends_at = time.monotonic() + MOST_S
    for index, each in enumerate(asked):
        yield result_of(index, each, organisation, kept, ends_at)


def most_estimates() -> int:
    """In one call, so that it does not count more than the limit per minute."""
    limits_of = (PER_COUNT * settings.ESTIMATES_PER_MINUTE, settings.WORK_PER_MINUTE // limits.ENTRY)
    return min([MAX_ESTIMATES, *(most for most in limits_of if most > 0)])


class Estimates(views.APIView):
    parser_classes = [EstimatesParser]
    renderer_classes = [JSONRenderer, NdjsonRenderer]
    content_negotiation_class = AnyFormat

    @extend_schema(
        operation_id="estimateDeployments",
        summary=f"Estimate up to {MAX_ESTIMATES:,} deployments or training steps in one call",
        description="Each result equals that of POST /api/v1/estimate. An entry that is not valid has a `problem`; the "
        "others are computed. All read the same state of the catalog. With `Accept: application/x-ndjson`, each result "
        f"is a line that is sent when it is computed. {PER_COUNT} entries count as one estimate.",
        request=EstimatesBody,
        responses={
            (200, "application/json"): EstimateResults,
            (200, NdjsonRenderer.media_type): EstimateResult(many=False),
            **problems(400, 406, 413, 415, 422),
        },
        examples=[
            OpenApiExample(
                "three concurrencies",
                request_only=True,
                value={
                    "base": {key: each for key, each in ESTIMATE_EXAMPLE.value.items() if key != "concurrency"},
                    "estimates": [{"concurrency": users} for users in (16, 64, 256)],
                },
            )
        ],
    )
    def post(self, request: Request) -> Any:
        refuse_unknown(request, {"format"})
        if request.query_params.get("format", "json") not in ("json", "ndjson"):
            raise exceptions.ValidationError({"format": ["Use json or ndjson, or leave it out."]})
        body = EstimatesBody(data=request.data)
        body.is_valid(raise_exception=True)
        base, entries = body.validated_data.get("base", {}), body.validated_data["estimates"]
        if len(entries) > most_estimates():
            raise Unprocessable({"estimates": [f"This installation takes at most {most_estimates()} in one call."]})
        limits.of_estimate(request, -(-len(entries) // PER_COUNT), len(entries))
        found = results(({**base, **each} for each in entries), organisation_of(request))
        if isinstance(request.accepted_renderer, NdjsonRenderer):
            lines = (NdjsonRenderer().render(each) + b"\n" for each in found)
            return StreamingHttpResponse(lines, content_type=NdjsonRenderer.media_type)
        rows = list(found)
        errors = sum(each["problem"] is not None for each in rows)
        return Response({"count": len(rows), "error_count": errors, "results": rows})


# --- the closed-form ranking ------------------------------------------------------------------------------------


class Unready(exceptions.APIException):
    status_code = 503
    default_detail = "Other rankings keep this server busy; try again in a few seconds."
    wait = 5


class Quick(views.APIView):
    parser_classes = PARSERS

    @extend_schema(
        operation_id="rankQuickly",
        summary="Rank the whole catalog by closed formulas, without simulation",
        description="Responds immediately. Every figure of a deployment is an analytical estimate, not simulated; "
        "latencies under load are usually higher in the full answer, and it may need more replicas. Serving, batch, "
        "embedding, reranking and image generation; training runs and portfolios have no quick ranking.",
        request={kind: workload.Spec for kind in ("application/json", "application/yaml")},
        responses={200: QuickRanking, **problems(400, 406, 413, 415, 422, 503)},
        examples=[EXAMPLE],
    )
    def post(self, request: Request) -> Response:
        limits.of_quick(request)
        from advisor.answer import quick  # here, so that web workers load the engine only for estimates

        organisation = organisation_of(request)
        spec = inputs.with_catalog_names(workload_in(request.data), organisation)
        inputs.check_catalog(spec, organisation)
        try:
            return Response(quick.quick_answer(spec, organisation).to_json())
        except quick.Busy:
            raise Unready from None
