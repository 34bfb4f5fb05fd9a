"""Benchmarks the search for layouts of training, and compares published layouts with the fastest found."""

import time
from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from django.core.management.base import BaseCommand

from advisor.engine import training
from advisor.engine.terms import efficiency
from catalog.management.errors import BadInput
from tests.laboratory.commands.bench_search import one_core
from tests.laboratory.commands.fidelity import catalog_estimator
from tests.laboratory.measurements import MeasurementsError, read
from tests.laboratory.training import layouts as training_layouts

# (model, accelerator, chips, sequence length, sequences of a step)
QUESTIONS = (
    ("meta-llama/Meta-Llama-3-70B", "h100-sxm", 64, 8192, 128),
    ("meta-llama/Llama-3.1-405B", "h100-sxm", 1024, 8192, 1536),
    ("Qwen/Qwen3-235B-A22B", "gb200", 256, 4096, 8192),
    ("deepseek-ai/DeepSeek-V3", "b200", 256, 4096, 4096),
)
REPEATS = 5  # the fastest counts
SHARES = (0.05, 0.1, 0.2)


class Command(BaseCommand):
    help = (
        "Layouts of training in FP8 that the search times per second on one core: parallel sizes, micro-batches and "
        "recomputation. With --measurements also published layouts against the fastest found."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--measurements", action="append", default=[], metavar="FILE.csv")

    def handle(self, *args: Any, **options: Any) -> None:
        known, _, _ = catalog_estimator()
        with one_core():
            self.stdout.write(speeds(known))
        if not options["measurements"]:
            return
        try:
            rows = [row for path in options["measurements"] for row in read(path)]
        except MeasurementsError as error:
            raise BadInput(str(error)) from error
        self.stdout.write(table(training_layouts.compare(rows, known)))


def speeds(known: Any) -> str:
    """Candidates a second of each question, and of all together."""
    lines, candidates, seconds = [f"{'question':<52}{'candidates':>11}{'ms':>9}{'per second':>12}"], 0, 0.0
    for model_id, slug, chips, length, batch in QUESTIONS:
        chip = known.accelerators[slug]
        job = training.Job(
            model=known.models[model_id], accelerator=chip, chips=chips, sequence_tokens=length, global_batch=batch,
            efficiency=efficiency(known.scopes, slug, chip.family, chip.kind), code=training.MEGATRON,
            recipe=replace(training.MEGATRON_BF16, matmul_dtype="fp8"),
        )  # fmt: skip
        found, spent_s = timed(job)
        candidates, seconds = candidates + found, seconds + spent_s
        name = f"{model_id} on {chips} {slug}"
        lines.append(f"{name:<52}{found:>11,}{spent_s * 1e3:>9.2f}{found / spent_s:>12,.0f}")
    return "\n".join([*lines, f"{'all':<52}{candidates:>11,}{seconds * 1e3:>9.2f}{candidates / seconds:>12,.0f}"])


def timed(job: training.Job) -> tuple[int, float]:
    """(candidates, seconds) of the fastest of a few searches, from the enumeration to the layouts that fit."""
    spent = []
    for _ in range(REPEATS):
        start_s = time.perf_counter()
        found = training.fastest(job)
        spent.append(time.perf_counter() - start_s)
    return found.candidates, min(spent)


def table(compared: Sequence[training_layouts.Compared]) -> str:
    """Each published layout, the largest differences last."""
    ordered = sorted(compared, key=lambda c: c.ratio)
    middle = ordered[len(ordered) // 2].ratio if ordered else 1.0
    shares = ", ".join(f"{training_layouts.within(ordered, 1 + most):.0%} within {most:.0%}" for most in SHARES)
    total = f"{len(ordered)} published layouts over the fastest found: median {middle:.3f}, {shares}"
    return "\n".join([*map(line, ordered), total])


def line(c: training_layouts.Compared) -> str:
    what = f"{c.case.accelerator_slug} x {c.case.chips} {c.case.model_id} {c.published.recipe.matmul_dtype}"
    doubt = "" if c.fits else " (predicted not to fit)"
    published, best = map(training_layouts.layout_text, (c.published, c.best))
    return f"{c.ratio:6.3f}  {what}: {published}{doubt} | found: {best}"
