"""How to start one replica: a command and the files that it needs, shell-quoted."""

import math
import shlex
from dataclasses import dataclass, replace
from typing import NotRequired, TypedDict

from .compose import compose
from .encoder import EMBEDDING
from .launch_cut import notes_of_cut, one_instance, partition_script
from .launch_variants import adapter_notes, adapter_words, draft_words, pool_notes, pool_words, trtllm_lines
from .layout import HALF
from .leader_workers import leader_workers
from .load_test import LoadTest, load_test
from .manifests import FIRST_HOST, Served, kubernetes, systemd
from .model import Model
from .plan import Lengths, Workload
from .simulate import log_normal_sigma
from .trials import Scored

CONTEXT_STEP_TOKENS = 1024
SOURCE_STEP_TOKENS = 128
Z999 = 3.0902  # of the standard normal: one request in a thousand is longer
ON_LOAD = {"vllm": ("fp8", "fp8-w8a16"), "sglang": ("fp8",)}  # formats made from a 16-bit checkpoint while it loads
FILES = {"llama.cpp": "GGUF file", "executorch": ".pte file", "openvino-npu": "OpenVINO model"}  # made beforehand
LMDEPLOY_FORMATS = {"awq": "awq", "gptq": "gptq", "fp8-block": "fp8", "mxfp4": "mxfp4"}
LISTEN = ("--host", "0.0.0.0", "--port", "8000")
TRTLLM_OPTIONS = "trtllm-options.yaml"
# devices that a stack counts for one chip: logical NeuronCores (AWS documentation, two physical ones in each by default
# from Trainium2), the two halves of a package
DEVICES = {
    **{"inferentia2": 2, "trainium1": 2, "trainium2": 4, "trainium3": 4, "tpu-v3": 2, "tpu-v7": 2},
    "furiosa-rngd": 8,  # processing elements, as the help of furiosa-llm 2025.3.4 counts them: 16 are two cards
    **{"mi250": 2, "mi250x": 2, "gpu-max-1550": 2, "arc-pro-b60-dual-48gb": 2},
}
PACKAGES = {  # of the Python index, with the release that is planned for
    "vllm": "vllm=={}",
    "vllm-tpu": "vllm-tpu=={}.*",
    "sglang": "sglang=={}",
    "tensorrt-llm": "tensorrt-llm=={}.*",
    "furiosa-llm": "furiosa-llm=={}.*",
    "lmdeploy": "lmdeploy=={}.*",
    "mlx": "mlx-lm=={}.* mlx==0.29.*",  # it asks for 0.29.2 or later; its server answered with 0.29.4, not with 0.32.4
}


FETCHED = {"tensorrt-llm": " (a stub on the index: it fetches the wheel from NVIDIA's own, which the host must reach)"}


class Launch(TypedDict):
    command: str
    files: dict[str, str]
    load_test: NotRequired[LoadTest]


@dataclass(frozen=True, kw_only=True, slots=True)
class Longest:
    """The longest request, prompt and answer, that a lane is started for, and what set it."""

    tokens: int
    wanted_tokens: int  # one request in a thousand is longer
    limit: str  # what keeps it below the wanted; empty: nothing


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """What the writers of commands read."""

    checkpoint: str  # the model's name, or a placeholder for a checkpoint that somebody must make or find
    made_on_load: bool
    cast_dtype: str  # the 16-bit format a wider checkpoint is cast to; empty: none
    longest: Longest
    longest_source_tokens: int  # of an encoder-decoder; 0: no encoder beside the decoder
    makes_vectors: bool
    shares_prefixes: bool
    served_name: str  # what clients ask for where the checkpoint is a path; empty: its own name
    s: Scored

    @property
    def hosts(self) -> int:
        """Hosts that one replica spans."""
        c = self.s.lane.choice
        return math.ceil(c.tp * c.pp * c.dp / max(c.accelerator.chips_per_host, 1))

    @property
    def tp_devices(self) -> int:
        """Tensor-parallel ranks as the stack counts them."""
        c = self.s.lane.choice
        return c.tp * DEVICES.get(c.accelerator.slug, 1)


def rare_tokens(lengths: Lengths) -> float:
    """The 99.9th percentile of the log-normal with this mean and p95."""
    sigma = log_normal_sigma(lengths)
    return lengths.mean_tokens * math.exp(Z999 * sigma - sigma**2 / 2)


