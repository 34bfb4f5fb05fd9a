"""What an option's instance has besides its accelerators."""

from typing import Annotated

from advisor.result.base import Count, Gib, Seconds, Section, Unit, UsdPerMonth

Gigabytes = Annotated[float, Unit("GB")]
GbitPerSecond = Annotated[float, Unit("Gbit/s")]


class Host(Section):
    """The host of one instance, and what it takes to bring the weights to it."""

    memory_gib: Gib
    """Host memory; of a processor that serves the model itself, all the memory of the instance."""
    cores: Count
    """Physical cores."""
    sockets: Count
    """Processor sockets."""
    numa_nodes: Count
    """NUMA nodes."""
    local_disk_gb: Gigabytes
    """Drives inside the host; 0: none, or none known."""
    network_gbit_per_s: GbitPerSecond
    """Network bandwidth."""
    assumed: list[str]
    """Names of the figures above that no source states for this instance: defaults derived from its accelerators."""
    source: str
    """Where the figures were read."""
    checkpoint_gb: Gigabytes | None = None
    """Weights of one replica in the chosen format."""
    weights_on: str = ""
    """local disk or network volume."""
    volume_usd_per_month: UsdPerMonth | None = None
    """Network volumes of all instances, not included in the cost; null: the weights fit on the local disk."""
    download_s: Seconds | None = None
    """Time until a new instance has the weights: the slowest of model hub, network and network volume."""
