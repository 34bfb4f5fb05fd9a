"""The price index: what is known at the end of each month, and nothing in between."""

import csv
import io
from datetime import date
from decimal import Decimal

import pytest

from catalog.charts import IndexLine, price_index_figure
from catalog.loading import fixtures
from catalog.loading.load import load
from catalog.models import Accelerator, Organisation, Price, PriceLevel
from catalog.pricing.history import Point, Series, indexes, months_before

pytestmark = pytest.mark.django_db
DAY = date(2026, 6, 20)


def chip(slug, **more):
    common = {"vendor": "nvidia", "family": "big ones", "kind": "gpu", "as_of": DAY}
    return Accelerator.objects.create(
        slug=slug, name=slug.upper(), memory_gib=80, memory_gb_per_s=1000, **(common | more)
    )


def offer(accelerator, provider, usd, as_of, term="on_demand", origin="official_list", instance="i", chips=1):
    return Price.objects.create(
        accelerator=accelerator, provider=provider, instance=instance, accelerators=chips, term=term, kind="vm",
        as_of=as_of, source="list", usd_per_hour=Decimal(usd), origin=origin,
    )  # fmt: skip


def series(slug, name="on_demand"):
    (index,) = indexes(DAY, [slug])
    return next((each for each in index.series if each.name == name), None)


def levels(slug, name="on_demand"):
    return [(p.month_text, p.usd_per_chip_hour, p.providers) for p in series(slug, name).points]


@pytest.fixture
def large(db):
    return chip("large")


def test_a_month_has_the_median_of_the_newest_price_of_each_provider(large):
    offer(large, "sun", 16, date(2026, 4, 3), chips=8)
    offer(large, "sun", 3, date(2026, 5, 30))
    offer(large, "moon", 5, date(2026, 4, 30))
    offer(large, "mars", 6, date(2026, 6, 1))
    assert levels("large") == [("2026-04", 3.5, 2), ("2026-05", 4, 2), ("2026-06", 5, 3)]


def test_rows_of_one_day_count_as_one_price_of_their_provider(large):
    for number, usd in enumerate((1, 2, 9)):
        offer(large, "sun", usd, date(2026, 6, 1), instance=f"i{number}")
    offer(large, "moon", 4, date(2026, 6, 1))
    assert levels("large") == [("2026-06", 3, 2)]


def test_months_without_a_price_of_the_last_ninety_days_are_absent(large):
    offer(large, "sun", 2, date(2025, 9, 30))
    offer(large, "sun", 3, date(2026, 5, 2))
    assert [month for month, *_ in levels("large")] == ["2025-09", "2025-10", "2025-11", "2026-05", "2026-06"]


def test_later_prices_are_not_known_before(large):
    offer(large, "sun", 2, date(2026, 6, 1))
    offer(large, "moon", 9, date(2026, 7, 1))
    assert levels("large") == [("2026-06", 2, 1)]
    assert series("large").newest.as_of == DAY


def test_kinds_of_prices_are_kept_apart(large):
    for origin, term, usd in (
        ("provider_api", "on_demand", 4), ("official_list", "spot", 2), ("marketplace", "on_demand", 1),
        ("marketplace", "spot", 1), ("index", "on_demand", 99), ("estimate", "spot", 99), ("reseller", "on_demand", 99),
        ("official_list", "reserved_1y", 99),
    ):  # fmt: skip
        offer(large, f"{origin} {term}", usd, date(2026, 6, 1), term=term, origin=origin)
    for name, usd, providers in (("on_demand", 4, 1), ("spot", 2, 1), ("marketplace", 1, 2)):
        assert levels("large", name) == [("2026-06", usd, providers)]


def test_private_prices_and_processors_are_left_out(large):
    row = offer(large, "sun", 2, date(2026, 6, 1))
    Price.objects.filter(pk=row.pk).update(organisation=Organisation.objects.get(slug="default"))
    offer(chip("socket", kind="cpu"), "sun", 1, date(2026, 6, 1))
    assert indexes(DAY) == []


