"""Dated plans: properties that always hold, worked examples, cash flow, break-even points and taxes by hand."""

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from advisor.answer.money.taxes import taxes
from advisor.engine.cost import AFTER, Prices
from advisor.engine.plans.plan import (
    CENT,
    TEAM,
    Overheads,
    Plan,
    best_plan,
    best_switch,
    book_values,
    break_even_month,
    flat_demand,
    flows,
    internal_rate,
    market_value,
    named_plans,
    payback_month,
    plan_of,
)
from advisor.engine.plans.solve import Commitment, Hourly, Schedule
from advisor.engine.plans.ways import (
    CAPITAL,
    COMMITMENT,
    HOURLY,
    OWNED,
    PURCHASE,
    RENT,
    RENTED,
    RESALE,
    SERVICES,
    STAFF,
    TERM,
    Demand,
    Limits,
    Way,
    demand_by_month,
)
from advisor.engine.terms import Part
from advisor.inputs import Snapshot
from tests.engine.plans.brute_force import part, random_demand, random_prices, random_ways

SETTINGS = settings(max_examples=60, deadline=None, derandomize=True)
NEAR = dict(rel=2e-6, abs=1e-3)  # the program stops within 1e-6 of the best
NONE = Overheads()
ALL = (HOURLY, TERM, PURCHASE, OWNED)
seeds = st.integers(0, 10**6)
paths = st.sampled_from(["flat", "falling", "any"])
overheads = st.builds(
    Overheads,
    own_team_usd_per_month=st.floats(0, 500),
    rented_team_usd_per_month=st.floats(0, 500),
    services=st.sampled_from([(), (part("egress", 0.2, "services"), part("storage of weights", 0.1, "services"))]),
)


def hourly(rate: float, **changes: object) -> Way:
    return Way(kind=HOURLY, parts=(part("instances", rate),), **changes)  # type: ignore[arg-type]


def term(rate: float, months: int) -> Way:
    return Way(kind=TERM, parts=(part("instances", rate),), term_months=months)


def bought(usd: float, life: int, resale: tuple[float, ...] = (), running: float = 0.0, **changes: object) -> Way:
    parts = (part("electricity", running, "running"),) if running else ()
    return Way(kind=PURCHASE, parts=parts, capital_usd=usd, life_months=life, resale=resale, **changes)  # type: ignore[arg-type]


def plain(months: int, discount: float = 0.0, **changes: object) -> Prices:
    return Prices(months=months, discount_fraction=discount, **changes)  # type: ignore[arg-type]


def best(demand: Demand, ways: tuple[Way, ...], prices: Prices, more: Overheads = NONE) -> Plan:
    plan = best_plan(demand, ways, prices, more)
    assert plan is not None
    return plan


def random_plan(seed: int, path: str, more: Overheads = NONE, grows: bool = True, owned: bool = False) -> Plan | None:
    r = np.random.default_rng(seed)
    months = int(r.integers(2, 13))
    demand = random_demand(r, months, grows, full_hours=bool(r.integers(2)))
    return best_plan(demand, random_ways(r, owned), random_prices(r, months, path), more)


# --- what always holds ------------------------------------------------------------------------------------------


@SETTINGS
@given(seeds, st.sampled_from(["flat", "falling"]), st.booleans())
def test_more_growth_never_costs_less(seed: int, path: str, owned: bool) -> None:
    r = np.random.default_rng(seed)
    months = int(r.integers(2, 13))
    one, ways, prices = random_demand(r, months, True, False), random_ways(r, owned), random_prices(r, months, path)
    share = np.maximum.accumulate(r.random(months))
    more = np.minimum(np.maximum(one.fractions, share * r.random()) + 0.1, 1.0)
    larger = Demand(counts=one.counts + r.integers(0, 2, len(one.counts)), fractions=more)
    assert one.never_shrinks and larger.never_shrinks
    assert best(larger, ways, prices).present_usd >= best(one, ways, prices).present_usd * (1 - 2e-6) - 1e-6


def dearer(parts: tuple[Part, ...], times: float) -> tuple[Part, ...]:
    return tuple(replace(p, usd_per_hour=p.usd_per_hour * times) for p in parts)


@SETTINGS
@given(seeds, paths, overheads, st.booleans())
def test_twice_the_prices_are_twice_every_payment(seed: int, path: str, more: Overheads, grows: bool) -> None:
    plan = random_plan(seed, path, more, grows)
    assume(plan is not None)
    assert plan is not None
    ways = tuple(
        replace(w, parts=dearer(w.parts, 2), kept_parts=dearer(w.kept_parts, 2), capital_usd=2 * w.capital_usd)
        for w in plan.ways
    )
    twice = Overheads(
        own_team_usd_per_month=2 * more.own_team_usd_per_month,
        rented_team_usd_per_month=2 * more.rented_team_usd_per_month,
        services=dearer(more.services, 2),
    )
    found = plan_of(plan.demand, ways, plan.prices, plan.schedule, twice)
    assert best(plan.demand, ways, plan.prices, twice).present_usd == pytest.approx(2 * plan.present_usd, **NEAR)
    for driver, usd in plan.payments.items():
        assert found.payments[driver] == pytest.approx(2 * usd)
    assert found.present_usd == pytest.approx(2 * plan.present_usd)
    assert found.liability_usd == pytest.approx(2 * plan.liability_usd)
    assert found.budget_usd == pytest.approx(2 * plan.budget_usd, abs=1e-6)
    assert [p.name for p in found.parts()] == [p.name for p in plan.parts()]
    assert [p.usd_per_hour for p in found.parts()] == pytest.approx([2 * p.usd_per_hour for p in plan.parts()])


