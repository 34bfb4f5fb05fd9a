"""Benchmarks `advise`: CPU time on one core, in total and by part."""

import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from argparse import ArgumentParser
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import yaml
from django.conf import settings
from django.core.management.base import BaseCommand

from advisor.management.commands.advise import question, require_catalog
from advisor.workload.fixed.training_run import TRAINING_KINDS
from catalog import clock
from catalog.management.errors import BadInput, at_least_one, writing
from catalog.shipped import FIXTURES
from tests.laboratory.commands.bench_search import one_core

FOLDER = FIXTURES / "workloads"
# the functions that make up each part; `simulated` is contained in the others
PARTS = {
    "estimates": tuple(f"advisor.engine.search.run.{name}" for name in ("enumerate_lanes", "evaluate", "with_drafts")),
    "ranking": ("advisor.engine.search.run._decide",),
    "variants": ("advisor.engine.search.run._other_ways",),
    "views": ("advisor.engine.search.run.view_winners",),
    "why_not": tuple(
        f"advisor.engine.search.run.{name}" for name in ("_missed", "retry_with_any_quality", "frameworks", "formats")
    ),
    "unpriced": ("advisor.engine.search.run.unranked",),
    "tornado": ("advisor.answer.ranking.sensitivity",),
    "mix": ("advisor.answer.advice.find_mix",),
    "options": ("advisor.answer.advice.option",),
}
SIMULATED = "advisor.engine.scheduler.percentiles.simulate"


