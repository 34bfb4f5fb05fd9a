"""Load tests of an option on its page and in the API, and comparisons of running deployments."""

import time
from collections.abc import Sequence
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.views.decorators.http import require_POST
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import parsers, serializers, views
from rest_framework.request import Request
from rest_framework.response import Response

from advisor import load_tests, workload
from advisor.api import JSONParser, OneLoadTest, limits, within_limits
from advisor.engine.terms import kind_named
from advisor.load_tests import LoadResultError
from advisor.models import Advice, LoadTest, Option
from catalog.accounts import Right, caller_of, needs, organisation_of
from catalog.loading.bounded import WEB, Bounds
from catalog.models import Organisation
from catalog.rest import (
    Body,
    Conflict,
    Number,
    Pattern,
    StrictJSONParser,
    Text,
    TooLarge,
    Unprocessable,
    Whole,
    YesNo,
    problems,
)


def option_of(organisation: Organisation, pk: Any, rank: int) -> Option:
    """An option of an organization's advice that serves requests, or 404."""
    rows = Option.objects.filter(advice__organisation=organisation)
    row = get_object_or_404(rows.select_related("advice__workload").defer("advice__snapshot"), advice=pk, rank=rank)
    if kind_named(row.advice.workload.spec.get("kind")).trains:
        raise Http404("A training run serves no requests, so it has no load test.")
    return row


# --- page -------------------------------------------------------------------------------------------------------


def shown(advice: Advice, rank: int) -> dict[str, Any]:
    """`load` for the template; empty for an option without a row (an answer that is still being written)."""
    option = Option.objects.filter(advice=advice, rank=rank).first()
    if option is None:
        return {}
    option.advice = advice
    return {"load": load_tests.shown(option) | {"option_id": option.pk}}


@require_POST
@needs(Right.PLAN, "advice-list")
def upload(request: HttpRequest, pk: Any, rank: int) -> HttpResponse:
    option, given = option_of(organisation_of(request), pk, rank), request.FILES.get("result")
    try:
        if given is None:
            raise LoadResultError("Choose the result file from the load generator.")
        calibrates, who = request.POST.get("calibrates") == "on", caller_of(request).name
        test, is_new = load_tests.record(option, given.read(WEB.max_bytes + 1), given.name or "", calibrates, who)
        place = f" Used {test.measured['place']}." if test.measured.get("place") else ""
        messages.success(request, ("Load test added." if is_new else "This file was uploaded before.") + place)
    except LoadResultError as error:
        messages.error(request, str(error))
    return redirect(reverse("advice-option", args=[pk, rank]) + "?section=run#load-test")


@require_POST
@needs(Right.PLAN, "advice-list")
def switch(request: HttpRequest, pk: Any, rank: int, test: int) -> HttpResponse:
    """Use a result as calibration, or no longer."""
    measured = get_object_or_404(
        option_of(organisation_of(request), pk, rank).load_tests.select_related("option"), pk=test
    )
    try:
        load_tests.set_calibrates(measured, request.POST.get("calibrates") == "on")
        messages.success(request, "Changed.")
    except LoadResultError as error:
        messages.error(request, str(error))
    return redirect(reverse("advice-option", args=[pk, rank]) + "?section=run#load-test")


# --- REST -------------------------------------------------------------------------------------------------------


class FileParser(parsers.BaseParser):
    """The bytes of a result file; load_results reads them."""

    media_type = "application/json"

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        content = stream.read(WEB.max_bytes + 1)
        if len(content) > WEB.max_bytes:
            raise TooLarge(f"The file is larger than {WEB.max_bytes // 2**20} MiB.")
        return content


FILE_KINDS = ("application/json", "application/x-ndjson", "application/yaml", "text/csv", "text/plain")
FILE_PARSERS = [type("FileParser", (FileParser,), {"media_type": kind}) for kind in FILE_KINDS]
RANK = OpenApiParameter("rank", {"type": "integer", "minimum": 1}, OpenApiParameter.PATH)
CALIBRATION = OpenApiParameter("calibration", bool, description="true: it may be exported as measured rows")
EXAMPLE = OpenApiExample(
    "vllm bench serve --save-result",
    request_only=True,
    value={
        "num_prompts": 2000,
        "completed": 2000,
        "duration": 400.2,
        "request_throughput": 5.0,
        "total_input_tokens": 2000000,
        "total_output_tokens": 400000,
        "output_throughput": 1000.0,
        "mean_ttft_ms": 150.0,
        "p95_ttft_ms": 300.0,
        "mean_tpot_ms": 20.0,
        "p95_tpot_ms": 24.0,
    },
)


