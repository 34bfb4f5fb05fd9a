"""`price.moved` is sent whichever way a price changes that an answer relies on, and only then."""

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.management import call_command
from django.db import DatabaseError, transaction
from django.db.models import QuerySet
from django.db.models.signals import post_delete, post_save
from django.test import Client

from advisor import webhooks
from advisor.api import tokens
from advisor.models import WebhookDelivery
from catalog.deletion import delete_model
from catalog.importers.prices.offers import offer as offer_of
from catalog.loading import fixtures, load, moves
from catalog.models import (
    Accelerator,
    ApiPrice,
    Discount,
    HeldPrice,
    Organisation,
    Price,
    ServedModel,
    Unit,
    default_organisation,
)
from catalog.pricing import imports, own, sources, sync
from tests import sample_advice
from tests.clocks import TODAY
from tests.people import member, organisation

pytestmark = pytest.mark.django_db
OFFER = {"provider": "nebius", "instance": "gpu-8", "region": "", "accelerator": "h100-sxm", "term": "on_demand"}
BEFORE = TODAY - timedelta(days=3)


@pytest.fixture(autouse=True)
def answered() -> None:
    """An answer that relies on a rented offer at $20.00 an hour and on a hosted API; a webhook for its prices."""
    chip = Accelerator.objects.create(
        slug="h100-sxm", name="H100", vendor="v", family="f", kind="gpu", memory_gib=80, memory_gb_per_s=1, as_of=TODAY
    )
    for provider in ("nebius", "other", "third", "fourth"):
        Price.objects.create(
            **OFFER | {"accelerator": chip, "provider": provider}, accelerators=8, usd_per_hour=20, kind="vm",
            as_of=BEFORE, source="list",
        )  # fmt: skip
    model = ServedModel.objects.create(
        slug="acme-own", hf_id="acme/own", family="f", shape={}, native_dtype="bf16", as_of=TODAY,
        published_parameters=1, max_context_tokens=1,
    )  # fmt: skip
    ApiPrice.objects.create(
        model=model, provider="together", name="acme/own", usd_per_mtok_input=1, usd_per_mtok_output=2, as_of=BEFORE,
        source="list",
    )  # fmt: skip
    answer = sample_advice.result()
    first, second, *_ = answer["recommendations"]
    first |= OFFER
    second |= {"acquisition": "api", "provider": "together", "instance": "acme/own", "region": "", "accelerator": ""}
    answer["recommendations"] = [first, second]
    sample_advice.advice(answer)
    webhooks.create(default_organisation(), "https://example.com/", ["price.moved"], "ada")


def told(owner: Organisation | None = None) -> list[dict[str, Any]]:
    """The offers of every event, in the order in which they were written."""
    rows = WebhookDelivery.objects.filter(endpoint__organisation=owner or default_organisation(), type="price.moved")
    return [offer for row in rows.order_by("pk") for offer in json.loads(row.body)["data"]["offers"]]


def typed(client: Client, usd: float = 25) -> None:
    given = OFFER | {"accelerators": 8, "price": usd, "currency": "USD", "per": "instance", "confidence": "high"}
    given |= {"as_of": TODAY.isoformat(), "source": "quote", "accept_unusual": "on"}
    assert client.post("/catalog/prices/new", given).status_code == 302


def row(usd: float = 25, **rest: Any) -> dict[str, Any]:
    return OFFER | {"accelerators": 8, "usd_per_hour": usd, "as_of": TODAY.isoformat(), "source": "quote"} | rest


def uploaded(client: Client) -> None:
    lines = [",".join(row()), ",".join(map(str, row().values()))]
    file = SimpleUploadedFile("prices.csv", "\n".join(lines).encode())
    assert client.post("/catalog/prices/upload", {"upload": file, "save": "1"}).status_code == 302


def called(client: Client, path: str, body: Any) -> Any:
    headers = {"Authorization": f"Bearer {tokens.make('ci', 'admin')[0]}"}
    answer = client.post(path, body, "application/json", headers=headers)
    assert answer.status_code in (200, 201), answer.content
    return answer.json()


def by_rest(client: Client) -> None:
    called(client, "/api/v1/own-prices", row())


def released_by_rest(client: Client) -> None:
    held = called(client, "/api/v1/own-prices", row(0.02))["held_prices"][0]["id"]
    assert not told()
    called(client, f"/api/v1/held-prices/{held}/release", {})


def released_on_the_page(client: Client) -> None:
    called(client, "/api/v1/own-prices", row(0.02))
    client.post("/catalog/prices/own", {"release": HeldPrice.objects.get().pk})


def released_among_the_updates(client: Client) -> None:
    called(client, "/api/v1/own-prices", row(0.02))
    client.post(f"/catalog/prices/held/{HeldPrice.objects.get().pk}", {"decision": "release"})


def discounted_by_rest(client: Client) -> None:
    discount = {"provider": "nebius", "discount_fraction": 0.25, "as_of": TODAY.isoformat(), "source": "contract"}
    called(client, "/api/v1/discounts", discount)


def discounted_on_the_page(client: Client) -> None:
    given = {"provider": "nebius", "discount_percent": "25", "as_of": TODAY.isoformat(), "source": "contract"}
    assert client.post("/catalog/discounts/new", given).status_code == 302


