"""What a chip reaches in training: products, attention, memory and links, under its power limit."""

from dataclasses import dataclass

from advisor.engine.step import rate_of
from advisor.engine.terms import Accelerator, Efficiency
from advisor.engine.training.run import Code, Recipe

# Large products over the dense peak, with random values after 10,000 warm-up products, on families whose products were
# not measured here (github.com/Azure/AI-benchmarking-guide, Azure_Results, read 2026-11-25). ampere: cuBLASLt, 251 to
# 257 of 312 TFLOPs/s from 8,192 up. blackwell: GB200, cuBLASLt, 2,835 to 2,907 of 5,000 from 4,096 up. instinct-mi300:
# hipBLASLt on a MI300X, mean of 955 to 1,160 of 2,615 from 4,096 up (in the fork samuel-bohman/AI-benchmarking-guide);
# in 16 bits 708 of 1,307 by AMD, quoted second-hand (rocm.blogs.amd.com, measuring-max-achievable-flops-part2).
# A GB200 reaches 0.75 of its FP4 peak from 8,192 up and 0.52 at 4,096: left at serving's 0.5, because the transforms
# of NVFP4 recipes are not timed.
PRODUCT_FRACTION = {
    "ampere": {"bf16": 0.81}, "blackwell": {"fp8": 0.575}, "blackwell-ultra": {"fp8": 0.575},
    "instinct-mi300": {"bf16": 0.54, "fp8": 0.41},
}  # fmt: skip
# Grouped products of experts over the dense peak: 2,672 TFLOPs/s in MXFP8 on a GB200, 7,168 to 2,048 wide (Megatron-LM,
# docs/discussions/deepseek-v3-gb200-optimization, section 1)
GROUPED_FRACTION = {"blackwell": 0.534, "blackwell-ultra": 0.534}
# Of that, unless the whole step is one CUDA graph with fused experts: what serving frameworks reach, fitted to rows of
# serving (expert_factor in fixtures/calibration/framework.yaml)
EXPERT_FACTOR = 0.3984
# Attention, causal pairs counted once, over the dense 16-bit peak: forward, backward; by kernel and family.
# hopper: PyTorch 2.11 on one H200 (fixtures/measurements/h200-training-kernels.csv). ampere: FlashAttention 30 to 50 %
# and 25 to 35 %, FlashAttention-2 50 to 73 % and up to 63 % of an A100; an H100 runs the same kernels 1.49 times as
# fast, 335 against 225 TFLOPs/s (arXiv 2307.08691). blackwell: cuDNN 9.13 at 1,613 / 1.3 TFLOPs/s on a B200 forward,
# the backward pass slower as on an H200 (FlashAttention-4: github.com/Dao-AILab/flash-attention, assets/fa4_paper.pdf).
# instinct-mi300: FlashAttention 2 at 329 of 1,307 TFLOPs/s with heads of 64 (Azure, as above), the rest as on an H200
HOPPER = {"cudnn": (0.527, 0.440), "flash2": (0.310, 0.254), "flash1": (0.19, 0.14), "math": (0.310, 0.254)}
AMPERE = {"flash1": (0.40, 0.30), "flash2": (0.62, 0.50), "cudnn": (0.62, 0.50), "math": (0.40, 0.30)}
BLACKWELL = HOPPER | {"cudnn": (0.55, 0.46)}
MI300 = {"flash1": (0.29, 0.24), "flash2": (0.29, 0.24), "cudnn": (0.29, 0.24), "math": (0.29, 0.24)}
ATTENTION = {"hopper": HOPPER, "ampere": AMPERE, "blackwell": BLACKWELL, "blackwell-ultra": BLACKWELL,
             "instinct-mi300": MI300}  # fmt: skip
# The power limit sets the clock in large products: all runs of four H200s but the smallest drew 2.71 to 2.78 of 2.8 kW
# (measured for this project, 2026-11-22). By family: dense 16-bit peak and watts of the chip whose fractions are known,
# and the watts that do not depend on the clock.
POWER = {
    "hopper": (989e12, 700.0, 80.0), "blackwell": (2500e12, 1200.0, 200.0), "blackwell-ultra": (2500e12, 1200.0, 200.0),
    "instinct-mi300": (1307e12, 750.0, 140.0),
}  # fmt: skip
# Rate over power: an H100 limited to 600 of 700 W loses 10 to 15 % in 16 bits (factryze.ai/scale-atlas/power)
POWER_EXPONENT = 0.75
HIGHEST_FRACTION = 0.90  # of the peak, whatever the power
# Of the datasheet's bandwidth that element-wise kernels reach, at most: one H200 (fixtures/measurements/probes)
STREAM_FRACTION = 0.8627
# Of PCIe's rate that copies between a chip and its host reach, at least (host-copy-fraction in fixtures/overheads.yaml)
HOST_COPY_FRACTION = 0.545
HOST_CORES = 128  # of the host on which offloading was measured
# Bytes to quantize one input: 2 read, and the narrow copy written along rows and along columns, as both products of the
# backward pass need it (Transformer Engine). NVFP4 reads twice: its scale is that of the whole tensor.
QUANTIZE_BYTES = {"fp8": 4.0, "mxfp8": 4.1, "nvfp4": 5.1}


