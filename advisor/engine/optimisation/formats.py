"""Which format for weights and cache, on this chip and for this task: what it brings, what it costs, how to check it.

Every format of the catalog is listed once: measured under the plan's framework, or under the first other one that
loads it here, or with the reason why it does not run. The gain is that of the same estimate with the format changed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from advisor.engine.optimisation.plan import Setup, SetupEstimate, free
from advisor.engine.search import (
    ALLOWED_QUALITY,
    FROM_SCRATCH,
    MIN_WEIGHT_BITS,
    QUALITY_RANK,
    Catalog,
    Scored,
    launchable,
    runs_on,
    supports_model,
)
from advisor.engine.spec import Framework, Quantization, Workload, overhead
from advisor.engine.step import HALF, KV_BYTES, has_encoder, rate_of, unsupported

LONG_ANSWER_TOKENS = 2000  # answers of reasoning: an early slip is carried to the end
SAME = 1.03  # rates this close are a tie, which the wider format wins
FEW_BITS = 5.0
EXACT_TASKS = ("code", "maths", "reasoning")
CHECKS = {
    "any": "your own prompts, answers of both formats side by side, judged blind; a task score with its spread",
    "chat": "200 conversations of your own, judged blind against 16 bits; MT-Bench as a smoke test",
    "code": "your own unit tests on generated code, then HumanEval or MBPP (pass@1, several samples)",
    "maths": "GSM8K and MATH, exact answers, several samples; then your own problems",
    "reasoning": "long answers to their end: MATH-500 or AIME, several samples, and how long answers became",
    "summarisation": "facts of your own summaries against the source; length of summaries",
    "translation": "your own sentences in every language pair, judged blind; COMET or BLEU as a smoke test",
    "retrieval": "needles at every depth of your longest context, and questions whose answer is not there",
}
WARNING = (
    "4-bit weights of decoders: AWQ and GPTQ cost Llama-3 11 % on average and up to 32 % on MATH "
    "(arXiv:2501.03035), small models and long chains most (arXiv:2505.11574)"
)
MADE_ON = {
    "minutes": "one GPU that holds a layer at a time, or a CPU",
    "about": "one GPU; calibration passes run layer by layer",
    "days": "the training cluster",
    "a": "the training cluster",
    "as": "one GPU; calibration passes run layer by layer",
    "none": "nothing to make",
    "none;": "nothing to make; a GPU for calibrated scales",
}
PUBLISHED_SO = "nothing where it is published so; else one GPU that holds a layer at a time"


@dataclass(frozen=True, kw_only=True, slots=True)
class FormatAdvice:
    """One format: state is plan, advised, possible, outside (the asked quality), retrained or cannot."""

    quantization: Quantization
    state: str
    framework: Framework | None  # that it was measured under
    native: bool  # multiplied in the format itself; False: widened to 16 bits first
    estimate: SetupEstimate | None
    gain_ratio: float  # output tokens/s against the plan
    why: str
    check: str
    warning: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CacheAdvice:
    """One format of the cache."""

    dtype: str
    state: str  # plan | advised | possible | outside | cannot
    framework: Framework | None
    estimate: SetupEstimate | None
    gain_ratio: float  # against 16 bits under the same framework
    plan_ratio: float  # against the plan
    why: str
    method: Quantization | None = None  # None: as the model computes it
    check: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bounds:
    """What each phase of the plan waits for: compute, memory, launch, communication or host."""

    prefill: str
    decode: str


def frameworks_here(catalog: Catalog, s: Scored) -> list[Framework]:
    """That run this model on this chip and can be started; the plan's own first."""
    a, own = s.lane.choice.accelerator, s.lane.framework
    usable = [
        f
        for f in catalog.frameworks
        if runs_on(f, a) and supports_model(f, catalog.model) and launchable(f, catalog.model)
    ]
    return sorted(usable, key=lambda f: (f.slug != own.slug, f.slug))


