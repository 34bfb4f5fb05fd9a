"""Processes that compute a study and are killed in the middle: the others finish it, and every row is there once."""

import json
import subprocess
import sys
from collections import Counter

import pytest

from tests.world import ROOT, World

ROWS = "select p.state, p.attempt, p.result from advisor_studypiece p where p.phase = 1 order by p.{index}"


@pytest.mark.parametrize(
    "world",
    [pytest.param("sqlite files", marks=pytest.mark.soak), pytest.param("postgres files", marks=pytest.mark.postgres)],
    indirect=True,
)
def test_a_killed_worker_costs_its_piece_a_second_attempt(world: World) -> None:
    world.extra |= {"DJANGO_SETTINGS_MODULE": "advisor.settings"}
    study = world.python("-m", "tests.studies.slow_study", "create", "5").strip()
    runs = world.folder / "runs"

    def work() -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.studies.slow_study", "work", study]
        process = subprocess.Popen(command, cwd=ROOT, env=world.env, start_new_session=True)
        world.processes.append(process)
        return process

    def started() -> int:
        return len(runs.read_text().split()) if runs.exists() else 0

    first, second = work(), work()
    world.until(lambda: started() == 2)
    first.kill()
    first.wait()
    world.let_go()
    assert second.wait(timeout=120) == 0
    found = world.rows(ROWS.format(index="index" if "postgres" in world.database_url else '"index"'))
    results = [json.loads(r) if isinstance(r, str) else r for _, _, r in found]
    assert [state for state, _, _ in found] == ["done"] * 5
    assert sorted(attempt for _, attempt, _ in found) == [1, 1, 1, 1, 2]
    assert Counter(row["point"] for rows in results for row in rows) == Counter(range(5))
    assert started() == 6
    assert world.rows("select state from advisor_study") == [("done",)]
