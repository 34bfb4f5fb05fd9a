"""Agents and enrollments, probe jobs and their leases, results and their measurements."""

import uuid
from typing import Any

from django.db import models
from django.db.models import Q
from django.utils import timezone

from advisor.models import Advice
from catalog.models import Accelerator, Calibration, Organisation


class Agent(models.Model):
    """A registered machine; its token is stored hashed."""

    organisation = models.ForeignKey(Organisation, on_delete=models.PROTECT)
    install_id = models.CharField(max_length=80, blank=True)  # chosen by the agent; the same if it registers again
    name = models.CharField(max_length=120)
    agent_version = models.CharField(max_length=40, blank=True)
    token_hash = models.CharField(max_length=64, unique=True)
    token_prefix = models.CharField(max_length=16, blank=True)
    old_token_hash = models.CharField(max_length=64, blank=True, db_index=True)  # valid until old_token_until
    old_token_until = models.DateTimeField(null=True, blank=True)
    token_expires_at = models.DateTimeField(null=True, blank=True)
    key_salt = models.CharField(max_length=64, blank=True)  # with SECRET_KEY, gives the signing key
    old_key_salt = models.CharField(max_length=64, blank=True)  # valid until old_token_until
    confirmed_at = models.DateTimeField(null=True, blank=True)  # first call with the newest token
    trusted_at = models.DateTimeField(null=True, blank=True)  # its results count without a second machine
    trusted_by = models.CharField(max_length=150, blank=True)
    labels = models.JSONField(default=dict, blank=True)
    inventory = models.JSONField(default=dict, blank=True)
    capabilities = models.JSONField(default=dict, blank=True)
    registered_at = models.DateTimeField(default=timezone.now)
    last_seen_at = models.DateTimeField(null=True, blank=True, db_index=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["name", "pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["organisation", "install_id"], condition=~Q(install_id=""), name="one_agent_an_installation"
            )
        ]

    @property
    def device(self) -> dict[str, Any]:
        """The device as reported at registration."""
        device = self.inventory.get("device", self.inventory)
        return device if isinstance(device, dict) else {}

    @property
    def device_name(self) -> str:
        return str(self.device.get("name") or "")


class Enrolment(models.Model):
    """An enrollment token, which registers one agent within an hour. It is shown once."""

    organisation = models.ForeignKey(Organisation, on_delete=models.PROTECT)
    token_hash = models.CharField(max_length=64, unique=True)
    token_prefix = models.CharField(max_length=16)
    labels = models.JSONField(default=dict, blank=True)  # override the agent's own labels
    made_by = models.CharField(max_length=150, blank=True)
    made_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True, blank=True)
    agent = models.ForeignKey(Agent, null=True, blank=True, on_delete=models.SET_NULL, related_name="enrolments")
    trusted = models.BooleanField(default=False)  # its machine is trusted at once
    claims = models.ForeignKey(Agent, null=True, blank=True, on_delete=models.CASCADE, related_name="claimants")
    claimed_at = models.DateTimeField(null=True, blank=True)  # when a request without proof asked to replace `claims`
    claim = models.JSONField(default=dict, blank=True)  # name, device and address of that request
    approved_at = models.DateTimeField(null=True, blank=True)
    approved_by = models.CharField(max_length=150, blank=True)

    class Meta:
        ordering = ["-made_at"]


class Job(models.Model):
    """A suite to run on one machine. The row is the source of truth; finished jobs never change."""

    class State(models.TextChoices):
        QUEUED = "queued"
        LEASED = "leased"
        DONE = "done"
        FAILED = "failed"
        CANCELLED = "cancelled"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    organisation = models.ForeignKey(Organisation, on_delete=models.PROTECT)
    spec = models.JSONField()  # suite, kinds, max_s, max_bytes: data, never code
    spec_hash = models.CharField(max_length=64)
    suite_version = models.CharField(max_length=20, default="1")  # as issued by this server
    wanted = models.JSONField(default=dict, blank=True)  # labels that the agent must have
    wanted_key = models.CharField(max_length=600, blank=True)  # `wanted` as canonical JSON, for polls
    wanted_agent = models.ForeignKey(Agent, null=True, blank=True, on_delete=models.CASCADE, related_name="wanted_by")
    advice = models.ForeignKey(Advice, null=True, blank=True, on_delete=models.CASCADE, related_name="probe_jobs")
    requested_by = models.CharField(max_length=150, blank=True)
    requested_at = models.DateTimeField(default=timezone.now)
    deadline_at = models.DateTimeField()  # the job fails if no machine took it by then
    state = models.CharField(max_length=12, choices=State, default=State.QUEUED)
    not_before_at = models.DateTimeField(default=timezone.now)
    attempt = models.PositiveIntegerField(default=0)
    agent = models.ForeignKey(Agent, null=True, blank=True, on_delete=models.SET_NULL, related_name="jobs")
    lease_expires_at = models.DateTimeField(null=True, blank=True)
    stage = models.CharField(max_length=60, blank=True)
    done_steps = models.PositiveIntegerField(default=0)
    total_steps = models.PositiveIntegerField(default=0)
    finished_at = models.DateTimeField(null=True, blank=True)
    error = models.TextField(blank=True)

    class Meta:
        ordering = ["-requested_at"]
        indexes = [
            models.Index(fields=["state", "not_before_at", "requested_at"]),
            models.Index(fields=["state", "lease_expires_at"]),
            models.Index(fields=["organisation", "-requested_at"], name="newest_job"),
        ]
        constraints = [
            models.CheckConstraint(
                condition=~Q(state="leased") | Q(lease_expires_at__isnull=False, attempt__gt=0),
                name="leased_has_a_lease",
            ),
            models.CheckConstraint(condition=~Q(state="failed") | ~Q(error=""), name="failed_job_has_a_reason"),
        ]


