"""One fixed deployment: its arguments in, an Estimate out. The command and the API share it."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from advisor.answer.options.calibration_marks import measured_correction
from advisor.answer.options.option import bound_of, embedding_figures, operator, setup, token_costs
from advisor.answer.options.tuning import draft_section
from advisor.answer.sentences import UNMEASURED
from advisor.engine import ENGINE_VERSION
from advisor.engine.cost import HOURS_PER_MONTH, JOULES_PER_KWH, Assumptions, Draw, watts_per_chip
from advisor.engine.estimate import Estimate as Engine
from advisor.engine.estimate import (
    Means,
    Seen,
    Spread,
    estimate,
    means,
    means_on,
    prepare,
    prepared,
    queued_requests,
    vectors_on,
)
from advisor.engine.network import Model, active_parameters, parameters
from advisor.engine.scheduler import Response, response_of
from advisor.engine.search import (
    describe,
    factors_of,
    instances_needed,
    interval_ratios,
    latency_ranges,
    of_pools,
    offer_usd_per_hour,
)
from advisor.engine.step import (
    NO_CACHE_TOKENS,
    Lane,
    Lanes,
    adapter_bytes,
    decode_ledger,
    lanes,
    prefill_ledger,
    step_fractions,
)
from advisor.engine.terms import (
    Accelerator,
    Case,
    Offer,
    Pool,
    Protocol,
    Ratios,
    Scopes,
    SocketShare,
    efficiency,
    with_host_factor,
)
from advisor.fidelity import nearest_rows
from advisor.inputs import (
    assumed_burstiness,
    corrections,
    host_speed_range,
    market,
    number,
    resources_with,
    rounded,
    usual_host_watts,
    with_model,
)
from advisor.result import ClosedForm, Disaggregated, Estimate, Intervals, Latency, Memory, Operator
from advisor.result import Pool as PoolSection
from advisor.workload import Deployment, Fixed, WorkloadError, deployment, error
from catalog.models import Organisation

GIB = 2.0**30
HOST_MATTERS_FRACTION = 0.1  # of output tokens/s, lost on the slowest host that estimates allow for
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


def answer(d: Deployment, organisation: Organisation | None = None) -> Estimate:
    """The estimate with the catalog that an organization sees.

    `fits` false: it cannot be loaded, and `smallest_change` says what would help.

    Raises WorkloadError where the arguments name something unknown or contradict each other.
    """
    fixed, cv_range = fixed_of(d, organisation)
    result = answer_of(fixed, cv_range)
    if result.fits and not d.host_speed_ratio:
        result = result.changed(warnings=[*result.warnings, *host_warning(fixed, result)])
    sizes = float(parameters(fixed.model)), float(active_parameters(fixed.model))
    asked = nearest_rows.asked_for(result, fixed.case.model_id, sizes, result.isl, fixed.case.osl)
    return result.changed(evidence=nearest_rows.evidence(asked))


def fixed_of(d: Deployment, organisation: Organisation | None, corrected: bool = True) -> tuple[Fixed, Ratios | None]:
    """(the deployment on this catalog, range of the burstiness of its arrivals if that is assumed).

    corrected: by measurements, unless the deployment leaves them out.

    Raises WorkloadError where the arguments name something unknown or contradict each other.
    """
    model_id, known = resources_with(d.model, organisation)
    if d.host_speed_ratio:
        known = replace(known, scopes=with_host_factor(known.scopes, d.host_speed_ratio, everywhere=True))
    if isinstance(d.model, str):
        d = d.model_copy(update={"model": model_id})
    if d.speculative and d.speculative.draft:
        name, known = with_model(known, d.speculative.draft, organisation)
        d = d.model_copy(update={"speculative": d.speculative.model_copy(update={"draft": name})})
    cv_range = None
    if d.rate is not None and d.burstiness is None:
        cv, cv_range = assumed_burstiness(d.task)
        d = d.model_copy(update={"burstiness": cv})
    fixed = deployment.fixed(d, known)
    if d.use_measurements and corrected:  # last, because most of what is refused never needs them
        fixed = with_scopes(fixed, corrections_of(fixed, float(d.isl), float(d.osl)))
    return fixed, cv_range


def corrections_of(fixed: Fixed, isl: float, osl: float) -> Scopes:
    """Of this deployment's model on its chip, as measured at such lengths."""
    return corrections(fixed.resources, fixed.case.model_id, fixed.accelerator.slug, isl, osl)


