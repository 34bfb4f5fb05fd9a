"""The catalog: accelerators, prices, models, frameworks, formats, regions, units and calibrations; and organizations
with their members, invitations and audit log."""

from typing import Any

from django.conf import settings
from django.core.validators import MinValueValidator
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from simple_history.models import HistoricalRecords

DEFAULT_ORGANISATION = "default"


def account_behind(request: Any, **given: Any) -> Any:
    """For the history of a row: the account that asks, also by one of its tokens; None: there is none."""
    user = getattr(request, "user", None)
    token = getattr(user, "token", None)
    return token.user if token else user


class Organisation(models.Model):
    slug = models.SlugField(unique=True)
    name = models.CharField(max_length=120)

    def __str__(self) -> str:
        return self.name


def default_organisation() -> Organisation:
    """The organization that `manage.py migrate` creates. Raises Organisation.DoesNotExist."""
    try:
        return Organisation.objects.get(slug=DEFAULT_ORGANISATION)
    except Organisation.DoesNotExist as error:
        raise Organisation.DoesNotExist("there is no default organization: run manage.py migrate") from error


class Role(models.TextChoices):
    """What a member may do; each role includes those before it (catalog/accounts/access.py)."""

    VIEWER = "viewer", _("viewer")
    PLANNER = "planner", _("planner")
    OPERATOR = "operator", _("operator")
    ADMIN = "admin", _("admin")


class OwnedManager(models.Manager[Any]):
    """Rows that belong to an organization, or to nobody: those are shared. By default only the shared ones, so that a
    query that forgets the organization shows nobody's own rows."""

    def get_queryset(self) -> models.QuerySet[Any]:
        return super().get_queryset().filter(organisation=None)

    def of_everyone(self) -> models.QuerySet[Any]:
        """All rows: for deletion, export and the admin site."""
        return super().get_queryset()

    def seen_by(self, organisation: Organisation | None) -> models.QuerySet[Any]:
        """The shared rows and those of an organization."""
        return self.of_everyone().filter(models.Q(organisation=None) | models.Q(organisation=organisation))

    def first_named(self, organisation: Organisation | None, name: models.Q) -> Any:
        """The row that an organization means by a name: its own before a shared one; None: there is none."""
        own_first = models.F("organisation").asc(nulls_last=True)
        return self.seen_by(organisation).filter(name).order_by(own_first, "pk").first()


class Quota(models.Model):
    """Limits of one organization, set by those who run the installation. None: the setting of all, or no limit."""

    organisation = models.OneToOneField(Organisation, on_delete=models.CASCADE, related_name="quota")
    max_waiting_answers = models.PositiveIntegerField(null=True, blank=True)  # queued and running at a time
    max_answers_per_day = models.PositiveIntegerField(null=True, blank=True)
    max_estimates_per_day = models.PositiveIntegerField(null=True, blank=True)
    max_machines = models.PositiveIntegerField(null=True, blank=True)
    max_stored_answers = models.PositiveIntegerField(null=True, blank=True)


class Retention(models.Model):
    """For how many days one organization keeps rows; it overrides the setting of all. None: as that setting says."""

    organisation = models.OneToOneField(Organisation, on_delete=models.CASCADE, related_name="retention")
    keep_advice_days = models.PositiveIntegerField(null=True, blank=True)
    keep_failed_days = models.PositiveIntegerField(null=True, blank=True)
    keep_studies_days = models.PositiveIntegerField(null=True, blank=True)
    keep_shares_days = models.PositiveIntegerField(null=True, blank=True)
    keep_load_tests_days = models.PositiveIntegerField(null=True, blank=True)
    keep_tokens_days = models.PositiveIntegerField(null=True, blank=True)
    keep_deliveries_days = models.PositiveIntegerField(null=True, blank=True)
    keep_audit_days = models.PositiveIntegerField(null=True, blank=True)


class Usage(models.Model):
    """How often an organization did something on one day (UTC), for its quotas."""

    organisation = models.ForeignKey(Organisation, on_delete=models.CASCADE, related_name="usage")
    day = models.DateField()
    answers = models.PositiveIntegerField(default=0)
    estimates = models.PositiveIntegerField(default=0)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["organisation", "day"], name="one_usage_a_day")]


class Membership(models.Model):
    """A user's role in an organization."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="memberships")
    organisation = models.ForeignKey(Organisation, on_delete=models.PROTECT, related_name="memberships")
    role = models.CharField(max_length=12, choices=Role)
    made_by = models.CharField(max_length=150, blank=True)
    made_at = models.DateTimeField(default=timezone.now, editable=False)
    by_group = models.BooleanField(default=False, db_default=False)  # a group of single sign-on gave it, and ends it

    class Meta:
        ordering = ["pk"]
        constraints = [models.UniqueConstraint(fields=["user", "organisation"], name="one_membership_a_user")]

    def __str__(self) -> str:
        return f"{self.user}: {self.role} of {self.organisation}"


class Identity(models.Model):
    """A person at the OpenID Connect provider, and the account here. `subject` never changes; an e-mail address may."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="identities")
    issuer = models.CharField(max_length=200)
    subject = models.CharField(max_length=255)
    made_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        verbose_name_plural = "identities"
        constraints = [models.UniqueConstraint(fields=["issuer", "subject"], name="one_account_an_identity")]

    def __str__(self) -> str:
        return f"{self.subject} at {self.issuer}"


