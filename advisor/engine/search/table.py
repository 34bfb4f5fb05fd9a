"""All candidates as arrays: memory, latency, capacity, power and the price of the best offer, in closed form."""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, fields, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np

from advisor.engine.cost import (
    HOURS_PER_MONTH,
    Amount,
    Assumptions,
    hour_usd,
    licence_usd_per_hour,
    total_usd_per_hour,
    watts_per_chip,
)
from advisor.engine.scheduler import closed_loop, log_normal_cv2, open_loop, scheduler_of, shares_prefixes, whole_users
from advisor.engine.search.candidates import CONCURRENCY, Catalog, Question, allowed, concurrency_of, holds_replica
from advisor.engine.search.growing import instances_over_horizon
from advisor.engine.search.limits import latency_excess, latency_margins
from advisor.engine.search.variants.evictions import with_evictions
from advisor.engine.step import (
    NEARLY_ALL,
    Choice,
    Demand,
    Lane,
    Lanes,
    Memory,
    Scheduler,
    StepTimes,
    batch_capacity_requests_per_s,
    batch_latency_p95_s,
    fitting,
    join_lanes,
    take,
)
from advisor.engine.terms import (
    OWNED,
    Accelerator,
    Offer,
    Packing,
    Users,
    Workload,
    host_chips,
    instances_packed,
    packing,
    spare_hosts,
)

Array = np.ndarray
UNSERVABLE_REPLICAS = 1e9  # marks a lane that cannot serve the load with any number of replicas
BY_THE_HOUR = ("on_demand", "spot")


@dataclass(frozen=True, kw_only=True, slots=True)
class Shortfall:
    """The lane of a chip that comes closest to fitting; bytes per chip."""

    lane: Lane
    needed_bytes: float
    usable_bytes: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """The candidates that fit in memory: arrays of shape (lanes, concurrency), each with its best offer."""

    lanes: tuple[Lane, ...]
    built: Lanes | None  # None: nothing fits
    chips: Array  # of one replica, shape (lanes, 1)
    replicas: Array  # serving the peak, without spares
    total_replicas: Array  # spares included, on the best offer
    most_replicas: Array  # the same in the month of the forecast that needs most
    peak_requests_per_s: Array  # the workload's, or the closed-loop rate of its users
    paid_fraction: Array  # of the peak instances' hours in a week
    capacity_requests_per_s: Array  # of one replica
    busy_tpot_s: Array  # mean with every slot busy
    ttft_p95_s: Array  # analytical estimates, not simulated
    tpot_p95_s: Array
    usd_per_hour: Array  # spares included
    offer: Array  # index into Catalog.offers; -1: none
    watts: Array
    full_watts: Array
    kgco2e_per_kwh: Array  # of the offer's region
    evaluated: int
    pruned: int
    shortfalls: Mapping[str, Shortfall]  # chips on which nothing fits
    plain_row: Array  # row of the same lane without a draft; its own row if it has none
    ttft_margin: Array  # TTFT at the confidence asked for, over the estimate, shape (lanes, 1); 1 if none is asked for
    tpot_margin: Array


def demand_of(workload: Workload, share: Array | float = 1.0) -> Demand:
    """What the closed forms know of the requests at a lane that gets this share of them: means and variation."""
    trace = workload.trace
    return Demand(
        input_tokens=workload.input_tokens.mean_tokens,
        output_tokens=workload.output_tokens.mean_tokens,
        input_cv2=recorded_cv2(trace.input_tokens) if trace else log_normal_cv2(workload.input_tokens),
        output_cv2=recorded_cv2(trace.output_tokens) if trace else log_normal_cv2(workload.output_tokens),
        cached_fraction=workload.prefix_cache_hit_fraction,
        arrival_cv2=workload.arrival_cv2(share),
    )


def usable_fraction(workload: Workload) -> float:
    """Share of a replica's capacity that the peak may use: all but the stated headroom. The simulation decides."""
    return min(1.0 - workload.slo.headroom_fraction, NEARLY_ALL)