def longest(s: Scored, model: Model, workload: Workload) -> Longest:
    """p99.9 of the prompt and p99.9 of the answer together, within the model's context and the cache of a lane."""
    rare = rare_tokens(workload.input_tokens)
    rare += 0 if workload.kind == EMBEDDING else rare_tokens(workload.output_tokens)
    wanted = math.ceil(rare / CONTEXT_STEP_TOKENS) * CONTEXT_STEP_TOKENS
    held = int(s.memory.kv_capacity_tokens * s.lane.choice.pp)
    limits = ((model.max_context_tokens, "the model's context ends there"), (held, "the cache of a replica ends there"))
    tokens, limit = min((wanted, ""), *limits, key=lambda pair: pair[0])
    return Longest(tokens=tokens, wanted_tokens=wanted, limit=limit)


def start_of(name: str, s: Scored, model: Model, workload: Workload) -> Start:
    """The published checkpoint where the framework can load it as planned, or else a placeholder."""
    q, framework = s.lane.choice.quantization, s.lane.framework.slug
    native = model.native_dtype in (q.slug, q.weights_dtype)
    on_load = not native and q.slug in ON_LOAD.get(framework, ())
    cast = q.weights_dtype if not native and q.weights_dtype in HALF and framework != "llama.cpp" else ""
    if framework in FILES:
        checkpoint = f"<{FILES[framework]} of {name} in {q.name}>"
    else:
        checkpoint = name if native or on_load or cast else f"<checkpoint of {name} in {q.name}>"
    return Start(
        checkpoint=checkpoint,
        made_on_load=on_load,
        cast_dtype=cast,
        longest=longest(s, model, workload),
        longest_source_tokens=longest_source(model, workload),
        makes_vectors=workload.kind == EMBEDDING,
        shares_prefixes=workload.prefix_cache_hit_fraction > 0 and "prefix_caching" in s.lane.framework.features,
        served_name=name if checkpoint.startswith("<") else "",
        s=s,
    )


def longest_source(model: Model, workload: Workload) -> int:
    """p99.9 of the sources in whole steps; of speech always the window."""
    if workload.source_tokens is None:
        return 0
    if model.source_s:
        return model.source_tokens
    return math.ceil(rare_tokens(workload.source_tokens) / SOURCE_STEP_TOKENS) * SOURCE_STEP_TOKENS


def _vllm(start: Start) -> list[str]:
    s, c = start.s, start.s.lane.choice
    seats = s.concurrency // c.dp  # vLLM counts per data-parallel rank
    words = ["vllm", "serve", start.checkpoint, *LISTEN]
    words += ["--tensor-parallel-size", str(start.tp_devices), "--max-num-seqs", str(seats)]
    words += ["--max-num-batched-tokens", str(s.lane.max_batched_tokens)]
    words += ["--max-model-len", str(start.longest.tokens)]
    if c.accelerator.kind != "cpu":
        words += ["--gpu-memory-utilization", f"{s.lane.framework.memory_fraction:g}"]
    if start.makes_vectors:
        words += ["--runner", "pooling"]
    if c.pp > 1:
        words += ["--pipeline-parallel-size", str(c.pp)]
    if c.dp > 1:
        words += ["--data-parallel-size", str(c.dp)]
    if c.ep > 1:
        words += ["--enable-expert-parallel"]
    if c.kv_dtype == "fp8":
        words += ["--kv-cache-dtype", "fp8"]
    if start.shares_prefixes:
        words += ["--enable-prefix-caching"]
    if start.hosts > 1 and s.lane.framework.slug != "vllm":
        words += ["--distributed-executor-backend", "ray"]
    elif start.hosts > 1:
        words += ["--nnodes", str(start.hosts), "--node-rank", "0", "--master-addr", FIRST_HOST]
    return [*_cache_of_a_cpu(start), *words, *_named(start), *_loaded_as(start)]


def _cache_of_a_cpu(start: Start) -> list[str]:
    """vLLM on CPUs takes the cache's size per rank in whole GiB from the environment, and little without it."""
    memory = start.s.memory
    room_gib = int((memory.kv_bytes + memory.free_bytes) / 2.0**30)
    if start.s.lane.choice.accelerator.kind != "cpu" or start.makes_vectors or room_gib < 1:
        return []
    return ["env", f"VLLM_CPU_KVCACHE_SPACE={room_gib}"]


