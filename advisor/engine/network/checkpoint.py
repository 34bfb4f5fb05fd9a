"""What the quantization_config of a config.json says: the stored dtype, its bits, what is left in 16 bits."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Config = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint:
    """How the weights of a quantized checkpoint are stored."""

    method: str  # as config.json names it: gptq, awq, fp8, compressed-tensors ...
    weights_dtype: str  # fp8 | int8 | int4 | nvfp4 | mxfp4 ...
    grouping: str = ""  # which weights share a scale (empty: a channel or a tensor)
    activations_dtype: str = ""  # empty: not quantized
    kv_dtype: str = ""  # empty: not said
    left_out: tuple[str, ...] = ()  # layers that stay in 16 bits


def checkpoint(config: Config) -> Checkpoint | None:
    """The quantization of a config.json; None where there is none. ValueError names a method that is not known."""
    given = config.get("quantization_config")
    if not given:
        return None
    method = str(given.get("quant_method") or given.get("quant_library") or "").lower()
    if method not in READERS:
        raise ValueError(f"quant_method {method!r} is not known; known are {', '.join(sorted(READERS))}")
    return READERS[method](method, given)


def skipped(given: Config) -> tuple[str, ...]:
    """Layers that were left as they were, under any of the usual names."""
    names = (
        "ignore",
        "modules_to_not_convert",
        "ignored_layers",
        "exclude_modules",
        "llm_int8_skip_modules",
        "exclude",
    )
    found = next((given[name] for name in names if given.get(name)), ())
    return tuple(map(str, found))


def groups_of(size: int) -> str:
    """In words; empty where no group is said."""
    return f"groups of {size}" if size > 0 else ""


def integer(method: str, given: Config) -> Checkpoint:
    """GPTQ, AWQ, AutoRound, HQQ ...: integers in groups, multiplied in 16 bits."""
    size = int(given.get("group_size") or 0)
    bits = int(given.get("bits") or given.get("w_bit") or 4)
    return Checkpoint(method=method, weights_dtype=f"int{bits}", grouping=groups_of(size), left_out=skipped(given))


def fp8(method: str, given: Config) -> Checkpoint:
    """DeepSeek's blocks of 128 x 128, or one scale for a tensor."""
    block = given.get("weight_block_size")
    return Checkpoint(
        method=method,
        weights_dtype="fp8",
        grouping="blocks of " + " x ".join(map(str, block)) if block else "",
        activations_dtype="fp8",
        left_out=skipped(given),
    )


def mxfp4(method: str, given: Config) -> Checkpoint:
    """Blocks of 32 with one shared exponent (gpt-oss): only the experts."""
    return Checkpoint(method=method, weights_dtype="mxfp4", grouping=groups_of(32), left_out=skipped(given))


def bitsandbytes(method: str, given: Config) -> Checkpoint:
    """LLM.int8 (arXiv 2208.07339), else four bits in groups of 64 (QLoRA, arXiv 2305.14314)."""
    if given.get("load_in_8bit") or given.get("_load_in_8bit"):
        return Checkpoint(method=method, weights_dtype="int8", activations_dtype="int8", left_out=skipped(given))
    kind = "nf4" if given.get("bnb_4bit_quant_type") == "nf4" else "fp4"
    return Checkpoint(method=method, weights_dtype=kind, grouping=groups_of(64), left_out=skipped(given))


def compressed_tensors(method: str, given: Config) -> Checkpoint:
    """Groups of layers, each with a scheme; the narrowest decides."""
    schemes = [each for each in (given.get("config_groups") or {}).values() if each.get("weights")]
    if not schemes:
        return Checkpoint(method=method, weights_dtype="int4", left_out=skipped(given))
    scheme = min(schemes, key=lambda each: int(each["weights"].get("num_bits") or 16))
    weights, inputs = scheme["weights"], scheme.get("input_activations")
    cache = given.get("kv_cache_scheme")
    return Checkpoint(
        method=method,
        weights_dtype=dtype_of(weights),
        grouping=groups_of(int(weights.get("group_size") or 0)),
        activations_dtype=dtype_of(inputs) if inputs else "",
        kv_dtype=dtype_of(cache) if cache else "",
        left_out=skipped(given),
    )


def dtype_of(scheme: Config) -> str:
    """INT4, FP8, NVFP4 (groups of 16), MXFP4 (groups of 32) of one scheme."""
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


def modelopt(method: str, given: Config) -> Checkpoint:
    """NVIDIA ModelOpt names an algorithm; without one it writes schemes like compressed-tensors."""
    nested = given.get("quantization") or given
    algorithm = str(nested.get("quant_algo") or "").upper()
    if not algorithm and given.get("config_groups"):
        return compressed_tensors(method, given)
    if algorithm not in ALGORITHMS:
        raise ValueError(f"quant_algo {algorithm!r} is not known; known are {', '.join(sorted(ALGORITHMS))}")
    weights, size, activations = ALGORITHMS[algorithm]
    cache = str(nested.get("kv_cache_quant_algo") or "").lower()
    return Checkpoint(
        method=method,
        weights_dtype=weights,
        grouping=groups_of(int(nested.get("group_size") or size)),
        activations_dtype=activations,
        kv_dtype=cache,
        left_out=skipped(nested),
    )


READERS = {
    **dict.fromkeys(("gptq", "awq", "auto-round", "autoround", "intel/auto-round", "hqq"), integer),
    **dict.fromkeys(("fp8", "fbgemm_fp8"), fp8),
    "mxfp4": mxfp4,
    "bitsandbytes": bitsandbytes,
    "compressed-tensors": compressed_tensors,
    **dict.fromkeys(("modelopt", "modelopt_fp4"), modelopt),
}
