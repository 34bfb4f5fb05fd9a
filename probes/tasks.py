"""Celery tasks. Their names must not change, or queued messages would fail after an upgrade."""

from advisor.celery import app
from probes import periodic
from probes.fitted import fitting


@app.task(name="probes.sweep")
def sweep() -> None:
    periodic.sweep()


@app.task(name="probes.calibrate")
def calibrate_from(pk: int) -> None:
    fitting.run(pk)
