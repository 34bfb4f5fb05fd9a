"""Time of a training step: compute, communication that it cannot hide, the pipeline's bubble, the optimizer."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.engine.kernels import Amount, Array
from advisor.engine.network import Model, decoder_blocks
from advisor.engine.training.communication import Communication, communication
from advisor.engine.training.offload import copies_to_host_s, host_update_s
from advisor.engine.training.operators import (
    Shape,
    expert_ranks,
    ledger,
    rank_parameters,
    rank_trained,
)
from advisor.engine.training.rates import Rates
from advisor.engine.training.run import Run

# time of fused AdamW over its seven reads and writes, by bytes of a state: PyTorch 2.11 on one H200
# (tests/measuring/bench_training.py, fixtures/measurements/h200-training-kernels.csv)
ADAM_FACTOR = {4.0: 1.17, 2.0: 1.52}
SYNC_S = 0.010  # a step of sharded PyTorch code that waits for the host: idle time of a profiled step (h200_x4.md)
DTENSOR_HOST_S_PER_LAYER = 0.011  # host time of a layer of DTensor tensor parallelism, forward and backward
EAGER_KERNELS_PER_LAYER, FUSED_KERNELS_PER_LAYER = 130.0, 40.0  # launches of a layer, forward and backward
HOST_S_PER_KERNEL = 6.0e-6  # 5 us to issue a kernel (fixtures/measurements/h200-kernels.csv) and autograd's own work


@dataclass(frozen=True, kw_only=True, slots=True)
class StepTime:
    """One step, in seconds; arrays over layouts."""

    step_s: Array
    compute_s: Array  # of all micro-batches on one rank
    exposed_s: Array  # communication that nothing hides
    communication_s: Array  # all of it
    bubble_s: Array  # of the pipeline
    update_s: Array  # optimizer, casts and copies
    offload_s: Array  # part of update_s: transfers to the host and back, and the update there
    host_s: Array  # the least that the host needs to launch the step
    tensor_s: Array  # parts of exposed_s: of tensor parallelism,
    expert_s: Array  # of the exchange of tokens between experts,
    context_s: Array  # of keys and values


def update_s(model: Model, x: Shape, r: Rates, run: Run) -> Amount:
    """Seconds of the optimizer's step, and of the casts and copies that sharding and autocast add, on one rank."""
    recipe = run.recipe
    dense, routed = rank_trained(model, x, recipe)
    trained = dense + routed
    shards, expert_shards = (
        np.where(x.zero >= 1, np.maximum(n, 1.0), 1.0) for n in (x.shards, x.shards * x.tp / expert_ranks(x))
    )
    width = 4.0 if recipe.master_bytes or recipe.parameter_bytes == 4.0 else 2.0
    moved = 7.0 * width * ADAM_FACTOR.get(width, 1.0) + (recipe.parameter_bytes if recipe.master_bytes else 0.0)
    moved = moved + (2 * recipe.update_bytes + recipe.gradient_bytes if recipe.update_bytes else 0.0)
    seconds = (dense / shards + routed / expert_shards) * moved / r.memory_bytes_per_s * (run.offload == "none")
    if recipe.wide:  # weights cast for each forward pass, gradients cast back
        seconds = seconds + x.micro_batches * trained * 12.0 / r.memory_bytes_per_s
    touched = 3.0 if run.code.gate == "eager" else 2.0  # a kernel of its own, or the sum inside the product's write
    accumulated = (x.micro_batches - 1.0) * touched * recipe.gradient_bytes * trained / r.memory_bytes_per_s
    return seconds + np.where(x.micro_batches > 1, accumulated, 0.0)


def copies_s(model: Model, x: Shape, r: Rates, run: Run) -> Amount:
    """Seconds of FSDP's copies in a micro-batch: gathered weights out of the buffer, gradients into it, shards cast."""
    recipe = run.recipe
    every, trained = sum(rank_parameters(model, x)), sum(rank_trained(model, x, recipe))
    gathers = np.where(x.zero >= 3, 2.0, np.where(x.zero >= 2, 1.0, 0.0))
    out = gathers * every * 2 * recipe.compute_bytes
    back = np.where(x.zero >= 2, trained * (recipe.gradient_bytes / 2 + recipe.reduce_bytes), 0.0)
    cast = np.where(x.zero >= 2, gathers * every / x.shards * (recipe.parameter_bytes + recipe.compute_bytes), 0.0)
    return (out + back + cast) / r.memory_bytes_per_s


HEAD = ("lm_head", "loss", "embedding")


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """Seconds of one micro-batch on one rank without communication; arrays over layouts."""

    body_s: Amount  # of the layers
    head_s: Amount  # of embedding, output head and loss
    scores_s: Amount  # part of body_s: attention itself

    def take(self, places: NDArray[np.intp]) -> "Work":
        """The work of many layouts, from that of those which differ in it."""
        return Work(body_s=self.body_s[places], head_s=self.head_s[places], scores_s=self.scores_s[places])


