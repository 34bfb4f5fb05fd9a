"""Creates, claims, computes, finishes, cancels and resumes studies. Only this module and deletion.py write their rows.

A study is cut into pieces, rows with a lease (leases.py). Pieces of phase 0 read the catalog, so that all pieces of
phase 1 answer from the same rows. A message wakes a worker, which takes the answer or the piece whose turn it is
(turns.py), computes it, and sends one message on while pieces wait. So a study has at most MESSAGES live messages, and
they queue behind other requests. The sweep starts another wave if messages were lost; those of an earlier wave do
nothing.
"""

import bisect
import itertools
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar
from uuid import UUID

import structlog
from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Count, F, Q, QuerySet, Sum
from kombu.exceptions import ChannelError
from kombu.exceptions import OperationalError as BrokerError

from advisor import advise, leases, shutdown, storage, turns
from advisor.celery import app
from advisor.leases import OPEN, UNAVAILABLE, Lease, LostLease, persistently
from advisor.models import Study, StudyPiece, StudyRows, keyed
from advisor.studies import compute, tables
from advisor.studies.plan import Complete, Plan, planned
from catalog import clock
from catalog.accounts import quotas
from catalog.models import Organisation

log = structlog.get_logger("assay.studies")
State = StudyPiece.State
READS, ANSWERS = 0, 1  # phases
MESSAGES = 128  # of a study at the same time: as many workers can share it
NEXT = 16  # waiting pieces of which a worker takes one by chance, so that few workers try the same one
BATCH = 500
Json = dict[str, Any]


# --- create -----------------------------------------------------------------------------------------------------


def request(
    raw: Mapping[str, Any],
    organisation: Organisation,
    made_by: str = "",
    idempotency_key: str = "",
    complete: Complete = dict,
    awake: bool = True,
    key_owner: str = "",
) -> Study:
    """Creates the study that a file or a body describes, with all its pieces, or nothing.

    The same idempotency key of the same owner and request return the same study again. complete: see `planned`.
    awake: sends messages to the workers; if false, the caller must run the pieces with `drain`. Raises WorkloadError,
    advise.QueueFull and advise.KeyReused.
    """
    plan = planned(raw, organisation, complete)
    named = keyed(organisation, idempotency_key, key_owner, made_by) if idempotency_key else None
    if earlier := earlier_request(plan, named):
        return earlier
    check_room(organisation, made_by)
    try:
        return _create(plan, organisation, made_by, (idempotency_key, key_owner if idempotency_key else ""), awake)
    except IntegrityError:  # another request with this key was faster
        earlier = earlier_request(plan, named)
        if earlier is None:
            raise
        return earlier


def earlier_request(plan: Plan, named: Q | None) -> Study | None:
    earlier = Study.objects.filter(named).first() if named else None
    if earlier and earlier.request_sha256 != plan.sha256:
        raise advise.KeyReused("this idempotency key was used for another study")
    if earlier:
        earlier.is_replay = True
    return earlier


def check_room(organisation: Organisation, made_by: str) -> None:
    """Raises QueueFull if the organization or the person has too many open studies."""
    running = visible(organisation).filter(state__in=OPEN)
    of_person, of_organisation = running.filter(made_by=made_by).count(), running.count()
    if of_person >= settings.STUDY_MAX_OPEN_PERSON or of_organisation >= settings.STUDY_MAX_OPEN:
        text = (
            "Too many studies are open: you have %(own)s of at most %(own_limit)s, your organization has %(count)s of "
            "at most %(limit)s. Create it again when one is done, or cancel one."
        )
        limits = {"own_limit": settings.STUDY_MAX_OPEN_PERSON, "limit": settings.STUDY_MAX_OPEN}
        raise advise.QueueFull(text % {"own": of_person, "count": of_organisation, **limits})


