"""Every kind of file of a running deployment is read into the same record."""

from pathlib import Path
from typing import Any

import pytest

from advisor.deployments import grouped
from advisor.deployments.files import Given, read_files
from advisor.deployments.flags import command_of, words_of
from advisor.deployments.records import Record, joined

SAMPLES = Path(__file__).parent / "samples"
LLAMA, QWEN = "meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen3-32B"


def read(*names: str, **changes: Any) -> list[Record]:
    return read_files([Given(name, (SAMPLES / name).read_bytes()) for name in names], **changes)


SETTINGS: list[tuple[str, int, dict[str, Any]]] = [  # file, place of the record, some of its settings
    ("vllm.log", 0, {"framework": "vllm", "version": "0.11.0", "model": LLAMA, "served_name": "llama-8b", "tp": 1,
                     "max_num_seqs": 64, "max_batched_tokens": 4096, "max_model_len": 16384, "memory_fraction": 0.92,
                     "prefix_caching": True, "enforce_eager": False, "speculative": {"method": "ngram", "k": 3}}),
    ("vllm-old.log", 0, {"version": "0.6.5", "model": "meta-llama/Llama-3.1-70B-Instruct", "tp": 4, "kv_dtype": "fp8",
                         "max_num_seqs": 256, "memory_fraction": 0.95, "prefix_caching": False}),
    ("vllm-0.33.log", 0, {"version": "0.33.0", "model": "/models/fp8", "served_name": "meta-llama/Llama-3.1-8B",
                          "kv_dtype": "fp8", "max_num_seqs": 31, "max_batched_tokens": 8192, "memory_fraction": 0.92}),
    ("sglang.log", 0, {"framework": "sglang", "model": QWEN, "served_name": "qwen", "tp": 2, "kv_dtype": "fp8_e5m2",
                       "max_num_seqs": 2048, "max_model_len": 40960, "memory_fraction": 0.88}),
    ("vllm-new.prom", 0, {"framework": "vllm", "served_name": LLAMA, "memory_fraction": 0.9, "prefix_caching": True}),
    ("kubernetes.yaml", 0, {"framework": "vllm", "version": "0.11.0", "model": LLAMA, "tp": 2, "replicas": 3,
                            "accelerator": "NVIDIA-H100-80GB-HBM3", "accelerators": 2, "max_num_seqs": 128,
                            "max_model_len": 16000, "prefix_caching": False, "memory_fraction": 0.92}),
    ("leader-workers.yaml", 0, {"model": "meta-llama/Llama-3.1-405B-Instruct-FP8", "version": "0.10.2", "tp": 8,
                                "pp": 2, "accelerators": 16, "replicas": 2}),
    ("kserve.yaml", 0, {"model": LLAMA, "served_name": "llama", "max_model_len": 8192, "enforce_eager": True,
                        "replicas": 2}),
    ("kserve.yaml", 1, {"model": QWEN, "tp": 2, "replicas": 3, "max_num_seqs": 96, "kv_dtype": "fp8",
                        "accelerators": 2}),
    ("kserve-pools.yaml", 0, {"model": "deepseek-ai/DeepSeek-R1", "dp": 16, "tp": 1, "expert_parallel": True,
                              "accelerators": 16, "speculative": {"method": "deepseek_mtp", "k": 1},
                              "enforce_eager": True, "prefill_or_decode": None}),
    ("kserve-pools.yaml", 1, {"tp": 8, "accelerators": 8, "replicas": 2, "prefill_or_decode": "prefill"}),
    ("compose.yaml", 0, {"model": QWEN, "version": "0.24.0", "tp": 4, "accelerators": 4, "expert_parallel": True,
                         "speculative": {"method": "mtp", "k": 2}}),
    ("slurm.sh", 0, {"framework": "sglang", "version": "0.5.2", "model": "deepseek-ai/DeepSeek-R1", "tp": 16, "dp": 16,
                     "dp_attention": True, "accelerator": "h100", "accelerators": 16, "max_num_seqs": 512}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "place", "wanted"), SETTINGS, ids=[f"{s[0]}-{s[1]}" for s in SETTINGS])
def test_settings_of_each_kind(name: str, place: int, wanted: dict[str, Any]) -> None:
    found = read(name)[place].settings.as_json()
    assert {key: found.get(key) for key in wanted} == wanted


def test_only_servers_are_read_and_unknown_options_are_listed() -> None:
    found = read("kubernetes.yaml")
    assert len(found) == 1 and found[0].unknown == ("--made-up-option",)
    assert len(read("leader-workers.yaml")) == 1  # the worker starts no server


