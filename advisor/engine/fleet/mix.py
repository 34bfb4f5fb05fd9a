"""Machine mix: different machines for prompts of different length, if that is cheaper than one kind of machine.

A router knows the length of a prompt but not of its answer, so requests are split by input tokens only. Prompts below
the median, up to p90 and above p90 are three jobs of milp.py. The rate of a machine for each job is the search's
closed-form estimate. The parts are then simulated with their requests, and the percentiles over all requests must
meet the limits, as for a single choice.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.engine.cost import HOURS_PER_MONTH, TEAM
from advisor.engine.fleet.length_classes import LengthClass, length_classes
from advisor.engine.fleet.milp import Fleet, Job, Limits, Machine, Unit, cheapest
from advisor.engine.scheduler import SEED, Simulation, gaps, request_lengths, scheduler_of, simulate
from advisor.engine.search import (
    CONCURRENCY,
    SLACK,
    UNSERVABLE_REPLICAS,
    Catalog,
    Design,
    Question,
    SearchResult,
    Simulations,
    Table,
    best_offers,
    estimated_excess,
    holds_replica,
    instances_needed,
    latency_excess,
    licence_of,
    offer_usd_per_hour,
    packing_of,
    serving_estimates,
    team_usd_per_hour,
    usable_fraction,
)
from advisor.engine.step import TRACE, Client, Lane, take
from advisor.engine.terms import Offer, Workload, cost_text, weighted_quantile

KINDS = 5  # accelerators considered per class, cheapest first
SIZES = 2  # machines per accelerator
ROUNDS = 3  # plans to simulate
DERATED = 0.8, 0.95  # range of the factor on a part's estimated rate after it missed limits in simulation
WORTH_FRACTION = 0.01  # minimum saving, of the single choice's cost
PART_REQUESTS = 2000
BY_ESTIMATE = "no combination meets the limits, by estimate"
BUSY_RATE = 1e4  # requests/s high enough that rounding to whole replicas does not matter


@dataclass(frozen=True, kw_only=True, slots=True)
class MachineOption:
    """A machine that the fleet plan may use."""

    row: int
    columns: tuple[int, ...]  # concurrency column by class; -1: cannot serve it
    offer: Offer
    instances: int  # per machine
    replicas: int  # per machine
    lane: Lane
    usd_per_hour: float  # per machine, including licenses
    host_replicas: int = 1  # that stop with one host
    ready: bool = False  # the lane already has the cap it was simulated with


@dataclass(frozen=True, kw_only=True, slots=True)
class MixPart:
    """One kind of machine in the mix, with its share of requests."""

    lane: Lane
    offer: Offer
    instances: int
    replicas: int  # spares included
    spare_replicas: int
    concurrency: int  # per replica
    requests_per_s: float  # at the peak
    usd_per_hour: float
    classes: tuple[tuple[LengthClass, float], ...]  # with the share of the class routed here
    ttft_p95_s: float
    tpot_p95_s: float
    rejected_requests: int  # simulated requests longer than the whole KV cache

    @property
    def chips(self) -> int:
        """Chips of all replicas, including spares."""
        c = self.lane.choice
        return self.replicas * c.tp * c.pp * c.dp


@dataclass(frozen=True, kw_only=True, slots=True)
class Mix:
    """The cheapest mix that meets the limits in simulation; without parts, `reason` says why there is none."""

    parts: tuple[MixPart, ...]
    reason: str
    usd_per_hour: float
    single_usd_per_hour: float  # infinite: no single choice meets the limits
    ttft_p95_s: float  # of all requests
    tpot_p95_s: float
    e2e_p95_s: float
    proven: bool  # optimal by estimate


def no_mix(reason: str, single: float) -> Mix:
    """A Mix without parts; `single` is USD per hour of the best single choice."""
    nan = math.nan
    return Mix(
        parts=(), reason=reason, usd_per_hour=nan, single_usd_per_hour=single,
        ttft_p95_s=nan, tpot_p95_s=nan, e2e_p95_s=nan, proven=False,
    )  # fmt: skip


def find_mix(question: Question, answer: SearchResult) -> Mix:
    """The mix for a serving workload that `search` has answered.

    Users and traces are represented by their peak rate; the lengths of a trace are its own.
    """
    single = answer.ranked[0].usd_per_hour if answer.ranked else math.inf
    if why := _why_no_mix(question.workload):
        return no_mix(why, single)
    if answer.table is None or answer.table.built is None:
        return no_mix("the model fits on no machine", single)
    team = sum(p.usd_per_hour for p in answer.ranked[0].parts if p.name == TEAM) if answer.ranked else 0.0
    mix = _search_mix(replace(question, workload=replace(question.workload, users=None)), answer.table, single - team)
    team = team_usd_per_hour(question, [(p.offer, p.instances) for p in mix.parts])
    budget = question.workload.constraints.max_usd_per_month or math.inf
    if (mix.usd_per_hour + team) * HOURS_PER_MONTH > budget:
        return no_mix("with its minimum team the mix exceeds the budget", single)
    return replace(mix, usd_per_hour=mix.usd_per_hour + team, single_usd_per_hour=single)


def _why_no_mix(workload: Workload) -> str:
    """Why no mix is computed for a workload; empty if it is."""
    lengths = workload.input_tokens
    if workload.objective != "cost":
        return f"a mix is computed only for the objective cost, not {workload.objective}"
    if workload.slo.doubled:
        return "a mix is not evaluated with 2n redundancy"
    if workload.constraints.max_watts is not None:
        return "a mix is not evaluated with a site power limit"
    if workload.week:
        return "a mix is not evaluated for a weekly load profile"
    if workload.forecast:
        return "a mix is not evaluated for traffic that changes over the horizon"
    if lengths.p95_tokens <= lengths.mean_tokens or workload.source_tokens:
        return "all prompts have the same length"
    return ""


def _search_mix(question: Question, table: Table, single: float) -> Mix:
    """Simulate the cheapest plan; derate parts that miss their limits, and plan again."""
    workload = question.workload
    classes = length_classes(workload.input_tokens, workload.trace.input_tokens if workload.trace else ())
    simulations, reason = Simulations(question, table), BY_ESTIMATE
    for slack in (1.0, SLACK):
        options, rates = machine_options(question, table, classes, slack)
        for _ in range(ROUNDS):
            lower_bound = _cost_lower_bound(workload, options, rates, classes)
            if lower_bound > single * (1 - WORTH_FRACTION):
                cost = cost_text(workload, lower_bound)
                return no_mix(
                    f"by estimate no combination costs less than {cost}, even with fractional machines", single
                )
            fleet = _planned(workload, options, rates, classes, single)
            if fleet is None:
                if math.isfinite(single) and reason == BY_ESTIMATE:
                    reason = "no mix of machine types is estimated to be cheaper than the first choice"
                break
            lines = sorted({use.unit_index for use in fleet.uses})
            tried = _simulated(workload, simulations, options, fleet, classes)
            worst = {u: _excess(workload, [tried[u]], [1.0]) for u in lines}
            shares = [sum(use.requests_per_s for use in fleet.uses if use.unit_index == u) for u in lines]
            if _excess(workload, [tried[u] for u in lines], shares) <= 1:
                if len(lines) < 2:
                    return no_mix("one kind of machine is cheapest for all prompt lengths", single)
                return _mix(workload, simulations, options, fleet, classes, tried, single)
            reason = "the cheaper combinations miss the limits in simulation"
            slower = {u: float(np.clip(1 / worst[u], *DERATED)) for u in lines if worst[u] > 1}
            rates = [tuple(slower.get(u, 1.0) * x for x in r) for u, r in enumerate(rates)]
    return no_mix(reason, single)


# --- machine options --------------------------------------------------------------------------------------------


def machine_options(
    question: Question,
    table: Table,
    classes: Sequence[LengthClass],
    slack: float,
    kinds: int = KINDS,
    others: Sequence[Offer] = (),
    seen: Mapping[int, tuple[Lane, float]] | None = None,
) -> tuple[list[MachineOption], list[tuple[float, ...]]]:
    """(machines to consider, requests/s of each class that one machine serves at the service level).

    `seen`: row -> (lane, simulated requests/s of one replica), used if higher than the estimate of the only class.
    `others`: offers that other workloads consider, which are then considered here too.
    """
    workload = question.workload
    assert table.built is not None
    seen = seen or {}
    rows = np.array(sorted({*_promising_rows(workload, table), *seen}), dtype=int)
    kept = [table.lanes[i] for i in rows]
    rates, columns = np.zeros((len(rows), len(classes))), np.full((len(rows), len(classes)), -1)
    for c, part in enumerate(classes):
        asked = replace(workload, input_tokens=part.input_tokens, requests_per_s_peak=BUSY_RATE, users=None, trace=None)
        capacity, _, _, ttft, tpot, _ = serving_estimates(asked, kept, take(table.built.times, rows))
        able = np.where(latency_excess(asked, ttft, tpot) <= slack, capacity * usable_fraction(workload), 0.0)
        able = np.where(np.isfinite(able), able, 0.0)
        best = np.argmax(able, axis=1)
        rates[:, c] = able[np.arange(len(rows)), best]
        columns[:, c] = np.where(rates[:, c] > 0, best, -1)
    options: list[MachineOption] = []
    speeds: list[tuple[float, ...]] = []
    counts = np.tile([1.0, 64.0], (len(rows), 1))
    plain = replace(workload, slo=replace(workload.slo, spare_hosts=0))
    _, offers, _, _ = best_offers(replace(question, workload=plain), kept, counts, np.ones_like(counts))
    for k, row in enumerate(rows):
        own = {question.catalog.offers[i]: None for i in sorted(set(offers[k].tolist()) - {-1})}
        c = kept[k].choice
        same_chip = [o for o in others if o.sells(c.accelerator)]
        own |= {o: None for o in same_chip if c.tp * c.dp <= o.tensor_parallel_chips}
        lane, simulated = seen.get(int(row), (kept[k], 0.0))
        ready = simulated > rates[k, 0]
        rates[k, 0] = max(rates[k, 0], simulated)
        columns[k, 0] = max(columns[k, 0], 0) if ready else columns[k, 0]
        for option in _machines(question.catalog, int(row), kept[k], tuple(int(x) for x in columns[k]), list(own)):
            options.append(replace(option, lane=lane, ready=True) if ready else option)
            speeds.append(tuple(float(x) * option.replicas for x in rates[k]))
    kept_indices = _cheapest_per_class(options, speeds, kinds, {o.accelerator for o in others})
    return [options[i] for i in kept_indices], [speeds[i] for i in kept_indices]


def _promising_rows(workload: Workload, table: Table) -> Iterator[int]:
    """Rows of the cheapest lane per accelerator and replica size, with and without the latency limits."""
    excess = estimated_excess(workload, table)
    serves = np.isfinite(table.usd_per_hour) & (table.replicas < UNSERVABLE_REPLICAS)
    groups: dict[tuple[str, float], list[int]] = {}
    for i, w in enumerate(table.lanes):
        groups.setdefault((w.choice.accelerator.slug, float(table.chips[i, 0])), []).append(i)
    for own in groups.values():
        mine = np.array(own)
        for allowed in (serves[mine], serves[mine] & (excess[mine] <= SLACK)):
            usd = np.where(allowed, table.usd_per_hour[mine], np.inf)
            if np.isfinite(usd).any():
                yield int(mine[np.unravel_index(np.argmin(usd), usd.shape)[0]])


def _machines(
    catalog: Catalog, row: int, lane: Lane, columns: tuple[int, ...], offers: Sequence[Offer]
) -> Iterator[MachineOption]:
    """The smallest whole purchase of each offer that holds a replica of this lane."""
    if max(columns) < 0:
        return
    c = lane.choice
    for offer in offers:
        if not holds_replica(c.accelerator, offer, c.tp * c.dp, c.pp):
            continue
        chips = c.tp * c.pp * c.dp
        instances = int(instances_needed(np.array(1.0), chips, offer.accelerators, c.pp))
        replicas = max(instances * offer.accelerators // chips, 1)
        while int(instances_needed(np.array(float(replicas)), chips, offer.accelerators, c.pp)) > instances:
            replicas -= 1
        plain = replace(offer, held_instances=0)  # the fleet plan decides which machines are already owned
        usd = float(offer_usd_per_hour(plain, instances, licence_of(catalog, lane)))
        yield MachineOption(
            row=row,
            columns=columns,
            offer=offer,
            instances=instances,
            replicas=replicas,
            host_replicas=int(packing_of(c, offer).stopped),
            lane=lane,
            usd_per_hour=usd,
        )


def _cheapest_per_class(
    options: Sequence[MachineOption], speeds: Sequence[tuple[float, ...]], kinds: int, slugs: set[str]
) -> list[int]:
    """Indices of the cheapest machines per request and class: of `kinds` accelerators, plus those in `slugs`."""
    kept: set[int] = set()
    for c in range(len(speeds[0]) if speeds else 0):
        able = [i for i, rates in enumerate(speeds) if rates[c] > 0]
        able.sort(key=lambda i: (options[i].usd_per_hour / speeds[i][c], i))
        seen: dict[str, dict[Offer | None, int]] = {}
        for i in able:
            slug = options[i].lane.choice.accelerator.slug
            offer = options[i].offer if slug in slugs else None  # `slugs`: keep machines of every offer
            if slug not in seen and slug not in slugs and len(seen) >= kinds:
                continue
            mine = seen.setdefault(slug, {})
            if mine.get(offer, 0) < SIZES:
                mine[offer] = mine.get(offer, 0) + 1
                kept.add(i)
    return sorted(kept)


def _cost_lower_bound(
    workload: Workload,
    options: Sequence[MachineOption],
    rates: Sequence[tuple[float, ...]],
    classes: Sequence[LengthClass],
) -> float:
    """Lower bound on the cost in USD per hour: each class on its cheapest machine, fractional machines allowed."""
    each = [
        min((o.usd_per_hour / r[c] for o, r in zip(options, rates, strict=True) if r[c] > 0), default=math.inf)
        for c in range(len(classes))
    ]
    peak = workload.requests_per_s_peak
    return sum(peak * part.share_fraction * usd for part, usd in zip(classes, each, strict=True))


def _planned(
    workload: Workload,
    options: Sequence[MachineOption],
    rates: Sequence[tuple[float, ...]],
    classes: Sequence[LengthClass],
    single: float,
) -> Fleet | None:
    """The cheapest fleet by estimate, if it saves enough; else None."""
    c = workload.constraints
    machines = [
        Machine(
            name=o.offer.instance,
            accelerator=o.lane.choice.accelerator.slug,
            chips=o.replicas * o.lane.choice.tp * o.lane.choice.pp * o.lane.choice.dp,
            usd_per_hour=o.usd_per_hour,
        )
        for o in options
    ]
    units = [
        Unit(machine_index=i, requests_per_s=r, replicas=options[i].replicas, host_replicas=options[i].host_replicas)
        for i, r in enumerate(rates)
    ]
    jobs = [
        Job(
            name=f"{part.low_tokens:.0f}",
            requests_per_s=(workload.requests_per_s_peak * part.share_fraction,),
            spare_hosts=workload.slo.spare_hosts,
        )
        for part in classes
    ]
    budgets = [single * (1 - WORTH_FRACTION), (c.max_usd_per_month or math.inf) / HOURS_PER_MONTH]
    limits = Limits(
        inventory_chips=c.inventory_chips,
        max_chips=c.max_accelerators,
        max_usd_per_hour=min(budgets) if min(budgets) < math.inf else None,
        kind_usd_per_hour=single * WORTH_FRACTION if math.isfinite(single) else 0.0,
    )
    return cheapest(machines, units, jobs, limits)


# --- simulation and result --------------------------------------------------------------------------------------


def _simulated(
    workload: Workload,
    simulations: Simulations,
    options: Sequence[MachineOption],
    fleet: Fleet,
    classes: Sequence[LengthClass],
) -> dict[int, Simulation]:
    """By unit index: the simulation of one lane of each kind of machine, with its requests at the peak."""
    return {
        u: _simulate(workload, simulations, options[u], fleet, u, classes)
        for u in {use.unit_index for use in fleet.uses}
    }


def carrying(workload: Workload, option: MachineOption, kept_instances: int) -> int:
    """Serving replicas: all replicas without spares."""
    return max(kept_instances * option.replicas - workload.slo.spare_hosts * option.host_replicas, 1)


def _design(option: MachineOption, fleet: Fleet, u: int, replicas: int) -> Design:
    """The design of a unit; its concurrency is the time-weighted mean over its classes."""
    uses = [use for use in fleet.uses if use.unit_index == u]
    planned = sum(use.instances * CONCURRENCY[option.columns[use.job_index]] for use in uses)
    column = int(np.searchsorted(CONCURRENCY, planned / sum(use.instances for use in uses)))
    return Design(row=option.row, column=min(column, len(CONCURRENCY) - 1), replicas=replicas)


def _simulate(
    workload: Workload,
    simulations: Simulations,
    option: MachineOption,
    fleet: Fleet,
    u: int,
    classes: Sequence[LengthClass],
) -> Simulation:
    assert simulations.table.built is not None
    replicas = carrying(workload, option, fleet.kept_instances[u])
    lane = simulations.lane(_design(option, fleet, u, replicas))
    c = lane.choice
    uses = {use.job_index: use.requests_per_s for use in fleet.uses if use.unit_index == u}
    rate = sum(uses.values()) / (replicas * c.lanes)
    shares = [uses.get(k, 0.0) / workload.requests_per_s_peak / x.share_fraction for k, x in enumerate(classes)]
    prompt, output = _requests(workload, classes, shares)
    cv = math.sqrt(workload.arrival_cv2(rate / workload.requests_per_s_peak))
    arrival = np.cumsum(gaps(cv, len(prompt), np.random.default_rng(SEED + 1))) / rate
    return simulate(
        simulations.table.built.times,
        option.row,
        scheduler_of(lane),
        Client(
            kind=TRACE,
            arrival_s=arrival,
            input_tokens=prompt,
            output_tokens=output,
            prefix_classes=workload.prefix_classes,
        ),
        workload.input_tokens,
        workload.output_tokens,
        cached_fraction=workload.prefix_cache_hit_fraction,
        context_tokens=workload.context_tokens,
        seed=SEED,
    )


def _requests(
    workload: Workload, classes: Sequence[LengthClass], shares: Sequence[float]
) -> tuple[np.ndarray, np.ndarray]:
    """(prompt, answer) lengths in tokens of the requests routed here, drawn by class and share."""
    part = sum(s * c.share_fraction for s, c in zip(shares, classes, strict=True))
    rng, count = np.random.default_rng(SEED), math.ceil(1.2 * PART_REQUESTS / part) + 100
    prompt, output = request_lengths(workload, count, rng)
    which = np.searchsorted([c.high_tokens for c in classes[:-1]], prompt, side="right")
    here = rng.random(count) < np.array(shares)[which]
    return prompt[here][:PART_REQUESTS], output[here][:PART_REQUESTS]


def _p95(parts: Sequence[Simulation], weights: Sequence[float], metric: str) -> float:
    """p95 over several weighted streams, without the warm-up on empty machines."""
    values = [getattr(p, metric)[len(getattr(p, metric)) // 6 :] for p in parts]
    each = [np.full(len(v), w / max(len(v), 1)) for v, w in zip(values, weights, strict=True)]
    joined = np.concatenate(values)
    return weighted_quantile(joined, np.concatenate(each), 0.95) if len(joined) else 0.0


def _excess(workload: Workload, parts: Sequence[Simulation], weights: Sequence[float]) -> float:
    """Worst latency over its limit; 1 is exactly at the limit, infinite if requests are rejected."""
    if any(p.rejected_requests > 0.001 * PART_REQUESTS for p in parts):
        return math.inf
    p95 = (_p95(parts, weights, metric) for metric in ("ttft_s", "tpot_s", "e2e_s"))
    return float(latency_excess(workload, *p95))


def _mix(
    workload: Workload,
    simulations: Simulations,
    options: Sequence[MachineOption],
    fleet: Fleet,
    classes: Sequence[LengthClass],
    tried: dict[int, Simulation],
    single: float,
) -> Mix:
    lines = sorted(tried)
    shares = [sum(use.requests_per_s for use in fleet.uses if use.unit_index == u) for u in lines]
    parts = [_part(workload, simulations, options[u], fleet, u, classes, tried[u]) for u in lines]
    runs = [tried[u] for u in lines]
    return Mix(
        parts=tuple(sorted(parts, key=lambda p: -p.usd_per_hour)),
        reason="",
        usd_per_hour=sum(p.usd_per_hour for p in parts),
        single_usd_per_hour=single,
        ttft_p95_s=_p95(runs, shares, "ttft_s"),
        tpot_p95_s=_p95(runs, shares, "tpot_s"),
        e2e_p95_s=_p95(runs, shares, "e2e_s"),
        proven=fleet.proven,
    )


def _part(
    workload: Workload,
    simulations: Simulations,
    option: MachineOption,
    fleet: Fleet,
    u: int,
    classes: Sequence[LengthClass],
    run: Simulation,
) -> MixPart:
    kept, uses = fleet.kept_instances[u], [use for use in fleet.uses if use.unit_index == u]
    replicas = carrying(workload, option, kept)
    lane = simulations.lane(_design(option, fleet, u, replicas))
    peak = workload.requests_per_s_peak
    return MixPart(
        lane=lane,
        offer=option.offer,
        instances=kept * option.instances,
        replicas=kept * option.replicas,
        spare_replicas=kept * option.replicas - replicas,
        concurrency=lane.max_running_requests * lane.choice.lanes,
        requests_per_s=sum(use.requests_per_s for use in uses),
        usd_per_hour=kept * option.usd_per_hour,
        classes=tuple(
            (classes[use.job_index], use.requests_per_s / peak / classes[use.job_index].share_fraction) for use in uses
        ),
        ttft_p95_s=_p95([run], [1.0], "ttft_s"),
        tpot_p95_s=_p95([run], [1.0], "tpot_s"),
        rejected_requests=run.rejected_requests,
    )