def use_quota(plan: Plan, organisation: Organisation) -> None:
    """Counts what a study computes as if it were asked one by one. Raises QueueFull if that is more than is left."""
    if plan.kind == Study.Kind.ESTIMATES:
        quotas.use_estimates(organisation, plan.points)
    else:
        quotas.use(organisation, "answers", plan.points)


@transaction.atomic
def _create(plan: Plan, organisation: Organisation, made_by: str, key: tuple[str, str], awake: bool) -> Study:
    use_quota(plan, organisation)
    now = clock.read()
    study = Study.objects.create(
        organisation=organisation,
        name=plan.name,
        kind=plan.kind,
        axes=[list(axis) for axis in plan.axes],
        points=plan.points,
        made_by=made_by,
        idempotency_key=key[0],
        key_owner=key[1],
        request_sha256=plan.sha256,
        prices_as_of=plan.prices_as_of,
        created_at=now,
        sent_at=now,
    )
    StudyPiece.objects.bulk_create(
        (
            StudyPiece(study=study, phase=phase, index=i, points=points, size=len(points))
            for phase, pieces in enumerate(plan.phases)
            for i, points in enumerate(pieces)
        ),
        batch_size=BATCH,
    )
    if awake:
        transaction.on_commit(partial(send, study.pk, study.wave, min(len(plan.phases[READS]), MESSAGES)))
    return study


# --- messages ---------------------------------------------------------------------------------------------------


def send(pk: UUID | str, wave: int, count: int = 1) -> bool:
    """Sends messages of a wave. False if the broker is not available; the sweep then sends the next wave."""
    try:
        for _n in range(count):
            app.send_task("study.run", args=[str(pk), wave])
    except (BrokerError, ChannelError, OSError) as error:
        log.warning("broker not available", study=str(pk), error=str(error))
        return False
    return True


def send_wave(pk: UUID | str) -> int:
    """Starts the next wave of messages, one for each waiting piece up to MESSAGES. Returns their number."""
    Study.objects.filter(pk=pk, state__in=OPEN).update(wave=F("wave") + 1, sent_at=clock.now())
    wave = Study.objects.filter(pk=pk, state__in=OPEN).values_list("wave", flat=True).first()
    count = min(waiting(pk).count(), MESSAGES) if wave else 0
    return count if wave and count and send(pk, wave, count) else 0


def ready() -> QuerySet[StudyPiece]:
    """The pieces of all studies that may be claimed now."""
    return StudyPiece.objects.filter(state=State.QUEUED, study__state__in=OPEN, phase=F("study__phase"))


def waiting(pk: UUID | str) -> QuerySet[StudyPiece]:
    """The pieces of a study that may be claimed now, in their order."""
    return ready().filter(study_id=pk).order_by("index")


# --- compute ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PieceClaim(Lease):
    """One attempt's right to write to a piece."""

    model: ClassVar[Any] = StudyPiece
    kind = "piece"

    began_cpu_s: float = field(default_factory=time.process_time)  # of this process, when it looked for work

    def finish(self, rows: list[Json], cpu_s: float, overhead_cpu_s: float, part: bytes | None = None) -> None:
        """Stores the rows of the results, once: a piece that was finished has no lease to write with."""
        ended = {"state": State.DONE, "lease_until": None, "finished_at": clock.now()}
        self.write(**ended, result=rows, cpu_s=cpu_s, overhead_cpu_s=overhead_cpu_s, part=part)


def run(pk: UUID | str, wave: int, parts: "advise.PartsOf | None" = None) -> None:
    """Computes one answer or piece, whichever is next, and wakes the next worker. For the message of this wave.

    parts: see advise.run.
    """
    if not is_live(pk, wave):
        return
    if not storage.has_room():
        log.warning("disk almost full, not started", study=str(pk), free_mb=storage.free_mb())
        return  # the sweep sends another wave
    if shutdown.begun():
        send(pk, wave)  # to another worker
        return
    try:
        claim = persistently(next_claim)
    except UNAVAILABLE:
        log.exception("database not available, nothing claimed")
        return
    if isinstance(claim, advise.Claim):
        advise.work(claim, parts)
    elif claim is not None:
        work(claim)
    pass_on(pk, wave)


