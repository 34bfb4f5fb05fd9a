"""What hardware is worth over time, and hourly costs over a horizon: the same as the plan of one purchase or term."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.engine.cost.hourly import (
    AFTER,
    Assumptions,
    capital_shares,
    capital_usd,
    list_rent_parts,
    own_parts,
    rent_parts,
    service_months,
    term_months,
)
from advisor.engine.cost.prices import Prices, resale_at_constant_rate, resale_by_month
from advisor.engine.plans.plan import Overheads, Plan, best_plan, flat_demand, plan_of
from advisor.engine.plans.solve import Commitment, Schedule
from advisor.engine.plans.ways import HOURLY, PURCHASE, TERM, Way
from advisor.engine.terms import HOURS_PER_MONTH, Part
from tests.engine.catalog_sample import ASSUMED

SETTINGS = settings(max_examples=60, deadline=None, derandomize=True)
falling = st.lists(st.floats(0.05, 1.0), min_size=1, max_size=6).map(lambda x: tuple(np.cumprod(x).tolist()))
shares = st.floats(0, 1)

# --- resale -----------------------------------------------------------------------------------------------------


@SETTINGS
@given(falling, st.integers(0, 100), shares, st.floats(0, 0.5))
def test_the_value_after_whole_years_is_the_one_given_and_never_rises(
    by_year: tuple[float, ...], months: int, ratio: float, selling: float
) -> None:
    values = resale_by_month(by_year, months, ratio, selling)
    assert len(values) == months + 1 and values[0] == pytest.approx(by_year[0] * ratio * (1 - selling))
    for year, fraction in enumerate(by_year, 1):
        if 12 * year <= months:
            assert values[12 * year] == pytest.approx(fraction * ratio * (1 - selling))
    assert all(b <= a + 1e-12 for a, b in zip(values, values[1:], strict=False))
    plain = resale_by_month(by_year, months)
    assert values == pytest.approx((np.array(plain) * ratio * (1 - selling)).tolist())


def test_between_years_and_after_the_last_the_value_falls_at_a_constant_rate() -> None:
    """0.64 after a year, and also after half of one; 0.32 after two is half a year's 0.7071 more; then half again."""
    values = resale_by_month((0.64, 0.32), 48)
    assert [values[m] for m in (6, 12, 18, 24, 36, 48)] == pytest.approx(
        [0.64, 0.64, 0.64 * 0.5**0.5, 0.32, 0.16, 0.08]
    )
    assert resale_by_month((0.5,), 24)[24] == pytest.approx(0.25)


def test_what_is_worth_nothing_stays_worth_nothing() -> None:
    values = resale_by_month((0.5, 0.0), 48)
    assert values[12] == 0.5 and max(values[13:]) == 0
    assert resale_by_month((0.0,), 24) == tuple([0.0] * 25)
    assert resale_by_month((0.5, 0.0, 0.0), 48)[24:] == (0.0,) * 25


def test_a_replaced_generation_loses_from_its_first_day_on() -> None:
    values, replaced = resale_by_month((0.6,), 24), resale_by_month((0.6,), 24, superseded_ratio=0.8)
    assert [b / a for a, b in zip(values, replaced, strict=True)] == pytest.approx([0.8] * 25)


@SETTINGS
@given(st.floats(0.01, 1), st.integers(1, 80), st.floats(0, 0.5))
def test_a_constant_rate_ends_at_the_residual(fraction: float, life: int, selling: float) -> None:
    values = np.array(resale_at_constant_rate(fraction, life, life, selling))
    first = min(12, life)
    assert values[: first + 1] == pytest.approx(np.full(first + 1, fraction ** (first / life) * (1 - selling)))
    assert values[-1] == pytest.approx(fraction * (1 - selling))
    assert values[first + 1 :] / values[first:-1] == pytest.approx(np.full(life - first, fraction ** (1 / life)))


def test_a_residual_of_nothing_is_reached_at_once() -> None:
    assert resale_at_constant_rate(0.0, 36, 3, 0.1) == (0.0, 0.0, 0.0, 0.0)


def test_assumptions_give_the_years_they_have_and_else_their_residual() -> None:
    a = replace(ASSUMED, resale_cost_fraction=0.1, superseded_ratio=0.5)
    assert a.resale() == a.resale(superseded=True) == pytest.approx(resale_at_constant_rate(0.1, 60, 60, 0.1))
    known = replace(a, resale_by_year=(0.7, 0.5))
    assert known.resale()[12] == pytest.approx(0.63) and known.resale(superseded=True)[12] == pytest.approx(0.315)
    assert len(known.resale()) == 61


# --- hourly costs over a horizon --------------------------------------------------------------------------------

horizons = st.integers(1, 84)


