"""Dollars over time, whole instances and watts, against numbers worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest

from advisor.engine.cost.hourly import own_parts, present_value, total_usd_per_hour, usd_per_mtok, watts_per_chip
from advisor.engine.search.table import instances_needed
from tests.engine.catalog_sample import ASSUMED


def needed(replicas: int, replica_chips: int, offer_chips: int, stages: int = 1) -> float:
    return float(instances_needed(np.array(float(replicas)), replica_chips, offer_chips, stages))


def test_present_value_without_a_discount_is_the_sum():
    assert present_value(100.0, 36, 0.0) == 3600


def test_present_value_of_a_year_at_eight_percent():
    by_hand = sum(100 / 1.08 ** (month / 12) for month in range(1, 13))
    assert present_value(100.0, 12, 0.08) == pytest.approx(by_hand)


def test_a_discount_of_almost_nothing_is_worth_almost_the_sum():
    """100 a month for 48 months at a billionth a year: 4,800 less half of 48 x 49 months' discount, to the cent."""
    assert present_value(100.0, 48, 1e-9) == pytest.approx(4800 - 100 * 48 * 49 / 2 * 1e-9 / 12, abs=1e-9)


def test_owning_recovers_the_purchase_less_its_residual_over_its_life():
    plain = replace(
        ASSUMED, network_fraction=0.0, maintenance_fraction=0.0, colocation_usd_per_kw_month=0.0,
        staff_usd_per_accelerator_year=0.0, usd_per_kwh=0.0, months=60,
    )  # fmt: skip
    monthly = total_usd_per_hour(own_parts(100_000, 8, 6000.0, plain)) * 730
    residual_today = 10_000 / 1.08**5
    assert present_value(monthly, 60, 0.08) + residual_today == pytest.approx(100_000)


def test_owning_adds_space_upkeep_and_people():
    free = replace(ASSUMED, discount_fraction=0.0, usd_per_kwh=0.0, months=60)
    monthly = total_usd_per_hour(own_parts(120_000, 8, 6000.0, free)) * 730
    assert monthly == pytest.approx(132_000 * 0.9 / 60 + 150 * 6 + 120_000 * 0.05 / 12 + 500 * 8 / 12)


def test_owning_adds_the_metered_power_that_a_colocation_rate_leaves_out():
    """6 kW x PUE 1.3 = 7.8 kW at 0.10 USD/kWh: 0.78 USD an hour."""
    dear, free = ASSUMED, replace(ASSUMED, usd_per_kwh=0.0)
    added = total_usd_per_hour(own_parts(120_000, 8, 6000.0, dear)) - total_usd_per_hour(
        own_parts(120_000, 8, 6000.0, free)
    )
    assert added == pytest.approx(0.78)


def test_replicas_share_an_instance_only_where_they_fit():
    assert [needed(n, 2, 8) for n in (1, 4, 5)] == [1, 1, 2]
    assert needed(3, 8, 8) == 3
    assert [needed(n, 3, 8) for n in (2, 3)] == [1, 2]


def test_a_pipeline_takes_whole_instances_and_no_stage_straddles_two():
    assert needed(1, 16, 8, stages=2) == 2
    assert needed(1, 32, 12, stages=4) == 4
    assert needed(3, 4, 1, stages=4) == 12


def test_a_group_larger_than_its_instance_takes_several():
    assert needed(2, 16, 4) == 8


def test_dollars_per_million_tokens():
    assert usd_per_mtok(np.array(3.6), 1000.0) == pytest.approx(1.0)
    assert usd_per_mtok(np.array(3.6), 0.0) == np.inf


def test_power_goes_from_idle_to_tdp_and_a_chip_without_a_figure_has_none():
    chips = np.array([[700.0, 100.0], [700.0, np.nan], [np.nan, np.nan]])
    drawn = watts_per_chip(chips[:, 0], chips[:, 1], np.array(0.5), ASSUMED)
    assert drawn[:2] == pytest.approx([100 + 300 + 100, 105 + 297.5 + 100])
    assert np.isnan(drawn[2])
