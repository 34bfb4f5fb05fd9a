"""Benchmarks the closed-form ranking of the whole catalog: what-if questions after the first one."""

import itertools
import json
import random
import statistics
import time
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from typing import Any

from django.core.management.base import BaseCommand

from advisor.engine.terms import kind_named
from advisor.management.commands.advise import question, require_catalog
from advisor.workload import WorkloadError
from catalog.management.errors import BadInput, at_least_one
from catalog.models import Accelerator, ServedModel
from tests.laboratory.commands.bench_advise import FOLDER, shipped

# changes of one control each, as a planner tries them; budgets are multiples of the cheapest option's cost
BUDGETS = (0.9, 1.5, 4.0)
CHANGES = (
    {"load": ["1.5"]},
    {"load": ["0.5"]},
    {"vendor": ["amd"]},
    {"region": ["DE"]},
    {"class": ["data_center"]},
    {"max_chips": ["16"]},
    {"price_on_demand": ["1.2"]},
    {"objective": ["latency"]},
    {"objective": ["energy"]},
)
LIMITS = ({"ttft": ["500"]}, {"tpot": ["30"]})  # of kinds that generate tokens
DEFAULT = ("support-chat", "code-assistant", "deepseek-r1", "reasoning", "long-document-rag", "embedding")
SMALL = ("clinic-edge", "gpt-oss-mi300x")


