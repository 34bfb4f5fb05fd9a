"""The use-cases of advice: ask, compute, cancel, ask again, sweep. The only writer of Advice and Option, but for
deletion.py.

The row is the truth. A worker owns an advice while it is running, its attempt is the worker's and its lease is
not over; every write repeats that condition, and its row count says whether the worker still owns it. A Celery
message only wakes somebody: lost ones are sent again by the sweep, repeated ones find nothing to claim.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any
from uuid import UUID

import structlog
from celery.exceptions import SoftTimeLimitExceeded
from django.conf import settings
from django.db import DatabaseError, IntegrityError, OperationalError, connection, transaction
from django.db.models import Q, QuerySet
from django.utils import timezone
from kombu.exceptions import ChannelError
from kombu.exceptions import OperationalError as BrokerError

from advisor import answer, inputs, shutdown, storage
from advisor.celery import app
from advisor.deletion import delete_expired
from advisor.models import Advice, Duty, Option, Workload
from advisor.stored import RESULT_VERSION
from advisor.workload import WorkloadError
from catalog.models import DEFAULT_ORGANISATION, Organisation

log = structlog.get_logger("assay.advise")
State = Advice.State
FINISHED = (State.DONE, State.FAILED, State.CANCELLED)
SWEEP_BATCH = 500
DIGITS = 16  # of the money columns of Option
LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


class KeyReused(ValueError):
    """An idempotency key came again with another question."""


class LostLease(Exception):
    """Somebody else owns this advice now (or nobody: it was cancelled): stop and write nothing."""


def default_organisation() -> Organisation:
    """The one that `manage.py migrate` creates; reading it writes nothing."""
    try:
        return Organisation.objects.get(slug=DEFAULT_ORGANISATION)
    except Organisation.DoesNotExist as error:
        raise Organisation.DoesNotExist("there is no default organization: run manage.py migrate") from error


def visible(organisation: Organisation | None = None) -> QuerySet[Advice]:
    """The advices of an organization (default: the default one); snapshots are read only where they are used."""
    rows = Advice.objects.filter(organisation=organisation or default_organisation())
    return rows.select_related("workload").defer("snapshot")


def request(
    spec: dict[str, Any],
    organisation: Organisation | None = None,
    idempotency_key: str = "",
    supersedes: Advice | None = None,
) -> Advice:
    """Queue the question `spec` (from workload.parse). The same key and question give the same advice again."""
    inputs.check_catalog(spec)
    organisation = organisation or default_organisation()
    try:
        return asked_before(spec, organisation, idempotency_key) or _queue_new(
            spec, organisation, idempotency_key, supersedes
        )
    except IntegrityError:  # the same key at the same moment: the other one was first
        earlier = asked_before(spec, organisation, idempotency_key)
        if earlier is None:
            raise
        return earlier


def asked_before(spec: dict[str, Any], organisation: Organisation, idempotency_key: str) -> Advice | None:
    """The advice of an earlier request with this key; KeyReused when that asked something else."""
    if not idempotency_key:
        return None
    earlier = Advice.objects.filter(organisation=organisation, idempotency_key=idempotency_key)
    advice = earlier.select_related("workload").first()
    if advice and advice.workload.spec != spec:
        raise KeyReused("this idempotency key was used for another workload")
    return advice


def _queue_new(spec: dict[str, Any], organisation: Organisation, key: str, supersedes: Advice | None) -> Advice:
    with transaction.atomic():
        workload = Workload.objects.create(organisation=organisation, name=spec["name"], spec=spec)
        return queue(workload, key, supersedes)


def queue(workload: Workload, idempotency_key: str = "", supersedes: Advice | None = None) -> Advice:
    """A queued advice of this workload; a worker is woken when the row is committed.

    A question that asks for probes is held first: those who run probes know of it and release it, or its time ends.
    A successor is not held again: it is asked because something was measured.
    """
    wants_probes = supersedes is None and workload.spec.get("probe", "no") != "no"
    held_until = timezone.now() + timedelta(seconds=settings.ADVICE_PROBE_WAIT_S) if wants_probes else None
    with transaction.atomic():
        if supersedes is not None:
            hold(supersedes.pk)
        advice = Advice.objects.create(
            organisation=workload.organisation,
            workload=workload,
            idempotency_key=idempotency_key,
            supersedes=supersedes,
            held_until=held_until,
        )
        if held_until is None:
            transaction.on_commit(partial(wake, advice.pk))
    return advice


def hold(pk: Any) -> None:
    """Keeps an advice from being deleted until this transaction ends; Advice.DoesNotExist: it is gone already."""
    Advice.objects.select_for_update().only("pk").get(pk=pk)


def ready(now: datetime) -> QuerySet[Advice]:
    """The queued advices that nobody has to wait for."""
    return Advice.objects.filter(Q(held_until=None) | Q(held_until__lte=now), state=State.QUEUED)


def held(now: datetime) -> QuerySet[Advice]:
    """Those for which machines may still measure."""
    return Advice.objects.filter(state=State.QUEUED, held_until__gt=now)


def release(pk: UUID, probed: dict[str, Any]) -> bool:
    """Machines have measured, or cannot: compute it now, and let the answer say what they did."""
    done = bool(held(timezone.now()).filter(pk=pk).update(held_until=None, probed=probed))
    if done:
        wake(pk)
    return done


def rescore(advice: Advice) -> Advice:
    """The same question against today's catalog: a successor. An advice that is still open is its own answer."""
    return queue(advice.workload, supersedes=advice) if advice.state in FINISHED else advice


