"""Simulates candidate designs, each at most once, and computes their cost, power, capacity and memory."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from advisor.engine.cost import (
    HOURS_PER_MONTH,
    STAFF_PART,
    TEAM,
    Amount,
    hour_usd,
    priced_usd_per_hour,
    services,
    total_usd_per_hour,
    watts_per_chip,
)
from advisor.engine.plans import PURCHASE, TERM
from advisor.engine.scheduler import (
    P95_UNSERVED_FRACTION,
    REQUESTS,
    Bounds,
    Response,
    Verified,
    at_rate,
    response_of,
    verify,
    verify_trace,
    whole_users,
)
from advisor.engine.search.candidates import Catalog, Question, concurrency_of
from advisor.engine.search.limits import (
    Factors,
    factors_of,
    latency_excess,
    slo_probability,
    spot_late_fraction,
    tpot_limit_s,
    with_confidence,
)
from advisor.engine.search.planned import (
    Bridge,
    Deployed,
    Planned,
    Rentals,
    allowed_offers,
    best,
    single,
)
from advisor.engine.search.table import (
    BY_THE_HOUR,
    Table,
    best_offers,
    demand_of,
    host_watts,
    licence_of,
    packing_of,
    paid_fraction,
    run_fraction,
)
from advisor.engine.search.variants.evictions import as_cached, kept_of
from advisor.engine.step import Lane, Lanes, Memory, Phases, phases
from advisor.engine.terms import OWNED, Offer, Part, Workload, mean_fraction

PILOT_REQUESTS = 500
Key = tuple[int, int, int, int, float, float]  # row, slots, replicas, requests, load, burstiness
MORE_REQUESTS = 10_000  # where the bounds of a full simulation enclose the limit, and it is this near to it
NEAR_LIMIT_FRACTION = 0.1
ANY_REPLICAS = 0  # in the key of a cached simulation that holds for every number of replicas
HOPELESS = 1.5  # a design more than this many times over a limit is not replayed on the trace
LOST = 2.5  # above this lower bound, more replicas or requests would not change the outcome
MORE_REPLICAS_FRACTIONS = (0.25, 0.6, 1.0)  # of the plan, to add before a design is rejected


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryParts:
    """Memory of one chip in bytes; the parts add up to what the framework may use."""

    weights_bytes: float  # including resident adapters
    kv_bytes: float  # of the running requests at the peak
    source_kv_bytes: float  # part of kv_bytes: cross-attention cache of an encoder-decoder
    activations_bytes: float
    overhead_bytes: float
    free_bytes: float
    kv_capacity_tokens: float  # of one lane


@dataclass(frozen=True, kw_only=True, slots=True)
class Pools:
    """Disaggregated serving: replicas per pool, including spares."""

    prefill_replicas: int
    decode_replicas: int
    transfer_s: float  # moves the KV cache of a mean prompt between the pools
    prefill_fraction: float = 0.5  # of the replicas that are not spares

    def carrying(self, replicas: Amount) -> tuple[Amount, Amount]:
        """(prefill, decode) replicas among this many that serve."""
        prefill = np.ceil(np.asarray(replicas) * self.prefill_fraction - 1e-9)
        return prefill, replicas - prefill


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolsTried:
    """Separate pools in place of a deployment, without spares."""

    together_chips: int = 0  # of the deployment without them
    chips: int = 0  # the fewest that meet the limits as estimated; 0: no fewer were found
    probability: float | None = None  # of meeting them there, with the errors of such estimates


@dataclass(frozen=True, kw_only=True, slots=True)
class Scored:
    """A simulated deployment with its load, cost and power."""

    lane: Lane
    offer: Offer
    replicas: int  # spares included
    spare_replicas: int
    instances: int
    concurrency: int  # per replica
    verified: Verified
    capacity_requests_per_s: float  # of all replicas
    parts: tuple[Part, ...]  # of the hourly cost
    licence_usd_per_hour: float  # included in `parts`
    watts: float
    full_watts: float  # all chips busy; compared with the site's limit
    phases: Phases  # of its serving lanes at the mean load, with their power
    utilisation_fraction: float  # mean load over capacity, in paid hours
    requests_per_s_mean: float  # of the workload, or what its users send to this deployment
    requests_per_s_peak: float
    paid_fraction: float  # of the peak instances' hours in a week
    memory: MemoryParts
    meets_slo: bool
    row_index: int  # of its lane in Table.lanes
    pools: Pools | None = None  # disaggregated prefill and decode
    chips_at_default_budget: int | None = None  # that the same lane needs with its framework's step budget
    kept_fraction: float = 1.0  # of the conversations that wait for their next turn, still in the KV cache
    slo_probability: float | None = None  # of meeting every latency limit; None without limits or intervals
    rentals: Callable[[int, float], Bridge | None] | None = field(
        default=None, repr=False, compare=False
    )  # what can be rented until bought servers arrive; of the search, not of this deployment
    planned: Planned | None = None  # what is rented, reserved and bought in which month; None: scaled to zero

    @property
    def usd_per_hour(self) -> float:
        return total_usd_per_hour(self.parts)

    @property
    def economic_usd_per_hour(self) -> float:
        """Cost with the forgone sale of owned machines that it keeps, by which options are compared."""
        if self.planned is None:
            return self.usd_per_hour
        plan = self.planned.plan
        return self.usd_per_hour + plan.forgone_usd / plan.prices.annuity / HOURS_PER_MONTH

    @property
    def around_the_clock_usd_per_hour(self) -> float:
        """Cost without scaling down in quiet hours."""
        return self.usd_per_hour_paid(1.0)

    def usd_per_hour_paid(self, paid_fraction: float) -> float:
        """Cost if the instances for the peak were paid for this fraction of all hours."""
        hourly = {p.name for p in self.offer.parts} or {"instances", "interruptions", "cloud services"}
        scaled = total_usd_per_hour([p for p in self.parts if p.name in hourly])
        return self.usd_per_hour + float(hour_usd(scaled, 1.0, paid_fraction / self.paid_fraction - 1.0))

    @property
    def bought_instances(self) -> int:
        """Instances to buy for the first month, without those already owned."""
        plan = self.planned.plan if self.planned else None
        return int(plan.in_service((PURCHASE,))[0]) if plan else 0

    @property
    def chips(self) -> int:
        c = self.lane.choice
        return self.replicas * c.tp * c.pp * c.dp

    @property
    def carrying_lanes(self) -> int:
        return (self.replicas - self.spare_replicas) * self.lane.choice.lanes

    @property
    def idle_chips(self) -> int:
        """Chips of the paid instances that no replica uses."""
        return self.instances * self.offer.accelerators - self.chips


@dataclass(frozen=True, kw_only=True, slots=True)
class Design:
    """A candidate (row and column of the table) with the number of replicas that serve the peak."""

    row: int
    column: int
    replicas: int


@dataclass(frozen=True, kw_only=True, slots=True)
class SimulatedDesign:
    """The simulation of a design; only a pilot run if that already failed."""

    design: Design
    verified: Verified
    excess_fraction: float  # worst latency, at the confidence asked for, over its limit; 1: exactly at the limit
    pilot: bool  # whether only the pilot ran


def excess(workload: Workload, v: Verified) -> float:
    """The worst simulated latency over its limit; 1 is exactly at the limit.

    Infinite if more than one request in twenty is not served, with or without limits.
    """
    return _excess(workload, v, (v.ttft_p95_s, v.tpot_p95_s, v.e2e_p95_s), v.late_fraction)


def _excess(workload: Workload, v: Verified, p95_s: tuple[float, float, float], late_fraction: float) -> float:
    if v.unserved_fraction > P95_UNSERVED_FRACTION:
        return math.inf
    recorded = excess(workload, v.of_trace) if v.of_trace else 0.0
    return max(recorded, float(latency_excess(workload, *p95_s)), late_fraction)


def excess_bounds(workload: Workload, v: Verified) -> Bounds:
    """(low, high) bounds on `excess`, from the confidence bounds of the simulated percentiles."""
    latencies = zip(v.ttft_p95_bounds_s, v.tpot_p95_bounds_s, v.e2e_p95_bounds_s, strict=True)
    low, high = (
        _excess(workload, v, p95_s, late) for p95_s, late in zip(latencies, v.late_bounds_fraction, strict=True)
    )
    return low, high


def _is_decided(workload: Workload, sure: Verified) -> bool:
    """Whether a longer simulation would hardly change on which side of its limits a design is."""
    low, high = excess_bounds(workload, sure)
    return not low <= 1 < high or abs(excess(workload, sure) - 1) > NEAR_LIMIT_FRACTION


def budget_excess(workload: Workload, s: Scored) -> float:
    """The worst of chips, cost and power over its budget; infinite if a limited power is unknown."""
    c, capex = workload.constraints, s.planned.plan.capex_usd if s.planned else 0.0
    ratios = [
        largest_chips(workload, s) / c.max_accelerators if c.max_accelerators else 0.0,
        over_inventory(workload, s),
        budgeted_usd_per_month(workload, s) / (c.max_usd_per_month * (1 + 1e-9)) if c.max_usd_per_month else 0.0,
        capex / (c.max_capex_usd * (1 + 1e-9))
        if c.max_capex_usd
        else (math.inf if capex and c.max_capex_usd == 0 else 0.0),
        largest_watts(workload, s) / c.max_watts if c.max_watts else 0.0,
    ]
    return max(math.inf if math.isnan(r) else r for r in ratios)


def largest_chips(workload: Workload, s: Scored) -> float:
    """Chips of all replicas in the month of the forecast that needs most."""
    carrying = s.replicas - s.spare_replicas
    grown = math.ceil(carrying * max(workload.forecast, default=1.0) - 1e-9)
    replicas = workload.slo.redundancy.replicas(grown, packing_of(s.lane.choice, s.offer))
    return float(s.chips / s.replicas * max(float(replicas), 1.0))


def largest_watts(workload: Workload, s: Scored) -> float:
    """Power at full load in the month of the forecast that needs most, W."""
    return s.full_watts * largest_chips(workload, s) / s.chips


def budgeted_usd_per_month(workload: Workload, s: Scored) -> float:
    """The dearest month of the plan as the budget counts it; against a bound of our own, the mean."""
    monthly = s.usd_per_hour * HOURS_PER_MONTH
    if s.planned is None or workload.constraints.bound_factor:
        return monthly
    return max(monthly, s.planned.plan.most_usd_per_month)


def over_inventory(workload: Workload, s: Scored) -> float:
    """Chips over the inventory of this accelerator; infinite if the inventory is 0, and 0 if it is not limited."""
    slug, inventory = s.lane.choice.accelerator.slug, workload.constraints.inventory_chips
    if slug not in inventory:
        return 0.0
    return largest_chips(workload, s) / inventory[slug] if inventory[slug] else math.inf


def is_sure(workload: Workload, s: Scored) -> bool:
    """Whether the probability of meeting the SLO is at least the confidence asked for, where both are known."""
    asked, reached = workload.slo.confidence, s.slo_probability
    return asked is None or reached is None or reached >= asked


def over_budget(workload: Workload, s: Scored) -> bool:
    """Whether a deployment exceeds a limit on chips, cost or power."""
    return budget_excess(workload, s) > 1.0


SPOT = "spot"
MOST_LATE = 4.0  # a batch that is later than this on spot instances is not tried with more replicas


def running_cap(planned_requests: float, crowding: float = 1.0) -> int:
    """Cap on running requests: three standard deviations above the plan, so that bursts do not queue.

    crowding: variance over mean of the requests at once (Demand.crowding).
    """
    return max(math.ceil(planned_requests + 3 * math.sqrt(planned_requests * crowding)), 1)


def enough_replicas(first: SimulatedDesign, second: SimulatedDesign) -> float:
    """Replicas at which the line through two designs that miss a limit reaches it; infinite if more do not help."""
    gained = first.excess_fraction - second.excess_fraction
    if not (math.isfinite(gained) and gained > 0):
        return math.inf
    added = second.design.replicas - first.design.replicas
    return second.design.replicas + added * (second.excess_fraction - 1) / gained


class Simulations:
    """Runs and caches the simulations of one search's candidates."""

    def __init__(self, question: Question, table: Table) -> None:
        self.question, self.table = question, table
        self.workload, self.catalog = question.workload, question.catalog
        self._seen: dict[Key, Verified] = {}
        self._lanes: dict[Design, Lane] = {}
        self._drawn: dict[tuple[int, int, float], Phases] = {}
        self._factors: dict[int, Factors | None] = {}
        self._asked: list[Workload] = []
        self._numbers: dict[int, tuple[Workload, int]] = {}  # by id of the workload
        self._trials: dict[tuple[int, Design, bool], SimulatedDesign] = {}  # of a number; whether in full
        self._scores: dict[tuple[int, int], tuple[SimulatedDesign, object, Scored]] = {}  # by number, id of trial
        self.rentals = Rentals(question)
        self.pools_tried: dict[str, PoolsTried] = {}  # by accelerator

    def with_offers(self, table: Table) -> "Simulations":
        """The same candidates with other offers, sharing the cached simulations."""
        return self.on_catalog(table, self.catalog)

    def on_catalog(self, table: Table, catalog: Catalog) -> "Simulations":
        """The same candidates with the offers of another catalog, sharing the cached simulations."""
        other = Simulations(replace(self.question, catalog=catalog), table)
        other._seen, other._drawn, other._factors = self._seen, self._drawn, self._factors
        other.pools_tried = self.pools_tried
        return other

    def factors(self, row: int) -> Factors | None:
        """Draws of the latencies of one row over their estimates."""
        if row not in self._factors:
            self._factors[row] = factors_of(self.catalog.scopes, self.table.lanes[row])
        return self._factors[row]

    def sure(self, workload: Workload, row: int, seen: Verified) -> Verified:
        """The latencies that are not exceeded with the confidence asked for; as simulated if none is asked for."""
        drawn = self.factors(row) if workload.slo.confidence else None
        return with_confidence(workload, seen, drawn, workload.slo.confidence or 0.0) if drawn else seen

    def planned_requests(self, design: Design) -> float:
        """Planned concurrent requests of one lane."""
        lane = self.table.lanes[design.row]
        return float(concurrency_of([lane])[0, design.column]) / lane.choice.lanes

    def lane(self, design: Design) -> Lane:
        """The candidate's lane with a cap on running requests, of users at most one for each."""
        if design not in self._lanes:
            self._lanes[design] = self._capped(design)
        return self._lanes[design]

    def _capped(self, design: Design) -> Lane:
        lane, users = self.table.lanes[design.row], self.workload.users
        if seats := self.workload.constraints.max_running_requests:
            return replace(lane, max_running_requests=seats)
        most = lane.max_running_requests if lane.draft else lane.framework.max_running_requests
        if users is not None:
            most = min(most, whole_users(users.active_requests / (design.replicas * lane.choice.lanes)))
        crowding = float(demand_of(self.workload, 1.0 / (design.replicas * lane.choice.lanes)).crowding)
        return replace(lane, max_running_requests=min(running_cap(self.planned_requests(design), crowding), most))

    def kept_fraction(self, design: Design) -> float:
        """Share of the waiting conversations that stays in the design's KV cache at the peak; 1 without turns."""
        lane, built = self.lane(design), self.table.built
        assert built is not None
        lanes = design.replicas * lane.choice.lanes
        return kept_of(
            self.workload,
            lane,
            float(built.memory.kv_capacity_tokens[design.row]),
            self.planned_requests(design),
            float(self.table.peak_requests_per_s[design.row, design.column]) / lanes,
        )

    def run(self, design: Design, requests: int, load: float = 1.0, arrival_cv: float | None = None) -> Verified:
        """Simulate one lane of the design at its share of the peak, or of `load` times it, with this many requests.

        Users who think for a shorter time are more load; their number stays. `arrival_cv`: in place of the workload's.
        """
        lane = self.lane(design)
        cv = self.workload.arrival_cv if arrival_cv is None else arrival_cv
        key = (design.row, lane.max_running_requests, design.replicas, requests, load, cv)
        if key not in self._seen:
            assert self.table.built is not None
            lanes = design.replicas * lane.choice.lanes
            asked = as_cached(self.workload, self.kept_fraction(design))
            if asked.users is not None:
                asked = replace(asked, users=replace(asked.users, think_s=asked.users.think_s / load))
            asked = replace(asked, requests_per_s_peak=asked.requests_per_s_peak * load, arrival_cv=cv)
            rate = asked.requests_per_s_peak / lanes
            simulate = partial(verify, asked, self.table.built.times, design.row, lane, requests=requests)

            def see(rate: float) -> Verified:
                return self._counted(simulate(rate))

            full = not self.workload.kind.has_arrivals and self.workload.turns is None
            self._seen[key] = self._full_slots(see, key, rate) if full else see(rate)
        return self._seen[key]

    def _counted(self, seen: Verified) -> Verified:
        self.catalog.effort.add(seen.work, seen.requests)
        return seen

    def _full_slots(self, see: Callable[[float], Verified], key: Key, rate: float) -> Verified:
        """The lane with its share of a batch, simulated once for all numbers of replicas."""
        row, slots, _, requests, load, cv = key
        alike = (row, slots, ANY_REPLICAS, requests, load, cv)
        if alike not in self._seen:
            self._seen[alike] = see(rate)
        return at_rate(self.workload, self._seen[alike], rate)

    def replay_trace(self, design: Design) -> Verified:
        """Simulate one lane of the design with its round-robin share of the trace."""
        lane, trace = self.lane(design), self.workload.trace
        assert self.table.built is not None and trace is not None
        key = (design.row, lane.max_running_requests, design.replicas, 0, 1.0, 0.0)
        if key not in self._seen:
            share = trace.for_replica(design.replicas * lane.choice.lanes)
            self._seen[key] = self._counted(
                verify_trace(self.workload, self.table.built.times, design.row, lane, share)
            )
        return self._seen[key]

    def _number(self, workload: Workload) -> int:
        """The same for workloads between which designs differ by nothing but their rank.

        These have another objective, except `carbon`, which chooses other offers, or another bound on the price that is
        not the user's.
        """
        if id(workload) not in self._numbers:
            c, asked = workload.constraints, workload
            if workload.objective != "carbon":
                own = replace(c, max_usd_per_month=None, bound_factor=None) if c.bound_factor else c
                asked = replace(workload, objective="cost", constraints=own)
            if asked not in self._asked:
                self._asked.append(asked)
            self._numbers[id(workload)] = workload, self._asked.index(asked)
        return self._numbers[id(workload)][1]

    def pilot_then_full(self, workload: Workload, design: Design) -> SimulatedDesign:
        """Run a pilot, then the full simulation if the pilot does not rule the design out."""
        key = (self._number(workload), design, False)
        if key not in self._trials:
            self._trials[key] = self._pilot_then_full(workload, design)
        return self._trials[key]

    def run_in_full(self, workload: Workload, design: Design) -> SimulatedDesign:
        """Simulate with all requests, and replay the trace if the workload has one."""
        key = (self._number(workload), design, True)
        if key not in self._trials:
            self._trials[key] = self._run_in_full(workload, design)
        return self._trials[key]

    def _pilot_then_full(self, workload: Workload, design: Design) -> SimulatedDesign:
        pilot = self.run(design, PILOT_REQUESTS)
        sure = self.sure(workload, design.row, pilot)
        if excess_bounds(workload, sure)[0] > 1:
            return SimulatedDesign(design=design, verified=pilot, excess_fraction=excess(workload, sure), pilot=True)
        return self.run_in_full(workload, design)

    def _run_in_full(self, workload: Workload, design: Design) -> SimulatedDesign:
        seen = self.run(design, REQUESTS)
        sure = self.sure(workload, design.row, seen)
        if workload.kind.has_arrivals and not _is_decided(workload, sure):
            seen = self.run(design, MORE_REQUESTS)
            sure = self.sure(workload, design.row, seen)
        if workload.trace and excess(workload, seen) <= HOPELESS:
            seen = replace(seen, of_trace=self.replay_trace(design))
            sure = self.sure(workload, design.row, seen)
        far = excess(workload, sure)
        if workload.kind.has_arrivals and far <= 1.0:  # what fails with the requests in flight as simulated needs none
            response = self.response(design)
            replayed = replace(seen.of_trace, response=response) if seen.of_trace else None
            seen = replace(seen, response=response, of_trace=replayed)
            far = excess(workload, self.sure(workload, design.row, seen))
        return SimulatedDesign(design=design, verified=seen, excess_fraction=far, pilot=False)

    def response(self, design: Design) -> Response:
        """How its latencies answer to slower steps and more load, and to arrivals of another burstiness if assumed.

        By pilot runs: their ratios are closer than their percentiles.
        """
        see = partial(self.run, design, PILOT_REQUESTS)
        assumed = self.workload.arrival_cv_range if self.workload.users is None else None
        return response_of(see, burstier=see(arrival_cv=assumed[1]) if assumed else None)

    def at_its_limits(self, workload: Workload, trial: SimulatedDesign) -> SimulatedDesign:
        """The design with latencies that pass as limits, whether 2,000 or more requests decide then."""
        if not workload.kind.has_arrivals:
            return trial
        short, long = (self.run(trial.design, count) for count in (REQUESTS, MORE_REQUESTS))
        worse = replace(
            long,
            of_trace=trial.verified.of_trace,
            ttft_p95_s=max(short.ttft_p95_s, long.ttft_p95_s),
            tpot_p95_s=max(short.tpot_p95_s, long.tpot_p95_s),
            e2e_p95_s=max(short.e2e_p95_s, long.e2e_p95_s),
        )
        far = excess(workload, self.sure(workload, trial.design.row, worse))
        return replace(trial, verified=worse, excess_fraction=far, pilot=False)

    def precise(self, workload: Workload, s: Scored) -> Scored:
        """The deployment with the percentiles of a simulation that is long enough to report them.

        As before where it would contradict the decision, made with confidence bounds.
        """
        built, asked = self.table.built, as_cached(workload, s.kept_fraction)
        if built is None or s.pools or not workload.kind.has_arrivals:
            return s
        rate = workload.requests_per_s_peak / s.carrying_lanes
        seen = verify(asked, built.times, s.row_index, s.lane, rate)
        seen = replace(seen, of_trace=s.verified.of_trace, response=s.verified.response)
        if (excess(workload, self.sure(workload, s.row_index, seen)) <= 1) != s.meets_slo:
            return s
        chance = slo_probability(workload, self.factors(s.row_index), seen)
        return replace(s, verified=seen, slo_probability=chance)

    def fewest_replicas(self, workload: Workload, row: int, column: int) -> SimulatedDesign:
        """The candidate with the fewest replicas that meet the limits, trying up to twice the plan; else its best run.

        Beyond the first step it goes on while the line through the last two trials promises that it helps. The steps do
        not depend on the limits, so that relaxing them to what a trial achieved finds it again.
        """
        planned = int(self.table.replicas[row, column])
        steps = [planned + max(k, math.ceil(planned * more)) for k, more in enumerate(MORE_REPLICAS_FRACTIONS, 1)]

        def tried(replicas: int) -> SimulatedDesign:
            return self.pilot_then_full(workload, Design(row=row, column=column, replicas=replicas))

        first = tried(planned)
        lost = planned >= 4 and excess_bounds(workload, self.sure(workload, row, first.verified))[0] > LOST
        if first.excess_fraction <= 1 or lost:
            return first
        trials = [first]
        for replicas in steps:
            if len(trials) > 1 and enough_replicas(*trials[-2:]) > steps[-1]:
                break
            trials.append(tried(replicas))
            if trials[-1].excess_fraction <= 1:
                break
        best, failing = trials[-1], trials[-2].design.replicas
        if best.excess_fraction > 1:
            return min(trials, key=lambda t: t.excess_fraction)
        while best.design.replicas - failing > 1:
            middle = (failing + best.design.replicas) // 2
            trial = tried(middle)
            if trial.excess_fraction <= 1:
                best = trial
            else:
                failing = middle
        return best

    def scored(self, workload: Workload, trial: SimulatedDesign) -> Scored:
        """The deployment of a simulated design, with spares, at its cheapest offer.

        A batch that is late on spot instances also tries as many replicas as keep its deadline there.
        """
        found = self._scored(workload, trial)
        larger = self._sized_for_spot(workload, trial)
        if larger is None:
            return found
        other = self._scored(workload, larger)
        return min(found, other, key=lambda s: (not s.meets_slo, s.usd_per_hour))

    def _sized_for_spot(self, workload: Workload, trial: SimulatedDesign) -> SimulatedDesign | None:
        """The design with the replicas that keep the deadline on spot instances; None: not asked for, or in vain."""
        late = partial(spot_late_fraction, workload, self.catalog.assumptions)
        lane = self.table.lanes[trial.design.row]
        if workload.deadline_s is None or late(0.0) >= 1 or not 1 < late(trial.verified.late_fraction) <= MOST_LATE:
            return None
        if not any(o.term == SPOT for o in allowed_offers(Question(workload, self.catalog), lane)):
            return None
        share = (late(trial.verified.late_fraction) - late(0.0)) / (1.0 - late(0.0))
        least = math.ceil(trial.design.replicas * share - 1e-9)
        for more in (least, least + 1):
            larger = self.run_in_full(workload, replace(trial.design, replicas=max(more, trial.design.replicas + 1)))
            if late(larger.verified.late_fraction) <= 1:
                return larger
        return None

    def _scored(self, workload: Workload, trial: SimulatedDesign) -> Scored:
        key = self._number(workload), id(trial)
        known = self._scores.get(key)
        if known is None or known[1] is not self.rentals.known:  # what can bridge a delivery may change its plan
            found = self._deployment(workload, trial)
            known = self._scores[key] = trial, self.rentals.known, found
        s = known[2]
        paid = s.planned is not None  # without a plan, the offers have too few machines
        return replace(s, meets_slo=paid and s.meets_slo and is_sure(workload, s) and not over_budget(workload, s))

    def _deployment(self, workload: Workload, trial: SimulatedDesign) -> Scored:
        """The deployment of a simulated design, whatever it costs."""
        row, carrying = trial.design.row, trial.design.replicas
        catalog, lane = self.catalog, self.lane(trial.design)
        spot_late = spot_late_fraction(workload, catalog.assumptions, trial.verified.late_fraction)
        if workload.deadline_s is not None and spot_late > 1:
            catalog = replace(catalog, offers=tuple(o for o in catalog.offers if o.term != SPOT))
        if not allowed_offers(Question(workload, catalog), self.table.lanes[row]):  # spot alone is allowed, and late
            catalog, trial = self.catalog, replace(trial, excess_fraction=max(trial.excess_fraction, spot_late))
        c = lane.choice
        peak, mean = self.request_rates(trial)
        each = self._capacity(workload, trial)
        busy = np.array([[mean / (each * carrying)]])
        _, best, _, _ = best_offers(Question(workload, catalog), [lane], np.array([[float(carrying)]]), busy)
        offer = catalog.offers[int(best[0, 0])]
        replicas = int(workload.slo.redundancy.replicas(carrying, packing_of(c, offer)))
        capacity = each * replicas
        load = mean / capacity
        deployment = Scored(
            lane=lane,
            offer=offer,
            replicas=replicas,
            spare_replicas=replicas - carrying,
            instances=0,
            concurrency=lane.max_running_requests * c.lanes,
            verified=trial.verified,
            capacity_requests_per_s=capacity,
            parts=(),
            licence_usd_per_hour=0.0,
            watts=math.nan,
            full_watts=math.nan,
            phases=self._phases(workload, trial, (mean, peak), load),
            utilisation_fraction=load,
            requests_per_s_mean=mean,
            requests_per_s_peak=peak,
            paid_fraction=1.0,
            memory=memory_parts(self.table.built, row, lane, trial.verified.running_requests_mean),
            meets_slo=trial.excess_fraction <= 1,
            row_index=row,
            kept_fraction=self.kept_fraction(trial.design),
            rentals=self.rentals.until,
        )
        self._may_be_rented(workload, trial, deployment)
        deployment = with_best_plan(Question(workload, catalog), deployment)
        if workload.deadline_s is not None and on_spot(deployment):
            deployment = replace(deployment, verified=replace(trial.verified, late_fraction=spot_late))
        chance = slo_probability(workload, self.factors(row), deployment.verified)
        return replace(deployment, slo_probability=chance)

    def _may_be_rented(self, workload: Workload, trial: SimulatedDesign, s: Scored) -> None:
        """Remembers a deployment that keeps the limits as one that can bridge a delivery."""
        rents = [o for o in allowed_offers(Question(workload, self.catalog), s.lane) if o.acquisition == "rent"]
        if trial.excess_fraction > 1 or trial.pilot or not rents:
            return
        cheapest = min(
            rents, key=lambda o: o.usd_per_hour * float(instances_of(workload, s, o, s.replicas - s.spare_replicas))
        )
        there = on_offer(Question(workload, self.catalog), s, cheapest)
        self.rentals.add((trial.design.row, trial.design.replicas), deployed(Question(workload, self.catalog), there))

    def _phases(self, workload: Workload, trial: SimulatedDesign, rates: tuple[float, float], load: float) -> Phases:
        assert self.table.built is not None
        row, running = trial.design.row, trial.verified.running_requests_mean
        key = (row, trial.design.replicas, running)
        if key not in self._drawn:
            self._drawn[key] = phases(
                self.catalog.assumptions,
                self.catalog.model,
                as_cached(workload, self.kept_fraction(trial.design)),
                self.table.built,
                row,
                chip=self.table.lanes[row].choice.accelerator,
                running=running,
                lanes=trial.design.replicas * self.table.lanes[row].choice.lanes,
                requests_per_s=rates,
                duty_fraction=load,
            )
        return self._drawn[key]

    def request_rates(self, trial: SimulatedDesign) -> tuple[float, float]:
        """(peak, mean) requests/s; with users, the closed-loop rates for this design."""
        peak, mean = self.workload.requests_per_s_peak, self.workload.requests_per_s_mean
        if self.workload.users is None:
            return peak, mean
        c = self.table.lanes[trial.design.row].choice
        settled = trial.verified.offered_requests_per_s * trial.design.replicas * c.lanes
        return settled, settled * mean / peak

    def _capacity(self, workload: Workload, trial: SimulatedDesign) -> float:
        """Maximum requests/s of one replica within the TPOT limit, and at least its simulated share.

        Without arrivals, where every slot stays busy, the simulated throughput.
        """
        limit, design, row = tpot_limit_s(workload), trial.design, trial.design.row
        if not workload.kind.has_arrivals:
            c = self.table.lanes[row].choice
            return trial.verified.requests_per_s * c.lanes
        rates = self.table.capacity_requests_per_s[row, : design.column + 1]
        within = rates if limit is None else rates[self.table.busy_tpot_s[row, : design.column + 1] <= limit]
        return max(float(np.max(within, initial=0.0)), self.request_rates(trial)[0] / design.replicas)


