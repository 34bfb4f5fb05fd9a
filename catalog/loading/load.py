"""Loads the fixtures into the catalog, in one transaction and idempotently. Prices and calibrations are append-only."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

from django.db import models
from django.db.models import Max
from simple_history.utils import bulk_create_with_history, bulk_update_with_history

from catalog.loading import evidence, fixtures, frameworks, instances, scored
from catalog.loading.fixtures import FixtureError, Row
from catalog.loading.moves import moving
from catalog.loading.places import code_of, country_of_region
from catalog.models import (
    Accelerator,
    ApiPrice,
    ApiProvider,
    Assumption,
    Availability,
    Benchmark,
    Calibration,
    CatalogLoad,
    Discount,
    ExchangeRate,
    Framework,
    InstanceType,
    Organisation,
    Price,
    PriceLevel,
    QuantizationMethod,
    Region,
    ServedModel,
    SmallestUnit,
    SupportLicence,
    Unit,
)
from catalog.shipped import FIXTURES

FIGURES = ("accelerators", "usd_per_hour", "purchase_usd")  # of a price; they never change
OFFER = ("provider", "instance", "region", "accelerator_id", "term", "as_of")
API_FIGURES = ("usd_per_mtok_input", "usd_per_mtok_cached_input", "usd_per_mtok_output")
REST_FROM_FILE = "; all else: "  # in `fitted_on`: separates the probe results from the file that gave the other values
PROBED = "probe result"  # `fitted_on` of a calibration from accepted probe results starts with this
DATED, AS_OF = ("accelerators", "models", "frameworks"), re.compile(r"as_of: (\d{4}-\d{2}-\d{2})")
API_OFFER = ("provider", "name", "as_of")
AVAILABLE_AGAIN_DAYS = 7  # a repeated statement about availability is stored again, with its new date, after this time


@dataclass(frozen=True, kw_only=True, slots=True)
class Counts:
    """How many rows of one kind a load created, changed and left unchanged."""

    created: int = 0
    changed: int = 0
    unchanged: int = 0


@moving()
def load(
    directory: Path, scores: bool = True, imported: bool = True, origin: str = CatalogLoad.Origin.RELEASE
) -> dict[str, Counts]:
    """Loads a directory of fixtures and counts the changes by kind.

    `scores` includes the rows of the accuracy page, `imported` the measured figures of other sources.

    FixtureError: a file cannot be loaded; nothing is changed.
    """
    if not directory.is_dir():
        raise FixtureError(f"{directory}: no such directory")
    if not any(directory.glob("*.yaml")) and not any(
        (directory / name).is_dir() for name in ("accelerators", "frameworks", "prices", evidence.FOLDER)
    ):
        raise FixtureError(f"{directory}: contains no fixtures; see fixtures/README.md for the expected files")
    paths = {
        folder: sorted((directory / folder).glob("*.yaml")) for folder in ("accelerators", "models", "calibration")
    }
    counts = {
        "accelerators": upsert(Accelerator, ("slug",), map(fixtures.accelerator, paths["accelerators"])),
        "models": upsert(ServedModel, ("slug",), map(fixtures.served_model, paths["models"])),
    }
    counts["frameworks"] = upsert(Framework, ("slug", "version"), frameworks.frameworks(directory))
    for kind, model, name, key, reader in (
        ("quantizations", QuantizationMethod, "quantization", ("slug",), fixtures.quantization),
        ("regions", Region, "regions", ("slug",), fixtures.region),
        ("api_providers", ApiProvider, "api_providers", ("slug",), fixtures.api_provider),
        ("assumptions", Assumption, "overheads", ("key",), fixtures.assumption),
    ):
        counts[kind] = upsert(model, key, fixtures.listed(directory / f"{name}.yaml", reader))
    smallest = with_foreign_key(fixtures.smallest_units(directory / "smallest_units.csv"), "accelerator", Accelerator)
    counts["smallest_units"] = upsert(SmallestUnit, ("provider", "accelerator_id"), smallest)
    price_files = sorted((directory / "prices").glob("*.csv"))
    units = with_foreign_key(fixtures.listed(directory / "units.yaml", fixtures.unit), "accelerator", Accelerator)
    counts["units"] = upsert(Unit, ("slug",), units)
    rows = instances.instance_types(directory / "instances.csv")
    counts["instance_types"] = upsert(InstanceType, ("provider", "instance"), rows)
    rates = fixtures.exchange_rates(directory / "exchange_rates.csv")
    counts["exchange_rates"] = append(
        ExchangeRate, list(rates), ("currency", "as_of"), ("per_usd",), ExchangeRate.objects.all()
    )
    counts["prices"] = append_prices(row for path in price_files for row in fixtures.prices(path))
    levels = with_foreign_key(fixtures.price_levels(directory / "price_history.csv"), "accelerator", Accelerator)
    counts["price_levels"] = append(
        PriceLevel, levels, ("accelerator_id", "term", "as_of"), ("usd_per_chip_hour",), PriceLevel.objects.all()
    )
    counts["api_prices"] = append_api_prices(fixtures.api_prices(directory / "api_prices.csv"))
    counts["benchmarks"] = append_benchmarks(directory / "measurements" / fixtures.BENCHMARKS)
    counts["calibrations"] = append_calibrations(map(fixtures.calibration, paths["calibration"]))
    if scores:
        written, unchanged = scored.load(directory / "fidelity")
        counts["scored_rows"] = Counts(created=written, unchanged=unchanged)
    if imported:
        created, changed, unchanged = evidence.load(directory / evidence.FOLDER)
        counts["imported_figures"] = Counts(created=created, changed=changed, unchanged=unchanged)
    record_load(fixtures.digest(directory), counts, origin)
    return counts


def upsert(model: type[models.Model], key: tuple[str, ...], given: Iterable[Row]) -> Counts:
    """Creates new rows and updates rows that differ; other stored rows stay."""
    rows = list(given)
    fixtures.refuse_duplicates(model._meta.model_name or "", rows, key)
    existing = {tuple(getattr(row, name) for name in key): row for row in model._default_manager.all()}
    refuse_taken_names(model, key, rows, existing.values())
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
    with_history = hasattr(model, "history")
    if create and with_history:
        bulk_create_with_history(create, model, default_change_reason="loaded")
    elif create:
        model._default_manager.bulk_create(create, batch_size=200)
    if change and with_history:
        bulk_update_with_history(change, model, sorted(fields), default_change_reason="loaded")
    elif change:
        model._default_manager.bulk_update(change, sorted(fields))
    return Counts(created=len(create), changed=len(change), unchanged=len(rows) - len(create) - len(change))


def refuse_taken_names(
    model: type[models.Model], key: tuple[str, ...], rows: list[Row], stored: Iterable[models.Model]
) -> None:
    """FixtureError: another row already has a unique value, such as the hf_id of a model that was imported by hand."""
    unique = {f.name for f in model._meta.concrete_fields if f.unique and not f.primary_key}
    unique |= {
        c.fields[0] for c in model._meta.constraints if isinstance(c, models.UniqueConstraint) and len(c.fields) == 1
    }
    unique -= set(key)
    owners = {(name, getattr(row, name)): row for row in stored for name in unique}
    for row in rows:
        for name in unique:
            other = owners.get((name, row.get(name)))
            if other is not None and any(getattr(other, part) != row[part] for part in key):
                stored_key = " ".join(str(getattr(other, part)) for part in key)
                new_key = " ".join(str(row[part]) for part in key)
                raise FixtureError(
                    f"{new_key}: {row[name]} is already in the catalog as {stored_key}; "
                    f"use that slug, or delete {stored_key} first"
                )


def _defaults(model: type[models.Model]) -> Row:
    """Values for keys that a file omits, so that removing a key from a file clears the column."""
    return {
        field.attname: field.get_default()
        for field in model._meta.concrete_fields
        if not field.primary_key and (field.has_default() or field.null or field.empty_strings_allowed and field.blank)
    }


def append_prices(given: Iterable[Row], organisation: Organisation | None = None, made_by: str = "") -> Counts:
    """Adds new offers, public or of one organisation, for which `made_by` is kept. `accelerator` is a slug.

    FixtureError: a rent is printed per chip and nothing says how many are sold together.
    """
    rows = with_smallest_units(list(given))
    countries = dict(Region.objects.values_list("slug", "country"))
    plain = [{name: value for name, value in row.items() if name != "availability"} for row in rows]
    stored = Price.objects.filter(organisation=organisation).select_related("organisation")
    given = [
        row | {"organisation": organisation, "country": row["country"] or country_of(row, countries)}
        for row in with_foreign_key(plain, "accelerator", Accelerator)
    ]
    with moving(organisation):
        counts = append(Price, given, OFFER, FIGURES, stored, made_by)
    if organisation is None:
        append_availability(rows)
    return counts


def append_availability(given: Iterable[Row]) -> int:
    """Adds what rows of prices, or rows without one, say about availability; returns how many statements are new.

    One that repeats the last is added again after AVAILABLE_AGAIN_DAYS. Of several on one day, the last counts.
    """
    stated = sorted((row for row in given if row.get("availability")), key=lambda row: row["as_of"])
    chips = dict(Accelerator.objects.values_list("slug", "pk")) if stated else {}
    stored = Availability.objects.filter(provider__in={row["provider"] for row in stated}).order_by("as_of")
    last = {tuple(getattr(each, name) for name in OFFER[:-1]): each for each in stored}
    added: list[Availability] = []
    for row in stated:
        offer = (row["provider"], row["instance"], row["region"] or "", chips[row["accelerator"]], row["term"])
        before = last.get(offer)
        days = (row["as_of"] - before.as_of).days if before else AVAILABLE_AGAIN_DAYS
        if before and (days < 0 or (before.state == row["availability"] and days < AVAILABLE_AGAIN_DAYS)):
            continue
        if before and not days:
            added = [each for each in added if each is not before]
            Availability.objects.filter(pk=before.pk).delete()
        named = dict(zip(OFFER[:-1], offer, strict=True))
        last[offer] = Availability(**named, state=row["availability"], as_of=row["as_of"], source=row["source"])
        added.append(last[offer])
    Availability.objects.bulk_create(added, batch_size=200)
    return len(added)


def with_smallest_units(rows: list[Row]) -> list[Row]:
    """The rows with how many chips are sold together: what they state, else what is known of the seller and chip."""
    known = known_units()
    if missing := [row for row in rows if lacks_unit(row, known)]:
        raise FixtureError("\n".join(map(unit_missing, missing[:10])))
    return [row | _unit_of(row, known) for row in rows]


Units = dict[tuple[str, str], tuple[int | None, str]]


def known_units() -> Units:
    """(smallest unit in chips, its source) of each seller and chip; None: no source states it."""
    rows = SmallestUnit.objects.values_list("provider", "accelerator__slug", "accelerators", "source", "as_of")
    return {(provider, slug): (unit, f"{source}, {as_of}") for provider, slug, unit, source, as_of in rows}


def lacks_unit(row: Row, known: Units) -> bool:
    """Whether a rent per chip comes without the number of chips that are sold together."""
    stated = row["smallest_unit_accelerators"] or row["smallest_unit_source"]
    return fixtures.is_per_chip(row) and not stated and (row["provider"], row["accelerator"]) not in known


def unit_missing(row: Row) -> str:
    return (
        f"{row['provider']} {row['instance']}: the price is for one accelerator, so say how many are sold together: "
        f"fill in smallest_unit_accelerators with a number or {fixtures.UNKNOWN}, or add a line for "
        f"{row['provider']},{row['accelerator']} to fixtures/smallest_units.csv"
    )


def _unit_of(row: Row, known: Units) -> Row:
    if not fixtures.is_per_chip(row):
        return {"smallest_unit_accelerators": row["accelerators"], "smallest_unit_source": ""}
    if row["smallest_unit_accelerators"] or row["smallest_unit_source"]:
        return {}
    unit, source = known[row["provider"], row["accelerator"]]
    return {"smallest_unit_accelerators": unit, "smallest_unit_source": source}


def country_of(row: Row, countries: Mapping[str, str]) -> str:
    """The ISO code of the country that a region lies in, from regions.yaml or the region's own name; empty: unknown."""
    region = row["region"] or ""
    known = countries.get(f"{row['provider']}-{region}", "")
    return code_of(known) or country_of_region(row["provider"], region)


