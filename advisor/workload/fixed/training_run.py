"""One training run on a fixed layout, as `estimate --kind training` takes it: validated and converted to a Run."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, ValidationError

from advisor.engine.network import Attention, Model
from advisor.engine.step import yarn_warning
from advisor.engine.terms import Accelerator, Rollout, kind_named
from advisor.engine.training import (
    FRAMEWORKS,
    FrameworkName,
    MethodName,
    ModelCode,
    OptimizerName,
    Parallel,
    Precision,
    Run,
    code_of,
    default_code,
    frameworks_of,
    heads_of,
    launch_differences,
    parallel_fault,
    peak_memory,
    pipeline_fault,
    recipe_of,
    trains,
    unsupported_precision,
)
from advisor.workload.errors import explained
from advisor.workload.fields import Name, Section
from advisor.workload.fixed.deployment import Deployment, parse_deployment, refused
from advisor.workload.notation.sections import clear_of, with_numbers
from advisor.workload.schema import LONGEST_RATIO, ModelRef
from advisor.workload.text import WorkloadError, check_plain, error

TRAINING_KINDS = ("training", "finetuning")
FIXED = "serving"  # the kind of a fixed deployment that serves
LEAST_PROMPT_TOKENS = 16
MULTIPLE_TOKENS = 16  # of a mean sequence of GRPO, so that parallel sizes divide it
LEAST_SAVED = 0.005  # of the peak, that recomputation is worth mentioning for
WHOLE_MODEL = ("training",)  # kinds that train all parameters
Ranks = Annotated[int, Field(ge=1, le=65_536)]
Sequences = Annotated[int, Field(ge=1, le=10_000_000)]


class TrainingRun(Section):
    """One training step of `manage.py estimate` and POST /api/v1/estimate. Accelerators are dp x tp x pp x cp."""

    kind: Annotated[
        Literal["training", "finetuning"], Field(description="finetuning also allows the methods lora and qlora")
    ]
    model: ModelRef
    accelerator: Name
    count: Annotated[Ranks | None, Field(description="All accelerators; default dp x tp x pp x cp")] = None
    sequence_length: Annotated[int, Field(ge=16, le=10_000_000, description="Tokens of a sequence")]
    micro_batch: Annotated[
        int, Field(ge=1, le=100_000, description="Sequences of one forward pass of a data-parallel rank")
    ] = 1
    global_batch: Annotated[
        Sequences | None,
        Field(description="Sequences of one step on all ranks; default dp x micro_batch x micro_batches"),
    ] = None
    micro_batches: Annotated[
        Sequences | None,
        Field(description="Forward passes of a rank in one step; default global_batch / (dp x micro_batch)"),
    ] = None
    tp: Annotated[Ranks, Field(description="Tensor-parallel size")] = 1
    pp: Annotated[Ranks, Field(description="Pipeline stages")] = 1
    cp: Annotated[Ranks, Field(description="Context-parallel size: each rank has a part of every sequence")] = 1
    ep: Annotated[Ranks, Field(description="Expert-parallel size, inside dp x cp x tp")] = 1
    dp: Annotated[Ranks | None, Field(description="Data-parallel size; default count / (tp x pp x cp)")] = None
    virtual_stages: Annotated[
        int, Field(ge=1, le=64, description="Interleaved stages of a pipeline rank; 1: plain 1F1B")
    ] = 1
    zero: Annotated[
        int | None,
        Field(
            ge=0, le=3, description="ZeRO stage; 3 is FSDP. Default: 1 for megatron, 3 for hf and plain, 0 for one rank"
        ),
    ] = None
    sequence_parallel: Annotated[bool, Field(description="Norms and residuals split over the tp ranks")] = False
    recompute: Annotated[
        Literal["none", "selective", "full"], Field(description="Activation recomputation; selective: attention")
    ] = "none"
    offload: Annotated[
        Literal["none", "optimizer", "all"], Field(description="What is kept in host memory: optimizer states, or all")
    ] = "none"
    precision: Annotated[
        Precision,
        Field(description="amp: FP32 weights under autocast; fp8, mxfp8, nvfp4: matrix multiplies of the BF16 recipe"),
    ] = "bf16"
    method: Annotated[MethodName, Field(description="What is trained: all parameters or adapters")] = "full"
    rank: Annotated[
        Annotated[int, Field(ge=1, le=4096)] | None, Field(description="Adapter rank of lora and qlora; default 16")
    ] = None
    optimizer: OptimizerName = "adamw"
    code: Annotated[
        ModelCode | None,
        Field(description="hf: transformers; plain: PyTorch with fused norms. Default: megatron, finetuning: hf"),
    ] = None
    compile: Annotated[bool, Field(description="torch.compile, for hf and plain")] = False
    framework: Annotated[
        FrameworkName | None,
        Field(description="Formats and kernels are as its launch files set them; default: those of the code alone"),
    ] = None
    objective: Annotated[
        Literal["sft", "dpo", "grpo"],
        Field(description="sft; dpo: pairs and a reference model; grpo: generation, a reference model and an update"),
    ] = "sft"
    response_tokens: Annotated[
        Annotated[int, Field(ge=1, le=1_000_000)] | None,
        Field(description="Mean tokens of a generated response (grpo); default: a quarter of sequence_length"),
    ] = None
    longest_response_tokens: Annotated[
        Annotated[int, Field(ge=1, le=1_000_000)] | None,
        Field(description="Tokens of the longest response (grpo); default: twice the mean, an assumption"),
    ] = None
    prompt_tokens: Annotated[
        Annotated[int, Field(ge=1, le=1_000_000)] | None,
        Field(description="Mean tokens of a prompt (grpo); default: what the longest response leaves of the sequence"),
    ] = None
    reference: Annotated[
        Literal["yes", "no", "precomputed"],
        Field(description="Reference model: beside the trained one, none (grpo), or its results are known (dpo)"),
    ] = "yes"


def parse_estimate(raw: Mapping[str, Any]) -> Deployment | TrainingRun:
    """The validated deployment or training run, by `kind` (default: serving). Raises WorkloadError."""
    kind = raw.get("kind", FIXED)
    if kind not in (FIXED, *TRAINING_KINDS):
        raise refused("kind", "is not a valid choice", ", ".join((FIXED, *TRAINING_KINDS)))
    if kind not in TRAINING_KINDS:
        check_keys(raw, FIXED, Deployment, TrainingRun)
        return parse_deployment(raw)
    check_keys(raw, str(kind), TrainingRun, Deployment)
    return parse_training_run(raw)


def check_keys(raw: Iterable[str], kind: str, own: type[BaseModel], other: type[BaseModel]) -> None:
    """Raises WorkloadError for keys that belong to the other kind."""
    foreign = [name for name in raw if name in other.model_fields and name not in own.model_fields]
    if foreign:
        kinds = "serving" if own is TrainingRun else " or ".join(TRAINING_KINDS)
        raise WorkloadError(
            [error(n, f"is not used with kind {kind}", f"remove it, or set kind to {kinds}") for n in foreign]
        )


def parse_training_run(raw: Mapping[str, Any]) -> TrainingRun:
    """The validated run. Raises WorkloadError with each field, the reason and what is allowed."""
    check_plain(dict(raw))
    given, unclear = with_numbers(raw, TrainingRun)
    try:
        return TrainingRun.model_validate(given)
    except ValidationError as e:
        raise WorkloadError(unclear + clear_of(unclear, explained(e, TrainingRun))) from None


# --- against the model and the chip -----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class FixedRun:
    """A valid run, the model and chip it uses, and `notes` to report as warnings."""

    asked: TrainingRun
    model_id: str
    model: Model
    chip: Accelerator
    run: Run
    notes: tuple[str, ...]

    @property
    def code(self) -> ModelCode:
        return code_named(self.asked)


def fixed_run(d: TrainingRun, model_id: str, model: Model, chip: Accelerator) -> FixedRun:
    """The run as engine values. Raises WorkloadError for what the model or the chip does not allow."""
    check_model(model)
    check_chip(d, chip)
    check_method(d)
    check_objective(d)
    p, (mean, longest) = layout(d), lengths_of(d)
    if fault := parallel_fault(p, model, mean):
        raise refused(fault.field, fault.message, fault.allowed)
    micro_batches = micro_batches_of(d, p.dp)
    if fault := pipeline_fault(p.pp, p.virtual_stages, micro_batches):
        raise refused(fault.field, fault.message, fault.allowed)
    run = Run(
        sequence_tokens=mean,
        longest_tokens=longest,
        varied_lengths=has_all_lengths(d),
        micro_batch=d.micro_batch,
        micro_batches=micro_batches,
        recipe=recipe_of(d.precision, d.method, d.rank or 16, d.optimizer, code_named(d), p.zero, model),
        parallel=p,
        code=code_of(code_named(d), d.compile, p),
        recompute=d.recompute,
        offload=d.offload,
    )
    run = run if d.framework is None else run_by(d.framework, run, chip)
    notes = (*notes_on(d, p, model, chip), *recompute_notes(run, model))
    return FixedRun(asked=d, model_id=model_id, model=model, chip=chip, run=run, notes=notes)


def rollout_of(d: TrainingRun) -> Rollout:
    """Lengths as given; prompt and longest response fill the sequence."""
    mean = float(d.response_tokens or d.sequence_length // 4)
    longest = float(d.longest_response_tokens or LONGEST_RATIO * mean)
    prompt = float(d.prompt_tokens or max(d.sequence_length - longest, LEAST_PROMPT_TOKENS))
    return Rollout(prompt_tokens=prompt, response_tokens=mean, longest_response_tokens=longest)


def has_all_lengths(d: TrainingRun) -> bool:
    """Whether batches of all lengths follow one another: the launch files of frameworks pack sequences.

    DPO pads them to one length, and GRPO's memory is that of the longest alone.
    """
    adapts = not kind_named(d.kind).trains_whole_model
    return adapts and d.objective == "sft" and code_named(d) == "hf" and d.framework is None


def lengths_of(d: TrainingRun) -> tuple[int, int]:
    """(mean, longest) tokens of a sequence; 0: all are alike. GRPO's trainers leave out the padding."""
    if d.objective != "grpo":
        return d.sequence_length, 0
    lengths, each = rollout_of(d), max(MULTIPLE_TOKENS, d.tp * d.cp)
    mean = math.ceil((lengths.prompt_tokens + lengths.response_tokens) / each) * each
    return min(mean, d.sequence_length), d.sequence_length


