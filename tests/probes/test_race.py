"""Eight processes that want the same jobs: each job is leased once."""

import json

import pytest

from tests.world import World

JOBS = 100  # `make soak` races for 2,000


@pytest.mark.parametrize(
    "world",
    [
        pytest.param("sqlite files", marks=pytest.mark.soak),
        pytest.param("postgres files", marks=pytest.mark.postgres),
    ],
    indirect=True,
)
def test_eight_processes_lease_every_job_exactly_once(world: World) -> None:
    world.extra["DJANGO_SETTINGS_MODULE"] = "advisor.settings"
    report = json.loads(world.python("-m", "tests.probes.racers", str(JOBS)))
    assert (report["leases"], report["double"], report["never"]) == (JOBS, 0, 0)
    assert report["racers"] > 1
