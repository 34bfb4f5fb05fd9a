"""What `estimate --kind training` and `POST /api/v1/estimate` return for one training step."""

from typing import Annotated

from advisor.result.base import (
    Chips,
    Count,
    Flops,
    Fraction,
    Gib,
    Number,
    Seconds,
    Section,
    TokensPerSecond,
    Unit,
    WholeTokens,
)
from advisor.result.options.option import Operator, Range

Sequences = Annotated[int, Unit("sequences")]
TeraflopsPerSecond = Annotated[float, Unit("TFLOP/s")]
Days = Annotated[float, Unit("days")]


class TrainingMemory(Section):
    """GiB on the rank with the highest peak, at the moment of the peak. The parts add up to `usable_gib`."""

    weights_gib: Gib
    """Stored weights: this rank's part of them; with LoRA the frozen base and the adapters."""
    gradients_gib: Gib
    """Gradients."""
    optimizer_gib: Gib
    """Optimizer states, without a master copy."""
    master_gib: Gib
    """FP32 master copy of the weights beside those that are stored."""
    gathered_gib: Gib
    """Whole weights of the FSDP units at work, and 16-bit or 8-bit copies of weights for the matrix multiplies."""
    activations_gib: Gib
    """Results of the forward pass that the backward pass needs."""
    logits_gib: Gib
    """Logits, their copies and their gradient."""
    buffers_gib: Gib
    """Gradients at work, buffers of reductions, workspaces of libraries."""
    overhead_gib: Gib
    """CUDA context, NCCL buffers, and holes in the allocator's cache (fragmentation; more where lengths vary)."""
    free_gib: Gib
    """Left over; negative: so much is missing."""

    def parts(self) -> dict[str, float]:
        """Name to GiB, in the order of the JSON."""
        return {name: float(getattr(self, name)) for name in type(self).model_fields}


class MeasuredRun(Section):
    """A figure of a measured training run near this one, and what is predicted there."""

    id: str
    """Key of the row."""
    accelerator: str
    """Catalog name."""
    accelerator_count: Chips
    """Accelerators."""
    model: str
    """Hugging Face ID."""
    framework: str
    """Training framework as the source names it."""
    framework_version: str
    """Release; empty: not stated apart."""
    method: str
    """full, lora or qlora."""
    precision: str
    """Number format of the matrix multiplies."""
    layout: str
    """Parallel layout; empty: not stated, the fastest that the search finds stands for it."""
    sequence_length: WholeTokens
    """Tokens of a sequence."""
    global_batch: Sequences | None
    """Sequences of one step."""
    distance: Number
    """0: the same run."""
    near: bool
    """Whether it is near enough to say something."""
    metric: str
    """What was measured; the unit is at the end of its name."""
    measured: Number | None
    """Measured value; null: the license of the source keeps it from being repeated."""
    predicted: Number | None
    """Predicted value; null: predicted not to fit, or as above."""
    error_fraction: Fraction | None
    """|predicted - measured| over measured."""
    source: str
    """Who measured it."""
    url: str
    """Its row on the accuracy page."""


class Phase(Section):
    """One part of a DPO step or a GRPO iteration."""

    name: str
    """state to and from host, weights to the generator, generation, longest responses, reward model, reference forward
    or policy update."""
    engine: str
    """Which estimate it is: training or serving."""
    time_s: Seconds
    """Its time; the parts follow one another."""
    fraction: Fraction | None = None
    """Its share of the iteration."""
    said: str
    """What happens in it, with its assumptions."""


class FastestLayout(Section):
    """The fastest layout that fits on the same accelerators with the same global batch."""

    flags: str
    """The layout as flags of `estimate`."""
    step_s: Seconds
    """Time of one step."""
    tokens_per_s: TokensPerSecond
    """Of all accelerators."""
    peak_allocated_gib: Gib
    """The highest sum of live tensors on a rank."""
    candidates: Count
    """Layouts that were compared."""


class TrainingLayout(Section):
    """A run on its accelerators: method, formats, layout, batch and memory."""

    accelerator: str
    """Catalog name of the accelerator."""
    accelerator_name: str
    """Display name."""
    accelerator_count: Chips
    """dp x tp x pp x cp; spare hosts are not counted."""
    method: str
    """full, lora or qlora."""
    adapter_rank: Count | None
    """Rank of the adapters; null: no adapters."""
    precision: str
    """bf16, bf16_master, bf16_pure, fp8, mxfp8, nvfp4, amp or fp32."""
    formats: str
    """What the precision means here: bytes per parameter of weights, gradients, optimizer states and master copy."""
    optimizer: str
    """Optimizer."""
    code: str
    """Model code: hf (transformers), plain (PyTorch with fused norms) or megatron (Megatron-Core)."""
    compile: str | None
    """What torch.compile compiles: block or full; null: nothing."""
    dp: Count
    """Data-parallel size."""
    tp: Count
    """Tensor-parallel size."""
    pp: Count
    """Pipeline stages."""
    cp: Count
    """Context-parallel size."""
    ep: Count
    """Expert-parallel size, inside dp x cp x tp."""
    virtual_stages: Count
    """Interleaved stages of a pipeline rank; 1: plain 1F1B."""
    zero: Count
    """ZeRO stage; 3 is FSDP that reshards after the forward pass, 2 FSDP that does not."""
    sequence_parallel: bool
    """Whether norms and residuals are split over the tensor-parallel ranks."""
    recompute: str
    """Activation recomputation: none, selective (attention) or full."""
    sequence_length: WholeTokens
    """Tokens of a sequence."""
    micro_batch: Sequences
    """Sequences of one forward pass of a data-parallel rank."""
    micro_batches: Count
    """Forward passes of a data-parallel rank in one step."""
    global_batch: Sequences
    """Sequences of one step on all ranks."""
    global_batch_tokens: WholeTokens
    """Tokens of one step on all ranks."""
    parameters: Number
    """Parameters of the model."""
    trained_parameters: Number
    """Parameters that the optimizer updates."""
    memory: TrainingMemory
    """Memory of a rank by part."""
    peak_allocated_gib: Gib
    """The highest sum of live tensors (torch.cuda.max_memory_allocated)."""
    peak_reserved_gib: Gib
    """What the allocator then holds (torch.cuda.max_memory_reserved). It returns cached blocks before it runs out of
    memory, so a run can fit that would reserve more."""
    usable_gib: Gib
    """Memory of an accelerator."""
    flop_convention: str
    """How these FLOPs are counted."""
    basis: str
    """What the rates and the intervals rest on: kernels measured on this accelerator (measured; a run on more of them
    than one scale-up domain has was not measured, and is relative), a related accelerator (relative), datasheet."""


