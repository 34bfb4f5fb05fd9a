"""Computes a study as `manage.py study work` does, with pieces that take as long as a test wants.

`python -m tests.studies.slow_study create COUNT` prints the ID of a new study. `work ID` computes pieces, each until
the file `go` is there.
"""

import os
import sys
import time
from pathlib import Path
from typing import Any

import django

FOLDER = Path(os.environ["ASSAY_VAR"])


def answered(piece: Any, point: Any, check: Any) -> Any:
    with (FOLDER / "runs").open("a") as runs:
        runs.write(f"{point['index']}\n")
    while not (FOLDER / "go").exists():
        time.sleep(0.02)
        check()
    return {"workload": point["asked"]["name"], "feasible": True}


def main(do: str, value: str) -> None:
    from advisor import inputs
    from advisor.studies import compute, pieces
    from catalog.models import default_organisation
    from tests.studies import sample

    compute.answered, compute.read_rows = answered, lambda piece: []
    if do == "work":
        pieces.drain(value)
        return
    inputs.check_catalog = lambda *given, **named: None
    inputs.with_catalog_names = lambda spec, organisation=None: dict(spec)
    print(pieces.request(sample.workloads(int(value)), default_organisation(), awake=False).pk)


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "advisor.settings")
    django.setup()
    main(*sys.argv[1:])