@lru_cache(maxsize=16)
def recorded_cv2(lengths: tuple[int, ...]) -> float:
    """Squared coefficient of variation of recorded lengths."""
    return float(np.var(lengths) / np.mean(lengths) ** 2)


@dataclass(frozen=True, kw_only=True, slots=True)
class Served:
    """What lanes do with the traffic: it depends neither on prices nor on limits."""

    room: Memory  # of all lanes
    kept: tuple[Lane, ...]  # those that fit
    built: Lanes | None
    estimates: tuple[Array, ...]  # of serving_estimates


def served(question: Question, lanes: Sequence[Lane]) -> Served:
    """Memory, step times and latencies of these lanes; those that do not fit are pruned."""
    room, kept, built = fitting(question.catalog.model, lanes)
    times = built.times if built else None
    estimates = serving_estimates(question.workload, kept, times)
    return Served(room=room, kept=tuple(kept), built=built, estimates=estimates)


def evaluate(question: Question, lanes: Sequence[Lane], known: Served | None = None) -> Table:
    """The table for these lanes at every concurrency; lanes that do not fit in memory are pruned.

    known: of these lanes with this traffic, if it was computed before.
    """
    catalog = question.catalog
    known = known or served(question, lanes)
    room, kept, built = known.room, known.kept, known.built
    chips = np.array([w.choice.tp * w.choice.pp * w.choice.dp for w in kept], dtype=float)[:, None]
    capacity, busy_tpot, replicas, ttft, tpot, peak = known.estimates
    usd, offer, share, priced = best_offers(
        question, kept, replicas, _load(question.workload, peak, capacity * replicas)
    )
    total, most = replicas_on(question, kept, offer, replicas)
    load = _load(question.workload, peak, capacity * total)
    grid = np.array([o.kgco2e_per_kwh or math.nan for o in catalog.offers] + [math.nan])
    return Table(
        lanes=kept,
        built=built,
        chips=chips,
        replicas=replicas,
        total_replicas=total,
        most_replicas=most,
        peak_requests_per_s=peak,
        paid_fraction=share,
        capacity_requests_per_s=capacity,
        busy_tpot_s=busy_tpot,
        ttft_p95_s=ttft,
        tpot_p95_s=tpot,
        usd_per_hour=usd,
        offer=offer,
        watts=mean_watts_of(
            catalog, kept, offer, chips * total * share, load / share, least_power_fraction(catalog.assumptions)
        ),
        full_watts=mean_watts_of(catalog, kept, offer, chips * total, np.ones(1)),
        kgco2e_per_kwh=grid[offer],
        evaluated=priced * len(CONCURRENCY),
        pruned=(len(lanes) - len(kept)) * len(CONCURRENCY),
        shortfalls=_shortfalls(lanes, room),
        plain_row=np.arange(len(kept)),
        **_margins(question, kept),
    )


def at_its_confidence(question: Question, table: Table) -> Table:
    """The same candidates with the margins and the best offers of this question."""
    margins = _margins(question, table.lanes)
    priced = with_best_offers(question, table)
    return replace(priced, ttft_margin=margins["ttft_margin"], tpot_margin=margins["tpot_margin"])


def _margins(question: Question, lanes: Sequence[Lane]) -> dict[str, Any]:
    """The margins of each lane, which depend on its chip and its draft."""
    margins, known = np.ones((2, len(lanes), 1)), dict[tuple[str, str, str, int], tuple[float, float] | None]()
    confidence, scopes = question.workload.slo.confidence, question.catalog.scopes
    for i, lane in enumerate(lanes if confidence else ()):
        key = lane.choice.accelerator.slug, lane.framework.slug, lane.choice.efficiency.basis, id(lane.draft)
        if key not in known:
            known[key] = latency_margins(scopes, lane, confidence or 0.0)
        if (margin := known[key]) is not None:
            margins[:, i, 0] = margin
    return {"ttft_margin": margins[0], "tpot_margin": margins[1]}