def test_a_log_has_memory_and_the_load_of_busy_times() -> None:
    seen = read("vllm.log")[0].seen
    assert seen is not None
    assert (seen.kv_capacity_tokens, seen.weights_gib, seen.kv_gib, seen.graphs_gib) == (455_536, 14.9889, 55.61, 0.49)
    assert (seen.running, seen.waiting, seen.start_s) == (10, 0.5, 28.71)  # the idle period does not count
    assert seen.output_tokens_per_s == pytest.approx(800.5)
    old = read("vllm-old.log")[0].seen
    assert old is not None and (old.kv_capacity_tokens, old.weights_gib, old.kv_gib) == (32653 * 16, 32.89, 39.86)
    other = read("sglang.log")[0].seen
    assert other is not None and (other.kv_capacity_tokens, other.weights_gib) == (610_250, 30.59)
    assert other.kv_gib == pytest.approx(37.26) and other.running == 5 and other.output_tokens_per_s == 200.5


def test_a_log_of_more_loads_than_one_says_nothing_about_a_measured_one() -> None:
    found = joined(read("vllm-0.33.log", "vllm-new.prom"))
    assert (found.seen.running, found.seen.weights_gib) == (11, 8.51)  # of the scrape, and of the log
    assert joined(read("vllm-0.33.log")).seen.running not in (None, 11)


def test_time_in_the_server_gives_the_mean_of_running_requests() -> None:
    more = 'vllm:request_inference_time_seconds_sum{engine="0",model_name="' + LLAMA + '"} 7200.0\n'
    text = (SAMPLES / "vllm-new.prom").read_bytes() + more.encode()
    seen = read_files([Given("m", text)], window_s=360)[0].seen
    assert seen is not None and seen.running == 20


def test_counters_give_rates_over_the_time_since_the_start() -> None:
    text = (SAMPLES / "vllm-new.prom").read_bytes()
    seen = read_files([Given("m", text, at_s=1.7638e9 + 360)])[0].seen
    assert seen is not None and seen.window_s == pytest.approx(360)
    assert (seen.requests_per_s, seen.output_tokens_per_s) == (pytest.approx(10), pytest.approx(2000))
    assert seen.kv_capacity_tokens == 27350 * 16 and seen.prefix_hit_fraction == pytest.approx(0.1)
    assert seen.ttft_ms["mean"] == (50, 50) and seen.ttft_ms["p95"] == (pytest.approx(60), pytest.approx(100))
    assert seen.tpot_ms["mean"] == (9.5, 9.5) and seen.tpot_ms["p95"] == (pytest.approx(10), pytest.approx(25))
    assert seen.input_tokens["p95"] == (2000, 5000) and seen.running == 11


@pytest.mark.parametrize("old", ["vllm-old.prom", "renamed"])
def test_older_and_renamed_metrics_say_the_same(old: str) -> None:
    text = (SAMPLES / "vllm-new.prom").read_text()
    renamed = text.replace("vllm:", "ray_vllm_").replace('engine="0"', 'engine="0",ReplicaId="a"')
    seen = read_files([Given("m", renamed.encode())])[0].seen if old == "renamed" else read(old)[0].seen
    newest = read("vllm-new.prom")[0].seen
    assert seen is not None and newest is not None
    for name in (
        "completed",
        "kv_used_fraction",
        "prefix_hit_fraction",
        "kv_capacity_tokens",
        "input_tokens",
        "itl_ms",
    ):
        assert getattr(seen, name) == getattr(newest, name), name
    if old == "vllm-old.prom":  # per token, so only the mean is that of requests
        assert seen.tpot_ms == {"mean": newest.itl_ms["mean"]}


def test_two_scrapes_give_what_happened_between_them() -> None:
    after = (SAMPLES / "vllm-new.prom").read_text()
    before = after.replace(" 3600.0", " 1800.0").replace(" 180.0", " 72.0").replace(" 720000.0", " 360000.0")
    given = [Given("after", after.encode(), 1.7638e9 + 400), Given("before", before.encode(), 1.7638e9 + 300)]
    (record,) = read_files(given)
    seen = record.seen
    assert seen is not None and (seen.window_s, seen.output_tokens_per_s) == (100, 3600)
    assert seen.ttft_ms["mean"] == (pytest.approx(60), pytest.approx(60)) and seen.running == 11
    assert read_files(given[::-1])[0].seen == seen  # in any order


