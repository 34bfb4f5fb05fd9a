import sys
from collections.abc import Iterator
from datetime import date, timedelta
from typing import Any

from django.core.management.base import BaseCommand
from django.db.models import Max
from django.utils import timezone
from kombu.exceptions import ChannelError, OperationalError

from advisor.celery import app
from advisor.models import Advice
from advisor.ops import health
from catalog.models import CatalogLoad, Price
from probes import agents, results
from probes.models import Job, Result

OLD_PRICES = timedelta(days=90)
Finding = tuple[bool, str, str]  # fine?, what, how it stands


class Command(BaseCommand):
    help = "The checks of /readyz, and the state of workers, queue, prices and machines. Exit 1 when one fails."

    def handle(self, *args: Any, **options: Any) -> None:
        findings = list(examine())
        for fine, what, state in findings:
            self.stdout.write(f"{'ok  ' if fine else 'LOOK'}  {what:10} {state}")
        sys.exit(0 if all(fine for fine, _, _ in findings) else 1)


def examine() -> Iterator[Finding]:
    found = health.checks()
    yield from ((check.ok, check.name, check.detail) for check in found)
    state = {check.name: check.ok for check in found}
    if state["broker"]:
        yield workers()
    if state["migrations"]:
        yield from (queue_state(), catalog_age(), price_age(), agent_state(), result_state())


def workers() -> Finding:
    try:
        answers = [name for answer in app.control.ping(timeout=2) or [] for name in answer]
    except (OperationalError, ChannelError, OSError) as error:
        return False, "worker", f"not asked: {error}"
    silent = "none answered in 2 s (none runs, or a solo worker is computing); manage.py up starts one"
    return bool(answers), "worker", ", ".join(answers) or silent


def queue_state() -> Finding:
    waiting = Advice.objects.filter(state=Advice.State.QUEUED).count()
    lost = Advice.objects.filter(state=Advice.State.RUNNING, lease_until__lt=timezone.now()).count()
    return not lost, "advice", f"{waiting} queued, {lost} running without a live worker"


def catalog_age() -> Finding:
    load = CatalogLoad.objects.order_by("-loaded_at").first()
    if load is None:
        return False, "loaded", "nothing: manage.py load_catalog"
    return True, "loaded", f"catalog version {load.version[:12]}, {(timezone.now() - load.loaded_at).days} days ago"


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
