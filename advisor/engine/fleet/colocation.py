"""Colocation: several small models per card, as processes that share memory or in hardware partitions.

Processes add up in memory and time-slice the card's cores and bandwidth. A step slows down by the number of processes
that are busy at the same time (round robin). A process is busy with probability 1 - exp(-rate x time in system), from
the M/G/inf queue, and slower steps raise that probability. Overlapping kernels (MPS) can only be faster; switching
cost is not modeled. Cards are filled first-fit by decreasing size and then simulated. Copies of one workload never
share a card, because a card fails as a whole, and spares take cards in servers of their own.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from advisor.engine.fleet.milp import Limits
from advisor.engine.fleet.portfolio import Member
from advisor.engine.network import Model
from advisor.engine.scheduler import REQUESTS, OpenLoop, Verified, open_loop, scheduler_of, verify
from advisor.engine.search import (
    HEADROOM_FRACTION,
    demand_of,
    excess,
    instances_needed,
    latency_excess,
    licence_of,
    offer_usd_per_hour,
    offers_for,
    team_usd_per_hour,
)
from advisor.engine.step import Lane, Memory, Scheduler, StepTimes, lanes, take
from advisor.engine.terms import KINDS, Accelerator, Offer, Partition, Workload, cut_into, packing

NO_LIMITS = Limits()
KV_MARGIN = 1.5  # KV cache of a process over that of its running requests at the peak
CHIPS_TRIED = 6  # cheapest cards that all workloads can use
ROUNDS = 12  # fixed-point iterations for busy fractions
SLACKS = (1.0, 0.8, 0.6)  # estimates within this share of the limits; tighter after a failed simulation
STRETCHED = (
    *("linear_s", "sample_s_per_sequence", "decode_s_per_context_token"),
    *("repeat_s_per_context_token", "window_s_per_context_token"),
    *("decode_s_per_sequence", "source_s_per_sequence", "prefill_s_per_pair", "window_prefill_s_per_pair"),
)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Copy:
    """One copy of a workload's model on a card, with its share of the peak; equal copies are one object."""

    member_index: int
    workload: Workload
    model: Model
    lane: Lane
    times: StepTimes  # of one lane alone on the card
    needed_bytes: float  # weights, workspace, framework overhead and KV cache at its peak
    fixed_bytes: float  # `needed_bytes` without the KV cache
    kv_token_bytes: float
    requests_per_s: float
    load_fraction: float  # of the whole card's capacity


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """One process's share of a card."""

    memory_fraction: float
    stretch: float  # step time relative to running alone
    busy_fraction: float  # of time
    times: StepTimes  # of its lane on the shared card


@dataclass(frozen=True, kw_only=True, slots=True)
class Tenant:
    """A copy on its card, as simulated."""

    copy: Copy
    memory_fraction: float  # of the card's memory for its server
    partition: Partition | None  # None: a process that shares the card
    stretch: float  # step time relative to running alone
    busy_fraction: float  # of time
    verified: Verified


