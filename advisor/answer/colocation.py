"""Small models side by side on the same cards in the JSON of a portfolio: who is where, and what isolation costs."""

import math
from collections.abc import Sequence
from string import Template
from typing import Any

from advisor.engine.cost import HOURS_PER_MONTH
from advisor.engine.fleet import Limits, Member, Packing, Tenant, pack_models
from advisor.engine.search import describe
from advisor.inputs import number

Json = dict[str, Any]
GIB = 2.0**30
WAYS = {"processes": False, "instances": True}
TITLES = {"processes": "As processes that share a card", "instances": "In hardware instances of a card"}


def packing_json(members: Sequence[Member], alone_usd_per_hour: float, limits: Limits) -> Json | None:
    """`packed` of a portfolio: as processes that share cards, and in hardware instances; None: not all can share."""
    if len(members) < 2 or not all(m.workload.kind.shares_cards for m in members):
        return None
    found = {way: pack_models(members, isolated, limits) for way, isolated in WAYS.items()}
    told: Json = {way: {"title": TITLES[way], **way_json(members, p)} for way, p in found.items()}
    return {**told, "said": said(members, found, alone_usd_per_hour)}


def way_json(members: Sequence[Member], p: Packing) -> Json:
    if p.offer is None or p.accelerator is None:
        return {"usd_per_month": None, "reason": p.reason, "cards": []}
    return {
        "accelerator": p.accelerator.slug,
        "accelerator_count": len(p.cards),
        "provider": p.offer.provider,
        "instance": p.offer.instance,
        "instances": p.instances,
        "region": p.offer.region,
        "price_as_of": p.offer.as_of,
        "usd_per_month": number(p.usd_per_hour * HOURS_PER_MONTH),
        "reason": p.reason,
        "cards": [{"tenants": [tenant_json(members, t, p) for t in card.tenants]} for card in p.cards],
    }


def tenant_json(members: Sequence[Member], t: Tenant, p: Packing) -> Json:
    c, v = t.copy, t.verified
    assert p.accelerator is not None
    memory_bytes = t.partition.memory_bytes if t.partition else t.memory_fraction * p.accelerator.memory_bytes
    return {
        "workload": members[c.member_index].workload.name,
        "setup": describe(c.lane),
        "partition": t.partition.profile if t.partition else None,
        "memory_gib": number(memory_bytes / GIB),
        "memory_fraction": number(t.memory_fraction, 3),
        "needed_gib": number(c.needed_bytes / GIB),
        "requests_per_s": number(c.requests_per_s),
        "load_fraction": number(c.load_fraction, 4),
        "busy_fraction": number(t.busy_fraction, 4),
        "step_stretch": number(t.stretch, 4),
        "ttft_ms_p95": number(v.ttft_p95_s * 1e3),
        "tpot_ms_p95": number(v.tpot_p95_s * 1e3),
        "flags": flags(t),
    }


def flags(t: Tenant) -> str:
    """What its server is started with, beside the model and a port of its own."""
    started = t.copy.lane.framework.launch
    if started is None or not started.card_share:
        return ""
    share = t.memory_fraction if t.partition else math.floor(t.memory_fraction * 100) / 100
    values = {"concurrency": t.copy.lane.max_running_requests, "memory_fraction": f"{share:g}"}
    return Template(started.card_share).substitute(values)


def said(members: Sequence[Member], found: dict[str, Packing], alone_usd_per_hour: float) -> str:
    """Both ways against each alone, in a sentence each; what fails together."""
    together, apart = found["processes"], found["instances"]
    lines = [_sentence("As processes that share cards", together, alone_usd_per_hour)]
    lines.append(_sentence("In hardware instances", apart, alone_usd_per_hour))
    if together.cards and apart.cards:
        lines.append(_price_of_isolation(members, together, apart))
    if together.cards or apart.cards:
        lines.append("All on a card fail with it; copies of one workload are on different cards.")
    return " ".join(lines)


def _price_of_isolation(members: Sequence[Member], together: Packing, apart: Packing) -> str:
    """In money, and in the time of a token of the workload that feels it most."""
    more = (apart.usd_per_hour - together.usd_per_hour) * HOURS_PER_MONTH
    money = f"${more:,.0f} a month" if more > 0.5 else "no money here"
    slow, fast = (_tokens_s(p) for p in (apart, together))
    i = max(slow, key=lambda k: slow[k] / max(fast[k], 1e-9))
    name = members[i].workload.name
    return (
        f"Isolation costs {money}; a token of {name} takes {slow[i] * 1e3:.3g} ms apart, {fast[i] * 1e3:.3g} together."
    )


def _tokens_s(p: Packing) -> dict[int, float]:
    """p95 TPOT of each workload, of its slowest copy."""
    found: dict[int, float] = {}
    for t in (t for card in p.cards for t in card.tenants):
        found[t.copy.member_index] = max(found.get(t.copy.member_index, 0.0), t.verified.tpot_p95_s)
    return found


def _sentence(way: str, p: Packing, alone_usd_per_hour: float) -> str:
    if not p.cards or p.accelerator is None or not math.isfinite(p.usd_per_hour):
        return f"{way}: {p.reason}."
    usd = p.usd_per_hour * HOURS_PER_MONTH
    less = 1.0 - p.usd_per_hour / alone_usd_per_hour
    against = f", {less:.0%} less than each alone" if less > 0.005 else ", no less than each alone"
    most = max(len(card.tenants) for card in p.cards)
    return f"{way}: {len(p.cards)} x {p.accelerator.name}, up to {most} models on one, ${usd:,.0f} a month{against}."
