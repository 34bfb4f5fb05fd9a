"""Workloads, answers (Advice with Options), comments, load tests, share links and API tokens."""

import secrets
import uuid
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.db import models
from django.db.models import Q
from django.utils import timezone

from advisor.result import with_sections
from advisor.stored import PackedJSONField, upgraded
from catalog import clock
from catalog.models import Organisation, ServiceAccount


def keyed(organisation: Organisation, key: str, owner: str, made_by: str) -> Q:
    """Which requests an idempotency key names: those of its token or account, and those from before keys had owners.

    owner: such as token-7; empty: everybody without either shares the organization's keys.
    """
    mine = Q(key_owner=owner) | Q(key_owner="", made_by=made_by)
    return Q(organisation=organisation, idempotency_key=key) & mine


class Workload(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    organisation = models.ForeignKey(Organisation, on_delete=models.PROTECT)
    name = models.CharField(max_length=120)
    spec = models.JSONField()  # the validated workload file with all defaults
    created_at = models.DateTimeField(default=timezone.now)
    made_by = models.CharField(max_length=150, blank=True)  # user or "token NAME"; empty: single-user mode, or unknown


class Advice(models.Model):
    """One run of one workload, with state, lease and attempt. A finished one is never changed."""

    class State(models.TextChoices):
        QUEUED = "queued"
        RUNNING = "running"
        DONE = "done"
        FAILED = "failed"
        CANCELLED = "cancelled"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    organisation = models.ForeignKey(Organisation, on_delete=models.PROTECT)
    workload = models.ForeignKey(Workload, on_delete=models.PROTECT, related_name="advices")
    supersedes = models.ForeignKey("self", null=True, blank=True, on_delete=models.SET_NULL, related_name="successors")
    idempotency_key = models.CharField(max_length=80, blank=True)
    key_owner = models.CharField(max_length=40, blank=True, default="", db_default="")  # whose key it is; see `keyed`
    request_id = models.CharField(max_length=64, blank=True, default="", db_default="")  # of the HTTP request, for logs
    state = models.CharField(max_length=12, choices=State, default=State.QUEUED)
    stage = models.CharField(max_length=60, blank=True)
    progress_fraction = models.FloatField(default=0)
    attempt = models.PositiveIntegerField(default=0)
    claim = models.CharField(max_length=32, blank=True, default="", db_default="")  # of the worker that owns it
    lease_until = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    made_by = models.CharField(max_length=150, blank=True)  # who asked; empty also for one that a measurement caused
    held_until = models.DateTimeField(
        null=True, blank=True
    )  # not computed before this time, so that machines can measure
    probed = models.JSONField(null=True, blank=True)  # what machines measured for this workload
    question_key = models.CharField(max_length=64, blank=True, default="", db_default="")  # of later/asked_before.py
    reused_from = models.JSONField(null=True, blank=True)  # id and finished_at of the answer that was given again
    sent_at = models.DateTimeField(default=timezone.now)  # time of the last message to the workers
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)
    error = models.TextField(blank=True)
    engine_version = models.CharField(max_length=20, blank=True)
    catalog_version = models.CharField(max_length=64, blank=True)
    prices_as_of = models.DateField(null=True, blank=True)
    calibration_ids = models.JSONField(default=list, blank=True)  # IDs of the calibrations that the answer uses
    result_version = models.PositiveSmallIntegerField(default=1)  # stored.RESULT_VERSION when `result` was written
    snapshot = PackedJSONField(null=True, blank=True)  # the catalog rows used; a re-run from it gives the same result
    result = PackedJSONField(null=True, blank=True)  # the JSON of `advise` as stored; use `answer` to read it

    class Meta:
        ordering = ["-created_at"]
        indexes = [
            models.Index(fields=["state", "lease_until"]),
            models.Index(fields=["organisation", "-created_at"], name="newest_advice"),
            models.Index(fields=["state", "finished_at"], name="oldest_finished_advice"),
            models.Index(fields=["started_at"], name="newest_turns"),
            models.Index(fields=["organisation", "question_key"], condition=~Q(question_key=""), name="asked_before"),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["organisation", "key_owner", "idempotency_key"],
                condition=~Q(idempotency_key=""),
                name="one_advice_a_callers_key",
            ),
            models.CheckConstraint(condition=~Q(state="done") | Q(result__isnull=False), name="done_has_a_result"),
            models.CheckConstraint(condition=~Q(state="failed") | ~Q(error=""), name="failed_has_a_reason"),
            models.CheckConstraint(
                condition=~Q(state="running") | Q(lease_until__isnull=False, attempt__gt=0), name="running_has_a_lease"
            ),
        ]

    is_replay = False  # whether this row answers a repeated request; of one object, not stored

    @property
    def answer(self) -> dict[str, Any] | None:
        """The result with its sections, upgraded to the current RESULT_VERSION; None: there is none."""
        if self.result is None:
            return None
        sections = dict(self.sections.values_list("name", "content"))
        return upgraded(with_sections(self.result, sections), self.result_version)

    @property
    def completion_or_none(self) -> "Completion | None":
        """The work on its sections; None: its answer was computed in one step."""
        return getattr(self, "completion", None)

    @property
    def is_due(self) -> bool:
        """Whether sections beyond the first screen are still being computed."""
        completion = self.completion_or_none
        return completion is not None and completion.state in (self.State.QUEUED, self.State.RUNNING)

    @property
    def is_done(self) -> bool:
        """Whether it has a result; reads none."""
        return self.state == self.State.DONE

    @property
    def is_held(self) -> bool:
        """Whether it waits for measurements."""
        return self.state == self.State.QUEUED and self.held_until is not None and self.held_until > clock.read()


