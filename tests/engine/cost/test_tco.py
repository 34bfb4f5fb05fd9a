"""Money over time: parts add up to the cent, more never costs less, and nothing served or nothing paid is handled."""

import math
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.engine.cost.hourly import (
    HOURS_PER_MONTH,
    Assumptions,
    capital_shares,
    capital_usd,
    own_parts,
    present_value,
    rent_parts,
    service_months,
    service_usd,
    services,
    total_usd_per_hour,
)
from advisor.engine.cost.tco import (
    Use,
    break_even_share,
    break_even_tokens,
    cents,
    combined_ratio,
    in_cents,
    waterfall,
)
from advisor.engine.plans.plan import Overheads, Plan, best_plan, break_even_month, flat_demand, flows
from advisor.engine.plans.ways import HOURLY, PURCHASE, Demand, Way
from advisor.engine.terms.machines.offer import Part
from tests.engine.catalog_sample import ASSUMED

dollars = st.floats(0, 1e8, allow_nan=False)
shares = st.floats(0, 1)
assumed = st.builds(
    replace,
    st.just(ASSUMED),
    life_years=st.sampled_from([0.5, 1, 3, 5, 5.5, 8]),
    residual_fraction=shares,
    discount_fraction=st.floats(0, 0.5),
    pue=st.floats(1, 2.5),
    usd_per_kwh=st.floats(0, 1),
    network_fraction=shares,
    storage_fraction=shares,
    spare_fraction=shares,
)
PRICES = (
    "usd_per_kwh", "pue", "maintenance_fraction", "network_fraction", "storage_fraction", "spare_fraction",
    "colocation_usd_per_kw_month", "staff_usd_per_accelerator_year",
)  # fmt: skip


def plan_of_server(purchase: float, watts: float, a: Assumptions = ASSUMED, demand: Demand | None = None) -> Plan:
    """One purchased server, or as many as the demand asks for, over the horizon of the assumptions."""
    way = Way(
        kind=PURCHASE, parts=tuple(p for p in own_parts(purchase, 8, watts, a) if p.group == "running"),
        capital_usd=capital_usd(purchase, a), capital_shares=capital_shares(purchase, a), life_months=service_months(a),
        resale=a.resale(),
    )  # fmt: skip
    plan = best_plan(demand or flat_demand(1, a.prices.months), [way], a.prices, Overheads())
    assert plan is not None
    return plan


@given(dollars, st.floats(0, 2e4), assumed)
def test_the_parts_of_owning_add_up_to_the_cent(purchase, watts, a):
    parts = own_parts(purchase, 8, watts, a)
    monthly = [part.usd_per_hour * HOURS_PER_MONTH for part in parts]
    total = total_usd_per_hour(own_parts(purchase, 8, watts, a)) * HOURS_PER_MONTH
    assert sum(in_cents(monthly)) == cents(math.fsum(monthly))
    assert sum(in_cents(monthly, total)) == cents(total)


@given(st.lists(st.floats(0, 1e9), max_size=30))
def test_cents_never_lose_a_cent(amounts):
    assert sum(in_cents(amounts), Decimal(0)) == cents(math.fsum(amounts))


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=30), st.sampled_from([-1e-9, 0.0, 1e-9]))
def test_half_a_cent_goes_where_the_total_beside_the_parts_has_it(thousandths, noise):
    """The same month is computed from its payments and from its parts, which differ in the last digits."""
    amounts = [one / 1000 for one in thousandths]
    total = math.fsum(amounts) + noise
    found = in_cents(amounts, total)
    assert sum(found) == cents(total)
    assert all(abs(usd - Decimal(repr(one))) <= Decimal("0.01") for usd, one in zip(found, amounts, strict=True))


@given(dollars, st.floats(0, 2e4), assumed, st.integers(1, 120))
def test_the_cash_of_buying_is_worth_what_its_hours_cost(purchase, watts, a, months):
    """Beyond one life the plan may cost less: it may renew early, so that the last machine sells better."""
    a = replace(a, months=months)
    monthly = total_usd_per_hour(own_parts(purchase, 8, watts, a)) * HOURS_PER_MONTH
    paid = sum(f.present_usd for f in flows(plan_of_server(purchase, watts, a)))
    worth = present_value(monthly, months, a.discount_fraction)
    assert paid <= worth * (1 + 1e-9) + 1e-4
    if months <= service_months(a):
        assert paid == pytest.approx(worth, rel=1e-9, abs=1e-4)


