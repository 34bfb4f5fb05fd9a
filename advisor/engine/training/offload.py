"""Offload to the host: what moves over PCIe, the update on the host's processors, and the host memory that it takes.

DeepSpeed's ZeRO-Offload (arXiv 2101.06840): gradients go to the host, whose processors keep the master weights and the
optimizer's states and update them; 16-bit weights come back. With `all`, 16-bit weights stay there as well and come to
the chip for every forward and backward pass (ZeRO-3 Offload). Megatron-Core keeps the gradients on the chip. No
transfer is taken to be hidden.
"""

import numpy as np

from advisor.engine.kernels import Amount
from advisor.engine.network import Model
from advisor.engine.terms import Accelerator
from advisor.engine.training.operators import Shape, rank_parameters, rank_trained, trained_parameters
from advisor.engine.training.rates import HOST_CORES, Rates
from advisor.engine.training.run import Offload, Recipe, Run

# A step of Qwen2.5-1.5B (1.54e9 parameters) on two A100s with two EPYC 7742 took 1,365 ms with the optimizer offloaded
# and 240 ms without (DeepSpeed, blogs/zenflow-corebinding). Less the copies below over PCIe 4, 0.61 ns a parameter.
UPDATE_S_PER_PARAMETER = 0.61e-9  # with HOST_CORES
# Host memory per parameter, with DeepSpeed's factor for buffers (estimate_zero2_ and
# estimate_zero3_model_states_mem_needs: 16 and 18 bytes times 1.5)
HOST_BYTES_PER_PARAMETER = {"none": 0.0, "optimizer": 16.0 * 1.5, "all": 18.0 * 1.5}


def offloads(a: Accelerator) -> bool:
    """Whether DeepSpeed runs on the chip and the rate of its link to the host is known."""
    return a.kind == "gpu" and a.pcie_bytes_per_s > 0 and bool({"cuda", "rocm"} & set(a.stacks))


def host_bytes(model: Model, recipe: Recipe, offload: Offload, chips: int, host_chips: int) -> float:
    """Memory of one host with so many chips of the job."""
    each = HOST_BYTES_PER_PARAMETER[offload]
    return trained_parameters(model, recipe) * each * min(host_chips, chips) / chips


def copies_to_host_s(model: Model, x: Shape, r: Rates, run: Run) -> Amount:
    """Seconds of one step in which weights and gradients move between a chip and its host."""
    recipe, shards = run.recipe, np.where(x.zero >= 1, x.shards, 1.0)
    own = sum(rank_trained(model, x, recipe)) / shards
    # those of later micro-batches are added on the chip: the sum comes from the host and goes back
    # (async_accumulate_grad_in_cpu_via_gpu)
    times = np.where((x.zero >= 2) & (not run.code.gradient_buffer), 2.0 * x.micro_batches - 1.0, 1.0)
    back = times * own * recipe.gradient_bytes
    weights = own * recipe.compute_bytes  # updated, to the chip
    if run.offload == "all":
        weights = 2.0 * x.micro_batches * sum(rank_parameters(model, x)) / shards * recipe.compute_bytes
    return (back + weights) / r.host_bytes_per_s


def host_update_s(model: Model, x: Shape, r: Rates, run: Run) -> Amount:
    """Seconds in which the processors of a host update what all its chips own."""
    own = sum(rank_trained(model, x, run.recipe)) / np.where(x.zero >= 1, x.shards, 1.0)
    here = np.minimum(r.host_chips, x.dp * x.tp * x.pp * x.cp)
    return own * here * UPDATE_S_PER_PARAMETER * HOST_CORES / min(max(r.host_cores, 1), HOST_CORES)