@st.composite
def assumptions(draw: st.DrawFn) -> Assumptions:
    months = draw(horizons)
    moving = draw(st.booleans())
    r = np.random.default_rng(draw(st.integers(0, 10**6)))

    def path(length: int) -> tuple[float, ...]:
        return tuple(r.uniform(0.5, 1.5, length).tolist()) if moving else ()

    return replace(
        ASSUMED, months=months, life_years=draw(st.sampled_from([0.5, 1, 2.5, 3, 5])),
        discount_fraction=draw(st.sampled_from([0.0, 0.08, 0.3])), residual_fraction=draw(shares),
        resale_by_year=draw(st.just(()) | falling), superseded_ratio=draw(shares),
        resale_cost_fraction=draw(st.floats(0, 0.3)), insurance_fraction=draw(st.sampled_from([0.0, 0.01])),
        storage_fraction=0.04, spare_fraction=0.02, cloud_addon_fraction=draw(st.sampled_from([0.0, 0.15])),
        exit_fraction=draw(shares), rented_staff_ratio=draw(shares), spot_lost_fraction=0.1,
        rent_path=path(months), energy_path=path(months), hardware_path=path(months), resale_path=path(months + 1),
    )  # fmt: skip


def renewed(way: Way, months: int, prices: Prices) -> Plan:
    """One instance, renewed or replaced every so many months."""
    kept = tuple(
        Commitment(way=0, start_month=start, until_month=min(start + months, prices.months), instances=1)
        for start in range(0, prices.months, months)
    )
    schedule = Schedule(commitments=kept, hourly=())
    plan = plan_of(flat_demand(1, prices.months), (way,), prices, schedule, Overheads())
    assert plan_of_one(way, prices).present_usd <= plan.present_usd * (1 + 1e-9) + 1e-6
    return plan


def plan_of_one(way: Way, prices: Prices) -> Plan:
    plan = best_plan(flat_demand(1, prices.months), [way], prices, Overheads())
    assert plan is not None
    return plan


def named(parts: tuple[Part, ...]) -> dict[str, float]:
    return {p.name: p.usd_per_hour for p in parts if abs(p.usd_per_hour) > 1e-9}


@SETTINGS
@given(assumptions(), st.floats(1e3, 5e5), st.booleans())
def test_owning_by_the_hour_is_the_plan_of_one_purchase(a: Assumptions, usd: float, superseded: bool) -> None:
    """Also for horizons that end in the middle of a life."""
    today = own_parts(usd, 8, 6_000.0, replace(a, energy_path=()))
    way = Way(
        kind=PURCHASE, parts=tuple(p for p in today if p.group == "running"), capital_usd=capital_usd(usd, a),
        capital_shares=capital_shares(usd, a), life_months=service_months(a), resale=a.resale(superseded),
    )  # fmt: skip
    plan = renewed(way, way.life_months, a.prices)
    found = own_parts(usd, 8, 6_000.0, a, superseded=superseded)
    assert len(plan.schedule.commitments) == -(-a.prices.months // service_months(a))
    assert sum(p.usd_per_hour for p in found) * HOURS_PER_MONTH == pytest.approx(plan.usd_per_month)
    assert named(plan.parts()) == pytest.approx(named(found), abs=1e-9 * usd)


@SETTINGS
@given(assumptions(), st.floats(0.1, 50), st.sampled_from(["on_demand", "spot", "reserved_1y", "reserved_3y"]))
def test_renting_by_the_hour_is_the_plan_of_one_offer(a: Assumptions, rate: float, term: str) -> None:
    """Also for horizons that end in the middle of a term."""
    committed = term_months(term)
    way = Way(
        kind=TERM if committed else HOURLY, parts=list_rent_parts(rate, term, a, 8), term_months=committed
    )  # fmt: skip
    plan = renewed(way, committed, a.prices) if committed else plan_of_one(way, a.prices)
    found = rent_parts(rate, term, a, 8)
    assert sum(p.usd_per_hour for p in found) * HOURS_PER_MONTH == pytest.approx(plan.usd_per_month)
    assert named(plan.parts()) == pytest.approx(named(found))


def test_a_year_of_three_reserved_by_the_hour() -> None:
    """10 USD for 36 months over 12: two more for each month, less the half that an exit recovers."""
    a = replace(ASSUMED, months=12, discount_fraction=0.0, exit_fraction=0.5)
    assert named(rent_parts(10.0, "reserved_3y", a)) == pytest.approx({"instances": 10, AFTER: 10})
    assert named(rent_parts(10.0, "reserved_3y", replace(a, months=36))) == pytest.approx({"instances": 10})
    assert named(rent_parts(10.0, "reserved_1y", replace(a, months=18))) == pytest.approx(
        {"instances": 10, AFTER: 10 * 6 / 18 * 0.5}
    )
    assert named(list_rent_parts(10.0, "reserved_3y", a)) == pytest.approx({"instances": 10})


@pytest.mark.parametrize(("months", "value"), [(12, 0.6), (24, 0.36), (36, 0.216), (60, 0.07776)])
def test_a_server_that_is_sold_at_the_horizon_loses_what_it_is_no_longer_worth(months: int, value: float) -> None:
    """60 % of the value is left each year."""
    a = replace(ASSUMED, months=months, discount_fraction=0.0, resale_by_year=(0.6, 0.36))
    capital = [p.usd_per_hour for p in own_parts(100_000, 8, 0.0, a) if p.group == "capital"]
    assert sum(capital) * 730 == pytest.approx(110_000 * (1 - value) / months)
