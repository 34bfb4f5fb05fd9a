"""The earlier prices of an offer beside its newest one."""

from datetime import date

import pytest
from django.test import Client

from catalog import charts
from catalog.models import Accelerator, Price

pytestmark = pytest.mark.django_db


def test_fewer_than_two_prices_draw_nothing() -> None:
    assert charts.sparkline([(date(2026, 1, 1), 2.0)], "USD per chip-hour") == ""


def test_a_price_holds_until_the_next_and_lower_is_lower() -> None:
    drawn = charts.sparkline([(date(2026, 1, 1), 4.0), (date(2026, 1, 11), 2.0), (date(2026, 1, 21), 3.0)], "USD")
    assert 'd="M3.0 3.0H32.0V15.0H61.0V9.0"' in drawn
    assert "3 prices, 2026-01-01 to 2026-01-21: 4.00 to 3.00 USD" in drawn


@pytest.mark.usefixtures("frozen")
def test_a_row_shows_the_public_prices_of_its_own_offer(client: Client) -> None:
    chip = Accelerator.objects.get(slug="l4")
    offer = {"provider": "acme", "instance": "one", "accelerator": chip, "accelerators": 2, "region": "x", "kind": "vm"}
    for day, usd in ((1, "4.00"), (9, "3.00")):
        Price.objects.create(**offer, term="on_demand", usd_per_hour=usd, as_of=date(2026, 11, day), source="list")
    Price.objects.create(**offer, term="spot", usd_per_hour="1.00", as_of=date(2026, 11, 1), source="list")
    text = client.get("/catalog/prices?provider=acme").content.decode()
    assert text.count('class="spark"') == 1
    assert "2 prices, 2026-11-01 to 2026-11-09: 2.00 to 1.50 USD per chip-hour" in text
