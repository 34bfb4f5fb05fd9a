"""An estimate of a training step as text: headline, memory, throughput, and where the time goes."""

from collections.abc import Sequence

from advisor.report.estimate_text import shown
from advisor.result import Operator, TrainingEstimate, TrainingIntervals

EVIDENCE = {  # what rates and intervals rest on
    "measured": "kernels measured on this accelerator",
    "relative": "measured runs on related accelerators",
    "datasheet": "the datasheet only",
}


def table(e: TrainingEstimate) -> str:
    """Everything that a planner compares, as text."""
    lines = [e.label, batch_line(e), e.formats, *memory_lines(e), ""]
    if e.phases:
        lines += [*phase_lines(e), ""]
    if e.fits:
        lines += [
            *time_lines(e),
            "",
            *ledger_lines(e),
            "",
            f"evidence: {EVIDENCE.get(e.basis, e.basis)}; {e.bound}-bound",
        ]
    else:
        lines += fit_lines(e)
    if e.fastest_layout:
        f = e.fastest_layout
        faster = f" ({f.tokens_per_s / e.tokens_per_s - 1:+.0%})" if e.tokens_per_s else ""
        lines.append(
            f"fastest of {f.candidates:,} layouts: {f.flags}: step {shown(f.step_s)} s, "
            f"{shown(f.tokens_per_s)} tokens/s{faster}"
        )
    return "\n".join([*lines, f"FLOPs: {e.flop_convention}", *(f"warning: {w}" for w in e.warnings)])


def phase_lines(e: TrainingEstimate) -> list[str]:
    """DPO or GRPO by phase."""
    i, total = e.interval or TrainingIntervals(), e.iteration_s or 1.0
    what = "iteration" if e.objective == "grpo" else "step"
    tokens = f"{shown(e.global_batch_tokens / total)} trained tokens/s"
    return [
        f"one {e.objective.upper()} {what}: {shown(total)} s{between(i.iteration_s, 's')}, {tokens}; "
        f"reference model {shown(e.reference_gib)} GiB",
        *(f"  {p.name:24} {p.time_s:10.3f} s {p.time_s / total:6.1%}  {p.said}" for p in e.phases),
    ]


def batch_line(e: TrainingEstimate) -> str:
    mean = round(e.global_batch_tokens / e.global_batch)
    longest = f" (longest {e.sequence_length:,})" if mean != e.sequence_length else ""
    return (
        f"global batch {e.global_batch:,} x {mean:,}{longest} = {e.global_batch_tokens:,} tokens; "
        f"{shown(e.trained_parameters / 1e6)} M of {shown(e.parameters / 1e6)} M parameters trained"
    )


def memory_lines(e: TrainingEstimate) -> list[str]:
    parts = ", ".join(f"{name.removesuffix('_gib')} {shown(gib)}" for name, gib in e.memory.parts().items() if gib)
    stage = f" on pipeline rank {e.peak_stage}" if e.pp > 1 else ""
    ends = between(e.interval.peak_allocated_gib, "GiB") if e.interval else ""
    return [
        f"memory per accelerator at the peak ({e.peak_phase}{stage}), GiB of {shown(e.usable_gib)}: {parts}",
        f"tensors take {shown(e.peak_allocated_gib)} GiB{ends}; "
        f"PyTorch would reserve up to {shown(e.peak_reserved_gib)} GiB",
    ]


def between(ends: Sequence[float | None] | None, unit: str) -> str:
    """(90%: 11.9 to 15.3 s), or nothing."""
    return f" (90%: {shown(ends[0])} to {shown(ends[1])} {unit})" if ends else ""


def time_lines(e: TrainingEstimate) -> list[str]:
    i = e.interval or TrainingIntervals()
    return [
        f"step {shown(e.step_s)} s{between(i.step_s, 's')}: {shown(e.tokens_per_s)} tokens/s, "
        f"{shown(e.tokens_per_s_per_accelerator)} per accelerator"
        f"{between(i.tokens_per_s_per_accelerator, 'tokens/s')}",
        f"MFU {percent(e.mfu)}, HFU {percent(e.hfu)} of {shown(e.peak_tflops)} TFLOP/s; "
        f"{shown(e.tflops_per_accelerator)} TFLOP/s per accelerator",
        f"exposed communication {shown(e.exposed_communication_s)} s ({percent(e.exposed_communication_fraction)}) "
        f"of {shown(e.communication_s)} s; pipeline bubble {shown(e.bubble_s)} s ({percent(e.bubble_fraction)}); "
        f"optimizer {shown(e.update_s)} s; waiting for the host {shown(e.host_s)} s",
    ]


def percent(fraction: float | None) -> str:
    return "-" if fraction is None else f"{fraction:.1%}"


def ledger_lines(e: TrainingEstimate) -> list[str]:
    """The step on one rank, in the order of its phases."""
    return ["one step on one rank:", *(operator_line(row, e.step_s or 1.0) for row in e.step or [])]


def operator_line(row: Operator, step_s: float) -> str:
    time_s = row.time_s or 0.0
    work = f"{(row.flops or 0.0) / 1e12:12,.2f} TFLOP" if row.flops else " " * 18
    return f"  {row.phase:13} {row.operator:44} {time_s * 1e3:12.3f} ms {time_s / step_s:6.1%} {work}  {row.bound}"


def fit_lines(e: TrainingEstimate) -> list[str]:
    missing = f"DOES NOT FIT: {shown(-e.memory.free_gib)} GiB too much per accelerator"
    return [missing, *(f"  fits with {change}" for change in e.smallest_change or [])]