@dataclass(frozen=True, kw_only=True, slots=True)
class Rates:
    """What the chip reaches, per second."""

    matmul_flops_per_s: float  # of the recipe's dtype
    half_flops_per_s: float
    attention_forward_flops_per_s: float
    attention_backward_flops_per_s: float
    expert_fraction: float
    memory_bytes_per_s: float
    near_bytes_per_s: float
    near_chips: int
    far_bytes_per_s: float
    far_link_bytes_per_s: float  # of the network, without losses
    collective_s: float
    far_collective_s: float
    hop_s: float
    kernel_s: float
    roof_exponent: float
    cores: int
    wave_fraction: float
    host_bytes_per_s: float  # between one chip and pinned memory of its host
    host_chips: int
    host_cores: int
    quantize_bytes: float  # extra bytes to quantize one activation; 0 in 16 bits
    overlap_slowdown_fraction: float  # of the time that collectives overlap: how much longer compute takes


def power_factor(a: Accelerator) -> float:
    """Achieved fraction of this chip's peak over that of the chip of its family whose fractions are known."""
    half = rate_of(a, "bf16")
    if a.family not in POWER or not half or not a.watts:
        return 1.0
    peak, watts, still = POWER[a.family]
    share = max(a.watts - still, 1.0) / (watts - still)
    return float(share**POWER_EXPONENT * peak / half)


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
    power = power_factor(a)

    def reached(fraction: float) -> float:
        return min(fraction * e.matrix_factor * power, HIGHEST_FRACTION) / e.training_factor

    published = PRODUCT_FRACTION.get(a.family, {})
    wide, eight = (published.get(t, f) for t, f in (("bf16", e.matmul_16_fraction), ("fp8", e.matmul_8_fraction)))
    narrow = {"fp8": eight, "fp4": e.matmul_4_fraction}.get(dtype, wide)
    near = a.links[0] if a.links else None
    far = a.links[-1] if len(a.links) > 1 else near
    forward, backward = attention_fractions(a, e, code)
    return Rates(
        matmul_flops_per_s=peak * reached(narrow),
        half_flops_per_s=half * reached(wide),
        attention_forward_flops_per_s=half * reached(forward),
        attention_backward_flops_per_s=half * reached(backward),
        expert_fraction=min(e.expert_fraction, GROUPED_FRACTION.get(a.family, 1.0) / eight)
        * (1.0 if code.graphs == "full" else EXPERT_FACTOR),
        memory_bytes_per_s=a.memory_bytes_per_s * min(e.memory_fraction, STREAM_FRACTION) / e.training_factor,
        near_bytes_per_s=(near.bytes_per_s if near else a.pcie_bytes_per_s) * e.link_fraction,
        near_chips=near.chips if near else 1,
        far_bytes_per_s=(far.bytes_per_s if far else a.pcie_bytes_per_s) * e.far_link_fraction,
        far_link_bytes_per_s=far.bytes_per_s if far else a.pcie_bytes_per_s,
        collective_s=e.collective_s,
        far_collective_s=e.far_collective_s,
        hop_s=e.hop_s,
        kernel_s=e.kernel_s * e.training_factor,
        roof_exponent=e.roof_exponent,
        cores=a.cores,
        wave_fraction=e.wave_fraction,
        host_bytes_per_s=a.pcie_bytes_per_s * HOST_COPY_FRACTION,
        host_chips=host.chips if host else a.chips_per_host,
        host_cores=host.cores if host else HOST_CORES,
        quantize_bytes=QUANTIZE_BYTES.get(recipe.matmul_dtype, 0.0),
        overlap_slowdown_fraction=e.overlap_slowdown_fraction,
    )


def attention_fractions(a: Accelerator, e: Efficiency, code: Code) -> tuple[float, float]:
    """(forward, backward) of the dense 16-bit peak; other families: as much slower than serving's as on an H200."""
    if a.family in ATTENTION:
        return ATTENTION[a.family][code.attention]
    forward, backward = HOPPER[code.attention]
    return e.attention_fraction * forward / 0.62, e.attention_fraction * backward / 0.62