class ServiceAccount(models.Model):
    """A program that calls the API with its own tokens and a role, independent of any person."""

    organisation = models.ForeignKey(Organisation, on_delete=models.PROTECT, related_name="service_accounts")
    name = models.CharField(max_length=120)
    role = models.CharField(max_length=12, choices=Role)
    made_by = models.CharField(max_length=150, blank=True)
    made_at = models.DateTimeField(default=timezone.now, editable=False)
    disabled_at = models.DateTimeField(null=True, blank=True)  # its tokens are refused since

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["organisation", "name"], name="one_service_account_a_name")]

    def __str__(self) -> str:
        return self.name


class Invitation(models.Model):
    """An invitation by e-mail to join an organization, usable once. Only the hash of its token is stored."""

    organisation = models.ForeignKey(Organisation, on_delete=models.PROTECT, related_name="invitations")
    email = models.EmailField()
    role = models.CharField(max_length=12, choices=Role)
    token_hash = models.CharField(max_length=64, unique=True)
    made_by = models.CharField(max_length=150, blank=True)
    made_at = models.DateTimeField(default=timezone.now, editable=False)
    expires_at = models.DateTimeField()
    accepted_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-made_at", "-pk"]

    def __str__(self) -> str:
        return f"{self.email} to {self.organisation}"


class AuditEvent(models.Model):
    """One action in an organization. Append-only: only catalog/accounts/audit.py writes, and only retention deletes."""

    organisation = models.ForeignKey(Organisation, on_delete=models.PROTECT, related_name="audit_events")
    at = models.DateTimeField(default=timezone.now, editable=False)
    who = models.CharField(max_length=150, blank=True)  # user name, "token NAME", "machine NAME"; empty: single user
    action = models.CharField(max_length=20)  # audit.Action
    what = models.CharField(max_length=200, blank=True)  # the object
    detail = models.CharField(max_length=500, blank=True)

    class Meta:
        ordering = ["-at", "-pk"]
        indexes = [models.Index(fields=["organisation", "-at", "-id"], name="newest_audit_event")]

    def __str__(self) -> str:
        return f"{self.at:%Y-%m-%d %H:%M} {self.who} {self.action} {self.what}"


class Sourced(models.Model):
    """A row whose groups of figures each state a source, in `sources`. `as_of` is the newest of their dates."""

    sources = models.JSONField(default=dict, blank=True)  # {group: {source, as_of, basis}}
    as_of = models.DateField()
    notes = models.TextField(blank=True)

    class Meta:
        abstract = True


class Accelerator(Sourced):
    slug = models.SlugField(unique=True, max_length=80)
    name = models.CharField(max_length=120)
    vendor = models.CharField(max_length=40)
    family = models.CharField(max_length=60)
    architecture = models.CharField(max_length=60, blank=True)
    kind = models.CharField(max_length=20)
    form_factor = models.CharField(max_length=60, blank=True)
    release_year = models.IntegerField(null=True, blank=True)
    memory_gib = models.FloatField(validators=[MinValueValidator(0)])
    usual_memory_gib = models.FloatField(null=True, blank=True)  # of a processor's usual server, per socket
    memory_type = models.CharField(max_length=40, blank=True)
    memory_gb_per_s = models.FloatField(validators=[MinValueValidator(0)])
    dense_tflops = models.JSONField(default=dict)  # {dtype: TFLOP/s or TOP/s}; an absent dtype is unsupported
    cores = models.IntegerField(null=True, blank=True)
    sram_mib = models.FloatField(null=True, blank=True)
    clock_ghz = models.FloatField(null=True, blank=True)
    links = models.JSONField(default=list)  # [{name, gb_per_s, latency_us, chips, topology}], nearest first
    pcie_gb_per_s = models.FloatField(null=True, blank=True)
    chips_per_host = models.IntegerField(default=8)
    chassis = models.CharField(max_length=20, blank=True)  # computer | workstation | server; see fixtures/README.md
    tdp_watts = models.FloatField(null=True, blank=True)
    idle_watts = models.FloatField(null=True, blank=True)
    # {way, compute_slices, memory_slices, profiles}; empty: no hardware partitions
    partitions = models.JSONField(default=dict, blank=True)
    stacks = models.JSONField(default=list)
    market = models.JSONField(default=dict, blank=True)  # {segment: consumer, terms}; empty: any use
    software = models.JSONField(default=dict, blank=True)  # device names and container access; see fixtures/README.md
    bought_as = models.JSONField(default=list)  # rent | own | api
    typical_price_usd = models.FloatField(null=True, blank=True)
    served = models.BooleanField(default=True)
    not_served_reason = models.CharField(max_length=200, blank=True)
    history = HistoricalRecords(get_user=account_behind)

    class Meta:
        ordering = ["vendor", "slug"]

    def __str__(self) -> str:
        return self.name


