"""Which deployments answer the question: enumerate, prune, price, rank, verify, and say why not the others."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from .hardware import Accelerator, Scopes, efficiency, overhead
from .lane import Lane, Lanes, lanes, take
from .layout import Choice, rate_of, unsupported
from .model import Attention, LatentAttention, Model, Recurrent
from .money import Assumptions, watts_per_chip
from .plan import Framework, Offer, Quantization, Rejection, Workload
from .serving import Demand, closed_loop, open_loop
from .steptime import Scheduler
from .verify import Verified, log_normal_cv2, scheduler_of, verify

Array = np.ndarray
# frameworks that the advice can say how to start (launch.py); the others are catalogued, not advised
LAUNCHABLE = ("vllm", "sglang", "tensorrt-llm", "vllm-tpu", "vllm-gaudi", "neuron", "llama.cpp", "mlx")
CONCURRENCY = np.array([1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512], dtype=float)
HEADROOM_FRACTION = 0.85  # of a lane's capacity: above it queues, not steps, decide latency
QUALITY = {"lossless": 0, "near_lossless": 1, "lossy": 2}
ALLOWED = {"lossless": 0, "near_lossless": 1, "any": 2}
SLACK = 1.3  # an estimate this far beyond an SLO is still worth a simulation
FINALISTS = 8  # kinds of design simulated per accelerator before it is given up
SHOWN = 10  # accelerators that are simulated and ranked


@dataclass(frozen=True, kw_only=True, slots=True)
class Catalog:
    """Everything a search reads, as engine values."""

    model: Model
    accelerators: tuple[Accelerator, ...]
    offers: tuple[Offer, ...]
    quantizations: tuple[Quantization, ...]
    frameworks: tuple[Framework, ...]
    scopes: Scopes
    assumptions: Assumptions
    stale: Mapping[str, str]  # accelerator -> why its offers do not count


@dataclass(frozen=True, kw_only=True, slots=True)
class Scored:
    """One deployment with its load and its price; latencies come from the simulation."""

    lane: Lane
    offer: Offer
    replicas: int  # spares included
    spare_replicas: int
    instances: int
    concurrency: int  # per replica
    verified: Verified
    capacity_requests_per_s: float
    usd_per_hour: float
    watts: float
    utilisation_fraction: float
    memory: "MemoryParts"
    meets_slo: bool
    times_index: int

    @property
    def chips(self) -> int:
        c = self.lane.choice
        return self.replicas * c.tp * c.pp * c.dp


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryParts:
    """Bytes per chip of one replica."""

    weights_bytes: float
    kv_bytes: float  # at the planned concurrency
    activations_bytes: float
    overhead_bytes: float
    free_bytes: float
    kv_capacity_tokens: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """One dot of the picture."""

    accelerator: str
    chips: int
    usd_per_hour: float
    tpot_s: float
    requests_per_s: float
    meets_slo: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    ranked: tuple[Scored, ...]
    near_misses: tuple[Scored, ...]
    rejections: tuple[Rejection, ...]
    points: tuple[Point, ...]
    evaluated: int
    pruned: int
    feasible: int
    built: Lanes | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """The candidates as arrays of shape (lanes, concurrency), and the best offer of each."""

    wanted: tuple[Lane, ...]
    built: Lanes
    replicas: Array
    capacity_requests_per_s: Array  # of one replica
    ttft_p95_s: Array  # planning estimates
    tpot_p95_s: Array
    usd_per_hour: Array  # of the cheapest offer
    offer: Array  # its index
    watts: Array
    evaluated: int
    pruned: int
    pruned_chips: Mapping[str, tuple[float, float]]  # accelerator -> (least bytes needed, bytes there) where none fits


Progress = Callable[[str, float], None]


def search(workload: Workload, catalog: Catalog, progress: Progress | None = None) -> Answer:
    """The ranked answer to one serving workload; an infeasible question is an Answer with no ranked entry."""
    tell = progress or (lambda stage, fraction: None)
    rejections, chips = _admissible(workload, catalog)
    wanted, refused = enumerate_lanes(workload, catalog, chips)
    rejections += refused
    if not wanted:
        return _nothing(rejections)
    tell("estimating step times", 0.1)
    table = evaluate(workload, catalog, wanted)
    tell("simulating the finalists", 0.4)
    ranked, near, missed = _decide(workload, catalog, table, tell)
    rejections += missed
    return Answer(
        ranked=tuple(ranked),
        near_misses=tuple(near),
        rejections=tuple(sorted(rejections, key=lambda r: (r.reason, r.accelerator))),
        points=tuple(_points(workload, table)),
        evaluated=table.evaluated,
        pruned=table.pruned,
        feasible=int(np.count_nonzero(_meets(workload, table, 1.0))),
        built=table.built,
    )


def _nothing(rejections: list[Rejection]) -> Answer:
    return Answer(
        ranked=(),
        near_misses=(),
        rejections=tuple(sorted(rejections, key=lambda r: (r.reason, r.accelerator))),
        points=(),
        evaluated=0,
        pruned=0,
        feasible=0,
        built=None,
    )


# --- gates before any physics -----------------------------------------------------------------------------------


def offers_for(workload: Workload, catalog: Catalog) -> list[Offer]:
    """The offers that the planner's providers, regions and ways of paying leave."""
    c = workload.constraints
    return [
        o
        for o in catalog.offers
        if o.acquisition in c.acquisition
        and (not c.providers_allow or o.provider in c.providers_allow)
        and o.provider not in c.providers_deny
        and (not c.regions_allow or o.region in c.regions_allow or o.acquisition == "own")
        and o.region not in c.regions_deny
    ]


