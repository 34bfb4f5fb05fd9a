"""Plans of offers: the estimate for all candidates is the plan of one offer, and a plan mixes what it may mix."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.engine.cost.hourly import (
    FINANCING,
    Assumptions,
    capital_shares,
    capital_usd,
    list_rent_parts,
    own_parts,
    rent_parts,
    service_months,
    total_usd_per_hour,
)
from advisor.engine.plans.plan import Overheads, Plan, best_plan
from advisor.engine.plans.ways import HOURLY, OWNED, PURCHASE, TERM, Way, demand_by_month
from advisor.engine.search import Question
from advisor.engine.search.candidates import Catalog
from advisor.engine.search.growing import instances_over_horizon
from advisor.engine.search.planned import (
    Deployed,
    allowed_offers,
    best,
    combinations,
    demand_for,
    prices_of,
    single,
    ways_of,
)
from advisor.engine.search.run import search
from advisor.engine.search.simulated import instances_of
from advisor.engine.terms.machines.offer import OWNED as OWNED_TERM
from advisor.engine.terms.machines.offer import Offer
from advisor.engine.terms.workloads.workload import Constraints, Workload
from tests.engine.catalog_sample import ASSUMED, catalog, offer, question

SETTINGS = settings(max_examples=50, deadline=None, derandomize=True)


def rented(term: str, rate: float, a: Assumptions, **changes: object) -> Offer:
    parts = rent_parts(rate, term, a, 8)
    return offer(
        "big", total_usd_per_hour(parts), 8, term=term, parts=parts, list_parts=list_rent_parts(rate, term, a, 8),
        **changes,
    )  # fmt: skip


def bought(usd: float, a: Assumptions, **changes: object) -> Offer:
    parts = own_parts(usd, 8, 6_000.0, a)
    values = dict(
        acquisition="own", term="purchase", parts=parts, capital_usd=capital_usd(usd, a), purchase_usd=usd,
        capital_shares=capital_shares(usd, a), resale=a.resale(), provider="shop",
    )  # fmt: skip
    return offer("big", total_usd_per_hour(parts), 8, **values | changes)


# --- the estimate -----------------------------------------------------------------------------------------------


def needs(replicas: np.ndarray) -> np.ndarray:
    """Two chips of eight in an instance for each replica."""
    return np.ceil(np.asarray(replicas) / 4)


@SETTINGS
@given(
    st.integers(0, 10**6),
    st.integers(1, 60),
    st.sampled_from(["on_demand", "reserved_1y", "reserved_3y", "purchase"]),
    st.booleans(),
)
def test_the_estimate_of_growth_is_the_plan_of_one_offer(seed: int, months: int, term: str, moving: bool) -> None:
    r = np.random.default_rng(seed)
    forecast = tuple((r.uniform(0, 1.5) * np.cumprod(1 + r.uniform(0, 0.1, months))).tolist())

    def path(length: int) -> tuple[float, ...]:
        return tuple(np.cumprod(np.r_[1.0, r.uniform(0.95, 1.0, length - 1)]).tolist()) if moving else ()

    a = replace(
        ASSUMED, months=months, life_years=float(r.choice([1, 2.5, 5])), exit_fraction=r.random(),
        rent_path=path(months),
        hardware_path=path(months), resale_path=path(months + 1), discount_fraction=float(r.choice([0.0, 0.1])),
        rented_staff_ratio=0.0 if term == "on_demand" and moving else 0.3,
    )  # fmt: skip
    o = bought(200_000.0, a) if term == "purchase" else rented(term, 20.0, a)
    carrying = np.array([[3.0, 11.0], [3.0, 40.0]])
    found = instances_over_horizon(o, a, a.prices, forecast, carrying, needs)
    assert found.shape == (2, 2) and found[0, 0] == found[1, 0]
    listed = tuple(p for p in o.list_parts or o.parts if p.group != "capital")
    way = Way(
        kind={"on_demand": HOURLY, "purchase": PURCHASE}.get(term, TERM), parts=listed, capital_usd=o.capital_usd,
        term_months={"reserved_1y": 12, "reserved_3y": 36}.get(term, 0), life_months=service_months(a),
        resale=o.resale,
    )  # fmt: skip
    for count in (3.0, 11.0, 40.0):
        demand = demand_by_month([count * x for x in forecast], needs)
        plan = best_plan(demand, [way], a.prices, Overheads())
        assert plan is not None
        estimate = found[carrying == count][0] * o.usd_per_hour * 730
        assert estimate == pytest.approx(plan.usd_per_month)


# --- a deployment -----------------------------------------------------------------------------------------------

A = replace(ASSUMED, months=36, rented_staff_ratio=0.2)
RENTS = (
    rented("on_demand", 30.0, A),
    rented("reserved_1y", 22.0, A),
    rented("reserved_3y", 16.0, A),
    rented("on_demand", 28.0, A, provider="other"),
    rented("reserved_3y", 18.0, A, provider="other"),
)
SHOP = bought(250_000.0, A)


@pytest.fixture(scope="module")
def deployed() -> Deployed:
    s = search(Question(question(variants="no"), catalog(offers=RENTS, assumptions=A))).ranked[0]
    return Deployed(
        lane=s.lane, instances=partial(instances_of, question(), s), carrying=9, stored_bytes=1e11,
        output_tokens_per_s=1000.0, drawn_fraction=lambda _: 0.5, utilisation_fraction=s.utilisation_fraction,
    )  # fmt: skip


def asked(**changes: object) -> tuple[Workload, Catalog]:
    offers = changes.pop("offers", (*RENTS, SHOP))
    return question(horizon_months=36, **changes), catalog(offers=offers, assumptions=A)


GROWTH = tuple((1.05 ** np.arange(36)).tolist())
SEASONS = tuple((1 + 0.5 * np.sin(np.arange(36) / 2)).tolist())


@pytest.mark.parametrize("forecast", [(), GROWTH, SEASONS])
def test_a_mix_costs_no_more_than_the_best_offer_alone(deployed: Deployed, forecast: tuple[float, ...]) -> None:
    workload, known = asked(forecast=forecast)
    mixed = best(Question(workload, known), deployed, known.offers)
    assert mixed is not None
    alone = [p.plan.present_usd for o in known.offers if (p := single(Question(workload, known), deployed, o))]
    assert len(alone) == len(known.offers)
    assert mixed.plan.present_usd <= min(alone) * (1 + 2e-6)
    needed = demand_for(workload, deployed, known.offers[0]).needed
    assert (mixed.plan.in_service((HOURLY, TERM, PURCHASE, OWNED)) >= needed).all()
    assert 0 <= mixed.main < len(mixed.offers)
    assert sum(mixed.share_usd()) > 0


def test_flat_demand_on_one_offer_is_its_hourly_cost(deployed: Deployed) -> None:
    """Without growth, an instance costs what the offer says an hour of it costs over the horizon."""
    workload, known = asked()
    for o in RENTS:
        planned = single(Question(workload, known), deployed, o)
        assert planned is not None
        count = planned.plan.demand.needed[0]
        assert planned.plan.usd_per_month == pytest.approx(730 * o.usd_per_hour * count)


def test_rents_of_one_plan_come_from_one_provider(deployed: Deployed) -> None:
    workload, known = asked()
    mixes = combinations(workload, deployed, known.offers)
    assert {frozenset(o.provider for o in mix if o.acquisition == "rent") for mix in mixes} == {
        frozenset({"cloud"}),
        frozenset({"other"}),
    }
    assert all(SHOP in mix for mix in mixes)
    assert {o.term for mix in mixes for o in mix if o.provider == "cloud"} == {
        "on_demand", "reserved_1y", "reserved_3y",
    }  # fmt: skip


def test_capital_and_monthly_limits_are_kept_where_a_plan_can(deployed: Deployed) -> None:
    workload, known = asked()
    free = best(Question(workload, known), deployed, (*RENTS[:3], SHOP))
    assert free is not None and free.plan.capex_usd > 0
    none = replace(workload, constraints=Constraints(max_capex_usd=0.0))
    rent = best(Question(none, known), deployed, (*RENTS[:3], SHOP))
    assert rent is not None and rent.plan.capex_usd == 0
    assert rent.plan.present_usd >= free.plan.present_usd
    half = replace(workload, constraints=Constraints(max_usd_per_month=free.plan.most_usd_per_month / 2))
    still = best(
        Question(half, known), deployed, (*RENTS[:3], SHOP)
    )  # nothing fits: the cheapest plan is shown as it is
    assert still is not None and still.plan.present_usd == pytest.approx(free.plan.present_usd)


def test_what_is_owned_serves_first_and_only_as_much_as_there_is(deployed: Deployed) -> None:
    running = tuple(p for p in SHOP.parts if p.group == "running")
    owned = offer(
        "big", total_usd_per_hour(running), 8, acquisition="own", term=OWNED_TERM, parts=running, held_instances=1,
        provider="owned",
    )  # fmt: skip
    workload, known = asked(offers=(owned, *RENTS), forecast=tuple([1.0] * 12 + [4.0] * 24))
    count = demand_for(workload, deployed, owned).needed
    assert count.tolist() == [int(count[0])] * 12 + [int(count[-1])] * 24 and count[-1] > count[0] >= 1
    assert single(Question(workload, known), deployed, owned) is None  # not enough of them
    planned = best(Question(workload, known), deployed, known.offers)
    assert planned is not None and planned.plan.in_service((OWNED,)).tolist() == [1] * 36
    unlimited = replace(owned, held_instances=0)
    alone = single(Question(workload, known), deployed, unlimited)
    assert alone is not None and alone.plan.in_service((OWNED,)).tolist() == count.tolist()


def test_a_purchase_with_hosts_of_its_own_has_two_ways(deployed: Deployed) -> None:
    running = tuple(p for p in SHOP.parts if p.group == "running")
    workload, known = asked()
    held, new = ways_of(Question(workload, known), deployed, replace(SHOP, held_instances=2, held_parts=running))
    assert (held.kind, held.most, new.kind, new.most) == (OWNED, 2, PURCHASE, None)
    assert new.capital_usd == SHOP.capital_usd and FINANCING not in {p.name for p in new.parts}
    assert total_usd_per_hour(held.parts) == pytest.approx(total_usd_per_hour(new.parts))


def test_a_purchase_that_nothing_can_bridge_serves_from_the_start(deployed: Deployed) -> None:
    late = replace(SHOP, order_months=3.0)
    workload = question(horizon_months=36)
    known = catalog(offers=(RENTS[0], late), assumptions=A)
    alone, bridged = (
        single(Question(workload, known), deployed, late),
        best(Question(workload, known), deployed, known.offers),
    )
    assert alone is not None and alone.plan.in_service((PURCHASE,)).min() > 0
    assert bridged is not None
    months: Plan = bridged.plan
    assert (months.in_service((PURCHASE,)) > 0).tolist() == [False] * 3 + [True] * 33
    assert (months.in_service((HOURLY,)) > 0).tolist() == [True] * 3 + [False] * 33


def test_the_horizon_and_the_discount_are_those_of_the_workload(deployed: Deployed) -> None:
    prices = prices_of(Question(question(horizon_months=24, discount_fraction=0.2), catalog(assumptions=A)))
    assert (prices.months, prices.discount_fraction) == (24, 0.2)
    known = catalog(offers=(*RENTS, SHOP, offer("tiny", 0.1)))
    for kinds, sold in ((("rent",), [*RENTS]), (("rent", "own"), [*RENTS, SHOP])):
        assert (
            allowed_offers(Question(question(constraints=Constraints(acquisition=kinds)), known), deployed.lane) == sold
        )


@pytest.mark.parametrize(("held", "carrying", "hosts"), [(2, 1, 1), (2, 2, 2), (2, 3, 4), (0, 1, 2)])
def test_no_spare_is_added_while_owned_machines_suffice(
    deployed: Deployed, held: int, carrying: int, hosts: int
) -> None:
    """One replica on each host; rents of this chip get one spare host. Two owned hosts carry two replicas."""

    def instances(offer: Offer, replicas: Any) -> Any:
        return np.asarray(replicas) + (0 if offer.term == OWNED_TERM else 1)

    one_each, workload = replace(deployed, instances=instances), question(horizon_months=12)
    owned = replace(RENTS[0], acquisition="own", term=OWNED_TERM, held_instances=held)
    found = demand_for(workload, one_each, RENTS[0], carrying, offers=(RENTS[0], owned))
    assert found.needed.max() == hosts
