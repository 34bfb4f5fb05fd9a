"""A true figure over its estimate: what is drawn has the stored quantiles, whatever they are."""

import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.engine.terms import CERTAIN, SHARES, RatioDistribution, around_estimate, stored_distribution
from advisor.engine.terms.ratio_distribution import quantile_key

SETTINGS = settings(max_examples=60, deadline=None)
Z95 = NormalDist().inv_cdf(0.95)
Z = np.array([NormalDist().inv_cdf((k + 0.5) / 4096) for k in range(4096)])
steps = st.lists(st.floats(0.0, 0.5), min_size=len(SHARES), max_size=len(SHARES))


@st.composite
def quantiles(draw: st.DrawFn) -> dict[float, float]:
    logs = np.cumsum(draw(steps)) + draw(st.floats(-2.0, 0.0))
    return {share: math.exp(log) for share, log in zip(SHARES, logs, strict=True)}


@SETTINGS
@given(quantiles())
def test_draws_have_the_stored_quantiles(stored: dict[float, float]) -> None:
    drawn = RatioDistribution.of(stored).at(Z)
    assert (np.diff(drawn) >= 0).all()
    for share, ratio in stored.items():
        below, within = (drawn < ratio * (1 - 1e-9)).mean(), (drawn <= ratio * (1 + 1e-9)).mean()
        assert below - 1e-3 <= share <= within + 1e-3
        assert RatioDistribution.of(stored).quantile(share) == pytest.approx(ratio)


@SETTINGS
@given(quantiles(), st.floats(0.2, 5.0))
def test_the_probability_of_a_limit_is_the_share_of_draws_within_it(stored: dict[float, float], limit: float) -> None:
    known = RatioDistribution.of(stored)
    at_most, below = (float(share) for share in ((known.at(Z) <= limit).mean(), (known.at(Z) < limit).mean()))
    assert below - 0.003 <= known.share_within(limit) <= at_most + 0.003


@SETTINGS
@given(quantiles(), st.floats(0.3, 1.0), st.floats(1.0, 3.0))
def test_near_rows_narrow_and_never_widen(stored: dict[float, float], low: float, high: float) -> None:
    known = RatioDistribution.of(stored)
    near = known.narrowed((low, high))
    width, before = (math.log(each.ends[1] / each.ends[0]) for each in (near, known))
    assert width == pytest.approx(min(before, math.log(high / low)), abs=1e-9)
    kept = width / before if before else 1.0
    assert np.log(near.at(Z)) == pytest.approx(kept * np.log(known.at(Z)), abs=1e-9)  # the shape stays


@SETTINGS
@given(quantiles())
def test_a_time_is_the_inverse_of_its_rate(stored: dict[float, float]) -> None:
    rate = RatioDistribution.of(stored)
    assert rate.inverse().at(Z) == pytest.approx(1.0 / rate.at(-Z))
    assert rate.inverse().inverse().at(Z) == pytest.approx(rate.at(Z))


def test_two_quantiles_make_a_log_normal_distribution() -> None:
    """As calibrations of earlier versions, which store no others."""
    row = {"ttft_low_ratio": 0.739, "ttft_high_ratio": 3.097}
    known = stored_distribution(row, "ttft")
    assert known is not None and known.ends == pytest.approx((0.739, 3.097))
    middle, spread = math.log(0.739 * 3.097) / 2, math.log(3.097 / 0.739) / (2 * Z95)
    assert known.at(Z) == pytest.approx(np.exp(middle + spread * Z))
    assert stored_distribution({}, "ttft") is None


def test_every_stored_quantile_is_read() -> None:
    keys = [quantile_key("tpot", share) for share in SHARES]
    assert keys == [f"tpot_{at}_ratio" for at in ("low", "p10", "p25", "p50", "p75", "p80", "p90", "high")]
    row = {key: 0.5 + share for key, share in zip(keys, SHARES, strict=True)}
    known = stored_distribution(row, "tpot")
    assert known is not None and [known.quantile(share) for share in SHARES] == pytest.approx(list(row.values()))


def test_an_expected_value_with_a_range_has_its_median_there() -> None:
    known = around_estimate((0.9, 2.0))
    assert known.quantile(0.5) == pytest.approx(1.0) and known.ends == pytest.approx((0.9, 2.0))
    assert (CERTAIN.at(Z) == 1.0).all() and (around_estimate((1.0, 1.0)).at(Z) == 1.0).all()
    assert CERTAIN.share_within(1.0) > 0.999 and CERTAIN.share_within(0.99) < 0.001