def with_scopes(fixed: Fixed, own: Scopes) -> Fixed:
    return replace(fixed, resources=replace(fixed.resources, scopes={**fixed.resources.scopes, **own}))


def answer_of(fixed: Fixed, cv_range: Ratios | None = None) -> Estimate:
    """cv_range: of the burstiness of arrivals, where it is assumed."""
    own = prepare(fixed.case, fixed.resources)
    if isinstance(own, str):
        raise WorkloadError([error("", own)])
    built = Built(fixed=fixed, own=own, lanes=lanes(fixed.model, own))
    if fixed.case.mode == "disagg" and not fixed.case.concurrency:
        return answer_of(replace(fixed, case=at_full_concurrency(built)), cv_range)
    result = configuration(built)
    if not built.fits:
        return result.changed(smallest_change=changes(fixed))
    seen = estimate(fixed.case, fixed.resources)
    if seen.problem:
        raise WorkloadError([error("", seen.problem)])
    if seen.seen is not None and fixed.case.has_arrivals:
        at_once = in_flight(built, seen.seen)
        result = result.changed(concurrency=at_once, memory=memory(built, at_once))
    ledger, prefill_share = steps(built, result.concurrency)
    result = result.changed(**figures(built, seen), step=ledger, bound=bound_of(ledger))
    busy = seen.seen.busy_fraction if seen.seen else 1.0
    result = result.changed(**costs(built, result, prefill_share, busy), closed_form=closed_form(built))
    result = result.changed(interval=interval(built, result, response(fixed, cv_range)))
    if built.fixed.model.encoder_only:
        result = embedding(result)
    return result.changed(warnings=[*result.warnings, *warnings(built, result)])


# --- what it is -------------------------------------------------------------------------------------------------


def configuration(built: Built) -> Estimate:
    """The deployment and its memory; figures follow where it fits."""
    fixed, lane = built.fixed, built.own[-1]
    case, pool = fixed.case, fixed.pools[-1]
    replicas = f"{pool.replicas} replicas" if pool.replicas > 1 else "1 replica"
    prefill = "" if case.mode == "agg" else f", prefill on {fixed.pools[0].chips} of them"
    return Estimate(
        label=f"{case.chips} x {fixed.accelerator.name}, {describe(lane)}, {replicas}{prefill}",
        model=case.model_id,
        accelerator=fixed.accelerator.slug,
        accelerator_name=fixed.accelerator.name,
        accelerator_count=case.chips,
        **setup(lane),
        moe_tp=pool.moe_tp,
        replicas=pool.replicas,
        concurrency=running(built),
        max_batched_tokens=lane.max_batched_tokens,
        speculative=draft_section(lane.draft, fixed.model) if lane.draft else None,
        disaggregated=None if case.mode == "agg" else disaggregated(built),
        isl=case.source_tokens or case.isl,
        osl=case.osl,
        client=case.client.kind,
        seats=case.max_batch or pool.max_batch or lane.framework.max_running_requests,
        rate=number(case.client.rate_per_s) if case.client.rate_per_s else None,
        burstiness=case.client.arrival_cv if case.client.rate_per_s else None,
        client_note=client_note(case),
        memory=memory(built, running(built)),
        fits=built.fits,
        **cache_sizes(lane, built.lanes, len(built.own) - 1, pool),
        warnings=list(fixed.doubts),
        basis=basis(built),
        correction=measured_correction(built.own[-1].choice, interval_of(built).get("tpot")),
        engine_version=ENGINE_VERSION,
    )


def client_note(case: Case) -> str:
    """What the client does, in words: TTFT means little without it."""
    client, users = case.client, f"{case.concurrency:,.0f}" if case.concurrency else "as many as fit"
    low, high = client.length_low_fraction, client.length_high_fraction
    lengths = "" if low == high == 1 else f"; lengths are {low:g} to {high:g} of those stated"
    if client.kind == "trace":
        return f"the recorded requests, at their own times{lengths}"
    if client.kind == "users":
        return f"users who send a request, wait for the answer and think{lengths}"
    if client.kind == "poisson":
        cv = client.arrival_cv
        bursts = f" in bursts (coefficient of variation of the gaps {cv:g})" if cv > 1 else " at random"
        return f"requests arrive{bursts}, {client.rate_per_s:g} per second{lengths}"
    if client.kind == "burst":
        rounds = f"{users} users start at once and send {client.requests_per_user:g} requests each"
        return f"{rounds}; TTFT includes the opening burst{lengths}"
    if client.kind == "static":
        return f"one batch of {users} requests{lengths}"
    return f"{users} requests in flight all the time, measured after the ramp-up; TTFT has no opening burst{lengths}"


