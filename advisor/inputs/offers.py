"""Prices as an advice reads them: which rows were known on a day, what one organisation pays, and offers from them."""

import datetime
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from django.db.models import Q

from advisor.engine.cost import Assumptions, Licence, capital_usd, own_parts, rent_parts, total_usd_per_hour
from advisor.engine.spec import OWNED, Offer
from advisor.engine.spec import Accelerator as Chip
from catalog.derived import NO_CURRENT_PRICE, has_expired, known_on
from catalog.models import Discount, Organisation, Price, Region, SupportLicence, Unit

PER_CHIP = "(per GPU)"  # in an instance's name: the price of one chip out of a larger host
SUPERSEDED_DAYS = 45  # further behind the provider's newest rent of the same chips: an old price list, other names
# marketplaces and serverless have no comparable service level: only by name
COMPARABLE = ("vm", "bare_metal", "capacity_block")
CONTRACTED = ("on_demand", "reserved_1y", "reserved_3y")  # an organisation's own prices, whatever their kind
WITH_HOST = ("system", "server", "rack")  # a purchase that includes its host
SYSTEM = "system"  # a computer around one chip: no server beside it
CARD = "chip"  # a purchase without a host; only PCI Express cards go into any computer, modules need a baseboard
CARDS = ("gpu", "npu")  # kinds of chips that come on such cards
CARDS_PER_HOST = (1, 2, 4)
WHOLE = ("host", "rack")  # units whose power is that of everything in them
WAYS = {
    "marketplace": "on marketplaces",
    "serverless": "serverless",
    "spot": "as spot",
    "reserved_1y": "for a year",
    "reserved_3y": "for three years",
    "capacity_block": "in capacity blocks",
    "chip": "the chip alone, which goes into no computer by itself",
    "baseboard": "the board alone",
}
OWN_SITE = "own-site"
ON_DEMAND = ("on_demand",)
TERMS = (*ON_DEMAND, "spot", "reserved_1y", "reserved_3y", "capacity_block")  # of rents
Json = dict[str, Any]


# --- rows to a snapshot -----------------------------------------------------------------------------------------


def current(
    named: Sequence[str], organisation: Organisation | None, day: datetime.date, terms: Sequence[str] = ON_DEMAND
) -> list[Price]:
    """The newest row of each offer that was known on a day, in order; only of kinds with a comparable service, unless
    the provider is `named`. An organisation's own price of an offer stands before the public one until it expires.
    `terms` of public rents: on demand, and what else the planner takes.
    """
    return _newest(
        Q(term__in=terms, kind__in=COMPARABLE)
        | Q(term__in=terms, provider__in=named)
        | Q(term__in=CONTRACTED, organisation__isnull=False)
        | Q(term="purchase", kind__in=WITH_HOST)
        | Q(term="purchase", kind=CARD, accelerator__kind__in=CARDS, accelerator__form_factor__startswith="PCIe"),
        organisation,
        day,
    )


def _newest(wanted: Q, organisation: Organisation | None, day: datetime.date) -> list[Price]:
    rows = (
        known_on(Price.objects.all(), day)
        .filter(Q(organisation=None) | Q(organisation=organisation))
        .filter(wanted)
        .select_related("accelerator")
        .order_by("provider", "instance", "region", "accelerator", "term", "as_of", "organisation")
    )
    newest: dict[tuple[object, ...], Price] = {}
    for p in rows:
        key = (p.provider, p.instance, p.region, p.accelerator_id, p.term)
        held = newest.get(key)
        if held is None or _is_private(p, day) >= _is_private(held, day):
            newest[key] = p
    return _not_superseded([p for p in newest.values() if p.usd_per_hour or p.purchase_usd])


def _is_private(p: Price, day: datetime.date) -> bool:
    return p.organisation_id is not None and not has_expired(p.as_of, day)


def _not_superseded(rows: list[Price]) -> list[Price]:
    """Without rents that the provider's newer list replaces under another name.

    Newer is what the same provider asks for as many of the same chips in the same region; a rate for every region
    (`any`) or for every number of chips (per GPU) replaces the older ones of all. Purchases are of many sellers.
    """
    newest: dict[tuple[object, ...], datetime.date] = {}
    for p in rows:
        key = _list_of(p, 0 if PER_CHIP in p.instance else p.accelerators, p.region or "any")
        newest[key] = max(newest.get(key, p.as_of), p.as_of)

    def latest(p: Price) -> datetime.date:
        places = {p.region or "any", "any"}
        keys = [_list_of(p, count, place) for count in (p.accelerators, 0) for place in places]
        return max((newest[key] for key in keys if key in newest), default=p.as_of)

    return [p for p in rows if p.term == "purchase" or (latest(p) - p.as_of).days <= SUPERSEDED_DAYS]