def on_spot(s: Scored) -> bool:
    """Whether any of its instances are spot instances."""
    hourly = s.planned.plan.schedule.hourly if s.planned else ()
    return any(s.planned.offers[h.way].term == SPOT for h in hourly) if s.planned else s.offer.term == SPOT


def repriced(question: Question, s: Scored, offer: Offer) -> Scored:
    """The same deployment on another offer alone: instances, power and plan recomputed."""
    s = on_offer(question, s, offer)
    planned = single(question, deployed(question, s), offer)
    return with_plan(s, planned) if planned else s


def on_offer(question: Question, s: Scored, offer: Offer) -> Scored:
    """The same deployment on another offer, without its cost."""
    workload = question.workload
    s = with_spares(workload, s, offer)
    instances = int(instances_of(workload, s, offer, s.replicas - s.spare_replicas))
    carrying = np.array([float(s.replicas - s.spare_replicas)])
    paid = float(paid_fraction(workload, offer, carrying, packing_of(s.lane.choice, offer))[0])
    used = s.utilisation_fraction * s.paid_fraction / paid
    licence = licence_of(question.catalog, s.lane) * offer.accelerators
    deployment = replace(
        s,
        offer=offer,
        instances=instances,
        licence_usd_per_hour=float(hour_usd(licence, instances, 1.0, run_fraction(workload, offer, used))),
        utilisation_fraction=used,
        paid_fraction=paid,
    )
    return replace(
        deployment,
        watts=mean_watts(question, deployment),
        full_watts=_watts(question.catalog, deployment, 1.0),
    )


