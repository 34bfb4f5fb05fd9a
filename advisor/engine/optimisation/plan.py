"""The optimization plan: step by step from a baseline server to the recommended deployment on this chip.

Every step repeats the estimate with one field of a Setup changed, so gains depend on chip, model and workload. The
figure is output tokens/s per chip at the best batch size within KV-cache memory and the TPOT limit, in closed form.
Techniques outside the plan are each compared with the plan; their gains do not multiply. Techniques that are not
modeled are listed with a cited range that is in no computed gain.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.engine.kernels import HALF
from advisor.engine.launch import context_limit
from advisor.engine.network import Model, SoftmaxAttention, decoder_blocks
from advisor.engine.optimisation import precompiled, techniques
from advisor.engine.optimisation.techniques import Technique
from advisor.engine.scheduler import closed_loop, matched, scheduler_of
from advisor.engine.search import (
    CONCURRENCY,
    Catalog,
    Question,
    Scored,
    can_convert,
    demand_of,
    published_bits,
    tpot_limit_s,
)
from advisor.engine.step import (
    KV_BYTES,
    Array,
    Draft,
    Lane,
    Lanes,
    Scheduler,
    StepTimes,
    cache_unsupported,
    concatenate,
    drafts_of,
    is_published,
    kv_offload,
    lanes,
    methods_of,
    quality_of,
    supports_drafts,
    take,
    weights_on,
    with_draft,
)
from advisor.engine.terms import Offer, Quantization, Workload

SCORE_BYTES = 8.0  # memory traffic per attention score and layer without fused attention
SEATS = np.unique(
    np.round(np.geomspace(1, CONCURRENCY[-1], 48))
)  # finer than the search grid, because gains are ratios
MAX_STATIC_BATCH = 1024  # planning assumption; usually memory limits the batch first
PAIRS = 2.0  # an unfused kernel also computes the masked half of the scores


@dataclass(frozen=True, kw_only=True, slots=True)
class Setup:
    """A serving configuration of the model on one kind of chip."""

    lane: Lane
    batching: str = "continuous"  # one | static | continuous
    graphs: bool = True
    fused_attention: bool = True
    paged: bool = True
    reserved_tokens: float = 0.0  # per sequence, without a paged KV cache
    load_requests: float = 1.0  # running requests of a lane at the workload's peak
    cached_fraction: float = 0.0  # prefix cache hit rate, of the prompt tokens
    host_cached_fraction: float = 0.0  # additional hit rate of the cache in host memory
    host_bytes_per_s: float = math.inf  # from the host to one chip
    draft: Draft | None = None
    disaggregated: bool = False  # prefill and decode in pools with matched rates
    offer: Offer | None = None  # whose host memory an offloaded cache fills

    @property
    def as_run(self) -> Lane:
        """The lane with or without graphs."""
        return replace(self.lane, eager=not self.graphs)


@dataclass(frozen=True, kw_only=True, slots=True)
class SetupEstimate:
    """Estimated performance of a setup at its best batch size within the TPOT limit."""

    output_tokens_per_s_per_chip: float  # 0: it does not fit
    tpot_s: float
    ttft_s: float
    concurrency: float  # running requests per lane
    light_tpot_s: float  # TPOT at the plan's peak load
    within_limit: bool  # False: even batch size 1 exceeds the TPOT limit; figures are for batch size 1
    setup: Setup

    @property
    def fits(self) -> bool:
        return self.output_tokens_per_s_per_chip > 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One technique and how it relates to the plan."""

    technique: Technique
    state: str  # base | used | possible | hours (saves paid hours, not tokens/s) | cited | not_here
    change: str  # what changes, as text
    estimate: SetupEstimate | None = None
    gain_ratio: float = math.nan  # tokens/s relative to the previous step (used) or the plan (possible)
    because: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class OptimisationPlan:
    """Steps from the baseline to the plan, then the other techniques."""

    steps: tuple[Step, ...]

    @property
    def gain_ratio(self) -> float:
        """Tokens/s of the plan relative to the baseline."""
        chain = [s.estimate for s in self.steps if s.state in ("base", "used") and s.estimate]
        return chain[-1].output_tokens_per_s_per_chip / chain[0].output_tokens_per_s_per_chip


# --- estimates --------------------------------------------------------------------------------------------------


