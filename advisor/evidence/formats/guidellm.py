"""GuideLLM reports: single runs and sweeps, of the versions before and after 0.4."""

from collections.abc import Mapping
from typing import Any

from advisor.evidence.formats.reading import (
    EvidenceError,
    Json,
    Reading,
    at_rate,
    below,
    burst,
    day_of,
    failed_doubt,
    figures_of,
    finite,
    first,
    number,
    objects_of,
    said_of,
)  # fmt: skip
from advisor.load_tests import LoadResult, LoadResultError, read_result

NAME = "guidellm"
REPLAYED = ("trace", "replay")  # strategies that send requests at recorded times
RATES = ("constant", "poisson", "async")  # strategies that send requests at a rate


def is_one(record: Json) -> bool:
    return isinstance(record.get("benchmarks"), list)


def read(text: str) -> list[Reading]:
    """Each benchmark of each report. EvidenceError names the key that is missing."""
    found = []
    for report in objects_of(text):
        if not is_one(report):
            raise EvidenceError("is not a GuideLLM report: benchmarks is missing")
        for place, benchmark in enumerate(report["benchmarks"], 1):
            if not isinstance(benchmark, Mapping) or not isinstance(benchmark.get("metrics"), Mapping):
                raise EvidenceError(
                    f"benchmark {place} has no metrics; export the report again with GuideLLM 0.2 or newer"
                )
            brief = {name: value for name, value in benchmark.items() if name != "requests"}
            found.append(_reading(f"benchmark {place}", report, finite(brief)))
    return found


def _reading(where: str, report: Json, benchmark: Json) -> Reading:
    try:
        result = read_result({**report, "benchmarks": [benchmark]})
    except LoadResultError as error:
        if "No request was completed" not in str(error):
            raise EvidenceError(f"{where}: {error}") from error
        return Reading(where=where, said={}, figures={}, skipped="completed no request")
    strategy = below(benchmark, "config", "strategy") or below(benchmark, "args", "strategy")
    load, note = _load(strategy, result)
    said = said_of(
        model=_model(report, benchmark),
        isl=result.input_tokens_mean,
        osl=result.output_tokens_mean,
        concurrency_or_batch=load,
        params_note=f"strategy={strategy.get('type_')};{note}".strip(";"),
        date=day_of(result.ran_at),
    )
    totals = below(benchmark, "metrics", "tokens_per_second", "successful")
    figures = figures_of(**latencies(result), total_tokens_per_s=number(totals.get("mean")))
    doubt = failed_doubt(result.failed if load[:3] != "qps" else None, result.completed)
    return Reading(where=where, said=said, figures=figures, stamp=result.ran_at, doubt=doubt)


def latencies(result: LoadResult) -> dict[str, float | None]:
    """The figures that measured rows have of a load test."""
    named = {"ttft_ms": result.ttft_ms, "tpot_ms": result.tpot_ms}
    of_each: dict[str, float | None] = {
        f"{metric}_{statistic}": figures.get(statistic)
        for metric, figures in named.items()
        for statistic in ("mean", "p50", "p99")
    }
    return of_each | {"output_tokens_per_s": result.output_tokens_per_s}


def _load(strategy: Json, result: LoadResult) -> tuple[str, str]:
    kind = strategy.get("type_")
    if result.concurrency:
        return f"{result.concurrency:g}", burst(result.completed, result.concurrency)
    rate = number(strategy.get("rate"))
    if kind in RATES and rate:
        return at_rate(rate, result.arrival_cv)
    if kind in REPLAYED:
        return f"qps={result.requests_per_s:.6g}", "rate as served"
    if kind == "throughput":
        return f"offline {result.completed} prompts", "all requests at once"
    return "", ""


def _model(report: Json, benchmark: Json) -> Any:
    """The model, which versions keep in different places."""
    return first(
        {
            "backend": below(benchmark, "config", "backend").get("model"),
            "worker": below(benchmark, "worker").get("backend_model"),
            "spec": below(report, "config", "spec", "backend").get("model"),
            "args": below(report, "args").get("model"),
            "benchmarker": below(benchmark, "benchmarker", "backend").get("model"),
        },
        *("backend", "worker", "spec", "args", "benchmarker"),
    )
