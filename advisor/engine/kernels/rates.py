"""Rates that chips achieve in kernels: of matrix multiplies, memory and collectives."""

from dataclasses import dataclass
from typing import Any

from advisor.engine.terms import Accelerator, Efficiency

Amount = Any  # a number, or an array that broadcasts with the layouts
HALF = ("bf16", "fp16")


@dataclass(frozen=True, kw_only=True, slots=True)
class Rates:
    """Achieved rates and fixed costs: numbers of one chip, or arrays with one value per layout."""

    matmul_flops_per_s: Amount  # of the dtype the quantized matrices multiply in
    half_flops_per_s: Amount  # 16-bit matrix rate: lm_head, router, unquantized parts
    memory_bytes_per_s: Amount
    kernel_s: Amount
    roof_exponent: Amount
    cores: Amount
    wave_fraction: Amount
    odd_matmul_fraction: Amount  # rates of matrices whose rows are aligned to 2 bytes only, relative to 16
    odd_read_fraction: Amount
    misaligned_matmul_fraction: Amount  # aligned to 4 or 8 bytes
    misaligned_read_fraction: Amount
    near_bytes_per_s: Amount  # achieved on the links inside the scale-up domain
    near_chips: Amount
    far_bytes_per_s: Amount
    collective_s: Amount  # fixed cost of a collective
    far_collective_s: Amount
    hop_s: Amount
    collective_knee_bytes: Amount


def rate_of(accelerator: Accelerator, dtype: str) -> float | None:
    """Dense FLOP/s of a matmul dtype; None: unsupported. bf16 and fp16 are interchangeable, other dtypes are not."""
    flops = accelerator.flops_per_s
    if dtype in HALF:
        return flops.get("bf16") or flops.get("fp16") or flops.get("fp32")
    return flops.get(dtype)


def chip_rates(a: Accelerator, e: Efficiency) -> dict[str, float]:
    """The fields of `Rates` for 16-bit matrices, from the chip and its efficiency alone."""
    near = a.links[0] if a.links else None
    far = a.links[-1] if len(a.links) > 1 else near
    half = (rate_of(a, "bf16") or 0.0) * e.matmul_16_fraction * e.matrix_factor
    return {
        "matmul_flops_per_s": half,
        "half_flops_per_s": half,
        "memory_bytes_per_s": a.memory_bytes_per_s * e.memory_fraction,
        "kernel_s": e.kernel_s,
        "roof_exponent": e.roof_exponent,
        "cores": a.cores,
        "wave_fraction": e.wave_fraction,
        "odd_matmul_fraction": e.odd_matmul_fraction,
        "odd_read_fraction": e.odd_read_fraction,
        "misaligned_matmul_fraction": e.misaligned_matmul_fraction,
        "misaligned_read_fraction": e.misaligned_read_fraction,
        "near_bytes_per_s": (near.bytes_per_s if near else a.pcie_bytes_per_s) * e.link_fraction,
        "near_chips": near.chips if near else 1,
        "far_bytes_per_s": (far.bytes_per_s if far else a.pcie_bytes_per_s) * e.far_link_fraction,
        "collective_s": e.collective_s + (near.latency_s if near else 0.0),
        "far_collective_s": e.far_collective_s,
        "hop_s": e.hop_s,
        "collective_knee_bytes": e.collective_knee_bytes,
    }
