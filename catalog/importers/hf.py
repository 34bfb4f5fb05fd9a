"""A model from its config.json: a file, or an id of the Hugging Face hub."""

import json
import re
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

from django.utils import timezone

from advisor.engine.hf_config import from_hf_config
from advisor.engine.model import to_shape
from catalog.fixtures import FixtureError, Row

MAX_BYTES = 1_000_000
SLUG = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?")
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def read(what: str) -> tuple[str, str, str]:
    """The id, the text of the configuration and where it was read."""
    path = Path(what)
    if path.is_file():
        try:
            return "", path.read_text(encoding="utf-8"), path.name
        except (OSError, UnicodeDecodeError) as error:
            raise FixtureError(f"{what}: no text that can be read: {error}") from error
    if HUB_ID.fullmatch(what):
        source = f"https://huggingface.co/{what}/resolve/main/config.json"
        return what, fetch(source), source
    raise FixtureError(f"{what}: neither a file nor an id such as meta-llama/Llama-3.1-8B")


def parsed(text: str, where: str) -> dict[str, Any]:
    """The configuration as a JSON object."""
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FixtureError(f"{where}: not JSON: {error}") from error
    if not isinstance(config, dict):
        raise FixtureError(f"{where}: a JSON object was expected")
    return config


def fetch(url: str) -> str:
    """The text behind this address."""
    try:
        with urlopen(Request(url, headers={"User-Agent": "assay"}), timeout=15) as answer:
            return str(answer.read(MAX_BYTES).decode())
    except (URLError, TimeoutError, UnicodeDecodeError) as error:
        raise FixtureError(f"{url}: {error}; download config.json and give its path instead") from error


def row(what: str, slug: str | None) -> Row:
    """The catalog's row of a file or an id."""
    hf_id, text, source = read(what)
    config = parsed(text, what)
    named = hf_id or str(config.get("_name_or_path") or slug or "")
    if not (slug or named):
        raise FixtureError(f"{what}: the configuration has no name; give --slug")
    return described(config, named, source, slug)


def row_of(text: str, name: str, source: str) -> Row:
    """The catalog's row of a configuration that was handed over as text."""
    return described(parsed(text, "config.json"), name, source, None)


def described(config: dict[str, Any], name: str, source: str, slug: str | None) -> Row:
    """The row of one configuration under this name."""
    slug = slug or re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    if not SLUG.fullmatch(slug):
        raise FixtureError(f"{slug or name}: a slug of small letters, digits and - was expected, such as acme-our-7b")
    try:
        model = from_hf_config(config, slug)
    except ValueError as error:
        raise FixtureError(f"{source}: {error}") from error
    shape = to_shape(model)
    today = timezone.localdate()
    return {
        "slug": slug,
        "hf_id": name or slug,
        "family": str(config.get("model_type") or "unknown"),
        "native_dtype": shape.pop("native_dtype", model.native_dtype),
        "max_context_tokens": shape.pop("max_context_tokens", model.max_context_tokens),
        "shape": shape,
        "sources": {"shape": {"source": source, "as_of": today.isoformat(), "basis": "read"}},
        "as_of": today,
    }
