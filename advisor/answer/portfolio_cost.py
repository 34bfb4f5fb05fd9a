"""The costs of a portfolio as JSON: what is bought or rented for all of it, and its cash by month."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from advisor.answer.bill import CURRENCY, cents_json, flow_json, parts_json
from advisor.engine.cost import HOURS_PER_MONTH, Bill, at_load, flows, life_months, net_present_usd
from advisor.engine.fleet import Machine, Member, Option, Shared
from advisor.engine.spec import Offer, Part
from advisor.inputs import number

Json = dict[str, Any]
REST = "licences and power at the fleet's load"
FLOWS = ("capital_usd", "running_usd", "value_left_usd", "total_usd", "present_usd")


def money_json(members: Sequence[Member], answers: Sequence[Json], found: Shared) -> Json | None:
    """Of the shared fleet; where there is none, of each workload alone, added; null where one has no answer."""
    if found.machines:
        return of_fleet(members, found)
    firsts = [a["recommendations"][0] for a in answers if a["recommendations"]]
    return of_each(answers, firsts) if len(firsts) == len(answers) else None


def of_fleet(members: Sequence[Member], found: Shared) -> Json:
    options = {r.machine: r.option for r in found.runs}
    bill = bill_of(members, found, options)
    cash = flows(bill)
    days = [options[machine].offer.as_of for machine, _ in found.machines]
    return {
        "of": "one shared fleet",
        "currency": CURRENCY,
        "prices_as_of": min(days),
        "horizon_months": bill.months,
        "discount_fraction_per_year": bill.discount_fraction,
        "usd_per_month": cents_json(bill.usd_per_month),
        "capital_usd": cents_json(bill.capital_usd),
        "npv_usd": cents_json(net_present_usd(cash)),
        "parts": parts_json(bill),
        "cash_flow": [flow_json(flow) for flow in cash],
        "items": [item_json(machine, count, options[machine]) for machine, count in found.machines],
    }


def bought(offer: Offer, instances: float) -> float:
    """Of so many instances of a bought host's offer: without those that are there already."""
    return max(instances - offer.held_instances, 0.0) if offer.capital_usd else 0.0


def bill_of(members: Sequence[Member], found: Shared, options: Mapping[Machine, Option]) -> Bill:
    """What the machines cost together; the planner's horizon and discount are those of the first workload."""
    first, capital = members[0], 0.0
    parts: list[Part] = []
    a = first.catalog.site_assumptions or first.catalog.assumptions
    for machine, count in found.machines:
        option = options[machine]
        instances = option.instances * count
        each = option.offer.parts or (Part(name="instances", usd_per_hour=option.offer.usd_per_hour, group="rent"),)
        whole = at_load(each, instances, 1.0)
        rest = machine.usd_per_hour * count - math.fsum(p.usd_per_hour for p in whole)
        parts += [*whole, Part(name=REST, usd_per_hour=rest, group="running")] if abs(rest) > 1e-9 else whole
        capital += option.offer.capital_usd * bought(option.offer, instances)
    return Bill(
        parts=tuple(merged(parts)),
        months=first.workload.horizon_months,
        discount_fraction=first.workload.discount_fraction,
        capital_usd=capital,
        life_months=life_months(a),
        residual_fraction=a.residual_fraction,
    )


def merged(parts: Sequence[Part]) -> list[Part]:
    """Parts of one name together, in the order in which they first came."""
    found: dict[tuple[str, str], float] = {}
    for p in parts:
        found[(p.name, p.group)] = found.get((p.name, p.group), 0.0) + p.usd_per_hour
    return [Part(name=name, usd_per_hour=usd, group=group) for (name, group), usd in found.items()]


def item_json(machine: Machine, count: float, option: Option) -> Json:
    o = option.offer
    return {
        "for": "all",
        "quantity": number(count * option.instances),
        "item": o.instance or machine.accelerator,
        "provider": o.provider,
        "region": o.region,
        "term": o.term,
        "unit_usd_once": number(o.capital_usd) if o.capital_usd else None,
        "unit_usd_per_month": number(machine.usd_per_hour / option.instances * HOURS_PER_MONTH),
        "price_as_of": o.as_of,
        "source": o.source,
    }


def of_each(answers: Sequence[Json], firsts: Sequence[Json]) -> Json:
    """Each workload's first choice, added; the longest horizon holds, and what ends earlier is over then."""
    each = [r["money"] for r in firsts]
    last = max(m["horizon_months"] for m in each)
    cash = []
    for month in range(last + 1):
        own = [m["cash_flow"][month] for m in each if month < len(m["cash_flow"])]
        cash.append({"month": month, **{name: cents_json(math.fsum(f[name] for f in own)) for name in FLOWS}})
    return {
        "of": "each workload alone",
        "currency": CURRENCY,
        "prices_as_of": min(m["prices_as_of"] for m in each),
        "horizon_months": last,
        "discount_fraction_per_year": each[0]["discount_fraction_per_year"],
        "usd_per_month": cents_json(math.fsum(m["usd_per_month"] for m in each)),
        "capital_usd": cents_json(math.fsum(m["capital_usd"] for m in each)),
        "npv_usd": cents_json(math.fsum(m["npv_usd"] for m in each)),
        "parts": [
            {**part, "name": f"{name_of(a)}: {part['name']}"}
            for a, m in zip(answers, each, strict=True)
            for part in m["parts"]
        ],
        "cash_flow": cash,
        "items": [alone_item(a, r) for a, r in zip(answers, firsts, strict=True)],
    }


def name_of(answer: Json) -> str:
    return str(answer["workload"]["name"])


def alone_item(answer: Json, r: Json) -> Json:
    m, count = r["money"], r["instances"]
    return {
        "for": name_of(answer),
        "quantity": count,
        "item": r["instance"] or r["accelerator_name"],
        "provider": r["provider"],
        "region": r["region"],
        "term": r["term"],
        "unit_usd_once": number(m["capital_usd"] / count) if m["capital_usd"] else None,
        "unit_usd_per_month": number(m["usd_per_month"] / count),
        "price_as_of": r["price_as_of"],
        "source": r["price_source"],
    }
