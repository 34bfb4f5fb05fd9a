"""What Megatron-Bridge makes of a plan."""

from dataclasses import replace

from advisor.engine.training.run import Code, Parallel, Recipe, Run

FORMATS = ("bf16", "fp8", "mxfp8", "nvfp4")
OPTIMIZERS = ("adamw", "sgd", "muon")
ATTENTION = ("cudnn", "flash2", "math")


def megatron_run(run: Run, _vendor: str) -> Run:
    """The run that the script starts for a plan."""
    p = run.parallel
    # Megatron FSDP is not used with pipelines here; Muon splits its states by layers, like ZeRO 1
    zero = min(p.zero, 1) if p.pp > 1 or run.recipe.optimizer == "muon" else p.zero
    ranks = p.dp * p.cp
    shard = p.shard if zero and p.shard and ranks % p.shard == 0 else 0
    parallel = replace(p, zero=zero, shard=shard, sequence_parallel=p.sequence_parallel and p.tp > 1)
    return replace(
        run,
        parallel=parallel,
        recipe=_recipe(run.recipe, parallel),
        code=_code(run.code, parallel),
        offload="none" if run.offload == "none" else "optimizer",
        # Transformer Engine's offload of activations has neither pipelines nor recomputation
        offloaded_layers=run.offloaded_layers if p.pp == 1 and run.recompute == "none" else 0,
    )


def _recipe(r: Recipe, p: Parallel) -> Recipe:
    """BF16 weights and an FP32 master copy; gradients in the format of their reduction."""
    optimizer = r.optimizer if r.optimizer in OPTIMIZERS else "adamw"
    reduced = 4.0 if r.reduce_bytes >= 4 else 2.0
    states = r.state_bytes
    if optimizer == "adamw":
        states = 4.0 if _narrow_states(r, p) else 8.0
    return replace(
        r,
        method="lora" if r.method == "qlora" else r.method,
        optimizer=optimizer,
        matmul_dtype=r.matmul_dtype if r.matmul_dtype in FORMATS else "bf16",
        parameter_bytes=2.0,
        compute_bytes=2.0,
        gradient_bytes=reduced,
        reduce_bytes=reduced,
        state_bytes=states,
        master_bytes=4.0,
        update_bytes=0.0,
        frozen_bytes=2.0,
        autocast=False,
    )


def _narrow_states(r: Recipe, p: Parallel) -> bool:
    """Moments in BF16, which only the distributed optimizer keeps."""
    return r.optimizer == "adamw" and r.state_bytes <= 4 and p.zero >= 1


def _code(c: Code, p: Parallel) -> Code:
    return Code(
        norm="fused",
        rotary=c.rotary,
        gate=c.gate,
        loss="vocabulary_parallel",
        attention=c.attention if c.attention in ATTENTION else "flash2",
        selective="attention",
        gradient_buffer=True,
        tp_overlap=p.tp > 1 and p.sequence_parallel,  # the script switches it on (CommOverlapConfig)
        dispatch=c.dispatch,
        gradient_overlap=True,
        exchange_overlap=c.exchange_overlap and p.ep > 1,
        context=c.context,
        graphs=c.graphs,
    )
