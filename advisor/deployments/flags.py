"""The command of an inference server: which of its options say what. Nothing is ever run."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from advisor.answer import known_options
from advisor.deployments.records import Settings
from catalog.loading.bounded import BoundedError, Bounds, read_json

# option without dashes, with _ for - -> setting; also the keys of the servers' logs and of SGLang's results
VLLM = {
    "model": "model", "model_tag": "model", "served_model_name": "served_name", "tensor_parallel_size": "tp",
    "tp": "tp",
    "pipeline_parallel_size": "pp", "pp": "pp", "data_parallel_size": "dp", "dp": "dp",
    "enable_expert_parallel": "expert_parallel", "ep": "expert_parallel", "quantization": "quantization",
    "q": "quantization", "dtype": "dtype",
    "kv_cache_dtype": "kv_dtype", "max_model_len": "max_model_len", "max_seq_len": "max_model_len",
    "max_num_seqs": "max_num_seqs", "max_num_batched_tokens": "max_batched_tokens",
    "gpu_memory_utilization": "memory_fraction", "enable_prefix_caching": "prefix_caching",
    "enforce_eager": "enforce_eager", "speculative_config": "speculative", "sc": "speculative",
    "max_loras": "max_loras",
}  # fmt: skip
SGLANG = {
    "model_path": "model", "model": "model", "served_model_name": "served_name", "tensor_parallel_size": "tp",
    "tp_size": "tp", "tp": "tp", "pipeline_parallel_size": "pp", "pp_size": "pp", "pp": "pp",
    "data_parallel_size": "dp", "dp_size": "dp", "dp": "dp", "enable_dp_attention": "dp_attention",
    "expert_parallel_size": "ep", "ep_size": "ep", "ep": "ep", "quantization": "quantization", "dtype": "dtype",
    "kv_cache_dtype": "kv_dtype", "context_length": "max_model_len", "max_running_requests": "max_num_seqs",
    "chunked_prefill_size": "max_batched_tokens", "mem_fraction_static": "memory_fraction",
    "disable_radix_cache": "no_prefix_caching", "disable_cuda_graph": "enforce_eager",
    "speculative_algorithm": "method", "speculative_num_steps": "k", "speculative_draft_model_path": "draft",
    "disaggregation_mode": "prefill_or_decode",
}  # fmt: skip
TENSORRT = {
    "tp_size": "tp", "pp_size": "pp", "ep_size": "ep", "max_batch_size": "max_num_seqs",
    "max_num_tokens": "max_batched_tokens", "max_seq_len": "max_model_len", "model": "model",
    "kv_cache_free_gpu_memory_fraction": "memory_fraction", "free_gpu_memory_fraction": "memory_fraction",
}  # fmt: skip
TGI = {
    "model_id": "model", "num_shard": "tp", "quantize": "quantization", "dtype": "dtype",
    "kv_cache_dtype": "kv_dtype", "max_total_tokens": "max_model_len", "max_concurrent_requests": "max_num_seqs",
    "max_batch_prefill_tokens": "max_batched_tokens", "cuda_memory_fraction": "memory_fraction",
}  # fmt: skip
LMDEPLOY = {
    "model_path": "model", "tp": "tp", "dp": "dp", "ep": "ep", "model_name": "served_name",
    "session_len": "max_model_len", "max_batch_size": "max_num_seqs", "max_prefill_token_num": "max_batched_tokens",
    "cache_max_entry_count": "memory_fraction", "enable_prefix_caching": "prefix_caching", "dtype": "dtype",
}  # fmt: skip
KSERVE = {"model_id": "model", "model_name": "served_name", "model_dir": "model"}  # of its Hugging Face runtime
OPTIONS = {"vllm": VLLM, "sglang": SGLANG, "tensorrt-llm": TENSORRT, "tgi": TGI, "lmdeploy": LMDEPLOY}
SERVERS = (  # how a command starts a server: (pattern of the words, framework, whether the model follows)
    (r"(?:\S*/)?vllm serve(?= |$)", "vllm", True),
    (r"-m vllm\.entrypoints\.(?:openai\.)?(?:api_server|cli\.main serve)(?= |$)", "vllm", False),
    (r"-m (?:dynamo\.vllm|vllm_omni\S*)(?= |$)", "vllm", False),
    (r"-m (?:sglang\.launch_server|dynamo\.sglang|sglang_router\.launch_server)(?= |$)", "sglang", False),
    (r"(?:\S*/)?sglang serve(?= |$)", "sglang", True),
    (r"(?:\S*/)?trtllm-serve(?: serve)?(?= |$)", "tensorrt-llm", True),
    (r"(?:\S*/)?text-generation-launcher(?= |$)", "tgi", False),
    (r"(?:\S*/)?lmdeploy serve api_server(?= |$)", "lmdeploy", True),
    (r"-m huggingfaceserver(?= |$)", "vllm", False),
)
IMAGES = (
    ("sglang", "sglang"), ("text-generation-inference", "tgi"), ("tensorrt-llm", "tensorrt-llm"),
    ("trtllm", "tensorrt-llm"),
    ("lmdeploy", "lmdeploy"), ("huggingfaceserver", "vllm"), ("vllm", "vllm"), ("llm-d", "vllm"),
)  # fmt: skip
VALUE_OPTIONAL = {  # settings that need no value
    "expert_parallel", "prefix_caching", "no_prefix_caching", "enforce_eager", "dp_attention",
}  # fmt: skip
WHOLE = {"accelerators", "replicas", "tp", "pp", "dp", "ep", "max_model_len", "max_num_seqs", "max_batched_tokens",
         "max_loras", "k"}  # fmt: skip
MULTIPLES = {"k": 1e3, "m": 1e6, "g": 1e9, "K": 1024, "M": 2**20, "G": 2**30}
# tags of other images count releases of their distribution (Dynamo, OpenShift AI, llm-d), not of the server
VERSION = re.compile(
    r"(?:(?:^|/)(?:vllm|vllm-openai[\w-]*|sglang|text-generation-inference|lmdeploy|tensorrt-llm/release):|"
    r"(?:vllm|sglang|vllm-openai)[-_])v?(\d+\.\d+(?:\.\d+)?(?:\.?(?:post|rc)\d+)?)"
)
MOST_WORDS = 2000
INTERPRETER = re.compile(r"^\S*(?:python[\d.]*|sh|bash|env)(?: |$)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Command:
    """A server's command: its settings, and the options that its framework's lists do not have."""

    settings: Settings
    unknown: tuple[str, ...] = ()


def framework_of_image(image: str) -> tuple[str | None, str | None]:
    """(framework, version) of a container image, by its name and tag."""
    helper = re.search(r"scheduler|epp|rout(?:er|ing)|sidecar|gateway|proxy|exporter", image.lower())
    found = None if helper else next((slug for word, slug in IMAGES if word in image.lower()), None)
    match = VERSION.search(image) if found and "lmcache" not in image else None
    dated = match and re.match(r"2\d\.", match[1])  # 25.09: a month of NVIDIA's images
    return found, match[1] if match and not dated else None


def command_of(words: Sequence[str], image: str = "", variables: Mapping[str, str] | None = None) -> Command | None:
    """The server that a command starts; None: it starts none.

    image: of its container, whose entrypoint may be the server. variables: what $NAME stands for.
    """
    text, placed = "", []
    for word in words[:MOST_WORDS]:
        placed.append(len(text))
        text += f"{word} " if " " not in word else f"{word.replace(' ', '_')} "
    framework, version = framework_of_image(image)
    start, named = 0, False
    for pattern, slug, positional in SERVERS:
        if match := re.search(rf"(?:^|(?<= )){pattern}", text):
            framework, named = slug, positional
            start = next((i for i, at in enumerate(placed) if at >= match.end()), len(placed))
            break
    else:
        if framework is None:
            return None
        start, named = (1 if list(words[:1]) == ["serve"] else 0), framework == "vllm" and not INTERPRETER.search(text)
    given, alone = _options([expanded(word, variables or {}) for word in words[start:MOST_WORDS]], framework, named)
    keys = OPTIONS[framework] | ({} if framework != "vllm" else {k: v for k, v in KSERVE.items() if k != "model"})
    settings, unknown = settings_of(given, keys, framework, version)
    if alone and not settings.model:
        settings = Settings(model=alone).over(settings)
    return Command(settings=settings, unknown=tuple(unknown))


def _options(words: Sequence[str], framework: str, named: bool) -> tuple[dict[str, Any], str]:
    """(values by option, the model where it stands alone). A shell's next command ends the options."""
    keys, given, alone = OPTIONS[framework], dict[str, Any](), ""
    i = 0
    while i < len(words):
        word = words[i]
        i += 1
        if word in ("&&", "||", ";", "|", "&", ">", ">>", "2>&1") or word.startswith((">", "2>", "&>")):
            break
        if not re.match(r"--?[A-Za-z]", word):
            alone = alone or (word if named and not given else "")
            continue
        name, equals, value = word.lstrip("-").partition("=")
        name = name.replace("-", "_")
        if not equals:
            following = words[i : i + 1]
            takes = bool(following) and not re.match(r"--?[A-Za-z]", following[0])
            if takes and (keys.get(name) not in VALUE_OPTIONAL or following[0].lower() in ("true", "false")):
                value, i = following[0], i + 1
        if name == "served_model_name":  # takes several
            while i < len(words) and re.match(r"[\w./]", words[i]):
                i += 1
        given[name] = value if value or equals else True
    return given, alone


