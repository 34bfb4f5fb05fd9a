"""From a training question and a snapshot of the catalog to the answer."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from advisor.answer import money as bill
from advisor.answer import ranking
from advisor.answer.internal_errors import Lost, answered
from advisor.answer.options.calibration_marks import calibrations_used
from advisor.answer.question import Question as Asked
from advisor.answer.question_notes import not_used
from advisor.answer.training.certainty import drawn, scenarios, uncertainty, with_chances
from advisor.answer.training.money import money_said
from advisor.answer.training.option import option
from advisor.answer.training.question import Question
from advisor.answer.training.sensitivity import sensitivity
from advisor.answer.training.sentences import count, plain, verdict
from advisor.answer.training.settling import settled
from advisor.answer.training.signing import in_time_surely, signed
from advisor.engine.fleet import TrainingMember
from advisor.engine.network import active_parameters, parameters
from advisor.engine.terms import evaluating, usd_text
from advisor.engine.training import counted_flops, optimal_allocation
from advisor.engine.training_search import Candidate, CostDraws, deadline_days, search
from advisor.fidelity import nearest_training
from advisor.inputs import (
    COSTS,
    TRAINING_ASSUMPTIONS,
    Snapshot,
    catalog_of,
    figure_of,
    reliability_of,
    rounded,
    training_workload,
)
from advisor.result import (
    Answer,
    Candidates,
    Currency,
    NotUsed,
    Source,
    TokenBudget,
    TrainingOption,
    Views,
)
from advisor.result import Catalog as CatalogVersion

Json = dict[str, Any]
Progress = Callable[[str, float], None]
COST = "cost"
BUDGET_ROUNDS = 12  # searches at most until the first choice costs the budget
BUDGET_TOLERANCE = 1e-2  # of the budget, which the first choice may cost less
UNUSED_FRACTION = 0.95  # of the budget: if the choice costs less, the answer says why


def recommend(spec: Json, snapshot: Snapshot, progress: Progress | None = None) -> Answer:
    """The ranked runs of a training or fine-tuning question."""
    return member(spec, snapshot, progress)[0]


def member(spec: Json, snapshot: Snapshot, progress: Progress | None) -> tuple[Answer, TrainingMember]:
    """The answer, and what a portfolio needs to know of the run."""
    return answered(lambda lost: _attempt(spec, snapshot, progress, lost))


def _attempt(spec: Json, snapshot: Snapshot, progress: Progress | None, lost: Lost) -> tuple[Answer, TrainingMember]:
    q = question(spec, snapshot, progress, lost)
    budget = None
    if spec[spec["kind"]].get("budget_usd"):
        q, budget = within_budget(q, progress, lost)
    found = TrainingMember(workload=q.workload, reliability=q.reliability, found=q.found)
    return lost.told(answer_of(q, budget, lost)), found


def one_option(q: Question, c: Candidate, rank: int, draws: CostDraws) -> TrainingOption:
    with evaluating(c.trained.accelerator.slug):
        return option(q, c, rank, draws)


def answer_of(q: Question, budget: TokenBudget | None, lost: Lost) -> Answer:
    spec, snapshot = q.spec, q.snapshot
    draws = [drawn(q, c) for c in q.found.ranked]
    options = [one_option(q, c, rank, d) for rank, (c, d) in enumerate(zip(q.found.ranked, draws, strict=True), 1)]
    options = with_evidence(q, with_chances(q, options, draws))
    marks = calibrations_used(snapshot, (c.trained.accelerator.slug for c in q.found.ranked))
    answer = Answer(
        workload=spec,
        engine_version=snapshot.engine_version,
        catalog=CatalogVersion(version=snapshot.catalog_version, prices_as_of=snapshot.prices_as_of),
        elapsed_s=None,
        candidates=Candidates(
            evaluated=q.found.evaluated,
            pruned=max(q.found.evaluated - q.found.planned, 0),
            feasible=sum(len(some) for some in q.found.by_chip.values()),
        ),
        verdict=verdict(q, list(q.found.ranked), options[0] if options else None)
        + (f" {budget.said}" if budget else "")
        + (money_said(q.found.ranked[0], options[0].money, options[0].usd_per_run) if options else ""),
        recommendations=[*options],
        views=Views(**{view: place + 1 for view, place in q.found.views.items()}),
        rejected=[ranking.rejection(r) for r in q.found.rejections],
        sensitivity=lost.section("sensitivity", lambda: sensitivity(q, options[0].mfu or 0.0) if options else [], []),
        assumptions=bill.assumptions(q),
        sources=sources(q),
        uncertainty=lost.section("uncertainty", lambda: uncertainty(q, options, draws), None),
        scenarios=lost.section("scenarios", lambda: scenarios(q, options), []),
        not_used=[*not_used(spec, COSTS | set(TRAINING_ASSUMPTIONS)), *objective_of_budget(q)],
        currency=Currency(**snapshot.currency) if snapshot.currency else None,
        token_budget=budget,
        calibrations=marks,
        calibration_ids=[m.id for m in marks],
    )
    answer = answer.changed(decision=answer.decide(lost.section("settle", lambda: settled(q, options), None)))
    return signed(q, answer, options, draws)


def with_evidence(q: Question, options: Sequence[TrainingOption]) -> list[TrainingOption]:
    """The options with the measured runs that are most similar to each."""
    model, hf_id = q.catalog.model, q.snapshot.model["hf_id"]
    sizes = float(parameters(model)), float(active_parameters(model))
    return [r.changed(evidence=nearest_training.evidence(r, hf_id, sizes)) for r in options]


def question(
    spec: Json, snapshot: Snapshot, progress: Progress | None, lost: Lost, tokens: float | None = None
) -> Question:
    """The search of one question; tokens: of a budget."""
    section = spec[spec["kind"]]
    if tokens is None and section.get("budget_usd"):
        tokens = 1e9
    workload, catalog = training_workload(spec, tokens), lost.without(catalog_of(spec, snapshot))
    if section.get("budget_usd"):
        workload = replace(workload, objective=COST)
    asked = Asked(workload, catalog, spec=spec, snapshot=snapshot)
    reliability = reliability_of(spec, snapshot)
    found = search(asked, reliability, progress)
    q = Question(workload, catalog, spec=spec, snapshot=snapshot, reliability=reliability, found=found)
    return in_time_surely(q, progress)


# --- a budget in place of tokens --------------------------------------------------------------------------------


def within_budget(q: Question, progress: Progress | None, lost: Lost) -> tuple[Question, TokenBudget | None]:
    """The question with the most tokens that its first choice trains for the budget, and the compute-optimal model."""
    usd, tokens = float(q.spec[q.section]["budget_usd"]), q.task.tokens
    kept, most = None, math.inf
    for _ in range(BUDGET_ROUNDS):
        paid = q.found.ranked[0].usd_per_run if q.found.ranked else math.inf
        if paid > usd:
            most = tokens
        elif kept is None or tokens > kept.task.tokens:
            kept = q
        if (1.0 - BUDGET_TOLERANCE) * usd <= paid <= usd:
            break
        tokens = next_tokens(tokens, usd / paid, kept.task.tokens if kept else 0.0, most)
        q = question(q.spec, q.snapshot, progress, lost, tokens)
    return (kept, token_budget(kept, usd)) if kept else (q, None)


def objective_of_budget(q: Question) -> list[NotUsed]:
    """A budget is spent on the most tokens, which the cheapest run trains."""
    asked, field = q.spec["objective"], f"{q.section}.budget_usd"
    if not q.spec[q.section].get("budget_usd") or asked == COST:
        return []
    said = f"{field} asks for the most tokens, so runs are ranked by cost; give tokens to rank them by {asked}"
    return [NotUsed(field="objective", value=asked, instead=said)]


def next_tokens(tokens: float, ratio: float, least: float, most: float) -> float:
    """The tokens to try next: in proportion to the cost, and between what is too few and what is too many.

    A deadline asks for more accelerators, which cost more, and some number of tokens has no run in time.
    """
    better = tokens * ratio * (1.0 - BUDGET_TOLERANCE / 2.0)
    if least < better < most:
        return better
    return math.sqrt(least * most) if least else most / 4.0


def token_budget(q: Question, usd: float) -> TokenBudget:
    """The tokens of a budget beside those of the compute-optimal model."""
    tokens, paid = q.task.tokens, q.found.ranked[0].usd_per_run
    unused = (
        f" It costs {usd_text(paid)}: more tokens take longer than {deadline_days(q.workload):g} days."
        if paid < UNUSED_FRACTION * usd
        else ""
    )
    size = parameters(q.catalog.model)
    flops = counted_flops(q.catalog.model, tokens, q.task.sequence_tokens)
    best = optimal_allocation(flops, figure_of(q.spec, q.snapshot, "training-tokens-per-parameter"))
    limits = (
        "outside the models and token counts that the rule was fitted to" if best.extrapolated else "inside its range"
    )
    return TokenBudget(
        budget_usd=usd,
        tokens=rounded(tokens),
        tokens_per_parameter=rounded(tokens / size),
        optimal_parameters=rounded(best.parameters),
        optimal_tokens=rounded(best.tokens),
        extrapolated=best.extrapolated,
        said=(
            f"A budget of {usd_text(usd)} trains this model on {count(tokens)} tokens, {plain(tokens / size)} per "
            f"parameter.{unused} The compute-optimal model for the same FLOPs has {count(best.parameters)} parameters "
            f"and {count(best.tokens)} tokens (Hoffmann et al. 2022; {limits}); a model that serves many tokens is "
            "better smaller and trained for longer."
        ),
    )


# --- sources ----------------------------------------------------------------------------------------------------------


def sources(q: Question) -> list[Source]:
    """Where the figures of the options come from."""
    by_slug = {row["slug"]: row for row in q.snapshot.accelerators}
    made, seen = [], set()
    for c in q.found.ranked:
        slug = c.trained.accelerator.slug
        if slug not in seen:
            seen.add(slug)
            made += [Source(what=f"{slug}: {group}", **entry) for group, entry in by_slug[slug]["sources"].items()]
        made.append(
            Source(
                what=f"price of {c.offer.instance} at {c.offer.provider}", source=c.offer.source, as_of=c.offer.as_of
            )
        )
    made += [Source(what=f"model: {k}", **v) for k, v in q.snapshot.model.get("sources", {}).items()]
    return made
