"""Converts a Hugging Face config.json to a model row of the catalog."""

import math
import re
from typing import Any

from advisor.engine.network import Model, from_hf_config, gguf_format, to_shape
from catalog import clock
from catalog.loading.bounded import WEB, BoundedError, Bounds, read_json
from catalog.loading.fixtures import FixtureError, Row

SLUG = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?")


def parsed(text: bytes | str, where: str, bounds: Bounds = WEB) -> dict[str, Any]:
    """A JSON object, such as config.json. FixtureError: it is not one, or too large; `where` names it."""
    try:
        config = read_json(text, bounds)
    except BoundedError as error:
        raise FixtureError(f"{where}: {error}") from error
    if not isinstance(config, dict):
        raise FixtureError(f"{where}: expected a JSON object")
    return dict(finite(config))


def finite(value: Any) -> Any:
    """The value with null for every number that is not finite, such as the time_step_limit of Mamba."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def model_row(config: dict[str, Any], name: str, source: str, slug: str | None) -> Row:
    """The model row of a parsed config.json. The slug defaults to `name` in lower case."""
    slug = slug or re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    if not SLUG.fullmatch(slug):
        raise FixtureError(f"{slug or name}: a slug may only have lowercase letters, digits and -, such as acme-our-7b")
    try:
        model = from_hf_config(config, slug)
    except ValueError as error:
        raise FixtureError(f"{source}: {error}") from error
    shape = to_shape(model)
    today = clock.today()
    return {
        "slug": slug,
        "hf_id": name or slug,
        "family": str(config.get("model_type") or "unknown"),
        "native_dtype": shape.pop("native_dtype", model.native_dtype),
        "checkpoints": checkpoints_of(model, (name, source)),
        "max_context_tokens": shape.pop("max_context_tokens", model.max_context_tokens),
        "shape": shape,
        "sources": {"shape": {"source": source, "as_of": today.isoformat(), "basis": "read"}},
        "as_of": today,
    }


def checkpoints_of(model: Model, names: tuple[str, ...] = ()) -> dict[str, Any]:
    """The checkpoint facts that a config.json states, as the catalog stores them; `names` may say a format of GGUF."""
    checkpoints: dict[str, Any] = {}
    if model.published is None and (gguf := next(filter(None, map(gguf_format, names)), "")):
        checkpoints["published"] = {"format": gguf}
    if model.published is not None:
        checkpoints["published"] = {"format": model.published.format}
        if model.published.experts_only is not None:
            checkpoints["published"]["experts_only"] = model.published.experts_only
        if model.published.others:
            checkpoints["published"]["others"] = [list(each) for each in model.published.others]
    if model.mtp_layers:
        checkpoints["drafts"] = {"mtp_layers": model.mtp_layers}
    return checkpoints
