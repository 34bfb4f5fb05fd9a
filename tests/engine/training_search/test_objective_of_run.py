"""Each objective ranks first what it asks for, and the views name their winners."""

import pytest

from advisor.engine.training_search.search import Found
from tests.engine.training_search.sample import asked, bought, found_for, rented


def found(objective: str) -> Found:
    return found_for(asked(objective=objective), rented(), bought())


@pytest.mark.parametrize(
    ("objective", "figure"),
    [("cost", "usd_total"), ("latency", "days"), ("throughput", "days"), ("energy", "kwh"), ("carbon", "kgco2e")],
)
def test_the_first_run_is_the_best_of_all_that_were_planned(objective: str, figure: str) -> None:
    answer = found(objective)
    every = [getattr(c, figure) for c in answer.by_chip["big"]]
    assert getattr(answer.ranked[0], figure) == pytest.approx(min(every), rel=1e-6)


def test_a_balanced_run_is_no_extreme_in_both() -> None:
    cheap, fast, between = (found(name).ranked[0] for name in ("cost", "latency", "balanced"))
    assert cheap.usd_total <= between.usd_total and fast.days <= between.days


def test_views_point_at_their_winners() -> None:
    answer = found("cost")
    every = answer.by_chip["big"]
    assert answer.ranked[answer.views["cheapest"]].usd_total == min(c.usd_total for c in every)
    assert answer.ranked[answer.views["fastest"]].days == min(c.days for c in every)
    assert answer.ranked[answer.views["simplest"]].chips == min(c.chips for c in every)
