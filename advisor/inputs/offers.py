"""Prices for an answer: rows known on a day, an organization's own prices and discounts, and the resulting offers."""

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

PER_CHIP = "(per GPU)"  # marks an instance whose price is for one chip of a larger host
SUPERSEDED_DAYS = 45  # older than the provider's newest price for the same chips by more than this: superseded
# marketplaces and serverless have lower service levels: used only if the workload names the provider
COMPARABLE = ("vm", "bare_metal", "capacity_block")
CONTRACTED = ("on_demand", "reserved_1y", "reserved_3y")  # terms of an organization's own prices, of any kind
WITH_HOST = ("system", "server", "rack")  # purchases that include the host
SYSTEM = "system"  # a complete computer with one chip, no separate server
CARD = "chip"  # a purchase without a host; only PCIe cards fit any server, modules need a baseboard
CARD_KINDS = ("gpu", "npu")  # kinds of accelerators sold as PCIe cards
CARDS_PER_HOST = (1, 2, 4)
WHOLE = ("host", "rack")  # units whose `watts` cover everything in them
UNRANKED_SALES = {  # how something is sold that is not ranked by default
    "marketplace": "on marketplaces",
    "serverless": "serverless",
    "spot": "as spot instances",
    "reserved_1y": "with a 1-year commitment",
    "reserved_3y": "with a 3-year commitment",
    "capacity_block": "in capacity blocks",
    "chip": "the chip alone, without a server",
    "baseboard": "the baseboard alone",
}
OWN_SITE = "own-site"
ON_DEMAND = ("on_demand",)
TERMS = (*ON_DEMAND, "spot", "reserved_1y", "reserved_3y", "capacity_block")  # of rental prices
Json = dict[str, Any]


# --- rows to a snapshot -----------------------------------------------------------------------------------------


def current(
    named_providers: Sequence[str],
    organisation: Organisation | None,
    day: datetime.date,
    terms: Sequence[str] = ON_DEMAND,
) -> list[Price]:
    """The newest price of each offer known on `day`.

    Only kinds with comparable service levels, except from `named_providers`. An organization's own price replaces the
    public one until it expires. `terms`: the rental terms to include of public prices.
    """
    return _newest(
        Q(term__in=terms, kind__in=COMPARABLE)
        | Q(term__in=terms, provider__in=named_providers)
        | Q(term__in=CONTRACTED, organisation__isnull=False)
        | Q(term="purchase", kind__in=WITH_HOST)
        | Q(term="purchase", kind=CARD, accelerator__kind__in=CARD_KINDS, accelerator__form_factor__startswith="PCIe"),
        organisation,
        day,
    )


def _newest(condition: Q, organisation: Organisation | None, day: datetime.date) -> list[Price]:
    rows = (
        known_on(Price.objects.all(), day)
        .filter(Q(organisation=None) | Q(organisation=organisation))
        .filter(condition)
        .select_related("accelerator")
        .order_by("provider", "instance", "region", "accelerator", "term", "as_of", "organisation")
    )
    newest: dict[tuple[object, ...], Price] = {}
    for p in rows:
        key = (p.provider, p.instance, p.region, p.accelerator_id, p.term)
        other = newest.get(key)
        if other is None or _is_private(p, day) >= _is_private(other, day):
            newest[key] = p
    return _not_superseded([p for p in newest.values() if p.usd_per_hour or p.purchase_usd])


def _is_private(p: Price, day: datetime.date) -> bool:
    return p.organisation_id is not None and not has_expired(p.as_of, day)


def _not_superseded(rows: list[Price]) -> list[Price]:
    """The rows without rental prices that a newer price list of the provider replaces under another instance name.

    A newer price replaces older ones of the same provider, chip, count and region. A price for any region or per GPU
    replaces those of all regions or counts. Purchase prices are kept: they come from many sellers.
    """
    newest: dict[tuple[object, ...], datetime.date] = {}
    for p in rows:
        key = _price_list_key(p, 0 if PER_CHIP in p.instance else p.accelerators, p.region or "any")
        newest[key] = max(newest.get(key, p.as_of), p.as_of)

    def latest(p: Price) -> datetime.date:
        places = {p.region or "any", "any"}
        keys = [_price_list_key(p, count, place) for count in (p.accelerators, 0) for place in places]
        return max((newest[key] for key in keys if key in newest), default=p.as_of)

    return [p for p in rows if p.term == "purchase" or (latest(p) - p.as_of).days <= SUPERSEDED_DAYS]


