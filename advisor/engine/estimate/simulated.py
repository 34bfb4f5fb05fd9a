"""Simulated estimates of fixed deployments, used by the `estimate` command, the scorecard and pages."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.engine.kernels import HALF, rate_of
from advisor.engine.network import Model
from advisor.engine.scheduler import (
    PoolLanes,
    Simulation,
    scheduler_of,
    simulate,
    simulate_pools,
    whole_users,
)
from advisor.engine.step import (
    BURST,
    MIXED,
    POISSON,
    STATIC,
    STEADY,
    TRACE,
    USERS,
    Acceptance,
    Choice,
    Client,
    Draft,
    Lane,
    Lanes,
    StepTimes,
    as_scheduled,
    defaults_on,
    draft_of,
    idle_s,
    lanes,
    mean_source_tokens,
    prefill_s,
    speculative_times,
    step_s,
    take,
    unsupported,
    weights_on,
    whole_prompts,
)
from advisor.engine.terms import (
    Accelerator,
    Case,
    Efficiency,
    Framework,
    Overhead,
    Pool,
    Protocol,
    Quantization,
    Scopes,
    at_or_below,
    correction,
    efficiency,
    overhead,
    release_key,
)

NAN = math.nan
Calibrations = dict[tuple[str, ...], tuple[Efficiency, Overhead]]  # by chip, framework and version
STATISTICS = ("mean", "p50", "p95", "p99")  # of TTFT and TPOT in an Estimate
SETTLING_ROUNDS = 2  # of a draft: what it costs depends on how many requests decode together
OPEN_LOOP_REQUESTS = 20_000
FEWEST_OPEN_REQUESTS = 2_000
OPEN_LOOP_TOKENS = 4e7  # of their answers: fewer requests of longer ones, so that an estimate takes seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class Resources:
    """The catalog rows that cases refer to, as engine values."""

    models: Mapping[str, Model]
    accelerators: Mapping[str, Accelerator]
    quantizations: tuple[Quantization, ...]
    frameworks: tuple[Framework, ...]
    scopes: Scopes
    acceptances: tuple[Acceptance, ...] = ()  # published rates of drafts


@dataclass(frozen=True, kw_only=True, slots=True)
class Spread:
    """A latency over all simulated requests."""

    mean_s: float
    p50_s: float
    p90_s: float
    p95_s: float
    p99_s: float
    p95_bounds_s: tuple[float, float]  # that chance in the drawn requests leaves


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """What a simulation of a lane shows beside the figures of an Estimate."""

    ttft: Spread
    tpot: Spread
    e2e: Spread
    queue: Spread  # until the first step that computes the request
    running_mean: float  # requests of one lane
    busy_fraction: float
    preemptions: int
    requests: int  # simulated and measured
    rejected_requests: int  # too long for the cache or the context


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """Figures of the whole deployment; NaN: not defined for this case. `problem`: why nothing was estimated."""

    ttft_mean_s: float = NAN
    ttft_p50_s: float = NAN
    ttft_p95_s: float = NAN
    ttft_p99_s: float = NAN
    tpot_mean_s: float = NAN
    tpot_p50_s: float = NAN
    tpot_p95_s: float = NAN
    tpot_p99_s: float = NAN
    itl_mean_s: float = NAN
    e2e_s: float = NAN
    output_tokens_per_s: float = NAN
    total_tokens_per_s: float = NAN
    prefill_tokens_per_s: float = NAN
    requests_per_s: float = NAN
    flops_per_s: float = NAN
    fits: float = NAN  # 1 or 0
    kv_capacity_tokens: float = NAN
    kv_bytes_per_token: float = NAN
    weights_bytes_per_chip: float = NAN
    peak_memory_bytes: float = NAN
    saturating: bool = False
    basis: str = "datasheet"
    problem: str = ""
    lane: Lane | None = None
    seen: Seen | None = None


def problem(text: str) -> Estimate:
    """An estimate without figures, with the reason."""
    return Estimate(problem=text)


def estimate(case: Case, resources: Resources, seed: int = 0) -> Estimate:
    """Estimate of one case."""
    return estimate_all([case], resources, seed)[0]


def estimate_all(cases: Sequence[Case], resources: Resources, seed: int = 0) -> list[Estimate]:
    """One estimate per case, in order; step times of all cases of a model are computed at once."""
    results: list[Estimate | None] = [None] * len(cases)
    groups: dict[str, list[tuple[int, Case, tuple[Lane, ...]]]] = defaultdict(list)
    for index, stated in enumerate(cases):
        case = of_decoder(stated, resources)
        prepared = prepare(case, resources)
        if isinstance(prepared, str):
            results[index] = problem(prepared)
        elif case.phase == "kernel":
            results[index] = _kernel(case, prepared[0])
        else:
            groups[case.model_id].append((index, case, prepared))
    for model_id, members in groups.items():
        built = lanes(resources.models[model_id], [lane for _, _, case_lanes in members for lane in case_lanes])
        start = 0
        for index, case, case_lanes in members:
            results[index] = _estimate(case, case_lanes, resources.models[model_id], built, start, seed)
            start += len(case_lanes)
    return [r if r is not None else problem("not estimated") for r in results]


def of_decoder(case: Case, resources: Resources) -> Case:
    """The case as the scheduler sees it, also for encoder-decoders and encoders."""
    model = resources.models.get(case.model_id)
    return case if model is None else as_scheduled(case, model)


def prepare(case: Case, resources: Resources, known: Calibrations | None = None) -> tuple[Lane, ...] | str:
    """The lanes of a case (one, or prefill and decode if disaggregated), or why it cannot be estimated.

    known: the calibration of chips and frameworks by these scopes, which is added to.
    """
    accelerator = resources.accelerators.get(case.accelerator_slug)
    if case.phase == "kernel":
        if accelerator is None:
            return f"no such accelerator: {case.accelerator_slug}"
        return (_kernel_lane(case, accelerator, resources),)
    model = resources.models.get(case.model_id)
    if model is None or accelerator is None:
        return f"not in the catalog: {case.model_id if model is None else case.accelerator_slug}"
    framework = _framework_of(case, resources)
    if framework is None:
        return f"no such framework: {case.framework}"
    if case.mode == "disagg" and (model.encoder_only or model.source_tokens):
        return "disaggregated serving is estimated only for decoder-only models"
    dtype = "fp8-block" if case.block_scaled and case.weights_dtype == "fp8" else case.weights_dtype
    quantization = quantization_for(dtype, accelerator, resources.quantizations, framework, model)
    if isinstance(quantization, str):
        return quantization
    pools = [case.prefill_pool, case.decode_pool] if case.mode == "disagg" else [case.pool]
    if case.layout_free:
        pools = [_free_pool(case, model, accelerator, framework, quantization, resources)]
    if any(p is None for p in pools):
        return "layout not stated"
    return tuple(_lane(case, p, accelerator, framework, quantization, resources, known) for p in pools if p is not None)


def _kernel_lane(case: Case, accelerator: Accelerator, resources: Resources) -> Lane:
    framework = resources.frameworks[0]
    quantization = quantization_for(case.weights_dtype, accelerator, resources.quantizations)
    chosen = quantization if isinstance(quantization, Quantization) else resources.quantizations[0]
    return _lane(case, Pool(), accelerator, framework, chosen, resources)


def _framework_of(case: Case, resources: Resources) -> Framework | None:
    """The framework of a run. Runs whose version is not stated are old ones: they have the oldest settings."""
    newest = find_framework(resources.frameworks, case.framework, case.framework_version)
    if newest is None or case.framework_version:
        return newest
    oldest = by_release([f for f in resources.frameworks if f.slug == case.framework])[0]
    return replace(oldest, version=newest.version)


def find_framework(frameworks: Sequence[Framework], slug: str, version: str) -> Framework | None:
    """The framework at this version, the newest if none is given; None if there is no such slug.

    A version that the catalog does not have gets the settings of the newest one below it, or else of the oldest.
    """
    versions = by_release([f for f in frameworks if f.slug == slug])
    if not versions or not version:
        return versions[-1] if versions else None
    below = at_or_below([f.version for f in versions], version)
    known = {f.version: f for f in versions}
    found = known.get(version) or (known[below[-1]] if below else versions[0])
    return replace(found, version=version)


def by_release(versions: Iterable[Framework]) -> list[Framework]:
    """Versions of one framework, oldest first."""
    return sorted(versions, key=lambda f: (release_key(f.version) or (), f.version))


def quantization_for(
    dtype: str,
    accelerator: Accelerator,
    known: Sequence[Quantization],
    framework: Framework | None = None,
    model: Model | None = None,
) -> Quantization | str:
    """The method of a checkpoint in this dtype, as the framework runs it on this chip, or why there is none.

    Without a documented method, the first one, weight-only if the chip cannot compute in it: a measured run shows that
    it works. `check_support` refuses such a deployment to users.
    """
    methods = methods_of_dtype(dtype, known, model)
    if not methods:
        return f"no quantization method for {dtype}"
    chosen = methods[0]
    if framework is not None and model is not None:
        run = weights_on(framework, accelerator, chosen, model)
        if isinstance(run, Quantization):
            return run
    if unsupported(accelerator, chosen) and rate_of(accelerator, "bf16"):
        return replace(chosen, activations_dtype="bf16", weight_only=True)
    return unsupported(accelerator, chosen) or chosen


def methods_of_dtype(dtype: str, known: Iterable[Quantization], model: Model | None = None) -> list[Quantization]:
    """The methods that store weights in this dtype; if it is a slug alone, only that.

    First the one that loads the model's published checkpoint, then the one with this slug.
    """
    methods = [q for q in known if dtype in (q.slug, q.weights_dtype)]
    published = model.published.format if model is not None and model.published is not None else ""
    return sorted(methods, key=lambda q: (q.slug != published, q.slug != dtype))


def default_kv_dtype(framework: Framework, weights_dtype: str) -> str:
    """The framework's default cache format; some use FP8 with FP8 and FP4 checkpoints."""
    return "fp8" if weights_dtype in framework.fp8_cache_weights else "bf16"


