"""Ecosystem, team, lead time and lock-in of a deployment: rules over countable facts of the catalog; 1 is best.

A fact that the catalog does not have is unknown: its part of the score may be anything from 0 to 1. The score then
counts as its middle, and how far it may lie to either side widens the risk.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from advisor.engine.search.candidates import Catalog, runs_on
from advisor.engine.spec import OWNED, Accelerator, Framework, Offer, Workload
from advisor.engine.step import Lane

Array = np.ndarray
SCORE_NAMES = ("ecosystem", "team", "lead_time", "lock_in")
# of `balanced`: each figure against the least there is, each score by what it lacks of 1
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
SKILLS = {"mlx": "metal", "coreml": "metal", "tt": "ttnn"}  # stacks under the name that a team knows them by
EXPERT = 5.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Score:
    """Between these two, by these facts; equal where all of them are known."""

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
    """The mean of its parts; a part that is None is unknown."""
    known = [value for value, _ in parts if value is not None]
    low = sum(known) / len(parts)
    unknown = (len(parts) - len(known)) / len(parts)
    return Score(low_fraction=low, high_fraction=low + unknown, facts=tuple(fact for _, fact in parts))


@dataclass(frozen=True, kw_only=True)
class Counts:
    """What is counted in the catalog once for all deployments."""

    frameworks: Mapping[str, int]  # by chip: serving frameworks that run on it
    providers: Mapping[str, int]  # by chip: who sells it at a current price, purchase counted as one
    vendors: Mapping[str, int]  # by framework: makers of the chips that it runs on
    releases: Mapping[str, int | None]  # by framework
    scores: dict[tuple[str, str, str], dict[str, Score]] = field(default_factory=dict)  # those asked for so far


def counts_of(catalog: Catalog) -> Counts:
    """Frameworks, sellers and makers of what the catalog sells."""
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
    """The four scores of a framework on a chip from an offer, computed once."""
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
    """How much there is of it, each against the most in the catalog: frameworks, sellers, releases."""
    shares = (
        (counts.frameworks, chip.slug, f"serving frameworks of the catalog for {chip.name}"),
        (counts.providers, chip.slug, f"sellers of {chip.name} at a current price"),
    )
    parts: list[tuple[float | None, str]] = []
    for counted, slug, what in shares:
        most = max(counted.values(), default=1)
        parts.append((counted.get(slug, 0) / most, f"{what}: {counted.get(slug, 0)}; the most of any is {most}"))
    most = max((n for n in counts.releases.values() if n), default=1)
    released = counts.releases.get(framework.slug)
    fact = f"{released} releases of {framework.name} since {framework.first_release or 'its start'}, the most is {most}"
    if released is None:
        return mean_of([*parts, (None, f"releases of {framework.name}: unknown")])
    return mean_of([*parts, (released / most, fact)])


def skills(chip: Accelerator, framework: Framework) -> list[str]:
    """What a team has to know, under the names of `team:`."""
    shared = [s for s in framework.stacks if s in chip.stacks] or list(chip.stacks)
    plain = (stack.split("-")[0] for stack in shared)
    return sorted({SKILLS.get(name, name) for name in plain})


def team(workload: Workload, chip: Accelerator, framework: Framework) -> Score:
    """The team's level of 5 in the stack that it knows best of those that would do; one it does not name counts 0."""
    needed = skills(chip, framework)
    if not workload.team:
        return mean_of([(None, f"the team's experience with {' or '.join(needed)}: unknown, team: does not say")])
    levels = dict(workload.team)
    best = max(needed, key=lambda name: levels.get(name, 0))
    fact = f"level {levels.get(best, 0)} of 5 in {best}" + ("" if best in levels else ", which team: does not name")
    return mean_of([(levels.get(best, 0) / EXPERT, fact)])


def to_buy(offer: Offer) -> bool:
    """Whether hosts of this offer are bought and have to be delivered."""
    return offer.acquisition == "own" and offer.term != OWNED