@dataclass(frozen=True, kw_only=True, slots=True)
class Card:
    """One card with the copies that share it."""

    tenants: tuple[Tenant, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Packing:
    """Cards of one kind that serve all workloads within their limits, or the reason why there are none."""

    accelerator: Accelerator | None
    offer: Offer | None
    instances: int
    cards: tuple[Card, ...]
    usd_per_hour: float
    isolated: bool
    reason: str = ""


def _none(isolated: bool, reason: str) -> Packing:
    return Packing(
        accelerator=None, offer=None, instances=0, cards=(), usd_per_hour=math.inf, isolated=isolated, reason=reason
    )


def pack_models(members: Sequence[Member], isolated: bool, limits: Limits = NO_LIMITS) -> Packing:
    """The cheapest cards of one kind for all members, as processes or (`isolated`) in hardware partitions."""
    if len(members) < 2 or not all(m.workload.kind.shares_cards for m in members):
        names = " or ".join(kind.name for kind in KINDS.values() if kind.shares_cards)
        return _none(isolated, f"colocation needs two or more workloads, all of kind {names}")
    if not isolated and any(m.workload.constraints.partitions == "required" for m in members):
        return _none(isolated, "a workload requires hardware partitions")
    usd = _common_chips(members, isolated)
    if not usd:
        what = "with hardware partitions " if isolated else ""
        return _none(isolated, f"no accelerator {what}that all workloads may use fits each of the models on one card")
    best: Packing | None = None
    for slug in sorted(usd, key=lambda slug: (usd[slug], slug))[:CHIPS_TRIED]:
        if best is not None and best.usd_per_hour <= usd[slug]:
            break
        packing = _allowed(_on_chip(members, slug, isolated), limits)
        best = packing if best is None or packing.usd_per_hour < best.usd_per_hour else best
    assert best is not None
    return best


def _allowed(p: Packing, limits: Limits) -> Packing:
    """The packing, or the reason why it exceeds the portfolio's limits."""
    if p.accelerator is None or p.offer is None:
        return p
    there = limits.inventory_chips.get(p.accelerator.slug, math.inf)
    if len(p.cards) > min(there, limits.max_chips or math.inf):
        return _none(
            p.isolated, f"needs {len(p.cards)} x {p.accelerator.name}, more than the limit or than your inventory has"
        )
    if p.usd_per_hour > (limits.max_usd_per_hour or math.inf):
        return _none(p.isolated, f"{len(p.cards)} x {p.accelerator.name} exceed the budget")
    return p


def _common_chips(members: Sequence[Member], isolated: bool) -> dict[str, float]:
    """Accelerators on which every model fits on one card, with the lowest price per card, USD per hour."""
    able: list[set[str]] = []
    usd: dict[str, float] = {}
    for m in members:
        table = m.answer.table
        rows = table.lanes if table else ()
        able.append({w.choice.accelerator.slug for w in rows if _single(w, isolated)})
        for o in offers_for(m.question):
            usd[o.accelerator] = min(usd.get(o.accelerator, math.inf), o.usd_per_hour / o.accelerators)
    common = set.intersection(*able) & set(usd)
    if isolated:
        common &= {a.slug for a in members[0].catalog.accelerators if a.partitions}
    return {slug: usd[slug] for slug in common}


def _single(w: Lane, isolated: bool) -> bool:
    """Whether the lane uses one card, with a server that can be limited to part of its memory."""
    shares = w.framework.launch is not None and bool(w.framework.launch.card_share)
    return w.choice.tp * w.choice.pp * w.choice.dp == 1 and (isolated or shares)


def _on_chip(members: Sequence[Member], slug: str, isolated: bool) -> Packing:
    a = next(x for x in members[0].catalog.accelerators if x.slug == slug)
    if isolated and not a.partitions:
        return _none(isolated, f"no hardware partitions of {a.name} are known")
    copies: list[Copy] = []
    for i, m in enumerate(members):
        own = copies_of(i, m, a, isolated)
        if not own:
            return _none(isolated, f"{m.workload.name} misses its limits on one {a.name}")
        copies += own
    copies.sort(key=lambda c: (-max(c.needed_bytes / a.memory_bytes, c.load_fraction), c.member_index))
    for slack in SLACKS:
        cards = _partition_cards(copies, a, slack) if isolated else _process_cards(copies, a, slack)
        if isinstance(cards, str):
            return _none(isolated, cards)
        if all(excess(t.copy.workload, t.verified) <= 1.0 for card in cards for t in card.tenants):
            return _priced(members, a, cards, isolated)
    return _none(isolated, f"the limits are missed in simulation on {a.name}")


# --- copies -----------------------------------------------------------------------------------------------------


def copies_of(i: int, m: Member, a: Accelerator, isolated: bool = False) -> list[Copy]:
    """Equal copies of the member for its peak and spares, each on its own card; empty if one needs more than a card."""
    table, w = m.answer.table, m.workload
    if table is None or table.built is None:
        return []
    rows = [
        r
        for r, lane in enumerate(table.lanes)
        if lane.choice.accelerator.slug == a.slug and lane.choice.accelerator.cut is None and _single(lane, isolated)
    ]
    candidates: list[tuple[int, float, int, Copy]] = []
    for scheduler, own in _by_scheduler(table.lanes, rows).items():
        times = take(table.built.times, own)
        capacity = open_loop(times, np.full(len(own), 1e-9), demand_of(w), scheduler).capacity_requests_per_s
        carrying = np.maximum(np.ceil(w.requests_per_s_peak / np.maximum(capacity * HEADROOM_FRACTION, 1e-9)), 1.0)
        rate = w.requests_per_s_peak / carrying
        seen = open_loop(times, rate, demand_of(w), scheduler)
        far = latency_excess(w, seen.ttft_p95_estimate_s, seen.tpot_p95_estimate_s)
        for k in np.flatnonzero((capacity > 0) & (far <= 1.0)):
            row = int(own[k])
            load = (float(rate[k]), float(capacity[k]), float(seen.running_requests[k]))
            alone = take(times, np.array([k]))
            copy = _copy(i, m, table.lanes[row], alone, table.built.memory, row, load)
            count = int(w.slo.redundancy.replicas(int(carrying[k]), packing(1, 1)))
            candidates.append((count, copy.needed_bytes, row, copy))
    best = min(candidates, key=lambda f: f[:3], default=None)
    return [best[3]] * best[0] if best else []


def _by_scheduler(lanes: Sequence[Lane], rows: Sequence[int]) -> dict[Scheduler, np.ndarray]:
    """Row indices by scheduler, so that one closed-form call covers each group."""
    groups: dict[Scheduler, list[int]] = {}
    for row in rows:
        groups.setdefault(scheduler_of(lanes[row]), []).append(row)
    return {scheduler: np.array(own) for scheduler, own in groups.items()}


def _copy(
    i: int, m: Member, lane: Lane, times: StepTimes, room: Memory, row: int, load: tuple[float, float, float]
) -> Copy:
    """The copy of one lane; `load` is (requests/s of the copy, requests/s of the whole card, running requests)."""
    rate, capacity, running = load
    fixed = float(room.weights_bytes[row] + room.activations_bytes[row] + room.overhead_bytes[row])
    each = float(room.kv_bytes_per_sequence[row])
    longest = lane.held_tokens / lane.context_tokens
    cache = max(running * KV_MARGIN, 2.0, longest) * each
    return Copy(
        member_index=i,
        workload=m.workload,
        model=m.catalog.model,
        lane=lane,
        times=times,
        needed_bytes=fixed + cache,
        fixed_bytes=fixed,
        kv_token_bytes=each / lane.context_tokens,
        requests_per_s=rate,
        load_fraction=rate / capacity,
    )


def _excess(w: Workload, seen: OpenLoop) -> float:
    return float(latency_excess(w, seen.ttft_p95_estimate_s, seen.tpot_p95_estimate_s)[0])


# --- processes --------------------------------------------------------------------------------------------------


def _process_cards(copies: Sequence[Copy], a: Accelerator, slack: float) -> list[Card] | str:
    """First-fit packing of processes onto cards, or the reason why a copy does not fit even alone."""
    groups: list[list[Copy]] = []
    for c in copies:
        apart = (g for g in groups if all(x.member_index != c.member_index for x in g))
        home = next((g for g in apart if _fit_together([*g, c], a, slack)), None)
        if home is not None:
            home.append(c)
        elif _fit_together([c], a, slack):
            groups.append([c])
        else:
            return f"{c.workload.name} misses its limits on one {a.name}"
    return [Card(tenants=_tenants(tuple(g), a.memory_bytes)) for g in groups]


def memory_share(memory_bytes: float, copies: Sequence[Copy]) -> list[float]:
    """Fraction of the card's memory per process: its need, plus free memory in proportion to its KV cache."""
    limit = min(c.lane.framework.memory_fraction for c in copies)
    left = limit * memory_bytes - sum(c.needed_bytes for c in copies)
    caches = [c.needed_bytes - c.fixed_bytes for c in copies]
    return [(c.needed_bytes + left * k / sum(caches)) / memory_bytes for c, k in zip(copies, caches, strict=True)]


def _shared_times(c: Copy, memory_bytes: float, stretch: float) -> StepTimes:
    """Step times of a copy with this memory, and device time multiplied by `stretch`."""
    slower = {name: getattr(c.times, name) * stretch for name in STRETCHED}
    tokens = np.array([max(math.floor((memory_bytes - c.fixed_bytes) / max(c.kv_token_bytes, 1e-9)), 0.0)])
    return replace(c.times, **slower, kv_capacity_tokens=np.minimum(tokens, c.times.kv_capacity_tokens))


def stretches(copies: Sequence[Copy], shares_bytes: Sequence[float]) -> tuple[list[float], list[float]]:
    """(step-time factor, busy fraction) of each process, from a fixed-point iteration.

    A busy process shares the card with, on average, the sum of the others' busy fractions.
    """
    stretch, busy = [1.0] * len(copies), [0.0] * len(copies)
    for _ in range(ROUNDS):
        for k, (c, room) in enumerate(zip(copies, shares_bytes, strict=True)):
            w = c.workload
            rate = np.array([c.requests_per_s])
            seen = open_loop(_shared_times(c, room, stretch[k]), rate, demand_of(w), scheduler_of(c.lane))
            in_system_s = seen.ttft_mean_s[0] + (w.output_tokens.mean_tokens - 1) * seen.tpot_mean_s[0]
            busy[k] = 1.0 if not math.isfinite(in_system_s) else -math.expm1(-c.requests_per_s * float(in_system_s))
        before, stretch = stretch, [1.0 + sum(busy) - own for own in busy]
        if stretch == before:
            break
    return stretch, busy


@lru_cache(maxsize=256)  # the same copies recur on other cards and slacks
def _shares(copies: tuple[Copy, ...], memory_bytes: float) -> tuple[Share, ...]:
    """Each process's share of a card with this much memory."""
    shares = memory_share(memory_bytes, copies)
    stretch, busy = stretches(copies, [share * memory_bytes for share in shares])
    return tuple(
        Share(memory_fraction=share, stretch=s, busy_fraction=b, times=_shared_times(c, share * memory_bytes, s))
        for c, share, s, b in zip(copies, shares, stretch, busy, strict=True)
    )


def _fit_together(copies: Sequence[Copy], a: Accelerator, slack: float) -> bool:
    """Whether these processes meet their limits on one card, by estimate."""
    limit = min(c.lane.framework.memory_fraction for c in copies)
    if sum(c.needed_bytes for c in copies) > limit * a.memory_bytes:
        return False
    if sum(c.load_fraction for c in copies) > HEADROOM_FRACTION:
        return False
    shares = _shares(tuple(copies), a.memory_bytes)
    return all(_meets_limits(c, x.times, slack) for c, x in zip(copies, shares, strict=True))


def _meets_limits(c: Copy, times: StepTimes, slack: float) -> bool:
    seen = open_loop(times, np.array([c.requests_per_s]), demand_of(c.workload), scheduler_of(c.lane))
    return _excess(c.workload, seen) <= slack and float(seen.utilisation_fraction[0]) <= HEADROOM_FRACTION


def _simulated(c: Copy, times: StepTimes) -> tuple[Lane, Verified]:
    """(lane with its cap, simulation) of a copy at its share of the peak; the cap allows random bursts."""
    rate = np.array([c.requests_per_s])
    running = float(open_loop(times, rate, demand_of(c.workload), scheduler_of(c.lane)).running_requests[0])
    seats = max(math.ceil(running + 3.0 * math.sqrt(running)), 4)
    lane = replace(c.lane, max_running_requests=min(seats, c.lane.max_running_requests))
    return lane, verify(c.workload, times, 0, lane, c.requests_per_s, REQUESTS)


@lru_cache(maxsize=256)
def _tenants(copies: tuple[Copy, ...], memory_bytes: float) -> tuple[Tenant, ...]:
    tenants = []
    for c, x in zip(copies, _shares(copies, memory_bytes), strict=True):
        lane, seen = _simulated(c, x.times)
        tenants.append(
            Tenant(
                copy=replace(c, lane=lane),
                memory_fraction=x.memory_fraction,
                partition=None,
                stretch=x.stretch,
                busy_fraction=x.busy_fraction,
                verified=seen,
            )
        )
    return tuple(tenants)


# --- hardware partitions ----------------------------------------------------------------------------------------


def _partition_cards(copies: Sequence[Copy], a: Accelerator, slack: float) -> list[Card] | str:
    """First-fit packing with the smallest partition for each copy, or the reason why one does not fit."""
    sizes = {c.member_index: _smallest(c, a, slack) for c in copies}
    groups: list[list[Copy]] = []
    for c in copies:
        own = sizes[c.member_index]
        if own is None:
            return f"{c.workload.name} misses its limits on every hardware partition of {a.name}"
        apart = (g for g in groups if all(x.member_index != c.member_index for x in g))
        home = next((g for g in apart if _has_room([sizes[x.member_index] for x in g], own)), None)
        if home is None:
            groups.append([c])
        else:
            home.append(c)
    seen = {c.member_index: _in_instance(c, sizes[c.member_index], a) for c in copies}
    return [Card(tenants=tuple(seen[c.member_index] for c in g)) for g in groups]


def _has_room(there: Sequence[Partition | None], p: Partition) -> bool:
    """Whether a card with these partitions has room for one more.

    MIG can mix profiles while compute and memory slices remain (placement rules may allow less); other modes split a
    card into equal parts.
    """
    if any(x is None for x in there):
        return False
    own = [x for x in there if x is not None] + [p]
    if p.compute_slices_fraction and all(x.compute_slices_fraction for x in own):
        most = max(sum(x.compute_slices_fraction for x in own), sum(x.memory_slices_fraction for x in own))
        return most <= 1.0 + 1e-9
    return all(x == p for x in own) and len(own) <= p.instances


def _smallest(c: Copy, a: Accelerator, slack: float) -> Partition | None:
    sizes = sorted(a.partitions, key=lambda p: (p.memory_bytes, p.compute_fraction))
    return next((p for p in sizes if (made := _on_instance(c, p, a)) and _meets_limits(made, made.times, slack)), None)


def _on_instance(c: Copy, p: Partition, a: Accelerator) -> Copy | None:
    """The copy in one partition; None if it does not fit."""
    lane = replace(c.lane, choice=replace(c.lane.choice, accelerator=cut_into(a, p)))
    built = lanes(c.model, [lane])
    return replace(c, lane=lane, times=built.times) if bool(built.memory.fits[0]) else None


def _in_instance(c: Copy, p: Partition | None, a: Accelerator) -> Tenant:
    assert p is not None
    made = _on_instance(c, p, a)
    assert made is not None
    lane, seen = _simulated(made, made.times)
    return Tenant(
        copy=replace(made, lane=lane),
        memory_fraction=made.lane.framework.memory_fraction,
        partition=p,
        stretch=1.0,
        busy_fraction=seen.busy_fraction,
        verified=seen,
    )


# --- cost -------------------------------------------------------------------------------------------------------


def _priced(members: Sequence[Member], a: Accelerator, cards: Sequence[Card], isolated: bool) -> Packing:
    """The packing at the cheapest offer that every member may use."""
    offers = [o for o in offers_for(members[0].question) if o.sells(a)]
    for m in members[1:]:
        theirs = {_key(o) for o in offers_for(m.question)}
        offers = [o for o in offers if _key(o) in theirs]
    if any(m.workload.slo.redundancy for m in members):  # cards of one server fail together
        offers = [o for o in offers if o.accelerators == 1]
    licence = max(licence_of(members[0].catalog, t.copy.lane) for card in cards for t in card.tenants)
    best, instances, usd = None, 0, math.inf
    for o in offers:
        count = int(instances_needed(np.array(float(len(cards))), 1, o.accelerators))
        team = team_usd_per_hour(members[0].question, [(o, count)])
        if (cost := float(offer_usd_per_hour(o, count, licence)) + team) < usd:
            best, instances, usd = o, count, cost
    alone = " in a server of its own" if any(m.workload.slo.redundancy for m in members) else ""
    reason = "" if best else f"no offer of {a.name}{alone} satisfies the constraints of every workload"
    return Packing(
        accelerator=a,
        offer=best,
        instances=instances,
        cards=tuple(cards),
        usd_per_hour=usd,
        isolated=isolated,
        reason=reason,
    )


def _key(o: Offer) -> tuple[object, ...]:
    return o.provider, o.instance, o.region, o.accelerator, o.term, o.usd_per_hour
