"""One deployment: what is signed and started, what it does, what it costs, and why."""

from typing import Annotated, Any, Literal

from pydantic import Field

from advisor.result.base import (
    Bytes,
    Chips,
    Count,
    Flops,
    Fraction,
    Gib,
    Hours,
    JoulesPerToken,
    KgCo2ePerMtok,
    Milliseconds,
    Percentiles,
    PerSecond,
    Ratio,
    Seconds,
    Section,
    Tokens,
    TokensPerSecond,
    Unit,
    Usd,
    UsdPerHour,
    UsdPerKwh,
    UsdPerMonth,
    UsdPerMtok,
    Watts,
    WholeTokens,
)
from advisor.result.money import Money
from advisor.result.options.contents import Conversation, ImageInput, UnitCost
from advisor.result.options.demand import (
    Availability,
    GrowthSchedule,
    HostLost,
    MeanAndTail,
    Recorded,
    Site,
    Users,
    Week,
)
from advisor.result.options.host import Host
from advisor.result.options.launch import Launch
from advisor.result.options.tuning import Tuning

Range = list[Annotated[float, Unit("that of the figure")] | None]  # [low, high]


class Partition(Section):
    """A hardware instance of an accelerator (MIG and the like); figures of the option are per instance."""

    way: str
    """MIG, compute partitions, time slices and so on."""
    profile: str
    """The maker's name of the profile."""
    instances: Count
    """Instances per accelerator."""
    gib: Gib
    """Memory of one instance."""
    compute_fraction: Fraction
    """Its share of the accelerator's compute."""
    bandwidth_fraction: Fraction
    """Its share of the accelerator's memory bandwidth."""


class Memory(Section):
    """GiB per accelerator of one replica at the planned concurrency."""

    weights_gib: Gib
    """Model weights."""
    adapters_gib: Gib = 0.0
    """LoRA adapters; absent without adapters."""
    kv_gib: Gib
    """KV cache in use."""
    source_kv_gib: Gib = 0.0
    """Cross-attention cache of an encoder-decoder's source; absent for other models."""
    activations_gib: Gib
    """Activations of the largest step."""
    overhead_gib: Gib
    """Framework, CUDA context, graphs."""
    free_gib: Gib
    """Left over."""

    def parts(self) -> dict[str, float]:
        """Name to GiB of the parts that this option has, in the order of the JSON."""
        return {name: float(getattr(self, name)) for name in type(self).model_fields if name in self.model_fields_set}


class Simulation(Section):
    """The simulated queue that the latencies come from."""

    requests: Count
    """Simulated requests."""
    seed: Count
    """Seed of arrivals and lengths."""
    requests_per_s: PerSecond
    """Arrival rate: the workload's peak."""
    arrival_cv: Ratio | None = None
    """Coefficient of variation of the gaps between arrivals of the whole workload; 1: Poisson; null: not at a rate."""
    ttft_standard_error_ms: Milliseconds | None
    """Standard error of the mean TTFT."""
    tpot_standard_error_ms: Milliseconds | None
    """Standard error of the mean TPOT."""
    unserved_requests: Count | None = None
    """Simulated requests that exceed a replica's KV cache or the model's context; they count as infinitely late."""


class MeasuredCorrection(Section):
    """How measurements of similar deployments change this option's predictions. All its step times have the factor."""

    time_factor: Ratio
    """Step time with the correction over step time from physics alone; above 1 is slower."""
    low_ratio: Ratio | None
    """Low end of the 90 % interval of TPOT, over the corrected figure; null where evidence is too far."""
    high_ratio: Ratio | None
    """High end."""
    rows: Count
    """Measured rows that share what `level` says."""
    level: str
    """What the nearest rows share with this option: model, stack, layout, site (your own load tests) or lengths."""
    row_keys: list[str]
    """The rows with the most weight, of the scorecard, of your own load tests or of imported figures."""
    said: str
    """The correction as a sentence."""
    imported: bool = False
    """Whether imported figures made it; the scorecard and your load tests have none of this chip and framework."""


