"""How to run an option, as JSON: optimisation plan, formats, frameworks, pitfalls, the roofline lesson."""

from functools import partial
from typing import Any

from advisor.engine.launch import checkpoint_of
from advisor.engine.network import Model
from advisor.engine.optimisation import (
    Bounds,
    CacheAdvice,
    FormatAdvice,
    Lesson,
    Measured,
    OptimisationPlan,
    Rival,
    Setup,
    cache_advice,
    cache_setups,
    format_advice,
    format_setups,
    lesson,
    made_on,
    pitfalls,
    rival_setups,
    rivals,
)
from advisor.engine.optimisation import plan as tuning
from advisor.engine.search import Catalog, Scored
from advisor.engine.spec import Quantization, Workload
from advisor.engine.step import EMBEDDING, Lanes, Line, lanes
from advisor.inputs import rounding
from catalog.maturity import maturity_of

Json = dict[str, Any]


number = partial(rounding.number, digits=4)  # gains and parts are told in no more


def of_option(
    taken: Json, workload: Workload, catalog: Catalog, s: Scored, built: Lanes, prefill: list[Line], decode: list[Line]
) -> Json:
    """The field `tuning` of one recommendation."""
    found: Json = {
        "plan": None,
        "formats": [],
        "cache_formats": [],
        "frameworks": [],
        "pitfalls": [
            {"slug": p.slug, "what": p.what, "remedy": p.remedy, "source": p.source}
            for p in pitfalls(workload, catalog.model, s, built)
        ],
        "roofline": lesson_json(lesson(s, built, prefill, decode)),
    }
    if workload.kind == EMBEDDING:
        return found
    plan = tuning.planned(workload, s)
    formats, caches, others = (
        format_setups(catalog, s, plan),
        cache_setups(catalog, s, plan),
        rival_setups(catalog, s, plan),
    )
    asked = [*formats.values(), *caches.values(), *others.values()]
    seen = tuning.measured(workload, catalog.model, asked)
    by_format = dict(zip(formats, seen, strict=False))
    by_cache = dict(zip(caches, seen[len(formats) :], strict=False))
    by_framework = dict(zip(others, seen[len(formats) + len(caches) :], strict=True))
    bounds = Bounds(prefill=longest_wait(prefill), decode=longest_wait(decode))
    methods = {row["slug"]: row for row in taken["quantizations"]}
    chain = tuning.optimisation_plan(workload, catalog, s)
    return found | {
        "plan": plan_json(chain, methods) if chain else None,
        "formats": [format_json(a, methods) for a in format_advice(workload, catalog, s, by_format, bounds)],
        "cache_formats": [cache_json(a, methods) for a in cache_advice(workload, s, by_cache, caches_of(taken))],
        "frameworks": frameworks_json(taken, rivals(workload, catalog, s, by_framework, room(catalog, others))),
    }


def longest_wait(lines: list[Line]) -> str:
    waits: dict[str, float] = {}
    for line in lines:
        waits[line.bound] = waits.get(line.bound, 0.0) + line.time_s
    return max(waits, key=lambda bound: waits[bound], default="memory")


def room(catalog: Catalog, setups: dict[tuple[str, str], Setup]) -> dict[tuple[str, str], float]:
    """Tokens of cache that a replica has under each framework."""
    if not setups:
        return {}
    held = lanes(catalog.model, [s.lane for s in setups.values()]).memory.kv_capacity_tokens
    sizes = [s.lane.choice.lanes for s in setups.values()]
    return {key: float(tokens) * n for key, tokens, n in zip(setups, held, sizes, strict=True)}


def caches_of(taken: Json) -> list[Quantization]:
    from advisor.inputs import quantization_of

    return [quantization_of(row) for row in taken["quantizations"] if row.get("applies_to") == "kv"]


# --- one section each -------------------------------------------------------------------------------------------


def measured_json(m: Measured | None) -> Json:
    if m is None or not m.fits:
        return {"output_tokens_per_s_per_accelerator": None, "tpot_ms": None, "ttft_ms": None, "concurrency": None}
    return {
        "output_tokens_per_s_per_accelerator": number(m.output_tokens_per_s_per_chip),
        "tpot_ms": number(m.tpot_s * 1e3),
        "ttft_ms": number(m.ttft_s * 1e3),
        "concurrency": number(m.concurrency),
        "within_tpot_limit": m.within_limit,
    }


def plan_json(plan: OptimisationPlan, methods: dict[str, Json]) -> Json:
    steps = []
    for step in plan.steps:
        t, effort = step.technique, step.technique.effort
        if not effort and step.measured:
            effort = methods[step.measured.setup.lane.choice.quantization.slug].get("effort", "")
        steps.append(
            {
                "technique": t.slug,
                "name": t.name,
                "state": step.state,
                "change": step.change,
                "gain_ratio": number(step.gain_ratio),
                "because": step.because,
                "effort": effort,
                "risk": t.risk,
                "needs": t.needs,
                "source": t.source,
                **measured_json(step.measured),
            }
        )
    return {"gain_ratio": number(plan.gain_ratio), "steps": steps}


def format_json(a: FormatAdvice, methods: dict[str, Json]) -> Json:
    q = a.quantization
    effort = methods.get(q.slug, {}).get("effort", "")
    making = {} if a.state == "cannot" else {"effort": effort, "made_on": made_on(effort), "check": a.check}
    return {
        "slug": q.slug,
        "name": q.name,
        "state": a.state,
        "bits_per_weight": q.bits_per_weight,
        "native": a.native,
        "framework": f"{a.framework.name} {a.framework.version}" if a.framework else None,
        "gain_ratio": number(a.gain_ratio),
        **measured_json(a.measured),
        "why": a.why,
        "quality": q.quality,
        "quality_note": q.quality_note,
        "quality_source": q.source,
        **making,
        "warning": a.warning,
    }


