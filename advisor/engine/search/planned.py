"""The cheapest dated plan of a simulated deployment: which offers serve it in which month of the horizon."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from advisor.engine.cost import (
    AFTER,
    HOURS_PER_MONTH,
    METERED,
    STAFF_PART,
    Prices,
    life_months,
    service_months,
    term_months,
)
from advisor.engine.plans import (
    HOURLY,
    NAMES,
    OWNED,
    PURCHASE,
    TERM,
    Demand,
    Limits,
    Overheads,
    Plan,
    Schedule,
    Way,
    best_plan,
    demand_by_month,
    named_plans,
    plan_of,
)
from advisor.engine.search.candidates import LEAST_HELD_MONTHS, Catalog, Question, allowed, holds_replica
from advisor.engine.search.table import autoscales, licence_of, load_levels, run_fraction
from advisor.engine.step import Lane
from advisor.engine.terms import OWNED as OWNED_TERM
from advisor.engine.terms import Offer, Part, Workload

NEAR = 1.5  # instance sizes whose cheapest single offer costs up to this many times the least are planned
MOST_BRIDGES = 4  # deployments that are tried, those with the cheapest rent
MOST_PROVIDERS = 3  # rents of one plan come from one provider: those with the lowest price of each term are tried


@dataclass(frozen=True, kw_only=True, slots=True)
class Deployed:
    """What a plan needs to know of a deployment.

    Functions are neither shown nor compared: two that do the same differ by their address.
    """

    lane: Lane
    instances: Callable[[Offer, Any], Any] = field(repr=False, compare=False)  # (offer, serving replicas)
    carrying: int  # replicas that serve today's peak
    stored_bytes: float  # of one copy of the weights
    output_tokens_per_s: float
    drawn_fraction: Callable[[Offer], float] = field(repr=False, compare=False)  # mean power of instances over full
    utilisation_fraction: float
    services: tuple[Part, ...] = ()
    rentals: "Callable[[int, float], Bridge | None] | None" = field(
        default=None, repr=False, compare=False
    )  # (months, times the replicas) -> cheapest rent


@dataclass(frozen=True, kw_only=True, slots=True)
class Bridge:
    """A deployment that is rented until bought servers arrive."""

    deployed: Deployed
    carrying: int  # replicas that serve
    months: int
    offers: tuple[Offer, ...]  # behind each way of the plan
    plan: Plan

    @property
    def present_usd(self) -> float:
        return self.plan.present_usd


@dataclass(frozen=True, kw_only=True, slots=True)
class Planned:
    """A plan with the offer behind each of its ways."""

    plan: Plan
    offers: tuple[Offer, ...]
    services: tuple[Part, ...] = ()  # of the provider, at today's traffic
    bridge: Bridge | None = None  # its ways stand behind the others

    @property
    def own_ways(self) -> int:
        """The number of ways that are not those of the bridge."""
        return len(self.offers) - (len(self.bridge.offers) if self.bridge else 0)

    def share_usd(self) -> list[float]:
        """Payments of each way over the horizon, for finding the one that a plan is named after."""
        months = self.plan.prices.months
        usd = [0.0] * len(self.offers)
        for c in self.plan.schedule.commitments:
            usd[c.way] += self.offers[c.way].usd_per_hour * c.instances * (c.until_month - c.start_month) / months
        for h in self.plan.schedule.hourly:
            usd[h.way] += self.offers[h.way].usd_per_hour * float(h.paid.sum()) / months
        return usd

    @property
    def main(self) -> int:
        """Index of the way that costs most: the plan is named after its offer."""
        return int(np.argmax(self.share_usd()[: self.own_ways]))


def prices_of(question: Question) -> Prices:
    """Discounting and price paths over the workload's horizon."""
    a = question.catalog.site_assumptions or question.catalog.assumptions
    return replace(
        a.prices, months=question.workload.horizon_months, discount_fraction=question.workload.discount_fraction
    )


