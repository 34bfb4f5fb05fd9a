"""Result files of load generators, made by hand from the formats that their released packages write.

vllm bench serve 0.24 (vllm/benchmarks/serve.py), guidellm 0.8 (guidellm/benchmark/schemas), aiperf 0.13
(aiperf/common/models/export_models.py) and genai-perf 0.0.16, whose form aiperf keeps. No figure was measured; files of
real runs are in tests/load_results, and tests/fidelity/test_load_results_real.py holds these forms against them.
"""

import json
from typing import Any

from advisor.load_results import LoadResult, usable_runs
from catalog.loading.bounded import WEB, Bounds

Json = dict[str, Any]


def vllm(rate: float = 6.0, ttft: float = 160.0, tpot: float = 18.0, **changes: Any) -> Json:
    return {
        "date": "20261121-101500", "endpoint_type": "openai", "backend": "openai", "label": None,
        "model_id": "meta-llama/Llama-3.3-70B-Instruct", "tokenizer_id": "meta-llama/Llama-3.3-70B-Instruct",
        "num_prompts": 2000, "request_rate": "inf", "burstiness": 1.0, "max_concurrency": None,
        "duration": 2000 / rate, "completed": 2000, "failed": 0, "total_input_tokens": 2000 * 2000,
        "total_output_tokens": 2000 * 300, "request_throughput": rate, "request_goodput": None,
        "output_throughput": rate * 300, "total_token_throughput": rate * 2300,
        "mean_ttft_ms": ttft, "median_ttft_ms": 0.9 * ttft, "std_ttft_ms": 30.0,
        "p50_ttft_ms": 0.9 * ttft, "p95_ttft_ms": 3 * ttft, "p99_ttft_ms": 4 * ttft,
        "mean_tpot_ms": tpot, "median_tpot_ms": tpot, "std_tpot_ms": 1.0,
        "p50_tpot_ms": tpot, "p95_tpot_ms": 1.3 * tpot, "p99_tpot_ms": 1.5 * tpot,
        "mean_e2el_ms": ttft + 299 * tpot, "median_e2el_ms": 5000.0, "std_e2el_ms": 1.0, "p95_e2el_ms": 9000.0,
    } | changes  # fmt: skip


def summary(mean: float, p50: float, p95: float, p99: float) -> Json:
    part = {
        "mean": mean, "median": p50, "mode": p50, "variance": 1.0, "std_dev": 1.0, "min": 0.0, "max": 2 * p99,
        "count": 2000, "total_sum": 2000 * mean, "percentiles": {"p50": p50, "p95": p95, "p99": p99}, "pdf": None,
    }  # fmt: skip
    return {"successful": part, "errored": {**part, "mean": 1.0}, "incomplete": None, "total": {**part, "mean": 9e9}}


def guidellm(rate: float = 6.0, strategy: Json | None = None) -> Json:
    """time_per_output_token_ms counts the first token and must not be taken for TPOT."""
    return {
        "metadata": {"version": 2, "guidellm_version": "0.8.1", "python_version": "3.12", "platform": "Linux"},
        "config": {},
        "benchmarks": [
            {
                "type_": "generative_benchmark",
                "config": {"strategy": strategy or {"type_": "trace"}},
                "scheduler_metrics": {"measure_start_time": 1000.0, "measure_end_time": 1333.0},
                "metrics": {
                    "request_totals": {"successful": 2000, "errored": 1, "incomplete": 2, "total": 2003},
                    "requests_per_second": summary(rate, rate, rate, rate),
                    "request_latency": summary(5.5, 5.0, 9.0, 12.0),
                    "prompt_token_count": summary(2010.0, 1500.0, 6000.0, 9000.0),
                    "output_token_count": summary(299.0, 250.0, 800.0, 1100.0),
                    "time_to_first_token_ms": summary(160.0, 140.0, 480.0, 600.0),
                    "time_per_output_token_ms": summary(77.0, 77.0, 77.0, 77.0),
                    "inter_token_latency_ms": summary(18.0, 17.5, 23.0, 27.0),
                    "output_tokens_per_second": summary(1794.0, 1800.0, 2000.0, 2100.0),
                },
            }
        ],
        "conclusions": [],
    }


def metric(unit: str, avg: float, **percentiles: float) -> Json:
    return {"unit": unit, "avg": avg, "min": 0.0, "max": 9 * avg, "std": 1.0} | percentiles


def total(unit: str, avg: float) -> Json:
    """A metric of the whole run, which has no spread."""
    return {"unit": unit, "avg": avg}


def genai_perf(**changes: Any) -> Json:
    return {
        "request_throughput": total("requests/sec", 6.0),
        "request_latency": metric("ms", 5500.0, p50=5000.0, p95=9000.0, p99=12000.0),
        "request_count": total("count", 2000.0),
        "time_to_first_token": metric("ms", 160.0, p50=140.0, p95=480.0, p99=600.0),
        "inter_token_latency": metric("ms", 18.0, p50=17.5, p95=23.0, p99=27.0),
        "output_token_throughput": total("tokens/sec", 1794.0),
        "output_sequence_length": metric("tokens", 299.0),
        "input_sequence_length": metric("tokens", 2010.0),
        "input_config": {"perf_analyzer": {"stimulus": {"concurrency": 64}}},
    } | changes


def aiperf(**changes: Any) -> Json:
    return genai_perf() | {
        "schema_version": "1.4", "aiperf_version": "0.13.0", "start_time": "2026-11-21T10:15:00",
        "was_cancelled": False, "is_complete": True, "error_request_count": total("requests", 3.0),
        "benchmark_duration": total("sec", 333.0), "request_latency": metric("s", 5.5, p50=5.0, p95=9.0, p99=12.0),
        "input_config": {"phases": [{"type": "fixed_schedule", "concurrency": 512}]},
    } | changes  # fmt: skip


def written(found: Any) -> bytes:
    return json.dumps(found).encode()


def parse(content: bytes, bounds: Bounds = WEB) -> LoadResult:
    """The only run of a file."""
    (run,) = usable_runs(content, bounds)
    return run
