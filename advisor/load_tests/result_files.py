"""Reads the result files of load generators: one run, or all runs of a sweep."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from statistics import fmean, quantiles
from typing import Any

from catalog.loading.bounded import WEB, BoundedError, Bounds, Invalid, read_json

MAX_FIGURE = 1e15
PERCENTILES = ("p50", "p95", "p99")
MS = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3, "sec": 1e3}
LAST_S = 253_402_300_799  # the end of the year 9999
OPEN_PHASES = ("fixed_schedule", "poisson", "gamma", "constant", "user_centric")  # of aiperf
Json = Mapping[str, Any]
Figures = dict[str, float]  # those of mean, p50, p95 and p99 that the file has
Requests = dict[str, list[float]]  # arrival_s (unless the file has lengths alone), input_tokens, output_tokens
MAX_REQUESTS = 20_000  # of which the arrivals are kept
AT_ONCE_FRACTION = 0.3  # of the run's duration: the mean request lasts longer only if all were sent at the start


class LoadResultError(ValueError):
    """The file is not a valid result; the message says what to do."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadResult:
    """What one run measured on one server; None if the file does not state it."""

    tool: str  # vllm | sglang | guidellm | aiperf | genai-perf | inference-perf | llmperf
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
    rate_per_s: float | None = None  # that the client sent at; None: a closed loop, or recorded arrivals
    arrival_cv: float = 1.0  # coefficient of variation of the gaps between arrivals at a rate
    input_tokens_p95: float | None = None
    output_tokens_p95: float | None = None
    requests: Requests | None = None  # those that were served, by arrival

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def parse(content: bytes, bounds: Bounds = WEB) -> LoadResult:
    """Reads a result file. LoadResultError: it is not valid, too large, has several runs, or no completed request."""
    return read(_load(content, bounds))


def parse_runs(content: bytes, bounds: Bounds = WEB) -> list[tuple[str, LoadResult]]:
    """(place, result) of each run: one object, a list, one object a line, or the benchmarks of a sweep.

    Runs that completed no request are left out, unless all are. LoadResultError: the file is not valid.
    """
    try:
        objects: Any = read_json(content, bounds)
    except Invalid:
        lines = [line for line in content.splitlines() if line.strip()]
        if len(lines) < 2:
            _load(content, bounds)
        objects = [_load(line, bounds) for line in lines]
    except BoundedError as error:
        raise LoadResultError(f"The file {error}.") from None
    single = not isinstance(objects, list)
    found, empty = [], ""
    for place, each in enumerate([objects] if single else objects, 1):
        if not isinstance(each, dict):
            raise LoadResultError("The file is JSON, but neither an object nor a list of objects.")
        benchmarks = each.get("benchmarks")
        several = isinstance(benchmarks, list) and len(benchmarks) > 1
        runs = [{**each, "benchmarks": [run]} for run in benchmarks or ()] if several else [each]
        for inner, run in enumerate(runs, 1):
            try:
                found.append((f"benchmark {inner}" if several else "" if single else f"run {place}", read(run)))
            except LoadResultError as error:
                if NOTHING_DONE not in str(error):
                    raise
                empty = str(error)
    if not found:
        raise LoadResultError(empty or "The file has no run.")
    return found


NOTHING_DONE = "No request was completed"


def read(data: dict[str, Any]) -> LoadResult:
    """The result in the object of a file. LoadResultError as for `parse`."""
    if isinstance(data.get("benchmarks"), list):
        result = _guidellm(data)
    elif isinstance(data.get("request_throughput"), Mapping):
        result = _aiperf(data)
    elif isinstance(data.get("records"), Mapping) and "request_throughput" in data["records"]:
        result = _aiperf({**data, **data["records"]})  # early versions
    elif "request_throughput" in data and "total_input_tokens" in data:
        result = _vllm(data)
    elif isinstance(data.get("successes"), Mapping) and "load_summary" in data:
        result = _inference_perf(data)
    elif "results_number_completed_requests" in data or isinstance(data.get("results"), Mapping):
        result = _llmperf(data)
    else:
        raise LoadResultError(
            "This is not a result of vllm bench serve (--save-result), sglang.bench_serving, guidellm (--output "
            "kind=json), aiperf or genai-perf (profile_export_aiperf.json), inference-perf or llmperf."
        )
    if result.completed < 1:
        raise LoadResultError(f"{NOTHING_DONE} in this run. Check the server's log and run it again.")
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


# --- vllm bench serve, sglang.bench_serving ---------------------------------------------------------------------


