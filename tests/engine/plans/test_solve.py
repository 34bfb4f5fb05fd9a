"""The cheapest schedule: the same as trying every one, by groups and as a program, with and without limits."""

import math

import numpy as np
import pytest

from advisor.engine.cost import Prices
from advisor.engine.plans import solve
from advisor.engine.plans.plan import Overheads, flat_demand, plan_of
from advisor.engine.plans.solve import Commitment, Schedule, cheapest, least_from
from advisor.engine.plans.ways import HOURLY, OWNED, PURCHASE, TERM, Demand, Limits, Way, demand_by_month
from tests.engine.plans.brute_force import cheapest_usd, part, random_demand, random_prices, random_ways

NEAR = dict(rel=2e-6, abs=1e-3)  # the program stops within 1e-6 of the best


def usd(schedule: Schedule | None, demand: Demand, ways: tuple[Way, ...], prices: Prices) -> float:
    if schedule is None:
        return math.inf
    plan = plan_of(demand, ways, prices, schedule, Overheads())
    assert (plan.in_service((HOURLY, TERM, PURCHASE, OWNED)) >= demand.needed).all()
    return plan.present_usd


# --- against every schedule -------------------------------------------------------------------------------------


@pytest.mark.parametrize("paths", ["flat", "falling", "any"])
@pytest.mark.parametrize("owned", [False, True])
def test_growing_demand_is_covered_as_cheaply_as_by_the_best_of_all_schedules(paths: str, owned: bool) -> None:
    for seed in range(40):
        r = np.random.default_rng(seed)
        months = int(r.integers(2, 7))
        demand, ways = random_demand(r, months, grows=True, full_hours=True), random_ways(r, owned)
        prices = random_prices(r, months, paths)
        best = cheapest_usd(demand, ways, prices, early=True)
        assert demand.never_shrinks
        for found in (cheapest(demand, ways, prices), solve._by_program(demand, ways, prices, Limits())):
            assert usd(found, demand, ways, prices) == pytest.approx(best, **NEAR), seed


