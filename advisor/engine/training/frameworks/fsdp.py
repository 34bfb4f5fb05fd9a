"""What our script for FSDP2 or DDP makes of a plan (launch/training_runs/train_fsdp.txt)."""

from dataclasses import replace
from typing import Any

from advisor.engine.training.frameworks.relaid import relaid
from advisor.engine.training.run import Code, Offload, Recipe, Run

WITH_TRITON = ("nvidia", "amd")  # Liger's kernels are written in Triton


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
    return stored_in(
        replace(r, method=method, optimizer=optimizer, matmul_dtype=dtype),
        stored,
        compute_bytes=computed,
        reduce_bytes=(min(r.reduce_bytes, 4.0) if r.reduce_bytes >= 4 else 2.0) if zero else stored,
        autocast=not zero and stored > computed,
    )


def stored_in(r: Recipe, width_bytes: float, **others: float) -> Recipe:
    """Weights, gradients and the optimizer's states in one format, without a master copy."""
    states = {"adamw": 2.0, "sgd": 1.0}.get(r.optimizer)
    fields: dict[str, Any] = {
        "parameter_bytes": width_bytes,
        "gradient_bytes": width_bytes,
        "state_bytes": r.state_bytes if states is None else states * width_bytes,
        "master_bytes": 0.0,
        "update_bytes": 0.0,
        "frozen_bytes": 2.0 if r.method == "lora" else r.frozen_bytes,
    }
    return replace(r, **fields | others)


def _code(run: Run, zero: int, vendor: str) -> Code:
    """transformers' code, with the kernels that the plan wants where the vendor's stack has them."""
    c = run.code
    return replace(
        transformers_code(c, vendor),
        attention="flash2" if c.attention == "flash1" else c.attention,
        compiled=c.compiled,
        gradient_buffer=c.gradient_buffer and not zero,
    )


def transformers_code(c: Code, vendor: str) -> Code:
    """Liger's kernels where the plan wants them and the vendor's stack has Triton."""
    triton = vendor in WITH_TRITON
    return Code(
        norm=c.norm if triton else "eager_fp32",
        rotary=c.rotary if triton else "eager",
        gate=c.gate if triton else "eager",
        loss="fused_linear" if triton and c.loss == "fused_linear" else "upcast",
        selective="operators",
        stops_early=True,
    )
