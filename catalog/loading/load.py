"""Puts reference data into the catalog: one transaction, strict, idempotent; prices and calibrations only grow."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.db import models, transaction
from simple_history.utils import bulk_create_with_history, bulk_update_with_history

from catalog import framework_files
from catalog.loading import fixtures, scored
from catalog.loading.fixtures import FixtureError, Row
from catalog.models import (
    Accelerator,
    ApiPrice,
    Assumption,
    Benchmark,
    Calibration,
    CatalogLoad,
    Discount,
    Framework,
    Organisation,
    Price,
    QuantizationMethod,
    Region,
    ServedModel,
    SupportLicence,
    Unit,
)

FIGURES = ("accelerators", "usd_per_hour", "purchase_usd")  # of a price: never changed
OFFER = ("provider", "instance", "region", "accelerator_id", "term", "as_of")
API_FIGURES = ("usd_per_mtok_input", "usd_per_mtok_cached_input", "usd_per_mtok_output")
OVER_FILE = "; all else: "  # between what machines measured and the newer file below it
PROBED = "probe result"  # how `fitted_on` of a calibration begins that an accepted probe made
API_OFFER = ("provider", "name", "as_of")


@dataclass(frozen=True, kw_only=True, slots=True)
class Counts:
    """What a load did to one kind of rows."""

    created: int = 0
    changed: int = 0
    unchanged: int = 0


@transaction.atomic
def load(directory: Path, scores: bool = True) -> dict[str, Counts]:
    """Loads a directory of fixtures (`scores`: those of the accuracy page too); says what changed of each kind."""
    if not directory.is_dir():
        raise FixtureError(f"{directory}: no such directory")
    if not any(directory.glob("*.yaml")) and not any(
        (directory / name).is_dir() for name in ("accelerators", "frameworks", "prices")
    ):
        raise FixtureError(f"{directory}: holds no fixtures; fixtures/README.md says which files are read")
    each = {folder: sorted((directory / folder).glob("*.yaml")) for folder in ("accelerators", "models", "calibration")}
    counts = {
        "accelerators": upsert(Accelerator, ("slug",), map(fixtures.accelerator, each["accelerators"])),
        "models": upsert(ServedModel, ("slug",), map(fixtures.served_model, each["models"])),
    }
    counts["frameworks"] = upsert(Framework, ("slug", "version"), framework_files.frameworks(directory))
    for kind, model, name, key, reader in (
        ("quantizations", QuantizationMethod, "quantization", ("slug",), fixtures.quantization),
        ("regions", Region, "regions", ("slug",), fixtures.region),
        ("assumptions", Assumption, "overheads", ("key",), fixtures.assumption),
    ):
        counts[kind] = upsert(model, key, fixtures.listed(directory / f"{name}.yaml", reader))
    files = sorted((directory / "prices").glob("*.csv"))
    units = refer(fixtures.listed(directory / "units.yaml", fixtures.unit), "accelerator", Accelerator)
    counts["units"] = upsert(Unit, ("slug",), units)
    counts["prices"] = append_prices(row for path in files for row in fixtures.prices(path))
    counts["api_prices"] = append_api_prices(fixtures.api_prices(directory / "api_prices.csv"))
    counts["benchmarks"] = append_benchmarks(directory / "measurements" / fixtures.BENCHMARKS)
    counts["calibrations"] = append_calibrations(map(fixtures.calibration, each["calibration"]))
    if scores:
        written, unchanged = scored.load(directory / "fidelity")
        counts["scored_rows"] = Counts(created=written, unchanged=unchanged)
    remember(fixtures.digest(directory), counts)
    return counts


def upsert(model: type[models.Model], key: tuple[str, ...], given: Iterable[Row]) -> Counts:
    """Creates what is new and updates what differs; rows that are not given stay."""
    rows = list(given)
    fixtures.refuse_duplicates(model._meta.model_name or "", rows, key)
    existing = {tuple(getattr(row, name) for name in key): row for row in model._default_manager.all()}
    refuse_other_names(model, key, rows, existing.values())
    defaults = _defaults(model)
    create, change, fields = [], [], set()
    for row in rows:
        values = defaults | row
        stored = existing.get(tuple(row[name] for name in key))
        if stored is None:
            create.append(model(**values))
        elif differing := [name for name, value in values.items() if getattr(stored, name) != value]:
            for name in differing:
                setattr(stored, name, values[name])
            change.append(stored)
            fields.update(differing)
    if create:
        bulk_create_with_history(create, model, default_change_reason="loaded")
    if change:
        bulk_update_with_history(change, model, sorted(fields), default_change_reason="loaded")
    return Counts(created=len(create), changed=len(change), unchanged=len(rows) - len(create) - len(change))


def refuse_other_names(
    model: type[models.Model], key: tuple[str, ...], rows: list[Row], stored: Iterable[models.Model]
) -> None:
    """What must be unique beside the key may not stand under two of them: a model that was imported by hand, say."""
    once = [f.name for f in model._meta.concrete_fields if f.unique and not f.primary_key and f.name not in key]
    owners = {(name, getattr(row, name)): row for row in stored for name in once}
    for row in rows:
        for name in once:
            other = owners.get((name, row.get(name)))
            if other is not None and any(getattr(other, part) != row[part] for part in key):
                there, here = (" ".join(str(part) for part in parts) for parts in (
                    [getattr(other, part) for part in key], [row[part] for part in key]))  # fmt: skip
                raise FixtureError(
                    f"{here}: {row[name]} is in the catalog under another slug, {there}; "
                    f"give it that one, or delete {there} first"
                )


def _defaults(model: type[models.Model]) -> Row:
    """What a column holds when the file is silent, so that a line taken out of a file is taken out of the row."""
    return {
        field.attname: field.get_default()
        for field in model._meta.concrete_fields
        if not field.primary_key and (field.has_default() or field.null or field.empty_strings_allowed and field.blank)
    }


def append_prices(given: Iterable[Row], organisation: Organisation | None = None) -> Counts:
    """Adds new offers, public or of one organisation; `accelerator` is a slug."""
    return append(
        Price,
        [row | {"organisation": organisation} for row in refer(given, "accelerator", Accelerator)],
        OFFER,
        FIGURES,
        Price.objects.filter(organisation=organisation).select_related("organisation"),
    )


def append_discounts(given: Iterable[Row], organisation: Organisation) -> Counts:
    """Adds what an organisation pays less."""
    rows = [row | {"organisation": organisation} for row in refer(given, "accelerator", Accelerator)]
    key = ("provider", "accelerator_id", "term", "as_of")
    return append(Discount, rows, key, ("discount_fraction",), Discount.objects.filter(organisation=organisation))


def append_licences(given: Iterable[Row], organisation: Organisation) -> Counts:
    """Adds what an organisation pays for software and support."""
    rows = [row | {"organisation": organisation} for row in given]
    stored = SupportLicence.objects.filter(organisation=organisation)
    return append(
        SupportLicence, rows, ("name", "vendor", "framework", "as_of"), ("usd_per_accelerator_per_year",), stored
    )


def append_benchmarks(path: Path) -> Counts:
    """Adds what chips were seen to reach."""
    given = fixtures.table(path, fixtures.BENCHMARK_COLUMNS, fixtures.benchmark) if path.exists() else ()
    rows = refer(given, "accelerator", Accelerator)
    key = ("accelerator_id", "what", "conditions", "as_of")
    return append(Benchmark, rows, key, ("value", "unit"), Benchmark.objects.all())


def append_api_prices(given: Iterable[Row]) -> Counts:
    """Adds what hosted models cost; `model` is a slug."""
    return append(ApiPrice, refer(given, "model", ServedModel), API_OFFER, API_FIGURES, ApiPrice.objects.all())


def refer(given: Iterable[Row], name: str, model: type[models.Model]) -> list[Row]:
    """Rows whose `name` points to the row of that slug."""
    keys = dict(model._default_manager.values_list("slug", "pk"))
    rows = []
    for row in given:
        if row[name] and row[name] not in keys:
            owner = row.get("provider") or row.get("slug") or ""
            raise FixtureError(f"{owner}: no {name} {row[name]!r} in the catalog")
        rows.append({key: value for key, value in row.items() if key != name} | {f"{name}_id": keys.get(row[name])})
    return rows


def append(
    model: type[models.Model],
    rows: list[Row],
    key: tuple[str, ...],
    figures: tuple[str, ...],
    stored: models.QuerySet[Any],
) -> Counts:
    """Adds the rows whose key is new. Of a known one words may be corrected; a changed figure is refused."""
    fixtures.refuse_duplicates(str(model._meta.verbose_name_plural), rows, key)
    existing = {tuple(getattr(row, name) for name in key): row for row in stored}
    create, change, words = [], [], set()
    for row in rows:
        known = existing.get(tuple(row[name] for name in key))
        differing = [name for name, value in row.items() if known and getattr(known, name) != value]
        if changed := [name for name in differing if name in figures]:
            offer = " ".join(str(row[name]) for name in key if not name.endswith("_id"))
            message = f"{', '.join(changed)} changed; prices are append-only, add a row with a newer as_of"
            raise FixtureError(f"prices: {offer}: {message}")
        if known is None:
            create.append(model(**row))
        elif differing:
            for name in differing:
                setattr(known, name, row[name])
            change.append(known)
            words.update(differing)
    model._default_manager.bulk_create(create, batch_size=200)
    if change:
        model._default_manager.bulk_update(change, sorted(words))
    return Counts(created=len(create), changed=len(change), unchanged=len(rows) - len(create) - len(change))


def append_calibrations(given: Iterable[Row]) -> Counts:
    """Adds a calibration unless the newest of its name from a file says the same; what machines measured stays."""
    rows = list(given)
    fixtures.refuse_duplicates("calibration", rows, ("name",))
    created = 0
    for row in rows:
        from_files = Calibration.objects.filter(name=row["name"]).exclude(fitted_on__startswith=PROBED)
        newest = from_files.order_by("-created_at", "-pk").first()
        if newest is None or any(getattr(newest, name) != value for name, value in row.items()):
            machines = Calibration.objects.filter(name=row["name"]).order_by("-created_at", "-pk").first()
            Calibration.objects.create(**row)
            if machines and machines.measured:
                over_the_file(machines, row)
            created += 1
    return Counts(created=created, unchanged=len(rows) - created)


def over_the_file(machines: Calibration, row: Row) -> None:
    """What machines here measured stays in force over a newer file; the rest is the file's."""
    kept = {name: machines.values[name] for name in machines.measured}
    Calibration.objects.create(
        name=row["name"],
        values=row["values"] | kept,
        basis=machines.basis,
        fitted_on=f"{machines.fitted_on}{OVER_FILE}{row['fitted_on']}",
        engine_version=row["engine_version"],
        as_of=machines.as_of,
        measured=machines.measured,
    )


def remember(version: str, counts: dict[str, Counts]) -> None:
    """Notes which state of the files the catalog holds; a load that changed nothing leaves no trace."""
    last = CatalogLoad.objects.order_by("-loaded_at", "-pk").first()
    if last is None or last.version != version or any(count.created or count.changed for count in counts.values()):
        CatalogLoad.objects.create(version=version)
