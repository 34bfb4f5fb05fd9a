"""Derived figures of accelerators and prices, as query columns that pages and REST can sort and filter by."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from statistics import median
from typing import Any

from django.db.models import Exists, F, FloatField, Max, OuterRef, Q, QuerySet, Subquery
from django.db.models.expressions import Combinable
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast, Coalesce, NullIf
from django.utils import timezone

from catalog.models import Accelerator, CatalogLoad, Price

AGEING_DAYS, STALE_DAYS, EXPIRED_DAYS = 30, 90, 365  # an expired offer is never recommended
NO_CURRENT_PRICE = "no current price"
DERIVED = (
    *("bf16_tflops", "fp8_tflops", "tflops_per_watt", "flops_per_byte", "usd_per_hour_min", "gb_per_s_per_usd_hour"),
    *("usd_per_gib", "newest_offer"),
)


def today() -> date:
    return timezone.localdate()


def age(as_of: date | None, on: date | None = None) -> str:
    """fresh, ageing (over 30 days), stale (over 90 days) or expired (over a year) on a day; unknown without a date."""
    if as_of is None:
        return "unknown"
    days = ((on or today()) - as_of).days
    limits = ((AGEING_DAYS, "fresh"), (STALE_DAYS, "ageing"), (EXPIRED_DAYS, "stale"))
    return next((word for limit, word in limits if days <= limit), "expired")


def as_float(expression: Combinable | str) -> Cast:
    return Cast(expression, FloatField())


def ratio(numerator: Combinable, denominator: Combinable) -> Combinable:
    """A quotient; NULL where the denominator is zero or NULL."""
    return numerator / NullIf(denominator, 0.0)


def rate_tflops(dtype: str) -> Cast:
    """The dense rate in one dtype, in TFLOP/s; NULL where the chip does not support it."""
    return as_float(KeyTextTransform(dtype, "dense_tflops"))


def current_offers() -> QuerySet[Price]:
    """The newest row of each public offer, at most one year old, with its price per chip."""
    newer = Price.objects.filter(
        organisation=None,
        as_of__lte=today(),
        as_of__gt=OuterRef("as_of"),
        **{key: OuterRef(key) for key in ("provider", "instance", "region", "accelerator", "term")},
    )
    return (
        Price.objects.filter(organisation=None, as_of__lte=today(), as_of__gte=today() - timedelta(days=EXPIRED_DAYS))
        .filter(~Exists(newer))
        .annotate(
            usd_per_chip_hour=ratio(as_float("usd_per_hour"), as_float("accelerators")),
            usd_per_chip=ratio(as_float("purchase_usd"), as_float("accelerators")),
        )
    )


def lowest(offers: QuerySet[Any], column: str) -> Subquery:
    return Subquery(offers.order_by(column).values(column)[:1], output_field=FloatField())


def with_derived(chips: QuerySet[Accelerator]) -> QuerySet[Accelerator]:
    """Accelerators with every figure of DERIVED. Ratios use the BF16 rate, or FP16 where there is no BF16."""
    offers = current_offers().filter(accelerator=OuterRef("pk"))
    rented = offers.filter(term="on_demand", usd_per_hour__gt=0)
    bought = offers.filter(term="purchase", kind="chip", purchase_usd__gt=0)
    public = Price.objects.filter(accelerator=OuterRef("pk"), organisation=None, as_of__lte=today())
    dated = public.order_by().values("accelerator").annotate(newest=Max("as_of"))
    return chips.annotate(
        bf16_tflops=Coalesce(rate_tflops("bf16"), rate_tflops("fp16")),
        fp8_tflops=rate_tflops("fp8"),
        usd_per_hour_min=lowest(rented, "usd_per_chip_hour"),
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

    @property
    def age(self) -> str:
        return age(self.newest)

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
    return Spread(
        term=term,
        offers=len(priced),
        low_usd=min(usd),
        median_usd=median(each for each, _ in priced),
        high_usd=max(usd),
        providers=len({offer.provider for _, offer in priced}),
        newest=max(offer.as_of for _, offer in priced),
    )


def has_expired(newest_offer: date | None, on: date | None = None) -> bool:
    """Whether the newest offer is over a year old, or there is none. Lists, pages and advice all use this rule."""
    return age(newest_offer, on) in ("unknown", "expired")


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
