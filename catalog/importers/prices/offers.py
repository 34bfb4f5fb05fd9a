"""What the readers of price data share: documents, positive prices and rows with the same keys."""

import csv
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any, TextIO

from catalog.loading.fixtures import FixtureError

UNREADABLE = (AttributeError, IndexError, KeyError, TypeError, ValueError)  # what a record of another form raises
Chips = tuple[str, int]  # slug of an accelerator, and how many an instance has
GOVERNMENT = re.compile(r"us-?(?:gov|dod|sec|nat|iso)")  # starts the names of regions that are not for sale to others
FOR_GOVERNMENTS = "region for governments"


class Offer(dict[str, Any]):
    """A row for fixtures.price or fixtures.api_price, with the rows of the feed that it was made of.

    `hold`: why a person has to confirm it before it becomes a price; empty: nothing but the usual checks.
    """

    rows: tuple[int, ...] = ()
    hold: str = ""


@dataclass(kw_only=True, slots=True)
class Account:
    """What became of each row of a feed: a reader numbers them, and skips those that no offer is made of."""

    read: int = 0
    skipped: dict[str, int] = field(default_factory=dict)  # rows by reason
    proposed: dict[str, str] = field(default_factory=dict)  # instances and chips that the catalog lacks: what they are
    listed: dict[str, int] = field(default_factory=dict)  # the same: offers of each
    models: dict[str, dict[str, Any]] = field(default_factory=dict)  # hosted models that the catalog lacks
    gone: list[dict[str, Any]] = field(default_factory=list)  # availability of offers that are listed without a price

    def row(self) -> int:
        """The number of the next row."""
        self.read += 1
        return self.read

    def skip(self, reason: str, rows: int = 1) -> None:
        if rows:
            self.skipped[reason] = self.skipped.get(reason, 0) + rows

    def lacking(self, name: str, what: str) -> None:
        """Notes an offer of an instance or a chip that the catalog lacks."""
        self.proposed.setdefault(name, what)
        self.listed[name] = self.listed.get(name, 0) + 1

    def model(self, key: str, name: str, hf_id: str, provider: str, tokens: int) -> None:
        """Notes a hosted model that the catalog lacks. tokens: that it read and wrote, as far as it is stated."""
        found = self.models.setdefault(key, {"key": key, "name": name, "hf_id": "", "providers": [], "tokens": 0})
        found["hf_id"] = found["hf_id"] or hf_id
        found["tokens"] += tokens
        if provider and provider not in found["providers"]:
            found["providers"].append(provider)

    def sold_out(self, row: Mapping[str, Any]) -> None:
        """Notes that an offer, named by the columns of its row, is listed without a price because none is left."""
        named = {name: row[name] for name in ("provider", "instance", "region", "accelerator", "term", "source")}
        self.gone.append(named | {"as_of": date.fromisoformat(row["as_of"]), "availability": "sold_out"})


def offer(row: Mapping[str, Any], rows: tuple[int, ...], hold: str = "") -> Offer:
    """The row of one offer, made of these rows of the feed."""
    made = Offer(row)
    made.rows, made.hold = rows, hold
    return made


def is_government(region: Any) -> bool:
    """Whether only governments can rent in a region: usgovvirginia, us-gov-west-1."""
    return bool(GOVERNMENT.match(str(region or "").lower()))


def day_of(text: Any) -> str:
    """The ISO date at the start of a text such as 2026-08-01T00:00:00Z; empty: it has none."""
    try:
        return date.fromisoformat(str(text)[:10]).isoformat()
    except ValueError:
        return ""


def parsed(text: str, where: str) -> dict[str, Any]:
    """The JSON object of a price feed, of any size. FixtureError: not a JSON object; `where` names it."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FixtureError(f"{where}: not JSON: {error}") from error
    if not isinstance(document, dict):
        raise FixtureError(f"{where}: expected a JSON object")
    return document


def objects(document: dict[str, Any], key: str, what: str) -> list[dict[str, Any]]:
    """The objects listed under `key`. FixtureError: there is no such list; `what` names the format."""
    listed = document.get(key)
    if not isinstance(listed, list) or not all(isinstance(item, dict) for item in listed):
        raise FixtureError(f"{what}: expected a list of objects under {key!r}")
    return listed


def listed_in(text: str, key: str, what: str) -> list[dict[str, Any]]:
    """The same from text. FixtureError: not a JSON object with this list."""
    return objects(parsed(text, what), key, what)


def usd(given: Any) -> Decimal | None:
    """A price in USD; None if it is missing, zero or not a number."""
    try:
        price = Decimal(str(given))
    except InvalidOperation:
        return None
    return price if price.is_finite() and price > 0 else None


def finite(text: str) -> float:
    """A number. ValueError: it is none, or infinite."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"expected a number, not {text!r}")
    return number


def plain(price: Decimal) -> str:
    """A price with at most 6 decimals, without trailing zeros."""
    return f"{price:.6f}".rstrip("0").rstrip(".")


USUAL = {  # what most readers' rows have
    "vcpus": "",
    "host_memory_gib": "",
    "purchase_usd": "",
    "kind": "vm",
    "notes": "",
    "origin": "provider_api",
    "confidence": "high",
}


def row(*, chips: Chips, usd_per_hour: Decimal, rows: tuple[int, ...], hold: str = "", **columns: str) -> Offer:
    """The row of one offer for fixtures.price. `chips`: slug and count; `usd_per_hour`: of the whole instance.

    `rows` and `hold`: as in Offer. `availability`: available or sold_out, if the seller says so.
    """
    given = {**USUAL, "accelerator": chips[0], "accelerators": str(chips[1]), "usd_per_hour": plain(usd_per_hour)}
    said = {name: text for name, text in columns.items() if text or name != "availability"}
    return offer(given | said, rows, hold)


def lines_of(stream: TextIO, columns: tuple[str, ...], file: str, catalog: str) -> Iterable[Mapping[str, str]]:
    """The lines of a CSV file of a collection of prices. FixtureError: it has other columns."""
    table = csv.DictReader(stream)
    if missing := [column for column in columns if column not in (table.fieldnames or ())]:
        raise FixtureError(f"{file}: column {', '.join(missing)} is missing; is it a {catalog} catalog?")
    return table
