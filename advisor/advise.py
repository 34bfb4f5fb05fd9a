"""Queues, computes, cancels, re-runs and sweeps answers. Only this module and deletion.py write Advice and Option.

The database row decides. A worker owns an advice while it is running with the worker's attempt number and an unexpired
lease. Every write repeats this condition, and its row count tells whether the worker still owns the advice. A Celery
message only wakes a worker, which takes the advice whose turn it is (turns.py): the sweep resends lost messages, and
repeated ones find nothing to claim. All times are the database's (catalog.clock), because the clocks of hosts differ.

An outage of the database costs no attempt: a worker keeps its result until it can write it, and gets its advice back if
it was queued again and nobody else has claimed it.
"""

import math
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from functools import partial
from typing import Any, ClassVar
from uuid import UUID

import structlog
from django.conf import settings
from django.db import IntegrityError, connection, transaction
from django.db.models import Q, QuerySet, Subquery
from django.utils import timezone

from advisor import answer, inputs, leases, shutdown, storage, turns, webhooks
from advisor.celery import app as app
from advisor.deletion import delete_expired
from advisor.later import asked_before, sections
from advisor.leases import LONG_AGO, OPEN, UNAVAILABLE, Lease
from advisor.leases import LostLease as LostLease
from advisor.leases import persistently as persistently
from advisor.leases import wake as wake
from advisor.models import Advice, Duty, Option, Workload, keyed
from advisor.result import Answer, ApiOption, TrainingOption
from advisor.result import Option as Recommended
from advisor.stored import RESULT_VERSION
from advisor.turns import QueueFull as QueueFull
from advisor.turns import ahead as ahead
from advisor.turns import check_room as check_room
from advisor.turns import held as held
from advisor.turns import ready as ready
from advisor.watch import logs, tallies
from advisor.workload import PORTFOLIO, WorkloadError
from catalog import clock
from catalog.accounts import quotas
from catalog.models import Organisation
from catalog.models import default_organisation as default_organisation

log = structlog.get_logger("assay.advise")
State = Advice.State
FINISHED = (State.DONE, State.FAILED, State.CANCELLED)
SWEEP_BATCH = 500
SWEEP, SWEPT, GAP = "sweep", "swept", "first sweep after a gap"  # names of duties: begun, ended well, late
OF_ANSWER = ("engine_version", "catalog_version", "prices_as_of", "calibration_ids")  # columns, told by the snapshot
DIGITS = 16  # max_digits of Option's money columns
Progress = Callable[[str, float], None]
PartsOf = Callable[[Advice, dict[str, Any], inputs.Snapshot, Progress], list[Any]]


class KeyReused(ValueError):
    """The idempotency key was already used for another workload."""


def visible(organisation: Organisation) -> QuerySet[Advice]:
    """The answers of an organization, with deferred snapshots."""
    rows = Advice.objects.filter(organisation=organisation)
    return rows.select_related("workload", "completion").defer("snapshot")


def request(
    spec: dict[str, Any],
    organisation: Organisation | None = None,
    idempotency_key: str = "",
    supersedes: Advice | None = None,
    made_by: str = "",
    key_owner: str = "",
    fresh: bool = False,
) -> Advice:
    """Queues a validated workload of an organization (default: the default one), asked by `made_by`.

    The same idempotency key of the same owner (models.keyed) and the same workload return the same advice again, with
    `is_replay`. A question whose answer is stored is finished at once, unless `fresh`: it counts for the quotas, but
    needs no place in the queue. Raises QueueFull and KeyReused.
    """
    organisation = organisation or default_organisation()
    spec = inputs.with_catalog_names(spec, organisation)
    inputs.check_catalog(spec, organisation)
    named = keyed(organisation, idempotency_key, key_owner, made_by) if idempotency_key else None
    if earlier := earlier_request(spec, named):
        return earlier
    known = None if fresh else asked_before.answered(spec, organisation)
    if known is None:
        check_room(organisation, made_by)
    try:
        return _queue_new(
            spec, organisation, (idempotency_key, key_owner if idempotency_key else ""), supersedes, made_by, known
        )
    except IntegrityError:  # another request with this key was faster
        earlier = earlier_request(spec, named)
        if earlier is None:
            raise
        return earlier


