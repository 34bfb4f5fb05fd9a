"""The price index: how rents of a chip or a family moved, month by month, and the levels that others published."""

import calendar
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cached_property
from statistics import median
from typing import Any

from django.utils.text import slugify

from catalog import clock
from catalog.models import Accelerator, Price, PriceLevel
from catalog.pricing.current import OFFICIAL

KNOWN_DAYS = 90  # an older price says nothing about a month
OWN = {"on_demand": "On demand, official", "spot": "Spot", "marketplace": "Marketplace"}
PUBLISHED = {
    "published_on_demand": "On demand, published level",
    "published_spot": "Spot, published level",
    "published_reserved": "Reserved, published level",
}
SERIES = OWN | PUBLISHED
SELLERS = (*OFFICIAL, "reseller")  # of spot prices; no averages, estimates or second-hand hardware
UNINDEXED_KINDS = ("cpu",)  # their instances are parts of a socket
FAMILY = "family-"


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """The level of one month."""

    month: date  # its first day
    as_of: date  # its last day, today in the current month, or the day of a published level
    usd_per_chip_hour: float
    providers: int | None = None  # None: not published
    source: str = ""

    @property
    def month_text(self) -> str:
        return f"{self.month:%Y-%m}"


@dataclass(frozen=True, kw_only=True)
class Series:
    """The levels of one kind of price, oldest first. Months without data are absent."""

    name: str
    points: Sequence[Point]

    @property
    def title(self) -> str:
        return SERIES[self.name]

    @property
    def newest(self) -> Point:
        return self.points[-1]

    @cached_property
    def by_month(self) -> dict[date, Point]:
        return {point.month: point for point in self.points}

    def change_percent(self, months: int) -> float | None:
        """The change to the newest level from that of a number of months before; None: no level in that month."""
        before = self.by_month.get(months_before(self.newest.month, months))
        return (self.newest.usd_per_chip_hour / before.usd_per_chip_hour - 1) * 100 if before else None

    @property
    def change_3_months_percent(self) -> float | None:
        return self.change_percent(3)

    @property
    def change_12_months_percent(self) -> float | None:
        return self.change_percent(12)


@dataclass(frozen=True, kw_only=True, slots=True)
class Index:
    """The series of one chip, or of all chips of a family."""

    slug: str
    name: str
    kind: str  # chip | family
    members: Sequence[str]  # slugs of the chips
    series: Sequence[Series]


def months_before(month: date, count: int) -> date:
    months = month.year * 12 + month.month - 1 - count
    return date(months // 12, months % 12 + 1, 1)


def series_of(term: str, origin: str) -> str:
    """The series that a price counts in; empty: none."""
    if origin == "marketplace":
        return "marketplace" if term in ("on_demand", "spot") else ""
    if term == "on_demand" and origin in OFFICIAL:
        return term
    return "spot" if term == "spot" and origin in SELLERS else ""


PricedRow = tuple[str, str, date, float]  # provider, chip, date, USD per chip-hour


def monthly(rows: Iterable[PricedRow], day: date) -> list[Point]:
    """The median over providers of the newest price of each that was known at the end of each month.

    The price of a provider is the median of its newest rows, then over the chips of a family. Rows older than 90 days
    do not count.
    """
    offers: dict[tuple[str, str], dict[date, list[float]]] = {}
    for provider, chip, as_of, usd in rows:
        if as_of <= day:
            offers.setdefault((provider, chip), {}).setdefault(as_of, []).append(usd)
    if not offers:
        return []
    dated = {key: sorted(days.items()) for key, days in offers.items()}
    month = min(days[0][0] for days in dated.values()).replace(day=1)
    points = []
    while month <= day:
        end = min(month.replace(day=calendar.monthrange(month.year, month.month)[1]), day)
        known: dict[str, list[float]] = {}
        for (provider, _), days in dated.items():
            place = bisect_right(days, end, key=lambda each: each[0]) - 1
            if place >= 0 and end - days[place][0] <= timedelta(days=KNOWN_DAYS):
                known.setdefault(provider, []).append(median(days[place][1]))
        if known:
            usd = median(median(prices) for prices in known.values())
            points.append(Point(month=month, as_of=end, usd_per_chip_hour=usd, providers=len(known)))
        month = months_before(month, -1)
    return points


def own_series(rows: Iterable[tuple[str, PricedRow]], day: date) -> list[Series]:
    """The series of public prices that have data."""
    sorted_in: dict[str, list[PricedRow]] = {name: [] for name in OWN}
    for name, row in rows:
        sorted_in[name].append(row)
    return [Series(name=name, points=points) for name in OWN if (points := monthly(sorted_in[name], day))]


def published_series(levels: Iterable[PriceLevel]) -> list[Series]:
    """The published levels by term; the last one of a month counts."""
    terms: dict[str, dict[date, Point]] = {}
    for level in sorted(levels, key=lambda level: level.as_of):
        month = level.as_of.replace(day=1)
        source = f"{level.source}; {level.notes}" if level.notes else level.source
        terms.setdefault(f"published_{level.term}", {})[month] = Point(
            month=month, as_of=level.as_of, usd_per_chip_hour=float(level.usd_per_chip_hour), source=source
        )
    return [Series(name=name, points=list(terms[name].values())) for name in PUBLISHED if name in terms]


def indexes(day: date | None = None, slugs: Sequence[str] | None = None) -> list[Index]:
    """The index of every chip and family with data, or of the chips and families of these slugs."""
    end = day or clock.today()
    chips = Accelerator.objects.exclude(kind__in=UNINDEXED_KINDS).values_list("slug", "name", "family")
    groups: dict[str, tuple[str, str, list[str]]] = {slug: (name, "chip", [slug]) for slug, name, _ in chips}
    for slug, _, family in chips:
        groups.setdefault(FAMILY + slugify(family), (family, "family", []))[2].append(slug)
    wanted = {slug: group for slug, group in groups.items() if slugs is None or slug in slugs}
    members = {slug for _, _, group in wanted.values() for slug in group}
    rows = priced_rows(members, end)
    levels: dict[str, list[PriceLevel]] = {}
    for level in PriceLevel.objects.filter(as_of__lte=end).select_related("accelerator"):
        levels.setdefault(level.accelerator.slug, []).append(level)
    found = []
    for slug, (name, kind, group) in wanted.items():
        series = own_series([row for member in group for row in rows.get(member, ())], end)
        if kind == "chip":
            series += published_series(levels.get(slug, ()))
        if series:
            found.append(Index(slug=slug, name=name, kind=kind, members=group, series=series))
    return sorted(found, key=lambda each: (each.kind, each.name.lower()))


def priced_rows(slugs: Iterable[str], day: date) -> Mapping[str, list[tuple[str, PricedRow]]]:
    """The public rents of these chips, each with its series: by the slug of the chip."""
    rows: Any = Price.objects.filter(
        organisation=None, usd_per_hour__gt=0, as_of__lte=day, term__in=("on_demand", "spot")
    ).order_by()
    wanted, found = set(slugs), dict[str, list[tuple[str, PricedRow]]]()
    columns = ("accelerator__slug", "provider", "term", "origin", "as_of", "usd_per_hour", "accelerators")
    for slug, provider, term, origin, as_of, usd, count in rows.values_list(*columns):
        if slug in wanted and (name := series_of(term, origin)):
            found.setdefault(slug, []).append((name, (provider, slug, as_of, float(usd) / count)))
    return found
