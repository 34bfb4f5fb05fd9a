"""Figures as people read them."""

from datetime import timedelta
from typing import Any

import pytest

from advisor.result import Option
from advisor.templatetags import units
from tests import sample_advice
from tests.clocks import TODAY


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"), (1.9, "1.90"), (14, "14.0"), (142.4, "142"), (10220, "10,200"), (0.00123456, "0.00123"),
        (9.999, "10.0"), (999.9, "1,000"), (-2.5, "-2.50"), (None, "–"), (float("nan"), "–"), ("x", "–"),
        (float("inf"), "–"), (1e-12, "0.000000000"),
    ],
)  # fmt: skip
def test_three_significant_digits(value: Any, text: str) -> None:
    assert units.sig(value) == text


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (units.dollars(1.9), "$1.90"),
        (units.dollars(-1.9), "-$1.90"),
        (units.dollars(1234.4), "$1,234"),
        (units.dollars(12.345), "$12.35"),
        (units.dollars(0.0012345), "$0.00123"),
        (units.dollars(0), "$0"),
        (units.dollars(None), "–"),
        (units.ms(38.2), "38.2\u00a0ms"),
        (units.ms(12_345), "12.3\u00a0s"),
        (units.duration(0.0000042), "4.20\u00a0µs"),
        (units.duration(0.42), "420\u00a0ms"),
        (units.duration(3), "3.00\u00a0s"),
        (units.percent(0.314), "31.4%"),
        (units.percent(0.0001), "<\u00a00.1%"),
        (units.gib(80.24), "80.2\u00a0GiB"),
        (units.watts(2100), "2.10\u00a0kW"),
        (units.given(40.0), "40"),
        (units.given(2 / 3), "0.667"),
        (units.given(12345.0), "12,345"),
        (units.given(1234.56), "1,235"),
        (units.plain(8192), "8,192"),
        (units.plain({"a_b": 1.5}), "a b 1.50"),
        (units.plain(True), "yes"),
    ],
)
def test_a_figure_has_its_unit(shown: str, text: str) -> None:
    assert shown == text


def test_an_interval_is_low_to_high_with_the_unit_once() -> None:
    intervals = {"tpot_ms": [15.0, 21.0], "ttft_ms": [9_000, 12_000], "usd_per_month": [1.5, 2], "watts": [1, None]}
    sample = sample_advice.result()["recommendations"][0]
    option = Option.read({**sample, "interval": intervals})
    assert units.low_high(option, "tpot_ms", "ms") == "15.0–21.0"
    assert units.low_high(option, "ttft_ms", "ms") == "9,000–12.0\u00a0s"
    assert units.low_high(option, "usd_per_month", "usd") == "$1.50–$2.00"
    assert units.low_high(option, "latency_ms") == units.low_high(option, "watts") == ""


@pytest.mark.parametrize(("days", "word"), [(0, "fresh"), (30, "fresh"), (31, "ageing"), (90, "ageing"), (91, "stale")])
def test_prices_age_after_thirty_days_and_are_stale_after_ninety(days: int, word: str) -> None:
    assert units.age((TODAY - timedelta(days=days)).isoformat()) == word


def test_a_missing_date_is_unknown() -> None:
    assert (units.age(None), units.age_days("soon")) == ("unknown", "–")