def with_spares(workload: Workload, s: Scored, offer: Offer) -> Scored:
    """The deployment with the spare replicas that the hosts of an offer ask for."""
    needed, p = workload.slo.redundancy, packing_of(s.lane.choice, offer)
    pools = s.pools
    if pools is not None:
        counts = [int(needed.replicas(n, p)) for n in pools.carrying(s.replicas - s.spare_replicas)]
        pools = replace(pools, prefill_replicas=counts[0], decode_replicas=counts[1])
    else:
        counts = [int(needed.replicas(s.replicas - s.spare_replicas, p))]
    replicas, carrying = sum(counts), s.replicas - s.spare_replicas
    more = replicas / s.replicas
    return s if replicas == s.replicas else replace(
        s, replicas=replicas, spare_replicas=replicas - carrying, pools=pools,
        capacity_requests_per_s=s.capacity_requests_per_s * more, utilisation_fraction=s.utilisation_fraction / more,
    )  # fmt: skip


def with_plan(s: Scored, planned: Planned) -> Scored:
    """The deployment paid for as planned."""
    return replace(s, planned=planned, parts=planned.plan.parts())


def commits(s: Scored) -> bool:
    """Whether its plan buys machines or signs a term: what cannot be undone when a load test disappoints."""
    if s.planned is None:
        return False
    plan = s.planned.plan
    return any(plan.ways[c.way].kind in (PURCHASE, TERM) for c in plan.schedule.commitments)


