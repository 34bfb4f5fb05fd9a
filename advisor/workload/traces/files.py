"""Reads the trace files that a workload refers to."""

import csv
import math
from itertools import islice
from pathlib import Path
from typing import Any

from advisor.workload.schema import parse
from advisor.workload.text import WorkloadError, error
from advisor.workload.title import unnamed
from advisor.workload.traces.columns import FIELD
from advisor.workload.traces.requests import recorded

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


def trace_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as e:
        raise WorkloadError([error(FIELD, f"cannot be read: {e}", "a CSV file")]) from None


def lengths(path: Path, column: str, field: str) -> dict[str, float]:
    """Mean and 95th percentile of one column of a CSV file with a header line. Raises WorkloadError."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as lines:
            reader = csv.DictReader(lines)
            if column not in (reader.fieldnames or ()):
                raise WorkloadError([error(field, f"{path.name} has no column {column}", "a CSV with a header line")])
            values = [tokens(row[column], reader.line_num, field) for row in islice(reader, MAX_ROWS)]
    except (OSError, UnicodeDecodeError, csv.Error) as e:
        raise WorkloadError([error(field, f"cannot be read: {e}", "a CSV file")]) from None
    if not values:
        raise WorkloadError([error(field, f"{path.name} has no rows", "at least one request")])
    values.sort()
    mean = sum(values) / len(values)
    return {"mean": mean, "p95": max(values[math.ceil(0.95 * len(values)) - 1], mean)}


def tokens(cell: str | None, line: int, field: str) -> float:
    try:
        value = float(cell or "")
    except ValueError:
        value = math.nan
    if not 1 <= value <= 1e8:
        raise WorkloadError([error(field, f"line {line}: {cell!r} is not a number of tokens", "1 .. 1e8")])
    return value
