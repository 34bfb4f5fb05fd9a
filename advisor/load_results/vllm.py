"""`vllm bench serve`, benchmark_serving.py, `vllm bench sweep`, the multi-turn benchmark and SGLang's bench_serving."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from advisor.load_results.reading import (
    MAX_FIGURE,
    PERCENTILES,
    Json,
    below,
    count,
    cv_of_shape,
    each_run,
    figures,
    number,
    of_cell,
    of_cells,
    of_requests,
    over,
    percentiles_of,
    requests_of,
    required,
    required_count,
    size,
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

AT_ONCE_FRACTION = 0.3  # of the run's duration: the mean request lasts longer only if all were sent at the start
DETAILS = ("input_lens", "output_lens", "ttfts", "itls", "start_times", "errors")
OF_SGLANG = {"server_info", "total_output_tokens_retokenized", "sharegpt_output_len", "random_range_ratio"}
OF_BOTH = {
    "completed", "duration", "request_throughput", "total_input_tokens", "total_output_tokens", "output_throughput",
    "total_token_throughput", "total_throughput", "mean_ttft_ms", "median_ttft_ms", "mean_tpot_ms", "num_prompts",
    "max_concurrency", "request_rate", "mean_e2el_ms",
}  # fmt: skip
TURN = {"ttft_ms", "tpot_ms", "latency_ms", "start_time_ms", "input_num_tokens", "output_num_tokens"}
UNBOUNDED = ("inf", "infinity", "none", "trace")


def is_sglang(record: Json) -> bool:
    return bool(OF_SGLANG & set(record)) and len(OF_BOTH & set(record)) > 1


def is_vllm(record: Json) -> bool:
    return len(OF_BOTH & set(record)) > 2 or is_turn(record)


def is_turn(record: Json) -> bool:
    """Whether a record is one request of the multi-turn benchmark."""
    return len(TURN & set(record)) > 3


def read(records: Sequence[Json]) -> list[LoadResult]:
    return [_turns(records)] if is_turn(records[0]) else list(each_run(records, _serve))


def is_table(rows: Sequence[Sequence[str]]) -> bool:
    """Whether it is the summary.csv of a sweep, or the requests of the multi-turn benchmark."""
    return is_vllm(dict.fromkeys(map(str.strip, rows[0])))


def of_table(rows: Sequence[Sequence[str]]) -> list[LoadResult]:
    if wrong := next((n for n, cells in enumerate(rows[1:], 2) if len(cells) < len(rows[0])), 0):
        raise LoadResultError(f"line {wrong} has fewer columns than the header.")
    if len(rows) < 2:
        raise LoadResultError("The file has headings but no run.")
    return read([dict.fromkeys(rows[0]) | of_cells(rows[0], cells) | dict.fromkeys(DETAILS) for cells in rows[1:]])


def _serve(data: Json) -> LoadResult:
    """The object that --save-result or --output-file writes, with the requests of --save-detailed.

    request_rate is "inf" for closed loops, replayed traces and requests that are all sent at once.
    """
    sglang = is_sglang(data)
    completed = required_count(data, "completed")
    failed = count(data, "failed")
    if failed is None and isinstance(data.get("errors"), list):
        failed = sum(bool(each) for each in data["errors"])
    sent = count(data, "num_prompts") or completed + (failed or 0)
    failed = max(sent - completed, 0) if failed is None else failed
    tool = "sglang" if sglang else "vllm"
    if not completed:
        return LoadResult(tool=tool, completed=0, failed=failed)
    requests, each = _requests(data)

    def of(metric: str) -> Figures:
        values = {p: number(data, f"{p}_{metric}_ms") for p in PERCENTILES}
        median = number(data, f"median_{metric}_ms")
        values["p50"] = median if values["p50"] is None else values["p50"]
        return percentiles_of(each.get(metric, ())) | figures(1.0, mean=number(data, f"mean_{metric}_ms"), **values)

    ttft, tpot, e2e = of("ttft"), of("tpot"), of("e2el") or of("e2e_latency")
    asked = str(data.get("request_rate")).lower()
    rate = None if asked in UNBOUNDED else number(data, "request_rate")
    output = over(number(data, "total_output_tokens"), completed)
    duration_s, seats = number(data, "duration"), number(data, "max_concurrency")
    rps = number(data, "request_throughput")
    if rps is None and sglang:  # early versions leave it out
        rps = over(completed, duration_s)
    if rps is None:
        raise LoadResultError("request_throughput is missing from the file.")
    request_s = (e2e.get("mean") or ttft.get("mean", 0.0) + tpot.get("mean", 0.0) * ((output or 1.0) - 1)) / 1e3
    if rate and seats and not _waits_for_seats(data, seats, rps * request_s):
        seats = None
    unlimited = not rate and not seats and asked != "trace"
    if unlimited and "arrival_s" not in (requests or {}) and request_s > AT_ONCE_FRACTION * (duration_s or 1e9):
        seats = float(sent)
    return LoadResult(
        tool=tool,
        completed=completed,
        failed=failed,
        tool_version="" if sglang else text(data, "vllm_version"),
        ran_at=text(data, "date", "timestamp"),
        duration_s=duration_s,
        requests_per_s=rps,
        arrivals=UNLIMITED if unlimited else SEATS if seats else RATE if rate else RECORDED,
        concurrency=seats,
        rate_per_s=None if seats else rate,
        limit_per_s=rate if seats else None,
        arrival_cv=cv_of_shape(number(data, "burstiness")),
        input_tokens_mean=over(number(data, "total_input_tokens"), completed),
        output_tokens_mean=output,
        output_tokens_per_s=number(data, "output_throughput"),
        total_tokens_per_s=number(data, "total_throughput" if sglang else "total_token_throughput"),
        ttft_ms=ttft,
        tpot_ms=tpot,
        itl_ms=of("itl"),
        e2e_ms=e2e,
        requests=requests,
        **(_sglang_server(data) if sglang else _vllm_server(data)),
    )


def _waits_for_seats(data: Json, seats: float, in_flight: float) -> bool:
    """Whether --max-concurrency held requests of a given rate back."""
    most = number(data, "max_concurrent_requests")
    return most >= seats if most is not None else in_flight > seats / 2


def _vllm_server(data: Json) -> dict[str, Any]:
    """What --metadata and the settings of a sweep state of the server, which need not be vLLM without its version."""
    version = text(data, "vllm_version", "server_version")
    return {
        "model": text(data, "model_id", "model"),
        "accelerator": text(data, "accelerator", "gpu_type", "gpu"),
        "framework": "vllm" if version else "",
        "framework_version": version,
        "accelerators": size(data, "num_gpus", "gpu_count"),
        "tp": size(data, "tensor_parallel_size", "tp"),
        "pp": size(data, "pipeline_parallel_size", "pp"),
        "speculative": "acceptance stated" if (number(data, "spec_decode_acceptance_rate") or 0) > 0 else "",
    }


def _sglang_server(data: Json) -> dict[str, Any]:
    """The settings of the server, which some versions put under internal_states.

    tp_size counts all ranks of a server with attention data parallelism, and those of one replica without; then dp_size
    counts replicas of the whole model.
    """
    info = below(data, "server_info")
    inner = info.get("internal_states")
    server = {**(inner[0] if isinstance(inner, list) and inner and isinstance(inner[0], dict) else {}), **info}
    tp, dp, pp = size(server, "tp_size"), size(server, "dp_size") or 1, size(server, "pp_size") or 1
    inside = str(server.get("enable_dp_attention")).lower() in ("true", "1")
    ratio, name = number(data, "random_range_ratio"), text(data, "dataset_name")
    spread = ""
    if name == "random" and ratio is not None and ratio < 1:  # uniform between the ratio and 1 of the nominal
        spread = f";lengths={2 * ratio / (1 + ratio):.4g}:{2 / (1 + ratio):.4g}"
    accepted = number(data, "accept_length") or 0
    ours = bool(server) or str(data.get("backend")).startswith("sglang")
    return {
        "settings": f"dataset={name}{spread}",
        "model": text(server, "model_path") or text(data, "model", "model_id"),
        "framework": "sglang" if ours else "",
        "framework_version": text(server, "version"),
        "accelerators": (tp * pp if inside else tp * dp * pp) if tp else None,
        "tp": max(1, tp // dp) if tp and inside else tp,
        "pp": pp if tp else None,
        "attention_dp": (dp if inside else 1) if tp else None,
        "ep": size(server, "ep_size") if tp else None,
        "speculative": text(server, "speculative_algorithm") or (f"accept_length {accepted:g}" if accepted > 1 else ""),
        "server": server,
    }


def _requests(data: Json) -> tuple[Requests | None, dict[str, list[float]]]:
    """(the served requests, their latencies in ms by metric) of --save-detailed; none without it."""
    lists = {name: data[name] for name in DETAILS if data.get(name)}
    if not {"input_lens", "output_lens"} <= lists.keys():
        return None, {}
    rows = _columns(lists, len(lists["input_lens"]) if isinstance(lists["input_lens"], list) else 0)
    served = [row for row in rows if not row.get("errors") and number(row, "output_lens")]
    ttft = [1e3 * required(row, "ttfts") for row in served] if "ttfts" in lists else []
    arrivals = "start_times" if "start_times" in lists else ""
    several = [row for row in served if row["output_lens"] > 1] if "itls" in lists else []
    tpot = [1e3 * _sum(row["itls"]) / (row["output_lens"] - 1) for row in several]
    return requests_of(served, arrivals, "input_lens", "output_lens"), {"ttft": ttft, "tpot": tpot}


def _sum(values: Any) -> float:
    """The sum of one request's gaps between tokens."""
    try:
        whole = float(sum(values))
    except (TypeError, OverflowError):
        whole = math.nan
    if not 0 <= whole <= MAX_FIGURE:
        raise LoadResultError(f"itls has {str(values)[:40]}, which are no times.")
    return whole


