"""Whole machines for several jobs at the least cost: a small MILP, solved by HiGHS.

A job is a stream of requests with a rate in each period of the week, or an amount of work to be done within some of
them. A unit is a machine set up for some of the jobs; it turns from one job to another within a period, so that the
shares of its time that they take add up. Units of several jobs may stand in one machine, each on chips of its own.
What is kept is paid around the clock, what is rented by the hour while it runs. Rates at the service level come from
the caller, who also simulates what comes out.
"""

import ctypes
import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from advisor.engine.cost import hour_usd

TIME_LIMIT_S = 5.0
NEVER = 0.0  # requests/s of a unit that cannot do a job
SAME_FRACTION = 1e-6  # plans this close in cost are the same
_STDOUT = threading.Lock()


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """What is bought or rented whole: one or more instances of an offer."""

    name: str
    accelerator: str
    chips: int  # of the inventory that one takes
    usd_per_hour: float
    hourly: bool = False  # paid while it runs; may only do work that waits


@dataclass(frozen=True, kw_only=True, slots=True)
class Unit:
    """A machine set up in one way, with what it then serves of each job alone, headroom included."""

    machine_index: int
    requests_per_s: tuple[float, ...]
    replicas: int = 1  # that one machine holds


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """A stream with a rate in each period; or so many requests a day of each kind, in the periods that are open."""

    name: str
    requests_per_s: tuple[float, ...]  # by period; of work: 1 where it may run, else 0
    work_requests: float = 0.0  # a day; 0: a stream
    spare_replicas: int = 0  # idle beside those that carry it, on each unit that it uses


@dataclass(frozen=True, kw_only=True, slots=True)
class Period:
    """Hours of one kind of day that are alike."""

    day_index: int  # of its kind of day
    duration_s: float  # in each such day
    week_fraction: float  # of all hours, over all days of the kind


