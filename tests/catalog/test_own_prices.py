"""An organization adds its own prices and discounts: by form, by a table with a preview; private and never changed."""

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from catalog.models import (
    Accelerator,
    Discount,
    ExchangeRate,
    HeldPrice,
    Membership,
    Organisation,
    Price,
    PriceImport,
)
from catalog.pricing import own
from tests.clocks import TODAY
from tests.people import member

pytestmark = pytest.mark.django_db
NEW, UPLOAD, LIST, DISCOUNT = (
    "/catalog/prices/new",
    "/catalog/prices/upload",
    "/catalog/prices/own",
    "/catalog/discounts/new",
)
PRICE = {
    "accelerator": "h100-sxm", "accelerators": 8, "provider": "acme", "instance": "big-8", "term": "on_demand",
    "price": "20", "currency": "USD", "per": "instance", "as_of": TODAY.isoformat(), "source": "quote 4711 of Acme",
    "confidence": "high",
}  # fmt: skip
HEAD = "provider,instance,accelerator,accelerators,term,usd_per_hour,as_of,source\n"


@pytest.fixture(autouse=True)
def catalog() -> None:
    """A chip with four public prices of about $2.50 an hour, and a rate of the euro."""
    chip = Accelerator.objects.create(
        slug="h100-sxm", name="H100 SXM5 80GB", vendor="v", family="f", kind="gpu", memory_gib=80, memory_gb_per_s=1,
        as_of=TODAY, form_factor="SXM5",
    )  # fmt: skip
    for usd in ("2.0", "2.4", "2.5", "3.0"):
        Price.objects.create(
            provider=f"p{usd}", instance="one", accelerator=chip, accelerators=1, region="any", term="on_demand",
            usd_per_hour=Decimal(usd), kind="vm", as_of=TODAY, source="list",
        )  # fmt: skip
    for days, rate in ((200, "0.50"), (20, "0.80")):
        day = TODAY - timedelta(days=days)
        ExchangeRate.objects.create(currency="EUR", per_usd=Decimal(rate), as_of=day, source="ECB")


def post(client: Client, path: str, status: int = 302, **given: Any) -> str:
    answer = client.post(path, given)
    assert answer.status_code == status, answer.content.decode()
    return answer.content.decode()


def ours() -> Any:
    return Price.objects.exclude(organisation=None)


def line(instance: str, usd: str, chips: int = 8, day: Any = TODAY) -> str:
    return f"acme,{instance},h100-sxm,{chips},on_demand,{usd},{day},quote\n"


# --- one price --------------------------------------------------------------------------------------------------


def test_a_price_is_saved_on_one_click_for_the_organization_alone(client: Client) -> None:
    post(client, NEW, **PRICE)
    row = ours().get()
    assert row.organisation.slug == "default" and row.usd_per_hour == 20 and row.listed_price is None
    assert (row.kind, row.origin, row.confidence, row.unit) == ("vm", "quote", "high", "instance")
    done = PriceImport.objects.get()
    assert (done.file_format, done.made_by, done.created_rows) == ("form", "", 1)
    assert client.get("/api/v1/prices?provider=acme").json()["count"] == 0
    text = client.get(LIST).content.decode()
    assert "acme big-8" in text and "quote 4711 of Acme" in text and "age-fresh" in text


def test_a_price_of_each_accelerator_is_multiplied(client: Client) -> None:
    post(client, NEW, **PRICE | {"per": "chip", "price": "2.5"})
    assert ours().get().usd_per_hour == 20


def test_another_currency_is_converted_with_the_newest_rate_and_kept(client: Client) -> None:
    post(client, NEW, **PRICE | {"currency": "EUR", "price": "2", "per": "chip"})
    row = ours().get()
    assert (row.usd_per_hour, row.currency, row.listed_price) == (20, "EUR", 16)
    ExchangeRate.objects.create(currency="EUR", per_usd=Decimal("0.9"), as_of=TODAY, source="ECB")
    post(client, NEW, **PRICE | {"currency": "EUR", "price": "2", "per": "chip"})
    assert ours().get().usd_per_hour == 20  # the same price again, in spite of the newer rate


