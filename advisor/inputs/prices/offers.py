"""Prices for an answer: rows known on a day, an organization's own prices and discounts, and the resulting offers."""

import datetime
import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from django.db.models import Q

from advisor.engine.cost import (
    Assumptions,
    Licence,
    capital_shares,
    capital_usd,
    list_rent_parts,
    own_parts,
    rent_parts,
    total_usd_per_hour,
)
from advisor.engine.terms import (
    ANYWHERE,
    ASSUMED,
    DOUBTFUL,
    NO_SERVER,
    OWNED,
    OWNED_MONTHS,
    UNKNOWN_UNIT,
    WEAK_PRICE,
    Offer,
    Part,
    exact_text,
    usd_text,
)
from advisor.engine.terms import Accelerator as Chip
from advisor.inputs.prices.assumptions import SERVERS
from advisor.inputs.prices.hosts import (
    IN_PRICES,
    SERVER,
    BoughtHost,
    bought_host,
    card_hosts,
    cooling_of,
    host_watts,
    is_per_chip,
    rented_host,
    socket_share,
)
from advisor.inputs.snapshot import Snapshot
from catalog.loading.fixtures import INDEX, ORIGINS
from catalog.loading.places import areas_of
from catalog.models import Discount, Organisation, Price, Region, SupportLicence, Unit
from catalog.pricing import current as rule
from catalog.pricing.current import EXPIRED_DAYS, REPLACED_DAYS, STALE_DAYS
from catalog.pricing.derived import NO_CURRENT_PRICE, has_expired, known_on, sold_out

SUPERSEDED_YEARS = 5  # from the release of a chip: two generations at the pace of one every two years
# marketplaces and serverless have lower service levels: used only if the workload names the provider
COMPARABLE = ("vm", "bare_metal", "capacity_block")
CONTRACTED = ("on_demand", "reserved_1y", "reserved_3y")  # terms of an organization's own prices, of any kind
WITH_HOST = ("system", "server", "rack")  # purchases that include the host
SYSTEM = "system"  # a complete computer with one chip, no separate server
FORMS = {SYSTEM: "computer", "rack": "rack"}  # how a purchase of this kind is called; else a server
WORKSTATION = "workstation"
CARD = "chip"  # a purchase without a host; only PCIe cards fit any server, modules need a baseboard
CARD_KINDS = ("gpu", "npu")  # kinds of accelerators sold as PCIe cards
SLICE = "slice"  # a unit: part of a pod, sold in fixed shapes
CLUSTER = "cluster"  # a unit: instances joined by a network
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
    "vm": "on demand",
    "bare_metal": "on demand as bare metal",
}
MARKETPLACE, CAPACITY_BLOCK = "marketplace", "capacity_block"
OWN_SITE = "own-site"
DOUBTED_DAYS = 120  # at this age a rent may be off by a fifth: price-age-swing-ratio ** sqrt(120 / 365) = 1.2
DOUBTFUL_RATIO = 2.0  # between a listed price and the median of marketplace prices
EVERY_SELLER = ""  # of the marketplace prices of a chip
OWN = "own"  # origin of a price that the organization entered itself
SIGNABLE = ("official_list", "provider_api", OWN)  # origins of prices that a buyer can sign at
UNSOLD = ("second_hand", "quote", "marketplace")  # origins that `constraints.exclude` names
ESTIMATE, LOW, UNCONFIRMED = "estimate", "low", "unconfirmed"
ON_DEMAND = ("on_demand",)
TERMS = (*ON_DEMAND, "spot", "reserved_1y", "reserved_3y", "capacity_block")  # of rental prices
API = "api"
PRICED = (
    "usd_per_hour", "purchase_usd", "purchase_low_usd", "purchase_high_usd",
    "usd_per_mtok_input", "usd_per_mtok_cached_input", "usd_per_mtok_output",
)  # fmt: skip
Json = dict[str, Any]
NO_MARKET: Json = {}


# --- rows to a snapshot -----------------------------------------------------------------------------------------


def current(
    named_providers: Sequence[str],
    organisation: Organisation | None,
    day: datetime.date,
    terms: Sequence[str] = ON_DEMAND,
    kinds: Sequence[str] = COMPARABLE,
) -> list[Price]:
    """The current price of each offer known on `day`, expired ones included.

    Only these kinds, by default those with comparable service levels, except from `named_providers`. An organization's
    own price replaces the public one until it expires. `terms`: the rental terms to include of public prices.
    """
    return _wanted(
        Q(term__in=terms, kind__in=kinds)
        | Q(term__in=terms, provider__in=named_providers)
        | Q(term__in=CONTRACTED, organisation__isnull=False)
        | Q(term="purchase", kind__in=WITH_HOST)
        | Q(term="purchase", kind=CARD, accelerator__kind__in=CARD_KINDS, accelerator__form_factor__startswith="PCIe"),
        organisation,
        day,
    )


