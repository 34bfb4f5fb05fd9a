"""Traffic over time: users, a recorded trace, hours of the week, growth, spare replicas, the site."""

import math
from functools import partial
from typing import Any

from advisor.answer.question import Question
from advisor.engine.cost import HOURS_PER_MONTH, owned_instances, racks_of
from advisor.engine.fleet import HostLoss, host_loss
from advisor.engine.plans import TERM
from advisor.engine.scheduler import Verified
from advisor.engine.search import Scored, Table, instances_of, packing_of, tpot_limit_s
from advisor.engine.terms import COMPUTER, Workload, instances_packed, mean_fraction, needed_by_hour, unlike, usd_text
from advisor.inputs import SUPPLY, number
from advisor.result import (
    Availability,
    Day,
    GrowthSchedule,
    GrowthStep,
    HostLost,
    MeanAndTail,
    Option,
    Percentiles,
    Recorded,
    Site,
    Users,
    Week,
    WeekBill,
)

Json = dict[str, Any]
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
FEW = 100  # requests, below which a 95th percentile says little
POOLED = 3  # replicas from which two pools are tried (engine/variants.py)
API_LOSS = "One host lost: the provider handles it; get an availability guarantee in writing."
FIXED_TERMS = {"purchase": "bought servers are paid for around the clock", "owned": "owned servers stay"}


def traffic_fields(workload: Workload, s: Scored) -> Json:
    """The fields of an Option about traffic over time; null where the question has none."""
    return {
        "e2e_ms": MeanAndTail(mean=number(s.verified.e2e_mean_s * 1e3), p95=number(s.verified.e2e_p95_s * 1e3)),
        "availability": availability(s),
        "users": users(workload, s.verified, s.requests_per_s_peak),
        "recorded": recorded(s.verified.of_trace),
        "week": week(workload, s),
        "growth_schedule": growth(workload, s),
        "site": site(workload, s),
    }


def availability(s: Scored) -> Availability:
    """Replicas that may fail at the peak while the others carry what was simulated for them."""
    carrying = s.replicas - s.spare_replicas
    return Availability(
        carrying_replicas=carrying,
        spare_replicas=s.spare_replicas,
        capacity_requests_per_s_without_spares=number(s.capacity_requests_per_s * carrying / s.replicas),
    )


def users(workload: Workload, v: Verified, requests_per_s: float) -> Users | None:
    """Active users, their request rate, and how long each waits for a whole answer on average."""
    if workload.users is None:
        return None
    return Users(
        active=workload.users.active_requests,
        think_s=workload.users.think_s,
        e2e_ms_mean=number(v.e2e_mean_s * 1e3),
        requests_per_s=number(requests_per_s),
    )


def recorded(v: Verified | None) -> Recorded | None:
    """What one lane did under its share of the trace."""
    if v is None:
        return None
    return Recorded(
        requests=v.requests,
        requests_per_s=number(v.offered_requests_per_s),
        ttft_ms=percentiles(v, "ttft"),
        tpot_ms=percentiles(v, "tpot"),
        e2e_ms_p95=number(v.e2e_p95_s * 1e3),
    )


def percentiles(v: Verified, name: str) -> Percentiles:
    """ttft or tpot of a simulation, ms."""
    return Percentiles(
        mean=number(getattr(v, f"{name}_mean_s") * 1e3),
        p50=number(getattr(v, f"{name}_p50_s") * 1e3),
        p95=number(getattr(v, f"{name}_p95_s") * 1e3),
        p99=number(getattr(v, f"{name}_p99_s") * 1e3),
    )


def week(workload: Workload, s: Scored) -> Week | None:
    """Replicas by hour from Monday 0:00, and the cost of autoscaling against a fixed size."""
    if not workload.week or not workload.kind.has_arrivals:
        return None
    carrying, autoscaled = s.replicas - s.spare_replicas, s.paid_fraction < 1
    needed = needed_by_hour(workload.week, carrying)
    total = [replicas_at(workload, s, n) for n in needed]
    scaled = WeekBill(
        usd_per_month=number(s.usd_per_hour * HOURS_PER_MONTH), utilisation=number(s.utilisation_fraction)
    )
    fixed = WeekBill(
        usd_per_month=number(s.around_the_clock_usd_per_hour * HOURS_PER_MONTH),
        utilisation=number(s.utilisation_fraction * s.paid_fraction),
    )
    return Week(
        mean_fraction_of_peak=number(mean_fraction(workload.week)),
        replicas_by_hour=total,
        days=[Day(name=day, replicas=total[24 * k : 24 * k + 24]) for k, day in enumerate(DAYS)],
        paid="autoscaled" if autoscaled else "fixed",
        autoscaled=scaled if autoscaled else None,
        fixed=fixed,
        paid_fraction_of_hours=number(s.paid_fraction),
        cold_start_s=number(workload.cold_start_s),
        why=why_paid(s, autoscaled, max(needed) == min(needed)),
    )