def test_an_unknown_currency_names_the_known_ones(client: Client) -> None:
    text = post(client, NEW, 422, **PRICE | {"currency": "SEK"})
    assert "no exchange rate for SEK" in text and "USD, EUR" in text


def test_a_purchase_may_have_a_range(client: Client) -> None:
    bought = PRICE | {"term": "purchase", "price": "240000", "low": "200000", "high": "280000", "currency": "EUR"}
    post(client, NEW, **bought)
    row = ours().get()
    assert (row.purchase_usd, row.purchase_usd_min, row.purchase_usd_max) == (300_000, 250_000, 350_000)
    assert (row.kind, row.unit, row.usd_per_hour) == ("server", "server", None)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"accelerator": ""}, "Fill this in"),
        ({"accelerator": "h100-sxn"}, "Did you mean h100-sxm"),
        ({"price": "0"}, "above zero"),
        ({"price": "$20"}, "without a currency sign"),
        ({"accelerators": "0"}, "greater than or equal to 1"),
        ({"term": "lease"}, "Use one of on_demand"),
        ({"country": "Germany!"}, "two letters"),
        ({"kind": "rack"}, "does not fit how it is paid"),
        ({"low": "10"}, "Only a purchase has a range"),
        ({"term": "purchase", "price": "100", "low": "200"}, "at most the price"),
        ({"as_of": "yesterday"}, "Enter a date such as"),
        ({"price": "1e9"}, "less than $1,000,000 per hour"),
    ],
)  # fmt: skip
def test_an_error_says_what_to_do(client: Client, changes: dict[str, str], words: str) -> None:
    text = post(client, NEW, 422, **PRICE | changes)
    assert words in text and 'role="alert"' in text
    assert not ours().exists() and not PriceImport.objects.exists()


def test_a_price_that_looks_like_a_mistake_needs_a_second_click(client: Client) -> None:
    given = PRICE | {"price": "2.40"}
    text = post(client, NEW, 422, **given)
    assert "the price of one chip instead of 8" in text and "Save anyway" in text
    assert not ours().exists() and not HeldPrice.objects.exists()
    post(client, NEW, **given, accept_unusual="on")
    assert ours().get().usd_per_hour == Decimal("2.40")
    assert HeldPrice.objects.get().state == "released"
    post(client, NEW, **given)  # known by now: not asked again
    assert ours().count() == 1


def test_a_saved_price_is_never_changed_but_a_newer_one_is_added(client: Client) -> None:
    old = PRICE | {"as_of": (TODAY - timedelta(days=40)).isoformat()}
    post(client, NEW, **old)
    text = post(client, NEW, 422, **old | {"price": "21"})
    assert "already saved $20.00" in text and "newer date" in text
    post(client, NEW, **PRICE | {"price": "21"})
    assert sorted(ours().values_list("usd_per_hour", flat=True)) == [20, 21]


def test_the_accelerator_is_chosen_where_one_comes_from_its_page(client: Client) -> None:
    page = client.get("/catalog/accelerators/h100-sxm").content.decode()
    assert f'href="{NEW}?accelerator=h100-sxm"' in page
    assert '<option value="h100-sxm" selected>' in client.get(f"{NEW}?accelerator=h100-sxm").content.decode()
    assert client.get(f"{NEW}?accelerator=nothing").status_code == 200


def test_a_seller_is_written_as_in_the_public_prices(client: Client) -> None:
    post(client, NEW, **PRICE | {"provider": "P2.0"})
    assert ours().get().provider == "p2.0"


# --- a table ----------------------------------------------------------------------------------------------------