class SavedView(models.Model):
    """A named query of one list of the catalog, for everyone in an organization."""

    organisation = models.ForeignKey(Organisation, on_delete=models.CASCADE)
    list_name = models.CharField(max_length=40)
    name = models.CharField(max_length=60)
    query = models.CharField(max_length=2000, blank=True)
    made_by = models.CharField(max_length=150, blank=True)  # empty: in single-user mode
    made_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["list_name", "name"]
        constraints = [models.UniqueConstraint(fields=["organisation", "list_name", "name"], name="one_view_a_name")]

    def __str__(self) -> str:
        return self.name


OFFER = ["provider", "instance", "region", "accelerator", "term", "as_of"]  # identifies an offer on one day


class Price(models.Model):
    """One dated offer of a whole instance, or one purchase price. Append-only: a new price is a new row."""

    organisation = models.ForeignKey(Organisation, null=True, blank=True, on_delete=models.PROTECT)  # None: public
    provider = models.CharField(max_length=60)
    instance = models.CharField(max_length=120)
    accelerator = models.ForeignKey(Accelerator, on_delete=models.PROTECT, related_name="prices")
    accelerators = models.PositiveIntegerField()
    region = models.CharField(max_length=60, blank=True)
    vcpus = models.FloatField(null=True, blank=True)
    host_memory_gib = models.FloatField(null=True, blank=True)
    term = models.CharField(max_length=20)  # on_demand | spot | reserved_1y | reserved_3y | capacity_block | purchase
    usd_per_hour = models.DecimalField(max_digits=14, decimal_places=6, null=True, blank=True)
    purchase_usd = models.DecimalField(max_digits=14, decimal_places=2, null=True, blank=True)
    purchase_usd_min = models.DecimalField(max_digits=14, decimal_places=2, null=True, blank=True)  # as the source says
    purchase_usd_max = models.DecimalField(max_digits=14, decimal_places=2, null=True, blank=True)
    # rented: vm | bare_metal | marketplace | serverless | capacity_block
    # bought: chip | system | baseboard | server | rack
    kind = models.CharField(max_length=20)
    as_of = models.DateField()
    source = models.TextField()
    notes = models.TextField(blank=True)
    marks = models.CharField(max_length=60, blank=True)  # of second_hand | quote | preview, separated by spaces
    origin = models.CharField(max_length=20, default="official_list")  # ORIGINS in catalog.loading.fixtures
    confidence = models.CharField(max_length=10, default="medium")  # high | medium | low
    unit = models.CharField(max_length=20, default="instance")  # what the price is for: UNITS_SOLD
    country = models.CharField(max_length=2, blank=True)  # ISO 3166-1 code; empty: not stated
    currency = models.CharField(max_length=3, default="USD")  # of the price list
    listed_price = models.DecimalField(max_digits=16, decimal_places=4, null=True, blank=True)  # None: it is in USD
    # chips sold together at least; None: unknown
    smallest_unit_accelerators = models.PositiveIntegerField(null=True, blank=True)
    smallest_unit_source = models.TextField(blank=True)  # empty: the instance or purchase itself is the unit
    recorded_at = models.DateTimeField(default=timezone.now, null=True, editable=False)  # None: before this was kept
    made_by = models.CharField(max_length=150, blank=True)  # who added it, of an organization's own rows

    class Meta:
        ordering = ["provider", "instance", "region", "term", "-as_of"]
        constraints = [
            models.UniqueConstraint(fields=["organisation", *OFFER], name="one_price_a_day"),
            models.UniqueConstraint(fields=OFFER, condition=models.Q(organisation=None), name="one_public_price_a_day"),
            models.CheckConstraint(condition=models.Q(accelerators__gt=0), name="price_for_at_least_one_chip"),
            models.CheckConstraint(
                condition=models.Q(usd_per_hour__gte=0) | models.Q(purchase_usd__gte=0), name="price_not_negative"
            ),
        ]


class Availability(models.Model):
    """Whether an offer could be had on the day its seller was read, where a source says so. Append-only."""

    class State(models.TextChoices):
        AVAILABLE = "available"
        SOLD_OUT = "sold_out"

    provider = models.CharField(max_length=60)
    instance = models.CharField(max_length=120)
    region = models.CharField(max_length=60, blank=True)
    accelerator = models.ForeignKey(Accelerator, on_delete=models.PROTECT, related_name="availability")
    term = models.CharField(max_length=20)
    state = models.CharField(max_length=12, choices=State.choices)
    as_of = models.DateField()
    source = models.TextField()
    recorded_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        verbose_name_plural = "availability"
        ordering = ["provider", "instance", "region", "term", "-as_of"]
        constraints = [models.UniqueConstraint(fields=OFFER, name="one_availability_a_day")]

    def __str__(self) -> str:
        return f"{self.provider} {self.instance} {self.state} {self.as_of}"


