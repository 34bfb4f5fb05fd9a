"""Which candidates are simulated, in what order, and which of them win under the planner's objective."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from advisor.engine.search.declared_scores import Declared, weights_of
from advisor.engine.search.simulated import Scored, SimulatedDesign, Simulations
from advisor.engine.search.table import UNSERVABLE_REPLICAS, Array, Table, affordable, estimated_excess, meets
from advisor.engine.spec import Workload
from advisor.engine.step import EMBEDDING, Lane

SLACK = 1.3  # an estimate this far beyond a limit is still worth a simulation
# a chip's designs are its best within each slack, of so many kinds (chips of a replica, framework): estimates of a
# p95 are rough
KINDS_BY_SLACK = {SLACK: 3, 1.0: 2, 0.75: 2}
SAFE = 0.75  # an estimate this far within its limits mostly holds: the best of every size of replica is tried last
SAME_SPEED = 1.03  # TPOTs this close are a tie under `latency`
MAX_RANKED = 10  # accelerators that are ranked
UNKNOWN_WATTS = 1e12  # under `energy` and `carbon`: behind every published power, by price among themselves

Progress = Callable[[str, float], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """The least of each figure among the feasible candidates: what `balanced` measures against."""

    usd_per_hour: float = 1.0
    tpot_s: float = 1.0
    watts: float = 1.0
    unknown_watts: float = 1.0  # what a power that nobody publishes counts as
    declared: Declared | None = None  # ecosystem, team, lead time, lock-in and risk; None: nothing is compared


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """What an objective looks at, of one deployment or of a table of them."""

    usd_per_hour: Array
    tpot_p95_s: Array  # of an embedding: its latency
    watts: Array
    kgco2e_per_kwh: Array
    capacity_requests_per_s: Array
    chips: Array
    lacking: Array | float = 0.0  # of its scores, weighted


def objective(workload: Workload, scale: Scale, f: Figures) -> Array:
    """Lower is better; cost breaks ties.

    Balanced: cost, TPOT and power against the least there is, and what the scores lack, each by its weight. An unknown
    power counts as the middle chip's there, and widens the risk.
    """
    tie = 1e-9 * f.usd_per_hour
    known = np.isfinite(f.watts)
    watts = np.where(known, f.watts, UNKNOWN_WATTS)
    grid = np.where(np.isfinite(f.kgco2e_per_kwh), f.kgco2e_per_kwh, 1.0)
    if workload.objective == "latency":
        # within SAME_SPEED nobody notices: then the cheaper one
        return np.asarray(np.floor(np.log(np.maximum(f.tpot_p95_s, 1e-9)) / math.log(SAME_SPEED)) + tie)
    if workload.objective == "throughput":
        return np.asarray(-f.capacity_requests_per_s / f.chips + tie)
    if workload.objective in ("energy", "carbon"):
        return np.asarray(watts * (grid if workload.objective == "carbon" else 1.0) * (1.0 + tie))
    if workload.objective == "balanced":
        w = weights_of(workload)
        cost, speed = f.usd_per_hour / scale.usd_per_hour, f.tpot_p95_s / scale.tpot_s
        drawn = np.where(known, f.watts, scale.unknown_watts) / scale.watts
        figures = w["cost"] * cost + w["latency"] * speed + w["energy"] * drawn
        return np.asarray(figures + f.lacking + tie)
    if workload.objective == "simplicity":
        return np.asarray(f.chips + 1e-6 * f.usd_per_hour * (1 + 1e-3 * f.tpot_p95_s))
    # designs on one bought host cost the same: the quicker one, then the one with room
    return np.asarray(f.usd_per_hour * (1 + 1e-6 * f.tpot_p95_s))


def declared_scores_of(workload: Workload, scale: Scale) -> Declared | None:
    """The scores, where the objective asks for them."""
    return scale.declared if workload.objective == "balanced" else None


def scale_of(workload: Workload, table: Table, declared: Declared | None = None) -> Scale:
    ok = meets(workload, table)
    if not ok.any():
        return Scale(declared=declared)
    least_watts, middle_watts = power_scale(table, ok)
    return Scale(
        usd_per_hour=float(table.usd_per_hour[ok].min()),
        tpot_s=float((table.ttft_p95_s if workload.kind == EMBEDDING else table.tpot_p95_s)[ok].min()),
        watts=least_watts,
        unknown_watts=middle_watts,
        declared=declared,
    )


def power_scale(table: Table, ok: Array) -> tuple[float, float]:
    """(the least power of feasible candidates, that of the middle chip at its own least), W; 1 and 1: none known."""
    each = np.where(ok & np.isfinite(table.watts), table.watts, np.inf).min(axis=1)
    least = {slug: float(each[own].min()) for slug, own in rows_by_chip(table).items()}
    known = sorted(watts for watts in least.values() if math.isfinite(watts))
    return (known[0], float(np.median(known))) if known else (1.0, 1.0)


def table_scores(workload: Workload, table: Table, scale: Scale) -> Array:
    """The objective of every candidate by its estimates."""
    replicas = table.replicas + workload.slo.spares(table.replicas)
    known = declared_scores_of(workload, scale)
    figures = Figures(
        usd_per_hour=table.usd_per_hour,
        tpot_p95_s=table.ttft_p95_s if workload.kind == EMBEDDING else table.tpot_p95_s,
        watts=table.watts,
        kgco2e_per_kwh=table.kgco2e_per_kwh,
        capacity_requests_per_s=table.capacity_requests_per_s * replicas,
        chips=table.chips * replicas,
        lacking=known.table_lacking(table.lanes, table.offer) if known else 0.0,
    )
    return objective(workload, scale, figures)


def final_score(workload: Workload, s: Scored, scale: Scale) -> float:
    """The objective of a simulated deployment."""
    known = declared_scores_of(workload, scale)
    figures = Figures(
        usd_per_hour=np.array(s.usd_per_hour),
        tpot_p95_s=np.array(s.verified.ttft_p95_s if workload.kind == EMBEDDING else s.verified.tpot_p95_s),
        watts=np.array(s.watts),
        kgco2e_per_kwh=np.array(s.offer.kgco2e_per_kwh or math.nan),
        capacity_requests_per_s=np.array(s.capacity_requests_per_s),
        chips=np.array(float(s.chips)),
        lacking=known.lacking(s.lane, s.offer) if known else 0.0,
    )
    return float(objective(workload, scale, figures))


def rows_by_chip(table: Table) -> dict[str, Array]:
    rows: dict[str, list[int]] = defaultdict(list)
    for i, w in enumerate(table.lanes):
        rows[w.choice.accelerator.slug].append(i)
    return {slug: np.array(own) for slug, own in rows.items()}


def designs(workload: Workload, table: Table, own: Array, score: Array) -> list[tuple[int, int]]:
    """Candidates of one chip worth a simulation, best first: of each kind the best within each slack, and the quickest.

    The quickest (least TTFT x TPOT) is dear and seldom reached; it is the last word on what the chip can do, and as
    it does not depend on the limits, asking again with the limits that it reached comes to it again.
    """
    excess, pay = estimated_excess(workload, table)[own], affordable(workload, table)[own]
    pay &= table.replicas[own] < UNSERVABLE_REPLICAS
    cells: set[tuple[int, int]] = set()
    for slack, kinds in KINDS_BY_SLACK.items():
        cells |= set(_best_of_kinds(table, own, score[own], pay & (excess <= slack), kinds))
    cells |= set(_best_of_kinds(table, own, score[own], pay & (excess <= SAFE), len(own), by_size=True))
    quickness = np.where(np.isfinite(excess), table.ttft_p95_s[own] * table.tpot_p95_s[own], np.inf)
    cells |= set(_best_of_kinds(table, own, quickness, pay & np.isfinite(quickness), 1))
    return sorted(cells, key=lambda cell: (float(score[cell]), cell))


def _best_of_kinds(
    table: Table, own: Array, score: Array, allowed: Array, kinds: int, by_size: bool = False
) -> Iterator[tuple[int, int]]:
    """The best of so many kinds; of each size of replica, whatever the framework, when `by_size`."""
    i, j = np.nonzero(allowed)
    seen: set[tuple[float, str]] = set()
    for k in np.argsort(score[i, j], kind="stable"):
        row, column = int(own[i[k]]), int(j[k])
        kind = (float(table.chips[row, 0]), "" if by_size else table.lanes[row].framework.slug)
        if kind not in seen:
            seen.add(kind)
            yield row, column
            if len(seen) >= kinds:
                return


@dataclass(frozen=True, kw_only=True, slots=True)
class ChipResult:
    """What the simulation left of one chip's designs."""

    best: Scored | None  # meets every limit
    nearest: SimulatedDesign | None  # else: the design that misses by least


