"""What machines that are already owned do for a workload on their own, whether they suffice or not.

The ranking compares the best deployment of each chip. That one may need more machines than are owned, or leave them
idle. Here every layout of the chip is tried on the owned machines alone. If none of them serves the whole workload, the
largest share of the load that one serves is found in simulation, and the fewest machines that would serve all of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.engine.search.candidates import Catalog, Question
from advisor.engine.search.objective import (
    Scale,
    best_of_chip,
    final_score,
    rows_by_chip,
    scale_of,
    table_scores,
)
from advisor.engine.search.rejected.why_not import without_budgets
from advisor.engine.search.simulated import Scored, Simulations
from advisor.engine.search.table import (
    UNSERVABLE_REPLICAS,
    Table,
    estimated_excess,
    evaluate,
    joined,
    packing_of,
    with_best_offers,
)
from advisor.engine.search.variants.drafted import evaluated
from advisor.engine.step import Lane
from advisor.engine.terms import OWNED, Offer, Workload

HALVINGS = 5  # of the share of the load: to about 3 % of it
FEWEST = "simplicity"  # the objective that counts chips
SAFETY = 0.1  # a design at its limits counts as this much dearer than one far below them
LEAST_FRACTION = 0.01  # a smaller share is none


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnedMachines:
    """What the owned machines of one chip do on their own."""

    offer: Offer
    alone: Scored | None = None  # serves the whole workload on them, within every limit
    part: Scored | None = None  # serves `carried_fraction` of it on them; None: nothing, or they suffice
    carried_fraction: float | None = None  # of the load, with its peak; None: not known for a recorded trace
    enough: Scored | None = None  # serves the whole workload on as many such machines as it takes

    @property
    def more_instances(self) -> int:
        """Machines of the same kind that are missing; 0: they suffice, or no number of them does."""
        return max(self.enough.instances - self.offer.held_instances, 0) if self.enough and not self.alone else 0


def owned_offers(catalog: Catalog) -> list[Offer]:
    """The owned machines, one offer for each chip."""
    return [o for o in catalog.offers if o.term == OWNED and o.held_instances]


def owned_machines(question: Question, simulations: Simulations, scale: Scale) -> list[OwnedMachines]:
    """The owned machines of each chip on their own."""
    rows = rows_by_chip(simulations.table)
    return [_alone(question, simulations, scale, o, rows.get(o.accelerator)) for o in owned_offers(question.catalog)]


def _alone(
    question: Question, simulations: Simulations, scale: Scale, offer: Offer, own: np.ndarray | None
) -> OwnedMachines:
    workload = question.workload
    if own is None:
        return OwnedMachines(offer=offer, carried_fraction=0.0)
    held, endless = (replace(question.catalog, offers=(o,)) for o in (offer, replace(offer, held_instances=0)))
    here = simulations.on_catalog(with_best_offers(replace(question, catalog=held), simulations.table), held)
    best = _best(workload, here, own, scale)
    if best is not None:
        return OwnedMachines(offer=offer, alone=best, carried_fraction=1.0, enough=best)
    fewest = replace(without_budgets(workload), objective=FEWEST)
    more = simulations.on_catalog(
        with_best_offers(replace(question, workload=fewest, catalog=endless), simulations.table), endless
    )
    enough = _best(fewest, more, own, scale)
    if workload.trace is not None:
        return OwnedMachines(offer=offer, enough=enough)
    part, carried = _part(workload, held, [simulations.table.lanes[i] for i in own])
    return OwnedMachines(offer=offer, part=part, carried_fraction=carried, enough=enough)


def _part(workload: Workload, held: Catalog, lanes: Sequence[Lane]) -> tuple[Scored | None, float]:
    """The largest share of the load that the owned machines serve within every limit, and how."""
    best, low, high = None, 0.0, 1.0
    for fraction in [_estimated_fraction(workload, held, lanes), *[0.0] * HALVINGS]:
        tried = fraction if low < fraction < high else (low + high) / 2
        if high - low < LEAST_FRACTION:
            break
        found = _served(at_load(workload, tried), held, lanes)
        best, low, high = (found, tried, high) if found else (best, low, tried)
    return best, low


def _estimated_fraction(workload: Workload, held: Catalog, lanes: Sequence[Lane]) -> float:
    """The share of the load by estimate: the replicas that fit, over those that the peak needs."""
    offer = held.offers[0]
    table = _table_of(Question(workload, replace(held, offers=(replace(offer, held_instances=0),))), lanes)
    good = (estimated_excess(workload, table) <= 1.0) & (table.replicas < UNSERVABLE_REPLICAS)
    needed = np.where(good, table.replicas, np.inf).min(axis=1)
    carrying = np.arange(1, offer.held_instances * offer.accelerators + 1, dtype=float)
    shares = [0.0]
    for lane, most in zip(table.lanes, needed, strict=True):
        machines = workload.slo.redundancy.instances(carrying, packing_of(lane.choice, offer))
        shares.append(float(carrying[machines <= offer.held_instances].max(initial=0.0) / most))
    return min(max(shares), 1.0)


def _served(workload: Workload, held: Catalog, lanes: Sequence[Lane]) -> Scored | None:
    """The best deployment of a workload on the owned machines alone; None: they do not serve it."""
    table = _table_of(Question(workload, held), lanes)
    scale, own = scale_of(workload, table), np.arange(len(table.lanes))
    return _best(workload, Simulations(Question(workload, held), table), own, scale)


def _best(workload: Workload, simulations: Simulations, own: np.ndarray, scale: Scale) -> Scored | None:
    """The best design on these machines; None: none meets the limits.

    Layouts that take as many owned machines cost much the same, so their cost hardly tells which ones to simulate:
    those that are estimated to stay farther below their limits are simulated too.
    """
    safest = replace(workload, objective="cost")
    excess = np.minimum(estimated_excess(workload, simulations.table), 1 / SAFETY)
    tried = (
        (workload, table_scores(workload, simulations.table, scale)),
        (safest, simulations.table.usd_per_hour * (1.0 + SAFETY * excess)),
    )
    found = [best_of_chip(asked, simulations, own, score, scale).best for asked, score in tried]
    return min((s for s in found if s), key=lambda s: final_score(workload, s, scale), default=None)


def _table_of(question: Question, lanes: Sequence[Lane]) -> Table:
    """The table of these lanes for another load; those with a draft come last."""
    plain, drafted = (
        [lane for lane in lanes if (lane.draft is not None) == with_draft] for with_draft in (False, True)
    )
    table = evaluate(question, plain)
    if not drafted:
        return table
    row_of = {id(lane.choice): i for i, lane in enumerate(table.lanes)}
    more = evaluated(question, drafted)
    return joined(table, more, np.array([row_of[id(lane.choice)] for lane in more.lanes], dtype=int))


def at_load(workload: Workload, fraction: float) -> Workload:
    """The workload with this multiple of its requests or users."""
    users = workload.users
    return replace(
        workload,
        requests_per_s_mean=workload.requests_per_s_mean * fraction,
        requests_per_s_peak=workload.requests_per_s_peak * fraction,
        users=replace(users, active_requests=users.active_requests * fraction) if users else None,
    )
