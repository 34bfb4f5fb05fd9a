"""A workload: token lengths, request rates, service-level objectives and constraints."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from advisor.engine.terms.machines.redundancy import Redundancy
from advisor.engine.terms.workloads.demand import Trace, Users
from advisor.engine.terms.workloads.kinds import Kind
from advisor.engine.terms.workloads.requests import DrawnImages, Images, Lengths, PrefixClass, Turns, WorkUnit

EXPECTED_CONFIDENCE = 0.5  # of meeting every limit, by the hour
SURE_CONFIDENCE = 0.8  # for what cannot be undone; by the hour, preferred where it costs little


@dataclass(frozen=True, kw_only=True, slots=True)
class Slo:
    """Service-level objectives at the 95th percentile; None: no limit."""

    ttft_p95_s: float | None = None
    tpot_p95_s: float | None = None
    e2e_p95_s: float | None = None
    tokens_per_s_per_user: float | None = None
    spare_hosts: int = 0  # 1 for availability n+1: hosts that may be lost while the limits hold
    doubled: bool = False  # availability 2n
    default_spares: bool = False  # one spare host where the machines call for one (terms.spare_hosts)
    confidence: float | None = None  # least probability of meeting every limit; None: the limits hold as estimated
    sure_confidence: float | None = None  # the same for what cannot be undone, and preferred where it costs little
    headroom_fraction: float = 0.0  # of a replica's capacity, kept free at the peak

    @property
    def redundancy(self) -> Redundancy:
        """What a deployment must survive."""
        return Redundancy(hosts=self.spare_hosts, doubled=self.doubled, by_offer=self.default_spares)


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
    formats_allow: tuple[str, ...] = ()  # weight formats
    formats_deny: tuple[str, ...] = ()
    kv_formats_allow: tuple[str, ...] = ()
    kv_formats_deny: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()  # names of MARKS
    with_doubts: bool = False  # also offers that are never recommended, to show what they would cost
    acquisition: tuple[str, ...] = ("rent",)
    terms: tuple[str, ...] = ("on_demand",)  # rental terms that are ranked
    quality: str = "near_lossless"  # lossless | near_lossless | any
    partitions: str = "auto"  # hardware partitions: no | auto (shown separately) | yes (ranked too) | required
    layout: tuple[int, int, int, int] = (0, 0, 0, 0)  # tp, pp, ep, dp of a replica; 0: as the search finds best
    max_batched_tokens: int | None = None  # of a step; None: the framework's, or what costs less
    max_running_requests: int | None = None  # of a scheduler; None: as many as the plan needs
    max_accelerators: int | None = None
    max_usd_per_month: float | None = None
    max_capex_usd: float | None = None  # all purchases over the horizon
    bound_factor: float | None = None  # if set, max_usd_per_month is this multiple of the cheapest feasible plan
    inventory_chips: Mapping[str, int] = field(default_factory=dict)  # accelerator -> available chips; absent: no limit
    max_watts: float | None = None  # of the site, all chips busy, PUE included
    max_rack_watts: float | None = None  # per rack, before PUE
    cooling: str = "any"  # any | air | liquid: cooling of the site

    @property
    def fixes_servers(self) -> bool:
        """Whether how a server is started is given, so that it has no separate pools."""
        return any(self.layout) or self.max_batched_tokens is not None or self.max_running_requests is not None


@dataclass(frozen=True, kw_only=True, slots=True)
class Rollout:
    """The responses that an iteration of GRPO generates before it trains on them."""

    prompt_tokens: float
    response_tokens: float  # on average
    longest_response_tokens: float


@dataclass(frozen=True, kw_only=True, slots=True)
class TuningObjective:
    """What a step of DPO or GRPO does beside the policy update."""

    name: Literal["dpo", "grpo"]
    reference: Literal["kept", "precomputed", "none"] = "kept"  # log-probabilities of the model before tuning
    rollout: Rollout | None = None  # None: nothing is generated


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingTask:
    """A model to train: how much of which data, in which way, by when."""

    tokens: float
    sequence_tokens: int
    global_batch: int  # sequences of one step
    method: Literal["full", "lora", "qlora"] = "full"
    adapter_rank: int = 0
    optimizer: Literal["adamw", "adamw_8bit", "adafactor", "muon", "sgd"] = "adamw"
    precisions: tuple[str, ...] = ("bf16",)  # that may be used; the fastest wins
    recompute: tuple[str, ...] = ("none", "selective", "full")
    deadline_days: float | None = None
    every_days: float | None = None  # the run is repeated; None: it is done once
    continued: bool = True  # starts from published weights
    bytes_per_token: float = 4.0  # of the stored data
    tuning: TuningObjective | None = None  # None: supervised, on given tokens

    @property
    def global_tokens(self) -> int:
        """Tokens of one step."""
        return self.global_batch * self.sequence_tokens

    @property
    def longest_tokens(self) -> int:
        """Of a sequence, where sequence_tokens is the mean of GRPO's; 0: all sequences are alike."""
        rollout = self.tuning.rollout if self.tuning else None
        return math.ceil(rollout.prompt_tokens + rollout.longest_response_tokens) if rollout else 0


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
    weights: tuple[tuple[str, float], ...] = ()  # of objective `balanced`; override those of declared_scores.py
    team: tuple[tuple[str, int], ...] = ()  # (stack, level 0..5)
    horizon_months: int = 36
    discount_fraction: float = 0.08
    deadline_s: float | None = None  # of a batch; its peak rate is the rate that meets the deadline
    users: Users | None = None  # if set, the rates above are upper bounds and each design has its own rate
    trace: Trace | None = None  # finalists are also simulated with it
    week: tuple[float, ...] = ()  # load of each hour as a fraction of the busiest; empty: constant
    cold_start_s: float = 0.0  # from requesting an instance until it serves
    growth_fraction_per_year: float = 0.0
    forecast: tuple[float, ...] = ()  # traffic of each month of the horizon over today's; empty: constant
    source_tokens: Lengths | None = None  # of an encoder-decoder; input_tokens are then the decoder's start tokens
    # show | adopt | no: whether speculative decoding and disaggregated serving are shown beside the finalists, replace
    # them where better, or are not tried
    variants: str = "show"
    drafts: bool = True  # try speculative decoding
    apart: bool = True  # try disaggregated serving
    host_cache_hit_fraction: float | None = None  # of a prompt, on top of the hits on the chip; None: not stated
    task: str = "any"  # see Task of the workload file: affects acceptance of drafts and the quality cost of formats
    turns: Turns | None = None  # of conversations; input_tokens and the cache hits are then those of all turns
    images: Images | None = None  # sent with a mean request
    drawing: DrawnImages | None = None  # of image generation
    audio: bool = False  # requests are windows of speech
    pair_tokens: Lengths | None = None  # of a reranker: one query with one document; input_tokens are all pairs
    documents: float = 1.0  # that a reranker scores per request
    structured_output: bool = False  # every answer follows a grammar such as a JSON schema
    unit: WorkUnit | None = None  # what the planner counts, if not tokens
    training: TrainingTask | None = None  # of a kind that trains
    context_tokens: float = math.inf  # the model's; requests drawn from distributions end there
    arrival_cv: float = 1.0  # coefficient of variation of the gaps between arrivals at the peak; 1: Poisson
    arrival_cv_range: tuple[float, float] | None = None  # its 90 % range where it is assumed; None: it is known
    prefix_classes: tuple[PrefixClass, ...] = ()  # empty: every prompt has `prefix_cache_hit_fraction` in the cache

    def arrival_cv2(self, share: Any = 1.0) -> Any:
        """Squared coefficient of variation of the gaps at a lane that gets this share of the requests at random.

        A renewal process of which each request stays with probability p has 1 + p (cv^2 - 1): the more lanes, the
        closer to Poisson. 1 of users, who wait for their answers.
        """
        return 1.0 + share * (0.0 if self.users is not None else self.arrival_cv**2 - 1.0)

    @property
    def p95_request_tokens(self) -> float:
        """Prompt plus answer that a server must hold: of a trace, the p95 of its requests; else the sum of both p95.

        At most the model's context.
        """
        if self.trace is not None:
            return min(self.trace.total_tokens(0.95), self.context_tokens)
        return min(self.input_tokens.p95_tokens + self.output_tokens.p95_tokens, self.context_tokens)

    @property
    def given_tokens(self) -> float:
        """Mean input tokens of a request: of the encoder if there is one, else of the decoder."""
        return (self.source_tokens or self.input_tokens).mean_tokens
