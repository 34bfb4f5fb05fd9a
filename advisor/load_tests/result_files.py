"""Result files of load generators: vllm bench serve, guidellm, aiperf and genai-perf, read strictly into one form."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

MAX_BYTES = 32 * 2**20
MOST = 1e15  # of any figure in a file
PERCENTILES = ("p50", "p95", "p99")
MS = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3, "sec": 1e3}
LAST_S = 253_402_300_799  # the end of the year 9999
OPEN_PHASES = ("fixed_schedule", "poisson", "gamma", "constant", "user_centric")  # of aiperf
Json = Mapping[str, Any]
Figures = dict[str, float]  # mean, p50, p95, p99 as far as the file has them


class LoadResultError(ValueError):
    """The file is not a result that can be read; says what to do."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadResult:
    """What one run measured on one server. None: the file does not say."""

    tool: str  # vllm | guidellm | aiperf | genai-perf
    tool_version: str
    ran_at: str  # as the file has it; empty: not stated
    completed: int
    failed: int
    duration_s: float | None
    requests_per_s: float
    concurrency: float | None  # seats of a closed loop; None: requests arrived by themselves
    input_tokens_mean: float | None
    output_tokens_mean: float | None
    output_tokens_per_s: float | None
    ttft_ms: Figures
    tpot_ms: Figures  # per request, (end - first token) / (tokens - 1)
    e2e_ms: Figures

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def parse(content: bytes) -> LoadResult:
    """A result file; LoadResultError where it is none, is of several runs, or nothing was served."""
    found = _load(content)
    if isinstance(found.get("benchmarks"), list):
        result = _guidellm(found)
    elif isinstance(found.get("request_throughput"), Mapping):
        result = _aiperf(found)
    elif "request_throughput" in found and "total_input_tokens" in found:
        result = _vllm(found)
    else:
        raise LoadResultError(
            "This is no result of vllm bench serve (--save-result), guidellm (--output kind=json), aiperf or "
            "genai-perf (profile_export_aiperf.json)."
        )
    if result.completed < 1:
        raise LoadResultError("No request was completed in this run: look at the server's log and run it again.")
    return result


def _load(content: bytes) -> dict[str, Any]:
    if len(content) > MAX_BYTES:
        raise LoadResultError(f"The file is larger than {MAX_BYTES // 2**20} MiB: leave the requests' texts out of it.")
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        more = " It may hold several runs, one a line: give one of them." if b"\n{" in content else ""
        raise LoadResultError(f"The file is not JSON: {error}.{more}") from None
    if not isinstance(found, dict):
        raise LoadResultError("The file is JSON, yet no object of named results.")
    return found


# --- reading numbers --------------------------------------------------------------------------------------------


def _number(record: Json, key: str) -> float | None:
    """A finite number at or above zero, None where it is missing or null."""
    value = record.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MOST:
        raise LoadResultError(f"{key} is {str(value)[:40]!r}: not a number at or above 0.")
    return float(value)


def _required(record: Json, key: str) -> float:
    value = _number(record, key)
    if value is None:
        raise LoadResultError(f"{key} is missing from the file.")
    return value


def _text(record: Json, key: str) -> str:
    """What a tool says of itself, as far as it can be printed and kept."""
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


def _vllm(found: Json) -> LoadResult:
    """The one object that --save-result writes; request_rate is "inf" in a closed loop and when a trace is replayed."""
    completed = int(_required(found, "completed"))
    failed = _number(found, "failed")
    sent = _number(found, "num_prompts") or completed

    def of(metric: str) -> Figures:
        median = _number(found, f"median_{metric}_ms")
        percentiles = {p: _number(found, f"{p}_{metric}_ms") for p in PERCENTILES}
        return _figures(
            mean=_number(found, f"mean_{metric}_ms"), **{**percentiles, "p50": percentiles["p50"] or median}
        )

    return LoadResult(
        tool="vllm",
        tool_version=_text(found, "vllm_version"),
        ran_at=_text(found, "date"),
        completed=completed,
        failed=int(failed if failed is not None else max(sent - completed, 0)),
        duration_s=_number(found, "duration"),
        requests_per_s=_required(found, "request_throughput"),
        concurrency=_number(found, "max_concurrency"),
        input_tokens_mean=_over(_number(found, "total_input_tokens"), completed),
        output_tokens_mean=_over(_number(found, "total_output_tokens"), completed),
        output_tokens_per_s=_number(found, "output_throughput"),
        ttft_ms=of("ttft"),
        tpot_ms=of("tpot"),
        e2e_ms=of("e2el"),
    )


# --- guidellm ---------------------------------------------------------------------------------------------------


