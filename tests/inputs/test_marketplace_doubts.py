"""When marketplace prices put a listed price in doubt, and when a listed price is only expensive."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from advisor.inputs.prices.offers import EVERY_SELLER, doubted_by, is_doubtful

USD = st.floats(min_value=0.05, max_value=100.0)


def level(usd: float) -> dict[str, float]:
    return {"low_usd": usd / 2, "median_usd": usd, "high_usd": usd * 2}


def listed(usd_per_chip_hour: float, **changes: Any) -> dict[str, Any]:
    """A node of eight."""
    row = {
        "accelerator": "h100-sxm",
        "provider": "acme",
        "accelerators": 8,
        "term": "on_demand",
        "origin": "official_list",
    }
    return {**row, "usd_per_hour": 8 * usd_per_chip_hour, **changes}


@given(price=USD, own=USD)
def test_the_sellers_own_marketplace_doubts_a_price_on_either_side(price: float, own: float) -> None:
    found = doubted_by(price, level(own), None)
    assert (found is not None) == (own < price / 2 or own > price * 2)


@given(price=USD, market=USD)
def test_other_sellers_doubt_only_a_price_that_is_too_low(price: float, market: float) -> None:
    assert (doubted_by(price, None, level(market)) is not None) == (market > price * 2)


def test_an_expensive_cloud_is_not_in_doubt_and_a_price_below_half_of_the_market_is() -> None:
    market = {"h100-sxm": {"vast-ai": level(2.0), EVERY_SELLER: level(2.0)}}
    assert not is_doubtful(listed(6.88), market)
    assert is_doubtful(listed(0.50), market)
    assert not is_doubtful(listed(0.50, term="reserved_3y"), market)
    assert not is_doubtful(listed(0.50, origin="own"), market)
    assert is_doubtful(listed(6.88), {"h100-sxm": {"acme": level(2.0), EVERY_SELLER: level(2.0)}})
