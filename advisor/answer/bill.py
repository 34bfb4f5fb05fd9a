"""The money of one option as JSON: its parts, its cash by month, other ways to pay, growth, energy by phase."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from advisor.answer.energy import energy_json
from advisor.engine.cost import (
    HOURS_PER_MONTH,
    Bill,
    Flow,
    Use,
    break_even_month,
    break_even_share,
    break_even_tokens,
    flows,
    growth,
    in_cents,
    life_months,
    net_present_usd,
    rent_parts,
    service_usd,
    sizes_under_growth,
    total_usd_per_hour,
    waterfall,
)
from advisor.engine.search import Catalog, Scored, best_offers, instances_of, repriced
from advisor.engine.spec import Offer, Part, Workload
from advisor.inputs import number

Json = dict[str, Any]
CURRENCY = "USD"
ASSUMED_TERMS = {"spot": "spot-discount-fraction", "reserved_1y": "reserved-discount-fraction"}


def money(
    taken: Json, workload: Workload, catalog: Catalog, s: Scored, rates: Mapping[str, float], prefill_share: float
) -> Json:
    """`money` of an R, and the price of cached input beside the others."""
    bill = bill_of(workload, catalog, s)
    found = flows(bill)
    mtok_per_hour = (rates["input"] + rates["output"]) * 3600.0 / 1e6
    use = use_of(s)
    return {
        "usd_per_mtok_cached_input": 0.0,
        "usd_per_mtok_cached_input_at_capacity": 0.0,
        "money": {
            "currency": CURRENCY,
            "prices_as_of": s.offer.as_of,
            "parts": parts_json(bill),
            "usd_per_month": cents_json(bill.usd_per_month),
            "usd_per_year": cents_json(bill.usd_per_month * 12),
            "usd_over_horizon": cents_json(bill.usd_per_month * bill.months),
            "npv_usd": cents_json(net_present_usd(found)),
            "horizon_months": bill.months,
            "discount_fraction_per_year": bill.discount_fraction,
            "capital_usd": cents_json(bill.capital_usd),
            "purchase_usd": cents_json(s.offer.purchase_usd * s.bought_instances),
            "waterfall": [
                {"name": name, "usd_per_mtok": number(usd)} for name, usd in waterfall(bill.parts, use, mtok_per_hour)
            ],
            "usd_per_mtok_computed_input": computed_input(workload, s, rates, prefill_share),
            "split": "input and output share the bill by the time that each phase takes; cached input takes none",
            "cash_flow": [flow_json(flow) for flow in found],
            "ways_to_pay": [way_json(workload, catalog, way) for way in ways(taken, workload, catalog, s)],
            "growth": growth_json(taken, bill, s, workload.slo.doubled),
            "services": services_json(catalog, s),
            "energy": energy_json(taken, workload, catalog, s, rates),
        },
    }


def bill_of(workload: Workload, catalog: Catalog, s: Scored) -> Bill:
    a = catalog.site_assumptions or catalog.assumptions
    return Bill(
        parts=s.parts,
        months=workload.horizon_months,
        discount_fraction=workload.discount_fraction,
        capital_usd=s.offer.capital_usd * s.bought_instances,
        life_months=life_months(a),
        residual_fraction=a.residual_fraction,
    )


def use_of(s: Scored) -> Use:
    """How much of what is paid serves."""
    carrying = (s.replicas - s.spare_replicas) / s.replicas
    return Use(
        instances_fraction=s.chips / (s.instances * s.offer.accelerators),
        carrying_fraction=carrying,
        busy_fraction=min(s.utilisation_fraction / carrying, 1.0),
    )


def parts_json(bill: Bill) -> list[Json]:
    """Each part with its cents; they add up to those of the month."""
    monthly = in_cents([part.usd_per_hour * HOURS_PER_MONTH for part in bill.parts])
    return [
        {"name": p.name, "group": p.group, "usd_per_hour": number(p.usd_per_hour), "usd_per_month": float(usd)}
        for p, usd in zip(bill.parts, monthly, strict=True)
    ]


def services_json(catalog: Catalog, s: Scored) -> Json | None:
    """What the provider charges for egress and storage; null where its price is not known and nothing is counted.

    None of a bought host: answers leave over the site's own line.
    """
    if s.offer.acquisition == "own":
        return None
    names = ("egress_usd_per_gb", "storage_usd_per_gb_month")
    prices = service_usd(s.offer.provider, catalog.assumptions)
    found = {name: None if usd is None else number(usd * 1e9) for name, usd in zip(names, prices, strict=True)}
    missing = [word for word, usd in zip(("egress", "storage"), prices, strict=True) if usd is None]
    said = f"{' and '.join(missing)} at {s.offer.provider}: price not known, counted as 0" if missing else ""
    return {**found, "not_known": missing, "said": said}


def computed_input(workload: Workload, s: Scored, rates: Mapping[str, float], prefill_share: float) -> float | None:
    """USD per million prompt tokens that no cache held: they alone take time."""
    computed = rates["input"] * (1.0 - workload.prefix_cache_hit_fraction)
    return number(s.usd_per_hour * prefill_share / (computed * 3600.0) * 1e6) if computed > 0 else None


def flow_json(flow: Flow) -> Json:
    amounts = ("capital_usd", "running_usd", "value_left_usd", "total_usd", "present_usd")
    return {"month": flow.month, **{name: cents_json(getattr(flow, name)) for name in amounts}}


def cents_json(usd: float) -> float:
    return float(in_cents([usd])[0])


# --- other ways to pay for the same machines --------------------------------------------------------------------


def ways(taken: Json, workload: Workload, catalog: Catalog, s: Scored) -> list[Scored]:
    """The same deployment under the cheapest offer of every way to pay for its chip, the chosen one first."""
    groups: dict[tuple[str, str], list[Offer]] = {}
    for offer in offers_beside(taken, workload, catalog, s):
        groups.setdefault((offer.acquisition, offer.term), []).append(offer)
    found = [s]
    for key, group in groups.items():
        best = None if key == (s.offer.acquisition, s.offer.term) else cheapest(workload, catalog, s, group)
        if best is not None:
            found.append(repriced(workload, catalog, s, best))
    return found


def offers_beside(taken: Json, workload: Workload, catalog: Catalog, s: Scored) -> Iterator[Offer]:
    """Offers of the option's chip that the planner's providers and regions leave, on whatever terms."""
    c = workload.constraints
    slug, there = s.lane.choice.accelerator.slug, set()
    for o in (*catalog.offers, *catalog.other_offers):
        named = not c.providers_allow or o.provider in c.providers_allow or o.acquisition == "own"
        if o.accelerator == slug and named and o.provider not in c.providers_deny and o.region not in c.regions_deny:
            there.add(o.term)
            yield o
    for term, key in ASSUMED_TERMS.items():
        if term not in there and s.offer.term == "on_demand" and key in taken["assumptions"]:
            yield discounted(taken, catalog, s.offer, term, key)


def discounted(taken: Json, catalog: Catalog, offer: Offer, term: str, key: str) -> Offer:
    """An on-demand offer as it would be at the usual discount of a term that the catalog has no price for."""
    row = taken["assumptions"][key]
    fraction = float(taken.get("tco", {}).get(key, row["value"]))
    parts = rent_parts(offer.parts[0].usd_per_hour * (1.0 - fraction), term, catalog.assumptions)
    source = f"assumed: {fraction:.0%} below the on-demand price ({key}: {row['source']})"
    return replace(offer, term=term, parts=parts, usd_per_hour=total_usd_per_hour(parts), source=source)


def cheapest(workload: Workload, catalog: Catalog, s: Scored, group: Sequence[Offer]) -> Offer | None:
    constraints = replace(workload.constraints, acquisition=("rent", "own"), providers_allow=(), regions_allow=())
    asked = replace(workload, constraints=constraints, objective="cost")
    within = replace(catalog, offers=tuple(group))
    load = np.array([[s.utilisation_fraction * s.paid_fraction]])
    carrying = np.array([[float(s.replicas - s.spare_replicas)]])
    usd, index, _, _ = best_offers(asked, within, [s.lane], carrying, load)
    return group[int(index[0, 0])] if math.isfinite(float(usd[0, 0])) else None


def way_json(workload: Workload, catalog: Catalog, s: Scored) -> Json:
    bill = bill_of(workload, catalog, s)
    return {
        "acquisition": s.offer.acquisition,
        "term": s.offer.term,
        "provider": s.offer.provider,
        "instance": s.offer.instance,
        "instances": s.instances,
        "region": s.offer.region,
        "usd_per_hour": number(s.usd_per_hour),
        "usd_per_month": cents_json(bill.usd_per_month),
        "capital_usd": cents_json(bill.capital_usd),
        "running_usd_per_month": cents_json(bill.running_usd_per_month),
        "life_months": bill.life_months if bill.capital_usd else None,
        "npv_usd": cents_json(net_present_usd(flows(bill))),
        "price_as_of": s.offer.as_of,
        "price_source": s.offer.source,
        "basis": "assumed" if s.offer.source.startswith("assumed: ") else "catalog",
    }


# --- growth, energy ---------------------------------------------------------------------------------------------


def growth_json(taken: Json, bill: Bill, s: Scored, doubled: bool) -> Json | None:
    """Everything at once, or more of it when the traffic comes; None: no growth was asked for."""
    rate = taken.get("growth_fraction_per_year", 0.0)
    if not rate or bill.months < 2 or s.offer.held_instances:  # of what is there, only the rest is bought
        return None
    carrying = s.replicas - s.spare_replicas

    def instances(size: float) -> float:
        return float(instances_of(s, s.offer, round(size * s.replicas)))

    spares = 0 if doubled else s.spare_replicas  # as many again grow in step
    sizes = sizes_under_growth(carrying, spares, rate, bill.months)
    found = growth(bill, [instances(size) / s.instances for size in sizes])
    return {
        "growth_fraction_per_year": rate,
        "replicas_at_end": round(sizes[-1] * s.replicas),
        "npv_all_now_usd": cents_json(found.now_usd),
        "npv_extending_usd": cents_json(found.later_usd),
        "better": "extend when the traffic comes" if found.later_usd < found.now_usd - 0.005 else "no difference",
        "assumes": "the option is sized for today's traffic; the peak grows with the mean; prices stay",
    }


# --- intervals and assumptions ----------------------------------------------------------------------------------


def swings(taken: Json, s: Scored) -> dict[str, tuple[float, float]]:
    """90 % factors of the bill by its prices and of a token's cost by the load; 1 where an old snapshot has none."""

    def ratio(key: str) -> float:
        row = taken["assumptions"].get(key, {"value": 1.0})
        return max(float(taken.get("tco", {}).get(key, row["value"])), 1.0)

    load = ratio("load-swing-ratio")
    o = s.offer
    if o.acquisition != "own":
        rent = ratio("rent-price-swing-ratio")
        return {"price": (1 / rent, rent), "load": (1 / load, load)}
    usual = ratio("purchase-price-swing-ratio")
    low, high = 1 / usual, usual
    if o.purchase_low_usd and o.purchase_usd:
        low, high = o.purchase_low_usd / o.purchase_usd, o.purchase_high_usd / o.purchase_usd
    capital = total_usd_per_hour([p for p in s.parts if p.group == "capital"]) / max(s.usd_per_hour, 1e-12)
    price = (1 + capital * (min(low, 1.0) - 1), 1 + capital * (max(high, 1.0) - 1))
    return {"price": price, "load": (1 / load, load)}


