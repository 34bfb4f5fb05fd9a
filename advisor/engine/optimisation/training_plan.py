"""What each technique of a training layout gains: from eager FP32 kernels to the chosen run, one change at a time.

Every step changes one thing of the run and is timed like the run itself, so the gains multiply to the whole. A step
that does not fit in memory has a time, but cannot run.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from advisor.engine.network import Model
from advisor.engine.terms import Accelerator, Efficiency
from advisor.engine.training import (
    FP32,
    Code,
    Recipe,
    Run,
    Shape,
    fits,
    outside_bytes,
    peak_memory,
    rates_of,
    step_time,
)

EAGER = Code(norm="eager_fp32", rotary="eager", gate="eager", loss="upcast", attention="math", stops_early=True)
HALF = "bf16"
PACKED_FILL = 0.6  # mean length over the sequence length of fine-tuning data that is padded instead of packed: assumed


@dataclass(frozen=True, kw_only=True, slots=True)
class TechniqueStep:
    """One technique applied to the run before it."""

    name: str
    said: str
    step_s: float
    tokens_per_s: float
    peak_bytes: float  # of the rank with the highest peak, allocated
    fits: bool
    gain_ratio: float | None  # speed over the step before; None: the start


def technique_steps(model: Model, chip: Accelerator, reached: Efficiency, chosen: Run) -> tuple[TechniqueStep, ...]:
    """The steps from an eager FP32 run on the same accelerators to the chosen one. Empty: the chip times none of it."""
    made: list[TechniqueStep] = []
    for name, said, run in changes(chosen):
        try:
            rates = rates_of(chip, reached, run.recipe, run.code)
        except ValueError:  # no FP32 matrix rate: the steps start at 16 bits
            continue
        step_s = float(step_time(model, Shape.of(run), rates, run).step_s)
        peak = peak_memory(model, run)
        made.append(
            TechniqueStep(
                name=name,
                said=said,
                step_s=step_s,
                tokens_per_s=run.global_tokens / step_s,
                peak_bytes=peak.allocated_bytes,
                fits=fits(peak, chip.memory_bytes, outside_bytes(run)),
                gain_ratio=made[-1].step_s / step_s if made else None,
            )
        )
    return tuple(made)


def changes(chosen: Run) -> Iterator[tuple[str, str, Run]]:
    """(name, what it does, run) from the start to the chosen run; a technique that the run does not use is left out."""
    p, sequences = chosen.parallel, chosen.micro_batch * chosen.micro_batches
    plain = replace(p, zero=0, sequence_parallel=False, virtual_stages=1)
    batches = sequences if p.pp == 1 else chosen.micro_batches * chosen.micro_batch
    adapters = replace(chosen.recipe, matmul_dtype=HALF)
    start = FP32 if chosen.recipe.method == "full" else adapters
    run = replace(
        chosen, recipe=start, code=EAGER, parallel=plain, recompute="none", micro_batch=1, micro_batches=batches
    )
    yield "start", "FP32, eager kernels, attention that stores its scores, no sharding", run
    for name, said, step in techniques(run, chosen, adapters):
        if step != run:
            run = step
            yield name, said, run


def techniques(run: Run, chosen: Run, half: Recipe) -> Iterator[tuple[str, str, Run]]:
    """Each technique on top of those before it; the last is the chosen run."""
    code, p = chosen.code, chosen.parallel
    mixed = replace(run, recipe=half)
    yield "mixed precision", "products in BF16 with FP32 master weights and reductions", mixed
    flash = replace(mixed, code=replace(mixed.code, attention=code.attention))
    yield "FlashAttention", "memory linear in length; the time that stored scores take is not modeled", flash
    fused = replace(
        flash, code=replace(flash.code, norm=code.norm, rotary=code.rotary, gate=code.gate, graphs=code.graphs)
    )
    yield "fused kernels", "norm, rotary embedding and SwiGLU in one kernel each", fused
    loss = replace(fused, code=replace(fused.code, loss=code.loss))
    yield "fused loss", "cross-entropy without a second copy of the logits in FP32", loss
    compiled = replace(loss, code=replace(loss.code, compiled=code.compiled, dtensor=code.dtensor))
    yield "torch.compile", "element-wise operators fused by the compiler", compiled
    sharded = replace(compiled, parallel=replace(compiled.parallel, zero=p.zero), code=replace(
        compiled.code, gradient_buffer=code.gradient_buffer))  # fmt: skip
    yield (
        "sharded states",
        "optimizer states (ZeRO-1) or also weights (FSDP) split over the data-parallel ranks",
        sharded,
    )
    split = replace(sharded, parallel=replace(sharded.parallel, sequence_parallel=p.sequence_parallel))
    yield "sequence parallelism", "norms and residuals split over the tensor-parallel ranks", split
    overlap = replace(split, code=replace(code, attention=split.code.attention))
    yield "overlap", "collectives of tensor and expert parallelism beside computation", overlap
    staged = replace(overlap, parallel=p)
    yield "interleaved stages", "a smaller pipeline bubble for more messages", staged
    again = replace(staged, recompute=chosen.recompute)
    yield "recomputation", "activations computed again in the backward pass: memory for time", again
    larger = replace(again, micro_batch=chosen.micro_batch, micro_batches=chosen.micro_batches)
    yield "micro-batch", "larger products and fewer of them", larger
    yield chosen.recipe.matmul_dtype.upper(), "products in a narrower format; master weights stay in FP32", chosen


NOTES = (
    "BF16 needs no loss scaling; FP16 does, because gradients below 6e-8 become zero: dynamic loss scaling "
    "(Micikevicius et al., arXiv:1710.03740).",
    "Keep FP32 master weights and FP32 gradient reduction with BF16: pure BF16 updates smaller than 1/256 of a weight "
    "are lost (Kalamkar et al., arXiv:1905.12322).",
)
NARROW_NOTES = {
    "fp8": "FP8: scale per tensor from current values, or per block as DeepSeek-V3 does. It reports a loss within "
    "0.25% of BF16, and keeps embedding, output head, norms and attention in higher precision (arXiv:2412.19437).",
    "mxfp8": "MXFP8: E4M3 for weights, activations and gradients, with block scales rounded up, matched BF16 on an 8B "
    "model and 15T tokens (Mishra et al., arXiv:2506.08027).",
    "nvfp4": "NVFP4: random Hadamard transforms, stochastic rounding of gradients, two-dimensional scaling of weights, "
    "and some layers in higher precision: a 12B model on 10T tokens was comparable to FP8 (arXiv:2509.25149).",
}


def stability_notes(chosen: Run) -> tuple[str, ...]:
    """What to watch with the formats of the run, with sources."""
    narrow = NARROW_NOTES.get(chosen.recipe.matmul_dtype)
    packing = (
        f"Sequence packing: where the mean sequence fills {PACKED_FILL:.0%} of the length (an assumption), packing "
        f"several into one trains {1 / PACKED_FILL:.2g} times the real tokens in the same step. Mask attention between "
        "documents."
    )
    return (*NOTES, *([narrow] if narrow else []), packing)
