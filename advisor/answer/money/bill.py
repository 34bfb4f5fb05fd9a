"""What one option costs: the bill by part, the cash flow of its plan, other ways to pay, energy, assumptions."""

import datetime
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal

import numpy as np

from advisor.answer.money.plan import cents, list_price, plan_section
from advisor.answer.money.taxes import taxes
from advisor.answer.options.energy import energy
from advisor.answer.question import Question
from advisor.engine.cost import (
    HOURS_PER_MONTH,
    Use,
    combined_ratio,
    in_cents,
    list_rent_parts,
    rent_parts,
    service_usd,
    total_usd_per_hour,
    waterfall,
)
from advisor.engine.plans import Flow, Plan, flows
from advisor.engine.search import Catalog, Scored, best_offers, on_spot, repriced, spot_late_fraction
from advisor.engine.terms import UNKNOWN_UNIT, Offer, Part, Workload
from advisor.inputs import number, rounded, with_one_team
from advisor.result import (
    Assumption,
    BuyNowOrExtend,
    CashFlow,
    CostPart,
    Money,
    ProviderServices,
    WaterfallStep,
    WayToPay,
    machine_name,
    machines_text,
    purchase_of,
)
from catalog.loading.places import place_text

Json = dict[str, Any]
CURRENCY: Final[Literal["USD"]] = "USD"
ASSUMED_TERMS = {"spot": "spot-discount-fraction", "reserved_1y": "reserved-discount-fraction"}
SPLIT = (
    "cached input pays for its share of the memory; the rest of the bill is split by the time that prefill and decode "
    "take: computed input pays for prefill, output for decode"
)


def money(
    question: Question,
    s: Scored,
    tokens_per_s: Mapping[str, float],
    prefill_share: float,
) -> Money:
    """What the option costs over the horizon, but for the break-even (`with_break_even`).

    tokens_per_s: input and output tokens at today's mean load; prefill_share: prefill's share of a request's time.
    """
    assert s.planned is not None
    plan = s.planned.plan
    mean = traffic_ratio(question.workload)
    mtok_per_hour = (tokens_per_s["input"] + tokens_per_s["output"]) * mean * 3600.0 / 1e6
    ways = ways_to_pay(question, s)
    rent = plans_of(ways).get("rent on_demand") if s.offer.acquisition == "own" else None  # else it may buy as well
    section = plan_section(question, s, rent)
    return Money(
        currency=CURRENCY,
        prices_as_of=min(step.price_as_of for step in section.steps) if section.steps else s.offer.as_of,
        parts=cost_parts(s.parts, plan),
        **figures_of(plan),
        purchase_usd=cents(s.offer.purchase_usd * s.bought_instances),
        waterfall=[
            WaterfallStep(name=name, usd_per_mtok=rounded(usd))
            for name, usd in waterfall(s.parts, use_of(s), mtok_per_hour)
        ],
        usd_per_mtok_computed_input=computed_input(question.workload, s, tokens_per_s, prefill_share),
        split=SPLIT,
        prefill_time_fraction=rounded(prefill_share),
        ways_to_pay=[way_to_pay(way, question.workload.constraints.regions_allow) for way in ways],
        growth=buy_now_or_extend(question, s, section),
        services=provider_services(question.catalog, s),
        energy=energy(question, s, tokens_per_s),
        plan=section,
        purchase=purchase_of(section, s.chips, s.replicas, s.spare_replicas),
        taxes=taxes(question, plan),
    )


def figures_of(plan: Plan) -> Json:
    """Fields of Money that follow from the plan alone."""
    return {
        "usd_per_month": cents(plan.usd_per_month),
        "usd_per_year": cents(plan.usd_per_month * 12),
        "usd_over_horizon": cents(math.fsum(plan.total_by_month)),
        "npv_usd": cents(plan.present_usd),
        "horizon_months": plan.prices.months,
        "discount_fraction_per_year": plan.prices.discount_fraction,
        "capital_usd": cents(float(plan.payments["capital"][0])),
        "cash_flow": [cash_flow(flow) for flow in flows(plan)],
    }


def traffic_ratio(workload: Workload) -> float:
    """Traffic over the horizon over today's, each month weighted by its present value, as the bill is."""
    if not workload.forecast:
        return 1.0
    months = np.arange(1, len(workload.forecast) + 1)
    weights = (1.0 + workload.discount_fraction) ** (-months / 12.0)
    return float(weights @ np.asarray(workload.forecast) / weights.sum())


