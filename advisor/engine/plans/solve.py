"""The cheapest schedule of rentals, commitments and purchases that covers the instances needed in each month.

Where the need never shrinks until it ends, each group of instances is covered by itself, month by month from the end
(dynamic programming); what covers a month may have started before it is needed. If all groups are needed in the same
hours, that is optimal: with F(t) the least cost from month t on, the differences F(t) - F(t + 1) are dual prices, none
is negative, no way to pay undercuts them, and they do not depend on the group's size. Groups that are needed in
different hours of a week could share a commitment over time, which is very rarely cheaper and not looked for. Nothing
starts early where covering every month from the first one on never costs more from a later month on. A limit that the
result keeps changes nothing. Where the need shrinks, or such a limit couples the months, it is an integer
program: which instances are covered from when to when. Without limits its matrix is one of intervals (totally
unimodular), so the linear program has whole numbers. HiGHS solves it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import scipy
from numpy.typing import NDArray

from advisor.engine.cost import Prices
from advisor.engine.plans.highs import milp
from advisor.engine.plans.ways import (
    HOURLY,
    OWNED,
    PURCHASE,
    RENTED,
    TERM,
    Array,
    Demand,
    Limits,
    Way,
    monthly_usd,
)

TOLERANCE_FRACTION = 1e-9  # of a cost; a later way must be cheaper by more
GAP_FRACTION, LONG_GAP_FRACTION = 1e-6, 1e-4  # relative, of the integer program; of one over many months
EVERY_MONTH = 24  # horizon up to which limited plans sell hardware after any month; beyond, after whole years
MOST_NODES = 2000  # of the search for whole numbers; a count, not a time, so that answers repeat


@dataclass(frozen=True, kw_only=True, slots=True)
class Commitment:
    """Instances of one way that serve from `start_month` until `until_month` (exclusive; 0 is the first month)."""

    way: int
    start_month: int
    until_month: int
    instances: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Hourly:
    """Instances rented by the hour, by month."""

    way: int
    instances: NDArray[np.int_]  # at most at once
    paid: Array  # instance-months: instances times the fraction of the hours that are paid


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule:
    """What serves when."""

    commitments: tuple[Commitment, ...]
    hourly: tuple[Hourly, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Columns:
    """All ways to cover a run of months with one instance, and the present value of what each costs."""

    way: NDArray[np.int_]
    start: NDArray[np.int_]
    until: NDArray[np.int_]
    usd: Array


def cheapest(demand: Demand, ways: Sequence[Way], prices: Prices, limits: Limits | None = None) -> Schedule | None:
    """The cheapest schedule that covers the demand within the limits; None: no schedule does."""
    limits = limits or Limits()
    limited = limits.max_capex_usd is not None or limits.max_usd_per_month is not None
    if demand.never_shrinks and not limited:
        begun = np.cumsum(demand.fractions > 0, axis=1) > 0
        first = np.argmax(begun, axis=1)
        at_first = np.take_along_axis(demand.fractions, first[:, None], axis=1)
        always = Demand(counts=demand.counts, fractions=np.where(begun, demand.fractions, at_first))
        columns, least, choice = _covered(always, ways, prices)
        choice = np.where(begun, choice, -1)
        tolerance = TOLERANCE_FRACTION * np.abs(least[:, :-1]) + 1e-9
        if (least[:, 1:] > least[:, :-1] + tolerance).any():
            columns, least, choice = _covered(demand, ways, prices, early=True)
        if not np.isfinite(np.take_along_axis(least, first[:, None], axis=1)).all():
            return None
        schedule = _traced(demand, ways, columns, choice)
        pays = (columns.usd < 0).any()  # a purchase that sells for more than it cost is worth it without a need
        if not pays and _keeps_most(schedule, ways, prices.months):
            return schedule
    return _by_program(demand, ways, prices, limits)


def _keeps_most(schedule: Schedule, ways: Sequence[Way], months: int) -> bool:
    """Whether no way has more instances at the same time than there are."""
    for i, way in enumerate(ways):
        if way.most is not None:
            count = sum((h.instances for h in schedule.hourly if h.way == i), np.zeros(months, dtype=int))
            for c in schedule.commitments:
                if c.way == i:
                    count[c.start_month : c.until_month] += c.instances
            if count.max(initial=0) > way.most:
                return False
    return True


# --- by group ---------------------------------------------------------------------------------------------------


def by_group(demand: Demand, ways: Sequence[Way], prices: Prices) -> Schedule | None:
    """The schedule with each group covered by itself; None: a month cannot be covered."""
    columns, least, choice = _covered(demand, ways, prices)
    return _traced(demand, ways, columns, choice) if np.isfinite(least[:, 0]).all() else None


def least_from(demand: Demand, ways: Sequence[Way], prices: Prices) -> Array:
    """Present USD of covering the demand from each month on, group by group, shape (months + 1,)."""
    return np.asarray(demand.counts @ _covered(demand, ways, prices)[1])


def _covered(
    demand: Demand, ways: Sequence[Way], prices: Prices, early: bool = False
) -> tuple[Columns, Array, NDArray[np.int_]]:
    """(columns, least present USD from each month on by group, the choice of each group in each month).

    early: a commitment or purchase may start before the first month that it is needed in.
    """
    groups, months = demand.fractions.shape
    columns, used = columns_of(ways, prices), demand.fractions > 0
    by_hour, choice = np.full((groups, months), np.inf), np.full((groups, months), -1)
    for i, way in enumerate(ways):
        if way.kind == HOURLY:
            full, kept = hour_usd(way, prices)
            usd = demand.fractions * full + kept
            better = used & (usd < by_hour * (1 - TOLERANCE_FRACTION))
            by_hour, choice = np.where(better, usd, by_hour), np.where(better, i, choice)
    by_hour = np.where(used, by_hour, 0.0)
    least = np.zeros((groups, months + 1))
    if not len(columns.way):
        least[:, :-1] = np.cumsum(by_hour[:, ::-1], axis=1)[:, ::-1]
        return columns, least, choice
    latest_first = np.argsort(-columns.start, kind="stable")
    starts = -columns.start[latest_first]
    first_of, after_of = (np.searchsorted(starts, -np.arange(months), side=side) for side in ("left", "right"))
    every, needed = np.arange(groups), demand.needed
    for month in range(months - 1, -1, -1):
        best = by_hour[:, month] + least[:, month + 1]
        here = latest_first[first_of[month] : None if early else after_of[month]]
        if early:
            here = here[columns.until[here] > month]
        if needed[month] and len(here):
            costs = columns.usd[here] + least[:, columns.until[here]]
            usd = costs.min(axis=1)
            first = np.argmax(costs <= (usd + TOLERANCE_FRACTION * (1.0 + np.abs(usd)))[:, None], axis=1)
            usd = costs[every, first]
            better = usd < best * (1 - TOLERANCE_FRACTION)
            best = np.where(better, usd, best)
            choice[:, month] = np.where(better, len(ways) + here[first], choice[:, month])
        least[:, month] = best
    return columns, least, choice


def _traced(demand: Demand, ways: Sequence[Way], columns: Columns, choice: NDArray[np.int_]) -> Schedule:
    months = demand.fractions.shape[1]
    kept: dict[tuple[int, int, int], int] = {}
    instances = {i: np.zeros(months, dtype=int) for i, w in enumerate(ways) if w.kind == HOURLY}
    paid = {i: np.zeros(months) for i in instances}
    for group, count in enumerate(demand.counts.tolist()):
        month = 0
        while month < months:
            chosen = int(choice[group, month])
            if chosen >= len(ways):
                k = chosen - len(ways)
                key = int(columns.way[k]), int(columns.start[k]), int(columns.until[k])
                kept[key] = kept.get(key, 0) + count
                month = key[2]
                continue
            if chosen >= 0:
                instances[chosen][month] += count
                paid[chosen][month] += count * demand.fractions[group, month]
            month += 1
    return _schedule(_merged(kept, ways), instances, paid)


def _schedule(
    kept: dict[tuple[int, int, int], int], instances: dict[int, NDArray[np.int_]], paid: dict[int, Array]
) -> Schedule:
    return Schedule(
        commitments=tuple(
            Commitment(way=way, start_month=start, until_month=until, instances=count)
            for (way, start, until), count in sorted(
                kept.items(), key=lambda item: (item[0][1], item[0][0], item[0][2])
            )
            if count
        ),
        hourly=tuple(Hourly(way=i, instances=n, paid=paid[i]) for i, n in instances.items() if n.any()),
    )


# --- what a column costs ----------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def hour_usd(way: Way, prices: Prices) -> tuple[Array, Array]:
    """Present USD of a full month by the hour, and of what is paid in every month of service, by month."""
    present = prices.present(np.arange(1, prices.months + 1))
    full, kept = (
        sum(monthly_usd(parts, prices).values(), np.zeros(prices.months)) for parts in (way.parts, way.kept_parts)
    )
    return full * present, kept * present


def columns_of(ways: Sequence[Way], prices: Prices) -> Columns:
    """Every run of months that one commitment, purchase or owned instance can serve.

    A purchase is sold at the end of its run, at the latest at the end of its life or the horizon, and not before it
    has served its least months.
    """
    found = [(i, *_columns_of(way, prices)) for i, way in enumerate(ways) if way.kind != HOURLY]
    if not found:
        none = np.zeros(0, dtype=int)
        return Columns(way=none, start=none, until=none, usd=np.zeros(0))
    return Columns(
        way=np.concatenate([np.full(len(start), i) for i, start, _, _ in found]),
        start=np.concatenate([start for _, start, _, _ in found]),
        until=np.concatenate([until for _, _, until, _ in found]),
        usd=np.concatenate([usd for *_, usd in found]),
    )


@lru_cache(maxsize=256)
def _columns_of(way: Way, prices: Prices) -> tuple[NDArray[np.int_], NDArray[np.int_], Array]:
    """(first month, month after the last, present USD) of the columns of one way."""
    months = prices.months
    running = np.concatenate([[0.0], np.cumsum(_running(way, prices) * prices.present(np.arange(1, months + 1)))])
    start = np.arange(min(way.lead_months, months), months)
    if way.kind == OWNED:
        return start, start + 1, running[start + 1] - running[start]
    length = way.term_months if way.kind == TERM else way.life_months
    until = np.minimum(start + length, months)
    if way.kind == TERM:
        due = start[:, None] + np.arange(1, length + 1)
        each = _rent_signed(way, prices)[start]
        counted = np.where(due > months, 1.0 - prices.exit_fraction, 1.0)
        usd = each * (counted * prices.present(np.minimum(due, months))).sum(axis=1)
        return start, until, usd + running[until] - running[start]
    lengths = until - start
    latest = np.repeat(until, lengths)  # of each start the longest run first, so that equal costs keep hardware
    start = np.repeat(start, lengths)
    until = latest - (np.arange(len(latest)) - np.repeat(np.cumsum(lengths) - lengths, lengths))
    held = until - start >= min(way.least_months, way.life_months)
    start, until = start[held], until[held]
    capital = way.capital_usd * prices.path("hardware")[start]
    resale = capital * _resale_fraction(way, until - start) * prices.path("resale", months + 1)[until]
    usd = capital * prices.present(start) - resale * prices.present(until)
    return start, until, usd + running[until] - running[start]


def _resale_fraction(way: Way, held: NDArray[np.int_]) -> Array:
    values = np.asarray(way.resale or (0.0,), dtype=float)
    return values[np.minimum(held, len(values) - 1)]


def _rent_signed(way: Way, prices: Prices) -> Array:
    """USD of each payment of a commitment, by the month in which it is signed."""
    rent = monthly_usd([p for p in way.parts if p.name in RENTED], prices)
    return sum(rent.values(), np.zeros(prices.months))


def _running(way: Way, prices: Prices) -> Array:
    """USD by month of service besides the rent of a commitment."""
    every = [p for p in way.parts if way.kind != TERM or p.name not in RENTED]
    return sum(monthly_usd((*every, *way.kept_parts), prices).values(), np.zeros(prices.months))


def term_payments(way: Way, prices: Prices, start: int) -> tuple[Array, NDArray[np.int_]]:
    """(USD of each payment, month at whose end it is due) of one commitment; past the horizon less what exit recovers.

    The price is that of the month in which it is signed. A plan pays what is due past its horizon at the horizon.
    """
    each = float(_rent_signed(way, prices)[start])
    due = np.arange(start + 1, start + way.term_months + 1)
    return np.where(due > prices.months, each * (1.0 - prices.exit_fraction), each), due


def purchase_payments(way: Way, prices: Prices, start: int, until: int) -> tuple[float, float]:
    """(USD paid at the start, USD of the resale at the end) of one purchase."""
    capital = way.capital_usd * float(prices.path("hardware")[start])
    fraction = float(_resale_fraction(way, np.array(until - start)))
    return capital, capital * fraction * float(prices.path("resale", prices.months + 1)[until])


# --- as a program -----------------------------------------------------------------------------------------------


def _by_program(demand: Demand, ways: Sequence[Way], prices: Prices, limits: Limits) -> Schedule | None:
    """The schedule as an integer program; None: no schedule keeps the limits."""
    months, needed = prices.months, demand.needed
    if not needed.any():
        return Schedule(commitments=(), hourly=())
    if limits.max_usd_per_month is not None and exceeds_budget(demand, ways, prices, limits.max_usd_per_month):
        return None
    coupled = limits != Limits() or any(w.most is not None for w in ways)
    columns = columns_of(ways, prices)
    if coupled and months > EVERY_MONTH:
        columns = thinned(columns, ways, prices)
    slots = [
        (i, group, month, demand.fractions[group, month])
        for i, w in enumerate(ways)
        if w.kind == HOURLY
        for group in range(len(demand.counts))
        for month in range(months)
        if demand.fractions[group, month] > 0
    ]
    usd_of = {i: hour_usd(w, prices) for i, w in enumerate(ways) if w.kind == HOURLY}
    slot_usd = np.array([share * usd_of[i][0][month] + usd_of[i][1][month] for i, _, month, share in slots])
    kept, hourly = len(columns.way), len(slots)
    if not kept + hourly:
        return None
    rows: list[tuple[NDArray[np.int_], Array, float, float]] = []
    in_month: dict[int, list[int]] = {}
    of_group: dict[tuple[int, int], list[int]] = {}
    for k, (_, group, month, _) in enumerate(slots):
        in_month.setdefault(month, []).append(kept + k)
        of_group.setdefault((group, month), []).append(kept + k)
    for month in np.flatnonzero(needed).tolist():
        serving = np.flatnonzero((columns.start <= month) & (month < columns.until))
        index = np.concatenate([serving, np.array(in_month.get(month, []), dtype=int)])
        rows.append((index, np.ones(len(index)), float(needed[month]), np.inf))
    for (group, _), same in of_group.items():  # every hour of a group is paid once, in whichever way by the hour
        if len(same) > 1:
            rows.append((np.array(same), np.ones(len(same)), 0.0, float(demand.counts[group])))
    rows += _limit_rows(ways, prices, limits, columns, slots)
    matrix = scipy.sparse.coo_array(
        (
            np.concatenate([r[1] for r in rows]),
            (np.repeat(np.arange(len(rows)), [len(r[0]) for r in rows]), np.concatenate([r[0] for r in rows])),
        ),
        shape=(len(rows), kept + hourly),
    ).tocsr()
    most = np.concatenate(
        [np.full(kept, float(needed.max(initial=0))), [float(demand.counts[g]) for _, g, _, _ in slots]]
    )
    result = milp(
        np.concatenate([columns.usd, slot_usd]),
        integrality=np.full(kept + hourly, int(coupled)),
        bounds=scipy.optimize.Bounds(0, most),
        constraints=scipy.optimize.LinearConstraint(matrix, [r[2] for r in rows], [r[3] for r in rows]),
        options={"mip_rel_gap": GAP_FRACTION if months <= EVERY_MONTH else LONG_GAP_FRACTION, "node_limit": MOST_NODES},
    )
    if result.x is None:
        return None
    return _read(demand, ways, columns, slots, np.round(result.x).astype(int))


def exceeds_budget(demand: Demand, ways: Sequence[Way], prices: Prices, budget_usd: float) -> bool:
    """Whether some month costs more than the budget even with each instance in the way that counts least there."""
    months = prices.months
    committed = np.full(months, np.inf)
    for way in ways:
        if way.kind != HOURLY:
            committed = np.minimum(committed, least_usd_by_month(way, prices))
    least = np.repeat(committed[None, :], len(demand.counts), axis=0)
    for way in ways:
        if way.kind == HOURLY:
            full, kept = (
                sum(monthly_usd(parts, prices).values(), np.zeros(months)) for parts in (way.parts, way.kept_parts)
            )
            least = np.minimum(least, demand.fractions * full + kept)
    used = demand.fractions > 0
    return bool((np.where(used, least * demand.counts[:, None], 0.0).sum(axis=0) > budget_usd * (1 + 1e-9)).any())


def least_usd_by_month(way: Way, prices: Prices) -> Array:
    """The least that one committed, bought or owned instance can count in each month, shape (months,)."""
    columns = columns_of([way], prices)
    least = np.full(prices.months, np.inf)
    bare = replace(way, parts=(), kept_parts=()) if way.kind == PURCHASE else way
    running = _running(way, prices) if way.kind == PURCHASE else np.zeros(prices.months)
    for start, until in zip(columns.start.tolist(), columns.until.tolist(), strict=True):
        usd = column_usd_by_month(bare, prices, start, until)[start:until]
        least[start:until] = np.minimum(least[start:until], usd + running[start:until])
    return least


def thinned(columns: Columns, ways: Sequence[Way], prices: Prices) -> Columns:
    """The columns with purchases that are sold after whole years of service, or at the latest possible month."""
    bought = np.array([way.kind == PURCHASE for way in ways])[columns.way]
    life = np.array([way.life_months for way in ways])[columns.way]
    latest = columns.until == np.minimum(columns.start + life, prices.months)
    kept = ~bought | latest | ((columns.until - columns.start) % 12 == 0)
    return Columns(way=columns.way[kept], start=columns.start[kept], until=columns.until[kept], usd=columns.usd[kept])


def _limit_rows(
    ways: Sequence[Way], prices: Prices, limits: Limits, columns: Columns, slots: Sequence[tuple[int, int, int, float]]
) -> Iterator[tuple[NDArray[np.int_], Array, float, float]]:
    """Rows (variables, coefficients, least, most) of the limits on capital, payments and instances."""
    kept, months = len(columns.way), prices.months
    bought = np.array([k for k in range(kept) if ways[columns.way[k]].kind == PURCHASE], dtype=int)
    if limits.max_capex_usd is not None and len(bought):
        capital = np.array(
            [purchase_payments(ways[columns.way[k]], prices, columns.start[k], columns.until[k])[0] for k in bought]
        )
        yield bought, capital, 0.0, limits.max_capex_usd
    for i, way in enumerate(ways):
        if way.most is None:
            continue
        for month in range(months):
            own = [k for k in range(kept) if columns.way[k] == i and columns.start[k] <= month < columns.until[k]]
            own += [kept + k for k, s in enumerate(slots) if s[0] == i and s[2] == month]
            yield np.array(own, dtype=int), np.ones(len(own)), 0.0, float(way.most)
    if limits.max_usd_per_month is None:
        return
    monthly = [
        column_usd_by_month(ways[columns.way[k]], prices, columns.start[k], columns.until[k]) for k in range(kept)
    ]
    for month in range(months):
        index = [k for k in range(kept) if monthly[k][month]]
        usd = [float(monthly[k][month]) for k in index]
        for k, (i, _, at, share) in enumerate(slots):
            if at == month:
                full, always = (
                    sum((v[month] for v in monthly_usd(p, prices).values()), 0.0)
                    for p in (ways[i].parts, ways[i].kept_parts)
                )
                index.append(kept + k)
                usd.append(share * full + always)
        yield np.array(index, dtype=int), np.array(usd), 0.0, limits.max_usd_per_month


def column_usd_by_month(way: Way, prices: Prices, start: int, until: int) -> Array:
    """What one committed instance counts against a monthly budget: its payments and the equivalent of its purchase."""
    usd = np.zeros(prices.months)
    usd[start:until] = _running(way, prices)[start:until]
    if way.kind == TERM:
        paid, due = term_payments(way, prices, start)
        inside = due <= prices.months
        usd[due[inside] - 1] += paid[inside]
    if way.kind == PURCHASE:
        capital, resale = purchase_payments(way, prices, start, until)
        present = capital * float(prices.present(start)) - resale * float(prices.present(until))
        usd[start:until] += present / float(prices.present(np.arange(start + 1, until + 1)).sum())
    return usd


def _read(
    demand: Demand,
    ways: Sequence[Way],
    columns: Columns,
    slots: Sequence[tuple[int, int, int, float]],
    x: NDArray[np.int_],
) -> Schedule:
    months, kept = demand.fractions.shape[1], {}
    for k in np.flatnonzero(x[: len(columns.way)]):
        key = int(columns.way[k]), int(columns.start[k]), int(columns.until[k])
        kept[key] = int(x[k])
    instances = {i: np.zeros(months, dtype=int) for i, w in enumerate(ways) if w.kind == HOURLY}
    paid = {i: np.zeros(months) for i in instances}
    for (i, _, month, share), count in zip(slots, x[len(columns.way) :], strict=True):
        instances[i][month] += count
        paid[i][month] += count * share
    return _schedule(_merged(kept, ways), instances, paid)


def _merged(kept: dict[tuple[int, int, int], int], ways: Sequence[Way]) -> dict[tuple[int, int, int], int]:
    """Months of owned instances joined into runs."""
    merged = {key: n for key, n in kept.items() if ways[key[0]].kind != OWNED}
    for i, way in enumerate(ways):
        if way.kind != OWNED:
            continue
        by_month = {start: n for (w, start, _), n in kept.items() if w == i}
        for floor in range(1, max(by_month.values(), default=0) + 1):
            months = sorted(month for month, n in by_month.items() if n >= floor)
            while months:
                first = last = months.pop(0)
                while months and months[0] == last + 1:
                    last = months.pop(0)
                merged[i, first, last + 1] = merged.get((i, first, last + 1), 0) + 1
    return merged
