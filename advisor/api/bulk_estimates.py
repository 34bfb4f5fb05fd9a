"""REST views of many estimates or workloads in one call, and of the closed-form ranking."""

import hashlib
import itertools
import json
import math
import time
from collections.abc import Iterator, Sequence
from typing import Any

import structlog
from django.conf import settings
from django.http import StreamingHttpResponse
from drf_spectacular.utils import OpenApiExample, extend_schema, extend_schema_field
from rest_framework import exceptions, serializers, views
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse

from advisor import advise, inputs, workload
from advisor.api import limits
from advisor.api.openapi import ESTIMATE_EXAMPLE, EXAMPLE, KEY_PARAMETER
from advisor.api.parsers import PARSERS, idempotency_key, key_owner, workload_in
from advisor.api.problems import unavailable, workload_problem
from advisor.api.views import estimate_of
from advisor.result import QuickRanking
from advisor.workload import FIXED, MAX_ERRORS
from catalog.accounts import caller_of, organisation_of, quotas
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

MAX_ESTIMATES, MAX_CLOSED = 1_000, 10_000  # simulated, and in all
MAX_BATCH = 100
PER_COUNT, CLOSED_PER_COUNT = quotas.PER_COUNT, quotas.CLOSED_PER_COUNT
MOST_S = 120.0  # of computing; what is left then is refused, so that one call cannot occupy a web thread for long
PART = 5_000  # entries in closed form that are computed together: fewer start the stream sooner
BROKEN = "The server could not compute this entry. Send it again; if that fails, report it to the operator."
LATE = "Not computed: this call reached its limit of {:.0f} seconds. Send the rest again, in smaller calls."
Json = dict[str, Any]
log = structlog.get_logger("assay.bulk")


class EstimatesParser(StrictJSONParser):
    bounds = Bounds(max_bytes=4_000_000, max_values=40 * MAX_CLOSED)


class NdjsonRenderer(JSONRenderer):
    """One JSON object per line, each sent as soon as it is computed."""

    media_type = "application/x-ndjson"
    format = "ndjson"


class AnyFormat(DefaultContentNegotiation):
    """An unknown `format` in the URL is refused by the view, as any parameter, and not answered with 404."""

    def filter_renderers(self, renderers: Any, format: str) -> Any:
        return [each for each in renderers if each.format == format] or renderers


class ObjectsField(serializers.ListField):
    """Objects whose keys are checked later, each as a whole."""

    child = serializers.DictField()

    def to_internal_value(self, data: Any) -> list[Json]:
        if not isinstance(data, list):
            self.fail("not_a_list", input_type=type(data).__name__)
        if wrong := {
            str(i): ["Must be an object of keys."] for i, each in enumerate(data) if not isinstance(each, dict)
        }:
            raise exceptions.ValidationError(dict(itertools.islice(wrong.items(), MAX_ERRORS)))
        return data


class EstimatesBody(Body):
    base = serializers.DictField(required=False, help_text="Keys that all estimates share.")
    estimates = ObjectsField(
        required=False,
        min_length=1,
        max_length=MAX_CLOSED,
        help_text="Each with the keys of POST /api/v1/estimate, which replace those of `base`.",
    )
    axes = serializers.DictField(
        required=False,
        child=serializers.ListField(min_length=1, max_length=MAX_CLOSED),
        help_text="Instead of `estimates`: keys with lists of values. Every combination is estimated; the last key "
        "varies fastest.",
    )


def entries_of(body: Json) -> list[Json]:
    """The entries of a valid body, each with the keys of `base`. Raises Unprocessable."""
    base = body.get("base", {})
    if ("estimates" in body) == ("axes" in body):
        raise Unprocessable({"estimates": ["Give either estimates or axes."]})
    if "estimates" in body:
        return [{**base, **each} for each in body["estimates"]]
    axes = body["axes"]
    if not 0 < math.prod(map(len, axes.values())) * bool(axes) <= MAX_CLOSED:
        raise Unprocessable({"axes": [f"Give 1 to {MAX_CLOSED:,} combinations."]})
    return [{**base, **dict(zip(axes, values, strict=True))} for values in itertools.product(*axes.values())]


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


