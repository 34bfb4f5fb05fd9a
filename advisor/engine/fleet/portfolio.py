"""Several workloads on one shared fleet: batch jobs use the idle hours of interactive workloads.

`search` answers each workload alone. The shared fleet is a plan of milp.py over the kinds of hours in a week, and
deferrable work may also use hourly instances. Rates come from the same estimates, and the plan is simulated at its
busiest hour.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.engine.cost import HOURS_PER_MONTH, TEAM
from advisor.engine.fleet.length_classes import LengthClass
from advisor.engine.fleet.milp import Fleet, Job, Limits, Machine, Period, Unit, cheapest
from advisor.engine.fleet.mix import MachineOption, machine_options
from advisor.engine.plans import STAFF, Plan
from advisor.engine.scheduler import REQUESTS, Verified, verify
from advisor.engine.search import (
    BY_THE_HOUR,
    CONCURRENCY,
    Catalog,
    Design,
    Question,
    SearchResult,
    Simulations,
    excess,
    offers_for,
    team_usd_per_hour,
)
from advisor.engine.step import Lane
from advisor.engine.terms import Offer, Workload

DAY_HOURS, WEEK_HOURS = 24, 168
ROUNDS = 4
DERATED = 0.8, 0.95  # range of the factor on an estimated rate after missed limits in simulation
SHARED_KINDS = 4  # accelerators considered per workload, and then for all the others
WORTH_FRACTION = 0.001  # minimum saving, of the cost of each workload alone


@dataclass(frozen=True, kw_only=True, slots=True)
class Member:
    """One workload with its own answer; `week` is the hourly load from Monday 0:00, relative to the busiest hour."""

    question: Question
    answer: SearchResult
    week: tuple[float, ...] = ()  # empty: peak load at every hour

    @property
    def workload(self) -> Workload:
        return self.question.workload

    @property
    def catalog(self) -> Catalog:
        return self.question.catalog

    @property
    def alone_usd_per_hour(self) -> float:
        return self.answer.ranked[0].usd_per_hour if self.answer.ranked else math.inf


@dataclass(frozen=True, kw_only=True, slots=True)
class Assignment:
    """One workload on one kind of machine in some hours of the week."""

    member_index: int
    option: MachineOption
    lane: Lane
    machine: Machine
    hours: tuple[int, ...]  # of the week
    requests_per_s: float  # mean in those hours
    instances: float  # machines busy in those hours; a mean for deferrable work
    verified: Verified


@dataclass(frozen=True, kw_only=True, slots=True)
class SharedFleet:
    """The cheapest shared fleet that meets the limits in simulation, or the reason why there is none."""

    machines: tuple[tuple[Machine, float], ...]  # with the number kept, or the weekly mean for hourly machines
    runs: tuple[Assignment, ...]
    usd_per_hour: float
    alone_usd_per_hour: float
    proven: bool
    reason: str = ""


def plan_shared_fleet(members: Sequence[Member], limits: Limits) -> SharedFleet:
    """The cheapest fleet for all members within the limits."""
    alone = alone_usd_per_hour(members)
    if len(members) == 1:
        return _none(alone, "one service by itself has nothing to share")
    if any(m.workload.slo.doubled for m in members):
        return _none(alone, "a shared fleet is not computed with 2n redundancy")
    hours = windows(members)
    periods, of_hour = periods_of(members, hours)
    machines, units, owners = _units_of(members)
    most = min(alone * (1 - WORTH_FRACTION), limits.max_usd_per_hour or math.inf)
    asked = Limits(
        inventory_chips=limits.inventory_chips,
        max_chips=limits.max_chips,
        max_usd_per_hour=most if math.isfinite(most) else None,
        kind_usd_per_hour=alone * WORTH_FRACTION if math.isfinite(alone) else 0.0,
    )
    jobs = [_job(m, hours[i], of_hour, len(periods)) for i, m in enumerate(members)]
    reason = "by estimate no shared fleet costs less than each workload alone"
    if not math.isfinite(alone):
        reason = "by estimate no fleet meets every workload's limits"
    for _ in range(ROUNDS):
        fleet = cheapest(machines, units, jobs, asked, periods)
        if fleet is None:
            break
        tried = {
            u: _simulated_unit(members, units, owners, fleet, u) for u in sorted({x.unit_index for x in fleet.uses})
        }
        late = {u: excess(members[owners[u][0]].workload, v) for u, (_, v) in tried.items()}
        if max(late.values()) <= 1:
            shared = _fleet_result(machines, units, owners, fleet, tried, of_hour, periods, alone)
            shared = replace(shared, usd_per_hour=shared.usd_per_hour + fleet_team_usd_per_hour(members, shared))
            if shared.usd_per_hour > most:
                return _none(alone, "with its minimum team no shared fleet costs less than each workload alone")
            return shared
        reason = "the cheaper shared fleets miss the limits in simulation"
        slower = {u: float(np.clip(1 / x, *DERATED)) for u, x in late.items() if x > 1}
        units = [
            Unit(
                machine_index=unit.machine_index,
                requests_per_s=tuple(slower.get(u, 1.0) * x for x in unit.requests_per_s),
                replicas=unit.replicas,
                host_replicas=unit.host_replicas,
            )
            for u, unit in enumerate(units)
        ]
    return _none(alone, reason)


def alone_usd_per_hour(members: Sequence[Member]) -> float:
    """The first choices of all workloads, each on machines of its own, with one team for all; infinite without one."""
    firsts = [m.answer.ranked[0] for m in members if m.answer.ranked]
    if len(firsts) < len(members):
        return math.inf
    plans = [s.planned.plan for s in firsts if s.planned]
    saved = spared_team_usd_by_month(plans)
    saving = sum(
        float(usd @ p.prices.present(np.arange(len(usd)))) / p.prices.annuity
        for p, usd in zip(plans, saved, strict=True)
    )
    return sum(s.usd_per_hour for s in firsts) - saving / HOURS_PER_MONTH


def spared_team_usd_by_month(plans: Sequence[Plan]) -> list[np.ndarray]:
    """What each plan need not pay of its minimum team in month 0 .. horizon, since all plans share one team."""
    months = max((p.prices.months for p in plans), default=0) + 1
    paid, lacking = np.zeros((len(plans), months)), np.zeros((len(plans), months))
    for k, p in enumerate(plans):
        paid[k, : p.prices.months + 1] = p.payments[STAFF]
        lacking[k, : p.prices.months + 1] = p.part_payments.get((TEAM, "running"), 0.0)
    staff = (paid - lacking).sum(axis=0)
    least = np.where(lacking > 0, paid, 0.0).max(axis=0, initial=0.0)  # the largest team that one of them needs
    needed = np.maximum(least - staff, 0.0)
    total = lacking.sum(axis=0)
    share = np.divide(total - needed, total, out=np.zeros(months), where=total > 0)
    return [(lacking[k] * share)[: p.prices.months + 1] for k, p in enumerate(plans)]


def _none(alone: float, reason: str) -> SharedFleet:
    return SharedFleet(
        machines=(), runs=(), usd_per_hour=math.nan, alone_usd_per_hour=alone, proven=False, reason=reason
    )


def fleet_team_usd_per_hour(members: Sequence[Member], fleet: SharedFleet) -> float:
    """What is missing to the minimum team, which all workloads share, USD per hour."""
    options = {r.machine: r.option for r in fleet.runs}
    machines = [(options[machine].offer, count * options[machine].instances) for machine, count in fleet.machines]
    return team_usd_per_hour(members[0].question, machines)


# --- hours ------------------------------------------------------------------------------------------------------


def windows(members: Sequence[Member]) -> list[frozenset[int]]:
    """Hours of the day in which each member may run; a batch gets the quietest window of its deadline's length."""
    quiet = np.zeros(DAY_HOURS)
    for m in members:
        if m.week and math.isfinite(m.alone_usd_per_hour):
            quiet += np.array(m.week).reshape(7, DAY_HOURS).sum(axis=0) * m.alone_usd_per_hour
    return [_window(m, quiet) for m in members]