def _columns(lists: Mapping[str, Any], length: int) -> list[dict[str, Any]]:
    """Lists with one value for each request as rows. LoadResultError: their lengths differ."""
    for name, values in lists.items():
        if not isinstance(values, list) or len(values) != length:
            found = f"{len(values):,} values" if isinstance(values, list) else "no list"
            raise LoadResultError(
                f"{name} has {found} for {length:,} requests; save the result with --save-detailed again."
            )
    return [dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True)]


def _turns(records: Sequence[Json]) -> LoadResult:
    """The requests of benchmark_serving_multi_turn.py (`Raw data`), one a record, in milliseconds."""
    names = {"ttft_ms": "ttft_ms", "tpot_ms": "tpot_ms", "e2e_ms": "latency_ms"}
    rows = []
    for each in records:
        start_ms, tokens = required(each, "start_time_ms"), ("input_num_tokens", "output_num_tokens")
        given, made = (required_count(each, name) for name in tokens)
        row = {ours: required(each, theirs) for ours, theirs in names.items()} | {"given": given, "made": made}
        rows.append(row | {"start_s": start_ms / 1e3, "end_s": (start_ms + row["e2e_ms"]) / 1e3})
    return of_requests("vllm", rows, arrivals=RECORDED, settings="dataset=multi-turn")


