"""The cheapest schedule by trying every one: instances one by one, in plain loops, without the solver's columns."""

import itertools
import math
from functools import lru_cache

import numpy as np

from advisor.engine.cost import Prices
from advisor.engine.plans.ways import HOURLY, OWNED, PURCHASE, RENTED, TERM, Demand, Limits, Way
from advisor.engine.terms import HOURS_PER_MONTH, Part


def ratio(path: tuple[float, ...], month: int) -> float:
    return path[month] if len(path) else 1.0


def month_usd(way: Way, prices: Prices, month: int, share: float, rented: bool) -> float:
    """USD of one instance in service in a month: what depends on the hours, and what does not."""
    usd = 0.0
    for parts, fraction in ((way.parts, share), (way.kept_parts, 1.0)):
        for part in parts:
            path: tuple[float, ...] = ()
            if part.name in RENTED:
                if not rented:
                    continue
                path = prices.rent
            elif part.name in ("electricity", "cooling"):
                path = prices.energy
            usd += part.usd_per_hour * HOURS_PER_MONTH * fraction * ratio(path, month)
    return usd


class Tried:
    """All schedules of one small case; `early`: a purchase may be sold before the end of its life."""

    def __init__(self, demand: Demand, ways: tuple[Way, ...], prices: Prices, limits: Limits, early: bool) -> None:
        self.ways, self.prices, self.limits, self.early = ways, prices, limits, early
        self.rate = (1 + prices.discount_fraction) ** (1 / 12)
        self.instances = [  # the share of each month's hours in which each single instance is needed
            tuple(float(x) for x in row)
            for n, row in zip(demand.counts, demand.fractions, strict=True)
            for _ in range(int(n))
        ]
        needed = [sum(row[m] > 0 for row in self.instances) for m in range(prices.months)]
        self.largest = max(needed)
        self.kept = [i for i, w in enumerate(ways) if w.kind in (TERM, PURCHASE)]
        self.open = [i for i, w in enumerate(ways) if w.kind in (HOURLY, OWNED)]
        self.cost_of = lru_cache(None)(self._cost_of)
        self.covered = lru_cache(None)(self._covered)
        self.least = lru_cache(None)(self._least)

    def now(self, month: float) -> float:
        return self.rate**-month

    def _cost_of(self, way: int, start: int, until: int) -> tuple[float, tuple[float, ...], float]:
        """(present USD, USD counted in each month's budget, capital) of one commitment or purchase."""
        w, p = self.ways[way], self.prices
        monthly = [0.0] * p.months
        present = 0.0
        for month in range(start, until):
            usd = month_usd(w, p, month, 1.0, rented=w.kind == PURCHASE)
            monthly[month] += usd
            present += usd * self.now(month + 1)
        if w.kind == TERM:
            each = sum(x.usd_per_hour for x in w.parts if x.name in RENTED) * HOURS_PER_MONTH * ratio(p.rent, start)
            for due in range(start + 1, start + w.term_months + 1):
                if due > p.months:
                    present += each * (1 - p.exit_fraction) * self.now(p.months)
                else:
                    present += each * self.now(due)
                    monthly[due - 1] += each
            return present, tuple(monthly), 0.0
        capital = w.capital_usd * ratio(p.hardware, start)
        resale = w.resale[min(until - start, len(w.resale) - 1)] if w.resale else 0.0
        net = capital * self.now(start) - capital * resale * ratio(p.resale, until) * self.now(until)
        equal = net / sum(self.now(m + 1) for m in range(start, until))
        for month in range(start, until):
            monthly[month] += equal
        return present + net, tuple(monthly), capital

    def _covered(self, month: int, active: int) -> tuple[tuple[float, float], ...]:
        """(present USD, USD) of every way to serve this month with `active` instances committed or bought."""
        wanted = [row[month] for row in self.instances if row[month] > 0]
        found = set()
        for chosen in itertools.product([-1, *self.open], repeat=len(wanted)):
            if chosen.count(-1) > active:
                continue
            usd = 0.0
            for way, share in zip(chosen, wanted, strict=True):
                if way < 0:
                    continue
                w = self.ways[way]
                if month < w.lead_months and w.kind == OWNED:
                    break
                if w.most is not None and chosen.count(way) > w.most:
                    break
                usd += month_usd(w, self.prices, month, 1.0 if w.kind == OWNED else share, rented=True)
            else:
                found.add(usd)
        return tuple((usd * self.now(month + 1), usd) for usd in sorted(found)[:1])

    def ends(self, way: int, start: int) -> list[int]:
        w = self.ways[way]
        last = min(start + (w.term_months if w.kind == TERM else w.life_months), self.prices.months)
        return list(range(start + 1, last + 1)) if w.kind == PURCHASE and self.early else [last]

    def _least(self, month: int, active: tuple[tuple[int, int, int], ...], capital: float) -> float:
        """Present USD from a month on, with these in service or still to be paid."""
        if month == self.prices.months:
            return 0.0
        best = math.inf
        options = [
            (way, month, until)
            for way in self.kept
            if month >= self.ways[way].lead_months
            for until in self.ends(way, month)
        ]
        for more in range(2 * self.largest - len(active) + 1):
            if more > self.largest:
                break
            for new in itertools.combinations_with_replacement(options, more):
                costs = [self.cost_of(*each) for each in new]
                spent = capital + sum(c[2] for c in costs)
                if self.limits.max_capex_usd is not None and spent > self.limits.max_capex_usd + 1e-6:
                    continue
                serving = tuple(sorted((*active, *new)))
                if any(
                    (most := self.ways[i].most) is not None and sum(s[0] == i for s in serving) > most
                    for i in self.kept
                ):
                    continue
                ways_now = self.covered(month, len(serving))
                if not ways_now:
                    continue
                present, usd = ways_now[0]
                if self.limits.max_usd_per_month is not None:
                    usd += sum(self.cost_of(*each)[1][month] for each in serving)
                    if usd > self.limits.max_usd_per_month + 1e-6:
                        continue
                later = self.least(
                    month + 1,
                    tuple(s for s in serving if s[2] > month + 1),
                    round(spent, 6) if self.limits.max_capex_usd is not None else 0.0,
                )
                best = min(best, present + sum(c[0] for c in costs) + later)
        return best