def joined(table: Table, more: Table, plain_row: Array) -> Table:
    """Both tables in one; `plain_row` holds the row in `table` of the same lane without its draft."""
    assert table.built is not None
    if more.built is None:
        return table
    names = [f.name for f in fields(Table) if isinstance(getattr(table, f.name), np.ndarray) and f.name != "plain_row"]
    arrays = {name: np.concatenate([getattr(table, name), getattr(more, name)]) for name in names}
    return replace(
        table,
        **arrays,  # type: ignore[arg-type]
        lanes=table.lanes + more.lanes,
        built=join_lanes([table.built, more.built]),
        evaluated=table.evaluated + more.evaluated,
        pruned=table.pruned + more.pruned,
        plain_row=np.concatenate([table.plain_row, plain_row]),
    )


def only_rows(table: Table, rows: Array) -> Table:
    """These rows of the table, without its step times."""
    names = [f.name for f in fields(Table) if isinstance(getattr(table, f.name), np.ndarray)]
    arrays = {name: getattr(table, name)[rows] for name in names}
    return replace(table, **arrays, lanes=tuple(table.lanes[i] for i in rows), built=None)


def with_best_offers(question: Question, table: Table) -> Table:
    """The same candidates, with offers chosen again for this workload's objective."""
    catalog = question.catalog
    peak, capacity = table.peak_requests_per_s, table.capacity_requests_per_s
    load = _load(question.workload, peak, capacity * table.replicas)
    usd, offer, share, _ = best_offers(question, table.lanes, table.replicas, load)
    total, most = replicas_on(question, table.lanes, offer, table.replicas)
    load = _load(question.workload, peak, capacity * total)
    grid = np.array([o.kgco2e_per_kwh or math.nan for o in catalog.offers] + [math.nan])
    least, chips = least_power_fraction(catalog.assumptions), table.chips * total
    return replace(
        table,
        total_replicas=total,
        most_replicas=most,
        usd_per_hour=usd,
        paid_fraction=share,
        offer=offer,
        watts=mean_watts_of(catalog, table.lanes, offer, chips * share, load / share, least),
        full_watts=mean_watts_of(catalog, table.lanes, offer, chips, np.ones(1)),
        kgco2e_per_kwh=grid[offer],
    )


def serving_estimates(workload: Workload, kept: Sequence[Lane], step_times: StepTimes | None) -> tuple[Array, ...]:
    """(requests/s of a full replica, its mean TPOT, replicas for the peak, TTFT p95, TPOT p95, the peak in requests/s).

    Each has the shape (lanes, concurrency), times in s. With users the peak is their closed-loop rate (Little's law),
    first with every slot busy and then at the estimated latency. A lane is never asked for more requests at once than
    it has users, and each of them finds only the others' requests (arrival theorem: Sevcik and Mitrani 1981).
    p95 counts that crowds slow themselves down; users, who wait for their answers, form none.
    """
    shape = (len(kept), len(CONCURRENCY))
    peak = np.full(shape, workload.requests_per_s_peak)
    capacity, replicas = np.zeros(shape), np.ones(shape)
    ttft, tpot, busy_tpot = np.full(shape, np.inf), np.full(shape, np.inf), np.full(shape, np.inf)
    parallel = np.array([w.choice.lanes for w in kept], dtype=float)[:, None]
    together = concurrency_of(kept) / parallel
    for (scheduler, shares), rows in _by_scheduler(kept).items():
        assert step_times is not None
        demand = demand_of(workload) if shares else replace(demand_of(workload), cached_fraction=0.0)
        times = take(step_times, rows)
        seats = np.maximum(together[rows], 1.0)
        if shares:
            demand = with_evictions(workload, demand, times, seats, scheduler, peak[rows] / parallel[rows])
        if not workload.kind.generates_tokens:
            capacity[rows] = batch_capacity_requests_per_s(times, seats, demand, scheduler) * parallel[rows]
        else:
            busy = closed_loop(times, seats, demand, scheduler)
            capacity[rows], busy_tpot[rows] = busy.requests_per_s * parallel[rows], busy.tpot_mean_s
        if workload.users:
            peak[rows] = _closed_loop_rate(workload.users, _ratio(seats * parallel[rows], capacity[rows]), peak[rows])
        each = take(step_times, np.repeat(rows, shape[1]))
        each_demand = replace(demand, cached_fraction=np.ravel(demand.cached_fraction)) if workload.turns else demand
        for last in (False, True) if workload.users else (True,):
            n = np.ceil(_ratio(peak[rows], capacity[rows] * usable_fraction(workload)))
            if workload.users:
                n = np.minimum(n, np.ceil(workload.users.active_requests / (seats * parallel[rows]) - 1e-9))
            replicas[rows] = np.where(np.isfinite(n), np.maximum(n, 1.0), UNSERVABLE_REPLICAS)
            rate = peak[rows] / replicas[rows] / parallel[rows]
            rate = rate * others_fraction(workload.users, replicas[rows] * parallel[rows])
            varied = np.asarray(workload.arrival_cv2(1.0 / (replicas[rows] * parallel[rows])))
            each_demand = replace(each_demand, arrival_cv2=varied.ravel())
            if not workload.kind.generates_tokens:
                latency = batch_latency_p95_s(each, rate.ravel(), seats.ravel(), each_demand, scheduler)
                ttft[rows], tpot[rows] = latency.reshape(rate.shape), 0.0
                continue
            loaded = open_loop(each, rate.ravel(), each_demand, scheduler, crowds=not workload.users)
            if workload.users and not last:
                e2e_s = loaded.ttft_mean_s + (workload.output_tokens.mean_tokens - 1) * loaded.tpot_mean_s
                peak[rows] = _closed_loop_rate(workload.users, e2e_s.reshape(rate.shape), peak[rows])
            ttft[rows] = loaded.ttft_p95_estimate_s.reshape(rate.shape)
            tpot[rows] = loaded.tpot_p95_estimate_s.reshape(rate.shape)
    return capacity, busy_tpot, replicas, ttft, tpot, peak


