"""How much of the time trains: a provider replaces instances, own hosts are repaired, spot is taken back."""

from dataclasses import replace

import pytest

from advisor.engine.search import Question
from advisor.engine.terms import Offer
from advisor.engine.training_search.outcome import (
    Candidate,
    Reliability,
    break_even_interruptions,
    candidate,
    cluster_of,
    failures_of,
)
from tests.engine.training_search.sample import NEVER_FAILS, RELIABILITY, asked, bought, on_chips, rented, sold


def run(o: Offer, r: Reliability = RELIABILITY, chips: int = 64) -> Candidate:
    found = candidate(Question(asked(tokens=1e11), sold(o)), r, on_chips(chips), (o,))
    assert found is not None
    return found


def parts(c: Candidate) -> float:
    g = c.goodput
    return g.fraction + g.checkpoint_fraction + g.rework_fraction + g.restart_fraction + g.waiting_fraction


@pytest.mark.parametrize("o", [rented(), bought(), rented("spot")], ids=["rent", "own", "spot"])
def test_the_parts_of_the_time_add_up(o: Offer) -> None:
    assert parts(run(o)) == pytest.approx(1.0, abs=1e-6)


def test_own_hosts_wait_days_for_a_repair_and_rented_ones_minutes() -> None:
    t = on_chips(64)
    own, rent = (cluster_of(t, (o,), RELIABILITY, 0) for o in (bought(), rented()))
    assert own.replacement_days == 4.0 and rent.replacement_days == pytest.approx(600 / 86_400)
    assert own.waiting_fraction > 50 * rent.waiting_fraction


def test_the_range_of_a_rented_run_is_that_of_its_own_repairs() -> None:
    c, r = run(rented()), failures_of((rented(),), RELIABILITY)
    assert r.replacement_days.high == pytest.approx(21_600 / 86_400)
    assert failures_of((bought(),), RELIABILITY) == RELIABILITY.failures
    assert c.goodput_range.low < c.goodput.fraction < c.goodput_range.high <= 1.0
    assert 1 - c.goodput_range.low < 10 * (1 - c.goodput.fraction)  # not those of hosts that are out for days


def test_spot_instances_are_interrupted_once_in_so_many_hours_each() -> None:
    spot, steady = run(rented("spot")), run(rented())
    each_day = 8 * 24 * RELIABILITY.spot.interruptions_per_instance_hour
    assert spot.goodput.interruptions_per_day - steady.goodput.interruptions_per_day == pytest.approx(each_day)
    assert spot.goodput.fraction < steady.goodput.fraction and spot.days > steady.days
    bill = dict(spot.planned.plan.part_totals())
    assert not any(name == "interruptions" for name, _ in bill)  # they are in the goodput, not in the price too


def test_without_failures_only_the_start_is_lost() -> None:
    c = run(rented(), NEVER_FAILS)
    assert c.goodput.fraction == 1.0
    assert c.days == pytest.approx(c.steps * c.step_s / 86_400 + 660 / 86_400)


def test_so_many_interruptions_make_spot_cost_as_much_as_renting_by_the_hour() -> None:
    spot, steady = run(rented("spot", 12.0)), run(rented())
    rate = break_even_interruptions(spot, RELIABILITY, steady.usd_total)
    often = replace(RELIABILITY, spot=replace(RELIABILITY.spot, interruptions_per_instance_hour=rate))
    assert run(rented("spot", 12.0), often).usd_total == pytest.approx(steady.usd_total, rel=0.01)
    assert break_even_interruptions(spot, RELIABILITY, spot.usd_total / 2) == 0.0
