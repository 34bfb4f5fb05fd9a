"""Kinds of workload: what each is judged by, what it does not use, and that nothing else in advisor compares kinds."""

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from advisor.engine.search.limits import tpot_limit_s
from advisor.engine.search.table import autoscales, run_fraction
from advisor.engine.terms.workloads.kinds import BATCH, EMBEDDING, KINDS, SERVING, JobRun, Kind, Outcome, kind_named
from advisor.engine.terms.workloads.workload import Slo
from tests.engine.catalog_sample import offer, question

ADVISOR = Path(__file__).resolve().parents[3] / "advisor"
NAMES = {*KINDS, "training", "finetuning"}
RUN = JobRun(
    requests=10_000, hours=6.25, start_hours=0.1, deadline_hours=8.0, every_hours=24.0, usd=1234.5, released=True
)
REACHED = Outcome(
    ttft_p95_s=0.8124,
    tpot_p95_s=0.03126,
    mean_requests_per_s=5.0,
    peak_requests_per_s=12.5,
    carrying_replicas=3,
    spare_replicas=1,
    utilisation_fraction=0.4,
    run=RUN,
)


def test_each_kind_is_found_under_its_own_name() -> None:
    assert list(KINDS) == ["serving", "embedding", "rerank", "image_generation", "batch", "training", "finetuning"]
    assert all(kind.name == name for name, kind in KINDS.items())


def test_a_name_without_an_engine_is_checked_as_serving() -> None:
    assert kind_named("batch") is BATCH
    assert kind_named("portfolio") is kind_named(None) is kind_named(["batch"]) is SERVING


@pytest.mark.parametrize(
    ("kind", "judged_by"), [(SERVING, "tpot_p95_s"), (BATCH, "tpot_p95_s"), (EMBEDDING, "ttft_p95_s")]
)
def test_the_latency_that_a_kind_is_judged_by(kind: Kind, judged_by: str) -> None:
    one, many = SimpleNamespace(ttft_p95_s=0.8, tpot_p95_s=0.03), SimpleNamespace(ttft_p95_s=np.ones(2), tpot_p95_s=[0])
    assert kind.tail_latency_s(one) == getattr(one, judged_by)
    assert kind.tail_latency_s(many) is getattr(many, judged_by)


def test_what_is_not_used_is_said_and_never_computed_with() -> None:
    limits = {f"slo.{name}" for name in ("ttft_ms_p95", "tpot_ms_p95", "e2e_ms_p95", "tokens_per_s_per_user")}
    assert {field for field in limits if SERVING.uses(field)} == limits
    assert {field for field in limits if EMBEDDING.uses(field)} == {"slo.ttft_ms_p95", "slo.e2e_ms_p95"}
    assert not any(BATCH.uses(field) for field in limits | {"slo.availability", "traffic.trace", "traffic.load_curve"})
    assert all(reason for kind in KINDS.values() for _, reason in kind.unused_inputs)


def test_a_limit_on_tokens_binds_only_what_generates_them() -> None:
    slow = Slo(tokens_per_s_per_user=20.0)
    assert tpot_limit_s(question(slo=slow)) == 0.05
    assert tpot_limit_s(question(slo=slow, kind=EMBEDDING)) is None


def test_only_what_ends_is_paid_for_while_it_runs() -> None:
    rented = offer("chip", 4.0, term="on_demand")
    job = question(kind=BATCH, slo=Slo(), deadline_s=7200.0, requests_per_s_mean=1.0, requests_per_s_peak=2.0)
    assert run_fraction(job, rented, 0.25) == 0.25 and run_fraction(question(), rented, 0.25) == 1.0
    week = (1.0, 0.5) * 84
    assert autoscales(question(week=week), rented) and not autoscales(replace(job, week=week), rented)


@pytest.mark.parametrize(
    ("kind", "end"),
    [
        (SERVING, "p95 TTFT 812 ms and p95 TPOT 31.3 ms at the peak of 12.5 requests/s"),
        (EMBEDDING, "p95 latency 812 ms at the peak of 12.5 requests/s"),
        (BATCH, "a run takes 6.2 h of the 8 h allowed"),
    ],
)
def test_how_a_verdict_ends(kind: Kind, end: str) -> None:
    assert kind.verdict_end(REACHED) == end


