"""inference-perf of kubernetes-sigs and llmperf of ray-project."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from advisor.load_results.reading import (
    PERCENTILES,
    Json,
    below,
    clock,
    each_run,
    figures,
    number,
    of_requests,
    over,
    required,
    required_count,
    text,
)  # fmt: skip
from advisor.load_results.result import RATE, SEATS, Figures, LoadResult, LoadResultError

INFERENCE_PERF = ("load_summary", "successes", "failures")
RESPONSE = {"error_code", "error_msg", "ttft_s", "end_to_end_latency_s", "inter_token_latency_s", "number_input_tokens"}


def is_inference_perf(record: Json) -> bool:
    return len({*INFERENCE_PERF} & set(record)) > 1


def is_llmperf(record: Json) -> bool:
    names = [str(name) for name in record]
    return (
        is_response(record)
        or any(n.startswith("results_") for n in names)
        or isinstance(record.get("results"), Mapping)
    )


def is_response(record: Json) -> bool:
    """Whether a record is one of *_individual_responses.json."""
    return len(RESPONSE & set(record)) > 2


def read_inference_perf(records: Sequence[Json]) -> list[LoadResult]:
    return list(each_run(records, _inference_perf))


def read_llmperf(records: Sequence[Json]) -> list[LoadResult]:
    return [_responses(records)] if is_response(records[0]) else list(each_run(records, _llmperf))


def _inference_perf(data: Json) -> LoadResult:
    """summary_lifecycle_metrics.json or that of a stage: seconds, the median as `median`, `p50` or in percentiles."""
    for name in INFERENCE_PERF:
        if not data.get(name):
            raise LoadResultError(f"{name} is missing from the file.")
    done, load = below(data, "successes"), below(data, "load_summary")
    rates, completed = below(done, "throughput"), required_count(done, "count")
    failed = required_count(below(data, "failures"), "count")
    if not completed:
        return LoadResult(tool="inference-perf", completed=0, failed=failed)

    def of(*path: str, scale: float = 1e3) -> Figures:
        found = below(done, *path)
        found = {**below(found, "percentiles"), **found}
        each = {p: number(found, p) for p in ("mean", *PERCENTILES)}
        each["p50"] = number(found, "median") if each["p50"] is None else each["p50"]
        return figures(scale, **each)

    given, made = of("prompt_len", scale=1.0), of("output_len", scale=1.0)
    seats, rate = number(load, "concurrency") or None, number(load, "requested_rate") or None
    return LoadResult(
        tool="inference-perf",
        completed=completed,
        failed=failed,
        duration_s=number(load, "send_duration"),
        requests_per_s=required(rates, "requests_per_sec"),
        arrivals=SEATS if seats else RATE if rate else "",
        concurrency=seats,
        rate_per_s=None if seats else rate,
        limit_per_s=rate if seats else None,
        input_tokens_mean=given.get("mean"),
        output_tokens_mean=made.get("mean"),
        input_tokens_p95=given.get("p95"),
        output_tokens_p95=made.get("p95"),
        output_tokens_per_s=number(rates, "output_tokens_per_sec"),
        total_tokens_per_s=number(rates, "total_tokens_per_sec"),
        ttft_ms=of("latency", "time_to_first_token"),
        tpot_ms=of("latency", "time_per_output_token"),
        itl_ms=of("latency", "inter_token_latency"),
        e2e_ms=of("latency", "request_latency"),
    )


def _llmperf(data: Json) -> LoadResult:
    """The summary of ray-project/llmperf, flat (results_ttft_s_mean) or nested. It is a closed loop.

    Its inter-token latency is the end-to-end time over all tokens, the first included, so it is no TPOT.
    """
    whole = dict(_flat(data))

    def of(metric: str, scale: float = 1e3) -> Figures:
        named = {"mean": f"{metric}_mean", **{p: f"{metric}_quantiles_{p}" for p in PERCENTILES}}
        return figures(scale, **{key: number(whole, f"results_{name}") for key, name in named.items()})

    key = "results_num_completed_requests"
    completed = required_count(
        {"results_num_completed_requests": _first(whole, key, "results_number_completed_requests")}, key
    )
    failed = required_count(whole, "results_number_errors")
    if not completed:
        return LoadResult(tool="llmperf", completed=0, failed=failed)
    given, made = of("number_input_tokens", 1.0), of("number_output_tokens", 1.0)
    per_minute, seats = (
        required(whole, "results_num_completed_requests_per_min"),
        number(whole, "num_concurrent_requests"),
    )
    return LoadResult(
        tool="llmperf",
        completed=completed,
        failed=failed,
        tool_version=text(whole, "version"),
        ran_at=clock(number(whole, "timestamp")),
        duration_s=over(60.0 * completed, per_minute),
        requests_per_s=per_minute / 60,
        arrivals=SEATS if seats else "",
        concurrency=seats,
        input_tokens_mean=_first(given, "mean") or number(whole, "mean_input_tokens"),
        output_tokens_mean=_first(made, "mean") or number(whole, "mean_output_tokens"),
        input_tokens_p95=given.get("p95"),
        output_tokens_p95=made.get("p95"),
        output_tokens_per_s=number(whole, "results_mean_output_throughput_token_per_s"),
        ttft_ms=of("ttft_s"),
        e2e_ms=of("end_to_end_latency_s"),
        model=text(whole, "model"),
    )


def _first(record: Mapping[str, Any], *names: str) -> Any:
    return next((record[name] for name in names if record.get(name) is not None), None)


def _responses(records: Sequence[Json]) -> LoadResult:
    """The requests of a run, without their times of the clock: no rate and no concurrency."""
    served = [each for each in records if each.get("error_code") in (None, "")]
    rows = [
        {"ttft_ms": 1e3 * required(each, "ttft_s"), "e2e_ms": 1e3 * required(each, "end_to_end_latency_s"),
         "given": required(each, "number_input_tokens"), "made": required(each, "number_output_tokens")}
        for each in served
    ]  # fmt: skip
    return of_requests("llmperf", rows, len(records) - len(served))


def _flat(node: Json, before: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in node.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{key}_")
        else:
            yield f"{before}{key}", value