def use_of(s: Scored) -> Use:
    """Which share of the paid capacity serves requests."""
    carrying = (s.replicas - s.spare_replicas) / s.replicas
    return Use(
        instances_fraction=s.chips / (s.instances * s.offer.accelerators),
        carrying_fraction=carrying,
        busy_fraction=min(s.utilisation_fraction / carrying, 1.0),
    )


def cost_parts(parts: Sequence[Part], plan: Plan) -> list[CostPart]:
    """Each part of the plan's month with its cents, which add up to those of the month, and its total."""
    monthly = in_cents([part.usd_per_hour * HOURS_PER_MONTH for part in parts], plan.usd_per_month)
    totals = plan.part_totals()
    return [
        CostPart(
            name=p.name, group=p.group, usd_per_hour=rounded(p.usd_per_hour), usd_per_month=float(usd),
            total_usd=cents(totals.get((p.name, p.group), 0.0)),
        )
        for p, usd in zip(parts, monthly, strict=True)
    ]  # fmt: skip


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


def cached_share(workload: Workload, s: Scored) -> float:
    """Share of an accelerator's memory that the KV cache of cached prompt tokens occupies at the peak.

    Each running request is counted with the cached tokens that it reads; requests that share them count them twice.
    """
    m = s.memory
    total = m.weights_bytes + m.kv_bytes + m.activations_bytes + m.overhead_bytes + m.free_bytes
    cached = workload.input_tokens.mean_tokens * workload.prefix_cache_hit_fraction
    context = workload.input_tokens.mean_tokens + workload.output_tokens.mean_tokens / 2.0
    if not total or not cached or not workload.kind.generates_tokens:
        return 0.0
    return float((m.kv_bytes - m.source_kv_bytes) * min(cached / context, 1.0) / total)


def computed_input(
    workload: Workload, s: Scored, tokens_per_s: Mapping[str, float], prefill_share: float
) -> float | None:
    """USD per million prompt tokens that no prefix cache held."""
    computed = tokens_per_s["input"] * (1.0 - workload.prefix_cache_hit_fraction) * traffic_ratio(workload)
    usd = s.usd_per_hour * (1.0 - cached_share(workload, s)) * prefill_share
    return number(usd / (computed * 3600.0) * 1e6) if computed > 0 else None


def cash_flow(flow: Flow) -> CashFlow:
    """One month in cents; the total is that of the rounded parts."""
    rent, energy_usd, staff, other = (
        cents(usd) for usd in (flow.rent_usd, flow.energy_usd, flow.staff_usd, flow.other_usd)
    )
    capital, value = cents(flow.capital_usd), cents(flow.resale_usd)
    running = cents(rent + energy_usd + staff + other)
    return CashFlow(
        month=flow.month,
        capital_usd=capital,
        running_usd=running,
        value_left_usd=value,
        total_usd=cents(capital + running - value),
        present_usd=cents(flow.present_usd),
        rent_usd=rent,
        energy_usd=energy_usd,
        staff_usd=staff,
        book_value_usd=cents(flow.book_value_usd),
    )


# --- other ways to pay for the same machines --------------------------------------------------------------------


def ways_to_pay(question: Question, s: Scored) -> list[Scored]:
    """The same deployment under the cheapest offer of every way to pay for its chip, the chosen one first."""
    groups: dict[tuple[str, str], list[Offer]] = {}
    late = spot_late_fraction(
        question.workload, question.catalog.assumptions, s.verified.late_fraction
    ) > 1 and not on_spot(s)
    for offer in offers_of_chip(question, s):
        if offer.term == "spot" and question.workload.deadline_s is not None and late:
            continue  # it would miss the deadline there
        groups.setdefault((offer.acquisition, offer.term), []).append(offer)
    priced, places = [s], question.workload.constraints.regions_allow
    for key, group in groups.items():
        group = [o for o in group if not o.may_be_elsewhere(places)] or group
        best = None if key == (s.offer.acquisition, s.offer.term) else cheapest(question, s, group)
        other = repriced(question, s, best) if best is not None else s
        if other.planned is not s.planned:  # else it cannot be paid for like this
            priced.append(other)
    return sorted(priced, key=lambda w: w is not s and w.offer.may_be_elsewhere(places))


