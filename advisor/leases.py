"""Leases of workers on rows: who may write to one, for how long, and what happens when the worker is lost.

Rows are those of a model with the columns state, attempt, claim, lease_until, started_at, finished_at and error:
answers (advise.py) and pieces of studies (studies/). A worker owns a row while it is running with the worker's attempt
number and an unexpired lease. Every write repeats this condition, and its row count tells whether the worker still owns
the row. All times are the database's (catalog.clock), because the clocks of hosts differ.
"""

import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import copy_context
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, ClassVar, TypeVar

import structlog
from celery.exceptions import SoftTimeLimitExceeded
from django.conf import settings
from django.db import DatabaseError, InterfaceError, OperationalError, connection, transaction
from django.db.models import Q, QuerySet
from django.db.models.expressions import Combinable
from kombu.exceptions import ChannelError
from kombu.exceptions import OperationalError as BrokerError

from advisor import shutdown, storage
from advisor.celery import app
from advisor.models import Advice
from advisor.watch import tallies, tracing
from advisor.workload import WorkloadError
from catalog import clock

log = structlog.get_logger("assay.leases")
State = Advice.State
OPEN = (State.QUEUED, State.RUNNING)
UNAVAILABLE = (OperationalError, InterfaceError)
LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
RETRY_S = (0.1, 2.0)  # first and longest pause while the database is not available
Found = TypeVar("Found")


class Failed(Exception):
    """The calculation cannot end well; the message is the reason that people read."""


class LostLease(Exception):
    """This worker no longer owns the row (or it was canceled) and must not write to it."""


def lease_end() -> Combinable:
    return clock.after(settings.ADVICE_LEASE_S)