def _list_of(p: Price, accelerators: int, region: str) -> tuple[object, ...]:
    return p.organisation_id, p.provider, p.accelerator_id, p.term, accelerators, region


def prices(
    named: Sequence[str], organisation: Organisation | None, day: datetime.date, terms: Sequence[str] = ON_DEMAND
) -> list[Json]:
    """Every offer as it is paid: an organisation's own price, or the public one less its discount."""
    discounts = discounts_of(organisation, day)
    return [_price(p, discount_for(p, discounts)) for p in current(named, organisation, day, terms)] + _sold_units(day)


def other_terms(organisation: Organisation | None, day: datetime.date, terms: Sequence[str]) -> list[Json]:
    """Public rents of the terms that are not ranked, to stand beside an option: spot, commitments, capacity blocks."""
    rest, discounts = [term for term in TERMS if term not in terms], discounts_of(organisation, day)
    found = _newest(Q(term__in=rest, kind__in=COMPARABLE, organisation=None), organisation, day)
    return [row for p in found if not is_stale(row := _price(p, discount_for(p, discounts)), day)]


def _price(p: Price, discount: Discount | None) -> Json:
    paid = 1.0 - discount.discount_fraction if discount else 1.0
    hour, bought = (float(usd) if usd is not None else None for usd in (p.usd_per_hour, p.purchase_usd))
    return {
        "provider": p.provider,
        "instance": p.instance,
        "region": p.region,
        "accelerator": p.accelerator.slug,
        "accelerators": p.accelerators,
        "term": p.term,
        "kind": p.kind,
        "usd_per_hour": hour * paid if hour is not None else None,
        "purchase_usd": bought * paid if bought is not None else None,
        **_range(p.purchase_usd_min, p.purchase_usd_max, paid),
        "as_of": p.as_of.isoformat(),
        "source": p.source,
        "notes": _terms_words(p, discount),
    }


def _range(low: Any, high: Any, paid: float) -> Json:
    """The range that the source of a purchase price prints, where it does."""
    return {"purchase_low_usd": float(low) * paid, "purchase_high_usd": float(high) * paid} if low and high else {}


def _sold_units(day: datetime.date) -> list[Json]:
    """Hosts and racks of the catalog that have a price of their own, stated by that day."""
    rows = Unit.objects.filter(kind__in=WHOLE, price_usd__isnull=False).select_related("accelerator").order_by("slug")
    return [
        {
            "provider": "purchase",
            "instance": u.name,
            "region": "",
            "accelerator": u.accelerator.slug,
            "accelerators": u.accelerators,
            "term": "purchase",
            "kind": "server" if u.kind == "host" else "rack",
            "usd_per_hour": None,
            "purchase_usd": u.price_usd,
            **_range(u.price_usd_min, u.price_usd_max, 1.0),
            "as_of": u.sources["price"]["as_of"],
            "source": u.sources["price"]["source"],
            "notes": "",
        }
        for u in rows
        if u.sources.get("price") and u.sources["price"]["as_of"] <= day.isoformat()
    ]


def _terms_words(p: Price, discount: Discount | None) -> str:
    """What is particular to the organisation in this price."""
    if p.organisation_id is not None:
        return "your own price"
    if discount is None:
        return ""
    listed = f"${p.usd_per_hour:,.2f} an hour" if p.usd_per_hour else f"${p.purchase_usd:,.0f}"
    return f"{discount.discount_fraction:.0%} below the list price of {listed} ({discount.source}, {discount.as_of})"


def discounts_of(organisation: Organisation | None, day: datetime.date) -> list[Discount]:
    return list(known_on(Discount.objects.filter(organisation=organisation), day).order_by("as_of", "pk"))