def assumptions(spec: Json, taken: Json) -> list[Json]:
    """Every visible default with what the workload put in its place."""
    tco = spec["tco"]
    said = [
        {
            "name": key,
            "value": tco.get(key, row["value"]),
            "unit": row["unit"],
            "source": "the workload" if key in tco else row["source"],
            "default": row["value"],
            "low": row.get("low"),
            "high": row.get("high"),
            "as_of": row.get("as_of"),
        }
        for key, row in taken["assumptions"].items()
    ]
    own = (("horizon", "horizon_months", "months"), ("discount rate", "discount_rate", "per year"))
    said += [{"name": n, "value": tco[key], "unit": unit, "source": "the workload"} for n, key, unit in own]
    if "power_cap_fraction" in tco:
        said.append({"name": "power cap", "value": tco["power_cap_fraction"], "unit": "of TDP", "source": CAPPED})
    return said


CAPPED = (
    "the workload; under a cap arithmetic slows with the cube root of dynamic power and memory keeps its rate: "
    "a rule of physics, not measured on the chip"
)


# --- between rent, own and API ----------------------------------------------------------------------------------


def beside_hosted(options: list[Json], hosted: Sequence[Json]) -> list[Json]:
    """The options with where their ways to pay meet each other and the cheapest endpoint that is sold by the token."""
    first = hosted[0] if hosted else None
    for r in options:
        r["money"]["break_even"] = list(meetings(r, first))
    return options