def others_fraction(users: Users | None, lanes: Array) -> Array | float:
    """Share of a lane's requests that come from others than the user who sends one: (n - 1) / n; 1 without users."""
    if users is None:
        return 1.0
    each = np.maximum(np.ceil(users.active_requests / lanes - 1e-9), 1.0)
    return np.asarray(1.0 - 1.0 / each)


def _ratio(over: Array, under: Array) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(over / under)


def _closed_loop_rate(users: Users, e2e_s: Array, before: Array) -> Array:
    """Closed-loop requests/s of the users at this mean latency; `before` where the latency is infinite."""
    return np.where(np.isfinite(e2e_s), users.active_requests / (users.think_s + e2e_s), before)


def _load(workload: Workload, peak: Array, capacity: Array) -> Array:
    return _ratio(peak * (workload.requests_per_s_mean / workload.requests_per_s_peak), capacity)


def week_share(workload: Workload, carrying: Array, instances: Callable[[Array], Array]) -> Array:
    """Paid fraction of the peak instances' hours in a week if each hour runs only what it needs.

    Additional instances start early enough for the hour and are paid during their cold start.
    """
    counts, place = np.unique(carrying, return_inverse=True)
    levels, hours, before, after, times = load_levels(workload.week)
    needed = np.where(levels > 0, np.maximum(np.ceil(counts[:, None] * levels - 1e-9), 1.0), 0.0)
    held = np.where(needed > 0, instances(needed), 0.0)
    started = np.maximum(held[:, after] - held[:, before], 0.0) @ times
    paid = (held @ hours + started * workload.cold_start_s / 3600.0) / (held.max(axis=1) * hours.sum())
    return np.asarray(np.minimum(paid, 1.0)[place].reshape(carrying.shape))


@lru_cache(maxsize=8)
def load_levels(week: tuple[float, ...]) -> tuple[Array, Array, Array, Array, Array]:
    """(load levels of a week, hours at each, level before, level after, number of such transitions)."""
    levels, place = np.unique(np.array(week), return_inverse=True)
    pairs, times = np.unique(np.stack([place, np.roll(place, -1)]), axis=1, return_counts=True)
    return levels, np.bincount(place).astype(float), pairs[0], pairs[1], times.astype(float)


