"""Racks, cooling and hosts that are there already, at a planner's own site."""

from dataclasses import replace
from typing import Any

import pytest

from advisor.engine.cost.site import (
    closest_rejection,
    owned_instances,
    racks_of,
    site_rejection,
)
from advisor.engine.terms.machines.offer import OWNED, Offer
from advisor.engine.terms.rejection import Rejection, limit_change
from advisor.engine.terms.workloads.workload import Constraints
from tests.engine.catalog_sample import offer

HOST = offer("big", 5.0, 8, acquisition="own", term="purchase", full_watts=10_240.0, cooling="liquid")


def site(**changes: Any) -> Constraints:
    return Constraints(**changes)


def test_a_host_that_draws_more_than_a_rack_feeds_is_refused_with_the_power_that_it_needs():
    found = site_rejection(HOST, site(max_rack_watts=10_000.0))
    assert found == Rejection(
        accelerator="big",
        reason="too_much_power",
        detail="big-8 draws 10.2 kW at full load; the site has 10 kW per rack",
        limit=10.0,
        reached=10.24,
        smallest_change="passes this gate with site.kw_per_rack >= 10.3",
        changes=(limit_change("constraints.site.kw_per_rack", ">=", 10.3),),
    )
    assert site_rejection(HOST, site(max_rack_watts=10_240.0)) is None


def test_the_change_that_a_refusal_names_is_enough():
    found = site_rejection(HOST, site(max_rack_watts=1.0))
    assert found and site_rejection(HOST, site(max_rack_watts=1e3 * found.changes[0].value)) is None


def test_a_host_needs_cooling_that_the_site_has():
    found = site_rejection(HOST, site(cooling="air"))
    assert found and found.reason == "cooling" and found.limit is None
    assert found.detail == "big-8 needs liquid cooling; the site has air cooling only"
    assert site_rejection(HOST, site(cooling="liquid")) is None
    assert site_rejection(HOST, site(cooling="any")) is None
    assert site_rejection(replace(HOST, cooling="air or liquid"), site(cooling="air")) is None


@pytest.mark.parametrize("free", [
    {"acquisition": "rent", "term": "on_demand"}, {"term": OWNED}, {"full_watts": None, "cooling": ""},
])  # fmt: skip
def test_rented_owned_and_unpublished_hosts_pass(free):
    assert site_rejection(replace(HOST, **free), site(max_rack_watts=1000.0, cooling="air")) is None


def test_of_refused_hosts_the_one_nearest_to_its_limit_is_told():
    def power(reached: float, detail: str = "") -> Rejection:
        return Rejection(accelerator="a", reason="too_much_power", detail=detail, limit=10.0, reached=reached)

    cooling = Rejection(accelerator="a", reason="cooling", detail="")
    assert closest_rejection([cooling, power(14.0), power(11.0, "z"), power(11.0, "b")]) == power(11.0, "b")
    assert closest_rejection([cooling]) == cooling


def racks(instances: int, watts: float | None, o: Offer = HOST) -> tuple[float, int | None, int | None] | None:
    found = racks_of(o, instances, site(max_rack_watts=watts))
    return found and (found.host_watts, found.rack_instances, found.racks)


def test_racks_hold_whole_hosts():
    """40 kW feed three hosts of 10.24 kW: seven hosts take three racks."""
    assert racks(7, 40_000.0) == (10_240.0, 3, 3)
    assert racks(6, 40_000.0) == (10_240.0, 3, 2)
    assert racks(1, 10_240.0) == (10_240.0, 1, 1)


def test_racks_are_not_counted_where_their_power_or_the_hosts_is_unknown():
    assert racks(7, None) == (10_240.0, None, None)
    assert racks(7, 10_000.0) == (10_240.0, 0, None)
    assert racks(7, 40_000.0, replace(HOST, full_watts=None)) is None
    assert racks(7, 40_000.0, replace(HOST, acquisition="rent")) is None


def test_hosts_that_are_there_are_used_first():
    some = replace(HOST, held_instances=3)
    assert [owned_instances(some, n) for n in (2, 3, 5)] == [2, 3, 3]
