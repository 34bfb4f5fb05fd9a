"""OpenTelemetry traces of requests, tasks and calculations, if OTEL_EXPORTER_OTLP_ENDPOINT is set.

The packages are the extra `otel`. All settings are OpenTelemetry's own environment variables.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any

from django.core.exceptions import ImproperlyConfigured

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
NAMES = (
    "opentelemetry.trace",
    "opentelemetry.sdk.resources",
    "opentelemetry.sdk.trace",
    "opentelemetry.sdk.trace.export",
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
    "opentelemetry.instrumentation.django",
    "opentelemetry.instrumentation.celery",
)


def is_wanted() -> bool:
    return any(map(os.environ.get, ENDPOINTS))


@cache
def start() -> None:
    """Instruments Django and Celery, once per process. ImproperlyConfigured: the packages are not installed."""
    if not is_wanted():
        return
    try:
        trace, resources, sdk, export, otlp, django, celery = map(import_module, NAMES)
    except ImportError as error:
        raise ImproperlyConfigured(
            f"{ENDPOINTS[0]} is set, but {error.name} is not installed: pip install 'assay[otel]', or unset it"
        ) from error
    service = os.environ.get("OTEL_SERVICE_NAME", "assay")
    provider = sdk.TracerProvider(resource=resources.Resource.create({"service.name": service}))
    provider.add_span_processor(export.BatchSpanProcessor(otlp.OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    django.DjangoInstrumentor().instrument()
    celery.CeleryInstrumentor().instrument()


@contextmanager
def span(name: str, **attributes: Any) -> Iterator[None]:
    """A span around a calculation; without OpenTelemetry it does nothing."""
    if not is_wanted():
        yield
        return
    with import_module("opentelemetry.trace").get_tracer("assay").start_as_current_span(name, attributes=attributes):
        yield
