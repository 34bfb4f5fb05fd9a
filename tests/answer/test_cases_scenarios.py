"""Common scenarios (docs/tutorial/cases/scenarios.md): each technique is recommended, or its rejection is explained."""

import csv
from pathlib import Path

import pytest

from advisor.answer import recommend
from advisor.inputs import check_catalog, take_snapshot
from advisor.workload.schema import parse
from advisor.workload.text import WorkloadError
from tests.answer.test_cases_serving import CHIPS, answer, first, why_not

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
ROOT = Path(__file__).resolve().parents[2]


def test_every_scenario_of_the_field_stands_on_the_page() -> None:
    with (ROOT / "fixtures" / "claims.csv").open() as lines:
        claims = {row["id"] for row in csv.DictReader(lines) if row["subject"] == "scenario"} | {"c57"}
    page = (ROOT / "docs" / "tutorial" / "cases" / "scenarios.md").read_text()
    assert len(claims) == 6 and all(f"| {name} |" in page for name in claims)


@pytest.mark.soak
def test_latency_is_graphs_then_drafts_and_another_framework_stands_beside_with_its_figures() -> None:
    plain = first("support-chat", "objective=latency", "variants=no")
    best = first("support-chat", "objective=latency")
    assert best["speculative"]["method"] == "eagle" and best["speculative"]["source"]
    assert best["tpot_ms"]["p95"] < plain["tpot_ms"]["p95"]
    used = [step["name"] for step in plain["tuning"]["plan"]["steps"] if step["state"] == "used"]
    assert any("graphs" in name for name in used)
    rivals = {f["name"]: f for f in plain["tuning"]["frameworks"] if f["output_tokens_per_s_per_accelerator"]}
    assert {"vLLM", "SGLang"} <= set(rivals)


def test_the_edge_is_eight_bits_on_a_card_and_the_named_runtimes_say_why_not() -> None:
    assert first("clinic-edge")["weights_dtype"] in ("int8", "fp8")
    left = {item["name"]: item for item in answer("clinic-edge")["left_out"]["frameworks"]}
    assert left["executorch"]["reason"] == "misses_slo" and left["onnxruntime"]["detail"]


def test_formats_follow_the_hardware() -> None:
    """c57: INT8 where there is no FP8; with any quality, four bits on a small card and on a CPU for one user."""
    assert first("support-chat", "constraints.accelerators.allow=[a100-80gb-sxm]")["weights_dtype"] == "int8"
    rented = "constraints.acquisition=[rent]"
    card = first("clinic-edge", "constraints.accelerators.allow=[rtx-4090]", rented, "constraints.quality=any")
    assert "4" in card["weights_dtype"]
    loose = ("slo={}", "constraints.quality=any", "constraints.max_accelerators=1", "traffic.users.active=1")
    host = first("clinic-edge", "constraints.accelerators.allow=[xeon-8480plus]", *loose)
    assert "4" in host["weights_dtype"]


def test_training_scenarios_are_answered() -> None:
    training = {"tokens": 1e9, "sequence_length": 4096, "global_batch_tokens": 1e6}
    spec = parse({"kind": "training", "model": "meta-llama/Llama-3.1-8B", "training": training})
    check_catalog(spec)
    best = recommend(spec, take_snapshot(spec)).training_runs[0]
    assert best.days < 120 and best.usd_total > 0 and 0.1 < best.mfu < 0.8


def test_a_model_that_cannot_be_trained_is_refused() -> None:
    asked = {"kind": "training", "model": "BAAI/bge-m3", "training": {"tokens": 1e9}}
    with pytest.raises(WorkloadError, match="decoder-only language models"):
        check_catalog(parse(asked))


@pytest.mark.soak
def test_throughput_is_served_by_the_named_frameworks_and_in_eight_bits_while_quality_counts() -> None:
    best = first("summarisation", "objective=throughput", CHIPS)
    assert best["framework"] in ("vllm", "sglang", "tensorrt-llm")
    assert best["weights_dtype"] in ("fp8", "int8", "nvfp4", "mxfp4", "bf16")


def test_memory_constrained_is_four_bits_once_any_quality_is_allowed() -> None:
    card = "constraints.accelerators.allow=[rtx-6000-ada]"
    refused = why_not(answer("support-chat", card), "rtx-6000-ada")
    assert refused["reason"] in ("does_not_fit", "misses_slo") and refused["smallest_change"]
    loose = ["constraints.quality=any", "slo={tpot_ms_p95: 200}", "traffic.requests_per_s=0.02"]
    best = first("support-chat", card, *loose)
    assert best["memory"]["weights_gib"] < 45 and "4" in best["weights_dtype"]
    assert best["warnings"]
