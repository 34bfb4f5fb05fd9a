"""What a chip is: rates, memory and links in SI, and how much of each its kernels reach."""

from collections.abc import Mapping
from dataclasses import dataclass, field


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
    """Reached shares of a chip's roofs; `basis` says what they rest on."""

    basis: str = "datasheet"  # measured | relative | datasheet
    values: Mapping[str, float] = field(default_factory=dict)  # parameter name -> value, see step.DEFAULTS
    source: str = ""


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
    served: bool = True  # False: bought as an API or a system, or runs no LLM stack
    not_served_reason: str = ""
    efficiency: Efficiency = Efficiency()