def _lane(
    case: Case,
    pool: Pool,
    accelerator: Accelerator,
    framework: Framework,
    quantization: Quantization,
    resources: Resources,
    known: Calibrations | None = None,
) -> Lane:
    framework = defaults_on(framework, accelerator)
    model = resources.models.get(case.model_id)
    if case.memory_fraction is not None:
        framework = replace(framework, memory_fraction=case.memory_fraction)
    chip, host = calibration(accelerator, framework, resources.scopes, {} if known is None else known)
    if pool is case.decode_pool:  # the factor is that of servers that also compute prompts: accuracy.md, "Two pools"
        host = replace(host, expert_factor=1.0)
    return Lane(
        choice=Choice(
            accelerator=accelerator,
            efficiency=chip,
            overhead=host,
            quantization=quantization,
            kv_dtype=case.kv_dtype or default_kv_dtype(framework, case.weights_dtype),
            tp=pool.tp,
            pp=pool.pp,
            ep=max(pool.ep, 1),
            dp=pool.dp,
            routing_evenness=case.routing_evenness,
            correction=correction(
                resources.scopes,
                accelerator.slug,
                framework.slug,
                framework.version,
                (case.weights_dtype, quantization.slug, quantization.weights_dtype),
                (pool.tp, pool.pp, max(pool.ep, 1), pool.dp),
            ),
        ),
        framework=framework,
        context_tokens=_context_tokens(case),
        max_batched_tokens=case.max_batched_tokens or pool.max_batched_tokens or framework.default_max_batched_tokens,
        max_running_requests=_most_running(case, pool, framework),
        source_tokens=mean_source_tokens(case, model) if model else 0.0,
        whole_prompts=model is not None and whole_prompts(model),
        http=case.client.http,
        draft=_draft(case, model, resources) if model else None,
        eager=case.eager,
    )


