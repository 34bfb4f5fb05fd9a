"""The answer to a training question made ready to read: ranking, cost over days, and each run in detail."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from django.utils.text import capfirst

from advisor.fidelity import nearest_training
from advisor.report import plan_payments, plan_totals
from advisor.result import Answer, Driver, Operator, TrainingOption
from advisor.templatetags.training import run_time
from advisor.templatetags.units import with_unit, words
from advisor.web.answers import figure_rows, plan_page
from advisor.web.charts import plots as charts
from advisor.web.charts import training as training_charts
from advisor.web.form_fields import STACKS
from advisor.web.interactive import chart_data

OBJECTIVES = {
    "cost": "the cost of the run",
    "latency": "the days of the run",
    "throughput": "the days of the run",
    "energy": "energy",
    "carbon": "carbon",
    "balanced": "a balance of cost, days and energy",
}
PHASES = {
    "forward": "forward pass",
    "backward": "backward pass",
    "recompute": "recomputed activations",
    "overlap": "slowdown by overlapped communication",
    "communication": "communication that nothing hides",
    "bubble": "pipeline bubble",
    "optimizer": "optimizer step",
    "host": "waiting for the host",
    "wait": "waiting for the slowest rank",
}
SHARDED = {
    0: "none: every rank holds all states (ZeRO 0)",
    1: "optimizer states (ZeRO 1)",
    2: "optimizer states and gradients (ZeRO 2)",
    3: "weights, gradients and optimizer states (ZeRO 3, FSDP)",
}
METHODS = {"full": "all weights", "lora": "LoRA", "qlora": "QLoRA (frozen weights in 4 bits)"}
CODES = {
    "hf": "transformers",
    "plain": "PyTorch with fused norms",
    "megatron": "fused kernels, as in Megatron-Core, MaxText or NxD Training",
}
OPTIMIZERS = {
    "adamw": "AdamW",
    "adamw_8bit": "AdamW with 8-bit states",
    "adafactor": "Adafactor",
    "muon": "Muon",
    "sgd": "SGD with momentum",
}
RECOMPUTED = {"none": "none", "selective": "selective (attention)", "full": "full"}


def answer_context(answer: Answer, base: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """What the advice page shows of a training answer beside what every answer has."""
    runs = answer.training_runs
    return {
        "training": True,
        "ranked_by": OBJECTIVES.get(str(spec.get("objective")), spec.get("objective")),
        "best": option_context(runs[0], spec) if runs else None,
        "cost_chart": training_charts.cost_chart(runs, base),
        "points": training_charts.points_of(runs),
        "tornado_chart": chart_data.sensitivity(answer.sensitivity, "Cost"),
        "certainty": certainty(answer),
    }


def certainty(answer: Answer) -> dict[str, Any] | None:
    """Ranges and chances of the ranked runs; None where nothing is drawn."""
    shown = plan_page.certainty(answer)
    if shown is None or not shown["ranged"]:
        return None
    moved = drivers(shown["ranged"][0], shown["drivers"])
    has_deadline = any(run.deadline_probability is not None for run in shown["ranged"])
    return shown | {
        "drivers": moved,
        "drivers_chart": chart_data.drivers(moved, "Cost"),
        "has_deadline": has_deadline,
    }


def drivers(first: TrainingOption, found: Sequence[Driver]) -> list[Driver]:
    """The drivers with the cost of a run in place of that of a month."""
    ratio = first.usd_per_run / first.usd_per_month if first.usd_per_month else 1.0
    return [
        each.changed(
            usd_per_month_low=each.usd_per_month_low * ratio, usd_per_month_high=each.usd_per_month_high * ratio
        )
        for each in found
    ]


def option_context(run: TrainingOption, spec: Mapping[str, Any]) -> dict[str, Any]:
    """One run with its pictures."""
    steps, parts = operators(run), training_charts.memory_rows(run.memory)
    return {
        "option": run,
        "training": True,
        "facts": figure_rows.facts(run, spec),
        "layout": list(layout_rows(run)),
        "memory_chart": chart_data.memory(
            training_charts.memory_bar(run.memory),
            training_charts.memory_rows(run.memory),
            training_charts.MEMORY_TITLE,
        ),
        "memory_rows": parts,
        "step_chart": chart_data.step_time(charts.step_bar(steps, "training"), steps, "training"),
        "step_rows": step_rows(steps),
        "phases": phase_rows(steps),
        "evidence": nearest_training.shown(run.evidence),
        "goodput_chart": chart_data.goodput(
            training_charts.goodput_bar(run.goodput), training_charts.goodput_rows(run.goodput)
        ),
        "goodput_rows": training_charts.goodput_rows(run.goodput),
        "checkpoint_every": clock(run.checkpoint_interval_s),
        "checkpoint_takes": clock(run.goodput.checkpoint_s),
        "serving": [(STACKS.get(each.stack, each.stack), each) for each in run.serve_elsewhere],
        "sizes": size_rows(run),
        "one_run": not run.every_days,
        "paying": plan_of(run),
        "price_days": plan_page.price_days([run]),
        "waterfall_chart": chart_data.cost_waterfall(run.money.waterfall) if run.money else None,
        "break_even": [capfirst(each.said) for each in run.money.break_even] if run.money else [],
    }


# --- layout -----------------------------------------------------------------------------------------------------


def layout_rows(run: TrainingOption) -> Iterator[tuple[str, str]]:
    """(label, value) of how the run is laid out; sizes of 1 are left out, but not that of data parallelism."""
    yield "Accelerators", machines(run)
    yield (
        "Trained weights",
        METHODS[run.method] + (f", adapters of rank {run.adapter_rank}" if run.adapter_rank else ""),
    )
    yield "Number formats", run.formats
    yield "Optimizer", OPTIMIZERS.get(run.optimizer, words(run.optimizer))
    yield "Model code", CODES.get(run.code, run.code) + (f", torch.compile: {run.compile}" if run.compile else "")
    yield "Data parallel", f"{run.dp:,} ranks"
    if run.dp > 1:
        yield "Sharded over data-parallel ranks", SHARDED[run.zero]
    if run.tp > 1:
        sequence = ", with sequence parallelism" if run.sequence_parallel else ""
        yield "Tensor parallel", f"{run.tp}{sequence}"
    if run.pp > 1:
        virtual = f", {run.virtual_stages} interleaved parts each" if run.virtual_stages > 1 else ""
        yield "Pipeline parallel", f"{run.pp} stages{virtual}"
    if run.cp > 1:
        yield "Context parallel", str(run.cp)
    if run.ep > 1:
        yield "Expert parallel", str(run.ep)
    yield "Recomputed activations", RECOMPUTED.get(run.recompute, run.recompute)
    yield "Sequence length", f"{run.sequence_length:,} tokens"
    yield (
        "Global batch",
        f"{run.global_batch:,} sequences, {run.global_batch_tokens:,} tokens: {run.micro_batch:,} per micro-batch × "
        f"{run.micro_batches:,} micro-batches × {run.dp:,} data-parallel ranks",
    )


def machines(run: TrainingOption) -> str:
    spares = f", {run.spare_hosts} of them as spares" if run.spare_hosts else ""
    return f"{run.accelerator_count:,} × {run.accelerator_name} in {run.instances:,} × {run.instance}{spares}"


# --- step -------------------------------------------------------------------------------------------------------


def operators(run: TrainingOption) -> list[Operator]:
    """The ledger of a step; the slowest rank, for which all others wait, as one more line."""
    lines = [line for line in run.step if line.time_s]
    rest = run.policy_update_s - sum(line.time_s or 0.0 for line in lines)
    if lines and rest > 1e-3 * run.policy_update_s:
        slowest = {"operator": "stragglers", "flops": None, "bytes": None, "bound": "stragglers"}
        lines.append(Operator(phase="wait", time_s=rest, **slowest))  # type: ignore[arg-type]
    return lines


def step_rows(lines: Sequence[Operator]) -> list[dict[str, Any]]:
    """Operators, the slowest first, with their share of the step."""
    total = sum(line.time_s or 0.0 for line in lines) or 1.0
    slowest_first = sorted(lines, key=lambda line: -(line.time_s or 0.0))
    longest = (slowest_first[0].time_s or 1.0) if slowest_first else 1.0
    return [
        {
            "operator": line,
            "phase": PHASES.get(line.phase, words(line.phase)),
            "tflops_per_s": line.flops / line.time_s / 1e12 if line.flops and line.time_s else None,
            "share": (line.time_s or 0.0) / total,
            "bar": charts.share_bar((line.time_s or 0.0) / longest, charts.bound_css(line.bound)),
        }
        for line in slowest_first
    ]


def phase_rows(lines: Sequence[Operator]) -> list[dict[str, Any]]:
    """The phases of a step in order, with their time and share."""
    total = sum(line.time_s or 0.0 for line in lines) or 1.0
    found = dict.fromkeys([*PHASES, *(line.phase for line in lines)], 0.0)
    for line in lines:
        found[line.phase] += line.time_s or 0.0
    return [
        {"name": PHASES.get(phase, words(phase)), "time_s": time_s, "share": time_s / total}
        for phase, time_s in found.items()
        if time_s
    ]


def clock(seconds: float | None) -> str:
    """3.21 hours, 20 minutes, 12 s; empty for none."""
    if not seconds:
        return ""
    return run_time(seconds / 86_400.0) if seconds >= 100 else with_unit(seconds, "s")


def size_rows(run: TrainingOption) -> list[dict[str, Any]]:
    """The run on other numbers of its accelerators."""
    return [
        {
            "size": size,
            "usd": size.usd_per_run or size.usd_total,
            "chosen": size.accelerator_count == run.accelerator_count,
            "late": run.deadline_days is not None and size.days > run.deadline_days,
        }
        for size in run.scaling
    ]


# --- plan -------------------------------------------------------------------------------------------------------


def plan_of(run: TrainingOption) -> dict[str, Any] | None:
    """What to sign for the run; the figures of a run in place of those of a month."""
    shown = plan_page.of_option(run)
    if shown is None or run.money is None or run.money.plan is None:
        return None
    plan, money = run.money.plan, run.money
    until = "the last run" if run.every_days else "the run"
    return shown | {
        "figures": [*plan_totals(money, run), *(each for each in plan_payments(money, plan, run) if each.notable)],
        "steps": [plan_page.step_row(step, money.horizon_months, until) for step in plan.steps],
        "months_chart": chart_data.plan_months(plan.months, has_traffic=False),
        "repeats": bool(run.every_days),
    }