@pytest.mark.parametrize("paths", ["flat", "any"])
def test_demand_that_ends_at_once_needs_no_program(paths: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a later start costs more, because prices rise; not where hardware sells for more than it cost."""
    monkeypatch.setattr(solve, "_by_program", None)
    early = tried = 0
    for seed in range(60):
        r = np.random.default_rng(seed)
        months = int(r.integers(3, 7))
        growing, ways = random_demand(r, months, grows=True, full_hours=True), random_ways(r, owned=False)
        prices, end = random_prices(r, months, paths), int(r.integers(1, months + 1))
        if (solve.columns_of(ways, prices).usd < 0).any():
            continue
        tried += 1
        demand = Demand(counts=growing.counts, fractions=np.where(np.arange(months) < end, growing.fractions, 0.0))
        best = cheapest_usd(demand, ways, prices, early=True)
        found = cheapest(demand, ways, prices)
        assert usd(found, demand, ways, prices) == pytest.approx(best, **NEAR), seed
        first = int(np.argmax(demand.needed > 0))
        early += found is not None and any(c.start_month < first for c in found.commitments)
    assert tried > 30 and (early > 0 or paths == "flat")


def test_demand_that_comes_and_goes_is_covered_as_cheaply_as_by_the_best_of_all_schedules() -> None:
    """Purchases may then be sold in any month; prices go up and down."""
    shrinking = 0
    for seed in range(90):
        r = np.random.default_rng(seed)
        months, paths = int(r.integers(3, 6)), ("flat", "falling", "any")[seed % 3]
        demand, ways = random_demand(r, months, grows=False, full_hours=seed % 2 == 0), random_ways(r, seed % 4 > 1)
        prices = random_prices(r, months, paths)
        if demand.never_shrinks:
            continue
        shrinking += 1
        best = cheapest_usd(demand, ways, prices, early=True)
        assert usd(cheapest(demand, ways, prices), demand, ways, prices) == pytest.approx(best, **NEAR), seed
    assert shrinking > 60


@pytest.mark.parametrize("limit", ["capital", "month", "both", "instances"])
@pytest.mark.parametrize("grows", [True, False])
def test_limits_are_kept_as_cheaply_as_by_the_best_of_all_schedules(limit: str, grows: bool) -> None:
    bound = 0
    for seed in range(36):
        r = np.random.default_rng(seed)
        months = int(r.integers(2, 6 if grows else 5))
        demand = random_demand(r, months, grows, full_hours=seed % 2 == 0)
        ways = random_ways(r, seed % 3 == 0, hourly_most=1 if limit == "instances" else None)
        prices = random_prices(r, months, ("flat", "falling")[seed % 2])
        free = cheapest(demand, ways, prices)
        if free is None:
            continue
        plan = plan_of(demand, ways, prices, free, Overheads())
        limits = Limits(
            max_capex_usd=plan.capex_usd * r.uniform(0, 1.2) if limit in ("capital", "both") else None,
            max_usd_per_month=plan.most_usd_per_month * r.uniform(0.7, 1.1) if limit in ("month", "both") else None,
        )
        best = cheapest_usd(demand, ways, prices, limits, early=True)
        found = cheapest(demand, ways, prices, limits)
        assert usd(found, demand, ways, prices) == pytest.approx(best, **NEAR), seed
        bound += found is not None and best > plan.present_usd + 1e-3
        if found is not None:
            kept = plan_of(demand, ways, prices, found, Overheads())
            assert limits.max_capex_usd is None or kept.capex_usd <= limits.max_capex_usd + 1e-3
            assert limits.max_usd_per_month is None or kept.most_usd_per_month <= limits.max_usd_per_month + 1e-3
    assert limit == "instances" or bound > 0


def test_hours_that_differ_between_the_groups_are_covered_exactly_by_the_program_and_nearly_by_the_groups() -> None:
    """A committed instance can serve the base while an hourly one serves the few hours of the peak."""
    gaps = []
    for seed in range(100):
        r = np.random.default_rng(seed)
        months = int(r.integers(3, 7))
        demand, ways = random_demand(r, months, grows=True, full_hours=False), random_ways(r)
        prices = random_prices(r, months, "falling")
        best = cheapest_usd(demand, ways, prices, early=True)
        assert usd(solve._by_program(demand, ways, prices, Limits()), demand, ways, prices) == pytest.approx(
            best, **NEAR
        )
        gaps.append(usd(cheapest(demand, ways, prices), demand, ways, prices) / best - 1)
    assert min(gaps) > -1e-6 and max(gaps) < 0.05 and np.mean(np.array(gaps) > 1e-5) < 0.1


# --- both paths -------------------------------------------------------------------------------------------------


def test_groups_and_the_program_agree_on_three_years_of_growth() -> None:
    for seed in range(40):
        r = np.random.default_rng(seed)
        months = int(r.integers(12, 37))
        growth = np.cumprod(np.r_[1.0, 1 + r.uniform(0, 0.08, months - 1)])
        demand = demand_by_month(r.integers(1, 9) * growth, np.ceil)
        rate = r.uniform(20, 40)
        ways = (
            Way(kind=HOURLY, parts=(part("instances", rate),)),
            Way(kind=TERM, parts=(part("instances", rate * r.uniform(0.6, 0.9)),), term_months=12),
            Way(kind=TERM, parts=(part("instances", rate * r.uniform(0.4, 0.7)),), term_months=36),
            Way(
                kind=PURCHASE, parts=(part("electricity", 3, "running"),), capital_usd=r.uniform(2e5, 5e5),
                life_months=int(r.integers(12, 61)), resale=tuple(0.97 ** np.arange(61.0)), lead_months=seed % 4,
            ),
        )  # fmt: skip
        prices = random_prices(r, months, "falling" if seed % 2 else "flat")
        both = [solve.by_group(demand, ways, prices), solve._by_program(demand, ways, prices, Limits())]
        first, second = (usd(s, demand, ways, prices) for s in both)
        assert first == pytest.approx(second, **NEAR), seed
        assert least_from(demand, ways, prices)[0] == pytest.approx(first)


# --- edges ------------------------------------------------------------------------------------------------------

PLAIN = Prices(months=4, discount_fraction=0.0)
HOUR = Way(kind=HOURLY, parts=(part("instances", 1.0),))


def held(rate: float, most: int | None) -> Way:
    return Way(kind=OWNED, parts=(part("electricity", rate, "running"),), most=most)


def test_nothing_needed_is_an_empty_schedule_even_within_limits() -> None:
    none = Demand(counts=np.zeros(1, dtype=int), fractions=np.zeros((1, 4)))
    for limits in (None, Limits(max_capex_usd=1.0), Limits(max_usd_per_month=1.0)):
        assert cheapest(none, [HOUR, held(1.0, 1)], PLAIN, limits) == Schedule(commitments=(), hourly=())


def test_what_nothing_can_serve_has_no_schedule() -> None:
    late = Way(kind=PURCHASE, parts=(), capital_usd=1.0, life_months=9, lead_months=1)
    assert cheapest(flat_demand(1, 4), [late], PLAIN) is None
    assert solve._by_program(flat_demand(1, 4), [late], PLAIN, Limits()) is None
    assert cheapest(flat_demand(1, 4), [], PLAIN) is None
    assert cheapest(flat_demand(2, 4), [held(1.0, 1)], PLAIN) is None
    assert cheapest(flat_demand(1, 4), [HOUR], PLAIN, Limits(max_usd_per_month=729.0)) is None


def test_owned_instances_are_counted_by_way_and_without_a_limit_serve_everything() -> None:
    found = cheapest(flat_demand(3, 4), [held(0.5, 1), held(0.7, 1), HOUR], PLAIN)
    assert found is not None
    assert found.commitments == tuple(Commitment(way=i, start_month=0, until_month=4, instances=1) for i in (0, 1))
    assert [(h.way, h.instances.tolist()) for h in found.hourly] == [(2, [1] * 4)]
    free = cheapest(flat_demand(3, 4), [held(0.5, None)], PLAIN)
    assert free is not None and [c.instances for c in free.commitments] == [3]


def test_owned_instances_serve_where_they_save_most() -> None:
    """One instance all four months and another in the last one; 730 USD a month by the hour, 365 for the owned one.

    A term of four months costs 4 x 219 = 876 whenever it is signed. With it the base costs 876 and the owned one serves
    the last month for 365: 1,241. The owned one as the base would cost 4 x 365 = 1,460 and 730 by the hour.
    """
    demand = Demand(counts=np.array([1, 1]), fractions=np.array([[1.0, 1, 1, 1], [0, 0, 0, 1]]))
    ways = (HOUR, Way(kind=TERM, parts=(part("instances", 0.3),), term_months=4), held(0.5, 1))
    assert usd(cheapest(demand, ways, PLAIN), demand, ways, PLAIN) == pytest.approx(1241)


def test_a_commitment_is_signed_at_the_price_of_its_month_and_an_hour_paid_at_its_own() -> None:
    prices = Prices(months=3, discount_fraction=0.0, rent=(1.0, 0.5, 2.0))
    term = Way(kind=TERM, parts=(part("instances", 1.0),), term_months=2)
    paid, due = solve.term_payments(term, prices, 1)
    assert paid.tolist() == [365.0, 365.0] and due.tolist() == [2, 3]
    assert solve.hour_usd(HOUR, prices)[0].tolist() == [730.0, 365.0, 1460.0]
    best = cheapest(flat_demand(1, 3), [HOUR, term], prices)
    assert usd(best, flat_demand(1, 3), (HOUR, term), prices) == pytest.approx(730 + 2 * 365)