def disaggregated(built: Built) -> Disaggregated:
    prefill, decode = built.fixed.pools
    moved = float(built.lanes.memory.kv_bytes_per_sequence[0]) * built.fixed.case.isl / built.own[0].context_tokens
    links = built.fixed.accelerator.links
    return Disaggregated(
        prefill=pool_section(prefill),
        decode=pool_section(decode),
        kv_transfer_s=number(moved / links[-1].bytes_per_s) if links else None,
    )


def pool_section(p: Pool) -> PoolSection:
    return PoolSection(replicas=p.replicas, tp=p.tp, pp=p.pp, ep=p.ep, dp=p.dp, moe_tp=p.moe_tp)


def running(built: Built) -> int:
    """Requests in flight per replica: as given, or as many as fit."""
    case, lane, pool = built.fixed.case, built.own[-1], built.fixed.pools[-1]
    if case.concurrency:
        return max(math.ceil(case.concurrency / pool.replicas), 1)
    return queued_requests(case, lane, built.lanes, len(built.own) - 1) * pool.pp * pool.dp


def in_flight(built: Built, seen: Seen) -> int:
    """Requests in flight per replica under arrivals, on average."""
    pool = built.fixed.pools[-1]
    return max(math.ceil(seen.running_mean * pool.pp * pool.dp), 1)


def memory(built: Built, at_once: int) -> Memory:
    """GiB per chip of one replica with these requests in flight (of the decode pool, where there are two)."""
    i = len(built.own) - 1
    return Memory(**memory_gib(built.fixed.model, built.lanes, i, built.fixed.pools[-1], at_once))


def memory_gib(model: Model, built: Lanes, i: int, pool: Pool, at_once: int) -> dict[str, float]:
    """GiB per chip by part of lane i with these requests in flight in its replica."""
    room = built.memory
    each, left = float(room.kv_bytes_per_sequence[i]), float(room.kv_bytes[i])
    held = min(max(at_once / pool.dp, 1.0) * each, max(left, 0.0)) if left >= room.least_kv_bytes[i] else each
    source = held * float(room.source_bytes_per_sequence[i]) / each if each else 0.0
    adapters = float(adapter_bytes(model, built.layouts)[i]) * model.adapters.active if model.adapters else 0.0
    parts = {
        "weights_gib": float(room.weights_bytes[i]) - adapters,
        **({"adapters_gib": adapters} if adapters else {}),
        "kv_gib": held - source,
        **({"source_kv_gib": source} if source else {}),
        "activations_gib": float(room.activations_bytes[i]),
        "overhead_gib": float(room.overhead_bytes[i]),
        "free_gib": left - held,
    }
    return {name: rounded(size / GIB) for name, size in parts.items()}


def cache_sizes(lane: Lane, built: Lanes, i: int, pool: Pool) -> Json:
    """The cache of lane i and of its replica."""
    room = built.memory
    source = float(room.source_bytes_per_sequence[i])
    per_token = (float(room.kv_bytes_per_sequence[i]) - source) / lane.context_tokens
    capacity = float(room.kv_capacity_tokens[i])
    return {
        "usable_gib": number(float(room.usable_bytes[i]) / GIB),
        "kv_bytes_per_token": number(per_token),
        "source_kv_bytes_per_sequence": number(source),
        "kv_capacity_tokens": None if capacity >= NO_CACHE_TOKENS else number(capacity * pool.pp * pool.dp),
    }


# --- what it does -----------------------------------------------------------------------------------------------


def figures(built: Built, seen: Engine) -> Json:
    """Latency and throughput of the whole deployment."""
    chips = built.fixed.case.chips

    def latency_ms(name: str) -> Latency:
        spread = getattr(seen.seen, name) if seen.seen else None
        mean, *tails = (number(getattr(seen, f"{name}_{k}_s") * 1e3) for k in ("mean", "p50", "p95", "p99"))
        if spread is None:
            return Latency(mean=mean, p50=tails[0], p95=tails[1], p99=tails[2])
        return latency(spread)

    return {
        "ttft_ms": latency_ms("ttft"),
        "tpot_ms": latency_ms("tpot"),
        "e2e_ms_mean": number(seen.e2e_s * 1e3),
        **(served(built, seen.seen) if seen.seen else {}),
        "output_tokens_per_s": number(seen.output_tokens_per_s),
        "output_tokens_per_s_per_accelerator": number(seen.output_tokens_per_s / chips),
        "total_tokens_per_s": number(total_tokens_per_s(built.fixed.case, seen, built.fixed.model.encoder_only)),
        "requests_per_s": number(seen.requests_per_s),
    }


