"""Engine values to the JSON of `advise`: human units, and where each figure comes from."""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from advisor.answer import batch, bill, demand, optimisation, ranking
from advisor.answer.card_sharing import partition_json
from advisor.answer.card_sharing import warnings as sharing_warnings
from advisor.answer.embedding import vectors
from advisor.answer.energy import grid_of, power_swing
from advisor.answer.intervals import interval_fractions, intervals
from advisor.answer.launch_flags import checked
from advisor.answer.pareto import pareto_json
from advisor.answer.sentences import counted, keeps_cache, length_warnings, reasons, terms, verdict, warnings
from advisor.engine.cost import HOURS_PER_MONTH, JOULES_PER_KWH, present_value, usd_per_mtok
from advisor.engine.launch import launch
from advisor.engine.scheduler import Verified
from advisor.engine.search import Answer, Catalog, Scored, describe
from advisor.engine.spec import Rejection, Workload
from advisor.engine.step import (
    Line,
    context_tokens,
    decode_ledger,
    layouts,
    prefill_fraction,
    prefill_ledger,
    prompt_tokens,
    resident_bytes,
)
from advisor.inputs import number

GIB = 2.0**30
PERCENTILES = ("mean", "p50", "p95", "p99")
Json = dict[str, Any]


def answer_json(spec: Json, taken: Json, workload: Workload, catalog: Catalog, answer: Answer) -> Json:
    options = [option_json(taken, workload, catalog, answer, s, rank) for rank, s in enumerate(answer.shown, 1)]
    options = ranking.with_odds(taken, workload, answer, options)
    near = [near_miss_json(taken, workload, catalog, answer, s) for s in answer.near_misses]
    return {
        "workload": spec,
        "engine_version": taken["engine_version"],
        "catalog": {"version": taken["catalog_version"], "prices_as_of": taken["prices_as_of"]},
        "elapsed_s": None,
        "candidates": {"evaluated": answer.evaluated, "pruned": answer.pruned, "feasible": answer.feasible},
        "verdict": verdict(workload, answer.ranked, options, near),
        "recommendations": options,
        "views": {view: place + 1 for view, place in answer.views.items()},
        "price_bound": ranking.bound_json(workload, answer),
        "weights": ranking.weights_json(workload),
        "near_misses": near,
        "owned": demand.owned(spec, taken, catalog, answer),
        "rejected": [rejection_json(r) for r in answer.rejections],
        "left_out": ranking.left_out(answer),
        "pareto": pareto_json(workload, answer),
        "sensitivity": ranking.sensitivity(taken, workload, answer),
        "assumptions": bill.assumptions(spec, taken),
        "sources": sources_json(taken, answer.shown),
    }


def choice_json(spec: Json, taken: Json, workload: Workload, catalog: Catalog, answer: Answer) -> Json:
    """What a portfolio tells of one of its workloads: the first choice, or why there is none."""
    first = [option_json(taken, workload, catalog, answer, s, None) for s in answer.ranked[:1]]
    near = [] if first else [near_miss_json(taken, workload, catalog, answer, s) for s in answer.near_misses[:1]]
    return {
        "workload": spec,
        "candidates": {"evaluated": answer.evaluated, "pruned": answer.pruned, "feasible": answer.feasible},
        "verdict": verdict(workload, answer.ranked, first, near),
        "recommendations": first,
        "assumptions": bill.assumptions(spec, taken),
        "sources": sources_json(taken, answer.shown),
    }


