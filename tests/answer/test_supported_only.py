"""On the shipped catalog: only layouts and formats that a source documents are searched or estimated."""

from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from advisor import workload
from advisor.engine.search import prepare_question
from advisor.engine.search.candidates import enumerate_lanes
from advisor.engine.step import Lane
from advisor.inputs import catalog_of, take_snapshot, unpacked, workload_of
from advisor.workload import WorkloadError, deployment
from tests import as_json

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("shipped")]
TRAFFIC = {"input_tokens": 1000, "output_tokens": 200, "requests_per_s": 2}


def lanes_of(**given: Any) -> list[Lane]:
    spec = workload.parse({"name": "supported", "traffic": TRAFFIC, **given})
    snapshot = unpacked(take_snapshot(spec))
    asked, catalog = prepare_question(workload_of(spec), catalog_of(spec, snapshot | {"tco": spec["tco"]}))
    lanes, _ = enumerate_lanes(asked, catalog, catalog.accelerators)
    assert lanes
    return lanes


def test_a_dense_model_is_never_served_in_a_format_of_expert_layers() -> None:
    lanes = lanes_of(model="meta-llama/Llama-3.3-70B-Instruct", constraints={"quality": "any"})
    assert not [lane for lane in lanes if lane.choice.quantization.experts_only == "always"]
    chosen = {lane.choice.quantization.slug for lane in lanes if lane.choice.accelerator.slug == "l40s"}
    assert "awq" in chosen and not {slug for slug in chosen if slug.startswith("mxfp4")}


def test_experts_are_spread_only_by_frameworks_that_document_it() -> None:
    lanes = lanes_of(model="deepseek-ai/DeepSeek-V2-Lite", constraints={"quality": "any"})
    spread = {lane.framework.slug for lane in lanes if lane.choice.ep > 1}
    parallel_attention = {lane.framework.slug for lane in lanes if lane.choice.dp > 1}
    assert {"vllm", "sglang"} <= spread and "llama.cpp" in {lane.framework.slug for lane in lanes}
    assert not {"llama.cpp", "lmdeploy"} & (spread | parallel_attention)
    assert all("expert_parallel" in lane.framework.features for lane in lanes if lane.choice.ep > 1)
    assert all("attention_dp" in lane.framework.features for lane in lanes if lane.choice.dp > 1)


def test_a_small_encoder_runs_on_one_chip_without_stages() -> None:
    lanes = lanes_of(model="BAAI/bge-m3", kind="embedding", traffic={"input_tokens": 256, "requests_per_s": 40})
    assert {(lane.choice.tp, lane.choice.pp) for lane in lanes} == {(1, 1)}


@pytest.mark.parametrize(("changes", "field", "instead"), [
    ({"accelerator": "l40s", "weights": "mxfp4-w4a8", "framework": "tensorrt-llm"}, "weights", "awq"),
    ({"accelerator": "h100-sxm", "weights": "bf16", "kv": "fp4"}, "kv", "fp8"),
    ({"accelerator": "h100-sxm", "weights": "fp8", "framework": "llama.cpp"}, "weights", "gguf"),
])  # fmt: skip
def test_an_estimate_names_the_nearest_supported_combination(changes: dict[str, Any], field: str, instead: str) -> None:
    body = {"model": "meta-llama/Llama-3.1-8B", "isl": 1000, "osl": 200, "concurrency": 8, **changes}
    with pytest.raises(WorkloadError) as caught:
        as_json.estimate(deployment.parse_deployment(body))
    [error] = caught.value.errors
    assert error["field"] == field and instead in error["allowed"]


def test_the_b100_has_an_estimate_and_says_that_it_is_not_sold() -> None:
    body = {"model": "meta-llama/Llama-3.1-8B", "accelerator": "b100", "weights": "fp8", "isl": 1000, "osl": 200}
    estimate = as_json.estimate(deployment.parse_deployment(body | {"concurrency": 8}))
    assert estimate["fits"] and estimate["tpot_ms"]["mean"] > 0
    assert any("never broadly shipped" in warning for warning in estimate["warnings"])


def test_software_over_budget_is_listed_by_its_own_name() -> None:
    """A framework whose best design exceeds the budget used to be listed under the name of its chip."""
    given = {"model": "meta-llama/Llama-3.1-8B", "constraints": {"max_usd_per_month": 1500}}
    spec = workload.parse({"name": "budget", "traffic": TRAFFIC, **given})
    snapshot = take_snapshot(spec)
    answer = as_json.recommend(spec, snapshot)
    frameworks = {row["slug"] for row in unpacked(snapshot)["frameworks"]}
    listed = answer["left_out"]["frameworks"]
    assert any(item["reason"] == "too_expensive" for item in listed)
    assert {item["name"] for item in listed} <= frameworks


def test_the_support_matrix_is_that_of_the_catalog(tmp_path: Path) -> None:
    call_command("support_matrix", "--write-docs", str(tmp_path / "matrix.md"))
    page = Path(__file__).resolve().parents[2] / "docs" / "reference" / "support-matrix.md"
    assert (tmp_path / "matrix.md").read_text() == page.read_text()