class Lease(models.Model):
    """One attempt at a job: its agent, its deadline and how it ended."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="leases")
    attempt = models.PositiveIntegerField()
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="leases")
    leased_at = models.DateTimeField(default=timezone.now)
    nonce = models.CharField(max_length=64, blank=True)  # covered by the signature; empty: leased by an old version
    device_hash = models.CharField(max_length=64, blank=True)  # signing.device_identity of the requesting device
    deadline_at = models.DateTimeField()  # heartbeats cannot extend the lease beyond this
    ended_at = models.DateTimeField(null=True, blank=True)
    ended = models.CharField(max_length=20, blank=True)  # result | failed | lost | cancelled
    code = models.CharField(max_length=60, blank=True)
    log = models.TextField(blank=True)

    class Meta:
        ordering = ["job", "attempt"]
        constraints = [models.UniqueConstraint(fields=["job", "attempt"], name="one_lease_an_attempt")]


class Result(models.Model):
    """The result of one attempt, or of an imported file (no job), with the document as sent."""

    class State(models.TextChoices):
        ACCEPTED = "accepted"
        LATE = "late"  # after the lease expired, but before another attempt started
        SUPERSEDED = "superseded"  # a newer attempt has the job, or it was canceled; never used
        QUARANTINED = "quarantined"
        REJECTED = "rejected"

    organisation = models.ForeignKey(Organisation, on_delete=models.PROTECT)
    agent = models.ForeignKey(Agent, null=True, blank=True, on_delete=models.SET_NULL, related_name="results")
    job = models.ForeignKey(Job, null=True, blank=True, on_delete=models.CASCADE, related_name="results")
    attempt = models.PositiveIntegerField(default=0)
    body_hash = models.CharField(max_length=64, db_index=True)
    state = models.CharField(max_length=12, choices=State)
    reasons = models.JSONField(default=list, blank=True)  # why it is not used
    remarks = models.JSONField(default=list, blank=True)  # warnings that do not prevent its use
    received_at = models.DateTimeField(default=timezone.now)
    released_at = models.DateTimeField(null=True, blank=True)
    released_by = models.CharField(max_length=150, blank=True)
    accelerator = models.ForeignKey(
        Accelerator, null=True, blank=True, on_delete=models.PROTECT, related_name="probe_results"
    )
    device_name = models.CharField(max_length=120, blank=True)
    chips = models.PositiveIntegerField(default=1)
    backend = models.CharField(max_length=20, blank=True)
    suite = models.CharField(max_length=20, blank=True)
    suite_version = models.CharField(max_length=20, blank=True)  # as stated by the agent
    method = models.CharField(max_length=20, default="1")  # set by the server; only results of one method are compared
    device_hash = models.CharField(max_length=64, blank=True)  # identifies a device enrolled under two names
    waiting = models.JSONField(default=list, blank=True)  # names of figures that wait for a second machine or a person
    excluded_at = models.DateTimeField(null=True, blank=True)  # its calibration was undone
    excluded_by = models.CharField(max_length=150, blank=True)
    started_at = models.DateTimeField(null=True, blank=True)  # by the agent's clock
    duration_s = models.FloatField(null=True, blank=True)
    document = models.JSONField(null=True, blank=True)
    fit = models.JSONField(null=True, blank=True)  # values, intervals and sources
    report = models.JSONField(default=dict, blank=True)  # each figure before and after, or why it is not used
    fitted_at = models.DateTimeField(null=True, blank=True)
    calibration = models.ForeignKey(Calibration, null=True, blank=True, on_delete=models.PROTECT)

    class Meta:
        ordering = ["-received_at", "-pk"]
        indexes = [
            models.Index(fields=["state", "fitted_at"]),
            models.Index(fields=["organisation", "-received_at", "-id"], name="newest_result"),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["job", "attempt"], condition=Q(job__isnull=False), name="one_result_an_attempt"
            ),
            models.CheckConstraint(
                condition=~Q(state__in=["quarantined", "rejected"]) | ~Q(reasons=[]), name="unused_result_has_a_reason"
            ),
        ]


class Measurement(models.Model):
    """One entry of a result, in SI units. Rates are computed here, never taken from the agent."""

    result = models.ForeignKey(Result, on_delete=models.CASCADE, related_name="measurements")
    kind = models.CharField(max_length=30)
    key = models.JSONField(default=dict)
    path = models.CharField(max_length=12)  # native | reference
    kernel = models.CharField(max_length=200, blank=True)
    median_s = models.FloatField()
    p10_s = models.FloatField()
    p90_s = models.FloatField()
    count = models.PositiveIntegerField()
    flops = models.FloatField(null=True, blank=True)
    bytes = models.FloatField(null=True, blank=True)
    check_error_fraction = models.FloatField(null=True, blank=True)
    check_ok = models.BooleanField(null=True)
    watts = models.FloatField(null=True, blank=True)
    throttled = models.BooleanField(null=True)
    note = models.CharField(max_length=300, blank=True)
    peak_bytes = models.FloatField(null=True, blank=True)  # of the allocator
    parts_s = models.JSONField(null=True, blank=True)  # seconds of parts timed beside the call, by name

    class Meta:
        ordering = ["pk"]
        indexes = [models.Index(fields=["result", "kind"])]

    @property
    def flops_per_s(self) -> float | None:
        return self.flops / self.median_s if self.flops else None

    @property
    def bytes_per_s(self) -> float | None:
        return self.bytes / self.median_s if self.bytes else None
