"""Training on the machines of a service: in the hours in which it leaves them idle, or in one plan for both.

A service that owns or reserves machines for its peak pays for them at night too. A run that is checkpointed can use
them then, and starts again each evening. Where both need machines of one kind, one plan may also buy machines for the
run that serve the growing traffic later, and needs one team.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from advisor.engine.cost import HOURS_PER_MONTH, licence_usd_per_hour
from advisor.engine.fleet.portfolio import Member
from advisor.engine.plans import OWNED, PURCHASE, TERM, Demand, Plan, best_plan
from advisor.engine.search import (
    Question,
    Scored,
    allowed_offers,
    deployed,
    instances_of,
    overheads_of,
    prices_of,
    ways_under,
)
from advisor.engine.terms import Offer, Workload
from advisor.engine.training_search import Candidate, Found, Reliability, by_seller, deadline_days, reach, serves

S_PER_HOUR = 3600.0
MOST_CHIPS_TRIED = 4  # kinds of accelerators for which one plan is computed
WORTH_FRACTION = 1e-3  # of the cost of each alone


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingMember:
    """A training workload of a portfolio with what its search found."""

    workload: Workload
    reliability: Reliability
    found: Found


@dataclass(frozen=True, kw_only=True, slots=True)
class IdleHours:
    """A run in the hours in which a service leaves enough of its machines idle."""

    run: Candidate
    serving: Scored
    offer: Offer
    hours_per_week: float  # in which it trains, restarts not counted
    starts_per_week: int
    days: float  # from the first step to the last token
    usd: float  # electricity; the machines are paid already
    needed_hours_per_week: float  # with which the run ends just in time: what later runs must leave to it


@dataclass(frozen=True, kw_only=True, slots=True)
class OnePlan:
    """A service and a run on machines of one kind, planned together."""

    run: Candidate
    serving: Scored
    plan: Plan
    offers: tuple[Offer, ...]  # behind each way of the plan
    alone_usd: float  # present value of the service's own choice and of the run's own choice, together


# --- idle hours -------------------------------------------------------------------------------------------------


def idle_hours(service: Member, training: TrainingMember, taken_hours_per_week: float = 0.0) -> IdleHours | None:
    """The cheapest run in the idle hours of a service's first choice; None: no run fits or ends in time.

    taken_hours_per_week: that other runs use already.
    """
    if not service.answer.ranked or not service.week:
        return None
    s = service.answer.ranked[0]
    found = [
        use
        for offer, kept in kept_machines(s)
        for run in training.found.curves.get(offer.accelerator, ())
        if (use := use_of_hours(service, training, s, offer, kept, run, taken_hours_per_week)) is not None
    ]
    return min(found, key=lambda use: (use.usd, use.days), default=None)


def kept_machines(s: Scored) -> Iterator[tuple[Offer, int]]:
    """(offer, instances) that the plan pays for around the clock, the fewest of any month."""
    if s.planned is None:
        return
    plan = s.planned.plan
    for i, way in enumerate(plan.ways):
        if way.kind not in (PURCHASE, OWNED, TERM):
            continue
        count = np.zeros(plan.prices.months, dtype=int)
        for c in plan.schedule.commitments:
            if c.way == i:
                count[c.start_month : c.until_month] += c.instances
        if count.min() > 0:
            yield s.planned.offers[i], int(count.min())


def idle_by_hour(service: Member, s: Scored, offer: Offer, kept: int) -> np.ndarray:
    """Instances that the service does not need in each hour of a week; its spare replicas stay."""
    carrying = s.replicas - s.spare_replicas
    active = np.maximum(np.ceil(carrying * np.asarray(service.week) - 1e-9), 1.0)
    return np.asarray(np.maximum(kept - instances_of(service.workload, s, offer, active), 0.0))


def use_of_hours(
    service: Member,
    training: TrainingMember,
    s: Scored,
    offer: Offer,
    kept: int,
    run: Candidate,
    taken_hours_per_week: float,
) -> IdleHours | None:
    """One run in the hours with enough idle machines; None: there are too few of them."""
    needed = math.ceil(run.chips / offer.accelerators)
    if run.chips > reach(offer):
        return None
    free = idle_by_hour(service, s, offer, kept) >= needed
    if not free.any():
        return None
    starts = int((free & ~np.roll(free, 1)).sum()) or 1
    restart_s = training.reliability.failures.restart_s.value
    useful = float(free.sum()) - (starts * restart_s / S_PER_HOUR if not free.all() else 0.0) - taken_hours_per_week
    hours = run.days * 24.0
    if useful <= 0.0:
        return None
    days = hours / useful * 7.0
    if days > deadline_days(training.workload):
        return None
    kw = run.watts / 1e3 * needed / max(run.instances, 1)
    usd = kw * hours * (offer.usd_per_kwh or 0.0) if offer.acquisition == "own" and math.isfinite(kw) else 0.0
    return IdleHours(
        run=run,
        serving=s,
        offer=offer,
        hours_per_week=useful,
        starts_per_week=starts,
        days=days,
        usd=usd,
        needed_hours_per_week=hours * 7.0 / deadline_days(training.workload),
    )


# --- one plan ---------------------------------------------------------------------------------------------------


def one_plan(service: Member, training: TrainingMember) -> OnePlan | None:
    """The cheapest plan for both on machines of one kind; None: none costs less than each alone."""
    if not service.answer.ranked or not training.found.ranked:
        return None
    first, run = service.answer.ranked[0], training.found.ranked[0]
    if first.planned is None:
        return None
    alone = first.planned.plan.present_usd + run.usd_total
    shared = [s for s in service.answer.ranked if s.lane.choice.accelerator.slug in training.found.by_chip]
    found = [plan for s in shared[:MOST_CHIPS_TRIED] for plan in plans_on(service, training, s, alone)]
    best = min(found, key=lambda each: each.plan.present_usd, default=None)
    return best if best is not None and best.plan.present_usd < alone * (1.0 - WORTH_FRACTION) else None


def plans_on(service: Member, training: TrainingMember, s: Scored, alone: float) -> Iterator[OnePlan]:
    """The plans for both on one kind of accelerator, by seller."""
    workload, catalog = service.workload, service.catalog
    d = deployed(Question(workload, catalog), s)
    runs = training.found.by_chip[s.lane.choice.accelerator.slug]
    run = min(runs, key=lambda c: c.usd_total)
    offers = [o for o in allowed_offers(Question(workload, catalog), s.lane) if serves(o, run.chips)]
    licence = licence_usd_per_hour(catalog.licences, s.lane.choice.accelerator.vendor, s.lane.framework.slug)
    least = overheads_of(Question(workload, catalog), d.services)
    for group in by_seller(offers):
        pairs = [(o, w) for o in group for w in ways_under(catalog, o, licence, lambda o=o: d.drawn_fraction(o))]  # type: ignore[misc]
        ways = [w for _, w in pairs]
        demand = joint_demand(workload, s, group[0], run)
        plan = best_plan(demand, ways, prices_of(Question(workload, catalog)), least)
        if plan is not None:
            yield OnePlan(run=run, serving=s, plan=plan, offers=tuple(o for o, _ in pairs), alone_usd=alone)


def joint_demand(workload: Workload, s: Scored, offer: Offer, run: Candidate) -> Demand:
    """Instances of both in each month: the service at its peak, and the run until its last token.

    Whole groups of instances, so that what the run leaves can serve the traffic that grows.
    """
    months = workload.horizon_months
    forecast = np.asarray(workload.forecast or np.ones(months))
    carrying = np.ceil((s.replicas - s.spare_replicas) * forecast - 1e-9)
    serving = np.where(forecast > 0, instances_of(workload, s, offer, carrying), 0.0)
    trains = np.zeros(months)
    left = run.days * 24.0 / HOURS_PER_MONTH
    for month in range(min(math.ceil(left - 1e-9), months)):
        trains[month] = min(left - month, 1.0)
    needed = math.ceil(run.chips / offer.accelerators) + run.spare_hosts
    total = serving + np.where(trains > 0, needed, 0.0)
    tops = np.unique(total[total > 0])
    counts = np.diff(np.concatenate([[0.0], tops])).round().astype(int)
    on = total[None, :] >= tops[:, None]
    above = tops[:, None] > serving[None, :]  # that the run alone needs
    fractions = np.where(on, np.where(above, trains[None, :], 1.0), 0.0)
    return Demand(counts=counts, fractions=fractions)
