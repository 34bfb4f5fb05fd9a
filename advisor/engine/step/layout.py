"""Achieved rates of a step from chips, formats and parallelism, as arrays over layouts."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from advisor.engine.kernels import HALF, chip_rates, rate_of
from advisor.engine.network import Model
from advisor.engine.step.compatibility.checkpoints import experts_only, kept_formats
from advisor.engine.step.operators import Layouts
from advisor.engine.terms import Accelerator, Correction, Efficiency, Overhead, Quantization

CORE_SHARPNESS = 4.0  # exponent of the smooth minimum of two rates; 2 to 8 changes llama.cpp figures by a few percent
# Widens intervals of TP over hosts, because no answer knows the network. Assumed: a small all-reduce, part of a step,
# takes 48 us over InfiniBand, which the engine uses, and 138 us over Ethernet (docs/explanation/accuracy.md).
FAR_RATIO = 1.4
KV_BYTES = {"bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "fp4": 0.5625, "fp32": 4.0}


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """One layout: chip, calibration, formats and parallelism."""

    accelerator: Accelerator
    efficiency: Efficiency
    overhead: Overhead
    quantization: Quantization
    kv_dtype: str
    tp: int = 1
    pp: int = 1
    ep: int = 1
    dp: int = 1
    moe_tp: int | None = None  # None: tp x dp / ep
    routing_evenness: float | None = None  # of an untrained router (dummy weights); None: that of trained routers
    experts: Quantization | None = None  # format of the experts, if it differs
    correction: Correction = Correction()  # of all step times, from measurements of similar deployments

    @property
    def lanes(self) -> int:
        """Schedulers of one replica: pipeline micro-batches x attention-DP ranks x instances of a partitioned chip."""
        return self.pp * self.dp * self.accelerator.instances

    @property
    def uncertain_ratio(self) -> float:
        """By how much its times may be off beyond the errors of measured rows; 1: not at all.

        What is not known of other models of the engine is known of one that was measured on this chip.
        """
        near = self.accelerator.links[0].chips if self.accelerator.links else 1
        engine = 1.0 if self.correction.of_stack else max(self.overhead.uncertain_ratio, 1.0)
        return engine * (FAR_RATIO if self.tp > near else 1.0)


def unsupported(accelerator: Accelerator, quantization: Quantization) -> str:
    """Why the chip cannot compute in this format; empty: it can.

    Engines refuse BF16 on a chip that has FP16 alone, and run the same checkpoint cast to FP16.
    """
    if quantization.weights_dtype == "bf16" and "bf16" not in accelerator.flops_per_s and rate_of(accelerator, "fp16"):
        return f"{accelerator.name} has no BF16: serve the checkpoint in FP16"
    if rate_of(accelerator, quantization.activations_dtype) is None:
        return f"{accelerator.name} has no {quantization.activations_dtype} matrix rate"
    return ""


def quantizes(quantization: Quantization, model: Model) -> bool:
    """Whether the format has kernels for this model: those for expert layers alone do nothing for a dense model."""
    return quantization.experts_only != "always" or has_experts(model)


def in_tiles(quantization: Quantization) -> bool:
    """Whether matrices have quantized inputs with one scale per row, whose kernels compute whole tiles."""
    return quantization.activations_dtype not in HALF and not quantization.slug.endswith("-block")


def has_experts(model: Model) -> bool:
    """Whether any layer has experts."""
    return any(b.ffn is not None and b.ffn.experts > 1 for b in model.blocks)


def _matmul(choice: Choice, quantization: Quantization | None) -> tuple[float, float, float]:
    """(achieved FLOP/s, bytes per weight, bytes per activation) of matrices in this format; None: 16 bits."""
    a, e = choice.accelerator, choice.efficiency
    if quantization is None:
        return (rate_of(a, "bf16") or 0.0) * e.matmul_16_fraction * e.matrix_factor, 2.0, 2.0
    dtype = quantization.activations_dtype
    width = {"fp8": 1.0, "int8": 1.0, "fp4": 0.5, "int4": 0.5, "fp32": 4.0}.get(dtype, 2.0)
    fraction = {1.0: e.matmul_8_fraction, 0.5: e.matmul_4_fraction}.get(width, e.matmul_16_fraction)
    fraction *= e.matrix_factor
    stored = quantization.bits_per_weight / 8.0
    if quantization.block_scaled:
        fraction *= e.block_8_fraction
    if quantization.weight_only:
        # dequantization takes issue slots and slows both the multiply and the read
        fraction *= e.weight_only_fraction
    return (rate_of(a, dtype) or 0.0) * fraction, stored, width


def _dense(model: Model, c: Choice, quantization: Quantization | None) -> tuple[float, float, float]:
    """As `_matmul`, for matrices outside routed experts, of which a checkpoint may keep a part in another format."""
    flops, weight, activation = _matmul(c, quantization)
    others = kept_formats(model, c.quantization)
    if not others or not flops:
        return flops, weight, activation
    rest = max(1.0 - sum(fraction for _, fraction in others), 0.0)
    seconds, stored = rest / flops, rest * weight
    for dtype, fraction in others:
        seconds += fraction / _plain_rate(c, dtype)
        stored += fraction * STORED_BYTES.get(dtype, 2.0)
    return 1.0 / seconds, stored, activation


# of a weight, scales included: fixtures/quantization.yaml
STORED_BYTES = {
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "int8": 1.0,
    "mxfp8": 1.03,
    "nvfp4": 0.5625,
    "mxfp4": 0.53125,
    "int4": 0.53,
}


def _plain_rate(c: Choice, dtype: str) -> float:
    """Achieved FLOP/s of matrices in a format of which only the width is known; 16 bits without a rate for it."""
    rate = rate_of(c.accelerator, dtype) if dtype in ("fp8", "int8") else None
    fraction = c.efficiency.matmul_8_fraction if rate else c.efficiency.matmul_16_fraction
    return (rate or rate_of(c.accelerator, "bf16") or 1.0) * fraction * c.efficiency.matrix_factor


def _memory_rate(a: Accelerator, e: Efficiency, o: Overhead) -> float:
    """Achieved bytes/s: smooth minimum of the memory's rate and the rate that all cores together can read at."""
    return _limited(a.memory_bytes_per_s * e.memory_fraction * o.memory_factor, a, o.core_bytes_per_s)


