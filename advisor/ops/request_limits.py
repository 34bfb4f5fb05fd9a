"""Requests that no view should see: bodies longer than anybody may send, addresses that no database can look up."""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

from advisor.load_tests import MAX_BYTES

MOST_BYTES = 5 * 2**20  # a machine's result is at most 4 MiB, a workload 1
FILES = "/load-tests"  # where result files of load generators go, on the page and in the API
FORM_BYTES = 64 * 1024  # what a form adds to its file

REFUSED = "assay.refused_body"  # in the WSGI environment: (status, detail) of a body that could not be read

Respond = Callable[[HttpRequest], HttpResponse]


def refuse_long_bodies(get_response: Respond) -> Respond:
    """Middleware: Django writes an upload to disk before a view can refuse it.

    A body without a length is empty; chunked_bodies gives chunked ones a length.
    """

    def respond(request: HttpRequest) -> HttpResponse:
        if REFUSED in request.META:
            return trouble(request, *request.META[REFUSED])
        most = most_bytes(request.path)
        if length_of(request) <= most:
            return get_response(request)
        return trouble(request, 413, f"At most {most // 2**20} MiB are read here; a workload has at most 1 MB.")

    return respond


def most_bytes(path: str) -> int:
    """Of the body of a request to this path."""
    return MAX_BYTES + FORM_BYTES if path.endswith(FILES) else MOST_BYTES


def refuse_nul(get_response: Respond) -> Respond:
    """Middleware: PostgreSQL takes no NUL in a text, whichever part of the address it came from."""

    def respond(request: HttpRequest) -> HttpResponse:
        if "\0" in request.path or "%00" in request.META.get("QUERY_STRING", ""):
            return trouble(request, 400, "The address holds a NUL character (%00): leave it out.")
        return get_response(request)

    return respond


def trouble(request: HttpRequest, status: int, detail: str) -> HttpResponse:
    from advisor.web import trouble  # here: middleware is made before the applications are ready

    return trouble(request, status, detail)


def length_of(request: HttpRequest) -> int:
    given = request.META.get("CONTENT_LENGTH") or "0"
    return int(given) if given.isascii() and given.isdigit() else 0
