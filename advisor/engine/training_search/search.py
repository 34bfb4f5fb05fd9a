"""The search of a training question: every chip, size, precision and seller, and why each other chip is not ranked."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from advisor.engine.search import MAX_RANKED, Catalog, admissible, allowed, weights_of
from advisor.engine.spec import OWNED, Accelerator, Offer, Rejection, Workload, limit_change
from advisor.engine.training import BF16_MASTER, Run, host_bytes, model_flops
from advisor.engine.training_search.layouts import (
    Setup,
    Trained,
    holds_states,
    may_offload,
    offloaded,
    setups_of,
    sizes,
    task_of,
    trained,
    untrainable,
)
from advisor.engine.training_search.outcome import Candidate, Reliability, candidate

LONGEST_DAYS = 120.0  # of a run without a deadline: BLOOM 176B took 3.5 months (arXiv 2211.05100)
MORE = 4.0  # sizes up to this many times the smallest that makes the deadline are tried under `cost`
BEST_MFU = 0.75  # above every published utilization: what bounds the fewest chips that can make a deadline
EQUAL_FRACTION = 0.01
VIEWS = ("cheapest", "fastest", "greenest", "simplest")

Progress = Callable[[str, float], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """The ranked runs, everything beside them on their chips, and why other chips are not ranked."""

    ranked: tuple[Candidate, ...]
    by_chip: Mapping[str, tuple[Candidate, ...]]  # every candidate that was planned, by number of chips
    rejections: tuple[Rejection, ...]
    views: Mapping[str, int]  # view to index of `ranked`
    evaluated: int  # layouts that were timed
    planned: int
    curves: Mapping[str, tuple[Candidate, ...]] = field(default_factory=dict)  # of each chip all sizes, late ones too
    too_late: Mapping[str, Candidate] = field(default_factory=dict)  # the fastest of chips that miss the deadline


def deadline_days(workload: Workload) -> float:
    """The longest run that may be ranked."""
    task = task_of(workload)
    limits = [task.deadline_days or LONGEST_DAYS, *([task.every_days] if task.every_days else [])]
    return min(limits)


def search(workload: Workload, catalog: Catalog, r: Reliability, progress: Progress | None = None) -> Found:
    """Ranks the best run of each chip by the objective."""
    rejections, chips = admissible(workload, catalog)
    refused, made, late = list(rejections), dict[str, tuple[Candidate, ...]](), dict[str, Candidate]()
    curves: dict[str, tuple[Candidate, ...]] = {}
    evaluated = planned = 0
    for place, a in enumerate(chips):
        if progress:
            progress("searching layouts", place / len(chips))
        offers = [o for o in catalog.offers if o.sells(a) and allowed(o, workload.constraints)]
        setups = setups_of(a, task_of(workload), workload.kind.trains_whole_model)
        refusal = untrainable(a, task_of(workload), setups)
        if refusal is not None:
            refused.append(refusal)
            continue
        found, timed = of_chip(workload, catalog, r, a, setups, offers)
        evaluated, planned = evaluated + timed, planned + len(found)
        curves[a.slug] = tuple(found)
        in_time = [c for c in found if c.days <= deadline_days(workload)]
        if in_time:
            made[a.slug] = tuple(in_time)
        else:
            refused.append(
                why_not(
                    workload,
                    catalog,
                    a,
                    found,
                    timed,
                    fewest_chips(workload, catalog, a),
                    max(sizes(workload, a, offers), default=0),
                )
            )
            late |= {a.slug: min(found, key=lambda c: c.days)} if found else {}
    best = {slug: min(some, key=score_of(workload, made)) for slug, some in made.items()}
    order = sorted(best.values(), key=score_of(workload, made))
    ranked = order[:MAX_RANKED]
    refused += [outranked(workload, ranked[0], c) for c in order[MAX_RANKED:]]
    ranked += [c for c in on_owned(made, score_of(workload, made)) if not any(c is other for other in ranked)]
    ranked, views = with_views(ranked, [c for some in made.values() for c in some])
    return Found(
        ranked=tuple(ranked), by_chip=made, rejections=tuple(refused), views=views, evaluated=evaluated,
        planned=planned, curves=curves, too_late=late,
    )  # fmt: skip


# --- one chip ---------------------------------------------------------------------------------------------------


def of_chip(
    workload: Workload,
    catalog: Catalog,
    r: Reliability,
    a: Accelerator,
    setups: Sequence[Setup],
    offers: Sequence[Offer],
) -> tuple[list[Candidate], int]:
    """(the cheapest plan of each size with its fastest layout, layouts that were timed)."""
    made: list[Candidate] = []
    timed, first = 0, 0
    least = fewest_chips(workload, catalog, a)
    for chips, sellers in sizes(workload, a, offers).items():
        more = bool(first) and chips > MORE * first and workload.objective == "cost"
        if chips < least or (more and not owns(sellers, made)):
            continue
        best = fastest_of(trained(workload, catalog, a, setup, chips) for setup in setups)
        groups = by_seller(sellers if best else [o for o in sellers if holds_states(catalog.model, chips, o)])
        runs = [(best or offloaded(workload, catalog, a, chips, same[0]), same) for same in groups]
        timed += max((t.candidates for t, _ in runs if t is not None), default=0)
        plans = [candidate(workload, catalog, r, t, same) for t, same in runs if t is not None]
        some = [c for c in plans if c is not None]
        if some:
            made.append(min(some, key=lambda c: c.usd_total))
            in_time = made[-1].days <= deadline_days(workload)
            first = first or (chips if in_time and best else 0)  # offload is slow: more chips may cost less
    return made, timed


def owns(sellers: Sequence[Offer], made: Sequence[Candidate]) -> bool:
    """Whether a size is tried although rents begin with much smaller ones: servers to own have several accelerators.

    All that are already owned, and the smallest server that can be bought.
    """
    tried = {c.chips for c in made}
    return any(
        o.term == OWNED or (o.acquisition == "own" and not any(chips >= o.accelerators for chips in tried))
        for o in sellers
    )


def fastest_of(runs: Iterator[Trained | None]) -> Trained | None:
    return min((t for t in runs if t is not None), key=lambda t: t.layout.step_s, default=None)


def fewest_chips(workload: Workload, catalog: Catalog, a: Accelerator) -> int:
    """A lower bound of the chips that can finish in twice the time, at a utilization that no run reaches."""
    task = task_of(workload)
    per_token = model_flops(catalog.model, Run(sequence_tokens=task.sequence_tokens)) / task.sequence_tokens
    peaks = [rate for dtype, rate in a.flops_per_s.items() if dtype in ("bf16", "fp16", "fp8", "fp4")]
    share = 1.0 if task.method == "full" else 2.0 / 3.0
    peak = max(peaks, default=math.inf) * BEST_MFU * deadline_days(workload) * 2.0 * 86_400.0
    return math.floor(per_token * share * task.tokens / peak)


def by_seller(offers: Sequence[Offer]) -> list[tuple[Offer, ...]]:
    """Offers that one run may combine: one's own hosts of one size, or one provider's instances in one region.

    Of each provider the cheapest region stands for all; spot and other terms are apart, for spot changes the goodput.
    """
    groups: dict[tuple[str, ...], list[Offer]] = {}
    for o in offers:
        own = o.acquisition == "own"
        key: tuple[str, ...] = ("own", str(o.accelerators)) if own else (o.provider, o.region, str(o.term == "spot"))
        groups.setdefault(key, []).append(o)
    kept: dict[tuple[str, ...], tuple[Offer, ...]] = {}
    for key, group in groups.items():
        terms: dict[str, Offer] = {}
        for o in sorted(group, key=lambda o: o.usd_per_hour / o.accelerators):
            terms.setdefault(o.term, o)
        seller = key if key[0] == "own" else (key[0], key[2])
        chosen = tuple(terms.values())
        if seller not in kept or _rate(chosen) < _rate(kept[seller]):
            kept[seller] = chosen
    rents = sorted((some for key, some in kept.items() if key[0] != "own"), key=_rate)
    return [*(some for key, some in kept.items() if key[0] == "own"), *rents[:MOST_SELLERS]]


MOST_SELLERS = 3  # rents that are planned: the cheapest by the hour


def _rate(offers: Sequence[Offer]) -> float:
    return min(o.usd_per_hour / o.accelerators for o in offers)


# --- ranking ----------------------------------------------------------------------------------------------------


def score_of(workload: Workload, made: Mapping[str, Sequence[Candidate]]) -> Callable[[Candidate], float]:
    """The objective; lower is better, and cost breaks ties."""
    every = [c for some in made.values() for c in some]
    least = {
        name: min((f for c in every if math.isfinite(f := figure(c, name)) and f > 0), default=1.0)
        for name in ("cost", "latency", "energy", "carbon")
    }
    middle = float(np.median([c.kwh for c in every if math.isfinite(c.kwh)] or [1.0]))

    def score(c: Candidate) -> float:
        tie = 1e-9 * c.usd_total / max(least["cost"], 1e-9)
        if workload.objective in ("latency", "throughput"):
            return c.days / least["latency"] + tie
        if workload.objective in ("energy", "carbon"):
            used = figure(c, workload.objective)
            return (used / least[workload.objective] if math.isfinite(used) else 1e12) + tie
        if workload.objective == "balanced":
            w = weights_of(workload)
            kwh = c.kwh if math.isfinite(c.kwh) else middle
            return (
                w["cost"] * c.usd_total / least["cost"]
                + w["latency"] * c.days / least["latency"]
                + w["energy"] * kwh / least["energy"]
                + tie
            )
        return c.usd_total / least["cost"] * (1 + 1e-6 * c.days / least["latency"])

    return score


def on_owned(made: Mapping[str, Sequence[Candidate]], score: Callable[[Candidate], float]) -> list[Candidate]:
    """The best run on machines that are already owned, of each chip: always shown, wherever it ranks."""
    mine = [[c for c in some if c.offer.term == OWNED] for some in made.values()]
    return [min(some, key=score) for some in mine if some]


def figure(c: Candidate, name: str) -> float:
    return {"cost": c.usd_total, "latency": c.days, "energy": c.kwh, "carbon": c.kgco2e}[name]


def with_views(ranked: Sequence[Candidate], every: Sequence[Candidate]) -> tuple[list[Candidate], dict[str, int]]:
    """The ranked runs with the winner of each view at the end, and the index of each winner."""
    if not every:
        return [], {}
    winners = {
        "cheapest": min(every, key=lambda c: c.usd_total),
        "fastest": min(every, key=lambda c: (c.days, c.usd_total)),
        "greenest": min(every, key=lambda c: c.kgco2e if math.isfinite(c.kgco2e) else math.inf),
        "simplest": min(every, key=lambda c: (c.chips, c.usd_total)),
    }
    if not math.isfinite(winners["greenest"].kgco2e):
        del winners["greenest"]
    shown = list(ranked)
    for c in winners.values():
        if not any(c is other for other in shown):
            shown.append(c)
    places = {view: next(i for i, other in enumerate(shown) if other is c) for view, c in winners.items()}
    return shown, places


# --- why not ----------------------------------------------------------------------------------------------------


def beside_host(workload: Workload, catalog: Catalog, a: Accelerator) -> str:
    """That offload fits no better, where it is tried; empty: it is not."""
    if not may_offload(workload, a):
        return ""
    needed = host_bytes(catalog.model, BF16_MASTER, "all", 1, 1)
    return f". Offload to host memory, which needs {needed / 2**30:,.0f} GiB in all, was tried and does not fit either"


def why_not(
    workload: Workload, catalog: Catalog, a: Accelerator, found: Sequence[Candidate], timed: int, least: int, most: int
) -> Rejection:
    """Why no run of a chip is in time, within the limits and in memory."""
    task, section = task_of(workload), workload.kind.name
    if found:
        best = min(found, key=lambda c: c.days)
        limit = deadline_days(workload)
        stated = task.deadline_days is not None
        change = limit_change(f"{section}.deadline_days", ">=", math.ceil(best.days))
        name = budget_named(workload)
        kept = f" that keeps {name}" if name else ""
        limited = f"the deadline of {limit:g} days" if stated else f"{limit:g} days, the longest run without a deadline"
        return Rejection(
            accelerator=a.slug,
            reason="misses_deadline",
            detail=f"the fastest run{kept}, on {best.chips:,} accelerators, takes {duration(best.days)}; the limit is "
            f"{limited}",
            limit=limit,
            reached=best.days,
            smallest_change=change.said,
            changes=(change,),
        )
    if timed and (name := budget_named(workload)):
        return Rejection(
            accelerator=a.slug, reason="too_expensive",
            detail=f"no plan of a run on it keeps {name}",
            dead_end=f"every plan of this run on {a.name} exceeds {name}",
        )  # fmt: skip
    if timed:
        return Rejection(
            accelerator=a.slug, reason="misses_deadline",
            detail="no run on the accelerators that are connected ends within the horizon",
            dead_end=f"too few {a.name} are connected for {task.tokens:.3g} tokens within the horizon",
        )  # fmt: skip
    if most < least:
        bound = 2.0 * deadline_days(workload) * least / max(most, 1)
        return Rejection(
            accelerator=a.slug, reason="misses_deadline",
            detail=f"{connected(most)}: at {BEST_MFU:.0%} of the peak the run would take more than "
            f"{bound:,.0f} days; the limit is {deadline_days(workload):g} days",
            limit=deadline_days(workload), reached=bound,
            dead_end=f"{task.tokens:.3g} tokens take at least {least:,} x {a.name}, and {most:,} are connected",
        )  # fmt: skip
    return Rejection(
        accelerator=a.slug, reason="does_not_fit",
        detail=f"{connected(most)}: no layout fits the states and activations in {a.memory_bytes / 2**30:.0f} GiB each"
        f"{beside_host(workload, catalog, a)}",
        dead_end=f"no number of {a.name} that is connected holds the model with this method",
    )  # fmt: skip


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
        f"feasible: {c.chips:,} accelerators, {duration(c.days)}, ${c.usd_total:,.2f}, "
        f"{abs(ratio):.0%} {'more' if ratio >= 0 else 'less'} than the first choice"
    )
    dead_end = f"it ranks behind {MAX_RANKED} others by {workload.objective}"
    return Rejection(accelerator=c.trained.accelerator.slug, reason="outranked", detail=detail, dead_end=dead_end)