def work_of(model: Model, x: Shape, r: Rates, run: Run) -> Work:
    """It follows from tokens, tp, pp, ep, sequence parallelism and recomputation alone."""
    lines = ledger(model, x, r, run)
    return Work(
        body_s=sum((line.seconds for line in lines if line.name not in HEAD), 0.0),
        head_s=sum((line.seconds for line in lines if line.name in HEAD), 0.0),
        scores_s=sum((line.seconds for line in lines if line.name == "attention/scores"), 0.0),
    )


def shown(work: Work, c: Communication, x: Shape, run: Run) -> tuple[Amount, Amount, Amount]:
    """Seconds that nothing hides of a step's collectives inside layers: (tensor parallelism, experts, context).

    Tensor parallelism in parts: the first part has nothing to hide behind. Keys and values that go round a ring hide
    behind the attention to those that arrived before. The exchange of tokens hides only behind another micro-batch.
    """
    attention, total = x.micro_batches * work.scores_s, x.micro_batches * work.body_s
    tensor, context, expert = c.tensor_s, c.context_s, c.expert_s
    if run.code.tp_overlap:
        tensor = tensor - np.minimum(tensor * (x.tp - 1.0) / x.tp, total)
    if run.code.context == "ring":
        context = np.maximum(context - attention * (x.cp - 1.0) / x.cp, 0.0)
    if run.code.exchange_overlap:
        expert = np.maximum(expert - total, 0.0)
    return tensor, expert, context


def overlap(r: Rates, computed: Amount, hidden: Amount, window: Amount, beside: Amount = 0.0) -> tuple[Amount, Amount]:
    """Seconds by which collectives of `hidden` seconds slow compute, and seconds of them that outlast the window.

    `beside`: seconds of other collectives that overlap the compute.
    """
    slowed = r.overlap_slowdown_fraction * np.minimum(np.minimum(hidden, window) + beside, computed)
    return slowed, np.maximum(hidden - window, 0.0)


def step_time(model: Model, x: Shape, r: Rates, run: Run, work: Work | None = None) -> StepTime:
    """The time of a step: compute, what communication it cannot hide, the pipeline's bubble, the optimizer.

    Pipelines: every stage has layers / pp of the layers, the last one also the output head. The slowest stage sets the
    pace of the micro-batches, and filling the pipeline takes the time of the others once (1F1B), divided by the
    interleaved stages of a rank. `work`: that of these layouts, if known.
    """
    work = work or work_of(model, x, r, run)
    body, head = work.body_s, work.head_s
    c = communication(model, x, r, run)
    tensor, expert, context = shown(work, c, x, run)
    visible = tensor + expert + context
    beside = c.tensor_s + c.expert_s + c.context_s - visible
    serial = visible / x.micro_batches
    copies = copies_s(model, x, r, run)
    stage = body + copies + serial
    computed = x.micro_batches * (body + copies + np.where(x.pp > 1, 0.0, head))
    bubble = np.where(
        x.pp > 1,
        x.micro_batches * head + (x.pp - 1.0) * (stage + c.pipeline_s / x.micro_batches) / x.virtual_stages,
        0.0,
    )
    hidden = np.maximum(c.gather_s - c.first_s, 0.0) + np.maximum(c.reduce_s - c.last_s, 0.0)
    # ZeRO 1 and DDP gather and reduce in one micro-batch; interleaved stages spread that over pp of them
    spread = np.where(x.virtual_stages > 1, np.minimum(x.pp, x.micro_batches), 1.0) * run.code.gradient_overlap
    window = np.where(x.zero >= 2, computed, computed * spread / x.micro_batches)
    slowed, over = overlap(r, computed, hidden, window, beside)
    exposed = c.first_s + c.last_s + over + visible
    offload = 0.0
    if run.offload != "none":
        offload = copies_to_host_s(model, x, r, run) + host_update_s(model, x, r, run)
    update = update_s(model, x, r, run) + offload
    layers = sum(b.count for b in decoder_blocks(model)) / x.pp
    eager = run.code.gate == "eager" and not run.code.compiled
    launch: Any = (EAGER_KERNELS_PER_LAYER if eager else FUSED_KERNELS_PER_LAYER) * HOST_S_PER_KERNEL
    launch = launch * (run.code.graphs == "none")
    launch = np.where((x.tp > 1) & (run.code.dtensor and eager), DTENSOR_HOST_S_PER_LAYER, launch)
    host = x.micro_batches * layers * launch
    synced = np.where(eager & (x.dp * x.cp > 1), SYNC_S, 0.0)
    device = computed + slowed + exposed + bubble + update + synced
    return StepTime(
        step_s=np.maximum(device, host),
        compute_s=computed + slowed,
        exposed_s=exposed,
        communication_s=c.tensor_s + c.expert_s + c.context_s + c.gather_s + c.reduce_s + c.pipeline_s,
        bubble_s=bubble,
        update_s=update + 0.0 * computed,
        offload_s=offload + 0.0 * computed,
        host_s=host + 0.0 * computed,
        tensor_s=tensor,
        expert_s=expert,
        context_s=context,
    )
