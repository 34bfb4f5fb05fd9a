"""The price list: "cheapest H100 in the EU, official, on demand" with one set of filters for page, file and REST."""

import csv
import io
from datetime import timedelta
from decimal import Decimal

import pytest

from catalog.models import Accelerator, ExchangeRate, Price
from catalog.pricing.finding import chips_named
from tests.clocks import TODAY

pytestmark = pytest.mark.django_db
QUESTION = "accelerator=h100&place=eu&origin=official&term=on_demand"


def chip(slug, name, family="hopper"):
    return Accelerator.objects.create(
        slug=slug, name=name, vendor="nvidia", family=family, kind="gpu", as_of=TODAY, memory_gib=80,
        memory_gb_per_s=1000,
    )  # fmt: skip


def offer(slug, provider, usd, days=0, term="on_demand", chips=1, **more):
    paid = {"purchase_usd": Decimal(usd)} if term == "purchase" else {"usd_per_hour": Decimal(usd)}
    given = {"instance": "i", "region": "any", "kind": "vm", "source": "price list"} | paid | more
    return Price.objects.create(
        accelerator=Accelerator.objects.get(slug=slug), provider=provider, accelerators=chips, term=term,
        as_of=TODAY - timedelta(days=days), **given,
    )  # fmt: skip


@pytest.fixture
def prices(db):
    chip("h100-sxm", "H100 SXM5 80GB")
    chip("h100-pcie", "H100 PCIe 80GB")
    chip("h200-sxm", "H200 SXM 141GB")
    chip("l4", "L4", "ada")
    chip("l40s", "L40S", "ada")
    paris = {"region": "fr-par", "country": "FR"}
    offer("h100-sxm", "paris", 24, chips=8, origin="provider_api", **paris)
    offer("h100-sxm", "paris", 2, days=100, origin="provider_api", **paris)  # the same offer, earlier
    offer("h100-pcie", "world", 2)
    offer("h100-sxm", "iowa", 1, region="us-central1", country="US")
    offer("h100-sxm", "bazaar", 1, origin="marketplace", kind="marketplace", **paris)
    offer("h100-sxm", "paris", 1, term="spot", **paris)
    offer("h200-sxm", "paris", 1, **paris)
    offer("h100-pcie", "shop", 30_000, term="purchase", kind="chip", region="", country="DE", origin="reseller")
    ExchangeRate.objects.create(currency="EUR", per_usd=Decimal("0.8"), as_of=TODAY - timedelta(days=40), source="old")
    ExchangeRate.objects.create(currency="EUR", per_usd=Decimal("0.5"), as_of=TODAY, source="ECB")


def rest(client, query):
    answer = client.get(f"/api/v1/prices?{query}")
    assert answer.status_code == 200, answer.content
    return answer.json()["results"]


def providers(client, query):
    return [row["provider"] for row in rest(client, query)]


def page(client, query):
    return client.get(f"/catalog/prices?{query}").content.decode()


def test_page_file_and_rest_give_the_same_answer_those_of_the_place_first(client, prices):
    found = rest(client, QUESTION)
    assert [(row["provider"], row["usd_per_chip_hour"]) for row in found] == [("paris", 3), ("world", 2)]
    text = client.get(f"/catalog/prices?{QUESTION}&format=csv").content.decode()
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [(row["provider"], row["per_chip"]) for row in rows] == [("paris", "3.0"), ("world", "2.0")]
    shown = page(client, QUESTION)
    assert shown.index(">paris<") < shown.index(">world<") and "bazaar" not in shown
    assert shown.count("EU availability unknown") == 2  # at the row, and in the note above the list
    assert "h100 stands for H100 PCIe 80GB, H100 SXM5 80GB." in shown


