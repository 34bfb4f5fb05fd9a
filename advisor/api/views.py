"""REST views for advice and estimates. Errors are problem documents (catalog/rest)."""

from typing import Any, ClassVar

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import OpenApiResponse, extend_schema, extend_schema_view
from rest_framework import generics, views
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse

from advisor import advise, deletion, workload
from advisor.api import limits
from advisor.api.openapi import (
    ESTIMATE_EXAMPLE,
    EXAMPLE,
    KEY_PARAMETER,
    LOCATION,
    TRAINING_EXAMPLE,
    AnyOf,
)
from advisor.api.parsers import PARSERS, idempotency_key, workload_in
from advisor.api.serializers import AdviceSerializer, AdviceSummarySerializer
from advisor.models import Advice
from advisor.result import Answer, Estimate, TrainingEstimate
from advisor.workload import Deployment, TrainingRun
from catalog import rest
from catalog.accounts import Right, caller_of, organisation_of
from catalog.rest import Conflict, problems

MAX_ESTIMATE = {"isl": 131_072, "osl": 16_384, "concurrency": 20_000}  # of web requests, which must be quick


DELETED: dict[Any, Any] = {204: OpenApiResponse(description="Deleted."), **problems(401, 403, 404)}


def is_schema(view: Any) -> bool:
    """Whether drf-spectacular reads the view to describe it; there is no caller then."""
    return getattr(view, "swagger_fake_view", False)


# --- views ------------------------------------------------------------------------------------------------------


class Pages(rest.Pages):
    """A smaller limit, because rows are long."""

    max_limit = 200


LINKS = (
    "advice", "studies", "quick", "estimate", "accelerators", "models", "prices", "own-prices", "discounts",
    "api-prices", "frameworks", "quantizations", "units", "regions", "assumptions", "freshness", "fidelity", "agents",
    "probe-jobs", "probe-results", "enrolments", "tokens",
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
        return AdviceList.queryset if is_schema(self) else advise.visible(organisation_of(self.request)).defer("result")

    @extend_schema(
        operation_id="askForAdvice",
        summary="Request advice",
        description="Queues the workload. Poll the URL in Location until the state is done, failed or cancelled. "
        "Workers take turns between organizations, then between users; `ahead` counts those that start before it. 429: "
        "the organization or the user has too many queued requests.",
        request={kind: workload.Spec for kind in ("application/json", "application/yaml")},
        parameters=[KEY_PARAMETER, LOCATION],
        responses={202: AdviceSerializer, **problems(400, 406, 409, 413, 415, 422, 429)},
        examples=[EXAMPLE],
    )
    def post(self, request: Request) -> Response:
        spec = workload_in(request.data)
        caller, key = caller_of(request), idempotency_key(request)
        advice = advise.request(spec, caller.organisation, idempotency_key=key, made_by=caller.name)
        data = AdviceSerializer(advice, context=self.get_serializer_context()).data
        url = reverse("api-advice", args=[advice.pk], request=request)
        return Response(data, status=202, headers={"Location": url, "Retry-After": "1"})


class OneAdvice(generics.GenericAPIView[Advice]):
    queryset = Advice.objects.none()
    serializer_class = AdviceSerializer

    def advice(self, pk: Any) -> Advice:
        return get_object_or_404(advise.visible(organisation_of(self.request)), pk=pk)

    def shown(self, advice: Advice) -> Response:
        waiting = {} if advice.state in advise.FINISHED else {"Retry-After": "1"}
        return Response(self.get_serializer(advice).data, headers=waiting)


class AdviceDetail(OneAdvice):
    rights: ClassVar = {"DELETE": Right.ADMINISTER}

    @extend_schema(
        operation_id="getAdvice",
        summary="Get the state, progress and result",
        responses={200: AdviceSerializer, **problems(404, 406)},
    )
    def get(self, request: Request, pk: Any) -> Response:
        return self.shown(self.advice(pk))

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
        summary="Cancel queued or running advice",
        request=None,
        responses={200: AdviceSerializer, **problems(404, 406, 409)},
    )
    def post(self, request: Request, pk: Any) -> Response:
        advice = self.advice(pk)
        if not advise.cancel(advice) and advice.state != Advice.State.CANCELLED:
            raise Conflict(f"This recommendation is {advice.state}; only a queued or running one can be cancelled.")
        return self.shown(advice)


class AdviceResult(OneAdvice):
    @extend_schema(
        operation_id="getAdviceResult",
        summary="Get the result, as the command line prints it",
        responses={200: Answer, **problems(404, 406, 409)},
    )
    def get(self, request: Request, pk: Any) -> Response:
        advice = self.advice(pk)
        if advice.result is None:
            reason = f": {advice.error}" if advice.error else ""
            raise Conflict(f"This recommendation is {advice.state}{reason}. It has no result.")
        return Response(advice.answer)


ASKED = AnyOf(name="EstimateRequest", models=(Deployment, TrainingRun), required=("model", "accelerator"))
ESTIMATED = AnyOf(name="EstimateResponse", models=(Estimate, TrainingEstimate), required=("fits", "warnings"))


class EstimateOne(views.APIView):
    parser_classes = PARSERS

    @extend_schema(
        operation_id="estimateDeployment",
        summary="Estimate one fixed deployment or one training step",
        description="Responds immediately, without a search. With kind training or finetuning, one step of a training "
        "run; else a deployment. If `fits` is false, memory is too small, and `smallest_change` says what would help. "
        "`evidence` has the most similar measurements and their predictions; `near` is false for those that differ "
        "much.",
        request={kind: ASKED for kind in ("application/json", "application/yaml")},
        responses={200: ESTIMATED, **problems(400, 406, 413, 415, 422)},
        examples=[ESTIMATE_EXAMPLE, TRAINING_EXAMPLE],
    )
    def post(self, request: Request) -> Response:
        limits.of_estimate(request)
        # here, so that web workers load the engine only for estimates
        from advisor.answer import single_estimate, training_estimate

        if not isinstance(request.data, dict):
            raise workload.WorkloadError([workload.error("", "must be an object of keys", "a deployment")])
        asked = workload.parse_estimate(request.data)
        if isinstance(asked, TrainingRun):
            return Response(training_estimate.answer(asked).to_json())
        return Response(single_estimate.answer(within_limits(asked)).to_json())


def within_limits(d: Deployment) -> Deployment:
    """The deployment. Raises WorkloadError if it would take a web worker too long; the command line has no limit."""
    sizes = {"isl": d.isl, "osl": d.osl, "concurrency": 1 if d.concurrency == "max" else d.concurrency}
    if over := [name for name, value in sizes.items() if value > MAX_ESTIMATE[name]]:
        errors = [
            workload.error(name, "is too large for a web request", f"at most {MAX_ESTIMATE[name]}") for name in over
        ]
        raise workload.WorkloadError(errors)
    return d