def is_live(pk: UUID | str, wave: int) -> bool:
    """Whether a message of this wave still counts."""
    return Study.objects.filter(pk=pk, wave=wave, state__in=OPEN).exists()


def pass_on(pk: UUID | str, wave: int) -> None:
    """Sends the message on while pieces wait."""
    if waiting(pk).exists():
        send(pk, wave)


def next_claim() -> "advise.Claim | PieceClaim | None":
    """Claims what is next of all waiting answers and pieces; None if nothing waits."""
    while (found := turns.first()) is not None:
        claim = advise.claimed(found.pk) if found.study is None else piece_of(found.study)
        if claim is not None:
            return claim
    return None


def piece_of(pk: UUID | str) -> PieceClaim | None:
    """Claims a waiting piece of a study; None if none waits."""
    began_s = time.process_time()
    while candidates := list(waiting(pk).values_list("pk", flat=True)[:NEXT]):
        random.shuffle(candidates)  # not for secrets
        for piece in candidates:
            if claim := leases.claimed(
                waiting(pk).filter(pk=piece).order_by(), partial(PieceClaim, piece, began_cpu_s=began_s)
            ):
                return claim
    return None


def drain(pk: UUID | str, pause_s: float = 0.2) -> int:
    """Computes pieces of one study until none is open. Returns how many this process computed.

    Also requeues pieces whose worker was lost, so that no sweep is needed.
    """
    count = 0
    while Study.objects.filter(pk=pk, state__in=OPEN).exists() and not shutdown.begun():
        claim = persistently(partial(piece_of, pk))
        if claim is not None:
            work(claim)
            count += 1
            continue
        leases.end(PieceClaim)
        settle(pk)
        time.sleep(pause_s)
    return count


def drain_reads(pk: UUID | str) -> None:
    """Computes the pieces of a study that read the catalog, if nobody else does."""
    while Study.objects.filter(pk=pk, state__in=OPEN, phase=READS).exists() and (claim := piece_of(pk)):
        work(claim)


def work(claim: PieceClaim) -> None:
    """Computes a claimed piece, and ends its phase if it was the last one."""
    leases.work(claim, _compute, piece=str(claim.pk))
    study = StudyPiece.objects.filter(pk=claim.pk).values_list("study", flat=True).first()
    if study is not None:
        persistently(partial(settle, study))


def _compute(claim: PieceClaim) -> None:
    piece = StudyPiece.objects.select_related("study", "study__organisation").filter(pk=claim.pk).first()
    if piece is None:  # deleted since it was claimed
        raise LostLease
    if piece.phase == READS:
        persistently(partial(_store_rows, claim, piece))
        return
    if piece.study.kind == Study.Kind.PORTFOLIO:
        part = compute.portfolio_part(piece, claim.check)
        persistently(partial(claim.finish, [], round(time.process_time() - claim.began_cpu_s, 3), 0.0, part))
        return
    rows = compute.results(piece, claim.check)
    cpu_s = sum(row["cpu_s"] for row in rows)
    overhead_s = time.process_time() - claim.began_cpu_s - cpu_s
    persistently(partial(claim.finish, rows, round(cpu_s, 3), round(overhead_s, 4)))


def _store_rows(claim: PieceClaim, piece: StudyPiece) -> None:
    """Stores the catalog rows that other pieces share. All pieces must have read the same catalog."""
    version = compute.catalog_version()
    found = compute.read_rows(piece)
    with transaction.atomic():
        claim.check()
        StudyRows.objects.bulk_create(StudyRows(study=piece.study, key=key, rows=rows) for key, rows in found)
        claim.finish([], 0.0, round(time.process_time() - claim.began_cpu_s, 4))
        study = Study.objects.select_for_update().get(pk=piece.study_id)
        if compute.catalog_version() != version or study.catalog_version not in ("", version):
            raise compute.CatalogChanged
        Study.objects.filter(pk=study.pk).update(catalog_version=version, engine_version=compute.ENGINE_VERSION)


