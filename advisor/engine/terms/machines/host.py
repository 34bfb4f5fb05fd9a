"""The host around the chips of an instance, and the part of a processor that an instance rents."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from advisor.engine.terms.machines.hardware import Accelerator, SocketShare


@dataclass(frozen=True, kw_only=True, slots=True)
class Host:
    """What an instance has besides its chips; of an instance sold by the chip, one chip's share."""

    memory_bytes: float
    cores: int  # physical
    sockets: int
    numa_nodes: int
    local_disk_bytes: float  # drives inside the host; 0: none
    network_bytes_per_s: float
    assumed: tuple[str, ...] = ()  # fields that no source states
    source: str = ""


def rented_part(a: Accelerator, share: SocketShare) -> Accelerator:
    """One socket's part of a processor, as an instance rents it.

    Compute follows the cores that serve. Memory bandwidth, cache and power are the rented cores' proportional share of
    the socket's: what neighbors on the same socket leave unused is not counted.
    """
    if a.share:
        raise ValueError(f"{a.name} is already a share of a socket")
    fraction, serving = share.fraction, share.cores - share.reserved_cores
    part = f" ({share.cores} of {share.socket_cores} cores)" if fraction < 1.0 else ""
    return replace(
        a,
        name=f"{a.name}{part}",
        memory_bytes=share.memory_bytes,
        memory_bytes_per_s=a.memory_bytes_per_s * fraction,
        flops_per_s={dtype: rate * serving / a.cores for dtype, rate in a.flops_per_s.items()},
        cores=serving,
        sram_bytes=a.sram_bytes * fraction,
        watts=a.watts * fraction,
        idle_watts=a.idle_watts * fraction,
        links=a.links if share.sockets > 1 else (),
        chips_per_host=share.sockets,
        share=share,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightStore:
    """Where an instance gets the weights from, and where it keeps them if its own drives are too small."""

    hub_bytes_per_s: float  # of a download from the model hub
    volume_bytes_per_s: float  # of a network volume
    volume_usd_per_byte_month: float
    offload_fraction: float  # of host memory that offloaded KV blocks may fill

    def keeps_on_volume(self, host: Host, checkpoint_bytes: float) -> bool:
        """Whether the host's own drives are too small for the checkpoint."""
        return host.local_disk_bytes < checkpoint_bytes

    def download_s(self, host: Host, checkpoint_bytes: float) -> float:
        """Seconds until a new instance has the checkpoint: the slowest of hub, network and network volume."""
        rate = min(self.hub_bytes_per_s, host.network_bytes_per_s)
        if self.keeps_on_volume(host, checkpoint_bytes):
            rate = min(rate, self.volume_bytes_per_s)
        return checkpoint_bytes / rate

    def volume_usd_per_month(self, host: Host, checkpoint_bytes: float) -> float:
        """Cost of the network volume of one instance; 0: it needs none."""
        return (
            self.volume_usd_per_byte_month * checkpoint_bytes if self.keeps_on_volume(host, checkpoint_bytes) else 0.0
        )


GB = 1e9


def weight_store_of(rows: Mapping[str, Mapping[str, Any]]) -> WeightStore:
    """From the assumptions by key."""
    return WeightStore(
        hub_bytes_per_s=rows["hub-download-gb-per-s"]["value"] * GB,
        volume_bytes_per_s=rows["network-volume-gb-per-s"]["value"] * GB,
        volume_usd_per_byte_month=rows["network-volume-usd-per-gb-month"]["value"] / GB,
        offload_fraction=rows["kv-offload-host-memory-fraction"]["value"],
    )
