"""A batch on spot instances keeps its deadline with the hours that interruptions take and the wait for capacity."""

from dataclasses import replace

import pytest

from advisor.engine.search import Question
from advisor.engine.search.limits import spot_late_fraction
from advisor.engine.search.run import search
from advisor.engine.search.simulated import on_spot
from tests.answer.test_batch import batch
from tests.engine.catalog_sample import ASSUMED, catalog, offer


def test_the_time_on_spot_instances_counts_losses_and_the_wait() -> None:
    a = replace(ASSUMED, spot_lost_fraction=0.2, spot_wait_s=360.0)
    assert spot_late_fraction(batch(3600.0), a, 0.4) == pytest.approx(0.4 / 0.8 + 0.1)


@pytest.mark.parametrize("hours", [1.0, 2.0, 4.0, 8.0])
@pytest.mark.parametrize(("lost", "wait_s"), [(0.0, 0.0), (0.1, 600.0), (0.5, 600.0), (0.1, 3000.0)])
def test_every_option_keeps_the_deadline_where_it_runs(hours: float, lost: float, wait_s: float) -> None:
    a = replace(ASSUMED, spot_lost_fraction=lost, spot_wait_s=wait_s)
    offers = offer("big", 4.0, instance="steady"), offer("big", 1.0, term="spot", instance="spot")
    workload = batch(hours * 3600.0, requests=50_000 * hours)
    for s in search(Question(workload, catalog(offers=offers, assumptions=a))).ranked:
        assert s.verified.late_fraction <= 1
        if on_spot(s):  # what is left of the time without the wait and the losses still serves every request
            steady = (s.verified.late_fraction - wait_s / workload.deadline_s) * (1 - lost)
            assert steady <= (1 - wait_s / workload.deadline_s) * (1 - lost) + 1e-9


def test_a_spot_market_without_capacity_before_the_deadline_is_not_used() -> None:
    a = replace(ASSUMED, spot_lost_fraction=0.1, spot_wait_s=2 * 3600.0)
    offers = offer("big", 4.0, instance="steady"), offer("big", 0.1, term="spot", instance="spot")
    (first, *_) = search(Question(batch(3600.0, requests=20_000), catalog(offers=offers, assumptions=a))).ranked
    assert first.offer.term == "on_demand"
    alone = search(Question(batch(3600.0, requests=20_000), catalog(offers=offers[1:], assumptions=a)))
    assert not alone.ranked
