"""What a training run costs: bill by part, plan, cash flow, other sellers, and when owning beats renting."""

import math
from collections.abc import Iterator
from dataclasses import replace

from advisor.answer.money import CURRENCY, cents, cost_parts, figures_of, paid_way
from advisor.answer.money.plan import LARGE_TEAM_FRACTION, months_text, section_of, steps_of
from advisor.answer.money.taxes import taxes
from advisor.answer.training.question import Question
from advisor.answer.training.sentences import plain
from advisor.engine.cost import HOURS_PER_MONTH, TEAM, Use, break_even_share, waterfall
from advisor.engine.plans import (
    Plan,
    best_plan,
    break_even_month,
    flat_demand,
)
from advisor.engine.search import overheads_of
from advisor.engine.terms import usd_text
from advisor.engine.training_search import (
    Candidate,
    break_even_interruptions,
    by_seller,
    candidate,
    deadline_days,
    delivery_days,
    duration,
    offloads_alike,
    prices_of_run,
    serves,
    strategies_of,
    ways_of_run,
)
from advisor.inputs import number, offers, rounded
from advisor.result import BreakEven, Money, PlanMonth, PlanStep, Strategy, WaterfallStep, WayToPay, purchase_of
from advisor.result import Plan as PlanSection

SPLIT = "the whole bill is for the trained tokens"
SPOT, INTERRUPTIONS = "spot", "spot-interruptions-per-instance-hour"
LARGE_TEAM_USD = 100.0  # of a run: less is not named in the verdict; no figure depends on it


def money_of(q: Question, c: Candidate) -> Money:
    """The costs of a run over the months of its plan."""
    plan = c.planned.plan
    section = plan_section(q, c)
    parts = plan.parts()
    mtok_per_hour = q.task.tokens * runs_of(q, c) / (plan.prices.months * HOURS_PER_MONTH) / 1e6
    use = Use(
        instances_fraction=min(c.chips / ((c.instances - c.spare_hosts) * c.offer.accelerators), 1.0),
        carrying_fraction=(c.instances - c.spare_hosts) / c.instances,
        busy_fraction=1.0,
    )
    return Money(
        currency=CURRENCY,
        prices_as_of=min((step.price_as_of for step in section.steps), default=c.offer.as_of),
        parts=cost_parts(parts, plan),
        **figures_of(plan),
        purchase_usd=cents(c.offer.purchase_usd * bought(plan)),
        waterfall=[
            WaterfallStep(name=name.replace("spare replicas", "spare hosts"), usd_per_mtok=rounded(usd))
            for name, usd in waterfall(parts, use, mtok_per_hour)
        ],
        usd_per_mtok_computed_input=None,
        split=SPLIT,
        ways_to_pay=list(ways_to_pay(q, c)),
        growth=None,
        services=None,
        plan=section,
        purchase=purchase_of(section, c.chips),
        taxes=taxes(q, plan),
        break_even=list(break_evens(q, c)),
    )


def money_said(c: Candidate, money: Money | None, usd_per_run: float) -> str:
    """What the verdict adds about money: a minimum team that is much of the cost, purchases, and what is still due."""
    plan = money.plan if money else None
    if money is None or plan is None:
        return ""
    least = math.fsum(p.total_usd or 0.0 for p in money.parts if p.name == TEAM) / money.usd_over_horizon
    own = bought(c.planned.plan) > 0
    said = (
        f" The cost includes {usd_text(least * usd_per_run)} for the assumed minimum team "
        f"(tco.minimum-engineers-{'own' if own else 'rented'})."
        if least > LARGE_TEAM_FRACTION and least * usd_per_run >= LARGE_TEAM_USD
        else ""
    )
    if len(plan.steps) == 1 and plan.steps[0].action == "rent":
        return said
    said += f" Plan: {plan.said}"
    if plan.capex_usd:
        said += f" Purchases: {usd_text(plan.capex_usd)}."
    if months := max((s.order_months_before for s in plan.steps if s.action == "buy"), default=0.0):
        said += f" Delivery takes about {months:g} months, and the first run starts then."
    if plan.liability_usd > 0:
        said += f" Liability: {usd_text(plan.liability_usd)} is still due after the run."
    return said


def runs_of(q: Question, c: Candidate) -> float:
    """Runs within the months of the plan."""
    if q.task.every_days is None:
        return 1.0
    return c.months * HOURS_PER_MONTH / 24.0 / q.task.every_days


def bought(plan: Plan) -> int:
    return sum(c.instances for c in plan.schedule.commitments if plan.ways[c.way].capital_usd)


def plan_section(q: Question, c: Candidate) -> PlanSection:
    """What to sign, and the usual strategies for the same machines."""
    plan = c.planned.plan
    chip = c.trained.accelerator
    same = [o for o in q.offers_of(chip) if o.accelerators == c.offer.accelerators and serves(o, c.chips)]
    named = strategies_of(q, c, same)
    superseded = offers.is_superseded(chip, q.snapshot)
    steps = [
        for_the_run(q, c, step)
        for step in steps_of(q.catalog, c.planned, superseded, q.workload.constraints.max_rack_watts)
    ]
    section = section_of(plan, steps, [] if len(steps) < 2 else list(months_of(plan)), named, named.get("rent"))
    wait = delivery_days(q.workload, [o for o in same if o.acquisition == "own" and o.term != "owned"])
    late = wait + c.days > deadline_days(q.workload)
    return section.changed(strategies=[s.changed(said=way_said(q, s, late)) for s in section.strategies])