class LowerAcceptance(Section):
    """The same deployment when fewer drafts are accepted."""

    acceptance: Fraction | None
    """The lower acceptance; null where the source states tokens per step."""
    tokens_shown_per_step: Ratio
    """Tokens that a step then produces on average."""
    ttft_ms_p95: Milliseconds | None
    """p95 TTFT at the planned size."""
    tpot_ms_p95: Milliseconds | None
    """p95 TPOT at the planned size."""
    meets_slo: bool
    """Whether the planned size still meets every limit."""
    replicas: Count | None
    """Replicas that meet every limit then; null: none up to twice as many do."""
    usd_per_month: UsdPerMonth | None
    """Cost of these replicas."""


class StepBudget(Section):
    """Another token budget per step than the framework's default on the accelerator."""

    default_tokens: WholeTokens
    """What the framework would set."""
    default_accelerator_count: Chips | None = None
    """Accelerators that the same setup needs with it, spares included; null: not tried."""


class Speculative(Section):
    """Speculative decoding."""

    method: str
    """ngram, draft, eagle, mtp and so on."""
    draft: str
    """Draft model or head."""
    k: Count
    """Drafted tokens per step."""
    acceptance: Fraction | None
    """Probability that a drafted token is accepted."""
    tokens_shown_per_step: Ratio | None
    """Tokens that a step produces on average."""
    task: str
    """Task that the published acceptance was measured on."""
    source: str
    """Source of the acceptance."""
    acceptance_low: Fraction | None = None
    """Lowest published acceptance; null: not published, or stated in tokens per step."""
    acceptance_high: Fraction | None = None
    """Highest published acceptance."""
    break_even_acceptance: Fraction | None = None
    """Acceptance below which the planned size misses a limit; 0: it holds without any accepted draft; null: no limit,
    not computed for this option, or stated in tokens per step."""
    break_even_tokens_shown_per_step: Ratio | None = None
    """The same in tokens per step."""
    lower_acceptance: LowerAcceptance | None = None
    """What 20 % less acceptance does; absent where it was not computed."""
    tpot_ms_p95_without: Milliseconds | None = None
    """p95 TPOT of the same deployment without drafts; absent where it was not computed."""
    meets_slo_without: bool | None = None
    """Whether every limit holds without drafts; absent where it was not computed."""
    said: list[str] = []
    """The same in words."""


class Pool(Section):
    """One pool of a disaggregated deployment."""

    replicas: Count
    """Replicas of the pool."""
    tp: Count
    """Tensor-parallel size."""
    pp: Count
    """Pipeline stages."""
    ep: Count
    """Expert-parallel size."""
    dp: Count
    """Attention data-parallel size; not the number of replicas."""
    moe_tp: Count = 1
    """Tensor-parallel size of the experts; absent in advice."""


class Disaggregated(Section):
    """Prefill and decode on separate pools."""

    prefill: Pool
    """The pool for prompts."""
    decode: Pool
    """The pool for output."""
    kv_transfer_s: Seconds | None
    """Time to move the KV cache of a mean request."""


class Operator(Section):
    """One line of the step ledger."""

    phase: str
    """prefill or decode; of training forward, backward, recompute, overlap, communication, bubble, optimizer, host."""
    operator: str
    """attention, ffn/up, all-reduce and so on."""
    time_s: Seconds | None
    """Time in one step."""
    flops: Flops | None
    """Arithmetic on one accelerator."""
    bytes: Bytes | None
    """Memory or link traffic of one accelerator."""
    bound: str
    """What limits it: compute, memory, launch, communication or host; in training also bubble."""


