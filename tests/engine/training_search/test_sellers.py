"""Which offers one run may combine: never machines of two sellers, nor spot instances with others."""

from itertools import product

from advisor.engine.training_search.search import MOST_SELLERS, by_seller
from tests.engine.training_search.sample import bought, rented


def test_a_group_has_one_seller_one_region_and_one_kind_of_interruption() -> None:
    regions = ("north", "south")
    terms = ("on_demand", "spot", "reserved_1y")
    offers = [
        rented(term, 20.0 + i, provider=provider, region=region)
        for i, (provider, region, term) in enumerate(product(("a", "b"), regions, terms))
    ] + [bought(), bought(200_000.0, provider="other shop")]
    groups = by_seller(offers)
    assert len(groups) > 3
    for group in groups:
        assert len({o.acquisition == "own" for o in group}) == 1
        assert len({(o.provider, o.region) for o in group}) == 1 or group[0].acquisition == "own"
        assert len({o.term == "spot" for o in group}) == 1
        assert len({o.term for o in group}) == len(group)


def test_the_cheapest_region_stands_for_a_provider() -> None:
    near, far = rented(usd_per_hour=20.0, region="near"), rented(usd_per_hour=19.0, region="far")
    assert by_seller([near, far]) == [(far,)]


def test_own_hosts_of_two_sizes_are_two_groups() -> None:
    eight, four = bought(), bought(instance="big-4", accelerators=4)
    assert sorted(len(group) for group in by_seller([eight, four])) == [1, 1]


def test_only_the_cheapest_rents_are_planned_and_owning_always() -> None:
    rents = [rented(usd_per_hour=20.0 + i, provider=f"cloud {i}") for i in range(6)]
    groups = by_seller([*reversed(rents), bought()])
    assert [group[0].provider for group in groups] == ["shop", *(f"cloud {i}" for i in range(MOST_SELLERS))]
