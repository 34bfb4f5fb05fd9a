"""Which prices hold on a day: the one rule for the catalog's lists, the REST API and advice."""

from collections.abc import Iterable, Sequence
from datetime import date
from typing import Any, Protocol, TypeVar

from advisor.engine.terms import ANYWHERE
from catalog.loading.fixtures import INDEX, PER_CHIP

AGEING_DAYS, STALE_DAYS, EXPIRED_DAYS = 30, 90, 365  # an expired offer is never recommended
OFFICIAL = ("official_list", "provider_api")  # origins whose prices hold until the provider prints another: no expiry
REPLACED_DAYS = 45  # a price this much newer replaces the seller's older ones under other names and terms
AGES = {f"up to {days} days": days for days in (AGEING_DAYS, STALE_DAYS, EXPIRED_DAYS)}
OLDER = "older"
PURCHASE = "purchase"
BOOKS = {"marketplace": "marketplace", "serverless": "serverless"}  # kinds that a seller prices apart from its others
LISTED = ("on_demand", "reserved_1y", "reserved_3y")  # terms of one price list
# what a seller never sells below a term that binds the buyer longer, or that the seller can interrupt
FREEDOM = {"on_demand": 3, "reserved_1y": 2, "reserved_3y": 1, "spot": 0}


class Quote(Protocol):
    """What the rule reads of a price: a row of the catalog, or its values."""

    @property
    def organisation_id(self) -> int | None: ...
    @property
    def provider(self) -> str: ...
    @property
    def instance(self) -> str: ...
    @property
    def region(self) -> str: ...
    @property
    def accelerator_id(self) -> int: ...
    @property
    def accelerators(self) -> int: ...
    @property
    def unit(self) -> str: ...
    @property
    def term(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def origin(self) -> str: ...
    @property
    def as_of(self) -> date: ...
    @property
    def usd_per_hour(self) -> Any: ...
    @property
    def purchase_usd(self) -> Any: ...


COLUMNS = tuple(name for name in vars(Quote) if isinstance(vars(Quote)[name], property))
Row = TypeVar("Row", bound=Quote)


def standing(rows: Iterable[Row], day: date) -> list[Row]:
    """The prices that nothing newer replaces on a day, in the order given. Expired ones are among them.

    Of each offer the newest. A rent gives way to a newer price of the same seller and chip (`_replaces`). Public prices
    and each organization's own are judged apart. The order of the rows does not matter.
    """
    offers = newest([row for row in rows if row.as_of <= day])
    of_seller: dict[tuple[object, ...], list[Row]] = {}
    for row in offers:
        if row.term != PURCHASE and row.origin != INDEX:
            of_seller.setdefault(_seller(row), []).append(row)
    return [
        row
        for row in offers
        if row.term == PURCHASE or not any(_replaces(other, row, day) for other in of_seller.get(_seller(row), ()))
    ]


def standing_first(rows: Iterable[Row], day: date) -> list[Row]:
    """The prices of `standing` that come first in a list: not expired, and of a product none that is clearly newer.

    A product to buy is a chip and what it is sold as: a card, a server, a rack. Its prices at other sellers and under
    other names replace nothing, but one REPLACED_DAYS older than the newest says what it did cost.
    """
    found = [row for row in standing(rows, day) if not has_expired(row, day)]
    last: dict[tuple[object, ...], date] = {}
    for row in found:
        last[_product(row)] = max(last.get(_product(row), row.as_of), row.as_of)
    return [row for row in found if row.term != PURCHASE or (last[_product(row)] - row.as_of).days <= REPLACED_DAYS]


def newest(rows: Sequence[Row]) -> list[Row]:
    """The newest row of each offer. An offer whose newest row has no price is no longer made."""
    last: dict[tuple[object, ...], date] = {}
    for row in rows:
        last[_offer(row)] = max(last.get(_offer(row), row.as_of), row.as_of)
    return [row for row in rows if row.as_of == last[_offer(row)] and (row.usd_per_hour or row.purchase_usd)]


def _offer(row: Quote) -> tuple[object, ...]:
    level = row.origin == INDEX  # of several sellers: no offer, even under the name of one
    return row.organisation_id, row.provider, row.instance, row.region, row.accelerator_id, row.term, level


def _product(row: Quote) -> tuple[object, ...]:
    return row.organisation_id, row.accelerator_id, row.term, row.kind, row.accelerators


def _seller(row: Quote) -> tuple[object, ...]:
    return row.organisation_id, row.provider, row.accelerator_id, BOOKS.get(row.kind, "")


def _replaces(newer: Quote, older: Quote, day: date) -> bool:
    """Whether a seller's newer rent makes an older one of the same chip obsolete.

    A price list replaces the whole list before it: all its terms, instance names and regions. One that prints a price
    per chip says what every instance costs, so it needs no distance in time, nor does it get any. On demand is never
    cheaper than the same seller's newer commitment or spot price, so such an older price is obsolete at any distance.
    """
    if newer.as_of <= older.as_of or (has_expired(newer, day) and not has_expired(older, day)):
        return False
    everywhere = newer.region in ANYWHERE
    together = everywhere or older.region in ANYWHERE or newer.region == older.region
    if together and newer.term == older.term and (is_per_chip(newer) or is_per_chip(older)):
        return True
    if (newer.as_of - older.as_of).days > REPLACED_DAYS and (everywhere or newer.region == older.region):
        listed = newer.term in LISTED and older.term in LISTED
        if (listed or newer.term == older.term) and _same_size(newer, older):
            return True
    freer = FREEDOM.get(newer.term, 9) < FREEDOM.get(older.term, -1)
    return together and freer and usd_per_chip_hour(older) < usd_per_chip_hour(newer)


def _same_size(a: Quote, b: Quote) -> bool:
    return a.accelerators == b.accelerators or is_per_chip(a) or is_per_chip(b)


def is_per_chip(row: Quote) -> bool:
    """Whether the price is printed for one chip, however many are sold together."""
    return row.unit == "chip" or PER_CHIP in row.instance


def usd_per_chip_hour(row: Quote) -> float:
    return float(row.usd_per_hour or 0) / row.accelerators


def age(as_of: date | None, on: date, origin: str = "") -> str:
    """fresh, ageing (over 30 days), stale (over 90 days) or expired (over a year) on a day; unknown without a date.

    A price of an official origin never expires: it stays stale.
    """
    if as_of is None:
        return "unknown"
    days = (on - as_of).days
    limits = ((AGEING_DAYS, "fresh"), (STALE_DAYS, "ageing"), (EXPIRED_DAYS, "stale"))
    return next((word for limit, word in limits if days <= limit), "stale" if origin in OFFICIAL else "expired")


def by_age(dates: Iterable[date], day: date) -> dict[str, int]:
    """How many dates are up to 30, 90 and 365 days before a day, and before that; all four, also if 0."""
    counts = dict.fromkeys((*AGES, OLDER), 0)
    for each in dates:
        counts[next((name for name, most in AGES.items() if (day - each).days <= most), OLDER)] += 1
    return counts


def has_expired(row: Quote, day: date) -> bool:
    """Whether a price is over a year old; official rents never expire, a launch price does."""
    return age(row.as_of, day, "" if row.term == PURCHASE else row.origin) == "expired"
