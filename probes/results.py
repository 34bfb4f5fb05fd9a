"""What becomes of a result: checked for its signature, read, examined, stored once for its attempt; then released,
confirmed or kept apart by a person."""

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

import structlog
from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet
from django.utils import timezone
from kombu.exceptions import OperationalError as BrokerError

from advisor.advise import default_organisation
from advisor.celery import app
from catalog.models import Accelerator, Organisation
from probes import agents, devices, intake, jobs, plausibility
from probes.agent import signing
from probes.agent import spec as specs
from probes.models import Agent, Lease, Measurement, Result

log = structlog.get_logger("assay.probes")
State = Result.State
USED = (State.ACCEPTED, State.LATE)
UNSIGNED = "it came as a file that no enrolled machine signed: a person decides whether it counts"
WAITS = "waiting for a second machine or a person"
STARTS_EARLY = timedelta(days=1)  # a machine's clock may be that far behind
PEER_DAYS, MOST_PEERS = 180, 200
Json = dict[str, Any]


class OtherBody(Exception):
    """This attempt has sent another result before; that one counts."""


class WrongHash(ValueError):
    """The body is not what its Idempotency-Key says: it was cut or changed on its way."""


class WrongSignature(ValueError):
    """The result is not signed by this machine for this lease; the text says what to do."""


def visible(organisation: Organisation | None = None) -> QuerySet[Result]:
    """The results of an organization (default: the default one)."""
    rows = Result.objects.filter(organisation=organisation or default_organisation()).defer("document")
    return rows.select_related("agent", "accelerator", "job")


def counted() -> QuerySet[Result]:
    """What may calibrate, and what others are compared with."""
    return Result.objects.filter(state__in=USED, excluded_at=None)


def is_vouched(result: Result) -> bool:
    """Whether it counts without a second machine: a person said so, of it or of its machine."""
    return bool(result.released_at or (result.agent and result.agent.trusted_at))


def standing(result: Result) -> str:
    """What a reader should know of whether it counts; empty: nothing."""
    if result.excluded_at:
        return f"excluded on {result.excluded_at:%Y-%m-%d} by {result.excluded_by}: its calibration was undone"
    return WAITS if result.state in USED and result.waiting else ""


def receive(agent: Agent, pk: UUID | str, attempt: int, body: bytes, declared: str, signature: str) -> Result:
    """The stored result of this attempt; the same body again changes nothing and gives the same answer."""
    digest = hashlib.sha256(body).hexdigest()
    if digest != declared.lower():
        raise WrongHash
    lease = jobs.held(agent, pk, attempt)
    check_signature(agent, lease, digest, signature)
    try:
        return sent_before(lease, digest) or _first(agent, lease, body, digest)
    except IntegrityError:  # the same attempt at the same moment: the other one was first
        earlier = sent_before(lease, digest)
        if earlier is None:
            raise
        return earlier


def check_signature(agent: Agent, lease: Lease, body_hash: str, signature: str) -> None:
    """Before anything of the body is read: it was signed by this machine, for this lease and its device."""
    if not signature:
        raise WrongSignature(
            f"The result is not signed: send the header {signing.HEADER}. Fetch the newest /agent.pyz."
        )
    known = list(agents.keys(agent))
    if not known:
        raise WrongSignature(
            "This machine has no signing key yet: start its agent again, which renews its token and gets one."
        )
    bound: Json = {
        "job_id": lease.job_id,
        "attempt": lease.attempt,
        "nonce": lease.nonce,
        "spec_hash": lease.job.spec_hash,
        "device": lease.device_hash,
        "body_hash": body_hash,
    }
    if not any(signing.same(signature, signing.of_result(key, **bound)) for key in known):
        log.warning("wrong signature", agent=agent.pk, job=str(lease.job_id), attempt=lease.attempt)
        raise WrongSignature(
            "The signature does not match: it must be made with this machine's key, over this job, attempt, nonce, "
            "suite and device and over the body as it was sent. A result made for another lease cannot be used."
        )


def sent_before(lease: Lease, digest: str) -> Result | None:
    earlier = Result.objects.filter(job_id=lease.job_id, attempt=lease.attempt).first()
    if earlier and earlier.body_hash != digest:
        raise OtherBody
    return earlier