class Batch(Section):
    """One run of a batch."""

    requests: Count
    """Requests per run."""
    run_hours: Hours | None
    """Simulated duration."""
    start_hours: Hours | None = None
    """Part of it until weights are loaded; absent in answers from before November 2026."""
    deadline_hours: Hours | None
    """Allowed duration."""
    every_hours: Hours | None
    """Interval between runs; null: it runs once."""
    usd_per_run: Usd | None
    """Cost of one run."""
    given_back: bool
    """Whether machines are released after each run."""
    spot_lost_fraction: Fraction | None = None
    """Share of the hours on spot instances lost to interruptions, included in run_hours; null: no spot instances."""
    spot_wait_hours: Hours | None = None
    """Wait for spot capacity, included in run_hours; null: no spot instances."""


class ScaleToZero(Section):
    """A replica that starts with a request and stops when idle; the option's figures include it."""

    idle_timeout_s: Seconds
    """How long the replica stays up without requests, and is billed."""
    cold_start_s: Seconds
    """From a request that finds no replica until the replica serves."""
    container_s: Seconds
    """Part of it: the container starts."""
    weights_s: Seconds
    """Part of it: the weights are read."""
    engine_s: Seconds
    """Part of it: the framework starts, loads compiled kernels and captures graphs."""
    cold_fraction: Fraction
    """Share of the requests that start a replica and wait for all of it, at Poisson arrivals."""
    waiting_fraction: Fraction
    """Share of the requests that wait for a start at all."""
    wait_mean_s: Seconds
    """Mean wait for a start over all requests; part of the TTFT."""
    wait_p95_s: Seconds
    """p95 of that wait."""
    wait_p99_s: Seconds
    """p99 of that wait."""
    billed_fraction: Fraction
    """Share of all hours that is billed: starts, requests and idle timeouts."""
    billed_s_per_month: Seconds
    """The same in seconds of a month."""
    said: str
    """The same in words."""


class Score(Section):
    """A declared score counted from facts of the catalog; 1 is best."""

    value: Fraction | Literal["unknown"]
    """The score; unknown where a fact is missing."""
    low: Fraction
    """Least value that the missing facts allow."""
    high: Fraction
    """Greatest value that the missing facts allow."""
    facts: list[str]
    """What was counted."""


class Scores(Section):
    """What the balanced view weighs beside cost, latency and energy."""

    ecosystem: Score
    """Frameworks and sellers."""
    team: Score
    """The team's experience."""
    lead_time: Score
    """Time until it runs."""
    lock_in: Score
    """Choice of other sellers and makers."""
    risk_fraction: Fraction
    """How far missing facts may move the scores."""

    def by_name(self) -> dict[str, Score]:
        """Name to score, without the risk."""
        return {name: value for name, value in self if isinstance(value, Score)}


class Beats(Section):
    """Chance to rank before another option."""

    rank: Count
    """The other option."""
    probability: Fraction
    """Share of draws from the 90 % intervals in which this option is better."""


class Intervals(Section):
    """90 % intervals [low, high] of the headline figures, in the figure's own unit; absent figures have none."""

    ttft_ms: Range | None = None
    """Mean TTFT, ms."""
    ttft_ms_p95: Range | None = None
    """p95 TTFT, ms."""
    tpot_ms: Range | None = None
    """Mean TPOT, ms."""
    tpot_ms_p95: Range | None = None
    """p95 TPOT, ms."""
    latency_ms: Range | None = None
    """Mean latency of an embedding, ms."""
    latency_ms_p95: Range | None = None
    """p95 latency of an embedding, ms."""
    output_tokens_per_s: Range | None = None
    """Output throughput, tokens/s (estimate)."""
    input_tokens_per_s: Range | None = None
    """Input throughput of embeddings, tokens/s (estimate)."""
    output_tokens_per_s_at_capacity: Range | None = None
    """Output throughput at capacity, tokens/s."""
    input_tokens_per_s_at_capacity: Range | None = None
    """Input throughput at capacity, tokens/s."""
    usd_per_month: Range | None = None
    """USD per month."""
    tco_usd: Range | None = None
    """Present value of costs, USD."""
    usd_per_mtok_input: Range | None = None
    """USD per million input tokens."""
    usd_per_mtok_output: Range | None = None
    """USD per million output tokens."""
    usd_per_mtok_blended: Range | None = None
    """USD per million tokens."""
    watts: Range | None = None
    """Power, W."""
    joules_per_output_token: Range | None = None
    """Energy per output token, J."""
    joules_per_input_token: Range | None = None
    """Energy per input token, J."""
    kgco2e_per_mtok: Range | None = None
    """Carbon per million tokens, kg CO2e."""

    def of(self, name: str) -> Range | None:
        """[low, high] of a figure by its name; None: it has no interval."""
        interval: Range | None = getattr(self, name, None)
        return interval


