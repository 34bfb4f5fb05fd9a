"""Catalog pages and REST lists are rendered once, answered with 304, and new as soon as the catalog changes."""

import gzip
from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.test import Client, RequestFactory

from catalog.models import Accelerator, ExchangeRate, Membership, Price, ServedModel
from catalog.revision import key_of, revision
from tests.people import member, organisation

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
PATHS = (
    "/catalog/prices", "/catalog/accelerators", "/catalog/accelerators/h100-sxm", "/catalog/prices/index",
    "/catalog/compare?a=h100-sxm&a=mi300x", "/api/v1/prices", "/api/v1/accelerators", "/api/v1/accelerators/h100-sxm",
)  # fmt: skip


def add_price() -> None:
    old = Price.objects.filter(accelerator__slug="h100-sxm", organisation=None, usd_per_hour__gt=0).latest("as_of")
    old.pk, old.provider = None, "new-provider"
    old.save()


def rename_chip() -> None:
    chip = Accelerator.objects.get(slug="h100-sxm")
    chip.name = "H100 renamed"
    chip.save()


def delete_model() -> None:
    ServedModel.objects.filter(api_prices=None).first().delete()  # type: ignore[union-attr]


def add_rate() -> None:
    old = ExchangeRate.objects.latest("as_of")
    ExchangeRate.objects.create(currency=old.currency, per_usd=old.per_usd * 2, as_of="2026-11-01", source="a test")


@pytest.mark.parametrize("path", PATHS)
def test_an_unchanged_page_is_not_sent_again(client: Client, path: str) -> None:
    first = client.get(path)
    again = client.get(path, headers={"If-None-Match": first["ETag"]})
    assert (first.status_code, again.status_code, again.content) == (200, 304, b"")
    assert first["Cache-Control"] == again["Cache-Control"] == "private, no-cache"
    assert client.get(path).content == first.content


@pytest.mark.parametrize("change", [add_price, rename_chip, delete_model, add_rate])
def test_any_change_of_the_catalog_makes_every_page_new(client: Client, change: Callable[[], None]) -> None:
    paths = ("/catalog/prices", "/api/v1/accelerators")
    etags = {path: client.get(path)["ETag"] for path in paths}
    change()
    for path, etag in etags.items():
        assert client.get(path, headers={"If-None-Match": etag}).status_code == 200, path


def test_a_new_price_is_shown_at_once(client: Client) -> None:
    path = "/api/v1/prices?accelerator=h100-sxm&limit=1000"
    assert "new-provider" not in client.get(path).text
    add_price()
    assert "new-provider" in client.get(path).text
    assert "new-provider" in client.get("/catalog/prices?accelerator=h100-sxm&rows=500").text


def test_another_filter_is_another_page(client: Client) -> None:
    first, other = client.get("/catalog/accelerators?rows=10"), client.get("/catalog/accelerators?rows=11")
    assert first["ETag"] != other["ETag"] and first.content != other.content


def test_no_page_of_one_user_is_shown_to_another(client: Client) -> None:
    for name in ("ada", "bob"):
        member(name)
    ada, bob = Client(), Client()
    ada.force_login(User.objects.get(username="ada"))
    bob.force_login(User.objects.get(username="bob"))
    assert "Signed in as ada" in ada.get("/catalog/regions").text
    assert "Signed in as ada" in ada.get("/catalog/regions").text
    assert "Signed in as bob" in bob.get("/catalog/regions").text
    assert "Signed in" not in client.get("/catalog/regions").text


def test_a_page_is_kept_for_one_role_and_organization_of_its_viewer(rf: RequestFactory) -> None:
    def key() -> str:
        request = rf.get("/catalog/prices")
        request.user = User.objects.get()
        return key_of(request, "state", by_viewer=True)

    member("ada", "planner")
    keys = [key(), key()]
    Membership.objects.update(role="viewer")
    keys.append(key())
    Membership.objects.update(organisation=organisation("acme"))
    keys.append(key())
    assert keys[0] == keys[1] and len(set(keys)) == 3


def test_a_refused_list_is_not_kept(client: Client) -> None:
    refused = client.get("/api/v1/prices?no-such=1")
    assert refused.status_code == 400 and "ETag" not in refused


def test_pages_are_compressed_for_clients_that_say_so(client: Client) -> None:
    plain = client.get("/catalog/prices")
    packed = client.get("/catalog/prices", headers={"Accept-Encoding": "gzip"})
    assert packed["Content-Encoding"] == "gzip" and "Content-Encoding" not in plain
    assert gzip.decompress(packed.content) == plain.content and len(packed.content) * 4 < len(plain.content)


def test_reading_changes_no_revision(client: Client) -> None:
    before = revision()
    client.get("/catalog/prices")
    assert revision() == before
