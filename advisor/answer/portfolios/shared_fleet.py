"""`kind: portfolio`: several workloads, each answered alone and all on one fleet, with who runs where and when."""

import math
from collections.abc import Sequence
from typing import Any

from advisor.answer.money import cents
from advisor.answer.portfolios.colocation import packed
from advisor.answer.portfolios.cost import alone_usd_per_month, portfolio_money
from advisor.engine.cost import HOURS_PER_MONTH
from advisor.engine.fleet import DAY_HOURS, Assignment, Limits, Member, plan_shared_fleet
from advisor.engine.fleet import SharedFleet as FleetPlan
from advisor.engine.search import describe
from advisor.engine.terms import usd_text
from advisor.inputs import Snapshot, number
from advisor.result import (
    Alone,
    AloneOption,
    Answer,
    Candidates,
    Catalog,
    FleetMachine,
    FleetRun,
    NotUsed,
    Option,
    Portfolio,
    RunHours,
    SharedFleet,
    UsedCalibration,
    Views,
)
from advisor.workload import Spec

Json = dict[str, Any]
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
# what a portfolio's own file may set; everything else belongs in its workloads
OWN_CONSTRAINTS = ("max_accelerators", "max_usd_per_month")
IN_WORKLOADS = ("slo", "objective", "owned", "weights", "team", "probe", "tco", "constraints")


def portfolio_answer(spec: Json, snapshot: Snapshot, answers: Sequence[Answer], members: Sequence[Member]) -> Answer:
    """The answer of a portfolio, once each workload has its own: no ranking, but `portfolio`."""
    plan = plan_shared_fleet(members, limits_of(spec))
    section = portfolio(members, answers, plan, limits_of(spec))
    calibrations: dict[int, UsedCalibration] = {c.id: c for a in answers for c in a.calibrations or ()}
    return Answer(
        workload=spec,
        engine_version=snapshot.engine_version,
        catalog=Catalog(version=snapshot.catalog_version, prices_as_of=snapshot.prices_as_of),
        elapsed_s=None,
        candidates=Candidates(
            evaluated=sum(a.candidates.evaluated for a in answers),
            pruned=sum(a.candidates.pruned for a in answers),
            feasible=sum(a.candidates.feasible for a in answers),
        ),
        verdict=section.said,
        portfolio=section,
        recommendations=[],
        views=Views(),
        near_misses=[],
        rejected=[],
        pareto=[],
        sensitivity=[],
        assumptions=answers[0].assumptions,
        sources=list({str(s): s for a in answers for s in a.sources}.values()),
        hosted=[],
        not_used=not_used(spec, answers),
        calibrations=list(calibrations.values()),
        calibration_ids=sorted(calibrations),
    )


def not_used(spec: Json, answers: Sequence[Answer]) -> list[NotUsed]:
    """Inputs that changed nothing; a load curve counts here, and a portfolio has few constraints of its own."""
    usual = Spec().model_dump(mode="json")
    usual["constraints"] |= {key: spec["constraints"][key] for key in OWN_CONSTRAINTS}
    unused = [
        NotUsed(field=key, value=spec[key], instead="a portfolio does not use it; set it in the workloads")
        for key in IN_WORKLOADS
        if spec[key] != usual[key]
    ]
    return unused + [
        item.changed(field=f"workloads[{i}].{item.field}")
        for i, a in enumerate(answers)
        for item in a.not_used
        if item.field != "traffic.load_curve"
    ]


def portfolio(members: Sequence[Member], answers: Sequence[Answer], plan: FleetPlan, limits: Limits) -> Portfolio:
    """Each workload alone, one fleet for all, small models on shared cards, and their costs."""
    usd = alone_usd_per_month(members, answers)
    each = [alone(member, a, monthly) for member, a, monthly in zip(members, answers, usd, strict=True)]
    total, fleet = alone_total(each), shared_fleet(members, plan) if plan.machines else None
    section = Portfolio(
        alone=each,
        alone_usd_per_month=total,
        shared=fleet,
        saving_usd_per_month=cents(total - fleet.usd_per_month) if fleet and total is not None else None,
        saving_fraction=number(1 - fleet.usd_per_month / total, 4) if fleet and total else None,
        reason=plan.reason,
        packed=packed(members, plan.alone_usd_per_hour, limits),
        said="",
        money=portfolio_money(members, answers, plan),
    )
    packing = section.packed.said if section.packed else ""
    return section.changed(said=" ".join(filter(None, (sentence(section), packing))))


def alone(member: Member, a: Answer, usd_per_month: float | None) -> Alone:
    """One workload by itself: its first choice in short with its share of one team, or why there is none."""
    return Alone(
        name=member.workload.name,
        kind=member.workload.kind.name,
        verdict=a.verdict,
        option=None if usd_per_month is None else alone_option(a.deployments[0], usd_per_month),
    )


def alone_total(each: Sequence[Alone]) -> float | None:
    """The sum of the rows, in their cents; None: one has no answer."""
    usd = [a.option.usd_per_month for a in each if a.option]
    return cents(math.fsum(usd)) if len(usd) == len(each) else None


def alone_option(first: Option, usd_per_month: float) -> AloneOption:
    names = [name for name in AloneOption.model_fields if name in first.model_fields_set]
    return AloneOption(**{name: getattr(first, name) for name in names} | {"usd_per_month": usd_per_month})


