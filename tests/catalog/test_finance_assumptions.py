"""The assumptions on finance have a range and a source, and few regions share a price of electricity."""

from collections import Counter
from pathlib import Path

import pytest

from catalog.loading import fixtures

ROOT = Path(__file__).parents[2] / "fixtures"
ASSUMPTIONS = {row["key"]: row for row in fixtures.listed(ROOT / "overheads.yaml", fixtures.assumption)}
REGIONS = fixtures.listed(ROOT / "regions.yaml", fixtures.region)
UNITS = {
    **{f"residual-value-year-{year}": "fraction" for year in range(1, 6)},
    "residual-superseded-ratio": "ratio",
    "resale-cost-fraction": "fraction",
    "rent-change-per-year": "fraction/year",
    "electricity-change-per-year": "fraction/year",
    "hardware-price-change-per-year": "fraction/year",
    "minimum-engineers-own": "FTE",
    "minimum-engineers-rented": "FTE",
    "rented-staff-ratio": "ratio",
    "insurance-fraction-per-year": "fraction/year",
    "purchase-lead-months": "months",
    "migration-overlap-months": "months",
    "commitment-exit-fraction": "fraction",
    "income-tax-fraction": "fraction",
    "vat-fraction": "fraction",
    "supply-accelerators-per-region": "accelerators",
}
DEFAULT = ASSUMPTIONS["electricity-usd-per-kwh"]["value"]
ON_THE_DEFAULT: set[str] = set()  # regions whose own price is the planning default
WITHOUT_A_PRICE = {  # no published price for industry was found; the default applies
    *("grid-chl", "grid-idn", "grid-isr", "grid-mex", "grid-mys", "grid-tha", "grid-zaf"),
    *("gcp-africa-south1", "gcp-asia-southeast2", "gcp-me-west1", "gcp-southamerica-west1"),
}


def price(row):
    return row.get("electricity_usd_per_kwh")


@pytest.mark.parametrize("key", UNITS)
def test_an_assumption_on_finance_has_a_range_and_a_source(key):
    row = ASSUMPTIONS[key]
    source = row["sources"]["value"]
    assert row["unit"] == UNITS[key]
    assert row["low"] <= row["value"] <= row["high"] and row["low"] < row["high"]
    assert source["source"].strip() and row["notes"].strip()
    assert source["basis"] == "estimate" or "no measured source" not in source["source"]


@pytest.mark.parametrize("end", ["low", "value", "high"])
def test_a_server_loses_value_every_year(end):
    curve = [ASSUMPTIONS[f"residual-value-year-{year}"][end] for year in range(1, 6)]
    assert 1 > curve[0] and curve[-1] > 0
    assert all(older < newer for newer, older in zip(curve, curve[1:], strict=False))


def test_a_yearly_change_is_zero_unless_the_user_says_otherwise():
    for key in ("rent", "electricity", "hardware-price"):
        assert ASSUMPTIONS[f"{key}-change-per-year"]["value"] == 0


def test_no_region_is_on_the_planning_default():
    planned = {
        row["slug"] for row in REGIONS if "planning default" in row["sources"].get("electricity", {}).get("source", "")
    }
    assert planned == ON_THE_DEFAULT
    assert {row["slug"] for row in REGIONS if price(row) == DEFAULT} <= ON_THE_DEFAULT


def test_the_regions_without_a_price_of_their_own_are_known():
    assert {row["slug"] for row in REGIONS if price(row) is None} == WITHOUT_A_PRICE


def test_at_most_nine_regions_share_a_price_and_its_source():
    shared = Counter((price(row), row["sources"]["electricity"]["source"]) for row in REGIONS if price(row))
    assert shared.most_common(1)[0][1] == 9  # the average of the United States: regions without a state
    assert len(shared) >= 50


def test_the_regions_of_a_country_agree_where_no_state_or_city_is_known():
    eu = {"Germany", "France", "Netherlands", "Ireland", "Finland", "Sweden", "Italy", "Spain", "Poland", "Belgium"}
    for country in eu:
        assert len({price(row) for row in REGIONS if row["country"] == country}) == 1
