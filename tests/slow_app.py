"""The smallest application that reads what it is sent, with a short patience: for test_slow_clients."""

from collections.abc import Callable, Iterable
from typing import Any

from advisor import web_worker

web_worker.HEAD_S = 0.5


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    body = environ["wsgi.input"].read()
    start_response("200 OK", [("Content-Length", str(len(str(len(body)))))])
    return [str(len(body)).encode()]
