"""Use cases of results: verify the signature, parse, check for plausibility, store once per attempt, release."""

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

from advisor.celery import app
from catalog import clock
from catalog.accounts import audit
from catalog.models import DEFAULT_ORGANISATION, Accelerator, Organisation, default_organisation
from probes.agent import spec as specs
from probes.agent.server import signing
from probes.machines import agents, devices, jobs
from probes.models import Agent, Lease, Measurement, Result
from probes.received import intake, plausibility

log = structlog.get_logger("assay.probes")
State = Result.State
USED = (State.ACCEPTED, State.LATE)
# Compared with stored reasons: do not change this text.
UNSIGNED = "it came as a file that no enrolled machine signed: a person decides whether it counts"
AWAITING = "waiting for a second machine or a person"
MAX_CLOCK_LAG = timedelta(days=1)  # a machine's clock may be this far behind
PEER_DAYS, MAX_PEERS = 180, 200
Json = dict[str, Any]


class OtherBody(Exception):
    """This attempt already sent a different result, which is kept."""


class WrongHash(ValueError):
    """The body does not match its Idempotency-Key: it was truncated or changed in transit."""


class WrongSignature(ValueError):
    """The result is not signed by this machine for this lease; the message says what to do."""


def visible(organisation: Organisation) -> QuerySet[Result]:
    """The results of an organization."""
    rows = Result.objects.filter(organisation=organisation).defer("document", "report")
    return rows.select_related("agent", "accelerator", "job", "organisation")


def usable() -> QuerySet[Result]:
    """The results of all organizations that count: others of the same organization are compared with them."""
    return Result.objects.filter(state__in=USED, excluded_at=None)


def calibrated_for(organisation: Organisation) -> Organisation | None:
    """Whose answers an organization's results calibrate: its own; None: everybody's, of the default organization."""
    return None if organisation.slug == DEFAULT_ORGANISATION else organisation


def is_trusted(result: Result) -> bool:
    """Whether it counts without a second machine: a person released it or trusts its machine."""
    return bool(result.released_at or (result.agent and result.agent.trusted_at))


def standing(result: Result) -> str:
    """Why a result does not count yet, or no longer; empty if it does."""
    if result.excluded_at:
        return f"excluded on {result.excluded_at:%Y-%m-%d} by {result.excluded_by}: its calibration was undone"
    return AWAITING if result.state in USED and result.waiting else ""


def receive(agent: Agent, pk: UUID | str, attempt: int, body: bytes, declared: str, signature: str) -> Result:
    """Stores the result of an attempt; repeating the same body returns the same result.

    Raises WrongHash, WrongSignature, OtherBody, or jobs.NoSuchJob. `declared`: the Idempotency-Key.
    """
    digest = hashlib.sha256(body).hexdigest()
    if digest != declared.lower():
        raise WrongHash
    lease = jobs.lease_of(agent, pk, attempt)
    check_signature(agent, lease, digest, signature)
    try:
        return earlier_result(lease, digest) or _store_first(agent, lease, body, digest)
    except IntegrityError:  # a concurrent request stored it first
        earlier = earlier_result(lease, digest)
        if earlier is None:
            raise
        return earlier


def check_signature(agent: Agent, lease: Lease, body_hash: str, signature: str) -> None:
    """WrongSignature unless this machine signed the body for this lease. Called before the body is parsed."""
    if not signature:
        raise WrongSignature(
            f"The result is not signed; send the header {signing.HEADER}. Download the newest /agent.pyz."
        )
    known = list(agents.keys(agent))
    if not known:
        raise WrongSignature(
            "This machine has no signing key yet. Restart its agent: it rotates its token and gets a key."
        )
    signed_fields: Json = {
        "job_id": lease.job_id,
        "attempt": lease.attempt,
        "nonce": lease.nonce,
        "spec_hash": lease.job.spec_hash,
        "device": lease.device_hash,
        "body_hash": body_hash,
    }
    if not any(signing.same(signature, signing.of_result(key, **signed_fields)) for key in known):
        log.warning("wrong signature", agent=agent.pk, job=str(lease.job_id), attempt=lease.attempt)
        raise WrongSignature(
            "The signature does not match. It must use this machine's key and cover this job, attempt, nonce, suite "
            "and device, and the body as sent. A result from another lease cannot be used."
        )


