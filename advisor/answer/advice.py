"""From a workload and a snapshot of the catalog to the answer: runs the engine and assembles the sections."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from advisor.answer import money as bill
from advisor.answer import ranking, training
from advisor.answer.choice import Choice, availability_reasons, chosen, rule_at, signed
from advisor.answer.hosted import hosted
from advisor.answer.internal_errors import Lost, answered
from advisor.answer.mix import mix
from advisor.answer.one_ranking import moved_owned, ranked_together
from advisor.answer.one_ranking import verdict as together_verdict
from advisor.answer.options import demand
from advisor.answer.options.calibration_marks import calibrations_used
from advisor.answer.options.card_sharing import adapters, sharing
from advisor.answer.options.option import near_miss, option, solid_choice
from advisor.answer.options.pools import separate_pools
from advisor.answer.owned import owned, owned_sentence, team_of
from advisor.answer.pareto import pareto
from advisor.answer.portfolios import decided, nothing_to_serve, portfolio_answer, with_training
from advisor.answer.question import Question
from advisor.answer.question_notes import no_limits, not_used
from advisor.answer.scale_to_zero import found
from advisor.answer.sentences import verdict
from advisor.engine.fleet import Member, TrainingMember, find_mix, merged_copies
from advisor.engine.search import MORE_CHIPS, Chosen, Scored, SearchResult, choose, prepare_question, search
from advisor.engine.terms import Effort, Workload, evaluating, kind_named
from advisor.inputs import COLD_START, COSTS, EGRESS, STORAGE, Snapshot, arrival_cv_key, catalog_of, workload_of
from advisor.result import Answer, Candidates, Currency, NearMiss, Option, Scenario, Source, Views
from advisor.result import Catalog as CatalogVersion
from advisor.workload import PORTFOLIO

Json = dict[str, Any]
Progress = Callable[[str, float], None]
Part = Any  # (Answer, Member, CostModel) of what is served, or (Answer, TrainingMember)
Parts = Callable[[Json, Snapshot, Progress], list[Part]]
SIZE_REASONS = {"too_expensive", "too_many", "too_much_power"}  # of rejections, that fewer machines may lift


def recommend(
    spec: Json,
    snapshot: Snapshot,
    progress: Progress | None = None,
    parts: Parts | None = None,
    first_screen: bool = False,
) -> Answer:
    """Runs the engine on a snapshot and calls `progress(stage, fraction)` as it proceeds.

    first_screen: leaves out the sections that the first screen does not show; what it shows is the same.
    parts: computes the workloads of a portfolio, for example on several workers; default: one after the other.
    """
    if spec["kind"] == PORTFOLIO:
        return _portfolio(spec, snapshot, progress, parts or _one_after_the_other)
    if kind_named(spec["kind"]).trains:
        return training.recommend(spec, snapshot, progress)

    def attempt(lost: Lost) -> Answer:  # both steps, so that what an internal error strikes is left out of both
        found = _attempt(spec, snapshot, progress, lost, first_screen)
        return found.answer if first_screen or found.complete is None else found.complete()

    return answered(attempt)


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """An answer with its first screen, and what adds the sections to it; None: it has them all."""

    answer: Answer
    complete: Callable[[], Answer] | None


def verdict_first(
    spec: Json, snapshot: Snapshot, progress: Progress | None = None, parts: Parts | None = None
) -> Verdict:
    """As `recommend`, which returns the same as `complete`, but with the answer as soon as the choice is made.

    Only the keys of SECTIONS differ. Portfolios, training and what is infeasible are answered in one step.
    """
    if spec["kind"] == PORTFOLIO or kind_named(spec["kind"]).trains:
        return Verdict(answer=recommend(spec, snapshot, progress, parts), complete=None)
    return answered(lambda lost: _attempt(spec, snapshot, progress, lost))


def part_of_portfolio(spec: Json, snapshot: Snapshot, progress: Progress | None) -> Part:
    """One workload of a portfolio, answered alone. It can be pickled."""
    if kind_named(spec["kind"]).trains:
        return training.member(spec, snapshot, progress)
    return _member(spec, snapshot, progress)


def _one_after_the_other(spec: Json, snapshot: Snapshot, report: Progress) -> list[Part]:
    count = len(spec["workloads"])

    def progress_of(i: int, name: str) -> Progress:
        return lambda stage, done: report(f"{name}: {stage}", (i + done) / (count + 1))

    return [
        part_of_portfolio(part, its_snapshot, progress_of(i, part["name"]))
        for i, (part, its_snapshot) in enumerate(zip(spec["workloads"], snapshot.parts, strict=True))
    ]


def _portfolio(spec: Json, snapshot: Snapshot, progress: Progress | None, parts: Parts) -> Answer:
    """Each workload alone, then all on one fleet."""
    report, count = progress or (lambda stage, fraction: None), len(spec["workloads"])
    found = parts(spec, snapshot, report)
    trained = [part for part in found if isinstance(part[1], TrainingMember)]
    served = [part for part in found if isinstance(part[1], Member)]
    answers, members, models = ([part[i] for part in served] for i in range(3))
    report("sharing one fleet", count / (count + 1))
    alone = [*answers, *(a for a, _ in trained)]
    if not answers:
        return decided(with_training(nothing_to_serve(spec, snapshot, trained), [], trained), alone)
    answer = portfolio_answer(spec, snapshot, answers, members)
    if trained:
        return decided(with_training(answer, members, trained), alone)
    portfolio = answer.portfolio
    if portfolio is None or portfolio.money is None:
        return answer
    monthly, ranges = bill.portfolio_ranges(models, portfolio.money, portfolio.shared is not None)
    answer = answer.changed(portfolio=portfolio.changed(money=portfolio.money.changed(ranges=ranges)))
    return decided(answer, alone, monthly)


def _attempt(
    spec: Json, snapshot: Snapshot, progress: Progress | None, lost: Lost, first_screen: bool = False
) -> Verdict:
    """first_screen: the answer is only printed, so it lacks also what its other sections share with it."""
    question = question_of(spec, snapshot, lost)
    question, found = searched(question, progress)
    outcome = found.result if found.result.ranked else found.explain(found.result.shown)
    choice = chosen(question, outcome)
    outcome, costs = choice.outcome, choice.costs
    options = [one_option(question, outcome, s, rank, not first_screen) for rank, s in enumerate(outcome.shown, 1)]
    options = [o.changed(apart=c.apart) if c.apart else o for o, c in zip(options, choice.candidates, strict=True)]
    options = [
        o.changed(reasons=[*o.reasons, *why]) if (why := availability_reasons(choice, k)) else o
        for k, o in enumerate(options)
    ]
    options = ranking.with_probabilities(question, outcome, options, costs.usd_per_hour())
    near_misses, solid = _near_misses(question, outcome), solid_choice(outcome, options)

    def said(ranged: Sequence[Option]) -> str:
        ended = first_sentences(question, outcome, ranged[0]) if ranged else ""
        return (
            verdict(question.workload, outcome.ranked, ranged, near_misses)
            + ended
            + ranking.weak_price_note(ranged, solid)
        )

    answer = Answer(
        **_frame(question, outcome, outcome.shown),
        verdict="",  # said below, with the intervals of the draws
        without_weak_prices=solid,
        recommendations=[*options],
        views=Views(**{view: place + 1 for view, place in outcome.views.items()}),
        price_bound=ranking.price_bound(question.workload, outcome),
        weights=ranking.weights(question.workload),
        owned=owned(question, outcome, costs),
        rejected=[ranking.rejection(r) for r in outcome.rejections],
        bookable=ranking.bookable(question, options, []),
        unknown_places=lost.section("unknown places", lambda: bill.unknown_places(question, outcome.shown), []),
        sensitivity=lost.section(
            "sensitivity",
            lambda: ranking.sensitivity(question, outcome, costs, rule_at(question, choice), first_screen),
            [],
        ),
    )
    answer, place = _with_hosted(question, answer, choice, lost, said, first_screen=first_screen)
    in_choice = [*question.catalog.effort.left_out]

    def complete(explained: SearchResult) -> Answer:
        found = _with_explanations(question, _explained(outcome, explained), answer, choice.costs, options, place)
        found = _with_other_ways(question, outcome, found, options, lost)
        return lost.told(with_left_out(found, outcome, question.catalog.effort, in_choice))

    if not outcome.ranked:
        return Verdict(answer=complete(outcome), complete=None)
    first = lost.told(with_left_out(answer, outcome, question.catalog.effort, in_choice))
    return Verdict(answer=first, complete=lambda: complete(found.explain(outcome.shown)))


def _explained(outcome: SearchResult, explained: SearchResult) -> SearchResult:
    """The chosen options with what explains them."""
    return replace(
        outcome,
        rejections=explained.rejections,
        near_misses=explained.near_misses,
        points=explained.points,
        unranked=explained.unranked,
        frameworks_left=explained.frameworks_left,
        formats_left=explained.formats_left,
    )


def _with_explanations(
    question: Question,
    outcome: SearchResult,
    answer: Answer,
    costs: bill.CostModel,
    options: Sequence[Option],
    place: Mapping[int | None, int],
) -> Answer:
    """The answer with why everything else is not recommended. place: from ranks of `options` to those of the answer."""
    left = ranking.unranked(question, outcome)
    points = pareto(question.workload, outcome, options)
    return answer.changed(
        near_misses=_near_misses(question, outcome),
        owned=[moved_owned(each, place) for each in owned(question, outcome, costs)],
        rejected=[ranking.rejection(r) for r in outcome.rejections],
        unranked=left,
        bookable=ranking.bookable(question, options, left),
        left_out=ranking.left_out(outcome),
        pareto=[p.changed(rank=place[p.rank]) if p.rank else p for p in points],
    )


def _near_misses(question: Question, outcome: SearchResult) -> list[NearMiss]:
    return [one_near_miss(question, outcome, s) for s in outcome.near_misses]


def _with_other_ways(
    question: Question, outcome: SearchResult, answer: Answer, options: Sequence[Option], lost: Lost
) -> Answer:
    """The answer with several models on one card, adapters merged into copies, and mixed accelerators."""
    if options and (card := lost.section("sharing", lambda: sharing(question, outcome), None)):
        answer = answer.changed(sharing=card)
    if question.catalog.model.adapters:
        copies = merged_copies(question, outcome)
        answer = answer.changed(adapters=adapters(question.catalog, outcome, options, copies))
    if question.workload.kind.mixes_accelerators:
        found_mix = lost.section("mix", lambda: mix(question.workload, find_mix(question, outcome)), None)
        answer = answer.changed(mix=found_mix)
    return answer


def searched(question: Question, progress: Progress | None) -> tuple[Question, Chosen]:
    """The choice, and the question as it was searched.

    A margin that the workload does not state makes nothing infeasible: the spare host is left out where it exceeds a
    limit on cost, chips or power, and the limits hold as estimated where nothing has even chances of them.
    """
    found = choose(question, progress)
    reasons = {r.reason for r in found.result.rejections}
    slo = question.workload.slo
    looser = []
    if slo.default_spares and reasons & SIZE_REASONS:
        looser.append(replace(slo, default_spares=False))
    if slo.confidence != slo.sure_confidence and "misses_slo" in reasons:
        looser.append(replace(slo, confidence=None))
    if len(looser) > 1:
        looser.append(replace(slo, default_spares=False, confidence=None))
    for tried in looser if not found.result.ranked else []:
        again = replace(question, workload=replace(question.workload, slo=tried))
        other = choose(again, progress)
        if other.result.ranked:
            question, found = again, other
            break
    return question, found


def with_left_out(answer: Answer, outcome: SearchResult, effort: Effort, in_choice: Sequence[str]) -> Answer:
    """The answer with what was not examined because the search reached its limit of work.

    The verdict names what was left out of the choice.
    """
    if not effort.left_out:
        return answer
    answer = answer.changed(candidates=answer.candidates.changed(not_examined=[*effort.left_out]))
    if not in_choice:
        return answer
    count = sum(r.reason == "not_examined" for r in outcome.rejections)
    told = [f"{count} accelerators" if stage == MORE_CHIPS and count else stage for stage in in_choice]
    return answer.changed(
        verdict=f"{answer.verdict} The search reached its work limit and did not examine: {', '.join(told)}."
    )


def one_option(question: Question, outcome: SearchResult, s: Scored, rank: int | None, tuned: bool = True) -> Option:
    with evaluating(s.lane.choice.accelerator.slug):
        return option(question, outcome, s, rank, tuned)


def one_near_miss(question: Question, outcome: SearchResult, s: Scored) -> NearMiss:
    with evaluating(s.lane.choice.accelerator.slug):
        return near_miss(question, outcome, s)


def first_sentences(question: Question, outcome: SearchResult, first: Option) -> str:
    """What the verdict adds about the first deployment's money and supply."""
    return bill.money_sentences(first.money, first.usd_per_month) + supply_sentence(question, outcome)


