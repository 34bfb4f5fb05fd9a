"""Figures that follow from others, in lists, REST and files alike; and when a price is too old to count."""

import csv
import io
from datetime import timedelta
from decimal import Decimal

import pytest

from catalog.models import Accelerator, Price
from catalog.pricing.derived import accelerators, age, current_offers, spreads
from tests.clocks import TODAY

pytestmark = pytest.mark.django_db


def chip(slug, **figures):
    common = {"vendor": "acme", "family": "f", "kind": "gpu", "as_of": TODAY, "memory_gib": 10, "memory_gb_per_s": 1000}
    return Accelerator.objects.create(slug=slug, name=slug.title(), **(common | figures))


def offer(accelerator, usd, days=0, provider="moon", term="on_demand", chips=1, kind="vm", **more):
    paid = {"purchase_usd": Decimal(usd)} if term == "purchase" else {"usd_per_hour": Decimal(usd)}
    return Price.objects.create(
        accelerator=accelerator, provider=provider, instance=kind, accelerators=chips, term=term, kind=kind,
        as_of=TODAY - timedelta(days=days), source="price list", **paid, **more,
    )  # fmt: skip


@pytest.fixture
def large(db):
    found = chip("large", dense_tflops={"bf16": 500, "fp8": 1000}, tdp_watts=250)
    offer(found, 40, chips=8)
    offer(found, 6, provider="sun")
    offer(found, 20_000, term="purchase", kind="chip")
    return found


@pytest.fixture
def old(db):
    found = chip("old", dense_tflops={"fp16": 50})
    offer(found, 1, days=366, origin="marketplace")
    return found


def derived(slug):
    return accelerators().get(slug=slug)


def test_ratios_follow_from_the_row_and_its_current_offers(large):
    row = derived("large")
    assert (row.bf16_tflops, row.tflops_per_watt, row.flops_per_byte) == (500, 2, 500)
    assert (row.usd_per_hour_min, row.gb_per_s_per_usd_hour, row.usd_per_gib) == (5, 200, 2000)


def test_what_is_not_known_derives_to_nothing(old):
    row = derived("old")
    assert (row.bf16_tflops, row.fp8_tflops, row.tflops_per_watt, row.usd_per_gib) == (50, None, None, None)


def test_an_offer_of_a_year_ago_is_no_price(client, old):
    assert derived("old").usd_per_hour_min is None
    assert "no current price" in client.get("/catalog/accelerators").content.decode()
    assert "no current price" in client.get("/catalog/accelerators/old").content.decode()
    found = client.get("/api/v1/accelerators/old").json()
    assert (found["usd_per_hour_min"], found["price_note"]) == (None, "no current price")


def test_an_official_price_never_expires(client, old):
    offer(old, 2, days=800, provider="sun")
    assert derived("old").usd_per_hour_min == 2
    text = client.get("/catalog/accelerators/old").content.decode()
    assert "no current price" not in text and 'class="age-stale"' in text
    assert client.get("/api/v1/accelerators/old").json()["price_note"] == ""


def test_an_official_price_that_a_newer_list_replaced_does_not_count(old):
    offer(old, 2, days=800, provider="sun")
    offer(old, 3, days=10, provider="sun", kind="bare_metal")
    offer(old, 4, days=800, provider="sun", term="spot")
    assert sorted((each.usd_per_chip_hour, each.term) for each in current_offers()) == [(3, "on_demand"), (4, "spot")]


def test_the_lowest_rent_is_an_official_one_where_there_is_one(large):
    offer(large, 1, provider="a", origin="marketplace")
    offer(large, 2, provider="b", origin="index")
    offer(large, 3, provider="c", confidence="low")
    assert derived("large").usd_per_hour_min == 5
    Price.objects.filter(provider__in=("moon", "sun")).delete()
    assert derived("large").usd_per_hour_min == 1


