"""What `estimate` and `POST /api/v1/estimate` return for one fixed deployment."""

from advisor.result.base import (
    Bytes,
    Chips,
    Count,
    Fraction,
    Gib,
    JoulesPerToken,
    KgCo2ePerMtok,
    Milliseconds,
    Number,
    Percentiles,
    PerSecond,
    Ratio,
    Section,
    Tokens,
    TokensPerSecond,
    UsdPerHour,
    UsdPerMonth,
    UsdPerMtok,
    Watts,
    WholeTokens,
)
from advisor.result.options.option import (
    Disaggregated,
    Intervals,
    MeasuredCorrection,
    Memory,
    Operator,
    Setup,
    Speculative,
)


class ClosedForm(Section):
    """The same by closed formulas, without simulation; means only."""

    ttft_ms_mean: Milliseconds | None = None
    """Mean time to first token."""
    tpot_ms_mean: Milliseconds | None = None
    """Mean time per output token."""
    ttft_ms_p95: Milliseconds | None = None
    """p95 time to first token; only for an arrival rate."""
    tpot_ms_p95: Milliseconds | None = None
    """p95 time per output token; only for an arrival rate."""
    output_tokens_per_s: TokensPerSecond | None = None
    """Generated tokens."""
    capacity_requests_per_s: PerSecond | None = None
    """Capacity; only for an arrival rate."""


class Latency(Percentiles):
    """A latency over all simulated requests."""

    p90: Milliseconds | None = None
    """90 of 100 requests are at least this fast."""
    p95_bounds: list[Milliseconds | None] | None = None
    """[low, high] of p95, because a finite number of requests is simulated; null: too few requests to say."""


class ClosedEstimate(Setup):
    """The same deployment by closed formulas alone. Fields that both have are equal, but those that follow from
    throughput: here it is that of the closed form."""

    method: str
    """closed_form."""
    model: str
    """Hugging Face ID."""
    accelerator_name: str
    """Display name."""
    moe_tp: Count
    """Tensor-parallel size of the experts."""
    max_batched_tokens: WholeTokens
    """Token budget of a step."""
    isl: Tokens
    """Prompt length."""
    osl: Tokens
    """Output length."""
    client: str
    """steady, burst, poisson or static."""
    seats: Count
    """Maximum number of requests that one scheduler runs at once."""
    rate: PerSecond | None
    """Requests that arrive; null: a closed loop."""
    memory: Memory
    """Memory of an accelerator by part."""
    fits: bool
    """Whether it can be loaded. If not, only memory and warnings are given."""
    usable_gib: Gib | None
    """Memory of an accelerator that the framework may use."""
    kv_bytes_per_token: Bytes | None
    """KV cache of one token on one accelerator."""
    source_kv_bytes_per_sequence: Bytes | None
    """Cross-attention cache of one request on one accelerator."""
    kv_capacity_tokens: Tokens | None
    """KV cache of a replica; null: the model keeps none."""
    closed_form: ClosedForm | None = None
    """Latency and throughput."""
    requests_per_s: PerSecond | None = None
    """Finished requests; absent for embeddings, as are all figures of throughput."""
    output_tokens_per_s_per_accelerator: TokensPerSecond | None = None
    """Generated tokens per accelerator."""
    total_tokens_per_s: TokensPerSecond | None = None
    """Prompt and output tokens."""
    provider: str | None = None
    """Seller of the cheapest current offer that holds it; absent: none does."""
    instance: str | None = None
    """Its instance type or server."""
    region: str | None = None
    """Its region."""
    acquisition: str | None = None
    """rent or own."""
    price_as_of: str | None = None
    """Date of the price."""
    price_source: str | None = None
    """Where the price was read."""
    usd_per_hour: UsdPerHour | None = None
    """Total cost; null: no current offer holds it."""
    usd_per_month: UsdPerMonth | None = None
    """Total cost of a month."""
    usd_per_mtok_blended: UsdPerMtok | None = None
    """Cost of a million tokens."""
    warnings: list[str]
    """What to check."""
    basis: str
    """measured, relative or datasheet."""
    engine_version: str
    """Version of the estimate."""


