"""Imports prices of hosted models from litellm: one JSON object, in USD per token."""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from catalog.importers.prices.skypilot import skip
from catalog.loading.fixtures import FixtureError, Row

SUFFIXES = ("", "-instruct", "-it", "-hf")
COLUMNS = {
    "usd_per_mtok_input": "input_cost_per_token",
    "usd_per_mtok_cached_input": "cache_read_input_token_cost",
    "usd_per_mtok_output": "output_cost_per_token",
}


def read(path: Path, models: Iterable[tuple[str, str]], as_of: str, skipped: dict[str, int]) -> Iterator[Row]:
    """Prices of `models` (pairs of hf_id and slug) as rows for fixtures.api_price. `skipped` counts the rest."""
    try:
        given = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise FixtureError(f"{path.name}: not JSON: {error}") from error
    slugs = {normalized(hf_id.split("/")[-1]): slug for hf_id, slug in models}
    for key, entry in given.items():
        slug = next((slugs[name] for name in candidates(key) if name in slugs), None)
        if slug is None:
            skip(skipped, "model not in the catalog")
        elif not entry.get("input_cost_per_token") or not entry.get("output_cost_per_token"):
            skip(skipped, "no price per token")
        else:
            yield {
                "provider": entry.get("litellm_provider", ""),
                "name": key,
                "model": slug,
                **{name: per_million(entry.get(column)) for name, column in COLUMNS.items()},
                "max_input_tokens": str(entry.get("max_input_tokens") or ""),
                "as_of": as_of,
                "source": f"litellm {path.name}, key {key}",
            }


def per_million(usd_per_token: float | None) -> str:
    return "" if usd_per_token is None else f"{usd_per_token * 1e6:.6f}"


def normalized(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def candidates(key: str) -> list[str]:
    """Possible names of this model in the catalog. Some providers write 3.1 as `3p1`."""
    tail = re.sub(r"[:@].*", "", key.split("/")[-1])
    name = normalized(re.sub(r"(?<=\d)p(?=\d)", ".", tail))
    shorter = re.sub(r"-(instruct-turbo|turbo|fp8|instruct)$", "", name)
    return [*(name + suffix for suffix in SUFFIXES), shorter]
