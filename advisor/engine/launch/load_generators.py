"""The load that a prediction is of, as commands of three load generators that read one trace of requests."""

import json
import math
import shlex
from dataclasses import dataclass
from typing import TypedDict

from advisor.engine.scheduler import REQUESTS, SEED, log_normal_sigma
from advisor.engine.search import Scored
from advisor.engine.spec import Lengths, Workload

TRACE = "load_trace.jsonl"
BLOCK_TOKENS = 16  # of the ids that say which parts of prompts are the same
LONGEST_S = 7200.0  # at a low rate fewer requests are sent
FEWEST = 200  # of these ten lie beyond the p95
URL = "http://127.0.0.1:8000"


class LoadTest(TypedDict):
    """One replica's share of the predicted load, and how to make it."""

    requests: int
    requests_per_s: float | None  # arrivals at random; None: as fast as the seats allow
    concurrency: int | None  # seats of a closed loop; None: arrivals
    input_tokens_mean: float
    output_tokens_mean: float
    duration_s: float | None
    commands: dict[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """What one replica is sent."""

    model: str  # whose tokenizer counts
    asked_name: str  # what the server knows it by
    requests: int
    requests_per_s: float | None
    concurrency: int | None
    generates_tokens: bool


def load_of(name: str, asked_name: str, s: Scored, workload: Workload) -> Load:
    """The share of the peak that one of the carrying replicas was simulated with; without arrivals, all its seats."""
    if workload.kind.has_arrivals:
        rate, seats = workload.requests_per_s_peak / (s.replicas - s.spare_replicas), None
        count = min(REQUESTS, max(FEWEST, math.ceil(rate * LONGEST_S)))
    else:
        rate, count, seats = None, REQUESTS, s.concurrency
    return Load(
        model=name,
        asked_name=asked_name,
        requests=count,
        requests_per_s=rate,
        concurrency=seats,
        generates_tokens=workload.kind.generates_tokens,
    )


def load_test(
    name: str, checkpoint: str, s: Scored, workload: Workload, longest_tokens: int
) -> tuple[LoadTest | None, dict[str, str]]:
    """The test and its files; nothing for servers that no load generator here can ask, or for sources of encoders."""
    facts = s.lane.framework.launch
    if facts is None or not facts.load_test or workload.source_tokens is not None:
        return None, {}
    asked_name = facts.default_model_name if facts.default_model_name and checkpoint != name else name
    load = load_of(name, asked_name, s, workload)
    commands = {"vllm": shlex.join(_vllm(load))}
    if load.generates_tokens:
        commands |= {"guidellm": shlex.join(_guidellm(load)), "aiperf": shlex.join(_aiperf(load))}
    rate = load.requests_per_s
    test: LoadTest = {
        "requests": load.requests,
        "requests_per_s": float(f"{rate:.6g}") if rate else None,
        "concurrency": load.concurrency,
        "input_tokens_mean": workload.input_tokens.mean_tokens,
        "output_tokens_mean": workload.output_tokens.mean_tokens if load.generates_tokens else 0.0,
        "duration_s": float(f"{load.requests / rate:.3g}") if rate else None,
        "commands": commands,
    }
    return test, {"load_trace.py": trace_script(load, workload, longest_tokens)}


# --- the commands -----------------------------------------------------------------------------------------------


def _named(load: Load) -> list[str]:
    words = ["--model", load.asked_name]
    return words if load.asked_name == load.model else [*words, "--tokenizer", load.model]


def _vllm(load: Load) -> list[str]:
    endpoint = ("openai", "/v1/completions") if load.generates_tokens else ("openai-embeddings", "/v1/embeddings")
    words = ["vllm", "bench", "serve", "--backend", endpoint[0], "--base-url", URL, "--endpoint", endpoint[1]]
    words += [*_named(load), "--dataset-name", "timed_trace", "--dataset-path", TRACE]
    words += ["--timed-trace-chunk-hash-size", str(BLOCK_TOKENS), "--timed-trace-sec-multiplier", "0.001"]
    words += ["--num-prompts", str(load.requests), "--seed", str(SEED)]
    if load.concurrency:
        words += ["--no-self-timed", "--request-rate", "inf", "--max-concurrency", str(load.concurrency)]
    else:
        words += ["--self-timed"]
    words += ["--percentile-metrics", "ttft,tpot,itl,e2el" if load.generates_tokens else "e2el"]
    return [*words, "--metric-percentiles", "50,95,99", "--save-result", "--result-filename", "load_vllm.json"]


def _guidellm(load: Load) -> list[str]:
    """Its arguments as JSON, so that no name is read as more than a name."""
    source = {"kind": "json_file", "path": TRACE}
    data = {"kind": "mooncake", "source": source, "hash_id_block_size": BLOCK_TOKENS, "time_scale": 0.001}
    profile: dict[str, object] = {"kind": "replay", "schedule_turn": "timestamp"}
    if load.concurrency:
        profile = {"kind": "concurrent", "streams": load.concurrency}
    given = {
        "--backend": {
            "kind": "openai_http",
            "target": URL,
            "model": load.asked_name,
            "request_format": "/v1/completions",
        },
        "--profile": profile,
        "--data": data,
        "--tokenizer": {"kind": "huggingface_auto", "model": load.model},
        "--constraint": {"kind": "max_requests", "count": load.requests},
        "--metrics": {"kind": "generative", "sample_size": 0},  # figures without the texts
        "--output": {"kind": "json", "path": "load_guidellm.json"},
    }
    words = [word for option, value in given.items() for word in (option, json.dumps(value))]
    return ["guidellm", "run", *words]


def _aiperf(load: Load) -> list[str]:
    words = ["aiperf", "profile", *_named(load), "--url", URL, "--endpoint-type", "completions", "--streaming"]
    # the server's own counts: text that was detokenised and is tokenised again has another length
    words += ["--use-server-token-count", "--input-file", TRACE, "--custom-dataset-type", "mooncake_trace"]
    words += ["--isl-block-size", str(BLOCK_TOKENS), "--extra-inputs", "ignore_eos:true", "--random-seed", str(SEED)]
    if load.concurrency:  # a trace with arrivals is replayed at them unless told otherwise
        words += ["--no-fixed-schedule", "--concurrency", str(load.concurrency)]
        words += ["--request-count", str(load.requests)]
    else:
        words += ["--fixed-schedule"]
    return [*words, "--artifact-dir", "load_aiperf"]


# --- the trace --------------------------------------------------------------------------------------------------

SCRIPT = '''#!/usr/bin/env python3
"""Writes {trace}: {requests} requests as predicted (arrival in ms, tokens in and out, ids of shared blocks)."""

import json
import math
import random

REQUESTS, REQUESTS_PER_S, SEED = {requests}, {rate}, {seed}
INPUT = ({input_mu}, {input_sigma})  # of the logarithm of the tokens
OUTPUT = ({output_mu}, {output_sigma})
CACHED_FRACTION, BLOCK_TOKENS, LONGEST_TOKENS = {cached}, {block}, {longest}

draw = random.Random(SEED)
clock_s, fresh = 0.0, 1_000_000
with open("{trace}", "w") as out:
    for _ in range(REQUESTS):
        clock_s += draw.expovariate(REQUESTS_PER_S) if REQUESTS_PER_S else 0.0
        tokens_in = max(round(math.exp(draw.gauss(*INPUT))), 2)
        tokens_out = max(round(math.exp(draw.gauss(*OUTPUT))), 1)
        tokens_out = min(tokens_out, LONGEST_TOKENS - 2)
        tokens_in = min(tokens_in, LONGEST_TOKENS - tokens_out)
        shared = int(tokens_in * CACHED_FRACTION) // BLOCK_TOKENS
        blocks = math.ceil(tokens_in / BLOCK_TOKENS)
        ids = [*range(shared), *range(fresh, fresh + blocks - shared)]
        fresh += blocks - shared
        row = {{"timestamp": round(clock_s * 1000), "input_length": tokens_in, "output_length": tokens_out}}
        out.write(json.dumps({{**row, "hash_ids": ids}}) + "\\n")
'''


def trace_script(load: Load, workload: Workload, longest_tokens: int) -> str:
    """A program of the standard library alone; the same seed writes the same trace."""
    input_mu, input_sigma = _logarithm(workload.input_tokens)
    output = workload.output_tokens if load.generates_tokens else Lengths(mean_tokens=1, p95_tokens=1)
    output_mu, output_sigma = _logarithm(output)
    return SCRIPT.format(
        trace=TRACE,
        requests=load.requests,
        rate=repr(load.requests_per_s or 0.0),
        seed=SEED,
        input_mu=input_mu,
        input_sigma=input_sigma,
        output_mu=output_mu,
        output_sigma=output_sigma,
        cached=repr(workload.prefix_cache_hit_fraction),
        block=BLOCK_TOKENS,
        longest=longest_tokens,
    )


def _logarithm(lengths: Lengths) -> tuple[str, str]:
    """Mean and deviation of the logarithm of log-normal lengths."""
    sigma = log_normal_sigma(lengths)
    return f"{math.log(lengths.mean_tokens) - sigma**2 / 2:.6f}", f"{sigma:.6f}"
