"""Runs a study of 60 shipped workloads with changed traffic: `python -m tests.studies.bench WORKERS [ROWS]`.

Prints the wall time, the CPU time of the answers, and the CPU time of everything else: claiming pieces, reading shared
rows and storing results (`overhead`), and processes that start and settle (`outside`). CPU times do not depend on what
else the machine does; wall times do.
"""

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import django

from tests.test_layers import ROOT

SHIPPED = ("embedding", "edge-chat", "finetune-lora-8b", "rerank", "office-assistant", "support-chat")
RATES = ("requests_per_s",)


def workload(name: str, factor: float) -> dict[str, Any]:
    """A shipped workload with another load."""
    from advisor.workload import load

    raw = load((ROOT / "fixtures" / "workloads" / f"{name}.yaml").read_bytes())
    traffic = raw.get("traffic") or {}
    for key in RATES:
        if isinstance(traffic.get(key), dict):
            traffic[key] = {k: v * factor if isinstance(v, int | float) else v for k, v in traffic[key].items()}
    if "finetuning" in raw and isinstance(raw["finetuning"].get("tokens"), int | float):
        raw["finetuning"]["tokens"] *= factor
    return {**raw, "name": f"{name} x {factor:g}"}


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main(workers: int, rows: int) -> None:
    from advisor.models import StudyPiece
    from advisor.studies import pieces
    from catalog.models import default_organisation

    asked = [workload(SHIPPED[n % len(SHIPPED)], 1 + 0.05 * (n // len(SHIPPED))) for n in range(rows)]
    study = pieces.request({"kind": "workloads", "workloads": asked}, default_organisation(), awake=False)
    command = [sys.executable, "manage.py", "study", "work", str(study.pk)]
    began_s = time.monotonic()
    started = [subprocess.Popen(command, cwd=ROOT) for _ in range(workers)]
    for process in started:
        process.wait()
    wall_s, total_s = time.monotonic() - began_s, cpu_s()
    subprocess.run(command, cwd=ROOT, check=True)  # a finished study: what a process takes to start
    start_s = cpu_s() - total_s
    done = pieces.progress(study)
    each = sorted(piece.cpu_s or 0.0 for piece in StudyPiece.objects.filter(study=study, phase=1))
    outside_s = total_s - done.cpu_s - done.overhead_cpu_s - workers * start_s
    figures = {
        "workers": workers, "rows": rows, "state": done.done, "wall_s": round(wall_s, 1),
        "answers_cpu_s": round(done.cpu_s, 1), "overhead_cpu_s": round(done.overhead_cpu_s, 2),
        "outside_cpu_s": round(outside_s, 2), "start_cpu_s_per_process": round(start_s, 2),
        "coordination_fraction": round((done.overhead_cpu_s + outside_s) / total_s, 5),
        "piece_cpu_s": [each[0], each[len(each) // 2], each[-1]],
        "load": os.getloadavg(),
    }  # fmt: skip
    print(json.dumps(figures), flush=True)
    Path(os.environ["ASSAY_VAR"], f"bench-{workers}-{rows}.json").write_text(json.dumps({**figures, "each_s": each}))


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "advisor.settings")
    django.setup()
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 60)
