"""`run` replaces itself with one part of the service."""

import os
from typing import Any

import pytest
from django.core.management import call_command


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, settings: Any) -> Any:
    """The command line of a part, with Redis."""
    settings.REDIS_URL = "redis://nowhere"
    started: list[list[str]] = []
    monkeypatch.setattr(os, "chdir", lambda folder: None)
    monkeypatch.setattr(os, "execve", lambda program, words, env: started.append(words[1:]))

    def run(*words: str) -> str:
        call_command("run", *words)
        return " ".join(started.pop())

    return run


def test_web_listens_where_it_is_told(command: Any) -> None:
    line = command("web", "--host", "0.0.0.0", "--port", "8080", "--processes", "3")
    assert line.startswith("-m gunicorn advisor.wsgi:application --bind 0.0.0.0:8080 --workers 3 ")


def test_a_worker_takes_its_queues_and_is_named_after_them(command: Any) -> None:
    assert "--concurrency 1 --queues probes --hostname probes@%h" in command("worker", "probes", "--processes", "1")


def test_the_worker_of_answers_also_takes_those_of_earlier_versions(command: Any) -> None:
    assert "--queues answers,celery --hostname answers@%h" in command("worker", "answers")


def test_processes_of_frequent_short_tasks_last_longer(command: Any) -> None:
    assert "--max-tasks-per-child 2000" in command("worker", "sweeps", "refresh")
    assert "--max-tasks-per-child" not in command("worker", "sweeps", "answers")


def test_a_worker_without_queues_takes_all(command: Any) -> None:
    assert "--queues" not in command("worker") and "worker@%h" in command("worker")


def test_beat_keeps_its_schedule_in_the_state_folder(command: Any, settings: Any) -> None:
    assert f"beat --schedule {settings.VAR}/beat " in command("beat")