def expanded(word: str, variables: Mapping[str, str]) -> str:
    """$NAME, ${NAME}, ${NAME:-default}, ${1:-default} and Kubernetes' $(NAME) as far as they are known."""

    def value(match: re.Match[str]) -> str:
        name = match["a"] or match["b"] or match["c"] or ""
        return variables.get(name, match["default"] if match["default"] is not None else match[0])

    return re.sub(r"\$(?:\{(?P<a>\w+)(?::?-(?P<default>[^}]*))?\}|\((?P<b>\w+)\)|(?P<c>[A-Za-z_]\w*))", value, word)


def settings_of(
    given: Mapping[str, Any], keys: Mapping[str, str], framework: str | None, version: str | None = None
) -> tuple[Settings, list[str]]:
    """(settings, unknown options) of options or of a log's arguments. Values that are none are left out."""
    found: dict[str, Any] = {"framework": framework, "version": version}
    unknown = []
    names = known_options(framework or "")
    for name, value in given.items():
        setting = keys.get(name) or next(
            (keys[each] for each in sorted(keys) if len(name) > 5 and each.startswith(name)), None
        )  # argparse takes the beginning of a name
        negated = name.removeprefix("no_")
        if setting is None and negated != name and keys.get(negated) in VALUE_OPTIONAL:
            found[keys[negated]] = False
        elif setting is None:
            if names and name not in names and negated not in names and "." not in name:
                unknown.append(f"--{name.replace('_', '-')}")
        elif (read := _value(setting, value)) is not None:
            found[setting] = read
    drafts = {key: found.pop(key) for key in ("method", "k", "draft") if key in found}
    if drafts.get("method"):
        found["speculative"] = drafts
    if found.pop("no_prefix_caching", False):
        found["prefix_caching"] = False
    return Settings(**found), unknown