def under(catalog: Catalog, plan: Setup, f: Framework) -> Setup:
    """The plan under another framework, with that one's scheduler, memory and overheads."""
    c = plan.lane.choice
    kv = c.kv_dtype if c.kv_dtype in f.kv_dtypes else next((d for d in HALF if d in f.kv_dtypes), c.kv_dtype)
    lane = replace(
        plan.lane,
        framework=f,
        choice=replace(c, overhead=overhead(catalog.scopes, f.slug, f.version, c.accelerator.family), kv_dtype=kv),
        max_batched_tokens=f.default_max_batched_tokens,
    )
    caches = "prefix_caching" in f.features
    return replace(
        plan,
        lane=free(lane),
        batching="static" if f.scheduler == "static" else "continuous",
        graphs=f.graph_max_tokens > 0,
        cached_fraction=plan.cached_fraction if caches else 0.0,
    )


# --- weights ----------------------------------------------------------------------------------------------------


def format_setups(catalog: Catalog, s: Scored, plan: Setup) -> dict[str, Setup]:
    """For each format that runs here the plan with it: on the fewest of the plan's chips, doubled while it must."""
    here, setups = frameworks_here(catalog, s), {}
    for q in _listed(catalog):
        framework = next((f for f in here if q.slug in f.quantizations), None)
        if framework is None or unsupported(s.lane.choice.accelerator, q) or q.training == FROM_SCRATCH:
            continue
        setup = plan if framework is s.lane.framework else under(catalog, plan, framework)
        setups[q.slug] = replace(setup, lane=replace(setup.lane, choice=replace(setup.lane.choice, quantization=q)))
    return setups


def _gain(figure: SetupEstimate | None, now: SetupEstimate | None) -> float:
    """Against the plan; NaN where one of them does not run."""
    if figure is None or now is None or not now.fits:
        return math.nan
    return figure.output_tokens_per_s_per_chip / now.output_tokens_per_s_per_chip


def _listed(catalog: Catalog) -> list[Quantization]:
    """Without those that differ in name only: FP32 never pays, FP16 weighs what BF16 weighs."""
    if has_encoder(catalog.model):
        return []
    kept = ("bf16", "fp16") if catalog.model.native_dtype == "fp16" else ("bf16",)
    return [q for q in catalog.quantizations if q.weights_dtype not in ("fp32", *HALF) or q.slug in kept]


def format_advice(
    workload: Workload, catalog: Catalog, s: Scored, figures: dict[str, SetupEstimate], bounds: Bounds
) -> list[FormatAdvice]:
    """Every format, the advised first."""
    current = figures.get(s.lane.choice.quantization.slug)
    advice = [_advice(workload, catalog, s, q, figures.get(q.slug), current, bounds) for q in _listed(catalog)]
    best = advised(workload, s, advice)
    advice = [replace(a, state="advised") if a is best and a.state != "plan" else a for a in advice]
    order = ("advised", "plan", "possible", "outside", "retrained", "cannot")
    return sorted(advice, key=lambda a: (order.index(a.state), -(a.gain_ratio if a.gain_ratio == a.gain_ratio else 0)))


def advised(workload: Workload, s: Scored, advice: Sequence[FormatAdvice]) -> FormatAdvice | None:
    """The quickest within the asked quality; of those as quick, the one that loses least."""
    usable = [a for a in advice if a.state in ("plan", "possible") and a.estimate is not None and a.estimate.fits]
    if not usable:
        return None
    top = max(_worth(workload, s, a) for a in usable)
    near = [a for a in usable if _worth(workload, s, a) * SAME >= top]
    return min(near, key=lambda a: (QUALITY_RANK[a.quantization.quality], -_worth(workload, s, a)))


def _worth(workload: Workload, s: Scored, a: FormatAdvice) -> float:
    """Tokens/s of a chip where chips are what is bought; tokens/s of a user where one replica is enough anyway."""
    assert a.estimate is not None
    if s.replicas - s.spare_replicas > 1 or workload.objective == "throughput":
        return a.estimate.output_tokens_per_s_per_chip
    return 1.0 / a.estimate.light_tpot_s


