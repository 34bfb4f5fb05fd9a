"""Use cases of probe jobs: request, lease, heartbeat, fail, cancel, sweep. Only this module writes Job and Lease.

As with advice, the row is the source of truth. An agent owns a job while its attempt is the current one. Every write
checks this, and its row count says whether the agent still owns the job. All times are the database's (catalog.clock).
"""

import json
import secrets
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import structlog
from django.conf import settings
from django.db import connection, transaction
from django.db.models import Q, QuerySet, Value
from django.db.models.expressions import Combinable
from django.db.models.functions import Least

from advisor.watch import tallies
from catalog import clock
from catalog.models import Organisation, default_organisation
from probes.agent import spec as specs
from probes.agent.server import signing
from probes.models import Agent, Job, Lease

log = structlog.get_logger("assay.probes")
State = Job.State
OPEN = (State.QUEUED, State.LEASED)
MAX_CANDIDATES = 20
SWEEP_BATCH = 500


class LostJob(Exception):
    """The attempt no longer owns the job; the agent must stop."""


class NoSuchJob(Exception):
    """The job does not exist, or this agent never had this attempt."""


def visible(organisation: Organisation) -> QuerySet[Job]:
    """The jobs of an organization."""
    rows = Job.objects.filter(organisation=organisation)
    return rows.select_related("agent", "wanted_agent")


def request(given: Mapping[str, Any], wanted: Mapping[str, str] | None = None, **values: Any) -> Job:
    """Queues a suite for any agent with the labels `wanted`, or for `wanted_agent`. SpecError: the spec is invalid.

    `organisation`, one of `values`, is the default one where it is not given.
    """
    spec, now = specs.checked(dict(given)), clock.read()
    return Job.objects.create(
        organisation=values.pop("organisation", None) or default_organisation(),
        spec=spec,
        spec_hash=specs.spec_hash(spec),
        suite_version=specs.SUITE_VERSION,
        wanted=dict(wanted or {}),
        wanted_key=specs.canonical(dict(wanted)).decode() if wanted else "",
        requested_at=now,
        not_before_at=now,
        deadline_at=values.pop("deadline_at", now + timedelta(hours=settings.PROBE_QUEUE_HOURS)),
        **values,
    )


# --- leases -----------------------------------------------------------------------------------------------------


def lease(agent: Agent, kinds: Sequence[str] | None = None, device: Mapping[str, Any] | None = None) -> Lease | None:
    """Leases the oldest job that this agent may run; None if there is none, or if it already has a live lease.

    The result must come from `device` (default: the one that registered). Without work this costs two reads.
    """
    device_hash = signing.device_identity(device or agent.device)
    free = Job.objects.filter(
        Q(wanted_agent=None) | Q(wanted_agent=agent),
        organisation=agent.organisation_id,
        state=State.QUEUED,
        not_before_at__lte=clock.now(),
    )
    keys = [k for k in free.order_by().values_list("wanted_key", flat=True).distinct() if has_labels(agent, k)]
    if not keys or has_live_lease(agent):
        return None
    rows = free.filter(wanted_key__in=keys).order_by("requested_at")
    for pk, attempt, spec in rows.values_list("pk", "attempt", "spec")[:MAX_CANDIDATES]:
        if allowed(spec, kinds) and (taken := claim(pk, attempt, spec, agent, device_hash)):
            return taken
    return None


def has_labels(agent: Agent, wanted_key: str) -> bool:
    """Whether the agent has every wanted label. `wanted_key`: the labels as canonical JSON."""
    wanted = json.loads(wanted_key) if wanted_key else {}
    return all(agent.labels.get(name) == value for name, value in wanted.items())


def allowed(spec: Mapping[str, Any], kinds: Sequence[str] | None) -> bool:
    """Whether the agent may run every kind in this spec. `kinds`: those its owner allows; None: all."""
    return kinds is None or not spec["kinds"] or set(spec["kinds"]) <= set(kinds)


def has_live_lease(agent: Agent) -> bool:
    return Job.objects.filter(agent=agent, state=State.LEASED, lease_expires_at__gt=clock.now()).exists()


def claim(pk: UUID, attempt: int, spec: Mapping[str, Any], agent: Agent, device_hash: str = "") -> Lease | None:
    """queued -> leased, with the next attempt. None: another agent was faster."""
    row = Job.objects.filter(pk=pk, state=State.QUEUED, attempt=attempt)
    with transaction.atomic():
        if connection.features.has_select_for_update_skip_locked:
            if row.order_by().select_for_update(skip_locked=True, of=("self",)).first() is None:
                return None
        claimed = row.update(
            state=State.LEASED,
            attempt=attempt + 1,
            agent=agent,
            lease_expires_at=lease_end(),
            stage="",
            done_steps=0,
            total_steps=0,
        )
        if not claimed:
            return None
        now = clock.read()
        return Lease.objects.create(
            job_id=pk,
            attempt=attempt + 1,
            agent=agent,
            nonce=secrets.token_hex(16),
            device_hash=device_hash,
            leased_at=now,
            deadline_at=now + max_duration(spec),
        )


def lease_end() -> Combinable:
    return clock.after(settings.PROBE_LEASE_S)


def max_duration(spec: Mapping[str, Any]) -> timedelta:
    """Time limit of one attempt: 1.5 times that of the suite, and two minutes to start and send."""
    return timedelta(seconds=1.5 * specs.max_seconds(dict(spec)) + 120)


def lease_of(agent: Agent, pk: UUID | str, attempt: int) -> Lease:
    """The agent's lease of this attempt. NoSuchJob: it never had it."""
    row = Lease.objects.filter(job_id=pk, attempt=attempt, agent=agent).select_related("job").first()
    if row is None:
        raise NoSuchJob
    return row


