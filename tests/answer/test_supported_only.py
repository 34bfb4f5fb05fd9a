"""On the shipped catalog: only what a source documents is searched, estimated or listed, and all three agree."""

import random
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from advisor import workload
from advisor.engine.estimate import Resources
from advisor.engine.search import Question, prepare_question
from advisor.engine.search.candidates import enumerate_lanes
from advisor.engine.step import Lane, launchable, runs_on, supports_model, weights_on
from advisor.engine.terms import Framework, Quantization
from advisor.inputs import catalog_of, catalog_resources, take_snapshot, workload_of
from advisor.workload import WorkloadError, deployment
from catalog.models import QuantizationMethod, ServedModel
from tests import as_json
from tests.laboratory import support_matrix

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("shipped")]
TRAFFIC = {"input_tokens": 1000, "output_tokens": 200, "requests_per_s": 2}
LLAMA, GPT_OSS, LATENT = "meta-llama/Llama-3.3-70B-Instruct", "openai/gpt-oss-120b", "deepseek-ai/DeepSeek-V2-Lite"
SAMPLE = 60  # combinations of each kind


def lanes_of(**given: Any) -> list[Lane]:
    spec = workload.parse({"name": "supported", "traffic": TRAFFIC, **given})
    snapshot = take_snapshot(spec)
    asked = prepare_question(Question(workload_of(spec), catalog_of(spec, snapshot)))
    lanes, _ = enumerate_lanes(asked, asked.catalog.accelerators)
    assert lanes
    return lanes


@pytest.fixture(scope="module")
def known(shipped: None) -> Resources:
    return catalog_resources()


@pytest.fixture(scope="module")
def searched(shipped: None) -> dict[str, list[Lane]]:
    """The lanes that a search of each model would evaluate."""
    return {model: lanes_of(model=model, constraints={"quality": "any"}) for model in (LLAMA, GPT_OSS, LATENT)}


def test_a_dense_model_is_never_served_in_a_format_of_expert_layers(searched: dict[str, list[Lane]]) -> None:
    lanes = searched[LLAMA]
    assert not [lane for lane in lanes if lane.choice.quantization.experts_only == "always"]
    chosen = {lane.choice.quantization.slug for lane in lanes if lane.choice.accelerator.slug == "l40s"}
    assert "awq" in chosen and not {slug for slug in chosen if slug.startswith("mxfp4")}


def test_experts_are_spread_only_by_frameworks_that_document_it(searched: dict[str, list[Lane]]) -> None:
    lanes = searched[LATENT]
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
    chips = {"accelerators": {"allow": ["l4", "h100-sxm"]}, "formats": {"allow": ["bf16", "fp8"]}}
    given = {"model": "meta-llama/Llama-3.1-8B", "variants": "no", "constraints": {"max_usd_per_month": 1500, **chips}}
    spec = workload.parse({"name": "budget", "traffic": TRAFFIC, **given})
    snapshot = take_snapshot(spec)
    answer = as_json.recommend(spec, snapshot)
    frameworks = {row["slug"] for row in snapshot.frameworks}
    listed = answer["left_out"]["frameworks"]
    assert any(item["reason"] == "too_expensive" for item in listed)
    assert {item["name"] for item in listed} <= frameworks


def test_the_support_matrix_is_that_of_the_catalog(tmp_path: Path) -> None:
    call_command("support_matrix", "--write-docs", str(tmp_path / "matrix.md"))
    page = Path(__file__).resolve().parents[2] / "docs" / "reference" / "support-matrix.md"
    assert (tmp_path / "matrix.md").read_text() == page.read_text()


def asked_of(model: str, lane: Lane) -> dict[str, Any]:
    """The estimate of a lane: chip, formats, framework and layout."""
    c = lane.choice
    return {
        "model": model, "accelerator": c.accelerator.slug, "weights": c.quantization.slug, "kv": c.kv_dtype,
        "framework": lane.framework.slug, "framework_version": lane.framework.version,
        "tp": c.tp, "pp": c.pp, "ep": c.ep, "attention_dp": c.dp, "isl": 1000, "osl": 200, "concurrency": 1,
    }  # fmt: skip


def refusal(body: dict[str, Any], known: Resources) -> list[dict[str, str]]:
    """The errors of an estimate; empty if it is accepted."""
    try:
        deployment.fixed(deployment.parse_deployment(body), known)
    except WorkloadError as refused:
        return refused.errors
    return []


def test_every_estimate_of_a_searched_combination_is_accepted(
    searched: dict[str, list[Lane]], known: Resources
) -> None:
    draw = random.Random(7)
    for model, lanes in searched.items():
        for lane in draw.sample([x for x in lanes if not x.choice.accelerator.cut], SAMPLE):
            assert refusal(asked_of(model, lane), known) == [], asked_of(model, lane)