def run_by(framework: FrameworkName, run: Run, chip: Accelerator) -> Run:
    """The run as a framework starts it. Raises WorkloadError where it starts another one."""
    if framework not in frameworks_of(chip.vendor):
        able = ", ".join(frameworks_of(chip.vendor)) or f"none is known for {chip.name}"
        raise refused("framework", f"{framework} does not run on {chip.name}", able)
    prevented = [d.note for d in launch_differences(run, chip.vendor, framework) if d.prevents]
    if prevented:
        raise refused("framework", f"{framework} runs another plan: {'; '.join(prevented)}", "another framework")
    return FRAMEWORKS[framework].runs(run, chip.vendor)


def code_named(d: TrainingRun) -> ModelCode:
    """The model code as given, or the default of the kind."""
    return d.code or default_code(d.kind)


def check_model(model: Model) -> None:
    if model.diffusion or model.encoder_only or model.source_tokens:
        raise refused("model", f"{model.slug}: training is estimated for decoder-only language models",
                      "a decoder-only model")  # fmt: skip


def check_chip(d: TrainingRun, chip: Accelerator) -> None:
    if not trains(chip):
        raise refused(
            "accelerator", f"training is not modeled on {chip.name}", "a GPU, a TPU, Gaudi, Trainium or Ascend"
        )
    if reason := unsupported_precision(chip, d.precision):
        raise refused("precision", *reason)


