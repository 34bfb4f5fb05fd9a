"""Scheduler steps per second on one core with 256 running requests, for three workloads, without compilation.

python -m tests.load.bench_simulate
"""

import argparse
import json
import statistics
import time

import numpy as np

from advisor.engine.scheduler import simulate
from advisor.engine.step import Client, Scheduler, StepTimes
from advisor.engine.terms import Lengths

RUNNING_REQUESTS = 256
WORKLOADS = {"1024/1024": (1024, 1024), "4000/500": (4000, 500), "256/2048": (256, 2048)}


def example_times() -> StepTimes:
    """Synthetic step times with a KV cache large enough for every workload; they describe no real machine."""
    grid_tokens = 2.0 ** np.arange(15)
    values = {
        "sample_s_per_sequence": 1e-6,
        "decode_s_per_context_token": 3e-8,
        "repeat_s_per_context_token": 1.5e-8,
        "cache_tokens": 12_000,
        "window_s_per_context_token": 1e-8,
        "window_tokens": 1024,
        "decode_s_per_sequence": 1e-6,
        "prefill_s_per_pair": 1e-9,
        "window_prefill_s_per_pair": 2e-10,
        "source_s_per_sequence": 0,
        "host_s": 2e-3,
        "host_s_per_sequence": 1e-5,
        "serial_s": 2e-4,
        "serial_s_per_sequence": 1e-6,
        "graph_max_tokens": 512,
        "eager_floor_s": 1e-2,
        "prompt_floor_s": 2e-3,
        "tile_tokens": 0,
        "prepare_s": 0.0,
        "kv_capacity_tokens": 2_000_000,
        "block_tokens": 16,
        "request_s": 1e-3,
        "stream_s_per_sequence": 3e-4,
        "slow_share": 0.3,
        "slow_ratio": 1.75,
        "ranks": 1,
    }
    return StepTimes(
        grid_tokens=grid_tokens,
        linear_s=(4e-3 + 2.5e-5 * grid_tokens)[None],
        **{name: np.array([value]) for name, value in values.items()},
    )


def measure(input_tokens: int, output_tokens: int, requests: int) -> dict[str, float]:
    """The result of one steady-state run."""
    inputs = Lengths(mean_tokens=input_tokens, p95_tokens=input_tokens)
    outputs = Lengths(mean_tokens=output_tokens, p95_tokens=output_tokens)
    start_s, start_cpu_s = time.perf_counter(), time.process_time()
    result = simulate(
        example_times(),
        0,
        Scheduler(),
        Client(),
        inputs,
        outputs,
        concurrency=RUNNING_REQUESTS,
        requests=requests,
    )
    cpu_s, elapsed_s = time.process_time() - start_cpu_s, time.perf_counter() - start_s
    return {
        "steps": result.steps,
        "cpu_s": cpu_s,  # single-threaded, so independent of other load
        "elapsed_s": elapsed_s,
        "steps_per_s": result.steps / cpu_s,
        "simulated_s": result.duration_s,
        "running_requests_mean": result.running_requests_mean,
        "kv_used_max_tokens": result.kv_used_max_tokens,
        "ttft_p95_s": result.percentile("ttft_s", 95),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--format", choices=("table", "json"), default="table")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--requests", type=int, default=20_000, help="measured requests per run")
    options = parser.parse_args()
    start_s = time.perf_counter()
    measure(16, 16, 16)
    compiled_s, measured = time.perf_counter() - start_s, {}
    for name, lengths in WORKLOADS.items():
        runs = [measure(*lengths, options.requests) for _ in range(options.repeats)]
        middle = statistics.median_low([run["steps_per_s"] for run in runs])
        measured[name] = next(run for run in runs if run["steps_per_s"] == middle)
    slowest = min(run["steps_per_s"] for run in measured.values())
    result = {"compile_or_load_s": compiled_s, "workloads": measured, "steps_per_s_min": slowest}
    print(json.dumps(result, indent=1) if options.format == "json" else table(result))


def table(result: dict) -> str:
    lines = [
        f"{'workload':>10} {'steps':>9} {'CPU s':>8} {'elapsed':>8} {'steps/s':>10} {'running':>8} {'KV tokens':>10}"
    ]
    lines += [
        f"{name:>10} {run['steps']:>9} {run['cpu_s']:>8.3f} {run['elapsed_s']:>8.3f} {run['steps_per_s']:>10,.0f}"
        f" {run['running_requests_mean']:>8.1f} {run['kv_used_max_tokens']:>10,}"
        for name, run in result["workloads"].items()
    ]
    return "\n".join([*lines, f"compiling or loading the code took {result['compile_or_load_s']:.2f} s"])


if __name__ == "__main__":
    main()