def discount_for(p: Price, discounts: Sequence[Discount]) -> Discount | None:
    """The narrowest of those that a public price falls under, then the newest."""
    fitting = [
        d
        for d in discounts
        if p.organisation_id is None
        and d.provider == p.provider
        and d.accelerator_id in (None, p.accelerator_id)
        and d.term in ("", p.term)
    ]
    return max(fitting, key=lambda d: (d.accelerator_id is not None, d.term != "", d.as_of, d.pk), default=None)


def licences(organisation: Organisation | None, day: datetime.date) -> list[Json]:
    """The newest price of each licence of the organisation."""
    rows = known_on(SupportLicence.objects.filter(organisation=organisation), day).order_by("as_of", "pk")
    newest = {(row.name, row.vendor, row.framework): row for row in rows}
    return [
        {
            "name": row.name,
            "vendor": row.vendor,
            "framework": row.framework,
            "usd_per_accelerator_per_year": float(row.usd_per_accelerator_per_year),
            "as_of": row.as_of.isoformat(),
            "source": row.source,
        }
        for row in newest.values()
    ]


def regions() -> Json:
    """Electricity, carbon, PUE and colocation of every place; a figure that is not known is absent."""
    names = {
        "usd_per_kwh": "electricity_usd_per_kwh",
        "kgco2e_per_kwh": "grid_kgco2e_per_kwh",
        "pue": "pue",
        "colocation_usd_per_kw_month": "colocation_usd_per_kw_month",
    }
    return {
        r.slug: {key: getattr(r, name) for key, name in names.items() if getattr(r, name) is not None}
        for r in Region.objects.order_by("slug")
    }


def units() -> list[Json]:
    """Hosts and racks whose power is known: what draws besides the chips."""
    rows = Unit.objects.filter(kind__in=WHOLE, watts__isnull=False).select_related("accelerator")
    return [
        {
            "name": u.name,
            "accelerator": u.accelerator.slug,
            "accelerators": u.accelerators,
            "watts": u.watts,
            "cooling": u.cooling,
        }
        for u in rows.order_by("accelerator__slug", "accelerators", "slug")
    ]


def is_stale(price: Json, day: datetime.date) -> bool:
    return has_expired(datetime.date.fromisoformat(price["as_of"]), day)


def stale(rows: list[Json], day: datetime.date) -> Json:
    """Accelerators whose every offer is too old, with the date of the newest."""
    still = {p["accelerator"] for p in rows if not is_stale(p, day)}
    newest: dict[str, str] = {}
    for p in rows:
        newest[p["accelerator"]] = max(newest.get(p["accelerator"], ""), p["as_of"])
    return {
        slug: f"{NO_CURRENT_PRICE}: the newest offer is of {as_of}, more than twelve months ago"
        for slug, as_of in newest.items()
        if slug not in still
    }


def otherwise(day: datetime.date) -> Json:
    """Accelerators that are for sale, but not as an advice counts it by itself: how, and by whom."""
    rows = known_on(Price.objects.filter(organisation=None), day).select_related("accelerator")
    found: dict[str, dict[str, set[str]]] = {}
    for p in rows.order_by("provider", "pk"):
        if not has_expired(p.as_of, day):
            way = p.kind if p.term in ("on_demand", "purchase") else p.term
            found.setdefault(p.accelerator.slug, {}).setdefault(WAYS.get(way, way), set()).add(p.provider)
    return {slug: _only_as(ways) for slug, ways in found.items()}


def _only_as(ways: Mapping[str, set[str]]) -> str:
    """A current price of another kind, in words; the first providers of each."""
    parts = [f"{way} ({', '.join(sorted(sellers)[:3])})" for way, sellers in ways.items()]
    named = any(way in ways for way in (WAYS["marketplace"], WAYS["serverless"]))
    tail = "; such a provider counts when constraints.providers.allow names it" if named else ""
    return f"{NO_CURRENT_PRICE} of an own instance or host, only {' and '.join(parts)}{tail}"


# --- a snapshot to offers ---------------------------------------------------------------------------------------


def offers_of(taken: Json, a: Assumptions, site: Assumptions, chips: Mapping[str, Chip]) -> tuple[Offer, ...]:
    """Current offers in USD per hour of a whole instance; a bought host by its annuity, space, power and upkeep.

    `site` is what holds at the planner's own site, `a` where a provider's region says nothing.
    """
    kept: list[Offer] = []
    for p in taken["prices"]:
        chip, known = chips[p["accelerator"]], [u for u in taken["units"] if u["accelerator"] == p["accelerator"]]
        if p["term"] == "purchase":
            kept += _owned(p, site, chip, known, taken["site"])
        else:
            place = taken["regions"].get(f"{p['provider']}-{p['region']}", {})
            kept.append(_rented(p, a, chip, place, host_watts(chip, p["accelerators"], known, a)))
    return tuple(kept)


