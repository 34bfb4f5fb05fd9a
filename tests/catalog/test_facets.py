"""Facets of the lists: several values, each with the number of rows that it would leave, on pages and in REST."""

import re
from datetime import timedelta
from decimal import Decimal

import pytest

from catalog.lists import drawn
from catalog.lists.facets import Rows, region_group
from catalog.lists.filters import AcceleratorFilter, PriceFilter
from catalog.models import Accelerator, Price
from catalog.pages.lists import accelerators, public_prices
from tests.clocks import TODAY

pytestmark = pytest.mark.django_db


def offer(chip, provider, region, country, days=0, term="on_demand", origin="official_list"):
    Price.objects.create(
        accelerator=chip, provider=provider, instance="i", region=region, country=country, accelerators=1, term=term,
        usd_per_hour=Decimal(2), kind="vm", origin=origin, source="price list", as_of=TODAY - timedelta(days=days),
    )  # fmt: skip


@pytest.fixture
def prices(db):
    """A GPU of Acme offered in Paris and Iowa, a TPU of Moon offered anywhere, and a chip without an offer."""
    common = {"family": "f", "as_of": TODAY, "memory_gib": 80, "memory_gb_per_s": 1000}
    gpu = Accelerator.objects.create(slug="gpu", name="G", vendor="Acme", kind="gpu", **common)
    tpu = Accelerator.objects.create(slug="tpu", name="T", vendor="moon", kind="tpu", **common)
    Accelerator.objects.create(slug="idle", name="I", vendor="moon", kind="npu", **common)
    offer(gpu, "paris", "fr-par", "FR")
    offer(gpu, "iowa", "us-central1", "US", days=40, term="spot", origin="marketplace")
    offer(tpu, "world", "any", "", days=100)


def slugs(query):
    found = AcceleratorFilter(query, queryset=accelerators()).qs
    return sorted(found.values_list("slug", flat=True))


def providers(query):
    return sorted(PriceFilter(query, queryset=public_prices()).qs.values_list("provider", flat=True))


def test_several_values_of_a_facet_widen_and_several_facets_narrow(prices):
    assert providers({"region_group": ["eu", "us"]}) == ["iowa", "paris"]
    assert providers({"region_group": ["eu", "us"], "term": ["spot"]}) == ["iowa"]
    assert providers({"age": ["ageing,stale"]}) == ["iowa", "world"]
    assert providers({"vendor": ["ACME"], "accelerator_kind": ["gpu"]}) == ["iowa", "paris"]
    assert providers({"vendor": ["nobody"]}) == []


def test_facets_about_offers_hold_for_one_offer_together(prices):
    assert slugs({"region_group": ["eu"]}) == ["gpu"]
    assert slugs({"term": ["spot"]}) == ["gpu"]
    assert slugs({"region_group": ["eu"], "term": ["spot"]}) == []
    assert slugs({"vendor": ["moon"]}) == ["idle", "tpu"]


def test_a_count_is_what_choosing_the_value_would_leave(prices):
    for query in ({}, {"term": ["on_demand"]}, {"search": "paris"}, {"region_group": ["eu"]}):
        filterset = PriceFilter(query, queryset=public_prices())
        assert filterset.is_valid()
        for name, counted in filterset.counts().items():
            for value, count in counted.items():
                assert len(providers({**query, name: [value]})) == count, (query, name, value)


def test_counts_of_accelerators_are_of_accelerators_not_of_offers(prices):
    filterset = AcceleratorFilter({"term": ["on_demand", "spot"]}, queryset=accelerators())
    assert filterset.is_valid()
    assert filterset.counts()["kind"] == {"gpu": 1, "tpu": 1}
    assert filterset.counts()["region_group"] == {"eu": 1, "us": 1, "any": 1}


def test_a_row_that_misses_one_facet_counts_for_that_facet_alone():
    rows = Rows(("color", "size"), {1: [("red", "small")], 2: [("blue", "large")]})
    assert rows.counts({"color": {"red"}}, None) == {"color": {"red": 1, "blue": 1}, "size": {"small": 1}}
    assert rows.counts({"color": {"red"}, "size": {"small"}}, None) == {"color": {"red": 1}, "size": {"small": 1}}


@pytest.mark.parametrize(
    ("region", "country", "group"),
    [("fr-par", "FR", "eu"), ("x", "US", "us"), ("x", "JP", "apac"), ("x", "CH", "other"), ("any", "", "any"),
     ("north", "", "unknown")],
)  # fmt: skip
def test_a_price_belongs_to_a_region_group(region, country, group):
    assert region_group(region, country) == group


def test_the_page_shows_counts_and_removable_filters(client, prices):
    text = client.get("/catalog/prices?region_group=eu&region_group=us&term=spot").content.decode()
    assert re.search(r'name="region_group" value="eu"\s+checked>.*?<span class="count">', text)
    assert 'href="?region_group=us&amp;term=spot"' in text and 'href="?region_group=eu&amp;region_group=us"' in text
    assert "Remove the filter </span>Term: spot" in text and "1 result" in text


def test_rest_takes_the_same_values_and_refuses_others(client, prices):
    for query in ("region_group=eu&region_group=us", "region_group=eu,us"):
        found = client.get(f"/api/v1/prices?{query}").json()["results"]
        assert sorted(row["provider"] for row in found) == ["iowa", "paris"]
    assert client.get("/api/v1/prices?region_group=mars").status_code == 400
    names = client.get("/api/v1/accelerators?term=spot").json()["results"]
    assert [row["slug"] for row in names] == ["gpu"]


def test_a_new_price_is_counted_at_once(client, prices):
    def counted():
        filterset = PriceFilter({}, queryset=public_prices())
        assert filterset.is_valid()
        return {facet.name: {each.value: each.count for each in facet.options} for facet in drawn.facets(filterset)}

    assert counted()["region_group"] == {"eu": 1, "us": 1, "any": 1}
    offer(Accelerator.objects.get(slug="tpu"), "berlin", "eu", "DE")
    assert counted()["region_group"]["eu"] == 2