class Variant(Section):
    """The same option with speculative decoding or disaggregated pools: what differs."""

    label: str
    """The deployment in one line."""
    accelerator_count: Chips
    """Accelerators."""
    replicas: Count
    """Replicas."""
    spare_replicas: Count
    """Spare replicas."""
    concurrency: Count
    """Requests in flight per replica."""
    speculative: Speculative | None
    """Speculative decoding; null: not used."""
    disaggregated: Disaggregated | None
    """Disaggregated pools; null: not used."""
    ttft_ms: Percentiles
    """Time to first token."""
    tpot_ms: Percentiles
    """Time per output token."""
    usd_per_hour: UsdPerHour
    """Total cost."""
    usd_per_month: UsdPerMonth
    """Total cost."""
    usd_per_mtok_output: UsdPerMtok | None
    """Cost of a million output tokens."""
    watts: Watts | None
    """Mean draw."""
    utilisation: Fraction | None
    """Mean load over capacity."""
    capacity_requests_per_s: PerSecond | None
    """Capacity within the limits."""
    launch: Launch
    """How to start it."""
    warnings: list[str]
    """What to know before using it."""
    cost_ratio: Ratio | None
    """Its cost over the option's."""
    tpot_ratio: Ratio | None
    """Its p95 TPOT over the option's."""


class Setup(Section):
    """What is started: accelerators, framework, formats and parallel layout."""

    label: str
    """The deployment in one line."""
    accelerator: str
    """Catalog name of the accelerator."""
    accelerator_count: Chips
    """Accelerators in use."""
    framework: str
    """Serving framework."""
    framework_version: str
    """Its release."""
    weights_dtype: str
    """Storage type of the weights."""
    quantization: str
    """Catalog name of the weight format."""
    kv_dtype: str
    """Storage type of the KV cache."""
    tp: Count
    """Tensor-parallel size of a replica."""
    pp: Count
    """Pipeline stages of a replica."""
    ep: Count
    """Expert-parallel size of a replica."""
    dp: Count
    """Attention data-parallel size of a replica; not the number of replicas."""
    replicas: Count
    """Replicas, spares included."""
    concurrency: Count
    """Maximum requests in flight in each replica, not in total."""


class Purchase(Section):
    """What is rented or bought, and from whom."""

    provider: str
    """Who sells or rents it; own: bought; owned: already there."""
    instance: str
    """Instance type or server."""
    instances: Count
    """Instances or servers."""
    region: str
    """Region of the price."""
    acquisition: str
    """rent or own."""
    price_as_of: str
    """Date of the price."""
    price_is_stale: bool = False
    """Whether the price is over a year old; used because there is no newer one."""
    price_origin: str = ""
    """Where the price comes from: official_list, provider_api, own, reseller, quote, marketplace, second_hand or
    estimate; empty: not recorded."""
    price_weakness: str = ""
    """Why a buyer should not sign at this price, such as its origin or its age; empty: nothing is known."""
    sold_out_on: str = ""
    """Date on which the offer was sold out, if that is its last reading and at most 30 days old; empty: available, or
    no source says."""

    @property
    def place(self) -> str:
        """The seller and the region."""
        return f"{self.provider} {self.region}".strip()