def check_method(d: TrainingRun) -> None:
    """Raises WorkloadError where method, rank, precision and code contradict each other."""
    if d.method != "full" and d.kind in WHOLE_MODEL:
        raise refused("method", f"kind training trains all parameters, not {d.method}", "full, or kind finetuning")
    if d.method == "full" and d.rank is not None:
        raise refused("rank", "is of adapters, and method full has none", "remove it, or use method lora or qlora")
    adapters = {"lora": ("bf16", "fp8", "mxfp8", "nvfp4"), "qlora": ("bf16",)}
    if d.method in adapters and d.precision not in adapters[d.method]:
        raise refused("precision", f"{d.precision} is not available with {d.method}", ", ".join(adapters[d.method]))
    if d.precision == "bf16_pure" and code_named(d) == "megatron":
        raise refused("precision", "Megatron-Core keeps FP32 master weights", "bf16, or code hf or plain")
    if d.compile and code_named(d) == "megatron":
        raise refused(
            "compile", "Megatron-Core fuses its kernels without torch.compile", "remove it, or code hf or plain"
        )


def check_objective(d: TrainingRun) -> None:
    """Raises WorkloadError where the objective does not suit the kind, or the lengths contradict each other."""
    if d.objective != "sft" and d.kind in WHOLE_MODEL:
        raise refused("objective", f"{d.objective} fine-tunes a model", "sft, or kind finetuning")
    for name in ("response_tokens", "longest_response_tokens", "prompt_tokens"):
        if getattr(d, name) is not None and d.objective != "grpo":
            raise refused(name, f"nothing is generated with objective {d.objective}", "remove it, or objective grpo")
    unsuited = {"sft": ("no", "precomputed"), "dpo": ("no",), "grpo": ("precomputed",)}[d.objective]
    if d.reference in unsuited:
        raise refused("reference", f"{d.reference} does not suit objective {d.objective}",
                      {"sft": "remove it", "dpo": "yes, precomputed", "grpo": "yes, no"}[d.objective])  # fmt: skip
    if d.response_tokens is not None and (d.longest_response_tokens or d.response_tokens) < d.response_tokens:
        raise refused("longest_response_tokens", "is less than the mean", f">= {d.response_tokens}")
    given = (d.longest_response_tokens or 0) + (d.prompt_tokens or 0)
    if given > d.sequence_length:
        raise refused("sequence_length", "is less than prompt_tokens and longest_response_tokens", f">= {given}")
    if (
        d.longest_response_tokens is None
        and d.response_tokens is not None
        and (LONGEST_RATIO * d.response_tokens > d.sequence_length - 16)
    ):
        allowed = f"at most {max((d.sequence_length - 16) // 2, 1)}, or a larger sequence_length"
        raise refused("response_tokens", "the longest response, twice the mean, and its prompt exceed sequence_length",
                      allowed)  # fmt: skip
    if d.objective == "dpo" and d.global_batch is not None and d.global_batch % 2:
        raise refused("global_batch", "dpo trains on pairs, and the batch is odd", "an even number of sequences")


