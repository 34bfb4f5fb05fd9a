"""Asking again: re-runs, changed questions and what-ifs of an answer; and comparisons of answers."""

from dataclasses import asdict
from typing import Any

from django.db.models import QuerySet
from django.http import Http404, QueryDict
from django.utils.decorators import method_decorator
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import generics, serializers, views
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse

from advisor import advise, refresh, workload
from advisor.api import (
    PARSERS,
    AdviceSerializer,
    AdviceSummarySerializer,
    JSONParser,
    OneAdvice,
    Pages,
    Unready,
    limits,
    workload_in,
)
from advisor.inputs import what_if
from advisor.models import Advice
from advisor.result import QuickRanking
from advisor.web import views as pages
from advisor.web.answers import compare_page, comparison
from advisor.web.what_if import controls
from advisor.web.what_if import views as what_ifs
from advisor.workload import WorkloadError
from catalog.accounts import caller_of, organisation_of
from catalog.pricing import reader
from catalog.rest import Body, Conflict, OneOf, Text, Unprocessable, problems, refuse_unknown

LATER = {"Retry-After": "1"}
ASKED = {202: AdviceSerializer, **problems(400, 403, 404, 406, 409, 413, 415, 422, 429)}
UNREADABLE = "This answer was stored by another version and cannot be read. Re-run it."


class Asks(OneAdvice):
    """Makes a successor of an advice."""

    parser_classes: Any = (JSONParser,)

    def made(self, advice: Advice) -> Response:
        url = reverse("api-advice", args=[advice.pk], request=self.request)
        return Response(self.get_serializer(advice).data, status=202, headers={"Location": url, **LATER})

    def finished(self, pk: Any) -> Advice:
        """Conflict: it is not done."""
        advice = self.advice(pk)
        if not advice.is_done:
            raise Conflict(f"This recommendation is {advice.state}. It has no result.")
        return advice


class RescoreBody(Body):
    prices = OneOf(choices=("today", pages.THEN), default="today", help_text="Of today, or those of its own day")


class Rescore(Asks):
    @extend_schema(
        operation_id="rescoreAdvice",
        summary="Ask the same question again",
        description="Queues a successor, on the catalog of today.",
        request=RescoreBody,
        responses=ASKED,
    )
    def post(self, request: Request, pk: Any) -> Response:
        advice, body = self.advice(pk), RescoreBody(data=request.data)
        body.is_valid(raise_exception=True)
        if advice.state not in advise.FINISHED:
            raise Conflict(f"This recommendation is {advice.state}; only a finished one can be re-run.")
        try:
            return self.made(pages.again(advice, body.validated_data["prices"] == pages.THEN, caller_of(request).name))
        except Advice.DoesNotExist:
            raise Http404 from None


class Successors(Asks, generics.ListAPIView[Advice]):
    pagination_class = Pages
    parser_classes = PARSERS
    serializer_class: Any = AdviceSummarySerializer

    def get_queryset(self) -> QuerySet[Advice]:
        if getattr(self, "swagger_fake_view", False):
            return Advice.objects.none()
        rows = advise.visible(organisation_of(self.request)).defer("result", "snapshot")
        return rows.filter(supersedes=self.advice(self.kwargs["pk"])).order_by("-created_at")

    @extend_schema(
        operation_id="listSuccessors",
        summary="List what was asked from it: re-runs, changed questions and saved what-ifs, newest first",
        responses={200: AdviceSummarySerializer, **problems(400, 404, 406)},
    )
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return super().get(request, *args, **kwargs)

    @extend_schema(
        operation_id="askFromAdvice",
        summary="Request advice on a changed question; the answer names this one as the one that it supersedes",
        request={kind: workload.Spec for kind in ("application/json", "application/yaml")},
        responses=ASKED,
    )
    def post(self, request: Request, pk: Any) -> Response:
        self.serializer_class = AdviceSerializer
        earlier = self.advice(pk)
        return self.made(pages.asked(workload_in(request.data), caller_of(request), earlier))


# --- what-if ----------------------------------------------------------------------------------------------------


class ComparedSerializer(serializers.Serializer[Any]):
    rank = serializers.IntegerField(allow_null=True)
    accelerator = serializers.CharField(allow_null=True)
    provider = serializers.CharField()
    rank_before = serializers.IntegerField(allow_null=True)
    cost_difference_fraction = serializers.FloatField(allow_null=True)


class WhatIfSerializer(serializers.Serializer[Any]):
    changes = serializers.ListField(child=serializers.CharField(), help_text="What differs from the question.")
    ranking = serializers.SerializerMethodField(help_text="As POST /api/v1/quick ranks the changed question.")
    compared = ComparedSerializer(many=True, help_text="With the estimates of the question as it was.")

    def get_ranking(self, found: Any) -> QuickRanking:
        return found["ranking"]


CONTROLS = [
    OpenApiParameter(control.name, OpenApiTypes.STR, description=f"{control.label}; empty: no limit")
    for control in what_if.CONTROLS
]


class WhatIfBody(Body):
    name = Text(required=False, allow_blank=True, max_length=what_ifs.MOST_NAMED, help_text="Of the scenario")
    controls = serializers.DictField(
        child=serializers.JSONField(allow_null=True),
        help_text=f"Number, text or list by control: {', '.join(what_if.BY_NAME)}",
    )


