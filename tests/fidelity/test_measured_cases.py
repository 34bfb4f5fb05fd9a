"""What deployment, requests and client a measured row stands for."""

import pytest

from advisor.engine.terms.workloads.case import Case, Pool
from advisor.fidelity.rows import Skip, case_of, framework_of, weights_of
from tests.measured_samples import CATALOG, row


def case(**changes: str) -> Case:
    found = case_of(row(**changes), CATALOG)
    assert isinstance(found, Case), found
    return found


def reason(**changes: str) -> str:
    found = case_of(row(**changes), CATALOG)
    assert isinstance(found, Skip), found
    return found.reason


def test_a_nightly_row_is_an_opening_burst_of_ten_requests_a_user():
    c = case()
    assert (c.phase, c.concurrency, c.client.kind, c.client.requests_per_user) == ("serving", 16, "burst", 10)
    assert (c.client.length_low_fraction, c.client.known) == (0.8, True)


def test_latency_rows_of_one_run_are_one_case():
    assert case(id="run:ttft", metric="ttft_ms_mean") == case(id="run:tpot")


def test_stated_client_of_a_row_is_taken():
    c = case(source_key="h200_vllm", params_note="client=steady", accelerator_slug="h200-sxm")
    assert (c.client.kind, c.client.http, c.max_batch) == ("steady", False, 1024)


@pytest.mark.parametrize(("note", "load", "rounds", "lengths"), [
    ("vllm bench serve, random, ignore-eos, 1200 requests", "400", 3, (1.0, 1.0)),
    ("vllm bench serve, 1024 requests;max-num-seqs=256;of 8 replicas", "32", 4, (1.0, 1.0)),
    ("vllm bench serve, 500 requests all at once, fixed lengths", "500", 1, (1.0, 1.0)),
    ("closed loop, all C at once, 3 runs;", "10", 1, (1.0, 1.0)),
    ("requests=3xC;fixed lengths;no prefix cache", "64", 3, (1.0, 1.0)),
    ("requests=1000;lengths uniform 1..nominal (1024/1024), means given;spec=none", "100", 10, (0.01, 1.99)),
    ("sglang.bench_serving, random 1000/1000 with default range ratio (uniform lengths, mean 500), 64 requests",
     "1", 64, (0.01, 1.99)),
    ("vllm bench serve, random 4000/500 range 0.9, 100 requests, mean lengths given", "10", 10, (0.1, 1.9)),
])  # fmt: skip
def test_how_many_requests_of_which_lengths_a_note_states(note, load, rounds, lengths):
    """A benchmark's burst: the first requests of all users wait for each other's prompts."""
    c = case(source_key="cloudrift_server_benchmark", params_note=note, concurrency_or_batch=load)
    assert (c.client.kind, c.client.requests_per_user, c.concurrency) == ("burst", rounds, float(load))
    assert (c.client.length_low_fraction, c.client.length_high_fraction) == pytest.approx(lengths)
    assert c.client.known == ("lengths" in note)


@pytest.mark.parametrize(("note", "seats"), [
    ("1200 requests;max-num-seqs=256 (vLLM default for this class) or more", 256),
    ("320 requests all at once, max-num-seqs 135", 135),
    ("3xC requests;max running requests 64", 64),
    ("1200 requests", None),
])  # fmt: skip
def test_the_limit_on_running_requests_that_a_note_states(note, seats):
    assert (
        case(source_key="cloudrift_server_benchmark", params_note=note, concurrency_or_batch="400").max_batch == seats
    )


@pytest.mark.parametrize(("framework", "each"), [("SGLang 0.5.12", 64), ("vLLM 0.24.0", 256)])
def test_sglang_shares_its_limit_among_the_attention_ranks(framework, each):
    note = "strategy=high-throughput;max running 256;spec=none"
    layout = {"n_accelerators": "4", "attention_dp": "4", "ep": "4"}
    assert case(framework=framework, params_note=note, source_key="other", **layout).max_batch == each


def test_a_rate_above_what_the_server_does_with_a_limit_of_the_client_is_a_closed_loop():
    note = "vllm bench serve, random 4000/500 range 0.9, 100 requests, mean lengths given"
    c = case(source_key="spark_devreng", params_note=note, concurrency_or_batch="poisson qps=1.5 max 25")
    assert (c.client.kind, c.concurrency, c.max_batch) == ("steady", 25.0, None)
    served = case(source_key="mlperf_inf_6.0", params_note="", concurrency_or_batch="poisson qps=1.5 max 25")
    assert (served.client.kind, served.concurrency, served.max_batch) == ("poisson", None, 25)