def estimate_setups(workload: Workload, model: Model, setups: Sequence[Setup]) -> list[SetupEstimate]:
    """One estimate per setup, in order; setups with the same batching share one vectorized closed-loop call."""
    if not setups:
        return []
    built = lanes(model, [s.as_run for s in setups])
    groups: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for i, s in enumerate(setups):
        if built.memory.fits[i]:
            groups[_group_key(s)].append(i)
    estimates = {i: _does_not_fit(s) for i, s in enumerate(setups)}
    for members in groups.values():
        estimates |= _estimate_group(workload, model, setups, built, members)
    return [estimates[i] for i in range(len(setups))]


def _group_key(s: Setup) -> tuple[object, ...]:
    """Group key of setups that one closed-loop call can cover."""
    cached = (s.cached_fraction, s.host_cached_fraction)
    return scheduler_for(s), s.batching, cached, s.disaggregated, s.lane.max_running_requests


def _estimate_group(
    workload: Workload, model: Model, setups: Sequence[Setup], built: Lanes, members: Sequence[int]
) -> dict[int, SetupEstimate]:
    """Estimates of one group of setups, by index."""
    s = setups[members[0]]
    cached_fraction = s.cached_fraction + s.host_cached_fraction
    demand, scheduler = replace(demand_of(workload), cached_fraction=cached_fraction), scheduler_for(s)
    times = concatenate([times_of(model, setups[i], built, i) for i in members])
    copies = [host_copies_s(workload, setups[i], built, i) for i in members]
    loaded_s, busy_s = np.array([c[0] for c in copies]), np.array([max(c) for c in copies])
    times = replace(times, request_s=times.request_s + loaded_s)
    seats = np.array([1.0]) if s.batching == "one" else seats_of(s)
    if s.disaggregated:
        moved_s = np.array([transfer_s(workload, setups[i].lane, built, i) for i in members])
        both = matched(times, seats, demand, scheduler, moved_s[:, None])
        rate, tpot, ttft = both.requests_per_s * demand.output_tokens, both.tpot_mean_s, both.ttft_mean_s
        running = np.broadcast_to(seats, rate.shape)
    else:
        loop = closed_loop(times, np.broadcast_to(seats, (len(members), len(seats))), demand, scheduler)
        rate, tpot, ttft, running = loop.output_tokens_per_s, loop.tpot_mean_s, loop.ttft_mean_s, loop.running_requests
        if s.host_cached_fraction:  # the host link may be the bottleneck
            rate = np.minimum(rate, demand.output_tokens / np.maximum(busy_s[:, None], 1e-12))
    limit = tpot_limit_s(workload) or math.inf
    return {i: _best(setups[i], rate[k], tpot[k], ttft[k], running[k], limit) for k, i in enumerate(members)}


def _best(s: Setup, rate: Array, tpot: Array, ttft: Array, running: Array, limit_s: float) -> SetupEstimate:
    """The batch size with the highest rate within the TPOT limit; batch size 1 if none is within it."""
    allowed = np.flatnonzero((tpot <= limit_s) & (rate > 0))
    best = int(allowed[np.argmax(rate[allowed])]) if len(allowed) else 0
    if not rate[best] > 0:
        return _does_not_fit(s)
    return SetupEstimate(
        output_tokens_per_s_per_chip=float(rate[best]) / s.lane.choice.tp,
        tpot_s=float(tpot[best]),
        ttft_s=float(ttft[best]),
        concurrency=float(running[best]),
        light_tpot_s=float(np.interp(s.load_requests, running, tpot)),
        within_limit=bool(len(allowed)),
        setup=s,
    )


def seats_of(s: Setup) -> np.ndarray:
    """Batch sizes to try for one lane."""
    return np.minimum(SEATS, s.lane.max_running_requests)


def _does_not_fit(s: Setup) -> SetupEstimate:
    nan = math.nan
    return SetupEstimate(
        output_tokens_per_s_per_chip=0.0,
        tpot_s=nan,
        ttft_s=nan,
        concurrency=0.0,
        light_tpot_s=nan,
        within_limit=False,
        setup=s,
    )


def times_of(model: Model, s: Setup, built: Lanes, i: int) -> StepTimes:
    """Step times of one setup, shape (1,), with the cost of every disabled technique added."""
    times = take(built.times, np.array([i]))
    if not s.fused_attention:
        rate = float(built.layouts.memory_bytes_per_s[i])
        added = unfused_s_per_pair(model, s.lane.choice.tp, rate)
        times = replace(times, prefill_s_per_pair=times.prefill_s_per_pair + added)
    if not s.paged:
        share = s.lane.context_tokens / max(s.reserved_tokens, s.lane.context_tokens)
        times = replace(times, kv_capacity_tokens=times.kv_capacity_tokens * share)
    if s.draft:
        times = with_draft(times, s.draft, s.lane.choice, float(s.lane.max_running_requests))
    return times


