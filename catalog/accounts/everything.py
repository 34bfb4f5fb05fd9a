"""Everything of one organization: counted, exported as a ZIP file, or deleted.

Tables are found by their foreign keys, so that a new one cannot be forgotten.
"""

import json
import re
import zipfile
from collections import deque
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from typing import Any, BinaryIO

import structlog
from django.apps import apps
from django.contrib.auth.models import User
from django.core.serializers.json import DjangoJSONEncoder
from django.db import transaction
from django.db.models import BinaryField, ForeignKey, Model, QuerySet

from catalog import clock
from catalog.accounts import audit
from catalog.models import DEFAULT_ORGANISATION, Identity, Organisation, default_organisation

log = structlog.get_logger("assay.deleted")
APPS = ("advisor", "catalog", "probes")
SECRET = re.compile(r"(token_hash|key_salt|^token)$")  # columns that no export shows
FORMAT = 1


# --- which tables -----------------------------------------------------------------------------------------------


@cache
def owners() -> dict[type[Model], str]:
    """Each table with rows of organizations, and the lookup of their organization: the shortest way of foreign keys."""
    tables = [model for app in APPS for model in apps.get_app_config(app).get_models()]
    parents = {
        model: [(field.name, field.related_model) for field in model._meta.fields if isinstance(field, ForeignKey)]
        for model in tables
    }
    found: dict[type[Model], str] = {}
    waiting: deque[tuple[type[Model], str]] = deque([(Organisation, "")])
    while waiting:
        parent, way = waiting.popleft()
        for model in tables:
            name = next((name for name, target in parents[model] if target is parent), None)
            if name and model not in found and model is not Organisation:
                found[model] = f"{name}__{way}" if way else name
                waiting.append((model, found[model]))
    return found


@cache
def children_first() -> tuple[type[Model], ...]:
    """The tables in an order in which their rows can be deleted; histories, which deletions add to, come last."""
    tables = owners()
    order: TopologicalSorter[type[Model]] = TopologicalSorter()
    for model in tables:
        targets = {field.related_model for field in model._meta.fields if isinstance(field, ForeignKey)}
        order.add(model, *())
        for target in targets & tables.keys() - {model}:
            order.add(target, model)
    is_history = {model: hasattr(model, "history_type") for model in tables}
    return tuple(sorted(order.static_order(), key=lambda model: is_history[model]))


def rows_of(model: type[Model], organisation: Organisation) -> QuerySet[Any]:
    """Its rows, whatever the default manager of the table shows."""
    return model._base_manager.filter(**{owners()[model]: organisation})


def counts(organisation: Organisation) -> dict[str, int]:
    """The number of rows in each table that has some, by the name of the table for people."""
    found = {str(model._meta.verbose_name_plural): rows_of(model, organisation).count() for model in children_first()}
    return {name: count for name, count in sorted(found.items()) if count}


# --- export -----------------------------------------------------------------------------------------------------


@transaction.atomic
def export(organisation: Organisation, file: BinaryIO, by: str) -> dict[str, int]:
    """Writes a ZIP file with one JSON list for each table, the accounts of members, and a manifest.

    No hashes of tokens and no keys of machines. Returns the number of rows by file.
    """
    audit.record(organisation, by, audit.Action.EXPORT, organisation.name)
    written: dict[str, int] = {}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for model in children_first():
            name = f"{model._meta.label_lower.replace('.', '-')}.json"
            rows = (row_of(row) for row in rows_of(model, organisation).order_by("pk").iterator(200))
            written[name] = write(archive, name, rows)
        members = User.objects.filter(memberships__organisation=organisation).order_by("pk")
        fields = ("id", "username", "email", "first_name", "last_name", "date_joined", "last_login")
        written["accounts.json"] = write(archive, "accounts.json", iter(members.values(*fields)))
        about = {"slug": organisation.slug, "name": organisation.name}
        manifest = {"format": FORMAT, "organization": about, "exported_at": clock.read(), "by": by, "rows": written}
        archive.writestr("manifest.json", json.dumps(manifest, cls=DjangoJSONEncoder, indent=1))
    return written


def row_of(row: Model) -> dict[str, Any]:
    """Its columns, without secrets and without parts that workers hand over, which no other program can read."""
    fields = [
        field
        for field in row._meta.concrete_fields
        if not (SECRET.search(field.name) or isinstance(field, BinaryField))
    ]
    return {field.attname: field.value_from_object(row) for field in fields}


def write(archive: zipfile.ZipFile, name: str, rows: Iterator[Any]) -> int:
    count = 0
    with archive.open(name, "w") as out:
        out.write(b"[")
        for count, row in enumerate(rows, start=1):
            out.write((b",\n" if count > 1 else b"\n") + json.dumps(row, cls=DjangoJSONEncoder).encode())
        out.write(b"\n]\n")
    return count


# --- deletion ---------------------------------------------------------------------------------------------------


@transaction.atomic
def delete(organisation: Organisation, by: str) -> dict[str, int]:
    """Deletes all rows of an organization, its audit log, and itself; and accounts that belong to no other one.

    The default organization itself stays, without rows, and so do accounts of staff. One event in the audit log of the
    default organization says who deleted how many rows. Returns the number of rows by table.
    """
    Organisation.objects.select_for_update().get(pk=organisation.pk)
    members = list(User.objects.filter(memberships__organisation=organisation).values_list("pk", flat=True))
    found = counts(organisation)
    for model in children_first():
        rows_of(model, organisation).only("pk").delete()
    gone = User.objects.filter(pk__in=members, memberships=None, is_staff=False, is_superuser=False)
    found["accounts"] = gone.count()
    Identity.objects.filter(user__in=gone).delete()
    gone.delete()
    if organisation.slug != DEFAULT_ORGANISATION:
        organisation.delete()
    total = sum(found.values())
    audit.record(default_organisation(), by, audit.Action.DELETE, f"organization: {organisation.slug}", f"{total} rows")
    log.info("deleted", kind="organization", id=organisation.slug, by=by, rows=total)
    return {name: count for name, count in found.items() if count}
