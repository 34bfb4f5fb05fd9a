"""One fixed deployment: its arguments in, the JSON of `estimate` out. The command and the API share it."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from advisor.answer.embedding import vectors
from advisor.answer.intervals import interval_fractions
from advisor.answer.option import PERCENTILES, bound_of, line_json, token_costs
from advisor.answer.sentences import UNMEASURED
from advisor.engine import ENGINE_VERSION
from advisor.engine.cost import HOURS_PER_MONTH, JOULES_PER_KWH, Assumptions, Draw, watts_per_chip
from advisor.engine.estimate import Estimate, estimate, means, prepare, prepared, queued_requests
from advisor.engine.network import active_parameters, parameters
from advisor.engine.scheduler import open_loop, scheduler_of
from advisor.engine.search import describe, instances_needed, offer_usd_per_hour
from advisor.engine.spec import Case, Offer, Pool
from advisor.engine.step import (
    NO_CACHE_TOKENS,
    Demand,
    Lane,
    Lanes,
    batch_capacity_requests_per_s,
    decode_ledger,
    lanes,
    prefill_ledger,
    step_fractions,
    take,
)
from advisor.fidelity import nearest_rows
from advisor.inputs import catalog_model_id, catalog_model_ids, catalog_resources, market, number, usual_host_watts
from advisor.workload import Deployment, Fixed, WorkloadError, deployment, error

GIB = 2.0**30
Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Built:
    """A deployment with its lanes (one; prefill and decode when disaggregated) as arrays."""

    fixed: Fixed
    own: tuple[Lane, ...]
    lanes: Lanes

    @property
    def fits(self) -> bool:
        return bool(self.lanes.memory.fits.all())


def answer(d: Deployment) -> Json:
    """The JSON of `estimate`; `fits` false: it cannot be loaded, and `smallest_change` says what would help.

    Raises WorkloadError where the arguments name what is not there or contradict themselves.
    """
    if isinstance(d.model, str):
        model_id = catalog_model_id(d.model)
        d, known = d.model_copy(update={"model": model_id}), catalog_resources([model_id])
        if model_id not in known.models:
            deployment.named("model", model_id, dict.fromkeys(catalog_model_ids()))
    elif isinstance(d.model.config, str):
        raise WorkloadError([error("model.config", "file paths are not accepted here", "the contents of config.json")])
    else:
        known = deployment.with_config(catalog_resources([]), "own-model", d.model.config)
    fixed = deployment.fixed(d, known)
    said = answer_of(fixed)
    sizes = float(parameters(fixed.model)), float(active_parameters(fixed.model))
    asked = nearest_rows.asked_for(said, fixed.case.model_id, sizes, said["isl"], fixed.case.osl)
    return said | {"evidence": nearest_rows.evidence(asked)}


def answer_of(fixed: Fixed) -> Json:
    own = prepare(fixed.case, fixed.resources)
    if isinstance(own, str):
        raise WorkloadError([error("", own)])
    built = Built(fixed=fixed, own=own, lanes=lanes(fixed.model, own))
    if fixed.case.mode == "disagg" and not fixed.case.concurrency:
        return answer_of(replace(fixed, case=asked_for(built)))
    said = configuration(built) | {"memory": memory(built), "fits": built.fits} | sizes(built)
    if not built.fits:
        return said | {"smallest_change": changes(fixed), "warnings": list(fixed.doubts), **origin(built)}
    seen = estimate(fixed.case, fixed.resources)
    if seen.problem:
        raise WorkloadError([error("", seen.problem)])
    said |= figures(built, seen)
    said["step"], prefill_share = steps(built, said["concurrency"])
    said["bound"] = bound_of(said["step"])
    said |= costs(built, said, prefill_share) | {"closed_form": closed_form(built)}
    said["interval"] = interval(built, said)
    if built.fixed.model.encoder_only:
        said = of_vectors(built, said)
    return said | {"warnings": [*fixed.doubts, *warnings(built, said)], **origin(built)}


# --- what it is -------------------------------------------------------------------------------------------------


def configuration(built: Built) -> Json:
    fixed, lane = built.fixed, built.own[-1]
    c, case, pool = lane.choice, fixed.case, fixed.pools[-1]
    many = f"{pool.replicas} replicas" if pool.replicas > 1 else "1 replica"
    two = "" if case.mode == "agg" else f", prefill on {fixed.pools[0].chips} of them"
    return {
        "label": f"{case.chips} x {fixed.accelerator.name}, {describe(lane)}, {many}{two}",
        "model": case.model_id,
        "accelerator": fixed.accelerator.slug,
        "accelerator_name": fixed.accelerator.name,
        "accelerator_count": case.chips,
        "framework": lane.framework.slug,
        "framework_version": lane.framework.version,
        "weights_dtype": c.quantization.weights_dtype,
        "quantization": c.quantization.slug,
        "kv_dtype": c.kv_dtype,
        "tp": c.tp,
        "pp": c.pp,
        "ep": c.ep,
        "dp": c.dp,
        "moe_tp": pool.moe_tp,
        "replicas": pool.replicas,
        "concurrency": running(built),
        "max_batched_tokens": lane.max_batched_tokens,
        "speculative": None,
        "disaggregated": None if case.mode == "agg" else disaggregated(built),
        "isl": case.source_tokens or case.isl,
        "osl": case.osl,
        "client": case.client.kind,
    }


def disaggregated(built: Built) -> Json:
    prefill, decode = built.fixed.pools
    moved = float(built.lanes.memory.kv_bytes_per_sequence[0]) * built.fixed.case.isl / built.own[0].context_tokens
    links = built.fixed.accelerator.links
    return {
        "prefill": pool_json(prefill),
        "decode": pool_json(decode),
        "kv_transfer_s": number(moved / links[-1].bytes_per_s) if links else None,
    }


def pool_json(p: Pool) -> Json:
    return {"replicas": p.replicas, "tp": p.tp, "pp": p.pp, "ep": p.ep, "dp": p.dp, "moe_tp": p.moe_tp}


def running(built: Built) -> int:
    """Requests in flight per replica: as asked, or as many as fit."""
    case, lane, pool = built.fixed.case, built.own[-1], built.fixed.pools[-1]
    if case.concurrency:
        return max(math.ceil(case.concurrency / pool.replicas), 1)
    return queued_requests(case, lane, built.lanes, len(built.own) - 1) * pool.pp * pool.dp


def memory(built: Built) -> Json:
    """GiB per chip of one replica at the planned concurrency (of the decode pool, where there are two)."""
    room, i = built.lanes.memory, len(built.own) - 1
    pool = built.fixed.pools[-1]
    each = float(room.kv_bytes_per_sequence[i])
    there = max(float(room.kv_bytes[i]), 0.0)
    held = min(max(running(built) / pool.dp, 1.0) * each, there) if built.fits else each
    source = held * float(room.source_bytes_per_sequence[i]) / each if each else 0.0
    parts = {
        "weights_gib": float(room.weights_bytes[i]),
        "kv_gib": held - source,
        **({"source_kv_gib": source} if source else {}),
        "activations_gib": float(room.activations_bytes[i]),
        "overhead_gib": float(room.overhead_bytes[i]),
        "free_gib": float(room.kv_bytes[i]) - held,
    }
    return {name: number(size / GIB) for name, size in parts.items()}


def sizes(built: Built) -> Json:
    room, i, pool = built.lanes.memory, len(built.own) - 1, built.fixed.pools[-1]
    source = float(room.source_bytes_per_sequence[i])
    per_token = (float(room.kv_bytes_per_sequence[i]) - source) / built.own[-1].context_tokens
    capacity = float(room.kv_capacity_tokens[i])
    return {
        "usable_gib": number(float(room.usable_bytes[i]) / GIB),
        "kv_bytes_per_token": number(per_token),
        "source_kv_bytes_per_sequence": number(source),
        "kv_capacity_tokens": None if capacity >= NO_CACHE_TOKENS else number(capacity * pool.pp * pool.dp),
    }


# --- what it does -----------------------------------------------------------------------------------------------


def figures(built: Built, seen: Estimate) -> Json:
    """Figures of the whole deployment."""
    chips = built.fixed.case.chips

    def ms(name: str) -> Json:
        return {k: number(getattr(seen, f"{name}_{k}_s") * 1e3) for k in PERCENTILES}

    return {
        "ttft_ms": ms("ttft"),
        "tpot_ms": ms("tpot"),
        "e2e_ms_mean": number(seen.e2e_s * 1e3),
        "output_tokens_per_s": number(seen.output_tokens_per_s),
        "output_tokens_per_s_per_accelerator": number(seen.output_tokens_per_s / chips),
        "total_tokens_per_s": number(total_tokens_per_s(built.fixed.case, seen, built.fixed.model.encoder_only)),
        "requests_per_s": number(seen.requests_per_s),
    }


def of_vectors(built: Built, said: Json) -> Json:
    """The same of an embedding model: its tokens are those read, its one latency is the time to the vector."""
    tokens_per_s, output = said["total_tokens_per_s"], said["output_tokens_per_s"]
    found = vectors(said, tokens_per_s, said["watts"])
    ratio = output / tokens_per_s if output and tokens_per_s else math.nan
    found["kgco2e_per_mtok"] = number((said["kgco2e_per_mtok"] or math.nan) * ratio)
    interval = said["interval"]
    found["interval"] = {"latency_ms": interval["ttft_ms"]} if "ttft_ms" in interval else {}
    if "output_tokens_per_s" in interval:
        spread = [number(v / ratio) for v in interval["output_tokens_per_s"]]
        found["interval"]["input_tokens_per_s"] = spread
    return found


def total_tokens_per_s(case: Case, seen: Estimate, vectors_only: bool) -> float:
    if math.isfinite(seen.total_tokens_per_s):
        return seen.total_tokens_per_s - (seen.requests_per_s if vectors_only else 0.0)
    mean = (case.client.length_low_fraction + case.client.length_high_fraction) / 2
    return seen.output_tokens_per_s + seen.requests_per_s * case.isl * mean


def steps(built: Built, concurrency: int) -> tuple[list[Json], float]:
    """The ledger of one prefill and one decode step, and the share of a request's time on the chips that is prefill."""
    case, last = built.fixed.case, len(built.own) - 1
    if built.fixed.model.encoder_only:
        return [line_json(line) for line in prefill_ledger(built.fixed.model, built.lanes, 0, case.isl)], 1.0
    at_once = together(built, concurrency)
    prefill = prefill_ledger(built.fixed.model, built.lanes, 0, case.isl)
    decode = decode_ledger(built.fixed.model, built.lanes, last, at_once, case.isl + case.osl / 2)
    prefill_s = sum(line.time_s for line in prefill)
    decode_s = sum(line.time_s for line in decode) * case.osl / at_once
    return [line_json(line) for line in (*prefill, *decode)], prefill_s / (prefill_s + decode_s)


