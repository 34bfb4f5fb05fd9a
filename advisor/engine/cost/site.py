"""Where a planner's own hosts stand: what a rack can feed and cool, how many racks, and what is there already."""

import math
from dataclasses import dataclass

from advisor.engine.spec import OWNED, Constraints, Offer, Part, Rejection

OWN = "own"


def refusal(o: Offer, c: Constraints) -> Rejection | None:
    """Why a host cannot be put up at the site: rented ones stand elsewhere, owned ones stand there already, and what is
    not published is not held against one."""
    if o.acquisition != OWN or o.term == OWNED:
        return None
    kw, most_kw = (x / 1e3 if x else None for x in (o.full_watts, c.max_rack_watts))
    if kw and most_kw and kw > most_kw:
        return Rejection(
            accelerator=o.accelerator,
            reason="too_much_power",
            detail=f"{o.instance} draws {kw:.1f} kW at full load, a rack of the site has {most_kw:g} kW",
            limit=most_kw,
            reached=kw,
            smallest_change=f"passes this gate with site.kw_per_rack >= {math.ceil(kw * 10) / 10:g}",
        )
    if c.cooling != "any" and o.cooling and c.cooling not in o.cooling.split(" or "):
        return Rejection(
            accelerator=o.accelerator,
            reason="cooling",
            detail=f"{o.instance} is cooled by {o.cooling}, the site has {c.cooling} alone",
            smallest_change=f"passes this gate with site.cooling: {o.cooling}",
        )
    return None


def near_refusal(found: list[Rejection]) -> Rejection:
    """Of a chip's refused hosts the one that is least beyond its limit; cooling comes last."""
    return min(found, key=lambda r: (r.limit is None, r.reached or 0.0, r.detail))


@dataclass(frozen=True, kw_only=True, slots=True)
class Racks:
    """Hosts of a deployment in racks of the site."""

    host_watts: float  # of one at full load
    rack_instances: int | None  # None: the power of a rack was not stated
    racks: int | None


def racks_of(o: Offer, instances: int, c: Constraints) -> Racks | None:
    """Racks that the site needs for so many bought hosts; None: rented, or of unknown power."""
    if o.acquisition != OWN or not o.full_watts:
        return None
    per_rack = int(c.max_rack_watts // o.full_watts) if c.max_rack_watts else None
    racks = math.ceil(instances / per_rack) if per_rack else None
    return Racks(host_watts=o.full_watts, rack_instances=per_rack, racks=racks)


def held(o: Offer, instances: int) -> int:
    """Of so many hosts of an offer, those that are there already."""
    return min(o.held_instances, instances)


def bought(o: Offer, instances: int) -> int:
    """Of so many hosts of an offer, those that have to be bought."""
    return 0 if o.term == OWNED else instances - held(o, instances)


def merged(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """Parts of the same name as one, in the order in which they first come."""
    sums: dict[tuple[str, str], float] = {}
    for p in parts:
        sums[(p.name, p.group)] = sums.get((p.name, p.group), 0.0) + p.usd_per_hour
    return tuple(Part(name=name, group=group, usd_per_hour=usd) for (name, group), usd in sums.items())
