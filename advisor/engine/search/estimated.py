"""The closed-form ranking of the whole catalog, without simulation: what a quick answer shows.

It reads the same candidates, estimates, offers and limits as the search, whose first stage it is. One deployment stands
for each chip: its best estimate within every limit.
"""

import math
import threading
from collections import OrderedDict, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np

from advisor.engine.cost import HOURS_PER_MONTH, services, total_usd_per_hour
from advisor.engine.search.candidates import (
    Catalog,
    Question,
    admissible,
    concurrency_of,
    enumerate_lanes,
    largest_connected_offer,
    offers_for,
    rented_parts,
)
from advisor.engine.search.declared_scores import declared
from advisor.engine.search.growing import delivery_shares
from advisor.engine.search.objective import Figures, Scale, declared_scores_of, objective, rows_by_chip, scale_of
from advisor.engine.search.objective import table_scores as scores_of_table
from advisor.engine.search.planned import forgone_usd_per_hour, prices_of, team_usd_per_hour
from advisor.engine.search.simulated import MemoryParts, memory_parts
from advisor.engine.search.table import (
    BY_THE_HOUR,
    UNSERVABLE_REPLICAS,
    Array,
    Served,
    Table,
    affordable,
    at_its_confidence,
    estimated_excess,
    evaluate,
    meets,
    most_at_once,
    only_rows,
    packing_of,
    planned_running,
    served,
    serving_estimates,
    with_best_offers,
)
from advisor.engine.search.variants.drafted import with_drafts
from advisor.engine.search.views import CARBON, PRICE_BOUND_FACTOR, PRICED
from advisor.engine.step import Lane, Lanes, Memory, join_lanes, prefill_fraction, some_lanes
from advisor.engine.terms import OWNED, Accelerator, Offer, Rejection, Workload

RATES_KEPT = 4  # loads whose latencies are kept
TRIES = 3  # the minimum team and the services come on top of a price; then what is left of a budget is tried again
RENT, BUY, HELD = "rent", "buy", "owned"


# --- what does not depend on prices and limits ------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class ChipLanes:
    """The lanes of one chip and their step times."""

    lanes: tuple[Lane, ...]
    refused: tuple[Rejection, ...]
    room: Memory | None
    kept: tuple[Lane, ...]
    built: Lanes | None


