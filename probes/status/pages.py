"""The status page, and /metrics."""

from collections.abc import Callable
from ipaddress import ip_address
from secrets import compare_digest
from typing import Any

from django.conf import settings
from django.db import DatabaseError
from django.db.models import Count
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from prometheus_client import CONTENT_TYPE_LATEST

from advisor.models import Advice
from catalog import clock
from catalog.accounts import Right, needs, organisation_of
from probes.status import checks, metrics

DAY_S = 24 * 3600
SHOWN = 10
FORWARDED = ("HTTP_FORWARDED", "HTTP_X_FORWARDED_FOR", "HTTP_X_REAL_IP", "HTTP_VIA")  # a proxy on this machine adds one
REFUSED = (
    "/metrics is for this machine only. Set ASSAY_METRICS_TOKEN, and send it as `Authorization: Bearer TOKEN`: see "
    "docs/how-to/monitoring.md\n"
)


@never_cache
@require_safe
@needs(Right.MAINTAIN)
def status(request: HttpRequest) -> HttpResponse:
    """Whether the installation works: for those who maintain it, and for everybody in single-user mode."""
    findings = list(checks.examine())
    context: dict[str, Any] = {"findings": findings, "failing": [f.name for f in findings if not f.passed]}
    try:
        context |= work(request)
    except DatabaseError:  # the findings say what is wrong with it
        context["unknown"] = True
    return render(request, "probes/status.html", context)


def work(request: HttpRequest) -> dict[str, Any]:
    """Running, waiting and failed answers by organization, and the newest failures of the reader's own."""
    failed = Advice.objects.filter(state=Advice.State.FAILED, finished_at__gt=clock.ago(DAY_S))
    unfinished = Advice.objects.filter(state__in=(Advice.State.QUEUED, Advice.State.RUNNING))
    by_organization: dict[str, dict[str, int]] = {}
    for rows in (unfinished, failed):
        for slug, state, count in rows.order_by().values_list("organisation__slug", "state").annotate(n=Count("pk")):
            by_organization.setdefault(slug, {})[state] = count
    own = failed.filter(organisation=organisation_of(request)).select_related("workload").defer("snapshot", "result")
    return {"organizations": sorted(by_organization.items()), "failed": own.order_by("-finished_at")[:SHOWN]}


# --- /metrics ---------------------------------------------------------------------------------------------------


def answer_scrapes(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Middleware for /metrics: Prometheus calls by IP address, without TLS and session."""

    def respond(request: HttpRequest) -> HttpResponse:
        is_scrape = request.path_info == "/metrics" and request.method in ("GET", "HEAD")
        return scraped(request) if is_scrape else get_response(request)

    return respond


def scraped(request: HttpRequest) -> HttpResponse:
    if not may_scrape(request):
        return HttpResponse(REFUSED, status=403, content_type="text/plain; charset=utf-8")
    return HttpResponse(metrics.text(), content_type=CONTENT_TYPE_LATEST, headers={"Cache-Control": "no-store"})


def may_scrape(request: HttpRequest) -> bool:
    """With the token; without one configured, from this machine and not through a proxy."""
    if settings.METRICS_TOKEN:
        given = request.headers.get("Authorization", "")
        return compare_digest(given.encode(), f"Bearer {settings.METRICS_TOKEN}".encode())
    try:
        is_local = ip_address(request.META.get("REMOTE_ADDR", "")).is_loopback
    except ValueError:
        return False
    return is_local and not any(name in request.META for name in FORWARDED)