@given(dollars, st.floats(0, 2e4), st.sampled_from(PRICES), st.floats(0, 3))
def test_no_price_rises_and_makes_owning_cheaper(purchase, watts, name, more):
    dearer = replace(ASSUMED, **{name: getattr(ASSUMED, name) + more})
    assert (
        total_usd_per_hour(own_parts(purchase, 8, watts, dearer))
        >= total_usd_per_hour(own_parts(purchase, 8, watts, ASSUMED)) - 1e-9
    )


@given(dollars, dollars, st.sampled_from(["on_demand", "spot", "reserved_3y"]), st.floats(0, 0.9))
def test_rent_rises_with_its_rate_and_its_interruptions(rate, more, term, lost):
    a = replace(ASSUMED, spot_lost_fraction=lost)
    lower, higher = (total_usd_per_hour(rent_parts(usd, term, a)) for usd in (rate, rate + more))
    assert higher >= lower * (1 - 1e-12) >= rate * (1 - 1e-9)


def test_a_spot_hour_that_serves_carries_the_hours_that_are_lost():
    a = replace(ASSUMED, spot_lost_fraction=0.2)
    assert total_usd_per_hour(rent_parts(8.0, "spot", a)) == pytest.approx(10.0)
    assert total_usd_per_hour(rent_parts(8.0, "on_demand", a)) == 8.0


def test_what_stands_beside_an_instance_is_counted():
    a = replace(
        ASSUMED, cloud_addon_fraction=0.25, egress_bytes_per_output_token=200,
        provider_egress_usd_per_byte={"aws": 9e-11, "free": 0.0},
        provider_storage_usd_per_byte_month={"aws": 2.3e-11},
    )  # fmt: skip
    assert [p.name for p in rent_parts(4.0, "on_demand", a)] == ["instances", "cloud services"]
    egress, kept = services(1000.0, 1e11, "aws", a)
    assert egress.usd_per_hour == pytest.approx(1000 * 3600 * 200 / 1e9 * 0.09)
    assert services(1000.0, 1e11, "elsewhere", a) == () == services(1000.0, 1e11, "free", a)
    assert service_usd("free", a) == (0.0, None) and service_usd("elsewhere", a) == (None, None)
    own = replace(a, services_everywhere=True, egress_usd_per_byte=1e-10)
    assert services(1000.0, 0.0, "elsewhere", own)[0].usd_per_hour == pytest.approx(1000 * 3600 * 200 / 1e9 * 0.1)
    assert kept.usd_per_hour * HOURS_PER_MONTH == pytest.approx(100 * 0.023)


def test_nothing_bought_nothing_paid():
    free = replace(ASSUMED, staff_usd_per_accelerator_year=0.0)
    assert total_usd_per_hour(own_parts(0.0, 8, 0.0, free)) == 0.0
    assert [f.total_usd for f in flows(plan_of_server(0.0, 0.0, free))] == [0.0] * 37
    assert (
        waterfall(own_parts(0.0, 8, 0.0, free), Use(instances_fraction=1, carrying_fraction=1, busy_fraction=1), 1)
        == []
    )


def test_a_longer_horizon_than_a_life_buys_again():
    """110,000 USD fall to a quarter in 24 months, at a constant rate: to a half in the last twelve."""
    a = replace(ASSUMED, life_years=2, residual_fraction=0.25, discount_fraction=0.0, months=60)
    cash = flows(plan_of_server(100_000, 0.0, a))
    paid = {f.month: f.capital_usd for f in cash if f.capital_usd}
    assert paid == pytest.approx({0: 110_000, 24: 110_000, 48: 110_000})
    sold = {f.month: f.resale_usd for f in cash if f.resale_usd}
    assert sold == pytest.approx({24: 27_500, 48: 27_500, 60: 55_000})