def _limited(rate: float, a: Accelerator, core_rate: float) -> float:
    """Smooth minimum of a chip's rate and that of all its cores together; a core_rate of 0 sets no limit."""
    cores = max(a.cores, 1) * core_rate
    return rate / (1.0 + (rate / cores) ** CORE_SHARPNESS) ** (1.0 / CORE_SHARPNESS) if cores else rate


def _expert_format(quantization: Quantization | None) -> str:
    """The format as the figures of expert kernels name it (`Overhead`); empty: none of theirs."""
    if quantization is None:
        return "bf16"
    weights, activations = quantization.weights_dtype, quantization.activations_dtype
    if activations == "fp8":
        return {"mxfp4": "mxfp4_fp8", "fp8": "fp8_block" if quantization.block_scaled else "fp8"}.get(weights, "")
    if quantization.weight_only:
        return weights if weights in ("int4", "mxfp4") else ""
    return "bf16" if activations in HALF else "nvfp4" if weights == "nvfp4" else ""


def _expert_rates(c: Choice, quantization: Quantization | None, memory: float) -> tuple[float, float]:
    """(FLOP/s, effective bytes per weight) of routed experts: of its kernels where they were timed on this chip."""
    a, e, o = c.accelerator, c.efficiency, c.overhead
    flops, stored, _ = _matmul(c, quantization)
    name = _expert_format(quantization)
    fraction = getattr(o, f"expert_{name}_fraction") if name else 0.0
    if not fraction:
        achieved = _limited(flops * o.matmul_factor, a, o.core_flops_per_s) * e.expert_fraction * o.expert_factor
        return achieved, stored / _read_fraction(e, quantization)
    peak = rate_of(a, quantization.activations_dtype if quantization is not None else "bf16") or 0.0
    return peak * fraction * o.expert_served_factor, stored * memory / _limited(
        memory, a, getattr(o, f"expert_{name}_core_bytes_per_s")
    )


def _read_fraction(e: Efficiency, quantization: Quantization | None) -> float:
    """Fraction of the memory rate at which weights of this format are read."""
    return e.weight_only_fraction if quantization is not None and quantization.weight_only else 1.0


