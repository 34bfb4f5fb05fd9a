"""Liveness (/healthz) and readiness (/readyz). `manage.py doctor` prints the same checks."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import redis
from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.db import DatabaseError, InterfaceError, connection
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder
from django.http import HttpRequest, HttpResponse, JsonResponse

from advisor import storage
from advisor.models import Duty
from catalog import clock
from catalog.loading import load
from catalog.models import CatalogLoad

BROKER_TIMEOUT_S = 1.0
MAX_MISSED_SWEEPS = 10  # then the sweep is not running


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check; `required` ones decide whether the installation is ready."""

    name: str
    ok: bool
    detail: str
    required: bool = True


def checks() -> list[Check]:
    """All checks, also after a failure. Details are public, so they contain no addresses, paths or accounts."""
    independent = [database(), broker(), disk()]
    if not independent[0].ok:
        unknown = "not checked: the database does not answer"
        dependent = [Check("migrations", False, unknown), Check("catalog", False, unknown)]
        return [*independent, *dependent, Check("sweep", False, unknown, required=False)]
    return [*independent, migrations(), catalog(), sweep()]


def database() -> Check:
    try:
        with connection.cursor() as cursor:
            cursor.execute("select 1")
    except (DatabaseError, InterfaceError) as error:
        connection.close()
        return Check("database", False, f"{connection.vendor} does not answer ({type(error).__name__})")
    return Check("database", True, f"{connection.vendor} answers")


def migrations() -> Check:
    """Read from the database each time, because another process may migrate or restore a backup."""
    applied = set(MigrationRecorder(connection).applied_migrations())
    missing = sorted(f"{app}.{name}" for app, name in shipped_migrations() - applied)
    if not missing:
        return Check("migrations", True, "all applied")
    return Check("migrations", False, f"{len(missing)} to apply, first {missing[0]}: run manage.py migrate")


@cache
def shipped_migrations() -> frozenset[tuple[str, str]]:
    return frozenset(MigrationLoader(None).graph.nodes)


def catalog() -> Check:
    """Fails also if it is older than the files of this code, which may need what only the newer ones state."""
    try:
        loaded, reason = CatalogLoad.objects.exists(), load.why_older()
    except DatabaseError:  # the table does not exist before the migrations
        return Check("catalog", False, "not readable: run manage.py migrate")
    if reason:
        return Check("catalog", False, f"older than the code: {reason}; run manage.py load_catalog")
    return Check("catalog", loaded, "loaded" if loaded else "empty: run manage.py load_catalog")


def broker() -> Check:
    if not settings.REDIS_URL:
        folder = settings.BROKER_DIR / "messages"
        writable = os.access(folder, os.W_OK | os.X_OK)
        return Check("broker", writable, "files, writable" if writable else "files, folder not writable")
    limits = {"socket_timeout": BROKER_TIMEOUT_S, "socket_connect_timeout": BROKER_TIMEOUT_S}
    try:
        with redis.Redis.from_url(settings.REDIS_URL, retry=None, **limits) as client:
            client.ping()
    except (redis.RedisError, OSError) as error:
        return Check("broker", False, f"Redis does not answer ({type(error).__name__})")
    return Check("broker", True, "Redis answers")


def disk() -> Check:
    free_mb, needed_mb = storage.free_mb(), settings.MIN_FREE_MB
    detail = f"{free_mb:,} MB free, at least {needed_mb:,} MB needed (ASSAY_MIN_FREE_MB)"
    return Check("disk", free_mb >= needed_mb, detail)


def sweep() -> Check:
    """Not required: without it, workloads are still answered; only lost messages and workers are not recovered."""
    try:
        duty = Duty.objects.filter(name="swept").first()
    except DatabaseError:
        return Check("sweep", False, "not readable: run manage.py migrate", required=False)
    if duty is None:
        return Check("sweep", False, "never ended: start beat, or run manage.py sweep", required=False)
    age_s = (clock.read() - duty.last_run_at).total_seconds()
    return Check(
        "sweep", age_s < MAX_MISSED_SWEEPS * settings.ADVICE_SWEEP_S, f"ended {age_s:.0f} s ago", required=False
    )


# --- over HTTP --------------------------------------------------------------------------------------------------


@login_not_required
def healthz(request: HttpRequest) -> JsonResponse:
    return JsonResponse({"status": "ok"})


@login_not_required
def readyz(request: HttpRequest) -> JsonResponse:
    """200 if all required checks pass, else 503, with one entry for each check."""
    results = checks()
    failed = [check for check in results if check.required and not check.ok]
    body = {
        "status": "unavailable" if failed else "ready",
        "checks": {
            check.name: {"ok": check.ok, "required": check.required, "detail": check.detail} for check in results
        },
    }
    if failed:
        body["reason"] = "; ".join(f"{check.name}: {check.detail}" for check in failed)
    headers = {"Cache-Control": "private, no-store", **({"Retry-After": "5"} if failed else {})}
    return JsonResponse(body, status=503 if failed else 200, headers=headers)


PROBES: dict[str, Callable[[HttpRequest], HttpResponse]] = {"/healthz": healthz, "/readyz": readyz}


def answer_probes(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Middleware. It must be first, because a kubelet calls by IP address, without TLS and session."""

    def respond(request: HttpRequest) -> HttpResponse:
        probe = PROBES.get(request.path_info) if request.method in ("GET", "HEAD") else None
        return probe(request) if probe else get_response(request)

    return respond
