"""The kinds of workload: what each is judged by, limited by, paid for and called. Code asks them and never compares.

A further kind is one more block below, its key in `KINDS`, and the engine that computes it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, Protocol, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Latencies(Protocol[T_co]):
    """95th percentiles in seconds, of one deployment or of an array of them."""

    @property
    def ttft_p95_s(self) -> T_co: ...
    @property
    def tpot_p95_s(self) -> T_co: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class JobRun:
    """One run of a job."""

    requests: int
    hours: float  # start included
    start_hours: float
    deadline_hours: float
    every_hours: float
    usd: float
    released: bool  # whether its machines are released afterwards; False: they are paid for between runs too


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What the sentences about an option may name."""

    ttft_p95_s: float
    tpot_p95_s: float
    mean_requests_per_s: float
    peak_requests_per_s: float
    carrying_replicas: int
    spare_replicas: int
    utilisation_fraction: float  # of the capacity, at the mean load
    busy_fraction: float = 0.0  # of the time, in which a chip of the serving replicas computes
    run: JobRun | None = None  # of what has a deadline


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Kind:
    name: str  # in the workload file and in every answer
    title: str  # in the form
    sections: tuple[str, ...]  # of the workload file that it cannot do without
    # how its requests come
    has_arrivals: bool  # over time, at a rate; False: all wait at the start and keep all batch slots full
    has_deadline: bool
    released_after_run: bool  # instances rented by the hour are released when the work is done
    # what it makes
    makes: Literal["tokens", "vectors", "scores", "images", "weights"]
    generates_tokens: bool  # False: each request ends right after its prefill
    tail_latency: Literal["ttft_p95_s", "tpot_p95_s"]  # its speed: what `objective: latency` minimizes
    # which techniques apply
    serves_adapters: bool  # LoRA
    tries_drafts: bool  # speculative decoding
    tries_disaggregation: bool  # separate pools for prefill and decode
    shares_cards: bool  # with other models, or as an instance of a partitioned card
    mixes_accelerators: bool  # different ones for different request lengths
    # what its answer shows
    priced_token: Literal["input", "output"]  # USD per million of these
    main_step: Literal["prefill", "decode"]  # the step whose bottleneck is named
    first_result: str  # what the time to its first token is called
    verdict_end: Callable[[Outcome], str]  # what it reaches
    load_reasons: Callable[[Outcome], list[str]]  # what its size rests on
    # (field of the workload file, why it changes nothing); the engine never sees their values
    unused_inputs: tuple[tuple[str, str], ...] = ()
    absent_figures: tuple[str, ...] = ()  # null in an option
    trains: bool = False  # a model, instead of serving one: engine/training_search answers it
    trains_whole_model: bool = False  # it has no choice of adapters

    def __repr__(self) -> str:
        return f"Kind({self.name})"

    def uses(self, field: str) -> bool:
        """Whether this field of the workload file (`slo.tpot_ms_p95`) can change the answer."""
        return all(field != unused for unused, _ in self.unused_inputs)

    def tail_latency_s(self, reached: Latencies[T]) -> T:
        """The p95 that this kind of workload is judged by: of TTFT or of TPOT, in seconds."""
        seconds: T = getattr(reached, self.tail_latency)
        return seconds


def rate(per_s: float) -> str:
    """Requests per second in four digits, without an exponent."""
    return f"{per_s:,.0f}" if per_s >= 1000 else f"{per_s:.4g}"


def _latency_and_speed(o: Outcome) -> str:
    latency = f"p95 TTFT {o.ttft_p95_s * 1e3:.0f} ms and p95 TPOT {o.tpot_p95_s * 1e3:.1f} ms"
    return f"{latency} at the peak of {rate(o.peak_requests_per_s)} requests/s"


def _latency(o: Outcome) -> str:
    return f"p95 latency {o.ttft_p95_s * 1e3:.0f} ms at the peak of {rate(o.peak_requests_per_s)} requests/s"


def _run_cost(o: Outcome) -> str:
    assert o.run is not None
    return f"a run takes {o.run.hours:.2g} h of the {o.run.deadline_hours:g} h allowed"


def _simulated_peak(o: Outcome) -> list[str]:
    replicas = f"{o.carrying_replicas} replica{'s' if o.carrying_replicas != 1 else ''}"
    if o.spare_replicas:
        replicas += f" plus {o.spare_replicas} spare replica{'s' if o.spare_replicas != 1 else ''}"
    return [
        f"the peak of {rate(o.peak_requests_per_s)} requests/s is simulated on {replicas}; "
        f"the average load of {rate(o.mean_requests_per_s)} requests/s uses {o.utilisation_fraction:.0%} of the "
        f"capacity"
        f"{_busy(o)}"
    ]


def _busy(o: Outcome) -> str:
    """Why chips compute for longer than the utilization suggests; empty if they hardly do."""
    if o.busy_fraction < o.utilisation_fraction + 0.05:
        return ""
    return (
        f"; the chips still compute {min(o.busy_fraction, 1.0):.0%} of the time, because decode steps run back to back "
        "even when the batch is small"
    )


def _simulated_run(o: Outcome) -> list[str]:
    assert o.run is not None
    paid = "released after each run" if o.run.released else "paid for between runs too"
    again = f"again every {o.run.every_hours:g} h" if math.isfinite(o.run.every_hours) else "once"
    return [
        f"{o.run.requests:,} requests take {o.run.hours:.3g} h with all batch slots full (simulated); "
        f"{o.run.deadline_hours:g} h are allowed, {again}; the machines are {paid}",
        f"this includes {o.run.start_hours * 60:.3g} minutes of startup (tco.cold-start-s) and a tail in which batch "
        "slots run empty",
    ]