def by_the_hour(question: Question, s: Scored) -> Scored | None:
    """The same deployment on machines by the hour and those already owned; None: none within the limits on cost."""
    offers = [o for o in allowed_offers(question, s.lane) if o.term in (*BY_THE_HOUR, OWNED)]
    if not any(o.acquisition == "rent" for o in offers):
        return None
    cheapest = min(
        (o for o in offers if o.acquisition == "rent"),
        key=lambda o: o.usd_per_hour * float(instances_of(question.workload, s, o, s.replicas - s.spare_replicas)),
    )
    found = with_best_plan(question, on_offer(question, s, cheapest), offers)
    kept = found.planned is not None and not commits(found) and not over_budget(question.workload, found)
    return found if kept else None


def with_best_plan(question: Question, s: Scored, offers: Sequence[Offer] | None = None) -> Scored:
    """The deployment under the cheapest plan, named after the offer of it that costs most; offers: None: all allowed.

    Under `carbon` the offer of the greenest grid stays.
    """
    if question.workload.objective == "carbon":
        return repriced(question, s, s.offer)
    s = on_offer(question, s, s.offer)
    planned = best(question, deployed(question, s), allowed_offers(question, s.lane) if offers is None else offers)
    if planned is None:
        return repriced(question, s, s.offer)
    main = planned.offers[planned.main]
    if main is not s.offer:
        s = on_offer(question, s, main)
        planned = best(question, deployed(question, s), planned.offers[: planned.own_ways]) or planned
    return with_plan(s, planned)


