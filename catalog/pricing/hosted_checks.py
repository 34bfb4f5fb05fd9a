"""Checks of hosted models: prices and published speeds that are far from those of the other providers.

A model is compared with its newest price at other providers that have not withdrawn it.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from statistics import median
from typing import Any

from catalog.models import Accelerator, ApiPrice
from catalog.pricing.checks import CURRENT_DAYS, LEAST_OTHERS

FAR_PRICE = 8.0  # times the median, up or down; a judgment, not fitted
FAR_SPEED = 10.0  # the same for speeds
PRICES = {"usd_per_mtok_input": "input", "usd_per_mtok_output": "output"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Hosted:
    """A current endpoint of a model."""

    provider: str
    usd_per_mtok: Mapping[str, float]
    tokens_per_s: float | None


Market = Mapping[str, Sequence[Hosted]]  # by slug of the model


def market_of(rows: Iterable[ApiPrice], day: date) -> Market:
    """The current endpoints of each model; `rows` are the newest of each endpoint."""
    market = defaultdict(list)
    for row in rows:
        if not row.withdrawn and (day - row.as_of).days <= CURRENT_DAYS:
            usd = {name: float(getattr(row, name)) for name in PRICES}
            market[row.model.slug].append(
                Hosted(provider=row.provider, usd_per_mtok=usd, tokens_per_s=row.output_tokens_per_s)
            )
    return market


def with_rows(market: Market, rows: Iterable[Mapping[str, Any]]) -> Market:
    """The market and the rows of a list, whose other providers are part of it."""
    wider = defaultdict(list, {model: list(known) for model, known in market.items()})
    for row in rows:
        if not row.get("withdrawn") and all(each.provider != row["provider"] for each in wider[row["model"]]):
            usd = {name: float(row[name]) for name in PRICES}
            wider[row["model"]].append(Hosted(provider=row["provider"], usd_per_mtok=usd, tokens_per_s=None))
    return wider


def jump(old: ApiPrice, row: Mapping[str, Any]) -> str:
    """Why a price is too far from the last one of the same endpoint; empty if it is not."""
    for name, tokens in PRICES.items():
        before, now = float(getattr(old, name)), float(row[name])
        if before > 0 and now > 0 and abs(math.log(now / before)) >= math.log(FAR_PRICE):
            return f"has a price of {now:g} USD per million {tokens} tokens, after {before:g} on {old.as_of}"
    return ""


def stored_suspicions(day: date) -> list[str]:
    """The current endpoints whose price or speed looks like a mistake, in words."""
    rows = ApiPrice.objects.select_related("model").order_by("as_of", "pk")
    newest = {(row.provider, row.name): row for row in rows}.values()
    market = market_of(newest, day)
    found = []
    for row in (row for row in newest if not row.withdrawn and (day - row.as_of).days <= CURRENT_DAYS):
        given = {name: getattr(row, name) for name in (*PRICES, "provider", "output_tokens_per_s")}
        if why := suspicion({**given, "model": row.model.slug}, market):
            found.append(f"{row.provider} {row.name}: {why}")
    return found


def suspicion(row: Mapping[str, Any], market: Market) -> str:
    """Why a price or a speed looks like a mistake beside other providers; empty if it does not."""
    others = [each for each in market.get(row["model"], ()) if each.provider != row["provider"]]
    for name, tokens in PRICES.items():
        usual = [each.usd_per_mtok[name] for each in others if each.usd_per_mtok[name] > 0]
        if why := _beside(float(row[name]), usual, FAR_PRICE):
            return f"has a price of {float(row[name]):g} USD per million {tokens} tokens, {why}"
    return speed_suspicion(row, others)


def speed_suspicion(row: Mapping[str, Any], others: Sequence[Hosted]) -> str:
    """Why a published speed looks like a mistake beside other providers; empty if it does not or there is none.

    Vendors that host models on chips of their own may be far faster, never far slower.
    """
    speed = row.get("output_tokens_per_s")
    usual = [each.tokens_per_s for each in others if each.tokens_per_s]
    why = _beside(float(speed), usual, FAR_SPEED) if speed else ""
    if why and float(speed or 0) > median(usual) and row["provider"] in chip_vendors():
        return ""
    return f"has a published speed of {float(speed):g} tokens/s, {why}" if speed and why else ""


def chip_vendors() -> set[str]:
    """Vendors that offer their own accelerators through a hosted API, such as Groq and Cerebras."""
    return {vendor for vendor, ways in Accelerator.objects.values_list("vendor", "bought_as") if "api" in ways}


def _beside(value: float, usual: Sequence[float], far: float) -> str:
    if len(usual) < LEAST_OTHERS or value <= 0:
        return ""
    middle = median(usual)
    if abs(math.log(value / middle)) < math.log(far):
        return ""
    return f"while the median of {len(usual)} other endpoints is {middle:g}"
