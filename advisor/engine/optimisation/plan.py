"""The optimisation plan: from naive serving of this workload on this chip to the plan that is advised, step by step.

Every step is the same estimate with one field of a Setup changed, so another chip, model or workload gives other
gains. The figure is output tokens/s of one chip with as many requests at once as the cache holds and the limit on
TPOT allows, in closed form. Techniques beyond the plan are each measured against it; they do not add up. What these
formulas cannot tell is listed with a cited range and enters no product.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.engine.launch import longest
from advisor.engine.network import Attention, LatentAttention, Model, decoder_blocks
from advisor.engine.optimisation import precompiled, techniques
from advisor.engine.optimisation.techniques import Technique
from advisor.engine.scheduler import closed_loop, matched, scheduler_of
from advisor.engine.search import CONCURRENCY, Catalog, Scored, demand_of, tpot_limit_s
from advisor.engine.spec import Quantization, Workload
from advisor.engine.step import (
    EMBEDDING,
    HALF,
    KV_BYTES,
    Array,
    Draft,
    Lane,
    Lanes,
    Scheduler,
    StepTimes,
    concatenate,
    drafts_of,
    kv_offload,
    lanes,
    methods_of,
    rate_of,
    supports_drafts,
    take,
    unsupported,
    with_draft,
)

SCORE_BYTES = 8.0  # of one score and layer without fused attention: written and read, before and after the softmax
SEATS = np.unique(np.round(np.geomspace(1, CONCURRENCY[-1], 48)))  # finer than the search's: gains are ratios of these
UNBOUNDED = 1024  # ours: requests of a static batch at most; the memory decides before, but for the smallest models
PAIRS = 2.0  # a plain kernel computes the half that the causal mask drops as well


@dataclass(frozen=True, kw_only=True, slots=True)
class Setup:
    """One way to run the model on one kind of chip."""

    lane: Lane
    batching: str = "continuous"  # one | static | continuous
    graphs: bool = True
    fused_attention: bool = True
    paged: bool = True
    reserved_tokens: float = 0.0  # a sequence without paging
    load_requests: float = 1.0  # at once in a lane at the workload's peak
    cached_fraction: float = 0.0  # of a prompt, found in the prefix cache
    host_cached_fraction: float = 0.0  # of a prompt besides, found in the host's memory
    host_bytes_per_s: float = math.inf  # from the host to one chip
    draft: Draft | None = None
    disaggregated: bool = False  # prefill and decode in matched pools


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """What a setup reaches on one chip at the best load within the limit on TPOT."""

    output_tokens_per_s_per_chip: float  # 0: it does not fit
    tpot_s: float
    ttft_s: float
    concurrency: float  # requests at once in one lane
    light_tpot_s: float  # with as many at once as the plan has at the peak
    within_limit: bool  # of TPOT; False: even alone a request is slower, and this is alone
    setup: Setup

    @property
    def fits(self) -> bool:
        return self.output_tokens_per_s_per_chip > 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One technique: used in the plan, possible beside it, cited only, or not here."""

    technique: Technique
    state: str  # base | used | possible | hours (of instances, not tokens/s) | cited | not_here
    change: str  # the field that changed, in words
    measured: Measured | None = None
    gain_ratio: float = math.nan  # against the step before (used) or the plan (possible)
    because: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class OptimisationPlan:
    """From naive to the plan, then what else there is."""

    steps: tuple[Step, ...]

    @property
    def gain_ratio(self) -> float:
        """The plan against the naive start."""
        chain = [s.measured for s in self.steps if s.state in ("base", "used") and s.measured]
        return chain[-1].output_tokens_per_s_per_chip / chain[0].output_tokens_per_s_per_chip


# --- one estimate of many setups --------------------------------------------------------------------------------


def measured(workload: Workload, model: Model, setups: Sequence[Setup]) -> list[Measured]:
    """One figure a setup, in order; step times are computed in one go, closed loops in one for each way of batching."""
    if not setups:
        return []
    built = lanes(model, [s.lane for s in setups])
    groups: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for i, s in enumerate(setups):
        if built.memory.fits[i]:
            groups[_alike(s)].append(i)
    found = {i: _nothing(s) for i, s in enumerate(setups)}
    for members in groups.values():
        found |= _loops(workload, model, setups, built, members)
    return [found[i] for i in range(len(setups))]


