"""Sweeps and price refreshes have queues, and with Redis a worker, of their own."""

from typing import Any

from advisor.celery import app
from advisor.ops import supervise


def queue_of(task: str) -> str:
    return str(app.amqp.router.route({}, task)["queue"].name)


def queues(command: list[str]) -> set[str]:
    return set(command[command.index("--queues") + 1].split(","))


def test_each_task_goes_to_the_queue_of_its_kind(settings: Any) -> None:
    expected = {
        "advice.run": settings.ANSWERS,
        "probes.calibrate": settings.PROBES,
        "advice.sweep": settings.SWEEPS,
        "probes.sweep": settings.SWEEPS,
        "prices.sync": settings.REFRESH,
    }
    assert {task: queue_of(task) for task in expected} == expected
    app.loader.import_default_modules()
    assert expected.keys() <= app.tasks.keys()
    assert len({queue.routing_key for queue in app.amqp.queues.values()}) == len(app.amqp.queues)


def test_sweeps_do_not_count_against_the_recycling_of_workers_that_answer(settings: Any) -> None:
    settings.REDIS_URL = "redis://127.0.0.1"
    commands = supervise.worker_commands("8000")
    taken = [queues(command) for command in commands.values()]
    assert not set.intersection(*taken)
    assert set.union(*taken) == {*settings.QUEUES, settings.EARLIER_QUEUE}
    assert {settings.SWEEPS, settings.REFRESH} not in [names for names in taken if settings.ANSWERS in names]
    assert "--max-tasks-per-child" in commands["periodic"]
    assert len({command[command.index("--hostname") + 1] for command in commands.values()}) == 2


def test_one_worker_takes_everything_without_redis(settings: Any) -> None:
    settings.REDIS_URL = ""
    (command,) = supervise.worker_commands("8000").values()
    assert "--queues" not in command and {*settings.QUEUES, "celery"} == set(app.amqp.queues)