def again_at_its_prices(advice: Advice) -> Advice:
    """The same question with today's engine and the prices that were known when it was answered."""
    day = (advice.snapshot or {}).get("asked_on") or timezone.localdate(advice.created_at).isoformat()
    return request({**advice.workload.spec, "prices_as_of": day}, advice.organisation, supersedes=advice)


def cancel(advice: Advice) -> bool:
    """True when it was still open; a worker that runs it notices at its next write and stops."""
    still_open = Advice.objects.filter(pk=advice.pk, state__in=[State.QUEUED, State.RUNNING])
    done = still_open.update(state=State.CANCELLED, finished_at=timezone.now(), lease_until=None, stage="")
    advice.refresh_from_db()
    return bool(done)


def wake(pk: UUID | str) -> bool:
    """Send the message; False when the broker is away (the row stays queued, the sweep sends it later)."""
    try:
        app.send_task("advice.run", args=[str(pk)])
    except (BrokerError, ChannelError, OSError) as error:
        log.warning("broker away", advice=str(pk), error=str(error))
        return False
    return True


def run(pk: UUID | str) -> None:
    """Compute one advice if it is free to claim; every end of it is a state with a reason."""
    if not may_start(pk):
        return
    claim = claimed(pk)
    if claim is None:
        return
    with structlog.contextvars.bound_contextvars(advice=str(pk), attempt=claim.attempt):
        try:
            with claim.kept():
                compute(claim)
        except LostLease:
            log.info("lost the lease, stopped")
        except OperationalError as error:  # the database is away: the lease runs out and the sweep queues it again
            log.exception("database away")
            if storage.is_full(error):
                claim.wait_for_room()
        except WorkloadError as error:
            claim.fail(str(error))
        except SoftTimeLimitExceeded:
            claim.fail(too_long())
        except Exception as error:  # the task boundary
            log.exception("calculation failed")
            claim.fail(
                f"The calculation stopped on an internal error ({type(error).__name__}); the log has the details."
            )


def may_start(pk: UUID | str) -> bool:
    """Not on a disk where the answer may not fit, nor in a worker that is stopping: the advice stays queued."""
    if not storage.has_room():
        log.warning("disk almost full, not started", advice=str(pk), free_mb=storage.free_mb())
        return False
    if shutdown.begun():
        wake(pk)  # another worker
        return False
    return True