def test_a_refused_combination_is_never_searched_and_names_what_works(
    searched: dict[str, list[Lane]], known: Resources
) -> None:
    draw, refused = random.Random(8), 0
    chips = [a for a in known.accelerators.values() if a.served]
    for model, lanes in searched.items():
        offered = {
            (x.framework.slug, x.choice.accelerator.slug, x.choice.quantization.slug, x.choice.kv_dtype) for x in lanes
        }
        for _ in range(SAMPLE):
            a = draw.choice(chips)
            f = draw.choice([f for f in known.frameworks if runs_on(f, a)] or list(known.frameworks))
            q, kv = draw.choice(known.quantizations), draw.choice(("bf16", "fp8"))
            body = {
                "model": model, "accelerator": a.slug, "weights": q.slug, "kv": kv, "framework": f.slug,
                "framework_version": f.version, "isl": 1000, "osl": 200, "concurrency": 1,
            }  # fmt: skip
            if errors := refusal(body, known):
                refused += 1
                assert (f.slug, a.slug, q.slug, kv) not in offered, body
                if errors[0]["field"] == "weights":
                    instead = [s for s in errors[0]["allowed"].split(";")[0].split(", ") if not s.startswith("use ")]
                    assert all(weights_run(f, body, slug, known) for slug in instead if slug), errors
    assert refused > SAMPLE  # most random combinations have no source


def weights_run(f: Framework, body: dict[str, Any], slug: str, known: Resources) -> bool:
    q = next((q for q in known.quantizations if q.slug == slug), None)
    chip, model = known.accelerators[body["accelerator"]], known.models[body["model"]]
    return q is not None and isinstance(weights_on(f, chip, q, model), Quantization)


def test_formats_of_four_bits_run_natively_only_on_chips_with_such_units(searched: dict[str, list[Lane]]) -> None:
    choices = [lane.choice for lanes in searched.values() for lane in lanes]
    native = [c for c in choices if c.quantization.activations_dtype == "fp4"]
    assert native and all(c.accelerator.flops_per_s.get("fp4") for c in native)
    converted = {c.accelerator.slug for c in choices if c.quantization.slug == "nvfp4" and c.quantization.weight_only}
    assert {"a100-80gb-sxm", "h100-sxm", "l40s"} <= converted and "b200" not in converted


@pytest.mark.parametrize(("framework", "chip", "formats"), [
    ("vllm", "h100-sxm", {"mxfp4"}), ("vllm", "a100-80gb-sxm", {"mxfp4"}), ("vllm", "b200", {"mxfp4", "mxfp4-w4a8"}),
    ("tensorrt-llm", "h100-sxm", {"mxfp4"}), ("tensorrt-llm", "b200", {"mxfp4-w4a8"}), ("tensorrt-llm", "l40s", set()),
    ("sglang", "a100-80gb-sxm", set()), ("sglang", "rtx-pro-6000-blackwell-server", {"mxfp4"}),
])  # fmt: skip
def test_experts_in_mxfp4_run_where_a_source_says_so(
    searched: dict[str, list[Lane]], framework: str, chip: str, formats: set[str]
) -> None:
    """gpt-oss is published in MXFP4; whether its activations are in 8 or 16 bits depends on framework and chip."""
    mine = [x for x in searched[GPT_OSS] if x.framework.slug == framework and x.choice.accelerator.slug == chip]
    assert {x.choice.quantization.slug for x in mine if x.choice.quantization.weights_dtype == "mxfp4"} == formats


def test_an_fp8_cache_needs_a_source_for_the_chip_and_the_attention(searched: dict[str, list[Lane]]) -> None:
    def chips(model: str, framework: str) -> set[str]:
        lanes = [x for x in searched[model] if x.framework.slug == framework and x.choice.kv_dtype == "fp8"]
        return {x.choice.accelerator.slug for x in lanes}

    assert {"a100-80gb-sxm", "l40s", "h100-sxm", "mi300x"} <= chips(LLAMA, "vllm")
    assert "h100-sxm" in chips(LATENT, "vllm") and "a100-80gb-sxm" not in chips(LATENT, "vllm")
    assert not {"t4", "mi250", "xeon-6980p"} & chips(LLAMA, "vllm")


def test_a_dtype_is_run_as_the_framework_runs_its_checkpoint(known: Resources) -> None:
    body = {"model": GPT_OSS, "weights": "mxfp4", "isl": 1000, "osl": 200, "concurrency": 4}
    blackwell = deployment.fixed(
        deployment.parse_deployment(body | {"accelerator": "b200", "framework": "tensorrt-llm"}), known
    )
    hopper = deployment.fixed(
        deployment.parse_deployment(body | {"accelerator": "h100-sxm", "framework": "tensorrt-llm"}), known
    )
    assert (blackwell.quantization.slug, blackwell.quantization.activations_dtype) == ("mxfp4-w4a8", "fp8")
    assert (hopper.quantization.slug, hopper.quantization.activations_dtype) == ("mxfp4", "bf16")