def earlier_request(spec: dict[str, Any], named: Q | None) -> Advice | None:
    """The advice of an earlier request with a key. Raises KeyReused if it had another workload."""
    advice = Advice.objects.filter(named).select_related("workload").first() if named else None
    if advice and advice.workload.spec != spec:
        raise KeyReused("this idempotency key was used for another workload")
    if advice:
        advice.is_replay = True
    return advice


def _queue_new(
    spec: dict[str, Any],
    organisation: Organisation,
    key: tuple[str, str],
    supersedes: Advice | None,
    made_by: str,
    known: Advice | None,
) -> Advice:
    """known: the answer to give again, unless it has been deleted since."""
    with transaction.atomic():
        quotas.use(organisation, "answers")
        workload = Workload.objects.create(organisation=organisation, name=spec["name"], spec=spec, made_by=made_by)
        known = known and Advice.objects.select_for_update().defer("result", "snapshot").filter(pk=known.pk).first()
        advice = queue(workload, key, supersedes, made_by, wakes=known is None)
        return advice if known is None else give_again(known, advice)


def give_again(known: Advice, advice: Advice) -> Advice:
    """Finishes a queued advice with the answer of another one. Both have the same question and the same snapshot."""
    stored = Advice.objects.filter(pk=known.pk)  # copied by the database, as it is packed
    now = clock.read()
    values = {
        **{name: getattr(known, name) for name in (*OF_ANSWER, "result_version")},
        **{name: Subquery(stored.values(name)) for name in ("result", "snapshot")},
        "reused_from": known.reused_from or {"id": str(known.pk), "finished_at": str(known.finished_at)},
    }
    Advice.objects.filter(pk=advice.pk).update(
        state=State.DONE, started_at=now, finished_at=now, progress_fraction=1, **values
    )
    for option in known.options.all():
        option.pk, option.advice = None, advice
        option.save()
    sections.copy(known, advice)
    verdict = (known.answer or {}).get("verdict", "")
    webhooks.advice_ended([advice.pk], verdict)
    compare_first(advice.pk, verdict)
    return visible(advice.organisation).get(pk=advice.pk)


def queue(
    workload: Workload,
    key: tuple[str, str] = ("", ""),
    supersedes: Advice | None = None,
    made_by: str = "",
    wakes: bool = True,
) -> Advice:
    """Creates a queued advice for this workload, and wakes a worker when the row is committed.

    key: the idempotency key and its owner.

    A workload that asks for probes is held until probes.sweep releases it, or for ADVICE_PROBE_WAIT_S at most. A
    newer answer to the same question is not held again, because it is queued after a measurement.
    """
    is_new = supersedes is None or not inputs.what_if.same_question(supersedes.workload.spec, workload.spec)
    wants_probes = is_new and workload.spec.get("probe", "no") != "no"
    now = clock.read()
    held_until = now + timedelta(seconds=settings.ADVICE_PROBE_WAIT_S) if wants_probes else None
    with transaction.atomic():
        if supersedes is not None:
            hold(supersedes.pk)
        advice = Advice.objects.create(
            organisation=workload.organisation,
            workload=workload,
            idempotency_key=key[0],
            key_owner=key[1],
            request_id=logs.current_request_id(),
            supersedes=supersedes,
            made_by=made_by,
            created_at=now,
            sent_at=now,
            held_until=held_until,
            question_key=asked_before.key_of(workload.spec, workload.organisation),
        )
        if held_until is None and wakes:
            transaction.on_commit(partial(wake, advice.pk))
    return advice


def hold(pk: Any) -> None:
    """Locks an advice against deletion until the transaction ends. Raises Advice.DoesNotExist."""
    Advice.objects.select_for_update().only("pk").get(pk=pk)


def release(pk: UUID, probed: dict[str, Any]) -> bool:
    """Ends the wait for measurements; `probed` is added to the answer. False if it was not held."""
    done = bool(held().filter(pk=pk).update(held_until=None, probed=probed))
    if done:
        wake(pk)
    return done