@SETTINGS
@given(seeds, paths, st.booleans())
def test_every_payment_of_a_commitment_is_counted_and_the_liability_is_what_is_due_later(
    seed: int, path: str, grows: bool
) -> None:
    r = np.random.default_rng(seed)
    months = int(r.integers(1, 8))
    demand, prices = random_demand(r, months, grows, False), random_prices(r, months, path)
    ways = random_ways(r)[:2]
    plan = best(demand, ways[1:], prices) if seed % 2 else best(demand, ways, prices)
    promised = later = 0.0
    for c in plan.schedule.commitments:
        way = plan.ways[c.way]
        rate = sum(p.usd_per_hour for p in way.parts if p.name in RENTED) * 730 * c.instances
        rate *= prices.rent[c.start_month] if prices.rent else 1.0
        promised += rate * way.term_months
        later += rate * max(c.start_month + way.term_months - months, 0)
    recovered = later * prices.exit_fraction
    assert plan.payments[COMMITMENT].sum() + recovered == pytest.approx(promised)
    assert plan.liability_usd == pytest.approx(later - recovered)
    ends = [c.start_month + plan.ways[c.way].term_months for c in plan.schedule.commitments]
    assert plan.liability_months == max([end - months for end in ends if end > months], default=0)
    assert plan.most_usd_per_month <= plan.total_by_month.max() + 1e-6  # the settlement is no month's budget


@SETTINGS
@given(seeds, paths, overheads, st.booleans(), st.booleans())
def test_the_parts_add_up_to_the_equal_monthly_payment(
    seed: int, path: str, more: Overheads, grows: bool, owned: bool
) -> None:
    plan = random_plan(seed, path, more, grows, owned)
    assume(plan is not None)
    assert plan is not None
    assert 730 * math.fsum(p.usd_per_hour for p in plan.parts()) == pytest.approx(plan.usd_per_month)
    by_part = sum(plan.part_payments.values(), np.zeros(plan.prices.months + 1))
    assert by_part + plan.payments[CAPITAL] == pytest.approx(plan.total_by_month - plan.payments[RESALE])
    assert (plan.in_service(ALL) >= plan.demand.needed).all()


@SETTINGS
@given(seeds, paths, st.booleans())
def test_another_way_never_makes_the_best_plan_dearer(seed: int, path: str, grows: bool) -> None:
    r = np.random.default_rng(seed)
    months = int(r.integers(2, 9))
    demand, ways = random_demand(r, months, grows, True), random_ways(r, owned=True)
    prices, order = random_prices(r, months, path if not grows else "falling"), r.permutation(len(ways))
    cost = math.inf
    for n in range(1, len(ways) + 1):
        plan = best_plan(demand, [ways[i] for i in order[:n]], prices, NONE)
        usd = plan.present_usd if plan else math.inf
        assert usd <= cost + 1e-3 + (0 if math.isinf(cost) else 2e-6 * abs(cost))
        cost = usd


@SETTINGS
@given(seeds, st.floats(0, 500), st.floats(0, 500))
def test_buying_as_another_way_never_makes_it_dearer_with_teams_either(seed: int, own: float, rented: float) -> None:
    r = np.random.default_rng(seed)
    months = int(r.integers(2, 9))
    demand, ways, prices = random_demand(r, months, True, True), random_ways(r), random_prices(r, months, "flat")
    more = Overheads(own_team_usd_per_month=own, rented_team_usd_per_month=rented)
    without, with_it = best(demand, ways[:2], prices, more), best(demand, ways, prices, more)
    assert with_it.present_usd <= without.present_usd * (1 + 1e-9)


@SETTINGS
@given(st.floats(0.1, 50), st.integers(1, 40), st.integers(1, 24), st.floats(0, 0.5))
def test_a_longer_flat_horizon_does_not_change_rent(rate: float, months: int, more: int, discount: float) -> None:
    short, long = (best(flat_demand(3, n), (hourly(rate),), plain(n, discount)) for n in (months, months + more))
    assert short.usd_per_month == pytest.approx(3 * 730 * rate)
    assert long.usd_per_month == pytest.approx(short.usd_per_month)


