"""How to run an option: optimization plan, formats, frameworks, pitfalls, roofline, drafts and separate pools."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, TypedDict

from advisor.answer.question import Question
from advisor.engine.cost import HOURS_PER_MONTH
from advisor.engine.launch import checkpoint_of
from advisor.engine.network import Model
from advisor.engine.optimisation import (
    Bounds,
    CacheAdvice,
    FormatAdvice,
    FrameworkComparison,
    OptimisationPlan,
    Setup,
    SetupEstimate,
    cache_advice,
    cache_setups,
    compare_frameworks,
    format_advice,
    format_setups,
    framework_setups,
    made_on,
    pitfalls,
    roofline_of,
)
from advisor.engine.optimisation import Roofline as EngineRoofline
from advisor.engine.optimisation import plan as engine_plan
from advisor.engine.search import Catalog, DraftRisk, Scored
from advisor.engine.step import Draft, Lanes, Line, is_published, lanes, published_conversion, quality_of
from advisor.engine.terms import Framework, usd_text
from advisor.inputs import Snapshot, number, quantization_of, rounded
from advisor.result import (
    CacheFormatChoice,
    Disaggregated,
    FormatChoice,
    FrameworkChoice,
    LowerAcceptance,
    Option,
    Pitfall,
    Pool,
    Roofline,
    RooflinePhase,
    Speculative,
    StepBudget,
    Tuning,
    TuningPlan,
    TuningStep,
    Variant,
)
from catalog.details import maturity_of

Json = dict[str, Any]
Methods = Mapping[str, Json]  # rows of the snapshot by slug
four_digits = partial(number, digits=4)  # gains and shares are not known to more


def tuning(
    question: Question,
    s: Scored,
    built: Lanes,
    prefill: list[Line],
    decode: list[Line],
) -> Tuning:
    """How to run one recommendation; `prefill` and `decode` are the ledgers of its steps."""
    workload, catalog = question.workload, question.catalog
    traps = [
        Pitfall(slug=p.slug, what=p.what, remedy=p.remedy, source=p.source)
        for p in pitfalls(workload, catalog.model, s, built)
    ]
    roof = roofline(roofline_of(s, built, prefill, decode))
    if not workload.kind.generates_tokens:
        return Tuning(plan=None, formats=[], cache_formats=[], frameworks=[], pitfalls=traps, roofline=roof)
    plan = engine_plan.planned(workload, s)
    formats = format_setups(catalog, s, plan)
    caches = cache_setups(catalog, s, plan)
    frameworks = framework_setups(catalog, s, plan)
    setups = [*formats.values(), *caches.values(), *frameworks.values()]
    estimates = engine_plan.estimate_setups(workload, catalog.model, setups)
    by_format = dict(zip(formats, estimates, strict=False))
    by_cache = dict(zip(caches, estimates[len(formats) :], strict=False))
    by_framework = dict(zip(frameworks, estimates[len(formats) + len(caches) :], strict=True))
    of_prefill, of_decode = (longest_wait((x.bound, x.time_s) for x in lines) for lines in (prefill, decode))
    bounds = Bounds(prefill=of_prefill, decode=of_decode)
    methods = {row["slug"]: row for row in question.snapshot.quantizations}
    steps = engine_plan.optimisation_plan(question, s)
    cache_methods = [quantization_of(row) for row in methods.values() if row.get("applies_to") == "kv"]
    compared = compare_frameworks(question, s, by_framework, cache_tokens(catalog, frameworks))
    return Tuning(
        plan=tuning_plan(steps, methods) if steps else None,
        formats=[format_choice(a, catalog.model, methods) for a in format_advice(question, s, by_format, bounds)],
        cache_formats=[cache_choice(a, methods) for a in cache_advice(workload, s, by_cache, cache_methods)],
        frameworks=framework_choices(question.snapshot, compared),
        pitfalls=traps,
        roofline=roof,
    )


def longest_wait(waited_s: Iterable[tuple[str, float]]) -> str:
    """What a step spends most of its time on, such as compute, memory or communication; of nothing, memory."""
    waits: dict[str, float] = {}
    for bound, seconds in waited_s:
        waits[bound] = waits.get(bound, 0.0) + seconds
    return max(waits, key=lambda bound: waits[bound], default="memory")


def cache_tokens(catalog: Catalog, setups: dict[tuple[str, str], Setup]) -> dict[tuple[str, str], float]:
    """Tokens of KV cache that a replica has under each framework."""
    if not setups:
        return {}
    per_lane = lanes(catalog.model, [s.lane for s in setups.values()]).memory.kv_capacity_tokens
    sizes = [s.lane.choice.lanes for s in setups.values()]
    return {key: float(tokens) * n for key, tokens, n in zip(setups, per_lane, sizes, strict=True)}


# --- one section each -------------------------------------------------------------------------------------------


class Figures(TypedDict, total=False):
    """The fields of result.SetupFigures."""

    output_tokens_per_s_per_accelerator: float | None
    tpot_ms: float | None
    ttft_ms: float | None
    concurrency: float | None
    within_tpot_limit: bool


def figures(m: SetupEstimate | None) -> Figures:
    if m is None or not m.fits:
        return {"output_tokens_per_s_per_accelerator": None, "tpot_ms": None, "ttft_ms": None, "concurrency": None}
    return {
        "output_tokens_per_s_per_accelerator": four_digits(m.output_tokens_per_s_per_chip),
        "tpot_ms": four_digits(m.tpot_s * 1e3),
        "ttft_ms": four_digits(m.ttft_s * 1e3),
        "concurrency": four_digits(m.concurrency),
        "within_tpot_limit": bool(m.within_limit),
    }


def tuning_plan(plan: OptimisationPlan, methods: Methods) -> TuningPlan:
    steps = []
    for step in plan.steps:
        t, effort = step.technique, step.technique.effort
        if not effort and step.estimate:
            effort = methods[step.estimate.setup.lane.choice.quantization.slug].get("effort", "")
        steps.append(
            TuningStep(
                technique=t.slug,
                name=t.name,
                state=step.state,
                change=step.change,
                gain_ratio=four_digits(step.gain_ratio),
                because=step.because,
                effort=effort,
                risk=t.risk,
                needs=t.needs,
                source=t.source,
                **figures(step.estimate),
            )
        )
    return TuningPlan(gain_ratio=four_digits(plan.gain_ratio), steps=steps)


class Making(TypedDict, total=False):
    """What it takes to get a checkpoint or cache in a format; nothing where the format cannot be used."""

    effort: str
    made_on: str
    check: str


def making(state: str, effort: str, check: str) -> Making:
    return {} if state == "cannot" else {"effort": effort, "made_on": made_on(effort), "check": check}


def release(framework: Framework | None) -> str | None:
    return f"{framework.name} {framework.version}" if framework else None


def format_choice(a: FormatAdvice, model: Model, methods: Methods) -> FormatChoice:
    q = a.quantization
    published = is_published(model, q) or published_conversion(model, q) is not None
    effort = "none" if published else methods.get(q.slug, {}).get("effort", "")
    return FormatChoice(
        slug=q.slug,
        name=q.name,
        state=a.state,
        bits_per_weight=q.bits_per_weight,
        native=a.native,
        framework=release(a.framework),
        gain_ratio=four_digits(a.gain_ratio),
        **figures(a.estimate),
        why=a.why,
        quality=quality_of(model, q),
        quality_note=q.quality_note,
        quality_source=q.source,
        **making(a.state, effort, a.check),
        warning=a.warning,
    )


def cache_choice(a: CacheAdvice, methods: Methods) -> CacheFormatChoice:
    effort = methods[a.method.slug].get("effort", "") if a.method else "none"
    return CacheFormatChoice(
        dtype=a.dtype,
        state=a.state,
        framework=release(a.framework),
        gain_ratio=four_digits(a.gain_ratio),
        plan_ratio=four_digits(a.plan_ratio),
        **figures(a.estimate),
        why=a.why,
        quality=a.method.quality if a.method else "lossless",
        quality_source=a.method.source if a.method else "",
        **making(a.state, effort, a.check),
    )


def framework_choices(snapshot: Snapshot, compared: list[FrameworkComparison]) -> list[FrameworkChoice]:
    rows = {(row["slug"], row["version"]): row for row in snapshot.frameworks}
    return [framework_choice(r, rows.get((r.framework.slug, r.framework.version), {}), snapshot) for r in compared]


def framework_choice(r: FrameworkComparison, row: Json, snapshot: Snapshot) -> FrameworkChoice:
    maturity = maturity_of(row.get("first_release"), row.get("releases"), row.get("facts_as_of") or snapshot.asked_on)
    return FrameworkChoice(
        slug=r.framework.slug,
        name=r.framework.name,
        version=r.framework.version,
        best=r.best,
        plan=r.plan,
        **figures(r.estimate),
        kv_capacity_tokens=four_digits(r.kv_capacity_tokens),
        features=list(r.framework.features),
        effort=r.effort,
        maturity=maturity.level,
        maturity_because=maturity.reason,
        licence=row.get("licence"),
        because=r.because,
        source=r.framework.source,
    )


def roofline(r: EngineRoofline) -> Roofline:
    return Roofline(
        dtype=r.dtype,
        datasheet_flops_per_s=four_digits(r.datasheet_flops_per_s),
        datasheet_bytes_per_s=four_digits(r.datasheet_bytes_per_s),
        reached_flops_per_s=four_digits(r.reached_flops_per_s),
        reached_bytes_per_s=four_digits(r.reached_bytes_per_s),
        ridge_flops_per_byte=four_digits(r.ridge_flops_per_byte),
        basis=r.basis,
        phases=[
            RooflinePhase(
                phase=p.name,
                flops=four_digits(p.flops),
                bytes=four_digits(p.bytes),
                time_s=four_digits(p.time_s),
                flops_per_byte=four_digits(p.flops_per_byte),
                flops_per_s=four_digits(p.flops_per_s),
                sequences=four_digits(p.sequences),
            )
            for p in r.phases
        ],
        sentences=list(r.sentences),
    )


# --- drafts and separate pools ----------------------------------------------------------------------------------


def variant_label(s: Scored) -> str:
    """What the label adds for separate pools."""
    return f", {s.pools.prefill_replicas} for prefill and {s.pools.decode_replicas} for decode" if s.pools else ""


def speculative(model: Model, s: Scored, risk: DraftRisk | None = None) -> Speculative | None:
    draft = s.lane.draft
    if draft is None:
        return None
    stated = draft_section(draft, model)
    return with_risk(s, stated, risk) if risk else stated


def draft_section(draft: Draft, model: Model) -> Speculative:
    return Speculative(
        method=draft.method,
        draft=checkpoint_of(draft, model),
        k=draft.tokens,
        acceptance=four_digits(draft.accepted_fraction),
        tokens_shown_per_step=four_digits(draft.shown_tokens),
        task=draft.task,
        source=draft.source,
        acceptance_low=four_digits(draft.accepted_range[0]) if draft.accepted_fraction else None,
        acceptance_high=four_digits(draft.accepted_range[1]) if draft.accepted_fraction else None,
    )


def with_risk(s: Scored, stated: Speculative, risk: DraftRisk) -> Speculative:
    """The section with what a lower acceptance does, in figures and in words."""
    lower, larger, rate = risk.lower, risk.lower_scored, bool(s.lane.draft and s.lane.draft.accepted_fraction)
    filled = stated.changed(
        lower_acceptance=LowerAcceptance(
            acceptance=four_digits(lower.accepted_fraction) if rate else None,
            tokens_shown_per_step=rounded(lower.shown_tokens, 4),
            ttft_ms_p95=number(risk.lower_verified.ttft_p95_s * 1e3),
            tpot_ms_p95=number(risk.lower_verified.tpot_p95_s * 1e3),
            meets_slo=risk.lower_meets_slo,
            replicas=larger.replicas if larger else None,
            usd_per_month=rounded(larger.usd_per_hour * HOURS_PER_MONTH) if larger else None,
        ),
        tpot_ms_p95_without=number(risk.without.tpot_p95_s * 1e3),
        meets_slo_without=risk.without_meets_slo,
    )
    if risk.break_even is not None:
        filled = filled.changed(
            break_even_acceptance=four_digits(risk.break_even.accepted_fraction) if rate else None,
            break_even_tokens_shown_per_step=four_digits(risk.break_even.shown_tokens),
        )
    return filled.changed(said=acceptance_sentences(filled))


def acceptance_sentences(stated: Speculative) -> list[str]:
    """Acceptance and its source, what a drop costs, where a limit is missed, and the speed without drafts."""
    lower, least = stated.lower_acceptance, stated.break_even_tokens_shown_per_step
    assert lower is not None
    lines = [f"speculative decoding with {stated.draft}: {accepted(stated.acceptance, stated)} ({stated.source})"]
    after = f"if acceptance is 20% lower, p95 TPOT is {lower.tpot_ms_p95 or 0.0:.1f} ms"
    if least is None:
        lines.append(after)
    elif lower.meets_slo:
        lines.append(f"{after}, and every limit still holds at the same cost")
    elif lower.usd_per_month is not None:
        lines.append(
            f"{after} and a limit is missed; {lower.replicas} replicas at {usd_text(lower.usd_per_month)} a month "
            f"meet it"
        )
    else:
        lines.append(f"{after} and a limit is missed; twice as many replicas of this layout do not meet it either")
    if least is not None and least <= 1.0:
        lines.append("every limit holds even if no draft is accepted")
    elif least is not None:
        bound = stated.break_even_acceptance
        lines.append(
            f"the limits hold down to an acceptance of {bound:.2f}"
            if bound is not None
            else f"the limits hold down to {least:.2f} tokens per step"
        )
    without = "which meets" if stated.meets_slo_without else "which misses"
    limits = f", {without} the limits" if least is not None else ""
    return [*lines, f"without drafts the same deployment has a p95 TPOT of {stated.tpot_ms_p95_without:.1f} ms{limits}"]


def accepted(acceptance: float | None, stated: Speculative) -> str:
    """The published acceptance in words."""
    if not acceptance:
        return f"{stated.tokens_shown_per_step:.2f} tokens per step, {engine_plan.published(stated.task)}"
    low, high = stated.acceptance_low, stated.acceptance_high
    between = f", {low:g} to {high:g} in other published runs" if low != high else ""
    return f"{stated.k} draft tokens per step, acceptance {acceptance:g} {engine_plan.published(stated.task)}{between}"


def disaggregated(s: Scored) -> Disaggregated | None:
    if s.pools is None:
        return None
    c = s.lane.choice

    def pool(replicas: int) -> Pool:
        return Pool(replicas=replicas, tp=c.tp, pp=c.pp, ep=c.ep, dp=c.dp)

    return Disaggregated(
        prefill=pool(s.pools.prefill_replicas),
        decode=pool(s.pools.decode_replicas),
        kv_transfer_s=four_digits(s.pools.transfer_s),
    )


def step_budget(s: Scored) -> StepBudget | None:
    """The framework's own step budget, if the deployment has another one."""
    own = s.lane.framework.default_max_batched_tokens
    if s.lane.max_batched_tokens == own:
        return None
    return StepBudget(default_tokens=own, default_accelerator_count=s.chips_at_default_budget)