use = st.builds(Use, instances_fraction=shares, carrying_fraction=shares, busy_fraction=shares)


@given(dollars, st.floats(0, 2e4), use, st.floats(1e-3, 1e4))
def test_the_waterfall_ends_at_the_price_of_a_token(purchase, watts, shares_of, mtok_per_hour):
    parts = own_parts(purchase, 8, watts, ASSUMED)
    total = total_usd_per_hour(parts) / mtok_per_hour
    steps = waterfall(parts, shares_of, mtok_per_hour)
    assert math.fsum(usd for _, usd in steps) == pytest.approx(total)


def test_a_token_that_is_not_served_has_no_price():
    parts = own_parts(1e5, 8, 1e4, ASSUMED)
    assert waterfall(parts, Use(instances_fraction=1, carrying_fraction=1, busy_fraction=0), 0.0) == []
    assert break_even_tokens(1000.0, 0.0) == math.inf
    assert break_even_share(1000.0, 0.0) == math.inf


def test_buying_meets_renting_in_the_month_where_the_sums_cross():
    """132,000 of capital that is worth nothing when used, against 13,200 a month beyond the power."""
    a = replace(ASSUMED, discount_fraction=0.0, residual_fraction=0.0, resale_cost_fraction=1.0, months=60)
    way = Way(
        kind=PURCHASE, parts=(Part(name="power", usd_per_hour=1.0, group="running"),), life_months=60,
        capital_usd=capital_usd(120_000, a), resale=a.resale(),
    )  # fmt: skip
    own = best_plan(flat_demand(1, 60), [way], a.prices, Overheads())

    def rent(usd_per_month: float) -> Plan:
        parts = rent_parts(usd_per_month / HOURS_PER_MONTH, "on_demand", a)
        plan = best_plan(flat_demand(1, 60), [Way(kind=HOURLY, parts=parts)], a.prices, Overheads())
        assert plan is not None
        return plan

    assert own is not None
    assert break_even_month(own, rent(730.0 + 13_201.0)) == 10
    assert break_even_month(own, rent(730.0)) is None
    assert break_even_month(own, rent(730.0 + 100.0)) is None  # not within five years


def test_independent_causes_widen_an_interval_by_their_squares():
    assert combined_ratio([(1 / 1.2, 1.2)]) == pytest.approx((1 / 1.2, 1.2))
    low, high = combined_ratio([(0.8, 1.25), (0.8, 1.25)])
    assert high == pytest.approx(1.25 ** math.sqrt(2)) and low == pytest.approx(1 / high)
    assert combined_ratio([]) == (1.0, 1.0)


# --- against a spreadsheet --------------------------------------------------------------------------------------


def npv(monthly_rate: float, cash: list[float]) -> float:
    """As a spreadsheet's NPV does it: the first amount is today's, each later one a month further."""
    total, factor = 0.0, 1.0
    for amount in cash:
        total += amount / factor
        factor *= 1.0 + monthly_rate
    return total


def pmt(monthly_rate: float, months: int, present: float, future: float) -> float:
    """As a spreadsheet's PMT: what equal payments at the end of each month take `present` to `future`."""
    grown = (1.0 + monthly_rate) ** months
    return (present * grown - future) * monthly_rate / (grown - 1.0)


def test_five_years_of_a_bought_server_are_what_a_spreadsheet_says():
    """300,000 USD with 10 % network, 4 % residual after 60 months, 9 % a year, 2,500 USD a month to run, 3 % upkeep."""
    a = replace(
        ASSUMED, network_fraction=0.1, residual_fraction=0.04, discount_fraction=0.09, life_years=5.0, usd_per_kwh=0.0,
        colocation_usd_per_kw_month=250.0, maintenance_fraction=0.03, staff_usd_per_accelerator_year=0.0, months=60,
    )  # fmt: skip
    rate = 1.09 ** (1 / 12) - 1
    payment = pmt(rate, 60, 330_000.0, 330_000.0 * 0.04)
    running = 2_500.0 + 300_000.0 * 0.03 / 12
    monthly = total_usd_per_hour(own_parts(300_000.0, 8, 10_000.0, a)) * HOURS_PER_MONTH
    plan = plan_of_server(300_000.0, 10_000.0, a)
    assert monthly == pytest.approx(payment + running) and plan.usd_per_month == pytest.approx(payment + running)
    cash = [330_000.0, *[running] * 59, running - 330_000.0 * 0.04]
    assert [f.total_usd for f in flows(plan)] == pytest.approx(cash)
    assert plan.present_usd == pytest.approx(npv(rate, cash))
    assert npv(rate, cash) == pytest.approx(npv(rate, [0.0, *[payment + running] * 60]))
    assert break_even_tokens(plan.usd_per_month, 0.5) == pytest.approx((payment + running) / 0.5 * 1e6)