def best_of_chip(workload: Workload, simulations: Simulations, own: Array, score: Array, scale: Scale) -> ChipResult:
    """The best design that holds in simulation; later ones are tried only while their estimate promises more.

    Where none holds, the nearest is simulated in full: a pilot of few requests may have been unlucky.
    """
    best: Scored | None = None
    nearest: SimulatedDesign | None = None
    for row, column in designs(workload, simulations.table, own, score):
        if best is not None and float(score[row, column]) >= final_score(workload, best, scale):
            break
        trial = simulations.fewest_replicas(workload, row, column)
        if nearest is None or trial.excess_fraction < nearest.excess_fraction:
            nearest = trial
        best = _better(workload, simulations, trial, best, scale)
    if best is None and nearest is not None and nearest.pilot:
        nearest = simulations.run_in_full(workload, nearest.design)
        best = _better(workload, simulations, nearest, best, scale)
    return ChipResult(best=best, nearest=nearest)


def _better(
    workload: Workload, simulations: Simulations, trial: SimulatedDesign, best: Scored | None, scale: Scale
) -> Scored | None:
    """The trial, if it holds all limits and beats the best so far."""
    if trial.excess_fraction > 1:
        return best
    scored = simulations.scored(workload, trial)
    if not scored.meets_slo:
        return best
    if best is None or final_score(workload, scored, scale) < final_score(workload, best, scale):
        return scored
    return best


def describe(lane: Lane) -> str:
    c = lane.choice
    sizes = [f"TP{c.tp}"] + [f"{k}{n}" for k, n in (("PP", c.pp), ("EP", c.ep), ("DP", c.dp)) if n > 1]
    return f"{c.quantization.name}, {' '.join(sizes)}, {lane.framework.name} {lane.framework.version}"


def best_estimate(score: Array, allowed: Array, own: Array) -> float:
    """The best that a chip's estimates promise; infinite: nothing."""
    return float(np.min(np.where(allowed[own], score[own], np.inf)))
