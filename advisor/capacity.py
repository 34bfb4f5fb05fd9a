"""How much is asked when, in the JSON of `advise`: users, a recorded trace, hours of the week, growth, spares."""

import math
from typing import Any

import numpy as np

from advisor.engine.demand import mean_fraction, needed_by_hour
from advisor.engine.evaluate import instances_needed
from advisor.engine.money import HOURS_PER_MONTH
from advisor.engine.plan import BATCH, Workload
from advisor.engine.trials import Scored
from advisor.engine.verify import Verified

Json = dict[str, Any]
FIXED_TERMS = {"purchase": "bought hosts are there and paid for around the clock", "owned": "owned hosts stay there"}


def figures(workload: Workload, s: Scored) -> Json:
    """`availability`, `users`, `recorded`, `week` and `growth` of an R; null where the question has none."""
    return {
        "e2e_ms": {"mean": number(s.verified.e2e_mean_s * 1e3), "p95": number(s.verified.e2e_p95_s * 1e3)},
        "availability": availability(s),
        "users": users(workload, s.verified, s.requests_per_s_peak),
        "recorded": recorded(s.verified.of_trace),
        "week": week(workload, s),
        "growth_schedule": growth(workload, s),
    }


def availability(s: Scored) -> Json:
    """How many replicas may fail at the peak while those left carry what was simulated for them."""
    return {
        "carrying_replicas": s.replicas - s.spare_replicas,
        "spare_replicas": s.spare_replicas,
        "capacity_requests_per_s_without_spares": number(
            s.capacity_requests_per_s * (s.replicas - s.spare_replicas) / s.replicas
        ),
    }


def users(workload: Workload, v: Verified, requests_per_s: float) -> Json | None:
    """Active users, what they ask together, and how long each waits for a whole answer on average."""
    if workload.users is None:
        return None
    return {
        "active": workload.users.active_requests,
        "think_s": workload.users.think_s,
        "e2e_ms_mean": number(v.e2e_mean_s * 1e3),
        "requests_per_s": number(requests_per_s),
    }


def recorded(v: Verified | None) -> Json | None:
    """What one lane did under its share of the trace."""
    if v is None:
        return None
    return {
        "requests": v.requests,
        "requests_per_s": number(v.offered_requests_per_s),
        **{
            f"{name}_ms": {k: number(getattr(v, f"{name}_{k}_s") * 1e3) for k in ("mean", "p50", "p95", "p99")}
            for name in ("ttft", "tpot")
        },
        "e2e_ms_p95": number(v.e2e_p95_s * 1e3),
    }


def week(workload: Workload, s: Scored) -> Json | None:
    """Replicas by hour from Monday 0:00, and what both ways of paying for them cost."""
    if not workload.week or workload.kind == BATCH:
        return None
    carrying, autoscaled = s.replicas - s.spare_replicas, s.paid_fraction < 1
    needed = needed_by_hour(workload.week, carrying)
    spares = [workload.slo.spares(n) if n else 0 for n in needed]
    scaled = {"usd_per_month": number(s.usd_per_hour * HOURS_PER_MONTH), "utilisation": number(s.utilisation_fraction)}
    fixed = {
        "usd_per_month": number(s.around_the_clock_usd_per_hour * HOURS_PER_MONTH),
        "utilisation": number(s.utilisation_fraction * s.paid_fraction),
    }
    return {
        "mean_fraction_of_peak": number(mean_fraction(workload.week)),
        "replicas_by_hour": [n + m for n, m in zip(needed, spares, strict=True)],
        "paid": "autoscaled" if autoscaled else "fixed",
        "autoscaled": scaled if autoscaled else None,
        "fixed": fixed,
        "paid_fraction_of_hours": number(s.paid_fraction),
        "cold_start_s": number(workload.cold_start_s),
        "why": why_paid(s, autoscaled, max(needed) == min(needed)),
    }


def why_paid(s: Scored, autoscaled: bool, level: bool) -> str:
    if autoscaled:
        return "rented by the hour: given back when an hour needs fewer, started before one that needs more"
    if level:
        return "every hour needs as many replicas"
    return FIXED_TERMS.get(s.offer.term, "committed for a term" if "reserved" in s.offer.term else "whole instances")


def growth(workload: Workload, s: Scored) -> Json | None:
    """Sized for today; the months in which the peak asks for another number of replicas, and the end."""
    rate = workload.growth_fraction_per_year
    if not rate:
        return None
    c, months = s.lane.choice, workload.horizon_months
    carrying, size = s.replicas - s.spare_replicas, c.tp * c.pp * c.dp
    steps, held = [], (s.replicas, s.instances)
    for month in range(1, months + 1):
        n = max(math.ceil(carrying * (1.0 + rate) ** (month / 12.0) - 1e-9), 1)
        total = n + workload.slo.spares(n)
        instances = int(instances_needed(np.array(float(total)), size, s.offer.accelerators, c.pp))
        if total != held[0]:
            steps.append(
                {
                    "month": month,
                    "replicas": total,
                    "accelerators": total * size,
                    "instances": instances,
                    "more_instances": instances - held[1],
                }
            )
        held = total, instances
    return {
        "fraction_per_year": rate,
        "months": months,
        "peak_requests_per_s_today": number(s.requests_per_s_peak),
        "peak_requests_per_s_at_end": number(s.requests_per_s_peak * (1.0 + rate) ** (months / 12.0)),
        "replicas_at_end": held[0],
        "accelerators_at_end": held[0] * size,
        "instances_at_end": held[1],
        "steps": steps,
    }


def reasons(workload: Workload, r: Json) -> list[str]:
    """What these figures say, in words."""
    said = []
    if r["users"]:
        u = r["users"]
        said.append(
            f"{u['active']:g} users who think for {u['think_s']:g} s and wait {u['e2e_ms_mean'] / 1e3:.3g} s for an "
            f"answer ask {u['requests_per_s']:.4g} requests/s"
        )
    if r["recorded"]:
        t = r["recorded"]
        said.append(
            f"under the recorded trace (one lane's {t['requests']:,} requests at their own times and lengths): "
            f"p95 TTFT {t['ttft_ms']['p95']:.0f} ms, p95 TPOT {t['tpot_ms']['p95']:.1f} ms"
        )
    if r["week"]:
        said.append(of_week(r["week"]))
    if g := r["growth_schedule"]:
        first = f", the first in month {g['steps'][0]['month']}" if g["steps"] else ""
        said.append(
            f"sized for today; in {g['months']} months the peak of {g['peak_requests_per_s_at_end']:.4g} requests/s "
            f"takes {g['replicas_at_end']} replicas ({len(g['steps'])} changes{first})"
        )
    if r["spare_replicas"]:
        said.append(f"with any {r['spare_replicas']} of {r['replicas']} replicas gone the others carry the peak")
    return said


def of_week(w: Json) -> str:
    low, high = min(w["replicas_by_hour"]), max(w["replicas_by_hour"])
    if not w["autoscaled"]:
        return (
            f"fixed at {high} replicas over a week that needs {low} to {high}: {w['fixed']['utilisation']:.0%} used "
            f"({w['why']})"
        )
    return (
        f"autoscaled between {low} and {high} replicas over the week, cold starts of {w['cold_start_s']:g} s paid: "
        f"${w['autoscaled']['usd_per_month']:,.0f} a month at {w['autoscaled']['utilisation']:.0%} use; fixed at "
        f"{high}: ${w['fixed']['usd_per_month']:,.0f} at {w['fixed']['utilisation']:.0%}"
    )


def number(value: float) -> float | None:
    return float(f"{value:.6g}") if math.isfinite(value) else None
