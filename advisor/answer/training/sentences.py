"""What a training answer says in words: verdict, reasons, warnings, scaling."""

import math
from collections.abc import Sequence
from itertools import pairwise

from advisor.answer.estimates.preference import UNCHECKED
from advisor.answer.ranking import doubt_warnings, sold_out_warnings, unit_warnings
from advisor.answer.sentences import likely
from advisor.answer.training.question import Question, name_of
from advisor.engine.cost import HOURS_PER_MONTH
from advisor.engine.network import parameters
from advisor.engine.search import efficiency_on
from advisor.engine.terms import OWNED, usd_text
from advisor.engine.training import Rates, forward_s, rates_of
from advisor.engine.training_search import (
    Candidate,
    budget_named,
    deadline_days,
    delivery_days,
    duration,
    smaller_tasks,
)
from advisor.result import TrainingOption
from advisor.workload import LONGEST_RATIO

NEAR_FULL_FRACTION = 0.97  # of an accelerator's memory: a small error would not fit
WORTH_SAYING = 0.01
DAYS_PER_MONTH = HOURS_PER_MONTH / 24.0
MORE_THAN_ITS_SHARE = 1.02


def plain(number: float) -> str:
    """4,100 or 0.21"""
    return f"{number:,.0f}" if number >= 10 else f"{number:.2g}"


def count(number: float, digits: int = 3) -> str:
    """2.0T, 70.6B, 350M"""
    for size, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M")):
        if number >= size:
            return f"{number / size:.{digits}g}{letter}"
    return f"{number:,.0f}"


def verdict(q: Question, shown: list[Candidate], first: TrainingOption | None) -> str:
    """The choice, its time and its cost, and whether it meets the deadline; or what comes closest."""
    if not shown or first is None:
        return nothing(q)
    c, task = shown[0], q.task
    how = acquired(q, c)
    what = {"full": "Train", "lora": "Tune LoRA adapters", "qlora": "Tune QLoRA adapters"}[task.method]
    what += f" with {task.tuning.name.upper()}" if task.tuning else ""
    per = "per run" if task.every_days else "in all"
    usd = c.usd_per_run
    ends = [usd * end / c.usd_total for end in first.interval.usd_total or () if end and c.usd_total]
    spread = f" (90% range {usd_text(ends[0])} to {usd_text(ends[1])})" if len(ends) == 2 else ""
    said = (
        f"{what} on {name_of(c)} in {c.trained.setup.precision.upper().replace('_', ' ')}, {how}: "
        f"{amount(q, c)} take {duration(c.days)} and cost {usd_text(usd)} {per}{spread}."
    )
    if task.deadline_days is None:
        most = f"up to {deadline_days(q.workload):g} days"
        between = ", the time between two of them," if task.every_days == deadline_days(q.workload) else ""
        said += f" No deadline is given, so runs of {most}{between} are considered."
    return said + deadline_said(first) + undelivered(q, c)


def deadline_said(first: TrainingOption) -> str:
    """The probability of meeting the deadline; empty without a deadline."""
    if first.deadline_probability is None:
        return ""
    return (
        f" It meets the deadline of {first.deadline_days:g} days with {likely(first.deadline_probability)} probability."
    )


def undelivered(q: Question, c: Candidate) -> str:
    """That servers could be bought, but would arrive too late; empty: they would not, or the run waits for them."""
    offers = q.offers_of(c.trained.accelerator)
    bought = [o for o in offers if o.acquisition == "own" and o.term != OWNED]
    wait = delivery_days(q.workload, bought)
    if not bought or c.delivery_days or wait + c.days <= deadline_days(q.workload):
        return ""
    return (
        f" Buying is ruled out: delivery takes about {wait / DAYS_PER_MONTH:.3g} months "
        f"(tco.purchase-lead-months), and the run must end within {deadline_days(q.workload):g} days."
    )


def amount(q: Question, c: Candidate) -> str:
    """How much the run trains on: 50M tokens, 20,000 pairs, 500 iterations of 256 responses."""
    task, section = q.task, q.spec[q.section]
    if task.tuning is None:
        return f"{count(task.tokens)} tokens"
    if task.tuning.name == "dpo":
        return f"{section['pairs']:,} preference pairs"
    run = c.trained.layout.run
    return f"{c.steps:,} iterations of {run.global_tokens // run.sequence_tokens:,} responses"