def test_a_family_has_the_median_over_its_chips(large):
    small = chip("small")
    offer(large, "sun", 6, date(2026, 6, 1))
    offer(small, "sun", 2, date(2026, 5, 1))
    offer(small, "moon", 8, date(2026, 6, 1))
    assert levels("family-big-ones") == [("2026-05", 2, 1), ("2026-06", 6, 2)]
    assert [(each.kind, each.slug) for each in indexes(DAY)] == [
        ("chip", "large"), ("chip", "small"), ("family", "family-big-ones")
    ]  # fmt: skip


def test_a_change_needs_a_level_of_that_very_month():
    def at(year, month, usd):
        return Point(month=date(year, month, 1), as_of=date(year, month, 28), usd_per_chip_hour=usd, providers=1)

    found = Series(name="spot", points=[at(2025, 6, 4.0), at(2026, 2, 1.0), at(2026, 6, 3.0)])
    assert (found.change_3_months_percent, found.change_12_months_percent) == (None, -25)
    assert months_before(date(2026, 1, 1), 3) == date(2025, 10, 1)


def test_published_levels_are_a_series_of_their_own(client, large):
    for month, usd in ((3, 2), (6, 3)):
        PriceLevel.objects.create(
            accelerator=large, term="reserved", usd_per_chip_hour=usd, as_of=date(2026, month, 15), source="rate cards"
        )
    assert levels("large", "published_reserved") == [("2026-03", 2, None), ("2026-06", 3, None)]
    assert series("large", "published_reserved").change_3_months_percent == 50
    assert indexes(DAY, ["family-big-ones"]) == []
    text = client.get("/catalog/prices/index/large").content.decode()
    assert "Reserved, published level" in text and "rate cards" in text and "+50.0%" in text


def test_pages_and_files(client, large):
    offer(large, "sun", 2, date(2026, 6, 1))
    text = client.get("/catalog/prices/index").content.decode()
    assert "/catalog/prices/index/large" in text and "On demand, official" in text
    text = client.get("/catalog/prices/index/large").content.decode()
    assert "<svg" in text and "2026-06" in text and "2.00" in text
    assert "Chips of this family" in client.get("/catalog/prices/index/family-big-ones").content.decode()
    overview = list(csv.DictReader(io.StringIO(client.get("/catalog/prices/index?format=csv").content.decode())))
    assert [(row["slug"], row["series"], row["providers"]) for row in overview] == [
        ("large", "on_demand", "1"), ("family-big-ones", "on_demand", "1")
    ]  # fmt: skip
    rows = list(csv.DictReader(io.StringIO(client.get("/catalog/prices/index/large?format=csv").content.decode())))
    assert (rows[0]["month"], rows[0]["as_of"], rows[0]["usd_per_chip_hour"]) == ("2026-06", "2026-06-30", "2.0")


def test_a_chip_without_rents_says_so_and_an_unknown_one_is_not_found(client, large):
    assert "no rents" in client.get("/catalog/prices/index/large").content.decode()
    assert client.get("/catalog/prices/index/none").status_code == 404
    assert "no prices" in client.get("/catalog/prices/index").content.decode()


def test_only_neighboring_months_are_joined():
    points = tuple((date(2026, month, 28), date(2026, month, 1), 2.0) for month in (1, 2, 5))
    drawn = price_index_figure([IndexLine(name="<spot>", hue=1, points=points)], "Prices")["svg"]
    paths = [each.split('"')[0] for each in drawn.split('<path class="series" d="')[1:]]
    assert [(path.count("M"), path.count("L")) for path in paths] == [(1, 1), (1, 0)]
    assert "&lt;spot&gt;" in drawn and not price_index_figure([], "Prices")


def test_published_levels_are_append_only(tmp_path, large):
    (tmp_path / "prices").mkdir()
    file = tmp_path / "price_history.csv"
    head = "accelerator,term,usd_per_chip_hour,as_of,source,notes\n"
    file.write_text(head + "large,on_demand,2.5,2026-01-15,cards,\n")
    assert load(tmp_path, scores=False)["price_levels"].created == 1
    assert load(tmp_path, scores=False)["price_levels"].unchanged == 1
    file.write_text(head + "large,on_demand,2.6,2026-01-15,cards,\n")
    with pytest.raises(fixtures.FixtureError, match="append-only"):
        load(tmp_path, scores=False)
    file.write_text(head + "large,weekly,2.6,2026-02-15,cards,\n")
    with pytest.raises(fixtures.FixtureError, match="term"):
        load(tmp_path, scores=False)
