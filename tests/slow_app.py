"""The smallest application that reads what it is sent, with a short patience: for test_slow_clients.

`?FILE` makes it touch FILE.begun and wait until FILE exists.
"""

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from advisor.ops import web_worker

web_worker.HEAD_S = 0.5


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    body = environ["wsgi.input"].read()
    if name := environ["QUERY_STRING"]:
        Path(f"{name}.begun").touch()
        while not Path(name).exists():
            time.sleep(0.02)
    start_response("200 OK", [("Content-Length", str(len(str(len(body)))))])
    return [str(len(body)).encode()]