def with_every_rental(question: Question, s: Scored) -> Scored:
    """The deployment planned again now that everything that can bridge a delivery is known, if it buys anything."""
    if s.planned is None or not s.planned.plan.capex_usd:
        return s
    planned = best(question, deployed(question, s), s.planned.offers[: s.planned.own_ways])
    return with_plan(s, planned) if planned and planned.offers[planned.main] is s.offer else s


def deployed(question: Question, s: Scored) -> Deployed:
    """What a plan needs to know of the deployment."""
    sent, stored = (
        s.requests_per_s_mean * question.workload.output_tokens.mean_tokens,
        s.memory.weights_bytes * s.chips / s.replicas,
    )
    rented = s.offer.provider if s.offer.acquisition != "own" else ""
    return Deployed(
        lane=s.lane,
        instances=partial(instances_of, question.workload, s),
        carrying=s.replicas - s.spare_replicas,
        stored_bytes=stored,
        output_tokens_per_s=sent,
        drawn_fraction=partial(drawn_fraction, question, s),
        utilisation_fraction=s.utilisation_fraction,
        services=services(sent, stored, rented, question.catalog.assumptions) if rented else (),
        rentals=s.rentals,
    )


def drawn_fraction(question: Question, s: Scored, offer: Offer) -> float:
    """Mean power of the deployment's instances under this offer over their full draw; 1 if it is not published."""
    there = s if offer is s.offer else on_offer(question, s, offer)
    chip = s.lane.choice.accelerator.watts + host_watts(offer, question.catalog)
    full = chip * offer.accelerators * there.instances * offer.pue
    return there.watts / full if full and math.isfinite(there.watts / full) else 1.0


