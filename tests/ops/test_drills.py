"""Workers with wrong clocks, turns of organizations, lost messages and outages, on both databases."""

import json

import pytest

from tests.world import World


@pytest.mark.parametrize(
    "world", ["sqlite files", pytest.param("postgres files", marks=pytest.mark.postgres)], indirect=True
)
def test_nothing_is_lost_or_repeated_and_everybody_has_a_turn(world: World) -> None:
    """One process drills everything, because a database with every migration takes most of the time."""
    world.extra |= {"DJANGO_SETTINGS_MODULE": "advisor.settings", "ASSAY_LEASE_S": "30", "ASSAY_LOG_LEVEL": "CRITICAL"}
    has_server = world.database_url.startswith("postgres")
    names = ["skewed", "schedules", "turns", "lost_messages", *["outages"] * has_server]
    found = dict(map(json.loads, world.python("-m", "tests.ops.drills", *names).splitlines()))
    assert len(found["skewed"]) == 9
    assert all(row == ["done", 1, 0, True] for row in found["skewed"].values()), found["skewed"]
    assert found["schedules"] == {"ran": 10, "wrong": {}}
    assert (found["turns"]["left"], len(found["turns"]["started"])) == (0, 31)
    assert found["turns"]["started"].index("b") <= 2  # the one that runs, and at most one more
    assert found["lost_messages"]["states"] == {"done": 19, "cancelled": 5}
    if has_server:
        assert len(found["outages"]) == 12
        assert all(row == ["done", 1, 1] for row in found["outages"].values()), found["outages"]