def earlier_result(lease: Lease, digest: str) -> Result | None:
    """The result that this attempt already sent, if any. OtherBody: its body differs."""
    earlier = Result.objects.filter(job_id=lease.job_id, attempt=lease.attempt).first()
    if earlier and earlier.body_hash != digest:
        raise OtherBody
    return earlier


def _store_first(agent: Agent, lease: Lease, body: bytes, digest: str) -> Result:
    owner: Json = {"organisation": agent.organisation, "agent": agent, "job": lease.job, "attempt": lease.attempt}
    try:
        document = intake.read(body, settings.PROBE_MAX_RESULT_BYTES, lease.leased_at - MAX_CLOCK_LAG)
    except intake.IntakeError as error:
        return _refuse(owner, lease, digest, error)
    wall_s = (clock.read() - lease.leased_at).total_seconds()
    chip = devices.chip_of(document["device"], agent.labels.get("accelerator"))
    findings = [*job_findings(document, lease.job), *chip_findings(document, agent), *device_findings(document, lease)]
    findings += duplicate_findings(digest, agent.organisation)
    findings += plausibility_findings(document, chip, agent, wall_s, agent.organisation)
    with transaction.atomic():
        state = jobs.finish(lease)
        reasons = [f.text for f in findings if f.serious]
        if reasons and state != State.SUPERSEDED:
            state = State.QUARANTINED
        elif state == State.SUPERSEDED:
            reasons = ["a newer attempt has this job, or it had already ended; this result is stored but never used"]
        return store(document, digest, state, reasons, [f.text for f in findings if not f.serious], chip, owner)


def _refuse(owner: Json, lease: Lease, digest: str, error: intake.IntakeError) -> Result:
    """Stores an unreadable result and fails its job without a retry, since the agent would send the same again."""
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
    """Stores a document and its measurements. A used result is fitted after the transaction commits."""
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
        peak_bytes=e.get("peak_bytes"),
        parts_s=e.get("parts_s"),
    )


# --- checks -----------------------------------------------------------------------------------------------------


def plausibility_findings(
    document: Json, chip: Accelerator | None, agent: Agent | None, wall_s: float | None, organisation: Organisation
) -> list[plausibility.Finding]:
    bounds = bounds_of(chip, document) if chip else None
    known = peers(chip, agent, document, organisation)
    return [*suite_findings(document), *plausibility.examine(document, bounds, wall_s, known)]


def method_of(suite_version: str) -> str:
    """The measurement method of a suite version. Unknown versions count as the current one and are compared too."""
    return specs.METHODS.get(suite_version, specs.METHODS[specs.SUITE_VERSION])


def job_findings(document: Json, job: jobs.Job) -> list[plausibility.Finding]:
    """Whether the document belongs to the job, according to the server's record."""
    texts = []
    if document["spec_hash"] != job.spec_hash or document["suite"] != job.spec["suite"]:
        texts.append("its spec differs from that of the job")
    if document["suite_version"] != job.suite_version:
        reported = document["suite_version"]
        texts.append(f"its suite version is {reported!r}, but the job has {job.suite_version!r}; update /agent.pyz")
    return [plausibility.Finding(True, text) for text in texts]


def suite_findings(document: Json) -> list[plausibility.Finding]:
    """Whether the suite version exists, and suite, spec and spec hash are consistent."""
    texts = []
    if document["suite_version"] not in specs.METHODS:
        known = ", ".join(sorted(specs.METHODS))
        texts.append(f"unknown suite version {document['suite_version']!r}; released versions are {known}")
    if document["spec_hash"] != specs.spec_hash(document["spec"]) or document["suite"] != document["spec"].get("suite"):
        texts.append("its suite, spec and spec hash are inconsistent")
    return [plausibility.Finding(True, text) for text in texts]


def device_findings(document: Json, lease: Lease) -> list[plausibility.Finding]:
    """Whether it was measured on the device that leased the job, and on the one that was enrolled."""
    measured = signing.device_identity(document["device"])
    if lease.device_hash and measured != lease.device_hash:
        return [plausibility.Finding(True, "it was measured on a different device than the one that leased the job")]
    enrolled = lease.agent.device
    if enrolled.get("uuid_hash") and measured != signing.device_identity(enrolled):
        text = "it was measured on a different device than the one that was enrolled; enroll the machine again"
        return [plausibility.Finding(True, text)]
    return []