@SETTINGS
@given(
    st.lists(st.floats(0, 1), min_size=24, max_size=24).filter(lambda x: sum(x) > 0),
    st.floats(0, 0.9),
    st.floats(0, 0.5),
    st.floats(0, 20),
    st.floats(0, 0.3),
)
def test_a_longer_flat_horizon_never_makes_owning_dearer_by_the_month(
    falls: list[float], left: float, discount: float, running: float, selling: float
) -> None:
    """The value falls by less each month, so each further month in service costs less than those before it."""
    drops = np.sort(falls)[::-1] / sum(falls) * (1 - left)
    resale = tuple(((1 - np.concatenate([[0.0], np.cumsum(drops)])) * (1 - selling)).clip(0).tolist())
    way = bought(10_000, 24, resale, running)
    monthly = [best(flat_demand(1, n), (way,), plain(n, discount)).usd_per_month for n in range(1, 25)]
    assert all(b <= a * (1 + 1e-9) + 1e-9 for a, b in zip(monthly, monthly[1:], strict=False))


@SETTINGS
@given(seeds, st.booleans())
def test_no_limit_makes_a_plan_cheaper_and_every_limit_is_kept(seed: int, grows: bool) -> None:
    r = np.random.default_rng(seed)
    months = int(r.integers(2, 8))
    demand, ways, prices = random_demand(r, months, grows, True), random_ways(r), random_prices(r, months, "falling")
    more = Overheads(own_team_usd_per_month=200.0, rented_team_usd_per_month=100.0)
    free = best(demand, ways, prices, more)
    limits = Limits(max_capex_usd=free.capex_usd / 2, max_usd_per_month=free.most_usd_per_month)
    kept = best_plan(demand, ways, prices, more, limits)
    if kept is not None:
        assert kept.capex_usd <= free.capex_usd / 2 + 1e-3
        assert kept.most_usd_per_month <= free.most_usd_per_month * (1 + 1e-6) + 1e-3
    alone = best(demand, ways, prices, NONE)  # the least team is not part of the program
    kept = best_plan(demand, ways, prices, NONE, replace(limits, max_usd_per_month=alone.most_usd_per_month))
    if kept is not None:
        assert kept.present_usd >= alone.present_usd * (1 - 2e-6) - 1e-3 or not grows


# --- worked examples --------------------------------------------------------------------------------------------


def test_a_need_of_one_month_buys_no_server() -> None:
    """334,875 USD, worth 97 % after a month and 95 % of that after selling, loses 334,875 x (1 - 0.97 x 0.95) = 26,287.

    A month at 30 USD an hour costs 21,900. Twelve months cost 262,800; the server then loses 334,875 x (1 - 0.97^12 x
    0.95) = 114,148 and is bought.
    """
    resale = tuple((0.97 ** np.arange(61) * 0.95).tolist())
    ways = (hourly(30.0), bought(334_875, 60, resale))
    once = best(flat_demand(1, 1), ways, plain(1))
    assert once.capex_usd == 0 and once.present_usd == pytest.approx(21_900)
    assert best(flat_demand(1, 1), ways[1:], plain(1)).present_usd == pytest.approx(26_286.7, abs=1)
    last = Demand(counts=np.array([1]), fractions=np.eye(12)[11:])
    assert best(last, ways, plain(12)).present_usd == pytest.approx(21_900)
    first = Demand(counts=np.array([1]), fractions=np.eye(12)[:1])
    assert best(first, ways, plain(12)).present_usd == pytest.approx(21_900)
    year = best(flat_demand(1, 12), ways, plain(12))
    assert year.capex_usd == 334_875 and year.present_usd == pytest.approx(334_875 * (1 - 0.97**12 * 0.95))


def test_three_years_reserved_for_one_are_three_years_paid() -> None:
    """20 USD an hour reserved: 36 x 14,600 = 525,600, of which 24 x 14,600 = 350,400 after the year.

    On demand at 30: 12 x 21,900 = 262,800. Where an exit recovers 80 %: 12 x 14,600 + 350,400 x 0.2 = 245,280.
    """
    ways, year = (hourly(30.0), term(20.0, 36)), flat_demand(1, 12)
    reserved = best(year, ways[1:], plain(12))
    assert reserved.schedule.commitments == (Commitment(way=0, start_month=0, until_month=12, instances=1),)
    assert reserved.liability_usd == pytest.approx(24 * 14_600) and reserved.liability_months == 24
    assert reserved.present_usd == pytest.approx(525_600)
    assert reserved.payments[COMMITMENT].tolist() == pytest.approx([0.0, *[14_600.0] * 11, 14_600.0 * 25])
    assert reserved.most_usd_per_month == pytest.approx(14_600)
    assert {p.name: p.usd_per_hour for p in reserved.parts()} == pytest.approx({"instances": 20.0, AFTER: 40.0})
    chosen = best(year, ways, plain(12))
    assert chosen.schedule.commitments == () and chosen.present_usd == pytest.approx(262_800)
    left = best(year, ways, plain(12, exit_fraction=0.8))
    assert left.liability_usd == pytest.approx(70_080) and left.present_usd == pytest.approx(245_280)


