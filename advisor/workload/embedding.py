"""How a workload file asks for embeddings."""

from collections.abc import Mapping
from typing import Any

from advisor.engine.spec import kind_named

Json = dict[str, Any]
ONE_VECTOR = {"mean": 1.0}  # the output of an embedding request, which generates no tokens


def with_one_vector(raw: Json) -> Json:
    """An embedding's output may be left out or written as 0 or 1 tokens: each request makes one vector."""
    traffic = raw.get("traffic")
    if kind_named(raw.get("kind")).generates_tokens or not isinstance(traffic, Mapping):
        return raw
    given = traffic.get("output_tokens")
    figures = list(given.values()) if isinstance(given, Mapping) and "mean" in given else [given]
    none = given is None or all(isinstance(n, int | float) and not isinstance(n, bool) and n == 0 for n in figures)
    return {**raw, "traffic": {**traffic, "output_tokens": ONE_VECTOR}} if none else raw
