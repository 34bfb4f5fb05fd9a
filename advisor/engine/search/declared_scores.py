"""Ecosystem, team, lead-time and lock-in scores from 0 to 1 (best), computed from facts counted in the catalog.

A missing fact can contribute anything from 0 to 1, so a score is a range. Rankings use the midpoint, and the width of
the range adds to the risk.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from advisor.engine.search.candidates import Catalog, Question
from advisor.engine.search.limits import interval_ratios
from advisor.engine.step import Lane, runs_on
from advisor.engine.terms import OWNED, Accelerator, Framework, Offer, Workload

Array = np.ndarray
SCORE_NAMES = ("ecosystem", "team", "lead_time", "lock_in")
# for the `balanced` objective: figures relative to the best candidate, scores as the shortfall from 1
WEIGHTS = {
    "cost": 1.0,
    "latency": 1.0,
    "energy": 0.5,
    "ecosystem": 0.5,
    "team": 0.5,
    "risk": 0.5,
    "lead_time": 0.25,
    "lock_in": 0.25,
}
SKILLS = {"mlx": "metal", "coreml": "metal", "tt": "ttnn"}  # stack -> skill name used in `team:`
MAX_SKILL_LEVEL = 5.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Score:
    """The range of a score and the facts behind it; low equals high if every fact is known."""

    low_fraction: float
    high_fraction: float
    facts: tuple[str, ...]

    @property
    def middle_fraction(self) -> float:
        return (self.low_fraction + self.high_fraction) / 2

    @property
    def width_fraction(self) -> float:
        return self.high_fraction - self.low_fraction


def mean_of(parts: Sequence[tuple[float | None, str]]) -> Score:
    """The mean of (value, fact) pairs; a value of None is unknown and widens the range."""
    known = [value for value, _ in parts if value is not None]
    low = sum(known) / len(parts)
    unknown = (len(parts) - len(known)) / len(parts)
    return Score(low_fraction=low, high_fraction=low + unknown, facts=tuple(fact for _, fact in parts))


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Catalog counts, taken once per search."""

    frameworks: Mapping[str, int]  # by chip: serving frameworks that support it
    providers: Mapping[str, int]  # by chip: sellers with a current price; all purchases count as one
    vendors: Mapping[str, int]  # by framework: vendors of the chips it supports
    releases: Mapping[str, int | None]  # by framework
    scores: dict[tuple[str, str, str], dict[str, Score]] = field(default_factory=dict)  # cache


def counts_of(catalog: Catalog) -> Counts:
    """Count frameworks, sellers and chip vendors, over the chips that have an offer."""
    chips = {o.accelerator for o in catalog.offers}
    sold = [a for a in catalog.accelerators if a.slug in chips]
    running: dict[str, set[str]] = defaultdict(set)
    vendors: dict[str, set[str]] = defaultdict(set)
    sellers: dict[str, set[str]] = defaultdict(set)
    for f in catalog.frameworks:
        for a in sold:
            if runs_on(f, a):
                running[a.slug].add(f.slug)
                vendors[f.slug].add(a.vendor)
    for o in (*catalog.offers, *catalog.other_offers):
        if o.term != OWNED:
            sellers[o.accelerator].add(o.provider if o.acquisition != "own" else "a purchase")
    return Counts(
        frameworks={slug: len(slugs) for slug, slugs in running.items()},
        providers={slug: len(slugs) for slug, slugs in sellers.items()},
        vendors={slug: len(slugs) for slug, slugs in vendors.items()},
        releases={f.slug: f.releases for f in catalog.frameworks},
    )


def scores_of(
    workload: Workload, counts: Counts, chip: Accelerator, framework: Framework, offer: Offer
) -> Mapping[str, Score]:
    """The four scores of a framework on a chip with an offer, cached in `counts`."""
    key = (chip.slug, framework.slug, f"{offer.term} {offer.instance}")
    if key not in counts.scores:
        counts.scores[key] = {
            "ecosystem": ecosystem(counts, chip, framework),
            "team": team(workload, chip, framework),
            "lead_time": lead_time(offer),
            "lock_in": lock_in(counts, chip, framework),
        }
    return counts.scores[key]


def ecosystem(counts: Counts, chip: Accelerator, framework: Framework) -> Score:
    """Numbers of frameworks, sellers and releases, each relative to the largest in the catalog."""
    shares = (
        (counts.frameworks, chip.slug, f"serving frameworks in the catalog for {chip.name}"),
        (counts.providers, chip.slug, f"sellers of {chip.name} with a current price"),
    )
    parts: list[tuple[float | None, str]] = []
    for counted, slug, what in shares:
        most = max(counted.values(), default=1)
        parts.append((counted.get(slug, 0) / most, f"{what}: {counted.get(slug, 0)}; highest in the catalog: {most}"))
    most = max((n for n in counts.releases.values() if n), default=1)
    released = counts.releases.get(framework.slug)
    fact = f"{framework.name} releases since {framework.first_release or 'its start'}: {released}; highest: {most}"
    if released is None:
        return mean_of([*parts, (None, f"{framework.name} releases: unknown")])
    return mean_of([*parts, (released / most, fact)])


