"""Costs of a portfolio: what is bought or rented for all of it, and its cash flow."""

import math
from collections.abc import Mapping, Sequence

from advisor.answer.money import CURRENCY, cash_flow, cents, cost_parts
from advisor.engine.cost import AFTER, HOURS_PER_MONTH, life_months, term_months
from advisor.engine.fleet import Machine, MachineOption, Member
from advisor.engine.fleet import SharedFleet as FleetPlan
from advisor.engine.plans import (
    OWNED,
    PURCHASE,
    TERM,
    Commitment,
    Plan,
    Schedule,
    Way,
    flat_demand,
    flows,
    plan_of,
)
from advisor.engine.search import overheads_of, prices_of, shared_overheads
from advisor.engine.spec import Offer, Part
from advisor.inputs import number
from advisor.result import Answer, CashFlow, FleetItem, Money, Option, PortfolioMoney

SOFTWARE_AND_POWER = "licences and power at the fleet's load"


def portfolio_money(members: Sequence[Member], answers: Sequence[Answer], plan: FleetPlan) -> PortfolioMoney | None:
    """Of the shared fleet; without one, the sum over the workloads alone; None where one has no answer."""
    if plan.machines:
        return of_fleet(members, plan)
    firsts = [a.deployments[0] for a in answers if a.deployments]
    return of_each(answers, firsts) if len(firsts) == len(answers) else None


def of_fleet(members: Sequence[Member], plan: FleetPlan) -> PortfolioMoney:
    options = {r.machine: r.option for r in plan.runs}
    fleet = fleet_plan(members, plan, options)
    return PortfolioMoney(
        of="one shared fleet",
        currency=CURRENCY,
        prices_as_of=min(options[machine].offer.as_of for machine, _ in plan.machines),
        horizon_months=fleet.prices.months,
        discount_fraction_per_year=fleet.prices.discount_fraction,
        usd_per_month=cents(fleet.usd_per_month),
        capital_usd=cents(fleet.capex_usd),
        npv_usd=cents(fleet.present_usd),
        parts=cost_parts(fleet.parts(), fleet.part_totals()),
        cash_flow=[cash_flow(flow) for flow in flows(fleet)],
        items=[fleet_item(machine, count, options[machine]) for machine, count in plan.machines],
    )


def bought(offer: Offer, instances: float) -> float:
    """Instances to buy under an offer: without those that are already owned."""
    return max(instances - offer.held_instances, 0.0) if offer.capital_usd else 0.0


def fleet_plan(members: Sequence[Member], plan: FleetPlan, options: Mapping[Machine, MachineOption]) -> Plan:
    """The plan of the shared machines: all of them from the first month to the horizon of the first workload."""
    first = members[0]
    prices, a = prices_of(first.workload, first.catalog), first.catalog.site_assumptions or first.catalog.assumptions
    ways: list[Way] = []
    kept: list[Commitment] = []
    for machine, count in plan.machines:
        option = options[machine]
        o, instances = option.offer, option.instances * count
        new = bought(o, instances) if o.acquisition == "own" else instances
        listed = [p for p in o.list_parts or o.parts if p.name != AFTER and p.group != "capital"]
        listed = listed or [Part(name="instances", usd_per_hour=o.usd_per_hour, group="rent")]
        each = machine.usd_per_hour / option.instances
        rest = Part(name=SOFTWARE_AND_POWER, usd_per_hour=each - o.usd_per_hour, group="running")
        parts = (*listed, rest) if abs(rest.usd_per_hour) > 1e-9 else tuple(listed)
        if o.acquisition != "own":
            months = term_months(o.term)
            ways.append(Way(kind=TERM if months else OWNED, parts=parts, term_months=months))
        else:
            ways.append(
                Way(
                    kind=PURCHASE, parts=parts, capital_usd=o.capital_usd if new else 0.0,
                    capital_shares=o.capital_shares, life_months=life_months(a), resale=o.resale or a.resale(),
                )
            )  # fmt: skip
        for start, until in service_runs(ways[-1], prices.months):
            kept.append(Commitment(way=len(ways) - 1, start_month=start, until_month=until, instances=round(instances)))
    demand = flat_demand(1, prices.months)
    schedule = Schedule(commitments=tuple(kept), hourly=())
    least = shared_overheads(overheads_of(first.workload, first.catalog), len(members))
    return plan_of(demand, ways, prices, schedule, least)