def _price_list_key(p: Price, accelerators: int, region: str) -> tuple[object, ...]:
    return p.organisation_id, p.provider, p.accelerator_id, p.term, accelerators, region


def prices(
    named_providers: Sequence[str],
    organisation: Organisation | None,
    day: datetime.date,
    terms: Sequence[str] = ON_DEMAND,
) -> list[Json]:
    """Each offer at the price the organization pays: its own price, or the public price less its discount."""
    discounts = discounts_of(organisation, day)
    return [
        _price(p, discount_for(p, discounts)) for p in current(named_providers, organisation, day, terms)
    ] + _sold_units(day)


def other_terms(organisation: Organisation | None, day: datetime.date, terms: Sequence[str]) -> list[Json]:
    """Public rental prices of the terms not in `terms`, shown beside an option for comparison."""
    others, discounts = [term for term in TERMS if term not in terms], discounts_of(organisation, day)
    rows = _newest(Q(term__in=others, kind__in=COMPARABLE, organisation=None), organisation, day)
    return [row for p in rows if not is_stale(row := _price(p, discount_for(p, discounts)), day)]


def _price(p: Price, discount: Discount | None) -> Json:
    paid_fraction = 1.0 - discount.discount_fraction if discount else 1.0
    hourly_usd, purchase_usd = (float(usd) if usd is not None else None for usd in (p.usd_per_hour, p.purchase_usd))
    return {
        "provider": p.provider,
        "instance": p.instance,
        "region": p.region,
        "accelerator": p.accelerator.slug,
        "accelerators": p.accelerators,
        "term": p.term,
        "kind": p.kind,
        "usd_per_hour": hourly_usd * paid_fraction if hourly_usd is not None else None,
        "purchase_usd": purchase_usd * paid_fraction if purchase_usd is not None else None,
        **_range(p.purchase_usd_min, p.purchase_usd_max, paid_fraction),
        "as_of": p.as_of.isoformat(),
        "source": p.source,
        "notes": _price_note(p, discount),
    }


def _range(low: Any, high: Any, paid_fraction: float) -> Json:
    """The range of a purchase price; empty if its source gives none."""
    if not low or not high:
        return {}
    return {"purchase_low_usd": float(low) * paid_fraction, "purchase_high_usd": float(high) * paid_fraction}


def _sold_units(day: datetime.date) -> list[Json]:
    """Hosts and racks in the catalog that have a price dated `day` or earlier."""
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


def _price_note(p: Price, discount: Discount | None) -> str:
    """How the organization's price differs from the public one; empty if it does not."""
    if p.organisation_id is not None:
        return "your own price"
    if discount is None:
        return ""
    list_price = f"${p.usd_per_hour:,.2f} an hour" if p.usd_per_hour else f"${p.purchase_usd:,.0f}"
    return (
        f"{discount.discount_fraction:.0%} below the list price of {list_price} ({discount.source}, {discount.as_of})"
    )


def discounts_of(organisation: Organisation | None, day: datetime.date) -> list[Discount]:
    return list(known_on(Discount.objects.filter(organisation=organisation), day).order_by("as_of", "pk"))


def discount_for(p: Price, discounts: Sequence[Discount]) -> Discount | None:
    """The most specific discount that applies to a public price, then the newest; None if none applies."""
    applicable = [
        d
        for d in discounts
        if p.organisation_id is None
        and d.provider == p.provider
        and d.accelerator_id in (None, p.accelerator_id)
        and d.term in ("", p.term)
    ]
    return max(applicable, key=lambda d: (d.accelerator_id is not None, d.term != "", d.as_of, d.pk), default=None)


def licences(organisation: Organisation | None, day: datetime.date) -> list[Json]:
    """The newest price of each of the organization's licenses."""
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
    """Electricity price, carbon intensity, PUE and colocation price by region; unknown figures are left out."""
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
    """Hosts and racks with known power, which gives the power besides the chips."""
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
    """For each accelerator whose prices have all expired, a sentence with the date of the newest."""
    current_slugs = {p["accelerator"] for p in rows if not is_stale(p, day)}
    newest: dict[str, str] = {}
    for p in rows:
        newest[p["accelerator"]] = max(newest.get(p["accelerator"], ""), p["as_of"])
    return {
        slug: f"{NO_CURRENT_PRICE}: the newest one is from {as_of}, more than 12 months ago"
        for slug, as_of in newest.items()
        if slug not in current_slugs
    }


