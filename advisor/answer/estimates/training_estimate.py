"""One training step on a fixed layout: a validated run in, a TrainingEstimate out. The command and the API share it."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from advisor.answer.estimates import preference
from advisor.answer.options.tuning import longest_wait
from advisor.engine import ENGINE_VERSION
from advisor.engine.network import parameters
from advisor.engine.step import has_experts
from advisor.engine.terms import Accelerator, Efficiency, Scopes, efficiency
from advisor.engine.training import (
    HEAD,
    Job,
    Line,
    PeakMemory,
    Rates,
    Recipe,
    Run,
    Shape,
    StepTime,
    fastest,
    fits,
    interval,
    ledger,
    model_flops,
    outside_bytes,
    peak_flops_per_s,
    peak_memory,
    rates_of,
    recomputed_flops,
    run_basis,
    step_time,
    straggler_factor,
    trained_parameters,
)
from advisor.engine.training_search import speed_distribution
from advisor.inputs import number, resources_with, rounded
from advisor.result import FastestLayout, Operator, TrainingEstimate, TrainingIntervals, TrainingMemory
from advisor.workload import FixedRun, TrainingRun, WorkloadError, deployment, fixed_run
from catalog.models import Organisation

GIB, TERA = 2.0**30, 1e12
SIZES = ("dp", "tp", "pp", "cp", "ep", "virtual_stages", "zero", "sequence_parallel")
PHASES = ("forward", "backward", "recompute", "overlap", "communication", "bubble", "optimizer", "host", "wait")
Change = dict[str, Any]  # arguments and their new values
RECOMPUTE = ("none", "selective", "full")
WIDER = (2, 4, 8)  # times as many tensor-parallel ranks or pipeline stages
SMALL_FRACTION = 1e-6  # of a step: less is a rounding error of a difference
BASIS_WARNINGS = {
    "relative": "kernel rates are extrapolated from a related accelerator, not measured on this one",
    "datasheet": "kernel rates are estimated from the datasheet, not measured on this accelerator",
}
ACROSS = (
    "kernels were measured on this accelerator, but no run on more than {near} of them: the intervals are those of "
    "runs on related accelerators"
)
FLOP_CONVENTION = (
    "model FLOPs of a token: {each}, plus 3 x the forward pass of causal attention, each pair of tokens counted once; "
    "parameters are those in use (active experts), with the output head and without the input embedding. HFU adds "
    "recomputed activations"
)
FLOPS_OF = {
    "full": "6 x parameters",
    "lora": "4 x frozen parameters (no gradient of the weights) + 6 x adapter parameters",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Timed:
    """A run with its rates and its step, and how much longer the slowest rank takes than a mean one."""

    fixed: FixedRun
    rates: Rates
    lines: list[Line]
    step: StepTime
    slowed: float = 1.0

    @property
    def step_s(self) -> float:
        return float(self.step.step_s) * self.slowed


def answer(d: TrainingRun, organisation: Organisation | None = None) -> TrainingEstimate:
    """The estimate with the catalog that an organization sees.

    `fits` false: it runs out of memory, and `smallest_change` says what would help.

    Raises WorkloadError where the arguments name something unknown or contradict each other.
    """
    model_id, known = resources_with(d.model, organisation)
    chip = deployment.named("accelerator", d.accelerator, known.accelerators)
    fixed = fixed_run(d, model_id, known.models[model_id], chip)
    achieved = efficiency(known.scopes, chip.slug, chip.family, chip.kind)
    slowed = straggler_factor(fixed.run.parallel.chips)
    found = answer_of(fixed, achieved, slowed).changed(fastest_layout=fastest_layout(fixed, achieved, slowed))
    return found.changed(interval=interval_of(found, known.scopes, has_experts(fixed.model)))


def interval_of(e: TrainingEstimate, scopes: Scopes, experts: bool) -> TrainingIntervals:
    """[low, high] of time, speed and memory at 90 %, from the errors on measured runs of this basis."""
    low, high = (speed_distribution(scopes, e.basis, experts, e.generation_fraction or 0.0)).ends
    update_low, update_high = speed_distribution(scopes, e.basis, experts).ends
    fields: dict[str, list[float | None]] = {}
    if e.step_s and e.tokens_per_s and e.tokens_per_s_per_accelerator:
        ends = min(update_low, 1.0), max(update_high, 1.0)
        fields["step_s"] = [number(e.step_s / ends[1]), number(e.step_s / ends[0])]
        fields["tokens_per_s"] = [number(e.tokens_per_s * end) for end in ends]
        fields["tokens_per_s_per_accelerator"] = [number(e.tokens_per_s_per_accelerator * end) for end in ends]
    if e.iteration_s:
        fields["iteration_s"] = [number(e.iteration_s / max(high, 1.0)), number(e.iteration_s / min(low, 1.0))]
    if (memory := interval(scopes, e.basis, experts=experts).memory) is not None:
        fields["peak_allocated_gib"] = [number(e.peak_allocated_gib * end) for end in memory]
    return TrainingIntervals(**fields)


def answer_of(fixed: FixedRun, achieved: Efficiency, slowed: float = 1.0) -> TrainingEstimate:
    """The estimate of this layout alone. `slowed`: step of the slowest rank over that of a mean one."""
    timed, peak = timed_run(fixed, achieved, slowed), peak_memory(fixed.model, fixed.run)
    result = configuration(timed, peak, achieved.basis)
    if result.objective != "sft":
        result = composed(result, timed)
    if not result.fits:
        return result.changed(smallest_change=changes(fixed))
    operators = breakdown(timed)
    return result.changed(
        **figures(timed), step=operators, bound=longest_wait((row.bound, row.time_s or 0.0) for row in operators)
    )


def composed(result: TrainingEstimate, timed: Timed) -> TrainingEstimate:
    """The result with the phases of DPO or GRPO, and a reference model in memory."""
    fixed = timed.fixed
    reference = preference.extra_gib(fixed)
    result = result.changed(
        reference_gib=rounded(reference),
        fits=result.fits and result.memory.free_gib >= reference,
        warnings=[
            *result.warnings,
            *([PAIRS] if fixed.asked.objective == "dpo" else []),
            preference.UNCHECKED_ESTIMATE,
        ],
    )
    if not result.fits:
        return result
    phases = preference.phases(fixed, peak_memory(fixed.model, fixed.run), timed.rates, timed.step, timed.slowed)
    total = math.fsum(phase.time_s for phase in phases)
    generates = math.fsum(phase.time_s for phase in phases if phase.engine == "serving")
    return result.changed(
        phases=phases,
        iteration_s=rounded(total),
        generation_fraction=rounded(generates / total) if generates else None,
    )


PAIRS = "global_batch counts sequences: a pair of a chosen and a rejected answer is two of them"


def fastest_layout(fixed: FixedRun, achieved: Efficiency, slowed: float) -> FastestLayout | None:
    """The fastest layout for the same chips, batch and formats, of code that can spread a model in all these ways."""
    run = fixed.run
    if fixed.code != "megatron" or run.offload != "none":
        return None
    job = Job(
        model=fixed.model, accelerator=fixed.chip, efficiency=achieved, chips=run.parallel.chips,
        sequence_tokens=run.sequence_tokens, global_batch=run.micro_batch * run.micro_batches * run.parallel.dp,
        recipe=run.recipe, code=run.code,
    )  # fmt: skip
    found = fastest(job, count=1)
    if not found.layouts:
        return None
    best = found.layouts[0]
    return FastestLayout(
        flags=layout_flags(best.run),
        step_s=rounded(best.step_s * slowed),
        tokens_per_s=rounded(best.tokens_per_s / slowed),
        peak_allocated_gib=rounded(best.memory.allocated_bytes / GIB),
        candidates=found.candidates,
    )


def layout_flags(run: Run) -> str:
    """A layout as flags of `estimate`, without those that have their default."""
    p = run.parallel
    sizes = [("tp", p.tp), ("pp", p.pp), ("virtual-stages", p.virtual_stages), ("cp", p.cp), ("ep", p.ep)]
    flags = [f"--dp {p.dp}", *(f"--{name} {n}" for name, n in sizes if n > 1), f"--zero {p.zero}"]
    flags += ["--sequence-parallel"] if p.sequence_parallel else []
    return " ".join([*flags, f"--micro-batch {run.micro_batch}", f"--recompute {run.recompute}"])


def timed_run(fixed: FixedRun, achieved: Efficiency, slowed: float) -> Timed:
    model, run = fixed.model, fixed.run
    x, rates = Shape.of(run), rates_of(fixed.chip, achieved, run.recipe, run.code)
    return Timed(
        fixed=fixed, rates=rates, lines=ledger(model, x, rates, run), step=step_time(model, x, rates, run),
        slowed=slowed,
    )  # fmt: skip


# --- what it is -------------------------------------------------------------------------------------------------


def configuration(timed: Timed, peak: PeakMemory, kernels: str) -> TrainingEstimate:
    """The run and its memory; figures of time follow where it fits."""
    fixed = timed.fixed
    d, run, model, chip = fixed.asked, fixed.run, fixed.model, fixed.chip
    p, needed = run.parallel, model_flops(model, run)
    sequences = run.micro_batch * run.micro_batches * p.dp
    basis = run_basis(chip, kernels, p.chips)
    across = ACROSS.format(near=chip.links[0].chips if chip.links else 1)
    unmeasured = across if basis != kernels else BASIS_WARNINGS.get(basis)
    warnings = [*fixed.notes, *([unmeasured] if unmeasured else [])]
    return TrainingEstimate(
        **{name: getattr(d, name) for name in ("kind", "objective", "method", "precision", "optimizer")},
        **{name: getattr(p, name) for name in SIZES},
        **{name: getattr(run, name) for name in ("recompute", "offload", "micro_batch", "micro_batches")},
        label=label(fixed),
        model=fixed.model_id,
        accelerator=chip.slug,
        accelerator_name=chip.name,
        accelerator_count=p.chips,
        adapter_rank=run.recipe.adapter_rank or None,
        formats=formats(run.recipe, chip),
        code=fixed.code,
        compile=run.code.compiled or None,
        sequence_length=run.longest_tokens or run.sequence_tokens,
        global_batch=sequences,
        global_batch_tokens=run.global_tokens,
        parameters=rounded(parameters(model)),
        trained_parameters=rounded(trained_parameters(model, run.recipe)),
        memory=memory(fixed, peak),
        peak_allocated_gib=rounded(peak.allocated_bytes / GIB),
        peak_reserved_gib=rounded(reserved_bytes(fixed, peak) / GIB),
        usable_gib=rounded(chip.memory_bytes / GIB),
        peak_phase=peak.phase,
        peak_stage=peak.stage,
        fits=in_memory(fixed, peak),
        peak_tflops=rounded(peak_flops_per_s(chip, run.recipe) / TERA),
        model_flops_per_step=rounded(needed),
        hardware_flops_per_step=rounded(needed + recomputed_flops(timed.lines, run)),
        flop_convention=FLOP_CONVENTION.format(each=FLOPS_OF["full" if d.method == "full" else "lora"]),
        warnings=warnings,
        basis=basis,
        engine_version=ENGINE_VERSION,
    )


def reserved_bytes(fixed: FixedRun, peak: PeakMemory) -> float:
    """What PyTorch's allocator reserves: where the chip has no room for more, it gives cached blocks back first."""
    return min(peak.reserved_bytes, max(fixed.chip.memory_bytes - outside_bytes(fixed.run), peak.allocated_bytes))