def refreshed(client: Client) -> None:
    given = row(25, **dict.fromkeys(("purchase_usd", "notes", "vcpus", "host_memory_gib"), ""), kind="vm")
    source = sources.Source(
        name="azure", title="t", download=lambda opened, etags: sources.Download(texts={}),
        rows=lambda name, text, as_of, account: [
            offer_of({name: str(value) for name, value in given.items()}, (account.row(),))
        ],
    )  # fmt: skip
    read = sync.add(source, sources.Download(texts={"a": ""}), "ann", TODAY)
    assert not read.error and read.changed_prices == 1


def imported(client: Client) -> None:
    imports.add([fixture()], "csv", "a.csv", "ann", None)


def fixture(**rest: Any) -> Any:
    text = dict.fromkeys((*fixtures.PRICE_COLUMNS, "origin"), "") | {"kind": "vm", "confidence": "high"}
    return fixtures.price("", text | {name: str(value) for name, value in row(**rest).items()})


def added_by_the_operator(client: Client) -> None:
    client.force_login(member("root", "admin", is_staff=True, is_superuser=True))
    shown = client.get("/admin/catalog/price/add/")
    given = {name: "" if value is None else value for name, value in shown.context["adminform"].form.initial.items()}
    given |= row(25, accelerator=Accelerator.objects.get().pk, kind="vm", unit="instance", currency="USD")
    given |= {"origin": "official_list", "confidence": "high"}
    answer = client.post("/admin/catalog/price/add/", given)
    assert answer.status_code == 302, answer.context["adminform"].form.errors


RENTS: list[Callable[[Client], None]] = [
    typed, uploaded, by_rest, released_by_rest, released_on_the_page, released_among_the_updates, discounted_by_rest,
    discounted_on_the_page, refreshed, imported, added_by_the_operator,
]  # fmt: skip


@pytest.fixture
def guarded(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Whether each row with a price was written while prices were `moving`: no way to change one is forgotten."""
    priced, seen = (Price, ApiPrice, Discount, Unit), list[bool]()

    def noted(sender: Any, **rest: Any) -> None:
        if sender in priced:
            seen.append(moves._is_moving.get())

    written = QuerySet.bulk_create

    def bulk_create(self: Any, rows: Any, *args: Any, **kwargs: Any) -> Any:
        if rows:
            noted(self.model)
        return written(self, rows, *args, **kwargs)

    monkeypatch.setattr(QuerySet, "bulk_create", bulk_create)
    for signal in (post_save, post_delete):
        signal.connect(noted)
    yield seen
    for signal in (post_save, post_delete):
        signal.disconnect(noted)


@pytest.mark.parametrize("route", RENTS, ids=lambda each: each.__name__)
def test_every_way_to_change_a_rent_tells_it_once(
    route: Callable[[Client], None], client: Client, guarded: list[bool]
) -> None:
    route(client)
    (moved,) = told()
    assert moved["instance"] == "gpu-8" and moved["usd_before"] == {"per_hour": 20.0, "purchase": None}
    wanted = 15.0 if "discount" in route.__name__ else 0.02 if "released" in route.__name__ else 25.0
    assert moved["usd_after"] == {"per_hour": wanted, "purchase": None} and len(moved["answers"]) == 1
    assert guarded and all(guarded)


def test_what_changes_no_price_tells_nothing(client: Client) -> None:
    typed(client, 20)  # the same price as the public one
    called(client, "/api/v1/own-prices", row(30, provider="other"))  # no answer relies on it
    called(client, "/api/v1/own-prices", row(0.02, region="any"))  # it waits for a decision
    imports.discard(HeldPrice.objects.get().pk, "ann")
    imports.add([fixture(usd=25)], "csv", "a.csv", "ann", None)  # the organization pays its own price
    discounted_by_rest(client)  # which a discount does not change
    assert not told()
    theirs = organisation("theirs")
    own.save_discounts(own.Book(theirs), [], "bob")
    load.append_prices([fixture(usd=44)], theirs, "bob")
    assert not told() and not told(theirs)


def test_hosted_prices_move_end_and_come_with_a_catalog(client: Client, tmp_path: Path) -> None:
    load.append_api_prices(
        [fixtures.api_price("", {name: "" for name in fixtures.API_PRICE_COLUMNS} | {
            "provider": "together", "model": "acme-own", "name": "acme/own", "usd_per_mtok_input": "1.5",
            "usd_per_mtok_output": "2", "as_of": TODAY.isoformat(), "source": "list",
        })]
    )  # fmt: skip
    delete_model(ServedModel.objects.get(), "ann")
    (tmp_path / "prices").mkdir()
    cells = row() | {"kind": "vm", "confidence": "high"}
    lines = [",".join(names := fixtures.PRICE_COLUMNS), ",".join(str(cells.get(name, "")) for name in names)]
    (tmp_path / "prices" / "a.csv").write_text("\n".join(lines))
    call_command("load_catalog", str(tmp_path), verbosity=0)
    assert [(each["usd_before"], each["usd_after"]) for each in told()] == [
        ({"input": 1.0, "output": 2.0}, {"input": 1.5, "output": 2.0}),
        ({"input": 1.5, "output": 2.0}, {"input": None, "output": None}),
        ({"per_hour": 20.0, "purchase": None}, {"per_hour": 25.0, "purchase": None}),
    ]


def test_a_change_that_is_undone_tells_nothing() -> None:
    with pytest.raises(DatabaseError), transaction.atomic():
        load.append_prices([fixture()])
        raise DatabaseError
    assert not told() and not moves._is_moving.get()
    load.append_prices([fixture()])
    assert len(told()) == 1