def supply_sentence(question: Question, outcome: SearchResult) -> str:
    lines = demand.supply_warnings(question, outcome.shown[0]) if outcome.shown else []
    return "".join(f" {line[0].upper()}{line[1:]}." for line in lines[:1])


def _member(spec: Json, snapshot: Snapshot, progress: Progress | None) -> tuple[Answer, Member, bill.CostModel]:
    """One workload of a portfolio: its first choice or nearest miss, and the engine values behind it."""
    return answered(lambda lost: _member_attempt(spec, snapshot, progress, lost))


def _member_attempt(
    spec: Json, snapshot: Snapshot, progress: Progress | None, lost: Lost
) -> tuple[Answer, Member, bill.CostModel]:
    question = question_of(spec, snapshot, lost)
    choice = chosen(question, search(question, progress, choice_alone=True))
    outcome = choice.outcome
    first = [
        one_option(question, outcome, s, None).changed(one_host_lost=demand.host_lost(question, outcome.table, s))
        for s in outcome.ranked[:1]
    ]
    nearest = [] if first else [one_near_miss(question, outcome, s) for s in outcome.near_misses[:1]]
    answer = Answer(
        **_frame(question, outcome, outcome.ranked),
        verdict="",
        recommendations=[*first],
    )

    def said(ranged: Sequence[Option]) -> str:
        return verdict(question.workload, outcome.ranked, ranged, nearest)

    member = Member(question=question, answer=outcome, week=question.workload.week)
    costs = bill.CostModel(question, outcome.ranked[:1])
    choice = replace(choice, costs=costs)
    answer, _ = _with_hosted(question, answer, choice, lost, said, together=False)
    if answer.recommendations:
        answer = answer.changed(decision=answer.decide())
        answer = answer.changed(decision=signed(question, choice, choice.arranged, answer))
    effort = question.catalog.effort
    return lost.told(with_left_out(answer, outcome, effort, [*effort.left_out])), member, costs


