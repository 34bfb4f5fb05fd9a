"""The first choice of a table of settings, and what a test is worth, from draws of cost and of whether limits hold.

A table has one row for each setting: a way to run an option, such as a layout and a number of concurrent requests. An
option is what is rented, such as a chip. The draws of all rows are joint: column k is one possible truth.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from advisor.engine.search.certainty.rule import Candidate, arrange
from advisor.engine.terms import EXPECTED_CONFIDENCE, SURE_CONFIDENCE

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]
FEWEST_DRAWS = 32  # that say which setting to test next
BIN_DRAWS, MOST_BINS = 128, 32  # draws with similar results of a test are put together


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """Settings with joint draws."""

    options: Sequence[Hashable]  # (settings,) the option of each setting
    holds: Flags  # (settings, draws) whether every limit holds
    cost: Array  # (settings, draws)

    def given(self, settings: Sequence[int], possible: Flags) -> "Table":
        """Some of the settings, in the draws that are still possible."""
        rows = list(settings)
        return Table(
            options=[self.options[s] for s in rows],
            holds=self.holds[rows][:, possible],
            cost=self.cost[rows][:, possible],
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """The first choice, and what to test after it."""

    setting: int  # row of the table
    probability: float
    expected_cost: float  # where the setting misses a limit, with the cost of the next one that holds
    tests: tuple[int, ...]  # settings in the order of tests until one holds, this one first


class Sizing:
    """The settings of a table that are worth choosing, and what to do where one misses a limit."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.probability = table.holds.mean(axis=1)
        self.mean = table.cost.mean(axis=1)
        self.by_cost = sorted(range(len(self.mean)), key=lambda s: (self.mean[s], -self.probability[s]))
        self.frontier = [s for s in self.by_cost if self._safer_than_cheaper(s)]

    def _safer_than_cheaper(self, setting: int) -> bool:
        """Whether no cheaper setting of the option is as likely to hold."""
        own = self.table.options[setting]
        for s in self.by_cost:
            if s == setting:
                return True
            if self.table.options[s] == own and self.probability[s] >= self.probability[setting]:
                return False
        return True

    def next_ones(self, first: int) -> list[int]:
        """After a miss: safer settings of the same option by cost, then those of others that are at least as safe."""
        own, least = self.table.options[first], self.probability[first]
        alike = [s for s in self.frontier if self.table.options[s] == own and self.probability[s] > least]
        others = [s for s in self.frontier if self.table.options[s] != own and self.probability[s] >= least]
        return [*alike, *others]

    def tests(self, first: int) -> tuple[int, ...]:
        """Every setting in the order of tests by these draws alone: after the next ones the rest, likeliest first."""
        order = [first, *self.next_ones(first)]
        rest = set(self.by_cost) - set(order)
        return (*order, *sorted(rest, key=lambda s: (-self.probability[s], self.mean[s])))

    def cost(self, first: int) -> Array:
        """(draws,) cost of starting with a setting: where it misses a limit, that of the next one that holds.

        Where none holds, it is the highest cost of these settings.
        """
        order = [first, *self.next_ones(first)]
        holds, cost = self.table.holds[order], self.table.cost[order]
        place, draws = np.argmax(holds, axis=0), np.arange(holds.shape[1])
        return np.asarray(np.where(holds.any(axis=0), cost[place, draws], cost.max(axis=0)))


def first_choice(table: Table, least: float = EXPECTED_CONFIDENCE, sure: float = SURE_CONFIDENCE) -> Choice | None:
    """The setting that the rule of answers puts first. None: no setting reaches `least`, so nothing should be signed.

    least, sure: as for `arrange`. Costs include what a miss costs.
    """
    found = _first(table, least, sure)
    if found is None:
        return None
    setting, first = found
    assert first.probability is not None
    return Choice(
        setting=setting,
        probability=first.probability,
        expected_cost=first.expected_usd,
        tests=tests_from(table, setting, least, sure),
    )


def _first(table: Table, least: float, sure: float) -> tuple[int, Candidate] | None:
    sizing = Sizing(table)
    candidates = [
        Candidate(usd=sizing.cost(s), probability=float(sizing.probability[s]), seller=table.options[s])
        for s in sizing.frontier
    ]
    arranged = arrange(candidates, least, sure)
    if not candidates or arranged.order[0] in arranged.fails:
        return None
    return sizing.frontier[arranged.order[0]], candidates[arranged.order[0]]


def tests_from(table: Table, first: int, least: float, sure: float) -> tuple[int, ...]:
    """Every setting in the order of load tests until one holds.

    After each miss the rule chooses again, over the draws in which all tested settings miss: a miss says that settings
    with the same error miss too. Where nothing reaches `least`, the lowest expected cost is next; where few such draws
    are left, safer settings of the same option are.
    """
    order, left = [first], [s for s in range(len(table.options)) if s != first]
    possible = ~table.holds[first]
    while left and possible.sum() >= FEWEST_DRAWS:
        given = table.given(left, possible)
        found = _first(given, least, sure) or _first(given, 0.0, sure)
        assert found is not None
        setting = left[found[0]]
        order.append(setting)
        left.remove(setting)
        possible &= ~table.holds[setting]
    return (*order, *(s for s in Sizing(table).tests(first) if s in left))


def value_of_result(
    cost: Array, result: Array, holds: Flags | None = None, least: float = EXPECTED_CONFIDENCE
) -> float:
    """How much a result lowers the expected cost of the best plan, in the unit of `cost`; 0: it changes no plan.

    cost: (plans, draws), the cost of each plan in each draw, resizing included. result: (draws,), the result that the
    test would have in each draw. holds: (plans, draws), whether a plan meets its limits as it is; before and after the
    test, only plans with at least the probability `least` count. Draws with similar results are put together. In each
    such bin the best plan is chosen with one half of the draws and costed with the other, because choosing and costing
    with the same draws would promise a gain from chance alone.
    """
    bins = min(cost.shape[1] // BIN_DRAWS, MOST_BINS)
    if len(cost) < 2 or bins < 2:
        return 0.0
    enough = np.ones(cost.shape, bool) if holds is None else holds

    def best(draws: NDArray[np.intp], otherwise: int) -> int:
        mean = np.where(enough[:, draws].mean(axis=1) >= least, cost[:, draws].mean(axis=1), np.inf)
        return int(np.argmin(mean)) if np.isfinite(mean).any() else otherwise

    now = best(np.arange(cost.shape[1]), -1)
    if now < 0:
        return 0.0
    saved = 0.0
    for members in np.array_split(np.argsort(result, kind="stable"), bins):
        for chosen_with, costed_with in ((members[::2], members[1::2]), (members[1::2], members[::2])):
            saved += float((cost[now, costed_with] - cost[best(chosen_with, now), costed_with]).sum())
    return max(float(saved / cost.shape[1]), 0.0)