def test_a_table_is_shown_first_and_saved_then(client: Client) -> None:
    post(client, UPLOAD, table=HEAD + line("big-8", "20", day=TODAY - timedelta(days=30)), save="1")
    table = HEAD + line("big-8", "18") + line("one", "2.6", chips=1) + line("bad-8", "2.4")
    text = post(client, UPLOAD, 200, table=table, look="1")
    assert "~ newer price" in text and "was $20.00 per hour" in text and "+ new" in text
    assert "? new" in text and "the price of one chip instead of 8" in text and "1 price looks unusual" in text
    assert ours().count() == 1 and not HeldPrice.objects.exists()

    post(client, UPLOAD, table=table, file_name="quotes.csv", save="1")
    assert sorted(ours().values_list("usd_per_hour", flat=True)) == [Decimal("2.6"), 18, 20]
    done = PriceImport.objects.first()
    assert done and (done.file_name, done.file_format, done.created_rows) == ("quotes.csv", "csv", 2)
    assert "the price of one chip instead of 8" in client.get(LIST).content.decode()


def test_unusual_prices_of_a_table_are_saved_if_that_is_asked(client: Client) -> None:
    post(client, UPLOAD, table=HEAD + line("bad-8", "2.4"), accept_unusual="on", save="1")
    assert ours().get().usd_per_hour == Decimal("2.4")


def test_the_same_table_again_changes_nothing(client: Client) -> None:
    table = HEAD + line("big-8", "20") + line("bad-8", "2.4")
    post(client, UPLOAD, table=table, save="1")
    assert "= saved already" in post(client, UPLOAD, 200, table=table, look="1")
    post(client, UPLOAD, table=table, save="1")
    assert ours().count() == 1 and HeldPrice.objects.count() == 1


def test_errors_name_their_line_and_nothing_is_saved(client: Client) -> None:
    table = (
        HEAD + line("big-8", "20") + "acme,x,h100,zero,lease,,2026-01-01,\n" + line("big-8", "20") + "a,b,c,1,2,3,4,5,6"
    )
    text = post(client, UPLOAD, 422, table=table, save="1")
    for words in ("Line 3, accelerators", "Line 3, term", "Line 3, source", "Did you mean", "Line 4: The same offer",
                  "Line 5: This line has more cells"):  # fmt: skip
        assert words in text, words
    assert not ours().exists() and not PriceImport.objects.exists()


def test_a_file_with_semicolons_and_euros_is_read(client: Client) -> None:
    text = "provider;instance;accelerator;accelerators;term;listed_price;currency;as_of;source\r\n"
    text += f"acme;big-8;H100 SXM5 80GB;8;reserved_1y;16;EUR;{TODAY};quote\r\n\r\n"
    file = SimpleUploadedFile("q.csv", b"\xef\xbb\xbf" + text.encode())
    shown = post(client, UPLOAD, 200, upload=file, look="1")
    assert "$20.00 per hour" in shown and "16.00 EUR" in shown and 'value="q.csv"' in shown
    post(client, UPLOAD, table=text, save="1")
    row = ours().get()
    assert (row.usd_per_hour, row.currency, row.listed_price, row.term) == (20, "EUR", 16, "reserved_1y")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "Give one of them"),
        ({"table": HEAD}, "no price under the column names"),
        ({"table": "provider,colour\na,b"}, "Unknown columns: colour"),
        ({"table": "provider\na"}, "Columns are missing: instance"),
        ({"table": HEAD.replace("source", "source,source")}, "given twice: source"),
        ({"table": HEAD.replace("usd_per_hour", "currency") + line("a", "EUR")}, "usd_per_hour: Give a price here"),
        ({"upload": SimpleUploadedFile("f", b"\xff\xfe\x00")}, "not text in UTF-8"),
    ],
)
def test_a_table_that_cannot_be_read_says_why(client: Client, given: dict[str, Any], words: str) -> None:
    assert words in post(client, UPLOAD, 422, look="1", **given)


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("currency", "EUR", "listed_price: Give the price in EUR here"),
        ("listed_price", "3", "This differs from usd_per_hour"),
        ("purchase_usd", "3", "Leave this empty: on demand has its price in usd_per_hour"),
        ("marks", "lucky", "marks"),
        ("confidence", "sure", "Use one of high, medium, low"),
    ],
)
def test_a_price_is_given_once(client: Client, column: str, value: str, words: str) -> None:
    table = HEAD.replace("source", f"source,{column}") + line("big-8", "20").strip() + f",{value}"
    assert words in post(client, UPLOAD, 422, table=table, look="1")


