"""Result files made by hand after the real formats. No figure was measured; they fit one run on one H200.

InferenceX: utils/process_result.py of SemiAnalysisAI/InferenceX, packages/app (csv-export-helpers.ts, api fixtures) of
SemiAnalysisAI/InferenceX-app. vLLM: vllm/benchmarks. SGLang: sglang/bench_serving.py. llama-bench: its README.
GuideLLM: guidellm/benchmark of 0.2 and 0.8. AIPerf and GenAI-Perf: their exports.
"""

import json
from pathlib import Path
from typing import Any

Json = dict[str, Any]
MODEL = "meta-llama/Llama-3.1-8B"
OPTIONS = ["--accelerator", "h200-sxm", "--chips", "1", "--engine", "vllm 0.19.0"]


def inferencex(**changes: Any) -> Json:
    """A row of its API. Seconds, and throughput per accelerator."""
    metrics = {
        "mean_ttft": 0.2, "median_ttft": 0.15, "p99_ttft": 0.9, "std_ttft": 0.1, "mean_tpot": 0.009,
        "median_tpot": 0.009, "p99_tpot": 0.011, "mean_itl": 0.009, "mean_intvty": 111.0,
        "tput_per_gpu": 3350.0, "output_tput_per_gpu": 1680.0, "input_tput_per_gpu": 1670.0,
    }  # fmt: skip
    return {
        "hardware": "h200", "framework": "vllm", "model": "llama8b", "infmax_model_prefix": MODEL, "precision": "fp8",
        "spec_method": "none", "disagg": False, "is_multinode": False, "prefill_tp": 1, "prefill_ep": 1,
        "prefill_dp_attention": False, "prefill_num_workers": 0, "decode_tp": 1, "decode_ep": 1,
        "decode_dp_attention": False, "decode_num_workers": 0, "num_prefill_gpu": 1, "num_decode_gpu": 1,
        "isl": 1024, "osl": 1024, "conc": 16, "image": "vllm/vllm-openai:v0.19.0", "metrics": metrics,
        "date": "2026-05-18", "run_url": "https://example.org/runs/1",
    } | {"model": MODEL} | changes  # fmt: skip


def inferencex_artifact(**changes: Any) -> Json:
    """The file that a run of the benchmark leaves: flat, tp of a single pool."""
    return {
        "hw": "h200-nv", "tp": 1, "ep": 1, "dp_attention": "false", "conc": 16, "model": MODEL, "framework": "vllm",
        "precision": "fp8", "tput_per_gpu": 3350.0, "output_tput_per_gpu": 1680.0, "isl": 1024, "osl": 1024,
        "mean_ttft": 0.2, "median_ttft": 0.15, "p99_ttft": 0.9, "mean_tpot": 0.009, "mean_intvty": 111.0,
    } | changes  # fmt: skip


INFERENCEX_CSV = (
    "Model,ISL,OSL,Hardware,Hardware Key,Framework,Precision,TP,Concurrency,Date,Throughput/Chip (tok/s),"
    "Output Throughput/Chip (tok/s),Mean TTFT (s),Median TTFT (s),P99 TTFT (s),Mean TPOT (s),Disaggregated,"
    "Num Prefill Chips,Num Decode Chips,Spec Decoding,EP,DP Attention,Is Multinode,Run URL,Physical Chips,DP\n"
    f"{MODEL},1024,1024,H200 (vLLM),h200,vllm,fp8,1,16,2026-05-18,3350,1680,0.2,0.15,0.9,0.009,false,,,none,1,false,"
    "false,https://example.org/runs/1,1,\n"
)


def vllm(**changes: Any) -> Json:
    return {
        "date": "20260129-040949", "endpoint_type": "vllm", "backend": "vllm", "label": None, "model_id": MODEL,
        "tokenizer_id": MODEL, "num_prompts": 160, "request_rate": "inf", "burstiness": 1.0, "max_concurrency": 16,
        "duration": 97.5, "completed": 160, "failed": 0, "total_input_tokens": 163840, "total_output_tokens": 163840,
        "request_throughput": 1.64, "request_goodput": None, "output_throughput": 1680.0,
        "total_token_throughput": 3360.0, "mean_ttft_ms": 200.0, "median_ttft_ms": 150.0, "std_ttft_ms": 60.0,
        "p99_ttft_ms": 900.0, "mean_tpot_ms": 9.0, "median_tpot_ms": 9.0, "p99_tpot_ms": 11.0, "mean_itl_ms": 9.0,
    } | changes  # fmt: skip


