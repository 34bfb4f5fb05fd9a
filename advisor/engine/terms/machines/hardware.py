"""Accelerators (rates, memory and links in SI units), kernel efficiencies and framework overheads."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import Any

from advisor.engine.terms.releases import at_or_below, measured_release

COMPUTER, SERVER = "computer", "server"  # chassis of a chip: it is a whole computer; a passively cooled card


@dataclass(frozen=True, kw_only=True, slots=True)
class Link:
    """One interconnect tier (tiers are ordered near to far); bytes_per_s: per chip, one direction, all its links."""

    name: str
    bytes_per_s: float
    latency_s: float
    chips: int  # reachable at that rate
    topology: str = "switch"  # switch | mesh | torus | ring | host
    shapes: tuple[tuple[int, ...], ...] = ()  # of a torus: chips along each axis of every slice that is sold
    wraps_from: int = 0  # a slice is closed to rings if each axis has at least this many chips; 0: never

    def ring_fraction(self, chips: int) -> float:
        """Fraction of `bytes_per_s` that ring collectives over this many chips use.

        On a torus each axis has two links, of which an open axis uses one in each direction and an axis of one chip
        none. 1 without shapes.
        """
        shape, axes = self._shape(chips), max((len(s) for s in self.shapes), default=0)
        if not shape or chips <= 1:
            return 1.0
        return sum(2 if self._wraps(shape) else 1 for n in shape if n > 1) / (2 * axes)

    def exchange_fraction(self, chips: int) -> float:
        """Fraction of `bytes_per_s` at which each chip sends to all others; a torus is limited by its longest axis.

        Half of a chip's data crosses the middle of the longest axis of s chips, over w links (2 if the axis is closed):
        4 w / s of one link's rate.
        """
        shape, axes = self._shape(chips), max((len(s) for s in self.shapes), default=0)
        if not shape or chips <= 1:
            return 1.0
        across = 4.0 * (2 if self._wraps(shape) else 1) / max(shape) / (2 * axes)
        return min(across, self.ring_fraction(chips))

    def _wraps(self, shape: tuple[int, ...]) -> bool:
        return bool(self.wraps_from) and min(shape) >= self.wraps_from

    def _shape(self, chips: int) -> tuple[int, ...]:
        return smallest_slice(self.shapes, chips) if self.shapes else ()


@lru_cache(maxsize=256)
def smallest_slice(shapes: tuple[tuple[int, ...], ...], chips: int) -> tuple[int, ...]:
    """The smallest shape that holds this many chips, cut to them if it is larger; empty if none does."""
    holding = [s for s in shapes if math.prod(s) >= chips]
    if not holding:
        return ()
    shape = min(holding, key=math.prod)
    return shape if math.prod(shape) == chips else (chips,)


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingEfficiency:
    """What the kernels of training frameworks reach on a chip, where it is not what those of serving reach."""

    matmul_16_fraction: float  # of the dense peak, large matrix multiplies; 0: as in serving
    matmul_8_fraction: float
    matmul_4_fraction: float
    grouped_8_fraction: float  # of the dense peak, grouped 8-bit GEMM of experts; 0: expert_fraction of serving
    expert_factor: float  # on both, unless the whole step is one CUDA graph with fused experts
    matmul_highest_fraction: float  # of the dense peak, whatever the power
    stream_fraction: float  # of the datasheet bandwidth that element-wise kernels reach at most
    # attention, of the dense 16-bit peak, causal pairs counted once; by kernel: PyTorch's cuDNN, FlashAttention 2 and
    # 1, and one that stores the scores
    cudnn_forward_fraction: float
    cudnn_backward_fraction: float
    flash2_forward_fraction: float
    flash2_backward_fraction: float
    flash1_forward_fraction: float
    flash1_backward_fraction: float
    math_forward_fraction: float
    math_backward_fraction: float
    # attention_fraction of the chip that these were measured on, for which the chip's own is put; 0: measured on it
    attention_reference_fraction: float
    # the chip on which the family's fractions were measured: its dense 16-bit peak and watts, and those that do not
    # depend on the clock; 0: power sets no limit
    power_peak_flops_per_s: float
    power_limit_watts: float
    power_static_watts: float
    power_exponent: float  # of the achieved rate over power
    host_copy_fraction: float  # of PCIe's rate that copies between a chip and its host reach


@dataclass(frozen=True, kw_only=True, slots=True)
class Efficiency:
    """Achieved rates and fixed costs of the kernels of one chip: fitted or measured, never set in code."""

    memory_fraction: float  # of the datasheet bandwidth, large reads
    matmul_16_fraction: float  # of the dense peak, large sustained matrix multiplies
    matmul_8_fraction: float
    matmul_4_fraction: float
    matrix_factor: float  # on all three: what this kind of chip achieves of them in whole models
    block_8_fraction: float  # FP8 with 128x128 block scales relative to one scale per tensor or row
    weight_only_fraction: float  # weights dequantized before the multiply, relative to native kernels
    expert_fraction: float  # grouped GEMM relative to a dense GEMM
    routing_evenness: float  # how evenly tokens are routed to experts: large is even, 1 is strongly uneven
    attention_fraction: float  # prefill attention, of the dense 16-bit peak
    wave_fraction: float  # cost of a partly filled wave of tiles: 1 a full wave, 0 none (split-K, persistent kernels)
    # matrix multiplies whose rows do not start on 16 bytes, relative to those that do: their compute and read rates
    odd_matmul_fraction: float  # rows of an odd number of 16-bit elements: aligned to 2 bytes
    odd_read_fraction: float
    misaligned_matmul_fraction: float  # rows aligned to 4 or 8 bytes
    misaligned_read_fraction: float
    roof_exponent: float  # overlap of compute and memory inside a kernel (1: none, inf: a sharp roofline)
    kernel_s: float  # launch and tail of one kernel inside a CUDA graph
    sequence_head_bytes: float  # fixed cost of decode attention per sequence and head, as bytes read
    sample_bytes_per_logit: float  # logits, their fp32 copies, sampling
    quantize_kernels: float  # extra kernels per matrix whose input is quantized dynamically
    quantize_bytes: float  # extra bytes moved to quantize one activation in a fused kernel
    link_fraction: float  # of the scale-up link, large messages
    far_link_fraction: float
    collective_s: float  # fixed cost of one collective inside the scale-up domain
    far_collective_s: float
    hop_s: float  # added per doubling of the chips in a collective
    collective_knee_bytes: float  # message size below which a collective does not reach the link's bandwidth
    far_reduce_s: float = 0.0  # added to an all-reduce of TP that crosses domains: its ranks wait for the network twice
    training_factor: float = 1.0  # time of whole training steps on one chip over what its kernels' rates predict
    # Of the time that collectives run beside a training step: how much longer its compute takes. 0.18: 24 channels on
    # an H100's 132 SMs.
    overlap_slowdown_fraction: float = 0.18
    # Host times over those on the host where the frameworks' overheads were measured (calibration/host_speed.py):
    # above 1 is slower.
    host_factor: float = 1.0
    training: TrainingEfficiency | None = None  # None: the calibration has no figures of training
    basis: str = "datasheet"  # measured | relative | datasheet
    source: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Overhead:
    """Host times of one framework version, and the speed of its kernels relative to the best ones for the chip."""

    host_s: float  # per step, overlaps the device
    host_s_per_sequence: float
    serial_s: float  # per step, overlaps nothing
    serial_s_per_sequence: float
    request_s: float  # from the caller to the scheduler, without an HTTP server
    http_s: float  # tokenizer, HTTP server and its queue, if there is one
    prepare_s: float  # host time before the first layer of a prefill step; hidden if another step is running
    pieces_s_per_layer: float  # host time to launch one prefill layer with piecewise CUDA graphs (all but attention)
    eager_s_per_layer: float  # host time to launch one layer without CUDA graphs
    eager_s_per_expert_layer: float
    matmul_factor: float
    memory_factor: float
    core_bytes_per_s: float  # maximum read rate of its kernels per core; 0 or large: they saturate the memory
    prefill_factor: float  # attention kernels in prefill
    tile_tokens: float  # tile rows of its GEMMs with per-row scales; 0: their cost is not in whole tiles
    expert_factor: float  # its grouped GEMM at many tokens, in formats without figures of their own below
    collective_factor: float  # fixed cost of its collectives (fused, one-shot) relative to the library's
    one_shot_s: float  # launch of its own all-reduce inside the scale-up domain; large: it has none
    acceptance_fraction: float  # of drafted tokens, multi-token prediction
    collective_host_s: float = 0.0  # host time of one all-reduce outside CUDA graphs: its launch, and the slowest rank
    parallel_prepare_s: float = 0.0  # added to prepare_s under TP: until every rank has the step
    kv_fraction: float = 1.0  # of the memory bandwidth, decode attention
    kv_8_fraction: float = 1.0  # of that, over an 8-bit KV cache; 1: unmeasured
    indexer_factor: float = 1.0  # time of the indexer of sparse attention over its roofline
    slow_share: float = 0.0  # of the steps with a prompt outside CUDA graphs: launches take slow_ratio times as long
    slow_ratio: float = 1.0
    uncompiled_s_per_layer: float = 0.0  # host time of one layer that is neither compiled nor in a CUDA graph
    ngram_s: float = 0.0  # search for n-grams in the prompts, before each verification step
    ngram_s_per_sequence: float = 0.0
    adapter_kernel_s: float = 0.0  # fixed cost of one LoRA kernel
    further_adapter_s: float = 0.0  # added for each further adapter in the batch
    http_s_per_sequence: float = 0.0  # added to http_s for each request that streams its answer at the same time
    draft_s_per_layer: float = 0.0  # host time of one layer of a draft model outside CUDA graphs; 0: it is inside
    adapter_launch_s: float = 0.0  # host time of one LoRA kernel that is not in a CUDA graph
    kernel_factor: float = 1.0  # launch and tail of one of its kernels over those inside a CUDA graph of the chip
    core_flops_per_s: float = 0.0  # maximum rate of its matrix kernels per core; 0: they reach the chip's
    vector_rows: float = 0.0  # rows of a matrix up to which it has matrix-vector kernels, which pad no tile; 0: none
    tile_wave_fraction: float = 0.0  # of a wave of these tiles that is partly filled: 1 costs a whole one, 0 nothing
    # Its kernels of routed experts on this chip, by format: share of the dense peak that full tiles reach in a layer
    # that is timed alone, and the bytes of weights that one core reads in a second; 0: not measured.
    expert_bf16_fraction: float = 0.0
    expert_bf16_core_bytes_per_s: float = 0.0
    expert_fp8_fraction: float = 0.0
    expert_fp8_core_bytes_per_s: float = 0.0
    expert_fp8_block_fraction: float = 0.0
    expert_fp8_block_core_bytes_per_s: float = 0.0
    expert_int4_fraction: float = 0.0
    expert_int4_core_bytes_per_s: float = 0.0
    expert_mxfp4_fraction: float = 0.0
    expert_mxfp4_core_bytes_per_s: float = 0.0
    expert_mxfp4_fp8_fraction: float = 0.0  # activations in 8 bits
    expert_mxfp4_fp8_core_bytes_per_s: float = 0.0
    expert_nvfp4_fraction: float = 0.0
    expert_nvfp4_core_bytes_per_s: float = 0.0
    expert_served_factor: float = 1.0  # of these shares, what experts reach while requests are served
    uncertain_ratio: float = 1.0  # by how much its times may be off where they are estimates; 1: its own, measured
    timed: bool = False  # its host times were measured on this chip family, with this release or an earlier one
    measured_version: str = ""  # the newest measured release at or below this one; empty: none
    releases_since: int = 0  # releases of the framework after that one, up to this one
    source: str = ""


DERIVED = ("timed", "measured_version", "releases_since", "source")  # of an Overhead: no scope has them
Scopes = Mapping[str, Mapping[str, float | str]]
BASES = ("datasheet", "relative", "measured")
TRAINING = "training"  # scope of the figures that only training reads; training:family:hopper has those of a family


EXPERT_FORMATS = ("bf16", "fp8", "fp8_block", "int4", "mxfp4", "mxfp4_fp8", "nvfp4")
# defaults of figures that are optional for frameworks
UNMEASURED = {
    **{f"expert_{name}_fraction": 0.0 for name in EXPERT_FORMATS},
    **{f"expert_{name}_core_bytes_per_s": 0.0 for name in EXPERT_FORMATS},
    "expert_served_factor": 1.0,
    "odd_matmul_fraction": 1.0,
    "odd_read_fraction": 1.0,
    "misaligned_matmul_fraction": 1.0,
    "misaligned_read_fraction": 1.0,
    "far_reduce_s": 0.0,
    "training_factor": 1.0,
    "overlap_slowdown_fraction": 0.18,
    "host_factor": 1.0,
    "collective_host_s": 0.0,
    "parallel_prepare_s": 0.0,
    "kv_fraction": 1.0,
    "kv_8_fraction": 1.0,
    "slow_share": 0.0,
    "slow_ratio": 1.0,
    "indexer_factor": 1.0,
    "uncompiled_s_per_layer": 0.0,
    "ngram_s": 0.0,
    "ngram_s_per_sequence": 0.0,
    "adapter_kernel_s": 0.0,
    "further_adapter_s": 0.0,
    "http_s_per_sequence": 0.0,
    "draft_s_per_layer": 0.0,
    "adapter_launch_s": 0.0,
    "kernel_factor": 1.0,
    "core_flops_per_s": 0.0,
    "vector_rows": 0.0,
    "tile_wave_fraction": 0.0,
    "uncertain_ratio": 1.0,
}


def _merge(scopes: Scopes, names: tuple[str, ...], wanted: tuple[str, ...]) -> dict[str, float]:
    values = {k: v for k, v in UNMEASURED.items() if k in wanted}
    for name in names:
        values.update({k: float(v) for k, v in scopes.get(name, {}).items() if k in wanted})
    missing = [k for k in wanted if k not in values]
    if missing:
        raise ValueError(f"calibration has no {', '.join(missing)} in any of {', '.join(names)}: load the catalog")
    return values


def efficiency(scopes: Scopes, slug: str, family: str, kind: str) -> Efficiency:
    """Efficiency of a chip: each figure from the narrowest scope that has it (chip, family, kind, default).

    ValueError if no scope has a figure.
    """
    own = (f"kind:{kind}", f"family:{family}", f"accelerator:{slug}")
    names = ("default", *own)
    wanted = tuple(f.name for f in fields(Efficiency) if f.name not in ("training", "basis", "source"))
    basis = BASES[0]
    for name in names:
        if name in scopes:
            basis = max(basis, str(scopes[name].get("basis", BASES[0])), key=BASES.index)
    source = "; ".join(str(scopes[n]["source"]) for n in names if "source" in scopes.get(n, {}))
    return Efficiency(
        **_merge(scopes, names, wanted), training=_training_efficiency(scopes, own), basis=basis, source=source
    )


def _training_efficiency(scopes: Scopes, own: tuple[str, ...]) -> TrainingEfficiency | None:
    """Figures of training, from scopes like those of serving; the expert factor is fitted to serving frameworks."""
    if TRAINING not in scopes:
        return None
    names = ("framework", TRAINING, *(f"{TRAINING}:{name}" for name in own))
    return TrainingEfficiency(**_merge(scopes, names, tuple(f.name for f in fields(TrainingEfficiency))))


def with_host_factor(scopes: Scopes, factor: float, everywhere: bool = False) -> Scopes:
    """The scopes with this host factor by default; `everywhere`: also for chips on whose hosts it was measured."""
    given = {"default": {**scopes.get("default", {}), "host_factor": factor}}
    if everywhere:
        given |= {k: {**v, "host_factor": factor} for k, v in scopes.items() if "host_factor" in v and k != "default"}
    return {**scopes, **given}


def overhead_scopes(
    scopes: Scopes, framework: str, version: str, family: str = "", kind: str = "", slug: str = ""
) -> tuple[str, ...]:
    """Scopes of the figures of a framework, from the widest to the narrowest, whether or not they exist."""
    own = f"framework:{framework}"
    stored = [v for v in {name[len(own) + 1 :].split(":")[0] for name in scopes if name.startswith(f"{own}:")} if v]
    below = at_or_below(stored, version)
    versions, on_family = [f"{own}:{v}" for v in below], [f"{own}:{v}:{family}" for v in below]
    wide = ("framework", own, *versions, f"{own}:{kind}", f"{own}:{family}")
    if not slug:
        return (*wide, *on_family)
    chip = f"accelerator:{slug}"
    return (*wide, f"{own}:{chip}", *on_family, *(f"{own}:{v}:{chip}" for v in below))


def overhead(
    scopes: Scopes, framework: str, version: str, family: str = "", kind: str = "", slug: str = ""
) -> Overhead:
    """Overhead of a framework: each figure from the narrowest scope that has it.

    Scopes: newest version at or below this one on a chip family, older ones there, framework on a chip, on its family,
    on its kind, newest version, older ones, framework, default: a release was measured on other chips. The default has
    no host time of a layer, so that no framework takes another's. ValueError if none has a figure.
    """
    own, names = f"framework:{framework}", overhead_scopes(scopes, framework, version, family, kind, slug)
    wanted = tuple(f.name for f in fields(Overhead) if f.name not in DERIVED)
    measured, since = measured_release(scopes, framework, version)
    sources = [str(scopes[n]["source"]) for n in names if "source" in scopes.get(n, {})]
    if since:
        sources.append(f"newest measured release {measured}, {since} before {version}")
    return Overhead(
        **_merge(scopes, names, wanted),
        timed=bool(family) and any(n in scopes and n.endswith(f":{family}") for n in names if n != f"{own}:{family}"),
        measured_version=measured,
        releases_since=since,
        source="; ".join(sources),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Partition:
    """One way to partition a chip into equal, isolated instances; fractions are of the whole chip, for ONE instance.

    SMs and memory slices that no instance gets are lost, so instances x fraction may be below 1.
    """

    way: str  # MIG | CPX/NPS4 ...
    profile: str
    instances: int
    memory_bytes: float
    bandwidth_fraction: float
    compute_fraction: float
    cores: int
    sram_fraction: float
    compute_slices_fraction: float = 0.0  # of the slices that profiles can be mixed in; 0: equal instances only
    memory_slices_fraction: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class SocketShare:
    """The part of a processor's sockets that an instance rents; the same for every socket of the instance."""

    cores: int  # of the instance, on one socket
    socket_cores: int  # of the whole socket
    sockets: int
    memory_bytes: float  # of the instance, on one socket
    reserved_cores: int = 0  # of `cores`, for the server process, its tokenizer and the operating system

    @property
    def serves(self) -> bool:
        """Whether a core is left for the model."""
        return self.cores > self.reserved_cores

    @property
    def fraction(self) -> float:
        """Of the socket's cores, and so of its memory bandwidth, cache and power."""
        return min(self.cores / self.socket_cores, 1.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Accelerator:
    slug: str
    name: str
    vendor: str
    family: str
    kind: str  # gpu | tpu | npu | cpu | lpu | wafer | rdu | fpga | apple | edge
    memory_bytes: float
    memory_bytes_per_s: float
    flops_per_s: Mapping[str, float]  # dense, by dtype; an absent dtype is unsupported
    cores: int
    sram_bytes: float
    watts: float
    idle_watts: float
    links: tuple[Link, ...]
    stacks: tuple[str, ...]
    chips_per_host: int
    pcie_bytes_per_s: float
    chassis: str = ""  # computer: it is one itself | workstation | server (a passive card); empty: a module or socket
    devices: int = 1  # devices that its software stack shows per accelerator: dies of a package, logical cores
    device_name: str = ""  # its name in its own serving software
    kubernetes_resource: str = ""  # its name in the vendor's device plugin; empty: unknown
    kubernetes_devices: int = 1  # devices that the plugin counts per accelerator
    kubernetes_note: str = ""  # further requirements of a node
    container: Mapping[str, Any] = field(default_factory=dict)  # keys of a Compose service that give access to it
    served: bool = True  # False: sold only as an API or a system, or runs no LLM stack
    not_served_reason: str = ""
    release_year: int = 0  # 0: unknown
    market: str = ""  # consumer: not for data centers; empty: any use
    market_terms: str = ""  # what the vendor's terms say about it
    partitions: tuple[Partition, ...] = ()  # supported hardware partitions
    cut: Partition | None = None  # if set, memory, rates and cores are those of one instance, power is the chip's
    share: SocketShare | None = None  # if set, everything is of this part of one socket

    @property
    def instances(self) -> int:
        """Hardware instances that it is partitioned into; 1: not partitioned."""
        return self.cut.instances if self.cut else 1


def cut_into(a: Accelerator, p: Partition) -> Accelerator:
    """One instance of a partitioned chip; price and power stay those of the chip, and instances have no links."""
    return replace(
        a,
        name=f"{a.name} cut into {p.instances} x {p.profile}",
        memory_bytes=p.memory_bytes,
        memory_bytes_per_s=a.memory_bytes_per_s * p.bandwidth_fraction,
        flops_per_s={dtype: rate * p.compute_fraction for dtype, rate in a.flops_per_s.items()},
        cores=p.cores,
        sram_bytes=a.sram_bytes * p.sram_fraction,
        links=(),
        chips_per_host=1,
        pcie_bytes_per_s=a.pcie_bytes_per_s / p.instances,
        partitions=(),
        cut=p,
    )
