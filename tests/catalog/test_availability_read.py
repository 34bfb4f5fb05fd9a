"""What feeds state about availability: read, kept when nothing else changed, and shown with its date."""

import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client

from catalog.importers.prices import Account, gpu_price_index, gpuhunt, lambda_cloud, names
from catalog.loading.fixtures import PRICE_COLUMNS, FixtureError
from catalog.models import Accelerator, Availability, Price
from tests.catalog.test_price_readers import CATALOG, DAY, SAMPLES

LAMBDA = SAMPLES / "lambda_cloud.json"
INSTANCES = {"gpu_8x_h100_sxm5": ("h100-sxm", 8), "gpu_1x_a10": ("a10", 1)}


def test_lambda_states_the_price_of_each_type_and_whether_a_region_has_some() -> None:
    account = Account()
    catalog = names.Catalog(gib={}, instances=INSTANCES)
    rows = list(lambda_cloud.read(LAMBDA.read_text(), catalog, DAY, account))
    assert [(r["instance"], r["accelerators"], r["usd_per_hour"], r["availability"]) for r in rows] == [
        ("gpu_8x_h100_sxm5", "8", "31.92", "sold_out"), ("gpu_1x_a10", "1", "1.29", "available"),
    ]  # fmt: skip
    assert account.skipped == {"instance type not in the catalog": 1, "no accelerator": 1}
    assert account.proposed == {"gpu_4x_new": "4 x New (1 TB)"}


@pytest.mark.parametrize("text", ["[]", "{}", '{"data": []}', "no JSON"])
def test_what_is_no_answer_of_lambda_is_refused(text: str) -> None:
    with pytest.raises(FixtureError, match="Lambda Cloud API"):
        list(lambda_cloud.read(text, CATALOG, DAY, Account()))


@pytest.mark.parametrize("broken", [None, 1, {}, {"instance_type": {"name": "x"}}, {"instance_type": None}])
def test_a_broken_instance_type_is_counted(broken: Any) -> None:
    account = Account()
    assert list(lambda_cloud.read(json.dumps({"data": {"x": broken}}), CATALOG, DAY, account)) == []
    assert account.skipped == {"unreadable instance type": 1}


def test_a_placeholder_of_runpod_is_sold_out_and_hosts_of_vast_can_be_rented() -> None:
    account = Account()
    rows = list(gpu_price_index.read((SAMPLES / "gpu_price_index.csv").read_text(), CATALOG, DAY, account))
    assert [(g["provider"], g["accelerator"], g["availability"], g["as_of"].isoformat()) for g in account.gone] == [
        ("runpod", "mi300x", "sold_out", "2026-10-10")
    ]
    assert {r.get("availability", "") for r in rows if r["provider"] == "vast-ai"} == {"available"}
    assert {r.get("availability", "") for r in rows if r["provider"] != "vast-ai"} == {""}
    hosts = gpuhunt.read(SAMPLES / "gpuhunt_vastai.csv", "vast-ai", CATALOG, DAY, Account())
    assert {r["availability"] for r in hosts} == {"available"}


def lambda_read(path: Path, day: str) -> None:
    call_command("prices", "sync", "--from", "lambda", "--file", path, "--as-of", day)


@pytest.mark.django_db
@pytest.mark.usefixtures("frozen")
def test_a_refresh_keeps_what_is_sold_out_and_pages_and_rest_show_it(
    tmp_path: Path, capsys: Any, client: Client
) -> None:
    chip = Accelerator.objects.get(slug="h100-sxm")
    offer = {"provider": "lambda", "instance": "gpu_8x_h100_sxm5", "accelerator": chip, "accelerators": 8}
    Price.objects.create(**offer, region="us-east-1", term="on_demand", usd_per_hour="31.92", kind="vm",
                         as_of="2026-11-01", source="s", smallest_unit_accelerators=8)  # fmt: skip
    lambda_read(LAMBDA, "2026-11-22")
    assert "1 sold out" in capsys.readouterr().out
    more = tmp_path / "types.json"
    none_left, some = '"regions_with_capacity_available": []', '"regions_with_capacity_available": ["x"]'
    more.write_text(LAMBDA.read_text().replace(none_left, some, 1))
    shown = client.get("/catalog/prices?provider=lambda&accelerator=h100-sxm").content.decode()
    assert "sold out on 2026-11-22" in shown
    found = client.get("/api/v1/prices", {"provider": "lambda", "accelerator": "h100-sxm"}).json()
    assert {
        (r["availability"], r["availability_as_of"]) for r in found["results"] if r["instance"] == "gpu_8x_h100_sxm5"
    } == {("sold_out", "2026-11-22")}
    lambda_read(more, "2026-11-23")  # the price is unchanged: no new row of it
    assert [a.state for a in Availability.objects.filter(accelerator=chip)] == ["available", "sold_out"]
    assert (
        "available on 2026-11-23" in client.get("/catalog/prices?provider=lambda&accelerator=h100-sxm").content.decode()
    )


@pytest.mark.django_db
@pytest.mark.usefixtures("frozen")
def test_a_file_of_prices_may_state_availability_and_nothing_else_than_the_two_words(tmp_path: Path) -> None:
    head = ",".join((*PRICE_COLUMNS, "availability"))
    file = tmp_path / "prices.csv"
    file.write_text(head + "\nsomecloud,x,h100-sxm,1,eu,,,on_demand,3,,vm,2026-11-20,their page,,sold_out\n")
    call_command("import_prices", "--from", "csv", file)
    assert Availability.objects.get().state == "sold_out"
    file.write_text(file.read_text().replace(",sold_out", ",gone"))
    with pytest.raises(Exception, match="availability"):
        call_command("import_prices", "--from", "csv", file)
