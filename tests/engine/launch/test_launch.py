"""The command of one replica can serve the workload, and says what the deployment assumes."""

import shlex
from dataclasses import replace
from typing import Any

import pytest
import yaml

from advisor.engine.launch.command import Z999, launch, p999_tokens
from advisor.engine.network import Release
from advisor.engine.search import Question
from advisor.engine.search.run import search
from advisor.engine.search.simulated import Scored
from advisor.engine.terms.software import Framework, Quantization
from advisor.engine.terms.workloads.workload import Lengths
from tests.engine.catalog_sample import BF16, FP8, INT4, LLAMA_8B, VLLM, catalog, question, software

HOSTILE = "org/model'; rm -rf x #\n$(reboot)"
CONVERSIONS = (Release(hf_id="other/model-NVFP4", format="nvfp4"),)
DEEPSEEK = replace(
    LLAMA_8B, native_dtype="fp8", published=Release(hf_id="", format="fp8-block"), conversions=CONVERSIONS
)
GPT_OSS = replace(LLAMA_8B, native_dtype="mxfp4", published=Release(hf_id="", format="mxfp4", experts_only=True))
FP8_BLOCK = replace(FP8, slug="fp8-block", name="FP8 blocks")
NVFP4 = replace(INT4, slug="nvfp4", weights_dtype="nvfp4", name="NVFP4")
MXFP4 = replace(INT4, slug="mxfp4", weights_dtype="mxfp4", name="MXFP4")


@pytest.fixture(scope="module")
def best() -> Scored:
    return search(Question(question(), catalog())).ranked[0]


def under(s: Scored, framework: str, quantization: Quantization = BF16, **choice: Any) -> Scored:
    """The same deployment under another framework, with roomy defaults: 12 requests at once, 400,000 tokens."""
    served: Framework = replace(VLLM, slug=framework, name=framework, **software(framework))
    lane = replace(s.lane, framework=served, choice=replace(s.lane.choice, quantization=quantization, **choice))
    return replace(s, lane=lane, concurrency=12, memory=replace(s.memory, kv_capacity_tokens=400_000.0))


def words(s: Scored, model: Any = LLAMA_8B, name: str = "org/model", **asked: Any) -> list[str]:
    return shlex.split(launch(name, s, model, question(**asked))["command"])


def option(found: list[str], name: str) -> str:
    return found[found.index(name) + 1]


def test_the_command_carries_the_layout_and_the_planned_seats(best: Scored):
    found = words(best)
    vllm = best.lane.framework.slug == "vllm"
    assert option(found, "--tensor-parallel-size" if vllm else "--tp-size") == str(best.lane.choice.tp)
    assert option(found, "--max-num-seqs" if vllm else "--max-running-requests") == str(best.concurrency)


@pytest.mark.parametrize("framework", ["vllm", "sglang", "tensorrt-llm", "llama.cpp", "mlx"])
def test_every_server_listens_where_others_reach_it(best: Scored, framework: str):
    found = words(under(best, framework))
    assert (option(found, "--host"), option(found, "--port")) == ("0.0.0.0", "8000")


# --- the longest request ----------------------------------------------------------------------------------------


def test_a_rare_length_by_hand():
    """ln(p95 / mean) = 1.645 sigma - sigma^2 / 2: with sigma 1 the p95 is 3.1423 means, the p99.9 13.331."""
    assert p999_tokens(Lengths(mean_tokens=1000, p95_tokens=3142.3)) == pytest.approx(13_331, rel=2e-3)
    assert p999_tokens(Lengths(mean_tokens=1000, p95_tokens=1000)) == pytest.approx(1000)
    assert pytest.approx(3.0902) == Z999


def test_the_longest_request_covers_all_but_one_in_a_thousand(best: Scored):
    """1,000/3,000 and 200/500 tokens: about 12,100 and 1,750, in steps of 1,024."""
    asked = question()
    rare = p999_tokens(asked.input_tokens) + p999_tokens(asked.output_tokens)
    best = replace(best, verified=replace(best.verified, longest_tokens=0))
    tokens = int(option(words(under(best, "vllm")), "--max-model-len"))
    assert rare <= tokens < rare + 1024 and tokens > 4 * best.lane.context_tokens


def test_every_request_that_the_simulation_served_can_be_sent_to_the_server(best: Scored):
    seen = best.verified.longest_tokens
    assert seen > 10_000 and int(option(words(under(best, "vllm")), "--max-model-len")) >= seen


