"""Estimates of plans for all candidates at once: growth as instances of one offer from the start, and deliveries."""

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from advisor.engine.cost import AFTER, Assumptions, Prices, service_months, term_months
from advisor.engine.plans import HOURLY, PURCHASE, TERM, Way, flat_demand, least_from
from advisor.engine.terms import OWNED, Offer, Part

Array = np.ndarray


def instances_over_horizon(
    offer: Offer,
    a: Assumptions,
    prices: Prices,
    forecast: tuple[float, ...],
    carrying: Array,
    instances: Callable[[Array], Array],
) -> Array:
    """Instances that cost as much over the whole horizon as those that the forecast needs in each month.

    Instances by the hour are released when they are not needed; others stay once they are there.
    """
    counts, place = np.unique(carrying, return_inverse=True)
    ratios = np.asarray(forecast)
    needed = np.where(ratios > 0, np.maximum(np.ceil(counts[:, None] * ratios - 1e-9), 1.0), 0.0)
    held = np.where(needed > 0, instances(needed), 0.0)
    if offer.acquisition != "own" and not term_months(offer.term):
        present = prices.present(np.arange(1, prices.months + 1)) * prices.path("rent")
        mean = held @ present / present.sum()
    else:
        largest = np.maximum.accumulate(held, axis=1)
        added = np.diff(np.concatenate([np.zeros((len(counts), 1)), largest], axis=1), axis=1)
        mean = added @ start_ratios(offer, a, prices)
    return np.asarray(mean[place].reshape(carrying.shape))


def delivery_shares(offer: Offer, a: Assumptions, prices: Prices) -> tuple[float, float]:
    """(share of a purchase, share of a rent) of the horizon's cost if something is rented until the delivery.

    1 and 0: rented, owned, or delivered at once. Both are present values, at constant load.
    """
    months = round(offer.order_months)
    if offer.acquisition != "own" or offer.term == OWNED or offer.held_instances or not 0 < months < prices.months:
        return 1.0, 0.0
    rent = prices.present(np.arange(1, prices.months + 1)) * prices.path("rent")
    return float(start_ratios(offer, a, prices)[months]), float(rent[:months].sum() / rent.sum())


def start_ratios(offer: Offer, a: Assumptions, prices: Prices) -> Array:
    """Cost of one instance from each month on over that of the whole horizon, on this offer alone."""
    if offer.acquisition != "own":
        kind, parts = (
            (TERM if term_months(offer.term) else HOURLY),
            tuple(p for p in offer.list_parts or offer.parts if p.name != AFTER)
            or (Part(name="instances", usd_per_hour=offer.usd_per_hour, group="rent"),),
        )
        return _ratios(Way(kind=kind, parts=parts, term_months=term_months(offer.term)), prices)
    running = tuple(p for p in offer.list_parts or offer.parts if p.group != "capital") or (
        Part(name="running", usd_per_hour=offer.usd_per_hour, group="running"),
    )
    way = Way(
        kind=PURCHASE if offer.capital_usd else HOURLY, parts=running, capital_usd=offer.capital_usd,
        life_months=service_months(a), resale=offer.resale or a.resale(),
    )  # fmt: skip
    return _ratios(way, prices)


@lru_cache(maxsize=4096)
def _ratios(way: Way, prices: Prices) -> Array:
    least = least_from(flat_demand(1, prices.months), [way], prices)
    return least[:-1] / least[0] if least[0] else np.ones(prices.months)