def _first(agent: Agent, lease: Lease, body: bytes, digest: str) -> Result:
    owner: Json = {"organisation": agent.organisation, "agent": agent, "job": lease.job, "attempt": lease.attempt}
    try:
        document = intake.read(body, settings.PROBE_MAX_RESULT_BYTES, lease.leased_at - STARTS_EARLY)
    except intake.IntakeError as error:
        return _refuse(owner, lease, digest, error)
    wall_s = (timezone.now() - lease.leased_at).total_seconds()
    chip = devices.chip_of(document["device"], agent.labels.get("accelerator"))
    findings = [*issued(document, lease.job), *mismatch(document, agent), *other_device(document, lease)]
    findings += [*replayed(digest), *examined(document, chip, agent, wall_s)]
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
        device_hash=signing.device_identity(document["device"]) if document["device"].get("uuid_hash") else "",
        chips=document["device"]["count"],
        backend=document["backend"],
        suite=document["suite"],
        suite_version=document["suite_version"],
        method=method_of(document["suite_version"]),
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
    document: Json, chip: Accelerator | None, agent: Agent | None, wall_s: float | None
) -> list[plausibility.Finding]:
    bounds = bounds_of(chip) if chip else None
    return [*told_suite(document), *plausibility.examine(document, bounds, wall_s, peers(chip, agent, document))]


def method_of(suite_version: str) -> str:
    """How it was measured, as far as this server knows. A version that it never released is no way out of being
    compared: it counts as what the server issues now."""
    return specs.METHODS.get(suite_version, specs.METHODS[specs.SUITE_VERSION])


def issued(document: Json, job: jobs.Job) -> list[plausibility.Finding]:
    """What the server asked for and what came back: the server's own record decides."""
    found = []
    if document["spec_hash"] != job.spec_hash or document["suite"] != job.spec["suite"]:
        found.append("it answers another spec than the one it was given")
    if document["suite_version"] != job.suite_version:
        said = document["suite_version"]
        found.append(f"it says suite version {said!r}, this server issued {job.suite_version!r}: fetch /agent.pyz anew")
    return [plausibility.Finding(True, text) for text in found]


def told_suite(document: Json) -> list[plausibility.Finding]:
    """Whether what the document says of its suite is one that exists, and fits together."""
    found = []
    if document["suite_version"] not in specs.METHODS:
        known = ", ".join(sorted(specs.METHODS))
        found.append(f"there is no suite version {document['suite_version']!r}: those released are {known}")
    if document["spec_hash"] != specs.spec_hash(document["spec"]) or document["suite"] != document["spec"].get("suite"):
        found.append("its suite, its spec and the hash of its spec do not fit together")
    return [plausibility.Finding(True, text) for text in found]


def other_device(document: Json, lease: Lease) -> list[plausibility.Finding]:
    """Whether it was measured on the device that asked for the job, and that on the one that was enrolled."""
    measured = signing.device_identity(document["device"])
    if lease.device_hash and measured != lease.device_hash:
        return [plausibility.Finding(True, "it was measured on another device than the one that asked for the job")]
    enrolled = lease.agent.device
    if enrolled.get("uuid_hash") and measured != signing.device_identity(enrolled):
        text = "it was measured on another device than the one that was enrolled: enroll the machine again"
        return [plausibility.Finding(True, text)]
    return []


def bounds_of(a: Accelerator) -> plausibility.Chip:
    """The engine's view of the chip, in SI."""
    from advisor.inputs import catalog_chip  # here: the web tier loads the engine with its first result

    chip = catalog_chip(a)
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


def peers(chip: Accelerator | None, agent: Agent | None, document: Json) -> plausibility.Peers:
    """Headline rates of the other machines with this chip, the newest of each, by the server's own idea of what can
    be compared; apart from each other: those of the same suite, and of every suite where they are confirmed."""
    if chip is None:
        return plausibility.Peers()
    since, method = timezone.now() - timedelta(days=PEER_DAYS), method_of(document["suite_version"])
    rows = counted().filter(accelerator=chip, method=method, received_at__gt=since).exclude(agent=None)
    rows = rows.exclude(agent=agent).select_related("agent")
    same_suite: dict[Any, Result] = {}
    confirmed: dict[Any, Result] = {}
    for row in rows.order_by("-received_at", "-pk")[:MOST_PEERS]:
        if row.suite == document["suite"]:
            same_suite.setdefault(row.agent_id, row)
        if is_vouched(row) or (row.fit and not row.waiting):
            confirmed.setdefault(row.agent_id, row)
    return plausibility.Peers(same_suite=rates(same_suite.values()), confirmed=rates(confirmed.values()))


