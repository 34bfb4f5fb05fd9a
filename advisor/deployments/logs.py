"""Start-up logs of vLLM and SGLang: the settings that the server printed, and the memory that it found."""

import re
from collections.abc import Sequence

from advisor.deployments.flags import SGLANG, VLLM, settings_of
from advisor.deployments.manifests import names
from advisor.deployments.records import Record, Seen, Settings

NUMBER = r"([\d,]+(?:\.\d+)?)"
GIB = {
    "GiB": 1.0,
    "GB": 1.0,
    "MiB": 2.0**-10,
    "MB": 2.0**-10,
}  # both servers divide by 2**30 and 2**20, whatever they print
VALUE = (  # bounded, so that no line takes long
    r"(\[[^\]]{0,2000}\]|\{[^}]{0,2000}\}|SpeculativeConfig\([^)]{0,1000}\)|'(?:[^'\\]|\\.){0,1000}'|"
    r"\"(?:[^\"\\]|\\.){0,1000}\"|[^,\s)}\]]{1,1000})"
)
BETWEEN = r"[^\n]{0,300}?"
VLLM_LINES = re.compile(
    r"non-default args:|Initializing an? (?:V1 )?LLM engine|vLLM API server version|GPU KV cache size:|# GPU blocks:|"
    r"\] args: Namespace\(|Loading model weights took|Model loading took|Avg prompt throughput:"
)
SGLANG_LINES = re.compile(
    r"server_args=ServerArgs\(|max_total_num_tokens=|KV Cache is allocated|Load weight end|(?:Decode|Prefill) batch[.,]"
)
MOST_PERIODS = 20_000
STATES = ("#running-req", "gen throughput (token/s)", "#queue-req", "token usage")
STATE = re.compile(r"(#running-req|gen throughput \(token/s\)|#queue-req|token usage): ([\d.]{0,20}\d)")


def is_log(text: str) -> bool:
    return bool(VLLM_LINES.search(text) or SGLANG_LINES.search(text))


def read_log(text: str, source: str) -> list[Record]:
    """What the log of one server says; of several starts, the last."""
    ours = VLLM_LINES.search(text)
    other = SGLANG_LINES.search(text)
    settings, seen = (
        _sglang(text) if other and (not ours or "server_args=ServerArgs(" in text) else _vllm(_last_start(text))
    )
    return [Record(kind="log", source=source, settings=settings, seen=seen, names=names(settings))]


def _last_start(text: str) -> str:
    """From the last start on that came as far as the engine."""
    starts = [m.start() for m in re.finditer(r"vLLM API server version", text)][-100:]
    parts = (text[at:] for at in reversed(starts))
    return next((part for part in parts if "LLM engine" in part or "GPU KV cache size" in part), text)


def _arguments(text: str, keyed: str) -> dict[str, str]:
    """name=value, or 'name': value, as Python prints them."""
    pattern = rf"\b(\w+)={VALUE}" if keyed == "=" else rf"'(\w+)': {VALUE}"
    found: dict[str, str] = {}
    for match in re.finditer(pattern, text[:100_000]):
        value = match[2]
        if value.startswith("["):
            inner = re.search(r"'([^']*)'|\"([^\"]*)\"", value)
            value = (inner[1] or inner[2] or "") if inner else ""
        found.setdefault(match[1], value.strip("'\"").removeprefix("torch."))
    return found


def _last(pattern: str, text: str) -> str | None:
    """The first group where the pattern is last: the server may have been restarted."""
    found = None
    for found in re.finditer(pattern, text):  # noqa: B007
        continue
    return found[1] if found else None


def _number(pattern: str, text: str) -> float | None:
    try:
        return float((_last(pattern, text) or "").replace(",", ""))
    except ValueError:
        return None


def _gib(pattern: str, text: str) -> float | None:
    """The largest of an amount with its unit: each rank prints its own."""
    found = []
    for match in re.finditer(rf"{pattern}\s*{NUMBER}\s*(GiB|GB|MiB|MB)", text):
        try:
            found.append(float(match[1].replace(",", "")) * GIB[match[2]])
        except ValueError:
            continue
    return max(found, default=None)


def _mean(each: Sequence[float], engines: int = 1) -> float | None:
    """The mean of one engine's lines, times the engines that write them."""
    return engines * sum(each) / len(each) if each else None