def overheads_of(question: Question, services: Sequence[Part] = ()) -> Overheads:
    a = question.catalog.site_assumptions or question.catalog.assumptions
    return Overheads(
        own_team_usd_per_month=a.own_team_usd_per_month,
        rented_team_usd_per_month=a.rented_team_usd_per_month,
        services=tuple(services),
        traffic=question.workload.forecast,
    )


def forgone_usd_per_hour(question: Question, offer: Offer, instances: int) -> float:
    """The forgone sale of the owned machines among these instances, as a plan counts it, USD per hour."""
    prices = prices_of(question)
    each = offer.sale_usd - offer.later_sale_usd * float(prices.present(prices.months))
    return min(instances, offer.held_instances) * each / prices.annuity / HOURS_PER_MONTH


def team_usd_per_hour(question: Question, machines: Iterable[tuple[Offer, float]]) -> float:
    """What is missing to the least staff cost on these machines, USD per hour: one team, however much they serve.

    machines: (offer, instances). A plan adds the same by month.
    """
    kept = [(o, n) for o, n in machines if n]
    least = overheads_of(question)
    owns = any(o.acquisition == "own" for o, _ in kept)
    monthly = least.own_team_usd_per_month if owns else least.rented_team_usd_per_month
    staff = math.fsum(n * p.usd_per_hour for o, n in kept for p in o.parts if p.name == STAFF_PART)
    return max(monthly / HOURS_PER_MONTH - staff, 0.0) if kept else 0.0


def demand_for(
    workload: Workload, d: Deployed, offer: Offer, carrying: float | None = None, offers: Sequence[Offer] = ()
) -> Demand:
    """Instances of an offer by month, for the growth, the seasons and the hours of the week.

    offers: all of the plan. While owned machines suffice, the default margin adds none: an idle one is the spare.
    """
    owned = next((o for o in offers if o.held_instances), None)

    def needed(replicas: Any) -> Any:
        instances = d.instances(offer, replicas)
        if owned is None:
            return instances
        own = d.instances(owned, replicas)
        return np.where(np.asarray(own) <= owned.held_instances, own, instances)

    n = float(d.carrying if carrying is None else carrying)
    by_hour = autoscales(workload, offer)
    forecast = np.asarray(workload.forecast or np.ones(workload.horizon_months))
    return demand_by_month(
        n * forecast,
        needed,
        levels=load_levels(workload.week) if by_hour else None,
        start_hours=workload.cold_start_s / 3600.0,
        run_fraction=float(run_fraction(workload, offer, d.utilisation_fraction)),
    )


def ways_of(question: Question, d: Deployed, offer: Offer, with_held: bool = True) -> list[Way]:
    """The ways to have an instance under one offer: rented, or bought.

    with_held: a purchase comes with the instances of its size that are already owned.
    """
    runs = float(run_fraction(question.workload, offer, d.utilisation_fraction))
    licence = licence_of(question.catalog, d.lane) * runs
    return ways_under(question.catalog, offer, licence, lambda: d.drawn_fraction(offer), with_held)


