"""Drills on the database of DATABASE_URL, in a process of their own: `python -m tests.ops.drills NAME...` reports.

The engine answers at once, and messages are kept in a list instead of a broker.
"""

import json
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest import mock

import django

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "advisor.settings")
    django.setup()

import psycopg
from django.db import connection
from django.db.models import DateTimeField, Value
from django.test import override_settings
from django.utils import timezone

from advisor import advise, answer, inputs
from advisor.models import Advice, Duty, Workload
from catalog import clock
from catalog.models import Organisation
from tests import answers

State = Advice.State
Report = dict[str, Any]


def organisation(slug: str) -> Organisation:
    return Organisation.objects.get_or_create(slug=slug, defaults={"name": slug})[0]


def queue(slug: str, person: str = "", count: int = 1) -> list[Advice]:
    owner = organisation(slug)
    rows = [Workload.objects.create(organisation=owner, name=slug, spec=answers.spec()) for _ in range(count)]
    return [advise.queue(row, made_by=person) for row in rows]


@contextmanager
def quick(compute: Callable[..., Any] = answers.recommend) -> Iterator[list[str]]:
    """An engine that answers at once, and the messages that were sent and not yet received."""
    sent: list[str] = []
    with (
        mock.patch.object(advise.app, "send_task", lambda name, args, **options: sent.append(args[0])),
        mock.patch.object(inputs, "take_snapshot", answers.snapshot),
        mock.patch.object(answer, "verdict_first", answers.in_one_step(compute)),
    ):
        yield sent


@contextmanager
def wrong_by(seconds: float) -> Iterator[None]:
    """The clock of this host is wrong; that of the database is not."""
    real_now, real_time = timezone.now, time.time
    with (
        mock.patch.object(timezone, "now", lambda: real_now() + timedelta(seconds=seconds)),
        mock.patch("time.time", lambda: real_time() + seconds),
    ):
        yield


# --- clocks -----------------------------------------------------------------------------------------------------


def skewed() -> Report:
    """Workers whose clocks are a minute ahead and behind, beside a sweep whose clock is right, and the reverse."""
    found = {}
    with quick():
        for worker_s in (-60.0, 0.0, 60.0):
            for sweeper_s in (-60.0, 0.0, 60.0):
                Duty.objects.all().delete()
                with wrong_by(worker_s):
                    (row,) = queue("skewed")
                    claim = advise.next_claim()
                with wrong_by(sweeper_s):
                    counts = [advise.sweep() for _ in range(3)]
                    thief = advise.next_claim()
                with wrong_by(worker_s):
                    assert claim
                    advise.work(claim)
                row.refresh_from_db()
                lease_s = sum(c["requeued"] + c["failed"] for c in counts)
                found[f"{worker_s:g} {sweeper_s:g}"] = [row.state, row.attempt, lease_s, thief is None]
    return found


class Clock:
    """A database clock that a schedule moves."""

    def __init__(self) -> None:
        self.at = datetime(2026, 11, 26, tzinfo=UTC)

    def read(self) -> datetime:
        self.at += timedelta(milliseconds=1)
        return self.at


@contextmanager
def scheduled() -> Iterator[Clock]:
    found = Clock()
    with (
        mock.patch.object(clock, "now", lambda: Value(found.read(), output_field=DateTimeField())),
        mock.patch.object(clock, "read", found.read),
    ):
        yield found


def schedule(seed: int) -> list[str]:
    """Runs a random schedule of three workers with wrong clocks; returns what went wrong.

    A worker that lives renews its lease within the lease and loses nothing. One that dies costs its advice one attempt.
    """
    rng, wrong = random.Random(seed), []
    offsets_s = [rng.choice([-3600.0, -60.0, -31.0, 0.0, 31.0, 60.0, 3600.0]) for _ in range(4)]
    owned: dict[int, advise.Claim] = {}
    deaths: Counter[Any] = Counter()
    done: Counter[Any] = Counter()
    Advice.objects.all().delete()
    Duty.objects.all().delete()
    with quick() as messages, scheduled() as db:
        jobs = [row.pk for row in queue("fuzz", count=rng.randint(1, 4))]
        for _ in range(40):
            db.at += timedelta(seconds=rng.choice([0.1, 3.0, 9.0]))
            for worker, claim in owned.items():  # the threads of those that live
                with wrong_by(offsets_s[worker]):
                    if not claim.hold():
                        wrong.append(f"worker {worker} lives and lost {claim.pk}")
            worker = rng.randrange(3)
            with wrong_by(offsets_s[worker]):
                what = rng.choice(["claim", "claim", "finish", "die", "return"])
                if worker not in owned:
                    if what == "claim" and (taken := advise.next_claim()):
                        if taken.pk in [each.pk for each in owned.values()]:
                            wrong.append(f"{taken.pk} has two owners")
                        owned[worker] = taken
                elif what == "finish":
                    claim = owned.pop(worker)
                    claim.finish(answers.snapshot({}, None), answers.recommend({}, {}))
                    done[claim.pk] += 1
                elif what == "die":
                    deaths[owned.pop(worker).pk] += 1
                elif what == "return":
                    owned.pop(worker).return_to_queue()
            with wrong_by(offsets_s[3]):
                advise.sweep()
                messages.clear()
        for claim in owned.values():
            deaths[claim.pk] += 1
        owned.clear()
        for _ in range(4 * len(jobs)):
            db.at += timedelta(seconds=31)
            advise.sweep()
            while last := advise.next_claim():
                last.finish(answers.snapshot({}, None), answers.recommend({}, {}))
                done[last.pk] += 1
        for row in Advice.objects.filter(pk__in=jobs):
            lost = deaths[row.pk]
            if row.state == State.DONE and (row.attempt != lost + 1 or done[row.pk] != 1):
                wrong.append(f"done with attempt {row.attempt} after {lost} deaths, {done[row.pk]} times")
            elif row.state == State.FAILED and lost != 3:
                wrong.append(f"failed after {lost} deaths")
            elif row.state not in advise.FINISHED:
                wrong.append(f"{row.state} at the end, after {lost} deaths")
    return wrong


