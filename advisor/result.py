"""Engine values to the JSON of `advise`: human units, reasons in words, where each figure comes from."""

import math
from typing import Any

import numpy as np

from advisor.engine.launch import launch
from advisor.engine.money import HOURS_PER_MONTH, JOULES_PER_KWH, present_value, usd_per_mtok
from advisor.engine.plan import Rejection, Workload
from advisor.engine.search import Answer, Catalog, Point, Scored, describe, final_score, frontier
from advisor.engine.step import Layouts, attention_cost, linear_operators

GIB = 2.0**30
Json = dict[str, Any]
METRICS = ("ttft_ms", "tpot_ms", "output_tokens_per_s", "usd_per_mtok_output")


def number(value: float, digits: int = 6) -> float | None:
    """A finite float at `digits` significant digits; unknown figures are null."""
    value = float(value)
    return float(f"{value:.{digits}g}") if math.isfinite(value) else None


def answer_json(spec: Json, taken: Json, workload: Workload, catalog: Catalog, answer: Answer) -> Json:
    options = [option_json(taken, workload, catalog, answer, s, rank) for rank, s in enumerate(answer.ranked, 1)]
    near = [option_json(taken, workload, catalog, answer, s, None) for s in answer.near_misses]
    return {
        "workload": spec,
        "engine_version": taken["engine_version"],
        "catalog": {"version": taken["catalog_version"], "prices_as_of": taken["prices_as_of"]},
        "elapsed_s": None,
        "candidates": {"evaluated": answer.evaluated, "pruned": answer.pruned, "feasible": answer.feasible},
        "verdict": verdict(workload, options, answer),
        "recommendations": options,
        "views": views(options),
        "near_misses": near,
        "rejected": [rejection_json(r) for r in answer.rejections],
        "pareto": pareto_json(workload, answer, options),
        "sensitivity": sensitivity(workload, answer.ranked),
        "assumptions": assumptions_json(workload, taken),
        "sources": sources_json(taken, answer.ranked),
    }


def option_json(
    taken: Json, workload: Workload, catalog: Catalog, answer: Answer, s: Scored, rank: int | None
) -> Json:
    """One R of the JSON of `advise`."""
    c, v, a = s.lane.choice, s.verified, s.lane.choice.accelerator
    rates = {
        "input": workload.requests_per_s_mean * workload.input_tokens.mean_tokens,
        "output": workload.requests_per_s_mean * workload.output_tokens.mean_tokens,
    }
    steps, prefill_share = ledger(catalog, answer, s, workload)
    costs = token_costs(s.usd_per_hour, rates, prefill_share)
    full = s.capacity_requests_per_s / workload.requests_per_s_mean
    ceiling = token_costs(s.usd_per_hour, {k: r * full for k, r in rates.items()}, prefill_share)
    monthly = s.usd_per_hour * HOURS_PER_MONTH
    half = interval_fractions(taken, c.efficiency.basis)
    grid = s.offer.kgco2e_per_kwh
    r: Json = {
        "rank": rank,
        "label": f"{s.chips} x {a.name}, {describe(s.lane)}, {s.replicas} replica{'s' if s.replicas > 1 else ''}",
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
        "speculative": None,
        "disaggregated": None,
        "memory": {
            "weights_gib": number(s.memory.weights_bytes / GIB),
            "kv_gib": number(s.memory.kv_bytes / GIB),
            "activations_gib": number(s.memory.activations_bytes / GIB),
            "overhead_gib": number(s.memory.overhead_bytes / GIB),
            "free_gib": number(s.memory.free_bytes / GIB),
        },
        "kv_capacity_tokens": number(s.memory.kv_capacity_tokens),
        "ttft_ms": {k: number(getattr(v, f"ttft_{k}_s") * 1e3) for k in ("mean", "p50", "p95", "p99")},
        "tpot_ms": {k: number(getattr(v, f"tpot_{k}_s") * 1e3) for k in ("mean", "p50", "p95", "p99")},
        "simulation": {
            "requests": v.requests,
            "seed": v.seed,
            "requests_per_s": number(workload.requests_per_s_peak),
            "ttft_standard_error_ms": number(v.ttft_standard_error_s * 1e3),
            "tpot_standard_error_ms": number(v.tpot_standard_error_s * 1e3),
        },
        "requests_per_s": number(workload.requests_per_s_mean),
        "output_tokens_per_s": number(rates["output"]),
        "output_tokens_per_s_per_accelerator": number(rates["output"] / s.chips),
        "capacity_requests_per_s": number(s.capacity_requests_per_s),
        "output_tokens_per_s_at_capacity": number(rates["output"] * full),
        "utilisation": number(s.utilisation_fraction),
        "usd_per_hour": number(s.usd_per_hour),
        "usd_per_month": number(monthly),
        "usd_per_mtok_input": number(costs["input"]),
        "usd_per_mtok_output": number(costs["output"]),
        "usd_per_mtok_blended": number(costs["blended"]),
        "usd_per_mtok_input_at_capacity": number(ceiling["input"]),
        "usd_per_mtok_output_at_capacity": number(ceiling["output"]),
        "usd_per_mtok_blended_at_capacity": number(ceiling["blended"]),
        "tco_usd": number(float(present_value(monthly, workload.horizon_months, workload.discount_fraction))),
        "watts": number(s.watts),
        "joules_per_output_token": number(s.watts / rates["output"]),
        "kgco2e_per_mtok": number(s.watts / rates["output"] * 1e6 / JOULES_PER_KWH * grid if grid else math.nan),
        "bound": max(steps, key=lambda o: o["time_s"] if o["phase"] == "decode" else 0)["bound"],
        "basis": c.efficiency.basis,
        "meets_slo": s.meets_slo,
        "launch": launch(taken["model"]["hf_id"], s),
        "step": steps,
    }
    r["interval"] = intervals(r, half)
    r["reasons"] = reasons(workload, s, r)
    r["warnings"] = warnings(s, r)
    return r


