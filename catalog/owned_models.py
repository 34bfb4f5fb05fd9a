"""Models that belong to one organization: adding and sharing them."""

from django.db import transaction
from django.db.models import Q

from catalog.accounts import audit
from catalog.loading.fixtures import Row
from catalog.loading.load import upsert
from catalog.models import Organisation, ServedModel, default_organisation


class Taken(ValueError):
    """A model of this name exists; the message says which."""


@transaction.atomic
def add(row: Row, owner: Organisation | None, by: str) -> ServedModel:
    """Adds a model of an organization, or one for all (None). Taken: it sees one of this name already."""
    same = Q(slug=row["slug"]) | Q(hf_id=row["hf_id"])
    if found := ServedModel.objects.first_named(owner, same):
        raise Taken(f"{row['hf_id']} is already in the catalog as {found.slug}; choose another name")
    if owner is None:
        upsert(ServedModel, ("slug",), [row])
    else:
        ServedModel.objects.create(**row, organisation=owner)
    audit.record(owner or default_organisation(), by, audit.Action.MODEL, row["hf_id"])
    made: ServedModel = ServedModel.objects.first_named(owner, Q(slug=row["slug"]))
    return made


@transaction.atomic
def share(row: ServedModel, by: str) -> None:
    """Makes it a model of all organizations. Taken: there is a shared one of this name."""
    if ServedModel.objects.filter(Q(slug=row.slug) | Q(hf_id=row.hf_id)).exists():
        raise Taken(f"All organizations already see a model {row.hf_id}. Delete one of the two first.")
    owner, row.organisation = row.organisation or default_organisation(), None
    row.save()
    audit.record(owner, by, audit.Action.MODEL, row.hf_id, "shared with all organizations")
