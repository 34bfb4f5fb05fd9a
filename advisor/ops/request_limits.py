"""Refuses requests before any view: bodies that are too long, and URLs with NUL characters."""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

from advisor.load_tests import MAX_BYTES

MAX_BODY_BYTES = 5 * 2**20  # a probe result has at most 4 MiB, a workload 1 MB
FILES = "/load-tests"  # end of the URLs that accept result files of load generators
FORM_BYTES = 64 * 1024  # what a form adds to the file

REFUSED = "assay.refused_body"  # key in the WSGI environment: (status, detail) for a body that could not be read

Respond = Callable[[HttpRequest], HttpResponse]


def refuse_long_bodies(get_response: Respond) -> Respond:
    """Middleware: refuses bodies that are too long before Django writes them to disk.

    A body without Content-Length counts as empty; chunked_bodies adds the header to chunked ones.
    """

    def respond(request: HttpRequest) -> HttpResponse:
        if REFUSED in request.META:
            return trouble(request, *request.META[REFUSED])
        limit = max_bytes(request.path)
        if length_of(request) <= limit:
            return get_response(request)
        return trouble(request, 413, f"The limit here is {limit // 2**20} MiB; a workload may have at most 1 MB.")

    return respond


def max_bytes(path: str) -> int:
    """The limit for bodies sent to this path."""
    return MAX_BYTES + FORM_BYTES if path.endswith(FILES) else MAX_BODY_BYTES


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
