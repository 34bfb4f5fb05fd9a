"""Why a chip is not ranked: the value, the limit, and the smallest change to the workload that would rank it."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from advisor.engine.cost import HOURS_PER_MONTH, TEAM
from advisor.engine.scheduler import P95_UNSERVED_FRACTION, Verified
from advisor.engine.search.candidates import Question, enumerate_lanes, largest_connected_offer
from advisor.engine.search.objective import MAX_RANKED, ChipResult, describe
from advisor.engine.search.simulated import (
    Scored,
    SimulatedDesign,
    Simulations,
    budget_excess,
    budgeted_usd_per_month,
    excess,
    largest_chips,
    largest_watts,
    over_budget,
    over_inventory,
)
from advisor.engine.search.table import Shortfall, Table
from advisor.engine.step import Lane, layouts, memory, runs_on, spans_hosts
from advisor.engine.terms import (
    QUALITY_ANY,
    Accelerator,
    Change,
    Rejection,
    Workload,
    cost_text,
    limit_change,
    list_change,
    listed,
    unlike,
    usd_text,
)

UNSERVED = "unserved"
Ask = Callable[[Workload], ChipResult]  # a chip's best design under other limits
Candidates = Callable[[Workload], Sequence[tuple[int, int]]]  # candidates to simulate under other limits


@dataclass(frozen=True, kw_only=True, slots=True)
class Miss:
    """One limit that a simulated design misses."""

    said: str  # "TPOT p95 7.1 ms > 5.6 ms"
    key: str  # in the workload file
    limit: float  # in the unit of Slo
    reached: float
    change: Change  # the relaxed limit
    value: float  # the relaxed limit, in the unit of Slo
    scale: float = 1e3  # of limit and reached in the answer: s to ms


def misses(workload: Workload, v: Verified) -> list[Miss]:
    """The limits that these latencies miss, worst first, each with the value that would pass."""
    slo, recorded = workload.slo, v.of_trace
    if recorded and excess(workload, recorded) > excess(workload, replace(v, of_trace=None)):
        return misses(workload, recorded)
    if v.unserved_fraction > P95_UNSERVED_FRACTION or math.isinf(v.late_fraction):
        return [_unserved(v)]
    limits = (
        (f"{workload.kind.first_result} p95", "ttft_ms_p95", slo.ttft_p95_s, v.ttft_p95_s),
        ("TPOT p95", "tpot_ms_p95", slo.tpot_p95_s, v.tpot_p95_s),
        ("end-to-end p95", "e2e_ms_p95", slo.e2e_p95_s, v.e2e_p95_s),
    )
    missed = [
        _missed_latency(name, key, most, got) for name, key, most, got in limits if most is not None and got > most
    ]
    speed = slo.tokens_per_s_per_user if workload.kind.generates_tokens else None
    if speed and v.tpot_p95_s > 1 / speed:
        missed.append(_missed_speed(speed, v.tpot_p95_s))
    if workload.deadline_s is not None and v.late_fraction > 1:
        missed.append(_missed_deadline(workload.deadline_s, workload.deadline_s * v.late_fraction))
    return sorted(missed, key=lambda m: -m.reached / m.limit)


def _unserved(v: Verified) -> Miss:
    """Requests that the KV cache cannot hold: no other limit would help."""
    return Miss(
        said=f"{v.rejected_requests:,} of {v.requests:,} simulated requests exceed a replica's KV cache",
        key=UNSERVED,
        limit=1.0,
        reached=math.inf,
        change=Change(field="", value=None, said=""),
        value=math.inf,
        scale=1.0,
    )


def misses_with_confidence(workload: Workload, simulations: Simulations, trial: SimulatedDesign) -> list[Miss]:
    """The limits that a simulated design misses, or the probability of meeting them if that alone is too low."""
    asked, missed = workload.slo.confidence, misses(workload, trial.verified)
    if asked is None:
        return missed
    if not missed:
        return [_missed_confidence(asked, simulations.scored(workload, trial).slo_probability or 0.0)]
    at = f" with {asked:.0%} confidence"
    sure = simulations.sure(workload, trial.design.row, trial.verified)
    return [replace(m, said=m.said + at) for m in misses(workload, sure)]


def _missed_confidence(asked: float, reached: float) -> Miss:
    """A probability of meeting the limits below the one asked for; the relaxed one is rounded down to 1 %."""
    fraction = math.floor(reached * 100) / 100
    return Miss(
        said=f"meets every limit as estimated, but only with {reached:.0%} probability; {asked:.0%} are asked for",
        key="confidence",
        limit=asked,
        reached=reached,
        change=limit_change("slo.confidence", "<=", fraction)
        if fraction > 0
        else Change(field="slo.confidence", value=None, said="no confidence"),
        value=fraction,
        scale=1.0,
    )


def above(reached_s: float, limit_s: float) -> str:
    """ "1441 ms > 1000 ms": both in one unit; seconds if the reached one is 1000 s or more, hours if both are."""

    def written(more: int) -> tuple[str, str]:
        if min(reached_s, limit_s) >= 1000:
            return f"{reached_s / 3600:.{3 + more}g} h", f"{limit_s / 3600:.{3 + more}g} h"
        if reached_s >= 1000:
            return f"{reached_s:,.0f} s", f"{limit_s:.3g} s"
        reached, limit = (f"{s * 1e3:.{more + (1 if s < 0.1 else 0)}f} ms" for s in (reached_s, limit_s))
        return reached, limit

    return " > ".join(unlike(written))


def _missed_latency(name: str, key: str, limit_s: float, reached_s: float) -> Miss:
    whole_ms = math.ceil(reached_s * 1e3)
    return Miss(
        said=f"{name} {above(reached_s, limit_s)}",
        key=key,
        limit=limit_s,
        reached=reached_s,
        change=limit_change(f"slo.{key}", ">=", whole_ms),
        value=whole_ms / 1e3,
    )


def _missed_deadline(limit_s: float, reached_s: float) -> Miss:
    hours = math.ceil(reached_s / 360) / 10
    return Miss(
        said=f"completion time {above(reached_s, limit_s)}",
        key="deadline_hours",
        limit=limit_s,
        reached=reached_s,
        change=limit_change("batch.deadline_hours", ">=", hours),
        value=hours * 3600,
    )


def _missed_speed(tokens_per_s: float, tpot_s: float) -> Miss:
    """A missed speed per user; the relaxed limit is rounded down to 0.1 tokens/s."""
    slower = math.floor(10 / tpot_s) / 10
    return Miss(
        said=f"TPOT p95 {above(tpot_s, 1 / tokens_per_s)}",
        key="tokens_per_s_per_user",
        limit=1 / tokens_per_s,
        reached=tpot_s,
        change=limit_change("slo.tokens_per_s_per_user", "<=", slower),
        value=slower,
    )


def relax(workload: Workload, missed: Sequence[Miss]) -> Workload:
    """The same workload with the missed limits relaxed to their new values."""
    slo, to = workload.slo, {m.key: m.value for m in missed}
    slo = replace(
        slo,
        ttft_p95_s=to.get("ttft_ms_p95", slo.ttft_p95_s),
        tpot_p95_s=to.get("tpot_ms_p95", slo.tpot_p95_s),
        e2e_p95_s=to.get("e2e_ms_p95", slo.e2e_p95_s),
        tokens_per_s_per_user=to.get("tokens_per_s_per_user", slo.tokens_per_s_per_user),
        confidence=to.get("confidence", slo.confidence) or None,
    )
    return replace(workload, slo=slo, deadline_s=to.get("deadline_hours", workload.deadline_s))


def without_budgets(workload: Workload) -> Workload:
    """The same workload without limits on chips, cost or power."""
    c = workload.constraints
    return replace(
        workload,
        constraints=replace(
            c, max_accelerators=None, max_usd_per_month=None, max_capex_usd=None, max_watts=None, inventory_chips={}
        ),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class NearMiss:
    """A simulated design that misses a limit, and its worst ratio (latency, chips, cost or power)."""

    scored: Scored
    excess_fraction: float


def best_within_budget(workload: Workload, ask: Ask) -> Scored | None:
    """The best design of a chip within every limit; None: there is none.

    The estimates that pick designs to simulate price one offer. A plan of several offers can cost less and keep a
    budget that every estimate exceeds, so without a result the budgets are checked on the simulated plan alone.
    """
    best = ask(workload).best
    free = without_budgets(workload)
    if best is not None or free == workload:
        return best
    best = ask(free).best
    return best if best is not None and not over_budget(workload, best) else None


def remembered(ask: Ask) -> Ask:
    """`ask`, which answers each workload once."""
    known: list[tuple[Workload, ChipResult]] = []

    def again(workload: Workload) -> ChipResult:
        found = next((result for asked, result in known if asked == workload), None)
        if found is None:
            found = ask(workload)
            known.append((workload, found))
        return found

    return again


def may_be_near(workload: Workload, result: ChipResult, excess_fraction: float) -> bool:
    """Whether `explain` may find a design that misses its limits by no more than this.

    `at_its_limits` takes the worse of two simulations, so it does not come nearer, except where the design failed only
    for the requests in flight.
    """
    if result.best is not None:
        return budget_excess(workload, result.best) <= excess_fraction
    nearest = result.nearest
    return nearest is not None and (nearest.excess_fraction <= excess_fraction or bool(nearest.verified.response))


def explain(
    workload: Workload, simulations: Simulations, slug: str, ask: Ask, candidates: Candidates
) -> tuple[Rejection, NearMiss | None]:
    """Why no design of a chip that fits in memory is ranked, and its closest simulated design."""
    free = without_budgets(workload)
    result = ask(free)
    if result.best is not None:
        return _over_budget_rejection(workload, result.best), NearMiss(
            scored=replace(result.best, meets_slo=False), excess_fraction=budget_excess(workload, result.best)
        )
    if result.nearest is None:
        detail = "no offer connects enough chips for a layout that fits"
        return Rejection(accelerator=slug, reason="unpriced", detail=detail), None
    nearest = simulations.at_its_limits(workload, result.nearest)
    missed = misses_with_confidence(free, simulations, nearest)
    if not missed:  # it keeps every limit, and cannot be paid for
        detail = "no offer provides enough machines for long enough to run a deployment that meets the limits"
        return Rejection(accelerator=slug, reason="unpriced", detail=detail), None
    worst, lane = missed[0], simulations.lane(nearest.design)
    limits = " and ".join(m.said for m in missed)
    scored = simulations.scored(workload, nearest)
    cost = cost_text(workload, scored.usd_per_hour)
    unserved = worst.key == UNSERVED
    changes = () if unserved else _smallest_change(workload, nearest, scored, missed, ask, candidates)
    rejection = Rejection(
        accelerator=slug,
        reason="misses_slo",
        detail=f"closest simulated design: {limits} ({describe(lane)}; {scored.chips:,} chips at {cost})",
        limit=None if unserved else worst.limit * worst.scale,
        reached=None if unserved else worst.reached * worst.scale,
        smallest_change=f"passes with {listed(changes)}" if changes else "",
        changes=changes,
        dead_end="" if changes else TOO_LONG if unserved else NEVER_SERVES,
    )
    worst_fraction = max(nearest.excess_fraction, budget_excess(workload, scored))
    return rejection, NearMiss(scored=scored, excess_fraction=worst_fraction)


LARGE_TEAM_FRACTION = 0.25  # of the cost; a larger minimum team is named
TOO_LONG = "its memory does not hold the longest requests in any layout: shorten them, or use a chip with more memory"
NEVER_SERVES = "no number of these chips serves this load steadily, whatever the latency limits"


def _smallest_change(
    workload: Workload,
    nearest: SimulatedDesign,
    scored: Scored,
    missed: Sequence[Miss],
    ask: Ask,
    candidates: Candidates,
) -> tuple[Change, ...]:
    """The limits to relax: to what the nearest design reaches, if a new search with them would find it.

    Simulations are repeatable, so the design then passes. If it would not be found, the missed limits are removed.
    Empty if even that is not enough.
    """
    cell = nearest.design.row, nearest.design.column
    if cell in candidates(relax(without_budgets(workload), missed)):
        return (*(m.change for m in missed), *_budget_changes(workload, scored))
    none = replace(workload.slo, ttft_p95_s=None, tpot_p95_s=None, e2e_p95_s=None, tokens_per_s_per_user=None)
    best = ask(without_budgets(replace(workload, slo=none))).best
    if best is None:
        return ()
    keys = [m.change.field for m in misses(workload, best.verified)]
    keys = keys or (["slo.confidence"] if workload.slo.confidence else [])
    removed = (Change(field=key, value=None, said=f"no {key.rpartition('.')[2]}") for key in keys)
    return (*removed, *_budget_changes(workload, best))


def _budget_changes(workload: Workload, s: Scored) -> list[Change]:
    c, monthly, chips = workload.constraints, budgeted_usd_per_month(workload, s), int(largest_chips(workload, s))
    watts, capex = largest_watts(workload, s), s.planned.plan.capex_usd if s.planned else 0.0
    changes = []
    if over_inventory(workload, s) > 1:
        changes.append(limit_change(f"inventory.{s.lane.choice.accelerator.slug}", ">=", chips))
    if c.max_accelerators is not None and chips > c.max_accelerators:
        changes.append(limit_change("constraints.max_accelerators", ">=", chips))
    if c.max_capex_usd is not None and capex > c.max_capex_usd * (1 + 1e-9):
        changes.append(limit_change("constraints.max_capex_usd", ">=", math.ceil(capex)))
    if c.max_usd_per_month is not None and monthly > c.max_usd_per_month:
        changes.append(limit_change("constraints.max_usd_per_month", ">=", math.ceil(monthly)))
    if c.max_watts is not None and not watts <= c.max_watts:
        path = "constraints.site.max_kw"
        known = math.isfinite(watts)
        least_kw = math.ceil(watts / 100) / 10 if known else 0.0
        changes.append(
            limit_change(path, ">=", least_kw) if known else Change(field=path, value=None, said="no max_kw")
        )
    return changes


def _over_budget_rejection(workload: Workload, s: Scored) -> Rejection:
    """The rejection of a design that meets its latency limits but exceeds a power, chip or cost limit."""
    assert over_budget(workload, s)
    c, slug, on = workload.constraints, s.lane.choice.accelerator.slug, f"({describe(s.lane)})"
    changes = tuple(_budget_changes(workload, s))
    refuse = partial(Rejection, accelerator=slug, smallest_change=f"passes with {listed(changes)}", changes=changes)
    chips, grows = int(largest_chips(workload, s)), f" as the traffic grows (today {s.chips})"
    needs = f"needs {chips} accelerators{grows if chips > s.chips else ''}"
    together = s.lane.choice.tp * s.lane.choice.pp * s.lane.choice.dp
    m, beside = s.memory, s.memory.activations_bytes + s.memory.overhead_bytes
    weights, usable = m.weights_bytes * together, m.weights_bytes + m.kv_bytes + beside + m.free_bytes
    if weights + beside > usable:
        left = (usable - beside) / 2**30
        needs += f" because the weights take {weights / 2**30:,.0f} GiB and one has {left:,.0f} for them"
    if c.max_watts is not None and not largest_watts(workload, s) <= c.max_watts:
        return _power_rejection(s, largest_watts(workload, s), c.max_watts, refuse)
    if c.max_accelerators is not None and chips > c.max_accelerators:
        detail = f"{needs}, but the limit is {c.max_accelerators} {on}"
        return refuse(reason="too_many", detail=detail, limit=float(c.max_accelerators), reached=float(chips))
    if over_inventory(workload, s) > 1:
        there = c.inventory_chips[slug]
        detail = f"{needs}, but your inventory has {there} {on}"
        return refuse(reason="too_many", detail=detail, limit=float(there), reached=float(chips))
    capex = s.planned.plan.capex_usd if s.planned else 0.0
    if c.max_capex_usd is not None and capex > c.max_capex_usd * (1 + 1e-9):
        detail = f"purchases of {usd_text(capex)} > {usd_text(c.max_capex_usd)} {on}"
        return refuse(reason="too_expensive", detail=detail, limit=c.max_capex_usd, reached=capex)
    limit, monthly = c.max_usd_per_month or 0.0, budgeted_usd_per_month(workload, s)
    whose = f", {c.bound_factor:g} times the cheapest option" if c.bound_factor else ""
    over, most = unlike(lambda more: (usd_text(monthly, more), usd_text(limit, more)))
    team = sum(p.usd_per_hour for p in s.parts if p.name == TEAM) * HOURS_PER_MONTH
    staffed = f", of which {usd_text(team)} pays the minimum team" if team > LARGE_TEAM_FRACTION * monthly else ""
    detail = f"{over} a month{staffed} > {most}{whose} {on}"
    return refuse(reason="too_expensive", detail=detail, limit=limit, reached=monthly)


def _power_rejection(s: Scored, watts: float, max_watts: float, refuse: Callable[..., Rejection]) -> Rejection:
    limit_kw, full_kw = max_watts / 1e3, watts / 1e3
    if not math.isfinite(full_kw):
        detail = "its power is not published, so the site's limit cannot be checked"
        return refuse(reason="too_much_power", detail=detail, limit=limit_kw)
    full, most = unlike(lambda more: (f"{full_kw:.{4 + more}g} kW", f"{limit_kw:.{6 + more}g} kW"))
    detail = f"{full} at full load > {most} ({describe(s.lane)})"
    return refuse(reason="too_much_power", detail=detail, limit=limit_kw, reached=full_kw)


def outranked(workload: Workload, slug: str, usd_per_hour: float, simulated: bool) -> Rejection:
    """The rejection of a chip outside the ranked ones, by its simulation or its best estimate."""
    cost = cost_text(workload, usd_per_hour)
    behind = f"below the top {MAX_RANKED} by {workload.objective}"
    changes = (list_change("constraints.accelerators.allow", [slug]),)
    if simulated:
        detail, verb = f"meets all limits in simulation at {cost}, but ranks {behind}", "shown"
    else:
        detail = f"estimated to cost at least {cost}, which ranks {behind}; not simulated, so it may miss a limit"
        verb = "simulated"
    change = f"{verb} with accelerators.allow: [{slug}]"
    return Rejection(accelerator=slug, reason="outranked", detail=detail, smallest_change=change, changes=changes)


def does_not_fit(question: Question, table: Table) -> list[Rejection]:
    """Chips on which no allowed layout fits in memory, with the format that would fit if any quality were allowed."""
    if not table.shortfalls:
        return []
    chips = [a for a in question.catalog.accelerators if a.slug in table.shortfalls]
    fitting, sold = _fitting_formats(question, chips), largest_connected_offer(question)
    alone = {a.slug: not any(runs_on(f, a) and spans_hosts(f) for f in question.catalog.frameworks) for a in chips}
    return [
        _memory_rejection(slug, short, fitting.get(slug), sold[slug], alone[slug])
        for slug, short in table.shortfalls.items()
    ]


def _fitting_formats(question: Question, chips: Sequence[Accelerator]) -> dict[str, Lane]:
    """Per chip the lane with the widest weights, on the fewest chips, that fits if any quality is allowed."""
    workload = question.workload
    if workload.constraints.quality == "any":
        return {}
    wider = replace(workload, constraints=replace(workload.constraints, quality="any"))
    lanes, _ = enumerate_lanes(replace(question, workload=wider), chips)
    if not lanes:
        return {}
    room = memory(question.catalog.model, layouts(question.catalog.model, [w.choice for w in lanes]), lanes)
    fitting = [w for w, ok in zip(lanes, room.fits, strict=True) if ok]
    fitting.sort(key=lambda w: (w.choice.quantization.bits_per_weight, -w.choice.tp * w.choice.pp * w.choice.dp))
    return {w.choice.accelerator.slug: w for w in fitting}


def _memory_rejection(slug: str, short: Shortfall, fitting: Lane | None, sold: int, alone: bool) -> Rejection:
    needed, usable = short.needed_bytes / 2**30, short.usable_bytes / 2**30
    needs, has = unlike(lambda more: (f"{needed:.{1 + more}f} GiB", f"{usable:.{1 + more}f} GiB"))
    change = f"fits in memory with {QUALITY_ANY.said} ({describe(fitting)})" if fitting else ""
    tail = "" if fitting else "; no weight format in the catalog fits"
    tail += f"; no offer connects more than {sold} of these chips" if sold < 8 else ""
    tail += ", and none of its frameworks documents multi-host replicas" if alone else ""
    return Rejection(
        accelerator=slug,
        reason="does_not_fit",
        detail=f"needs at least {needs} per chip, {has} usable ({describe(short.lane)}){tail}",
        limit=usable,
        reached=needed,
        smallest_change=change,
        changes=(QUALITY_ANY,) if fitting else (),
        dead_end="" if fitting else TOO_LARGE,
    )


TOO_LARGE = "the model is too large for the chips that one replica of it can use; a smaller model may fit"