class Completion(models.Model):
    """The work on the sections of an advice beyond its first screen, with state, lease and attempt (later/sections.py).

    Answers that were computed in one step have none.
    """

    State = Advice.State

    advice = models.OneToOneField(Advice, primary_key=True, on_delete=models.CASCADE, related_name="completion")
    engine_version = models.CharField(max_length=20)  # of the verdict; other versions add nothing
    state = models.CharField(max_length=12, choices=Advice.State, default=Advice.State.QUEUED)
    attempt = models.PositiveIntegerField(default=0)
    claim = models.CharField(max_length=32, blank=True, default="")
    lease_until = models.DateTimeField(null=True, blank=True)
    sent_at = models.DateTimeField(default=timezone.now)  # time of the last message to the workers
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)
    error = models.TextField(blank=True)  # why it failed or was stopped

    class Meta:
        indexes = [models.Index(fields=["state", "lease_until"], name="due_sections")]


class AdviceSection(models.Model):
    """A section of an answer beyond its first screen, added once after the verdict by the same engine version."""

    advice = models.ForeignKey(Advice, on_delete=models.CASCADE, related_name="sections")
    name = models.CharField(max_length=20)  # of result.SECTIONS
    engine_version = models.CharField(max_length=20)
    content = PackedJSONField()  # keys of the answer and their values

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["advice", "name", "engine_version"], name="one_section_a_version")
        ]


class Study(models.Model):
    """Many questions about one state of the catalog, in pieces that workers share (studies/)."""

    class Kind(models.TextChoices):
        WORKLOADS = "workloads"
        GRID = "grid"  # one workload with changed values
        ESTIMATES = "estimates"  # models by accelerators
        PRICES = "prices"  # one workload with the prices of several days
        PORTFOLIO = "portfolio"  # the workloads of a portfolio that is being answered; not listed

    State = Advice.State
    is_replay = False  # as of Advice

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    organisation = models.ForeignKey(Organisation, on_delete=models.PROTECT)
    name = models.CharField(max_length=120)
    kind = models.CharField(max_length=12, choices=Kind)
    advice = models.OneToOneField(Advice, null=True, blank=True, on_delete=models.CASCADE)  # of a portfolio
    axes = models.JSONField(default=list)  # [name, type] of the columns of the results that tell what varies
    points = models.PositiveIntegerField()  # rows of the results
    made_by = models.CharField(max_length=150, blank=True)
    idempotency_key = models.CharField(max_length=80, blank=True)
    key_owner = models.CharField(max_length=40, blank=True, default="", db_default="")
    request_sha256 = models.CharField(max_length=64, blank=True)  # of the validated request
    state = models.CharField(max_length=12, choices=Advice.State, default=Advice.State.QUEUED)
    phase = models.PositiveSmallIntegerField(default=0)  # of the pieces that may be computed now; see StudyPiece
    wave = models.PositiveIntegerField(default=1)  # of messages; those of an earlier wave do nothing
    created_at = models.DateTimeField(default=timezone.now)
    sent_at = models.DateTimeField(default=timezone.now)  # time of the last wave of messages
    finished_at = models.DateTimeField(null=True, blank=True)
    error = models.TextField(blank=True)
    engine_version = models.CharField(max_length=20, blank=True)
    catalog_version = models.CharField(max_length=64, blank=True)
    prices_as_of = models.DateField()  # of all pieces that name no other day

    class Meta:
        ordering = ["-created_at"]
        verbose_name_plural = "studies"
        indexes = [
            models.Index(fields=["organisation", "-created_at"], name="newest_studies"),
            models.Index(fields=["state"], name="open_studies"),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["organisation", "key_owner", "idempotency_key"],
                condition=~Q(idempotency_key=""),
                name="one_study_a_callers_key",
            )
        ]


