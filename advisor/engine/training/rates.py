"""What a chip reaches in training: products, attention, memory and links, under its power limit."""

from dataclasses import dataclass

from advisor.engine import kernels
from advisor.engine.kernels import chip_rates, rate_of
from advisor.engine.terms import Accelerator, Efficiency, TrainingEfficiency
from advisor.engine.training.run import Code, Recipe

HOST_CORES = 128  # of the host on which offloading was measured
# Bytes to quantize one input: 2 read, and the narrow copy written along rows and along columns, as both products of the
# backward pass need it (Transformer Engine). NVFP4 reads twice, because its scale is that of the whole tensor, turns
# columns by a Hadamard transform and rounds gradients at random: as much time as 20 bytes, fitted to the 9 rows of
# Megatron-Bridge on GB200 alone, with products at the rate of cuBLASLt
QUANTIZE_BYTES = {"fp8": 4.0, "mxfp8": 4.1, "nvfp4": 20.0}


@dataclass(frozen=True, kw_only=True, slots=True)
class Rates(kernels.Rates):
    """What the chip reaches, per second."""

    attention_forward_flops_per_s: float
    attention_backward_flops_per_s: float
    expert_fraction: float
    far_link_bytes_per_s: float  # of the network, without losses
    host_bytes_per_s: float  # between one chip and pinned memory of its host
    host_chips: int
    host_cores: int
    quantize_bytes: float  # extra bytes to quantize one activation; 0 in 16 bits
    overlap_slowdown_fraction: float  # of the time that collectives overlap: how much longer compute takes


def power_factor(a: Accelerator, t: TrainingEfficiency) -> float:
    """Achieved fraction of this chip's peak over that of the chip of its family whose fractions are known.

    The power limit sets the clock in large products.
    """
    half = rate_of(a, "bf16")
    if not t.power_peak_flops_per_s or not half or not a.watts:
        return 1.0
    share = max(a.watts - t.power_static_watts, 1.0) / (t.power_limit_watts - t.power_static_watts)
    return float(share**t.power_exponent * t.power_peak_flops_per_s / half)


@dataclass(frozen=True, kw_only=True, slots=True)
class HostSide:
    """What one host gives a job that offloads to it."""

    chips: int
    cores: int
    memory_bytes: float


def rates_of(a: Accelerator, e: Efficiency, recipe: Recipe, code: Code, host: HostSide | None = None) -> Rates:
    """The achieved rates of a chip for this recipe. ValueError: the chip does not multiply in its dtype.

    `training_factor` of the chip makes everything that it computes so much longer, and no communication.
    `host`: around the chips; None: one like that on which offloading was measured.
    """
    dtype = {"mxfp8": "fp8", "nvfp4": "fp4", "fp16": "bf16"}.get(recipe.matmul_dtype, recipe.matmul_dtype)
    peak, half = rate_of(a, dtype), rate_of(a, "bf16") or 0.0
    if peak is None:
        raise ValueError(f"{a.name} has no {recipe.matmul_dtype} matrix rate: choose bf16")
    t = e.training
    if t is None:
        raise LookupError("the calibration has no figures of training: load the catalog")
    power, chip = power_factor(a, t), chip_rates(a, e)

    def reached(fraction: float) -> float:
        return min(fraction * e.matrix_factor * power, t.matmul_highest_fraction) / e.training_factor

    wide, eight = t.matmul_16_fraction or e.matmul_16_fraction, t.matmul_8_fraction or e.matmul_8_fraction
    narrow = {"fp8": eight, "fp4": t.matmul_4_fraction or e.matmul_4_fraction}.get(dtype, wide)
    grouped = min(e.expert_fraction, t.grouped_8_fraction / eight) if t.grouped_8_fraction else e.expert_fraction
    forward, backward = attention_fractions(e, t, code)
    far = a.links[-1] if a.links else None
    own = {
        "matmul_flops_per_s": peak * reached(narrow),
        "half_flops_per_s": half * reached(wide),
        "memory_bytes_per_s": a.memory_bytes_per_s * min(e.memory_fraction, t.stream_fraction) / e.training_factor,
        "kernel_s": e.kernel_s * e.training_factor,
    }
    return Rates(
        **chip | own,
        attention_forward_flops_per_s=half * reached(forward),
        attention_backward_flops_per_s=half * reached(backward),
        expert_fraction=grouped * (1.0 if code.graphs == "full" else t.expert_factor),
        far_link_bytes_per_s=far.bytes_per_s if far else a.pcie_bytes_per_s,
        host_bytes_per_s=a.pcie_bytes_per_s * t.host_copy_fraction,
        host_chips=host.chips if host else a.chips_per_host,
        host_cores=host.cores if host else HOST_CORES,
        quantize_bytes=QUANTIZE_BYTES.get(recipe.matmul_dtype, 0.0),
        overlap_slowdown_fraction=e.overlap_slowdown_fraction,
    )


def attention_fractions(e: Efficiency, t: TrainingEfficiency, code: Code) -> tuple[float, float]:
    """(forward, backward) of the dense 16-bit peak; other families: as much slower than serving's as on an H200."""
    forward, backward = {
        "cudnn": (t.cudnn_forward_fraction, t.cudnn_backward_fraction),
        "flash2": (t.flash2_forward_fraction, t.flash2_backward_fraction),
        "flash1": (t.flash1_forward_fraction, t.flash1_backward_fraction),
        "math": (t.math_forward_fraction, t.math_backward_fraction),
    }[code.attention]
    relative = e.attention_fraction / t.attention_reference_fraction if t.attention_reference_fraction else 1.0
    return relative * forward, relative * backward