def layouts(model: Model, choices: Sequence[Choice]) -> Layouts:
    """The rates of N choices, as arrays of shape (N,)."""
    distinct = {id(c): c for c in choices}  # many lanes differ in their scheduler's limits alone
    rows = [_corrected(_row(model, c), c.correction.time_factor) for c in distinct.values()]
    place = {key: i for i, key in enumerate(distinct)}
    at = np.array([place[id(c)] for c in choices], dtype=int)
    return Layouts(**{f.name: np.array([float(r[f.name]) for r in rows])[at] for f in fields(Layouts)})


def _corrected(row: dict[str, float], time_factor: float) -> dict[str, float]:
    """The rates and fixed times at which every step takes `time_factor` times as long."""
    if time_factor == 1.0:
        return row
    return {
        name: value / time_factor if name.endswith("_per_s") else value * time_factor if name.endswith("_s") else value
        for name, value in row.items()
    }


def _row(model: Model, c: Choice) -> dict[str, float]:
    a, e, o = c.accelerator, c.efficiency, c.overhead
    experts = c.experts or c.quantization
    whole = None if c.experts is None and experts_only(model, c.quantization) else c.quantization
    flops, weight, activation = _dense(model, c, whole)
    expert_weight, memory = _matmul(c, experts)[1], _memory_rate(a, e, o)
    expert_flops, expert_read = _expert_rates(c, experts, memory)
    half = rate_of(a, "bf16") or 0.0
    chip, near = chip_rates(a, e), a.links[0] if a.links else None
    chips = c.tp * c.dp
    return chip | {
        "kernel_s": chip["kernel_s"] * o.kernel_factor,
        "tile_wave_fraction": o.tile_wave_fraction if in_tiles(c.quantization) else 0.0,
        "vector_rows": o.vector_rows,
        "tp": c.tp,
        "pp": c.pp,
        "ep": c.ep,
        "dp": c.dp,
        "moe_tp": c.moe_tp or max(chips // c.ep, 1),
        "matmul_flops_per_s": _limited(flops * o.matmul_factor, a, o.core_flops_per_s),
        "expert_flops_per_s": expert_flops,
        "half_flops_per_s": _limited(chip["half_flops_per_s"] * o.matmul_factor, a, o.core_flops_per_s),
        "attention_flops_per_s": half * e.attention_fraction * e.matrix_factor * o.prefill_factor,
        "memory_bytes_per_s": memory,
        "weight_bytes": weight,
        "weight_read_bytes": weight / _read_fraction(e, whole),
        "expert_weight_bytes": expert_weight,
        "expert_read_bytes": expert_read,
        "activation_bytes": activation,
        "kv_bytes": KV_BYTES[c.kv_dtype],
        "kv_read_bytes": KV_BYTES[c.kv_dtype]
        / o.kv_fraction
        / (o.kv_8_fraction if KV_BYTES[c.kv_dtype] == 1.0 else 1.0),
        "latent_read_bytes": KV_BYTES[c.kv_dtype] / o.kv_fraction,
        "indexer_factor": o.indexer_factor,
        "cache_bytes": a.sram_bytes if a.kind == "gpu" else 0.0,  # that of a TPU or NPU is filled by the compiler
        "quantize_kernels": e.quantize_kernels if activation < 2.0 else 0.0,
        "quantize_bytes": e.quantize_bytes if activation < 2.0 else 0.0,
        "routing_evenness": c.routing_evenness or e.routing_evenness,
        "sequence_head_bytes": e.sequence_head_bytes,
        "sample_bytes_per_logit": e.sample_bytes_per_logit,
        "near_bytes_per_s": chip["near_bytes_per_s"] * (near.ring_fraction(chips) if near else 1.0),
        "exchange_bytes_per_s": chip["near_bytes_per_s"] * (near.exchange_fraction(chips) if near else 1.0),
        "collective_s": e.collective_s * o.collective_factor + (near.latency_s if near else 0.0),
        "far_reduce_s": e.far_reduce_s,
        "one_shot_s": o.one_shot_s,
        "exchange_s": chip["collective_s"],
        "hop_s": e.hop_s * o.collective_factor,
        "direct_hop_s": e.hop_s,
        "adapter_kernel_s": o.adapter_kernel_s,
        "further_adapter_s": o.further_adapter_s,
    }
