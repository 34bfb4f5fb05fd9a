"""GuideLLM 0.1 to 0.8: JSON and YAML reports, and the CSV of two generations."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from advisor.load_results.reading import (
    MS,
    PERCENTILES,
    Json,
    below,
    clock,
    count,
    each_run,
    figures,
    is_number_list,
    json_cell,
    number,
    of_cells,
    of_requests,
    printable,
    requests_of,
    required,
    required_count,
    text,
)  # fmt: skip
from advisor.load_results.result import (
    RATE,
    RECORDED,
    SEATS,
    UNLIMITED,
    Figures,
    LoadResult,
    LoadResultError,
    Requests,
)  # fmt: skip
from catalog.loading.bounded import BoundedError, read_json

CV = {"constant": 0.0, "async": 0.0, "poisson": 1.0}  # strategies at a rate, and the CV of their gaps
REPLAYED = ("trace", "replay")  # strategies that send requests at recorded times
CUTS = ("min", "p0.1", "p1", "p5", "p10", "p25", "p75", "p90", "p95", "p99", "max")  # of a cell of the CSV
METRICS = {  # of the CSV with three lines of headings: (group, unit) -> metric of the JSON
    ("server throughput", "requests/sec"): "requests_per_second",
    ("token metrics", "input tokens"): "prompt_token_count",
    ("token metrics", "output tokens"): "output_token_count",
    ("token throughput", "output tokens/sec"): "output_tokens_per_second",
    ("token throughput", "total tokens/sec"): "tokens_per_second",
}  # fmt: skip
LATENCIES = {
    "request latency": "request_latency", "time to first token": "time_to_first_token_ms",
    "inter token latency": "inter_token_latency_ms",
}  # fmt: skip
USED = {*METRICS.values(), *LATENCIES.values()}
LATENCY_MS = {"request_latency": 1e3, "time_to_first_token_ms": 1.0, "inter_token_latency_ms": 1.0}


def is_one(record: Json) -> bool:
    return isinstance(record.get("benchmarks"), list)


def read(records: Sequence[Json]) -> list[LoadResult]:
    """Each benchmark of each report."""
    pairs = []
    for report in records:
        if not is_one(report):
            raise LoadResultError("benchmarks is missing from the file.")
        for each in report["benchmarks"]:
            inner = each.get("benchmarks") if isinstance(each, Mapping) else None  # 0.1 has a list for each sweep
            pairs += [(report, one) for one in (inner if isinstance(inner, list) else [each])]
    if not pairs:
        raise LoadResultError("benchmarks is empty: the file has no run.")
    return list(each_run(pairs, _benchmark, "benchmark"))


def _benchmark(pair: tuple[Json, Any]) -> LoadResult:
    """Its time_per_output_token_ms includes the first token, so it is not used.

    Before version 0.4, `args` held the strategy, and `run_stats` the totals with warmup and cooldown.
    """
    report, benchmark = pair
    if not isinstance(benchmark, Mapping):
        raise LoadResultError("A benchmark of the report is not an object.")
    if isinstance(benchmark.get("results"), list) and "mode" in benchmark:
        return _first_version(benchmark)
    metrics = below(benchmark, "metrics")
    if not metrics:
        raise LoadResultError(
            "metrics is missing from the benchmark; export the report again with GuideLLM 0.2 or newer."
        )
    earlier, scheduler = below(benchmark, "run_stats"), below(benchmark, "scheduler_metrics")
    totals = (
        below(metrics, "request_totals") or below(benchmark, "request_totals") or below(earlier, "requests_made")
        or {name: earlier.get(f"total_{name}") for name in ("successful", "errored", "incomplete")}
    )  # fmt: skip
    strategy = (
        below(benchmark, "config", "strategy") or below(benchmark, "args", "strategy")
        or below(benchmark, "scheduler", "strategy")
    )  # fmt: skip
    completed = required_count(totals, "successful")
    failed = required_count(totals, "errored") + (count(totals, "incomplete") or 0)
    if not completed:
        return LoadResult(tool="guidellm", completed=0, failed=failed)
    start, end = (number(scheduler, f"measure_{side}_time") for side in ("start", "end"))
    requests = below(benchmark, "requests").get("successful")

    def of(metric: str, scale: float = 1.0) -> Figures:
        summary = below(metrics, metric, "successful")
        values = {p: number(below(summary, "percentiles"), p) for p in PERCENTILES}
        values["p50"] = number(summary, "median") if values["p50"] is None else values["p50"]
        return figures(scale, mean=number(summary, "mean"), **values)

    given, made = of("prompt_token_count"), of("output_token_count")
    return LoadResult(
        tool="guidellm",
        completed=completed,
        failed=failed,
        tool_version=text(below(report, "metadata"), "guidellm_version"),
        ran_at=text(benchmark, "ran_at") or clock(number(benchmark, "start_time") or number(earlier, "start_time")),
        duration_s=end - start if end and start and end > start else number(benchmark, "duration"),
        requests_per_s=required(below(metrics, "requests_per_second", "successful"), "mean"),
        input_tokens_mean=given.get("mean"),
        output_tokens_mean=made.get("mean"),
        input_tokens_p95=given.get("p95"),
        output_tokens_p95=made.get("p95"),
        output_tokens_per_s=of("output_tokens_per_second").get("mean"),
        total_tokens_per_s=of("tokens_per_second").get("mean"),
        ttft_ms=of("time_to_first_token_ms"),
        tpot_ms=of("inter_token_latency_ms"),
        e2e_ms=of("request_latency", 1e3),
        requests=_requests(requests, completed),
        model=_model(report, benchmark),
        **_load(text(strategy, "type_", "kind"), number(strategy, "streams"), number(strategy, "rate")),
    )


def _load(kind: str, streams: float | None, rate: float | None) -> dict[str, Any]:
    """A closed loop has streams; one request at a time is one, too."""
    streams = 1.0 if kind == "synchronous" else streams if kind == "concurrent" else None
    rate = rate if kind in CV else None
    arrivals = SEATS if streams else RATE if rate else RECORDED if kind in REPLAYED else ""
    return {
        "concurrency": streams,
        "rate_per_s": rate or None,
        "arrivals": UNLIMITED if kind == "throughput" else arrivals,
        "arrival_cv": CV.get(kind, 1.0),
        "settings": f"strategy={kind}" if kind else "",
    }


def _model(report: Json, benchmark: Json) -> str:
    """The model, which versions keep in different places."""
    config, args = benchmark.get("config"), report.get("args")
    places = (
        (config, "backend", "model"), (benchmark.get("worker"), "backend_model"),
        (report.get("config"), "spec", "backend", "model"), (args, "model"),
        (benchmark.get("benchmarker"), "backend", "model"),
    )  # fmt: skip
    for node, *keys in places:
        for key in keys:
            node = node.get(key) if isinstance(node, Mapping) else None
        if isinstance(node, str) and node:
            return printable(node)
    return ""


def _requests(kept: Any, completed: int) -> Requests | None:
    """The requests of a report that has all of them; reports keep a sample."""
    if not isinstance(kept, list) or len(kept) != completed:
        return None
    rows = [
        {
            "arrival": below(each, "info", "timings").get("request_start"),
            "given": below(each, "input_metrics").get("total_tokens"),
            "made": below(each, "output_metrics").get("total_tokens"),
        }
        for each in kept
        if isinstance(each, Mapping)
    ]
    if len(rows) != completed or any(None in row.values() for row in rows):
        return None
    return requests_of(rows, "arrival", "given", "made")


def _first_version(benchmark: Json) -> LoadResult:
    """0.1 kept each request, in seconds; its own percentiles are in other units than their names say."""
    errors, rows = benchmark.get("errors"), list[dict[str, Any]]()
    for each in benchmark["results"]:
        if not isinstance(each, Mapping):
            raise LoadResultError("results has a request that is not an object.")
        start, end, first = required(each, "start_time"), required(each, "end_time"), number(each, "first_token_time")
        if end < start:
            raise LoadResultError("end_time is before start_time.")
        gaps: Any = below(each, "decode_times").get("data")
        made = required_count(each, "output_token_count")
        timed = made > 1 and is_number_list(gaps)
        rows.append(
            {
                "start_s": start, "end_s": end, "e2e_ms": 1e3 * (end - start),
                "ttft_ms": None if first is None else 1e3 * first,
                "tpot_ms": 1e3 * sum(gaps) / (made - 1) if timed else None,
                "given": required_count(each, "prompt_token_count"), "made": made,
            }
        )  # fmt: skip
    mode = text(benchmark, "mode")
    load = _load({"asynchronous": "poisson"}.get(mode, mode), None, number(benchmark, "rate"))
    ran_at = clock(min((row["start_s"] for row in rows), default=None))
    return of_requests("guidellm", rows, len(errors) if isinstance(errors, list) else 0, ran_at=ran_at, **load)


# --- CSV --------------------------------------------------------------------------------------------------------


def is_table(rows: Sequence[Sequence[str]]) -> bool:
    return _is_grouped(rows) or any(cell.strip().startswith("Successful ") for cell in rows[0])


def _is_grouped(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the headings have three lines, as since 0.4."""
    return bool({"Run Info", "Request Counts", "Server Throughput"} & {cell.strip() for cell in rows[0]})


