"""A few measured rows in the file's format, each like a real one of its source."""

import csv
import io
from pathlib import Path
from types import SimpleNamespace

from advisor.fidelity.rows import COLUMNS, Row

CATALOG = SimpleNamespace(
    models={"meta-llama/Llama-3.1-8B", "deepseek-ai/DeepSeek-R1", "openai/gpt-oss-120b", "Qwen/Qwen3-30B-A3B"},
    accelerators={"h100-sxm", "h200-sxm", "b200", "mi355x", "trainium1", "rtx-4090"},
)
BASE = {
    "id": "run:tpot",
    "task": "latency",
    "metric": "tpot_ms_mean",
    "value": "10",
    "model": "meta-llama/Llama-3.1-8B",
    "model_id": "meta-llama/Llama-3.1-8B",
    "accelerator": "H100-SXM-80GB",
    "accelerator_slug": "h100-sxm",
    "n_accelerators": "1",
    "mode": "agg",
    "tp": "1",
    "pp": "1",
    "weights_dtype": "fp8",
    "framework": "vllm 0.19.0",
    "isl": "1024",
    "osl": "1024",
    "concurrency_or_batch": "16",
    "params_note": "gemm=fp8;moe=fp8;batch_per_rank=16",
    "date": "2026-04-27",
    "source_key": "serving_nightly",
    "confidence": "A",
}


def record(**changes: str) -> dict[str, str]:
    return dict.fromkeys(COLUMNS, "") | BASE | changes


def row(**changes: str) -> Row:
    cells = record(**changes)
    return Row(value=float(cells.pop("value")), **cells)


def table(*records: dict[str, str]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS)
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()


def write(path: Path, *records: dict[str, str]) -> Path:
    path.write_text(table(*records), encoding="utf-8")
    return path
