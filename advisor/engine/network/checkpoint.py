"""Parses quantization_config in a config.json: the stored dtype, its scale groups, the layers left unquantized."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from advisor.engine.network.config_keys import first

Config = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint:
    """How the weights of a quantized checkpoint are stored."""

    method: str  # quant_method in config.json: gptq, awq, fp8, compressed-tensors ...
    weights_dtype: str  # fp8 | int8 | int4 | nvfp4 | mxfp4 ...
    grouping: str = ""  # weights that share a scale; empty: per channel or per tensor
    activations_dtype: str = ""  # empty: not quantized
    kv_dtype: str = ""  # empty: not stated
    unquantized_layers: tuple[str, ...] = ()  # stay in 16 bits
    listed: tuple[tuple[str, str], ...] = ()  # (dtype, modules) that are stored in another format than weights_dtype
    only_listed: bool = False  # modules that no list names stay in 16 bits
    experts_dtype: str = ""  # of the routed experts, if stated apart


def checkpoint(config: Config, experts_dtype: str = "") -> Checkpoint | None:
    """The quantization of a config.json; None if it has none. ValueError if the method is unknown.

    experts_dtype: what config.json states outside of it for the routed experts.
    """
    settings = first(config, "quantization_config", "compression_config")
    if not settings:
        return None
    method = method_of(settings)
    if method not in READERS:
        raise ValueError(f"unknown quant_method {method!r}; known methods: {', '.join(sorted(READERS))}")
    nested = settings.get("quantization") or settings
    refuse_mixed(nested)
    found = mixed(method, nested) if listed_formats(nested) else READERS[method](method, settings)
    experts_dtype = str(first(settings, "expert_dtype") or experts_dtype)
    if experts_dtype and not found.experts_dtype:
        return replace(found, experts_dtype=experts_format(experts_dtype))
    return found


def method_of(settings: Config) -> str:
    """quant_method; ModelOpt's files may only name their producer or their algorithm."""
    stated = str(settings.get("quant_method") or settings.get("quant_library") or "").lower()
    producer = str((settings.get("producer") or {}).get("name") or "").lower()
    return stated or (producer or ("modelopt" if settings.get("quant_algo") or settings.get("quantization") else ""))


def experts_format(stated: str) -> str:
    """The format of experts that expert_dtype names: DeepSeek's FP4 has a power of two for each 32 weights (MXFP4)."""
    if stated not in EXPERTS:
        raise ValueError(f"expert_dtype {stated!r} is not known; known are {', '.join(sorted(EXPERTS))}")
    return EXPERTS[stated]


EXPERTS = {"fp4": "mxfp4", "mxfp4": "mxfp4", "fp8": "fp8", "bf16": "bf16", "bfloat16": "bf16", "nvfp4": "nvfp4"}


def listed_formats(settings: Config) -> list[tuple[str, str]]:
    """(dtype, module) of every module whose format is stated by name; empty if all have one format."""
    layers = settings.get("quantized_layers") or {}
    named = [(algorithm_dtype(str(each.get("quant_algo"))), str(name)) for name, each in layers.items()]
    if not named:
        groups = [each for each in (settings.get("config_groups") or {}).values() if each.get("weights")]
        named = [(dtype_of(each["weights"]), str(name)) for each in groups for name in each.get("targets") or ()]
        if len({dtype_of(each["weights"]) for each in groups}) < 2:
            return []
    return named


def algorithm_dtype(algorithm: str) -> str:
    """The format of the weights of a ModelOpt algorithm. ValueError: it is not known."""
    name = algorithm.upper()
    found = next((dtype for part, dtype in ALGORITHM_PARTS if part in name), "")
    if not found:
        raise ValueError(f"unknown quant_algo {algorithm!r}")
    return found


ALGORITHM_PARTS = (
    ("NVFP4", "nvfp4"), ("MXFP4", "mxfp4"), ("MXFP8", "mxfp8"), ("W4A", "int4"), ("INT4", "int4"), ("W8A", "int8"),
    ("FP8", "fp8"),
)  # fmt: skip


def mixed(method: str, settings: Config) -> Checkpoint:
    """Modules in several formats, each stated by name; the others are FP8 if the checkpoint says so, else 16 bits."""
    named = listed_formats(settings)
    experts_only = [dtype for dtype, name in named if "experts" in name and "shared" not in name]
    everything = next((dtype for dtype, name in named if name == EVERY_MODULE), "")
    base = bool(everything) or method in ("fp8", "deepseek_v4_fp8")
    counts = Counter(dtype for dtype, _ in named)
    cache = settings.get("kv_cache_scheme") or settings.get("kv_cache_quant_algo")
    return Checkpoint(
        method=method,
        weights_dtype=everything or ("fp8" if base else counts.most_common(1)[0][0]),
        grouping="blocks" if base and settings.get("weight_block_size") else "",
        kv_dtype=cache_dtype(cache),
        unquantized_layers=unquantized_layers(settings) if everything or not base else (),
        listed=tuple(named),
        only_listed=not base,
        experts_dtype=Counter(experts_only).most_common(1)[0][0] if experts_only else "",
    )