def acquired(q: Question, c: Candidate) -> str:
    kinds = {step.way for step in c.planned.plan.schedule.commitments}
    ways = {c.planned.plan.ways[i].kind for i in kinds}
    if "bought" in ways:
        return f"bought for {c.months} months of runs" if q.task.every_days else "bought for the run and sold after it"
    if "owned" in ways:
        return "which you own"
    if "term" in ways:
        return f"reserved at {c.offer.provider}"
    if c.offer.term == "spot":
        return f"as spot instances at {c.offer.provider}"
    return f"rented from {c.offer.provider} by the hour"


def nothing(q: Question) -> str:
    late = q.found.too_late
    if late:
        c = min(late.values(), key=lambda each: each.end_days)
        limit = deadline_days(q.workload)
        name = budget_named(q.workload)
        keeps, or_pay = (f" and keeps {name}", f", raise {name}") if name else ("", "")
        return (
            f"No run ends within {limit:g} days{keeps}. The fastest is {name_of(c)}: {duration(c.days)}{waits(c)}. "
            f"Raise {q.section}.deadline_days to {math.ceil(c.end_days)}{or_pay}, or {or_rent(c)}."
        )
    if any(r.reason == "misses_deadline" for r in q.found.rejections):
        return (
            f"No run ends within {deadline_days(q.workload):g} days. Allow more days or more accelerators, or train on "
            "fewer tokens. The table of rejections says how long each accelerator takes."
        )
    task = q.task
    recompute = [] if "full" in task.recompute else [f"{q.section}.recompute: auto"]
    less = [*recompute, *(change.said for change, _ in smaller_tasks(task, q.section))]
    helps = f" Less memory is needed with {' or '.join(less)}." if less else ""
    said = "No accelerator that your constraints allow can hold this run."
    return f"{said} The table of rejections says what each one lacks.{helps}"


def waits(c: Candidate) -> str:
    return f" after about {c.delivery_days:,.0f} days until bought servers arrive" if c.delivery_days else ""


def or_rent(c: Candidate) -> str:
    return (
        "rent, or set tco.purchase-lead-months to your supplier's delivery time"
        if c.delivery_days
        else "train on fewer tokens"
    )


def reasons(q: Question, c: Candidate) -> list[str]:
    """Why this layout, and what its time is made of."""
    run, t = c.trained.layout.run, c.trained.step
    what = "an iteration" if q.task.tuning and q.task.tuning.rollout else "a step"
    said = [
        f"the fastest of {c.trained.candidates:,} layouts on {c.chips:,} accelerators: {what} of "
        f"{run.global_tokens:,} tokens takes {c.step_s:.3g} s",
        *phase_text(c, what),
    ]
    if run.offload != "none":
        said.append(offload_text(c))
    exposed, bubble = float(t.exposed_s / t.step_s), float(t.bubble_s / t.step_s)
    parts = [
        f"{share:.0%} {name}"
        for share, name in ((exposed, "communication that nothing hides"), (bubble, "pipeline bubble"))
        if share >= WORTH_SAYING
    ]
    if parts:
        said.append(f"of the {'policy update' if q.task.tuning else 'step'}, {' and '.join(parts)}")
    lost = 1.0 - c.goodput.fraction
    said.append(
        f"{c.goodput.fraction:.1%} of the time trains: about {plain(c.goodput.interruptions_per_day * c.days)} "
        f"interruptions are expected, and a checkpoint every {interval_text(c)} loses the least"
        if lost > 5e-4
        else "hardly an interruption is expected in so short a run"
    )
    if c.spare_hosts:
        said.append(f"{c.spare_hosts} spare host{'s' if c.spare_hosts != 1 else ''} cost less than waiting for repairs")
    return said


def offload_text(c: Candidate) -> str:
    """What is offloaded, and what it costs."""
    run, t = c.trained.layout.run, c.trained.step
    kept = "optimizer states and master weights" if run.offload == "optimizer" else "weights and optimizer states"
    share = float(t.offload_s / t.step_s)
    return (
        f"it fits only with {kept} in host memory (DeepSpeed ZeRO-Offload): transfers over PCIe and the update on the "
        f"host's processors are {share:.0%} of the step"
    )


def phase_text(c: Candidate, what: str) -> list[str]:
    """What an iteration is made of."""
    if not c.trained.phases:
        return []
    shares = ", ".join(f"{p.time_s / c.trained.iteration_s:.0%} {p.name}" for p in c.trained.phases)
    return [f"{what} is {shares}"]