def skills(chip: Accelerator, framework: Framework) -> list[str]:
    """The skills a deployment needs, by their names in `team:`."""
    shared = [s for s in framework.stacks if s in chip.stacks] or list(chip.stacks)
    plain = (stack.split("-")[0] for stack in shared)
    return sorted({SKILLS.get(name, name) for name in plain})


def team(workload: Workload, chip: Accelerator, framework: Framework) -> Score:
    """The team's best level (0 to 5) among the usable stacks; a stack missing from `team:` counts as 0."""
    needed = skills(chip, framework)
    if not workload.team:
        known = f"the team's experience with {' or '.join(needed)}"
        return mean_of([(None, f"{known}: unknown, because the workload does not state it (team)")])
    levels = dict(workload.team)
    best = max(needed, key=lambda name: levels.get(name, 0))
    fact = f"level {levels.get(best, 0)} of 5 in {best}" + ("" if best in levels else ", which team: does not list")
    return mean_of([(levels.get(best, 0) / MAX_SKILL_LEVEL, fact)])


def to_buy(offer: Offer) -> bool:
    """Whether this offer is a purchase that has to be delivered."""
    return offer.acquisition == "own" and offer.term != OWNED


def lead_time(offer: Offer) -> Score:
    """1 for rented or owned hardware; unknown for a purchase, because the catalog has no cited lead times."""
    if offer.term == OWNED:
        return mean_of([(1.0, "already owned: no delivery")])
    if offer.acquisition == "own":
        return mean_of([(None, f"lead time of {offer.instance or 'the host'}: unknown, no published figure")])
    return mean_of([(1.0, f"rented, {offer.term.replace('_', ' ')}: no delivery; availability is unknown")])


def lock_in(counts: Counts, chip: Accelerator, framework: Framework) -> Score:
    """Freedom from lock-in: mean of 1 - 1/n over the chip's sellers and over the vendors the framework supports."""
    sellers, makers = max(counts.providers.get(chip.slug, 1), 1), max(counts.vendors.get(framework.slug, 1), 1)
    return mean_of(
        [
            (1 - 1 / sellers, f"sellers of {chip.name} to choose from: {sellers}"),
            (1 - 1 / makers, f"chip vendors that {framework.name} supports: {makers}"),
        ]
    )


def risk_fraction(
    scores: Mapping[str, Score], throughput: tuple[float, float] | None, power_known: bool = True
) -> float:
    """Mean width of the 90 % throughput interval (at most 1; unknown: 1), of power and of each score.

    Power counts 0 if it is published and 1 if it is not.
    """
    width = 1.0 if throughput is None else min(throughput[1] - throughput[0], 1.0)
    widths = [width, 0.0 if power_known else 1.0, *(scores[name].width_fraction for name in SCORE_NAMES)]
    return sum(widths) / len(widths)


def throughput_of(catalog: Catalog, basis: str) -> tuple[float, float] | None:
    """90 % throughput interval as (low, high) factors, from the calibration residuals of this basis; None: no data."""
    return interval_ratios(catalog.scopes, basis).get("throughput")


def weights_of(workload: Workload) -> dict[str, float]:
    """The default weights, overridden by the user's."""
    return WEIGHTS | dict(workload.weights)


def lacking(workload: Workload, scores: Mapping[str, Score], risk: float) -> float:
    """What the scores add to the `balanced` objective: weighted shortfalls from 1, plus weighted risk."""
    weights = weights_of(workload)
    return sum(weights[name] * (1 - scores[name].middle_fraction) for name in SCORE_NAMES) + weights["risk"] * risk


@dataclass(frozen=True, kw_only=True)
class Declared:
    """The scores of one search, as the `balanced` objective uses them."""

    question: Question
    counts: Counts

    def of(self, lane: Lane, offer: Offer) -> tuple[Mapping[str, Score], float]:
        """(the four scores by name, risk from 0 to 1)."""
        scores = scores_of(self.question.workload, self.counts, lane.choice.accelerator, lane.framework, offer)
        known = math.isfinite(lane.choice.accelerator.watts)
        return scores, risk_fraction(scores, throughput_of(self.question.catalog, lane.choice.efficiency.basis), known)

    def lacking(self, lane: Lane, offer: Offer) -> float:
        """The scores' contribution to the `balanced` objective for one deployment."""
        return lacking(self.question.workload, *self.of(lane, offer))

    def table_lacking(self, lanes: Sequence[Lane], offer: Array) -> Array:
        """`lacking` for each lane and offer index, shape (lanes, concurrency); infinite without an offer."""
        bought = np.array([to_buy(o) for o in self.question.catalog.offers] + [False])
        kinds = [next((o for o in self.question.catalog.offers if to_buy(o) == own), None) for own in (0, 1)]
        pairs: dict[tuple[str, str], list[float]] = {}
        for lane in lanes:
            key = (lane.choice.accelerator.slug, lane.framework.slug)
            if key not in pairs:
                pairs[key] = [math.inf if o is None else self.lacking(lane, o) for o in kinds]
        each = np.array([pairs[(w.choice.accelerator.slug, w.framework.slug)] for w in lanes]).reshape(-1, 2)
        return np.where(offer < 0, math.inf, np.where(bought[offer], each[:, 1:], each[:, :1]))


def declared(question: Question) -> Declared:
    """The scores for this search, with the catalog counted once."""
    return Declared(question=question, counts=counts_of(question.catalog))