def host_watts(chip: Chip, accelerators: int, known: Sequence[Json], a: Assumptions) -> float:
    """What one chip's share of its host draws, W: of the unit nearest in size, else the default of its class."""
    if not known or math.isnan(chip.watts):
        return usual_host_watts(chip, a)
    unit = min(known, key=lambda u: (abs(u["accelerators"] - accelerators), u["watts"]))
    return max(float(unit["watts"]) / unit["accelerators"] - chip.watts, 0.0)


def usual_host_watts(chip: Chip, a: Assumptions) -> float:
    """The share of a host of which the catalog has no power, W: of a processor, of a card, of a module in a server."""
    if chip.kind == "cpu":
        return a.socket_host_watts
    return a.card_host_watts if any(link.topology == "host" for link in chip.links) else a.host_watts_per_accelerator


def by_the_chip(p: Json) -> bool:
    """Whether the price is of one chip out of a larger host or slice, as its name or its source says."""
    return PER_CHIP in p["instance"] or "(per chip)" in p["instance"] or "per chip-hour" in p["source"]


def _rented(p: Json, a: Assumptions, chip: Chip, place: Json, watts: float) -> Offer:
    """An instance by the hour, with the grid of its region."""
    parts = rent_parts(p["usd_per_hour"], p["term"], a)
    return Offer(
        provider=p["provider"],
        instance=p["instance"],
        region=p["region"],
        accelerator=chip.slug,
        accelerators=p["accelerators"],
        acquisition="rent",
        term=p["term"],
        usd_per_hour=total_usd_per_hour(parts),
        parts=parts,
        as_of=p["as_of"],
        source=p["source"],
        kgco2e_per_kwh=place.get("kgco2e_per_kwh") or a.kgco2e_per_kwh,
        usd_per_kwh=place.get("usd_per_kwh") or a.usd_per_kwh,
        pue=place.get("pue") or a.pue,
        host_watts_per_accelerator=watts,
        joined_accelerators=chip.chips_per_host if by_the_chip(p) else 0,
        notes=p.get("notes", ""),
    )


def _owned(p: Json, a: Assumptions, chip: Chip, known: Sequence[Json], site: str) -> list[Offer]:
    """A bought host; cards that are sold alone in small hosts of several sizes, whose own price is an assumption."""
    if p["kind"] != CARD:
        n = p["accelerators"]
        share = 0.0 if p["kind"] == SYSTEM and not known else host_watts(chip, n, known, a)
        return _owned_host(p, a, chip, site, (p["instance"], n, p["purchase_usd"], share, None), cooling(known, n))
    card = p["purchase_usd"] / p["accelerators"]
    sizes = [n for n in CARDS_PER_HOST if n <= chip.chips_per_host]
    hosts = [
        (
            f"{n} x {chip.name} in an own host (host estimated)",
            n,
            card * n + a.small_host_usd,
            host_watts(chip, n, [u for u in known if u["accelerators"] == n], a) if _has(known, n) else small(a, n),
            card * n,
        )
        for n in sizes
    ]
    return [offer for host in hosts for offer in _owned_host(p, a, chip, site, host, cooling(known, host[1]))]


def _has(known: Sequence[Json], accelerators: int) -> bool:
    return any(u["accelerators"] == accelerators for u in known)


def cooling(known: Sequence[Json], accelerators: int) -> str:
    """How hosts of so many chips are cooled, as published of the catalog's units; empty: not known."""
    words = {word for u in known if u["accelerators"] == accelerators for word in u.get("cooling", "").split(" or ")}
    return " or ".join(sorted(words - {""}))


def small(a: Assumptions, accelerators: int) -> float:
    return a.small_host_watts / accelerators