def rescore(advice: Advice, made_by: str = "") -> Advice:
    """Queues the same workload against today's catalog. An advice that is not finished is returned unchanged.

    One that nobody asked for, after a measurement, does not count for the organization's quota.
    """
    if advice.state not in FINISHED:
        return advice
    with transaction.atomic():
        if made_by:
            quotas.use(advice.organisation, "answers")
        return queue(advice.workload, supersedes=advice, made_by=made_by)


def again_at_its_prices(advice: Advice, made_by: str = "") -> Advice:
    """Queues the same workload with the prices known on the day of the original answer."""
    asked_on = inputs.Snapshot.read(advice.snapshot).asked_on if advice.snapshot else ""
    day = asked_on or timezone.localdate(advice.created_at).isoformat()
    spec = {**advice.workload.spec, "prices_as_of": day}
    return request(spec, advice.organisation, supersedes=advice, made_by=made_by, fresh=True)


def cancel(advice: Advice) -> bool:
    """Cancels an advice, or the rest of it after its verdict. False if it was complete.

    A worker that computes it stops at its next write.
    """
    unfinished = Advice.objects.filter(pk=advice.pk, state__in=OPEN)
    done = unfinished.update(state=State.CANCELLED, finished_at=clock.now(), lease_until=None, stage="")
    advice.refresh_from_db()
    return bool(done) or sections.stop(advice.pk)


def run(pk: UUID | str, parts: PartsOf | None = None) -> None:
    """Claims and computes the advice whose turn it is. `pk`: the one whose message woke this worker.

    parts: lets other workers answer workloads of a portfolio (studies/parts.py). Every failure is stored as a state
    with a reason.
    """
    if not may_start(pk):
        return
    try:
        claim = persistently(next_claim)
    except UNAVAILABLE:  # nothing is claimed: the sweep sends the message again
        log.exception("database not available, nothing claimed")
        return
    if claim is not None:
        work(claim, parts)
    elif (left := persistently(sections.next_claim)) is not None:  # by a worker that was lost
        sections.work(left)


def work(claim: "Claim", parts: PartsOf | None = None) -> None:
    """Computes a claimed advice: its verdict, then its sections. `parts`: as in `run`."""
    left: list[tuple[sections.SectionsClaim, sections.Complete]] = []
    ids = {"advice": str(claim.pk), **({logs.REQUEST_ID: claim.request_id} if claim.request_id else {})}
    leases.work(claim, partial(compute, parts=parts, left=left), **ids)
    for due, complete in left:
        sections.work(due, complete)


def may_start(pk: UUID | str) -> bool:
    """False if the disk is almost full or this worker is stopping; the advice then stays queued."""
    if not storage.has_room():
        log.warning("disk almost full, not started", advice=str(pk), free_mb=storage.free_mb())
        return False
    if shutdown.begun():
        wake(pk)  # another worker
        return False
    return True


def compute(claim: "Claim", parts: PartsOf | None = None, left: list[Any] | None = None) -> None:
    """Takes the snapshot, searches and writes the verdict. A second attempt uses the first one's snapshot.

    left: gets the claim on the sections that are due then, and what computes the complete answer.
    """
    advice = Advice.objects.select_related("workload", "organisation").filter(pk=claim.pk).first()
    if advice is None:  # deleted since it was claimed
        raise LostLease
    clock_s = PartClock()
    snapshot = snapshot_of(advice)
    if snapshot is None:
        claim.report("reading the catalog", 0.0)
        snapshot = inputs.take_snapshot(advice.workload.spec, advice.organisation)
        persistently(partial(claim.write, snapshot=snapshot.stored()))
    begun_s, away_s = time.monotonic(), [0.0]
    spec = advice.workload.spec
    due: sections.SectionsClaim | None = None
    timed = clock_s.timed(claim.report)

    def told(stage: str, fraction: float) -> None:
        timed(stage, fraction) if due is None else due.check()

    report: Progress = told
    if spec.get("kind") == PORTFOLIO:
        report = giving_way(told, len(spec["workloads"]), away_s)
    if parts is not None and len(spec.get("workloads") or ()) > 1:
        found = answer.verdict_first(spec, snapshot, report, partial(parts, advice))
    else:
        found = answer.verdict_first(spec, snapshot, report)
    result = found.answer
    if advice.held_until or advice.probed:
        result = answer.with_probes(result, advice.probed or nobody_measured())
    result = result.changed(elapsed_s=round(time.monotonic() - begun_s - sum(away_s), 3))
    clock_s.begin("write")
    due = persistently(partial(claim.finish, snapshot, result, found.complete is not None))
    if due is not None and left is not None:
        left.append((due, found.complete))
    waited = (advice.started_at or advice.created_at) - advice.created_at
    parts_s = clock_s.ended() | {"wait": waited.total_seconds()}
    log.info("done", elapsed_s=result.elapsed_s)
    observed = [tallies.observed(tallies.PART_S, part, seconds) for part, seconds in parts_s.items()]
    ended = {(tallies.ENDED, State.DONE.value): 1.0}
    tallies.add({key: value for amounts in (ended, *observed) for key, value in amounts.items()})