def tuning_warnings(q: Question, c: Candidate) -> list[str]:
    """What a composed step leaves open."""
    tuning = q.task.tuning
    if tuning is None:
        return []
    said = [UNCHECKED]
    if tuning.reference == "precomputed":
        t = c.trained
        seconds = forward_s(q.catalog.model, t.layout.run, rates_of_run(q, c), t.step) * c.steps
        said.append(
            "computing the log-probabilities of the reference is not part of the run: about "
            f"{duration(seconds / 86_400.0)} on these machines if no pair repeats"
        )
    if tuning.rollout is not None:
        said.append(
            "each sequence is padded to the prompt and the longest response, as TRL pads a batch; packing would "
            "shorten the update"
        )
        if not q.spec[q.section].get("longest_response_tokens"):
            said.append(
                f"the longest response is assumed to have {LONGEST_RATIO} times the mean tokens: set "
                f"{q.section}.longest_response_tokens to your limit"
            )
    return said


def rates_of_run(q: Question, c: Candidate) -> Rates:
    run, chip = c.trained.layout.run, c.trained.accelerator
    return rates_of(chip, efficiency_on(q.catalog.scopes, chip), run.recipe, run.code)


def interval_text(c: Candidate) -> str:
    s = c.goodput.interval_s
    if not math.isfinite(s):
        return "day"
    return f"{s / 60:.2g} minutes" if s < 5400 else f"{s / 3600:.2g} hours"


def warnings(q: Question, c: Candidate) -> list[str]:
    """What to check before signing."""
    said = tuning_warnings(q, c)
    if c.offer.weakness:
        said.append(f"weak price: {c.offer.weakness}")
    said += sold_out_warnings(c.offer.provider, c.offer.sold_out_on)
    hourly = c.planned.plan.usd_per_month / HOURS_PER_MONTH
    said += [*doubt_warnings(c.offer), *unit_warnings(c.offer, c.instances * c.offer.accelerators, hourly)]
    peak, chip, task = c.trained.layout.memory.allocated_bytes, c.trained.accelerator, q.task
    if peak > NEAR_FULL_FRACTION * chip.memory_bytes:
        said.append("the peak is within 3% of the memory: try it, or use a smaller micro-batch")
    if abs(c.trained.layout.run.micro_batch * c.trained.layout.run.micro_batches * c.trained.layout.run.parallel.dp
           - task.global_batch) > 0:  # fmt: skip
        said.append(
            f"the global batch is {c.trained.layout.run.global_tokens:,} tokens instead of {task.global_tokens:,}, so "
            "that it divides over the accelerators"
        )
    if c.trained.setup.precision in ("fp8", "mxfp8", "nvfp4"):
        said.append(
            f"{c.trained.setup.precision.upper()} needs a loss curve compared with BF16 on your data before the long "
            "run; set precision: bf16 to rank BF16 alone"
        )
    size = parameters(q.catalog.model)
    if q.workload.kind.trains_whole_model and not task.continued and task.tokens < 5 * size:
        said.append(
            f"{count(task.tokens)} tokens are {plain(task.tokens / size)} per parameter; compute-optimal training from "
            "scratch takes about 20 (Hoffmann et al. 2022)"
        )
    if c.offer.acquisition != "own" and c.instances > 4:
        said.append(f"{c.instances:,} instances at once need a capacity agreement with {c.offer.provider}: ask first")
    return said


def scaling_text(q: Question, c: Candidate, last: Candidate) -> str:
    """Where more accelerators stop paying."""
    same = q.found.curves.get(c.trained.accelerator.slug, (c,))
    if len(same) < 2:
        return "No other size of this accelerator was possible."
    largest = max(same, key=lambda each: each.chips)
    if last.chips >= largest.chips:
        return f"More accelerators pay up to {largest.chips:,}, the most that was tried.{faster_layouts(same)}"
    return (
        f"Beyond {last.chips:,} accelerators ({duration(last.days)}, {usd_text(last.usd_per_run)}) more of them stop "
        f"paying: each added one brings less than half of its share of speed.{faster_layouts(same)}"
    )


def faster_layouts(same: Sequence[Candidate]) -> str:
    """Why a size gains more speed than it adds accelerators."""
    every = sorted(same, key=lambda c: c.chips)
    for before, c in pairwise(every):
        each, was = (one.tokens_per_s / one.chips for one in (c, before))
        if each > was * MORE_THAN_ITS_SHARE:
            casts = c.trained.layout.run.recipe != before.trained.layout.run.recipe
            adapts = c.trained.layout.run.recipe.method != "full"
            why = "a faster layout fits"
            if casts:
                why = (
                    "FSDP casts the adapters to BF16, while one accelerator alone multiplies them in FP32, which PEFT "
                    "stores by default"
                    if adapts
                    else "it keeps the trained weights in 16 bits, which one accelerator alone does not by default"
                )
            return (
                f" Each of {c.chips:,} accelerators is {each / was - 1.0:.0%} faster than each of {before.chips:,}: "
                f"{why}."
            )
    return ""