def replicas_at(workload: Workload, s: Scored, carrying: int) -> int:
    """Replicas, spares included, when so many serve; the spares follow from the hosts of the offer."""
    return int(workload.slo.redundancy.replicas(carrying, packing_of(s.lane.choice, s.offer)))


def why_paid(s: Scored, autoscaled: bool, level: bool) -> str:
    if autoscaled:
        return "rented by the hour: released when an hour needs fewer, started before an hour that needs more"
    if level:
        return "every hour needs the same number of replicas"
    return FIXED_TERMS.get(s.offer.term, "committed for a term" if "reserved" in s.offer.term else "whole instances")


def growth(workload: Workload, s: Scored) -> GrowthSchedule | None:
    """The months in which the forecast needs another number of replicas, and the end of the horizon."""
    if not workload.forecast:
        return None
    c, months = s.lane.choice, workload.horizon_months
    carrying, chips = s.replicas - s.spare_replicas, c.tp * c.pp * c.dp
    steps, replicas, instances = [], s.replicas, int(instances_of(workload, s, s.offer, carrying))
    for month, ratio in enumerate(workload.forecast, 1):
        n = max(math.ceil(carrying * ratio - 1e-9), 1) if ratio else 0
        needed = replicas_at(workload, s, n)
        machines = int(instances_of(workload, s, s.offer, n)) if n else 0
        if needed != replicas:
            steps.append(
                GrowthStep(
                    month=month,
                    replicas=needed,
                    accelerators=needed * chips,
                    instances=machines,
                    more_instances=machines - instances,
                )
            )
        replicas, instances = needed, machines
    return GrowthSchedule(
        fraction_per_year=workload.growth_fraction_per_year,
        months=months,
        peak_requests_per_s_today=number(s.requests_per_s_peak),
        peak_requests_per_s_at_end=number(s.requests_per_s_peak * workload.forecast[-1]),
        replicas_at_end=replicas,
        accelerators_at_end=replicas * chips,
        instances_at_end=instances,
        steps=steps,
    )


def site(workload: Workload, s: Scored) -> Site | None:
    """Servers, racks and power at the planner's own site; None: rented."""
    c, racks = workload.constraints, racks_of(s.offer, s.instances, workload.constraints)
    if racks is None:
        return None
    return Site(
        hosts=s.instances,
        hosts_there_already=owned_instances(s.offer, s.instances),
        hosts_to_buy=s.bought_instances,
        kw_per_host=number(racks.host_watts / 1e3),
        kw_per_rack=number(c.max_rack_watts / 1e3) if c.max_rack_watts else None,
        hosts_per_rack=racks.rack_instances,
        racks=racks.racks,
        cooling=s.offer.cooling or "unknown",
        kw_with_cooling=number(s.full_watts / 1e3),
    )


def warnings(workload: Workload, s: Scored) -> list[str]:
    """What could not be checked."""
    c, lines = workload.constraints, []
    if s.offer.acquisition == "own" and c.cooling != "any" and not s.offer.cooling:
        lines.append(
            f"the cooling of {s.offer.instance} is not published: ask the vendor whether it suits a site with "
            f"{c.cooling} cooling"
        )
    trace = s.verified.of_trace
    if trace and trace.rejected_requests:
        lines.append(
            f"{trace.rejected_requests} of {trace.requests} recorded requests exceed a replica's KV cache or the "
            "model's context and count as infinitely late"
        )
    if trace and trace.requests < FEW:
        lines.append(f"a replica's lane gets {trace.requests} requests of the trace: too few for a 95th percentile")
    return lines