def latency(s: Spread) -> Latency:
    """In ms, with the bounds that chance in the drawn requests leaves."""
    mean, p50, p90, p95, p99, *bounds = (
        number(value * 1e3) for value in (s.mean_s, s.p50_s, s.p90_s, s.p95_s, s.p99_s, *s.p95_bounds_s)
    )
    return Latency(mean=mean, p50=p50, p90=p90, p95=p95, p99=p99, p95_bounds=bounds)


def served(built: Built, seen: Seen) -> Json:
    """What a server's own metrics show: end-to-end times and how busy it is."""
    pool = built.fixed.pools[-1]
    return {
        "e2e_ms": latency(seen.e2e),
        "queue_ms": latency(seen.queue),
        "running_requests_mean": number(seen.running_mean * pool.pp * pool.dp * pool.replicas),
        "busy_fraction": number(seen.busy_fraction),
        "preemptions": seen.preemptions,
        "simulated_requests": seen.requests,
        "rejected_requests": seen.rejected_requests,
    }


def embedding(result: Estimate) -> Estimate:
    """The same for an embedding model: its tokens are those read, its one latency is the time to the vector."""
    tokens_per_s, output = result.total_tokens_per_s, result.output_tokens_per_s
    ratio = output / tokens_per_s if output and tokens_per_s else math.nan
    ranges = result.interval or Intervals()
    spread: dict[str, list[float | None]] = {}
    if ranges.ttft_ms is not None:
        spread["latency_ms"] = ranges.ttft_ms
    if ranges.output_tokens_per_s is not None:
        spread["input_tokens_per_s"] = [number((v or math.nan) / ratio) for v in ranges.output_tokens_per_s]
    return result.changed(
        **embedding_figures(result, tokens_per_s, result.watts)
        | {"tpot_ms": Latency(mean=None, p50=None, p95=None, p99=None)},
        kgco2e_per_mtok=number((result.kgco2e_per_mtok or math.nan) * ratio),
        interval=Intervals(**spread),
    )


def total_tokens_per_s(case: Case, seen: Engine, vectors_only: bool) -> float:
    if math.isfinite(seen.total_tokens_per_s):
        return seen.total_tokens_per_s - (seen.requests_per_s if vectors_only else 0.0)
    mean = (case.client.length_low_fraction + case.client.length_high_fraction) / 2
    return seen.output_tokens_per_s + seen.requests_per_s * case.isl * mean


def steps(built: Built, concurrency: int) -> tuple[list[Operator], float]:
    """The ledger of one prefill and one decode step, and the share of a request's time on the chips that is prefill."""
    case, last = built.fixed.case, len(built.own) - 1
    if built.fixed.model.encoder_only:
        return [operator(line) for line in prefill_ledger(built.fixed.model, built.lanes, 0, case.isl)], 1.0
    at_once = together(built, concurrency)
    prefill = prefill_ledger(built.fixed.model, built.lanes, 0, case.isl)
    decode = decode_ledger(built.fixed.model, built.lanes, last, at_once, case.isl + case.osl / 2)
    prefill_s = sum(line.time_s for line in prefill)
    decode_s = sum(line.time_s for line in decode) * case.osl / at_once
    return [operator(line) for line in (*prefill, *decode)], prefill_s / (prefill_s + decode_s)


