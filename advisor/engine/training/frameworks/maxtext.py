"""What MaxText makes of a plan."""

from dataclasses import replace

from advisor.engine.training.frameworks.fsdp import stored_in
from advisor.engine.training.frameworks.relaid import relaid
from advisor.engine.training.run import Code, Recipe, Run

OPTIMIZERS = ("adamw", "sgd", "muon")
# One compiled step, with experts by a kernel of their own
XLA = Code(loss="vocabulary_parallel", compiled="full", tp_overlap=True, graphs="partial")
COMPILED = replace(XLA, selective="operators")


def maxtext_run(run: Run, _vendor: str) -> Run:
    """The run that MaxText starts for a plan."""
    run = relaid(run, pp=1)
    p = run.parallel
    ep = p.ep if p.dp % p.ep == 0 else 1  # an axis of its own beside the data
    zero = 3 if p.zero == 2 else p.zero
    whole = p.dp * p.cp
    shard = p.shard if zero == 3 and p.shard and p.shard % (p.cp * ep) == 0 and whole % p.shard == 0 else 0
    return replace(
        run,
        parallel=replace(p, ep=ep, zero=zero, shard=shard),
        recipe=_recipe(run.recipe),
        code=replace(COMPILED, context=run.code.context),
        recompute="full" if run.recompute == "full" else "selective",  # the least that it recomputes
        offloaded_layers=0,
        offload=run.offload if run.recipe.method == "full" else "none",  # its trainer for adapters has none
    )


def _recipe(r: Recipe) -> Recipe:
    """The optimizer's states have the format of the weights."""
    stored = 2.0 if r.parameter_bytes < 4 and not r.master_bytes and r.matmul_dtype != "fp32" else 4.0
    gradient = 4.0 if r.gradient_bytes >= 4 else 2.0
    dtype = r.matmul_dtype if r.matmul_dtype in ("bf16", "fp32", "fp8") else "bf16"
    return stored_in(
        replace(r, optimizer=r.optimizer if r.optimizer in OPTIMIZERS else "adamw", matmul_dtype=dtype),
        stored,
        compute_bytes=4.0 if r.matmul_dtype == "fp32" else 2.0,
        gradient_bytes=gradient,
        reduce_bytes=gradient,
        frozen_bytes=stored if r.method == "lora" else r.frozen_bytes,
        adapter_dropout=False,
        autocast=False,
    )
