"""Engine values to the JSON of `advise`: human units, reasons in words, where each figure comes from."""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from advisor import batches, bill, capacity, choice, sharing, tuned
from advisor.embedding import makes_vectors, vectors
from advisor.energy import grid_of, power_swing
from advisor.engine.adapters import resident_bytes
from advisor.engine.choose import describe
from advisor.engine.encoder import NO_CACHE_TOKENS
from advisor.engine.evaluate import tpot_limit_s
from advisor.engine.launch import launch
from advisor.engine.layout import HALF, layouts
from advisor.engine.ledger import (
    Line,
    context_tokens,
    decode_ledger,
    prefill_fraction,
    prefill_ledger,
    prompt_tokens,
)
from advisor.engine.money import HOURS_PER_MONTH, HOURS_PER_YEAR, JOULES_PER_KWH, present_value, usd_per_mtok
from advisor.engine.plan import Rejection, Workload
from advisor.engine.search import Answer, Catalog, Point, Scored, frontier
from advisor.engine_flags import checked
from advisor.intervals import interval_fractions, intervals
from advisor.rounding import number

GIB = 2.0**30
Json = dict[str, Any]
WAITS = {
    "compute": "arithmetic",
    "memory": "memory bandwidth",
    "launch": "kernel launches",
    "communication": "the links between chips",
    "host": "the host",
}


def answer_json(spec: Json, taken: Json, workload: Workload, catalog: Catalog, answer: Answer) -> Json:
    options = [option_json(taken, workload, catalog, answer, s, rank) for rank, s in enumerate(answer.shown, 1)]
    options = choice.with_odds(taken, workload, answer, options)
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
        "price_bound": choice.bound_json(workload, answer),
        "weights": choice.weights_json(workload),
        "near_misses": near,
        "owned": capacity.owned(spec, taken, catalog, answer),
        "rejected": [rejection_json(r) for r in answer.rejections],
        "left_out": choice.left_out(answer),
        "pareto": pareto_json(workload, answer),
        "sensitivity": choice.sensitivity(taken, workload, answer),
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
    c, v, a = s.lane.choice, s.verified, s.lane.choice.accelerator
    rates = {
        "input": workload.requests_per_s_mean * workload.given_tokens,
        "output": workload.requests_per_s_mean * workload.output_tokens.mean_tokens,
    }
    if makes_vectors(workload):
        rates["output"] = 0.0
    counted_s = rates["output"] or rates["input"]  # tokens per second that energy and carbon are told by
    prefill, decode, prefill_share = ledger(catalog, answer, s, workload)
    steps = [line_json(line) for line in prefill + decode]
    costs = token_costs(s.usd_per_hour, rates, prefill_share)
    full = s.capacity_requests_per_s / workload.requests_per_s_mean
    ceiling = token_costs(s.usd_per_hour, {k: r * full for k, r in rates.items()}, prefill_share)
    monthly = s.usd_per_hour * HOURS_PER_MONTH
    half = interval_fractions(taken, c.efficiency.basis)
    tunes = float(resident_bytes(catalog.model, layouts(catalog.model, [c]))[0]) if catalog.model.adapters else 0.0
    grid = grid_of(taken, workload, catalog, s)
    r: Json = {
        "rank": rank,
        "label": f"{s.chips} x {a.name}, {describe(s.lane)}, {counted(s.replicas, 'replica')}{tuned.other_way(s)}",
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
        "partition": sharing.partition_json(s.lane.choice.accelerator),
        "speculative": tuned.speculative_json(catalog.model, s),
        "disaggregated": tuned.disaggregated_json(s),
        "memory": {
            "weights_gib": number((s.memory.weights_bytes - tunes) / GIB),
            **({"adapters_gib": number(tunes / GIB)} if tunes else {}),
            "kv_gib": number((s.memory.kv_bytes - s.memory.source_kv_bytes) / GIB),
            **({"source_kv_gib": number(s.memory.source_kv_bytes / GIB)} if s.memory.source_kv_bytes else {}),
            "activations_gib": number(s.memory.activations_bytes / GIB),
            "overhead_gib": number(s.memory.overhead_bytes / GIB),
            "free_gib": number(s.memory.free_bytes / GIB),
        },
        "kv_capacity_tokens": number(s.memory.kv_capacity_tokens) if keeps_cache(s) else None,
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
        "licence_usd_per_hour": number(s.licence_usd_per_hour),
        "usd_per_month": number(monthly),
        "usd_per_mtok_input": number(costs["input"]),
        "usd_per_mtok_output": number(costs["output"]),
        "usd_per_mtok_blended": number(costs["blended"]),
        "usd_per_mtok_input_at_capacity": number(ceiling["input"]),
        "usd_per_mtok_output_at_capacity": number(ceiling["output"]),
        "usd_per_mtok_blended_at_capacity": number(ceiling["blended"]),
        "tco_usd": number(float(present_value(monthly, workload.horizon_months, workload.discount_fraction))),
        "watts": number(s.watts),
        "pue": number(s.offer.pue),
        "usd_per_kwh": number(s.offer.usd_per_kwh) if s.offer.usd_per_kwh is not None else None,
        "joules_per_output_token": number(s.watts / counted_s),
        "kgco2e_per_mtok": number(s.watts / counted_s * 1e6 / JOULES_PER_KWH * grid if grid else math.nan),
        "bound": bound_of(steps),
        "basis": c.efficiency.basis,
        "meets_slo": s.meets_slo,
        "launch": checked(
            s.lane.framework.slug, s.lane.framework.version, launch(taken["model"]["hf_id"], s, catalog.model, workload)
        ),
        "step": steps,
    }
    if makes_vectors(workload):
        r = vectors(r, number(rates["input"]), number(s.watts))
        r["input_tokens_per_s_at_capacity"] = number(rates["input"] * full)
    r |= batches.figures(workload, s) | capacity.figures(workload, s)
    r |= bill.money(taken, workload, catalog, s, rates, prefill_share)
    r["interval"] = intervals(r, half, bill.swings(taken, s) | {"power": power_swing(taken, catalog, s)})
    r["scores"] = choice.scores_json(answer, s)
    r["demand"] = capacity.said_of(r)
    r["reasons"] = [*reasons(workload, s, r), *r["demand"], *terms(catalog, s)]
    r["warnings"] = warnings(workload, s, r) + capacity.warnings(workload, s) + sharing.warnings(catalog)
    if rank is not None:
        assert answer.built is not None
        r["tuning"] = tuned.of_option(taken, workload, catalog, s, answer.built, prefill, decode)
        others = answer.variants.get(rank - 1, ())
        r["variants"] = [tuned.variant_json(r, option_json(taken, workload, catalog, answer, v, None)) for v in others]
    return r