def unfused_s_per_pair(model: Model, tp: int, memory_bytes_per_s: float) -> float:
    """Extra seconds per (query, key) pair if scores go through memory (arXiv 2205.14135, algorithm 0)."""
    heads = sum(b.count * b.mixer.heads for b in decoder_blocks(model) if isinstance(b.mixer, SoftmaxAttention))
    return heads / tp * PAIRS * SCORE_BYTES / memory_bytes_per_s


def scheduler_for(s: Setup) -> Scheduler:
    """The framework's scheduler, or static batching with batch size 1 or as many as the cache holds."""
    if s.batching == "continuous":
        return scheduler_of(s.lane)
    return replace(
        scheduler_of(s.lane, static=True), max_running_requests=1 if s.batching == "one" else MAX_STATIC_BATCH
    )


def transfer_s(workload: Workload, lane: Lane, built: Lanes, i: int) -> float:
    """Seconds to send the KV cache of a mean prompt over the network, each chip sending its part."""
    links = lane.choice.accelerator.links
    return prompt_bytes(workload, lane, built, i) / links[-1].bytes_per_s if links else math.inf


def host_copies_s(workload: Workload, s: Setup, built: Lanes, i: int) -> tuple[float, float]:
    """(load, store) seconds of kv_offload.copies_s for a mean prompt; other requests keep running meanwhile."""
    if not s.host_cached_fraction:
        return 0.0, 0.0
    return kv_offload.copies_s(
        prompt_bytes(workload, s.lane, built, i), s.host_cached_fraction, s.cached_fraction, s.host_bytes_per_s
    )


def prompt_bytes(workload: Workload, lane: Lane, built: Lanes, i: int) -> float:
    """KV-cache bytes of a mean prompt on one chip."""
    return float(built.memory.kv_bytes_per_sequence[i]) / lane.context_tokens * workload.input_tokens.mean_tokens


# --- from the baseline to the plan ------------------------------------------------------------------------------


def uncapped(lane: Lane) -> Lane:
    """The lane without the plan's cap on running requests."""
    return replace(lane, max_running_requests=min(lane.framework.max_running_requests, int(CONCURRENCY[-1])))


def planned(workload: Workload, s: Scored) -> Setup:
    """The recommended deployment as a setup; its draft is a step of its own."""
    caches = "prefix_caching" in s.lane.framework.features
    return Setup(
        lane=uncapped(replace(s.lane, draft=None)),
        offer=s.offer,
        batching="static" if s.lane.framework.scheduler == "static" else "continuous",
        graphs=s.lane.framework.graph_max_tokens > 0,
        load_requests=max(s.verified.running_requests_mean, 1.0),
        cached_fraction=workload.prefix_cache_hit_fraction if caches else 0.0,
    )


def optimisation_plan(question: Question, s: Scored) -> OptimisationPlan | None:
    """The optimization plan of a deployment; None for models that generate no tokens."""
    workload, catalog = question.workload, question.catalog
    if not workload.kind.generates_tokens or catalog.model.encoder_only:
        return None
    plan = planned(workload, s)
    reserved = float(context_limit(s, catalog.model, workload).tokens)
    chain = list(_chain(plan, _baseline(question, plan, reserved)))
    others = list(candidate_changes(question, plan, s.lane.draft))
    figures = estimate_setups(workload, catalog.model, [setup for _, _, setup in (*chain, *others)])
    used = list(_plan_steps(chain, figures))
    beside = list(_other_steps(workload, catalog.model, plan, others, figures[len(chain) :], figures[len(chain) - 1]))
    if s.lane.draft:
        drafting = techniques.DRAFTING.slug
        beside = [replace(x, state="used") if x.technique.slug == drafting else x for x in beside]
        beside.sort(key=lambda x: x.state != "used")
    return OptimisationPlan(
        steps=(
            *used,
            *beside,
            *_inapplicable_steps(question, plan, s, {x.technique.slug for x in used + beside}),
        )
    )


Change = tuple[Technique, str, Setup]


