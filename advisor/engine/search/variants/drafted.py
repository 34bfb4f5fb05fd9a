"""Candidates with speculative decoding, ranked with all others.

A draft shortens TPOT and may let a replica carry more, so it can make a chip feasible or cheaper. Trying every draft on
every layout would multiply the search by ten. Drafts are therefore tried where they can matter: on the best layouts of
the leading chips, counted as if every limit on TPOT were as many times longer as a draft generates tokens per step.
Only drafts that need no training are candidates: a published draft head, the model's own prediction layer, a small
model of the catalog, n-grams from the prompt.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.engine.search.candidates import Catalog, Question, concurrency_of
from advisor.engine.search.limits import latency_excess
from advisor.engine.search.objective import MAX_RANKED, SLACK, Scale, best_of_kinds, rows_by_chip, table_scores
from advisor.engine.search.simulated import running_cap
from advisor.engine.search.table import (
    UNSERVABLE_REPLICAS,
    Array,
    Table,
    demand_of,
    estimated_excess,
    evaluate,
    joined,
)
from advisor.engine.step import Draft, Lane, drafts_of, has_encoder, methods_of, published_draft, supports_drafts
from advisor.engine.terms import OWNED, Framework, Workload

CHIPS = MAX_RANKED + 2  # leading chips that get drafts
FIRST_TOKENS = 3  # drafted tokens per step of the first trial of a method; the best method is then tried with others
# Planned requests of a lane: up to 32, and above that up to 256. The step times of a lane with a draft hold for its
# most running requests; a cap far above the real batch would charge prompt tokens as decodes.
BATCHES = (32, 256)


def with_drafts(question: Question, table: Table, scale: Scale) -> Table:
    """The table with rows for speculative decoding added; unchanged if it does not apply or was not asked for."""
    workload = question.workload
    if workload.variants != "adopt" or not tries_drafts(question):
        return table
    known = Known(question=question, by_framework={})
    chosen = hopeful_rows(workload, table, scale, known)
    firsts = [lane for h in chosen for lane in trials(workload, table, h, first_of_each(known.drafts(table.lanes[h.row])))]
    if not firsts:
        return table
    first = evaluated(question, firsts)
    best = best_trial_by_chip(workload, first, scale)
    others = [
        replace(lane, draft=d)
        for lane in best
        for d in known.drafts(lane)
        if lane.draft and d.method == lane.draft.method and d.tokens != lane.draft.tokens
    ]
    rows = {id(table.lanes[h.row].choice): h.row for h in chosen}
    added = [first, *([evaluated(question, others)] if others else [])]
    for part in added:
        plain = np.array([rows[id(lane.choice)] for lane in part.lanes], dtype=int)
        table = joined(table, part, plain)
    return table


def tries_drafts(question: Question) -> bool:
    """Whether the workload and the model allow speculative decoding."""
    return (
        question.workload.drafts
        and question.workload.kind.tries_drafts
        and not has_encoder(question.catalog.model)
        and not adapted(question.catalog)
    )


def adapted(catalog: Catalog) -> bool:
    """Whether adapters are served with the model; no acceptance rate is published for them."""
    return catalog.model.adapters is not None


@dataclass(frozen=True, kw_only=True, slots=True)
class Known:
    """The drafts of each framework, looked up once per search."""

    question: Question
    by_framework: dict[tuple[str, str, bool], tuple[Draft, ...]]

    def drafts(self, lane: Lane) -> tuple[Draft, ...]:
        if not supports_drafts(lane.choice):
            return ()
        key = lane.framework.slug, lane.framework.version, lane.choice.dp == 1
        if key not in self.by_framework:
            found = drafts_known(self.question, lane.framework, lane.choice.dp == 1)
            self.by_framework[key] = tuple(found)
        return self.by_framework[key]


def drafts_known(question: Question, framework: Framework, one_group: bool) -> list[Draft]:
    """Drafts available for this model and framework.

    A draft model must share the vocabulary, and runs only beside `one_group` (no attention data parallelism).
    """
    catalog = question.catalog
    model, small = catalog.model, catalog.draft_model
    rows = methods_of(framework, model, catalog.acceptances, question.workload.task)
    fits = small is not None and small.vocab == model.vocab and one_group
    methods = framework.launch.template.draft_methods if framework.launch else frozenset()
    rows = [row for row in rows if row.method in methods and published_draft(model, row.method)]
    return [d for row in rows if fits or row.method != "draft" for d in drafts_of(model, row, small)]


def first_of_each(drafts: Sequence[Draft]) -> list[Draft]:
    """For each method the draft with about FIRST_TOKENS tokens per step."""
    nearest: dict[str, Draft] = {}
    for d in drafts:
        held = nearest.get(d.method)
        if held is None or abs(d.tokens - FIRST_TOKENS) < abs(held.tokens - FIRST_TOKENS):
            nearest[d.method] = d
    return list(nearest.values())


@dataclass(frozen=True, kw_only=True, slots=True)
class Hopeful:
    """A row that may meet the limits with drafts, and the ranges of batch sizes to try (of BATCHES)."""

    row: int
    batches: tuple[int, ...]


def hopeful_rows(workload: Workload, table: Table, scale: Scale, known: Known) -> list[Hopeful]:
    """For each leading chip the best row of each replica size, if every draft were accepted at no cost.

    Chips that are owned count as leading: what they cost depends on how few of them suffice.
    """
    gains = np.array([max((d.shown_tokens for d in known.drafts(lane)), default=0.0) for lane in table.lanes])
    with np.errstate(divide="ignore", invalid="ignore"):
        tpot_s = table.tpot_p95_s * table.tpot_margin / gains[:, None]
    ttft_s = table.ttft_p95_s * table.ttft_margin
    served = np.isfinite(table.usd_per_hour) & np.isfinite(table.tpot_p95_s) & (table.replicas < UNSERVABLE_REPLICAS)
    allowed = served & (gains[:, None] > 0)
    allowed &= latency_excess(workload, ttft_s, np.where(allowed, tpot_s, np.inf)) <= SLACK
    score = np.where(allowed, table_scores(workload, table, scale), np.inf)
    by_chip = rows_by_chip(table)
    leading = sorted((float(score[own].min()), slug) for slug, own in by_chip.items() if allowed[own].any())
    found, owned = [], {o.accelerator for o in known.question.catalog.offers if o.term == OWNED}
    for slug in [slug for k, (_, slug) in enumerate(leading) if k < CHIPS or slug in owned]:
        own = by_chip[slug]
        for row, column in best_of_kinds(table, own, score[own], allowed[own], len(own), by_size=True):
            lane = table.lanes[row]
            small = concurrency_of([lane])[0, column] / lane.choice.lanes <= BATCHES[0]
            found.append(Hopeful(row=row, batches=BATCHES[: 1 if small else 2]))
    return found


def trials(workload: Workload, table: Table, hopeful: Hopeful, drafts: Sequence[Draft]) -> list[Lane]:
    """One lane for each draft and range of batch sizes."""
    lane = table.lanes[hopeful.row]
    caps = sorted({min(most_of(workload, planned), lane.max_running_requests) for planned in hopeful.batches})
    return [replace(lane, draft=d, max_running_requests=cap) for d in drafts for cap in caps]


def most_of(workload: Workload, planned: float) -> int:
    """Cap on running requests around a planned number, at most as bursty as the whole traffic."""
    return running_cap(planned, float(demand_of(workload).crowding))


def evaluated(question: Question, lanes: Sequence[Lane]) -> Table:
    """The table of these lanes; concurrencies outside a lane's range of batch sizes cannot serve."""
    table = evaluate(question, lanes)
    each = concurrency_of(table.lanes) / np.array([[lane.choice.lanes] for lane in table.lanes])
    most = most_of(question.workload, BATCHES[0])
    small = np.array([[lane.max_running_requests <= most] for lane in table.lanes])
    inside = np.where(small, each <= BATCHES[0], (each > BATCHES[0]) & (each <= BATCHES[1]))
    return replace(
        table,
        capacity_requests_per_s=np.where(inside, table.capacity_requests_per_s, 0.0),
        replicas=np.where(inside, table.replicas, UNSERVABLE_REPLICAS),
        ttft_p95_s=np.where(inside, table.ttft_p95_s, np.inf),
        tpot_p95_s=np.where(inside, table.tpot_p95_s, np.inf),
        usd_per_hour=np.where(inside, table.usd_per_hour, np.inf),
    )


def best_trial_by_chip(workload: Workload, table: Table, scale: Scale) -> list[Lane]:
    """For each chip the lane with the best estimate within the limits; without one, the fastest."""
    excess: Array = estimated_excess(workload, table)
    usable = np.isfinite(excess)
    score = np.where(usable & (excess <= 1), table_scores(workload, table, scale), np.inf)
    found = []
    for own in rows_by_chip(table).values():
        first = score[own] if np.isfinite(score[own]).any() else np.where(usable[own], table.tpot_p95_s[own], np.inf)
        if np.isfinite(first).any():
            found.append(table.lanes[int(own[np.argmin(first.min(axis=1))])])
    return found