def option_json(taken: Json, workload: Workload, catalog: Catalog, answer: Answer, s: Scored, rank: int | None) -> Json:
    """One R of the JSON of `advise`."""
    workload = replace(workload, requests_per_s_mean=s.requests_per_s_mean, requests_per_s_peak=s.requests_per_s_peak)
    c, v = s.lane.choice, s.verified
    rates = {
        "input": workload.requests_per_s_mean * workload.given_tokens,
        "output": workload.requests_per_s_mean * workload.output_tokens.mean_tokens,
    }
    if not workload.kind.generates_tokens:
        rates["output"] = 0.0
    counted_s = rates["output"] or rates["input"]  # tokens per second that energy and carbon are told by
    prefill, decode, prefill_share = ledger(catalog, answer, s, workload)
    steps = [line_json(line) for line in prefill + decode]
    full = s.capacity_requests_per_s / workload.requests_per_s_mean
    half = interval_fractions(taken, c.efficiency.basis)
    tunes = float(resident_bytes(catalog.model, layouts(catalog.model, [c]))[0]) if catalog.model.adapters else 0.0
    grid = grid_of(taken, workload, catalog, s)
    r: Json = {
        "rank": rank,
        **configuration(s),
        "speculative": optimisation.speculative_json(catalog.model, s),
        "disaggregated": optimisation.disaggregated_json(s),
        "memory": memory_json(s, tunes),
        "kv_capacity_tokens": number(s.memory.kv_capacity_tokens) if keeps_cache(s) else None,
        **simulated_json(workload, v),
        "requests_per_s": number(workload.requests_per_s_mean),
        "output_tokens_per_s": number(rates["output"]),
        "output_tokens_per_s_per_accelerator": number(rates["output"] / s.chips),
        "capacity_requests_per_s": number(s.capacity_requests_per_s),
        "output_tokens_per_s_at_capacity": number(rates["output"] * full),
        "utilisation": number(s.utilisation_fraction),
        **cost_json(workload, s, rates, prefill_share),
        "watts": number(s.watts),
        "pue": number(s.offer.pue),
        "usd_per_kwh": number(s.offer.usd_per_kwh) if s.offer.usd_per_kwh is not None else None,
        "joules_per_output_token": number(s.watts / counted_s),
        "kgco2e_per_mtok": number(s.watts / counted_s * 1e6 / JOULES_PER_KWH * grid if grid else math.nan),
        "bound": bound_of(steps),
        "basis": c.efficiency.basis,
        "meets_slo": s.meets_slo,
        "launch": checked(s.lane.framework, launch(taken["model"]["hf_id"], s, catalog.model, workload)),
        "step": steps,
    }
    if not workload.kind.generates_tokens:
        r = vectors(r, number(rates["input"]), number(s.watts))
        r["input_tokens_per_s_at_capacity"] = number(rates["input"] * full)
    r |= batch.figures(workload, s) | demand.figures(workload, s)
    r |= bill.money(taken, workload, catalog, s, rates, prefill_share)
    r["interval"] = intervals(r, half, bill.swings(taken, s) | {"power": power_swing(taken, catalog, s)})
    r["scores"] = ranking.scores_json(answer, s)
    r["demand"] = demand.said_of(r)
    r["reasons"] = [*reasons(workload, s, r), *r["demand"], *terms(catalog, s)]
    r["warnings"] = [
        *warnings(workload, s, r),
        *length_warnings(workload, catalog.model),
        *demand.warnings(workload, s),
        *sharing_warnings(catalog),
    ]
    if rank is not None:
        assert answer.built is not None
        r["tuning"] = optimisation.of_option(taken, workload, catalog, s, answer.built, prefill, decode)
        others = answer.variants.get(rank - 1, ())
        r["variants"] = [
            optimisation.variant_json(r, option_json(taken, workload, catalog, answer, v, None)) for v in others
        ]
    return r


def configuration(s: Scored) -> Json:
    """What is signed for and started: machines, price, framework, formats and layout."""
    c, a = s.lane.choice, s.lane.choice.accelerator
    return {
        "label": f"{s.chips} x {a.name}, {describe(s.lane)}, {counted(s.replicas, 'replica')}"
        f"{optimisation.other_way(s)}",
        "accelerator": a.slug,
        "accelerator_name": a.name,
        "accelerator_count": s.chips,
        "provider": s.offer.provider,
        "instance": s.offer.instance,
        "instances": s.instances,
        "region": s.offer.region,
        "acquisition": s.offer.acquisition,
        "term": s.offer.term,
        "price_as_of": s.offer.as_of,
        "price_source": s.offer.source,
        "framework": s.lane.framework.slug,
        "framework_version": s.lane.framework.version,
        "weights_dtype": c.quantization.weights_dtype,
        "quantization": c.quantization.slug,
        "kv_dtype": c.kv_dtype,
        "tp": c.tp,
        "pp": c.pp,
        "ep": c.ep,
        "dp": c.dp,
        "replicas": s.replicas,
        "spare_replicas": s.spare_replicas,
        "concurrency": s.concurrency,
        "max_batched_tokens": s.lane.max_batched_tokens,
        "partition": partition_json(a),
    }


def memory_json(s: Scored, adapters_bytes: float) -> Json:
    """GiB per chip of one replica, by part; adapters are kept apart from the weights that they stand beside."""
    return {
        "weights_gib": number((s.memory.weights_bytes - adapters_bytes) / GIB),
        **({"adapters_gib": number(adapters_bytes / GIB)} if adapters_bytes else {}),
        "kv_gib": number((s.memory.kv_bytes - s.memory.source_kv_bytes) / GIB),
        **({"source_kv_gib": number(s.memory.source_kv_bytes / GIB)} if s.memory.source_kv_bytes else {}),
        "activations_gib": number(s.memory.activations_bytes / GIB),
        "overhead_gib": number(s.memory.overhead_bytes / GIB),
        "free_gib": number(s.memory.free_bytes / GIB),
    }


def simulated_json(workload: Workload, v: Verified) -> Json:
    """Latencies at the peak, and the simulation that they come from."""
    return {
        "ttft_ms": {k: number(getattr(v, f"ttft_{k}_s") * 1e3) for k in PERCENTILES},
        "tpot_ms": {k: number(getattr(v, f"tpot_{k}_s") * 1e3) for k in PERCENTILES},
        "simulation": {
            "requests": v.requests,
            "seed": v.seed,
            "requests_per_s": number(workload.requests_per_s_peak),
            "ttft_standard_error_ms": number(v.ttft_standard_error_s * 1e3),
            "tpot_standard_error_ms": number(v.tpot_standard_error_s * 1e3),
        },
    }


