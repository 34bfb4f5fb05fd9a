"""A plan as a PyTorch script of our own (train_fsdp.txt): FSDP2 or DDP with transformers, peft, Liger and torchao."""

import json
import shlex
from pathlib import Path
from typing import Any

from advisor.engine.launch.training_runs.place import DROPOUT_FRACTION, WARMUP_STEPS, TrainingPlace, Written
from advisor.engine.training import WITH_TRITON, Recipe, Run

FOLDER = Path(__file__).parent
SCRIPT = (FOLDER / "train_fsdp.txt").read_text(encoding="utf-8")
PREPARE = (FOLDER / "prepare_tokens.txt").read_text(encoding="utf-8")
QUERY_VALUE = ("q_proj", "v_proj")  # as transformers names them in Llama and its relatives
WEIGHT_DECAY, CLIP_NORM, SEED = 0.1, 1.0, 1234


def fsdp_files(run: Run, place: TrainingPlace) -> Written:
    """The script, the values of this run and the script that prepares its tokens."""
    packages = [_package(run)]
    return Written(
        argv=("train_fsdp.py", "plan.json"),
        files={
            "train_fsdp.py": SCRIPT,
            "plan.json": json.dumps(plan_values(run, place), indent=2) + "\n",
            "prepare_tokens.py": PREPARE,
        },
        install=" ".join(packages),
        prepare=(f"python prepare_tokens.py {shlex.quote(place.model_id)} text.jsonl tokens.bin",),
        notes=_notes(run, place),
    )


def _package(run: Run) -> str:
    names = ["torch==2.13.0", "transformers==5.24.0", "numpy"]
    if run.recipe.method != "full":
        names.append("peft==0.21.2")
    if run.recipe.method == "qlora":
        names.append("bitsandbytes")
    if any(_liger(run).values()):
        names.append("liger-kernel==0.8.5")
    if run.recipe.matmul_dtype == "fp8" or run.recipe.optimizer == "adamw_8bit":
        names.append("torchao==0.18.0")
    return " ".join(names)


def _liger(run: Run) -> dict[str, bool]:
    c = run.code
    return {
        "rms_norm": c.norm == "fused",
        "rope": c.rotary == "fused",
        "swiglu": c.gate == "fused",
        "fused_linear_cross_entropy": c.loss == "fused_linear",
    }


def plan_values(run: Run, place: TrainingPlace) -> dict[str, Any]:
    """What train_fsdp.py reads."""
    r, p = run.recipe, run.parallel
    return {
        "model": place.model_id,
        "continued": place.continued,
        "tokens_file": "tokens.bin",
        "output": "checkpoints",
        "seed": SEED,
        "sequence_tokens": run.sequence_tokens,
        "micro_batch": run.micro_batch,
        "micro_batches": run.micro_batches,
        "steps": place.steps(run),
        "method": r.method,
        "adapter": _adapter(r),
        "parameter_dtype": _dtype(r.parameter_bytes),
        "frozen_dtype": "bfloat16",
        "compute_dtype": _dtype(r.compute_bytes),
        "reduce_dtype": _dtype(r.reduce_bytes),
        "autocast": r.autocast,
        "matmul": r.matmul_dtype,
        "optimizer": r.optimizer,
        "learning_rate": place.learning_rate(run),
        "warmup_steps": WARMUP_STEPS,
        "weight_decay": WEIGHT_DECAY,
        "clip_norm": CLIP_NORM,
        "zero": p.zero,
        "shard_ranks": p.shards,
        "gradient_buffer": run.code.gradient_buffer,
        "recompute": run.recompute,
        "offload": run.offload,
        "compile": run.code.compiled,
        "attention": run.code.attention,
        "liger": _liger(run),
        "checkpoint_steps": place.checkpoint_steps(),
        "log_steps": 10,
    }


def _adapter(r: Recipe) -> dict[str, Any] | None:
    if r.method == "full":
        return None
    matrices = list(QUERY_VALUE) if r.adapter_matrices == "query_value" else "all-linear"
    return {"rank": r.adapter_rank, "dropout": DROPOUT_FRACTION if r.adapter_dropout else 0.0, "matrices": matrices}


def _dtype(width_bytes: float) -> str:
    return "float32" if width_bytes >= 4 else "bfloat16"


def _notes(run: Run, place: TrainingPlace) -> tuple[str, ...]:
    notes = []
    if place.vendor not in WITH_TRITON:
        notes.append("this script was run with PyTorch on processors only; try it on one host of this vendor first")
    if run.parallel.zero and place.continued:
        notes.append("rank 0 loads the whole model into host memory once, then sends each rank its part")
    return tuple(notes)
