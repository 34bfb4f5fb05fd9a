"""Speculative decoding when fewer drafts are accepted than published: simulated latency, and the size it would take."""

import math
from dataclasses import dataclass, replace

from advisor.engine.scheduler import REQUESTS, Verified
from advisor.engine.search.candidates import CONCURRENCY, Question
from advisor.engine.search.limits import has_limits
from advisor.engine.search.simulated import Design, Scored, Simulations, excess
from advisor.engine.search.table import evaluate
from advisor.engine.step import Draft

DROP_FRACTION = 0.2  # the drop in acceptance that is shown
STEPS = 64  # acceptance rates from zero to the published one, among which the break point is found
MORE_REPLICAS = (1.0, 1.25, 1.5, 2.0)  # sizes tried at the lower acceptance, times the planned one


@dataclass(frozen=True, kw_only=True, slots=True)
class DraftRisk:
    """What depends on the acceptance rate of one deployment with drafts."""

    lower: Draft  # at the lower acceptance
    lower_verified: Verified  # at the planned size
    lower_meets_slo: bool
    lower_scored: Scored | None  # the size that meets the limits then; None: none up to twice the planned one
    break_even: Draft | None  # with the lowest acceptance that meets the limits; None: no limits, or none does
    without: Verified  # without drafts, at the planned size
    without_meets_slo: bool


def draft_risk(question: Question, s: Scored) -> DraftRisk | None:
    """The effect of a lower acceptance on a deployment with drafts; None for one without."""
    draft = s.lane.draft
    if draft is None or s.pools is not None:
        return None
    drafts = [draft.scaled(k / STEPS) for k in range(STEPS + 1)]
    lower = draft.scaled(1 - DROP_FRACTION)
    lanes = [replace(s.lane, draft=d) for d in (*drafts, lower, None)]
    alone = replace(question.catalog, offers=(s.offer,))
    question = replace(question, catalog=alone)
    simulations = Simulations(question, evaluate(question, lanes))
    carrying = s.replicas - s.spare_replicas
    column = planned_column(simulations, s, STEPS)

    def seen(row: int, replicas: int = carrying) -> Verified:
        return simulations.run(Design(row=row, column=column, replicas=replicas), REQUESTS)

    def holds(row: int, replicas: int = carrying) -> bool:
        return excess(question.workload, seen(row, replicas)) <= 1

    lower_row, plain_row = STEPS + 1, STEPS + 2
    larger = None
    for replicas in dict.fromkeys(math.ceil(carrying * more) for more in MORE_REPLICAS):
        if holds(lower_row, replicas):
            design = Design(row=lower_row, column=column, replicas=replicas)
            larger = simulations.scored(question.workload, simulations.run_in_full(question.workload, design))
            break
    limited = has_limits(question.workload) and holds(STEPS)
    least, most = -1, STEPS
    while most - least > 1 and limited:
        middle = (least + most) // 2
        least, most = (least, middle) if holds(middle) else (middle, most)
    return DraftRisk(
        lower=lower,
        lower_verified=seen(lower_row),
        lower_meets_slo=holds(lower_row),
        lower_scored=larger,
        break_even=drafts[most] if limited else None,
        without=seen(plain_row),
        without_meets_slo=holds(plain_row),
    )


def planned_column(simulations: Simulations, s: Scored, row: int) -> int:
    """The column of the table that plans as many concurrent requests, and keeps as many conversations, as `s`."""
    for column in range(len(CONCURRENCY)):
        design = Design(row=row, column=column, replicas=s.replicas - s.spare_replicas)
        alike = simulations.lane(design).max_running_requests == s.lane.max_running_requests
        if alike and math.isclose(simulations.kept_fraction(design), s.kept_fraction, rel_tol=1e-6):
            return column
    return len(CONCURRENCY) - 1