def bounds_of(a: Accelerator, document: Json) -> plausibility.Chip:
    """The limits of a chip, in SI units."""
    # imported here so that the web tier loads the engine only when needed
    from advisor.engine.calibration import measured_cores, measured_share
    from advisor.inputs import catalog_chip

    chip = catalog_chip(a)
    return plausibility.Chip(
        slug=chip.slug,
        memory_bytes=chip.memory_bytes,
        memory_bytes_per_s=chip.memory_bytes_per_s,
        flops_per_s=chip.flops_per_s,
        cache_bytes=chip.sram_bytes,
        link_bytes_per_s=chip.links[0].bytes_per_s if chip.links else 0.0,
        host_bytes_per_s=0.0 if math.isnan(chip.pcie_bytes_per_s) else chip.pcie_bytes_per_s,
        share=measured_share(chip, measured_cores(document)) if chip.kind == "cpu" else 1.0,
    )


def chip_findings(document: Json, agent: Agent) -> list[plausibility.Finding]:
    """Whether the device matches the agent's accelerator."""
    expected, device = agent.labels.get("accelerator"), document["device"]
    if not expected or devices.chip_of(device, expected):
        return []
    measured = f"{device['name']} with {(device['memory_bytes'] or 0) / devices.GIB:.4g} GiB"
    return [plausibility.Finding(True, f"{measured} is not the {expected} of this machine")]


def duplicate_findings(digest: str, organisation: Organisation) -> list[plausibility.Finding]:
    """Whether the organization already sent the same bytes."""
    earlier = Result.objects.filter(organisation=organisation, body_hash=digest).exclude(state=State.REJECTED).first()
    return [plausibility.Finding(True, f"identical to result {earlier.pk}")] if earlier else []


def peers(
    chip: Accelerator | None, agent: Agent | None, document: Json, organisation: Organisation
) -> plausibility.Peers:
    """Headline rates of the organization's other machines with this chip and method: the newest result of each.

    Of the same suite, and, among confirmed results, of any suite.
    """
    if chip is None:
        return plausibility.Peers()
    since, method = clock.read() - timedelta(days=PEER_DAYS), method_of(document["suite_version"])
    rows = usable().filter(organisation=organisation, accelerator=chip, method=method, received_at__gt=since)
    rows = rows.exclude(agent=None)
    rows = rows.exclude(agent=agent).select_related("agent")
    same_suite: dict[Any, Result] = {}
    confirmed: dict[Any, Result] = {}
    for row in rows.order_by("-received_at", "-pk")[:MAX_PEERS]:
        if row.suite == document["suite"]:
            same_suite.setdefault(row.agent_id, row)
        if is_trusted(row) or (row.fit and not row.waiting):
            confirmed.setdefault(row.agent_id, row)
    return plausibility.Peers(same_suite=rates(same_suite.values()), confirmed=rates(confirmed.values()))


def rates(rows: Iterable[Result]) -> dict[str, list[float]]:
    """The headline rates of several results, by name."""
    by_name: dict[str, list[float]] = {}
    for result in rows:
        entries = [e for e in (result.document or {}).get("results", []) if e["path"] == "native"]
        for name, (rate, _) in plausibility.best(entries).items():
            by_name.setdefault(name, []).append(rate)
    return by_name


# --- import and release -----------------------------------------------------------------------------------------


class AlreadyUsed(ValueError):
    """The result already calibrates another accelerator; the message says what to do."""


