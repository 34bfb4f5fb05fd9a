"""The cheapest whole machines for several jobs: a small mixed-integer linear program (MILP), solved by HiGHS.

A job is a request stream with a rate in each period of the week, or an amount of work to finish within some periods.
A unit is a machine configured for some of the jobs; within a period it can switch between them, so their shares of its
time add up. Units of several jobs can share a machine, each on its own chips. Kept machines are paid around the clock,
hourly machines while they run. The caller provides the rates at the service level and simulates the result.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy

from advisor.engine.cost import hour_usd
from advisor.engine.plans import milp

TIME_LIMIT_S = 5.0
NEVER = 0.0  # requests/s of a unit that cannot do a job
MIP_GAP_FRACTION = 1e-6  # relative cost tolerance


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """The smallest purchase or rental: one or more instances of an offer."""

    name: str
    accelerator: str
    chips: int  # counted against the inventory
    usd_per_hour: float
    hourly: bool = False  # paid while it runs; only for deferrable work


@dataclass(frozen=True, kw_only=True, slots=True)
class Unit:
    """A machine configuration, with the rate at which it serves each job alone, headroom included."""

    machine_index: int
    requests_per_s: tuple[float, ...]
    replicas: int = 1  # per machine
    host_replicas: int = 1  # that stop with one host


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """A request stream with a rate in each period, or a number of requests per day to finish in the open periods."""

    name: str
    requests_per_s: tuple[float, ...]  # by period; for work: 1 in open periods, else 0
    work_requests: float = 0.0  # per day; 0: a stream
    spare_hosts: int = 0  # that each kind of unit it uses may lose


@dataclass(frozen=True, kw_only=True, slots=True)
class Period:
    """Hours with equal demand, within one kind of day."""

    day_index: int  # index of the kind of day
    duration_s: float  # per day
    week_fraction: float  # of the week, over all days of this kind


ALWAYS = (Period(day_index=0, duration_s=86400.0, week_fraction=1.0),)


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Limits on chips per accelerator (missing: no limit), total chips and cost."""

    inventory_chips: Mapping[str, int] = field(default_factory=dict)
    max_chips: int | None = None
    max_usd_per_hour: float | None = None
    kind_usd_per_hour: float = 0.0  # minimum saving of each additional unit; not part of the plan's cost


@dataclass(frozen=True, kw_only=True, slots=True)
class Use:
    """The work of one unit for one job in one period."""

    unit_index: int
    job_index: int
    period_index: int
    requests_per_s: float  # mean over the period
    instances: float  # machines needed; for work a mean over the period


@dataclass(frozen=True, kw_only=True, slots=True)
class Fleet:
    """The cheapest plan found; `proven` means that it is optimal."""

    kept_instances: tuple[int, ...]  # machines of each kind that are paid around the clock
    uses: tuple[Use, ...]
    usd_per_hour: float  # mean over the week
    proven: bool


@dataclass(slots=True)
class _Model:
    """Constraint rows of a linear program under construction."""

    columns: int
    rows: list[dict[int, float]] = field(default_factory=list)
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)

    def row(self, cells: Mapping[int, float], low: float, high: float) -> None:
        """Add one row, scaled so that its largest coefficient is 1."""
        most = max((abs(v) for v in cells.values()), default=0.0) or 1.0
        self.rows.append({c: v / most for c, v in cells.items() if v})
        self.low.append(low / most)
        self.high.append(high / most)

    def constraint(self) -> tuple[Any, list[float], list[float]]:
        """(sparse matrix, lower bounds, upper bounds) of all rows."""
        triples = [(value, r, c) for r, cells in enumerate(self.rows) for c, value in cells.items()]
        values, rows, columns = zip(*triples, strict=True)
        matrix = scipy.sparse.coo_array((values, (rows, columns)), shape=(len(self.rows), self.columns))
        return matrix.tocsc(), self.low, self.high


@dataclass(frozen=True, slots=True)
class _Columns:
    """Column index of each variable: kept machines, running replicas, rates, and whether a unit is used."""

    machines: int
    units: int
    jobs: int
    periods: int

    def kept(self, machine: int) -> int:
        return machine

    def running(self, unit: int, period: int) -> int:
        return self.machines + unit * self.periods + period

    def rate(self, unit: int, job: int, period: int) -> int:
        return self.machines + self.units * self.periods + (unit * self.jobs + job) * self.periods + period

    def used(self, unit: int) -> int:
        return self.machines + self.units * self.periods * (1 + self.jobs) + unit

    @property
    def total(self) -> int:
        return self.used(self.units)


