"""REST: ask for advice, watch it, read it. Errors are problem documents (problems.py)."""

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any, ClassVar

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from drf_spectacular.contrib.pydantic import PydanticExtension
from drf_spectacular.plumbing import ResolvedComponent
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, OpenApiResponse, extend_schema, extend_schema_view
from pydantic.json_schema import model_json_schema
from rest_framework import exceptions, generics, parsers, views
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse

from advisor import advise, deletion, deployment, limits, workload
from advisor.models import Advice, ApiToken, LoadTest, Share
from advisor.problems import CONTENT_TYPE, Conflict, TooLarge, problem, queue_is_full
from advisor.serializers import (
    AdviceSerializer,
    AdviceSummarySerializer,
    ProblemSerializer,
    ShareSerializer,
    TokenSerializer,
)
from advisor.workload_text import MAX_TEXT_BYTES, check_size, cut
from catalog import listing
from catalog.deleting import StaffDeletes, StaffOnly, who

__all__ = ["AdviceDetail", "AdviceList", "AdviceResult", "CancelAdvice", "EstimateOne", "problem"]
KEY_LENGTH = 80
MOST = {"isl": 131_072, "osl": 16_384, "concurrency": 20_000}  # in an estimate that somebody waits for


# --- reading bodies ---------------------------------------------------------------------------------------------


def bounded(stream: Any) -> bytes:
    """The whole body, or 413 once it is longer than a workload may be."""
    text = stream.read(MAX_TEXT_BYTES + 1)
    if len(text) > MAX_TEXT_BYTES:
        raise TooLarge
    return bytes(text)


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise ValueError(f"the key {cut(twice, 100)!r} is given twice")
    return found


class StrictJSONParser(parsers.BaseParser):
    """JSON, no key twice, UTF-8, bounded in bytes and values. NaN is read: validation refuses it at its field."""

    media_type = "application/json"

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        try:
            found = json.loads(bounded(stream), object_pairs_hook=unique)
            check_size(found)
            return found
        except workload.WorkloadError as error:
            raise exceptions.ParseError(
                f"The JSON {error.errors[0]['message']}: {error.errors[0]['allowed']}."
            ) from None
        except RecursionError:
            raise exceptions.ParseError("Malformed JSON: nested too deeply.") from None
        except ValueError as error:
            raise exceptions.ParseError(f"Malformed JSON: {error}.") from None


class YAMLParser(parsers.BaseParser):
    media_type = "application/yaml"

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        try:
            return workload.load(bounded(stream))
        except workload.WorkloadError as error:
            raise exceptions.ParseError(f"Malformed YAML: {error}.") from None


class XYAMLParser(YAMLParser):
    media_type = "application/x-yaml"


class TextYAMLParser(YAMLParser):
    media_type = "text/yaml"


PARSERS = [StrictJSONParser, YAMLParser, XYAMLParser, TextYAMLParser]


def asked(data: Any) -> dict[str, Any]:
    """The validated workload of a body: the workload itself, or {"workload": ...}."""
    if isinstance(data, Mapping) and set(data) == {"workload"}:
        data = data["workload"]
    if not isinstance(data, dict):
        raise workload.WorkloadError([workload.error("", "must be an object of keys", "a workload, or {workload}")])
    return workload.parse(data)


def idempotency_key(request: Request) -> str:
    key = request.headers.get("Idempotency-Key", "")
    if len(key) > KEY_LENGTH or not (key.isascii() and key.isprintable()):
        raise exceptions.ParseError(f"Idempotency-Key: at most {KEY_LENGTH} printable ASCII characters.")
    return key


# --- documentation ----------------------------------------------------------------------------------------------


class WorkloadSchema(PydanticExtension):
    """The workload as it may be written, not as it is stored."""

    target_class = "advisor.workload.Spec"
    match_subclasses = False
    priority = 1

    def get_name(self, auto_schema: Any, direction: Any) -> str:
        super().get_name(auto_schema, direction)
        return "Workload"

    def map_serializer(self, auto_schema: Any, direction: Any) -> Any:
        schema = model_json_schema(workload.Spec, ref_template="#/components/schemas/Workload{model}")
        for name, part in without_files(schema.pop("$defs")).items():
            register(auto_schema, f"Workload{name}", part)
        schema["properties"]["workloads"] = without_text(schema["properties"]["workloads"])
        return schema


class DeploymentSchema(PydanticExtension):
    """The deployment as it may be written."""

    target_class = "advisor.deployment.Deployment"
    match_subclasses = False
    priority = 1

    def get_name(self, auto_schema: Any, direction: Any) -> str:
        return "Deployment"

    def map_serializer(self, auto_schema: Any, direction: Any) -> Any:
        schema = model_json_schema(deployment.Deployment, ref_template="#/components/schemas/Deployment{model}")
        for name, part in without_files(schema.pop("$defs")).items():
            register(auto_schema, f"Deployment{name}", part)
        return schema


FILES = (("Config", "config"), ("Lengths", "trace"), ("Traffic", "trace"))


