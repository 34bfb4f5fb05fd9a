"""Finalists with another step budget: the most tokens that an engine computes in one step.

Every candidate has the budget that its framework sets on the chip. A smaller one makes the steps with prompts shorter,
which helps tight limits on TPOT beside long prompts; a larger one reads the weights less often. Another budget is kept
only where it costs less at no smaller probability of meeting the limits, and less than the default does when its batch
sizes are searched as closely.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.engine.search.candidates import CONCURRENCY, Question, states_budget
from advisor.engine.search.objective import EQUAL_FRACTION, Scale, final_score
from advisor.engine.search.simulated import Design, Scored, SimulatedDesign, Simulations, instances_of
from advisor.engine.search.table import evaluate, joined
from advisor.engine.step import Lane
from advisor.engine.terms import Workload

# Up to the largest default of any framework (vLLM and SGLang on chips of 160 GiB and more)
BUDGETS = (512, 1024, 2048, 4096, 8192, 16384)
LARGER = 2  # larger numbers of running requests to try than the finalist's
COLUMNS = range(len(CONCURRENCY))


@dataclass(frozen=True, kw_only=True, slots=True)
class Budgeted:
    """Simulations with rows for other budgets at the end of the table, and the row that each was made from."""

    simulations: Simulations
    made_from: dict[int, int]


def with_step_budgets(
    workload: Workload, simulations: Simulations, finalists: Sequence[Scored], scale: Scale
) -> tuple[list[Scored], Simulations]:
    """The finalists, each with another budget where that costs less; then the simulations have rows for it too."""
    tries = workload.variants == "adopt" and workload.constraints.max_batched_tokens is None
    budgeted = with_rows(simulations, finalists) if tries else None
    if budgeted is None:
        return list(finalists), simulations
    found = [cheaper(workload, budgeted, s, scale) for s in finalists]
    added = any(s.row_index in budgeted.made_from for s in found)
    return found, budgeted.simulations if added else simulations


def with_rows(simulations: Simulations, finalists: Sequence[Scored]) -> Budgeted | None:
    """The table with one row for each other budget of a finalist; None if there is none or none fits in memory."""
    question, table = Question(simulations.workload, simulations.catalog), simulations.table
    rows = {id(table.lanes[s.row_index].choice): s.row_index for s in finalists if s.pools is None}
    lanes = [lane for row in rows.values() for lane in other_budgets(table.lanes[row])]
    more = evaluate(question, lanes) if lanes else None
    if more is None or more.built is None:
        return None
    made_from = {len(table.lanes) + k: rows[id(lane.choice)] for k, lane in enumerate(more.lanes)}
    plain = [int(table.plain_row[row]) if table.lanes[row].draft else new for new, row in made_from.items()]
    both = simulations.with_offers(joined(table, more, np.array(plain, dtype=int)))
    both.rentals = simulations.rentals
    return Budgeted(simulations=both, made_from=made_from)


def other_budgets(lane: Lane) -> Iterator[Lane]:
    """The lane with each other budget that its command can state; none where a prompt is one step.

    None with attention data parallelism either: SGLang 0.5.23 divides the stated budget among the ranks
    (sglang/srt/arg_groups/parallel_hook.py), and the other engines were not read.
    """
    if lane.whole_prompts or not states_budget(lane.framework) or lane.choice.dp > 1:
        return
    for tokens in BUDGETS:
        if tokens != lane.max_batched_tokens:
            yield replace(lane, max_batched_tokens=tokens)


def cheaper(workload: Workload, budgeted: Budgeted, s: Scored, scale: Scale) -> Scored:
    """The finalist, or what costs less at its own probability of meeting the limits, with its budget or another."""
    rows = [row for row, own in budgeted.made_from.items() if own == s.row_index]
    if not rows:
        return s
    own = cheapest_of(workload, budgeted.simulations, [s.row_index], s, scale)  # so that no budget gets its savings
    best = cheapest_of(workload, budgeted.simulations, rows, own, scale)
    return own if best is own else replace(best, chips_at_default_budget=own.chips)


def cheapest_of(workload: Workload, simulations: Simulations, rows: Sequence[int], s: Scored, scale: Scale) -> Scored:
    """The deployment, or the cheapest design of these rows with fewer machines and no smaller margin."""
    asked, best = at_no_smaller_margin(workload, s), s
    for row, column in cells(simulations, rows, s):
        if not simulations.catalog.effort.allows("other step budgets"):
            break
        trial = fewest_below(asked, simulations, row, column, most_that_saves(workload, best))
        if trial is not None:
            found = simulations.scored(asked, trial)
            if found.meets_slo and costs_less(workload, found, best, scale):
                best = found
    return best


def at_no_smaller_margin(workload: Workload, s: Scored) -> Workload:
    """The question at the probability of meeting the limits that the deployment has, if it is known."""
    if s.slo_probability is None:
        return workload
    confidence = max(workload.slo.confidence or 0.0, s.slo_probability)
    return replace(workload, slo=replace(workload.slo, confidence=confidence))


def costs_less(workload: Workload, other: Scored, s: Scored, scale: Scale) -> bool:
    """Whether it costs less by more than what counts as equal, and is better under the objective."""
    less = other.economic_usd_per_hour < s.economic_usd_per_hour * (1 - EQUAL_FRACTION)
    return less and final_score(workload, other, scale) < final_score(workload, s, scale)


def cells(simulations: Simulations, rows: Sequence[int], s: Scored) -> list[tuple[int, int]]:
    """(row, column) of the designs to try: the running requests of the finalist, and the next larger numbers.

    Those that need the fewest replicas for the load come first.
    """
    found = []
    for row in rows:
        caps = [simulations.lane(Design(row=row, column=k, replicas=1)).max_running_requests for k in COLUMNS]
        own = next((k for k, cap in enumerate(caps) if cap >= s.lane.max_running_requests), len(caps) - 1)
        starting = [k for k in range(own, min(own + LARGER + 1, len(caps))) if starts(simulations, row, caps[k])]
        found += [(row, k) for k in starting]
    return sorted(found, key=lambda cell: (float(simulations.table.replicas[cell]), cell))


def starts(simulations: Simulations, row: int, running: int) -> bool:
    """Whether a step can hold a token of every running request, with its draft, as engines require."""
    lane = simulations.table.lanes[row]
    return running * (1 + (lane.draft.tokens if lane.draft else 0)) <= lane.max_batched_tokens


def most_that_saves(workload: Workload, s: Scored) -> int:
    """The most replicas, without spares, that need fewer instances than the deployment; 0: none."""
    fewer = np.arange(1, s.replicas - s.spare_replicas)
    saves = fewer[np.broadcast_to(instances_of(workload, s, s.offer, fewer) < s.instances, fewer.shape)]
    return int(saves[-1]) if len(saves) else 0


def fewest_below(
    workload: Workload, simulations: Simulations, row: int, column: int, most: int
) -> SimulatedDesign | None:
    """The candidate with the fewest replicas that meet the limits, from those that carry the load to `most`."""
    failing, best = int(simulations.table.replicas[row, column]) - 1, None
    tried = most
    while failing < tried:
        trial = simulations.pilot_then_full(workload, Design(row=row, column=column, replicas=tried))
        if trial.excess_fraction <= 1:
            best = trial
        elif best is None:
            return None
        else:
            failing = tried
        tried = (failing + best.design.replicas) // 2
    return best
