"""Views: the cheapest, fastest, greenest, simplest and most balanced deployment, each confirmed in simulation.

The fastest, greenest and simplest may cost at most five times as much as the cheapest.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from advisor.engine.cost import HOURS_PER_MONTH
from advisor.engine.network import Model
from advisor.engine.search.candidates import Question
from advisor.engine.search.objective import (
    Scale,
    best_estimate,
    best_of_chip,
    final_score,
    ordered,
    rows_by_chip,
    table_scores,
)
from advisor.engine.search.simulated import Scored, Simulations
from advisor.engine.search.table import meets, with_best_offers
from advisor.engine.terms import WEAK_PRICE, Workload

OBJECTIVE_BY_VIEW = {
    "cheapest": "cost",
    "fastest": "latency",
    "greenest": "carbon",
    "simplest": "simplicity",
    "balanced": "balanced",
}
PRICE_BOUND_FACTOR = 5.0  # times the cheapest; without it `fastest` could cost a hundred times as much
CARBON = "carbon"  # the only objective that does not choose the cheapest offer
PRICED = ("cost", "balanced")  # objectives that include the price


def with_price_bound(workload: Workload, simulations: Simulations, scale: Scale) -> tuple[Workload, Simulations]:
    """Workload and simulations with a price bound if the objective ignores price.

    Unchanged if the user set a budget or nothing meets the limits. Under `carbon` each candidate then has the
    lowest-carbon offer within the bound.
    """
    if workload.objective in PRICED or workload.constraints.max_usd_per_month is not None:
        return workload, simulations
    asked, green = replace(workload, objective="cost"), workload.objective == CARBON
    by_price = (
        simulations.with_offers(with_best_offers(Question(asked, simulations.catalog), simulations.table))
        if green
        else simulations
    )
    cheapest = _winner(asked, by_price, scale)
    if cheapest is None:
        return workload, simulations
    most = PRICE_BOUND_FACTOR * cheapest.usd_per_hour * HOURS_PER_MONTH
    limits = replace(workload.constraints, max_usd_per_month=most, bound_factor=PRICE_BOUND_FACTOR)
    asked = replace(workload, constraints=limits)
    return asked, simulations.with_offers(
        with_best_offers(Question(asked, simulations.catalog), simulations.table)
    ) if green else simulations


def view_winners(workload: Workload, simulations: Simulations, scale: Scale) -> Mapping[str, Scored]:
    """The winner of each view; empty if nothing meets the limits, and no `greenest` if no power figure is known."""
    winners: dict[str, Scored] = {}
    questions: dict[str, Workload] = {}
    within = workload.constraints
    by_offers = {(workload.objective == CARBON): simulations}
    for view, objective in OBJECTIVE_BY_VIEW.items():
        bounds = workload.constraints if view == "balanced" else within  # balanced includes the price
        asked, green = replace(workload, objective=objective, constraints=bounds), objective == CARBON
        if green not in by_offers:
            by_offers[green] = simulations.with_offers(
                with_best_offers(Question(asked, simulations.catalog), simulations.table)
            )
        best = _winner(asked, by_offers[green], scale)
        if best is not None and not (green and math.isnan(best.watts)):
            winners[view], questions[view] = best, asked
            if view == "cheapest":
                most = PRICE_BOUND_FACTOR * best.usd_per_hour * HOURS_PER_MONTH
                if most < (within.max_usd_per_month or math.inf):
                    within = replace(within, max_usd_per_month=most, bound_factor=PRICE_BOUND_FACTOR)
    return {view: _best_of(questions[view], winners[view], winners.values(), scale) for view in winners}


def _best_of(asked: Workload, own: Scored, others: Iterable[Scored], scale: Scale) -> Scored:
    """The view's own winner, or a better one within budget that another view found."""
    most = asked.constraints.max_usd_per_month or math.inf
    pool = [own, *(s for s in others if s.usd_per_hour * HOURS_PER_MONTH <= most)]
    scores = [final_score(asked, s, scale) for s in pool]
    return pool[int(np.nanargmin(scores))]  # ties go to the view's own winner


