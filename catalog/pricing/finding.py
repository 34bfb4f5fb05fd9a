"""What a question about prices means: which chips, which place, and in which currency to answer."""

import csv
import re
from typing import Any

from django.db.models import F, FloatField, Q, QuerySet, Value
from django.db.models.functions import Cast

from advisor.engine.terms import ANYWHERE
from catalog import clock
from catalog.loading.fixtures import ORIGINS, USD
from catalog.loading.places import codes_in
from catalog.models import Accelerator, ExchangeRate, Price
from catalog.shipped import FIXTURES

RATES = FIXTURES / "exchange_rates.csv"


def origin_words(origin: str) -> str:
    """Where a price comes from, in words: provider's price list."""
    return re.sub(r"^(the|an|a) ", "", ORIGINS.get(origin, origin))


def words_of(text: str) -> set[str]:
    return set(re.findall(r"[a-z0-9.+]+", text.lower()))


def chips_named(text: str) -> list[str]:
    """The slugs of the chips that a text means.

    A slug or a display name means that chip alone. Otherwise every chip whose name has all the words counts, so H100 is
    every H100; then those of a family with this name; then those whose name contains the text.
    """
    asked = text.strip().lower()
    if not asked:
        return []
    chips = list(Accelerator.objects.values_list("slug", "name", "vendor", "family"))
    words, plain = words_of(asked), re.sub(r"[^a-z0-9]", "", asked)
    for found in (
        [slug for slug, name, _, _ in chips if asked in (slug, name.lower())],
        [slug for slug, *rest in chips if words and words <= words_of(" ".join([slug, *rest[:2]]))],
        [slug for slug, _, _, family in chips if asked == family.lower()],
        [slug for slug, name, _, _ in chips if plain and plain in re.sub(r"[^a-z0-9 ]", "", f"{slug} {name}".lower())],
    ):
        if found:
            return sorted(found)
    return []


def is_place(text: str) -> bool:
    """Whether a text is an area, a country or the region of a price."""
    return bool(codes_in(text.strip())) or Price.objects.filter(organisation=None, region__iexact=text.strip()).exists()


def in_place(prices: QuerySet[Price], place: str, with_anywhere: bool) -> QuerySet[Price]:
    """Prices in an area, a country or a region, and those that hold anywhere; none if the place is unknown."""
    if not is_place(place):
        return prices.none()
    there = Q(country__in=codes_in(place.strip())) | Q(region__iexact=place.strip())
    return prices.filter(there | anywhere() if with_anywhere else there)


def anywhere() -> Q:
    """The condition for a price that holds in every region: it names neither a region nor a country."""
    return Q(region__in=ANYWHERE, country="")


def newest_rates() -> dict[str, ExchangeRate]:
    """The newest exchange rate of each currency."""
    rows = ExchangeRate.objects.filter(as_of__lte=clock.today()).order_by("currency", "as_of")
    return {row.currency: row for row in rows}


def shipped_currencies() -> list[str]:
    """The currencies that the API description names: those of the shipped exchange rates."""
    if not RATES.exists():
        return [USD]
    with RATES.open(newline="", encoding="utf-8") as stream:
        return sorted({USD, *(row["currency"] for row in csv.DictReader(stream))})


def in_currency(prices: QuerySet[Price], rate: ExchangeRate | None) -> QuerySet[Price]:
    """Prices per chip in the currency of a rate as well; None is USD."""
    factor = float(rate.per_usd) if rate else 1.0

    def converted(name: str) -> Any:
        return Cast(F(name) * Value(factor), FloatField())

    return prices.annotate(
        converted_to=Value(rate.currency if rate else USD),
        converted_per_chip_hour=converted("usd_per_chip_hour"),
        converted_per_chip_month=converted("usd_per_chip_month"),
        converted_per_chip=converted("usd_per_chip"),
    )