def label(fixed: FixedRun) -> str:
    d, p, run = fixed.asked, fixed.run.parallel, fixed.run
    sizes = [f"{name} {size}" for name, size in (("dp", p.dp), ("tp", p.tp), ("pp", p.pp), ("cp", p.cp), ("ep", p.ep))
             if size > 1]  # fmt: skip
    parts = [*sizes, *([f"ZeRO {p.zero}"] if p.zero else []), d.precision]
    parts += [f"{d.method} rank {run.recipe.adapter_rank}"] if d.method != "full" else []
    parts += [f"{run.recompute} recomputation"] if run.recompute != "none" else []
    return (
        f"{p.chips} x {fixed.chip.name}, {', '.join(parts)}, {run.micro_batches} x {run.micro_batch} sequences per rank"
    )


def formats(recipe: Recipe, chip: Accelerator) -> str:
    """Bytes of what is stored, in words."""
    parts = [f"weights {recipe.parameter_bytes:g} B", f"gradients {recipe.gradient_bytes:g} B",
             f"optimizer states {recipe.state_bytes:.3g} B"]  # fmt: skip
    parts += [f"master copy {recipe.master_bytes:g} B"] if recipe.master_bytes else []
    stored = f"{', '.join(parts)} per trained parameter"
    frozen = f"; frozen weights {recipe.frozen_bytes:.3g} B" if recipe.method != "full" else ""
    cast = " under autocast" if recipe.autocast else ""
    half = recipe.matmul_dtype == "bf16" and "bf16" not in chip.flops_per_s  # V100: FP16
    return f"{stored}{frozen}; matrix multiplies in {'FP16' if half else recipe.matmul_dtype.upper()}{cast}"