def append_discounts(given: Iterable[Row], organisation: Organisation, made_by: str = "") -> Counts:
    """Adds discounts of an organisation."""
    rows = [row | {"organisation": organisation} for row in with_foreign_key(given, "accelerator", Accelerator)]
    key = ("provider", "accelerator_id", "term", "as_of")
    stored = Discount.objects.filter(organisation=organisation)
    with moving(organisation):
        return append(Discount, rows, key, ("discount_fraction",), stored, made_by)


def append_licences(given: Iterable[Row], organisation: Organisation) -> Counts:
    """Adds software and support fees of an organisation."""
    rows = [row | {"organisation": organisation} for row in given]
    stored = SupportLicence.objects.filter(organisation=organisation)
    return append(
        SupportLicence, rows, ("name", "vendor", "framework", "as_of"), ("usd_per_accelerator_per_year",), stored
    )


def append_benchmarks(path: Path) -> Counts:
    """Adds measured rates of accelerators."""
    given = fixtures.table(path, fixtures.BENCHMARK_COLUMNS, fixtures.benchmark) if path.exists() else ()
    rows = with_foreign_key(given, "accelerator", Accelerator)
    key = ("accelerator_id", "what", "conditions", "as_of")
    return append(Benchmark, rows, key, ("value", "unit"), Benchmark.objects.all())


