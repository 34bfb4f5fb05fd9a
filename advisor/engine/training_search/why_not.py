"""Why a chip has no ranked run: the value, the limit, and the smallest change that lets a run pass."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from advisor.engine.search import MAX_RANKED, Question
from advisor.engine.terms import Accelerator, Change, Rejection, TrainingTask, Workload, limit_change, listed, usd_text
from advisor.engine.training import BF16_MASTER, host_bytes
from advisor.engine.training_search.layouts import Setup, Trained, least_gib, may_offload, setups_of, task_of, trained
from advisor.engine.training_search.outcome import Candidate

LONGEST_DAYS = 120.0  # of a run without a deadline: BLOOM 176B took 3.5 months (arXiv 2211.05100)
BEST_MFU = 0.75  # above every published utilization: what bounds the fewest chips that can make a deadline
METHODS = ("full", "lora", "qlora")  # each needs less memory than the one before
DEFAULT_RANK = 16  # of adapters, where another method is tried


def deadline_days(workload: Workload) -> float:
    """The longest run that may be ranked."""
    task = task_of(workload)
    limits = [task.deadline_days or LONGEST_DAYS, *([task.every_days] if task.every_days else [])]
    return min(limits)


@dataclass(frozen=True, kw_only=True, slots=True)
class Tried:
    """What was tried on a chip that has no run in time, within the limits and in memory."""

    found: tuple[Candidate, ...]
    timed: int  # layouts
    least: int  # chips that could end in time
    most: int  # chips that an offer connects, within the limits on accelerators; 0: not even its smallest instance
    smallest: int  # chips of the smallest instance
    setups: tuple[Setup, ...]
    planned: Callable[[Workload], Sequence[Candidate]]  # the runs of another question on this chip


def why_not(question: Question, a: Accelerator, tried: Tried) -> Rejection:
    """Why no run of a chip is in time, within the limits and in memory, and the smallest change that lets one pass."""
    workload = question.workload
    task, most = task_of(workload), tried.most
    if tried.found:
        return too_late(workload, a, tried.found)
    if not most:
        return too_many(workload, a, tried.smallest)
    if tried.timed and (name := budget_named(workload)):
        return too_expensive(workload, a, tried, name)
    if tried.timed:
        return Rejection(
            accelerator=a.slug, reason="misses_deadline",
            detail="no run on the accelerators that are connected ends within the horizon",
            dead_end=f"too few {a.name} are connected for {task.tokens:.3g} tokens within the horizon",
        )  # fmt: skip
    if most < tried.least:
        bound = 2.0 * deadline_days(workload) * tried.least / max(most, 1)
        return Rejection(
            accelerator=a.slug, reason="misses_deadline",
            detail=f"{connected(most)}: at {BEST_MFU:.0%} of the peak the run would take more than "
            f"{bound:,.0f} days; the limit is {deadline_days(workload):g} days",
            limit=deadline_days(workload), reached=bound,
            dead_end=f"{task.tokens:.3g} tokens take at least {tried.least:,} x {a.name}, and {most:,} are connected",
        )  # fmt: skip
    return too_large(question, a, tried)


def too_many(workload: Workload, a: Accelerator, smallest: int) -> Rejection:
    """The smallest instance has more chips than the limits allow or the batch has work for."""
    if not smallest:
        reason = "no offer of it satisfies the constraints"
        return Rejection(accelerator=a.slug, reason="unpriced", detail=reason, dead_end=reason)
    c = workload.constraints
    limits = {"constraints.max_accelerators": c.max_accelerators, f"inventory.{a.slug}": c.inventory_chips.get(a.slug)}
    over = {path: limit for path, limit in limits.items() if limit is not None and limit < smallest}
    changes = tuple(limit_change(path, ">=", smallest) for path in over)
    said = " and ".join(f"{path} is {limit}" for path, limit in over.items())
    return Rejection(
        accelerator=a.slug, reason="too_many",
        detail=f"the smallest instance has {smallest:,} accelerators"
        + (f"; {said}" if over else ", more than the sequences of one step can use"),
        limit=float(min(over.values())) if over else None, reached=float(smallest),
        smallest_change=listed(changes), changes=changes,
        dead_end="" if over else f"one step has too few sequences for {smallest:,} x {a.name}",
    )  # fmt: skip


def too_late(workload: Workload, a: Accelerator, found: Sequence[Candidate]) -> Rejection:
    """The fastest run, and the deadline that it keeps."""
    task, section = task_of(workload), workload.kind.name
    best, limit = min(found, key=lambda c: c.end_days), deadline_days(workload)
    change = limit_change(f"{section}.deadline_days", ">=", math.ceil(best.end_days))
    name = budget_named(workload)
    kept = f" that keeps {name}" if name else ""
    limited = (
        f"the deadline of {limit:g} days"
        if task.deadline_days is not None
        else f"{limit:g} days, the longest run without a deadline"
    )
    waits = (
        f" after about {best.delivery_days:,.0f} days until bought servers arrive (tco.purchase-lead-months)"
        if best.delivery_days
        else ""
    )
    return Rejection(
        accelerator=a.slug,
        reason="misses_deadline",
        detail=f"the fastest run{kept}, on {best.chips:,} accelerators, takes {duration(best.days)}{waits}; the limit "
        f"is {limited}",
        limit=limit,
        reached=best.end_days,
        smallest_change=change.said,
        changes=(change,),
    )


def too_expensive(workload: Workload, a: Accelerator, tried: Tried, name: str) -> Rejection:
    """The run in time that exceeds the limits on payments by the least, and the limits that it keeps."""
    c = workload.constraints
    free = replace(workload, constraints=replace(c, max_usd_per_month=None, max_capex_usd=None))
    found = tried.planned(free)
    paid: dict[str, Callable[[Candidate], float]] = {
        "max_usd_per_month": lambda one: one.planned.plan.most_usd_per_month,
        "max_capex_usd": lambda one: one.planned.plan.capex_usd,
    }
    limits: dict[str, float] = {field: limit for field in paid if (limit := getattr(c, field)) is not None}

    def excess(one: Candidate) -> float:
        return max(paid[field](one) / max(limit, 1e-9) for field, limit in limits.items())

    best = min((one for one in found if one.end_days <= deadline_days(workload)), key=excess, default=None)
    if best is None:
        return Rejection(
            accelerator=a.slug, reason="too_expensive",
            detail=f"no plan of a run on it keeps {name}, and without it no run ends in time",
            dead_end=f"every plan of this run on {a.name} exceeds {name} or ends too late",
        )  # fmt: skip
    over = [field for field, limit in limits.items() if paid[field](best) > limit]
    worst = max(over, key=lambda field: paid[field](best) / max(limits[field], 1e-9))
    changes = tuple(limit_change(f"constraints.{field}", ">=", math.ceil(paid[field](best))) for field in over)
    return Rejection(
        accelerator=a.slug,
        reason="too_expensive",
        detail=f"the run that comes closest, on {best.chips:,} accelerators for {duration(best.days)}, pays "
        + " and ".join(
            f"{paid_text(field, paid[field](best))}; the limit is {usd_text(limits[field])}" for field in over
        ),
        limit=limits[worst],
        reached=paid[worst](best),
        smallest_change=listed(changes),
        changes=changes,
    )


def paid_text(field: str, usd: float) -> str:
    what = "in its most expensive month" if "month" in field else "for purchases"
    return f"{usd_text(usd)} {what} (constraints.{field})"


def too_large(question: Question, a: Accelerator, tried: Tried) -> Rejection:
    """The memory that the smallest layout needs, and the method or sequence length with which a run fits."""
    workload = question.workload
    task, section = task_of(workload), workload.kind.name
    room, needed = a.memory_bytes / 2.0**30, least_gib(question, a, tried.setups, tried.most)
    change = next(
        (
            change
            for change, other in smaller_tasks(task, section)
            if any(
                isinstance(
                    trained(
                        replace(question, workload=replace(question.workload, training=other)), a, setup, tried.most
                    ),
                    Trained,
                )
                for setup in setups_of(a, other, workload.kind.trains_whole_model)
            )
        ),
        None,
    )
    needs = (
        f"the smallest layout needs {needed:,.4g} GiB on each, of {room:,.4g} GiB"
        if needed > room and math.isfinite(needed)
        else f"no layout fits the states and activations in {room:,.0f} GiB each"
    )
    return Rejection(
        accelerator=a.slug, reason="does_not_fit",
        detail=f"{connected(tried.most)}: {needs}{beside_host(question, a)}",
        limit=room, reached=needed if math.isfinite(needed) else None,
        smallest_change=change.said if change else "", changes=(change,) if change else (),
        dead_end="" if change else f"no number of {a.name} that is connected holds the model with this method",
    )  # fmt: skip


def beside_host(question: Question, a: Accelerator) -> str:
    """That offload fits no better, where it is tried; empty: it is not."""
    if not may_offload(question.workload, a):
        return ""
    needed = host_bytes(question.catalog.model, BF16_MASTER, "all", 1, 1)
    return f". Offload to host memory, which needs {needed / 2**30:,.0f} GiB in all, was tried and does not fit either"


def smaller_tasks(task: TrainingTask, section: str) -> Iterator[tuple[Change, TrainingTask]]:
    """Runs that need less memory, the smallest change first."""
    for method in ("lora", "qlora"):
        if section == "finetuning" and METHODS.index(method) > METHODS.index(task.method):
            field, rank = f"{section}.method", task.adapter_rank or DEFAULT_RANK
            yield (
                Change(field=field, value=method, said=f"{field}: {method}"),
                replace(task, method=method, adapter_rank=rank),
            )
    if task.tuning is not None and task.tuning.rollout is not None:
        return  # its sequences follow from prompts and responses
    for tokens in (task.sequence_tokens // 2, task.sequence_tokens // 4):
        yield (
            limit_change(f"{section}.sequence_length", "<=", tokens),
            replace(task, sequence_tokens=tokens, global_batch=task.global_batch * task.sequence_tokens // tokens),
        )


def budget_named(workload: Workload) -> str:
    """The limits on payments by their fields; empty: there are none."""
    c = workload.constraints
    limits = {"max_usd_per_month": c.max_usd_per_month, "max_capex_usd": c.max_capex_usd}
    return " and ".join(f"constraints.{name}" for name, limit in limits.items() if limit is not None)


def connected(most: int) -> str:
    if most <= 1:
        return "no offer connects several of them"
    return f"the largest offer connects {most:,} of them"


def duration(days: float) -> str:
    """3.5 days, 7.2 hours, 12 minutes"""
    hours = days * 24.0
    if days >= 2.0:
        return f"{days:,.3g} days"
    return f"{hours:.3g} hours" if hours >= 1.5 else f"{hours * 60.0:.3g} minutes"


def outranked(workload: Workload, first: Candidate, c: Candidate) -> Rejection:
    """A feasible run beyond the ranking."""
    ratio = c.usd_total / first.usd_total - 1.0
    detail = (
        f"feasible: {c.chips:,} accelerators, {duration(c.days)}, {usd_text(c.usd_total)}, "
        f"{abs(ratio):.0%} {'more' if ratio >= 0 else 'less'} than the first choice"
    )
    dead_end = f"it ranks behind {MAX_RANKED} others by {workload.objective}"
    return Rejection(accelerator=c.trained.accelerator.slug, reason="outranked", detail=detail, dead_end=dead_end)