# --- prices that wait -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("act", "state", "count"), [("release", "released", 1), ("discard", "discarded", 0)])
def test_a_waiting_price_is_saved_or_dropped(client: Client, act: str, state: str, count: int) -> None:
    post(client, UPLOAD, table=HEAD + line("bad-8", "2.4"), save="1")
    held = HeldPrice.objects.get()
    post(client, LIST, **{act: held.pk})
    held.refresh_from_db()
    assert (held.state, held.decided_by, ours().count()) == (state, "", count)
    assert "does not wait" in client.post(LIST, {act: "999"}, follow=True).content.decode()


def test_prices_of_other_organizations_are_not_seen_and_not_decided(client: Client) -> None:
    other = Organisation.objects.create(slug="other", name="Other")
    book = own.Book(other)
    read = own.read_table(book, HEAD + line("theirs", "20") + line("odd", "2.4"))
    own.save(book, read.lines, "eve", own.TABLE, "f.csv")
    assert ours().get().organisation == other
    assert "theirs" not in client.get(LIST).content.decode()
    post(client, LIST, release=HeldPrice.objects.get().pk)
    assert HeldPrice.objects.get().state == "held"
    assert client.get("/api/v1/own-prices").json()["count"] == 0


# --- discounts --------------------------------------------------------------------------------------------------


def test_a_discount_is_saved_in_percent_and_replaced_by_a_newer_one(client: Client) -> None:
    given = {"provider": "P2.0", "discount_percent": "15", "as_of": "2026-01-02", "source": "contract 12"}
    post(client, DISCOUNT, **given)
    row = Discount.objects.get()
    assert (row.provider, row.discount_fraction, row.accelerator, row.term) == ("p2.0", 0.15, None, "")
    assert "newer date" in post(client, DISCOUNT, 422, **given | {"discount_percent": "16"})
    post(client, DISCOUNT, **given | {"discount_percent": "16", "as_of": "2026-02-02", "accelerator": "h100-sxm"})
    assert Discount.objects.count() == 2
    assert "15%" in client.get(LIST).content.decode()


@pytest.mark.parametrize("percent", ["0", "100", "-5", "much", ""])
def test_a_discount_is_between_nothing_and_all(client: Client, percent: str) -> None:
    given = {"provider": "p2.0", "discount_percent": percent, "as_of": "2026-01-02", "source": "contract 12"}
    post(client, DISCOUNT, 422, **given)
    assert not Discount.objects.exists()


# --- who may ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [NEW, UPLOAD, DISCOUNT])
def test_users_without_the_right_are_told_and_visitors_sign_in(client: Client, path: str) -> None:
    ada = member("ada", "viewer")
    assert client.get(path)["Location"] == f"/login?next={path}"
    client.force_login(ada)
    for refused in (client.get(path), client.post(path, PRICE)):
        assert refused.status_code == 403 and "needs the role planner or higher" in refused.content.decode()
    Membership.objects.update(role="planner")
    assert client.get(path).status_code == 200
    assert not ours().exists()


def test_the_list_is_for_people_of_the_organization(client: Client) -> None:
    ada = member("ada", "viewer")
    assert client.get(LIST).status_code == 302
    client.force_login(ada)
    text = client.get(LIST).content.decode()
    assert "needs the role planner or higher" in text and "Add a price" not in text
    assert client.post(LIST, {"release": "1"}).status_code == 403


def test_the_pages_keep_to_the_content_policy(client: Client) -> None:
    post(client, NEW, **PRICE)
    for path in (NEW, UPLOAD, LIST, DISCOUNT):
        text = client.get(path).content.decode()
        assert " style=" not in text and "<script>" not in text and text.count("<h1") == 1, path
        assert text.count("<table") == text.count("<caption"), path