def _vllm(data: Json) -> LoadResult:
    """The object that --save-result or --output-file writes, with the requests of --save-detailed.

    request_rate is "inf" for closed loops, replayed traces and requests that are all sent at once.
    """
    of_sglang = "server_info" in data or "total_output_tokens_retokenized" in data
    completed = int(_required(data, "completed"))
    failed = _number(data, "failed")
    if failed is None and isinstance(data.get("errors"), list):
        failed = float(sum(bool(each) for each in data["errors"]))
    sent = int(_number(data, "num_prompts") or completed + (failed or 0))
    requests, each = _vllm_requests(data)

    def of(metric: str) -> Figures:
        median = _number(data, f"median_{metric}_ms")
        percentiles = {p: _number(data, f"{p}_{metric}_ms") for p in PERCENTILES}
        stated = _figures(
            mean=_number(data, f"mean_{metric}_ms"), **{**percentiles, "p50": percentiles["p50"] or median}
        )
        return percentiles_of(each.get(metric, ())) | stated

    ttft, tpot, e2e = of("ttft"), of("tpot"), of("e2el") or of("e2e_latency")
    rate = (
        None if str(data.get("request_rate")).lower() in ("inf", "infinity", "none") else _number(data, "request_rate")
    )
    output = _over(_number(data, "total_output_tokens"), completed)
    request_s = (e2e.get("mean") or ttft.get("mean", 0.0) + tpot.get("mean", 0.0) * ((output or 1.0) - 1)) / 1e3
    duration_s, seats = _number(data, "duration"), _number(data, "max_concurrency")
    if rate and seats and not _waits_for_seats(data, seats, request_s):
        seats = None
    if (
        not rate
        and not seats
        and "arrival_s" not in (requests or {})
        and request_s > AT_ONCE_FRACTION * (duration_s or 1e9)
    ):
        seats = float(sent)
    return LoadResult(
        tool="sglang" if of_sglang else "vllm",
        tool_version="" if of_sglang else _text(data, "vllm_version"),
        ran_at=_text(data, "date"),
        completed=completed,
        failed=int(failed if failed is not None else max(sent - completed, 0)),
        duration_s=duration_s,
        requests_per_s=_required(data, "request_throughput"),
        concurrency=seats,
        input_tokens_mean=_over(_number(data, "total_input_tokens"), completed),
        output_tokens_mean=output,
        output_tokens_per_s=_number(data, "output_throughput"),
        ttft_ms=ttft,
        tpot_ms=tpot,
        e2e_ms=e2e,
        rate_per_s=None if seats else rate,
        arrival_cv=cv_of_shape(_number(data, "burstiness")),
        requests=requests,
    )


def _waits_for_seats(data: Json, seats: float, request_s: float) -> bool:
    """Whether --max-concurrency held requests of a given rate back."""
    most = _number(data, "max_concurrent_requests")
    return most >= seats if most is not None else _required(data, "request_throughput") * request_s > seats / 2


def cv_of_shape(shape: float | None) -> float:
    """Coefficient of variation of gamma gaps of this shape, which load generators call burstiness or smoothness."""
    return shape**-0.5 if shape and shape > 0 else 1.0


def _vllm_requests(data: Json) -> tuple[Requests | None, dict[str, list[float]]]:
    """(the served requests, their latencies in ms by metric) of --save-detailed; none without it."""
    lists = {name: data[name] for name in DETAILS if data.get(name)}
    if not {"input_lens", "output_lens"} <= lists.keys():
        return None, {}
    rows = _columns(lists, len(lists["input_lens"]) if isinstance(lists["input_lens"], list) else 0)
    served = [row for row in rows if not row.get("errors") and _number(row, "output_lens")]
    ttft = [1e3 * _required(row, "ttfts") for row in served] if "ttfts" in lists else []
    arrivals = "start_times" if "start_times" in lists else ""
    several = [row for row in served if row["output_lens"] > 1] if "itls" in lists else []
    tpot = [1e3 * _sum(row["itls"]) / (row["output_lens"] - 1) for row in several]
    return _requests(served, arrivals, "input_lens", "output_lens"), {"ttft": ttft, "tpot": tpot}


DETAILS = ("input_lens", "output_lens", "ttfts", "itls", "start_times", "errors")


def _sum(values: Any) -> float:
    """The sum of one request's gaps between tokens."""
    try:
        whole = float(sum(values))
    except (TypeError, OverflowError):
        whole = math.nan
    if not 0 <= whole <= MAX_FIGURE:
        raise LoadResultError(f"itls has {str(values)[:40]}, which are no times.")
    return whole


