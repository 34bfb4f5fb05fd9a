"""Whether the whole installation works, one finding for each part: for `manage.py doctor` and the status page."""

from collections.abc import Iterator
from typing import NamedTuple

from django.conf import settings
from django.utils import timezone
from kombu.exceptions import ChannelError, OperationalError

from advisor.celery import app
from advisor.models import Advice
from advisor.ops import health
from catalog import clock
from catalog.models import CatalogLoad, default_organisation
from catalog.pricing import sync
from probes.machines import agents
from probes.models import Job, Result
from probes.received import results

PING_S = 2.0


class Finding(NamedTuple):
    passed: bool
    name: str
    detail: str


def examine() -> Iterator[Finding]:
    """All checks of /readyz, then workers, queue, catalog, prices, machines and results. Takes PING_S at least."""
    checks = health.checks()
    yield from (Finding(check.ok, check.name, check.detail) for check in checks)
    passed = {check.name: check.ok for check in checks}
    if passed["broker"]:
        yield workers()
    if passed["migrations"]:
        yield from (queue_state(), catalog_age(), price_age(), agent_state(), result_state())


def workers() -> Finding:
    try:
        answers = [name for answer in app.control.ping(timeout=PING_S) or [] for name in answer]
    except (OperationalError, ChannelError, OSError) as error:
        return Finding(False, "worker", f"not checked: {error}")
    no_answer = f"no answer in {PING_S:g} s (none is running, or a solo worker is busy); start one with manage.py up"
    return Finding(bool(answers), "worker", ", ".join(answers) or no_answer)


def queue_state() -> Finding:
    waiting = Advice.objects.filter(state=Advice.State.QUEUED).count()
    lost = Advice.objects.filter(state=Advice.State.RUNNING, lease_until__lt=clock.now()).count()
    return Finding(not lost, "advice", f"{waiting} queued, {lost} running without a live worker")


def catalog_age() -> Finding:
    load = CatalogLoad.objects.order_by("-loaded_at").first()
    if load is None:
        return Finding(False, "loaded", "nothing; run manage.py load_catalog")
    return Finding(
        True, "loaded", f"catalog version {load.version[:12]}, {(timezone.now() - load.loaded_at).days} days ago"
    )


def price_age() -> Finding:
    """Fails if no current public offer was read in the last 90 days."""
    ages = sync.offers_by_age(clock.today())
    if not ages:
        return Finding(False, "prices", "none; run manage.py load_catalog or import_prices")
    recent = sum(count for name, count in ages.items() if name in sync.RECENT)
    said = ", ".join(f"{count} {name}" for name, count in ages.items())
    advice = "" if settings.PRICE_SOURCES else "; no source is turned on, see docs/how-to/refresh-prices.md"
    return Finding(bool(recent), "prices", f"current public offers: {said}{advice}")


def agent_state() -> Finding:
    """Machines are optional: fails only for lost jobs, or if jobs wait while no machine is online."""
    states = [agents.status(agent) for agent in agents.visible(default_organisation())]
    counts = ", ".join(f"{states.count(name)} {name}" for name in ("online", "late", "offline", "revoked"))
    waiting = Job.objects.filter(state=Job.State.QUEUED).count()
    lost = Job.objects.filter(state=Job.State.LEASED, lease_expires_at__lt=clock.now()).count()
    passed = not lost and not (waiting and "online" not in states)
    return Finding(passed, "agents", f"{counts}; {waiting} jobs waiting, {lost} without a live machine")


def result_state() -> Finding:
    quarantined = Result.objects.filter(state=Result.State.QUARANTINED).count()
    waiting = results.usable().exclude(waiting=[]).count()
    claims = agents.pending_claims(default_organisation()).count()
    detail = f"{quarantined} in quarantine; review them on their pages" if quarantined else "none in quarantine"
    detail += f"; {waiting} {results.AWAITING}" if waiting else ""
    detail += f"; {claims} registrations wait for approval (manage.py agents)" if claims else ""
    return Finding(True, "results", detail)
