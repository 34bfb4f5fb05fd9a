"""One synthetic run, written as each version of each load generator writes it (forms checked against their sources).

vllm/benchmarks/serve.py, sweep/serve.py and benchmarks/multi_turn of vllm-project/vllm; bench_serving.py of
sgl-project/sglang; guidellm/core (0.1), guidellm/benchmark/output.py and outputs/csv.py of vllm-project/guidellm;
metrics_csv_exporter.py of ai-dynamo/aiperf; the csv_exporter of GenAI-Perf; results of kubernetes-sigs/inference-perf;
token_benchmark_ray.py of ray-project/llmperf.
"""

import csv
import io
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, median, quantiles
from typing import Any

import yaml

Json = dict[str, Any]
SEATS = 4
MODEL = "meta-llama/Llama-3.1-8B"
START_S = 1_760_000_000.0
CUTS = (0.1, 1, 5, 10, 25, 75, 90, 95, 99)


@dataclass(frozen=True, slots=True)
class Call:
    at_s: float
    ttft_s: float
    gap_s: float
    given: int
    made: int

    @property
    def took_s(self) -> float:
        return self.ttft_s + self.gap_s * (self.made - 1)


@dataclass(frozen=True, slots=True)
class Run:
    """A closed loop of SEATS; each seat sends when it was answered."""

    calls: tuple[Call, ...]
    failed: int

    @property
    def duration_s(self) -> float:
        return max(c.at_s + c.took_s for c in self.calls) - min(c.at_s for c in self.calls)

    def values(self, what: str) -> list[float]:
        each = {"ttft": "ttft_s", "tpot": "gap_s", "e2e": "took_s", "given": "given", "made": "made"}[what]
        return [float(getattr(c, each)) for c in self.calls]

    def figures(self, what: str, scale: float = 1e3) -> dict[str, float]:
        values = self.values(what)
        return {"mean": scale * fmean(values)} | {f"p{p}": scale * at(values, p) for p in (50, 95, 99)}

    @property
    def per_s(self) -> float:
        return len(self.calls) / self.duration_s

    @property
    def out_per_s(self) -> float:
        return sum(self.values("made")) / self.duration_s

    @property
    def in_per_s(self) -> float:
        return sum(self.values("given")) / self.duration_s


def made_run(seed: int, calls: int = 24, failed: int = 0) -> Run:
    draw, free, found = random.Random(seed), [0.0] * SEATS, []
    for _ in range(calls):
        seat = free.index(min(free))
        ttft, gap = draw.uniform(0.05, 0.4), draw.uniform(0.01, 0.03)
        call = Call(free[seat], ttft, gap, draw.randint(50, 900), draw.randint(2, 60))
        free[seat] += call.took_s
        found.append(call)
    return Run(tuple(found), failed)


def at(values: Sequence[float], percent: float) -> float:
    """As numpy interpolates."""
    return quantiles(values, n=1000, method="inclusive")[round(percent * 10) - 1]


# --- vLLM and SGLang --------------------------------------------------------------------------------------------


def _serve(run: Run, e2e: str) -> Json:
    named = {"ttft": "ttft", "tpot": "tpot", e2e: "e2e"}
    latencies: Json = {}
    for theirs, ours in named.items():
        for name, value in run.figures(ours).items():
            latencies[f"{name}_{theirs}_ms"] = value
        latencies[f"median_{theirs}_ms"] = latencies[f"p50_{theirs}_ms"]
    return {
        "num_prompts": len(run.calls) + run.failed, "request_rate": "inf", "max_concurrency": SEATS,
        "duration": run.duration_s, "completed": len(run.calls), "total_input_tokens": int(sum(run.values("given"))),
        "total_output_tokens": int(sum(run.values("made"))), "request_throughput": run.per_s,
        "output_throughput": run.out_per_s, **latencies,
    }  # fmt: skip


def vllm(run: Run) -> Json:
    return {
        "date": "20261101-101500", "backend": "openai", "label": None, "model_id": MODEL, "burstiness": 1.0,
        "failed": run.failed, "request_goodput": None, "total_token_throughput": run.in_per_s + run.out_per_s,
        **_serve(run, "e2el"),
    }  # fmt: skip


