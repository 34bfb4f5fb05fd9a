"""Runs of load generators (advisor/load_results) as readings, and the offline benchmarks of vLLM."""

from functools import partial

from advisor import load_results
from advisor.evidence.formats.reading import (
    SPECULATION,
    EvidenceError,
    Json,
    Reading,
    day_of,
    figures_of,
    number,
    objects_of,
    runs,
    said_of,
    written_of,
)  # fmt: skip
from advisor.load_results import RECORDED, UNLIMITED, LoadResult, LoadResultError
from catalog.loading.bounded import FILES

WEIGHTS = {  # SGLang's --quantization -> format of the weights
    "fp8": "fp8", "w8a8_fp8": "fp8", "modelopt": "fp8", "modelopt_fp8": "fp8", "modelopt_fp4": "nvfp4",
    "mxfp4": "mxfp4", "awq": "int4", "awq_marlin": "int4", "gptq": "int4", "gptq_marlin": "int4",
    "w8a8_int8": "int8",
}  # fmt: skip
CACHES = {"fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "bfloat16": "bf16"}
MOST_FAILED = 0.02


def offline_kind(record: Json) -> str:
    """`vllm bench latency` or `throughput`; empty: another file."""
    if "avg_latency" in record and ("latencies" in record or "percentiles" in record):
        return "latency"
    return "throughput" if {"elapsed_time", "tokens_per_second"} <= set(record) else ""


def read(name: str, text: str) -> list[Reading]:
    """The runs of a file of this format. EvidenceError: it is of another, or not valid."""
    if name == "vllm" and text.lstrip()[:1] in ("{", "["):
        records = objects_of(text)
        if offline_kind(records[0]):
            return [_offline(where, record) for where, record in runs(records)]
    try:
        return [_reading(run) for run in load_results.read_runs(text, FILES, name)]
    except LoadResultError as error:
        raise EvidenceError(f"is refused: {str(error).rstrip('.')}") from error


READERS = {each.name: partial(read, each.name) for each in load_results.FORMATS}


def _reading(run: LoadResult) -> Reading:
    where = run.place or "run 1"
    if run.unusable:
        return Reading(where=where, said={}, figures={}, skipped=run.unusable if run.completed else NOTHING_DONE)
    load, client = load_of(run)
    said = said_of(
        model=run.model,
        accelerator=run.accelerator,
        n_accelerators=run.accelerators,
        framework=f"{run.framework} {run.framework_version}" if run.framework and run.framework_version else "",
        isl=run.input_tokens_mean,
        osl=run.output_tokens_mean,
        concurrency_or_batch=load,
        params_note=";".join(filter(None, (run.settings, client))),
        weights_dtype=WEIGHTS.get(str(run.server.get("quantization") or "")),
        kv_dtype=CACHES.get(str(run.server.get("kv_cache_dtype"))),
        date=day_of(run.ran_at),
        tp=run.tp,
        pp=run.pp,
        attention_dp=run.attention_dp,
        ep=run.ep if run.ep and run.ep > 1 else None,
    )
    figures = figures_of(
        **{
            f"{metric}_ms_{statistic}": values.get(statistic)
            for metric, values in (("ttft", run.ttft_ms), ("tpot", run.tpot_ms))
            for statistic in ("mean", "p50", "p99")
        },
        itl_ms_mean=run.itl_ms.get("mean"),
        output_tokens_per_s=run.output_tokens_per_s,
        total_tokens_per_s=run.total_tokens_per_s,
    )
    cut_off = run.tool == "guidellm" and load.startswith("qps")  # requests that the end of an open loop cut off
    return Reading(
        where=where,
        said=said,
        figures=figures,
        stamp=run.ran_at,
        skipped=SPECULATION.format(run.speculative) if run.speculative else "",
        doubt="" if cut_off else failed_doubt(run.failed, run.completed),
    )


NOTHING_DONE = "completed no request"


def load_of(run: LoadResult) -> tuple[str, str]:
    """(concurrency or rate, note on the client) of a run; empty if the file does not state them."""
    if run.rate_per_s:
        return f"qps={run.rate_per_s:.6g}", f"client=poisson;arrival_cv={run.arrival_cv:.4g}"
    if run.concurrency:
        limited = f";rate={run.limit_per_s:.6g}" if run.limit_per_s else ""
        return written_of(run.concurrency), burst(run.completed, run.concurrency) + limited
    if run.arrivals == UNLIMITED:
        sent = run.completed + run.failed
        together = run.tool == "guidellm"
        return (
            (f"offline {run.completed} prompts", "all requests at once") if together else (f"{sent}", burst(sent, sent))
        )
    if run.arrivals == RECORDED and run.requests_per_s:
        return f"qps={run.requests_per_s:.6g}", "rate as served"
    return "", ""


def burst(requests: float, concurrency: float) -> str:
    """The note of a client that sends its first requests all at once, then one for each that is served."""
    each = f";requests_per_user={requests / concurrency:.4g}" if requests >= concurrency else ""
    return f"client=burst{each}"


def failed_doubt(failed: int, completed: int) -> str:
    """Why a run with failed requests is doubtful: those that were served are not a fair sample."""
    sent = failed + completed
    return f"{failed} of {sent} requests failed" if failed > MOST_FAILED * sent else ""


def _offline(where: str, record: Json) -> Reading:
    """Latency: one batch from the first token to the last. Throughput: all requests at once, the sum of all tokens."""
    kind = offline_kind(record)
    if not kind:
        raise EvidenceError(f"{where} is a result of neither vllm bench latency nor vllm bench throughput")
    requests = number(record.get("num_requests"))
    whole = kind == "throughput"
    said = said_of(
        model=record.get("model"),
        concurrency_or_batch=(f"offline {requests:.0f} prompts" if requests else "offline") if whole else "",
        params_note="all requests at once" if whole else "client=static",
        date=day_of(record.get("date")),
    )
    figures = figures_of(
        e2e_latency_s=None if whole else number(record.get("avg_latency")),
        total_tokens_per_s=number(record.get("tokens_per_second")) if whole else None,
    )
    return Reading(where=where, said=said, figures=figures)
