"""`kind: portfolio`: several workloads, each answered alone and all on one fleet, with who runs where and when."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from advisor.answer.colocation import packing_json
from advisor.answer.portfolio_cost import money_json
from advisor.engine.cost import HOURS_PER_MONTH
from advisor.engine.fleet import DAY_HOURS, Assignment, Limits, Member, SharedFleet, plan_shared_fleet
from advisor.engine.search import describe
from advisor.inputs import number

Json = dict[str, Any]
Progress = Callable[[str, float], None]
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
# what a portfolio's own file may set; everything else stands in its workloads
OWN_CONSTRAINTS = ("max_accelerators", "max_usd_per_month")
IN_WORKLOADS = ("slo", "objective", "owned", "weights", "team", "probe", "tco", "constraints")


def answer(spec: Json, taken: Json, answers: Sequence[Json], members: Sequence[Member], found: SharedFleet) -> Json:
    """The JSON of `advise` for a portfolio: no ranking of its own, but `portfolio`."""
    alone = [alone_json(member, a) for member, a in zip(members, answers, strict=True)]
    told = portfolio_json(members, alone, found, limits_of(spec)) | {"money": money_json(members, answers, found)}
    return {
        "workload": spec,
        "engine_version": taken["engine_version"],
        "catalog": {"version": taken["catalog_version"], "prices_as_of": taken["prices_as_of"]},
        "elapsed_s": None,
        "candidates": {key: sum(a["candidates"][key] for a in answers) for key in ("evaluated", "pruned", "feasible")},
        "verdict": told["said"],
        "portfolio": told,
        "recommendations": [],
        "views": {},
        "near_misses": [],
        "rejected": [],
        "pareto": [],
        "sensitivity": [],
        "assumptions": answers[0]["assumptions"],
        "sources": list({str(s): s for a in answers for s in a["sources"]}.values()),
        "hosted": [],
        "not_used": unused(spec, answers),
    }


def unused(spec: Json, answers: Sequence[Json]) -> list[Json]:
    """What the workloads left out; a load curve counts here, and limits of the portfolio are its own few."""
    from advisor.workload import Spec

    usual = Spec().model_dump(mode="json")
    usual["constraints"] |= {key: spec["constraints"][key] for key in OWN_CONSTRAINTS}
    said = [
        {"field": key, "value": spec[key], "instead": "give it in the workloads; of a portfolio it is not used"}
        for key in IN_WORKLOADS
        if spec[key] != usual[key]
    ]
    return said + [
        {**item, "field": f"workloads[{i}].{item['field']}"}
        for i, a in enumerate(answers)
        for item in a["not_used"]
        if item["field"] != "traffic.load_curve"
    ]


def alone_json(member: Member, a: Json) -> Json:
    """One workload by itself: its first choice in short, or why there is none."""
    first = a["recommendations"][0] if a["recommendations"] else None
    kept = (
        "label accelerator accelerator_count provider instance instances region acquisition term usd_per_month "
        "utilisation batch"
    ).split()
    return {
        "name": member.workload.name,
        "kind": member.workload.kind.name,
        "verdict": a["verdict"],
        "option": {key: first[key] for key in kept if key in first} if first else None,
    }


def portfolio_json(members: Sequence[Member], alone: Sequence[Json], found: SharedFleet, limits: Limits) -> Json:
    """`portfolio` of the answer, as docs/how-to/portfolio.md describes it."""
    apart = number(found.alone_usd_per_hour * HOURS_PER_MONTH)
    told: Json = {
        "alone": list(alone),
        "alone_usd_per_month": apart,
        "shared": None,
        "saving_usd_per_month": None,
        "saving_fraction": None,
        "reason": found.reason,
    }
    if found.machines:
        saving = (found.alone_usd_per_hour - found.usd_per_hour) * HOURS_PER_MONTH
        told["shared"] = shared_json(members, found)
        told["saving_usd_per_month"] = number(saving)
        told["saving_fraction"] = number(1 - found.usd_per_hour / found.alone_usd_per_hour, 4)
    told["packed"] = packing_json(members, found.alone_usd_per_hour, limits)
    return {**told, "said": " ".join(filter(None, (said(told), (told["packed"] or {}).get("said"))))}


def shared_json(members: Sequence[Member], found: SharedFleet) -> Json:
    return {
        "usd_per_month": number(found.usd_per_hour * HOURS_PER_MONTH),
        "proven": found.proven,
        "machines": [
            {
                "machine": machine.name,
                "accelerator": machine.accelerator,
                "accelerators_each": machine.chips,
                "count": number(count, 4),
                "paid": "while it runs" if machine.hourly else "around the clock",
                "usd_per_month": number(count * machine.usd_per_hour * HOURS_PER_MONTH),
            }
            for machine, count in found.machines
        ],
        "runs": [run_json(members, r, found.runs) for r in firsts(found.runs)],
    }


def same(a: Assignment, b: Assignment) -> bool:
    return (a.member_index, a.machine, a.option.row, a.option.offer) == (
        b.member_index,
        b.machine,
        b.option.row,
        b.option.offer,
    )


def firsts(runs: Sequence[Assignment]) -> list[Assignment]:
    """One of each workload, machine and set-up."""
    found: list[Assignment] = []
    for r in runs:
        if not any(same(r, x) for x in found):
            found.append(r)
    return found


def run_json(members: Sequence[Member], r: Assignment, runs: Sequence[Assignment]) -> Json:
    """Who runs where and when; machines busy and requests/s by the hours in which they are the same."""
    w, v, own = members[r.member_index].workload, r.verified, [x for x in runs if same(x, r)]
    return {
        "workload": w.name,
        "kind": w.kind.name,
        "setup": describe(r.lane),
        "machine": r.machine.name,
        "accelerator": r.machine.accelerator,
        "provider": r.option.offer.provider,
        "region": r.option.offer.region,
        "replicas_per_machine": r.option.replicas,
        "paid": "while it runs" if r.machine.hourly else "around the clock",
        "hours": [
            {
                "when": when(x.hours),
                "hours_per_week": len(x.hours),
                "requests_per_s": number(x.requests_per_s),
                "replicas": number(replicas(x, whole=w.kind.has_arrivals), 4),
            }
            for x in sorted(own, key=lambda x: -x.instances)
        ],
        "ttft_ms_p95": number(v.ttft_p95_s * 1e3) if w.kind.has_arrivals else None,
        "tpot_ms_p95": number(v.tpot_p95_s * 1e3) if w.kind.has_arrivals else None,
    }


def replicas(r: Assignment, whole: bool) -> float:
    """That run in these hours: whole ones where requests arrive, else a mean."""
    count = r.instances * r.option.replicas
    return math.ceil(count - 1e-6) if whole else count


def when(hours: Sequence[int]) -> str:
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


def said(told: Mapping[str, Any]) -> str:
    """The answer in a few sentences."""
    missing = [a["name"] for a in told["alone"] if a["option"] is None]
    apart = told["alone_usd_per_month"]
    alone = (
        f"Each alone costs ${apart:,.0f} a month" if apart is not None else f"Alone {', '.join(missing)} has no answer"
    )
    if told["shared"] is None:
        return f"{alone}; a shared fleet does not help: {told['reason']}."
    s = told["shared"]
    machines = " and ".join(
        f"{m['count']:.3g} x {m['machine']} ({m['accelerator']}, {m['paid']})" for m in s["machines"]
    )
    less = f", {told['saving_fraction']:.0%} less" if told["saving_fraction"] else ""
    return f"{alone}; one shared fleet costs ${s['usd_per_month']:,.0f}{less}: {machines}."


def limits_of(spec: Json) -> Limits:
    c = spec["constraints"]
    return Limits(
        inventory_chips=dict(spec["inventory"]),
        max_chips=c["max_accelerators"],
        max_usd_per_hour=c["max_usd_per_month"] / HOURS_PER_MONTH if c["max_usd_per_month"] else None,
    )


def result(spec: Json, taken: Json, answers: Sequence[Json], members: Sequence[Member]) -> Json:
    """All of it, once each workload has its own answer."""
    return answer(spec, taken, answers, members, plan_shared_fleet(members, limits_of(spec)))


def feasible(result: Json) -> bool:
    """Whether every workload has somewhere to run."""
    told = result.get("portfolio") or {}
    return told.get("shared") is not None or told.get("alone_usd_per_month") is not None
