"""REST calls that add an organization's own prices and discounts: scopes, errors by field, the same call again."""

from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from advisor.api import tokens
from catalog.models import Accelerator, Discount, ExchangeRate, HeldPrice, Organisation, Price
from tests.clocks import TODAY
from tests.people import member

pytestmark = pytest.mark.django_db
PRICES, DISCOUNTS = "/api/v1/own-prices", "/api/v1/discounts"
PRICE = {
    "provider": "acme", "instance": "big-8", "accelerator": "h100-sxm", "accelerators": 8, "term": "on_demand",
    "as_of": TODAY.isoformat(), "source": "quote 4711 of Acme", "usd_per_hour": 20,
}  # fmt: skip
ODD = {**PRICE, "instance": "odd-8", "usd_per_hour": 2.4}
DISCOUNT = {"provider": "p2.0", "discount_fraction": 0.15, "as_of": "2026-01-02", "source": "contract 12"}


@pytest.fixture(autouse=True)
def catalog() -> None:
    chip = Accelerator.objects.create(
        slug="h100-sxm", name="H100", vendor="v", family="f", kind="gpu", memory_gib=80, memory_gb_per_s=1, as_of=TODAY,
    )  # fmt: skip
    for usd in ("2.0", "2.4", "2.5", "3.0"):
        Price.objects.create(
            provider=f"p{usd}", instance="one", accelerator=chip, accelerators=1, region="any", term="on_demand",
            usd_per_hour=Decimal(usd), kind="vm", as_of=TODAY, source="list",
        )  # fmt: skip
    ExchangeRate.objects.create(currency="EUR", per_usd=Decimal("0.8"), as_of="2026-01-01", source="ECB")


def send(path: str, body: Any, token: str = "", status: int = 201) -> Any:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    answer = Client().post(path, body, content_type="application/json", headers=headers)
    assert answer.status_code == status, answer.content
    return answer.json()


def ours() -> Any:
    return Price.objects.exclude(organisation=None)


@pytest.mark.parametrize("scope", ["prices", "admin"])
@pytest.mark.parametrize("has_users", [True, False])
def test_a_token_with_the_scope_adds_a_price(scope: str, has_users: bool) -> None:
    if has_users:
        User.objects.create_user("ada")
    token = tokens.make("ci", scope)[0]
    answer = send(PRICES, PRICE, token)
    assert answer == {"created": 1, "changed": 0, "unchanged": 0, "held": 0, "held_prices": []}
    row = ours().get()
    assert (row.organisation.slug, row.usd_per_hour, row.kind, row.origin) == ("default", 20, "vm", "quote")
    assert send(DISCOUNTS, DISCOUNT, token)["created"] == 1


@pytest.mark.parametrize("scope", ["read", "submit"])
@pytest.mark.parametrize(("path", "body"), [(PRICES, PRICE), (DISCOUNTS, DISCOUNT)])
def test_other_scopes_may_not_even_without_users(scope: str, path: str, body: Any) -> None:
    token = tokens.make("ci", scope)[0]
    detail = send(path, body, token, 403)["detail"]
    assert f"scope is {scope}" in detail and "prices or admin" in detail
    assert not ours().exists() and not Discount.objects.exists()
    assert Client().get(path, headers={"Authorization": f"Bearer {token}"}).status_code == 200


def test_the_scope_opens_nothing_else() -> None:
    token = tokens.make("ci", "prices")[0]
    for path in ("/api/v1/advice", "/api/v1/enrolments", "/api/v1/probe-jobs"):
        send(path, {}, token, 403)


def test_visitors_may_only_while_there_is_no_user() -> None:
    assert send(PRICES, PRICE)["created"] == 1
    member("ada", "viewer")
    send(PRICES, PRICE, status=401)
    send(DISCOUNTS, DISCOUNT, status=401)
    assert Client().get(PRICES).status_code == 401
    ada = Client()
    ada.force_login(User.objects.get())
    assert ada.get(PRICES).json()["count"] == 1
    refused = ada.post(PRICES, PRICE, content_type="application/json")
    assert refused.status_code == 403


def test_the_same_rows_again_change_nothing() -> None:
    rows = [PRICE, {**PRICE, "instance": "eur-8", "usd_per_hour": None, "listed_price": 16, "currency": "EUR"}]
    assert send(PRICES, rows)["created"] == 2
    ExchangeRate.objects.create(currency="EUR", per_usd=Decimal("0.9"), as_of="2026-02-01", source="ECB")
    again = send(PRICES, rows)
    assert (again["created"], again["unchanged"]) == (0, 2)
    assert sorted(ours().values_list("usd_per_hour", "currency")) == [(20, "EUR"), (20, "USD")]
    assert send(DISCOUNTS, [DISCOUNT])["created"] == 1
    assert send(DISCOUNTS, DISCOUNT) == {"created": 0, "changed": 0, "unchanged": 1}


