"""Benchmarks the search: candidates per second on one core, and growth of time and memory."""

import json
import os
import time
import tracemalloc
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from django.core.management.base import BaseCommand

from advisor.engine.search import Question
from advisor.management.commands.advise import require_catalog
from catalog.management.errors import BadInput
from catalog.models import Accelerator
from catalog.shipped import FIXTURES

FILE = FIXTURES / "workloads" / "support-chat.yaml"
SHARES = (4, 2, 1)  # a quarter, half and all of the lanes
UNBOUND = {"slo": {}, "constraints": {"quality": "any", "acquisition": ["rent", "own"]}}


class Command(BaseCommand):
    help = (
        "Candidates per second on one core, for the support-chat workload without limits over the whole catalog. A "
        "candidate is a combination of chip, offer, layout, formats, framework and concurrency, evaluated to memory, "
        "TTFT, TPOT, throughput and cost. Layouts that do not fit are counted separately."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--format", choices=("table", "json"), default="table")
        parser.add_argument("--accelerators", nargs="*", default=[], help="only these accelerators")

    def handle(self, *args: Any, **options: Any) -> None:
        require_catalog()
        known = Accelerator.objects.filter(slug__in=options["accelerators"]).values_list("slug", flat=True)
        if unknown := set(options["accelerators"]) - set(known):
            raise BadInput(f"--accelerators: not in the catalog: {', '.join(sorted(unknown))}; give their slugs")
        workload, catalog = question(options["accelerators"])
        with one_core():
            result = measure(Question(workload, catalog))
        self.stdout.write(json.dumps(result, indent=1) if options["format"] == "json" else table(result))


def question(accelerators: Sequence[str]) -> tuple[Any, Any]:
    """The workload, without any limits, and the catalog as engine values."""
    from advisor.inputs import catalog_of, take_snapshot, workload_of
    from advisor.workload import load, parse

    raw = {**load(FILE.read_bytes()), **UNBOUND}
    if accelerators:
        raw["constraints"] = {**UNBOUND["constraints"], "accelerators": {"allow": list(accelerators)}}
    spec = parse(raw)
    return workload_of(spec), catalog_of(spec, take_snapshot(spec))


@contextmanager
def one_core() -> Iterator[None]:
    """Runs this process on a single core, if the system supports that."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def measure(question: Question) -> dict[str, Any]:
    """Times each share of the lanes, and runs it again to measure its memory."""
    from advisor.engine.search import evaluate

    start_s = time.perf_counter()
    lanes = lanes_of(question)
    enumerated_s = time.perf_counter() - start_s
    evaluate(question, lanes[:: max(len(lanes) // 50, 1)])  # warm-up
    growth = []
    for share in SHARES:
        part = lanes[::share]
        start_s = time.perf_counter()
        evaluation = evaluate(question, part)
        seconds = time.perf_counter() - start_s
        growth.append({"candidates": evaluation.evaluated, "seconds": seconds, "peak_mb": peak_mb(question, part)})
    seconds = enumerated_s + growth[-1]["seconds"]
    return {
        "candidates": evaluation.evaluated,
        "seconds": seconds,
        "candidates_per_s": evaluation.evaluated / seconds,
        "pruned": evaluation.pruned,
        "peak_mb": growth[-1]["peak_mb"],
        "layouts": len(lanes),
        "growth": growth,
    }


def lanes_of(question: Question) -> list[Any]:
    """All valid layouts of the chips with an offer."""
    from advisor.engine.search import offers_for
    from advisor.engine.search.candidates import enumerate_lanes

    c = question.workload.constraints
    sold = {o.accelerator for o in offers_for(question)}
    chips = [a for a in question.catalog.accelerators if a.served and a.slug in sold]
    chips = [a for a in chips if not c.accelerators_allow or a.slug in c.accelerators_allow]
    return enumerate_lanes(question, chips)[0]


def peak_mb(question: Question, lanes: Sequence[Any]) -> float:
    """The peak memory of the evaluation in MB (10^6 bytes)."""
    from advisor.engine.search import evaluate

    tracemalloc.start()
    try:
        evaluate(question, lanes)
        return tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()


def table(result: dict[str, Any]) -> str:
    lines = [
        f"{result['candidates']:,} candidates of {result['layouts']:,} layouts in {result['seconds']:.2f} s: "
        f"{result['candidates_per_s']:,.0f} per second on one core, {result['peak_mb']:.0f} MB; "
        f"{result['pruned']:,} pruned by memory",
        f"{'candidates':>12} {'seconds':>9} {'per second':>12} {'peak MB':>9}",
    ]
    lines += [
        f"{g['candidates']:>12,} {g['seconds']:>9.3f} {g['candidates'] / g['seconds']:>12,.0f} {g['peak_mb']:>9.1f}"
        for g in result["growth"]
    ]
    return "\n".join(lines)