def _columns(lists: Mapping[str, Any], count: int) -> list[dict[str, Any]]:
    """Lists with one value for each request as rows. LoadResultError: their lengths differ."""
    for name, values in lists.items():
        if not isinstance(values, list) or len(values) != count:
            found = f"{len(values):,} values" if isinstance(values, list) else "no list"
            raise LoadResultError(
                f"{name} has {found} for {count:,} requests; save the result with --save-detailed again."
            )
    return [dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True)]


def _requests(rows: Sequence[Json], arrival: str, given: str, made: str) -> Requests | None:
    """The requests by arrival; None if there are too few or too many to replay."""
    if not 2 <= len(rows) <= MAX_REQUESTS:
        return None
    names = [*([arrival] if arrival else []), given, made]
    values = sorted([_required(row, name) for name in names] for row in rows)
    columns = [list(column) for column in zip(*values, strict=True)]
    if not arrival:
        return {"input_tokens": columns[0], "output_tokens": columns[1]}
    return {
        "arrival_s": [round(at - columns[0][0], 4) for at in columns[0]],
        "input_tokens": columns[1],
        "output_tokens": columns[2],
    }


def percentiles_of(values: Sequence[float]) -> Figures:
    """Mean and percentiles of latencies, interpolated as numpy does."""
    if len(values) < 2:
        return {}
    cuts = quantiles(values, n=100, method="inclusive")
    return {"mean": fmean(values), **{p: cuts[int(p[1:]) - 1] for p in PERCENTILES}}


# --- inference-perf, llmperf ------------------------------------------------------------------------------------


def _inference_perf(data: Json) -> LoadResult:
    """The summary_lifecycle_metrics.json of kubernetes-sigs/inference-perf: seconds, percentiles as p50 or median."""
    done, load = _below(data, "successes"), _below(data, "load_summary")
    rates = _below(done, "throughput")

    def of(*path: str, scale: float = 1e3) -> Figures:
        found = _below(done, *path)
        each = {p: _number(found, p) for p in ("mean", *PERCENTILES)}
        each["p50"] = each["p50"] if each["p50"] is not None else _number(found, "median")
        return _figures(**{k: v * scale if v is not None else None for k, v in each.items()})

    given, made = of("prompt_len", scale=1.0), of("output_len", scale=1.0)
    return LoadResult(
        tool="inference-perf",
        tool_version="",
        ran_at="",
        completed=int(_required(done, "count")),
        failed=int(_number(_below(data, "failures"), "count") or 0),
        duration_s=_number(load, "send_duration"),
        requests_per_s=_required(rates, "requests_per_sec"),
        concurrency=_number(load, "concurrency"),
        input_tokens_mean=given.get("mean"),
        output_tokens_mean=made.get("mean"),
        output_tokens_per_s=_number(rates, "output_tokens_per_sec"),
        ttft_ms=of("latency", "time_to_first_token"),
        tpot_ms=of("latency", "time_per_output_token"),
        e2e_ms=of("latency", "request_latency"),
        rate_per_s=_number(load, "requested_rate"),
        input_tokens_p95=given.get("p95"),
        output_tokens_p95=made.get("p95"),
    )


def _llmperf(data: Json) -> LoadResult:
    """The summary of ray-project/llmperf, flat (results_ttft_s_mean) or nested. It is a closed loop.

    Its inter-token latency is the end-to-end time over all tokens, the first included, so it is no TPOT.
    """
    whole = dict(_flat(data))

    def of(metric: str, scale: float = 1e3) -> Figures:
        named = {"mean": f"{metric}_mean", **{p: f"{metric}_quantiles_{p}" for p in PERCENTILES}}
        found = {key: _number(whole, f"results_{name}") for key, name in named.items()}
        return _figures(**{k: v * scale if v is not None else None for k, v in found.items()})

    given, made = of("number_input_tokens", 1.0), of("number_output_tokens", 1.0)
    completed = int(_required(whole, "results_number_completed_requests"))
    per_minute = _required(whole, "results_num_completed_requests_per_min")
    return LoadResult(
        tool="llmperf",
        tool_version=_text(whole, "version"),
        ran_at=_clock(_number(whole, "timestamp")),
        completed=completed,
        failed=int(_number(whole, "results_number_errors") or 0),
        duration_s=_over(60.0 * completed, per_minute),
        requests_per_s=per_minute / 60,
        concurrency=_number(whole, "num_concurrent_requests"),
        input_tokens_mean=given.get("mean") or _number(whole, "mean_input_tokens"),
        output_tokens_mean=made.get("mean") or _number(whole, "mean_output_tokens"),
        output_tokens_per_s=_number(whole, "results_mean_output_throughput_token_per_s"),
        ttft_ms=of("ttft_s"),
        tpot_ms={},
        e2e_ms=of("end_to_end_latency_s"),
        input_tokens_p95=given.get("p95"),
        output_tokens_p95=made.get("p95"),
    )