def _advice(
    workload: Workload,
    catalog: Catalog,
    s: Scored,
    q: Quantization,
    figure: SetupEstimate | None,
    now: SetupEstimate | None,
    bounds: Bounds,
) -> FormatAdvice:
    chip = s.lane.choice.accelerator
    state = _state(workload, catalog, s, q, figure)
    gain = _gain(figure, now)
    why = _why(q, s, bounds) if state != "cannot" else _why_not(catalog, s, q, figure)
    return FormatAdvice(
        quantization=q,
        state=state,
        framework=figure.setup.lane.framework if figure else None,
        native=not q.weight_only and rate_of(chip, q.activations_dtype) is not None,
        estimate=figure,
        gain_ratio=gain,
        why=why,
        check=check_of(workload, q),
        warning=warning_of(workload, catalog, q),
    )


def _state(workload: Workload, catalog: Catalog, s: Scored, q: Quantization, figure: SetupEstimate | None) -> str:
    if q == s.lane.choice.quantization:
        return "plan"
    native = catalog.model.native_dtype in (q.slug, q.weights_dtype)
    if q.training and not native:
        return "retrained"
    if figure is None or not figure.fits:
        return "cannot"
    allowed = (
        QUALITY_RANK[q.quality] <= ALLOWED_QUALITY[workload.constraints.quality]
        and q.bits_per_weight >= MIN_WEIGHT_BITS
    )
    allowed |= native
    return "possible" if allowed else "outside"


def _why_not(catalog: Catalog, s: Scored, q: Quantization, figure: SetupEstimate | None) -> str:
    if figure is not None:
        return f"does not fit {s.lane.choice.tp} chip{'s' if s.lane.choice.tp > 1 else ''} a replica"
    names = ", ".join(sorted({f.name for f in frameworks_here(catalog, s)}))
    return unsupported(s.lane.choice.accelerator, q) or f"{names}: none is known to load it here"


def _why(q: Quantization, s: Scored, bounds: Bounds) -> str:
    """Where it helps here and where it does not."""
    chip = s.lane.choice.accelerator
    if q.bits_per_weight >= 16:
        return "as published: nothing to make, nothing to check"
    half, own = rate_of(chip, "bf16") or math.nan, rate_of(chip, q.activations_dtype) or math.nan
    reads = f"decode waits for {bounds.decode}: {q.bits_per_weight:g} bits a weight are read, not 16"
    if bounds.decode != "memory":
        reads = f"decode waits for {bounds.decode}, not for reading weights: fewer bits help less"
    if q.weight_only:
        cost = "widened to 16 bits before the multiply, so prefill"
        return f"{reads}; {cost} {'does not get faster' if bounds.prefill == 'compute' else 'gains little'}"
    rate = f"this chip multiplies {q.activations_dtype} {own / half:.1f} times as fast as 16 bits"
    return f"{reads}; prefill waits for {bounds.prefill}: {rate}"


def check_of(workload: Workload, q: Quantization) -> str:
    """How to find out what a format costs in this task."""
    if q.quality == "lossless":
        return "one smoke test"
    return CHECKS.get(workload.task, CHECKS["any"])


def warning_of(workload: Workload, catalog: Catalog, q: Quantization) -> str:
    """What is known of few bits on decoders; formats in which the model is published are its reference."""
    native = catalog.model.native_dtype in (q.slug, q.weights_dtype)
    if q.bits_per_weight >= FEW_BITS or native or catalog.model.encoder_only:
        return ""
    exact = workload.task in EXACT_TASKS or workload.output_tokens.mean_tokens >= LONG_ANSWER_TOKENS
    ends = "; this workload is of that kind: prefer 8 bits unless your own test says otherwise" if exact else ""
    return WARNING + ends


