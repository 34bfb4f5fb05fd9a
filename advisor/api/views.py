"""REST views for advice and estimates. Errors are problem documents (catalog/rest)."""

# mypy: allow-subclassing-any

import json
import threading
import time
from functools import reduce
from operator import and_, or_
from typing import Any, ClassVar

import django_filters
from django import forms
from django.conf import settings
from django.db.models import F, Q, QuerySet
from django.db.models.fields.json import KeyTextTransform, KeyTransform
from django.shortcuts import get_object_or_404
from django.utils.decorators import method_decorator
from django.views.decorators.http import conditional_page
from drf_spectacular.utils import OpenApiResponse, extend_schema, extend_schema_view
from pydantic import ValidationError
from rest_framework import exceptions, generics, views
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse

from advisor import advise, deletion, workload
from advisor.api import limits
from advisor.api.openapi import (
    ESTIMATE_EXAMPLE,
    EXAMPLE,
    FRESH,
    INCLUDE,
    KEY_PARAMETER,
    LOCATION,
    LONGEST_S,
    REPLAYED_HEADER,
    TRAINING_EXAMPLE,
    WAIT,
    AnyOf,
)
from advisor.api.parsers import PARSERS, idempotency_key, included, key_owner, replayed, workload_in
from advisor.api.problems import LATER
from advisor.api.serializers import AdviceSerializer, AdviceSummarySerializer
from advisor.engine.terms import KINDS
from advisor.inputs import what_if
from advisor.later import sections
from advisor.models import Advice
from advisor.report import summary_of
from advisor.result import Answer, AnswerSummary, ClosedEstimate, Estimate, SummaryLinks, TrainingEstimate, short
from advisor.templatetags.units import STATES, objective, words
from advisor.workload import PORTFOLIO, Deployment, TrainingRun
from catalog import rest
from catalog.accounts import Right, caller_of, organisation_of
from catalog.lists import filters
from catalog.models import Organisation
from catalog.pricing import reader
from catalog.rest import Conflict, problems

MAX_ESTIMATE = {"isl": 131_072, "osl": 16_384, "concurrency": 20_000, "trace": 20_000_000}  # of web requests: quick


DELETED: dict[Any, Any] = {204: OpenApiResponse(description="Deleted."), **problems(401, 403, 404)}


def is_schema(view: Any) -> bool:
    """Whether drf-spectacular reads the view to describe it; there is no caller then."""
    return getattr(view, "swagger_fake_view", False)


# --- waiting for an answer within a request ----------------------------------------------------------------------

