"""How to start one replica: a command and a script, shell-quoted."""

import shlex
from typing import TypedDict

from .search import Scored


class Launch(TypedDict):
    command: str
    files: dict[str, str]


def _vllm(model: str, s: Scored) -> list[str]:
    c = s.lane.choice
    words = ["vllm", "serve", model, "--tensor-parallel-size", str(c.tp), "--max-num-seqs", str(s.concurrency)]
    words += ["--max-num-batched-tokens", str(s.lane.max_batched_tokens)]
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
    words += ["--max_batch_size", str(s.concurrency), "--max_num_tokens", str(s.lane.max_batched_tokens)]
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


def launch(model: str, s: Scored) -> Launch:
    """The command of one replica and a script that runs it; empty for frameworks without a writer yet."""
    writer = WRITERS.get(s.lane.framework.slug)
    if writer is None:
        return {"command": "", "files": {}}
    command = shlex.join(writer(model, s))
    script = f"#!/bin/sh\n# {s.lane.framework.name} {s.lane.framework.version}, one of {s.replicas} replicas\nexec {command}\n"
    return {"command": command, "files": {"serve.sh": script}}
