"""Reads the trace files that a workload refers to."""

import math
from itertools import islice
from pathlib import Path
from typing import Any

from advisor.workload.schema import parse
from advisor.workload.text import WorkloadError, error
from advisor.workload.title import unnamed
from advisor.workload.traces.columns import FIELD, listed, refuse, side_of
from advisor.workload.traces.requests import recorded, rows_of, text_of_trace, whole_tokens
from catalog.loading.bounded import FILES, BoundedError

Json = dict[str, Any]
LENGTHS = ("input_tokens", "output_tokens")  # fields of traffic, and columns of a trace
MAX_ROWS = 5_000_000


def with_traces(spec: Json, folder: Path) -> Json:
    """The workload with its trace files read; relative paths start at `folder`. Raises WorkloadError."""
    if spec["traffic"] is None:  # a kind that trains
        return spec
    traffic = dict(spec["traffic"])
    if isinstance(traffic["trace"], str):
        found = recorded(trace_text(folder / traffic["trace"]), traffic["trace_columns"], MAX_ROWS)
        if found.hit_fraction is not None:
            traffic.setdefault("prefix_cache_hit_rate", round(found.hit_fraction, 3))
        read = {**traffic, "trace": {"csv": found.text}, "trace_columns": {}}
        return parse({**unnamed(spec), "traffic": read})
    for key in LENGTHS:
        if "trace" in traffic[key]:
            field = f"traffic.{key}.trace"
            traffic[key] = {**traffic[key], **lengths(folder / traffic[key]["trace"], key, field)}
    return {**spec, "traffic": traffic}


def trace_text(path: Path, field: str = FIELD) -> str:
    try:
        with path.open("rb") as file:
            return text_of_trace(file.read(FILES.max_bytes + 1), FILES.max_bytes)
    except (OSError, BoundedError) as e:
        raise WorkloadError([error(field, f"cannot be read: {path.name} {e}", "a CSV or JSON file")]) from None


def lengths(path: Path, column: str, field: str) -> dict[str, float]:
    """Mean and 95th percentile of the input or output tokens of a CSV or JSON file. Raises WorkloadError."""
    try:
        names, rows = rows_of(trace_text(path, field), MAX_ROWS)
        name = side_of(names, column)
        if not name:
            refuse(f"{path.name} has no column {column}: its columns are {listed(names)}", "a CSV with a header line")
        values = sorted(whole_tokens(cells.get(name), line, name, least=1) for line, cells in islice(rows, MAX_ROWS))
        if not values:
            refuse(f"{path.name} has no rows", "at least one request")
    except WorkloadError as e:
        raise WorkloadError([{**item, "field": field} for item in e.errors]) from None
    mean = sum(values) / len(values)
    return {"mean": mean, "p95": max(float(values[math.ceil(0.95 * len(values)) - 1]), mean)}