def test_every_rule_has_a_source_and_names_chips_and_formats_of_the_catalog(known: Resources) -> None:
    slugs = {q.slug for q in known.quantizations}
    names = {n for a in known.accelerators.values() for n in (a.slug, a.family, *a.stacks)}
    for f in known.frameworks:
        for rule in (*f.weights, *f.caches):
            assert rule.source and rule.as_of and rule.basis, f.slug
            assert {*rule.chips, *rule.not_chips} <= names, (f.slug, rule)
            assert set(rule.mixers) <= set(f.mixers), (f.slug, rule)
        assert {s for rule in f.weights for s in rule.formats} <= slugs, f.slug


def test_every_framework_has_a_start_command_or_says_why_not(known: Resources) -> None:
    for f in known.frameworks:
        assert f.launch is not None or f.not_started_reason, f.slug
    with_command = {f.slug for f in known.frameworks if f.launch}
    assert {"openvino", "tgi"} <= with_command
    unstarted = {f.slug for f in known.frameworks if not f.launch}
    amd_and_jax = {"atom", "vllm-atom", "sglang-atom", "sglang-jax"}
    assert unstarted == {"coreml", "jetstream", "onnxruntime", "optimum-habana"} | amd_and_jax


def test_the_matrix_page_has_a_row_for_each_supported_format(known: Resources) -> None:
    page = support_matrix.page(known, {})
    vllm = next(f for f in known.frameworks if f.slug == "vllm")
    nvfp4 = next(q for q in known.quantizations if q.slug == "nvfp4")
    [row] = support_matrix.weight_rows(vllm, nvfp4, known)
    assert row[2:5] == ("b300, blackwell, gb300", "ada, ampere, hopper, turing", "all")
    assert "| JetStream (MaxText) 0.3 |  | its server" in page


def test_a_server_on_one_accelerator_is_not_split(searched: dict[str, list[Lane]], known: Resources) -> None:
    openvino = [x for x in searched[LATENT] + searched[LLAMA] if x.framework.slug == "openvino"]
    assert openvino and {x.choice.tp for x in openvino} == {1}
    body = {"model": LLAMA, "accelerator": "xeon-6980p", "weights": "bf16", "framework": "openvino", "tp": 2}
    [error] = refusal(body | {"isl": 100, "osl": 10, "concurrency": 1}, known)
    assert error["field"] == "tp" and "no documented tensor parallelism" in error["message"]


def test_experts_are_not_spread_over_the_sockets_of_a_host(searched: dict[str, list[Lane]], known: Resources) -> None:
    """The documents on expert parallelism are for GPUs."""
    cpus = [x for x in searched[LATENT] if x.choice.accelerator.kind == "cpu"]
    assert cpus and {(x.choice.ep, x.choice.dp) for x in cpus} == {(1, 1)}
    body = {"model": LATENT, "accelerator": "xeon-6980p", "weights": "bf16", "framework": "vllm", "tp": 2, "ep": 2}
    [error] = refusal(body | {"isl": 100, "osl": 10, "concurrency": 1}, known)
    assert error["field"] == "ep" and "no documented expert parallelism" in error["message"]


def test_a_dense_70b_on_l40s_is_served_in_integers_or_fp8() -> None:
    """It used to be offered in MXFP4 with FP8 activations, which no framework has for dense layers or for this chip."""
    constraints = {"quality": "any", "accelerators": {"allow": ["l40s"]}}
    spec = workload.parse({"name": "l40s", "traffic": TRAFFIC, "model": LLAMA, "constraints": constraints})
    found = as_json.recommend(spec, take_snapshot(spec))["recommendations"]
    assert found and {r["quantization"] for r in found} <= {"awq", "gptq", "fp8"}


def test_a_framework_that_cannot_start_is_in_no_lane(searched: dict[str, list[Lane]], known: Resources) -> None:
    for model, lanes in searched.items():
        shape = known.models[model]
        assert all(launchable(x.framework, shape) and supports_model(x.framework, shape) for x in lanes)


def test_every_quantized_model_states_the_format_of_its_checkpoint() -> None:
    methods = {q.slug: q.settings for q in QuantizationMethod.objects.all()}
    quantized = [m for m in ServedModel.objects.all() if m.native_dtype not in ("bf16", "fp16", "fp32")]
    assert len(quantized) >= 9
    for row in quantized:
        assert methods[row.checkpoints["published"]["format"]]["weights_dtype"] == row.native_dtype, row.slug
        assert row.sources["checkpoint"]["source"]
    for row in ServedModel.objects.all():
        for conversion in row.checkpoints.get("conversions", []):
            assert conversion["format"] in methods and "/" in conversion["hf_id"], row.slug
    for method in methods.values():
        assert method.get("checkpoint_format", "fp8") in methods
