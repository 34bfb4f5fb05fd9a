"""Imports prices of hosted models from the public model list of OpenRouter: JSON, in USD per token as text.

Traps: a price of -1 means that a router chooses the model, 0 that it is free for now; `:batch` is another service.
Archives keep the list without the object around it.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from catalog.importers.prices import hosted
from catalog.importers.prices.offers import UNREADABLE, Account, Offer, listed_in, offer, usd

API = "OpenRouter models API"
PROVIDER = "openrouter"
ROUTER = "-1"  # price of a router
NO_MODEL = "model not in the catalog"
COLUMNS = {
    "usd_per_mtok_input": "prompt",
    "usd_per_mtok_cached_input": "input_cache_read",
    "usd_per_mtok_output": "completion",
}


def read(text: str, models: hosted.Models, as_of: str, account: Account) -> Iterator[Offer]:
    """Prices of `models` as rows for fixtures.api_price."""
    for entry in entries(text):
        number = account.row()
        try:
            reason, row = endpoint(entry, models, as_of)
        except (*UNREADABLE, ArithmeticError):
            reason, row = "unreadable model", {}
        if reason == NO_MODEL and str(entry["pricing"].get("prompt")) != ROUTER:
            hosted.note_lacking(account, models, PROVIDER, str(entry["id"]), str(entry.get("hugging_face_id") or ""))
        if reason:
            account.skip(reason)
        else:
            yield offer(row, (number,))


def usage(text: str, models: hosted.Models, account: Account) -> Iterator[Offer]:
    """Adds the tokens of each model in a file of daily rankings to what the catalog lacks; makes no offer."""
    for entry in entries(text):
        account.row()
        try:
            tokens = sum(int(entry[f"total_{kind}_tokens"]) for kind in ("prompt", "completion"))
            hosted.note_lacking(account, models, "", str(entry["model_permaslug"]), tokens=max(tokens, 0))
            account.skip("usage of a model, no price")
        except (*UNREADABLE, ArithmeticError):
            account.skip("unreadable ranking")
    yield from ()


def entries(text: str) -> list[dict[str, Any]]:
    """The models of a list. FixtureError: there is no such list."""
    if text.lstrip().startswith("[") and text.strip(" \n[]"):
        text = f'{{"data": {text}}}'
    return listed_in(text, "data", API)


def newest(text: str) -> str:
    """The day on which the newest model of a list was added, so that the list is not older; empty: not stated."""
    try:
        created = max(int(entry["created"]) for entry in entries(text) if entry.get("created"))
        return datetime.fromtimestamp(created, UTC).date().isoformat()
    except (*UNREADABLE, OverflowError, OSError):
        return ""


def endpoint(entry: dict[str, Any], models: hosted.Models, as_of: str) -> tuple[str, dict[str, str]]:
    """Why an entry is no price, or an empty text and its row."""
    name, pricing = str(entry["id"]), entry["pricing"]
    model, _, variant = name.partition(":")
    prices = {column: usd(pricing.get(key)) for column, key in COLUMNS.items()}
    on_hub = str(entry.get("hugging_face_id") or "").lower()
    slug = models.by_id.get(on_hub) if on_hub else None
    slug = slug or models.slug(PROVIDER, model)
    if slug is None:
        return NO_MODEL, {}
    if variant == "batch":
        return "price of batches", {}
    if prices["usd_per_mtok_input"] is None or prices["usd_per_mtok_output"] is None:
        return "no price per token", {}
    if variant:
        return "variant of a model", {}
    return "", {
        "provider": PROVIDER,
        "name": name,
        "model": slug,
        **{column: hosted.per_million(price) for column, price in prices.items()},
        "max_input_tokens": str(int(entry.get("context_length") or 0) or ""),
        "as_of": as_of,
        "source": f"{API}, model {name}",
    }
