"""The documents for finance: of an advice, of a shared link, over REST."""

from typing import Any

from django.contrib.auth.decorators import login_not_required
from django.http import Http404, HttpRequest, HttpResponse
from django.utils.text import slugify
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import exceptions
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request

from advisor.api import OneAdvice
from advisor.later import sections
from advisor.models import Advice
from advisor.report import DOCUMENTS, NO_ANSWER, NO_SHARED_ANSWER, XLSX, default_rank, has_document
from advisor.web.views import answer_of, finished, or_incomplete, shared_advice, unlisted
from catalog.accounts import organisation_of
from catalog.pricing import reader
from catalog.rest import problems


@reader.in_english
def document(advice: Advice, name: str, rank: str | None) -> HttpResponse:
    """One document of a finished advice; `rank` as in the address; None: 1."""
    if name not in DOCUMENTS:
        raise Http404(f"Unknown document. Available: {', '.join(DOCUMENTS)}.")
    if not advice.is_done:
        raise Http404(f"This recommendation is {advice.state}: it has no result to create documents from.")
    if rank is not None and not (rank.isascii() and rank.isdigit() and len(rank) < 4):
        raise Http404("rank must be a whole number of at least 1.")
    sections.check_complete(advice)
    answer = answer_of(advice)
    kind, make = DOCUMENTS[name]
    if not has_document(answer, name):
        raise Http404(NO_SHARED_ANSWER if answer.portfolio else NO_ANSWER)
    content = make(answer, int(rank) if rank else default_rank(answer, name))
    file = f"{slugify(advice.workload.name) or 'advice'}-{name}"
    disposition = "inline" if name.endswith(".html") else "attachment"
    headers = {"Content-Disposition": f'{disposition}; filename="{file}"'}
    kind = f"{kind}; charset=utf-8" if isinstance(content, str) else kind
    return HttpResponse(content, content_type=kind, headers=headers)


@require_safe
@or_incomplete
def page(request: HttpRequest, pk: Any, name: str) -> HttpResponse:
    return document(finished(organisation_of(request), pk), name, request.GET.get("rank"))


@login_not_required
@never_cache
@require_safe
@or_incomplete
def shared_page(request: HttpRequest, token: str, name: str) -> HttpResponse:
    """The same documents for anyone who has the link."""
    return unlisted(document(shared_advice(token), name, request.GET.get("rank")))


class Made(BaseRenderer):
    """Takes part in content negotiation only: a document is made already."""

    def render(self, data: Any, accepted_media_type: str | None = None, renderer_context: Any = None) -> Any:
        return data


def renderer_of(kind: str) -> type[Made]:
    """For this media type; `?format=` names it as the file's extension does."""
    extension = {"text/markdown": "md", XLSX: "xlsx"}.get(kind, kind.partition("/")[2])
    return type("DocumentRenderer", (Made,), {"media_type": kind, "format": extension})


SHAPES = {XLSX: OpenApiTypes.BINARY, "application/yaml": OpenApiTypes.ANY}
RENDERERS = {name: renderer_of(kind) for name, (kind, _) in DOCUMENTS.items()}


def described(operation_id: str, **more: Any) -> Any:
    """The description of a call that returns any of the documents."""
    return extend_schema(
        operation_id=operation_id,
        summary=f"A document for finance or for a cluster: {', '.join(DOCUMENTS)}",
        parameters=[
            OpenApiParameter("name", OpenApiTypes.STR, OpenApiParameter.PATH, enum=list(DOCUMENTS)),
            OpenApiParameter("rank", {"type": "integer", "minimum": 1}, description="The option; 1 without it"),
        ],
        responses={
            **{
                (200, kind): OpenApiResponse(SHAPES.get(kind, OpenApiTypes.STR))
                for kind in sorted({kind for kind, _ in DOCUMENTS.values()})
            },
            **problems(202, 404, 406, 409),
        },
        **more,
    )


class Document(OneAdvice):
    def get_renderers(self) -> list[BaseRenderer]:
        """Of the document's own media type; a name that does not exist is a 404 whatever is accepted."""
        renderer = RENDERERS.get(self.kwargs.get("name", ""))
        return [renderer()] if renderer else list(super().get_renderers())

    def perform_content_negotiation(self, request: Request, force: bool = False) -> Any:
        """406 names the one media type there is."""
        name = self.kwargs.get("name", "")
        try:
            return super().perform_content_negotiation(request, force or name not in RENDERERS)
        except exceptions.NotAcceptable:
            kind = DOCUMENTS[name][0]
            raise exceptions.NotAcceptable(f"{name} is {kind}: send Accept: {kind}, or no Accept header.") from None

    @described("getAdviceDocument")
    def get(self, request: Request, pk: Any, name: str) -> HttpResponse:
        return self.made(self.advice(pk), name)

    def made(self, advice: Advice, name: str) -> HttpResponse:
        try:
            return document(advice, name, self.request.query_params.get("rank"))
        except Http404 as missing:
            raise exceptions.NotFound(str(missing)) from None