def cheapest(
    machines: Sequence[Machine],
    units: Sequence[Unit],
    jobs: Sequence[Job],
    limits: Limits = Limits(),  # noqa: B008 (frozen)
    periods: Sequence[Period] = ALWAYS,
    time_limit_s: float = TIME_LIMIT_S,
) -> Fleet | None:
    """The cheapest whole machines for all jobs within the limits; None if infeasible or not found in time."""
    if not units:
        return None
    at = _Columns(len(machines), len(units), len(jobs), len(periods))
    model = _Model(at.total)
    _add_constraints(model, at, machines, units, jobs, limits, periods)
    cost = _cost(at, machines, units, periods)
    if limits.max_usd_per_hour is not None:
        model.row(dict(enumerate(cost)), -np.inf, limits.max_usd_per_hour)
    kinds = np.zeros(at.total)
    kinds[at.used(0) :] = limits.kind_usd_per_hour
    solution = milp(
        cost + kinds,
        constraints=[model.constraint()],
        integrality=_integrality(at, machines, units),
        bounds=_bounds(at, machines, units, jobs, periods, limits),
        options={"time_limit": time_limit_s, "mip_rel_gap": MIP_GAP_FRACTION},
    )
    if solution.x is None:
        return None
    return _fleet(at, solution.x, float(cost @ solution.x), solution.status == 0, machines, units, jobs, periods)


def _add_constraints(
    model: _Model,
    at: _Columns,
    machines: Sequence[Machine],
    units: Sequence[Unit],
    jobs: Sequence[Job],
    limits: Limits,
    periods: Sequence[Period],
) -> None:
    """Add every constraint."""
    for t in range(len(periods)):
        for u, unit in enumerate(units):
            busy = _busy(at, u, unit, jobs, t)
            spares = float(max((jobs[j].spare_hosts for j in _jobs_of(unit)), default=0)) * unit.host_replicas
            model.row(busy | {at.running(u, t): -1.0, at.used(u): spares}, -np.inf, 0.0)
        for k, machine in enumerate(machines):
            if not machine.hourly:
                mine = {
                    at.running(u, t): 1.0 / unit.replicas for u, unit in enumerate(units) if unit.machine_index == k
                }
                model.row(mine | {at.kept(k): -1.0}, -np.inf, 0.0)
        _add_chip_limits(model, at, machines, units, limits, t)
    for j, job in enumerate(jobs):
        _add_demand(model, at, units, j, job, periods)
    for u, unit in enumerate(units):
        if limits.kind_usd_per_hour or any(jobs[j].spare_hosts for j in _jobs_of(unit)):
            most = _max_busy_replicas(unit, machines[unit.machine_index], jobs, periods, limits)
            for t in range(len(periods)):
                model.row(_busy(at, u, unit, jobs, t) | {at.used(u): -most}, -np.inf, 0.0)


def _busy(at: _Columns, u: int, unit: Unit, jobs: Sequence[Job], t: int) -> dict[int, float]:
    """Busy replicas of a unit in a period, as coefficients by rate column."""
    return {at.rate(u, j, t): _demand(jobs[j], t) * unit.replicas / unit.requests_per_s[j] for j in _jobs_of(unit)}


def _demand(job: Job, period: int) -> float:
    """Requests/s at a rate variable of 1: the stream's rate in this period, or the work spread over a day."""
    return job.work_requests / 86400.0 if job.work_requests else job.requests_per_s[period]


def _jobs_of(unit: Unit) -> Iterator[int]:
    return (j for j, rate in enumerate(unit.requests_per_s) if rate > NEVER)


def _add_demand(
    model: _Model, at: _Columns, units: Sequence[Unit], j: int, job: Job, periods: Sequence[Period]
) -> None:
    """Require that a stream is served in each period and work is finished on each kind of day."""
    able = [u for u, unit in enumerate(units) if unit.requests_per_s[j] > NEVER]
    if not job.work_requests:
        for t, rate in enumerate(job.requests_per_s):
            if rate > 0:
                model.row({at.rate(u, j, t): 1.0 for u in able}, 1.0, 1.0)
        return
    for day in sorted({p.day_index for p in periods}):
        open_ = [t for t, p in enumerate(periods) if p.day_index == day and job.requests_per_s[t]]
        cells = {at.rate(u, j, t): periods[t].duration_s / 86400.0 for u in able for t in open_}
        model.row(cells, 1.0, np.inf)


