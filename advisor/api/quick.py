"""REST view of the closed-form ranking."""

from drf_spectacular.utils import extend_schema
from rest_framework import exceptions, views
from rest_framework.request import Request
from rest_framework.response import Response

from advisor import inputs, workload
from advisor.api import limits
from advisor.api.openapi import EXAMPLE
from advisor.api.parsers import PARSERS, workload_in
from advisor.result import QuickRanking
from catalog.accounts import organisation_of
from catalog.rest import problems


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