class Option(Setup, Purchase):
    """A recommended deployment, or a near miss."""

    rank: Count | None
    """1 is best; null: not ranked."""
    accelerator_name: str
    """Display name."""
    term: str = "on_demand"
    """on_demand, spot, reserved_1y, reserved_3y, purchase or owned."""
    price_source: str
    """Where the price was read."""
    spare_replicas: Count = 0
    """Replicas beyond those that carry the peak."""
    max_batched_tokens: WholeTokens
    """Token budget of a step."""
    step_budget: StepBudget | None = None
    """What the framework's own token budget would need; absent: max_batched_tokens is its own."""
    partition: Partition | None = None
    """Hardware instances of an accelerator; null: whole accelerators."""
    host: Host | None = None
    """Host of one instance; null: an answer from before hosts were recorded."""
    speculative: Speculative | None
    """Speculative decoding; null: not used."""
    disaggregated: Disaggregated | None
    """Separate prefill and decode pools; null: not used."""
    memory: Memory
    """Memory of an accelerator by part."""
    kv_capacity_tokens: Tokens | None = None
    """KV cache of a replica's lane; null: the model keeps none."""
    ttft_ms: Percentiles
    """Time to first token at the peak."""
    tpot_ms: Percentiles
    """Time per output token at the peak."""
    latency_ms: Percentiles | None = None
    """Latency of an embedding; absent for generating models."""
    e2e_ms: MeanAndTail | None = None
    """End-to-end latency."""
    simulation: Simulation | None = None
    """The simulated queue behind these latencies."""
    requests_per_s: PerSecond
    """Mean load."""
    sequences_per_s: PerSecond | None = None
    """Mean load of embeddings; absent for generating models."""
    output_tokens_per_s: TokensPerSecond | None
    """Generated tokens at the mean load; null for embeddings."""
    output_tokens_per_s_per_accelerator: TokensPerSecond | None
    """The same per accelerator."""
    input_tokens_per_s: TokensPerSecond | None = None
    """Tokens read by an embedding model; absent for generating models."""
    input_tokens_per_s_per_accelerator: TokensPerSecond | None = None
    """The same per accelerator."""
    total_tokens_per_s: TokensPerSecond | None = None
    """All tokens of an embedding model; absent for generating models."""
    capacity_requests_per_s: PerSecond | None
    """Capacity within the limits."""
    output_tokens_per_s_at_capacity: TokensPerSecond | None = None
    """Generated tokens at capacity."""
    input_tokens_per_s_at_capacity: TokensPerSecond | None = None
    """Tokens read at capacity; absent for generating models."""
    utilisation: Fraction | None
    """Mean load over capacity."""
    usd_per_hour: UsdPerHour
    """Total cost, averaged over all hours."""
    licence_usd_per_hour: UsdPerHour | None = None
    """Software licenses in it."""
    usd_per_month: UsdPerMonth
    """Total cost of a month (730 hours)."""
    usd_per_mtok_input: UsdPerMtok | None
    """Cost of a million prompt tokens at the mean load."""
    usd_per_mtok_output: UsdPerMtok | None
    """Cost of a million output tokens at the mean load; null for embeddings."""
    usd_per_mtok_blended: UsdPerMtok | None
    """Cost of a million tokens, prompt and output, at the mean load."""
    usd_per_mtok_input_at_capacity: UsdPerMtok | None = None
    """Cost of a million prompt tokens at capacity."""
    usd_per_mtok_output_at_capacity: UsdPerMtok | None = None
    """Cost of a million output tokens at capacity."""
    usd_per_mtok_blended_at_capacity: UsdPerMtok | None = None
    """Cost of a million tokens at capacity."""
    usd_per_mtok_cached_input: UsdPerMtok | None = None
    """Cost of a million prompt tokens that the prefix cache held."""
    usd_per_mtok_cached_input_at_capacity: UsdPerMtok | None = None
    """The same at capacity."""
    tco_usd: Usd
    """Present value of the total cost of ownership over the horizon."""
    watts: Watts | None
    """Mean draw at the load, hosts and cooling included."""
    pue: Ratio | None = None
    """Power usage effectiveness of the site."""
    usd_per_kwh: UsdPerKwh | None = None
    """Energy price; null where rent includes it."""
    joules_per_output_token: JoulesPerToken | None
    """All energy over output tokens; null for embeddings."""
    joules_per_input_token: JoulesPerToken | None = None
    """All energy over tokens read; absent for generating models."""
    kgco2e_per_mtok: KgCo2ePerMtok | None
    """Carbon of a million output tokens (of tokens read for embeddings)."""
    bound: str
    """What limits the step: compute, memory, launch, communication or host."""
    correction: MeasuredCorrection | None = None
    """From measured rows of similar deployments; null where none is near enough, or if the workload declines it."""
    basis: str
    """What kernel efficiencies rest on: measured, relative (scaled from a related chip) or datasheet."""
    meets_slo: bool
    """Whether every limit holds in simulation."""
    launch: Launch
    """How to start it."""
    step: list[Operator] = []
    """Ledger of one prefill and one decode step."""
    scale_to_zero: ScaleToZero | None = None
    """Runs only on demand; absent for deployments that stay up."""
    batch: Batch | None = None
    """One run of a batch; absent for other workloads."""
    unit_cost: UnitCost | None = None
    """Cost of the unit that the planner counts, such as an image; absent where tokens are counted."""
    conversation: Conversation | None = None
    """Turns of a conversation; absent where requests are independent."""
    images: ImageInput | None = None
    """Image input; absent where requests are text only."""
    availability: Availability | None = None
    """Spare replicas."""
    one_host_lost: HostLost | None = None
    """The peak after the loss of any one host; absent in answers of earlier versions and for batches."""
    users: Users | None = None
    """Active users; null: the workload gives a request rate."""
    recorded: Recorded | None = None
    """Replay of the recorded trace; null: the workload has none."""
    week: Week | None = None
    """Replicas by hour; null: the load is flat."""
    growth_schedule: GrowthSchedule | None = None
    """Growth by month; null: none asked for."""
    site: Site | None = None
    """Servers, racks and power; null: rented."""
    money: Money | None = None
    """Bill, cash flow and ways to pay; null in answers from before November 2026."""
    interval: Intervals = Field(default_factory=Intervals)
    """90 % intervals."""
    scores: Scores | None = None
    """Ecosystem, team, lead-time and lock-in scores."""
    slo_probability: Fraction | None = None
    """Probability of meeting every latency limit, from the 90 % intervals; absent without limits or intervals."""
    apart: str = ""
    """Why nobody would order it, so that it ranks behind everything else; empty: somebody would."""
    first_probability: Fraction | None = None
    """Chance of its chip, provider and way to pay to be the best of those shown; absent without intervals."""
    tied_with: list[Count] | None = None
    """Ranks of the options that a joint draw cannot tell from this one: neither is better in 90 % of the draws."""
    beats: list[Beats] | None = None
    """Chance to beat each option that ranks behind it."""
    demand: list[str] = []
    """Traffic over time in words."""
    reasons: list[str]
    """Why it is recommended, or what it misses."""
    warnings: list[str]
    """What to check before signing."""
    tuning: Tuning | None = None
    """How to run it; absent for near misses."""
    variants: list[Variant] | None = None
    """With speculative decoding or disaggregated pools; absent for near misses."""

    @property
    def is_embedding(self) -> bool:
        """Whether it returns vectors and generates no tokens."""
        return self.latency_ms is not None


class NearMiss(Option):
    """A deployment that misses one limit by little."""

    detail: str
    """What it misses."""
    smallest_change: str = ""
    """Smallest change of the workload that lets it pass; empty: none is known."""
    change: dict[str, Any] = {}
    """The same as paths of the workload and their values; absent in answers from before November 2026."""
    beyond_fraction: Fraction | None = None
    """How far it is beyond the limit, as a share of the limit; absent in answers from before November 2026."""