def _alike(s: Setup) -> tuple[object, ...]:
    """What setups must share to be computed in one closed loop."""
    cached = (s.cached_fraction, s.host_cached_fraction)
    return scheduler_for(s), s.batching, cached, s.disaggregated, s.lane.max_running_requests


def _loops(
    workload: Workload, model: Model, setups: Sequence[Setup], built: Lanes, members: Sequence[int]
) -> dict[int, Measured]:
    """Setups that are batched alike."""
    s = setups[members[0]]
    found = s.cached_fraction + s.host_cached_fraction
    demand, scheduler = replace(demand_of(workload), cached_fraction=found), scheduler_for(s)
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
        if s.host_cached_fraction:  # the link may be what a lane waits for
            rate = np.minimum(rate, demand.output_tokens / np.maximum(busy_s[:, None], 1e-12))
    limit = tpot_limit_s(workload) or math.inf
    return {i: _best(setups[i], rate[k], tpot[k], ttft[k], running[k], limit) for k, i in enumerate(members)}


def _best(s: Setup, rate: Array, tpot: Array, ttft: Array, running: Array, limit_s: float) -> Measured:
    """The quickest load within the limit on TPOT; where there is none, one request alone."""
    allowed = np.flatnonzero((tpot <= limit_s) & (rate > 0))
    best = int(allowed[np.argmax(rate[allowed])]) if len(allowed) else 0
    if not rate[best] > 0:
        return _nothing(s)
    return Measured(
        output_tokens_per_s_per_chip=float(rate[best]) / s.lane.choice.tp,
        tpot_s=float(tpot[best]),
        ttft_s=float(ttft[best]),
        concurrency=float(running[best]),
        light_tpot_s=float(np.interp(s.load_requests, running, tpot)),
        within_limit=bool(len(allowed)),
        setup=s,
    )


def seats_of(s: Setup) -> np.ndarray:
    """Requests at once in one lane that are tried."""
    return np.minimum(SEATS, s.lane.max_running_requests)


def _nothing(s: Setup) -> Measured:
    nan = math.nan
    return Measured(
        output_tokens_per_s_per_chip=0.0,
        tpot_s=nan,
        ttft_s=nan,
        concurrency=0.0,
        light_tpot_s=nan,
        within_limit=False,
        setup=s,
    )


def times_of(model: Model, s: Setup, built: Lanes, i: int) -> StepTimes:
    """The step times of one setup's lane, with what its fields leave out put back."""
    times = take(built.times, np.array([i]))
    if not s.graphs:  # nor compiled: more kernels a layer than where only the graphs are missing
        layers = sum(b.count for b in decoder_blocks(model))
        floor_s = np.maximum(times.eager_floor_s, s.lane.choice.overhead.uncompiled_s_per_layer * layers)
        times = replace(times, graph_max_tokens=np.zeros(1), eager_floor_s=floor_s)
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
    """Seconds that a (query, key) pair costs more when scores go through memory (arXiv 2205.14135, algorithm 0)."""
    heads = sum(
        b.count * b.mixer.heads for b in decoder_blocks(model) if isinstance(b.mixer, Attention | LatentAttention)
    )
    return heads / tp * PAIRS * SCORE_BYTES / memory_bytes_per_s


def scheduler_for(s: Setup) -> Scheduler:
    """The framework's own, or batches to their end: of one request, or of as many as the cache holds."""
    if s.batching == "continuous":
        return scheduler_of(s.lane)
    return replace(scheduler_of(s.lane, static=True), max_running_requests=1 if s.batching == "one" else UNBOUNDED)


def transfer_s(workload: Workload, lane: Lane, built: Lanes, i: int) -> float:
    """Seconds in which the cache of a mean prompt crosses the network, each chip sending its own part."""
    links = lane.choice.accelerator.links
    return prompt_bytes(workload, lane, built, i) / links[-1].bytes_per_s if links else math.inf


def host_copies_s(workload: Workload, s: Setup, built: Lanes, i: int) -> tuple[float, float]:
    """offload.copies_s of a mean prompt; a request waits for its load while others run on."""
    if not s.host_cached_fraction:
        return 0.0, 0.0
    return kv_offload.copies_s(
        prompt_bytes(workload, s.lane, built, i), s.host_cached_fraction, s.cached_fraction, s.host_bytes_per_s
    )