LOOK_S = 0.25  # between two looks at the state
WAITERS = max(settings.WEB_THREADS // 4, 1)  # of a web process: its other threads must stay free for quick calls

free = threading.BoundedSemaphore(WAITERS)


def wait_s(request: Request) -> int:
    """The seconds of `?wait=`; 0 without it. ValidationError: not a whole number from 0 to LONGEST_S."""
    text = request.query_params.get("wait", "0")
    if not (text.isascii() and text.isdigit() and int(text[:4]) <= LONGEST_S):
        raise exceptions.ValidationError(
            {"wait": [f"{text[:20]} is not a whole number of seconds from 0 to {LONGEST_S}."]}
        )
    return int(text)


def is_fresh(request: Request) -> bool:
    """Whether `?fresh=1` asks for an answer that is computed anew."""
    text = request.query_params.get("fresh", "0")
    if text not in ("0", "1"):
        raise exceptions.ValidationError({"fresh": [f"{text[:20]} is not 0 or 1."]})
    return text == "1"


def until_finished(advice: Advice, seconds: float) -> bool:
    """Whether it is finished, after waiting at most so long; does not wait if too many requests do."""
    if advice.state in advise.FINISHED or not seconds or not free.acquire(blocking=False):
        return advice.state in advise.FINISHED
    try:
        end = time.monotonic() + seconds
        while advice.state not in advise.FINISHED and time.monotonic() < end:
            time.sleep(LOOK_S)
            advice.refresh_from_db(fields=["state"])
    finally:
        free.release()
    if advice.state in advise.FINISHED:
        advice.refresh_from_db()
    return advice.state in advise.FINISHED


# --- views ------------------------------------------------------------------------------------------------------


class Pages(rest.Pages):
    """A smaller limit, because rows are long."""

    max_limit = 200


# --- filters of the list of advice, which the page and REST share ----------------------------------------------

KINDS_ASKED = {**{kind.name: kind.title for kind in KINDS.values()}, PORTFOLIO: "several workloads on one fleet"}


LIMITS = ("max_usd_per_month", "max_capex_usd", "max_accelerators")  # of the constraints
NAMED = ("accelerators", "vendors", "providers", "regions", "frameworks", "formats")  # allowed or denied by name


def text_at(*keys: str) -> KeyTextTransform:
    """A value of the stored question as text; a list as JSON."""
    value: Any = "workload__spec"
    for key in keys[:-1]:
        value = KeyTransform(key, value)
    return KeyTextTransform(keys[-1], value)


class Names(django_filters.CharFilter):
    """Questions whose list at `keys` has this name, in upper or lower case."""

    def __init__(self, *keys: str, **options: Any) -> None:
        super().__init__(**options)
        self.keys = keys

    def filter(self, qs: QuerySet[Any], value: str) -> QuerySet[Any]:
        if not value:
            return qs
        alias = f"{'_'.join(self.keys)}_text"
        written = {json.dumps(value), json.dumps(value, ensure_ascii=False)}  # databases store either
        found = [Q(**{f"{alias}__icontains": text}) for text in written]
        return qs.alias(**{alias: text_at(*self.keys)}).filter(reduce(or_, found))


class Limited(django_filters.ChoiceFilter):
    """Questions that set this constraint."""

    def filter(self, qs: QuerySet[Any], value: str) -> QuerySet[Any]:
        if not value:
            return qs
        paths = [(value,)] if value in LIMITS else [(value, "allow"), (value, "deny")]
        texts = {f"limit_{n}": text_at("constraints", *path) for n, path in enumerate(paths)}
        unset = [Q(**{f"{name}__isnull": True}) | Q(**{f"{name}__in": ("null", "[]")}) for name in texts]
        return qs.alias(**texts).exclude(reduce(and_, unset))


class AdviceFilters(django_filters.FilterSet):
    """Kind, state, tag, constraints and days of the request."""

    kind = django_filters.ChoiceFilter(
        field_name="workload__spec__kind", label="Kind", choices=list(KINDS_ASKED.items()), empty_label="Any"
    )
    state = django_filters.ChoiceFilter(
        label="State",
        choices=[(name, STATES.get(name, name)) for name in Advice.State.values],
        empty_label="Any",
    )
    tag = Names("tags", label="Tag")
    objective = django_filters.ChoiceFilter(
        field_name="workload__spec__objective",
        label="Ranked by",
        choices=[(name, objective(name)) for name in what_if.OBJECTIVES],
        empty_label="Any",
    )
    constraint = Limited(
        label="With a constraint on",
        choices=[*((name, words(name)) for name in LIMITS), *((name, name) for name in NAMED)],
        empty_label="Any",
    )
    vendor = Names("constraints", "vendors", "allow", label="Limited to the vendor")
    accelerator = Names("constraints", "accelerators", "allow", label="Limited to the accelerator")
    provider = Names("constraints", "providers", "allow", label="Limited to the provider")
    region = Names("constraints", "regions", "allow", label="Limited to the region")
    since = filters.Day(field_name="created_at", lookup_expr="date__gte", label="Requested from")
    until = filters.Day(field_name="created_at", lookup_expr="date__lte", label="Requested until")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in ("since", "until"):
            self.filters[name].extra["widget"] = forms.DateInput(attrs={"type": "date"})


class RestAdviceFilters(AdviceFilters):
    """The same, and a part of the name, the model and the author."""

    name = django_filters.CharFilter(field_name="workload__name", lookup_expr="icontains", label="Part of the name")
    model = django_filters.CharFilter(
        field_name="workload__spec__model", lookup_expr="icontains", label="Part of the model's name"
    )
    author = django_filters.CharFilter(field_name="made_by", label="User name, or `token NAME`; exact")

    class Meta:
        model = Advice
        fields = [
            "name", "model", "kind", "state", "author", "tag", "objective", "constraint", "vendor", "accelerator",
            "provider", "region", "since", "until",
        ]  # fmt: skip


LINKS = (
    "advice", "studies", "quick", "estimate", "estimates", "accelerators", "models", "prices", "own-prices",
    "discounts", "api-prices", "frameworks", "quantizations", "units", "regions", "assumptions", "freshness",
    "fidelity", "agents", "probe-jobs", "probe-results", "enrolments", "tokens", "own-tokens", "service-accounts",
    "members", "invitations", "audit", "organization", "webhooks", "version", "saved-views", "price-updates",
    "held-prices",
)  # fmt: skip


class Root(views.APIView):
    @extend_schema(
        operation_id="getRoot",
        summary="List the resources",
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
        summary="List advice, newest first",
        description="Filters narrow together. `since` and `until` are days in UTC, both included.",
        responses={200: AdviceSummarySerializer, **problems(400, 406)},
    )
)
class AdviceList(generics.ListAPIView[Advice]):
    serializer_class = AdviceSummarySerializer
    pagination_class = Pages
    parser_classes = PARSERS
    filter_backends = (rest.KnownParameters, rest.Filters, rest.Ordering)
    filterset_class = RestAdviceFilters
    ordering_fields: ClassVar = ["created_at", "finished_at", "kind", "made_by", "name", "state"]
    ordering: ClassVar = ["-created_at"]
    queryset = Advice.objects.none()

    def get_queryset(self) -> QuerySet[Advice]:
        if is_schema(self):
            return self.queryset
        rows = advise.visible(organisation_of(self.request)).defer("result")
        return rows.annotate(name=F("workload__name"), kind=text_at("kind"))

    @extend_schema(
        operation_id="askForAdvice",
        summary="Request advice",
        description="Queues the workload. Poll the URL in Location until the state is done, failed or cancelled, or "
        "wait for it with `?wait=30`: 200 if it is finished by then. A question that was answered before is finished "
        "at once if nothing that the answer depends on has changed: `reused_from` names the earlier answer. "
        "Workers take turns between organizations, then between users; `ahead` counts those that start before it. 429: "
        "the organization or the user has too many queued requests.",
        request={kind: workload.Spec for kind in ("application/json", "application/yaml")},
        parameters=[KEY_PARAMETER, REPLAYED_HEADER, LOCATION, WAIT, FRESH],
        responses={200: AdviceSerializer, 202: AdviceSerializer, **problems(400, 406, 409, 413, 415, 422, 429)},
        examples=[EXAMPLE],
    )
    def post(self, request: Request) -> Response:
        spec = workload_in(request.data)
        caller, key, seconds = caller_of(request), idempotency_key(request), wait_s(request)
        limits.of_work(request, limits.ADVICE)
        advice = advise.request(
            spec,
            caller.organisation,
            idempotency_key=key,
            made_by=caller.name,
            key_owner=key_owner(request),
            fresh=is_fresh(request),
        )
        finished = until_finished(advice, seconds)
        data = AdviceSerializer(advice, context=self.get_serializer_context()).data
        headers = {"Location": reverse("api-advice", args=[advice.pk], request=request)} | replayed(advice)
        return Response(data, 200, headers=headers) if finished else Response(data, 202, headers=headers | LATER)