class SmallestUnit(models.Model):
    """How many chips of one kind a seller rents out together at least, for prices that are printed per chip."""

    provider = models.CharField(max_length=60)
    accelerator = models.ForeignKey(Accelerator, on_delete=models.PROTECT, related_name="smallest_units")
    accelerators = models.PositiveIntegerField(null=True, blank=True)  # None: no source states it
    source = models.TextField()
    as_of = models.DateField()

    class Meta:
        ordering = ["provider", "accelerator"]
        constraints = [models.UniqueConstraint(fields=["provider", "accelerator"], name="one_smallest_unit")]

    def __str__(self) -> str:
        return f"{self.provider} {self.accelerator}"


class PriceImport(models.Model):
    """One import of a file of prices: who added what, and when."""

    organisation = models.ForeignKey(Organisation, null=True, blank=True, on_delete=models.PROTECT)  # None: public
    file_format = models.CharField(max_length=20)
    file_name = models.CharField(max_length=200)
    made_by = models.CharField(max_length=150)
    made_at = models.DateTimeField(default=timezone.now, editable=False)
    created_rows = models.PositiveIntegerField()
    changed_rows = models.PositiveIntegerField()
    unchanged_rows = models.PositiveIntegerField()

    class Meta:
        ordering = ["-made_at", "-pk"]

    def __str__(self) -> str:
        return f"{self.file_name} ({self.made_at:%Y-%m-%d})"


class PriceSource(models.Model):
    """When a public price source was last read, and what it answered."""

    name = models.CharField(max_length=40, unique=True)
    etags = models.JSONField(default=dict, blank=True)  # by URL
    tried_at = models.DateTimeField()
    read_at = models.DateTimeField(null=True, blank=True)  # the last success
    error = models.TextField(blank=True)  # of the last attempt; empty: it succeeded

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class PriceRefresh(models.Model):
    """One run of `prices sync`, with its report. Only one runs at a time."""

    class State(models.TextChoices):
        RUNNING = "running"
        DONE = "done"
        FAILED = "failed"

    state = models.CharField(max_length=12, choices=State.choices, default=State.RUNNING)
    made_by = models.CharField(max_length=150)
    started_at = models.DateTimeField(default=timezone.now, editable=False)
    lease_until = models.DateTimeField()  # a run that has not finished by then was interrupted
    finished_at = models.DateTimeField(null=True, blank=True)
    report = models.JSONField(default=dict, blank=True)
    error = models.TextField(blank=True)

    class Meta:
        ordering = ["-started_at", "-pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["state"], condition=models.Q(state="running"), name="one_price_refresh_at_a_time"
            )
        ]

    def __str__(self) -> str:
        return f"{self.started_at:%Y-%m-%d %H:%M} {self.state}"


class Held(models.Model):
    """A row of an import that looks like a mistake. It has no effect until a person releases it."""

    class State(models.TextChoices):
        HELD = "held"
        RELEASED = "released"
        DISCARDED = "discarded"

    row = models.JSONField()  # the columns of the file, as text
    reason = models.TextField()
    state = models.CharField(max_length=20, choices=State.choices, default=State.HELD)
    decided_by = models.CharField(max_length=150, blank=True)
    decided_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["pk"]
        abstract = True


class HeldPrice(Held):
    """A price that looks like a mistake."""

    price_import = models.ForeignKey(PriceImport, on_delete=models.CASCADE, related_name="held")

    def __str__(self) -> str:
        return f"{self.row['provider']} {self.row['instance']}: {self.reason}"


class ExchangeRate(models.Model):
    """What one US dollar costs in another currency on one day. Append-only; the newest applies."""

    currency = models.CharField(max_length=3)
    per_usd = models.DecimalField(max_digits=14, decimal_places=6)
    as_of = models.DateField()
    source = models.TextField()

    class Meta:
        ordering = ["currency", "-as_of"]
        constraints = [models.UniqueConstraint(fields=["currency", "as_of"], name="one_exchange_rate_a_day")]

    def __str__(self) -> str:
        return f"{self.currency} {self.per_usd}"


class PriceLevel(models.Model):
    """A published level of rents of one chip on one day, over several sellers. Append-only.

    An index and no offer: only charts and checks use it.
    """

    accelerator = models.ForeignKey(Accelerator, on_delete=models.PROTECT, related_name="price_levels")
    term = models.CharField(max_length=20)  # on_demand, or reserved without a stated length
    usd_per_chip_hour = models.DecimalField(max_digits=14, decimal_places=6)
    as_of = models.DateField()
    source = models.TextField()
    notes = models.TextField(blank=True)

    class Meta:
        ordering = ["accelerator", "term", "as_of"]
        constraints = [
            models.UniqueConstraint(fields=["accelerator", "term", "as_of"], name="one_price_level_a_day"),
            models.CheckConstraint(condition=models.Q(usd_per_chip_hour__gt=0), name="price_level_above_zero"),
        ]

    def __str__(self) -> str:
        return f"{self.accelerator} {self.term} {self.as_of}"


