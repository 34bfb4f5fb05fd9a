"""`sglang.bench_serving`: one object a line, with the server's settings where the version writes them."""

from typing import Any

from advisor.evidence.formats.reading import (
    SPECULATION,
    EvidenceError,
    Json,
    Reading,
    below,
    day_of,
    failed_doubt,
    figures_of,
    load_text,
    number,
    objects_of,
    runs,
    said_of,
    truth,
)  # fmt: skip

NAME = "sglang"
FORMATS = {  # --quantization -> format of the weights
    "fp8": "fp8", "w8a8_fp8": "fp8", "modelopt": "fp8", "modelopt_fp8": "fp8", "modelopt_fp4": "nvfp4",
    "mxfp4": "mxfp4", "awq": "int4", "awq_marlin": "int4", "gptq": "int4", "gptq_marlin": "int4",
    "w8a8_int8": "int8",
}  # fmt: skip


def is_one(record: Json) -> bool:
    mine = {"server_info", "total_output_tokens_retokenized", "sharegpt_output_len", "random_range_ratio"}
    return bool(mine & set(record)) and "request_throughput" in record


def read(text: str) -> list[Reading]:
    """The runs of a file. EvidenceError: a line is of another benchmark."""
    found = []
    for where, record in runs(objects_of(text)):
        if "request_throughput" not in record or "completed" not in record:
            raise EvidenceError(
                f"{where} is not a result of sglang.bench_serving: request_throughput or completed is missing"
            )
        found.append(_reading(where, record))
    return found


def _reading(where: str, run: Json) -> Reading:
    server = _server(run)
    completed = number(run.get("completed"))
    sent = number(run.get("num_prompts")) or completed
    load, client = load_text(run.get("request_rate"), number(run.get("max_concurrency")), sent)
    spec = str(server.get("speculative_algorithm") or "")
    if not spec and (number(run.get("accept_length")) or 0) > 1:
        spec = f"accept_length {run.get('accept_length')}"
    version = server.get("version")
    said = said_of(
        model=server.get("model_path") or run.get("model"),
        framework=f"sglang {version}" if version else "",
        isl=_each(run, "total_input_tokens", completed),
        osl=_each(run, "total_output_tokens", completed),
        concurrency_or_batch=load,
        params_note=f"dataset={run.get('dataset_name')};{client}{_spread(run)}".strip(";"),
        weights_dtype=FORMATS.get(str(server.get("quantization") or "")),
        kv_dtype={"fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "bfloat16": "bf16"}.get(str(server.get("kv_cache_dtype"))),
        date=day_of(run.get("date") or run.get("timestamp")),
        **_layout(server),
    )
    failed = max(sent - completed, 0) if sent and completed is not None else None
    return Reading(
        where=where,
        said=said,
        figures=_figures(run),
        stamp=str(run.get("date") or run.get("timestamp") or ""),
        skipped=SPECULATION.format(spec) if spec else "completed no request" if not completed else "",
        doubt=failed_doubt(failed, completed),
    )


def _spread(run: Json) -> str:
    """The range of random lengths around their mean: uniform between --random-range-ratio and 1 of the nominal."""
    ratio = number(run.get("random_range_ratio"))
    if run.get("dataset_name") != "random" or ratio is None or not 0 <= ratio < 1:
        return ""
    return f";lengths={2 * ratio / (1 + ratio):.4g}:{2 / (1 + ratio):.4g}"


def _server(run: Json) -> Json:
    """The server's settings; some versions put them under internal_states."""
    info = below(run, "server_info")
    inner = info.get("internal_states")
    first = inner[0] if isinstance(inner, list) and inner and isinstance(inner[0], dict) else {}
    return {**first, **info}


def _layout(server: Json) -> dict[str, Any]:
    """tp_size counts all ranks of a server with attention data parallelism, and those of one replica without."""
    tp, dp, pp = (number(server.get(f"{name}_size")) for name in ("tp", "dp", "pp"))
    if tp is None:
        return {}
    dp, pp, ep = dp or 1, pp or 1, number(server.get("ep_size"))
    if truth(server.get("enable_dp_attention")):
        tp = max(1, tp // dp)
    return {"n_accelerators": tp * dp * pp, "tp": tp, "pp": pp, "attention_dp": dp, "ep": ep if ep and ep > 1 else None}


def _each(run: Json, name: str, completed: float | None) -> float | None:
    total = number(run.get(name))
    return total / completed if total is not None and completed else None


def _figures(run: Json) -> dict[str, float]:
    latencies = {
        f"{metric}_ms_{ours}": number(run.get(f"{theirs}_{metric}_ms"))
        for metric in ("ttft", "tpot")
        for ours, theirs in (("mean", "mean"), ("p50", "median"), ("p99", "p99"))
    }
    return figures_of(
        **latencies,
        itl_ms_mean=number(run.get("mean_itl_ms")),
        output_tokens_per_s=number(run.get("output_throughput")),
        total_tokens_per_s=number(run.get("total_throughput")),
    )
