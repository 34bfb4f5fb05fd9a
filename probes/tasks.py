"""What a message may wake; the work is in duties.py and calibrate.py. The names stay, so that old messages do."""

from advisor.celery import app
from probes import calibrate, duties


@app.task(name="probes.sweep")
def sweep() -> None:
    duties.sweep()


@app.task(name="probes.calibrate")
def calibrate_from(pk: int) -> None:
    calibrate.run(pk)