def in_closed_form(entry: Json) -> bool:
    return entry.get("method") == "closed_form" and entry.get("kind", FIXED) == FIXED


def result_of(asked: Json, organisation: Organisation, kept: Json) -> Json | workload.WorkloadError:
    """The estimate of one entry, or why a single call would be refused."""
    try:
        workload.check_size(asked)
        with inputs.read_once(kept):
            return estimate_of(asked, organisation)
    except workload.WorkloadError as error:
        return error


def results(entries: Sequence[Json], organisation: Organisation) -> Iterator[Json]:
    """In the order of the entries."""
    from advisor.answer import closed_estimates  # here, so that web workers load the engine only for estimates

    kept: Json = {}
    ends_at = time.monotonic() + MOST_S
    late = problem_document(503, detail=LATE.format(MOST_S))
    for start in range(0, len(entries), PART):
        part = entries[start : start + PART]
        asked = [entry for entry in part if in_closed_form(entry)]
        closed = closed_estimates.kept(organisation).results(asked, ends_at) if asked else iter(())
        for index, entry in enumerate(part, start):
            found: Any = None
            if time.monotonic() <= ends_at:
                found = next(closed) if in_closed_form(entry) else result_of(entry, organisation, kept)
            problem = late if found is None else workload_problem(found) if is_refusal(found) else None
            yield {"index": index, "estimate": None if problem else found, "problem": problem}


def started(rows: Iterator[Json], count: int) -> Iterator[Json]:
    """The rows, the first of which is computed now: what prevents all of them still gets its own status."""
    first = next(rows)
    return itertools.chain([first], unbroken(rows, 1, count))


def unbroken(rows: Iterator[Json], index: int, count: int) -> Iterator[Json]:
    """The rows from `index`. After an error, the rest have a problem, because the status is already sent."""
    try:
        for row in rows:
            yield row
            index += 1
    except Exception as failure:
        log.exception("bulk_estimate_stopped", index=index)
        missing = unavailable(failure)
        problem = problem_document(503, detail=missing.detail) if missing else problem_document(500, detail=BROKEN)
        yield from ({"index": i, "estimate": None, "problem": problem} for i in range(index, count))


def document(rows: Iterator[Json], count: int) -> Iterator[bytes]:
    """An EstimateResults, a row at a time; the number of errors is known last."""
    errors, head = 0, f'{{"count":{count},"results":['.encode()
    for row in rows:
        errors += row["problem"] is not None
        yield head + line(row)
        head = b","
    yield f'],"error_count":{errors}}}'.encode()


def is_refusal(found: Any) -> bool:
    return isinstance(found, workload.WorkloadError)


