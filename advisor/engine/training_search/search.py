"""The search of a training question: every chip, size, precision and seller, and why each other chip is not ranked."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from advisor.engine.search import MAX_RANKED, Question, admissible, allowed, weights_of
from advisor.engine.terms import OWNED, Accelerator, Offer, Rejection, Workload, evaluating
from advisor.engine.training import Run, model_flops
from advisor.engine.training_search.layouts import (
    Setup,
    Trained,
    holds_states,
    offloaded,
    setups_of,
    sizes,
    task_of,
    trained,
    untrainable,
)
from advisor.engine.training_search.outcome import Candidate, Reliability, candidate
from advisor.engine.training_search.why_not import BEST_MFU, Tried, deadline_days, outranked, why_not

MORE = 4.0  # sizes up to this many times the smallest that makes the deadline are tried under `cost`

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


def search(question: Question, r: Reliability, progress: Progress | None = None) -> Found:
    """Ranks the best run of each chip by the objective."""
    workload = question.workload
    rejections, chips = admissible(question)
    refused, made, late = list(rejections), dict[str, tuple[Candidate, ...]](), dict[str, Candidate]()
    curves: dict[str, tuple[Candidate, ...]] = {}
    evaluated = planned = 0
    for place, a in enumerate(chips):
        if progress:
            progress(f"searching layouts on {a.slug}, {place + 1} of {len(chips)} accelerators", place / len(chips))
        offers = [o for o in question.catalog.offers_of(a.slug) if o.sells(a) and allowed(o, workload.constraints)]
        setups = setups_of(a, task_of(workload), workload.kind.trains_whole_model)
        refusal = untrainable(a, task_of(workload), setups)
        if refusal is not None:
            refused.append(refusal)
            continue
        with evaluating(a.slug):
            found, timed, unserved = of_chip(question, r, a, setups, offers)
        evaluated, planned = evaluated + timed, planned + len(found)
        curves[a.slug] = tuple(found)
        in_time = [c for c in found if c.end_days <= deadline_days(workload)]
        if in_time:
            made[a.slug] = tuple(in_time)
        elif unserved and not found:
            refused.append(Rejection(accelerator=a.slug, reason="does_not_fit", detail=unserved, dead_end=unserved))
        else:
            tried = Tried(
                found=tuple(found), timed=timed, least=fewest_chips(question, a),
                most=max(sizes(workload, a, offers), default=0), setups=setups,
                smallest=min((o.accelerators for o in offers), default=0),
                planned=lambda other, a=a, setups=setups, offers=offers: of_chip(  # type: ignore[misc]
                    replace(question, workload=other), r, a, setups, offers
                )[0],
            )  # fmt: skip
            with evaluating(a.slug):
                refused.append(why_not(question, a, tried))
            late |= {a.slug: min(found, key=lambda c: c.end_days)} if found else {}
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
    question: Question,
    r: Reliability,
    a: Accelerator,
    setups: Sequence[Setup],
    offers: Sequence[Offer],
) -> tuple[list[Candidate], int, str]:
    """(the cheapest plan of each size with its fastest layout, layouts that were timed, why a size cannot generate)."""
    workload = question.workload
    made: list[Candidate] = []
    timed, first, unserved = 0, 0, ""
    least = fewest_chips(question, a)
    for chips, sellers in sizes(workload, a, offers).items():
        more = bool(first) and chips > MORE * first and workload.objective == "cost"
        if chips < least or (more and not owns(sellers, made)):
            continue
        trials = [trained(question, a, setup, chips) for setup in setups]
        best = fastest_of(t for t in trials if isinstance(t, Trained))
        unserved = next((t for t in trials if isinstance(t, str)), unserved)
        groups = by_seller(sellers if best else [o for o in sellers if holds_states(question.catalog.model, chips, o)])
        runs = [(best or offloaded(question, a, chips, same[0]), same) for same in groups]
        timed += max((t.candidates for t, _ in runs if t is not None), default=0)
        plans = [candidate(question, r, t, same) for t, same in runs if t is not None]
        some = [c for c in plans if c is not None]
        if some:
            made.append(min(some, key=lambda c: (c.end_days > deadline_days(workload), c.usd_total)))
            in_time = made[-1].end_days <= deadline_days(workload)
            first = first or (chips if in_time and best else 0)  # offload is slow: more chips may cost less
    return made, timed, unserved


def owns(sellers: Sequence[Offer], made: Sequence[Candidate]) -> bool:
    """Whether a size is tried although rents begin with much smaller ones: servers to own have several accelerators.

    All that are already owned, and the smallest server that can be bought.
    """
    tried = {c.chips for c in made}
    return any(
        o.term == OWNED or (o.acquisition == "own" and not any(chips >= o.accelerators for chips in tried))
        for o in sellers
    )


def fastest_of(runs: Iterator[Trained]) -> Trained | None:
    return min(runs, key=lambda t: t.iteration_s, default=None)


def fewest_chips(question: Question, a: Accelerator) -> int:
    """A lower bound of the chips that can finish in twice the time, at a utilization that no run reaches."""
    task = task_of(question.workload)
    per_token = model_flops(question.catalog.model, Run(sequence_tokens=task.sequence_tokens)) / task.sequence_tokens
    peaks = [rate for dtype, rate in a.flops_per_s.items() if dtype in ("bf16", "fp16", "fp8", "fp4")]
    share = 1.0 if task.method == "full" else 2.0 / 3.0
    peak = max(peaks, default=math.inf) * BEST_MFU * deadline_days(question.workload) * 2.0 * 86_400.0
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
