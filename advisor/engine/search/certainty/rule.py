"""The order of options: what fails its probability goes last, what cannot be told apart is tied.

Answers and the track record order by this rule. Costs are drawn together, what slower machines or more load need
included.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from advisor.engine.search.certainty.rank_uncertainty import TOLD_APART
from advisor.engine.search.objective import NEAR_FRACTION

Array = np.ndarray
FAR_RATIO = 5.0  # nobody orders what costs this many times the first choice
PROBABILITY_STEP = 0.1  # probabilities within a step are alike


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """One option as the rule sees it."""

    usd: Array  # cost in each draw, shape (draws,) or (1,), in the same unit for all: USD a month in answers
    probability: float | None  # of meeting every limit; None: nothing is limited, or see `verified`
    verified: bool = True  # False: limits were set and nobody publishes whether it meets them
    commits: bool = False  # buys machines or signs a term
    over_budget: bool = False  # it costs more than the stated budget as expected
    keeps: bool = False  # keeps owned machines in service
    weakness: int = 0  # of its price: 0 sound, 1 weak, 2 over a year old
    sold_out: bool = False  # what it rents was sold out when it was read last
    simplicity: tuple[float, ...] = ()  # sort key, simplest first; of equal length for all
    apart: str = ""  # why nobody would order it; empty: somebody would
    seller: Hashable = ()  # chip, provider and way to pay: variants of one choice have the same

    @property
    def expected_usd(self) -> float:
        return float(self.usd.mean())


@dataclass(frozen=True, kw_only=True, slots=True)
class Arranged:
    """The candidates in order."""

    order: tuple[int, ...]
    tied: tuple[int, ...]  # those that cannot be told apart from the first, in order; variants of it are left out
    fails: frozenset[int]  # over budget, below the probability that they need, or unverified


def arrange(candidates: Sequence[Candidate], least: float = 0.0, sure: float = 0.0) -> Arranged:
    """The candidates in the order of the rule.

    least, sure: probability that an option needs by the hour, and where it commits; from `sure` on it is preferred.
    """
    fails = frozenset(k for k, c in enumerate(candidates) if failing(c, least, sure))
    numbers = range(len(candidates))
    pool = [k for k in numbers if k not in fails and not candidates[k].apart]
    pool = pool or [k for k in numbers if k not in fails] or [k for k in numbers if not candidates[k].apart]
    group = _tied(candidates, pool or list(numbers), sure)
    first = sorted(group, key=lambda k: _standing(candidates[k], sure))
    lead = set(first)
    rest = sorted(
        (k for k in numbers if k not in lead),
        key=lambda k: (bool(candidates[k].apart), k in fails, candidates[k].expected_usd),
    )
    order = (*first, *rest)
    sellers = dict.fromkeys((candidates[k].seller for k in first[:1]), -1)
    for k in first[1:]:
        sellers.setdefault(candidates[k].seller, k)
    return Arranged(order=order, tied=tuple(k for k in sellers.values() if k >= 0), fails=fails)


def failing(c: Candidate, least: float, sure: float) -> bool:
    """Whether an option may not be first: it exceeds the budget, or its probability is too low or not known."""
    if c.over_budget:
        return True
    needed = sure if c.commits else least
    return not c.verified if c.probability is None else c.probability < needed


def _tied(candidates: Sequence[Candidate], pool: Sequence[int], sure: float) -> list[int]:
    """Those that cost about as much as the cheapest, and the surer ones that cost little more."""
    if not pool:
        return []
    cheapest = candidates[min(pool, key=lambda k: (candidates[k].expected_usd, k))]
    most = cheapest.expected_usd * (1.0 + NEAR_FRACTION)
    unsure = not is_sure(cheapest, sure)

    def stands_beside(c: Candidate) -> bool:
        near, beaten = c.expected_usd <= most, float((cheapest.usd < c.usd).mean()) >= TOLD_APART
        if c.keeps:  # to sell what works takes a saving that is both large and likely
            return near or not beaten
        return near and (not beaten or (unsure and is_sure(c, sure)))

    return [k for k in pool if candidates[k] is cheapest or stands_beside(candidates[k])]


def is_sure(c: Candidate, sure: float) -> bool:
    return c.verified and (c.probability is None or c.probability >= sure)


def _standing(c: Candidate, sure: float) -> tuple[object, ...]:
    """Sort key of tied options: keeping owned machines first, then options in stock, then those with a reliable price.

    Availability decides only ties, because an option that is sold out today may be available when the order is placed.
    """
    likely = 1.0 if c.probability is None else c.probability
    return (
        not is_sure(c, sure),
        not c.keeps,
        c.sold_out,
        c.weakness,
        -round(likely / PROBABILITY_STEP),
        c.commits,
        c.simplicity,
        c.expected_usd,
    )
