"""One measured or requested case: the deployment, the requests and the client's behavior."""

from dataclasses import dataclass

from advisor.engine.terms.workloads.demand import Trace, Users
from advisor.engine.terms.workloads.requests import Lengths, PrefixClass

PHASES = ("serving", "offline", "static", "prefill", "decode", "fit", "kernel")
CLIENTS = ("steady", "burst", "poisson", "static", "offline", "single")


@dataclass(frozen=True, kw_only=True, slots=True)
class Pool:
    """`replicas` identical lanes of tp x pp x dp chips; experts are spread over moe_tp x ep = tp x dp of them."""

    tp: int = 1  # tensor parallelism of attention
    pp: int = 1
    ep: int = 1
    dp: int = 1  # attention data parallelism inside the lane
    moe_tp: int = 1  # tensor parallelism inside an expert
    replicas: int = 1
    max_batch: int | None = None  # running requests per attention rank, or prompts of a prefill step, if stated
    max_batched_tokens: int | None = None  # prompt tokens of a rank and step, if stated

    @property
    def chips_per_replica(self) -> int:
        """Chips of one replica."""
        return self.tp * self.pp * self.dp

    @property
    def chips(self) -> int:
        """Chips of all replicas."""
        return self.chips_per_replica * self.replicas


@dataclass(frozen=True, kw_only=True, slots=True)
class Protocol:
    """How the benchmark client sent requests, which affects TTFT as much as the server does.

    steady: C requests always in flight, stationary mix. burst: requests_per_user x C requests, all submitted at once
    through a semaphore of C (the mean includes the initial burst). poisson: open loop at rate_per_s. trace: the
    recorded requests, at their times and with their lengths. users: each thinks before the next request. static: one
    batch of C equal requests, started together and run to completion. offline: `requests` submitted at once (None:
    enough that ramp-up and drain do not matter), as many in flight as fit. single: one request.
    """

    kind: str = "steady"
    requests_per_user: float = 10
    length_low_fraction: float = 1.0  # lengths are uniform between these fractions of the nominal isl and osl
    length_high_fraction: float = 1.0
    rate_per_s: float | None = None
    requests: int | None = None
    first_chunk_steps: float = 0.0  # decode steps from the first token to the first streamed chunk, part of TTFT
    http: bool = True  # requests go through an HTTP server and a tokenizer
    arrival_cv: float = 1.0  # poisson: coefficient of variation of the gaps between arrivals (gamma); 1: Poisson
    whole_run: bool = False  # poisson: `requests` are all there are; figures are from the first until the last ends
    trace: Trace | None = None  # of the whole deployment, for kind trace
    users: Users | None = None  # of the whole deployment, for kind users
    known: bool = True  # False: the source does not describe its client, so this is assumed


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """Everything known about one run; equal cases share one estimate. isl 0: decoding from an empty cache."""

    model_id: str
    accelerator_slug: str
    chips: int
    weights_dtype: str  # bf16 fp16 fp8 int8 int4 nvfp4 q4_k_m ..., or a quantization slug (mxfp4-w4a8)
    framework: str  # canonical slug, see advisor.measured.FRAMEWORKS
    framework_version: str  # empty: not stated
    isl: float  # input tokens
    osl: float  # output tokens; 1 for an embedding model
    phase: str  # one of PHASES
    client: Protocol = Protocol()
    mode: str = "agg"  # agg | disagg
    pool: Pool | None = None  # None: disaggregated, or layout_free
    prefill_pool: Pool | None = None
    decode_pool: Pool | None = None
    kv_dtype: str | None = None  # None: the framework's default for these weights
    block_scaled: bool = False  # FP8 with 128x128 block scales, not one scale per tensor or row
    concurrency: float | None = None  # users or batch size of the whole deployment; None: as many as fit
    max_batch: int | None = None  # server limit on running requests per lane, if stated
    max_batched_tokens: int | None = None
    memory_fraction: float | None = None  # of the memory that the server may use; None: the framework's default
    layout_free: bool = False  # the source does not state the layout: the estimate chooses the best over `chips`
    speculative: str | None = None  # a drafting method, with `speculative_tokens` drafts per step
    speculative_tokens: int | None = None
    acceptance_fraction: float | None = None  # of the drafts; None: that of multi-token prediction in the calibration
    draft_model: str | None = None  # model that drafts, for method draft
    input_p95: float | None = None  # tokens; log-normal lengths with mean isl; None: constant, or the client's range
    output_p95: float | None = None
    cached_fraction: float = 0.0  # of each prompt, found in the prefix cache
    prefix_classes: tuple[PrefixClass, ...] = ()  # replace the cached fraction
    eager: bool = False  # the server runs without CUDA graphs and without a compiled model
    ttft_limit_s: float | None = None  # p99 limits that the benchmark set for a run at a fixed rate
    tpot_limit_s: float | None = None
    beams: int = 1  # beam search: sequences decoded per request, one of which is returned
    routing_evenness: float | None = None  # of an untrained router; None: that of trained routers
    source_tokens: float = 0.0  # encoder-decoder: the stated isl; `isl` is then the decoder's start tokens
    year: int | None = None  # of the measurement: software improves

    @property
    def inputs(self) -> Lengths:
        """Input lengths of the requests."""
        return Lengths(mean_tokens=self.isl, p95_tokens=self.input_p95 or self.isl)

    @property
    def outputs(self) -> Lengths:
        """Output lengths of the requests, all beams together."""
        return Lengths(mean_tokens=self.osl * self.beams, p95_tokens=(self.output_p95 or self.osl) * self.beams)

    @property
    def hit_fraction(self) -> float:
        """Mean share of a prompt that the prefix cache holds once it is warm."""
        if not self.prefix_classes:
            return self.cached_fraction
        shared = sum(c.fraction * min(c.shared_tokens, self.isl) for c in self.prefix_classes)
        return shared / max(self.isl, 1.0)

    @property
    def has_arrivals(self) -> bool:
        """Whether requests arrive at times of their own, not when others finish."""
        return self.client.kind in ("poisson", "trace", "users")


WEIGHTS = {
    "fp4-experts+fp8": "mxfp4",  # the published checkpoints of DeepSeek V4
    **{"f16": "fp16", "uint4": "int4", "w4a16": "int4", "fp8 (w8a8)": "fp8", "w8a8": "fp8"},
    # GGUF files with some tensors wider (UD, XL) have about the size of the plain format
    **{
        f"{start}{name}": plain
        for start in ("", "ud-")
        for name, plain in {
            "q4_0": "q4_0",
            "q4_k": "q4_k_m",
            "q4_k_m": "q4_k_m",
            "q4_k_xl": "q4_k_m",
            "q4_k_s": "q4_k_m",
            "q5_k": "q5_k_m",
            "q5_k_m": "q5_k_m",
            "q5_k_s": "q5_k_m",
            "q5_k_xl": "q5_k_m",
            "q6_k": "q6_k",
            "q8_0": "q8_0",
            "q6_k_xl": "q6_k",
            "q8_k_xl": "q8_0",
        }.items()
    },
    **{"mlx-q4": "mlx-4bit", "mlx-q6": "mlx-6bit", "mlx-q8": "mlx-8bit", "mlx-mxfp4": "mxfp4", "mlx-mxfp4-q8": "mxfp4"},
}
KV = {"f16": "fp16", "bf16/fp16": "bf16", "fp8_e4m3": "fp8"}