def token_costs(usd_per_hour: float, rates: dict[str, float], prefill_share: float) -> dict[str, float]:
    """USD per million input, output and blended tokens; the bill is split by the time each phase takes."""
    return {
        "input": float(usd_per_mtok(np.array(usd_per_hour * prefill_share), rates["input"])),
        "output": float(usd_per_mtok(np.array(usd_per_hour * (1 - prefill_share)), rates["output"])),
        "blended": float(usd_per_mtok(np.array(usd_per_hour), rates["input"] + rates["output"])),
    }


def ledger(catalog: Catalog, answer: Answer, s: Scored, workload: Workload) -> tuple[list[Json], float]:
    """Operators of one prefill and one decode step at the load, and the share of time that prefill takes."""
    assert answer.built is not None
    i, lanes = s.times_index, answer.built
    x = Layouts(**{k: getattr(lanes.layouts, k)[i : i + 1] for k in Layouts.__slots__})
    prompt = workload.input_tokens.mean_tokens * (1 - workload.prefix_cache_hit_fraction)
    context = workload.input_tokens.mean_tokens + workload.output_tokens.mean_tokens / 2
    running = max(s.verified.running_mean, 1.0)
    steps: list[Json] = []
    totals = {}
    for phase, tokens, sequences in (("prefill", prompt, 1.0), ("decode", running, running)):
        rows = _operators(catalog, x, phase, tokens, sequences, context)
        steps += rows
        totals[phase] = sum(row["time_s"] for row in rows)
    decode = totals["decode"] * workload.output_tokens.mean_tokens / running
    return steps, totals["prefill"] / (totals["prefill"] + decode)


def _operators(catalog: Catalog, x: Layouts, phase: str, tokens: float, sequences: float, context: float) -> list[Json]:
    found: dict[str, Json] = {}
    for op in linear_operators(catalog.model, x, np.array([max(tokens, 1.0)])):
        row = found.setdefault(
            op.name, {"phase": phase, "operator": op.name, "time_s": 0.0, "flops": 0.0, "bytes": 0.0, "bound": op.bound}
        )
        for key in ("time_s", "flops", "bytes"):
            row[key] += float(np.ravel(getattr(op, key))[0])
    cost = attention_cost(catalog.model, x)
    held = min(context, float(cost.window_tokens[0]))
    if phase == "decode":
        per = cost.decode_s_per_context_token[0] * context + cost.window_s_per_context_token[0] * held
        seconds, name = sequences * float(per + cost.decode_s_per_sequence[0]), "attention/kv_read"
        moved = seconds * float(x.memory_bytes_per_s[0])
        flops = 0.0
    else:
        pairs = tokens * (tokens + 1) / 2
        seconds, name = pairs * float(cost.prefill_s_per_pair[0]), "attention/scores"
        flops, moved = seconds * float(x.attention_flops_per_s[0]), 0.0
    extra = [(name, seconds, flops, moved, "memory" if phase == "decode" else "compute")]
    sampled = sequences * float(cost.sample_s_per_sequence[0])
    extra.append(("sampling", sampled, 0.0, sampled * float(x.memory_bytes_per_s[0]), "memory"))
    rows = [r for r in found.values() if r["time_s"] > 0]
    rows += [
        {"phase": phase, "operator": n, "time_s": t, "flops": f, "bytes": b, "bound": w} for n, t, f, b, w in extra
    ]
    rows.sort(key=lambda r: -r["time_s"])
    return [
        {k: (number(v) if isinstance(v, float) else v) for k, v in r.items()} for r in rows
    ]