def _baseline(question: Question, plan: Setup, reserved_tokens: float) -> Setup:
    """The baseline on the fewest chips that hold the model; in the plan's format if 16 bits do not fit."""
    catalog = question.catalog
    alone = replace(plan, batching="one", reserved_tokens=reserved_tokens, cached_fraction=0.0)
    naive = replace(alone, graphs=False, fused_attention=False, paged=False)
    half = next((d for d in HALF if d in plan.lane.framework.kv_dtypes), plan.lane.choice.kv_dtype)
    tries = []
    for q in dict.fromkeys((_published_format(catalog, plan.lane), plan.lane.choice.quantization)):
        for kv in dict.fromkeys((half, plan.lane.choice.kv_dtype)):
            tries += [
                replace(naive, lane=_changed(plan.lane, quantization=q, kv_dtype=kv, **size))
                for size in _sizes(catalog.model, plan.lane)
            ]
    fitting = [m.setup for m in estimate_setups(question.workload, catalog.model, tries) if m.fits]
    return fitting[0] if fitting else replace(naive, lane=plan.lane, paged=True)


def _changed(lane: Lane, **fields: object) -> Lane:
    return replace(lane, choice=replace(lane.choice, **fields))  # type: ignore[arg-type]


def _sizes(model: Model, lane: Lane) -> list[dict[str, int]]:
    """Parallel sizes to try: the plan's layout, then more chips of the link domain."""
    c, a = lane.choice, lane.choice.accelerator
    reach = max(a.links[0].chips if a.links else 1, a.chips_per_host)
    heads = [b.mixer.heads for b in model.blocks if isinstance(b.mixer, SoftmaxAttention)]
    layouts = [{"tp": c.tp, "dp": c.dp, "ep": c.ep}]
    for n in (2, 4, 8, 16):
        if c.dp == 1 and c.tp < n <= reach and not any(h % n for h in heads):
            layouts.append({"tp": n, "dp": 1, "ep": n if c.ep > 1 else 1})
    return layouts


def _published_format(catalog: Catalog, lane: Lane) -> Quantization:
    """The model's published format if the framework and chip support it, else a 16-bit format."""
    half = [q for name in HALF for q in catalog.quantizations if q.slug == name]
    wanted = [q for q in catalog.quantizations if is_published(catalog.model, q)] + half
    f, a = lane.framework, lane.choice.accelerator
    run = (weights_on(f, a, q, catalog.model) for q in wanted)
    return next((r for r in run if isinstance(r, Quantization)), lane.choice.quantization)


def _chain(plan: Setup, base: Setup) -> Iterator[Change]:
    """Changes from the baseline to the plan, one field per step; steps without effect are skipped."""
    c, at = plan.lane.choice, base
    reserved, block = f"{base.reserved_tokens:,.0f}", plan.lane.framework.block_tokens
    yield techniques.NAIVE, f"{at.lane.choice.quantization.name} on {counted_chips(at.lane)}", at
    order: list[tuple[Technique, str, dict[str, object]]] = [
        (techniques.GRAPHS, "CUDA graphs on", {"graphs": plan.graphs}),
        (techniques.FUSED_ATTENTION, "attention scores stay on chip", {"fused_attention": True}),
        (techniques.STATIC_BATCHES, f"largest batch with {reserved} tokens reserved each", {"batching": "static"}),
        (techniques.CONTINUOUS, "requests join and leave between steps", {"batching": plan.batching}),
        (techniques.PAGED, f"blocks of {block} tokens instead of {reserved} reserved tokens", {"paged": True}),
    ]  # fmt: skip
    for technique, change, fields in order:
        after = replace(at, **fields)  # type: ignore[arg-type]
        if after != at:
            at = after
            yield technique, change, at
    layout = {"tp": c.tp, "dp": c.dp, "ep": c.ep}
    moves: list[tuple[Technique, str, dict[str, object]]] = [
        (techniques.FORMAT, c.quantization.name, {"quantization": c.quantization}),
        (techniques.SIZE, counted_chips(plan.lane), dict(layout)),
        (techniques.CACHE_FORMAT, f"{c.kv_dtype} KV cache", {"kv_dtype": c.kv_dtype}),
    ]
    for technique, change, fields in moves:
        moved = replace(at, lane=_changed(at.lane, **fields))
        if moved != at:
            at = moved
            yield technique, change, at
    if plan.cached_fraction:
        yield (
            techniques.PREFIX,
            f"{plan.cached_fraction:.0%} of a prompt is cached",
            replace(at, cached_fraction=plan.cached_fraction),
        )