def _add_chip_limits(
    model: _Model, at: _Columns, machines: Sequence[Machine], units: Sequence[Unit], limits: Limits, t: int
) -> None:
    """Limit the chips of each accelerator and in total, in one period."""
    taken = {at.kept(k): float(m.chips) for k, m in enumerate(machines) if not m.hourly}
    taken |= {
        at.running(u, t): machines[unit.machine_index].chips / unit.replicas
        for u, unit in enumerate(units)
        if machines[unit.machine_index].hourly
    }
    owner = {at.kept(k): m.accelerator for k, m in enumerate(machines)}
    owner |= {at.running(u, t): machines[unit.machine_index].accelerator for u, unit in enumerate(units)}
    for slug, most in sorted(limits.inventory_chips.items()):
        model.row({c: float(n) for c, n in taken.items() if owner[c] == slug}, -np.inf, float(most))
    if limits.max_chips is not None:
        model.row({c: float(n) for c, n in taken.items()}, -np.inf, float(limits.max_chips))


def _cost(at: _Columns, machines: Sequence[Machine], units: Sequence[Unit], periods: Sequence[Period]) -> np.ndarray:
    """Cost coefficient of each variable, USD per hour averaged over the week."""
    cost = np.zeros(at.total)
    for k, machine in enumerate(machines):
        cost[at.kept(k)] = machine.usd_per_hour
    for u, unit in enumerate(units):
        if machines[unit.machine_index].hourly:
            for t, period in enumerate(periods):
                cost[at.running(u, t)] = hour_usd(
                    machines[unit.machine_index].usd_per_hour, 1 / unit.replicas, 1.0, period.week_fraction
                )
    return cost


def _integrality(at: _Columns, machines: Sequence[Machine], units: Sequence[Unit]) -> np.ndarray:
    """Integrality (1: integer) of each variable; hourly machines may run for part of a period."""
    whole = np.zeros(at.total)
    whole[: len(machines)] = 1
    for u, unit in enumerate(units):
        whole[at.used(u)] = 1
        if not machines[unit.machine_index].hourly:
            whole[at.running(u, 0) : at.running(u, 0) + at.periods] = 1
    return whole


def _affordable(machine: Machine, limits: Limits) -> float:
    """Maximum machines of this kind within the whole budget."""
    if limits.max_usd_per_hour is None or machine.hourly or machine.usd_per_hour <= 0:
        return np.inf
    return float(np.floor(limits.max_usd_per_hour / machine.usd_per_hour + MIP_GAP_FRACTION))


def _max_busy_replicas(
    unit: Unit, machine: Machine, jobs: Sequence[Job], periods: Sequence[Period], limits: Limits
) -> float:
    """Upper bound on busy replicas of this unit, from demand and budget."""
    shortest_s = min(p.duration_s for p in periods)
    peak = (
        jobs[j].work_requests / shortest_s if jobs[j].work_requests else max(jobs[j].requests_per_s)
        for j in _jobs_of(unit)
    )
    needed = sum(rate / unit.requests_per_s[j] for j, rate in zip(_jobs_of(unit), peak, strict=True)) + 1.0
    return unit.replicas * min(needed, _affordable(machine, limits))


def _bounds(
    at: _Columns,
    machines: Sequence[Machine],
    units: Sequence[Unit],
    jobs: Sequence[Job],
    periods: Sequence[Period],
    limits: Limits,
) -> tuple[np.ndarray, np.ndarray]:
    """(lower, upper) bounds: a unit serves only jobs it can do, and hourly machines only deferrable work."""
    high = np.full(at.total, np.inf)
    high[at.used(0) :] = 1.0
    high[: len(machines)] = [_affordable(m, limits) for m in machines]
    for u, unit in enumerate(units):
        hourly = machines[unit.machine_index].hourly
        for j, job in enumerate(jobs):
            for t in range(len(periods)):
                shut = job.work_requests and not job.requests_per_s[t]
                if unit.requests_per_s[j] <= NEVER or shut or (hourly and not job.work_requests):
                    high[at.rate(u, j, t)] = 0.0
    return np.zeros(at.total), high


def _fleet(
    at: _Columns,
    x: np.ndarray,
    usd_per_hour: float,
    proven: bool,
    machines: Sequence[Machine],
    units: Sequence[Unit],
    jobs: Sequence[Job],
    periods: Sequence[Period],
) -> Fleet:
    """The plan from the solver's variables; integers are rounded."""
    uses = []
    for u, unit in enumerate(units):
        for j in _jobs_of(unit):
            for t in range(len(periods)):
                rate = float(x[at.rate(u, j, t)]) * _demand(jobs[j], t)
                if rate > 1e-9 * unit.requests_per_s[j]:
                    use = Use(
                        unit_index=u,
                        job_index=j,
                        period_index=t,
                        requests_per_s=rate,
                        instances=rate / unit.requests_per_s[j],
                    )
                    uses.append(use)
    kept = tuple(round(float(v)) for v in x[: len(machines)])
    return Fleet(kept_instances=kept, uses=tuple(uses), usd_per_hour=usd_per_hour, proven=proven)
