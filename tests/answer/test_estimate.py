"""`manage.py estimate`: one fixed deployment with the shipped catalog; exit codes, fields, refusals."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from advisor.engine.estimate.simulated import estimate
from advisor.inputs.current import catalog_resources
from advisor.management.commands.estimate import model
from advisor.workload import deployment
from tests.estimate_command import Run, runner, said

SCORES = True
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("shipped")]
LLAMA = ["--model", "meta-llama/Llama-3.1-8B", "--accelerator", "h100-sxm", "--weights", "bf16"]
LENGTHS = ["--isl", "1000", "--osl", "200"]
FIELDS = """accelerator accelerator_count framework framework_version weights_dtype quantization kv_dtype tp pp ep dp
replicas concurrency max_batched_tokens speculative disaggregated memory ttft_ms tpot_ms output_tokens_per_s
output_tokens_per_s_per_accelerator requests_per_s usd_per_hour usd_per_month usd_per_mtok_input usd_per_mtok_output
usd_per_mtok_blended watts joules_per_output_token kgco2e_per_mtok bound basis interval warnings kv_bytes_per_token
kv_capacity_tokens total_tokens_per_s step fits""".split()


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys)


def test_the_json_has_the_fields_of_an_option_and_the_step(run: Run) -> None:
    answer = said(run, *LLAMA, *LENGTHS, "--concurrency", "16")
    assert set(FIELDS) <= set(answer)
    assert answer["fits"] is True
    assert {line["phase"] for line in answer["step"]} == {"prefill", "decode"}
    assert answer["output_tokens_per_s"] == pytest.approx(answer["requests_per_s"] * 200, rel=0.02)
    assert answer["total_tokens_per_s"] == pytest.approx(answer["output_tokens_per_s"] * 6, rel=0.02)
    low, high = answer["interval"]["tpot_ms"]
    assert low < answer["tpot_ms"]["mean"] < high


def test_the_scorecard_scores_the_decode_step_that_advice_uses(run: Run) -> None:
    """One H100 PCIe wrote 144.5 tokens/s of this model in May 2024, before CUDA graphs (source gpu_bench_llamacpp)."""
    name = "meta-llama/Meta-Llama-3-8B"
    options = "--accelerator h100-pcie --weights q4_k_m --framework llama.cpp --isl 1 --osl 1024 --concurrency 1"
    answer = said(run, "--model", name, *options.split())
    step_ms = 1e3 * sum(line["time_s"] for line in answer["step"] if line["phase"] == "decode")
    assert answer["tpot_ms"]["mean"] == pytest.approx(step_ms, rel=5e-3)
    stated = {"model": name, "accelerator": "h100-pcie", "weights": "q4_k_m", "framework": "llama.cpp"}
    fixed = deployment.parse_deployment({**stated, "isl": 1, "osl": 1024, "concurrency": 1})
    built = deployment.fixed(fixed, catalog_resources([name]))
    scored = estimate(replace(built.case, phase="decode"), built.resources)
    assert scored.tpot_mean_s * 1e3 == pytest.approx(step_ms, rel=1e-4)
    assert step_ms == pytest.approx(1e3 / 144.5, rel=0.3)  # today's builds have graphs, and are predicted faster


def test_the_cache_of_a_token_is_that_of_the_published_shape(run: Run) -> None:
    answer = said(run, *LLAMA, *LENGTHS, "--concurrency", "1")
    assert answer["kv_bytes_per_token"] == 2 * 32 * 8 * 128 * 2
    assert said(run, *LLAMA, *LENGTHS, "--kv", "fp8", "--concurrency", "1")["kv_bytes_per_token"] == 2 * 32 * 8 * 128
    parts = answer["memory"]
    assert sum(parts.values()) == pytest.approx(answer["usable_gib"], rel=1e-4)


def test_replicas_add_throughput_and_change_nothing_else(run: Run) -> None:
    one = said(run, *LLAMA, *LENGTHS, "--concurrency", "16")
    two = said(run, *LLAMA, *LENGTHS, "--concurrency", "32", "--dp", "2")
    assert two["accelerator_count"] == 2 and two["replicas"] == 2 and two["dp"] == 1
    assert two["output_tokens_per_s"] == pytest.approx(2 * one["output_tokens_per_s"], rel=1e-5)
    assert two["tpot_ms"] == one["tpot_ms"] and two["memory"] == one["memory"]


def test_a_count_alone_means_replicas_and_says_so(run: Run) -> None:
    answer = said(run, *LLAMA, *LENGTHS, "--concurrency", "8", "--count", "4", "--tp", "2")
    assert (answer["accelerator_count"], answer["replicas"]) == (4, 2)
    assert "2 independent replicas" in answer["warnings"][0]


def test_max_is_as_many_as_the_cache_holds(run: Run) -> None:
    answer = said(run, *LLAMA, "--isl", "20000", "--osl", "2000", "--concurrency", "max")
    assert answer["concurrency"] == answer["kv_capacity_tokens"] // 22000


def test_more_requests_than_run_at_once_are_said_to_queue(run: Run) -> None:
    answer = said(run, *LLAMA, "--isl", "20000", "--osl", "2000", "--concurrency", "200")
    assert any("the rest wait in the queue" in warning for warning in answer["warnings"])


def test_attention_dp_stays_inside_the_replica(run: Run) -> None:
    args = ["--model", "deepseek-ai/DeepSeek-V3", "--accelerator", "h200-sxm", "--weights", "fp8", *LENGTHS]
    answer = said(run, *args, "--attention-dp", "8", "--ep", "8", "--concurrency", "64")
    assert (answer["accelerator_count"], answer["dp"], answer["replicas"], answer["moe_tp"]) == (8, 8, 1, 1)


def test_two_pools(run: Run) -> None:
    args = ["--model", "deepseek-ai/DeepSeek-V3", "--accelerator", "h200-sxm", "--weights", "fp8", *LENGTHS]
    pools = ["--prefill-pool", "tp=8;workers=2", "--decode-pool", "attention_dp=8;ep=8;batch=32"]
    answer = said(run, *args, *pools, "--concurrency", "64", "--client", "burst:10")
    assert answer["accelerator_count"] == 24
    assert answer["disaggregated"]["prefill"]["replicas"] == 2 and answer["disaggregated"]["kv_transfer_s"] > 0
    assert answer["ttft_ms"]["p99"] >= answer["ttft_ms"]["p95"] >= answer["ttft_ms"]["p50"] > 0
    assert answer["client_note"].startswith("64 users start at once and send 10 requests each")


def test_the_client_that_a_ttft_assumes_is_said(run: Run) -> None:
    said_of = {
        client: said(run, *LLAMA, *LENGTHS, "--concurrency", "8", "--client", client)["client_note"]
        for client in ("steady", "burst:3", "poisson:2", "static")
    }
    assert said_of["steady"].startswith("8 requests in flight all the time") and "no opening burst" in said_of["steady"]
    assert "includes the opening burst" in said_of["burst:3"] and "3 requests each" in said_of["burst:3"]
    assert said_of["poisson:2"].startswith("requests arrive at random, 2 per second")
    assert said_of["static"].startswith("one batch of 8")


def test_two_pools_take_as_many_as_the_decode_pool_may_run(run: Run) -> None:
    args = ["--model", "deepseek-ai/DeepSeek-V3", "--accelerator", "h200-sxm", "--weights", "fp8", *LENGTHS]
    pools = ["--prefill-pool", "tp=8;workers=2", "--decode-pool", "attention_dp=8;ep=8;batch=4"]
    most, same = said(run, *args, *pools), said(run, *args, *pools, "--concurrency", "32")
    assert most["concurrency"] == 32 and most["tpot_ms"] == same["tpot_ms"]


def test_a_poisson_client_above_capacity_is_warned(run: Run) -> None:
    calm = said(run, *LLAMA, *LENGTHS, "--client", "poisson:2")
    assert calm["requests_per_s"] == pytest.approx(2, rel=0.25)
    wild = said(run, *LLAMA, *LENGTHS, "--client", "poisson:500")
    assert any("exceed the capacity" in warning for warning in wild["warnings"])


def test_a_spread_of_lengths_shortens_them(run: Run) -> None:
    full = said(run, *LLAMA, *LENGTHS, "--concurrency", "8")
    spread = said(run, *LLAMA, *LENGTHS, "--concurrency", "8", "--length-spread", "0.5:1.0")
    assert spread["requests_per_s"] > full["requests_per_s"]


def test_a_model_from_its_config_equals_the_one_of_the_catalog(run: Run, tmp_path: Path) -> None:
    config = {"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
              "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
              "max_position_embeddings": 131072, "tie_word_embeddings": False, "torch_dtype": "bfloat16"}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    rest = ["--accelerator", "h100-sxm", "--weights", "bf16", *LENGTHS, "--concurrency", "8"]
    own = said(run, "--model", str(tmp_path / "config.json"), *rest)
    known = said(run, *LLAMA, *LENGTHS, "--concurrency", "8")
    assert own["tpot_ms"] == known["tpot_ms"] and own["memory"] == known["memory"]


def test_what_does_not_fit_is_exit_3_with_parts_and_a_change_that_fits(run: Run) -> None:
    args = ["--model", "meta-llama/Llama-3.3-70B-Instruct", "--accelerator", "h100-sxm", "--weights", "bf16", *LENGTHS]
    code, output, _ = run(*args, "--format", "json")
    answer = json.loads(output)
    assert (code, answer["fits"]) == (3, False)
    assert answer["memory"]["weights_gib"] > answer["usable_gib"] and answer["memory"]["free_gib"] < 0
    name, size = next(change for change in answer["smallest_change"] if change.startswith("tp ")).split()
    assert said(run, *args, f"--{name}", size)["fits"] is True
    assert "DOES NOT FIT" in run(*args)[1]


def test_the_table_has_the_headline_the_memory_and_the_steps(run: Run) -> None:
    code, output, _ = run(*LLAMA, *LENGTHS, "--concurrency", "8")
    assert code == 0
    for part in ("1 x H100", "memory per accelerator", "TPOT  mean", "one prefill step", "one decode step", "ffn/up"):
        assert part in output


@pytest.mark.parametrize(
    ("change", "flag", "words"),
    [
        (["--count", "3", "--tp", "2"], "--count", "remove count"),
        (["--count", "4", "--tp", "2", "--dp", "1"], "--count", "remove count"),
        (["--tp", "3"], "--tp", "32 attention heads"),
        (["--ep", "2"], "--ep", "no experts"),
        (["--prefill-pool", "tp=2"], "--decode-pool", "required"),
        (["--prefill-pool", "tp=2", "--decode-pool", "tp=2", "--tp", "2"], "--tp", "inside"),
        (["--prefill-pool", "tp=2", "--decode-pool", "tpp=2"], "--decode-pool.tpp", "unknown key"),
        (["--prefill-pool", "tp", "--decode-pool", "tp=2"], "--prefill-pool", "KEY=NUMBER"),
        (["--client", "poison:3"], "--client", "poisson:RATE"),
        (["--client", "poisson:0"], "--client", "above 0"),
        (["--length-spread", "1.0:0.8"], "--length-spread", "0.8:1.0"),
        (["--kv", "fp9"], "--kv", "fp8"),
        (["--weights", "fp88"], "--weights", "did you mean fp8"),
        (["--framework", "vlm"], "--framework", "did you mean vllm"),
        (["--framework", "mlx"], "--framework", "does not run on"),
        (["--accelerator", "h100-sxn"], "--accelerator", "did you mean h100-sxm"),
        (["--model", "meta-llama/Llama-3.1-8b-x"], "--model", "did you mean meta-llama/Llama-3.1-8B"),
        (["--isl", "0"], "--isl", "at least 1"),
        (["--concurrency", "0"], "--concurrency", "or max"),
        (["--model", "absent/config.json"], "--model", "absent"),
    ],
)
def test_what_cannot_be_meant_is_exit_2_and_names_the_flag(run: Run, change: list[str], flag: str, words: str) -> None:
    code, output, errors = run(*LLAMA, *LENGTHS, *change)
    assert (code, output) == (2, "")
    assert errors.startswith(f"{flag}:") and words in errors


def test_a_missing_flag_is_refused() -> None:
    with pytest.raises(CommandError, match="--weights"):
        call_command("estimate", "--model", "m", "--accelerator", "a", *LENGTHS)


def test_only_paths_are_read_as_files() -> None:
    def fail(text: str) -> None:
        raise AssertionError(text)

    assert model("org/name", False, fail) == "org/name"


def test_the_nearest_measured_rows_stand_beside_the_estimate(run: Run) -> None:
    measured = ["--model", "Qwen/Qwen3-8B", "--accelerator", "h200-sxm", "--weights", "bf16", "--framework", "vllm"]
    args = [*measured, "--isl", "1024", "--osl", "256", "--concurrency", "16"]
    items = said(run, *args)["evidence"]
    assert {
        "id",
        "accelerator",
        "model",
        "framework",
        "distance",
        "metric",
        "measured",
        "predicted",
        "source",
        "url",
    } <= (set(items[0]))
    assert items[0]["near"] and (items[0]["accelerator"], items[0]["model"]) == ("h200-sxm", "Qwen/Qwen3-8B")
    assert [item["distance"] for item in items] == sorted(item["distance"] for item in items)
    assert "nearest measured rows:" in run(*args)[1]


def test_it_is_said_when_nothing_measured_is_near(run: Run) -> None:
    code, output, errors = run(
        *["--model", "meta-llama/Llama-3.1-8B", "--accelerator", "tpu-v5e", "--weights", "bf16", "--tp", "4", *LENGTHS]
    )
    assert (code, errors) == (0, "")
    assert "no measured row is similar to this" in output