def schedules(count: int = 10) -> Report:
    found = {seed: schedule(seed) for seed in range(count)}
    return {"ran": count, "wrong": {seed: lines for seed, lines in found.items() if lines}}


# --- turns ------------------------------------------------------------------------------------------------------


def turns() -> Report:
    """The organizations as one worker starts their questions: 30 of A, and one of B while the first of A runs."""
    started: list[str] = []
    late: list[Advice] = []

    def compute(spec: Any, snapshot: Any, progress: Any) -> Any:
        started.append(Advice.objects.get(state=State.RUNNING).organisation.slug)
        if len(started) == 1:
            late.extend(queue("b", "bob"))
        return answers.recommend(spec, snapshot)

    with quick(compute) as messages:
        queue("a", "ada", 30)
        while messages:
            advise.run(messages.pop(0))
    return {"started": started, "left": Advice.objects.exclude(state=State.DONE).count()}


def lost_messages(seed: int = 0) -> Report:
    """Half of the messages are lost, and some rows are canceled; sweeps still get every other row answered."""
    rng = random.Random(seed)
    with quick() as messages, override_settings(ADVICE_RESEND_S=0.0):
        rows = [row for n in range(12) for row in queue(f"o{n % 3}", f"p{n % 2}", 2)]
        for row in rows[::5]:
            advise.cancel(row)
        sweeps = 0
        while Advice.objects.filter(state=State.QUEUED).exists() and sweeps < 60:
            rng.shuffle(messages)
            del messages[: len(messages) // 2]
            while messages:
                advise.run(messages.pop(0))
            time.sleep(0.002)
            advise.sweep()
            sweeps += 1
    return {"states": dict(Counter(Advice.objects.values_list("state", flat=True))), "sweeps": sweeps}


# --- outages (PostgreSQL) ---------------------------------------------------------------------------------------


def maintenance() -> tuple[psycopg.Connection[Any], str]:
    url, _, name = os.environ["DATABASE_URL"].rpartition("/")
    assert name.startswith("assay_test_")  # never the database of anybody else
    return psycopg.connect(f"{url}/postgres", autocommit=True), name


def outage(lasts_s: float) -> None:
    """Ends every connection to this database, and refuses new ones for a time."""
    server, name = maintenance()
    if lasts_s:
        server.execute(f"alter database {name} with allow_connections false")

    def end() -> None:
        time.sleep(lasts_s)
        server.execute(f"alter database {name} with allow_connections true")
        server.close()

    server.execute("select pg_terminate_backend(pid) from pg_stat_activity where datname = %s", (name,))
    threading.Thread(target=end).start()


def outages() -> Report:
    """An outage at each point of a calculation: [state, attempt, calculations]."""
    found = {}
    for lasts_s in (0.0, 1.5):
        for point in ("idle", "claim", "snapshot", "compute", "sweep", "finish"):
            found[f"{point} {lasts_s:g}"] = outage_at(point, lasts_s)
    return found


def outage_at(point: str, lasts_s: float) -> list[Any]:
    Advice.objects.all().delete()
    Duty.objects.all().delete()
    runs = []

    def compute(spec: Any, snapshot: Any, progress: Any) -> Any:
        runs.append(1)
        progress("before", 0.1)
        if point == "compute":
            outage(lasts_s)
        if point == "sweep":  # longer than the lease: the sweep comes first when the database is back
            outage(lasts_s)
            time.sleep(lasts_s + 0.5)
            advise.persistently(advise.sweep)
            advise.persistently(advise.sweep)
        progress("after", 0.5)
        result = answers.recommend(spec, snapshot)
        if point == "finish":
            outage(lasts_s)
        return result

    def snapshot(*given: Any) -> Any:
        if point == "snapshot" and not struck:
            struck.append(1)
            outage(lasts_s)
            Advice.objects.count()
        return answers.snapshot({}, None)

    def taken(pk: Any) -> Any:
        if point == "claim" and not struck:
            struck.append(1)
            outage(lasts_s)
        return real(pk)

    struck: list[int] = []
    real = advise.claimed
    with (
        quick(compute),
        mock.patch.object(inputs, "take_snapshot", snapshot),
        mock.patch.object(advise, "claimed", taken),
    ):
        (row,) = queue("outage")
        if point == "idle":
            outage(lasts_s)
        with override_settings(ADVICE_LEASE_S=1.0):
            advise.run(row.pk)
            if point == "snapshot":  # it went back to the queue
                connection.close()
                advise.sweep()
                advise.run(row.pk)
    connection.close()
    advise.persistently(row.refresh_from_db)
    return [row.state, row.attempt, len(runs)]


DRILLS: dict[str, Callable[[], Report]] = {
    "skewed": skewed, "schedules": schedules, "turns": turns, "lost_messages": lost_messages, "outages": outages,
}  # fmt: skip

if __name__ == "__main__":
    for drill in sys.argv[1:]:
        begun_s = time.monotonic()
        print(json.dumps([drill, DRILLS[drill]()]), flush=True)
        print(f"{drill}: {time.monotonic() - begun_s:.1f} s", file=sys.stderr)
        Advice.objects.all().delete()
        Duty.objects.all().delete()