def memory(fixed: FixedRun, peak: PeakMemory) -> TrainingMemory:
    """The peak by part; what the accelerator has beside it is free."""
    overhead = peak.holes_bytes + outside_bytes(fixed.run)
    parts = {
        "weights_gib": peak.parameters_bytes,
        "gradients_gib": peak.gradients_bytes,
        "optimizer_gib": peak.states_bytes,
        "master_gib": peak.master_bytes,
        "gathered_gib": peak.gathered_bytes,
        "activations_gib": peak.activations_bytes,
        "logits_gib": peak.logits_bytes,
        "buffers_gib": peak.buffers_bytes,
        "overhead_gib": overhead,
        "free_gib": fixed.chip.memory_bytes - peak.allocated_bytes - overhead,
    }
    return TrainingMemory(**{name: rounded(size / GIB) for name, size in parts.items()})


def in_memory(fixed: FixedRun, peak: PeakMemory) -> bool:
    return fits(peak, fixed.chip.memory_bytes, outside_bytes(fixed.run))


# --- what it does -----------------------------------------------------------------------------------------------


def figures(timed: Timed) -> dict[str, float | None]:
    """Times and throughput of a step."""
    fixed, t = timed.fixed, timed.step
    step_s, chips = timed.step_s, fixed.run.parallel.chips
    device_s = float(t.compute_s + t.exposed_s + t.bubble_s + t.update_s)
    needed = model_flops(fixed.model, fixed.run)
    hardware = needed + recomputed_flops(timed.lines, fixed.run)
    peak = peak_flops_per_s(fixed.chip, fixed.run.recipe)
    tokens_per_s = fixed.run.global_tokens / step_s
    return {
        "step_s": number(step_s),
        **{name: number(float(getattr(t, name))) for name in ("compute_s", "communication_s", "bubble_s", "update_s")},
        "exposed_communication_s": number(float(t.exposed_s)),
        "exposed_communication_fraction": number(float(t.exposed_s) / step_s),
        "bubble_fraction": number(float(t.bubble_s) / step_s),
        "host_s": number(max(float(t.step_s) - device_s, 0.0)),
        "tokens_per_s": number(tokens_per_s),
        "tokens_per_s_per_accelerator": number(tokens_per_s / chips),
        "tflops_per_accelerator": number(needed / step_s / chips / TERA),
        "mfu": number(needed / step_s / chips / peak),
        "hfu": number(hardware / step_s / chips / peak),
    }


