"""Addresses of lists are short, columns come in groups, and long texts do not stretch a table."""

from decimal import Decimal

import pytest

from catalog.models import Accelerator, Price
from catalog.texts import number, shortened

pytestmark = pytest.mark.django_db


@pytest.fixture
def price(db):
    chip = Accelerator.objects.create(
        slug="one", name="Acme <One>", vendor="acme", kind="gpu", family="f", as_of="2026-01-01", memory_gib=80,
        memory_gb_per_s=1000,
    )  # fmt: skip
    return Price.objects.create(
        accelerator=chip, provider="moon", instance="m1", region="fr-par", country="FR", accelerators=8,
        term="spot", usd_per_hour=Decimal(2), kind="vm", as_of="2026-01-01", source="<b>price list</b> " * 20,
    )  # fmt: skip


def test_what_the_form_sends_becomes_a_short_address(client, price):
    usual = "&".join(f"columns={name}" for name in ("provider", "instance", "accelerator", "per_chip"))
    sent = client.get(f"/catalog/prices?search=&term=spot&age=&accelerator=&{usual}&page=2&apply=1")
    assert sent["Location"] == "/catalog/prices?term=spot&columns=provider,instance,accelerator,per_chip"
    assert client.get("/catalog/prices?search=&apply=1")["Location"] == "/catalog/prices"


def test_the_usual_columns_are_not_in_the_address(client, price):
    text = client.get("/catalog/prices").content.decode()
    boxes = [
        part.split('"')[0]
        for part in text.split('name="columns" value="')[1:]
        if part[:60].split(">")[0].endswith(" checked")
    ]
    sent = client.get("/catalog/prices?apply=1&" + "&".join(f"columns={name}" for name in boxes))
    assert sent["Location"] == "/catalog/prices"
    assert "<legend>Evidence</legend>" in text


def test_a_row_leads_to_its_history_and_to_a_filled_form(client, price):
    text = client.get("/catalog/prices").content.decode()
    assert 'href="/catalog/prices/index/one"' in text
    address = text.split('href="/catalog/prices/new?accelerator=', 1)[1].split('"')[0].replace("&amp;", "&")
    form = client.get(f"/catalog/prices/new?accelerator={address}").content.decode()
    for value in ('value="moon"', 'value="m1"', 'value="fr-par"', 'value="FR"', 'value="8"'):
        assert value in form
    assert '<option value="spot" selected>' in form and '<option value="one" selected>' in form


def test_a_cell_is_escaped_and_a_long_one_opens_on_demand(client, price):
    text = client.get("/catalog/prices").content.decode()
    assert "Acme &lt;One&gt;" in text and "<b>price" not in text
    assert '<details class="cut"><summary>&lt;b&gt;price list&lt;/b&gt;' in text
    assert shortened("short") == "short"


def test_numbers_have_separators_and_no_trailing_zeros():
    assert (number(1234.5, 2), number(1234, 2)) == ("1,234.5", "1,234")


def test_a_comparison_marks_the_best_value_in_words_and_hides_equal_rows_on_demand(client, price):
    Accelerator.objects.create(
        slug="two", name="Two", vendor="acme", kind="gpu", family="f", as_of="2026-01-01", memory_gib=96,
        memory_gb_per_s=1000,
    )  # fmt: skip
    text = client.get("/catalog/compare?a=one&a=two").content.decode()
    assert '<strong>96</strong> <span class="flag">★ best</span>' in text
    assert "spot, USD/h per chip" in text and "0.25 (1 offer)" in text
    assert "Bandwidth" in text
    assert "Bandwidth" not in client.get("/catalog/compare?a=one&a=two&only=differences").content.decode()
    lines = client.get("/catalog/compare?a=one&a=two&format=csv").content.decode().splitlines()
    assert lines[0] == "figure,one,two" and '"Memory, GiB",80,96' in lines
