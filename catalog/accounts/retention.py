"""For how many days an organization keeps its rows, where it differs from the settings of the installation."""

from django.conf import settings
from django.db import transaction

from catalog.accounts import audit
from catalog.accounts.organizations import Refused
from catalog.models import Organisation, Retention

NAMES = {  # columns of Retention -> what is kept, for people; the setting has the same name in capitals
    "keep_advice_days": "finished answers",
    "keep_failed_days": "failed and canceled requests",
    "keep_studies_days": "finished, failed and canceled studies",
    "keep_shares_days": "expired links",
    "keep_load_tests_days": "load tests",
    "keep_tokens_days": "expired or revoked tokens",
    "keep_deliveries_days": "webhook deliveries",
    "keep_audit_days": "entries of the audit log",
}
MAX_DAYS = 36_500


def own(organisation: Organisation) -> dict[str, int | None]:
    """The days that the organization set, by column; None: as the settings say."""
    row = Retention.objects.filter(organisation=organisation).first() or Retention()
    return {name: getattr(row, name) for name in NAMES}


def days_of(organisation: Organisation) -> dict[str, int | None]:
    """The days that apply, by what is kept; None: for ever."""
    given = own(organisation)
    return {
        label: given[name] if given[name] is not None else getattr(settings, name.upper())
        for name, label in NAMES.items()
    }


@transaction.atomic
def change(organisation: Organisation, days: dict[str, int | None], by: str) -> None:
    """Sets some of the days. Refused: a number that is not from 1 to 36,500."""
    if wrong := [name for name, value in days.items() if value is not None and not 1 <= value <= MAX_DAYS]:
        raise Refused(
            f"{wrong[0]}: give a number of days from 1 to {MAX_DAYS}, or nothing to keep what the settings say."
        )
    before = own(organisation)
    Retention.objects.update_or_create(organisation=organisation, defaults=days)
    text = ", ".join(f"{name} {value}" for name, value in days.items() if value != before[name])
    audit.record(organisation, by, audit.Action.LIMITS, organisation.name, text)