def instances_of(workload: Workload, s: Scored, offer: Offer, carrying: Amount) -> Amount:
    """Whole instances of an offer for this many serving replicas, with what may be lost.

    Pools with spares have hosts of their own.
    """
    needed, p, some = workload.slo.redundancy, packing_of(s.lane.choice, offer), np.asarray(carrying, float)
    if s.pools is None or not needed:
        return np.asarray(needed.instances(some, p))
    return np.asarray(sum(needed.instances(n, p) for n in s.pools.carrying(some)))


def resized_usd_per_hour(workload: Workload, s: Scored, replicas: Amount, work: Amount, price: Amount = 1.0) -> Amount:
    """Cost per hour with this many replicas, today's spares among them, at `price` times the price of the machines.

    What is released after its run keeps its replicas and pays for `work` times the hours. The minimum team pays for
    what its staff does not cover.
    """
    carrying = np.asarray(replicas) - s.spare_replicas
    paid = work if workload.kind.released_after_run else instances_of(workload, s, s.offer, carrying) / s.instances
    priced = priced_usd_per_hour(s.parts)
    team, staff = (total_usd_per_hour([p for p in s.parts if p.name == name]) for name in (TEAM, STAFF_PART))
    rest = s.usd_per_hour - priced - team
    least = np.maximum(team + staff * (1.0 - paid), 0.0) if team else 0.0
    return hour_usd(priced * price + rest, paid) + least