def plans_of(ways: Sequence[Scored]) -> dict[str, Plan]:
    """The plans that are compared: `own`, and rent by its term, on demand if there is one."""
    by = {(w.offer.acquisition, w.offer.term): w.planned.plan for w in reversed(ways) if w.planned}
    own = next((plan for (acquisition, _), plan in by.items() if acquisition == "own"), None)
    term = "on_demand" if ("rent", "on_demand") in by else next((t for how, t in by if how == "rent"), "")
    rent = by.get(("rent", term))
    return ({"own": own} if own else {}) | ({f"rent {term}": rent} if rent else {})


def offers_of_chip(question: Question, s: Scored) -> Iterator[Offer]:
    """Offers of the option's chip that the planner's providers and regions leave, on any terms.

    With those of region `any`, although nobody says whether they are in a required region. Without those that nobody
    knows how many of are sold together: their cost would be a guess.
    """
    c = question.workload.constraints
    chip, terms = s.lane.choice.accelerator, set()
    for o in (*question.catalog.offers, *question.catalog.other_offers):
        elsewhere = o.may_be_elsewhere(c.regions_allow)
        named = not c.providers_allow or o.provider in c.providers_allow or o.acquisition == "own"
        if (
            o.sells(chip)
            and UNKNOWN_UNIT not in o.marks
            and named
            and o.provider not in c.providers_deny
            and not o.is_in(c.regions_deny)
            and (not c.regions_allow or o.is_in(c.regions_allow) or o.acquisition == "own" or elsewhere)
        ):
            terms.add(o.term)
            yield o
    for term, key in ASSUMED_TERMS.items():
        if term not in terms and s.offer.term == "on_demand":
            yield discounted(question, s.offer, term, key)


def discounted(question: Question, offer: Offer, term: str, key: str) -> Offer:
    """An on-demand offer as it would be at the usual discount of a term that the catalog has no price for."""
    row = question.snapshot.assumptions[key]
    fraction = float(question.spec["tco"].get(key, row["value"]))
    listed = list_price(offer) * (1.0 - fraction)
    rent = listed, term, question.catalog.assumptions, offer.accelerators
    parts = rent_parts(*rent)
    source = f"assumed: {fraction:.0%} below the on-demand price ({key}: {row['source']})"
    return replace(
        offer, term=term, parts=parts, list_parts=list_rent_parts(*rent), usd_per_hour=total_usd_per_hour(parts),
        source=source,
    )  # fmt: skip


def cheapest(question: Question, s: Scored, group: Sequence[Offer]) -> Offer | None:
    constraints = replace(
        question.workload.constraints, acquisition=("rent", "own"), providers_allow=(), regions_allow=()
    )
    by_cost = replace(question.workload, constraints=constraints, objective="cost")
    within = replace(question.catalog, offers=tuple(group))
    serving = s.replicas - s.spare_replicas
    load = np.array([[s.utilisation_fraction * s.paid_fraction * s.replicas / serving]])
    carrying = np.array([[float(serving)]])
    usd, index, _, _ = best_offers(replace(question, workload=by_cost, catalog=within), [s.lane], carrying, load)
    return group[int(index[0, 0])] if math.isfinite(float(usd[0, 0])) else None


def availability_text(o: Offer, places: Sequence[str]) -> str:
    """EU availability unknown: of an offer that may be outside the required places; empty: it is known to be there."""
    if not o.may_be_elsewhere(places):
        return ""
    return f"{' or '.join(map(place_text, places))} availability unknown"


def way_to_pay(s: Scored, places: Sequence[str] = ()) -> WayToPay:
    """A plan on one offer alone; the chosen way is the option's own plan, which may mix offers."""
    assert s.planned is not None
    chip = s.lane.choice.accelerator.name
    machine = machine_name(s.offer.form, s.offer.accelerators, chip, s.offer.instance)
    return paid_way(s.planned.plan, s.parts, s.offer, s.instances, s.usd_per_hour).changed(
        basis="assumed" if s.offer.source.startswith("assumed: ") else "catalog",
        availability=availability_text(s.offer, places),
        machines=machines_text(s.instances, machine) if s.offer.form else "",
    )