def together(built: Built, concurrency: int) -> float:
    """Requests that share a decode step of one lane."""
    case, pool, last = built.fixed.case, built.fixed.pools[-1], len(built.own) - 1
    at_once = max(min(concurrency / (pool.pp * pool.dp), built.own[-1].max_running_requests), 1.0)
    return min(at_once, max(float(built.lanes.times.kv_capacity_tokens[last]) // (case.isl + case.osl), 1.0))


def closed_form(built: Built) -> Json | None:
    """The search's formulas for this deployment, beside the simulation; None where there are none."""
    case, resources = built.fixed.case, built.fixed.resources
    if built.fixed.model.encoder_only:
        return {"capacity_requests_per_s": number(vectors_per_s(built))}
    if case.mode != "agg":
        return None
    if case.client.rate_per_s:
        return open_form(built, case.client.rate_per_s)
    these = prepared([case if case.concurrency else asked_for(built)], resources)
    found = means(these, resources, resources.scopes)[0]
    return {
        "ttft_ms_mean": number(found.ttft_mean_s * 1e3),
        "tpot_ms_mean": number(found.tpot_mean_s * 1e3),
        "output_tokens_per_s": number(found.output_tokens_per_s),
    }


def vectors_per_s(built: Built) -> float:
    """What the whole deployment embeds at most: every step full."""
    lane, case = built.own[0], built.fixed.case
    demand = Demand(input_tokens=case.isl, output_tokens=1.0)
    seats = np.array([float(lane.max_running_requests)])
    each = batch_capacity_requests_per_s(take(built.lanes.times, np.array([0])), seats, demand, scheduler_of(lane))
    return float(each[0]) * (case.chips // lane.choice.tp)


def asked_for(built: Built) -> Case:
    return replace(built.fixed.case, concurrency=float(running(built) * built.fixed.pools[-1].replicas))


def open_form(built: Built, rate_per_s: float) -> Json:
    case, lane = built.fixed.case, built.own[0]
    low, high = case.client.length_low_fraction, case.client.length_high_fraction
    mean, cv2 = (low + high) / 2, (high - low) ** 2 / 12 / ((low + high) / 2) ** 2
    demand = Demand(input_tokens=case.isl * mean, output_tokens=case.osl * mean, input_cv2=cv2, output_cv2=cv2)
    ways = case.chips // lane.choice.tp
    found = open_loop(take(built.lanes.times, np.array([0])), np.array([rate_per_s / ways]), demand, scheduler_of(lane))
    return {
        "ttft_ms_mean": number(found.ttft_mean_s[0] * 1e3),
        "tpot_ms_mean": number(found.tpot_mean_s[0] * 1e3),
        "ttft_ms_p95": number(found.ttft_p95_estimate_s[0] * 1e3),
        "tpot_ms_p95": number(found.tpot_p95_estimate_s[0] * 1e3),
        "output_tokens_per_s": number(found.output_tokens_per_s[0] * ways),
        "capacity_requests_per_s": number(found.capacity_requests_per_s[0] * ways),
    }


# --- what it costs ----------------------------------------------------------------------------------------------


def costs(built: Built, said: Json, prefill_share: float) -> Json:
    """The cheapest current offer that can hold it, and its power at full load."""
    offers, a = market(built.fixed.accelerator)
    phases = drawn(built, a, said["concurrency"], prefill_share)
    priced = [(usd, o) for o in offers if (usd := usd_per_hour(built.fixed.pools, o)) is not None]
    if not priced:
        return power_json(watts(built, a, None, phases), said, None) | {
            "usd_per_hour": None,
            "price_as_of": None,
            "price_source": None,
        }
    usd, offer = min(priced, key=lambda found: found[0])
    output = 0.0 if built.fixed.model.encoder_only else said["output_tokens_per_s"] or 0.0
    split = token_costs(usd, {"input": (said["total_tokens_per_s"] or 0.0) - output, "output": output}, prefill_share)
    return power_json(watts(built, a, offer, phases), said, offer) | {
        "provider": offer.provider,
        "instance": offer.instance,
        "region": offer.region,
        "acquisition": offer.acquisition,
        "price_as_of": offer.as_of,
        "price_source": offer.source,
        "usd_per_hour": number(usd),
        "usd_per_month": number(usd * HOURS_PER_MONTH),
        **{f"usd_per_mtok_{name}": number(value) for name, value in split.items()},
    }


def usd_per_hour(pools: tuple[Pool, ...], offer: Offer) -> float | None:
    """Whole instances of one offer for every pool; None: a stage does not fit into one."""
    if any(p.tp * p.dp > offer.accelerators for p in pools):
        return None
    counts = (instances_needed(np.array(float(p.replicas)), p.chips_per_replica, offer.accelerators) for p in pools)
    return float(offer_usd_per_hour(offer, float(sum(counts))))


def drawn(built: Built, a: Assumptions, concurrency: int, prefill_share: float) -> float:
    """Mean share of (limit - idle) of a chip that is never without work, its phases by their time."""
    case, last = built.fixed.case, len(built.own) - 1
    model, at_once, chip = built.fixed.model, together(built, concurrency), built.fixed.accelerator
    draw = Draw.of(a, chip.watts, chip.idle_watts)
    first, later = step_fractions(draw, model, built.lanes, last, case.isl, at_once, case.isl + case.osl / 2)
    return prefill_share * first + (1.0 - prefill_share) * later


def watts(built: Built, a: Assumptions, offer: Offer | None, span_fraction: float) -> float:
    """All chips at this share of (limit - idle), in the hosts and the building of the offer."""
    chip, share = built.fixed.accelerator, offer.host_watts_per_accelerator if offer else None
    host = np.array(usual_host_watts(chip, a) if share is None else share)
    each = watts_per_chip(np.array(chip.watts), np.array(chip.idle_watts), np.array(span_fraction), a, host)
    return float(each) * built.fixed.case.chips * (offer.pue if offer else a.pue)


def power_json(watts: float, said: Json, offer: Offer | None) -> Json:
    joules = watts / said["output_tokens_per_s"] if said["output_tokens_per_s"] else math.nan
    grid = offer.kgco2e_per_kwh if offer else None
    return {
        "watts": number(watts),
        "joules_per_output_token": number(joules),
        "kgco2e_per_mtok": number(joules * 1e6 / JOULES_PER_KWH * grid) if grid else None,
    }


# --- how sure, and what to mind ---------------------------------------------------------------------------------


def interval(built: Built, said: Json) -> Json:
    """[low, high] of each headline figure at 90 %."""
    half = interval_fractions({"calibrations": built.fixed.resources.scopes}, basis(built))
    found = {
        name: [number((said[name]["mean"] or math.nan) * f) for f in half[key]]
        for name, key in (("ttft_ms", "ttft"), ("tpot_ms", "tpot"))
        if key in half
    }
    if "throughput" in half:
        low, high = half["throughput"]
        found["output_tokens_per_s"] = [number((said["output_tokens_per_s"] or math.nan) * f) for f in (low, high)]
        if usd := said.get("usd_per_mtok_output"):
            found["usd_per_mtok_output"] = [number(usd / high), number(usd / low)]
    return found


def basis(built: Built) -> str:
    return built.own[-1].choice.efficiency.basis


def origin(built: Built) -> Json:
    return {"basis": basis(built), "engine_version": ENGINE_VERSION}


def warnings(built: Built, said: Json) -> list[str]:
    found = []
    case, i = built.fixed.case, len(built.own) - 1
    pending = queued_requests(replace(case, concurrency=None), built.own[i], built.lanes, i)
    room = pending * case.chips // built.own[i].choice.tp
    if case.concurrency and case.mode == "agg" and case.concurrency > room:
        found.append(f"of {case.concurrency:,.0f} requests in flight only about {room:,} run at once: the rest queue")
    if case.client.rate_per_s and said["closed_form"]["capacity_requests_per_s"] < case.client.rate_per_s:
        found.append(f"{case.client.rate_per_s:g} requests/s are more than it can serve: the queue grows without end")
    if basis(built) != "measured":
        found.append(UNMEASURED.get(basis(built), UNMEASURED["datasheet"]))
    if case.mode == "disagg":
        found.append("two pools: means only, no percentiles")
    return found


def changes(fixed: Fixed) -> list[str]:
    """Single changes after which it fits, the smallest of each kind."""
    if fixed.case.pool is None:
        return ["a larger tp in the pool that does not fit"]
    found: dict[str, str] = {}
    for kind, value, case in alternatives(fixed.case, fixed.case.pool):
        own = prepare(case, fixed.resources) if kind not in found else ""
        if not isinstance(own, str) and lanes(fixed.model, own).memory.fits.all():
            found[kind] = f"{kind} {value}"
    return list(found.values()) or ["no single change: choose an accelerator with more memory"]


def alternatives(case: Case, pool: Pool) -> list[tuple[str, str, Case]]:
    """(argument, value, case) of changes to one argument, gentlest first."""
    found = [("kv", "fp8", replace(case, kv_dtype="fp8"))] if case.kv_dtype != "fp8" else []
    found.append(("max_batched_tokens", "2048", replace(case, max_batched_tokens=2048)))
    for size in (2, 4, 8, 16, 32):
        if size > pool.tp and size % pool.tp == 0:
            wider = replace(pool, tp=size, moe_tp=pool.moe_tp * size // pool.tp)
            found.append(("tp", str(size), replace(case, pool=wider, chips=wider.chips)))
        if size > pool.pp:
            longer = replace(pool, pp=size)
            found.append(("pp", str(size), replace(case, pool=longer, chips=longer.chips)))
    formats = [w for w in ("fp8", "int8", "int4", "nvfp4", "gguf-q4-k-m") if w != case.weights_dtype]
    return found + [("weights", w, replace(case, weights_dtype=w)) for w in formats]
