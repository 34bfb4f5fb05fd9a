"""Reads the result files of vllm bench serve, guidellm, aiperf and genai-perf."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from catalog.loading.bounded import WEB, BoundedError, Bounds, Invalid, read_json

MAX_FIGURE = 1e15
PERCENTILES = ("p50", "p95", "p99")
MS = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3, "sec": 1e3}
LAST_S = 253_402_300_799  # the end of the year 9999
OPEN_PHASES = ("fixed_schedule", "poisson", "gamma", "constant", "user_centric")  # of aiperf
Json = Mapping[str, Any]
Figures = dict[str, float]  # those of mean, p50, p95 and p99 that the file has


class LoadResultError(ValueError):
    """The file is not a valid result; the message says what to do."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadResult:
    """What one run measured on one server; None if the file does not state it."""

    tool: str  # vllm | guidellm | aiperf | genai-perf
    tool_version: str
    ran_at: str  # as in the file; empty: not stated
    completed: int
    failed: int
    duration_s: float | None
    requests_per_s: float
    concurrency: float | None  # concurrent requests of a closed loop; None: open loop
    input_tokens_mean: float | None
    output_tokens_mean: float | None
    output_tokens_per_s: float | None
    ttft_ms: Figures
    tpot_ms: Figures  # per request, (end - first token) / (tokens - 1)
    e2e_ms: Figures

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def parse(content: bytes, bounds: Bounds = WEB) -> LoadResult:
    """Reads a result file. LoadResultError: it is not valid, too large, has several runs, or no completed request."""
    return read(_load(content, bounds))


def read(data: dict[str, Any]) -> LoadResult:
    """The result in the object of a file. LoadResultError as for `parse`."""
    if isinstance(data.get("benchmarks"), list):
        result = _guidellm(data)
    elif isinstance(data.get("request_throughput"), Mapping):
        result = _aiperf(data)
    elif "request_throughput" in data and "total_input_tokens" in data:
        result = _vllm(data)
    else:
        raise LoadResultError(
            "This is not a result of vllm bench serve (--save-result), guidellm (--output kind=json), aiperf or "
            "genai-perf (profile_export_aiperf.json)."
        )
    if result.completed < 1:
        raise LoadResultError("No request was completed in this run. Check the server's log and run it again.")
    return result


def _load(content: bytes, bounds: Bounds) -> dict[str, Any]:
    try:
        data = read_json(content, bounds)
    except Invalid as error:
        more = " It may contain several runs, one per line; give only one." if b"\n{" in content else ""
        raise LoadResultError(f"The file {error}.{more}") from None
    except BoundedError as error:
        raise LoadResultError(f"The file {error}; remove the text and timing of individual requests.") from None
    if not isinstance(data, dict):
        raise LoadResultError("The file is JSON, but not an object.")
    return data


# --- reading numbers --------------------------------------------------------------------------------------------


def _number(record: Json, key: str) -> float | None:
    """A number of at least 0; None if it is missing or null. Raises LoadResultError."""
    value = record.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_FIGURE:
        raise LoadResultError(f"{key} is {str(value)[:40]!r}: not a number of at least 0.")
    return float(value)


def _required(record: Json, key: str) -> float:
    value = _number(record, key)
    if value is None:
        raise LoadResultError(f"{key} is missing from the file.")
    return value


def _text(record: Json, key: str) -> str:
    """A text field without unprintable characters, cut at 200 characters."""
    return "".join(c for c in str(record.get(key) or "") if c.isprintable())[:200]


def _below(record: Json, *keys: str) -> Json:
    for key in keys:
        record = record.get(key) or {}
        if not isinstance(record, Mapping):
            raise LoadResultError(f"{key} is not an object.")
    return record


def _figures(**values: float | None) -> Figures:
    return {name: value for name, value in values.items() if value is not None}


def _over(whole: float | None, parts: float) -> float | None:
    return whole / parts if whole is not None and parts else None


# --- vllm bench serve -------------------------------------------------------------------------------------------


def _vllm(data: Json) -> LoadResult:
    """The object that --save-result writes. request_rate is "inf" for closed loops and replayed traces."""
    completed = int(_required(data, "completed"))
    failed = _number(data, "failed")
    sent = _number(data, "num_prompts") or completed

    def of(metric: str) -> Figures:
        median = _number(data, f"median_{metric}_ms")
        percentiles = {p: _number(data, f"{p}_{metric}_ms") for p in PERCENTILES}
        return _figures(mean=_number(data, f"mean_{metric}_ms"), **{**percentiles, "p50": percentiles["p50"] or median})

    return LoadResult(
        tool="vllm",
        tool_version=_text(data, "vllm_version"),
        ran_at=_text(data, "date"),
        completed=completed,
        failed=int(failed if failed is not None else max(sent - completed, 0)),
        duration_s=_number(data, "duration"),
        requests_per_s=_required(data, "request_throughput"),
        concurrency=_number(data, "max_concurrency"),
        input_tokens_mean=_over(_number(data, "total_input_tokens"), completed),
        output_tokens_mean=_over(_number(data, "total_output_tokens"), completed),
        output_tokens_per_s=_number(data, "output_throughput"),
        ttft_ms=of("ttft"),
        tpot_ms=of("tpot"),
        e2e_ms=of("e2el"),
    )


# --- guidellm ---------------------------------------------------------------------------------------------------


