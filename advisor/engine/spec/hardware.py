"""What a chip is: rates, memory and links in SI; and what its kernels and a framework make of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Link:
    """One tier of interconnect, near to far; bytes_per_s is per chip and one direction, over all its links."""

    name: str
    bytes_per_s: float
    latency_s: float
    chips: int  # how many chips it reaches at that rate
    topology: str = "switch"  # switch | mesh | torus | ring | host


@dataclass(frozen=True, kw_only=True, slots=True)
class Efficiency:
    """What kernels reach on one chip: shares of its roofs and fixed costs, fitted or measured, never typed here."""

    memory_fraction: float  # of the datasheet bandwidth, large reads
    matmul_16_fraction: float  # of the dense peak, large sustained matrix multiplies
    matmul_8_fraction: float
    matmul_4_fraction: float
    matrix_factor: float  # on all three: what a kind of chip keeps of them in whole models
    block_8_fraction: float  # FP8 with 128x128 block scales against one scale per tensor or row
    weight_only_fraction: float  # narrow weights widened before the multiply, against native kernels
    expert_fraction: float  # grouped GEMM against a dense one
    routing_evenness: float  # how evenly tokens spread over experts: large is even, 1 is strongly uneven
    attention_fraction: float  # prefill attention, of the dense 16-bit peak
    wave_fraction: float  # of a part-filled wave of tiles that is felt: 1 all, 0 none (kernels split K or go on)
    roof_exponent: float  # how well compute and memory overlap inside a kernel (1: not, inf: a sharp roofline)
    kernel_s: float  # start and tail of one kernel inside a captured graph
    sequence_head_bytes: float  # decode attention's fixed cost per sequence and head, as bytes read
    sample_bytes_per_logit: float  # logits, their fp32 copies, sampling
    quantize_kernels: float  # extra kernels per matrix whose input is quantized on the fly
    quantize_bytes: float  # that quantizing one activation moves beyond the kernel it is fused with
    link_fraction: float  # of the scale-up link, large messages
    far_link_fraction: float
    collective_s: float  # fixed cost of one collective inside the domain
    far_collective_s: float
    hop_s: float  # added per doubling of the chips in a collective
    collective_knee_bytes: float  # size around which messages are too small for the link's rate
    basis: str = "datasheet"  # measured | relative | datasheet
    source: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Overhead:
    """What one framework version adds to the device's time, and how good its kernels are against the chip's best."""

    host_s: float  # per step, hidden behind the device
    host_s_per_sequence: float
    serial_s: float  # per step, not hidden
    serial_s_per_sequence: float
    request_s: float  # from the caller to the scheduler, without a server in front
    http_s: float  # tokenizer, HTTP server and its queue, where there are such
    prepare_s: float  # host time before the first layer of a prompt's step, which other steps hide
    pieces_s_per_layer: float  # host time to launch one layer of it where graphs hold all but its attention
    eager_s_per_layer: float  # host time to launch one layer outside captured graphs
    eager_s_per_expert_layer: float
    matmul_factor: float
    memory_factor: float
    core_bytes_per_s: float  # most that its kernels read per core of the chip; 0 or large: they fill the memory
    prefill_factor: float  # attention kernels in prefill
    tile_tokens: float  # rows of a tile of its products with a scale for each row; 0: they do not work in whole ones
    expert_factor: float  # its grouped GEMM at many tokens
    collective_factor: float  # fixed cost of its collectives (fused, one-shot) against the library's
    one_shot_s: float  # start of its own one-shot all-reduce inside the domain; large: it has none
    acceptance_fraction: float  # of drafted tokens, multi-token prediction
    kv_8_fraction: float = 1.0  # of the memory's rate, decode attention over keys and values of 8 bits; 1: unmeasured
    uncompiled_s_per_layer: float = 0.0  # host time of one layer that is neither compiled nor in a graph
    ngram_s: float = 0.0  # that a verifying step waits for the search of n-grams in prompts
    ngram_s_per_sequence: float = 0.0
    adapter_kernel_s: float = 0.0  # fixed cost of a kernel of an adapter
    further_adapter_s: float = 0.0  # and for each further adapter in the batch
    source: str = ""


Scopes = Mapping[str, Mapping[str, float | str]]
BASES = ("datasheet", "relative", "measured")


# figures that frameworks may leave out and older snapshots do not have
UNMEASURED = {
    "kv_8_fraction": 1.0,
    "uncompiled_s_per_layer": 0.0,
    "ngram_s": 0.0,
    "ngram_s_per_sequence": 0.0,
    "adapter_kernel_s": 0.0,
    "further_adapter_s": 0.0,
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
    """The narrowest calibration wins, figure by figure: chip, its family, its kind, the default."""
    names = ("default", f"kind:{kind}", f"family:{family}", f"accelerator:{slug}")
    wanted = tuple(f.name for f in fields(Efficiency) if f.name not in ("basis", "source"))
    basis = BASES[0]
    for name in names:
        if name in scopes:
            basis = max(basis, str(scopes[name].get("basis", BASES[0])), key=BASES.index)
    source = "; ".join(str(scopes[n]["source"]) for n in names if "source" in scopes.get(n, {}))
    return Efficiency(**_merge(scopes, names, wanted), basis=basis, source=source)


def overhead(scopes: Scopes, framework: str, version: str, family: str = "") -> Overhead:
    """The narrowest calibration wins: framework at its version on a family of chips, at its version, at its major
    version, framework, the default."""
    own = f"framework:{framework}"
    names = ("framework", own, f"{own}:{version.split('.')[0]}", f"{own}:{version}", f"{own}:{version}:{family}")
    wanted = tuple(f.name for f in fields(Overhead) if f.name != "source")
    source = "; ".join(str(scopes[n]["source"]) for n in names if "source" in scopes.get(n, {}))
    return Overhead(**_merge(scopes, names, wanted), source=source)


@dataclass(frozen=True, kw_only=True, slots=True)
class Partition:
    """One way to cut a chip into equal instances that share nothing; the shares are of the whole chip, of ONE of them.

    What is left over (SMs and memory slices that no instance gets) is lost: instances x share may stay below 1.
    """

    way: str  # MIG | CPX/NPS4 ...
    profile: str
    instances: int
    memory_bytes: float
    bandwidth_fraction: float
    compute_fraction: float
    cores: int
    sram_fraction: float
    compute_slices_fraction: float = 0.0  # that an instance takes of what profiles can be mixed in; 0: equal parts only
    memory_slices_fraction: float = 0.0


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
    devices: int = 1  # that its software stack counts for one: halves of a package, logical cores
    device_name: str = ""  # what its own serving software calls it
    kubernetes_resource: str = ""  # what the vendor's device plugin calls it; empty: unknown
    kubernetes_devices: int = 1  # that the plugin counts for one
    kubernetes_note: str = ""  # what a node needs besides
    container: Mapping[str, Any] = field(default_factory=dict)  # keys of a Compose service that reach it
    served: bool = True  # False: bought as an API or a system, or runs no LLM stack
    not_served_reason: str = ""
    partitions: tuple[Partition, ...] = ()  # ways in which hardware cuts it
    cut: Partition | None = None  # then memory, rates and cores above are those of one instance; power of the chip

    @property
    def instances(self) -> int:
        """Hardware instances that it is cut into; 1: whole."""
        return self.cut.instances if self.cut else 1


def cut_into(a: Accelerator, p: Partition) -> Accelerator:
    """One instance of the chip, bought and powered as the whole chip; instances have no links to one another."""
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
