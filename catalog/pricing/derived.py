"""Derived figures of accelerators and prices, as query columns that pages and REST can sort and filter by."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from statistics import median
from typing import Any

from django.db.models import (
    BooleanField,
    Exists,
    F,
    FloatField,
    Func,
    Max,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
)
from django.db.models.expressions import Combinable
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast, Coalesce, NullIf
from django.utils import timezone

from advisor.engine.terms import ANYWHERE
from catalog import clock
from catalog.models import Accelerator, Availability, CatalogLoad, Price
from catalog.pricing import current as rule
from catalog.pricing.current import OFFICIAL
from catalog.revision import revision

HOURS_PER_MONTH = 730
SOLD_OUT_DAYS = 30  # how long a reading of availability counts
NO_CURRENT_PRICE = "no current price"
DERIVED = (
    *("bf16_tflops", "fp8_tflops", "tflops_per_watt", "flops_per_byte", "usd_per_hour_min", "gb_per_s_per_usd_hour"),
    *("usd_per_gib", "newest_offer"),
)


def age(as_of: date | None, on: date | None = None, origin: str = "") -> str:
    """fresh, ageing (over 30 days), stale (over 90 days) or expired (over a year) on a day; unknown without a date.

    A price of an official origin never expires: it stays stale.
    """
    return rule.age(as_of, on or clock.today(), origin)


def as_float(expression: Combinable | str) -> Cast:
    return Cast(expression, FloatField())


def ratio(numerator: Combinable, denominator: Combinable) -> Combinable:
    """A quotient; NULL where the denominator is zero or NULL."""
    return numerator / NullIf(denominator, 0.0)


def rate_tflops(dtype: str) -> Cast:
    """The dense rate in one dtype, in TFLOP/s; NULL where the chip does not support it."""
    return as_float(KeyTextTransform(dtype, "dense_tflops"))


OFFER = ("provider", "instance", "region", "accelerator", "term")  # what stays the same when an offer gets a new price


def quotes(day: date) -> list[Any]:
    """What the rule for the current price reads of each public price dated up to a day."""
    rows = Price.objects.filter(organisation=None, as_of__lte=day).order_by("pk")
    return list(rows.values_list("pk", *rule.COLUMNS, named=True))


def current(rows: QuerySet[Price], day: date) -> QuerySet[Price]:
    """The rows that hold on a day: neither expired nor replaced by a newer price of the seller."""
    return rows.filter(among(current_ids(revision(), day)))


def with_price_per_chip(rows: QuerySet[Price]) -> QuerySet[Price]:
    """Prices with the rent per chip and hour or month, and the purchase price per chip, in USD."""
    return rows.annotate(
        usd_per_chip_hour=ratio(as_float("usd_per_hour"), as_float("accelerators")),
        usd_per_chip_month=ratio(as_float("usd_per_hour") * HOURS_PER_MONTH, as_float("accelerators")),
        usd_per_chip=ratio(as_float("purchase_usd"), as_float("accelerators")),
    )


def public_prices() -> QuerySet[Price]:
    """Public offers with their price per chip and the newest statement about their availability, if there is one."""
    offer = {name: OuterRef(name) for name in OFFER if name != "region"}
    place = Q(region=OuterRef("region")) | Q(region__in=ANYWHERE)
    same = Availability.objects.filter(place, **offer).order_by("-as_of")
    return with_price_per_chip(Price.objects.filter(organisation=None).prefetch_related("accelerator")).annotate(
        availability=Subquery(same.values("state")[:1]), availability_as_of=Subquery(same.values("as_of")[:1])
    )


def sold_out(day: date) -> dict[tuple[Any, ...], date]:
    """The offers, by the values of OFFER, that were sold out at their last reading up to a day, with its date.

    Only readings of the last SOLD_OUT_DAYS count: what was sold out before may be on sale again. One of region `any`
    is about every region.
    """
    rows = Availability.objects.filter(as_of__gte=day - timedelta(days=SOLD_OUT_DAYS)).order_by("as_of")
    last = {(row.provider, row.instance, row.region, row.accelerator_id, row.term): row for row in known_on(rows, day)}
    return {offer: row.as_of for offer, row in last.items() if row.state == Availability.State.SOLD_OUT}


def current_offers() -> QuerySet[Price]:
    """The newest row of each public offer that is official or at most one year old, and not replaced, per chip."""
    return with_price_per_chip(current(Price.objects.all(), clock.today()))


class Among(Func):
    """Whether a key is one of many. As text: Django would prepare each of thousands of parameters in every query.

    `+ 0` keeps SQLite from looking up every key for every chip instead of using the index of the chips.
    """

    template = "(%(expressions)s + 0) IN (%(keys)s)"
    output_field = BooleanField()


def among(keys: tuple[int, ...]) -> Among:
    return Among(F("pk"), keys=as_text(keys))


@lru_cache(maxsize=4)
def as_text(keys: tuple[int, ...]) -> str:
    return ",".join(str(int(key)) for key in keys)


@lru_cache(maxsize=8)
def current_ids(state: str, day: date) -> tuple[int, ...]:
    """The keys of the current public prices on a day, for one state of the catalog. Kept: this reads every price."""
    ids = [row.pk for row in rule.standing(quotes(day), day) if not rule.has_expired(row, day)]
    return (0, *ids)  # no row has key 0: Django would compile a comparison with an empty list to 0 instead of NULL


@lru_cache(maxsize=8)
def first_ids(state: str, day: date) -> tuple[int, ...]:
    """The keys of the public prices that stand above older ones of the same product, for one state of the catalog."""
    return (0, *(row.pk for row in rule.standing_first(quotes(day), day)))  # as in current_ids


def current_first(rows: QuerySet[Price], *keys: Any) -> QuerySet[Price]:
    """Prices in this order, the current ones of each product above its older ones."""
    return rows.alias(is_first=among(first_ids(revision(), clock.today()))).order_by("-is_first", *keys)


@lru_cache(maxsize=8)
def newest_ids(state: str, day: date) -> tuple[int, ...]:
    """The keys of the newest row of each public offer on a day, for one state of the catalog."""
    ids = [row.pk for row in rule.newest(quotes(day))]
    return (0, *ids)  # as in current_ids


def lowest(offers: QuerySet[Any], column: str) -> Subquery:
    return Subquery(offers.order_by(column).values(column)[:1], output_field=FloatField())


def accelerators() -> QuerySet[Accelerator]:
    """Accelerators with every figure of DERIVED. Ratios use the BF16 rate, or FP16 where there is no BF16.

    The lowest rent is an official price of medium or high confidence; where there is none, the lowest of the others.
    `is_offered`: there is a current offer.
    """
    offers = current_offers().filter(accelerator=OuterRef("pk"))
    rented = offers.filter(term="on_demand", usd_per_hour__gt=0)
    trusted = rented.filter(origin__in=OFFICIAL).exclude(confidence="low")
    bought = offers.filter(term="purchase", kind="chip", purchase_usd__gt=0)
    public = Price.objects.filter(accelerator=OuterRef("pk"), organisation=None, as_of__lte=clock.today())
    dated = public.order_by().values("accelerator").annotate(newest=Max("as_of"))
    return Accelerator.objects.annotate(
        bf16_tflops=Coalesce(rate_tflops("bf16"), rate_tflops("fp16")),
        fp8_tflops=rate_tflops("fp8"),
        usd_per_hour_min=Coalesce(lowest(trusted, "usd_per_chip_hour"), lowest(rented, "usd_per_chip_hour")),
        is_offered=Exists(offers),
        newest_offer=Subquery(dated.values("newest")),
    ).annotate(
        tflops_per_watt=ratio(F("bf16_tflops"), F("tdp_watts")),
        flops_per_byte=ratio(F("bf16_tflops") * 1000.0, F("memory_gb_per_s")),
        gb_per_s_per_usd_hour=ratio(F("memory_gb_per_s"), F("usd_per_hour_min")),
        usd_per_gib=ratio(lowest(bought, "usd_per_chip"), F("memory_gib")),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Spread:
    """The range of prices of one chip under one term, in USD per hour or per purchase."""

    term: str
    offers: int
    low_usd: float
    median_usd: float
    high_usd: float
    providers: int
    newest: date
    newest_origin: str = ""

    @property
    def age(self) -> str:
        return age(self.newest, origin=self.newest_origin)

    @property
    def term_text(self) -> str:
        """The term without underscores: reserved 1y."""
        return self.term.replace("_", " ")


def spreads(offers: Iterable[Any]) -> list[Spread]:
    """Minimum, median, maximum and number of offers for each term, per chip."""
    terms: dict[str, list[tuple[float, Any]]] = {}
    for offer in offers:
        usd = offer.usd_per_chip if offer.term == "purchase" else offer.usd_per_chip_hour
        if usd:
            term = f"purchase, {offer.kind}" if offer.term == "purchase" else offer.term
            terms.setdefault(term, []).append((usd, offer))
    return [spread(term, priced) for term, priced in sorted(terms.items())]


def printed_range(offer: Any) -> list[float]:
    """The lowest and highest purchase price that the source states, in USD; empty without them."""
    return [float(bound) for bound in (offer.purchase_usd_min, offer.purchase_usd_max) if bound is not None]


def spread(term: str, priced: list[tuple[float, Any]]) -> Spread:
    usd = [bound / offer.accelerators for _, offer in priced for bound in printed_range(offer)]
    usd += [each for each, _ in priced]
    newest = max((offer for _, offer in priced), key=lambda offer: (offer.as_of, offer.origin in OFFICIAL))
    return Spread(
        term=term,
        offers=len(priced),
        low_usd=min(usd),
        median_usd=median(each for each, _ in priced),
        high_usd=max(usd),
        providers=len({offer.provider for _, offer in priced}),
        newest=newest.as_of,
        newest_origin=newest.origin,
    )


def has_expired(as_of: date | None, on: date | None = None, origin: str = "") -> bool:
    """Whether a price is over a year old and not official, or there is none."""
    return age(as_of, on, origin) in ("unknown", "expired")


def known_on(rows: QuerySet[Any], day: date) -> QuerySet[Any]:
    """Append-only rows that the catalog already held on a day: dated and recorded by the end of it.

    For a day before the first load of this catalog, only the date of each row counts.
    """
    known = rows.filter(as_of__lte=day)
    first = CatalogLoad.objects.order_by("loaded_at").values_list("loaded_at", flat=True).first()
    day_end = timezone.make_aware(datetime.combine(day + timedelta(days=1), time.min))
    if first is None or first >= day_end:
        return known
    return known.filter(Q(recorded_at=None) | Q(recorded_at__lt=day_end))