def test_engines_add_up_and_ranks_do_not() -> None:
    text = (SAMPLES / "vllm-new.prom").read_text()
    two = text + text.replace('engine="0"', 'engine="1"').split("\n", 6)[6]
    seen, one = read_files([Given("m", two.encode())])[0].seen, read("vllm-new.prom")[0].seen
    assert seen is not None and one is not None and seen.completed == 2 * (one.completed or 0)
    assert (seen.running, seen.kv_used_fraction) == (22, one.kv_used_fraction) and seen.ttft_ms == one.ttft_ms
    other = read("sglang.prom")[0].seen
    assert other is not None and (other.running, other.completed) == (9, 1200)
    assert other.input_tokens["mean"] == (1000, 1000) and other.prefix_hit_fraction == 0.25


def test_servers_that_started_at_other_times_are_two() -> None:
    text = (SAMPLES / "vllm-new.prom").read_text()
    seen = read_files([Given("a", text.encode()), Given("b", text.replace("1.7638e+09", "1.7639e+09").encode())])[
        0
    ].seen
    assert seen is not None and (seen.servers, seen.completed, seen.running) == (2, 7200, 22)


def test_a_printed_table_is_a_result() -> None:
    (record,) = read("printed.txt")
    assert record.settings.model == LLAMA and record.result.tool == "vllm" and record.seen is not None
    assert record.seen.ttft_ms == {"mean": (79.56, 79.56), "p50": (70.91, 70.91), "p99": (109.46, 109.46)}
    assert (record.seen.concurrency, record.seen.input_tokens["mean"]) == (8, (1024, 1024))


def test_pools_of_one_model_are_deployments_of_their_own() -> None:
    assert [len(group) for group in grouped(read("kserve-pools.yaml"))] == [1, 1]


def test_files_of_one_deployment_are_joined_and_contradictions_told() -> None:
    groups = grouped(read("vllm.log", "vllm-new.prom", "sglang.log", "printed.txt"))
    assert [len(group) for group in groups] == [3, 1]
    found = joined(groups[0])
    assert found.settings.max_num_seqs == 64 and found.seen.weights_gib == 14.9889 and found.seen.concurrency == 8
    assert found.conflicts == ("memory_fraction: vllm.log says 0.92, vllm-new.prom says 0.9",)


COMMANDS: list[tuple[str, dict[str, Any]]] = [
    ("CUDA_VISIBLE_DEVICES=0 vllm serve a/b -tp 4 --max-num-seqs=8 --port 80",
     {"model": "a/b", "tp": 4, "max_num_seqs": 8}),
    ("python -m vllm.entrypoints.openai.api_server --model a/b --tensor-parallel 2", {"model": "a/b", "tp": 2}),
    ("/opt/venv/bin/vllm serve --model a/b --max-model-len 128K", {"model": "a/b", "max_model_len": 131_072}),
    ("vllm serve a/b --enable-prefix-caching --no-enable-chunked-prefill > log 2>&1", {"prefix_caching": True}),
    ("python3 -m sglang.launch_server --model a/b --tp 8 --disable-radix-cache --disable-cuda-graph",
     {"model": "a/b", "tp": 8, "prefix_caching": False, "enforce_eager": True}),
    ("python -m sglang.launch_server --model-path a --speculative-algorithm EAGLE --speculative-num-steps 3",
     {"speculative": {"method": "EAGLE", "k": 3}}),
    ("trtllm-serve a/b --tp_size 4 --max_batch_size 64 --max_num_tokens 8192",
     {"framework": "tensorrt-llm", "tp": 4, "max_num_seqs": 64, "max_batched_tokens": 8192}),
    ("text-generation-launcher --model-id a/b --num-shard 2 --quantize awq",
     {"framework": "tgi", "model": "a/b", "tp": 2, "quantization": "awq"}),
    ("lmdeploy serve api_server a/b --tp 2 --session-len 4096", {"framework": "lmdeploy", "model": "a/b", "tp": 2}),
    ("vllm serve a/b --max-num-seqs $SEATS --tensor-parallel-size ${TP:-2}", {"tp": 2, "max_num_seqs": None}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "wanted"), COMMANDS, ids=[c[0][:40] for c in COMMANDS])
def test_commands_of_servers(text: str, wanted: dict[str, Any]) -> None:
    command = command_of(words_of(text))
    assert command is not None and command.unknown == ()
    assert {key: getattr(command.settings, key) for key in wanted} == wanted
