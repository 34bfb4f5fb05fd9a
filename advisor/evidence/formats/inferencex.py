"""InferenceX (InferenceMAX): result artifacts, answers of its API, and the CSV that its dashboard saves.

Latencies are in seconds, throughput is per accelerator. Sources: utils/process_result.py of SemiAnalysisAI/InferenceX;
packages/db/src/etl/normalizers.ts and packages/app/src/lib/csv-export-helpers.ts of SemiAnalysisAI/InferenceX-app.
"""

import re
from collections.abc import Mapping
from typing import Any

from advisor.evidence.formats.reading import (
    SPECULATION,
    EvidenceError,
    Json,
    Reading,
    below,
    day_of,
    figures_of,
    first,
    number,
    objects_of,
    runs,
    said_of,
    table_of,
    truth,
)  # fmt: skip

NAME = "inferencex"
MODELS = {  # keys of its database, as its own tables name them
    "dsr1": "deepseek-ai/DeepSeek-R1",
    "dsv4": "deepseek-ai/DeepSeek-V4-Pro",
    "dsv4pro": "deepseek-ai/DeepSeek-V4-Pro",
    "gptoss": "openai/gpt-oss-120b",
    "gptoss120b": "openai/gpt-oss-120b",
    "llama70b": "meta-llama/Llama-3.3-70B-Instruct",
    "qwen3.5": "Qwen/Qwen3.5-397B-A17B",
    "kimik2.5": "moonshotai/Kimi-K2.5",
    "kimik2.6": "moonshotai/Kimi-K2.6",
    "kimik2.7": "moonshotai/Kimi-K2.7-Code",
    "kimik2.7-code": "moonshotai/Kimi-K2.7-Code",
    "kimik3": "moonshotai/Kimi-K3",
    "minimaxm2.5": "MiniMaxAI/MiniMax-M2.5",
    "minimaxm2.7": "MiniMaxAI/MiniMax-M2.7",
    "minimaxm3": "MiniMaxAI/MiniMax-M3",
    "glm5": "zai-org/GLM-5",
    "glm5.1": "zai-org/GLM-5.1",
    "glm5.2": "zai-org/GLM-5.2",
}
PRECISION = re.compile(r"-(?:fp4|fp8|mxfp4|nvfp4)(?:-.*)?$", re.IGNORECASE)
ENGINES = {  # its names of a server, and of one behind Dynamo
    "trt": "trtllm", "dynamo-trt": "trtllm", "dynamo-trtllm": "trtllm", "dynamo-sglang": "sglang",
    "dynamo-vllm": "vllm", "sglang-disagg": "mori-sglang",
}  # fmt: skip
COLUMNS = {  # headings of the CSV whose names differ from the keys, without their unit
    "hardware key": "hw", "hardware": "hardware_name", "concurrency": "conc", "dp attention": "dp_attention",
    "disaggregated": "disagg", "num prefill chips": "num_prefill_gpu", "num decode chips": "num_decode_gpu",
    "num prefill gpus": "num_prefill_gpu", "num decode gpus": "num_decode_gpu", "physical chips": "num_gpus",
    "physical gpus": "num_gpus", "spec decoding": "spec_decoding", "run url": "run_url",
    "throughput/chip": "tput_per_gpu", "throughput/gpu": "tput_per_gpu",
    "output throughput/chip": "output_tput_per_gpu", "output throughput/gpu": "output_tput_per_gpu",
}  # fmt: skip
NO_SPECULATION = ("", "none", "off", "false", "no", "0")


def is_one(record: Json) -> bool:
    """Whether a record is of this format."""
    keys = {plain_key(key) for key in record}
    return (
        bool(keys & {"tput_per_gpu", "infmax_model_prefix", "decode_tp"})
        or {"hardware_name", "metrics", "conc"} <= keys
    )


def read(text: str) -> list[Reading]:
    """The runs of a file. EvidenceError: it is neither JSON nor CSV of this benchmark."""
    records: list[Any] = list(objects_of(text) if text.lstrip()[:1] in "[{" else table_of(text))
    if len(records) == 1 and not is_one(records[0]):
        records = next((found for found in records[0].values() if isinstance(found, list) and found), records)
    if not any(isinstance(record, Mapping) and is_one(record) for record in records):
        raise EvidenceError("has no InferenceX run: no row has tput_per_gpu, decode_tp, or hardware, conc and metrics")
    return [_reading(where, flat(record)) for where, record in runs(records)]


def plain_key(key: str) -> str:
    """A key of the JSON, or a heading of the CSV as the key that it stands for."""
    bare = re.sub(r"\s*\(.*\)", "", str(key)).strip().lower()
    return COLUMNS.get(bare, bare.replace(" ", "_"))


def flat(record: Json) -> dict[str, Any]:
    """The keys of a run and of its metrics, in one object."""
    return {plain_key(key): value for key, value in {**record, **below(record, "metrics")}.items()}