def without_files(sections: dict[str, Any]) -> dict[str, Any]:
    """The sections as the API takes them: a path of a file is for the command line alone."""
    for section, key in FILES:
        if section in sections:
            sections[section]["properties"][key] = without_text(sections[section]["properties"][key])
    return sections


def without_text(schema: Any) -> Any:
    """A schema with no alternative that is a text."""
    if isinstance(schema, list):
        return [without_text(each) for each in schema if not (isinstance(each, dict) and each.get("type") == "string")]
    if isinstance(schema, dict):
        return {key: without_text(value) for key, value in schema.items()}
    return schema


def register(auto_schema: Any, name: str, schema: dict[str, Any]) -> None:
    kind = ResolvedComponent.SCHEMA
    component = ResolvedComponent(name=name, type=kind, object=name, schema=schema)
    auto_schema.registry.register_on_missing(component)


def problems(*statuses: int) -> dict[Any, Any]:
    return {(status, CONTENT_TYPE): ProblemSerializer for status in statuses}


def plain_nullables(result: dict[str, Any], **given: Any) -> dict[str, Any]:
    """A JSON column that may be empty: any value, where the generator writes "one of any value and null"."""
    for schema in result["components"]["schemas"].values():
        for part in schema.get("properties", {}).values():
            if part.get("oneOf") == [{}, {"type": "null"}]:
                del part["oneOf"]
    return result


def workload_alone_or_inside(result: dict[str, Any], **given: Any) -> dict[str, Any]:
    """A workload may also be sent as {"workload": ...}, as an answer holds it."""
    for media in result["paths"]["/api/v1/advice"]["post"]["requestBody"]["content"].values():
        alone = media["schema"]
        inside = {"type": "object", "properties": {"workload": alone}, "required": ["workload"]}
        media["schema"] = {"anyOf": [alone, {**inside, "additionalProperties": False}]}
    return result


def document_refusals(result: dict[str, Any], **given: Any) -> dict[str, Any]:
    """What any call can be answered with, where its view does not say so itself (a hook of the generator)."""
    known = {"description": "", "content": {CONTENT_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}}
    for path, operations in result["paths"].items():
        for operation in operations.values():
            anywhere = {"400", "401", "403", "406", "429"} | ({"404"} if "{" in path else set())
            for status in sorted(anywhere - set(operation["responses"])):
                operation["responses"][status] = known
    return result


DELETED: dict[Any, Any] = {204: OpenApiResponse(description="It is deleted."), **problems(401, 403, 404)}
EXAMPLE = OpenApiExample(
    "support chat",
    request_only=True,
    value={
        "name": "support-chat",
        "model": "meta-llama/Llama-3.3-70B-Instruct",
        "traffic": {
            "input_tokens": {"mean": 2000, "p95": 6000},
            "output_tokens": {"mean": 300, "p95": 800},
            "requests_per_s": {"mean": 4, "peak": 12},
        },
        "slo": {"ttft_ms_p95": 1000, "tpot_ms_p95": 40},
        "objective": "cost",
    },
)
KEY_PARAMETER = OpenApiParameter(
    "Idempotency-Key",
    OpenApiTypes.STR,
    OpenApiParameter.HEADER,
    pattern=f"^[ -~]{{0,{KEY_LENGTH}}}$",
    description=f"At most {KEY_LENGTH} characters; the same key and workload give the same advice again.",
)
LOCATION = OpenApiParameter(
    "Location", OpenApiTypes.URI, OpenApiParameter.HEADER, response=[202], description="Where to watch the advice."
)


ESTIMATE_EXAMPLE = OpenApiExample(
    "70B on four H200",
    request_only=True,
    value={
        "model": "meta-llama/Llama-3.3-70B-Instruct",
        "accelerator": "h200-sxm",
        "tp": 2,
        "dp": 2,
        "weights": "fp8",
        "isl": 2000,
        "osl": 300,
        "concurrency": 64,
    },
)


# --- views ------------------------------------------------------------------------------------------------------


class Pages(listing.Pages):
    """Rows here are long."""

    max_limit = 200


LINKS = (
    "advice", "estimate", "accelerators", "models", "prices", "api-prices", "frameworks", "quantizations", "units",
    "regions", "assumptions", "fidelity", "agents", "probe-jobs", "probe-results", "enrolments", "tokens",
)  # fmt: skip


class Root(views.APIView):
    @extend_schema(
        operation_id="getRoot",
        summary="Where everything is",
        responses={
            200: {"type": "object", "additionalProperties": {"type": "string", "format": "uri"}},
            **problems(406),
        },
    )
    def get(self, request: Request) -> Response:
        here = request.build_absolute_uri(request.path)
        described = {name: reverse(name, request=request) for name in ("api-docs", "schema")}
        return Response({**described, **{name: f"{here}{name}" for name in LINKS}})