def prompt_bytes(workload: Workload, lane: Lane, built: Lanes, i: int) -> float:
    """Cache of a mean prompt on one chip of a lane."""
    return float(built.memory.kv_bytes_per_sequence[i]) / lane.context_tokens * workload.input_tokens.mean_tokens


# --- from naive to the plan -------------------------------------------------------------------------------------


def free(lane: Lane) -> Lane:
    """The lane without the cap that the plan sets for its own load."""
    return replace(lane, max_running_requests=min(lane.framework.max_running_requests, int(CONCURRENCY[-1])))


def planned(workload: Workload, s: Scored) -> Setup:
    """The advised plan as a setup."""
    caches = "prefix_caching" in s.lane.framework.features
    return Setup(
        lane=free(s.lane),
        batching="static" if s.lane.framework.scheduler == "static" else "continuous",
        graphs=s.lane.framework.graph_max_tokens > 0,
        load_requests=max(s.verified.running_requests_mean, 1.0),
        cached_fraction=workload.prefix_cache_hit_fraction if caches else 0.0,
    )


def optimisation_plan(workload: Workload, catalog: Catalog, s: Scored) -> OptimisationPlan | None:
    """None where no tokens are generated: its steps are about decoding."""
    if workload.kind == EMBEDDING or catalog.model.encoder_only:
        return None
    plan = planned(workload, s)
    reserved = float(longest(s, catalog.model, workload).tokens)
    chain = list(_chain(plan, _base(workload, catalog, plan, reserved)))
    others = list(possible(workload, catalog, plan))
    figures = measured(workload, catalog.model, [setup for _, _, setup in (*chain, *others)])
    used = list(_used(chain, figures))
    beside = list(_beside(workload, catalog.model, plan, others, figures[len(chain) :], figures[len(chain) - 1]))
    return OptimisationPlan(
        steps=(*used, *beside, *_absent(workload, catalog, plan, s, {x.technique.slug for x in used + beside}))
    )


Change = tuple[Technique, str, Setup]


def _base(workload: Workload, catalog: Catalog, plan: Setup, reserved_tokens: float) -> Setup:
    """The naive start on the fewest chips that hold it; from the plan's own format where 16 bits fit nowhere."""
    alone = replace(plan, batching="one", reserved_tokens=reserved_tokens, cached_fraction=0.0)
    naive = replace(alone, graphs=False, fused_attention=False, paged=False)
    half = next((d for d in HALF if d in plan.lane.framework.kv_dtypes), plan.lane.choice.kv_dtype)
    tries = []
    for q in dict.fromkeys((_widest(catalog, plan.lane), plan.lane.choice.quantization)):
        for kv in dict.fromkeys((half, plan.lane.choice.kv_dtype)):
            tries += [
                replace(naive, lane=_changed(plan.lane, quantization=q, kv_dtype=kv, **size))
                for size in _sizes(catalog.model, plan.lane)
            ]
    fitting = [m.setup for m in measured(workload, catalog.model, tries) if m.fits]
    return fitting[0] if fitting else replace(naive, lane=plan.lane, paged=True)


def _changed(lane: Lane, **fields: object) -> Lane:
    return replace(lane, choice=replace(lane.choice, **fields))  # type: ignore[arg-type]


def _sizes(model: Model, lane: Lane) -> list[dict[str, int]]:
    """The plan's layout, then the same over more chips of the domain."""
    c, a = lane.choice, lane.choice.accelerator
    reach = max(a.links[0].chips if a.links else 1, a.chips_per_host)
    heads = [b.mixer.heads for b in model.blocks if isinstance(b.mixer, Attention | LatentAttention)]
    found = [{"tp": c.tp, "dp": c.dp, "ep": c.ep}]
    for n in (2, 4, 8, 16):
        if c.dp == 1 and c.tp < n <= reach and not any(h % n for h in heads):
            found.append({"tp": n, "dp": 1, "ep": n if c.ep > 1 else 1})
    return found


def _widest(catalog: Catalog, lane: Lane) -> Quantization:
    """The format in which the model is published, if this framework and chip take it."""
    native = [q for q in catalog.quantizations if catalog.model.native_dtype in (q.slug, q.weights_dtype)]
    taken = [
        q for q in native if q.slug in lane.framework.quantizations and not unsupported(lane.choice.accelerator, q)
    ]
    half = [q for q in catalog.quantizations if q.slug in HALF and q.slug in lane.framework.quantizations]
    return next(iter(taken or half), lane.choice.quantization)


