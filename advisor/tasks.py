"""What a message may wake; the work is in advise.py. The names are fixed so that old messages stay valid."""

from advisor import advise
from advisor.celery import app


@app.task(name="advice.run")
def run_advice(pk: str) -> None:
    advise.run(pk)


@app.task(name="advice.sweep")
def sweep() -> None:
    advise.sweep()