def breakdown(timed: Timed) -> list[Operator]:
    """The step on one rank, operator by operator; the times add up to it.

    In a pipeline the rank is one without the output head, which waits for the stage that has it.
    """
    rows = merged([*operators(timed), *remainders(timed)])
    least_s = SMALL_FRACTION * timed.step_s
    shown = [row for row in rows if (row.time_s or 0.0) > least_s]
    return sorted(shown, key=lambda row: PHASES.index(row.phase))


def operators(timed: Timed) -> Iterator[Operator]:
    """The lines of the ledger, for all micro-batches."""
    run, piped = timed.fixed.run, timed.fixed.run.parallel.pp > 1
    for line in timed.lines:
        times = 1 if line.per_step else run.micro_batches
        waits = piped and line.name in HEAD
        yield Operator(
            phase="bubble" if waits else line.phase,
            operator=f"waiting for {line.name}" if waits else line.name,
            time_s=float(line.seconds) * times,
            flops=None if waits else float(line.flops) * times,
            bytes=None,
            bound="bubble" if waits else line_bound(line, timed.rates),
        )


def line_bound(line: Line, rates: Rates) -> str:
    """Whether the arithmetic alone takes at least half of its time; attention is compute-bound."""
    if line.name == "attention/scores":
        return "compute"
    rate = rates.half_flops_per_s if line.name in HEAD else rates.matmul_flops_per_s
    return "compute" if float(line.flops) / rate >= 0.5 * float(line.seconds) > 0 else "memory"