def _admissible(workload: Workload, catalog: Catalog) -> tuple[list[Rejection], list[Accelerator]]:
    c = workload.constraints
    priced = {o.accelerator for o in offers_for(workload, catalog)}
    rejections, left = [], []
    for a in catalog.accelerators:
        outside = (
            (c.accelerators_allow and a.slug not in c.accelerators_allow)
            or a.slug in c.accelerators_deny
            or (c.vendors_allow and a.vendor not in c.vendors_allow)
            or a.vendor in c.vendors_deny
        )
        if outside:
            rejections.append(Rejection(accelerator=a.slug, reason="excluded", detail="left out by your constraints"))
        elif not a.served:
            rejections.append(Rejection(accelerator=a.slug, reason="unsupported", detail=a.not_served_reason))
        elif a.slug not in priced:
            why = catalog.stale.get(a.slug, "no current price in the regions, providers and ways of paying you allow")
            rejections.append(Rejection(accelerator=a.slug, reason="unpriced", detail=why))
        else:
            left.append(a)
    return rejections, left


def mixers_of(model: Model) -> set[str]:
    """What a framework must know to run this model."""
    found = set()
    for block in model.blocks:
        if isinstance(block.mixer, LatentAttention):
            found.add("latent")
        elif isinstance(block.mixer, Recurrent):
            found.add("recurrent")
        elif isinstance(block.mixer, Attention):
            found.add("window" if block.mixer.window_tokens else "attention")
    return found


def runs_on(framework: Framework, accelerator: Accelerator) -> bool:
    return bool(
        set(framework.stacks) & set(accelerator.stacks)
        and (not framework.vendors or accelerator.vendor in framework.vendors)
        and (not framework.kinds or accelerator.kind in framework.kinds)
    )


def formats_for(workload: Workload, catalog: Catalog) -> list[Quantization]:
    """Weight formats within the asked quality; wider than the published checkpoint is never offered."""
    native = [q for q in catalog.quantizations if catalog.model.native_dtype in (q.slug, q.weights_dtype)]
    most = min((q.bits_per_weight for q in native), default=16.0)
    seen, kept = set(), []
    for q in catalog.quantizations:
        own = q in native
        if not own and (QUALITY[q.quality] > ALLOWED[workload.constraints.quality] or q.bits_per_weight >= most):
            continue
        key = (q.weights_dtype, q.bits_per_weight, q.activations_dtype)
        if key not in seen:
            seen.add(key)
            kept.append(q)
    return kept


