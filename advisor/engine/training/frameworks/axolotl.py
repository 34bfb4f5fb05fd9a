"""What Axolotl makes of a plan, with FSDP2 or with DeepSpeed."""

from dataclasses import replace

from advisor.engine.training.frameworks.fsdp import stored_in, transformers_code
from advisor.engine.training.frameworks.relaid import relaid
from advisor.engine.training.run import Code, Recipe, Run


def axolotl_run(run: Run, vendor: str) -> Run:
    """The run that Axolotl starts with FSDP2 or DDP."""
    run = relaid(run, tp=1, pp=1, ep=1)
    p = run.parallel
    zero = 2 if p.zero == 1 else p.zero
    r = run.recipe
    optimizer = "adamw" if r.optimizer == "adafactor" and zero else r.optimizer
    kept = "full" if run.recompute == "selective" else run.recompute  # its selective list has other operators
    return replace(
        run,
        parallel=replace(p, zero=zero, shard=p.shard if zero else 0),
        recipe=_recipe(replace(r, optimizer=optimizer), zero),
        code=_code(run, vendor),
        recompute=kept,
        offload="all" if zero and run.offload != "none" else "none",
        offloaded_layers=0,
    )


def _recipe(r: Recipe, zero: int) -> Recipe:
    """Accelerate stores sharded weights in FP32; without sharding the model is loaded in BF16."""
    dtype = r.matmul_dtype if r.matmul_dtype in ("bf16", "fp32") or _scales(r) else "bf16"
    wide = dtype == "fp32"
    stored = 4.0 if zero or wide or r.method != "full" else 2.0
    return stored_in(
        replace(r, matmul_dtype=dtype),
        stored,
        compute_bytes=4.0 if wide else 2.0,
        reduce_bytes=stored if not zero or wide else 2.0,
        autocast=not zero and stored > 2 and not wide,
    )


def _scales(r: Recipe) -> bool:
    return r.matmul_dtype == "fp8" and r.method == "full"


def _code(run: Run, vendor: str) -> Code:
    c = transformers_code(run.code, vendor)
    return replace(
        c,
        loss="chunked" if run.code.loss == "chunked" else c.loss,
        attention="flash2",  # the one that keeps packed sequences apart
        compiled="full" if run.code.compiled or _scales(run.recipe) else "",
    )


def deepspeed_run(run: Run, vendor: str) -> Run:
    """The run that Axolotl starts with DeepSpeed."""
    run = relaid(run, tp=1, pp=1, cp=1, ep=1)
    r, p = run.recipe, run.parallel
    zero = 3 if run.offload == "all" else max(p.zero, 1) if run.offload == "optimizer" else p.zero
    if r.method == "qlora":
        zero = min(zero, 2)  # ZeRO 3 cannot split 4-bit weights
    optimizer = r.optimizer if r.optimizer in ("adamw", "adamw_8bit", "sgd") else "adamw"  # ZeRO flattens the matrices
    reduced = 4.0 if r.reduce_bytes >= 4 else 2.0
    return replace(
        run,
        parallel=replace(p, zero=zero, shard=0),
        recipe=stored_in(  # FP32 masters and states beside 16-bit weights
            replace(r, optimizer=optimizer, matmul_dtype="bf16"),
            4.0,
            parameter_bytes=2.0,
            compute_bytes=2.0,
            gradient_bytes=4.0 if r.gradient_bytes >= 4 else 2.0,
            master_bytes=4.0,
            reduce_bytes=reduced,
            autocast=False,
        ),
        code=replace(_code(run, vendor), compiled="full" if run.code.compiled else "", gradient_buffer=zero in (1, 2)),
        recompute="full" if run.recompute == "selective" else run.recompute,
        offload="optimizer" if run.offload == "all" and zero < 3 else run.offload,
        offloaded_layers=0,
    )
