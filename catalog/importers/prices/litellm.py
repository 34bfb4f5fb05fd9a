"""Imports prices of hosted models from litellm: one JSON object, in USD per token.

Traps: keys repeat the provider. Endpoints that a provider has withdrawn stay in the list for ever; `deprecation_date`
is the only sign, and few have it. Images and seconds of audio are priced per token too. No file is dated.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from catalog.importers.prices import hosted
from catalog.importers.prices.offers import (
    FOR_GOVERNMENTS,
    UNREADABLE,
    Account,
    Offer,
    day_of,
    is_government,
    offer,
    usd,
)
from catalog.loading.fixtures import FixtureError

COLUMNS = {
    "usd_per_mtok_input": "input_cost_per_token",
    "usd_per_mtok_cached_input": "cache_read_input_token_cost",
    "usd_per_mtok_output": "output_cost_per_token",
}
NO_MODEL = "model not in the catalog"
TEXT_MODES = (None, "chat", "completion", "responses")


def read(path: Path, models: hosted.Models, as_of: str, account: Account) -> Iterator[Offer]:
    """Prices of `models` as rows for fixtures.api_price. FixtureError: not such a file."""
    try:
        given = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise FixtureError(f"{path.name}: not JSON: {error}") from error
    if not isinstance(given, dict):
        raise FixtureError(f"{path.name}: expected a JSON object")
    for key, entry in given.items():
        number = account.row()
        try:
            reason, row = endpoint(key, entry, models, as_of, path.name)
        except (*UNREADABLE, ArithmeticError):
            reason, row = "unreadable entry", {}
        if reason == NO_MODEL:
            stated = str(entry.get("litellm_provider") or key.partition("/")[0])
            hosted.note_lacking(account, models, hosted.seller(stated), hosted.own_name(key, stated))
        if reason:
            account.skip(reason)
        else:
            yield offer(row, (number,))


def endpoint(
    key: str, entry: dict[str, Any], models: hosted.Models, as_of: str, file_name: str
) -> tuple[str, dict[str, str]]:
    """Why an entry is no price, or an empty text and its row."""
    stated = str(entry.get("litellm_provider") or key.partition("/")[0])
    provider, name = hosted.seller(stated), hosted.own_name(key, stated)
    prices = {column: usd(entry.get(field)) for column, field in COLUMNS.items()}
    if entry.get("mode") not in TEXT_MODES:
        return "not a model of text", {}
    slug = models.slug(provider, name)
    if slug is None:
        return NO_MODEL, {}
    if any(map(is_government, key.split("/"))):
        return FOR_GOVERNMENTS, {}
    if prices["usd_per_mtok_input"] is None or prices["usd_per_mtok_output"] is None:
        return "no price per token", {}
    row = {
        "provider": provider,
        "name": name,
        "model": slug,
        **{column: hosted.per_million(price) for column, price in prices.items()},
        "max_input_tokens": str(int(entry.get("max_input_tokens") or 0) or ""),
        "as_of": as_of,
        "source": f"litellm {file_name}, key {key}",
    }
    gone = day_of(entry.get("deprecation_date"))
    if gone and gone <= as_of:
        row["withdrawn"] = gone
        row["notes"] = f"deprecation_date {gone} in litellm"
    if number_format := hosted.number_format(name):
        row["quantization"] = number_format
    return "", row
