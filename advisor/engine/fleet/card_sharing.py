"""Ways to use one card: one server, hardware partitions or time slicing; and LoRA adapters against merged copies.

Each way is sized, priced and simulated like in the search, on the card and with the configuration of an answer.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from advisor.engine.cost import hour_usd
from advisor.engine.search import (
    Catalog,
    Question,
    Scored,
    SearchResult,
    Simulations,
    Table,
    efficiency_on,
    estimated_excess,
    evaluate,
    search,
    tpot_limit_s,
)
from advisor.engine.step import Lane, lanes
from advisor.engine.terms import Accelerator, Partition, Workload, cut_into

LOW_UTILIZATION = 0.5  # peak load over capacity; sharing is considered only below it
CHEAPEST_CHIPS = 8  # tried for a merged copy, in addition to the chips of the answer
TIME_SLICES = "time slices"


@dataclass(frozen=True, kw_only=True, slots=True)
class SharingOption:
    """One way to use the card, with its simulated deployment."""

    accelerator: Accelerator
    scored: Scored | None  # None: it misses a limit
    requests_per_s_per_chip: float = math.nan  # maximum within the TPOT limit and memory
    reason: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class MergedCopies:
    """Deployments with one merged copy of the model per adapter."""

    each: Scored | None  # cheapest deployment of one copy with its share of the load; None: not feasible
    count: int
    side_by_side_replicas: int  # copies that fit on one card of `each`, with workspace and one sequence each

    @property
    def usd_per_hour(self) -> float:
        """Cost with each copy on its own chips; copies share instances with idle chips."""
        if self.each is None:
            return math.nan
        used = self.each.chips / (self.each.instances * self.each.offer.accelerators)
        return float(hour_usd(self.each.usd_per_hour, self.count * used))

    @property
    def packed_usd_per_hour(self) -> float:
        """Lower bound on the cost if copies share cards as memory allows, ignoring latency."""
        return self.usd_per_hour / max(self.side_by_side_replicas, 1)


def time_share(a: Accelerator, count: int) -> Partition:
    """`count` busy processes on one card: memory divided equally, cores and bandwidth time-sliced."""
    return Partition(
        way=TIME_SLICES,
        profile=f"1/{count}",
        instances=count,
        memory_bytes=a.memory_bytes / count,
        bandwidth_fraction=1.0 / count,
        compute_fraction=1.0 / count,
        cores=a.cores,
        sram_fraction=1.0,
    )


def most_requests_per_s(workload: Workload, table: Table, row: int) -> float:
    """Maximum requests/s of one replica within the TPOT limit, with every slot busy."""
    limit = tpot_limit_s(workload) or math.inf
    return float(np.max(table.capacity_requests_per_s[row], where=table.busy_tpot_s[row] <= limit, initial=0.0))


def underused_first_choice(workload: Workload, answer: SearchResult) -> Scored | None:
    """The first choice if it is one partitionable card that its load leaves mostly idle, else None."""
    partitions = workload.constraints.partitions
    if partitions == "no" or not workload.kind.shares_cards or answer.table is None or not answer.ranked:
        return None
    s = answer.ranked[0]
    c, carrying = s.lane.choice, s.replicas - s.spare_replicas
    plain = c.tp * c.pp * c.dp == 1 and s.pools is None and s.lane.draft is None
    able = bool(c.accelerator.partitions) or c.accelerator.cut is not None
    if not (plain and able):
        return None
    most = most_requests_per_s(workload, answer.table, s.row_index)
    idle = carrying == 1 and s.requests_per_s_peak <= LOW_UTILIZATION * most
    return s if idle or partitions in ("yes", "required") else None


def sharing_options(question: Question, answer: SearchResult) -> list[SharingOption]:
    """The first choice's card whole, partitioned and time-sliced; empty if sharing is not useful."""
    catalog = question.catalog
    s = underused_first_choice(question.workload, answer)
    if s is None:
        return []
    card = next(a for a in catalog.accelerators if a.slug == s.lane.choice.accelerator.slug)
    cuts = [cut_into(card, p) for p in card.partitions]
    shared = [cut_into(card, time_share(card, n)) for n in sorted({c.instances for c in cuts})]
    wanted = [_lane_on(s.lane, a, catalog) for a in (card, *cuts, *shared)]
    offered = replace(catalog, offers=(s.offer,))
    table = evaluate(replace(question, catalog=offered), wanted)
    simulations = Simulations(replace(question, catalog=offered), table)
    fitting = {lane.choice.accelerator.name: i for i, lane in enumerate(table.lanes)}
    return [_sharing_option(question.workload, simulations, table, lane.choice.accelerator, fitting) for lane in wanted]