def of_table(rows: Sequence[Sequence[str]]) -> list[LoadResult]:
    """The runs of the CSV as the JSON has them."""
    top, lines = rows[0], 3 if _is_grouped(rows) else 1
    if len(rows) <= lines:
        raise LoadResultError("The file has headings but no run.")
    for line, cells in enumerate(rows[lines:], lines + 1):
        if len(cells) != len(top):  # it writes the headings of the first run alone
            raise LoadResultError(
                f"line {line} has {len(cells)} values for {len(top)} columns, so they cannot be told apart; export the "
                "report as JSON."
            )
    names = [" ".join(c.strip().lower() for c in column) for column in zip(*rows[:lines], strict=False)]
    tables = [of_cells(names, cells) for cells in rows[lines:]]
    reports = [_of_row(table, place, len(tables), lines == 3) for place, table in enumerate(tables)]
    return list(each_run(reports, _benchmark, "benchmark"))


def _of_row(row: Json, place: int, runs: int, grouped: bool) -> tuple[Json, Json]:
    """(report, benchmark) of a row, as the JSON has them."""
    counts = {s: row.get(f"request counts {s}" if grouped else f"{s} requests") for s in TOTALS}
    benchmark: dict[str, Any] = {
        "metrics": {"request_totals": counts} | dict(_metrics(row, grouped)),
        "duration": row.get("timings duration sec" if grouped else "duration"),
        "ran_at": text(row, "timings start time" if grouped else "start time"),
        "config": {"strategy": _strategy(row, place, runs, grouped), "backend": {"model": _model_of_row(row, grouped)}},
    }
    return {"metadata": _object(json_cell(row, "runtime info metadata"))}, benchmark