@extend_schema_view(
    get=extend_schema(
        operation_id="listAdvice",
        summary="The advices, newest first",
        responses={200: AdviceSummarySerializer, **problems(400, 406)},
    )
)
class AdviceList(generics.ListAPIView[Advice]):
    serializer_class = AdviceSummarySerializer
    pagination_class = Pages
    parser_classes = PARSERS
    filterset_fields: ClassVar = ["state"]
    queryset = Advice.objects.none()

    def get_queryset(self) -> QuerySet[Advice]:
        return advise.visible().defer("result")

    @extend_schema(
        operation_id="askForAdvice",
        summary="Ask for advice",
        description="Queues the workload. Watch the address in Location until its state is done, failed or cancelled.",
        request={kind: workload.Spec for kind in ("application/json", "application/yaml")},
        parameters=[KEY_PARAMETER, LOCATION],
        responses={202: AdviceSerializer, **problems(400, 406, 409, 413, 415, 422, 429)},
        examples=[EXAMPLE],
    )
    def post(self, request: Request) -> Response:
        spec = asked(request.data)
        if queue_is_full():
            raise exceptions.Throttled(wait=30, detail="Too many questions are waiting.")
        advice = advise.request(spec, idempotency_key=idempotency_key(request))
        data = AdviceSerializer(advice, context=self.get_serializer_context()).data
        where = reverse("api-advice", args=[advice.pk], request=request)
        return Response(data, status=202, headers={"Location": where, "Retry-After": "1"})


class OneAdvice(generics.GenericAPIView[Advice]):
    queryset = Advice.objects.none()
    serializer_class = AdviceSerializer

    def advice(self, pk: Any) -> Advice:
        return get_object_or_404(advise.visible(), pk=pk)

    def shown(self, advice: Advice) -> Response:
        waiting = {} if advice.state in advise.FINISHED else {"Retry-After": "1"}
        return Response(self.get_serializer(advice).data, headers=waiting)


class AdviceDetail(OneAdvice):
    def get_permissions(self) -> list[Any]:
        return [*super().get_permissions(), StaffDeletes()]

    @extend_schema(
        operation_id="getAdvice",
        summary="State, progress and, when done, the result",
        responses={200: AdviceSerializer, **problems(404, 406)},
    )
    def get(self, request: Request, pk: Any) -> Response:
        return self.shown(self.advice(pk))

    @extend_schema(
        operation_id="deleteAdvice",
        summary="Delete an advice with its options, links and load tests",
        description="One that is queued or running is stopped. Advice that superseded it stays.",
        responses=DELETED,
    )
    def delete(self, request: Request, pk: Any) -> Response:
        deletion.delete_advice(self.advice(pk), who(request.user))
        return Response(status=204)


class CancelAdvice(OneAdvice):
    @extend_schema(
        operation_id="cancelAdvice",
        summary="Stop an advice that is queued or running",
        request=None,
        responses={200: AdviceSerializer, **problems(404, 406, 409)},
    )
    def post(self, request: Request, pk: Any) -> Response:
        advice = self.advice(pk)
        if not advise.cancel(advice) and advice.state != Advice.State.CANCELLED:
            raise Conflict(f"This advice is {advice.state}; only a queued or running one can be cancelled.")
        return self.shown(advice)


class AdviceResult(OneAdvice):
    @extend_schema(
        operation_id="getAdviceResult",
        summary="The result alone, as the command line prints it",
        responses={200: OpenApiResponse(OpenApiTypes.OBJECT), **problems(404, 406, 409)},
    )
    def get(self, request: Request, pk: Any) -> Response:
        advice = self.advice(pk)
        if advice.result is None:
            because = f": {advice.error}" if advice.error else ""
            raise Conflict(f"This advice is {advice.state}{because}. It has no result.")
        return Response(advice.answer)


class EstimateOne(views.APIView):
    parser_classes = PARSERS

    @extend_schema(
        operation_id="estimateDeployment",
        summary="One fixed deployment, nothing searched",
        description="Answers at once. `fits` false: it cannot be loaded; smallest_change says what would help. "
        "`evidence`: the measured figures nearest to it, with what is predicted there; `near` false: nothing is.",
        request={kind: deployment.Deployment for kind in ("application/json", "application/yaml")},
        responses={200: OpenApiResponse(OpenApiTypes.OBJECT), **problems(400, 406, 413, 415, 422)},
        examples=[ESTIMATE_EXAMPLE],
    )
    def post(self, request: Request) -> Response:
        limits.of_estimate(request)
        from advisor import single  # here: the engine is loaded by the first estimate, not by every web worker

        if not isinstance(request.data, dict):
            raise workload.WorkloadError([workload.error("", "must be an object of keys", "a deployment")])
        return Response(single.answer(within_limits(deployment.parse(request.data))))


def within_limits(d: deployment.Deployment) -> deployment.Deployment:
    """What a web request may keep a worker busy with (seconds); the command line has no such limit."""
    asked = {"isl": d.isl, "osl": d.osl, "concurrency": 1 if d.concurrency == "max" else d.concurrency}
    if over := [name for name, value in asked.items() if value > MOST[name]]:
        found = [workload.error(name, "is more than is simulated here", f"at most {MOST[name]}") for name in over]
        raise workload.WorkloadError(found)
    return d


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