def _chain(plan: Setup, base: Setup) -> Iterator[Change]:
    """From the base to the plan, one field a step; what the base already has is passed over."""
    c, at = plan.lane.choice, base
    reserved, block = f"{base.reserved_tokens:,.0f}", plan.lane.framework.block_tokens
    yield techniques.NAIVE, f"{at.lane.choice.quantization.name} on {counted_chips(at.lane)}", at
    order: list[tuple[Technique, str, dict[str, object]]] = [
        (techniques.GRAPHS, "graphs on", {"graphs": plan.graphs}),
        (techniques.FUSED_ATTENTION, "scores stay on the chip", {"fused_attention": True}),
        (techniques.STATIC_BATCHES, f"as many as {reserved} reserved tokens each allow", {"batching": "static"}),
        (techniques.CONTINUOUS, "requests join and leave between steps", {"batching": plan.batching}),
        (techniques.PAGED, f"blocks of {block} tokens, not {reserved} reserved", {"paged": True}),
    ]  # fmt: skip
    for technique, words, changed in order:
        after = replace(at, **changed)  # type: ignore[arg-type]
        if after != at:
            at = after
            yield technique, words, at
    layout = {"tp": c.tp, "dp": c.dp, "ep": c.ep}
    moves: list[tuple[Technique, str, dict[str, object]]] = [
        (techniques.FORMAT, c.quantization.name, {"quantization": c.quantization}),
        (techniques.SIZE, counted_chips(plan.lane), dict(layout)),
        (techniques.CACHE_FORMAT, f"cache in {c.kv_dtype}", {"kv_dtype": c.kv_dtype}),
    ]
    for technique, words, changed in moves:
        moved = replace(at, lane=_changed(at.lane, **changed))
        if moved != at:
            at = moved
            yield technique, words, at
    if plan.cached_fraction:
        yield (
            techniques.PREFIX,
            f"{plan.cached_fraction:.0%} of a prompt is found",
            replace(at, cached_fraction=plan.cached_fraction),
        )


def counted_chips(lane: Lane) -> str:
    """How many chips a replica takes, in words."""
    n = lane.choice.tp * lane.choice.dp * lane.choice.pp
    return f"{n} chip{'s' if n != 1 else ''} a replica"


def _used(chain: Sequence[Change], figures: Sequence[Measured]) -> Iterator[Step]:
    before = math.nan
    for (technique, words, _), figure in zip(chain, figures, strict=False):
        now = figure.output_tokens_per_s_per_chip
        yield Step(
            technique=technique,
            state="base" if technique is techniques.NAIVE else "used",
            change=words,
            measured=figure,
            gain_ratio=now / before if before else math.nan,
        )
        before = now


# --- beside the plan --------------------------------------------------------------------------------------------


def possible(workload: Workload, catalog: Catalog, plan: Setup) -> Iterator[Change]:
    """What the plan does not use and could: each one change of the plan."""
    c, f, a = plan.lane.choice, plan.lane.framework, plan.lane.choice.accelerator
    for q in catalog.quantizations:
        if q.slug in f.quantizations and q.bits_per_weight < c.quantization.bits_per_weight and not unsupported(a, q):
            yield techniques.FORMAT, q.name, replace(plan, lane=_changed(plan.lane, quantization=q))
    for kv in f.kv_dtypes:
        if KV_BYTES.get(kv, math.inf) < KV_BYTES[c.kv_dtype] and (kv != "fp8" or rate_of(a, "fp8")):
            yield techniques.CACHE_FORMAT, f"cache in {kv}", replace(plan, lane=_changed(plan.lane, kv_dtype=kv))
    if supports_drafts(c):
        for row in methods_of(f, catalog.model, catalog.acceptances, workload.task):
            for draft in drafts_of(catalog.model, row):
                words = f"{draft.name}, {draft.tokens} a step, {draft.shown_tokens:.2f} tokens shown"
                yield techniques.DRAFTING, words, replace(plan, draft=draft)
    if not kv_offload.refusal(workload, f, a, catalog.host_copy):
        yield techniques.OFFLOAD, *offloaded(workload, catalog, plan)
    if "disaggregation" in f.features and a.links and c.pp == 1:
        yield techniques.DISAGGREGATION, "two pools, rates matched", replace(plan, disaggregated=True)


