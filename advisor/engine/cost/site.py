"""The site of purchased servers: rack power and cooling limits, number of racks, servers already owned."""

import math
from dataclasses import dataclass

from advisor.engine.terms import OWNED, Change, Constraints, Offer, Rejection, limit_change, unlike

OWN = "own"


def site_rejection(o: Offer, c: Constraints) -> Rejection | None:
    """Why a server cannot be installed at the site; None if it can.

    Rented instances are elsewhere, owned servers are already installed, and unpublished figures never reject an offer.
    """
    if o.acquisition != OWN or o.term == OWNED:
        return None
    kw, limit_kw = (x / 1e3 if x else None for x in (o.full_watts, c.max_rack_watts))
    if kw and limit_kw and kw > limit_kw:
        drawn, most = unlike(lambda more: (f"{kw:.{1 + more}f} kW", f"{limit_kw:.{6 + more}g} kW"))
        change = limit_change("constraints.site.kw_per_rack", ">=", math.ceil(kw * 10) / 10)
        return Rejection(
            accelerator=o.accelerator,
            reason="too_much_power",
            detail=f"{o.instance} draws {drawn} at full load; the site has {most} per rack",
            limit=limit_kw,
            reached=kw,
            smallest_change=f"passes this gate with {change.said}",
            changes=(change,),
        )
    if c.cooling != "any" and o.cooling and c.cooling not in o.cooling.split(" or "):
        change = Change(field="constraints.site.cooling", value=o.cooling, said=f"site.cooling: {o.cooling}")
        return Rejection(
            accelerator=o.accelerator,
            reason="cooling",
            detail=f"{o.instance} needs {o.cooling} cooling; the site has {c.cooling} cooling only",
            smallest_change=f"passes this gate with {change.said}",
            changes=(change,),
        )
    return None


def closest_rejection(rejections: list[Rejection]) -> Rejection:
    """The rejection closest to its power limit; rejections for cooling come last."""
    return min(rejections, key=lambda r: (r.limit is None, r.reached or 0.0, r.detail))


@dataclass(frozen=True, kw_only=True, slots=True)
class Racks:
    """Racks that a deployment needs at the site."""

    host_watts: float  # of one server at full load
    rack_instances: int | None  # servers per rack; None: no rack power was stated
    racks: int | None


def racks_of(o: Offer, instances: int, c: Constraints) -> Racks | None:
    """Racks for this number of purchased servers; None for rented instances or unknown power."""
    if o.acquisition != OWN or not o.full_watts:
        return None
    per_rack = int(c.max_rack_watts // o.full_watts) if c.max_rack_watts else None
    racks = math.ceil(instances / per_rack) if per_rack else None
    return Racks(host_watts=o.full_watts, rack_instances=per_rack, racks=racks)


def owned_instances(o: Offer, instances: int) -> int:
    """How many of `instances` of an offer are already owned."""
    return min(o.held_instances, instances)