# --- end --------------------------------------------------------------------------------------------------------


def settle(pk: UUID | str) -> None:
    """Ends the phase of a study in which no piece is open any more. May be called at any time, by any number."""
    study = Study.objects.filter(pk=pk, state__in=OPEN).first()
    if study is None or StudyPiece.objects.filter(study_id=pk, phase=study.phase, state__in=OPEN).exists():
        return
    here = Study.objects.filter(pk=pk, state__in=OPEN, phase=study.phase)
    if study.phase == ANSWERS:
        here.update(state=State.DONE, finished_at=clock.now())
        return
    failed = StudyPiece.objects.filter(study_id=pk, phase=READS, state=State.FAILED).first()
    if failed is not None:
        with transaction.atomic():
            if here.update(state=State.FAILED, error=failed.error, finished_at=clock.now()):
                _end_pieces(pk)
    elif here.update(state=State.RUNNING, phase=ANSWERS):
        send_wave(pk)


def cancel(study: Study) -> bool:
    """Cancels a study; finished pieces keep their results. False if it was finished."""
    with transaction.atomic():
        ended = {"state": State.CANCELLED, "finished_at": clock.now()}
        done = Study.objects.filter(pk=study.pk, state__in=OPEN).update(**ended)
        if done:
            _end_pieces(study.pk)
    study.refresh_from_db()
    return bool(done)


def _end_pieces(pk: UUID | str) -> None:
    ended = {"state": State.CANCELLED, "finished_at": clock.now(), "lease_until": None}
    StudyPiece.objects.filter(study_id=pk, state__in=OPEN).update(**ended)


def resume(study: Study, awake: bool = True) -> bool:
    """Queues the pieces of an ended study again that failed or were canceled. False if there are none."""
    ended = Study.objects.filter(pk=study.pk, state__in=(State.CANCELLED, State.FAILED, State.DONE))
    left = StudyPiece.objects.filter(study_id=study.pk, state__in=(State.CANCELLED, State.FAILED))
    if not left.exists():
        return False
    check_room(study.organisation, study.made_by)
    with transaction.atomic():
        begun = State.QUEUED if study.phase == READS else State.RUNNING
        done = ended.update(state=begun, error="", finished_at=None)
        if done:
            left.update(state=State.QUEUED, attempt=0, claim="", error="", finished_at=None)
            if awake:
                transaction.on_commit(partial(send_wave, study.pk))
    study.refresh_from_db()
    return bool(done)


def sweep() -> dict[str, int]:
    """Sweeps answers (advise.sweep) and studies: lost workers, phases that nobody ended, lost messages."""
    counts = advise.sweep([PieceClaim])
    Study.objects.filter(advice__isnull=False).exclude(advice__state__in=OPEN).delete()  # of portfolios that ended
    for study in Study.objects.filter(state__in=OPEN):
        settle(study.pk)
        counts["sent"] += send_wave(study.pk) if is_stalled(study) else 0
    return counts


def is_stalled(study: Study) -> bool:
    """Whether messages seem to be lost: pieces wait, and none has started or been announced for a while."""
    pieces = StudyPiece.objects.filter(study_id=study.pk)
    quiet = clock.ago(settings.ADVICE_RESEND_S)
    if not waiting(study.pk).exists() or Study.objects.filter(pk=study.pk, sent_at__gt=quiet).exists():
        return False
    busy = pieces.filter(Q(state=State.RUNNING) | Q(started_at__gt=quiet)).exists()
    late = clock.ago(WAVE_LEASES * settings.ADVICE_LEASE_S)  # more workers may have come since
    return not busy or not Study.objects.filter(pk=study.pk, sent_at__gt=late).exists()


