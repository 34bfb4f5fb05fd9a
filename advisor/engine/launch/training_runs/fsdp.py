"""A plan as a PyTorch script of our own (train_fsdp.txt): FSDP2 or DDP with transformers, peft, Liger and torchao."""

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

from advisor.engine.launch.training_runs.place import DROPOUT_FRACTION, WARMUP_STEPS, TrainingPlace, Written, relaid
from advisor.engine.training import Code, Offload, Recipe, Run

FOLDER = Path(__file__).parent
SCRIPT = (FOLDER / "train_fsdp.txt").read_text(encoding="utf-8")
PREPARE = (FOLDER / "prepare_tokens.txt").read_text(encoding="utf-8")
WITH_TRITON = ("nvidia", "amd")  # Liger's kernels are written in Triton
QUERY_VALUE = ("q_proj", "v_proj")  # as transformers names them in Llama and its relatives
WEIGHT_DECAY, CLIP_NORM, SEED = 0.1, 1.0, 1234


def fsdp_run(run: Run, vendor: str) -> Run:
    """The run that the script starts for a plan."""
    run = relaid(run, tp=1, pp=1, cp=1, ep=1)
    p = run.parallel
    zero = 2 if p.zero == 1 else p.zero  # FSDP2 shards gradients with the states
    offload: Offload = "all" if zero and run.offload != "none" else "none"  # CPUOffloadPolicy moves weights and states
    return replace(
        run,
        parallel=replace(p, zero=zero, shard=p.shard if zero else 0),
        recipe=_recipe(run.recipe, zero),
        code=_code(run, zero, vendor),
        offload=offload,
        offloaded_layers=0,
    )


def _recipe(r: Recipe, zero: int) -> Recipe:
    """Formats of FSDP2's mixed precision, or of autocast; a master copy is stored as FP32 weights."""
    method = "lora" if r.method == "qlora" and zero else r.method  # FSDP2 cannot split 4-bit weights of transformers
    optimizer = "adamw" if r.optimizer == "adafactor" and zero else r.optimizer  # it has no sharded norms (2.13)
    dtype = r.matmul_dtype if r.matmul_dtype in ("bf16", "fp32") else "bf16"
    if r.matmul_dtype == "fp8" and method == "full":
        dtype = "fp8"
    stored = 2.0 if r.parameter_bytes < 4 and not r.master_bytes and dtype != "fp32" else 4.0
    if method != "full":
        stored = 4.0
    computed = 4.0 if dtype == "fp32" else 2.0
    return replace(
        r,
        method=method,
        optimizer=optimizer,
        matmul_dtype=dtype,
        parameter_bytes=stored,
        compute_bytes=computed,
        gradient_bytes=stored,
        state_bytes=_state_bytes(r, optimizer, stored),
        master_bytes=0.0,
        reduce_bytes=(min(r.reduce_bytes, 4.0) if r.reduce_bytes >= 4 else 2.0) if zero else stored,
        update_bytes=0.0,
        frozen_bytes=2.0 if method == "lora" else r.frozen_bytes,
        autocast=not zero and stored > computed,
    )


def _state_bytes(r: Recipe, optimizer: str, stored: float) -> float:
    """PyTorch's optimizers keep their states in the format of the weights."""
    states = {"adamw": 2.0, "sgd": 1.0}.get(optimizer)
    return r.state_bytes if states is None else states * stored


def _code(run: Run, zero: int, vendor: str) -> Code:
    """transformers' code, with the kernels that the plan wants where the vendor's stack has them."""
    c = run.code
    triton = vendor in WITH_TRITON
    return Code(
        norm=c.norm if triton else "eager_fp32",
        rotary=c.rotary if triton else "eager",
        gate=c.gate if triton else "eager",
        loss="fused_linear" if triton and c.loss == "fused_linear" else "upcast",
        attention="flash2" if c.attention == "flash1" else c.attention,
        compiled=c.compiled,
        selective="operators",
        stops_early=True,
        gradient_buffer=c.gradient_buffer and not zero,
    )


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