def mean_watts(question: Question, s: Scored) -> float:
    """Mean power in W over the week; with autoscaling the load per instance is taken as constant."""
    workload = question.workload
    if not workload.week or s.paid_fraction < 1.0:
        return watts_at(question.catalog, s, 1.0)
    levels, hours = np.unique(np.array(workload.week), return_counts=True)
    drawn = [watts_at(question.catalog, s, float(level) / mean_fraction(workload.week)) for level in levels]
    return float(np.average(drawn, weights=hours))


def watts_at(catalog: Catalog, s: Scored, load: float) -> float:
    """Power in W at this multiple of the mean load, including hosts and PUE, averaged over the paid instances.

    Spare replicas are idle.
    """
    given_back = not s.phases.by_chance and s.offer.term in BY_THE_HOUR
    there = min(s.utilisation_fraction, 1.0) if given_back else s.paid_fraction
    carrying = s.phases.span_fraction(s.carrying_lanes, load / there) if there else 0.0
    return _watts(catalog, s, carrying * (s.replicas - s.spare_replicas) / s.replicas, there)


def _watts(catalog: Catalog, s: Scored, span_fraction: float, there: float = 1.0) -> float:
    """Power in W at this fraction of (limit - idle), with instances on for a fraction `there` of the hours.

    Idle chips of a purchased host count too.
    """
    a, assumed = s.lane.choice.accelerator, catalog.assumptions
    tdp, idle = np.array(a.watts), np.array(a.idle_watts)
    host = np.array(host_watts(s.offer, catalog))
    drawn = float(watts_per_chip(tdp, idle, np.array(span_fraction), assumed, host)) * s.chips * there
    resting = float(watts_per_chip(tdp, idle, np.array(0.0), assumed, host)) * s.idle_chips
    return (drawn + (resting if s.offer.acquisition == "own" and s.idle_chips else 0.0)) * s.offer.pue


def memory_parts(built: Lanes | None, row: int, lane: Lane, running: float) -> MemoryParts:
    """Memory parts with `running` requests per lane; each pipeline stage holds its share of every lane's cache."""
    assert built is not None
    room: Memory = built.memory
    kv = min(running * lane.choice.pp * float(room.kv_bytes_per_sequence[row]), float(room.kv_bytes[row]))
    source = float(room.source_bytes_per_sequence[row])
    share = source / float(room.kv_bytes_per_sequence[row]) if source else 0.0
    return MemoryParts(
        weights_bytes=float(room.weights_bytes[row]),
        kv_bytes=kv,
        source_kv_bytes=kv * share,
        activations_bytes=float(room.activations_bytes[row]),
        overhead_bytes=float(room.overhead_bytes[row]),
        free_bytes=float(room.kv_bytes[row]) - kv,
        kv_capacity_tokens=float(room.kv_capacity_tokens[row]),
    )