def test_an_offer_that_was_replaced_no_longer_counts(large):
    offer(large, 3, provider="sun", days=40)
    assert derived("large").usd_per_hour_min == 5


def test_offers_are_normalised_to_one_chip(large):
    offer(large, 9, provider="mars")
    found = {each.term: each for each in spreads(current_offers().filter(accelerator=large))}
    rent = found["on_demand"]
    assert (rent.low_usd, rent.median_usd, rent.high_usd, rent.offers, rent.providers) == (5, 6, 9, 3, 3)
    assert found["purchase, chip"].low_usd == 20_000


def test_a_purchase_keeps_the_range_of_its_source(large):
    row = offer(large, 160_000, term="purchase", kind="server", chips=8)
    Price.objects.filter(pk=row.pk).update(purchase_usd_min=80_000, purchase_usd_max=240_000)
    found = {each.term: each for each in spreads(current_offers().filter(accelerator=large))}["purchase, server"]
    assert (found.low_usd, found.median_usd, found.high_usd, found.offers) == (10_000, 20_000, 30_000, 1)


@pytest.mark.parametrize(
    ("days", "word"),
    [(0, "fresh"), (30, "fresh"), (31, "ageing"), (90, "ageing"), (91, "stale"), (365, "stale"), (366, "expired")],
)
def test_figures_age_at_thirty_and_ninety_days(days, word):
    assert age(TODAY - timedelta(days=days)) == word
    for origin in ("official_list", "provider_api"):
        assert age(TODAY - timedelta(days=days), origin=origin) == {"expired": "stale"}.get(word, word)


@pytest.mark.parametrize("key", ["tflops_per_watt", "flops_per_byte", "usd_per_hour_min", "gb_per_s_per_usd_hour"])
def test_lists_and_rest_are_sorted_by_derived_figures_with_the_unknown_last(client, large, old, key):
    other = chip("small", dense_tflops={"bf16": 100}, tdp_watts=100)
    offer(other, 8)
    for sign in ("", "-"):
        found = client.get(f"/api/v1/accelerators?ordering={sign}{key}").json()["results"]
        rows = client.get(f"/catalog/accelerators?format=json&columns={key},slug&sort={sign}{key}").json()["results"]
        assert [row["slug"] for row in rows] == [row["slug"] for row in found]
        known = [row[key] for row in found if row[key] is not None]
        assert len(known) >= 2 and known == sorted(known, reverse=bool(sign))
        assert all(row[key] is not None for row in found[: len(known)])


def test_rest_takes_the_filters_and_the_sort_of_a_page(client, large, old):
    query = "search=acme&tflops_per_watt_min=1&sort=-memory_gib"
    assert [row["slug"] for row in client.get(f"/api/v1/accelerators?{query}").json()["results"]] == ["large"]
    assert client.get("/api/v1/accelerators?priced=true").json()["count"] == 1


def test_a_list_is_saved_as_filtered_with_the_shown_columns(client, large, old):
    answer = client.get("/catalog/accelerators?search=large&columns=slug&columns=tflops_per_watt&format=csv")
    assert answer["Content-Type"].startswith("text/csv")
    assert list(csv.DictReader(io.StringIO(answer.content.decode()))) == [
        {"name": "Large", "slug": "large", "tflops_per_watt": "2.0"}
    ]
    found = client.get("/catalog/prices?accelerator=large&format=json").json()
    assert found["count"] == 3
    assert {row["per_chip"] for row in found["results"]} == {5, 6, None}


def test_a_text_that_a_spreadsheet_would_run_is_quoted(client, large):
    Price.objects.filter(provider="sun").update(provider="=1+1")
    assert "\n'=1+1," in client.get("/catalog/prices?format=csv").content.decode()


def test_a_file_holds_every_page(client, db):
    for number in range(60):
        chip(f"c{number}")
    assert client.get("/catalog/accelerators?format=json").json()["count"] == 60