PART_OF_STAGE = {"estimating": "estimate", "simulating": "simulate", "trying": "variants", "explaining": "explain",
    "searching": "training", "sharing": "portfolio"}  # fmt: skip


class PartClock:
    """The seconds that each part of one calculation takes: a part ends when the next one begins."""

    def __init__(self) -> None:
        self.parts_s: dict[str, float] = defaultdict(float)
        self.part, self.since_s = "catalog", time.monotonic()

    def begin(self, part: str) -> None:
        now_s = time.monotonic()
        self.parts_s[self.part] += now_s - self.since_s
        self.part, self.since_s = part, now_s

    def timed(self, report: Progress) -> Progress:
        """`report`, whose stages begin the parts. What comes before the first stage prepares the search."""
        self.begin("prepare")

        def told(stage: str, fraction: float) -> None:
            self.begin(PART_OF_STAGE.get(stage.rpartition(": ")[2].partition(" ")[0], "other"))
            report(stage, fraction)

        return told

    def ended(self) -> dict[str, float]:
        self.begin("")
        return dict(self.parts_s)


def snapshot_of(advice: Advice) -> inputs.Snapshot | None:
    """The stored snapshot; None: there is none, or no deployment can be computed from it."""
    snapshot = inputs.Snapshot.read(advice.snapshot) if advice.snapshot else None
    return snapshot if snapshot and snapshot.complete else None


def giving_way(report: Progress, workloads: int, away_s: list[float]) -> Progress:
    """`report`, which also computes one waiting request after each workload of a portfolio, so that it waits for one.

    For a third of the time limit: the rest is enough for most portfolios. Other portfolios wait, because each would
    give way in turn. The time is added to `away_s`.
    """
    begun_s, reached = time.monotonic(), [0]

    def told(stage: str, fraction: float) -> None:
        report(stage, fraction)
        at, now_s = math.floor(fraction * (workloads + 1) + 1e-6), time.monotonic()
        if at <= reached[0] or now_s - begun_s > settings.CELERY_TASK_SOFT_TIME_LIMIT / 3:
            return
        reached[0] = at
        give_way()
        away_s.append(time.monotonic() - now_s)

    return told


def give_way() -> None:
    """Computes one request that is not a portfolio, if one waits."""
    if shutdown.begun() or not storage.has_room():
        return
    try:
        other = next_claim(ready().exclude(workload__spec__kind=PORTFOLIO))
    except UNAVAILABLE:
        log.exception("database not available, nothing claimed")
        connection.close_if_unusable_or_obsolete()
        return
    if other is not None:
        work(other)


class Unanswerable(ValueError):
    """A stored workload that today's catalog cannot answer, with the reason."""


def with_measurements(advice: Advice) -> Answer:
    """The workload answered again from the advice's own catalog and prices, with the measured rows of today.

    Raises Unanswerable.
    """
    spec, snapshot = advice.workload.spec, snapshot_of(advice)
    if snapshot is None or snapshot.parts:
        snapshot = inputs.take_snapshot(spec, advice.organisation)
    else:
        rows = inputs.measured.scopes_of_spec(spec, inputs.measured_name(snapshot.model), advice.organisation)
        snapshot = replace(snapshot, conditioned=rows)
    try:
        return answer.recommend(spec, snapshot)
    except WorkloadError as error:
        raise Unanswerable(str(error)) from error