def near_miss_json(taken: Json, workload: Workload, catalog: Catalog, answer: Answer, s: Scored) -> Json:
    """An R without a rank, with what it missed in one line."""
    why = next(r for r in answer.rejections if r.accelerator == s.lane.choice.accelerator.slug)
    r = option_json(taken, workload, catalog, answer, s, None)
    changes = [why.smallest_change] if why.smallest_change else []
    return r | {"detail": why.detail, "reasons": [why.detail, *changes]}


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
    if makes_vectors(workload):
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


# --- words ------------------------------------------------------------------------------------------------------


def verdict(workload: Workload, ranked: tuple[Scored, ...], options: list[Json], near: list[Json]) -> str:
    """The answer in one sentence."""
    if not options:
        tail = f" The nearest miss is {near[0]['label']}: {near[0]['detail']}." if near else ""
        return f"Nothing in the catalog meets this workload: see why each accelerator was left out.{tail}"
    r, s = options[0], ranked[0]
    token = "input" if makes_vectors(workload) else "output"
    between = r["interval"].get(f"usd_per_mtok_{token}")
    spread = f" ({dollars(between[0])[1:]} to {dollars(between[1])[1:]})" if between else ""
    latency = f"p95 latency {s.verified.ttft_p95_s * 1e3:.0f} ms"
    if token == "output":
        latency = f"p95 TTFT {s.verified.ttft_p95_s * 1e3:.0f} ms and p95 TPOT {s.verified.tpot_p95_s * 1e3:.1f} ms"
    at_peak = f"{latency} at the peak of {s.requests_per_s_peak:.4g} requests/s"
    return (
        f"{r['label']}, {whence(r)}: ${r['usd_per_month']:,.0f} a month, "
        f"{dollars(r[f'usd_per_mtok_{token}'])}{spread} per million {token} tokens, {batches.verdict(r) or at_peak}."
    )