def ways_under(
    catalog: Catalog,
    offer: Offer,
    licence_usd_per_chip_hour: float,
    drawn_fraction: Callable[[], float],
    with_held: bool = True,
) -> list[Way]:
    """The ways to have an instance under one offer. drawn_fraction: mean power of an own one over its full draw."""
    a = catalog.site_assumptions or catalog.assumptions
    licence = licence_usd_per_chip_hour * offer.accelerators
    fees = (Part(name="licences", usd_per_hour=licence, group="running"),) if licence else ()
    if offer.acquisition != "own":
        parts = offer.list_parts or offer.parts
        parts = tuple(p for p in parts if p.name != AFTER) or (
            Part(name="instances", usd_per_hour=offer.usd_per_hour, group="rent"),
        )
        months = term_months(offer.term)
        return [Way(kind=TERM if months else HOURLY, parts=parts, kept_parts=fees, term_months=months)]
    drawn = drawn_fraction()
    if offer.term == OWNED_TERM:
        parts = metered(offer.list_parts or offer.parts, drawn) or (
            Part(name="running", usd_per_hour=offer.usd_per_hour, group="running"),
        )
        return [held_way(offer, parts, fees)]
    running = tuple(p for p in offer.list_parts or offer.parts if p.group != "capital")
    if not offer.parts:
        running = (Part(name="running", usd_per_hour=offer.usd_per_hour, group="running"),)
    bought = Way(
        kind=PURCHASE,
        parts=metered(running, drawn),
        kept_parts=fees,
        capital_usd=offer.capital_usd,
        capital_shares=offer.capital_shares,
        life_months=service_months(a),
        book_months=life_months(a),
        resale=offer.resale or a.resale(),
        least_months=LEAST_HELD_MONTHS,
        lead_months=round(offer.order_months),
    )
    if not offer.held_instances or not with_held:
        return [bought]
    return [held_way(offer, metered(offer.held_parts, drawn), fees), bought]


def held_way(offer: Offer, parts: tuple[Part, ...], fees: tuple[Part, ...]) -> Way:
    """The instances of an offer that are already owned."""
    return Way(
        kind=OWNED, parts=parts, kept_parts=fees, most=offer.held_instances or None,
        sale_usd=offer.sale_usd, later_sale_usd=offer.later_sale_usd,
    )  # fmt: skip


def metered(parts: Sequence[Part], drawn_fraction: float) -> tuple[Part, ...]:
    """The parts with power at this fraction of the full draw."""
    return tuple(replace(p, usd_per_hour=p.usd_per_hour * drawn_fraction) if p.name in METERED else p for p in parts)


def single(question: Question, d: Deployed, offer: Offer) -> Planned | None:
    """The plan on one offer alone; None: more instances are needed than it has."""
    ways = ways_of(question, d, offer)
    return _planned(question, d, [offer] * len(ways), ways, None)


def best(question: Question, d: Deployed, offers: Sequence[Offer]) -> Planned | None:
    """The cheapest plan over combinations of offers of one instance size; None: nothing serves within the limits.

    A plan that keeps owned machines counts their forgone sale.
    """
    workload = question.workload
    found = []
    near = NEAR if limits_of(workload) is None else math.inf  # a limit may forbid what makes another size look dear
    for combination in combinations(workload, d, offers, near):
        pairs = pairs_of(question, d, combination)
        planned = _planned(question, d, [o for o, _ in pairs], [w for _, w in pairs], limits_of(workload))
        found += [planned] if planned else []
    return min(found, key=lambda p: p.plan.economic_usd, default=None)


def pairs_of(question: Question, d: Deployed, offers: Sequence[Offer]) -> list[tuple[Offer, Way]]:
    """Every way of the offers, with its offer; what is owned counts once."""
    alone = not any(o.term == OWNED_TERM for o in offers)
    return [(o, w) for o in offers for w in ways_of(question, d, o, with_held=alone)]


def strategies(question: Question, d: Deployed, offers: Sequence[Offer]) -> dict[str, Plan]:
    """The cheapest plan of each usual strategy over the instance sizes and providers on offer."""
    workload = question.workload
    found: dict[str, Plan] = {}
    for combination in combinations(workload, d, offers, near=math.inf):
        pairs = pairs_of(question, d, combination)
        demand, ways = demand_for(workload, d, hourly_offer(pairs), offers=combination), [w for _, w in pairs]
        waits = rentable(workload, d) and any(w.lead_months for w in ways if w.kind == PURCHASE)
        named: dict[str, Plan] = {}
        if not waits or any(w.kind == HOURLY for w in ways):
            prices, overheads = prices_of(question), overheads_of(question, d.services)
            named = named_plans(demand, ways, prices, overheads)
        bridged = _bridged(question, d, demand, [o for o, _ in pairs], ways, None)
        if bridged and ("rent_then_buy" not in named or bridged.plan.present_usd < named["rent_then_buy"].present_usd):
            named["rent_then_buy"] = bridged.plan
        for name, plan in named.items():
            if name not in found or plan.present_usd < found[name].present_usd:
                found[name] = plan
    return {name: found[name] for name in NAMES if name in found}