def compute(claim: "Claim") -> None:
    """Snapshot, search, write. A second attempt uses the first one's snapshot, so it answers the same question."""
    advice = Advice.objects.select_related("workload", "organisation").filter(pk=claim.pk).first()
    if advice is None:  # deleted since it was claimed
        raise LostLease
    snapshot = advice.snapshot
    if snapshot is None or inputs.is_outdated(snapshot):
        claim.report("reading the catalog", 0.0)
        snapshot = inputs.take_snapshot(advice.workload.spec, advice.organisation)
        claim.write(snapshot=snapshot)
    begun_s = time.monotonic()
    result = answer.recommend(advice.workload.spec, snapshot, claim.report)
    if advice.held_until or advice.probed:
        result |= answer.with_probes(result, advice.probed or nobody_measured())
    claim.finish(snapshot, {**result, "elapsed_s": round(time.monotonic() - begun_s, 3)})


def nobody_measured() -> dict[str, Any]:
    limit_s = settings.ADVICE_PROBE_WAIT_S
    return {
        "measured": [],
        "said": f"no machine measured within {limit_s:g} s: each option says what its figures rest on",
    }


def lease_end() -> datetime:
    return timezone.now() + timedelta(seconds=settings.ADVICE_LEASE_S)


def claimed(pk: UUID | str) -> "Claim | None":
    """queued -> running with the next attempt; None when it is not queued or another worker was faster."""
    free = ready(timezone.now()).filter(pk=pk)
    attempt = free.values_list("attempt", flat=True).first()
    if attempt is None:
        return None
    won = free.filter(attempt=attempt).update(
        state=State.RUNNING,
        attempt=attempt + 1,
        lease_until=lease_end(),
        started_at=timezone.now(),
        stage="starting",
        progress_fraction=0,
    )
    return Claim(pk, attempt + 1) if won else None


@dataclass(frozen=True, slots=True)
class Claim:
    """One attempt's right to write an advice."""

    pk: UUID | str
    attempt: int
    lock: threading.Lock = field(default_factory=threading.Lock)  # a claim that was handed back writes nothing more
    lost: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)

    def row(self) -> QuerySet[Advice]:
        return Advice.objects.filter(pk=self.pk, state=State.RUNNING, attempt=self.attempt)

    def write(self, **values: Any) -> None:
        with self.lock:
            if self.lost.is_set() or not self.row().update(**{"lease_until": lease_end(), **values}):
                self.lost.set()
                raise LostLease

    def report(self, stage: str, fraction: float) -> None:
        self.write(stage=stage[:60], progress_fraction=fraction)

    def finish(self, snapshot: dict[str, Any], result: dict[str, Any]) -> None:
        with transaction.atomic():
            self.write(
                state=State.DONE,
                result=result,
                result_version=RESULT_VERSION,
                lease_until=None,
                finished_at=timezone.now(),
                stage="",
                progress_fraction=1,
                engine_version=snapshot["engine_version"],
                catalog_version=snapshot["catalog_version"],
                prices_as_of=snapshot["prices_as_of"],
                calibration_ids=result.get("calibration_ids", []),
            )
            Option.objects.bulk_create(option(self.pk, r) for r in result["recommendations"])

    def fail(self, reason: str) -> None:
        with suppress(LostLease):
            self.write(state=State.FAILED, error=reason, lease_until=None, finished_at=timezone.now(), stage="")

    def hand_back(self, sent_at: datetime = LONG_AGO) -> bool:
        """running -> queued, with its lease and its attempt: the next worker starts as if this one never had.

        That attempt number comes again, so from here on this claim writes nothing.
        """
        with self.lock:
            self.lost.set()
            values = {"state": State.QUEUED, "attempt": self.attempt - 1, "lease_until": None, "stage": ""}
            return bool(self.row().update(**values, sent_at=sent_at))

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Renews the lease from a thread, however long one stage computes; hands it back when the worker stops."""
        thread = threading.Thread(target=self.renew, name=f"lease {self.pk}", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self.over.set()
            thread.join()

    def renew(self) -> None:
        """Each third of a lease, until the calculation is over, lost or too long (a solo worker has no time limit)."""
        every_s = settings.ADVICE_LEASE_S / 3
        deadline, renew_at = time.monotonic() + settings.CELERY_TASK_SOFT_TIME_LIMIT, time.monotonic() + every_s
        while not self.over.wait(min(every_s, shutdown.CHECK_EVERY_S)):
            try:
                if shutdown.is_over():
                    return self.leave()
                if time.monotonic() < renew_at:
                    continue
                renew_at = time.monotonic() + every_s
                if time.monotonic() > deadline:
                    self.fail(too_long())
                if not self.row().update(lease_until=lease_end()):
                    return self.lost.set()
            except DatabaseError as error:  # try again at the next turn; the lease has room for two misses
                log.warning("lease not renewed", error=str(error))
            finally:
                connection.close()

    def wait_for_room(self) -> None:
        """The disk is full, the fault of no worker: hand it back as soon as that can be written, at most a lease long.

        The sweep sends it again later, so that a disk that stays full is not tried in a circle.
        """
        deadline = time.monotonic() + settings.ADVICE_LEASE_S
        while time.monotonic() < deadline:
            with suppress(DatabaseError):
                self.hand_back(sent_at=timezone.now())
                return
            time.sleep(min(1.0, settings.ADVICE_LEASE_S / 10))

    def leave(self) -> None:
        """The worker's grace period is over: another one computes this."""
        if self.hand_back():
            wake(self.pk)
            log.info("returned to the queue, this worker stops", advice=str(self.pk), attempt=self.attempt)


