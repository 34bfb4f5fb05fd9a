"""Every format is read into the same run: what the file says, with its figures in the unit that their name ends in."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from advisor.evidence import EvidenceError, formats
from advisor.evidence.formats import Reading
from advisor.fidelity import COLUMNS, Row
from advisor.fidelity.protocols import run_of
from advisor.fidelity.rows import client_of, run_facts
from tests.evidence import samples
from tests.sample_load_results import aiperf as sample_aiperf
from tests.sample_load_results import guidellm as sample_guidellm
from tests.sample_load_results import vllm as sample_vllm

FIGURES = {"ttft_ms_mean": 200.0, "ttft_ms_p50": 150.0, "ttft_ms_p99": 900.0, "tpot_ms_mean": 9.0}
LOAD = {"isl": "1024", "osl": "1024", "concurrency_or_batch": "16"}


def read(tmp_path: Path, content: str | bytes, name: str = "") -> list[Reading]:
    path = tmp_path / "file"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return formats.read(path, name)[1]


def one(tmp_path: Path, record: Any) -> Reading:
    (found,) = read(tmp_path, record if isinstance(record, str) else json.dumps(record))
    return found


CLOSED = {"type_": "concurrent", "streams": 16}
SAME_RUN = {
    "inferencex": samples.inferencex(),
    "inferencex artifact": samples.inferencex_artifact(),
    "inferencex table": samples.INFERENCEX_CSV,
    "vllm": samples.vllm(),
    "sglang": samples.sglang(),
    "guidellm": samples.guidellm(CLOSED),
    "guidellm before 0.4": samples.guidellm(CLOSED, old=True),
    "aiperf": samples.aiperf(),
    "aiperf with records": {"records": samples.aiperf(), "input_config": samples.aiperf()["input_config"]},
}


@pytest.mark.parametrize("name", SAME_RUN)
def test_each_format_reads_the_same_run(name: str, tmp_path: Path) -> None:
    found = one(tmp_path, SAME_RUN[name])
    assert {metric: pytest.approx(value) for metric, value in FIGURES.items()} == {
        metric: found.figures[metric] for metric in FIGURES
    }
    assert found.figures["output_tokens_per_s"] == pytest.approx(1680.0)
    assert {key: found.said[key] for key in LOAD} == LOAD
    assert found.said["model"] == samples.MODEL
    assert not found.skipped and not found.doubt


def test_the_csv_of_aiperf_has_no_settings(tmp_path: Path) -> None:
    found = one(tmp_path, samples.AIPERF_CSV)
    assert found.figures == {**FIGURES, "tpot_ms_p50": 9.0, "tpot_ms_p99": 11.0, "output_tokens_per_s": 1680.0}
    assert "concurrency_or_batch" not in found.said and found.said["isl"] == "1024"


@pytest.mark.parametrize("form", ["list", "lines", "gzip", "byte order mark", "one key"])
def test_several_runs_in_any_wrapping(form: str, tmp_path: Path) -> None:
    records = [samples.inferencex(conc=8), samples.inferencex(conc=16)]
    plain = json.dumps(records).encode()
    content = {
        "list": plain,
        "lines": "\n".join(map(json.dumps, records)).encode(),
        "gzip": gzip.compress(plain),
        "byte order mark": b"\xef\xbb\xbf" + plain,
        "one key": json.dumps({"results": records}).encode(),
    }[form]
    assert [each.said["concurrency_or_batch"] for each in read(tmp_path, content)] == ["8", "16"]


def test_seconds_and_shares_of_a_chip_become_ms_and_the_whole_deployment(tmp_path: Path) -> None:
    run = samples.inferencex(decode_tp=8, prefill_tp=8, num_decode_gpu=8, num_prefill_gpu=8, decode_dp_attention=True)
    found = one(tmp_path, run)
    assert (found.figures["ttft_ms_mean"], found.figures["total_tokens_per_s"]) == (200.0, 8 * 3350.0)
    layout = {name: found.said[name] for name in ("n_accelerators", "tp", "attention_dp")}
    assert layout == {"n_accelerators": "8", "tp": "1", "attention_dp": "8"}


@pytest.mark.parametrize(
    ("hardware", "chip"), [("h200-nv", "h200"), ("cluster:b300-nv", "b300"), ("mi355x_3", "mi355x"), ("gb200", "gb200")]
)
def test_a_runner_of_inferencex_names_its_chip(hardware: str, chip: str, tmp_path: Path) -> None:
    assert one(tmp_path, samples.inferencex_artifact(hw=hardware)).said["accelerator"] == chip


def test_the_keys_of_inferencex_stand_for_its_models(tmp_path: Path) -> None:
    for key, model in (("dsr1", "deepseek-ai/DeepSeek-R1"), ("gptoss-fp4", "openai/gpt-oss-120b")):
        assert one(tmp_path, samples.inferencex(infmax_model_prefix=None, model=key)).said["model"] == model


def test_pools_apart_keep_their_layout_and_no_throughput(tmp_path: Path) -> None:
    pools = {"disagg": True, "num_prefill_gpu": 4, "num_decode_gpu": 8, "prefill_num_workers": 1, "prefill_tp": 4}
    found = one(tmp_path, samples.inferencex(**pools, decode_num_workers=2, decode_tp=4))
    assert found.said["prefill_pool"] == "workers=1;tp=4;ep=1;attention_dp=1"
    assert (found.said["n_accelerators"], found.said["mode"]) == ("12", "disagg")
    assert not {"output_tokens_per_s", "total_tokens_per_s"} & set(found.figures)


@pytest.mark.parametrize(
    "run",
    [
        samples.inferencex(spec_method="mtp"),
        samples.inferencex_artifact(mtp="on"),
        samples.sglang(server_info={"speculative_algorithm": "EAGLE", "model_path": "m"}),
        samples.sglang(accept_length=2.7),
    ],
)
def test_speculative_runs_are_left_out_with_the_reason(run: Any, tmp_path: Path) -> None:
    assert "speculative decoding" in one(tmp_path, run).skipped


@pytest.mark.parametrize(
    ("changes", "load"),
    [
        ({"request_rate": 4.0, "max_concurrency": None}, "qps=4"),
        ({"request_rate": "inf", "max_concurrency": None}, "160"),
        ({"request_rate": float("inf"), "max_concurrency": 16}, "16"),
        ({"request_rate": 4.0, "max_concurrency": 16}, "16"),
    ],
)
def test_rates_and_limits_tell_open_from_closed_loops(changes: Any, load: str, tmp_path: Path) -> None:
    assert one(tmp_path, samples.vllm(**changes)).said["concurrency_or_batch"] == load
    assert one(tmp_path, samples.sglang(**changes, num_prompts=160)).said["concurrency_or_batch"] == load


def test_a_sweep_of_guidellm_is_one_run_a_strategy(tmp_path: Path) -> None:
    sweep = samples.guidellm(
        {"type_": "synchronous"},
        {"type_": "throughput"},
        {"type_": "constant", "rate": 2.5},
        {"type_": "poisson", "rate": 3},
    )
    loads = [each.said["concurrency_or_batch"] for each in read(tmp_path, json.dumps(sweep))]
    assert loads == ["1", "offline 160 prompts", "qps=2.5", "qps=3"]


def test_latency_and_throughput_of_vllm(tmp_path: Path) -> None:
    latency = one(tmp_path, {"avg_latency": 1.5, "latencies": [1.4, 1.6], "percentiles": {"50": 1.5}})
    assert latency.figures == {"e2e_latency_s": 1.5} and "client=static" in latency.said["params_note"]
    whole = one(tmp_path, {"elapsed_time": 10.0, "num_requests": 100, "total_num_tokens": 20000,
                           "requests_per_second": 10.0, "tokens_per_second": 2000.0})  # fmt: skip
    assert whole.figures == {"total_tokens_per_s": 2000.0}
    assert whole.said["concurrency_or_batch"] == "offline 100 prompts"


def test_sglang_with_attention_data_parallelism_counts_its_ranks_once(tmp_path: Path) -> None:
    server = {"model_path": "m", "tp_size": 8, "dp_size": 8, "enable_dp_attention": True}
    said = one(tmp_path, samples.sglang(server_info=server)).said
    assert (said["n_accelerators"], said["tp"], said["attention_dp"]) == ("8", "1", "8")
    replicas = one(
        tmp_path, samples.sglang(server_info={**server, "tp_size": 4, "dp_size": 2, "enable_dp_attention": False})
    )
    assert (replicas.said["n_accelerators"], replicas.said["tp"], replicas.said["attention_dp"]) == ("8", "4", "1")


# --- llama-bench --------------------------------------------------------------------------------------------------


def test_llama_bench_states_model_format_chip_and_build(tmp_path: Path) -> None:
    prompt, answer = read(
        tmp_path,
        json.dumps([samples.llama_bench(), samples.llama_bench(n_prompt=0, n_gen=128, n_depth=4096, avg_ts=118.9)]),
    )
    assert prompt.figures == {"prefill_tokens_per_s": 10000.0}
    assert answer.figures == {"output_tokens_per_s": 118.9}
    assert (answer.said["isl"], answer.said["osl"]) == ("4096", "128")
    assert prompt.said["model"] == "Llama-3.1-8B-Instruct" and prompt.said["weights_dtype"] == "q4_k_m"
    assert (
        prompt.said["accelerator"] == "NVIDIA GeForce RTX 4090" and prompt.said["framework"] == "llama.cpp b5163 (CUDA)"
    )


def test_the_csv_and_the_table_of_llama_bench_have_the_same_tests(tmp_path: Path) -> None:
    record = samples.llama_bench()
    names = [name for name, value in record.items() if not isinstance(value, list)]
    csv = ",".join(names) + "\n" + ",".join(f'"{record[name]}"' for name in names) + "\n"
    assert one(tmp_path, csv).figures == {"prefill_tokens_per_s": 10000.0}
    prompt, answer = read(tmp_path, samples.LLAMA_BENCH_MD)
    assert (prompt.figures, answer.figures) == ({"prefill_tokens_per_s": 10000.0}, {"output_tokens_per_s": 118.88})
    assert answer.said["isl"] == "4096" and answer.said["weights_dtype"] == "q4_k_m" and "model" not in answer.said


@pytest.mark.parametrize(
    "changes",
    [
        {"n_gpu_layers": 0},
        {"n_cpu_moe": 12},
        {"embeddings": True},
        {"n_prompt": 512, "n_gen": 128},
        {"backends": "CPU"},
    ],
)
def test_tests_that_are_no_rate_of_the_accelerator_are_left_out(changes: Any, tmp_path: Path) -> None:
    assert one(tmp_path, samples.llama_bench(**changes)).skipped


@pytest.mark.parametrize(
    ("file", "model", "weights"),
    [
        ("/models/GLM-4.7-Flash-UD-Q8_K_XL.gguf", "GLM-4.7-Flash", "ud-q8_k_xl"),
        ("Qwen3.6-35B-A3B-BF16-00001-of-00002.gguf", "Qwen3.6-35B-A3B", "bf16"),
        ("C:\\m\\gpt-oss-20b-mxfp4.gguf", "gpt-oss-20b", "mxfp4"),
        ("llama.gguf", "llama", ""),
    ],
)
def test_a_gguf_file_names_model_and_format(file: str, model: str, weights: str) -> None:
    from advisor.evidence.formats import llama_bench

    assert (llama_bench.model_of(file), llama_bench.quant_of(file)) == (model, weights)


# --- what cannot be read ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "not in a known format|is empty"),
        ("{", "is not JSON"),
        ('{"hello": 1}', "hello"),
        ("[1, 2]", "neither an object nor a list of objects"),
        ("a,b\n1,2\n", "not in a known format"),
        (b"\xff\xfe\x00", "not UTF-8"),
        (b"\x1f\x8b\x08broken", "gzip"),
        ('{"benchmarks": [{"args": {}}]}', "GuideLLM: metrics is missing"),
        (json.dumps(samples.aiperf(time_to_first_token={"unit": "fortnights", "avg": 1.0})), "fortnights"),
    ],
)
def test_what_cannot_be_read_says_why(content: str | bytes, said: str, tmp_path: Path) -> None:
    with pytest.raises(EvidenceError, match=said):
        read(tmp_path, content)


@pytest.mark.parametrize("name", [name for name in formats.FORMATS if name != "rows"])
def test_a_file_of_another_format_is_refused_by_the_named_one(name: str, tmp_path: Path) -> None:
    with pytest.raises(EvidenceError):
        read(tmp_path, '{"unrelated": 1}', name)


@pytest.mark.parametrize("share", [0.0, 0.03])
def test_failed_requests_are_a_matter_for_a_person(share: float, tmp_path: Path) -> None:
    found = one(tmp_path, samples.vllm(completed=round(1000 * (1 - share)), failed=round(1000 * share)))
    assert bool(found.doubt) is bool(share)


def test_a_run_without_a_completed_request_is_left_out(tmp_path: Path) -> None:
    assert one(tmp_path, samples.vllm(completed=0)).skipped == "completed no request"


# --- the client of a published test -------------------------------------------------------------------------------


@pytest.mark.parametrize(("cells", "wanted"), [
    ({"params_note": "client=burst;requests_per_user=3", "concurrency_or_batch": "64"},
     {"kind": "burst", "requests_per_user": 3, "known": True}),
    ({"params_note": "client=burst;lengths=0.5:1.5", "concurrency_or_batch": "64"},
     {"length_low_fraction": 0.5, "length_high_fraction": 1.5}),
    ({"params_note": "client=poisson;arrival_cv=2", "concurrency_or_batch": "qps=4"},
     {"kind": "poisson", "rate_per_s": 4.0, "arrival_cv": 2.0, "known": True}),
    ({"params_note": "", "concurrency_or_batch": "qps=4"}, {"kind": "poisson", "arrival_cv": 1.0, "known": False}),
    ({"params_note": "benchmark=inferencex;client=burst;requests_per_user=10;lengths=0.8:1.0",
      "concurrency_or_batch": "64", "framework": "sglang 0.5.4", "model_id": "deepseek-ai/DeepSeek-R1"},
     {"kind": "burst", "requests_per_user": 10, "length_low_fraction": 0.8, "first_chunk_steps": 15, "known": True}),
])  # fmt: skip
def test_a_figure_is_predicted_for_the_client_that_its_file_states(
    cells: dict[str, str], wanted: dict[str, Any]
) -> None:
    given: dict[str, Any] = {"value": 1.0, "metric": "ttft_ms_mean", "source_key": "somebody"}
    row = Row(**dict.fromkeys(COLUMNS, "") | given | cells)
    client = client_of(row, run_of(run_facts(row)))
    assert {name: getattr(client, name) for name in wanted} == wanted


@pytest.mark.parametrize(("changes", "load", "note"), [
    ({"request_rate": 4, "burstiness": 0.25, "max_concurrency": None}, "qps=4", "client=poisson;arrival_cv=2"),
    ({"request_rate": 4, "max_concurrency": 64, "max_concurrent_requests": 9}, "qps=4", "client=poisson;arrival_cv=1"),
    ({"request_rate": 4, "max_concurrency": 64, "max_concurrent_requests": 64}, "64",
     "client=burst;requests_per_user=31.25;rate=4"),
    ({"request_rate": "inf", "max_concurrency": 64}, "64", "client=burst;requests_per_user=31.25"),
    ({"request_rate": "inf", "max_concurrency": None}, "2000", "client=burst;requests_per_user=1"),
])  # fmt: skip
def test_the_client_of_vllm_bench_serve(tmp_path: Path, changes: dict[str, Any], load: str, note: str) -> None:
    path = tmp_path / "result.json"
    path.write_text(json.dumps(sample_vllm(**changes)))
    said = formats.read(path)[1][0].said
    assert (said["concurrency_or_batch"], said["params_note"]) == (load, note)


def test_streams_start_together(tmp_path: Path) -> None:
    """GuideLLM's and AIPerf's users all send their first request at once, as those of vllm bench serve."""
    files = (
        sample_guidellm(strategy={"type_": "concurrent", "streams": 100}),
        sample_aiperf(input_config={"phases": [{"type": "concurrency", "concurrency": 100}]}),
    )
    for file in files:
        (tmp_path / "result.json").write_text(json.dumps(file))
        said = formats.read(tmp_path / "result.json")[1][0].said
        assert said["concurrency_or_batch"] == "100" and "client=burst;requests_per_user=20" in said["params_note"]
