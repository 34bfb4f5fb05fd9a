"""Costs of a portfolio: what is bought or rented for all of it, and its cash flow."""

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from advisor.answer.money import CURRENCY, cash_flow, cents, cost_parts
from advisor.answer.money.plan import exact, list_price
from advisor.engine.cost import AFTER, HOURS_PER_MONTH, TEAM, life_months, service_months, term_months
from advisor.engine.fleet import Machine, MachineOption, Member, spared_team_usd_by_month
from advisor.engine.fleet import SharedFleet as FleetPlan
from advisor.engine.plans import (
    HOURLY,
    PURCHASE,
    TERM,
    Commitment,
    Hourly,
    Plan,
    Schedule,
    Way,
    flat_demand,
    flows,
    plan_of,
)
from advisor.engine.search import overheads_of, prices_of
from advisor.engine.terms import Offer, Part
from advisor.inputs import number
from advisor.result import (
    Answer,
    CashFlow,
    FleetItem,
    Money,
    Option,
    PortfolioMoney,
    TrainingOption,
    machine_name,
    machine_of,
)

SOFTWARE_AND_POWER = "licenses and power at the fleet's load"


def portfolio_money(members: Sequence[Member], answers: Sequence[Answer], plan: FleetPlan) -> PortfolioMoney | None:
    """Of the shared fleet; without one, the sum over the workloads alone; None where one has no answer."""
    if plan.machines:
        return of_fleet(members, plan)
    firsts = [a.deployments[0] for a in answers if a.deployments]
    return of_each(members, answers, firsts) if len(firsts) == len(answers) else None


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
        parts=cost_parts(fleet.parts(), fleet),
        cash_flow=[cash_flow(flow) for flow in flows(fleet)],
        items=[
            item
            for k, (machine, count) in enumerate(plan.machines)
            for item in fleet_items(machine, count, options[machine], fleet, k)
        ],
    )


def bought(offer: Offer, instances: float) -> float:
    """Instances to buy under an offer: without those that are already owned."""
    return max(instances - offer.held_instances, 0.0) if offer.capital_usd else 0.0


def fleet_plan(members: Sequence[Member], plan: FleetPlan, options: Mapping[Machine, MachineOption]) -> Plan:
    """The plan of the shared machines: all of them from the first month to the horizon of the first workload."""
    first = members[0]
    prices, a = prices_of(first.question), first.catalog.site_assumptions or first.catalog.assumptions
    ways: list[Way] = []
    kept: list[Commitment] = []
    hourly: list[Hourly] = []
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
            ways.append(Way(kind=TERM if months else HOURLY, parts=parts, term_months=months))
        else:
            ways.append(
                Way(
                    kind=PURCHASE, parts=parts, capital_usd=o.capital_usd if new else 0.0,
                    capital_shares=o.capital_shares, life_months=service_months(a),
                    book_months=life_months(a), resale=o.resale or a.resale(),
                )
            )  # fmt: skip
        if ways[-1].kind == HOURLY:  # a weekly mean of instances is paid
            most, paid = np.full(prices.months, math.ceil(instances)), np.full(prices.months, float(instances))
            hourly.append(Hourly(way=len(ways) - 1, instances=most, paid=paid))
            continue
        for start, until in service_runs(ways[-1], prices.months):
            kept.append(Commitment(way=len(ways) - 1, start_month=start, until_month=until, instances=round(instances)))
    demand = flat_demand(1, prices.months)
    schedule = Schedule(commitments=tuple(kept), hourly=tuple(hourly))
    least = overheads_of(first.question)
    return plan_of(demand, ways, prices, schedule, least)


def service_runs(way: Way, months: int) -> list[tuple[int, int]]:
    """From month to month: renewed at the end of each term or life."""
    each = {TERM: way.term_months, PURCHASE: way.life_months}.get(way.kind, months)
    return [(start, min(start + each, months)) for start in range(0, months, each)]


def fleet_items(machine: Machine, count: float, option: MachineOption, fleet: Plan, way: int) -> Iterator[FleetItem]:
    """What is signed for one kind of machine: each purchase, each term, or the rent by the hour."""
    o, kind, months = option.offer, fleet.ways[way].kind, fleet.prices.months
    instances = count * option.instances
    rented = o.acquisition != "own"
    once = bool(fleet.ways[way].capital_usd)
    chip = option.lane.choice.accelerator
    for start, until in service_runs(fleet.ways[way], months):
        paid_until = start + fleet.ways[way].term_months if kind == TERM else until
        yield FleetItem(
            for_workload="all",
            quantity=number(instances),
            item=o.instance or machine.accelerator,
            provider=o.provider,
            region=o.region,
            term=o.term,
            unit_usd_once=number(o.capital_usd) if o.capital_usd else None,
            unit_usd_per_month=number(machine.usd_per_hour / option.instances * HOURS_PER_MONTH),
            price_as_of=o.as_of,
            source=o.source,
            action="reserve" if kind == TERM else "rent" if rented else "buy" if once else "keep",
            from_month=start + 1,
            until_month=until,
            paid_until_month=paid_until,
            list_usd_once=exact(o.purchase_usd) if once else None,
            list_usd_per_hour=exact(list_price(o)) if rented else None,
            paid_hours=exact(instances * HOURS_PER_MONTH * (paid_until - start)) if rented else None,
            machine=machine_name(o.form, o.accelerators, chip.name, o.instance) if once else "",
        )