def whence(r: Json) -> str:
    """Whose machines they are: already there, bought, or rented from somebody."""
    if r["provider"] == "owned":
        return "already there"
    return "bought" if r["acquisition"] == "own" else f"rented from {r['provider']}"


def dollars(usd: float) -> str:
    """$1.23, and $0.0012: two digits that say something."""
    return f"${usd:.2f}" if usd >= 0.1 or not usd else f"${usd:.2g}"


def reasons(workload: Workload, s: Scored, r: Json) -> list[str]:
    slo, v = workload.slo, s.verified
    c, carrying = s.lane.choice, s.replicas - s.spare_replicas
    spare = f", {counted(s.spare_replicas, 'spare replica')} beside" if s.spare_replicas else ""
    each = "instance" if c.accelerator.cut else "chip"
    cache = f"{s.memory.kv_capacity_tokens * c.lanes:,.0f} tokens of cache fit into a replica"
    load = [
        f"the peak of {workload.requests_per_s_peak:.4g} requests/s is simulated on "
        f"{counted(carrying, 'replica')}{spare}; the mean of {workload.requests_per_s_mean:.4g} takes "
        f"{s.utilisation_fraction:.0%} of the capacity"
    ]
    said = [
        f"weights take {s.memory.weights_bytes / GIB:.1f} GiB of {c.accelerator.memory_bytes / GIB:.1f} GiB "
        f"per {each}; " + (cache if keeps_cache(s) else "no cache is kept"),
        f"a {'prefill' if makes_vectors(workload) else 'decode'} step waits longest for {WAITS[r['bound']]}",
        *(batches.reasons(r) or load),
    ]
    said += sharing.said_of_cut(c.accelerator)
    if c.quantization.quality == "near_lossless":
        said.append(f"{c.quantization.name}: {c.quantization.quality_note}")
    limits = (
        ("latency" if makes_vectors(workload) else "TTFT", v.ttft_p95_s, slo.ttft_p95_s, 0),
        ("TPOT", v.tpot_p95_s, tpot_limit_s(workload), 1),
        ("end-to-end time", v.e2e_p95_s, slo.e2e_p95_s, 0),
    )
    said += [
        f"p95 {name} {got * 1e3:.{digits}f} ms in simulation against a limit of {most * 1e3:.{digits}f} ms"
        for name, got, most, digits in limits
        if most is not None
    ]
    return [*said, f"priced as {s.instances} x {quoted(s.offer.instance or 'host')} on {s.offer.as_of}"]


def quoted(instance: str) -> str:
    """A host whose name begins with its own count, in brackets: 3 x (2 x L4 in an own host)."""
    return f"({instance})" if instance[:1].isdigit() else instance


UNMEASURED = {
    "relative": "this chip's kernel efficiency is borrowed from a related chip, not measured: the interval is wide",
    "datasheet": "this chip's kernel efficiency is taken from its data sheet, not measured: the interval is wide",
}


def keeps_cache(s: Scored) -> bool:
    return s.memory.kv_capacity_tokens < NO_CACHE_TOKENS


def terms(catalog: Catalog, s: Scored) -> list[str]:
    """What is particular to the price: an organisation's own terms, licences, where a bought host stands."""
    c, chips = s.lane.choice, s.instances * s.offer.accelerators
    said = [f"price: {s.offer.notes}"] if s.offer.notes else []
    said += [
        f"{li.name}: ${li.usd_per_accelerator_year:,.0f} a year for each of {counted(chips, 'accelerator')}, "
        f"${li.usd_per_accelerator_year * chips / HOURS_PER_YEAR:,.2f} an hour in the price ({li.source})"
        for li in catalog.licences
        if li.covers(c.accelerator.vendor, s.lane.framework.slug)
    ]
    if s.offer.acquisition == "own" and s.offer.usd_per_kwh is not None:
        said.append(
            f"stands at {s.offer.region}: {s.offer.usd_per_kwh:.3g} USD/kWh, PUE {s.offer.pue:.3g}, "
            f"{s.offer.kgco2e_per_kwh or math.nan:.3g} kgCO2e/kWh"
        )
    return said


def counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' if number != 1 else ''}"


def warnings(workload: Workload, s: Scored, r: Json) -> list[str]:
    said = []
    c = s.lane.choice
    said += tuned.variant_warnings(s)
    if s.idle_chips:
        said.append(f"{s.idle_chips} of the {s.chips + s.idle_chips} chips in the instances stay idle and are paid for")
    if c.quantization.quality == "lossy":
        said.append(f"{c.quantization.name}: {c.quantization.quality_note}")
    if c.kv_dtype not in HALF:
        said.append(f"the cache is kept in {c.kv_dtype}: compare long-context answers before shipping")
    if c.efficiency.basis != "measured":
        said.append(UNMEASURED.get(c.efficiency.basis, UNMEASURED["datasheet"]))
    if s.verified.rejected_requests:
        said.append(
            f"{s.verified.rejected_requests} of {s.verified.requests} simulated requests exceed a replica's cache"
        )
    first = "latency" if makes_vectors(workload) else "TTFT"
    for name, limit in ((first, workload.slo.ttft_p95_s), ("TPOT", tpot_limit_s(workload))):
        high = (r["interval"].get(f"{name.lower()}_ms_p95") or (None, None))[1]
        if limit is not None and high is not None and high > limit * 1e3:
            said.append(
                f"the 90 % interval of p95 {name} reaches {high:.0f} ms, beyond the limit of {limit * 1e3:.0f} ms: "
                "load-test before signing"
            )
    if "batch" not in r and s.capacity_requests_per_s > 2 * workload.requests_per_s_peak:
        said.append("less than half used even at the peak: smaller or shared hardware may be cheaper")
    return said


def rejection_json(r: Rejection) -> Json:
    return {
        "accelerator": r.accelerator,
        "reason": r.reason,
        "detail": r.detail,
        "limit": number(r.limit) if r.limit is not None else None,
        "reached": number(r.reached) if r.reached is not None else None,
        "smallest_change": r.smallest_change,
        "change": choice.change_of(r.smallest_change),
    }


# --- views, picture, sensitivity, sources -----------------------------------------------------------------------


def pareto_json(workload: Workload, answer: Answer) -> list[Json]:
    best = frontier(answer.points)
    if makes_vectors(workload):
        given = workload.given_tokens
        return [vector_point_json(p, p.requests_per_s * given, k in best) for k, p in enumerate(answer.points)]
    output = workload.output_tokens.mean_tokens
    return [point_json(p, p.requests_per_s * output, k in best) for k, p in enumerate(answer.points)]


def vector_point_json(p: Point, tokens_per_s: float, on_frontier: bool) -> Json:
    """A deployment of an embedding model: what a million tokens cost against how long a request takes."""
    usd = number(float(usd_per_mtok(np.array(p.usd_per_hour), tokens_per_s)))
    return point_json(p, tokens_per_s, on_frontier) | {
        "usd_per_mtok_output": None,
        "usd_per_mtok_input": usd,
        "tpot_ms": None,
        "latency_ms": number(p.tpot_s * 1e3),
        "output_tokens_per_s_per_user": None,
    }


def point_json(p: Point, output_tokens_per_s: float, on_frontier: bool) -> Json:
    bill = np.array(p.usd_per_hour * (1 - p.prefill_fraction))  # the output's part, as in an option's own cost
    return {
        "label": p.label,
        "accelerator": p.accelerator,
        "accelerator_count": p.chips,
        "usd_per_mtok_output": number(float(usd_per_mtok(bill, output_tokens_per_s))),
        "tpot_ms": number(p.tpot_s * 1e3),
        "output_tokens_per_s_per_user": number(1.0 / p.tpot_s if p.tpot_s else math.inf),
        "rank": p.rank,
        "frontier": on_frontier,
        "meets_slo": p.meets_slo,
        "simulated": p.rank is not None,
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