WAVE_LEASES = 4  # another wave after so many leases also while some workers are busy


# --- read -------------------------------------------------------------------------------------------------------


def visible(organisation: Organisation) -> QuerySet[Study]:
    """The studies of an organization, without those of portfolios."""
    return Study.objects.filter(organisation=organisation, advice=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a study is. Pieces are those that answer; `cpu_s` is what the finished ones took."""

    pieces: int
    done: int
    running: int
    failed: int
    cancelled: int
    cpu_s: float
    overhead_cpu_s: float

    @property
    def ended(self) -> int:
        return self.done + self.failed

    @property
    def waiting(self) -> int:
        return self.pieces - self.ended - self.running - self.cancelled

    @property
    def fraction(self) -> float:
        return self.ended / self.pieces if self.pieces else 0.0


def progress(study: Study) -> Progress:
    """Read with one query."""
    grouped = StudyPiece.objects.filter(study_id=study.pk).order_by().values("phase", "state")
    found = list(grouped.annotate(n=Count("pk"), cpu=Sum("cpu_s"), overhead=Sum("overhead_cpu_s")))
    by_state = {row["state"]: row["n"] for row in found if row["phase"] == ANSWERS}

    def count(state: str) -> int:
        return int(by_state.get(state, 0))

    return Progress(
        pieces=sum(by_state.values()),
        done=count(State.DONE),
        running=count(State.RUNNING),
        failed=count(State.FAILED),
        cancelled=count(State.CANCELLED),
        cpu_s=sum(row["cpu"] or 0.0 for row in found),
        overhead_cpu_s=sum(row["overhead"] or 0.0 for row in found),
    )


class Rows(Sequence[Json]):
    """The rows of all finished pieces, in the order of the points; those of a failed piece say why. Slices are read."""

    def __init__(self, study: Study) -> None:
        ended = StudyPiece.objects.filter(study_id=study.pk, phase=ANSWERS, state__in=(State.DONE, State.FAILED))
        self.pieces = ended.order_by("index")
        sizes = list(self.pieces.values_list("index", "size"))
        self.indices = [index for index, _ in sizes]
        self.ends = list(itertools.accumulate(size for _, size in sizes))

    def __len__(self) -> int:
        return self.ends[-1] if self.ends else 0

    def __getitem__(self, at: Any) -> Any:
        if not isinstance(at, slice):
            return self[at : at + 1][0]
        start, stop, _step = at.indices(len(self))
        first, last = bisect.bisect_right(self.ends, start), bisect.bisect_left(self.ends, stop)
        skipped = start - (self.ends[first - 1] if first else 0)
        found = [row for piece in self.pieces[first : last + 1] for row in rows_of(piece)]
        return found[skipped : skipped + max(stop - start, 0)]

    def key_of(self, at: int) -> list[int]:
        """What names a row whichever other pieces end: the index of its piece and its place in there."""
        n = bisect.bisect_right(self.ends, at)
        return [self.indices[n], at - (self.ends[n - 1] if n else 0)]

    def after(self, key: Sequence[int]) -> int:
        """How many rows there are up to this one, which may be gone."""
        index, place = key
        n = bisect.bisect_left(self.indices, index)
        begin = self.ends[n - 1] if n else 0
        return min(begin + place + 1, self.ends[n]) if self.indices[n : n + 1] == [index] else begin


def rows_of(piece: StudyPiece) -> list[Json]:
    return list(piece.result or ()) if piece.state == State.DONE else failed_rows(piece)


def failed_rows(piece: StudyPiece) -> list[Json]:
    names = [point["asked"].get("name") for point in piece.points]
    return [
        {"point": point["index"], "set": point["set"], "state": "failed", "error": piece.error, "workload": name}
        for point, name in zip(piece.points, names, strict=True)
    ]


def table_of(study: Study) -> list[tables.Column]:
    """The columns of a study's results."""
    return tables.columns(study.kind, study.axes)
