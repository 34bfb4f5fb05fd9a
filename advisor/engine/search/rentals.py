"""What is rented until bought servers arrive: any simulated deployment that keeps the limits, on any chip and size.

The deployment that is bought and the one that bridges the delivery need not be alike: six rented cards can serve until
a server of eight arrives. Both are planned by themselves, for months before and after the delivery, and their payments
add up, because no month has both.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from advisor.engine.plans import best_plan
from advisor.engine.search.candidates import Catalog
from advisor.engine.search.planned import (
    Bridge,
    Deployed,
    allowed_offers,
    before,
    combinations,
    demand_for,
    hourly_offer,
    overheads_of,
    pairs_of,
    prices_of,
)
from advisor.engine.spec import Offer, Workload

MOST_BRIDGES = 4  # deployments that are tried, those with the cheapest rent


@dataclass(eq=False, slots=True)
class Rentals:
    """Deployments of one search that may be rented until servers arrive."""

    workload: Workload
    catalog: Catalog
    known: dict[tuple[int, int], tuple[float, Deployed, tuple[Offer, ...]]] = field(
        default_factory=dict
    )  # cheapest first
    _found: dict[tuple[int, float], Bridge | None] = field(default_factory=dict)

    def add(self, design: tuple[int, int], d: Deployed) -> None:
        """A deployment that keeps the limits; design: its row and replicas."""
        offers = tuple(o for o in allowed_offers(self.workload, self.catalog, d.lane) if o.acquisition == "rent")
        if not offers:
            return
        each = combinations(self.workload, d, offers, near=math.inf)
        usd = min((self._hourly_usd(d, combination) for combination in each), default=math.inf)
        if math.isfinite(usd) and design not in self.known:
            each_of = sorted({**self.known, design: (usd, d, offers)}.items(), key=lambda one: (one[1][0], one[0]))
            kept = dict(each_of[:MOST_BRIDGES])
            if kept.keys() != self.known.keys():
                self.known, self._found = kept, {}

    def _hourly_usd(self, d: Deployed, offers: Sequence[Offer]) -> float:
        needed = demand_for(self.workload, d, offers[0]).needed.max(initial=0)
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
            prices_of(self.workload, self.catalog),
            overheads_of(self.workload, self.catalog, d.services),
        )
        found: list[Bridge] = []
        for combination in combinations(self.workload, d, offers):
            pairs = pairs_of(self.workload, self.catalog, d, combination)
            by_hour = hourly_offer(pairs)
            demand = before(demand_for(self.workload, d, by_hour, carrying=carrying), months)
            ways = [w for _, w in pairs]
            plan = best_plan(demand, ways, prices, overheads)
            if plan is not None:
                found.append(
                    Bridge(
                        deployed=d, carrying=carrying, months=months, offers=tuple(o for o, _ in pairs), plan=plan
                    )
                )  # fmt: skip
        return min(found, key=lambda b: b.present_usd, default=None)