def remainders(timed: Timed) -> Iterator[Operator]:
    """What the step has beside the kernels of its layers."""
    fixed, t = timed.fixed, timed.step
    times, piped = fixed.run.micro_batches, fixed.run.parallel.pp > 1
    head_s = times * sum(float(line.seconds) for line in timed.lines if line.name in HEAD)
    all_s = times * sum(float(line.seconds) for line in timed.lines)
    inside = {"tensor parallel": t.tensor_s, "expert all-to-all": t.expert_s, "keys and values": t.context_s}
    device_s = float(t.compute_s + t.exposed_s + t.bubble_s + t.update_s)
    yield rest("overlap", "shards copied, kernels slowed by collectives",
               float(t.compute_s) - (all_s - head_s if piped else all_s), "communication")  # fmt: skip
    for operator, seconds in inside.items():
        yield rest("communication", operator, float(seconds), "communication")
    other_s = float(t.exposed_s) - sum(float(seconds) for seconds in inside.values())
    yield rest("communication", "weights and gradients", other_s, "communication")
    yield rest("bubble", "fill and drain", float(t.bubble_s) - (head_s if piped else 0.0), "bubble")
    yield rest("optimizer", "update", float(t.update_s), "memory")
    yield rest("host", "launches and synchronization", float(t.step_s) - device_s, "host")
    yield rest("wait", "stragglers", timed.step_s - float(t.step_s), "stragglers")


def rest(phase: str, operator: str, seconds: float, bound: str) -> Operator:
    return Operator(phase=phase, operator=operator, time_s=seconds, flops=None, bytes=None, bound=bound)


def merged(rows: Iterable[Operator]) -> list[Operator]:
    """One row for each phase and operator; the longest part of it says what bounds it."""
    groups: dict[tuple[str, str], list[Operator]] = {}
    for row in rows:
        groups.setdefault((row.phase, row.operator), []).append(row)
    return [added(group) for group in groups.values()]


