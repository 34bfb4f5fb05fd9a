"""CPU seconds and simulations of answers, and whether two versions of the code give the same figures.

python -m tests.measuring.answer_cost record FILE [NAME ...]   # answers shipped workloads in one process
python -m tests.measuring.answer_cost first FILE [NAME ...]    # only what the first screen shows
python -m tests.measuring.answer_cost compare BEFORE AFTER     # lists figures that differ by more than 1e-6

The first two count CPU seconds, simulations and simulated requests of each answer. The first workload is answered once
before it is counted, so that no compilation is. A name with `@N` has its traffic changed by up to 1%, by the seed N.
"""

import json
import math
import os
import random
import resource
import statistics
import sys
from pathlib import Path
from typing import Any

from tests.same_answers import differences

WORKLOADS = Path("fixtures/workloads")
TOLERANCE = 1e-6
CHANGED = 0.01  # at most, by a seed
TRAFFIC = (
    "traffic.requests_per_s.mean", "traffic.requests_per_s.peak", "traffic.turns.conversations_per_hour",
    "traffic.users.think_s", "batch.requests", "training.tokens",
)  # fmt: skip
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


def record(file: Path, names: list[str], first_screen: bool = False) -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "advisor.settings")
    import django

    django.setup()
    counter, found = Counter(), {}
    for name in names or sorted(each.stem for each in WORKLOADS.glob("*.yaml")):
        found[name] = answered(name, counter, first_screen)
        print(name, found[name]["cost"], flush=True)
        file.write_text(json.dumps(found, ensure_ascii=False))
    spent = [each["cost"]["cpu_s"] for each in found.values()]
    print(f"median {statistics.median(spent):.2f} s CPU, at most {max(spent):.2f}")


def answered(name: str, counter: Counter, first_screen: bool) -> Json:
    from advisor import report
    from advisor.answer import recommend
    from advisor.inputs import take_snapshot
    from advisor.management.commands.advise import question
    from catalog.models import default_organisation

    name, _, seed = name.partition("@")
    spec = question(WORKLOADS / f"{name}.yaml", [])
    if seed:
        change_traffic(spec, 1.0 + random.Random(f"{name} {seed}").uniform(-CHANGED, CHANGED))
    snapshot = take_snapshot(spec, default_organisation())
    if not counter.runs:
        recommend(spec, snapshot, first_screen=first_screen)
    began, runs, requests = cpu_s(), counter.runs, counter.requests
    answer = recommend(spec, snapshot, first_screen=first_screen)
    cost = {
        "cpu_s": round(cpu_s() - began, 2),
        "simulations": counter.runs - runs,
        "requests": counter.requests - requests,
    }
    whole = answer.to_json()
    if first_screen:
        whole = {"decision": whole.get("decision"), "screen": report.screen_text(report.screen_of(answer))}
    return {"cost": cost, "answer": whole}


def change_traffic(spec: Json, ratio: float) -> None:
    """Multiplies the traffic of a workload, or of each workload of a portfolio."""
    for part in spec.get("workloads") or []:
        change_traffic(part, ratio)
    for path in TRAFFIC:
        *outer, last = path.split(".")
        inner: Any = spec
        for key in outer:
            inner = inner.get(key) if isinstance(inner, dict) else None
        if isinstance(inner, dict) and isinstance(inner.get(last), int | float):
            inner[last] = type(inner[last])(inner[last] * ratio)


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
        case ["record" | "first" as what, file, *names]:
            record(Path(file), names, what == "first")
        case ["compare", before, after]:
            found = compare(Path(before), Path(after))
            print(*found, f"{len(found)} differences", sep="\n")
            sys.exit(bool(found))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