def _window(member: Member, quiet: np.ndarray) -> frozenset[int]:
    w = member.workload
    if not w.kind.has_deadline or w.deadline_s is None:
        return frozenset(range(DAY_HOURS))
    length = int(w.deadline_s // 3600)
    daily = w.requests_per_s_mean * 86400 >= 0.999 * w.requests_per_s_peak * w.deadline_s
    if not daily or not 0 < length < DAY_HOURS:
        return frozenset(range(DAY_HOURS))
    starts = [(start + 18) % DAY_HOURS for start in range(DAY_HOURS)]  # ties: the first window from 18:00
    best = min(starts, key=lambda s: round(float(sum(quiet[(s + h) % DAY_HOURS] for h in range(length))), 9))
    return frozenset((best + h) % DAY_HOURS for h in range(length))


def periods_of(members: Sequence[Member], hours: Sequence[frozenset[int]]) -> tuple[list[Period], list[int]]:
    """(periods of hours with equal demand, period index of each hour of the week)."""

    def alike(hour: int) -> tuple[object, ...]:
        loads = tuple(round(m.week[hour], 6) if m.week else 1.0 for m in members)
        return loads + tuple(hour % DAY_HOURS in h for h in hours)

    days = [tuple(alike(d * DAY_HOURS + h) for h in range(DAY_HOURS)) for d in range(7)]
    kinds = sorted(set(days), key=days.index)
    keys: list[tuple[int, tuple[object, ...]]] = []
    for d, day in enumerate(kinds):
        keys += [(d, key) for key in dict.fromkeys(day)]
    of_hour = [keys.index((kinds.index(days[h // DAY_HOURS]), alike(h))) for h in range(WEEK_HOURS)]
    periods = []
    for t, (d, key) in enumerate(keys):
        periods.append(
            Period(
                day_index=d,
                duration_s=3600.0 * kinds[d].count(key),
                week_fraction=of_hour.count(t) / WEEK_HOURS,
            )
        )
    return periods, of_hour


def _job(member: Member, hours: frozenset[int], of_hour: Sequence[int], periods: int) -> Job:
    w, first = member.workload, [list(of_hour).index(t) for t in range(periods)]
    if w.kind.has_deadline:
        opened = tuple(float(h % DAY_HOURS in hours) for h in first)
        return Job(name=w.name, requests_per_s=opened, work_requests=w.requests_per_s_mean * 86400)
    loads = [member.week[h] if member.week else 1.0 for h in first]
    return Job(
        name=w.name,
        requests_per_s=tuple(w.requests_per_s_peak * x for x in loads),
        spare_hosts=w.slo.spare_hosts,
    )


# --- machines ---------------------------------------------------------------------------------------------------


def _units_of(members: Sequence[Member]) -> tuple[list[Machine], list[Unit], list[tuple[int, MachineOption]]]:
    """(machines, units, (member index, machine option) of each unit)."""
    own = [_options_of(m, ()) for m in members]
    offers = tuple({o.offer: None for options, _ in own for o in options})
    machines: dict[tuple[object, ...], int] = {}
    kinds: list[Machine] = []
    units: list[Unit] = []
    owners: list[tuple[int, MachineOption]] = []
    for i, m in enumerate(members):
        options, rates = _options_of(m, offers)
        for option, (rate,) in zip(options, rates, strict=True):
            ways = [False] + [True] * (m.workload.kind.released_after_run and option.offer.term in BY_THE_HOUR)
            for hourly in ways:
                o = option.offer
                key = (
                    o.provider,
                    o.instance,
                    o.region,
                    o.accelerator,
                    o.term,
                    o.usd_per_hour,
                    option.instances,
                    hourly,
                )
                if key not in machines:
                    machines[key] = len(kinds)
                    kinds.append(_machine(option, hourly))
                rates_of_all = tuple(rate if j == i else 0.0 for j in range(len(members)))
                units.append(
                    Unit(
                        machine_index=machines[key],
                        requests_per_s=rates_of_all,
                        replicas=option.replicas,
                        host_replicas=option.host_replicas,
                    )
                )
                owners.append((i, option))
    return kinds, units, owners


def _options_of(member: Member, others: Sequence[Offer]) -> tuple[list[MachineOption], list[tuple[float, ...]]]:
    """(machine options, requests/s per machine) of a member: its cheapest ones, and those on allowed `others`."""
    w, table = member.workload, member.answer.table
    if table is None or table.built is None:
        return [], []
    whole = LengthClass(low_tokens=0.0, high_tokens=math.inf, share_fraction=1.0, input_tokens=w.input_tokens)
    mine = set(offers_for(Question(w, member.catalog)))
    allowed = [o for o in others if o in mine]
    seen = {
        s.row_index: (s.lane, w.requests_per_s_peak / (s.replicas - s.spare_replicas))
        for s in member.answer.ranked
        if w.kind.has_arrivals
    }
    return machine_options(
        Question(w, member.catalog), table, [whole], 1.0, kinds=SHARED_KINDS, others=allowed, seen=seen
    )


def _machine(option: MachineOption, hourly: bool) -> Machine:
    o = option.offer
    return Machine(
        name=o.instance or o.provider,
        accelerator=o.accelerator,
        chips=option.instances * o.accelerators,
        usd_per_hour=option.usd_per_hour,
        hourly=hourly,
    )


# --- simulation and result --------------------------------------------------------------------------------------


def _simulated_unit(
    members: Sequence[Member], units: Sequence[Unit], owners: Sequence[tuple[int, MachineOption]], fleet: Fleet, u: int
) -> tuple[Lane, Verified]:
    """(lane, simulation) of one unit in its busiest period."""
    i, option = owners[u]
    w, table = members[i].workload, members[i].answer.table
    assert table is not None and table.built is not None
    busiest = max((x for x in fleet.uses if x.unit_index == u), key=lambda x: x.instances)
    c = option.lane.choice
    replicas = max(math.ceil(busiest.instances * option.replicas - 1e-6), 1)
    design = Design(row=option.row, column=min(option.columns[0], len(CONCURRENCY) - 1), replicas=replicas)
    lane = option.lane if option.ready else Simulations(Question(w, members[i].catalog), table).lane(design)
    each = units[u].requests_per_s[i] / option.replicas  # requests/s of a busy replica
    rate = busiest.requests_per_s / replicas if w.kind.has_arrivals else each
    return lane, verify(w, table.built.times, option.row, lane, rate / c.lanes, REQUESTS)


def _fleet_result(
    machines: Sequence[Machine],
    units: Sequence[Unit],
    owners: Sequence[tuple[int, MachineOption]],
    fleet: Fleet,
    tried: Mapping[int, tuple[Lane, Verified]],
    of_hour: Sequence[int],
    periods: Sequence[Period],
    alone: float,
) -> SharedFleet:
    counts = [float(n) for n in fleet.kept_instances]
    runs = []
    for use in fleet.uses:
        i, option = owners[use.unit_index]
        k = units[use.unit_index].machine_index
        if machines[k].hourly:
            counts[k] += use.instances * periods[use.period_index].week_fraction
        lane, seen = tried[use.unit_index]
        runs.append(
            Assignment(
                member_index=i,
                option=option,
                lane=lane,
                machine=machines[k],
                hours=tuple(h for h, t in enumerate(of_hour) if t == use.period_index),
                requests_per_s=use.requests_per_s,
                instances=use.instances,
                verified=seen,
            )
        )
    kept = [k for k, n in enumerate(counts) if n > 0]
    return SharedFleet(
        machines=tuple((machines[k], counts[k]) for k in kept),
        runs=tuple(sorted(runs, key=lambda r: (r.member_index, r.machine.name, r.hours))),
        usd_per_hour=fleet.usd_per_hour,
        alone_usd_per_hour=alone,
        proven=fleet.proven,
    )