@dataclass(frozen=True, slots=True)
class Lease:
    """One attempt's right to write to a row of `model`."""

    model: ClassVar[Any]
    kind: ClassVar[str]  # in metrics and traces
    between: ClassVar[dict[str, Any]] = {}  # further columns, as they are while no worker owns the row
    requeued: ClassVar[dict[str, Any]] = {}  # further columns of a row that returns to the queue

    pk: Any
    attempt: int
    name: str = field(default_factory=partial(secrets.token_hex, 16))  # attempts that were returned are numbered again
    lock: threading.Lock = field(default_factory=threading.Lock)  # so that a returned claim writes nothing more
    lost: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)

    def wake(self) -> None:
        """Wakes another worker for the row."""

    @staticmethod
    def ended(pks: Sequence[Any]) -> None:
        """Called with rows that may have failed because their worker was lost, in the transaction that ends them."""

    @staticmethod
    def count_failed(rows: int) -> None:
        """Counts rows that ended as failed."""

    def row(self) -> QuerySet[Any]:
        """The row while this claim owns it: also if it was queued again and nobody else has claimed it."""
        rows: QuerySet[Any] = self.model.objects.filter(pk=self.pk, state__in=OPEN)
        return rows.filter(attempt=self.attempt, claim=self.name)

    def write(self, **values: Any) -> None:
        with self.lock:
            if self.lost.is_set() or not self.hold(**values):
                self.lost.set()
                raise LostLease

    def check(self) -> None:
        """Raises LostLease if this claim is known to own nothing any more."""
        if self.lost.is_set():
            raise LostLease

    def hold(self, **values: Any) -> bool:
        """Renews the lease. False: this claim owns nothing any more."""
        return bool(self.row().update(**{"state": State.RUNNING, "lease_until": lease_end(), **values}))

    def fail(self, reason: str) -> None:
        values = {"state": State.FAILED, "error": reason, "lease_until": None, **self.between}
        with suppress(LostLease):
            persistently(partial(self.write, **values, finished_at=clock.now()))
            self.count_failed(1)

    def return_to_queue(self, **requeued: Any) -> bool:
        """Returns the row to the queue without counting this attempt. False if the claim was lost.

        The attempt number will be used again, so this claim must not write any more.
        """
        with self.lock:
            self.lost.set()
            values = {"state": State.QUEUED, "attempt": self.attempt - 1, "lease_until": None, **self.between}
            return bool(self.row().update(**{**values, **self.requeued, **requeued}))

    @contextmanager
    def renewed(self) -> Iterator[None]:
        """Renews the lease in a thread, and returns the row to the queue when the worker stops."""
        with_ids = partial(copy_context().run, self.renew)  # a thread begins without context variables
        thread = threading.Thread(target=with_ids, name=f"lease {self.pk}", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self.over.set()
            thread.join()

    def renew(self) -> None:
        """Renews the lease until the calculation ends; also enforces the time limit, which solo pools lack."""
        every_s = settings.ADVICE_LEASE_S / 3
        deadline, renew_at = time.monotonic() + settings.CELERY_TASK_SOFT_TIME_LIMIT, time.monotonic() + every_s
        while not self.over.wait(min(every_s, shutdown.CHECK_EVERY_S)):
            try:
                if shutdown.is_over():
                    return self.leave()
                if time.monotonic() < renew_at:
                    continue
                if time.monotonic() > deadline:
                    self.fail(too_long())
                if not self.hold():
                    return self.lost.set()
                renew_at = time.monotonic() + every_s
            except (DatabaseError, InterfaceError) as error:  # tried again at once: the sweep may be just as fast
                log.warning("lease not renewed", error=str(error))
            finally:
                connection.close()

    def wait_for_disk_space(self) -> None:
        """Returns the row to the queue as soon as the full disk allows the write; gives up after a lease.

        A later `sent_at` delays the next attempt, which avoids a tight loop while the disk is full.
        """
        deadline, later = time.monotonic() + settings.ADVICE_LEASE_S, dict.fromkeys(self.requeued, clock.now())
        while time.monotonic() < deadline:
            with suppress(DatabaseError):
                self.return_to_queue(**later)
                return
            time.sleep(min(1.0, settings.ADVICE_LEASE_S / 10))

    def leave(self) -> None:
        """Returns the row to the queue at the end of the grace period, for another worker."""
        if self.return_to_queue():
            self.wake()
            log.info("returned to the queue because this worker stops", row=str(self.pk), attempt=self.attempt)


Held = TypeVar("Held", bound=Lease)


def claimed(free: QuerySet[Any], lease: Callable[[int], Held], **values: Any) -> Held | None:
    """Claims the queued row of `free` as the next attempt; None if there is none or another worker was faster.

    lease: makes the lease of an attempt. values: further columns of a row that starts.
    """
    attempt = free.values_list("attempt", flat=True).first()
    if attempt is None:
        return None
    claim = lease(attempt + 1)
    begun = {"state": State.RUNNING, "attempt": claim.attempt, "claim": claim.name}
    try:
        won = free.filter(attempt=attempt).update(**begun, lease_until=lease_end(), started_at=clock.now(), **values)
    except UNAVAILABLE:  # the connection may have ended before or after the row was written
        connection.close_if_unusable_or_obsolete()
        won = persistently(claim.row().count)
    return claim if won else None


def work(claim: Held, compute: Callable[[Held], None], **named: str) -> None:
    """Computes a claimed row. Every failure is stored as a state with a reason. `named`: for the log."""
    ids = {**named, "attempt": claim.attempt}
    with structlog.contextvars.bound_contextvars(**ids):
        log.info("started")
        tallies.add({(tallies.ATTEMPTS, claim.kind): 1})
        try:
            with claim.renewed(), tracing.span(claim.kind, **ids):
                compute(claim)
        except LostLease:
            log.info("lost the lease, stopped")
        except UNAVAILABLE as error:
            log.exception("database not available")
            if storage.is_full(error):
                claim.wait_for_disk_space()
            elif not connection.is_usable():
                persistently(claim.return_to_queue)
            # else it is an error of one statement, which may occur again: the lease expires, which costs an attempt
        except (WorkloadError, Failed) as error:
            claim.fail(str(error))
        except SoftTimeLimitExceeded:
            claim.fail(too_long())
        except Exception as error:  # the task boundary
            log.exception("calculation failed")
            claim.fail(f"The calculation failed with an internal error ({type(error).__name__}); see the log.")


def end(lease: type[Lease]) -> tuple[int, int]:
    """Requeues or fails the rows whose lease is over. Returns the numbers of both."""
    lost = lease.model.objects.filter(state=State.RUNNING, lease_until__lt=clock.now())
    last = Q(attempt__gte=settings.ADVICE_MAX_ATTEMPTS)
    reason = (
        f"The worker was lost {settings.ADVICE_MAX_ATTEMPTS} times during this calculation; it will not be tried again."
    )
    ended = {"state": State.FAILED, "error": reason, "lease_until": None, **lease.between}
    with transaction.atomic():
        over = list(lost.filter(last).values_list("pk", flat=True))
        failed = lost.filter(last, pk__in=over).update(**ended, finished_at=clock.now()) if over else 0
        lease.ended(over)
    queued = {"state": State.QUEUED, "lease_until": None, **lease.between, **lease.requeued}
    requeued = lost.exclude(last).update(**queued)
    tallies.add({(tallies.LEASE_EXPIRIES, lease.kind): requeued + failed})
    lease.count_failed(failed)
    return requeued, failed


def persistently(act: Callable[[], Found]) -> Found:
    """Calls `act` until the database is available, for ADVICE_OUTAGE_S at most. A full disk is not waited for."""
    deadline, (pause_s, longest_s) = time.monotonic() + settings.ADVICE_OUTAGE_S, RETRY_S
    while True:
        try:
            return act()
        except UNAVAILABLE as error:
            if storage.is_full(error) or shutdown.is_over() or time.monotonic() > deadline:
                raise
            log.warning("database not available, tried again", error=str(error))
            connection.close_if_unusable_or_obsolete()
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, longest_s)


def wake(pk: Any) -> bool:
    """Wakes a worker for an answer. False if the broker is not available; the sweep then sends the message later."""
    try:
        app.send_task("advice.run", args=[str(pk)])
    except (BrokerError, ChannelError, OSError) as error:
        log.warning("broker not available", advice=str(pk), error=str(error))
        return False
    return True


def too_long() -> str:
    return f"The calculation took longer than {settings.CELERY_TASK_SOFT_TIME_LIMIT:g} s and was stopped."