def calibration(
    a: Accelerator, framework: Framework, scopes: Scopes, known: Calibrations
) -> tuple[Efficiency, Overhead]:
    """What a chip and a framework on it achieve by these scopes, which `known` keeps."""
    key = (a.slug, framework.slug, framework.version)
    if key not in known:
        host = overhead(scopes, framework.slug, framework.version, a.family, a.kind, a.slug)
        known[key] = efficiency(scopes, a.slug, a.family, a.kind), host
    return known[key]


def at_numbers_of(case: Case, lane: Lane) -> Lane:
    """The lane of a decoder's case that differs in lengths and concurrency alone from that of the lane."""
    assert case.pool is not None
    running = _most_running(case, case.pool, lane.framework)
    return replace(lane, context_tokens=_context_tokens(case), max_running_requests=running)


def _context_tokens(case: Case) -> float:
    return max(case.isl + case.osl, 1.0)


def _most_running(case: Case, pool: Pool, framework: Framework) -> int:
    """Requests that a lane runs at once: the server's limit, or its share of those that there are."""
    cap = case.max_batch or pool.max_batch or framework.max_running_requests
    running = min(cap, math.ceil(case.concurrency / _lane_count(pool))) if case.concurrency else cap
    return max(int(running), 1)


def _draft(case: Case, model: Model, resources: Resources) -> Draft | None:
    """The draft of a stated deployment. Measured rows state no acceptance rate: `_aggregated` has that of their fit."""
    if case.speculative is None or case.acceptance_fraction is None:
        return None
    plain = Acceptance(method=case.speculative, task="any", accepted_fraction=0.0)
    rows = [a for a in resources.acceptances if a.method == case.speculative] or [plain]  # for their host times
    published = next((a for a in rows if a.accepted_fraction == case.acceptance_fraction), None)
    stated = published or replace(
        rows[0], accepted_fraction=case.acceptance_fraction, shown_tokens=0.0, low=None, high=None, source="stated"
    )
    return draft_of(model, stated, case.speculative_tokens or 1, resources.models.get(case.draft_model or ""))


