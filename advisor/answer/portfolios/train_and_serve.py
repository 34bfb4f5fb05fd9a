"""A portfolio with training runs: each alone, and on the machines of its services."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from advisor.answer.money import CURRENCY, cents
from advisor.answer.portfolios.cost import alone_items, cash_of_month, workload_name
from advisor.answer.portfolios.shared_fleet import alone_total, sentence
from advisor.answer.training import deadline_said
from advisor.engine.cost import in_cents
from advisor.engine.fleet import IdleHours, Member, OnePlan, TrainingMember, idle_hours, one_plan
from advisor.engine.search import prices_of
from advisor.engine.terms import usd_text
from advisor.engine.training_search import duration
from advisor.inputs import Snapshot, number, rounded
from advisor.result import (
    Alone,
    AloneOption,
    Answer,
    Candidates,
    CashFlow,
    CostPart,
    Money,
    Portfolio,
    PortfolioMoney,
    RunOnFleet,
    TrainingOption,
)

Json = dict[str, Any]
Trained = tuple[Answer, TrainingMember]
WEEK_HOURS, WEEK_DAYS = 168.0, 7.0


def with_training(answer: Answer, members: Sequence[Member], trained: Sequence[Trained]) -> Answer:
    """The answer of the services of a portfolio, with its training runs."""
    section = answer.portfolio
    if section is None or not trained:
        return answer
    taken: dict[str, float] = {}
    runs = [run for each in trained for run in on_fleet(members, *each, taken)]
    firsts = [a.training_runs[0] if a.training_runs else None for a, _ in trained]
    months = section.money.horizon_months if section.money else 36
    annuity = annuity_of(members, months)
    monthly = [usd_per_month(first, annuity) for first in firsts]
    each = [*section.alone, *map(alone, (a for a, _ in trained), firsts, monthly)]
    total, money = alone_total(each), section.money
    if money is not None and all(firsts):
        bills = [(a, f) for (a, _), f in zip(trained, firsts, strict=True) if f is not None]
        money = with_runs(money, bills, annuity)
    saving = section.saving_usd_per_month  # runs are in both totals
    changed = section.changed(
        alone=each, alone_usd_per_month=total, training=runs, money=money if all(firsts) else None,
        saving_fraction=number(saving / total, 4) if saving is not None and total else section.saving_fraction,
    )  # fmt: skip
    told = [run_said(a, first, usd) for (a, _), first, usd in zip(trained, firsts, monthly, strict=True)]
    packing = section.packed.said if section.packed else ""
    fleet = sentence(changed) if members else ""
    said = " ".join(filter(None, [fleet, packing, *told, *(run.said for run in runs)]))
    changed = changed.changed(said=said)
    return answer.changed(
        portfolio=changed,
        verdict=said,
        candidates=Candidates(
            evaluated=answer.candidates.evaluated + sum(a.candidates.evaluated for a, _ in trained),
            pruned=answer.candidates.pruned + sum(a.candidates.pruned for a, _ in trained),
            feasible=answer.candidates.feasible + sum(a.candidates.feasible for a, _ in trained),
        ),
        sources=list({str(s): s for s in (*answer.sources, *(s for a, _ in trained for s in a.sources))}.values()),
    )


def nothing_to_serve(spec: Json, snapshot: Snapshot, trained: Sequence[Trained]) -> Answer:
    """The answer of a portfolio without services, before its runs are added."""
    first = trained[0][0]
    months = max((r.money.horizon_months for a, _ in trained for r in a.training_runs[:1] if r.money), default=1)
    discount = float(spec["workloads"][0]["tco"]["discount_rate"])
    money = PortfolioMoney(
        of="no service", currency=CURRENCY, prices_as_of=first.catalog.prices_as_of, horizon_months=months,
        discount_fraction_per_year=discount, usd_per_month=0.0, capital_usd=0.0, npv_usd=0.0, parts=[], cash_flow=[],
        items=[],
    )  # fmt: skip
    reason = "it has no service whose machines its training runs could use"
    return Answer(
        workload=spec,
        engine_version=snapshot.engine_version,
        catalog=first.catalog.changed(version=snapshot.catalog_version, prices_as_of=snapshot.prices_as_of),
        elapsed_s=None,
        candidates=Candidates(evaluated=0, pruned=0, feasible=0),
        verdict="",
        recommendations=[],
        assumptions=first.assumptions,
        sources=[],
        portfolio=Portfolio(
            alone=[], alone_usd_per_month=0.0, shared=None, saving_usd_per_month=None, saving_fraction=None,
            reason=reason, packed=None, said="", money=money,
        ),
    )  # fmt: skip


def annuity_of(members: Sequence[Member], months: int) -> float:
    """Present value of a dollar a month over the horizon of the services."""
    if not members:
        return float(months)
    return float(prices_of(members[0].question).annuity)


def usd_per_month(first: TrainingOption | None, annuity: float) -> float | None:
    """The run as an equal payment in each month of the services' horizon."""
    return None if first is None else cents(first.usd_total / annuity)


