"""What happens to an advice whose worker goes away in the middle."""

import signal

import pytest

from advisor.stored import unpacked
from tests.world import World, kill

EVERY_WORLD = pytest.mark.parametrize(
    "world",
    [
        pytest.param("sqlite files", marks=pytest.mark.soak),
        pytest.param("sqlite redis", marks=[pytest.mark.soak, pytest.mark.redis]),
        pytest.param("postgres redis", marks=[pytest.mark.postgres, pytest.mark.redis]),
    ],
    indirect=True,
)
ONE = "select state, attempt, result from advisor_advice"
COUNT = "select count(*) from advisor_option"


@EVERY_WORLD
def test_an_advice_whose_worker_is_killed_is_finished_once_by_another(world: World) -> None:
    world.ask()
    first = world.worker()
    world.until(lambda: len(world.runs()) == 1)
    kill(first)
    assert world.states() == ["running"]
    world.worker()
    world.beat()
    world.until(lambda: len(world.runs()) == 2)
    world.let_go()
    world.until(lambda: world.states() == ["done"])
    assert world.rows("select attempt from advisor_advice") == [(2,)]
    assert world.rows(COUNT) == [(2,)]


@pytest.mark.soak
def test_a_worker_that_sleeps_through_its_lease_writes_nothing_when_it_wakes(world: World) -> None:
    world.ask()
    sleeper = world.worker()
    world.until(lambda: len(world.runs()) == 1)
    kill(sleeper, signal.SIGSTOP)
    other = world.worker()
    world.beat()
    world.until(lambda: len(world.runs()) == 2)
    world.let_go()
    world.until(lambda: world.states() == ["done"])
    written = world.rows("select finished_at, result from advisor_advice")
    kill(sleeper, signal.SIGCONT)
    world.until(lambda: "lost the lease" in (world.folder / "log").read_text())
    assert world.rows("select finished_at, result from advisor_advice") == written
    state, attempt, result = world.rows(ONE)[0]
    assert (state, attempt, unpacked(result)["verdict"]) == ("done", 2, str(other.pid))
    assert world.rows(COUNT) == [(2,)]


@pytest.mark.soak
def test_a_long_silent_calculation_keeps_its_lease(world: World) -> None:
    world.extra["ASSAY_TEST_SILENT"] = "1"
    world.ask()
    world.worker()
    world.until(lambda: len(world.runs()) == 1)
    lease = world.rows("select lease_until from advisor_advice")
    first_renewals = {lease[0]}
    world.beat()

    def renewed_thrice_past_the_first_lease() -> bool:
        first_renewals.add(world.rows("select lease_until from advisor_advice")[0])
        return len(first_renewals) >= 6

    world.until(renewed_thrice_past_the_first_lease)
    world.let_go()
    world.until(lambda: world.states() == ["done"])
    assert world.rows("select attempt from advisor_advice") == [(1,)]
    assert len(world.runs()) == 1


@pytest.mark.soak
def test_an_advice_that_loses_its_worker_three_times_fails_with_the_reason(world: World) -> None:
    world.ask()
    world.beat()
    for attempt in (1, 2, 3):
        worker = world.worker()
        world.until(lambda wanted=attempt: len(world.runs()) == wanted)
        kill(worker)
    world.worker()
    world.until(lambda: world.states() == ["failed"])
    ((attempts, error),) = world.rows("select attempt, error from advisor_advice")
    assert attempts == 3
    assert "lost 3 times" in error


@pytest.mark.soak
def test_a_calculation_without_end_fails_with_the_reason(world: World) -> None:
    world.extra |= {"ASSAY_TEST_SILENT": "1", "ASSAY_LIMIT_S": "1"}
    world.ask()
    world.worker()
    world.until(lambda: world.states() == ["failed"])
    assert "longer than 1 s" in world.rows("select error from advisor_advice")[0][0]
    world.let_go()
    world.until(lambda: "lost the lease" in (world.folder / "log").read_text())
    assert world.states() == ["failed"]
    assert world.rows(COUNT) == [(0,)]