def _wanted(condition: Q, organisation: Organisation | None, day: datetime.date) -> list[Price]:
    """The current prices that meet a condition, which has no say in what is current."""
    known = known_on(Price.objects.all(), day).filter(Q(organisation=None) | Q(organisation=organisation))
    read = known.order_by("pk").values_list("pk", *rule.COLUMNS, named=True)
    held = {row.pk for row in rule.standing(read, day)}
    rows = (
        known.filter(condition)
        .exclude(origin=INDEX)
        .prefetch_related("accelerator")  # a join would decode the JSON of a chip for each of its prices
        .order_by("provider", "instance", "region", "accelerator", "term", "as_of", "organisation")
    )
    paid: dict[tuple[object, ...], Price] = {}
    for p in (row for row in rows if row.pk in held):
        key = (p.provider, p.instance, p.region, p.accelerator_id, p.term)
        other = paid.get(key)
        if other is None or _is_private(p, day) >= _is_private(other, day):
            paid[key] = p
    return list(paid.values())


def _is_private(p: Price, day: datetime.date) -> bool:
    return p.organisation_id is not None and not has_expired(p.as_of, day)


def prices(
    named_providers: Sequence[str],
    organisation: Organisation | None,
    day: datetime.date,
    terms: Sequence[str] = ON_DEMAND,
    kinds: Sequence[str] = COMPARABLE,
) -> list[Json]:
    """Each offer at the price the organization pays: its own price, or the public price less its discount."""
    discounts, gone = discounts_of(organisation, day), sold_out(day)
    return [
        _price(p, discount_for(p, discounts), gone) for p in current(named_providers, organisation, day, terms, kinds)
    ] + _sold_units(day)


def paid(sellers: Collection[str], organisation: Organisation | None, day: datetime.date) -> list[Json]:
    """Each current offer of these sellers, of any kind and term, at the price the organization pays."""
    discounts = discounts_of(organisation, day)
    rows = _wanted(Q(provider__in=sellers), organisation, day)
    return [_price(p, discount_for(p, discounts), {}) for p in rows] + _sold_units(day)


def other_terms(organisation: Organisation | None, day: datetime.date, terms: Sequence[str]) -> list[Json]:
    """Public rental prices of the terms not in `terms`, shown beside an option for comparison."""
    others, discounts = [term for term in TERMS if term not in terms], discounts_of(organisation, day)
    rows = _wanted(Q(term__in=others, kind__in=COMPARABLE, organisation=None), organisation, day)
    gone = sold_out(day)
    found = [_price(p, discount_for(p, discounts), gone) for p in rows]
    return [p for p in found if not is_stale(p, day)]


def serverless(organisation: Organisation | None, day: datetime.date) -> list[Json]:
    """Accelerators that are billed by the second and can scale to zero."""
    discounts = discounts_of(organisation, day)
    rows = _wanted(Q(term__in=ON_DEMAND, kind="serverless", organisation=None), organisation, day)
    gone = sold_out(day)
    return [row for p in rows if not is_stale(row := _price(p, discount_for(p, discounts), gone), day)]


def _price(p: Price, discount: Discount | None, gone: Mapping[tuple[Any, ...], datetime.date]) -> Json:
    """The price of the smallest number of chips that is sold, as the organization pays it.

    gone: when each offer was sold out, by provider, instance, region, accelerator and term.
    """
    regions = (p.region, *ANYWHERE) if p.organisation_id is None else ()
    keys = ((p.provider, p.instance, region, p.accelerator_id, p.term) for region in regions)
    left = next((gone[key] for key in keys if key in gone), None)
    paid_fraction = 1.0 - discount.discount_fraction if discount else 1.0
    per_chip = p.term != "purchase" and rule.is_per_chip(p)
    chips = p.smallest_unit_accelerators if per_chip and p.smallest_unit_accelerators else p.accelerators
    times = chips / p.accelerators
    hourly_usd = float(p.usd_per_hour) * times if p.usd_per_hour is not None else None
    purchase_usd = float(p.purchase_usd) if p.purchase_usd is not None else None
    return {
        "provider": p.provider,
        "instance": p.instance,
        "region": p.region,
        "accelerator": p.accelerator.slug,
        "accelerators": chips,
        **{name: figure * times for name in IN_PRICES if (figure := getattr(p, name))},
        **({"unit_unknown": True} if per_chip and not p.smallest_unit_accelerators else {}),
        **({"negotiated": True} if discount else {}),
        "term": p.term,
        "kind": p.kind,
        "usd_per_hour": hourly_usd * paid_fraction if hourly_usd is not None else None,
        "purchase_usd": purchase_usd * paid_fraction if purchase_usd is not None else None,
        **_range(p.purchase_usd_min, p.purchase_usd_max, paid_fraction),
        "as_of": p.as_of.isoformat(),
        "source": p.source,
        "notes": "; ".join(filter(None, (_unit_note(p, chips), _price_note(p, discount)))),
        "origin": p.origin if p.organisation_id is None else OWN,
        "confidence": p.confidence,
        **({"country": p.country} if p.country else {}),
        **({"sold_out_on": left.isoformat()} if left else {}),
        **({"marks": marks} if (marks := price_marks(p)) else {}),
    }