def way_said(q: Question, s: Strategy, late: bool) -> str:
    """A usual strategy in the words of a run."""
    if s.name == "rent":
        return "rent by the hour"
    if s.name != "buy_now":
        return s.said
    said = f"buy today, sell after {'the last run' if q.task.every_days else 'the run'}"
    return f"{said} (they arrive after the deadline)" if late else said


def for_the_run(q: Question, c: Candidate, step: PlanStep) -> PlanStep:
    """A rent by the hour said in days; repeated runs rent again each time."""
    if step.action != "rent":
        return step
    how = " as spot instances" if step.term == "spot" else " by the hour"
    at = f"{step.provider} ({step.region})" if step.region else step.provider
    each = "" if q.task.every_days is None else f", every {q.task.every_days:g} days"
    return step.changed(said=f"Rent {step.instances:,} x {step.instance} at {at}{how} for {duration(c.days)}{each}.")


def months_of(plan: Plan) -> Iterator[PlanMonth]:
    hourly, terms, own = (plan.in_service(kinds) for kinds in (("hourly",), ("term",), ("bought", "owned")))
    for month in range(plan.prices.months):
        yield PlanMonth(
            month=month + 1,
            traffic_ratio=1.0,
            replicas=1,
            hourly_instances=int(hourly[month]),
            committed_instances=int(terms[month]),
            own_instances=int(own[month]),
        )


def ways_to_pay(q: Question, c: Candidate) -> Iterator[WayToPay]:
    """The chosen plan, then the same run at the other sellers of the chip."""
    yield way_to_pay(c)
    yield from (way_to_pay(o) for o in elsewhere(q, c))


def elsewhere(q: Question, c: Candidate) -> list[Candidate]:
    """The same run at the other sellers of its accelerators, the cheapest first."""
    able = [o for o in q.offers_of(c.trained.accelerator) if serves(o, c.chips)]
    groups = by_seller([o for o in able if offloads_alike(q.catalog.model, c.trained, c.offer, o)])
    others = [candidate(q, q.reliability, c.trained, group) for group in groups]
    in_time = (o for o in others if o is not None and not (o.delivery_days and o.end_days > deadline_days(q.workload)))
    return sorted((o for o in in_time if o.offer is not c.offer), key=lambda o: o.usd_total)


def spot_warning(q: Question, c: Candidate) -> list[str]:
    """How little is known about interruptions of spot instances, and how many are too many."""
    if c.offer.term != SPOT:
        return []
    rate, row = q.reliability.spot.interruptions_per_instance_hour, q.snapshot.assumptions[INTERRUPTIONS]
    said = (
        f"spot: the estimate assumes that each instance is interrupted every {plain(1.0 / rate)} hours" if rate else ""
    )
    if not rate:
        return [said] if said else []
    if INTERRUPTIONS not in q.spec["tco"] and row.get("low") and row.get("high"):
        said += (
            f"; published rates go from every {plain(1.0 / row['high'])} to every {plain(1.0 / row['low'])} hours, and "
            f"the ranges of cost and time do not cover them (tco.{INTERRUPTIONS})"
        )
    kept = next((o for o in elsewhere(q, c) if o.offer.term != SPOT), None)
    most = break_even_interruptions(c, q.reliability, kept.usd_total) if kept else math.inf
    if kept and 0.0 < most < math.inf:
        instead = "buying" if kept.offer.acquisition == "own" else f"{kept.offer.provider} without spot"
        said += f"; if interruptions come more often than every {plain(1.0 / most)} hours, {instead} costs less"
    return [said]


def way_to_pay(c: Candidate) -> WayToPay:
    plan = c.planned.plan
    return paid_way(plan, plan.parts(), c.offer, c.instances, plan.usd_per_month / HOURS_PER_MONTH)


def break_evens(q: Question, c: Candidate) -> Iterator[BreakEven]:
    """After how many months of training without a break the same machines cost less to own than to rent."""
    months = q.workload.horizon_months
    prices = prices_of_run(q, months)
    every = [o for o in q.offers_of(c.trained.accelerator) if serves(o, c.chips)]
    plans: dict[str, Plan] = {}
    for how in ("own", "rent"):
        for group in by_seller([o for o in every if (o.acquisition == "own") == (how == "own") and o.term != "owned"]):
            of, ways = ways_of_run(q.catalog, c.trained, group)
            instances = math.ceil(c.chips / of[0].accelerators) + c.spare_hosts
            plan = best_plan(
                flat_demand(instances, months),
                [replace(w, lead_months=0) for w in ways],
                prices,
                overheads_of(q),
            )
            if plan is not None and (how not in plans or plan.present_usd < plans[how].present_usd):
                plans[how] = plan
    if len(plans) < 2:
        return
    own, rent = plans["own"], plans["rent"]
    month = break_even_month(own, rent)
    yield BreakEven(
        between=["own", "rent on_demand"],
        month=month,
        share_of_hours=number(break_even_share(own.usd_per_month, rent.usd_per_month)),
        tokens_per_month=None,
        within_capacity=None,
        said=(
            f"owning these machines costs less than renting them once they train for {months_text(month)} without a "
            "break, resale counted"
            if month
            else f"renting these machines costs less than owning them for up to {months_text(months)} of training"
        ),
    )