def counted_chips(lane: Lane) -> str:
    """Chips per replica as text."""
    n = lane.choice.tp * lane.choice.dp * lane.choice.pp
    return f"{n} chip{'s' if n != 1 else ''} per replica"


def _plan_steps(chain: Sequence[Change], figures: Sequence[SetupEstimate]) -> Iterator[Step]:
    before = math.nan
    for (technique, change, _), figure in zip(chain, figures, strict=False):
        now = figure.output_tokens_per_s_per_chip
        yield Step(
            technique=technique,
            state="base" if technique is techniques.NAIVE else "used",
            change=change,
            estimate=figure,
            gain_ratio=now / before if before else math.nan,
            because=technique.loses if now < before else "",
        )
        before = now


# --- other techniques -------------------------------------------------------------------------------------------


def candidate_changes(question: Question, plan: Setup, own: Draft | None) -> Iterator[Change]:
    """Techniques the plan could add, each as one change to the plan; of drafts only `own` if the deployment has one."""
    catalog = question.catalog
    c, f, a = plan.lane.choice, plan.lane.framework, plan.lane.choice.accelerator
    published = published_bits(catalog)
    for q in catalog.quantizations:
        if q.bits_per_weight >= c.quantization.bits_per_weight or not can_convert(catalog.model, q, published):
            continue
        run = weights_on(f, a, q, catalog.model)
        if isinstance(run, Quantization):
            yield techniques.FORMAT, run.name, replace(plan, lane=_changed(plan.lane, quantization=run))
    for kv in f.kv_dtypes:
        smaller = KV_BYTES.get(kv, math.inf) < KV_BYTES[c.kv_dtype]
        if smaller and not cache_unsupported(f, a, kv, catalog.model):
            yield techniques.CACHE_FORMAT, f"{kv} KV cache", replace(plan, lane=_changed(plan.lane, kv_dtype=kv))
    if supports_drafts(c):
        for row in methods_of(f, catalog.model, catalog.acceptances, question.workload.task):
            for draft in drafts_of(catalog.model, row):
                if own is not None and (draft.method, draft.tokens) != (own.method, own.tokens):
                    continue
                drafted = f"{draft.tokens} draft token{'s' if draft.tokens != 1 else ''} per step"
                change = f"{draft.name}, {drafted}, mean acceptance length {draft.shown_tokens:.2f}"
                yield techniques.DRAFTING, change, replace(plan, draft=draft)
    if not kv_offload.refusal(question.workload, f, a, catalog.host_copy):
        yield techniques.OFFLOAD, *offloaded(question, plan)
    if "disaggregation" in f.features and a.links and c.pp == 1:
        yield techniques.DISAGGREGATION, "two pools with matched rates", replace(plan, disaggregated=True)


def offloaded(question: Question, plan: Setup) -> tuple[str, Setup]:
    """(change as text, the plan with KV-cache offload to host memory)."""
    catalog = question.catalog
    assert question.workload.host_cache_hit_fraction is not None and catalog.host_copy is not None
    share = min(question.workload.host_cache_hit_fraction, 1.0 - plan.cached_fraction)
    rate = plan.lane.choice.accelerator.pcie_bytes_per_s * catalog.host_copy.rate_fraction
    option = plan.lane.framework.host_cache_option
    size = offload_gib(catalog, plan)
    room = f" {size}: the host's memory, less what the host needs itself" if size else ""
    change = (
        f"{share:.0%} of a prompt loaded at {rate / 1e9:.1f} GB/s per chip instead of prefilled ({option}{room}); "
        f"achieved link rate: {catalog.host_copy.source}"
    )
    return change, replace(plan, host_cached_fraction=share, host_bytes_per_s=rate)


def _other_steps(
    workload: Workload,
    model: Model,
    plan: Setup,
    others: Sequence[Change],
    figures: Sequence[SetupEstimate],
    current: SetupEstimate,
) -> Iterator[Step]:
    """The best variant of each technique outside the plan, with its gain over the plan."""
    best: dict[str, tuple[Change, SetupEstimate]] = {}
    for candidate, figure in zip(others, figures, strict=True):
        kept = best.get(candidate[0].slug)
        if kept is None or figure.output_tokens_per_s_per_chip > kept[1].output_tokens_per_s_per_chip:
            best[candidate[0].slug] = candidate, figure
    for (technique, change, setup), figure in best.values():
        yield Step(
            technique=technique,
            state="possible",
            change=change,
            estimate=figure,
            gain_ratio=figure.output_tokens_per_s_per_chip / current.output_tokens_per_s_per_chip,
            because=_drafting_note(workload, model, plan, setup)
            if setup.draft
            else _quality_note(workload, model, setup, plan),
        )


