"""Bodies sent in chunks get a length before Django sees them.

Django reads as many bytes as Content-Length says: none, where a client sends Transfer-Encoding: chunked instead.
"""

from collections.abc import Callable, Iterable
from tempfile import SpooledTemporaryFile
from typing import Any

from gunicorn.http.errors import ParseException

from advisor.ops.request_limits import REFUSED, most_bytes

IN_MEMORY_BYTES = 2**20
PART_BYTES = 64 * 1024
Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def with_length(application: Application) -> Application:
    """WSGI middleware: reads a chunked body, bounded as any other; 411 where the server cannot decode it."""

    def respond(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        coding = environ.get("HTTP_TRANSFER_ENCODING", "")
        if coding and not environ.get("CONTENT_LENGTH"):
            if coding.strip().lower() == "chunked" and environ.get("wsgi.input_terminated"):
                read_whole(environ)
            else:
                said = "Send the body with a Content-Length header, or with Transfer-Encoding: chunked alone."
                environ[REFUSED] = (411, said)
        return application(environ, start_response)

    return respond


def read_whole(environ: dict[str, Any]) -> None:
    """Puts the body, or its first byte too many, in place of the stream; refuse_long_bodies judges its length."""
    most, length = most_bytes(environ.get("PATH_INFO", "")), 0
    body: SpooledTemporaryFile[bytes] = SpooledTemporaryFile(IN_MEMORY_BYTES)
    try:
        while length <= most and (part := environ["wsgi.input"].read(min(PART_BYTES, most + 1 - length))):
            length += body.write(part)
    except ConnectionError:  # the client went away, or was too slow: nobody reads an answer
        raise
    except (OSError, ParseException):
        environ[REFUSED] = (400, "The chunks of the body are malformed.")
    body.seek(0)
    environ |= {"CONTENT_LENGTH": str(length), "wsgi.input": body}
