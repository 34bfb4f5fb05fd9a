"""Deletes a model of the catalog."""

import structlog

from catalog.accounts import Caller, Right, audit
from catalog.loading.moves import moving
from catalog.models import ServedModel, default_organisation
from catalog.shipped import FIXTURES

log = structlog.get_logger("assay.deleted")


class NotDeletable(Exception):
    """The row cannot be deleted; the message gives the reason and what to do instead."""


def may_delete(row: ServedModel, caller: Caller) -> bool:
    """Admins delete models of their organization; admins of the default one also those that all share."""
    return caller.may_delete_shared if row.organisation_id is None else caller.may(Right.ADMINISTER)


def delete_model(row: ServedModel, by: str) -> None:
    """Deletes an imported model with its hosted API prices and its history. Saved answers keep their own copy.

    Raises NotDeletable for a model that ships with Assay: the next `load_catalog` would restore it.
    """
    if row.organisation_id is None and (FIXTURES / "models" / f"{row.slug}.yaml").exists():
        raise NotDeletable(
            f"{row.hf_id} ships with Assay, and load_catalog would restore it. Only imported models can be deleted."
        )
    pk = row.pk
    with moving():
        row.api_prices.all().delete()
        row.delete()
        ServedModel.history.filter(id=pk).delete()  # including the record of this deletion
        audit.record(row.organisation or default_organisation(), by, audit.Action.DELETE, f"model {row.hf_id}")
    log.info("deleted", kind="model", slug=row.slug, by=by)
