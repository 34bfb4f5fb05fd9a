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
    """What one import did. `verdicts` has stored, held or discarded (by a person, before) for each row."""

    counts: load.Counts
    held: Sequence[HeldPrice]
    verdicts: Sequence[str] = ()


def market(day: date) -> price_checks.Market:
    """The current public prices, without CPUs, whose instances are parts of a socket."""
    rows = Price.objects.filter(organisation=None).exclude(accelerator__kind="cpu").values(*COLUMNS)
    return price_checks.market_of([{**row, "accelerator": row.pop("accelerator__slug")} for row in rows], day)


def exchange_rates() -> dict[str, float]:
    """What one US dollar costs in each currency, by the newest rate."""
    rows = ExchangeRate.objects.order_by("as_of").values_list("currency", "per_usd")
    return {currency: float(per_usd) for currency, per_usd in rows}


def add(
    rows: Sequence[fixtures.Row],
    file_format: str,
    file_name: str,
    by: str,
    owner: Organisation | None,
    holds: Sequence[str] = (),
) -> Imported:
    """Adds the prices of one file and holds the suspicious ones; all or nothing, and logged.

    `holds`: for each row why it has to wait for a person anyway; empty: the checks decide.
    """
    day = clock.today()
    reasons = list(holds) or [""] * len(rows)
    known, rates = market(day), exchange_rates()
    spot = [row["term"] == "spot" for row in rows]
    for is_spot in (False, True):  # a spot price is compared with the prices on demand of its own list too
        for place, row in enumerate(rows):
            if spot[place] == is_spot and not reasons[place]:
                reasons[place] = price_checks.suspicion(row, known, day, per_usd=rates)
        known = price_checks.with_rows(known, [row for row, why in zip(rows, reasons, strict=True) if not why], day)
    return keep(rows, reasons, file_format, file_name, by, owner)


def keep(
    rows: Sequence[fixtures.Row],
    reasons: Sequence[str],
    file_format: str,
    file_name: str,
    by: str,
    owner: Organisation | None,
) -> Imported:
    """Adds the rows without a reason and holds the others, once for all regions with the same price.

    A row that waits already is not held twice, and one that a person has discarded stays so.
    """
    before = HeldPrice.objects.filter(price_import__organisation=owner).exclude(state=State.RELEASED)
    decided = {_mark(held.row, region): held.state for held in before for region in regions(held.row)}
    verdicts = [
        str(decided.get(_mark(row), State.HELD if why else "stored")) for row, why in zip(rows, reasons, strict=True)
    ]
    with transaction.atomic():
        clean = [row for row, verdict in zip(rows, verdicts, strict=True) if verdict == "stored"]
        hosted = bool(rows) and "model" in rows[0]
        counts = load.append_api_prices(clean) if hosted else load.append_prices(clean, owner, by if owner else "")
        done = PriceImport.objects.create(
            organisation=owner,
            file_format=file_format,
            file_name=file_name[:200],
            made_by=by[:150],
            created_rows=counts.created,
            changed_rows=counts.changed,
            unchanged_rows=counts.unchanged,
        )
        groups: dict[tuple[str, ...], HeldPrice] = {}
        for row, why, verdict in zip(rows, reasons, verdicts, strict=True):
            if verdict == "held" and _mark(row) not in decided:
                key = _mark(row, "")
                if key in groups:
                    groups[key].row.setdefault(ALSO_IN, []).append(row.get("region") or "")
                else:
                    groups[key] = HeldPrice(price_import=done, row=as_text(row), reason=why)
        for held in groups.values():
            held.save()
    log.info("prices imported", file=file_name, by=by, created=counts.created, held=len(groups))
    return Imported(counts=counts, held=tuple(groups.values()), verdicts=verdicts)


ALSO_IN = "also_in"  # of a held row: the other regions with this price
PRICE_CELLS = ("usd_per_hour", "purchase_usd", *load.API_FIGURES)


def regions(row: Mapping[str, Any]) -> list[str]:
    """The regions that a held row is for."""
    return [row.get("region") or "", *row.get(ALSO_IN, ())]


def _mark(row: Mapping[str, Any], region: str | None = None) -> tuple[str, ...]:
    """What two held rows have in common if they are the same price; in `region`, or in that of the row."""
    names = ("provider", "instance", "name", "accelerator", "model", "accelerators", "term", "as_of")
    prices = (row.get(name) or "" for name in PRICE_CELLS)
    place = (row.get("region") or "") if region is None else region
    return (*(str(row.get(name) or "") for name in names), *(f"{float(p):.6f}" if p else "" for p in prices), place)


def offer_name(row: Mapping[str, Any]) -> str:
    """Provider, instance, region, chips and term of a row, in words; of a hosted model its provider and name."""
    if "model" in row:
        return f"{row['provider']} {row['name']}"
    more = f"and {len(row[ALSO_IN])} more regions" if row.get(ALSO_IN) else ""
    name = (row["provider"], row["instance"], row["region"], more, row["accelerator"], f"x{row['accelerators']}")
    return " ".join(str(part) for part in (*name, row["term"]) if part)


def held_line(held: HeldPrice) -> str:
    """One held price in words."""
    return f"{held.pk}: {offer_name(held.row)} at {price_text(held.row)} of {held.row['as_of']} {held.reason}"


def price_text(row: Mapping[str, Any]) -> str:
    """The price of a held row in words."""
    if "model" in row:
        return f"{row['usd_per_mtok_input']} in, {row['usd_per_mtok_output']} out, USD per million tokens,"
    return exact_text(row["usd_per_hour"] or row["purchase_usd"])


def as_text(row: fixtures.Row) -> dict[str, Any]:
    """A row as it would stand in a CSV file."""
    return {name: "" if value is None else str(value) for name, value in row.items()}


def waiting() -> list[HeldPrice]:
    """The held prices that nobody has decided about, oldest first."""
    return list(HeldPrice.objects.filter(state=State.HELD).select_related("price_import"))


def release(pk: int, by: str) -> None:
    """Adds a held price to the catalog. NotHeld: there is none with this ID; FixtureError: it cannot be added."""
    with transaction.atomic():
        held = _decided(pk, State.RELEASED, by)
        owner = held.price_import.organisation
        given = {name: value for name, value in held.row.items() if name != ALSO_IN}
        if "model" in given:
            load.append_api_prices([fixtures.api_price(f"held price {pk}", given)])
        else:
            rows = [fixtures.price(f"held price {pk}", given | {"region": region}) for region in regions(held.row)]
            load.append_prices(rows, owner, held.price_import.made_by if owner else "")
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