def line(row: Json) -> bytes:
    return json.dumps(row, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def check_count(entries: Sequence[Json]) -> tuple[int, int]:
    """(estimates that a call counts as, its units of work). Raises Unprocessable: too many for one call or a minute."""
    closed = sum(map(in_closed_form, entries))
    counts = {"simulated": len(entries) - closed, "closed_form": closed}
    units, weight = 0.0, 0
    for method, most, a_count in (
        ("simulated", MAX_ESTIMATES, PER_COUNT),
        ("closed_form", MAX_CLOSED, CLOSED_PER_COUNT),
    ):
        unit = limits.ENTRY * PER_COUNT / a_count  # of one entry
        limits_of = (a_count * settings.ESTIMATES_PER_MINUTE, int(settings.WORK_PER_MINUTE / unit))
        most = min([most, *(limit for limit in limits_of if limit > 0)])
        if counts[method] > most:
            message = f"This installation takes at most {most} with method {method} in one call."
            raise Unprocessable({"estimates": [message]})
        units, weight = units + unit * counts[method], weight - (-counts[method] // a_count)
    return weight, math.ceil(units)


class Estimates(views.APIView):
    parser_classes = [EstimatesParser]
    renderer_classes = [JSONRenderer, NdjsonRenderer]
    content_negotiation_class = AnyFormat

    @extend_schema(
        operation_id="estimateDeployments",
        summary=f"Estimate up to {MAX_CLOSED:,} deployments or training steps in one call",
        description="Each result equals that of POST /api/v1/estimate. An entry that is not valid has a `problem`; the "
        "others are computed. All read the same state of the catalog. With `Accept: application/x-ndjson`, each result "
        "is a line that is sent when it is computed. With `method: closed_form` in `base`, a call takes "
        f"{MAX_CLOSED:,} entries, {CLOSED_PER_COUNT} of which count as one estimate; else {MAX_ESTIMATES:,} and "
        f"{PER_COUNT}.",
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
        entries = entries_of(body.validated_data)
        limits.of_estimate(request, *check_count(entries))
        found = started(results(entries, organisation_of(request)), len(entries))
        if isinstance(request.accepted_renderer, NdjsonRenderer):
            lines = (line(each) + b"\n" for each in found)
            return StreamingHttpResponse(lines, content_type=NdjsonRenderer.media_type)
        return StreamingHttpResponse(document(found, len(entries)), content_type="application/json")


# --- many workloads -------------------------------------------------------------------------------------------


class BatchBody(Body):
    workloads = ObjectsField(min_length=1, max_length=MAX_BATCH, help_text="Each as for POST /api/v1/advice.")


class BatchResult(serializers.Serializer[Any]):
    index = serializers.IntegerField(help_text="Zero-based index in `workloads`.")
    id = serializers.UUIDField(allow_null=True, help_text="Of the advice; null: there is a problem.")
    state = serializers.CharField(allow_null=True)
    location = serializers.URLField(allow_null=True, help_text="Poll it, as Location of a single request.")
    problem = ProblemSerializer(allow_null=True, help_text="Why this workload was not queued.")


class BatchResults(serializers.Serializer[Any]):
    count = serializers.IntegerField(help_text="Results.")
    error_count = serializers.IntegerField(help_text="Results with a problem.")
    results = BatchResult(many=True)


class AdviceBatch(views.APIView):
    parser_classes = [EstimatesParser]

    @extend_schema(
        operation_id="askForManyAdvices",
        summary=f"Request advice for up to {MAX_BATCH} workloads in one call",
        description="Queues each workload as a single request would: one that is not valid, or exceeds a quota, has a "
        "`problem`, and the others are queued. The same Idempotency-Key and workloads give the same advice again. For "
        "one table of results instead of answers, or more workloads, create a study.",
        request=BatchBody,
        parameters=[KEY_PARAMETER],
        responses={200: BatchResults, **problems(400, 406, 413, 415, 422)},
        examples=[OpenApiExample("two workloads", request_only=True, value={"workloads": [EXAMPLE.value] * 2})],
    )
    def post(self, request: Request) -> Response:
        refuse_unknown(request, set())
        body = BatchBody(data=request.data)
        body.is_valid(raise_exception=True)
        key, caller, rows = idempotency_key(request), caller_of(request), list[Json]()
        owner = key_owner(request)
        limits.of_work(request, limits.ADVICE * len(body.validated_data["workloads"]))
        for index, raw in enumerate(body.validated_data["workloads"]):
            row: Json = dict.fromkeys(("id", "state", "location", "problem"))
            try:
                workload.check_size(raw)
                found = advise.request(
                    workload_in(raw),
                    caller.organisation,
                    idempotency_key=key_of(key, index),
                    made_by=caller.name,
                    key_owner=owner,
                )
                url = reverse("api-advice", args=[found.pk], request=request)
                row |= {"id": str(found.pk), "state": found.state, "location": url}
            except (workload.WorkloadError, advise.QueueFull, advise.KeyReused) as error:
                row["problem"] = problem_of(error)
            rows.append({"index": index, **row})
        errors = sum(row["problem"] is not None for row in rows)
        return Response({"count": len(rows), "error_count": errors, "results": rows})


def key_of(key: str, index: int) -> str:
    """The idempotency key of one workload of a call."""
    return hashlib.sha256(f"{key} {index}".encode()).hexdigest() if key else ""


def problem_of(error: workload.WorkloadError | advise.QueueFull | advise.KeyReused) -> Json:
    """What a single request would be refused with."""
    if isinstance(error, workload.WorkloadError):
        return workload_problem(error)
    status = error.status if isinstance(error, advise.QueueFull) else 409
    return problem_document(int(status), detail=str(error))


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
