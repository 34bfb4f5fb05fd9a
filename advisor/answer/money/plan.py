"""The plan of one option in the answer: what to sign and when, what is in service, the usual strategies, the exit."""

import math
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from advisor.answer.question import Question
from advisor.engine.cost import HOURS_PER_MONTH, METERED, TEAM, in_cents
from advisor.engine.plans import (
    HOURLY,
    OWNED,
    PURCHASE,
    TERM,
    Commitment,
    Hourly,
    Overheads,
    Plan,
    Schedule,
    Way,
    best_switch,
    internal_rate,
    payback_month,
    plan_of,
    purchase_payments,
    term_payments,
)
from advisor.engine.search import (
    Catalog,
    Planned,
    Scored,
    SearchResult,
    allowed_offers,
    deployed,
    describe,
    overheads_of,
    packing_of,
)
from advisor.engine.search import strategies as all_strategies
from advisor.engine.terms import Offer, Workload, usd_text
from advisor.inputs import new_usd_per_accelerator, number, offers, rounded
from advisor.result import BridgeSetup, Money, Option, PlanMonth, PlanStep, Strategy, Switch, servers_text, use_text
from advisor.result import Plan as PlanSection

LARGE_TEAM_FRACTION = 0.25  # of the cost; a larger minimum team is named in the verdict
LEAVING_MONTHS = 12  # an exit is priced after a year, or halfway through a shorter horizon
MOST_SWITCHED = 4  # options among which a switch is looked for
EXACT_DIGITS = 12
BITS = 8  # of a byte
SAID = {
    "rent": "rent by the hour, release what is not needed",
    "reserve": "reserve the base for a term, rent the peaks by the hour",
    "buy_now": "buy for the whole horizon today",
    "extend_later": "buy for today, extend when the traffic comes",
    "rent_then_buy": "rent first, buy in the month that costs least",
    "mixed": "the cheapest mix of all of these",
}


def cents(usd: float) -> float:
    """USD rounded to cents as people round."""
    return float(in_cents([usd])[0])


def plan_section(question: Question, s: Scored, rent: Plan | None) -> PlanSection:
    """The plan that the option is ranked by; rent: the same deployment on demand."""
    assert s.planned is not None
    planned = s.planned
    named = all_strategies(question, deployed(question, s), allowed_offers(question, s.lane))
    superseded = offers.is_superseded(s.lane.choice.accelerator, question.snapshot)
    steps = list(steps_of(question.catalog, planned, superseded, question.workload.constraints.max_rack_watts))
    months = list(months_of(question.workload, s)) if question.workload.forecast or len(steps) > 1 else []
    rent = rent or named.get("rent")
    return section_of(planned.plan, steps, months, named, rent).changed(bridge=bridge_setup(planned))


def bridge_setup(planned: Planned) -> BridgeSetup | None:
    """The deployment that serves until the delivery."""
    if planned.bridge is None:
        return None
    lane = planned.bridge.deployed.lane
    return BridgeSetup(
        months=planned.bridge.months,
        accelerator=lane.choice.accelerator.slug,
        accelerator_name=lane.choice.accelerator.name,
        accelerators_per_replica=lane.choice.tp * lane.choice.pp * lane.choice.dp,
        replicas=planned.bridge.carrying,
        setup=describe(lane),
    )