def test_a_note_states_how_bursty_and_how_long_an_open_loop_was():
    note = "vllm bench serve, 200 requests, fixed lengths"
    c = case(source_key="spark_devreng", params_note=note, concurrency_or_batch="gamma qps=0.3 burstiness=0.25")
    assert (c.client.kind, c.client.rate_per_s, c.client.arrival_cv) == ("poisson", 0.3, 2.0)
    assert (c.client.requests, c.client.whole_run) == (200, True)


def test_single_prefill_is_one_request_alone():
    c = case(source_key="h200_vllm_prefill", params_note="client=static", metric="ttft_ms_mean", osl="1")
    assert (c.phase, c.client.kind, c.concurrency) == ("prefill", "single", 1)


def test_tensor_parallel_replicas_fill_the_stated_chips():
    c = case(n_accelerators="8", tp="2", source_key="mlperf_inf_6.0", concurrency_or_batch="offline")
    assert c.pool == Pool(tp=2, moe_tp=2, replicas=4)


def test_experts_over_more_ranks_than_tensor_parallelism_mean_attention_ranks():
    c = case(
        source_key="trtllm_1.x",
        model_id="deepseek-ai/DeepSeek-R1",
        n_accelerators="4",
        ep="4",
        concurrency_or_batch="max",
        params_note="Deepseek R1",
    )
    assert c.pool == Pool(tp=1, dp=4, ep=4)


def test_pipeline_and_expert_ranks_multiply_to_the_stated_chips():
    c = case(
        source_key="trtllm_1.x",
        model_id="Qwen/Qwen3-30B-A3B",
        n_accelerators="4",
        ep="2",
        pp="2",
        concurrency_or_batch="max",
        params_note="",
    )
    assert c.pool is not None and (c.pool.dp, c.pool.pp, c.pool.chips) == (2, 2, 4)


def test_a_batch_for_every_rank_means_attention_ranks():
    c = case(
        source_key="serving_sweep",
        framework="trtllm 1.3.0rc1",
        model_id="deepseek-ai/DeepSeek-R1",
        n_accelerators="8",
        tp="8",
        ep="8",
        moe_tp="1",
        concurrency_or_batch="40",
        params_note="gemm=nvfp4;moe=nvfp4;batch_per_rank=5",
    )
    assert c.pool == Pool(tp=1, dp=8, ep=8)


def test_attention_ranks_of_the_1_0_page_come_from_its_tp_column():
    c = case(source_key="trtllm_1.0", model_id="Qwen/Qwen3-30B-A3B", n_accelerators="4", tp="4", ep="", params_note="")
    assert c.pool == Pool(tp=1, dp=4, ep=4)


def test_a_chip_count_that_leaves_out_attention_ranks_is_raised():
    c = case(source_key="serving_sweep", model_id="Qwen/Qwen3-30B-A3B", moe_tp="2", params_note="batch_per_rank=16")
    assert (c.chips, c.pool) == (2, Pool(tp=1, dp=2, moe_tp=2))


def test_neuron_cores_become_devices():
    c = case(
        source_key="neuron_infer",
        framework="Transformers NeuronX, Neuron 2.18.0",
        accelerator_slug="trainium1",
        n_accelerators="16",
        tp="32",
        concurrency_or_batch="4",
    )
    assert (c.pool, c.phase, c.framework) == (Pool(tp=16, moe_tp=16), "static", "neuron")


def test_layer_split_is_a_pipeline_for_one_stream():
    c = case(
        source_key="gpu_bench_llamacpp",
        framework="llama.cpp (May 2024)",
        accelerator_slug="rtx-4090",
        n_accelerators="4",
        tp="",
        metric="output_tokens_per_s",
        weights_dtype="q4_k_m",
        kv_dtype="f16",
        isl="0",
        concurrency_or_batch="1",
    )
    assert (c.pool, c.phase, c.kv_dtype) == (Pool(pp=4), "decode", "fp16")


def test_unstated_layout_is_left_to_the_predictor():
    c = case(source_key="mlperf_inf_5.1", n_accelerators="8", tp="", concurrency_or_batch="poisson qps=364")
    assert c.layout_free and c.pool is None


