"""CPU seconds and simulations of answers, and whether two versions of the code give the same figures.

python -m tests.measuring.answer_cost record FILE [NAME ...]   # answers shipped workloads in one process
python -m tests.measuring.answer_cost compare BEFORE AFTER     # lists figures that differ by more than 1e-6

`record` counts CPU seconds, simulations and simulated requests of each answer. The first workload is answered once
before it is counted, so that no compilation is.
"""

import json
import math
import os
import resource
import statistics
import sys
from pathlib import Path
from typing import Any

from tests.same_answers import differences

WORKLOADS = Path("fixtures/workloads")
TOLERANCE = 1e-6
Json = dict[str, Any]


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


class Counter:
    """Counts simulations by wrapping the function that makes one."""

    def __init__(self) -> None:
        from advisor.engine.scheduler import percentiles

        self.runs, self.requests, inner = 0, 0, percentiles.simulate

        def counted(*given: Any, requests: int = 2000, **more: Any) -> Any:
            self.runs += 1
            self.requests += requests
            return inner(*given, requests=requests, **more)

        percentiles.simulate = counted


def record(file: Path, names: list[str]) -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "advisor.settings")
    import django

    django.setup()
    counter, found = Counter(), {}
    for name in names or sorted(each.stem for each in WORKLOADS.glob("*.yaml")):
        found[name] = answered(name, counter)
        print(name, found[name]["cost"], flush=True)
        file.write_text(json.dumps(found, ensure_ascii=False))
    spent = [each["cost"]["cpu_s"] for each in found.values()]
    print(f"complete answers: median {statistics.median(spent):.2f} s CPU, at most {max(spent):.2f}")


def answered(name: str, counter: Counter) -> Json:
    from advisor.answer import recommend
    from advisor.inputs import take_snapshot
    from advisor.management.commands.advise import question
    from catalog.models import default_organisation

    spec = question(WORKLOADS / f"{name}.yaml", [])
    snapshot = take_snapshot(spec, default_organisation())
    if not counter.runs:
        recommend(spec, snapshot)
    began, runs, requests = cpu_s(), counter.runs, counter.requests
    answer = recommend(spec, snapshot)
    cost = {
        "cpu_s": round(cpu_s() - began, 2),
        "simulations": counter.runs - runs,
        "requests": counter.requests - requests,
    }
    return {"cost": cost, "answer": answer.to_json()}


def compare(before: Path, after: Path) -> list[str]:
    was, now = json.loads(before.read_text()), json.loads(after.read_text())
    found = []
    for name in sorted(was.keys() & now.keys()):
        old, new = was[name]["cost"], now[name]["cost"]
        print(name, ", ".join(f"{key} {old[key]} -> {new[key]}" for key in old))
        found += [f"{name}{line}" for line in differences("", was[name]["answer"], now[name]["answer"], equal)]
    return found


def equal(was: Any, now: Any) -> bool:
    if isinstance(was, int | float) and isinstance(now, int | float):
        return math.isclose(was, now, rel_tol=TOLERANCE, abs_tol=1e-12)
    return bool(was == now)


def main(arguments: list[str]) -> None:
    match arguments:
        case ["record", file, *names]:
            record(Path(file), names)
        case ["compare", before, after]:
            found = compare(Path(before), Path(after))
            print(*found, f"{len(found)} differences", sep="\n")
            sys.exit(bool(found))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
