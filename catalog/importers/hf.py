"""A model from its config.json: a file, or an id of the Hugging Face hub."""

import json
import re
from datetime import date
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

from advisor.engine.hf_config import from_hf_config
from advisor.engine.model import to_shape
from catalog.fixtures import FixtureError, Row

MAX_BYTES = 1_000_000
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def read(what: str) -> tuple[str, dict[str, Any], str]:
    """The id, the configuration and where it was read."""
    path = Path(what)
    if path.is_file():
        text, source = path.read_text(encoding="utf-8"), path.name
    elif HUB_ID.fullmatch(what):
        source = f"https://huggingface.co/{what}/resolve/main/config.json"
        text = fetch(source)
    else:
        raise FixtureError(f"{what}: neither a file nor an id such as meta-llama/Llama-3.1-8B")
    try:
        config = json.loads(text)
    except ValueError as error:
        raise FixtureError(f"{what}: not JSON: {error}") from error
    if not isinstance(config, dict):
        raise FixtureError(f"{what}: a JSON object was expected")
    return (what if HUB_ID.fullmatch(what) and not path.is_file() else ""), config, source


def fetch(url: str) -> str:
    """The text behind this address."""
    try:
        with urlopen(Request(url, headers={"User-Agent": "assay"}), timeout=15) as answer:
            return str(answer.read(MAX_BYTES).decode())
    except (URLError, TimeoutError, UnicodeDecodeError) as error:
        raise FixtureError(f"{url}: {error}; download config.json and give its path instead") from error


def row(what: str, slug: str | None) -> Row:
    """The catalog's row of this model."""
    hf_id, config, source = read(what)
    named = hf_id or str(config.get("_name_or_path") or slug or "")
    slug = slug or re.sub(r"[^a-z0-9]+", "-", named.lower()).strip("-")
    if not slug:
        raise FixtureError(f"{what}: the configuration has no name; give --slug")
    try:
        model = from_hf_config(config, slug)
    except (TypeError, ValueError) as error:
        raise FixtureError(f"{what}: {error}") from error
    shape = to_shape(model)
    today = date.today()
    return {
        "slug": slug,
        "hf_id": named or slug,
        "family": str(config["model_type"]),
        "native_dtype": shape.pop("native_dtype", model.native_dtype),
        "max_context_tokens": shape.pop("max_context_tokens", model.max_context_tokens),
        "shape": shape,
        "sources": {"shape": {"source": source, "as_of": today.isoformat(), "basis": "read"}},
        "as_of": today,
    }
