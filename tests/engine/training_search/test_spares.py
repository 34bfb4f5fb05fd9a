"""Spare hosts: as many as make an hour of training cheapest, and none where a provider replaces instances."""

from dataclasses import replace

import pytest

from advisor.engine.training.cluster import goodput, write_checkpoint
from advisor.engine.training_search.outcome import MOST_SPARES, Reliability, best_spares, cluster_of
from tests.engine.training_search.sample import RELIABILITY, bought, on_chips, rented

SAVED = write_checkpoint(112e9, 64, 78e6, 0.042)


def failing(rate: float) -> Reliability:
    failures = RELIABILITY.failures
    return replace(
        RELIABILITY,
        failures=replace(failures, failures_per_chip_day=replace(failures.failures_per_chip_day, value=rate)),
    )


@pytest.mark.parametrize("chips", [8, 32, 64])
@pytest.mark.parametrize("rate", [0.0, 6.7e-4, 5e-3, 3e-2])
def test_the_spares_are_the_cheapest_of_every_number(chips: int, rate: float) -> None:
    t, r, offers, instances = on_chips(chips), failing(rate), (bought(),), chips // 8

    def paid(spares: int) -> float:
        return (instances + spares) / goodput(cluster_of(t, offers, r, spares), SAVED).fraction

    every = range(MOST_SPARES + 1)
    assert best_spares(t, offers, r, instances, SAVED) == min(every, key=paid)


def test_more_failures_need_no_fewer_spares() -> None:
    spares = [best_spares(on_chips(64), (bought(),), failing(rate), 8, SAVED) for rate in (0.0, 1e-3, 1e-2, 5e-2)]
    assert spares == sorted(spares) and spares[0] == 0 < spares[-1]


def test_rented_machines_need_none() -> None:
    assert best_spares(on_chips(64), (rented(),), failing(0.1), 8, SAVED) == 0