def _guidellm(found: Json) -> LoadResult:
    """The report of one benchmark. Its time_per_output_token_ms counts the first token, inter_token_latency_ms not."""
    benchmarks = found["benchmarks"]
    if len(benchmarks) != 1 or not isinstance(benchmarks[0], Mapping):
        raise LoadResultError(f"The report holds {len(benchmarks)} benchmarks: give a report of one.")
    benchmark = benchmarks[0]
    metrics = _below(benchmark, "metrics")
    totals = _below(metrics, "request_totals")
    scheduler, strategy = _below(benchmark, "scheduler_metrics"), _below(benchmark, "config", "strategy")
    start, end = (_number(scheduler, f"measure_{side}_time") for side in ("start", "end"))

    def of(metric: str, scale: float = 1.0) -> Figures:
        summary = _below(metrics, metric, "successful")
        percentiles = {p: _number(_below(summary, "percentiles"), p) for p in PERCENTILES}
        values = {"mean": _number(summary, "mean"), **percentiles}
        return _figures(**{k: v * scale if v is not None else None for k, v in values.items()})

    return LoadResult(
        tool="guidellm",
        tool_version=_text(_below(found, "metadata"), "guidellm_version"),
        ran_at=_clock(_number(benchmark, "start_time")),
        completed=int(_required(totals, "successful")),
        failed=int((_number(totals, "errored") or 0) + (_number(totals, "incomplete") or 0)),
        duration_s=end - start if end and start and end > start else None,
        requests_per_s=_required(_below(metrics, "requests_per_second", "successful"), "mean"),
        concurrency=_number(strategy, "streams") if strategy.get("type_") == "concurrent" else None,
        input_tokens_mean=of("prompt_token_count").get("mean"),
        output_tokens_mean=of("output_token_count").get("mean"),
        output_tokens_per_s=of("output_tokens_per_second").get("mean"),
        ttft_ms=of("time_to_first_token_ms"),
        tpot_ms=of("inter_token_latency_ms"),
        e2e_ms=of("request_latency", 1e3),
    )


def _clock(unix_s: float | None) -> str:
    """Seconds since 1970 as a day and time; nothing where they are none (milliseconds lie beyond the year 9999)."""
    known = unix_s is not None and unix_s <= LAST_S
    return datetime.fromtimestamp(unix_s or 0, UTC).isoformat(timespec="seconds") if known else ""


# --- aiperf, genai-perf -----------------------------------------------------------------------------------------


def _aiperf(found: Json) -> LoadResult:
    """Both write {metric: {unit, avg, p50, ...}}; a run that was stopped is refused."""
    if found.get("was_cancelled") or found.get("is_complete") is False:
        raise LoadResultError(f"The run was not finished: {_text(found, 'incomplete_reason') or 'it was cancelled'}.")

    def average(metric: str) -> float | None:
        return _number(_below(found, metric), "avg")

    def of(metric: str) -> Figures:
        record = _below(found, metric)
        scale = MS.get(str(record.get("unit", "ms")))
        if scale is None:
            raise LoadResultError(f"{metric} is in {record.get('unit')!r}: not a unit of time that is known here.")
        values = {"mean": _number(record, "avg"), **{p: _number(record, p) for p in PERCENTILES}}
        return _figures(**{k: v * scale if v is not None else None for k, v in values.items()})

    is_aiperf = "aiperf_version" in found or "schema_version" in found
    rate = _required(_below(found, "request_throughput"), "avg")
    completed = _required(_below(found, "request_count"), "avg")
    return LoadResult(
        tool="aiperf" if is_aiperf else "genai-perf",
        tool_version=_text(found, "aiperf_version"),
        ran_at=_text(found, "start_time"),
        completed=int(completed),
        failed=int(average("error_request_count") or 0),
        duration_s=average("benchmark_duration"),
        requests_per_s=rate,
        concurrency=_seats(_below(found, "input_config")),
        input_tokens_mean=average("input_sequence_length"),
        output_tokens_mean=average("output_sequence_length"),
        output_tokens_per_s=average("output_token_throughput"),
        ttft_ms=of("time_to_first_token"),
        tpot_ms=of("inter_token_latency"),
        e2e_ms=of("request_latency"),
    )


def _seats(config: Json) -> float | None:
    """The concurrency in the run's own settings, wherever the version keeps it; none beside a rate or a schedule."""
    stack: list[Any] = [config]
    seats: float | None = None
    while stack:
        at = stack.pop()
        if isinstance(at, Mapping):
            if at.get("request_rate") or at.get("fixed_schedule") or at.get("type") in OPEN_PHASES:
                return None
            value = at.get("concurrency")
            if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
                seats = float(value)
            stack += at.values()
        elif isinstance(at, list):
            stack += at
    return seats
