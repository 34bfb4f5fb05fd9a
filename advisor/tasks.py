"""The Celery tasks, which call advise.py. Their names must not change, so that queued messages stay valid."""

from advisor import advise
from advisor.celery import app


@app.task(name="advice.run")
def run_advice(pk: str) -> None:
    advise.run(pk)


@app.task(name="advice.sweep")
def sweep() -> None:
    advise.sweep()