def test_rest_and_files_say_what_a_price_is_worth(client, prices):
    (row,) = rest(client, f"{QUESTION}&anywhere=no")
    assert (row["origin"], row["confidence"], row["unit"], row["country"]) == (
        "provider_api",
        "medium",
        "instance",
        "FR",
    )
    assert (row["currency"], row["listed_price"], row["age_days"]) == ("USD", None, 0)
    assert row["usd_per_chip_month"] == 3 * 730
    text = client.get(f"/catalog/prices?{QUESTION}&anywhere=no&format=csv").content.decode()
    (saved,) = csv.DictReader(io.StringIO(text))
    old = {"usd_per_hour", "per_chip", "purchase_usd", "kind", "as_of", "source", "notes", "vcpus", "region"}
    new = {"origin", "confidence", "unit", "country", "currency", "listed_price", "usd_per_chip_month", "age_days"}
    assert old | new <= set(saved)
    assert (saved["origin"], saved["age_days"], saved["term"]) == ("provider_api", "0", "on_demand")
    assert "provider&#x27;s price API" in page(client, QUESTION)


def test_a_chip_is_named_by_slug_name_family_or_a_part(prices):
    both = ["h100-pcie", "h100-sxm"]
    assert chips_named("H100") == both
    assert chips_named("nvidia h100") == both
    assert chips_named("H100 SXM") == ["h100-sxm"]
    assert chips_named("h100 pcie 80gb") == ["h100-pcie"]
    assert chips_named("L4") == ["l4"]  # not the L40S
    assert chips_named("Hopper") == [*both, "h200-sxm"]
    assert chips_named("h1") == both
    assert chips_named("mi300x") == [] == chips_named(" ")


def test_a_place_is_an_area_a_country_or_a_region(client, prices):
    query = "accelerator=h100&term=on_demand&origin=official&anywhere=no&place="
    for place in ("eu", "EU", "France", "fr", "fr-par"):
        assert providers(client, query + place) == ["paris"]
    assert providers(client, query + "us") == ["iowa"]
    assert providers(client, "accelerator=h100&place=de&anywhere=no") == ["shop"]
    assert providers(client, "place=atlantis") == []
    assert "atlantis is not a known place" in page(client, "place=atlantis")


def test_origin_term_and_confidence_narrow(client, prices):
    assert providers(client, "accelerator=h100&origin=marketplace") == ["bazaar"]
    assert providers(client, "accelerator=h100&term=spot") == ["paris"]
    assert "shop" not in providers(client, "accelerator=h100&term=rent")
    assert providers(client, "accelerator=h100&term=purchase") == ["shop"]
    assert providers(client, "confidence=high") == []
    assert providers(client, "provider=PARIS&accelerator=h100-sxm&term=spot") == ["paris"]


def test_only_the_newest_row_of_an_offer_unless_history_is_asked_for(client, prices):
    query = "accelerator=h100-sxm&provider=paris&term=on_demand"
    assert [row["age_days"] for row in rest(client, query)] == [0]
    assert [row["age_days"] for row in rest(client, f"{query}&history=yes")] == [0, 100]
    until = TODAY - timedelta(days=50)
    assert [row["age_days"] for row in rest(client, f"{query}&until={until}")] == [100]  # the newest by then
    old = Price.objects.get(provider="paris", as_of=TODAY - timedelta(days=100))
    assert client.get(f"/api/v1/prices/{old.pk}").json()["age_days"] == 100


def test_current_leaves_out_what_expired_or_was_replaced(client, prices):
    offer("l4", "bazaar", 1, days=400, origin="marketplace")
    offer("l4", "sun", 2, days=400, origin="official_list")
    offer("l4", "moon", 3, days=400, instance="old name")
    offer("l4", "moon", 4, instance="new name")
    assert providers(client, "accelerator=l4") == ["sun", "moon", "bazaar", "moon"]  # the cheapest, then the old ones
    assert [row["usd_per_chip_hour"] for row in rest(client, "accelerator=l4&current=yes")] == [2, 4]
    text = page(client, "accelerator=l4")
    assert text.count('class="age-expired"') == 1 and text.count('class="age-stale"') == 2