# --- words ------------------------------------------------------------------------------------------------------


def verdict(workload: Workload, options: list[Json], answer: Answer) -> str:
    """The answer in one sentence."""
    if not options:
        tail = "; the nearest miss is listed" if answer.near_misses else ""
        return f"Nothing in the catalog meets this workload{tail}: see why each accelerator was left out."
    r = options[0]
    low, high = r["interval"]["usd_per_mtok_output"]
    return (
        f"{r['accelerator_count']} x {r['accelerator_name']} ({r['quantization']} weights, TP{r['tp']}, "
        f"{r['replicas']} replica{'s' if r['replicas'] > 1 else ''}, {r['framework']} {r['framework_version']}) at "
        f"{r['provider']}: ${r['usd_per_month']:,.0f} a month, ${r['usd_per_mtok_output']:.2f} "
        f"({low:.2f} to {high:.2f}) per million output tokens, p95 TTFT {r['ttft_ms']['p95']:.0f} ms and p95 TPOT "
        f"{r['tpot_ms']['p95']:.1f} ms at the peak of {workload.requests_per_s_peak:g} requests/s."
    )


def reasons(workload: Workload, s: Scored, r: Json) -> list[str]:
    slo = workload.slo
    said = [
        f"weights take {r['memory']['weights_gib']:.1f} GiB of "
        f"{s.lane.choice.accelerator.memory_bytes / GIB:.1f} GiB per chip and leave room for "
        f"{r['kv_capacity_tokens']:,.0f} tokens of cache per replica lane",
        f"decode is {r['bound']}-bound on this chip",
        f"{s.replicas - s.spare_replicas} replica(s) carry the peak of {workload.requests_per_s_peak:g} requests/s; "
        f"at the mean of {workload.requests_per_s_mean:g} they are {s.utilisation_fraction:.0%} utilised",
    ]
    if slo.ttft_p95_s:
        said.append(f"p95 TTFT {r['ttft_ms']['p95']:.0f} ms against a limit of {slo.ttft_p95_s * 1e3:.0f} ms (simulated)")
    if slo.tpot_p95_s:
        said.append(f"p95 TPOT {r['tpot_ms']['p95']:.1f} ms against a limit of {slo.tpot_p95_s * 1e3:.0f} ms (simulated)")
    said.append(f"price of {s.offer.as_of}, {s.instances} x {s.offer.instance or 'host'}")
    return said


def warnings(s: Scored, r: Json) -> list[str]:
    said = []
    c = s.lane.choice
    bought = s.instances * s.offer.accelerators
    if bought > s.chips:
        said.append(f"{bought - s.chips} of the {bought} chips in the instances stay idle and are paid for")
    if c.quantization.quality != "lossless":
        said.append(f"{c.quantization.name}: {c.quantization.quality_note}")
    if c.kv_dtype != "bf16" and c.kv_dtype != "fp16":
        said.append(f"the cache is kept in {c.kv_dtype}: compare long-context answers before shipping")
    if c.efficiency.basis != "measured":
        said.append(f"this chip's kernel efficiency is {c.efficiency.basis}, not measured: the interval is wide")
    if s.utilisation_fraction < 0.25:
        said.append("less than a quarter utilised at the mean load: smaller or shared hardware may be cheaper")
    return said


def rejection_json(r: Rejection) -> Json:
    return {
        "accelerator": r.accelerator,
        "reason": r.reason,
        "detail": r.detail,
        "limit": number(r.limit) if r.limit is not None else None,
        "reached": number(r.reached) if r.reached is not None else None,
        "smallest_change": r.smallest_change,
    }


# --- views, picture, sensitivity, sources -----------------------------------------------------------------------


