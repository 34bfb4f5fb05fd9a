"""The finalists under the scheduler's simulation, each design once, with what it then costs, draws and holds."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from advisor.engine.cost import (
    HOURS_PER_MONTH,
    Amount,
    at_load,
    bought,
    held,
    hour_usd,
    merged,
    rent_parts,
    services,
    total_usd_per_hour,
    watts_per_chip,
)
from advisor.engine.scheduler import REQUESTS, Bounds, Verified, verify, verify_trace
from advisor.engine.search.candidates import CONCURRENCY, Catalog
from advisor.engine.search.table import (
    BY_THE_HOUR,
    Table,
    best_offers,
    host_watts,
    instances_needed,
    latency_excess,
    licence_of,
    paid_fraction,
    run_fraction,
    tpot_limit_s,
)
from advisor.engine.spec import BATCH, OWNED, Offer, Part, Users, Workload, mean_fraction
from advisor.engine.step import Lane, Lanes, Memory, Phases, phases

PILOT_REQUESTS = 500
HOPELESS = 1.5  # of recorded requests: a design this far beyond a limit is not tried under them
LOST = 2.5  # surely beyond this neither a quarter more replicas nor more requests change the verdict
SETTLED_FRACTION, PILOT_SETTLED_FRACTION = 0.03, 0.1  # of a rate of users
MORE_REPLICAS_FRACTION = 0.25  # tried above the planned number before a design is given up


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryParts:
    """Bytes per chip of one replica; they add up to what the framework may fill."""

    weights_bytes: float  # those of resident adapters included
    kv_bytes: float  # of the requests that run at the peak
    source_kv_bytes: float  # of those: keys and values of the sources of an encoder-decoder
    activations_bytes: float
    overhead_bytes: float
    free_bytes: float
    kv_capacity_tokens: float  # of one lane


@dataclass(frozen=True, kw_only=True, slots=True)
class Pools:
    """How the replicas are shared out when prompts and tokens are computed apart; spares included."""

    prefill_replicas: int
    decode_replicas: int
    transfer_s: float  # of the cache of a mean prompt, from one pool to the other


@dataclass(frozen=True, kw_only=True, slots=True)
class Scored:
    """One deployment with its load and its price; latencies come from the simulation."""

    lane: Lane
    offer: Offer
    replicas: int  # spares included
    spare_replicas: int
    instances: int
    concurrency: int  # per replica
    verified: Verified
    capacity_requests_per_s: float  # of all replicas
    parts: tuple[Part, ...]  # of an hour
    licence_usd_per_hour: float  # within it
    watts: float
    full_watts: float  # all chips busy, for a site's limit
    phases: Phases  # of its carrying lanes at the mean load, and their power
    utilisation_fraction: float  # mean load over capacity, of the hours that are paid
    requests_per_s_mean: float  # of the workload, or what its users ask of this deployment
    requests_per_s_peak: float
    paid_fraction: float  # of the hours of a week, of the instances for the peak
    memory: MemoryParts
    meets_slo: bool
    row_index: int  # of its lane in the table
    pools: Pools | None = None  # replicas that prefill and others that decode

    @property
    def usd_per_hour(self) -> float:
        return total_usd_per_hour(self.parts)

    @property
    def around_the_clock_usd_per_hour(self) -> float:
        """What it would cost if no instance were given back in quiet hours."""
        return self.usd_per_hour_paid(1.0)

    def usd_per_hour_paid(self, paid_fraction: float) -> float:
        """What it would cost if the instances for the peak were paid this share of the hours."""
        hourly = {p.name for p in self.offer.parts} or {"instances", "interruptions", "cloud services"}
        scaled = total_usd_per_hour([p for p in self.parts if p.name in hourly])
        return self.usd_per_hour + float(hour_usd(scaled, 1.0, paid_fraction / self.paid_fraction - 1.0))

    @property
    def bought_instances(self) -> int:
        """Of a bought host's offer: without those that are there already."""
        return bought(self.offer, self.instances)

    @property
    def chips(self) -> int:
        c = self.lane.choice
        return self.replicas * c.tp * c.pp * c.dp

    @property
    def carrying_lanes(self) -> int:
        return (self.replicas - self.spare_replicas) * self.lane.choice.lanes

    @property
    def idle_chips(self) -> int:
        """Paid for with their instance, used by no replica."""
        return self.instances * self.offer.accelerators - self.chips