@pytest.mark.parametrize(("context", "capacity", "reason"), [(4096, 1e6, "model's context"), (131072, 5000, "cache")])
def test_the_longest_request_ends_with_the_model_or_the_cache(
    best: Scored, context: int, capacity: float, reason: str
) -> None:
    s = under(best, "vllm")
    s = replace(s, memory=replace(s.memory, kv_capacity_tokens=capacity))
    model = replace(LLAMA_8B, max_context_tokens=context)
    assert int(option(words(s, model), "--max-model-len")) == min(context, capacity)
    assert reason in launch("m", s, model, question())["files"]["serve.sh"]


# --- llama.cpp --------------------------------------------------------------------------------------------------


def test_llama_cpp_has_a_longest_request_for_each_slot_and_takes_a_file(best: Scored):
    s, constant = under(best, "llama.cpp"), Lengths(mean_tokens=1024, p95_tokens=1024)
    found = words(s, input_tokens=constant, output_tokens=constant)
    assert option(found, "--parallel") == "12" and option(found, "--ctx-size") == str(12 * 2048)
    assert option(found, "--model") == "<GGUF file of org/model in BF16>" and "--hf-repo" not in found


def test_llama_cpp_starts_no_more_slots_than_the_cache_holds(best: Scored):
    s, constant = under(best, "llama.cpp"), Lengths(mean_tokens=1024, p95_tokens=1024)
    small = replace(s, memory=replace(s.memory, kv_capacity_tokens=5 * 2048.0 + 1))
    asked = question(input_tokens=constant, output_tokens=constant)
    found = launch("m", small, LLAMA_8B, asked)
    assert option(shlex.split(found["command"]), "--parallel") == "5"
    assert option(shlex.split(found["command"]), "--ctx-size") == str(5 * 2048)
    assert "planned for 12 concurrent requests" in found["files"]["serve.sh"]
    staged = replace(small, lane=replace(small.lane, choice=replace(small.lane.choice, pp=2)))
    assert option(words(staged, input_tokens=constant, output_tokens=constant), "--parallel") == "10"


# --- TensorRT-LLM -----------------------------------------------------------------------------------------------


def test_tensorrt_llm_reads_the_cache_format_and_attention_dp_from_its_file(best: Scored):
    found = launch("m", under(best, "tensorrt-llm", kv_dtype="fp8", dp=4), LLAMA_8B, question())
    options = yaml.safe_load(found["files"][option(shlex.split(found["command"]), "--extra_llm_api_options")])
    assert options == {
        "enable_attention_dp": True, "enable_chunked_prefill": True,
        "kv_cache_config": {"dtype": "fp8", "free_gpu_memory_fraction": 0.9},
    }  # fmt: skip


def test_tensorrt_llm_with_a_16_bit_cache_keeps_the_model_s_own(best: Scored):
    found = launch("m", under(best, "tensorrt-llm", kv_dtype="bf16", dp=1), LLAMA_8B, question())
    options = yaml.safe_load(found["files"]["trtllm-options.yaml"])
    assert options["kv_cache_config"]["dtype"] == "auto" and "enable_attention_dp" not in options


# --- which weights ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("framework", ["vllm", "sglang"])
def test_vllm_and_sglang_make_fp8_while_they_load(best: Scored, framework: str):
    found = words(under(best, framework, FP8))
    assert "org/model" in found and option(found, "--quantization") == "fp8"


@pytest.mark.parametrize(
    ("framework", "quantization"),
    [("vllm", INT4), ("sglang", FP8_BLOCK), ("tensorrt-llm", FP8), ("neuron", FP8), ("mlx", INT4)],
)
def test_weights_that_nobody_published_are_a_placeholder(best: Scored, framework: str, quantization: Quantization):
    found = launch("org/model", under(best, framework, quantization), LLAMA_8B, question())
    assert f"<checkpoint of org/model in {quantization.name}>" in shlex.split(found["command"])
    assert "--quantization" not in found["command"]
    assert f"with the path of a {quantization.name} checkpoint" in found["files"]["serve.sh"]


@pytest.mark.parametrize("framework", ["vllm", "sglang", "tensorrt-llm"])
@pytest.mark.parametrize(("model", "quantization"), [(DEEPSEEK, FP8_BLOCK), (GPT_OSS, MXFP4), (LLAMA_8B, BF16)])
def test_the_published_format_needs_neither_flag_nor_other_checkpoint(
    best: Scored, framework: str, model: Any, quantization: Quantization
) -> None:
    found = launch("org/model", under(best, framework, quantization), model, question())
    assert "org/model" in shlex.split(found["command"])
    assert "--quantization" not in found["command"]
    assert f"# checkpoint: org/model as published, in {quantization.name}\n" in found["files"]["serve.sh"]