def lead_time(offer: Offer) -> Score:
    """Rented capacity starts when the contract does; of a purchase no cited lead time is in the catalog."""
    if offer.term == OWNED:
        return mean_of([(1.0, "there already: no delivery")])
    if offer.acquisition == "own":
        return mean_of([(None, f"lead time of {offer.instance or 'the host'}: unknown, no seller's figure is cited")])
    return mean_of([(1.0, f"rented, {offer.term.replace('_', ' ')}: no delivery; whether it is in stock is not known")])


def lock_in(counts: Counts, chip: Accelerator, framework: Framework) -> Score:
    """How free one stays: 1 - 1/n over the sellers of the chip and over the makers the framework runs on."""
    sellers, makers = max(counts.providers.get(chip.slug, 1), 1), max(counts.vendors.get(framework.slug, 1), 1)
    return mean_of(
        [
            (1 - 1 / sellers, f"sellers of {chip.name} to choose from: {sellers}"),
            (1 - 1 / makers, f"makers whose chips {framework.name} runs on: {makers}"),
        ]
    )


def risk_fraction(
    scores: Mapping[str, Score], throughput: tuple[float, float] | None, power_known: bool = True
) -> float:
    """Mean width of what is not known: the 90 % interval of throughput (at most 1; unknown: 1), power, each score.

    A power that somebody publishes has no width, one that nobody does a width of 1.
    """
    width = 1.0 if throughput is None else min(throughput[1] - throughput[0], 1.0)
    widths = [width, 0.0 if power_known else 1.0, *(scores[name].width_fraction for name in SCORE_NAMES)]
    return sum(widths) / len(widths)


def throughput_of(catalog: Catalog, basis: str) -> tuple[float, float] | None:
    """The 90 % interval of throughput as factors, from the residuals of this class of chips."""
    row = catalog.scopes.get(f"interval:{basis}", {})
    names = ("throughput_low_ratio", "throughput_high_ratio")
    return (float(row[names[0]]), float(row[names[1]])) if all(name in row for name in names) else None


def weights_of(workload: Workload) -> dict[str, float]:
    """The planner's weights over the defaults."""
    return WEIGHTS | dict(workload.weights)


def lacking(workload: Workload, scores: Mapping[str, Score], risk: float) -> float:
    """What the scores of a deployment add to its place in `balanced`."""
    weights = weights_of(workload)
    return sum(weights[name] * (1 - scores[name].middle_fraction) for name in SCORE_NAMES) + weights["risk"] * risk


@dataclass(frozen=True, kw_only=True)
class Declared:
    """The scores of one question's deployments, as they enter `balanced`."""

    workload: Workload
    catalog: Catalog
    counts: Counts

    def of(self, lane: Lane, offer: Offer) -> tuple[Mapping[str, Score], float]:
        """(the four scores, risk as a fraction)."""
        scores = scores_of(self.workload, self.counts, lane.choice.accelerator, lane.framework, offer)
        known = math.isfinite(lane.choice.accelerator.watts)
        return scores, risk_fraction(scores, throughput_of(self.catalog, lane.choice.efficiency.basis), known)

    def lacking(self, lane: Lane, offer: Offer) -> float:
        return lacking(self.workload, *self.of(lane, offer))

    def table_lacking(self, lanes: Sequence[Lane], offer: Array) -> Array:
        """Of each lane with the offer at this index; infinite: without one."""
        bought = np.array([to_buy(o) for o in self.catalog.offers] + [False])
        kinds = [next((o for o in self.catalog.offers if to_buy(o) == own), None) for own in (0, 1)]
        pairs: dict[tuple[str, str], list[float]] = {}
        for lane in lanes:
            key = (lane.choice.accelerator.slug, lane.framework.slug)
            if key not in pairs:
                pairs[key] = [math.inf if o is None else self.lacking(lane, o) for o in kinds]
        each = np.array([pairs[(w.choice.accelerator.slug, w.framework.slug)] for w in lanes])
        return np.where(offer < 0, math.inf, np.where(bought[offer], each[:, 1:], each[:, :1]))


def declared(workload: Workload, catalog: Catalog) -> Declared:
    """The scores of this question, counted once."""
    return Declared(workload=workload, catalog=catalog, counts=counts_of(catalog))