def cache_json(a: CacheAdvice, methods: dict[str, Json]) -> Json:
    effort = methods[a.method.slug].get("effort", "") if a.method else "none"
    return {
        "dtype": a.dtype,
        "state": a.state,
        "framework": f"{a.framework.name} {a.framework.version}" if a.framework else None,
        "gain_ratio": number(a.gain_ratio),
        "plan_ratio": number(a.plan_ratio),
        **measured_json(a.measured),
        "why": a.why,
        "quality": a.method.quality if a.method else "lossless",
        "quality_source": a.method.source if a.method else "",
        **({} if a.state == "cannot" else {"effort": effort, "made_on": made_on(effort), "check": a.check}),
    }


def frameworks_json(taken: Json, found: list[Rival]) -> list[Json]:
    rows = {(row["slug"], row["version"]): row for row in taken["frameworks"]}
    return [framework_json(r, rows.get((r.framework.slug, r.framework.version), {}), taken) for r in found]


def framework_json(r: Rival, row: Json, taken: Json) -> Json:
    counted = row.get("facts_as_of") or taken["asked_on"]
    settled = maturity_of(row.get("first_release"), row.get("releases"), counted)
    return {
        "slug": r.framework.slug,
        "name": r.framework.name,
        "version": r.framework.version,
        "best": r.best,
        "plan": r.plan,
        **measured_json(r.measured),
        "kv_capacity_tokens": number(r.kv_capacity_tokens),
        "features": list(r.framework.features),
        "effort": r.effort,
        "maturity": settled.level,
        "maturity_because": settled.reason,
        "licence": row.get("licence"),
        "because": r.because,
        "source": r.framework.source,
    }


def lesson_json(found: Lesson) -> Json:
    return {
        "dtype": found.dtype,
        "datasheet_flops_per_s": number(found.datasheet_flops_per_s),
        "datasheet_bytes_per_s": number(found.datasheet_bytes_per_s),
        "reached_flops_per_s": number(found.reached_flops_per_s),
        "reached_bytes_per_s": number(found.reached_bytes_per_s),
        "ridge_flops_per_byte": number(found.ridge_flops_per_byte),
        "basis": found.basis,
        "phases": [
            {
                "phase": p.name,
                "flops": number(p.flops),
                "bytes": number(p.bytes),
                "time_s": number(p.time_s),
                "flops_per_byte": number(p.flops_per_byte),
                "flops_per_s": number(p.flops_per_s),
                "sequences": number(p.sequences),
            }
            for p in found.phases
        ],
        "sentences": list(found.sentences),
    }


# --- drafts and pools -------------------------------------------------------------------------------------------


def other_way(s: Scored) -> str:
    """What the label adds for a deployment that drafts or works in two pools."""
    draft = s.lane.draft
    kind = "small-model" if draft and draft.method == "draft" else draft.method if draft else ""
    drafts = f", {kind} drafts of {draft.tokens}" if draft else ""
    pools = f", {s.pools.prefill_replicas} for prefill and {s.pools.decode_replicas} for decode" if s.pools else ""
    return drafts + pools


def speculative_json(model: Model, s: Scored) -> Json | None:
    draft = s.lane.draft
    if draft is None:
        return None
    return {
        "method": draft.method,
        "draft": checkpoint_of(draft, model),
        "k": draft.tokens,
        "acceptance": number(draft.accepted_fraction),
        "tokens_shown_per_step": number(draft.shown_tokens),
        "task": draft.task,
        "source": draft.source,
    }


def disaggregated_json(s: Scored) -> Json | None:
    if s.pools is None:
        return None
    c = s.lane.choice
    lane = {"tp": c.tp, "pp": c.pp, "ep": c.ep, "dp": c.dp}
    return {
        "prefill": {"replicas": s.pools.prefill_replicas, **lane},
        "decode": {"replicas": s.pools.decode_replicas, **lane},
        "kv_transfer_s": number(s.pools.transfer_s),
    }


def variant_warnings(s: Scored) -> list[str]:
    """What a planner must know before taking it."""
    said = []
    if s.lane.draft:
        said.append(
            "speculative decoding: acceptance is a published figure of "
            f"{s.lane.draft.task}, not measured on your traffic; every request is taken to accept alike"
        )
    if s.pools:
        said.append(
            "two pools: simulated apart at the peak; a router and the network between them are yours to size. The "
            "option "
            "beside it keeps its framework's tokens per step: smaller ones may close part of the gap"
        )
    return said


VARIANT = (
    *("label", "accelerator_count", "replicas", "spare_replicas", "concurrency", "speculative", "disaggregated"),
    *("ttft_ms", "tpot_ms", "usd_per_hour", "usd_per_month", "usd_per_mtok_output", "watts", "utilisation"),
    *("capacity_requests_per_s", "launch", "warnings"),
)


def variant_json(plan: Json, other: Json) -> Json:
    """A variant beside its option: what differs, and the cost and speed of the one over the other."""
    return {key: other[key] for key in VARIANT} | {
        "cost_ratio": number(other["usd_per_hour"] / plan["usd_per_hour"]),
        "tpot_ratio": number(other["tpot_ms"]["p95"] / plan["tpot_ms"]["p95"]),
    }
