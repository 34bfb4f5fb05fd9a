"""One measured or asked situation as plain values: the deployment, the requests and what the client did."""

from dataclasses import dataclass

PHASES = ("serving", "offline", "static", "prefill", "decode", "fit", "kernel")
CLIENTS = ("steady", "burst", "poisson", "static", "offline", "single")


@dataclass(frozen=True, kw_only=True, slots=True)
class Pool:
    """`replicas` equal lanes; a lane is tp x pp x dp chips, its experts spread over moe_tp x ep = tp x dp of them."""

    tp: int = 1  # tensor parallelism of the attention
    pp: int = 1
    ep: int = 1
    dp: int = 1  # attention data parallelism inside the lane
    moe_tp: int = 1  # tensor parallelism inside an expert
    replicas: int = 1
    max_batch: int | None = None  # running requests per attention rank, where it is stated (disaggregated pools)

    @property
    def chips_per_replica(self) -> int:
        """Of one lane."""
        return self.tp * self.pp * self.dp

    @property
    def chips(self) -> int:
        """Of all replicas."""
        return self.chips_per_replica * self.replicas


@dataclass(frozen=True, kw_only=True, slots=True)
class Protocol:
    """What the client did: it decides TTFT as much as the server does.

    steady: C requests always in flight, stationary mix. burst: requests_per_user x C requests, all submitted at
    once through a semaphore of C (the opening burst is in the mean). poisson: open loop at rate_per_s. static: one
    batch of C equal requests started together, run to its end. offline: `requests` at once (None: so many that ends
    do not count), as many in flight as fit. single: one request alone.
    """

    kind: str = "steady"
    requests_per_user: float = 10
    length_low_fraction: float = 1.0  # lengths are uniform between these shares of the nominal isl and osl
    length_high_fraction: float = 1.0
    rate_per_s: float | None = None
    requests: int | None = None
    first_chunk_steps: float = 0.0  # decode steps from the first token to the first text the client sees, part of TTFT
    http: bool = True  # an HTTP server and a tokenizer sit between client and engine
    known: bool = True  # False: the source does not say what its client did, this is a guess


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """Everything that is known of one run; equal cases share one estimate. isl 0 means decoding from an empty cache."""

    model_id: str
    accelerator_slug: str
    chips: int
    weights_dtype: str  # bf16 fp16 fp8 int8 int4 nvfp4 q4_k_m ..., or a quantization slug (mxfp4-w4a8)
    framework: str  # canonical slug, see advisor.measured.FRAMEWORKS
    framework_version: str  # empty: not stated
    isl: float  # tokens
    osl: float  # tokens; an embedding model's one result counts as one
    phase: str  # one of PHASES
    client: Protocol = Protocol()
    mode: str = "agg"  # agg | disagg
    pool: Pool | None = None  # None: disaggregated, or layout_free
    prefill_pool: Pool | None = None
    decode_pool: Pool | None = None
    kv_dtype: str | None = None  # None: the framework's habit for these weights
    block_scaled: bool = False  # FP8 with 128x128 block scales, not one scale per tensor or row
    concurrency: float | None = None  # users or batch of the whole deployment; None: as many as fit
    max_batch: int | None = None  # the server's own cap on running requests per lane, where stated
    max_batched_tokens: int | None = None
    layout_free: bool = False  # the source does not state the layout: the predictor chooses over `chips`
    speculative: str | None = None  # mtp: multi-token prediction drafted `speculative_tokens` a step
    speculative_tokens: int | None = None
    ttft_limit_s: float | None = None  # p99 limits that the benchmark imposed on a rate-driven run
    tpot_limit_s: float | None = None
    beams: int = 1  # sequences decoded for each request (beam search); one of them is its output
    routing_evenness: float | None = None  # of this router, where it is not one that was trained
    source_tokens: float = 0.0  # of an encoder-decoder: what was asked as isl, which is then the decoder's start
    year: int | None = None  # when it was measured: software moves


WEIGHTS = {"f16": "fp16", "uint4": "int4", "w4a16": "int4", "fp8 (w8a8)": "fp8", "w8a8": "fp8"}
KV = {"f16": "fp16", "bf16/fp16": "bf16", "fp8_e4m3": "fp8"}
