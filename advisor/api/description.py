"""The OpenAPI document at /api/schema/: generated once per process and format, then served from memory with an ETag."""

import hashlib
import threading
from functools import cache

from django.http import HttpRequest, HttpResponse
from django.utils import translation
from django.utils.cache import get_conditional_response, patch_vary_headers
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularAPIView
from rest_framework.renderers import BaseRenderer

from catalog.revision import REVALIDATE

GENERATING = threading.Lock()


class Description(SpectacularAPIView):
    """The document in YAML or JSON, the same for every caller. It never changes in a process: it describes the code."""

    @extend_schema(exclude=True)
    def get(self, request: HttpRequest) -> HttpResponse:
        renderer: BaseRenderer = request.accepted_renderer  # type: ignore[attr-defined]
        with GENERATING:  # other threads wait for the first document instead of generating it again
            body, tag = written(type(renderer))  # type: ignore[arg-type]  # of the stubs
        response = get_conditional_response(request, etag=tag) or HttpResponse(body, content_type=renderer.media_type)
        response["ETag"], response["Cache-Control"] = tag, REVALIDATE
        response["Content-Disposition"] = f'inline; filename="assay-openapi.{renderer.format}"'
        patch_vary_headers(response, ("Accept", "Authorization", "Cookie"))
        return response


@cache
def written(renderer: type[BaseRenderer]) -> tuple[bytes, str]:
    """(document, ETag) in a renderer's format."""
    with translation.override("en"):
        text = renderer().render(SchemaGenerator().get_schema(request=None, public=True), renderer_context={})
    body = text.encode() if isinstance(text, str) else text
    return body, f'"{hashlib.sha256(body).hexdigest()[:20]}"'