def price_marks(p: Price) -> list[str]:
    """What `constraints.exclude` can rule out about how something is sold (engine MARKS)."""
    sold = [MARKETPLACE] if p.kind == MARKETPLACE else ["bookable"] if p.term == CAPACITY_BLOCK else []
    rented = p.term != "purchase"
    known = [p.origin] if p.origin in UNSOLD or (p.origin == ESTIMATE and rented) else []
    known += [UNCONFIRMED] if p.confidence == LOW and rented else []
    if p.organisation_id is not None:
        known = []  # the organization's own price, wherever it is from
    return list(dict.fromkeys([*sold, *known, *p.marks.split()]))


def weakness(p: Json, day: datetime.date) -> str:
    """Why a buyer should not sign at this price, in words; empty if nothing is known."""
    days = _days(p, day)
    if not p["origin"]:
        return ""
    old = days > (EXPIRED_DAYS if p["origin"] == OWN else STALE_DAYS)
    return ", ".join([*_doubtful_origin(p), *([f"{days} days old"] if old else [])])


def _doubtful_origin(p: Json) -> list[str]:
    """Why a buyer should not sign at this price whatever its age."""
    origin = p["origin"]
    return [
        *([ORIGINS[origin]] if origin and origin not in SIGNABLE else []),
        *(["of low confidence"] if p.get("confidence") == LOW and origin != OWN else []),
    ]


def kinds_for(exclude: Sequence[str]) -> tuple[str, ...]:
    """The kinds of rental prices that are ranked if these marks are excluded."""
    return COMPARABLE if MARKETPLACE in exclude else (*COMPARABLE, MARKETPLACE)


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
            "origin": ESTIMATE,
        }
        for u in rows
        if u.sources.get("price") and u.sources["price"]["as_of"] <= day.isoformat()
    ]


def _unit_note(p: Price, chips: int) -> str:
    """That a price printed for fewer chips is for the smallest number that is sold; empty if it is the same."""
    if chips == p.accelerators:
        return ""
    return f"priced per accelerator, but sold in units of {chips} ({p.smallest_unit_source})"


def _price_note(p: Price, discount: Discount | None) -> str:
    """How the organization's price differs from the public one; empty if it does not."""
    if p.organisation_id is not None:
        return "; ".join(["your own price", *([p.notes] if p.notes else [])])
    if discount is None:
        return p.notes
    list_price = f"{exact_text(p.usd_per_hour)} an hour" if p.usd_per_hour else exact_text(p.purchase_usd or 0)
    less = (
        f"{discount.discount_fraction:.0%} below the list price of {list_price} ({discount.source}, {discount.as_of})"
    )
    return "; ".join([less, *([p.notes] if p.notes else [])])


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


def marketplace(day: datetime.date) -> Json:
    """Low, median and high of the current marketplace rents of each chip, USD/h, by seller and of all.

    On demand, up to STALE_DAYS old, and not of low confidence: the cheapest offer of a day says little.
    """
    rows = _wanted(Q(term__in=ON_DEMAND, kind=MARKETPLACE, organisation=None) & ~Q(confidence=LOW), None, day)
    found: dict[str, dict[str, list[float]]] = {}
    for p in rows:
        if (day - p.as_of).days <= STALE_DAYS:
            for seller in (p.provider, EVERY_SELLER):
                found.setdefault(p.accelerator.slug, {}).setdefault(seller, []).append(rule.usd_per_chip_hour(p))
    return {slug: {seller: _level(usd) for seller, usd in of.items()} for slug, of in sorted(found.items())}


def _level(usd: Sequence[float]) -> Json:
    return {"low_usd": min(usd), "median_usd": statistics.median(usd), "high_usd": max(usd)}


