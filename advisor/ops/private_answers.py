"""Caches: an answer belongs to whoever asked for it, unless it is the same for everybody."""

from collections.abc import Callable

from django.conf import settings
from django.http import HttpRequest, HttpResponse

PRIVATE = "private, no-store"
PUBLIC_S = 300
PUBLIC = ("agent-file", "schema", "api-docs")  # by the names of their addresses; WhiteNoise answers for static files

Respond = Callable[[HttpRequest], HttpResponse]


def keep_private(get_response: Respond) -> Respond:
    """Middleware: pages differ by visitor, and most hold advice or prices. No proxy and no browser may keep them."""

    def respond(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        response["Cache-Control"] = f"public, max-age={PUBLIC_S}" if is_public(request, response) else PRIVATE
        return response

    return respond


def is_public(request: HttpRequest, response: HttpResponse) -> bool:
    found = request.resolver_match
    named = found is not None and found.view_name in PUBLIC
    open_to_all = settings.OPEN or (found is not None and found.view_name == "agent-file")
    return named and open_to_all and response.status_code == 200 and not response.cookies