def started_fraction(workload: Workload) -> float:
    """Cold start as a fraction of the time between two runs of a batch; paid but not serving."""
    if workload.deadline_s is None:
        return 0.0
    every_s = workload.deadline_s * workload.requests_per_s_peak / workload.requests_per_s_mean
    return workload.cold_start_s / every_s


def run_fraction(workload: Workload, o: Offer, load: Amount) -> Amount:
    """Fraction of all hours that are paid: the run time and cold starts of a batch on hourly instances, else 1."""
    if not workload.kind.released_after_run or o.term not in BY_THE_HOUR:
        return 1.0
    return np.minimum(load + started_fraction(workload), 1.0)


def paid_fraction(workload: Workload, o: Offer, carrying: Array, p: Packing) -> Array:
    """Paid fraction of the peak instances' hours in a week; below 1 if instances scale down in quiet hours."""
    if not autoscales(workload, o):
        return np.ones(np.shape(carrying))
    return week_share(workload, carrying, partial(workload.slo.redundancy.instances, p=p))


def autoscales(workload: Workload, o: Offer) -> bool:
    """Whether instances scale down in quiet hours: the load varies by hour and instances are billed hourly."""
    return bool(workload.week) and not workload.kind.released_after_run and o.term in BY_THE_HOUR


def mean_watts_of(
    catalog: Catalog, kept: Sequence[Lane], offer: Array, chips: Array, busy_fraction: Array, full: float = 1.0
) -> Array:
    """Power in W of all replicas at this load, including the hosts and PUE of the offer at this index."""
    host = np.array([host_watts(o, catalog) for o in catalog.offers] + [math.nan])[offer]
    pue = np.array([o.pue for o in catalog.offers] + [math.nan])[offer]
    tdp = np.array([w.choice.accelerator.watts for w in kept], dtype=float)[:, None]
    idle = np.array([w.choice.accelerator.idle_watts for w in kept], dtype=float)[:, None]
    return np.asarray(chips * watts_per_chip(tdp, idle, busy_fraction, catalog.assumptions, host, full) * pue)


def host_watts(offer: Offer, catalog: Catalog) -> float:
    """Host power per chip, W."""
    share = offer.host_watts_per_accelerator
    return catalog.assumptions.host_watts_per_accelerator if share is None else share


def _shortfalls(lanes: Sequence[Lane], room: Memory) -> dict[str, Shortfall]:
    """Chips on which no lane fits, each with the lane that misses by the least."""
    fitting = {w.choice.accelerator.slug for w, ok in zip(lanes, room.fits, strict=True) if ok}
    needed = room.usable_bytes - room.kv_bytes + room.least_kv_bytes
    least: dict[str, Shortfall] = {}
    for i in np.argsort(needed - room.usable_bytes, kind="stable"):
        slug = lanes[i].choice.accelerator.slug
        if slug not in fitting and slug not in least:
            least[slug] = Shortfall(
                lane=lanes[i], needed_bytes=float(needed[i]), usable_bytes=float(room.usable_bytes[i])
            )
    return least


def _by_scheduler(kept: Sequence[Lane]) -> dict[tuple[Scheduler, bool], Array]:
    """Row indices by (scheduler, prefix caching), so that one closed-form call covers each group."""
    groups: dict[tuple[Scheduler, bool], list[int]] = defaultdict(list)
    for i, w in enumerate(kept):
        groups[(scheduler_of(w), shares_prefixes(w.framework))].append(i)
    return {key: np.array(rows) for key, rows in groups.items()}


# --- offers -----------------------------------------------------------------------------------------------------


def instances_needed(replicas: Array, replica_chips: int, offer_chips: int, stages: int = 1) -> Array:
    """Whole instances for these replicas; a pipeline stage never spans two instances unless it is larger than one."""
    return np.asarray(instances_packed(replicas, packing(replica_chips, offer_chips, stages)))


def packing_of(c: Choice, o: Offer) -> Packing:
    """How replicas of this layout lie in the instances of an offer, and in their hosts."""
    a = c.accelerator
    return packing(c.tp * c.pp * c.dp, o.accelerators, c.pp, host_chips(a, o), spare_hosts(a, o))