class StudyRows(models.Model):
    """Catalog rows that pieces of a study share: those of a market or of a model, read once for the whole study."""

    study = models.ForeignKey(Study, on_delete=models.CASCADE, related_name="rows")
    key = models.CharField(max_length=64)  # hash of what was asked of the catalog
    rows = PackedJSONField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["study", "key"], name="one_key_a_study")]


class StudyPiece(models.Model):
    """A few seconds of work on a study, with state, lease and attempt. Phase 0 reads the catalog, phase 1 answers."""

    State = Advice.State

    study = models.ForeignKey(Study, on_delete=models.CASCADE, related_name="pieces")
    phase = models.PositiveSmallIntegerField(default=1)
    index = models.PositiveIntegerField()  # in its phase
    points = models.JSONField()  # what to compute; see studies/plan.py
    size = models.PositiveIntegerField()  # number of points
    state = models.CharField(max_length=12, choices=Advice.State, default=Advice.State.QUEUED)
    attempt = models.PositiveIntegerField(default=0)
    claim = models.CharField(max_length=32, blank=True, default="")
    lease_until = models.DateTimeField(null=True, blank=True)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)
    error = models.TextField(blank=True)
    result = models.JSONField(null=True, blank=True)  # a row of the results for each point
    part = models.BinaryField(null=True, blank=True)  # of a portfolio; see studies/parts.py
    cpu_s = models.FloatField(null=True, blank=True)  # of the answers
    overhead_cpu_s = models.FloatField(null=True, blank=True)  # to claim the piece, read its rows and finish it

    class Meta:
        ordering = ["phase", "index"]
        indexes = [
            models.Index(fields=["study", "phase", "state", "index"], name="next_pieces"),
            models.Index(fields=["state", "lease_until"], name="expiring_pieces"),
            models.Index(fields=["started_at"], name="newest_piece_turns"),
        ]
        constraints = [
            models.UniqueConstraint(fields=["study", "phase", "index"], name="one_piece_an_index"),
            models.CheckConstraint(
                condition=~Q(state="running") | Q(lease_until__isnull=False, attempt__gt=0),
                name="running_piece_has_a_lease",
            ),
        ]


class Option(models.Model):
    """One recommendation of an Advice, with the columns that lists and queries need."""

    advice = models.ForeignKey(Advice, on_delete=models.CASCADE, related_name="options")
    rank = models.PositiveIntegerField()
    accelerator_slug = models.CharField(max_length=80)
    accelerators = models.PositiveIntegerField()
    label = models.TextField(blank=True, default="")
    usd_per_month = models.DecimalField(max_digits=16, decimal_places=2, null=True)
    usd_per_mtok_output = models.DecimalField(max_digits=16, decimal_places=6, null=True)
    usd_per_run = models.DecimalField(max_digits=16, decimal_places=2, null=True)  # of a training run

    class Meta:
        ordering = ["rank"]
        constraints = [models.UniqueConstraint(fields=["advice", "rank"], name="one_option_a_rank")]

    @property
    def detail(self) -> dict[str, Any]:
        """The recommendation's full JSON, from the advice."""
        ranked = (self.advice.answer or {})["recommendations"]
        detail: dict[str, Any] = next(r for r in ranked if r["rank"] == self.rank)
        return detail


class LoadTest(models.Model):
    """What a load generator measured on a recommended deployment. Only `calibrates` and `comparable` change later."""

    option = models.ForeignKey(Option, on_delete=models.CASCADE, related_name="load_tests")
    created_at = models.DateTimeField(default=timezone.now)
    made_by = models.CharField(max_length=150, blank=True)
    file_name = models.CharField(max_length=200, blank=True)
    file_sha256 = models.CharField(max_length=64)
    measured = models.JSONField()  # load_results.LoadResult
    calibrates = models.BooleanField(default=False)  # chosen by the user: export as measured rows
    comparable = models.BooleanField(default=False)  # its load was the predicted one, so it corrects predictions

    class Meta:
        ordering = ["created_at", "id"]
        constraints = [models.UniqueConstraint(fields=["option", "file_sha256"], name="one_load_test_a_file")]


def share_token() -> str:
    return secrets.token_urlsafe(24)


class Share(models.Model):
    """A secret, read-only, expiring link to a finished Advice; its token is stored hashed."""

    organisation = models.ForeignKey(Organisation, on_delete=models.PROTECT)
    advice = models.ForeignKey(Advice, on_delete=models.CASCADE, related_name="shares")
    token = models.CharField(max_length=64, unique=True, default=share_token)  # random and unused, for old processes
    token_hash = models.CharField(max_length=64, unique=True, null=True, editable=False)
    token_prefix = models.CharField(max_length=16, blank=True, default="", db_default="")
    created_at = models.DateTimeField(default=timezone.now)
    made_by = models.CharField(max_length=150, blank=True)
    expires_at = models.DateTimeField()


