"""Imports prices of hosted models from the public model list of OpenRouter: JSON, in USD per token as text.

Traps: a price of -1 means that a router chooses the model, 0 that it is free for now; `:batch` is another service.
"""

from collections.abc import Iterable, Iterator
from decimal import Decimal

from catalog.importers.prices.litellm import candidates, normalized
from catalog.importers.prices.offers import UNREADABLE, listed_in, usd
from catalog.importers.prices.skypilot import skip
from catalog.loading.fixtures import Row

API = "OpenRouter models API"
COLUMNS = {
    "usd_per_mtok_input": "prompt",
    "usd_per_mtok_cached_input": "input_cache_read",
    "usd_per_mtok_output": "completion",
}


def read(text: str, models: Iterable[tuple[str, str]], as_of: str, skipped: dict[str, int]) -> Iterator[Row]:
    """Prices of `models` (pairs of hf_id and slug) as rows for fixtures.api_price. `skipped` counts the rest."""
    known = list(models)
    by_hf_id = {hf_id.lower(): slug for hf_id, slug in known}
    by_name = {normalized(hf_id.split("/")[-1]): slug for hf_id, slug in known}
    for entry in listed_in(text, "data", API):
        try:
            name, pricing = str(entry["id"]), entry["pricing"]
            slug = by_hf_id.get(str(entry.get("hugging_face_id")).lower())
            slug = slug or next((by_name[each] for each in candidates(name) if each in by_name), None)
            prices = {column: usd(pricing.get(key)) for column, key in COLUMNS.items()}
        except UNREADABLE:
            skip(skipped, "unreadable model")
            continue
        if slug is None:
            skip(skipped, "model not in the catalog")
        elif name.endswith(":batch"):
            skip(skipped, "price of batches")
        elif prices["usd_per_mtok_input"] is None or prices["usd_per_mtok_output"] is None:
            skip(skipped, "no price per token")
        else:
            yield {
                "provider": "openrouter",
                "name": name,
                "model": slug,
                **{column: per_million(price) for column, price in prices.items()},
                "max_input_tokens": str(entry.get("context_length") or ""),
                "as_of": as_of,
                "source": f"{API}, model {name}",
            }


def per_million(usd_per_token: Decimal | None) -> str:
    return "" if usd_per_token is None else f"{usd_per_token * 10**6:.6f}"