class LoadTests(views.APIView):
    parser_classes = FILE_PARSERS

    @extend_schema(
        operation_id="listLoadTests",
        summary="Predicted against measured, per load test of an option",
        description="`differences`: why a run was of another load than predicted; `drift`: what moved between runs.",
        parameters=[RANK],
        responses={200: OpenApiResponse(OpenApiTypes.OBJECT), **problems(404, 406)},
    )
    def get(self, request: Request, pk: Any, rank: int) -> Response:
        return Response(load_tests.shown(option_of(organisation_of(request), pk, rank)))

    @extend_schema(
        operation_id="addLoadTest",
        summary="Give the result file of a load test",
        description=f"The body is the file as the load generator wrote it ({', '.join(FILE_KINDS)}). Of several "
        "runs, the last with the predicted load is used (`measured.place`). The same file twice is one result.",
        parameters=[RANK, CALIBRATION],
        request={"application/json": OpenApiTypes.OBJECT},
        examples=[EXAMPLE],
        responses={
            201: OpenApiResponse(OpenApiTypes.OBJECT),
            200: OpenApiResponse(OpenApiTypes.OBJECT),
            **problems(400, 404, 406, 413, 415),
        },
    )
    def post(self, request: Request, pk: Any, rank: int) -> Response:
        option = option_of(organisation_of(request), pk, rank)
        content = request.data if isinstance(request.data, bytes) else b""
        wanted = request.query_params.get("calibration", "false")
        if wanted not in ("true", "false"):
            raise serializers.ValidationError({"calibration": "true or false"})
        try:
            test, is_new = load_tests.record(option, content, "", wanted == "true", caller_of(request).name)
        except LoadResultError as error:
            raise serializers.ValidationError({"file": str(error)}) from error
        return Response(one(test), status=201 if is_new else 200)


def one(test: LoadTest) -> dict[str, Any]:
    comparison = load_tests.compare(load_tests.predicted(test.option), test.measured)
    measured = {key: value for key, value in test.measured.items() if key != "requests"}
    return {"id": test.pk, "calibrates": test.calibrates, "measured": measured, **comparison}


class SwitchBody(Body):
    calibrates = YesNo(required=False, help_text="Whether it may be exported as measured rows; absent: as before")


class OneTest(OneLoadTest):
    parser_classes = (JSONParser,)

    @extend_schema(
        operation_id="changeLoadTest",
        summary="Use a load test as calibration, or no longer",
        description="409: its load was not the predicted one.",
        parameters=[RANK, OpenApiParameter("test", int, OpenApiParameter.PATH)],
        request=SwitchBody,
        responses={200: OpenApiResponse(OpenApiTypes.OBJECT), **problems(400, 404, 406, 409, 413, 415)},
    )
    def patch(self, request: Request, pk: Any, rank: int, test: int) -> Response:
        option, body = option_of(organisation_of(request), pk, rank), SwitchBody(data=request.data)
        body.is_valid(raise_exception=True)
        measured = get_object_or_404(option.load_tests.select_related("option"), pk=test)
        try:
            load_tests.set_calibrates(measured, body.validated_data.get("calibrates", measured.calibrates))
        except LoadResultError as error:
            raise Conflict(str(error)) from None
        measured.refresh_from_db()
        return Response(one(measured))


# --- a running deployment -----------------------------------------------------------------------------------------

MOST_S = 30.0  # of computing, beside the prediction itself
UUID = r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
MOST_DEPLOYMENTS = 3  # in the files of one call


class GivenFile(Body):
    name = Text(max_length=120, help_text="Its name, for messages.")
    text = Text(max_length=WEB.max_bytes, help_text="Its contents; its kind is recognized.")
    at_s = Number(
        required=False, min_value=0, max_value=1e11, help_text="When it was made (Unix time); gives rates of a scrape."
    )