def variant_warnings(s: Scored) -> list[str]:
    """What to know before using drafts or separate pools."""
    lines = []
    if s.lane.draft:
        lines.append(
            f"speculative decoding: the acceptance rate was {engine_plan.published(s.lane.draft.task)}, not measured "
            "on your traffic; every request is assumed to accept drafts equally often"
        )
    if s.pools:
        lines.append(
            "disaggregated: each pool is simulated by itself at the peak; size the router and the network between "
            "them yourself. The option beside it keeps its framework's token budget per step: a smaller budget may "
            "close part of the gap"
        )
    return lines


def variant(option: Option, other: Option) -> Variant:
    """`other` (with drafts or separate pools) beside its plain option."""
    tpot, plain_tpot = other.tpot_ms.p95, option.tpot_ms.p95
    return Variant(
        label=other.label,
        accelerator_count=other.accelerator_count,
        replicas=other.replicas,
        spare_replicas=other.spare_replicas,
        concurrency=other.concurrency,
        speculative=other.speculative,
        disaggregated=other.disaggregated,
        ttft_ms=other.ttft_ms,
        tpot_ms=other.tpot_ms,
        usd_per_hour=other.usd_per_hour,
        usd_per_month=other.usd_per_month,
        usd_per_mtok_output=other.usd_per_mtok_output,
        watts=other.watts,
        utilisation=other.utilisation,
        capacity_requests_per_s=other.capacity_requests_per_s,
        launch=other.launch,
        warnings=other.warnings,
        cost_ratio=four_digits(other.usd_per_hour / option.usd_per_hour),
        tpot_ratio=four_digits(tpot / plain_tpot) if tpot and plain_tpot else None,
    )
