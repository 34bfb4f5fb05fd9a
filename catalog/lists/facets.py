"""Facets of the lists: the values that narrow a list, each with the number of rows that it would leave.

What a row counts as (its region group, its age) is decided here once; pages and REST narrow by the same rows.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from typing import Any

from advisor.engine.terms import ANYWHERE
from catalog import clock
from catalog.loading.places import areas_of
from catalog.models import Accelerator, ApiPrice, Price
from catalog.pricing.derived import age, current_ids
from catalog.revision import revision

REGION_GROUPS = {
    "eu": "European Union",
    "us": "United States",
    "apac": "Asia-Pacific",
    "other": "other countries",
    "any": "any region",
    "unknown": "not stated",
}
AGES = {
    "fresh": "fresh: up to 30 days",
    "ageing": "ageing: 31 to 90 days",
    "stale": "stale: over 90 days",
    "expired": "expired: over a year",
}
Values = tuple[str, ...]  # of one row, in the order of the names


@dataclass(frozen=True, slots=True)
class Rows:
    """The facet values of every row of a list. A key may have several: an accelerator has those of each offer."""

    names: tuple[str, ...]
    of_key: Mapping[int, Collection[Values]]

    def matching(self, chosen: Mapping[str, Collection[str]], keys: Collection[int] | None = None) -> list[int]:
        """The keys that have values that match every chosen facet at once."""
        wanted = self.wanted(chosen)
        found = self.of_key if keys is None else (key for key in keys if key in self.of_key)
        return [key for key in found if any(fits(values, wanted) for values in self.of_key[key])]

    def counts(self, chosen: Mapping[str, Collection[str]], keys: Collection[int] | None) -> dict[str, dict[str, int]]:
        """For each facet, the rows that each of its values leaves with the choices of the other facets.

        `keys`: those that the other filters leave; None: all.
        """
        wanted = self.wanted(chosen)
        counted: dict[str, dict[str, int]] = {name: {} for name in self.names}
        for key in self.of_key if keys is None else keys:
            met: set[tuple[int, str]] = set()
            for values in self.of_key.get(key, ()):
                misses = [place for place, options in wanted if values[place] not in options]
                if not misses:
                    met.update(enumerate(values))
                elif len(misses) == 1:
                    met.add((misses[0], values[misses[0]]))
            for place, value in met:
                if value:
                    of_facet = counted[self.names[place]]
                    of_facet[value] = of_facet.get(value, 0) + 1
        return counted

    def spelled(self, name: str, asked: str) -> str:
        """A value as the catalog writes it, whatever its case."""
        place = self.names.index(name)
        known = (values[place] for rows in self.of_key.values() for values in rows)
        return next((value for value in known if value.casefold() == asked.casefold()), asked)

    def wanted(self, chosen: Mapping[str, Collection[str]]) -> list[tuple[int, frozenset[str]]]:
        return [(self.names.index(name), frozenset(values)) for name, values in chosen.items() if values]


def fits(values: Values, wanted: list[tuple[int, frozenset[str]]]) -> bool:
    return all(values[place] in options for place, options in wanted)


def region_group(region: str, country: str) -> str:
    """Where an offer holds: one of REGION_GROUPS."""
    if country:
        areas = areas_of(country)
        return next((group for group in ("eu", "us", "apac") if group in areas), "other")
    return "any" if region in ANYWHERE else "unknown"


PRICE_NAMES = ("vendor", "accelerator_kind", "region_group", "term", "origin", "age")
CHIP_NAMES = ("vendor", "kind", "region_group", "term", "origin", "age")
API_NAMES = ("provider", "family", "quantization", "hardware", "age")
COLUMNS = ("accelerator__vendor", "accelerator__kind", "region", "country", "term", "origin", "as_of")


def of_prices() -> Rows:
    """Every public price."""
    return _of_prices(revision(), clock.today())


def of_accelerators() -> Rows:
    """Every accelerator, with the values of each of its current offers."""
    return _of_accelerators(revision(), clock.today())


def of_api_prices() -> Rows:
    return _of_api_prices(revision(), clock.today())


@lru_cache(maxsize=2)
def _of_prices(state: str, day: date) -> Rows:
    rows = Price.objects.filter(organisation=None).order_by().values_list("pk", *COLUMNS)
    return Rows(PRICE_NAMES, {pk: (values_of(rest, day),) for pk, *rest in rows})


@lru_cache(maxsize=2)
def _of_accelerators(state: str, day: date) -> Rows:
    of_key: dict[int, set[Values]] = {}
    rows = Price.objects.filter(pk__in=current_ids(state, day)).order_by().values_list("accelerator", *COLUMNS)
    for pk, *rest in rows:
        of_key.setdefault(pk, set()).add(values_of(rest, day))
    for pk, vendor, kind in Accelerator.objects.order_by().values_list("pk", "vendor", "kind"):
        of_key.setdefault(pk, {(vendor, kind, "", "", "", "")})
    return Rows(CHIP_NAMES, of_key)


def clear() -> None:
    """Forgets the kept rows: tests roll their tables back."""
    for each in (_of_prices, _of_accelerators, _of_api_prices):
        each.cache_clear()


def values_of(columns: Sequence[Any], day: date) -> Values:
    """The facet values of one price, from its COLUMNS."""
    vendor, kind, region, country, term, origin, as_of = columns
    return (vendor, kind, region_group(region, country), term, origin, age(as_of, day, origin))


@lru_cache(maxsize=2)
def _of_api_prices(state: str, day: date) -> Rows:
    columns = ("provider", "model__family", "quantization", "hardware", "as_of")
    rows = ApiPrice.objects.order_by().values_list("pk", *columns)
    return Rows(API_NAMES, {pk: ((*rest, age(as_of, day)),) for pk, *rest, as_of in rows})
