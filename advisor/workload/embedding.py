"""The output length of embedding workloads, which generate no tokens."""

from collections.abc import Mapping
from typing import Any

from advisor.engine.terms import kind_named

Json = dict[str, Any]
ONE_VECTOR = {"mean": 1.0}  # output of an embedding request


def with_one_vector(raw: Json) -> Json:
    """The raw workload; for embeddings, an output length that is missing or 0 becomes one vector per request."""
    traffic = raw.get("traffic")
    if kind_named(raw.get("kind")).generates_tokens or not isinstance(traffic, Mapping):
        return raw
    output = traffic.get("output_tokens")
    lengths = list(output.values()) if isinstance(output, Mapping) and "mean" in output else [output]
    is_empty = output is None or all(isinstance(n, int | float) and not isinstance(n, bool) and n == 0 for n in lengths)
    return {**raw, "traffic": {**traffic, "output_tokens": ONE_VECTOR}} if is_empty else raw
