"""Which size and which way to pay stand for a chip: smaller or surer, by the hour or committed."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.answer.money import CostModel, cheapest
from advisor.answer.owned import kept_instances
from advisor.answer.question import Question
from advisor.engine.cost import HOURS_PER_MONTH
from advisor.engine.plans import OWNED as OWNED_WAY
from advisor.engine.search import (
    EQUAL_FRACTION,
    FAR_RATIO,
    NEAR_FRACTION,
    Arranged,
    Candidate,
    Estimated,
    Scored,
    SearchResult,
    allowed,
    arrange,
    by_the_hour,
    commits,
    rank_uncertainty,
    repriced,
    simplicity,
)
from advisor.engine.terms import COMPUTER, OWNED, Constraints, Offer, evaluating
from advisor.workload import MOST_COMPUTERS, MOST_SMALL_CHIPS, SMALL_CHIP_BYTES

Array = np.ndarray
STAYS_CHEAPEST = 0.8  # share of the draws in which a term must cost less than the hour to stand before it


@dataclass(frozen=True, kw_only=True, slots=True)
class Committed:
    """A plan that commits, beside the same deployment by the hour."""

    scored: Scored
    hourly: Scored
    saves_fraction: float  # expected, over the hour
    cheaper_fraction: float  # of the draws


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """The options in the order of the rule, with what was not taken."""

    outcome: SearchResult
    costs: CostModel
    candidates: tuple[Candidate, ...]  # of outcome.shown
    arranged: Arranged  # over these
    committed: dict[int, Committed]  # terms that are not taken, by index in outcome.shown
    sizes: dict[int, tuple[Scored, Scored | None]]  # (for even chances, the surer one), by index in outcome.shown
    passed_over: dict[int, Scored]  # the same at a seller who was sold out, by index in outcome.shown


def chosen(question: Question, outcome: SearchResult) -> Choice:
    """Takes for each chip the size and the way to pay that the rule prefers, and orders the chips.

    Objectives other than cost keep their order, behind what fails its probability.
    """
    workload, (least, sure) = question.workload, needed(question)
    trial = [_alternatives(question, outcome, k) for k in range(len(outcome.shown))]
    flat = [s for each in trial for s in each]
    model = CostModel(question, flat)
    usd = model.usd_per_month()
    shown: list[Scored] = []
    places: list[int] = []
    committed: dict[int, Committed] = {}
    sizes: dict[int, tuple[Scored, Scored | None]] = {}
    passed_over: dict[int, Scored] = {}
    start = 0
    for k, each in enumerate(trial):
        drawn = [_costs(s, u) for s, u in zip(each, usd[start : start + len(each)], strict=True)]
        at, left = _preferred(each, drawn, least, sure, workload.constraints)
        if left is not None:
            committed[k] = left
        sizes[k] = each[0], outcome.surer.get(k)
        if sold_out_on(each[0]) and not sold_out_on(each[at]) and drawn[0].mean() < drawn[at].mean():
            passed_over[k] = each[0]
        shown.append(each[at])
        places.append(start + at)
        start += len(each)
    costs = model.of(places)
    known, paid = costs.usd_per_month(), costs.paid_usd_per_month()
    candidates = [
        candidate(question, s, _costs(s, u), _costs(s, cash)) for s, u, cash in zip(shown, known, paid, strict=True)
    ]
    candidates, arranged = arranged_by(workload.objective, candidates, least, sure)
    costs.reorder(arranged.order)
    order = list(arranged.order)
    place = {old: new for new, old in enumerate(order)}
    swapped = {id(old): new for old, new in zip(outcome.shown, shown, strict=True)}
    outcome = replace(outcome, shown=tuple(shown), ranked=tuple(swapped.get(id(s), s) for s in outcome.ranked))
    outcome = replace(in_order(outcome, order), surer={}) if order else outcome
    return Choice(
        outcome=outcome,
        costs=costs,
        candidates=tuple(candidates[k] for k in order),
        arranged=Arranged(
            order=tuple(range(len(order))),
            tied=tuple(place[k] for k in arranged.tied),
            fails=frozenset(place[k] for k in arranged.fails),
        ),
        committed={place[k]: each for k, each in committed.items()},
        sizes={place[k]: each for k, each in sizes.items()},
        passed_over={place[k]: each for k, each in passed_over.items()},
    )


def availability_reasons(choice: Choice, at: int) -> list[str]:
    """Which option of about the same cost an option stands before, because that one was sold out when it was read."""
    s, first = choice.outcome.shown[at], choice.candidates[at]
    before = [choice.passed_over[at]] if at in choice.passed_over else []
    if at == 0 and not first.sold_out:
        tied = [(choice.candidates[k], choice.outcome.shown[k]) for k in choice.arranged.tied]
        before += [other for c, other in tied if c.sold_out and c.expected_usd < first.expected_usd]
    return [
        f"taken before {other.chips:,} x {other.lane.choice.accelerator.name} at {other.offer.provider}, which costs "
        f"about as much and was sold out on {sold_out_on(other)}"
        for other in before
        if other is not s
    ]


def arranged_by(
    objective: str, candidates: Sequence[Candidate], least: float, sure: float
) -> tuple[list[Candidate], Arranged]:
    """(the candidates, those that are beyond reach set apart; their order)."""
    ordering = arrange if objective == "cost" else _as_ranked
    found, arranged = list(candidates), ordering(candidates, least, sure)
    if arranged.order:
        found = beyond_reach(found, found[arranged.order[0]])
        arranged = ordering(found, least, sure)
    return found, arranged


def rule_at(question: Question, choice: Choice) -> Callable[[Array], int] | None:
    """The first choice by the rule if the options shown cost other amounts, in USD per hour; None: costs do not order.

    Each option keeps its distribution. Another deployment of the first chip counts as the first choice, 0.
    """
    shown, (least, sure) = choice.outcome.shown, needed(question)
    if question.workload.objective != "cost" or not shown:
        return None
    chips = [s.lane.choice.accelerator.slug for s in shown]
    today = [
        replace(c, apart=apart(s, question.workload.constraints)) for c, s in zip(choice.candidates, shown, strict=True)
    ]

    def first_at(usd_per_hour: Array) -> int:
        ratios = usd_per_hour / np.array([s.economic_usd_per_hour for s in shown])
        moved = [replace(c, usd=c.usd * ratio) for c, ratio in zip(today, ratios, strict=True)]
        at = arranged_by("cost", moved, least, sure)[1].order[0]
        return 0 if chips[at] == chips[0] else at

    return first_at


MOST_TIMES, HALVINGS = 100.0, 40  # of a price: up to which it is searched, and how often the range is halved


def price_ratio_to_win(question: Question, choice: Choice, share: float) -> float | None:
    """Up to how many times its price the first option stays first by the rule and within the budget.

    None: at any price, since nothing else could be first and no budget is stated. share: of its cost that the price is.
    """
    (least, sure), most = needed(question), question.workload.constraints.max_usd_per_month or math.inf

    def wins(ratio: float) -> bool:
        first = choice.candidates[0]
        asked = replace(first, usd=first.usd * (1.0 + share * (ratio - 1.0)))
        arranged = arranged_by(question.workload.objective, [asked, *choice.candidates[1:]], least, sure)[1]
        return arranged.order[0] == 0 and asked.expected_usd <= most

    if share <= 0.0 or wins(MOST_TIMES):
        return None
    low, high = 0.0, MOST_TIMES
    for _ in range(HALVINGS):
        middle = (low + high) / 2.0
        low, high = (middle, high) if wins(middle) else (low, middle)
    return low


def needed(question: Question) -> tuple[float, float]:
    """(probability that an option needs by the hour, the same where it commits)."""
    slo = question.workload.slo
    return slo.confidence or 0.0, slo.sure_confidence or slo.confidence or 0.0


def _alternatives(question: Question, outcome: SearchResult, k: int) -> list[Scored]:
    """The option as found, by the hour if it commits, sized for what cannot be undone, and at a seller who has it."""
    s = outcome.shown[k]
    found = [s]
    with evaluating(s.lane.choice.accelerator.slug):
        if k in outcome.surer:
            found.append(outcome.surer[k])
        for each in [*found]:
            if commits(each) and (hourly := by_the_hour(question, each)) is not None:
                found.append(hourly)
        if s.offer.acquisition == "rent" and sold_out_on(s) and (other := _elsewhere(question, s)) is not None:
            found.append(other)
    return found


def _elsewhere(question: Question, s: Scored) -> Scored | None:
    """The deployment at the cheapest offer of the same kind that is not sold out; None: there is none."""
    c = question.workload.constraints
    group = [
        o
        for o in question.catalog.offers_of(s.lane.choice.accelerator.slug)
        if o.sells(s.lane.choice.accelerator) and o.acquisition == "rent" and not o.sold_out_on and allowed(o, c)
    ]
    best = cheapest(question, s, group) if group else None
    other = repriced(question, s, best) if best is not None else s
    known = other.planned is not None and other.planned is not s.planned
    return other if known and math.isfinite(other.economic_usd_per_hour) and not sold_out_on(other) else None


def _preferred(
    each: Sequence[Scored], usd: Sequence[Array], least: float, sure: float, asked: Constraints
) -> tuple[int, Committed | None]:
    """(the alternative that stands for the chip, a term that is not taken).

    A term must cost less than the hour in most draws. The surer of two sizes is taken where it costs little more, and
    where the budget allows it.
    """
    hourly = {s.replicas: k for k, s in enumerate(each) if not commits(s)}
    allowed, left = [], None
    for k, s in enumerate(each):
        other = hourly.get(s.replicas)
        if commits(s) and other is not None and not s.bought_instances and not buys(s):
            cheaper = float((usd[k] < usd[other]).mean())
            if cheaper < STAYS_CHEAPEST:
                saves = 1.0 - float(usd[k].mean()) / float(usd[other].mean())
                left = Committed(scored=s, hourly=each[other], saves_fraction=saves, cheaper_fraction=cheaper)
                continue
        if s.slo_probability is None or s.slo_probability >= (sure if commits(s) else least):
            allowed.append(k)
    if not allowed:
        return min(range(len(each)), key=lambda k: float(usd[k].mean())), left
    allowed = [
        k for k in allowed if not apart(each[k], asked)
    ] or allowed  # a chip is not set apart for one of its offers
    cheapest = min(allowed, key=lambda k: (float(usd[k].mean()), k))
    most = float(usd[cheapest].mean()) * (1.0 + NEAR_FRACTION)
    most = min(most, asked.max_usd_per_month or math.inf)
    surer = [k for k in allowed if (each[k].slo_probability or 1.0) >= sure and float(usd[k].mean()) <= most]
    at = min(surer or [cheapest], key=lambda k: (float(usd[k].mean()), k))
    if sold_out_on(each[at]):  # a seller who has some, at a cost that cannot be told apart
        free = [k for k in surer or allowed if not sold_out_on(each[k]) and float(usd[k].mean()) <= most]
        at = next((k for k in free if _is_tied(usd[at], usd[k])), at)
    return at, left


def _is_tied(usd: Array, other: Array) -> bool:
    """Whether two costs, drawn together, cannot be told apart: equal within 1 %, or by the rule of `arrange`."""
    more = float(other.mean()) / float(usd.mean()) - 1.0
    return more <= EQUAL_FRACTION or (
        more <= NEAR_FRACTION and float((usd < other).mean()) < rank_uncertainty.TOLD_APART
    )


def sold_out_on(s: Scored | Estimated) -> str:
    """The day on which an offer that the option rents was sold out at its last reading; empty: none is known to be."""
    return max((o.sold_out_on for o in priced(s)), default="")


def buys(s: Scored) -> bool:
    return bool(s.planned and s.planned.plan.capex_usd)


def _costs(s: Scored, drawn: Array | None) -> Array:
    return np.full(1, s.economic_usd_per_hour * HOURS_PER_MONTH) if drawn is None else drawn


def candidate(question: Question, s: Scored, usd: Array, paid_usd: Array) -> Candidate:
    """An option as the rule sees it. usd: what it costs, a forgone sale included; paid_usd: what counts as spent."""
    budget = question.workload.constraints.max_usd_per_month
    renamed = kept_instances(s) > 0 and s.offer.term != OWNED  # kept machines, named after an offer to buy more
    return Candidate(
        over_budget=budget is not None and float(paid_usd.mean()) > budget,
        usd=usd,
        probability=s.slo_probability,
        commits=commits(s),
        keeps=kept_instances(s) > 0,
        weakness=max((2 if o.over_a_year_old else 1 if o.weakness else 0 for o in priced(s)), default=0),
        sold_out=bool(sold_out_on(s)),
        simplicity=(float(renamed), *simplicity(s, question.catalog.model)),
        apart=apart(s, question.workload.constraints),
        seller=(s.lane.choice.accelerator.slug, s.offer.provider, s.offer.acquisition),
    )


def apart(s: Scored | Estimated, asked: Constraints) -> str:
    """Why nobody would order an option; empty: somebody would."""
    a = s.lane.choice.accelerator
    named = a.slug in asked.accelerators_allow or s.offer.term == OWNED
    if s.instances > MOST_COMPUTERS and a.chassis == COMPUTER and not named:
        return f"more than {MOST_COMPUTERS} small computers for one model"
    if s.chips > MOST_SMALL_CHIPS and a.memory_bytes <= SMALL_CHIP_BYTES:
        return f"more than {MOST_SMALL_CHIPS} cards of a small chip for one model"
    if s.lane.choice.efficiency.basis == "datasheet":
        return "its speed is known from data sheets only"
    if any(o.over_a_year_old for o in priced(s)):
        return "its price is over a year old"
    if not s.offer.orderable:
        return "no server is sold to put it in"
    return ""


def priced(s: Scored | Estimated) -> Sequence[Offer]:
    """The offers whose prices the option pays."""
    planned = s.planned if isinstance(s, Scored) else None
    if planned is None:
        return [s.offer] if s.offer.term != OWNED else []
    schedule = planned.plan.schedule
    paid = {c.way for c in schedule.commitments} | {h.way for h in schedule.hourly}
    return [planned.offers[k] for k in sorted(paid) if planned.plan.ways[k].kind != OWNED_WAY]


def beyond_reach(candidates: Sequence[Candidate], first: Candidate) -> list[Candidate]:
    """The candidates, those that cost many times the first choice set apart."""
    most = FAR_RATIO * first.expected_usd
    said = f"it costs more than {FAR_RATIO:g} times the first choice"
    return [replace(c, apart=c.apart or said) if c.expected_usd > most else c for c in candidates]


def in_order(outcome: SearchResult, order: Sequence[int]) -> SearchResult:
    """The result with its shown options in another order, by their places now."""
    place = {old: new for new, old in enumerate(order)}
    shown = [outcome.shown[k] for k in order]
    return replace(
        outcome,
        shown=tuple(shown),
        ranked=(shown[0], *(s for s in outcome.ranked if s is not shown[0])),
        variants={place[k]: found for k, found in outcome.variants.items()},
        views={view: place[k] for view, k in outcome.views.items()},
        draft_risks={place[k]: risk for k, risk in outcome.draft_risks.items()},
    )


def _as_ranked(candidates: Sequence[Candidate], least: float, sure: float) -> Arranged:
    """The order of another objective, with what fails behind what does not."""
    found = arrange(candidates, least, sure)
    numbers = sorted(range(len(candidates)), key=lambda k: (k in found.fails, k))
    return replace(found, order=tuple(numbers), tied=())