def _value(setting: str, value: Any) -> Any:
    """A value as its setting needs it; None: it is none, or not a known form."""
    if setting in VALUE_OPTIONAL:
        return str(value).lower() not in ("false", "0", "no", "none", "")
    if setting == "speculative":
        return speculation(value)
    if value is None or value is True or str(value).strip() in ("", "None", "null", "auto", "-1"):
        return None
    if setting in WHOLE:
        match = re.fullmatch(r"(\d{1,12}(?:\.\d{1,9})?)([kmgKMG]?)", str(value).strip().strip("'\""))
        whole = round(float(match[1]) * MULTIPLES.get(match[2], 1)) if match else 0
        return whole or None
    if setting == "memory_fraction":
        number = re.fullmatch(r"0?\.\d{1,9}|[01](?:\.\d{1,9})?", str(value).strip())
        return float(number[0]) if number else None
    if isinstance(value, list):
        value = value[0] if value else ""
    return "".join(c for c in str(value).strip().strip("'\"") if c.isprintable())[:300] or None


def speculation(value: Any) -> dict[str, Any] | None:
    """{method, k, draft} of vLLM's --speculative-config, as JSON or as Python writes it in a log."""
    if isinstance(value, str):
        try:
            value = read_json(value.replace("'", '"'), Bounds(max_bytes=5000))
        except BoundedError:
            keys = (("method", "method"), ("k", "num_spec_tokens"), ("k", "num_speculative_tokens"), ("draft", "model"))
            printed = {k: re.search(rf"\b{key}=['\"]?([^'\",)]+)", value) for k, key in keys}
            found = {k: match[1] for k, match in printed.items() if match and match[1] != "None"}
            return {**found, "k": int(found["k"])} if str(found.get("k", "")).isdecimal() else None
    if not isinstance(value, Mapping):
        return None
    k = value.get("num_speculative_tokens")
    k = int(str(k)) if str(k).isdecimal() and len(str(k)) < 3 else None
    found = {
        "method": value.get("method") or ("draft_model" if value.get("model") else None),
        "draft": value.get("model"),
    }
    found["k"] = k
    return {key: each for key, each in found.items() if isinstance(each, str | int)} or None


def words_of(text: str) -> list[str]:
    """A shell line as words; text that a shell would refuse is split at its spaces."""
    try:
        return shlex.split(text, comments=True)
    except ValueError:
        return text.split()
