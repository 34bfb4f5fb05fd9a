"""What becomes of a result: read, examined, stored once for its attempt; released or kept apart by a person."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

import structlog
from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.utils import timezone
from kombu.exceptions import OperationalError as BrokerError

from advisor.advise import default_organisation
from advisor.celery import app
from catalog.models import Accelerator
from probes import devices, intake, jobs, plausibility
from probes.models import Agent, Lease, Measurement, Result

log = structlog.get_logger("assay.probes")
State = Result.State
USED = (State.ACCEPTED, State.LATE)
UNSIGNED = "it came as a file, not from an enrolled machine: a person decides whether it counts"
PEER_DAYS, MOST_PEERS = 180, 200
Json = dict[str, Any]


class OtherBody(Exception):
    """This attempt has sent another result before; that one counts."""


class WrongHash(ValueError):
    """The body is not what its Idempotency-Key says: it was cut or changed on its way."""


def visible() -> QuerySet[Result]:
    rows = Result.objects.filter(organisation=default_organisation()).defer("document")
    return rows.select_related("agent", "accelerator", "job")


def receive(agent: Agent, pk: UUID | str, attempt: int, body: bytes, declared: str) -> Result:
    """The stored result of this attempt; the same body again changes nothing and gives the same answer."""
    digest = hashlib.sha256(body).hexdigest()
    if digest != declared.lower():
        raise WrongHash
    lease = jobs.held(agent, pk, attempt)
    try:
        return sent_before(lease, digest) or _first(agent, lease, body, digest)
    except IntegrityError:  # the same attempt at the same moment: the other one was first
        earlier = sent_before(lease, digest)
        if earlier is None:
            raise
        return earlier


def sent_before(lease: Lease, digest: str) -> Result | None:
    earlier = Result.objects.filter(job_id=lease.job_id, attempt=lease.attempt).first()
    if earlier and earlier.body_hash != digest:
        raise OtherBody
    return earlier


def _first(agent: Agent, lease: Lease, body: bytes, digest: str) -> Result:
    owner: Json = {"organisation": agent.organisation, "agent": agent, "job": lease.job, "attempt": lease.attempt}
    try:
        document = intake.read(body, settings.PROBE_MAX_RESULT_BYTES)
    except intake.IntakeError as error:
        return _refuse(owner, lease, digest, error)
    wall_s = (timezone.now() - lease.leased_at).total_seconds()
    chip = devices.chip_of(document["device"], agent.labels.get("accelerator"))
    findings = [*mismatch(document, agent), *replayed(digest)]
    findings += examined(document, chip, agent, wall_s, lease.job.spec_hash)
    with transaction.atomic():
        state = jobs.finish(lease)
        reasons = [f.text for f in findings if f.grave]
        if reasons and state != State.SUPERSEDED:
            state = State.QUARANTINED
        elif state == State.SUPERSEDED:
            reasons = ["a newer attempt has this job, or it was ended before: this one is kept, but never used"]
        return store(document, digest, state, reasons, [f.text for f in findings if not f.grave], chip, owner)


def _refuse(owner: Json, lease: Lease, digest: str, error: intake.IntakeError) -> Result:
    """A document that cannot be read ends its job: the same agent would send the same again."""
    with transaction.atomic():
        mine = jobs.Job.objects.filter(pk=lease.job_id, attempt=lease.attempt, state__in=jobs.OPEN)
        jobs.give_up(mine, lease.attempt, f"The result could not be read: {error}", retriable=False)
        jobs.end_lease(lease.job_id, lease.attempt, "result")
        reasons = [f"{e['field'] or 'document'}: {e['message']}" for e in error.errors]
        return Result.objects.create(**owner, body_hash=digest, state=State.REJECTED, reasons=reasons)


def store(
    document: Json,
    digest: str,
    state: str,
    reasons: Sequence[str],
    remarks: Sequence[str],
    chip: Accelerator | None,
    owner: Mapping[str, Any],
) -> Result:
    """The rows of one document; a used one wakes the calibration when it is committed."""
    result = Result.objects.create(
        **owner,
        body_hash=digest,
        state=state,
        reasons=list(reasons),
        remarks=list(remarks),
        accelerator=chip,
        device_name=document["device"]["name"][:120],
        chips=document["device"]["count"],
        backend=document["backend"],
        suite=document["suite"],
        suite_version=document["suite_version"],
        started_at=intake.started(document["started_at"]),
        duration_s=document["duration_s"],
        document=document,
    )
    Measurement.objects.bulk_create((measurement(result, e) for e in document["results"]), batch_size=500)
    if state in USED:
        transaction.on_commit(partial(wake, result.pk))
    return result


def measurement(result: Result, e: Json) -> Measurement:
    check = e["check"] or {}
    return Measurement(
        result=result,
        kind=e["kind"],
        key=e["key"],
        path=e["path"],
        kernel=(e["kernel"] or "")[:200],
        median_s=e["time_s"]["median"],
        p10_s=e["time_s"]["p10"],
        p90_s=e["time_s"]["p90"],
        count=e["time_s"]["n"],
        flops=e["flops"],
        bytes=e["bytes"],
        check_error_fraction=check.get("error"),
        check_ok=check.get("ok"),
        watts=e.get("power_w"),
        throttled=e.get("throttled"),
        note=(e.get("note") or "")[:300],
    )


# --- what speaks against it -------------------------------------------------------------------------------------


def examined(
    document: Json, chip: Accelerator | None, agent: Agent | None, wall_s: float | None, spec_hash: str | None
) -> list[plausibility.Finding]:
    bounds = bounds_of(chip) if chip else None
    return plausibility.examine(document, bounds, wall_s, spec_hash, peers(chip, agent, document))


def bounds_of(a: Accelerator) -> plausibility.Chip:
    """The engine's view of the chip, in SI."""
    from advisor import assemble  # here: the web tier loads the engine with its first result

    chip = assemble.chip(a)
    return plausibility.Chip(
        slug=chip.slug,
        memory_bytes=chip.memory_bytes,
        memory_bytes_per_s=chip.memory_bytes_per_s,
        flops_per_s=chip.flops_per_s,
        cache_bytes=chip.sram_bytes,
        link_bytes_per_s=chip.links[0].bytes_per_s if chip.links else 0.0,
        host_bytes_per_s=0.0 if math.isnan(chip.pcie_bytes_per_s) else chip.pcie_bytes_per_s,
    )


