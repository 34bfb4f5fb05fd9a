"""The one quote or measurement that would settle the doubt about a training run."""

from collections.abc import Iterator, Sequence

import numpy as np

from advisor.answer.money import NORMAL, VALUES, Input, Moved, settle
from advisor.answer.training.certainty import costs_at, ranges_of, turning_ratio
from advisor.answer.training.question import Question
from advisor.engine.search import EQUAL_FRACTION
from advisor.result import Settle, TrainingOption

Array = np.ndarray
INPUTS = (("performance", "speed"), ("goodput", "goodput"), ("rent", "price"), ("hardware", "price"))  # of a chip


def settled(q: Question, options: Sequence[TrainingOption]) -> Settle | None:
    """What would settle the first choice among runs that are ranked by cost; None for other objectives."""
    if len(options) < 2 or q.workload.objective != "cost":
        return None
    return settle(options, 0, list(_moved(q)), EQUAL_FRACTION, lambda moved, after: _turn(q, moved))


def _turn(q: Question, moved: Input) -> tuple[float, int] | None:
    """The turning point of the sensitivity chart."""
    if moved.chip != q.found.ranked[0].trained.accelerator.slug:
        return None
    names = {(told, {"rent": "rent", "hardware": "own"}.get(name, "")): name for name, told in INPUTS}
    return turning_ratio(q, names[moved.name, moved.way], moved.chip)


def _moved(q: Question) -> Iterator[Moved]:
    runs, ranges = q.found.ranked, [ranges_of(q, c) for c in q.found.ranked]

    def rows(name: str, mine: Sequence[int]) -> Array:
        return np.asarray(
            costs_at(q, lambda k: {name: ranges[k].distribution(name).at(NORMAL)} if k in mine else {}, VALUES)
        )

    chips = [c.trained.accelerator.slug for c in runs]
    for chip in dict.fromkeys(chips):
        mine = [k for k, slug in enumerate(chips) if slug == chip]
        for name, told in INPUTS:
            way = {"rent": "rent", "hardware": "own"}.get(name, "")
            ratios = ranges[mine[0]].distribution(name).at(NORMAL)
            yield Moved(input=Input(name=told, chip=chip, way=way), scores=rows(name, mine), ratios=ratios)
    for name in ("resale", "staff"):
        yield Moved(input=Input(name=name), scores=rows(name, range(len(runs))), ratios=None)