@dataclass(kw_only=True)
class KnownLanes:
    """Lanes by chip, and their latencies by load, kept between questions that differ in prices, limits and load.

    The questions share the model, the lengths and everything else that lanes depend on.
    """

    chips: dict[tuple[object, ...], ChipLanes] = field(default_factory=dict)
    loads: OrderedDict[tuple[object, ...], dict[tuple[object, ...], tuple[Array, ...]]] = field(
        default_factory=OrderedDict
    )
    lock: threading.Lock = field(default_factory=threading.Lock)

    def served(
        self, question: Question, chips: Sequence[Accelerator]
    ) -> tuple[list[Lane], list[Rejection], Served | None]:
        """(lanes, rejections, what they do with the traffic) of these chips; computes what is not known yet."""
        sold = largest_connected_offer(question)
        keys = {a.slug: self._key(question, a, sold[a.slug]) for a in chips}
        with self.lock:
            self._find(question, [a for a in chips if keys[a.slug] not in self.chips], keys)
            own = [self.chips[keys[a.slug]] for a in chips]
            fitting = [(keys[a.slug], c) for a, c in zip(chips, own, strict=True) if c.built is not None]
            figures = self._load(question.workload, fitting)
        lanes = [lane for c in own for lane in c.lanes]
        refused = [r for c in own for r in c.refused]
        if not lanes:
            return [], refused, None
        rooms = [c.room for c in own if c.room is not None]
        built = join_lanes([c.built for _, c in fitting if c.built is not None]) if fitting else None
        known = Served(
            room=_joined(rooms),
            kept=tuple(lane for _, c in fitting for lane in c.kept),
            built=built,
            estimates=figures or serving_estimates(question.workload, [], None),
        )
        return lanes, refused, known

    @staticmethod
    def _key(question: Question, a: Accelerator, sold: int) -> tuple[object, ...]:
        return a.slug, sold, tuple(part.share for part in rented_parts(question, a))

    def _find(
        self,
        question: Question,
        chips: Sequence[Accelerator],
        keys: Mapping[str, tuple[object, ...]],
    ) -> None:
        """Lanes and step times of chips that are not known, all at once."""
        if not chips:
            return
        lanes, refused = enumerate_lanes(question, chips)
        found = served(question, lanes) if lanes else None
        rate = self._rate(question.workload)
        at, kept_at = 0, 0
        of_chip, that_fit = _by_chip(lanes), _by_chip(found.kept if found else ())
        for a in chips:
            own, fits = tuple(of_chip.get(a.slug, ())), tuple(that_fit.get(a.slug, ()))
            rows, kept_rows = slice(at, at + len(own)), slice(kept_at, kept_at + len(fits))
            self.chips[keys[a.slug]] = ChipLanes(
                lanes=own,
                refused=tuple(r for r in refused if r.accelerator == a.slug),
                room=_some(found.room, rows) if found and own else None,
                kept=fits,
                built=some_lanes(found.built, kept_rows) if found and found.built and fits else None,
            )
            if found and fits:
                self._loads_at(rate)[keys[a.slug]] = tuple(figure[kept_rows] for figure in found.estimates)
            at, kept_at = rows.stop, kept_rows.stop

    def _load(
        self, workload: Workload, chips: Sequence[tuple[tuple[object, ...], ChipLanes]]
    ) -> tuple[Array, ...] | None:
        """The estimates of these chips at the load of the workload."""
        known = self._loads_at(self._rate(workload))
        missing = [(key, c) for key, c in chips if key not in known]
        if missing:
            lanes = [lane for _, c in missing for lane in c.kept]
            times = join_lanes([c.built for _, c in missing if c.built is not None]).times
            figures, at = serving_estimates(workload, lanes, times), 0
            for key, c in missing:
                known[key] = tuple(figure[at : at + len(c.kept)] for figure in figures)
                at += len(c.kept)
        if not chips:
            return None
        return tuple(np.concatenate(each) for each in zip(*(known[key] for key, _ in chips), strict=True))

    @staticmethod
    def _rate(workload: Workload) -> tuple[object, ...]:
        rates = workload.requests_per_s_mean, workload.requests_per_s_peak, workload.users
        return *rates, workload.arrival_cv, workload.slo.headroom_fraction

    def _loads_at(self, rate: tuple[object, ...]) -> dict[tuple[object, ...], tuple[Array, ...]]:
        found = self.loads.setdefault(rate, {})
        self.loads.move_to_end(rate)
        while len(self.loads) > RATES_KEPT:
            self.loads.popitem(last=False)
        return found


def _by_chip(lanes: Sequence[Lane]) -> dict[str, list[Lane]]:
    found: dict[str, list[Lane]] = defaultdict(list)
    for lane in lanes:
        found[lane.choice.accelerator.slug].append(lane)
    return found


def _some(room: Memory, rows: slice) -> Memory:
    return Memory(**{f.name: getattr(room, f.name)[rows] for f in fields(Memory)})


def _joined(rooms: Sequence[Memory]) -> Memory:
    return Memory(**{f.name: np.concatenate([getattr(room, f.name) for room in rooms]) for f in fields(Memory)})


# --- the ranking ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimated:
    """One deployment by closed formulas alone."""

    lane: Lane
    offer: Offer
    replicas: int  # spares included
    spare_replicas: int
    instances: int
    concurrency: int  # per replica
    requests_per_s_mean: float
    requests_per_s_peak: float
    capacity_requests_per_s: float  # of all replicas
    ttft_p95_s: float
    tpot_p95_s: float
    usd_per_hour: float  # with the minimum team and the provider's services
    watts: float
    memory: MemoryParts
    prefill_fraction: float  # of a request's time
    excess_fraction: float  # worst latency over its limit; 1: exactly at the limit
    meets_slo: bool  # by the estimate
    score: float  # the objective; lower is better

    @property
    def chips(self) -> int:
        c = self.lane.choice
        return self.replicas * c.tp * c.pp * c.dp


@dataclass(frozen=True, kw_only=True, slots=True)
class EstimatedRanking:
    """Every chip of the catalog: ranked, out of reach of the limits, or rejected before it was evaluated."""

    ranked: tuple[Estimated, ...]  # within every limit, best first
    missed: tuple[Estimated, ...]  # affordable, but over a latency limit by the estimate
    over_budget: tuple[str, ...]  # slugs of chips that no layout brings within the limits on money, chips and power
    owned: Mapping[str, Estimated | None]  # slug -> the owned machines alone; None: they do not suffice
    rejections: tuple[Rejection, ...]
    evaluated: int
    scale: Scale
    bound_usd_per_month: float | None = None