def nobody_measured() -> dict[str, Any]:
    limit_s = settings.ADVICE_PROBE_WAIT_S
    return {
        "measured": [],
        "said": f"no machine measured within {limit_s:g} s; each option shows the evidence for its figures",
    }


def next_claim(among: "QuerySet[Advice] | None" = None) -> "Claim | None":
    """Claims the advice whose turn it is; None if none is ready. If another worker was faster, the next one."""
    while (pk := next(turns.order(among), None)) is not None:
        if claim := claimed(pk):
            return claim
    return None


def claimed(pk: UUID | str) -> "Claim | None":
    """Claims a queued advice as the next attempt; None if it is not queued or another worker was faster."""
    free = ready().filter(pk=pk)
    request_id = free.values_list("request_id", flat=True).first() or ""
    lease = partial(Claim, pk, request_id=request_id)
    return leases.claimed(free, lease, stage="starting", progress_fraction=0)


@dataclass(frozen=True, slots=True)
class Claim(Lease):
    """One attempt's right to write to an advice."""

    model = Advice
    kind = "answer"
    between: ClassVar[dict[str, Any]] = {"stage": ""}
    requeued: ClassVar[dict[str, Any]] = {"sent_at": LONG_AGO}

    request_id: str = ""  # of the HTTP request that asked, for log lines

    @staticmethod
    def count_failed(rows: int) -> None:
        tallies.add({(tallies.ENDED, State.FAILED): rows})

    def report(self, stage: str, fraction: float) -> None:
        """Stores the progress. The calculation goes on while the database is not available."""
        try:
            self.write(stage=stage[:60], progress_fraction=fraction)
        except UNAVAILABLE as error:
            if storage.is_full(error):
                raise
            log.warning("progress not stored", error=str(error))
            connection.close_if_unusable_or_obsolete()

    def write(self, **values: Any) -> None:
        """As any lease. The events of a failure are written in the same transaction."""
        if values.get("state") != State.FAILED:
            return Lease.write(self, **values)
        with transaction.atomic():
            Lease.write(self, **values)
            webhooks.advice_ended([self.pk])

    @staticmethod
    def ended(pks: Sequence[Any]) -> None:
        webhooks.advice_ended(pks)

    def finish(self, snapshot: inputs.Snapshot, result: Answer, is_due: bool = False) -> sections.SectionsClaim | None:
        """Writes the answer. is_due: its sections follow; returns the claim on them."""
        with transaction.atomic():
            self.write(
                state=State.DONE,
                result=result.to_json(),
                result_version=RESULT_VERSION,
                lease_until=None,
                finished_at=clock.now(),
                stage="",
                progress_fraction=1,
                engine_version=snapshot.engine_version,
                catalog_version=snapshot.catalog_version,
                prices_as_of=snapshot.prices_as_of or None,
                calibration_ids=result.calibration_ids or [],
            )
            Option.objects.bulk_create(
                option_row(self.pk, rank, option) for rank, option in enumerate(result.recommendations, 1)
            )
            webhooks.advice_ended([self.pk], result.verdict)
            compare_first(self.pk, result.verdict)
            return sections.begin(self.pk) if is_due else None

    def wake(self) -> None:
        wake(self.pk)


WINNER = "winner.changed"


def compare_first(pk: UUID | str, verdict: str) -> None:
    """Writes `winner.changed` if the first choice of an answer differs from that of the answer that it supersedes."""
    advice = Advice.objects.select_related("workload", "supersedes").defer("snapshot", "result").get(pk=pk)
    earlier = advice.supersedes
    if earlier is None or earlier.state != State.DONE or not webhooks.subscribed(advice.organisation_id, WINNER):
        return
    if advice.workload.spec.get("kind") == PORTFOLIO:
        before, after = (earlier.answer or {}).get("verdict", ""), verdict
    else:
        before, after = (first_label(each) for each in (earlier, advice))
    if before != after:
        webhooks.winner_changed(advice, str(earlier.pk), first_choice(earlier, before), first_choice(advice, after))