def offloaded(workload: Workload, catalog: Catalog, plan: Setup) -> tuple[str, Setup]:
    """The plan with the host's memory behind its prefix cache, and what changed in words."""
    assert workload.host_cache_hit_fraction is not None and catalog.host_copy is not None
    share = min(workload.host_cache_hit_fraction, 1.0 - plan.cached_fraction)
    rate = plan.lane.choice.accelerator.pcie_bytes_per_s * catalog.host_copy.rate_fraction
    option = plan.lane.framework.host_cache_option
    words = (
        f"{share:.0%} of a prompt loaded at {rate / 1e9:.1f} GB/s a chip instead of prefilled ({option}); share of the "
        f"link's rate: {catalog.host_copy.source}"
    )
    return words, replace(plan, host_cached_fraction=share, host_bytes_per_s=rate)


def _beside(
    workload: Workload, model: Model, plan: Setup, others: Sequence[Change], figures: Sequence[Measured], now: Measured
) -> Iterator[Step]:
    """The best variant of each technique that is not in the plan, against the plan."""
    best: dict[str, tuple[Change, Measured]] = {}
    for change, figure in zip(others, figures, strict=True):
        kept = best.get(change[0].slug)
        if kept is None or figure.output_tokens_per_s_per_chip > kept[1].output_tokens_per_s_per_chip:
            best[change[0].slug] = change, figure
    for (technique, words, setup), figure in best.values():
        yield Step(
            technique=technique,
            state="possible",
            change=words,
            measured=figure,
            gain_ratio=figure.output_tokens_per_s_per_chip / now.output_tokens_per_s_per_chip,
            because=_drafting_words(workload, model, plan, setup)
            if setup.draft
            else _quality_words(workload, setup, plan),
        )


def _quality_words(workload: Workload, setup: Setup, plan: Setup) -> str:
    q = setup.lane.choice.quantization
    if q != plan.lane.choice.quantization and q.quality == "lossy" and workload.constraints.quality != "any":
        return f"outside the asked quality ({workload.constraints.quality})"
    return ""


def _drafting_words(workload: Workload, model: Model, plan: Setup, setup: Setup) -> str:
    """What it does for one request alone, and the number of requests at which it stops paying."""
    built = lanes(model, [plan.lane])
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
        f"stops paying at about {seats[losing[0]]:.0f} requests at once"
        if len(losing)
        else "pays at every load that its cache holds"
    )
    task = (
        f"acceptance {draft.accepted_fraction:.2f} of {draft.task}"
        if draft.accepted_fraction
        else f"published for {draft.task}"
    )
    return f"{ratio[0]:.2f} times the speed of one request alone; {end}; {task}: {draft.source}"


def _absent(workload: Workload, catalog: Catalog, plan: Setup, s: Scored, there: set[str]) -> Iterator[Step]:
    """What is only cited, and what does not apply here with why."""
    f, name = plan.lane.framework, f"{plan.lane.framework.name} {plan.lane.framework.version}"
    yield Step(technique=techniques.COMPILE, state="cited", change="not modelled", because=techniques.COMPILE.cited)
    change, does = precompiled.gained(workload, s, catalog.prepared_start)
    yield Step(
        technique=techniques.AHEAD,
        state="hours" if change else "cited",
        change=change or "no instance is started again: the load is level, or is not paid by the hour",
        because=does or techniques.AHEAD.cited,
    )
    if techniques.OFFLOAD.slug not in there:
        why = kv_offload.refusal(workload, f, plan.lane.choice.accelerator, catalog.host_copy)
        yield Step(technique=techniques.OFFLOAD, state="cited", change=why, because=techniques.OFFLOAD.cited)
    reasons = {
        techniques.GRAPHS: f"{name} launches every kernel by itself",
        techniques.CONTINUOUS: f"{name} runs a batch to its end",
        techniques.FORMAT: f"{name} takes nothing narrower on this chip than what the plan has",
        techniques.CACHE_FORMAT: f"{name} keeps no narrower cache on this chip",
        techniques.PREFIX: "the workload states that no part of a prompt is found again"
        if "prefix_caching" in f.features
        else f"{name} is not known to share prefixes",
        techniques.DRAFTING: f"{name} documents no method of drafting with a published acceptance for {workload.task}",
        techniques.DISAGGREGATION: f"{name} on this chip is not known to run in two pools",
    }
    for technique, why in reasons.items():
        if technique.slug not in there:
            yield Step(technique=technique, state="not_here", change="", because=why)
