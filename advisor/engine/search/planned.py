"""The cheapest dated plan of a simulated deployment: which offers serve it in which month of the horizon."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
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
    Way,
    best_plan,
    demand_by_month,
    named_plans,
)
from advisor.engine.search.candidates import Catalog, allowed, connected_chips
from advisor.engine.search.table import autoscales, licence_of, load_levels, run_fraction
from advisor.engine.spec import OWNED as OWNED_TERM
from advisor.engine.spec import Offer, Part, Workload
from advisor.engine.step import Lane

NEAR = 1.5  # instance sizes whose cheapest single offer costs up to this many times the least are planned
MOST_PROVIDERS = 3  # rents of one plan come from one provider: those with the lowest price of each term are tried


@dataclass(frozen=True, kw_only=True, slots=True)
class Deployed:
    """What a plan needs to know of a deployment."""

    lane: Lane
    instances: Callable[[Offer, Any], Any]  # of an offer, for a number of serving replicas
    carrying: int  # replicas that serve today's peak
    stored_bytes: float  # of one copy of the weights
    output_tokens_per_s: float
    drawn_fraction: Callable[[Offer], float]  # mean power of an offer's instances over their full draw
    utilisation_fraction: float
    services: tuple[Part, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Planned:
    """A plan with the offer behind each of its ways."""

    plan: Plan
    offers: tuple[Offer, ...]
    services: tuple[Part, ...] = ()  # of the provider, at today's traffic

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
        return int(np.argmax(self.share_usd()))


def prices_of(workload: Workload, catalog: Catalog) -> Prices:
    """Discounting and price paths over the workload's horizon."""
    a = catalog.site_assumptions or catalog.assumptions
    return replace(a.prices, months=workload.horizon_months, discount_fraction=workload.discount_fraction)


def overheads_of(workload: Workload, catalog: Catalog, services: Sequence[Part] = ()) -> Overheads:
    a = catalog.site_assumptions or catalog.assumptions
    return Overheads(
        own_team_usd_per_month=a.own_team_usd_per_month,
        rented_team_usd_per_month=a.rented_team_usd_per_month,
        services=tuple(services),
        traffic=workload.forecast,
    )


def forgone_usd_per_hour(workload: Workload, catalog: Catalog, offer: Offer, instances: int) -> float:
    """The forgone sale of the owned machines among these instances, as a plan counts it, USD per hour."""
    prices = prices_of(workload, catalog)
    each = offer.sale_usd - offer.later_sale_usd * float(prices.present(prices.months))
    return min(instances, offer.held_instances) * each / prices.annuity / HOURS_PER_MONTH


def team_usd_per_hour(workload: Workload, catalog: Catalog, machines: Iterable[tuple[Offer, float]]) -> float:
    """What is missing to the least staff cost on these machines, USD per hour: one team, however much they serve.

    machines: (offer, instances). A plan adds the same by month.
    """
    kept = [(o, n) for o, n in machines if n]
    least = overheads_of(workload, catalog)
    owns = any(o.acquisition == "own" for o, _ in kept)
    monthly = least.own_team_usd_per_month if owns else least.rented_team_usd_per_month
    staff = math.fsum(n * p.usd_per_hour for o, n in kept for p in o.parts if p.name == STAFF_PART)
    return max(monthly / HOURS_PER_MONTH - staff, 0.0) if kept else 0.0


def demand_for(workload: Workload, d: Deployed, offer: Offer, carrying: float | None = None) -> Demand:
    """Instances of an offer by month, for the growth, the seasons and the hours of the week."""
    n = float(d.carrying if carrying is None else carrying)
    by_hour = autoscales(workload, offer)
    forecast = np.asarray(workload.forecast or np.ones(workload.horizon_months))
    return demand_by_month(
        n * forecast,
        lambda replicas: d.instances(offer, replicas),
        levels=load_levels(workload.week) if by_hour else None,
        start_hours=workload.cold_start_s / 3600.0,
        run_fraction=float(run_fraction(workload, offer, d.utilisation_fraction)),
    )


def ways_of(workload: Workload, catalog: Catalog, d: Deployed, offer: Offer, with_held: bool = True) -> list[Way]:
    """The ways to have an instance under one offer: rented, or bought.

    with_held: a purchase comes with the instances of its size that are already owned.
    """
    runs = float(run_fraction(workload, offer, d.utilisation_fraction))
    licence = licence_of(catalog, d.lane) * runs
    return ways_under(catalog, offer, licence, lambda: d.drawn_fraction(offer), with_held)


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
        lead_months=a.lead_months,
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