class TrainingIntervals(Section):
    """90% intervals [low, high]; absent figures have none."""

    step_s: Range | None = None
    """Time of a step."""
    tokens_per_s: Range | None = None
    """Trained tokens per second."""
    tokens_per_s_per_accelerator: Range | None = None
    """The same per accelerator (estimate)."""
    iteration_s: Range | None = None
    """Time of all phases of DPO or GRPO (estimate)."""
    days: Range | None = None
    """Days of the run, goodput included."""
    usd_total: Range | None = None
    """Present value of the plan."""
    usd_per_month: Range | None = None
    """Equal monthly payment."""
    tco_usd: Range | None = None
    """Present value of costs."""
    peak_allocated_gib: Range | None = None
    """Peak memory."""


class TrainingEstimate(TrainingLayout):
    """One training step of a fixed layout. When it does not fit, there are no figures of time and throughput."""

    kind: str
    """training or finetuning."""
    label: str
    """The run in one line."""
    model: str
    """Hugging Face ID."""
    offload: str
    """What is kept in host memory: none, optimizer or all."""
    peak_phase: str
    """When the peak occurs: loss, backward or optimizer."""
    peak_stage: Count
    """Pipeline rank with the peak, from 0."""
    reference_gib: Gib = 0.0
    """Weights of a frozen reference model on a rank (DPO and GRPO), beside `memory`; 0: none."""
    fits: bool
    """Whether the peak and the reference model fit."""
    smallest_change: list[str] | None = None
    """Changes after which it fits, the gentlest of each kind; absent when it fits."""
    fastest_layout: FastestLayout | None = None
    """The fastest layout found; null where the model code does not have these layouts, or nothing fits."""
    objective: str = "sft"
    """sft (supervised), dpo or grpo."""
    phases: list[Phase] = []
    """Parts of a DPO step or a GRPO iteration; absent for sft."""
    iteration_s: Seconds | None = None
    """Time of all phases; null for sft."""
    generation_fraction: Fraction | None = None
    """Share of the iteration that generates; null where nothing is generated."""
    step_s: Seconds | None = None
    """Time of one step, from batch to batch, with the slowest of the ranks; of DPO and GRPO the policy update alone."""
    compute_s: Seconds | None = None
    """Kernels of all micro-batches on one rank, slowed where collectives overlap them."""
    communication_s: Seconds | None = None
    """All communication of one rank, hidden or not."""
    exposed_communication_s: Seconds | None = None
    """Communication that no computation hides."""
    exposed_communication_fraction: Fraction | None = None
    """Its share of the step."""
    bubble_s: Seconds | None = None
    """Pipeline: filling, draining, and waiting for the stage with the output head."""
    bubble_fraction: Fraction | None = None
    """Its share of the step."""
    update_s: Seconds | None = None
    """Optimizer step with its casts and copies."""
    host_s: Seconds | None = None
    """Time in which the accelerators wait for the host."""
    tokens_per_s: TokensPerSecond | None = None
    """Trained tokens on all accelerators."""
    tokens_per_s_per_accelerator: TokensPerSecond | None = None
    """The same per accelerator."""
    tflops_per_accelerator: TeraflopsPerSecond | None = None
    """Model FLOPs per second and accelerator, without recomputation."""
    peak_tflops: TeraflopsPerSecond
    """Dense datasheet peak of the matrix multiplies' format, which MFU and HFU refer to."""
    mfu: Fraction | None = None
    """Model FLOPs utilization: model FLOPs over the peak."""
    hfu: Fraction | None = None
    """Hardware FLOPs utilization: model FLOPs and recomputation over the peak."""
    model_flops_per_step: Flops
    """What the model needs in one step on all accelerators."""
    hardware_flops_per_step: Flops
    """The same with recomputation."""
    step: list[Operator] | None = None
    """Ledger of one step on one rank; the times add up to `step_s`."""
    interval: TrainingIntervals | None = None
    """90% intervals."""
    bound: str | None = None
    """What takes most of the step: compute, memory, communication, bubble or host."""
    warnings: list[str]
    """What to check."""
    engine_version: str
    """Version of the estimate."""