def test_three_years_of_a_server_that_lasts_five_sell_it_for_what_is_left():
    """0.04 ^ (36 / 60) = 14.5 % of 330,000 USD after 36 of 60 months; renting costs 16,000 a month."""
    a = replace(
        ASSUMED, network_fraction=0.1, residual_fraction=0.04, discount_fraction=0.09, life_years=5.0, usd_per_kwh=0.0,
        colocation_usd_per_kw_month=250.0, maintenance_fraction=0.03, staff_usd_per_accelerator_year=0.0, months=36,
    )  # fmt: skip
    rate, running = 1.09 ** (1 / 12) - 1, 2_500.0 + 300_000.0 * 0.03 / 12
    plan = plan_of_server(300_000.0, 10_000.0, a)
    cash = [330_000.0, *[running] * 35, running - 330_000.0 * 0.04**0.6]
    assert plan.present_usd == pytest.approx(npv(rate, cash))
    rent = best_plan(
        flat_demand(1, 36), [Way(kind=HOURLY, parts=rent_parts(16_000.0 / 730, "on_demand", a))], a.prices, Overheads()
    )  # fmt: skip
    assert rent is not None
    meets = next(
        m
        for m in range(1, 37)
        if npv(rate, [330_000.0, *[running] * (m - 1), running - 330_000.0 * 0.04 ** (m / 60)])
        <= npv(rate, [0.0, *[16_000.0] * m])
    )
    assert 1 < meets < 36 and break_even_month(plan, rent) == meets


def test_growth_buys_each_replica_in_the_month_that_needs_it():
    """Two servers today, three from month 5 and four from month 10, at 12 % a year: by hand from the sizes."""
    a = replace(ASSUMED, discount_fraction=0.12, months=12)
    needed = [2] * 4 + [3] * 5 + [4] * 3
    on = np.array([[1.0] * 12, [float(n > 2) for n in needed], [float(n > 3) for n in needed]])
    plan = plan_of_server(100_000.0, 1_000.0, a, Demand(counts=np.array([2, 1, 1]), fractions=on))
    cash = flows(plan)
    bought = {f.month: f.capital_usd for f in cash if f.capital_usd}
    assert bought == pytest.approx({0: 220_000, 4: 110_000, 9: 110_000})
    running = sum(p.usd_per_hour for p in plan.ways[0].parts) * 730
    assert [f.running_usd for f in cash[1:]] == pytest.approx([running * n for n in needed])
    rate = 1.12 ** (1 / 12) - 1
    assert plan.present_usd == pytest.approx(npv(rate, [f.total_usd for f in cash]))
    at_once = plan_of_server(100_000.0, 1_000.0, a, flat_demand(4, 12))
    assert plan.present_usd < at_once.present_usd
    assert at_once.usd_per_month == pytest.approx(4 * total_usd_per_hour(own_parts(100_000.0, 8, 1_000.0, a)) * 730)


@pytest.mark.parametrize("term", ["on_demand", "spot"])
def test_a_free_instance_costs_nothing_and_meets_no_price(term):
    assert total_usd_per_hour(rent_parts(0.0, term, replace(ASSUMED, spot_lost_fraction=0.3))) == 0.0
    assert break_even_tokens(0.0, 0.5) == 0.0 and math.isinf(break_even_tokens(100.0, 0.0))
    assert math.isinf(break_even_share(100.0, 0.0))
