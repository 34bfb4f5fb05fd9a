"""A real worker whose engine takes as long as a test wants: it computes until the file `go` is there.

`celery -A tests.slow_worker worker` runs it; `python -m tests.slow_worker COUNT` queues advices and prints their ids.
"""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import django
from celery.signals import task_prerun

from advisor.celery import app
from advisor.result import Answer
from tests import answers as quick

FOLDER = Path(os.environ["ASSAY_VAR"])
BUSY_S = float(os.environ.get("ASSAY_TEST_BUSY_S", "0"))  # computes for so long at least
SILENT = "ASSAY_TEST_SILENT" in os.environ  # says nothing while it computes: only the thread keeps the lease


def recommend(spec: dict[str, Any], snapshot: Any, progress: Callable[[str, float], None]) -> Answer:
    with (FOLDER / "runs").open("a") as runs:
        runs.write(f"{os.getpid()}\n")
    note_if_done_before(spec["name"])
    begun = time.monotonic()
    while not (FOLDER / "go").exists() or time.monotonic() - begun < BUSY_S:
        time.sleep(0.05)
        if not SILENT:
            progress("waiting", 0.5)
    return quick.recommend(spec, snapshot).changed(verdict=str(os.getpid()))


def note_if_done_before(name: str) -> None:
    from advisor.models import Advice

    if Advice.objects.filter(workload__name=name, state="done").exists():
        with (FOLDER / "repeated").open("a") as repeated:
            repeated.write(f"{name}\n")


def queue(count: int) -> None:
    from advisor import advise
    from advisor.models import Workload

    organisation = advise.default_organisation()
    for _ in range(count):
        name = f"w{Workload.objects.count()}"
        workload = Workload.objects.create(organisation=organisation, name=name, spec={"name": name})
        print(advise.queue(workload).pk)


@task_prerun.connect
def fit_slowly(task: Any, **given: Any) -> None:
    if task.name == "probes.calibrate":
        with (FOLDER / "runs").open("a") as runs:
            runs.write(f"{os.getpid()}\n")
        while not (FOLDER / "go").exists():
            time.sleep(0.05)


def replace_engine() -> None:
    django.setup()
    from advisor import answer, inputs

    inputs.take_snapshot, answer.verdict_first = quick.snapshot, quick.in_one_step(recommend)


replace_engine()
__all__ = ["app"]

if __name__ == "__main__":
    queue(int(sys.argv[1]))