def mismatch(document: Json, agent: Agent) -> list[plausibility.Finding]:
    """Whether the device is the one that the agent was enrolled with."""
    claimed, device = agent.labels.get("accelerator"), document["device"]
    if not claimed or devices.chip_of(device, claimed):
        return []
    seen = f"{device['name']} with {(device['memory_bytes'] or 0) / devices.GIB:.4g} GiB"
    return [plausibility.Finding(True, f"{seen} is not the {claimed} of this machine")]


def replayed(digest: str) -> list[plausibility.Finding]:
    earlier = Result.objects.filter(body_hash=digest).exclude(state=State.REJECTED).first()
    return [plausibility.Finding(True, f"the same bytes came as result {earlier.pk}")] if earlier else []


def peers(chip: Accelerator | None, agent: Agent | None, document: Json) -> dict[str, list[float]]:
    """Headline rates of the other machines with this chip, the newest of each, by the same method."""
    if chip is None:
        return {}
    since = timezone.now() - timedelta(days=PEER_DAYS)
    rows = Result.objects.filter(accelerator=chip, state__in=USED, suite_version=document["suite_version"])
    rows = rows.filter(suite=document["suite"], received_at__gt=since).exclude(agent=agent).exclude(agent=None)
    newest: dict[Any, Result] = {}
    for row in rows.order_by("-received_at", "-pk")[:MOST_PEERS]:
        newest.setdefault(row.agent_id, row)
    found: dict[str, list[float]] = {}
    for result in newest.values():
        entries = [e for e in (result.document or {}).get("results", []) if e["path"] == "native"]
        for name, (rate, _) in plausibility.best(entries).items():
            found.setdefault(name, []).append(rate)
    return found


# --- by file, and by a person -----------------------------------------------------------------------------------


def import_file(body: bytes, approve: bool = False, by: str = "") -> Result:
    """A result that came by hand. Unsigned: shown, but used only when a person approves it."""
    digest = hashlib.sha256(body).hexdigest()
    document = intake.read(body, settings.PROBE_MAX_RESULT_BYTES)
    earlier = Result.objects.filter(body_hash=digest, job=None).first()
    if earlier:
        if approve and earlier.reasons == [UNSIGNED]:
            release(earlier, by)
        return earlier
    chip = devices.chip_of(document["device"])
    findings = [*replayed(digest), *examined(document, chip, None, None, None)]
    reasons = [f.text for f in findings if f.grave] + ([] if approve else [UNSIGNED])
    remarks = [f.text for f in findings if not f.grave]
    state = State.QUARANTINED if reasons else State.ACCEPTED
    released = {"released_by": by or "import", "released_at": timezone.now()} if approve else {}
    with transaction.atomic():
        owner = {"organisation": default_organisation(), **released}
        return store(document, digest, state, reasons, remarks, chip, owner)


def release(result: Result, by: str = "") -> bool:
    """A person lets a quarantined result count; True when it was in quarantine."""
    rows = Result.objects.filter(pk=result.pk, state=State.QUARANTINED)
    done = rows.update(state=State.ACCEPTED, released_at=timezone.now(), released_by=by[:150] or "somebody")
    if done:
        wake(result.pk)
    result.refresh_from_db()
    return bool(done)


def wake(pk: int) -> bool:
    """Ask a worker to calibrate from it; the sweep does so again when the broker is away."""
    try:
        app.send_task("probes.calibrate", args=[pk])
    except (BrokerError, OSError) as error:
        log.warning("broker away", result=pk, error=str(error))
        return False
    return True
