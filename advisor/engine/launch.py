"""How to start one replica: a command and a script, shell-quoted."""

import shlex
from typing import TypedDict

from .layout import HALF
from .trials import Scored

CONTEXT_STEP_TOKENS = 1024


class Launch(TypedDict):
    command: str
    files: dict[str, str]


def longest_tokens(s: Scored) -> int:
    """The longest request worth admitting: four mean requests, if the cache holds it; the default may not start."""
    asked = 4 * s.lane.context_tokens
    held = s.memory.kv_capacity_tokens * s.lane.choice.pp
    whole = int(min(asked, held)) // CONTEXT_STEP_TOKENS * CONTEXT_STEP_TOKENS
    return max(whole, int(min(s.lane.context_tokens, held)))


def _vllm(model: str, s: Scored) -> list[str]:
    c = s.lane.choice
    seats = s.concurrency // c.dp  # vLLM counts per data-parallel rank
    words = ["vllm", "serve", model, "--tensor-parallel-size", str(c.tp), "--max-num-seqs", str(seats)]
    words += ["--max-num-batched-tokens", str(s.lane.max_batched_tokens)]
    words += ["--max-model-len", str(longest_tokens(s))]
    words += ["--gpu-memory-utilization", f"{s.lane.framework.memory_fraction:g}"]
    if c.pp > 1:
        words += ["--pipeline-parallel-size", str(c.pp)]
    if c.dp > 1:
        words += ["--data-parallel-size", str(c.dp)]
    if c.ep > 1:
        words += ["--enable-expert-parallel"]
    if c.kv_dtype == "fp8":
        words += ["--kv-cache-dtype", "fp8"]
    if c.quantization.slug == "fp8":
        words += ["--quantization", "fp8"]
    return words


def _sglang(model: str, s: Scored) -> list[str]:
    c = s.lane.choice
    words = ["python", "-m", "sglang.launch_server", "--model-path", model, "--tp-size", str(c.tp * c.dp)]
    words += ["--max-running-requests", str(s.concurrency), "--chunked-prefill-size", str(s.lane.max_batched_tokens)]
    words += ["--mem-fraction-static", f"{s.lane.framework.memory_fraction:g}"]
    words += ["--context-length", str(longest_tokens(s))]
    if c.dp > 1:
        words += ["--dp-size", str(c.dp), "--enable-dp-attention"]
    if c.ep > 1:
        words += ["--ep-size", str(c.ep)]
    if c.pp > 1:
        words += ["--pp-size", str(c.pp)]
    if c.kv_dtype == "fp8":
        words += ["--kv-cache-dtype", "fp8_e4m3"]
    if c.quantization.slug == "fp8":
        words += ["--quantization", "fp8"]
    return words


def _trtllm(model: str, s: Scored) -> list[str]:
    c = s.lane.choice
    words = ["trtllm-serve", model, "--tp_size", str(c.tp * c.dp), "--pp_size", str(c.pp)]
    words += ["--max_batch_size", str(s.concurrency // c.dp), "--max_num_tokens", str(s.lane.max_batched_tokens)]
    words += ["--max_seq_len", str(longest_tokens(s))]
    if c.ep > 1:
        words += ["--ep_size", str(c.ep)]
    return words


def _llama_cpp(model: str, s: Scored) -> list[str]:
    words = ["llama-server", "--hf-repo", model, "--n-gpu-layers", "999", "--parallel", str(s.concurrency)]
    return words + ["--ctx-size", str(int(s.lane.context_tokens * s.concurrency)), "--cont-batching"]


def _mlx(model: str, s: Scored) -> list[str]:
    return ["mlx_lm.server", "--model", model]


WRITERS = {
    "vllm": _vllm,
    "vllm-tpu": _vllm,
    "vllm-gaudi": _vllm,
    "neuron": _vllm,
    "sglang": _sglang,
    "tensorrt-llm": _trtllm,
    "llama.cpp": _llama_cpp,
    "mlx": _mlx,
}


def checkpoint_note(s: Scored) -> str:
    """What the weights must be where the command cannot make them from the published checkpoint; empty: nothing."""
    q = s.lane.choice.quantization
    if s.lane.framework.slug in ("llama.cpp", "mlx"):
        return f"# use a checkpoint converted for {s.lane.framework.name} in {q.name}"
    on_the_fly = q.slug == "fp8" and s.lane.framework.slug != "tensorrt-llm"
    return "" if on_the_fly or q.weights_dtype in HALF else f"# use a checkpoint published or converted in {q.name}"


def launch(model: str, s: Scored) -> Launch:
    """The command of one replica and a script that runs it; empty for frameworks without a writer yet."""
    writer = WRITERS.get(s.lane.framework.slug)
    if writer is None:
        return {"command": "", "files": {}}
    command = shlex.join(writer(model, s))
    about = f"# {s.lane.framework.name} {s.lane.framework.version}, one of {s.replicas} replicas"
    lines = ["#!/bin/sh", about, checkpoint_note(s), f"exec {command}"]
    return {"command": command, "files": {"serve.sh": "\n".join(line for line in lines if line) + "\n"}}
