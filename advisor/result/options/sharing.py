"""Parts of an accelerator, LoRA adapters, and mixes of machines."""

from typing import Annotated

from pydantic import Field

from advisor.result.base import (
    Chips,
    Count,
    Fraction,
    Gib,
    Mib,
    Milliseconds,
    PerSecond,
    Section,
    Tokens,
    UsdPerHour,
    UsdPerMonth,
)
from advisor.result.options.option import Partition, Purchase, Setup


class SharingWay(Section):
    """One way to use the card: whole, hardware instances or time slices."""

    way: str
    """In words."""
    kind: str
    """whole, hardware or time-slices."""
    partition: Partition | None
    """The instances; null: the whole card."""
    isolation: str
    """What one engine's neighbors can do to it."""
    meets_slo: bool
    """Whether it holds the limits."""
    reason: str
    """Why it does not."""
    accelerator_count: Chips | None
    """Accelerators needed."""
    usd_per_month: UsdPerMonth | None
    """Total cost."""
    requests_per_s_per_accelerator: PerSecond | None
    """Capacity of one accelerator within the limits."""
    ttft_ms_p95: Milliseconds | None
    """p95 time to first token."""
    tpot_ms_p95: Milliseconds | None
    """p95 time per output token."""
    kv_capacity_tokens: Tokens | None
    """KV cache of one engine."""


class Sharing(Section):
    """The first choice's card as a whole and in parts."""

    accelerator: str
    """Catalog name."""
    accelerator_name: str
    """Display name."""
    said: str
    """The comparison in words."""
    ways: list[SharingWay]
    """The whole card first."""


class MergedCopies(Section):
    """One deployment of merged weights for each adapter instead."""

    each: str | None
    """The deployment of one copy; null: none holds the limits."""
    deployments: Count
    """Copies."""
    usd_per_month: UsdPerMonth | None
    """Cost of all copies."""
    side_by_side: Count
    """Copies that fit on one card by memory."""
    packed_usd_per_month_at_least: UsdPerMonth | None
    """Cost when that many share a card."""


class Adapters(Section):
    """LoRA adapters served beside one base model."""

    count: Count
    """Adapters of the workload."""
    rank: Count
    """LoRA rank."""
    served_rank: Count
    """Rank that the server reserves."""
    active: Count
    """Adapters in accelerator memory at a time."""
    targets: str
    """Adapted layers: attention or all."""
    merged: MergedCopies | None
    """Merged copies instead; null: not computed."""
    mib_each_per_accelerator: Mib | None = None
    """Size of one adapter on an accelerator; absent without an option."""
    resident_gib_per_accelerator: Gib | None = None
    """All active adapters."""
    host_gib_per_accelerator: Gib | None = None
    """All adapters in host memory."""
    decode_step_fraction: Fraction | None = None
    """Their share of a decode step."""
    said: str
    """The comparison in words."""


class LengthClass(Section):
    """Prompt lengths, and which share of them goes to this part of a mix."""

    from_tokens: Annotated[Tokens | None, Field(alias="from")]
    """Shortest prompt."""
    below: Tokens | None
    """Prompts are shorter than this; null: no upper end."""
    share_of_requests: Fraction | None
    """Share of all requests with these lengths."""
    share_here: Fraction | None
    """Share of these that goes here."""


class MixPart(Setup, Purchase):
    """One kind of machine of a mix."""

    term: str
    """Term of the price."""
    spare_replicas: Count
    """Spare replicas."""
    basis: str
    """measured, relative or datasheet."""
    input_tokens: list[LengthClass]
    """Prompts that are routed here."""
    requests_per_s_peak: PerSecond | None
    """Peak of these requests."""
    usd_per_month: UsdPerMonth | None
    """Total cost."""
    ttft_ms_p95: Milliseconds | None
    """p95 time to first token here."""
    tpot_ms_p95: Milliseconds | None
    """p95 time per output token here."""

    def length_ranges(self) -> list[LengthClass]:
        """Its prompt lengths; neighboring classes with the same share here are one range."""
        ranges: list[LengthClass] = []
        for lengths in self.input_tokens:
            last = ranges[-1] if ranges else None
            if last and last.below == lengths.from_tokens and last.share_here == lengths.share_here:
                requests = (last.share_of_requests or 0.0) + (lengths.share_of_requests or 0.0)
                ranges[-1] = last.changed(below=lengths.below, share_of_requests=float(f"{requests:.4g}"))
            else:
                ranges.append(lengths)
        return ranges


class Mix(Section):
    """Several kinds of machines together against the single choice."""

    cheaper: bool
    """Whether a mix costs less."""
    reason: str
    """Why there is no mix; empty: there is one."""
    usd_per_hour: UsdPerHour | None
    """Cost of the mix."""
    usd_per_month: UsdPerMonth | None
    """Cost of the mix."""
    single_usd_per_month: UsdPerMonth | None
    """Cost of the single choice; null: none holds the limits."""
    saving_usd_per_month: UsdPerMonth | None
    """Difference."""
    saving_fraction: Fraction | None
    """Difference over the single choice."""
    proven: bool
    """Whether the solver proved the mix optimal."""
    ttft_ms_p95: Milliseconds | None
    """p95 time to first token over all requests."""
    tpot_ms_p95: Milliseconds | None
    """p95 time per output token over all requests."""
    e2e_ms_p95: Milliseconds | None
    """p95 end-to-end latency over all requests."""
    parts: list[MixPart]
    """The machines; empty: no mix."""
    said: str
    """The comparison in words."""