def limits_of(workload: Workload) -> Limits | None:
    c = workload.constraints
    monthly = None if c.bound_factor else c.max_usd_per_month
    return None if c.max_capex_usd is None and monthly is None else Limits(
        max_capex_usd=c.max_capex_usd, max_usd_per_month=monthly
    )  # fmt: skip


def _planned(
    question: Question,
    d: Deployed,
    offers: Sequence[Offer],
    ways: Sequence[Way],
    limits: Limits | None,
) -> Planned | None:
    demand = demand_for(question.workload, d, hourly_offer(list(zip(offers, ways, strict=True))), offers=offers)
    bridged = _bridged(question, d, demand, offers, ways, limits)
    alone = all(w.kind in (PURCHASE, OWNED) for w in ways)
    if alone and not rentable(question.workload, d):
        # nothing may be rented until the delivery: month 1 is that of the delivery
        ways = [replace(w, lead_months=0) for w in ways]
    plan = _limited(question, d, demand, ways, limits)
    found = [Planned(plan=plan, offers=tuple(offers), services=d.services)] if plan else []
    found += [bridged] if bridged else []
    keeping = [p for p in found if limits is None or _keeps(p.plan, limits)] or found
    return min(keeping, key=lambda p: p.plan.present_usd, default=None)


def hourly_offer(pairs: Sequence[tuple[Offer, Way]]) -> Offer:
    """The offer whose hours the demand is counted in: one by the hour if there is one."""
    return next((o for o, w in pairs if w.kind == HOURLY), pairs[0][0])


def rentable(workload: Workload, d: Deployed) -> bool:
    """Whether something can be rented while bought servers are on their way."""
    return "rent" in workload.constraints.acquisition and d.rentals is not None and d.rentals(1, 1.0) is not None


def _limited(
    question: Question, d: Deployed, demand: Demand, ways: Sequence[Way], limits: Limits | None
) -> Plan | None:
    prices, overheads = prices_of(question), overheads_of(question, d.services)
    plan = best_plan(demand, ways, prices, overheads)
    if plan is not None and limits is not None and not _keeps(plan, limits):
        plan = best_plan(demand, ways, prices, overheads, limits) or plan
    return plan


def _bridged(
    question: Question,
    d: Deployed,
    demand: Demand,
    offers: Sequence[Offer],
    ways: Sequence[Way],
    limits: Limits | None,
    scale: float = 1.0,
) -> Planned | None:
    """Another deployment rented until the first servers arrive, then the cheapest plan with a purchase; None: none."""
    lead = min((w.lead_months for w in ways if w.kind == PURCHASE), default=0)
    if not lead or d.rentals is None or lead + LEAST_HELD_MONTHS > question.workload.horizon_months:
        return None
    bridge = d.rentals(lead, scale)
    if bridge is None:
        return None
    plan = bridged_plan(question, d, demand, ways, bridge, limits)
    return Planned(
        plan=plan, offers=(*offers, *bridge.offers), services=d.services, bridge=bridge
    ) if plan else None  # fmt: skip


