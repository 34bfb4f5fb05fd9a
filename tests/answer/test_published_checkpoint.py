"""Time, memory, quality and the command are those of the checkpoint that people download."""

import ast
import re
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from advisor import workload
from advisor.engine.estimate import Resources, prepare
from advisor.engine.launch import served_checkpoint
from advisor.engine.network import Model
from advisor.engine.search import Question
from advisor.engine.search.candidates import formats_for
from advisor.engine.step import Lanes, lanes, prefill_s, published_draft, runs_on, supports_model, supports_weights
from advisor.engine.step.drafts.speculative import suits
from advisor.inputs import Snapshot, catalog_of, catalog_resources, take_snapshot, workload_of
from advisor.workload import deployment
from catalog.importers.models import hf
from tests.as_json import recommend

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
R1, V3, KIMI = "deepseek-ai/DeepSeek-R1", "deepseek-ai/DeepSeek-V3", "moonshotai/Kimi-K2.5"
GPT_OSS, LLAMA = "openai/gpt-oss-120b", "meta-llama/Llama-3.3-70B-Instruct"
TRAFFIC = {"input_tokens": 1000, "output_tokens": 200, "requests_per_s": 2}
ENGINE = Path(__file__).resolve().parents[2] / "advisor" / "engine"
MODELS = re.compile(r"deepseek|llama-?[234]|qwen|gpt-oss|kimi|glm-|mimo|gemma", re.IGNORECASE)
GIB = 2.0**30


def formats_on(hf_id: str, chip: str, quality: str = "any") -> set[str]:
    """Formats that a search may use on this chip with any framework that runs there."""
    known = known_of(hf_id)
    spec = workload.parse(
        {"name": "published", "traffic": TRAFFIC, "model": hf_id, "constraints": {"quality": quality}}
    )
    asked: Any = SimpleNamespace(model=known.models[hf_id], quantizations=known.quantizations)
    model, a = known.models[hf_id], known.accelerators[chip]
    able = [f for f in known.frameworks if f.startable and runs_on(f, a) and supports_model(f, model)]
    return {
        q.slug
        for q in formats_for(Question(workload_of(spec), asked))
        for f in able
        if supports_weights(f, a, q, model)
    }


@cache
def known_of(*models: str) -> Resources:
    return catalog_resources(list(models))


def model_of(hf_id: str) -> Model:
    return known_of(hf_id).models[hf_id]


def fixed(**changes: Any) -> deployment.Fixed:
    body = {"model": V3, "accelerator": "h200-sxm", "tp": 8, "weights": "fp8", "framework": "vllm", "isl": 4000,
            "osl": 2, "concurrency": 1} | changes  # fmt: skip
    return deployment.fixed(deployment.parse_deployment(body), known_of(body["model"]))


def built(asked: deployment.Fixed) -> Lanes:
    lane = prepare(asked.case, asked.resources)
    assert not isinstance(lane, str)
    return lanes(asked.model, lane)


def test_deepseek_is_searched_with_block_scales_and_without_a_conversion_that_saves_nothing():
    for chip in ("h200-sxm", "b200", "mi355x"):
        assert {"fp8-block"} == {slug for slug in formats_on(R1, chip) if slug.startswith(("fp8", "bf16", "int8"))}
    assert {"fp8-block"} == {slug for slug in formats_on(R1, "a100-80gb-sxm") if slug.startswith("fp8")}
    assert fixed(accelerator="a100-80gb-sxm").quantization.weight_only


def test_fp8_means_the_published_checkpoint_and_its_kernels_are_slower():
    assert fixed(weights="fp8").quantization.slug == "fp8-block"
    assert fixed(model=LLAMA, weights="fp8").quantization.slug == "fp8"
    plain_s, blocks_s = (prefill_s(built(fixed(model=LLAMA, weights=w)), 0, 4000) for w in ("fp8", "fp8-block"))
    assert 1.03 < blocks_s / plain_s < 1.19  # kernels with block scales reach 84 % of those with one scale


@pytest.mark.parametrize(("model", "weights", "tp", "size_gib", "source"), [
    (GPT_OSS, "mxfp4", 1, 60.8, "arXiv 2508.10925, table 1: checkpoint size"),
    ("openai/gpt-oss-20b", "mxfp4", 1, 12.8, "arXiv 2508.10925, table 1: checkpoint size"),
    (KIMI, "int4", 8, 595e9 / GIB, "files of moonshotai/Kimi-K2.5: 595 GB"),
])  # fmt: skip
def test_the_weights_take_what_the_checkpoint_takes(model: str, weights: str, tp: int, size_gib: float, source: str):
    held = float(built(fixed(model=model, weights=weights, tp=tp)).memory.weights_bytes[0]) * tp / GIB
    # every chip has its own copy of what tensor parallelism does not split
    assert held == pytest.approx(size_gib, rel=0.03), source


def test_the_published_format_costs_no_quality_and_a_wider_one_gains_none():
    assert formats_on(GPT_OSS, "h100-sxm", "lossless") == {"mxfp4"}
    assert formats_on(R1, "h200-sxm", "lossless") == {"fp8-block"}
    assert formats_on(KIMI, "h200-sxm", "lossless") == {"int4-qat"}
    assert not {"bf16", "fp16", "fp8"} & formats_on(GPT_OSS, "h100-sxm", "any")
    assert formats_on(LLAMA, "h100-sxm", "lossless") == {"bf16", "fp16"}  # FP16: cast while loading


