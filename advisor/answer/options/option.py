"""One deployment as an Option: engine values in human units, with the sections of the answer around them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from advisor.answer import money as bill
from advisor.answer import ranking
from advisor.answer.choice import sold_out_on
from advisor.answer.options import contents, demand, tuning
from advisor.answer.options.calibration_marks import measured_correction
from advisor.answer.options.card_sharing import partition
from advisor.answer.options.card_sharing import warnings as adapter_warnings
from advisor.answer.options.energy import grid_of, power_range
from advisor.answer.options.intervals import intervals, latency_ranges_of
from advisor.answer.options.launch_flags import checked
from advisor.answer.question import Question
from advisor.answer.sentences import counted, keeps_cache, length_warnings, price_notes, reasons, warnings
from advisor.engine.cost import HOURS_PER_MONTH, JOULES_PER_KWH, present_value, usd_per_mtok
from advisor.engine.launch import launch, served_checkpoint
from advisor.engine.network import Model
from advisor.engine.search import (
    BY_THE_HOUR,
    Catalog,
    Scored,
    SearchResult,
    as_cached,
    describe,
    interval_ratios,
    on_spot,
    started_fraction,
)
from advisor.engine.step import (
    Lane,
    Line,
    context_tokens,
    decode_ledger,
    layouts,
    prefill_fraction,
    prefill_ledger,
    prompt_tokens,
    quality_of,
    resident_bytes,
)
from advisor.engine.terms import EMBEDDING, WeightStore, Workload
from advisor.engine.terms import Host as HostOfOffer
from advisor.inputs import number, rounded
from advisor.result import (
    Batch,
    Checkpoint,
    Estimate,
    Host,
    Memory,
    NearMiss,
    Operator,
    Option,
    Percentiles,
    Simulation,
    SolidChoice,
)

GIB, GB, GBIT = 2.0**30, 1e9, 1e9 / 8
Json = dict[str, Any]
# names of host figures in an answer, by their names in the engine
HOST_FIELDS = {
    "memory_bytes": "memory_gib",
    "local_disk_bytes": "local_disk_gb",
    "network_bytes_per_s": "network_gbit_per_s",
}


def option(question: Question, outcome: SearchResult, s: Scored, rank: int | None, tuned: bool = True) -> Option:
    """A deployment of the search; without a rank it has neither tuning, variants nor what the loss of a host does."""
    asked, asked_hit_fraction = question, question.workload.prefix_cache_hit_fraction
    served = replace(
        question.workload, requests_per_s_mean=s.requests_per_s_mean, requests_per_s_peak=s.requests_per_s_peak
    )
    workload = as_cached(served, s.kept_fraction)
    question = replace(question, workload=workload)
    generates = workload.kind.generates_tokens
    c = s.lane.choice
    half = interval_ratios(question.snapshot.calibrations, c.efficiency.basis, c)
    latencies = latency_ranges_of(question.snapshot.calibrations, s)
    tokens_per_s = {
        "input": workload.requests_per_s_mean * workload.given_tokens,
        "output": workload.requests_per_s_mean * workload.output_tokens.mean_tokens if generates else 0.0,
    }
    priced_tokens_per_s = tokens_per_s["output"] or tokens_per_s["input"]
    prefill, decode, prefill_share = ledgers(question, outcome, s)
    steps = [operator(line) for line in prefill + decode]
    at_capacity = s.capacity_requests_per_s / workload.requests_per_s_mean
    over_horizon = {name: rate * bill.traffic_ratio(workload) for name, rate in tokens_per_s.items()}
    adapters = (
        float(resident_bytes(question.catalog.model, layouts(question.catalog.model, [c]))[0])
        if question.catalog.model.adapters
        else 0.0
    )
    grid = grid_of(question, s)
    ttft_ms, tpot_ms = demand.percentiles(s.verified, "ttft"), demand.percentiles(s.verified, "tpot")
    costs = token_costs(
        s.usd_per_hour,
        over_horizon,
        prefill_share,
        workload.prefix_cache_hit_fraction,
        bill.cached_share(workload, s),
    )
    used = used_fraction(workload, s)
    costs_at_capacity = {name: usd * used for name, usd in costs.items()}
    monthly = s.usd_per_hour * HOURS_PER_MONTH
    result = Option(
        rank=rank,
        **configuration(s),
        host=host_section(question.catalog, s),
        speculative=tuning.speculative(question.catalog.model, s, outcome.draft_risks.get(rank - 1) if rank else None),
        disaggregated=tuning.disaggregated(s),
        memory=memory(s, adapters),
        kv_capacity_tokens=number(s.memory.kv_capacity_tokens) if keeps_cache(s) else None,
        ttft_ms=ttft_ms,
        tpot_ms=tpot_ms,
        simulation=simulation(workload, s),
        requests_per_s=rounded(workload.requests_per_s_mean),
        output_tokens_per_s=number(tokens_per_s["output"]),
        output_tokens_per_s_per_accelerator=number(tokens_per_s["output"] / s.chips),
        capacity_requests_per_s=number(s.capacity_requests_per_s),
        output_tokens_per_s_at_capacity=number(tokens_per_s["output"] * at_capacity),
        utilisation=number(s.utilisation_fraction),
        usd_per_hour=rounded(s.usd_per_hour),
        licence_usd_per_hour=number(s.licence_usd_per_hour),
        usd_per_month=rounded(monthly),
        usd_per_mtok_input=number(costs["input"]),
        usd_per_mtok_output=number(costs["output"]),
        usd_per_mtok_blended=number(costs["blended"]),
        usd_per_mtok_input_at_capacity=number(costs_at_capacity["input"]),
        usd_per_mtok_output_at_capacity=number(costs_at_capacity["output"]),
        usd_per_mtok_blended_at_capacity=number(costs_at_capacity["blended"]),
        usd_per_mtok_cached_input=number(costs["cached"]),
        usd_per_mtok_cached_input_at_capacity=number(costs_at_capacity["cached"]),
        tco_usd=rounded(float(present_value(monthly, workload.horizon_months, workload.discount_fraction))),
        watts=number(s.watts),
        pue=number(s.offer.pue),
        usd_per_kwh=number(s.offer.usd_per_kwh) if s.offer.usd_per_kwh is not None else None,
        joules_per_output_token=number(s.watts / priced_tokens_per_s),
        kgco2e_per_mtok=number(s.watts / priced_tokens_per_s * 1e6 / JOULES_PER_KWH * grid if grid else math.nan),
        bound=bound_of(steps),
        basis=c.efficiency.basis,
        correction=measured_correction(c, half.get("tpot")),
        meets_slo=bool(s.meets_slo),
        slo_probability=number(s.slo_probability) if s.slo_probability is not None else None,
        launch=checked(
            s.lane.framework, launch(question.snapshot.model["hf_id"], s, question.catalog.model, workload)
        ).changed(checkpoint=checkpoint(question.snapshot.model["hf_id"], question.catalog.model, s.lane)),
        step=steps,
        **demand.traffic_fields(workload, s),
        **contents.contents_fields(question, s, asked_hit_fraction, used),
        money=bill.money(question, s, tokens_per_s, prefill_share),
        scores=ranking.scores(outcome, s),
        reasons=[],
        warnings=[],
    )
    if not generates:
        result = result.changed(
            **embedding_figures(result, number(tokens_per_s["input"]), number(s.watts)),
            input_tokens_per_s_at_capacity=number(tokens_per_s["input"] * at_capacity),
        )
    if (budget := tuning.step_budget(s)) is not None:
        result = result.changed(step_budget=budget)
    if (run := batch_run(question, s)) is not None:
        result = result.changed(batch=run)
    ranges = bill.price_and_load_ranges(question, s) | {"power": power_range(question, s)}
    result = result.changed(interval=intervals(result, half | latencies, ranges), demand=demand.sentences(result))
    result = result.changed(
        reasons=[
            *reasons(workload, s, result),
            *contents.sentences(question, result),
            *(result.speculative.said if result.speculative else []),
            *result.demand,
            *demand.redundancy_reasons(workload, s),
            *price_notes(question.catalog, s),
        ],
        warnings=[
            *ranking.weak_price_warnings(s.offer),
            *ranking.sold_out_warnings(s.offer.provider, result.sold_out_on),
            *ranking.doubt_warnings(s.offer),
            *ranking.unit_warnings(s.offer, s.instances * s.offer.accelerators, s.usd_per_hour),
            *demand.supply_warnings(question, s),
            *bill.liability_warnings(result),
            *warnings(workload, s, result),
            *length_warnings(workload, question.catalog.model),
            *demand.warnings(workload, s),
            *adapter_warnings(question.catalog),
            *host_warnings(question, s),
        ],
    )
    if rank is None:
        return result
    assert outcome.built is not None
    variants = [option(question, outcome, v, None) for v in outcome.variants.get(rank - 1, ())]
    return result.changed(
        one_host_lost=demand.host_lost(asked, outcome.table, s),
        tuning=tuning.tuning(question, s, outcome.built, prefill, decode) if tuned else None,
        variants=[tuning.variant(result, other) for other in variants],
    )


def near_miss(question: Question, outcome: SearchResult, s: Scored) -> NearMiss:
    """A deployment that misses a limit: what it misses, by which share of the limit, and what would let it pass."""
    why = next(r for r in outcome.rejections if r.accelerator == s.lane.choice.accelerator.slug)
    missed = option(question, outcome, s, None)
    changes = [why.smallest_change] if why.smallest_change else []
    fields = {name: getattr(missed, name) for name in missed.model_fields_set}
    return NearMiss(
        **fields
        | {
            "detail": why.detail,
            "smallest_change": why.smallest_change,
            "change": ranking.change_of(why),
            "beyond_fraction": number(why.reached / why.limit - 1, 4)
            if why.limit and why.reached is not None
            else None,
            "reasons": [why.detail, *changes],
        }
    )


def solid_choice(outcome: SearchResult, options: Sequence[Option]) -> SolidChoice | None:
    """The first choice without weak prices, if the price of the recommended one is weak."""
    s = outcome.solid
    if s is None or not options:
        return None
    setup, usd = configuration(s), s.usd_per_hour * HOURS_PER_MONTH
    names = ("label", "accelerator", "provider", "instance", "price_as_of", "price_origin", "price_source")
    return SolidChoice(
        **{name: setup[name] for name in names},
        usd_per_month=rounded(usd),
        more_fraction=rounded(usd / options[0].usd_per_month - 1),
    )


def configuration(s: Scored) -> Json:
    """The fields of an Option that say what is bought or rented and started."""
    a = s.lane.choice.accelerator
    return {
        "label": (
            f"{s.chips:,} x {a.name}, {describe(s.lane)}, {counted(s.replicas, 'replica')}{tuning.variant_label(s)}"
        ),
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
        "price_is_stale": s.offer.stale,
        "price_origin": s.offer.origin,
        "price_weakness": s.offer.weakness,
        "sold_out_on": sold_out_on(s),
        "price_source": s.offer.source,
        **setup(s.lane),
        "replicas": s.replicas,
        "spare_replicas": s.spare_replicas,
        "concurrency": s.concurrency,
        "max_batched_tokens": s.lane.max_batched_tokens,
        "partition": partition(a),
    }


def checkpoint(name: str, model: Model, lane: Lane) -> Checkpoint:
    """The weights that this lane serves."""
    q = lane.choice.quantization
    served = served_checkpoint(name, model, q, lane.framework.launch)
    return Checkpoint(
        repository=served.repository, origin=served.origin, step=served.step, quality=quality_of(model, q)
    )


def setup(lane: Lane) -> Json:
    """The fields of a Setup that a lane has: framework, formats, parallel sizes."""
    c = lane.choice
    return {
        "framework": lane.framework.slug,
        "framework_version": lane.framework.version,
        "weights_dtype": c.quantization.weights_dtype,
        "quantization": c.quantization.slug,
        "kv_dtype": c.kv_dtype,
        "tp": c.tp,
        "pp": c.pp,
        "ep": c.ep,
        "dp": c.dp,
    }


def memory(s: Scored, adapters_bytes: float) -> Memory:
    """Memory of an accelerator by part; adapters are not counted with the weights."""
    m = s.memory
    parts = {"weights_gib": m.weights_bytes - adapters_bytes}
    if adapters_bytes:
        parts["adapters_gib"] = adapters_bytes
    parts["kv_gib"] = m.kv_bytes - m.source_kv_bytes
    if m.source_kv_bytes:
        parts["source_kv_gib"] = m.source_kv_bytes
    parts |= {"activations_gib": m.activations_bytes, "overhead_gib": m.overhead_bytes, "free_gib": m.free_bytes}
    return Memory(**{name: rounded(size / GIB) for name, size in parts.items()})


def simulation(workload: Workload, s: Scored) -> Simulation:
    v = s.verified
    return Simulation(
        requests=v.requests,
        seed=v.seed,
        requests_per_s=rounded(workload.requests_per_s_peak),
        arrival_cv=number(workload.arrival_cv) if contents.arrives_at_a_rate(workload) else None,
        ttft_standard_error_ms=number(v.ttft_standard_error_s * 1e3),
        tpot_standard_error_ms=number(v.tpot_standard_error_s * 1e3),
        unserved_requests=v.rejected_requests,
    )


def batch_run(question: Question, s: Scored) -> Batch | None:
    """One run; usd_per_hour of its option is then over all hours, since rented machines are released after it."""
    workload = question.workload
    if not workload.kind.has_deadline or workload.deadline_s is None:
        return None
    requests = workload.requests_per_s_peak * workload.deadline_s
    every_s = requests / workload.requests_per_s_mean
    repeats = every_s < workload.horizon_months * HOURS_PER_MONTH * 3600 * (1 - 1e-9)
    return Batch(
        requests=round(requests),
        run_hours=number(s.verified.late_fraction * workload.deadline_s / 3600),
        start_hours=number(workload.cold_start_s / 3600),
        deadline_hours=number(workload.deadline_s / 3600),
        every_hours=number(every_s / 3600) if repeats else None,
        usd_per_run=number(s.usd_per_hour * every_s / 3600),
        given_back=s.offer.term in BY_THE_HOUR,
        spot_lost_fraction=number(question.catalog.assumptions.spot_lost_fraction) if on_spot(s) else None,
        spot_wait_hours=number(question.catalog.assumptions.spot_wait_s / 3600) if on_spot(s) else None,
    )


def embedding_figures(result: Option | Estimate, tokens_per_s: float | None, watts: float | None) -> Json:
    """Fields of an Option or Estimate that returns vectors: tokens are those read, TTFT is its only latency."""
    joules = watts / tokens_per_s if watts and tokens_per_s else None
    absent = {name: None for name in EMBEDDING.absent_figures if name in type(result).model_fields}
    return absent | {
        "latency_ms": result.ttft_ms,
        "tpot_ms": Percentiles(mean=None, p50=None, p95=None, p99=None),
        "sequences_per_s": result.requests_per_s,
        "input_tokens_per_s": tokens_per_s,
        "input_tokens_per_s_per_accelerator": tokens_per_s / result.accelerator_count if tokens_per_s else None,
        "total_tokens_per_s": tokens_per_s,
        "joules_per_input_token": joules,
    }


def token_costs(
    usd_per_hour: float,
    tokens_per_s: Mapping[str, float],
    prefill_share: float,
    hit_fraction: float = 0.0,
    cached_share: float = 0.0,
) -> dict[str, float]:
    """USD per million input, cached input, output and blended tokens.

    Cached input pays for its share of the memory; the rest of the bill is split by the time each phase takes: computed
    input pays for prefill, output for decode. Input is cached and computed input together.
    """
    cached, rest = usd_per_hour * cached_share, usd_per_hour * (1.0 - cached_share)

    def each(usd: float, tokens: float) -> float:
        return float(usd_per_mtok(np.array(usd), tokens))

    return {
        "input": each(cached + rest * prefill_share, tokens_per_s["input"]),
        "cached": each(cached, tokens_per_s["input"] * hit_fraction) if hit_fraction else 0.0,
        "output": each(rest * (1 - prefill_share), tokens_per_s["output"]),
        "blended": each(usd_per_hour, tokens_per_s["input"] + tokens_per_s["output"]),
    }


def used_fraction(workload: Workload, s: Scored) -> float:
    """Tokens served / tokens that could be served in the paid hours. Cost at capacity = cost x this fraction."""
    used = s.utilisation_fraction
    if workload.kind.released_after_run and s.offer.term in BY_THE_HOUR:
        used /= min(used + started_fraction(workload), 1.0) if used else 1.0
    if workload.forecast and s.planned is not None:
        plan = s.planned.plan
        present = plan.prices.present(np.arange(1, plan.prices.months + 1))
        needed = float(plan.demand.needed @ present / present.sum())
        used *= bill.traffic_ratio(workload) * s.instances / needed if needed else 1.0
    return min(used, 1.0)


def ledgers(question: Question, outcome: SearchResult, s: Scored) -> tuple[list[Line], list[Line], float]:
    """Operators of one prefill and one decode step at the load, and prefill's share of a request's time."""
    workload = question.workload
    assert outcome.built is not None and outcome.table is not None
    running, row = max(s.verified.running_requests_mean, 1.0), int(outcome.table.plain_row[s.row_index])
    prefill = prefill_ledger(question.catalog.model, outcome.built, row, prompt_tokens(workload))
    if not workload.kind.generates_tokens:
        return prefill, [], 1.0
    decode = decode_ledger(question.catalog.model, outcome.built, row, running, context_tokens(workload))
    return prefill, decode, prefill_fraction(workload, outcome.built, s.row_index, running)


def bound_of(steps: Sequence[Operator]) -> str:
    """What limits a decode step for the longest time; without decoding, a prefill step."""
    phase = "decode" if any(line.phase == "decode" for line in steps) else "prefill"
    return tuning.longest_wait((line.bound, line.time_s or 0.0) for line in steps if line.phase == phase)


def operator(line: Line) -> Operator:
    return Operator(
        phase=line.phase,
        operator=line.operator,
        time_s=number(line.time_s),
        flops=number(line.flops),
        bytes=number(line.bytes),
        bound=line.bound,
    )


# --- the host ---------------------------------------------------------------------------------------------------


def host_section(catalog: Catalog, s: Scored) -> Host | None:
    """The host section; None without figures."""
    h = s.offer.host
    if h is None:
        return None
    section = Host(
        memory_gib=number(h.memory_bytes / GIB) or 0.0,
        cores=h.cores,
        sockets=h.sockets,
        numa_nodes=h.numa_nodes,
        local_disk_gb=number(h.local_disk_bytes / GB) or 0.0,
        network_gbit_per_s=number(h.network_bytes_per_s / GBIT) or 0.0,
        assumed=[HOST_FIELDS.get(name, name) for name in h.assumed],
        source=h.source,
    )
    return section if catalog.weight_store is None else section.changed(**weights_fields(catalog.weight_store, h, s))


def weights_fields(store: WeightStore, h: HostOfOffer, s: Scored) -> dict[str, object]:
    """The fields on where the weights are kept."""
    stored_bytes = checkpoint_bytes(s)
    on_volume = store.keeps_on_volume(h, stored_bytes)
    usd = store.volume_usd_per_month(h, stored_bytes) * s.instances
    return {
        "checkpoint_gb": number(stored_bytes / GB),
        "weights_on": "network volume" if on_volume else "local disk",
        "volume_usd_per_month": number(usd) if on_volume else None,
        "download_s": number(store.download_s(h, stored_bytes)),
    }


def checkpoint_bytes(s: Scored) -> float:
    """Weights of one replica, bytes: an instance keeps one copy for all its replicas."""
    c = s.lane.choice
    return s.memory.weights_bytes * c.tp * c.pp * c.dp


def host_warnings(question: Question, s: Scored) -> list[str]:
    """What to know about disk and start-up time before signing."""
    h, store = s.offer.host, question.catalog.weight_store
    if h is None or store is None:
        return []
    lines, size_gb = [], checkpoint_bytes(s) / GB
    if store.keeps_on_volume(h, checkpoint_bytes(s)) and h.local_disk_bytes:
        disk_gb = h.local_disk_bytes / GB
        lines.append(
            f"the weights ({size_gb:,.0f} GB) do not fit on the instance's local disk ({disk_gb:,.0f} GB): "
            "attach a network volume"
        )
    download_s = store.download_s(h, checkpoint_bytes(s))
    if download_s > question.workload.cold_start_s > 0 and s.paid_fraction < 1.0:
        lines.append(
            f"downloading the weights takes about {download_s:,.0f} s, longer than the "
            f"{question.workload.cold_start_s:,.0f} s that are billed for starting an instance: keep them on a volume, "
            "or set tco.cold-start-s"
        )
    return lines