def test_five_years_of_growth_are_bought_year_by_year() -> None:
    """20 % a year from 10: 10, 12, 15, 18 and 21 instances, 12 x 76 = 912 instance-months; 21 at once are 1,260.

    60,000 USD lose 1,000 a month over 60 months, and 1 USD an hour runs one: 1,730 an instance-month.
    """
    demand = demand_by_month([10 * 1.2 ** (month // 12) for month in range(60)], np.ceil)
    assert demand.needed[::12].tolist() == [10, 12, 15, 18, 21]
    resale = tuple((1 - np.arange(61) / 60).tolist())
    ways = (bought(60_000, 60, resale, running=1.0), hourly(3.0))
    named = named_plans(demand, ways, plain(60), NONE)
    now, later = named["buy_now"], named["extend_later"]
    assert now.present_usd == pytest.approx(1_260 * 1_730) and later.present_usd == pytest.approx(912 * 1_730)
    assert [(c.start_month, c.instances) for c in later.schedule.commitments] == [
        (0, 10), (12, 2), (24, 3), (36, 3), (48, 3),
    ]  # fmt: skip
    assert later.capex_usd == now.capex_usd == 21 * 60_000
    assert named["rent"].present_usd == pytest.approx(912 * 2_190)
    assert named["mixed"].present_usd == pytest.approx(later.present_usd)
    assert min(named.values(), key=lambda p: p.present_usd).present_usd == pytest.approx(912 * 1_730)


def test_reservations_of_a_year_are_signed_one_after_another_as_the_need_grows() -> None:
    """The second instance is needed for 33 months from the fourth on.

    Terms from months 4, 16 and 28 pay 36 x 20; two of them and nine months by the hour pay 24 x 20 + 9 x 30 = 750.
    """
    demand = Demand(counts=np.array([1, 1]), fractions=np.array([[1.0] * 36, [0.0] * 3 + [1.0] * 33]))
    plan = best(demand, (hourly(30.0), term(20.0, 12)), plain(36))
    assert [(c.start_month, c.until_month) for c in plan.schedule.commitments] == [
        (0, 12), (3, 15), (12, 24), (15, 27), (24, 36), (27, 36),
    ]  # fmt: skip
    assert plan.schedule.hourly == ()
    assert plan.liability_usd == pytest.approx(3 * 20 * 730) and plan.liability_months == 3
    assert plan.present_usd == pytest.approx(72 * 20 * 730)


def test_the_base_is_reserved_and_the_peaks_are_rented_by_the_hour() -> None:
    """Half the load for 128 hours of a week and all of it for 40, five peaks a week, half an hour to start.

    Two instances are always needed: 20 USD reserved against 30. Two more for (40 + 5 x 0.5) / 168 = 25.3 % of the
    hours: 30 x 0.253 = 7.59 USD against 20.
    """
    levels = (np.array([0.5, 1.0]), np.array([128.0, 40.0]), np.array([0, 1]), np.array([1, 0]), np.array([5.0, 5.0]))
    demand = demand_by_month([4.0] * 12, np.ceil, levels, start_hours=0.5)
    assert demand.counts.tolist() == [2, 2] and demand.never_shrinks
    assert demand.fractions[:, 0] == pytest.approx([1.0, 42.5 / 168])
    plan = best(demand, (hourly(30.0), term(20.0, 12)), plain(12))
    assert plan.schedule.commitments == (Commitment(way=1, start_month=0, until_month=12, instances=2),)
    (peaks,) = plan.schedule.hourly
    assert peaks.instances.tolist() == [2] * 12 and peaks.paid == pytest.approx([2 * 42.5 / 168] * 12)
    assert plan.usd_per_month == pytest.approx(730 * (2 * 20 + 2 * 30 * 42.5 / 168))
    assert plan.in_service((HOURLY,)).tolist() == plan.in_service((TERM,)).tolist() == [2] * 12


def test_renting_first_waits_for_the_price_to_fall() -> None:
    """24,000 USD today and 12,000 from month 7 on, worth nothing later; 1,460 a month by the hour.

    Six months of rent and the lower price are 6 x 1,460 + 12,000 = 20,760; buying today 24,000, renting 35,040.
    """
    prices = plain(24, hardware=(1.0,) * 6 + (0.5,) * 18)
    named = named_plans(flat_demand(1, 24), (hourly(2.0), bought(24_000, 24)), prices, NONE)
    assert {name: plan.present_usd for name, plan in named.items()} == pytest.approx(
        {"rent": 35_040, "buy_now": 24_000, "rent_then_buy": 20_760, "mixed": 20_760}
    )
    then = named["rent_then_buy"]
    assert then.schedule.commitments == (Commitment(way=1, start_month=6, until_month=24, instances=1),)
    assert then.schedule.hourly[0].instances.tolist() == [1] * 6 + [0] * 18
    late = named_plans(flat_demand(1, 24), (hourly(2.0), bought(24_000, 24, lead_months=9)), prices, NONE)
    assert late["rent_then_buy"].present_usd == pytest.approx(9 * 1_460 + 12_000)
    assert "buy_now" not in late  # nothing can be bought for today
    assert late["extend_later"].present_usd == pytest.approx(9 * 1_460 + 12_000)  # rented until it is delivered


def test_a_switch_pays_for_both_while_the_traffic_moves() -> None:
    """7,300 a month by the hour; 120,000 USD to buy before month 11 and 60,000 after, in service two months early.

    Leaving after month 12 costs 12 x 7,300 + 60,000 = 147,600; after month 6 it is 43,800 + 120,000 and after month 18
    131,400 + 60,000 = 191,400. With three months of both, month 10 still has the high price.
    """
    first, second = (flat_demand(1, 24), (hourly(10.0),), NONE), (flat_demand(1, 24), (bought(120_000, 24),), NONE)
    prices = plain(24, hardware=(1.0,) * 10 + (0.5,) * 14)
    found = best_switch(first, second, prices, (6, 12, 18), 2)
    assert found is not None
    assert (found.month, found.overlap_months) == (12, 2) and found.present_usd == pytest.approx(147_600)
    assert found.usd_per_month == pytest.approx(147_600 / 24)
    longer = best_switch(first, second, prices, (6, 12, 18), 3)
    assert longer is not None and longer.month == 6 and longer.present_usd == pytest.approx(163_800)
    assert best_switch(first, second, prices, (6, 24), 7) is None


def test_a_switch_leaves_what_the_first_one_still_owes_behind() -> None:
    """A term of 36 months left after 12: 36 payments of 1,460. Then 12 months and 1 of both at 730."""
    first, second = (flat_demand(1, 24), (term(2.0, 36),), NONE), (flat_demand(1, 24), (hourly(1.0),), NONE)
    found = best_switch(first, second, plain(24), (12,), 1)
    assert found is not None and found.present_usd == pytest.approx(36 * 1_460 + 13 * 730)


# --- overheads --------------------------------------------------------------------------------------------------


def test_the_least_team_is_paid_beyond_the_staff_of_the_instances() -> None:
    """0.1 USD an hour of staff is 73 a month; a team of 500 adds 427. Of one owned and one rented: the owned one's."""
    rented = Way(kind=HOURLY, parts=(part("instances", 1.0), part("staff", 0.1, "running")))
    more = Overheads(own_team_usd_per_month=900.0, rented_team_usd_per_month=500.0)
    plan = best(flat_demand(1, 6), (rented,), plain(6), more)
    assert plan.payments[STAFF].tolist() == pytest.approx([0.0, *[500.0] * 6])
    assert {p.name: p.usd_per_hour * 730 for p in plan.parts()} == pytest.approx(
        {"instances": 730, "staff": 73, TEAM: 427}
    )
    held = Way(kind=OWNED, parts=(), most=1)
    schedule = Schedule(
        commitments=(Commitment(way=1, start_month=0, until_month=3, instances=1),),
        hourly=(Hourly(way=0, instances=np.array([1] * 6), paid=np.ones(6)),),
    )
    both = plan_of(flat_demand(1, 6), (rented, held), plain(6), schedule, more)
    assert both.payments[STAFF].tolist() == pytest.approx([0.0, *[900.0] * 3, *[500.0] * 3])


def test_a_team_of_ones_own_can_make_the_rent_of_everything_cheaper() -> None:
    """Buying saves 730 - 500 = 230 a month of one instance; the team costs 300 more."""
    ways = (hourly(1.0), bought(6_000, 12))
    assert best(flat_demand(1, 12), ways, plain(12)).capex_usd == 6_000
    dear = best(flat_demand(1, 12), ways, plain(12), Overheads(own_team_usd_per_month=300.0))
    assert dear.capex_usd == 0 and dear.present_usd == pytest.approx(8_760)
    assert best(flat_demand(2, 12), ways, plain(12), Overheads(own_team_usd_per_month=300.0)).capex_usd == 12_000


def test_egress_follows_the_traffic_and_the_rented_share() -> None:
    """Egress of 0.5 USD an hour doubles with the traffic; half of the instances are rented. A copy stays a copy."""
    services = (part("egress", 0.5, "services"), part("storage of weights", 0.25, "services"))
    more = Overheads(services=services, traffic=(1.0, 2.0))
    plan = best(flat_demand(2, 2), (hourly(1.0), Way(kind=OWNED, parts=(), most=1)), plain(2), more)
    assert plan.payments[SERVICES].tolist() == pytest.approx([0.0, 730 * 0.5, 730 * 0.75])


# --- cash flow --------------------------------------------------------------------------------------------------


@SETTINGS
@given(seeds, paths, overheads, st.booleans())
def test_the_columns_of_the_cash_flow_add_up(seed: int, path: str, more: Overheads, grows: bool) -> None:
    plan = random_plan(seed, path, more, grows)
    assume(plan is not None)
    assert plan is not None
    rows = flows(plan)
    assert [f.month for f in rows] == list(range(plan.prices.months + 1))
    assert [f.total_usd for f in rows] == pytest.approx(plan.total_by_month.tolist(), abs=1e-6)
    for f in rows:
        paid = f.capital_usd + f.rent_usd + f.energy_usd + f.staff_usd + f.other_usd
        assert f.total_usd == pytest.approx(paid - f.resale_usd, abs=1e-6)
        assert f.book_value_usd >= -1e-9
    assert math.fsum(f.present_usd for f in rows) == pytest.approx(plan.present_usd, abs=1e-6)
    assert math.fsum(f.capital_usd for f in rows) == pytest.approx(plan.capex_usd)
    assert math.fsum(f.resale_usd for f in rows) == pytest.approx(plan.resale_usd)


def test_the_book_value_falls_in_a_straight_line_and_is_gone_when_the_hardware_is_sold() -> None:
    """12,000 USD over four months, replaced once: 3,000 a month; at the horizon half of the second one is left."""
    plan = best(flat_demand(1, 6), (bought(12_000, 4, (1.0, 0.9, 0.8, 0.7, 0.6)),), plain(6))
    assert plan.payments[CAPITAL].tolist() == [12_000, 0, 0, 0, 12_000, 0, 0]
    assert plan.resale_usd == pytest.approx(12_000 * (0.6 + 0.8))
    assert book_values(plan).tolist() == pytest.approx([12_000, 9_000, 6_000, 3_000, 12_000, 9_000, 6_000])
    market = [market_value(plan, month) for month in range(7)]
    assert market == pytest.approx([12_000, 10_800, 9_600, 8_400, 12_000, 10_800, 0])
    shrunk = Demand(counts=np.array([1]), fractions=np.array([[1.0, 1, 0, 0]]))
    sold = best(shrunk, (bought(12_000, 4, (1.0, 0.85, 0.8, 0.7, 0.6)),), plain(4))
    assert book_values(sold).tolist() == pytest.approx([12_000, 9_000, 0, 0, 0])
    assert sold.payments[RESALE].tolist() == pytest.approx([0, 0, -9_600, 0, 0])


def test_purchases_that_start_later_are_worth_their_price_when_they_are_made() -> None:
    """The payment for a purchase at the end of month 3 is counted then, and so is what it bought."""
    demand = Demand(counts=np.array([1, 1]), fractions=np.array([[1.0] * 6, [0.0] * 3 + [1.0] * 3]))
    plan = best(demand, (bought(6_000, 6, tuple((1 - np.arange(7) / 6).tolist())),), plain(6))
    assert [market_value(plan, month) for month in (2, 3, 4)] == pytest.approx([4_000, 3_000 + 6_000, 2_000 + 5_000])
    rented = best(demand, (hourly(2.0),), plain(6))  # 1,460 a month against 1,000
    assert break_even_month(plan, rented) == 1
    late = Demand(counts=np.array([1]), fractions=np.array([[0.0, 1.0, 1.0]]))
    own, other = (best(late, (way,), plain(3)) for way in (bought(3_000, 3, (1.0, 0.5, 0.2, 0.0)), hourly(2.0)))
    assert break_even_month(own, other) == 3  # the first month of service loses 1,500 of value against 1,460 of rent


@given(
    st.floats(1_000.0, 40_000.0), st.integers(2, 60), st.floats(100.0, 2_000.0), st.floats(0.0, 0.2), st.floats(0, 1)
)
def test_from_the_break_even_on_owning_has_cost_less_in_every_month_to_the_end(
    capital: float, months: int, rate: float, discount: float, kept: float
) -> None:
    """So it never contradicts the whole horizon: there is a month exactly where owning costs no more in the end."""
    own, rent = against_rent(capital, months, rate, tuple((kept ** (np.arange(months + 1) / 12)).tolist()), discount)
    month = break_even_month(own, rent)
    present = own.prices.present(np.arange(months + 1))
    ahead = np.cumsum((rent.total_by_month - own.total_by_month) * present)
    worth = [market_value(own, m) * present[m] for m in range(1, months)] + [0.0]
    cheaper = ahead[1:] + worth >= -CENT / 2  # as the month is found: equal within half a cent
    assert (month is not None) == cheaper[-1]
    if month is not None:
        assert all(cheaper[month - 1 :]) and (month == 1 or not cheaper[month - 2])


@given(st.integers(1, 20))
def test_nothing_breaks_even_before_it_is_delivered(wait: int) -> None:
    demand = Demand(counts=np.array([1]), fractions=np.array([[0.0] * wait + [1.0] * 24]))
    own, other = (best(demand, (way,), plain(24 + wait)) for way in (bought(3_000, 60, (1.0,) * 61), hourly(2.0)))
    assert break_even_month(own, other) == wait + 1


# --- break-even -------------------------------------------------------------------------------------------------


def against_rent(capital: float, months: int, rate: float, resale: tuple[float, ...] = (), discount: float = 0.0):
    prices = plain(months, discount)
    return (
        best(flat_demand(1, months), (bought(capital, months, resale),), prices),
        best(flat_demand(1, months), (hourly(rate / 730),), prices),
    )


def test_the_payback_is_in_cash_and_the_break_even_counts_what_the_hardware_is_worth() -> None:
    """12,000 USD against 1,100 a month: eleven months pay it back. At 1,000 of value lost a month, one month does."""
    own, rent = against_rent(12_000, 12, 1_100.0, tuple((1 - np.arange(13) / 12).tolist()))
    assert payback_month(own, rent) == 11 and break_even_month(own, rent) == 1
    own, rent = against_rent(12_000, 12, 1_100.0)
    assert payback_month(own, rent) == 11 == break_even_month(own, rent)
    own, rent = against_rent(12_000, 12, 900.0)
    assert payback_month(own, rent) is None and break_even_month(own, rent) is None


@SETTINGS
@given(
    st.integers(2, 40), st.integers(0, 6), st.floats(5e3, 5e4), st.floats(300, 4000), st.floats(0, 0.9),
    st.floats(0, 0.2), st.booleans(),
)  # fmt: skip
def test_the_lines_cross_for_good_in_the_months_that_are_named(
    months: int, waits: int, usd: float, rate: float, resale: float, discount: float, renewed: bool
) -> None:
    """Counted from the cash flow; `renewed`: the server is replaced halfway, which costs the lead that owning had."""
    last, demand = months + waits, flat_demand(1, months + waits)
    values = tuple((resale * (1 - np.arange(61) / 61)).tolist())
    by_hour, server, prices = hourly(rate / 730), bought(usd, 60, values), plain(last, discount)
    half = waits + months // 2
    terms = [(waits, half), (half, last)] if renewed else [(waits, last)]
    rented = (np.arange(last) < waits).astype(float)
    schedule = Schedule(
        commitments=tuple(Commitment(way=0, start_month=a, until_month=b, instances=1) for a, b in terms),
        hourly=(Hourly(way=1, instances=rented.astype(int), paid=rented),),
    )
    own, rent = plan_of(demand, (server, by_hour), prices, schedule, NONE), best(demand, (by_hour,), prices)
    saved = [a.total_usd - b.total_usd for a, b in zip(flows(own), flows(rent), strict=True)]
    present = [a.present_usd - b.present_usd for a, b in zip(flows(own), flows(rent), strict=True)]
    worth = [market_value(own, m) * (1 + discount) ** (-m / 12) for m in range(last)] + [0.0]
    cash = [sum(saved[: m + 1]) for m in range(last + 1)]
    value = [sum(present[: m + 1]) - worth[m] for m in range(last + 1)]
    for found, behind in ((payback_month(own, rent), cash), (break_even_month(own, rent), value)):
        ahead = [m for m in range(waits + 1, last + 1) if all(each <= 0.005 for each in behind[m:])]
        assert found == min(ahead, default=None)


@SETTINGS
@given(st.integers(0, 24), st.integers(700, 3000), st.booleans())
def test_a_delivery_moves_the_break_even_by_its_months(waits: int, rate: int, sold: bool) -> None:
    """Until the delivery both rent the same: that neither has cost more is no break-even."""
    resale = tuple((0.9 * (1 - np.arange(13) / 12)).tolist()) if sold else ()
    at_once = break_even_month(*against_rent(12_000, 12, rate + 0.5, resale))
    months, by_hour = waits + 12, hourly((rate + 0.5) / 730)
    demand, prices = flat_demand(1, months), plain(months)
    rented = np.concatenate([np.ones(waits), np.zeros(12)])
    schedule = Schedule(
        commitments=(Commitment(way=0, start_month=waits, until_month=months, instances=1),),
        hourly=(Hourly(way=1, instances=rented.astype(int), paid=rented),),
    )
    own = plan_of(demand, (bought(12_000, 12, resale), by_hour), prices, schedule, NONE)
    found = break_even_month(own, best(demand, (by_hour,), prices))
    assert found == (None if at_once is None else at_once + waits)


def test_a_sharp_first_fall_of_the_value_is_met_later() -> None:
    """10,000 USD worth 7,000 after a month, then 500 less each: 3,000 + 500 (m - 1) is below 1,001 m from m = 5 on."""
    resale = (0.75, *(0.7 - 0.05 * np.arange(10)).tolist())
    own, rent = against_rent(10_000, 10, 1_001.0, resale)
    assert break_even_month(own, rent) == 5 and payback_month(own, rent) == 10


def test_the_internal_rate_is_that_of_the_savings_over_a_year() -> None:
    """1,000 today for 1,010 in a month: 1.01 ^ 12 - 1 a year."""
    own, rent = against_rent(1_000, 1, 1_010.0)
    assert internal_rate(own, rent) == pytest.approx(1.01**12 - 1)
    own, rent = against_rent(12_000, 12, 1_100.0, discount=0.3)
    rate = internal_rate(own, rent)
    assert rate is not None
    assert sum(1_100 / (1 + rate) ** (month / 12) for month in range(1, 13)) == pytest.approx(12_000)
    own, rent = against_rent(12_000, 12, 900.0)  # 10,800 for 12,000
    assert internal_rate(own, rent) is not None and internal_rate(own, rent) < 0  # type: ignore[operator]
    assert internal_rate(rent, own) is None  # pays nothing today
    assert internal_rate(own, own) is None


@SETTINGS
@given(st.floats(1e3, 1e6), st.integers(2, 60), st.floats(0.5, 3), st.floats(0, 0.9))
def test_at_the_internal_rate_both_plans_are_worth_the_same(
    capital: float, months: int, dearer_by: float, left: float
) -> None:
    own, rent = against_rent(capital, months, capital / months * dearer_by, (1.0, *[left] * months))
    rate = internal_rate(own, rent)
    if rate is None:
        return
    for plan in (own, rent):
        assert plan.total_by_month.shape == (months + 1,)
    at = replace(own.prices, discount_fraction=rate).present(np.arange(months + 1))
    assert float((own.total_by_month - rent.total_by_month) @ at) == pytest.approx(0, abs=1e-5 * capital)


# --- taxes ------------------------------------------------------------------------------------------------------


def asked(income: float, vat: float) -> Any:
    rows = {"income-tax-fraction": {"value": income}, "vat-fraction": {"value": 0.0}}
    return SimpleNamespace(spec={"tco": {"vat-fraction": vat}}, snapshot=Snapshot(assumptions=rows))


def test_a_years_taxes_by_hand() -> None:
    """12,000 USD over 24 months, sold for 4,800 after 12; 50 of electricity and 100 of staff a month, before VAT.

    VAT at 10 %: 1,200 + 60 = 1,260. Payments: 13,200 + 660 + 1,200 - 4,800 = 10,260. Expenses: staff 1,200, electricity
    660, and 13,200 written off less the sale of 4,800: 10,260, of which 30 % is saved: 3,078.
    10,260 - 3,078 = 7,182.
    """
    way = bought(13_200, 24, (1.0,) + (0.4 / 1.1,) * 12, running=55 / 730)  # with VAT
    way = replace(way, parts=(*way.parts, part("staff", 100 / 730, "running")))
    found = taxes(asked(0.3, 0.1), best(flat_demand(1, 12), (way,), plain(12)))
    assert found is not None
    assert (found.vat_usd, found.npv_after_tax_usd) == pytest.approx((1_260, 7_182))


def test_depreciation_saves_tax_in_its_month() -> None:
    """2,400 USD over two months at 1 % a month and 50 %: 2,400 today less 600 after one month and 600 after two."""
    prices = plain(2, 1.01**12 - 1)
    found = taxes(asked(0.5, 0.0), best(flat_demand(1, 2), (bought(2_400, 2),), prices))
    assert found is not None and found.vat_usd == 0
    assert found.npv_after_tax_usd == pytest.approx(2_400 - 600 / 1.01 - 600 / 1.01**2, abs=0.01)


def test_rent_has_vat_and_is_an_expense_of_its_month() -> None:
    """1,000 a month for two months at 20 % and 25 %: 1,200 less 300 each."""
    plan = best(flat_demand(1, 2), (hourly(1_200 / 730),), plain(2))
    found = taxes(asked(0.25, 0.2), plan)
    assert found is not None
    assert (found.vat_usd, found.npv_after_tax_usd) == pytest.approx((400, 1_800))
    assert taxes(asked(0.0, 0.0), plan) is None


# --- payments by driver -----------------------------------------------------------------------------------------


def test_each_driver_follows_its_own_path() -> None:
    way = Way(
        kind=HOURLY, parts=(part("instances", 1.0), part("electricity", 2.0, "running"), part("staff", 3.0, "running")),
        kept_parts=(part("licences", 4.0, "running"),),
    )  # fmt: skip
    demand = Demand(counts=np.array([2]), fractions=np.array([[0.5, 0.5]]))
    plan = best(demand, (way,), plain(2, rent=(1.0, 0.5), energy=(1.0, 3.0)))
    month = {name: usd[1:] / 730 for name, usd in plan.payments.items()}
    assert month[RENT] == pytest.approx([1.0, 0.5]) and month["energy"] == pytest.approx([2.0, 6.0])
    assert month[STAFF] == pytest.approx([3.0, 3.0]) and month["other"] == pytest.approx([8.0, 8.0])


def test_a_free_commitment_costs_nothing() -> None:
    way = Way(kind=TERM, parts=(part("instances", 0.0), part("staff", 1.0, "running")), term_months=12)
    plan = best(flat_demand(1, 3), (way,), plain(3))
    assert plan.present_usd == pytest.approx(3 * 730) and plan.liability_usd == 0
