"""What the readers of price data share: documents, positive prices and rows with the same keys."""

import json
from decimal import Decimal, InvalidOperation
from typing import Any

from catalog.loading.fixtures import FixtureError, Row

UNREADABLE = (AttributeError, IndexError, KeyError, TypeError, ValueError)  # what a record of another form raises


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


def plain(price: Decimal) -> str:
    """A price with at most 6 decimals, without trailing zeros."""
    return f"{price:.6f}".rstrip("0").rstrip(".")


def row(
    *,
    provider: str,
    instance: str,
    chips: tuple[str, int],
    region: str,
    term: str,
    usd_per_hour: Decimal,
    as_of: str,
    source: str,
    origin: str = "provider_api",
    confidence: str = "high",
    kind: str = "vm",
    vcpus: str = "",
    host_memory_gib: str = "",
    notes: str = "",
) -> Row:
    """The row of one offer for fixtures.price. `chips`: slug and count; `usd_per_hour`: of the whole instance."""
    slug, count = chips
    return {
        "provider": provider,
        "instance": instance,
        "accelerator": slug,
        "accelerators": str(count),
        "region": region,
        "vcpus": vcpus,
        "host_memory_gib": host_memory_gib,
        "term": term,
        "usd_per_hour": plain(usd_per_hour),
        "purchase_usd": "",
        "kind": kind,
        "as_of": as_of,
        "source": source,
        "notes": notes,
        "origin": origin,
        "confidence": confidence,
    }