def estimated_ranking(question: Question, known: KnownLanes | None = None) -> EstimatedRanking:
    """The whole catalog for a prepared question; `known` keeps lanes for questions with the same model and lengths."""
    rejections, chips = admissible(question)
    catalog = replace(question.catalog, offers=tuple(offers_for(question)))
    question = replace(question, catalog=catalog)
    lanes, refused, what = (known or KnownLanes()).served(question, chips)
    rejections += refused
    if not lanes:
        return EstimatedRanking(
            ranked=(), missed=(), over_budget=(), owned={}, rejections=tuple(rejections), evaluated=0, scale=Scale()
        )
    table = evaluate(question, lanes, what)
    scores = declared(question)
    if table.built is not None:
        table = with_drafts(question, table, scale_of(question.workload, table, scores))
    scale = scale_of(question.workload, table, scores)
    bounded, table = _with_price_bound(question, table)
    question = replace(question, workload=bounded)
    found = _best_by_what_is_bound(question, table, scale)
    rejections += [
        Rejection(accelerator=slug, reason="does_not_fit", detail="too little memory")
        for slug in sorted(table.shortfalls)
    ]
    ranked = sorted((e for e in found.values() if e is not None and e.meets_slo), key=_order)
    missed = sorted((e for e in found.values() if e is not None and not e.meets_slo), key=lambda e: e.excess_fraction)
    return EstimatedRanking(
        ranked=tuple(ranked),
        missed=tuple(missed),
        over_budget=tuple(slug for slug, e in found.items() if e is None),
        owned=_owned(question, table, scale),
        rejections=tuple(rejections),
        evaluated=table.evaluated,
        scale=scale,
        bound_usd_per_month=question.workload.constraints.max_usd_per_month
        if question.workload.constraints.bound_factor
        else None,
    )


def _order(e: Estimated) -> tuple[float, float, str]:
    return e.score, e.usd_per_hour, e.lane.choice.accelerator.slug


def _with_price_bound(question: Question, table: Table) -> tuple[Workload, Table]:
    """The bound of the search on objectives that ignore the price, from the cheapest estimate."""
    workload = question.workload
    if workload.objective in PRICED or workload.constraints.max_usd_per_month is not None:
        return workload, table
    asked, green = replace(workload, objective="cost"), workload.objective == CARBON
    by_price = with_best_offers(replace(question, workload=asked), table) if green else table
    ok = meets(asked, by_price)
    if not ok.any():
        return workload, table
    most = PRICE_BOUND_FACTOR * float(by_price.usd_per_hour[ok].min()) * HOURS_PER_MONTH
    limits = replace(workload.constraints, max_usd_per_month=most, bound_factor=PRICE_BOUND_FACTOR)
    bounded = replace(workload, constraints=limits)
    return bounded, with_best_offers(replace(question, workload=bounded), table) if green else table


def _best_by_what_is_bound(question: Question, table: Table, scale: Scale) -> dict[str, Estimated | None]:
    """The best deployment of each chip: by the hour as likely to meet the limits as asked, with a commitment surer."""
    slo, offers = question.workload.slo, question.catalog.offers
    bridge = _bridge_usd_per_hour(question, table)
    by_hour = tuple(o for o in offers if o.term in (*BY_THE_HOUR, OWNED))
    bound = tuple(o for o in offers if o.term not in (*BY_THE_HOUR, OWNED))
    if slo.sure_confidence in (None, slo.confidence) or not bound:
        return _best_of_chips(question, table, scale, bridge)
    hourly = replace(question, catalog=replace(question.catalog, offers=by_hour))
    found = _best_of_chips(hourly, with_best_offers(hourly, table), scale, bridge) if by_hour else {}
    sure = replace(question.workload, slo=replace(slo, confidence=slo.sure_confidence))
    asked = replace(question, workload=sure, catalog=replace(question.catalog, offers=bound))
    for slug, e in _best_of_chips(asked, at_its_confidence(asked, table), scale, bridge).items():
        found[slug] = min((found.get(slug), e), key=_preference)
    return found


def _preference(e: Estimated | None) -> tuple[bool, bool, bool, float]:
    """Sort key: within every limit, by the objective; else the nearest to the latency limits; else over budget.

    An offer whose price is over a year old is never recommended, so it does not stand for a chip that has another.
    """
    if e is None:
        return True, True, True, math.inf
    return False, not e.meets_slo, e.offer.over_a_year_old, e.score if e.meets_slo else e.excess_fraction