def bridged_plan(
    question: Question,
    d: Deployed,
    demand: Demand,
    ways: Sequence[Way],
    bridge: Bridge,
    limits: Limits | None,
) -> Plan | None:
    """The bridge, and from its end on the cheapest plan with these ways; None: nothing is bought then.

    No month has both, so each is planned by itself. The ways of the bridge stand behind the others.
    """
    later = masked(demand, np.arange(demand.fractions.shape[1]) >= bridge.months)
    bought = _limited(question, d, later, ways, limits)
    if bought is None or not bought.capex_usd:
        return None
    first, then = bridge.plan.schedule, bought.schedule
    schedule = Schedule(
        commitments=(*then.commitments, *(replace(c, way=c.way + len(ways)) for c in first.commitments)),
        hourly=(*then.hourly, *(replace(h, way=h.way + len(ways)) for h in first.hourly)),
    )
    overheads = overheads_of(question, d.services)
    return plan_of(demand, (*ways, *bridge.plan.ways), prices_of(question), schedule, overheads)


def replanned(
    question: Question, planned: Planned, d: Deployed, carrying: int, delivery_ratio: float = 1.0
) -> Plan | None:
    """The plan with the same offers for another number of replicas, and a delivery that takes so many times as long.

    None: these offers have too few machines, or nothing can be rented until such a delivery.
    """
    count = planned.own_ways
    offers, most = planned.offers[:count], question.workload.horizon_months - LEAST_HELD_MONTHS
    ways = [
        replace(w, lead_months=min(max(round(w.lead_months * delivery_ratio), 0), max(most, 0)))
        for w in planned.plan.ways[:count]
    ]
    by_the_hour = hourly_offer(list(zip(offers, ways, strict=True)))
    demand = demand_for(question.workload, d, by_the_hour, carrying=carrying, offers=offers)
    if planned.bridge is not None and any(w.lead_months for w in ways):
        found = _bridged(question, d, demand, offers, ways, None, carrying / d.carrying)
        return found.plan if found else None
    return best_plan(demand, ways, planned.plan.prices, overheads_of(question, planned.services))


def before(demand: Demand, month: int) -> Demand:
    """The demand of the first months alone."""
    return masked(demand, np.arange(demand.fractions.shape[1]) < month)


def masked(demand: Demand, kept: np.ndarray) -> Demand:
    return Demand(counts=demand.counts, fractions=np.where(kept, demand.fractions, 0.0))


def _keeps(plan: Plan, limits: Limits) -> bool:
    capex, monthly = limits.max_capex_usd, limits.max_usd_per_month
    return (capex is None or plan.capex_usd <= capex) and (monthly is None or plan.most_usd_per_month <= monthly)


def allowed_offers(question: Question, lane: Lane) -> list[Offer]:
    """The offers that may serve this lane."""
    a, c = lane.choice.accelerator, lane.choice
    return [
        o
        for o in question.catalog.offers_of(a.slug)
        if o.sells(a) and allowed(o, question.workload.constraints) and holds_replica(a, o, c.tp * c.dp, c.pp)
    ]


def combinations(
    workload: Workload, d: Deployed, offers: Sequence[Offer], near: float = NEAR
) -> list[tuple[Offer, ...]]:
    """Offers that one plan may mix: hosts of one size, rents of one provider, the cheapest purchase, what is owned.

    A size is left out where its cheapest offer alone costs over `near` times the least, for today's replicas as well as
    for those of the busiest month: a host that is too large today may be the cheapest one once the load has grown.
    """
    by_size: dict[int, list[Offer]] = {}
    for o in offers:
        by_size.setdefault(o.accelerators, []).append(o)
    kept: set[int] = set()
    for replicas in {d.carrying, math.ceil(d.carrying * max(workload.forecast or (1.0,)) - 1e-9)}:
        least = {
            size: min(o.usd_per_hour for o in same) * float(d.instances(same[0], replicas))
            for size, same in by_size.items()
        }
        most = near * min(least.values(), default=math.inf)
        kept |= {size for size, usd in least.items() if usd <= most}
    return [each for size, same in by_size.items() if size in kept for each in _of_size(same)]


