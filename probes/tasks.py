"""What a message may wake; the work is in jobs.py and calibrate.py. The names are fixed so old messages stay valid."""

from advisor.celery import app
from probes import jobs


@app.task(name="probes.sweep")
def sweep() -> None:
    jobs.sweep()
