"""What NxD Training makes of a plan."""

from dataclasses import replace

from advisor.engine.training.frameworks.fsdp import stored_in
from advisor.engine.training.frameworks.maxtext import XLA
from advisor.engine.training.frameworks.relaid import relaid
from advisor.engine.training.run import Recipe, Run

COMPILED = replace(XLA, tp_overlap=False)


def neuron_run(run: Run, _vendor: str) -> Run:
    """The run that NxD Training starts for a plan."""
    run = relaid(run, ep=1)
    p = run.parallel
    adapters = run.recipe.method != "full"
    zero = 0 if adapters else min(p.zero, 1)  # its adapters do not work with ZeRO 1
    return replace(
        run,
        parallel=replace(p, zero=zero, shard=0),
        recipe=_recipe(run.recipe),
        code=COMPILED,
        offload="none",
        offloaded_layers=0,
    )


def _recipe(r: Recipe) -> Recipe:
    """mixed_precision keeps FP32 gradients and master weights; bf16SR is BF16 with stochastic rounding."""
    base = replace(
        r,
        method="lora" if r.method == "qlora" else r.method,
        optimizer="adamw",
        matmul_dtype="bf16",
        adapter_matrices="all",
        compute_bytes=2.0,
        update_bytes=0.0,
        frozen_bytes=4.0 if r.method != "full" else r.frozen_bytes,
    )
    if r.method != "full":  # autocast only
        return stored_in(base, 4.0, reduce_bytes=4.0, frozen_bytes=4.0, autocast=True)
    if r.parameter_bytes < 4 and not r.master_bytes:
        return stored_in(base, 2.0, reduce_bytes=2.0, autocast=False)
    return replace(
        base, parameter_bytes=2.0, gradient_bytes=4.0, state_bytes=8.0, master_bytes=4.0, reduce_bytes=4.0,
        autocast=False,
    )  # fmt: skip
