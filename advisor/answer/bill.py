"""What one option costs: the bill by part, cash flow, other ways to pay, growth, energy, break-even."""

import datetime
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal

import numpy as np

from advisor.answer.energy import energy
from advisor.engine.cost import (
    HOURS_PER_MONTH,
    Bill,
    Flow,
    Use,
    break_even_month,
    break_even_share,
    break_even_tokens,
    combined_ratio,
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
from advisor.inputs import number, rounded
from advisor.result import (
    Assumption,
    BreakEven,
    BuyNowOrExtend,
    CashFlow,
    CostPart,
    HostedOffer,
    Money,
    Option,
    ProviderServices,
    WaterfallStep,
    WayToPay,
)

Json = dict[str, Any]
CURRENCY: Final[Literal["USD"]] = "USD"
ASSUMED_TERMS = {"spot": "spot-discount-fraction", "reserved_1y": "reserved-discount-fraction"}


def money(
    snapshot: Json,
    workload: Workload,
    catalog: Catalog,
    s: Scored,
    tokens_per_s: Mapping[str, float],
    prefill_share: float,
) -> Money:
    """What the option costs over the horizon, but for the break-even (`with_break_even`).

    tokens_per_s: input and output tokens at the mean load; prefill_share: prefill's share of a request's time.
    """
    bill = bill_of(workload, catalog, s)
    monthly_flows = flows(bill)
    mtok_per_hour = (tokens_per_s["input"] + tokens_per_s["output"]) * 3600.0 / 1e6
    return Money(
        currency=CURRENCY,
        prices_as_of=s.offer.as_of,
        parts=cost_parts(bill),
        usd_per_month=cents(bill.usd_per_month),
        usd_per_year=cents(bill.usd_per_month * 12),
        usd_over_horizon=cents(bill.usd_per_month * bill.months),
        npv_usd=cents(net_present_usd(monthly_flows)),
        horizon_months=bill.months,
        discount_fraction_per_year=bill.discount_fraction,
        capital_usd=cents(bill.capital_usd),
        purchase_usd=cents(s.offer.purchase_usd * s.bought_instances),
        waterfall=[
            WaterfallStep(name=name, usd_per_mtok=rounded(usd))
            for name, usd in waterfall(bill.parts, use_of(s), mtok_per_hour)
        ],
        usd_per_mtok_computed_input=computed_input(workload, s, tokens_per_s, prefill_share),
        split="input and output share the bill by the time that each phase takes; cached input takes none",
        cash_flow=[cash_flow(flow) for flow in monthly_flows],
        ways_to_pay=[way_to_pay(workload, catalog, way) for way in ways_to_pay(snapshot, workload, catalog, s)],
        growth=buy_now_or_extend(snapshot, bill, s, workload.slo.doubled),
        services=provider_services(catalog, s),
        energy=energy(snapshot, workload, catalog, s, tokens_per_s),
    )


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
    """Which share of the paid capacity serves requests."""
    carrying = (s.replicas - s.spare_replicas) / s.replicas
    return Use(
        instances_fraction=s.chips / (s.instances * s.offer.accelerators),
        carrying_fraction=carrying,
        busy_fraction=min(s.utilisation_fraction / carrying, 1.0),
    )


def cost_parts(bill: Bill) -> list[CostPart]:
    """Each part with its cents; they add up to those of the month."""
    monthly = in_cents([part.usd_per_hour * HOURS_PER_MONTH for part in bill.parts])
    return [
        CostPart(name=p.name, group=p.group, usd_per_hour=rounded(p.usd_per_hour), usd_per_month=float(usd))
        for p, usd in zip(bill.parts, monthly, strict=True)
    ]


def provider_services(catalog: Catalog, s: Scored) -> ProviderServices | None:
    """What the provider charges for egress and storage; null where its price is not known and nothing is counted.

    None for own hardware: answers leave over the site's own line.
    """
    if s.offer.acquisition == "own":
        return None
    egress, storage = service_usd(s.offer.provider, catalog.assumptions)
    missing = [name for name, usd in (("egress", egress), ("storage", storage)) if usd is None]
    return ProviderServices(
        egress_usd_per_gb=None if egress is None else number(egress * 1e9),
        storage_usd_per_gb_month=None if storage is None else number(storage * 1e9),
        not_known=missing,
        said=f"{' and '.join(missing)} at {s.offer.provider}: price not known, counted as 0" if missing else "",
    )


def computed_input(
    workload: Workload, s: Scored, tokens_per_s: Mapping[str, float], prefill_share: float
) -> float | None:
    """USD per million prompt tokens that no prefix cache held: they alone take time."""
    computed = tokens_per_s["input"] * (1.0 - workload.prefix_cache_hit_fraction)
    return number(s.usd_per_hour * prefill_share / (computed * 3600.0) * 1e6) if computed > 0 else None


def cash_flow(flow: Flow) -> CashFlow:
    return CashFlow(
        month=flow.month,
        capital_usd=cents(flow.capital_usd),
        running_usd=cents(flow.running_usd),
        value_left_usd=cents(flow.value_left_usd),
        total_usd=cents(flow.total_usd),
        present_usd=cents(flow.present_usd),
    )


def cents(usd: float) -> float:
    """USD rounded to cents as people round."""
    return float(in_cents([usd])[0])


# --- other ways to pay for the same machines --------------------------------------------------------------------


def ways_to_pay(snapshot: Json, workload: Workload, catalog: Catalog, s: Scored) -> list[Scored]:
    """The same deployment under the cheapest offer of every way to pay for its chip, the chosen one first."""
    groups: dict[tuple[str, str], list[Offer]] = {}
    for offer in offers_of_chip(snapshot, workload, catalog, s):
        groups.setdefault((offer.acquisition, offer.term), []).append(offer)
    priced = [s]
    for key, group in groups.items():
        best = None if key == (s.offer.acquisition, s.offer.term) else cheapest(workload, catalog, s, group)
        if best is not None:
            priced.append(repriced(workload, catalog, s, best))
    return priced


def offers_of_chip(snapshot: Json, workload: Workload, catalog: Catalog, s: Scored) -> Iterator[Offer]:
    """Offers of the option's chip that the planner's providers and regions leave, on any terms."""
    c = workload.constraints
    chip, terms = s.lane.choice.accelerator, set()
    for o in (*catalog.offers, *catalog.other_offers):
        named = not c.providers_allow or o.provider in c.providers_allow or o.acquisition == "own"
        if o.sells(chip) and named and o.provider not in c.providers_deny and not o.is_in(c.regions_deny):
            terms.add(o.term)
            yield o
    for term, key in ASSUMED_TERMS.items():
        if term not in terms and s.offer.term == "on_demand" and key in snapshot["assumptions"]:
            yield discounted(snapshot, catalog, s.offer, term, key)


def discounted(snapshot: Json, catalog: Catalog, offer: Offer, term: str, key: str) -> Offer:
    """An on-demand offer as it would be at the usual discount of a term that the catalog has no price for."""
    row = snapshot["assumptions"][key]
    fraction = float(snapshot.get("tco", {}).get(key, row["value"]))
    parts = rent_parts(offer.parts[0].usd_per_hour * (1.0 - fraction), term, catalog.assumptions)
    source = f"assumed: {fraction:.0%} below the on-demand price ({key}: {row['source']})"
    return replace(offer, term=term, parts=parts, usd_per_hour=total_usd_per_hour(parts), source=source)


def cheapest(workload: Workload, catalog: Catalog, s: Scored, group: Sequence[Offer]) -> Offer | None:
    constraints = replace(workload.constraints, acquisition=("rent", "own"), providers_allow=(), regions_allow=())
    by_cost = replace(workload, constraints=constraints, objective="cost")
    within = replace(catalog, offers=tuple(group))
    load = np.array([[s.utilisation_fraction * s.paid_fraction]])
    carrying = np.array([[float(s.replicas - s.spare_replicas)]])
    usd, index, _, _ = best_offers(by_cost, within, [s.lane], carrying, load)
    return group[int(index[0, 0])] if math.isfinite(float(usd[0, 0])) else None


def way_to_pay(workload: Workload, catalog: Catalog, s: Scored) -> WayToPay:
    bill = bill_of(workload, catalog, s)
    return WayToPay(
        acquisition=s.offer.acquisition,
        term=s.offer.term,
        provider=s.offer.provider,
        instance=s.offer.instance,
        instances=s.instances,
        region=s.offer.region,
        usd_per_hour=rounded(s.usd_per_hour),
        usd_per_month=cents(bill.usd_per_month),
        capital_usd=cents(bill.capital_usd),
        running_usd_per_month=cents(bill.running_usd_per_month),
        life_months=bill.life_months if bill.capital_usd else None,
        npv_usd=cents(net_present_usd(flows(bill))),
        price_as_of=s.offer.as_of,
        price_source=s.offer.source,
        basis="assumed" if s.offer.source.startswith("assumed: ") else "catalog",
    )


# --- growth -----------------------------------------------------------------------------------------------------


def buy_now_or_extend(snapshot: Json, bill: Bill, s: Scored, doubled: bool) -> BuyNowOrExtend | None:
    """Everything at once, or more machines when the traffic comes; None: no growth was asked for."""
    rate = snapshot.get("growth_fraction_per_year", 0.0)
    if not rate or bill.months < 2 or s.offer.held_instances:  # of what is there, only the rest is bought
        return None
    carrying = s.replicas - s.spare_replicas

    def instances(size: float) -> float:
        return float(instances_of(s, s.offer, round(size * s.replicas)))

    spares = 0 if doubled else s.spare_replicas  # as many again grow in step
    sizes = sizes_under_growth(carrying, spares, rate, bill.months)
    costs = growth(bill, [instances(size) / s.instances for size in sizes])
    return BuyNowOrExtend(
        growth_fraction_per_year=rate,
        replicas_at_end=round(sizes[-1] * s.replicas),
        npv_all_now_usd=cents(costs.now_usd),
        npv_extending_usd=cents(costs.later_usd),
        better="extend when the traffic comes" if costs.later_usd < costs.now_usd - 0.005 else "no difference",
        assumes="the option is sized for today's traffic; the peak grows with the mean; prices stay",
    )


# --- intervals and assumptions ----------------------------------------------------------------------------------


def price_and_load_ranges(snapshot: Json, s: Scored) -> dict[str, tuple[float, float]]:
    """90 % factors on the bill (`price`) and on the load (`load`); 1 where an old snapshot has none."""

    def ratio(key: str) -> float:
        row = snapshot["assumptions"].get(key, {"value": 1.0})
        return max(float(snapshot.get("tco", {}).get(key, row["value"])), 1.0)

    def widest(key: str) -> float:
        """The high end of the assumption, unless the planner set a value."""
        set_by_planner = key in snapshot.get("tco", {})
        high = snapshot["assumptions"].get(key, {}).get("high")
        return ratio(key) if set_by_planner or not high else max(float(high), ratio(key))

    load, o = ratio("load-swing-ratio"), s.offer
    older = ratio("price-age-swing-ratio") ** math.sqrt(price_age_years(snapshot, o))
    aged = (1 / older, older)
    if o.acquisition != "own":
        rent = ratio("rent-price-swing-ratio")
        return {"price": combined_ratio([(1 / rent, rent), aged]), "load": (1 / load, load)}
    usual = widest("purchase-price-swing-ratio") if o.weakness else ratio("purchase-price-swing-ratio")
    printed = (1 / usual, usual)
    if o.purchase_low_usd and o.purchase_usd:
        printed = min(o.purchase_low_usd / o.purchase_usd, 1.0), max(o.purchase_high_usd / o.purchase_usd, 1.0)
    low, high = combined_ratio([printed, aged])
    capital = total_usd_per_hour([p for p in s.parts if p.group == "capital"]) / max(s.usd_per_hour, 1e-12)
    return {"price": (1 + capital * (low - 1), 1 + capital * (high - 1)), "load": (1 / load, load)}


def price_age_years(snapshot: Json, o: Offer) -> float:
    """Age of a price on the day of the question, years."""
    days = datetime.date.fromisoformat(snapshot.get("asked_on", o.as_of)) - datetime.date.fromisoformat(o.as_of)
    return max(days.days, 0) / 365.25


def assumptions(spec: Json, snapshot: Json) -> list[Assumption]:
    """Every visible default with what the workload put in its place."""
    tco = spec["tco"]
    rows = [
        Assumption(
            name=key,
            value=tco.get(key, row["value"]),
            unit=row["unit"],
            source="the workload" if key in tco else row["source"],
            default=row["value"],
            low=row.get("low"),
            high=row.get("high"),
            as_of=row.get("as_of"),
        )
        for key, row in snapshot["assumptions"].items()
    ]
    own = (("horizon", "horizon_months", "months"), ("discount rate", "discount_rate", "per year"))
    rows += [Assumption(name=n, value=tco[key], unit=unit, source="the workload") for n, key, unit in own]
    if "power_cap_fraction" in tco:
        rows.append(Assumption(name="power cap", value=tco["power_cap_fraction"], unit="of TDP", source=CAPPED))
    return rows


CAPPED = (
    "the workload; under a power cap arithmetic slows with the cube root of dynamic power and memory keeps its rate: "
    "a physical rule, not measured on this chip"
)


# --- break-even between renting, owning and a hosted API --------------------------------------------------------


def with_break_even(options: Sequence[Option], hosted: Sequence[HostedOffer]) -> list[Option]:
    """The options, each with where its ways to pay meet each other and the cheapest hosted API."""
    api = hosted[0] if hosted else None
    return [
        option.changed(money=option.money.changed(break_even=list(break_evens(option, option.money, api))))
        for option in options
        if option.money is not None
    ]


def break_evens(option: Option, bill: Money, api: HostedOffer | None) -> Iterator[BreakEven]:
    """Owning against renting (month, share of hours), and both against the API (tokens per month)."""
    by = {(w.acquisition, w.term): w for w in bill.ways_to_pay}
    own = next((w for (acquisition, _), w in by.items() if acquisition == "own"), None)
    rent = by.get(("rent", "on_demand")) or next((w for (how, _), w in by.items() if how == "rent"), None)
    if own and rent:
        yield BreakEven(
            between=["own", f"rent {rent.term}"],
            month=month_of(bill, own, rent.usd_per_month),
            share_of_hours=number(break_even_share(own.usd_per_month, rent.usd_per_month)),
            tokens_per_month=None,
            within_capacity=None,
            said="owning costs less from this month on; against rent by the hour, above this share of the hours",
        )
    if api is None or not api.usd_per_mtok_blended:
        return
    for name, way in (("own", own), ("rent", rent)):
        if way:
            tokens = break_even_tokens(way.usd_per_month, api.usd_per_mtok_blended)
            yield BreakEven(
                between=[name, f"API of {api.provider}"],
                month=month_of(bill, way, api.usd_per_month) if name == "own" else None,
                share_of_hours=None,
                tokens_per_month=number(tokens),
                within_capacity=within_capacity(option, tokens),
                said="above this many tokens a month, prompts and answers together, the machines cost less",
            )


def month_of(money: Money, own: WayToPay, other_usd_per_month: float) -> int | None:
    """The month in which owning has cost less than paying `other_usd_per_month` from the start."""
    running = own.running_usd_per_month / HOURS_PER_MONTH
    bill = Bill(
        parts=(Part(name="running", usd_per_hour=running, group="running"),),
        months=money.horizon_months,
        discount_fraction=money.discount_fraction_per_year,
        capital_usd=own.capital_usd,
        life_months=own.life_months or 1,
    )
    return break_even_month(bill, other_usd_per_month)


def within_capacity(option: Option, tokens_per_month: float) -> bool | None:
    """Whether the machines can serve that many tokens at this mix; None: not known."""
    blended, capacity = option.usd_per_mtok_blended, option.capacity_requests_per_s
    if not blended or not capacity:
        return None
    served = option.usd_per_month / blended * 1e6
    return tokens_per_month <= served * capacity / option.requests_per_s
