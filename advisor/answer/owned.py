"""Machines that are already owned: what they do on their own, what they cost, what is missing, and keep or sell."""

from typing import Any

from advisor.answer.sentences import counted
from advisor.engine.cost import HOURS_PER_MONTH, present_value
from advisor.engine.plans import OWNED as KEPT
from advisor.engine.search import Catalog, OwnedMachines, Scored, SearchResult, describe, same
from advisor.inputs import new_usd_per_accelerator, number, rounded
from advisor.result import Owned, OwnedPlan

Json = dict[str, Any]
UNKNOWN_POWER = "its power is not published, so what these machines cost to run is not known"


def owned(spec: Json, snapshot: Json, catalog: Catalog, outcome: SearchResult) -> list[Owned]:
    """For each accelerator that is owned: what it does alone, and keep it, sell it or add to it over the horizon."""
    a = catalog.site_assumptions or catalog.assumptions
    months, rate = int(spec["tco"]["horizon_months"]), float(spec["tco"]["discount_rate"])
    ranked = list(enumerate(outcome.shown, 1))
    rows = snapshot["assumptions"]
    row = rows.get("residual-value-year-1") or rows.get("residual-value-fraction") or {"source": ""}
    machines = {m.offer.accelerator: m for m in outcome.owned}
    plans = []
    for slug, count in spec["owned"].items():
        with_it = next(((k, s) for k, s in ranked if _uses(s, slug)), None)
        without = next(((k, s) for k, s in ranked if not _uses(s, slug)), None)
        new = new_usd_per_accelerator(catalog.offers, slug)
        resale = new * a.resale()[min(12, len(a.resale()) - 1)] * count if new else None
        keep, sell = (_plan(way, months, rate) for way in (with_it, without))
        if sell and resale is not None:
            sell = sell.changed(present_usd=number((sell.present_usd or 0.0) - resale))
        alone = machines.get(slug)
        in_hosts = alone.offer.accelerators * alone.offer.held_instances if alone else 0
        added = _added_instances(with_it[1]) if with_it else 0
        why = next((r.detail for r in outcome.rejections if r.accelerator == slug), "")
        idle = f"; {count - in_hosts} of {count} do not fill a whole server and are not used"
        plans.append(
            Owned(
                accelerator=slug,
                count=count,
                in_whole_hosts=in_hosts,
                resale_usd=number(resale) if resale is not None else None,
                resale_source=f"market value after a year, of the lowest price of a new server; {row['source']}",
                keep=keep,
                adds_hosts=added,
                sell=sell,
                said=_keep_or_sell(keep, sell, added, resale, why) + (idle if in_hosts < count else ""),
                **(_on_their_own(alone, outcome, why) if alone else {"missing": UNKNOWN_POWER}),
            )
        )
    return plans


def _on_their_own(m: OwnedMachines, outcome: SearchResult, why: str) -> Json:
    """The fields of `Owned` about what these machines do without any others."""
    used = m.alone or m.part
    hours = used.usd_per_hour if used else m.offer.usd_per_hour * m.offer.held_instances
    carried = m.carried_fraction
    return {
        "suffices": m.alone is not None,
        "rank": next((k for k, s in enumerate(outcome.shown, 1) if same(s, m.alone)), None) if m.alone else None,
        "label": f"{used.chips:,} x {used.lane.choice.accelerator.name}, {describe(used.lane)}" if used else "",
        "hosts": m.offer.held_instances,
        "hosts_used": used.instances if used else 0,
        "usd_per_month": rounded(hours * HOURS_PER_MONTH),
        "carried_fraction": None if carried is None else rounded(carried, 3),
        "more_hosts": m.more_instances,
        "more_accelerators": m.more_instances * m.offer.accelerators,
        "missing": missing(m, why),
    }


def missing(m: OwnedMachines, why: str) -> str:
    """What these machines lack to serve the workload on their own; empty: nothing."""
    if m.alone is not None:
        return ""
    each = counted(m.offer.accelerators, "accelerator")
    if m.more_instances:
        more = m.more_instances
        return f"{more} more server{'s' if more > 1 else ''} with {each} each would serve the whole load"
    if m.enough is not None:
        return "the machines would serve the whole load, but not within your limits on power, chips or cost"
    reason = f": {why}" if why else ""
    return f"no number of these servers serves the whole load within your limits{reason}"


def _uses(s: Scored, slug: str) -> bool:
    """Whether the deployment keeps owned machines of this chip in service, alone or beside others."""
    return s.lane.choice.accelerator.slug == slug and kept_instances(s) > 0


def kept_instances(s: Scored) -> int:
    """Owned machines that the plan keeps in service in its first month."""
    return int(s.planned.plan.in_service((KEPT,))[0]) if s.planned else 0


def _added_instances(s: Scored) -> int:
    """Machines that the plan buys or rents beside the owned ones in its first month."""
    return max(s.instances - kept_instances(s), 0)


def _plan(ranked: tuple[int, Scored] | None, months: int, discount_fraction: float) -> OwnedPlan | None:
    if ranked is None:
        return None
    rank, s = ranked
    monthly = s.usd_per_hour * HOURS_PER_MONTH
    return OwnedPlan(
        rank=rank,
        accelerator=s.lane.choice.accelerator.slug,
        hosts=s.instances,
        usd_per_month=number(monthly),
        present_usd=number(float(present_value(monthly, months, discount_fraction))),
    )


def _keep_or_sell(keep: OwnedPlan | None, sell: OwnedPlan | None, added: int, resale: float | None, why: str) -> str:
    """Which of the two costs less, as a sentence."""
    worth = f"sold for about ${resale:,.0f}" if resale is not None else "sold (no resale price is known)"
    if keep is None:
        return f"not among the answers ({why or 'other options rank before them'}); {worth}"
    more = f" with {added} more server{'s' if added != 1 else ''} bought or rented" if added else ""
    kept = f"kept{more}: ${keep.usd_per_month or 0:,.0f} a month"
    if sell is None:
        return f"{kept}; nothing else is among the answers"
    other = f"{worth}, with {sell.accelerator} instead: ${sell.usd_per_month or 0:,.0f} a month"
    better = "keeping" if (keep.present_usd or 0.0) <= (sell.present_usd or 0.0) else "selling"
    return f"{kept}; {other}; {better} costs less over the horizon"
