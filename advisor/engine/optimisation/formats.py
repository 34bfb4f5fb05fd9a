"""Advice on weight and KV-cache formats for this chip and task: gain, quality, and how to check it.

Every format in the catalog is listed once: estimated with the plan's framework, or with the first other framework that
supports it, or with the reason why it cannot run. The gain compares the same estimate with only the format changed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from advisor.engine.kernels import HALF, rate_of
from advisor.engine.network import Model
from advisor.engine.optimisation.plan import Setup, SetupEstimate, uncapped
from advisor.engine.search import (
    ALLOWED_QUALITY,
    FROM_SCRATCH,
    MIN_WEIGHT_BITS,
    QUALITY_RANK,
    Catalog,
    Question,
    Scored,
    published_bits,
    within_quality,
)
from advisor.engine.step import (
    KV_BYTES,
    cache_unsupported,
    defaults_on,
    has_encoder,
    is_published,
    launchable,
    quality_of,
    runs_on,
    supports_model,
    supports_weights,
    weights_on,
    worth_converting,
)
from advisor.engine.terms import Framework, Quantization, Workload, overhead

LONG_ANSWER_TOKENS = 2000  # reasoning outputs: an early error affects the rest
SAME = 1.03  # rates within 3 % tie; the wider format wins
FEW_BITS = 5.0
EXACT_TASKS = ("code", "maths", "reasoning")
CHECKS = {
    "any": "compare both formats blind on your own prompts, and a task score with its spread",
    "chat": "compare 200 of your own conversations blind with the 16-bit model; MT-Bench as a smoke test",
    "code": "run your own unit tests on generated code, then HumanEval or MBPP (pass@1, several samples)",
    "maths": "GSM8K and MATH with exact match and several samples, then your own problems",
    "reasoning": "full-length MATH-500 or AIME with several samples; also compare output lengths",
    "summarisation": "check facts in your own summaries against the source; compare summary lengths",
    "translation": "compare your own sentences blind in every language pair; COMET or BLEU as a smoke test",
    "retrieval": "needle-in-a-haystack at every depth of your longest context, and questions without an answer in it",
}
WARNING = (
    "4-bit decoder weights: AWQ and GPTQ lower Llama-3's MATH scores by 11% on average and up to 32% "
    "(arXiv:2501.03035), most for small models and long reasoning chains (arXiv:2505.11574)"
)
MADE_ON = {
    "minutes": "one GPU with room for one layer, or a CPU",
    "about": "one GPU; calibration runs layer by layer",
    "days": "the training cluster",
    "a": "the training cluster",
    "as": "one GPU; calibration runs layer by layer",
    "none": "no conversion needed",
    "none;": "no conversion needed; one GPU for calibrated scales",
}
PUBLISHED_SO = "no conversion if published in this format; otherwise one GPU with room for one layer"


@dataclass(frozen=True, kw_only=True, slots=True)
class FormatAdvice:
    """Advice on one weight format; `state`: plan, advised, possible, outside (the quality limit), retrained, cannot."""

    quantization: Quantization
    state: str
    framework: Framework | None  # used for the estimate
    native: bool  # computed in the format; False: dequantized to 16 bits first
    estimate: SetupEstimate | None
    gain_ratio: float  # output tokens/s relative to the plan
    why: str
    check: str
    warning: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CacheAdvice:
    """Advice on one KV-cache format."""

    dtype: str
    state: str  # plan | advised | possible | outside | cannot
    framework: Framework | None
    estimate: SetupEstimate | None
    gain_ratio: float  # relative to a 16-bit cache with the same framework
    plan_ratio: float  # relative to the plan
    why: str
    method: Quantization | None = None  # None: the model's own dtype
    check: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bounds:
    """What bounds each phase of the plan: compute, memory, launch, communication or host."""

    prefill: str
    decode: str


def frameworks_here(catalog: Catalog, s: Scored) -> list[Framework]:
    """Frameworks that can serve this model on this chip, the plan's framework first."""
    a, own = s.lane.choice.accelerator, s.lane.framework
    usable = [
        f
        for f in catalog.frameworks
        if runs_on(f, a) and supports_model(f, catalog.model) and launchable(f, catalog.model)
    ]
    return sorted(usable, key=lambda f: (f.slug != own.slug, f.slug))


