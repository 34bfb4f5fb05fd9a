"""Parses quantization_config in a config.json: the stored dtype, its scale groups, the layers left unquantized."""

from collections.abc import Mapping
from dataclasses import dataclass
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


def checkpoint(config: Config) -> Checkpoint | None:
    """The quantization of a config.json; None if it has none. ValueError if the method is unknown."""
    settings = first(config, "quantization_config", "compression_config")
    if not settings:
        return None
    method = str(settings.get("quant_method") or settings.get("quant_library") or "").lower()
    if method not in READERS:
        raise ValueError(f"unknown quant_method {method!r}; known methods: {', '.join(sorted(READERS))}")
    refuse_mixed(settings.get("quantization") or settings)
    return READERS[method](method, settings)


def refuse_mixed(settings: Config) -> None:
    """ValueError if layers are stored in several formats: the catalog has no format for that."""
    algorithm = str(settings.get("quant_algo") or "").upper()
    stored = {str(each.get("quant_algo")) for each in (settings.get("quantized_layers") or {}).values()}
    if len(stored) < 2:
        groups = (settings.get("config_groups") or {}).values()
        stored = {dtype_of(each["weights"]) for each in groups if each.get("weights")}
    if len(stored) < 2:
        stored = widths_of(settings)
    if algorithm == "MIXED_PRECISION" or len(stored) > 1:
        raise ValueError(
            f"quant_algo {algorithm or 'none'!r}: the layers are quantized in several formats "
            f"({', '.join(sorted(stored)) or 'not stated'}), and mixed precision is not supported. Use the "
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
    cache = settings.get("kv_cache_scheme")
    return Checkpoint(
        method=method,
        weights_dtype=dtype_of(weights),
        grouping=group_text(int(weights.get("group_size") or 0)),
        activations_dtype=dtype_of(inputs) if inputs else "",
        kv_dtype=str(cache).lower() if isinstance(cache, str) else dtype_of(cache) if cache else "",
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
    "NVFP4": ("nvfp4", 16, "nvfp4"),
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
    cache = str(nested.get("kv_cache_quant_algo") or "").lower()
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
    **dict.fromkeys(("fp8", "fbgemm_fp8"), fp8),
    "mxfp4": mxfp4,
    "bitsandbytes": bitsandbytes,
    "compressed-tensors": compressed_tensors,
    **dict.fromkeys(("modelopt", "modelopt_fp4"), modelopt),
}


def format_name(stored: Checkpoint) -> str:
    """The catalog's name for this storage format; empty if it has none."""
    if stored.weights_dtype == "fp8":
        return "fp8-block" if stored.grouping else "fp8"
    if stored.method in ("awq", "gptq"):
        return stored.method
    return stored.weights_dtype if stored.weights_dtype in ("nvfp4", "mxfp4", "nf4") else ""
