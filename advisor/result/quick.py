"""The ranking by closed formulas alone: what `advise --quick`, `POST /api/v1/quick` and the what-if form return."""

from typing import Any

from advisor.result.base import (
    Chips,
    Count,
    Fraction,
    Gib,
    Milliseconds,
    Section,
    Tokens,
    TokensPerSecond,
    UsdPerMonth,
    UsdPerMtok,
    Watts,
)

ESTIMATED = "analytical estimate, not simulated"
PUBLISHED = "published, not estimated"


class QuickMemory(Section):
    """Memory of one accelerator, as the framework uses it."""

    weights_gib: Gib
    """Weights, with resident adapters."""
    kv_gib: Gib
    """KV cache of the requests that run at the peak."""
    other_gib: Gib
    """Activations and the framework's own memory."""
    free_gib: Gib
    """Left for more requests."""
    requests_that_fit: Count
    """Concurrent requests whose KV cache fits, all replicas without spares together."""
    context_tokens: Tokens
    """Mean prompt and answer that this counts for each."""

    @property
    def used_gib(self) -> float:
        return self.weights_gib + self.kv_gib + self.other_gib

    @property
    def limit_gib(self) -> float:
        return self.used_gib + self.free_gib


class QuickOption(Section):
    """One deployment or hosted API. Latencies are estimates at the peak; a full answer simulates them."""

    rank: Count | None
    """Place by the objective, from 1; null: over a latency limit by the estimate."""
    mark: str
    """How the figures are known: estimated by closed formulas, or published."""
    label: str
    """The option in one line."""
    accelerator: str | None
    """Catalog name of the accelerator; null: the provider of an API does not publish it."""
    accelerator_name: str
    """Display name."""
    vendor: str
    """Maker of the accelerator; empty: not known."""
    accelerator_count: Chips | None
    """Accelerators of all replicas; null for a hosted API."""
    provider: str
    """Who rents or sells it; own: bought; owned: already there."""
    instance: str
    """Name of the instance, server or endpoint."""
    region: str
    """Region of the price."""
    acquisition: str
    """rent, own or api."""
    term: str
    """on_demand, spot, reserved_1y, reserved_3y, capacity_block, purchase, owned or per_token."""
    price_as_of: str
    """Date of the price."""
    price_weakness: str = ""
    """Why nobody should sign at this price; empty: nothing is known."""
    sold_out_on: str = ""
    """Date on which the offer was sold out at its last reading, at most 30 days old; empty: available, or not known."""
    layout: str
    """Weight format, parallel sizes, framework and draft."""
    replicas: Count | None
    """Replicas, spares included."""
    concurrency: Count | None
    """Requests in flight on one replica."""
    tokens_per_s_per_accelerator: TokensPerSecond | None
    """Generated tokens (read tokens of embeddings) at the mean load, for each accelerator."""
    tokens_per_s_per_user: TokensPerSecond | None
    """1 / TPOT p95; of an API, its published speed."""
    ttft_ms_p95: Milliseconds | None
    """Estimated p95 time to first token (of embeddings: latency); of an API, its published median."""
    tpot_ms_p95: Milliseconds | None
    """Estimated p95 time per output token; of an API, at its published speed."""
    usd_per_month: UsdPerMonth
    """The cheapest offer for the whole horizon, with the minimum team and the provider's services; no dated plan."""
    usd_per_mtok_blended: UsdPerMtok | None
    """The same per million tokens, input and output together."""
    watts: Watts | None
    """Mean power with hosts and cooling; null: not published."""
    kgco2e_per_month: float | None
    """Emissions of that power at the mean carbon intensity of the region, kg CO2e per month."""
    memory: QuickMemory | None
    """Memory of one accelerator; null for a hosted API."""
    meets_slo: bool | None
    """Whether the estimate is within every latency limit; null: not published."""
    over_limit_fraction: Fraction | None = None
    """How far the worst latency is over its limit; null: it is within the limits."""
    basis: str
    """Evidence for the speed of the accelerator: measured, relative, datasheet or published."""


class QuickOwned(Section):
    """Machines that the question says are already owned, on their own."""

    accelerator: str
    """Catalog name."""
    accelerator_name: str
    """Display name."""
    accelerator_count: Chips
    """Accelerators owned."""
    suffices: bool
    """Whether they alone meet every limit by the estimate."""
    detail: str
    """What they cost, or what is missing."""
    usd_per_month: UsdPerMonth | None
    """Cost of running them; null: they do not suffice."""


class QuickRejection(Section):
    """An accelerator that is not ranked."""

    accelerator: str
    """Catalog name."""
    reason: str
    """excluded, unpriced, unsupported, does_not_fit, misses_slo or over_budget."""
    detail: str
    """The reason in words."""


class QuickRanking(Section):
    """The whole catalog ranked by closed formulas, without simulation, plans, launch files and documents."""

    workload: dict[str, Any]
    """The question, with defaults filled in."""
    mark: str = ESTIMATED
    """What every figure of a deployment is."""
    engine_version: str
    """Version of the engine."""
    catalog_version: str
    """Version of the catalog."""
    prices_as_of: str | None
    """Date of the newest price."""
    objective: str
    """What the ranks follow."""
    options: list[QuickOption]
    """Best first: the best deployment of each accelerator, owned machines alone, and hosted APIs."""
    missed: list[QuickOption]
    """The best deployments that the estimate puts over a latency limit, the nearest first; without a rank."""
    owned: list[QuickOwned]
    """Machines that the question says are owned."""
    rejected: list[QuickRejection]
    """Every other accelerator and hosted API, with the reason."""
    candidates: Count
    """Combinations of accelerator, offer, layout, formats, framework and batch size that were compared."""
    bound_usd_per_month: UsdPerMonth | None = None
    """Price bound that applies because the objective ignores the price and no budget was set."""