def rates(rows: Iterable[Result]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for result in rows:
        entries = [e for e in (result.document or {}).get("results", []) if e["path"] == "native"]
        for name, (rate, _) in plausibility.best(entries).items():
            found.setdefault(name, []).append(rate)
    return found


# --- by file, and by a person -----------------------------------------------------------------------------------


def import_file(body: bytes, approve: bool = False, by: str = "") -> Result:
    """A result that came by hand. An enrolled machine's signature makes it that machine's; without one it is shown,
    but used only when a person approves it."""
    digest = hashlib.sha256(body).hexdigest()
    document = intake.read(body, settings.PROBE_MAX_RESULT_BYTES)
    agent, doubt = signer(document)
    earlier = Result.objects.filter(body_hash=digest, job=None).first()
    if earlier:
        if approve and (earlier.reasons in ([UNSIGNED], []) and not earlier.released_at):
            release(earlier, by)
        return earlier
    chip = devices.chip_of(document["device"], agent.labels.get("accelerator") if agent else None)
    findings = [*(mismatch(document, agent) if agent else []), *replayed(digest)]
    findings += examined(document, chip, agent, None)
    reasons = [f.text for f in findings if f.grave] + [text for text in doubt if not (approve and text == UNSIGNED)]
    remarks = [f.text for f in findings if not f.grave]
    state = State.QUARANTINED if reasons else State.ACCEPTED
    released = {"released_by": by or "import", "released_at": timezone.now()} if approve and not reasons else {}
    with transaction.atomic():
        owner = {"organisation": default_organisation(), "agent": agent, **released}
        return store(document, digest, state, reasons, remarks, chip, owner)


def signer(document: Json) -> tuple[Agent | None, list[str]]:
    """The machine whose signature this file carries, else what speaks against it."""
    given = document.get(signing.FIELD)
    if not given:
        return None, [UNSIGNED]
    agent = Agent.objects.filter(organisation=default_organisation(), install_id=given["install_id"]).first()
    if agent is None:
        return None, [UNSIGNED]
    expected = (signing.of_file(key, given["install_id"], document) for key in agents.keys(agent))
    if not any(signing.same(given["value"], value) for value in expected):
        return None, [f"its signature is not that of {agent.name}: it was changed, or that machine has another key now"]
    return agent, [f"it is signed by {agent.name}, which is revoked"] if agent.revoked_at else []


def release(result: Result, by: str = "") -> bool:
    """A person lets a result count that is in quarantine, waits for a second machine, or was excluded by an undo;
    True when it was one of these."""
    doubted = Q(state=State.QUARANTINED) | Q(state__in=USED, released_at=None) | Q(excluded_at__isnull=False)
    rows = Result.objects.filter(doubted, pk=result.pk).exclude(state__in=[State.REJECTED, State.SUPERSEDED])
    done = rows.update(
        state=State.ACCEPTED,
        released_at=timezone.now(),
        released_by=by[:150] or "somebody",
        excluded_at=None,
        excluded_by="",
        fitted_at=None,
    )
    if done:
        wake(result.pk)
    result.refresh_from_db()
    return bool(done)


def fit_again(agent: Agent) -> int:
    """Its results that wait are looked at again: whether they count has changed with the trust in the machine."""
    waiting = counted().filter(agent=agent).exclude(waiting=[]).values_list("pk", flat=True)
    pks = list(waiting)
    Result.objects.filter(pk__in=pks).update(fitted_at=None)
    for pk in pks:
        wake(pk)
    return len(pks)


def wake(pk: int) -> bool:
    """Ask a worker to calibrate from it; the sweep does so again when the broker is away."""
    try:
        app.send_task("probes.calibrate", args=[pk])
    except (BrokerError, OSError) as error:
        log.warning("broker away", result=pk, error=str(error))
        return False
    return True