TOTALS = ("successful", "incomplete", "errored")


def _metrics(row: Json, grouped: bool) -> Any:
    pattern = r"(?P<name>.+?) successful (?P<unit>\S.*?) mean" if grouped else r"successful (?P<name>.+) mean"
    for heading in row:
        if not (match := re.fullmatch(pattern, heading)):
            continue
        base, scale = heading.removesuffix("mean"), 1.0
        name = match["name"].replace(" ", "_")
        if grouped:
            unit = match["unit"]
            name = METRICS.get((match["name"], unit), LATENCIES.get(match["name"], ""))
            if name in LATENCY_MS:
                if unit not in MS:
                    raise LoadResultError(f"{match['name']} is in {unit!r}: not a known unit of time.")
                scale = MS[unit] / LATENCY_MS[name]
        cuts = row.get(f"{base}percentiles" if grouped else f"{base}[min, 0.1, 1, 5, 10, 25, 75, 90, 95, 99, max]")
        values = {"mean": row[heading], "median": row.get(f"{base}median")}
        summary = {k: v * scale if isinstance(v, float) else v for k, v in values.items()}
        if name in USED:
            percentiles = {k: v * scale for k, v in _cuts(name, cuts).items()}
            yield name, {"successful": summary | {"percentiles": percentiles}}


def _cuts(name: str, cell: Any) -> dict[str, float]:
    """The percentiles of a cell; there is no median among them."""
    if cell is None:
        return {}
    try:
        values = read_json(str(cell))
    except BoundedError:
        values = None
    if not is_number_list(values) or len(values) != len(CUTS):
        raise LoadResultError(f"the percentiles of {name} are {str(cell)[:40]!r}: not {len(CUTS)} numbers.")
    return dict(zip(CUTS, values, strict=True))


def _strategy(row: Json, place: int, runs: int, grouped: bool) -> Json:
    """Of the arguments, else of the name (constant@2.50), else of the profile with a value for each run."""
    if not grouped:
        stated = _object(_object(json_cell(row, "args")).get("strategy"))
        match = re.fullmatch(r"([a-z]+)(?:@([\d.]+))?", text(row, "name"))
        if stated or not match:
            return stated
        value = float(match[2]) if match[2] and match[2].count(".") < 2 else None
        return {"type_": match[1], "streams": value, "rate": value}
    profile, kind = _object(json_cell(row, "run info profile")), text(row, "benchmark strategy")
    lists = {name: profile.get(name) for name in ("streams", "rate")}
    each = {name: v[place] for name, v in lists.items() if isinstance(v, list) and len(v) == runs}
    return {"type_": kind, **{name: v for name, v in lists.items() if runs == 1 and isinstance(v, int | float)}, **each}


def _model_of_row(row: Json, grouped: bool) -> str:
    backend, worker = _object(json_cell(row, "run info backend" if grouped else "backend")), json_cell(row, "worker")
    return text(backend, "model") or text(_object(worker), "backend_model")


def _object(value: Any) -> Json:
    return value if isinstance(value, Mapping) else {}
