"""Names as people write them, on the shipped catalog."""

from typing import Any

import pytest

from advisor import workload
from advisor.inputs import check_catalog, with_catalog_names
from tests import as_json

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
TRAFFIC = {"input_tokens": 1000, "output_tokens": 200, "requests_per_s": 2}


def named(**given: Any) -> dict[str, Any]:
    spec = workload.parse({"name": "names", "model": "meta-llama/Llama-3.1-8B", "traffic": TRAFFIC, **given})
    return with_catalog_names(spec)


@pytest.mark.parametrize(
    "model", ["Llama-3.1-8B", "META-LLAMA/llama-3.1-8b", "llama 3.1 8b", "meta-llama/Llama-3.1-8B"]
)
def test_a_model_is_found_by_its_short_name_in_any_case(model: str) -> None:
    assert named(model=model)["model"] == "meta-llama/Llama-3.1-8B"


@pytest.mark.parametrize(("field", "written", "names"), [
    ("accelerators", "H100 SXM5 80GB", {"h100-sxm"}), ("accelerators", "L40S", {"l40s"}),
    ("providers", "AWS", {"aws"}), ("vendors", "NVIDIA", {"nvidia"}), ("frameworks", "vLLM", {"vllm"}),
    ("frameworks", "trt-llm", {"tensorrt-llm"}), ("formats", "BF16", {"bf16"}), ("regions", "US-East-1", {"us-east-1"}),
])  # fmt: skip
def test_lists_take_display_names_and_aliases_in_any_case(field: str, written: str, names: set[str]) -> None:
    spec = named(constraints={field: {"allow": [written]}})
    assert set(spec["constraints"][field]["allow"]) == names
    check_catalog(spec)


def test_a_short_name_stands_for_all_chips_of_the_series() -> None:
    allowed = named(constraints={"accelerators": {"allow": ["H100"]}})["constraints"]["accelerators"]["allow"]
    assert {"h100-sxm", "h100-pcie"} <= set(allowed) and all(slug.startswith("h100-") for slug in allowed)


def test_owned_chips_are_found_by_display_name_and_ambiguous_ones_are_refused() -> None:
    assert named(owned={"H100 SXM5 80GB": 8, "h100-sxm": 4})["owned"] == {"h100-sxm": 12}
    with pytest.raises(workload.WorkloadError, match="owned"):
        check_catalog(named(owned={"H100": 8}))


def test_an_unknown_name_is_left_for_the_error_that_suggests_others() -> None:
    with pytest.raises(workload.WorkloadError, match="did you mean"):
        check_catalog(named(model="Llama-3.1-8C"))


def test_the_workloads_of_a_portfolio_are_named_too() -> None:
    part = {"name": "a", "model": "llama-3.1-8b", "traffic": TRAFFIC}
    spec = workload.parse({"name": "both", "kind": "portfolio", "workloads": [part, {**part, "name": "b"}]})
    assert [each["model"] for each in with_catalog_names(spec)["workloads"]] == ["meta-llama/Llama-3.1-8B"] * 2


def test_an_estimate_takes_names_in_any_case() -> None:
    from advisor.workload import deployment

    body = {"model": "llama-3.1-8b", "accelerator": "H100 SXM5 80GB", "weights": "fp8", "isl": 1000, "osl": 200}
    assert as_json.estimate(deployment.parse_deployment(body | {"concurrency": 8}))["accelerator"] == "h100-sxm"