def single(workload: Workload, catalog: Catalog, d: Deployed, offer: Offer) -> Planned | None:
    """The plan on one offer alone; None: more instances are needed than it has."""
    ways = ways_of(workload, catalog, d, offer)
    return _planned(workload, catalog, d, [offer] * len(ways), ways, None)


def best(workload: Workload, catalog: Catalog, d: Deployed, offers: Sequence[Offer]) -> Planned | None:
    """The cheapest plan over combinations of offers of one instance size; None: nothing serves within the limits.

    A plan that keeps owned machines counts their forgone sale.
    """
    found = []
    near = NEAR if limits_of(workload) is None else math.inf  # a limit may forbid what makes another size look dear
    for combination in combinations(workload, d, offers, near):
        pairs = pairs_of(workload, catalog, d, combination)
        planned = _planned(workload, catalog, d, [o for o, _ in pairs], [w for _, w in pairs], limits_of(workload))
        found += [planned] if planned else []
    return min(found, key=lambda p: p.plan.economic_usd, default=None)


def pairs_of(workload: Workload, catalog: Catalog, d: Deployed, offers: Sequence[Offer]) -> list[tuple[Offer, Way]]:
    """Every way of the offers, with its offer; what is owned counts once."""
    alone = not any(o.term == OWNED_TERM for o in offers)
    return [(o, w) for o in offers for w in ways_of(workload, catalog, d, o, with_held=alone)]


def strategies(workload: Workload, catalog: Catalog, d: Deployed, offers: Sequence[Offer]) -> dict[str, Plan]:
    """The cheapest plan of each usual strategy over the instance sizes and providers on offer."""
    found: dict[str, Plan] = {}
    for combination in combinations(workload, d, offers, near=math.inf):
        pairs = pairs_of(workload, catalog, d, combination)
        by_hour = next((o for o, w in pairs if w.kind == HOURLY), pairs[0][0])
        named = named_plans(
            demand_for(workload, d, by_hour),
            [w for _, w in pairs],
            prices_of(workload, catalog),
            overheads_of(workload, catalog, d.services),
        )
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
    workload: Workload,
    catalog: Catalog,
    d: Deployed,
    offers: Sequence[Offer],
    ways: Sequence[Way],
    limits: Limits | None,
) -> Planned | None:
    prices, overheads = prices_of(workload, catalog), overheads_of(workload, catalog, d.services)
    by_hour = next((o for o, w in zip(offers, ways, strict=True) if w.kind == HOURLY), offers[0])
    demand = demand_for(workload, d, by_hour)
    ways = [replace(w, lead_months=0) for w in ways] if all(w.kind in (PURCHASE, OWNED) for w in ways) else ways
    plan = best_plan(demand, ways, prices, overheads)
    if plan is not None and limits is not None and not _keeps(plan, limits):
        plan = best_plan(demand, ways, prices, overheads, limits) or plan
    return Planned(plan=plan, offers=tuple(offers), services=d.services) if plan else None


def _keeps(plan: Plan, limits: Limits) -> bool:
    capex, monthly = limits.max_capex_usd, limits.max_usd_per_month
    return (capex is None or plan.capex_usd <= capex) and (monthly is None or plan.most_usd_per_month <= monthly)


def allowed_offers(workload: Workload, catalog: Catalog, lane: Lane) -> list[Offer]:
    """The offers that may serve this lane."""
    a, c = lane.choice.accelerator, lane.choice
    return [
        o
        for o in catalog.offers
        if o.sells(a) and allowed(o, workload.constraints) and c.tp * c.dp <= connected_chips(a, o)
    ]


def combinations(
    workload: Workload, d: Deployed, offers: Sequence[Offer], near: float = NEAR
) -> list[tuple[Offer, ...]]:
    """Offers that one plan may mix: hosts of one size, rents of one provider, the cheapest purchase, what is owned."""
    by_size: dict[int, list[Offer]] = {}
    for o in offers:
        by_size.setdefault(o.accelerators, []).append(o)
    least: dict[int, float] = {}
    for size, same in by_size.items():
        count = float(d.instances(same[0], d.carrying))
        least[size] = min(o.usd_per_hour for o in same) * count
    most = near * min(least.values(), default=math.inf)
    return [each for size, same in by_size.items() if least[size] <= most for each in _of_size(same)]


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