def vllm_old(run: Run) -> Json:
    """benchmark_serving.py of 2024: neither failed nor percentiles of its own."""
    found = vllm(run)
    return {k: v for k, v in found.items() if not k.startswith(("p50_", "p95_")) and k not in ("failed", "burstiness")}


def vllm_detailed(run: Run) -> Json:
    lists: dict[str, list[Any]] = {
        "input_lens": [c.given for c in run.calls], "output_lens": [c.made for c in run.calls],
        "ttfts": [c.ttft_s for c in run.calls], "itls": [[c.gap_s] * (c.made - 1) for c in run.calls],
        "start_times": [c.at_s + 100 for c in run.calls], "errors": [""] * len(run.calls),
    }  # fmt: skip
    failed: Json = {"input_lens": 9, "output_lens": 0, "ttfts": 0.0, "itls": [], "start_times": 101.0, "errors": "lost"}
    return vllm(run) | {name: [*values, *[failed[name]] * run.failed] for name, values in lists.items()}


def sglang(run: Run) -> Json:
    server = {"model_path": MODEL, "tp_size": 2, "dp_size": 1, "version": "0.5.7", "quantization": "fp8"}
    return {
        "tag": None, "backend": "sglang", "dataset_name": "random", "sharegpt_output_len": None,
        "random_range_ratio": 1.0, "server_info": server, "accept_length": None, "total_output_tokens_retokenized": 9,
        "total_throughput": run.in_per_s + run.out_per_s, **_serve(run, "e2e_latency"), "request_rate": float("inf"),
    }  # fmt: skip


def sglang_old(run: Run) -> Json:
    """Of 2024: neither its concurrency nor rates of requests, and the median alone."""
    kept = ("request_rate", "total_input_tokens", "total_output_tokens", "mean_e2e_latency_ms",
            "median_e2e_latency_ms", "median_ttft_ms", "output_throughput", "duration", "completed")  # fmt: skip
    found = sglang(run)
    return {"backend": "sglang", "total_output_tokens_retokenized": 9, "random_range_ratio": 0.0} | {
        k: found[k] for k in kept
    }


