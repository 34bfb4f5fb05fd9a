"""Load test of a prediction: commands for three load generators that replay one request trace."""

import json
import math
import shlex
from dataclasses import dataclass
from typing import TypedDict

from advisor.engine.scheduler import REQUESTS, SEED
from advisor.engine.search import Scored
from advisor.engine.terms import Lengths, Workload, log_normal_sigma

TRACE = "load_trace.jsonl"
BLOCK_TOKENS = 16  # block size of the hash IDs that mark shared prompt prefixes
MAX_DURATION_S = 7200.0  # at a low rate, fewer requests
MIN_REQUESTS = 200  # ten of them lie above p95
URL = "http://127.0.0.1:8000"


class LoadTest(TypedDict):
    """One replica's share of the predicted load, and the commands that generate it."""

    requests: int
    requests_per_s: float | None  # random arrivals; None: closed loop
    concurrency: int | None  # of a closed loop; None: open loop
    input_tokens_mean: float
    output_tokens_mean: float
    duration_s: float | None
    commands: dict[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """The load sent to one replica."""

    model: str  # its tokenizer counts tokens
    asked_name: str  # model name in requests
    requests: int
    requests_per_s: float | None
    concurrency: int | None
    generates_tokens: bool
    arrival_cv2: float = 1.0


def load_of(name: str, asked_name: str, s: Scored, workload: Workload) -> Load:
    """The load one serving replica was simulated with: its share of the peak, or all slots busy in a closed loop."""
    if workload.kind.has_arrivals:
        rate, seats = workload.requests_per_s_peak / (s.replicas - s.spare_replicas), None
        count = min(REQUESTS, max(MIN_REQUESTS, math.ceil(rate * MAX_DURATION_S)))
    else:
        rate, count, seats = None, REQUESTS, s.concurrency
    return Load(
        model=name,
        asked_name=asked_name,
        requests=count,
        requests_per_s=rate,
        concurrency=seats,
        generates_tokens=workload.kind.generates_tokens,
        arrival_cv2=workload.arrival_cv2(1.0 / (s.replicas - s.spare_replicas)),
    )


def load_test(
    name: str, checkpoint: str, s: Scored, workload: Workload, longest_tokens: int
) -> tuple[LoadTest | None, dict[str, str]]:
    """(load test, files by name); none for servers without an HTTP API and for encoder-decoder sources."""
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
    argv = ["--model", load.asked_name]
    return argv if load.asked_name == load.model else [*argv, "--tokenizer", load.model]


def _vllm(load: Load) -> list[str]:
    endpoint = ("openai", "/v1/completions") if load.generates_tokens else ("openai-embeddings", "/v1/embeddings")
    argv = ["vllm", "bench", "serve", "--backend", endpoint[0], "--base-url", URL, "--endpoint", endpoint[1]]
    argv += [*_named(load), "--dataset-name", "timed_trace", "--dataset-path", TRACE]
    argv += ["--timed-trace-chunk-hash-size", str(BLOCK_TOKENS), "--timed-trace-sec-multiplier", "0.001"]
    argv += ["--num-prompts", str(load.requests), "--seed", str(SEED)]
    if load.concurrency:
        argv += ["--no-self-timed", "--request-rate", "inf", "--max-concurrency", str(load.concurrency)]
    else:
        argv += ["--self-timed"]
    argv += ["--percentile-metrics", "ttft,tpot,itl,e2el" if load.generates_tokens else "e2el"]
    return [*argv, "--metric-percentiles", "50,95,99", "--save-result", "--result-filename", "load_vllm.json"]


def _guidellm(load: Load) -> list[str]:
    """Arguments as JSON, so that a model name cannot inject options."""
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
        "--metrics": {"kind": "generative", "sample_size": 0},  # no request texts in the output
        "--output": {"kind": "json", "path": "load_guidellm.json"},
    }
    argv = [word for option, value in given.items() for word in (option, json.dumps(value))]
    return ["guidellm", "run", *argv]


