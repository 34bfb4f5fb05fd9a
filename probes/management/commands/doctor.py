import sys
from collections.abc import Iterator
from datetime import date, timedelta
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.db.models import Max
from django.utils import timezone
from kombu.exceptions import OperationalError

from advisor.celery import app
from advisor.models import Advice, Duty
from catalog.models import CatalogLoad, Price
from probes import agents, results
from probes.models import Job, Result

OLD_PRICES = timedelta(days=90)
Finding = tuple[bool, str, str]  # fine?, what, how it stands


class Command(BaseCommand):
    help = "Says how broker, worker, sweep, catalog and prices stand. Exit 1 when something needs a person."

    def handle(self, *args: Any, **options: Any) -> None:
        findings = list(examine())
        for fine, what, state in findings:
            self.stdout.write(f"{'ok  ' if fine else 'LOOK'}  {what:10} {state}")
        sys.exit(0 if all(fine for fine, _, _ in findings) else 1)


def examine() -> Iterator[Finding]:
    database = database_state()
    yield database
    yield from broker_and_worker()
    if database[0]:
        yield from (sweep_age(), queue_state(), catalog_age(), price_age(), agent_state(), result_state())


def database_state() -> Finding:
    try:
        executor = MigrationExecutor(connection)
        waiting = executor.migration_plan(executor.loader.graph.leaf_nodes())
    except DatabaseError as error:
        return False, "database", f"{connection.vendor}: {error}"
    missing = f"{len(waiting)} migrations to apply: manage.py migrate" if waiting else "migrated"
    return not waiting, "database", f"{connection.vendor}, {missing}"


def broker_and_worker() -> Iterator[Finding]:
    kind = "redis" if settings.REDIS_URL else f"files in {settings.BROKER_DIR}"
    try:
        answers = [name for answer in app.control.ping(timeout=2) or [] for name in answer]
    except (OperationalError, OSError) as error:
        yield False, "broker", f"{kind}: {error}"
        return
    yield True, "broker", kind
    silent = "none answered in 2 s (none runs, or a solo worker is computing); manage.py up starts one"
    yield bool(answers), "worker", ", ".join(answers) or silent


def sweep_age() -> Finding:
    duty = Duty.objects.filter(name="sweep").first()
    if duty is None:
        return False, "sweep", "never ran: beat does it, or manage.py sweep"
    age_s = (timezone.now() - duty.last_run_at).total_seconds()
    return age_s < 10 * settings.ADVICE_SWEEP_S, "sweep", f"ran {age_s:.0f} s ago"


def queue_state() -> Finding:
    waiting = Advice.objects.filter(state=Advice.State.QUEUED).count()
    lost = Advice.objects.filter(state=Advice.State.RUNNING, lease_until__lt=timezone.now()).count()
    return not lost, "advice", f"{waiting} queued, {lost} running without a live worker"


def catalog_age() -> Finding:
    load = CatalogLoad.objects.order_by("-loaded_at").first()
    if load is None:
        return False, "catalog", "empty: manage.py load_catalog"
    return True, "catalog", f"version {load.version[:12]}, loaded {(timezone.now() - load.loaded_at).days} days ago"


def price_age() -> Finding:
    newest: date | None = Price.objects.aggregate(newest=Max("as_of"))["newest"]
    if newest is None:
        return False, "prices", "none: manage.py load_catalog or import_prices"
    age = timezone.now().date() - newest
    return age <= OLD_PRICES, "prices", f"newest of {newest}, {age.days} days old"


def agent_state() -> Finding:
    """Machines that measure are optional; a job that waits while none is online is worth a look."""
    states = [agents.status(agent) for agent in agents.visible()]
    counts = ", ".join(f"{states.count(name)} {name}" for name in ("online", "late", "offline", "revoked"))
    waiting = Job.objects.filter(state=Job.State.QUEUED).count()
    lost = Job.objects.filter(state=Job.State.LEASED, lease_expires_at__lt=timezone.now()).count()
    fine = not lost and not (waiting and "online" not in states)
    return fine, "agents", f"{counts}; {waiting} jobs waiting, {lost} without a live machine"


def result_state() -> Finding:
    held = Result.objects.filter(state=Result.State.QUARANTINED).count()
    waiting = results.counted().exclude(waiting=[]).count()
    claims = agents.pending_claims().count()
    said = f"{held} in quarantine: a person decides on their pages" if held else "none in quarantine"
    said += f"; {waiting} {results.WAITS}" if waiting else ""
    return True, "results", said + (f"; {claims} registrations wait for approval (manage.py agents)" if claims else "")