def heartbeat(agent: Agent, pk: UUID | str, attempt: int, stage: str = "", done: int = 0, total: int = 0) -> bool:
    """Renews the lease. True: continue. False: stop, the job was canceled or its time is over.

    If the job was queued again because the agent was silent, it gets the job back. LostJob: another attempt has it.
    """
    held = lease_of(agent, pk, attempt)
    if held.job.attempt != attempt:
        raise LostJob
    if not Lease.objects.filter(pk=held.pk, deadline_at__gt=clock.now()).exists():
        return False
    mine = Job.objects.filter(pk=pk, attempt=attempt, state__in=OPEN)
    renewed = mine.update(
        state=State.LEASED,
        agent=agent,
        lease_expires_at=Least(lease_end(), Value(held.deadline_at)),
        stage=stage[:60],
        done_steps=done,
        total_steps=total,
    )
    if renewed:
        if held.ended:
            Lease.objects.filter(pk=held.pk).update(ended="", ended_at=None)
        return True
    if Job.objects.filter(pk=pk, attempt=attempt, state=State.CANCELLED).exists():
        return False
    raise LostJob


# --- ends -------------------------------------------------------------------------------------------------------


def end_lease(pk: UUID | str, attempt: int, ended: str, **values: Any) -> None:
    Lease.objects.filter(job_id=pk, attempt=attempt, ended="").update(ended=ended, ended_at=clock.now(), **values)


def finish(held: Lease) -> str:
    """Closes the job with the result of this attempt. Returns accepted, late or superseded (never used)."""
    pk = held.job_id
    mine = Job.objects.filter(pk=pk, attempt=held.attempt)
    done = {"state": State.DONE, "finished_at": clock.now(), "lease_expires_at": None, "stage": "", "error": ""}
    state = "superseded"
    if mine.filter(state=State.LEASED, lease_expires_at__gte=clock.now()).update(**done):
        state = "accepted"
    elif mine.filter(state__in=OPEN).update(**done, agent=held.agent_id):
        state = "late"
    elif held.ended == "lost" and mine.filter(state=State.FAILED).exists():
        state = "late"  # the job stays failed, but the measurements of its last attempt are usable
    Lease.objects.filter(pk=held.pk).update(ended="result", ended_at=clock.now())
    return state


def fail(agent: Agent, pk: UUID | str, attempt: int, code: str, retriable: bool, text: str = "") -> None:
    """Records a failed attempt. A retriable one is queued again after a pause, up to PROBE_MAX_ATTEMPTS.

    For an attempt that is no longer current, only the log is stored.
    """
    held = lease_of(agent, pk, attempt)
    with transaction.atomic():
        end_lease(pk, held.attempt, "failed", code=code[:60], log=text)
        last = text.strip().splitlines()[-1] if text.strip() else "no log"
        mine = Job.objects.filter(pk=pk, attempt=attempt, state__in=OPEN)
        give_up(mine, attempt, f"{code}: {last}", retriable)


def give_up(mine: QuerySet[Job], attempt: int, reason: str, retriable: bool) -> str:
    """Queues the job again after a pause, or fails it. Returns the new state; empty if no row of `mine` matched."""
    if retriable and attempt < settings.PROBE_MAX_ATTEMPTS:
        pause_s = settings.PROBE_BACKOFF_S[attempt - 1]
        queued = {"state": State.QUEUED, "agent": None, "not_before_at": clock.after(pause_s)}
        return State.QUEUED if mine.update(**queued, lease_expires_at=None, stage="") else ""
    failed = {"state": State.FAILED, "finished_at": clock.now(), "error": reason[:2000]}
    return State.FAILED if mine.update(**failed, lease_expires_at=None, stage="") else ""


def cancel(job: Job) -> bool:
    """Cancels an open job; the agent learns of it at its next heartbeat. False: the job had already ended."""
    cancelled = Job.objects.filter(pk=job.pk, state__in=OPEN).update(
        state=State.CANCELLED, finished_at=clock.now(), lease_expires_at=None, stage=""
    )
    if cancelled:
        end_lease(job.pk, job.attempt, "cancelled")
    job.refresh_from_db()
    return bool(cancelled)


def sweep() -> dict[str, int]:
    """Queues lost jobs again or fails them, and fails jobs that no machine took in time. Returns counts."""
    counts, expired = {"probes_requeued": 0, "probes_failed": 0}, 0
    lost = Job.objects.filter(state=State.LEASED).filter(
        Q(lease_expires_at__lt=clock.now()) | Q(agent__revoked_at__isnull=False)
    )
    for pk, attempt, until in lost.order_by().values_list("pk", "attempt", "lease_expires_at")[:SWEEP_BATCH]:
        # Use only columns of the row: after waiting for a lock, PostgreSQL evaluates joins on the old snapshot.
        mine = Job.objects.filter(pk=pk, attempt=attempt, state=State.LEASED, lease_expires_at=until)
        reason = f"The machine was lost {attempt} times while running this job; it is not retried."
        with transaction.atomic():
            ended = give_up(mine, attempt, reason, retriable=True)
            if ended:  # otherwise a heartbeat or result arrived first
                end_lease(pk, attempt, "lost")
                counts["probes_failed" if ended == State.FAILED else "probes_requeued"] += 1
                expired += 1
    tallies.add({(tallies.LEASE_EXPIRIES, "probe_job"): expired})
    late = Job.objects.filter(state=State.QUEUED, deadline_at__lt=clock.now())
    counts["probes_failed"] += late.update(
        state=State.FAILED,
        finished_at=clock.now(),
        error="No machine took it in time. See Workers for machines that are online.",
    )
    if any(counts.values()):
        log.info("swept", **counts)
    return counts