def replicas_on(question: Question, kept: Sequence[Lane], offer: Array, carrying: Array) -> tuple[Array, Array]:
    """(replicas with spares today, the same in the month of the forecast that needs most) on the offers at `offer`.

    The hosts of an offer say how many replicas are lost with one. Without an offer, no spares.
    """
    grown = np.ceil(carrying * max(question.workload.forecast, default=1.0) - 1e-9)
    needed = question.workload.slo.redundancy
    if not needed:
        return carrying, grown
    alike: dict[tuple[int, int, int, int], tuple[int, Choice]] = {}  # of what packing depends on, its first choice
    kinds = [
        alike.setdefault((id(c.accelerator), c.tp, c.pp, c.dp), (len(alike), c))[0] for c in (w.choice for w in kept)
    ]
    choices, offers = [c for _, c in alike.values()], question.catalog.offers
    codes, place = np.unique(
        np.array(kinds, dtype=int)[:, None] * (len(offers) + 1) + offer.astype(int) + 1, return_inverse=True
    )
    pairs = [divmod(code, len(offers) + 1) for code in codes.tolist()]
    none = Packing(*np.ones(len(Packing._fields)))
    found = [packing_of(choices[kind], offers[index - 1]) if index else none for kind, index in pairs]
    packed = np.array(found, dtype=float).T[:, place.reshape(carrying.shape)] if found else carrying[None]
    p = Packing(*packed)
    return np.asarray(needed.replicas(carrying, p)), np.asarray(needed.replicas(grown, p))


def best_offers(
    question: Question, kept: Sequence[Lane], carrying: Array, load: Array
) -> tuple[Array, Array, Array, int]:
    """(USD per hour, offer index, paid fraction of hours, candidates priced) of the cheapest offer per candidate.

    Under `carbon` it is the lowest-carbon offer within the budget. `carrying` is the replicas without spares, shape
    (lanes, concurrency), and `load` theirs. A batch releases hourly instances when it is done and pays for `load`, the
    fraction of time it runs. A purchased host pays for the power drawn at this load.
    """
    workload = question.workload
    usd, best, priced = np.full(carrying.shape, np.inf), np.full(carrying.shape, -1), 0
    share = np.ones(carrying.shape)
    leading = np.full(carrying.shape, np.inf)
    offers = _offers_by_chip(question, {w.choice.accelerator.slug for w in kept})
    dated = bool(workload.week or workload.forecast)  # replicas change over time: one size of replica at a time
    groups: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for row, w in enumerate(kept):
        c = w.choice
        alone = (c.tp * c.dp, c.pp) if dated else ()
        groups[(c.accelerator.slug, c.accelerator.share, *alone)].append(row)
    for members in groups.values():
        accelerator = kept[members[0]].choice.accelerator
        sizes = [(kept[i].choice.tp * kept[i].choice.dp, kept[i].choice.pp) for i in members]
        replica_chips = np.array([n * k for n, k in sizes])
        licence = np.array([licence_of(question.catalog, kept[i]) for i in members])[:, None]
        shares: dict[tuple[int, int, int], Array] = {}
        for index, o, count in offers.get(accelerator.slug, ()):
            held = {size for size in set(sizes) if holds_replica(accelerator, o, *size)}
            able = np.flatnonzero([size in held for size in sizes])
            if o.share != accelerator.share or not len(able):
                continue
            rows, chips = np.array(members)[able], replica_chips[able][:, None]
            failing, spare = host_chips(accelerator, o), spare_hosts(accelerator, o)
            each = {(n, k): packing(n * k, o.accelerators, k, failing, spare) for n, k in held}
            packed = [each[sizes[i]] for i in able.tolist()]
            p = Packing(*(figure[:1] if dated else figure for figure in np.array(packed, dtype=float).T[:, :, None]))
            needs = partial(workload.slo.redundancy.instances, p=p)
            today = needs(carrying[rows])
            instances = over_horizon(question, o, carrying[rows], needs) if workload.forecast else today
            paid = np.ones(1)
            if autoscales(workload, o):
                if (o.accelerators, failing, spare) not in shares:
                    shares[o.accelerators, failing, spare] = paid_fraction(workload, o, carrying[rows], p)
                paid = shares[o.accelerators, failing, spare]
            busy_chips = carrying[rows] * chips * load[rows]
            busy_chips = busy_chips * instances / today
            saved = power_saved(o, accelerator, question.catalog.assumptions, instances, busy_chips)
            runs = run_fraction(workload, o, load[rows])
            cost = offer_usd_per_hour(o, instances, licence[able], paid, runs) - saved
            first = carbon_sort_key(workload, o, cost) if workload.objective == "carbon" else cost
            better = (first < leading[rows]) | ((first == leading[rows]) & (cost < usd[rows]))
            leading[rows] = np.where(better, first, leading[rows])
            usd[rows] = np.where(better, cost, usd[rows])
            share[rows] = np.where(better, paid, share[rows])
            best[rows] = np.where(better, index, best[rows])
            priced += len(rows) * count
    return usd, best, share, priced


