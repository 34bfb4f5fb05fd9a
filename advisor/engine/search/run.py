"""The search: enumerate, prune, price, rank and simulate deployments, and explain each rejection."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import TypeVar

import numpy as np

from advisor.engine.search.candidates import (
    CONCURRENCY,
    Catalog,
    Question,
    admissible,
    enumerate_lanes,
    held_long_enough,
    offers_for,
)
from advisor.engine.search.declared_scores import declared
from advisor.engine.search.objective import (
    MAX_RANKED,
    SLACK,
    ChipResult,
    Progress,
    Scale,
    best_estimate,
    best_of_chip,
    describe,
    designs,
    final_score,
    ordered,
    rows_by_chip,
    scale_of,
    table_scores,
)
from advisor.engine.search.owned_machines import OwnedMachines, owned_machines, owned_offers
from advisor.engine.search.rejected.software import formats, frameworks, retry_with_any_quality
from advisor.engine.search.rejected.support_changes import with_support_changes
from advisor.engine.search.rejected.unranked import Unranked, unranked
from advisor.engine.search.rejected.why_not import (
    Ask,
    Candidates,
    NearMiss,
    best_within_budget,
    does_not_fit,
    explain,
    may_be_near,
    outranked,
    remembered,
    without_budgets,
)
from advisor.engine.search.simulated import PoolsTried, Scored, Simulations, with_every_rental
from advisor.engine.search.table import (
    UNSERVABLE_REPLICAS,
    Table,
    demand_of,
    evaluate,
    instances_needed,
    meets,
    planned_running,
)
from advisor.engine.search.variants.draft_risk import DraftRisk, draft_risk
from advisor.engine.search.variants.drafted import with_drafts
from advisor.engine.search.variants.pools_and_drafts import FINALISTS, RESCUE_EXCESS, rescued, rescues, variants
from advisor.engine.search.variants.step_budgets import with_step_budgets
from advisor.engine.search.views import (
    add_view_winners,
    best_per_accelerator,
    or_better,
    view_winners,
    with_price_bound,
    without_weak_prices,
)
from advisor.engine.step import Lanes, normalize, prefill_fraction
from advisor.engine.terms import CHOICE_FRACTION, Accelerator, Effort, Rejection, Workload, cost_text, evaluating

__all__ = [
    "CONCURRENCY",
    "Chosen",
    "SearchResult",
    "Catalog",
    "Point",
    "Scored",
    "choose",
    "demand_of",
    "describe",
    "enumerate_lanes",
    "evaluate",
    "final_score",
    "instances_needed",
    "offers_for",
    "prepare_question",
    "search",
]
MORE_CHIPS = "more accelerators"  # left out by the search when no work is left for the choice
MOST_SURER = 6  # first options that are also sized for what cannot be undone
NEAR_MISS = 1.2  # up to this many times a limit is a near miss
AnyQuestion = TypeVar("AnyQuestion", bound=Question)


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """A point of the cost-speed chart: an estimate, or a simulated and ranked deployment."""

    label: str
    accelerator: str
    chips: int
    usd_per_hour: float
    requests_per_s: float  # at the mean load
    tpot_s: float  # p95; for embeddings the request latency
    meets_slo: bool
    prefill_fraction: float  # share of a request's time; splits the bill between input and output
    ttft_s: float  # p95
    capacity_requests_per_s: float  # of all replicas, spares included
    watts: float
    kgco2e_per_kwh: float  # of the offer's region; NaN: unknown
    rank: int | None = None  # from 1; None: an estimate


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchResult:
    """The result of a search. Every accelerator is ranked or rejected; a near miss is also in `rejections`."""

    ranked: tuple[Scored, ...]  # the best design of each chip
    near_misses: tuple[Scored, ...]
    rejections: tuple[Rejection, ...]
    points: tuple[Point, ...]
    evaluated: int
    pruned: int
    feasible: int
    built: Lanes | None
    scale: Scale
    table: Table | None = None  # every candidate that fits in memory
    shown: tuple[Scored, ...] = ()  # `ranked` plus unranked winners of a view, best first
    variants: Mapping[int, tuple[Scored, ...]] = field(default_factory=dict)  # by index in `shown`
    views: Mapping[str, int] = field(default_factory=dict)  # view -> index in `shown` of its winner
    frameworks_left: tuple[Rejection, ...] = ()  # `accelerator` holds the framework's or format's slug
    formats_left: tuple[Rejection, ...] = ()
    unranked: tuple[Unranked, ...] = ()  # chips that no allowed offer prices, with what they would do and cost
    bound_usd_per_month: float | None = None  # price bound applied although no budget was set
    owned: tuple[OwnedMachines, ...] = ()  # what owned machines do on their own
    solid: Scored | None = None  # the first choice without weak prices, if the price of the first choice is weak
    effort: Effort = field(default_factory=Effort)  # spent on the answer, and what was left out
    draft_risks: Mapping[int, DraftRisk] = field(default_factory=dict)  # of the first options, by index in `shown`
    pools_tried: PoolsTried | None = None  # in place of the first choice
    surer: Mapping[int, Scored] = field(default_factory=dict)  # sized for `slo.sure_confidence`, by index in `shown`


REASONS = (
    "misses_slo",
    "too_expensive",
    "too_many",
    "too_much_power",
    "cooling",
    "outranked",
    "not_examined",
    "does_not_fit",
    "unpriced",
    "unsupported",
    "excluded",
)  # in the order of how easily the user can change them


def nearness(r: Rejection) -> tuple[int, float, str]:
    """Sort key of rejections: reason, then value over limit."""
    far = r.reached / r.limit if r.limit and r.reached is not None else math.inf
    return REASONS.index(r.reason), far, r.accelerator


@dataclass(frozen=True, kw_only=True, slots=True)
class Failed:
    """A chip of which no design keeps every limit."""

    slug: str
    result: ChipResult  # without limits on chips, cost or power
    explain: Callable[[], tuple[Rejection, NearMiss | None]]  # why it is not ranked, computed once


@dataclass(frozen=True, kw_only=True, slots=True)
class Chosen:
    """The choice, and what completes it."""

    result: SearchResult  # rejections say why only where nothing is ranked
    # with reasons, chips without a price, software that is not used, and the chart of these options
    explain: Callable[[Sequence[Scored]], SearchResult]


def search(question: Question, progress: Progress | None = None, choice_alone: bool = False) -> SearchResult:
    """The ranked deployments for one workload; if none is feasible, `ranked` is empty.

    `choice_alone` skips variants, what is surer, what is owned, and the reasons of rejections where something is
    ranked; the choice is the same. `progress` is called with a stage name and a fraction from 0 to 1.
    """
    chosen = choose(question, progress, choice_alone)
    return chosen.result if choice_alone else chosen.explain(chosen.result.shown)


def choose(question: Question, progress: Progress | None = None, choice_alone: bool = False) -> Chosen:
    """As `search`, without what only explains the choice."""
    report = progress or (lambda stage, fraction: None)
    question = asked = prepare_question(question)
    rejections, chips = admissible(question)
    lanes, refused = enumerate_lanes(question, chips)
    if not lanes:
        return _nothing_runs(question, rejections, refused)
    report("estimating step times", 0.1)
    table = evaluate(question, lanes)
    scores = declared(question)
    table = with_drafts(question, table, scale_of(question.workload, table, scores))
    scale = scale_of(question.workload, table, scores)
    simulations = Simulations(question, table)
    bounded, simulations = with_price_bound(question.workload, simulations, scale)
    question = replace(question, workload=bounded)
    table = fitting = simulations.table
    ranked, losers, failed = _decide(question.workload, simulations, scale, report)
    effort = question.catalog.effort
    if effort.allows("other variants"):
        ranked = _with_rescued(question.workload, simulations, scale, ranked, failed)
    ranked = [with_every_rental(replace(question, catalog=simulations.catalog), s) for s in ranked]
    winning_views = (
        view_winners(question.workload, simulations, scale) if ranked and effort.allows("best of each view") else {}
    )
    ranked = best_per_accelerator(question.workload, ranked, winning_views, scale, question.catalog.model)
    budgeted, simulations = with_step_budgets(question.workload, simulations, ranked[:FINALISTS], scale)
    if any(new is not s for new, s in zip(budgeted, ranked, strict=False)):
        ranked = ordered(question.workload, [*budgeted, *ranked[FINALISTS:]], scale, question.catalog.model)
        winning_views = or_better(question.workload, winning_views, budgeted, scale)
        table = simulations.table
    tried = ranked[: 0 if choice_alone and question.workload.variants != "adopt" else FINALISTS]
    others = {
        id(s): _other_ways(question.workload, simulations, s, scale, report)
        for s in tried
        if effort.allows("other variants")
    }
    if question.workload.variants == "adopt":
        ranked = [others[id(s)][0] if others.get(id(s)) else s for s in ranked]
        others = {}
    ranked = ordered(question.workload, ranked, scale, question.catalog.model)
    if not choice_alone and owned_offers(question.catalog):
        report("trying what you own", 0.95)
    owned = [] if choice_alone else owned_machines(question, simulations, scale)
    alone = [each.alone for each in owned if each.alone is not None]
    shown, views = add_view_winners(question.workload, ranked, winning_views, scale, question.catalog.model, alone)
    before = shown
    place = {id(s): k for k, s in enumerate(shown)}
    surer = {} if choice_alone else _surer(question.workload, simulations, scale, shown[:MOST_SURER])
    shown, precise = _precise(question, simulations, shown)
    ranked = [precise.get(id(s), s) for s in ranked]
    weak = bool(shown and shown[0].offer.weakness) and not choice_alone
    found = SearchResult(
        ranked=tuple(ranked),
        shown=tuple(shown),
        near_misses=(),
        rejections=tuple([*rejections, *_not_shown(losers, shown)]),
        points=(),
        evaluated=table.evaluated,
        pruned=table.pruned,
        feasible=int(np.count_nonzero(meets(question.workload, table))),
        built=table.built,
        scale=scale,
        table=table,
        variants={place[key]: v for key, v in others.items() if v},
        views=views,
        owned=tuple(owned),
        solid=without_weak_prices(question.workload, simulations, scale, shown) if weak else None,
        effort=effort,
        surer=surer,
        draft_risks={} if choice_alone else _draft_risks(question, before[:FINALISTS]),
        pools_tried=simulations.pools_tried.get(shown[0].lane.choice.accelerator.slug) if shown else None,
        bound_usd_per_month=question.workload.constraints.max_usd_per_month
        if question.workload.constraints.bound_factor
        else None,
    )
    if not ranked:
        found = _with_reasons(question.workload, found, rejections, losers, failed, shown)

    def explained(options: Sequence[Scored]) -> SearchResult:
        report("explaining rejections", 0.95)
        told = _with_reasons(question.workload, found, rejections, losers, failed, options)
        more = with_support_changes(asked, refused)
        more += retry_with_any_quality(question, scale, does_not_fit(question, fitting))
        return _explained(question, simulations, chips, replace(told, rejections=(*more, *told.rejections)))

    return Chosen(result=found, explain=explained)


def _nothing_runs(question: Question, rejections: list[Rejection], refused: list[Rejection]) -> Chosen:
    """The answer where no lane is admissible."""
    owned = tuple(OwnedMachines(offer=o, carried_fraction=0.0) for o in owned_offers(question.catalog))

    def explained(_: Sequence[Scored]) -> SearchResult:
        told = rejections + with_support_changes(question, refused)
        left, told = unranked(question, Scale(), [], told)
        return replace(empty_answer(told), unranked=tuple(left), owned=owned)

    return Chosen(result=replace(empty_answer(rejections + refused), owned=owned), explain=explained)


def _with_reasons(
    workload: Workload,
    found: SearchResult,
    rejections: Sequence[Rejection],
    losers: Sequence[Rejection],
    failed: Sequence[Failed],
    options: Sequence[Scored],
) -> SearchResult:
    """The result with why the simulated chips are not ranked, its near misses and the chart of these options."""
    near, missed = _missed(workload, failed, found.ranked)
    losers = _not_shown((*losers, *missed), found.shown)
    assert found.table is not None
    return replace(
        found,
        near_misses=tuple(near),
        rejections=tuple(sorted([*rejections, *losers], key=nearness)),
        points=tuple(_points(workload, found.table, options, losers)),
    )


def _not_shown(rejections: Sequence[Rejection], shown: Sequence[Scored]) -> list[Rejection]:
    """The rejections of chips of which no option is shown."""
    slugs = {s.lane.choice.accelerator.slug for s in shown}
    return [r for r in rejections if r.accelerator not in slugs]


def _explained(
    question: Question, simulations: Simulations, chips: Sequence[Accelerator], found: SearchResult
) -> SearchResult:
    """The result with what is said beside the choice: chips without a price, and software that is not used."""
    workload, scale, allows = question.workload, found.scale, found.effort.allows
    left, told = unranked(question, scale, found.ranked, found.rejections)
    other_frameworks = allows("why other frameworks are not used")
    because = frameworks(workload, simulations, scale, chips, found.shown) if other_frameworks else []
    other_formats = allows("why other weight formats are not used")
    formats_left = formats(workload, simulations, scale, chips, found.shown) if other_formats else []
    return replace(
        found,
        rejections=tuple(sorted(told, key=nearness)),
        unranked=tuple(left),
        frameworks_left=tuple(because),
        formats_left=tuple(formats_left),
    )


def _precise(
    question: Question, simulations: Simulations, shown: Sequence[Scored]
) -> tuple[list[Scored], dict[int, Scored]]:
    """(the deployments with percentiles of long simulations, the same by id of the deployment before)."""
    found = {id(s): simulations.precise(question.workload, s) for s in shown if s.meets_slo}
    return [found.get(id(s), s) for s in shown], found


def _draft_risks(question: Question, first: Sequence[Scored]) -> dict[int, DraftRisk]:
    risks = {
        k: draft_risk(question, s)
        for k, s in enumerate(first)
        if question.catalog.effort.allows("what a lower acceptance of drafts would cost")
    }
    return {k: risk for k, risk in risks.items() if risk}


def _surer(workload: Workload, simulations: Simulations, scale: Scale, shown: Sequence[Scored]) -> dict[int, Scored]:
    """The best deployment of each chip that meets the limits with `slo.sure_confidence`, where it is not shown."""
    needed = workload.slo.sure_confidence
    if needed is None:
        return {}
    sure = replace(workload, slo=replace(workload.slo, confidence=needed))
    rows, score = rows_by_chip(simulations.table), table_scores(workload, simulations.table, scale)
    found = {}
    for k, s in enumerate(shown):
        slug = s.lane.choice.accelerator.slug
        if s.slo_probability is None or s.slo_probability >= needed or slug not in rows:
            continue
        if not simulations.catalog.effort.allows("surer deployments"):
            break
        with evaluating(slug):
            best = best_of_chip(sure, simulations, rows[slug], score, scale, few=True).best
        if best is not None:
            found[k] = best
    return found


def _other_ways(
    workload: Workload, simulations: Simulations, s: Scored, scale: Scale, report: Progress
) -> tuple[Scored, ...]:
    """Better variants of a finalist: disaggregated prefill and decode, or speculative decoding beside it."""
    report(f"trying variants on {s.lane.choice.accelerator.slug}", 0.95)
    with evaluating(s.lane.choice.accelerator.slug):
        return tuple(variants(workload, simulations, s, scale))


def prepare_question(question: AnyQuestion) -> AnyQuestion:
    """The question as the engine computes it, encoder inputs and embeddings converted (step/media/encoder.py)."""
    asked, model = normalize(question.workload, question.catalog.model)
    question = replace(question, workload=asked, catalog=replace(question.catalog, model=model))
    return replace(question, catalog=held_long_enough(question))


def empty_answer(rejections: Sequence[Rejection]) -> SearchResult:
    """The answer when every chip is rejected before evaluation."""
    return SearchResult(
        ranked=(),
        near_misses=(),
        rejections=tuple(sorted(rejections, key=nearness)),
        points=(),
        evaluated=0,
        pruned=0,
        feasible=0,
        built=None,
        scale=Scale(),
    )


def _decide(
    workload: Workload, simulations: Simulations, scale: Scale, report: Progress
) -> tuple[list[Scored], list[Rejection], list[Failed]]:
    """(ranked, rejections, failed): simulates chips in the order of their best estimates until none can rank."""
    table, rows, catalog = simulations.table, rows_by_chip(simulations.table), simulations.catalog
    score, maybe = table_scores(workload, table, scale), meets(workload, table, SLACK)
    promised = {slug: best_estimate(score, maybe, own) for slug, own in rows.items()}
    ranked: list[Scored] = []
    rejections: list[Rejection] = []
    failed: list[Failed] = []
    for done, slug in enumerate(sorted(promised, key=lambda s: (promised[s], s))):
        own, last = rows[slug], ranked[MAX_RANKED - 1] if len(ranked) >= MAX_RANKED else None
        if last is not None and final_score(workload, last, scale) <= promised[slug] < math.inf:
            usd = best_estimate(table.usd_per_hour, maybe, own)
            rejections.append(outranked(workload, slug, usd, simulated=False))
            continue
        if not catalog.effort.allows(MORE_CHIPS, CHOICE_FRACTION):
            rejections.append(_not_examined(workload, slug, best_estimate(table.usd_per_hour, maybe, own)))
            continue
        report(
            f"simulating {slug}, {done + 1} of at most {len(promised)} accelerators", 0.3 + 0.6 * done / len(promised)
        )
        ask = remembered(partial(best_of_chip, simulations=simulations, own=own, score=score, scale=scale))
        with evaluating(slug):
            best = best_within_budget(workload, ask)
        if best is None:
            candidates = partial(designs, table=table, own=own, score=score)
            failed.append(_failed(workload, simulations, slug, ask, candidates))
            continue
        ranked.append(best)
        ranked.sort(key=lambda s: (final_score(workload, s, scale), s.usd_per_hour, s.row_index))
    rejections += [
        outranked(workload, s.lane.choice.accelerator.slug, s.usd_per_hour, simulated=True) for s in ranked[MAX_RANKED:]
    ]
    return ranked[:MAX_RANKED], rejections, failed


def _failed(workload: Workload, simulations: Simulations, slug: str, ask: Ask, candidates: Candidates) -> Failed:
    @cache
    def why() -> tuple[Rejection, NearMiss | None]:
        with evaluating(slug):
            return explain(workload, simulations, slug, ask, candidates)

    return Failed(slug=slug, result=ask(without_budgets(workload)), explain=why)


def _with_rescued(
    workload: Workload, simulations: Simulations, scale: Scale, ranked: list[Scored], failed: Sequence[Failed]
) -> list[Scored]:
    """The ranking with deployments in separate pools on chips whose other designs nearly keep the limits."""
    if not rescues(workload, simulations):
        return ranked
    close = [f for f in failed if may_be_near(workload, f.result, RESCUE_EXCESS)]
    near = sorted((miss for f in close if (miss := f.explain()[1]) is not None), key=_by_excess)
    saved = rescued(workload, simulations, near)
    return sorted([*ranked, *saved], key=lambda s: final_score(workload, s, scale))


def _by_excess(n: NearMiss) -> tuple[float, float, int]:
    return n.excess_fraction, n.scored.usd_per_hour, n.scored.row_index


def _missed(
    workload: Workload, failed: Sequence[Failed], ranked: Sequence[Scored]
) -> tuple[list[Scored], list[Rejection]]:
    """(near misses, rejections) of the chips on which no design keeps every limit."""
    slugs = {s.lane.choice.accelerator.slug for s in ranked}
    told = [f.explain() for f in failed if f.slug not in slugs]
    near = sorted((miss for _, miss in told if miss is not None), key=_by_excess)
    kept = [n.scored for n in near if n.excess_fraction <= NEAR_MISS] or [n.scored for n in near[: 0 if ranked else 1]]
    return kept, [rejection for rejection, _ in told]


def _not_examined(workload: Workload, slug: str, usd_per_hour: float) -> Rejection:
    """A chip that was left out because no work was left: those with better estimates come first."""
    estimate = f"; estimated cost: {cost_text(workload, usd_per_hour)}" if math.isfinite(usd_per_hour) else ""
    said = f"not examined: the search had reached its work limit{estimate}"
    return Rejection(
        accelerator=slug,
        reason="not_examined",
        detail=said,
        dead_end="accelerators with better estimates were simulated first; allow fewer to have this chip simulated",
    )


# --- chart points -----------------------------------------------------------------------------------------------


def _points(
    workload: Workload, table: Table, ranked: Sequence[Scored], rejected: Sequence[Rejection]
) -> Iterator[Point]:
    """The ranked deployments as simulated, and the cheapest estimate per accelerator and concurrency.

    An estimate that the simulation contradicts is not marked as meeting the limits: it must belong to a chip with a
    passing design and cost at least as much as that chip's best one.
    """
    held = {r.accelerator: 0.0 for r in rejected if r.reason == "outranked"}
    for rank, s in enumerate(ranked, 1):
        a = s.lane.choice.accelerator
        held[a.slug] = min(held.get(a.slug, math.inf), s.usd_per_hour)
        yield Point(
            label=f"{s.chips:,} x {a.name}, {describe(s.lane)}",
            accelerator=a.slug,
            chips=s.chips,
            usd_per_hour=s.usd_per_hour,
            requests_per_s=s.requests_per_s_mean,
            tpot_s=workload.kind.tail_latency_s(s.verified),
            meets_slo=True,
            prefill_fraction=prefill_fraction(workload, table.built, s.row_index, s.verified.running_requests_mean),
            ttft_s=s.verified.ttft_p95_s,
            capacity_requests_per_s=s.capacity_requests_per_s,
            watts=s.watts,
            kgco2e_per_kwh=s.offer.kgco2e_per_kwh or math.nan,
            rank=rank,
        )
    good = meets(workload, table)
    serves = np.isfinite(table.usd_per_hour) & np.isfinite(table.tpot_p95_s) & (table.replicas < UNSERVABLE_REPLICAS)
    for slug, own in rows_by_chip(table).items():
        usd = np.where(serves[own], table.usd_per_hour[own], np.inf)
        for j, k in enumerate(np.argmin(usd, axis=0)):
            if not math.isfinite(usd[k, j]):
                continue
            i = int(own[k])
            replicas = float(table.total_replicas[i, j])
            chips = int(table.chips[i, 0] * replicas)
            yield Point(
                label=f"{chips:,} x {table.lanes[i].choice.accelerator.name}, {describe(table.lanes[i])}, estimated",
                accelerator=slug,
                chips=chips,
                usd_per_hour=float(usd[k, j]),
                requests_per_s=float(table.peak_requests_per_s[i, j])
                * (workload.requests_per_s_mean / workload.requests_per_s_peak),
                tpot_s=float(workload.kind.tail_latency_s(table)[i, j]),
                meets_slo=bool(good[i, j]) and float(usd[k, j]) >= held.get(slug, math.inf),
                prefill_fraction=prefill_fraction(workload, table.built, i, planned_running(workload, table, i, j)),
                ttft_s=float(table.ttft_p95_s[i, j]),
                capacity_requests_per_s=float(table.capacity_requests_per_s[i, j]) * replicas,
                watts=float(table.watts[i, j]),
                kgco2e_per_kwh=float(table.kgco2e_per_kwh[i, j]),
            )