def _frame(question: Question, outcome: SearchResult, ranked: Sequence[Scored]) -> Json:
    """The fields of an Answer that do not depend on what it recommends."""
    snapshot = question.snapshot
    calibrations = calibrations_used(snapshot, (s.lane.choice.accelerator.slug for s in ranked))
    return {
        "workload": question.spec,
        "engine_version": snapshot.engine_version,
        "catalog": CatalogVersion(version=snapshot.catalog_version, prices_as_of=snapshot.prices_as_of),
        "elapsed_s": None,
        "candidates": Candidates(evaluated=outcome.evaluated, pruned=outcome.pruned, feasible=outcome.feasible),
        "assumptions": bill.assumptions(question),
        "sources": sources(snapshot, outcome.shown),
        "calibrations": calibrations,
        "calibration_ids": [c.id for c in calibrations],
        "currency": Currency(**snapshot.currency) if snapshot.currency else None,
    }


def question_of(spec: Json, snapshot: Snapshot, lost: Lost) -> Question:
    """The question with the workload and catalog as the engine takes them."""
    catalog = lost.without(catalog_of(spec, snapshot))
    return prepare_question(Question(served_workload(spec, snapshot), catalog, spec=spec, snapshot=snapshot))


def served_workload(spec: Json, snapshot: Snapshot) -> Workload:
    """The workload as the engine takes it, with what is assumed of arrivals and of the start of an instance."""
    rows, stated = snapshot.assumptions, spec["tco"]
    assumed = arrival_cv_key(spec, rows)
    cv, start_s = (float(stated.get(key, rows[key]["value"])) for key in (assumed, COLD_START))
    ends = [rows[assumed].get(end) for end in ("low", "high")]
    known = assumed in stated or None in ends
    return replace(workload_of(spec, cv, None if known else (float(ends[0]), float(ends[1]))), cold_start_s=start_s)