ALWAYS = (Period(day_index=0, duration_s=86400.0, week_fraction=1.0),)


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What there is: chips of a kind (absent: any number), chips in all, dollars an hour."""

    inventory_chips: Mapping[str, int] = field(default_factory=dict)
    max_chips: int | None = None
    max_usd_per_hour: float | None = None
    kind_usd_per_hour: float = 0.0  # that one more kind of unit must save at least; no part of the plan's cost


@dataclass(frozen=True, kw_only=True, slots=True)
class Use:
    """What one unit does of one job in one period."""

    unit_index: int
    job_index: int
    period_index: int
    requests_per_s: float  # mean over the period
    instances: float  # machines that this takes; of work a mean over the period


@dataclass(frozen=True, kw_only=True, slots=True)
class Fleet:
    """The cheapest plan that was found; `proven`: none is cheaper."""

    kept_instances: tuple[int, ...]  # machines of each kind, paid around the clock
    uses: tuple[Use, ...]
    usd_per_hour: float  # mean over the week
    proven: bool


@dataclass(slots=True)
class _Model:
    """Rows of a linear program while it is written."""

    columns: int
    rows: list[dict[int, float]] = field(default_factory=list)
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)

    def row(self, cells: Mapping[int, float], low: float, high: float) -> None:
        """One row, scaled so that its largest coefficient is 1."""
        most = max((abs(v) for v in cells.values()), default=0.0) or 1.0
        self.rows.append({c: v / most for c, v in cells.items() if v})
        self.low.append(low / most)
        self.high.append(high / most)

    def constraint(self) -> tuple[Any, list[float], list[float]]:
        """A sparse matrix with the bounds of its rows."""
        from scipy.sparse import coo_array

        triples = [(value, r, c) for r, cells in enumerate(self.rows) for c, value in cells.items()]
        values, rows, columns = zip(*triples, strict=True)
        matrix = coo_array((values, (rows, columns)), shape=(len(self.rows), self.columns))
        return matrix.tocsc(), self.low, self.high


@dataclass(frozen=True, slots=True)
class _Columns:
    """Where each variable stands: machines kept, replicas of a unit in a period, rates, and whether a unit is used."""

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
    """The cheapest whole machines that do all jobs within the limits; None: there are none (or none was found)."""
    if not units:
        return None
    from scipy.optimize import milp  # here: it takes a third of a second, and most questions need no solver

    at = _Columns(len(machines), len(units), len(jobs), len(periods))
    model = _Model(at.total)
    _write(model, at, machines, units, jobs, limits, periods)
    cost = _cost(at, machines, units, periods)
    if limits.max_usd_per_hour is not None:
        model.row(dict(enumerate(cost)), -np.inf, limits.max_usd_per_hour)
    kinds = np.zeros(at.total)
    kinds[at.used(0) :] = limits.kind_usd_per_hour
    with _quiet():
        solution = milp(
            cost + kinds,
            constraints=[model.constraint()],
            integrality=_whole(at, machines, units),
            bounds=_bounds(at, machines, units, jobs, periods, limits),
            options={"time_limit": time_limit_s, "mip_rel_gap": SAME_FRACTION},
        )
    if solution.x is None:
        return None
    return _fleet(at, solution.x, float(cost @ solution.x), solution.status == 0, machines, units, jobs, periods)


@contextmanager
def _quiet() -> Iterator[None]:
    """HiGHS of scipy 1.17 prints lines of its own to the standard output, where an answer in JSON may be going."""
    with _STDOUT:
        sys.stdout.flush()
        libc, kept, sink = ctypes.CDLL(None), os.dup(1), os.open(os.devnull, os.O_WRONLY)
        libc.fflush(None)
        os.dup2(sink, 1)
        try:
            yield
        finally:
            libc.fflush(None)
            os.dup2(kept, 1)
            os.close(kept)
            os.close(sink)


def _write(
    model: _Model,
    at: _Columns,
    machines: Sequence[Machine],
    units: Sequence[Unit],
    jobs: Sequence[Job],
    limits: Limits,
    periods: Sequence[Period],
) -> None:
    """Every constraint."""
    for t in range(len(periods)):
        for u, unit in enumerate(units):
            busy = _busy(at, u, unit, jobs, t)
            spares = float(max((jobs[j].spare_replicas for j in _able(unit)), default=0))
            model.row(busy | {at.running(u, t): -1.0, at.used(u): spares}, -np.inf, 0.0)
        for k, machine in enumerate(machines):
            if not machine.hourly:
                mine = {
                    at.running(u, t): 1.0 / unit.replicas for u, unit in enumerate(units) if unit.machine_index == k
                }
                model.row(mine | {at.kept(k): -1.0}, -np.inf, 0.0)
        _within(model, at, machines, units, limits, t)
    for j, job in enumerate(jobs):
        _done(model, at, units, j, job, periods)
    for u, unit in enumerate(units):
        if limits.kind_usd_per_hour or any(jobs[j].spare_replicas for j in _able(unit)):
            most = _most(unit, machines[unit.machine_index], jobs, periods, limits)
            for t in range(len(periods)):
                model.row(_busy(at, u, unit, jobs, t) | {at.used(u): -most}, -np.inf, 0.0)


def _busy(at: _Columns, u: int, unit: Unit, jobs: Sequence[Job], t: int) -> dict[int, float]:
    """Replicas of a unit that its jobs keep busy in a period, by the column of each rate."""
    return {at.rate(u, j, t): _demand(jobs[j], t) * unit.replicas / unit.requests_per_s[j] for j in _able(unit)}


def _demand(job: Job, period: int) -> float:
    """Requests/s that a rate of 1 stands for: those of a stream in this period, or of work spread over its day."""
    return job.work_requests / 86400.0 if job.work_requests else job.requests_per_s[period]


def _able(unit: Unit) -> Iterator[int]:
    return (j for j, rate in enumerate(unit.requests_per_s) if rate > NEVER)


def _done(model: _Model, at: _Columns, units: Sequence[Unit], j: int, job: Job, periods: Sequence[Period]) -> None:
    """A stream is served in each period; work is done on each kind of day."""
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


def _within(
    model: _Model, at: _Columns, machines: Sequence[Machine], units: Sequence[Unit], limits: Limits, t: int
) -> None:
    """Chips of each kind, and in all, at any time."""
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
    """USD per hour of each variable, mean over the week."""
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


def _whole(at: _Columns, machines: Sequence[Machine], units: Sequence[Unit]) -> np.ndarray:
    """Machines and what stands in them are whole; what is rented by the hour runs for a part of a period."""
    whole = np.zeros(at.total)
    whole[: len(machines)] = 1
    for u, unit in enumerate(units):
        whole[at.used(u)] = 1
        if not machines[unit.machine_index].hourly:
            whole[at.running(u, 0) : at.running(u, 0) + at.periods] = 1
    return whole


def _affordable(machine: Machine, limits: Limits) -> float:
    """Machines of this kind that all the money would buy."""
    if limits.max_usd_per_hour is None or machine.hourly or machine.usd_per_hour <= 0:
        return np.inf
    return float(np.floor(limits.max_usd_per_hour / machine.usd_per_hour + SAME_FRACTION))


def _most(unit: Unit, machine: Machine, jobs: Sequence[Job], periods: Sequence[Period], limits: Limits) -> float:
    """Replicas of this unit that could at most be busy: with all that it can do at once, or with all the money."""
    shortest_s = min(p.duration_s for p in periods)
    peak = (
        jobs[j].work_requests / shortest_s if jobs[j].work_requests else max(jobs[j].requests_per_s)
        for j in _able(unit)
    )
    needed = sum(rate / unit.requests_per_s[j] for j, rate in zip(_able(unit), peak, strict=True)) + 1.0
    return unit.replicas * min(needed, _affordable(machine, limits))


def _bounds(
    at: _Columns,
    machines: Sequence[Machine],
    units: Sequence[Unit],
    jobs: Sequence[Job],
    periods: Sequence[Period],
    limits: Limits,
) -> tuple[np.ndarray, np.ndarray]:
    """Nothing is negative; a unit that cannot do a job does not, and what is hourly serves nobody who waits."""
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
    """The plan in words of its parts; whole numbers come back with a rounding of the solver."""
    uses = []
    for u, unit in enumerate(units):
        for j in _able(unit):
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
