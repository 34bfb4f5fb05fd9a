"""The use-cases of probe jobs: ask, lease, heartbeat, give up, cancel, sweep. The only writer of Job and Lease.

As with advice, the row is the truth. An agent owns a job while its attempt is the job's; every write repeats that
condition, and its row count says whether the agent still owns it. Only the server's clock counts.
"""

import json
import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import structlog
from django.conf import settings
from django.db import connection, transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from advisor.advise import default_organisation
from catalog.models import Organisation
from probes.agent import signing
from probes.agent import spec as specs
from probes.models import Agent, Job, Lease

log = structlog.get_logger("assay.probes")
State = Job.State
OPEN = (State.QUEUED, State.LEASED)
CANDIDATES = 20
SWEEP_BATCH = 500


class LostJob(Exception):
    """The attempt is no longer the job's: stop, and write nothing."""


class NoSuchJob(Exception):
    """No job, or no attempt of it by this agent."""


def visible(organisation: Organisation | None = None) -> QuerySet[Job]:
    """The jobs of an organization (default: the default one)."""
    rows = Job.objects.filter(organisation=organisation or default_organisation())
    return rows.select_related("agent", "wanted_agent")


def request(given: Mapping[str, Any], wanted: Mapping[str, str] | None = None, **values: Any) -> Job:
    """Queue a suite for an agent with the labels `wanted` (or for `wanted_agent`); SpecError says what is not data."""
    spec, now = specs.checked(dict(given)), timezone.now()
    return Job.objects.create(
        organisation=values.pop("organisation", None) or default_organisation(),
        spec=spec,
        spec_hash=specs.spec_hash(spec),
        suite_version=specs.SUITE_VERSION,
        wanted=dict(wanted or {}),
        wanted_key=specs.canonical(dict(wanted)).decode() if wanted else "",
        deadline_at=values.pop("deadline_at", now + timedelta(hours=settings.PROBE_QUEUE_HOURS)),
        **values,
    )


# --- leases -----------------------------------------------------------------------------------------------------


def lease(agent: Agent, kinds: Sequence[str] | None = None, device: Mapping[str, Any] | None = None) -> Lease | None:
    """The oldest job that this agent may have, now its own; None when there is none.

    Two reads when there is nothing to do. An agent that holds a live lease gets no second one. The lease is for the
    `device` that asks, else for the one that registered.
    """
    asks = signing.device_identity(device or agent.device)
    free = Job.objects.filter(
        Q(wanted_agent=None) | Q(wanted_agent=agent),
        organisation=agent.organisation_id,
        state=State.QUEUED,
        not_before_at__lte=timezone.now(),
    )
    keys = [k for k in free.order_by().values_list("wanted_key", flat=True).distinct() if carries(agent, k)]
    if not keys or holds_one(agent):
        return None
    rows = free.filter(wanted_key__in=keys).order_by("requested_at")
    for pk, attempt, spec in rows.values_list("pk", "attempt", "spec")[:CANDIDATES]:
        if allowed(spec, kinds) and (won := take(pk, attempt, spec, agent, asks)):
            return won
    return None


def carries(agent: Agent, wanted_key: str) -> bool:
    wanted = json.loads(wanted_key) if wanted_key else {}
    return all(agent.labels.get(name) == value for name, value in wanted.items())


def allowed(spec: Mapping[str, Any], kinds: Sequence[str] | None) -> bool:
    """Whether the agent's owner lets it run every kind that this spec names."""
    return kinds is None or not spec["kinds"] or set(spec["kinds"]) <= set(kinds)


def holds_one(agent: Agent) -> bool:
    return Job.objects.filter(agent=agent, state=State.LEASED, lease_expires_at__gt=timezone.now()).exists()


def take(pk: UUID, attempt: int, spec: Mapping[str, Any], agent: Agent, device_hash: str = "") -> Lease | None:
    """queued -> leased with the next attempt; None when another agent was faster."""
    now = timezone.now()
    row = Job.objects.filter(pk=pk, state=State.QUEUED, attempt=attempt)
    with transaction.atomic():
        if connection.features.has_select_for_update_skip_locked:
            if row.order_by().select_for_update(skip_locked=True, of=("self",)).first() is None:
                return None
        won = row.update(
            state=State.LEASED,
            attempt=attempt + 1,
            agent=agent,
            lease_expires_at=lease_end(),
            stage="",
            done_steps=0,
            total_steps=0,
        )
        if not won:
            return None
        return Lease.objects.create(
            job_id=pk,
            attempt=attempt + 1,
            agent=agent,
            nonce=secrets.token_hex(16),
            device_hash=device_hash,
            leased_at=now,
            deadline_at=now + longest(spec),
        )


def lease_end() -> datetime:
    return timezone.now() + timedelta(seconds=settings.PROBE_LEASE_S)


def longest(spec: Mapping[str, Any]) -> timedelta:
    """What one attempt may take in all: half as much again as the suite, and time to start and to send."""
    return timedelta(seconds=1.5 * specs.longest_s(dict(spec)) + 120)


def held(agent: Agent, pk: UUID | str, attempt: int) -> Lease:
    found = Lease.objects.filter(job_id=pk, attempt=attempt, agent=agent).select_related("job").first()
    if found is None:
        raise NoSuchJob
    return found


