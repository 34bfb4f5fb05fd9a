"""Adds a Content-Length to chunked request bodies.

Django reads only Content-Length bytes, that is none if the client sends Transfer-Encoding: chunked.
"""

from collections.abc import Callable, Iterable
from tempfile import SpooledTemporaryFile
from typing import Any

from gunicorn.http.errors import ParseException

from advisor.ops.request_limits import MAX_BODY_BYTES, REFUSED

IN_MEMORY_BYTES = 2**20
PART_BYTES = 64 * 1024
Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def with_length(application: Application) -> Application:
    """WSGI middleware: reads chunked bodies up to the usual limit; 411 if the server cannot decode them."""

    def respond(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        coding = environ.get("HTTP_TRANSFER_ENCODING", "")
        if coding and not environ.get("CONTENT_LENGTH"):
            if coding.strip().lower() == "chunked" and environ.get("wsgi.input_terminated"):
                read_whole(environ)
            else:
                detail = "Send the body with a Content-Length header, or with only Transfer-Encoding: chunked."
                environ[REFUSED] = (411, detail)
        return application(environ, start_response)

    return respond


def read_whole(environ: dict[str, Any]) -> None:
    """Replaces the stream by the body, up to one byte over the limit; refuse_long_bodies checks the length."""
    limit, length = MAX_BODY_BYTES, 0
    body: SpooledTemporaryFile[bytes] = SpooledTemporaryFile(IN_MEMORY_BYTES)
    try:
        while length <= limit and (part := environ["wsgi.input"].read(min(PART_BYTES, limit + 1 - length))):
            length += body.write(part)
    except ConnectionError:  # the client is gone or too slow, so nobody reads a response
        raise
    except (OSError, ParseException):
        environ[REFUSED] = (400, "The chunks of the body are malformed.")
    body.seek(0)
    environ |= {"CONTENT_LENGTH": str(length), "wsgi.input": body}