class Comment(models.Model):
    """What a member wrote about an advice. Links that are shared do not show it."""

    advice = models.ForeignKey(Advice, on_delete=models.CASCADE, related_name="comments")
    text = models.TextField(max_length=4000)
    author = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL)
    made_by = models.CharField(max_length=150, blank=True)  # as above; kept when the account is deleted
    made_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["made_at", "pk"]


class ApiToken(models.Model):
    """A token for API clients of people; only its hash is stored."""

    class Scope(models.TextChoices):
        READ = "read"
        SUBMIT = "submit"  # and submit workloads
        PRICES = "prices"  # read, and add the organization's prices and discounts
        ADMIN = "admin"  # and staff actions on machines, jobs, results and enrollments

    organisation = models.ForeignKey(Organisation, on_delete=models.PROTECT)
    name = models.CharField(max_length=120)
    scope = models.CharField(max_length=12, choices=Scope)
    token_hash = models.CharField(max_length=64, unique=True)
    token_prefix = models.CharField(max_length=16)
    # whose it is: a person's, with the rights of their role at most; a service account's; neither: the organization's
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.CASCADE, related_name="api_tokens"
    )
    service_account = models.ForeignKey(
        ServiceAccount, null=True, blank=True, on_delete=models.CASCADE, related_name="tokens"
    )
    before_accounts = models.BooleanField(default=False, db_default=False)  # made in single-user mode, ends with it
    made_by = models.CharField(max_length=150, blank=True)
    made_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField()
    last_used_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-made_at"]

    @property
    def status(self) -> str:
        """live | ended | revoked"""
        ended = self.expires_at <= clock.read() or self.is_outdated
        return "revoked" if self.revoked_at else "ended" if ended else "live"

    @property
    def is_outdated(self) -> bool:
        """Whether it was made while nobody had an account, when everybody could make one, and somebody has one now."""
        return self.before_accounts and get_user_model().objects.exists()


class WebhookEndpoint(models.Model):
    """A URL that receives events of an organization. Its secret is derived from a salt, not stored (webhooks/)."""

    organisation = models.ForeignKey(Organisation, on_delete=models.PROTECT)
    url = models.CharField(max_length=500)
    events = models.JSONField(default=list)  # types, as webhooks.EVENTS names them
    key_salt = models.CharField(max_length=64)  # with SECRET_KEY, gives the secret
    old_key_salt = models.CharField(max_length=64, blank=True)  # signs too until old_key_until
    old_key_until = models.DateTimeField(null=True, blank=True)
    made_by = models.CharField(max_length=150, blank=True)
    made_at = models.DateTimeField(default=timezone.now)
    disabled_at = models.DateTimeField(null=True, blank=True)
    disabled_because = models.CharField(max_length=200, blank=True)
    answered_at = models.DateTimeField(null=True, blank=True)  # its last success
    tried_at = models.DateTimeField(null=True, blank=True)  # the last attempt, so that endpoints take turns
    busy_until = models.DateTimeField(null=True, blank=True)  # a worker sends to it, or it is given a pause

    class Meta:
        ordering = ["pk"]


class WebhookDelivery(models.Model):
    """One event for one endpoint: written with the event, sent later, kept as the log."""

    class State(models.TextChoices):
        WAITING = "waiting"
        DELIVERED = "delivered"
        FAILED = "failed"

    endpoint = models.ForeignKey(WebhookEndpoint, on_delete=models.CASCADE, related_name="deliveries")
    event_id = models.CharField(max_length=64)  # the same in every attempt
    type = models.CharField(max_length=40)
    body = models.TextField()  # the JSON that is signed and sent
    state = models.CharField(max_length=12, choices=State, default=State.WAITING)
    attempts = models.PositiveIntegerField(default=0)
    next_attempt_at = models.DateTimeField(default=timezone.now)
    created_at = models.DateTimeField(default=timezone.now)
    ended_at = models.DateTimeField(null=True, blank=True)
    last_status = models.PositiveSmallIntegerField(null=True, blank=True)  # HTTP; None: no answer
    last_error = models.CharField(max_length=200, blank=True)

    class Meta:
        ordering = ["-created_at", "-pk"]
        verbose_name_plural = "webhook deliveries"
        indexes = [models.Index(fields=["state", "next_attempt_at"], name="due_deliveries")]
        constraints = [models.UniqueConstraint(fields=["endpoint", "event_id"], name="one_delivery_an_event")]


class Duty(models.Model):
    """When a background task (the sweep) last ran."""

    name = models.CharField(max_length=40, unique=True)
    last_run_at = models.DateTimeField()


class Tally(models.Model):
    """A count that only grows, for /metrics. advisor.watch.tallies is its only writer."""

    name = models.CharField(max_length=40)
    label = models.CharField(max_length=80)
    value = models.FloatField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["name", "label"], name="one_tally_a_label")]
