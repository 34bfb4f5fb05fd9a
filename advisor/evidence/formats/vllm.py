"""`vllm bench serve`, `latency` and `throughput`, and the benchmark_serving.py that came before them."""

from advisor.evidence.formats.reading import (
    EvidenceError,
    Json,
    Reading,
    day_of,
    failed_doubt,
    figures_of,
    first,
    load_text,
    number,
    objects_of,
    runs,
    said_of,
)  # fmt: skip
from advisor.load_tests import cv_of_shape

NAME = "vllm"


def is_one(record: Json) -> bool:
    return kind_of(record) != ""


def kind_of(record: Json) -> str:
    """Which of the three benchmarks wrote a record; empty: none."""
    if "request_throughput" in record and "total_input_tokens" in record and "server_info" not in record:
        return "" if "total_output_tokens_retokenized" in record else "serve"
    if "avg_latency" in record and ("latencies" in record or "percentiles" in record):
        return "latency"
    return "throughput" if {"elapsed_time", "tokens_per_second"} <= set(record) else ""


def read(text: str) -> list[Reading]:
    """The runs of a file. EvidenceError: one is of none of the three benchmarks."""
    readers = {"serve": _serve, "latency": _latency, "throughput": _throughput}
    found = []
    for where, record in runs(objects_of(text)):
        kind = kind_of(record)
        if not kind:
            raise EvidenceError(
                f"{where} is not a result of vllm bench: it has neither request_throughput with total_input_tokens, "
                "nor avg_latency, nor elapsed_time with tokens_per_second"
            )
        found.append(readers[kind](where, record))
    return found


def _serve(where: str, run: Json) -> Reading:
    completed = number(run.get("completed"))
    sent = number(run.get("num_prompts")) or completed
    failed = number(run.get("failed"))
    if failed is None and sent is not None and completed is not None:
        failed = max(sent - completed, 0)
    load, client = load_text(
        run.get("request_rate"),
        number(run.get("max_concurrency")),
        sent,
        cv_of_shape(number(run.get("burstiness"))),
        number(run.get("max_concurrent_requests")),
    )
    version = first(run, "vllm_version", "server_version")
    said = said_of(
        model=first(run, "model_id", "model"),
        accelerator=first(run, "accelerator", "gpu_type", "gpu"),  # from here on: where --metadata states them
        n_accelerators=number(first(run, "num_gpus", "gpu_count")),
        framework=f"vllm {version}" if version else "",
        isl=_each(run, "total_input_tokens", completed),
        osl=_each(run, "total_output_tokens", completed),
        concurrency_or_batch=load,
        params_note=client,
        date=day_of(run.get("date")),
        tp=number(first(run, "tensor_parallel_size", "tp")),
        pp=number(first(run, "pipeline_parallel_size", "pp")),
    )
    none = "completed no request" if not completed else ""
    figures = figures_of(
        **{
            f"{metric}_ms_{ours}": number(run.get(f"{theirs}_{metric}_ms"))
            for metric in ("ttft", "tpot")
            for ours, theirs in (("mean", "mean"), ("p50", "median"), ("p99", "p99"))
        },
        itl_ms_mean=number(run.get("mean_itl_ms")),
        output_tokens_per_s=number(run.get("output_throughput")),
        total_tokens_per_s=number(run.get("total_token_throughput")),
    )
    stamp = str(run.get("date") or "")
    return Reading(
        where=where, said=said, figures=figures, stamp=stamp, skipped=none, doubt=failed_doubt(failed, completed)
    )  # fmt: skip


def _each(run: Json, name: str, completed: float | None) -> float | None:
    total = number(run.get(name))
    return total / completed if total is not None and completed else None


def _latency(where: str, run: Json) -> Reading:
    """One batch from the first token to the last; lengths and batch are not in the file."""
    said = said_of(model=run.get("model"), params_note="client=static", date=day_of(run.get("date")))
    return Reading(where=where, said=said, figures=figures_of(e2e_latency_s=number(run.get("avg_latency"))))


def _throughput(where: str, run: Json) -> Reading:
    """All requests at once; only the sum of input and output tokens is in the file."""
    requests = number(run.get("num_requests"))
    load = f"offline {requests:.0f} prompts" if requests else "offline"
    said = said_of(
        model=run.get("model"), concurrency_or_batch=load, params_note="all requests at once",
        date=day_of(run.get("date")),
    )  # fmt: skip
    return Reading(where=where, said=said, figures=figures_of(total_tokens_per_s=number(run.get("tokens_per_second"))))
