"""The papers of finance.py at their addresses: of an advice, of a link, over REST."""

from typing import Any

from django.contrib.auth.decorators import login_not_required
from django.http import Http404, HttpRequest, HttpResponse
from django.utils.text import slugify
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import exceptions
from rest_framework.request import Request

from advisor.api import OneAdvice, problems
from advisor.finance import DOCUMENTS, shared_money
from advisor.models import Advice
from advisor.views import finished, shared_advice, unlisted


def document(found: Advice, name: str, asked: str | None) -> HttpResponse:
    """One paper of a finished advice; `asked`: the rank in the address, 1 where there is none."""
    if name not in DOCUMENTS:
        raise Http404(f"There is no such paper; there are {', '.join(DOCUMENTS)}.")
    if found.result is None:
        raise Http404(f"This advice is {found.state}: it has no result to make papers of.")
    if asked is not None and not (asked.isascii() and asked.isdigit() and len(asked) < 4):
        raise Http404("rank is a whole number from 1.")
    kind, make = DOCUMENTS[name]
    if not (found.result.get("recommendations") or shared_money(found.result)) and name != "assumptions.csv":
        together = "A workload of this portfolio has no answer: ask each by itself, or ask the portfolio again."
        nothing = "Nothing was recommended, so there is nothing to decide: see why each accelerator was left out."
        raise Http404(together if "portfolio" in found.result else nothing)
    text = make(found.result, int(asked or 1))
    file = f"{slugify(found.workload.name) or 'advice'}-{name}"
    shown = "inline" if name == "memo.html" else "attachment"
    headers = {"Content-Disposition": f'{shown}; filename="{file}"'}
    return HttpResponse(text, content_type=f"{kind}; charset=utf-8", headers=headers)


@require_safe
def page(request: HttpRequest, pk: Any, name: str) -> HttpResponse:
    return document(finished(pk), name, request.GET.get("rank"))


@login_not_required
@never_cache
@require_safe
def shared_page(request: HttpRequest, token: str, name: str) -> HttpResponse:
    """The same papers for who has a link."""
    return unlisted(document(shared_advice(token), name, request.GET.get("rank")))


class Document(OneAdvice):
    @extend_schema(
        operation_id="getAdviceDocument",
        summary="A paper for finance: memo.html, memo.md, bill-of-materials.csv, assumptions.csv or cash-flow.csv",
        parameters=[
            OpenApiParameter("name", OpenApiTypes.STR, OpenApiParameter.PATH, enum=list(DOCUMENTS)),
            OpenApiParameter("rank", {"type": "integer", "minimum": 1}, description="which option; 1 without it"),
        ],
        responses={
            **{(200, kind): OpenApiResponse(OpenApiTypes.STR) for kind, _ in DOCUMENTS.values()},
            **problems(404, 406),
        },
    )
    def get(self, request: Request, pk: Any, name: str) -> HttpResponse:
        found = self.advice(pk)
        try:
            return document(found, name, request.query_params.get("rank"))
        except Http404 as missing:
            raise exceptions.NotFound(str(missing)) from None