def append_api_prices(given: Iterable[Row]) -> Counts:
    """Adds prices of hosted models. `model` and `hardware` are slugs. FixtureError: one of them is unknown."""
    rows = with_foreign_key(given, "model", ServedModel)
    chips = set(Accelerator.objects.values_list("slug", flat=True))
    for row in rows:
        if row.get("hardware") and row["hardware"] not in chips:
            raise FixtureError(f"{row['provider']}: no accelerator {row['hardware']!r} in the catalog")
    with moving():
        return append(ApiPrice, rows, API_OFFER, API_FIGURES, ApiPrice.objects.all())


def with_foreign_key(given: Iterable[Row], name: str, model: type[models.Model]) -> list[Row]:
    """Rows with `name_id` instead of the slug in `name`. FixtureError: the slug is not in the catalog."""
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
    made_by: str = "",
) -> Counts:
    """Adds rows with a new key. Text of existing rows may change; FixtureError if one of `figures` differs.

    `made_by`: who adds them, where the rows keep that.
    """
    author = {"made_by": made_by} if made_by else {}
    fixtures.refuse_duplicates(str(model._meta.verbose_name_plural), rows, key)
    existing = {tuple(getattr(row, name) for name in key): row for row in stored}
    create, change, fields = [], [], set()
    for row in rows:
        known = existing.get(tuple(row[name] for name in key))
        differing = [name for name, value in row.items() if known and getattr(known, name) != value]
        if changed := [name for name in differing if name in figures]:
            offer = " ".join(str(row[name]) for name in key if not name.endswith("_id"))
            message = f"{', '.join(changed)} changed; these rows are append-only, so add one with a newer as_of"
            raise FixtureError(f"prices: {offer}: {message}")
        if known is None:
            create.append(model(**row, **author))
        elif differing:
            for name in differing:
                setattr(known, name, row[name])
            change.append(known)
            fields.update(differing)
    model._default_manager.bulk_create(create, batch_size=200)
    if change:
        model._default_manager.bulk_update(change, sorted(fields))
    return Counts(created=len(create), changed=len(change), unchanged=len(rows) - len(create) - len(change))