def _flat(node: Json, before: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in node.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{key}_")
        else:
            yield f"{before}{key}", value


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
    completed = int(_required(totals, "successful"))
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
        completed=completed,
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
        rate_per_s=_number(strategy, "rate") if str(strategy.get("type_")) in GUIDELLM_CV else None,
        arrival_cv=GUIDELLM_CV.get(str(strategy.get("type_")), 1.0),
        input_tokens_p95=of("prompt_token_count").get("p95"),
        output_tokens_p95=of("output_token_count").get("p95"),
        requests=_guidellm_requests(benchmark, completed),
    )


GUIDELLM_CV = {"constant": 0.0, "async": 0.0, "poisson": 1.0}  # strategies at a rate, and the CV of their gaps


def _guidellm_requests(benchmark: Json, completed: int) -> Requests | None:
    """The requests of a report that has all of them; reports keep a sample."""
    kept = _below(benchmark, "requests").get("successful")
    if not isinstance(kept, list) or len(kept) != completed:
        return None
    rows = [
        {
            "arrival": _below(each, "info", "timings").get("request_start"),
            "given": _below(each, "input_metrics").get("total_tokens"),
            "made": _below(each, "output_metrics").get("total_tokens"),
        }
        for each in kept
        if isinstance(each, Mapping)
    ]
    if len(rows) != completed or any(None in row.values() for row in rows):
        return None
    return _requests(rows, "arrival", "given", "made")


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
        raise LoadResultError(f"The run was not finished: {_text(data, 'incomplete_reason') or 'it was canceled'}.")

    def average(metric: str) -> float | None:
        return _number(_below(data, metric), "avg")

    def of_tokens(metric: str) -> float | None:
        return _number(_below(data, metric), "p95")

    def of(metric: str) -> Figures:
        record = _below(data, metric)
        scale = MS.get(str(record.get("unit", "ms")))
        if scale is None:
            raise LoadResultError(f"{metric} is in {record.get('unit')!r}: not a known unit of time.")
        values = {"mean": _number(record, "avg"), **{p: _number(record, p) for p in PERCENTILES}}
        return _figures(**{k: v * scale if v is not None else None for k, v in values.items()})

    config = _below(data, "input_config")
    concurrency = _concurrency(config)
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
        concurrency=concurrency,
        input_tokens_mean=average("input_sequence_length"),
        output_tokens_mean=average("output_sequence_length"),
        output_tokens_per_s=average("output_token_throughput"),
        ttft_ms=of("time_to_first_token"),
        tpot_ms=of("inter_token_latency"),
        e2e_ms=of("request_latency"),
        rate_per_s=None if concurrency else _setting(config, "request_rate", "rate"),
        arrival_cv=_aiperf_cv(config),
        input_tokens_p95=of_tokens("input_sequence_length"),
        output_tokens_p95=of_tokens("output_sequence_length"),
    )


def _setting(config: Json, *names: str) -> float | None:
    """The first number above 0 of one of these settings, at any depth."""
    values = (node[name] for node in _sections(config) for name in names if name in node)
    numbers = (v for v in values if isinstance(v, int | float) and not isinstance(v, bool))
    return next((float(v) for v in numbers if 0 < v <= MAX_FIGURE), None)


def _aiperf_cv(config: Json) -> float:
    """CV of the gaps: those of gamma arrivals have a smoothness, constant ones none."""
    smoothness = _setting(config, "smoothness", "arrival_smoothness", "vllm_burstiness")
    patterns = {str(node.get(name)) for node in _sections(config) for name in PATTERNS}
    return cv_of_shape(smoothness) if smoothness else 0.0 if "constant" in patterns else 1.0


PATTERNS = ("type", "arrival_pattern", "request_rate_mode")


def _sections(node: Any) -> Iterator[Json]:
    """All objects of the settings, as versions nest them in different ways; not those of the warm-up."""
    if isinstance(node, Mapping):
        if "warmup" in (node.get("kind"), node.get("name")):
            return
        yield node
    for inner in node.values() if isinstance(node, Mapping) else node if isinstance(node, list) else ():
        yield from _sections(inner)


def _concurrency(config: Json) -> float | None:
    """The concurrency in the run's settings, at any depth, as versions differ; None for a rate or a schedule."""
    sections = list(_sections(config))
    if any(s.get("request_rate") or s.get("fixed_schedule") or s.get("type") in OPEN_PHASES for s in sections):
        return None
    return _setting(config, "concurrency")