def sglang(**changes: Any) -> Json:
    server = {
        "model_path": MODEL, "tp_size": 1, "dp_size": 1, "pp_size": 1, "ep_size": 1, "enable_dp_attention": False,
        "quantization": "fp8", "kv_cache_dtype": "auto", "version": "0.5.7", "speculative_algorithm": None,
    }  # fmt: skip
    return {
        "tag": None, "backend": "sglang", "dataset_name": "random", "request_rate": float("inf"),
        "max_concurrency": 16, "sharegpt_output_len": None, "random_input_len": 1024, "random_output_len": 1024,
        "random_range_ratio": 1.0, "server_info": server, "duration": 97.5, "completed": 160,
        "total_input_tokens": 163840, "total_output_tokens": 163840, "total_output_tokens_retokenized": 163840,
        "request_throughput": 1.64, "input_throughput": 1680.0, "output_throughput": 1680.0,
        "total_throughput": 3360.0, "mean_ttft_ms": 200.0, "median_ttft_ms": 150.0, "p99_ttft_ms": 900.0,
        "mean_tpot_ms": 9.0, "median_tpot_ms": 9.0, "p99_tpot_ms": 11.0, "mean_itl_ms": 9.0, "concurrency": 15.9,
        "accept_length": None, "std_ttft_ms": float("nan"),
    } | changes  # fmt: skip


def llama_bench(**changes: Any) -> Json:
    return {
        "build_commit": "8cf427ff", "build_number": 5163, "cpu_info": "AMD Ryzen 7 7800X3D 8-Core Processor",
        "gpu_info": "NVIDIA GeForce RTX 4090", "backends": "CUDA",
        "model_filename": "models/Llama-3.1-8B-Instruct-Q4_K_M.gguf", "model_type": "llama 8B Q4_K - Medium",
        "model_size": 4920000000, "model_n_params": 8030261248, "n_batch": 2048, "n_ubatch": 512, "n_threads": 8,
        "type_k": "f16", "type_v": "f16", "n_gpu_layers": -1, "split_mode": "layer", "n_prompt": 512, "n_gen": 0,
        "n_depth": 0, "test_time": "2026-04-24T11:58:50Z", "avg_ns": 51200000, "stddev_ns": 900000,
        "avg_ts": 10000.0, "stddev_ts": 140.3, "samples_ns": [51200000], "samples_ts": [10000.0],
    } | changes  # fmt: skip


LLAMA_BENCH_MD = """ggml_cuda_init: found 1 CUDA devices:
| model                          |       size |     params | backend    | ngl |            test |                  t/s |
| ------------------------------ | ---------: | ---------: | ---------- | --: | --------------: | -------------------: |
| llama 8B Q4_K - Medium         |   4.58 GiB |     8.03 B | CUDA       |  99 |           pp512 |    10000.00 ± 140.30 |
| llama 8B Q4_K - Medium         |   4.58 GiB |     8.03 B | CUDA       |  99 |   tg128 @ d4096 |        118.88 ± 1.04 |

build: 8cf427ff (5163)
"""


def summary(mean: float, p50: float, p99: float) -> Json:
    part = {"mean": mean, "median": p50, "std_dev": float("nan"), "percentiles": {"p50": p50, "p99": p99}}
    return {"successful": part, "errored": None, "incomplete": None}