class DeploymentBody(Body):
    files = serializers.ListField(child=GivenFile(), min_length=1, max_length=20)
    advice = Pattern(UUID, required=False, help_text="The recommendation that was the plan.")
    option = Whole(required=False, min_value=1, max_value=1000, help_text="Its option; default: 1.")
    workload = serializers.DictField(
        required=False,
        help_text="Without `advice`: a workload, whose limits are judged, and its load if none was measured.",
    )
    model = Text(required=False, max_length=200, help_text="Instead of the name in the files.")
    accelerator = Text(required=False, max_length=100, help_text="If the files do not say it.")
    servers = Whole(required=False, min_value=1, max_value=4096, help_text="Replicas that the measurement covers.")
    window_s = Number(required=False, min_value=0.001, max_value=1e9, help_text="Over which the counters count.")


DEPLOYMENT_EXAMPLE = OpenApiExample(
    "a start-up log",
    request_only=True,
    value={
        "files": [{
            "name": "vllm.log",
            "text": "INFO [core.py:77] Initializing a V1 LLM engine (v0.11.0) with config: "
            "model='meta-llama/Llama-3.1-8B-Instruct', tensor_parallel_size=1\n"
            "INFO [kv_cache_utils.py:1087] GPU KV cache size: 455,536 tokens\n",
        }],
        "accelerator": "h100-sxm",
    },
)  # fmt: skip


class DeploymentParser(StrictJSONParser):
    """Contents of several files as JSON texts."""

    bounds = Bounds(max_bytes=2 * WEB.max_bytes, max_values=1000)


class CompareDeployment(views.APIView):
    parser_classes = (DeploymentParser,)

    @extend_schema(
        operation_id="compareDeployment",
        summary="Compare a running deployment with its plan and its prediction",
        description="From the texts of metrics, start-up logs, load-test results, manifests and scripts: settings that "
        "are not as planned and what they change, measured against predicted figures, limits, spare capacity, and what "
        "may correct predictions. No address is read; send the text of /metrics.",
        request={"application/json": DeploymentBody},
        examples=[DEPLOYMENT_EXAMPLE],
        responses={200: OpenApiResponse(OpenApiTypes.OBJECT), **problems(400, 404, 406, 413, 415, 422)},
    )
    def post(self, request: Request) -> Response:
        limits.of_estimate(request)
        body = DeploymentBody(data=request.data)
        body.is_valid(raise_exception=True)
        asked = body.validated_data
        return Response(compared(asked, [(f["name"], f["text"], f.get("at_s")) for f in asked["files"]],
                                 organisation_of(request)))  # fmt: skip


Sent = Sequence[tuple[str, str | bytes, float | None]]  # (name, contents, Unix time)


def compared(asked: dict[str, Any], files: Sent, organisation: Organisation) -> dict[str, Any]:
    """The comparison of files with what is asked. Unprocessable, WorkloadError: what is wrong with it."""
    from advisor import deployments  # here, so that web workers load the engine only for comparisons

    plan = None
    if "advice" in asked:
        option = option_of(organisation, asked["advice"], asked.get("option", 1))
        spec = option.advice.workload.spec
        try:
            planned = load_tests.predicted(option)
        except LoadResultError as error:
            raise Unprocessable({"option": [str(error)]}) from error
        plan = deployments.Plan(
            said=planned.label, slo=spec.get("slo") or {}, spec=spec, option=planned,
            option_name=f"{option.advice_id}/{option.rank}",
        )  # fmt: skip
    elif "workload" in asked:
        spec = workload.parse(asked["workload"])
        plan = deployments.Plan(said=f"workload {spec['name']}", slo=spec["slo"] or {}, spec=spec)
    given = [deployments.Given(n, c if isinstance(c, bytes) else c.encode(), at_s) for n, c, at_s in files]
    wanted = deployments.Asked(
        plan=plan, model=asked.get("model", ""), accelerator=asked.get("accelerator", ""), servers=asked.get("servers"),
        organisation=organisation, within=within_limits, ends_at=time.monotonic() + MOST_S,
    )  # fmt: skip
    try:
        groups = deployments.grouped(deployments.read_files(given, asked.get("window_s")))
        if len(groups) > MOST_DEPLOYMENTS:
            raise deployments.DeploymentError(
                f"The files have {len(groups)} deployments; send those of at most {MOST_DEPLOYMENTS}."
            )
        return {"deployments": [deployments.compared(group, wanted) for group in groups]}
    except deployments.DeploymentError as error:
        raise Unprocessable({"files": [str(error)]}) from error