def _named(start: Start) -> list[str]:
    return ["--served-model-name", start.served_name] if start.served_name else []


def _loaded_as(start: Start) -> list[str]:
    """Flags of vLLM and SGLang that change the weights while they load."""
    cast = {"bf16": "bfloat16", "fp16": "float16"}.get(start.cast_dtype)
    return (["--quantization", "fp8"] if start.made_on_load else []) + (["--dtype", cast] if cast else [])


def _sglang(start: Start) -> list[str]:
    s, c = start.s, start.s.lane.choice
    words = ["python", "-m", "sglang.launch_server", "--model-path", start.checkpoint, *LISTEN]
    words += ["--tp-size", str(start.tp_devices * c.dp)]
    words += ["--max-running-requests", str(s.concurrency), "--chunked-prefill-size", str(s.lane.max_batched_tokens)]
    words += ["--mem-fraction-static", f"{s.lane.framework.memory_fraction:g}"]
    words += ["--context-length", str(start.longest.tokens)]
    if start.makes_vectors:
        words += ["--is-embedding"]
    if c.accelerator.kind == "cpu":
        words += ["--device", "cpu"]
    if c.dp > 1:
        words += ["--dp-size", str(c.dp), "--enable-dp-attention"]
    if c.ep > 1:
        words += ["--ep-size", str(c.ep)]
    if c.pp > 1:
        words += ["--pp-size", str(c.pp)]
    if c.kv_dtype == "fp8":
        words += ["--kv-cache-dtype", "fp8_e4m3"]
    if start.hosts > 1:
        words += ["--nnodes", str(start.hosts), "--node-rank", "0", "--dist-init-addr", f"{FIRST_HOST}:20000"]
    return words + _named(start) + _loaded_as(start)