def meetings(r: Json, api: Json | None) -> Iterator[Json]:
    """Break-even of owning with renting (month, share of hours) and of both with the API (tokens a month)."""
    by = {(w["acquisition"], w["term"]): w for w in r["money"]["ways_to_pay"]}
    own = next((w for (how, _), w in by.items() if how == "own"), None)
    rent = by.get(("rent", "on_demand")) or next((w for (how, _), w in by.items() if how == "rent"), None)
    if own and rent:
        yield {
            "between": ["own", f"rent {rent['term']}"],
            "month": month_of(r, own, rent["usd_per_month"]),
            "share_of_hours": number(break_even_share(own["usd_per_month"], rent["usd_per_month"])),
            "tokens_per_month": None,
            "within_capacity": None,
            "said": "owning costs less from this month on; against rent by the hour, from this share of the hours",
        }
    if api is None or not api["usd_per_mtok_blended"]:
        return
    for name, way in (("own", own), ("rent", rent)):
        if way:
            tokens = break_even_tokens(way["usd_per_month"], api["usd_per_mtok_blended"])
            yield {
                "between": [name, f"API of {api['provider']}"],
                "month": month_of(r, way, api["usd_per_month"]) if name == "own" else None,
                "share_of_hours": None,
                "tokens_per_month": number(tokens),
                "within_capacity": within_capacity(r, tokens),
                "said": "from so many tokens a month, prompts and answers together, the machines cost less",
            }


def month_of(r: Json, own: Json, other_usd_per_month: float) -> int | None:
    bill = Bill(
        parts=(Part(name="running", usd_per_hour=own["running_usd_per_month"] / HOURS_PER_MONTH, group="running"),),
        months=r["money"]["horizon_months"],
        discount_fraction=r["money"]["discount_fraction_per_year"],
        capital_usd=own["capital_usd"],
        life_months=own["life_months"] or 1,
    )
    return break_even_month(bill, other_usd_per_month)


def within_capacity(r: Json, tokens_per_month: float) -> bool | None:
    """Whether the machines could serve so many tokens at this mix."""
    served = (r["usd_per_month"] / r["usd_per_mtok_blended"] * 1e6) if r.get("usd_per_mtok_blended") else None
    most = (
        served * r["capacity_requests_per_s"] / r["requests_per_s"] if served and r["capacity_requests_per_s"] else None
    )
    return None if most is None else tokens_per_month <= most