class InstanceType(models.Model):
    """What a provider's instance has besides its chips. None: unknown."""

    provider = models.CharField(max_length=60)
    instance = models.CharField(max_length=120)
    vcpus = models.FloatField(null=True, blank=True)
    cores = models.IntegerField(null=True, blank=True)  # physical
    sockets = models.IntegerField(null=True, blank=True)
    socket_cores = models.IntegerField(null=True, blank=True)  # of a whole socket of the machine under it
    numa_nodes = models.IntegerField(null=True, blank=True)
    host_memory_gib = models.FloatField(null=True, blank=True)
    local_disk_gb = models.FloatField(null=True, blank=True)  # 0: no drives inside the host
    network_gbit_per_s = models.FloatField(null=True, blank=True)
    source = models.TextField()
    as_of = models.DateField()
    basis = models.CharField(max_length=80)

    class Meta:
        ordering = ["provider", "instance"]
        constraints = [models.UniqueConstraint(fields=["provider", "instance"], name="one_row_an_instance_type")]

    def __str__(self) -> str:
        return f"{self.provider} {self.instance}"


class ServedModel(Sourced):
    organisation = models.ForeignKey(Organisation, null=True, blank=True, on_delete=models.PROTECT)  # None: shared
    slug = models.SlugField(max_length=120)
    hf_id = models.CharField(max_length=200)
    family = models.CharField(max_length=60)
    published_parameters = models.BigIntegerField(null=True, blank=True)
    published_active_parameters = models.BigIntegerField(null=True, blank=True)  # per token, from the model card
    native_dtype = models.CharField(max_length=20)
    licence = models.CharField(max_length=60, blank=True)
    max_context_tokens = models.IntegerField(null=True, blank=True)
    # published (format, experts_only, others), conversions (with hf_id), drafts (method -> hf_id), mtp_layers
    # engines: the oldest version of each that runs it; hosting: providers that offer it; measured_only: not offered
    checkpoints = models.JSONField(default=dict, blank=True)
    shape = models.JSONField()  # hidden, vocab, tied_embeddings, blocks ...: the fields of advisor.engine.network.Model
    history = HistoricalRecords(get_user=account_behind)
    objects = OwnedManager()

    class Meta:
        ordering = ["family", "slug"]
        constraints = [
            models.UniqueConstraint(fields=["slug"], condition=models.Q(organisation=None), name="one_shared_slug"),
            models.UniqueConstraint(fields=["hf_id"], condition=models.Q(organisation=None), name="one_shared_hf_id"),
            models.UniqueConstraint(fields=["organisation", "slug"], name="one_own_slug"),
            models.UniqueConstraint(fields=["organisation", "hf_id"], name="one_own_hf_id"),
        ]

    def __str__(self) -> str:
        return self.hf_id


class ApiPrice(models.Model):
    """The price of a hosted model, in USD per million tokens. Append-only."""

    provider = models.CharField(max_length=60)
    name = models.CharField(max_length=200)  # the provider's name for the model
    model = models.ForeignKey(ServedModel, on_delete=models.PROTECT, related_name="api_prices")
    usd_per_mtok_input = models.DecimalField(max_digits=12, decimal_places=6)
    usd_per_mtok_cached_input = models.DecimalField(max_digits=12, decimal_places=6, null=True, blank=True)
    usd_per_mtok_output = models.DecimalField(max_digits=12, decimal_places=6)
    max_input_tokens = models.IntegerField(null=True, blank=True)
    output_tokens_per_s = models.FloatField(null=True, blank=True)  # of one request, as published
    ttft_ms = models.FloatField(null=True, blank=True)  # median of the same source
    speed_kind = models.CharField(max_length=12, blank=True)  # measured, or stated by the provider
    speed_as_of = models.DateField(null=True, blank=True)
    speed_source = models.TextField(blank=True)
    quantization = models.CharField(max_length=20, blank=True)  # of the weights, as the provider names it
    # slug of the accelerator that the provider says it uses
    hardware = models.CharField(max_length=60, default="", db_default="", blank=True)
    withdrawn = models.DateField(null=True, blank=True)  # not offered since; `notes` has the source
    notes = models.TextField(blank=True)
    as_of = models.DateField()
    source = models.TextField()
    recorded_at = models.DateTimeField(default=timezone.now, null=True, editable=False)  # None: before this was kept

    class Meta:
        ordering = ["model", "provider", "name", "-as_of"]
        constraints = [
            models.UniqueConstraint(fields=["provider", "name", "as_of"], name="one_api_price_a_day"),
            models.CheckConstraint(condition=models.Q(usd_per_mtok_output__gte=0), name="api_price_not_negative"),
        ]