@dataclass(frozen=True, kw_only=True, slots=True)
class Design:
    """A candidate of the table with a number of replicas that carry the peak."""

    row: int
    column: int
    replicas: int


@dataclass(frozen=True, kw_only=True, slots=True)
class SimulatedDesign:
    """What a simulation said of a design; from a pilot when it was hopeless."""

    design: Design
    verified: Verified
    excess_fraction: float  # of its worst latency over the limit; 1: on it
    pilot: bool  # ended by it


def _settled(see: Callable[[float], Verified], users: Users, peak: float, lanes: int, near: float) -> Verified:
    """The simulation at which users / (think time + latency) is the rate that it was given, as near as that.

    Beyond capacity there is no such rate for ever: the geometric mean keeps the search from swinging.
    """
    rate = peak / lanes
    seen = see(rate)
    for _ in range(3):
        asked = users.requests_per_s(seen.e2e_mean_s) / lanes
        if abs(asked / rate - 1) <= near:
            break
        rate = asked if asked > rate else math.sqrt(asked * rate)
        seen = see(rate)
    return seen


def excess(workload: Workload, v: Verified) -> float:
    """How far beyond its latency limits a simulated deployment is; 1: on the limit."""
    recorded = excess(workload, v.of_trace) if v.of_trace else 0.0
    late = float(latency_excess(workload, v.ttft_p95_s, v.tpot_p95_s, v.e2e_p95_s))
    return max(recorded, late, v.late_fraction)


def excess_bounds(workload: Workload, v: Verified) -> Bounds:
    """Between which values the excess lies, for all that so few requests can tell."""
    low, high = (
        replace(
            v,
            ttft_p95_s=v.ttft_p95_bounds_s[end],
            tpot_p95_s=v.tpot_p95_bounds_s[end],
            e2e_p95_s=v.e2e_p95_bounds_s[end],
            late_fraction=v.late_bounds_fraction[end],
        )
        for end in (0, 1)
    )
    return excess(workload, low), excess(workload, high)


def budget_excess(workload: Workload, s: Scored) -> float:
    """How far beyond its budgets of chips, money and power a deployment is; unknown power is infinitely far."""
    c = workload.constraints
    ratios = [
        s.chips / c.max_accelerators if c.max_accelerators else 0.0,
        over_inventory(workload, s),
        s.usd_per_hour * HOURS_PER_MONTH / c.max_usd_per_month if c.max_usd_per_month else 0.0,
        s.full_watts / c.max_watts if c.max_watts else 0.0,
    ]
    return max(math.inf if math.isnan(r) else r for r in ratios)


def over_inventory(workload: Workload, s: Scored) -> float:
    """Chips over what can be had of this accelerator; infinite where there is none."""
    slug, inventory = s.lane.choice.accelerator.slug, workload.constraints.inventory_chips
    if slug not in inventory:
        return 0.0
    return s.chips / inventory[slug] if inventory[slug] else math.inf


def over_budget(workload: Workload, s: Scored) -> bool:
    return budget_excess(workload, s) > 1.0


