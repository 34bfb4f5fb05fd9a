"""Follows each HTTP request: gives it an id, and counts it by route, method and status.

The counts of all web processes are added up with prometheus-client's multiprocess mode (counts_folder.py).
"""

import os
import re
import secrets
import time
from collections.abc import Callable, Iterable
from typing import Any

import structlog
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, multiprocess

from advisor.watch.counts_folder import FOLDER
from advisor.watch.logs import HEADER, REQUEST_ID

log = structlog.get_logger("assay.http")
IN_WSGI = "HTTP_X_REQUEST_ID"
SANE = re.compile(r"[A-Za-z0-9._:-]{1,64}")
METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 1, 2.5, 5, 10)
disable_created_metrics()
REGISTRY = CollectorRegistry()
REQUESTS = Counter(
    "assay_http_requests_total",
    "HTTP requests by route, method and status.",
    ["route", "method", "status"],
    registry=REGISTRY,
)
SECONDS = Histogram(
    "assay_http_request_seconds",
    "Seconds from the request to its response, by route.",
    ["route", "method"],
    registry=REGISTRY,
    buckets=BUCKETS_S,
)

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
Respond = Callable[[HttpRequest], HttpResponse]


def follow(get_response: Respond) -> Respond:
    """Middleware, the first one: every log line and response of the request has its id, and it is counted."""

    def respond(request: HttpRequest) -> HttpResponse:
        request_id, begun_s = sane(request.headers.get(HEADER, "")), time.perf_counter()
        with structlog.contextvars.bound_contextvars(**{REQUEST_ID: request_id}):
            response = get_response(request)
            seconds = time.perf_counter() - begun_s
            method, route = request.method if request.method in METHODS else "other", route_of(request)
            log.info(
                "request", route=route, method=method, status=response.status_code, duration_ms=round(1000 * seconds, 3)
            )
        response.headers[HEADER] = request_id
        REQUESTS.labels(route, method, response.status_code).inc()
        SECONDS.labels(route, method).observe(seconds)
        return response

    return respond


def sane(given: str) -> str:
    """The caller's own id if it may stand in log lines, else a new one."""
    return given if SANE.fullmatch(given) else secrets.token_hex(16)


def with_request_id(application: Application) -> Application:
    """WSGI middleware: the id is also in lines that Django writes after its own middleware, such as that of a 503."""

    def respond(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        request_id = environ[IN_WSGI] = sane(environ.get(IN_WSGI, ""))
        with structlog.contextvars.bound_contextvars(**{REQUEST_ID: request_id}):
            return application(environ, start_response)

    return respond


def route_of(request: HttpRequest) -> str:
    """The name of the URL pattern, of which there are few; never a path, of which there are too many."""
    match = request.resolver_match
    if match is not None:
        return match.view_name or "unnamed"
    if request.path_info.startswith(f"/{settings.STATIC_URL.strip('/')}/"):
        return "static"
    path = request.path_info.strip("/")
    return path if path in ("healthz", "readyz", "metrics") else "none"


def registry() -> CollectorRegistry:
    """The metrics of all web processes of this host, or of this process if it runs alone."""
    if FOLDER not in os.environ:
        return REGISTRY
    shared = CollectorRegistry()
    multiprocess.MultiProcessCollector(shared)
    return shared