def alone(a: Answer, first: TrainingOption | None, usd: float | None) -> Alone:
    option = None
    if first is not None and usd is not None:
        shown = {
            name: getattr(first, name)
            for name in ("label", "accelerator", "accelerator_count", "provider", "instance", "instances", "region",
                         "acquisition", "term", "days", "usd_total")
        }  # fmt: skip
        option = AloneOption(**shown, usd_per_month=usd, utilisation=None)
    return Alone(name=workload_name(a), kind=str(a.workload["kind"]), verdict=a.verdict, option=option)


def run_said(a: Answer, first: TrainingOption | None, usd_per_month: float | None) -> str:
    if first is None:
        return f"{workload_name(a)} has no run in time: {a.verdict}"
    again = f" every {first.every_days:g} days" if first.every_days else ""
    return (
        f"On its own, {workload_name(a)} takes {first.label} for {duration(first.days)}{again}: a present value of "
        f"{usd_text(first.usd_total)}, or {usd_text(usd_per_month or 0.0)} a month of the total.{deadline_said(first)}"
    )


def mean_hours_per_week(first: TrainingOption, days: float) -> float:
    """Hours of a mean week in which a run trains; of a run that is done once, of its first week."""
    return rounded(WEEK_HOURS * min(days / (first.every_days or WEEK_DAYS), 1.0))


# --- on the machines of a service -------------------------------------------------------------------------------


def on_fleet(
    members: Sequence[Member], a: Answer, training: TrainingMember, taken: dict[str, float]
) -> Iterator[RunOnFleet]:
    """The cheapest way to train on the machines of one of the services; none where nothing is saved.

    taken: idle hours a week of each service that earlier runs need; those of this one are added.
    """
    if not a.training_runs:
        return
    first = a.training_runs[0]
    found: list[RunOnFleet] = []
    needs: dict[str, float] = {}
    for service in members:
        name = service.workload.name
        idle = idle_hours(service, training, taken.get(name, 0.0))
        if idle is not None and idle.usd < first.usd_total:
            found.append(in_idle_hours(a, service, idle, first))
            needs[name] = idle.needed_hours_per_week
        if (plan := one_plan(service, training)) is not None:
            found.append(in_one_plan(a, service, plan, first))
    if not members:
        return
    if found:
        best = max(found, key=lambda run: run.saving_usd)
        if best.way == "idle_hours":
            taken[best.service] = taken.get(best.service, 0.0) + needs[best.service]
        yield best
    else:
        yield by_itself(a, first)


def by_itself(a: Answer, first: TrainingOption) -> RunOnFleet:
    said = (
        f"No service of this portfolio leaves enough machines idle that it keeps for {workload_name(a)}, and one "
        "plan for both costs no less, so the run stays by itself."
    )
    return run_on(a, first, ("alone", ""), (first.accelerator, first.accelerator_count), first.days, 0.0, said)


