"""Training runs measured on one and on four H200s for this project, as models and runs.

measured_h200.csv: peak of PyTorch 2.11's allocator, of the rank that needs most (transformers 5.17, 2026-11-21 and
2026-11-22); fits 0: out of memory. Cited as h200_train and h200x4_train among the project's measurements.
"""

import csv
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from advisor.engine.network import Attention, Block, Ffn, Model
from advisor.engine.training.run import AMP, BF16, BF16_MASTER, FSDP_MIXED, HF, LORA16, PLAIN, Parallel, Recipe, Run

H200_BYTES = 150.1e9  # of 143771 MiB, as PyTorch sees it


def llama(slug: str, layers: int, hidden: int, inner: int, heads: int, vocab: int, tied: bool, kv_heads: int) -> Model:
    attention = Attention(heads=heads, kv_heads=kv_heads, head_dim=hidden // heads)
    block = Block(count=layers, mixer=attention, ffn=Ffn(inner=inner))
    return Model(slug=slug, hidden=hidden, vocab=vocab, blocks=(block,), tied_embeddings=tied)


MODELS = {
    "llama-3.2-1b": llama("llama-3.2-1b", 16, 2048, 8192, 32, 128256, True, 8),
    "llama-3.1-8b": llama("llama-3.1-8b", 32, 4096, 14336, 32, 128256, False, 8),
}
RECIPES: dict[str, Recipe] = {
    "amp": AMP,
    "bf16": BF16,
    "fp32m": FSDP_MIXED,
    "fp32m_bf16_reduce": replace(FSDP_MIXED, reduce_bytes=2.0),
    "bf16_master": BF16_MASTER,
    "lora16": LORA16,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """One run; no peak where it ran out of memory, none reserved where that was not written down."""

    id: str
    model: Model
    run: Run
    fits: bool
    peak_bytes: float | None
    reserved_bytes: float | None


def measured() -> list[Measured]:
    with Path(__file__).with_name("measured_h200.csv").open(encoding="utf-8", newline="") as file:
        return [_measured(row) for row in csv.DictReader(file)]


def _measured(row: dict[str, Any]) -> Measured:
    parallel = Parallel(
        dp=int(row["dp"]), tp=int(row["tp"]), pp=int(row["pp"]), zero=int(row["zero"]),
        sequence_parallel=row["sequence_parallel"] == "1",
    )  # fmt: skip
    code = replace(HF if row["code"] == "hf" else PLAIN, compiled=row["compiled"])
    if parallel.tp > 1:
        code = replace(code, loss="vocabulary_parallel", dtensor=True)
    run = Run(
        sequence_tokens=int(row["sequence_tokens"]), micro_batch=int(row["micro_batch"]),
        micro_batches=int(row["micro_batches"]), recipe=RECIPES[row["recipe"]], parallel=parallel, code=code,
        recompute=row["recompute"],
    )  # fmt: skip
    return Measured(
        id=row["id"], model=MODELS[row["model"]], run=run, fits=row["fits"] == "1",
        peak_bytes=float(row["peak_memory_bytes"]) if row["peak_memory_bytes"] else None,
        reserved_bytes=float(row["peak_reserved_bytes"]) if row["peak_reserved_bytes"] else None,
    )  # fmt: skip