def supply_warnings(question: Question, s: Scored) -> list[str]:
    """Rentals of more accelerators in one region than a provider can be assumed to have free."""
    row = question.snapshot.assumptions[SUPPLY]
    if s.planned is None:
        return []
    most = float(question.spec["tco"].get(SUPPLY, row["value"]))
    plan, offers = s.planned.plan, s.planned.offers
    rented = [(offers[h.way], int(h.instances.max()), "by the hour") for h in plan.schedule.hourly]
    rented += [
        (offers[c.way], c.instances, "reserved") for c in plan.schedule.commitments if plan.ways[c.way].kind == TERM
    ]
    return [
        f"{count * offer.accelerators:,} accelerators {how} at {offer.provider} ({offer.region or 'any region'}) are "
        f"more than the {most:,.0f} that one provider can be assumed to have free in a region: get a written capacity "
        "commitment, or split them over providers"
        for offer, count, how in rented
        if count * offer.accelerators > most
    ]


def sentences(option: Option) -> list[str]:
    """Traffic over time in words."""
    lines = []
    if u := option.users:
        lines.append(
            f"{u.active:g} users who think for {u.think_s:g} s and wait {(u.e2e_ms_mean or 0) / 1e3:.3g} s for an "
            f"answer send {u.requests_per_s:.4g} requests/s"
        )
    if t := option.recorded:
        lines.append(
            f"replaying the recorded trace (one lane's {t.requests:,} requests at their own times and lengths): "
            f"p95 TTFT {t.ttft_ms.p95 or 0:.0f} ms, p95 TPOT {t.tpot_ms.p95 or 0:.1f} ms"
        )
    if (option.users or option.recorded) and option.replicas - option.spare_replicas >= POOLED:
        lines.append("disaggregated prefill and decode pools are only tried for a plain request rate, so not here")
    if option.week:
        lines.append(of_week(option.week))
    if g := option.growth_schedule:
        first = f", the first in month {g.steps[0].month}" if g.steps else ""
        lines.append(
            f"sized for today; in {g.months} months the peak of {g.peak_requests_per_s_at_end or 0:.4g} requests/s "
            f"needs {g.replicas_at_end} replicas ({len(g.steps)} expansions{first})"
        )
    if (at := option.site) and at.racks:
        lines.append(
            f"{at.hosts} servers of {at.kw_per_host or 0:.3g} kW, {at.hosts_per_rack} to a rack of "
            f"{at.kw_per_rack or 0:g} kW: {at.racks} rack{'s' if at.racks != 1 else ''}, cooling: {at.cooling}"
        )
    if (at := option.site) and at.hosts_there_already:
        lines.append(f"{at.hosts_there_already} of {at.hosts} servers are already owned, {at.hosts_to_buy} to buy")
    return lines


def of_week(w: Week) -> str:
    low, high = min(w.replicas_by_hour), max(w.replicas_by_hour)
    if not w.autoscaled:
        return (
            f"fixed at {high} replicas over a week that needs {low} to {high}: {w.fixed.utilisation or 0:.0%} used "
            f"({w.why})"
        )
    return (
        f"autoscaled between {low} and {high} replicas over the week, cold starts of {w.cold_start_s or 0:g} s "
        f"included: {usd_text(w.autoscaled.usd_per_month or 0)} a month at {w.autoscaled.utilisation or 0:.0%} "
        f"utilization; fixed at {high}: {usd_text(w.fixed.usd_per_month or 0)} at {w.fixed.utilisation or 0:.0%}"
    )


# --- one host lost ---------------------------------------------------------------------------------------------


def host_lost(question: Question, table: Table | None, s: Scored) -> HostLost | None:
    """None for a batch, which waits or takes longer, and without a table of the search."""
    workload = question.workload
    if table is None or not workload.kind.has_arrivals:
        return None
    loss = host_loss(question, table, s)
    spare = loss.spare_usd_per_hour if advises_spares(workload, s) else None
    seen = loss.verified
    return HostLost(
        hosts=loss.hosts,
        replicas_left=loss.replicas_left,
        idle_instances=loss.idle_instances,
        limits_hold=loss.limits_hold,
        capacity_requests_per_s=number(loss.capacity_requests_per_s),
        ttft_ms_p95=number(seen.ttft_p95_s * 1e3) if seen else None,
        tpot_ms_p95=number(seen.tpot_p95_s * 1e3) if seen and workload.kind.generates_tokens else None,
        spare_usd_per_month=number(spare * HOURS_PER_MONTH) if spare is not None else None,
        said=loss_said(workload, s, loss, spare),
    )