def added(group: Sequence[Operator]) -> Operator:
    longest = max(group, key=lambda row: row.time_s or 0.0)
    flops = sum(row.flops or 0.0 for row in group)
    return longest.changed(
        time_s=number(sum(row.time_s or 0.0 for row in group)), flops=number(flops) if flops else None
    )


# --- what would fit ---------------------------------------------------------------------------------------------


def changes(fixed: FixedRun) -> list[str]:
    """Single changes after which it fits, the smallest of each kind; else several together."""
    smallest: dict[str, str] = {}
    for change in alternatives(fixed):
        kind = next(iter(change))
        if kind not in smallest and holds(fixed, change):
            smallest[kind] = in_words(change)
    return list(smallest.values()) or [together(fixed)]


def alternatives(fixed: FixedRun) -> Iterator[Change]:
    """Changes of one argument and of those that follow from it, gentlest first. The global batch stays."""
    run, p = fixed.run, fixed.run.parallel
    for recompute in RECOMPUTE[RECOMPUTE.index(run.recompute) + 1 :]:
        yield {"recompute": recompute}
    for micro_batch in smaller(run.micro_batch):
        yield {"micro_batch": micro_batch}
    if run.recipe.method == "full" and run.recipe.parameter_bytes + run.recipe.master_bytes > 2.0:
        yield {"precision": "bf16_pure"}
    for zero in range(p.zero + 1, 4) if p.dp * p.cp > 1 else ():
        yield {"zero": zero}
    yield from wider(fixed)


def smaller(size: int) -> list[int]:
    """Smaller divisors of a size, largest first."""
    return [n for n in range(size // 2, 0, -1) if size % n == 0]


def wider(fixed: FixedRun) -> Iterator[Change]:
    """More tp or pp: on the same accelerators where dp can give way, else on more of them."""
    p = fixed.run.parallel
    for name, factor in ((name, factor) for name in ("tp", "pp") for factor in WIDER):
        room = {"dp": p.dp // factor} if p.dp % factor == 0 else {"count": p.chips * factor}
        change = {name: factor * int(getattr(p, name))} | room
        yield change
        if name == "tp" and not p.sequence_parallel:
            yield change | {"sequence_parallel": True}


def in_words(change: Change) -> str:
    """tp 2, dp 4 and sequence_parallel"""
    *others, last = (name if value is True else f"{name} {value}" for name, value in change.items())
    return f"{', '.join(others)} and {last}" if others else last


def holds(fixed: FixedRun, change: Change) -> bool:
    """Whether the changed run is valid and fits. Sizes that are not changed stay, and so does the global batch."""
    run, p = fixed.run, fixed.run.parallel
    stated = {"count": None, "dp": p.dp, "zero": p.zero, "code": fixed.code, "micro_batches": None}
    stated["global_batch"] = run.micro_batch * run.micro_batches * p.dp
    try:
        other = fixed_run(fixed.asked.model_copy(update=stated | change), fixed.model_id, fixed.model, fixed.chip)
    except WorkloadError:
        return False
    return in_memory(other, peak_memory(other.model, other.run))


def together(fixed: FixedRun) -> str:
    """Several of these changes at once, then with more accelerators."""
    run, p = fixed.run, fixed.run.parallel
    gentle: Change = {} if run.recompute == "full" else {"recompute": "full"}
    gentle |= {} if run.micro_batch == 1 else {"micro_batch": 1}
    sharded: Change = {} if p.zero == 3 else {"zero": 3}
    start = gentle if p.dp * p.cp == 1 else gentle | sharded
    more = ({"dp": p.dp * factor, "count": p.chips * factor} for factor in WIDER)
    tried = [start, *(start | change for change in wider(fixed)), *(gentle | sharded | change for change in more)]
    fitting = (in_words(change) for change in tried if change and holds(fixed, change))
    none = "no change of recompute, micro_batch, precision, zero, tp, pp and dp: choose accelerators with more memory"
    return next(fitting, none)