def _best_of_chips(question: Question, table: Table, scale: Scale, bridge: float) -> dict[str, Estimated | None]:
    """The best deployment of each chip within the limits; else the nearest to the latency limits; None: over budget.

    bridge: rent per hour until bought servers are delivered.
    """
    workload = question.workload
    score, excess = scores_of_table(workload, table, scale), estimated_excess(workload, table)
    usable = np.isfinite(excess) & (table.replicas < UNSERVABLE_REPLICAS)
    found: dict[str, Estimated | None] = {}
    budget = workload.constraints.max_usd_per_month
    left = rows_by_chip(table)
    asked = {slug: workload for slug in left}
    for _ in range(TRIES):
        cells: dict[str, tuple[int, int]] = {}
        masks: dict[float | None, Array] = {}
        for slug, own in left.items():
            most = asked[slug].constraints.max_usd_per_month
            if most not in masks:
                masks[most] = affordable(asked[slug], table) & usable
            cell = _pick(own, score, excess, masks[most])
            if cell is None:
                found[slug] = None
            else:
                cells[slug] = cell
        for slug, e in _priced(question, table, scale, cells, excess, bridge).items():
            row, column = cells[slug]
            added = e.usd_per_hour - float(table.usd_per_hour[row, column])
            within = budget is None or bool(workload.constraints.bound_factor)
            if within or e.usd_per_hour * HOURS_PER_MONTH <= (budget or 0.0):
                found[slug] = e
                continue
            found[slug] = None
            tighter = max((budget or 0.0) - added * HOURS_PER_MONTH, 0.0)
            limits = replace(workload.constraints, max_usd_per_month=tighter)
            asked[slug] = replace(workload, constraints=limits)
        left = {slug: own for slug, own in left.items() if slug in cells and found[slug] is None}
        if not left:
            break
    return found


def _bridge_usd_per_hour(question: Question, table: Table) -> float:
    """The cheapest rent within the limits, on any chip, until bought servers are delivered; infinite: none.

    Only where something may be rented does a delivery take part of the horizon, as in a plan.
    """
    rents = tuple(o for o in question.catalog.offers if way_of(o) == RENT)
    if not rents or not any(round(o.order_months) for o in question.catalog.offers if way_of(o) == BUY):
        return math.inf
    excess = estimated_excess(question.workload, table)
    within = (excess <= 1.0) & (table.replicas < UNSERVABLE_REPLICAS)
    rented = with_best_offers(
        replace(
            question,
            workload=replace(question.workload, objective="cost"),
            catalog=replace(question.catalog, offers=rents),
        ),
        table,
    )
    return float(np.min(rented.usd_per_hour, where=within, initial=math.inf))


def _pick(own: Array, score: Array, excess: Array, allowed: Array) -> tuple[int, int] | None:
    """(row, column) of the best estimate within every limit, else of the affordable one with the lowest latency."""
    ok = allowed[own]
    within = ok & (excess[own] <= 1.0)
    first = np.where(within, score[own], np.inf) if within.any() else np.where(ok, excess[own], np.inf)
    k, j = np.unravel_index(int(np.argmin(first)), first.shape)
    return (int(own[k]), int(j)) if np.isfinite(first[k, j]) else None


def way_of(o: Offer) -> str:
    return HELD if o.term == OWNED else BUY if o.acquisition == "own" else RENT


def _priced(
    question: Question,
    table: Table,
    scale: Scale,
    cells: Mapping[str, tuple[int, int]],
    excess: Array,
    bridge: float,
) -> dict[str, Estimated]:
    """The chosen cells at the cheapest of renting, buying and what is owned, with the team and services of each.

    What is owned comes first: an offer to buy more of it costs the same where no more is needed. Under `carbon` the
    offer of the greenest grid stays.
    """
    catalog = question.catalog
    if not cells:
        return {}
    rows = np.array([row for row, _ in cells.values()])
    columns = np.array([column for _, column in cells.values()])
    few = only_rows(table, rows)
    ways = [catalog]
    if question.workload.objective != CARBON:
        split = {way: tuple(o for o in catalog.offers if way_of(o) == way) for way in (HELD, RENT, BUY)}
        ways = [replace(catalog, offers=offers) for offers in split.values() if offers]
    best: dict[str, Estimated] = {}
    for market in ways:
        priced = few if market is catalog else with_best_offers(replace(question, catalog=market), few)
        for k, slug in enumerate(cells):
            if not np.isfinite(priced.usd_per_hour[k, columns[k]]):
                continue
            at = int(rows[k]), k, int(columns[k])
            e = _estimated(question.workload, market, table, priced, scale, at, excess, bridge)
            if slug not in best or e.usd_per_hour < best[slug].usd_per_hour:
                best[slug] = e
    return best