def test_an_unusual_price_is_held_once_and_saved_if_accepted() -> None:
    answer = send(PRICES, [PRICE, ODD])
    assert (answer["created"], answer["held"]) == (1, 1)
    (held,) = answer["held_prices"]
    assert held["row"] == 1 and "one chip instead of 8" in held["reason"] and held["id"] == HeldPrice.objects.get().pk
    assert send(PRICES, ODD)["held_prices"] == [{**held, "row": 0}]
    assert HeldPrice.objects.count() == 1 and ours().count() == 1
    assert send(PRICES, {**ODD, "accept_unusual": True})["created"] == 1
    assert send(PRICES, ODD)["unchanged"] == 1
    assert HeldPrice.objects.get().state == "released"


def test_all_rows_or_none() -> None:
    errors = send(PRICES, [PRICE, {**PRICE, "instance": "b", "accelerator": "h1000"}], status=422)["errors"]
    assert [each["field"] for each in errors] == ["[1].accelerator"] and "no accelerator" in errors[0]["message"]
    assert not ours().exists()


@pytest.mark.parametrize(
    ("change", "field", "status"),
    [
        ({"provider": 5}, "provider", 400),
        ({"usd_per_hour": "20"}, "usd_per_hour", 400),
        ({"accelerators": 0}, "accelerators", 400),
        ({"term": "lease"}, "term", 400),
        ({"accept_unusual": "yes"}, "accept_unusual", 400),
        ({"as_of": "soon"}, "as_of", 422),
        ({"usd_per_hour": None}, "usd_per_hour", 422),
        ({"usd_per_hour": -1}, "usd_per_hour", 400),
        ({"usd_per_hour": 0}, "usd_per_hour", 422),
        ({"currency": "SEK", "listed_price": 5}, "currency", 422),
        ({"color": "red"}, "color", 422),
        ({"country": "?"}, "country", 422),
        ({"kind": "rack"}, "kind", 422),
        ({"organisation": 2}, "organisation", 422),
    ],
)
def test_an_error_names_its_field(change: dict[str, Any], field: str, status: int) -> None:
    found = send(PRICES, {**PRICE, **change}, status=status)
    assert found["errors"][0]["field"] == field and found["errors"][0]["message"]
    assert (
        send(PRICES, [PRICE, {**PRICE, "instance": "b", **change}], status=status)["errors"][0]["field"]
        == f"[1].{field}"
    )
    assert not ours().exists()


def test_a_saved_price_is_never_changed() -> None:
    send(PRICES, PRICE)
    (error,) = send(PRICES, {**PRICE, "usd_per_hour": 21}, status=422)["errors"]
    assert "newer date" in error["message"]
    send(DISCOUNTS, DISCOUNT)
    assert "newer date" in send(DISCOUNTS, {**DISCOUNT, "discount_fraction": 0.2}, status=422)["errors"][0]["message"]
    assert (ours().count(), Discount.objects.count()) == (1, 1)


@pytest.mark.parametrize("body", ["{", '{"a": 1, "a": 2}', "[" * 100_000, "[]", "5", "null", '{"provider": NaN}', ""])
@pytest.mark.parametrize("path", [PRICES, DISCOUNTS])
def test_what_is_no_price_is_refused(path: str, body: str) -> None:
    answer = Client().generic("POST", path, body, "application/json")
    assert (
        answer.status_code == (422 if body in ("[]", "", "null") else 400)
        and answer["Content-Type"] == "application/problem+json"
    )


@pytest.mark.parametrize(
    ("change", "field"),
    [({"discount_fraction": 1}, "discount_fraction"), ({"accelerator": "b"}, "accelerator"), ({"as_of": "x"}, "as_of")],
)
def test_a_discount_error_names_its_field(change: dict[str, Any], field: str) -> None:
    status = 400 if field == "discount_fraction" else 422
    assert send(DISCOUNTS, {**DISCOUNT, **change}, status=status)["errors"][0]["field"] == field


def test_two_discounts_of_one_call_must_not_contradict_each_other() -> None:
    send(DISCOUNTS, [DISCOUNT, {**DISCOUNT, "discount_fraction": 0.2}], status=422)
    assert not Discount.objects.exists()


def test_a_token_of_another_organization_sees_and_adds_only_its_own() -> None:
    send(PRICES, PRICE)
    token, row = tokens.make("theirs", "prices")
    row.organisation = Organisation.objects.create(slug="other", name="Other")
    row.save()
    headers = {"Authorization": f"Bearer {token}"}
    assert Client().get(PRICES, headers=headers).json()["count"] == 0
    assert send(PRICES, PRICE, token)["created"] == 1
    assert Price.objects.filter(organisation=row.organisation).count() == 1
    assert "organisation" not in Client().get(PRICES, headers=headers).json()["results"][0]
    assert Client().get("/api/v1/prices").json()["count"] == 4


def test_lists_refuse_unknown_parameters() -> None:
    assert Client().get(f"{PRICES}?provider=acme").status_code == 400