def layout(d: TrainingRun) -> Parallel:
    """The parallel layout, with dp and ZeRO stage filled in."""
    dp = data_parallel(d)
    zero = d.zero
    if zero is None:
        zero = 0 if dp * d.cp == 1 else 1 if code_named(d) == "megatron" else 3
    return Parallel(
        dp=dp, tp=d.tp, pp=d.pp, cp=d.cp, ep=d.ep, zero=zero, sequence_parallel=d.sequence_parallel,
        virtual_stages=d.virtual_stages,
    )  # fmt: skip


def data_parallel(d: TrainingRun) -> int:
    """dp as given, or what count leaves for it."""
    one, sizes = d.tp * d.pp * d.cp, f"{d.tp} x {d.pp} x {d.cp}"
    if d.count is None:
        return d.dp or 1
    if d.dp is None:
        if d.count % one:
            raise refused("count", f"{d.count} accelerators cannot be divided by tp x pp x cp = {sizes} = {one}",
                          f"a multiple of {one}, or other sizes")  # fmt: skip
        return d.count // one
    if d.count != d.dp * one:
        message = f"dp x tp x pp x cp = {d.dp} x {sizes} = {d.dp * one} must equal count, which is {d.count}"
        raise refused("count", message, f"{d.dp * one}{'' if d.count % one else f', or dp {d.count // one}'}")
    return d.dp


