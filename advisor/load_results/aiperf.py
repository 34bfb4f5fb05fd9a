"""AIPerf and GenAI-Perf: profile_export_aiperf.json or ..._genai_perf.json, their CSV, and profile_export.jsonl."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from advisor.load_results.reading import (
    MAX_FIGURE,
    MS,
    PERCENTILES,
    Json,
    below,
    clock,
    cv_of_shape,
    each_run,
    figures,
    number,
    of_cell,
    of_requests,
    required_count,
    text,
)  # fmt: skip
from advisor.load_results.result import RATE, RECORDED, SEATS, Figures, LoadResult, LoadResultError

METRICS = {
    "request_throughput", "request_latency", "request_count", "time_to_first_token", "inter_token_latency",
    "output_token_throughput", "output_sequence_length", "input_sequence_length",
}  # fmt: skip
PER_S = ("requests/sec", "requests/s", "req/s", "per sec", "tokens/sec", "tokens/s")
OPEN_PHASES = ("fixed_schedule", "poisson", "gamma", "constant", "user_centric")
PATTERNS = ("type", "arrival_pattern", "request_rate_mode")
HEADING = re.compile(r"(?P<name>[^()]+?)(?: \((?P<unit>[^()]*)\))?$")


def is_one(record: Json) -> bool:
    return is_request(record) or any(isinstance(_whole(record).get(name), Mapping) for name in METRICS)


def is_request(record: Json) -> bool:
    """Whether a record is one request of profile_export.jsonl."""
    return isinstance(record.get("metadata"), Mapping) and isinstance(record.get("metrics"), Mapping)


def read(records: Sequence[Json]) -> list[LoadResult]:
    if is_request(records[0]):
        return [_of_requests(records)]
    return list(each_run([_whole(record) for record in records], _summary))


def _whole(record: Json) -> dict[str, Any]:
    """Early versions kept the metrics under `records`."""
    records = record.get("records")
    return {**record, **(records if isinstance(records, Mapping) else {})}


def _summary(data: Json) -> LoadResult:
    """Both tools write {metric: {unit, avg, p50, ...}}. Raises LoadResultError for a unit that is not known."""
    tool = "aiperf" if "aiperf_version" in data or "schema_version" in data else "genai-perf"
    failed = _count(data, "error_request_count") if data.get("error_request_count") else 0
    if data.get("was_cancelled") or data.get("is_complete") is False:
        why = f"The run was not finished: {text(data, 'incomplete_reason') or 'it was canceled'}."
        return LoadResult(tool=tool, completed=0, failed=failed, unusable=why)
    if failed and "request_count" not in data:
        return LoadResult(tool=tool, completed=0, failed=failed)
    if "request_count" not in data:
        raise LoadResultError("request_count is missing from the file.")
    completed = _count(data, "request_count")
    if not completed:
        return LoadResult(tool=tool, completed=0, failed=failed)
    config = below(data, "input_config")
    seats, rate = _concurrency(config), _setting(config, "request_rate", "rate")
    given, made = _lengths(data, "input_sequence_length"), _lengths(data, "output_sequence_length")
    latencies: dict[str, Any] = {ours: _latency(data, theirs) for ours, theirs in LATENCIES.items()}
    rps = _rate(data, "request_throughput")
    if rps is None:
        raise LoadResultError("request_throughput is missing from the file.")
    return LoadResult(
        tool=tool,
        completed=completed,
        failed=failed,
        tool_version=text(data, "aiperf_version"),
        ran_at=text(data, "start_time"),
        duration_s=_latency(data, "benchmark_duration", 1e-3).get("mean"),
        requests_per_s=rps,
        arrivals=SEATS if seats else RATE if rate else RECORDED if _is_open(config) else "",
        concurrency=seats,
        rate_per_s=None if seats else rate,
        arrival_cv=_cv(config),
        input_tokens_mean=given.get("mean"),
        output_tokens_mean=made.get("mean"),
        input_tokens_p95=given.get("p95"),
        output_tokens_p95=made.get("p95"),
        output_tokens_per_s=_rate(data, "output_token_throughput"),
        total_tokens_per_s=_rate(data, "total_token_throughput"),
        **latencies,
        model=_model(config),
    )


def _count(data: Json, metric: str) -> int:
    return required_count({f"{metric}.avg": below(data, metric).get("avg")}, f"{metric}.avg")


def _rate(data: Json, metric: str) -> float | None:
    record = below(data, metric)
    if record and record.get("unit") not in PER_S:
        raise LoadResultError(f"{metric} is in {record.get('unit')!r}: not a known unit of a rate.")
    return _value(record, metric, "avg")


def _value(record: Json, metric: str, name: str) -> float | None:
    return number({f"{metric}.{name}": record.get(name)}, f"{metric}.{name}")


def _lengths(data: Json, metric: str) -> Figures:
    record = below(data, metric)
    return figures(mean=_value(record, metric, "avg"), p95=_value(record, metric, "p95"))


def _latency(data: Json, metric: str, scale: float = 1.0) -> Figures:
    record = below(data, metric)
    if record and str(record.get("unit")) not in MS:
        raise LoadResultError(f"{metric} is in {record.get('unit')!r}: not a known unit of time.")
    values = {p: _value(record, metric, p) for p in PERCENTILES}
    return figures(MS[record.get("unit", "ms")] * scale, mean=_value(record, metric, "avg"), **values)


def _sections(node: Any) -> Iterator[Json]:
    """All objects of the settings, as versions nest them in different ways; not those of the warm-up."""
    if isinstance(node, Mapping):
        if "warmup" in (node.get("kind"), node.get("name")):
            return
        yield node
    for inner in node.values() if isinstance(node, Mapping) else node if isinstance(node, list) else ():
        yield from _sections(inner)


def _setting(config: Json, *names: str) -> float | None:
    """The first number above 0 of one of these settings, at any depth."""
    values = (node[name] for node in _sections(config) for name in names if name in node)
    numbers = (v for v in values if isinstance(v, int | float) and not isinstance(v, bool))
    return next((float(v) for v in numbers if 0 < v <= MAX_FIGURE), None)


def _cv(config: Json) -> float:
    """CV of the gaps: those of gamma arrivals have a smoothness, constant ones none."""
    smoothness = _setting(config, "smoothness", "arrival_smoothness", "vllm_burstiness")
    patterns = {str(node.get(name)) for node in _sections(config) for name in PATTERNS}
    return cv_of_shape(smoothness) if smoothness else 0.0 if "constant" in patterns else 1.0


def _is_open(config: Json) -> bool:
    """Whether the settings send requests at a rate or at recorded times."""
    return any(
        s.get("request_rate") or s.get("fixed_schedule") or s.get("type") in OPEN_PHASES for s in _sections(config)
    )


def _concurrency(config: Json) -> float | None:
    return None if _is_open(config) else _setting(config, "concurrency")


def _model(config: Json) -> str:
    names = ("model_names", "models", "model", "model_name")
    found: Any = next((s[name] for s in _sections(config) for name in names if s.get(name)), "")
    while isinstance(found, list | dict):
        found = next(iter(found.values() if isinstance(found, dict) else found), "")
    return text({"model": found}, "model")


def _of_requests(records: Sequence[Json]) -> LoadResult:
    """The requests of profile_export.jsonl: times of the clock in ns, each metric with its unit."""
    if not all(map(is_request, records)):
        raise LoadResultError("A line has no metadata or no metrics.")
    each = [r for r in records if r["metadata"].get("benchmark_phase", "profiling") == "profiling"]
    served = [r for r in each if not r.get("error") and not r["metadata"].get("was_cancelled")]
    first_ns = min((_clock_ns(r["metadata"], "request_start_ns") for r in served), default=0)
    return of_requests(
        "aiperf", [_request(r, first_ns) for r in served], len(each) - len(served), ran_at=clock(first_ns / 1e9)
    )


def _request(record: Json, first_ns: int) -> dict[str, float | None]:
    times_ns = {side: _clock_ns(record["metadata"], f"request_{side}_ns") - first_ns for side in ("start", "end")}
    found = {name: below(record["metrics"], name) for name in (*LATENCIES.values(), *LENGTHS.values())}
    values: Json = {name: {"avg": each.get("value"), "unit": each.get("unit")} for name, each in found.items() if each}
    latencies = {ours: _latency(values, theirs).get("mean") for ours, theirs in LATENCIES.items()}
    lengths = {ours: _lengths(values, theirs).get("mean") for ours, theirs in LENGTHS.items()}
    return {f"{side}_s": ns / 1e9 for side, ns in times_ns.items()} | latencies | lengths


LATENCIES = {"ttft_ms": "time_to_first_token", "tpot_ms": "inter_token_latency", "e2e_ms": "request_latency"}
LENGTHS = {"given": "input_sequence_length", "made": "output_sequence_length"}


def _clock_ns(record: Json, key: str) -> int:
    """A Unix time in ns, which as a float would lose its last digits."""
    value = record.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 10**19:
        raise LoadResultError(f"{key} is {str(value)[:40]!r}: not a time in ns.")
    return value


def is_table(rows: Sequence[Sequence[str]]) -> bool:
    return any(cells[:1] == ["Metric"] for cells in rows)


def of_table(rows: Sequence[Sequence[str]]) -> list[LoadResult]:
    """The tables of the CSV as the JSON has them; those of other tables, such as GPU telemetry, have other headings.

    The CSV has no settings, and its numbers two decimals.
    """
    run: dict[str, Any] = {}
    head: Sequence[str] = ()
    for line, cells in enumerate(rows, 1):
        if not any(cell.strip() for cell in cells):
            head = ()
        elif cells[0].strip() == "Metric":
            head = [cell.strip() for cell in cells]
        elif head and (match := HEADING.match(cells[0].strip())):
            key = re.sub(r"\W+", "_", match["name"].strip().lower())
            if len(cells) > len(head) or key in METRICS & run.keys():
                raise LoadResultError(f"line {line}: {key} has more values than columns, or is there twice.")
            values = dict(zip(head[1:], cells[1:], strict=False))
            given = {{"Value": "avg"}.get(n, n): of_cell(v) for n, v in values.items() if v.strip() not in ("", "N/A")}
            run[key] = {"unit": match["unit"], **given}
    return [_summary(run)]