def or_better(
    workload: Workload, winners: Mapping[str, Scored], others: Sequence[Scored], scale: Scale
) -> dict[str, Scored]:
    """The winner of each view, or one of these deployments that is better under its objective."""
    asked = {view: replace(workload, objective=OBJECTIVE_BY_VIEW[view]) for view in winners}
    return {view: _best_of(asked[view], winner, others, scale) for view, winner in winners.items()}


def _winner(workload: Workload, simulations: Simulations, scale: Scale) -> Scored | None:
    """The best simulated deployment; tries chips by their best estimates until none can improve on it."""
    table, rows = simulations.table, rows_by_chip(simulations.table)
    # an estimate over a limit may still pass in simulation, but the order comes from estimates within the limits
    score, maybe = table_scores(workload, table, scale), meets(workload, table)
    promised = {slug: best_estimate(score, maybe, own) for slug, own in rows.items()}
    best: Scored | None = None
    for slug in sorted(promised, key=lambda s: (promised[s], s)):
        if math.isinf(promised[slug]) or (best and final_score(workload, best, scale) <= promised[slug]):
            break
        if not simulations.catalog.effort.allows("best of each view"):
            break
        own = best_of_chip(workload, simulations, rows[slug], score, scale).best
        if own and (best is None or final_score(workload, own, scale) < final_score(workload, best, scale)):
            best = own
    return best


def without_weak_prices(
    workload: Workload, simulations: Simulations, scale: Scale, shown: Sequence[Scored]
) -> Scored | None:
    """The first choice among offers whose price has no known weakness; None if nothing meets the limits at one."""
    c = workload.constraints
    asked = replace(workload, constraints=replace(c, exclude=(*c.exclude, WEAK_PRICE)))
    found = _winner(
        asked, simulations.with_offers(with_best_offers(Question(asked, simulations.catalog), simulations.table)), scale
    )
    pool = [s for s in (found, *shown) if s is not None and not s.offer.weakness]
    return min(pool, key=lambda s: final_score(workload, s, scale), default=None)


def best_per_accelerator(
    workload: Workload, ranked: Sequence[Scored], winners: Mapping[str, Scored], scale: Scale, model: Model
) -> list[Scored]:
    """The ranking, with each chip's deployment replaced by a view winner on the same chip if that is better."""

    def slug(s: Scored) -> str:
        return s.lane.choice.accelerator.slug

    best = [
        ordered(workload, [s, *(o for o in winners.values() if slug(o) == slug(s))], scale, model)[0] for s in ranked
    ]
    return ordered(workload, best, scale, model)


def add_view_winners(
    workload: Workload,
    ranked: Sequence[Scored],
    winners: Mapping[str, Scored],
    scale: Scale,
    model: Model,
    always: Sequence[Scored] = (),
) -> tuple[list[Scored], dict[str, int]]:
    """(ranking plus unranked view winners in the order of the objective, index of each view's winner in it).

    The first choice stays first. A winner that differs from an option only in inner settings shares its rank.
    `always`: deployments that are shown wherever they rank.
    """
    extra: list[Scored] = []
    best = dict(winners)
    if "cheapest" in winners:
        best["cheapest"] = min([winners["cheapest"], *ranked], key=lambda s: s.usd_per_hour)
    for winner in (*best.values(), *always):
        if not any(same(s, winner) for s in [*ranked, *extra]):
            extra.append(winner)
    shown = [*ranked[:1], *ordered(workload, [*ranked[1:], *extra], scale, model)]
    return shown, {view: next(k for k, s in enumerate(shown) if same(s, winner)) for view, winner in best.items()}


def same(a: Scored, b: Scored) -> bool:
    """Whether two results are one deployment to whoever signs for it: what is bought and how the model is split.

    Batch size, KV-cache format and the number of drafted tokens are inner settings.
    """
    return _outer(a) == _outer(b)


def _outer(s: Scored) -> tuple[object, ...]:
    c, draft = s.lane.choice, s.lane.draft
    layout = (c.accelerator.slug, c.quantization.slug, c.tp, c.pp, c.ep, c.dp, s.replicas, s.pools)
    return *layout, s.lane.framework.slug, s.lane.framework.version, draft.method if draft else "", s.offer
