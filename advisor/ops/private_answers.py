"""Cache-Control: private for all responses, except those that are the same for everyone."""

from collections.abc import Callable

from django.conf import settings
from django.http import HttpRequest, HttpResponse

from catalog.revision import REVALIDATE

PRIVATE = "private, no-store"
PUBLIC_S = 300
PUBLIC = ("agent-file", "schema", "api-docs")  # URL names; WhiteNoise sets the header of static files

Respond = Callable[[HttpRequest], HttpResponse]


def keep_private(get_response: Respond) -> Respond:
    """Middleware: forbids proxies and browsers to store responses, most of which contain answers or prices."""

    def respond(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        if is_public(request, response):
            response["Cache-Control"] = f"public, max-age={PUBLIC_S}"
        elif not (response.get("ETag") and response.get("Cache-Control") == REVALIDATE):
            response["Cache-Control"] = PRIVATE  # else kept by the client, which asks before it shows it again
        return response

    return respond


def is_public(request: HttpRequest, response: HttpResponse) -> bool:
    view_name = request.resolver_match.view_name if request.resolver_match else ""
    open_to_all = settings.OPEN or view_name == "agent-file"
    return view_name in PUBLIC and open_to_all and response.status_code in (200, 304) and not response.cookies
