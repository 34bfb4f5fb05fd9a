"""The estimate beside the form against the full answer to the same question: the bill, and the first chip.

The bench varies models, loads, limits, regions and ways to buy; `make soak` runs all of it.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from advisor.advise import default_organisation
from advisor.answer import quick, recommend
from advisor.engine.scheduler import open_loop, scheduler_of, verify
from advisor.engine.search import Question, prepare_question
from advisor.engine.search.candidates import enumerate_lanes
from advisor.engine.search.table import demand_of, evaluate
from advisor.engine.step import take
from advisor.engine.terms import Workload
from advisor.inputs import catalog_of, take_snapshot, workload_of
from advisor.management.commands.advise import question
from advisor.result import ApiOption, Option, QuickOption

pytestmark = [pytest.mark.margins, pytest.mark.django_db, pytest.mark.usefixtures("shipped")]
FOLDER = Path(__file__).resolve().parents[2] / "fixtures" / "workloads"
NEAR_FRACTION, FIRST = 0.25, 3
LEAST_RIGHT = 24  # of the bench; batches, reranking and devices of nearly the same price are the hardest
LLAMA_8B, QWEN_235B = "model=meta-llama/Llama-3.1-8B", "model=Qwen/Qwen3-235B-A22B"
RENT, OWN = "constraints.acquisition=[rent]", "constraints.acquisition=[own]"
EU, HALF = "constraints.regions.allow=[eu]", "traffic.requests_per_s={mean: 1, peak: 2}"
SMALL_LOAD, LARGE_LOAD = "traffic.requests_per_s={mean: 0.2, peak: 0.5}", "traffic.requests_per_s={mean: 60, peak: 120}"
FEW = "constraints.accelerators.allow=[h100-sxm, mi300x, l40s]"
BENCH: list[tuple[str, list[str]]] = [
    *((name, []) for name in (
        "api-to-own", "bank-owned", "clinic-edge", "coding-agent", "deepseek-r1", "document-images", "edge-chat",
        "embedding", "gpt-oss-mi300x", "h100-rent-or-own", "isolated-tenants", "long-document-rag", "many-tunes",
        "nightly-batch", "office-assistant", "reasoning", "rerank", "retrieval-128k", "startup-budget",
        "summarisation", "support-chat", "tpu-or-h100",
    )),
    ("support-chat", [RENT, HALF]),
    ("support-chat", [RENT, EU]),
    ("support-chat", [OWN]),
    ("support-chat", [RENT, "slo.tpot_ms_p95=20", "slo.ttft_ms_p95=500"]),
    ("support-chat", [RENT, QWEN_235B]),
    ("support-chat", [RENT, LLAMA_8B, SMALL_LOAD]),
    ("support-chat", [RENT, LLAMA_8B, LARGE_LOAD]),
    ("support-chat", [RENT, "model=google/gemma-3-27b-it"]),
]  # fmt: skip


def key_of(option: QuickOption | Option | ApiOption) -> str | None:
    return f"api {option.provider}" if option.acquisition == "api" else option.accelerator


def differs(name: str, changes: list[str]) -> str:
    """How the estimate differs from the full answer; empty: the bill is near and the chip among the first."""
    spec = question(FOLDER / f"{name}.yaml", changes)
    full = recommend(spec, take_snapshot(spec, default_organisation())).serving_options
    estimate = quick.quick_answer(spec, default_organisation()).options
    if not full or not estimate:
        return "" if bool(full) == bool(estimate) else f"{len(full)} options, {len(estimate)} estimated"
    first, chips = estimate[0], [key_of(option) for option in full[:FIRST]]
    ratio = first.usd_per_month / full[0].usd_per_month
    right = abs(ratio - 1) <= NEAR_FRACTION and key_of(first) in chips
    return "" if right else f"{name} {changes}: {first.label} at {ratio:.2f} of {full[0].label}; first are {chips}"


@pytest.mark.parametrize(
    ("name", "changes"),
    [("gpt-oss-mi300x", []), ("support-chat", [RENT, FEW, HALF]), ("support-chat", [RENT, FEW, LLAMA_8B])],
)
def test_the_estimate_is_near_the_answer(name: str, changes: list[str]) -> None:
    assert differs(name, changes) == ""


@pytest.mark.soak
def test_the_estimate_is_near_the_answer_to_thirty_questions() -> None:
    assert len(BENCH) == 30
    wrong = [said for name, changes in BENCH if (said := differs(name, changes))]
    assert len(BENCH) - len(wrong) >= LEAST_RIGHT, "\n".join(wrong)


def test_crowds_that_slow_themselves_down_are_in_the_estimated_percentiles() -> None:
    spec = question(FOLDER / "support-chat.yaml", [RENT, FEW, LLAMA_8B])
    snapshot = take_snapshot(spec, default_organisation())
    asked = prepare_question(Question(workload_of(spec), catalog_of(spec, snapshot)))
    chips = [a for a in asked.catalog.accelerators if a.slug in ("h100-sxm", "l40s")]
    lanes = [lane for lane in enumerate_lanes(asked, chips)[0] if lane.framework.slug == "vllm"]
    table = evaluate(asked, [lane for lane in lanes if (lane.choice.tp, lane.choice.pp) == (1, 1)][:4])
    assert table.built is not None
    plain, crowded = (ratios(asked.workload, table, crowds) for crowds in (False, True))
    assert (crowded <= plain + 1e-9).all(), "a crowd never makes an estimate shorter"
    assert np.abs(np.log(crowded)).mean() < min(0.2, 0.67 * np.abs(np.log(plain)).mean())
    assert 0.7 < np.median(crowded) < 1.3


def ratios(workload: Workload, table: Any, crowds: bool) -> np.ndarray:
    """Simulated over estimated p95 TTFT and TPOT of each lane at half and two thirds of its capacity."""
    found, demand = [], demand_of(workload)
    for row, lane in enumerate(table.lanes):
        one = take(table.built.times, np.array([row]))
        most = float(open_loop(one, np.array([1e-6]), demand, scheduler_of(lane)).capacity_requests_per_s[0])
        for load in (0.5, 0.67):
            seen = verify(workload, table.built.times, row, lane, most * load)
            e = open_loop(one, np.array([most * load]), demand, scheduler_of(lane), crowds=crowds)
            found.append(seen.ttft_p95_s / float(e.ttft_p95_estimate_s[0]))
            found.append(seen.tpot_p95_s / float(e.tpot_p95_estimate_s[0]))
    return np.array(found)
