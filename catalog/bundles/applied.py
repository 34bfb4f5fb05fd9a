"""Applies a bundle in one transaction, records what it changed, and undoes it."""

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder
from django.db import models, transaction

from catalog import clock
from catalog.bundles.archive import CLOCKS_DIFFER, Bundle, BundleError
from catalog.loading.load import load
from catalog.models import (
    Accelerator,
    ApiPrice,
    ApiProvider,
    Assumption,
    Availability,
    Benchmark,
    Calibration,
    CatalogBundle,
    CatalogLoad,
    EvidenceImport,
    EvidenceRow,
    ExchangeRate,
    Framework,
    HeldEvidence,
    InstanceType,
    Price,
    PriceLevel,
    QuantizationMethod,
    Region,
    ServedModel,
    SmallestUnit,
    Unit,
)

# Every table that a bundle changes; those that others refer to come first.
TABLES: tuple[type[models.Model], ...] = (
    Accelerator, ServedModel, Framework, QuantizationMethod, Region, ApiProvider, Assumption, SmallestUnit, Unit,
    InstanceType, ExchangeRate, Price, Availability, PriceLevel, ApiPrice, Benchmark, Calibration,
    EvidenceImport, EvidenceRow, HeldEvidence,
)  # fmt: skip
CATALOG, FEEDS = "catalog/", "feeds/"
Json = dict[str, Any]
Rows = dict[tuple[str, Any], Json]  # (table, primary key) -> values
Read = Callable[[Bundle], Json]  # adds the price sources of a bundle; returns their report


@transaction.atomic
def apply(bundle: Bundle, by: str, read_feeds: Read) -> CatalogBundle:
    """Loads the catalog files, then the price sources: all or nothing.

    BundleError: it is not newer than the last one. FixtureError: a file cannot be loaded.
    """
    refuse_older(bundle.made_at)
    before, version = dict(rows()), _version()
    report: Json = {"version_before": version, "catalog": _load(bundle), **read_feeds(bundle)}
    changes = list(differences(before, dict(rows())))
    return CatalogBundle.objects.create(
        digest=bundle.digest,
        made_at=bundle.made_at,
        key=bundle.key,
        applied_by=by[:150],
        report=report,
        changes=changes,
    )


def _version() -> str:
    """The version of the catalog; empty: nothing was loaded."""
    last = CatalogLoad.objects.order_by("-loaded_at", "-pk").first()
    return last.version if last else ""


def refuse_older(made_at: datetime) -> None:
    if made_at > clock.read() + CLOCKS_DIFFER:
        raise BundleError(
            f"it was made on {made_at:%Y-%m-%d %H:%M} UTC, which is in the future; set the clock of the machine that "
            "made it, or of this one"
        )
    last = CatalogBundle.objects.filter(undone_at=None).order_by("-made_at").first()
    if last is not None and made_at <= last.made_at:
        raise BundleError(
            f"it was made on {made_at:%Y-%m-%d %H:%M} UTC, and one of {last.made_at:%Y-%m-%d %H:%M} is applied "
            "already; make a newer one, or undo the applied one first"
        )


def _load(bundle: Bundle) -> dict[str, list[int]]:
    """[created, changed, unchanged] by kind."""
    given = {path.removeprefix(CATALOG): data for path, data in bundle.files.items() if path.startswith(CATALOG)}
    if not given:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        for path, data in given.items():
            target = Path(folder, path)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        counts = load(Path(folder), scores=False, origin=CatalogLoad.Origin.BUNDLE)
    return {kind: [count.created, count.changed, count.unchanged] for kind, count in counts.items()}


def rows() -> Iterator[tuple[tuple[str, Any], Json]]:
    """All public rows of the tables, as they are stored."""
    for model in TABLES:
        names = [field.attname for field in model._meta.concrete_fields]
        found = model._default_manager.all()
        if "organisation_id" in names:
            found = found.filter(organisation=None)
        for values in found.values(*names):
            row = json.loads(json.dumps(values, cls=DjangoJSONEncoder))
            yield (model.__name__, row[model._meta.pk.attname]), row


def differences(before: Rows, after: Rows) -> Iterator[Json]:
    """{table, key, before, after} of each row that differs; null: there was, or is, none."""
    for table, key in sorted(before.keys() | after.keys(), key=str):
        old, new = before.get((table, key)), after.get((table, key))
        if old != new:
            yield {"table": table, "key": key, "before": old, "after": new}


@transaction.atomic
def undo(by: str) -> tuple[CatalogBundle, list[str]]:
    """Undoes the last bundle: removes the rows that it created and restores those that it changed.

    Rows that something else changed afterwards stay; they are named in the list. BundleError: none is applied.
    """
    last = CatalogBundle.objects.filter(undone_at=None).order_by("-applied_at").first()
    if last is None:
        raise BundleError("no bundle is applied; there is nothing to undo")
    now, kept = dict(rows()), []
    places = {model.__name__: place for place, model in enumerate(TABLES)}
    for change in sorted(last.changes, key=lambda change: -places[change["table"]]):
        if now.get((change["table"], change["key"])) != change["after"]:
            kept.append(f"{change['table']} {named(change)}")
        elif not _restored(TABLES[places[change["table"]]], change):
            kept.append(f"{change['table']} {named(change)}")
    if (version := last.report.get("version_before")) and version != _version():
        CatalogLoad.objects.create(version=version)
    last.undone_at, last.undone_by = clock.read(), by[:150]
    last.save(update_fields=["undone_at", "undone_by"])
    return last, kept


def _restored(model: type[models.Model], change: Json) -> bool:
    """Whether the row is as it was; one that other rows refer to cannot be removed."""
    if change["before"] is None:
        try:
            model._default_manager.get(pk=change["key"]).delete()
        except models.ProtectedError:
            return False
        return True
    fields = {field.attname: field for field in model._meta.concrete_fields}
    values = {name: fields[name].to_python(value) for name, value in change["before"].items()}
    model(**values).save(force_update=change["after"] is not None, force_insert=change["after"] is None)
    return True


def named(change: Mapping[str, Any]) -> str:
    """What people call a row of a change."""
    row = change["after"] or change["before"]
    for names in (
        ("slug", "version"),
        ("slug",),
        ("key",),
        ("provider", "instance", "term"),
        ("provider", "name"),
        ("source_key",),
    ):
        if all(row.get(name) for name in names):
            return " ".join(str(row[name]) for name in names)
    return str(change["key"])


def lines(applied: CatalogBundle, most: int = 20) -> list[str]:
    """The diff in words: counts by table, then the first rows."""
    kinds = {"created": 0, "changed": 0, "removed": 0}
    by_table: dict[str, dict[str, int]] = {}
    told = []
    for change in applied.changes:
        kind = "created" if change["before"] is None else "removed" if change["after"] is None else "changed"
        by_table.setdefault(change["table"], dict(kinds))[kind] += 1
        told.append(f"  {kind} {change['table']} {named(change)}{_fields(change)}")
    counted = [
        f"{table}: {', '.join(f'{count} {kind}' for kind, count in counts.items() if count)}"
        for table, counts in by_table.items()
    ]
    more = [f"  ... and {len(told) - most} more"] if len(told) > most else []
    return counted + told[:most] + more


def _fields(change: Json) -> str:
    old, new = change["before"], change["after"]
    if old is None or new is None:
        return ""
    return f": {', '.join(name for name in old if old[name] != new.get(name))}"
