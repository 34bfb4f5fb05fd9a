"""What a deployment does at its peak after the loss of one host, and what a spare would cost."""

import math
from dataclasses import dataclass, replace
from functools import partial

from advisor.engine.plans import OWNED as KEPT
from advisor.engine.scheduler import Verified, verify
from advisor.engine.search import (
    CONCURRENCY,
    Catalog,
    Question,
    Scored,
    Table,
    as_cached,
    best,
    deployed,
    excess,
    instances_of,
    on_offer,
    owned_offers,
    packing_of,
    simulated_pools,
    with_best_plan,
    with_plan,
)
from advisor.engine.terms import Workload, replicas_left

REQUESTS = 1000  # simulated after the loss


@dataclass(frozen=True, kw_only=True, slots=True)
class HostLoss:
    """The peak on what is left after the loss of any one host."""

    hosts: int  # in service
    replicas: int  # before
    replicas_left: int
    idle_instances: int  # owned, of the same kind and out of service: one of them takes over
    capacity_requests_per_s: float  # of what is left
    verified: Verified | None  # at the peak; None: nothing is left, or the queue grows without end
    limits_hold: bool
    spare_usd_per_hour: float | None  # for the limits to hold; None: they do, or no further host is to be had


def host_loss(question: Question, table: Table, s: Scored) -> HostLoss:
    """One host lost: the worst choice of host, at the peak, until the host is replaced."""
    p = packing_of(s.lane.choice, s.offer)
    carrying, left = s.replicas - s.spare_replicas, int(replicas_left(s.replicas, s.instances, p))
    idle = idle_instances(question.catalog, s)
    capacity = full_capacity(table, s) * left
    kept = idle > 0 or (left >= carrying and s.pools is None)
    seen = s.verified if kept else _on_the_rest(question.workload, table, s, left, capacity)
    holds = kept or (seen is not None and excess(question.workload, seen) <= 1.0)
    return HostLoss(
        hosts=s.instances * int(p.hosts),
        replicas=s.replicas,
        replicas_left=left,
        idle_instances=idle,
        capacity_requests_per_s=capacity,
        verified=seen,
        limits_hold=holds,
        spare_usd_per_hour=None if holds else spare_usd_per_hour(question, s),
    )


def full_capacity(table: Table, s: Scored) -> float:
    """The most requests/s of one replica, whatever its latency."""
    if s.pools is not None:
        return s.capacity_requests_per_s / s.replicas
    within = table.capacity_requests_per_s[s.row_index, s.concurrency >= CONCURRENCY]
    return max(float(within.max(initial=0.0)), s.capacity_requests_per_s / s.replicas)


def idle_instances(catalog: Catalog, s: Scored) -> int:
    """Owned instances of the deployment's kind that its plan leaves out of service in the first month."""
    held = sum(
        o.held_instances
        for o in owned_offers(catalog)
        if o.sells(s.lane.choice.accelerator) and o.accelerators == s.offer.accelerators
    )
    return max(held - int(s.planned.plan.in_service((KEPT,))[0]), 0) if s.planned else 0


def _on_the_rest(workload: Workload, table: Table, s: Scored, left: int, capacity: float) -> Verified | None:
    if left < 1 or table.built is None:
        return None
    if s.pools is not None:
        return _pools(workload, table, s, left)
    if workload.users is None and s.requests_per_s_peak >= capacity:
        return None
    lanes, row = left * s.lane.choice.lanes, s.row_index
    asked = as_cached(workload, s.kept_fraction)
    # of users, the rate that they would send if answers took no time
    peak = s.requests_per_s_peak if workload.users is None else workload.requests_per_s_peak
    return verify(asked, table.built.times, row, s.lane, peak / lanes, REQUESTS)


def _pools(workload: Workload, table: Table, s: Scored, left: int) -> Verified | None:
    """The worse of losing as many prefill or as many decode replicas as possible with the host."""
    assert s.pools is not None and table.built is not None
    lost = s.replicas - left
    sizes = s.pools.prefill_replicas, s.pools.decode_replicas
    if workload.slo.redundancy:  # on hosts of their own
        p = packing_of(s.lane.choice, s.offer)
        carrying = s.pools.carrying(s.replicas - s.spare_replicas)
        hosts = [workload.slo.redundancy.instances(n, p) for n in carrying]
        rest = [int(replicas_left(n, some, p)) for n, some in zip(sizes, hosts, strict=True)]
        pairs = [(rest[0], sizes[1]), (sizes[0], rest[1])]
    else:
        first, second = min(lost, sizes[0]), min(lost, sizes[1])
        pairs = [(sizes[0] - first, sizes[1] - lost + first), (sizes[0] - lost + second, sizes[1] - second)]
    if min(min(pair) for pair in pairs) < 1:
        return None
    run = partial(simulated_pools, workload, table.built, s.row_index, s.lane)
    seen = [run(pair, s.pools.transfer_s, REQUESTS) for pair in pairs]
    return max(seen, key=lambda v: excess(workload, v))


def _replanned(question: Question, s: Scored) -> Scored | None:
    """The deployment under the cheapest plan on the offers that it has; None: they have too few machines."""
    if s.planned is None:
        return None
    s = on_offer(question, s, s.offer)
    planned = best(question, deployed(question, s), s.planned.offers if s.planned else ())
    return with_plan(s, planned) if planned else None


def spare_usd_per_hour(question: Question, s: Scored) -> float | None:
    """What the plan costs more if the limits must hold after the loss of one more host; None: there is no such plan."""
    workload = question.workload
    safer = replace(workload, slo=replace(workload.slo, spare_hosts=workload.slo.spare_hosts + 1))
    there = _replanned(replace(question, workload=safer), s) or with_best_plan(replace(question, workload=safer), s)
    needed = instances_of(safer, s, there.offer, s.replicas - s.spare_replicas)
    if there.planned is None or there.planned is s.planned or there.instances < needed:
        return None
    more = there.usd_per_hour - s.usd_per_hour
    return more if math.isfinite(more) and more > 0 else None