class ApiProvider(Sourced):
    """Who hosts models behind an API: how it is called and where it serves."""

    slug = models.SlugField(unique=True, max_length=60)  # as `provider` in ApiPrice
    name = models.CharField(max_length=60)
    base_url = models.CharField(max_length=200, blank=True)  # of its OpenAI-compatible endpoint
    locations = models.JSONField(default=list, blank=True)  # ISO country codes; empty: not published
    withdrawn = models.DateField(null=True, blank=True)  # day on which it stopped selling API access per token
    history = HistoricalRecords(get_user=account_behind)

    class Meta:
        ordering = ["slug"]

    def __str__(self) -> str:
        return self.name


class Framework(Sourced):
    slug = models.SlugField(max_length=60)
    name = models.CharField(max_length=60)
    version = models.CharField(max_length=40)
    settings = models.JSONField()  # the remaining fields of advisor.engine.terms.Framework, in human units
    history = HistoricalRecords(get_user=account_behind)

    class Meta:
        ordering = ["slug", "version"]
        constraints = [models.UniqueConstraint(fields=["slug", "version"], name="one_row_a_framework_version")]

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


class QuantizationMethod(Sourced):
    slug = models.SlugField(unique=True, max_length=60)
    name = models.CharField(max_length=80)
    settings = models.JSONField()  # applies_to (weights | kv); the other fields of advisor.engine.terms.Quantization
    history = HistoricalRecords(get_user=account_behind)

    class Meta:
        ordering = ["slug"]

    def __str__(self) -> str:
        return self.name


class Region(Sourced):
    slug = models.SlugField(unique=True, max_length=80)
    name = models.CharField(max_length=120)
    country = models.CharField(max_length=60, blank=True)
    electricity_usd_per_kwh = models.FloatField(null=True, blank=True)
    grid_kgco2e_per_kwh = models.FloatField(null=True, blank=True)
    pue = models.FloatField(null=True, blank=True)
    colocation_usd_per_kw_month = models.FloatField(null=True, blank=True)
    history = HistoricalRecords(get_user=account_behind)

    class Meta:
        ordering = ["slug"]

    def __str__(self) -> str:
        return self.name


class Unit(Sourced):
    """Hardware that is sold or rented as a whole: a board, a host, a rack, a slice of a pod or a cluster."""

    slug = models.SlugField(unique=True, max_length=80)
    name = models.CharField(max_length=120)
    kind = models.CharField(max_length=20)  # board | host | rack | slice | cluster
    accelerator = models.ForeignKey(Accelerator, on_delete=models.PROTECT, related_name="units")
    accelerators = models.PositiveIntegerField()
    shape = models.CharField(max_length=40, blank=True)  # of a slice: 2x2x1 ...
    sold_as = models.JSONField(default=list, blank=True)  # instances that it joins: "PROVIDER INSTANCE" or "PROVIDER *"
    instances = models.PositiveIntegerField(default=1)  # number of hosts
    watts = models.FloatField(null=True, blank=True)  # maximum power of the whole unit
    cooling = models.CharField(max_length=20, blank=True)  # air | liquid | air or liquid
    network_gb_per_s = models.FloatField(null=True, blank=True)  # to other units, one direction, per chip
    price_usd = models.FloatField(null=True, blank=True)
    price_usd_min = models.FloatField(null=True, blank=True)
    price_usd_max = models.FloatField(null=True, blank=True)
    lead_time = models.CharField(max_length=60, default="unknown")  # only with a source and its date
    history = HistoricalRecords(get_user=account_behind)

    class Meta:
        ordering = ["kind", "slug"]

    def __str__(self) -> str:
        return self.name


class Benchmark(models.Model):
    """A rate measured on a chip. Append-only."""

    accelerator = models.ForeignKey(Accelerator, on_delete=models.PROTECT, related_name="benchmarks")
    what = models.CharField(max_length=60)  # matmul bf16, memory read ...
    value = models.FloatField()
    unit = models.CharField(max_length=20)  # TFLOP/s | GB/s
    conditions = models.CharField(max_length=200)
    as_of = models.DateField()
    source = models.TextField()

    class Meta:
        ordering = ["accelerator", "what", "-as_of"]
        constraints = [
            models.UniqueConstraint(fields=["accelerator", "what", "conditions", "as_of"], name="one_benchmark_a_day")
        ]


TERMS_OF = ["provider", "accelerator", "term", "as_of"]  # identifies a discount of an organisation on one day