# A program asks with the ETag of the answer that it has: 304 without a body if nothing changed. Browsers store nothing.
@method_decorator(conditional_page, name="dispatch")
class OneAdvice(generics.GenericAPIView[Advice]):
    queryset = Advice.objects.none()
    serializer_class = AdviceSerializer

    def advice(self, pk: Any) -> Advice:
        return get_object_or_404(advise.visible(organisation_of(self.request)), pk=pk)

    def shown(self, advice: Advice) -> Response:
        headers = {} if advice.state in advise.FINISHED and not advice.is_due else LATER
        return Response(self.get_serializer(advice).data, headers=headers)


class AdviceDetail(OneAdvice):
    rights: ClassVar = {"DELETE": Right.ADMINISTER}

    @extend_schema(
        operation_id="getAdvice",
        summary="Get the state, progress and result",
        description="State done means that the verdict is ready and will not change. `result` lacks the keys of "
        "the sections that `sections.due` lists until they are computed; `Retry-After` is sent until then.",
        parameters=[INCLUDE, WAIT],
        responses={200: AdviceSerializer, **problems(400, 404, 406)},
    )
    def get(self, request: Request, pk: Any) -> Response:
        advice, seconds = self.advice(pk), wait_s(request)
        until_finished(advice, seconds)
        return self.shown(advice)

    @extend_schema(
        operation_id="deleteAdvice",
        summary="Delete advice with its options, links and load tests",
        description="A queued or running advice is stopped. Advice that superseded it is kept.",
        responses=DELETED,
    )
    def delete(self, request: Request, pk: Any) -> Response:
        deletion.delete_advice(self.advice(pk), caller_of(request).name)
        return Response(status=204)


class CancelAdvice(OneAdvice):
    @extend_schema(
        operation_id="cancelAdvice",
        summary="Cancel queued or running advice, or the sections that are due after its verdict",
        request=None,
        responses={200: AdviceSerializer, **problems(404, 406, 409)},
    )
    def post(self, request: Request, pk: Any) -> Response:
        advice = self.advice(pk)
        if not advise.cancel(advice) and advice.state != Advice.State.CANCELLED:
            raise Conflict(f"This recommendation is {advice.state}; only a queued or running one can be canceled.")
        return self.shown(self.advice(pk))


