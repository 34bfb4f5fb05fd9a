"""KV cache offloading: evicted prefix-cache blocks are kept in host memory and copied back instead of recomputed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from advisor.engine.terms import Accelerator, Framework, Workload


@dataclass(frozen=True, kw_only=True, slots=True)
class HostCopy:
    """Achieved fraction of the link's rate for large copies from pinned host memory."""

    rate_fraction: float
    source: str


def host_copy_of(rows: Mapping[str, Mapping[str, Any]]) -> HostCopy | None:
    """From the assumptions by key; None without it."""
    row = rows.get("host-copy-fraction")
    return HostCopy(rate_fraction=row["value"], source=row["source"]) if row else None


def refusal(workload: Workload, f: Framework, a: Accelerator, copies: HostCopy | None) -> str:
    """Why KV offloading is not estimated; empty: it is."""
    if not f.host_cache_option:
        return f"{f.name} {f.version} has no known option to offload evicted cache blocks to host memory"
    if a.kind != "gpu" or not a.pcie_bytes_per_s > 0 or copies is None:
        return "the bandwidth between this chip and host memory is unknown"
    if workload.host_cache_hit_fraction is None:
        return "needs traffic.host_cache_hit_rate, the fraction of a prompt found in host memory after eviction"
    if workload.host_cache_hit_fraction == 0:
        return "the workload states no hits in host memory (traffic.host_cache_hit_rate: 0)"
    return ""


def copies_s(prompt_bytes: float, from_host: float, on_chip: float, bytes_per_s: float) -> tuple[float, float]:
    """(seconds to load the part of a prompt's cache that is in host memory, seconds to store the newly computed part).

    prompt_bytes: cache of a whole prompt on one chip; from_host, on_chip: fractions of the prompt found there;
    bytes_per_s: of one chip's link, per direction, both directions at once.
    """
    computed = max(1.0 - on_chip - from_host, 0.0)
    return prompt_bytes * from_host / bytes_per_s, prompt_bytes * computed / bytes_per_s