def _of_size(offers: Sequence[Offer]) -> list[tuple[Offer, ...]]:
    owned = [o for o in offers if o.term == OWNED_TERM]
    bought = sorted(
        (o for o in offers if o.acquisition == "own" and o.term != OWNED_TERM), key=lambda o: o.usd_per_hour
    )
    owns = (*owned, *bought[:1])
    rents: dict[str, dict[str, Offer]] = {}
    for o in sorted((o for o in offers if o.acquisition != "own"), key=lambda o: o.usd_per_hour):
        rents.setdefault(o.provider, {}).setdefault(o.term, o)
    chosen: list[str] = []
    for term in {term for mine in rents.values() for term in mine}:
        cheapest_of = min((p for p in rents if term in rents[p]), key=lambda p: (rents[p][term].usd_per_hour, p))
        if cheapest_of not in chosen:
            chosen.append(cheapest_of)
    mixes = [(*owns, *rents[provider].values()) for provider in sorted(chosen)[:MOST_PROVIDERS]]
    mixes = mixes or ([owns] if owns else [])
    sold = [tuple(o for o in mix if o.term != OWNED_TERM) for mix in mixes] if owned else []
    return [*mixes, *(mix for mix in sold if mix)]


# --- until bought servers arrive ------------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class Rentals:
    """Deployments of one search that may be rented until bought servers arrive, on any chip and size.

    The one that is bought and the one that bridges need not be alike: six rented cards can serve until a server of
    eight arrives.
    """

    question: Question
    known: dict[tuple[int, int], tuple[float, Deployed, tuple[Offer, ...]]] = field(
        default_factory=dict
    )  # cheapest first
    _found: dict[tuple[int, float], Bridge | None] = field(default_factory=dict)

    def add(self, design: tuple[int, int], d: Deployed) -> None:
        """A deployment that keeps the limits; design: its row and replicas."""
        if design in self.known:
            return
        offers = tuple(o for o in allowed_offers(self.question, d.lane) if o.acquisition == "rent")
        if not offers:
            return
        each = combinations(self.question.workload, d, offers, near=math.inf)
        usd = min((self._hourly_usd(d, combination) for combination in each), default=math.inf)
        if math.isfinite(usd):
            each_of = sorted({**self.known, design: (usd, d, offers)}.items(), key=lambda one: (one[1][0], one[0]))
            kept = dict(each_of[:MOST_BRIDGES])
            if kept.keys() != self.known.keys():
                self.known, self._found = kept, {}

    def _hourly_usd(self, d: Deployed, offers: Sequence[Offer]) -> float:
        needed = demand_for(self.question.workload, d, offers[0], offers=offers).needed.max(initial=0)
        return float(min(o.usd_per_hour for o in offers) * needed)

    def until(self, months: int, scale: float = 1.0) -> Bridge | None:
        """The cheapest rent of these months, at `scale` times the replicas; None: nothing can be rented."""
        key = months, scale
        if key not in self._found:
            bridges = [
                b for _, d, offers in self.known.values() if (b := self._bridge(d, offers, months, scale)) is not None
            ]
            self._found[key] = min(bridges, key=lambda b: b.present_usd, default=None)
        return self._found[key]

    def _bridge(self, d: Deployed, offers: Sequence[Offer], months: int, scale: float) -> Bridge | None:
        carrying = max(math.ceil(d.carrying * scale - 1e-9), 1)
        prices, overheads = (
            prices_of(self.question),
            overheads_of(self.question, d.services),
        )
        found: list[Bridge] = []
        for combination in combinations(self.question.workload, d, offers):
            pairs = pairs_of(self.question, d, combination)
            by_hour = hourly_offer(pairs)
            demand = before(demand_for(self.question.workload, d, by_hour, carrying=carrying), months)
            ways = [w for _, w in pairs]
            plan = best_plan(demand, ways, prices, overheads)
            if plan is not None:
                found.append(
                    Bridge(
                        deployed=d, carrying=carrying, months=months, offers=tuple(o for o, _ in pairs), plan=plan
                    )
                )  # fmt: skip
        return min(found, key=lambda b: b.present_usd, default=None)