@pytest.mark.parametrize("framework", ["vllm", "sglang", "tensorrt-llm"])
def test_a_published_conversion_is_served_under_its_own_repository(best: Scored, framework: str):
    found = launch("org/model", under(best, framework, NVFP4), DEEPSEEK, question())
    assert "other/model-NVFP4" in shlex.split(found["command"]) and "--quantization" not in found["command"]
    assert "other/model-NVFP4, a published conversion of org/model to NVFP4" in found["files"]["serve.sh"]


def test_fp8_with_one_scale_per_tensor_is_not_the_block_scaled_checkpoint(best: Scored):
    found = launch("org/model", under(best, "tensorrt-llm", FP8), DEEPSEEK, question())
    assert "<checkpoint of org/model in FP8>" in shlex.split(found["command"])
    assert "convert org/model to FP8 first" in found["files"]["serve.sh"]


def test_a_wider_checkpoint_is_cast_while_it_loads(best: Scored):
    found = words(under(best, "vllm"), replace(LLAMA_8B, native_dtype="fp32"))
    assert "org/model" in found and option(found, "--dtype") == "bfloat16"


# --- the script -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("framework", ["vllm", "sglang", "tensorrt-llm", "llama.cpp", "mlx"])
@pytest.mark.parametrize("quantization", [BF16, INT4])
def test_a_model_name_cannot_add_words_or_lines(best: Scored, framework: str, quantization: Quantization):
    s = under(best, framework, quantization)
    plain, hostile = (words(s, name=name) for name in ("m", HOSTILE))
    assert len(plain) == len(hostile) and any(HOSTILE in word for word in hostile)
    script = launch(HOSTILE, s, LLAMA_8B, question())["files"]["serve.sh"]
    comments, _, command = script.partition("\nexec ")
    assert all(line.startswith("#") for line in comments.splitlines())
    assert shlex.split(command) == hostile


def test_the_script_runs_the_command(best: Scored):
    found = launch("org/model", best, LLAMA_8B, question())
    script = found["files"]["serve.sh"]
    assert script.startswith("#!/bin/sh\n") and script.endswith(f"exec {found['command']}\n")


@pytest.mark.parametrize(("replicas", "said"), [(1, False), (3, True)])
def test_several_replicas_need_a_load_balancer(best: Scored, replicas: int, said: bool):
    script = launch("m", replace(best, replicas=replicas), LLAMA_8B, question())["files"]["serve.sh"]
    assert ("load balancer" in script) is said


@pytest.mark.parametrize(
    ("framework", "vendor", "said"),
    [
        ("vllm", "nvidia", "pip install vllm==0.24.0"),
        ("vllm", "amd", "version 0.24.0 for this chip"),
        ("mlx", "apple", "pip install mlx-lm==0.24.0"),
        ("llama.cpp", "nvidia", "version 0.24.0 for this chip"),
    ],
)
def test_the_script_says_which_release_to_get(best: Scored, framework: str, vendor: str, said: str) -> None:
    a = replace(best.lane.choice.accelerator, vendor=vendor)
    script = launch("m", under(best, framework, accelerator=a), LLAMA_8B, question())["files"]["serve.sh"]
    assert f"# install: {said}" in script


def test_a_cpu_is_told_the_room_of_its_cache(best: Scored):
    a = replace(best.lane.choice.accelerator, kind="cpu")
    s = under(best, "vllm", accelerator=a)
    s = replace(s, memory=replace(s.memory, kv_bytes=30.5 * 2**30, free_bytes=10 * 2.0**30))
    found = words(s)
    assert found[:4] == ["env", "VLLM_CPU_KVCACHE_SPACE=40", "vllm", "serve"]
    assert "--gpu-memory-utilization" not in found and "env" not in words(under(best, "vllm"))


@pytest.mark.parametrize("dp", [1, 4])
def test_sglang_is_told_the_step_tokens_of_all_attention_ranks(best: Scored, dp: int) -> None:
    """It divides --chunked-prefill-size by their number."""
    start = under(best, "sglang", dp=dp)
    words = shlex.split(launch("m", start, LLAMA_8B, question())["command"])
    assert option(words, "--chunked-prefill-size") == str(start.lane.max_batched_tokens * dp)