def with_framework(catalog: Catalog, plan: Setup, f: Framework) -> Setup:
    """The plan with another framework: its scheduler, memory settings and overheads."""
    c = plan.lane.choice
    on_chip = defaults_on(f, c.accelerator)
    kept = c.kv_dtype in f.kv_dtypes and not cache_unsupported(f, c.accelerator, c.kv_dtype, catalog.model)
    kv = c.kv_dtype if kept else next((d for d in HALF if d in f.kv_dtypes), c.kv_dtype)
    lane = replace(
        plan.lane,
        framework=replace(on_chip, max_running_requests=f.max_running_requests),
        choice=replace(
            c,
            overhead=overhead(
                catalog.scopes, f.slug, f.version, c.accelerator.family, c.accelerator.kind, c.accelerator.slug
            ),
            kv_dtype=kv,
        ),
        max_batched_tokens=on_chip.default_max_batched_tokens,
    )
    caches = "prefix_caching" in f.features
    return replace(
        plan,
        lane=uncapped(lane),
        batching="static" if f.scheduler == "static" else "continuous",
        graphs=f.graph_max_tokens > 0,
        cached_fraction=plan.cached_fraction if caches else 0.0,
    )


# --- weights ----------------------------------------------------------------------------------------------------


def format_setups(catalog: Catalog, s: Scored, plan: Setup) -> dict[str, Setup]:
    """By format slug: the plan with each weight format that runs on this chip."""
    here, setups = frameworks_here(catalog, s), {}
    for q in _listed(catalog):
        published = is_published(catalog.model, q) or worth_converting(catalog.model, q, published_bits(catalog))
        runs = ((f, weights_on(f, s.lane.choice.accelerator, q, catalog.model)) for f in here)
        framework, run = next(((f, run) for f, run in runs if isinstance(run, Quantization)), (None, None))
        if framework is None or run is None or q.training == FROM_SCRATCH:
            continue
        if not published:
            continue
        setup = plan if framework is s.lane.framework else with_framework(catalog, plan, framework)
        setups[q.slug] = replace(setup, lane=replace(setup.lane, choice=replace(setup.lane.choice, quantization=run)))
    return setups


def _gain(figure: SetupEstimate | None, now: SetupEstimate | None) -> float:
    """Output tokens/s relative to the plan; NaN if either does not run."""
    if figure is None or now is None or not now.fits:
        return math.nan
    return figure.output_tokens_per_s_per_chip / now.output_tokens_per_s_per_chip


def _listed(catalog: Catalog) -> list[Quantization]:
    """Weight formats to list; without FP32 and the 16-bit format that duplicates the model's own."""
    if has_encoder(catalog.model):
        return []
    kept = ("bf16", "fp16") if catalog.model.native_dtype == "fp16" else ("bf16",)
    return [q for q in catalog.quantizations if q.weights_dtype not in ("fp32", *HALF) or q.slug in kept]


def format_advice(
    question: Question, s: Scored, figures: dict[str, SetupEstimate], bounds: Bounds
) -> list[FormatAdvice]:
    """Advice on every weight format, the recommended one first."""
    current = figures.get(s.lane.choice.quantization.slug)
    advice = [_advice(question, s, q, figures.get(q.slug), current, bounds) for q in _listed(question.catalog)]
    best = advised(question.workload, s, question.catalog.model, advice)
    advice = [replace(a, state="advised") if a is best and a.state != "plan" else a for a in advice]
    order = ("advised", "plan", "possible", "outside", "retrained", "cannot")
    return sorted(advice, key=lambda a: (order.index(a.state), -(a.gain_ratio if a.gain_ratio == a.gain_ratio else 0)))