def cost_json(workload: Workload, s: Scored, rates: dict[str, float], prefill_share: float) -> Json:
    """The bill at the load served and, per token, at all that the deployment could serve."""
    full = s.capacity_requests_per_s / workload.requests_per_s_mean
    costs = token_costs(s.usd_per_hour, rates, prefill_share)
    ceiling = token_costs(s.usd_per_hour, {k: r * full for k, r in rates.items()}, prefill_share)
    monthly = s.usd_per_hour * HOURS_PER_MONTH
    return {
        "usd_per_hour": number(s.usd_per_hour),
        "licence_usd_per_hour": number(s.licence_usd_per_hour),
        "usd_per_month": number(monthly),
        "usd_per_mtok_input": number(costs["input"]),
        "usd_per_mtok_output": number(costs["output"]),
        "usd_per_mtok_blended": number(costs["blended"]),
        "usd_per_mtok_input_at_capacity": number(ceiling["input"]),
        "usd_per_mtok_output_at_capacity": number(ceiling["output"]),
        "usd_per_mtok_blended_at_capacity": number(ceiling["blended"]),
        "tco_usd": number(float(present_value(monthly, workload.horizon_months, workload.discount_fraction))),
    }


def near_miss_json(taken: Json, workload: Workload, catalog: Catalog, answer: Answer, s: Scored) -> Json:
    """An R without a rank, with what it missed in one line, by which share of the limit, and what would let it pass."""
    why = next(r for r in answer.rejections if r.accelerator == s.lane.choice.accelerator.slug)
    r = option_json(taken, workload, catalog, answer, s, None)
    changes = [why.smallest_change] if why.smallest_change else []
    beyond = number(why.reached / why.limit - 1, 4) if why.limit and why.reached is not None else None
    told = {
        "detail": why.detail,
        "smallest_change": why.smallest_change,
        "change": ranking.change_of(why.smallest_change),
    }
    return r | told | {"beyond_fraction": beyond, "reasons": [why.detail, *changes]}


def token_costs(usd_per_hour: float, rates: dict[str, float], prefill_share: float) -> dict[str, float]:
    """USD per million input, output and blended tokens; the bill is split by the time each phase takes."""
    return {
        "input": float(usd_per_mtok(np.array(usd_per_hour * prefill_share), rates["input"])),
        "output": float(usd_per_mtok(np.array(usd_per_hour * (1 - prefill_share)), rates["output"])),
        "blended": float(usd_per_mtok(np.array(usd_per_hour), rates["input"] + rates["output"])),
    }


def ledger(catalog: Catalog, answer: Answer, s: Scored, workload: Workload) -> tuple[list[Line], list[Line], float]:
    """Operators of one prefill and one decode step at the load, and prefill's share of a request's time."""
    assert answer.built is not None
    running = max(s.verified.running_requests_mean, 1.0)
    prefill = prefill_ledger(catalog.model, answer.built, s.row_index, prompt_tokens(workload))
    if not workload.kind.generates_tokens:
        return prefill, [], 1.0
    decode = decode_ledger(catalog.model, answer.built, s.row_index, running, context_tokens(workload))
    return prefill, decode, prefill_fraction(workload, answer.built, s.row_index, running)


def bound_of(steps: list[Json]) -> str:
    """What a decode step spends most of its time waiting for; where nothing is decoded, a prefill step."""
    waits: Json = {}
    phase = "decode" if any(line["phase"] == "decode" for line in steps) else "prefill"
    for line in steps:
        if line["phase"] == phase:
            waits[line["bound"]] = waits.get(line["bound"], 0.0) + line["time_s"]
    return str(max(waits, key=lambda bound: waits[bound]))


def line_json(line: Line) -> Json:
    return {
        "phase": line.phase,
        "operator": line.operator,
        "time_s": number(line.time_s),
        "flops": number(line.flops),
        "bytes": number(line.bytes),
        "bound": line.bound,
    }


def rejection_json(r: Rejection) -> Json:
    return {
        "accelerator": r.accelerator,
        "reason": r.reason,
        "detail": r.detail,
        "limit": number(r.limit) if r.limit is not None else None,
        "reached": number(r.reached) if r.reached is not None else None,
        "smallest_change": r.smallest_change,
        "change": ranking.change_of(r.smallest_change),
    }


def sources_json(taken: Json, ranked: tuple[Scored, ...]) -> list[Json]:
    """Where the figures of the ranked answers come from."""
    by_slug = {row["slug"]: row for row in taken["accelerators"]}
    said = [
        {"what": f"{s.lane.choice.accelerator.slug}: {group}", **entry}
        for s in ranked
        for group, entry in by_slug[s.lane.choice.accelerator.slug]["sources"].items()
    ]
    said += [{"what": f"model: {k}", **v} for k, v in taken["model"].get("sources", {}).items()]
    said += [
        {"what": f"price of {s.offer.instance} at {s.offer.provider}", "source": s.offer.source, "as_of": s.offer.as_of}
        for s in ranked
    ]
    return said
