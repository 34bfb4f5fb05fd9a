"""Refuses requests before any view: bodies that are too long, and URLs with NUL characters."""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

MAX_BODY_BYTES = 5 * 2**20  # an upload has at most 4 MiB, and a form adds to it; a workload has at most 1 MB

REFUSED = "assay.refused_body"  # key in the WSGI environment: (status, detail) for a body that could not be read

Respond = Callable[[HttpRequest], HttpResponse]


def refuse_long_bodies(get_response: Respond) -> Respond:
    """Middleware: refuses bodies that are too long before Django writes them to disk.

    A body without Content-Length counts as empty; chunked_bodies adds the header to chunked ones.
    """

    def respond(request: HttpRequest) -> HttpResponse:
        if REFUSED in request.META:
            return trouble(request, *request.META[REFUSED])
        if length_of(request) <= MAX_BODY_BYTES:
            return get_response(request)
        limits = f"A request can have at most {MAX_BODY_BYTES // 2**20} MiB, an uploaded file 4 MiB, a workload 1 MB."
        return trouble(request, 413, limits)

    return respond


def refuse_nul(get_response: Respond) -> Respond:
    """Middleware: refuses NUL characters in URLs, which PostgreSQL cannot store in text."""

    def respond(request: HttpRequest) -> HttpResponse:
        if "\0" in request.path or "%00" in request.META.get("QUERY_STRING", ""):
            return trouble(request, 400, "The URL contains a NUL character (%00); remove it.")
        return get_response(request)

    return respond


def trouble(request: HttpRequest, status: int, detail: str) -> HttpResponse:
    from advisor.web import trouble  # here: middleware is made before the applications are ready

    return trouble(request, status, detail)


def length_of(request: HttpRequest) -> int:
    given = request.META.get("CONTENT_LENGTH") or "0"
    return int(given) if given.isascii() and given.isdigit() else 0