def test_what_the_size_of_an_option_rests_on() -> None:
    peak = (
        "the peak of 12.5 requests/s is simulated on 3 replicas plus 1 spare replica; the average load of 5 requests/s "
        "uses 40% of the capacity"
    )
    assert SERVING.load_reasons(REACHED) == EMBEDDING.load_reasons(REACHED) == [peak]
    took, start = BATCH.load_reasons(REACHED)
    assert "10,000 requests take 6.25 h" in took and took.endswith("the machines are released after each run")
    assert "6 minutes of startup" in start


def test_what_is_priced_by_the_token() -> None:
    assert {kind.name: kind.priced_token for kind in KINDS.values()} == {
        "serving": "output",
        "embedding": "input",
        "rerank": "input",
        "image_generation": "input",
        "batch": "output",
        "training": "input",
        "finetuning": "input",
    }
    without_output = [kind.name for kind in KINDS.values() if "usd_per_mtok_output" in kind.absent_figures]
    assert without_output == ["embedding", "rerank", "image_generation"]


# --- one place --------------------------------------------------------------------------------------------------


def reads_kind(node: ast.AST) -> bool:
    """`kind`, `x.kind`, `x.kind.name`, `x["kind"]`, `x.get("kind")`."""
    if isinstance(node, ast.Attribute):
        return node.attr == "kind" or node.attr == "name" and reads_kind(node.value)
    if isinstance(node, ast.Subscript):
        return isinstance(node.slice, ast.Constant) and node.slice.value == "kind"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
        first = node.args[0]
        return node.func.attr == "get" and isinstance(first, ast.Constant) and first.value == "kind"
    return isinstance(node, ast.Name) and node.id == "kind"


def imported_kinds(tree: ast.AST) -> set[str]:
    """Names under which a module holds the constants of kinds.py."""
    constants = {"SERVING", "EMBEDDING", "BATCH"}
    return {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("advisor.engine.terms")
        for alias in node.names
        if alias.name in constants
    }


def comparisons(text: str) -> Iterator[int]:
    """Lines on which a kind of workload is compared with a kind."""
    tree = ast.parse(text)
    kinds = imported_kinds(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
        elif isinstance(node, ast.Match):
            sides = [node.subject, *(case.pattern for case in node.cases)]
        else:
            continue
        parts = [part for side in sides for part in ast.walk(side)]
        named = any(isinstance(part, ast.Constant) and part.value in NAMES for part in parts)
        if any(isinstance(part, ast.Name) and part.id in kinds for part in parts):
            yield node.lineno
        elif named and any(reads_kind(side) for side in sides):
            yield node.lineno


@pytest.mark.parametrize(
    "text",
    [
        'if spec["kind"] == "batch": pass',
        'if spec.get("kind") != "embedding": pass',
        'if kind in ("serving", "embedding"): pass',
        'if workload.kind.name == "batch": pass',
        "from advisor.engine.terms import BATCH\nif workload.kind is BATCH: pass",
        "from advisor.engine.terms import EMBEDDING as E\nx = [w for w in all if w.kind == E]",
        'match w.kind:\n    case "training": pass',
    ],
)
def test_a_comparison_of_kinds_is_found(text: str) -> None:
    assert list(comparisons(text))


@pytest.mark.parametrize("text", ['if accelerator.kind == "cpu": pass', 'if row.phase == "serving": pass'])
def test_kinds_of_other_things_may_be_compared(text: str) -> None:
    assert not list(comparisons(text))


def test_only_the_kinds_themselves_know_which_kind_they_are() -> None:
    """Ask the kind for what you need (`workload.kind.has_arrivals`): a new kind is then one block in kinds.py."""
    found = [
        f"{path.relative_to(ADVISOR)}:{line}"
        for path in sorted(ADVISOR.rglob("*.py"))
        if path != ADVISOR / "engine" / "spec" / "kinds.py"
        for line in comparisons(path.read_text())
    ]
    assert found == []


def test_no_template_compares_kinds() -> None:
    pattern = re.compile(rf"kind\s*[!=]=\s*[\"'](?:{'|'.join(sorted(NAMES))})[\"']")
    assert [path.name for path in (ADVISOR / "templates").rglob("*.html") if pattern.search(path.read_text())] == []