def _reading(where: str, run: Json) -> Reading:
    apart, n = truth(run.get("disagg")), _chips(run)
    spec = str(first(run, "spec_method", "spec_decoding", "mtp") or "").strip().lower()
    skipped = SPECULATION.format(spec) if spec not in NO_SPECULATION else ""
    if "agentic" in str(run.get("scenario_type", "")):
        skipped = "is an agentic scenario, whose lengths are not stated"
    image = str(run.get("image") or "")
    engine = str(run.get("framework") or "").lower()
    version = image.rpartition(":")[2] if ":" in image and "@sha256" not in image else ""
    # `benchmark`: the servers' settings are those of its scripts (protocols.yaml)
    note = f"precision={run.get('precision')};spec={spec or 'none'};benchmark=inferencex"
    note += ";client=burst;requests_per_user=10;lengths=0.8:1.0"
    said = said_of(
        model=model_of(run),
        accelerator=chip_of(str(first(run, "hw", "hardware_name") or "")),
        n_accelerators=n,
        mode="disagg" if apart else "agg",
        weights_dtype=str(run.get("precision") or "").lower(),
        framework=f"{ENGINES.get(engine, engine)} {version}".strip(),
        isl=number(run.get("isl")),
        osl=number(run.get("osl")),
        concurrency_or_batch=number(first(run, "conc", "users")),
        params_note=f"{note};image={image}" if image else note,
        date=day_of(first(run, "date", "created_at")),
        notes=run.get("run_url"),
        **(_pools(run) if apart else _layout(run)),
    )
    return Reading(
        where=where, said=said, figures=_figures(run, n, apart), stamp=str(run.get("run_url") or ""), skipped=skipped
    )  # fmt: skip


def model_of(run: Json) -> str:
    """The model by its key, else as the run names it."""
    for name in ("infmax_model_prefix", "model_prefix", "model"):
        key = str(run.get(name) or "").strip().lower()
        if found := MODELS.get(key) or MODELS.get(PRECISION.sub("", key)):
            return found
    return str(run.get("model") or "")


def chip_of(hardware: str) -> str:
    """The accelerator of a runner such as h200-nv, cluster:b300-nv or mi355x-amds_1."""
    return re.sub(r"_\d+$", "", hardware.split(":")[-1].split("-")[0])


def _chips(run: Json) -> float | None:
    """Accelerators of the whole deployment. One pool states its size twice, as that of both roles."""
    pools = [number(run.get(f"num_{role}_gpu")) or 0 for role in ("prefill", "decode")]
    total = sum(pools) if truth(run.get("disagg")) else max(pools)
    return number(run.get("num_gpus")) or total or number(run.get("tp"))


def _layout(run: Json) -> dict[str, Any]:
    """One pool. With attention data parallelism, `tp` counts its ranks."""
    tp = number(first(run, "tp", "decode_tp"))
    ep, dp = number(first(run, "ep", "decode_ep")), number(run.get("dp"))
    if truth(first(run, "dp_attention", "decode_dp_attention")):
        return {"tp": 1, "pp": number(run.get("pp")) or 1, "ep": ep, "attention_dp": tp}
    return {"tp": tp, "pp": number(run.get("pp")) or 1, "ep": ep, "attention_dp": dp or 1}


def _pools(run: Json) -> dict[str, Any]:
    return {f"{role}_pool": _pool(run, role) for role in ("prefill", "decode")}


def _pool(run: Json, role: str) -> str:
    cells = {
        "workers": number(run.get(f"{role}_num_workers")) or 1,
        "tp": number(run.get(f"{role}_tp")) or 1,
        "ep": number(run.get(f"{role}_ep")) or 1,
        "attention_dp": 1,
    }
    if truth(run.get(f"{role}_dp_attention")):
        cells |= {"tp": 1, "attention_dp": cells["tp"]}
    return ";".join(f"{name}={value:.0f}" for name, value in cells.items())


def _figures(run: Json, n: float | None, apart: bool) -> dict[str, float]:
    def ms(name: str) -> float | None:
        seconds, written = number(run.get(name)), number(run.get(f"{name}_ms"))
        return written if seconds is None else seconds * 1e3

    def whole(name: str) -> float | None:  # of two pools, each is per accelerator of its own pool
        value = number(run.get(name))
        return None if value is None or n is None or apart else value * n

    return figures_of(
        ttft_ms_mean=ms("mean_ttft"),
        ttft_ms_p50=ms("median_ttft"),
        ttft_ms_p99=ms("p99_ttft"),
        tpot_ms_mean=ms("mean_tpot"),
        tpot_ms_p50=ms("median_tpot"),
        tpot_ms_p99=ms("p99_tpot"),
        itl_ms_mean=ms("mean_itl"),
        output_tokens_per_s=whole("output_tput_per_gpu") or number(run.get("output_tput_tps")),
        total_tokens_per_s=whole("tput_per_gpu"),
    )