class Command(BaseCommand):
    help = (
        "CPU milliseconds of quick answers: the first one for a question, then a what-if for each control, with the "
        "catalog and the question's lanes kept in the process. Also the estimate below the form for new lengths."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("workloads", nargs="*", help=f"names of shipped workloads; default: {', '.join(DEFAULT)}")
        parser.add_argument("--estimates", type=int, default=10_000, help="in closed form, of one call; 0: none")
        parser.add_argument("--questions", type=int, default=40, help="of a grid of 200 in closed form; 0: none")
        parser.add_argument("--runs", type=int, default=3)
        parser.add_argument("--format", choices=("table", "json"), default="table")

    def handle(self, *args: Any, **options: Any) -> None:
        require_catalog()
        at_least_one("--runs", options["runs"])
        names = options["workloads"] or [*DEFAULT, *SMALL]
        known = {file.stem for file in shipped()}
        if unknown := [name for name in names if name not in known]:
            raise BadInput(f"no such shipped workload: {', '.join(unknown)}; see fixtures/workloads")
        rows = [measure(name, options["runs"]) for name in names]
        every = [ms for row in rows for ms in row.pop("each_ms")]
        rates = {**estimates_rate(options["estimates"]), **questions_rate(options["questions"])}
        total = {"median_ms": statistics.median(every), "p95_ms": percentile(every, 95), "what_ifs": len(every)}
        result = {"workloads": rows, "all": total, **rates}
        self.stdout.write(json.dumps(result, indent=1) if options["format"] == "json" else table(result))


def measure(name: str, runs: int) -> dict[str, Any]:
    from advisor.answer import quick
    from advisor.answer.quick import kept
    from advisor.inputs import what_if

    spec = question(FOLDER / f"{name}.yaml", [])
    kept.forget()
    first_ms, ranking = timed_ms(lambda: quick.quick_answer(spec))
    each_ms = []
    for run in range(runs):
        for change in changes(spec, ranking, run):
            ms, _ = timed_ms(lambda change=change: quick.quick_answer(what_if.changed(spec, change)))
            each_ms.append(ms)
    rough_ms = [timed_ms(lambda new=new: quick.quick_answer(new))[0] for new in longer(spec, runs)]
    return {
        "workload": name,
        "first_ms": first_ms,
        "median_ms": statistics.median(each_ms),
        "p95_ms": percentile(each_ms, 95),
        "estimate_median_ms": statistics.median(rough_ms),
        "options": len(ranking.options),
        "candidates": ranking.candidates,
        "each_ms": each_ms,
    }


CHIPS = ("h100-sxm", "h200-sxm", "mi300x", "l40s", "a100-sxm-80gb")
BASE = {"model": "meta-llama/Llama-3.1-8B", "weights": "fp8", "osl": 200, "method": "closed_form"}
SIZES = {"accelerator": CHIPS, "tp": (1, 2, 4, 8), "isl": (100, 500, 1000, 2000, 8000), "concurrency": range(1, 101)}


def estimates_rate(count: int) -> dict[str, float]:
    """Estimates of one call in a CPU second, from its entries to lines of JSON: of one model, then of any on any chip.

    Drawn entries are mostly refused; their first call also reads the catalog.
    """
    from advisor.answer import closed_estimates

    if not count:
        return {}
    combinations = itertools.islice(itertools.product(*SIZES.values()), count)
    entries = [{**BASE, **dict(zip(SIZES, values, strict=True))} for values in combinations]
    found: dict[str, float] = {"estimates": len(entries)}
    estimator = closed_estimates.Estimator()
    for name, asked in (("", entries), ("drawn_first_", drawn(count, 1)), ("drawn_", drawn(count, 2))):
        ms, _ = timed_ms(lambda asked=asked: [json.dumps(each, default=str) for each in estimator.results(asked)])
        found[f"estimates_{name}per_cpu_s"] = len(asked) / ms * 1e3
    return found


def drawn(count: int, seed: int) -> list[dict[str, Any]]:
    """Entries of any model on any chip."""
    chance = random.Random(seed)
    values = {
        "model": list(ServedModel.objects.order_by("hf_id").values_list("hf_id", flat=True)),
        "accelerator": list(Accelerator.objects.order_by("slug").values_list("slug", flat=True)),
        "weights": ("bf16", "fp8", "int4"), "tp": (1, 2, 4, 8), "isl": range(1, 8001), "concurrency": range(1, 257),
    }  # fmt: skip
    return [BASE | {key: chance.choice(each) for key, each in values.items()} for _ in range(count)]


def questions_rate(count: int) -> dict[str, float]:
    """Questions of a grid of 200 about one model in a CPU second, as a study answers them by formulas."""
    from advisor import inputs
    from advisor.answer import quick

    if not count:
        return {}
    asked = question(FOLDER / "support-chat.yaml", [])
    snapshot = inputs.take_snapshot(asked)
    axes = itertools.product((20, 30, 40, 60, 100), (1, 2, 4, 8, 16, 24, 32, 48, 64, 96), (500, 1000, 2000, 4000))
    specs = []
    for tpot, mean, tokens in axes:
        traffic = asked["traffic"] | {
            "input_tokens": {"mean": tokens, "p95": 3 * tokens},
            "requests_per_s": {"mean": mean, "peak": 3 * mean},
        }
        specs.append({**asked, "slo": {**asked["slo"], "tpot_ms_p95": tpot}, "traffic": traffic})
    specs = sorted(specs[:: max(len(specs) // count, 1)][:count], key=quick.lanes_key)
    ms, _ = timed_ms(lambda: [quick.quick_row(spec, snapshot, "bench") for spec in specs])
    return {"questions": len(specs), "questions_per_cpu_s": len(specs) / ms * 1e3}


def changes(spec: dict[str, Any], ranking: Any, run: int) -> Iterator[dict[str, list[str]]]:
    """The changes of one run that the question allows; no two are equal, so that none is answered from memory."""
    from advisor.inputs import what_if

    usd = ranking.options[0].usd_per_month if ranking.options else 10_000.0
    limits = LIMITS if kind_named(spec["kind"]).uses("slo.tpot_ms_p95") else ()
    for change in (*({"budget": [f"{usd * k + run:.2f}"]} for k in BUDGETS), *limits, *CHANGES):
        fresh = {"budget": [f"{usd * 50 + run:.2f}"]} | change
        try:
            what_if.changed(spec, fresh)
        except WorkloadError:
            continue
        yield fresh


def longer(spec: dict[str, Any], runs: int) -> Iterator[dict[str, Any]]:
    """The question with slightly longer prompts, as while a number is typed."""
    for run in range(runs):
        tokens = {key: value * (1.01 + run / 100) for key, value in spec["traffic"]["input_tokens"].items()}
        yield {**spec, "traffic": {**spec["traffic"], "input_tokens": tokens}}


def timed_ms(compute: Any) -> tuple[float, Any]:
    start_s = time.process_time()
    value = compute()
    return (time.process_time() - start_s) * 1e3, value


def percentile(values: Sequence[float], percent: float) -> float:
    return sorted(values)[min(int(len(values) * percent / 100), len(values) - 1)]


def table(result: dict[str, Any]) -> str:
    head = ("workload", "first ms", "what-if median ms", "p95 ms", "form estimate ms", "options", "candidates")
    lines = ["  ".join(name.rjust(18) if name != "workload" else name.ljust(18) for name in head)]
    for row in result["workloads"]:
        figures = (row["first_ms"], row["median_ms"], row["p95_ms"], row["estimate_median_ms"])
        shown = [*(f"{ms:,.0f}" for ms in figures), f"{row['options']}", f"{row['candidates']:,}"]
        lines.append("  ".join([row["workload"].ljust(18), *(text.rjust(18) for text in shown)]))
    total = result["all"]
    lines.append(
        f"all {total['what_ifs']} what-ifs: median {total['median_ms']:,.0f} ms, p95 {total['p95_ms']:,.0f} ms"
    )
    for what in ("estimates", "questions"):
        if what in result:
            lines.append(f"{result[what]:,} {what} in closed form: {result[f'{what}_per_cpu_s']:,.1f} a CPU second")
    if "estimates" in result:
        first, later = (result[f"estimates_drawn_{name}per_cpu_s"] for name in ("first_", ""))
        lines.append(f"drawn from the whole catalog: {first:,.1f} a CPU second in the first call, then {later:,.1f}")
    return "\n".join(lines)
