"""Checks of prices before they are imported: what looks like a mistake is held until a person releases it.

A price is compared with the current prices of the same chip that are paid in the same way (rent, spot, purchase).
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from statistics import median
from typing import Any

from advisor.engine.terms import usd_text
from catalog.loading.fixtures import INDEX

Row = Mapping[str, Any]
LEAST_OTHERS = 3  # prices of other offers; with fewer there is no comparison
FAR = 3.5  # times the median, up or down, is suspicious
DEEPEST_SPOT = 0.1  # of the seller's own price on demand: AWS and Azure say that they go down to this
NEAR = 1.6  # times a round factor, up or down, suggests that mistake
HOSTS = (16, 8, 4)  # chips of the usual hosts
SHIFTS = (10, 100, 1000)
PLACEHOLDERS_USD = (0.5, 700.0)  # printed by some lists where nothing is on offer
CURRENT_DAYS = 366


@dataclass(frozen=True, kw_only=True, slots=True)
class Offered:
    """A current price: the offer that it is for, and USD per chip (per hour; of a purchase in all)."""

    offer: tuple[str, str]  # provider, instance
    usd_per_chip: float
    region: str = ""


Market = Mapping[tuple[str, str], Sequence[Offered]]  # by accelerator slug and way to pay


def way_of(row: Row) -> str:
    """How it is paid: purchase, spot (marketplaces too, whose prices move alike) or rent."""
    if row["term"] == "purchase":
        return "purchase"
    return "spot" if row["term"] == "spot" or row["kind"] == "marketplace" else "rent"


def usd_of(row: Row) -> float:
    """The price of the whole offer in USD, per hour if it is rented."""
    return float(row["purchase_usd"] if row["term"] == "purchase" else row["usd_per_hour"])


def market_of(rows: Iterable[Row], day: date) -> Market:
    """The current prices; `rows` have the columns of a price, with the accelerator's slug. The newest of each offer."""
    newest: dict[tuple[Any, ...], Row] = {}
    for row in (row for row in rows if row.get("origin") != INDEX):
        key = tuple(row[name] for name in ("provider", "instance", "region", "accelerator", "term"))
        if (day - row["as_of"]).days <= CURRENT_DAYS and (key not in newest or newest[key]["as_of"] < row["as_of"]):
            newest[key] = row
    market = defaultdict(list)
    for row in newest.values():
        each = usd_of(row) / row["accelerators"]
        offered = Offered(offer=(row["provider"], row["instance"]), usd_per_chip=each, region=row.get("region") or "")
        market[row["accelerator"], way_of(row)].append(offered)
    return market


def with_rows(market: Market, rows: Iterable[Row], day: date) -> Market:
    """The market and the prices on demand of a list."""
    more = market_of([row for row in rows if row["term"] == "on_demand"], day)
    return {key: [*market.get(key, ()), *more.get(key, ())] for key in {*market, *more}}


def suspicion(
    row: Row, market: Market, day: date, stored: bool = False, per_usd: Mapping[str, float] | None = None
) -> str:
    """Why the row looks like a mistake, with the comparison; empty if it does not. `stored`: it is in the market.

    per_usd: exchange rates by currency, to recognize a price that was not converted.
    """
    if row["as_of"] > day:
        return f"is dated {row['as_of']}, which is in the future"
    if row["usd_per_hour"] and row["purchase_usd"]:
        return "has a rent and a purchase price; give one of them"
    own, each = (row["provider"], row["instance"]), usd_of(row) / row["accelerators"]
    known = market.get((row["accelerator"], way_of(row)), ())
    near = [o for o in known if o.offer[0] == own[0] and _distance(each / o.usd_per_chip) < math.log(NEAR)]
    if len(near) > int(stored):
        return ""  # near the seller's price of the same chip on another day, in another region or machine
    rents = [o for o in market.get((row["accelerator"], "rent"), ()) if o.offer == own]
    if row["term"] == "spot" and _is_discount(each, [o for o in rents if o.region == row.get("region")] or rents):
        return ""
    others = [o.usd_per_chip for o in known if o.offer != own]
    return _beside(row, others, per_usd or {}) if len(others) >= LEAST_OTHERS else ""


def _beside(row: Row, others: Sequence[float], per_usd: Mapping[str, float]) -> str:
    """What is wrong with the price beside the others of the chip."""
    chips, middle = row["accelerators"], median(others)
    each = usd_of(row) / chips
    ratio = each / middle
    unit = "per chip" if row["term"] == "purchase" else "per chip-hour"
    compared = f"{usd_text(each)} {unit}, while the median of {len(others)} other prices is {usd_text(middle)}"
    if usd_of(row) in PLACEHOLDERS_USD and _distance(ratio) > math.log(2):
        return f"looks like a placeholder: {compared}"
    if _distance(ratio) < math.log(FAR):
        return ""
    if chips > 1 and _distance(ratio * chips) < math.log(FAR):
        return f"looks like the price of one chip instead of {chips}: {compared}"
    several = [n for n in HOSTS if n > chips and _distance(ratio * chips / n) < math.log(NEAR)]
    if several:
        n = min(several, key=lambda n: _distance(ratio * chips / n))
        return f"looks like the price of {n} chips instead of {chips}: {compared}"
    currency = min(per_usd, key=lambda code: _distance(ratio / per_usd[code]), default="")
    if currency and per_usd[currency] > FAR and _distance(ratio / per_usd[currency]) < math.log(NEAR):
        return f"looks like a price in {currency} that was not converted to USD: {compared}"
    shift = next((s for s in SHIFTS if min(_distance(ratio / s), _distance(ratio * s)) < math.log(NEAR)), None)
    if shift is not None:
        return f"looks like a decimal point in the wrong place: {compared}"
    times = f"{ratio:,.1f} times" if ratio > 1 else f"{1 / ratio:,.1f} times below"
    return f"is {times} the usual price: {compared}; check the unit, the currency and the decimal point"


def _is_discount(usd_per_chip: float, on_demand: Sequence[Offered]) -> bool:
    """Whether a spot price is a usual part of what the seller asks for the same machine on demand."""
    return bool(on_demand) and DEEPEST_SPOT <= usd_per_chip / median(o.usd_per_chip for o in on_demand) <= 1.0


def _distance(ratio: float) -> float:
    return abs(math.log(ratio))