def heartbeat(agent: Agent, pk: UUID | str, attempt: int, stage: str = "", done: int = 0, total: int = 0) -> bool:
    """True: go on. False: cancelled or out of time. A job that waits again after a silence is taken back."""
    found = held(agent, pk, attempt)
    if found.job.attempt != attempt:
        raise LostJob
    if found.deadline_at <= timezone.now():
        return False
    mine = Job.objects.filter(pk=pk, attempt=attempt, state__in=OPEN)
    kept = mine.update(
        state=State.LEASED,
        agent=agent,
        lease_expires_at=min(lease_end(), found.deadline_at),
        stage=stage[:60],
        done_steps=done,
        total_steps=total,
    )
    if kept:
        if found.ended:
            Lease.objects.filter(pk=found.pk).update(ended="", ended_at=None)
        return True
    if Job.objects.filter(pk=pk, attempt=attempt, state=State.CANCELLED).exists():
        return False
    raise LostJob


# --- ends -------------------------------------------------------------------------------------------------------


def end_lease(pk: UUID | str, attempt: int, ended: str, **values: Any) -> None:
    Lease.objects.filter(job_id=pk, attempt=attempt, ended="").update(ended=ended, ended_at=timezone.now(), **values)


def finish(found: Lease) -> str:
    """Closes the job for a result of this attempt: accepted, late or superseded (which is never used)."""
    now, pk = timezone.now(), found.job_id
    mine = Job.objects.filter(pk=pk, attempt=found.attempt)
    done = {"state": State.DONE, "finished_at": now, "lease_expires_at": None, "stage": "", "error": ""}
    state = "superseded"
    if mine.filter(state=State.LEASED, lease_expires_at__gte=now).update(**done):
        state = "accepted"
    elif mine.filter(state__in=OPEN).update(**done, agent=found.agent_id):
        state = "late"
    elif found.ended == "lost" and mine.filter(state=State.FAILED).exists():
        state = "late"  # the last attempt was given up; what it measured is as good, though the job stays failed
    Lease.objects.filter(pk=found.pk).update(ended="result", ended_at=now)
    return state


def fail(agent: Agent, pk: UUID | str, attempt: int, code: str, retriable: bool, text: str = "") -> None:
    """The agent gives up: another attempt after a pause, three in all. Of an old attempt only the log is kept."""
    found = held(agent, pk, attempt)
    with transaction.atomic():
        end_lease(pk, found.attempt, "failed", code=code[:60], log=text)
        last = text.strip().splitlines()[-1] if text.strip() else "no log"
        mine = Job.objects.filter(pk=pk, attempt=attempt, state__in=OPEN)
        give_up(mine, attempt, f"{code}: {last}", retriable)


def give_up(mine: QuerySet[Job], attempt: int, reason: str, retriable: bool) -> str:
    """leased (or waiting again) -> queued after a pause, or failed; the new state, or none when it was not `mine`."""
    now = timezone.now()
    if retriable and attempt < settings.PROBE_MAX_ATTEMPTS:
        wait = timedelta(seconds=settings.PROBE_BACKOFF_S[attempt - 1])
        waiting = {"state": State.QUEUED, "agent": None, "not_before_at": now + wait}
        return State.QUEUED if mine.update(**waiting, lease_expires_at=None, stage="") else ""
    failed = {"state": State.FAILED, "finished_at": now, "error": reason[:2000]}
    return State.FAILED if mine.update(**failed, lease_expires_at=None, stage="") else ""


def cancel(job: Job) -> bool:
    """True when it was still open; the agent that runs it hears of it at its next heartbeat."""
    done = Job.objects.filter(pk=job.pk, state__in=OPEN).update(
        state=State.CANCELLED, finished_at=timezone.now(), lease_expires_at=None, stage=""
    )
    if done:
        end_lease(job.pk, job.attempt, "cancelled")
    job.refresh_from_db()
    return bool(done)


def sweep() -> dict[str, int]:
    """Queue again (or give up) what lost its agent; give up what nobody took in time. Counts of each."""
    now = timezone.now()
    counts = {"probes_requeued": 0, "probes_failed": 0}
    lost = Job.objects.filter(state=State.LEASED).filter(Q(lease_expires_at__lt=now) | Q(agent__revoked_at__lt=now))
    for pk, attempt, until in lost.order_by().values_list("pk", "attempt", "lease_expires_at")[:SWEEP_BATCH]:
        # By columns of the row alone: PostgreSQL reads a joined condition from before a result that it waited for.
        mine = Job.objects.filter(pk=pk, attempt=attempt, state=State.LEASED, lease_expires_at=until)
        reason = f"The machine was lost {attempt} times while it measured; it is not tried again."
        with transaction.atomic():
            ended = give_up(mine, attempt, reason, retriable=True)
            if ended:  # else a heartbeat or a result was faster
                end_lease(pk, attempt, "lost")
                counts["probes_failed" if ended == State.FAILED else "probes_requeued"] += 1
    late = Job.objects.filter(state=State.QUEUED, deadline_at__lt=now)
    counts["probes_failed"] += late.update(
        state=State.FAILED, finished_at=now, error="No machine took it in time: see Workers for who is online."
    )
    if any(counts.values()):
        log.info("swept", **counts)
    return counts