def test_an_offered_rate_and_its_limits_are_read():
    c = case(
        source_key="mlperf_inf_5.1",
        framework="TensorRT 10.11, CUDA 12.9",
        n_accelerators="8",
        concurrency_or_batch="poisson qps=364; max batch/GPU 2048",
        notes="closed; SLO p99 TTFT<=2000ms TPOT<=200ms",
    )
    assert (c.client.kind, c.client.rate_per_s, c.max_batch) == ("poisson", 364, 2048)
    assert (c.ttft_limit_s, c.tpot_limit_s, c.concurrency) == (2.0, 0.2, None)


def test_infinite_rate_queues_all_requests():
    c = case(
        source_key="trtllm_0.14_online",
        framework="TensorRT-LLM 0.14.0 + Triton backend",
        concurrency_or_batch="qps=INF",
    )
    assert (c.phase, c.client.kind, c.client.requests) == ("offline", "offline", 500)


def test_pools_of_a_disaggregated_row():
    c = case(
        mode="disagg",
        model_id="deepseek-ai/DeepSeek-R1",
        n_accelerators="12",
        tp="",
        prefill_pool="workers=1;batch=1;tp=1;pp=1;attention_dp=4;moe_tp=1;ep=4",
        decode_pool="workers=1;batch=64;tp=1;pp=1;attention_dp=8;moe_tp=1;ep=8",
        concurrency_or_batch="",
    )
    assert c.prefill_pool == Pool(dp=4, ep=4)
    assert c.decode_pool is not None and c.decode_pool.chips == 8
    assert c.concurrency == 512  # batch is per attention rank
    assert c.decode_pool.max_batch is None  # it follows from the users: no limit of the server


def published(**changes: str) -> Case:
    """A run of separate pools whose configuration is published."""
    known = {
        "mode": "disagg",
        "source_key": "serving_nightly",
        "model_id": "deepseek-ai/DeepSeek-R1",
        "accelerator_slug": "b200",
        "n_accelerators": "44",
        "tp": "",
        "weights_dtype": "fp4",
        "framework": "trtllm 0.8.1.post1",
        "isl": "1024",
        "osl": "1024",
        "prefill_pool": "workers=1;batch=1;tp=4;pp=1;attention_dp=1;moe_tp=1;ep=4",
        "decode_pool": "workers=5;batch=36;tp=8;pp=1;attention_dp=1;moe_tp=1;ep=8",
        "concurrency_or_batch": "180",
    }
    return case(**(known | changes))


def test_the_published_configuration_of_pools_overrides_the_labels_of_a_row():
    c = published()
    assert c.prefill_pool == Pool(dp=4, ep=4, max_batch=8, max_batched_tokens=10240)
    assert c.decode_pool == Pool(tp=8, ep=8, replicas=5, max_batch=32)
    assert c.concurrency == 180  # more than the 160 seats: 20 users wait


def test_other_users_of_a_published_deployment_have_settings_only_if_all_its_runs_do():
    six = published(decode_pool="workers=6;tp=8;ep=8", n_accelerators="52", concurrency_or_batch="7")
    assert six.decode_pool is not None and six.decode_pool.max_batch == 64
    five = published(concurrency_or_batch="7")  # runs of this deployment have 1 or 32 seats
    assert five.decode_pool is not None and five.decode_pool.max_batch is None


def test_ranks_that_a_pool_states_only_for_its_experts_are_attention_ranks():
    c = case(mode="disagg", model_id="deepseek-ai/DeepSeek-R1", n_accelerators="24", tp="",
             prefill_pool="workers=1;tp=1;attention_dp=1;moe_tp=1;ep=8",
             decode_pool="workers=2;tp=1;attention_dp=1;moe_tp=1;ep=8")  # fmt: skip
    assert c.prefill_pool is not None and c.decode_pool is not None
    assert c.prefill_pool.chips + c.decode_pool.chips == 24


