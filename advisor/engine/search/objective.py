"""Scores candidates under the workload's objective and picks which ones to simulate."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from advisor.engine.network import Model
from advisor.engine.search.declared_scores import SCORE_NAMES, Declared, Score, lacking, weights_of
from advisor.engine.search.simulated import Scored, SimulatedDesign, Simulations
from advisor.engine.search.table import UNSERVABLE_REPLICAS, Array, Table, affordable, estimated_excess, meets
from advisor.engine.step import Lane, is_published, published_conversion
from advisor.engine.terms import Workload, evaluating

SLACK = 1.3  # simulate a candidate if its estimate is within 1.3 times its limits
# slack -> how many (replica size, framework) kinds of a chip to simulate within it; p95 estimates are rough
KINDS_BY_SLACK = {SLACK: 3, 1.0: 2, 0.75: 2}
SAFE = 0.75  # estimates within 0.75 of the limits mostly hold in simulation: try the best of every replica size
EQUAL_FRACTION = 0.01  # objectives within 1 % are equal
NEAR_FRACTION = 0.1  # costs that differ by no more cannot be told apart, unless the draws tell them apart
SAME_SPEED = 1.03  # TPOTs within 3 % tie under `latency`
MAX_RANKED = 10  # accelerators
DRAFT_NAMES = {"draft": "small-model", "eagle": "EAGLE", "medusa": "Medusa", "mtp": "MTP", "ngram": "n-gram"}
UNKNOWN_WATTS = 1e12  # under `energy` and `carbon`: ranks unknown power last, then by price

Progress = Callable[[str, float], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """The lowest feasible value of each figure, which the `balanced` objective divides by."""

    usd_per_hour: float = 1.0
    tpot_s: float = 1.0
    watts: float = 1.0
    unknown_watts: float = 1.0  # value assumed where no power figure is published
    declared: Declared | None = None  # None: scores do not count


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """Inputs of an objective: scalars for one deployment, or arrays of shape (lanes, concurrency)."""

    usd_per_hour: Array
    tpot_p95_s: Array  # for embeddings: the request latency
    watts: Array
    kgco2e_per_kwh: Array
    capacity_requests_per_s: Array
    chips: Array
    lacking: Array | float = 0.0  # weighted shortfall of its scores


def objective(workload: Workload, scale: Scale, f: Figures) -> Array:
    """The objective of each deployment, in the shape of `f`; lower is better and cost breaks ties.

    `balanced` adds the weighted ratios of cost, TPOT and power to their lowest feasible values and the weighted
    shortfall of the scores. Unknown power counts as the median chip's and adds to the risk.
    """
    tie = 1e-9 * f.usd_per_hour
    known = np.isfinite(f.watts)
    watts = np.where(known, f.watts, UNKNOWN_WATTS)
    grid = np.where(np.isfinite(f.kgco2e_per_kwh), f.kgco2e_per_kwh, 1.0)
    if workload.objective == "latency":
        # within SAME_SPEED the cheaper one wins
        return np.asarray(np.floor(np.log(np.maximum(f.tpot_p95_s, 1e-9)) / math.log(SAME_SPEED)) + tie)
    if workload.objective == "throughput":
        return np.asarray(-f.capacity_requests_per_s / f.chips + tie)
    if workload.objective in ("energy", "carbon"):
        return np.asarray(watts * (grid if workload.objective == "carbon" else 1.0) * (1.0 + tie))
    if workload.objective == "balanced":
        w = weights_of(workload)
        cost, speed = f.usd_per_hour / scale.usd_per_hour, f.tpot_p95_s / scale.tpot_s
        drawn = np.where(known, f.watts, scale.unknown_watts) / scale.watts
        counted = ((w["cost"], cost), (w["latency"], speed), (w["energy"], drawn))
        # an infinite figure counts only where its weight is not zero
        return np.asarray(sum(weight * figure for weight, figure in counted if weight) + f.lacking + tie)
    if workload.objective == "simplicity":
        return np.asarray(f.chips + 1e-6 * f.usd_per_hour * (1 + 1e-3 * f.tpot_p95_s))
    # designs on one purchased host cost the same: the faster one wins
    return np.asarray(f.usd_per_hour * (1 + 1e-6 * f.tpot_p95_s))


def declared_scores_of(workload: Workload, scale: Scale) -> Declared | None:
    """The declared scores if the objective is `balanced`, else None."""
    return scale.declared if workload.objective == "balanced" else None


def scale_of(workload: Workload, table: Table, declared: Declared | None = None) -> Scale:
    """The lowest estimated figures among the candidates within every limit."""
    ok = meets(workload, table)
    if not ok.any():
        return Scale(declared=declared)
    least_watts, middle_watts = power_scale(table, ok)
    return Scale(
        usd_per_hour=float(table.usd_per_hour[ok].min()),
        tpot_s=float(workload.kind.tail_latency_s(table)[ok].min()),
        watts=least_watts,
        unknown_watts=middle_watts,
        declared=declared,
    )


def power_scale(table: Table, ok: Array) -> tuple[float, float]:
    """(lowest feasible power, median over chips of each one's lowest), W; (1, 1) if no power is known."""
    each = np.where(ok & np.isfinite(table.watts), table.watts, np.inf).min(axis=1)
    least = {slug: float(each[own].min()) for slug, own in rows_by_chip(table).items()}
    known = sorted(watts for watts in least.values() if math.isfinite(watts))
    return (known[0], float(np.median(known))) if known else (1.0, 1.0)


def table_scores(workload: Workload, table: Table, scale: Scale) -> Array:
    """The objective of every candidate from its estimates, shape (lanes, concurrency)."""
    replicas = table.total_replicas
    known = declared_scores_of(workload, scale)
    figures = Figures(
        usd_per_hour=table.usd_per_hour,
        tpot_p95_s=workload.kind.tail_latency_s(table),
        watts=table.watts,
        kgco2e_per_kwh=table.kgco2e_per_kwh,
        capacity_requests_per_s=table.capacity_requests_per_s * replicas,
        chips=table.chips * replicas,
        lacking=known.table_lacking(table.lanes, table.offer) if known else 0.0,
    )
    return objective(workload, scale, figures)


def final_score(workload: Workload, s: Scored, scale: Scale) -> float:
    """The objective of a simulated deployment; lower is better."""
    known = declared_scores_of(workload, scale)
    figures = Figures(
        usd_per_hour=np.array(s.economic_usd_per_hour),
        tpot_p95_s=np.array(workload.kind.tail_latency_s(s.verified)),
        watts=np.array(s.watts),
        kgco2e_per_kwh=np.array(s.offer.kgco2e_per_kwh or math.nan),
        capacity_requests_per_s=np.array(s.capacity_requests_per_s),
        chips=np.array(float(s.chips)),
        lacking=known.lacking(s.lane, s.offer) if known else 0.0,
    )
    return float(objective(workload, scale, figures))


def ordered(workload: Workload, options: Sequence[Scored], scale: Scale, model: Model) -> list[Scored]:
    """Best first by the objective. Equal within 1 %: the likeliest to meet the SLO first, then the simplest."""
    scores = {id(s): final_score(workload, s, scale) for s in options}
    left = sorted(options, key=lambda s: (_last_if_unknown(scores[id(s)]), s.economic_usd_per_hour, s.row_index))
    found: list[Scored] = []
    while left:
        most = equal_up_to(workload, scores[id(left[0])])
        group = [s for s in left if s is left[0] or scores[id(s)] <= most]
        found += sorted(group, key=lambda s: (-round(s.slo_probability or 0.0, 2), simplicity(s, model)))
        left = left[len(group) :]
    return found


def _last_if_unknown(score: float) -> float:
    return math.inf if math.isnan(score) else score


def equal_up_to(workload: Workload, score: float) -> float:
    """The highest score that counts as equal to this one, which is the best; unknown power ranks by price."""
    if not abs(score) < UNKNOWN_WATTS / 1e3:
        return score
    return score + equal_fraction(workload) * abs(score)


def equal_fraction(workload: Workload) -> float:
    """Scores that differ by no more are equal; `latency` and `simplicity` have steps of their own, then the cost."""
    return 0.0 if workload.objective in ("latency", "simplicity") else EQUAL_FRACTION


def simplicity(s: Scored, model: Model) -> tuple[float, ...]:
    """Sort key, simplest first: no drafts or separate pools, the published checkpoint, few parallel axes, few chips."""
    c = s.lane.choice
    special = (s.lane.draft is not None) + (s.pools is not None)
    conversion = 1 if published_conversion(model, c.quantization) else 2
    converted = 0 if is_published(model, c.quantization) else conversion
    return special, converted, sum(n > 1 for n in (c.tp, c.pp, c.ep, c.dp)), s.chips, s.replicas


def rows_by_chip(table: Table) -> dict[str, Array]:
    """Row indices of the table by accelerator slug."""
    rows: dict[str, list[int]] = defaultdict(list)
    for i, w in enumerate(table.lanes):
        rows[w.choice.accelerator.slug].append(i)
    return {slug: np.array(own) for slug, own in rows.items()}


def designs(workload: Workload, table: Table, own: Array, score: Array) -> list[tuple[int, int]]:
    """(row, column) of one chip's candidates to simulate, best estimate first.

    These are the best of each kind within each slack, plus the fastest (lowest TTFT x TPOT). The fastest is expensive
    and rarely reached. It does not depend on the limits, so relaxing them to what it achieved selects it again.
    Candidates with drafts are chosen apart, so that an optimistic estimate of a draft hides no other candidate.
    """
    drafted = np.array([table.lanes[i].draft is not None for i in own], dtype=bool)
    cells = {
        cell for rows in (own[~drafted], own[drafted]) if len(rows) for cell in _cells(workload, table, rows, score)
    }
    return sorted(cells, key=lambda cell: (float(score[cell]), cell))


def _cells(workload: Workload, table: Table, own: Array, score: Array) -> set[tuple[int, int]]:
    excess, pay = estimated_excess(workload, table)[own], affordable(workload, table)[own]
    pay &= table.replicas[own] < UNSERVABLE_REPLICAS
    cells: set[tuple[int, int]] = set()
    for slack, kinds in KINDS_BY_SLACK.items():
        cells |= set(best_of_kinds(table, own, score[own], pay & (excess <= slack), kinds))
    cells |= set(best_of_kinds(table, own, score[own], pay & (excess <= SAFE), len(own), by_size=True))
    quickness = np.where(np.isfinite(excess), table.ttft_p95_s[own] * table.tpot_p95_s[own], np.inf)
    return cells | set(best_of_kinds(table, own, quickness, pay & np.isfinite(quickness), 1))


def best_of_kinds(
    table: Table, own: Array, score: Array, allowed: Array, kinds: int, by_size: bool = False
) -> Iterator[tuple[int, int]]:
    """The best candidate of each of the first `kinds` kinds; with `by_size` a kind is a replica size alone."""
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
    """The outcome of simulating one chip's designs."""

    best: Scored | None  # meets every limit; None: no design does
    nearest: SimulatedDesign | None  # the design that misses by the least


def best_of_chip(
    workload: Workload, simulations: Simulations, own: Array, score: Array, scale: Scale, few: bool = False
) -> ChipResult:
    """The best design that meets all limits in simulation; stops when no remaining estimate is better.

    If none does, the nearest is simulated in full, because a short pilot may have missed by chance. `few`: only the
    best estimate within SLACK of the limits and the two best that are SAFE, else the last (the fastest).
    """
    passing: list[Scored] = []
    nearest: SimulatedDesign | None = None
    least = math.inf
    from_cell: dict[int, tuple[int, int]] = {}
    cells = designs(workload, simulations.table, own, score)
    if few:
        excess = estimated_excess(workload, simulations.table)
        near = [cell for cell in cells if excess[cell] <= SLACK][:1]
        cells = [*near, *[cell for cell in cells if excess[cell] <= SAFE and cell not in near][:2]] or cells[-1:]
    for row, column in cells:
        if passing and float(score[row, column]) >= max(equal_up_to(workload, least), least):
            break
        if nearest is not None and not simulations.catalog.effort.allows("more designs of some accelerators"):
            break
        with evaluating(simulations.table.lanes[row].choice.accelerator.slug):
            trial = simulations.fewest_replicas(workload, row, column)
            passing += _passing(workload, simulations, trial)
            from_cell |= {id(s): (row, column) for s in passing[-1:] if id(s) not in from_cell}
        if nearest is None or trial.excess_fraction < nearest.excess_fraction:
            nearest = trial
        least = min((final_score(workload, s, scale) for s in passing), default=math.inf)
    if not passing and nearest is not None and nearest.pilot:
        nearest = simulations.run_in_full(workload, nearest.design)
        passing = _passing(workload, simulations, nearest)
    best = ordered(workload, passing, scale, simulations.catalog.model)[0] if passing else None
    if best is not None and id(best) in from_cell and not few:
        best = _with_more_seats(workload, simulations, scale, best, *from_cell[id(best)])
    return ChipResult(best=best, nearest=nearest)


def _with_more_seats(
    workload: Workload, simulations: Simulations, scale: Scale, best: Scored, row: int, column: int
) -> Scored:
    """The design, or that of the next larger batches where they need fewer machines and the simulation passes."""
    planned = simulations.table.replicas[row]
    for larger in range(column + 1, len(planned)):
        fewer = planned[larger] < planned[column] and simulations.catalog.effort.allows("larger batches")
        found = _passing(workload, simulations, simulations.fewest_replicas(workload, row, larger)) if fewer else []
        if not found or final_score(workload, found[0], scale) >= final_score(workload, best, scale):
            break
        best, column = found[0], larger
    return best


def _passing(workload: Workload, simulations: Simulations, trial: SimulatedDesign) -> list[Scored]:
    """The simulated design as a deployment if it meets all limits, else nothing."""
    scored = simulations.scored(workload, trial) if trial.excess_fraction <= 1 else None
    return [scored] if scored is not None and scored.meets_slo else []


def describe(lane: Lane) -> str:
    """Weight format, parallel sizes, framework and draft of a lane, as text."""
    c, draft = lane.choice, lane.draft
    sizes = [f"TP{c.tp}"] + [f"{k}{n}" for k, n in (("PP", c.pp), ("EP", c.ep), ("DP", c.dp)) if n > 1]
    drafts = ""
    if draft:
        many = "token" if draft.tokens == 1 else "tokens"
        drafts = f", {DRAFT_NAMES.get(draft.method, draft.method)}, {draft.tokens} draft {many}"
    return f"{c.quantization.name}, {' '.join(sizes)}, {lane.framework.name} {lane.framework.version}{drafts}"


def best_estimate(score: Array, allowed: Array, own: Array) -> float:
    """The lowest score among a chip's allowed candidates; infinite if there is none."""
    return float(np.min(np.where(allowed[own], score[own], np.inf)))


# --- hosted APIs, on the same scale --------------------------------------------------------------------------------


UNKNOWN = Score(low_fraction=0.0, high_fraction=1.0, facts=())
NOT_PUBLISHED = {  # objective -> the figure that it needs and that no API publishes
    "throughput": "throughput per chip",
    "energy": "power",
    "carbon": "power",
}


def missing_figure(workload: Workload, tpot_s: float | None) -> str | None:
    """The figure that the objective needs and that this API does not publish; None: it can be ranked."""
    if workload.objective == "latency" and tpot_s is None:
        return "speed"
    return NOT_PUBLISHED.get(workload.objective)


def hosted_score(workload: Workload, scale: Scale, usd_per_hour: float, tpot_s: float | None) -> float:
    """The objective at this bill (USD per hour) and time per output token (s; None: unknown); lower is better.

    Under `balanced` an unknown speed counts as that of the slowest request allowed, or twice the fastest deployment;
    power counts as the median chip's, the declared scores as half, and the risk of missing facts is full.
    """
    limit = workload.slo.tpot_p95_s
    tpot = tpot_s if tpot_s is not None else (limit or 2.0 * scale.tpot_s)
    figures = Figures(
        usd_per_hour=np.array(usd_per_hour),
        tpot_p95_s=np.array(tpot),
        watts=np.array(math.nan),
        kgco2e_per_kwh=np.array(math.nan),
        capacity_requests_per_s=np.array(math.nan),
        chips=np.array(math.nan),
        lacking=lacking(workload, dict.fromkeys(SCORE_NAMES, UNKNOWN), 1.0),
    )
    return float(objective(workload, scale, figures))