def _aiperf(load: Load) -> list[str]:
    argv = ["aiperf", "profile", *_named(load), "--url", URL, "--endpoint-type", "completions", "--streaming"]
    # re-tokenizing detokenized text would change the counts
    argv += ["--use-server-token-count", "--input-file", TRACE, "--custom-dataset-type", "mooncake_trace"]
    argv += ["--isl-block-size", str(BLOCK_TOKENS), "--extra-inputs", "ignore_eos:true", "--random-seed", str(SEED)]
    if load.concurrency:  # by default a trace is replayed at its timestamps
        argv += ["--no-fixed-schedule", "--concurrency", str(load.concurrency)]
        argv += ["--request-count", str(load.requests)]
    else:
        argv += ["--fixed-schedule"]
    return [*argv, "--artifact-dir", "load_aiperf"]


# --- the trace --------------------------------------------------------------------------------------------------

SCRIPT = '''#!/usr/bin/env python3
"""Writes {trace}: the {requests} predicted requests (arrival in ms, input and output tokens, hash IDs of blocks)."""

import json
import math
import random

REQUESTS, REQUESTS_PER_S, SEED = {requests}, {rate}, {seed}
INPUT = ({input_mu}, {input_sigma})  # mean and standard deviation of ln(tokens)
OUTPUT = ({output_mu}, {output_sigma})
CACHED_FRACTION, BLOCK_TOKENS, LONGEST_TOKENS = {cached}, {block}, {longest}
GAP_SHAPE = {shape}  # of gamma distributed gaps: 1 over their squared coefficient of variation; 1: Poisson
PREFIXES = {prefixes}  # share of the requests, shared tokens, different prefixes; none: CACHED_FRACTION of each prompt


def shared_blocks(tokens_in):
    """(first hash ID, number) of the blocks at the start of a prompt that other requests share."""
    if not PREFIXES:
        return 0, int(tokens_in * CACHED_FRACTION) // BLOCK_TOKENS
    at, first = draw.random(), 0
    for share, tokens, count in PREFIXES:
        if at < share:
            start = first + draw.randrange(count) * (tokens // BLOCK_TOKENS)
            return start, min(tokens, tokens_in) // BLOCK_TOKENS
        at, first = at - share, first + count * (tokens // BLOCK_TOKENS)
    return 0, 0


draw = random.Random(SEED)
clock_s, fresh = 0.0, {fresh}
with open("{trace}", "w") as out:
    for _ in range(REQUESTS):
        clock_s += draw.gammavariate(GAP_SHAPE, 1 / GAP_SHAPE / REQUESTS_PER_S) if REQUESTS_PER_S else 0.0
        tokens_in = max(round(math.exp(draw.gauss(*INPUT))), 2)
        tokens_out = max(round(math.exp(draw.gauss(*OUTPUT))), 1)
        tokens_out = min(tokens_out, LONGEST_TOKENS - 2)
        tokens_in = min(tokens_in, LONGEST_TOKENS - tokens_out)
        first, shared = shared_blocks(tokens_in)
        blocks = math.ceil(tokens_in / BLOCK_TOKENS)
        ids = [*range(first, first + shared), *range(fresh, fresh + blocks - shared)]
        fresh += blocks - shared
        row = {{"timestamp": round(clock_s * 1000), "input_length": tokens_in, "output_length": tokens_out}}
        out.write(json.dumps({{**row, "hash_ids": ids}}) + "\\n")
'''


def trace_script(load: Load, workload: Workload, longest_tokens: int) -> str:
    """A Python script (standard library only) that writes the trace; repeatable through its seed."""
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
        shape=f"{min(1 / max(load.arrival_cv2, 1e-6), 1e6):.6g}",
        prefixes=repr([(c.fraction, int(c.shared_tokens), c.prefixes) for c in workload.prefix_classes]),
        fresh=max(1_000_000, *(int(c.prefixes * c.shared_tokens) for c in workload.prefix_classes), 0),
    )


def _logarithm(lengths: Lengths) -> tuple[str, str]:
    """(mean, standard deviation) of ln(tokens) of log-normal lengths, as text."""
    sigma = log_normal_sigma(lengths)
    return f"{math.log(lengths.mean_tokens) - sigma**2 / 2:.6f}", f"{sigma:.6f}"