EVERY_MODULE = "Linear"  # a target of compressed-tensors: all matrices that no other group names


def cache_dtype(stated: Any) -> str:
    """The format of the KV cache that a checkpoint states: a name, or a scheme; empty if it states none."""
    if isinstance(stated, Mapping):
        return dtype_of(stated)
    return str(stated or "").lower()


def refuse_mixed(settings: Config) -> None:
    """ValueError if layers are stored in several formats and it is not stated which layer has which."""
    algorithm = str(settings.get("quant_algo") or "").upper()
    groups = [each for each in (settings.get("config_groups") or {}).values() if each.get("weights")]
    stored = widths_of(settings) or {dtype_of(each["weights"]) for each in groups if not listed_formats(settings)}
    if algorithm == "MIXED_PRECISION" and not listed_formats(settings) or len(stored) > 1:
        raise ValueError(
            f"quant_algo {algorithm or 'none'!r}: the layers are quantized in several formats "
            f"({', '.join(sorted(stored)) or 'not stated'}), and the file does not state the format of each. Use the "
            "config.json of the unquantized model, or of a conversion in one format"
        )


def widths_of(settings: Config) -> set[str]:
    """The widths of quantized integer weights: the usual one, and those of single modules (GPTQModel, AutoRound)."""
    own = [each for name in ("dynamic", "extra_config") for each in (settings.get(name) or {}).values()]
    given = [settings.get("bits"), *(each.get("bits") for each in own if isinstance(each, Mapping))]
    return {f"int{bits}" for bits in given if bits is not None and int(bits) < 16}


def unquantized_layers(settings: Config) -> tuple[str, ...]:
    """Layers that stay in 16 bits, under any of the keys in use."""
    keys = (
        "ignore",
        "modules_to_not_convert",
        "ignored_layers",
        "exclude_modules",
        "llm_int8_skip_modules",
        "exclude",
    )
    layers = next((settings[key] for key in keys if settings.get(key)), ())
    return tuple(map(str, layers))


def group_text(size: int) -> str:
    """Description of the scale groups; empty if there are none."""
    return f"groups of {size}" if size > 0 else ""


def integer(method: str, settings: Config) -> Checkpoint:
    """GPTQ, AWQ, AutoRound, HQQ ...: integer weights with a scale per group, multiplied in 16 bits."""
    size = int(settings.get("group_size") or 0)
    stated = first(settings, "bits", "w_bit")
    if stated is None:
        raise ValueError(f"quantization_config of {method} lacks bits, the width of a weight")
    bits = int(stated)
    return Checkpoint(
        method=method,
        weights_dtype=f"int{bits}",
        grouping=group_text(size),
        unquantized_layers=unquantized_layers(settings),
    )


def fp8(method: str, settings: Config) -> Checkpoint:
    """FP8 with 128 x 128 block scales (DeepSeek) or one scale per tensor."""
    block = settings.get("weight_block_size")
    return Checkpoint(
        method=method,
        weights_dtype="fp8",
        grouping="blocks of " + " x ".join(map(str, block)) if block else "",
        activations_dtype="fp8",
        unquantized_layers=unquantized_layers(settings),
    )


def mxfp4(method: str, settings: Config) -> Checkpoint:
    """MXFP4 blocks of 32 with a shared exponent; gpt-oss uses it for experts only."""
    return Checkpoint(
        method=method, weights_dtype="mxfp4", grouping=group_text(32), unquantized_layers=unquantized_layers(settings)
    )


def bitsandbytes(method: str, settings: Config) -> Checkpoint:
    """LLM.int8 (arXiv 2208.07339), or 4 bits in groups of 64 (QLoRA, arXiv 2305.14314)."""
    if settings.get("load_in_8bit") or settings.get("_load_in_8bit"):
        return Checkpoint(
            method=method,
            weights_dtype="int8",
            activations_dtype="int8",
            unquantized_layers=unquantized_layers(settings),
        )
    if not first(settings, "load_in_4bit", "_load_in_4bit", "bnb_4bit_quant_type"):
        raise ValueError("quantization_config of bitsandbytes sets neither load_in_8bit nor load_in_4bit")
    kind = "nf4" if settings.get("bnb_4bit_quant_type") == "nf4" else "fp4"
    return Checkpoint(
        method=method, weights_dtype=kind, grouping=group_text(64), unquantized_layers=unquantized_layers(settings)
    )


def compressed_tensors(method: str, settings: Config) -> Checkpoint:
    """compressed-tensors: each group of layers has a scheme, and all have one format (refuse_mixed)."""
    schemes = [each for each in (settings.get("config_groups") or {}).values() if each.get("weights")]
    if not schemes:
        raise ValueError(f"quantization_config of {method} lacks config_groups with weights, the format of the weights")
    weights, inputs = schemes[0]["weights"], schemes[0].get("input_activations")
    return Checkpoint(
        method=method,
        weights_dtype=dtype_of(weights),
        grouping=group_text(int(weights.get("group_size") or 0)),
        activations_dtype=dtype_of(inputs) if inputs else "",
        kv_dtype=cache_dtype(settings.get("kv_cache_scheme")),
        unquantized_layers=unquantized_layers(settings),
    )