def shared_fleet(members: Sequence[Member], plan: FleetPlan) -> SharedFleet:
    monthly = [cents(count * machine.usd_per_hour * HOURS_PER_MONTH) for machine, count in plan.machines]
    total = cents(plan.usd_per_hour * HOURS_PER_MONTH)
    return SharedFleet(
        usd_per_month=total,
        team_usd_per_month=cents(total - math.fsum(monthly)),
        proven=bool(plan.proven),
        machines=[
            FleetMachine(
                machine=machine.name,
                accelerator=machine.accelerator,
                accelerators_each=machine.chips,
                count=number(count, 4),
                paid="while it runs" if machine.hourly else "around the clock",
                usd_per_month=usd,
            )
            for (machine, count), usd in zip(plan.machines, monthly, strict=True)
        ],
        runs=[fleet_run(members, r, plan.runs) for r in first_of_each(plan.runs)],
    )


def same_setup(a: Assignment, b: Assignment) -> bool:
    return (a.member_index, a.machine, a.option.row, a.option.offer) == (
        b.member_index,
        b.machine,
        b.option.row,
        b.option.offer,
    )


def first_of_each(runs: Sequence[Assignment]) -> list[Assignment]:
    """One assignment of each workload, machine and setup."""
    firsts: list[Assignment] = []
    for r in runs:
        if not any(same_setup(r, x) for x in firsts):
            firsts.append(r)
    return firsts


def fleet_run(members: Sequence[Member], r: Assignment, runs: Sequence[Assignment]) -> FleetRun:
    """Who runs where and when: replicas and requests/s by the hours in which they are the same."""
    w, v, own = members[r.member_index].workload, r.verified, [x for x in runs if same_setup(x, r)]
    return FleetRun(
        workload=w.name,
        kind=w.kind.name,
        setup=describe(r.lane),
        machine=r.machine.name,
        accelerator=r.machine.accelerator,
        provider=r.option.offer.provider,
        region=r.option.offer.region,
        replicas_per_machine=r.option.replicas,
        paid="while it runs" if r.machine.hourly else "around the clock",
        hours=[
            RunHours(
                when=hours_of_week(x.hours),
                hours_per_week=len(x.hours),
                requests_per_s=number(x.requests_per_s),
                replicas=number(replicas(x, whole=w.kind.has_arrivals), 4),
            )
            for x in sorted(own, key=lambda x: -x.instances)
        ],
        ttft_ms_p95=number(v.ttft_p95_s * 1e3) if w.kind.has_arrivals else None,
        tpot_ms_p95=number(v.tpot_p95_s * 1e3) if w.kind.has_arrivals else None,
    )


def replicas(r: Assignment, whole: bool) -> float:
    """Replicas that run in these hours: whole ones where requests arrive, else a mean."""
    count = r.instances * r.option.replicas
    return math.ceil(count - 1e-6) if whole else count


def hours_of_week(hours: Sequence[int]) -> str:
    """Mon-Fri 0-8, 18-24; Sat-Sun 0-24: hours of the day by the days on which they are the same."""
    days: dict[tuple[int, ...], list[int]] = {}
    for d in range(7):
        own = tuple(h % DAY_HOURS for h in sorted(hours) if h // DAY_HOURS == d)
        if own:
            days.setdefault(own, []).append(d)
    return "; ".join(f"{spans(d, DAYS)} {stretches(own)}" for own, d in days.items())


def spans(days: Sequence[int], names: Sequence[str]) -> str:
    if len(days) > 1 and list(days) == list(range(days[0], days[-1] + 1)):
        return f"{names[days[0]]}-{names[days[-1]]}"
    return ", ".join(names[d] for d in days)


def stretches(hours: Sequence[int]) -> str:
    """0-8, 18-24 of the hours of a day."""
    starts = [h for h in hours if h - 1 not in hours]
    ends = [h + 1 for h in hours if h + 1 not in hours]
    return ", ".join(f"{a}-{b}" for a, b in zip(starts, ends, strict=True))


def sentence(p: Portfolio) -> str:
    """The answer in a few sentences."""
    missing = [a.name for a in p.alone if a.option is None]
    separate = (
        f"Run separately with one team, the workloads cost {usd_text(p.alone_usd_per_month)} a month in total"
        if p.alone_usd_per_month is not None
        else f"Run separately, {', '.join(missing)} has no feasible option"
    )
    if p.shared is None:
        return f"{separate}; a shared fleet does not help: {p.reason}."
    machines = " and ".join(f"{m.count or 0:.3g} x {m.machine} ({m.accelerator}, {m.paid})" for m in p.shared.machines)
    usd = p.money.usd_per_month if p.money else p.shared.usd_per_month  # with cents: the same dollars as the bill
    spared = (p.alone_usd_per_month or 0.0) - usd - (p.saving_usd_per_month or 0.0)  # teams that no fleet needs twice
    beside = " than separate fleets with one team for all" if spared >= 1.0 else ""
    less = f" ({p.saving_fraction:.0%} less{beside})" if p.saving_fraction else ""
    return f"{separate}; one shared fleet costs {usd_text(usd)}{less}: {machines}."


def limits_of(spec: Json) -> Limits:
    c = spec["constraints"]
    return Limits(
        inventory_chips=dict(spec["inventory"]),
        max_chips=c["max_accelerators"],
        max_usd_per_hour=c["max_usd_per_month"] / HOURS_PER_MONTH if c["max_usd_per_month"] else None,
    )