def guidellm(*strategies: Json, old: bool = False) -> Json:
    """A report with one benchmark a strategy; `old`: as versions before 0.4 write it."""

    def one(strategy: Json) -> Json:
        metrics = {
            "requests_per_second": summary(1.64, 1.64, 1.64),
            "prompt_token_count": summary(1024.0, 1024.0, 1024.0),
            "output_token_count": summary(1024.0, 1024.0, 1024.0),
            "time_to_first_token_ms": summary(200.0, 150.0, 900.0),
            "time_per_output_token_ms": summary(9.2, 9.2, 9.2),
            "inter_token_latency_ms": summary(9.0, 9.0, 11.0),
            "output_tokens_per_second": summary(1680.0, 1680.0, 1680.0),
            "tokens_per_second": summary(3360.0, 3360.0, 3360.0),
            "request_latency": summary(9.4, 9.4, 9.5),
        }
        if old:
            return {
                "type_": "generative_benchmark", "args": {"strategy": strategy, "strategy_index": 0},
                "run_stats": {"start_time": 1747550000.0, "end_time": 1747550100.0, "total_successful": 160,
                              "total_incomplete": 0, "total_errored": 0},
                "worker": {"type_": "generative_requests_worker", "backend_model": MODEL}, "metrics": metrics,
                "requests": {"successful": [{"output": "text"}]},
            }  # fmt: skip
        totals = {"successful": 160, "errored": 0, "incomplete": 0, "total": 160}
        return {
            "type_": "generative_benchmark", "config": {"strategy": strategy, "backend": {"model": MODEL}},
            "start_time": 1747550000.0, "metrics": metrics | {"request_totals": totals},
        }  # fmt: skip

    return {"metadata": {"version": 1, "guidellm_version": "0.8.1"}, "benchmarks": [one(each) for each in strategies]}


def aiperf(**changes: Any) -> Json:
    return {
        "schema_version": "1.3", "aiperf_version": "0.10.0", "benchmark_id": "x",
        "request_throughput": {"unit": "requests/sec", "avg": 1.64},
        "request_latency": {"unit": "ms", "avg": 9400.0, "p50": 9400.0, "p99": 9500.0},
        "request_count": {"unit": "requests", "avg": 160.0},
        "time_to_first_token": {"unit": "ms", "avg": 200.0, "p50": 150.0, "p99": 900.0, "std": float("nan")},
        "inter_token_latency": {"unit": "ms", "avg": 9.0, "p50": 9.0, "p99": 11.0},
        "output_token_throughput": {"unit": "tokens/sec", "avg": 1680.0},
        "total_token_throughput": {"unit": "tokens/sec", "avg": 3360.0},
        "output_sequence_length": {"unit": "tokens", "avg": 1024.0},
        "input_sequence_length": {"unit": "tokens", "avg": 1024.0},
        "benchmark_duration": {"unit": "sec", "avg": 97.5}, "start_time": "2026-06-13T05:11:41.465270",
        "was_cancelled": False, "error_summary": [],
        "input_config": {"endpoint": {"model_names": [MODEL]}, "loadgen": {"concurrency": 16}},
    } | changes  # fmt: skip


AIPERF_CSV = """Metric,avg,min,max,p99,p95,p90,p75,p50,p25
Time To First Token (ms),200.00,10.00,950.00,900.00,800.00,700.00,300.00,150.00,90.00
Request Latency (ms),"9,400.00","9,000.00","9,600.00","9,500.00",9500.0,9500.0,9400.0,9400.0,9300.0
Inter Token Latency (ms),9.00,8.00,12.00,11.00,10.00,10.00,9.50,9.00,8.90
Output Sequence Length (tokens),"1,024.00",1024,1024,1024,1024,1024,1024,1024,1024
Input Sequence Length (tokens),"1,024.00",1024,1024,1024,1024,1024,1024,1024,1024

Metric,Value
Output Token Throughput (per sec),"1,680.00"
Request Throughput (per sec),1.64
Request Count (count),160.00

Endpoint,GPU,Metric,avg
localhost:9400,0,GPU Power Usage (W),250.0
"""


def write(path: Path, *records: Json, lines: bool = False) -> Path:
    """One object as JSON, several as a list or one a line."""
    text = "\n".join(map(json.dumps, records)) if lines else json.dumps(records[0] if len(records) == 1 else records)
    path.write_text(text, encoding="utf-8")
    return path