def form_of(given: dict[str, Any]) -> QueryDict:
    """The controls as the page's form sends them. Raises Unprocessable."""
    found = QueryDict(mutable=True)
    for name, value in given.items():
        each = value if isinstance(value, list) else [] if value is None else [value]
        if any(isinstance(word, dict | list | bool | None) for word in each):
            raise Unprocessable({"controls": [f"{name[:40]}: give a number, a text or a list of them."]})
        found.setlist(name, [f"{word:.12g}" if isinstance(word, float) else str(word) for word in each])
    return found


def changed(advice: Advice, query: QueryDict, shared: bool = False) -> what_ifs.Asked:
    """The changed question. WorkloadError names controls; Http404: such an answer has no what-if."""
    if not controls.can_change(advice.workload.spec, None if shared else advice.organisation):
        raise Http404(what_ifs.NOT_SERVED)
    found = what_ifs.asked(advice, query, shared)
    if found.errors:
        raise WorkloadError([workload.error(name, said, "") for name, said in found.errors.items()])
    return found


def estimated(request: Request, advice: Advice, shared: bool = False) -> Response:
    """The closed-form ranking of the question that the controls in the address make."""
    from advisor.answer import quick  # here, so that web workers load the engine only for estimates

    found = changed(advice, request.query_params, shared)
    limits.of_quick(request)
    try:
        context = what_ifs.results_context(request, found, "", shared)
    except quick.Busy:
        raise Unready from None
    except pages.UnreadableAnswer:
        raise Conflict(UNREADABLE) from None
    return Response(what_ifs.figures_of(context))


class WhatIf(Asks):
    @extend_schema(
        operation_id="estimateWhatIf",
        summary="Rank the catalog by closed formulas for the question with changed values",
        parameters=CONTROLS,
        responses={200: WhatIfSerializer, **problems(400, 404, 406, 409, 422, 503)},
    )
    @method_decorator(reader.in_english)
    def get(self, request: Request, pk: Any) -> Response:
        return estimated(request, self.finished(pk))

    @extend_schema(
        operation_id="saveWhatIf",
        summary="Save the question with changed values as a named scenario, and request the full answer",
        request=WhatIfBody,
        responses=ASKED,
    )
    @method_decorator(reader.in_english)
    def post(self, request: Request, pk: Any) -> Response:
        advice, body = self.finished(pk), WhatIfBody(data=request.data)
        body.is_valid(raise_exception=True)
        found = changed(advice, form_of(body.validated_data["controls"]))
        if found.spec == advice.workload.spec:
            raise Unprocessable({"controls": ["These values leave the question as it is."]})
        try:
            return self.made(what_ifs.queued(found, body.validated_data.get("name", ""), caller_of(request).name))
        except Advice.DoesNotExist:
            raise Http404 from None


# --- comparison -------------------------------------------------------------------------------------------------

ITEM = OpenApiParameter(
    "item",
    {"type": "array", "items": {"type": "string"}, "minItems": comparison.LEAST, "maxItems": comparison.MOST},
    required=True,
    description="ID of an answer, of an option as ID:RANK, or of a scenario as ID:RANK@NAME; two to four of them.",
)


class Compare(views.APIView):
    @extend_schema(
        operation_id="compareAnswers",
        summary="Compare two to four answers, options or scenarios",
        parameters=[ITEM],
        responses={200: OpenApiResponse(OpenApiTypes.OBJECT), **problems(400, 404, 406, 409, 422)},
    )
    @method_decorator(reader.in_english)
    def get(self, request: Request) -> Response:
        return Response(comparison.as_json(compared(request)))


def compared(request: Request) -> list[comparison.Item]:
    """The items that the address names. Unprocessable: too few or too many; NotFound: there is no such item."""
    refuse_unknown(request, {"item", "fields", "format"}, {"item"})
    keys = compare_page.keys_of(request.query_params.getlist("item"))
    if not comparison.LEAST <= len(keys) <= comparison.MOST:
        raise Unprocessable({"item": [f"Name {comparison.LEAST} to {comparison.MOST} different items."]})
    try:
        return compare_page.items_of(organisation_of(request), keys)
    except pages.UnreadableAnswer:
        raise Conflict(UNREADABLE) from None


# --- freshness --------------------------------------------------------------------------------------------------


class RestingSerializer(serializers.Serializer[Any]):
    advice = serializers.UUIDField()
    name = serializers.CharField()
    asked_on = serializers.DateField()
    newer = serializers.ListField(child=serializers.CharField(), help_text="What is newer now; empty: nothing")


class AnswersFreshness(generics.GenericAPIView[Advice]):
    queryset = Advice.objects.none()
    serializer_class = RestingSerializer
    pagination_class = None

    @extend_schema(
        operation_id="listAnswersFreshness",
        summary="List the newest saved answers with the data that is newer now",
        responses={200: RestingSerializer(many=True), **problems(401, 403, 406)},
    )
    def get(self, request: Request) -> Response:
        return Response([asdict(each) for each in refresh.resting(organisation_of(request))])

    @extend_schema(
        operation_id="compareAnswersWithToday",
        summary="Compute the newest saved answers again in the background, to see which of them change",
        description="The result is in `report` of GET /api/v1/price-updates. 409: one runs already.",
        request=None,
        responses={202: OpenApiResponse(description="Started."), **problems(401, 403, 406, 409)},
    )
    def post(self, request: Request) -> Response:
        if why := refresh.start_comparison(organisation_of(request), caller_of(request).name):
            raise Conflict(why)
        return Response(status=202)
