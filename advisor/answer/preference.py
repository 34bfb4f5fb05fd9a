"""DPO and GRPO as a composition: the training step, a reference forward pass, and generation by the serving engine."""

import math
from collections.abc import Sequence

from advisor.answer import single_estimate
from advisor.engine.network import parameters
from advisor.engine.training import Rates, StepTime, forward_s, reference_bytes
from advisor.inputs import rounded
from advisor.result import Estimate, Phase
from advisor.workload import Deployment, FixedRun, WorkloadError, error

ROOM_FRACTION = 0.6  # of an accelerator's memory for 16-bit weights that generate; the rest is KV cache
LONGEST_RATIO = 2.0  # of the longest response over the mean: assumed
GIB = 2.0**30


def phases(fixed: FixedRun, rates: Rates, step: StepTime) -> list[Phase]:
    """The parts of one step or iteration; their times add up to it. One part: plain fine-tuning."""
    d = fixed.asked
    update = Phase(
        name="policy update",
        engine="training",
        time_s=rounded(float(step.step_s)),
        said="forward and backward pass over every sequence, and the optimizer",
    )
    if d.objective == "sft":
        return []
    reference = Phase(
        name="reference forward",
        engine="training",
        time_s=rounded(forward_s(fixed.model, fixed.run, rates, step)),
        said=(
            "log-probabilities under the frozen base, without adapters"
            if fixed.run.recipe.method != "full"
            else "log-probabilities under a frozen copy of the model"
        ),
    )
    if d.objective == "dpo":
        return [reference, update]
    return [*generation(fixed), reference, update]


def extra_gib(fixed: FixedRun) -> float:
    """What the reference model takes on a rank."""
    return 0.0 if fixed.asked.objective == "sft" else reference_bytes(fixed.model, fixed.run) / GIB


def generation(fixed: FixedRun) -> Sequence[Phase]:
    """All responses of an iteration, generated on the same accelerators before they train."""
    d, run = fixed.asked, fixed.run
    responses = run.micro_batch * run.micro_batches * run.parallel.dp
    mean = d.response_tokens or d.sequence_length // 4
    prompt = max(d.sequence_length - math.ceil(LONGEST_RATIO * mean), 16)
    tp = smallest_tp(fixed)
    replicas = max(run.parallel.chips // tp, 1)
    each = max(math.ceil(responses / replicas), 1)
    try:
        full, alone = (served(fixed, tp, prompt, mean, n) for n in (each, 1))
    except WorkloadError as e:
        raise WorkloadError([error("objective", f"generation cannot be estimated: {e.errors[0]['message']}")]) from None
    if not full.fits or not full.output_tokens_per_s or alone.tpot_ms is None:
        raise WorkloadError(
            [
                error(
                    "objective",
                    f"{each} responses of {d.sequence_length} tokens do not fit on {tp} accelerators that generate",
                    "a smaller global_batch or sequence_length, or more accelerators",
                )
            ]
        )
    together_s = each * mean / full.output_tokens_per_s
    tail_s = (LONGEST_RATIO - 1.0) * mean * (alone.tpot_ms.mean or 0.0) / 1e3
    return [
        Phase(
            name="generation",
            engine="serving",
            time_s=rounded(together_s),
            said=(
                f"{responses:,} responses of {mean:,} tokens on average to prompts of {prompt:,}, {each} at a time on "
                f"each of {replicas} replicas with tp {tp} ({full.framework}, {full.weights_dtype}); the weights are "
                "on the same accelerators, so nothing is sent"
            ),
        ),
        Phase(
            name="longest responses",
            engine="serving",
            time_s=rounded(tail_s),
            said=(
                f"the longest response has {LONGEST_RATIO:g} times the mean length (an assumption) and ends alone, "
                "while the other batch slots are empty"
            ),
        ),
    ]


def smallest_tp(fixed: FixedRun) -> int:
    """The fewest accelerators that hold the 16-bit weights with room for a KV cache, a power of two."""
    needed = 2.0 * parameters(fixed.model) / (ROOM_FRACTION * fixed.chip.memory_bytes)
    tp = 1
    while tp < needed and tp < fixed.run.parallel.chips:
        tp *= 2
    return tp


def served(fixed: FixedRun, tp: int, prompt: int, mean: int, concurrency: int) -> Estimate:
    """One replica that generates, as `estimate --kind serving` has it."""
    d = fixed.asked
    return single_estimate.answer(
        Deployment(
            model=d.model,
            accelerator=d.accelerator,
            tp=tp,
            count=tp,
            weights="bf16",
            isl=prompt,
            osl=mean,
            concurrency=concurrency,
        )  # fmt: skip
    )