class AblationStep(Section):
    """Estimated figures after one more optimization."""

    step: str
    """What was added."""
    output_tokens_per_s: TokensPerSecond | None
    """Output throughput."""
    ttft_ms: Milliseconds | None
    """Mean time to first token."""
    tpot_ms: Milliseconds | None
    """Mean time per output token."""


class Ablation(Section):
    """What `manage.py waterfall` returns: one deployment, optimized step by step."""

    model: str
    """Hugging Face ID."""
    accelerator: str
    """Accelerator, for people."""
    framework: str
    """Serving framework and release."""
    isl: Tokens
    """Prompt length."""
    osl: Tokens
    """Output length."""
    users: Number
    """Users at a time."""
    acceptance: str | None
    """Acceptance rate of drafted tokens and its source; null: no drafts."""
    steps: list[AblationStep]
    """From naive to fully optimized."""


class MeasuredRow(Section):
    """A measured figure near this deployment, and what is predicted there."""

    id: str
    """Key of the row."""
    accelerator: str
    """Catalog name."""
    accelerator_count: Chips | None
    """Accelerators."""
    model: str
    """Hugging Face ID."""
    framework: str
    """Serving framework."""
    framework_version: str
    """Release; empty: not stated."""
    weights_dtype: str
    """Weight format."""
    layout: str
    """Parallel layout."""
    isl: Tokens
    """Prompt length."""
    osl: Tokens
    """Output length."""
    concurrency: Number | None
    """Requests in flight; null: not stated."""
    distance: Number
    """0: the same run."""
    near: bool
    """Whether it is near enough to say something."""
    metric: str
    """What was measured."""
    measured: Number | None
    """Measured value."""
    predicted: Number | None
    """Predicted value."""
    error_fraction: Fraction | None
    """|predicted - measured| over measured; null: an imported row without a prediction."""
    source: str
    """Who measured it."""
    url: str
    """Its page."""


