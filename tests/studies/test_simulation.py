"""A hundred workers, in simulated time: no piece is lost or doubled, and the time is within the stated model."""

import random
from collections.abc import Callable

import pytest
from django.conf import settings

from advisor.models import Study, StudyPiece
from tests.studies import simulation
from tests.studies.simulation import Costs

pytestmark = pytest.mark.django_db
Create = Callable[..., Study]
# CPU seconds of pieces that the benchmark measured (tests/studies/bench.py), from the fastest to the slowest.
MEASURED = [1.8, 1.9, 2.2, 6.4, 6.7, 6.8, 7.2, 7.4, 11.8, 12.1, 12.6, 13.6, 14.5, 15.1, 16.5, 27.3]
COSTS = Costs(latency_s=0.2, claim_s=0.03, finish_s=0.02)


def checked(study: Study, found: simulation.Outcome) -> None:
    """Every piece was finished once."""
    count = StudyPiece.objects.filter(study=study, phase=1).count()
    assert found.computed == dict.fromkeys(range(count), 1)
    study.refresh_from_db()
    assert study.state == "done"


@pytest.mark.parametrize(("workers", "count"), [(2, 30), (100, 250), pytest.param(100, 2000, marks=pytest.mark.soak)])
def test_the_time_is_within_the_model(created: Create, quick: object, workers: int, count: int) -> None:
    study = created(count)
    seconds = simulation.as_measured(7, count, MEASURED)
    found = simulation.simulate(study, workers, lambda index: seconds[index], COSTS)
    checked(study, found)
    least, most = simulation.model(seconds, workers, COSTS)
    assert least - 1.0 <= found.seconds <= most + 1.0, (least, found.seconds, most)
    if count >= 20 * workers:
        assert found.busy_fraction > 0.9


def test_two_workers_take_little_more_than_half_of_the_time_of_one(created: Create, quick: object) -> None:
    seconds = simulation.as_measured(3, 60, MEASURED)
    times = [
        simulation.simulate(created(60), workers, lambda index: seconds[index], COSTS).seconds for workers in (1, 2)
    ]
    assert times[0] / times[1] > 1.9


def test_lost_workers_cost_a_lease_and_their_piece_again(created: Create, quick: object) -> None:
    study, count, workers = created(100), 100, 30
    seconds = simulation.as_measured(5, count, MEASURED)
    rng = random.Random(5)
    deaths = {index: rng.random() for index in rng.sample(range(count), 10)}
    found = simulation.simulate(study, workers, lambda index: seconds[index], COSTS, deaths)
    checked(study, found)
    assert (found.deaths, found.sweeps_requeued) == (10, 10)
    _, most = simulation.model(seconds, workers, COSTS)
    assert found.seconds <= most + settings.ADVICE_LEASE_S + 2 * settings.ADVICE_SWEEP_S + 2 * max(MEASURED)


def test_a_broker_that_loses_every_third_message_only_delays(created: Create, quick: object) -> None:
    study = created(40)
    seconds = simulation.as_measured(9, 40, MEASURED)
    found = simulation.simulate(study, 20, lambda index: seconds[index], COSTS, lost_message=lambda n: n % 3 == 0)
    checked(study, found)