def append_calibrations(given: Iterable[Row]) -> Counts:
    """Adds calibrations that differ from the newest of their name from a file. Worker measurements stay in force."""
    rows = list(given)
    fixtures.refuse_duplicates("calibration", rows, ("name",))
    created = 0
    for row in rows:
        from_files = Calibration.objects.filter(name=row["name"]).exclude(fitted_on__startswith=PROBED)
        newest = from_files.order_by("-created_at", "-pk").first()
        if newest is None or any(getattr(newest, name) != value for name, value in row.items()):
            latest = Calibration.objects.filter(name=row["name"]).order_by("-created_at", "-pk").first()
            Calibration.objects.create(**row)
            if latest and latest.measured:
                keep_measured(latest, row)
            created += 1
    return Counts(created=created, unchanged=len(rows) - created)


def keep_measured(latest: Calibration, row: Row) -> None:
    """Adds a calibration with the values that workers measured; the others come from the newer file."""
    measured = {name: latest.values[name] for name in latest.measured}
    Calibration.objects.create(
        name=row["name"],
        values=row["values"] | measured,
        basis=latest.basis,
        fitted_on=f"{latest.fitted_on}{REST_FROM_FILE}{row['fitted_on']}",
        engine_version=row["engine_version"],
        as_of=latest.as_of,
        measured=latest.measured,
    )


def record_load(version: str, counts: dict[str, Counts], origin: str) -> None:
    """Records the loaded version of the fixtures, unless nothing changed."""
    last = CatalogLoad.objects.order_by("-loaded_at", "-pk").first()
    is_new = last is None or (last.version, last.origin) != (version, origin)
    if is_new or any(count.created or count.changed for count in counts.values()):
        CatalogLoad.objects.create(version=version, origin=origin)


# --- the loaded catalog and the files of the code ---------------------------------------------------------------


def shipped() -> Path:
    """The folder of the fixtures that belong to this version of the code."""
    return FIXTURES


@cache
def shipped_version() -> str:
    """The digest of the shipped fixtures when this process first asked."""
    return fixtures.digest(shipped())


@cache
def newest_shipped() -> date:
    """The newest date of the shipped accelerators, models and frameworks."""
    files = (path for name in DATED for path in (shipped() / name).glob("*.yaml"))
    return max(date.fromisoformat(day) for path in files for day in AS_OF.findall(path.read_text(encoding="utf-8")))


def why_older() -> str:
    """Why the loaded catalog is older than the code; empty: it is not.

    A later load, a bundle that is at least as new, and an operator's own directory are not older.
    """
    last = CatalogLoad.objects.order_by("-loaded_at", "-pk").first()
    if last is None or last.origin == CatalogLoad.Origin.DIRECTORY:
        return ""
    if CatalogLoad.objects.filter(version=shipped_version()).exists():
        return ""
    if last.origin == CatalogLoad.Origin.BUNDLE:
        loaded = [model.objects.aggregate(day=Max("as_of"))["day"] for model in (Accelerator, ServedModel, Framework)]
        if max(filter(None, loaded), default=date.min) >= newest_shipped():
            return ""
    return f"version {last.version[:12]} is loaded, and this code comes with {shipped_version()[:12]}"