def over_horizon(question: Question, o: Offer, carrying: Array, needs: Callable[[Array], Array]) -> Array:
    """Instances of one offer that cost as much as those that the forecast needs month by month."""
    workload = question.workload
    a = question.catalog.site_assumptions or question.catalog.assumptions
    prices = replace(a.prices, months=workload.horizon_months, discount_fraction=workload.discount_fraction)
    return instances_over_horizon(o, a, prices, workload.forecast, carrying, needs)


def carbon_sort_key(workload: Workload, o: Offer, cost: Array) -> Array:
    """Sort key of offers under `carbon`, lower is better: within the budget first, then grid carbon intensity."""
    most = workload.constraints.max_usd_per_month
    dear = 0.0 if most is None else np.where(cost * HOURS_PER_MONTH > most, 1e6, 0.0)
    return np.where(np.isfinite(cost), (o.kgco2e_per_kwh or 1.0) + dear, np.inf)  # unknown intensity counts as coal


def offer_usd_per_hour(
    o: Offer,
    instances: Amount,
    licence_usd_per_chip: Amount = 0.0,
    paid_fraction: Amount = 1.0,
    run_fraction: Amount = 1.0,
) -> Amount:
    """USD per hour of these instances at full power, including licenses.

    Owned instances pay only running costs. If no more can be bought, additional instances cost infinity.
    """
    cost = hour_usd(o.usd_per_hour, instances, paid_fraction, run_fraction)
    cost = cost + hour_usd(o.accelerators * licence_usd_per_chip, instances, 1.0, run_fraction)
    if o.term == OWNED:
        return np.where(instances <= o.held_instances, cost, np.inf) if o.held_instances else cost
    if not o.held_instances:
        return cost
    saved = o.usd_per_hour - total_usd_per_hour(o.held_parts)
    return cost - hour_usd(saved, np.minimum(instances, o.held_instances))


def power_saved(o: Offer, chip: Accelerator, a: Assumptions, instances: Array, busy_chips: Array) -> Array:
    """USD per hour saved on purchased instances because idle and partly busy chips draw less than full power."""
    if o.acquisition != "own" or o.usd_per_kwh is None or math.isnan(chip.watts):
        return np.zeros(np.shape(instances))
    tdp, idle = np.array(chip.watts), np.array(chip.idle_watts)
    resting = watts_per_chip(tdp, idle, np.zeros(1), a, np.zeros(1))
    busy = watts_per_chip(tdp, idle, np.ones(1), a, np.zeros(1), least_power_fraction(a))
    chips = instances * o.accelerators
    drawn = resting * chips + (busy - resting) * np.minimum(busy_chips, chips)
    return np.asarray((tdp * chips - drawn) / 1000.0 * o.pue * o.usd_per_kwh)


def least_power_fraction(a: Assumptions) -> float:
    """The lower of the prefill and decode power fractions, used until a simulation gives the time in each phase."""
    return min(a.prefill_power_fraction, a.decode_power_fraction)