# --- the table that the client prints ---------------------------------------------------------------------------

PRINTED = re.compile(r"={1,20} (?:Serving )?Benchmark Result ={1,60}")
LABELS = {  # of the printed table, without their unit -> key of the JSON
    "successful requests": "completed", "failed requests": "failed", "benchmark duration": "duration",
    "maximum request concurrency": "max_concurrency", "max request concurrency": "max_concurrency",
    "request rate configured": "request_rate", "traffic request rate": "request_rate",
    "total input tokens": "total_input_tokens", "total generated tokens": "total_output_tokens",
    "request throughput": "request_throughput", "output token throughput": "output_throughput",
    "total token throughput": "total_token_throughput",
}  # fmt: skip
STATISTIC = re.compile(r"(mean|median|p50|p90|p95|p99) (ttft|tpot|itl|e2el|e2e latency)", re.IGNORECASE)
LINE = re.compile(r"^\s*([A-Za-z][^:\n]*?)(?:\s*\([^)\n]*\))?:\s+([\d.,]+|inf|nan)\s*$", re.MULTILINE)


def is_printed(written: str) -> bool:
    return bool(PRINTED.search(written))


def of_printed(written: str) -> Iterator[LoadResult]:
    """The printed tables, read as the JSON files are."""
    model = re.search(r"\bmodel='([^'\n]{1,200})'", written)  # of the arguments, which the client prints first
    tables = []
    for part in PRINTED.split(written)[1:]:
        table: dict[str, Any] = {"model_id": model[1]} if model else {}
        for label, value in LINE.findall(part[: part.rfind("\n", 0, 10_000) + 1]):
            key = LABELS.get(label.strip().lower())
            if match := STATISTIC.fullmatch(label.strip()):
                key = f"{match[1].lower()}_{match[2].lower().replace(' ', '_')}_ms"
            if key and key not in table:
                table[key] = of_cell(value)
        tables.append(table)
    return each_run(tables, _serve)
