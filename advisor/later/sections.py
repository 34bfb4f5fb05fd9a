"""The sections of an answer that its first screen does not show. The worker computes them right after the verdict.

A Completion is the work on them, with a lease as an advice has one (leases.py). If its worker is lost, another worker
of the same engine version computes the answer again from the stored snapshot, and adds the sections alone: the verdict
never changes. A GET computes nothing.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet, Subquery

from advisor import answer, inputs, leases
from advisor.engine import ENGINE_VERSION
from advisor.leases import LONG_AGO, OPEN, Lease, LostLease, lease_end, persistently, wake
from advisor.models import Advice, AdviceSection, Completion
from advisor.result import SECTIONS, Answer, sections_in
from advisor.watch import tallies
from catalog import clock

log = structlog.get_logger("assay.sections")
State = Advice.State
UPDATED = "Assay was updated before these sections were computed."
STOPPED = "Their calculation was stopped on request."
CHANGED = "Computed again after the worker was lost, the answer was not the same."
Complete = Callable[[], Answer]


@dataclass(frozen=True, slots=True)
class SectionsClaim(Lease):
    """One attempt's right to add the sections of an advice."""

    model: ClassVar[Any] = Completion
    kind = "sections"
    requeued: ClassVar[dict[str, Any]] = {"sent_at": LONG_AGO}

    def wake(self) -> None:
        wake(self.pk)

    def finish(self, whole: Answer) -> None:
        """Stores the sections of the complete answer, and that they are complete."""
        rows = [
            AdviceSection(advice_id=self.pk, name=name, engine_version=ENGINE_VERSION, content=content)
            for name, content in sections_in(whole.to_json()).items()
        ]
        with transaction.atomic():
            self.write(state=State.DONE, lease_until=None, finished_at=clock.now())
            AdviceSection.objects.bulk_create(rows)


def begin(pk: Any) -> SectionsClaim:
    """Notes that the sections of an advice are due, and takes them for this worker."""
    claim = SectionsClaim(pk, 1)
    Completion.objects.create(
        advice_id=pk,
        engine_version=ENGINE_VERSION,
        state=State.RUNNING,
        attempt=claim.attempt,
        claim=claim.name,
        lease_until=lease_end(),
        started_at=clock.now(),
    )
    return claim


def work(claim: SectionsClaim, complete: Complete | None = None) -> None:
    """Computes the sections. complete: what this worker still knows of the choice; None: from the stored snapshot."""
    leases.work(claim, partial(_compute, complete=complete), advice=str(claim.pk))


def _compute(claim: SectionsClaim, complete: Complete | None) -> None:
    begun_s = time.monotonic()
    whole = (complete or _again(claim))()
    persistently(partial(claim.finish, whole))
    took_s = time.monotonic() - begun_s
    log.info("sections added", elapsed_s=round(took_s, 3))
    tallies.add(tallies.observed(tallies.PART_S, "explain", took_s))


def _again(claim: SectionsClaim) -> Complete:
    """Computes the choice again. Raises leases.Failed if it is not the one that is stored."""
    advice = Advice.objects.select_related("workload").filter(pk=claim.pk).first()
    if advice is None or advice.snapshot is None:  # deleted since it was claimed
        raise LostLease
    snapshot = inputs.Snapshot.read(advice.snapshot)
    found = answer.verdict_first(advice.workload.spec, snapshot, lambda stage, fraction: claim.check())
    told, stored = found.answer.to_json(), advice.result or {}
    if found.complete is None or any(told[key] != stored.get(key) for key in ("verdict", "recommendations")):
        raise leases.Failed(CHANGED)
    return found.complete


def next_claim() -> SectionsClaim | None:
    """Takes the sections that wait longest for a worker; those of another engine version end without being computed."""
    waiting = Completion.objects.filter(state=State.QUEUED)
    ended = {"state": State.FAILED, "error": UPDATED, "lease_until": None, "finished_at": clock.now()}
    waiting.exclude(engine_version=ENGINE_VERSION).update(**ended)
    for pk in waiting.order_by("started_at").values_list("pk", flat=True):
        if claim := leases.claimed(waiting.filter(pk=pk), partial(SectionsClaim, pk)):
            return claim
    return None


def stop(pk: Any) -> bool:
    """Ends the work on the sections of an advice. False if there was none."""
    ended = {"state": State.CANCELLED, "error": STOPPED, "lease_until": None, "finished_at": clock.now()}
    return bool(Completion.objects.filter(pk=pk, state__in=OPEN).update(**ended))


def overdue() -> QuerySet[Completion]:
    """The sections whose last message to a worker is overdue."""
    return Completion.objects.filter(state=State.QUEUED, sent_at__lt=clock.ago(settings.ADVICE_RESEND_S))


def copy(known: Advice, advice: Advice) -> None:
    """Gives an advice the sections of another one, copied by the database as they are packed."""
    for row in AdviceSection.objects.filter(advice=known).defer("content"):
        stored = AdviceSection.objects.filter(pk=row.pk).values("content")
        section = AdviceSection.objects.create(
            advice=advice, name=row.name, engine_version=row.engine_version, content={}
        )
        AdviceSection.objects.filter(pk=section.pk).update(content=Subquery(stored))
    for done in Completion.objects.filter(advice=known):
        done.advice = advice
        done.save(force_insert=True)


# --- read -------------------------------------------------------------------------------------------------------


class Incomplete(Exception):
    """What is asked for needs sections that are not there. `is_due`: they are still being computed."""

    def __init__(self, text: str, is_due: bool) -> None:
        super().__init__(text)
        self.is_due = is_due


def absent(advice: Advice) -> list[str]:
    """The sections that its answer does not have."""
    completion = advice.completion_or_none
    return [] if completion is None or completion.state == State.DONE else [*SECTIONS]


def missing(advice: Advice) -> str:
    """Why its sections will not be computed; empty: nothing is missing, or they are still being computed."""
    return "" if advice.is_due or not absent(advice) else f"{advice.completion.error} Re-run the request for them."


def check_complete(advice: Advice) -> None:
    """Raises Incomplete."""
    if advice.is_due:
        raise Incomplete(f"The verdict is ready. Still being computed: {', '.join(SECTIONS)}.", is_due=True)
    if why := missing(advice):
        raise Incomplete(f"This needs sections that were not computed: {', '.join(SECTIONS)}. {why}", is_due=False)
