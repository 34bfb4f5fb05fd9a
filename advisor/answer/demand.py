"""How much is asked when, in the JSON of `advise`: users, a recorded trace, hours of the week, growth, spares."""

import math
from typing import Any

from advisor.engine.cost import HOURS_PER_MONTH, owned_instances, present_value, racks_of
from advisor.engine.scheduler import Verified
from advisor.engine.search import Answer, Catalog, Scored, instances_of
from advisor.engine.spec import BATCH, OWNED, Offer, Workload, mean_fraction, needed_by_hour
from advisor.inputs import new_usd_per_accelerator, number

Json = dict[str, Any]
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
FEW = 100  # requests, below which a 95th percentile says little
POOLED = 3  # replicas from which two pools are tried (engine/variants.py)
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
        "site": site(workload, s),
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
    total = [n + workload.slo.spares(n) if n else 0 for n in needed]
    scaled = {"usd_per_month": number(s.usd_per_hour * HOURS_PER_MONTH), "utilisation": number(s.utilisation_fraction)}
    fixed = {
        "usd_per_month": number(s.around_the_clock_usd_per_hour * HOURS_PER_MONTH),
        "utilisation": number(s.utilisation_fraction * s.paid_fraction),
    }
    return {
        "mean_fraction_of_peak": number(mean_fraction(workload.week)),
        "replicas_by_hour": total,
        "days": [{"name": day, "replicas": total[24 * k : 24 * k + 24]} for k, day in enumerate(DAYS)],
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
        instances = int(instances_of(s, s.offer, total))
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


def site(workload: Workload, s: Scored) -> Json | None:
    """Hosts, racks and power of what stands at the planner's own site; null: rented."""
    c, found = workload.constraints, racks_of(s.offer, s.instances, workload.constraints)
    if found is None:
        return None
    return {
        "hosts": s.instances,
        "hosts_there_already": owned_instances(s.offer, s.instances),
        "hosts_to_buy": s.bought_instances,
        "kw_per_host": number(found.host_watts / 1e3),
        "kw_per_rack": number(c.max_rack_watts / 1e3) if c.max_rack_watts else None,
        "hosts_per_rack": found.rack_instances,
        "racks": found.racks,
        "cooling": s.offer.cooling or "unknown",
        "kw_with_cooling": number(s.full_watts / 1e3),
    }


def owned(spec: Json, taken: Json, catalog: Catalog, answer: Answer) -> list[Json]:
    """Of each accelerator that is there: keep it, sell it, or add to it, over the horizon in today's money."""
    a = catalog.site_assumptions or catalog.assumptions
    months, rate = int(spec["tco"]["horizon_months"]), float(spec["tco"]["discount_rate"])
    ranked = [(k, s) for k, s in enumerate(answer.shown, 1) if any(s is r for r in answer.ranked)]
    found = []
    for slug, count in spec["owned"].items():
        with_it = next(((k, s) for k, s in ranked if _uses(s, slug)), None)
        without = next(((k, s) for k, s in ranked if not _uses(s, slug)), None)
        new = new_usd_per_accelerator(catalog.offers, slug)
        resale = new * a.residual_fraction * count if new else None
        keep, sell = (_way(way, months, rate) for way in (with_it, without))
        if sell and resale is not None:
            sell["present_usd"] = number(sell["present_usd"] - resale)
        in_hosts = max((o.accelerators * o.held_instances for o in catalog.offers if _there(o, slug)), default=0)
        why = next((r.detail for r in answer.rejections if r.accelerator == slug), "")
        found.append(
            {
                "accelerator": slug,
                "count": count,
                "in_whole_hosts": in_hosts,
                "resale_usd": number(resale) if resale is not None else None,
                "resale_source": f"{a.residual_fraction:.0%} of the least price of a new host; "
                + taken["assumptions"]["residual-value-fraction"]["source"],
                "keep": keep,
                "adds_hosts": with_it[1].bought_instances if with_it else 0,
                "sell": sell,
                "said": _advice_of(keep, sell, with_it[1].bought_instances if with_it else 0, resale, why)
                + (f"; {count - in_hosts} of {count} fill no whole host and are left out" if in_hosts < count else ""),
            }
        )
    return found


def _there(o: Offer, slug: str) -> bool:
    return o.accelerator == slug and o.term == OWNED


def _uses(s: Scored, slug: str) -> bool:
    return s.lane.choice.accelerator.slug == slug and s.offer.held_instances > 0


def _way(ranked: tuple[int, Scored] | None, months: int, discount_fraction: float) -> Json | None:
    if ranked is None:
        return None
    rank, s = ranked
    monthly = s.usd_per_hour * HOURS_PER_MONTH
    return {
        "rank": rank,
        "accelerator": s.lane.choice.accelerator.slug,
        "hosts": s.instances,
        "usd_per_month": number(monthly),
        "present_usd": number(present_value(monthly, months, discount_fraction)),
    }


def _advice_of(keep: Json | None, sell: Json | None, more: int, resale: float | None, why: str) -> str:
    """Which of the two costs less, in words."""
    worth = f"sold for about ${resale:,.0f}" if resale is not None else "sold at a price that nobody states"
    if keep is None:
        return f"not among the answers ({why or 'what is there does not suffice, or renting ranks before it'}); {worth}"
    added = f" with {more} more host{'s' if more != 1 else ''} bought" if more else ""
    kept = f"kept{added}: ${keep['usd_per_month']:,.0f} a month (rank {keep['rank']})"
    if sell is None:
        return f"{kept}; nothing else is among the answers"
    other = f"{worth}, with {sell['accelerator']} instead: ${sell['usd_per_month']:,.0f} a month"
    better = "keeping" if keep["present_usd"] <= sell["present_usd"] else "selling"
    return f"{kept}; {other}; {better} costs less over the horizon"


def warnings(workload: Workload, s: Scored) -> list[str]:
    """What could not be checked."""
    c, said = workload.constraints, []
    if s.offer.acquisition == "own" and c.cooling != "any" and not s.offer.cooling:
        said.append(
            f"how {s.offer.instance} is cooled is not published: ask before it stands in a site with {c.cooling}"
        )
    seen = s.verified.of_trace
    if seen and seen.rejected_requests:
        said.append(f"{seen.rejected_requests} of {seen.requests} recorded requests exceed a replica's cache")
    if seen and seen.requests < FEW:
        said.append(f"a replica's lane gets {seen.requests} requests of the trace: too few for a 95th percentile")
    schedule, slug = growth(workload, s), s.lane.choice.accelerator.slug
    most = c.inventory_chips.get(slug)
    if schedule and most is not None and schedule["accelerators_at_end"] > most:
        month = next(x["month"] for x in schedule["steps"] if x["accelerators"] > most)
        said.append(f"from month {month} growth takes more than the {most} accelerators that can be had")
    return said


def said_of(r: Json) -> list[str]:
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
    if (r["users"] or r["recorded"]) and r["replicas"] - r["spare_replicas"] >= POOLED:
        said.append("pools of their own for prompts and answers are tried for a plain rate only, so not here")
    if r["week"]:
        said.append(of_week(r["week"]))
    if g := r["growth_schedule"]:
        first = f", the first in month {g['steps'][0]['month']}" if g["steps"] else ""
        said.append(
            f"sized for today; in {g['months']} months the peak of {g['peak_requests_per_s_at_end']:.4g} requests/s "
            f"takes {g['replicas_at_end']} replicas ({len(g['steps'])} changes{first})"
        )
    if (at := r["site"]) and at["racks"]:
        said.append(
            f"{at['hosts']} hosts of {at['kw_per_host']:.3g} kW stand {at['hosts_per_rack']} to a rack of "
            f"{at['kw_per_rack']:g} kW: {at['racks']} rack{'s' if at['racks'] != 1 else ''}, cooling: {at['cooling']}"
        )
    if (at := r["site"]) and at["hosts_there_already"]:
        said.append(
            f"{at['hosts_there_already']} of {at['hosts']} hosts are there already, {at['hosts_to_buy']} to buy"
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
