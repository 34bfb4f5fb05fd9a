"""Figures that follow from others, as columns to sort and narrow by, in pages and REST alike."""

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

AGEING_DAYS, STALE_DAYS, EXPIRED_DAYS = 30, 90, 365  # an offer that has expired wins no verdict
NO_CURRENT_PRICE = "no current price"
DERIVED = (
    *("bf16_tflops", "fp8_tflops", "tflops_per_watt", "flops_per_byte", "usd_per_hour_min", "gb_per_s_per_usd_hour"),
    *("usd_per_gib", "newest_offer"),
)


def today() -> date:
    return timezone.localdate()


def age(as_of: date | None, on: date | None = None) -> str:
    """How old is a figure on a day: fresh, ageing after 30 days, stale after 90, expired after twelve months?"""
    if as_of is None:
        return "unknown"
    days = ((on or today()) - as_of).days
    limits = ((AGEING_DAYS, "fresh"), (STALE_DAYS, "ageing"), (EXPIRED_DAYS, "stale"))
    return next((word for limit, word in limits if days <= limit), "expired")


def real(expression: Combinable | str) -> Cast:
    return Cast(expression, FloatField())


def ratio(above: Combinable, below: Combinable) -> Combinable:
    """A quotient that is nothing where the divisor is nothing."""
    return above / NullIf(below, 0.0)


def rate_tflops(dtype: str) -> Cast:
    """The dense rate of one dtype; nothing where the chip has none."""
    return real(KeyTextTransform(dtype, "dense_tflops"))


def current_offers() -> QuerySet[Price]:
    """The newest row of every public offer that is not older than twelve months, with its price by the chip."""
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
            usd_per_chip_hour=ratio(real("usd_per_hour"), real("accelerators")),
            usd_per_chip=ratio(real("purchase_usd"), real("accelerators")),
        )
    )


def lowest(offers: QuerySet[Any], key: str) -> Subquery:
    return Subquery(offers.order_by(key).values(key)[:1], output_field=FloatField())


def with_derived(chips: QuerySet[Accelerator]) -> QuerySet[Accelerator]:
    """Accelerators with every figure of DERIVED; rates in BF16, or FP16 where there is no BF16."""
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
    """What one chip costs by one term: an hour of it, or the whole of it."""

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
    def way(self) -> str:
        """The term as people write it: reserved 1y."""
        return self.term.replace("_", " ")


def spreads(offers: Iterable[Any]) -> list[Spread]:
    """Minimum, median, maximum and number of offers by term, each normalised to one chip."""
    terms: dict[str, list[tuple[float, Any]]] = {}
    for offer in offers:
        usd = offer.usd_per_chip if offer.term == "purchase" else offer.usd_per_chip_hour
        if usd:
            term = f"purchase, {offer.kind}" if offer.term == "purchase" else offer.term
            terms.setdefault(term, []).append((usd, offer))
    return [spread(term, priced) for term, priced in sorted(terms.items())]


def printed_range(offer: Any) -> list[float]:
    """The low and the high of a purchase, where its source prints them."""
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
    """Whether no offer is younger than twelve months on a day: the one rule of lists, pages and advice."""
    return age(newest_offer, on) in ("unknown", "expired")


def known_on(rows: QuerySet[Any], day: date) -> QuerySet[Any]:
    """Of append-only rows those that were known on a day: true by then, and recorded by then.

    A day from before this catalog was first loaded could not be asked about; there the dates of the rows decide alone.
    """
    known = rows.filter(as_of__lte=day)
    first = CatalogLoad.objects.order_by("loaded_at").values_list("loaded_at", flat=True).first()
    over = timezone.make_aware(datetime.combine(day + timedelta(days=1), time.min))
    if first is None or first >= over:
        return known
    return known.filter(Q(recorded_at=None) | Q(recorded_at__lt=over))