def _guidellm(report: Json) -> LoadResult:
    """A report with one benchmark. Its time_per_output_token_ms includes the first token, so it is not used.

    Before version 0.4, `args` held the strategy, and `run_stats` the totals with warmup and cooldown.
    """
    benchmarks = report["benchmarks"]
    if len(benchmarks) != 1 or not isinstance(benchmarks[0], Mapping):
        raise LoadResultError(f"The report contains {len(benchmarks)} benchmarks; give a report with one.")
    benchmark = benchmarks[0]
    metrics = _below(benchmark, "metrics")
    earlier = _below(benchmark, "run_stats")
    totals = (
        _below(metrics, "request_totals") or _below(benchmark, "request_totals") or _below(earlier, "requests_made")
        or {name: earlier.get(f"total_{name}") for name in ("successful", "errored", "incomplete")}
    )  # fmt: skip
    scheduler = _below(benchmark, "scheduler_metrics")
    strategy = _below(benchmark, "config", "strategy") or _below(benchmark, "args", "strategy")
    start, end = (_number(scheduler, f"measure_{side}_time") for side in ("start", "end"))

    def of(metric: str, scale: float = 1.0) -> Figures:
        summary = _below(metrics, metric, "successful")
        percentiles = {p: _number(_below(summary, "percentiles"), p) for p in PERCENTILES}
        values = {"mean": _number(summary, "mean"), **percentiles}
        return _figures(**{k: v * scale if v is not None else None for k, v in values.items()})

    return LoadResult(
        tool="guidellm",
        tool_version=_text(_below(report, "metadata"), "guidellm_version"),
        ran_at=_clock(_number(benchmark, "start_time") or _number(earlier, "start_time")),
        completed=int(_required(totals, "successful")),
        failed=int((_number(totals, "errored") or 0) + (_number(totals, "incomplete") or 0)),
        duration_s=end - start if end and start and end > start else None,
        requests_per_s=_required(_below(metrics, "requests_per_second", "successful"), "mean"),
        concurrency=_streams(strategy),
        input_tokens_mean=of("prompt_token_count").get("mean"),
        output_tokens_mean=of("output_token_count").get("mean"),
        output_tokens_per_s=of("output_tokens_per_second").get("mean"),
        ttft_ms=of("time_to_first_token_ms"),
        tpot_ms=of("inter_token_latency_ms"),
        e2e_ms=of("request_latency", 1e3),
    )


def _streams(strategy: Json) -> float | None:
    """The concurrency of a closed loop; one request at a time is one, too."""
    kind = strategy.get("type_")
    return 1.0 if kind == "synchronous" else _number(strategy, "streams") if kind == "concurrent" else None


def _clock(unix_s: float | None) -> str:
    """A Unix time as ISO text; empty if it is missing or not in seconds (milliseconds are beyond the year 9999)."""
    known = unix_s is not None and unix_s <= LAST_S
    return datetime.fromtimestamp(unix_s or 0, UTC).isoformat(timespec="seconds") if known else ""


# --- aiperf, genai-perf -----------------------------------------------------------------------------------------


def _aiperf(data: Json) -> LoadResult:
    """Both tools write {metric: {unit, avg, p50, ...}}. Raises LoadResultError for unfinished runs."""
    if data.get("was_cancelled") or data.get("is_complete") is False:
        raise LoadResultError(f"The run was not finished: {_text(data, 'incomplete_reason') or 'it was cancelled'}.")

    def average(metric: str) -> float | None:
        return _number(_below(data, metric), "avg")

    def of(metric: str) -> Figures:
        record = _below(data, metric)
        scale = MS.get(str(record.get("unit", "ms")))
        if scale is None:
            raise LoadResultError(f"{metric} is in {record.get('unit')!r}: not a known unit of time.")
        values = {"mean": _number(record, "avg"), **{p: _number(record, p) for p in PERCENTILES}}
        return _figures(**{k: v * scale if v is not None else None for k, v in values.items()})

    is_aiperf = "aiperf_version" in data or "schema_version" in data
    rate = _required(_below(data, "request_throughput"), "avg")
    completed = _required(_below(data, "request_count"), "avg")
    return LoadResult(
        tool="aiperf" if is_aiperf else "genai-perf",
        tool_version=_text(data, "aiperf_version"),
        ran_at=_text(data, "start_time"),
        completed=int(completed),
        failed=int(average("error_request_count") or 0),
        duration_s=average("benchmark_duration"),
        requests_per_s=rate,
        concurrency=_concurrency(_below(data, "input_config")),
        input_tokens_mean=average("input_sequence_length"),
        output_tokens_mean=average("output_sequence_length"),
        output_tokens_per_s=average("output_token_throughput"),
        ttft_ms=of("time_to_first_token"),
        tpot_ms=of("inter_token_latency"),
        e2e_ms=of("request_latency"),
    )


def _concurrency(config: Json) -> float | None:
    """The concurrency in the run's settings, at any depth, as versions differ; None for a rate or a schedule."""
    stack: list[Any] = [config]
    concurrency: float | None = None
    while stack:
        node = stack.pop()
        if isinstance(node, Mapping):
            if node.get("request_rate") or node.get("fixed_schedule") or node.get("type") in OPEN_PHASES:
                return None
            value = node.get("concurrency")
            if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
                concurrency = float(value)
            stack += node.values()
        elif isinstance(node, list):
            stack += node
    return concurrency