def import_file(body: bytes, approve: bool = False, by: str = "", slug: str = "") -> Result:
    """Stores a result from a file. One signed by an enrolled machine belongs to that machine.

    `slug`: the accelerator that a person names; else the one that matches the device. An unsigned result is
    quarantined unless `approve` is set. IntakeError: the document is invalid. ValueError: `slug` cannot be the
    accelerator. AlreadyUsed: an earlier import of the file calibrates another accelerator.
    """
    digest = hashlib.sha256(body).hexdigest()
    document = intake.read(body, settings.PROBE_MAX_RESULT_BYTES)
    owner = default_organisation()
    agent, problems = signer(document, owner)
    earlier = Result.objects.filter(organisation=owner, body_hash=digest, job=None).first()
    given = devices.named(slug, document) if slug else None
    if earlier and given in (None, earlier.accelerator):
        if approve and (earlier.reasons in ([UNSIGNED], []) and not earlier.released_at):
            release(earlier, by)
        return earlier
    if earlier and earlier.calibration_id:
        used = earlier.accelerator.slug if earlier.accelerator else "another accelerator"
        raise AlreadyUsed(
            f"result {earlier.pk} of this file calibrates {used}; undo that first: "
            f"manage.py calibrations undo {earlier.calibration_id}"
        )
    expected = devices.chip_of(document["device"], agent.labels.get("accelerator") if agent else None)
    chip = given or expected
    findings = [] if given else (chip_findings(document, agent) if agent else [])
    findings += [] if earlier else duplicate_findings(digest, owner)
    findings += plausibility_findings(document, chip, agent, None, owner)
    reasons = [f.text for f in findings if f.serious] + [
        text for text in problems if not (approve and text == UNSIGNED)
    ]
    remarks = [f.text for f in findings if not f.serious]
    if given and given != expected:
        remarks.append(
            f"{by or 'a person'} named {given.slug}; the device is {devices.device_text(document['device'])}"
        )
    state = State.QUARANTINED if reasons else State.ACCEPTED
    released = {"released_by": by or "import", "released_at": timezone.now()} if approve and not reasons else {}
    with transaction.atomic():
        if earlier:  # imported before for another accelerator, or for none
            earlier.delete()
        of = {"organisation": owner, "agent": agent, **released}
        return store(document, digest, state, reasons, remarks, chip, of)


def signer(document: Json, organisation: Organisation) -> tuple[Agent | None, list[str]]:
    """The machine that signed this file (None without a valid signature), and reasons not to use it."""
    signature = document.get(signing.FIELD)
    if not signature:
        return None, [UNSIGNED]
    agent = Agent.objects.filter(organisation=organisation, install_id=signature["install_id"]).first()
    if agent is None:
        return None, [UNSIGNED]
    expected = (signing.of_file(key, signature["install_id"], document) for key in agents.keys(agent))
    if not any(signing.same(signature["value"], value) for value in expected):
        return None, [f"its signature is not that of {agent.name}: the file was changed, or the machine has a new key"]
    return agent, [f"it is signed by {agent.name}, which is revoked"] if agent.revoked_at else []


def release(result: Result, by: str = "") -> bool:
    """Lets a quarantined, waiting or excluded result count, on a person's decision. False: it was none of these."""
    releasable = Q(state=State.QUARANTINED) | Q(state__in=USED, released_at=None) | Q(excluded_at__isnull=False)
    rows = Result.objects.filter(releasable, pk=result.pk).exclude(state__in=[State.REJECTED, State.SUPERSEDED])
    with transaction.atomic():
        released = rows.update(
            state=State.ACCEPTED,
            released_at=timezone.now(),
            released_by=by[:150] or "somebody",
            excluded_at=None,
            excluded_by="",
            fitted_at=None,
        )
        if released:
            audit.record(result.organisation, by, audit.Action.RESULT, f"result {result.pk}", result.device_name)
    if released:
        wake(result.pk)
    result.refresh_from_db()
    return bool(released)


def refit_waiting(agent: Agent) -> int:
    """Fits the agent's waiting results again, after its trust changed. Returns how many."""
    waiting = usable().filter(agent=agent).exclude(waiting=[]).values_list("pk", flat=True)
    pks = list(waiting)
    Result.objects.filter(pk__in=pks).update(fitted_at=None)
    for pk in pks:
        wake(pk)
    return len(pks)


def wake(pk: int) -> bool:
    """Sends the task that fits a result. False: the broker is unavailable; the sweep sends it again."""
    try:
        app.send_task("probes.calibrate", args=[pk])
    except (BrokerError, OSError) as error:
        log.warning("broker away", result=pk, error=str(error))
        return False
    return True