def too_long() -> str:
    return f"The calculation took longer than {settings.CELERY_TASK_SOFT_TIME_LIMIT:g} s and was stopped."


def option(pk: UUID | str, r: dict[str, Any]) -> Option:
    return Option(
        advice_id=pk,
        rank=r["rank"],
        accelerator_slug=r["accelerator"],
        accelerators=r["accelerator_count"],
        label=r.get("label", ""),
        usd_per_month=decimal(r["usd_per_month"], 2),
        usd_per_mtok_output=decimal(r["usd_per_mtok_output"], 6),
    )


def decimal(value: float | None, places: int) -> Decimal | None:
    """A figure for its column, none where the column does not hold it: next to no load makes a token that dear."""
    if value is None or abs(value) > 10 ** (DIGITS - places) - 1:
        return None
    return round(Decimal(repr(value)), places)


def sweep() -> dict[str, int]:
    """Queue again (or give up) what lost its worker; wake somebody for what waits too long. Counts of each."""
    now = timezone.now()
    lost = Advice.objects.filter(state=State.RUNNING, lease_until__lt=now)
    last = Q(attempt__gte=settings.ADVICE_MAX_ATTEMPTS)
    reason = f"The worker was lost {settings.ADVICE_MAX_ATTEMPTS} times while it computed this; it is not tried again."
    failed = lost.filter(last).update(state=State.FAILED, error=reason, lease_until=None, finished_at=now, stage="")
    requeued = lost.exclude(last).update(state=State.QUEUED, lease_until=None, sent_at=LONG_AGO, stage="")
    counts = {"requeued": requeued, "failed": failed, "sent": send_waiting(now)}
    Duty.objects.update_or_create(name="sweep", defaults={"last_run_at": now})
    counts["deleted"] = delete_expired()
    if any(counts.values()):
        log.info("swept", **counts)
    return counts


def send_waiting(now: datetime) -> int:
    """Wake a worker for every advice whose last message is too old to be still on its way."""
    late = now - timedelta(seconds=settings.ADVICE_RESEND_S)
    waiting = ready(now).filter(sent_at__lt=late).order_by("sent_at")
    sent = []
    for pk in waiting.values_list("pk", flat=True)[:SWEEP_BATCH]:
        if not wake(pk):  # the broker is away: the rest would wait for its time-out too
            break
        sent.append(pk)
    return Advice.objects.filter(pk__in=sent, state=State.QUEUED).update(sent_at=now)