def service_runs(way: Way, months: int) -> list[tuple[int, int]]:
    """From month to month: renewed at the end of each term or life."""
    each = {TERM: way.term_months, PURCHASE: way.life_months}.get(way.kind, months)
    return [(start, min(start + each, months)) for start in range(0, months, each)]


def fleet_item(machine: Machine, count: float, option: MachineOption) -> FleetItem:
    o = option.offer
    return FleetItem(
        for_workload="all",
        quantity=number(count * option.instances),
        item=o.instance or machine.accelerator,
        provider=o.provider,
        region=o.region,
        term=o.term,
        unit_usd_once=number(o.capital_usd) if o.capital_usd else None,
        unit_usd_per_month=number(machine.usd_per_hour / option.instances * HOURS_PER_MONTH),
        price_as_of=o.as_of,
        source=o.source,
    )


def of_each(answers: Sequence[Answer], firsts: Sequence[Option]) -> PortfolioMoney:
    """Each workload's first choice, added; the longest horizon counts, and shorter ones end earlier."""
    bills = [first.money for first in firsts if first.money is not None]
    months = max(m.horizon_months for m in bills)
    return PortfolioMoney(
        of="each workload alone",
        currency=CURRENCY,
        prices_as_of=min(m.prices_as_of for m in bills),
        horizon_months=months,
        discount_fraction_per_year=bills[0].discount_fraction_per_year,
        usd_per_month=cents(math.fsum(m.usd_per_month for m in bills)),
        capital_usd=cents(math.fsum(m.capital_usd for m in bills)),
        npv_usd=cents(math.fsum(m.npv_usd for m in bills)),
        parts=[
            part.changed(name=f"{workload_name(a)}: {part.name}")
            for a, m in zip(answers, bills, strict=True)
            for part in m.parts
        ],
        cash_flow=[cash_of_month(month, bills) for month in range(months + 1)],
        items=[alone_item(a, o, m) for a, o, m in zip(answers, firsts, bills, strict=True)],
    )


def cash_of_month(month: int, bills: Sequence[Money]) -> CashFlow:
    own = [m.cash_flow[month] for m in bills if month < len(m.cash_flow)]
    return CashFlow(
        month=month,
        capital_usd=cents(math.fsum(f.capital_usd for f in own)),
        running_usd=cents(math.fsum(f.running_usd for f in own)),
        value_left_usd=cents(math.fsum(f.value_left_usd for f in own)),
        total_usd=cents(math.fsum(f.total_usd for f in own)),
        present_usd=cents(math.fsum(f.present_usd for f in own)),
        rent_usd=cents(math.fsum(f.rent_usd for f in own)),
        energy_usd=cents(math.fsum(f.energy_usd for f in own)),
        staff_usd=cents(math.fsum(f.staff_usd for f in own)),
        book_value_usd=cents(math.fsum(f.book_value_usd for f in own)),
    )


def workload_name(answer: Answer) -> str:
    return str(answer.workload["name"])


def alone_item(answer: Answer, option: Option, money: Money) -> FleetItem:
    return FleetItem(
        for_workload=workload_name(answer),
        quantity=option.instances,
        item=option.instance or option.accelerator_name,
        provider=option.provider,
        region=option.region,
        term=option.term,
        unit_usd_once=number(money.capital_usd / option.instances) if money.capital_usd else None,
        unit_usd_per_month=number(money.usd_per_month / option.instances),
        price_as_of=option.price_as_of,
        source=option.price_source,
    )
