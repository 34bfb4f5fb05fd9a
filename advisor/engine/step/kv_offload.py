"""A prefix cache that goes on in the host's memory: what left the chip comes back over the link, not by prefill."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from advisor.engine.spec import Accelerator, Framework, Workload


@dataclass(frozen=True, kw_only=True, slots=True)
class HostCopy:
    """What large copies from pinned host memory reach of the link's rate."""

    rate_fraction: float
    source: str


def host_copy_of(rows: Mapping[str, Mapping[str, Any]]) -> HostCopy | None:
    """From the assumptions of a snapshot; None in those from before it was one."""
    row = rows.get("host-copy-fraction")
    return HostCopy(rate_fraction=row["value"], source=row["source"]) if row else None


def refusal(workload: Workload, f: Framework, a: Accelerator, copies: HostCopy | None) -> str:
    """Why a cache in the host's memory is not estimated; empty: it is."""
    if not f.host_cache_option:
        return f"{f.name} {f.version} is not known to keep evicted blocks in the host's memory"
    if a.kind != "gpu" or not a.pcie_bytes_per_s > 0 or copies is None:
        return "no rate between this chip and its host's memory is known"
    if workload.host_cache_hit_fraction is None:
        return "needs a figure: traffic.host_cache_hit_rate, the share of a prompt that comes back after it was evicted"
    if workload.host_cache_hit_fraction == 0:
        return "the workload states that nothing comes back (traffic.host_cache_hit_rate: 0)"
    return ""


def copies_s(prompt_bytes: float, from_host: float, on_chip: float, bytes_per_s: float) -> tuple[float, float]:
    """(seconds to load what the host holds of a prompt, seconds to keep there what was computed anew).

    prompt_bytes: cache of a whole prompt on one chip; from_host, on_chip: shares of the prompt found there;
    bytes_per_s: of one chip's link, one way each at once.
    """
    anew = max(1.0 - on_chip - from_host, 0.0)
    return prompt_bytes * from_host / bytes_per_s, prompt_bytes * anew / bytes_per_s