def licence_of(catalog: Catalog, lane: Lane) -> float:
    """License cost per chip for this lane, USD per hour."""
    return licence_usd_per_hour(catalog.licences, lane.choice.accelerator.vendor, lane.framework.slug)


def _offers_by_chip(question: Question, slugs: Set[str]) -> Mapping[str, list[tuple[int, Offer, int]]]:
    """(index, offer, how many it stands for) of each chip's allowed offers, without rents that others beat.

    Of rents that differ only in provider, region and price, the cheapest stands for all; under `carbon` all are kept.
    """
    catalog = question.catalog
    by_chip: dict[str, list[tuple[int, Offer, int]]] = defaultdict(list)
    alike: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for i, o in (placed for slug in sorted(slugs) for placed in catalog.placed_offers(slug)):
        if not allowed(o, question.workload.constraints):
            continue
        if o.acquisition != "rent" or o.held_instances or question.workload.objective == "carbon":
            by_chip[o.accelerator].append((i, o, 1))
            continue
        sold = o.accelerator, o.accelerators, o.term, o.joined_accelerators, o.fabric_accelerators, o.share
        alike[sold].append(i)
    for same in alike.values():
        i = min(same, key=lambda i: catalog.offers[i].usd_per_hour)
        by_chip[catalog.offers[i].accelerator].append((i, catalog.offers[i], len(same)))
    return {slug: sorted(found, key=lambda entry: entry[0]) for slug, found in by_chip.items()}


def most_at_once(workload: Workload, table: Table, i: int, j: int) -> float:
    """Most requests in flight on one replica: one for each user of its fullest lanes; infinite without users."""
    if workload.users is None:
        return math.inf
    lanes = table.lanes[i].choice.lanes
    return float(whole_users(workload.users.active_requests / (float(table.replicas[i, j]) * lanes)) * lanes)


def planned_running(workload: Workload, table: Table, i: int, j: int) -> float:
    """Concurrent requests of one lane at the peak, by Little's law."""
    c = table.lanes[i].choice
    rate = table.peak_requests_per_s[i, j] / (table.replicas[i, j] * c.lanes)
    running = float(rate * (table.ttft_p95_s[i, j] + workload.output_tokens.mean_tokens * table.tpot_p95_s[i, j]))
    return min(running, most_at_once(workload, table, i, j) / c.lanes)


# --- limits -----------------------------------------------------------------------------------------------------


def estimated_excess(workload: Workload, table: Table) -> Array:
    """Estimated latency over its limit for each candidate; 1 is exactly at the limit, infinite if it has no offer.

    With `slo.confidence`, of the latency that is not exceeded with that probability.
    """
    serves = np.isfinite(table.usd_per_hour) & (table.capacity_requests_per_s > 0) & np.isfinite(table.tpot_p95_s)
    reached = latency_excess(workload, table.ttft_p95_s * table.ttft_margin, table.tpot_p95_s * table.tpot_margin)
    return np.where(serves, reached, np.inf)


def affordable(workload: Workload, table: Table) -> Array:
    """Mask of candidates within the limits on chips, cost and power; unknown power fails a power limit."""
    c = workload.constraints
    ok = np.isfinite(table.usd_per_hour)
    chips = table.chips * table.most_replicas
    if c.max_accelerators is not None:
        ok &= chips <= c.max_accelerators
    if c.inventory_chips:
        most = np.array([c.inventory_chips.get(w.choice.accelerator.slug, math.inf) for w in table.lanes])
        ok &= chips <= most[:, None]
    if c.max_usd_per_month is not None:
        ok &= table.usd_per_hour * HOURS_PER_MONTH <= c.max_usd_per_month
    if c.max_watts is not None:
        watts = table.full_watts
        if workload.forecast:
            watts = watts * chips / (table.chips * table.total_replicas)
        ok &= watts <= c.max_watts
    return np.asarray(ok)


def meets(workload: Workload, table: Table, slack: float = 1.0) -> Array:
    """Mask of candidates within every limit, with latency limits multiplied by `slack`."""
    return np.asarray((estimated_excess(workload, table) <= slack) & affordable(workload, table))
