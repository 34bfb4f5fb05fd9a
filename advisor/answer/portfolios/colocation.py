"""Small models on shared cards: which is where, and what isolation costs."""

import math
from collections.abc import Sequence
from string import Template

from advisor.engine.cost import HOURS_PER_MONTH
from advisor.engine.fleet import Limits, Member, pack_models
from advisor.engine.fleet import Packing as EnginePacking
from advisor.engine.fleet import Tenant as EngineTenant
from advisor.engine.search import describe
from advisor.engine.terms import usd_text
from advisor.inputs import number
from advisor.result import Card, Packed, Packing, Tenant

GIB = 2.0**30


def packed(members: Sequence[Member], alone_usd_per_hour: float, limits: Limits) -> Packed | None:
    """Small models on shared cards, as processes and in hardware instances; None: a workload cannot share a card."""
    if len(members) < 2 or not all(m.workload.kind.shares_cards for m in members):
        return None
    processes, instances = (pack_models(members, isolated, limits) for isolated in (False, True))
    return Packed(
        processes=packing(members, processes, "As processes that share a card"),
        instances=packing(members, instances, "In hardware instances of a card"),
        said=comparison(members, processes, instances, alone_usd_per_hour),
    )


def packing(members: Sequence[Member], p: EnginePacking, title: str) -> Packing:
    if p.offer is None or p.accelerator is None:
        return Packing(title=title, usd_per_month=None, reason=p.reason, cards=[])
    return Packing(
        title=title,
        accelerator=p.accelerator.slug,
        accelerator_count=len(p.cards),
        provider=p.offer.provider,
        instance=p.offer.instance,
        instances=p.instances,
        region=p.offer.region,
        price_as_of=p.offer.as_of,
        usd_per_month=number(p.usd_per_hour * HOURS_PER_MONTH),
        reason=p.reason,
        cards=[Card(tenants=[tenant(members, t, p) for t in card.tenants]) for card in p.cards],
    )


def tenant(members: Sequence[Member], t: EngineTenant, p: EnginePacking) -> Tenant:
    c, v = t.copy, t.verified
    assert p.accelerator is not None
    memory_bytes = t.partition.memory_bytes if t.partition else t.memory_fraction * p.accelerator.memory_bytes
    return Tenant(
        workload=members[c.member_index].workload.name,
        setup=describe(c.lane),
        partition=t.partition.profile if t.partition else None,
        memory_gib=number(memory_bytes / GIB),
        memory_fraction=number(t.memory_fraction, 3),
        needed_gib=number(c.needed_bytes / GIB),
        requests_per_s=number(c.requests_per_s),
        load_fraction=number(c.load_fraction, 4),
        busy_fraction=number(t.busy_fraction, 4),
        step_stretch=number(t.stretch, 4),
        ttft_ms_p95=number(v.ttft_p95_s * 1e3),
        tpot_ms_p95=number(v.tpot_p95_s * 1e3),
        flags=flags(t),
    )


def flags(t: EngineTenant) -> str:
    """Server options that limit its share of the card."""
    started = t.copy.lane.framework.launch
    if started is None or not started.card_share:
        return ""
    share = t.memory_fraction if t.partition else math.floor(t.memory_fraction * 100) / 100
    values = {"concurrency": t.copy.lane.max_running_requests, "memory_fraction": f"{share:g}"}
    return Template(started.card_share).substitute(values)


def comparison(
    members: Sequence[Member], processes: EnginePacking, instances: EnginePacking, alone_usd_per_hour: float
) -> str:
    """Both ways against each model alone, in a sentence each, and what fails together."""
    lines = [
        _sentence("As processes that share cards", processes, alone_usd_per_hour),
        _sentence("In hardware instances", instances, alone_usd_per_hour),
    ]
    if processes.cards and instances.cards:
        lines.append(_price_of_isolation(members, processes, instances))
    if processes.cards or instances.cards:
        lines.append("Models on the same card fail together; copies of one workload are on different cards.")
    return " ".join(lines)


def _price_of_isolation(members: Sequence[Member], processes: EnginePacking, instances: EnginePacking) -> str:
    """In money, and in TPOT of the workload that it slows most."""
    more = (instances.usd_per_hour - processes.usd_per_hour) * HOURS_PER_MONTH
    money = f"{usd_text(more)} a month" if more > 0.5 else "no money here"
    isolated, shared = (_tpot_p95_s(p) for p in (instances, processes))
    i = max(isolated, key=lambda k: isolated[k] / max(shared[k], 1e-9))
    name = members[i].workload.name
    return (
        f"Isolation costs {money}; p95 TPOT of {name} is {isolated[i] * 1e3:.3g} ms in an instance and "
        f"{shared[i] * 1e3:.3g} ms as a process."
    )


def _tpot_p95_s(p: EnginePacking) -> dict[int, float]:
    """p95 TPOT of each workload's slowest copy, by the index of its member."""
    slowest: dict[int, float] = {}
    for t in (t for card in p.cards for t in card.tenants):
        slowest[t.copy.member_index] = max(slowest.get(t.copy.member_index, 0.0), t.verified.tpot_p95_s)
    return slowest


def _sentence(way: str, p: EnginePacking, alone_usd_per_hour: float) -> str:
    if not p.cards or p.accelerator is None or not math.isfinite(p.usd_per_hour):
        return f"{way}: {p.reason}."
    usd = p.usd_per_hour * HOURS_PER_MONTH
    less = 1.0 - p.usd_per_hour / alone_usd_per_hour
    against = f", {less:.0%} less than each alone" if less > 0.005 else ", no cheaper than each alone"
    most = max(len(card.tenants) for card in p.cards)
    return (
        f"{way}: {len(p.cards)} x {p.accelerator.name}, up to {most} models on one, {usd_text(usd)} a month{against}."
    )