class Simulations:
    """Simulations of one question's candidates; a design is simulated once however often it is asked about."""

    def __init__(self, workload: Workload, catalog: Catalog, table: Table) -> None:
        self.workload, self.catalog, self.table = workload, catalog, table
        self._seen: dict[tuple[int, int, int, int], Verified] = {}
        self._drawn: dict[tuple[int, int, float], Phases] = {}
        self._asked: dict[tuple[int, int, int], float] = {}  # requests/s of users, as last settled

    def with_offers(self, table: Table) -> "Simulations":
        """The same simulations over the same candidates with other offers."""
        other = Simulations(self.workload, self.catalog, table)
        other._seen, other._drawn = self._seen, self._drawn
        return other

    def planned_requests(self, design: Design) -> float:
        """Requests that one lane of the candidate is to run at once."""
        return float(CONCURRENCY[design.column]) / self.table.lanes[design.row].choice.lanes

    def lane(self, design: Design) -> Lane:
        """The candidate's lane with its server's cap on running requests.

        The cap is the planned concurrency and three standard deviations of a Poisson number around it, so that
        chance does not queue what the chips could run.
        """
        lane = self.table.lanes[design.row]
        planned = self.planned_requests(design)
        cap = max(math.ceil(planned + 3 * math.sqrt(planned)), 1)
        return replace(lane, max_running_requests=min(cap, lane.framework.max_running_requests))

    def run(self, design: Design, requests: int) -> Verified:
        """Simulate one lane of the design at its share of the peak."""
        lane = self.lane(design)
        key = (design.row, lane.max_running_requests, design.replicas, requests)
        if key not in self._seen:
            assert self.table.built is not None
            lanes = design.replicas * lane.choice.lanes
            peak = self._asked.get(key[:3], float(self.table.peak_requests_per_s[design.row, design.column]))
            see = partial(verify, self.workload, self.table.built.times, design.row, lane, requests=requests)
            users = self.workload.users
            near = SETTLED_FRACTION if requests > PILOT_REQUESTS else PILOT_SETTLED_FRACTION
            seen = see(peak / lanes) if users is None else _settled(see, users, peak, lanes, near)
            self._seen[key] = seen
            if users is not None:
                self._asked[key[:3]] = users.requests_per_s(seen.e2e_mean_s)
        return self._seen[key]

    def replay_trace(self, design: Design) -> Verified:
        """Simulate one lane of the design under the trace, dealt to all lanes in turn."""
        lane, trace = self.lane(design), self.workload.trace
        assert self.table.built is not None and trace is not None
        key = (design.row, lane.max_running_requests, design.replicas, 0)
        if key not in self._seen:
            share = trace.dealt(design.replicas * lane.choice.lanes)
            self._seen[key] = verify_trace(self.workload, self.table.built.times, design.row, lane, share)
        return self._seen[key]

    def pilot_then_full(self, workload: Workload, design: Design) -> SimulatedDesign:
        """A pilot first; only a design that may hold, for all that the pilot can tell, is simulated in full."""
        pilot = self.run(design, PILOT_REQUESTS)
        if excess_bounds(workload, pilot)[0] > 1:
            return SimulatedDesign(design=design, verified=pilot, excess_fraction=excess(workload, pilot), pilot=True)
        return self.run_in_full(workload, design)

    def run_in_full(self, workload: Workload, design: Design) -> SimulatedDesign:
        """With all its requests; under the trace too where there is one."""
        seen = self.run(design, REQUESTS)
        if workload.trace and excess(workload, seen) <= HOPELESS:
            seen = replace(seen, of_trace=self.replay_trace(design))
        return SimulatedDesign(design=design, verified=seen, excess_fraction=excess(workload, seen), pilot=False)

    def fewest_replicas(self, workload: Workload, row: int, column: int) -> SimulatedDesign:
        """The candidate with the fewest replicas that hold, or its best trial; at most a quarter more are tried."""
        planned = int(self.table.replicas[row, column])
        most = planned + max(1, math.ceil(planned * MORE_REPLICAS_FRACTION))
        first = self.pilot_then_full(workload, Design(row=row, column=column, replicas=planned))
        lost = planned >= 4 and excess_bounds(workload, first.verified)[0] > LOST
        if first.excess_fraction <= 1 or lost:
            return first
        best = self.pilot_then_full(workload, Design(row=row, column=column, replicas=most))
        if best.excess_fraction > 1:
            return min(first, best, key=lambda t: t.excess_fraction)
        failing = planned
        while best.design.replicas - failing > 1:
            middle = (failing + best.design.replicas) // 2
            trial = self.pilot_then_full(workload, Design(row=row, column=column, replicas=middle))
            if trial.excess_fraction <= 1:
                best = trial
            else:
                failing = middle
        return best

    def scored(self, workload: Workload, trial: SimulatedDesign) -> Scored:
        """Price, power, capacity and memory of a tried design, spares included."""
        row, carrying = trial.design.row, trial.design.replicas
        spares = workload.slo.spares(carrying)
        lane, replicas = self.lane(trial.design), carrying + spares
        c = lane.choice
        peak, mean = self.request_rates(trial)
        capacity = self._capacity(workload, trial) * replicas
        load = mean / capacity
        _, best, _, _ = best_offers(workload, self.catalog, [lane], np.array([[float(carrying)]]), np.array([[load]]))
        deployment = Scored(
            lane=lane,
            offer=self.catalog.offers[int(best[0, 0])],
            replicas=replicas,
            spare_replicas=spares,
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
            memory=_parts(self.table.built, row, lane, trial.verified.running_requests_mean),
            meets_slo=trial.excess_fraction <= 1,
            row_index=row,
        )
        deployment = repriced(workload, self.catalog, deployment, deployment.offer)
        return replace(deployment, meets_slo=deployment.meets_slo and not over_budget(workload, deployment))

    def _phases(self, workload: Workload, trial: SimulatedDesign, rates: tuple[float, float], load: float) -> Phases:
        assert self.table.built is not None
        row, running = trial.design.row, trial.verified.running_requests_mean
        key = (row, trial.design.replicas, running)
        if key not in self._drawn:
            self._drawn[key] = phases(
                self.catalog.assumptions,
                self.catalog.model,
                workload,
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
        """Requests/s at the peak and on average: of users, what they ask of this design."""
        peak, mean = self.workload.requests_per_s_peak, self.workload.requests_per_s_mean
        if self.workload.users is None:
            return peak, mean
        c = self.table.lanes[trial.design.row].choice
        settled = trial.verified.offered_requests_per_s * trial.design.replicas * c.lanes
        return settled, settled * mean / peak

    def _capacity(self, workload: Workload, trial: SimulatedDesign) -> float:
        """Requests/s that one replica serves at most within the TPOT limit; never less than its simulated share.

        Of a batch, which keeps every seat taken: what the simulation finished.
        """
        limit, design, row = tpot_limit_s(workload), trial.design, trial.design.row
        if workload.kind == BATCH:
            c = self.table.lanes[row].choice
            return trial.verified.requests_per_s * c.lanes
        rates = self.table.capacity_requests_per_s[row, : design.column + 1]
        within = rates if limit is None else rates[self.table.busy_tpot_s[row, : design.column + 1] <= limit]
        return max(float(np.max(within, initial=0.0)), self.request_rates(trial)[0] / design.replicas)


def repriced(workload: Workload, catalog: Catalog, s: Scored, offer: Offer) -> Scored:
    """The same deployment under an offer: its instances, its power at the load and what an hour is paid for."""
    c, instances = s.lane.choice, int(instances_of(s, offer, s.replicas))
    carrying = np.array([float(s.replicas - s.spare_replicas)])
    paid = float(paid_fraction(workload, offer, carrying, c.tp * c.pp * c.dp, c.pp)[0])
    used = s.utilisation_fraction * s.paid_fraction / paid
    licence = licence_of(catalog, s.lane) * offer.accelerators
    deployment = replace(
        s,
        offer=offer,
        instances=instances,
        licence_usd_per_hour=float(hour_usd(licence, instances, 1.0, run_fraction(workload, offer, used))),
        utilisation_fraction=used,
        paid_fraction=paid,
    )
    deployment = replace(
        deployment,
        watts=mean_watts(workload, catalog, deployment),
        full_watts=_watts(catalog, deployment, 1.0),
    )
    return replace(deployment, parts=_paid(workload, catalog, deployment))


def instances_of(s: Scored, offer: Offer, replicas: Amount) -> Amount:
    """Whole instances of an offer that hold so many replicas of this deployment."""
    c = s.lane.choice
    return instances_needed(np.asarray(replicas, float), c.tp * c.pp * c.dp, offer.accelerators, c.pp)


def resized_usd_per_hour(workload: Workload, s: Scored, replicas: Amount, work: Amount) -> Amount:
    """What an hour of the deployment costs on so many replicas: whole instances are paid.

    A batch keeps its replicas and pays for `work` times the hours.
    """
    paid = work if workload.kind == BATCH else instances_of(s, s.offer, replicas) / s.instances
    return hour_usd(s.usd_per_hour, paid)


def _paid(workload: Workload, catalog: Catalog, s: Scored) -> tuple[Part, ...]:
    """What an hour is paid for: whole instances, their power at this load, licences, what goes out and is kept."""
    o, a = s.offer, catalog.assumptions
    chip_watts = s.lane.choice.accelerator.watts + host_watts(o, catalog)
    drawn = s.watts / (chip_watts * o.accelerators * s.instances * o.pue) if o.acquisition == "own" else 1.0
    there = 0 if o.term == OWNED else held(o, s.instances)
    runs = run_fraction(workload, o, s.utilisation_fraction)
    each = o.parts or rent_parts(o.usd_per_hour, o.term, a)
    parts = at_load(each, s.instances - there, drawn, s.paid_fraction, runs)
    if there:
        parts = merged(parts + at_load(o.held_parts, there, drawn))
    if s.licence_usd_per_hour:
        parts += (Part(name="licences", usd_per_hour=s.licence_usd_per_hour, group="running"),)
    if o.acquisition == "own":
        return parts
    sent = s.requests_per_s_mean * workload.output_tokens.mean_tokens
    return parts + services(sent, s.memory.weights_bytes * s.chips / s.replicas, o.provider, a)


def mean_watts(workload: Workload, catalog: Catalog, s: Scored) -> float:
    """Mean draw over the hours of the week; instances that follow the load see it level."""
    if not workload.week or s.paid_fraction < 1.0:
        return watts_at(catalog, s, 1.0)
    levels, hours = np.unique(np.array(workload.week), return_counts=True)
    drawn = [watts_at(catalog, s, float(level) / mean_fraction(workload.week)) for level in levels]
    return float(np.average(drawn, weights=hours))


def watts_at(catalog: Catalog, s: Scored, load: float) -> float:
    """Draw at this multiple of the mean load, with hosts and PUE, of the instances that are paid on average.

    Spare replicas stand by idle.
    """
    given_back = not s.phases.by_chance and s.offer.term in BY_THE_HOUR
    there = min(s.utilisation_fraction, 1.0) if given_back else s.paid_fraction
    carrying = s.phases.span_fraction(s.carrying_lanes, load / there) if there else 0.0
    return _watts(catalog, s, carrying * (s.replicas - s.spare_replicas) / s.replicas, there)


def _watts(catalog: Catalog, s: Scored, span_fraction: float, there: float = 1.0) -> float:
    """Draw at this mean share of (limit - idle), of what is `there` of the hours; idle chips of a bought host too."""
    a, assumed = s.lane.choice.accelerator, catalog.assumptions
    tdp, idle = np.array(a.watts), np.array(a.idle_watts)
    host = np.array(host_watts(s.offer, catalog))
    drawn = float(watts_per_chip(tdp, idle, np.array(span_fraction), assumed, host)) * s.chips * there
    resting = float(watts_per_chip(tdp, idle, np.array(0.0), assumed, host)) * s.idle_chips
    return (drawn + (resting if s.offer.acquisition == "own" and s.idle_chips else 0.0)) * s.offer.pue


def _parts(built: Lanes | None, row: int, lane: Lane, running: float) -> MemoryParts:
    """`running` requests on each lane; a pipeline's stages each hold their share of every lane's cache."""
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