def section_of(
    plan: Plan, steps: list[PlanStep], months: list[PlanMonth], named: Mapping[str, Plan], rent: Plan | None
) -> PlanSection:
    """A plan in USD, beside the usual strategies for the same machines (`named`) and their rent by the hour."""
    month = min(LEAVING_MONTHS, max(plan.prices.months // 2, 1))
    bought = plan.capex_usd > 0 and rent is not None
    return PlanSection(
        said=" ".join(step.said for step in steps) or "Nothing has to be signed.",
        steps=steps,
        months=months,
        capex_usd=cents(plan.capex_usd),
        resale_usd=cents(plan.resale_usd),
        liability_usd=cents(plan.liability_usd),
        liability_months=plan.liability_months,
        most_usd_per_month=cents(plan.most_usd_per_month),
        exit_month=month,
        exit_usd=cents(exit_usd(plan, month)),
        rent_usd_per_month=cents(rent.usd_per_month) if rent else None,
        rent_usd_by_month=[cents(usd) for usd in rent.total_by_month[1:].tolist()] if bought and rent else [],
        payback_month=payback_month(plan, rent) if bought and rent else None,
        irr_fraction_per_year=rate if bought and rent and (rate := number_or_none(internal_rate(plan, rent))) else None,
        strategies=list(strategies(plan, named)),
    )


def number_or_none(value: float | None) -> float | None:
    return None if value is None else number(value)


def strategies(plan: Plan, named: Mapping[str, Plan]) -> Iterator[Strategy]:
    """The usual strategies, without limits; one that is the same as another is left out.

    Where the ranked plan is none of them, because limits bind or it keeps to fewer offers, it stands beside them.
    """
    same = [name for name, each in named.items() if math.isclose(each.present_usd, plan.present_usd, rel_tol=1e-9)]
    chosen = next((name for name in same if name != "mixed"), "mixed" if same else "ranked")
    rent = named.get("rent")
    for name, each in named.items():
        reserves = name == "reserve" and rent and math.isclose(each.present_usd, rent.present_usd, rel_tol=1e-9)
        if (name == "mixed" and chosen not in ("mixed", "ranked")) or (reserves and chosen != "reserve"):
            continue
        yield strategy(name, SAID[name], each, name == chosen)
    if chosen == "ranked":
        yield strategy(chosen, "the ranked plan, within your limits", plan, True)


def strategy(name: str, said: str, plan: Plan, chosen: bool) -> Strategy:
    return Strategy(
        name=name,
        said=said,
        usd_per_month=cents(plan.usd_per_month),
        npv_usd=cents(plan.present_usd),
        capex_usd=cents(plan.capex_usd),
        liability_usd=cents(plan.liability_usd),
        most_usd_per_month=cents(plan.most_usd_per_month),
        chosen=chosen,
    )


def liability_warnings(option: Option) -> list[str]:
    """What a commitment binds beyond the horizon."""
    plan = option.money.plan if option.money else None
    if plan is None or plan.liability_usd <= 0:
        return []
    return [
        f"a term outlasts the horizon by {months_text(plan.liability_months)}: {usd_text(plan.liability_usd)} is "
        f"still due then, and is counted as a cost"
    ]


def money_sentences(money: Money | None, usd_per_month: float) -> str:
    """What the verdict adds about money: plan, purchases, liability, and a minimum team that is much of the cost."""
    plan = money.plan if money else None
    if money is None or plan is None:
        return ""
    least = sum(p.usd_per_month for p in money.parts if p.name == TEAM)
    own = any(step.action in ("buy", "keep") for step in plan.steps)
    field = f"tco.minimum-engineers-{'own' if own else 'rented'}"
    team = (
        f" The cost includes {usd_text(least)} a month for the assumed minimum team ({field})."
        if least > LARGE_TEAM_FRACTION * usd_per_month
        else ""
    )
    if len(plan.steps) == 1 and plan.steps[0].action == "rent":
        return team
    owed = (
        f" Liability: {usd_text(plan.liability_usd)} is still due after the horizon, for up to "
        f"{months_text(plan.liability_months)}."
        if plan.liability_usd > 0
        else ""
    )
    used = f"; {use_text(money.purchase)}" if money.purchase and money.purchase.accelerators > 1 else ""
    capex = f" Purchases: {usd_text(plan.capex_usd)}{used}." if plan.capex_usd else ""
    return f"{team} Plan: {plan.said}{capex}{delivery_sentence(plan)}{owed}"


def delivery_sentence(plan: PlanSection) -> str:
    """That servers serve from their delivery on, where the plan does not bridge the time until then."""
    early = [s for s in plan.steps if s.action == "buy" and s.from_month <= round(s.order_months_before)]
    if not early:
        return ""
    months = max(s.order_months_before for s in early)
    return (
        f" Delivery takes about {months:g} months (tco.purchase-lead-months), and nothing can be rented until then, so "
        "month 1 is the month of delivery."
    )


# --- steps ------------------------------------------------------------------------------------------------------


def steps_of(
    catalog: Catalog, planned: Planned, superseded: bool, rack_watts: float | None = None
) -> Iterator[PlanStep]:
    """Everything to sign, in the order of its first month.

    superseded: whether the accelerator is; rack_watts: what the site has for a rack.
    """
    plan = planned.plan
    items: list[tuple[int, PlanStep]] = [
        (c.start_month, committed_step(catalog, planned, c, superseded, rack_watts)) for c in plan.schedule.commitments
    ]
    items += [(int(np.flatnonzero(h.instances)[0]), hourly_step(planned, h)) for h in plan.schedule.hourly]
    waits = [k for k, c in enumerate(plan.schedule.commitments) if c.way >= planned.own_ways]
    bridging = {id(items[k][1]) for k in waits}
    made = len(plan.schedule.commitments)
    bridging |= {id(items[made + k][1]) for k, h in enumerate(plan.schedule.hourly) if h.way >= planned.own_ways}
    for _, step in sorted(items, key=lambda item: item[0]):
        yield step.changed(said=f"{step.said[:-1]}{until_delivery(planned)}.") if id(step) in bridging else step


def until_delivery(planned: Planned) -> str:
    """Which deployment runs on the machines that are rented until the servers arrive."""
    if planned.bridge is None:
        return ""
    d = planned.bridge.deployed
    n = planned.bridge.carrying
    c = d.lane.choice
    chip = c.accelerator
    replicas = f"{n} replica{'' if n == 1 else 's'}"
    return f", until the servers arrive ({c.tp * c.pp * c.dp * n} x {chip.name}, {describe(d.lane)}, {replicas})"


def committed_step(
    catalog: Catalog, planned: Planned, c: Commitment, superseded: bool, rack_watts: float | None = None
) -> PlanStep:
    way, offer = planned.plan.ways[c.way], planned.offers[c.way]
    served = c.until_month - c.start_month
    paid_until = c.start_month + way.term_months if way.kind == TERM else c.until_month
    hours = c.instances * HOURS_PER_MONTH * (way.term_months if way.kind == TERM else served)
    buys = way.kind == PURCHASE
    step = PlanStep(
        action={TERM: "reserve", PURCHASE: "buy", OWNED: "keep"}[way.kind],
        instances=c.instances,
        **seller(offer),
        from_month=c.start_month + 1,
        until_month=c.until_month,
        paid_until_month=paid_until,
        order_months_before=exact(offer.order_months) if buys else 0.0,
        unit_usd_once=exact(offer.purchase_usd) if buys else None,
        unit_usd_per_hour=exact(list_price(offer)) if way.kind == TERM else None,
        paid_hours=exact(hours),
        usd=cents(paid_usd(planned.plan, Schedule(commitments=(c,), hourly=()))),
        said="",
        **server_of(catalog, way, offer, superseded, rack_watts),
    )
    return step.changed(said=committed_said(way, offer, step, planned.plan.prices.months))


def hourly_step(planned: Planned, h: Hourly) -> PlanStep:
    offer, months = planned.offers[h.way], np.flatnonzero(h.instances)
    most, hours = int(h.instances.max()), float(h.paid.sum()) * HOURS_PER_MONTH
    first, last = int(months[0]) + 1, int(months[-1]) + 1
    partly = h.instances[months].min() < most or hours < most * len(months) * HOURS_PER_MONTH * 0.999
    up_to = "up to " if partly and most > 1 else ""
    at = f"{offer.provider} ({offer.region})" if offer.region else offer.provider
    spot = " as spot instances" if offer.term == "spot" else " by the hour"
    return PlanStep(
        action="rent",
        instances=most,
        **seller(offer),
        from_month=first,
        until_month=last,
        paid_until_month=last,
        unit_usd_once=None,
        unit_usd_per_hour=exact(list_price(offer)),
        paid_hours=exact(hours),
        usd=cents(paid_usd(planned.plan, Schedule(commitments=(), hourly=(h,)))),
        said=f"Rent {up_to}{most:,} x {offer.instance} at {at}{spot}, {span(first, last)}.",
    )


def seller(offer: Offer) -> dict[str, Any]:
    return {
        "instance": offer.instance or offer.accelerator,
        "accelerators": offer.accelerators,
        "provider": offer.provider,
        "region": offer.region,
        "term": offer.term,
        "price_as_of": offer.as_of,
        "price_source": offer.source,
    }


def exact(figure: float) -> float:
    """A price or a sum that others calculate with: without the noise of floating point, but not shortened."""
    return rounded(figure, EXACT_DIGITS)


def server_of(catalog: Catalog, way: Way, offer: Offer, superseded: bool, rack_watts: float | None) -> dict[str, Any]:
    """What one bought or owned server is worth, and what it takes to run it; empty for a rent."""
    if way.kind == TERM:
        return {}
    a = catalog.site_assumptions or catalog.assumptions
    buys, shares = way.kind == PURCHASE, dict(offer.capital_shares)
    listed = (offer.list_parts or offer.parts) if buys or not offer.held_parts else offer.held_parts
    full, mean = (math.fsum(p.usd_per_hour for p in parts if p.name in METERED) for parts in (listed, way.parts))
    kw, new = (offer.full_watts or 0.0) / 1e3, new_usd_per_accelerator(catalog.offers, offer.accelerator) or 0.0
    return {
        "server": {
            "price_usd": exact(offer.purchase_usd if buys else new * offer.accelerators),
            "accelerators_usd": exact(offer.capital_usd * shares.get("accelerators", 0.0) / (1.0 + offer.vat_fraction))
            if buys
            else None,
            "superseded": superseded,
            "kw_full": exact(kw),
            "kw_mean": exact(kw * mean / full) if full else None,
            "usd_per_kwh": exact(offer.usd_per_kwh or 0.0),
            "pue": exact(offer.pue),
            "colocation_usd_per_kw_month": exact(a.colocation_usd_per_kw_month),
            **(machine_of(catalog, offer, a.maintenance_fraction, rack_watts) if buys else {}),
        }
    }


def machine_of(catalog: Catalog, offer: Offer, support_fraction: float, rack_watts: float | None) -> dict[str, Any]:
    """What a buyer orders: its form, network cards, cooling, share of a rack and support."""
    chip = next(a for a in catalog.accelerators if a.slug == offer.accelerator)
    joined = offer.fabric_accelerators > 0  # servers reach others over a network card of each accelerator
    return {
        "accelerator_name": chip.name,
        "form": offer.form,
        "host": "no_server" if not offer.orderable else "estimated" if offer.estimated_host else "priced",
        "network_cards": offer.accelerators if joined else None,
        "network_gbit_per_s": exact(chip.links[-1].bytes_per_s * BITS / 1e9) if joined else None,
        "cooling": offer.cooling,
        "rack_fraction": rounded(offer.full_watts / rack_watts) if offer.full_watts and rack_watts else None,
        "support_usd_per_year": cents(offer.purchase_usd * support_fraction),
    }


def list_price(offer: Offer) -> float:
    """List price of an hour of one instance, USD without VAT."""
    parts = offer.list_parts or offer.parts
    usd = next((p.usd_per_hour for p in parts if p.name == "instances"), offer.usd_per_hour)
    return usd / (1.0 + offer.vat_fraction)


def months_text(months: int) -> str:
    return "1 month" if months == 1 else f"{months} months"


def span(first: int, last: int) -> str:
    return f"in month {first}" if first == last else f"months {first} to {last}"


def committed_said(way: Way, offer: Offer, step: PlanStep, horizon: int) -> str:
    what, first, last = servers_text(step.instances, step), step.from_month, step.until_month
    if way.kind == PURCHASE:
        sold = "sold or replaced then" if last < horizon else "sold at the end"
        return f"Buy {what} for {span(first, last).removeprefix('in ')} ({sold})."
    if way.kind == OWNED:
        return f"Keep {what} in service, {span(first, last)}."
    over = f", {months_text(step.paid_until_month - horizon)} longer than needed"
    longer = over if step.paid_until_month > horizon else ""
    where = f"{offer.provider} ({offer.region})" if offer.region else offer.provider
    return f"Reserve {what} at {where} for {way.term_months} months from month {first}{longer}."


def paid_usd(plan: Plan, schedule: Schedule) -> float:
    """All payments of a part of the plan, less resale, USD."""
    part = plan_of(plan.demand, plan.ways, plan.prices, schedule, Overheads())
    return float(part.total_by_month.sum())


def months_of(workload: Workload, s: Scored) -> Iterator[PlanMonth]:
    """What is in service by month."""
    assert s.planned is not None
    plan, bridge = s.planned.plan, s.planned.bridge
    hourly, terms, own = (plan.in_service(kinds) for kinds in ((HOURLY,), (TERM,), (PURCHASE, OWNED)))
    for month in range(plan.prices.months):
        ratio = workload.forecast[month] if workload.forecast else 1.0
        carrying, packed = s.replicas - s.spare_replicas, packing_of(s.lane.choice, s.offer)
        if bridge is not None and month < bridge.months:  # another deployment, on hosts of another size
            carrying, packed = bridge.carrying, packing_of(bridge.deployed.lane.choice, bridge.offers[0])
        n = max(math.ceil(carrying * ratio - 1e-9), 1) if ratio else 0
        yield PlanMonth(
            month=month + 1,
            traffic_ratio=rounded(ratio),
            replicas=int(workload.slo.redundancy.replicas(n, packed)),
            hourly_instances=int(hourly[month]),
            committed_instances=int(terms[month]),
            own_instances=int(own[month]),
        )


# --- leaving early ----------------------------------------------------------------------------------------------


def exit_usd(plan: Plan, month: int) -> float:
    """Cost of leaving at the end of a month, USD: what commitments still bind, and book value less market value."""
    usd = 0.0
    for c in plan.schedule.commitments:
        way = plan.ways[c.way]
        if way.kind == TERM and c.start_month < month:
            paid, due = term_payments(way, plan.prices, c.start_month)
            left = np.where(due > plan.prices.months, 1.0, 1.0 - plan.prices.exit_fraction)  # those are net of it
            usd += c.instances * float((paid * left)[due > month].sum())
        if way.kind == PURCHASE and c.start_month < month < c.until_month:
            capital, sold = purchase_payments(way, plan.prices, c.start_month, month)
            book = capital * max(1.0 - (month - c.start_month) / (way.book_months or way.life_months), 0.0)
            usd += c.instances * (book - sold)
    return usd


# --- switching --------------------------------------------------------------------------------------------------


def best_switch_of(question: Question, outcome: SearchResult) -> Switch | None:
    """The cheapest switch between two of the first options at the end of a year; None: none is possible."""
    a = question.catalog.site_assumptions or question.catalog.assumptions
    # a deployment that is bridged until its delivery has switched once already
    shown = [s for s in outcome.shown[:MOST_SWITCHED] if s.planned is not None and s.planned.bridge is None]
    if len(shown) < 2 or question.workload.horizon_months < 13:
        return None
    plans = [s.planned.plan for s in shown if s.planned]
    slugs = [s.lane.choice.accelerator.slug for s in shown]
    months = range(12, question.workload.horizon_months, 12)
    sides = [
        (p.demand, p.ways, overheads_of(question, s.planned.services if s.planned else ()))
        for p, s in zip(plans, shown, strict=True)
    ]
    find = partial(best_switch, prices=plans[0].prices, months=months, overlap_months=a.overlap_months)
    found = [
        (switch, i, j)
        for i, first in enumerate(sides)
        for j, second in enumerate(sides)
        if slugs[i] != slugs[j] and (switch := find(first, second)) is not None
    ]
    if not found:
        return None
    switch, i, j = min(found, key=lambda each: each[0].present_usd)
    saving = plans[0].present_usd - switch.present_usd
    names = [shown[k].lane.choice.accelerator.name for k in (i, j)]
    verdict = f"saves {usd_text(saving)}" if saving > 0 else f"costs {usd_text(-saving)} more"
    verdict += " in present value"
    return Switch(
        first_rank=i + 1,
        second_rank=j + 1,
        month=switch.month,
        overlap_months=switch.overlap_months,
        usd_per_month=cents(switch.usd_per_month),
        saving_usd=cents(saving),
        said=(
            f"Starting on {names[0]} and switching to {names[1]} after month {switch.month}, with "
            f"{switch.overlap_months} month{'s' if switch.overlap_months != 1 else ''} of both, {verdict} against "
            "the first deployment alone."
        ),
    )
