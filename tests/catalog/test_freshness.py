"""How fresh the catalog is: as a command, a page and by REST, with the same figures."""

import json
from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import call_command
from django.test import Client

from catalog import clock
from catalog.details import freshness
from catalog.models import Accelerator, Price, PriceRefresh, ScoredRow
from catalog.pricing.current import AGES, by_age
from tests.clocks import TODAY

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]


def kind(name: str) -> dict:
    return next(each for each in freshness.found()["kinds"] if each["name"] == name)


def test_each_kind_has_its_newest_date_and_ages_that_add_up() -> None:
    found = freshness.found()
    assert found["as_of"] == TODAY.isoformat() and found["catalog"]["version"]
    for each in found["kinds"]:
        assert sum(each["by_age"].values()) == each["rows"], each["name"]
        assert each["oldest"] <= each["newest"], each["name"]
    assert kind("accelerators")["rows"] == Accelerator.objects.count()


def test_a_price_that_was_read_today_is_the_newest() -> None:
    price = Price.objects.filter(organisation=None, term="on_demand").order_by("-as_of").first()
    assert price is not None
    price.pk, price.as_of = None, TODAY
    price.save()
    found = kind("prices")
    assert (found["newest"], found["age_days"]) == (TODAY.isoformat(), 0)


def test_prices_status_and_status_count_the_same_ages() -> None:
    out = StringIO()
    call_command("prices", "status", "--json", stdout=out)
    told = json.loads(out.getvalue())["offers_by_age"]
    assert told == {age: count for age, count in kind("prices")["by_age"].items() if count}


@pytest.mark.parametrize("days", [-3, 0, 30, 31, 90, 91, 365, 366, 4000])
def test_an_age_is_counted_once(days: int) -> None:
    counts = by_age([TODAY - timedelta(days=days)], TODAY)
    most = next((age for age, limit in AGES.items() if days <= limit), "older")
    assert {age for age, count in counts.items() if count} == {most} and sum(counts.values()) == 1


@pytest.mark.parametrize(
    ("versions", "newest"),
    [
        (["0.5.9", "0.5.10", "0.5.2"], "0.5.10"), (["2024-05-01", "May 2024", "nightly-dev-1"], ""),
        (["b7000", "b12211"], "b12211"), (["0.24.0", "mlperf-6.0", "rocm-2025-08"], "0.24.0"), ([], ""),
    ],
)  # fmt: skip
def test_the_newest_measured_version_is_a_release(versions: list[str], newest: str) -> None:
    ScoredRow.objects.all().delete()
    for number, version in enumerate(versions):
        ScoredRow.objects.create(
            key=str(number), framework="vllm", framework_version=version, chips=1, isl=1, osl=1, client_known=True
        )
    (found,) = [row for row in freshness.frameworks() if row["framework"] == "vllm"]
    assert found["measured_version"] == newest


def test_command_page_and_rest_show_the_same(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    call_command("status", "--json")
    found = json.loads(capsys.readouterr().out)
    assert client.get("/api/v1/freshness").json() == found
    page = client.get("/catalog/freshness").content.decode()
    assert all(each["name"] in page and each["newest"] in page for each in found["kinds"])
    call_command("status")
    lines = capsys.readouterr().out
    assert all(each["name"] in lines for each in found["kinds"])


def test_what_price_sources_list_and_the_catalog_lacks_is_named(client: Client) -> None:
    report = {
        "sources": [
            {"source": "azure", "proposed": {"Standard_ND_GB400": "an accelerator that the catalog does not have"}}
        ]
    }
    now = clock.now()
    PriceRefresh.objects.create(state="done", made_by="me", lease_until=now, finished_at=now, report=report)
    assert freshness.found()["lacking"] == {"azure": report["sources"][0]["proposed"]}
    assert "Standard_ND_GB400" in client.get("/catalog/freshness").content.decode()


def test_unknown_parameters_are_refused(client: Client) -> None:
    assert client.get("/api/v1/freshness?newest=1").status_code == 400