def _trtllm(start: Start) -> list[str]:
    s, c = start.s, start.s.lane.choice
    words = ["trtllm-serve", start.checkpoint, *LISTEN, "--tp_size", str(c.tp * c.dp), "--pp_size", str(c.pp)]
    words += ["--max_batch_size", str(s.concurrency // c.dp), "--max_num_tokens", str(s.lane.max_batched_tokens)]
    words += ["--max_seq_len", str(max(start.longest.tokens, start.longest_source_tokens))]
    if c.ep > 1:
        words += ["--ep_size", str(c.ep)]
    words += ["--extra_llm_api_options", TRTLLM_OPTIONS]
    if start.hosts == 1:
        return words
    ranks = c.tp * c.pp * c.dp
    spread = ["srun", "--nodes", str(start.hosts), "--ntasks", str(ranks)]
    spread += ["--ntasks-per-node", str(ranks // start.hosts), "--mpi", "pmix"]
    return [*spread, "trtllm-llmapi-launch", *words]


def trtllm_options(s: Scored, source_tokens: int = 0, shares_prefixes: bool = False) -> str:
    """The YAML file beside a trtllm-serve command: what has no flag, and the whole section of the cache."""
    c = s.lane.choice
    lines = ["enable_attention_dp: true"] if c.dp > 1 else []
    if source_tokens:
        lines += ["attn_backend: TRTLLM", "enable_chunked_prefill: false", f"max_input_len: {source_tokens}"]
    else:  # off by default; the estimate has prompts cut at the token budget
        lines += ["enable_chunked_prefill: true"]
    lines += ["kv_cache_config:", f"  dtype: {c.kv_dtype if c.kv_dtype in ('fp8', 'int8') else 'auto'}"]
    lines += [f"  free_gpu_memory_fraction: {s.lane.framework.memory_fraction:g}"]
    if source_tokens:
        share = s.memory.source_kv_bytes / s.memory.kv_bytes
        lines += ["  enable_block_reuse: false", f"  cross_kv_cache_fraction: {share:.2f}"]
    elif shares_prefixes:
        lines += ["  enable_block_reuse: true"]
    return "\n".join(lines) + "\n"


def slots(start: Start) -> int:
    """Requests that llama.cpp runs at once: each slot is as long as the longest request, in use or not."""
    held = int(start.s.memory.kv_capacity_tokens * start.s.lane.choice.pp)
    return max(min(start.s.concurrency, held // start.longest.tokens), 1)


def _llama_cpp(start: Start) -> list[str]:
    count, named = slots(start), ["--alias", start.served_name] if start.served_name else []
    if start.makes_vectors:  # a prompt is computed in one physical batch
        words = ["llama-server", "--model", start.checkpoint, *LISTEN, "--n-gpu-layers", "999", "--embedding"]
        batch = str(start.s.lane.max_batched_tokens)
        words += ["--parallel", str(count), "--ctx-size", str(start.longest.tokens * count)]
        return words + ["--batch-size", batch, "--ubatch-size", batch, *named]
    words = ["llama-server", "--model", start.checkpoint, *LISTEN, "--n-gpu-layers", "999", "--parallel", str(count)]
    return words + ["--ctx-size", str(start.longest.tokens * count), "--cont-batching", *named]  # the server divides it


def _tgi(start: Start) -> list[str]:
    s, source = start.s, start.longest_source_tokens
    words = ["text-generation-launcher", "--model-id", start.checkpoint, "--hostname", "0.0.0.0", "--port", "8000"]
    words += ["--num-shard", str(s.lane.choice.tp), "--max-concurrent-requests", str(s.concurrency)]
    words += ["--max-input-tokens", str(source), "--max-total-tokens", str(source + start.longest.tokens)]
    words += ["--max-batch-prefill-tokens", str(max(s.lane.max_batched_tokens, source))]
    dtype = {"bf16": "bfloat16", "fp16": "float16"}.get(s.lane.choice.quantization.weights_dtype)
    return words + (["--dtype", dtype] if dtype else [])


def _lmdeploy(start: Start) -> list[str]:
    """With TurboMind, its own engine."""
    s, c = start.s, start.s.lane.choice
    words = ["lmdeploy", "serve", "api_server", start.checkpoint, "--server-name", "0.0.0.0", "--server-port", "8000"]
    words += ["--tp", str(start.tp_devices), "--max-batch-size", str(s.concurrency)]
    words += ["--session-len", str(start.longest.tokens), "--max-prefill-token-num", str(s.lane.max_batched_tokens)]
    words += ["--cache-max-entry-count", f"{s.lane.framework.memory_fraction:g}"]
    words += ["--backend", "turbomind"]
    if c.quantization.slug in LMDEPLOY_FORMATS:
        words += ["--model-format", LMDEPLOY_FORMATS[c.quantization.slug]]
    if start.cast_dtype:
        words += ["--dtype", {"bf16": "bfloat16", "fp16": "float16"}[start.cast_dtype]]
    if start.shares_prefixes:
        words += ["--enable-prefix-caching"]
    return words + (["--model-name", start.served_name] if start.served_name else [])


def _mlx(start: Start) -> list[str]:
    return ["mlx_lm.server", "--model", start.checkpoint, *LISTEN]


def _openvino_npu(start: Start) -> list[str]:
    """As the demonstration of the model server on NPUs starts it (docs.openvino.ai, text generation with NPU)."""
    prompt = math.ceil(start.longest.tokens)
    words = ["ovms", "--rest_port", "8000", "--rest_bind_address", "0.0.0.0", "--source_model", start.checkpoint]
    words += ["--model_repository_path", "models", "--task", "text_generation", "--target_device", "NPU"]
    return words + ["--enable_prefix_caching", "true", "--max_prompt_len", str(prompt)]


def _executorch(start: Start) -> list[str]:
    """The runner for one user; ExecuTorch has no server of its own."""
    return ["llama_main", f"--model_path={start.checkpoint}", "--tokenizer_path=tokenizer.json"]


def _tenstorrent(start: Start) -> list[str]:
    device = start.s.lane.choice.accelerator.slug.removeprefix("tenstorrent-").rstrip("ad")
    model = start.checkpoint if start.checkpoint.startswith("<") else start.checkpoint.rsplit("/", 1)[-1]
    return ["python3", "run.py", "--model", model, "--tt-device", device, "--workflow", "server", "--docker-server"]


def _qaic(start: Start) -> list[str]:
    """The container of the vendor's vLLM (docs.qualcomm.com, run vLLM)."""
    words = ["docker", "run", "--rm", "--network", "host", "--device", "/dev/accel/", "--shm-size=2gb"]
    words += ["ghcr.io/quic/cloud_ai_inference_vllm:1.21.2.0", *LISTEN, "--model", start.checkpoint]
    return words + ["--max-model-len", str(start.longest.tokens), "--max-num-seq", str(start.s.concurrency)]


def _furiosa(start: Start) -> list[str]:
    """Buckets of length and batch stay the artifact's: a limit between two of them would drop the larger."""
    c = start.s.lane.choice
    words = ["furiosa-llm", "serve", start.checkpoint, *LISTEN, "--tensor-parallel-size", str(start.tp_devices)]
    if c.pp > 1:
        words += ["--pipeline-parallel-size", str(c.pp)]
    return words + (["--enable-prefix-caching"] if start.shares_prefixes else [])


ON_DEVICE = {
    "executorch": "runs on the device for one user and listens on no port: an app calls it",
    "openvino-npu": "requests are worked off one after another",
}
RAY = "start one Ray cluster over them, then run this on its head"
EACH = "run this on the first and serve-host-N.sh on each other, all with the first host's address in place of < >"
SPREAD = {
    "vllm": EACH,
    "sglang": EACH,
    "tensorrt-llm": "run it within a Slurm allocation of them",
}
WRITERS = {
    "vllm-ascend": _vllm,
    "openvino-npu": _openvino_npu,
    "executorch": _executorch,
    "tt-inference": _tenstorrent,
    "qaic": _qaic,
    "furiosa-llm": _furiosa,
    "vllm": _vllm,
    "vllm-tpu": _vllm,
    "vllm-gaudi": _vllm,
    "neuron": _vllm,
    "sglang": _sglang,
    "tensorrt-llm": _trtllm,
    "llama.cpp": _llama_cpp,
    "mlx": _mlx,
    "tgi": _tgi,
    "lmdeploy": _lmdeploy,
}


def install(vendor: str, framework: str, version: str) -> str:
    """The pinned package; wheels of vLLM, SGLang and LMDeploy on the index are of CUDA."""
    if framework in PACKAGES and (framework not in ("vllm", "sglang", "lmdeploy") or vendor == "nvidia"):
        return "pip install " + PACKAGES[framework].format(version) + FETCHED.get(framework, "")
    return f"the build of {version} for this chip, from its vendor or the project"


def notes(start: Start) -> list[str]:
    """What a reader of the script must know before running it."""
    s, most, framework = start.s, start.longest, start.s.lane.framework
    said = [f"{framework.name} {framework.version}, one of {s.replicas} replicas"]
    said += notes_of_cut(s.lane.choice.accelerator)
    said.append(f"get it: {install(s.lane.choice.accelerator.vendor, framework.slug, framework.version)}")
    if s.replicas > 1:
        said.append("put a load balancer in front of the replicas; replicas on one host need their own chips and port")
    if start.hosts > 1:
        said.append(f"a replica spans {start.hosts} hosts: " + SPREAD.get(framework.slug, RAY))
    if framework.slug in ON_DEVICE:
        said.append(ON_DEVICE[framework.slug])
    if start.checkpoint.startswith("<"):
        said.append(f"put the path of a checkpoint in {s.lane.choice.quantization.name} in place of the words in < >")
    if framework.slug == "tensorrt-llm" and s.lane.choice.kv_dtype == "int8":
        said.append("its PyTorch backend knows auto and fp8 for the cache; int8 needs --backend tensorrt and an engine")
    if framework.slug != "mlx":
        parts = "each" if start.makes_vectors else "prompt and answer together"
        if start.longest_source_tokens:
            parts = f"start and answer together, after sources up to {start.longest_source_tokens} tokens"
        said.append(f"requests up to {most.tokens} tokens, {parts}; " + _why(most))
    if framework.slug == "llama.cpp" and slots(start) < s.concurrency:
        said.append(
            f"planned for {s.concurrency} requests at once, the cache has room for {slots(start)} of the longest"
        )
    return said


def _why(most: Longest) -> str:
    if most.limit:
        return f"{most.limit}, the 99.9th percentiles of both come to {most.wanted_tokens}"
    return "the 99.9th percentiles of both fit"


def launch(name: str, s: Scored, model: Model, workload: Workload) -> Launch:
    """The command of one replica and files that run it; empty for frameworks without a writer yet."""
    writer = WRITERS.get(s.lane.framework.slug)
    if writer is None:
        return {"command": "", "files": {}}
    s = one_instance(s)
    start = start_of(name, s, model, workload)
    plain = [*writer(start), *draft_words(s, model), *adapter_words(s, model)]
    words = [*plain, *pool_words(s, "decode")]
    files = {"serve.sh": script(words, [*notes(start), *adapter_notes(s, model), *pool_notes(s, "decode")])}
    if s.pools:
        files["serve-prefill.sh"] = script([*plain, *pool_words(s, "prefill")], pool_notes(s, "prefill"))
    if s.lane.framework.slug == "tensorrt-llm":
        options = trtllm_options(s, start.longest_source_tokens, start.shares_prefixes)
        files[TRTLLM_OPTIONS] = options + trtllm_lines(s, model)
    if s.lane.choice.accelerator.cut:
        files["partition.sh"] = partition_script(s.lane.choice.accelerator)
    for served, script_words in pools_of(served_of(name, start, words, files.get(TRTLLM_OPTIONS, "")), s, plain):
        files |= on_one_host(served) if start.hosts == 1 else on_hosts(served, start, script_words)
    found: Launch = {"command": shlex.join(words), "files": files}
    test, beside = load_test(name, start.checkpoint, s, workload, start.longest.tokens)
    return {**found, "files": files | beside, "load_test": test} if test else found


def script(words: list[str], comments: list[str]) -> str:
    return "\n".join(["#!/bin/sh", *(f"# {c}" for c in comments), f"exec {shlex.join(words)}"]) + "\n"


def other_hosts(start: Start, words: list[str]) -> dict[str, str]:
    """Scripts of the hosts of a replica after the first; vLLM's serve no API there."""
    if "--node-rank" not in words:
        return {}
    at = words.index("--node-rank") + 1
    silent = ["--headless"] if start.s.lane.framework.slug == "vllm" else []
    return {
        f"serve-host-{rank + 1}.sh": script(
            [*words[:at], str(rank), *words[at + 1 :], *silent], [f"host {rank + 1} of {start.hosts} of the replica"]
        )
        for rank in range(1, start.hosts)
    }


def served_of(name: str, start: Start, words: list[str], options: str) -> Served:
    """What manifests say of a replica."""
    c, framework = start.s.lane.choice, start.s.lane.framework
    return Served(
        name=name,
        words=tuple(words),
        framework=framework.slug,
        version=framework.version,
        accelerator=c.accelerator,
        chips=c.tp * c.pp * c.dp,
        replicas=start.s.replicas,
        files={TRTLLM_OPTIONS: options} if options else {},
    )


def pools_of(served: Served, s: Scored, plain: list[str]) -> list[tuple[Served, list[str]]]:
    """The deployment, or its two pools with their own words and counts; decode, which answers, comes first."""
    if s.pools is None:
        return [(served, list(served.words))]
    prefill = [*plain, *pool_words(s, "prefill")]
    return [
        (replace(served, pool="decode", replicas=s.pools.decode_replicas), list(served.words)),
        (replace(served, pool="prefill", replicas=s.pools.prefill_replicas, words=tuple(prefill)), prefill),
    ]


def file_of(served: Served, name: str) -> str:
    """The name of a pool's file: those of prefill have it before the ending."""
    stem, _, ending = name.rpartition(".")
    return f"{stem}-prefill.{ending}" if served.pool == "prefill" else name


def on_one_host(served: Served) -> dict[str, str]:
    """A systemd unit; Kubernetes and Compose files where the framework's server and the chip's resource are known."""
    if served.framework in ON_DEVICE:
        return {}
    found = {
        "assay-serve.service": systemd(served),
        "kubernetes.yaml": kubernetes(served),
        "compose.yaml": compose(served),
    }
    return {file_of(served, name): text for name, text in found.items() if text}


def on_hosts(served: Served, start: Start, words: list[str]) -> dict[str, str]:
    """A script for each further host, and a LeaderWorkerSet where it is known how the framework spans them."""
    manifest = leader_workers(served, start.hosts)
    found = other_hosts(start, words) | ({"kubernetes.yaml": manifest} if manifest else {})
    return {file_of(served, name): text for name, text in found.items()}
