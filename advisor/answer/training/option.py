"""One ranked run as the answer shows it."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from advisor.answer.estimates import training_estimate
from advisor.answer.estimates.preference import sections
from advisor.answer.training.money import money_of, spot_warning
from advisor.answer.training.question import Question, name_of
from advisor.answer.training.sentences import reasons, scaling_text, warnings
from advisor.engine.cost import HOURS_PER_MONTH
from advisor.engine.launch import LAUNCHERS, TrainingLaunch, TrainingPlace, training_launch
from advisor.engine.network import parameters
from advisor.engine.optimisation import stability_notes, technique_steps
from advisor.engine.search import efficiency_on
from advisor.engine.terms import usd_text
from advisor.engine.training import Point as CurvePoint
from advisor.engine.training import (
    conversion_days,
    conversion_usd,
    interruptions,
    model_flops,
    pays_until,
    scaling_gain,
    storage_needed,
)
from advisor.engine.training_search import Candidate, CostDraws, beside_bytes, servers_of
from advisor.inputs import figure_of, number, rounded
from advisor.result import (
    FlagCheck,
    GoodputParts,
    Launch,
    ScalingPoint,
    Serving,
    Storage,
    TrainingIntervals,
    TrainingLayout,
    TrainingOption,
    TrainingStep,
)
from advisor.workload import FixedRun, TrainingRun, fixed_run

UNRELEASED = "no list of options is published with a release; they follow examples of its repository"
GIB, TERA = 2.0**30, 1e12
STACKS = {"cuda": "nvidia", "rocm": "amd", "xla": "google", "neuron": "aws"}
QUANTILES = (0.05, 0.95)
LOST = ("checkpoint_fraction", "rework_fraction", "restart_fraction", "waiting_fraction")
ESTIMATED = (  # figures of one step, as `estimate` gives them
    *TrainingLayout.model_fields, "exposed_communication_fraction", "bubble_fraction", "bound", "step",
)  # fmt: skip


def option(q: Question, c: Candidate, rank: int, draws: CostDraws) -> TrainingOption:
    """The run with its step, time, goodput, scaling, costs and launch files."""
    fixed = fixed_of(q, c)
    step = training_estimate.answer_of(fixed, efficiency_on(q.catalog.scopes, c.trained.accelerator))
    run, plan, hours = c.trained.layout.run, c.planned.plan, c.days * 24.0
    per_s = model_flops(q.catalog.model, run) / c.step_s / c.chips
    chips_hours = c.chips * hours
    curve = scaling(q, c)
    launched = launch_of(q, c) if q.task.tuning is None else None
    updating = c.trained.layout.step_s / c.trained.iteration_s  # share of the iteration
    steps, notes = optimization(q, c)
    return TrainingOption(
        kind=q.section,  # type: ignore[arg-type]
        **{name: getattr(step, name) for name in ESTIMATED},
        rank=rank,
        label=label(q, c),
        spare_hosts=c.spare_hosts,
        provider="owned" if c.offer.term == "owned" else c.offer.provider,
        instance=c.offer.instance,
        instances=c.instances,
        region=c.offer.region,
        acquisition=c.offer.acquisition,
        term=c.offer.term,
        price_as_of=c.offer.as_of,
        price_origin=c.offer.origin,
        price_weakness=c.offer.weakness,
        sold_out_on=c.offer.sold_out_on,
        price_source=c.offer.source,
        framework=launched.title if launched else "",
        framework_version=release_of(launched),
        step_s=rounded(c.step_s),
        tokens_per_s=rounded(c.tokens_per_s),
        tokens_per_s_per_accelerator=rounded(c.tokens_per_s / c.chips),
        tflops_per_accelerator=rounded(per_s / TERA),
        mfu=rounded((step.mfu or 0.0) * updating / c.straggler_factor),
        hfu=rounded((step.hfu or 0.0) * updating / c.straggler_factor),
        objective=q.task.tuning.name if q.task.tuning else "sft",
        phases=sections(c.trained.phases, c.straggler_factor),
        generation_fraction=number(c.trained.serving_fraction) if c.trained.serving_fraction else None,
        reference_gib=rounded(reference_gib(q, c)),
        tokens=rounded(q.task.tokens),
        tokens_per_parameter=rounded(q.task.tokens / parameters(q.catalog.model)),
        model_flops=rounded(model_flops(q.catalog.model, run) / run.global_tokens * q.task.tokens),
        steps=c.steps,
        days=rounded(c.days),
        accelerator_hours=rounded(chips_hours),
        deadline_days=q.task.deadline_days,
        every_days=q.task.every_days,
        goodput_fraction=rounded(c.goodput.fraction),
        goodput=goodput_parts(q, c),
        checkpoint_interval_s=number(c.goodput.interval_s) if math.isfinite(c.goodput.interval_s) else None,
        storage=storage(q, c),
        scaling=curve,
        scaling_said=scaling_text(q, c, best_size(q, c)),
        serve_elsewhere=list(serving(q, c)),
        usd_total=rounded(c.usd_total, 12),
        usd_per_run=rounded(c.usd_per_run, 12),
        usd_per_mtok=rounded(c.usd_per_run / q.task.tokens * 1e6),
        usd_per_accelerator_hour=rounded(c.usd_per_run / chips_hours),
        usd_per_hour=rounded(plan.usd_per_month / HOURS_PER_MONTH),
        usd_per_month=rounded(plan.usd_per_month, 12),
        tco_usd=rounded(c.usd_total, 12),
        watts=finite(c.watts),
        kwh=finite(c.kwh),
        kgco2e=finite(c.kgco2e),
        money=money_of(q, c),
        interval=intervals(q, c, draws),
        deadline_probability=in_time(q, c, draws),
        launch=launch_section(launched),
        launch_notes=list(launched.notes) if launched else [],
        optimization=steps,
        optimization_notes=notes,
        reasons=reasons(q, c),
        warnings=[*step.warnings, *warnings(q, c), *spot_warning(q, c), *launch_warnings(q, launched)],
    )


def reference_gib(q: Question, c: Candidate) -> float:
    """What stands beside the trained model on each accelerator during the update."""
    tuning = q.task.tuning
    if tuning is None:
        return 0.0
    run, chip = c.trained.layout.run, c.trained.accelerator
    return beside_bytes(tuning, q.catalog.model, run, servers_of(q.catalog), chip) / GIB


def finite(value: float) -> float | None:
    return rounded(value) if math.isfinite(value) else None


def fixed_of(q: Question, c: Candidate) -> FixedRun:
    """The layout as `estimate` takes it."""
    run, p, task = c.trained.layout.run, c.trained.layout.run.parallel, q.task
    asked = TrainingRun.model_validate(
        {
            "kind": q.section,
            "model": q.catalog.model.slug,
            "accelerator": c.trained.accelerator.slug,
            "sequence_length": run.sequence_tokens,
            "micro_batch": run.micro_batch,
            "micro_batches": run.micro_batches,
            **{name: getattr(p, name) for name in training_estimate.SIZES},
            "recompute": run.recompute,
            "offload": run.offload,
            "precision": c.trained.setup.precision,
            "method": task.method,
            "rank": task.adapter_rank or None,
            "optimizer": task.optimizer,
            "code": c.trained.setup.code,
            "compile": bool(run.code.compiled) and c.trained.setup.code != "megatron",
            "framework": c.trained.setup.framework,
        }
    )
    fixed = fixed_run(asked, q.snapshot.model["hf_id"], q.catalog.model, c.trained.accelerator)
    return replace(fixed, run=replace(fixed.run, longest_tokens=run.longest_tokens))


def label(q: Question, c: Candidate) -> str:
    run, p = c.trained.layout.run, c.trained.layout.run.parallel
    sizes = [f"{name.upper()}{n}" for name, n in (("tp", p.tp), ("pp", p.pp), ("cp", p.cp), ("ep", p.ep)) if n > 1]
    sharded = (
        ["" if run.offload != "none" else "FSDP" if p.zero >= 2 else "ZeRO-1" if p.zero else ""] if p.dp > 1 else []
    )
    method = "" if q.task.method == "full" else {"lora": "LoRA, ", "qlora": "QLoRA, "}[q.task.method]
    layout = " x ".join([*sizes, *([f"DP{p.dp}"] if p.dp > 1 else [])]) or "one accelerator"
    shard = f", {sharded[0]}" if sharded and sharded[0] else ""
    host = {"none": "", "optimizer": ", optimizer offloaded to the host", "all": ", offloaded to the host"}[run.offload]
    return f"{name_of(c)} in {c.trained.setup.precision.upper().replace('_', ' ')}, {method}{layout}{shard}{host}"


# --- time -------------------------------------------------------------------------------------------------------


def goodput_parts(q: Question, c: Candidate) -> GoodputParts:
    g, r = c.goodput, c.goodput_range
    expected = interruptions(c.chips, c.days, q.reliability.failures.failures_per_chip_day)
    mean = g.interruptions_per_day * c.days
    scale = mean / expected.value if expected.value else 1.0  # spot adds to failures
    return GoodputParts(
        **{name: rounded(getattr(g, name)) for name in LOST},
        fraction=rounded(g.fraction),
        low_fraction=rounded(r.low),
        high_fraction=rounded(r.high),
        interruptions=rounded(mean),
        interruptions_low=rounded(math.floor(expected.low * scale)),
        interruptions_high=rounded(math.ceil(expected.high * scale)),
        checkpoint_s=rounded(c.checkpoint.write_s),
        checkpoint_gib=rounded(c.saved_bytes / GIB),
        straggler_ratio=rounded(c.straggler_factor),
    )


def storage(q: Question, c: Candidate) -> Storage:
    kept = round(figure_of(q.spec, q.snapshot, "training-checkpoints-kept"))
    needed = storage_needed(
        c.saved_bytes, c.checkpoint.write_s, c.checkpoint.write_s, c.tokens_per_s, q.task.bytes_per_token,
        q.task.tokens, kept,
    )  # fmt: skip
    return Storage(
        capacity_bytes=rounded(needed.capacity_bytes),
        write_bytes_per_s=rounded(needed.write_bytes_per_s),
        load_bytes_per_s=rounded(needed.load_bytes_per_s),
        said=(
            f"Shared storage needs {size_text(needed.capacity_bytes)} for {kept} checkpoint"
            f"{'s' if kept != 1 else ''} and the data, {needed.write_bytes_per_s / 1e9:.3g} GB/s while a checkpoint of "
            f"{c.saved_bytes / 1e9:,.4g} GB is "
            f"written, and {needed.load_bytes_per_s / 1e6:.3g} MB/s for the data. The cost does not include shared "
            "storage: the catalog has no price for it."
        ),
    )


def size_text(size_bytes: float) -> str:
    """3.16 TB, or 1.45 GB."""
    return f"{size_bytes / 1e12:.3g} TB" if size_bytes >= 1e12 else f"{size_bytes / 1e9:.3g} GB"


def curve_of(q: Question, c: Candidate) -> list[Candidate]:
    """The same run on every number of these accelerators that was planned, in time or not."""
    return sorted(q.found.curves.get(c.trained.accelerator.slug, (c,)), key=lambda other: other.chips)


def point_of(c: Candidate) -> CurvePoint:
    return CurvePoint(chips=c.chips, step_s=c.step_s, goodput_fraction=c.goodput.fraction, days=c.days, usd=c.usd_total)


def scaling(q: Question, c: Candidate) -> list[ScalingPoint]:
    every = curve_of(q, c)
    return [
        ScalingPoint(
            accelerator_count=each.chips,
            step_s=rounded(each.step_s),
            tokens_per_s_per_accelerator=rounded(each.tokens_per_s / each.chips),
            goodput_fraction=rounded(each.goodput.fraction),
            days=rounded(each.days),
            usd_total=rounded(each.usd_total, 12),
            usd_per_run=rounded(each.usd_per_run, 12),
            gain_fraction=None if before is None else rounded(scaling_gain(point_of(before), point_of(each))),
            layout=layout_text(each),
            provider="owned" if each.offer.term == "owned" else each.offer.provider,
        )
        for before, each in zip([None, *every[:-1]], every, strict=True)
    ]


def layout_text(c: Candidate) -> str:
    p = c.trained.layout.run.parallel
    sizes = (("dp", p.dp), ("tp", p.tp), ("pp", p.pp), ("cp", p.cp), ("ep", p.ep))
    offload = c.trained.layout.run.offload
    moved = [f"offload {offload}"] if offload != "none" else []
    return " ".join([*(f"{name} {n}" for name, n in sizes if n > 1), f"ZeRO {p.zero}", *moved])


def best_size(q: Question, c: Candidate) -> Candidate:
    """The largest size at which another accelerator still pays."""
    every = curve_of(q, c)
    least = figure_of(q.spec, q.snapshot, "training-least-scaling-gain")
    last = pays_until([point_of(each) for each in every], least)
    return next(each for each in every if each.chips == last.chips)


# --- ranges -----------------------------------------------------------------------------------------------------


def intervals(q: Question, c: Candidate, draws: CostDraws) -> TrainingIntervals:
    """90% ranges of speed, time and cost."""
    low, high = q.speed_distribution(c).ends
    if low == high == 1.0:
        return TrainingIntervals()
    days, usd = ([number(float(np.quantile(drawn, at))) for at in QUANTILES] for drawn in (draws.days, draws.usd_total))
    monthly = c.planned.plan.usd_per_month / c.usd_total if c.usd_total else 0.0
    fields: dict[str, list[float | None]] = {
        "step_s": [number(c.step_s / high), number(c.step_s / low)],
        "tokens_per_s": [number(c.tokens_per_s * low), number(c.tokens_per_s * high)],
        "days": [min(days[0] or 0.0, c.days), max(days[1] or 0.0, c.days)],
        "usd_total": usd,
        "tco_usd": usd,
        "usd_per_month": [number((each or 0.0) * monthly) for each in usd],
    }
    if (ends := q.memory_ratios(c.trained.basis)) is not None:
        peak = c.trained.layout.memory.allocated_bytes / GIB
        fields["peak_allocated_gib"] = [number(peak * ratio) for ratio in ends]
    return TrainingIntervals(**fields)


def in_time(q: Question, c: Candidate, draws: CostDraws) -> float | None:
    limit = q.task.deadline_days
    return None if limit is None else rounded(float((draws.days + c.delivery_days <= limit).mean()), 4)


# --- beyond the run ---------------------------------------------------------------------------------------------


def serving(q: Question, c: Candidate) -> Sequence[Serving]:
    """What it takes to serve the trained model on the stacks that the team rates, other than the one it trains on."""
    here = c.trained.accelerator.stacks
    usd_per_day = float(q.snapshot.assumptions["operator-usd-per-year"]["value"]) / 230.0
    usd_per_day = float(q.spec["tco"].get("operator-usd-per-year", usd_per_day * 230.0)) / 230.0
    made = []
    for stack, level in sorted(q.workload.team):
        if stack in here or stack not in STACKS:
            continue
        days = conversion_days(level)
        usd = conversion_usd(days, usd_per_day)
        made.append(
            Serving(
                stack=stack,
                engineer_days=[rounded(days.low), rounded(days.value), rounded(days.high)],
                usd=[rounded(usd.low), rounded(usd.value), rounded(usd.high)],
                said=(
                    f"Serving the trained model on {stack} takes about {days.value:.2g} engineer-days once "
                    f"({days.low:.2g} to {days.high:.2g}) with a team at level {level} of 5: {usd_text(usd.value)}."
                ),
            )
        )
    return made


def launch_of(q: Question, c: Candidate) -> TrainingLaunch | None:
    """The files of the launcher that expresses most of the plan; None: there is none for this vendor."""
    chip, interval = c.trained.accelerator, c.goodput.interval_s
    together = min(c.offer.tensor_parallel_chips, c.chips)  # chips that are rented one by one share a host
    place = TrainingPlace(
        model_id=q.snapshot.model["hf_id"],
        vendor=chip.vendor,
        hosts=math.ceil(c.chips / together),
        chips_per_host=together,
        kubernetes_resource=chip.kubernetes_resource,
        tokens=q.task.tokens,
        checkpoint_interval_s=interval if math.isfinite(interval) else None,
        step_s=c.step_s,
        continued=q.task.continued,
        devices_per_chip=chip.devices,
        kubernetes_devices_per_chip=chip.kubernetes_devices,
    )
    try:
        return training_launch(c.trained.layout.run, place, c.trained.setup.framework)
    except ValueError:  # no launcher is known for this vendor
        return None


def launch_section(found: TrainingLaunch | None) -> Launch:
    """Command and files, and the lists of the releases in which every option was found."""
    if found is None:
        return Launch(command="", files={})
    launcher = LAUNCHERS[found.framework]
    source = ", ".join(launcher.options)
    flags = FlagCheck(checked=launcher.released, unknown=[], source=source if launcher.released else UNRELEASED)
    return Launch(command=found.command, files=dict(found.files), flags=flags)


def release_of(found: TrainingLaunch | None) -> str:
    """The release that the options were checked against, such as 0.3.1."""
    return LAUNCHERS[found.framework].options[0].rpartition("-")[2] if found else ""


def launch_warnings(q: Question, found: TrainingLaunch | None) -> list[str]:
    if q.task.tuning is not None:
        return [
            f"no launch file is written for {q.task.tuning.name.upper()}: the options of its trainers have not been "
            "checked against a release; the layout above is for a framework of your choice"
        ]
    if found is None:
        return ["no launch files are written for this vendor's chips"]
    return [] if found.runs_plan else [f"no launcher runs this layout unchanged; {found.title} differs: see its notes"]


def optimization(q: Question, c: Candidate) -> tuple[list[TrainingStep], list[str]]:
    """What each technique of the layout gains on this chip, and notes on stability."""
    chip, run = c.trained.accelerator, c.trained.layout.run
    steps = technique_steps(q.catalog.model, chip, efficiency_on(q.catalog.scopes, chip), run)
    made = [
        TrainingStep(
            name=step.name,
            said=step.said if step.fits else f"{step.said}; does not fit in memory yet",
            step_s=rounded(step.step_s) if step.fits else None,
            tokens_per_s=rounded(step.tokens_per_s) if step.fits else None,
            peak_gib=rounded(step.peak_bytes / GIB),
            gain_ratio=None if step.gain_ratio is None else rounded(step.gain_ratio),
        )
        for step in steps
    ]
    only = ["these gains are of the policy update alone, not of the whole iteration"] if q.task.tuning else []
    return made, [*only, *stability_notes(run)]