def _quality_note(workload: Workload, model: Model, setup: Setup, plan: Setup) -> str:
    q = setup.lane.choice.quantization
    lossy = quality_of(model, q) == "lossy"
    if q != plan.lane.choice.quantization and lossy and workload.constraints.quality != "any":
        return f"outside the requested quality ({workload.constraints.quality.replace('_', '-')})"
    return ""


def _drafting_note(workload: Workload, model: Model, plan: Setup, setup: Setup) -> str:
    """The speedup of a draft at batch size 1 and the batch size where it stops helping, as text."""
    built = lanes(model, [plan.as_run])
    seats = seats_of(plan)
    demand, scheduler = demand_of(workload), scheduler_for(plan)
    both = concatenate([times_of(model, s, built, 0) for s in (plan, setup)])
    rates = closed_loop(both, np.broadcast_to(seats, (2, len(seats))), demand, scheduler).output_tokens_per_s
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.nan_to_num(rates[1] / rates[0])
    losing = np.flatnonzero(ratio < 1.0)
    draft = setup.draft
    assert draft is not None
    end = (
        f"no gain above a batch size of about {seats[losing[0]]:.0f}"
        if len(losing)
        else "gains at every batch size that fits in the KV cache"
    )
    rate = f"acceptance rate {draft.accepted_fraction:.2f} " if draft.accepted_fraction else ""
    return f"{ratio[0]:.2f} times the speed at batch size 1; {end}; {rate}{published(draft.task)}: {draft.source}"


def published(task: str) -> str:
    """For which task of the workload an acceptance was published."""
    return "published without stating a task" if task == "any" else f"published for {task}"


def offload_gib(catalog: Catalog, plan: Setup) -> int:
    """Whole GiB of host memory for the offloaded cache of one replica, of all its chips; 0: the host is unknown."""
    if plan.offer is None or plan.offer.host is None or catalog.weight_store is None:
        return 0
    c, o = plan.lane.choice, plan.offer
    share = min(c.tp * c.pp * c.dp / o.accelerators, 1.0)
    return int(plan.offer.host.memory_bytes * catalog.weight_store.offload_fraction * share / 2.0**30)


def _inapplicable_steps(question: Question, plan: Setup, s: Scored, there: set[str]) -> Iterator[Step]:
    """Techniques that are only cited, and those that do not apply, with the reason."""
    workload = question.workload
    f, name = plan.lane.framework, f"{plan.lane.framework.name} {plan.lane.framework.version}"
    yield Step(technique=techniques.COMPILE, state="cited", change="not modeled", because=techniques.COMPILE.cited)
    change, does = precompiled.cold_start_saving(workload, s, question.catalog.prepared_start)
    yield Step(
        technique=techniques.AHEAD,
        state="hours" if change else "cited",
        change=change or "instances do not restart: the load is constant or not billed hourly",
        because=does or techniques.AHEAD.cited,
    )
    if techniques.OFFLOAD.slug not in there:
        why = kv_offload.refusal(workload, f, plan.lane.choice.accelerator, question.catalog.host_copy)
        yield Step(technique=techniques.OFFLOAD, state="cited", change=why, because=techniques.OFFLOAD.cited)
    reasons = {
        techniques.GRAPHS: f"{name} launches every kernel separately",
        techniques.CONTINUOUS: f"{name} uses static batching",
        techniques.FORMAT: f"{name} supports no lower precision on this chip than the plan's",
        techniques.CACHE_FORMAT: f"{name} supports no lower-precision KV cache on this chip",
        techniques.PREFIX: "the workload has a prefix cache hit rate of 0"
        if "prefix_caching" in f.features
        else f"{name} has no known prefix caching",
        techniques.DRAFTING: f"{name} has no speculative decoding with a published acceptance rate for {workload.task}",
        techniques.DISAGGREGATION: f"{name} has no known disaggregated serving on this chip",
    }
    for technique, why in reasons.items():
        if technique.slug not in there:
            yield Step(technique=technique, state="not_here", change="", because=why)