@pytest.mark.parametrize(
    ("framework", "source", "expected"),
    [
        ("trtllm 1.0.0rc3", "serving_sweep", ("tensorrt-llm", "1.0.0rc3")),
        ("trtllm 0.8.1.post2", "serving_nightly", ("tensorrt-llm", "1.x+dynamo-0.8.1.post2")),
        ("trtllm ", "serving_nightly", ("tensorrt-llm", "1.x")),
        ("trtllm gpt-oss-dev", "serving_dated", ("tensorrt-llm", "1.x+gpt-oss-dev")),
        ("trtllm 1.2.0rc6.post2", "serving_dated", ("tensorrt-llm", "1.2.0rc6.post2")),
        ("TensorRT-LLM 1.1+ (dev-guide page) (PyTorch backend)", "trtllm_1.x", ("tensorrt-llm", "1.1")),
        ("TensorRT 10.11, CUDA 12.9", "mlperf_inf_5.1", ("tensorrt-llm", "mlperf-5.1")),
        ("vLLM v0.9.2", "mlperf_inf_5.1", ("vllm", "0.9.2")),
        ("vLLM TPU", "tpu_recipes_infer", ("vllm-tpu", "")),
        ("vLLM ROCm docker 2025-08", "rocm_vllm_readme", ("vllm", "rocm-2025-08")),
        ("sglang ", "serving_dated", ("sglang", "")),
        ("Optimum-Habana / Intel Gaudi SW 1.18.0 (PyTorch 2.4.0)", "intel_gaudi_infer", ("optimum-habana", "1.18.0")),
        ("TODO", "mlperf_inf_6.0", ("vllm", "mlperf-6.0")),
    ],
)
def test_framework_strings_become_slug_and_version(framework, source, expected):
    assert framework_of(row(framework=framework.strip(), source_key=source)) == expected


@pytest.mark.parametrize(
    ("chip", "model", "dtype", "note", "expected"),
    [
        ("b200", "deepseek-ai/DeepSeek-R1", "fp4", "", "nvfp4"),
        ("mi355x", "deepseek-ai/DeepSeek-R1", "fp4", "", "mxfp4-w4a4"),
        ("gb200", "openai/gpt-oss-120b", "fp4", "", "mxfp4-w4a8"),
        ("h100-sxm", "openai/gpt-oss-120b", "fp8", "", "mxfp4"),
        ("rtx-4090", "meta-llama/Llama-3.1-8B", "f16", "", "fp16"),
        ("h200-sxm", "meta-llama/Llama-3.1-8B", "fp16", "llama2 (UsedModel llama3_1-70b-fp8_dyn)", "fp8"),
    ],
)
def test_weight_formats_have_one_name(chip, model, dtype, note, expected):
    assert weights_of(row(accelerator_slug=chip, model_id=model, weights_dtype=dtype, params_note=note)) == expected


def test_speculation_follows_the_version_not_the_row():
    changes = {"source_key": "serving_dated", "model_id": "deepseek-ai/DeepSeek-R1", "weights_dtype": "fp4"}
    assert case(framework="trtllm 1.2.0rc6.post3", **changes).speculative == "mtp"
    assert case(framework="trtllm 1.2.0rc6.post2", **changes).speculative is None


def test_rows_without_a_case_say_why():
    assert reason(task="training") == "training is not modeled"
    assert reason(accelerator_slug="", accelerator="Arc Dual") == "accelerator not in the catalog: Arc Dual"
    assert reason(model_id="", model="microsoft/phi-2") == "model not in the catalog: microsoft/phi-2"
    assert reason(confidence="C") == "ambiguous metric"
    assert reason(metric="tokens_per_s_ambiguous") == "ambiguous metric"
    assert reason(value="nan") == "the value is not a number"
    assert reason(weights_dtype="", source_key="elsewhere") == "weight format not stated"


def test_an_unknown_source_is_read_with_an_unknown_client():
    c = case(source_key="elsewhere")
    assert (c.client.kind, c.client.known, c.phase) == ("steady", False, "serving")


def test_a_prompt_that_all_requests_share_is_in_the_cache():
    wiki = {"source_key": "rtx6kpro_wiki", "task": "server_throughput", "metric": "output_tokens_per_s"}
    shared = case(**wiki, isl="16384")
    assert [(c.fraction, c.shared_tokens) for c in shared.prefix_classes] == [(1.0, 16384)]
    assert (case(**wiki, isl="0").prefix_classes, case().prefix_classes) == ((), ())


def test_a_rate_with_a_limit_in_flight_limits_the_batch():
    assert case(source_key="spark_devreng", concurrency_or_batch="poisson qps=1.5 max 25").max_batch == 25
    assert case(source_key="spark_devreng", concurrency_or_batch="poisson qps=1.5").max_batch is None


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("vLLM main-5931b7e5 (TPU)", "main-5931b7e5"),
        ("vllm 0.14.0rc3.dev30+gb026cf14e.d20260212.rocm700", "build 0.14.0rc3.dev30+gb026cf14e.d20260212.rocm700"),
        ("vLLM 0.29.0+rocm723", "0.29.0+rocm723"),
    ],
)
def test_a_commit_or_a_build_of_one_is_no_release(name, version):
    assert framework_of(row(framework=name))[1] == version