def _vllm(text: str) -> tuple[Settings, Seen]:
    given: dict[str, str] = {}
    if match := re.search(r"with config: (.{0,50000})", text):
        whole = _arguments(match[1], "=")
        # what the engine resolved; the model's own dtype and length are no options
        keys = ("model", "served_model_name", "max_seq_len", "tensor_parallel_size", "pipeline_parallel_size", "dtype",
                "data_parallel_size", "quantization", "kv_cache_dtype", "enforce_eager", "enable_prefix_caching",
                "speculative_config")  # fmt: skip
        given = {key: whole[key] for key in keys if whole.get(key) not in (None, "None")}
    if match := re.search(r"non-default args: (\{.{0,50000})", text):
        given |= {k: v for k, v in _arguments(match[1], ":").items() if k in VLLM}
    elif match := re.search(r"args: Namespace\((.{0,50000})", text):
        stated = {k: v for k, v in _arguments(match[1], "=").items() if k in VLLM and v not in ("None", "False")}
        given = {**stated, **given}
    if budget := re.search(r"max_num_batched_tokens=(\d+)", text):
        given.setdefault("max_num_batched_tokens", budget[1])
    if fraction := re.search(r"The current --gpu-memory-utilization=([\d.]{1,9}\d)", text):
        given.setdefault("gpu_memory_utilization", fraction[1].rstrip("0"))
    version = re.search(r"(?:vLLM API server version|LLM engine \(v?|█ +version)\s*v?(\d+\.\d+[\w.+]*)", text)
    settings, _ = settings_of(given, VLLM, "vllm", version[1].rstrip(".") if version else None)
    blocks = _number(r"# (?:GPU|CUDA) blocks: (\d+)", text)
    tokens = [float(m.replace(",", "")) for m in re.findall(r"GPU KV cache size: ([\d,]*\d)", text)]
    ranks = len(set(re.findall(r"^\(?EngineCore_DP(\d+)\b[^\n]{0,200}GPU KV cache size", text, re.MULTILINE))) or 1
    capacity = sum(tokens[-ranks:]) if tokens else blocks * 16 if blocks else None
    prompt, made, running, waiting, usage = kept = [list[float]() for _ in range(5)]
    period = re.compile(
        rf"Avg prompt throughput: {NUMBER} tokens/s, Avg generation throughput: {NUMBER} tokens/s, "
        rf"Running: (\d+) reqs,(?: Swapped: \d+ reqs,)? (?:Waiting|Pending): (\d+) reqs, GPU KV cache usage: {NUMBER}%"
    )
    for match in list(period.finditer(text))[-MOST_PERIODS:]:
        values = [float(v.replace(",", "")) for v in match.groups()]
        if values[0] + values[1] + values[2] > 0:  # idle times say nothing about the load
            for each, value in zip(kept, values, strict=True):
                each.append(value)
    engines = len(set(re.findall(r"Engine (\d{3}): Avg", text))) or 1
    hits = _number(rf"[Pp]refix cache hit rate:(?: GPU:)? {NUMBER}%", text)
    seen = Seen(
        kv_capacity_tokens=capacity,
        weights_gib=_gib(r"(?:Model loading|Loading model weights|model weights) (?:took|take)", text),
        kv_gib=_gib(r"(?:Available KV cache memory:|reserved for KV Cache is)", text),
        graphs_gib=_gib(r"Graph capturing finished in [\d.]+ secs?, took", text),
        load_s=_number(rf"(?:Model loading took [\d.]+ G\w+(?: memory)? and|Loading weights took) {NUMBER} s", text),
        start_s=_number(rf"init engine \([^)\n]{{0,200}}\) took {NUMBER} s", text),
        running=_mean(running, engines),
        waiting=_mean(waiting, engines),
        kv_used_fraction=u / 100 if (u := _mean(usage)) is not None else None,
        input_tokens_per_s=_mean(prompt, engines),
        output_tokens_per_s=_mean(made, engines),
        prefix_hit_fraction=hits / 100 if hits is not None else None,
    )
    return settings, seen


def _sglang(text: str) -> tuple[Settings, Seen]:
    given: dict[str, str] = {}
    if started := _last(r"server_args=ServerArgs\((.{0,50000})", text):
        given = {k: v for k, v in _arguments(started, "=").items() if k in SGLANG and v not in ("None", "null")}
    for key, name in (("max_running_requests", "max_running_requests"), ("context_len", "context_length")):
        if (found := _number(rf"\b{key}=(\d+)", text)) is not None:
            given[name] = f"{found:.0f}"
    version = re.search(r"sglang(?:==| version:? | v)v?(\d+\.\d+[\w.]*)", text, re.IGNORECASE)
    settings, _ = settings_of(given, SGLANG, "sglang", version[1] if version else None)
    tokens = _number(r"max_total_num_tokens=(\d+)", text) or _number(
        rf"KV Cache is allocated{BETWEEN}#tokens: (\d+)", text
    )
    running, made, waiting, usage = kept = [list[float]() for _ in range(4)]
    for line in re.findall(r"Decode batch[.,].*", text)[-MOST_PERIODS:]:
        fields = {name: float(value) for name, value in STATE.findall(line) if value.count(".") < 2}
        for each, name in zip(kept, STATES, strict=True):
            if name in fields:
                each.append(fields[name])
    keys = _gib(r"K size:", text), _gib(r"V size:", text)
    dp = 1 if settings.dp_attention else settings.dp or 1
    seen = Seen(
        kv_capacity_tokens=tokens * dp if tokens else None,
        weights_gib=_gib(rf"Load weight end\.{BETWEEN}mem usage=", text),
        kv_gib=sum(k for k in keys if k) or _gib(r"KV size:", text),
        graphs_gib=_gib(rf"Capture cuda graph end\.{BETWEEN}mem usage=", text),
        start_s=_number(rf"Capture cuda graph end\. Time elapsed: {NUMBER} s", text),
        running=_mean(running),
        waiting=_mean(waiting),
        kv_used_fraction=_mean(usage),
        output_tokens_per_s=_mean(made),
    )
    return settings, seen
