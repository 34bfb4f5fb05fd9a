"""From chips, formats and parallel sizes to the rates that a step is computed with, over arrays of layouts."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from advisor.engine.network import LatentAttention, Model
from advisor.engine.spec import Accelerator, Efficiency, Overhead, Quantization
from advisor.engine.step.operators import Layouts

HALF = ("bf16", "fp16")
CORE_SHARPNESS = 4.0  # of the meeting of two roofs; between 2 and 8 the figures of llama.cpp move by a few percent
KV_BYTES = {"bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "fp4": 0.5625, "fp32": 4.0}


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """One layout before it becomes numbers."""

    accelerator: Accelerator
    efficiency: Efficiency
    overhead: Overhead
    quantization: Quantization
    kv_dtype: str
    tp: int = 1
    pp: int = 1
    ep: int = 1
    dp: int = 1
    moe_tp: int | None = None  # None: what is left of tp x dp after ep
    routing_evenness: float | None = None  # of a router that was not trained: dummy weights
    experts: Quantization | None = None  # a checkpoint may keep its experts in another format

    @property
    def lanes(self) -> int:
        """Schedulers of one replica: micro-batches of a pipeline, attention-DP ranks, instances of a cut chip."""
        return self.pp * self.dp * self.accelerator.instances


def rate_of(accelerator: Accelerator, dtype: str) -> float | None:
    """Dense FLOP/s of a matmul dtype; 16-bit formats stand in for each other, nothing else does."""
    flops = accelerator.flops_per_s
    if dtype in HALF:
        return flops.get("bf16") or flops.get("fp16") or flops.get("fp32")
    return flops.get(dtype)


def unsupported(accelerator: Accelerator, quantization: Quantization) -> str:
    """Why the chip cannot multiply in this format; empty: it can."""
    if rate_of(accelerator, quantization.activations_dtype) is None:
        return f"{accelerator.name} has no {quantization.activations_dtype} matrix rate"
    if quantization.stacks and not set(quantization.stacks) & set(accelerator.stacks):
        return f"{quantization.name} kernels exist for {', '.join(quantization.stacks)} only"
    return ""


def experts_only(model: Model, quantization: Quantization) -> bool:
    """Some 4-bit formats quantize the experts and leave attention in 16 bits: always, or where attention is latent."""
    has_experts = any(b.ffn is not None and b.ffn.experts > 1 for b in model.blocks)
    latent = any(isinstance(b.mixer, LatentAttention) for b in model.blocks)
    return has_experts and (quantization.experts_only == "always" or (quantization.experts_only == "latent" and latent))


def _matmul(choice: Choice, quantization: Quantization | None) -> tuple[float, float, float]:
    """(reached FLOP/s, bytes per weight, bytes per activation) of matrices in this format; None: plain 16 bits."""
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
        # widening costs issue slots: the multiply slows down, and the read with it
        fraction *= e.weight_only_fraction
    return (rate_of(a, dtype) or 0.0) * fraction, stored, width


def _memory_rate(a: Accelerator, e: Efficiency, o: Overhead) -> float:
    """Bytes/s that kernels reach: near the memory's rate, or what their cores can ask for where that is less."""
    memory, asked = a.memory_bytes_per_s * e.memory_fraction * o.memory_factor, max(a.cores, 1) * o.core_bytes_per_s
    return memory / (1.0 + (memory / asked) ** CORE_SHARPNESS) ** (1.0 / CORE_SHARPNESS) if asked else memory


def _read_share(e: Efficiency, quantization: Quantization | None) -> float:
    return e.weight_only_fraction if quantization is not None and quantization.weight_only else 1.0


def layouts(model: Model, choices: Sequence[Choice]) -> Layouts:
    """Arrays of shape (N,) of N choices."""
    rows = [_row(model, c) for c in choices]
    return Layouts(**{f.name: np.array([float(r[f.name]) for r in rows]) for f in fields(Layouts)})


def _row(model: Model, c: Choice) -> dict[str, float]:
    a, e, o = c.accelerator, c.efficiency, c.overhead
    experts = c.experts or c.quantization
    whole = None if c.experts is None and experts_only(model, c.quantization) else c.quantization
    flops, weight, activation = _matmul(c, whole)
    expert_flops, expert_weight, _ = _matmul(c, experts)
    half = rate_of(a, "bf16") or 0.0
    near = a.links[0] if a.links else None
    far = a.links[-1] if len(a.links) > 1 else near
    chips = c.tp * c.dp
    return {
        "tp": c.tp,
        "pp": c.pp,
        "ep": c.ep,
        "dp": c.dp,
        "moe_tp": c.moe_tp or max(chips // c.ep, 1),
        "matmul_flops_per_s": flops * o.matmul_factor,
        "expert_flops_per_s": expert_flops * e.expert_fraction * o.matmul_factor * o.expert_factor,
        "half_flops_per_s": half * e.matmul_16_fraction * e.matrix_factor * o.matmul_factor,
        "attention_flops_per_s": half * e.attention_fraction * e.matrix_factor * o.prefill_factor,
        "memory_bytes_per_s": _memory_rate(a, e, o),
        "cores": a.cores,
        "weight_bytes": weight,
        "weight_read_bytes": weight / _read_share(e, whole),
        "expert_weight_bytes": expert_weight,
        "expert_read_bytes": expert_weight / _read_share(e, experts),
        "activation_bytes": activation,
        "kv_bytes": KV_BYTES[c.kv_dtype],
        "kv_read_bytes": KV_BYTES[c.kv_dtype] / (o.kv_8_fraction if KV_BYTES[c.kv_dtype] == 1.0 else 1.0),
        "quantize_kernels": e.quantize_kernels if activation < 2.0 else 0.0,
        "quantize_bytes": e.quantize_bytes if activation < 2.0 else 0.0,
        "routing_evenness": c.routing_evenness or e.routing_evenness,
        "kernel_s": e.kernel_s,
        "wave_fraction": e.wave_fraction,
        "roof_exponent": e.roof_exponent,
        "sequence_head_bytes": e.sequence_head_bytes,
        "sample_bytes_per_logit": e.sample_bytes_per_logit,
        "near_bytes_per_s": (near.bytes_per_s if near else a.pcie_bytes_per_s) * e.link_fraction,
        "near_chips": near.chips if near else 1,
        "far_bytes_per_s": (far.bytes_per_s if far else a.pcie_bytes_per_s) * e.far_link_fraction,
        "collective_s": e.collective_s * o.collective_factor + (near.latency_s if near else 0.0),
        "one_shot_s": o.one_shot_s,
        "exchange_s": e.collective_s + (near.latency_s if near else 0.0),
        "far_collective_s": e.far_collective_s,
        "hop_s": e.hop_s * o.collective_factor,
        "collective_knee_bytes": e.collective_knee_bytes,
        "adapter_kernel_s": o.adapter_kernel_s,
        "further_adapter_s": o.further_adapter_s,
    }