def _estimated(
    workload: Workload,
    market: Catalog,
    table: Table,
    priced: Table,
    scale: Scale,
    cell: tuple[int, int, int],
    excess: Array,
    bridge: float = math.inf,
) -> Estimated:
    """One cell: its row in `table`, its row in `priced`, its column.

    bridge: rent per hour until bought servers are delivered; infinite: nothing can be rented.
    """
    row, k, j = cell
    assert table.built is not None
    lane, offer = table.lanes[row], market.offers[int(priced.offer[k, j])]
    c, carrying = lane.choice, int(table.replicas[row, j])
    p, chips_each = packing_of(c, offer), c.tp * c.pp * c.dp
    replicas, instances = (
        int(of(float(carrying), p)) for of in (workload.slo.redundancy.replicas, workload.slo.redundancy.instances)
    )
    peak = float(table.peak_requests_per_s[row, j])
    mean = peak * workload.requests_per_s_mean / workload.requests_per_s_peak
    running = planned_running(workload, table, row, j)
    held = memory_parts(table.built, row, lane, running)
    rented = offer.provider if offer.acquisition != "own" else ""
    extra = services(
        mean * workload.output_tokens.mean_tokens, held.weights_bytes * chips_each, rented, market.assumptions
    )
    team = team_usd_per_hour(Question(workload, market), [(offer, instances)])
    own_share, rent_share = 1.0, 0.0
    if math.isfinite(bridge):
        a = market.site_assumptions or market.assumptions
        own_share, rent_share = delivery_shares(offer, a, prices_of(Question(workload, market)))
    usd = float(priced.usd_per_hour[k, j]) + (total_usd_per_hour(extra) if rented else 0.0)
    usd = usd * own_share + (bridge * rent_share if rent_share else 0.0) + team
    capacity, watts = float(table.capacity_requests_per_s[row, j]) * replicas, float(priced.watts[k, j])
    known = declared_scores_of(workload, scale)
    tails = workload.kind.tail_latency_s(table)
    figures = Figures(
        usd_per_hour=np.array(usd + forgone_usd_per_hour(Question(workload, market), offer, instances)),
        tpot_p95_s=np.array(float(tails[row, j])),
        watts=np.array(watts),
        kgco2e_per_kwh=np.array(offer.kgco2e_per_kwh or math.nan),
        capacity_requests_per_s=np.array(capacity),
        chips=np.array(float(replicas * chips_each)),
        lacking=known.lacking(lane, offer) if known else 0.0,
    )
    return Estimated(
        lane=lane,
        offer=offer,
        replicas=replicas,
        spare_replicas=replicas - carrying,
        instances=instances,
        concurrency=int(min(float(concurrency_of([lane])[0, j]), most_at_once(workload, table, row, j))),
        requests_per_s_mean=mean,
        requests_per_s_peak=peak,
        capacity_requests_per_s=capacity,
        ttft_p95_s=float(table.ttft_p95_s[row, j]),
        tpot_p95_s=float(table.tpot_p95_s[row, j]),
        usd_per_hour=usd,
        watts=watts,
        memory=held,
        prefill_fraction=prefill_fraction(workload, table.built, row, running),
        excess_fraction=float(excess[row, j]),
        meets_slo=bool(excess[row, j] <= 1.0),
        score=float(objective(workload, scale, figures)),
    )


def _owned(question: Question, table: Table, scale: Scale) -> dict[str, Estimated | None]:
    """The machines that are already owned, each alone, whether or not they are the best of their chip."""
    workload = question.workload
    found: dict[str, Estimated | None] = {}
    for o in question.catalog.offers:
        if o.term != OWNED:
            continue
        market = replace(question.catalog, offers=(o,))
        rows = np.array([i for i, w in enumerate(table.lanes) if o.sells(w.choice.accelerator)], dtype=int)
        found[o.accelerator] = None
        if not len(rows) or table.built is None:
            continue
        own = with_best_offers(replace(question, catalog=market), only_rows(table, rows))
        score, excess = scores_of_table(workload, own, scale), estimated_excess(workload, own)
        cell = _pick(np.arange(len(rows)), score, excess, affordable(workload, own) & np.isfinite(excess))
        if cell is None or excess[cell] > 1.0:
            continue
        whole = np.full(table.usd_per_hour.shape, np.inf)
        whole[rows] = excess
        at = (int(rows[cell[0]]), cell[0], cell[1])
        found[o.accelerator] = _estimated(workload, market, table, own, scale, at, whole)
    return found