def made_on(effort: str) -> str:
    """On what a format is made, by the first word of how long it takes."""
    if effort.startswith("none where"):
        return PUBLISHED_SO
    if effort.startswith("none;"):
        return MADE_ON["none;"]
    return MADE_ON.get(effort.split(" ")[0].rstrip(",:;"), "see the effort")


# --- cache ------------------------------------------------------------------------------------------------------

CACHE_CHECK = (
    "needles at every depth of your longest context, then your own task at full length, both caches side by side"
)
CACHES = ("bf16", "fp16", "fp8", "int8", "int4")


def cache_setups(catalog: Catalog, s: Scored, plan: Setup) -> dict[tuple[str, str], Setup]:
    """By (dtype, which): the plan with each cache format, "own", and the same framework with 16 bits, "half"."""
    setups = {}
    for kv in CACHES:
        if kv not in KV_BYTES or (kv == "fp8" and rate_of(s.lane.choice.accelerator, "fp8") is None):
            continue
        framework = next((f for f in frameworks_here(catalog, s) if kv in f.kv_dtypes and _loads(f, s)), None)
        if framework is None:
            continue
        setup = plan if framework is s.lane.framework else under(catalog, plan, framework)
        half = next((d for d in HALF if d in framework.kv_dtypes), kv)
        setups[(kv, "own")], setups[(kv, "half")] = _kept(setup, kv), _kept(setup, half)
    return setups


def _kept(setup: Setup, kv: str) -> Setup:
    return replace(setup, lane=replace(setup.lane, choice=replace(setup.lane.choice, kv_dtype=kv)))


def _loads(f: Framework, s: Scored) -> bool:
    return s.lane.choice.quantization.slug in f.quantizations


def cache_advice(
    workload: Workload, s: Scored, figures: dict[tuple[str, str], SetupEstimate], methods: Sequence[Quantization]
) -> list[CacheAdvice]:
    """Every format of the cache; advised is the best against the plan within the asked quality."""
    own = s.lane.choice.kv_dtype
    current = figures.get((own, "own"))
    kinds = [kv for kv in CACHES if kv not in HALF or kv == own or (kv == "bf16" and own not in HALF)]
    advice = [_cache(workload, s, kv, figures, current, methods) for kv in kinds]
    usable = [c for c in advice if c.state in ("plan", "possible") and c.plan_ratio == c.plan_ratio]
    best = max(usable, key=lambda c: c.plan_ratio * (1.0 if c.state == "possible" else SAME), default=None)
    return [replace(c, state="advised") if c is best and c.state != "plan" else c for c in advice]


def _cache(
    workload: Workload,
    s: Scored,
    kv: str,
    figures: dict[tuple[str, str], SetupEstimate],
    now: SetupEstimate | None,
    methods: Sequence[Quantization],
) -> CacheAdvice:
    figure, method = figures.get((kv, "own")), next((m for m in methods if m.weights_dtype == kv), None)
    allowed = method is None or QUALITY_RANK[method.quality] <= ALLOWED_QUALITY[workload.constraints.quality]
    state = "cannot" if figure is None else "possible" if allowed else "outside"
    gain, against = _gain(figure, figures.get((kv, "half"))), _gain(figure, now)
    framework = figure.setup.lane.framework if figure else None
    words = [method.quality_note if method else "as the model computes it"]
    if framework is None:
        words = ["no framework of the catalog keeps it on this chip with the plan's weights"]
    elif framework is not s.lane.framework:
        other = f"{framework.name} does, at {against:.2f} of the plan"
        words.append(f"{s.lane.framework.name} does not keep it here; {other}")
    return CacheAdvice(
        dtype=kv,
        state="plan" if kv == s.lane.choice.kv_dtype else state,
        framework=framework,
        estimate=figure,
        gain_ratio=gain,
        plan_ratio=against,
        why=" ".join(words),
        method=method,
        check=CACHE_CHECK if method else "",
    )