class Discount(models.Model):
    """An organisation's discount on the list prices of a provider. Append-only; the newest applies."""

    organisation = models.ForeignKey(Organisation, on_delete=models.PROTECT, related_name="discounts")
    provider = models.CharField(max_length=60)
    accelerator = models.ForeignKey(Accelerator, null=True, blank=True, on_delete=models.PROTECT)  # None: all
    term = models.CharField(max_length=20, blank=True)  # empty: every term
    discount_fraction = models.FloatField()
    as_of = models.DateField()
    source = models.TextField()
    recorded_at = models.DateTimeField(default=timezone.now, null=True, editable=False)  # None: before this was kept
    made_by = models.CharField(max_length=150, blank=True)  # who added it, of an organization's own rows

    class Meta:
        ordering = ["organisation", "provider", "-as_of"]
        constraints = [
            models.UniqueConstraint(fields=["organisation", *TERMS_OF], name="one_discount_a_day"),
            models.UniqueConstraint(
                fields=["organisation", "provider", "term", "as_of"],
                condition=models.Q(accelerator=None),
                name="one_general_discount_a_day",
            ),
            models.CheckConstraint(
                condition=models.Q(discount_fraction__gt=0) & models.Q(discount_fraction__lt=1),
                name="discount_between_nothing_and_all",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.provider} {self.discount_fraction:.0%}"


class SupportLicence(models.Model):
    """A yearly software or support fee of an organisation, per accelerator. Append-only."""

    organisation = models.ForeignKey(Organisation, on_delete=models.PROTECT, related_name="support_licences")
    name = models.CharField(max_length=120)
    vendor = models.CharField(max_length=40, blank=True)  # vendor of the chips that need it; empty: all
    framework = models.CharField(max_length=60, blank=True)  # slug of the framework that needs it; empty: all
    usd_per_accelerator_per_year = models.DecimalField(max_digits=12, decimal_places=2)
    as_of = models.DateField()
    source = models.TextField()
    recorded_at = models.DateTimeField(default=timezone.now, null=True, editable=False)  # None: before this was kept
    made_by = models.CharField(max_length=150, blank=True)  # who added it, of an organization's own rows

    class Meta:
        ordering = ["organisation", "name", "-as_of"]
        constraints = [
            models.UniqueConstraint(
                fields=["organisation", "name", "vendor", "framework", "as_of"], name="one_licence_a_day"
            ),
            models.CheckConstraint(
                condition=models.Q(usd_per_accelerator_per_year__gte=0), name="licence_not_negative"
            ),
        ]

    def __str__(self) -> str:
        return self.name


class Assumption(Sourced):
    """A default assumption that users can see and override: PUE, depreciation, host power, staff ..."""

    key = models.SlugField(unique=True, max_length=120)
    value = models.FloatField()
    unit = models.CharField(max_length=40)
    low = models.FloatField(null=True, blank=True)
    high = models.FloatField(null=True, blank=True)
    history = HistoricalRecords(get_user=account_behind)

    class Meta:
        ordering = ["key"]


class Calibration(models.Model):
    """Fitted parameters and the data they were fitted to. Append-only; the newest row of a name applies."""

    # None: shared. An organization's own row has only what it measured, and is laid over the newest shared one.
    organisation = models.ForeignKey(Organisation, null=True, blank=True, on_delete=models.PROTECT)
    name = models.CharField(max_length=120)  # engine | accelerator:<slug> | framework:<slug>:<version>
    values = models.JSONField()
    basis = models.CharField(max_length=20)  # measured | relative | datasheet
    fitted_on = models.TextField()
    engine_version = models.CharField(max_length=20)
    as_of = models.DateField()
    created_at = models.DateTimeField(auto_now_add=True)
    measured = models.JSONField(default=list, blank=True)  # names of values measured by workers of this installation
    changes = models.JSONField(default=list, blank=True)  # [{figure, before, after}]
    results = models.JSONField(default=list, blank=True)  # IDs of the probe results it was fitted to
    # the row that this one reverts
    undoes = models.OneToOneField("self", null=True, blank=True, on_delete=models.PROTECT, related_name="undone_by")
    made_by = models.CharField(max_length=150, blank=True)  # the user who reverted it
    objects = OwnedManager()

    class Meta:
        ordering = ["name", "-created_at"]


class CatalogBundle(models.Model):
    """A signed bundle that was applied, with everything that it changed, so that it can be undone."""

    digest = models.CharField(max_length=64)  # SHA-256 of its manifest
    made_at = models.DateTimeField()
    key = models.CharField(max_length=64)  # fingerprint of the key that signed it
    applied_at = models.DateTimeField(auto_now_add=True)
    applied_by = models.CharField(max_length=150)
    report = models.JSONField(default=dict)  # counts of the catalog files, and what each price source did
    changes = models.JSONField(default=list)  # table, key, before and after of each row
    undone_at = models.DateTimeField(null=True, blank=True)
    undone_by = models.CharField(max_length=150, blank=True)

    class Meta:
        ordering = ["-applied_at", "-pk"]

    def __str__(self) -> str:
        return f"{self.made_at:%Y-%m-%d %H:%M} {self.digest[:12]}"


class CatalogLoad(models.Model):
    """One load of the catalog. `version` is a digest of the fixtures."""

    class Origin(models.TextChoices):
        RELEASE = ""  # the files of the code
        BUNDLE = "bundle"
        DIRECTORY = "directory"  # another one, given by the operator

    version = models.CharField(max_length=64)
    origin = models.CharField(max_length=12, choices=Origin, blank=True, default="", db_default="")
    loaded_at = models.DateTimeField(auto_now_add=True)


class Scorecard(models.Model):
    """The latest score of the engine against measured rows: a single row, replaced together with its ScoredRows."""

    digest = models.CharField(max_length=64)  # of its files
    engine_version = models.CharField(max_length=20)
    calibration = models.CharField(max_length=64)
    as_of = models.DateField()
    skipped = models.JSONField(default=dict)  # {reason without a prediction: number of rows}
    left_out = models.JSONField(default=dict)  # {what was held out of the fit: {kind of figure: error}}
    intervals = models.JSONField(default=list)  # coverage of held-out groups
    sources = models.JSONField(default=dict)  # {source_key: {name, address, licence, as_of, meaning}}


class MeasuredFigure(models.Model):
    """A measured figure and its prediction, both in the unit at the end of the metric name."""

    key = models.CharField(max_length=160, unique=True)
    source_key = models.CharField(max_length=60)
    metric = models.CharField(max_length=40)
    measured = models.FloatField(null=True)  # None: the license forbids it; see bias_fraction
    predicted = models.FloatField(null=True)  # None: predicted not to fit in memory, or the license forbids it
    low = models.FloatField(null=True)  # of the 90 % interval
    high = models.FloatField(null=True)
    bias_fraction = models.FloatField(null=True)  # predicted / measured - 1; None: predicted not to fit
    inside = models.BooleanField(null=True)  # whether the interval contains the measured figure; None: no interval
    accelerator = models.CharField(max_length=80)
    family = models.CharField(max_length=60, blank=True)
    chips = models.PositiveIntegerField()
    model = models.CharField(max_length=200, blank=True)
    framework = models.CharField(max_length=60)
    framework_version = models.CharField(max_length=80, blank=True)
    weights_dtype = models.CharField(max_length=40, blank=True)
    mode = models.CharField(max_length=10)
    layout = models.CharField(max_length=120, blank=True)  # empty: not stated
    replica_chips = models.PositiveIntegerField(null=True)
    isl = models.FloatField()
    osl = models.FloatField()
    concurrency = models.FloatField(null=True)  # of the deployment; None: as many as fit, or open loop
    client = models.CharField(max_length=20)
    client_known = models.BooleanField()
    phase = models.CharField(max_length=20)
    basis = models.CharField(max_length=20, blank=True)
    measured_on = models.CharField(max_length=10, blank=True)  # a year, month or day, as the source states it
    pair_index = models.IntegerField(null=True)  # rows with the same number compare different chips
    circumstance = models.CharField(max_length=20, blank=True)  # a key of REASONS in advisor.fidelity.stored
    note = models.TextField(blank=True)

    class Meta:
        abstract = True


class ScoredRow(MeasuredFigure):
    """A row of the scorecard. The published errors are made of these rows alone."""

    class Meta:
        ordering = ["pk"]


class EvidenceImport(models.Model):
    """One import of measured figures of one source: whose they are, how they were measured, and who added them."""

    source_key = models.CharField(max_length=60)
    name = models.CharField(max_length=200, blank=True)  # what people call the source
    place = models.TextField(blank=True)  # address or repository, with the commit
    client = models.TextField(blank=True)  # load generator, its version and how it sends requests
    licence = models.CharField(max_length=200, blank=True)  # empty: not known
    caveats = models.TextField(blank=True)
    as_of = models.DateField()
    file_format = models.CharField(max_length=20)
    file_name = models.CharField(max_length=200)
    digest = models.CharField(max_length=64)  # SHA-256 of the file
    made_by = models.CharField(max_length=150)
    made_at = models.DateTimeField(default=timezone.now, editable=False)
    counts = models.JSONField(default=dict, blank=True)  # read = new + changed + confirmed + held + sum of skipped

    class Meta:
        ordering = ["-made_at", "-pk"]

    def __str__(self) -> str:
        return f"{self.source_key} ({self.made_at:%Y-%m-%d})"


class EvidenceRow(MeasuredFigure):
    """A measured figure that was imported. It is shown beside answers, and corrects those for exactly its chip, model,
    framework and format if neither the scorecard nor a load test has them.

    Without a prediction, `note` says why.
    """

    evidence_import = models.ForeignKey(EvidenceImport, on_delete=models.PROTECT, related_name="rows")
    given = models.JSONField(default=dict, blank=True)  # further columns of measured rows, as the source states them

    class Meta:
        ordering = ["pk"]


class HeldEvidence(Held):
    """An imported figure that looks like a mistake."""

    evidence_import = models.ForeignKey(EvidenceImport, on_delete=models.PROTECT, related_name="held")

    def __str__(self) -> str:
        return f"{self.row['id']}: {self.reason}"