def regions() -> Json:
    """Electricity price, carbon intensity, PUE, colocation price and areas by region; unknown figures are left out."""
    names = {
        "usd_per_kwh": "electricity_usd_per_kwh",
        "kgco2e_per_kwh": "grid_kgco2e_per_kwh",
        "pue": "pue",
        "colocation_usd_per_kw_month": "colocation_usd_per_kw_month",
    }
    return {
        r.slug: {key: getattr(r, name) for key, name in names.items() if getattr(r, name) is not None}
        | {"areas": areas_of(r.country)}
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


def fabrics() -> list[Json]:
    """Units that join several instances: the chips they connect, each chip's rate, and which instances are joined."""
    rows = Unit.objects.exclude(sold_as=[]).select_related("accelerator").order_by("slug")
    return [
        {
            "accelerator": u.accelerator.slug,
            "accelerators": u.accelerators,
            "network_gb_per_s": u.network_gb_per_s,
            "kind": u.kind,
            "sold_as": u.sold_as,
        }
        for u in rows
    ]


def slices() -> list[Json]:
    """The shapes in which parts of a pod are sold, smallest first."""
    rows = Unit.objects.filter(kind=SLICE).select_related("accelerator").order_by("accelerators", "slug")
    return [
        {"name": u.name, "accelerator": u.accelerator.slug, "accelerators": u.accelerators, "shape": u.shape}
        for u in rows
    ]


def is_stale(price: Json, day: datetime.date) -> bool:
    origin = "" if price["term"] == "purchase" else price.get("origin", "")  # a launch price does not hold for ever
    return has_expired(datetime.date.fromisoformat(price["as_of"]), day, origin)


def used(
    rows: Sequence[Json],
    day: datetime.date,
    named_providers: Sequence[str] = (),
    market: Json = NO_MARKET,
    by_place: bool = True,
) -> list[Json]:
    """The current prices, and the expired ones, marked `stale`, of chips with no current price of that acquisition.

    A rent over 90 days old is left out if the chip is rented at a current price of the same term in the same country,
    in instances that are no larger, unless the planner names its provider. One over 120 days old also gives way to a
    price that is clearly newer, and to those elsewhere unless `by_place`.
    """
    replaced = _replaced(rows, day, market, by_place)
    rows = [p for i, p in enumerate(rows) if i not in replaced or p["provider"] in named_providers]

    def way(p: Json) -> tuple[str, bool]:
        return p["accelerator"], p["term"] == "purchase"

    # what may be left out by `constraints.exclude` does not make an old price superfluous
    fresh = {way(p) for p in rows if not is_stale(p, day) and not p.get("marks")}
    old = [p for p in rows if way(p) not in fresh]
    return [p for p in rows if not is_stale(p, day)] + [p | {"stale": True} for p in old]


def _replaced(rows: Sequence[Json], day: datetime.date, market: Json, by_place: bool) -> set[int]:
    """The indexes of old rents that a newer price of the same chip and term replaces, one that may come first."""
    newer: dict[tuple[str, str], list[Json]] = {}
    for p in rows:
        sound = not p.get("marks") and not _doubtful_origin(p) and not p.get("unit_unknown")
        if p["term"] != "purchase" and sound and not is_doubtful(p, market):
            newer.setdefault((p["accelerator"], p["term"]), []).append(p)

    def is_replaced(p: Json, n: Json) -> bool:
        days, old = _days(p, day), _days(p, day) > DOUBTED_DAYS
        newest = _days(n, day) <= (max(STALE_DAYS, days - REPLACED_DAYS) if old else STALE_DAYS)
        there = p["region"] in (*ANYWHERE, n["region"]) or n.get("country", "?") == p.get("country")
        return newest and n["accelerators"] <= p["accelerators"] and (there or (old and not by_place))

    return {
        i
        for i, p in enumerate(rows)
        if _days(p, day) > STALE_DAYS and p.get("origin") != OWN
        if any(is_replaced(p, n) for n in newer.get((p["accelerator"], p["term"]), ()))
    }


def _days(p: Json, day: datetime.date) -> int:
    return (day - datetime.date.fromisoformat(p["as_of"])).days


def sold_only_otherwise(day: datetime.date) -> Json:
    """For each accelerator with a current price, a sentence on the ways it is sold that are not ranked by default."""
    rows = known_on(Price.objects.filter(organisation=None), day).select_related("accelerator").order_by("provider")
    sellers: dict[str, dict[str, set[str]]] = {}
    for p in rule.standing(rows, day):
        if not has_expired(p.as_of, day):
            way = p.kind if p.term in ("on_demand", "purchase") else p.term
            sellers.setdefault(p.accelerator.slug, {}).setdefault(UNRANKED_SALES.get(way, way), set()).add(p.provider)
    return {slug: _only_as(ways) for slug, ways in sellers.items()}


def _only_as(ways: Mapping[str, set[str]]) -> str:
    """The sentence for one accelerator, with up to three sellers for each way."""
    parts = [f"{way} ({', '.join(sorted(sellers)[:3])})" for way, sellers in ways.items()]
    tail = ""
    if UNRANKED_SALES["serverless"] in ways:
        tail += "; to include a serverless provider, add it to constraints.providers.allow"
    if UNRANKED_SALES[MARKETPLACE] in ways:
        tail += "; to include marketplaces, remove marketplace from constraints.exclude"
    return f"{NO_CURRENT_PRICE} for an instance or a server, only {' and '.join(parts)}{tail}"


def at_price_ratios(snapshot: Snapshot, ratios: Mapping[str, float]) -> Snapshot:
    """The snapshot with every price of a term times the planner's ratio; purchases and hosted APIs are terms too."""
    changed = {term: ratio for term, ratio in ratios.items() if ratio != 1.0}
    if not changed:
        return snapshot

    def at_ratio(rows: Sequence[Json]) -> list[Json]:
        return [_at_ratio(row, changed.get(row["term"], 1.0)) for row in rows]

    api = changed.get(API, 1.0)
    rented = changed.get("on_demand", 1.0)  # an assumed level of prices makes none of them doubtful
    market = {
        slug: {seller: {name: usd * rented for name, usd in level.items()} for seller, level in of.items()}
        for slug, of in snapshot.marketplace.items()
    }
    return replace(
        snapshot,
        prices=at_ratio(snapshot.prices),
        other_terms=at_ratio(snapshot.other_terms),
        serverless=at_ratio(snapshot.serverless),
        marketplace=market,
        hosted=[_at_ratio(row, api) for row in snapshot.hosted],
    )


def _at_ratio(row: Json, ratio: float) -> Json:
    if ratio == 1.0:
        return row
    usd = {name: row[name] * ratio for name in PRICED if row.get(name) is not None}
    note = f"{ratio:g} times the catalog's price, as the question assumes"
    return row | usd | {"notes": "; ".join([note, *([row["notes"]] if row.get("notes") else [])])}


# --- a snapshot to offers ---------------------------------------------------------------------------------------


def offers_of(snapshot: Snapshot, a: Assumptions, site: Assumptions, chips: Mapping[str, Chip]) -> tuple[Offer, ...]:
    """Offers in USD per hour of what is sold as a whole. A purchase costs its annuity, space, power and maintenance.

    `site` are the assumptions for the planner's own site. `a` fills in what a provider's region does not state.
    """
    kept: list[Offer] = []
    units: dict[str, list[Json]] = {}
    for unit in snapshot.units:
        units.setdefault(unit["accelerator"], []).append(unit)
    housed = housed_chips(snapshot)
    for p in snapshot.prices:
        chip, known = chips[p["accelerator"]], units.get(p["accelerator"], [])
        day = datetime.date.fromisoformat(snapshot.asked_on)
        weak, old = weakness(p, day), has_expired(datetime.date.fromisoformat(p["as_of"]), day)
        marks = (*p.get("marks", ()), *([chip.market] if chip.market else []), *([WEAK_PRICE] if weak else []))
        trust: Json = {"marks": marks, "weakness": weak, "origin": p["origin"], "over_a_year_old": old}
        if p["term"] == "purchase":
            for o in _owned(p, site, chip, known, snapshot):
                fits = not o.estimated_host or fits_a_machine(o, housed)
                kept.append(replace(o, **trust | {"marks": marks if fits else (*marks, NO_SERVER)}))
        else:
            found = doubts(p, chip, snapshot)
            trust |= found | {"marks": (*marks, *found["marks"])}
            place = snapshot.regions.get(f"{p['provider']}-{p['region']}", {})
            trust["areas"] = tuple(place.get("areas", ())) or tuple(areas_of(p["region"]))
            kept += [_rented(sold, a, chip, place, known, snapshot, trust) for sold in _as_sold(p, snapshot)]
    return tuple(kept)


def doubts(p: Json, chip: Chip, snapshot: Snapshot) -> Json:
    """What keeps a rent from being the first choice, and how far marketplaces widen its range, as fields of Offer."""
    found: Json = {}
    marks, said = [], []
    each = p["usd_per_hour"] / p["accelerators"]
    sliced = any(s["accelerator"] == chip.slug for s in snapshot.slices)
    if p.get("unit_unknown") and not sliced and (whole := whole_unit_chips(chip)) > 1:
        found["unknown_unit_chips"] = whole
        if is_on_a_shared_board(chip):
            marks.append(UNKNOWN_UNIT)
            said.append(
                f"the seller does not say how many are sold together: {usd_text(each)} an hour if you can rent one, "
                f"{usd_text(each * whole)} if only {whole} together"
            )
    of_seller, of_all = markets_of(p, snapshot.marketplace)
    if of_seller is not None:
        found["rent_low_ratio"] = min(of_seller["low_usd"] / each, 1.0)
        found["rent_high_ratio"] = max(of_seller["high_usd"] / each, 1.0)
    if (market := doubted_by(each, of_seller, of_all)) is not None:
        marks.append(DOUBTFUL)
        whose = "the seller's own marketplace prices" if market is of_seller else "marketplace prices"
        side = "less than half" if market["median_usd"] < each else "more than twice"
        said.append(
            f"the median of {whose}, {usd_text(market['median_usd'])} per accelerator-hour, is {side} the listed "
            f"{usd_text(each)}"
        )
    return found | {"doubt": "; ".join(said), "marks": tuple(marks)}


def markets_of(p: Json, marketplace: Json) -> tuple[Json | None, Json | None]:
    """The marketplace prices of the seller of a listed price, and of all sellers of its chip; None: there are none."""
    negotiated = p.get("origin") == OWN or p.get("negotiated", False)
    listed = p["term"] == "on_demand" and MARKETPLACE not in p.get("marks", ()) and not negotiated
    levels = marketplace.get(p["accelerator"], {}) if listed and p.get("usd_per_hour") else {}
    return levels.get(p["provider"]), levels.get(EVERY_SELLER)


def doubted_by(usd_per_chip_hour: float, of_seller: Json | None, of_all: Json | None) -> Json | None:
    """The marketplace prices that make a listed price doubtful; None: none do.

    Its seller's own, if their median is below half or above twice the price. Those of all sellers only if they are
    dearer than twice the price: a large cloud that costs more than twice a marketplace is expensive, not in doubt.
    """
    low, high = usd_per_chip_hour / DOUBTFUL_RATIO, usd_per_chip_hour * DOUBTFUL_RATIO
    if of_seller is not None and not low <= of_seller["median_usd"] <= high:
        return of_seller
    return of_all if of_all is not None and of_all["median_usd"] > high else None


def is_doubtful(p: Json, marketplace: Json) -> bool:
    """Whether marketplace prices put a listed price in doubt."""
    levels = markets_of(p, marketplace)
    return any(levels) and doubted_by(p["usd_per_hour"] / p["accelerators"], *levels) is not None


def is_on_a_shared_board(chip: Chip) -> bool:
    """Whether a chip only comes on a board with others: neither a card nor a computer of its own (HGX, OAM, NVL72)."""
    return chip.kind != "cpu" and not chip.chassis and chip.chips_per_host > 1


def whole_unit_chips(chip: Chip) -> int:
    """Chips of the largest natural unit: the switched link domain if it spans hosts, else the host."""
    if chip.chips_per_host == 1 or not chip.links or chip.links[0].topology != "switch":
        return chip.chips_per_host
    return max(chip.chips_per_host, chip.links[0].chips)


def assumed(snapshot: Snapshot, a: Assumptions, chips: Mapping[str, Chip]) -> tuple[Offer, ...]:
    """Offers of each served chip at USD 1 per accelerator-hour: instances of 1, 2, 4 and so on, up to a whole host."""
    kept = []
    for chip in chips.values():
        known = [u for u in snapshot.units if u["accelerator"] == chip.slug]
        sizes = {2**k for k in range(chip.chips_per_host.bit_length()) if 2**k < chip.chips_per_host}
        for n in sorted({*sizes, chip.chips_per_host}) if chip.served else ():
            row = {
                "provider": ASSUMED,
                "instance": f"{n} x {chip.name} at the price that you assume",
                "region": "any",
                "term": "on_demand",
                "accelerators": n,
                "usd_per_hour": float(n),
                "as_of": snapshot.asked_on,
                "source": "set in the workload",
            }
            kept.append(_rented(row, a, chip, {}, known, snapshot, {}))
    return tuple(kept)


def _as_sold(p: Json, snapshot: Snapshot) -> list[Json]:
    """The rental price of each slice shape, for chips sold in slices, which cost the same per chip in every size.

    Other prices stay as they are.
    """
    shapes = [s for s in snapshot.slices if s["accelerator"] == p["accelerator"]]
    each = p["usd_per_hour"] / p["accelerators"]
    return [
        p | {"instance": s["name"], "accelerators": s["accelerators"], "usd_per_hour": each * s["accelerators"]}
        for s in shapes
    ] or [p]


def _is_joined(p: Json, chip: Chip, sold_as: Sequence[str]) -> bool:
    """Whether a fabric names this instance, or all whole hosts of its provider ("PROVIDER *")."""
    if f"{p['provider']} *" in sold_as:
        return p["kind"] != MARKETPLACE and (p["accelerators"] >= chip.chips_per_host or is_per_chip(p))
    return f"{p['provider']} {p['instance']}" in sold_as


def fabric_accelerators(p: Json, chip: Chip, known: Sequence[Json]) -> int:
    """Chips that the provider connects across instances like this one at the chip's own link rate; 0 if unknown."""
    needed_bytes_per_s = chip.links[-1].bytes_per_s if len(chip.links) > 1 else 0.0
    return max(
        (
            f["accelerators"]
            for f in known
            if f["accelerator"] == chip.slug and _is_joined(p, chip, f["sold_as"])
            if f["kind"] != CLUSTER or (f["network_gb_per_s"] or 0.0) * 1e9 >= needed_bytes_per_s
        ),
        default=0,
    )


def _rented(
    p: Json, a: Assumptions, chip: Chip, place: Json, known: Sequence[Json], snapshot: Snapshot, trust: Json
) -> Offer:
    """A rented instance, with electricity and carbon figures of its region. trust: what its price is worth."""
    sliced = any(s["name"] == p["instance"] for s in snapshot.slices)
    rent = p["usd_per_hour"], p["term"], a, p["accelerators"]
    parts = rent_parts(*rent)
    host, share = rented_host(p, chip, snapshot), None
    if chip.kind == "cpu":
        share = socket_share(p, chip, host, snapshot)
    watts = host_watts(chip, p["accelerators"], known, a) * (share.fraction if share else 1.0)
    return Offer(
        provider=p["provider"],
        instance=unit_name(p),
        region=p["region"],
        accelerator=chip.slug,
        accelerators=p["accelerators"],
        acquisition="rent",
        term=p["term"],
        usd_per_hour=total_usd_per_hour(parts),
        parts=parts,
        list_parts=list_rent_parts(*rent),
        vat_fraction=a.vat_fraction,
        as_of=p["as_of"],
        source=p["source"],
        kgco2e_per_kwh=place.get("kgco2e_per_kwh") or a.kgco2e_per_kwh,
        usd_per_kwh=place.get("usd_per_kwh") or a.usd_per_kwh,
        pue=place.get("pue") or a.pue,
        host_watts_per_accelerator=watts,
        joined_accelerators=chip.chips_per_host if is_per_chip(p) and not sliced else 0,
        fabric_accelerators=fabric_accelerators(p, chip, snapshot.fabrics),
        notes=p.get("notes", ""),
        stale=p.get("stale", False),
        sold_out_on=p.get("sold_out_on", ""),
        host=host,
        share=share,
        **trust,
    )


def unit_name(p: Json) -> str:
    """What one rented unit is called: a name per GPU says how many GPUs the unit has, where it has several."""
    n = p["accelerators"]
    if n == 1 or p.get("unit_unknown"):
        return str(p["instance"])
    return str(p["instance"]).replace("(per GPU)", f"({n} GPUs)").replace("(per chip)", f"({n} chips)")


def _owned(p: Json, a: Assumptions, chip: Chip, known: Sequence[Json], snapshot: Snapshot) -> list[Offer]:
    """Offers from one purchase price. A card sold alone gets a host of each size, at an assumed price."""
    n = p["accelerators"]
    if p["kind"] == CARD:
        hosts = card_hosts(p, chip, a, snapshot.assumptions, known)
        return [offer for host in hosts for offer in _owned_host(p, a, chip, host, known, snapshot)]
    share = 0.0 if p["kind"] == SYSTEM and not known else host_watts(chip, n, known, a)
    low, high = p.get("purchase_low_usd", 0.0), p.get("purchase_high_usd", 0.0)
    name = f"{chip.name} ({p['instance']})" if p["kind"] == SYSTEM else p["instance"]  # many rows say only "computer"
    whole = BoughtHost(name, n, p["purchase_usd"], share, None, low, high)
    return _owned_host(p, a, chip, whole, known, snapshot)


def housed_chips(snapshot: Snapshot) -> frozenset[str]:
    """The chips of which a machine is known: one in the catalog, or one that somebody rents out."""
    rows = (*snapshot.units, *snapshot.prices, *snapshot.other_terms, *snapshot.serverless)
    return frozenset({row["accelerator"] for row in rows if row.get("kind") != CARD} | set(snapshot.marketplace))


def fits_a_machine(o: Offer, housed: Collection[str]) -> bool:
    """Whether cards that are bought alone fit a machine that can be ordered.

    GPU servers take any passively cooled card, and any workstation takes one card with a fan. Several of those need a
    chip of which some machine is known.
    """
    return o.form != WORKSTATION or o.accelerators == 1 or o.accelerator in housed


def _owned_host(
    p: Json, a: Assumptions, chip: Chip, host: BoughtHost, known: Sequence[Json], snapshot: Snapshot
) -> list[Offer]:
    """The offer of a bought host; empty if the chip's power is not published."""
    usd, accelerators = host.usd, host.accelerators
    watts = (chip.watts + host.watts_per_accelerator) * accelerators
    if math.isnan(watts):
        return []
    superseded = is_superseded(chip, snapshot)
    months, low, high = a.delivery.get(chip.chassis or SERVERS, (0.0, 0.0, 0.0))
    parts = own_parts(usd, accelerators, watts, a, host.chips_usd, superseded)
    offer = Offer(
        provider="own",
        instance=host.name,
        region=snapshot.site or OWN_SITE,
        accelerator=chip.slug,
        accelerators=accelerators,
        acquisition="own",
        term=p["term"],
        usd_per_hour=total_usd_per_hour(parts),
        parts=parts,
        list_parts=running_parts(usd, accelerators, watts, a),
        capital_usd=capital_usd(usd, a),
        capital_shares=capital_shares(usd, a, host.chips_usd),
        resale=a.resale(superseded),
        vat_fraction=a.vat_fraction,
        order_months=months,
        order_low_months=low,
        order_high_months=high,
        purchase_usd=usd,
        purchase_low_usd=host.low_usd,
        purchase_high_usd=host.high_usd,
        as_of=p["as_of"],
        source=p["source"],
        kgco2e_per_kwh=a.kgco2e_per_kwh,
        usd_per_kwh=a.usd_per_kwh,
        pue=a.pue,
        host_watts_per_accelerator=host.watts_per_accelerator,
        full_watts=watts,
        cooling=cooling_of(known, accelerators),
        form=WORKSTATION if p["kind"] == CARD and chip.chassis != SERVER else FORMS.get(p["kind"], "server"),
        estimated_host=p["kind"] == CARD,
        fabric_accelerators=_own_fabric(p, chip, accelerators),
        notes=p.get("notes", ""),
        stale=p.get("stale", False),
        host=bought_host(chip, accelerators, snapshot.assumptions),
    )
    return [offer]


def running_parts(usd: float, accelerators: int, watts: float, a: Assumptions) -> tuple[Part, ...]:
    """What a server costs to run for an hour at today's prices."""
    today = replace(a, energy_path=())
    return tuple(p for p in own_parts(usd, accelerators, watts, today) if p.group == "running")


def is_superseded(chip: Chip, snapshot: Snapshot) -> bool:
    """Whether a newer generation has replaced the chip: it came out SUPERSEDED_YEARS or more before the question."""
    return bool(chip.release_year) and int(snapshot.asked_on[:4]) - chip.release_year >= SUPERSEDED_YEARS


def _own_fabric(p: Json, chip: Chip, accelerators: int) -> int:
    """Chips that bought servers reach over their network cards, whose switches are part of the purchase; 0: none."""
    networked = len(chip.links) > 1 and chip.links[-1].topology == "switch" and p["kind"] in WITH_HOST
    return chip.links[-1].chips if networked and accelerators >= chip.chips_per_host > 1 else 0


def with_owned(
    offers: Sequence[Offer], owned: Mapping[str, int], snapshot: Snapshot, a: Assumptions, chips: Mapping[str, Chip]
) -> tuple[Offer, ...]:
    """The offers, preceded by the hosts that the planner already owns, which cost only what it takes to run them.

    Purchase offers of the same size record how many hosts are already there. Owned chips are counted in full hosts of
    the catalog's size; a remainder counts only if there is no full host.
    """
    kept = list(offers)
    for slug, count in owned.items():
        chip, size = chips[slug], min(chips[slug].chips_per_host, count)
        known = [u for u in snapshot.units if u["accelerator"] == slug]
        share = host_watts(chip, size, known, a)
        watts, hosts = (chip.watts + share) * size, count // size
        if math.isnan(watts):
            continue
        usd = new_usd_per_accelerator(offers, slug) or 0.0
        parts = tuple(p for p in own_parts(usd * size, size, watts, a) if p.group == "running")
        today = running_parts(usd * size, size, watts, a)
        same = [o.accelerator == slug and o.term == "purchase" and o.accelerators == size for o in kept]
        sale, later = (usd * size * x for x in market_fractions(a, is_superseded(chip, snapshot)))
        there: Json = {"held_instances": hosts, "held_parts": today, "sale_usd": sale, "later_sale_usd": later}
        kept = [replace(o, **there) if s else o for o, s in zip(kept, same, strict=True)]
        own = Offer(
            provider="owned",
            instance=f"owned server with {size} x {chip.name}",
            region=snapshot.site or OWN_SITE,
            accelerator=slug,
            accelerators=size,
            acquisition="own",
            term=OWNED,
            usd_per_hour=total_usd_per_hour(parts),
            parts=parts,
            list_parts=today,
            as_of=snapshot.asked_on,
            source="already owned; space, power, maintenance and staff as assumed in this answer",
            kgco2e_per_kwh=a.kgco2e_per_kwh,
            usd_per_kwh=a.usd_per_kwh,
            pue=a.pue,
            host_watts_per_accelerator=share,
            full_watts=watts,
            cooling=cooling_of(known, size),
            held_instances=hosts,
            sale_usd=sale,
            later_sale_usd=later,
            host=bought_host(chip, size, snapshot.assumptions),
        )
        kept.insert(0, own)
    return tuple(kept)


def market_fractions(a: Assumptions, superseded: bool) -> tuple[float, float]:
    """(today, at the end of the horizon): market value of owned machines over the price of new ones, less selling."""
    months = max(round(a.months), 1)
    curve = replace(a, months=float(OWNED_MONTHS + months), life_years=(OWNED_MONTHS + months) / 12.0)
    values = curve.resale(superseded) if a.resale_by_year else a.resale(superseded)
    later = values[min(OWNED_MONTHS + months, len(values) - 1)]
    return values[min(OWNED_MONTHS, len(values) - 1)], later * float(a.prices.path("resale", months + 1)[months])


def new_usd_per_accelerator(offers: Sequence[Offer], slug: str) -> float | None:
    """The lowest purchase price of a host per chip, USD; None without a price."""
    usd = [o.purchase_usd / o.accelerators for o in offers if o.accelerator == slug and o.purchase_usd]
    return min(usd, default=None)


def licences_of(
    rows: Sequence[Json], software_usd_per_accelerator_year: float, vat_fraction: float = 0.0
) -> tuple[Licence, ...]:
    """The licenses as engine values, with VAT, and one more if the workload sets a software cost per accelerator."""
    gross = 1.0 + vat_fraction
    licences = [
        Licence(
            name=row["name"],
            vendor=row["vendor"],
            framework=row["framework"],
            usd_per_accelerator_year=row["usd_per_accelerator_per_year"] * gross,
            source=f"{row['source']}, {row['as_of']}",
        )
        for row in rows
    ]
    if software_usd_per_accelerator_year:
        usd = software_usd_per_accelerator_year * gross
        licences.append(Licence(name="software", usd_per_accelerator_year=usd, source="set in the workload"))
    return tuple(licences)
