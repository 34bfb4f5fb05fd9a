"""Collectives: two processes joined through a file, and no process left behind by one that hangs."""

import multiprocessing
import time
from pathlib import Path

import pytest

from probes.agent.kinds import collectives


def test_bus_bytes_are_those_that_each_device_sends() -> None:
    assert collectives.bus_bytes("all_reduce", 800, 4) == 1200
    assert collectives.bus_bytes("all_gather", 800, 4) == 600
    assert collectives.bus_bytes("all_to_all", 800, 2) == 400
    assert collectives.bus_bytes("point_to_point", 800, 2) == 800


def test_two_processes_answer_for_every_kind_and_size() -> None:
    job = {"backend": "gloo", "count": 2, "sizes": [4096, 65536], "graphs": False}
    answers, _ = collectives.run_session(job)
    assert len(answers) == 4 * 2
    assert all(found["median_s"] > 0 and found["error"] <= 1e-2 for found in answers.values())
    assert all(found["error"] == 0 for name, found in answers.items() if not name.startswith("all_reduce"))
    assert multiprocessing.active_children() == []


def test_a_backend_that_refuses_is_a_reason() -> None:
    answers, reason = collectives.run_session({"backend": "no_such", "count": 2, "sizes": [4096], "graphs": False})
    assert answers == {}
    assert "Error" in reason


def test_a_process_that_hangs_is_killed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(collectives, "SESSION_S", 0.2)
    monkeypatch.setattr(collectives, "EXIT_S", 0.2)
    process = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(600,), daemon=True)
    process.start()
    collectives._end([process], tmp_path / "done")
    assert not process.is_alive()