def in_idle_hours(a: Answer, service: Member, use: IdleHours, first: TrainingOption) -> RunOnFleet:
    chip, name = use.run.trained.accelerator, service.workload.name
    said = (
        f"{workload_name(a)} can train on {use.run.chips:,} x {chip.name} of {name} alone in the "
        f"{use.hours_per_week:,.3g} hours a week in which it leaves them idle: {use.days:,.3g} days for "
        f"{usd_text(use.usd)} of electricity, {usd_text(first.usd_total - use.usd)} less than by itself. Each of "
        f"the {use.starts_per_week} starts a week restores a checkpoint."
    )
    machines, saving = (chip.slug, use.run.chips), first.usd_total - use.usd
    return run_on(a, first, ("idle_hours", name), machines, use.days, saving, said).changed(
        hours_per_week=rounded(use.hours_per_week), mean_hours_per_week=rounded(use.hours_per_week)
    )


def in_one_plan(a: Answer, service: Member, p: OnePlan, first: TrainingOption) -> RunOnFleet:
    chip, saving, name = p.run.trained.accelerator, p.alone_usd - p.plan.present_usd, service.workload.name
    said = (
        f"Planned together on {chip.name}, {name} and {workload_name(a)} have a "
        f"present value of {usd_text(p.plan.present_usd)}, {usd_text(saving)} less than each by itself: the run "
        f"takes {p.run.chips:,} of them for {p.run.days:,.3g} days, and both share machines and team."
    )
    return run_on(a, first, ("one_plan", name), (chip.slug, p.run.chips), p.run.days, saving, said)


def run_on(
    a: Answer, first: TrainingOption, way: tuple[Any, str], machines: tuple[str, int], days: float, saving: float,
    said: str,
) -> RunOnFleet:  # fmt: skip
    """way: its name and its service; machines: accelerators and their number; saving: USD against the run alone."""
    return RunOnFleet(
        workload=workload_name(a),
        service=way[1],
        way=way[0],
        accelerator=machines[0],
        accelerator_count=machines[1],
        days=rounded(days),
        hours_per_week=None,
        mean_hours_per_week=mean_hours_per_week(first, days),
        usd_total=cents(first.usd_total - saving),
        saving_usd=cents(saving),
        said=said,
    )


# --- money ------------------------------------------------------------------------------------------------------


def with_runs(money: PortfolioMoney, runs: Sequence[tuple[Answer, TrainingOption]], annuity: float) -> PortfolioMoney:
    """The costs of the services with each run by itself."""
    bills = [(a, r, r.money) for a, r in runs if r.money is not None]
    months = max(money.horizon_months, *(m.horizon_months for _, _, m in bills))
    return money.changed(
        of=f"{money.of}, and each training run alone",
        horizon_months=months,
        usd_per_month=cents(money.usd_per_month + math.fsum(cents(m.npv_usd / annuity) for _, _, m in bills)),
        capital_usd=cents(money.capital_usd + math.fsum(m.capital_usd for _, _, m in bills)),
        npv_usd=cents(money.npv_usd + math.fsum(m.npv_usd for _, _, m in bills)),
        parts=[*money.parts, *(part for a, _, m in bills for part in run_parts(a, m, annuity))],
        cash_flow=[month_of(month, money, [m for _, _, m in bills]) for month in range(months + 1)],
        items=[
            *money.items,
            *(item for a, r, m in bills for item in alone_items(a, r, m, cents(m.npv_usd / annuity))),
        ],
        ranges=None,
    )


def run_parts(a: Answer, m: Money, annuity: float) -> Iterator[CostPart]:
    """The lines of a run's bill, each month's equal payment over the horizon of the services."""
    ratio = m.npv_usd / annuity / m.usd_per_month if m.usd_per_month else 0.0
    monthly = in_cents([part.usd_per_month * ratio for part in m.parts])
    for part, usd in zip(m.parts, monthly, strict=True):
        yield part.changed(
            name=f"{workload_name(a)}: {part.name}",
            usd_per_hour=rounded(part.usd_per_hour * ratio),
            usd_per_month=float(usd),
        )


def month_of(month: int, services: PortfolioMoney, runs: Sequence[Money]) -> CashFlow:
    return cash_of_month(month, [services, *runs])