def _parallel_sizes(model: Model, accelerator: Accelerator, sizes: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """(tp, pp, ep, dp): tensor parallel inside the domain, experts plain or spread, attention-DP for latent caches."""
    heads = [b.mixer.heads for b in model.blocks if isinstance(b.mixer, Attention | LatentAttention)]
    experts = [b.ffn.experts for b in model.blocks if b.ffn is not None and b.ffn.experts > 1]
    latent = any(isinstance(b.mixer, LatentAttention) for b in model.blocks)
    for n in sizes:
        if any(h % n for h in heads):
            continue
        yield n, 1, 1, 1
        if experts and n > 1 and all(e % n == 0 for e in experts):
            yield n, 1, n, 1
            if latent:
                yield 1, 1, n, n
    most = max(sizes)
    for stages in (2, 4):
        if not any(h % most for h in heads) and most >= accelerator.chips_per_host and sum(
            b.count for b in model.blocks
        ) >= stages:
            yield most, stages, 1, 1


def enumerate_lanes(
    workload: Workload, catalog: Catalog, chips: Sequence[Accelerator]
) -> tuple[list[Lane], list[Rejection]]:
    """Every layout that is legal: framework x format x cache format x parallel sizes, per accelerator."""
    rejections, wanted = [], []
    formats, needs = formats_for(workload, catalog), mixers_of(catalog.model)
    sold: dict[str, set[int]] = defaultdict(set)
    for offer in offers_for(workload, catalog):
        sold[offer.accelerator].add(offer.accelerators)
    for a in chips:
        own = list(_lanes_of_chip(workload, catalog, a, formats, needs, sold[a.slug]))
        if not own:
            detail = _why_unsupported(catalog, a, formats, needs)
            rejections.append(Rejection(accelerator=a.slug, reason="unsupported", detail=detail))
        wanted += own
    return wanted, rejections


def _lanes_of_chip(
    workload: Workload,
    catalog: Catalog,
    a: Accelerator,
    formats: Sequence[Quantization],
    needs: set[str],
    sold: set[int],
) -> Iterator[Lane]:
    reached = efficiency(catalog.scopes, a.slug, a.family, a.kind)
    reach = a.links[0].chips if a.links else 1
    most = min(max(sold, default=1), max(reach, a.chips_per_host))
    sizes = [n for n in (1, 2, 4, 8, 16) if n <= most]
    context = workload.input_tokens.mean_tokens + workload.output_tokens.mean_tokens
    for f in catalog.frameworks:
        if f.slug not in LAUNCHABLE or not runs_on(f, a) or not needs <= set(f.mixers):
            continue
        extra = overhead(catalog.scopes, f.slug, f.version)
        for q in formats:
            if q.slug not in f.quantizations or unsupported(a, q):
                continue
            for kv in _cache_formats(workload, f, a):
                for tp, pp, ep, dp in _parallel_sizes(catalog.model, a, sizes):
                    yield Lane(
                        choice=Choice(
                            accelerator=a,
                            efficiency=reached,
                            overhead=extra,
                            quantization=q,
                            kv_dtype=kv,
                            tp=tp,
                            pp=pp,
                            ep=ep,
                            dp=dp,
                        ),
                        framework=f,
                        context_tokens=context,
                        max_batched_tokens=f.default_max_batched_tokens,
                        max_running=min(f.max_running_requests, int(CONCURRENCY[-1])),
                    )


def _cache_formats(workload: Workload, f: Framework, a: Accelerator) -> list[str]:
    half = next((d for d in ("bf16", "fp16") if d in f.kv_dtypes), None)
    kept = [half] if half else []
    if workload.constraints.quality != "lossless" and "fp8" in f.kv_dtypes and rate_of(a, "fp8"):
        kept.append("fp8")
    return kept


def _why_unsupported(catalog: Catalog, a: Accelerator, formats: Sequence[Quantization], needs: set[str]) -> str:
    able = [f for f in catalog.frameworks if f.slug in LAUNCHABLE and runs_on(f, a)]
    if not able:
        return f"no serving framework of the catalog runs on {a.name}"
    knowing = [f for f in able if needs <= set(f.mixers)]
    if not knowing:
        return f"{', '.join(sorted({f.name for f in able}))} cannot run this kind of model ({', '.join(sorted(needs))})"
    reasons = [unsupported(a, q) for q in formats]
    return next((r for r in reasons if r), "no allowed weight format is supported by its frameworks")


# --- arrays -----------------------------------------------------------------------------------------------------


def demand_of(workload: Workload) -> Demand:
    return Demand(
        input_tokens=workload.input_tokens.mean_tokens,
        output_tokens=workload.output_tokens.mean_tokens,
        input_cv2=log_normal_cv2(workload.input_tokens),
        output_cv2=log_normal_cv2(workload.output_tokens),
        cached_fraction=workload.prefix_cache_hit_fraction,
    )


def evaluate(workload: Workload, catalog: Catalog, wanted: Sequence[Lane]) -> Table:
    """Memory, latency, capacity and price of every lane at every concurrency; those that do not fit are pruned."""
    everything = lanes(catalog.model, wanted)
    fits = everything.memory.fits
    kept = [w for w, ok in zip(wanted, fits, strict=True) if ok]
    pruned_chips = _pruned_chips(wanted, everything, fits)
    built = everything if all(fits) else (lanes(catalog.model, kept) if kept else everything)
    shape = (len(kept), len(CONCURRENCY))
    capacity, ttft, tpot = np.zeros(shape), np.full(shape, np.inf), np.full(shape, np.inf)
    replicas = np.ones(shape)
    demand = demand_of(workload)
    parallel = np.array([w.choice.pp * w.choice.dp for w in kept], dtype=float)[:, None]
    for scheduler, rows in _by_scheduler(kept).items():
        times = take(built.times, rows)
        per_lane = np.maximum(CONCURRENCY[None, :] / parallel[rows], 1.0)
        busy = closed_loop(times, per_lane, demand, scheduler)
        capacity[rows] = busy.requests_per_s * parallel[rows]
        with np.errstate(divide="ignore", invalid="ignore"):
            n = np.ceil(workload.requests_per_s_peak / (capacity[rows] * HEADROOM_FRACTION))
        replicas[rows] = np.where(np.isfinite(n), np.maximum(n, 1.0), 1e9)
        rate = workload.requests_per_s_peak / replicas[rows] / parallel[rows]
        loaded = open_loop(take(built.times, np.repeat(rows, shape[1])), rate.ravel(), demand, scheduler)
        ttft[rows] = loaded.ttft_p95_estimate_s.reshape(rate.shape)
        tpot[rows] = loaded.tpot_p95_estimate_s.reshape(rate.shape)
    spares = workload.slo.spare_replicas
    usd, offer, priced = _prices(workload, catalog, kept, replicas + spares)
    chips = np.array([w.choice.tp * w.choice.pp * w.choice.dp for w in kept], dtype=float)[:, None]
    tdp = np.array([w.choice.accelerator.watts for w in kept], dtype=float)[:, None]
    idle = np.array([w.choice.accelerator.idle_watts for w in kept], dtype=float)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        load = workload.requests_per_s_mean / (capacity * replicas)
    watts = (replicas + spares) * chips * watts_per_chip(tdp, idle, load, catalog.assumptions) * catalog.assumptions.pue
    return Table(
        wanted=tuple(kept),
        built=built,
        replicas=replicas,
        capacity_requests_per_s=capacity,
        ttft_p95_s=ttft,
        tpot_p95_s=tpot,
        usd_per_hour=usd,
        offer=offer,
        watts=watts,
        evaluated=priced * len(CONCURRENCY),
        pruned=int(len(wanted) - len(kept)) * len(CONCURRENCY),
        pruned_chips=pruned_chips,
    )


def _pruned_chips(wanted: Sequence[Lane], built: Lanes, fits: Array) -> dict[str, tuple[float, float]]:
    """Accelerators none of whose lanes fits, with the least shortfall's (needed, usable) bytes per chip."""
    fitting = {w.choice.accelerator.slug for w, ok in zip(wanted, fits, strict=True) if ok}
    room, least = built.memory, {}
    for i, w in enumerate(wanted):
        slug = w.choice.accelerator.slug
        if slug in fitting:
            continue
        needed = float(room.usable_bytes[i] - room.kv_bytes[i] + room.kv_bytes_per_sequence[i])
        usable = float(room.usable_bytes[i])
        if slug not in least or needed - usable < least[slug][0] - least[slug][1]:
            least[slug] = (needed, usable)
    return least


def _by_scheduler(kept: Sequence[Lane]) -> dict[Scheduler, Array]:
    groups: dict[Scheduler, list[int]] = defaultdict(list)
    for i, w in enumerate(kept):
        groups[scheduler_of(w)].append(i)
    return {s: np.array(rows) for s, rows in groups.items()}


def instances_needed(replicas: Array, replica_chips: int, offer_chips: int) -> Array:
    """Whole instances; a replica larger than one spans several."""
    if replica_chips > offer_chips:
        return replicas * math.ceil(replica_chips / offer_chips)
    return np.ceil(replicas / (offer_chips // replica_chips))


def _prices(
    workload: Workload, catalog: Catalog, kept: Sequence[Lane], replicas: Array
) -> tuple[Array, Array, int]:
    """Cheapest offer per candidate: (USD per hour, offer index, candidates priced over all offers)."""
    usd, best, priced = np.full(replicas.shape, np.inf), np.full(replicas.shape, -1), 0
    allowed = set(offers_for(workload, catalog))
    offers = [(i, o) for i, o in enumerate(catalog.offers) if o in allowed]
    by_chip: dict[str, list[tuple[int, Offer]]] = defaultdict(list)
    for i, o in offers:
        by_chip[o.accelerator].append((i, o))
    groups: dict[tuple[str, int, int], list[int]] = defaultdict(list)
    for row, w in enumerate(kept):
        c = w.choice
        groups[(c.accelerator.slug, c.tp * c.dp, c.pp)].append(row)
    for (slug, stage_chips, pp), members in groups.items():
        rows = np.array(members)
        for index, o in by_chip[slug]:
            if stage_chips > o.accelerators and not _spans(kept[members[0]].choice.accelerator, o, stage_chips):
                continue
            cost = instances_needed(replicas[rows], stage_chips * pp, o.accelerators) * o.usd_per_hour
            better = cost < usd[rows]
            usd[rows] = np.where(better, cost, usd[rows])
            best[rows] = np.where(better, index, best[rows])
            priced += len(rows)
    return usd, best, priced


def _spans(accelerator: Accelerator, offer: Offer, chips: int) -> bool:
    """Whether a tensor-parallel group may cross instances: only where the scale-up domain does (TPU slices, racks)."""
    reach = accelerator.links[0].chips if accelerator.links else 1
    return reach >= chips and reach > accelerator.chips_per_host and offer.accelerators >= accelerator.chips_per_host


# --- choosing ---------------------------------------------------------------------------------------------------


def _meets(workload: Workload, table: Table, slack: float) -> Array:
    """Candidates within every limit, latencies up to `slack` times theirs."""
    slo, c = workload.slo, workload.constraints
    ok = np.isfinite(table.usd_per_hour) & (table.capacity_requests_per_s > 0)
    if slo.ttft_p95_s is not None:
        ok &= table.ttft_p95_s <= slo.ttft_p95_s * slack
    tpot_limit = _tpot_limit(workload)
    if tpot_limit is not None:
        ok &= table.tpot_p95_s <= tpot_limit * slack
    if slo.e2e_p95_s is not None:
        ok &= table.ttft_p95_s + table.tpot_p95_s * workload.output_tokens.p95_tokens <= slo.e2e_p95_s * slack
    if c.max_accelerators is not None:
        ok &= _chips(table) * (table.replicas + slo.spare_replicas) <= c.max_accelerators
    if c.max_usd_per_month is not None:
        ok &= table.usd_per_hour * 730.0 <= c.max_usd_per_month
    return ok


def _tpot_limit(workload: Workload) -> float | None:
    limits = [workload.slo.tpot_p95_s]
    if workload.slo.tokens_per_s_per_user:
        limits.append(1.0 / workload.slo.tokens_per_s_per_user)
    return min((x for x in limits if x is not None), default=None)


def _chips(table: Table) -> Array:
    return np.array([w.choice.tp * w.choice.pp * w.choice.dp for w in table.wanted], dtype=float)[:, None]


def objective_score(workload: Workload, table: Table) -> Array:
    """Lower is better; cost breaks ties."""
    usd = table.usd_per_hour
    scores = {
        "cost": usd,
        "latency": table.tpot_p95_s + 1e-9 * usd,
        "throughput": -table.capacity_requests_per_s * table.replicas / _chips(table) + 1e-9 * usd,
        "energy": np.where(np.isfinite(table.watts), table.watts, 1e12) + 1e-6 * usd,
        "carbon": np.where(np.isfinite(table.watts), table.watts, 1e12) + 1e-6 * usd,
    }
    if workload.objective == "balanced":
        ok = _meets(workload, table, 1.0)
        if not ok.any():
            return usd
        least = {k: np.min(v[ok]) for k, v in (("u", usd), ("t", table.tpot_p95_s), ("w", scores["energy"]))}
        return usd / least["u"] + table.tpot_p95_s / least["t"] + 0.5 * scores["energy"] / least["w"]
    return scores[workload.objective]


def _decide(
    workload: Workload, catalog: Catalog, table: Table, tell: Progress
) -> tuple[list[Scored], list[Scored], list[Rejection]]:
    """Chips in the order of their estimates are simulated until enough of them hold; the rest is explained."""
    score, maybe = objective_score(workload, table), _meets(workload, table, SLACK)
    rows: dict[str, list[int]] = defaultdict(list)
    for i, w in enumerate(table.wanted):
        rows[w.choice.accelerator.slug].append(i)
    rejections = [_does_not_fit(workload, slug, *room) for slug, room in table.pruned_chips.items()]
    promise = {slug: float(np.min(np.where(maybe[own], score[own], np.inf))) for slug, own in rows.items()}
    ranked: list[Scored] = []
    near: list[Scored] = []
    for slug in sorted(promise, key=lambda s: promise[s]):
        own = np.array(rows[slug])
        if not math.isfinite(promise[slug]):
            rejections.append(_missed(workload, table, own, slug))
        elif len(ranked) >= SHOWN:
            rejections.append(_outranked(table, own, slug, maybe, ranked[-1]))
        else:
            tell(f"simulating {slug}", 0.4 + 0.055 * min(len(ranked) + len(near), 10))
            best, missed = _best_of_chip(workload, catalog, table, own, score, maybe)
            if missed is None:
                assert best is not None
                ranked.append(best)
                continue
            rejections.append(missed)
            if best is not None:
                near.append(best)
    ranked.sort(key=lambda s: final_score(workload, s))
    near.sort(key=lambda s: s.usd_per_hour)
    return ranked, near, rejections


def _does_not_fit(workload: Workload, slug: str, needed: float, usable: float) -> Rejection:
    return Rejection(
        accelerator=slug,
        reason="does_not_fit",
        detail=f"needs {needed / 2**30:.1f} GiB per chip of {usable / 2**30:.1f} GiB usable in its largest layout",
        limit=usable / 2**30,
        reached=needed / 2**30,
        smallest_change=_fit_change(workload, needed / usable),
    )


def _outranked(table: Table, own: Array, slug: str, maybe: Array, last: Scored) -> Rejection:
    """Feasible by estimate, but behind everything that is shown."""
    usd = float(np.min(np.where(maybe[own], table.usd_per_hour[own], np.inf)))
    return Rejection(
        accelerator=slug,
        reason="outranked",
        detail=f"feasible by estimate from ${usd * 730:,.0f} a month, behind the {SHOWN} shown (not simulated)",
        limit=last.usd_per_hour * 730,
        reached=usd * 730,
        smallest_change=f"name it in constraints.accelerators.allow to see it: {slug}",
    )


def final_score(workload: Workload, s: Scored) -> tuple[float, float]:
    """Rank of a verified deployment under the planner's objective; cost breaks ties."""
    watts = s.watts if math.isfinite(s.watts) else 1e12
    scores = {
        "cost": s.usd_per_hour,
        "latency": s.verified.tpot_p95_s,
        "throughput": -s.capacity_requests_per_s / s.chips,
        "energy": watts,
        "carbon": watts * (s.offer.kgco2e_per_kwh or 0.4),
        "balanced": s.usd_per_hour * (1 + s.verified.tpot_p95_s * 10),
    }
    return scores[workload.objective], s.usd_per_hour


def _fit_change(workload: Workload, ratio: float) -> str:
    if workload.constraints.quality != "any" and ratio < 1.9:
        return "may fit with 4-bit weights: allow quality: any"
    return f"needs {math.ceil(ratio)} times the memory per chip"


def _best_of_chip(
    workload: Workload, catalog: Catalog, table: Table, own: Array, score: Array, maybe: Array
) -> tuple[Scored | None, Rejection | None]:
    """The best design whose simulation meets the SLO; else the nearest miss (if near) and what it missed.

    A design that fails takes those with the same chips, formats and framework with it: more replicas of the same
    lane were tried already.
    """
    nearest: Scored | None = None
    for i, j in _designs(table, own, score, maybe):
        scored = _verified(workload, catalog, table, i, j)
        if scored.meets_slo:
            return scored, None
        if nearest is None or _excess(workload, scored) < _excess(workload, nearest):
            nearest = scored
    assert nearest is not None
    return (nearest if _excess(workload, nearest) <= 1.2 else None), _simulated_miss(workload, nearest)


def _designs(table: Table, own: Array, score: Array, maybe: Array) -> list[tuple[int, int]]:
    """The best candidate of each kind of design, best first."""
    i, j = np.nonzero(maybe[own])
    order = np.argsort(score[own[i], j], kind="stable")
    kinds, kept = set(), []
    for k in order:
        row, column = int(own[i[k]]), int(j[k])
        c = table.wanted[row].choice
        kind = (c.tp * c.pp * c.dp, table.wanted[row].framework.slug)
        if kind not in kinds:
            kinds.add(kind)
            kept.append((row, column))
            if len(kept) >= FINALISTS:
                break
    return kept


def _excess(workload: Workload, s: Scored) -> float:
    """How far beyond its SLOs a simulated deployment is; 1: on the limit."""
    slo, v = workload.slo, s.verified
    limit = _tpot_limit(workload)
    ratios = [
        v.ttft_p95_s / slo.ttft_p95_s if slo.ttft_p95_s else 0.0,
        v.tpot_p95_s / limit if limit else 0.0,
        v.e2e_p95_s / slo.e2e_p95_s if slo.e2e_p95_s else 0.0,
    ]
    return max(ratios)


def _verified(workload: Workload, catalog: Catalog, table: Table, i: int, j: int) -> Scored:
    """Simulate one design at the peak rate; a replica more is tried until it holds or a quarter more is spent.

    The server's cap on running requests is the planned concurrency and three standard deviations of a Poisson
    number around it, so that chance does not queue what the chips could run.
    """
    parallel = table.wanted[i].choice.pp * table.wanted[i].choice.dp
    planned = CONCURRENCY[j] / parallel
    lane = replace(table.wanted[i], max_running=max(math.ceil(planned + 3 * math.sqrt(planned)), 1))
    first = int(table.replicas[i, j])
    scored = None
    for n in range(first, first + max(1, math.ceil(first * 0.25)) + 1):
        seen = verify(workload, table.built.times, i, lane, workload.requests_per_s_peak / n / parallel)
        scored = _score(workload, catalog, table, (i, j), lane, n, seen)
        if _excess(workload, scored) <= 1.0:
            return replace(scored, meets_slo=_affordable(workload, scored))
    assert scored is not None
    return scored


def _affordable(workload: Workload, s: Scored) -> bool:
    c = workload.constraints
    return (c.max_accelerators is None or s.chips <= c.max_accelerators) and (
        c.max_usd_per_month is None or s.usd_per_hour * 730.0 <= c.max_usd_per_month
    )


def _score(
    workload: Workload, catalog: Catalog, table: Table, cell: tuple[int, int], lane: Lane, n: int, seen: Verified
) -> Scored:
    i, spares = cell[0], workload.slo.spare_replicas
    c = lane.choice
    usd, best, _ = _prices(workload, catalog, [lane], np.array([[float(n + spares)]]))
    offer = catalog.offers[int(best[0, 0])]
    capacity = float(table.capacity_requests_per_s[cell])
    replica_chips = c.tp * c.pp * c.dp
    load = workload.requests_per_s_mean / (capacity * n)
    a = c.accelerator
    each = watts_per_chip(np.array(a.watts), np.array(a.idle_watts), np.array(load), catalog.assumptions)
    running = max(seen.running_mean * c.pp * c.dp, 1.0)
    return Scored(
        lane=lane,
        offer=offer,
        replicas=n + spares,
        spare_replicas=spares,
        instances=int(instances_needed(np.array(float(n + spares)), replica_chips, offer.accelerators)),
        concurrency=lane.max_running * c.pp * c.dp,
        verified=seen,
        capacity_requests_per_s=capacity * n,
        usd_per_hour=float(usd[0, 0]),
        watts=float(each) * replica_chips * (n + spares) * catalog.assumptions.pue,
        utilisation_fraction=load,
        memory=_parts(table.built, i, running / (c.pp * c.dp)),
        meets_slo=False,
        times_index=i,
    )


def _parts(built: Lanes, i: int, running: float) -> MemoryParts:
    room = built.memory
    kv = min(running * float(room.kv_bytes_per_sequence[i]), float(room.kv_bytes[i]))
    return MemoryParts(
        weights_bytes=float(room.weights_bytes[i]),
        kv_bytes=kv,
        activations_bytes=float(room.activations_bytes[i]),
        overhead_bytes=float(room.overhead_bytes[i]),
        free_bytes=float(room.kv_bytes[i]) - kv,
        kv_capacity_tokens=float(room.kv_capacity_tokens[i]),
    )


def _simulated_miss(workload: Workload, s: Scored) -> Rejection:
    slo, v = workload.slo, s.verified
    limit = _tpot_limit(workload)
    checks = [("TTFT p95", v.ttft_p95_s, slo.ttft_p95_s), ("TPOT p95", v.tpot_p95_s, limit)]
    checks.append(("end-to-end p95", v.e2e_p95_s, slo.e2e_p95_s))
    over = [(name, got, most) for name, got, most in checks if most is not None and got > most]
    if not over:
        return _too_much(workload, s.lane.choice.accelerator.slug, s.chips, s.usd_per_hour)
    name, got, most = max(over, key=lambda x: x[1] / x[2])
    return Rejection(
        accelerator=s.lane.choice.accelerator.slug,
        reason="misses_slo",
        detail=f"best simulated {name} {got * 1e3:.0f} ms > {most * 1e3:.0f} ms ({describe(s.lane)})",
        limit=most * 1e3,
        reached=got * 1e3,
        smallest_change=f"passes with {name} <= {math.ceil(got * 1e3)} ms",
    )


def describe(lane: Lane) -> str:
    c = lane.choice
    sizes = [f"TP{c.tp}"] + [f"{k}{n}" for k, n in (("PP", c.pp), ("EP", c.ep), ("DP", c.dp)) if n > 1]
    return f"{c.quantization.name}, {' '.join(sizes)}, {lane.framework.name} {lane.framework.version}"


def _too_much(workload: Workload, slug: str, chips: float, usd_per_hour: float) -> Rejection:
    c = workload.constraints
    if c.max_accelerators is not None and chips > c.max_accelerators:
        return Rejection(
            accelerator=slug,
            reason="too_many",
            detail=f"needs {chips:.0f} accelerators, {c.max_accelerators} allowed",
            limit=float(c.max_accelerators),
            reached=float(chips),
            smallest_change=f"passes with max_accelerators >= {chips:.0f}",
        )
    limit, reached = c.max_usd_per_month or math.inf, usd_per_hour * 730.0
    return Rejection(
        accelerator=slug,
        reason="too_expensive",
        detail=f"${reached:,.0f} a month > ${limit:,.0f}",
        limit=limit,
        reached=reached,
        smallest_change=f"passes with max_usd_per_month >= {math.ceil(reached):,}",
    )


def _missed(workload: Workload, table: Table, own: Array, slug: str) -> Rejection:
    """The first gate that leaves nothing of a chip's candidates, with the nearest figure."""
    slo, limit = workload.slo, _tpot_limit(workload)
    priced = np.isfinite(table.usd_per_hour[own]) & (table.capacity_requests_per_s[own] > 0)
    if not priced.any():
        detail = "no offer has enough chips joined for a layout that fits"
        return Rejection(accelerator=slug, reason="unpriced", detail=detail)
    for name, values, most in (
        ("TPOT p95", table.tpot_p95_s[own], limit),
        ("TTFT p95", table.ttft_p95_s[own], slo.ttft_p95_s),
    ):
        if most is None:
            continue
        within = priced & (values <= most * SLACK)
        if not within.any():
            got = float(np.min(np.where(priced, values, np.inf)))
            i = own[np.unravel_index(np.argmin(np.where(priced, values, np.inf)), values.shape)[0]]
            return Rejection(
                accelerator=slug,
                reason="misses_slo",
                detail=f"best estimated {name} {got * 1e3:.0f} ms > {most * 1e3:.0f} ms ({describe(table.wanted[i])})",
                limit=most * 1e3,
                reached=got * 1e3,
                smallest_change=f"passes with {name} <= {math.ceil(got * 1e3)} ms",
            )
        priced = within
    if slo.e2e_p95_s is not None:
        e2e = table.ttft_p95_s[own] + table.tpot_p95_s[own] * workload.output_tokens.p95_tokens
        if not (priced & (e2e <= slo.e2e_p95_s * SLACK)).any():
            got = float(np.min(np.where(priced, e2e, np.inf)))
            return Rejection(
                accelerator=slug,
                reason="misses_slo",
                detail=f"best estimated end-to-end p95 {got:.2f} s > {slo.e2e_p95_s:.2f} s",
                limit=slo.e2e_p95_s * 1e3,
                reached=got * 1e3,
                smallest_change=f"passes with e2e_ms_p95 >= {math.ceil(got * 1e3)}",
            )
    count = (_chips(table)[own] * (table.replicas[own] + slo.spare_replicas))
    fewest = float(np.min(np.where(priced, count, np.inf)))
    least = float(np.min(np.where(priced, table.usd_per_hour[own], np.inf)))
    return _too_much(workload, slug, fewest, least)


def _points(workload: Workload, table: Table) -> Iterator[Point]:
    """Per accelerator and concurrency the cheapest candidate: the cloud of the picture."""
    meets = _meets(workload, table, 1.0)
    chips = _chips(table)
    best: dict[tuple[str, int], tuple[float, Point]] = {}
    for i, w in enumerate(table.wanted):
        for j in np.flatnonzero(np.isfinite(table.usd_per_hour[i]) & np.isfinite(table.tpot_p95_s[i])):
            n = int(table.replicas[i, j])
            if n > 1e6:
                continue
            key, usd = (w.choice.accelerator.slug, int(j)), float(table.usd_per_hour[i, j])
            if key in best and best[key][0] <= usd:
                continue
            point = Point(
                accelerator=key[0],
                chips=int(chips[i, 0] * n),
                usd_per_hour=usd,
                tpot_s=float(table.tpot_p95_s[i, j]),
                requests_per_s=float(table.capacity_requests_per_s[i, j] * n),
                meets_slo=bool(meets[i, j]),
            )
            best[key] = (usd, point)
    yield from (p for _, p in best.values())


def frontier(points: Sequence[Point]) -> set[int]:
    """Indices of the points that no other beats in both cost and TPOT."""
    order = sorted(range(len(points)), key=lambda k: (points[k].usd_per_hour, points[k].tpot_s))
    kept, least = set(), math.inf
    for k in order:
        if points[k].tpot_s < least:
            kept.add(k)
            least = points[k].tpot_s
    return kept

