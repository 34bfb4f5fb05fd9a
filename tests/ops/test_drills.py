"""Hosts with wrong clocks, turns between organizations, lost messages and outages of the database, on both databases."""

import json
from typing import Any

import pytest

from tests.world import World

EVERY_DATABASE = pytest.mark.parametrize(
    "world",
    ["sqlite files", pytest.param("postgres files", marks=pytest.mark.postgres)],
    indirect=True,
)


def drill(world: World, name: str) -> dict[str, Any]:
    world.extra |= {"DJANGO_SETTINGS_MODULE": "advisor.settings", "ASSAY_LEASE_S": "30", "ASSAY_LOG_LEVEL": "CRITICAL"}
    found: dict[str, Any] = json.loads(world.python("-m", "tests.ops.drills", name))
    return found


@EVERY_DATABASE
def test_a_worker_or_a_sweep_whose_clock_is_a_minute_wrong_neither_loses_nor_takes_a_lease(world: World) -> None:
    found = drill(world, "skewed")
    assert len(found) == 9 and all(row == ["done", 1, 0, True] for row in found.values()), found


@EVERY_DATABASE
def test_no_schedule_of_workers_with_wrong_clocks_loses_or_repeats_an_advice(world: World) -> None:
    assert drill(world, "schedules") == {"ran": 40, "wrong": {}}


@EVERY_DATABASE
def test_one_question_waits_for_at_most_one_more_of_another_organization(world: World) -> None:
    found = drill(world, "turns")
    assert (found["left"], len(found["started"])) == (0, 31)
    assert found["started"].index("b") <= 2


@EVERY_DATABASE
def test_every_row_is_answered_though_messages_are_lost(world: World) -> None:
    found = drill(world, "lost_messages")
    assert found["states"] == {"done": 19, "cancelled": 5}, found


@pytest.mark.postgres
@pytest.mark.parametrize("world", ["postgres files"], indirect=True)
def test_an_outage_costs_no_attempt_and_no_computed_answer(world: World) -> None:
    found = drill(world, "outages")
    assert len(found) == 12 and all(row == ["done", 1, 1] for row in found.values()), found