def _owned_host(
    p: Json, a: Assumptions, chip: Chip, site: str, host: tuple[str, int, float, float, float | None], cooled: str
) -> list[Offer]:
    """`host` is its name, chips, USD, the share of its power that each chip draws and, where they are sold alone, the
    chips' USD within; empty where no power is published."""
    instance, accelerators, usd, share, chips_usd = host
    watts = (chip.watts + share) * accelerators
    if math.isnan(watts):
        return []
    parts = own_parts(usd, accelerators, watts, a, chips_usd)
    low, high = (_scaled(p.get(key), p["purchase_usd"], usd) for key in ("purchase_low_usd", "purchase_high_usd"))
    offer = Offer(
        provider="own",
        instance=instance,
        region=site or OWN_SITE,
        accelerator=chip.slug,
        accelerators=accelerators,
        acquisition="own",
        term=p["term"],
        usd_per_hour=total_usd_per_hour(parts),
        parts=parts,
        capital_usd=capital_usd(usd, a),
        purchase_usd=usd,
        purchase_low_usd=low,
        purchase_high_usd=high,
        as_of=p["as_of"],
        source=p["source"],
        kgco2e_per_kwh=a.kgco2e_per_kwh,
        usd_per_kwh=a.usd_per_kwh,
        pue=a.pue,
        host_watts_per_accelerator=share,
        full_watts=watts,
        cooling=cooled,
        notes=p.get("notes", ""),
    )
    return [offer]


def _scaled(bound: float | None, asked: float, usd: float) -> float:
    """A printed bound of the price as one of what is bought; 0: none is printed."""
    return usd * bound / asked if bound and asked else 0.0


def with_owned(
    found: Sequence[Offer], owned: Mapping[str, int], taken: Json, a: Assumptions, chips: Mapping[str, Chip]
) -> tuple[Offer, ...]:
    """The offers, those of hosts that the planner has first: at what they take to run, alone and with more bought.

    Chips stand in hosts of as many as the catalog says of theirs; what is left over is a host of its own only when
    there is no whole one.
    """
    kept = list(found)
    for slug, count in owned.items():
        chip, size = chips[slug], min(chips[slug].chips_per_host, count)
        known = [u for u in taken["units"] if u["accelerator"] == slug]
        share = host_watts(chip, size, known, a)
        watts, there = (chip.watts + share) * size, count // size
        if math.isnan(watts):
            continue
        each = new_usd_per_accelerator(found, slug) or 0.0
        parts = tuple(p for p in own_parts(each * size, size, watts, a) if p.group == "running")
        same = [o.accelerator == slug and o.term == "purchase" and o.accelerators == size for o in kept]
        kept = [replace(o, held_instances=there, held_parts=parts) if s else o for o, s in zip(kept, same, strict=True)]
        mine = Offer(
            provider="owned",
            instance=f"owned host of {size} x {chip.name}",
            region=taken["site"] or OWN_SITE,
            accelerator=slug,
            accelerators=size,
            acquisition="own",
            term=OWNED,
            usd_per_hour=total_usd_per_hour(parts),
            parts=parts,
            as_of=taken["asked_on"],
            source="there already: space, power, upkeep and staff by the assumptions of this answer",
            kgco2e_per_kwh=a.kgco2e_per_kwh,
            usd_per_kwh=a.usd_per_kwh,
            pue=a.pue,
            host_watts_per_accelerator=share,
            full_watts=watts,
            cooling=cooling(known, size),
            held_instances=there,
        )
        kept.insert(0, mine)
    return tuple(kept)


def new_usd_per_accelerator(found: Sequence[Offer], slug: str) -> float | None:
    """The least that a new host costs for each of its chips today; None: nobody states a price."""
    asked = [o.purchase_usd / o.accelerators for o in found if o.accelerator == slug and o.purchase_usd]
    return min(asked, default=None)


def licences_of(rows: Sequence[Json], software_usd_per_accelerator_year: float) -> tuple[Licence, ...]:
    """Licences as the engine adds them; one more where the planner's own figures name software."""
    found = [
        Licence(
            name=row["name"],
            vendor=row["vendor"],
            framework=row["framework"],
            usd_per_accelerator_year=row["usd_per_accelerator_per_year"],
            source=f"{row['source']}, {row['as_of']}",
        )
        for row in rows
    ]
    if software_usd_per_accelerator_year:
        usd = software_usd_per_accelerator_year
        found.append(Licence(name="software", usd_per_accelerator_year=usd, source="assumption of the workload"))
    return tuple(found)
