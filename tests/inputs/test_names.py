"""Names as people write them, on the shipped catalog."""

import re
from typing import Any

import pytest

from advisor import workload
from advisor.inputs import check_catalog, unknown_names_in_parts, with_catalog_names
from advisor.inputs.check import unknown_names
from advisor.inputs.names import accelerators, models
from advisor.workload.notation.names import MAKERS
from catalog.loading.places import codes_in, places, synonyms
from catalog.models import Accelerator, ServedModel
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
    with pytest.raises(workload.WorkloadError, match="owned: H100 could mean .*h100-sxm"):
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


# --- every name of the catalog ----------------------------------------------------------------------------------


def test_every_spelling_of_a_chip_is_one_chip_or_an_error_with_all_candidates() -> None:
    book = accelerators()
    rows = list(Accelerator.objects.values_list("slug", "name", "vendor"))
    spellings = {
        text: slug
        for slug, name, vendor in rows
        for whole in (
            slug,
            name,
            f"{vendor} {name}" if vendor in MAKERS else name,
            name.partition(" (")[0],
            *slug.split("-")[:1],
        )
        for text in (whole, whole.upper(), whole.lower(), whole.replace("-", " "))
    } | {text.replace(" ", ""): slug for slug, name, _ in rows for text in (name, slug.replace("-", ""))}
    assert len(spellings) > 500
    ambiguous: dict[tuple[str, ...], str] = {}
    for text, slug in spellings.items():
        found = book.meant_by(text)
        if not any(each.isdigit() for each in text) and slug not in found:
            continue  # the first word of a name such as rtx or apple, which is a maker
        assert slug in found, (text, slug, found)
        ambiguous |= {tuple(found): text} if len(found) > 1 else {}
    assert len(ambiguous) >= 5
    for candidates, text in ambiguous.items():
        (told,) = unknown_names(named(owned={text: 8}))
        assert told["field"] == "owned" and all(each in told["message"] for each in candidates)


def test_every_short_name_of_a_model_is_that_model() -> None:
    book = models()
    for name in ServedModel.objects.values_list("hf_id", flat=True):
        short = name.rpartition("/")[2]
        for text in (name, short, short.lower(), short.replace("-", " "), short.replace("-", "_").upper()):
            assert book.meant_by(text) == [name], text


SUFFIX = re.compile(r"-(Instruct|instruct|it|Chat|chat|hf|Base|base|pt|BF16)$")


def test_base_and_tuned_repositories_of_a_model_and_its_conversions_are_that_model() -> None:
    book, known = models(), set(ServedModel.objects.values_list("hf_id", flat=True))
    for model in ServedModel.objects.all():
        tuned = {f"{SUFFIX.sub('', model.hf_id)}-{end}" for end in ("Instruct", "it", "chat-hf", "hf", "Base", "pt")}
        converted = {each["hf_id"] for each in model.checkpoints.get("conversions", ())}
        for name in (tuned | converted) - known:
            assert book.meant_by(name) == [model.hf_id], name


@pytest.mark.parametrize(("written", "model"), [
    ("llama-3.3-70b", "meta-llama/Llama-3.3-70B-Instruct"), ("Llama 3.3 70B", "meta-llama/Llama-3.3-70B-Instruct"),
    ("qwen3-235b", "Qwen/Qwen3-235B-A22B"), ("gpt-oss-120b", "openai/gpt-oss-120b"),
    ("GPT OSS 120 B", "openai/gpt-oss-120b"),
    ("llama3.3:70b", "meta-llama/Llama-3.3-70B-Instruct"), ("Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B"),
])  # fmt: skip
def test_a_part_of_a_model_name_that_fits_one_model_is_that_model(written: str, model: str) -> None:
    assert named(model=written)["model"] == model


def test_a_part_that_fits_several_models_lists_them() -> None:
    with pytest.raises(workload.WorkloadError) as caught:
        check_catalog(named(model="llama 70b"))
    (told,) = caught.value.errors
    assert told["field"] == "model" and "meta-llama/Llama-3.1-70B" in told["message"]
    assert "meta-llama/Llama-3.3-70B-Instruct" in told["message"] and "write one of them" in told["message"]


def test_names_are_resolved_and_reported_beside_other_errors() -> None:
    raw = {"model": "llama-3.3-70b", "owned": "2 x 8 H100", "slo": {"ttft_ms_p95": "2m"}}
    assert [item["field"] for item in unknown_names_in_parts(raw)] == ["owned"]
    raw = {"kind": "portfolio", "workloads": [{"model": "llama-3.3-70b"}, {"model": "llama 70b"}], "objective": "x"}
    assert [item["field"] for item in unknown_names_in_parts(raw)] == ["workloads[1].model"]


@pytest.mark.parametrize(("written", "place"), [
    ("EU", "eu"), ("EU only", "eu"), ("eu", "eu"), ("Europe", "europe"), ("European Union", "eu"), ("USA", "us"),
    ("UK", "gb"), ("Germany", "germany"), ("DE", "de"), ("APAC", "apac"),
])  # fmt: skip
def test_a_place_has_the_names_that_people_use(written: str, place: str) -> None:
    spec = named(constraints={"regions": {"allow": [written]}})
    assert spec["constraints"]["regions"]["allow"] == [place]
    check_catalog(spec)


def test_every_synonym_of_a_place_is_a_place() -> None:
    assert set(synonyms().values()) <= set(places()) and not set(synonyms()) & set(places())
    assert set(codes_in("eu")) < set(codes_in("europe"))