def _lane_on(lane: Lane, a: Accelerator, catalog: Catalog) -> Lane:
    choice = replace(lane.choice, accelerator=a, efficiency=efficiency_on(catalog.scopes, a))
    return replace(lane, choice=choice, max_running_requests=lane.framework.max_running_requests)


def _sharing_option(
    workload: Workload, simulations: Simulations, table: Table, a: Accelerator, fitting: dict[str, int]
) -> SharingOption:
    """One way simulated at its cheapest concurrency; ties go to the fastest."""
    if a.name not in fitting:
        return SharingOption(accelerator=a, scored=None, reason="the model does not fit in one instance")
    row = fitting[a.name]
    excess = estimated_excess(workload, table)[row]
    cost = np.where(excess <= 1.0, table.usd_per_hour[row] * (1 + 1e-6 * table.tpot_p95_s[row]), np.inf)
    if not np.isfinite(cost).any():
        beyond = float(np.min(excess))
        return SharingOption(accelerator=a, scored=None, reason=f"estimated latency is {beyond:.2g} times its limit")
    trial = simulations.fewest_replicas(workload, row, int(np.argmin(cost)))
    if trial.excess_fraction > 1:
        return SharingOption(
            accelerator=a, scored=None, reason=f"simulated latency is {trial.excess_fraction:.2g} times its limit"
        )
    most = most_requests_per_s(workload, table, row)
    return SharingOption(accelerator=a, scored=simulations.scored(workload, trial), requests_per_s_per_chip=most)


# --- adapters ---------------------------------------------------------------------------------------------------


def merged_copies(question: Question, answer: SearchResult) -> MergedCopies | None:
    """The adapters as merged copies of the model, each with an equal share of the load; None without adapters."""
    catalog = question.catalog
    a = catalog.model.adapters
    if a is None:
        return None
    alone = replace(catalog, model=replace(catalog.model, adapters=None))
    result = search(replace(question, workload=_share(question, answer, a.count), catalog=alone), choice_alone=True)
    each = result.ranked[0] if result.ranked else None
    return MergedCopies(each=each, count=a.count, side_by_side_replicas=_copies_per_card(alone, each) if each else 0)


def _share(question: Question, answer: SearchResult, count: int) -> Workload:
    """The workload with 1 / `count` of the load, on the answer's chips and the cheapest chips."""
    workload = question.workload
    usd: dict[str, float] = {}
    for o in question.catalog.offers:
        usd[o.accelerator] = min(usd.get(o.accelerator, math.inf), o.usd_per_hour)
    cheap = sorted(usd, key=lambda slug: (usd[slug], slug))
    served = {a.slug for a in question.catalog.accelerators if a.served}
    chips = [slug for slug in cheap if slug in served][:CHEAPEST_CHIPS]
    chips += [s.lane.choice.accelerator.slug for s in answer.ranked]
    users = workload.users
    c = workload.constraints
    allow = tuple(x for x in dict.fromkeys(chips) if not c.accelerators_allow or x in c.accelerators_allow)
    return replace(
        workload,
        requests_per_s_mean=workload.requests_per_s_mean / count,
        requests_per_s_peak=workload.requests_per_s_peak / count,
        users=replace(users, active_requests=users.active_requests / count) if users else None,
        trace=None,
        variants="no",
        objective="cost",
        constraints=replace(c, accelerators_allow=allow or c.accelerators_allow, max_usd_per_month=None),
    )


def _copies_per_card(catalog: Catalog, s: Scored) -> int:
    room = lanes(catalog.model, [s.lane]).memory
    taken = room.weights_bytes + room.activations_bytes + room.overhead_bytes + room.kv_bytes_per_sequence
    return max(int(room.usable_bytes[0] / taken[0]), 1)