class AdviceResult(OneAdvice):
    @extend_schema(
        operation_id="getAdviceResult",
        summary="Get the complete result, as the command line prints it",
        description="202 with `Retry-After` while sections are still being computed.",
        parameters=[INCLUDE],
        responses={200: Answer, **problems(202, 400, 404, 406, 409)},
    )
    def get(self, request: Request, pk: Any) -> Response:
        advice = self.advice(pk)
        sections.check_complete(advice)
        return Response(short(result_of(advice), included(request)))


def result_of(advice: Advice) -> dict[str, Any]:
    """The stored answer. Conflict: there is none."""
    if advice.answer is None:
        reason = f": {advice.error}" if advice.error else ""
        raise Conflict(f"This recommendation is {advice.state}{reason}. It has no result.")
    return advice.answer


class AdviceSummary(OneAdvice):
    @extend_schema(
        operation_id="getAdviceSummary",
        summary="Get the answer in at most 4 kB",
        description="The decision in one sentence, what would settle it, the first option and the runner-up with key "
        "figures, the cost with its range, and links. The sentences are those of the first screen, in English and USD.",
        responses={200: AnswerSummary, **problems(404, 406, 409)},
    )
    @method_decorator(reader.in_english)
    def get(self, request: Request, pk: Any) -> Response:
        advice = self.advice(pk)
        try:
            answer = Answer.read(result_of(advice))
        except ValidationError:
            raise Conflict("This answer was stored by another version and cannot be read. Re-run it.") from None
        names = {"html": "advice", "result": "api-advice-result", "workload": "advice-workload"}
        links = {key: reverse(name, args=[pk], request=request) for key, name in names.items()}
        found = summary_of(answer, str(pk), advice.workload.name, SummaryLinks(**links))
        if due := sections.absent(advice):
            found = found.changed(rejected_count=None, sections_due=due)
        if advice.reused_from:
            found = found.changed(reused_from=advice.reused_from["id"])
        return Response(found.to_json())


ASKED = AnyOf(name="EstimateRequest", models=(Deployment, TrainingRun), required=("model", "accelerator"))
ESTIMATED = AnyOf(
    name="EstimateResponse", models=(Estimate, ClosedEstimate, TrainingEstimate), required=("fits", "warnings")
)


class EstimateOne(views.APIView):
    parser_classes = PARSERS

    @extend_schema(
        operation_id="estimateDeployment",
        summary="Estimate one fixed deployment or one training step",
        description="Responds immediately, without a search. With kind training or finetuning, one step of a training "
        "run; else a deployment. If `fits` is false, memory is too small, and `smallest_change` says what would help. "
        "`evidence` has the most similar measurements and their predictions; `near` is false for those that differ "
        "much. With `method: closed_form`, memory, cost and means by formulas, without simulation: ClosedEstimate.",
        request={kind: ASKED for kind in ("application/json", "application/yaml")},
        responses={200: ESTIMATED, **problems(400, 406, 413, 415, 422)},
        examples=[ESTIMATE_EXAMPLE, TRAINING_EXAMPLE],
    )
    def post(self, request: Request) -> Response:
        limits.of_estimate(request)
        if not isinstance(request.data, dict):
            raise workload.WorkloadError([workload.error("", "must be an object of keys", "a deployment")])
        return Response(estimate_of(request.data, organisation_of(request)))


def estimate_of(raw: dict[str, Any], organisation: Organisation) -> dict[str, Any]:
    """The estimate of one body, on the catalog that the organization sees. Raises WorkloadError."""
    # here, so that web workers load the engine only for estimates
    from advisor.answer import closed_estimates, single_estimate, training_estimate

    asked = workload.parse_estimate(raw)
    if isinstance(asked, TrainingRun):
        return training_estimate.answer(asked, organisation).to_json()
    if asked.method == "closed_form":
        return closed_estimates.answer(raw, organisation).to_json()
    return single_estimate.answer(within_limits(asked), organisation).to_json()


def within_limits(d: Deployment) -> Deployment:
    """The deployment. Raises WorkloadError if it would take a web worker too long; the command line has no limit."""
    sizes = {"isl": d.isl, "osl": d.osl, "concurrency": 1 if d.concurrency == "max" else d.concurrency}
    if d.trace is not None:  # generated tokens
        sizes["trace"] = d.osl * d.trace.csv.count("\n")
    if over := [name for name, value in sizes.items() if value > MAX_ESTIMATE[name]]:
        errors = [
            workload.error(name, "is too large for a web request", f"at most {MAX_ESTIMATE[name]}") for name in over
        ]
        raise workload.WorkloadError(errors)
    return d