def cheapest_usd(
    demand: Demand, ways: tuple[Way, ...], prices: Prices, limits: Limits | None = None, early: bool = False
) -> float:
    """Present USD of the cheapest schedule; infinite if there is none."""
    return Tried(demand, tuple(ways), prices, limits or Limits(), early).least(0, (), 0.0)


# --- random small cases -----------------------------------------------------------------------------------------


def part(name: str, usd_per_hour: float, group: str = "rent") -> Part:
    return Part(name=name, usd_per_hour=float(usd_per_hour), group=group)


def random_demand(r: np.random.Generator, months: int, grows: bool, full_hours: bool) -> Demand:
    """One to three instances in one or two groups; the base is needed whenever another one is."""
    groups = int(r.integers(1, 3))
    counts = r.integers(1, 3, groups) if grows and groups == 1 else np.ones(groups, dtype=int)
    if grows and groups == 2:
        counts = np.array([1, int(r.integers(1, 3))])
    hours = np.ones((groups, months)) if full_hours else r.integers(1, 5, (groups, months)) / 4
    fractions = np.where(r.random((groups, months)) < 0.3, 0.0, hours)
    if grows:
        fractions = np.sort(fractions, axis=1)
    fractions = -np.sort(-fractions, axis=0)
    fractions[0, -1] = max(fractions[0, -1], 0.25)
    return Demand(counts=counts, fractions=fractions)


def random_prices(r: np.random.Generator, months: int, paths: str) -> Prices:
    """Price paths that are flat, falling or up and down."""

    def path(length: int) -> tuple[float, ...]:
        if paths == "flat":
            return ()
        if paths == "falling":
            return tuple(np.cumprod(np.r_[1.0, r.uniform(0.85, 1.0, length - 1)]).tolist())
        return tuple(r.uniform(0.6, 1.6, length).tolist())

    return Prices(
        months=months, discount_fraction=float(r.choice([0.0, 0.1, 0.5])), rent=path(months), energy=path(months),
        hardware=path(months), resale=path(months + 1), exit_fraction=float(r.choice([0.0, 0.3, 1.0])),
    )  # fmt: skip


def random_ways(r: np.random.Generator, owned: bool = False, hourly_most: int | None = None) -> tuple[Way, ...]:
    """By the hour, for two or three months, bought with a life of two to five months, and already owned."""
    rate = r.uniform(1, 3)
    ways = [
        Way(
            kind=HOURLY, parts=(part("instances", rate), part("staff", r.uniform(0, 0.3), "running")),
            kept_parts=(part("licences", r.uniform(0, 0.5), "running"),), most=hourly_most,
        ),
        Way(
            kind=TERM, term_months=int(r.integers(2, 4)),
            parts=(part("instances", rate * r.uniform(0.4, 0.95)), part("staff", r.uniform(0, 0.3), "running")),
        ),
        Way(
            kind=PURCHASE, parts=(part("electricity", r.uniform(0, 0.4), "running"),), capital_usd=r.uniform(500, 6000),
            life_months=int(r.integers(2, 6)), lead_months=int(r.integers(0, 3)),
            resale=tuple(np.cumprod(np.r_[r.uniform(0.7, 1), r.uniform(0.5, 0.98, 6)]).tolist()),
        ),
    ]  # fmt: skip
    if owned:
        running = (part("electricity", r.uniform(0, 1), "running"),)
        ways.append(Way(kind=OWNED, parts=running, most=int(r.integers(1, 3))))
    return tuple(ways)
