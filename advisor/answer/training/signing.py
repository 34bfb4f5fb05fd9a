"""What to do about the first run: a deadline cannot be undone, so it needs a higher probability."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from advisor.answer.choice import BUDGET_QUANTILE, Candidate, arrange
from advisor.answer.training.certainty import drawn
from advisor.answer.training.question import Question
from advisor.engine.training_search import CostDraws, Found, search
from advisor.inputs import rounded
from advisor.result import Answer, Gate, TrainingOption
from advisor.workload import confidences_of

Progress = Callable[[str, float], None]


def in_time_surely(q: Question, progress: Progress | None) -> Question:
    """The question with runs that end in time with the probability that a deadline needs, if there are any.

    The search is repeated for a deadline that is as much shorter as the first run's slow draws are longer.
    """
    sure, limit = needed(q), q.task.deadline_days
    if limit is None or not q.found.ranked:
        return q
    first, draws = q.found.ranked[0], drawn(q, q.found.ranked[0])
    if _in_time(draws, first.delivery_days, limit) >= sure:
        return q
    slow = float(np.quantile(draws.days, sure, method="higher")) / first.days
    tighter = first.delivery_days + (limit - first.delivery_days) / slow
    hurried = replace(q.workload, training=replace(q.task, deadline_days=tighter))
    found = search(replace(q, workload=hurried), q.reliability, progress)
    if not found.ranked:
        return q
    best = found.ranked[0]
    if _in_time(drawn(q, best), best.delivery_days, limit) < sure:
        return q
    return replace(q, found=_with_reasons(found, q.found))


def needed(q: Question) -> float:
    """The least probability of ending in time."""
    return confidences_of(q.spec.get("slo") or {})[1] or 0.0


def _in_time(draws: CostDraws, delivery_days: float, limit: float) -> float:
    return float((draws.days + delivery_days <= limit).mean())


def _with_reasons(found: Found, asked: Found) -> Found:
    """The search with the reasons that were found for the deadline as it was asked."""
    known = {r.accelerator: r for r in asked.rejections}
    return replace(found, rejections=tuple(known.get(r.accelerator, r) for r in found.rejections))


def signed(q: Question, answer: Answer, options: Sequence[TrainingOption], draws: Sequence[CostDraws]) -> Answer:
    """The answer with what to do about its first run."""
    decision = answer.decision
    if decision is None or not options:
        return answer
    sure = needed(q)
    candidates = [
        Candidate(
            usd=d.usd_total,
            probability=r.deadline_probability,
            commits=True,
            keeps=r.provider == "owned",
            sold_out=bool(r.sold_out_on),
            seller=(r.accelerator, r.provider, r.acquisition),
        )
        for r, d in zip(options, draws, strict=True)
    ]
    arranged, first = arrange(candidates, sure, sure), options[0]
    fails = 0 in arranged.fails
    tied = [] if fails or q.workload.objective != "cost" or 0 not in (arranged.order[0], *arranged.tied) else [
        k + 1 for k in (arranged.order[0], *arranged.tied) if k and candidates[k].seller != candidates[0].seller
    ]  # fmt: skip
    ratio = draws[0].usd_total / float(draws[0].usd_total.mean()) if draws[0].usd_total.mean() else np.ones(1)
    expected = first.usd_per_month * float(draws[0].usd_total.mean()) / (q.found.ranked[0].usd_total or 1.0)
    action = "do_not_sign" if fails else "keep" if candidates[0].keeps else "no_clear_winner" if tied else "sign"
    return answer.changed(
        decision=decision.changed(
            action=action,
            gate=_gate(q, first) if fails else None,
            expected_usd_per_month=rounded(expected),
            budget_usd_per_month=rounded(expected * float(np.quantile(ratio, BUDGET_QUANTILE))),
            tied_ranks=tied,
            tie_breaker=decision.settle.said if tied and decision.settle else "",
        )
    )


def _gate(q: Question, first: TrainingOption) -> Gate:
    """The measurement that decides whether the first run ends in time."""
    limit, run = q.task.deadline_days or 0.0, q.found.ranked[0]
    at_most = run.step_s * max(limit - run.delivery_days, 0.0) / run.days
    said = (
        f"It ends within {limit:g} days with {first.deadline_probability or 0.0:.0%} probability, which is too little "
        f"to sign. Train for an hour on one machine: sign if a step takes at most {at_most:.3g} s."
    )
    return Gate(
        metric="step time",
        value=rounded(at_most),
        unit="s",
        better_than_value=first.label,
        worse_than_value="a later deadline or more accelerators",
        test=f"Measure the step time of {first.label}",
        test_usd=None,
        worth_usd_per_month=0.0,
        worth_usd=0.0,
        sign_today="",
        said=said,
    )