def test_quantized_activations_are_not_as_published():
    at_hand = formats_on(GPT_OSS, "b200", "near_lossless")
    assert "mxfp4" in at_hand and "mxfp4-w4a4" not in at_hand


def test_the_command_names_what_was_estimated():
    known = known_of(R1)
    model, methods = known.models[R1], {q.slug: q for q in known.quantizations}
    facts = next(f.launch for f in known.frameworks if f.slug == "vllm")
    served = {slug: served_checkpoint(R1, model, methods[slug], facts) for slug in methods}
    assert (served["fp8-block"].repository, served["fp8-block"].origin) == (R1, "published")
    assert (served["nvfp4"].repository, served["nvfp4"].origin) == ("nvidia/DeepSeek-R1-FP4", "conversion")
    assert served["awq"].to_make and "convert deepseek-ai/DeepSeek-R1 to AWQ W4A16 first" in served["awq"].step


def test_drafts_are_facts_of_the_models_row():
    assert suits("mtp", model_of(R1)) and not suits("mtp", model_of(LLAMA))
    assert published_draft(model_of(LLAMA), "eagle") == "RedHatAI/Llama-3.3-70B-Instruct-speculator.eagle3"
    spec = workload.parse({"name": "drafted", "traffic": TRAFFIC, "model": LLAMA})
    snapshot = take_snapshot(spec)
    assert snapshot.draft_model["hf_id"] == "meta-llama/Llama-3.2-1B"


def test_a_snapshot_without_checkpoints_is_still_read():
    spec = workload.parse({"name": "old", "traffic": TRAFFIC, "model": R1})
    stored = take_snapshot(spec).stored()
    del stored["model"]["checkpoints"], stored["version"]
    for row in stored["quantizations"]:
        row.pop("checkpoint_format", None)
    model = catalog_of(spec, Snapshot.read(stored)).model
    assert model.native_dtype == "fp8" and model.published is None and not model.mtp_layers


def test_a_config_json_states_its_own_checkpoint():
    config = {"model_type": "qwen3", "hidden_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 8,
              "num_key_value_heads": 4, "intermediate_size": 4096, "vocab_size": 1000, "head_dim": 128,
              "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}  # fmt: skip
    row = hf.model_row(config, "org/own-fp8", "config.json", None)
    assert row["checkpoints"] == {"published": {"format": "fp8-block"}} and "published" not in row["shape"]
    plain = hf.model_row({**config, "quantization_config": None, "num_nextn_predict_layers": 1}, "org/own", "c", None)
    assert plain["checkpoints"] == {"drafts": {"mtp_layers": 1}}


def reads_configs(path):
    """A reader of config.json names the architectures whose keys it reads."""
    return "hf_" in path.name or path.parent.name == "layers" or path.name in ("config_keys.py", "checkpoint.py")


def test_the_engine_names_no_model():
    """Names in comments and docstrings explain; a name in a value would be catalog data in code."""
    named = []
    for path in ENGINE.rglob("*.py"):
        if not MODELS.search(path.read_text()):
            continue
        tree = ast.parse(path.read_text())
        texts = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant)}
        named += [
            f"{path.name}: {node.value}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in texts
            if MODELS.search(node.value) and " " not in node.value and not reads_configs(path)
        ]
    assert named == []


def test_block_scaled_weights_are_split_into_whole_blocks():
    minimax = "MiniMaxAI/MiniMax-M2.5"  # experts of 1,536: 192 on 8 chips
    assert fixed(model=minimax, tp=4).quantization.slug == fixed(model=minimax, tp=8, ep=8).quantization.slug
    with pytest.raises(workload.WorkloadError) as refused:
        fixed(model=minimax, tp=8)
    assert "1,536 on 8 chips is not in whole blocks of 128" in str(refused.value.errors)
    with pytest.raises(workload.WorkloadError):
        fixed(model=R1, tp=32)  # 18,432 / 32 = 576: sgl-project/sglang issue 3345


def test_the_command_names_activations_that_the_checkpoint_does_not_have():
    """gpt-oss is published in MXFP4; vLLM runs its experts with MXFP8 activations only if it is told to."""
    spec = workload.parse(
        {
            "name": "activations", "model": GPT_OSS, "traffic": TRAFFIC, "variants": "no",
            "constraints": {"accelerators": {"allow": ["b200"]}, "frameworks": {"allow": ["vllm"]}},
        }
    )  # fmt: skip
    told = '--quantization-config \'{"moe": {"activation": "mxfp8"}}\''
    for quantization in ("mxfp4-w4a8", "mxfp4"):
        spec["constraints"]["formats"] = {"allow": [quantization], "deny": []}
        best = recommend(spec, take_snapshot(spec))["recommendations"][0]
        assert best["quantization"] == quantization
        assert (told in " ".join(best["launch"]["command"].split())) == (quantization == "mxfp4-w4a8")