def first_label(advice: Advice) -> str:
    return advice.options.order_by("rank").values_list("label", flat=True).first() or ""


def first_choice(advice: Advice, label: str) -> dict[str, Any]:
    usd = advice.options.order_by("rank").values_list("usd_per_month", flat=True).first()
    return {"label": label, "usd_per_month": None if usd is None else float(usd)}


def option_row(pk: UUID | str, rank: int, option: Recommended | ApiOption | TrainingOption) -> Option:
    return Option(
        advice_id=pk,
        rank=rank,
        accelerator_slug=option.accelerator or "",
        accelerators=option.accelerator_count or 0,
        label=option.label,
        usd_per_month=decimal(option.usd_per_month, 2),
        usd_per_mtok_output=decimal(None if isinstance(option, TrainingOption) else option.usd_per_mtok_output, 6),
        usd_per_run=decimal(option.usd_per_run if isinstance(option, TrainingOption) else None, 2),
    )


def decimal(value: float | None, places: int) -> Decimal | None:
    """The value for a money column; None if it does not fit, such as a price per token at almost no load."""
    if value is None or abs(value) > 10 ** (DIGITS - places) - 1:
        return None
    return round(Decimal(repr(value)), places)


def sweep_is_due() -> bool:
    """False if a sweep began less than half an interval ago, so that messages that waited for a worker do nothing.

    One that began in the future began before the clock was set back.
    """
    recent = Duty.objects.filter(name=SWEEP, last_run_at__gt=clock.ago(settings.ADVICE_SWEEP_S / 2))
    return not recent.filter(last_run_at__lte=clock.now()).exists()


def sweep(others: Sequence[type[Lease]] = ()) -> dict[str, int]:
    """Requeues or fails advice whose worker was lost, resends messages, and deletes expired rows. Returns counts.

    others: further kinds of leases that end in the same way.
    """
    kinds: list[type[Lease]] = [Claim, sections.SectionsClaim, *others]
    ended = [] if is_first_after_gap() else [leases.end(kind) for kind in kinds]
    requeued, failed = (sum(column) for column in zip((0, 0), *ended, strict=True))
    counts = {"requeued": requeued, "failed": failed, "sent": send_waiting()}
    counts["deleted"] = delete_expired()
    if any(counts.values()):
        log.info("swept", **counts)
    Duty.objects.update_or_create(name=SWEPT, defaults={"last_run_at": clock.now()})
    return counts


def is_first_after_gap() -> bool:
    """Records a sweep. True: the last one was longer ago than a lease, and was not the first after a gap itself.

    If the database was away, workers that live could not renew their leases. They do it now, before the next sweep.
    """
    last, gap = Duty.objects.filter(name=SWEEP), Duty.objects.filter(name=GAP)
    is_late = last.filter(last_run_at__lt=clock.ago(settings.ADVICE_LEASE_S)).exists()
    is_repeated = gap.filter(last_run_at__gte=last.values("last_run_at")[:1]).exists()
    Duty.objects.update_or_create(name=SWEEP, defaults={"last_run_at": clock.now()})
    if is_late and not is_repeated:
        Duty.objects.update_or_create(name=GAP, defaults={"last_run_at": clock.now()})
    return is_late and not is_repeated


def send_waiting() -> int:
    """Resends the message of each advice whose last one is overdue. Returns the number."""
    waiting = ready().filter(sent_at__lt=clock.ago(settings.ADVICE_RESEND_S))
    return sum(map(_send, (waiting, sections.overdue())))


def _send(rows: "QuerySet[Any]") -> int:
    sent = []
    for pk in rows.order_by("sent_at").values_list("pk", flat=True)[:SWEEP_BATCH]:
        if not wake(pk):  # avoids a timeout for each remaining one
            break
        sent.append(pk)
    return rows.model.objects.filter(pk__in=sent, state=State.QUEUED).update(sent_at=clock.now())