def table(rows: Sequence[Sequence[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue()


def sweep(*runs: Run) -> str:
    """summary.csv, as pandas writes it: an index, and nothing for null."""
    found = [vllm(run) | {"run_number": n, "max_num_seqs": 256} for n, run in enumerate(runs)]
    rows: list[list[Any]] = [[n, *("" if v is None else v for v in each.values())] for n, each in enumerate(found)]
    return table([["", *found[0]], *rows])


def turns(run: Run) -> list[Json]:
    return [
        {
            "ttft_ms": 1e3 * c.ttft_s, "tpot_ms": 1e3 * c.gap_s, "latency_ms": 1e3 * c.took_s,
            "start_time_ms": 5e6 + 1e3 * c.at_s, "input_num_turns": 1, "input_num_tokens": c.given,
            "output_num_tokens": c.made, "output_num_chunks": c.made, "output_num_first_chunk_tokens": 1,
            "approx_cached_percent": 0.0, "conversation_id": f"c{n}", "client_id": n % SEATS,
        }
        for n, c in enumerate(run.calls)
    ]  # fmt: skip


def printed(run: Run) -> str:
    lines = [
        f"Namespace(backend='vllm', model='{MODEL}')", "============ Serving Benchmark Result ============",
        f"Successful requests:                     {len(run.calls):<10}",
        f"Failed requests:                         {run.failed:<10}",
        f"Maximum request concurrency:             {SEATS:<10}",
        f"Benchmark duration (s):                  {run.duration_s:<10.2f}",
        f"Total input tokens:                      {int(sum(run.values('given'))):<10}",
        f"Total generated tokens:                  {int(sum(run.values('made'))):<10}",
        f"Request throughput (req/s):              {run.per_s:<10.2f}",
        f"Output token throughput (tok/s):         {run.out_per_s:<10.2f}",
    ]  # fmt: skip
    for name, what in (("TTFT", "ttft"), ("TPOT", "tpot"), ("E2EL", "e2e")):
        lines += [f"{k.capitalize()} {name} (ms):   {v:<10.2f}" for k, v in run.figures(what).items()]
    return "\n".join([*lines, "=" * 50, ""])


# --- GuideLLM ---------------------------------------------------------------------------------------------------


def _summary(values: Sequence[float], scale: float = 1.0) -> Json:
    v = [scale * x for x in values]
    cuts = {f"p{str(p).replace('.', '').zfill(2)}": at(v, p) for p in (*CUTS, 50)}
    part = {"mean": fmean(v), "median": median(v), "std_dev": 1.0, "min": min(v), "max": max(v), "count": len(v),
            "total_sum": sum(v), "percentiles": cuts}  # fmt: skip
    return {"successful": part, "errored": None, "incomplete": None, "total": part | {"mean": 9e9}}


def _metrics(run: Run) -> Json:
    rates = {"requests_per_second": run.per_s, "output_tokens_per_second": run.out_per_s,
             "tokens_per_second": run.in_per_s + run.out_per_s}  # fmt: skip
    return {
        **{name: _summary([rate] * 2) for name, rate in rates.items()},
        "prompt_token_count": _summary(run.values("given")),
        "output_token_count": _summary(run.values("made")),
        "time_to_first_token_ms": _summary(run.values("ttft"), 1e3),
        "time_per_output_token_ms": _summary(run.values("e2e"), 1e3),
        "inter_token_latency_ms": _summary(run.values("tpot"), 1e3),
        "request_latency": _summary(run.values("e2e")),
    }


def guidellm(*runs: Run) -> Json:
    def one(run: Run) -> Json:
        totals = {"successful": len(run.calls), "errored": run.failed, "incomplete": 0, "total": 99}
        return {
            "type_": "generative_benchmark", "duration": run.duration_s, "start_time": START_S,
            "config": {"strategy": {"type_": "concurrent", "streams": SEATS}, "backend": {"model": MODEL}},
            "scheduler_metrics": {"measure_start_time": START_S, "measure_end_time": START_S + run.duration_s},
            "metrics": {"request_totals": totals} | _metrics(run),
        }  # fmt: skip

    return {"metadata": {"version": 1, "guidellm_version": "0.5.0"}, "args": {}, "benchmarks": list(map(one, runs))}


def guidellm_0_2(run: Run) -> Json:
    made = {"successful": len(run.calls), "errored": run.failed, "incomplete": 0, "total": 99}
    return {
        "benchmarks": [
            {
                "type_": "generative_benchmark", "run_id": "a", "id_": "b",
                "args": {"profile": {}, "strategy": {"type_": "concurrent", "streams": SEATS}},
                "run_stats": {"start_time": START_S, "end_time": START_S + 9, "requests_made": made},
                "worker": {"backend_model": MODEL}, "request_totals": made, "metrics": _metrics(run),
                "duration": run.duration_s, "start_time": START_S, "end_time": START_S + run.duration_s,
            }
        ]
    }  # fmt: skip


def guidellm_0_1(run: Run) -> Json:
    results = [
        {
            "prompt_token_count": c.given, "output_token_count": c.made, "start_time": START_S + c.at_s,
            "end_time": START_S + c.at_s + c.took_s, "first_token_time": c.ttft_s,
            "decode_times": {"data": [c.gap_s] * (c.made - 1)},
        }
        for c in run.calls
    ]  # fmt: skip
    errors = [{"message": "lost"}] * run.failed
    return {"benchmarks": [{"benchmarks": [{"mode": "throughput", "rate": None, "results": results, "errors": errors}],
                            "args": {}}]}  # fmt: skip


def _cuts(part: Json) -> list[float]:
    return [part["min"], *(part["percentiles"][f"p{str(p).replace('.', '').zfill(2)}"] for p in CUTS), part["max"]]


def guidellm_csv_0_3(*runs: Run) -> str:
    rows = []
    for run in runs:
        row: Json = {"Type": "generative_benchmark", "Name": f"concurrent@{SEATS}", "Start Time": "2026-11-01 10:15:00",
                     "Duration": run.duration_s, "Successful Requests": len(run.calls)}  # fmt: skip
        for name, each in _metrics(run).items():
            part, shown = each["successful"], "Successful " + name.replace("_", " ").capitalize()
            row |= {f"{shown} mean": part["mean"], f"{shown} median": part["median"], f"{shown} std dev": 1.0}
            row[f"{shown} [min, 0.1, 1, 5, 10, 25, 75, 90, 95, 99, max]"] = _cuts(part)
        row |= {"Incomplete Requests": 0, "Errored Requests": run.failed, "Errored Requests per second mean": 9e9}
        rows.append(row | {"Backend": json.dumps({"model": MODEL})})
    return table([list(rows[0]), *(list(row.values()) for row in rows)])


def guidellm_csv(*runs: Run) -> str:
    shown = {
        "requests_per_second": ("Server Throughput", "Requests/Sec"), "request_latency": ("Request Latency", "Sec"),
        "time_to_first_token_ms": ("Time to First Token", "ms"),
        "prompt_token_count": ("Token Metrics", "Input Tokens"),
        "time_per_output_token_ms": ("Time per Output Token", "ms"),
        "inter_token_latency_ms": ("Inter Token Latency", "ms"),
        "output_token_count": ("Token Metrics", "Output Tokens"),
        "output_tokens_per_second": ("Token Throughput", "Output Tokens/Sec"),
        "tokens_per_second": ("Token Throughput", "Total Tokens/Sec"),
    }  # fmt: skip
    rows, heads = [], []
    for run in runs:
        profile = json.dumps({"type_": "concurrent", "streams": [SEATS] * len(runs)})
        cells: list[tuple[tuple[str, str, str], Any]] = [
            (("Run Info", "Run ID", ""), "a"), (("Run Info", "Profile", ""), profile),
            (("Run Info", "Backend", ""), json.dumps({"model": MODEL})),
            (("Benchmark", "Strategy", ""), "concurrent"), (("Timings", "Start Time", ""), "2026-11-01 10:15:00"),
            (("Timings", "Duration", "Sec"), run.duration_s), (("Request Counts", "Successful", ""), len(run.calls)),
            (("Request Counts", "Incomplete", ""), 0), (("Request Counts", "Errored", ""), run.failed),
        ]  # fmt: skip
        for name, each in _metrics(run).items():
            group, unit = shown[name]
            part, field = each["successful"], f"Successful {unit}"
            cells += [((group, field, "Mean"), part["mean"]), ((group, field, "Median"), part["median"]),
                      ((group, field, "Std Dev"), 1.0), ((group, field, "Percentiles"), str(_cuts(part)))]  # fmt: skip
        cells.append((("Runtime Info", "Metadata", ""), json.dumps({"guidellm_version": "0.4.0"})))
        heads = [head for head, _ in cells]
        rows.append([value for _, value in cells])
    return table([*([head[n] for head in heads] for n in range(3)), *rows])


# --- AIPerf and GenAI-Perf --------------------------------------------------------------------------------------


def _metric(unit: str, values: Sequence[float], scale: float = 1.0) -> Json:
    v = [scale * x for x in values]
    return {"unit": unit, "avg": fmean(v), "min": min(v), "max": max(v)} | {
        f"p{p}": at(v, p) for p in (99, 95, 90, 75, 50, 25)
    }


def genai_perf(run: Run) -> Json:
    return {
        "time_to_first_token": _metric("ms", run.values("ttft"), 1e3),
        "request_latency": _metric("ms", run.values("e2e"), 1e3),
        "inter_token_latency": _metric("ms", run.values("tpot"), 1e3),
        "output_sequence_length": _metric("tokens", run.values("made")),
        "input_sequence_length": _metric("tokens", run.values("given")),
        "output_token_throughput": {"unit": "tokens/sec", "avg": run.out_per_s},
        "request_throughput": {"unit": "requests/sec", "avg": run.per_s},
        "request_count": {"unit": "count", "avg": float(len(run.calls))},
        "input_config": {"model_names": [MODEL], "perf_analyzer": {"stimulus": {"concurrency": SEATS}}},
    }


def aiperf(run: Run) -> Json:
    more = {"error_request_count": {"unit": "requests", "avg": float(run.failed)}} if run.failed else {}
    return genai_perf(run) | more | {
        "schema_version": "1.3", "aiperf_version": "0.10.0", "start_time": "2026-11-01T10:15:00",
        "benchmark_duration": {"unit": "sec", "avg": run.duration_s}, "was_cancelled": False,
        "request_latency": _metric("s", run.values("e2e")),
        "total_token_throughput": {"unit": "tokens/sec", "avg": run.in_per_s + run.out_per_s},
        "input_config": {"endpoint": {"model_names": [MODEL]}, "loadgen": {"concurrency": SEATS}},
    }  # fmt: skip


def metrics_csv(run: Run, per_s: tuple[str, str], of_count: str) -> str:
    """Two tables of numbers with two decimals; AIPerf's has no unit of a count."""
    found = aiperf(run) | {"request_latency": _metric("ms", run.values("e2e"), 1e3)}
    names = ["avg", "min", "max", "p99", "p95", "p90", "p75", "p50", "p25"]
    whole = {"output_token_throughput": f" ({per_s[1]})", "request_throughput": f" ({per_s[0]})",
             "benchmark_duration": " (sec)", "request_count": of_count, "error_request_count": of_count}  # fmt: skip
    rows: list[list[str]] = [["Metric", *names]]
    for key, value in found.items():
        if isinstance(value, dict) and "p50" in value:
            heading = f"{key.replace('_', ' ').title()} ({value['unit']})"
            rows.append([heading, *(f"{value[name]:,.2f}" for name in names)])
    rows += [[], ["Metric", "Value"]]
    rows += [[key.replace("_", " ").title() + unit, f"{found[key]['avg']:.2f}"] for key, unit in whole.items()
             if key in found]  # fmt: skip
    gpu = [["Endpoint", "GPU_Index", "Metric", "avg"], ["localhost", "0", "GPU Power Usage (W)", "250.00"]]
    return table([*rows, [], [], *gpu])


def aiperf_records(run: Run) -> list[Json]:
    start_ns = int(START_S * 1e9)

    def one(c: Call) -> Json:
        units = {"time_to_first_token": (1e3 * c.ttft_s, "ms"), "inter_token_latency": (1e3 * c.gap_s, "ms"),
                 "request_latency": (1e3 * c.took_s, "ms"), "input_sequence_length": (c.given, "tokens"),
                 "output_sequence_length": (c.made, "tokens")}  # fmt: skip
        times = {f"request_{side}_ns": start_ns + round(1e9 * s)
                 for side, s in (("start", c.at_s), ("end", c.at_s + c.took_s))}  # fmt: skip
        return {
            "metadata": {"session_num": 0, "benchmark_phase": "profiling", "was_cancelled": False, **times},
            "metrics": {name: {"value": value, "unit": unit} for name, (value, unit) in units.items()},
            "error": None,
        }

    warmup = {"metadata": {"benchmark_phase": "warmup"}, "metrics": {}, "error": None}
    lost = {"metadata": {"benchmark_phase": "profiling"}, "metrics": {}, "error": {"code": 500}}
    return [warmup, *map(one, run.calls), *[lost] * run.failed]


# --- inference-perf, LLMPerf ------------------------------------------------------------------------------------


def inference_perf(run: Run) -> Json:
    def of(what: str) -> Json:
        v = run.values(what)
        return {"mean": fmean(v), "min": min(v), "median": median(v), "max": max(v)} | {f"p{p}": at(v, p) for p in CUTS}

    return {
        "load_summary": {"count": len(run.calls), "send_duration": run.duration_s, "concurrency": SEATS},
        "successes": {
            "count": len(run.calls),
            "latency": {"request_latency": of("e2e"), "time_per_output_token": of("tpot"),
                        "time_to_first_token": of("ttft"), "normalized_time_per_output_token": of("e2e")},
            "throughput": {"input_tokens_per_sec": run.in_per_s, "output_tokens_per_sec": run.out_per_s,
                           "total_tokens_per_sec": run.in_per_s + run.out_per_s, "requests_per_sec": run.per_s},
            "prompt_len": of("given"), "output_len": of("made"),
        },
        "failures": {"count": run.failed, "request_latency": None, "prompt_len": None},
    }  # fmt: skip


def llmperf(run: Run) -> Json:
    names = {"ttft_s": "ttft", "end_to_end_latency_s": "e2e", "number_input_tokens": "given",
             "number_output_tokens": "made"}  # fmt: skip
    found: Json = {"version": "2023-08-31", "model": MODEL, "num_concurrent_requests": SEATS, "timestamp": int(START_S)}
    for theirs, ours in names.items():
        for name, value in run.figures(ours, 1.0).items():
            found[f"results_{theirs}_{name if name == 'mean' else 'quantiles_' + name}"] = value
    return found | {
        "results_inter_token_latency_s_mean": 9.0, "results_number_errors": run.failed,
        "results_num_completed_requests": len(run.calls), "results_num_completed_requests_per_min": 60 * run.per_s,
        "results_mean_output_throughput_token_per_s": run.out_per_s,
    }  # fmt: skip


def llmperf_responses(run: Run) -> list[Json]:
    served = [
        {
            "error_code": None, "error_msg": "", "inter_token_latency_s": 9.0, "ttft_s": c.ttft_s,
            "end_to_end_latency_s": c.took_s, "number_input_tokens": c.given, "number_output_tokens": c.made,
            "number_total_tokens": c.given + c.made,
        }
        for c in run.calls
    ]  # fmt: skip
    return [*served, *[{"error_code": 500, "error_msg": "lost", "ttft_s": 0, "number_input_tokens": 9}] * run.failed]


def lines(values: Sequence[Any]) -> str:
    return "".join(json.dumps(value) + "\n" for value in values)


def dumped(value: Any) -> str:
    return json.dumps(value, indent=1)


def plain(value: Any) -> Any:
    """A copy that shares no part, which YAML would write as an alias."""
    return json.loads(json.dumps(value))


FILES: dict[str, Callable[[Run], str]] = {  # name -> the text of a run
    "vllm": lambda run: dumped(vllm(run)),
    "vllm of 2024": lambda run: dumped(vllm_old(run)),
    "vllm --save-detailed": lambda run: dumped(vllm_detailed(run)),
    "vllm sweep summary.json": lambda run: dumped([vllm(run) | {"run_number": 0}]),
    "vllm sweep summary.csv": sweep,
    "vllm printed": printed,
    "vllm multi-turn csv": lambda run: table([list(turns(run)[0]), *(list(turn.values()) for turn in turns(run))]),
    "vllm multi-turn json": lambda run: dumped(turns(run)),
    "sglang": lambda run: lines([sglang(run)]),
    "sglang of 2024": lambda run: lines([sglang_old(run)]),
    "guidellm": lambda run: dumped(guidellm(run)),
    "guidellm yaml": lambda run: yaml.safe_dump(plain(guidellm(run))),
    "guidellm 0.2": lambda run: dumped(guidellm_0_2(run)),
    "guidellm 0.1": lambda run: dumped(guidellm_0_1(run)),
    "guidellm 0.3 csv": guidellm_csv_0_3,
    "guidellm csv": guidellm_csv,
    "genai-perf": lambda run: dumped(genai_perf(run)),
    "genai-perf csv": lambda run: metrics_csv(run, ("per sec", "per sec"), " (count)"),
    "aiperf": lambda run: dumped(aiperf(run)),
    "aiperf csv": lambda run: metrics_csv(run, ("requests/sec", "tokens/sec"), ""),
    "aiperf jsonl": lambda run: lines(aiperf_records(run)),
    "inference-perf": lambda run: dumped(inference_perf(run)),
    "inference-perf yaml": lambda run: yaml.safe_dump(plain(inference_perf(run))),
    "llmperf": lambda run: dumped(llmperf(run)),
    "llmperf responses": lambda run: dumped(llmperf_responses(run)),
}
EACH_REQUEST = ("vllm multi-turn csv", "aiperf jsonl")  # whose lines are requests