def redundancy_reasons(workload: Workload, s: Scored) -> list[str]:
    """How many hosts `slo.availability` adds; nothing without it."""
    slo, p = workload.slo, packing_of(s.lane.choice, s.offer)
    if not slo.redundancy:
        return []
    more = s.instances - int(instances_packed(s.replicas - s.spare_replicas, p))
    what = "instance or server" if more == 1 else "instances or servers"
    may_fail = "everything exists twice" if slo.doubled else "any one host may fail" if slo.spare_hosts == 1 else (
        f"any {slo.spare_hosts} hosts may fail"
    )  # fmt: skip
    added = f"{more} {what} more than the load needs" if more else "no more instances than the load needs"
    return [f"availability {'2n' if slo.doubled else f'n+{slo.spare_hosts}'}: {added} ({may_fail}); spares inside the "
            "same server do not count"]  # fmt: skip


def advises_spares(workload: Workload, s: Scored) -> bool:
    """Not for one user, or on a computer that is also a device on a desk."""
    alone = workload.users is not None and workload.users.active_requests <= 1
    return not alone and s.lane.choice.accelerator.chassis != COMPUTER


def loss_said(workload: Workload, s: Scored, loss: HostLoss, spare_usd_per_hour: float | None) -> str:
    """One sentence on the loss, without spares where there is nobody to advise them to."""
    usd = None if spare_usd_per_hour is None else usd_text(spare_usd_per_hour * HOURS_PER_MONTH)
    return f"One host lost: {_outcome(workload, s, loss)}{f'; a spare costs {usd} a month' if usd else ''}."


def _outcome(workload: Workload, s: Scored, loss: HostLoss) -> str:
    if loss.idle_instances:
        idle = "an idle server" if loss.idle_instances == 1 else f"one of {loss.idle_instances} idle servers"
        return f"{idle} that you own takes over, and the limits hold again once it has started"
    if loss.replicas_left < 1:
        return "no service until it is replaced"
    are = "is" if loss.replicas_left == 1 else "are"
    left = f"{loss.replicas_left} of {loss.replicas} replicas {are} left"
    if loss.verified is None:
        return (
            f"{left}, enough for {loss.capacity_requests_per_s:.3g} of the {s.requests_per_s_peak:.3g} requests/s "
            "at the peak, so the queue grows until the host is replaced"
        )
    latencies = _latencies(workload, loss)
    if loss.limits_hold:
        return f"the limits still hold, with {latencies}" if _limited(workload) else f"{left}, with {latencies}"
    return latencies


def _limited(workload: Workload) -> bool:
    slo = workload.slo
    return any(x is not None for x in (slo.ttft_p95_s, tpot_limit_s(workload), slo.e2e_p95_s))


def _latencies(workload: Workload, loss: HostLoss) -> str:
    """The latencies with their limits: all that have one, else the first; of those that miss, only these."""
    v, slo, kind = loss.verified, workload.slo, workload.kind
    assert v is not None
    figures = [
        (kind.first_result, v.ttft_p95_s, slo.ttft_p95_s),
        ("TPOT", v.tpot_p95_s, tpot_limit_s(workload)),
        ("end-to-end latency", v.e2e_p95_s, slo.e2e_p95_s),
    ]
    limited = [(name, reached, most) for name, reached, most in figures if most is not None]
    missed = [(name, reached, most) for name, reached, most in limited if reached > most]
    shown = missed or limited
    if not shown:
        return f"p95 {kind.first_result} {_time(v.ttft_p95_s, 3)}"
    return " and ".join(_over(name, reached, most) for name, reached, most in shown)


def _over(name: str, reached_s: float, most_s: float) -> str:
    reached, most = unlike(partial(_both, reached_s, most_s))
    return f"p95 {name} {reached} (limit {most})"


def _both(reached_s: float, most_s: float, more: int) -> tuple[str, str]:
    return _time(reached_s, 2 + more), _time(most_s, 2 + more)


def _time(s: float, digits: int) -> str:
    if s >= 1:
        return f"{s:.{digits}g} s"
    return f"{s * 1e3:.{max(digits - 3, 0)}f} ms" if s >= 0.1 else f"{s * 1e3:.{digits}g} ms"
