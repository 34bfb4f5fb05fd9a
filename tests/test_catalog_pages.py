"""The catalog's pages: every list and thing can be read, narrowed and sorted by its address."""

from decimal import Decimal

import pytest

from catalog.models import Accelerator, Organisation, Price
from catalog.views import LISTS

pytestmark = pytest.mark.django_db


@pytest.fixture
def catalog(db):
    """Two chips, a public and a private offer."""
    source = {"memory": {"source": "a data sheet", "as_of": "2026-01-01", "basis": "read"}}
    common = {"as_of": "2026-01-01", "vendor": "acme", "family": "f", "kind": "gpu", "sources": source}
    small = Accelerator.objects.create(
        slug="small", name="Small One", memory_gib=16, memory_gb_per_s=300, dense_tflops={"fp16": 65}, **common
    )
    Accelerator.objects.create(
        slug="large", name="Large One", memory_gib=96, memory_gb_per_s=4000, dense_tflops={"bf16": 900, "fp8": 1800},
        **common,
    )  # fmt: skip
    offer = {
        "provider": "moon", "instance": "m1", "accelerator": small, "accelerators": 2, "term": "on_demand",
        "usd_per_hour": Decimal(3), "kind": "vm", "as_of": "2026-01-01", "source": "price list",
    }  # fmt: skip
    Price.objects.create(**offer)
    Price.objects.create(**{**offer, "instance": "secret"}, organisation=Organisation.objects.get(slug="default"))


def page(client, address):
    response = client.get(address)
    assert response.status_code == 200
    return response.content.decode()


@pytest.mark.parametrize("name", LISTS)
def test_an_empty_catalog_says_what_to_do(client, name):
    assert "load_catalog" in page(client, f"/catalog/{name}")


def test_the_catalog_opens_on_the_accelerators(client):
    assert client.get("/catalog/").url == "/catalog/accelerators"


def test_a_list_is_narrowed_by_its_address(client, catalog):
    text = page(client, "/catalog/accelerators?dtype=fp8")
    assert "Large One" in text and "Small One" not in text
    assert "Large One" not in page(client, "/catalog/accelerators?memory_gib_min=100")


def test_a_list_is_sorted_by_its_address(client, catalog):
    text = page(client, "/catalog/accelerators?sort=-memory_gib")
    assert text.index("Large One") < text.index("Small One")
    assert 'aria-sort="descending"' in text


def test_a_sorted_list_stays_narrowed(client, catalog):
    assert "?vendor=acme&amp;sort=name" in page(client, "/catalog/accelerators?vendor=acme")


def test_a_filter_that_makes_no_sense_is_said_beside_its_field(client, catalog):
    text = page(client, "/catalog/accelerators?memory_gib_min=much")
    assert "Enter a number" in text


def test_a_page_beyond_the_last_is_the_last(client, catalog):
    assert "Small One" in page(client, "/catalog/accelerators?page=99")


def test_a_chip_shows_its_figures_their_source_and_its_offers(client, catalog):
    text = page(client, "/catalog/accelerators/small")
    assert "16 GiB" in text and "a data sheet (read, 2026-01-01)" in text
    assert "moon" in text and "1.5000" in text


def test_private_offers_stay_private(client, catalog):
    for address in ("/catalog/prices", "/catalog/accelerators/small", "/api/v1/prices"):
        assert "secret" not in page(client, address)


def test_an_unknown_thing_is_not_found(client, catalog):
    for address in ("/catalog/accelerators/none", "/catalog/models/none", "/catalog/frameworks/a/1", "/catalog/none"):
        assert client.get(address).status_code == 404