def sold_only_otherwise(day: datetime.date) -> Json:
    """For each accelerator with a current price, a sentence on the ways it is sold that are not ranked by default."""
    rows = known_on(Price.objects.filter(organisation=None), day).select_related("accelerator")
    sellers: dict[str, dict[str, set[str]]] = {}
    for p in rows.order_by("provider", "pk"):
        if not has_expired(p.as_of, day):
            way = p.kind if p.term in ("on_demand", "purchase") else p.term
            sellers.setdefault(p.accelerator.slug, {}).setdefault(UNRANKED_SALES.get(way, way), set()).add(p.provider)
    return {slug: _only_as(ways) for slug, ways in sellers.items()}


def _only_as(ways: Mapping[str, set[str]]) -> str:
    """The sentence for one accelerator, with up to three sellers for each way."""
    parts = [f"{way} ({', '.join(sorted(sellers)[:3])})" for way, sellers in ways.items()]
    by_name = any(way in ways for way in (UNRANKED_SALES["marketplace"], UNRANKED_SALES["serverless"]))
    tail = "; to include such a provider, add it to constraints.providers.allow" if by_name else ""
    return f"{NO_CURRENT_PRICE} for an instance or a server, only {' and '.join(parts)}{tail}"


# --- a snapshot to offers ---------------------------------------------------------------------------------------


def offers_of(snapshot: Json, a: Assumptions, site: Assumptions, chips: Mapping[str, Chip]) -> tuple[Offer, ...]:
    """Offers in USD per hour of a whole instance. A purchase costs its annuity, space, power and maintenance.

    `site` are the assumptions for the planner's own site. `a` fills in what a provider's region does not state.
    """
    kept: list[Offer] = []
    for p in snapshot["prices"]:
        chip, known = chips[p["accelerator"]], [u for u in snapshot["units"] if u["accelerator"] == p["accelerator"]]
        if p["term"] == "purchase":
            kept += _owned(p, site, chip, known, snapshot["site"])
        else:
            place = snapshot["regions"].get(f"{p['provider']}-{p['region']}", {})
            kept.append(_rented(p, a, chip, place, host_watts(chip, p["accelerators"], known, a)))
    return tuple(kept)


def host_watts(chip: Chip, accelerators: int, known: Sequence[Json], a: Assumptions) -> float:
    """Host power per chip, W, from the unit nearest in size; without one, the default for this class of chip."""
    if not known or math.isnan(chip.watts):
        return usual_host_watts(chip, a)
    unit = min(known, key=lambda u: (abs(u["accelerators"] - accelerators), u["watts"]))
    return max(float(unit["watts"]) / unit["accelerators"] - chip.watts, 0.0)


def usual_host_watts(chip: Chip, a: Assumptions) -> float:
    """The default host power per chip, W, for a CPU, a PCIe card or a module in a server."""
    if chip.kind == "cpu":
        return a.socket_host_watts
    return a.card_host_watts if any(link.topology == "host" for link in chip.links) else a.host_watts_per_accelerator


def is_per_chip(p: Json) -> bool:
    """Whether the price is for one chip of a larger host or slice, according to its name or source."""
    return PER_CHIP in p["instance"] or "(per chip)" in p["instance"] or "per chip-hour" in p["source"]


def _rented(p: Json, a: Assumptions, chip: Chip, place: Json, watts: float) -> Offer:
    """A rented instance, with electricity and carbon figures of its region."""
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
        joined_accelerators=chip.chips_per_host if is_per_chip(p) else 0,
        notes=p.get("notes", ""),
    )