class Estimate(Setup):
    """One fixed deployment. When it does not fit, only memory, `smallest_change` and warnings are given."""

    model: str
    """Hugging Face ID."""
    accelerator_name: str
    """Display name."""
    moe_tp: Count
    """Tensor-parallel size of the experts."""
    max_batched_tokens: WholeTokens
    """Token budget of a step."""
    speculative: Speculative | None
    """Speculative decoding; null: not used."""
    disaggregated: Disaggregated | None
    """Separate prefill and decode pools; null: not used."""
    isl: Tokens
    """Prompt length."""
    osl: Tokens
    """Output length."""
    client: str
    """steady, burst, poisson, trace, users or static."""
    client_note: str
    """What the client does, in words. TTFT depends on it."""
    seats: Count | None = None
    """Maximum number of requests that one scheduler runs at once."""
    rate: PerSecond | None = None
    """Requests that arrive; null: a closed loop, or a trace."""
    burstiness: Ratio | None = None
    """Coefficient of variation of the gaps between arrivals; 1: Poisson."""
    memory: Memory
    """Memory of an accelerator by part."""
    fits: bool
    """Whether it can be loaded."""
    usable_gib: Gib | None
    """Memory of an accelerator that the framework may use."""
    kv_bytes_per_token: Bytes | None
    """KV cache of one token on one accelerator."""
    source_kv_bytes_per_sequence: Bytes | None
    """Cross-attention cache of one request on one accelerator."""
    kv_capacity_tokens: Tokens | None
    """KV cache of a replica; null: the model keeps none."""
    smallest_change: list[str] | None = None
    """Changes after which it fits; absent when it fits."""
    ttft_ms: Latency | None = None
    """Time to first token."""
    tpot_ms: Latency | None = None
    """Time per output token."""
    latency_ms: Latency | None = None
    """Latency of an embedding; absent for generating models."""
    e2e_ms_mean: Milliseconds | None = None
    """Mean end-to-end latency."""
    e2e_ms: Latency | None = None
    """End-to-end latency."""
    queue_ms: Latency | None = None
    """Wait before the first step that computes the request."""
    running_requests_mean: Number | None = None
    """Mean number of requests that run at once in the whole deployment."""
    busy_fraction: Fraction | None = None
    """Share of the time that a replica is busy."""
    preemptions: Count | None = None
    """Requests of one replica that were evicted from the KV cache and computed again."""
    simulated_requests: Count | None = None
    """Simulated requests of one replica, from which the latencies come."""
    rejected_requests: Count | None = None
    """Of these, the ones that exceed the KV cache or the context."""
    output_tokens_per_s: TokensPerSecond | None = None
    """Generated tokens; null for embeddings."""
    output_tokens_per_s_per_accelerator: TokensPerSecond | None = None
    """The same per accelerator."""
    input_tokens_per_s: TokensPerSecond | None = None
    """Tokens read; absent for generating models."""
    input_tokens_per_s_per_accelerator: TokensPerSecond | None = None
    """The same per accelerator."""
    total_tokens_per_s: TokensPerSecond | None = None
    """Prompt and output tokens."""
    requests_per_s: PerSecond | None = None
    """Finished requests."""
    sequences_per_s: PerSecond | None = None
    """Finished requests of embeddings."""
    step: list[Operator] | None = None
    """Ledger of one prefill and one decode step."""
    bound: str | None = None
    """What limits the step."""
    watts: Watts | None = None
    """Mean draw under this load: all accelerators and their hosts, times PUE."""
    accelerator_watts: Watts | None = None
    """Mean draw of one accelerator under this load, as its own sensor reports it."""
    host_watts_per_accelerator: Watts | None = None
    """Draw of the host's other parts at its rating, per accelerator; it hardly depends on the load."""
    pue: Ratio | None = None
    """Power of the building over that of the servers."""
    joules_per_output_token: JoulesPerToken | None = None
    """Energy of a generated token; null for embeddings."""
    joules_per_input_token: JoulesPerToken | None = None
    """Energy of a token read; absent for generating models."""
    kgco2e_per_mtok: KgCo2ePerMtok | None = None
    """Carbon of a million tokens; null: the grid is not known."""
    provider: str | None = None
    """Seller of the cheapest current offer that holds it; absent: none does."""
    instance: str | None = None
    """Its instance type or server."""
    region: str | None = None
    """Its region."""
    acquisition: str | None = None
    """rent or own."""
    price_as_of: str | None = None
    """Date of the price."""
    price_source: str | None = None
    """Where the price was read."""
    usd_per_hour: UsdPerHour | None = None
    """Total cost; null: no current offer holds it."""
    usd_per_month: UsdPerMonth | None = None
    """Total cost of a month."""
    usd_per_mtok_input: UsdPerMtok | None = None
    """Cost of a million prompt tokens."""
    usd_per_mtok_output: UsdPerMtok | None = None
    """Cost of a million output tokens; null for embeddings."""
    usd_per_mtok_blended: UsdPerMtok | None = None
    """Cost of a million tokens."""
    closed_form: ClosedForm | None = None
    """The closed form beside the simulation."""
    interval: Intervals | None = None
    """90 % intervals."""
    warnings: list[str]
    """What to check."""
    basis: str
    """measured, relative or datasheet."""
    correction: MeasuredCorrection | None = None
    """From measured rows of similar deployments; null where none is near enough, or with `use_measurements: false`."""
    engine_version: str
    """Version of the estimate."""
    evidence: list[MeasuredRow] = []
    """Nearest measured rows."""

    @property
    def is_embedding(self) -> bool:
        """Whether it returns vectors and generates no tokens."""
        return self.latency_ms is not None
