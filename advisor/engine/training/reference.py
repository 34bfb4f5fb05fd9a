"""A reference model beside the trained one, as DPO and GRPO have it: its forward pass and its weights."""

import numpy as np

from advisor.engine.network import Model
from advisor.engine.training.operators import Shape, ledger, rank_parameters
from advisor.engine.training.rates import Rates
from advisor.engine.training.run import Run
from advisor.engine.training.step_time import StepTime

REFERENCE_BYTES = 2.0  # of a weight: the reference is kept in BF16


def forward_s(model: Model, run: Run, rates: Rates, step: StepTime) -> float:
    """Seconds of one more forward pass over the sequences of a step, without anything that is kept.

    It has the forward kernels of the step's ledger, its share of the communication that nothing hides (one pass of two,
    or of three with full recomputation), and the pipeline's bubble in proportion.
    """
    lines = ledger(model, Shape.of(run), rates, run)
    kernels = run.micro_batches * sum(float(line.seconds) for line in lines if line.phase == "forward")
    passes = 3.0 if run.recompute == "full" else 2.0
    visible = float(step.tensor_s + step.expert_s + step.context_s) / passes
    bubble = float(step.bubble_s) / max(float(step.compute_s), 1e-12)
    return (kernels + visible) * (1.0 + bubble)


def reference_bytes(model: Model, run: Run) -> float:
    """Bytes of the reference's weights on one rank; none with adapters, whose frozen base is the reference.

    FSDP shards it like the trained weights.
    """
    if run.recipe.method != "full":
        return 0.0
    x = Shape.of(run)
    every = float(np.sum([np.asarray(n, float) for n in rank_parameters(model, x)]))
    return REFERENCE_BYTES * every / (run.parallel.shards if run.parallel.zero >= 3 else 1)
