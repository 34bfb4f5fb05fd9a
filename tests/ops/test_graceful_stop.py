"""A worker that gets SIGTERM finishes its jobs or returns them: nothing is lost or repeated."""

import signal
import subprocess

import pytest

from tests.soak import rolling_restart
from tests.world import World, kill

FILES = pytest.param("sqlite files", "solo", id="files, solo")
FILES_PREFORK = pytest.param("sqlite files", "prefork", id="files, prefork")
SERVICES = [pytest.mark.postgres, pytest.mark.redis]
PREFORK = pytest.param("postgres redis", "prefork", marks=SERVICES, id="postgres, redis, prefork")
# the same behavior elsewhere
SOAK_SOLO = pytest.param("sqlite redis", "solo", marks=[pytest.mark.soak, pytest.mark.redis], id="redis, solo")
SOAK_PREFORK = pytest.param(
    "postgres redis", "prefork", marks=[pytest.mark.soak, *SERVICES], id="postgres, redis, prefork"
)
EVERY_POOL = pytest.mark.parametrize(("world", "pool"), [FILES, SOAK_SOLO, SOAK_PREFORK], indirect=["world"])
ONE = "select state, attempt, (select count(*) from advisor_option) from advisor_advice"


def computing(world: World, pool: str) -> subprocess.Popen[bytes]:
    """A worker that is in the middle of the only job."""
    world.ask()
    worker = world.worker(pool)
    world.until(lambda: len(world.runs()) == 1)
    return worker


def ended(world: World, worker: subprocess.Popen[bytes]) -> int:
    world.until(lambda: worker.poll() is not None)
    return worker.returncode


@EVERY_POOL
def test_a_job_that_runs_at_sigterm_is_finished(world: World, pool: str) -> None:
    worker = computing(world, pool)
    worker.send_signal(signal.SIGTERM)
    world.until(lambda: "Warm shutdown" in (world.folder / "log").read_text())
    world.let_go()
    assert ended(world, worker) == 0
    assert world.rows(ONE) == [("done", 1, 2)]
    assert len(world.runs()) == 1


@pytest.mark.soak
@EVERY_POOL
def test_a_job_that_outlasts_the_grace_period_goes_to_another_worker_with_its_attempt(world: World, pool: str) -> None:
    world.extra["ASSAY_GRACE_S"] = "0.5"
    worker = computing(world, pool)
    worker.send_signal(signal.SIGTERM)
    assert ended(world, worker) == 0
    assert world.rows(ONE) == [("queued", 0, 0)]
    world.let_go()
    world.worker(pool)  # without beat: the message that woke it came from the worker that stopped
    world.until(lambda: world.states() == ["done"])
    assert world.rows(ONE) == [("done", 1, 2)]
    assert len(world.runs()) == 2


@pytest.mark.soak
@pytest.mark.parametrize(("world", "pool"), [FILES, PREFORK], indirect=["world"])
def test_a_stage_that_cannot_be_interrupted_does_not_delay_the_end_of_the_process(world: World, pool: str) -> None:
    world.extra |= {"ASSAY_GRACE_S": "0.5", "ASSAY_TEST_SILENT": "1"}
    worker = computing(world, pool)
    worker.send_signal(signal.SIGTERM)
    assert ended(world, worker) == 0
    assert world.rows(ONE) == [("queued", 0, 0)]


@pytest.mark.parametrize(("world", "pool"), [FILES_PREFORK, SOAK_PREFORK], indirect=["world"])
def test_pool_processes_that_get_the_signal_too_finish_their_jobs(world: World, pool: str) -> None:
    """As systemd and terminals send it: to every process of the group."""
    worker = computing(world, pool)
    kill(worker, signal.SIGTERM)
    world.until(lambda: "Warm shutdown" in (world.folder / "log").read_text())
    world.let_go()
    assert ended(world, worker) == 0
    assert world.rows(ONE) == [("done", 1, 2)]


@pytest.mark.soak
@EVERY_POOL
def test_sigquit_returns_a_job_at_once(world: World, pool: str) -> None:
    worker = computing(world, pool)
    world.until(lambda: " ready." in (world.folder / "log").read_text())
    worker.send_signal(signal.SIGQUIT)
    assert ended(world, worker) == 0
    assert world.rows(ONE) == [("queued", 0, 0)]


RESULT = """
import django; django.setup()
from datetime import timedelta
from django.utils import timezone
from advisor.advise import default_organisation
from probes.received import results
from probes.models import Result
organisation, earlier = default_organisation(), timezone.now() - timedelta(minutes=1)
row = Result.objects.create(organisation=organisation, state="accepted", received_at=earlier, document={})
results.wake(row.pk)
"""


@pytest.mark.soak
@pytest.mark.parametrize(("world", "pool"), [FILES, PREFORK], indirect=["world"])
@pytest.mark.parametrize("in_time", [True, False], ids=["in time", "too long"])
def test_a_fit_that_runs_at_sigterm_is_finished_or_done_again(world: World, pool: str, in_time: bool) -> None:
    world.extra |= {"DJANGO_SETTINGS_MODULE": "advisor.settings", "ASSAY_GRACE_S": "20" if in_time else "0.5"}
    fitted = "select fitted_at is not null from probes_result"
    worker = world.worker(pool)
    world.python("-c", RESULT)
    world.until(lambda: len(world.runs()) == 1)
    worker.send_signal(signal.SIGTERM)
    if in_time:
        world.until(lambda: "Warm shutdown" in (world.folder / "log").read_text())
        world.let_go()
    assert ended(world, worker) == 0
    assert world.rows(fitted) == [(in_time,)]
    world.let_go()
    world.worker(pool)
    world.beat()
    world.until(lambda: world.rows(fitted) == [(True,)])


@pytest.mark.soak
@pytest.mark.parametrize(("world", "pool"), [FILES, PREFORK], indirect=["world"])
def test_a_rolling_restart_under_load_loses_nothing_repeats_nothing_and_costs_no_attempt(
    world: World, pool: str
) -> None:
    proof = rolling_restart(world, "", pool=pool, workers=2, rounds=1, jobs=10)
    assert proof.ends == [("done", 1, 2)] * proof.asked
    assert proof.repeated == 0