def advised(workload: Workload, s: Scored, model: Model, advice: Sequence[FormatAdvice]) -> FormatAdvice | None:
    """The fastest format within the requested quality; among ties the one with the best quality."""
    usable = [a for a in advice if a.state in ("plan", "possible") and a.estimate is not None and a.estimate.fits]
    if not usable:
        return None
    top = max(_tokens_per_s(workload, s, a) for a in usable)
    near = [a for a in usable if _tokens_per_s(workload, s, a) * SAME >= top]
    return min(near, key=lambda a: (QUALITY_RANK[quality_of(model, a.quantization)], -_tokens_per_s(workload, s, a)))


def _tokens_per_s(workload: Workload, s: Scored, a: FormatAdvice) -> float:
    """Tokens/s per chip if several replicas are needed; else tokens/s per user, because one replica is enough."""
    assert a.estimate is not None
    if s.replicas - s.spare_replicas > 1 or workload.objective == "throughput":
        return a.estimate.output_tokens_per_s_per_chip
    return 1.0 / a.estimate.light_tpot_s if a.estimate.light_tpot_s else 0.0  # one-token answers have no TPOT


def _advice(
    question: Question,
    s: Scored,
    q: Quantization,
    figure: SetupEstimate | None,
    now: SetupEstimate | None,
    bounds: Bounds,
) -> FormatAdvice:
    catalog = question.catalog
    chip = s.lane.choice.accelerator
    state = _state(question, s, q, figure)
    gain = _gain(figure, now)
    run = figure.setup.lane.choice.quantization if figure else q  # weight-only on chips without its dtype
    why = _why(catalog.model, run, s, bounds) if state != "cannot" else _why_not(catalog, s, q, figure)
    return FormatAdvice(
        quantization=q,
        state=state,
        framework=figure.setup.lane.framework if figure else None,
        native=not run.weight_only and rate_of(chip, run.activations_dtype) is not None,
        estimate=figure,
        gain_ratio=gain,
        why=why,
        check=check_of(question.workload, catalog.model, q),
        warning=warning_of(question, q),
    )


def _state(question: Question, s: Scored, q: Quantization, figure: SetupEstimate | None) -> str:
    if q.slug == s.lane.choice.quantization.slug:
        return "plan"
    published = is_published(question.catalog.model, q)
    if q.training and not published:
        return "retrained"
    if figure is None or not figure.fits:
        return "cannot"
    allowed = within_quality(question.workload, question.catalog.model, q) and (
        published or q.bits_per_weight >= MIN_WEIGHT_BITS
    )
    return "possible" if allowed else "outside"


def _why_not(catalog: Catalog, s: Scored, q: Quantization, figure: SetupEstimate | None) -> str:
    if figure is not None:
        return f"does not fit on {s.lane.choice.tp} chip{'s' if s.lane.choice.tp > 1 else ''} per replica"
    published = published_bits(catalog)
    if not is_published(catalog.model, q) and not worth_converting(catalog.model, q, published):
        return f"the published checkpoint has {published:g} bits per weight; a conversion to this format gains nothing"
    here = frameworks_here(catalog, s)
    reasons = [r for f in here if isinstance(r := weights_on(f, s.lane.choice.accelerator, q, catalog.model), str)]
    return (
        reasons[0]
        if len(here) == 1 and reasons
        else (f"no documented support for it on this chip in {', '.join(sorted({f.name for f in here}))}")
    )


def _why(model: Model, q: Quantization, s: Scored, bounds: Bounds) -> str:
    """Where this format helps on this chip, and where it does not."""
    chip = s.lane.choice.accelerator
    if is_published(model, q) and q.bits_per_weight >= 16:
        return "the published format: no conversion, no quality check"
    half, own = rate_of(chip, "bf16") or math.nan, rate_of(chip, q.activations_dtype) or math.nan
    reads = f"decode is {bounds.decode}-bound and reads {q.bits_per_weight:g} instead of 16 bits per weight"
    if bounds.decode != "memory":
        reads = f"decode is {bounds.decode}-bound, so reading fewer bits per weight helps less"
    if q.weight_only:
        cost = "weights are dequantized to 16 bits before the multiply, so prefill"
        return f"{reads}; {cost} {'does not get faster' if bounds.prefill == 'compute' else 'gains little'}"
    rate = f"the chip's {q.activations_dtype} rate is {own / half:.1f} times its 16-bit rate"
    return f"{reads}; prefill is {bounds.prefill}-bound, and {rate}"