def _with_hosted(
    question: Question,
    answer: Answer,
    choice: Choice,
    lost: Lost,
    said: Callable[[Sequence[Option]], str],
    together: bool = True,
    first_screen: bool = False,
) -> tuple[Answer, Mapping[int | None, int]]:
    """The answer with hosted APIs, scale to zero, break-even, its verdict, and the inputs that did not change it.

    The mapping has the new ranks of its options.
    `together` ranks them among the options; workloads of a portfolio share machines, so theirs are only listed.
    """
    spec, workload = question.spec, question.workload
    outcome, costs = choice.outcome, choice.costs
    services = {name for name in question.snapshot.assumptions if name.startswith((EGRESS, STORAGE))}
    rows = [] if question.catalog.model.adapters or not workload.kind.generates_tokens else question.snapshot.hosted
    offers = hosted(question, rows, answer.deployments, outcome.bound_usd_per_month)
    costs.compare_with(offers, ranked="api" in workload.constraints.acquisition)
    options = bill.with_break_even(question, costs.shown, answer.deployments, offers)
    ranged = bill.with_ranges(costs, options)
    answer = answer.changed(
        recommendations=[*ranged],
        verdict=said(ranged),
        hosted=offers,
        not_used=not_used(spec, COSTS | services),
    )
    if not together:
        return answer, {}
    answer = answer.changed(separate_pools=separate_pools(outcome))
    if not first_screen:
        answer = answer.changed(uncertainty=lost.section("uncertainty", lambda: bill.uncertainty(costs), None))
    answer = answer.changed(
        scenarios=lost.section(
            "scenarios", lambda: bill.scenarios(costs, options, spec["tco"].get("scenarios") or []), list[Scenario]()
        ),
        switch=lost.section("switch", lambda: bill.best_switch_of(question, outcome), None),
    )
    on_demand = found(question, outcome)
    if on_demand.rejection is not None:
        answer = answer.changed(scale_to_zero=on_demand.rejection)
    answer, arranged, place = ranked_together(question, outcome, answer, on_demand.options, choice)
    first = answer.recommendations[0].rank if answer.recommendations else None
    whole = (
        together_verdict(spec, answer, answer.verdict) + owned_sentence(answer.owned, first) + switch_sentence(answer)
    )
    answer = answer.changed(verdict=whole, team=team_of(workload, outcome, answer))
    if answer.team and answer.team.first_without_rank != first:
        answer = answer.changed(verdict=f"{whole} {answer.team.said}")
    if open_limits := lost.section("no_limits", lambda: no_limits(question, answer), None):
        answer = answer.changed(no_limits=open_limits, verdict=f"{answer.verdict} {open_limits.said}")
    spreads = [ranking.spread_of(question, s) for s in outcome.shown]
    settle = lost.section("settle", lambda: bill.settle_serving(workload, outcome, costs, spreads, answer), None)
    answer = answer.changed(decision=answer.decide(settle))
    return answer.changed(decision=signed(question, choice, arranged, answer)), place


def switch_sentence(answer: Answer) -> str:
    """A change of hardware during the horizon that costs less than the first deployment alone; empty: none does."""
    switch = answer.switch
    return f" {switch.said}" if switch is not None and switch.saving_usd > 0 else ""


def sources(snapshot: Snapshot, options: Sequence[Scored]) -> list[Source]:
    """Where the figures of the options come from."""
    by_slug = {row["slug"]: row for row in snapshot.accelerators}
    chips = [
        Source(what=f"{s.lane.choice.accelerator.slug}: {group}", **entry)
        for s in options
        for group, entry in by_slug[s.lane.choice.accelerator.slug]["sources"].items()
    ]
    model = [Source(what=f"model: {k}", **v) for k, v in snapshot.model.get("sources", {}).items()]
    prices = [
        Source(what=f"price of {s.offer.instance} at {s.offer.provider}", source=s.offer.source, as_of=s.offer.as_of)
        for s in options
    ]
    return [*chips, *model, *prices]