def of_each(members: Sequence[Member], answers: Sequence[Answer], firsts: Sequence[Option]) -> PortfolioMoney:
    """Each workload's first choice, added, with one team for all; the longest horizon counts."""
    bills = with_one_team([first.money for first in firsts if first.money is not None], members)
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
        items=[item for a, o, m in zip(answers, firsts, bills, strict=True) for item in alone_items(a, o, m)],
    )


def alone_usd_per_month(members: Sequence[Member], answers: Sequence[Answer]) -> list[float | None]:
    """What each workload alone costs a month, if all share one team; None: it has no answer."""
    firsts = [a.deployments[0] if a.deployments else None for a in answers]
    bills = [first.money for first in firsts if first is not None and first.money is not None]
    if len(bills) < len(firsts):
        return [None if first is None else cents(first.usd_per_month) for first in firsts]
    return [cents(bill.usd_per_month) for bill in with_one_team(bills, members)]


def with_one_team(bills: Sequence[Money], members: Sequence[Member]) -> list[Money]:
    """The bills of the first choices without what they need not pay of a minimum team each, since they share one."""
    plans = [s.planned.plan for m in members for s in m.answer.ranked[:1] if s.planned]
    if len(plans) != len(bills):
        return list(bills)
    return [
        _with_less_staff(bill, usd, plan)
        for bill, usd, plan in zip(bills, spared_team_usd_by_month(plans), plans, strict=True)
    ]


def _with_less_staff(bill: Money, usd_by_month: np.ndarray, plan: Plan) -> Money:
    """The bill with this much less for the minimum team in month 0 .. horizon, USD."""
    discount = plan.prices.present(np.arange(len(usd_by_month)))
    present = float(usd_by_month @ discount)
    monthly, total = present / plan.prices.annuity, float(usd_by_month.sum())
    return bill.changed(
        usd_per_month=cents(bill.usd_per_month - monthly),
        npv_usd=cents(bill.npv_usd - present),
        parts=[
            p.changed(
                usd_per_hour=p.usd_per_hour - monthly / HOURS_PER_MONTH,
                usd_per_month=cents(p.usd_per_month - monthly),
                total_usd=None if p.total_usd is None else cents(p.total_usd - total),
            )
            if p.name == TEAM
            else p
            for p in bill.parts
        ],
        cash_flow=[
            f.changed(
                running_usd=cents(f.running_usd - less),
                staff_usd=cents(f.staff_usd - less),
                total_usd=cents(f.total_usd - less),
                present_usd=cents(f.present_usd - less * float(discount[f.month])),
            )
            for f in bill.cash_flow
            for less in [float(usd_by_month[f.month]) if f.month < len(usd_by_month) else 0.0]
        ],
    )


def cash_of_month(month: int, bills: Sequence[Money | PortfolioMoney]) -> CashFlow:
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


def alone_items(
    answer: Answer, option: Option | TrainingOption, money: Money, usd_per_month: float | None = None
) -> Iterator[FleetItem]:
    """What is signed for one workload: the steps of its plan, which share its month by what each of them pays.

    usd_per_month: of the workload in the portfolio; None is that of its own horizon.
    """
    month = money.usd_per_month if usd_per_month is None else usd_per_month
    steps = money.plan.steps if money.plan else []
    paid = math.fsum(max(step.usd, 0.0) for step in steps)
    for step in steps:
        hourly = step.unit_usd_per_hour is not None
        yield FleetItem(
            for_workload=workload_name(answer),
            quantity=step.instances,
            item=step.instance,
            provider=step.provider,
            region=step.region,
            term=step.term,
            unit_usd_once=number(money.capital_usd / option.instances) if step.action == "buy" else None,
            unit_usd_per_month=exact(
                month * (max(step.usd, 0.0) / paid if paid else 1.0 / len(steps)) / max(step.instances, 1)
            ),
            price_as_of=step.price_as_of,
            source=step.price_source,
            action=step.action,
            from_month=step.from_month,
            until_month=step.until_month,
            paid_until_month=step.paid_until_month,
            list_usd_once=step.unit_usd_once,
            list_usd_per_hour=step.unit_usd_per_hour,
            paid_hours=step.paid_hours if hourly else None,
            machine=machine_of(step) if step.action == "buy" else "",
        )
