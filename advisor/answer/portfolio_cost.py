"""Costs of a portfolio: what is bought or rented for all of it, and its cash flow."""

import math
from collections.abc import Mapping, Sequence

from advisor.answer.bill import CURRENCY, cash_flow, cents, cost_parts
from advisor.engine.cost import HOURS_PER_MONTH, Bill, at_load, flows, life_months, net_present_usd
from advisor.engine.fleet import Machine, MachineOption, Member
from advisor.engine.fleet import SharedFleet as FleetPlan
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
    bill = bill_of(members, plan, options)
    monthly_flows = flows(bill)
    return PortfolioMoney(
        of="one shared fleet",
        currency=CURRENCY,
        prices_as_of=min(options[machine].offer.as_of for machine, _ in plan.machines),
        horizon_months=bill.months,
        discount_fraction_per_year=bill.discount_fraction,
        usd_per_month=cents(bill.usd_per_month),
        capital_usd=cents(bill.capital_usd),
        npv_usd=cents(net_present_usd(monthly_flows)),
        parts=cost_parts(bill),
        cash_flow=[cash_flow(flow) for flow in monthly_flows],
        items=[fleet_item(machine, count, options[machine]) for machine, count in plan.machines],
    )


def bought(offer: Offer, instances: float) -> float:
    """Instances to buy under an offer: without those that are already owned."""
    return max(instances - offer.held_instances, 0.0) if offer.capital_usd else 0.0


def bill_of(members: Sequence[Member], plan: FleetPlan, options: Mapping[Machine, MachineOption]) -> Bill:
    """What the machines cost together; the planner's horizon and discount are those of the first workload."""
    first, capital = members[0], 0.0
    parts: list[Part] = []
    a = first.catalog.site_assumptions or first.catalog.assumptions
    for machine, count in plan.machines:
        option = options[machine]
        instances = option.instances * count
        each = option.offer.parts or (Part(name="instances", usd_per_hour=option.offer.usd_per_hour, group="rent"),)
        whole = at_load(each, instances, 1.0)
        rest = machine.usd_per_hour * count - math.fsum(p.usd_per_hour for p in whole)
        parts += (
            [*whole, Part(name=SOFTWARE_AND_POWER, usd_per_hour=rest, group="running")] if abs(rest) > 1e-9 else whole
        )
        capital += option.offer.capital_usd * bought(option.offer, instances)
    return Bill(
        parts=tuple(added_by_name(parts)),
        months=first.workload.horizon_months,
        discount_fraction=first.workload.discount_fraction,
        capital_usd=capital,
        life_months=life_months(a),
        residual_fraction=a.residual_fraction,
    )


def added_by_name(parts: Sequence[Part]) -> list[Part]:
    """Parts of the same name added up, in the order of their first appearance."""
    sums: dict[tuple[str, str], float] = {}
    for p in parts:
        sums[(p.name, p.group)] = sums.get((p.name, p.group), 0.0) + p.usd_per_hour
    return [Part(name=name, usd_per_hour=usd, group=group) for (name, group), usd in sums.items()]


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