def _owned(p: Json, a: Assumptions, chip: Chip, known: Sequence[Json], site: str) -> list[Offer]:
    """Offers from one purchase price. A card sold alone gets a server of each size, at an assumed server price."""
    if p["kind"] != CARD:
        n = p["accelerators"]
        share = 0.0 if p["kind"] == SYSTEM and not known else host_watts(chip, n, known, a)
        return _owned_host(p, a, chip, site, (p["instance"], n, p["purchase_usd"], share, None), cooling_of(known, n))
    card = p["purchase_usd"] / p["accelerators"]
    sizes = [n for n in CARDS_PER_HOST if n <= chip.chips_per_host]
    hosts = [
        (
            f"server with {n} x {chip.name} (server price estimated)",
            n,
            card * n + a.small_host_usd,
            host_watts(chip, n, [u for u in known if u["accelerators"] == n], a)
            if _has(known, n)
            else a.small_host_watts / n,
            card * n,
        )
        for n in sizes
    ]
    return [offer for host in hosts for offer in _owned_host(p, a, chip, site, host, cooling_of(known, host[1]))]


def _has(known: Sequence[Json], accelerators: int) -> bool:
    return any(u["accelerators"] == accelerators for u in known)


def cooling_of(known: Sequence[Json], accelerators: int) -> str:
    """The cooling of units with this number of chips; empty if unknown."""
    kinds = {kind for u in known if u["accelerators"] == accelerators for kind in u.get("cooling", "").split(" or ")}
    return " or ".join(sorted(kinds - {""}))


def _owned_host(
    p: Json, a: Assumptions, chip: Chip, site: str, host: tuple[str, int, float, float, float | None], cooling: str
) -> list[Offer]:
    """The offer of a bought host; empty if the chip's power is not published.

    `host` is its name, number of chips, price in USD, host power per chip in W and, for cards sold alone, their part
    of the price in USD.
    """
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
        cooling=cooling,
        notes=p.get("notes", ""),
    )
    return [offer]


def _scaled(bound: float | None, price_usd: float, usd: float) -> float:
    """A bound of the purchase price, scaled from `price_usd` to the whole host's `usd`; 0 if there is no bound."""
    return usd * bound / price_usd if bound and price_usd else 0.0


def with_owned(
    offers: Sequence[Offer], owned: Mapping[str, int], snapshot: Json, a: Assumptions, chips: Mapping[str, Chip]
) -> tuple[Offer, ...]:
    """The offers, preceded by the hosts that the planner already owns, which cost only what it takes to run them.

    Purchase offers of the same size record how many hosts are already there. Owned chips are counted in full hosts of
    the catalog's size; a remainder counts only if there is no full host.
    """
    kept = list(offers)
    for slug, count in owned.items():
        chip, size = chips[slug], min(chips[slug].chips_per_host, count)
        known = [u for u in snapshot["units"] if u["accelerator"] == slug]
        share = host_watts(chip, size, known, a)
        watts, hosts = (chip.watts + share) * size, count // size
        if math.isnan(watts):
            continue
        usd = new_usd_per_accelerator(offers, slug) or 0.0
        parts = tuple(p for p in own_parts(usd * size, size, watts, a) if p.group == "running")
        same = [o.accelerator == slug and o.term == "purchase" and o.accelerators == size for o in kept]
        kept = [replace(o, held_instances=hosts, held_parts=parts) if s else o for o, s in zip(kept, same, strict=True)]
        own = Offer(
            provider="owned",
            instance=f"owned server with {size} x {chip.name}",
            region=snapshot["site"] or OWN_SITE,
            accelerator=slug,
            accelerators=size,
            acquisition="own",
            term=OWNED,
            usd_per_hour=total_usd_per_hour(parts),
            parts=parts,
            as_of=snapshot["asked_on"],
            source="already owned; space, power, maintenance and staff as assumed in this answer",
            kgco2e_per_kwh=a.kgco2e_per_kwh,
            usd_per_kwh=a.usd_per_kwh,
            pue=a.pue,
            host_watts_per_accelerator=share,
            full_watts=watts,
            cooling=cooling_of(known, size),
            held_instances=hosts,
        )
        kept.insert(0, own)
    return tuple(kept)


def new_usd_per_accelerator(offers: Sequence[Offer], slug: str) -> float | None:
    """The lowest purchase price of a host per chip, USD; None without a price."""
    usd = [o.purchase_usd / o.accelerators for o in offers if o.accelerator == slug and o.purchase_usd]
    return min(usd, default=None)


def licences_of(rows: Sequence[Json], software_usd_per_accelerator_year: float) -> tuple[Licence, ...]:
    """The licenses as engine values, with one more if the workload sets a software cost per accelerator."""
    licences = [
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
        licences.append(Licence(name="software", usd_per_accelerator_year=usd, source="set in the workload"))
    return tuple(licences)