def _lane_count(pool: Pool) -> int:
    return pool.replicas * pool.pp * pool.dp


def _free_pool(
    case: Case,
    model: Model,
    accelerator: Accelerator,
    framework: Framework,
    quantization: Quantization,
    resources: Resources,
) -> Pool | None:
    """The pool with the best offline throughput, for sources that do not state the layout; None if none fits."""
    sizes = [n for n in (1, 2, 4, 8, 16) if case.chips % n == 0 or n == case.chips]
    pools = [Pool(tp=n, replicas=case.chips // n) for n in sizes]
    if any(b.ffn is not None and b.ffn.experts > 1 for b in model.blocks):
        pools += [Pool(dp=n, ep=n, replicas=case.chips // n) for n in sizes if n > 1]
    free = replace(case, concurrency=None)
    built = lanes(model, [_lane(free, p, accelerator, framework, quantization, resources) for p in pools])
    best, best_rate = None, 0.0
    for i, pool in enumerate(pools):
        if not built.memory.fits[i]:
            continue
        running = min(built.times.kv_capacity_tokens[i] / max(case.isl + case.osl, 1), framework.max_running_requests)
        rate = pool.replicas * pool.dp * running
        rate /= max(case.osl * step_s(built, i, running, case.isl + case.osl / 2), 1e-9)
        rate /= 1 + running * prefill_s(built, i, case.isl) / max(case.osl * step_s(built, i, running, case.isl), 1e-9)
        if rate > best_rate:
            best, best_rate = pool, rate
    return best


def _estimate(case: Case, case_lanes: tuple[Lane, ...], model: Model, built: Lanes, start: int, seed: int) -> Estimate:
    lane = case_lanes[0]
    base = _memory_figures(case_lanes, built, start)
    if case.phase == "fit" or not base.fits:
        return base if base.fits or case.phase == "fit" else replace(base, problem="does not fit")
    if not np.isfinite(built.times.linear_s[start : start + len(case_lanes)]).all():
        return problem(unknown_bandwidth(lane))
    if case.phase == "prefill":
        seconds = prefill_s(built, start, case.isl)
        rate = (case.source_tokens or case.isl) / seconds
        return replace(base, prefill_tokens_per_s=rate, ttft_mean_s=seconds + idle_s(built, start))
    if case.phase == "decode":
        seconds = step_s(built, start, 1, case.isl + case.osl / 2)
        return replace(base, output_tokens_per_s=1 / seconds, tpot_mean_s=seconds)
    if case.mode == "disagg":
        return _disaggregated(case, case_lanes, built, start, base, seed)
    assert case.pool is not None or case.layout_free
    return _aggregated(case, lane, model, built, start, base, seed)


def unknown_bandwidth(lane: Lane) -> str:
    name = lane.choice.accelerator.name
    return f"the bandwidth between {name} accelerators is unknown: set tp, pp and attention_dp to 1"


def _memory_figures(case_lanes: tuple[Lane, ...], built: Lanes, start: int) -> Estimate:
    room, i = built.memory, start + len(case_lanes) - 1
    growing = room.kv_bytes_per_sequence - room.source_bytes_per_sequence
    return Estimate(
        fits=float(all(room.fits[start : start + len(case_lanes)])),
        kv_capacity_tokens=float(room.kv_capacity_tokens[i] * case_lanes[-1].choice.pp),
        kv_bytes_per_token=float(growing[i] / case_lanes[-1].context_tokens),
        weights_bytes_per_chip=float(room.weights_bytes[i]),
        peak_memory_bytes=float(room.weights_bytes[i] + room.activations_bytes[i] + room.overhead_bytes[i]),
        basis=case_lanes[-1].choice.efficiency.basis,
        lane=case_lanes[-1],
    )


def _kernel(case: Case, lane: Lane) -> Estimate:
    rate = kernel_flops_per_s(case, lane)
    if math.isnan(rate):
        return problem(f"{lane.choice.accelerator.name} has no {kernel_dtype(case, lane)} matrix rate")
    return Estimate(flops_per_s=rate, basis=lane.choice.efficiency.basis)


def kernel_dtype(case: Case, lane: Lane) -> str:
    """dtype of the matrix multiply of a kernel case."""
    return case.weights_dtype if case.weights_dtype in HALF else lane.choice.quantization.activations_dtype


def kernel_flops_per_s(case: Case, lane: Lane) -> float:
    """FLOP/s of the best GEMM of a shape sweep: the sustained fraction of the dense peak; NaN: unsupported dtype."""
    c, dtype = lane.choice, kernel_dtype(case, lane)
    fraction = c.efficiency.matmul_16_fraction if dtype in HALF else c.efficiency.matmul_8_fraction
    return (rate_of(c.accelerator, dtype) or NAN) * fraction


def _aggregated(case: Case, lane: Lane, model: Model, built: Lanes, i: int, base: Estimate, seed: int) -> Estimate:
    pool_lanes = _lanes_of(case, lane)
    static = case.phase == "static"
    client = _client(case, static, pool_lanes)
    users = case.concurrency or queued_requests(case, lane, built, i) * pool_lanes
    per_lane = max(math.ceil(users / pool_lanes - 1e-9), 1)
    times = take(built.times, np.array([i]))
    if case.speculative and lane.draft is None:
        times = speculative_times(times, case.speculative_tokens or 1, lane.choice.overhead.acceptance_fraction)
    result = _simulated(case, lane, model, times, client, per_lane, seed)
    for _ in range(SETTLING_ROUNDS if lane.draft else 0):
        settled = replace(lane, drafted_requests=max(result.running_requests_mean, 1.0))
        result = _simulated(case, lane, model, lanes(model, [settled]).times, client, per_lane, seed)
    scale = min(users / per_lane, pool_lanes) if case.concurrency else pool_lanes
    served = _first_chunk(_served(result, base, scale), case.client.first_chunk_steps, case.osl)
    if case.source_tokens:
        source_tokens = case.source_tokens * (client.length_low_fraction + client.length_high_fraction) / 2
        served = replace(served, total_tokens_per_s=served.output_tokens_per_s + served.requests_per_s * source_tokens)
    if case.beams > 1:  # every beam is decoded, one is the output
        served = replace(served, output_tokens_per_s=served.output_tokens_per_s / case.beams)
    return replace(served, e2e_s=result.mean("e2e_s") if not static else float(result.e2e_s.max()))


def _simulated(
    case: Case, lane: Lane, model: Model, times: StepTimes, client: Client, per_lane: int, seed: int
) -> Simulation:
    """One lane under its share of the traffic."""
    drawn = case.input_p95 or case.output_p95 or case.client.trace
    return simulate(
        times,
        0,
        scheduler_of(lane, case.phase == "static"),
        client,
        case.inputs,
        case.outputs,
        concurrency=per_lane,
        cached_fraction=case.cached_fraction,
        context_tokens=float(model.longest_context_tokens) if drawn else math.inf,
        requests=_measured(case, per_lane),
        seed=seed,
    )


def _first_chunk(served: Estimate, steps: float, osl: float) -> Estimate:
    """TTFT and TPOT for a server that streams every few steps: its first chunk comes `steps` after the first token."""
    delay_s = steps * served.tpot_mean_s
    remaining = max(1.0 - steps / max(osl - 1, 1.0), 0.1)
    return replace(
        served,
        **{f"ttft_{k}_s": getattr(served, f"ttft_{k}_s") + delay_s for k in STATISTICS},
        **{f"tpot_{k}_s": getattr(served, f"tpot_{k}_s") * remaining for k in STATISTICS},
    )


def queued_requests(case: Case, lane: Lane, built: Lanes, i: int) -> int:
    """Requests that an offline run queues per lane; at most eight full batches, which represent longer runs."""
    most = _max_running(case, lane, built, i)
    if case.client.kind != "offline":
        return most
    stated = math.ceil((case.client.requests or 8 * most) / _lanes_of(case, lane))
    return max(min(stated, 8 * most), 1)


def _lanes_of(case: Case, lane: Lane) -> int:
    return max(case.chips // lane.choice.tp, 1)


def _max_running(case: Case, lane: Lane, built: Lanes, i: int) -> int:
    """Maximum running requests of a lane: cache capacity, limited by the framework."""
    capacity = built.times.kv_capacity_tokens[i]
    return int(max(min(capacity // max(case.isl + case.osl, 1), lane.max_running_requests), 1))


def _client(case: Case, static: bool, pool_lanes: int) -> Client:
    """The client of one of these lanes."""
    p: Protocol = case.client
    if static or p.kind in ("static", "single"):
        return Client(kind=STATIC)
    if p.trace is not None:
        t = p.trace.for_replica(pool_lanes)
        return Client(
            kind=TRACE,
            arrival_s=t.arrival_s,
            input_tokens=t.input_tokens,
            output_tokens=t.output_tokens,
            prefix_classes=case.prefix_classes,
        )
    if p.users is not None:
        each = whole_users(p.users.active_requests / pool_lanes)
        return Client(kind=USERS, users=each, think_s=p.users.think_s, prefix_classes=case.prefix_classes)
    kinds = {"poisson": POISSON if p.rate_per_s else STEADY, "burst": BURST, "offline": BURST}
    return Client(
        kind=kinds.get(p.kind, STEADY),
        requests_per_user=1 if p.kind == "offline" else max(int(p.requests_per_user), 1),
        rate_per_s=(p.rate_per_s or 0.0) / pool_lanes,
        arrival_cv=math.sqrt(1.0 + (p.arrival_cv**2 - 1.0) / pool_lanes),  # requests go to a lane at random
        whole_run=p.whole_run,
        prefix_classes=case.prefix_classes,
        length_low_fraction=p.length_low_fraction,
        length_high_fraction=p.length_high_fraction,
    )


def _measured(case: Case, per_lane: int) -> int:
    """Number of measured requests: open loops need tens of thousands for their tail, closed loops a few rounds."""
    if case.client.requests:
        return case.client.requests
    if case.has_arrivals:
        return int(max(min(OPEN_LOOP_REQUESTS, OPEN_LOOP_TOKENS / max(case.osl, 1.0)), FEWEST_OPEN_REQUESTS))
    return max(min(10 * per_lane, 2000), 100)


def _served(result: Simulation, base: Estimate, scale: float) -> Estimate:
    seen = _seen(result)
    return replace(
        base,
        **{f"ttft_{k}_s": getattr(seen.ttft, f"{k}_s") for k in STATISTICS},
        **{f"tpot_{k}_s": getattr(seen.tpot, f"{k}_s") for k in STATISTICS},
        itl_mean_s=seen.tpot.mean_s,
        output_tokens_per_s=result.output_tokens_per_s * scale,
        total_tokens_per_s=result.total_tokens_per_s * scale,
        requests_per_s=result.requests_per_s * scale,
        seen=seen,
    )


def _seen(result: Simulation) -> Seen:
    return Seen(
        ttft=_spread(result, "ttft_s"),
        tpot=_spread(result, "tpot_s"),
        e2e=_spread(result, "e2e_s"),
        queue=_spread(result, "queue_s"),
        running_mean=result.running_requests_mean,
        busy_fraction=result.busy_fraction,
        preemptions=result.preemptions,
        requests=len(result.ttft_s),
        rejected_requests=result.rejected_requests,
    )


def _spread(result: Simulation, metric: str) -> Spread:
    p50_s, p90_s, p95_s, p99_s = result.percentiles(metric, 50, 90, 95, 99)
    return Spread(
        mean_s=result.mean(metric),
        p50_s=p50_s,
        p90_s=p90_s,
        p95_s=p95_s,
        p99_s=p99_s,
        p95_bounds_s=result.bounds(metric, 95),
    )


def _disaggregated(
    case: Case, case_lanes: tuple[Lane, ...], built: Lanes, start: int, base: Estimate, seed: int
) -> Estimate:
    """Disaggregated serving: the cache of each prompt moves from prefill to decode over the scale-out network."""
    assert case.prefill_pool is not None and case.decode_pool is not None
    first, later = _pool_lanes(case, case_lanes, start)
    link, room = case_lanes[1].choice.accelerator.links, built.memory
    moved = room.kv_bytes_per_sequence[start] / case_lanes[0].context_tokens
    full = _lane_count(case.decode_pool) * _max_running(case, case_lanes[1], built, start + 1)
    users = int(case.concurrency or full)
    result = simulate_pools(
        built.times,
        first,
        later,
        _client(case, False, 1),
        case.inputs,
        case.outputs,
        cached_fraction=case.cached_fraction,
        transfer_s_per_token=float(moved / link[-1].bytes_per_s) if link else 0.0,
        concurrency=users,
        requests=_measured(case, users),
        seed=seed,
    )
    served = _first_chunk(_served(result, base, 1.0), case.client.first_chunk_steps, case.osl)
    return replace(served, e2e_s=result.mean("e2e_s"), seen=None)  # waits are known per pool, not per server


def _pool_lanes(case: Case, case_lanes: tuple[Lane, ...], start: int) -> tuple[PoolLanes, PoolLanes]:
    """Both pools for the simulation; more users than seats wait for one."""
    assert case.prefill_pool is not None and case.decode_pool is not None
    prefill, decode = case_lanes
    first = PoolLanes(
        index=start,
        workers=case.prefill_pool.replicas * case.prefill_pool.pp,
        ranks=case.prefill_pool.dp,
        seats=case.prefill_pool.max_batch or prefill.framework.max_running_requests,
        step_tokens=prefill.max_batched_tokens,
        whole_prompts=prefill.framework.scheduler == MIXED,
    )
    later = PoolLanes(
        index=start + 1,
        workers=case.decode_pool.replicas * case.decode_pool.pp,
        ranks=case.decode_pool.dp,
        seats=case.max_batch or case.decode_pool.max_batch or decode.framework.max_running_requests,
    )
    return first, later