def views(options: list[Json]) -> dict[str, int]:
    """Rank of the best option from each point of view."""
    if not options:
        return {}

    def least(key: Any) -> int:
        return int(min(options, key=key)["rank"])

    def carbon(r: Json) -> float:
        return r["kgco2e_per_mtok"] if r["kgco2e_per_mtok"] is not None else math.inf

    usd, tpot = (min(r["usd_per_month"] for r in options), min(r["tpot_ms"]["p95"] for r in options))
    return {
        "cheapest": least(lambda r: r["usd_per_month"]),
        "fastest": least(lambda r: r["tpot_ms"]["p95"]),
        "greenest": least(carbon),
        "simplest": least(lambda r: (r["accelerator_count"], r["instances"], r["usd_per_month"])),
        "balanced": least(lambda r: r["usd_per_month"] / usd + r["tpot_ms"]["p95"] / max(tpot, 1e-9)),
    }


def pareto_json(workload: Workload, answer: Answer, options: list[Json]) -> list[Json]:
    ranks = {r["accelerator"]: r["rank"] for r in options}
    points = list(answer.points)
    best = frontier([p for p in points])
    output = workload.requests_per_s_mean * workload.output_tokens.mean_tokens
    return [point_json(p, output, ranks, k in best) for k, p in enumerate(points)]


def point_json(p: Point, output_tokens_per_s: float, ranks: dict[str, int], on_frontier: bool) -> Json:
    return {
        "label": f"{p.chips} x {p.accelerator}",
        "accelerator": p.accelerator,
        "accelerator_count": p.chips,
        "usd_per_mtok_output": number(float(usd_per_mtok(np.array(p.usd_per_hour), output_tokens_per_s))),
        "tpot_ms": number(p.tpot_s * 1e3),
        "output_tokens_per_s_per_user": number(1.0 / p.tpot_s if p.tpot_s else math.inf),
        "rank": ranks.get(p.accelerator),
        "frontier": on_frontier,
        "meets_slo": p.meets_slo,
    }


def sensitivity(workload: Workload, ranked: tuple[Scored, ...]) -> list[Json]:
    """How far the winner's price may rise before the runner-up is cheaper."""
    if len(ranked) < 2 or workload.objective != "cost":
        return []
    first, second = ranked[0], ranked[1]
    change = final_score(workload, second)[0] / final_score(workload, first)[0] - 1
    return [
        {
            "assumption": f"price of {first.lane.choice.accelerator.name} at {first.offer.provider}",
            "winner_after": second.lane.choice.accelerator.slug,
            "at_change_fraction": number(change, 3),
            "detail": f"{second.lane.choice.accelerator.name} wins once it is {change:.0%} dearer",
        }
    ]


def interval_fractions(taken: Json, basis: str) -> dict[str, tuple[float, float]]:
    """90 % interval as factors (low, high) on each metric, from the calibration's residuals of this class."""
    row = taken["calibrations"].get(f"interval:{basis}", {})
    return {
        name: (float(row[f"{name}_low_ratio"]), float(row[f"{name}_high_ratio"]))
        for name in ("ttft", "tpot", "throughput")
        if f"{name}_low_ratio" in row
    }


def intervals(r: Json, half: dict[str, tuple[float, float]]) -> dict[str, list[float | None]]:
    """[low, high] of each headline figure; cost moves with the throughput that the same chips give."""
    if not half:
        return {}
    low, high = half["throughput"]
    return {
        "ttft_ms": [number(r["ttft_ms"]["mean"] * f) for f in half["ttft"]],
        "tpot_ms": [number(r["tpot_ms"]["mean"] * f) for f in half["tpot"]],
        "output_tokens_per_s": [number((r["output_tokens_per_s_at_capacity"] or 0) * f) for f in (low, high)],
        "usd_per_mtok_output": [number(r["usd_per_mtok_output"] / high), number(r["usd_per_mtok_output"] / low)],
    }


def assumptions_json(workload: Workload, taken: Json) -> list[Json]:
    said = [
        {"name": key, "value": row["value"], "unit": row["unit"], "source": row["source"]}
        for key, row in taken["assumptions"].items()
    ]
    said.append({"name": "horizon", "value": workload.horizon_months, "unit": "months", "source": "the workload"})
    said.append(
        {"name": "discount rate", "value": workload.discount_fraction, "unit": "per year", "source": "the workload"}
    )
    return said


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