def dtype_of(scheme: Config) -> str:
    """dtype of one scheme: INT4, FP8, NVFP4 (groups of 16), MXFP4 (groups of 32) ..."""
    bits, size = int(scheme.get("num_bits") or 16), int(scheme.get("group_size") or 0)
    if str(scheme.get("type", "int")) == "int":
        return f"int{bits}"
    return {(4, 16): "nvfp4", (4, 32): "mxfp4"}.get((bits, size), f"fp{bits}")


ALGORITHMS = {
    "FP8": ("fp8", 0, "fp8"),
    "FP8_BLOCK_SCALES": ("fp8", 128, "fp8"),
    "FP8_PB_WO": ("fp8", 128, ""),
    "FP8_PER_CHANNEL_PER_TOKEN": ("fp8", 0, "fp8"),
    "NVFP4": ("nvfp4", 16, "nvfp4"),
    "NVFP4_AWQ": ("nvfp4", 16, "nvfp4"),
    "W4A16_NVFP4": ("nvfp4", 16, ""),
    "W4A8_NVFP4_FP8": ("nvfp4", 16, "fp8"),
    "MXFP4": ("mxfp4", 32, ""),
    "W4A8_MXFP4_FP8": ("mxfp4", 32, "fp8"),
    "MXFP8": ("mxfp8", 32, "mxfp8"),
    "W4A16_AWQ": ("int4", 128, ""),
    "W4A8_AWQ": ("int4", 128, "fp8"),
    "W8A8_SQ_PER_CHANNEL": ("int8", 0, "int8"),
    "W8A16": ("int8", 0, ""),
}


def modelopt(method: str, settings: Config) -> Checkpoint:
    """NVIDIA ModelOpt: quant_algo, or config_groups like compressed-tensors."""
    nested = settings.get("quantization") or settings
    algorithm = str(nested.get("quant_algo") or "").upper()
    if not algorithm and settings.get("config_groups"):
        return compressed_tensors(method, settings)
    if algorithm not in ALGORITHMS:
        raise ValueError(f"unknown quant_algo {algorithm!r}; known algorithms: {', '.join(sorted(ALGORITHMS))}")
    weights, size, activations = ALGORITHMS[algorithm]
    for group in (nested.get("config_groups") or {}).values():
        if group.get("weights") and dtype_of(group["weights"]) != weights:
            raise ValueError(
                f"quant_algo {algorithm!r} means {weights}, but config_groups says {dtype_of(group['weights'])}"
            )
    cache = cache_dtype(nested.get("kv_cache_quant_algo") or nested.get("kv_cache_scheme"))
    return Checkpoint(
        method=method,
        weights_dtype=weights,
        grouping=group_text(int(nested.get("group_size") or size)),
        activations_dtype=activations,
        kv_dtype=cache,
        unquantized_layers=unquantized_layers(nested),
    )


READERS = {
    **dict.fromkeys(("gptq", "awq", "auto-round", "autoround", "intel/auto-round", "hqq"), integer),
    **dict.fromkeys(("fp8", "fbgemm_fp8", "deepseek_v4_fp8"), fp8),
    "mxfp4": mxfp4,
    "bitsandbytes": bitsandbytes,
    "compressed-tensors": compressed_tensors,
    **dict.fromkeys(("modelopt", "modelopt_fp4"), modelopt),
}


GGUF = re.compile(r"(?<![A-Za-z0-9])(?:UD-)?(Q[4568]_(?:K_[SML]|K|[01]))(?![A-Za-z0-9_])", re.IGNORECASE)
GGUF_FORMATS = {
    "q4-0": "gguf-q4-0",
    "q4-k": "gguf-q4-k-m",
    "q5-k": "gguf-q5-k-m",
    "q6-k": "gguf-q6-k",
    "q8-0": "gguf-q8-0",
}


def gguf_format(name: str) -> str:
    """The catalog's format of a GGUF file by its name, such as gguf-q4-k-m of X-Q4_K_M.gguf; empty if it has none."""
    found = GGUF.search(name)
    kind = found[1].lower().replace("_", "-") if found else ""
    return next((slug for start, slug in GGUF_FORMATS.items() if kind.startswith(start)), "")


def format_name(stored: Checkpoint) -> str:
    """The catalog's name for this storage format; empty if it has none."""
    return dtype_name(stored, stored.experts_dtype or stored.weights_dtype)


def dtype_name(stored: Checkpoint, dtype: str) -> str:
    """The catalog's name for a format of this checkpoint; empty if it has none."""
    if dtype == "fp8":
        return "fp8-block" if stored.grouping else "fp8"
    if stored.method in ("awq", "gptq"):
        return stored.method
    return dtype if dtype in ("nvfp4", "mxfp4", "mxfp8", "nf4") else ""
