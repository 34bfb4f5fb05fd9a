"""Importing prices: rows that look like a mistake are held until a person releases or discards them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import structlog
from django.db import transaction
from django.utils import timezone

from advisor.engine.terms import exact_text
from catalog import clock
from catalog.accounts import audit
from catalog.loading import fixtures, load
from catalog.models import ExchangeRate, HeldPrice, Organisation, Price, PriceImport, default_organisation
from catalog.pricing import checks as price_checks

log = structlog.get_logger("assay.prices")
State = HeldPrice.State
COLUMNS = (
    "provider", "instance", "region", "accelerator__slug", "accelerators", "term", "kind", "as_of", "usd_per_hour",
    "purchase_usd", "origin",
)  # fmt: skip


class NotHeld(ValueError):
    """No held price has this ID, or somebody has already decided about it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Imported:
    """What one import did."""

    counts: load.Counts
    held: Sequence[HeldPrice]


def market(day: date) -> price_checks.Market:
    """The current public prices, without CPUs, whose instances are parts of a socket."""
    rows = Price.objects.filter(organisation=None).exclude(accelerator__kind="cpu").values(*COLUMNS)
    return price_checks.market_of([{**row, "accelerator": row.pop("accelerator__slug")} for row in rows], day)


def exchange_rates() -> dict[str, float]:
    """What one US dollar costs in each currency, by the newest rate."""
    rows = ExchangeRate.objects.order_by("as_of").values_list("currency", "per_usd")
    return {currency: float(per_usd) for currency, per_usd in rows}


def add(
    rows: Sequence[fixtures.Row], file_format: str, file_name: str, by: str, owner: Organisation | None
) -> Imported:
    """Adds the prices of one file and holds the suspicious ones; all or nothing, and logged."""
    day = clock.today()
    known = market(day)
    rates = exchange_rates()
    reasons = [price_checks.suspicion(row, known, day, per_usd=rates) for row in rows]
    with transaction.atomic():
        counts = load.append_prices(
            [row for row, why in zip(rows, reasons, strict=True) if not why], owner, by if owner else ""
        )
        done = PriceImport.objects.create(
            organisation=owner,
            file_format=file_format,
            file_name=file_name[:200],
            made_by=by[:150],
            created_rows=counts.created,
            changed_rows=counts.changed,
            unchanged_rows=counts.unchanged,
        )
        held = [
            HeldPrice.objects.create(price_import=done, row=as_text(row), reason=why)
            for row, why in zip(rows, reasons, strict=True)
            if why
        ]
    log.info("prices imported", file=file_name, by=by, created=counts.created, held=len(held))
    return Imported(counts=counts, held=held)


def offer_name(row: Mapping[str, Any]) -> str:
    """Provider, instance, region, chips and term of a row, in words."""
    name = (row["provider"], row["instance"], row["region"], row["accelerator"], f"x{row['accelerators']}", row["term"])
    return " ".join(str(part) for part in name if part)


def held_line(held: HeldPrice) -> str:
    """One held price in words."""
    row = held.row
    usd = exact_text(row["usd_per_hour"] or row["purchase_usd"])
    return f"{held.pk}: {offer_name(row)} at {usd} of {row['as_of']} {held.reason}"


def as_text(row: fixtures.Row) -> dict[str, str]:
    """A row as it would stand in a CSV file."""
    return {name: "" if value is None else str(value) for name, value in row.items()}


def waiting() -> list[HeldPrice]:
    """The held prices that nobody has decided about, oldest first."""
    return list(HeldPrice.objects.filter(state=State.HELD).select_related("price_import"))


def release(pk: int, by: str) -> None:
    """Adds a held price to the catalog. NotHeld: there is none with this ID; FixtureError: it cannot be added."""
    with transaction.atomic():
        held = _decided(pk, State.RELEASED, by)
        row: dict[str, Any] = fixtures.price(f"held price {pk}", held.row)
        owner = held.price_import.organisation
        load.append_prices([row], owner, held.price_import.made_by if owner else "")
    log.info("price released", held=pk, by=by)


def discard(pk: int, by: str) -> None:
    """Drops a held price. NotHeld: there is none with this ID."""
    with transaction.atomic():
        _decided(pk, State.DISCARDED, by)
    log.info("price discarded", held=pk, by=by)


def _decided(pk: int, state: str, by: str) -> HeldPrice:
    held = HeldPrice.objects.select_for_update().select_related("price_import").filter(pk=pk, state=State.HELD).first()
    if held is None:
        raise NotHeld(f"no held price {pk}; `manage.py prices held` lists them")
    held.state, held.decided_by, held.decided_at = state, by[:150], timezone.now()
    held.save(update_fields=["state", "decided_by", "decided_at"])
    owner = held.price_import.organisation or default_organisation()
    audit.record(owner, by, audit.Action.PRICE_DECISION, offer_name(held.row), state)
    return held