def micro_batches_of(d: TrainingRun, dp: int) -> int:
    """Micro-batches of a step on each data-parallel rank."""
    each, sizes = dp * d.micro_batch, f"dp x micro_batch = {dp} x {d.micro_batch} = {dp * d.micro_batch}"
    if d.global_batch is None:
        if d.micro_batches is None:
            raise refused("global_batch", "is required: the sequences of one step", f"a multiple of {sizes}")
        return d.micro_batches
    if d.global_batch % each:
        above = -(-d.global_batch // each) * each
        raise refused("global_batch", f"{d.global_batch} sequences are not a multiple of {sizes}",
                      f"{above} or another multiple of {each}")  # fmt: skip
    count = d.global_batch // each
    if d.micro_batches not in (None, count):
        raise refused("micro_batches", f"global_batch / (dp x micro_batch) is {count}, not {d.micro_batches}",
                      f"{count}, or remove it")  # fmt: skip
    return count


def recompute_notes(run: Run, model: Model) -> list[str]:
    """Whether recomputation costs time and saves nothing, as repeating attention that stores no scores does."""
    if run.recompute == "none":
        return []
    needed, without = (peak_memory(model, replace(run, recompute=kind)) for kind in (run.recompute, "none"))
    if needed.allocated_bytes < (1.0 - LEAST_SAVED) * without.allocated_bytes:
        return []
    return [f"{run.recompute} recomputation saves no memory here and takes time: choose none"]


def notes_on(d: TrainingRun, p: Parallel, model: Model, chip: Accelerator) -> list[str]:
    """Warnings about a run that can be estimated."""
    notes = [] if chip.served else [f"{chip.name} is not recommended to anyone: {chip.not_served_reason}"]
    layers = sum(b.count for b in model.blocks)
    kv_heads = min((heads_of(b.mixer)[1] for b in model.blocks if isinstance(b.mixer, Attention)), default=p.tp)
    if layers % (p.pp * p.virtual_stages):
        notes.append(
            f"{layers} layers do not divide evenly into {p.pp * p.virtual_stages} stages: a mean stage is timed"
        )
    if kv_heads < p.tp:
        notes.append(f"{kv_heads} key-value heads are copied to {p.tp} tensor-parallel ranks")
    if d.zero and p.dp * p.cp == 1 and d.offload == "none":
        notes.append("ZeRO has no effect with one data-parallel rank")
    if p.tp > (near := chip.links[0].chips if chip.links else 1):
        notes.append(f"tp {p.tp} is wider than the {near} accelerators of a scale-up domain")
    if d.precision == "bf16" and d.method == "full" and code_named(d) != "megatron" and p.zero < 2:
        notes.append("weights, gradients and optimizer states are BF16; bf16_master keeps FP32 masters and states")
    if d.offload != "none":
        notes.append(
            "the time on the host is estimated from one published run on 128 cores, and no transfer to or from host "
            "memory is taken to be hidden: time a few steps on the real host first"
        )
    if d.optimizer != "adamw":
        notes.append(f"the update is timed like AdamW's; {d.optimizer} changes the memory alone")
    if model.vision is not None:
        notes.append("the language model is timed without its vision tower, whose parameters take memory")
    if d.sequence_length > model.longest_context_tokens:
        notes.append(f"sequences are longer than the model's context of {model.longest_context_tokens:,} tokens")
    elif d.sequence_length > model.max_context_tokens:
        notes.append(yarn_warning(model))
    return notes