SERVING = Kind(
    name="serving",
    title="text generation (online serving)",
    sections=("model", "traffic"),
    has_arrivals=True,
    has_deadline=False,
    released_after_run=False,
    makes="tokens",
    generates_tokens=True,
    tail_latency="tpot_p95_s",
    serves_adapters=True,
    tries_drafts=True,
    tries_disaggregation=True,
    shares_cards=True,
    mixes_accelerators=True,
    priced_token="output",
    main_step="decode",
    first_result="TTFT",
    verdict_end=_latency_and_speed,
    load_reasons=_simulated_peak,
)

NO_TOKENS = "an embedding generates no tokens: e2e_ms_p95 limits its latency"
EMBEDDING = Kind(
    name="embedding",
    title="embeddings",
    sections=("model", "traffic"),
    has_arrivals=True,
    has_deadline=False,
    released_after_run=False,
    makes="vectors",
    generates_tokens=False,
    tail_latency="ttft_p95_s",
    serves_adapters=False,
    tries_drafts=False,
    tries_disaggregation=False,
    shares_cards=False,
    mixes_accelerators=False,
    priced_token="input",
    main_step="prefill",
    first_result="latency",
    verdict_end=_latency,
    load_reasons=_simulated_peak,
    unused_inputs=(("slo.tpot_ms_p95", NO_TOKENS), ("slo.tokens_per_s_per_user", NO_TOKENS)),
    absent_figures=(
        "output_tokens_per_s",
        "output_tokens_per_s_per_accelerator",
        "output_tokens_per_s_at_capacity",
        "usd_per_mtok_output",
        "usd_per_mtok_output_at_capacity",
        "joules_per_output_token",
    ),
)

NO_SCORE_TOKENS = "a reranker generates no tokens: e2e_ms_p95 limits its latency"
RERANKING = replace(
    EMBEDDING,
    name="rerank",
    title="reranking (query and documents to scores)",
    makes="scores",
    unused_inputs=(("slo.tpot_ms_p95", NO_SCORE_TOKENS), ("slo.tokens_per_s_per_user", NO_SCORE_TOKENS)),
)

NO_IMAGE_TOKENS = "an image is not made of output tokens: e2e_ms_p95 limits its latency"
IMAGE_GENERATION = replace(
    EMBEDDING,
    name="image_generation",
    title="image generation (diffusion)",
    makes="images",
    unused_inputs=(
        ("slo.tpot_ms_p95", NO_IMAGE_TOKENS),
        ("slo.tokens_per_s_per_user", NO_IMAGE_TOKENS),
    ),
)

NOBODY_WAITS = "nobody waits for the answers of a batch job; only its deadline counts"
BATCH = Kind(
    name="batch",
    title="batch job with a deadline",
    sections=("model", "traffic", "batch"),
    has_arrivals=False,
    has_deadline=True,
    released_after_run=True,
    makes="tokens",
    generates_tokens=True,
    tail_latency="tpot_p95_s",
    serves_adapters=True,
    tries_drafts=True,
    tries_disaggregation=False,
    shares_cards=False,
    mixes_accelerators=False,
    priced_token="output",
    main_step="decode",
    first_result="TTFT",
    verdict_end=_run_cost,
    load_reasons=_simulated_run,
    unused_inputs=(
        ("traffic.burstiness", "the requests of a batch job all wait at its start"),
        ("traffic.load_curve", "a batch job runs as fast as its hardware allows, at any hour"),
        ("traffic.trace", "a batch job uses the recorded lengths, not the recorded arrival times"),
        ("slo.ttft_ms_p95", NOBODY_WAITS),
        ("slo.tpot_ms_p95", NOBODY_WAITS),
        ("slo.e2e_ms_p95", NOBODY_WAITS),
        ("slo.tokens_per_s_per_user", NOBODY_WAITS),
        ("slo.availability", NOBODY_WAITS),
        ("slo.headroom_fraction", NOBODY_WAITS),
    ),
)

NO_USERS = "a training run has no users who wait"
RUNS_FLAT_OUT = "a training run uses its machines around the clock"
TRAINING = replace(
    BATCH,
    name="training",
    title="training (pre-training and continued pre-training)",
    sections=("model", "training"),
    makes="weights",
    generates_tokens=False,
    serves_adapters=False,
    tries_drafts=False,
    priced_token="input",
    main_step="prefill",
    unused_inputs=(
        *((f"slo.{name}", NO_USERS) for name in ("ttft_ms_p95", "tpot_ms_p95", "e2e_ms_p95", "tokens_per_s_per_user")),
        ("slo.headroom_fraction", NO_USERS),
        ("slo.availability", "spare hosts follow from failures and repair times"),
        ("traffic", RUNS_FLAT_OUT),
    ),
    trains=True,
    trains_whole_model=True,
)
FINETUNING = replace(
    TRAINING, name="finetuning", title="fine-tuning", sections=("model", "finetuning"), trains_whole_model=False
)

KINDS = {kind.name: kind for kind in (SERVING, EMBEDDING, RERANKING, IMAGE_GENERATION, BATCH, TRAINING, FINETUNING)}


def kind_named(name: object) -> Kind:
    """The kind of this name in a workload file; serving for names that have no engine yet."""
    return KINDS.get(str(name), SERVING)
