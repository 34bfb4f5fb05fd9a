"""What a planner asks of a deployment: token lengths, service levels, constraints."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from advisor.engine.spec.demand import Trace, Users
from advisor.engine.spec.kinds import Kind


@dataclass(frozen=True, kw_only=True, slots=True)
class Lengths:
    """Token lengths of a request part: constant (p95 == mean), or log-normal with this mean and 95th percentile."""

    mean_tokens: float
    p95_tokens: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Slo:
    """Service levels at the 95th percentile; None: not asked."""

    ttft_p95_s: float | None = None
    tpot_p95_s: float | None = None
    e2e_p95_s: float | None = None
    tokens_per_s_per_user: float | None = None
    spare_replicas: int = 0  # availability n+1 -> 1
    doubled: bool = False  # availability 2n: as many again

    def spares(self, carrying: Any) -> Any:
        """Spare replicas beside so many (a number, or an array of numbers) that carry the peak."""
        return carrying if self.doubled else self.spare_replicas


@dataclass(frozen=True, kw_only=True, slots=True)
class Constraints:
    accelerators_allow: tuple[str, ...] = ()
    accelerators_deny: tuple[str, ...] = ()
    vendors_allow: tuple[str, ...] = ()
    vendors_deny: tuple[str, ...] = ()
    providers_allow: tuple[str, ...] = ()
    providers_deny: tuple[str, ...] = ()
    regions_allow: tuple[str, ...] = ()
    regions_deny: tuple[str, ...] = ()
    frameworks_allow: tuple[str, ...] = ()
    frameworks_deny: tuple[str, ...] = ()
    formats_allow: tuple[str, ...] = ()  # of weights
    formats_deny: tuple[str, ...] = ()
    kv_formats_allow: tuple[str, ...] = ()
    kv_formats_deny: tuple[str, ...] = ()
    acquisition: tuple[str, ...] = ("rent",)
    quality: str = "near_lossless"  # lossless | near_lossless | any
    partitions: str = "auto"  # hardware instances of a chip: no | auto (told beside) | yes (ranked too) | required
    max_accelerators: int | None = None
    max_usd_per_month: float | None = None
    bound_factor: float | None = None  # the limit above is this many times the cheapest that holds, not the planner's
    inventory_chips: Mapping[str, int] = field(default_factory=dict)  # accelerator -> what can be had; absent: any
    max_watts: float | None = None  # of the site, all chips busy, PUE included
    max_rack_watts: float | None = None  # that one rack feeds, before PUE
    cooling: str = "any"  # any | air | liquid: what the site has


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    name: str
    kind: Kind
    input_tokens: Lengths
    output_tokens: Lengths
    requests_per_s_mean: float
    requests_per_s_peak: float
    prefix_cache_hit_fraction: float
    slo: Slo
    constraints: Constraints
    objective: str = "cost"
    weights: tuple[tuple[str, float], ...] = ()  # of `balanced`, over the defaults of scores.py
    team: tuple[tuple[str, int], ...] = ()  # (stack, level 0..5)
    horizon_months: int = 36
    discount_fraction: float = 0.08
    deadline_s: float | None = None  # then the peak rate is the one that finishes in time
    users: Users | None = None  # then the rates above are their limit, and each design has its own
    trace: Trace | None = None  # finalists are simulated under it too
    week: tuple[float, ...] = ()  # load of each hour as a share of the busiest; empty: flat
    cold_start_s: float = 0.0  # from asking for an instance until it serves
    growth_fraction_per_year: float = 0.0
    source_tokens: Lengths | None = None  # of an encoder-decoder; its input tokens are then the decoder's start
    variants: str = "show"  # drafts and pools apart: show beside the finalists | adopt what is better | no
    drafts: bool = True  # tried among the variants
    apart: bool = True  # pools of their own for prefill and decode tried among them
    host_cache_hit_fraction: float | None = None  # of a prompt, beside the share found on the chip; None: not stated
    # what the tokens are for, see Task of the workload file: how well drafts hold, what a format may cost
    task: str = "any"

    @property
    def given_tokens(self) -> float:
        """Mean tokens that a request brings, whichever part of the model reads them."""
        return (self.source_tokens or self.input_tokens).mean_tokens
