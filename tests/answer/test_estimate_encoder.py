"""`estimate` of encoder-decoders and of encoders, from the catalog and from a config.json, against published runs."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from advisor.workload import deployment
from advisor.workload.text import WorkloadError
from tests import as_json
from tests.engine.hf_configs import CONFIGS
from tests.engine.network.test_model_seq2seq import BART, FLAN_XXL, WHISPER

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
BERT = CONFIGS["google-bert/bert-large-uncased"]
FLAN_XL = FLAN_XXL | {"d_model": 2048, "d_ff": 5120, "num_heads": 32}
# NVIDIA's documentation of TensorRT-LLM, encoder-decoder page (repository, commit 04ca506a): BF16 on one H100 80 GB,
# greedy, inputs of 260 to 440 tokens, at most 128 output tokens, PyTorch backend: (batch, latency in ms)
PUBLISHED = {"xl": (FLAN_XL, {32: 706.1, 64: 1136.7, 128: 1999.3}), "bart": (BART, {32: 280.2, 64: 343.0, 128: 472.7})}
GIB = 2.0**30


def estimate(**given: Any) -> dict[str, Any]:
    body = {"accelerator": "h100-sxm", "weights": "bf16", "isl": 512, "osl": 100, "concurrency": 8}
    return as_json.estimate(deployment.parse_deployment(body | given))


def numbers(value: Any) -> list[float]:
    if isinstance(value, dict):
        return [n for item in value.values() for n in numbers(item)]
    if isinstance(value, list):
        return [n for item in value for n in numbers(item)]
    return [value] if isinstance(value, float) else []


@pytest.mark.parametrize("config", [FLAN_XXL, WHISPER, BART, BERT], ids=["t5", "whisper", "bart", "bert"])
@pytest.mark.parametrize("client", ["steady", "burst:3", "poisson:2", "static"])
def test_an_imported_config_gives_a_whole_estimate(tmp_path: Path, config: dict[str, Any], client: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    call_command("import_model", str(path), "--slug", "mine", verbosity=0)
    said = estimate(model="mine", client=client, osl=0 if config is BERT else 100, accelerator="l40s")
    assert said["fits"] and all(math.isfinite(n) for n in numbers(said))
    memory = said["memory"]
    assert sum(memory.values()) == pytest.approx(said["usable_gib"], rel=1e-4)
    assert ("source_kv_gib" in memory) == (config is not BERT)
    assert said["isl"] == 512 and said["requests_per_s"] > 0
    if config is BERT:
        assert said["latency_ms"]["mean"] > 0 and said["output_tokens_per_s"] is None
        assert said["input_tokens_per_s"] == pytest.approx(512 * said["sequences_per_s"], rel=0.02)
    else:
        rates = said["output_tokens_per_s"], said["requests_per_s"]
        assert said["total_tokens_per_s"] == pytest.approx(rates[0] + 512 * rates[1], rel=0.01)


def test_t5_xxl_holds_the_caches_of_its_sources() -> None:
    said = estimate(model="google/flan-t5-xxl", concurrency=32)
    assert said["source_kv_bytes_per_sequence"] == pytest.approx(512 * 24 * 2 * 4096 * 2, rel=1e-5)
    assert said["memory"]["source_kv_gib"] * GIB == pytest.approx(32 * 512 * 24 * 2 * 4096 * 2, rel=1e-4)
    assert said["kv_bytes_per_token"] == 24 * 2 * 4096 * 2


def test_a_window_of_speech_costs_the_same_however_much_of_it_is_silence() -> None:
    short, full = (estimate(model="openai/whisper-large-v3", isl=n) for n in (50, 1500))
    assert short["ttft_ms"] == full["ttft_ms"] and short["memory"] == full["memory"]
    with pytest.raises(WorkloadError, match="one 30 s window"):
        estimate(model="openai/whisper-large-v3", isl=1501)


@pytest.mark.parametrize(
    ("change", "field"),
    [({"model": "intfloat/e5-large-v2", "osl": 2}, "osl"), ({"model": "meta-llama/Llama-3.1-8B", "osl": 0}, "osl")],
)
def test_who_generates_tokens_and_who_does_not(change: dict[str, Any], field: str) -> None:
    with pytest.raises(WorkloadError) as caught:
        estimate(**change)
    assert caught.value.errors[0]["field"] == field


def test_the_first_framework_is_one_that_is_known_to_run_it() -> None:
    chosen = {model: estimate(model=model) for model in ("google/flan-t5-xxl", "openai/whisper-large-v3")}
    assert chosen["google/flan-t5-xxl"]["framework"] == "tensorrt-llm"
    assert chosen["openai/whisper-large-v3"]["framework"] == "vllm"
    with pytest.raises(WorkloadError, match=r"no documented support for this kind of model \(cross-attention\)"):
        estimate(model="google/flan-t5-xxl", framework="vllm")


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_batches_are_met_within_two_fifths(name: str) -> None:
    """Nothing was fitted to these rows; the batch lasts as long as its longest answer, taken as the limit."""
    config, latency_ms = PUBLISHED[name]
    asked = {"model": {"config": config}, "framework": "tensorrt-llm", "isl": 350, "osl": 128, "client": "static"}
    found = {}
    for batch in latency_ms:
        said = estimate(**asked, concurrency=batch)
        found[batch] = said["ttft_ms"]["mean"] + 127 * said["tpot_ms"]["mean"]
        assert found[batch] == pytest.approx(latency_ms[batch], rel=0.4)
    assert list(found.values()) == sorted(found.values())