def check_of(workload: Workload, model: Model, q: Quantization) -> str:
    """How to check the quality of a format for this task."""
    if quality_of(model, q) == "lossless":
        return "one smoke test"
    return CHECKS.get(workload.task, CHECKS["any"])


def warning_of(question: Question, q: Quantization) -> str:
    """Published quality losses of low-bit decoder weights; empty for the model's published format."""
    if q.bits_per_weight >= FEW_BITS or is_published(question.catalog.model, q) or question.catalog.model.encoder_only:
        return ""
    exact = question.workload.task in EXACT_TASKS or question.workload.output_tokens.mean_tokens >= LONG_ANSWER_TOKENS
    ends = "; this workload is affected: prefer 8 bits unless your own test shows otherwise" if exact else ""
    return WARNING + ends


def made_on(effort: str) -> str:
    """Hardware for converting to a format, looked up by the first word of its `effort`."""
    if effort.startswith("none where"):
        return PUBLISHED_SO
    if effort.startswith("none;"):
        return MADE_ON["none;"]
    return MADE_ON.get(effort.split(" ")[0].rstrip(",:;"), "see effort")


# --- cache ------------------------------------------------------------------------------------------------------

CACHE_CHECK = (
    "needle-in-a-haystack at every depth of your longest context, then your own task at full length with both caches"
)
CACHES = ("bf16", "fp16", "fp8", "int8", "int4")


def cache_setups(catalog: Catalog, s: Scored, plan: Setup) -> dict[tuple[str, str], Setup]:
    """By (dtype, "own" or "half"): the plan with each cache format, and its 16-bit baseline on the same framework."""
    setups = {}
    for kv in CACHES:
        if kv not in KV_BYTES:
            continue
        framework = next((f for f in frameworks_here(catalog, s) if _supports_cache(catalog, f, s, kv)), None)
        if framework is None:
            continue
        setup = plan if framework is s.lane.framework else with_framework(catalog, plan, framework)
        half = next((d for d in HALF if d in framework.kv_dtypes), kv)
        setups[(kv, "own")], setups[(kv, "half")] = _with_cache(setup, kv), _with_cache(setup, half)
    return setups


def _with_cache(setup: Setup, kv: str) -> Setup:
    return replace(setup, lane=replace(setup.lane, choice=replace(setup.lane.choice, kv_dtype=kv)))


def _supports_cache(catalog: Catalog, f: Framework, s: Scored, kv: str) -> bool:
    """Whether the framework has this cache format together with the plan's weights on the plan's chip."""
    c = s.lane.choice
    return (
        kv in f.kv_dtypes
        and not cache_unsupported(f, c.accelerator, kv, catalog.model)
        and supports_weights(f, c.accelerator, as_listed(catalog, c.quantization), catalog.model)
    )


def as_listed(catalog: Catalog, q: Quantization) -> Quantization:
    """The format as the catalog lists it, from one that a framework runs weight-only."""
    return next((each for each in catalog.quantizations if each.slug == q.slug), q)


def cache_advice(
    workload: Workload, s: Scored, figures: dict[tuple[str, str], SetupEstimate], methods: Sequence[Quantization]
) -> list[CacheAdvice]:
    """Advice on every KV-cache format; `advised` is the fastest within the requested quality."""
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
    words = [method.quality_note if method else "the model's own dtype"]
    if framework is None:
        words = ["no framework in the catalog supports it on this chip with the plan's weights"]
    elif framework is not s.lane.framework:
        other = f"{framework.name} does, at {against:.2f} times the plan's tokens/s"
        words.append(f"{s.lane.framework.name} does not support it on this chip; {other}")
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
