"""What an organization may use: quotas that those who run the installation set for it, and what it has used."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.db import transaction
from django.db.models import F
from django.utils.translation import gettext as _

from catalog import clock
from catalog.accounts import audit
from catalog.models import Organisation, Quota, Usage

NAMES = {  # columns of Quota -> what they count, for people
    "max_waiting_answers": "answers queued or running",
    "max_answers_per_day": "answers a day",
    "max_estimates_per_day": "estimates a day",
    "max_machines": "machines",
    "max_stored_answers": "stored answers",
}
PER_DAY = {"answers": "max_answers_per_day", "estimates": "max_estimates_per_day"}  # columns of Usage
PER_COUNT = 20  # estimates of one call or study that count as one: they share what a single one reads
CLOSED_PER_COUNT = 200  # of estimates by closed formulas alone
TOO_MANY, CONFLICT = 429, 409


class QuotaReached(Exception):
    """The message names the quota and whom to ask. `status`: 429 where waiting helps, else 409."""

    def __init__(self, text: str, status: int = TOO_MANY, wait_s: int = 30) -> None:
        super().__init__(text)
        self.status, self.wait_s = status, wait_s


def limit_of(organisation: Organisation, name: str) -> int | None:
    limit: int | None = Quota.objects.filter(organisation=organisation).values_list(name, flat=True).first()
    return limit


@dataclass(frozen=True, slots=True)
class Line:
    """One quota, with what is used of it now."""

    name: str
    label: str
    used: int
    limit: int | None  # None: no limit


def lines(organisation: Organisation) -> list[Line]:
    """All quotas of an organization, for pages, REST and commands."""
    row = Quota.objects.filter(organisation=organisation).first() or Quota()
    today = used_today(organisation)
    answers = organisation.advice_set.all()
    used = {
        "max_waiting_answers": answers.filter(state__in=("queued", "running")).count(),
        "max_answers_per_day": today.answers,
        "max_estimates_per_day": today.estimates,
        "max_machines": organisation.agent_set.filter(revoked_at=None).count(),
        "max_stored_answers": answers.count(),
    }
    return [Line(name, NAMES[name], used[name], getattr(row, name)) for name in NAMES]


@transaction.atomic
def change(organisation: Organisation, limits: dict[str, int | None], by: str) -> None:
    """Sets some of the quotas; None removes one."""
    Quota.objects.update_or_create(organisation=organisation, defaults=limits)
    text = ", ".join(f"{name} {value}" for name, value in limits.items())
    audit.record(organisation, by, audit.Action.LIMITS, organisation.name, text)


def check(organisation: Organisation, name: str, used: int, more: int = 1) -> None:
    """QuotaReached: `more` beside the `used` ones would exceed this quota."""
    limit = limit_of(organisation, name)
    if limit is not None and used + more > limit:
        raise reached(organisation, name, used, limit, more)


def reached(organisation: Organisation, name: str, used: int, limit: int, more: int = 1) -> QuotaReached:
    text = _(
        "The quota of %(organization)s is reached: it has %(used)s of %(limit)s %(what)s (%(name)s). %(hint)s The "
        "administrator of this installation can raise the quota."
    )
    hints = {
        "max_waiting_answers": _("Submit again when some are done, or cancel some."),
        "max_stored_answers": _("Delete some."),
        "max_machines": _("Revoke one that is not needed."),
    }
    hint = hints.get(name, _("It starts again at midnight UTC."))
    if more > 1:
        hint = f"{_('This request needs %(count)s.') % {'count': more}} {hint}"
    values = {"organization": organisation.name, "used": used, "limit": limit, "what": NAMES[name], "name": name}
    status = CONFLICT if name in ("max_machines", "max_stored_answers") else TOO_MANY
    return QuotaReached(text % {**values, "hint": hint}, status, 30 if name in hints else seconds_left())


def seconds_left() -> int:
    """Until midnight UTC."""
    now = clock.read().astimezone(UTC)
    tomorrow = datetime(now.year, now.month, now.day, tzinfo=UTC) + timedelta(days=1)
    return max(1, int((tomorrow - now).total_seconds()))


def used_today(organisation: Organisation) -> Usage:
    """What was counted today; not stored if nothing was."""
    row = Usage.objects.filter(organisation=organisation, day=clock.today()).first()
    return row or Usage(organisation=organisation, day=clock.today())


def use_estimates(organisation: Organisation, count: int) -> None:
    """Counts the estimates of one call or study. QuotaReached: as in `use`."""
    use(organisation, "estimates", -(-count // PER_COUNT))


def use(organisation: Organisation, what: str, count: int = 1) -> None:
    """Counts answers or estimates of today. QuotaReached: there was none left; atomic, whoever asks meanwhile."""
    name = PER_DAY[what]
    limit = limit_of(organisation, name)
    if limit is None and what == "estimates":
        return  # so that estimates write nothing where nobody limits them
    with transaction.atomic():
        row, _is_new = Usage.objects.get_or_create(organisation=organisation, day=clock.today())
        rows = Usage.objects.filter(pk=row.pk)
        rows = rows if limit is None else rows.filter(**{f"{what}__lte": limit - count})
        done = rows.update(**{what: F(what) + count})
    if not done and limit is not None:
        raise reached(organisation, name, getattr(row, what), limit, count)