def together(built: Built, concurrency: int) -> float:
    """Requests that share a decode step of one lane."""
    case, pool, last = built.fixed.case, built.fixed.pools[-1], len(built.own) - 1
    at_once = max(min(concurrency / (pool.pp * pool.dp), built.own[-1].max_running_requests), 1.0)
    return min(at_once, max(float(built.lanes.times.kv_capacity_tokens[last]) // (case.isl + case.osl), 1.0))


def closed_form(built: Built) -> ClosedForm | None:
    """The search's formulas for this deployment, beside the simulation; None where there are none."""
    fixed = built.fixed
    if not has_closed_form(fixed):
        return None
    compute = vectors_on if fixed.model.encoder_only else means_on
    if fixed.model.encoder_only or fixed.case.has_arrivals:
        return ClosedForm(**formulas(fixed, compute([fixed.case], built.own, built.lanes)[0]))
    these = prepared([fixed.case if fixed.case.concurrency else at_full_concurrency(built)], fixed.resources)
    return ClosedForm(**formulas(fixed, means(these, fixed.resources, fixed.resources.scopes)[0]))


def has_closed_form(fixed: Fixed) -> bool:
    return fixed.model.encoder_only or fixed.case.mode == "agg" and fixed.case.client.kind not in ("trace", "users")


def formulas(fixed: Fixed, m: Means) -> Json:
    """Fields of a ClosedForm: those that this kind of model and client has."""
    capacity = {"capacity_requests_per_s": number(m.capacity_requests_per_s)}
    if fixed.model.encoder_only:
        return capacity
    found = {
        "ttft_ms_mean": number(m.ttft_mean_s * 1e3),
        "tpot_ms_mean": number(m.tpot_mean_s * 1e3),
        "output_tokens_per_s": number(m.output_tokens_per_s),
    }
    if not fixed.case.has_arrivals:
        return found
    return {**found, "ttft_ms_p95": number(m.ttft_p95_s * 1e3), "tpot_ms_p95": number(m.tpot_p95_s * 1e3), **capacity}


def at_full_concurrency(built: Built) -> Case:
    return replace(built.fixed.case, concurrency=float(running(built) * built.fixed.pools[-1].replicas))


# --- what it costs ----------------------------------------------------------------------------------------------


def costs(built: Built, result: Estimate, prefill_share: float, busy_fraction: float) -> Json:
    """Fields of the cheapest current offer that can hold it, and its power under this load."""
    _, a = market(built.fixed.accelerator)
    span_fraction = mean_power_fraction(built, a, result.concurrency, prefill_share) * busy_fraction
    found = cheapest(built.fixed.accelerator, built.fixed.pools, result.memory.parts())
    if found is None:
        return power(built, a, None, span_fraction, result) | price(None)
    usd, offer = found
    output = 0.0 if built.fixed.model.encoder_only else result.output_tokens_per_s or 0.0
    tokens_per_s = {"input": (result.total_tokens_per_s or 0.0) - output, "output": output}
    by_token = token_costs(usd, tokens_per_s, prefill_share)
    by_name = {f"usd_per_mtok_{name}": number(value) for name, value in by_token.items() if name != "cached"}
    return power(built, a, offer, span_fraction, result) | price(found) | by_name


def cheapest(chip: Accelerator, pools: tuple[Pool, ...], memory_gib: dict[str, float]) -> tuple[float, Offer] | None:
    """(USD per hour, offer) of the cheapest current offer that holds these pools."""
    used_gib = sum(gib for name, gib in memory_gib.items() if name != "free_gib")
    holding = [o for o in market(chip)[0] if o.share is None or holds(o.share, used_gib * GIB)]
    priced = [(usd, o) for o in holding if (usd := usd_per_hour(pools, o)) is not None]
    return min(priced, key=lambda each: each[0]) if priced else None


def price(found: tuple[float, Offer] | None) -> Json:
    """Fields of the offer."""
    if found is None:
        return {"usd_per_hour": None, "price_as_of": None, "price_source": None}
    usd, offer = found
    return {
        "provider": offer.provider,
        "instance": offer.instance,
        "region": offer.region,
        "acquisition": offer.acquisition,
        "price_as_of": offer.as_of,
        "price_source": offer.source,
        "usd_per_hour": number(usd),
        "usd_per_month": number(usd * HOURS_PER_MONTH),
    }


def holds(share: SocketShare, used_bytes: float) -> bool:
    """Whether a whole socket is rented, with enough memory: an estimate of a processor is of whole sockets."""
    return share.fraction == 1.0 and share.memory_bytes >= used_bytes


def usd_per_hour(pools: tuple[Pool, ...], offer: Offer) -> float | None:
    """Whole instances of one offer for every pool; None: a stage does not fit into one."""
    if any(p.tp * p.dp > offer.accelerators for p in pools):
        return None
    counts = (instances_needed(np.array(float(p.replicas)), p.chips_per_replica, offer.accelerators) for p in pools)
    return float(offer_usd_per_hour(offer, float(sum(counts))))


def mean_power_fraction(built: Built, a: Assumptions, concurrency: int, prefill_share: float) -> float:
    """Mean share of (limit - idle) of a chip that is never without work, its phases by their time."""
    case, last = built.fixed.case, len(built.own) - 1
    model, at_once, chip = built.fixed.model, together(built, concurrency), built.fixed.accelerator
    draw = Draw.of(a, chip.watts, chip.idle_watts)
    first, later = step_fractions(draw, model, built.lanes, last, case.isl, at_once, case.isl + case.osl / 2)
    return prefill_share * first + (1.0 - prefill_share) * later


def power(built: Built, a: Assumptions, offer: Offer | None, span_fraction: float, result: Estimate) -> Json:
    """Mean power with all chips at this share of (limit - idle): of one chip, of its host, and with the building."""
    chip, share = built.fixed.accelerator, offer.host_watts_per_accelerator if offer else None
    host = usual_host_watts(chip, a) if share is None else share
    limit, idle, span = np.array(chip.watts), np.array(chip.idle_watts), np.array(span_fraction)
    each = float(watts_per_chip(limit, idle, span, a, np.array(0.0)))
    pue = offer.pue if offer else a.pue
    watts = (each + host) * built.fixed.case.chips * pue
    joules = watts / result.output_tokens_per_s if result.output_tokens_per_s else math.nan
    grid = offer.kgco2e_per_kwh if offer else None
    return {
        "watts": number(watts),
        "accelerator_watts": number(each),
        "host_watts_per_accelerator": number(host),
        "pue": number(pue),
        "joules_per_output_token": number(joules),
        "kgco2e_per_mtok": number(joules * 1e6 / JOULES_PER_KWH * grid) if grid else None,
    }


# --- uncertainty and warnings -----------------------------------------------------------------------------------


def interval_of(built: Built) -> dict[str, tuple[float, float]]:
    """90 % interval as factors on each metric."""
    return interval_ratios(built.fixed.resources.scopes, basis(built), built.own[-1].choice)


def interval(built: Built, result: Estimate, load: Response | None) -> Intervals:
    """[low, high] of each headline figure at 90 %; latencies as in answers, with their response to the load."""
    half = interval_of(built)
    drawn = factors_of(built.fixed.resources.scopes, built.own[-1])
    drawn = of_pools(drawn) if built.fixed.case.mode == "disagg" else drawn
    if drawn is not None:
        half |= latency_ranges(drawn, load)
    ranges: dict[str, list[float | None]] = {}
    for key, latency in (("ttft", result.ttft_ms), ("tpot", result.tpot_ms)):
        for name, value, known in (
            ("", latency and latency.mean, key),
            ("_p95", latency and latency.p95, f"{key}_p95"),
        ):
            if value and known in half:
                ranges[f"{key}_ms{name}"] = [number(value * f) for f in half[known]]
    if "throughput" in half:
        low, high = half["throughput"]
        ranges["output_tokens_per_s"] = [number((result.output_tokens_per_s or math.nan) * f) for f in (low, high)]
        if usd := result.usd_per_mtok_output:
            ranges["usd_per_mtok_output"] = [number(usd / high), number(usd / low)]
    return Intervals(**ranges)


def response(fixed: Fixed, cv_range: Ratios | None) -> Response | None:
    """How the latencies answer to the load; None in a closed loop, whose load does not depend on the steps."""
    if not fixed.case.has_arrivals:
        return None

    def of(client: Protocol) -> Engine:
        return estimate(replace(fixed.case, client=client), fixed.resources)

    client = fixed.case.client
    burstier = of(replace(client, arrival_cv=cv_range[1])) if cv_range else None
    figures = ("ttft_mean_s", "ttft_p95_s", "tpot_mean_s", "tpot_p95_s")
    return response_of(lambda load: of(at_load(client, load)), figures, burstier)


def at_load(client: Protocol, load: float) -> Protocol:
    """The same requests, `load` times as fast; users think for a shorter time."""
    if client.trace is not None:
        sooner = tuple(each / load for each in client.trace.arrival_s)
        return replace(client, trace=replace(client.trace, arrival_s=sooner))
    if client.users is not None:
        return replace(client, users=replace(client.users, think_s=client.users.think_s / load))
    return replace(client, rate_per_s=(client.rate_per_s or 0.0) * load)


def basis(built: Built) -> str:
    return built.own[-1].choice.efficiency.basis


def warnings(built: Built, result: Estimate) -> list[str]:
    case, i = built.fixed.case, len(built.own) - 1
    pending = queued_requests(replace(case, concurrency=None), built.own[i], built.lanes, i)
    seats = pending * case.chips // built.own[i].choice.tp
    capacity = result.closed_form.capacity_requests_per_s if result.closed_form else None
    return [*load_warnings(case, seats, capacity or 0.0), *basis_warning(basis(built))]


def load_warnings(case: Case, seats: int, capacity_requests_per_s: float) -> list[str]:
    """Requests that wait, because so many run at once or so many are served in a second."""
    if case.mode != "agg":
        return []
    lines = []
    if case.concurrency and case.concurrency > seats:
        lines.append(
            f"only about {seats:,} of {case.concurrency:,.0f} requests run at once; the rest wait in the queue"
        )
    if case.client.rate_per_s and capacity_requests_per_s < case.client.rate_per_s:
        lines.append(f"{case.client.rate_per_s:g} requests/s exceed the capacity: the queue grows without limit")
    return lines


def basis_warning(name: str) -> list[str]:
    return [] if name == "measured" else [UNMEASURED.get(name, UNMEASURED["datasheet"])]


def host_warning(fixed: Fixed, result: Estimate) -> list[str]:
    """How far output tokens/s depend on the host, if its speed is assumed and matters; by the closed form."""
    case, slug, ends = fixed.case, fixed.accelerator.slug, host_speed_range()
    measured = "host_factor" in fixed.resources.scopes.get(f"accelerator:{slug}", {})
    closed = result.closed_form
    if measured or ends is None or case.mode != "agg" or case.client.rate_per_s or not case.concurrency:
        return []
    if closed is None or not closed.output_tokens_per_s or not result.output_tokens_per_s:
        return []
    now = efficiency(fixed.resources.scopes, slug, fixed.accelerator.family, fixed.accelerator.kind).host_factor
    rates = []
    for end in ends:
        scopes = with_host_factor(fixed.resources.scopes, now * end)
        resources = replace(fixed.resources, scopes=scopes)
        formula = means(prepared([case], resources), resources, scopes)[0]
        rates.append(formula.output_tokens_per_s / closed.output_tokens_per_s * result.output_tokens_per_s)
    if rates[1] > (1 - HOST_MATTERS_FRACTION) * result.output_tokens_per_s:
        return []
    fast, slow = (f"{rounded(rate, 2):,.0f} output tokens/s" for rate in rates)
    return [
        f"the host limits throughput: about {slow} on a host that needs {ends[1]:g} times the assumed time "
        f"(host-speed-ratio), and {fast} on one that needs {ends[0]:g} times; a launch probe measures yours"
    ]


def changes(fixed: Fixed) -> list[str]:
    """Single changes after which it fits, the smallest of each kind."""
    if fixed.case.pool is None:
        return ["a larger tp in the pool that does not fit"]
    smallest: dict[str, str] = {}
    for kind, value, case in alternatives(fixed.case, fixed.case.pool):
        own = prepare(case, fixed.resources) if kind not in smallest else ""
        if not isinstance(own, str) and lanes(fixed.model, own).memory.fits.all():
            smallest[kind] = f"{kind} {value}"
    return list(smallest.values()) or ["no single change: choose an accelerator with more memory"]


def alternatives(case: Case, pool: Pool) -> list[tuple[str, str, Case]]:
    """(argument, value, case) of changes to one argument, gentlest first."""
    cases = [("kv", "fp8", replace(case, kv_dtype="fp8"))] if case.kv_dtype != "fp8" else []
    cases.append(("max_batched_tokens", "2048", replace(case, max_batched_tokens=2048)))
    for size in (2, 4, 8, 16, 32):
        if size > pool.tp and size % pool.tp == 0:
            wider = replace(pool, tp=size, moe_tp=pool.moe_tp * size // pool.tp)
            cases.append(("tp", str(size), replace(case, pool=wider, chips=wider.chips)))
        if size > pool.pp:
            longer = replace(pool, pp=size)
            cases.append(("pp", str(size), replace(case, pool=longer, chips=longer.chips)))
    formats = [w for w in ("fp8", "int8", "int4", "nvfp4", "gguf-q4-k-m") if w != case.weights_dtype]
    return cases + [("weights", w, replace(case, weights_dtype=w)) for w in formats]