class Command(BaseCommand):
    help = (
        "CPU seconds of each shipped workload on one core, by part (medians, with code and catalog loaded), and "
        "of a complete `advise` process."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("workloads", nargs="*", help="names of shipped workloads; default: all")
        parser.add_argument("--runs", type=int, default=3)
        parser.add_argument("--format", choices=("table", "json"), default="table")
        parser.add_argument("--write-docs", type=Path, metavar="FILE.md", help="also write the documentation page")

    def handle(self, *args: Any, **options: Any) -> None:
        require_catalog()
        at_least_one("--runs", options["runs"])
        files = [FOLDER / f"{name}.yaml" for name in options["workloads"]] or shipped()
        if unknown := [f.stem for f in files if not f.exists()]:
            raise BadInput(f"no such shipped workload: {', '.join(unknown)}; see fixtures/workloads")
        with one_core():
            rows = [measure(file, options["runs"]) for file in files]
        if options["write_docs"]:
            machine = f"one of {os.cpu_count()} processors ({platform.machine()})"
            with writing(options["write_docs"]):
                options["write_docs"].write_text(page(rows, f"{clock.today():%Y-%m-%d}, {machine}", options["runs"]))
        self.stdout.write(json.dumps(rows, indent=1) if options["format"] == "json" else table(rows))


def shipped() -> list[Path]:
    """The shipped workloads, without training runs: their search has other parts."""
    return [f for f in sorted(FOLDER.glob("*.yaml")) if yaml.safe_load(f.read_text()).get("kind") not in TRAINING_KINDS]


def measure(file: Path, runs: int) -> dict[str, Any]:
    """Medians of the runs in this process, after a warm-up run, and the CPU time of a separate process."""
    from advisor.answer import recommend
    from advisor.inputs import take_snapshot

    spec = question(file, [])
    snapshot = take_snapshot(spec)
    recommend(spec, snapshot)
    measured = [timed(lambda: recommend(spec, snapshot)) for _ in range(runs)]
    middle = {name: statistics.median(run[name] for run in measured) for name in measured[0]}
    return {"workload": file.stem, **middle, "process_cpu_s": process_cpu_s(file)}


def timed(compute: Callable[[], Any]) -> dict[str, float]:
    """Elapsed and CPU seconds, CPU seconds of each part, and the number of simulations."""
    spent: dict[str, float] = defaultdict(float)
    with ExitStack() as clocks:
        for part, names in PARTS.items():
            for name in names:
                clocks.enter_context(clocked(name, part, spent))
        clocks.enter_context(clocked(SIMULATED, "simulated", spent))
        start_s, start_cpu_s = time.perf_counter(), time.process_time()
        compute()
        cpu_s, elapsed_s = time.process_time() - start_cpu_s, time.perf_counter() - start_s
    parts = {f"{part}_s": spent[part] for part in PARTS}
    rest_s = cpu_s - sum(parts.values())
    counted = {"simulated_s": spent["simulated"], "simulations": spent["simulated calls"]}
    return {"elapsed_s": elapsed_s, "cpu_s": cpu_s, **parts, "rest_s": rest_s, **counted}


@contextmanager
def clocked(name: str, part: str, spent: dict[str, float]) -> Iterator[None]:
    """Adds the CPU time of a function to `spent`; recursive calls count once."""
    module, _, attribute = name.rpartition(".")
    __import__(module)
    inner, inside = getattr(sys.modules[module], attribute), [0]

    def run(*args: Any, **kwargs: Any) -> Any:
        inside[0] += 1
        start_s = time.process_time()
        try:
            return inner(*args, **kwargs)
        finally:
            inside[0] -= 1
            if not inside[0]:
                spent[part] += time.process_time() - start_s
                spent[f"{part} calls"] += 1

    with patch.object(sys.modules[module], attribute, run):
        yield


def process_cpu_s(file: Path) -> float:
    """User and system seconds of one `manage.py advise`, including startup."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "advisor", "advise", str(file), "--format", "json"]
    subprocess.run(command, cwd=settings.BASE_DIR, stdout=subprocess.DEVNULL, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


COLUMNS = (*PARTS, "rest", "simulated")


def table(rows: Sequence[dict[str, Any]]) -> str:
    head = " ".join(f"{name.replace('_', ' '):>9}" for name in COLUMNS)
    lines = [f"{'workload':<18} {'elapsed s':>9} {'CPU s':>6} {'process':>7} {'sims':>5} {head}"]
    for r in rows:
        shares = " ".join(f"{r[f'{name}_s'] / r['cpu_s']:>9.0%}" for name in COLUMNS)
        lines.append(
            f"{r['workload']:<18} {r['elapsed_s']:>9.2f} {r['cpu_s']:>6.2f} {r['process_cpu_s']:>7.2f} "
            f"{r['simulations']:>5.0f} {shares}"
        )
    slow = [r["workload"] for r in rows if r["cpu_s"] >= 3]
    within = f"{len(rows) - len(slow)} of {len(rows)} within three seconds on one core"
    return "\n".join([*lines, within + (f"; slower: {', '.join(slow)}" if slow else "")])


PAGE_HEAD = (
    "# Answer time",
    "How long does each shipped workload take, and what takes the time?",
    "Generated by `manage.py bench_advise --write-docs docs/reference/performance.md`; do not edit. The command "
    "answers "
    "every shipped workload but the training runs over the whole catalog on one core. The finalists of the ranking, "
    "of each view, of the why-not list and of the sensitivity analysis are simulated; percentiles come only from "
    "simulations. "
    "[What makes the search fast](../explanation/search-time.md) explains the figures and compares them with another "
    "tool.",
)
PAGE_COLUMNS = (
    "- *elapsed*, *CPU*: the answer itself (its `elapsed_s`), with the code loaded.",
    "- *process*: all CPU seconds of one `manage.py advise`, including starting Python and Django, loading the "
    "compiled "
    "simulator and reading the catalog.",
    "- *sims*: number of simulations of 500 or 2,000 measured requests. *simulated*: their share of the CPU time, "
    "contained in the other parts.",
    "- *estimates*: closed-form estimates over the whole catalog for the main question, with and without draft models. "
    "*ranking*, *variants* (speculative decoding, disaggregated serving), *views*, *why not*, *unpriced* (chips "
    "that no allowed offer prices), *sensitivity* and *mix* include their own estimates and simulations. *options*: "
    "the documents of each option shown.",
)
PAGE_NAMES = {"why_not": "why not", "tornado": "sensitivity"}


def page(rows: Sequence[dict[str, Any]], measured_on: str, runs: int) -> str:
    """The Markdown of docs/reference/performance.md."""
    heads = ("workload", "elapsed s", "CPU s", "process s", "sims", *(PAGE_NAMES.get(name, name) for name in COLUMNS))
    lines = ["| " + " | ".join(heads) + " |", "|---|" + "---:|" * (len(heads) - 1)]
    for r in rows:
        figures = (f"{r['elapsed_s']:.2f}", f"{r['cpu_s']:.2f}", f"{r['process_cpu_s']:.2f}", f"{r['simulations']:.0f}")
        shares = (f"{r[f'{name}_s'] / r['cpu_s']:.0%}" for name in COLUMNS)
        lines.append("| " + " | ".join((r["workload"], *figures, *shares)) + " |")
    answers, processes = ([r[key] for r in rows] for key in ("cpu_s", "process_cpu_s"))
    within = [f"{sum(s < 3 for s in each)} of {len(each)}" for each in (answers, processes)]
    summary = (
        f"Within three seconds on one core: {within[0]} answers (the slowest {max(answers):.1f}), {within[1]} complete "
        f"processes (the slowest {max(processes):.1f})."
    )
    measured = f"Measured {measured_on}. Medians of {runs} runs."
    return "\n\n".join([*PAGE_HEAD, measured, "\n".join(lines), summary, "\n".join(PAGE_COLUMNS)]) + "\n"