def paid_way(plan: Plan, parts: Sequence[Part], o: Offer, instances: int, usd_per_hour: float) -> WayToPay:
    """A plan and the offer that it is named after."""
    capital = [p for p in parts if p.group == "capital"]
    return WayToPay(
        acquisition=o.acquisition,
        term=o.term,
        provider=o.provider,
        instance=o.instance,
        instances=instances,
        region=o.region,
        usd_per_hour=rounded(usd_per_hour),
        usd_per_month=cents(plan.usd_per_month),
        capital_usd=cents(float(plan.payments["capital"][0])),
        running_usd_per_month=cents(plan.usd_per_month - total_usd_per_hour(capital) * HOURS_PER_MONTH),
        life_months=max(w.life_months for w in plan.ways) if plan.capex_usd else None,
        npv_usd=cents(plan.present_usd),
        liability_usd=cents(plan.liability_usd),
        price_as_of=o.as_of,
        price_source=o.source,
        basis="catalog",
    )


def buy_now_or_extend(question: Question, s: Scored, section: Any) -> BuyNowOrExtend | None:
    """Everything at once, or more machines when the traffic comes; None: no growth was asked for, or nothing can be
    bought for today."""
    by_name = {strategy.name: strategy for strategy in section.strategies}
    now, later = by_name.get("buy_now"), by_name.get("extend_later")
    if not question.workload.forecast or now is None or later is None:
        return None
    return BuyNowOrExtend(
        growth_fraction_per_year=question.spec["traffic"]["growth_fraction_per_year"],
        replicas_at_end=section.months[-1].replicas if section.months else s.replicas,
        npv_all_now_usd=now.npv_usd,
        npv_extending_usd=later.npv_usd,
        better="extend when the traffic comes" if later.npv_usd < now.npv_usd - 0.005 else "no difference",
        assumes="the peak grows with the mean; every month has the replicas that its traffic needs",
    )


# --- intervals and assumptions ----------------------------------------------------------------------------------


def price_and_load_ranges(question: Question, s: Scored) -> dict[str, tuple[float, float]]:
    """90% factors on the bill (`price`), the load (`load`) and the price paid today (`today`); 1 if unknown."""
    load, o = swing_ratio(question, "load-swing-ratio"), s.offer
    low, high = price_ranges(question, o)
    if o.acquisition != "own":
        rent = swing_ratio(question, "rent-price-swing-ratio")
        return {
            "price": combined_ratio([(1 / rent, rent), (low, high)]),
            "load": (1 / load, load),
            "today": (low, high),
        }
    capital = total_usd_per_hour([p for p in s.parts if p.group == "capital"]) / max(s.usd_per_hour, 1e-12)
    return {
        "price": (1 + capital * (low - 1), 1 + capital * (high - 1)),
        "load": (1 / load, load),
        "today": (low, high),
    }


def swing_ratio(question: Question, key: str) -> float:
    row = question.snapshot.assumptions[key]
    return max(float(question.spec["tco"].get(key, row["value"])), 1.0)


def price_ranges(question: Question, o: Offer) -> tuple[float, float]:
    """90% factors on the price of an offer today: its age and what others pay; 1 if unknown.

    Of a purchase other buyers, of a listed rent the marketplaces, whose prices widen its range.
    """
    older = swing_ratio(question, "price-age-swing-ratio") ** math.sqrt(price_age_years(question, o))
    aged = (1 / older, older)
    if o.acquisition != "own":
        return min(aged[0], o.rent_low_ratio), max(aged[1], o.rent_high_ratio)
    key = "purchase-price-swing-ratio"
    usual = swing_ratio(question, key)
    high = question.snapshot.assumptions[key].get("high")
    if o.weakness and high and key not in question.spec["tco"]:
        usual = max(float(high), usual)
    printed = (1 / usual, usual)
    if o.purchase_low_usd and o.purchase_usd:
        printed = min(o.purchase_low_usd / o.purchase_usd, 1.0), max(o.purchase_high_usd / o.purchase_usd, 1.0)
    return combined_ratio([printed, aged])


def price_age_years(question: Question, o: Offer) -> float:
    """Age of a price on the day of the question, years."""
    days = datetime.date.fromisoformat(question.snapshot.asked_on) - datetime.date.fromisoformat(o.as_of)
    return max(days.days, 0) / 365.25


def assumptions(question: Question) -> list[Assumption]:
    """Every visible default with what the workload put in its place."""
    tco = with_one_team(question.spec["tco"])
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
        for key, row in question.snapshot.assumptions.items()
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