@pytest.mark.parametrize("sort", ["", "&sort=per_chip", "&sort=-per_chip", "&sort=provider", "&sort=-age_days"])
def test_no_price_of_any_region_stands_above_one_of_the_place(client, prices, sort):
    offer("h200-sxm", "globe", 1, region="global")
    offer("h200-sxm", "nowhere", 1, region="")
    for accelerator in ("h100", "h200-sxm", "hopper"):
        for place in ("eu", "France", "fr-par"):
            query = f"accelerator={accelerator}&place={place}&term=rent{sort}"
            rows = list(csv.DictReader(io.StringIO(client.get(f"/catalog/prices?{query}&format=csv").content.decode())))
            known = [row["country"] == "FR" for row in rows]
            assert any(known) and not all(known) and known == sorted(known, reverse=True)
            known = [row["country"] == "FR" for row in rest(client, query.removesuffix(sort))]
            assert any(known) and known == sorted(known, reverse=True)


def test_the_current_price_of_a_product_stands_above_its_old_ones(client, prices):
    """The launch price of a card is not what it costs, however low it is; another product does not replace it."""
    for usd, days, kind in ((1_999, 700, "chip"), (2_700, 280, "chip"), (4_800, 57, "chip"), (5_300, 20, "chip"),
                            (9_000, 200, "server")):  # fmt: skip
        offer("l4", "shop", usd, days=days, term="purchase", kind=kind, instance=f"l4 for {usd}", country="DE")
    query = "accelerator=l4&term=purchase"
    usd = [4_800, 5_300, 9_000, 1_999, 2_700]
    assert [row["usd_per_chip"] for row in rest(client, query)] == usd
    shown = page(client, query)
    assert [shown.index(f">l4 for {each}<") for each in usd] == sorted(shown.index(f">l4 for {each}<") for each in usd)
    detail = client.get("/catalog/accelerators/l4").content.decode()
    assert detail.index("l4 for 5300") < detail.index("l4 for 9000") < detail.index("l4 for 2700")
    assert detail.index("l4 for 2700") < detail.index("l4 for 1999")


def test_prices_in_another_currency_name_the_rate_and_its_date(client, prices):
    (row,) = rest(client, f"{QUESTION}&anywhere=no&currency=EUR")
    assert (row["converted_to"], row["converted_per_chip_hour"]) == ("EUR", 1.5)
    assert (row["converted_per_chip_month"], row["converted_per_chip"]) == (1095, None)
    (row,) = rest(client, "accelerator=h100&term=purchase&currency=EUR")
    assert (row["usd_per_chip"], row["converted_per_chip"]) == (30_000, 15_000)
    assert rest(client, QUESTION)[0]["converted_to"] == "USD"
    text = page(client, f"{QUESTION}&currency=EUR")
    assert f"1 USD = 0.5 EUR on {TODAY}" in text and "EUR/h per chip" in text
    assert (
        "per chip</a></th>" in page(client, QUESTION)
        and "EUR" not in page(client, QUESTION).split("<table")[1].split("</table>")[0]
    )


def test_an_unknown_currency_is_refused_with_the_known_ones(client, prices):
    refused = client.get("/api/v1/prices?currency=XYZ")
    assert refused.status_code == 400
    (error,) = refused.json()["errors"]
    assert error["field"] == "currency" and error["message"] == "No exchange rate for XYZ. Use one of EUR, USD."
    assert "Use one of EUR, USD." in page(client, "currency=XYZ")


def test_an_explicit_sort_wins(client, prices):
    assert providers(client, f"{QUESTION}&ordering=-usd_per_chip_hour") == ["paris", "world"]
    text = page(client, f"{QUESTION}&sort=-per_chip")
    assert text.index(">paris<") < text.index(">world<")


def test_the_page_leads_to_the_index_and_to_own_prices(client, prices):
    text = page(client, "")
    for address in ("/catalog/prices/index", "/catalog/prices/new", "/catalog/prices/upload"):
        assert f'href="{address}"' in text
    assert "/catalog/prices/index/h100-sxm" in client.get("/catalog/accelerators/h100-sxm").content.decode()
