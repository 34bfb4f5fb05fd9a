"""Use cases of service accounts: create, change and delete one. Each is one audited transaction."""

from django.db import IntegrityError, transaction
from django.utils import timezone

from catalog.accounts import audit
from catalog.accounts.organizations import Refused
from catalog.models import Organisation, ServiceAccount


def create(organisation: Organisation, name: str, role: str, by: str) -> ServiceAccount:
    """Refused: the organization has one of this name."""
    try:
        with transaction.atomic():
            row = ServiceAccount.objects.create(organisation=organisation, name=name, role=role, made_by=by[:150])
            audit.record(organisation, by, audit.Action.SERVICE_ACCOUNT, name, f"created, {role}")
    except IntegrityError:
        raise Refused(f"There is already a service account {name}.") from None
    return row


@transaction.atomic
def change(row: ServiceAccount, by: str, role: str | None = None, disabled: bool | None = None) -> ServiceAccount:
    """Changes the role, or disables or enables it: the tokens of a disabled one are refused."""
    changes = []
    if role is not None and role != row.role:
        changes.append(f"{row.role} to {role}")
        row.role = role
    if disabled is not None and disabled != bool(row.disabled_at):
        changes.append("disabled" if disabled else "enabled")
        row.disabled_at = timezone.now() if disabled else None
    if changes:
        row.save(update_fields=["role", "disabled_at"])
        audit.record(row.organisation, by, audit.Action.SERVICE_ACCOUNT, row.name, ", ".join(changes))
    return row


@transaction.atomic
def delete(row: ServiceAccount, by: str) -> None:
    """Deletes it with its tokens."""
    audit.record(row.organisation, by, audit.Action.SERVICE_ACCOUNT, row.name, "deleted with its tokens")
    row.delete()
