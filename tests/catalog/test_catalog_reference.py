"""The whole reference catalog through its pages and REST."""

import pytest

from catalog.models import Accelerator, Framework, QuantizationMethod, Region, ServedModel, Unit

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]


@pytest.mark.parametrize("every", [8, pytest.param(1, marks=pytest.mark.soak)])
def test_every_thing_in_the_catalog_has_a_page(client, every: int):
    """`make test` opens every eighth page."""
    addresses = [
        *(f"accelerators/{slug}" for slug in Accelerator.objects.values_list("slug", flat=True)[::every]),
        *(f"models/{slug}" for slug in ServedModel.objects.values_list("slug", flat=True)[::every]),
        *(f"quantizations/{slug}" for slug in QuantizationMethod.objects.values_list("slug", flat=True)[::every]),
        *(f"units/{slug}" for slug in Unit.objects.values_list("slug", flat=True)[::every]),
        *(f"regions/{slug}" for slug in Region.objects.values_list("slug", flat=True)[::every]),
        *("/".join(("frameworks", *key)) for key in Framework.objects.values_list("slug", "version")[::every]),
    ]
    broken = [address for address in addresses if client.get(f"/catalog/{address}").status_code != 200]
    assert not broken


@pytest.mark.parametrize(
    ("address", "key", "value"),
    [
        ("accelerators/h200-sxm", "memory_gb_per_s", 4800),
        ("models/meta-llama-llama-3-1-8b", "published_parameters", 8_030_261_248),
        ("quantizations/awq", "settings", {"weights_dtype": "int4"}),
        ("frameworks/llama.cpp", "name", "llama.cpp"),
        ("regions/aws-us-east-1", "country", "United States"),
        ("assumptions/pue", "unit", "ratio"),
        ("units/gb200-nvl72", "accelerators", 72),
        ("frameworks/vllm", "maturity", "established"),
        ("frameworks/tgi", "maturity", "unknown"),
    ],
)
def test_rest_reads_one_thing_by_its_name(client, address, key, value):
    found = client.get(f"/api/v1/{address}").json()[key]
    assert value.items() <= found.items() if isinstance(value, dict) else found == value


def test_rest_lists_are_narrowed_and_paged(client):
    first = client.get("/api/v1/prices?accelerator=h100-sxm&term=on_demand&limit=5").json()
    assert len(first["results"]) == 5 < first["count"]
    assert {row["accelerator"] for row in first["results"]} == {"h100-sxm"}
    assert {row["term"] for row in client.get(first["next"]).json()["results"]} == {"on_demand"}


@pytest.mark.parametrize("address", ["accelerators?kind=none", "prices?since=soon", "accelerators?memory_gib_min=x"])
def test_rest_refuses_a_filter_that_makes_no_sense(client, address):
    assert client.get(f"/api/v1/{address}").status_code == 400


@pytest.mark.parametrize("address", ["accelerators/none", "frameworks/none", "prices/0"])
def test_rest_does_not_find_what_is_not_there(client, address):
    assert client.get(f"/api/v1/{address}").status_code == 404


@pytest.mark.parametrize("address", ["accelerators", "prices", "models", "frameworks", "quantizations", "regions"])
def test_rest_only_reads(client, address):
    assert client.post(f"/api/v1/{address}", {}, content_type="application/json").status_code in (403, 405)
